"""Attention with relative positions as kernels for a GPU, which keep the scores on the chip, forward and backward.

XLA has no such kernel for scores by position: it writes and reads a layer's scores [B, H, T, K] about twenty times.
These are written in Pallas, which JAX lowers to Triton's language and XLA compiles. JAX does nothing else here.

A tile has N queries and N keys. Its position term is one product with the 2 N positions around it, whose row a then
moves left by N-1-a. The gradient of the positions has tiles of queries and distances instead. There the
products with keys and with values move to the right.

Shapes: as in `Scores`. All sizes of a call are static.
"""

from __future__ import annotations

import copy
import functools
import math
import typing
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src.lib.mlir import ir
from jax._src.lib.triton import dialect
from jax._src.pallas.triton import lowering
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.extend.core import Primitive
from jax.interpreters import mlir

from txl_tf.ops.scores import MASKED, TILE

jax.config.update("jax_platforms", "cpu")  # on a GPU JAX would reserve most of the memory

TARGET = "__gpu$xla.gpu.triton"
"""The name of XLA's custom call for a kernel in Triton's language."""


class Sizes(typing.NamedTuple):
    """The sizes of a call.

    masks: 1, a mask for all lanes, or as many as lanes.
    rate: of dropout.
    tf32: whether float32 products may round their factors to TF32.
    """

    batch: int
    heads: int
    queries: int
    keys: int
    positions: int
    width: int
    masks: int
    causal: bool
    rate: float
    tf32: bool

    def tile(self) -> int:
        """N: the queries, keys or distances of a tile, as many as fit on the chip."""
        return 64 if self.width <= 64 else 32

    def lanes(self) -> int:
        """How many lanes share a gradient of the positions."""
        return math.gcd(self.batch, 4)


class Operands(typing.NamedTuple):
    """The rows that scores and values are made of: [B, length, H, d], positions [C, H, d]; in a kernel one head's.

    A kernel's inputs are these, the masks int8 [masks, T, K], and the seeds of dropout, uint32 [B, 2].
    """

    query: Any
    position_query: Any
    key: Any
    position: Any
    value: Any


class _Tile:
    """Tiles of the inputs of one lane, and the operations on them."""

    def __init__(self, sizes: Sizes, inputs: Sequence[Any]):
        *refs, self.mask, self.seed = inputs
        self.sizes, self.refs, self.head = sizes, Operands(*refs), pl.program_id(2)
        self.lane: Any = 0
        self.n = sizes.tile()

    def row(self, columns: int = 1) -> Any:
        """Each row's number, [N, N], or [N, columns N]."""
        return lax.broadcasted_iota(jnp.int32, (self.n, columns * self.n), 0)

    def column(self, columns: int = 1) -> Any:
        """Each column's number, [N, N], or [N, columns N]."""
        return lax.broadcasted_iota(jnp.int32, (self.n, columns * self.n), 1)

    def of_lane(self, lane: Any) -> Any:
        """The same for another of the lanes."""
        other = copy.copy(self)
        other.lane = lane
        return other

    def rows(self, ref: Any, numbers: Any) -> Any:
        """Rows of a matrix, with zeros up to a power of two; the nearest row for a number that does not exist."""
        *lanes, length, width = ref.shape
        column = jnp.arange(self.zeros().shape[1])
        index = *[self.lane for _ in lanes], jnp.clip(numbers, 0, length - 1)[:, None], column[None]
        if width == len(column):
            return plgpu.load(ref.at[index])
        exists = jnp.broadcast_to(column < width, (len(numbers), len(column)))
        return plgpu.load(ref.at[index], mask=exists, other=0)

    def zeros(self) -> Any:
        """A tile of zeros, as wide as `rows`."""
        return jnp.zeros((self.n, max(16, 1 << (self.sizes.width - 1).bit_length())), jnp.float32)

    def store(self, ref: Any, first: Any, x: Any) -> None:
        """Writes the rows and columns of x [N, ..] that exist from row `first` on."""
        length, width = ref.shape
        exists = (first + jnp.arange(self.n) < length)[:, None] & (jnp.arange(x.shape[1]) < width)[None]
        plgpu.store(ref.at[pl.ds(first, self.n), pl.ds(0, x.shape[1])], x.astype(ref.dtype), mask=exists)

    def dot(self, x: Any, y: Any) -> Any:
        """The matrix product, in float32."""
        return pl.dot(x, y.astype(x.dtype), allow_tf32=self.sizes.tf32)

    def key_tiles(self, first_query: Any) -> Any:
        """How many tiles of keys a tile of queries may see."""
        seen, keys = first_query + self.n + self.sizes.keys - self.sizes.queries, self.sizes.keys
        return pl.cdiv(jnp.minimum(seen, keys) if self.sizes.causal else keys, self.n)

    def masked(self, score: Any, queries: Any, keys: Any) -> Any:
        """Scores, with MASKED where the mask is false, and -inf where there is no such query or key."""
        queries = jnp.broadcast_to(queries, score.shape)
        masks, t_len, k_len = self.mask.shape
        lane = jnp.full((1, 1), self.lane if masks > 1 else 0)
        seen = plgpu.load(self.mask.at[lane, jnp.clip(queries, 0, t_len - 1), jnp.clip(keys, 0, k_len - 1)])
        exists = (queries < t_len) & (keys >= 0) & (keys < k_len)
        return jnp.where(exists, jnp.where(seen != 0, score, MASKED), -jnp.inf)

    def dropped(self, x: Any, queries: Any, keys: Any) -> Any:
        """x after dropout of the probabilities of these queries and keys, with the masks of `tile_mask`."""
        if not self.sizes.rate:
            return x
        first = queries // TILE * TILE
        last = jnp.minimum(first + TILE, self.sizes.queries)
        seen = last + self.sizes.keys - self.sizes.queries if self.sizes.causal else self.sizes.keys
        index = (self.head * (last - first) + queries - first) * seen + keys
        words = [plgpu.load(self.seed.at[jnp.full((1, 1), self.lane), jnp.full((1, 1), i)]) for i in range(2)]
        bits = _bits_at(index.astype(jnp.uint32), words[0], words[1] + first.astype(jnp.uint32))
        return jnp.where(bits >= np.uint32(self.sizes.rate * 2**32), x / (1 - self.sizes.rate), 0)

    def by_key(self, first_query: Any, first_key: Any) -> tuple[Any, Any, Operands]:
        """The scores of a tile of queries and keys, their keys' numbers, and the rows: positions for 2 N distances."""
        queries, keys = first_query + jnp.arange(self.n), first_key + jnp.arange(self.n)
        window = first_key + self.sizes.queries - first_query - self.n + jnp.arange(2 * self.n)
        numbers = queries, queries, keys, window, keys
        parts = Operands(*map(self.rows, self.refs, numbers))
        score = self.dot(parts.query, parts.key.T)
        score += take_columns(self.dot(parts.position_query, parts.position.T), self.column() + self.n - 1 - self.row())
        numbers = first_key + self.column()
        return self.masked(score, queries[:, None], numbers), numbers, parts

    def by_distance(self, first_query: Any, first_position: Any) -> tuple[Any, Any, Operands]:
        """The same for a tile of queries and distances; the rows have keys and values for 2 N keys."""
        queries, positions = first_query + jnp.arange(self.n), first_position + jnp.arange(self.n)
        first_key = first_position + first_query - (self.sizes.queries - 1)
        window = first_key + jnp.arange(2 * self.n)
        numbers = queries, queries, window, positions, window
        parts = Operands(*map(self.rows, self.refs, numbers))
        score = take_columns(self.dot(parts.query, parts.key.T), self.column() + self.row())
        score += self.dot(parts.position_query, parts.position.T)
        numbers = first_key + self.row() + self.column()
        return self.masked(score, queries[:, None], numbers), numbers, parts

    def moved_back(self, d_score: Any) -> Any:
        """The gradient of a tile's products with 2 N positions, from that of the scores by key."""
        source = self.column(2) - (self.n - 1 - self.row(2))
        moved = take_columns(d_score, jnp.clip(source, 0, self.n - 1))
        return jnp.where((source >= 0) & (source < self.n), moved, 0)


def output(sizes: Sizes, *refs: Any) -> None:
    """The weighted values [T, d], and of each row the log of the sum of the exponentials of its scores, [T]."""
    *inputs, out, log_sum = refs
    tile = _Tile(sizes, inputs)
    first = pl.program_id(0) * tile.n

    def add(i: Any, carry: Any) -> Any:
        summed, total, top = carry
        score, keys, parts = tile.by_key(first, i * tile.n)
        new_top = jnp.maximum(top, jnp.max(score, axis=1))
        weight, scale = jnp.exp(score - new_top[:, None]), jnp.exp(top - new_top)
        dropped = tile.dropped(weight, first + tile.row(), keys).astype(parts.value.dtype)
        summed = summed * scale[:, None] + tile.dot(dropped, parts.value)
        return summed, total * scale + jnp.sum(weight, axis=1), new_top

    start = tile.zeros(), jnp.zeros(tile.n, jnp.float32), jnp.full(tile.n, 2 * MASKED, jnp.float32)
    summed, total, top = lax.fori_loop(0, tile.key_tiles(first), add, start)
    tile.store(out, first, summed / total[:, None])
    exists = first + jnp.arange(tile.n) < sizes.queries
    plgpu.store(log_sum.at[pl.ds(first, tile.n)], top + jnp.log(total), mask=exists)


class _Gradient(_Tile):
    """Also the results of `output`, and the output's gradient."""

    def __init__(self, sizes: Sizes, refs: Sequence[Any]):
        *inputs, self.output, self.log_sum, self.d_output = refs
        super().__init__(sizes, inputs)

    def of_score(
        self, score: Any, value: Any, first: Any, keys: Any, move: Callable[[Any], Any] = lambda x: x
    ) -> tuple[Any, ...]:
        """The gradient of a tile's scores, the probabilities after dropout, and the output's gradient.

        first: number of the tile's first query; keys: [N, N], the scores' keys; move: of products by distance.
        """
        rows = first + jnp.arange(self.n)
        log_sum = plgpu.load(self.log_sum.at[self.lane, jnp.clip(rows, 0, self.sizes.queries - 1)])
        weight = jnp.exp(score - log_sum[:, None])
        output, d_output = self.rows(self.output, rows), self.rows(self.d_output, rows)
        d_sum = jnp.sum(output.astype(jnp.float32) * d_output.astype(jnp.float32), axis=1)
        d_weight = self.dropped(move(self.dot(d_output, value.T)), first + self.row(), keys)
        dropped = self.dropped(weight, first + self.row(), keys)
        return (weight * (d_weight - d_sum[:, None])).astype(value.dtype), dropped.astype(value.dtype), d_output


def of_queries(sizes: Sizes, *refs: Any) -> None:
    """The gradients of a tile of queries and position queries."""
    *inputs, d_query, d_position_query = refs
    tile = _Gradient(sizes, inputs)
    first = pl.program_id(0) * tile.n

    def add(i: Any, sums: Any) -> Any:
        score, keys, parts = tile.by_key(first, i * tile.n)
        d_score, _, _ = tile.of_score(score, parts.value, first, keys)
        return sums[0] + tile.dot(d_score, parts.key), sums[1] + tile.dot(tile.moved_back(d_score), parts.position)

    sums = lax.fori_loop(0, tile.key_tiles(first), add, (tile.zeros(), tile.zeros()))
    for ref, x in zip((d_query, d_position_query), sums, strict=True):
        tile.store(ref, first, x)


def of_keys(sizes: Sizes, *refs: Any) -> None:
    """The gradients of a tile of keys and values."""
    *inputs, d_key, d_value = refs
    tile = _Gradient(sizes, inputs)
    first = pl.program_id(0) * tile.n
    start = jnp.maximum(first - (sizes.keys - sizes.queries), 0) // tile.n if sizes.causal else 0

    def add(i: Any, sums: Any) -> Any:
        score, keys, parts = tile.by_key(i * tile.n, first)
        d_score, weight, d_output = tile.of_score(score, parts.value, i * tile.n, keys)
        return sums[0] + tile.dot(d_score.T, parts.query), sums[1] + tile.dot(weight.T, d_output)

    sums = lax.fori_loop(start, pl.cdiv(sizes.queries, tile.n), add, (tile.zeros(), tile.zeros()))
    for ref, x in zip((d_key, d_value), sums, strict=True):
        tile.store(ref, first, x)


def of_positions(sizes: Sizes, *refs: Any) -> None:
    """The gradient of a tile of positions, summed over a few lanes."""
    *inputs, d_position = refs
    tiles = _Gradient(sizes, inputs)
    first = pl.program_id(0) * tiles.n
    start = jnp.maximum(sizes.queries - first - tiles.n, 0) // tiles.n
    stop = pl.cdiv(jnp.minimum(sizes.queries, sizes.queries - 1 - first + sizes.keys), tiles.n)
    move = functools.partial(take_columns, index=tiles.column() + tiles.row())

    def add(lane: Any, i: Any, summed: Any) -> Any:
        tile = tiles.of_lane(lane)
        score, keys, parts = tile.by_distance(i * tiles.n, first)
        d_score, _, _ = tile.of_score(score, parts.value, i * tiles.n, keys, move)
        return summed + tile.dot(d_score.T, parts.position_query)

    def add_lane(lane: Any, summed: Any) -> Any:
        return lax.fori_loop(start, stop, functools.partial(add, lane), summed)

    tiles.store(d_position, first, lax.fori_loop(0, sizes.lanes(), add_lane, tiles.zeros()))


def _bits_at(index: Any, first: Any, second: Any) -> Any:
    """`hashing.bits_at` of a seed's two words."""

    def fold(bits: Any, distance: int) -> Any:
        return bits ^ lax.shift_right_logical(bits, np.uint32(distance))

    bits = fold(index * np.uint32(0x9E3779B9) + first, 16) ^ second * np.uint32(0x85EBCA6B)
    return fold(fold(bits * np.uint32(0x21F0AAAD), 15) * np.uint32(0x735A2D97), 15)


def program(kernel: Callable[..., None], sizes: Sizes, interpret: bool = False) -> Callable[..., list[Any]]:
    """A kernel for all lanes and heads, as a function of JAX arrays.

    kernel: `output`, of Operands, masks and seeds; or `of_queries`, `of_keys`, `of_positions`, also of the results of
        `output` and the output's gradient. Results have the dtype of the queries, but the logs of sums [B, H, T] and
        the positions' gradients [B / lanes, C, H, d] are float32.
    interpret: whether JAX runs it on a CPU.
    """
    batch, heads, t_len, k_len, positions, width, masks, *_ = sizes
    lanes = sizes.lanes() if kernel is of_positions else 1

    def rows(length: int, lanes: int | None = lanes) -> Any:
        return pl.BlockSpec((lanes, length, None, width), lambda i, b, h: (b, 0, h, 0))

    position = pl.BlockSpec((positions, None, width), lambda i, b, h: (0, h, 0))
    mask = pl.BlockSpec((min(masks, lanes), t_len, k_len), lambda i, b, h: (b if masks > 1 else 0, 0, 0))
    seeds = pl.BlockSpec((lanes, 2), lambda i, b, h: (b, 0))
    specs = [rows(t_len), rows(t_len), rows(k_len), position, rows(k_len), mask, seeds]
    if kernel is not output:
        specs += [rows(t_len), pl.BlockSpec((lanes, None, t_len), lambda i, b, h: (b, h, 0)), rows(t_len)]
    length, count = {output: (t_len, 1), of_queries: (t_len, 2), of_keys: (k_len, 2), of_positions: (positions, 1)}[
        kernel
    ]

    def run(*inputs: Any) -> list[Any]:
        dtype = jnp.float32 if kernel is of_positions else inputs[0].dtype
        shapes = [jax.ShapeDtypeStruct((batch // lanes, length, heads, width), dtype)] * count
        results = [rows(length, None)] * count
        if kernel is output:
            shapes.append(jax.ShapeDtypeStruct((batch, heads, t_len), jnp.float32))
            results.append(pl.BlockSpec((None, None, t_len), lambda i, b, h: (b, h, 0)))
        return pl.pallas_call(
            functools.partial(kernel, sizes),
            grid=(pl.cdiv(length, sizes.tile()), batch // lanes, heads),
            in_specs=specs,
            out_specs=results,
            out_shape=shapes,
            interpret=interpret,
            compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1),
            name=kernel.__name__,
        )(*inputs)

    return run


Form = tuple[tuple[int, ...], str]
"""An array's shape and dtype."""


@functools.cache
def lowered(kernel: Callable[..., None], sizes: Sizes, inputs: tuple[Form, ...]) -> tuple[str, list[Form]]:
    """The attributes of a kernel for the custom call TARGET, as the text of an MLIR dictionary; and its results."""
    arrays, run = [jax.ShapeDtypeStruct(*form) for form in inputs], program(kernel, sizes)
    module = jax.jit(run).trace(*arrays).lower(lowering_platforms=("cuda",)).compiler_ir("stablehlo")
    found: list[str] = []

    def visit(operation: Any) -> Any:
        if operation.name == "stablehlo.custom_call":
            entries = {entry.name: entry.attr for entry in operation.attributes["mhlo.backend_config"]}
            # As text and without source lines: the bytes of one version of MLIR cannot be read by another.
            triton = ir.Module.parse(ir.StringAttr(entries["ir"]).value_bytes)
            entries["ir"] = ir.StringAttr.get(str(triton.operation.get_asm(enable_debug_info=False)))
            found.append(str(ir.DictAttr.get(entries)))
        return ir.WalkResult.ADVANCE

    with module.context:
        dialect.register_dialect(module.context)
        module.operation.walk(visit)
    return found[0], [(result.shape, result.dtype.name) for result in jax.eval_shape(run, *arrays)]


def take_columns(x: Any, index: Any) -> Any:
    """[i, j] of the result is x[i, index[i, j]]; JAX has no such operation for kernels, Triton has."""
    return _take_columns.bind(x, index)


_take_columns = Primitive("take_columns")
_take_columns.def_impl(functools.partial(jnp.take_along_axis, axis=1))
_take_columns.def_abstract_eval(lambda x, index: x.update(shape=index.shape))
mlir.register_lowering(
    _take_columns, mlir.lower_fun(functools.partial(jnp.take_along_axis, axis=1), multiple_results=False)
)


@lowering.register_lowering(_take_columns)
def _lower_take_columns(context: Any, x: Any, index: Any) -> Any:
    result = ir.RankedTensorType.get(index.type.shape, ir.RankedTensorType(x.type).element_type)
    axis = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1)
    return ir.Operation.create("tt.gather", results=[result], operands=[x, index], attributes={"axis": axis}).result
