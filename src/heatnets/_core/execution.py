"""Execution context: device, memory limit and progress callback; free and peak memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
from jaxtyping import PyTree

from heatnets._core.errors import (
    HeatnetsError,
    InputError,
    ResourceError,
    check_positive,
    short_repr,
)
from heatnets._core.process_group import ALONE, ProcessGroup, find_devices, process_group

Progress = Callable[[str, int, int], None]


class Summary(str):
    """A phase of progress that is the summary of a finished round: to be shown and kept.

    Attributes:
        error: the estimated error after the round, or None.
    """

    error: float | None

    def __new__(cls, text: str, error: float | None = None) -> Summary:
        summary = super().__new__(cls, text)
        summary.error = error
        return summary


class TileShrinks:
    """How often tiles were halved because the device ran out of memory; kept for later calls."""

    def __init__(self) -> None:
        self.count = 0


@dataclass(frozen=True)
class ExecutionContext:
    """Devices, memory limit in bytes, progress callback and processes of one public call."""

    device: Any
    memory: int
    progress: Progress
    tile_shrinks: TileShrinks = field(default_factory=TileShrinks)  # shared by all its copies
    processes: ProcessGroup = ALONE  # that share the work
    others: tuple[Any, ...] = ()  # further devices of this process

    def alone(self) -> ExecutionContext:
        """The same context for this process alone: it shares its work with no other."""
        return replace(self, processes=ALONE)

    def on_each_device(self) -> list[ExecutionContext]:
        """A context for each device of this process; only the first reports progress."""
        first = replace(self, processes=ALONE, others=())
        return [first, *(replace(first, device=d, progress=_silent) for d in self.others)]

    @property
    def is_shared(self) -> bool:
        """Whether several devices or processes share the work."""
        return self.processes.count > 1 or bool(self.others)

    @property
    def is_silent(self) -> bool:
        """Whether the user gave no progress callback."""
        return self.progress is _silent

    @property
    def tile_bytes(self) -> int:
        """Bytes for the intermediate arrays of one tile.

        Small on a CPU, so that they stay in the cache; large on a GPU, where kernel launches cost.
        """
        largest = 2**23 if self.device.platform == "cpu" else 2**32
        return min(self.memory // 8, largest) >> self.tile_shrinks.count

    @contextmanager
    def active(self) -> Iterator[None]:
        """Run JAX on the device, and let code without a context of its own use this one."""
        token = _ACTIVE.set(self)
        try:
            with jax.default_device(self.device):
                yield
        finally:
            _ACTIVE.reset(token)

    def require_memory(self, needed: int, what: str, remedy: str) -> None:
        """Raise `ResourceError` if `needed` bytes exceed the limit; called before the work."""
        if needed > self.memory:
            raise ResourceError(
                f"`memory` allows {_format_bytes(self.memory)}; {what} needs "
                f"{_format_bytes(needed)}. {remedy}{' Or raise' if remedy else 'Raise'} it: "
                f"memory={needed}."
            )


_ACTIVE: ContextVar[ExecutionContext | None] = ContextVar("execution context", default=None)


def current_context() -> ExecutionContext:
    """The context that is active, without its progress callback; a new one if there is none."""
    active = _ACTIVE.get()
    return make_context() if active is None else replace(active, progress=_silent)


def _silent(phase: str, done: int, total: int) -> None:
    """A progress callback that does nothing."""


def make_context(
    device: Any = None, memory: Any = None, progress: Any = None, devices: Any = None
) -> ExecutionContext:
    """Make the context from public arguments: `device`, `memory`, `progress` and `devices`.

    The default memory limit, in bytes, is three quarters of the free memory of the device.
    """
    if devices is not None and device is not None:
        raise InputError("`device` and `devices` exclude each other: leave `device` out.")
    chosen = [_find_device(device)] if devices is None else find_devices(devices)
    processes = process_group(chosen)
    own = [one for one in chosen if one.process_index == jax.process_index()]
    if not own:
        raise InputError(
            f"`device` must be one of this process; got {chosen[0]}, of process "
            f'{chosen[0].process_index}. For all of them: devices="all".'
        )
    jax_device = own[0]
    if memory is None:
        limit = _free_bytes(jax_device) * 3 // 4
        if jax_device.platform == "cpu":
            limit //= processes.count_here
    else:
        limit = int(check_positive("memory", memory, "It is in bytes: memory=4 * 2**30 for 4 GiB."))
        if limit < 2**20:
            raise InputError(
                f"`memory` must be at least one MiB; got {limit} bytes. "
                "It is in bytes: memory=4 * 2**30 for 4 GiB."
            )
    if progress is not None and not callable(progress):
        raise InputError(
            "`progress` must be None or a function (phase, done, total); "
            f"got {short_repr(progress)}."
        )
    if processes.count > 1:
        limit = -int(processes.largest("memory", -limit)[0])  # the smallest
        progress = progress if processes.rank == 0 else _silent
    return ExecutionContext(
        jax_device, limit, progress or _silent, processes=processes, others=tuple(own[1:])
    )


def _find_device(device: Any) -> Any:
    if isinstance(device, jax.Device):
        return device
    platforms = sorted({d.platform for d in jax.local_devices()} | {"cpu"})
    if device is not None and device not in platforms:
        remedy = ""
        if device in ("gpu", "cuda", "rocm"):
            remedy = (
                " JAX finds no GPU. For one by NVIDIA install heatnets with its CUDA packages: pip "
                "install -e '.[cuda12]' or '.[cuda13]' in the folder of the repository; `heatnets "
                "doctor` lists the devices."
            )
        raise InputError(
            f"`device` must be one of {', '.join(map(repr, platforms))} or a jax.Device; "
            f"got {short_repr(device)}.{remedy}"
        )
    return jax.local_devices(backend=device)[0]


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
    return min(free, *(_free_in_group(root) for root in _control_groups()))


def _control_groups() -> list[Path]:
    """The root control group (cgroup) and those that this process belongs to."""
    root = Path("/sys/fs/cgroup")
    try:
        names = [
            line.split(":", 2)[2].strip()
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if line.startswith("0::")
        ]
    except (OSError, IndexError):
        names = []
    return [root, *(root / name.lstrip("/") for name in names)]


def _free_in_group(root: Path) -> int:
    """Free bytes under the memory limit of a control group (cgroup v2 or v1); 2^62 if no limit."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            limit_text, used_text = ((root / name).read_text().strip() for name in (limit, used))
            stat = dict(
                line.split()
                for line in (root / limit).with_name("memory.stat").read_text().splitlines()
            )
        except (OSError, ValueError):
            continue
        if limit_text.isdigit():
            # The page cache counts as used, but the kernel frees it on demand.
            cached = int(stat.get("inactive_file", stat.get("total_inactive_file", 0)))
            return max(int(limit_text) - int(used_text) + cached, 0)
    return 2**62


def peak_bytes(device: Any) -> int:
    """Peak memory use so far: of the device, or of this process if the device is a CPU."""
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats:
        return int(stats.get("peak_bytes_in_use", 0))
    try:
        import resource
    except ImportError:  # Windows has no such module
        return 0
    bytes_per_unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * bytes_per_unit


_HALVINGS = 3


def within_memory(work: Callable[[ExecutionContext], PyTree], ctx: ExecutionContext) -> PyTree:
    """Return `work(ctx)`; if the device runs out of memory, halve the tiles and try again.

    Tiles are halved three times at most. They stay small for all later work in this context.
    """
    while True:
        try:
            return work(ctx)
        except HeatnetsError:  # of another process: a ResourceError is a MemoryError too
            raise
        except MemoryError as error:  # of NumPy, on the host
            raise ResourceError(
                f"the host ran out of memory: {error}. Take fewer features or rows."
            ) from error
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error) and "out of memory" not in str(error).lower():
                raise
            if ctx.tile_shrinks.count >= _HALVINGS:
                raise ResourceError(
                    f"{ctx.device.device_kind} ran out of memory, also with tiles an eighth as "
                    f"large ({_format_bytes(ctx.tile_bytes)}). Take fewer features or rows, "
                    'a smaller `memory`, or device="cpu"; other programs may be using the device.'
                ) from error
            ctx.tile_shrinks.count += 1


def _format_bytes(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**27 else f"{size / 2**20:.2f} MiB"
