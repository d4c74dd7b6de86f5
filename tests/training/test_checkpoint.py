"""Checkpoints after saves that fail, and on disks that change what was written."""

import dataclasses
import json
import os
import resource

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_run import CONFIG, change, lines

from txl_tf import families
from txl_tf.devices import distribute
from txl_tf.errors import InputError
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.runs import checkpoints, model_dir
from txl_tf.training.checkpoint import Checkpoints
from txl_tf.training.loop import train
from txl_tf.training.optimizer.adam import Adam
from txl_tf.training.optimizer.average import WeightAverage
from txl_tf.training.step import Sums


class Run:
    """The parts of a run that a checkpoint holds, without the corpus and the host loop."""

    def __init__(self, folder, strategy, keep=3):
        with strategy.scope():
            keras.utils.set_random_seed(1)
            self.model = TransformerXL(CONFIG.model)
            optimizer = Adam(CONFIG.train, self.model.trainable_variables)
            average = WeightAverage(CONFIG.train, optimizer.sharding)
        self.weight = self.model.trainable_variables[0]
        self.mems = distribute.initial_state(strategy, self.model.initial_mems, 4)
        self.sums = Sums().stacked()
        self.checkpoints = Checkpoints(
            str(folder), strategy, self.model, optimizer, average, self.mems, self.sums, keep
        )

    def save(self, step):
        self.weight.assign(tf.fill(self.weight.shape, float(step)))
        self.checkpoints.save(step, self.mems, self.sums + step)
        self.weight.assign(tf.zeros_like(self.weight))  # what is written is the value of before, all the same

    def restored(self):
        """The step whose weights and sums are those restored, or None."""
        restored = self.checkpoints.restore()
        if restored is None:
            return None
        step = float(restored[1][0])
        np.testing.assert_array_equal(self.weight.numpy(), step)
        return step


@pytest.fixture
def run(tmp_path, one_device):
    return Run(tmp_path, one_device)


def names(folder):
    return {file.name for file in folder.iterdir()}


def test_saves_are_finished_in_order_and_the_newest_and_the_best_stay(run, tmp_path):
    run.checkpoints.keep = 2
    (tmp_path / "evaluations.jsonl").write_text(
        "".join(
            json.dumps({"step": step, "loss": loss}) + "\n" for step, loss in ((1, 3.0), (2, 1.5), (3, 1.5), (9, 1.0))
        )
    )
    with run.checkpoints:
        for step in range(1, 7):
            run.save(step)
    assert checkpoints.checkpoint_steps(str(tmp_path)) == [2, 5, 6]
    assert model_dir.best_step(str(tmp_path)) == 2
    assert run.restored() == 6
    assert len(names(tmp_path)) == 7


def test_at_the_end_an_old_best_one_is_dropped_if_the_last_was_evaluated_better_after_its_save(run, tmp_path):
    run.checkpoints.keep = 1
    with run.checkpoints, (tmp_path / "evaluations.jsonl").open("w") as evaluations:
        for step in (1, 2):
            run.save(step)
            run.checkpoints.wait()
            print(json.dumps({"step": step, "loss": -step}), file=evaluations, flush=True)
        assert checkpoints.checkpoint_steps(str(tmp_path)) == [1, 2]
    assert checkpoints.checkpoint_steps(str(tmp_path)) == [2]


DAMAGE = {
    "data": lambda data, index: data.write_bytes(flipped(data.read_bytes(), 1000)),
    "end of data": lambda data, index: data.write_bytes(flipped(data.read_bytes(), -1)),
    "data cut": lambda data, index: data.write_bytes(data.read_bytes()[:-7]),
    "no data": lambda data, index: data.unlink(),
    "index": lambda data, index: index.write_bytes(flipped(index.read_bytes(), 100)),
    "index cut": lambda data, index: index.write_bytes(index.read_bytes()[:-7]),
    "empty index": lambda data, index: index.write_bytes(b""),
    "no index": lambda data, index: index.unlink(),
}


def flipped(data, place):
    changed = bytearray(data)
    changed[place] ^= 4
    return bytes(changed)


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_it_used(run, tmp_path, capsys, kind):
    with run.checkpoints:
        for step in (1, 2):
            run.save(step)
    files = [tmp_path / f"ckpt-2.{end}" for end in ("data-00000-of-00001", "index")]
    DAMAGE[kind](*files)
    left = {f"damaged-{file.name}" for file in files if file.exists()}
    assert run.restored() == 1
    assert {name for name in names(tmp_path) if "2" in name.split(".")[0]} == left
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{tmp_path}/ckpt-2 is damaged: ") and line.endswith("; set aside as damaged-ckpt-2")


def test_nothing_begins_anew_when_every_checkpoint_is_damaged(run, tmp_path):
    with run.checkpoints:
        run.save(1)
    DAMAGE["data"](tmp_path / "ckpt-1.data-00000-of-00001", None)
    with pytest.raises(InputError, match="no checkpoint that can be read; they are set aside"):
        run.restored()
    assert run.restored() is None  # started again by someone who has read that


def test_a_full_disk_leaves_the_last_checkpoint_and_the_next_save_tries_again(run, tmp_path, capsys):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    run.save(1)
    run.checkpoints.wait()
    good = names(tmp_path)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # bytes in one file: the disk is full
        run.save(2)
        run.checkpoints.wait()
        assert names(tmp_path) == good
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith(f"step 2 could not be saved ({tmp_path}/saving/ckpt-2") and line.endswith(
            "); the next save will try again"
        )
        assert run.restored() == 1
        with pytest.raises(InputError, match="the last checkpoint could not be written"), run.checkpoints:
            run.save(3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert run.restored() == 1


def test_the_next_save_after_a_full_disk_is_as_any(run, tmp_path, monkeypatch):
    def full(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    with run.checkpoints:
        with monkeypatch.context() as patched:
            patched.setattr(tf.train.Checkpoint, "write", full)
            run.save(1)
            run.checkpoints.wait()
        run.save(2)
    assert checkpoints.checkpoint_steps(str(tmp_path)) == [2] and run.restored() == 2


def test_a_bug_in_the_thread_is_not_hidden(run, monkeypatch):
    def bug(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(tf.train.Checkpoint, "write", bug)
    with pytest.raises(ZeroDivisionError), run.checkpoints:
        run.save(1)


def test_a_run_continues_before_a_damaged_checkpoint_as_if_it_were_not_there(corpus, tmp_path, one_device, capsys):
    run = change(CONFIG, train={"eval_steps": 0})
    train(run, corpus, str(tmp_path), one_device)
    whole = lines(tmp_path)
    files = [tmp_path / f"ckpt-12.{end}" for end in ("data-00000-of-00001", "index")]
    with pytest.raises(InputError, match="no evaluated checkpoint, so there is no best one: use --checkpoint=latest"):
        model_dir.load_trained(str(tmp_path), checkpoint="best")
    DAMAGE["index"](*files)
    with pytest.raises(InputError, match=r"ckpt-12 is damaged: .*checksum mismatch"):
        model_dir.load_trained(str(tmp_path))
    train(run, corpus, str(tmp_path), one_device)
    assert "continuing at step 8 of 12" in capsys.readouterr().out
    assert lines(tmp_path) == whole
    model_dir.load_trained(str(tmp_path))


def test_warm_start_takes_weights_alone(run, corpus, tmp_path, one_device):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    run.checkpoints.model_dir = str(source)
    with run.checkpoints:
        run.save(7)
    run.restored()
    config = change(CONFIG, train={"train_steps": 1, "learning_rate": 1e-9, "warm_start": str(source), "seed": 5})
    for _ in range(2):  # the second time it is continued
        model = train(config, corpus, str(target), one_device)
        assert [line["step"] for line in lines(target)] == [1]
        for mine, theirs in zip(model.get_weights(), run.model.get_weights(), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-8)
    fresh = TransformerXL(CONFIG.model)
    model_dir.read_weights(str(source / "ckpt-7"), checkpoints.variables_by_path(fresh))
    np.testing.assert_array_equal(fresh.get_weights()[0], 7)
    other = dataclasses.replace(CONFIG.model, d_inner=24, untie_r=True, n_head=1, d_head=16)
    message = r"ckpt-7 does not fit the model: model/\S+ is \[.*\] instead of \[.*\].*and \d+ more"
    with pytest.raises(InputError, match=message):
        model_dir.read_weights(str(source), checkpoints.variables_by_path(TransformerXL(other)))
    for layers in (0, 2):
        deep = TransformerXL(dataclasses.replace(CONFIG.model, n_layer=2))
        with pytest.raises(InputError, match=r"ckpt-7 has 1 layer, the model 2: give --n_layer=1, or .* at most 1"):
            model_dir.read_weights(str(source), checkpoints.variables_by_path(deep), layers=layers)
    double = TransformerXL(dataclasses.replace(CONFIG.model, dtype="float64"))
    with pytest.raises(InputError, match=r"ckpt-7 does not fit the model: model/\S+ is float32 instead of float64"):
        model_dir.read_weights(str(source), checkpoints.variables_by_path(double))
    for nothing in (tmp_path, source / "ckpt-8"):
        with pytest.raises(InputError, match="is not a checkpoint: give a model_dir, or a checkpoint"):
            model_dir.read_weights(str(nothing), checkpoints.variables_by_path(run.model))


def test_warm_start_takes_the_first_layers(run, corpus, tmp_path, one_device, capsys):
    """By a run: it says what is taken and left, the further layers keep their first values, and it can be continued."""
    run.checkpoints.model_dir = str(tmp_path)
    with run.checkpoints:
        run.save(7)
    run.restored()
    start = {"warm_start": str(tmp_path / "ckpt-7"), "warm_start_layers": 1}
    frozen = {"train_steps": 1, "learning_rate": 1e-30}
    config = change(CONFIG, model={"n_layer": 2}, train=frozen)
    keras.utils.set_random_seed(config.train.seed)
    own = families.make_model(config)
    refused = change(config, train={"warm_start": start["warm_start"]})
    with pytest.raises(
        InputError, match=r"has 1 layer, the model 2: .*--warm_start_layers=N to take its first N layers"
    ):
        train(refused, corpus, str(tmp_path / "refused"), one_device)
    capsys.readouterr()
    deep = train(change(config, train=start), corpus, str(tmp_path / "deep"), one_device)
    told = "its first layers (1 of 1) and the weights outside the layers; the model's other layers are new (1 of 2)"
    assert f"from {start['warm_start']}: {told}" in capsys.readouterr().out
    theirs, fresh = (checkpoints.variables_by_path(model) for model in (run.model, own))
    for name, variable in checkpoints.variables_by_path(deep).items():
        expected = fresh if "/layer_1/" in name else theirs
        np.testing.assert_allclose(variable, expected[name], rtol=0, atol=1e-8, err_msg=name)


def test_a_pipe_instead_of_a_checkpoint_is_named_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "ckpt-2.index")
    with pytest.raises(InputError, match=r"ckpt-2.index is a pipe, not a file"):
        checkpoints.stored_weights(str(tmp_path / "ckpt-2"))
