"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

# One compilation cache for both workers and every process the tests start, kept between runs.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# A process may read an entry that another one is writing. JAX warns and compiles it again.
# pyproject.toml has the same filter for the workers; this one is for the processes they start.
os.environ.setdefault("PYTHONWARNINGS", "ignore:Error reading persistent compilation cache entry")

# What the tests compile besides solves runs once or twice: XLA's quick passes are enough. A version
# of XLA that does not know these flags ends the process, so that the first one asks.
_QUICK = (
    "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1"
)
if "XLA_FLAGS" not in os.environ:
    ask = [sys.executable, "-c", "import jax; jax.devices()"]
    known = not subprocess.run(
        ask, env=os.environ | {"XLA_FLAGS": _QUICK}, capture_output=True, check=False
    ).returncode
    os.environ["XLA_FLAGS"] = _QUICK if known else ""

# Both workers use all cores already; threads of OpenBLAS that wait for one another spin.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax  # noqa: E402
from jax._src import lru_cache  # noqa: E402

# JAX keeps what it traced: full collections found little in a heap of a gigabyte, and took 50 s of
# each worker.
gc.set_threshold(50_000, 20, 100)

MOST_MAPS = 20_000
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]\d+)?")


def _put_whole(self, key: str, value: bytes) -> None:
    """Write an entry of the compilation cache under another name, then rename it.

    JAX writes in place, so that the other worker could read half an entry. That is only a warning,
    but here warnings are errors, and some tests look at every warning.
    """
    entry = self.path / f"{key}{lru_cache._CACHE_SUFFIX}"
    partial = self.path / f"{key}.{os.getpid()}"
    partial.write_bytes(value)
    partial.replace(entry)


lru_cache.LRUCache.put = _put_whole


@pytest.fixture(autouse=True)
def memory_maps():
    """Drop JAX's compiled programs when the process holds more than `MOST_MAPS` memory maps.

    Each program takes a few maps, and the system ends a process that has more than 65530.
    """
    yield
    if (maps := Path("/proc/self/maps")).exists() and len(
        maps.read_bytes().splitlines()
    ) > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture
def x64():
    """JAX in float64, for tests that call inner functions; public functions must not need it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def unoptimised():
    """XLA compiles without optimising, for tests of small functions that are called once.

    They take a fifth less time so. Solves and certificates would take longer.
    """
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def run_command(tmp_path, monkeypatch, capfd):
    """The command line in this process, in a folder of its own."""
    from heatnets import cli

    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["heatnets", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Outcome(ended.value.code, *capfd.readouterr())

    yield run
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def same_output():
    """A check that a printed text is the promised one.

    The words must be the same, and the numbers to one unit of the last digit shown. Numbers on
    lines about errors and times need only agree to a factor of a thousand.
    """

    def check(printed: str, promised: str) -> None:
        assert NUMBER.sub("#", printed) == NUMBER.sub("#", promised)
        for here, there in zip(printed.splitlines(), promised.splitlines(), strict=True):
            for a, b in zip(NUMBER.findall(here), NUMBER.findall(there), strict=True):
                if there.startswith(("error", "estimated", "half-width", "Solved to")):
                    assert a == b or 1e-3 < float(a) / float(b) < 1e3, (
                        f"{here!r} instead of {there!r}"
                    )
                else:
                    assert abs(float(a) - float(b)) <= 1.001 * _unit(b), (
                        f"{here!r} instead of {there!r}"
                    )

    return check


def _unit(number: str) -> float:
    """One in the last digit of a number as it is written."""
    digits, _, power = number.partition("e")
    return 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
