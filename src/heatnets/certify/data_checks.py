"""Checks whether samples of the data along paths determine their mean.

A mean over paths says nothing about data that no path has met. If the samples are (almost) all
equal, or if one of them carries the mean, the answer is refused with a message.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from heatnets._core.execution import ExecutionContext
from heatnets._core.tiling import map_points
from heatnets.fit.collocation import sample_points
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.constant_folding import constant
from heatnets.pde.function import Function
from heatnets.pde.paths import PathSimulator

PATHS = 4096
_COORDINATES = 2**22  # of all path ends: fewer paths beyond 1024 dimensions, 512 at least
_RARE = 0.01  # a share of paths below which data are not resolved
_CARRIED = 0.5  # a share of the mean that one sample may carry
_TOP = 0.02  # the tail: this share of all samples ...
_TOP_OF_NONZERO = 0.2  # ... or this share of the samples that are not zero, if fewer
_FEWEST = 8  # samples of a tail
_PARTS = 8  # into which the samples are split
_DIRECTIONS = 32
_RADII = (4.0, 8.0, 12.0, 16.0, 24.0, 36.0)  # standard deviations: e^{r²/2} is still a number
_TRIPLES = ((2, 4, 5), (1, 3, 4), (0, 1, 2))  # equally spaced radii, the furthest first
_CRITICAL = 0.999  # curvature of log f that a Gaussian density can just compensate
EXACT = 1e-9  # relative error of a network that is exact up to rounding: it needs no samples


class Doubt(NamedTuple):
    """Why samples of the data do not determine their mean, and what the user can do.

    `curable` is True where the doubt does not concern a network that is exact: it needs no samples.
    """

    words: str
    advice: str
    curable: bool = False


_SEE = "Choose a region and a horizon whose paths see the data."
_TAME = "Shorten the horizon, scatter less, or bound the data."
_UNKNOWN = "not known to be constant, and what paths do not meet is unknown"


class _DataSamples(NamedTuple):
    """Samples of u0 or F at the ends of n paths, one from each of n points."""

    name: str  # of the argument that the user gave
    function: Function  # of x, or of t and x if `timed`
    timed: bool
    values: np.ndarray  # (n,)
    weight: Any  # of the paths, (n,) or 1


def doubt(
    problem: CanonicalProblem,
    by_samples: bool,
    rng: np.random.Generator,
    ctx: ExecutionContext,
    start: tuple[float, np.ndarray] | None = None,
) -> Doubt | None:
    """Why samples of the data on paths do not determine the answer; None where they do.

    Args:
        problem: the canonical problem.
        by_samples: whether the answer itself is made of samples of the data.
        rng: generator of the random numbers.
        ctx: where to run.
        start: the point (t, x) where the paths start; by default random points of the region, and
            data that few paths meet are then doubtful, too.
    """
    n = int(np.clip(_COORDINATES // problem.dim, 512, PATHS))
    if start is None:
        points = sample_points(problem, n, rng)
    else:
        points = np.full(n, start[0]), np.broadcast_to(start[1], (n, problem.dim))
    samples = _sample_data(problem, *points, rng, ctx)
    rare = _RARE if start is None else 0.0
    reason = _check_constant_samples(problem, samples, rare)
    return reason or _check_tails(problem, samples, points, by_samples, rng, ctx)


def _sample_data(
    problem: CanonicalProblem,
    t: np.ndarray,
    x: np.ndarray,
    rng: np.random.Generator,
    ctx: ExecutionContext,
) -> list[_DataSamples]:
    """Sample u0 and F on one path from each point t (n,), x (n, dim)."""
    simulator, dim = problem.paths, problem.dim

    def sample(name: str, function: Function, timed: bool, lag: np.ndarray) -> _DataSamples:
        ends = simulator.simulate(t, x, lag, simulator.sample_noise(rng, t.shape, dim))
        points = (t - lag, ends.position) if timed else (ends.position,)
        values = map_points(_apply, function, points, 4 * dim, ctx)
        return _DataSamples(name, function, timed, values, ends.weight)

    samples = [sample(problem.data_name, problem.initial, False, t)]
    if problem.feature_source is not None:
        samples.append(sample("source", problem.feature_source, True, t * rng.random(len(t))))
    return samples


def _apply(function: Function, *point: Array) -> Array:
    return function(*point)


def _check_constant_samples(
    problem: CanonicalProblem, samples: list[_DataSamples], rare: float
) -> Doubt | None:
    """A doubt where the data are equal on all paths, but cannot be shown to be constant.

    The same where they are equal on all but a share of the paths, below `rare`. If only one of u0
    and F varies, it would hide that the other does not: then each is checked.
    """
    modes = [_most_common(values) for *_, values, _ in samples]
    equal = [part.values == mode for part, mode in zip(samples, modes, strict=True)]
    n, share = len(equal[0]), float(np.mean(~np.all(equal, axis=0)))
    if share > 0 and share >= rare:
        shapes = _argument_shapes(problem)
        for part, mode, same in zip(samples, modes, equal, strict=True):
            args = shapes if part.timed else shapes[1:]
            separate = len(samples) == 2 and not problem.source.uses_u
            if separate and np.all(same) and constant(part.function, *args) is None:
                words = (
                    f"every sample of `{part.name}` is the same ({mode + 0.0:.6g}) on {n} paths: "
                    f"it is {_UNKNOWN}"
                )
                return Doubt(words, _SEE)
        return None
    if shown_constant(problem):
        return None
    names = " and ".join(f"`{part.name}`" for part in samples)
    are = "are" if len(samples) == 2 else "is"
    value = " and ".join(dict.fromkeys(f"{v + 0.0:.6g}" for v in modes))  # no negative zeros
    if share == 0:
        words = f"every sample is the same ({value}) on {n} paths: {names} {are} {_UNKNOWN}"
        return Doubt(words, _SEE)
    where = f"at all but {100 * share:.2g} % of {n} places that paths lead to"
    words = f"{names} {are} the same ({value}) {where}: what is so rare is not resolved"
    return Doubt(words, _SEE)


def _argument_shapes(problem: CanonicalProblem) -> tuple[Any, Any]:
    """The shapes of a time, (), and of a point, (dim,), for abstract evaluation."""
    number = jax.ShapeDtypeStruct((), jnp.float64)
    return number, jax.ShapeDtypeStruct((problem.dim,), jnp.float64)


def _most_common(values: np.ndarray) -> float:
    """The most common of the values (n,)."""
    distinct, counts = np.unique(values, return_counts=True)
    return float(distinct[np.argmax(counts)])


def shown_constant(problem: CanonicalProblem) -> bool:
    """Whether the programs that compute the data show that these are constants."""
    number, point = _argument_shapes(problem)
    start = constant(problem.initial, point)
    if start is None:
        return False
    return constant(problem.source, number, point, start, np.zeros(problem.dim)) is not None


def _check_tails(
    problem: CanonicalProblem,
    samples: list[_DataSamples],
    points: tuple[np.ndarray, np.ndarray],
    by_samples: bool,
    rng: np.random.Generator,
    ctx: ExecutionContext,
) -> Doubt | None:
    """A doubt where the data grow so fast along paths that a few samples carry their mean."""
    for part in samples[:1] if problem.source.uses_u else samples:
        size = np.abs(part.weight * part.values)
        (carried, count), (index, noise) = _largest_share(size), tail(size)
        if carried < 0.1 * _CARRIED and index > 2:
            continue
        fast = f"`{part.name}` grows too fast along paths"
        if _mean_is_infinite(problem, part, points, rng, ctx):
            words = (
                f"{fast}: faster than the Gaussian density of their ends falls, "
                "so that its mean is not finite"
            )
            return Doubt(words, _TAME)
        if carried > _CARRIED:
            words = (
                f"a few paths carry the mean of `{part.name}`: "
                f"one of {count} samples alone carries {100 * carried:.0f} % of it"
            )
            return Doubt(words, _TAME, not by_samples)
        if by_samples and index * (1 + 2 * noise) < 1:
            words = (
                f"{fast}: its samples' tail falls like the power -{index:.2g}, "
                "too slowly for a mean to be believed"
            )
            return Doubt(words, _TAME)
    return None


def _largest_share(size: np.ndarray) -> tuple[float, int]:
    """The share of the mean of |samples| that the largest one carries, and the number of samples.

    The larger of two: the share among all samples, and the median of the shares in each eighth.
    """

    def share(part: np.ndarray) -> float:
        total = float(np.sum(part))
        return float(np.max(part)) / total if 0 < total < np.inf else 0.0 if total == 0 else 1.0

    shares = [share(part) for part in np.array_split(size, _PARTS)]
    return max((share(size), len(size)), (float(np.median(shares)), len(size) // _PARTS))


def tail(size: np.ndarray) -> tuple[float, float]:
    """Hill's estimate of the tail index of samples (n,), and its relative standard error.

    From the largest samples; infinite where these are too few.
    """
    k = min(int(_TOP * len(size)), int(_TOP_OF_NONZERO * np.count_nonzero(size)))
    if k < _FEWEST or not np.all(np.isfinite(size)):
        return np.inf, 0.0
    top = np.sort(size)[-k - 1 :]
    excess = float(np.mean(np.log(top[1:] / top[0])))
    return (1 / excess if excess > 0 else np.inf), 1 / np.sqrt(k)


def _mean_is_infinite(
    problem: CanonicalProblem,
    samples: _DataSamples,
    points: tuple[np.ndarray, np.ndarray],
    rng: np.random.Generator,
    ctx: ExecutionContext,
) -> bool:
    """Whether, far out, log |f| curves upwards like r²/2 or more, r the length of the noise.

    Then |f| times the Gaussian density does not decrease. The directions are turned towards those
    in which f grows most.
    """
    t, x = points
    latest = np.flatnonzero(t >= 0.99 * np.max(t))  # the longest paths go furthest
    chosen = rng.choice(latest, _DIRECTIONS)
    shape = problem.paths.noise_shape(problem.dim)
    noise = rng.standard_normal((_DIRECTIONS, *shape))
    context, rays = (problem.paths, samples.function, samples.timed), (t[chosen], x[chosen], noise)
    by_radius = map_points(_log_along_ray, context, rays, 64 * int(np.prod(shape)), ctx)
    for row in np.stack(by_radius, axis=1):
        finite = [triple for triple in _TRIPLES if np.all(row[list(triple)] < np.inf)]
        first, second, third = finite[0] if finite else _TRIPLES[-1]
        spacing = _RADII[second] - _RADII[first]
        with np.errstate(invalid="ignore"):
            curvature = (row[third] - 2 * row[second] + row[first]) / spacing**2
        if curvature >= _CRITICAL or np.isposinf(row[first]):
            return True
    return False


def _log_along_ray(
    context: tuple[PathSimulator, Function, bool], t: Array, x: Array, noise: Array
) -> tuple[Array, ...]:
    """log |weight · f| at the ends of paths whose noise has the lengths `_RADII`.

    Args:
        context: the simulator of the paths, f, and whether f depends on time.
        t: the start time, ().
        x: the start place, (dim,).
        noise: the first direction, of the shape of the noise of a path.
    """
    simulator, f, timed = context

    def logarithm(z: Array) -> Array:
        lag = 0.9 * t if timed else t  # a source may be singular at the start
        end = simulator.simulate_one(t, x, lag, simulator.scale_noise(z))
        value = f(t - lag, end.position) if timed else f(end.position)
        return jnp.log(jnp.abs(value)) + jnp.log(end.weight)

    unit = noise / jnp.linalg.norm(noise)
    for r in (6.0, 12.0, 18.0):  # turn towards the gradient of log |f|
        slope = jax.grad(logarithm)(r * unit)
        size = jnp.linalg.norm(slope)
        unit = jnp.where(jnp.isfinite(size) & (size > 0), slope / size, unit)
    return tuple(logarithm(r * unit) for r in _RADII)
