"""`heatnets launch -n 4 solve FILE …`: several processes on this machine solve one problem."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from heatnets._core.errors import InputError, ResourceError
from heatnets.cli.terminal import option

if TYPE_CHECKING:
    from heatnets._core.process_group import ProcessGroup

_PLACE = "HEATNETS_PROCESS"  # environment variable: rank, count and address of process 0
_CONNECT_SECONDS = 60  # until all processes must have started
_HEARTBEAT_SECONDS = 30  # after which a process that does not answer counts as lost
_FAREWELL_SECONDS = 20.0  # for processes to end by themselves after one of them failed


def launch(
    context: typer.Context,
    count: Annotated[int, option("Number of processes.", False, "-n")],
    cpu_devices: Annotated[
        int | None, option("Devices into which each process divides its processor.", False)
    ] = None,
) -> None:
    """Run a command, like solve FILE, by several processes of this machine together."""
    arguments = list(context.args)
    if arguments[:1] != ["solve"]:
        raise InputError(
            "`heatnets launch` runs `solve`: heatnets launch -n 4 solve FILE, with the options of "
            "`solve` after it."
        )
    if count < 1 or (cpu_devices is not None and cpu_devices < 1):
        raise InputError(f"-n and --cpu-devices must be at least 1; got {count}, {cpu_devices}.")
    if cpu_devices is not None:
        flags = f"--xla_force_host_platform_device_count={cpu_devices}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()
    with tempfile.TemporaryDirectory() as directory:
        logs = [Path(directory) / str(rank) for rank in range(count)]
        address = f"127.0.0.1:{_free_port()}"
        started = [
            _start(rank, count, address, [*arguments, "--distributed"], log)
            for rank, log in enumerate(logs)
        ]
        _end_on_signals(started)
        codes = _wait(started)
        # One that failed by itself is the cause; JAX ends others by SIGABRT.
        ended = {rank: code for rank, code in enumerate(codes) if code}
        killed = [rank for rank, code in ended.items() if code < 0 and code != -signal.SIGABRT]
        failed = [rank for rank, code in ended.items() if code > 0]
        for rank in failed[:1] if 0 not in failed else []:  # process 0 has spoken itself
            sys.stderr.write(logs[rank].read_text(errors="replace"))
        if killed or (ended and not failed):
            first = (killed or list(ended))[0]
            raise ResourceError(
                f"process {first} of {count} was ended by signal {-codes[first]}; the others "
                f"have ended too. {_advice(arguments)}"
            )
    if failed:
        sys.exit(codes[failed[0]])


def connect() -> ProcessGroup:
    """Connect this process to the others of `--distributed`, by the launcher that started it."""
    import jax

    from heatnets._core.process_group import find_devices, process_group

    known: dict[str, Any] = {}
    if place := os.environ.get(_PLACE):
        rank, count, address = place.split()
        known = {"coordinator_address": address, "num_processes": int(count)}
        known["process_id"] = int(rank)
    message = (
        f"the processes have not found each other within {_CONNECT_SECONDS} seconds. All must be "
        "started, and reach process 0"
        + (f" at {known['coordinator_address']}: its host by this name, its port" if known else "")
        + " through the firewall."
    )
    try:
        with _within(_CONNECT_SECONDS, message):
            jax.distributed.initialize(
                **known,
                initialization_timeout=2 * _CONNECT_SECONDS,
                heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
                shutdown_timeout_seconds=_CONNECT_SECONDS,
            )
    except ValueError as error:
        raise InputError(
            f"--distributed finds no launcher that JAX knows ({error}). Start the processes with "
            "SLURM, Open MPI or Kubernetes; or on one machine: heatnets launch -n 4 solve FILE."
        ) from None
    with _without_output():  # the first exchange prints who is connected
        processes = process_group(find_devices("all"))
    if processes.rank:
        warnings.simplefilter("ignore")
    return processes


@contextmanager
def _within(seconds: float, message: str) -> Iterator[None]:
    """End this process with a message if the body takes longer: JAX would end it without one."""

    def end() -> None:
        os.write(2, f"heatnets: {message}\n".encode())
        os._exit(4)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def leave(error: Exception, code: int) -> NoReturn:
    """End a process of `--distributed` that failed: at once, unless all have failed together."""
    import jax

    sys.stdout.flush()
    sys.stderr.flush()
    if getattr(error, "is_known_to_all", False):
        jax.distributed.shutdown()
    os._exit(code)


@contextmanager
def together(processes: ProcessGroup | None) -> Iterator[None]:
    """The end of a command: all processes wait until the first has done its part."""
    try:
        yield
    finally:
        if processes is not None:
            import jax

            processes.from_first("end", "")
            jax.distributed.shutdown()


@contextmanager
def _without_output() -> Iterator[None]:
    """Drop what libraries print on standard output."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(
    rank: int, count: int, address: str, arguments: list[str], log: Path
) -> subprocess.Popen[bytes]:
    """Start one process, on cores of its own if there are enough; only process 0 is heard."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    own = cores[rank::count]
    environment = os.environ | {_PLACE: f"{rank} {count} {address}"}
    environment.setdefault("JAX_LOCAL_DEVICE_IDS", str(rank))  # of the GPUs of this machine

    def pin() -> None:
        if own:
            os.sched_setaffinity(0, own)

    with log.open("wb") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", "heatnets", *arguments],
            env=environment,
            preexec_fn=pin,
            stdout=subprocess.DEVNULL if rank else None,
            stderr=stream if rank else None,
        )


def _wait(started: list[subprocess.Popen[bytes]]) -> list[int]:
    """Wait for all processes; when one has failed, only for a short time."""
    failed = float("inf")
    while any(process.poll() is None for process in started):
        if failed == float("inf") and any(process.poll() for process in started):
            failed = time.monotonic()
        if time.monotonic() - failed > _FAREWELL_SECONDS:
            ended = [process.poll() for process in started]
            _end(started)
            return [code if code is not None else 0 for code in ended]
        time.sleep(0.05)
    return [process.returncode for process in started]


def _end_on_signals(started: list[subprocess.Popen[bytes]]) -> None:
    """On Ctrl-C or SIGTERM end the processes; process 0 says what it keeps."""

    def end(number: int, _: Any) -> None:
        _end(started)
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 5
    for process in started:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def _advice(arguments: list[str]) -> str:
    again = " ".join(["heatnets", "launch", "-n", "N", *arguments])
    return f"To go on after the finished rounds, with any number of processes: {again} --resume"
