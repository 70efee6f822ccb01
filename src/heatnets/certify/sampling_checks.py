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
from heatnets.pde.function import Function, constant
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


class PathSamples(NamedTuple):
    """Samples of the data on n paths, one from each point (t, x)."""

    initial: np.ndarray  # u0 at the ends of the paths, (n,)
    initial_weight: Any  # weights of the paths there, (n,) or 1
    source: np.ndarray | None  # F at a random time of each path, (n,); None without a source
    source_weight: Any  # weights of the paths there, (n,) or 1
    points: tuple[np.ndarray, np.ndarray]  # t (n,), x (n, dim)


def sample_data(
    problem: CanonicalProblem,
    t: np.ndarray,
    x: np.ndarray,
    rng: np.random.Generator,
    ctx: ExecutionContext,
) -> PathSamples:
    """Sample the data on one path from each point t (n,), x (n, dim)."""
    simulator, n, dim, f = problem.paths, len(t), problem.dim, problem.source
    ends = simulator.simulate(t, x, t, simulator.draw(rng, (n,), dim))
    initial = map_points(_initial, problem.initial, (ends.position,), 4 * dim, ctx)
    if f is None:
        return PathSamples(initial, ends.weight, None, 1.0, (t, x))
    lag = t * rng.random(n)
    inside = simulator.simulate(t, x, lag, simulator.draw(rng, (n,), dim))
    source = map_points(_source, f, (t - lag, inside.position), 4 * dim, ctx)
    return PathSamples(initial, ends.weight, source, inside.weight, (t, x))


def over_region(
    problem: CanonicalProblem, rng: np.random.Generator, ctx: ExecutionContext
) -> PathSamples:
    """Sample the data on paths from random points of the region."""
    n = _path_count(problem.dim)
    t, x = sample_points(problem.region, problem.horizon, n, problem.dim, rng)
    return sample_data(problem, t, x, rng, ctx)


def from_point(
    problem: CanonicalProblem,
    t: float,
    x: np.ndarray,
    rng: np.random.Generator,
    ctx: ExecutionContext,
) -> PathSamples:
    """Sample the data on paths from one point x (dim,)."""
    n = _path_count(problem.dim)
    return sample_data(problem, np.full(n, t), np.broadcast_to(x, (n, problem.dim)), rng, ctx)


def _path_count(dim: int) -> int:
    """How many paths to simulate in this dimension."""
    return int(np.clip(_COORDINATES // dim, 512, PATHS))


def _initial(f: Function, x: Array) -> Array:
    return f(x)


def _source(f: Function, t: Array, x: Array) -> Array:
    return f(t, x)


def check_constant_samples(
    problem: CanonicalProblem, samples: PathSamples, rare: float = _RARE
) -> Doubt | None:
    """A doubt where the data are equal on all paths, but cannot be shown to be constant.

    The same where they are equal on all but a share of the paths, below `rare`.
    """
    parts = [samples.initial, *([] if samples.source is None else [samples.source])]
    modes = [_most_common(values) for values in parts]
    differs = np.any([values != mode for values, mode in zip(parts, modes, strict=True)], axis=0)
    share = float(np.mean(differs))
    if share > 0 and share >= rare:
        return _check_each_function(problem, parts, modes)
    if shown_constant(problem):
        return None
    names = f"`{problem.data_name}`"
    if samples.source is not None:
        names += " and `source`"
    value = " and ".join(dict.fromkeys(f"{v + 0.0:.6g}" for v in modes))  # no negative zeros
    if share == 0:
        words = (
            f"every sample is the same ({value}) on {len(differs)} paths: "
            f"{names} {_are(names)} {_UNKNOWN}"
        )
        return Doubt(words, _SEE)
    where = f"at all but {100 * share:.2g} % of {len(differs)} places that paths lead to"
    words = f"{names} {_are(names)} the same ({value}) {where}: what is so rare is not resolved"
    return Doubt(words, _SEE)


def _check_each_function(
    problem: CanonicalProblem, parts: list[np.ndarray], modes: list[float]
) -> Doubt | None:
    """The same check of u0 and F one by one: if one varies, it would hide that the other does not.

    `parts` are the samples of u0 and of F, (n,) each, `modes` their most common values.
    """
    if problem.nonlinear is not None or problem.source is None:
        return None
    number, point = _argument_shapes(problem)
    functions = (
        (problem.data_name, problem.initial, (point,)),
        ("source", problem.source, (number, point)),
    )
    for (name, function, shapes), values, mode in zip(functions, parts, modes, strict=True):
        if np.all(values == mode) and constant(function, *shapes) is None:
            words = (
                f"every sample of `{name}` is the same ({mode + 0.0:.6g}) on {len(values)} paths: "
                f"it is {_UNKNOWN}"
            )
            return Doubt(words, _SEE)
    return None


def _argument_shapes(problem: CanonicalProblem) -> tuple[Any, Any]:
    """The shapes of a time, (), and of a place, (dim,), for abstract evaluation."""
    number = jax.ShapeDtypeStruct((), jnp.float64)
    return number, jax.ShapeDtypeStruct((problem.dim,), jnp.float64)


def _are(names: str) -> str:
    return "are" if " and " in names else "is"


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
    if problem.nonlinear is not None:
        return constant(problem.nonlinear, number, point, start, np.zeros(problem.dim)) is not None
    return problem.source is None or constant(problem.source, number, point) is not None


def check_tails(
    problem: CanonicalProblem,
    samples: PathSamples,
    by_samples: bool,
    rng: np.random.Generator,
    ctx: ExecutionContext,
) -> Doubt | None:
    """A doubt where the data grow so fast along paths that a few samples carry their mean.

    `by_samples` is True where the answer itself is made of samples of the data.
    """
    sizes = {problem.data_name: np.abs(samples.initial_weight * samples.initial)}
    if samples.source is not None and problem.nonlinear is None:
        sizes["source"] = np.abs(samples.source_weight * samples.source)
    for name, size in sizes.items():
        (carried, count), (index, noise) = _largest_share(size), tail(size)
        if carried < 0.1 * _CARRIED and index > 2:
            continue
        fast = f"`{name}` grows too fast along paths"
        if _mean_is_infinite(problem, name, samples, rng, ctx):
            words = (
                f"{fast}: faster than the Gaussian density of their ends falls, "
                "so that its mean is not finite"
            )
            return Doubt(words, _TAME)
        if carried > _CARRIED:
            words = (
                f"a few paths carry the mean of `{name}`: "
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
    name: str,
    samples: PathSamples,
    rng: np.random.Generator,
    ctx: ExecutionContext,
) -> bool:
    """Whether, far out, log |f| curves upwards like r²/2 or more, r the length of the noise.

    Then |f| times the Gaussian density does not decrease. The directions are turned towards those
    in which f grows most.
    """
    f = problem.source if name == "source" else problem.initial
    t, x = samples.points
    latest = np.flatnonzero(t >= 0.99 * np.max(t))  # the longest paths go furthest
    chosen = rng.choice(latest, _DIRECTIONS)
    shape = problem.paths.noise_shape(problem.dim)
    noise = rng.standard_normal((_DIRECTIONS, *shape))
    context, points = (problem.paths, f, name == "source"), (t[chosen], x[chosen], noise)
    by_radius = map_points(_log_along_ray, context, points, 64 * int(np.prod(shape)), ctx)
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


def doubt(
    problem: CanonicalProblem,
    samples: PathSamples,
    by_samples: bool,
    rng: np.random.Generator,
    ctx: ExecutionContext,
    rare: float = _RARE,
) -> Doubt | None:
    """Why the samples of the data do not determine the answer; None where they do.

    Args:
        problem: the canonical problem.
        samples: of its data, from `over_region` or `from_point`.
        by_samples: whether the answer itself is made of samples of the data.
        rng: generator of further random numbers.
        ctx: where to run.
        rare: a share of paths below which data are not resolved.
    """
    reason = check_constant_samples(problem, samples, rare)
    return reason or check_tails(problem, samples, by_samples, rng, ctx)
