"""Heat maps and curves for TensorBoard, as figures of matplotlib."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 100
SMALLEST = 1e-4
"""Probabilities of attention below this have the darkest colour."""

_WIDEST = 400  # columns of a head's heat map


def new_figure(width: float, height: float, title: str, about: str) -> Figure:
    """An empty figure, sizes in inches, at least as wide as its title and the line `about` under it."""
    from matplotlib.figure import Figure  # here, since it is slow to load

    figure = Figure(figsize=(max(width, 5.5), height), dpi=DPI, layout="constrained")
    figure.suptitle(f"{title}\n{about}", fontsize=10)
    return figure


def pixels(figure: Figure) -> np.ndarray:
    """A figure as pixels: uint8 [height, width, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


def largest_of_each(values: np.ndarray, width: int) -> np.ndarray:
    """[rows, columns] with at most `width` columns, each the largest of the neighbours that it stands for."""
    columns = min(values.shape[1], width)
    return np.maximum.reduceat(values, np.arange(columns) * values.shape[1] // columns, axis=1)


def attention_picture(probabilities: np.ndarray, positions: np.ndarray, m_len: int, title: str) -> Figure:
    """Attention of one layer, [H, Q, K]: a panel for each head, queries from top to bottom, keys from oldest to newest.

    `positions` [Q] are the queries' in the segment, ascending; the newest K - M keys belong to the segment.
    """
    heads, queries, keys = probabilities.shape
    columns = min(heads, 4)
    rows = math.ceil(heads / columns)
    about = "probability of each key; left of the line is memory, right of it the segment"
    figure = new_figure(3 * columns + 1.5, 2.2 * rows + 0.8, title, about)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for head, axes in enumerate(panels[:heads]):
        shown = axes.imshow(
            largest_of_each(np.maximum(probabilities[head], SMALLEST), _WIDEST),
            norm="log",
            vmin=SMALLEST,
            vmax=1,
            aspect="auto",
            interpolation="nearest",
            extent=(-m_len, keys - m_len, queries, 0),
        )
        if m_len:
            axes.axvline(0, color="white", linewidth=0.8)
        axes.set_title(f"head {head}", fontsize=9)
        axes.set_yticks([0.5, queries - 0.5], [f"{positions[0]}", f"{positions[-1]}"])
    panels[0].locator_params(axis="x", nbins=4, prune="both")
    for axes in panels[heads:]:
        axes.set_axis_off()
    figure.supxlabel("key, in tokens from the segment's start", fontsize=9)
    figure.supylabel("query", fontsize=9)
    figure.colorbar(shown, ax=panels.tolist())
    return figure


def distance_picture(shares: np.ndarray, bounds: Sequence[int], title: str) -> Figure:
    """The distribution of attention over distances: a row for each layer, a column for each bin.

    Args:
        shares: [N, bins], each row of sum 1.
        bounds: [bins + 1] distances; bin i holds distances from bounds[i] up to, not including, bounds[i + 1]. They
            are negative for keys after the query.
    """
    layers, bins = shares.shape
    about = "share of a layer's attention, mean of heads and queries, in %"
    figure = new_figure(0.62 * bins + 2, 0.25 * layers + 1.6, title, about)
    axes = figure.subplots()
    percent = 100 * shares
    high = max(percent.max(), 1e-9)
    shown = axes.imshow(percent, vmin=0, vmax=high, aspect="auto", interpolation="nearest")
    for (layer, i), value in np.ndenumerate(percent):
        colour = "black" if value > 0.6 * high else "white"
        axes.text(i, layer, f"{value:.1f}", ha="center", va="center", fontsize=8, color=colour)
    labels = [
        f"{first}" if end - first == 1 else f"{first}{'..' if first < 0 else '-'}{end - 1}"
        for first, end in itertools.pairwise(bounds)
    ]
    axes.set_xticks(range(bins), labels, fontsize=8)
    axes.set_yticks(range(layers), [f"layer {layer}" for layer in range(layers)], fontsize=8)
    axes.set_xlabel("distance of the key, in tokens", fontsize=9)
    figure.colorbar(shown, ax=axes, format="%.0f %%")
    return figure


def bins_picture(labels: Sequence[str], values: Sequence[float | None], axis_name: str, title: str) -> Figure:
    """A curve over bins, with each value written at its point; None leaves a gap. `axis_name` names the bins."""
    figure = new_figure(
        0.7 * len(labels) + 1, 3, title, "mean of the targets in each bin, in nats; the axis does not begin at 0"
    )
    axes = figure.subplots()
    heights = [value if value is not None and math.isfinite(value) else math.nan for value in values]
    axes.plot(range(len(labels)), heights, marker="o")
    for i, height in enumerate(heights):
        if math.isfinite(height):
            axes.annotate(f"{height:.3f}", (i, height), (0, 6), textcoords="offset points", ha="center", fontsize=8)
    axes.margins(y=0.2)
    axes.set_xticks(range(len(labels)), labels, fontsize=8)
    axes.set_xlabel(axis_name, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
