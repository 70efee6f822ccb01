"""Confidence intervals for means and relative L2 errors, and checks for heavy tails.

The means are those of samples in memory, or running moments of vectors that come in batches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.special

from heatnets._core.reasons import Reason, ReasonKind

# Fewest independent sample pairs for which an interval is trusted.
FEWEST = 64
# Largest kurtosis over number of samples; above it a few samples carry the variance.
HEAVY = 0.1
# An event that n samples did not contain has a probability below 3/n (at 95 %); its value may be
# as large as the largest sample.
UNSEEN = 3.0
# The same limit as HEAVY, for squared errors over a region, which always have long tails: below
# it the upper ends of intervals held in 48 of 48 trials.
HEAVY_POINTS = 0.5


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
        return self.unit * float(np.sqrt(max(self.mean, 0.0) + self.noise))


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


def interval(
    samples: np.ndarray,
    confidence: float,
    what: str = "sample pairs",
    heavy: float = HEAVY,
    unseen: float = UNSEEN,
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
    scale = np.max(np.abs(samples), axis=1, keepdims=True)
    scale = np.where((scale > 0) & np.isfinite(scale), scale, 1.0)
    with np.errstate(all="ignore"):
        scaled = samples / scale
        mean = scaled.mean(axis=1)
        centred = scaled - mean[:, None]
        variance = (centred**2).sum(axis=1) / (n - 1)
        kurtosis = np.where(
            variance > 0,
            (centred**4).mean(axis=1) / np.where(variance > 0, variance, 1.0) ** 2,
            1.0,
        )
        half = scale[:, 0] * t_half_width(
            variance,
            kurtosis,
            np.max(np.abs(centred), axis=1),
            n,
            confidence,
            unseen,
            least / scale[:, 0],
        )
    reasons: list[tuple[str, ...]] = []
    for i in range(len(samples)):
        bad = int(np.sum(~np.isfinite(samples[i])))
        messages = []
        if bad:
            text = (
                f"{bad} of {n} {what} are not finite: the data, or a derivative of theirs, are not "
                "finite on some paths"
            )
            messages.append(Reason(ReasonKind.NOT_FINITE, text))
        elif n < FEWEST:
            text = f"only {n} independent {what}: ask for {FEWEST} or more"
            messages.append(Reason(ReasonKind.TOO_FEW_SAMPLES, text))
        elif kurtosis[i] > heavy * n:
            share = float(np.max(centred[i] ** 2) / np.sum(centred[i] ** 2))
            text = (
                f"heavy tails: one of {n} {what} carries {100 * share:.0f} % of the variance, so "
                "that larger ones may not have been seen; ask for more of them, or solve again "
                "with more features"
            )
            messages.append(Reason(ReasonKind.HEAVY_TAILS, text))
        reasons.append(tuple(messages))
    return ConfidenceInterval(scale[:, 0] * mean, half, reasons)


def t_half_width(
    variance: np.ndarray,
    kurtosis: np.ndarray,
    largest: np.ndarray,
    n: int,
    confidence: float,
    unseen: float = UNSEEN,
    least: Any = 0.0,
) -> np.ndarray:
    """Half width of Student's interval for the mean of n samples, widened if tails are long.

        q √(σ² (1 + √((κ-1)/n)) / n) + (unseen/n) max(largest - √(2 ln 2n) σ, least)

    with q the Student quantile, σ² the variance and κ the kurtosis. The first term increases the
    variance by one of its standard errors, σ² √((κ-1)/n). The second term allows a share of
    `unseen`/n more samples like the `largest` deviation from the mean than were drawn; it counts
    only the excess over √(2 ln 2n) σ, the largest of n normal samples, or `least` if a deviation
    of that size is known to be possible. For samples with short tails the widening is very small.
    """
    spread = np.sqrt(variance * (1 + np.sqrt(np.maximum(kurtosis - 1, 0.0) / n)) / n)
    excess = np.maximum(largest - np.sqrt(2 * np.log(2 * n) * variance), least)
    return spread * scipy.special.stdtrit(n - 1, 0.5 * (1 + confidence)) + unseen / n * excess


def _positive_or_one(scale: np.ndarray) -> np.ndarray:
    """`scale`, with 1 in place of entries that are zero or not finite."""
    return np.where((scale > 0) & np.isfinite(scale), scale, 1.0)


_FAR = 1e30  # deviation, in the current unit, above which the unit of a component is increased


class RunningMoments:
    """Mean, variance, kurtosis and largest deviation per component of vectors added in batches.

    Holds sums of powers 1 to 4 of (value - centre) / unit, where the centre is the mean of the
    first batch and the unit its largest deviation, for each component.
    """

    def __init__(self) -> None:
        self.count = 0
        self.sums: np.ndarray | None = None

    def add(self, piece: np.ndarray) -> None:
        """Add a batch of vectors, shape (n, components)."""
        if self.sums is None:
            self.centre, self.sums = piece.mean(axis=0), np.zeros((4, piece.shape[1]))
            self.unit = _positive_or_one(np.max(np.abs(piece - self.centre), axis=0))
            self.ends = np.zeros((2, piece.shape[1]))
        scaled = (piece - self.centre) / self.unit
        largest = np.max(np.abs(scaled), axis=0)
        # Later batches may be larger by orders of magnitude: their fourth powers must not overflow.
        if np.any(largest > _FAR):
            self._rescale(np.where(largest > _FAR, largest * self.unit, self.unit))
            scaled = (piece - self.centre) / self.unit
        self.count += len(piece)
        self.sums = self.sums + np.stack([(scaled**k).sum(axis=0) for k in (1, 2, 3, 4)])
        low = np.minimum(self.ends[0], scaled.min(axis=0))
        high = np.maximum(self.ends[1], scaled.max(axis=0))
        self.ends = np.stack([low, high])

    def _rescale(self, unit: np.ndarray) -> None:
        """Express the sums in a larger unit per component."""
        unit = _positive_or_one(unit)
        ratio = self.unit / unit
        self.sums = self.sums * ratio ** np.arange(1, 5)[:, None]
        self.ends, self.unit = self.ends * ratio, unit

    def _moments(self) -> tuple[np.ndarray, ...]:
        """Mean, second and fourth central moment in the unit, and the unit."""
        assert self.sums is not None
        m1, m2, m3, m4 = self.sums / self.count
        second = np.maximum(m2 - m1**2, 0.0)
        fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
        return m1, second, fourth, self.unit

    @property
    def mean(self) -> np.ndarray:
        """Mean of each component."""
        m1, _, _, unit = self._moments()
        return self.centre + unit * m1

    @property
    def variance(self) -> np.ndarray:
        """Unbiased variance of each component."""
        return self.deviation**2

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation of each component, with n - 1 in the denominator."""
        _, second, _, unit = self._moments()
        return unit * np.sqrt(second * self.count / max(self.count - 1, 1))

    @property
    def largest(self) -> np.ndarray:
        """Largest absolute deviation from the mean, for each component."""
        m1, _, _, unit = self._moments()
        return unit * np.maximum(m1 - self.ends[0], self.ends[1] - m1)

    @property
    def kurtosis(self) -> np.ndarray:
        """Fourth central moment over the squared variance, for each component."""
        _, second, fourth, _ = self._moments()
        # If a moment underflows, few samples carry it: the kurtosis is then infinite or NaN.
        with np.errstate(all="ignore"):
            return np.where(second > 0, fourth / np.where(second > 0, second, 1.0) ** 2, 1.0)


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
    if not u_square > 3 * noise:
        return RelativeError(np.inf, 0.0, np.inf, u_unit, (SIZE_UNKNOWN,))
    ratio = float(error.mean()) / u_square
    deviations = (error - ratio * true) / u_square
    ci = interval(deviations[None], confidence, "points", HEAVY_POINTS, unseen=0.0)
    quantile = scipy.special.stdtrit(len(deviations) - 1, 0.5 * (1 + confidence))
    pool_half = pool.noise(deviations) * quantile
    scale, half = u_unit * float(np.sqrt(u_square)), float(np.hypot(ci.half[0], pool_half))

    def root(ratio: float) -> float:
        """The relative error of a squared ratio, with the rounding error added in quadrature."""
        return float(np.hypot(error_unit / u_unit * np.sqrt(max(ratio, 0.0)), floor / scale))

    return RelativeError(
        root(ratio), root(ratio - half), root(max(ratio, 0.0) + half), scale, ci.reasons[0]
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


def tail_weight(samples: np.ndarray) -> float:
    """Kurtosis about zero over the number of samples.

    It is 1 if a single sample carries the mean square; above `HEAVY` a few samples carry it.
    """
    largest = float(np.max(np.abs(samples)))
    if not largest:
        return 0.0
    squares = (samples / largest) ** 2
    return float(np.mean(squares**2) / np.mean(squares) ** 2 / samples.size)
