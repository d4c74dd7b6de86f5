"""Relative effective context length (paper, section 4.3 and appendix C).

It measures the longest context that a model makes use of, compared with the other models of its group. For context
lengths c < c', a model's gain is how much better it predicts with c' tokens of context than the best model of the group
with c tokens. Only the positions count that are hardest for the group with c tokens. A weak model has more room to
improve; comparing all models with the best one, at the same positions, keeps this from looking like a larger gain.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from txl_tf.data.lanes import EvaluationLanes, named_read_errors
from txl_tf.data.manifest import Corpus
from txl_tf.errors import InputError
from txl_tf.models.transformer_xl.config import Reach
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.progress import progress_bar

TOKENS_AT_ONCE = 4096
"""Tokens of the windows that are computed together."""


def relative_gains(losses: npt.ArrayLike, top_r: float) -> np.ndarray:
    """The relative gain of every model from each context length to the next: [models, context lengths - 1].

    l_m(c, t) is the loss of model m at position t given c tokens of context (appendix C).
        f(c, t)   = min over m of l_m(c, t), the group's baseline
        T         = the top r share of positions t with the largest f(c, t)
        f_m(c, c')= mean over T of min(f(c, t), l_m(c', t))
        g_m(c, c')= (f(c) - f_m(c, c')) / f(c), with f(c) the mean of f(c, t) over T.

    Args:
        losses: float [models, context lengths, positions], in nats; context lengths ascending.
        top_r: share of the positions that count as hard, in (0, 1].

    Raises:
        ValueError: fewer than two context lengths, no position, or top_r out of range.
    """
    losses = np.asarray(losses, np.float64)
    if losses.ndim != 3 or losses.shape[1] < 2 or losses.shape[2] < 1:
        raise ValueError(f"losses must be [models, at least 2 context lengths, positions], not {losses.shape}")
    if not 0 < top_r <= 1:
        raise ValueError(f"top_r={top_r} must be above 0 and at most 1")
    hard = max(1, round(top_r * losses.shape[2]))
    gains = []
    for shorter, longer in zip(losses[:, :-1].swapaxes(0, 1), losses[:, 1:].swapaxes(0, 1), strict=True):
        baseline = shorter.min(axis=0)
        chosen = np.argpartition(-baseline, hard - 1)[:hard]
        base = baseline[chosen]
        gains.append((base.mean() - np.minimum(base, longer[:, chosen]).mean(axis=1)) / base.mean())
    return np.stack(gains, axis=1)


def effective_context_lengths(
    losses: npt.ArrayLike, context_lengths: Sequence[int], top_r: float = 0.1, threshold: float = 0.01
) -> list[int]:
    """RECL: for each model the longest context from which it still gains, relative to its group.

    The context grows from each length to the next for as long as the relative gain is at least `threshold` (the
    paper's: 0.01). Other arguments as for `relative_gains`.

    Raises:
        ValueError: as for `relative_gains`, or lengths that are not ascending or do not match the losses.
    """
    lengths = list(context_lengths)
    if len(lengths) != np.shape(losses)[1] or any(a >= b for a, b in itertools.pairwise(lengths)):
        raise ValueError(f"context_lengths={lengths} must rise, and there must be one for each row of losses")
    gains = relative_gains(losses, top_r)
    return [lengths[int(np.argmin(np.append(row >= threshold, False)))] for row in gains]


def context_losses(
    model: TransformerXL,
    tokens: np.ndarray,
    positions: np.ndarray,
    context_lengths: Sequence[int],
    clamp_len: int = -1,
) -> np.ndarray:
    """A model's loss at P positions of a text, int32 [n], given c tokens of context: [lengths, P], in nats.

    Every position is predicted independently: the c tokens before it are one segment without memory. (Memory kept from
    earlier positions would let a recurrent model use tokens farther away than c.) No position may be before the longest
    context length. Distances above `clamp_len` are treated as this one; <= 0: no limit.
    """

    def last_loss(contexts: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        hidden, _ = model(contexts, reach=Reach(0, clamp_len))
        return model.nll(hidden[:, -1:], targets)[:, 0]

    losses = np.zeros([len(context_lengths), len(positions)], np.float32)
    with progress_bar("scoring", losses.size, " windows") as bar:
        for row, context in zip(losses, context_lengths, strict=True):
            shapes = [tf.TensorSpec([None, length], tf.int32) for length in (context, 1)]
            score = tf.function(last_loss, autograph=False, input_signature=shapes)
            windows = np.stack([tokens[position - context : position + 1] for position in positions])
            batch_size = max(1, TOKENS_AT_ONCE // context)
            for start in range(0, len(windows), batch_size):
                batch = windows[start : start + batch_size]
                row[start : start + batch_size] = score(batch[:, :-1], batch[:, -1:])
                bar.update(len(batch))
    return losses


def draw_positions(
    corpus: Corpus, split: str, count: int, longest: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Draws positions of a split at which to compare models: (the split's tokens int32 [n], positions [count]).

    InputError if the split is too short.
    """
    batches = EvaluationLanes(corpus, split, 1, 4096).batches()
    with named_read_errors(corpus):
        rows = [batch[0] for batch, _ in batches.as_numpy_iterator()]
    inputs = np.concatenate(rows)[: corpus.split(split).tokens - 1]
    if len(inputs) <= longest:
        raise InputError(
            f"{corpus.data_dir}: {split} has {len(inputs) + 1:,} tokens: too few for contexts of {longest}"
        )
    return inputs, np.sort(np.random.default_rng(seed).integers(longest, len(inputs), count))
