import numpy as np
import processes
import pytest
import tensorflow as tf

from txl_tf.models.traced_gradient import traced_with_gradient


def block(x, weight, rows):
    """Uses a shape and a constant, which the gradient needs, too."""
    scores = tf.nn.softmax(tf.tanh(x @ weight) * np.arange(1.0, weight.shape[1] + 1))
    return tf.gather(scores, rows) * tf.cast(tf.size(x), x.dtype)


def make(function, arguments, wanted):
    specs = [tf.TensorSpec(argument.shape, argument.dtype) for argument in arguments]
    return traced_with_gradient(function, specs[:wanted], specs[wanted:])


def arguments(rng):
    return [tf.constant(rng.normal(size=shape)) for shape in ([4, 3], [3, 5])] + [tf.constant([2, 0, 0])]


def twice(function):
    """Two calls, the second of what the first returns, and the gradients of both."""

    def run(x, weight, rows):
        with tf.GradientTape() as tape:
            tape.watch((x, weight))
            first = function(x, weight, rows)
            result = function(tf.concat([x, first[:1, :3]], 0)[1:], 2 * weight, rows)
        return result, tape.gradient(result, (x, weight), tf.sin(result))

    return run


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.xla)])
def test_value_and_gradient_are_those_of_the_function(rng, compiled):
    function = make(block, arguments(rng), 2)
    run = tf.function(twice(function), jit_compile=compiled, autograph=False)
    for _ in range(2):  # with other values
        given = arguments(rng)
        expected, found = twice(block)(*given), run(*given)
        tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), expected, found)


def test_a_source_without_influence_has_a_zero_gradient(rng):
    given = arguments(rng)
    function = make(lambda x, weight, rows: tf.gather(weight, rows) ** 2, given, 2)
    _, (of_x, of_weight) = twice(function)(*given)
    assert not of_x.numpy().any()
    assert of_weight.numpy().any()


def test_the_gradient_uses_the_random_numbers_of_the_call(rng):
    def dropped(x):
        return x * tf.cast(tf.random.uniform(x.shape) < 0.5, x.dtype)

    x = tf.constant(rng.normal(size=[100]))
    function = make(dropped, [x], 1)
    with tf.GradientTape() as tape:
        tape.watch(x)
        result = function(x)
    np.testing.assert_array_equal(tape.gradient(result, x), result / x)
    assert 20 < np.count_nonzero(result) < 80


def test_what_a_function_uses_must_be_an_argument(rng):
    outside = tf.constant(rng.normal(size=[1000]))  # not so small that TensorFlow copies it
    with pytest.raises(ValueError, match=r"\(1000,\).*pass them as arguments"):
        make(lambda x: x * outside, [outside], 1)


THREE_STEPS = """
import tensorflow as tf
from random_model import CONFIG, random_model
from txl_tf.devices import distribute
from txl_tf.settings.run import TrainConfig
from txl_tf.models.transformer_xl.config import TransformerXLRunConfig
from txl_tf.objectives.causal_lm import CausalLM
from txl_tf.training.optimizer.adam import Adam
from txl_tf.training.step import Sums, make_host_loop

tokens, strategy = tf.zeros([2, 4], tf.int32), distribute.make_strategy("one_device")
objective = CausalLM(random_model(CONFIG), TransformerXLRunConfig())
optimizer = Adam(TrainConfig(), objective.model.trainable_variables)
batches = tf.data.Dataset.from_tensors((tokens, tokens)).repeat()
iterator = iter(distribute.distribute_batches(strategy, lambda **hosts: batches))
state = distribute.initial_state(strategy, objective.initial_state, 2)
make_host_loop(strategy, objective, optimizer, TrainConfig())(iterator, state, Sums().stacked(), tf.constant(3))
"""


@pytest.mark.xla
def test_xla_compiles_one_program_for_all_training_steps(tmp_path):
    """It would compile each step anew if the gradient's function got shapes or constants as arguments."""
    flags = {"XLA_FLAGS": f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text", "PYTHONPATH": processes.PATHS}
    done = processes.run(["-c", THREE_STEPS], env=flags)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("*replica_step*.before_optimizations.txt"))) == 1
