"""The other kinds of positions (attn_type) in plain NumPy and float64, one pair of query and key at a time.

The formulas are those of the papers. Where these leave something open, the official PyTorch code's rules hold: tables
have a row per distance (here row d is distance d), and distances beyond the last row, or beyond clamp_len, take the
last one left.
"""

import numpy as np
from reference import sinusoid


def softmax(score):
    probability = np.exp(score - score.max())
    return probability / probability.sum()


def _attend(hidden, memory, weights, mask, pair_score):
    """One lane, [T, D]; pair_score(h, query, distance) is what is added to query . key."""
    context = np.concatenate([memory, hidden])
    output = np.zeros_like(hidden)
    for h in range(weights["q"].shape[1]):
        q, k, v = hidden @ weights["q"][:, h], context @ weights["k"][:, h], context @ weights["v"][:, h]
        bias = weights["u"][h] if "u" in weights else 0
        for i in range(len(hidden)):
            seen = np.flatnonzero(mask[i])
            score = np.array([(q[i] + bias) @ k[j] + pair_score(h, q[i], len(memory) + i - j) for j in seen])
            output[i] += softmax(score / np.sqrt(q.shape[1])) @ v[seen] @ weights["o"][h]
    return output


def shaw(hidden, memory, weights, mask, clamp_len=-1):
    rows = len(weights["a"]) if clamp_len <= 0 else min(len(weights["a"]), clamp_len)

    def pair_score(h, query, distance):
        row = min(distance, rows - 1)
        return query @ weights["a"][row, h] + weights["b"][row, h]

    return _attend(hidden, memory, weights, mask, pair_score)


def plain(hidden, memory, weights, mask, clamp_len=-1):
    return _attend(hidden, memory, weights, mask, lambda h, query, distance: 0)


def place_vaswani(n, hidden, memory, weights, clamp_len):
    if n > 0:
        return hidden, memory
    steps_before_end = np.arange(len(memory) + len(hidden))[::-1]
    if clamp_len > 0:
        steps_before_end = np.minimum(steps_before_end, clamp_len)
    encoding = np.array([sinusoid(step, hidden.shape[1]) for step in steps_before_end])
    return hidden + encoding[len(memory) :], memory + encoding[: len(memory)]


def place_alrfou(n, hidden, memory, weights, clamp_len):
    table = weights["p"]
    encoding = np.array([table[min(step, len(table) - 1)] for step in range(len(memory) + len(hidden))[::-1]])
    return hidden + encoding[len(memory) :], memory + encoding[: len(memory)]


VARIANTS = {
    "shaw": {"attention": shaw},
    "vaswani": {"attention": plain, "place": place_vaswani},
    "alrfou": {"attention": plain, "place": place_alrfou},
}
"""What `reference.transformer_xl` takes for each attn_type."""
