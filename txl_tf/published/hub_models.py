"""Published models by their names: those of Hugging Face's Hub, and the archives that XLNet's authors released."""

from __future__ import annotations

import base64
import http.client
import os
import re
import urllib.request
from typing import TYPE_CHECKING

from txl_tf.data.text.download import PublishedFile
from txl_tf.data.text.download import fetch as download
from txl_tf.errors import InputError
from txl_tf.published.huggingface import files
from txl_tf.published.layout import naming_source
from txl_tf.storage import hub

if TYPE_CHECKING:
    from huggingface_hub.utils import HfUri

_NAME = re.compile(r"([\w.-]+)/[\w.-]+(@.+)?")
_OLD_NAMES = {
    "xlnet-base-cased": "xlnet/xlnet-base-cased",
    "xlnet-large-cased": "xlnet/xlnet-large-cased",
    "transfo-xl-wt103": "transfo-xl/transfo-xl-wt103",
}
"""Names from before models had owners."""
PLACE = "https://storage.googleapis.com/xlnet/released_models"
NAMES = ("cased_L-12_H-768_A-12.zip", "cased_L-24_H-1024_A-16.zip")
CACHE = "TXL_TF_CACHE"
"""The environment variable for another cache folder than ~/.cache/txl_tf."""


def found(path: str) -> HfUri | None:
    """The model that a name means in the Hub, with its present commit as revision; None: it is a path.

    OWNER/NAME[@REVISION] is a name if there is neither such a path nor a folder OWNER. So a mistyped path asks
    nobody. hf://OWNER/NAME[@REVISION] is always a name. InputError as `storage.hub.resolve`, or for a data set.
    """
    given = path.removeprefix(hub.PREFIX)
    name, at, revision = given.partition("@")
    body = _OLD_NAMES.get(name, name) + at + revision
    is_bare = given == path
    parts = _NAME.fullmatch(body)
    is_name = name in _OLD_NAMES or (parts and not os.path.isdir(parts[1]))
    if is_bare and (os.path.lexists(path) or not is_name):
        return None
    place = hub.parse(hub.PREFIX + body)
    if place.type != "model" or place.path_in_repo:
        raise InputError(f"{path} is not a model: give hf://OWNER/NAME, if need be with @REVISION")
    try:
        return hub.resolve(place)
    except InputError as error:
        raise InputError(f"no folder {path}; {error}" if is_bare else str(error)) from error


def address(place: HfUri) -> str:
    """hf://OWNER/NAME@COMMIT."""
    return f"{hub.PREFIX}{place.id}@{place.revision}"


def fetch(place: HfUri) -> str:
    """The local folder with those files of a model that are read.

    InputError as `storage.hub.fetch`, or if it is a model of another kind, or lacks config.json or weights.
    """
    where = address(place)
    folder = hub.fetch(place, lambda names: files.needed(names, where)[:1])
    with naming_source(where, folder):
        files.model_type(folder)  # before weights of hundreds of megabytes
    return hub.fetch(place, lambda names: files.needed(names, where))


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
    return kept if os.path.exists(kept) else download(_as_offered(f"{PLACE}/{path}"), cached())


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
