"""A small language model whose every weight is large enough to matter, for tests of inference."""

import functools

import numpy as np
import tensorflow as tf

from txl_tf.inference.causal.draw_token import sample, uniform
from txl_tf.models.transformer_xl.config import TransformerXLConfig
from txl_tf.models.transformer_xl.model import TransformerXL

CONFIG = TransformerXLConfig(
    vocab_size=256, n_layer=2, d_model=16, d_embed=16, n_head=2, d_head=8, d_inner=32, mem_len=24, clamp_len=20
)


def random_model(config, seed=0):
    """A TransformerXL with random weights."""
    model = TransformerXL(config)
    draw = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        vector = len(variable.shape) == 1  # small biases, or one token would be the most likely everywhere
        centre = 1.0 if "gamma" in variable.path else 0.0
        variable.assign(draw.normal(centre, 0.1 if vector else 0.6, variable.shape))
    return model


@tf.function(autograph=False)
def draw(log_prob, seen, seeds, positions, values):
    """A token for each text, as `sample` draws it with the random numbers of `uniform`: in a graph, not eagerly."""
    return sample(log_prob, seen, uniform(seeds, positions), values)


@functools.cache
def step(model):
    """The model with mems, (segment [B, T], mems) -> (log-probabilities [B, T, V], mems), in graphs, not eagerly."""

    @tf.function(autograph=False)
    def read(segment, mems):
        hidden, mems = model(segment, mems)
        return model.log_prob(hidden), mems

    return read


def read(model, ids, cuts, mems=None):
    """Log-probabilities [n, V] after each of n tokens and the mems, by the model with mems, fed in such segments."""
    rows, mems = [], model.initial_mems(1) if mems is None else mems
    for segment in np.split(np.asarray(ids, np.int32), np.cumsum(cuts)[:-1]):
        (log_probs,), mems = step(model)(tf.constant(segment[None]), mems)
        rows.append(log_probs.numpy())
    return np.concatenate(rows), mems
