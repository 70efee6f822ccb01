"""Sequential sampling: add samples at each point until the interval of their mean is good enough.

With a requested half-width the samples are doubled where needed. Without it, and where tails look
heavy, points get four times the samples, then sixteen times. To stop as soon as all looks well
would select the samples that have not met what is rare: then as many samples again must confirm it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from heatnets._core.progress import LONG, format_seconds
from heatnets._core.reasons import Reason, ReasonKind, is_kind
from heatnets._core.statistics import (
    MAX_KURTOSIS_RATIO,
    MIN_PAIRS,
    RunningMoments,
    confidence_interval,
    t_half_width,
)
from heatnets.certify.certificate import CertifyOptions
from heatnets.certify.path_sampling import SampleBatch, step_allowance

# How often points whose tails look heavy get four times the samples.
MAX_TAIL_RETRIES = 2
# Most samples with a requested half-width, as a multiple of `samples`.
MAX_SAMPLE_FACTOR = 1024
# A point that needs so many times the most samples is given up at once.
_HOPELESS = 2.0
_SENSIBLE = 2**24  # most `samples` that a message advises


class PointSamples(ABC):
    """The samples at one point so far, and the interval for their mean: numbers or vectors (k,).

    Attributes:
        count: the number of independent samples (antithetic pairs).
        drawn: the number of evaluations, at both points of each pair.
        rate: the power of the number of samples with which the half-width falls.
        rounding: bound for rounding errors, and for those of features that are integrals; part of
            the half-width.
        noise: bound for rounding errors: heavy tails of an interval below do not matter.
        mean: the mean of the samples.
        half: half-width of the interval.
        step_bias: the part of it that allows for the steps of paths.
        floor: a half-width that more samples cannot reduce.
        step_floor: the part of it from the steps of paths.
        reasons: why the interval cannot be trusted; more samples may help.
        order_reasons: why the bias of the steps is not known.
        missed: why the requested half-width was not reached.
    """

    rate = 0.5

    def __init__(self, rounding: Any, mean: Any = 0.0, least: Any = 0.0, noise: Any = None) -> None:
        self.rounding, self.mean, self.half, self.least = rounding, mean, rounding, least
        self.noise = rounding if noise is None else noise
        self.count, self.changes = 0, list[np.ndarray]()
        self.step_bias: Any = 0.0
        self.step_floor: Any = 0.0
        self.floor = rounding
        self.reasons: tuple[str, ...] = ()
        self.order_reasons: tuple[str, ...] = ()
        self.missed: tuple[str, ...] = ()

    @property
    def drawn(self) -> int:
        return 2 * self.count

    @abstractmethod
    def _interval(self, confidence: float) -> tuple[Any, tuple[str, ...]]:
        """Set `mean`; return the half-width without the bias of steps, and the reasons."""

    def update(self, confidence: float) -> None:
        """Compute the interval from all samples so far."""
        half, self.reasons = self._interval(confidence)
        if self.changes:
            changes = np.concatenate(self.changes)
            self.step_bias, self.step_floor, self.order_reasons = step_allowance(changes, half)
        self.half = half + self.step_bias


class NumberSamples(PointSamples):
    """Samples of a number, all kept."""

    def __init__(
        self, rounding: float, mean: float, rare: float, smooth: bool, noise: float | None = None
    ) -> None:
        super().__init__(rounding, mean, rare, noise)
        self.parts, self.spread, self.sample_rounding = list[np.ndarray](), 0.0, 0.0
        self._smooth = smooth

    def add(self, samples: np.ndarray, steps: np.ndarray, rounding: float, spread: float) -> None:
        """Add samples (n,) with their changes by the steps (n, 2), rounding and spread."""
        total = self.count * self.sample_rounding + len(samples) * float(rounding)
        self.parts.append(samples)
        self.changes.append(steps)
        self.count += len(samples)
        self.sample_rounding = total / self.count
        self.spread = max(self.spread, spread)

    @property
    def samples(self) -> np.ndarray:
        """All samples, (count,)."""
        return np.concatenate(self.parts)

    def _interval(self, confidence: float) -> tuple[Any, tuple[str, ...]]:
        least = max(0.5 * self.spread, self.least)
        student = confidence_interval(self.samples[None], confidence, least=least)
        (self.mean,), (half,), (reasons,) = student
        if half < self.noise and np.isfinite(half):
            reasons = tuple(why for why in reasons if not is_kind(why, ReasonKind.HEAVY_TAILS))
        self.floor = self.rounding + self.sample_rounding
        return half + self.rounding + (self.sample_rounding if self._smooth else 0.0), reasons


class VectorSamples(PointSamples):
    """Samples of a vector, of which moments are kept."""

    def __init__(self, rounding: np.ndarray, least: Any, noise: np.ndarray | None = None) -> None:
        super().__init__(rounding, least=least, noise=noise)
        self.moments = RunningMoments()

    def add(self, batch: SampleBatch) -> None:
        """Add samples (n, k)."""
        self.moments.add(batch.samples)
        self.count = self.moments.count
        if batch.steps is not None:
            self.changes.append(batch.steps)

    def _interval(self, confidence: float) -> tuple[Any, tuple[str, ...]]:
        m, self.mean = self.moments, self.moments.mean
        student = t_half_width(m, confidence, least=self.least)
        reasons = self._tail_reasons()
        if np.all(student < self.noise):
            reasons = tuple(why for why in reasons if not is_kind(why, ReasonKind.HEAVY_TAILS))
        return student + self.rounding, reasons

    def update(self, confidence: float) -> None:
        super().update(confidence)
        self.reasons, self.order_reasons = (*self.reasons, *self.order_reasons), ()

    def _tail_reasons(self) -> tuple[str, ...]:
        """Reasons not to trust an interval: samples not finite, too few, or with heavy tails."""
        mean, n = self.moments.mean, self.count
        bad = int(np.sum(~np.isfinite(mean)))
        heavy = int(np.sum(self.moments.kurtosis > MAX_KURTOSIS_RATIO * n))
        if bad:
            text = (
                f"samples of {bad} components are not finite: the data, or a derivative of theirs, "
                "are not finite on some paths"
            )
            return (Reason(ReasonKind.NOT_FINITE, text),)
        if n < MIN_PAIRS:
            text = f"only {n} independent sample pairs: ask for {MIN_PAIRS} or more"
            return (Reason(ReasonKind.TOO_FEW_SAMPLES, text),)
        if heavy:
            text = (
                f"heavy tails in {heavy} of {mean.size} components: a few of {n} sample pairs "
                "carry their variance; ask for more"
            )
            return (Reason(ReasonKind.HEAVY_TAILS, text),)
        return ()


def sample_until_good(
    points: Mapping[int, PointSamples],
    draw: Callable[[list[int], int, int], None],
    options: CertifyOptions,
) -> None:
    """Add samples to the points until their intervals are good enough, or no more are allowed.

    Args:
        points: the samples of each point, by its index.
        draw: (points, pairs, number of the batch) adds so many samples to each of the points.
        options: of the certificate, with `unit` of shape (n,) or (n, k).
    """
    samples, target, unit = options.samples, options.halfwidth, np.asarray(options.unit)
    pending, pairs, batch = list(points), max(samples // 2, 2), 0
    confirmed = set[int]()
    while pending:
        start, drawn = time.perf_counter(), pairs * len(pending)
        draw(pending, pairs, batch)
        for i in pending:
            points[i].update(options.confidence)
        pending = [i for i in pending if np.all(np.isfinite(points[i].half))]
        if target is None:
            more = batch < MAX_TAIL_RETRIES and pairs >= MIN_PAIRS
            wanting = {i for i in pending if more and points[i].reasons}
        else:
            wanting = {i for i in pending if _needs_more(points[i], unit[i], target, samples)}
        new = {
            i
            for i in pending
            if batch and not (i in wanting or points[i].reasons or points[i].missed)
        } - confirmed
        confirmed = (confirmed | new) - wanting
        wanting -= options.hopeless
        pending = [i for i in pending if i in wanting or i in new]
        batch += 1
        if pending:
            pairs = (3 if target is None and wanting else 1) * points[pending[0]].count
            # The first batch compiles, and says too little of the time.
            if batch == 2:
                rate = (time.perf_counter() - start) / drawn
                _announce(points, pending, unit, rate, options)


def _announce(
    points: Mapping[int, PointSamples],
    pending: list[int],
    unit: np.ndarray,
    rate: float,
    options: CertifyOptions,
) -> None:
    """Say how many samples are still needed, and how long they take, if that is long."""
    if options.halfwidth is None:
        more, why = [3.0 * points[i].count for i in pending], "their tails look heavy"
    else:
        target, most = options.halfwidth, MAX_SAMPLE_FACTOR * options.samples
        needed = [min(_samples_needed(points[i], unit[i], target), most) for i in pending]
        more = [n - points[i].count for n, i in zip(needed, pending, strict=True)]  # confirmed
        why = f"for the half-width {target:.2g}"
    if (seconds := rate * sum(more)) > LONG:
        options.announce(
            f"certificate: {len(pending)} points take about {2 * max(more):.1g} more samples, "
            f"{why}: about {format_seconds(seconds)}"
        )


def _samples_needed(point: PointSamples, unit: Any, target: float) -> float:
    """About how many samples a point needs for a half-width; infinite where none suffice."""
    floor = unit * (point.floor + point.step_floor)
    noise, room = unit * point.half - floor, target - floor
    if np.any((room <= 0) & (noise > room)):
        return float("inf")
    fold = np.maximum(noise / np.where(room > 0, room, 1), 0)
    return float(np.max(2 * point.count * fold ** (1 / point.rate)))


def _needs_more(point: PointSamples, unit: Any, target: float, samples: int) -> bool:
    """Whether a point needs more samples for a half-width, in units of the user.

    Where it needs more than it may get, sampling stops at once, and the message is stored.
    """
    spent, most = 2 * point.count, MAX_SAMPLE_FACTOR * samples
    widest = float(np.max(unit * point.half))
    too_wide = widest > target
    if not too_wide and not (point.reasons and spent < 4**MAX_TAIL_RETRIES * samples):
        return False
    needed = _samples_needed(point, unit, target)
    if spent < most and not (too_wide and needed > _HOPELESS * most):
        return True
    left = np.max(unit * point.step_floor)
    why = f" (it is {widest:.2g})"
    if left > target:
        why = f": the steps of paths alone leave {left:.2g}; take more `steps`"
    elif np.isfinite(needed):
        fold = 2 ** int(np.ceil(np.log2(max(needed / most, 2))))
        reach = widest * (spent / most) ** point.rate
        more = f"samples={fold * samples}, or for " if fold * samples <= _SENSIBLE else ""
        why += (
            f": about {needed:.1g} would be needed, and {most} are allowed. Ask for "
            f"{more}halfwidth={1.2 * reach:.1g}"
        )
    text = f"the half-width {target:.2g} was not reached after {spent} samples{why}"
    point.missed = (Reason(ReasonKind.TOO_WIDE, text),)
    return False
