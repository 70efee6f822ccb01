"""Progress of long work as plain lines on standard error."""

from __future__ import annotations

import sys
import time

from heatnets._core.execution import Summary

LONG = 10.0  # seconds after which work is worth a line, and between two lines


class ProgressLines:
    """A progress callback that prints lines on standard error; none for work that is short.

    A `Summary` is printed at once. Phases of more than five seconds get a line every ten seconds.
    """

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._phase, self._start, self._first = "", self._last, 0

    def __call__(self, phase: str, done: int, total: int) -> None:
        now = time.perf_counter()
        if isinstance(phase, Summary):
            self._say(str(phase), now)
            return
        if phase != self._phase or done < self._first:
            self._phase, self._start, self._first = phase, now, done
        is_long = now - self._start >= LONG / 2 and now - self._last >= LONG
        if not is_long or done >= total:
            return
        elapsed, gained = now - self._start, done - self._first
        left = f", about {format_seconds(elapsed / gained * (total - done))} left" if gained else ""
        self._say(f"{phase}: {done} of {total} after {format_seconds(elapsed)}{left}", now)

    def _say(self, text: str, now: float) -> None:
        self._last = now
        print(f"heatnets: {text}", file=sys.stderr, flush=True)


def format_seconds(seconds: float) -> str:
    """A time for people: 14 s, 3 min, 2.5 h."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.1f} h"
