import dataclasses

import numpy as np
import pytest
import reference
import tensorflow as tf

from txl_tf import ops
from txl_tf.layers.masks import visible_keys
from txl_tf.models.memory import Mems
from txl_tf.models.transformer_xl.config import TransformerXLRunConfig
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.objectives.causal_lm import attention_view
from txl_tf.settings.run import DataConfig
from txl_tf.training.board.attention_maps import AttentionMaps, by_distance, octaves
from txl_tf.training.board.pictures import (
    SMALLEST,
    attention_picture,
    bins_picture,
    distance_picture,
    largest_of_each,
    pixels,
)

B, T = 2, 4


def attended(config, rng, length=None):
    """A model, its layers' inputs [B, T, D], memories [B, M, D] and attention probabilities [B, N, H, T, K]."""
    model = TransformerXL(config)
    shape = [config.n_layer, B, config.mem_len, config.d_model]
    mems = Mems(tuple(tf.constant(memory) for memory in rng.normal(size=shape)), tf.fill([B], length or config.mem_len))
    tokens = tf.constant(rng.integers(0, config.vocab_size, [B, T]), tf.int32)
    _, new_mems = model(tokens, mems)
    inputs = [hidden[:, -T:].numpy() for hidden in new_mems.hidden]
    return model, inputs, mems, model.attention_probabilities(tokens, mems).numpy()


@pytest.mark.parametrize(
    "changes",
    [{}, {"clamp_len": 3, "untie_r": True}, {"same_length": True}, {"mem_init": "empty"}, {"pre_lnorm": True}],
    ids=str,
)
def test_probabilities_are_the_references_softmax(changes, rng):
    config = dataclasses.replace(reference.SMALL, **changes)
    length = 3 if config.mem_init == "empty" else None
    model, inputs, mems, probabilities = attended(config, rng, length)
    mask = reference.visible(T, config.mem_len, config.reach.window, length)
    for n, layer in enumerate(reference.model_weights(model)["layers"]):
        for b in range(B):
            states = [inputs[n][b], mems.hidden[n][b].numpy()]
            if config.pre_lnorm:
                states = [reference.layer_norm(x, layer["gamma1"], layer["beta1"], 1e-5) for x in states]
            expected = reference.attention_probabilities(*states, layer, mask, config.clamp_len)
            np.testing.assert_allclose(probabilities[b, n], expected, rtol=1e-5, atol=1e-7)  # angles are float32


@pytest.mark.parametrize("attn_type", ["transformer_xl", "shaw", "vaswani", "alrfou"])
@pytest.mark.parametrize("pre_lnorm", [False, True])
def test_probabilities_are_those_the_layers_use(attn_type, pre_lnorm, rng, monkeypatch):
    """For every kind of attention: a layer to which they are given makes of its input what it makes by itself."""
    config = dataclasses.replace(reference.SMALL, attn_type=attn_type, pre_lnorm=pre_lnorm)
    model, inputs, mems, probabilities = attended(config, rng)
    positions = model.attention.layer_positions(
        config.n_layer, tf.constant(inputs[0]), config.mem_len, config.clamp_len
    )
    for n, layer in enumerate(model.decoder_layers):
        states = {"positions": positions[n], "attention_mask": visible_keys(T, config.mem_len)}
        states |= {"mems": mems.hidden[n], "biases": model.shared_biases}
        output = layer(inputs[n], **states)
        with monkeypatch.context() as patched:
            patched.setattr(ops, "attend", lambda scores, value, *_, n=n: tf.matmul(probabilities[:, n], value))
            np.testing.assert_allclose(layer(inputs[n], **states), output, rtol=1e-11)


@pytest.mark.parametrize("mem_len", [0, 6, 10])
def test_maps_of_valid(mem_len, corpus, one_device):
    config = dataclasses.replace(reference.SMALL, vocab_size=corpus.vocab_size, mem_len=mem_len, dtype="mixed_bfloat16")
    model = TransformerXL(config)
    maps = AttentionMaps(one_device, attention_view(model, corpus, TransformerXLRunConfig(data=DataConfig(tgt_len=8))))
    probabilities = maps.probabilities()[""]
    t_len = min(8, mem_len or 8)
    assert probabilities.shape == (2, 2, t_len, mem_len + t_len)
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-5)
    assert not np.triu(probabilities[0, 0], mem_len + 1).any()
    pictures = dict(maps.pictures(step=7))
    assert list(pictures) == ["attention/by_distance", "attention/layer_00", "attention/layer_01"]
    drawn = pixels(pictures["attention/layer_01"])
    assert drawn.dtype == np.uint8 and drawn.shape[-1] == 3 and len(np.unique(drawn)) > 50


def test_attention_by_distance():
    """Two queries, four keys: the first query's distances are 2, 1, 0, -1, the second's 3, 2, 1, 0."""
    probabilities = np.array([[0.5, 0.2, 0.3, 0.0], [0.1, 0.2, 0.3, 0.4]])
    distances = np.array([[2, 1, 0, -1], [3, 2, 1, 0]])
    bounds = octaves(4)
    assert bounds == [0, 1, 2, 4]
    expected = [(0.3 + 0.4) / 2, (0.2 + 0.3) / 2, (0.5 + 0.1 + 0.2) / 2]
    np.testing.assert_allclose(by_distance(probabilities, distances, bounds), expected)
    np.testing.assert_allclose(by_distance(probabilities, -distances, octaves(2, 3))[::-1], [0, *expected])
    assert octaves(9) == [0, 1, 2, 4, 8, 9]
    assert octaves(9, 5) == [-5, -3, -1, 0, 1, 2, 4, 8, 9]


def test_columns_stand_for_the_largest_of_their_values():
    wide = np.array([[0.1, 0.9, 0.2, 0.3]])
    np.testing.assert_array_equal(largest_of_each(wide, 2), [[0.9, 0.3]])
    np.testing.assert_array_equal(largest_of_each(wide, 8), wide)
    np.testing.assert_array_equal(largest_of_each(wide, 3), [[0.1, 0.9, 0.3]])


def test_pictures_show_their_values(rng):
    shares = np.array([[0.0, 1.0, 0.0], [0.5, 0.25, 0.25]])
    axes = distance_picture(shares, [-1, 0, 1, 3], "title").axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), 100 * shares)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["-1", "0", "1-2"]
    assert [text.get_text() for text in axes.texts] == ["0.0", "100.0", "0.0", "50.0", "25.0", "25.0"]
    probabilities = rng.dirichlet(np.ones(8), [5, 3])
    probabilities[0, 0, 0] = 0.0
    figure = attention_picture(probabilities, np.array([1, 2, 3]), 4, "title")
    heads = [axes for axes in figure.axes if axes.get_title().startswith("head")]
    assert len(heads) == 5 and [label.get_text() for label in heads[0].get_yticklabels()] == ["1", "3"]
    for axes, expected in zip(heads, probabilities, strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), np.maximum(expected, SMALLEST))
        assert axes.images[0].get_extent() == [-4, 4, 3, 0]


def test_a_curve_over_bins_has_its_values_and_gaps():
    (axes,) = bins_picture(["0-1", "2", "3", "4"], [2.0, 1.0, None, 3.0], "rank", "title").axes
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [2.0, 1.0, np.nan, 3.0])
    assert [text.get_text() for text in axes.texts] == ["2.000", "1.000", "3.000"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0-1", "2", "3", "4"]
    assert pixels(bins_picture(["0"], [None], "rank", "title")).ndim == 3
