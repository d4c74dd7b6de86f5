"""`txl_tf.train`: it does what scripts/train.py does."""

import pathlib

import numpy as np
import processes
import pytest
from small_run import TINY, lines

import txl_tf
from txl_tf.devices.distribute import make_strategy
from txl_tf.errors import InputError
from txl_tf.families import presets
from txl_tf.runs.checkpoints import checkpoint_reader
from txl_tf.trainer import by_group

ROOT = pathlib.Path(__file__).parents[1]
FEW = {"train_steps": 4, "warmup_steps": 1, "log_steps": 2, "save_steps": 2, "eval_steps": 4}
NOT = {"nojit_compile": ("jit_compile", False), "noeval_jit_compile": ("eval_jit_compile", False)}


def as_settings(flags):
    pairs = [flag.lstrip("-").partition("=") for flag in flags]
    return dict(NOT[name] if name in NOT else (name, int(value)) for name, _, value in pairs)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainer")
    (folder / "text.txt").write_text("".join(f"line {i} of a text that says much the same\n" for i in range(900)))
    corpus = txl_tf.prepare("text", str(folder / "data"), source=str(folder / "text.txt"))
    assert set(corpus.splits) == {"train", "valid", "test"}
    return str(folder / "data")


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    model = txl_tf.train(
        data, str(folder), preset="demo", strategy=make_strategy("one_device"), **as_settings(TINY), **FEW
    )
    assert model.trained.step == 4 and model.config.model.d_model == 16
    return folder


@pytest.mark.slow
def test_the_result_is_the_commands_bit_for_bit(data, tmp_path):
    """Both in processes of their own, since tests switch some of TensorFlow's optimisations off."""
    flags = [f"--{name}={value}" for name, value in FEW.items()]
    own = [f"--data_dir={data}", f"--model_dir={tmp_path / 'command'}"]
    settings = as_settings(TINY) | FEW
    code = f"import txl_tf; txl_tf.train({data!r}, {str(tmp_path / 'python')!r}, preset='demo', **{settings})"
    command = [str(ROOT / "scripts" / "train.py"), "--preset=demo", *own, *TINY, *flags]
    for arguments in (command, ["-c", code]):
        done = processes.run(arguments, cwd=ROOT)
        assert done.returncode == 0, done.stderr
    first, second = tmp_path / "command", tmp_path / "python"
    assert lines(first) == lines(second)
    assert (first / "config.json").read_text() == (second / "config.json").read_text()
    theirs, ours = (checkpoint_reader(str(folder / "ckpt-4")) for folder in (first, second))
    for name in theirs.get_variable_to_shape_map():
        assert np.array_equal(theirs.get_tensor(name), ours.get_tensor(name)), name


def test_a_finished_run_is_loaded_and_a_wrong_one_refused(data, trained, tmp_path):
    again = txl_tf.train(data, str(trained), strategy=make_strategy("one_device"))
    assert again.trained.step == 4
    with pytest.raises(InputError, match=r"has no config\.json, so there is no run to continue: give preset="):
        txl_tf.train(data, str(tmp_path / "new"))
    with pytest.raises(InputError, match="preset='dem' is unknown: choose from demo, enwik8_base"):
        txl_tf.train(data, str(tmp_path / "new"), preset="dem")


def test_settings_have_the_names_of_flags():
    config = presets()["demo"].config
    given = by_group(config, {"train_steps": 5, "eval_mem_len": 6, "mem_len": 7})
    assert given["train"] == {"train_steps": 5} and given["eval"] == {"mem_len": 6} and given["model"] == {"mem_len": 7}
    with pytest.raises(InputError, match=r"^train_step is not a setting: did you mean train_steps\?$"):
        by_group(config, {"train_step": 5})
