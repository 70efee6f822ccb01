"""Chunked evaluation of functions of points and features; the only module that vectorises.

The (points, features, dim) array is never stored. A row chunk (some points) goes through all
features in one compiled call; in it a loop over feature chunks needs `tile_bytes` of memory. All
row chunks have one shape (the last overlaps the one before): one compilation per shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from heatnets._core.compilation import compiled, optimisation_level
from heatnets._core.execution import ExecutionContext, within_memory
from heatnets._core.precision import with_x64
from heatnets._core.process_group import shares

Points = tuple[np.ndarray, ...]  # arrays with a leading axis over points

# Coordinates (points x features x dim) from which several processes divide the points: less takes
# as long as the exchange of the results, some milliseconds.
_DIVIDED = 1e6

_FEWEST_COORDINATES = 2**13  # of a tile, if up to four tiles of memory hold them
_QUEUED = 32  # calls that may wait for a device

_PADDED = 256  # up to so many points a call is padded, rather than split

# Entries of a tile on a GPU, at most. From about 2e5 on, as many as the device has threads, XLA
# lets each thread compute four: some programs for ten dimensions then took 8 seconds to compile.
_GPU_ENTRIES = 2**17

# Largest features x coordinates of one compiled call: about a second of work, so that progress is
# reported and Ctrl-C takes effect.
_CALL_COORDINATES = {"cpu": 4e7, "gpu": 2e11}


def assemble_matrix(
    entry: Callable[..., PyTree],
    blocks: list[Any],
    context: PyTree,
    points: Points,
    workspace: int,
    ctx: ExecutionContext,
    *,
    label: str,
    row_chunk: int | None = None,
) -> PyTree:
    """Matrix of entry(context, feature, *point), rows over points and columns over features.

    Calls with one row chunk and one block size compile once, for large matrices twice, whatever the
    numbers of points and of blocks are.

    Args:
        entry: a module-level function of one feature and one point; returns a scalar, or a tuple of
            scalars (the result is then a tuple of matrices).
        blocks: blocks of features, modules whose arrays have a leading axis over features.
        context: traced pytree, passed to `entry`.
        points: arrays with a leading axis over points.
        workspace: the floats that one entry may need for intermediate values.
        ctx: device, memory limit and progress callback.
        label: the phase in progress reports.
        row_chunk: upper bound on the points per compiled call.

    Returns:
        Matrices of shape (points, features): on a CPU NumPy arrays, else arrays on the device.
    """
    if ctx.is_shared:

        def part(points: Points, ctx: ExecutionContext) -> PyTree:
            return assemble_matrix(
                entry, blocks, context, points, workspace, ctx, label=label, row_chunk=row_chunk
            )

        return _divide(part, points, sum(map(_length, blocks)), ctx, row_chunk or 1)
    order = _group_alike(blocks)
    if _is_merged(blocks, len(points[0]), row_chunk) and order != list(range(len(blocks))):
        grouped = assemble_matrix(
            entry,
            [blocks[i] for i in order],
            context,
            points,
            workspace,
            ctx,
            label=label,
            row_chunk=row_chunk,
        )
        first = np.cumsum([0, *map(_length, blocks)])
        columns = np.concatenate([np.arange(first[i], first[i + 1]) for i in order])
        return jax.tree.map(lambda matrix: matrix[:, np.argsort(columns)], grouped)

    def work(ctx: ExecutionContext) -> PyTree:
        shape = (len(points[0]), sum(map(_length, blocks)))
        total, done, result = shape[0] * shape[1], 0, None
        is_host = ctx.device.platform == "cpu"
        matrix, write = (np.zeros, _write_host) if is_host else (_zeros, _write_device)
        sizes = partial(_chunk_sizes, workspace=workspace, points=points, ctx=ctx)
        last, calls = None, _schedule(blocks, shape[0], row_chunk, sizes)
        for number, (block, column, start, height, width) in enumerate(calls):
            if block is not last:
                entries_at, last = _entries.fix(entry, context, block, width), block
                features = _length(block)
                # Not by the height of the tile: there may be many small ones.
                rows = max(height, min(row_chunk or shape[0], shape[0]))
                level = _level(rows, features, workspace, points)
            chunk = tuple(p[start : start + height] for p in points)
            entries = entries_at(chunk, level=level)
            if result is None:
                result = jax.tree.map(lambda _: matrix(shape), entries)
            result = write(result, entries, start, column)
            # `min`, because the last chunk overlaps the one before it.
            done = min(done + height * features, total)
            if number % _QUEUED == 0:
                jax.block_until_ready(result)
            ctx.progress(label, done, total)
        return jax.block_until_ready(result)

    return within_memory(work, ctx)


def _divide(
    compute: Callable[[Points, ExecutionContext], PyTree],
    points: Points,
    features: int,
    ctx: ExecutionContext,
    row_chunk: int = 1,
) -> PyTree:
    """Results at all points; of much work all devices of all processes do a part each.

    Args:
        compute: maps points and the context of one device to results with a leading axis.
        points: arrays with a leading axis over points.
        features: how many functions are evaluated at each point.
        ctx: the devices and processes.
        row_chunk: parts have a multiple of so many points, if there are enough.
    """
    processes, rows = ctx.processes, len(points[0])
    each = ctx.on_each_device()
    is_much = rows * features * _coordinates(points) >= _DIVIDED
    if not ctx.is_shared or not is_much or rows < processes.count:
        return compute(points, each[0])
    own = tuple(p[processes.share(rows, row_chunk)] for p in points)
    bounds = [s for s in shares(len(own[0]), len(each), row_chunk) if s.stop > s.start]

    @with_x64  # a setting of each thread
    def part(number: int) -> PyTree:
        with each[number].active():
            results = compute(tuple(p[bounds[number]] for p in own), each[number])
            return jax.tree.map(np.asarray, results)

    with ThreadPoolExecutor(len(bounds)) as pool:
        others = [pool.submit(part, number) for number in range(1, len(bounds))]
        parts = [part(0), *(other.result() for other in others)]
    results = jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)
    return processes.join_rows("rows", results)


class _Call(NamedTuple):
    """One compiled call: a block of features at a row chunk."""

    block: Any
    column: int  # first column of the block in the matrix
    row: int  # first row of the chunk
    height: int  # rows of the chunk
    width: int  # features per feature chunk


# Fewest calls for which compiling one more shape takes less time than the overhead of the calls.
_MANY = 1000
_MERGED = 16  # number of blocks, and of row chunks, that are then merged into one call


def _schedule(
    blocks: list[Any], rows: int, row_chunk: int | None, sizes: Callable[[int], tuple[int, int]]
) -> Iterator[_Call]:
    """Divide a matrix into compiled calls.

    Where `_is_merged`, runs of `_MERGED` blocks of the same structure and shape are merged, and so
    are row chunks; rows left over are computed block by block.

    Args:
        blocks: blocks of features.
        rows: number of points.
        row_chunk: upper bound on the points per call.
        sizes: maps a number of features to (points, features) per chunk.
    """
    max_height, column = row_chunk or rows, 0
    merging = _is_merged(blocks, rows, row_chunk)
    while blocks:
        group, done = blocks[:_MERGED], 0  # rows that merged blocks compute
        size = _length(group[0])
        if merging and size and len(group) == _MERGED and len(set(map(_structure, group))) == 1:
            height, width = sizes(_MERGED * size)
            height = min(height, _MERGED * max_height, rows) // max_height * max_height
            if height:
                done = rows // height * height
                merged = jax.tree.map(lambda *parts: jnp.concatenate(parts), *group)
                yield from (_Call(merged, column, i, height, width) for i in range(0, done, height))
        for block in group if done else group[:1]:
            if size := _length(block):
                height, width = sizes(size)
                height = min(height, max_height, rows)
                for start in _chunk_starts(rows, height):
                    if start + height > done:
                        yield _Call(block, column, start, height, width)
            column += size
            blocks = blocks[1:]


def _is_merged(blocks: list[Any], rows: int, row_chunk: int | None) -> bool:
    """Whether blocks are merged: if there would be more than `_MANY` calls."""
    return row_chunk is not None and len(blocks) * rows > _MANY * row_chunk


def _group_alike(blocks: list[Any]) -> list[int]:
    """Numbers of the blocks in an order in which those of one structure follow one another."""
    first: dict[Any, int] = {}
    key = [first.setdefault(_structure(block), i) for i, block in enumerate(blocks)]
    return sorted(range(len(blocks)), key=key.__getitem__)


def _structure(block: Any) -> Any:
    """Tree structure, shapes and dtypes: blocks with the same can be concatenated."""
    leaves, structure = jax.tree.flatten(block)
    return structure, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)


def weighted_sum(
    terms: Callable[..., PyTree],
    blocks: list[tuple[Any, Float[Array, " features"]]],
    context: PyTree,
    points: Points,
    workspace: int,
    ctx: ExecutionContext,
    *,
    label: str,
) -> PyTree:
    """Sum over all features of terms(context, features, weights, *point), at all points.

    Args:
        terms: maps a feature chunk, its weights and one point to a pytree of sums over the chunk.
        blocks: blocks of features with their weights, shape (features, ...).
        context: traced pytree, passed to `terms`.
        points: arrays with a leading axis over points.
        workspace: the floats that one (point, feature) may need for intermediate values.
        ctx: device, memory limit and progress callback.
        label: the phase in progress reports.

    Returns:
        A pytree of NumPy arrays with a leading axis over points.
    """

    def work(ctx: ExecutionContext) -> PyTree:
        largest = max(_length(block) for block, _ in blocks)
        height, width = _chunk_sizes(largest, workspace, points, ctx)
        features = sum(_length(block) for block, _ in blocks)

        def sums(points: Points, ctx: ExecutionContext) -> PyTree:
            rows, sum_at = len(points[0]), _sum.fix(terms, blocks, context, width)

            def run(chunk: Points) -> PyTree:
                level = _level(max(rows, len(chunk[0])), features, workspace, points)
                return sum_at(chunk, level=level)

            return _map_chunks(run, points, height, lambda done: ctx.progress(label, done, rows))

        return _divide(sums, points, features, ctx)

    return within_memory(work, ctx)


def sum_in_program(
    terms: Callable[..., Array],
    blocks: list[tuple[Any, Float[Array, " features"]]],
    context: PyTree,
    points: tuple[Array, ...],
    workspace: int,
    ctx: ExecutionContext,
) -> Array:
    """`weighted_sum` inside a JAX program: its row chunks are a loop of that program.

    Arguments are those of `weighted_sum`, but points are traced, and all have the same number.
    """
    rows = len(points[0])
    height, width = _chunk_sizes(max(_length(b) for b, _ in blocks), workspace, points, ctx)
    count = -(-rows // height)
    if count == 1:
        return _sum_over_features(terms, blocks, context, width, points)
    height = -(-rows // count)  # chunks of one size, with few rows past the end

    def one_chunk(chunk: tuple[Array, ...]) -> Array:
        return _sum_over_features(terms, blocks, context, width, chunk)

    extra = count * height - rows  # rows past the end repeat the last point
    padded = (jnp.concatenate([p, jnp.repeat(p[-1:], extra, axis=0)]) for p in points)
    chunks = tuple(p.reshape(count, height, *p.shape[1:]) for p in padded)
    sums = jax.lax.map(one_chunk, chunks)
    return sums.reshape(count * height, *sums.shape[2:])[:rows]


def sum_level(blocks: list[tuple[Any, Array]], points: tuple[Any, ...], workspace: int) -> int:
    """The `optimisation_level` of a sum over features at these points."""
    features = sum(_length(block) for block, _ in blocks)
    return _level(len(points[0]), features, workspace, points)


def map_points(
    function: Callable[..., PyTree],
    context: PyTree,
    points: Points,
    workspace: int,
    ctx: ExecutionContext,
) -> PyTree:
    """Values function(context, *point) at all points, as NumPy arrays.

    No progress is reported, because this is fast. Arguments are those of `weighted_sum`.
    """

    def work(ctx: ExecutionContext) -> PyTree:
        height, _ = _chunk_sizes(1, workspace, points, ctx)

        def values(points: Points, ctx: ExecutionContext) -> PyTree:
            function_at = _map.fix(function, context)

            def run(chunk: Points) -> PyTree:
                level = _level(max(len(points[0]), len(chunk[0])), 1, workspace, points)
                return function_at(chunk, level=level)

            return _map_chunks(run, points, height)

        return _divide(values, points, 1, ctx)

    return within_memory(work, ctx)


def _map_chunks(
    run: Callable[[Points], PyTree],
    points: Points,
    height: int,
    report: Callable[[int], None] = lambda done: None,
) -> PyTree:
    """Apply `run` to one row chunk after the other, and concatenate the results in NumPy."""
    rows, done, pieces = len(points[0]), 0, []
    height = _common_height(rows, height)
    for start in _chunk_starts(rows, height):
        chunk = tuple(_padded(p[start : start + height], height) for p in points)
        piece = jax.tree.map(np.asarray, run(chunk))
        # The last chunk overlaps the one before it, or runs past the end: keep only new rows.
        pieces.append(jax.tree.map(lambda a, first=done - start: a[first : rows - start], piece))
        done = min(start + height, rows)
        report(done)
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)


def _padded(points: np.ndarray, height: int) -> np.ndarray:
    """An array with `height` rows: the last one is repeated."""
    missing = height - len(points)
    return np.concatenate([points, np.repeat(points[-1:], missing, axis=0)]) if missing else points


def _common_height(rows: int, largest: int) -> int:
    """Points per compiled call, from 1, 16, 256, 4096, ...: few shapes are ever compiled.

    At most `largest`; a power of two where that is less than 256, since points are expensive then.
    Up to 256 points are padded to one call; more points take several calls.
    """
    if largest < min(rows, _PADDED):
        return int(2 ** int(np.log2(largest)))
    heights = [16**k for k in range(8) if 16**k <= largest]
    padded = [h for h in heights if rows <= h <= _PADDED]
    return padded[0] if padded else max(h for h in heights if h <= max(rows, _PADDED))


def _length(block: Any) -> int:
    """Number of features of a block."""
    return len(jax.tree.leaves(block)[0])


def _chunk_sizes(
    features: int, workspace: int, points: tuple[Any, ...], ctx: ExecutionContext
) -> tuple[int, int]:
    """Choose the points per row chunk and the features per feature chunk.

    A feature chunk has 64 features on a CPU and 256 on a GPU, or fewer if memory is short; the row
    chunk then fills `tile_bytes` or a second of work.
    """
    fitting, coordinates = ctx.tile_bytes // (8 * workspace), _coordinates(points)
    # Loops over short arrays cost more than cache misses.
    entries = max(1, fitting, min(4 * fitting, _FEWEST_COORDINATES // coordinates))
    if ctx.device.platform != "cpu":
        entries = min(entries, _GPU_ENTRIES)
    work = _CALL_COORDINATES.get(ctx.device.platform, 1e9)
    max_width = 64 if ctx.device.platform == "cpu" else 256
    if entries < 64 * 16:
        max_width = int(np.sqrt(entries))
    # Chunks of equal width: no columns are computed in vain.
    width = max(1, -(-features // max(1, -(-features // max_width))))
    return max(1, min(entries // width, int(work / (features * coordinates)))), width


def _coordinates(points: tuple[Any, ...]) -> int:
    """Numbers that one point has, in all arrays."""
    return sum(int(np.prod(p.shape[1:], dtype=int)) for p in points)


def _level(rows: int, features: int, workspace: int, points: tuple[Any, ...]) -> int:
    """The `optimisation_level` of a call with so many rows and features."""
    coordinates = _coordinates(points)
    return optimisation_level(rows * features * coordinates, rows * features * workspace)


def _chunk_starts(rows: int, height: int) -> list[int]:
    """First rows of the chunks; the last chunk ends at the last row, unless there are too few."""
    return [max(0, min(start, rows - height)) for start in range(0, rows, height)]


def _chunk_indices(size: int, width: int) -> Array:
    """Feature indices, shape (chunks, width); those past the end repeat the last feature."""
    return jnp.minimum(jnp.arange(-(-size // width) * width), size - 1).reshape(-1, width)


_zeros = jax.jit(jnp.zeros, static_argnums=0)  # one program; eager `jnp.zeros` takes two


def _write_host(matrices: PyTree, entries: PyTree, row: int, column: int) -> PyTree:
    """Write `entries` into NumPy matrices at (row, column), in place; nothing is compiled."""

    def write(matrix: np.ndarray, part: Array) -> np.ndarray:
        matrix[row : row + part.shape[0], column : column + part.shape[1]] = part
        return matrix

    return jax.tree.map(write, matrices, entries)


@partial(jax.jit, donate_argnums=0)
def _write_device(matrices: PyTree, entries: PyTree, row: int, column: int) -> PyTree:
    """Write `entries` into matrices on a device at (row, column), in place."""
    return jax.tree.map(
        lambda matrix, part: jax.lax.dynamic_update_slice(matrix, part, (row, column)),
        matrices,
        entries,
    )


@compiled
def _entries(
    entry: Callable[..., PyTree], context: PyTree, block: Any, width: int, points: tuple[Array, ...]
) -> PyTree:
    """Entries of one block at one row chunk, shape (points, features)."""
    size = _length(block)

    def one_chunk(index: Array) -> PyTree:
        features = jax.tree.map(lambda a: a[index], block)
        over_features = jax.vmap(partial(entry, context), in_axes=(0, *[None] * len(points)))
        return jax.vmap(over_features, in_axes=(None, *[0] * len(points)))(features, *points)

    chunks = jax.lax.map(one_chunk, _chunk_indices(size, width))  # (chunks, points, width)
    return jax.tree.map(lambda a: jnp.moveaxis(a, 0, 1).reshape(a.shape[1], -1)[:, :size], chunks)


def _sum_over_features(
    terms: Callable[..., PyTree],
    blocks: list[tuple[Any, Array]],
    context: PyTree,
    width: int,
    points: tuple[Array, ...],
) -> PyTree:
    """Weighted sums over all blocks at one row chunk."""

    def one_block(block: Any, weights: Array) -> PyTree:
        index = _chunk_indices(len(weights), min(width, len(weights)))
        # Repeated features at the end get weight zero.
        padding = [(0, index.size - len(weights)), *[(0, 0)] * (weights.ndim - 1)]
        padded = jnp.pad(weights, padding).reshape(*index.shape, *weights.shape[1:])

        @jax.jit
        def one_chunk(index: Array, weights: Array) -> PyTree:
            features = jax.tree.map(lambda a: a[index], block)
            return jax.vmap(partial(terms, context, features, weights))(*points)

        def add(total: PyTree, piece: tuple[Array, Array]) -> tuple[PyTree, None]:
            return jax.tree.map(jnp.add, total, one_chunk(*piece)), None

        shapes = jax.eval_shape(one_chunk, index[0], padded[0])
        zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return jax.lax.scan(add, zero, (index, padded))[0]

    return jax.tree.map(lambda *parts: sum(parts), *(one_block(*pair) for pair in blocks))


_sum = compiled(_sum_over_features)


@compiled
def _map(function: Callable[..., PyTree], context: PyTree, points: tuple[Array, ...]) -> PyTree:
    """Values of a function at one row chunk."""
    return jax.vmap(partial(function, context))(*points)
