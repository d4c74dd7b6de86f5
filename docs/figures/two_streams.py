"""Draws which tokens XLNet's two streams see, for targets and an order that the training's own functions draw."""

import numpy as np
from drawing import EMPTY, INK, LIGHT, MEDIUM, ON_STRONG, STRONG, WARM, draw_cells, new_figure, save

T, TARGETS, SEED = 8, 4, 5
WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "dog")


def draw():
    rank, target, query, content = order()
    figure, panels = new_figure(7.2, 2)
    for axes, seen, name in zip(panels, (query, content), ("query stream: predicts", "content stream"), strict=True):
        draw_mask(axes, seen, rank, target)
        axes.set_title(f"{name}; what each token (row) sees", fontsize=10, loc="left")
    return figure


def order():
    """Ranks int [T], targets bool [T], and the masks bool [T, T] of the query stream and of the content stream."""
    import tensorflow as tf

    from txl_tf.data.xlnet.spans import permutation_ranks, sample_spans
    from txl_tf.layers.masks import permutation_visible, stream_masks
    from txl_tf.settings.pretraining import PermutationLMConfig

    rule = PermutationLMConfig(num_predict=TARGETS, perm_size=T, mask_alpha=2.0, max_span=2)
    seeds = tf.constant([[SEED, 0]])
    target = sample_spans(tf.ones([1, T], tf.bool), TARGETS, rule, seeds)
    rank = permutation_ranks(T, T, seeds)
    seen = permutation_visible(rank, ~target, target)
    query, content = stream_masks(T, 0, seen)
    return rank[0].numpy(), target[0].numpy(), query[0, 0].numpy(), content[0, 0].numpy()


def draw_mask(axes, seen, rank, target):
    """Draws a mask [T, T] with the words; targets are red, with their places among the targets in the order."""
    place = np.argsort(np.argsort(np.where(target, rank, T)))
    colours = np.where(seen, np.where(target, MEDIUM, LIGHT), EMPTY)
    np.fill_diagonal(colours, np.where(np.diag(seen), STRONG, EMPTY))
    texts = np.where(seen & target, (place + 1).astype(str), "")
    inks = np.where(colours == STRONG, ON_STRONG, INK)
    draw_cells(axes, colours, texts, inks)
    names = [f"{word} ({place[i] + 1})" if target[i] else word for i, word in enumerate(WORDS)]
    axes.set_yticks(range(T), names)
    axes.set_xticks(range(T), WORDS, rotation=45, ha="right", rotation_mode="anchor")
    for labels in (axes.get_yticklabels(), axes.get_xticklabels()):
        for label, is_target in zip(labels, target, strict=True):
            label.set_color(WARM if is_target else INK)


if __name__ == "__main__":
    save(draw)
