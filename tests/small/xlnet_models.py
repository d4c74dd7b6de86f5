"""Our XLNet with the weights, the arguments and the results of tests/references/reference_xlnet.py."""

import contextlib

import keras
import numpy as np
import pytest
import reference_xlnet as reference
import tensorflow as tf

from txl_tf.layers.decoder_layer import DecoderLayer
from txl_tf.models.memory import Mems
from txl_tf.models.xlnet.config import XLNetConfig
from txl_tf.models.xlnet.model import Text, XLNet


def set_weights(model, weights):
    """Gives a model the reference's weights, by name; a mask embedding or softmax bias that it lacks stays."""
    top = {"embedding/table_0": "embedding", "softmax/bias_0": "softmax_bias"}
    for variable in model.variables:
        name = variable.path.removeprefix("xlnet/")
        if name.startswith("layer_"):
            layer, name = name.split("/", 1)
            variable.assign(weights["layers"][int(layer[6:])][name.removeprefix("attention/")])
        elif top.get(name, name) in weights:
            variable.assign(weights[top.get(name, name)])
        else:
            assert name in ("mask_embedding", "softmax/bias_0"), name


def weights_of(model):
    """A model's weights as the reference takes them."""
    top = {"embedding/table_0": "embedding", "softmax/bias_0": "softmax_bias"}
    weights = {"layers": [{} for _ in range(model.config.n_layer)]}
    for variable in model.variables:
        name, value = variable.path.removeprefix("xlnet/"), variable.numpy().astype(np.float64)
        if name.startswith("layer_"):
            layer, name = name.split("/", 1)
            weights["layers"][int(layer[6:])][name.removeprefix("attention/")] = value
        else:
            weights[top.get(name, name)] = value
    return weights


def make_model(weights, **settings):
    """An XLNet with these weights: float64 and no dropout, if not told otherwise."""
    keras.utils.set_random_seed(3)
    layers, first = weights["layers"], weights["layers"][0]
    d_model, n_head, d_head = first["query_kernel"].shape
    sizes = {"n_layer": len(layers), "d_model": d_model, "n_head": n_head, "d_head": d_head}
    sizes |= {"vocab_size": len(weights["embedding"]), "d_inner": first["feed_forward/inner/kernel"].shape[1]}
    sizes |= {"untie_r": "content_bias" in first, "mem_len": 0, "reuse_len": 0, "dropout": 0.0, "dropatt": 0.0}
    model = XLNet(XLNetConfig(**sizes | {"dtype": "float64"} | settings))
    set_weights(model, weights)
    return model


@contextlib.contextmanager
def recorded_states():
    """A list that gets the embedded segment and then the output of each layer, of a model that runs eagerly."""
    states, call = [], DecoderLayer.call

    def recorded(layer, hidden, *inputs, **options):
        states.extend([] if states else [hidden.numpy()])
        states.append((result := call(layer, hidden, *inputs, **options)).numpy())
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecoderLayer, "call", recorded)
        yield states


def read(
    model,
    tokens,
    memory=None,
    segments=None,
    visible=None,
    real=None,
    targets=None,
    is_target=None,
    directions=None,
):
    """A batch through a model: a list of the reference's Streams, one for each lane.

    Args:
        model: an XLNet; if its memory is longer than the one given, its mem_init is "empty".
        tokens, segments, visible, real, targets, is_target: as for `reference.xlnet`, with a first axis of lanes.
        memory: N arrays [B, M, D], or None.
        directions: 1 or -1 for each lane; None: 1.

    Of `is_target` the results are those at the targets alone, in their order; others have nothing to do with them.
    """
    tokens, m_len = np.asarray(tokens), model.config.mem_len
    mems, known = None, 0
    if m_len:
        memory = [np.zeros([len(tokens), 0, model.config.d_model])] * model.config.n_layer if memory is None else memory
        known = memory[0].shape[1]
        padded = [np.pad(layer, [[0, 0], [m_len - known, 0], [0, 0]]) for layer in memory]
        padded = tuple(tf.constant(layer, model.compute_dtype) for layer in padded)
        mems = Mems(padded, tf.fill([len(tokens)], known))
    if is_target is not None:
        places = [np.flatnonzero(row) for row in is_target]
        targets = [np.pad(row, [0, tokens.shape[1] - len(row)], constant_values=-1) for row in places]

    def tensor(value, dtype):
        return None if value is None else tf.constant(np.asarray(value), dtype)

    with recorded_states() as found:
        _, _, mems = model(
            tensor(tokens, tf.int32),
            mems,
            text=Text(
                tensor(segments, tf.int32),
                tensor(visible, tf.bool),
                None if real is None else ~tensor(real, tf.bool),
                None if directions is None else tf.constant([direction < 0 for direction in directions]),
            ),
            targets=tensor(targets, tf.int32),
        )
    t_len, known = tokens.shape[1], min(m_len, known + (model.config.reuse_len or tokens.shape[1]))
    rows = []
    for b in range(len(tokens)):
        states = [state[b] for state in found]
        query = [] if targets is None else [state[t_len:] for state in states]
        if is_target is not None:
            query = [state[: len(places[b])] for state in query]
        new = [layer.numpy()[b, m_len - known :] for layer in mems.hidden]
        rows.append(reference.Streams([state[:t_len] for state in states], query, new))
    return rows
