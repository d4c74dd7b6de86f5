"""The archives that XLNet's authors released, by their names."""

from __future__ import annotations

import base64
import http.client
import os
import re
import urllib.request

from txl_tf.data.text.download import PublishedFile, fetch
from txl_tf.errors import InputError

PLACE = "https://storage.googleapis.com/xlnet/released_models"
NAMES = ("cased_L-12_H-768_A-12.zip", "cased_L-24_H-1024_A-16.zip")


CACHE = "TXL_TF_CACHE"
"""The environment variable for another cache folder than ~/.cache/txl_tf."""


def cached(name: str = "") -> str:
    """The absolute path of a file in the cache folder, or of this folder."""
    home = os.environ.get(CACHE) or os.path.join(os.path.expanduser("~"), ".cache", "txl_tf")
    return os.path.join(os.path.abspath(home), name)


def local(path: str) -> str:
    """`path`, or if it is one of NAMES and no file, the path of that archive, downloaded into the cache folder once.

    InputError if it cannot be downloaded.
    """
    if path not in NAMES or os.path.exists(path):
        return path
    kept = cached(path)
    return kept if os.path.exists(kept) else fetch(_as_offered(f"{PLACE}/{path}"), cached())


def _as_offered(url: str) -> PublishedFile:
    """The file with the size and the MD5 that Google's storage states, since the authors published no checksum."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=30) as answer:
            size, sums = int(answer.headers["Content-Length"]), ",".join(answer.headers.get_all("x-goog-hash") or ())
        md5 = base64.b64decode(re.findall(r"md5=([^,]+)", sums)[0]).hex()
    except (OSError, http.client.HTTPException, TypeError, ValueError, IndexError) as error:
        name = url.rpartition("/")[2]
        raise InputError(f"there is no file {name}, and {url} does not answer ({error}): fetch it by hand") from error
    return PublishedFile((url,), size, f"md5:{md5}")
