"""Unbiased samples of the error e = u - ũ of a network ũ, by the error equation.

    residual form     e(t, x) = E[e0(X_t)] + t E[R(rt, X_{(1-r)t})]
    martingale form   u(t, x) = E[u0(X_t) + ∫ F(t-s, X_s) ds - ∫ ∇ũ(t-s, X_s)·√2 S dW_s]
with the residual R = F - (∂_t - div A ∇)ũ and e0 = u0 - ũ(0, ·).
"""

# The error of a network solves the same PDE as u, with the residual R as its source: so samples of
# R estimate it without bias. X is the Brownian path X_s = x + √2 S W_s with A = S Sᵀ.
#
# Where coefficients vary, X is simulated in steps and carries a weight exp(∫ c). Every sample is
# then computed twice on the same path, the second time with half as many steps: twice the first
# minus the second is free of the first-order bias of the steps (Richardson extrapolation). A third
# level, with a quarter of the steps, only checks the order; see `PathSimulator.levels`.
#
# The residual form needs ũ in C^{1,2}, and has a tiny variance because R is small. The martingale
# form holds for any ũ with a square-integrable gradient and for any step size, with left-point sums
# and F at random times inside the steps; its variance falls only with the number of steps.

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from heatnets._core import streams
from heatnets._core.precision import EPS
from heatnets._core.statistics import Pool
from heatnets.fit.collocation import sample_points, time_fractions
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.paths import PathEnd, PathSimulator

CHUNK = 2**23  # coordinates of sample points held in memory at once


class ValidationSamples(NamedTuple):
    """P points (t, x) of the region, and S samples (s, y) of the error equation from each.

    Shapes: t (P,), x (P, dim), s (P, S), y (P, S, dim), weight (P, S), importance (P,).
    """

    t: np.ndarray
    x: np.ndarray
    s: np.ndarray
    y: np.ndarray
    weight: np.ndarray  # factor of the residual R(s, y) in the sample
    grown: Any  # exp(∫ c) along the path, (P, S), where coefficients vary; 1 elsewhere
    importance: np.ndarray  # weights of the points in means over the region
    pool: Pool


def paths(
    problem: CanonicalProblem,
    points: int,
    samples: int,
    seed: int,
    stream: str,
    chosen: WeightedPoints | None = None,
) -> ValidationSamples:
    """Draw independent points of the region, and samples of the error equation at each.

    Args:
        problem: the canonical problem.
        points: the number P of points.
        samples: the number S of samples at each point.
        seed: seed of the random numbers.
        stream: name of their stream.
        chosen: the P points to use; by default random points of (0, T] x region (with t = T where
            the region is a `Point`).
    """
    rng = streams.generator(seed, stream)
    if chosen is None:
        t, x = sample_points(problem.region, problem.horizon, points, problem.dim, rng)
        chosen = WeightedPoints(t, x, np.ones(points), 0)
    r, density = time_fractions(rng, (points, samples))
    start, simulator = chosen.t[:, None], problem.paths
    noise = simulator.draw(rng, (points, samples), problem.dim)
    ends = simulator.simulate(start, chosen.x[:, None], (1 - r) * start, noise)
    return ValidationSamples(
        chosen.t,
        chosen.x,
        r * start,
        ends.position,
        ends.weight * start / density,
        ends.weight,
        chosen.weight,
        Pool(chosen.weight, chosen.pool),
    )


class WeightedPoints(NamedTuple):
    """P points t (P,), x (P, dim) with weights (P,), chosen from `pool` random points.

    Weighted means over the points estimate means over (0, T] x region. `pool` is 0 where the
    points themselves are random points of the region.
    """

    t: np.ndarray
    x: np.ndarray
    weight: np.ndarray
    pool: int


def important_points(
    t: np.ndarray, x: np.ndarray, importance: np.ndarray, count: int, rng: np.random.Generator
) -> WeightedPoints:
    """Importance sampling: choose `count` of n random points, t (n,), x (n, dim).

    Half of the probability is uniform, half is proportional to the square of the importance (n,).
    Points with rare large errors are then found, and get small weights.
    """
    size = float(np.max(importance)) or 1.0
    squares = (importance / size) ** 2  # as errors count in a mean square
    probability = 0.5 / len(t) + 0.5 * squares / max(float(np.sum(squares)), 1e-300)
    probability /= np.sum(probability)
    chosen = rng.choice(len(t), count, p=probability)
    return WeightedPoints(t[chosen], x[chosen], 1 / (len(t) * probability[chosen]), len(t))


class NetworkEvaluator(NamedTuple):
    """Functions of a network ũ and of the data, at points t (n,), x (n, dim).

    `gradient`, `residual_gradient` and `initial_gradient` return (n, dim), the others (n,). The
    `_bend` functions are second derivatives along the curves x + εw + ½ε²c with w, c of shape
    (n, dim): of ũ, of R and of u0.
    """

    value: Callable[..., tuple[np.ndarray, np.ndarray]]  # ũ, and Σ |w_j φ_j|: scale of rounding
    residual: Callable[..., tuple[np.ndarray, np.ndarray]]  # R, and the sum of |its terms|
    gradient: Callable[..., np.ndarray]
    initial: Callable[..., np.ndarray]
    source: Callable[..., np.ndarray]
    residual_gradient: Callable[..., np.ndarray]
    initial_gradient: Callable[..., np.ndarray]
    value_bend: Callable[..., np.ndarray]
    residual_bend: Callable[..., np.ndarray]
    initial_bend: Callable[..., np.ndarray]
    start: float  # the factor in e0 = start · u0
    slope_cost: int = 1  # cost of one gradient of ũ, in evaluations of the data


Curve = tuple[np.ndarray, np.ndarray]  # first and second derivative (w, c) of a curve, (dim,) each


class CorrectionSamples(NamedTuple):
    """Independent samples of the error u - ũ, in antithetic pairs.

    Attributes:
        corrections: samples, (points, pairs).
        rounding: bound for the rounding error of their mean, (points,).
        spread: standard deviation of the values along paths, (points,).
        steps: where paths are simulated in steps, the change of each sample when their number is
            halved, and when it is halved again, (points, pairs, 2); zeros elsewhere.
    """

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
    """Antithetic pairs of e0(X_t) + t R(rt, X_{(1-r)t}) / density(r), r from `time_fractions`.

    Points t (n,), x (n, dim), with one random generator for each.
    """
    simulator, dim = problem.paths, problem.dim
    corrections, steps = np.empty((len(t), pairs)), np.zeros((len(t), pairs, 2))
    rounding = np.zeros(len(t))
    for rows, first, last in _chunks(len(t), pairs, 2 * _noise_size(problem)):
        n, time, start = last - first, t[rows, None], x[rows, None, :]
        draws = [(*time_fractions(rng, n), simulator.draw(rng, (n,), dim)) for rng in rngs[rows]]
        r, density, noise = (np.stack(parts) for parts in zip(*draws, strict=True))
        weight = time / density
        levels: list[tuple[float, np.ndarray]] = []
        for factor, level, level_noise in simulator.richardson_levels(noise):
            R, terms = antithetic_mean(u.residual, level, time, start, (1 - r) * time, level_noise)
            value = weight * R
            if not levels:
                rounding[rows] += EPS * np.sum(weight * terms, axis=1) / pairs
            if u.start:
                (e0,) = antithetic_mean(
                    lambda s, y: (u.initial(y),), level, time, start, time, level_noise
                )
                value = value + u.start * e0
            levels.append((factor, value))
        corrections[rows, first:last], steps[rows, first:last] = richardson(levels)
    return CorrectionSamples(corrections, rounding, np.zeros(len(t)), steps)


def richardson(levels: list[tuple[float, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Richardson extrapolation over the levels of a path simulator, the finest level first.

    Args:
        levels: the factor of each level in the sum, and its values, (...).

    Returns:
        The sum of factor · values, (...), and the differences of neighbouring levels, (..., 2),
        that of the two finest first; zeros where there is only one level.
    """
    if len(levels) == 1:
        ((_, exact),) = levels
        return exact, np.zeros((*exact.shape, 2))
    values = [value for _, value in levels]
    total = sum(factor * value for factor, value in levels if factor)
    differences = np.stack([a - b for a, b in itertools.pairwise(values)], axis=-1)
    return total, differences  # type: ignore[return-value]


def step_bias_bound(steps: np.ndarray) -> Any:
    """Bound for the bias of paths in steps, from mean differences of the levels, (..., 2) -> (...).

    All that the last halving of the number of steps changed, or half of what the one before did.
    """
    return np.maximum(np.abs(steps[..., 0]), 0.5 * np.abs(steps[..., 1]))


def antithetic_mean(
    function: Callable[..., Any],
    simulator: PathSimulator,
    t: np.ndarray,
    x: np.ndarray,
    lag: np.ndarray,
    noise: np.ndarray,
) -> list[np.ndarray]:
    """Weighted mean of a function over the ends of two paths, with a noise and its opposite.

    Args:
        function: maps times (n,) and places (n, dim) to a tuple of arrays (n,).
        simulator: of the paths.
        t: start times, broadcast with `lag`.
        x: start places, (..., dim).
        lag: durations of the paths.
        noise: of the paths, as from `simulator.draw`.
    """
    ends = [simulator.simulate(t, x, lag, sign * noise) for sign in (1.0, -1.0)]
    shape, dim = ends[0].position.shape[:-1], x.shape[-1]
    time = np.broadcast_to(t - lag, shape)
    places = np.concatenate([end.position.reshape(-1, dim) for end in ends])
    results = function(np.tile(time.ravel(), 2), places)
    n = time.size
    return [
        0.5 * (ends[0].weight * f[:n].reshape(shape) + ends[1].weight * f[n:].reshape(shape))
        for f in results
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
    """Antithetic pairs of u0(X_t) + Σ h F(random time) - Σ ∇ũ·√2 SΔW, minus ũ(t, x).

    Points t (n,), x (n, dim), with one random generator for each. The steps get shorter towards the
    initial time. With `steps` = 0 there is no martingale term: plain Monte Carlo.
    """
    dim = problem.dim
    corrections, changes = np.empty((len(t), pairs)), np.zeros((len(t), pairs, 2))
    spread = np.zeros(len(t))
    value, terms = u.value(t, x)
    slope = u.gradient(t, x) if steps else None
    moves = max(steps, 1)
    simulator = problem.paths.split_into(2 * moves)
    signs = tuple(enumerate((1.0, -1.0)))
    for rows, first, last in _chunks(len(t), pairs, 4 * _noise_size(problem)):
        n, count = last - first, len(t[rows])
        states: list[_PathState] = []  # one for each level of the simulator
        for k in range(moves):
            time, next_time = (t[rows, None] * (1 - m / moves) ** 2 for m in (k, k + 1))
            h = time - next_time
            draws = [(rng.random(n), simulator.draw(rng, (2, n), dim)) for rng in rngs[rows]]
            fraction, noise = (np.stack(parts) for parts in zip(*draws, strict=True))
            # Each step has two parts: to a random time inside it, where F is taken, and the rest.
            levels = list(
                zip(
                    simulator.richardson_levels(noise[:, 0]),
                    simulator.richardson_levels(noise[:, 1]),
                    strict=True,
                )
            )
            states = states or [
                _PathState(factor, x[rows, None, :], (2, count, n, dim))
                for (factor, _, _), _ in levels
            ]
            for state, ((_, level, noise_in), (_, _, noise_rest)) in zip(
                states, levels, strict=True
            ):
                place, mid = state.position, time - fraction * h
                inner = [
                    level.simulate(time, place[i], fraction * h, sign * noise_in)
                    for i, sign in signs
                ]
                outer = [
                    level.simulate(mid, inner[i].position, (1 - fraction) * h, sign * noise_rest)
                    for i, sign in signs
                ]
                if problem.has_source:
                    force = _evaluate_pairs(
                        u.source, mid, np.stack([end.position for end in inner])
                    )
                    state.total += state.weight * _stack_weights(inner) * h * force
                if slope is not None:
                    gradient = (
                        slope[rows, None, :]
                        if k == 0
                        else _evaluate_pairs(u.gradient, np.broadcast_to(time, (count, n)), place)
                    )
                    push = np.stack(
                        [a.martingale + b.martingale for a, b in zip(inner, outer, strict=True)]
                    )
                    state.martingale += state.weight * np.sum(gradient * push, axis=-1)
                state.position = np.stack([end.position for end in outer])
                state.weight = state.weight * _stack_weights(inner) * _stack_weights(outer)
        for state in states:
            state.total += state.weight * _evaluate_pairs(
                lambda s, y: u.initial(y), np.zeros((count, n)), state.position
            )
        samples = [
            (state.factor, (state.total - state.martingale).mean(axis=0) - value[rows, None])
            for state in states
        ]
        corrections[rows, first:last], changes[rows, first:last] = richardson(samples)
        spread[rows] = np.maximum(spread[rows], states[0].total.std(axis=(0, 2)))
    return CorrectionSamples(corrections, EPS * terms, spread, changes)


class _PathState:
    """Antithetic pairs of paths between two steps: places, weights, and the two running sums.

    `place` has the shape (2, points, pairs, dim), the others (2, points, pairs).
    """

    def __init__(self, factor: float, x: np.ndarray, shape: tuple[int, ...]) -> None:
        self.factor, self.position = factor, np.broadcast_to(x, shape)
        self.weight: Any = 1.0
        self.total, self.martingale = np.zeros(shape[:-1]), np.zeros(shape[:-1])


def _stack_weights(ends: list[PathEnd]) -> Any:
    """The weights of both paths of a pair, (2, ...); 1 where paths carry none."""
    return 1.0 if isinstance(ends[0].weight, float) else np.stack([end.weight for end in ends])


def residual_gradients(
    problem: CanonicalProblem, u: NetworkEvaluator, t: float, x: np.ndarray, pairs: int, rng: Any
) -> Iterator[SampleBatch]:
    """Antithetic pairs of ∇e0(X_t) + t ∇R(rt, X_{(1-r)t}) / density(r) at one point x (dim,).

    The gradient of the residual form, in batches (n, dim). The alternative, a likelihood weight
    R ξ/σ in place of ∇R, has about d times the variance: each component then carries the noise of
    all.
    """

    def pull_back(
        value: Callable[..., np.ndarray], slope: Callable[..., np.ndarray], args: _PathArgs
    ) -> np.ndarray:
        """Gradients in x of weight · value at the ends of paths, (n, dim)."""
        level, time, lag, noise = args
        ends = level.simulate(time, x, lag, noise)
        weight = np.broadcast_to(np.asarray(ends.weight), time.shape)[:, None]
        by_place = weight * slope(time - lag, ends.position)
        by_weight = (
            value(time - lag, ends.position) if problem.has_path_weights else np.zeros(len(time))
        )
        return level.vjp(time, x, lag, noise, by_place, by_weight)

    def residual(args: _PathArgs) -> np.ndarray:
        return pull_back(lambda s, y: u.residual(s, y)[0], u.residual_gradient, args)

    def start(args: _PathArgs) -> np.ndarray:
        return pull_back(lambda s, y: u.initial(y), lambda s, y: u.initial_gradient(y), args)

    yield from _antithetic_batches(problem, u, t, pairs, rng, residual, start, 4)


# Simulator, start times (n,), lags (n,) and noise of n paths.
_PathArgs = tuple[PathSimulator, np.ndarray, np.ndarray, np.ndarray]


def _antithetic_batches(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: float,
    pairs: int,
    rng: Any,
    residual: Callable[[_PathArgs], np.ndarray],
    start: Callable[[_PathArgs], np.ndarray],
    floats: int,
) -> Iterator[SampleBatch]:
    """The residual form at one point, with derivatives in place of the values of R and e0.

    `residual` and `start` map n paths to arrays (n, k). Batches are means over antithetic pairs,
    extrapolated over the levels of the simulator, (n, k).
    """
    simulator, dim = problem.paths, problem.dim
    for n in _batch_sizes(pairs, floats * _noise_size(problem)):
        r, density = time_fractions(rng, n)
        noise, time = simulator.draw(rng, (n,), dim), np.full(2 * n, t)
        levels = []
        for factor, level, level_noise in simulator.richardson_levels(noise):
            pair_noise = np.concatenate([level_noise, -level_noise])
            parts = residual((level, time, np.tile((1 - r) * t, 2), pair_noise))
            total = (t / density)[:, None] * 0.5 * (parts[:n] + parts[n:])
            if u.start:
                parts = start((level, time, time, pair_noise))
                total = total + u.start * 0.5 * (parts[:n] + parts[n:])
            levels.append((factor, total))
        yield SampleBatch(*richardson(levels))


class SampleBatch(NamedTuple):
    """Samples of a vector, (n, k), and their changes when steps are halved once and twice.

    `steps` has the shape (n, k, 2); None where paths have no steps.
    """

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
    """Antithetic pairs of unbiased samples of ∇u(t, x) - ∇ũ(t, x) at one point x (dim,).

    No derivative of the data is taken. Batches have the shape (n, dim).

        ∇u = E[(u0(X_t) - Σ g·√2 SΔW) S⁻ᵀW_t/(√2 t) + Σ g h/t + Σ h F S⁻ᵀW_s/(√2 s)],
        g = ∇ũ at the left ends of the steps.

    The weight S⁻ᵀW_t/(√2 t) takes the place of a derivative. The term Σ g h/t adds again what this
    weight makes of the martingale, E[g·SΔW S⁻ᵀW_t] = E[g] h.
    """
    diffusion, dim = problem.diffusion, problem.dim
    slope = u.gradient(np.array([t]), x[None])
    for n in _batch_sizes(pairs, 8 * dim):
        place = np.broadcast_to(x, (2, 1, n, dim))
        scalar, weighted, path = np.zeros((2, 1, n)), np.zeros((n, dim)), np.zeros((n, dim))
        for k in range(steps):
            time, next_time = (t * (1 - m / steps) ** 2 for m in (k, k + 1))
            h, fraction = time - next_time, rng.random(n)
            noise = diffusion.apply_sqrt(rng.standard_normal((2, n, dim)))
            # To a random time inside the step, where F is taken; and to its end.
            inner = np.sqrt(2 * fraction * h)[:, None] * noise[0]
            increment = inner + np.sqrt(2 * (1 - fraction) * h)[:, None] * noise[1]
            if problem.has_source:
                mid = (time - fraction * h)[None]
                force = _evaluate_pairs(u.source, mid, place + np.stack([inner, -inner])[:, None])
                force = force[:, 0]
                elapsed = t - time + fraction * h
                odd_force = h * 0.5 * (force[0] - force[1]) / (2 * elapsed)
                weighted += odd_force[:, None] * diffusion.solve(path + inner)
            gradient = (
                np.broadcast_to(slope, (2, 1, n, dim))
                if k == 0
                else _evaluate_pairs(u.gradient, np.full((1, n), time), place)
            )
            move = np.stack([increment, -increment])[:, None]
            scalar -= np.sum(gradient * move, axis=-1)
            weighted += 0.5 * (gradient[0, 0] + gradient[1, 0]) * h / t
            place, path = place + move, path + increment
        scalar += _evaluate_pairs(lambda s, y: u.initial(y), np.zeros((1, n)), place)
        odd_part = 0.5 * (scalar[0, 0] - scalar[1, 0]) / (2 * t)
        yield SampleBatch(weighted + odd_part[:, None] * diffusion.solve(path) - slope)


def residual_curvatures(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: float,
    x: np.ndarray,
    curve: Curve,
    pairs: int,
    rng: Any,
) -> Iterator[SampleBatch]:
    """Antithetic pairs of second derivatives of the residual form along x + εw + ½ε²c, (n, 1)."""

    def differentiate(
        value: Callable[..., np.ndarray],
        slope: Callable[..., np.ndarray],
        bend: Callable[..., np.ndarray],
        args: _PathArgs,
    ) -> np.ndarray:
        """Second derivatives of weight · value at the ends of paths, (n, 1)."""
        level, time, lag, noise = args
        w, c = (np.broadcast_to(v, (len(time), len(x))) for v in curve)
        ends, first, second = level.curve(time, np.broadcast_to(x, w.shape), lag, noise, w, c)
        s = time - lag
        samples = ends.weight * bend(s, ends.position, first.position, second.position)
        if problem.has_path_weights:  # the weights depend on x, too: product rule
            along = np.sum(slope(s, ends.position) * first.position, axis=1)
            samples = samples + 2 * first.weight * along + second.weight * value(s, ends.position)
        return samples[:, None]

    def residual(args: _PathArgs) -> np.ndarray:
        return differentiate(
            lambda s, y: u.residual(s, y)[0], u.residual_gradient, u.residual_bend, args
        )

    def start(args: _PathArgs) -> np.ndarray:
        return differentiate(
            lambda s, y: u.initial(y),
            lambda s, y: u.initial_gradient(y),
            lambda s, y, w, c: u.initial_bend(y, w, c),
            args,
        )

    yield from _antithetic_batches(problem, u, t, pairs, rng, residual, start, 8)


def weighted_curvatures(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: float,
    x: np.ndarray,
    curve: Curve,
    pairs: int,
    rng: Any,
) -> Iterator[SampleBatch]:
    """Antithetic pairs of unbiased samples of the second derivative of u along x + εw + ½ε²c.

    No derivative of the data is taken. Batches have the shape (n, 1). With p = √(2s) Sξ the
    increment of a path over a time s, E[f(x + p)] has the derivatives

        E[f ((wᵀA⁻¹p)²/(2s) - wᵀA⁻¹w)/(2s)]   along w twice,
        E[f cᵀA⁻¹p/(2s)]                      along c.

    Both are zero for a constant f. So f is measured from its value at x, for u0 from ũ(t, x).
    """
    diffusion, dim = problem.diffusion, problem.dim
    w, c = curve
    solved_w, solved_c = diffusion.solve(w), diffusion.solve(c)  # A⁻¹w, A⁻¹c
    size = float(w @ solved_w)

    def weigh(f: np.ndarray, centre: Any, p: np.ndarray, s: Any) -> np.ndarray:
        """Weighted samples (n,) from values f (2, n) at x ± p, p (n, dim)."""
        even, odd = 0.5 * (f[0] + f[1]) - centre, 0.5 * (f[0] - f[1])
        return (even * ((p @ solved_w) ** 2 / (2 * s) - size) + odd * (p @ solved_c)) / (2 * s)

    (network_value,) = u.value(np.array([t]), x[None])[0]
    for n in _batch_sizes(pairs, 8 * dim):
        lag = t * (1 - rng.random(n))
        noise = diffusion.apply_sqrt(rng.standard_normal((2, n, dim)))
        p = np.sqrt(2 * t) * noise[0]
        ends = x + np.stack([p, -p])[:, None]
        initial = _evaluate_pairs(lambda s, y: u.initial(y), np.zeros((1, n)), ends)[:, 0]
        samples = weigh(initial, network_value, p, t)
        if problem.has_source:
            q = np.sqrt(2 * lag)[:, None] * noise[1]
            mids = x + np.stack([q, -q])[:, None]
            force = _evaluate_pairs(u.source, (t - lag)[None], mids)[:, 0]
            centre = u.source(t - lag, np.broadcast_to(x, (n, dim)))
            samples = samples + t * weigh(force, centre, q, lag)
        yield SampleBatch(samples[:, None])


def _noise_size(problem: CanonicalProblem) -> int:
    """The number of random numbers that one path takes."""
    return int(np.prod(problem.paths.noise_shape(problem.dim)))


def _batch_sizes(pairs: int, width: int) -> list[int]:
    """Split `pairs` samples of `width` numbers each so that a batch holds at most `CHUNK`."""
    most = max(1, CHUNK // width)
    return [min(most, pairs - first) for first in range(0, pairs, most)]


def _evaluate_pairs(function: Callable[..., Any], t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A function at places (2, points, pairs, dim); times t (points, pairs) serve both paths."""
    values = function(np.tile(t.ravel(), 2), x.reshape(-1, x.shape[-1]))
    return values.reshape(*x.shape[:-1], *values.shape[1:])


def _chunks(points: int, pairs: int, width: int) -> list[tuple[slice, int, int]]:
    """(points, first pair, last pair) such that at most `CHUNK` coordinates are held at once."""
    most = max(1, CHUNK // width)
    together = max(1, most // pairs)
    return [
        (slice(i, min(i + together, points)), first, min(first + most, pairs))
        for i in range(0, points, together)
        for first in range(0, pairs, most)
    ]
