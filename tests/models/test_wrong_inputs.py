"""Inputs that do not fit together raise one clear ValueError, not an error from some operation deep inside."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from txl_tf.layers.ablation_attention import LearnedAbsoluteAttention, ShawAttention
from txl_tf.layers.attention import RelMultiHeadAttention
from txl_tf.layers.decoder_layer import DecoderLayer
from txl_tf.layers.feed_forward import FeedForward
from txl_tf.layers.positions import sinusoids
from txl_tf.models.memory import Mems
from txl_tf.models.transformer_xl.config import Reach, TransformerXLConfig
from txl_tf.models.transformer_xl.model import TransformerXL


def floats(*shape):
    return np.zeros(shape, "float32")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RelMultiHeadAttention(0, 4), "n_head and d_head must be positive, got 0 and 4"),
        (lambda: RelMultiHeadAttention(2, 4, dropatt=1.0), r"dropatt must be in \[0, 1\), got 1.0"),
        (lambda: ShawAttention(2, 4, max_klen=0), "max_klen must be positive, got 0"),
        (lambda: LearnedAbsoluteAttention(2, 4, max_klen=0), "max_klen must be positive, got 0"),
        (lambda: FeedForward(0), "d_inner must be positive, got 0"),
        (lambda: FeedForward(8, activation="tanh"), "activation is 'tanh'; choose from"),
        (lambda: FeedForward(8, dropout=-0.1), r"dropout must be in \[0, 1\), got -0.1"),
        (lambda: DecoderLayer(n_head=2, d_head=4, d_inner=8, attn_type="none"), "attn_type is 'none'; choose from"),
        (lambda: DecoderLayer(n_head=2, d_head=4, d_inner=8, attn_type="shaw"), "max_klen must be positive, got None"),
        (lambda: sinusoids(tf.range(3), 7), "even d_model.* got 7"),
        (lambda: TransformerXLConfig(attn_type="0"), "attn_type is '0'; choose from"),
        (lambda: TransformerXLConfig(max_klen=0), "max_klen=0 must be at least 1"),
        (lambda: TransformerXLConfig(dropemb=1.0), r"dropemb=1.0 must be at least 0 and below 1"),
    ],
)
def test_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden": floats(2, 8)}, r"hidden must be \[B, T, D\] .* got \(2, 8\)"),
        ({"hidden": floats(2, 3, 6)}, r"D=8, got \(2, 3, 6\)"),
        ({"mems": floats(3, 5, 8)}, r"mems must be \[B, M, D\] to hidden's \(2, 3, 8\), got \(3, 5, 8\)"),
        ({"mems": floats(2, 5, 6)}, r"mems must be .* got \(2, 5, 6\)"),
        ({"mems": floats(2, 5, 8), "positions": floats(3, 8)}, "8 keys .* got 3"),
        ({"positions": floats(3, 6)}, r"encodings, got 3 of shape \(3, 6\)"),
        ({"attention_mask": np.ones([3, 9], bool)}, r"\[T, K\] = \[3, 3\], got \(3, 9\)"),
    ],
)
def test_attention(arguments, message):
    layer = RelMultiHeadAttention(2, 4)
    layer.build((None, None, 8))
    with pytest.raises(ValueError, match=message):
        layer(**{"hidden": floats(2, 3, 8)} | arguments)


def test_attention_without_its_biases():
    with pytest.raises(ValueError, match=r"own_biases=False pass biases=\(u, v\)"):
        RelMultiHeadAttention(2, 4, own_biases=False)(floats(2, 3, 8))


def test_symbolic_segment_of_unknown_length():
    with pytest.raises(ValueError, match="T known"):
        RelMultiHeadAttention(2, 4)(keras.Input([None, 8]))


@pytest.fixture(scope="module")
def model():
    return TransformerXL(
        TransformerXLConfig(vocab_size=11, n_layer=2, d_model=8, d_embed=8, n_head=2, d_head=4, mem_len=6)
    )


@pytest.mark.parametrize(
    ("tokens", "change", "reach", "message"),
    [
        (tf.zeros([4], tf.int32), None, None, r"tokens must be integers \[B, T\] .* got int32 \(4,\)"),
        (tf.zeros([2, 4]), None, None, "got float32"),
        (tf.zeros([3, 4], tf.int32), None, None, "mems must be 2 tensors .3, 6, 8. .* the same batch size"),
        (tf.zeros([2, 4], tf.int32), lambda mems: Mems(mems.hidden[:1], mems.length), None, "mems must be 2 tensors"),
        (tf.zeros([2, 4], tf.int32), None, Reach(9), "mem_len=9, got .*2, 6, 8"),
    ],
)
def test_model(model, tokens, change, reach, message):
    mems = model.initial_mems(2)
    with pytest.raises(ValueError, match=message):
        model(tokens, change(mems) if change else mems, reach=reach)


def test_targets(model):
    with pytest.raises(ValueError, match=r"\(2, 4\) states needs a target, got targets \(2, 5\)"):
        model.nll(tf.zeros([2, 4, 8]), tf.zeros([2, 5], tf.int32))
    with pytest.raises(ValueError, match=r"must end in d_model=8, not \(2, 4, 7\)"):
        model.nll(tf.zeros([2, 4, 7]), tf.zeros([2, 4], tf.int32))
