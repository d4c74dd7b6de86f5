"""The attention of the paper's ablations, each against its NumPy reference."""

import dataclasses

import keras
import numpy as np
import pytest
import reference
import tensorflow as tf
from causal_runs import evaluate
from reference_variants import VARIANTS

from txl_tf.data.lanes import EvaluationLanes
from txl_tf.errors import InputError
from txl_tf.layers.decoder_layer import DecoderLayer
from txl_tf.models.transformer_xl.cached import CachedDecoder
from txl_tf.models.transformer_xl.config import EvalConfig
from txl_tf.models.transformer_xl.model import TransformerXL

# Fewer learned positions than the 10 keys of a segment and its memory: as in evaluation beyond the training lengths.
CONFIG = dataclasses.replace(reference.SMALL, max_klen=8)
B, T = 2, 4


def make_model(**changes):
    keras.utils.set_random_seed(3)
    model = TransformerXL(dataclasses.replace(CONFIG, **changes))
    for layer in model.decoder_layers:
        if hasattr(layer.attention, "distance_bias"):  # starts at zero
            layer.attention.distance_bias.assign(
                keras.random.normal(layer.attention.distance_bias.shape, dtype="float64")
            )
    return model


def tokens(rng):
    return tf.constant(rng.integers(0, CONFIG.vocab_size, [B, T]), tf.int32)


@pytest.mark.parametrize("attn_type", VARIANTS)
@pytest.mark.parametrize(
    ("mem_len", "changes"),
    [
        (6, {}),
        (0, {}),
        (6, {"mem_init": "empty"}),
        (6, {"clamp_len": 3}),
        (6, {"same_length": True, "pre_lnorm": True}),
        (3, {"max_klen": 32}),
    ],
)
def test_segments_equal_the_numpy_reference(rng, attn_type, mem_len, changes):
    model = make_model(attn_type=attn_type, mem_len=mem_len, **changes)
    config, weights = model.config, reference.model_weights(model)
    mems = model.initial_mems(B)
    memory = [[np.zeros([mem_len, CONFIG.d_model])] * CONFIG.n_layer for _ in range(B)]
    for segment in range(3):
        inputs = tokens(rng)
        hidden, mems = model(inputs, mems)
        log_prob = model.log_prob(hidden)
        for b in range(B):
            want, memory[b] = reference.transformer_xl(
                weights,
                inputs[b],
                memory[b],
                config.reach,
                segment * T if config.mem_init == "empty" else None,
                pre_lnorm=config.pre_lnorm,
                **VARIANTS[attn_type],
            )
            np.testing.assert_allclose(log_prob[b], want, rtol=0, atol=1e-8)


def test_all_types_differ_and_every_weight_learns(rng):
    inputs, targets, losses = tokens(rng), tokens(rng), []
    for attn_type in ("transformer_xl", *VARIANTS):
        model = make_model(attn_type=attn_type)
        _, mems = model(inputs)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model.nll(model(inputs, mems)[0], targets))
        variables = model.trainable_variables
        for variable, gradient in zip(variables, tape.gradient(loss, [v.value for v in variables]), strict=True):
            assert np.abs(tf.convert_to_tensor(gradient)).max() > 0, variable.path
        losses.append(float(loss))
    assert len({round(loss, 3) for loss in losses}) == 4


def test_dropout_of_sinusoids_is_that_of_the_embedding(rng):
    """Officially dropout(embedding + position): where the embedding is dropped, so is the position."""
    model = make_model(attn_type="vaswani", dropout=0.5, n_layer=1)
    seen = []
    layer = model.decoder_layers[0]
    place = layer.attention.place

    def remember(hidden, mems, positions):
        placed, context = place(hidden, mems, positions)
        seen.append((hidden.numpy(), placed.numpy(), context.numpy()))
        return placed, context

    layer.attention.place = remember
    model(tokens(rng), seed=tf.constant([1, 2]), training=True)
    (embedded, placed, context) = seen[0]
    np.testing.assert_array_equal(placed == 0, embedded == 0)
    assert 0.3 < (placed == 0).mean() < 0.7
    assert (context[:, : CONFIG.mem_len] != 0).mean() > 0.8  # positions of the memory are not dropped


@pytest.mark.parametrize("attn_type", ["transformer_xl", *VARIANTS])
def test_layer_in_a_strangers_functional_model(rng, tmp_path, attn_type):
    segment, memory = keras.Input([T, 8]), keras.Input([6, 8])
    layer = DecoderLayer(n_head=2, d_head=4, d_inner=12, attn_type=attn_type, max_klen=8, pre_lnorm=True)
    model = keras.Model([segment, memory], layer(segment, mems=memory))
    data = [rng.normal(size=[B, n, 8]).astype("float32") for n in (T, 6)]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(data, verbose=0), model.predict(data, verbose=0))


@pytest.mark.parametrize("attn_type", VARIANTS)
def test_evaluation_carries_mems(corpus, one_device, attn_type):
    """The loss of a whole split is that of reading it segment by segment, here farther than max_klen."""
    with one_device.scope():
        model = make_model(attn_type=attn_type, vocab_size=256, dtype="float32")
    reach = dataclasses.replace(CONFIG.reach, mem_len=9)
    result = evaluate(
        model, corpus, "valid", EvalConfig(batch_size=2, tgt_len=64, jit_compile=False), reach, one_device
    )
    total, mems = 0.0, model.initial_mems(2, reach)
    for inputs, targets in EvaluationLanes(corpus, "valid", 2, 64).batches():
        hidden, mems = model(inputs, mems, reach=reach)
        total += float(tf.reduce_sum(model.nll(hidden, targets)))
    np.testing.assert_allclose(result["loss"], total / result["tokens"], rtol=1e-5)
    assert result["tokens_dropped"] == 0


@pytest.mark.parametrize("attn_type", VARIANTS)
def test_the_cache_refuses_what_it_cannot_hold(attn_type):
    with pytest.raises(InputError, match=f"attn_type={attn_type} cannot generate"):
        CachedDecoder(make_model(attn_type=attn_type), CONFIG.reach, 4)
