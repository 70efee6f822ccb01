"""Several processes solve one problem together: who computes what, and what they exchange.

All processes run the same program on the same problem. Random numbers, features and decisions are
the same in each; work at many points is divided, and its results are exchanged. `jax.distributed`
lets the processes find each other, and XLA's collectives carry the data.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from heatnets._core.errors import (
    FileError,
    HeatnetsError,
    InputError,
    NumericalError,
    ResourceError,
    short_repr,
)

_RECORD = 2048  # bytes of the record that comes before each exchange
_SMALL = 1024  # bytes of data that find room in a record
_LONGEST = 900  # bytes of a message in a record
_PATIENCE = 3.0  # seconds to wait for the operating system to know that a process has ended
# The error that the other processes raise, by the classes of that of one.
_KINDS: dict[str, type[HeatnetsError]] = {
    **{kind.__name__: kind for kind in (InputError, NumericalError, ResourceError, FileError)},
    "OSError": FileError,
}


_Record = tuple[dict[str, Any], bytes]  # what a process is about to do, and data


def shares(rows: int, count: int, chunk: int = 1) -> list[slice]:
    """Rows divided into so many parts: whole chunks, if there are enough."""
    chunk = chunk if rows >= chunk * count else 1
    bounds = chunk * (-(-rows // chunk) * np.arange(count + 1) // count)
    return [slice(int(a), min(int(b), rows)) for a, b in itertools.pairwise(bounds)]


class ProcessGroup:
    """The processes of one solve. All of them make the same calls in one order.

    A process that fails says so at its next call; the others then raise the same error. Before each
    exchange the processes compare what they are about to do.

    Attributes:
        rank: number of this process.
        count: number of processes.
        device: the device of this process that carries the data; None in a group of one.
        remedy: what to do if a process is lost, the end of the message.
        sent: bytes that this process has given to others.
    """

    def __init__(self, devices: list[Any]) -> None:
        self.count = max(len(devices), 1)
        self.rank, self.device, self.remedy, self.sent = 0, None, "Begin anew.", 0
        self._is_broken, self._peers, self._turn = False, list[list[Any]](), 0
        if self.count > 1:
            self.rank = [d.process_index for d in devices].index(jax.process_index())
            self.device = devices[self.rank]
            self._mesh = Mesh(np.array(devices), ("processes",))
            self._split = NamedSharding(self._mesh, PartitionSpec("processes"))
            everywhere = NamedSharding(self._mesh, PartitionSpec())
            self._to_all = jax.jit(lambda a: a, out_shardings=everywhere)
            self._permute = partial(jax.jit, static_argnums=1)(self._permuted)
            here = json.dumps([socket.gethostname(), os.getpid()]).encode()
            self._peers = [json.loads(bytes(b)) for b in self._exchange_bytes("start", here)]

    @property
    def count_here(self) -> int:
        """The number of these processes on this machine."""
        return max(1, sum(host == socket.gethostname() for host, _ in self._peers))

    def share(self, rows: int, chunk: int = 1) -> slice:
        """The rows of this process, of so many in all: whole chunks, if there are enough."""
        return shares(rows, self.count, chunk)[self.rank]

    def gather(self, label: str, array: np.ndarray) -> list[np.ndarray]:
        """The arrays of all processes. Their first axes may differ."""
        if self.count == 1:
            return [array]
        array = np.ascontiguousarray(array)
        parts = self._exchange_bytes(label, array.tobytes())
        return [np.frombuffer(b, array.dtype).reshape(-1, *array.shape[1:]) for b in parts]

    def join_rows(self, label: str, tree: PyTree) -> PyTree:
        """Arrays with the rows of all processes, from those with the `share` of each."""
        if self.count == 1:
            return tree
        leaves, structure = jax.tree.flatten(tree)
        flat = [np.asarray(leaf).reshape(len(leaf), -1) for leaf in leaves]
        widths = np.cumsum([a.shape[1] for a in flat])[:-1]
        # One exchange for all arrays: of floats, flags or small integers, which stay the same.
        joined = np.concatenate(self.gather(label, np.hstack([a.astype(np.float64) for a in flat])))
        parts = np.split(joined, widths, axis=1)
        return jax.tree.unflatten(
            structure,
            [
                part.reshape(-1, *leaf.shape[1:]).astype(leaf.dtype)
                for part, leaf in zip(parts, leaves, strict=True)
            ],
        )

    def total(self, label: str, numbers: Any) -> np.ndarray:
        """Sums over the processes, the same to the last bit in each."""
        return np.sum(np.stack(self.gather(label, np.atleast_1d(numbers))), axis=0)

    def largest(self, label: str, numbers: Any) -> np.ndarray:
        """The largest over the processes; NaN does not count."""
        return np.fmax.reduce(np.stack(self.gather(label, np.atleast_1d(numbers))))

    def from_first(self, label: str, text: str) -> str:
        """The text of process 0."""
        return self.bytes_from_first(label, text.encode()).decode()

    def bytes_from_first(self, label: str, content: bytes) -> bytes:
        """The bytes of process 0."""
        if self.count == 1:
            return content
        return self._exchange_bytes(label, content if self.rank == 0 else b"")[0]

    def exchange(self, label: str, array: np.ndarray, pairs: dict[int, int]) -> np.ndarray:
        """Exchange arrays of one shape between processes: `pairs` maps senders to receivers.

        Returns the array that was received; a process that receives nothing gets zeros.
        """
        array = np.ascontiguousarray(array)
        self._compare(label, b"")
        steps = tuple(sorted(pairs.items()))
        self.sent += array.nbytes if self.rank in pairs else 0
        with self._watched():
            received = self._permute(self._whole(array[None]), steps)
            return np.asarray(received.addressable_data(0))[0]

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Tell the other processes if the body of a `with` statement raises an error.

        All wait at its end, so that none has gone on when another one fails.
        """
        try:
            yield
            if self.count > 1:
                self._compare("end of a call", b"")
        except BaseException as error:
            is_known = getattr(error, "is_known_to_all", False)
            if self.count > 1 and not self._is_broken and not is_known:
                error.is_known_to_all = True  # type: ignore[attr-defined]
                kind = type(error).__name__
                text = str(error) if isinstance(error, HeatnetsError) else f"{kind}: {error}"
                text = text.encode()[:_LONGEST].decode(errors="ignore")
                kinds = [base.__name__ for base in type(error).__mro__]
                with suppress(ResourceError):  # one that has ended does not hide this error
                    self._send_record({"failed": text, "kinds": kinds})
            raise

    def _permuted(self, array: Any, steps: tuple[tuple[int, int], ...]) -> Any:
        def move(part: Any) -> Any:
            return jax.lax.ppermute(part, "processes", steps)

        spec = PartitionSpec("processes")
        return jax.shard_map(move, mesh=self._mesh, in_specs=spec, out_specs=spec)(array)

    def _whole(self, part: np.ndarray) -> Any:
        """A global array of which this process has one row."""
        shape = (self.count, *part.shape[1:])
        here = [jax.device_put(part, self.device)]
        return jax.make_array_from_single_device_arrays(shape, self._split, here)

    def _exchange_bytes(self, label: str, content: bytes) -> list[bytes]:
        """The bytes of all processes, in the order of their ranks."""
        records = self._compare(label, content)
        sizes = [record["size"] for record, _ in records]
        if max(sizes) <= _SMALL:
            return [data[:size] for (_, data), size in zip(records, sizes, strict=True)]
        padded = np.zeros(_padded_size(max(sizes)), np.uint8)
        padded[: len(content)] = np.frombuffer(content, np.uint8)
        rows = self._everywhere(padded)
        self.sent += len(padded)
        return [row[:size].tobytes() for row, size in zip(rows, sizes, strict=True)]

    def _everywhere(self, row: np.ndarray) -> np.ndarray:
        """The rows of all processes."""
        with self._watched():
            return np.asarray(self._to_all(self._whole(row[None])).addressable_data(0))

    def _send_record(self, record: dict[str, Any], data: bytes = b"") -> list[_Record]:
        """The records of all processes, each with a few bytes of data."""
        head = json.dumps(record, ensure_ascii=False).encode()
        row = np.frombuffer((head + b"\0" + data).ljust(_RECORD, b"\0"), np.uint8)
        self.sent, self._turn = self.sent + _RECORD, self._turn + 1
        parts = [row.tobytes().partition(b"\0") for row in self._everywhere(row)]
        return [(json.loads(head), rest) for head, _, rest in parts]

    def _compare(self, label: str, content: bytes) -> list[_Record]:
        """Compare what the processes are about to do; the content is sent along if it is small."""
        if self._is_broken:
            raise ResourceError(f"another process has failed before. {self.remedy}")
        label = f"{label}, exchange {self._turn}"
        data = content if len(content) <= _SMALL else b""
        records = self._send_record({"label": label, "size": len(content)}, data)
        for rank, (record, _) in enumerate(records):
            if "failed" in record:
                kind = next((_KINDS[k] for k in record["kinds"] if k in _KINDS), ResourceError)
                error = kind(f"process {rank} of {self.count}: {record['failed']}")
                error.is_known_to_all = True  # type: ignore[attr-defined]
                raise error
        labels = [record["label"] for record, _ in records]
        if len(set(labels)) > 1:
            self._is_broken = True
            raise ResourceError(
                f"the processes have come to different places ({', '.join(labels)}): they must "
                "run the same program, on machines of the same kind, with the same versions. "
                f"{self.remedy}"
            )
        return records

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Put it into words if a process has ended during an exchange."""
        try:
            yield
        except (ValueError, RuntimeError, jax.errors.JaxRuntimeError) as error:
            self._is_broken = True
            raise ResourceError(f"{self._name_lost()}. {self.remedy}") from error

    def _name_lost(self) -> str:
        """Which processes have ended, as far as this machine can know.

        The first to end may not be the first here: others end because of it.
        """
        host, deadline = socket.gethostname(), time.monotonic() + _PATIENCE
        while True:
            ended = [
                f"process {rank} (pid {pid})"
                for rank, (where, pid) in enumerate(self._peers)
                if where == host and not _is_running(pid)
            ]
            if ended:
                verb = "has" if len(ended) == 1 else "have"
                return f"{' and '.join(ended)} of {self.count} {verb} ended on {host}"
            if time.monotonic() > deadline:
                hosts = sorted({where for where, _ in self._peers} - {host}) or [host]
                return f"a process on {', '.join(hosts)} has ended or cannot be reached"
            time.sleep(0.1)


def _padded_size(size: int) -> int:
    """The next of 8, 9, ..., 16 times a power of two: few sizes are compiled, little is added."""
    unit = max(_RECORD // 8, 1 << max(size.bit_length() - 4, 0))
    return max(_RECORD, -(-size // unit) * unit)


def _is_running(pid: int) -> bool:
    """Whether a process of this machine exists, and is not about to be removed."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except (OSError, IndexError):
        return True
    return state not in "ZX"


ALONE = ProcessGroup([])


@cache
def _group_of(*devices: Any) -> ProcessGroup:
    """The group with these devices: one object, and one set of compiled exchanges."""
    return ProcessGroup(list(devices))


def find_devices(devices: Any) -> list[Any]:
    """The devices of the public argument `devices`: "all", devices, or a `jax.sharding.Mesh`."""
    if isinstance(devices, str) and devices == "all":
        return list(jax.devices())
    given = getattr(devices, "devices", devices)  # of a mesh: an array
    chosen = list(given.flat) if isinstance(given, np.ndarray) else given
    is_list = isinstance(chosen, list | tuple) and len(chosen) > 0
    if not is_list or not all(isinstance(device, jax.Device) for device in chosen):
        raise InputError(
            f'`devices` must be "all", a list of jax.Devices or a Mesh; got {short_repr(devices)}.'
        )
    owners = {device.process_index for device in chosen}
    if len(set(chosen)) < len(chosen):
        raise InputError("`devices` must hold each device once.")
    if len(owners) < jax.process_count() and owners != {jax.process_index()}:
        raise InputError(
            f"`devices` must hold devices of each of the {jax.process_count()} processes, or of "
            f'this one alone; got those of {len(owners)}. Write devices="all".'
        )
    return list(chosen)


def process_group(devices: Sequence[Any]) -> ProcessGroup:
    """The group of the processes that own these devices."""
    first: dict[int, Any] = {}
    for device in devices:
        first.setdefault(device.process_index, device)
    if len(first) < 2:
        return ALONE
    return _group_of(*(first[k] for k in sorted(first)))
