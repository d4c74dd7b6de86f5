"""Plots of studies: curves with the spread over seeds, as SVG. Not a script."""

import itertools
import pathlib
import statistics
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

sys.path.append(str(pathlib.Path(__file__).parents[2] / "docs" / "figures"))  # drawing: what all pictures share

MODEL = "strong"
ENCODINGS = {"Transformer-XL": MODEL, "Shaw": "green", "Vaswani": "brown", "Al-Rfou": "violet"}
"""The colour's role for each encoding, in every picture. Without recurrence the line is dashed."""
ROLES = ("strong", "warm", "green", "brown", "violet", "other", "ink")
"""Roles of lines without a fixed role; the first is for the unchanged model."""
MEMORY, NO_MEMORY, LONG = "-", "--", ":"


def panels(
    titles: Sequence[str], x_label: str, y_label: str, note: str = "", height: float = 3.4
) -> "tuple[Figure, list[Axes]]":
    """A figure with a panel for each title, each of `height` inches, one below the other; `note` stands below."""
    import drawing  # here, since matplotlib is slow to load

    figure, axes = drawing.new_figure(height * len(titles) + 0.2, len(titles), squeeze=False)
    axes = list(axes[:, 0])
    for ax, title in zip(axes, titles, strict=True):
        drawing.draw_curves(ax, title, x_label, y_label)
    if note:
        figure.supxlabel(note, fontsize=9)
    return figure, axes


def band(
    ax: "Axes", x: Sequence[float], runs: Sequence[Sequence[float]], label: str, role: str = MODEL, style: str = MEMORY
) -> "Line2D":
    """Draws the mean of runs and a band from the smallest to the largest; x and runs are cut to the shortest run."""
    import drawing

    columns = list(zip(*runs))  # noqa: B905 (runs that go on have fewer points)
    shown = list(itertools.islice(x, len(columns)))
    means = [statistics.mean(column) for column in columns]
    (line,) = ax.plot(shown, means, style, color=drawing.ROLES[role][0], label=label, marker="o")
    if len(runs) > 1:
        lows, highs = [min(column) for column in columns], [max(column) for column in columns]
        ax.fill_between(shown, lows, highs, color=line.get_color(), alpha=0.2, linewidth=0)
    return line


def legend(ax: "Axes", columns: int = 2) -> None:
    """Writes the lines' names below the panel, where they hide nothing, each with a piece that shows its dash."""
    place = {"loc": "upper center", "bbox_to_anchor": (0.45, -0.17), "ncols": columns, "fontsize": 8.5}
    ax.legend(**place, handlelength=2.8, markerscale=0, columnspacing=0.8, handletextpad=0.5)


def save(figure: "Figure", path: str) -> None:
    """Writes an SVG file, the same for the same figure."""
    import drawing

    pathlib.Path(path).write_text(drawing.svg_of(figure))
