"""From queries, keys and values to weighted values: the part whose cost grows with T times K, written to compile well.

Shapes: B batch, H heads, T queries, K keys, d = d_head.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import tensorflow as tf

from txl_tf.hashing import bits_at
from txl_tf.layers import platform, scopes
from txl_tf.layers.attention_products import computed_once, is_wide, scores, wide_product, widened
from txl_tf.layers.dropout import keep_mask
from txl_tf.layers.gradients import custom_gradient
from txl_tf.layers.relative import columns_from, relative_shift
from txl_tf.layers.rotated_scores import TILE, is_rotated, rotated_scores
from txl_tf.layers.row_products import LayerSlice, row_scores, row_values

MASKED = -1e30  # added to scores of keys that may not be seen; finite, so that no row can become NaN
FEWEST_TILES = 5  # with fewer tiles of keys a TPU gives the rotated scores another layout, which costs a copy
GPU_ROWS = 4 * TILE  # in a block of queries on a GPU, for which small blocks are too little work
MOST_WIDE_KEYS = 4 * TILE  # what waits for the gradient of longer rows is narrow on a TPU, to save memory


def attend(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    mask: tf.Tensor,
    position_query: tf.Tensor | None = None,
    position: tf.Tensor | None = None,
    rate: float = 0.0,
    seed: tf.Tensor | None = None,
    oldest: tf.Tensor | None = None,
    causal: bool = True,
    extra: Callable[[int, int, int], tf.Tensor] | None = None,
    places: tf.Tensor | None = None,
    first_part: int = 0,
) -> tf.Tensor:
    """softmax(query . key + position_query . position + mask), with dropout, times value.

    Computed in blocks of queries. With `causal`, a block leaves out the keys that lie in the future of all its queries.

    Args:
        query: [B, H, T, d].
        key, value: [B, H, K, d].
        mask: bool, true where a query may see a key: [T, K] or broadcastable to [B, H, T, K].
        position_query, position: [B, H, T, d'] and [H, C, d'] or [B, H, C, d'], farthest distance first. The score of
            query i and key j gets the term position_query[i] . position[j + T-1-i], if that row exists: C = K rows for
            distances K-1, .., 0, or K + T-1 rows for K-1, .., -(T-1). None: no such term.
        rate, seed: of the dropout of the probabilities; as for `dropout`.
        oldest: None: the last T keys are those of the queries' tokens. Otherwise keys are a ring, and `oldest`, an int
            scalar, is the slot of its oldest key; positions and mask still go from the oldest key to the newest.
        causal: whether the mask hides every key in a query's future, so that such keys need not be computed.
        extra: (first, last, seen) -> what is added to the scores of the queries first, .., last - 1 and the first
            `seen` keys, [B, H, last - first, seen]; None: nothing.
        places: int [B, P], given if the queries are not the segment's T, but P of them, [B, H, P, ..]: the numbers of
            their tokens in the segment. The mask then has P rows, and C is K + T-1. The result, dropout included, is
            what these rows would be among all T. None: query i is at place i.
        first_part: the mask hides all tokens of the segment from this one on from the first `first_part` queries, so
            that these keys need not be computed; 0: not known.

    Returns:
        [B, H, T, d].
    """
    t_len, k_len = query.shape[2], key.shape[2]
    segment_len = t_len if places is None or position is None else position.shape[-2] - k_len + 1
    if oldest is not None:
        mask = tf.roll(mask, oldest, axis=-1)
        if position is not None and t_len > 1:
            position = _as_ring(position, oldest, t_len - 1)
    if position is not None and oldest is None:  # a ring is only read, and needs no gradient
        position = widened(position)  # the gradient is a sum over blocks, for which float32 costs less than bfloat16
    # A block is a TILE where dropout masks are drawn, since each TILE has its own, and where `first_part` saves work.
    rows = GPU_ROWS if platform.on_gpu() and not rate and not first_part else TILE
    blocks = [(first, min(first + rows, t_len)) for first in range(0, t_len, rows)]
    # A CPU gains nothing by it, and with bfloat16 scores a TPU's compiler would copy the rotated gradients.
    joined = t_len > TILE and platform.on_tpu() and is_wide(query, TILE, k_len)
    queries = _blocks_of_rows(query, blocks, joined)
    position_queries = [] if position is None else _blocks_of_rows(position_query, blocks, joined)
    seen_keys = [_seen(last, t_len, k_len, causal and oldest is None, first_part) for _, last in blocks]
    fewest = min(k_len, FEWEST_TILES * TILE)
    if position_queries and is_rotated(position_queries[0], fewest):
        seen_keys = [max(seen, fewest) for seen in seen_keys]
    keys, values = (_first_rows(x, seen_keys, joined) for x in (key, value))
    outputs = []
    for i, (first, last) in enumerate(blocks):
        block, seen = queries[i], seen_keys[i]
        block_places = None if places is None else places[:, first:last]
        wide = is_wide(block, TILE, seen)
        score = scores(block, keys[i], wide)
        if position is not None:
            block_position = _cut(position, -2, 0 if places is not None else t_len - last, position.shape[-2])
            position_score = position_scores(position_queries[i], block_position, seen, block_places, wide)
            if oldest is not None and t_len == 1:  # one row of scores is shorter than the positions
                position_score = tf.roll(position_score, oldest, axis=-1)
            score += tf.cast(position_score, score.dtype)
        if extra is not None:
            score += tf.cast(extra(first, last, seen), score.dtype)
        block_mask = mask if mask.shape[-2] == 1 else _cut(mask, -2, first, last)
        block_mask = block_mask if mask.shape[-1] == 1 else _cut(block_mask, -1, 0, seen)
        if places is None or seed is None:
            keep = functools.partial(keep_mask, rate=rate, seed=None if seed is None else tf.add(seed, [0, first]))
        else:
            keep = functools.partial(_kept_at, block_places, segment_len, rate, seed)
        only_read = oldest is not None
        outputs.append(weighted_values(score, values[i], block_mask, rate, keep, only_read))
    return outputs[0] if len(outputs) == 1 else tf.concat(outputs, axis=2)


def attend_one_query(
    query: tf.Tensor,
    key: tf.Tensor | LayerSlice,
    value: tf.Tensor | LayerSlice,
    mask: tf.Tensor,
    position_query: tf.Tensor,
    position: LayerSlice,
    oldest: tf.Tensor,
) -> tf.Tensor:
    """`attend` for one query of each text on a CPU; the ring has a multiple of `row_products.RUNS` slots.

    Arguments and result as for `attend`, with T = 1.
    """
    score = row_scores(query, key) + tf.roll(row_scores(position_query, position), oldest, axis=-1)
    score += tf.where(tf.roll(mask, oldest, axis=-1), tf.zeros([], score.dtype), tf.constant(MASKED, score.dtype))
    weight = tf.exp(score - tf.reduce_max(score, axis=-1, keepdims=True))
    output = row_values(weight, value) / tf.reduce_sum(weight, axis=-1, keepdims=True)
    return tf.cast(output, query.dtype)


def positions_for_lanes(position: tf.Tensor | None, query: tf.Tensor, training: bool) -> tf.Tensor | None:
    """Projected positions [H, C, d]; in training, but on no TPU, with a copy for each lane of the query: [B, H, C, d].

    With one product for all lanes XLA would copy the scores' gradient, transposed. A step of training without that
    takes 0.93 to 0.98 of the time in float32 on a CPU; in bfloat16 on a GPU 0.95 with blocks of GPU_ROWS, 0.99 with
    those of TILE. Without a gradient copies of the positions take longer.
    """
    if position is None or position.shape.rank != 3 or not training or platform.on_tpu():
        return position
    return tf.broadcast_to(position, tf.concat([tf.shape(query)[:1], tf.shape(position)], 0))


def _cut(x: tf.Tensor, axis: int, first: int, last: int) -> tf.Tensor:
    """x[first:last] along axis -1 or -2; x itself if that is the whole axis, since TensorFlow's kernels would copy."""
    if first == 0 and last == x.shape[axis]:
        return x
    return x[..., first:last] if axis == -1 else x[..., first:last, :]


def _seen(last: int, t_len: int, k_len: int, causal: bool, first_part: int) -> int:
    """How many keys, from the first on, the queries before query `last` may see.

    Args:
        last, t_len, k_len: the query's number, T and K.
        causal: whether the mask hides every key in a query's future.
        first_part: as for `attend`.
    """
    seen = k_len - t_len + last if causal else k_len
    return min(seen, k_len - t_len + first_part) if last <= first_part else seen


def _blocks_of_rows(x: tf.Tensor, blocks: list[tuple[int, int]], joined: bool) -> list[tf.Tensor]:
    """The rows of each block.

    Args:
        x: [.., T, d].
        blocks: for each the first row and the one after the last; together they are all T rows.
        joined: whether the blocks' gradients are joined; otherwise they are padded and added.
    """
    if joined:
        return tf.split(x, [last - first for first, last in blocks], axis=-2)
    return [_cut(x, -2, first, last) for first, last in blocks]


def _first_rows(x: tf.Tensor, counts: list[int], joined: bool) -> list[tf.Tensor]:
    """The first rows of x, once for each count.

    Args:
        x: [.., K, d].
        counts: how many rows; none is smaller than the one before.
        joined: whether each part is cut from the next one. The matmul that computes the next one's gradient then adds
            this one's to it. Otherwise one operation adds up the padded gradients of all parts.
    """
    parts: list[tf.Tensor] = []
    for count in reversed(counts):
        parts.insert(0, _cut(parts[0] if joined and parts else x, -2, 0, count))
    return parts


def _as_ring(position: tf.Tensor, oldest: tf.Tensor, extra: int) -> tf.Tensor:
    """Positions [H, C, d] in the order of a ring's slots, the oldest key in slot `oldest`; then its first `extra` rows.

    On a CPU or GPU two copies are rolled together: that is one pass for XLA, where rolling one and then joining its
    first rows is three. On a TPU, and with TensorFlow's own kernels, the latter is faster. A slice of two copies would
    do the same, but XLA would compile one program for each start of the slice.
    """
    if platform.on_tpu() or platform.own_kernels_on_cpu():
        position = tf.roll(position, oldest, axis=1)
        return tf.concat([position, position[:, :extra]], axis=1)
    return tf.roll(tf.concat([position, position], axis=1), oldest, axis=1)[:, : position.shape[1] + extra]


def _kept_at(places: tf.Tensor, t_len: int, rate: float, seed: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """The rows at these places, int [B, P], of the dropout masks that `attend` draws for T queries: bool [B, H, P, K].

    Args:
        places, t_len: the numbers of the rows, and T.
        rate, seed: as for `attend`.
        shape: int32 [4], of the result.
    """
    batch, heads, _, k_len = tf.unstack(shape)
    first = places // TILE * TILE  # of the row's block
    rows = tf.minimum(t_len - first, TILE)  # in the block
    head = tf.range(heads)[:, None, None]
    if len(seed.shape) == 1:
        head += tf.range(batch)[:, None, None, None] * heads
    index = (head * rows[:, None, :, None] + (places - first)[:, None, :, None]) * k_len + tf.range(k_len)
    first = tf.stack([tf.zeros_like(first), first], axis=-1)[:, None, :, None]
    return bits_at(index, tf.reshape(seed, [-1, 1, 1, 1, 2]) + first) >= int(rate * 2**32)


def rows_at(x: tf.Tensor, places: tf.Tensor | None) -> tf.Tensor:
    """The rows of x at these places of axis -2, int [B, P]; x itself if places is None, or if it has one row for all.

    x is [T, n], or [.., T, n] with a first axis of B or 1.
    """
    if places is None or x.shape[-2] == 1:
        return x
    if x.shape.rank == 2:
        return tf.gather(x, places)[:, None]
    if x.shape[0] == 1:
        x = tf.broadcast_to(x, tf.concat([tf.shape(places)[:1], tf.shape(x)[1:]], 0))
    return tf.gather(x, places, axis=x.shape.rank - 2, batch_dims=1)


def position_scores(
    query: tf.Tensor, position: tf.Tensor, k_len: int, places: tf.Tensor | None = None, wide: bool = True
) -> tf.Tensor:
    """The position term of the scores, by key: score[i, j] = query[i] . position[j + T-1-i].

    A TPU in bfloat16 uses another method. There a shift by a different number of columns in each row costs as much as
    all matmuls together, while a product with a permutation matrix rotates a row at almost no cost, and exactly.

    Args:
        query: [B, H, T, d].
        position: [H, K or more, d] or [B, H, K or more, d], farthest distance first. Scores that would need rows after
            the last are undefined.
        k_len: K.
        places: as for `attend`.
        wide: as for `rotated_scores`.

    Returns:
        [B, H, T, K].
    """
    if is_rotated(query, k_len):
        return rotated_scores(query, position, k_len, places, position.shape[-2] - k_len + 1, wide)
    shared = position.shape.rank == 3
    score = wide_product("bhtd,hkd->bhtk", query, position) if shared else scores(query, position)
    if places is not None:
        return columns_from(score, position.shape[-2] - k_len - places, k_len)
    return relative_shift(score, k_len) if query.shape[2] > 1 else _cut(score, -1, 0, k_len)


def _exponentials(score: tf.Tensor, hide: tf.Tensor, only_read: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """e^x of x = score + hide - the row's maximum, and the sum of each row; arguments as for `weighted_values`.

    If the gradient is not needed, TensorFlow's own kernel for CPUs does it in one pass instead of six, in float32 where
    these are bfloat16. It divides by the sum, which is 1 then. A step of training would take as long with it.

    Returns:
        [B, H, T, K] in the scores' dtype, and [B, H, T, 1] or a scalar in that of `hide`.
    """
    if only_read and platform.own_kernels_on_cpu():
        return tf.nn.softmax(score + tf.cast(hide, score.dtype)), tf.ones([], hide.dtype)
    masked = tf.cast(score, hide.dtype) + hide
    weight = tf.exp(masked - tf.reduce_max(masked, axis=-1, keepdims=True))
    if platform.on_tpu() and only_read:
        weight = tf.cast(weight, score.dtype)
        total = wide_product("bhtk,kn->bhtn", weight, tf.ones([weight.shape[-1], TILE], weight.dtype))[..., :1]
        return weight, total
    total = tf.reduce_sum(weight, axis=-1, keepdims=True)
    weight = tf.cast(weight, score.dtype)
    return weight if weight.dtype == tf.bfloat16 else computed_once(weight), total


def weighted_values(
    score: tf.Tensor,
    value: tf.Tensor,
    mask: tf.Tensor,
    rate: float,
    keep: Callable[[tf.Tensor], tf.Tensor],
    only_read: bool = False,
) -> tf.Tensor:
    """softmax(score + mask), with dropout, times value: [B, H, T, d]; softmax in float32 at least.

    With e = exp(score - max) of a row, Z the sum of e and m the dropout mask, the result is
    (m e) . value / ((1 - rate) Z). The division comes last, where there are fewer numbers. Of the tensors [B, H, T, K]
    only e is kept for the gradient, in the scores' dtype; for long rows on a TPU in the values'. m is computed again.

    Args:
        score: [B, H, T, K].
        value: [B, H, K, d].
        mask: bool, broadcastable to `score`.
        rate: of dropout.
        keep: function of the score's shape, which returns m.
        only_read: whether the gradient is not needed. A TPU then sums e by a product with ones, and computes e within
            the two products that use it: writing it takes longer.
    """
    accurate = tf.float64 if score.dtype == tf.float64 else tf.float32

    @custom_gradient
    def run(score: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        hide = tf.where(mask, tf.zeros([], accurate), tf.constant(MASKED, accurate))
        weight, total = _exponentials(score, hide, only_read)
        narrow = platform.on_tpu() and weight.dtype != value.dtype and weight.shape[-1] > MOST_WIDE_KEYS
        saved_weight = computed_once(tf.cast(weight, value.dtype)) if narrow else weight
        scale = 1 / ((1 - rate) * total)
        kept = keep(tf.shape(weight)) if rate else None

        def dropped(x: tf.Tensor) -> tf.Tensor:
            return tf.where(kept, x, tf.zeros([], x.dtype)) if rate else x

        wide = score.dtype != tf.bfloat16
        output = wide_product("bhtk,bhkd->bhtd", tf.cast(dropped(weight), value.dtype), value, wide)
        output = tf.cast(tf.cast(output, accurate) * scale, value.dtype)

        def gradient(d_output: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.name_scope(scopes.ATTENTION):
                d_scaled = tf.cast(d_output, accurate) * scale
                d_sum = (1 - rate) * tf.reduce_sum(d_scaled * tf.cast(output, accurate), axis=-1, keepdims=True)
                d_scaled = tf.cast(d_scaled, value.dtype)
                d_weight = dropped(wide_product("bhtd,bhkd->bhtk", d_scaled, value, wide))
                d_score = tf.cast(saved_weight, accurate) * (tf.cast(d_weight, accurate) - d_sum)
                dropped_weight = tf.cast(dropped(saved_weight), value.dtype)
                d_value = wide_product("bhtk,bhtd->bhkd", dropped_weight, d_scaled, wide=False)
                return tf.cast(d_score, score.dtype), d_value

        return output, gradient

    return run(score, value)
