"""A run with every regularizer for the Penn Treebank: killed and continued, evaluated, on two replicas."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import processes
import pytest
from small_run import CONFIG, KilledError, change, evaluator, lines

from txl_tf import families
from txl_tf.data.lanes import RandomLanes
from txl_tf.inference.evaluate import Evaluator
from txl_tf.training.loop import train

ROOT = pathlib.Path(__file__).parents[3]
REGULARIZED = change(
    CONFIG,
    model={"dropout_type": "variational", "dropout_sites": "input:0.3,qkv:0.1", "dropemb": 0.1}
    | {"mem_len": 0, "ext_len": 6, "tied_positions": True, "norm_init_std": 0.02},
    data={"random_offset": False, "tgt_len_std": 2},
    train={"l2": 1e-3, "embedding_lr": 2.0, "lr_by_length": True, "average_from_step": 6, "average_lr_ratio": 0.5},
    eval={"tgt_len": 4, "mem_len": 0, "ext_len": 10, "same_length": False},
    objective={"activation_penalty": 0.2, "slowness_penalty": 0.1},
)


def test_killed_and_continued_it_is_the_uninterrupted_run(corpus, tmp_path, one_device):
    whole = train(REGULARIZED, corpus, str(tmp_path / "whole"), one_device, evaluator(lambda: 1.0))

    def killed():
        raise KilledError

    with pytest.raises(KilledError):
        train(REGULARIZED, corpus, str(tmp_path / "cut"), one_device, evaluator(killed))  # at step 6; saved at 4
    resumed = train(REGULARIZED, corpus, str(tmp_path / "cut"), one_device, evaluator(lambda: 1.0))
    for mine, theirs in zip(resumed.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    for line in lines(tmp_path / "whole"):
        assert line["activation_penalty"] > 0 and line["slowness_penalty"] > 0
    rates = [line["lr"] for line in lines(tmp_path / "whole")]
    assert rates[-1] == pytest.approx(0.5 * CONFIG.train.learning_rate)


def test_two_replicas_and_groups_of_lanes_change_nothing(corpus, tmp_path, one_device, two_replicas):
    one = train(REGULARIZED, corpus, str(tmp_path / "one"), one_device)
    grouped = change(REGULARIZED, train={"accumulate_steps": 2})
    two = train(grouped, corpus, str(tmp_path / "two"), two_replicas)
    for mine, theirs in zip(two.get_weights(), one.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-5)
    for mine, theirs in zip(lines(tmp_path / "two"), lines(tmp_path / "one"), strict=True):
        for name in ("loss", "activation_penalty", "slowness_penalty"):
            assert mine[name] == pytest.approx(theirs[name], rel=2e-5)


def test_the_rate_is_multiplied_by_the_length(corpus, tmp_path, one_device):
    """The first update by a segment of L tokens is L / T of the usual one: Adam's first step has one size."""
    base = change(CONFIG, model={"dropout": 0.0, "dropatt": 0.0, "dtype": "float64"}, train={"train_steps": 1})
    base = change(base, data={"random_offset": False, "tgt_len_std": 2}, train={"eval_steps": 0, "seed": 5})
    scaled = change(base, train={"lr_by_length": True})
    length = int(RandomLanes(corpus, base.data, base.train.seed).lengths(0)[0])
    assert length != base.data.tgt_len  # or the test would see nothing
    usual, own = (
        train(config, corpus, str(tmp_path / name), one_device).get_weights()
        for name, config in (("usual", base), ("own", scaled))
    )
    keras.utils.set_random_seed(base.train.seed)
    first = families.make_model(base).get_weights()
    for before, without, by_length in zip(first, usual, own, strict=True):
        moved = (without - before) * length / base.data.tgt_len
        np.testing.assert_allclose(by_length - before, moved, atol=1e-12)


def test_evaluation_reads_the_extended_context_again(corpus, tmp_path, one_device):
    """The loss is the mean over all targets of a window that is read from its first token for each segment."""
    model = train(REGULARIZED, corpus, str(tmp_path / "run"), one_device)
    result = Evaluator(REGULARIZED, model, corpus, "test", one_device)()
    assert result["tokens_dropped"] == 0 and (result["tgt_len"], result["ext_len"], result["mem_len"]) == (4, 10, 0)
    spread = Evaluator(
        change(REGULARIZED, eval={"batch_size": 1, "tgt_len": 5, "ext_len": 9}), model, corpus, "test", one_device
    )()
    assert spread["loss"] == pytest.approx(result["loss"], abs=0.05)


@pytest.mark.slow
def test_the_commands_take_the_preset(corpus, tmp_path):
    sizes = ["--n_layer=1", "--d_model=16", "--d_embed=16", "--n_head=2", "--d_head=8", "--d_inner=32"]
    steps = ["--train_steps=6", "--warmup_steps=2", "--average_from_step=4", "--log_steps=2", "--eval_steps=0"]
    lengths = ["--tgt_len=16", "--ext_len=16", "--nojit_compile"]
    run = ["--model_dir", tmp_path / "run", "--data_dir", corpus.data_dir]
    rare = ["--set=lr_by_length=false", "--set=activation_penalty=0.5", "--set=max_bad_steps=7"]
    done = processes.run(["scripts/train.py", "--preset=ptb", *run, *sizes, *steps, *lengths, *rare], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["train"]["lr_by_length"], config["train"]["max_bad_steps"]) == (False, 7)
    assert config["objective"]["activation_penalty"] == 0.5
    assert "activation penalty" in done.stdout and "slowness penalty" in done.stdout
    done = processes.run(["scripts/evaluate.py", *run, "--split=test", "--ext_len=20", "--batch_size=2"], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["ext_len"] == 20
    done = processes.run(["scripts/generate.py", *run[:2], "--prompt=import", "--max_tokens=5"], cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.xla
def test_xla_compiles_one_step_for_all_lengths(corpus, tmp_path):
    """A length that a program must know when it is compiled would be a program for each batch."""
    sizes = (
        "--preset=ptb --n_layer=1 --d_model=8 --d_embed=8 --n_head=1 --d_head=8 --d_inner=8 --batch_size=2 --tgt_len=8"
    )
    reach = "--tgt_len_std=2 --ext_len=4 --mem_len=4 --conventions=official_pytorch"
    steps = (
        "--train_steps=6 --warmup_steps=2 --average_from_step=4 --steps_per_loop=6 --log_steps=6 --eval_steps=0 -v=1"
    )
    command = [sys.executable, "scripts/train.py", f"--data_dir={corpus.data_dir}", f"--model_dir={tmp_path}/run"]
    logged = os.environ | {"TF_CPP_VMODULE": "device_compiler=2", "TF_CPP_MIN_LOG_LEVEL": "0"}
    command += f"{sizes} {reach} {steps}".split()
    done = subprocess.run(command, cwd=ROOT, env=logged, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("compiling for signature: __inference_replica_step") == 1
