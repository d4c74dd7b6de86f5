"""A SavedModel is loaded from a directory whose name TensorFlow takes for a pattern."""

import os
import tempfile

import pytest
import tensorflow as tf

from serving import loading
from serving.errors import StartError

ODD = "lr=[1e-3] *?\\"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A SavedModel in an odd folder; a neighbour holds another number, where the path would lead as a pattern."""
    root = tmp_path_factory.mktemp("saved")
    for folder, number in ((root / ODD / "model", 3.0), (root / "lr=1 aab" / "model", 4.0)):
        model = tf.Module()
        model.number = tf.Variable(number)
        tf.saved_model.save(model, str(root / "plain"))
        folder.parent.mkdir()
        (root / "plain").rename(folder)
    return root / ODD / "model"


def number(export_dir):
    return loading.load(str(export_dir)).number.numpy()


def test_the_directory_itself_is_loaded_and_not_what_it_matches(saved, monkeypatch):
    assert number(saved) == 3.0
    monkeypatch.chdir(saved.parent)
    assert number("model") == 3.0
    monkeypatch.chdir(saved.parents[1])
    assert number(f"{ODD}/model") == 3.0
    assert number(f"{ODD}/model/") == 3.0


def test_temporary_files_may_have_an_odd_folder_too(saved, tmp_path, monkeypatch):
    odd = tmp_path / "temporary[1]"
    odd.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(odd))
    assert number(saved) == 3.0
    assert not list(odd.iterdir())
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(StartError, match=r"TMPDIR=.*temporary\[1\] for a pattern: set TMPDIR to a folder without"):
        loading.load(str(saved))
