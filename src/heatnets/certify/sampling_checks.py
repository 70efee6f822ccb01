"""What paths meet of the data, and whether that tells a mean.

A mean over paths says nothing of what no path met. Samples that are all the same prove that data
are constant only where the data can be shown to be; samples that are the same but for a few, or of
which one carries the mean, leave it unknown. In each case the answer is declined, in words.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from heatnets._core.execution import ExecutionContext
from heatnets._core.tiling import evaluate
from heatnets.fit.collocation import judged
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.function import Function, constant
from heatnets.pde.paths import PathSimulator

PATHS = 4096
_COORDINATES = 2**22  # of all places looked at: fewer paths beyond 1024 dimensions, 512 at least
_RARE = 0.01  # a share of paths below which nothing is resolved
_CARRIED = 0.5  # of a mean, by one of its samples
_TOP, _OF_THOSE = (
    0.02,
    0.2,
)  # samples whose tail is looked at: a share of all, and of those that are not zero
_FEWEST = 8
_PARTS = 8
_DIRECTIONS = 32
_RADII = (4.0, 8.0, 12.0, 16.0, 24.0, 36.0)  # standard deviations: e^{r²/2} is still a number
_TRIPLES = ((2, 4, 5), (1, 3, 4), (0, 1, 2))  # of equal distances, the furthest first
_CRITICAL = 0.999  # of the curvature of log f that a Gaussian density can bear
EXACT = 1e-9  # a network whose residual is rounding needs no samples of the data


class Doubt(NamedTuple):
    """Why samples of the data do not tell their mean, and what to do; `curable` where a network
    that is exact needs no samples.
    """

    words: str
    advice: str
    curable: bool = False


_SEE = "Choose a region and a horizon whose paths see the data."
_TAME = "Shorten the horizon, scatter less, or bound the data."


class Met(NamedTuple):
    """What paths from points (t, x) meet: u0 at their ends and its weight, F on their way and its
    weight (None where there is no source).
    """

    initial: np.ndarray
    weight: Any
    source: np.ndarray | None
    inside: Any
    start: tuple[np.ndarray, np.ndarray]


def look(
    problem: CanonicalProblem,
    t: np.ndarray,
    x: np.ndarray,
    rng: np.random.Generator,
    ctx: ExecutionContext,
) -> Met:
    """One path from each point of a plain problem."""
    walk, n, dim, f = problem.paths, len(t), problem.dim, problem.source
    ends = walk.go(t, x, t, walk.draw(rng, (n,), dim))
    initial = evaluate(_initial, problem.initial, (ends.place,), 4 * dim, ctx)
    if f is None:
        return Met(initial, ends.weight, None, 1.0, (t, x))
    lag = t * rng.random(n)
    inside = walk.go(t, x, lag, walk.draw(rng, (n,), dim))
    return Met(
        initial,
        ends.weight,
        evaluate(_source, f, (t - lag, inside.place), 4 * dim, ctx),
        inside.weight,
        (t, x),
    )


def over_region(problem: CanonicalProblem, rng: np.random.Generator, ctx: ExecutionContext) -> Met:
    """Paths from where the answer is wanted."""
    return look(
        problem,
        *judged(problem.region, problem.horizon, _paths(problem.dim), problem.dim, rng),
        rng,
        ctx,
    )


def from_point(
    problem: CanonicalProblem,
    t: float,
    x: np.ndarray,
    rng: np.random.Generator,
    ctx: ExecutionContext,
) -> Met:
    """Paths from one point."""
    n = _paths(problem.dim)
    return look(problem, np.full(n, t), np.broadcast_to(x, (n, problem.dim)), rng, ctx)


def _paths(dim: int) -> int:
    return int(np.clip(_COORDINATES // dim, 512, PATHS))


def _initial(f: Function, x: Array) -> Array:
    return f(x)


def _source(f: Function, t: Array, x: Array) -> Array:
    return f(t, x)


def unmet(problem: CanonicalProblem, met: Met, rare: float = _RARE) -> Doubt | None:
    """Words where the data are the same on all paths, or on all but a share of them, and cannot be
    shown to be constant.
    """
    parts = [met.initial, *([] if met.source is None else [met.source])]
    usual = [_commonest(values) for values in parts]
    apart = np.any([values != value for values, value in zip(parts, usual, strict=True)], axis=0)
    share = float(np.mean(apart))
    if share > 0 and share >= rare:
        return _unmet_part(problem, parts, usual)
    if shown_constant(problem):
        return None
    names = (
        f"`{problem.data_name}`" if met.source is None else f"`{problem.data_name}` and `source`"
    )
    value = " and ".join(dict.fromkeys(f"{v + 0.0:.6g}" for v in usual))  # no negative zeros
    if share == 0:
        return Doubt(
            f"every sample is the same ({value}) on {len(apart)} paths: {names} {_are(names)} {_UNKNOWN}",
            _SEE,
        )
    where = f"at all but {100 * share:.2g} % of {len(apart)} places that paths lead to"
    return Doubt(
        f"{names} {_are(names)} the same ({value}) {where}: what is so rare is not resolved", _SEE
    )


_UNKNOWN = "not known to be constant, and what paths do not meet is unknown"


def _unmet_part(
    problem: CanonicalProblem, parts: list[np.ndarray], usual: list[float]
) -> Doubt | None:
    """The same of one function alone where the other varies, which would hide it."""
    if problem.nonlinear is not None or problem.source is None:
        return None
    number, point = (
        jax.ShapeDtypeStruct((), jnp.float64),
        jax.ShapeDtypeStruct((problem.dim,), jnp.float64),
    )
    functions = (
        (problem.data_name, problem.initial, (point,)),
        ("source", problem.source, (number, point)),
    )
    for (name, function, at), values, value in zip(functions, parts, usual, strict=True):
        if np.all(values == value) and constant(function, *at) is None:
            return Doubt(
                f"every sample of `{name}` is the same ({value + 0.0:.6g}) on {len(values)} paths: it is {_UNKNOWN}",
                _SEE,
            )
    return None


def _are(names: str) -> str:
    return "are" if " and " in names else "is"


def _commonest(values: np.ndarray) -> float:
    found, counts = np.unique(values, return_counts=True)
    return float(found[np.argmax(counts)])


def shown_constant(problem: CanonicalProblem) -> bool:
    """Whether the data are constants by the programs that compute them, so that there is nothing to
    meet.
    """
    number, point = (
        jax.ShapeDtypeStruct((), jnp.float64),
        jax.ShapeDtypeStruct((problem.dim,), jnp.float64),
    )
    start = constant(problem.initial, point)
    if start is None:
        return False
    if problem.nonlinear is not None:
        return constant(problem.nonlinear, number, point, start, np.zeros(problem.dim)) is not None
    return problem.source is None or constant(problem.source, number, point) is not None


def grows(
    problem: CanonicalProblem,
    met: Met,
    by_samples: bool,
    rng: np.random.Generator,
    ctx: ExecutionContext,
) -> Doubt | None:
    """Words where the data grow so fast along paths that a few samples carry the mean; `by_samples`
    where the answer comes from samples of the data.
    """
    sizes = {problem.data_name: np.abs(met.weight * met.initial)}
    if met.source is not None and problem.nonlinear is None:
        sizes["source"] = np.abs(met.inside * met.source)
    for name, size in sizes.items():
        (carried, of), (index, noise) = _carried(size), tail(size)
        if carried < 0.1 * _CARRIED and index > 2:
            continue
        fast = f"`{name}` grows too fast along paths"
        if _explodes(problem, name, met, rng, ctx):
            return Doubt(
                f"{fast}: faster than the Gaussian density of their ends falls, so that its mean is not finite",
                _TAME,
            )
        if carried > _CARRIED:
            few = f"a few paths carry the mean of `{name}`"
            return Doubt(
                f"{few}: one of {of} samples alone carries {100 * carried:.0f} % of it",
                _TAME,
                not by_samples,
            )
        if by_samples and index * (1 + 2 * noise) < 1:
            slow = f"its samples' tail falls like the power -{index:.2g}, too slowly for a mean to be believed"
            return Doubt(f"{fast}: {slow}", _TAME)
    return None


def _carried(size: np.ndarray) -> tuple[float, int]:
    """The share of the mean that one sample carries, and of how many: of all, or of an eighth of
    them, as the median of eight says.
    """

    def share(some: np.ndarray) -> float:
        total = float(np.sum(some))
        return float(np.max(some)) / total if 0 < total < np.inf else 0.0 if total == 0 else 1.0

    parts = [share(part) for part in np.array_split(size, _PARTS)]
    return max((share(size), len(size)), (float(np.median(parts)), len(size) // _PARTS))


def tail(size: np.ndarray) -> tuple[float, float]:
    """Hill's estimate of the index of a tail from its largest samples, and its relative standard
    error; infinite where there are too few.
    """
    k = min(int(_TOP * len(size)), int(_OF_THOSE * np.count_nonzero(size)))
    if k < _FEWEST or not np.all(np.isfinite(size)):
        return np.inf, 0.0
    top = np.sort(size)[-k - 1 :]
    excess = float(np.mean(np.log(top[1:] / top[0])))
    return (1 / excess if excess > 0 else np.inf), 1 / np.sqrt(k)


def _explodes(
    problem: CanonicalProblem, name: str, met: Met, rng: np.random.Generator, ctx: ExecutionContext
) -> bool:
    """Whether far out log f bends upwards as r²/2 does, or more, with r the length of the noise that leads there: then f times its density does not fall.

    Directions are turned towards those in which f grows most.
    """
    f = problem.source if name == "source" else problem.initial
    late = np.flatnonzero(
        met.start[0] >= 0.99 * np.max(met.start[0])
    )  # the longest paths go furthest
    some = rng.choice(late, _DIRECTIONS)
    shape = problem.paths.normals(problem.dim)
    noise = rng.standard_normal((_DIRECTIONS, *shape))
    points = (met.start[0][some], met.start[1][some], noise)
    found = np.stack(
        evaluate(
            _beyond, (problem.paths, f, name == "source"), points, 64 * int(np.prod(shape)), ctx
        ),
        axis=1,
    )
    for row in found:
        whole = [triple for triple in _TRIPLES if np.all(row[list(triple)] < np.inf)]
        first, second, third = whole[0] if whole else _TRIPLES[-1]
        with np.errstate(invalid="ignore"):
            bend = (row[third] - 2 * row[second] + row[first]) / (
                _RADII[second] - _RADII[first]
            ) ** 2
        if bend >= _CRITICAL or np.isposinf(row[first]):
            return True
    return False


def _beyond(
    data: tuple[PathSimulator, Function, bool], t: Array, x: Array, noise: Array
) -> tuple[Array, ...]:
    walk, f, timed = data

    def logarithm(z: Array) -> Array:
        lag = 0.9 * t if timed else t  # a source may be singular at the start
        end = walk.path(t, x, lag, walk.scale_noise(z))
        value = f(t - lag, end.place) if timed else f(end.place)
        return jnp.log(jnp.abs(value)) + jnp.log(end.weight)

    unit = noise / jnp.linalg.norm(noise)
    for r in (6.0, 12.0, 18.0):
        slope = jax.grad(logarithm)(r * unit)
        size = jnp.linalg.norm(slope)
        unit = jnp.where(jnp.isfinite(size) & (size > 0), slope / size, unit)
    return tuple(logarithm(r * unit) for r in _RADII)


def doubt(
    problem: CanonicalProblem,
    met: Met,
    by_samples: bool,
    rng: np.random.Generator,
    ctx: ExecutionContext,
    rare: float = _RARE,
) -> Doubt | None:
    """Why the samples that were met do not tell the answer; None where they do."""
    return unmet(problem, met, rare) or grows(problem, met, by_samples, rng, ctx)
