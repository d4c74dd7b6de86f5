"""Weights and moments sharded over replicas: the same run, and checkpoints that do not depend on replicas."""

import dataclasses
import json
import os
import shutil

import keras
import lane_runs
import numpy as np
import processes
import pytest
import replicas
import tensorflow as tf
from small_run import CONFIG, KilledError, change, evaluator, lines

from txl_tf.devices.collectives import part_axis
from txl_tf.errors import InputError
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.ops import halved_squares, platform
from txl_tf.runs.model_dir import load_trained
from txl_tf.settings.run import TrainConfig
from txl_tf.training.loop import train
from txl_tf.training.sharding import PartVariable, Sharding

RULES = {"clip": 0.05, "weight_decay": 0.1, "layer_decay": 0.5, "ema_decay": 0.7}


def assert_same(runs, others):
    assert runs.keys() == others.keys()
    for name in runs:
        np.testing.assert_allclose(others[name], runs[name], rtol=0, atol=1e-9, err_msg=name)


@pytest.fixture(scope="module")
def one_replica():
    """With everything that acts on weights: {name: array}, of a single replica, in float64."""
    return lane_runs.run(replicas.one_device(), train=RULES)


def test_two_replicas_that_share_the_state_are_one(one_replica, two_replicas):
    """Losses, norms, weights, mems, moments and averages, with groups of lanes and dropout."""
    assert_same(one_replica, lane_runs.run(two_replicas, accumulate_steps=2, train=RULES | {"shard_optimizer": True}))


@pytest.mark.slow
def test_four_replicas_that_share_the_state_are_one(one_replica, tmp_path):
    path, settings = tmp_path / "four.npz", json.dumps(RULES | {"shard_optimizer": True})
    environment = {"PYTHONPATH": processes.PATHS}
    done = processes.run([os.path.join(processes.PROGRAMS, "lane_runs.py"), path, settings], env=environment)
    assert done.returncode == 0, done.stderr
    with np.load(path) as four:
        assert_same(one_replica, dict(four))


@pytest.mark.slow
def test_moments_in_bfloat16_are_rounded_alike(two_replicas):
    """A part's random bits are those of its place in the whole."""
    settings = {"bfloat16_moments": True, "average_from_step": 2}
    runs = [lane_runs.run(two_replicas, train=settings | {"shard_optimizer": shared}) for shared in (False, True)]
    assert_same(*runs)


@pytest.mark.slow
def test_layers_that_are_computed_again_get_the_joined_parts(one_replica, two_replicas):
    assert_same(one_replica, lane_runs.run(two_replicas, remat=True, train=RULES | {"shard_optimizer": True}))


def test_clipping_acts_in_these_runs(one_replica, one_device):
    unclipped = lane_runs.run(one_device, train=RULES | {"clip": 0.0})
    assert max(np.abs(unclipped[name] - one_replica[name]).max() for name in unclipped) > 1e-3


@pytest.mark.parametrize(
    ("shape", "replicas_", "axis"),
    [
        ((6, 128), 2, 0),
        ((5, 128), 2, 1),
        ((6, 4), 2, 1),
        ((6, 3), 2, 0),
        ((6, 4, 128), 2, 0),
        ((6, 4, 64), 2, 1),
        ((5, 4, 6), 3, 2),
        ((5, 3), 2, None),
        ((8,), 2, None),
        ((8, 8), 1, None),
    ],
)
def test_what_is_cut_and_where(shape, replicas_, axis):
    assert part_axis(shape, replicas_) == axis


def test_parts_are_the_replicas_slices_and_join_again(two_replicas, rng):
    whole = rng.normal(size=[3, 4])
    with two_replicas.scope():
        variable = PartVariable(whole.shape, tf.float64, 1, 2)
    assert not variable.whole().numpy().any()
    variable.assign(tf.constant(whole))
    copies = two_replicas.experimental_local_results(variable.variable)
    np.testing.assert_array_equal(copies[0].numpy(), whole[:, :2])
    np.testing.assert_array_equal(copies[1].numpy(), whole[:, 2:])
    np.testing.assert_array_equal(variable.whole(), whole)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.xla)])
@pytest.mark.parametrize("shape", [(), (7,), (33, 5), (16,), (64, 3, 4), (333, 77), (64, 3, 128)])
def test_half_the_squared_norm(rng, shape, compiled):
    numbers = rng.standard_normal(shape)
    found = tf.function(halved_squares, jit_compile=compiled)([tf.constant(numbers, tf.float64)])
    np.testing.assert_allclose(found[0], np.sum(np.square(numbers)) / 2, rtol=1e-13)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.xla)])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("columns", [40, 1040])
def test_the_norm_shows_what_is_not_finite(bad, compiled, columns):
    numbers = np.ones([16, columns], np.float32)
    numbers[3, 7] = bad
    assert not np.isfinite(tf.function(halved_squares, jit_compile=compiled)([tf.constant(numbers)])[0])


@pytest.mark.xla
def test_norms_that_a_gpu_joins_are_each_weights_own(rng):
    """Shapes in no order; a NaN shows in its own weight alone."""
    tensors = [rng.standard_normal(shape) for shape in [(3, 5), (7,), (5, 3), (7,), (3, 5), (1,)]]
    with platform.traced_for("gpu"), platform.using("fewer"):
        joined = tf.function(lambda *given: halved_squares(given), jit_compile=True)
        found = joined(*map(tf.constant, tensors))
        np.testing.assert_allclose(found, [np.sum(np.square(tensor)) / 2 for tensor in tensors], rtol=1e-14)
        tensors[3][2] = np.nan
        np.testing.assert_array_equal(np.isfinite(joined(*map(tf.constant, tensors))), [1, 1, 1, 0, 1, 1])


@pytest.mark.parametrize("rounded", [False, True])
def test_replicas_get_their_parts_of_the_gradients_sums(two_replicas, rng, rounded):
    """With bfloat16_gradients each replica's gradient is rounded, and their sum; what is not cut stays as it is."""
    gradients = [rng.standard_normal([2, *shape]).astype(np.float32) for shape in ((4, 6), (6,))]
    with two_replicas.scope():
        variables = [keras.Variable(np.zeros(gradient.shape[1:], np.float32)) for gradient in gradients]
        sharding = Sharding(TrainConfig(shard_optimizer=True, bfloat16_gradients=rounded), variables)
    assert sharding.cut == {0: 1}

    @tf.function
    def summed():
        def replica_sums():
            replica = tf.distribute.get_replica_context()
            own = [tf.gather(gradient, replica.replica_id_in_sync_group) for gradient in gradients]
            return sharding.sum(replica, own, ())[0]

        return two_replicas.run(replica_sums)

    def stored(x):
        return x.astype(tf.bfloat16.as_numpy_dtype).astype(np.float32) if rounded else x

    part, bias = map(two_replicas.experimental_local_results, summed())
    want = stored(stored(gradients[0][0]) + stored(gradients[0][1]))
    np.testing.assert_array_equal(np.concatenate(part, axis=1), want)
    for copy in bias:
        np.testing.assert_array_equal(copy, gradients[1].sum(axis=0))


def test_gradients_are_not_rounded_without_sharing():
    with pytest.raises(InputError, match="bfloat16_gradients needs shard_optimizer"):
        TrainConfig(bfloat16_gradients=True)


def test_with_one_replica_the_flags_change_nothing(one_device):
    config = TrainConfig(shard_optimizer=True, bfloat16_gradients=True)
    with one_device.scope():
        sharding = Sharding(config, [tf.Variable(tf.zeros([4, 4]))])
        assert not sharding.cut and sharding.fraction() == 0
        assert isinstance(sharding.variable(0, tf.float32), tf.Variable)


def test_a_models_variables_are_used_only_outside_steps(two_replicas):
    """Biases stay whole. In steps the model computes with joined parts, rounded to what it computes in."""
    with two_replicas.scope():
        model = TransformerXL(dataclasses.replace(CONFIG.model, vocab_size=6, untie_r=False, dtype="mixed_bfloat16"))
        variables = model.trainable_variables
        first = [variable.numpy() for variable in variables]
        sharding = Sharding(TrainConfig(shard_optimizer=True), variables, compute_dtype=model.compute_dtype)
    names = {variables[i].path.split("/")[-1] for i in sharding.cut}
    kernels = {f"{part}_kernel" for part in ("query", "key", "value", "position", "output")} | {"kernel"}
    assert names == kernels | {"table_0"}
    sharding.empty()

    @tf.function
    def read():
        def values():
            with sharding.joined(tf.distribute.get_replica_context()):
                return [tf.convert_to_tensor(variable.value) for variable in variables]

        return two_replicas.run(values)

    for i, tensor in enumerate(read()):
        want = tf.cast(tf.cast(first[i], tf.bfloat16), tf.float32) if i in sharding.cut else first[i]
        for value in two_replicas.experimental_local_results(tensor):
            np.testing.assert_array_equal(value, want)
    sharding.fill()
    for variable, want in zip(variables, first, strict=True):
        for copy in two_replicas.experimental_local_results(variable.value):
            np.testing.assert_array_equal(copy, want)
    sharding.empty()
    assert all((variable.value.numpy().size == 0) == (i in sharding.cut) for i, variable in enumerate(variables))


RUN = change(
    CONFIG,
    model={"dtype": "float64"},
    train={"eval_steps": 4, "shard_optimizer": True, "average_from_step": 3, "weight_decay": 0.1},
)


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """A run on two replicas without a stop, and its model_dir."""
    folder = tmp_path_factory.mktemp("whole")
    train(RUN, corpus, str(folder), replicas.two_replicas(), evaluator(lambda: 1.0))
    return folder


def killed_at(evaluation):
    """Evaluates until it is that number's turn, and then ends the run."""
    turns = iter(range(evaluation + 1))

    def measure():
        if next(turns) == evaluation:
            raise KilledError
        return 1.0

    return evaluator(measure)


def weights_of(model_dir):
    """Averaged and last weights."""
    return [weight for kind in ("average", "last") for weight in load_trained(str(model_dir), kind).model.get_weights()]


def tensors_of(model_dir, step):
    """The values in a checkpoint, by name."""
    reader = tf.train.load_checkpoint(str(model_dir / f"ckpt-{step}"))
    names = [name for name in reader.get_variable_to_shape_map() if name.endswith("VARIABLE_VALUE")]
    return {name: reader.get_tensor(name) for name in names}


@pytest.mark.slow
def test_a_killed_run_goes_on_as_uninterrupted(whole, corpus, tmp_path, two_replicas, capsys):
    with pytest.raises(KilledError):
        train(RUN, corpus, str(tmp_path), two_replicas, killed_at(1))
    train(RUN, corpus, str(tmp_path), two_replicas, evaluator(lambda: 1.0))
    assert "% of weights and moments sharded over them" in capsys.readouterr().out
    assert lines(tmp_path) == lines(whole)
    for mine, theirs in zip(weights_of(tmp_path), weights_of(whole), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
def test_a_run_goes_on_with_any_number_of_replicas_and_without_the_flag(
    whole, corpus, tmp_path, one_device, two_replicas
):
    """Begun on one replica, shared by two, and ended by two that do not share: checkpoints are the same throughout."""
    without = change(RUN, train={"shard_optimizer": False})
    for config, strategy in ((without, one_device), (RUN, two_replicas)):
        with pytest.raises(KilledError):
            train(config, corpus, str(tmp_path), strategy, killed_at(0))
    train(without, corpus, str(tmp_path), two_replicas, evaluator(lambda: 1.0))
    for step in (4, 8, 12):
        mine, theirs = tensors_of(tmp_path, step), tensors_of(whole, step)
        assert mine.keys() == theirs.keys() and any(
            name.endswith("velocity/.ATTRIBUTES/VARIABLE_VALUE") for name in mine
        )
        for name in mine:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=0, atol=1e-9, err_msg=name)


@pytest.mark.slow
def test_in_bfloat16_the_flag_changes_rounding_at_most(corpus, tmp_path, two_replicas):
    """Checkpoints and the trained model are in float32; runs go on with and without the flag; warm starts are exact."""
    bfloat16 = change(RUN, model={"dtype": "mixed_bfloat16"}, train={"eval_steps": 0})
    without = change(bfloat16, train={"shard_optimizer": False})
    folders = {name: tmp_path / name for name in ("without", "shared", "mixed", "warm")}
    models = {
        name: train(config, corpus, str(folders[name]), two_replicas)
        for name, config in (("without", without), ("shared", bfloat16))
    }
    shutil.copytree(folders["shared"], folders["mixed"], ignore=shutil.ignore_patterns("ckpt-8.*", "ckpt-12.*"))
    train(without, corpus, str(folders["mixed"]), two_replicas)
    for step in (8, 12):
        want = tensors_of(folders["without"], step)
        for name in ("shared", "mixed"):
            found = tensors_of(folders[name], step)
            assert found.keys() == want.keys()
            for key, value in found.items():
                assert value.dtype == want[key].dtype
                np.testing.assert_allclose(value, want[key], rtol=0, atol=1e-4, err_msg=key)
    last = load_trained(str(folders["shared"]), "last").model
    for mine, theirs in zip(models["shared"].trainable_variables, last.trainable_variables, strict=True):
        assert mine.dtype == theirs.dtype == "float32"
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())
    settings = {"warm_start": str(folders["shared"]), "train_steps": 1, "learning_rate": 1e-30, "average_from_step": 0}
    warm = train(change(bfloat16, train=settings), corpus, str(folders["warm"]), two_replicas)
    for mine, theirs in zip(warm.get_weights(), last.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-28)


@pytest.mark.slow
def test_a_killed_run_in_bfloat16_goes_on_as_uninterrupted(corpus, tmp_path, two_replicas):
    config = change(RUN, model={"dtype": "mixed_bfloat16"}, train={"bfloat16_gradients": True})
    train(config, corpus, str(tmp_path / "whole"), two_replicas, evaluator(lambda: 1.0))
    with pytest.raises(KilledError):
        train(config, corpus, str(tmp_path / "cut"), two_replicas, killed_at(1))
    train(config, corpus, str(tmp_path / "cut"), two_replicas, evaluator(lambda: 1.0))
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    mine, theirs = (tensors_of(tmp_path / name, 12) for name in ("cut", "whole"))
    assert mine.keys() == theirs.keys()
    for name in mine:
        np.testing.assert_array_equal(mine[name], theirs[name])
