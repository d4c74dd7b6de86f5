"""TensorBoard's pictures and texts of an evaluation: confusion matrix, reliability diagram, the worst predictions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from txl_tf.metrics.error_files import error_files, in_a_card
from txl_tf.metrics.task_results import ByLabel, Confusion, Panel, Reliability, Worst, heading
from txl_tf.training.board.event_files import Board
from txl_tf.training.board.gallery import as_it_is
from txl_tf.training.board.pictures import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 10
"""Bins of the reliability diagram."""

MAX_CLASSES = 40
"""Classes in the confusion matrix, at most: the most frequent ones."""

MAX_TEXT = 1_000  # characters of an example that are shown


def show_panels(board: Board, step: int, panels: Iterable[Panel]) -> None:
    """Writes the panels of an evaluation after `step` updates."""
    for panel in panels:
        if isinstance(panel, Confusion):
            title = f"Confusion matrix on dev, step {step:,}"
            board.picture(step, "dev/confusion", confusion_picture(panel.labels, panel.counts, title))
        elif isinstance(panel, Reliability):
            title = f"Reliability on dev, step {step:,}"
            board.picture(step, "dev/reliability", reliability_picture(panel.confidence, panel.right, title))
        elif isinstance(panel, ByLabel):
            board.text(step, "dev/labels", "\n".join(in_a_card(error_files([panel]))))
        else:
            board.text(step, "dev/worst", worst_text(panel))


def worst_text(worst: Worst) -> str:
    """The worst predictions in Markdown."""
    if not worst.rows:
        return "No example of dev is predicted wrongly."
    return "\n\n".join(
        f"**{i}. {heading(columns)}**\n\n{as_it_is(text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + ' ..')}"
        for i, (_, columns, text) in enumerate(worst.rows, 1)
    )


def confusion_picture(labels: Sequence[str], counts: np.ndarray, title: str) -> Figure:
    """A confusion matrix, counts int [C, C]: labels from top to bottom, predictions from left to right.

    Colours are shares of a row, so that rare classes can be seen, too. Numbers are counts.
    """
    classes = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[:MAX_CLASSES])
    left_out, few = len(labels) - len(classes), len(classes) <= 12
    counts = counts[np.ix_(classes, classes)]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    about = "colour: share of the label's examples" + ("; numbers: counts" if few else "")
    about += f"; without the {left_out} rarest classes" if left_out else ""
    cell = 0.7 if few else 0.25
    figure = new_figure(cell * len(classes) + 3, cell * len(classes) + 2, title, about)
    axes = figure.subplots()
    shown = axes.imshow(shares, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    names = [_short(labels[i]) for i in classes]
    axes.set_xticks(range(len(names)), names, fontsize=8, rotation=0 if few and len(names) <= 6 else 90)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set(xlabel="prediction", ylabel="label")
    if few:
        for (i, j), share in np.ndenumerate(shares):
            colour = "black" if share > 0.6 else "white"
            axes.text(j, i, f"{counts[i, j]:,}", ha="center", va="center", color=colour)
    figure.colorbar(shown, ax=axes)
    return figure


def reliability_picture(confidence: np.ndarray, right: np.ndarray, title: str) -> Figure:
    """A reliability diagram: accuracy against confidence, in bins; under it how many examples each bin has.

    `confidence` [n] are the predictions' probabilities; those that are NaN are left out. `right` is bool [n].
    """
    counts, accuracy, mean, error = reliability_bins(confidence, right)
    about = f"expected calibration error {error:.4f}; {counts.sum():,} examples"
    figure = new_figure(4.5, 5.5, title, about)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    starts = np.arange(BINS) / BINS
    filled = counts > 0
    upper.bar(starts, accuracy, 1 / BINS, align="edge", edgecolor="white", label="accuracy")
    upper.hlines(mean[filled], starts[filled], starts[filled] + 1 / BINS, colors="tab:red", label="mean confidence")
    upper.plot([0, 1], [0, 1], color="black", linewidth=0.8)
    upper.set(xlim=(0, 1), ylim=(0, 1))
    upper.legend(frameon=False, fontsize=8, loc="upper left")
    lower.bar(starts, counts, 1 / BINS, align="edge", edgecolor="white", color="silver")
    lower.set(xlabel="probability of the prediction", ylabel="examples")
    return figure


def reliability_bins(confidence: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Examples in BINS bins of equal width by the probability of their predictions (Guo et al. 2017, arXiv 1706.04599).

    Returns:
        For each bin: its number of examples, their accuracy and mean confidence (0 if there are none). And the expected
        calibration error: the mean over all examples of the difference between accuracy and confidence in their bin.
    """
    known = ~np.isnan(confidence)
    confidence, right = confidence[known], right[known]
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    counts = np.bincount(place, minlength=BINS)
    accuracy, mean = (
        np.bincount(place, weights=values, minlength=BINS) / np.maximum(counts, 1) for values in (right, confidence)
    )
    return counts, accuracy, mean, float(np.sum(counts * np.abs(accuracy - mean)) / max(len(confidence), 1))


def _short(name: str) -> str:
    return name if len(name) <= 18 else name[:16] + ".."
