"""Draws the relative shift: scores by distance become scores by key. The picture shows results of `relative_shift`."""

import numpy as np
from drawing import EMPTY, INK, LIGHT, MEDIUM, ON_STRONG, STRONG, draw_cells, new_figure, save

T, M = 4, 3


def draw():
    from txl_tf.layers.masks import visible_keys
    from txl_tf.layers.positions import key_distances
    from txl_tf.ops.shift import relative_shift

    keys = M + T
    by_distance = np.tile(key_distances(keys), [T, 1]).astype(np.float32)  # the score at a distance is the distance
    by_key = relative_shift(by_distance).numpy()
    seen = visible_keys(T, M).numpy()
    used = by_distance < (M + np.arange(1, T + 1))[:, None]  # no key of this query is farther away

    figure, (before, after) = new_figure(4.6, 2)
    draw_matrix(before, by_distance, used, "before: a column for each distance")
    before.set_xlabel("distance", labelpad=2)
    before.set_xticks(range(keys), [f"{d:.0f}" for d in by_distance[0]])
    draw_matrix(after, by_key, seen, "after: a column for each key")
    after.set_xlabel("key: 3 of the memory, 4 of the segment", labelpad=2)
    after.set_xticks(range(keys), [f"m{j + 1}" for j in range(M)] + [f"{j + 1}" for j in range(T)])
    return figure


def draw_matrix(axes, values, shown, title):
    """Draws a matrix [T, K] of distances; cells that are not `shown` are empty."""
    shades = [STRONG, MEDIUM, LIGHT]
    colours = [
        [shades[min(int(d) // 2, 2)] if s else EMPTY for d, s in zip(*row, strict=True)]
        for row in zip(values, shown, strict=True)
    ]
    texts = [[f"{d:.0f}" if s else "" for d, s in zip(*row, strict=True)] for row in zip(values, shown, strict=True)]
    inks = [[ON_STRONG if colour == STRONG else INK for colour in row] for row in colours]
    draw_cells(axes, colours, texts, inks)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_yticks(range(len(values)), [f"query {i + 1}" for i in range(len(values))])
    axes.tick_params(colors=INK)


if __name__ == "__main__":
    save(draw)
