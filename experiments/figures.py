"""Plots of studies: curves with the spread over seeds, as SVG. Not a script."""

import itertools
import pathlib
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

COLOURS = ("#3366aa", "#cc3333", "#228822", "#aa6600", "#883399", "#009999", "#777777", "#cc6699", "#556b2f")


def panels(titles: Sequence[str], x_label: str, y_label: str, note: str = "") -> "tuple[Figure, list[Axes]]":
    """A figure with a panel for each title, side by side; `note` stands below."""
    from matplotlib import cycler
    from matplotlib.figure import Figure  # here, since it takes a second to load

    figure = Figure(figsize=(4.4 * len(titles), 3.6), layout="constrained")
    axes = list(figure.subplots(1, len(titles), squeeze=False)[0])
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title, fontsize=11)
        ax.set_xlabel(x_label)
        ax.grid(color="#eeeeee")
        ax.set_prop_cycle(cycler(color=COLOURS))
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(y_label)
    if note:
        figure.supxlabel(note, fontsize=8, color="#555555")
    return figure, axes


def band(ax: "Axes", x: Sequence[float], runs: Sequence[Sequence[float]], label: str, style: str = "-") -> "Line2D":
    """Draws the mean of runs and a band from the smallest to the largest; x and runs are cut to the shortest run."""
    columns = list(zip(*runs))  # noqa: B905 (runs that go on have fewer points)
    shown = list(itertools.islice(x, len(columns)))
    (line,) = ax.plot(shown, [statistics.mean(column) for column in columns], style, label=label, marker=".")
    if len(runs) > 1:
        lows, highs = [min(column) for column in columns], [max(column) for column in columns]
        ax.fill_between(shown, lows, highs, color=line.get_color(), alpha=0.2, linewidth=0)
    return line


def save(figure: "Figure", path: str) -> None:
    """Writes an SVG file, the same for the same figure."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "txl_tf", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None})
    text = pathlib.Path(path).read_text()
    pathlib.Path(path).write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")
