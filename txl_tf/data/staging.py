"""Writes a new corpus while the old one stays usable.

The first corpus of a data_dir is written into data_dir itself, any later one into a sub-directory of its own,
corpus-1, corpus-2, .. The manifest names this directory, so writing the manifest replaces the old corpus in one step;
then the old corpus's files are removed. preparing.json exists from before the first new file until the end: if the
process is killed in between, this file says what to remove.
"""

from __future__ import annotations

import itertools
import json
import re

import tensorflow as tf

from txl_tf.data import manifest
from txl_tf.data.vocabularies import VOCABULARY_FILES
from txl_tf.errors import InputError
from txl_tf.storage.files import joined, read_record, write_atomically
from txl_tf.storage.literal_paths import listed

MARKER = "preparing.json"
WORK = ".txl_tf_work"
"""The sub-directory for temporary files."""
_SHARD = r"(train(-\d+)?|valid|test)-\d{5,}\.tfrecord(\.partial-.*)?"


def begin(data_dir: str) -> str:
    """Chooses the folder of a new corpus, "" for data_dir itself, and makes it. Call it under a Lock, then `clean_up`.

    InputError if data_dir has files with the names of a corpus's files that are not of a corpus.
    """
    clean_up(data_dir)
    path = tf.io.gfile.join(data_dir, manifest.FILE_NAME)
    folder, old = "", list[str]()
    if not tf.io.gfile.exists(path):
        if found := _own_names(data_dir):
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            raise InputError(
                f"{tf.io.gfile.join(data_dir, found[0])}{more} would be overwritten, and no {manifest.FILE_NAME} says "
                "that they are of a corpus: remove them, or give another --data_dir"
            )
    elif not manifest.is_manifest(path):
        raise InputError(f"{path} is not the manifest of a corpus: remove it, or give another --data_dir")
    else:
        old = _files_of(data_dir)
        folders = (f"corpus-{n}" for n in itertools.count(1))
        folder = next(name for name in folders if not tf.io.gfile.exists(tf.io.gfile.join(data_dir, name)))
    marker = json.dumps({"folder": folder, "old": old}, indent=1) + "\n"
    write_atomically(tf.io.gfile.join(data_dir, MARKER), marker)
    if folder:
        tf.io.gfile.makedirs(tf.io.gfile.join(data_dir, folder))
    return folder


def is_left(data_dir: str) -> bool:
    """Whether a preparation was killed, or still runs: it has not cleaned up."""
    return tf.io.gfile.exists(tf.io.gfile.join(data_dir, MARKER))


def clean_up(data_dir: str) -> None:
    """Removes the old corpus's files if the new corpus is complete; otherwise removes the new files."""
    if not is_left(data_dir):
        return
    path = tf.io.gfile.join(data_dir, MARKER)
    record = read_record(path, {"folder": str, "old": list}, "remove it, and what else is not of the corpus")
    folder = record["folder"]
    inside = re.compile(r"(corpus-\d+/)?[^/]+")  # nothing else is removed, whatever the record says
    if not re.fullmatch(manifest.FOLDER, folder) or not all(inside.fullmatch(str(name)) for name in record["old"]):
        raise InputError(f"{path} names files that are not in {data_dir}: remove it")
    if _folder_in_use(data_dir) == folder:
        names = record["old"]
    else:
        names = [joined(folder, name) for name in _own_names(joined(data_dir, folder))]
    for name in names:
        if tf.io.gfile.exists(tf.io.gfile.join(data_dir, name)):
            tf.io.gfile.remove(tf.io.gfile.join(data_dir, name))
    folders = {folder, *(name.rpartition("/")[0] for name in names)} - {"", _folder_in_use(data_dir)}
    for directory in (tf.io.gfile.join(data_dir, name) for name in folders):
        if tf.io.gfile.isdir(directory) and not listed(directory):
            tf.io.gfile.rmtree(directory)
    if tf.io.gfile.isdir(tf.io.gfile.join(data_dir, WORK)):
        tf.io.gfile.rmtree(tf.io.gfile.join(data_dir, WORK))
    tf.io.gfile.remove(path)


def _own_names(directory: str) -> list[str]:
    """The names in a directory that files of a corpus have, in order."""
    if not tf.io.gfile.isdir(directory):
        return []
    vocabularies = {name + end for name in VOCABULARY_FILES for end in ("", ".partial")}
    return sorted(name for name in listed(directory) if re.fullmatch(_SHARD, name) or name in vocabularies)


def _files_of(data_dir: str) -> list[str]:
    """The files of the corpus in data_dir, relative to it; all files with such names if its manifest is damaged."""
    try:
        corpus = manifest.read_manifest(data_dir)
    except InputError:
        folders = [name.rstrip("/") for name in listed(data_dir)]
        folders = ["", *(name for name in folders if name and re.fullmatch(manifest.FOLDER, name))]
        return [joined(folder, name) for folder in folders for name in _own_names(joined(data_dir, folder))]
    return [joined(corpus.folder, name) for name in (*(shard.file for shard in corpus.shards()), *corpus.files)]


def _folder_in_use(data_dir: str) -> str | None:
    """The folder that the manifest names; None if there is none that can be read."""
    try:
        return manifest.read_manifest(data_dir).folder
    except InputError:
        return None
