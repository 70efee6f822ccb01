"""Progress of work: a line on a terminal, lines for long work, how much of a solve is done."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from heatnets._core.execution import Progress, Summary

LONG = 10.0  # seconds after which work is worth a line, and between two lines
_REFRESH = 0.1  # seconds between two states of the line on a terminal
_LAST = 0.99  # largest fraction before the end
_COST_OF_ROUND = 4.0  # a round of a growth costs about so many times the one before


@contextmanager
def shown_progress(work: str, progress: Progress | None = None) -> Iterator[Progress]:
    """The progress callback of a call: the user's, or one that writes on standard error.

    On a terminal it is one line that is kept up to date, and erased at the end. Elsewhere only long
    work is reported.

    Args:
        work: what the call does first.
        progress: the callback of the user, or None.
    """
    if progress is not None:
        yield progress
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        line = StatusLine(sys.stderr, work)
        try:
            yield line
        finally:
            line.erase()
    else:
        yield ProgressLines()


class StatusLine:
    """A progress callback that keeps one line of a terminal up to date.

    The cursor stays at the begin of the line, so that other output replaces it.

    Args:
        stream: the terminal.
        phase: what is done until the first report.
    """

    def __init__(self, stream: TextIO, phase: str) -> None:
        self._stream, self._phase, self._total, self._error = stream, phase, 0, ""
        self._start, self._last = time.perf_counter(), -math.inf
        self._show("")

    def __call__(self, phase: str, done: int, total: int) -> None:
        if isinstance(phase, Summary):
            if phase.error is None:
                self._write(f"heatnets: {phase}\n")
            else:
                self._error = f", estimated error so far {phase.error:.1e}"
            return
        is_new = phase != self._phase
        if is_new:
            self._phase, self._total = phase, total
        if is_new and done == 0 and not self._error:
            self._show(", compiling")
        elif is_new or time.perf_counter() - self._last >= _REFRESH:
            # The parts of a round have totals of their own.
            self._show(f" {100 * done / total:.0f} %" if done and total == self._total else "")

    def _show(self, state: str) -> None:
        self._last = time.perf_counter()
        seconds = format_seconds(self._last - self._start)
        text = f"heatnets: {self._phase}{state}{self._error}, {seconds}"
        self._write(text[: shutil.get_terminal_size().columns - 1])

    def erase(self) -> None:
        """Remove the line."""
        self._write("")

    def _write(self, text: str) -> None:
        self._stream.write(f"\x1b[2K{text}\r")
        self._stream.flush()


class ProgressLines:
    """A progress callback that prints lines on standard error; none for work that is short.

    Phases of more than five seconds get a line every ten seconds. A `Summary` is printed at once;
    that of a round only where the work is long.
    """

    def __init__(self) -> None:
        self._begin = self._last = time.perf_counter()
        self._phase, self._start = "", self._last
        self._part, self._done, self._total = (self._last, 0), 0, 0  # when and where a part began

    def __call__(self, phase: str, done: int, total: int) -> None:
        now = time.perf_counter()
        if isinstance(phase, Summary):
            if phase.error is None or now - self._begin >= LONG:
                self._say(str(phase), now)
            return
        is_new = phase != self._phase
        if is_new:
            self._phase, self._start = phase, now
        # A round has parts with totals of their own, and the first piece of each is compiled.
        if is_new or total != self._total or done < self._done:
            self._part = now, done
        self._done, self._total = done, total
        is_long = now - self._start >= LONG / 2 and now - self._last >= LONG
        if not is_long or done >= total:
            return
        since, first = self._part
        left = ""
        if done > first:
            seconds = (now - since) / (done - first) * (total - done)
            left = f", about {format_seconds(seconds)} left"
        spent = format_seconds(now - self._start)
        self._say(f"{phase}: {done} of {total} after {spent}{left}", now)

    def _say(self, text: str, now: float) -> None:
        self._last = now
        print(f"heatnets: {text}", file=sys.stderr, flush=True)


def format_seconds(seconds: float) -> str:
    """A time for people: 14 s, 3 min, 2.5 h."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.1f} h"


class SolveFraction:
    """A progress callback that keeps the fraction of a solve that is done.

    With a tolerance the fraction is that of the logarithm of the estimated error, on its way from
    the first estimate to the tolerance; with `max_rounds` that of the work of all rounds. It is at
    least the part of `seconds` that is spent. It never falls, and is 1 after `finish`.

    Args:
        tol: tolerance of the solve; None or 0 for none.
        seconds: time limit; None for none.
        max_rounds: largest number of rounds, or None.
        grows: whether the solve is adaptive. If not, the phases of a solve of fixed size count.
        clock: gives the time in seconds.
    """

    def __init__(
        self,
        tol: float | None = None,
        seconds: float | None = None,
        max_rounds: int | None = None,
        *,
        grows: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._tol, self._seconds, self._max_rounds, self._grows = tol, seconds, max_rounds, grows
        self._clock, self._started = clock, clock()
        self._first, self._rounds = math.nan, 0
        self.fraction = 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Report progress, as `hn.solve` does."""
        parts = [0.0]
        if isinstance(phase, Summary):
            self._rounds += 1
            parts += [self._by_error(phase.error), self._by_rounds()]
        elif not self._grows:
            parts.append(done / max(total, 1))
        if self._grows and self._seconds:
            parts.append(self.elapsed / self._seconds)
        self.fraction = max(self.fraction, min(max(parts), _LAST))

    def finish(self) -> None:
        """The solve has ended."""
        self.fraction = 1.0

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._started

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the end, if the fraction goes on as so far; None as long as it is 0."""
        if self.fraction == 0:
            return None
        left = self.elapsed * (1 - self.fraction) / self.fraction
        return min(left, max(self._seconds - self.elapsed, 0.0)) if self._seconds else left

    def _by_error(self, error: float | None) -> float:
        if not self._tol or error is None or not 0 < error < math.inf:
            return 0.0
        if math.isnan(self._first):
            self._first = error
        if self._first <= self._tol:
            return _LAST
        return math.log(self._first / error) / math.log(self._first / self._tol)

    def _by_rounds(self) -> float:
        return (
            0.0 if self._max_rounds is None else _COST_OF_ROUND ** (self._rounds - self._max_rounds)
        )
