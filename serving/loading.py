"""A SavedModel in a directory of any name."""

import os
import re
import tempfile

import tensorflow as tf

from serving.errors import StartError

_PATTERN = re.compile(r"[\[\]*?\\]")


def load(export_dir):
    """The result of tf.saved_model.load, also for paths with [, ], *, ? or \\, which it would take for patterns.

    Raises:
        StartError: for such a path, there is no folder for temporary files without these signs.
    """
    if "://" in export_dir or not _PATTERN.search(export_dir):
        return tf.saved_model.load(export_dir)
    with tempfile.TemporaryDirectory(prefix="savedmodel", dir=_plain_place()) as folder:
        link = os.path.join(folder, "export")
        os.symlink(os.path.join(os.getcwd(), export_dir), link)
        return tf.saved_model.load(link)


def _plain_place():
    """A folder for temporary files whose own path is not a pattern."""
    usual = tempfile.gettempdir()
    for place in (usual, "/tmp", "/var/tmp", "/dev/shm"):
        if not _PATTERN.search(place) and os.access(place, os.W_OK | os.X_OK):
            return place
    raise StartError(f"TensorFlow takes TMPDIR={usual} for a pattern: set TMPDIR to a folder without [, ], *, ? and \\")
