"""Adam and AdamW against their equations, and with moments in bfloat16; Adam in a whole step is in test_step.py."""

import collections
import dataclasses
import functools

import keras
import numpy as np
import pytest
import reference
import tensorflow as tf

from txl_tf.hashing import random_bits
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.ops import platform
from txl_tf.settings.run import TrainConfig
from txl_tf.training.optimizer.adam import Adam, Scalars, stochastic_round, update_in_one_op, updated_in_plain_ops

N = 4096
TRAIN = TrainConfig(learning_rate=1e-3, min_lr_ratio=1.0, bfloat16_moments=True)


def make(rng, config=TRAIN):
    """A variable of N weights and its Adam."""
    variable = keras.Variable(rng.normal(size=[N]), dtype="float32")
    return variable, Adam(config, [variable])


@tf.function
def update(optimizer, gradients, good=True):
    """A step for each of the gradients [steps, N]."""
    for gradient in gradients:
        optimizer.apply([gradient], 1.0, tf.constant(good))


def as_numbers(variable):
    return tf.cast(variable, tf.float32).numpy()


def test_rounding_takes_a_neighbour_and_is_right_on_average(rng):
    x = np.concatenate([rng.normal(size=64), [-3e38, 1e-30, 0.0, 1.0, -1.5]]).astype(np.float32)
    bits = random_bits([2000, len(x)], tf.constant([1, 2])) & 0xFFFF
    rounded = as_numbers(stochastic_round(np.tile(x, [2000, 1]), bits)).astype(np.float64)
    low, high = rounded.min(0), rounded.max(0)
    exact = np.isin(x, [0.0, 1.0, -1.5])
    np.testing.assert_array_equal(low[exact], x[exact])
    np.testing.assert_array_equal(high[exact], x[exact])
    low, high, mean, x = (values[~exact] for values in (low, high, rounded.mean(0), x))
    spacing = 2.0 ** (np.floor(np.log2(np.abs(x))) - 7)  # bfloat16 has 8 digits
    assert (low < x).all() and (x < high).all()
    np.testing.assert_allclose(high - low, spacing)
    assert (np.abs(mean - x) < 5 * 0.5 * spacing / 2000**0.5).all()


@pytest.mark.parametrize(
    ("settings", "apart"),
    [
        ({}, 2e-3),
        ({"weight_decay": 1.0}, 2e-3),
        ({"weight_decay": 1.0, "bias_correction": False}, 5e-3),  # the first updates are three times as large
    ],
)
def test_moments_follow_adams_own(rng, settings, apart):
    """Noisy gradients for a while: both moments near float32's, and unbiased; the weights' way is the same."""
    plain, plain_adam = make(rng, dataclasses.replace(TRAIN, bfloat16_moments=False, **settings))
    rounded, rounded_adam = make(rng, dataclasses.replace(TRAIN, **settings))
    start = plain.numpy()
    rounded.assign(start)
    gradients = tf.constant(rng.normal(0.3, 1.0, size=[200, N]), tf.float32)
    for optimizer in (plain_adam, rounded_adam):
        update(optimizer, gradients)
    for own, adams in (
        (rounded_adam.momenta, plain_adam.momenta),
        (rounded_adam.velocities, plain_adam.velocities),
    ):
        assert own[0].dtype == tf.bfloat16
        difference = as_numbers(own[0]) - as_numbers(adams[0])
        scale = np.sqrt(np.mean(as_numbers(adams[0]) ** 2))
        assert 0 < difference.std() < 0.04 * scale
        assert abs(difference.mean()) < 5 * difference.std() / N**0.5
    np.testing.assert_allclose(rounded.numpy() - start, plain.numpy() - start, rtol=0, atol=apart)
    assert np.abs(plain.numpy() - start).mean() > 0.05


def test_a_velocity_falls_when_gradients_stop(rng):
    """Rounded to the nearest it would stay where it is for good: a step takes a thousandth of it."""
    _, optimizer = make(rng)
    update(optimizer, tf.ones([1, N]))
    before = as_numbers(optimizer.velocities[0]).mean()
    update(optimizer, tf.zeros([1000, N]))
    np.testing.assert_allclose(as_numbers(optimizer.velocities[0]).mean(), before * 0.999**1000, rtol=0.01)


@pytest.mark.parametrize("bfloat16_moments", [True, False])
@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "bias_correction": False}])
def test_a_skipped_step_changes_no_bit(rng, bfloat16_moments, settings):
    variable, optimizer = make(rng, dataclasses.replace(TRAIN, bfloat16_moments=bfloat16_moments, **settings))
    start = variable.numpy()
    update(optimizer, tf.constant(rng.normal(size=[3, N]), tf.float32))
    assert (variable.numpy() != start).all()
    variable.assign(np.where(np.arange(N) < 5, np.inf, variable))  # a rate of 0 must not turn them into NaN
    kept = [variable.value, optimizer.momenta[0], optimizer.velocities[0]]
    before = [value.numpy().tobytes() for value in kept]
    update(optimizer, tf.fill([1, N], np.nan), good=False)
    assert [value.numpy().tobytes() for value in kept] == before
    assert optimizer.iterations.numpy() == 4


VARIANTS = {
    "Adam": {},
    "without bias correction": {"bias_correction": False},
    "AdamW": {"weight_decay": 0.5},
    "official AdamWeightDecay": {"weight_decay": 0.5, "bias_correction": False, "adam_epsilon": 1e-2},
    "layers' rates": {"weight_decay": 0.5, "layer_decay": 0.5},
    "layers' rates, no weight decay": {"layer_decay": 0.5},
    "layers' gradients": {"layer_decay": 0.5, "layer_decay_of": "gradient", "adam_epsilon": 1e-2},
}


def by_equations(weight, gradients, rates, settings, of_rate, of_gradient, decays):
    """The weight before, and after each update: Kingma and Ba 2015, section 2, last paragraph; Loshchilov and Hutter.

    Their epsilon is there added to the root of the corrected second moment; here, as in TensorFlow's Adam and the
    official codes, to the root of the moment itself ("epsilon hat").
    """
    epsilon, decay = settings.get("adam_epsilon", 1e-8), settings.get("weight_decay", 0.0) if decays else 0.0
    m = v = 0.0
    course = [weight]
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        m = 0.9 * m + 0.1 * of_gradient * gradient
        v = 0.999 * v + 0.001 * (of_gradient * gradient) ** 2
        update = m / (np.sqrt(v) + epsilon)
        if settings.get("bias_correction", True):
            update *= np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        course.append(course[-1] - of_rate * rate * (update + decay * course[-1]))
    return course


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_three_steps_equal_the_equations(rng, settings):
    """On all weights of a model with two layers, in float64; the learning rate falls linearly from update to update."""
    config = TrainConfig(train_steps=10, learning_rate=0.1, lr_schedule="linear", min_lr_ratio=0.1, **settings)
    model = TransformerXL(dataclasses.replace(reference.SMALL, untie_r=True))
    variables = model.trainable_variables
    optimizer = Adam(config, variables)
    starts = [variable.numpy() + 0.1 for variable in variables]  # no weight is 0, on which a decay would not show
    for variable, start in zip(variables, starts, strict=True):
        variable.assign(start)
    gradients = [[rng.normal(scale=0.1, size=variable.shape) for _ in range(3)] for variable in variables]

    @tf.function(autograph=False)
    def step(*gradients):
        optimizer.apply(gradients, 0.5, tf.constant(True))

    assert not any(update.numpy().any() for update in optimizer.last_update())
    last_updates = []
    for t in range(3):
        step(*[tf.constant(of_variable[t]) for of_variable in gradients])
        last_updates.append([update.numpy() for update in optimizer.last_update()])
    rates = [0.1 * (0.1 + 0.9 * (1 - t / 10)) for t in range(3)]
    for i, variable in enumerate(variables):
        of_rate = of_gradient = 1.0
        if settings.get("layer_decay_of") == "gradient":
            outside = variable.path.endswith(("content_bias", "position_bias"))
            of_gradient = 0.5 if "/layer_0/" in variable.path and not outside else 1.0
        elif "layer_decay" in settings:
            of_rate = 0.5 if "/layer_0/" in variable.path else 0.25 if "/embedding/" in variable.path else 1.0
        decays = not variable.path.endswith(("/bias", "/bias_0", "/gamma", "/beta"))
        halves = [0.5 * gradient for gradient in gradients[i]]
        course = by_equations(starts[i], halves, rates, settings, of_rate, of_gradient, decays)
        np.testing.assert_allclose(variable.numpy(), course[-1], rtol=1e-6, atol=1e-7)
        for update, before, after in zip(last_updates, course[:-1], course[1:], strict=True):
            np.testing.assert_allclose(update[i], before - after, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.xla)])
def test_plain_ops_do_what_tensorflows_op_does(rng, compiled):
    start, gradients = rng.normal(scale=0.02, size=[N]), rng.normal(size=[20, N])
    ends = []

    def update_in_plain_ops(variable, *rest):
        variable.assign(updated_in_plain_ops(tf.convert_to_tensor(variable), *rest))

    for update_in in (update_in_one_op, update_in_plain_ops):
        weight = [tf.Variable(tf.constant(values, tf.float32)) for values in (start, 0 * start, 0 * start)]

        @tf.function(jit_compile=compiled)
        def step(t, gradient, update_in=update_in, weight=weight):
            rest = (tf.constant(each) for each in (0.9, 0.999, 1e-8))
            update_in(*weight, gradient, Scalars(tf.constant(1e-3), 0.9**t, 0.999**t, *rest))

        for t, gradient in enumerate(gradients, start=1):
            step(tf.constant(t, tf.float32), tf.constant(gradient, tf.float32))
        ends.append([variable.numpy() for variable in weight])
    assert np.abs(ends[0][0] - start).mean() > 1e-3
    for in_one_op, in_plain_ops in zip(*ends, strict=True):
        np.testing.assert_allclose(in_plain_ops, in_one_op, rtol=1e-6, atol=1e-7)


def test_what_is_not_asked_for_costs_no_op():
    variables = TransformerXL(dataclasses.replace(reference.SMALL, untie_r=True)).trainable_variables

    def ops(**settings):
        optimizer = Adam(TrainConfig(**settings), variables)

        @tf.function(autograph=False)
        def step(*gradients):
            optimizer.apply(gradients, 1.0, tf.constant(True))

        specs = [tf.TensorSpec(variable.shape, variable.dtype) for variable in variables]
        return collections.Counter(op.type for op in step.get_concrete_function(*specs).graph.get_operations())

    plain = ops()
    assert plain["ResourceApplyAdam"] == len(variables) and not plain["Sqrt"]
    slower = sum("/layer_0/" in variable.path or "/embedding/" in variable.path for variable in variables)
    assert ops(layer_decay=0.5) == plain + collections.Counter(Mul=slower, Const=slower)
    decayed = ops(weight_decay=0.1)
    assert (
        decayed["ResourceApplyAdam"] == 13
    )  # the others in one op: biases and norms of two layers, the softmax's bias
    assert decayed["Sqrt"] == 2 * (len(variables) - 13)  # of the second moment, and for the bias correction


@pytest.mark.xla
@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1, "layer_decay": 0.9, "bfloat16_moments": True}])
def test_a_gpus_joined_updates_are_the_same_bit_for_bit(rng, settings):
    """After good steps, and after bad ones, which move no weight."""
    config = TrainConfig(learning_rate=1e-2, **settings)
    starts = [rng.normal(size=shape).astype(np.float32) for shape in ((4, 3), (5,), (4, 3))]
    gradients = [tf.constant(rng.normal(size=start.shape), tf.float32) for start in starts]
    steps = [False, False, True, True, False]
    found = {}
    for target in ("cpu", "gpu"):
        variables = [keras.Variable(start) for start in starts]
        adam = Adam(config, variables)
        with platform.traced_for(target), platform.using("fewer"):
            step = tf.function(functools.partial(adam.apply, gradients, 0.5), autograph=False, jit_compile=True)
            found[target] = [
                step(tf.constant(good)) or [as_numbers(x) for x in (*variables, *adam.momenta, *adam.velocities)]
                for good in steps
            ]
        program = step.get_concrete_function(tf.TensorSpec([], tf.bool)).graph.as_graph_def()
        joined = any(node.op == "XlaOptimizationBarrier" for node in program.node)
        assert joined == (target == "gpu")
    before = starts[0]
    for good, cpu, gpu in zip(steps, *found.values(), strict=True):
        for mine, theirs in zip(cpu, gpu, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert np.array_equal(gpu[0], before) != good
        before = gpu[0]


@pytest.mark.parametrize("bfloat16_moments", [False, True])
def test_l2_goes_through_the_moments_after_clipping(rng, bfloat16_moments):
    """g = clipped gradient + l2 * w, where weight decay would leave the moments alone."""
    settings = {"learning_rate": 1e-2, "l2": 0.5, "bfloat16_moments": bfloat16_moments, "min_lr_ratio": 1.0}
    variable, optimizer = make(rng, TrainConfig(**settings))
    w, m, v = variable.numpy().astype(np.float64), np.zeros(N), np.zeros(N)
    gradients = rng.normal(size=[4, N]).astype(np.float32)
    for t, gradient in enumerate(gradients, 1):
        optimizer.apply([tf.constant(gradient)], 0.25, tf.constant(True))
        g = 0.25 * gradient + 0.5 * w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w -= 1e-2 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-8)
    assert np.abs(variable.numpy() - w).max() < (2e-3 if bfloat16_moments else 1e-5)
    before = variable.numpy()
    optimizer.apply([tf.fill([N], np.nan)], 0.25, tf.constant(False))
    np.testing.assert_array_equal(variable.numpy(), before)


def test_the_rate_may_be_a_part(rng):
    gradient = tf.constant(rng.normal(size=[N]), tf.float32)
    moved = []
    for part in (None, tf.constant(1.0), tf.constant(0.5)):
        variable, optimizer = make(np.random.default_rng(7), TrainConfig(learning_rate=1e-2))
        before = variable.numpy()
        optimizer.apply([gradient], 1.0, tf.constant(True), part=part)
        moved.append(variable.numpy() - before)
    np.testing.assert_array_equal(moved[0], moved[1])
    np.testing.assert_allclose(moved[2], moved[0] / 2, rtol=1e-3, atol=1e-7)
