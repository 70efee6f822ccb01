"""Shared by all tests: a fresh look at warnings, and small helpers with no mathematics of their own."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

# One compilation cache for both workers and every process the tests start, kept between runs.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax

MOST_MAPS = 20_000
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]\d+)?")


@pytest.fixture(autouse=True)
def memory_maps():
    """Forget compiled programs before the system's limit of memory maps (65530) ends the process: each takes a few."""
    yield
    if (maps := Path("/proc/self/maps")).exists() and len(
        maps.read_bytes().splitlines()
    ) > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture
def x64():
    """JAX in float64 for tests that call the inner rooms directly; public calls must not need it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def same_output():
    """What a document promises is printed: the same words, and numbers to one unit of the last digit shown.

    Lines about errors hold to a factor of a thousand only: how far a budget of seconds goes depends on the machine.
    """

    def check(printed: str, promised: str) -> None:
        assert NUMBER.sub("#", printed) == NUMBER.sub("#", promised)
        for here, there in zip(printed.splitlines(), promised.splitlines(), strict=True):
            for a, b in zip(NUMBER.findall(here), NUMBER.findall(there), strict=True):
                if there.startswith(("error", "estimated", "half-width")):
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
