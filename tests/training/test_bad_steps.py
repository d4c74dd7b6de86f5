"""A step that is not finite is recorded, and runs again: in which layer, in which variables."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_run import CONFIG, change, lines

from txl_tf import families
from txl_tf.data.lanes import TrainingLanes
from txl_tf.data.prepare import prepare
from txl_tf.errors import InputError
from txl_tf.runs import checkpoints
from txl_tf.runs import model_dir as model_dirs
from txl_tf.training.loop import train
from txl_tf.training.replay import first_bad_operation, replay

BAD = 7
RUN = change(
    CONFIG,
    model={"n_layer": 2, "tie_weight": False},
    data={"random_offset": False},
    train={"learning_rate": 1e-4, "eval_steps": 0, "keep_checkpoints": 1, "save_steps": 4},
)


@pytest.fixture(scope="module")
def broken_run(tmp_path_factory):
    """Two replicas, one of which reads a "Z", whose embedding is so large that layer 0 overflows, in step 7 alone."""
    import replicas

    folder = tmp_path_factory.mktemp("broken")
    draw = np.random.default_rng(1)
    for name in ("a", "b", "c"):
        (folder / f"{name}.txt").write_bytes(draw.integers(ord("a"), ord("z"), 700).astype(np.uint8).tobytes())
    plain = prepare("text", str(folder / "plain"), source=str(folder / "*.txt"))
    inputs, _ = next(iter(TrainingLanes(plain, RUN.data).batches(BAD - 1)))
    segment = inputs.numpy()[3].astype(np.uint8).tobytes()  # of the fourth lane: the second replica's
    for name in ("a", "b", "c"):
        text = (folder / f"{name}.txt").read_bytes()
        (folder / f"{name}.txt").write_bytes(text.replace(segment, segment[:2] + b"Z" + segment[3:]))
    corpus = prepare("text", str(folder / "data"), source=str(folder / "*.txt"))

    keras.utils.set_random_seed(1)
    model = families.make_model(RUN)
    table = model.embedding.tables[0]
    # Its product with its own key overflows to +inf in one head at least; to -inf it would only be ignored.
    table.assign(np.where(np.arange(256)[:, None] == ord("Z"), 1e30 * draw.normal(size=16), table))
    weights = tf.train.Checkpoint(model=checkpoints.variables_by_path(model))
    weights.write(str(folder / "weights"))
    run = change(RUN, train={"warm_start": str(folder / "weights")})
    return run, corpus, str(folder / "run"), replicas.two_replicas()


def train_once(run, corpus, model_dir, strategy):
    """Trains the run, unless an earlier test has."""
    if not checkpoints.checkpoint_steps(model_dir):
        train(run, corpus, model_dir, strategy)


def test_the_run_names_the_step_and_how_to_see_more(broken_run, capsys):
    run, corpus, model_dir, strategy = broken_run
    train(run, corpus, model_dir, strategy)
    (record,) = model_dirs.read_log(f"{model_dir}/{model_dirs.BAD_STEPS_FILE}")
    assert record == {"step": BAD}
    said = capsys.readouterr().out
    assert f"step {BAD} skipped: loss or gradient not finite" in said
    assert f"replay_step.py --model_dir={model_dir} --step={BAD}" in said
    assert model_dirs.trained_on(model_dir) == corpus.data_dir
    # The checkpoint before it stays, though newer ones push older ones out.
    assert checkpoints.checkpoint_steps(model_dir) == [4, 12]


@pytest.mark.slow
def test_the_step_runs_again_on_one_device(broken_run):
    run, corpus, model_dir, _ = broken_run
    train_once(*broken_run)
    before = sorted(tf.io.gfile.listdir(model_dir))
    for groups in (1, 2):
        found = replay(change(run, train={"accumulate_steps": groups}), corpus, model_dir, BAD)
        assert found.step == BAD
        assert "transformer_xl/layer_0/attention/query_kernel" in found.variables
        assert " in transformer_xl/layer_0/attention called by txl_tf/" in found.operation
        assert not np.isfinite(found.grad_norm)
    assert sorted(tf.io.gfile.listdir(model_dir)) == before


@pytest.mark.slow
def test_a_good_step_runs_again_to_the_same_numbers(broken_run, tmp_path):
    run, corpus, _, strategy = broken_run
    model_dir = tmp_path / "one"
    train(change(run, train={"log_steps": 1}), corpus, str(model_dir), strategy)
    found = replay(change(run, train={"log_steps": 1}), corpus, str(model_dir), 6)
    line = lines(model_dir)[5]
    assert (found.variables, found.operation) == ([], None)
    np.testing.assert_allclose([found.loss, found.grad_norm], [line["loss"], line["grad_norm"]], rtol=1e-5)
    with pytest.raises(InputError, match="--step=13 is not a step of this run: give 1 to 12"):
        replay(run, corpus, str(model_dir), 13)


def test_the_operation_is_named():
    x = tf.Variable([0.0, 1.0])
    assert first_bad_operation(lambda: tf.math.log(x)).startswith("Log")
    assert first_bad_operation(lambda: tf.math.exp(x)) is None
    tf.math.log(x)  # the checks are off again


def test_lines_are_json(broken_run):
    train_once(*broken_run)
    with open(f"{broken_run[2]}/{model_dirs.BAD_STEPS_FILE}") as file:
        assert [json.loads(line)["step"] for line in file] == [BAD]
