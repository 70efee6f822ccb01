"""Samples of u(t, x) = E[u0(X_t)], and of derivatives, by scrambled Sobol' nets.

The mean of u0 over one scrambled net is unbiased, and for most data much closer to u than that over
as many random points. Weights take the place of derivatives. Means over nets that are scrambled
independently are independent, so that Student's interval holds for them as for random points.
"""

from __future__ import annotations

from collections.abc import Callable
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
METHOD = f"quasi-Monte Carlo, {NETS} scrambled nets"  # in certificates
_MOST_DIM = 21201  # of Sobol' nets
_BITS = 32  # of the coordinates of a net
_LEAST = 64  # points of a net
_PILOT = 4096  # random points that show in which direction u0 varies most
_HEAVY = 0.25  # kurtosis over number of nets above which one of them is an outlier


def serves(problem: CanonicalProblem) -> bool:
    """Whether u is the mean of u0 at the ends of exact paths, of few enough random numbers."""
    is_mean = problem.coefficients is None and not problem.has_source
    return is_mean and problem.dim <= _MOST_DIM


# From values of u0 (n,), less a constant, at x + p, and p (n, dim), to samples (n, k).
Weigh = Callable[[np.ndarray, np.ndarray], np.ndarray]


class NetSamples(PointSamples):
    """Samples (k,) at the points of `NETS` nets; `count` is half the number of points of each.

    Their tails are those of single samples, their interval is that of the means over nets.
    """

    rate = 0.75  # the half-width falls with this power of the number of points, or faster

    def __init__(
        self, rounding: Any, mean: Any, least: Any, network: np.ndarray, scale: Any = 1.0
    ) -> None:
        """`network` (k,) is subtracted from means; `scale` is the size of samples where u0 is 1."""
        super().__init__(rounding, mean, least)
        self.moments, self.means = RunningMoments(), np.zeros((NETS, len(network)))
        self._network, self._scale = network, scale
        self._gap = 0.0  # largest distance between neighbouring values: how far u0 may jump

    @property
    def drawn(self) -> int:
        return self.moments.count

    def see(self, values: np.ndarray) -> None:
        """Note values of u0, which need not be part of the means."""
        self._gap = max(self._gap, float(np.max(np.diff(np.sort(values, axis=None)))))

    def add(self, means: np.ndarray) -> None:
        """Add means (NETS, k) over further points, whose samples are in `moments`."""
        old = 2 * self.count * NETS / self.moments.count
        self.means = old * self.means + (1 - old) * means
        self.count = self.moments.count // (2 * NETS)

    def _interval(self, confidence: float) -> tuple[Any, tuple[str, ...]]:
        corrections, moments = (self.means - self._network).T, self.moments
        student = confidence_interval(corrections, confidence, "nets", _HEAVY, unseen=0.0)
        self.mean = student.mean
        reasons = next((why for why in student.reasons if why), ())
        # Where u0 is a step all means may be equal, and yet a net may have points beyond the step.
        least = np.maximum(0.5 * moments.deviation, np.maximum(self._scale * self._gap, self.least))
        if not reasons and np.any(moments.kurtosis > MAX_KURTOSIS_RATIO * moments.count):
            text = f"heavy tails: a few of {moments.count} points carry the variance; ask for more"
            reasons = (Reason(ReasonKind.HEAVY_TAILS, text),)
        return student.half + unseen_allowance(moments, least=least) + self.rounding, reasons


def add_points(
    u: NetworkEvaluator,
    t: float,
    x: np.ndarray,
    point: NetSamples,
    number: int,
    rng: Any,
    *,
    weigh: Weigh | None = None,
) -> None:
    """Add `number` points of each net at (t, x); `rng` is the same in each call for a point.

    Samples are values of u0, with weights if there are any.
    """
    from scipy.stats import qmc  # takes half a second to import

    problem, dim, old = u.error_problem, len(x), 2 * point.count
    if not old:
        number = 2 ** int(np.log2(max(number, _LEAST)))  # nets are best with powers of two

    def evaluate(normal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """u0 at the ends of paths with this noise (n, dim), (n,), and their displacements."""
        noise = problem.paths.scale_noise(normal)
        ends = problem.paths.simulate(t, x, np.full(len(normal), t), noise)
        values = u.initial(np.zeros(len(normal)), ends.position)
        point.see(values)
        return values, ends.position - x

    normal = rng.standard_normal((_PILOT, dim))
    seen, _ = evaluate(normal)
    centre = float(np.mean(seen)) if weigh else 0.0
    reflect = _reflection(normal, seen)
    piece = min(number, 2 ** int(np.log2(max(CHUNK // dim, 1))))
    together = max(1, CHUNK // (dim * number))
    nets = [qmc.Sobol(dim, bits=_BITS, rng=child) for child in rng.spawn(NETS)]
    if old:
        nets = [net.fast_forward(old) for net in nets]
    sums = np.zeros_like(point.means)
    for first in range(0, NETS, together):
        part = nets[first : first + together]
        for _ in range(0, number, piece):
            uniform = np.concatenate([net.random(piece) for net in part])
            normal = ndtri(uniform + 0.5 ** (_BITS + 1))
            values, displacement = evaluate(reflect(normal))
            samples = weigh(values - centre, displacement) if weigh else values[:, None]
            with np.errstate(all="ignore"):  # what is not finite is a reason later
                point.moments.add(samples)
            sums[first : first + together] += samples.reshape(len(part), piece, -1).sum(axis=1)
    point.add(sums / number)


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
