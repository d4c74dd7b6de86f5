"""XLNet in plain NumPy and float64, written from the paper's equations and the official code, not from our layers.

One lane at a time, one pair of query and key at a time: nothing is shifted, batched over heads or fused. T tokens,
M memory slots, K = M+T keys, P predictions, D d_model, H heads, d head size, N layers, V vocabulary. In masks, true
means visible.

Weights are a dict: "embedding" [V, D], "mask_embedding" [D], "softmax_bias" [V], "layers" a list of dicts with
    query_kernel, key_kernel, value_kernel, position_kernel [D, H, d], output_kernel [H, d, D]
    content_bias, position_bias, segment_bias [H, d], of the whole model instead where all layers share them
    segment_table [2, H, d]: the same segment, another segment
    attention_norm/gamma, attention_norm/beta, feed_forward_norm/gamma, feed_forward_norm/beta [D]
    feed_forward/inner/kernel [D, I], feed_forward/inner/bias, feed_forward/outer/kernel [I, D], feed_forward/outer/bias
"""

import math
import typing

import numpy as np

CONTEXT, FUNCTIONAL, TARGET = range(3)
"""Kinds of token in a factorization order: functional are SEP and CLS, which are never predicted."""


def random_weights(rng, vocab_size=11, n_layer=2, d_model=8, n_head=2, d_head=4, d_inner=12, untie_r=True, scale=0.3):
    """Weights of a small model, every one of them large enough to be missed."""

    def draw(*shape):
        return scale * rng.normal(size=shape)

    biases = ("content_bias", "position_bias", "segment_bias")
    weights = {"embedding": draw(vocab_size, d_model), "mask_embedding": draw(d_model), "layers": []}
    weights["softmax_bias"] = draw(vocab_size)
    weights |= {} if untie_r else {name: draw(n_head, d_head) for name in biases}
    for _ in range(n_layer):
        kernels = ("query_kernel", "key_kernel", "value_kernel", "position_kernel")
        layer = {name: draw(d_model, n_head, d_head) for name in kernels}
        layer |= {name: draw(n_head, d_head) for name in biases} if untie_r else {}
        layer |= {"output_kernel": draw(n_head, d_head, d_model), "segment_table": draw(2, n_head, d_head)}
        for norm in ("attention_norm", "feed_forward_norm"):
            layer |= {f"{norm}/gamma": 1 + draw(d_model), f"{norm}/beta": draw(d_model)}
        layer |= {"feed_forward/inner/kernel": draw(d_model, d_inner), "feed_forward/inner/bias": draw(d_inner)}
        layer |= {"feed_forward/outer/kernel": draw(d_inner, d_model), "feed_forward/outer/bias": draw(d_model)}
        weights["layers"].append(layer)
    return weights


def relu(x):
    return np.maximum(x, 0)


def gelu(x):
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_tanh(x):
    """The function that the official XLNet calls "gelu"; at most 4.7e-4 from the one with erf."""
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sinusoid(distance, d_model):
    frequency = 1 / 10000 ** (np.arange(0, d_model, 2) / d_model)
    return np.concatenate([np.sin(distance * frequency), np.cos(distance * frequency)])


def layer_norm(x, gamma, beta, epsilon=1e-12):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon) * gamma + beta


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def permutation_visible(rank, kind, reuse_len=0):
    """The visibility of T tokens to their query stream under a factorization order: bool [T, T].

    Found by walking through the order. The content stream sees the same and itself.

    Args:
        rank: int [T], each token's place in the order of its part; no two targets or functionals of a part share one.
        kind: int [T] of CONTEXT, FUNCTIONAL, TARGET.
        reuse_len: length of the first part, R; the second part sees all of it, and it sees nothing of the second.
    """
    t_len = len(rank)
    seen = np.zeros([t_len, t_len], bool)
    for part in (range(reuse_len), range(reuse_len, t_len)):
        context = [j for j in part if kind[j] == CONTEXT]
        ordered = sorted((j for j in part if kind[j] != CONTEXT), key=lambda j: rank[j])
        assert len({rank[j] for j in ordered}) == len(ordered), "two tokens have the same rank"
        for i in context:
            seen[i, context] = True
        revealed = list(context)
        for i in ordered:
            if kind[i] == FUNCTIONAL:
                revealed.append(i)
            seen[i, revealed] = True
            if kind[i] == TARGET:
                revealed.append(i)
        if part.start:
            seen[part.start :, : part.start] = True
    return seen


def attention(queries, positions, hidden, memory, weights, seen, segments, direction, clamp_len):
    """One stream of one lane, before the residual: [Q, D].

    Args:
        queries: [Q, D], the stream's hidden states.
        positions: Q ints, where in the segment each query stands; -1: nowhere, its result is zeros.
        hidden: [T, D], the content stream. memory: [M, D].
        weights: of a layer, with its biases.
        seen: bool [T, K], which keys a query at each position sees; where none, it sees all keys alike.
        segments: int [T], or None: no such term. The memory is of segment 0.
        direction: 1, or -1 where the text runs backward.
        clamp_len: distances beyond it, on either side, look alike; <= 0: all are told apart.
    """
    context = np.concatenate([memory, hidden])
    m_len, k_len = len(memory), len(context)
    n_head, d_head = weights["content_bias"].shape
    key_segments = None if segments is None else [0] * m_len + list(segments)
    result = np.zeros([len(queries), context.shape[1]])
    for head in range(n_head):
        keys, values = context @ weights["key_kernel"][:, head], context @ weights["value_kernel"][:, head]
        for n, i in enumerate(positions):
            if i < 0:
                continue
            query = queries[n] @ weights["query_kernel"][:, head]
            scores = np.zeros(k_len)
            for j in range(k_len):
                distance = m_len + i - j
                if clamp_len > 0:
                    distance = max(-clamp_len, min(clamp_len, distance))
                place = sinusoid(direction * distance, context.shape[1]) @ weights["position_kernel"][:, head]
                scores[j] = (query + weights["content_bias"][head]) @ keys[j]
                scores[j] += (query + weights["position_bias"][head]) @ place
                if key_segments is not None:
                    differs = int(segments[i] != key_segments[j])
                    scores[j] += (query + weights["segment_bias"][head]) @ weights["segment_table"][differs, head]
            scores /= math.sqrt(d_head)
            if seen[i].any():
                scores[~seen[i]] = -np.inf
            else:
                scores[:] = 0  # officially 1e30 is taken off all scores, and nothing else is left of them
            result[n] += np.exp(log_softmax(scores)) @ values @ weights["output_kernel"][head]
    return result


def visible_keys(t_len, m_len, visible=None, real=None):
    """The query stream's and the content stream's masks: two bool [T, K]. All of the memory is visible.

    Args:
        visible: bool [T, T], as `permutation_visible` makes it; None: all.
        real: bool [T], false at padding; None: no padding.
    """
    seen = np.ones([t_len, t_len], bool) if visible is None else np.array(visible, bool)
    if real is not None:
        seen = seen & np.array(real, bool)[None, :]
    memory = np.ones([t_len, m_len], bool)
    return np.concatenate([memory, seen], 1), np.concatenate([memory, seen | np.eye(t_len, dtype=bool)], 1)


class Streams(typing.NamedTuple):
    """What `xlnet` returns."""

    content: list
    """N+1 arrays [T, D]: the embeddings, then every layer's output of the content stream h."""
    query: list
    """N+1 arrays [P, D] of the query stream g; empty without targets."""
    memory: list
    """N arrays [M', D]: the new memory."""

    @property
    def output(self):
        """The last layer's output: g if there is one, else h."""
        return (self.query or self.content)[-1]


def xlnet(
    weights,
    tokens,
    memory=None,
    segments=None,
    visible=None,
    real=None,
    targets=None,
    is_target=None,
    direction=1,
    clamp_len=-1,
    mem_len=0,
    reuse_len=0,
    activation=gelu_tanh,
    epsilon=1e-12,
):
    """One lane through the model, without dropout: Streams.

    Args:
        weights: see the top of this file.
        tokens: int [T], the real tokens in any case.
        memory: N arrays [M, D]; None: none.
        segments: int [T], or None.
        visible, real: as for `visible_keys`.
        targets: P ints, the position of each prediction; -1: a padded one. None: no query stream.
        is_target: bool [T]: the other official form of the query stream, of P = T rows, which begins with the token
            itself where it is not a target.
        direction, clamp_len: as for `attention`.
        mem_len: slots of the new memory at most; 0: there is none.
        reuse_len: how many of the first tokens enter the new memory; 0: all.
        activation: of the feed-forward block.
        epsilon: of the layer norms.
    """
    layers = weights["layers"]
    content = [weights["embedding"][np.asarray(tokens)]]
    t_len, d_model = content[0].shape
    memory = [np.zeros([0, d_model])] * len(layers) if memory is None else memory
    query, positions = [], targets
    if targets is not None:
        query = [np.stack([weights["mask_embedding"]] * len(targets))]
    elif is_target is not None:
        query = [np.where(np.asarray(is_target, bool)[:, None], weights["mask_embedding"], content[0])]
        positions = range(t_len)
    query_seen, content_seen = visible_keys(t_len, len(memory[0]), visible, real)
    new_memory = []
    for layer, old in zip(layers, memory, strict=True):
        hidden = content[-1]
        reused = hidden[:reuse_len] if reuse_len else hidden
        new_memory.append(np.concatenate([old, reused])[-mem_len:] if mem_len else np.zeros([0, d_model]))
        shared = {name: weights[name] for name in ("content_bias", "position_bias", "segment_bias") if name in weights}

        def attend(stream, at, seen, layer=shared | layer, hidden=hidden, old=old):
            attended = attention(stream, at, hidden, old, layer, seen, segments, direction, clamp_len)
            x = layer_norm(
                stream + attended, layer["attention_norm/gamma"], layer["attention_norm/beta"], epsilon=epsilon
            )
            inner = activation(x @ layer["feed_forward/inner/kernel"] + layer["feed_forward/inner/bias"])
            outer = inner @ layer["feed_forward/outer/kernel"] + layer["feed_forward/outer/bias"]
            return layer_norm(x + outer, layer["feed_forward_norm/gamma"], layer["feed_forward_norm/beta"], epsilon)

        content.append(attend(hidden, range(t_len), content_seen))
        if query:
            query.append(attend(query[-1], positions, query_seen))
    return Streams(content, query, new_memory)


def log_probs(weights, hidden):
    """Log-probabilities [.., V] of the tokens, after the last layer's output [.., D] of either stream."""
    return log_softmax(hidden @ weights["embedding"].T + weights["softmax_bias"])


def direction(row, batch_size, bi_data):
    """The direction of a row: with bi_data, the second half of a batch is text that runs backward."""
    return -1 if bi_data and row >= batch_size // 2 else 1


def summary(weights, hidden, kind="last"):
    """One vector [D] for a sequence [T, D]: "last", "first" or "mean", then "summary/kernel" and bias, and tanh."""
    vector = {"last": hidden[-1], "first": hidden[0], "mean": hidden.mean(0)}[kind]
    return np.tanh(vector @ weights["summary/kernel"] + weights["summary/bias"])


def summary_logits(weights, hidden, kind="last"):
    """The logits [C] of a classifier, regressor (C = 1) or choice (C = 1): "logits/kernel" [D, C] and bias."""
    return summary(weights, hidden, kind) @ weights["logits/kernel"] + weights["logits/bias"]


def start_logits(weights, hidden, allowed):
    """Where an answer begins [T]: "start/kernel" [D, 1] and bias; -1e30 where bool `allowed` [T] is false."""
    return np.where(allowed, (hidden @ weights["start/kernel"] + weights["start/bias"])[:, 0], -1e30)


def end_logits(weights, hidden, allowed, start):
    """Where an answer that begins at `start` ends [T].

    Weights: "end/inner/kernel" [2D, D] and bias, "end/norm/gamma" and beta, "end/outer/kernel" [D, 1] and bias.
    """
    pairs = np.concatenate([hidden, np.broadcast_to(hidden[start], hidden.shape)], -1)
    inner = np.tanh(pairs @ weights["end/inner/kernel"] + weights["end/inner/bias"])
    inner = layer_norm(inner, weights["end/norm/gamma"], weights["end/norm/beta"])
    return np.where(allowed, (inner @ weights["end/outer/kernel"] + weights["end/outer/bias"])[:, 0], -1e30)


def impossible_logit(weights, hidden, allowed, cls_index):
    """The logit of "there is no answer".

    Weights: "impossible/inner/kernel" [2D, D] and bias, "impossible/outer/kernel" [D, 1].
    """
    begin = np.exp(log_softmax(start_logits(weights, hidden, allowed))) @ hidden
    inner = np.concatenate([begin, hidden[cls_index]]) @ weights["impossible/inner/kernel"]
    return float((np.tanh(inner + weights["impossible/inner/bias"]) @ weights["impossible/outer/kernel"])[0])
