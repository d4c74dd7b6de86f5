"""Draws the adaptive softmax: the clusters of wt103_large, and the probabilities of a small layer, piece by piece."""

import itertools

import numpy as np
from drawing import FAINT, INK, LIGHT, MEDIUM, ON_STRONG, STRONG, WARM, WARM_LIGHT, new_figure, save

V, CUTOFFS, D = 12, (4, 8), 16
NAMES = ("head", "tail 1", "tail 2", "tail 3")
COLOURS = (STRONG, MEDIUM, LIGHT, WARM_LIGHT)


def draw():
    figure, (sizes, pieces) = new_figure(4.8, 2, height_ratios=(1, 1.15))
    draw_sizes(sizes)
    draw_probabilities(pieces)
    return figure


def draw_sizes(axes):
    """Draws the weights of each cluster's table as a bar."""
    from txl_tf import families
    from txl_tf.layers.clusters import ClusteredLayer

    config = families.presets()["wt103_large"].config.model
    layer = ClusteredLayer(
        config.vocab_size, config.d_model, d_embed=config.d_embed, cutoffs=config.cutoffs, div_val=config.div_val
    )
    weights = [rows * width / 1e6 for rows, width in layer.table_shapes]
    for i, (share, (rows, width)) in enumerate(zip(weights, layer.table_shapes, strict=True)):
        axes.barh(i, share, color=COLOURS[i])
        axes.text(share + 0.5, i, f"{rows:,} ids x {width:,} = {share:.1f} M", va="center", fontsize=9)
    axes.set_yticks(range(len(weights)), NAMES)
    axes.set_xlim(0, 46)
    axes.invert_yaxis()
    whole = config.vocab_size * config.d_embed / 1e6
    title = f"wt103_large: {sum(weights):.0f} M weights; one table for all would have {whole:.0f} M"
    _plain(axes, title)
    axes.set_xticks([])


def probabilities():
    """The probabilities [V] that a layer with random weights gives the tokens after a random state."""
    import keras

    from txl_tf.layers.softmax import AdaptiveSoftmax

    keras.utils.set_random_seed(3)
    layer = AdaptiveSoftmax(V, D, cutoffs=CUTOFFS, tie_weight=False)
    hidden = np.random.default_rng(3).normal(size=[1, D]).astype(np.float32)
    layer.build(hidden.shape)
    draw = np.random.default_rng(4)
    for weight in layer.trainable_variables:
        weight.assign(draw.normal(size=weight.shape) * 0.12)
    return np.exp(layer.log_prob(hidden).numpy()[0])


def draw_probabilities(axes):
    """Draws the head's probabilities as a bar, and below it, stretched, how tails divide those of their entries."""
    values, ends = probabilities(), (*CUTOFFS, V)
    entries = [values[begin:end].sum() for begin, end in itertools.pairwise(ends)]
    edges = draw_bar(axes, 0, [*values[: CUTOFFS[0]], *entries], 0, 1, [STRONG] * CUTOFFS[0] + [MEDIUM, LIGHT])
    for i, (begin, end) in enumerate(itertools.pairwise(ends)):
        left, right = (0, 0.48) if i == 0 else (0.52, 1)
        drawn = draw_bar(axes, 1, values[begin:end], left, right, [COLOURS[i + 1]] * (end - begin))
        piece = edges[CUTOFFS[0] + i : CUTOFFS[0] + i + 2]
        for upper, lower in zip(piece, (drawn[0], drawn[-1]), strict=True):
            axes.plot([upper, lower], [0.35, 0.65], color=WARM, linewidth=0.8, linestyle=":")
        axes.text((left + right) / 2, 1.45, NAMES[i + 1], ha="center", va="top")
    axes.set_yticks([0], NAMES[:1])
    axes.set_xlim(0, 1)
    axes.set_ylim(1.75, -0.4)
    axes.set_xticks([])
    _plain(axes, f"probabilities of {V} tokens: their sum is {values.sum():.3f}")


def draw_bar(axes, row, values, left, right, colours):
    """Draws values as pieces of a bar, with their numbers if there is room; the edges of the pieces."""
    edges = left + np.cumsum([0, *values]) / sum(values) * (right - left)
    for value, colour, (begin, end) in zip(values, colours, itertools.pairwise(edges), strict=True):
        axes.barh(row, end - begin, left=begin, height=0.7, color=colour, edgecolor=FAINT, linewidth=0.6)
        ink = ON_STRONG if colour == STRONG else INK
        if end - begin < 0.06:  # too narrow for a number
            continue
        axes.text((begin + end) / 2, row, f"{value:.2f}", ha="center", va="center", color=ink, fontsize=9)
    return edges


def _plain(axes, title):
    axes.set_title(title, fontsize=10, loc="left")
    axes.tick_params(length=0, colors=INK)
    axes.spines[:].set_visible(False)


if __name__ == "__main__":
    save(draw)
