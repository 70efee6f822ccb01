"""Progress of a certificate, from the evaluations of the network that it takes."""

from __future__ import annotations

import time

from heatnets._core.execution import Progress, Summary
from heatnets._core.progress import LONG, format_seconds

_MEASURED = 1.0  # seconds of work from which the time of a certificate is predicted
_LARGE_STEP = 0.05  # steps with a smaller share of the evaluations are not measured


class CertificateProgress:
    """Reports the progress of a certificate to a callback; at its begin, how long it will take.

    Args:
        report: the callback.
        points: the number of points.
        work: about how many evaluations of the network the certificate takes.
    """

    def __init__(self, report: Progress, points: int, work: float) -> None:
        self._report, self._last, self._work = report, (0, points), work
        self._evaluated, self._part = 0, 0  # evaluations of finished steps, and of this one
        self._step, self._start, self._is_known = (0, 0, 0), 0.0, False
        self._begin = time.perf_counter()

    def tell(self, done: int, total: int) -> None:
        """Report the number of points done, and of all points."""
        now, (known, _) = time.perf_counter(), self._last
        # The first point compiles; later ones tell how long the others take.
        if 0 < known < done < total and not self._is_known:
            self._predict((now - self._begin) / (done - known) * (total - done))
        self._last, self._begin = (done, total), now
        self._report("certificate", done, total)

    def repeat(self, phase: str, done: int, total: int) -> None:
        """Report about how many points the evaluations so far are worth.

        So many evaluations of one step of the work are done.
        """
        if done < self._part:
            self._evaluated += self._part
        self._part = done
        if not self._is_known and total > _LARGE_STEP * self._work:
            self._measure(done, total)
        finished, points = self._last
        share = min((self._evaluated + done) / self._work, 1.0)
        self._report("certificate", max(finished, min(int(share * points), points - 1)), points)

    def _measure(self, done: int, total: int) -> None:
        """Announce the time of all evaluations when a second of one step was measured."""
        now, (first, last, size) = time.perf_counter(), self._step
        if total != size or done <= last:  # another step begins, and its first part compiles
            self._step, self._start = (done, done, total), now
            return
        self._step = (first, done, total)
        if now - self._start > _MEASURED:
            self._predict(max(self._work - done, 0.0) * (now - self._start) / (done - first))

    def _predict(self, seconds: float) -> None:
        """Announce the time that the certificate still takes, once, if it is long."""
        self._is_known = True
        if seconds > LONG:
            n = self._last[1]
            points = f"{n} point{'s' if n > 1 else ''}"
            self.announce(f"certificate: {points}, about {format_seconds(seconds)} more")

    def announce(self, text: str) -> None:
        """Report a line of text."""
        self._report(Summary(text), 1, 1)
