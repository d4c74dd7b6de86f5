"""Models by name: those that come with the package, and published ones, which are imported on first use.

A published model is a name in the Hub, a folder from Hugging Face or a published zip, unchanged. The imported model is
kept in a cache folder. The folder's name follows from the commit or from the source's files, so a source that changes
is imported again. Each process imports into a folder of its own and then renames it; the first to do so wins.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import shutil
import sys
import uuid

import tensorflow as tf

from txl_tf.devices.distribute import of_chief
from txl_tf.errors import InputError, one_line
from txl_tf.published import hub_models
from txl_tf.published.hub_models import CACHE, cached
from txl_tf.published.huggingface.files import has_tensors
from txl_tf.published.importing import import_checkpoint, open_checkpoint, vocabulary_of
from txl_tf.storage.files import write_atomically

READY = os.path.join(os.path.dirname(os.path.dirname(__file__)), "ready")
"""The folder of the models that come with the package: a model_dir for each name."""
_LARGE = 1 << 26
"""Larger files are recognised by size and time of change, not by their bytes."""
_FILES = "files.json"
"""The file of an imported model that names its other files and their sizes."""


def usable(path: str, strategy: tf.distribute.Strategy | None = None) -> str:
    """The model_dir for a path or a name: itself, or what a published model is imported into.

    The name of a model that comes with the package means that model, unless there is such a path. A name in the Hub
    means its present commit; with a `strategy` of several hosts, the one that the chief finds.
    InputError if the model cannot be found, fetched or imported, or the cache cannot be written.
    """
    if path.isidentifier() and not os.path.lexists(path) and os.path.isdir(os.path.join(READY, path)):
        return os.path.join(READY, path)
    if place := hub_models.found(path):
        mark = of_chief(strategy, str(place.revision)) if strategy else str(place.revision)
        source, format = hub_models.address(dataclasses.replace(place, revision=mark)), "huggingface"
        name, shown = place.id.replace("/", "--"), f"{path}: {source},"
    else:
        source = hub_models.local(path)
        format, shown = _format(source), f"{source}:"
        if not format:
            return source
        name = "".join(c if c.isalnum() or c in "-_." else "_" for c in os.path.basename(os.path.abspath(source)))
        mark = _fingerprint(source)
    folder = cached(f"{name}-{mark[:16]}")
    if not _is_complete(folder):
        _import(format, source, folder)
        if not place and _fingerprint(source) != mark:
            shutil.rmtree(folder, ignore_errors=True)
            raise InputError(f"{source} changed while it was read: run the command again")
    _say_once(f"{shown} imported, in {folder}")
    return folder


@functools.cache
def _say_once(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _format(path: str) -> str:
    """The format of a published model, as in `importing.FORMATS`; "": it is not a local published model."""
    if os.path.exists(os.path.join(path, "xlnet_config.json")) or (path.endswith(".zip") and os.path.isfile(path)):
        return "official_xlnet"
    return "huggingface" if os.path.exists(os.path.join(path, "config.json")) and has_tensors(path) else ""


def _import(format: str, path: str, folder: str) -> None:
    """Writes the model_dir of a published model, completely or not at all."""
    own = f"{folder}.{uuid.uuid4().hex}"
    try:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        checkpoint = open_checkpoint(format, path)
        dataset = checkpoint.dataset or "wt103"  # the one corpus of Hugging Face's published TransfoXL
        vocabulary, _ = vocabulary_of(checkpoint, dataset)
        import_checkpoint(checkpoint, vocabulary, own, dataset=dataset)
        for note in checkpoint.notes:
            print(f"{path}: different here: {note}", file=sys.stderr)
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(own)}
        write_atomically(os.path.join(own, _FILES), json.dumps(sizes, indent=2) + "\n")
        if os.path.isdir(folder) and not _is_complete(folder):
            os.rename(folder, f"{own}.old")
        try:
            os.rename(own, folder)
        except OSError:
            if not os.path.isdir(folder):  # else another process was faster
                raise
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or one_line(error)
        raise InputError(f"{folder} cannot be written ({reason}): name another folder as ${CACHE}") from error
    except InputError as error:
        flags = "; scripts/import_checkpoint.py has flags for facts that a source lacks" if " --" in str(error) else ""
        raise InputError(f"{error}{flags}") from error
    finally:
        for left in (own, f"{own}.partial", f"{own}.old"):
            shutil.rmtree(left, ignore_errors=True)


def _is_complete(folder: str) -> bool:
    try:
        with open(os.path.join(folder, _FILES), "rb") as file:
            sizes = json.load(file)
        return all(os.path.getsize(os.path.join(folder, name)) == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _fingerprint(path: str) -> str:
    """A checksum of a file, or of the files of a folder with their names."""
    found = hashlib.sha256()
    names = sorted(os.listdir(path)) if os.path.isdir(path) else [""]
    for name in names:
        file = os.path.join(path, name) if name else path
        if os.path.isfile(file):
            about = os.stat(file)
            modified = about.st_mtime_ns if about.st_size > _LARGE else 0
            found.update(os.fsencode(f"{name} {about.st_size} {modified}\n"))
            if about.st_size <= _LARGE:
                with open(file, "rb") as content:
                    found.update(content.read())
    return found.hexdigest()
