"""Samples of u(t, x) = E[u0(X_t)], and of derivatives, by scrambled Sobol' nets.

The mean of u0 over one scrambled net is unbiased, and for most data much closer to u than that over
as many random points. Weights take the place of derivatives. Means over nets that are scrambled
independently are independent, so that Student's interval holds for them as for random points.
The first coordinates of a net are its best: they are turned to the directions in which u0 varies
most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array
from scipy.special import ndtri

from heatnets._core.execution import ExecutionContext
from heatnets._core.operations import count_operations
from heatnets._core.reasons import Reason, ReasonKind
from heatnets._core.statistics import (
    MAX_KURTOSIS_RATIO,
    MIN_PAIRS,
    RunningMoments,
    confidence_interval,
    unseen_allowance,
)
from heatnets._core.tiling import map_points
from heatnets.certify.evaluator import NetworkEvaluator
from heatnets.certify.montecarlo import check_finite
from heatnets.certify.path_sampling import CHUNK
from heatnets.certify.sequential import NumberSamples, PointSamples
from heatnets.features.designs import Draws, SobolDraws
from heatnets.features.equation import to_jax
from heatnets.features.features import Equation
from heatnets.fit.collocation import Points
from heatnets.pde.canonical import CanonicalProblem

NETS = MIN_PAIRS  # independent nets
METHOD = f"quasi-Monte Carlo, {NETS} scrambled nets"  # in certificates
_MOST_DIM = 21201  # of Sobol' nets
_BITS = 32  # of the coordinates of a net
_LEAST = 64  # points of a net
_PILOT = 4096  # values of u0 that show in which directions it varies most
_FEWEST = 4  # places at which it is differenced, at least
_LEADING = 64  # directions to which coordinates of a net are turned, at most
# Directions lead if u0 varies so many times as much in them as chance explains, and in coordinates.
_CLEARLY = 1.2
_TOGETHER, _SCRAMBLES = 64, 8  # points whose nets share scrambled coordinates, and how many of each
_SMALL_PART = 0.1  # of a half-width: more points of nets would not matter
_HEAVY = 0.25  # kurtosis over number of nets above which one of them is an outlier


def serves(problem: CanonicalProblem) -> bool:
    """Whether u is the mean of u0 at the ends of exact paths, of few enough random numbers."""
    is_mean = problem.coefficients is None and not problem.has_source
    return is_mean and problem.dim <= _MOST_DIM


def serves_initial(problem: CanonicalProblem) -> bool:
    """Whether nets tell the mean of u0 at the ends of paths of the error equation.

    So it is whatever the source is, but for one that depends on ∇u: its derivative moves paths.
    """
    is_mean = serves(problem.without_source()) and not problem.source.uses_gradient
    return is_mean and not problem.zero_initial


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


class SamplesWithNets(NumberSamples):
    """Samples of a number less u0 at the end of a path, and nets for the mean of u0.

    The half-width is the sum of both.
    """

    def __init__(
        self, rounding: float, mean: float, rare: float, noise: float, *, weighted: bool
    ) -> None:
        """`weighted` says that u0 has a weight on its path, so that a part of it is left."""
        super().__init__(rounding, mean, rare, smooth=False, noise=noise)
        self.nets, self._weighted = NetSamples(0.0, 0.0, rare, np.zeros(1)), weighted
        self._nets_half = np.inf

    @property
    def drawn(self) -> int:
        return super().drawn + self.nets.drawn

    def points_for(self, pairs: int) -> int:
        """Points that each net gets when `pairs` more pairs are drawn: in the same proportion.

        None at all if the nets' part of the half-width is small.
        """
        if not self.count:
            return 2 * pairs
        enough = self._nets_half < _SMALL_PART * self.half and not self.nets.reasons
        return 0 if enough else 2 * self.nets.count * pairs // self.count

    def _interval(self, confidence: float) -> tuple[Any, tuple[str, ...]]:
        if self._weighted:  # paths may not have met what changes the weight of u0
            self.spread = max(self.spread, float(self.nets.moments.deviation[0]))
        half, reasons = super()._interval(confidence)
        (nets_half,), self.nets.reasons = self.nets._interval(confidence)
        self._nets_half = float(nets_half)
        self.mean = self.mean + float(self.nets.mean[0])
        return half + self._nets_half, reasons or self.nets.reasons


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

    if not number:
        return
    problem, dim, old = u.canonical, len(x), 2 * point.count
    if not old:
        number = 2 ** int(np.log2(max(number, _LEAST)))  # nets are best with powers of two

    def evaluate(normal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """u0 at the ends of paths with this noise (n, dim), (n,), and their displacements."""
        noise = problem.paths.scale_noise(normal)
        ends = problem.paths.simulate(t, x, np.full(len(normal), t), noise)
        values = u.initial(np.zeros(len(normal)), ends.position)
        point.see(values)
        return values, ends.position - x

    first_seen = []

    def note(normal: np.ndarray, place: np.ndarray) -> np.ndarray:
        first_seen.append(evaluate(normal)[0])
        return first_seen[-1]

    turn = leading_rotation(note, dim, rng)
    centre = float(np.mean(np.concatenate(first_seen))) if weigh else 0.0
    piece = min(number, 2 ** int(np.log2(max(CHUNK // dim, 1))))
    together = max(1, CHUNK // (dim * number))
    nets = [qmc.Sobol(dim, bits=_BITS, rng=child) for child in rng.spawn(NETS)]
    if old:
        nets = [net.fast_forward(old) for net in nets]
    sums = np.zeros_like(point.means)
    for first in range(0, NETS, together):
        part = nets[first : first + together]
        for start in range(0, number, piece):
            count = min(piece, number - start)
            uniform = np.concatenate([net.random(count) for net in part])
            normal = ndtri(uniform + 0.5 ** (_BITS + 1))
            values, displacement = evaluate(turn(normal))
            samples = weigh(values - centre, displacement) if weigh else values[:, None]
            with np.errstate(all="ignore"):  # what is not finite is a reason later
                point.moments.add(samples)
            sums[first : first + together] += samples.reshape(len(part), count, -1).sum(axis=1)
    point.add(sums / number)


@dataclass(frozen=True)
class Rotation:
    """An orthogonal map Q = I - V T Vᵀ of noise (n, dim) whose first coordinates it turns."""

    reflectors: np.ndarray  # V, (dim, k)
    factor: np.ndarray  # T, (k, k)

    @classmethod
    def onto(cls, leading: np.ndarray) -> Rotation:
        """The one that maps the first coordinates to the columns of `leading`, up to signs.

        A product of reflections: where it can, it leaves the other coordinates as they are.
        """
        dim, k = leading.shape
        if not k:
            return cls(np.zeros((dim, 0)), np.zeros((0, 0)))
        (packed, tau), _ = scipy.linalg.qr(leading, mode="raw")
        V = np.tril(packed[:, :k], -1) + np.eye(dim, k)
        # LAPACK leaves a reflection out where tau is zero.
        inverse = np.triu(V.T @ V, 1) + np.diag(1 / np.where(tau > 0, tau, 1.0))
        T = scipy.linalg.solve_triangular(inverse, np.diag((tau > 0).astype(float)))
        return cls(V, T)

    def __call__(self, normal: np.ndarray) -> np.ndarray:
        return normal - ((normal @ self.reflectors) @ self.factor.T) @ self.reflectors.T


def leading_rotation(
    evaluate: Callable[[np.ndarray, np.ndarray], np.ndarray], dim: int, rng: np.random.Generator
) -> Rotation:
    """The rotation of the first coordinates to the directions in which u0 varies most.

    Those are the first eigenvectors of E[∇u0 ∇u0ᵀ], with differences over a standard deviation in
    place of derivatives, because u0 may jump. If coordinates are about as good, those that matter
    most come first: data that are sums over coordinates are best integrated along these.

    Args:
        evaluate: from noise (n, dim) and numbers of places (n,), which may have paths of their
            own, to values (n,) of u0 at the ends of paths.
        dim: the dimension.
        rng: random generator of the places.
    """
    places, piece = max(_PILOT // dim, _FEWEST), max(CHUNK // dim, 1)
    begin = rng.standard_normal((places, dim))
    sampled = np.zeros(places * (dim + 1))
    for first in range(0, len(sampled), piece):
        rows = slice(first, first + piece)
        place, axis = np.divmod(np.arange(len(sampled))[rows], dim + 1)
        noise, moved = begin[place], np.flatnonzero(axis)
        noise[moved, axis[moved] - 1] += 1.0
        sampled[rows] = evaluate(noise, place)
    values = sampled.reshape(places, dim + 1)
    slopes = values[:, 1:] - values[:, :1]
    unit = float(np.max(np.abs(slopes)))
    if not (np.isfinite(unit) and unit > 0):
        return Rotation.onto(np.zeros((dim, 0)))
    slopes /= unit
    axes = np.sum(slopes**2, axis=0)
    order = np.argsort(-axes, kind="stable")[:_LEADING]
    _, size, directions = scipy.linalg.svd(slopes, full_matrices=False)
    # The largest eigenvalue for so many slopes without any direction (Marchenko and Pastur).
    chance = (1 + np.sqrt(dim / places)) ** 2 * np.mean(axes)
    leads = min(int(np.sum(size**2 > _CLEARLY * chance)), _LEADING)
    if np.sum(size[:leads] ** 2) > _CLEARLY * np.sum(axes[order[:leads]]):
        return Rotation.onto(directions[:leads].T)
    axis = np.zeros((dim, len(order)))
    axis[order, np.arange(len(order))] = 1.0
    return Rotation.onto(axis)


@dataclass(frozen=True)
class TurnedSobolDraws(SobolDraws):
    """Scrambled Sobol points whose first coordinates are turned to where u0 varies most."""

    rotation: Rotation
    name = "turned sobol"

    def draw(self, count: int, uniform: int, normal: int, seed: int, stream: str) -> Draws:
        uniforms, normals = super().draw(count, uniform, normal, seed, stream)
        return uniforms, self.rotation(normals)


class NetPoints(NamedTuple):
    """Which points of each net: `number` of them, after the first `first`; powers of two.

    With `shared`, the nets of `_TOGETHER` points are made of few scrambled coordinates: of each
    coordinate every net takes one at random, with a random sign. Each is a scrambled net, and two
    of them depend on each other only through coordinates that they have in common.
    """

    first: int
    number: int
    shared: bool = True


# With d = 5 and 20 (best of many assets), errors at one point by nets with common coordinates and
# random signs have correlations of 0.2 and 0; with a random choice of 8, fewer than 1/64 of that.
# In 20 dimensions 8192 points of a net of its own take four times as long as their values of u0.


def count_point_operations(problem: CanonicalProblem, data: Equation) -> int:
    """Count the operations of one point in `net_means`.

    Those of the matrix that turns it count an eighth: they are as much faster than others.
    """
    simulator = to_jax(problem.paths)

    def sample(t: Array, x: Array, noise: Array) -> Array:
        return data.initial(simulator.simulate_one(t, x, t, noise).position)

    shapes = ((), (problem.dim,), (problem.dim,))
    arguments = (jax.ShapeDtypeStruct(shape, jnp.float64) for shape in shapes)
    return count_operations(sample, *arguments) + problem.dim**2 // 4


def net_means(
    problem: CanonicalProblem,
    data: Equation,
    points: Points,
    part: NetPoints,
    rng: np.random.Generator,
    ctx: ExecutionContext,
    *,
    rotation: Rotation,
) -> np.ndarray:
    """Unbiased estimates of u at canonical points t (n,), x (n, dim): a net for each point.

    Calls for further points of the same nets need an `rng` in the same state.
    """
    from scipy.stats import qmc  # takes half a second to import

    (t, x), dim = points, problem.dim
    together, scrambles = (_TOGETHER, _SCRAMBLES) if part.shared else (1, 1)
    turn = problem.paths.scale_noise(rotation(np.eye(dim)))
    piece = min(part.number, 2 ** int(np.log2(max(CHUNK // (scrambles * dim), 1))))
    sums = np.zeros(len(t))
    for start, child in zip(
        range(0, len(t), together), rng.spawn(-(-len(t) // together)), strict=True
    ):
        ctx.progress("samples", start, len(t))
        rows = slice(start, start + together)
        nets = [qmc.Sobol(dim, bits=_BITS, rng=each) for each in child.spawn(scrambles)]
        nets = [net.fast_forward(part.first) for net in nets] if part.first else nets
        choice = child.integers(0, scrambles, (together, dim))[: len(t[rows])]
        sign = child.choice([-1.0, 1.0], (together, dim))[: len(t[rows])]
        for first in range(0, part.number, piece):
            uniform = np.stack([net.random(min(piece, part.number - first)).T for net in nets])
            normal = ndtri(uniform + 0.5 ** (_BITS + 1))
            with ctx.active():
                context = (data, to_jax(problem.paths), jnp.asarray(normal), jnp.asarray(turn))
                where = (t[rows], x[rows], choice, sign)
                sums[rows] += map_points(_sum_over_net, context, where, 4 * dim * piece, ctx)
    check_finite(problem, points, sums)
    return sums / part.number


def _sum_over_net(
    context: tuple[Equation, Any, Array, Array], t: Array, x: Array, choice: Array, sign: Array
) -> Array:
    """Sum of u0 at the ends of paths from one point, with the noise of a net."""
    data, paths, normal, turn = context  # normal (scrambles, dim, n)
    chosen = sign[:, None] * normal[choice, jnp.arange(x.size)]
    ends = jax.vmap(lambda noise: paths.simulate_one(t, x, t, noise).position)(chosen.T @ turn)
    return jnp.sum(jax.vmap(data.initial)(ends))
