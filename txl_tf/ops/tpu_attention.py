"""Attention on a TPU: products in float32, and shifts of rows by products with permutation matrices.

Shapes: B batch, H heads, T queries, K keys, C positions, d = d_head.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from txl_tf.ops.attention import Attention
from txl_tf.ops.gradients import ATTENTION, WithGradient, custom_gradient
from txl_tf.ops.plain import accurate_dtype, added
from txl_tf.ops.scores import TILE, Block, Drop, Scores, cut, tile_mask
from txl_tf.ops.shift import columns_from, relative_shift

FEWEST_TILES = 5  # with fewer tiles of keys the rotated scores get another layout, which costs a copy
MOST_TILES = 28  # of keys; with more, it is faster to do all of them at once
MOST_WIDE_KEYS = 4 * TILE  # longer rows are kept for the gradient in a narrow dtype, to save memory
WIDEST = 1 << 23  # scores of a block that stay in fast memory: 32 MB of float32
FAST_MEMORY = 1 << 26  # scores of all blocks that stay there: 128 MB of bfloat16


class TpuAttention(Attention):
    """A loop of its own over blocks, each of which has its own dtype of products and its own number of keys."""

    def attend(self, scores: Scores, value: tf.Tensor, mask: tf.Tensor, drop: Drop) -> tf.Tensor:
        scores = _with_signs(scores)
        if scores.position is not None:  # its gradient is a sum over blocks
            scores = dataclasses.replace(scores, position=widened(scores.position))
        outputs = []
        for block, score, seen_value in _scores_of_blocks(scores, value):
            absent = None if scores.absent is None else scores.absent[:, : block.seen]
            hide = added(block.mask(mask), absent, accurate_dtype(score.dtype))
            keep = functools.partial(tile_mask, scores, drop, block.first) if drop.rate else None
            outputs.append(self.weighted_values(score, seen_value, hide, drop.rate, keep))
        return tf.concat(outputs, axis=2)

    def attend_ring(self, scores: Scores, value: Any, mask: tf.Tensor, oldest: tf.Tensor) -> tf.Tensor:
        scores, extra = dataclasses.replace(scores, causal=False), scores.query.shape[2] - 1
        if extra:
            position = tf.roll(scores.position, oldest, axis=1)
            position = tf.concat([position, position[:, :extra]], axis=1)
            scores = dataclasses.replace(scores, position=position)
        mask, outputs = tf.roll(mask, oldest, axis=-1), []
        for block, score, seen_value in _scores_of_blocks(scores, value, None if extra else oldest):
            outputs.append(_only_read(score, seen_value, added(block.mask(mask), None, accurate_dtype(score.dtype))))
        return tf.concat(outputs, axis=2)

    def matmul(self, x: tf.Tensor, y: tf.Tensor, transpose_b: bool = False, wide: bool = True) -> tf.Tensor:
        return wide_product("bhtd,bhkd->bhtk" if transpose_b else "bhtk,bhkd->bhtd", x, y, wide)

    def sums_over_queries(self, weight: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return wide_product("bhtk,bhtd->bhkd", weight, x, wide=False)

    def exponentials(self, score: tf.Tensor, hide: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, ...]:
        weight, total, _ = super().exponentials(score, hide, dtype)
        weight = weight if weight.dtype == tf.bfloat16 else computed_once(weight)
        narrow = weight.dtype != dtype and weight.shape[-1] > MOST_WIDE_KEYS
        return weight, total, computed_once(tf.cast(weight, dtype)) if narrow else weight


def _with_signs(scores: Scores) -> Scores:
    """The same Scores, with the direction of each lane as a sign in its queries; see `Tpu.positions`."""
    if scores.backward is None:
        return scores
    query: tf.Tensor = scores.position_query
    sign = tf.where(scores.backward, tf.constant(-1, query.dtype), tf.constant(1, query.dtype))
    query = tf.concat([query, query * sign[:, None, None, None]], axis=-1)
    return dataclasses.replace(scores, position_query=query, backward=None)


def _scores_of_blocks(
    scores: Scores, value: tf.Tensor, oldest: tf.Tensor | None = None
) -> Iterator[tuple[Block, tf.Tensor, tf.Tensor]]:
    """Each Block, its scores [B, H, rows, seen], and the values that it sees; oldest: of a ring that one row reads."""
    query, key, t_len = scores.query, scores.key, scores.query.shape[2]
    blocks = [block._replace(seen=_seen(scores, block)) for block in scores.blocks(TILE)]
    # With bfloat16 scores the joined gradients would be copied.
    joined = t_len > TILE and _is_wide(scores, TILE, key.shape[2])
    queries, position_queries = (
        [None] * len(blocks) if x is None else _rows_of_blocks(x, blocks, joined)
        for x in (query, scores.position_query)
    )
    keys, values = (_first_rows(x, [block.seen for block in blocks], joined) for x in (key, value))
    for i, block in enumerate(blocks):
        wide = _is_wide(scores, block.last - block.first, block.seen)
        score = wide_product("bhtd,bhkd->bhtk", queries[i], keys[i], wide)
        if scores.position is not None:
            places = None if scores.places is None else scores.places[:, block.first : block.last]
            position = cut(
                scores.position, -2, 0 if places is not None else t_len - block.last, scores.position.shape[-2]
            )
            term = shifted_scores(position_queries[i], position, block.seen, places, wide)
            term = term if oldest is None else tf.roll(term, oldest, axis=-1)
            score += tf.cast(term, score.dtype)
        yield block, score, values[i]


def _only_read(score: tf.Tensor, value: tf.Tensor, hide: tf.Tensor) -> tf.Tensor:
    """softmax(score + hide) times value, without gradient.

    The exponentials are summed by a product with ones, and computed within the two products that use them, which is
    faster than writing them.
    """
    masked = tf.cast(score, hide.dtype) + hide
    weight = tf.cast(tf.exp(masked - tf.reduce_max(masked, axis=-1, keepdims=True)), score.dtype)
    total = wide_product("bhtk,kn->bhtn", weight, tf.ones([weight.shape[-1], TILE], weight.dtype))[..., :1]
    output = wide_product("bhtk,bhkd->bhtd", tf.cast(weight, value.dtype), value, score.dtype != tf.bfloat16)
    return tf.cast(tf.cast(output, hide.dtype) * (1 / total), value.dtype)


def _seen(scores: Scores, block: Block) -> int:
    """How many keys are computed for a block."""
    k_len = scores.key.shape[2]
    fewest = min(k_len, FEWEST_TILES * TILE)
    rows = min(scores.query.shape[2], TILE)
    rotated = scores.position is not None and is_rotated(scores.query.dtype, rows, fewest)
    return max(block.seen, fewest) if rotated else block.seen


def _is_wide(scores: Scores, rows: int, seen: int) -> bool:
    """Whether scores of a block of rows, with the keys seen, are float32: if they stay in fast memory.

    So are they if the scores of all queries would not stay there even in bfloat16. Whole blocks would then be copied
    from one layout to another in slow memory, which tiles in float32 are not.
    """
    batch, heads, t_len = scores.query.shape[:3]
    if None in (batch, heads):
        return False
    positions = scores.position is not None and scores.places is None
    in_tiles = positions and is_rotated(scores.query.dtype, rows, seen) and seen <= MOST_TILES * TILE
    large = batch * heads * t_len * scores.key.shape[2] > FAST_MEMORY
    return batch * heads * rows * seen <= WIDEST or (large and in_tiles)


def _rows_of_blocks(x: tf.Tensor, blocks: Sequence[Block], joined: bool) -> list[tf.Tensor]:
    """The rows of each block of x [.., T, d]; joined: their gradients are concatenated, not padded and added."""
    if joined:
        return tf.split(x, [block.last - block.first for block in blocks], axis=-2)
    return [block.queries(x) for block in blocks]


def _first_rows(x: tf.Tensor, counts: list[int], joined: bool) -> list[tf.Tensor]:
    """The first rows of x [.., K, d], once for each count; none of the counts is smaller than the one before.

    With `joined` each part is cut from the next larger one. The matmul that computes the gradient of the larger part
    then also adds that of the smaller one. Otherwise one operation adds up the padded gradients of all parts.
    """
    parts: list[tf.Tensor] = []
    for count in reversed(counts):
        parts.insert(0, cut(parts[0] if joined and parts else x, -2, 0, count))
    return parts


def shifted_scores(
    query: tf.Tensor, position: tf.Tensor, k_len: int, places: tf.Tensor | None = None, wide: bool = True
) -> tf.Tensor:
    """The position term of the scores, by key: score[i, j] = query[i] . position[j + T-1-i].

    On a TPU it is expensive to shift each row by a different number of columns, while a product with a permutation
    matrix rotates a row at almost no cost, and exactly. That is used in bfloat16.

    Args:
        query: [B, H, T, d].
        position: [H, K or more, d], farthest distance first. Scores that would need rows after the last are undefined.
        k_len: K.
        places, wide: as in Scores, and whether products are float32 at least.
    """
    if is_rotated(query.dtype, query.shape[2], k_len):
        return rotated_scores(query, position, k_len, places, wide)
    by_distance = wide_product("bhtd,hkd->bhtk", query, position)
    if places is None:
        return relative_shift(by_distance, k_len)
    return columns_from(by_distance, position.shape[-2] - k_len - places, k_len)


def widened(x: tf.Tensor) -> tf.Tensor:
    """A bfloat16 tensor in float32; others unchanged."""
    return tf.cast(x, tf.float32) if x.dtype == tf.bfloat16 else x


def wide_product(equation: str, x: tf.Tensor, y: tf.Tensor, wide: bool = True) -> tf.Tensor:
    """tf.einsum; if `wide`, the product of bfloat16 tensors is float32, as the matrix units compute it."""
    return tf.einsum(equation, widened(x), widened(y)) if wide else tf.einsum(equation, x, y)


def computed_once(x: tf.Tensor) -> tf.Tensor:
    """x, which the compiler then stores instead of computing it again in each operation that uses it."""
    return gen_xla_ops.xla_optimization_barrier([x])[0] if tf.inside_function() else x


def is_rotated(dtype: tf.DType, rows: int, k_len: int) -> bool:
    """Whether `rotated_scores` is used for these numbers of queries and keys: in bfloat16, for whole tiles of keys."""
    return dtype == tf.bfloat16 and 1 < rows <= TILE and k_len % TILE == 0


def rotated_scores(
    query: tf.Tensor,
    position: tf.Tensor,
    k_len: int,
    places: tf.Tensor | None = None,
    wide: bool = True,
) -> tf.Tensor:
    """The position term by matmuls and a selection: score[i, j] = query[i] . position[j + s], where s = T-1-i.

    Row i moves left by s = 128 n + r columns, r < 128. In tiles of 128 columns, column j of a tile takes the value in
    column (j + r) mod 128 of the tile that is n tiles further, or n + 1 tiles if j + r >= 128. The steps:
    1. products with the positions from row 0, 128, .. on;
    2. for each column c of a tile, the product that is n tiles further if c >= r, else the next one;
    3. a rotation of each row of a tile by its r.

    Args:
        query: [B, H, T, d], or [B, H, P, d] with places; at most 128 queries.
        position: [H, K or more, d], farthest distance first. Scores that would need rows after the last are undefined.
        k_len: K, a multiple of 128.
        places: int [B, P]; query i is the token places[i] of T, so that s = T-1-places[i]; position
            then has K + T-1 rows. None: of query i, i.
        wide: whether products are float32 at least.
    """
    if places is None and wide and k_len <= MOST_TILES * TILE:
        return _rotated_tiles(query, position, k_len)
    heads, rows = query.shape[1:3]
    if places is None:
        tiles = 1
        plan = _shared(
            f"rotation {rows} {k_len} {query.dtype.name}",
            lambda: _plan(rows - 1 - tf.range(rows), k_len, tiles, query),
        )
    else:
        t_len = position.shape[-2] - k_len + 1
        tiles = -(-t_len // TILE)
        plan = _plan((t_len - 1 - places)[:, None], k_len, tiles, query)
    rotation, chosen, kept = plan[0], plan[1 : tiles + 2], plan[tiles + 2 :]
    position = _padded(position if wide else tf.cast(position, query.dtype), k_len + tiles * TILE)
    products = [
        wide_product("bhtd,hkd->bhtk", query, position[:, n * TILE : n * TILE + k_len], wide) for n in range(tiles + 1)
    ]
    score = tf.reshape(_selected(products, chosen, kept, query.dtype), [-1, heads, rows, k_len // TILE, TILE])
    equation = "bhtnc,tcj->bhtnj" if places is None else "bhtnc,btcj->bhtnj"
    return tf.reshape(wide_product(equation, score, rotation, wide), [-1, heads, rows, k_len])


def _padded(position: tf.Tensor, rows: int) -> tf.Tensor:
    """Positions [H, C, d] cut to `rows` rows, or padded with rows of zeros."""
    missing = rows - position.shape[1]
    return tf.pad(position, [[0, 0], [0, missing], [0, 0]]) if missing > 0 else position[:, :rows]


def _rotated_tiles(query: tf.Tensor, position: tf.Tensor, k_len: int) -> tf.Tensor:
    """`rotated_scores` of neighbouring queries in float32, tile by tile; a tile needs two neighbouring products.

    As one tensor [B, H, T, n, 128] the tiles would be copied from one layout to another and back.
    """
    rows, tiles = query.shape[2], k_len // TILE
    shift = rows - 1 - tf.range(rows)
    plan = _shared(f"rotation of tiles {rows} {query.dtype.name}", lambda: _plan(shift, TILE, 1, query))
    rotation, (_, next_one), (keep_this, keep_next) = plan[0], plan[1:3], plan[3:]

    @custom_gradient
    def run(query: tf.Tensor, position: tf.Tensor) -> WithGradient:
        parts = tf.split(position, tiles + 1, axis=1)
        products = [wide_product("bhtd,hkd->bhtk", query, part) for part in parts]
        # By multiplications: with a selection the compiler would round all products to bfloat16 first.
        selected = [this * keep_this + following * keep_next for this, following in itertools.pairwise(products)]

        def gradient(d_score: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.name_scope(ATTENTION):
                d_parts = tf.split(d_score, tiles, axis=-1)
                d_selected = [wide_product("bhtj,tcj->bhtc", part, rotation) for part in d_parts]
                zero = tf.zeros_like(d_selected[0])
                neighbours = itertools.pairwise([zero, *d_selected, zero])
                d_products = [tf.where(next_one, before, own) for before, own in neighbours]
                if tiles == 1:  # the selections are computed within the matmuls; concatenated, they would be written
                    pairs = list(zip(d_products, parts, strict=True))
                else:
                    pairs = [(tf.concat(d_products, axis=-1), position)]
                d_query = tf.add_n([wide_product("bhtk,hkd->bhtd", d_product, part) for d_product, part in pairs])
                d_position = tf.concat([wide_product("bhtk,bhtd->hkd", d_product, query) for d_product, _ in pairs], 1)
                return tf.cast(d_query, query.dtype), tf.cast(d_position, position.dtype)

        return tf.concat([wide_product("bhtc,tcj->bhtj", part, rotation) for part in selected], axis=-1), gradient

    return run(query, _padded(position, k_len + TILE))


def _plan(shift: tf.Tensor, k_len: int, tiles: int, query: tf.Tensor) -> list[tf.Tensor]:
    """How rows of scores move by `shift`, int [T] or [B, 1, T].

    Returns:
        The rotations, [T, 128, 128] or [B, T, 128, 128]; bool [T, K] or [B, 1, T, K] for n = 0, .., tiles: the columns
        whose value is n tiles further; and the same as ones and zeros in the dtype of scores.
    """
    whole, rest = shift[..., None] // TILE, shift[..., None] % TILE
    column = tf.range(TILE)
    further = tf.tile(whole + tf.cast(column < rest, tf.int32), [1] * len(shift.shape) + [k_len // TILE])
    rest = rest if len(shift.shape) == 1 else rest[:, 0]
    rotation = tf.cast((column + rest[..., None]) % TILE == column[:, None], query.dtype)
    chosen = [further == n for n in range(tiles + 1)]
    return [rotation, *chosen, *(tf.cast(one, widened(rotation).dtype) for one in chosen)]


def _shared(name: str, make: Callable[[], list[tf.Tensor]]) -> list[tf.Tensor]:
    """The result of `make`, which is called once for all layers.

    It is constant, but TensorFlow may not see that: it would put a constant of 8 MB into the program for each product.
    """
    if tf.executing_eagerly():
        return make()
    found = tf.compat.v1.get_default_graph().get_collection_ref(f"txl_tf {name}")
    if not found:
        found.extend(computed_once(part) for part in make())
    return found


def _selected(products: list[tf.Tensor], chosen: list[tf.Tensor], kept: list[tf.Tensor], narrow: tf.DType) -> tf.Tensor:
    """For each number the chosen one of the products; `kept` is `chosen` as ones and zeros.

    The gradients are rounded to the dtype `narrow`, which the next matmuls need. By multiplications: with a selection
    the compiler would round all products to bfloat16 first.
    """

    @custom_gradient
    def run(*products: tf.Tensor) -> WithGradient:
        def gradient(d_selected: tf.Tensor) -> list[tf.Tensor]:
            d_narrow, zero = tf.cast(d_selected, narrow), tf.zeros([], narrow)
            return [tf.cast(tf.where(one, d_narrow, zero), d_selected.dtype) for one in chosen]

        if products[0].dtype == narrow:
            selected = products[0]
            for one, product in zip(chosen[1:], products[1:], strict=True):
                selected = tf.where(one, product, selected)
            return selected, gradient
        return tf.add_n([product * one for product, one in zip(products, kept, strict=True)]), gradient

    return run(*products)
