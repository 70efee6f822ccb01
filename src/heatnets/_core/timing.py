"""Wall-clock seconds of named phases, with the compilation time of JAX counted separately."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import jax

_BACKEND_COMPILE = "/jax/core/compile/backend_compile_duration"


class PhaseTimer:
    """Seconds per phase; compilation time is subtracted from its phase and added to "compile"."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("compile", "pilot", "assembly", "solve"), 0.0)

    def add(self, seconds: dict[str, float]) -> None:
        """Add the seconds per phase of an earlier run."""
        for phase, elapsed in seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + elapsed

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the body of a `with` statement as the phase `name`."""
        compilations: list[float] = []

        def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
            if event == _BACKEND_COMPILE:
                compilations.append(duration_secs)

        jax.monitoring.register_event_duration_secs_listener(listen)
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed, compiling = time.perf_counter() - start, sum(compilations)
            jax.monitoring.unregister_event_duration_listener(listen)
            self.seconds["compile"] += compiling
            self.seconds[name] = self.seconds.get(name, 0.0) + max(elapsed - compiling, 0.0)
