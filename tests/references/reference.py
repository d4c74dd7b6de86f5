"""Transformer-XL in plain NumPy and float64, written from the paper's equations (section 3.3), not from our layers.

Nothing is shifted, batched over heads or fused: the score of query i and key j is the sum of the four terms at
distance M + i - j, looked up one pair at a time through an index array.
"""

import functools
import math

import numpy as np

from txl_tf.models.transformer_xl.config import TransformerXLConfig

SMALL = TransformerXLConfig(
    vocab_size=11,
    n_layer=2,
    d_model=8,
    d_embed=8,
    n_head=2,
    d_head=4,
    d_inner=12,
    dropout=0.0,
    mem_len=6,
    init_std=0.3,
    dtype="float64",
)
"""Small enough for this reference and its finite differences; initial weights large enough for differences to show."""


def sinusoid(distance, d_model):
    frequency = 1 / 10000 ** (np.arange(0, d_model, 2) / d_model)
    return np.concatenate([np.sin(distance * frequency), np.cos(distance * frequency)])


def is_visible(i, j, m_len, window=None, length=None):
    """Whether query i of the segment may see key j of memory and segment."""
    distance = m_len + i - j
    return distance >= 0 and (window is None or distance < window) and (length is None or j >= m_len - length)


def visible(t_len, m_len, window=None, length=None):
    return np.array([[is_visible(i, j, m_len, window, length) for j in range(m_len + t_len)] for i in range(t_len)])


def attention_probabilities(hidden, memory, weights, mask, clamp_len=-1):
    """One lane: hidden [T, D], memory [M, D] -> [H, T, K]; weights as for `attention`."""
    context = np.concatenate([memory, hidden])
    t_len, m_len, d_model = len(hidden), len(memory), hidden.shape[1]
    n_head, d_head = weights["u"].shape
    distance = m_len + np.arange(t_len)[:, None] - np.arange(m_len + t_len)[None]
    distance = np.maximum(distance, 0)  # the future is masked; any encoding will do
    if clamp_len > 0:
        distance = np.minimum(distance, clamp_len)
    encodings = np.array([sinusoid(d, d_model) for d in range(distance.max() + 1)])
    probabilities = []
    for h in range(n_head):
        q, k = hidden @ weights["q"][:, h], context @ weights["k"][:, h]
        r = (encodings @ weights["r"][:, h])[distance]  # [T, K, d]
        u, w = weights["u"][h], weights["w"][h]
        term_a = q @ k.T
        term_b = np.einsum("id,ijd->ij", q, r)
        term_c = np.broadcast_to(k @ u, term_a.shape)
        term_d = r @ w
        score = np.where(mask, (term_a + term_b + term_c + term_d) / np.sqrt(d_head), -np.inf)
        probability = np.exp(score - score.max(1, keepdims=True))
        probabilities.append(probability / probability.sum(1, keepdims=True))
    return np.stack(probabilities)


def attention(hidden, memory, weights, mask, clamp_len=-1):
    """One lane: hidden [T, D], memory [M, D] -> [T, D]. weights: q, k, v, r [D, H, d], o [H, d, D], u, w [H, d]."""
    context = np.concatenate([memory, hidden])
    output = np.zeros_like(hidden)
    for h, probability in enumerate(attention_probabilities(hidden, memory, weights, mask, clamp_len)):
        output += probability @ context @ weights["v"][:, h] @ weights["o"][h]
    return output


def layer_norm(x, gamma, beta, epsilon):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon) * gamma + beta


def attention_weights(layer, biases=None):
    """The weights of an attention layer of any kind as its reference wants them."""
    names = {"q": layer.query_kernel, "k": layer.key_kernel, "v": layer.value_kernel, "o": layer.output_kernel}
    kind = type(layer).__name__
    if kind == "RelMultiHeadAttention":
        u, w = (layer.content_bias, layer.position_bias) if layer.own_biases else biases
        names |= {"r": layer.position_kernel, "u": u, "w": w}
    elif kind == "ShawAttention":
        names |= {"a": layer.position_table, "b": layer.distance_bias, "u": layer.content_bias}
    elif kind == "LearnedAbsoluteAttention":
        names |= {"p": layer.position_table}
    return {name: np.asarray(value, np.float64) for name, value in names.items()}


def model_weights(model):
    """The weights of a TransformerXL with a plain tied softmax, as nested dicts of float64 arrays."""

    def arrays(**variables):
        return {name: np.array(value, np.float64) for name, value in variables.items()}

    layers = []
    for layer in model.decoder_layers:
        feed_forward, norm1, norm2 = layer.feed_forward, layer.attention_norm, layer.feed_forward_norm
        layers.append(
            attention_weights(layer.attention, model.shared_biases)
            | arrays(w1=feed_forward.inner.kernel, b1=feed_forward.inner.bias)
            | arrays(w2=feed_forward.outer.kernel, b2=feed_forward.outer.bias)
            | arrays(gamma1=norm1.gamma, beta1=norm1.beta, gamma2=norm2.gamma, beta2=norm2.beta)
        )
    return arrays(embedding=model.embedding.tables[0], bias=model.softmax.biases[0]) | {"layers": layers}


def relu(x):
    return np.maximum(x, 0)


def gelu(x):
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def transformer_xl(
    weights,
    tokens,
    memory,
    reach,
    length=None,
    epsilon=1e-5,
    pre_lnorm=False,
    activation=relu,
    attention=attention,
    place=lambda n, hidden, memory, layer, clamp_len: (hidden, memory),
):
    """One lane: tokens [T], memory a list of N arrays [M, D] -> log-probabilities [T, V] and the new memory.

    `attention` and `place`, which adds absolute positions to layer n's input, are other ones in reference_variants.py.
    """
    table = weights["embedding"]
    hidden = table[tokens] * np.sqrt(table.shape[1])
    m_len = len(memory[0])
    mask = visible(len(tokens), m_len, reach.window, length)
    new_memory = []
    for n, (layer, old) in enumerate(zip(weights["layers"], memory, strict=True)):
        new_memory.append(np.concatenate([old, hidden])[len(tokens) :] if m_len else old)
        hidden, old = place(n, hidden, old, layer, reach.clamp_len)
        norm1 = functools.partial(layer_norm, gamma=layer["gamma1"], beta=layer["beta1"], epsilon=epsilon)
        norm2 = functools.partial(layer_norm, gamma=layer["gamma2"], beta=layer["beta2"], epsilon=epsilon)

        def feed_forward(x, layer=layer):
            return activation(x @ layer["w1"] + layer["b1"]) @ layer["w2"] + layer["b2"]

        if pre_lnorm:
            hidden = hidden + attention(norm1(hidden), norm1(old), layer, mask, reach.clamp_len)
            hidden = hidden + feed_forward(norm2(hidden))
        else:
            hidden = norm1(hidden + attention(hidden, old, layer, mask, reach.clamp_len))
            hidden = norm2(hidden + feed_forward(hidden))
    logits = hidden @ table.T + weights["bias"]
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True)), new_memory
