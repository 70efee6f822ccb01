"""The error equation: the error of a fit obeys the same PDE as the solution, so samples of its residual estimate it without bias.

    residual form     u(t, x) - ũ(t, x) = E[e0(X_t)] + t E[R(rt, X_{(1-r)t})],   R = F - (∂_t - div A ∇)ũ,  e0 = u0 - ũ(0, ·)
    martingale form   u(t, x) = E[u0(X_t) + ∫ F(t-s, X_s) ds - ∫ ∇ũ(t-s, X_s)·√2 S dW_s]

with X the Brownian path X_s = x + √2 S W_s, A = S Sᵀ. Where coefficients vary, X moves in steps and carries a weight exp(∫ c), and everything is done twice, with
steps half as many the second time: twice the one less the other is free of the steps' first-order bias. The first needs ũ in C^{1,2}, and has a tiny variance because R is small. The second holds for
any ũ with a square-integrable gradient, for any step size with left-point sums and F at random times inside the steps; its
variance falls only with the number of steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from heatnets._core import streams
from heatnets._core.precision import EPS
from heatnets._core.statistics import Pool
from heatnets.fit.collocation import judged, time_fractions
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.paths import PathEnd, PathSimulator

CHUNK = 2**23  # coordinates of sample points held at once


class ValidationSamples(NamedTuple):
    """Points (t, x) of the region, P of them, and samples (s, y) on paths from each, P x S, with the weight of R there."""

    t: np.ndarray
    x: np.ndarray
    s: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    grown: Any  # exp(∫ c) on the way, where coefficients vary; 1 elsewhere
    importance: np.ndarray  # of the points, in means over the region
    pool: Pool


def paths(
    problem: CanonicalProblem,
    points: int,
    samples: int,
    seed: int,
    stream: str,
    at: WeightedPoints | None = None,
) -> ValidationSamples:
    """Independent points of (0, T] x region (of t = T for a `Point`), or those given, and independent samples of the error equation there."""
    rng = streams.generator(seed, stream)
    if at is None:
        at = WeightedPoints(
            *judged(problem.region, problem.horizon, points, problem.dim, rng), np.ones(points), 0
        )
    r, density = time_fractions(rng, (points, samples))
    start, walk = at.t[:, None], problem.paths
    moved = walk.go(
        start, at.x[:, None], (1 - r) * start, walk.draw(rng, (points, samples), problem.dim)
    )
    return ValidationSamples(
        at.t,
        at.x,
        r * start,
        moved.place,
        moved.weight * start / density,
        moved.weight,
        at.weight,
        Pool(at.weight, at.pool),
    )


class WeightedPoints(NamedTuple):
    """Points (t, x) and weights: weighted means over them are means over (0, T] x region; and how many they were chosen from."""

    t: np.ndarray
    x: np.ndarray
    weight: np.ndarray
    pool: int


def important_points(
    t: np.ndarray, x: np.ndarray, importance: np.ndarray, count: int, rng: np.random.Generator
) -> WeightedPoints:
    """`count` of many random points, half of them drawn with probabilities that go with their importance: what is rare and large is met, and weighs little."""
    size = float(np.max(importance)) or 1.0
    squares = (importance / size) ** 2  # as errors count in a mean square
    chance = 0.5 / len(t) + 0.5 * squares / max(float(np.sum(squares)), 1e-300)
    chance /= np.sum(chance)
    chosen = rng.choice(len(t), count, p=chance)
    return WeightedPoints(t[chosen], x[chosen], 1 / (len(t) * chance[chosen]), len(t))


class NetworkEvaluator(NamedTuple):
    """What a certificate asks of a fit and of the data, at points (n,) and (n, dim)."""

    value: Callable[
        ..., tuple[np.ndarray, np.ndarray]
    ]  # ũ, and Σ |w_j φ_j|: what rounding goes with
    residual: Callable[..., tuple[np.ndarray, np.ndarray]]  # R, and the sum of its terms' sizes
    gradient: Callable[..., np.ndarray]
    initial: Callable[..., np.ndarray]
    source: Callable[..., np.ndarray]
    residual_gradient: Callable[..., np.ndarray]
    initial_gradient: Callable[..., np.ndarray]
    value_bend: Callable[
        ..., np.ndarray
    ]  # second derivatives along curves y + εw + ½ε²c: of ũ, of R, of u0
    residual_bend: Callable[..., np.ndarray]
    initial_bend: Callable[..., np.ndarray]
    start: float  # e0 = start · u0
    slope_cost: int = 1  # of a gradient of ũ, in evaluations of the data


Curve = tuple[
    np.ndarray, np.ndarray
]  # first and second derivative of a curve of places, (dim,) each


class CorrectionSamples(NamedTuple):
    """Independent corrections of ũ, one row of pairs per point; what rounding may have done to their mean; how far values on paths spread; and by how much
    steps half as many change each correction, and half of those again, where paths go in steps: (points, pairs, 2)."""

    corrections: np.ndarray
    rounding: np.ndarray
    spread: np.ndarray
    steps: np.ndarray


def residual_form(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    pairs: int,
    rngs: list[Any],
) -> CorrectionSamples:
    """Antithetic pairs of e0(X_t) + t R(rt, X_{(1-r)t}) / density(r), with r from `time_fractions`."""
    walk, dim = problem.paths, problem.dim
    out, steps, rounding = np.empty((len(t), pairs)), np.zeros((len(t), pairs, 2)), np.zeros(len(t))
    for some, first, last in _chunks(len(t), pairs, 2 * _width(problem)):
        n, here, there = last - first, t[some, None], x[some, None, :]
        drawn = [(*time_fractions(rng, n), walk.draw(rng, (n,), dim)) for rng in rngs[some]]
        r, density, noise = (np.stack(parts) for parts in zip(*drawn, strict=True))
        weight = here / density
        found: list[tuple[float, np.ndarray]] = []
        for factor, level, own in walk.levels(noise):
            R, terms = antithetic_mean(u.residual, level, here, there, (1 - r) * here, own)
            value = weight * R
            if not found:
                rounding[some] += EPS * np.sum(weight * terms, axis=1) / pairs
            if u.start:
                (e0,) = antithetic_mean(lambda s, y: (u.initial(y),), level, here, there, here, own)
                value = value + u.start * e0
            found.append((factor, value))
        out[some, first:last], steps[some, first:last] = combined(found)
    return CorrectionSamples(out, rounding, np.zeros(len(t)), steps)


def combined(found: list[tuple[float, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Levels of a walk, each times its factor, added; and how they differ, the finest two first, along a new last axis of two."""
    if len(found) == 1:
        return found[0][1], np.zeros((*found[0][1].shape, 2))
    values = [value for _, value in found]
    return sum(factor * value for factor, value in found if factor), np.stack(
        [a - b for a, b in itertools.pairwise(values)], axis=-1
    )  # type: ignore[return-value]


def allowance(steps: np.ndarray) -> Any:
    """What is allowed for steps, from the mean differences of the levels (..., 2): all that the last halving changed, or half of what the one before did."""
    return np.maximum(np.abs(steps[..., 0]), 0.5 * np.abs(steps[..., 1]))


def antithetic_mean(
    function: Callable[..., Any],
    walk: PathSimulator,
    t: np.ndarray,
    x: np.ndarray,
    lag: np.ndarray,
    noise: np.ndarray,
) -> list[np.ndarray]:
    """A function of points, weighted, averaged over the ends of paths with a noise and with its opposite."""
    ways = [walk.go(t, x, lag, sign * noise) for sign in (1.0, -1.0)]
    shape, dim = ways[0].place.shape[:-1], x.shape[-1]
    time = np.broadcast_to(t - lag, shape)
    found = function(
        np.tile(time.ravel(), 2), np.concatenate([way.place.reshape(-1, dim) for way in ways])
    )
    half = time.size
    return [
        0.5 * (ways[0].weight * f[:half].reshape(shape) + ways[1].weight * f[half:].reshape(shape))
        for f in found
    ]


def martingale_form(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    pairs: int,
    rngs: list[Any],
    steps: int,
) -> CorrectionSamples:
    """Antithetic pairs of u0(X_t) + Σ h F(random time) - Σ ∇ũ·√2 SΔW, less ũ(t, x): steps shorten towards the initial time."""
    dim = problem.dim
    out, change, spread = np.empty((len(t), pairs)), np.zeros((len(t), pairs, 2)), np.zeros(len(t))
    value, terms = u.value(t, x)
    slope = u.gradient(t, x) if steps else None
    moves = max(steps, 1)
    walk = problem.paths.over(2 * moves)
    for some, first, last in _chunks(len(t), pairs, 4 * _width(problem)):
        n, count = last - first, len(t[some])
        paths: list[_Path] = []
        for k in range(moves):
            to_go, after = (t[some, None] * (1 - m / moves) ** 2 for m in (k, k + 1))
            h = to_go - after
            drawn = [(rng.random(n), walk.draw(rng, (2, n), dim)) for rng in rngs[some]]
            fraction, noise = (np.stack(parts) for parts in zip(*drawn, strict=True))
            levels = list(zip(walk.levels(noise[:, 0]), walk.levels(noise[:, 1]), strict=True))
            paths = paths or [
                _Path(factor, x[some, None, :], (2, count, n, dim)) for (factor, _, _), _ in levels
            ]
            for path, ((_, level, inside), (_, _, rest)) in zip(paths, levels, strict=True):
                way, mid = path.place, to_go - fraction * h
                one = [
                    level.go(to_go, way[i], fraction * h, sign * inside)
                    for i, sign in enumerate((1.0, -1.0))
                ]
                two = [
                    level.go(mid, one[i].place, (1 - fraction) * h, sign * rest)
                    for i, sign in enumerate((1.0, -1.0))
                ]
                if problem.has_source:
                    there = np.stack([m.place for m in one])
                    path.total += path.weight * _weights(one) * h * _at(u.source, mid, there)
                if slope is not None:
                    here = (
                        slope[some, None, :]
                        if k == 0
                        else _at(u.gradient, np.broadcast_to(to_go, (count, n)), way)
                    )
                    push = np.stack([a.push + b.push for a, b in zip(one, two, strict=True)])
                    path.martingale += path.weight * np.sum(here * push, axis=-1)
                path.place = np.stack([m.place for m in two])
                path.weight = path.weight * _weights(one) * _weights(two)
        for path in paths:
            path.total += path.weight * _at(
                lambda s, y: u.initial(y), np.zeros((count, n)), path.place
            )
        found = [
            (path.factor, (path.total - path.martingale).mean(axis=0) - value[some, None])
            for path in paths
        ]
        out[some, first:last], change[some, first:last] = combined(found)
        spread[some] = np.maximum(spread[some], paths[0].total.std(axis=(0, 2)))
    return CorrectionSamples(out, EPS * terms, spread, change)


class _Path:
    """Paths on their way, two ways from each point: where they are, their weights, what they have gathered."""

    def __init__(self, factor: float, x: np.ndarray, shape: tuple[int, ...]) -> None:
        self.factor, self.place = factor, np.broadcast_to(x, shape)
        self.weight: Any = 1.0
        self.total, self.martingale = np.zeros(shape[:-1]), np.zeros(shape[:-1])


def _weights(ways: list[PathEnd]) -> Any:
    return 1.0 if isinstance(ways[0].weight, float) else np.stack([way.weight for way in ways])


def residual_gradients(
    problem: CanonicalProblem, u: NetworkEvaluator, t: float, x: np.ndarray, pairs: int, rng: Any
) -> Iterator[SampleBatch]:
    """Antithetic pairs of ∇e0(X_t) + t ∇R(rt, X_{(1-r)t}) / density(r) at one point, as pieces (n, dim): the residual form, differentiated.

    The other way, a likelihood weight R ξ/σ in place of ∇R, has about d times the variance: each component then carries the noise of all.
    """

    def slopes(
        value: Callable[..., np.ndarray], slope: Callable[..., np.ndarray], way: _PathArgs
    ) -> np.ndarray:
        level, time, lag, noise = way
        moved = level.go(time, x, lag, noise)
        pulled = np.broadcast_to(np.asarray(moved.weight), time.shape)[:, None] * slope(
            time - lag, moved.place
        )
        by_weight = value(time - lag, moved.place) if reacts(problem) else np.zeros(len(time))
        return level.pull(time, x, lag, noise, pulled, by_weight)

    def residual(way: _PathArgs) -> np.ndarray:
        return slopes(lambda s, y: u.residual(s, y)[0], u.residual_gradient, way)

    def start(way: _PathArgs) -> np.ndarray:
        return slopes(lambda s, y: u.initial(y), lambda s, y: u.initial_gradient(y), way)

    yield from _paired(problem, u, t, pairs, rng, residual, start, 4)


_PathArgs = tuple[
    PathSimulator, np.ndarray, np.ndarray, np.ndarray
]  # of paths: walk, time, lag and noise


def _paired(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: float,
    pairs: int,
    rng: Any,
    residual: Callable[[_PathArgs], np.ndarray],
    start: Callable[[_PathArgs], np.ndarray],
    floats: int,
) -> Iterator[SampleBatch]:
    """The residual form at one point with something else than values of R and e0: means over both ways, (n, k), weighted and added over levels."""
    walk, dim = problem.paths, problem.dim
    for n in _pieces(pairs, floats * _width(problem)):
        r, density = time_fractions(rng, n)
        noise, time = walk.draw(rng, (n,), dim), np.full(2 * n, t)
        found = []
        for factor, level, own in walk.levels(noise):
            both = np.concatenate([own, -own])
            parts = residual((level, time, np.tile((1 - r) * t, 2), both))
            total = (t / density)[:, None] * 0.5 * (parts[:n] + parts[n:])
            if u.start:
                parts = start((level, time, time, both))
                total = total + u.start * 0.5 * (parts[:n] + parts[n:])
            found.append((factor, total))
        yield SampleBatch(*combined(found))


class SampleBatch(NamedTuple):
    """Samples of a vector, (n, k), and by how much steps half as many change them, and half of those again, (n, k, 2)."""

    samples: np.ndarray
    steps: np.ndarray | None = None


def martingale_gradients(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: float,
    x: np.ndarray,
    pairs: int,
    rng: Any,
    steps: int,
) -> Iterator[SampleBatch]:
    """Antithetic pairs of an unbiased sample of ∇u(t, x) at one point, less ∇ũ(t, x), as pieces (n, dim): no derivative of the data is taken.

    ∇u = E[(u0(X_t) - Σ g·√2 SΔW) S⁻ᵀW_t/(√2 t) + Σ g h/t + Σ h F S⁻ᵀW_s/(√2 s)], g = ∇ũ at the left ends: the weight S⁻ᵀW_t/(√2 t) in place of a
    derivative, and what it makes of the martingale, E[g·SΔW S⁻ᵀW_t] = E[g] h, given back.
    """
    diffusion, dim = problem.diffusion, problem.dim
    slope = u.gradient(np.array([t]), x[None])
    for n in _pieces(pairs, 8 * dim):
        place = np.broadcast_to(x, (2, 1, n, dim))
        scalar, weighted, path = np.zeros((2, 1, n)), np.zeros((n, dim)), np.zeros((n, dim))
        for k in range(steps):
            to_go, after = (t * (1 - m / steps) ** 2 for m in (k, k + 1))
            h, fraction, noise = (
                to_go - after,
                rng.random(n),
                diffusion.apply_sqrt(rng.standard_normal((2, n, dim))),
            )
            inside = np.sqrt(2 * fraction * h)[:, None] * noise[0]
            whole = inside + np.sqrt(2 * (1 - fraction) * h)[:, None] * noise[1]
            if problem.has_source:
                force = _at(
                    u.source,
                    (to_go - fraction * h)[None],
                    place + np.stack([inside, -inside])[:, None],
                )[:, 0]
                gone = t - to_go + fraction * h
                weighted += (h * 0.5 * (force[0] - force[1]) / (2 * gone))[
                    :, None
                ] * diffusion.solve(path + inside)
            here = (
                np.broadcast_to(slope, (2, 1, n, dim))
                if k == 0
                else _at(u.gradient, np.full((1, n), to_go), place)
            )
            move = np.stack([whole, -whole])[:, None]
            scalar -= np.sum(here * move, axis=-1)
            weighted += 0.5 * (here[0, 0] + here[1, 0]) * h / t
            place, path = place + move, path + whole
        scalar += _at(lambda s, y: u.initial(y), np.zeros((1, n)), place)
        yield SampleBatch(
            weighted
            + (0.5 * (scalar[0, 0] - scalar[1, 0]) / (2 * t))[:, None] * diffusion.solve(path)
            - slope
        )


def residual_bends(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: float,
    x: np.ndarray,
    curve: Curve,
    pairs: int,
    rng: Any,
) -> Iterator[SampleBatch]:
    """Antithetic pairs of the second derivative of the residual form along a curve x + εw + ½ε²c, as pieces (n, 1)."""

    def bends(
        value: Callable[..., np.ndarray],
        slope: Callable[..., np.ndarray],
        bend: Callable[..., np.ndarray],
        way: _PathArgs,
    ) -> np.ndarray:
        level, time, lag, noise = way
        w, c = (np.broadcast_to(v, (len(time), len(x))) for v in curve)
        moved, first, second = level.curve(time, np.broadcast_to(x, w.shape), lag, noise, w, c)
        s = time - lag
        found = moved.weight * bend(s, moved.place, first.place, second.place)
        if reacts(problem):  # weights bend, too
            along = np.sum(slope(s, moved.place) * first.place, axis=1)
            found = found + 2 * first.weight * along + second.weight * value(s, moved.place)
        return found[:, None]

    def residual(way: _PathArgs) -> np.ndarray:
        return bends(lambda s, y: u.residual(s, y)[0], u.residual_gradient, u.residual_bend, way)

    def start(way: _PathArgs) -> np.ndarray:
        gradient, bend = u.initial_gradient, u.initial_bend
        return bends(
            lambda s, y: u.initial(y),
            lambda s, y: gradient(y),
            lambda s, y, w, c: bend(y, w, c),
            way,
        )

    yield from _paired(problem, u, t, pairs, rng, residual, start, 8)


def weighted_bends(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: float,
    x: np.ndarray,
    curve: Curve,
    pairs: int,
    rng: Any,
) -> Iterator[SampleBatch]:
    """Antithetic pairs of an unbiased sample of the second derivative of u along a curve x + εw + ½ε²c, as pieces (n, 1): no derivative of the data.

    With p = √(2s) Sξ the way a path has gone in a time s, E[f(x + p)] has the derivatives E[f ((wᵀA⁻¹p)²/(2s) - wᵀA⁻¹w)/(2s)] along w twice and
    E[f cᵀA⁻¹p/(2s)] along c. Constants have none, so f is measured from its value at x, where the network's is near.
    """
    diffusion, dim = problem.diffusion, problem.dim
    w, c = curve
    bent, pulled = diffusion.solve(w), diffusion.solve(c)
    size = float(w @ bent)

    def weigh(f: np.ndarray, centre: Any, p: np.ndarray, s: Any) -> np.ndarray:
        even, odd = 0.5 * (f[0] + f[1]) - centre, 0.5 * (f[0] - f[1])
        return (even * ((p @ bent) ** 2 / (2 * s) - size) + odd * (p @ pulled)) / (2 * s)

    (level,) = u.value(np.array([t]), x[None])[0]
    for n in _pieces(pairs, 8 * dim):
        lag = t * (1 - rng.random(n))
        noise = diffusion.apply_sqrt(rng.standard_normal((2, n, dim)))
        p = np.sqrt(2 * t) * noise[0]
        found = weigh(
            _at(lambda s, y: u.initial(y), np.zeros((1, n)), x + np.stack([p, -p])[:, None])[:, 0],
            level,
            p,
            t,
        )
        if problem.has_source:
            q = np.sqrt(2 * lag)[:, None] * noise[1]
            force = _at(u.source, (t - lag)[None], x + np.stack([q, -q])[:, None])[:, 0]
            found = found + t * weigh(
                force, u.source(t - lag, np.broadcast_to(x, (n, dim))), q, lag
            )
        yield SampleBatch(found[:, None])


def reacts(problem: CanonicalProblem) -> bool:
    """Whether paths carry weights that differ."""
    return problem.coefficients is not None and callable(problem.coefficients.reaction)


def _width(problem: CanonicalProblem) -> int:
    """Numbers of the noise of one path."""
    return int(np.prod(problem.paths.normals(problem.dim)))


def _pieces(pairs: int, width: int) -> list[int]:
    most = max(1, CHUNK // width)
    return [min(most, pairs - a) for a in range(0, pairs, most)]


def _at(function: Callable[..., Any], t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A function of points at places (2, points, pairs, dim), times the same for both ways."""
    found = function(np.tile(t.ravel(), 2), x.reshape(-1, x.shape[-1]))
    return found.reshape(*x.shape[:-1], *found.shape[1:])


def _chunks(points: int, pairs: int, width: int) -> list[tuple[slice, int, int]]:
    """(points, first pair, last pair) so that no more than `CHUNK` coordinates are held."""
    most = max(1, CHUNK // width)
    together = max(1, most // pairs)
    return [
        (slice(i, min(i + together, points)), a, min(a + most, pairs))
        for i in range(0, points, together)
        for a in range(0, pairs, most)
    ]
