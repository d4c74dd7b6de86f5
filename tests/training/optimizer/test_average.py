"""Averaged weights against NumPy's averages of the weights after every step."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from causal_runs import initial_mems, make_host_loop

from txl_tf.devices import distribute
from txl_tf.errors import InputError
from txl_tf.models.transformer_xl.config import EvalConfig, TransformerXLConfig, TransformerXLRunConfig
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.runs.model_dir import load_trained
from txl_tf.settings.run import DataConfig, TrainConfig
from txl_tf.training.loop import train
from txl_tf.training.optimizer.adam import Adam
from txl_tf.training.optimizer.average import WeightAverage
from txl_tf.training.step import Sums

MODEL = TransformerXLConfig(
    vocab_size=256, n_layer=1, d_model=8, d_embed=8, n_head=2, d_head=4, d_inner=12, dropout=0.1, mem_len=4
)
TRAIN = TrainConfig(
    train_steps=6, learning_rate=1e-2, steps_per_loop=6, log_steps=6, save_steps=6, eval_steps=0, jit_compile=False
)
B, T, STEPS = 4, 3, 6


@pytest.mark.parametrize(
    ("strategy", "settings", "shares"),
    [
        ("one_device", {"ema_decay": 0.7}, [0.7**5, 0.7**4, 0.7**3, 0.7**2, 0.7, 1]),
        ("two_replicas", {"average_from_step": 4}, [0, 0, 0, 1, 1, 1]),
    ],
)
def test_averages_equal_numpy(rng, strategy, request, settings, shares):
    strategy = request.getfixturevalue(strategy)
    config = dataclasses.replace(TRAIN, **settings)
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = TransformerXL(dataclasses.replace(MODEL, dtype="float64"))
        optimizer = Adam(config, model.trainable_variables)
        average = WeightAverage(config, optimizer.sharding)
    tokens = rng.integers(0, 256, [2, STEPS * strategy.num_replicas_in_sync, B // strategy.num_replicas_in_sync, T])
    dataset = tf.data.Dataset.from_tensor_slices(tuple(tokens.astype(np.int32)))
    iterator = iter(distribute.distribute_batches(strategy, lambda **hosts: dataset))
    loop = make_host_loop(strategy, model, optimizer, config, average)
    mems, sums, seen = initial_mems(strategy, model, B), Sums().stacked(), []
    for _ in range(STEPS):
        mems, sums = loop(iterator, mems, sums, tf.constant(1))
        seen.append(model.get_weights())
    for mirrored in average.averages:
        copies = strategy.experimental_local_results(mirrored)
        assert len(copies) == strategy.num_replicas_in_sync
        assert all((copy.numpy() == copies[0].numpy()).all() for copy in copies)
    last = model.get_weights()
    shares = np.array(shares) / np.sum(shares)
    with average.in_use():
        averaged = model.get_weights()
    for i, mine in enumerate(averaged):
        want = sum(share * weights[i] for share, weights in zip(shares, seen, strict=True))
        np.testing.assert_allclose(mine, want, rtol=0, atol=1e-7)  # rates are float32
    assert max(np.abs(mine - theirs).max() for mine, theirs in zip(averaged, last, strict=True)) > 1e-3
    for mine, theirs in zip(model.get_weights(), last, strict=True):
        np.testing.assert_array_equal(mine, theirs)


CONFIG = TransformerXLRunConfig(
    MODEL, DataConfig(batch_size=4, tgt_len=8), TRAIN, EvalConfig(batch_size=4, tgt_len=8, mem_len=8)
)


@pytest.mark.slow
def test_resumed_and_loaded_averages_are_those_of_the_run(corpus, tmp_path, two_replicas):
    """Bit for bit, cut in the middle of the average; and what evaluation during training sees is the average."""
    strategy = two_replicas
    run = dataclasses.replace(TRAIN, average_from_step=2, eval_steps=3, save_steps=3)
    config = dataclasses.replace(CONFIG, train=run)
    evaluated = []

    def remember(model):
        def evaluate(progress):
            evaluated.append(model.get_weights())
            if len(evaluated) == 1:
                raise KeyboardInterrupt  # after the save of step 3
            return {"loss": 1.0}

        return evaluate

    whole = train(config, corpus, str(tmp_path / "whole"), strategy)
    with pytest.raises(KeyboardInterrupt):
        train(config, corpus, str(tmp_path / "cut"), strategy, remember)
    train(config, corpus, str(tmp_path / "cut"), strategy, remember)

    models = {name: load_trained(str(tmp_path / name)) for name in ("whole", "cut")}
    assert models["whole"].weights == "average"
    average, resumed = (models[name].model.get_weights() for name in ("whole", "cut"))
    last = load_trained(str(tmp_path / "cut"), "last").model.get_weights()
    for i, mine in enumerate(average):
        np.testing.assert_array_equal(resumed[i], mine)
        np.testing.assert_array_equal(evaluated[-1][i], mine)
        np.testing.assert_array_equal(last[i], whole.get_weights()[i])
    assert max(np.abs(mine - theirs).max() for mine, theirs in zip(average, last, strict=True)) > 1e-3


def test_a_run_without_average_has_none(corpus, tmp_path, one_device):
    run = dataclasses.replace(TRAIN, train_steps=1)
    train(dataclasses.replace(CONFIG, train=run), corpus, str(tmp_path), one_device)
    assert load_trained(str(tmp_path)).weights == "last"
    with pytest.raises(InputError, match="no averaged weights"):
        load_trained(str(tmp_path), "average")
    assert json.loads((tmp_path / "config.json").read_text())["train"]["ema_decay"] == 0.0


@pytest.mark.parametrize(
    "settings", [{"ema_decay": 1.0}, {"average_from_step": 7}, {"ema_decay": 0.9, "average_from_step": 2}]
)
def test_impossible_averages_are_refused(settings):
    with pytest.raises(InputError, match=r"average_from_step|ema_decay"):
        dataclasses.replace(TRAIN, **settings)
