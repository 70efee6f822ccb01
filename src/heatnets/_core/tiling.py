"""Functions of points and features evaluated a tile at a time: the only module that vectorises.

The full (points, features, dim) array never exists. A strip of points runs through all features in one compiled
call; inside it a loop over tiles of features keeps at most `tile_bytes` of intermediates alive. Strips all have one
shape (the last overlaps its neighbour), so a problem compiles once per shape.
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

_STRIP_COORDINATES = {
    "cpu": 4e7,
    "gpu": 2e11,
}  # about a second of work: progress moves and Ctrl-C is heard


def matrix(
    entry: Callable[..., PyTree],
    blocks: list[Any],
    context: PyTree,
    points: tuple[np.ndarray, ...],
    floats: int,
    ctx: ExecutionContext,
    phase: str,
    strip: int | None = None,
) -> PyTree:
    """entry(context, feature, *point) for all points and all features of all blocks, as one matrix on the device.

    `floats` is what one entry may hold in intermediates; `context` is traced, `entry` is a function of module level. Where
    an entry is a tuple of numbers, so is the result of matrices. `strip` bounds the points per compiled call: calls of one
    strip and one block size compile once, for large matrices twice, whatever the numbers of points and blocks are.
    """

    def work(ctx: ExecutionContext) -> PyTree:
        rows, columns = len(points[0]), sum(map(_length, blocks))
        result: PyTree = None
        known = 0
        for block, column, start, height, tile in _calls(
            blocks, rows, strip, lambda size: _cut(size, floats, points, ctx)
        ):
            here = tuple(jnp.asarray(p[start : start + height]) for p in points)
            piece = _strip(entry, block, context, here, tile)
            if result is None:
                result = jax.tree.map(lambda _: jnp.zeros((rows, columns)), piece)
            result = _place(result, piece, start, column)
            jax.block_until_ready(result)
            known = min(
                known + height * _length(block), rows * columns
            )  # a last strip overlaps the one before it
            ctx.progress(phase, known, rows * columns)
        return result

    return within_memory(work, ctx)


class _Call(NamedTuple):
    """What is computed in one go."""

    block: Any
    column: int  # the first
    row: int  # the first
    height: int
    tile: int  # features at a time


_MANY = 1000  # calls: below, compiling for one more shape takes longer than their overhead
_TOGETHER = 16  # blocks, and strips, that are then taken in one call


def _calls(
    blocks: list[Any], rows: int, strip: int | None, cut: Callable[[int], tuple[int, int]]
) -> Iterator[_Call]:
    """A block at a time, a strip at a time; where that would be very many calls, several alike blocks and strips at a time as far as they go."""

    def strips(block: Any, column: int, first: int, most: int) -> Iterator[_Call]:
        height, tile = cut(_length(block))
        height = min(height, most, rows)
        yield from (
            _Call(block, column, start, height, tile)
            for start in _starts(rows, height)
            if start + height > first
        )

    most = strip or rows
    many = strip is not None and len(blocks) * rows > _MANY * strip
    column = 0
    while blocks:
        size, alike = _length(blocks[0]), blocks[:_TOGETHER]
        tall = (
            min(cut(_TOGETHER * size)[0], _TOGETHER * most, rows) // most * most
            if many and size
            else 0
        )
        done = 0
        if tall and len(alike) == _TOGETHER and len({_make(block) for block in alike}) == 1:
            done, merged = (
                rows // tall * tall,
                jax.tree.map(lambda *parts: jnp.concatenate(parts), *alike),
            )
            yield from (
                call for call in strips(merged, column, 0, tall) if call.row + call.height <= done
            )
        else:
            alike = alike[:1]
        for block in alike:
            if _length(block):
                yield from strips(block, column, done, most) if done < rows else ()
            column += _length(block)
        blocks = blocks[len(alike) :]


def _make(block: Any) -> Any:
    """What blocks that may be joined have in common."""
    leaves, structure = jax.tree.flatten(block)
    return structure, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)


def contract(
    terms: Callable[..., PyTree],
    blocks: list[tuple[Any, Float[Array, " features"]]],
    context: PyTree,
    points: tuple[np.ndarray, ...],
    floats: int,
    ctx: ExecutionContext,
    phase: str,
) -> PyTree:
    """Σ over the features of all blocks of terms(context, features, weights, *point) at all points, as NumPy arrays.

    `terms` receives a tile of features with its weights and one point, and returns what is to be added up.
    """

    def work(ctx: ExecutionContext) -> PyTree:
        strip, tile = _cut(max(_length(block) for block, _ in blocks), floats, points, ctx)
        rows = len(points[0])
        return _stream(
            lambda here: _sum(terms, blocks, context, here, tile),
            points,
            strip,
            lambda known: ctx.progress(phase, known, rows),
        )

    return within_memory(work, ctx)


def evaluate(
    function: Callable[..., PyTree],
    context: PyTree,
    points: tuple[np.ndarray, ...],
    floats: int,
    ctx: ExecutionContext,
) -> PyTree:
    """function(context, *point) at all points, as NumPy arrays; too quick to report progress."""

    def work(ctx: ExecutionContext) -> PyTree:
        strip, _ = _cut(1, floats, points, ctx)
        return _stream(lambda here: _map(function, context, here), points, strip)

    return within_memory(work, ctx)


def _stream(
    run: Callable[[tuple[Array, ...]], PyTree],
    points: tuple[np.ndarray, ...],
    strip: int,
    tell: Callable[[int], None] = lambda known: None,
) -> PyTree:
    rows, known, pieces = len(points[0]), 0, []
    if (
        rows < strip
    ):  # few points: the next power of two, so that a handful of shapes serves every number of points
        strip = min(strip, 1 << (rows - 1).bit_length())
    for start in _starts(rows, strip):
        here = (p[start : start + strip] for p in points)
        padded = tuple(
            jnp.asarray(np.concatenate([p, np.repeat(p[-1:], strip - len(p), axis=0)]))
            for p in here
        )
        piece = jax.tree.map(np.asarray, run(padded))
        # The last strip overlaps the one before it, or runs past the end: keep what is new.
        pieces.append(jax.tree.map(lambda a, seen=known - start: a[seen : rows - start], piece))
        known = min(start + strip, rows)
        tell(known)
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)


def _length(block: Any) -> int:
    return len(jax.tree.leaves(block)[0])


def _cut(
    features: int, floats: int, points: tuple[np.ndarray, ...], ctx: ExecutionContext
) -> tuple[int, int]:
    """Points per strip and features per tile."""
    entries = max(1, ctx.tile_bytes // (8 * floats))
    width = sum(int(np.prod(p.shape[1:], dtype=int)) for p in points)
    work = _STRIP_COORDINATES.get(ctx.device.platform, 1e9)
    tile = max(
        1,
        min(
            features,
            int(np.sqrt(entries))
            if entries < 64 * 64
            else 64
            if ctx.device.platform == "cpu"
            else 256,
        ),
    )
    return max(1, min(entries // tile, int(work / (features * width)))), tile


def _starts(rows: int, strip: int) -> list[int]:
    return [max(0, min(start, rows - strip)) for start in range(0, rows, strip)]


def _tiled(size: int, tile: int) -> Array:
    """Feature indices as rows of `tile`; those past the end repeat the last feature."""
    return jnp.minimum(jnp.arange(-(-size // tile) * tile), size - 1).reshape(-1, tile)


@partial(jax.jit, donate_argnums=0)
def _place(result: PyTree, strip: PyTree, row: int, column: int) -> PyTree:
    return jax.tree.map(
        lambda whole, piece: jax.lax.dynamic_update_slice(whole, piece, (row, column)),
        result,
        strip,
    )


def _compiled(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Compiled once per shape; for a GPU without XLA's trial of two code generators on each fusion.

    That trial took 195 seconds for one sum over tiles in 1000 dimensions, and gains nothing on such sums.
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
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    return (
        jax.default_backend()
        if device is None
        else device
        if isinstance(device, str)
        else device.platform
    )


@cache
def compiler_options(platform: str) -> dict[str, Any] | None:
    """What XLA is told for a platform."""
    if platform == "cpu":
        return None
    options = {"xla_gpu_experimental_enable_fusion_autotuner": False}
    try:  # an option of one compiler is unknown to another
        jax.jit(lambda x: x + 1, compiler_options=options)(jnp.zeros(()))
    except Exception:
        return None
    return options


@_compiled
def _strip(
    entry: Callable[..., PyTree], block: Any, context: PyTree, points: tuple[Array, ...], tile: int
) -> PyTree:
    size = _length(block)

    def one_tile(index: Array) -> PyTree:
        features = jax.tree.map(lambda a: a[index], block)
        over_features = jax.vmap(partial(entry, context), in_axes=(0, *[None] * len(points)))
        return jax.vmap(over_features, in_axes=(None, *[0] * len(points)))(features, *points)

    strips = jax.lax.map(one_tile, _tiled(size, tile))
    return jax.tree.map(lambda s: jnp.moveaxis(s, 0, 1).reshape(s.shape[1], -1)[:, :size], strips)


@_compiled
def _sum(
    terms: Callable[..., PyTree],
    blocks: list[tuple[Any, Array]],
    context: PyTree,
    points: tuple[Array, ...],
    tile: int,
) -> PyTree:
    def one_block(block: Any, weights: Array) -> PyTree:
        index = _tiled(len(weights), min(tile, len(weights)))
        beyond = [(0, index.size - len(weights)), *[(0, 0)] * (weights.ndim - 1)]
        padded = jnp.pad(weights, beyond).reshape(*index.shape, *weights.shape[1:])

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
    return jax.vmap(partial(function, context))(*points)
