"""Scores of attention on a TPU: products in float32, and shifts of rows by products with permutation matrices.

Shapes: B batch, H heads, T queries, K keys, C positions, d = d_head.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from txl_tf.ops.gradients import ATTENTION, WithGradient, custom_gradient
from txl_tf.ops.scores import TILE

MOST_TILES = 28  # of keys; with more, it is faster to do all of them at once


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
    t_len: int | None = None,
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
        places: int [B, P]; query i is the token places[i] of T, so that s = T-1-places[i]. None: of query i, i.
        t_len: T, given with places.
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
        assert t_len is not None
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
