"""Paths with signs that TensorFlow takes for patterns, through the commands that read and write them."""

import json
import os
import pathlib
import shutil
import tempfile

import numpy as np
import processes
import pytest
import tensorflow as tf
from small_run import TINY

from txl_tf.data.text.sources import find_files
from txl_tf.errors import InputError
from txl_tf.runs import checkpoints
from txl_tf.storage.literal_paths import checkpoint_reader, files_named, load_saved_model, matches, plain_prefix

ROOT = pathlib.Path(__file__).parents[2]
NAMES = ["lr=[1e-3]", "a*b?", "back\\slash"]


def run(script, *flags, status=0):
    done = processes.run([f"scripts/{script}.py", *flags], cwd=ROOT)
    assert done.returncode == status, f"{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A corpus and an interrupted run, each in a folder whose name looks like a pattern."""
    world = tmp_path_factory.mktemp("paths")
    source = world / "books[1].txt"
    source.write_text("".join(f"line {i} of a text that says the same again and again\n" for i in range(400)))
    (world / "books1.txt").write_text("what the pattern would read\n")
    run("prepare_data", "--dataset=text", f"--source={source}", f"--data_dir={world}/data[*]", "--vocab=bytes")
    train(world, 4)
    return world


def train(world, steps):
    return run(
        "train", "--preset=demo", f"--data_dir={world}/data[*]", f"--model_dir={world}/lr=[1e-3]", *TINY,
        f"--train_steps={steps}", "--warmup_steps=1", "--log_steps=2", "--save_steps=2", "--eval_steps=4",
    )  # fmt: skip


def test_a_run_in_any_folder_is_continued_and_its_checkpoints_keep_their_names(world):
    copy = world / "whole"
    shutil.copytree(world / "lr=[1e-3]", copy)
    before = {path.name for path in copy.glob("ckpt-*")}
    done = run("evaluate", f"--model_dir={world}/lr=[1e-3]", f"--data_dir={world}/data[*]", "--split=test")
    plain = run("evaluate", f"--model_dir={copy}", f"--data_dir={world}/data[*]", "--split=test")
    first, second = (json.loads(one.stdout.splitlines()[-1]) for one in (done, plain))
    assert first["loss"] == second["loss"]
    for path in (world / "lr=[1e-3]").iterdir():
        if path.name.startswith("ckpt-4."):  # as if the run had been killed before its last save
            path.unlink()
    done = train(world, 4)
    assert "damaged" not in done.stdout + done.stderr
    assert {path.name for path in (world / "lr=[1e-3]").iterdir() if "ckpt-" in path.name} == before
    assert "continuing at step 2" in done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_in_a_folder_of_any_name_is_read(name, tmp_path):
    folder = tmp_path / name
    folder.mkdir()
    (tmp_path / "a1b2").mkdir()  # what a*b? matches
    for place, value in ((folder, 1.0), (tmp_path / "a1b2", 2.0)):
        tf.train.Checkpoint(model={"w": tf.Variable([value] * 3)}).write(str(place / f"c{name}"))
    variable = tf.Variable([0.0] * 3)
    checkpoints.read_checkpoint(str(folder / f"c{name}"), model={"w": variable})
    assert variable.numpy().tolist() == [1.0] * 3
    reader = checkpoint_reader(str(folder / f"c{name}"))
    (key,) = [key for key in reader.get_variable_to_shape_map() if key.startswith("model/w/")]
    np.testing.assert_array_equal(reader.get_tensor(key), [1.0] * 3)


def test_links_are_removed(tmp_path):
    tf.train.Checkpoint(w=tf.Variable(1.0)).write(str(tmp_path / "c[1]"))
    with plain_prefix(str(tmp_path / "c[1]")) as plain:
        folder = os.path.dirname(plain)
        assert sorted(os.listdir(folder)) == ["checkpoint.data-00000-of-00001", "checkpoint.index"]
    assert not os.path.exists(folder) and (tmp_path / "c[1].index").exists()


def test_links_avoid_a_folder_of_temporary_files_that_looks_like_a_pattern(tmp_path, monkeypatch):
    for name in ("run[1]", "temporary[1]"):
        (tmp_path / name).mkdir()
    path, variable = str(tmp_path / "run[1]" / "ckpt-4"), tf.Variable(0.0)
    tf.train.Checkpoint(model={"w": tf.Variable(1.0)}).write(path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary[1]"))
    checkpoints.read_checkpoint(path, model={"w": variable})
    assert variable.numpy() == 1.0
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match=r"TMPDIR=.*temporary\[1\] for a pattern: set TMPDIR to a folder without"):
        checkpoints.read_checkpoint(path, model={"w": variable})


def read_values(path):
    checkpoints.read_checkpoint(path, model={"w": tf.Variable(0.0)})


@pytest.mark.parametrize("read", [read_values, checkpoints.stored_weights])
def test_what_tensorflow_does_not_find_though_it_is_listed_is_not_damage(read, tmp_path, monkeypatch):
    path = str(tmp_path / "ckpt-4")
    tf.train.Checkpoint(model={"w": tf.Variable(1.0)}).write(path)

    def not_found(_):
        raise tf.errors.NotFoundError(None, None, "Failed to find any matching files")

    monkeypatch.setattr(checkpoints, "checkpoint_reader", not_found)
    with pytest.raises(InputError, match=r"cannot be read .*nothing was changed") as caught:
        read(path)
    assert not isinstance(caught.value, checkpoints.DamagedCheckpointError)
    os.remove(path + ".data-00000-of-00001")
    with pytest.raises(checkpoints.DamagedCheckpointError):
        read(path)


def test_a_path_is_literal_first_and_a_pattern_only_then(tmp_path):
    for name in ("a*.txt", "ab.txt", "deep/er/c.txt", ".hidden.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    names = lambda paths: [os.path.relpath(path, tmp_path) for path in paths]  # noqa: E731
    assert names(find_files(f"{tmp_path}/a*.txt")) == ["a*.txt"]
    assert names(matches(f"{tmp_path}/a?.txt")) == ["a*.txt", "ab.txt"]
    assert names(find_files(f"{tmp_path}/**/*.txt")) == ["a*.txt", "ab.txt", "deep/er/c.txt"]
    assert names(files_named(str(tmp_path), "*.txt")) == [".hidden.txt", "a*.txt", "ab.txt"]
    assert files_named(f"{tmp_path}/none", "*") == []


@pytest.mark.parametrize("source", ["text", "text/*.txt", "**/*.txt"])
def test_a_file_name_that_is_not_utf8_is_one_line(source, tmp_path):
    (tmp_path / "text").mkdir()
    with open(os.fsencode(tmp_path) + b"/text/caf\xe9.txt", "wb") as file:
        file.write(b"text\n" * 100)
    done = run(
        "prepare_data", "--dataset=text", f"--source={tmp_path}/{source}", f"--data_dir={tmp_path}/data", status=1
    )
    assert done.stderr.count("\n") == 1 and "not UTF-8" in done.stderr and "rename it" in done.stderr


def test_a_model_dir_with_a_file_name_that_is_not_utf8_is_one_line(world, tmp_path):
    shutil.copytree(world / "lr=[1e-3]", tmp_path / "run")
    with open(os.fsencode(tmp_path) + b"/run/caf\xe9.txt", "wb"):
        pass
    done = run("generate", f"--model_dir={tmp_path}/run", "--prompt=a", status=1)
    assert done.stderr.count("\n") == 1 and "not UTF-8" in done.stderr and "rename it" in done.stderr


def test_a_path_through_a_link_leads_where_the_system_says(tmp_path):
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link").symlink_to(tmp_path / "real" / "sub")
    for place, value in (("real", 1.0), ("other", 2.0)):
        tf.train.Checkpoint(model={"w": tf.Variable(value)}).write(str(tmp_path / place / "x[1]" / "ckpt-4"))
    variable = tf.Variable(0.0)
    checkpoints.read_checkpoint(f"{tmp_path}/other/link/../x[1]/ckpt-4", model={"w": variable})
    assert variable.numpy() == 1.0


def test_a_model_dir_names_no_file_outside_of_it(world, tmp_path):
    model_dir = tmp_path / "run"
    shutil.copytree(world / "lr=[1e-3]", model_dir)
    facts = json.loads((model_dir / "corpus.json").read_text())
    for spec, sha256 in (({"file": "../secret"}, {}), ({}, {"/etc/passwd": "0"})):
        changed = {**facts, "vocabulary": {"spec": facts["vocabulary"]["spec"] | spec, "sha256": sha256}}
        (model_dir / "corpus.json").write_text(json.dumps(changed))
        done = run("generate", f"--model_dir={model_dir}", "--prompt=a", status=1)
        assert done.stderr.count("\n") == 1 and "file outside of it" in done.stderr, done.stderr


def test_an_export_goes_where_plain_tensorflow_can_load_it(world):
    done = run("export_savedmodel", f"--model_dir={world}/lr=[1e-3]", f"--export_dir={world}/e[1]", status=1)
    assert done.stderr.startswith(f"error: --export_dir={world}/e[1]: TensorFlow") and done.stderr.count("\n") == 1
    run("export_savedmodel", f"--model_dir={world}/lr=[1e-3]", f"--export_dir={world}/e", "--nojit_compile")
    os.rename(world / "e", world / "e[1]")
    done = run("continue_savedmodel", f"--export_dir={world}/e[1]", "--prompt=line 1", "--max_tokens=3")
    assert done.stdout.startswith("line 1")
    assert "score" in load_saved_model(f"{world}/e[1]").signatures
    with pytest.raises(InputError, match="is not a SavedModel that can be loaded"):
        load_saved_model(f"{world}/lr=[1e-3]")


def test_recl_takes_a_path_with_a_comma(world):
    shutil.copytree(world / "lr=[1e-3]", world / "a,b")
    done = run(
        "recl", f"--model_dirs={world}/a,b", f"--model_dirs={world}/lr=[1e-3]", f"--data_dir={world}/data[*]",
        "--context_lengths=2,4", "--positions=20",
    )  # fmt: skip
    found = [json.loads(line)["model_dir"] for line in done.stdout.splitlines()]
    assert found == [f"{world}/a,b", f"{world}/lr=[1e-3]"]
