"""Draws how far the last token of a text sees, with memory and without: the paths that `visible_keys` leaves open."""

import numpy as np
from drawing import EMPTY, INK, LIGHT, MEDIUM, STRONG, WARM, new_figure, save

LAYERS, T, SEGMENTS = 3, 4, 5


def draw():
    figure, panels = new_figure(4.6, 2)
    for axes, m_len, name in zip(panels, (0, T), ("no memory", f"a memory of {T}"), strict=True):
        edges = attention(m_len)
        reached = on_paths(edges)
        draw_paths(axes, edges, reached)
        count = int(reached[0].sum())
        axes.set_title(f"{name}: {count} of {T * SEGMENTS} tokens reach the last output", fontsize=10, loc="left")
    return figure


def attention(m_len):
    """Which token sees which in a layer that keeps m_len states of the tokens before a segment: bool [L, L]."""
    from txl_tf.layers.masks import visible_keys

    length = T * SEGMENTS
    edges = np.zeros([length, length], bool)
    for begin in range(0, length, T):
        oldest = max(begin - m_len, 0)
        edges[begin : begin + T, oldest : begin + T] = visible_keys(T, begin - oldest)
    return edges


def on_paths(edges):
    """Whether a token's state after n layers can reach the last token's last state: bool [LAYERS + 1, L]."""
    reached = np.zeros([LAYERS + 1, len(edges)], bool)
    reached[LAYERS, -1] = True
    for layer in reversed(range(LAYERS)):
        reached[layer] = reached[layer + 1] @ edges
    return reached


def draw_paths(axes, edges, reached):
    """Draws states as dots, a row for each layer, and attention along the paths to the last state."""
    for layer in range(LAYERS):
        for query, key in zip(*np.nonzero(edges & reached[layer + 1][:, None]), strict=True):
            of_memory = key // T < query // T
            style = {"color": STRONG if of_memory else LIGHT, "linewidth": 0.7, "zorder": 1}
            axes.plot([key, query], [layer, layer + 1], **style)
    for (layer, token), is_reached in np.ndenumerate(reached):
        colour = MEDIUM if is_reached else EMPTY
        axes.plot(token, layer, "o", markersize=7, color=colour, markeredgewidth=0, zorder=2)
    axes.plot(reached.shape[1] - 1, LAYERS, "o", markersize=9, color=WARM, markeredgewidth=0, zorder=3)
    axes.set_yticks(range(LAYERS + 1), ["tokens", *(f"layer {n + 1}" for n in range(LAYERS))])
    middles = [begin + (T - 1) / 2 for begin in range(0, T * SEGMENTS, T)]
    axes.set_xticks(middles, [f"segment {i + 1}" for i in range(SEGMENTS)], fontsize=9)
    axes.tick_params(length=0, colors=INK)
    axes.spines[:].set_visible(False)


if __name__ == "__main__":
    save(draw)
