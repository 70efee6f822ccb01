"""Samples of u(t, x) = E[u0(X_t)] by randomised quasi-Monte Carlo: scrambled Sobol' nets.

The mean of u0 over one scrambled net is unbiased, and for most data much closer to u than that over
as many random points. Means over nets that are scrambled independently are independent, so that
Student's interval holds for them as it does for random points.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from heatnets._core.reasons import Reason, ReasonKind
from heatnets._core.statistics import (
    MAX_KURTOSIS_RATIO,
    MIN_PAIRS,
    RunningMoments,
    confidence_interval,
    unseen_allowance,
)
from heatnets.certify.evaluator import NetworkEvaluator
from heatnets.certify.path_sampling import CHUNK
from heatnets.certify.sequential import PointSamples
from heatnets.pde.canonical import CanonicalProblem

NETS = MIN_PAIRS  # independent nets
_MOST_COORDINATES = 21201  # of SciPy's points
_BITS = 32  # of the coordinates of a net
_LEAST = 64  # points of a net
_PILOT = 4096  # random points that show in which direction u0 varies most
_HEAVY = 0.25  # kurtosis over number of nets above which one of them is an outlier


def serves(problem: CanonicalProblem) -> bool:
    """Whether u is the mean of u0 at the ends of exact paths, of few enough random numbers."""
    is_mean = problem.coefficients is None and not problem.has_source
    return is_mean and problem.dim <= _MOST_COORDINATES


class NetSamples(PointSamples):
    """Values of u0 at the points of `NETS` nets; `count` is half the number of points of each.

    Their tails are those of single values, their interval is that of the means over nets.
    """

    rate = 0.75  # the half-width falls with this power of the number of points, or faster

    def __init__(self, rounding: float, mean: float, least: float, network: float) -> None:
        super().__init__(rounding, mean, least)
        self.moments, self.means, self._network = RunningMoments(), np.zeros(NETS), network
        self._gap = 0.0  # largest distance between neighbouring values: how far u0 may jump

    @property
    def drawn(self) -> int:
        return self.moments.count

    def see(self, values: np.ndarray) -> None:
        """Note values of u0, which need not be part of the means."""
        self._gap = max(self._gap, float(np.max(np.diff(np.sort(values, axis=None)))))

    def add(self, values: np.ndarray) -> None:
        """Add the values of u0 at further points of each net, (NETS, n)."""
        with np.errstate(all="ignore"):  # values that are not finite are a reason below
            self.see(values)
            self.moments.add(values.reshape(-1, 1))
            share = values.shape[1] * NETS / self.moments.count
            self.means = (1 - share) * self.means + share * values.mean(axis=1)
        self.count = self.moments.count // (2 * NETS)

    def _interval(self, confidence: float) -> tuple[Any, tuple[str, ...]]:
        corrections, moments = (self.means - self._network)[None], self.moments
        student = confidence_interval(corrections, confidence, "nets", _HEAVY, unseen=0.0)
        (self.mean,), (half,), (reasons,) = student
        # Where u0 is a step all means may be equal, and yet a net may have points beyond the step.
        least = np.maximum(0.5 * moments.deviation, max(self._gap, self.least))
        if not reasons and moments.kurtosis > MAX_KURTOSIS_RATIO * moments.count:
            text = f"heavy tails: a few of {moments.count} points carry the variance; ask for more"
            reasons = (Reason(ReasonKind.HEAVY_TAILS, text),)
        return half + float(unseen_allowance(moments, least=least)[0]) + self.rounding, reasons


def add_points(
    u: NetworkEvaluator, t: float, x: np.ndarray, point: NetSamples, number: int, rng: Any
) -> None:
    """Add `number` points of each net at (t, x); `rng` is the same in each call for a point."""
    from scipy.stats.qmc import Sobol  # slow to import

    problem, dim, old = u.error_problem, len(x), 2 * point.count
    if not old:
        number = 2 ** int(np.log2(max(number, _LEAST)))  # nets are best with powers of two

    def value(normal: np.ndarray) -> np.ndarray:
        """u0 at the ends of paths with this noise (n, dim), (n,)."""
        noise = problem.paths.scale_noise(normal)
        ends = problem.paths.simulate(t, x, np.full(len(normal), t), noise)
        return u.initial(np.zeros(len(normal)), ends.position)

    normal = rng.standard_normal((_PILOT, dim))
    seen = value(normal)
    point.see(seen)
    reflect = _reflection(normal, seen)
    piece = min(number, 2 ** int(np.log2(max(CHUNK // dim, 1))))
    together = max(1, CHUNK // (dim * number))
    nets = [Sobol(dim, bits=_BITS, rng=child) for child in rng.spawn(NETS)]
    if old:
        nets = [net.fast_forward(old) for net in nets]
    values = np.empty((NETS, number))
    for first in range(0, NETS, together):
        part = nets[first : first + together]
        for begin in range(0, number, piece):
            uniform = np.concatenate([net.random(piece) for net in part])
            normal = ndtri(uniform + 0.5 ** (_BITS + 1))
            columns = slice(begin, begin + piece)
            values[first : first + together, columns] = value(reflect(normal)).reshape(-1, piece)
    point.add(values)


def _reflection(normal: np.ndarray, values: np.ndarray) -> Any:
    """A reflection that maps the first coordinate to the direction in which u0 varies most.

    That of E[∇u0] = E[u0(X) ξ], from u0 at points with the noise ξ (n, dim). The first coordinate
    of a net is its best.
    """
    slope = (values - np.mean(values)) @ normal
    size = float(np.linalg.norm(slope))
    mirror = slope / size if np.isfinite(size) and size > 0 else np.zeros_like(slope)
    mirror[0] -= 1.0
    square = float(mirror @ mirror)
    if square > 1e-12:
        return lambda z: z - np.outer(z @ mirror, (2 / square) * mirror)
    return lambda z: z
