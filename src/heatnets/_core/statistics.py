"""Student's intervals of means, and when not to believe them: of many samples, of vectors in pieces, of a relative error over points."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.special

FEWEST = 64  # independent pairs below which no interval is believed
HEAVY = 0.1  # kurtosis over number of samples: beyond, a few samples carry the variance
UNSEEN = 3.0  # what n samples did not meet has a chance below 3/n (95 %), and may be as large as the largest they met
HEAVY_POINTS = 0.5  # the same for squares of errors over a region, whose tails are always long: below, upper ends held in 48 of 48 trials


def rms(values: np.ndarray) -> float:
    """Root mean square, without underflow."""
    size = float(np.max(np.abs(values))) or 1.0
    return size * float(np.sqrt(np.mean((values / size) ** 2)))


class Pool(NamedTuple):
    """What points were chosen from: their weights, and how many random points there were (zero where nothing was chosen)."""

    weight: Any = 1.0
    size: int = 0

    def noise(self, weighted: np.ndarray) -> float:
        """The standard error of a mean over the pool itself, from weighted values at the points chosen: what their own spread does not show."""
        return (
            float(np.sqrt(max(float(np.mean(weighted**2 / self.weight)), 0.0) / self.size))
            if self.size
            else 0.0
        )


class MeanSquare(NamedTuple):
    """A mean square, estimated without bias, and its standard error, both in units of `unit`²."""

    mean: float
    noise: float
    unit: float

    @property
    def root(self) -> float:
        """The root of the mean square plus one standard error. Errors have heavy tails: it can be too small by a factor of three."""
        return self.unit * float(np.sqrt(max(self.mean, 0.0) + self.noise))


def mean_square(corrections: np.ndarray, pool: Pool = Pool()) -> MeanSquare:  # noqa: B008
    """The mean over points of the squared expected correction, from samples (P, S): products of different samples only."""
    size = float(np.max(np.abs(corrections))) or 1.0  # squares of small numbers underflow
    scaled = corrections / size
    squares = products(scaled)
    mean, noise = float(squares.mean()), float(squares.std(ddof=1) / np.sqrt(len(squares)))
    return MeanSquare(mean, float(np.hypot(noise, pool.noise(squares))), size)


class ConfidenceInterval(NamedTuple):
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
    """Student's interval of the mean of each row, widened as `student` says; and words where tails are heavy."""
    n = samples.shape[1]
    size = np.max(np.abs(samples), axis=1, keepdims=True)
    size = np.where((size > 0) & np.isfinite(size), size, 1.0)
    with np.errstate(all="ignore"):
        scaled = samples / size
        mean = scaled.mean(axis=1)
        centred = scaled - mean[:, None]
        variance = (centred**2).sum(axis=1) / (n - 1)
        kurtosis = np.where(
            variance > 0,
            (centred**4).mean(axis=1) / np.where(variance > 0, variance, 1.0) ** 2,
            1.0,
        )
        half = size[:, 0] * t_half_width(
            variance,
            kurtosis,
            np.max(np.abs(centred), axis=1),
            n,
            confidence,
            unseen,
            least / size[:, 0],
        )
    reasons: list[tuple[str, ...]] = []
    for i in range(len(samples)):
        bad = int(np.sum(~np.isfinite(samples[i])))
        said = []
        if bad:
            said.append(
                f"{bad} of {n} {what} are not finite: the data, or a derivative of theirs, are not finite on some paths"
            )
        elif n < FEWEST:
            said.append(f"only {n} independent {what}: ask for {FEWEST} or more")
        elif kurtosis[i] > heavy * n:
            share = float(np.max(centred[i] ** 2) / np.sum(centred[i] ** 2))
            said.append(
                f"heavy tails: one of {n} {what} carries {100 * share:.0f} % of the variance, so that larger ones may not have been seen; "
                "ask for more of them, or solve again with more features"
            )
        reasons.append(tuple(said))
    return ConfidenceInterval(size[:, 0] * mean, half, reasons)


def t_half_width(
    variance: np.ndarray,
    kurtosis: np.ndarray,
    largest: np.ndarray,
    n: int,
    confidence: float,
    unseen: float = UNSEEN,
    least: Any = 0.0,
) -> np.ndarray:
    """Half the width of Student's interval of a mean of n samples, widened where their tails are long: hardly at all where they are not.

    The variance is taken one of its own standard errors, √((κ-1)/n) of it, larger (κ the kurtosis). And samples like the `largest` met,
    measured from the mean, may have a share of `unseen`/n more than they had: as far as it exceeds the largest of n normal ones, √(2 ln 2n) deviations,
    or `least` where that is known to be possible.
    """
    spread = np.sqrt(variance * (1 + np.sqrt(np.maximum(kurtosis - 1, 0.0) / n)) / n)
    beyond = np.maximum(largest - np.sqrt(2 * np.log(2 * n) * variance), least)
    return spread * scipy.special.stdtrit(n - 1, 0.5 * (1 + confidence)) + unseen / n * beyond


def _unit(size: np.ndarray) -> np.ndarray:
    return np.where((size > 0) & np.isfinite(size), size, 1.0)


_FAR = 1e30  # units: a piece that reaches further gets a unit of its own


class RunningMoments:
    """Mean, variance, kurtosis and largest deviation of each component of many vectors, from sums of powers about the first piece's mean."""

    def __init__(self) -> None:
        self.count = 0
        self.sums: np.ndarray | None = None

    def add(self, piece: np.ndarray) -> None:
        if self.sums is None:
            self.centre, self.sums = piece.mean(axis=0), np.zeros((4, piece.shape[1]))
            self.unit, self.ends = (
                _unit(np.max(np.abs(piece - self.centre), axis=0)),
                np.zeros((2, piece.shape[1])),
            )
        gap = (piece - self.centre) / self.unit
        size = np.max(np.abs(gap), axis=0)
        if np.any(
            size > _FAR
        ):  # later pieces may be larger by orders of magnitude: their fourth powers must not overflow
            self._rescale(np.where(size > _FAR, size * self.unit, self.unit))
            gap = (piece - self.centre) / self.unit
        self.count += len(piece)
        self.sums = self.sums + np.stack([(gap**k).sum(axis=0) for k in (1, 2, 3, 4)])
        self.ends = np.stack(
            [np.minimum(self.ends[0], gap.min(axis=0)), np.maximum(self.ends[1], gap.max(axis=0))]
        )

    def _rescale(self, larger: np.ndarray) -> None:
        larger = _unit(larger)
        ratio = self.unit / larger
        self.sums = self.sums * ratio ** np.arange(1, 5)[:, None]
        self.ends, self.unit = self.ends * ratio, larger

    def _moments(self) -> tuple[np.ndarray, ...]:
        assert self.sums is not None
        m1, m2, m3, m4 = self.sums / self.count
        return (
            m1,
            np.maximum(m2 - m1**2, 0.0),
            m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4,
            self.unit,
        )

    @property
    def mean(self) -> np.ndarray:
        m1, _, _, unit = self._moments()
        return self.centre + unit * m1

    @property
    def variance(self) -> np.ndarray:
        return self.deviation**2

    @property
    def deviation(self) -> np.ndarray:
        _, second, _, unit = self._moments()
        return unit * np.sqrt(second * self.count / max(self.count - 1, 1))

    @property
    def largest(self) -> np.ndarray:
        m1, _, _, unit = self._moments()
        return unit * np.maximum(m1 - self.ends[0], self.ends[1] - m1)

    @property
    def kurtosis(self) -> np.ndarray:
        _, second, fourth, _ = self._moments()
        with np.errstate(
            all="ignore"
        ):  # what underflows is carried by few samples: infinite, or no number
            return np.where(second > 0, fourth / np.where(second > 0, second, 1.0) ** 2, 1.0)


class RelativeError(NamedTuple):
    """A relative L2 error: the estimate, its interval, and words where the interval is not to be believed."""

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
    """From independent corrections (P, S) of the values (P,) of a fit at random points: products of different samples estimate the squares of the error and of u."""
    whole = values[:, None] + corrections
    unit, size = (float(np.max(np.abs(a))) or 1.0 for a in (corrections, whole))
    squares = products(corrections / unit), products(whole / size)
    return relative_of_squares(*squares, (unit, size), rounding, confidence, pool)


def relative_of_squares(
    error: np.ndarray,
    true: np.ndarray,
    units: tuple[float, float],
    rounding: np.ndarray,
    confidence: float,
    pool: Pool = Pool(),  # noqa: B008
) -> RelativeError:
    """From unbiased estimates of the squares of the error and of u at random points, (P,) each, in units² of their own.

    The interval is that of the ratio: of the mean of e² - ρ² u² over points, ρ² the ratio of the means.
    """
    unit, size = units
    square = float(true.mean())
    noise = float(true.std(ddof=1)) / np.sqrt(len(true))
    floor = rms(rounding)
    if not square > 3 * noise:
        return RelativeError(np.inf, 0.0, np.inf, size, (SIZE_UNKNOWN,))
    ratio = float(error.mean()) / square
    gap = (error - ratio * true) / square
    found = interval(gap[None], confidence, "points", HEAVY_POINTS, unseen=0.0)
    more = pool.noise(gap) * scipy.special.stdtrit(len(gap) - 1, 0.5 * (1 + confidence))
    scale, half = size * float(np.sqrt(square)), float(np.hypot(found.half[0], more))

    def root(share: float) -> float:
        return float(np.hypot(unit / size * np.sqrt(max(share, 0.0)), floor / scale))

    return RelativeError(
        root(ratio), root(ratio - half), root(max(ratio, 0.0) + half), scale, found.reasons[0]
    )


SIZE_UNKNOWN = (
    "the size of u over the region is lost in the noise of the samples: ask for more samples"
)


def products(samples: np.ndarray) -> np.ndarray:
    """The mean of products of two different samples, for each row: unbiased for the square of their expectation."""
    n = samples.shape[1]
    return (samples.sum(axis=1) ** 2 - (samples**2).sum(axis=1)) / (n * (n - 1))


def tail_weight(samples: np.ndarray) -> float:
    """Kurtosis about zero, over the number of samples: 1 where a single one carries the mean square; beyond `HEAVY` a few do."""
    size = float(np.max(np.abs(samples)))
    if not size:
        return 0.0
    squares = (samples / size) ** 2
    return float(np.mean(squares**2) / np.mean(squares) ** 2 / samples.size)
