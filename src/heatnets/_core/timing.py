"""Where the seconds went: named phases, and what JAX spent compiling inside them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import jax

_BACKEND_COMPILE = "/jax/core/compile/backend_compile_duration"


class PhaseTimer:
    """Seconds per phase, compilation taken out of the phase it happened in and listed on its own."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {
            "compile": 0.0,
            "pilot": 0.0,
            "assembly": 0.0,
            "solve": 0.0,
        }

    def add(self, seconds: dict[str, float]) -> None:
        """Seconds that an earlier run took."""
        for phase, more in seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + more

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        compiling = 0.0

        def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
            nonlocal compiling
            if event == _BACKEND_COMPILE:
                compiling += duration_secs

        jax.monitoring.register_event_duration_secs_listener(listen)
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            jax.monitoring.unregister_event_duration_listener(listen)
            self.seconds["compile"] += compiling
            self.seconds[name] = self.seconds.get(name, 0.0) + max(elapsed - compiling, 0.0)
