"""TensorBoard's pictures and texts of an evaluation: confusion matrix, reliability diagram, the worst predictions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from txl_tf.metrics.panels import Confusion, Panel, Reliability, Worst
from txl_tf.training.board import Board
from txl_tf.training.gallery import as_it_is
from txl_tf.training.pictures import GRID, INK, Canvas, stretch

BINS = 10
"""Of the reliability diagram."""

MAX_CLASSES = 40
"""The confusion matrix shows at most so many classes: those that occur most."""

MAX_TEXT = 1_000  # characters of an example that are shown

_GREY, _BLUE, _RED = (190, 190, 190), (70, 110, 160), (200, 70, 60)


def show_panels(board: Board, step: int, panels: Iterable[Panel]) -> None:
    """Writes the panels of an evaluation after `step` updates."""
    for panel in panels:
        if isinstance(panel, Confusion):
            title = f"Confusion matrix on dev, step {step:,}"
            board.picture(step, "dev/confusion", confusion_picture(panel.labels, panel.counts, title))
        elif isinstance(panel, Reliability):
            title = f"Reliability on dev, step {step:,}"
            board.picture(step, "dev/reliability", reliability_picture(panel.confidence, panel.right, title))
        else:
            board.text(step, "dev/worst", worst_text(panel))


def worst_text(worst: Worst) -> str:
    """The worst predictions in Markdown."""
    if not worst.rows:
        return "No example of dev is predicted wrongly."
    return "\n\n".join(
        f"**{i}. {heading}**\n\n{as_it_is(text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + ' ..')}"
        for i, (heading, text) in enumerate(worst.rows, 1)
    )


def confusion_picture(labels: Sequence[str], counts: np.ndarray, title: str) -> np.ndarray:
    """A confusion matrix: labels from top to bottom, predictions from left to right.

    Colours are shares of a row, so that rare classes are seen, too. Numbers are counts.

    Args:
        labels: names of the classes.
        counts: int [C, C].
        title: of the picture.
    """
    shown = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[:MAX_CLASSES])
    left_out = len(labels) - len(shown)
    few = len(shown) <= 12
    names = [_short(labels[i]) if few else f"{_short(labels[i])}  {n}" for n, i in enumerate(shown, 1)]
    counts = counts[np.ix_(shown, shown)]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    cell_x, cell_y = (64, 34) if few else (26, 22)
    left, top = 150, 92
    canvas = Canvas(max(left + len(shown) * cell_x + 100, 480), top + len(shown) * cell_y + 46)
    canvas.text((12, 8), title, size=17)
    about = "rows: labels, columns: predictions; colour: share of the row" + ("; numbers: counts" if few else "")
    canvas.text((12, 32), about + (f"; without the {left_out} rarest classes" if left_out else ""), size=12)
    canvas.heat(left, top, stretch(shares, len(shown) * cell_y, len(shown) * cell_x))
    for i, name in enumerate(names):
        canvas.text((left - 8, top + (i + 0.5) * cell_y), name, anchor="rm")
        # Names of neighbouring columns are at different heights, so that they do not overlap.
        place = (left + (i + 0.5) * cell_x, top - 6 - 14 * (i % 2))
        canvas.text(place, name if few else str(i + 1), anchor="mb", size=11)
    if few:
        for (i, j), share in np.ndenumerate(shares):
            fill = INK if share > 0.6 else GRID
            canvas.text((left + (j + 0.5) * cell_x, top + (i + 0.5) * cell_y), f"{counts[i, j]:,}", "mm", fill=fill)
    ticks = [(share, f"{share:.0%}") for share in (0, 0.5, 1)]
    canvas.colour_bar(left + len(shown) * cell_x + 18, top, max(len(shown) * cell_y, 70), ticks)
    return canvas.pixels()


def reliability_picture(confidence: np.ndarray, right: np.ndarray, title: str) -> np.ndarray:
    """A reliability diagram: accuracy against confidence, in bins; under it how many examples each bin has.

    Args:
        confidence: [n], probabilities of the predictions.
        right: bool [n], whether they are right.
        title: of the picture.
    """
    counts, accuracy, mean, error = reliability_bins(confidence, right)
    side, left, top, low = 300, 64, 78, 70
    canvas = Canvas(left + side + 40, top + side + low + 84)
    canvas.text((12, 8), title, size=17)
    canvas.text((12, 32), f"expected calibration error {error:.4f}; {len(confidence):,} examples", size=12)
    canvas.text((12, 48), "bar: accuracy; red line: mean confidence of the bin", size=12)
    cell, bottom, base = side / BINS, top + side, top + side + 34 + low
    for i, count in enumerate(counts):
        x = (left + i * cell + 1, left + (i + 1) * cell - 1)
        canvas.draw.rectangle([x[0], base - low * count / max(counts.max(), 1), x[1], base], fill=_GREY)
        if count:
            canvas.draw.rectangle([x[0], bottom - side * accuracy[i], x[1], bottom], fill=_BLUE)
            y = bottom - side * mean[i]
            canvas.draw.line([(x[0], y), (x[1], y)], fill=_RED, width=3)
    canvas.draw.line([(left, bottom), (left + side, top)], fill=INK)
    canvas.draw.rectangle([left, top, left + side, bottom], outline=INK)
    canvas.draw.line([(left, base), (left + side, base)], fill=INK)
    for share in (0, 0.5, 1):
        canvas.text((left - 8, bottom - share * side), f"{share:g}", anchor="rm")
        canvas.text((left + share * side, bottom + 4), f"{share:g}", anchor="mt")
    canvas.text((left - 8, base - low), f"{counts.max():,}", anchor="rm", size=11)
    canvas.text((left + side / 2, base + 8), "probability of the prediction; grey: examples in the bin", "mt", size=11)
    return canvas.pixels()


def reliability_bins(confidence: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Examples in BINS bins of equal width by the probability of their predictions (Guo et al. 2017, arXiv 1706.04599).

    Args:
        confidence, right: as for `reliability_picture`.

    Returns:
        Of each bin the number of its examples, their accuracy and their mean confidence (0 if there are none); and the
        expected calibration error: the mean over all examples of the distance between the two in their bin.
    """
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    counts = np.bincount(place, minlength=BINS)
    accuracy, mean = (
        np.bincount(place, weights=values, minlength=BINS) / np.maximum(counts, 1) for values in (right, confidence)
    )
    return counts, accuracy, mean, float(np.sum(counts * np.abs(accuracy - mean)) / max(len(confidence), 1))


def _short(name: str) -> str:
    return name if len(name) <= 18 else name[:16] + ".."
