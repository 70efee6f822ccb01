"""Confidence intervals for means and relative L2 errors, and checks for heavy tails.

The means are those of samples in memory, or running moments of vectors that come in batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from heatnets._core.reasons import Reason, ReasonKind

# Fewest independent sample pairs for which an interval is trusted.
MIN_PAIRS = 64
# Largest kurtosis over number of samples; above it a few samples carry the variance.
MAX_KURTOSIS_RATIO = 0.1
# An event that n samples did not contain has a probability below 3/n (at 95 %); its value may be
# as large as the largest sample.
_UNSEEN = 3.0
# The same for squared errors over a region, which always have long tails: below it the upper ends
# of intervals held in 48 of 48 trials.
_MAX_POINT_RATIO = 0.5


def rms(values: np.ndarray) -> float:
    """Root mean square, scaled so that squares do not underflow."""
    scale = float(np.max(np.abs(values))) or 1.0
    return scale * float(np.sqrt(np.mean((values / scale) ** 2)))


class Pool(NamedTuple):
    """The random points from which a subset of points was chosen.

    `weight` holds the importance weights of the subset; `size` is the number of random points, zero
    if no subset was chosen.
    """

    weight: Any = 1.0
    size: int = 0

    def noise(self, weighted: np.ndarray) -> float:
        """Standard error of a mean over the pool, from weighted values at the chosen points.

        It comes from the randomness of the pool, which the spread over the subset does not contain.
        """
        if not self.size:
            return 0.0
        return float(np.sqrt(max(float(np.mean(weighted**2 / self.weight)), 0.0) / self.size))

    def kurtosis_ratio(self, weighted: np.ndarray) -> float:
        """Kurtosis about zero of the values in the pool over their number; 0 without a pool.

        A single point of the pool that carries the mean is chosen many times, with small weights:
        the values at the chosen points look alike, and only this ratio, then near 1, shows it.
        """
        if not self.size:
            return 0.0
        second = float(np.mean(weighted**2 / self.weight))
        fourth = float(np.mean(weighted**4 / self.weight**3))
        return fourth / (self.size * second**2) if second > 0 else 0.0


class MeanSquare(NamedTuple):
    """An unbiased estimate of a mean square and its standard error, in units of `unit`²."""

    mean: float
    noise: float
    unit: float

    @property
    def root(self) -> float:
        """Root of (mean square + one standard error).

        Errors have heavy tails, so that it can be too small by a factor of three.
        """
        return self.upper(1.0)

    def upper(self, noises: float) -> float:
        """Root of (mean square + so many standard errors)."""
        return self.unit * float(np.sqrt(max(self.mean, 0.0) + noises * self.noise))


def mean_square(corrections: np.ndarray, pool: Pool = Pool()) -> MeanSquare:  # noqa: B008
    """Estimate the mean over points of E[correction]², from samples of shape (points, samples).

    Only products of two different samples are used, so that the estimate is unbiased.
    """
    scale = float(np.max(np.abs(corrections))) or 1.0  # squares of small numbers underflow
    scaled = corrections / scale
    squares = products(scaled)
    mean, noise = float(squares.mean()), float(squares.std(ddof=1) / np.sqrt(len(squares)))
    return MeanSquare(mean, float(np.hypot(noise, pool.noise(squares))), scale)


class ConfidenceInterval(NamedTuple):
    """Confidence intervals mean ± half, each of shape (n,), and the reasons not to trust each."""

    mean: np.ndarray
    half: np.ndarray
    reasons: list[tuple[str, ...]]


def confidence_interval(
    samples: np.ndarray,
    confidence: float,
    what: str = "sample pairs",
    heavy: float = MAX_KURTOSIS_RATIO,
    unseen: float = _UNSEEN,
    least: Any = 0.0,
) -> ConfidenceInterval:
    """Student's confidence interval for the mean of each row, with reasons not to trust it.

    Args:
        samples: shape (rows, n).
        confidence: for example 0.95.
        what: name of the samples in messages.
        heavy: limit on kurtosis / n above which the tails count as heavy.
        unseen, least: as in `t_half_width`.

    Returns:
        One interval per row, with half widths from `t_half_width`.
    """
    n = samples.shape[1]
    scale = _positive_or_one(np.max(np.abs(samples), axis=1, keepdims=True))
    with np.errstate(all="ignore"):
        scaled = samples / scale
        mean = scaled.mean(axis=1)
        centred = scaled - mean[:, None]
        variance = (centred**2).sum(axis=1) / (n - 1)
        kurtosis = _ratio((centred**4).mean(axis=1), variance)
        moments = Moments(n, variance, kurtosis, np.max(np.abs(centred), axis=1))
        half = scale[:, 0] * t_half_width(moments, confidence, unseen, least / scale[:, 0])
    reasons: list[tuple[str, ...]] = []
    for i in range(len(samples)):
        bad = int(np.sum(~np.isfinite(samples[i])))
        reason: tuple[str, ...] = ()
        if bad:
            text = (
                f"{bad} of {n} {what} are not finite: the data, or a derivative of theirs, are not "
                "finite on some paths"
            )
            reason = (Reason(ReasonKind.NOT_FINITE, text),)
        elif n < MIN_PAIRS:
            text = f"only {n} independent {what}: ask for {MIN_PAIRS} or more"
            reason = (Reason(ReasonKind.TOO_FEW_SAMPLES, text),)
        elif kurtosis[i] > heavy * n:
            share = float(np.max(centred[i] ** 2) / np.sum(centred[i] ** 2))
            text = (
                f"heavy tails: one of {n} {what} carries {100 * share:.0f} % of the variance, so "
                "that larger ones may not have been seen; ask for more of them, or solve again "
                "with more features"
            )
            reason = (Reason(ReasonKind.HEAVY_TAILS, text),)
        reasons.append(reason)
    return ConfidenceInterval(scale[:, 0] * mean, half, reasons)


@dataclass(frozen=True)
class Moments:
    """Moments of `count` samples about their mean, for each row or component."""

    count: int
    variance: np.ndarray
    kurtosis: np.ndarray
    largest: np.ndarray  # largest deviation from the mean


def t_half_width(
    moments: Moments | RunningMoments, confidence: float, unseen: float = _UNSEEN, least: Any = 0.0
) -> np.ndarray:
    """Half width of Student's interval for the mean of n samples, widened if tails are long.

        q √(σ² (1 + √((κ-1)/n)) / n) + (unseen/n) max(largest - √(2 ln 2n) σ, least)

    with q the Student quantile, σ² the variance and κ the kurtosis. The first term increases the
    variance by one of its standard errors, σ² √((κ-1)/n). The second term allows a share of
    `unseen`/n more samples like the `largest` deviation from the mean than were drawn; it counts
    only the excess over √(2 ln 2n) σ, the largest of n normal samples, or `least` if a deviation
    of that size is known to be possible. For samples with short tails the widening is very small.
    """
    n, variance = moments.count, moments.variance
    spread = np.sqrt(variance * (1 + np.sqrt(np.maximum(moments.kurtosis - 1, 0.0) / n)) / n)
    student = spread * scipy.special.stdtrit(n - 1, 0.5 * (1 + confidence))
    return student + unseen_allowance(moments, unseen, least)


def unseen_allowance(
    moments: Moments | RunningMoments, unseen: float = _UNSEEN, least: Any = 0.0
) -> np.ndarray:
    """The second term of `t_half_width`: for what the samples did not meet."""
    n = moments.count
    excess = moments.largest - np.sqrt(2 * np.log(2 * n) * moments.variance)
    return np.asarray(unseen / n * np.maximum(excess, least))


def _positive_or_one(scale: np.ndarray) -> np.ndarray:
    """`scale`, with 1 in place of entries that are zero or not finite."""
    return np.where((scale > 0) & np.isfinite(scale), scale, 1.0)


def _ratio(fourth: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Kurtosis from central moments; 1 if the second is zero."""
    return np.where(second > 0, fourth / np.where(second > 0, second, 1.0) ** 2, 1.0)


_FAR = 1e30  # deviation, in the current unit, above which the unit of a component is increased


class RunningMoments:
    """Moments per component of vectors added in batches.

    Holds sums of powers 1 to 4 of (value - centre) / unit, where the centre is the mean of the
    first batch and the unit its largest deviation, for each component.

    Attributes:
        count: number of vectors.
        mean, deviation, variance, kurtosis, largest: as of `Moments`, with the standard deviation.
    """

    count = 0

    def add(self, piece: np.ndarray) -> None:
        """Add a batch of vectors, shape (n, components)."""
        if not self.count:
            self._centre, self._sums = piece.mean(axis=0), np.zeros((4, piece.shape[1]))
            self._unit = _positive_or_one(np.max(np.abs(piece - self._centre), axis=0))
            self._ends = np.zeros((2, piece.shape[1]))
        scaled = (piece - self._centre) / self._unit
        largest = np.max(np.abs(scaled), axis=0)
        # Later batches may be larger by orders of magnitude: their fourth powers must not overflow.
        if np.any(largest > _FAR):
            self._rescale(np.where(largest > _FAR, largest * self._unit, self._unit))
            scaled = (piece - self._centre) / self._unit
        self.count += len(piece)
        self._sums = self._sums + np.stack([(scaled**k).sum(axis=0) for k in (1, 2, 3, 4)])
        low = np.minimum(self._ends[0], scaled.min(axis=0))
        high = np.maximum(self._ends[1], scaled.max(axis=0))
        self._ends = np.stack([low, high])
        self._update()

    def _rescale(self, unit: np.ndarray) -> None:
        """Express the sums in a larger unit per component."""
        unit = _positive_or_one(unit)
        ratio = self._unit / unit
        self._sums = self._sums * ratio ** np.arange(1, 5)[:, None]
        self._ends, self._unit = self._ends * ratio, unit

    def _update(self) -> None:
        """Compute the moments from the sums."""
        # If a moment underflows, few samples carry it: the kurtosis is then infinite or NaN.
        with np.errstate(all="ignore"):
            m1, m2, m3, m4 = self._sums / self.count
            second = np.maximum(m2 - m1**2, 0.0)
            fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
            unit, n = self._unit, self.count
            self.mean = self._centre + unit * m1
            self.deviation = unit * np.sqrt(second * n / max(n - 1, 1))
            self.variance = self.deviation**2
            self.largest = unit * np.maximum(m1 - self._ends[0], self._ends[1] - m1)
            self.kurtosis = _ratio(fourth, second)


class RelativeError(NamedTuple):
    """Estimate of a relative L2 error, its interval, and the reasons not to trust the interval."""

    value: float
    low: float
    high: float
    scale: float  # the root mean square of u
    reasons: tuple[str, ...]


def relative_l2_interval(
    corrections: np.ndarray,
    values: np.ndarray,
    rounding: np.ndarray,
    confidence: float,
    pool: Pool = Pool(),  # noqa: B008
) -> RelativeError:
    """Interval for the relative L2 error of a fit, from samples of its error at random points.

    Products of different samples estimate the squares of the error and of u without bias.

    Args:
        corrections: independent samples of (u - fit) at each point, shape (points, samples).
        values: values of the fit, shape (points,).
        rounding: rounding errors of the values.
        confidence: for example 0.95.
        pool: the random points from which the points were chosen.
    """
    u_samples = values[:, None] + corrections
    error_unit, u_unit = (float(np.max(np.abs(a))) or 1.0 for a in (corrections, u_samples))
    squares = products(corrections / error_unit), products(u_samples / u_unit)
    return relative_of_squares(*squares, (error_unit, u_unit), rounding, confidence, pool)


def relative_interval_at_point(
    corrections: np.ndarray, values: np.ndarray, rounding: np.ndarray, confidence: float
) -> RelativeError:
    """Interval for the relative error of a fit at one point, from samples of its error there.

    All samples have the same mean, so that their number alone decides how sharp it is.

    Args:
        corrections: independent samples of u - fit, of any shape.
        values: values of the fit, all the same.
        rounding: rounding errors of the values.
        confidence: for example 0.95.
    """
    ci = confidence_interval(corrections.reshape(1, -1), confidence, "samples")
    mean, half, floor = float(ci.mean[0]), float(ci.half[0]), rms(rounding)
    scale = abs(float(np.mean(values)) + mean)
    if not scale > 2 * half:
        return RelativeError(np.inf, 0.0, np.inf, scale or 1.0, (SIZE_UNKNOWN,))
    low, high = max(abs(mean) - half, 0.0) / (scale + half), (abs(mean) + half) / (scale - half)
    value, low, high = (
        float(np.hypot(error, floor / scale)) for error in (abs(mean) / scale, low, high)
    )
    return RelativeError(value, low, high, scale, ci.reasons[0])


def relative_of_squares(
    error: np.ndarray,
    true: np.ndarray,
    units: tuple[float, float],
    rounding: np.ndarray,
    confidence: float,
    pool: Pool = Pool(),  # noqa: B008
) -> RelativeError:
    """Interval for the relative L2 error √(mean e² / mean u²) over random points.

    It is the interval for the ratio of two means: that of the mean of e² - ρ² u² over points, with
    ρ² the ratio of the means.

    Args:
        error: unbiased estimates of e² at the points, shape (points,), in units[0]².
        true: unbiased estimates of u² at the points, shape (points,), in units[1]².
        units: the two units.
        rounding: rounding errors of the values.
        confidence: for example 0.95.
        pool: the random points from which the points were chosen.
    """
    error_unit, u_unit = units
    u_square = float(true.mean())
    noise = float(true.std(ddof=1)) / np.sqrt(len(true))
    floor = rms(rounding)
    if not u_square > 3 * float(np.hypot(noise, pool.noise(true))):
        return RelativeError(np.inf, 0.0, np.inf, u_unit, (SIZE_UNKNOWN,))
    ratio = float(error.mean()) / u_square
    deviations = (error - ratio * true) / u_square
    ci = confidence_interval(deviations[None], confidence, "points", _MAX_POINT_RATIO, unseen=0.0)
    quantile = scipy.special.stdtrit(len(deviations) - 1, 0.5 * (1 + confidence))
    pool_half = pool.noise(deviations) * quantile
    scale, half = u_unit * float(np.sqrt(u_square)), float(np.hypot(ci.half[0], pool_half))
    reasons = ci.reasons[0]
    if not reasons and pool.kurtosis_ratio(deviations) > _MAX_POINT_RATIO:
        text = f"heavy tails: one of {pool.size} random points carries the estimate; ask for more"
        reasons = (Reason(ReasonKind.HEAVY_TAILS, text),)

    def root(ratio: float) -> float:
        """The relative error of a squared ratio, with the rounding error added in quadrature."""
        return float(np.hypot(error_unit / u_unit * np.sqrt(max(ratio, 0.0)), floor / scale))

    return RelativeError(
        root(ratio), root(ratio - half), root(max(ratio, 0.0) + half), scale, reasons
    )


SIZE_UNKNOWN = (
    "the size of u over the region is lost in the noise of the samples: ask for more samples"
)


def products(samples: np.ndarray) -> np.ndarray:
    """Mean of the products of two different samples, for each row of shape (rows, n).

    It is an unbiased estimate of the squared expectation: ((Σ a)² - Σ a²) / (n (n - 1)).
    """
    n = samples.shape[1]
    return (samples.sum(axis=1) ** 2 - (samples**2).sum(axis=1)) / (n * (n - 1))


def tail_weight(samples: np.ndarray, pool: Pool = Pool()) -> float:  # noqa: B008
    """Kurtosis about zero over the number of samples.

    It is 1 if a single sample carries the mean square; above `MAX_KURTOSIS_RATIO` a few carry it.
    For samples (points, samples) at points chosen from a pool, times the roots of their weights,
    it is the larger one of two such numbers: for these samples, and for as many at every point of
    the pool.
    """
    largest = float(np.max(np.abs(samples)))
    if not largest:
        return 0.0
    squares = (samples / largest) ** 2
    weight = float(np.mean(squares**2) / np.mean(squares) ** 2 / samples.size)
    if not pool.size:
        return weight
    fourth = float(np.mean(squares**2 / np.asarray(pool.weight)[:, None]))
    number = pool.size * samples.shape[1]
    return max(weight, fourth / float(np.mean(squares)) ** 2 / number)
