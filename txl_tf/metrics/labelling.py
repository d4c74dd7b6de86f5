"""The standard metrics of classification, with one label or several, and of regression, in NumPy.

Each takes arrays of n > 0 examples, which all count alike, and is NaN where its definition divides by zero.
"""

from __future__ import annotations

import math

import numpy as np


def accuracy(label: np.ndarray, predicted: np.ndarray) -> float:
    """The fraction of examples whose predicted class is the label; both int [n]."""
    return float(np.mean(label == predicted))


def confusion(label: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """How many examples of class i were predicted as class j: int [C, C]."""
    return np.bincount(label * classes + predicted, minlength=classes * classes).reshape(classes, classes)


def rates(right: np.ndarray, label: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """precision, recall and F1 = 2 right / (label + predicted), 0 for 0 / 0, as in scikit-learn.

    For each class, int [..]: the right predictions of it, the examples of it, and all predictions of it.
    """
    precision, recall, f1 = (
        np.where(whole > 0, part / np.maximum(whole, 1), 0.0)
        for part, whole in ((right, predicted), (right, label), (2 * right, label + predicted))
    )
    return precision, recall, f1


def macro_f1(label: np.ndarray, predicted: np.ndarray) -> float:
    """The mean of F1 = 2 TP / (2 TP + FP + FN) over the classes that occur among labels or predictions."""
    classes = int(max(label.max(), predicted.max())) + 1
    table = confusion(label, predicted, classes)
    both = table.sum(axis=0) + table.sum(axis=1)
    return float(np.mean(2 * np.diag(table)[both > 0] / both[both > 0]))


def matthews(label: np.ndarray, predicted: np.ndarray) -> float:
    """The correlation R_K of labels and predictions (Gorodkin 2004); for two classes it is Matthews' coefficient.

    It is 0 where all labels or all predictions are one class, as in scikit-learn; the definition divides zero by zero.
    """
    classes = int(max(label.max(), predicted.max())) + 1
    table = confusion(label, predicted, classes).astype(np.float64)
    true, found, count = table.sum(axis=1), table.sum(axis=0), table.sum()
    spread = math.sqrt(count**2 - true @ true) * math.sqrt(count**2 - found @ found)
    return float((np.trace(table) * count - true @ found) / spread) if spread else 0.0


def pearson(label: np.ndarray, predicted: np.ndarray) -> float:
    """Pearson's correlation of two float [n]; NaN where one of them is constant or n < 2."""
    # A constant's deviations are rounding errors of its mean, not exactly zero.
    if any(np.ptp(values) == 0 for values in (label, predicted)):
        return math.nan
    return float(np.corrcoef(label, predicted)[0, 1])


def spearman(label: np.ndarray, predicted: np.ndarray) -> float:
    """Spearman's correlation: Pearson's of the ranks; equal numbers have the mean of their ranks."""
    return pearson(ranks(label), ranks(predicted))


def ranks(values: np.ndarray) -> np.ndarray:
    """The rank of each number from 1 on, float64 [n]; equal numbers share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[place]


def entropy(counts: np.ndarray) -> float:
    """The least loss, in nats per example, of a prediction that is the same for all; from the classes' counts, [C]."""
    frequencies = counts[counts > 0] / counts.sum()
    return float(-np.sum(frequencies * np.log(frequencies)))


def interval(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a probability of which `share` of `count` draws were seen (Wilson 1927)."""
    z = 1.96  # standard deviations of 95 % of a normal distribution
    centre, spread = share + z**2 / (2 * count), z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    low, high = ((centre + side) / (1 + z**2 / count) for side in (-spread, spread))
    return max(low, 0.0), min(high, 1.0)  # rounding may pass the ends


def label_counts(label: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each label how often it is predicted rightly, occurs, and is predicted, int [C]; for `rates`."""
    label, predicted = label.astype(bool), predicted.astype(bool)
    return (label & predicted).sum(axis=0), label.sum(axis=0), predicted.sum(axis=0)


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
    counted = label_counts(label, predicted)
    return {
        "micro_f1": float(rates(*(part.sum() for part in counted))[2]),
        "macro_f1": float(rates(*counted)[2].mean()),
        "exact": float((predicted == label.astype(bool)).all(axis=1).mean()),
        "threshold": threshold,
    }
