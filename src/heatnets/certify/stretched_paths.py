"""Paths whose noise is stretched along one direction: samples of what ordinary paths hardly meet.

A bump of u0 or F that one path in a million meets is not in any ordinary sample. Along the gradient
of the data (in the noise of a path) it is only a few standard deviations away. So the component of
the noise along such a direction is drawn from wider normal distributions; the rest of the noise is
left alone. Weighted by the likelihood ratio, samples on these paths have the same mean as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from heatnets._core import streams
from heatnets._core.execution import ExecutionContext
from heatnets._core.tiling import map_points
from heatnets.certify.importance_points import WeightedPoints, choose_points
from heatnets.certify.path_sampling import noise_size
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.function import Function
from heatnets.pde.paths import PathSimulator

_WIDTH = 3.0  # standard deviation of the stretched component
_COORDINATES = 2**22  # most coordinates of gradients, or of candidates for points
_LONGEST = 6.0  # times the usual noise: how far out gradients are taken
_MOST = 8  # directions by each of two criteria
_NEGLIGIBLE = 1e-6  # relative size of a slope that may be rounding
# Share of a unit slope that lies outside all others: if it is in this range, other data may add to
# the slope, but it is nearer to the direction in which these data change than the share alone.
_OBLIQUE = (0.3, 0.9)
_SAME = 0.85  # cosine of directions that are the same
_UNIFORM = 0.1  # share of the points of the region that are chosen uniformly
_DISTANCES = (4.0, 6.0)  # of a bump from the region, in standard deviations of a path


class Stretching(NamedTuple):
    """Distribution of the component of the noise along a direction.

    A share `ordinary` is standard normal; the rest is `beyond` plus the size of a normal number of
    standard deviation 3. Likelihood ratios are then at most 1 / ordinary.
    """

    ordinary: float
    beyond: float


FAR = Stretching(0.0, 3.0)  # only what ordinary samples, some thousand, hardly meet
ALL = Stretching(0.25, 2.0)


@dataclass(frozen=True)
class Directions:
    """K unit vectors in the noise of paths, (K, m), and the ridges (K, dim) that they belong to.

    Every direction comes with its opposite.

    m is the number of random numbers of a path. For constant coefficients the projection of a path
    on a ridge is a Brownian motion, whose increments have the lag as variance.
    """

    noise: np.ndarray
    ridge: np.ndarray

    def __len__(self) -> int:
        return len(self.noise)

    def take(self, numbers: list[int]) -> Directions:
        """Some of the directions."""
        return Directions(self.noise[numbers], self.ridge[numbers])


def stretch(
    rng: np.random.Generator, normal: np.ndarray, direction: np.ndarray, stretching: Stretching
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the component of normal noise along a direction anew, from a wider distribution.

    Args:
        rng: generator of the random numbers.
        normal: standard normal noise, (..., m).
        direction: unit vectors, broadcast to (..., m).
        stretching: distribution of the component.

    Returns:
        The noise (..., m) and its likelihood ratio (...). The mean of f(noise) times the ratio is
        that of f on ordinary noise; if no noise is left as it was, it is that of f where the
        component is beyond `stretching.beyond`, and zero elsewhere.
    """
    ordinary, beyond = stretching
    old = np.sum(normal * direction, axis=-1)
    far = beyond + _WIDTH * np.abs(rng.standard_normal(old.shape))
    new = np.where(rng.random(old.shape) < ordinary, old, far)
    noise = normal + (new - old)[..., None] * direction
    # Density of the stretched components over that of ordinary ones.
    excess = 0.5 * (new**2 - ((new - beyond) / _WIDTH) ** 2)
    density = np.where(new > beyond, 2 / _WIDTH * np.exp(np.minimum(excess, 700.0)), 0.0)
    return noise, 1 / (ordinary + (1 - ordinary) * density)


def draw_stretched(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    *,
    problem: CanonicalProblem,
    direction: np.ndarray,
    stretching: Stretching,
) -> tuple[np.ndarray, np.ndarray]:
    """Noise of an array of paths, (*shape, *noise_shape), and likelihood ratios `shape`.

    `direction` is broadcast to (*shape, m).
    """
    simulator = problem.paths
    normal = streams.normal(rng, (*shape, noise_size(problem)))
    normal, ratio = stretch(rng, normal, direction, stretching)
    normal = normal.reshape(*shape, *simulator.noise_shape(problem.dim))
    return simulator.scale_noise(normal), ratio


def find_directions(
    problem: CanonicalProblem,
    x: np.ndarray,
    t: float,
    rng: np.random.Generator,
    ctx: ExecutionContext,
    count: int = 1024,
) -> Directions:
    """Directions in which u0 and F change far away, on paths from points x (n, dim) at the time t.

    They are gradients of u0 and F in the noise, at the ends of paths that go up to six times as far
    as usual, and then of paths that are stretched along the directions found so far; `count`
    gradients each time. Gradients that are zero or not finite do not count. No more than 16 and
    their opposites are kept: those that are largest, and those that differ most from the others.
    """
    width = noise_size(problem)
    count = min(count, max(_COORDINATES // width, 128))
    empty = np.zeros((0, width + problem.dim + 1))
    chosen, known = Directions(empty[:, :width], empty[:, width:-1]), empty
    for _ in range(2):
        normal = streams.normal(rng, (count, width))
        if len(chosen):
            along = chosen.noise[rng.integers(len(chosen), size=count)]
            normal, _ = stretch(rng, normal, along, FAR)
        else:
            normal *= rng.uniform(1.0, _LONGEST, (count, 1))
        starts = x[rng.integers(len(x), size=count)]
        found = _slopes(problem, t, starts, normal, t * rng.random(count), ctx)
        known = np.concatenate([known, found])
        chosen = _choose_directions(known, width)
        if not len(chosen):
            break
    return chosen


def _slopes(
    problem: CanonicalProblem,
    t: float,
    x: np.ndarray,
    normal: np.ndarray,
    lag: np.ndarray,
    ctx: ExecutionContext,
) -> np.ndarray:
    """Gradients of u0 and t F at the ends of n paths, those that are finite and not zero.

    Each row holds the unit gradient in the noise, the ridge, and the size: (n', m + dim + 1).
    """
    n, width = normal.shape
    noise = normal.reshape(n, *problem.paths.noise_shape(problem.dim))
    context = (problem.paths, problem.initial, problem.feature_source)
    points, lags, rows = (np.full(n, t), x, lag, noise), (np.full(n, t), lag), []
    with np.errstate(all="ignore"):
        pairs = map_points(_data_slopes, context, points, 32 * width, ctx)
        for factor, duration, (by_place, by_noise) in zip((1.0, t), lags, pairs, strict=False):
            # In units of the largest number: gradients of a far bump are tiny.
            both = np.concatenate([by_noise.reshape(n, -1), by_place], axis=1)
            unit = np.max(np.abs(both), axis=1, keepdims=True)
            both = both / unit
            both[:, :width] /= np.sqrt(duration)[:, None]
            norm = np.linalg.norm(both[:, :width], axis=1, keepdims=True)
            row = np.concatenate([both / norm, factor * unit * norm], axis=1)
            rows.append(row[np.all(np.isfinite(row), axis=1)])
    return np.concatenate(rows)


def _data_slopes(
    context: tuple[PathSimulator, Function, Function | None],
    t: Array,
    x: Array,
    lag: Array,
    normal: Array,
) -> tuple[tuple[Array, Array], ...]:
    """Gradients of u0 and F at the end of a path, in its start (dim,) and in its noise.

    Args:
        context: the simulator of the paths, u0, and F or None.
        t: the start time, (); the path for u0 ends at time zero.
        x: the start place, (dim,).
        lag: duration of the path for F, ().
        normal: standard normal noise of the path.
    """
    simulator, initial, source = context

    def u0(x: Array, normal: Array) -> Array:
        return initial(simulator.simulate_one(t, x, t, simulator.scale_noise(normal)).position)

    def force(x: Array, normal: Array) -> Array:
        end = simulator.simulate_one(t, x, lag, simulator.scale_noise(normal))
        return source(t - lag, end.position)  # type: ignore[misc]

    functions = (u0,) if source is None else (u0, force)
    return tuple(jax.grad(f, argnums=(0, 1))(x, normal) for f in functions)


def _choose_directions(rows: np.ndarray, width: int) -> Directions:
    """Directions from rows of `_slopes`: the largest slopes, and those unlike all others."""
    slopes, sizes = rows[:, :-1], rows[:, -1]
    chosen: list[np.ndarray] = []
    for importance in (np.ones(len(rows)), sizes / (np.max(sizes, initial=0.0) or 1.0)):
        # Gram-Schmidt with pivots. Only a pivot itself is made orthogonal to those before it; of
        # the other rows the squares of the norms are enough.
        basis, components = np.zeros((0, slopes.shape[1])), np.zeros((len(rows), 0))
        squares = np.linalg.norm(importance[:, None] * slopes[:, :width], axis=1) ** 2
        while len(basis) < _MOST and np.max(squares, initial=0.0) > _NEGLIGIBLE**2:
            i = int(np.argmax(squares))
            remainder = importance[i] * slopes[i] - components[i] @ basis
            size = np.linalg.norm(remainder[:width])
            if not size > _NEGLIGIBLE:
                break
            remainder = remainder / size
            oblique = _OBLIQUE[0] < size / importance[i] < _OBLIQUE[1]
            candidate = slopes[i] if oblique else remainder
            if all(abs(candidate[:width] @ other[:width]) < _SAME for other in chosen):
                chosen.append(candidate)
            component = importance * (slopes[:, :width] @ remainder[:width])
            squares = squares - component**2
            components = np.column_stack([components, component])
            basis = np.vstack([basis, remainder])
    stacked = np.array([sign * v for v in chosen for sign in (1.0, -1.0)])
    stacked = stacked.reshape(2 * len(chosen), slopes.shape[1])
    return Directions(stacked[:, :width], stacked[:, width:])


def candidate_count(problem: CanonicalProblem) -> int:
    """The number of random points of the region from which points are chosen."""
    return int(np.clip(_COORDINATES // problem.dim, 1024, 2**14))


def points_near(
    problem: CanonicalProblem,
    ridge: np.ndarray,
    candidates: tuple[np.ndarray, np.ndarray],
    count: int,
    rng: np.random.Generator,
) -> WeightedPoints:
    """Choose `count` points, more of them where paths are likely to go far along a ridge (dim,).

    The likelihood is that of a path to a place on the ridge four or six standard deviations beyond
    the candidates t (n,), x (n, dim).
    """
    t, x = candidates
    place, deviation, scale = x @ ridge, np.sqrt(np.max(t)), problem.value_scale(t)
    gaps = [np.max(place) + distance * deviation - place for distance in _DISTANCES]
    likelihoods = [scale * np.exp(0.5 * (np.min(gap**2 / t) - gap**2 / t)) for gap in gaps]
    return choose_points(t, x, likelihoods, count, rng, _UNIFORM)
