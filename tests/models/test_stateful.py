"""Transformer-XL in Keras' own way: compile, fit, evaluate, predict, saving."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_run import CONFIG, change, lines

from txl_tf.data.lanes import TrainingLanes
from txl_tf.models.transformer_xl.stateful import SeparateTexts, StatefulTransformerXL
from txl_tf.runs.checkpoints import variables_by_path
from txl_tf.training.loop import train

STEPS = 6
RUN = change(
    CONFIG,
    model={"vocab_size": 256, "dropout": 0.0, "dropatt": 0.0, "dtype": "float64", "init_std": 0.1},
    data={"random_offset": False},
    train={"train_steps": STEPS, "log_steps": 1, "save_steps": STEPS, "eval_steps": 0, "steps_per_loop": STEPS}
    | {"lr_schedule": "linear", "min_lr_ratio": 1.0, "warmup_steps": 0, "clip": 0.0},
)


def made(start, batch_size=4):
    """A compiled model with the weights of another."""
    model = StatefulTransformerXL(RUN.model, batch_size)
    model.decoder.set_weights(start)
    optimizer = keras.optimizers.Adam(RUN.train.learning_rate, epsilon=RUN.train.adam_epsilon)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False)
    return model


class Losses(keras.callbacks.Callback):
    """The loss of each batch, from Keras' mean over the epoch so far."""

    def __init__(self):
        super().__init__()
        self.sums = [0.0]

    def on_train_batch_end(self, batch, logs=None):
        self.sums.append(logs["loss"] * (batch + 1))

    def each(self):
        return np.diff(self.sums)


@pytest.fixture(scope="module")
def start():
    keras.utils.set_random_seed(3)
    return StatefulTransformerXL(RUN.model, 4).decoder.get_weights()


@pytest.fixture(scope="module")
def ours(corpus, start, tmp_path_factory):
    """(losses, weights) of our own loop from the same start."""
    import replicas

    folder = tmp_path_factory.mktemp("ours")
    weights = tf.train.Checkpoint(model=variables_by_path(made(start).decoder))
    path = weights.write(str(folder / "start"))
    model = train(change(RUN, train={"warm_start": path}), corpus, str(folder / "run"), replicas.one_device())
    return [line["loss"] for line in lines(folder / "run")], model.get_weights()


@pytest.mark.parametrize("strategy", ["one_device", "two_replicas"])
@pytest.mark.filterwarnings("error:`shuffle=True`")
def test_fit_equals_our_loop_step_by_step(ours, corpus, start, strategy, request):
    batches = TrainingLanes(corpus, RUN.data, RUN.train.seed).batches(0)
    losses = Losses()
    with request.getfixturevalue(strategy).scope():
        model = made(start)
        model.fit(batches, steps_per_epoch=STEPS, callbacks=[SeparateTexts(), losses], verbose=0)
    np.testing.assert_allclose(losses.each(), ours[0], rtol=1e-5)  # Keras' mean over the epoch is float32
    for mine, theirs in zip(model.decoder.get_weights(), ours[1], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def model(start):
    return made(start, batch_size=2)


@pytest.fixture(scope="module")
def texts():
    return np.random.default_rng(5).integers(0, 256, [2, 25])


def log_probs(decoder, texts, t_len=8):
    """By the function (tokens, mems) -> (hidden, mems)."""
    mems, parts = decoder.initial_mems(2), []
    for i in range(0, 24, t_len):
        hidden, mems = decoder(tf.constant(texts[:, i : i + t_len]), mems)
        parts.append(decoder.log_prob(hidden).numpy())
    return parts


def batches_of(texts):
    """The three segments of 8 tokens, one after the other."""
    inputs, targets = (texts[:, i : i + 24].reshape([2, 3, 8]).swapaxes(0, 1) for i in (0, 1))
    return tf.data.Dataset.from_tensor_slices((inputs, targets))


def test_evaluate_and_predict_read_the_text_as_one(model, texts):
    want = log_probs(model.decoder, texts)
    model.reset_state()
    found = model.predict(batches_of(texts).map(lambda inputs, _: inputs), callbacks=[SeparateTexts()], verbose=0)
    np.testing.assert_allclose(found, np.concatenate(want), rtol=0, atol=1e-6)
    nll = [
        -np.take_along_axis(part, texts[:, i + 1 : i + 9, None], 2) for i, part in zip((0, 8, 16), want, strict=True)
    ]
    loss = model.evaluate(batches_of(texts), callbacks=[SeparateTexts()], verbose=0)
    np.testing.assert_allclose(loss, np.mean(nll), rtol=1e-6)


def test_the_state_is_kept_until_it_is_reset(model, texts):
    want = log_probs(model.decoder, texts)
    model.reset_state()
    tokens = tf.constant(texts)
    for i, part in zip((0, 8, 16), want, strict=True):
        np.testing.assert_allclose(model(tokens[:, i : i + 8]), part, rtol=0, atol=1e-12)
    assert np.abs(model(tokens[:, :8]).numpy() - want[0]).max() > 1e-3
    model.reset_state()
    np.testing.assert_allclose(model(tokens[:, :8]), want[0], rtol=0, atol=1e-12)


def test_training_goes_on_with_its_own_text_after_an_evaluation(model, texts):
    model.reset_state()
    model(tf.constant(texts[:, :8]))
    before = model.state
    model.evaluate(batches_of(texts), callbacks=[SeparateTexts()], verbose=0)
    for mine, theirs in zip(tf.nest.flatten(before), tf.nest.flatten(model.state), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_saving_keeps_weights_and_no_memory(model, texts, tmp_path):
    model.reset_state()
    first = model(tf.constant(texts[:, :8]))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.config == model.config and loaded.batch_size == 2
    np.testing.assert_array_equal(loaded(tf.constant(texts[:, :8])), first)
    assert len(loaded.weights) == len(model.decoder.weights)


def test_wrong_batch_sizes_are_errors(model, texts, two_replicas):
    with pytest.raises(ValueError, match="memory has 2 rows a replica, got tokens"):
        model(tf.constant(texts[:1, :8]))
    with pytest.raises(ValueError, match="ext_len=4 must be 0"):
        StatefulTransformerXL(change(RUN, model={"mem_len": 0, "ext_len": 4}).model, 2)
    with two_replicas.scope(), pytest.raises(ValueError, match="batch_size=3 must be a positive multiple of the 2"):
        StatefulTransformerXL(RUN.model, 3)
