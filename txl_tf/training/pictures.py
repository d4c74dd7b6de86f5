"""Heat maps and curves with titles and axes, drawn with NumPy and Pillow: uint8 [height, width, 3]."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

INK, GRID, PAPER, CURVE = (40, 40, 40), (255, 255, 255), (255, 255, 255), (49, 104, 142)
COLOURS = np.array(
    [
        *((68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142)),
        *((31, 158, 137), (53, 183, 121), (109, 205, 89), (180, 222, 44), (253, 231, 37)),
    ]
)
"""The viridis colour map at ten points, from dark to bright; equal steps look equal."""


def colour(values: np.ndarray) -> np.ndarray:
    """Colours, uint8 [.., 3], of values between 0 and 1 [..]; values outside are clipped."""
    place = np.clip(np.nan_to_num(values), 0, 1) * (len(COLOURS) - 1)
    return np.stack([np.interp(place, range(len(COLOURS)), channel) for channel in COLOURS.T], -1).astype(np.uint8)


def stretch(values: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resizes [rows, columns] to [height, width]; a pixel that covers several values shows the largest."""
    for axis, size in enumerate((height, width)):
        starts = np.arange(size) * values.shape[axis] // size
        values = np.maximum.reduceat(values, starts, axis=axis)
    return values


def attention_picture(probabilities: np.ndarray, positions: np.ndarray, m_len: int, title: str) -> np.ndarray:
    """Attention of one layer: a panel for each head, with queries from top to bottom and keys from oldest to newest.

    Args:
        probabilities: [H, Q, K].
        positions: [Q], the queries' positions in the segment, ascending.
        m_len: M; the newest K - M keys belong to the segment.
        title: of the picture.
    """
    heads, _, keys = probabilities.shape
    columns = min(heads, 4)
    width, height = max(240, min(keys, 400)), 150
    left, top, gap_x, gap_y = 70, 56, 26, 58
    rows = math.ceil(heads / columns)
    canvas = Canvas(left + columns * (width + gap_x) + 90, top + rows * (height + gap_y) + 4)
    canvas.text((left, 8), title, size=17)
    canvas.text((left, 30), "probability of each key; left of the line is memory, right of it the segment", size=12)
    decades = 4
    shown = 1 + np.log10(np.maximum(probabilities, 10.0**-decades)) / decades
    t_len = keys - m_len
    for head in range(heads):
        x, y = left + head % columns * (width + gap_x), top + 14 + head // columns * (height + gap_y)
        canvas.heat(x, y, stretch(shown[head], height, width))
        boundary = x + width * m_len // keys
        canvas.line((boundary, y), (boundary, y + height - 1))
        canvas.text((x + width / 2, y - 3), f"head {head}", anchor="mb")
        ticks = (
            [(0, f"{-m_len}"), (m_len / keys, "0"), (1, f"{t_len - 1}")] if m_len else [(0, "0"), (1, f"{keys - 1}")]
        )
        for share, label in ticks:
            anchor = "lt" if share == 0 else "rt" if share == 1 else "mt"
            canvas.text((x + share * width, y + height + 4), label, anchor=anchor)
        canvas.text((x + width / 2, y + height + 18), "key, in tokens from the segment's start", anchor="mt", size=11)
        if head % columns == 0:
            for share, label in ((0.0, positions[0]), (1.0, positions[-1])):
                canvas.text((x - 6, y + 6 + share * (height - 12)), str(label), anchor="rm")
            canvas.text((x - 6, y + height / 2), "query", anchor="rm", size=11)
    bar = left + columns * (width + gap_x)
    canvas.colour_bar(bar, top + 14, height, [(i / decades, f"{10.0 ** (i - decades):g}") for i in range(decades + 1)])
    return canvas.pixels()


def distance_picture(shares: np.ndarray, bounds: Sequence[int], title: str) -> np.ndarray:
    """The distribution of attention over distances: a row for each layer, a column for each bin.

    Args:
        shares: [N, bins], each row of sum 1.
        bounds: [bins + 1] distances; bin i holds distances from bounds[i] up to, not including, bounds[i + 1]. They
            are negative for keys after the query.
        title: of the picture.
    """
    layers, bins = shares.shape
    cell_x, cell_y, left, top = 62, 24, 74, 62
    canvas = Canvas(left + bins * cell_x + 110, top + layers * cell_y + 58)
    canvas.text((left, 8), title, size=17)
    canvas.text((left, 30), "share of a layer's attention, mean of heads and queries, in %", size=12)
    high = max(shares.max(), 1e-9)
    canvas.heat(left, top, stretch(shares / high, layers * cell_y, bins * cell_x))
    for layer, row in enumerate(shares):
        y = top + (layer + 0.5) * cell_y
        canvas.text((left - 8, y), f"layer {layer}", anchor="rm")
        for i, share in enumerate(row):
            place = (left + (i + 0.5) * cell_x, y)
            canvas.text(place, f"{100 * share:.1f}", anchor="mm", fill=INK if share > 0.6 * high else GRID)
    for i, (first, end) in enumerate(itertools.pairwise(bounds)):
        label = f"{first}" if end - first == 1 else f"{first}{'..' if first < 0 else '-'}{end - 1}"
        canvas.text((left + (i + 0.5) * cell_x, top + layers * cell_y + 6), label, anchor="mt", size=11)
    canvas.text((left + bins * cell_x / 2, top + layers * cell_y + 26), "distance of the key, in tokens", anchor="mt")
    ticks = [(share, f"{100 * share * high:.0f} %") for share in (0, 0.5, 1)]
    canvas.colour_bar(left + bins * cell_x + 18, top, max(layers * cell_y, 70), ticks)
    return canvas.pixels()


def bins_picture(labels: Sequence[str], values: Sequence[float | None], about: str, title: str) -> np.ndarray:
    """A curve over bins, with each value written at its point; None leaves a gap.

    Args:
        labels, values: of the bins.
        about: name of the horizontal axis.
        title: of the picture.
    """
    cell, height, left, top = 70, 180, 40, 60
    finite = [value for value in values if value is not None and math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    canvas = Canvas(left + len(labels) * cell + 40, top + height + 60)
    canvas.text((left, 8), title, size=17)
    canvas.text((left, 30), "mean of the targets in each bin, in nats; the axis does not begin at 0", size=12)
    bottom = top + height
    canvas.line((left, bottom + 12), (left + len(labels) * cell, bottom + 12), fill=INK)
    last = None
    for i, (label, value) in enumerate(zip(labels, values, strict=True)):
        x = left + (i + 0.5) * cell
        canvas.text((x, bottom + 18), label, anchor="mt", size=11)
        if value is None or not math.isfinite(value):
            last = None
            continue
        point = (x, bottom - height * (value - low) / max(high - low, 1e-9) * 0.85)
        if last is not None:
            canvas.line(last, point, fill=CURVE)
        canvas.draw.ellipse([point[0] - 3, point[1] - 3, point[0] + 3, point[1] + 3], fill=CURVE)
        canvas.text((x, point[1] - 8), f"{value:.3f}", anchor="mb", size=11)
        last = point
    canvas.text((left + len(labels) * cell / 2, bottom + 36), about, anchor="mt")
    return canvas.pixels()


class Canvas:
    """A white picture to draw on; positions are (x, y) in pixels from the upper left corner."""

    def __init__(self, width: int, height: int):
        self.image = Image.new("RGB", (width, height), PAPER)
        self.draw = ImageDraw.Draw(self.image)

    def text(
        self,
        place: tuple[float, float],
        text: str,
        anchor: str = "la",
        size: float = 12,
        fill: tuple[int, int, int] = INK,
    ) -> None:
        """Writes `text` with its `anchor`, in Pillow's notation, at `place`."""
        self.draw.text(place, text, fill=fill, anchor=anchor, font=ImageFont.load_default(size))

    def line(self, start: tuple[float, float], end: tuple[float, float], fill: tuple[int, int, int] = GRID) -> None:
        """Draws a thin line."""
        self.draw.line([start, end], fill=fill)

    def heat(self, x: int, y: int, values: np.ndarray) -> None:
        """Draws a heat map of values between 0 and 1, one pixel each, with its upper left corner at (x, y)."""
        height, width = values.shape
        self.image.paste(Image.fromarray(colour(values)), (x, y))
        self.draw.rectangle([x - 1, y - 1, x + width, y + height], outline=INK)

    def colour_bar(self, x: int, y: int, height: int, ticks: Iterable[tuple[float, str]]) -> None:
        """Draws the colour scale with ticks [(fraction of the height, label)]."""
        self.heat(x, y, stretch(np.linspace(1, 0, height)[:, None], height, 14))
        for share, label in ticks:
            self.text((x + 20, y + (1 - share) * height), label, anchor="lm", size=11)

    def pixels(self) -> np.ndarray:
        """The picture, uint8 [height, width, 3]."""
        return np.asarray(self.image)
