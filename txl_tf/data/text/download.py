"""Downloads published files: resumes, checks sizes and checksums, and falls back to mirrors."""

from __future__ import annotations

import dataclasses
import http.client
import os
import socket
import time
import urllib.error
import urllib.request

from absl import logging

from txl_tf.errors import InputError
from txl_tf.progress import progress_bar
from txl_tf.storage.files import digest

_TRIES = 5  # at one address; an attempt that received bytes does not count
_TIMEOUT_SECONDS = 30
_USER_AGENT = "Mozilla/5.0 (compatible; txl_tf)"  # some servers refuse Python's own


@dataclasses.dataclass(frozen=True)
class PublishedFile:
    """A published file: its addresses, mirrors last; its size; and its digest, "sha256:..." or "md5:..."."""

    urls: tuple[str, ...]
    bytes: int
    digest: str

    @property
    def name(self) -> str:
        """The name of the file on disk."""
        return self.urls[0].rsplit("/", 1)[-1]

    def check(self, path: str) -> None:
        """Raises InputError unless the local file at `path` has this size and checksum."""
        size = os.path.getsize(path)
        if size != self.bytes:
            raise InputError(f"{path} has {size:,} bytes, the published file {self.bytes:,}: fetch it again")
        kind, expected = self.digest.split(":")
        found = digest(path, kind)
        if found != expected:
            raise InputError(f"{path} is not the published file: its {kind} is {found}, not {expected}")


def fetch(published: PublishedFile, directory: str, pause: float = 1.0) -> str:
    """The local path of a published file, downloaded into `directory` unless it is there already.

    An incomplete download stays there as NAME.partial and is resumed. After a failure it waits for `pause` seconds,
    doubled each time. InputError if no address has the right file.
    """
    path = os.path.join(directory, published.name)
    os.makedirs(directory, exist_ok=True)
    if os.path.exists(path):
        published.check(path)
        return path
    partial, reasons = path + ".partial", []
    for url in published.urls:
        try:
            _download(url, partial, published.bytes, pause)
            published.check(partial)
        except (OSError, http.client.HTTPException, InputError) as error:
            reasons.append(f"{url}: {error}")
            logging.warning("%s", reasons[-1])
            if isinstance(error, InputError) and os.path.exists(partial):
                os.remove(partial)  # wrong content: do not resume it
            continue
        os.replace(partial, path)
        return path
    raise InputError(
        f"cannot download {published.name} ({'; '.join(reasons)}). Fetch {published.urls[0]} by hand "
        f"({published.bytes:,} bytes, {published.digest}) and put it at {path}, or give it as --source"
    )


def _download(url: str, partial: str, size: int, pause: float) -> None:
    """Downloads the rest of `size` bytes into `partial`. Raises OSError, HTTPException or InputError on failure."""
    failures = 0
    while (start := os.path.getsize(partial) if os.path.exists(partial) else 0) < size:
        try:
            _download_from(url, partial, start, size)
        except (OSError, http.client.HTTPException) as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            unreachable = isinstance(getattr(error, "reason", None), socket.gaierror)  # unknown host, or no network
            gained = os.path.exists(partial) and os.path.getsize(partial) > start
            failures = 0 if gained else failures + 1
            if refused or unreachable or failures == _TRIES:
                raise
            logging.warning("%s: %s; another attempt follows", url, error)
            time.sleep(pause * 2**failures)


def _download_from(url: str, partial: str, start: int, size: int) -> None:
    """Downloads through one connection; raises if it ends before `size`."""
    request = urllib.request.Request(url, headers={"User-Agent": _USER_AGENT})
    if start:
        request.add_header("Range", f"bytes={start}-")
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
        if start and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            start = 0  # this server does not resume: it sends the whole file
        length = response.headers.get("Content-Length")
        if length is not None and start + int(length) != size:
            raise InputError(f"the server offers {start + int(length):,} bytes, not {size:,}")
        bar = progress_bar(os.path.basename(url), size, "B", start)
        with bar, open(partial, "ab" if start else "wb") as file:
            while block := response.read(1 << 16):
                start += len(block)
                if start > size:
                    raise InputError(f"the server sends more than {size:,} bytes")
                file.write(block)
                bar.update(len(block))
        if start < size:
            raise http.client.IncompleteRead(b"", size - start)
