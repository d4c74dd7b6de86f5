"""Shared by all pictures of the pages: their size, their colours by role, and how they are saved.

A picture is an SVG that follows the reader's light or dark mode: colours are variables of CSS with two values each. It
is at most 4.8 inches wide, so that its text is large enough on a phone. `make figures` draws those of this folder;
`evidence/studies/` and `evidence/bench/` draw theirs.

In curves and bars blue is the model as it is here, and grey is other code, the paper or chance. Where memory is
compared, a dashed line has none.
"""

import io
import pathlib
import re
import sys

import matplotlib
from matplotlib.figure import Figure

ROLES = {
    "ink": ("#212529", "#e9ecef"),
    "faint": ("#adb5bd", "#6c757d"),
    "empty": ("#f1f3f5", "#343a40"),
    "strong": ("#1864ab", "#74c0fc"),
    "medium": ("#74a9d8", "#3d7db8"),
    "light": ("#c5dcf0", "#274c70"),
    "warm": ("#c92a2a", "#ff9f8f"),
    "warm_light": ("#ffc9c9", "#6b2b2b"),
    "on_strong": ("#ffffff", "#10202e"),
    "grid": ("#dee2e6", "#3b4148"),
    "other": ("#6c757d", "#adb5be"),
    "green": ("#2b8a3e", "#8ce99a"),
    "brown": ("#a15c00", "#ffc078"),
    "violet": ("#862e9c", "#e599f7"),
    "teal": ("#0b7285", "#66d9e8"),
}
"""Each colour in light and in dark mode."""

INK, FAINT, EMPTY, STRONG, MEDIUM, LIGHT, WARM, WARM_LIGHT, ON_STRONG, GRID, OTHER, GREEN, BROWN, VIOLET, TEAL = (
    light for light, _ in ROLES.values()
)
WIDTH = 4.8
_SETTINGS = {
    "svg.fonttype": "none",  # text stays text: it can be searched, and read by a screen reader
    "svg.hashsalt": "txl_tf",  # the same names of clipping paths every time
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.markersize": 4,
    "lines.linewidth": 1.6,
}


def new_figure(height, rows=1, **options):
    """A figure of a height in inches and its axes, one below the other; options: of Figure.subplots."""
    matplotlib.rcParams.update(_SETTINGS)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, **options)


def draw_curves(axes, title, x_label, y_label):
    """Makes axes those of a picture of curves: names with units, a grid, no frame."""
    axes.set_title(title)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def draw_cells(axes, colours, texts=None, text_colours=None):
    """Draws a matrix of coloured cells [rows, columns], the first row on top, with a text in each."""
    for i, row in enumerate(colours):
        for j, colour in enumerate(row):
            axes.add_patch(matplotlib.patches.Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, color=colour, linewidth=0))
            if texts is not None:
                ink = INK if text_colours is None else text_colours[i][j]
                axes.text(j, i, texts[i][j], ha="center", va="center", color=ink, fontsize=9)
    axes.set_xlim(-0.5, len(colours[0]) - 0.5)
    axes.set_ylim(len(colours) - 0.5, -0.5)
    axes.set_aspect("equal")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def svg_of(figure):
    """The figure as the text of an SVG file, its colours as variables."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    for name, (light, _) in ROLES.items():
        text = re.sub(light, f"var(--{name})", text, flags=re.IGNORECASE)
    modes = [
        ":root{" + "".join(f"--{name}:{colours[mode]};" for name, colours in ROLES.items()) + "}" for mode in (0, 1)
    ]
    style = f"<style>{modes[0]}@media(prefers-color-scheme:dark){{{modes[1]}}}</style>"
    text = re.sub(r"(<svg .*?>)", rf"\1\n {style}", text, count=1, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def save(draw):
    """Writes the figure that draw() makes beside the program that runs, with its name and the ending .svg."""
    sys.path.append(str(pathlib.Path(__file__).parents[2]))
    from serving import terminal

    terminal.own_stderr()
    terminal.divert_libraries()
    path = pathlib.Path(sys.argv[0]).with_suffix(".svg")
    path.write_text(svg_of(draw()))
    print(path)
