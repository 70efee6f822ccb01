"""Chunked evaluation of functions of points and features; the only module that vectorises.

The (points, features, dim) array is never stored. A row chunk ("strip", some points) goes through
all features in one compiled call; in it a loop over feature chunks ("tiles") needs `tile_bytes` of
memory. All strips have one shape (the last overlaps the one before): one compilation per shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial, wraps
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from heatnets._core.execution import ExecutionContext, within_memory

# Largest features x coordinates of one compiled call: about a second of work, so that progress is
# reported and Ctrl-C takes effect.
_STRIP_COORDINATES = {"cpu": 4e7, "gpu": 2e11}


def assemble_matrix(
    entry: Callable[..., PyTree],
    blocks: list[Any],
    context: PyTree,
    points: tuple[np.ndarray, ...],
    floats: int,
    ctx: ExecutionContext,
    phase: str,
    strip: int | None = None,
) -> PyTree:
    """Matrix of entry(context, feature, *point), rows over points and columns over features.

    Calls with one strip and one block size compile once, for large matrices twice, whatever the
    numbers of points and of blocks are.

    Args:
        entry: a module-level function of one feature and one point; returns a scalar, or a tuple of
            scalars (the result is then a tuple of matrices).
        blocks: blocks of features, modules whose arrays have a leading axis over features.
        context: traced pytree, passed to `entry`.
        points: arrays with a leading axis over points.
        floats: the floats that one entry may need for intermediate values.
        ctx: device, memory limit and progress callback.
        phase: name of the phase for progress reports.
        strip: upper bound on the points per compiled call.

    Returns:
        Matrices of shape (points, features) on the device.
    """

    def work(ctx: ExecutionContext) -> PyTree:
        rows, columns = len(points[0]), sum(map(_length, blocks))
        result: PyTree = None
        done = 0
        calls = _calls(blocks, rows, strip, lambda size: _cut(size, floats, points, ctx))
        for block, column, start, height, tile in calls:
            chunk = tuple(jnp.asarray(p[start : start + height]) for p in points)
            entries = _strip(entry, block, context, chunk, tile)
            if result is None:
                result = jax.tree.map(lambda _: jnp.zeros((rows, columns)), entries)
            result = _place(result, entries, start, column)
            jax.block_until_ready(result)
            # `min`, because the last strip overlaps the one before it.
            done = min(done + height * _length(block), rows * columns)
            ctx.progress(phase, done, rows * columns)
        return result

    return within_memory(work, ctx)


class _Call(NamedTuple):
    """One compiled call: a block of features at a strip of points."""

    block: Any
    column: int  # first column of the block in the matrix
    row: int  # first row of the strip
    height: int  # rows of the strip
    tile: int  # features per chunk


# Fewest calls for which compiling one more shape takes less time than the overhead of the calls.
_MANY = 1000
_MERGED = 16  # number of blocks, and of strips, that are then merged into one call


def _calls(
    blocks: list[Any], rows: int, strip: int | None, cut: Callable[[int], tuple[int, int]]
) -> Iterator[_Call]:
    """Divide a matrix into compiled calls of one block and one strip each.

    If there would be more than `_MANY` calls, runs of `_MERGED` blocks of the same structure and
    shape are merged, and so are strips; rows left over are computed block by block.

    Args:
        blocks: blocks of features.
        rows: number of points.
        strip: upper bound on the points per call.
        cut: maps a number of features to (points per strip, features per tile).
    """

    def strips(block: Any, column: int, first: int, max_height: int) -> Iterator[_Call]:
        """The calls for the rows of a block from `first` on."""
        height, tile = cut(_length(block))
        height = min(height, max_height, rows)
        yield from (
            _Call(block, column, start, height, tile)
            for start in _starts(rows, height)
            if start + height > first
        )

    max_height = strip or rows
    merging = strip is not None and len(blocks) * rows > _MANY * strip
    column = 0
    while blocks:
        size, group = _length(blocks[0]), blocks[:_MERGED]
        merged_height = 0  # a multiple of the strip
        if merging and size:
            highest = min(cut(_MERGED * size)[0], _MERGED * max_height, rows)
            merged_height = highest // max_height * max_height
        done = 0  # rows that the merged block has computed
        if merged_height and len(group) == _MERGED and _have_same_structure(group):
            done = rows // merged_height * merged_height
            merged = jax.tree.map(lambda *parts: jnp.concatenate(parts), *group)
            yield from (
                call
                for call in strips(merged, column, 0, merged_height)
                if call.row + call.height <= done
            )
        else:
            group = group[:1]
        for block in group:
            if _length(block):
                yield from strips(block, column, done, max_height) if done < rows else ()
            column += _length(block)
        blocks = blocks[len(group) :]


def _have_same_structure(blocks: list[Any]) -> bool:
    """Whether blocks agree in tree structure, shapes and dtypes, so that they can be merged."""
    return len({_structure(block) for block in blocks}) == 1


def _structure(block: Any) -> Any:
    """Tree structure, shapes and dtypes of a block."""
    leaves, structure = jax.tree.flatten(block)
    return structure, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)


def weighted_sum(
    terms: Callable[..., PyTree],
    blocks: list[tuple[Any, Float[Array, " features"]]],
    context: PyTree,
    points: tuple[np.ndarray, ...],
    floats: int,
    ctx: ExecutionContext,
    phase: str,
) -> PyTree:
    """Sum over all features of terms(context, features, weights, *point), at all points.

    Args:
        terms: maps a feature chunk, its weights and one point to a pytree of sums over the chunk.
        blocks: blocks of features with their weights, shape (features, ...).
        context: traced pytree, passed to `terms`.
        points: arrays with a leading axis over points.
        floats: the floats that one (point, feature) may need for intermediate values.
        ctx: device, memory limit and progress callback.
        phase: name of the phase for progress reports.

    Returns:
        A pytree of NumPy arrays with a leading axis over points.
    """

    def work(ctx: ExecutionContext) -> PyTree:
        strip, tile = _cut(max(_length(block) for block, _ in blocks), floats, points, ctx)
        rows = len(points[0])
        return _stream(
            lambda chunk: _sum(terms, blocks, context, chunk, tile),
            points,
            strip,
            lambda done: ctx.progress(phase, done, rows),
        )

    return within_memory(work, ctx)


def map_points(
    function: Callable[..., PyTree],
    context: PyTree,
    points: tuple[np.ndarray, ...],
    floats: int,
    ctx: ExecutionContext,
) -> PyTree:
    """Values function(context, *point) at all points, as NumPy arrays.

    No progress is reported, because this is fast. Arguments are those of `contract`.
    """

    def work(ctx: ExecutionContext) -> PyTree:
        strip, _ = _cut(1, floats, points, ctx)
        return _stream(lambda chunk: _map(function, context, chunk), points, strip)

    return within_memory(work, ctx)


def _stream(
    run: Callable[[tuple[Array, ...]], PyTree],
    points: tuple[np.ndarray, ...],
    strip: int,
    report: Callable[[int], None] = lambda done: None,
) -> PyTree:
    """Apply `run` to one strip of points after the other, and concatenate the results in NumPy."""
    rows, done, pieces = len(points[0]), 0, []
    if rows < strip:
        # Few points: pad to the next power of two, so that few shapes are ever compiled.
        strip = min(strip, 1 << (rows - 1).bit_length())
    for start in _starts(rows, strip):
        chunk = (p[start : start + strip] for p in points)
        padded = tuple(
            jnp.asarray(np.concatenate([p, np.repeat(p[-1:], strip - len(p), axis=0)]))
            for p in chunk
        )
        piece = jax.tree.map(np.asarray, run(padded))
        # The last strip overlaps the one before it, or runs past the end: keep only new rows.
        pieces.append(jax.tree.map(lambda a, first=done - start: a[first : rows - start], piece))
        done = min(start + strip, rows)
        report(done)
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)


def _length(block: Any) -> int:
    """Number of features of a block."""
    return len(jax.tree.leaves(block)[0])


def _cut(
    features: int, floats: int, points: tuple[np.ndarray, ...], ctx: ExecutionContext
) -> tuple[int, int]:
    """Choose the sizes of chunks: points per strip and features per tile.

    `floats` is the workspace of one (point, feature). A tile has 64 features on a CPU and 256 on a
    GPU, or fewer if memory is short; the strip then fills `tile_bytes` or a second of work.
    """
    entries = max(1, ctx.tile_bytes // (8 * floats))
    width = sum(int(np.prod(p.shape[1:], dtype=int)) for p in points)
    work = _STRIP_COORDINATES.get(ctx.device.platform, 1e9)
    if entries < 64 * 64:
        max_tile = int(np.sqrt(entries))
    else:
        max_tile = 64 if ctx.device.platform == "cpu" else 256
    tile = max(1, min(features, max_tile))
    return max(1, min(entries // tile, int(work / (features * width)))), tile


def _starts(rows: int, strip: int) -> list[int]:
    """First rows of the strips; the last strip ends at the last row, unless there are too few."""
    return [max(0, min(start, rows - strip)) for start in range(0, rows, strip)]


def _tile_indices(size: int, tile: int) -> Array:
    """Feature indices, shape (tiles, tile); those past the end repeat the last feature."""
    return jnp.minimum(jnp.arange(-(-size // tile) * tile), size - 1).reshape(-1, tile)


@partial(jax.jit, donate_argnums=0)
def _place(result: PyTree, entries: PyTree, row: int, column: int) -> PyTree:
    """Write `entries` into the matrices `result` at (row, column), in place."""
    return jax.tree.map(
        lambda assemble_matrix, part: jax.lax.dynamic_update_slice(
            assemble_matrix, part, (row, column)
        ),
        result,
        entries,
    )


def _compiled(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Decorator: `eqx.filter_jit` with compiler options that depend on the platform.

    On a GPU XLA does not compare its two code generators on each fusion: this comparison took 195
    seconds for one sum over tiles in 1000 dimensions, and gains nothing on such sums.
    """

    @cache
    def on(platform: str) -> Callable[..., PyTree]:
        return eqx.filter_jit(function, compiler_options=compiler_options(platform))  # type: ignore[call-overload]

    @wraps(function)
    def run(*arguments: Any) -> PyTree:
        return on(_platform())(*arguments)

    run.on = on  # type: ignore[attr-defined]
    return run


def _platform() -> str:
    """Platform of the default device."""
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    if device is None:
        return jax.default_backend()
    return device if isinstance(device, str) else device.platform


@cache
def compiler_options(platform: str) -> dict[str, Any] | None:
    """XLA compiler options for a platform, or None."""
    if platform == "cpu":
        return None
    options = {"xla_gpu_experimental_enable_fusion_autotuner": False}
    try:  # other versions of XLA may not know this option
        jax.jit(lambda x: x + 1, compiler_options=options)(jnp.zeros(()))
    except Exception:
        return None
    return options


@_compiled
def _strip(
    entry: Callable[..., PyTree], block: Any, context: PyTree, points: tuple[Array, ...], tile: int
) -> PyTree:
    """Entries of one block at one strip of points, shape (points, features), tile by tile."""
    size = _length(block)

    def one_tile(index: Array) -> PyTree:
        features = jax.tree.map(lambda a: a[index], block)
        over_features = jax.vmap(partial(entry, context), in_axes=(0, *[None] * len(points)))
        return jax.vmap(over_features, in_axes=(None, *[0] * len(points)))(features, *points)

    tiles = jax.lax.map(one_tile, _tile_indices(size, tile))  # (tiles, points, tile)
    return jax.tree.map(lambda a: jnp.moveaxis(a, 0, 1).reshape(a.shape[1], -1)[:, :size], tiles)


@_compiled
def _sum(
    terms: Callable[..., PyTree],
    blocks: list[tuple[Any, Array]],
    context: PyTree,
    points: tuple[Array, ...],
    tile: int,
) -> PyTree:
    """Weighted sums over all blocks at one strip of points."""

    def one_block(block: Any, weights: Array) -> PyTree:
        index = _tile_indices(len(weights), min(tile, len(weights)))
        # Repeated features at the end get weight zero.
        padding = [(0, index.size - len(weights)), *[(0, 0)] * (weights.ndim - 1)]
        padded = jnp.pad(weights, padding).reshape(*index.shape, *weights.shape[1:])

        def one_tile(index: Array, weights: Array) -> PyTree:
            features = jax.tree.map(lambda a: a[index], block)
            return jax.vmap(partial(terms, context, features, weights))(*points)

        def add(total: PyTree, piece: tuple[Array, Array]) -> tuple[PyTree, None]:
            return jax.tree.map(jnp.add, total, one_tile(*piece)), None

        shapes = jax.eval_shape(one_tile, index[0], padded[0])
        zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return jax.lax.scan(add, zero, (index, padded))[0]

    return jax.tree.map(lambda *parts: sum(parts), *(one_block(*pair) for pair in blocks))


@_compiled
def _map(function: Callable[..., PyTree], context: PyTree, points: tuple[Array, ...]) -> PyTree:
    """Values of a function at one strip of points."""
    return jax.vmap(partial(function, context))(*points)
