"""Folders of Parquet and Arrow files, as `datasets` of Hugging Face saves them or the Hub has them.

The files' names and folders tell their parts: train-00000-of-00002.parquet, train/data-00000-of-00001.arrow,
train/0000.parquet. FOLDER/train names the part "train" of FOLDER, where no such file or folder need be.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from txl_tf.data.text.splits import WORDS
from txl_tf.errors import InputError
from txl_tf.storage import hub
from txl_tf.storage.local_files import functions_for

ENDS = (".parquet", ".arrow", ".feather")
_NAMELESS = re.compile(r"(data|dataset|part|part-.*|\d*)")
"""Names of files that tell no part."""


def local(path: str) -> str:
    """A path as it is; of `hf://datasets/OWNER/NAME[@REVISION][/PATH]`, a file or folder, the local path once fetched.

    From a folder it fetches the Parquet and Arrow files, or all files if there are none. InputError if the Hub cannot
    be reached, or has no such files.
    """
    if not path.startswith(hub.PREFIX):
        return path
    place = hub.parse(path)
    inside = place.path_in_repo or ""
    folder = hub.fetch(place, lambda names: _chosen(path, inside, names))
    return os.path.join(folder, *inside.split("/"))


def _chosen(path: str, inside: str, names: Sequence[str]) -> list[str]:
    if inside in names:
        return [inside]
    begins = (f"{inside}/", f"{inside}-", f"{inside}.") if inside else ("",)
    data = [name for name in names if not re.search(r"(^|/)(\.|README)|\.py$", name)]
    below = [name for name in data if name.startswith(begins)]
    if not below:
        shown = sorted({name.rpartition("/")[0] or name for name in data})
        raise InputError(f"{path}: the Hub has no such file or folder there, but {', '.join(shown[:10])}")
    return [name for name in below if name.endswith(ENDS)] or below


def parts(folder: str) -> dict[str, list[str]]:
    """The Parquet and Arrow files of each part of a folder, {} if it has none. Files that tell no part are in ""."""
    found: dict[str, list[str]] = {}
    for place, _, names in functions_for(folder).walk(folder):
        above = place[len(folder) :].strip("/")
        for name in sorted(names):
            if name.endswith(ENDS) and not name.startswith((".", "cache-")):
                told = re.sub(r"(-\d+-of-\d+(-\w+)?)?\.\w+$", "", name)
                part = "/".join(filter(None, (above, "" if _NAMELESS.fullmatch(told) else told)))
                found.setdefault(part, []).append(f"{place.rstrip('/')}/{name}")
    return dict(sorted(found.items()))


def part_files(path: str) -> list[str]:
    """The files of a folder with one part, or of a part as FOLDER/PART; [] if there are none.

    InputError if a folder has several parts.
    """
    files = functions_for(path)
    if files.isdir(path):
        found = parts(path)
        if len(found) > 1:
            raise InputError(
                f"{path} has the parts {', '.join(found)}: name one, such as {path.rstrip('/')}/{next(iter(found))}"
            )
        return [file for part in found.values() for file in part]
    folder, _, name = path.rstrip("/").rpartition("/")
    if not folder or files.exists(path) or not files.isdir(folder):
        return []
    return parts(folder).get(name, [])


def split_of(path: Any, split: str) -> Any:
    """The part of a folder that is a split, "train", "valid" or "test", as FOLDER/PART; anything else stays."""
    if not isinstance(path, str):
        return path
    path = local(path)
    if functions_for(path).isdir(path) and len(found := parts(path)) > 1:
        named = [part for part in found if WORDS.get(part.rpartition("/")[2]) == split]
        if len(named) == 1:
            return f"{path.rstrip('/')}/{named[0]}"
    return path
