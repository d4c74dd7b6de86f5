"""A SavedModel in a directory of any name."""

import os
import re
import tempfile

import tensorflow as tf


def load(export_dir):
    """What tf.saved_model.load gives, also where it would take the path for a pattern: with [, ], *, ? or \\ in it."""
    if "://" in export_dir or not re.search(r"[\[\]*?\\]", export_dir):
        return tf.saved_model.load(export_dir)
    with tempfile.TemporaryDirectory(prefix="savedmodel") as folder:
        link = os.path.join(folder, "export")
        os.symlink(os.path.join(os.getcwd(), export_dir), link)
        return tf.saved_model.load(link)
