"""Dropout of whole tokens: rows of zeros go through every layer norm, and the gradient stays of the usual size."""

import dataclasses

import keras
import numpy as np
import pytest
import reference
import tensorflow as tf

from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.settings.choices import DTYPES

KINDS = ("transformer_xl", "shaw", "vaswani", "alrfou")
B, T = 4, 6


def gradient_norms(**changes):
    """A new model's gradient norms for its first segment, when its memory is still zeros: without dropout, and with."""
    keras.utils.set_random_seed(3)
    config = dataclasses.replace(
        reference.SMALL, mem_len=T, dropout=0.0, dropatt=0.0, dropemb=0.5, layer_norm_epsilon=1e-12, **changes
    )
    model = TransformerXL(config)
    tokens = np.random.default_rng(1).integers(0, config.vocab_size, [2, B, T]).astype(np.int32)

    def run(tokens, targets, training):
        with tf.GradientTape() as tape:
            hidden, _ = model(tokens, seed=tf.constant([1, 2]), training=training)
            loss = tf.reduce_mean(tf.cast(model.nll(hidden, targets), tf.float64))
        gradients = [tf.convert_to_tensor(part) for part in tape.gradient(loss, model.trainable_variables)]
        return tf.sqrt(tf.add_n([tf.reduce_sum(tf.cast(part, tf.float64) ** 2) for part in gradients]))

    return [float(run(*tf.constant(tokens), training)) for training in (False, True)]


CASES = [
    *((kind, dtype, 2) for kind in KINDS for dtype in DTYPES),
    *((kind, "float32", 16) for kind in KINDS),
    *(pytest.param(kind, dtype, 16, marks=pytest.mark.slow) for kind in KINDS for dtype in DTYPES[1:]),
]


@pytest.mark.parametrize(("attn_type", "dtype", "n_layer"), CASES)
def test_the_gradient_is_of_the_size_that_it_has_without(attn_type, dtype, n_layer):
    plain, dropped = gradient_norms(dtype=dtype, attn_type=attn_type, n_layer=n_layer)
    assert plain / 10 < dropped < 10 * plain


def test_so_it_is_on_a_tpu(on_device):
    on_device("tpu")
    plain, dropped = gradient_norms(dtype="float32", n_layer=2)
    assert plain / 10 < dropped < 10 * plain
