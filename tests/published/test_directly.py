"""Published models that are used without an import step."""

import json
import multiprocessing
import os
import pathlib

import numpy as np
import processes
import pytest
import random_xlnet

import txl_tf
from txl_tf.data.vocabularies import XLNetVocabulary
from txl_tf.errors import InputError
from txl_tf.published import directly
from txl_tf.published.exporting import export_checkpoint
from txl_tf.runs.model_dir import load_trained

TEXT = "the River ____ a dash"


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A model_dir, and a folder of Hugging Face's with the same model."""
    folder = tmp_path_factory.mktemp("published")
    random_xlnet.write_model_dir(folder / "own", random_xlnet.with_prefix(XLNetVocabulary), n_layer=1)
    export_checkpoint(load_trained(str(folder / "own")), "huggingface", str(folder / "theirs"))
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(directly.CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_python_and_the_commands_take_a_folder(places, cache, capsys):
    model = txl_tf.load(str(places / "theirs"), progress=False)
    (folder,) = cache.iterdir()
    assert capsys.readouterr().err.splitlines()[-1] == f"{places}/theirs: imported, in {folder}"
    wanted = txl_tf.load(str(places / "own"), progress=False).fill(TEXT)
    assert [one.text for one in model.fill(TEXT)] == [one.text for one in wanted]
    np.testing.assert_allclose(model.fill(TEXT)[0].total, wanted[0].total, rtol=1e-5)
    done = processes.run(["scripts/fill.py", f"--model_dir={places}/theirs", f"--text={TEXT}"], cwd=processes.ROOT)
    assert done.returncode == 0, done.stderr
    assert [line.split("\t")[1] for line in done.stdout.splitlines()] == [one.text for one in wanted[:5]]
    assert [path.name for path in cache.iterdir()] == [folder.name]  # nothing was imported again
    assert directly.usable(str(places / "theirs")) == str(folder) and not capsys.readouterr().err  # said once
    text = cache.parent / "any.txt"
    text.write_text(TEXT.replace("____", "and") * 60)
    flags = [f"--model_dir={places}/theirs", f"--text_file={text}", "--nojit_compile"]
    done = processes.run(["scripts/evaluate.py", *flags], cwd=processes.ROOT)
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert line["batch_size"] == 2 and line["targets"] and line["bytes"] == len(text.read_bytes())
    text.write_text(TEXT)
    done = processes.run(["scripts/evaluate.py", *flags], cwd=processes.ROOT)
    assert done.returncode == 1 and "any.txt: 1 stretch of at least 509 tokens needs 509" in done.stderr
    assert done.stderr.endswith(": give a longer text\n")
    assert directly.usable(str(places / "own")) == str(places / "own")


def test_a_source_that_changes_is_imported_again(places, cache, tmp_path, monkeypatch):
    source = tmp_path / "model"
    source.mkdir()
    for path in (places / "theirs").iterdir():
        (source / path.name).write_bytes(path.read_bytes())
    (source / os.fsdecode(b"stray \xe9.txt")).write_text("its name is not UTF-8")
    first = directly.usable(str(source))
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"clamp_len": 7}))
    second = directly.usable(str(source))
    clamped = [
        json.loads(pathlib.Path(one, "config.json").read_text())["model"]["clamp_len"] for one in (first, second)
    ]
    assert first != second and clamped[0] != clamped[1] == 7
    marks = iter("ab")
    monkeypatch.setattr(directly, "_fingerprint", lambda path: next(marks))
    with pytest.raises(InputError, match=r"model changed while it was read: run the command again"):
        directly.usable(str(source))
    assert len(list(cache.iterdir())) == 2


def test_two_processes_at_once(places, cache):
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        found = pool.map(directly.usable, [str(places / "theirs")] * 2, chunksize=1)
    assert len(set(found)) == 1 and [str(path) for path in cache.iterdir()] == found[:1]
    assert load_trained(found[0]).step == 0


def test_what_cannot_be_imported_is_one_line(places, cache, tmp_path, monkeypatch):
    source = tmp_path / "model"
    source.mkdir()
    for name in ("config.json", "model.safetensors"):
        (source / name).write_bytes((places / "theirs" / name).read_bytes())
    with pytest.raises(InputError, match=r"there is no vocabulary next to .*; scripts/import_checkpoint\.py has flags"):
        directly.usable(str(source))
    (tmp_path / "no.zip").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"no\.zip"):
        directly.usable(str(tmp_path / "no.zip"))
    assert not cache.exists() or not list(cache.iterdir())
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(directly.CACHE, str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"cannot be written .*name another folder as \$TXL_TF_CACHE"):
        directly.usable(str(places / "theirs"))
