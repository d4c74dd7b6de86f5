"""The standard metrics of multi-label classification, in NumPy.

A label is predicted where its probability is at least a threshold, which is one for all labels.
"""

from __future__ import annotations

import numpy as np

from txl_tf.metrics.labelling import rates


def counts(label: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each label how often it is predicted rightly, occurs, and is predicted, int [C]; for `rates`."""
    label, predicted = label.astype(bool), predicted.astype(bool)
    right, there, given = ((label & predicted).sum(axis=0), label.sum(axis=0), predicted.sum(axis=0))
    return right, there, given


def best_threshold(label: np.ndarray, probabilities: np.ndarray) -> float:
    """The threshold with the largest micro F1: midway between the last probability above and the first below it.

    Labels are 0 and 1, [n, C], probabilities float [n, C].
    """
    order = np.argsort(-probabilities, axis=None, kind="stable")
    found, sorted_label = probabilities.ravel()[order].astype(np.float64), label.ravel()[order]
    right = np.cumsum(sorted_label)
    scores = 2 * right / (np.arange(1, len(found) + 1) + max(int(right[-1]), 1))
    ends = np.append(found[:-1] != found[1:], True)  # equal probabilities stay together
    best = int(np.argmax(np.where(ends, scores, -1.0)))
    below = found[best + 1] if best + 1 < len(found) else 0.0
    return float((found[best] + below) / 2)


def multi_label(label: np.ndarray, probabilities: np.ndarray, threshold: float | None = None) -> dict[str, float]:
    """micro_f1, of all labels together; macro_f1, the mean over labels; exact, texts with all labels right; threshold.

    Arguments as for `best_threshold`, which chooses the threshold on these examples if it is None.
    """
    threshold = best_threshold(label, probabilities) if threshold is None else threshold
    predicted = probabilities >= threshold
    counted = counts(label, predicted)
    return {
        "micro_f1": float(rates(*(part.sum() for part in counted))[2]),
        "macro_f1": float(rates(*counted)[2].mean()),
        "exact": float((predicted == label.astype(bool)).all(axis=1).mean()),
        "threshold": threshold,
    }
