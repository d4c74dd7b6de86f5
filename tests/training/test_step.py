import dataclasses
import functools
import threading

import keras
import numpy as np
import pytest
import reference
import tensorflow as tf
from causal_runs import initial_mems, loss_and_gradients, make_host_loop, make_objective

from txl_tf.devices import distribute
from txl_tf.errors import InputError
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.settings.run import TrainConfig
from txl_tf.training.optimizer.adam import Adam
from txl_tf.training.optimizer.schedules import Schedule
from txl_tf.training.step import Sums, train_step

MODEL = dataclasses.replace(reference.SMALL, mem_len=4)
TRAIN = TrainConfig(train_steps=20, learning_rate=1e-2, warmup_steps=2, clip=0.25, jit_compile=False)
B, T = 4, 3


@functools.cache
def training(strategy, model_config, train_config, **objective):
    """A model, its host loop, which many tests use since tracing takes seconds, and a function that begins anew."""
    with strategy.scope():
        keras.utils.set_random_seed(5)
        model = TransformerXL(model_config)
        optimizer = Adam(train_config, model.trainable_variables)
    variables = [*(weight.value for weight in model.variables), *optimizer.by_path().values()]
    values = [variable.numpy() for variable in variables]

    def begin():
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

    return model, make_host_loop(strategy, model, optimizer, train_config, **objective), begin


def run_steps(strategy, batches, model_config=MODEL, train_config=TRAIN, loops=None, watch=None, **objective):
    """Trains on `batches`, a list of ([B, T], [B, T]), in host loops of the given lengths, each followed by `watch`.

    Returns the model's weights, the sums after each loop, and the model, which the next run of its kind changes.
    """
    model, host_loop, begin = training(strategy, model_config, train_config, **objective)
    begin()
    replicas = strategy.num_replicas_in_sync

    def make_dataset(host, num_hosts, replicas_per_host):
        inputs, targets = (np.stack(part).reshape([-1, B // replicas, T]) for part in zip(*batches, strict=True))
        return tf.data.Dataset.from_tensor_slices((inputs, targets))

    iterator = iter(distribute.distribute_batches(strategy, make_dataset))
    mems, sums, seen = initial_mems(strategy, model, B), Sums().stacked(), []
    for n in loops or [len(batches)]:
        mems, sums = host_loop(iterator, mems, sums, tf.constant(n))
        seen.append(sums.numpy())
        if watch:
            watch(model, distribute.gather_state(strategy, mems))
    return [np.array(weight) for weight in model.get_weights()], np.array(seen), model


@pytest.fixture
def batches(rng):
    stream = rng.integers(0, MODEL.vocab_size, [B, 6 * T + 1]).astype(np.int32)
    return [(stream[:, t : t + T], stream[:, t + 1 : t + 1 + T]) for t in range(0, 6 * T, T)]


def test_one_step_equals_the_numpy_reference(batches, one_device):
    """Golden step: loss by the reference, gradients by its finite differences, then the clip and Adam by hand."""
    inputs, targets = batches[0]
    train = dataclasses.replace(TRAIN, warmup_steps=0)
    untrained, _, begin = training(one_device, MODEL, train)
    begin()
    weights = reference.model_weights(untrained)
    memory = [np.zeros([MODEL.mem_len, MODEL.d_model])] * MODEL.n_layer

    def loss():
        nll = 0.0
        for lane in range(B):
            log_prob, _ = reference.transformer_xl(weights, inputs[lane], memory, MODEL.reach)
            nll -= log_prob[np.arange(T), targets[lane]].mean()
        return nll / B

    before = loss()
    shared = {id(array): array for layer in weights["layers"] for name, array in layer.items() if name in "uw"}
    assert len(shared) == 4  # u and v are copied to each layer: move the copies together
    groups = [[weights["embedding"]], [weights["bias"]]]
    groups += [[layer[name] for layer in weights["layers"]] for name in "uw"]
    groups += [[array] for layer in weights["layers"] for name, array in layer.items() if name not in ("u", "w")]
    gradients = []
    for group in groups:
        gradient = np.zeros_like(group[0])
        for index in np.ndindex(gradient.shape):
            for sign in (1, -1):
                for array in group:
                    array[index] += sign * 1e-5
                gradient[index] += sign * loss() / 2e-5
                for array in group:
                    array[index] -= sign * 1e-5
        gradients.append(gradient)
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients))
    assert norm > TRAIN.clip  # or the clip would go untested

    _, sums, model = run_steps(one_device, batches[:1], train_config=train)
    np.testing.assert_allclose(sums[-1], [before, norm, 0, 0], rtol=1e-6)
    after = reference.model_weights(model)
    moved = [after["embedding"], after["bias"], after["layers"][0]["u"], after["layers"][0]["w"]]
    moved += [array for layer in after["layers"] for name, array in layer.items() if name not in ("u", "w")]
    for group, gradient, new in zip(groups, gradients, moved, strict=True):
        gradient = gradient * TRAIN.clip / norm
        # Adam's first step: both moments are corrected to the gradient itself and its square.
        step = gradient / (np.abs(gradient) + 1e-8 / np.sqrt(1 - 0.999))
        clear = np.abs(gradient) > 1e-6  # where the difference quotient's error is too small to turn the step
        np.testing.assert_allclose(
            (new - group[0])[clear], -TRAIN.learning_rate * step[clear], rtol=1e-3, atol=TRAIN.learning_rate * 1e-3
        )


@pytest.mark.parametrize(("loss_positions", "first"), [("full", 0), ("half", T // 2)])
def test_loss_positions_equal_the_numpy_reference(batches, one_device, loss_positions, first):
    """Of T = 3 targets the recent half is the last two; nothing is learned from those before."""
    train = dataclasses.replace(TRAIN, warmup_steps=0)
    positions = {"train_config": train, "loss_positions": loss_positions}
    inputs, targets = batches[0]
    elsewhere = targets.copy()
    elsewhere[:, : T // 2] = (elsewhere[:, : T // 2] + 1) % MODEL.vocab_size
    with one_device.scope():
        keras.utils.set_random_seed(5)
        weights = reference.model_weights(TransformerXL(MODEL))
    memory = [np.zeros([MODEL.mem_len, MODEL.d_model])] * MODEL.n_layer
    nll = []
    for lane in range(B):
        log_prob, _ = reference.transformer_xl(weights, inputs[lane], memory, MODEL.reach)
        nll.append(-log_prob[np.arange(T), targets[lane]][first:])

    learned, sums, _ = run_steps(one_device, [(inputs, targets)], **positions)
    np.testing.assert_allclose(sums[-1][0], np.mean(nll), rtol=1e-6)
    otherwise, _, _ = run_steps(one_device, [(inputs, elsewhere)], **positions)
    equal = all(np.array_equal(mine, theirs) for mine, theirs in zip(learned, otherwise, strict=True))
    assert equal == (loss_positions == "half")


@pytest.mark.parametrize(
    ("strategy", "groups", "clusters"),
    [
        pytest.param("two_replicas", 1, {}, marks=pytest.mark.slow),
        ("two_replicas", 2, {"cutoffs": (3, 6), "div_val": 2}),
        pytest.param("one_device", 4, {"cutoffs": (3, 6), "div_val": 2, "mem_init": "empty"}, marks=pytest.mark.slow),
    ],
)
def test_replicas_and_groups_of_lanes_change_nothing(batches, one_device, strategy, groups, clusters, request):
    """Weights and mems after every step are those of one device that reads all lanes at once."""
    courses = []
    for where, accumulate_steps in ((one_device, 1), (request.getfixturevalue(strategy), groups)):
        courses.append([])
        run_steps(
            where,
            batches,
            dataclasses.replace(MODEL, **clusters),
            dataclasses.replace(TRAIN, accumulate_steps=accumulate_steps),
            loops=[1] * len(batches),
            watch=lambda model, mems: courses[-1].extend(model.get_weights() + tf.nest.flatten(mems)),
        )
    for want, got in zip(*courses, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-9)


def test_groups_have_dropout_masks_of_their_own(rng, one_device):
    """Two lanes read the same; the mems tell the masks apart."""
    tokens = np.repeat(rng.integers(0, MODEL.vocab_size, [1, T]), 2, 0).astype(np.int32)
    for rate in (0.0, 0.5):
        with one_device.scope():
            model = TransformerXL(dataclasses.replace(MODEL, dropout=rate))
        _, _, mems = loss_and_gradients(
            model,
            dataclasses.replace(TRAIN, accumulate_steps=2),
            tf.constant([1, 0]),
            tokens,
            tokens,
            model.initial_mems(2),
        )
        assert all(np.array_equal(memory[0], memory[1]) == (rate == 0) for memory in mems.hidden)


@pytest.mark.parametrize("strategy", ["one_device", "two_replicas"])
def test_steps_per_loop_changes_nothing(batches, strategy, request):
    strategy = request.getfixturevalue(strategy)
    model = dataclasses.replace(MODEL, dropout=0.2, dropatt=0.2)
    at_once, sums, _ = run_steps(strategy, batches, model)
    for loops in ([1] * 6, [4, 2]):
        weights, seen, _ = run_steps(strategy, batches, model, loops=loops)
        np.testing.assert_array_equal(seen[-1], sums[-1])
        for mine, theirs in zip(weights, at_once, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.xla
@pytest.mark.slow
def test_xla_changes_nothing(batches, one_device):
    plain, sums, _ = run_steps(one_device, batches)
    compiled, seen, _ = run_steps(one_device, batches, train_config=dataclasses.replace(TRAIN, jit_compile=True))
    np.testing.assert_allclose(seen, sums, rtol=1e-6)
    for mine, theirs in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-9)


def test_other_loop_lengths_do_not_retrace(batches, one_device, monkeypatch):
    traces = []
    call = TransformerXL.call
    monkeypatch.setattr(
        TransformerXL,
        "call",
        functools.wraps(call)(lambda self, *args, **kwargs: (traces.append(1), call(self, *args, **kwargs))[1]),
    )
    training.cache_clear()
    run_steps(one_device, batches, loops=[1])
    once = len(traces)
    run_steps(one_device, batches, loops=[3, 2, 1])
    assert 0 < len(traces) == once


def test_dropout_differs_between_replicas(batches, two_replicas):
    with two_replicas.scope():
        model = TransformerXL(dataclasses.replace(MODEL, dropout=0.5))
        optimizer = Adam(TRAIN, model.trainable_variables)
    seeds = {}
    call = model.call

    def remember(*args, seed, **kwargs):
        seeds[threading.get_ident()] = seed  # MirroredStrategy traces each replica in a thread of its own
        return call(*args, seed=seed, **kwargs)

    model.call = remember
    inputs = tf.constant(batches[0][0])

    @tf.function
    def replica_seeds():
        def replica():
            train_step(
                make_objective(model), optimizer, TRAIN, tf.constant([1, 0]), (inputs, inputs), model.initial_mems(B)
            )
            return seeds[threading.get_ident()].lanes

        return two_replicas.run(replica)

    first, second = (seed.numpy().tolist() for seed in two_replicas.experimental_local_results(replica_seeds()))
    assert first != second


def test_a_batch_without_targets_has_loss_0(batches, one_device):
    inputs, targets = batches[0]
    _, sums, _ = run_steps(one_device, [(inputs, np.full_like(targets, -1))])
    assert sums[0][0] == 0 and Sums(*sums[0]).skipped == 0


def test_gradients_are_clipped_after_the_sum_over_replicas(batches, two_replicas):
    """One update's length tells: Adam's is insensitive to scale, so look at its first moment."""
    strategy = two_replicas
    with strategy.scope():
        keras.utils.set_random_seed(5)
        model = TransformerXL(MODEL)
        optimizer = Adam(TRAIN, model.trainable_variables)
    half = np.stack(batches[0]).reshape([2, 2, B // 2, T])

    def make_dataset(host, num_hosts, replicas_per_host):
        return tf.data.Dataset.from_tensor_slices((half[0], half[1]))

    iterator = iter(distribute.distribute_batches(strategy, make_dataset))
    loop = make_host_loop(strategy, model, optimizer, TRAIN)
    _, sums = loop(iterator, initial_mems(strategy, model, B), Sums().stacked(), tf.constant(1))
    assert sums[1] > TRAIN.clip
    norm = np.sqrt(sum((momentum.numpy() ** 2).sum() for momentum in optimizer.momenta)) / (1 - 0.9)
    np.testing.assert_allclose(norm, TRAIN.clip, rtol=1e-6)


def test_mems_pass_from_step_to_step(batches, one_device):
    """The second batch's loss is that of a model which has seen the first; zeroed mems would give another."""
    frozen = dataclasses.replace(TRAIN, learning_rate=1e-30)
    _, sums, model = run_steps(one_device, batches[:2], train_config=frozen)
    _, mems = model(tf.constant(batches[0][0]))
    with_mems, _ = model(tf.constant(batches[1][0]), mems)
    without, _ = model(tf.constant(batches[1][0]))
    first, _ = model(tf.constant(batches[0][0]))

    def loss(hidden, batch):
        return float(tf.reduce_mean(model.nll(hidden, batch[1])))

    np.testing.assert_allclose(sums[-1][0], loss(first, batches[0]) + loss(with_mems, batches[1]), rtol=1e-6)
    assert abs(loss(with_mems, batches[1]) - loss(without, batches[1])) > 1e-4


def test_schedule_is_the_official_one():
    schedule = Schedule(TrainConfig(train_steps=100, learning_rate=2.0, warmup_steps=10, min_lr_ratio=0.1))
    want = [2.0 * s / 10 for s in range(10)]
    want += [2.0 * (0.1 + 0.9 * (1 + np.cos(np.pi * (s - 10) / 90)) / 2) for s in range(10, 101)]
    np.testing.assert_allclose([schedule(s) for s in range(101)], want, rtol=1e-6)


def test_batches_that_cannot_be_shared_out_are_refused(two_replicas):
    assert distribute.lanes_per_replica(two_replicas, 8, groups=4) == 4
    with pytest.raises(InputError, match="cannot be divided equally over 2 replicas: use a multiple"):
        distribute.lanes_per_replica(two_replicas, 3)
    with pytest.raises(InputError, match="over 2 replicas times --accumulate_steps=4: use a multiple"):
        distribute.lanes_per_replica(two_replicas, 4, groups=4)
