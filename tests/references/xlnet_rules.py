"""XLNet's data rules token by token, in plain Python and NumPy, written from the description of the official code.

Whatever is random comes from a function of its own, so that the same draws can be given to what is tested.
"""

import numpy as np


def sample_spans(starts, goal, draw_size, draw_before, draw_single, alpha=6, beta=1):
    """Which of a part's tokens are predicted: bool [L].

    Args:
        starts: bool [L].
        goal: how many.
        draw_size: () -> a span's length.
        draw_before: (context) -> how much of the context is in front of the span, 0 .. context - 1.
        draw_single: (chosen) -> a token that is not chosen yet.
    """
    chosen, at, picked = np.zeros(len(starts), bool), 0, 0
    while at < len(starts) and picked < goal:
        size = min(draw_size(), goal - picked)
        context = size * alpha // beta
        before = draw_before(context)
        begin = at + before
        while begin < len(starts) and not starts[begin]:
            begin += 1
        if begin >= len(starts) or begin + size >= len(starts):
            break
        chosen[begin : begin + size] = True
        picked += size
        at = begin + size + context - before
    while picked < goal:
        chosen[draw_single(chosen)] = True
        picked += 1
    return chosen


def split_pair(sentences, begin, total, follows, draw_cut, draw_place, limit=None):
    """A and B of a segment: (A's end, B's begin, B's end, label) before and after they are cut to `total` tokens.

    Args:
        sentences: int [n], the number of each token's sentence.
        begin: where A begins.
        total: tokens of both.
        follows: whether B is to follow A.
        draw_cut: (cuts) -> one of them.
        draw_place: (least) -> where a B from elsewhere begins before it is widened.
        limit: by how many tokens B's begin may be moved; None: by any number.
    """
    end, cuts = begin + 1, []
    while end < len(sentences):
        if sentences[end] != sentences[end - 1]:
            if end - begin >= total:
                break
            cuts.append(end)
        end += 1
    if follows and cuts:
        a_end = draw_cut(cuts)
        b_begin, b_end = a_end, end
    else:
        a_end = draw_cut(cuts) if cuts else end
        least = max(1, total - (a_end - begin))
        place = draw_place(least)
        b_begin, b_end = place, place + least
        first = 0 if limit is None else max(place - limit, 0)
        while b_begin > first and sentences[b_begin - 1] == sentences[b_begin]:
            b_begin -= 1
        while b_end < len(sentences) and sentences[b_end - 1] == sentences[b_end]:
            b_end += 1
    whole = (a_end, b_begin, b_end)
    while a_end - begin + b_end - b_begin > total:
        if a_end - begin > b_end - b_begin:
            a_end -= 1
        else:
            b_end -= 1
    return whole, (a_end, b_begin, b_end), bool(follows and cuts)
