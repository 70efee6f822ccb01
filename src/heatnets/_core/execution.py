"""Where work runs: the device, the memory it may take, and a callback for progress."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
from jaxtyping import PyTree

from heatnets._core.errors import InputError, ResourceError, positive, short_repr

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class ExecutionContext:
    """The device, the bytes of memory allowed, and the progress callback of one call."""

    device: Any
    memory: int
    progress: Progress
    tile_shrinks: int = 0  # of tiles, after the device ran out of memory

    @property
    def tile_bytes(self) -> int:
        """Bytes for the intermediates of one tile: small on a CPU, where caches are, large on a GPU, where launches cost."""
        return (
            min(self.memory // 8, 2**25 if self.device.platform == "cpu" else 2**32)
            >> self.tile_shrinks
        )

    def require(self, needed: int, what: str, remedy: str) -> None:
        """Refuse, before the work, what would not fit."""
        if needed > self.memory:
            raise ResourceError(
                f"`memory` allows {_bytes(self.memory)}; {what} needs {_bytes(needed)}. {remedy}{' Or raise' if remedy else 'Raise'} it: memory={needed}."
            )


def make_context(device: Any = None, memory: Any = None, progress: Any = None) -> ExecutionContext:
    """The context from the public arguments `device`, `memory` (bytes) and `progress`."""
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
        raise InputError(
            f"`progress` must be None or a function (phase, done, total); got {short_repr(progress)}."
        )
    return ExecutionContext(chosen, allowed, progress or (lambda phase, done, total: None))


def _device(device: Any) -> Any:
    if isinstance(device, jax.Device):
        return device
    known = sorted({d.platform for d in jax.devices()} | {"cpu"})
    if device is not None and device not in known:
        raise InputError(
            f"`device` must be one of {', '.join(map(repr, known))} or a jax.Device; got {short_repr(device)}."
        )
    return jax.devices(device)[0]


def _free_bytes(device: Any) -> int:
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    try:
        with open("/proc/meminfo") as lines:
            free = next(
                int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
            )
    except (OSError, StopIteration):
        free = 4 * 2**30
    return min(free, *(_free_in_group(root) for root in _groups()))


def _groups() -> list[Path]:
    """The control groups this process is in."""
    root = Path("/sys/fs/cgroup")
    try:
        own = [
            line.split(":", 2)[2].strip()
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if line.startswith("0::")
        ]
    except (OSError, IndexError):
        own = []
    return [root, *(root / name.lstrip("/") for name in own)]


def _free_in_group(root: Path) -> int:
    """What a container's limit leaves, of either kind of control group; 2^62 where there is none."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            most, now = ((root / name).read_text().strip() for name in (limit, used))
            stat = dict(
                line.split()
                for line in (root / limit).with_name("memory.stat").read_text().splitlines()
            )
        except (OSError, ValueError):
            continue
        if most.isdigit():
            cached = int(
                stat.get("inactive_file", stat.get("total_inactive_file", 0))
            )  # given back when it is needed
            return max(int(most) - int(now) + cached, 0)
    return 2**62


def peak_bytes(device: Any) -> int:
    """The most memory in use so far: of the device, or of this process on a CPU."""
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats:
        return int(stats.get("peak_bytes_in_use", 0))
    try:
        import resource
    except ImportError:  # Windows has no such module
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


_HALVINGS = 3


def within_memory(work: Callable[[ExecutionContext], PyTree], ctx: ExecutionContext) -> PyTree:
    """What `work` returns, with tiles half as large, up to three times, where the device runs out of memory in the middle of it."""
    while True:
        try:
            return work(ctx)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error) and "out of memory" not in str(error).lower():
                raise
            if ctx.tile_shrinks == _HALVINGS:
                raise ResourceError(
                    f"{ctx.device.device_kind} ran out of memory, also with tiles an eighth as large ({_bytes(ctx.tile_bytes)}). Take fewer features or rows, a smaller `memory`, "
                    'or device="cpu"; other programs may be using the device.'
                ) from error
            ctx = replace(ctx, tile_shrinks=ctx.tile_shrinks + 1)


def _bytes(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**27 else f"{size / 2**20:.2f} MiB"
