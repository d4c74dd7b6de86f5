"""The files that --source and --vocab_file name, as a manifest keeps them: a later preparation sees if they changed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from txl_tf.data.request import Settings
from txl_tf.data.text.sources import find_files
from txl_tf.data.threads import REQUESTS, in_order
from txl_tf.errors import InputError
from txl_tf.storage.files import digest

Known = Mapping[str, Sequence[Any]]
"""{path: (bytes, time of the last change in ns, sha256)}; remote files have None as sha256."""


def named_files(settings: Settings, data_dir: str) -> list[str]:
    """The files that the settings name, but for those in data_dir; [] if there are none, or not any more.

    In a directory with a published corpus these are the files with its members' names, and archives.
    """
    try:
        found = find_files(settings.source) if settings.source and "hf://" not in settings.source else []
    except InputError:
        return []
    if settings.corpus and settings.source and tf.io.gfile.isdir(settings.source):
        members = "|".join(settings.corpus.members.values())
        found = [path for path in found if path.endswith(".gz") or re.fullmatch(members, os.path.basename(path))]
    if settings.vocab_file:
        if not tf.io.gfile.exists(settings.vocab_file):
            return []
        found.append(settings.vocab_file)
    own = os.path.join(os.path.realpath(data_dir), "")
    return [path for path in found if not os.path.realpath(path).startswith(own)]


def described(files: Sequence[str]) -> Known:
    """The files, as they are now."""

    def about(path: str) -> list[Any]:
        return [*_size_and_time(path), None if "://" in path else digest(path)]

    return dict(zip(files, in_order(about, files, REQUESTS), strict=True))


def _size_and_time(path: str) -> tuple[int, int]:
    if "://" in path:
        about = tf.io.gfile.stat(path)
        return about.length, about.mtime_nsec
    local = os.stat(path)  # TensorFlow's time of a local file has no parts of a second
    return local.st_size, local.st_mtime_ns


def changed(known: Known, files: Sequence[str]) -> list[str]:
    """The files that have changed, come or gone since `known`. A sum is compared if only the time differs."""

    def differs(path: str) -> bool:
        if path not in known:
            return True
        (size, time, sha256), (new_size, new_time) = known[path], _size_and_time(path)
        return new_size != size or (new_time != time and (sha256 is None or digest(path) != sha256))

    found = [path for path, new in zip(files, in_order(differs, files, REQUESTS), strict=True) if new]
    return sorted({*found, *(set(known) - set(files))})
