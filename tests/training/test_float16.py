"""mixed_float16: nothing becomes infinite or NaN that should not, the loss scale finds its place, runs continue."""

import pathlib

import numpy as np
import processes
import pytest
import random_xlnet
import replicas
import tensorflow as tf
from small_run import CONFIG, KilledError, change, evaluator, lines

from txl_tf import families, ops
from txl_tf.devices import distribute
from txl_tf.errors import InputError
from txl_tf.ops.scores import Drop, Scores
from txl_tf.runs.checkpoints import checkpoint_reader
from txl_tf.runs.model_dir import load_trained
from txl_tf.training.loop import train
from txl_tf.training.optimizer import loss_scale
from txl_tf.training.optimizer.loss_scale import LossScale
from txl_tf.training.setup import TrainingSetup
from txl_tf.training.step import loss_and_gradients

ROOT = pathlib.Path(__file__).parents[2]
HALF = change(CONFIG, model={"dtype": "mixed_float16"}, train={"ema_decay": 0.5})


def attended(dtype, training):
    """Attention of 2 queries, the first of which sees none of 2,048 keys, with large values; and its gradients."""
    draw = np.random.default_rng(0)
    query, key, value = (draw.normal(size=[1, 1, n, 8]) for n in (2, 2048, 2048))
    query, key, value = (tf.constant(x, dtype) for x in (query, key, 100 + 10 * value))
    mask = tf.constant([[False] * 2048, [True] * 2048])
    drop = Drop(0.1, tf.constant([[1, 2]])) if training else Drop()
    with tf.GradientTape() as tape:
        tape.watch((query, key, value))
        out = ops.attend(Scores(query=query, key=key), value, mask, drop)
    return [out, *tape.gradient(out, (query, key, value))]


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.xla)])
@pytest.mark.parametrize("training", [False, True])
def test_a_query_that_sees_nothing_and_sums_over_many_keys(compiled, training):
    """Values of about 100: their sum over 2,048 keys is more than float16 holds, their mean is not."""
    call = tf.function(attended, jit_compile=compiled, autograph=False)
    half, single = (call(dtype, training) for dtype in (tf.float16, tf.float32))
    for mine, theirs in zip(half, single, strict=True):
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(np.asarray(mine, np.float32) / scale, theirs / scale, atol=2e-2)


def test_the_scale_follows_its_rule(monkeypatch):
    """Against the rule in Python, over random steps; it ends within its limits."""
    monkeypatch.setattr(loss_scale, "PATIENCE", 3)
    draw, scale, expected, good_steps = np.random.default_rng(0), LossScale(), loss_scale.FIRST, 0
    kinds = np.concatenate([draw.integers(0, 3, 60), np.zeros(80, int), np.full(40, 1), draw.integers(0, 3, 20)])
    for kind in kinds:  # 0 good, 1 overflowed, 2 bad
        scale.update(tf.constant(kind == 0), tf.constant(kind == 1))
        good_steps += kind == 0
        if kind == 1:
            expected, good_steps = max(expected / 2, 1.0), 0
        elif good_steps >= 3:
            expected, good_steps = min(expected * 2, 2.0**24), 0
        assert scale.scale.numpy() == expected and scale.good_steps.numpy() == good_steps


@pytest.mark.parametrize(
    ("loss", "norm", "scale", "overflowed"),
    [
        (1.0, np.inf, 2.0, True),
        (1.0, np.nan, 2.0, True),
        (1.0, 1.0, 2.0, False),
        (np.nan, np.nan, 2.0, False),
        (1.0, np.inf, 1.0, False),
    ],
)
def test_what_counts_as_overflow(loss, norm, scale, overflowed):
    kept = LossScale()
    kept.scale.assign(scale)
    assert bool(kept.overflowed(tf.constant(loss), tf.constant(norm))) == overflowed


def begin(corpus, strategy, config):
    config = change(config, model={"vocab_size": corpus.vocabulary.vocab_size, "dropout": 0.0, "dropatt": 0.0})
    return TrainingSetup.of(config, families.task_of(config).training_data(corpus, config), strategy)


@pytest.mark.parametrize("accumulate_steps", [1, 2])
def test_gradients_are_those_of_float32(corpus, one_device, accumulate_steps):
    """Also where the sum over targets, without the division by their number, would overflow."""
    found = {}
    for dtype in ("float32", "mixed_float16"):
        config = change(CONFIG, model={"dtype": dtype}, train={"accumulate_steps": accumulate_steps})
        begun = begin(corpus, one_device, config)
        scale = begun.optimizer.loss_scale
        assert (scale is None) == (dtype == "float32")
        if scale:
            scale.scale.assign(2.0**14)
        place = (tf.constant([1, 0]), tf.constant(0), tf.constant(0))
        arguments = (next(begun.batches(0)), begun.initial_state(), scale)
        found[dtype], _ = loss_and_gradients(
            begun.objective, begun.optimizer.variables, begun.settings, place, *arguments
        )
    single, half = found.values()
    assert half.total.dtype == tf.float32 and float(half.total) == pytest.approx(float(single.total), rel=1e-3)
    for mine, theirs in zip(half.gradients, single.gradients, strict=True):
        assert mine.dtype == tf.float32
        assert np.linalg.norm(mine - theirs) <= 2e-2 * np.linalg.norm(theirs) + 1e-6


@pytest.mark.parametrize("replicas", ["one_device", "two_replicas"])
def test_an_overflow_keeps_the_memory_and_changes_nothing_else(corpus, request, replicas):
    strategy = request.getfixturevalue(replicas)
    begun = begin(corpus, strategy, HALF)
    begun.optimizer.loss_scale.scale.assign(2.0**24)
    before = begun.model.get_weights()
    loop, batches = begun.host_loop(), begun.batches(0)
    state, sums, bad = loop(batches, begun.initial_state(), begun.first_sums().stacked(), tf.constant(1))
    _, _, skipped, in_a_row, overflows = sums.numpy()
    assert (skipped, in_a_row, overflows) == (0, 0, 1) and int(bad) == -1
    assert begun.optimizer.loss_scale.scale.numpy() == 2.0**23 and begun.optimizer.iterations.numpy() == 1
    for mine, theirs in zip(begun.model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    memory = strategy.experimental_local_results(state.hidden[0])
    assert all(np.isfinite(part).all() and np.abs(part).max() > 0 for part in memory)


def test_a_killed_run_continues_exactly(corpus, tmp_path, one_device, monkeypatch):
    """With overflows before and after the kill, which are counted apart from bad steps; the scale is kept."""
    monkeypatch.setattr(loss_scale, "FIRST", 2.0**24)
    monkeypatch.setattr(loss_scale, "PATIENCE", 2)
    losses = iter([1.0, 1.0, None, 1.0, 1.0])

    def measure():
        if (loss := next(losses)) is None:
            raise KilledError
        return loss

    config = change(HALF, train={"save_steps": 5})
    train(config, corpus, str(tmp_path / "whole"), one_device, evaluator(measure))
    with pytest.raises(KilledError):  # at step 6; the last save was at 5, in the middle of a window
        train(config, corpus, str(tmp_path / "killed"), one_device, evaluator(measure))
    train(config, corpus, str(tmp_path / "killed"), one_device, evaluator(measure))
    assert lines(tmp_path / "killed") == (whole := lines(tmp_path / "whole"))
    assert whole[0]["overflows"] > 0 and sum(line["overflows"] for line in whole[2:]) > 0
    assert not any(line["skipped"] for line in whole) and not (tmp_path / "whole/bad_steps.jsonl").exists()
    assert whole[-1]["loss"] < whole[0]["loss"] if whole[0]["loss"] else whole[-1]["loss"] < np.log(256)
    killed, uncut = (load_trained(str(tmp_path / run)).model.get_weights() for run in ("killed", "whole"))
    for mine, theirs in zip(killed, uncut, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    stored = checkpoint_reader(str(tmp_path / "whole" / "ckpt-12"))
    kept = stored.get_tensor("optimizer/loss_scale/.ATTRIBUTES/VARIABLE_VALUE")
    assert kept == whole[-1]["loss_scale"]


@pytest.mark.slow
def test_sharded_replicas_are_as_one(corpus, tmp_path, one_device, two_replicas):
    config = change(HALF, model={"dropout": 0.0, "dropatt": 0.0}, train={"shard_optimizer": True, "eval_steps": 0})
    for name, strategy in (("one", one_device), ("two", two_replicas)):
        train(config, corpus, str(tmp_path / name), strategy)
    for mine, theirs in zip(lines(tmp_path / "two"), lines(tmp_path / "one"), strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-3)


def test_tpus_are_refused(one_device):
    distribute.require_dtype(one_device, "mixed_float16")
    with tf.Graph().as_default():
        tpu = replicas.tpu_cores(1)
        distribute.require_dtype(tpu, "mixed_bfloat16")
        with pytest.raises(InputError, match="a TPU computes in bfloat16: give --dtype=mixed_bfloat16"):
            distribute.require_dtype(tpu, "mixed_float16")


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """A run of train.py in float16."""
    folder = tmp_path_factory.mktemp("half")
    sizes = ["--n_layer=1", "--d_model=16", "--d_embed=16", "--n_head=2", "--d_head=8", "--d_inner=16", "--mem_len=8"]
    run = [f"--data_dir={corpus.data_dir}", "--preset=enwik8_base", "--batch_size=4", "--tgt_len=8", "--eval_steps=0"]
    short = ["--train_steps=3", "--warmup_steps=0", "--log_steps=1", "--nojit_compile", "--noeval_jit_compile"]
    command = [ROOT / "scripts/train.py", f"--model_dir={folder}/r", "--dtype=mixed_float16"]
    done = processes.run([*command, *sizes, *run, *short])
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert "loss_scale" in (folder / "r/metrics.jsonl").read_text()
    return folder / "r"


@pytest.mark.parametrize("dtype", ["", "--dtype=float32"])
@pytest.mark.parametrize(
    "command",
    [
        "evaluate.py --split=test --batch_size=2 --tgt_len=8 --data_dir={data}",
        "generate.py --prompt=lambda --max_tokens=8",
        "score.py --input={out}.txt",
        "export_savedmodel.py --export_dir={out}",
    ],
)
def test_commands_take_it(trained, corpus, tmp_path, command, dtype):
    (tmp_path / "export.txt").write_text("lambda return\nyield\n")
    command = command.format(data=corpus.data_dir, out=tmp_path / "export")
    script, *flags = command.split()
    done = processes.run([ROOT / "scripts" / script, f"--model_dir={trained}", *flags, *([dtype] if dtype else [])])
    assert done.returncode == 0 and "nan" not in done.stdout.lower(), done.stdout + done.stderr


def test_fine_tuning_and_predicting_commands(tmp_path):
    """An XLNet's attention and head, padding included."""
    random_xlnet.write_model_dir(tmp_path / "init", random_xlnet.with_prefix(), n_layer=1)
    rows = [f"{('the', 'River')[i % 2]} {'one dash so ' * (i % 3)}a\t{('no', 'yes')[i % 2]}\n" for i in range(10)]
    (tmp_path / "table.tsv").write_text("text\tlabel\n" + "".join(rows))
    files = [f"--{name}={tmp_path}/table.tsv" for name in ("train", "dev")]
    short = ["--train_steps=3", "--batch_size=4", "--tgt_len=16", "--nojit_compile", "--dtype=mixed_float16"]
    tuned = [f"--init={tmp_path}/init", "--task=classification", f"--model_dir={tmp_path}/tuned"]
    done = processes.run([ROOT / "scripts/finetune.py", *tuned, *files, *short])
    assert done.returncode == 0 and "nan" not in done.stdout.lower(), done.stdout + done.stderr
    predict = [f"--model_dir={tmp_path}/tuned", f"--input={tmp_path}/table.tsv"]
    done = processes.run([ROOT / "scripts/predict.py", *predict])
    assert done.returncode == 0 and done.stdout.count('"probability"') == 10, done.stdout + done.stderr
    assert "nan" not in done.stdout.lower()
