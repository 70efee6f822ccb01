"""Points times features, a tile at a time: the only room that knows vmap over both, devices, memory and progress.

The full (points, features, dim) array never exists. A strip of points runs through all features in one compiled
call; inside it a loop over tiles of features keeps at most `tile_bytes` of intermediates alive. Strips all have one
shape (the last overlaps its neighbour), so a problem compiles once per shape.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from heatnets.errors import InputError, ResourceError, describe, positive

Progress = Callable[[str, int, int], None]

_STRIP_COORDINATES = {"cpu": 4e7, "gpu": 2e11}  # about a second of work: progress moves and Ctrl-C is heard


@dataclass(frozen=True)
class Workshop:
    """Where the work is done, how much memory it may take, and whom to tell how far it is."""

    device: Any
    memory: int
    progress: Progress
    halvings: int = 0  # of tiles, after the device ran out of memory

    @property
    def tile_bytes(self) -> int:
        """Bytes for the intermediates of one tile: small on a CPU, where caches are, large on a GPU, where launches cost."""
        return min(self.memory // 8, 2**25 if self.device.platform == "cpu" else 2**32) >> self.halvings

    def require(self, needed: int, what: str, remedy: str) -> None:
        """Refuse, before the work, what would not fit."""
        if needed > self.memory:
            raise ResourceError(
                f"`memory` allows {_bytes(self.memory)}; {what} needs {_bytes(needed)}. {remedy}{' Or raise' if remedy else 'Raise'} it: memory={needed}."
            )


def workshop(device: Any = None, memory: Any = None, progress: Any = None) -> Workshop:
    """A workshop from the public arguments `device`, `memory` (bytes) and `progress`."""
    chosen = _device(device)
    if memory is None:
        allowed = _free_bytes(chosen) * 3 // 4
    else:
        allowed = int(positive("memory", memory, "It is in bytes: memory=4 * 2**30 for 4 GiB."))
        if allowed < 2**20:
            raise InputError(
                f"`memory` must be at least one MiB; got {allowed} bytes. It is in bytes: memory=4 * 2**30 for 4 GiB."
            )
    if progress is not None and not callable(progress):
        raise InputError(f"`progress` must be None or a function (phase, done, total); got {describe(progress)}.")
    return Workshop(chosen, allowed, progress or (lambda phase, done, total: None))


def _device(device: Any) -> Any:
    if isinstance(device, jax.Device):
        return device
    known = sorted({d.platform for d in jax.devices()} | {"cpu"})
    if device is not None and device not in known:
        raise InputError(f"`device` must be one of {', '.join(map(repr, known))} or a jax.Device; got {describe(device)}.")
    return jax.devices(device)[0]


def _free_bytes(device: Any) -> int:
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    try:
        with open("/proc/meminfo") as lines:
            free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = 4 * 2**30
    return min(free, *(_free_in_group(root) for root in _groups()))


def _groups() -> list[Path]:
    """The control groups this process is in."""
    root = Path("/sys/fs/cgroup")
    try:
        own = [
            line.split(":", 2)[2].strip() for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")
        ]
    except (OSError, IndexError):
        own = []
    return [root, *(root / name.lstrip("/") for name in own)]


def _free_in_group(root: Path) -> int:
    """What a container's limit leaves, of either kind of control group; 2^62 where there is none."""
    for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        try:
            most, now = ((root / name).read_text().strip() for name in (limit, used))
            stat = dict(line.split() for line in (root / limit).with_name("memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue
        if most.isdigit():
            cached = int(stat.get("inactive_file", stat.get("total_inactive_file", 0)))  # given back when it is needed
            return max(int(most) - int(now) + cached, 0)
    return 2**62


def peak_bytes(device: Any) -> int:
    """The most memory in use so far: of the device, or of this process on a CPU."""
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats:
        return int(stats.get("peak_bytes_in_use", 0))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


_HALVINGS = 3


def _within_memory(work: Callable[[Workshop], PyTree], shop: Workshop) -> PyTree:
    """What `work` returns, with tiles half as large, up to three times, where the device runs out of memory in the middle of it."""
    while True:
        try:
            return work(shop)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error) and "out of memory" not in str(error).lower():
                raise
            if shop.halvings == _HALVINGS:
                raise ResourceError(
                    f"{shop.device.device_kind} ran out of memory, also with tiles an eighth as large ({_bytes(shop.tile_bytes)}). Take fewer features or rows, a smaller `memory`, "
                    'or device="cpu"; other programs may be using the device.'
                ) from error
            shop = replace(shop, halvings=shop.halvings + 1)


def _bytes(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**27 else f"{size / 2**20:.2f} MiB"


def matrix(
    entry: Callable[..., PyTree],
    blocks: list[Any],
    context: PyTree,
    points: tuple[np.ndarray, ...],
    floats: int,
    shop: Workshop,
    phase: str,
    strip: int | None = None,
) -> PyTree:
    """entry(context, feature, *point) for all points and all features of all blocks, as one matrix on the device.

    `floats` is what one entry may hold in intermediates; `context` is traced, `entry` is a function of module level. Where
    an entry is a tuple of numbers, so is the result of matrices. `strip` bounds the points per compiled call: calls of one
    strip and one block size compile once, for large matrices twice, whatever the numbers of points and blocks are.
    """

    def work(shop: Workshop) -> PyTree:
        rows, columns = len(points[0]), sum(map(_length, blocks))
        result: PyTree = None
        known = 0
        for block, column, start, height, tile in _calls(blocks, rows, strip, lambda size: _cut(size, floats, points, shop)):
            here = tuple(jnp.asarray(p[start : start + height]) for p in points)
            piece = _strip(entry, block, context, here, tile)
            if result is None:
                result = jax.tree.map(lambda _: jnp.zeros((rows, columns)), piece)
            result = _place(result, piece, start, column)
            jax.block_until_ready(result)
            known = min(known + height * _length(block), rows * columns)  # a last strip overlaps the one before it
            shop.progress(phase, known, rows * columns)
        return result

    return _within_memory(work, shop)


class _Call(NamedTuple):
    """What is computed in one go."""

    block: Any
    column: int  # the first
    row: int  # the first
    height: int
    tile: int  # features at a time


_MANY = 1000  # calls: below, compiling for one more shape takes longer than their overhead
_TOGETHER = 16  # blocks, and strips, that are then taken in one call


def _calls(blocks: list[Any], rows: int, strip: int | None, cut: Callable[[int], tuple[int, int]]) -> Iterator[_Call]:
    """A block at a time, a strip at a time; where that would be very many calls, several alike blocks and strips at a time as far as they go."""

    def strips(block: Any, column: int, first: int, most: int) -> Iterator[_Call]:
        height, tile = cut(_length(block))
        height = min(height, most, rows)
        yield from (_Call(block, column, start, height, tile) for start in _starts(rows, height) if start + height > first)

    most = strip or rows
    many = strip is not None and len(blocks) * rows > _MANY * strip
    column = 0
    while blocks:
        size, alike = _length(blocks[0]), blocks[:_TOGETHER]
        tall = min(cut(_TOGETHER * size)[0], _TOGETHER * most, rows) // most * most if many and size else 0
        done = 0
        if tall and len(alike) == _TOGETHER and len({_make(block) for block in alike}) == 1:
            done, merged = rows // tall * tall, jax.tree.map(lambda *parts: jnp.concatenate(parts), *alike)
            yield from (call for call in strips(merged, column, 0, tall) if call.row + call.height <= done)
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
    shop: Workshop,
    phase: str,
) -> PyTree:
    """Σ over the features of all blocks of terms(context, features, weights, *point) at all points, as NumPy arrays.

    `terms` receives a tile of features with its weights and one point, and returns what is to be added up.
    """

    def work(shop: Workshop) -> PyTree:
        strip, tile = _cut(max(_length(block) for block, _ in blocks), floats, points, shop)
        rows = len(points[0])
        return _stream(
            lambda here: _sum(terms, blocks, context, here, tile), points, strip, lambda known: shop.progress(phase, known, rows)
        )

    return _within_memory(work, shop)


def evaluate(
    function: Callable[..., PyTree], context: PyTree, points: tuple[np.ndarray, ...], floats: int, shop: Workshop
) -> PyTree:
    """function(context, *point) at all points, as NumPy arrays; too quick to report progress."""

    def work(shop: Workshop) -> PyTree:
        strip, _ = _cut(1, floats, points, shop)
        return _stream(lambda here: _map(function, context, here), points, strip)

    return _within_memory(work, shop)


def _stream(
    run: Callable[[tuple[Array, ...]], PyTree],
    points: tuple[np.ndarray, ...],
    strip: int,
    tell: Callable[[int], None] = lambda known: None,
) -> PyTree:
    rows, known, pieces = len(points[0]), 0, []
    if rows < strip:  # few points: the next power of two, so that a handful of shapes serves every number of points
        strip = min(strip, 1 << (rows - 1).bit_length())
    for start in _starts(rows, strip):
        here = (p[start : start + strip] for p in points)
        padded = tuple(jnp.asarray(np.concatenate([p, np.repeat(p[-1:], strip - len(p), axis=0)])) for p in here)
        piece = jax.tree.map(np.asarray, run(padded))
        # The last strip overlaps the one before it, or runs past the end: keep what is new.
        pieces.append(jax.tree.map(lambda a, seen=known - start: a[seen : rows - start], piece))
        known = min(start + strip, rows)
        tell(known)
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)


def _length(block: Any) -> int:
    return len(jax.tree.leaves(block)[0])


def _cut(features: int, floats: int, points: tuple[np.ndarray, ...], shop: Workshop) -> tuple[int, int]:
    """Points per strip and features per tile."""
    entries = max(1, shop.tile_bytes // (8 * floats))
    width = sum(int(np.prod(p.shape[1:], dtype=int)) for p in points)
    work = _STRIP_COORDINATES.get(shop.device.platform, 1e9)
    tile = max(1, min(features, int(np.sqrt(entries)) if entries < 64 * 64 else 64 if shop.device.platform == "cpu" else 256))
    return max(1, min(entries // tile, int(work / (features * width)))), tile


def _starts(rows: int, strip: int) -> list[int]:
    return [max(0, min(start, rows - strip)) for start in range(0, rows, strip)]


def _tiled(size: int, tile: int) -> Array:
    """Feature indices as rows of `tile`; those past the end repeat the last feature."""
    return jnp.minimum(jnp.arange(-(-size // tile) * tile), size - 1).reshape(-1, tile)


@partial(jax.jit, donate_argnums=0)
def _place(result: PyTree, strip: PyTree, row: int, column: int) -> PyTree:
    return jax.tree.map(lambda whole, piece: jax.lax.dynamic_update_slice(whole, piece, (row, column)), result, strip)


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
    return jax.default_backend() if device is None else device if isinstance(device, str) else device.platform


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
def _strip(entry: Callable[..., PyTree], block: Any, context: PyTree, points: tuple[Array, ...], tile: int) -> PyTree:
    size = _length(block)

    def one_tile(index: Array) -> PyTree:
        features = jax.tree.map(lambda a: a[index], block)
        over_features = jax.vmap(partial(entry, context), in_axes=(0, *[None] * len(points)))
        return jax.vmap(over_features, in_axes=(None, *[0] * len(points)))(features, *points)

    strips = jax.lax.map(one_tile, _tiled(size, tile))
    return jax.tree.map(lambda s: jnp.moveaxis(s, 0, 1).reshape(s.shape[1], -1)[:, :size], strips)


@_compiled
def _sum(
    terms: Callable[..., PyTree], blocks: list[tuple[Any, Array]], context: PyTree, points: tuple[Array, ...], tile: int
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
