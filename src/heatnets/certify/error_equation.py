"""Unbiased samples of the error e = u - ũ of a network ũ, by the error equation.

    residual form     e(t, x) = E[e0(X_t)] + t E[R(rt, X_{(1-r)t})]
    martingale form   u(t, x) = E[u0(X_t) + ∫ F(t-s, X_s) ds - ∫ ∇ũ(t-s, X_s)·√2 S dW_s]
with the residual R = F - (∂_t - div A ∇)ũ and e0 = u0 - ũ(0, ·).
"""

# The error of a network solves the same PDE as u, with the residual R as its source: so samples of
# R estimate it without bias. X is the Brownian path X_s = x + √2 S W_s with A = S Sᵀ; where
# coefficients vary, it is simulated in steps (see `path_sampling`).
#
# The residual form needs ũ in C^{1,2}, and has a tiny variance because R is small. The martingale
# form holds for any ũ with a square-integrable gradient and for any step size, with left-point sums
# and F at random times inside the steps; its variance falls only with the number of steps.

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from heatnets._core import streams
from heatnets._core.precision import EPS
from heatnets._core.statistics import Pool
from heatnets.certify.evaluator import NetworkEvaluator
from heatnets.certify.importance_points import WeightedPoints
from heatnets.certify.path_sampling import (
    SampleBatch,
    Starts,
    antithetic_mean,
    chunks,
    evaluate_pairs,
    extrapolate,
    noise_size,
    simulate_pairs,
)
from heatnets.fit.collocation import sample_points, time_fractions
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.paths import PathSimulator

# From a random generator and the shape of an array of paths to their noise and likelihood ratios.
DrawNoise = Callable[[Any, tuple[int, ...]], tuple[np.ndarray, np.ndarray]]


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
    ratio: Any  # likelihood ratio of the noise, (P, S), a factor of `weight`; 1 if not stretched
    importance: np.ndarray  # weights of the points in means over the region
    pool: Pool


def paths(
    problem: CanonicalProblem,
    points: int,
    samples: int,
    seed: int,
    stream: str,
    *,
    chosen: WeightedPoints | None = None,
    draw_noise: DrawNoise | None = None,
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
        draw_noise: maps a generator and the shape (P, S) to the noise of paths and its likelihood
            ratios; by default the noise is ordinary.
    """
    rng = streams.generator(seed, stream)
    if chosen is None:
        t, x = sample_points(problem, points, rng)
        chosen = WeightedPoints(t, x, np.ones(points), 0)
    r, density = time_fractions(rng, (points, samples))
    start, simulator = chosen.t[:, None], problem.paths
    ratio: Any = 1.0
    if draw_noise is None:
        noise = simulator.sample_noise(rng, (points, samples), problem.dim)
    else:
        noise, ratio = draw_noise(rng, (points, samples))
    ends = simulator.simulate(start, chosen.x[:, None], (1 - r) * start, noise)
    return ValidationSamples(
        chosen.t,
        chosen.x,
        r * start,
        ends.position,
        ratio * ends.weight * start / density,
        ends.weight,
        ratio,
        chosen.weight,
        chosen.statistics,
    )


class CorrectionSamples:
    """Independent samples of the error u - ũ, in antithetic pairs.

    Attributes:
        corrections: samples, (points, pairs).
        rounding: bound for the rounding error of their mean, (points,).
        spread: standard deviation of the values along paths, (points,).
        steps: where paths are simulated in steps, the change of each sample when their number is
            halved, and when it is halved again, (points, pairs, 2); zeros elsewhere.
    """

    def __init__(self, points: int, pairs: int, rounding: np.ndarray | None = None) -> None:
        self.corrections, self.steps = np.empty((points, pairs)), np.zeros((points, pairs, 2))
        self.rounding = np.zeros(points) if rounding is None else rounding
        self.spread = np.zeros(points)

    def put(self, index: tuple[slice, slice], batch: SampleBatch) -> None:
        """Store the samples of some points and pairs."""
        self.corrections[index] = batch.samples
        if batch.steps is not None:
            self.steps[index] = batch.steps


def residual_form(
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    pairs: int,
    rngs: list[Any],
    residual: Callable[..., Any] | None = None,
) -> CorrectionSamples:
    """Antithetic pairs of e0(X_t) + t R(rt, X_{(1-r)t}) / density(r), r from `time_fractions`.

    Points t (n,), x (n, dim), with one random generator for each. `residual` takes the place of
    `u.residual`.
    """
    problem = u.error_problem
    simulator, result = problem.paths, CorrectionSamples(len(t), pairs)
    for rows, columns in chunks(len(t), pairs, 2 * noise_size(problem)):
        n, starts = columns.stop - columns.start, Starts(t[rows, None], x[rows, None, :])
        draws = [
            (*time_fractions(rng, n), simulator.sample_noise(rng, (n,), problem.dim))
            for rng in rngs[rows]
        ]
        r, density, noise = (np.stack(parts) for parts in zip(*draws, strict=True))
        weight = starts.t / density
        means = [
            partial(antithetic_mean, f, starts=starts) for f in (residual or u.residual, u.initial)
        ]
        batch = residual_samples(u, simulator, noise, weight, ((1 - r) * starts.t, starts.t), means)
        result.put((rows, columns), batch)
        result.rounding[rows] += EPS * np.sum(weight * batch.sizes[0], axis=1) / pairs
    return result


def residual_samples(
    u: NetworkEvaluator,
    simulator: PathSimulator,
    noise: np.ndarray,
    weight: np.ndarray,
    lags: tuple[Any, Any],
    means: Sequence[Callable[..., list[np.ndarray]]],
) -> SampleBatch:
    """weight · E[R] on paths of the first lag + E[e0] on paths of the second, with the same noise.

    `means` are the antithetic means over paths of functionals of R and of u0.
    """

    def sample(level: PathSimulator, level_noise: np.ndarray) -> tuple[np.ndarray, Any]:
        value, *sizes = means[0](simulator=level, lag=lags[0], noise=level_noise)
        value = weight * value
        if u.initial_defect:
            (e0,) = means[1](simulator=level, lag=lags[1], noise=level_noise)
            value = value + u.initial_defect * e0
        return value, sizes

    return extrapolate(simulator, noise, sample)


def single_samples(
    u: NetworkEvaluator, t: np.ndarray, x: np.ndarray, rng: Any, draw_noise: DrawNoise | None = None
) -> np.ndarray:
    """One sample of the residual form at each point t (n,), x (n, dim), on the finest paths.

    `draw_noise` is that of `paths`, for the shape (n,).
    """
    simulator = u.error_problem.paths
    r, density = time_fractions(rng, len(t))
    ratio: Any = 1.0
    if draw_noise is None:
        noise = simulator.sample_noise(rng, (len(t),), u.error_problem.dim)
    else:
        noise, ratio = draw_noise(rng, (len(t),))
    inside = simulator.simulate(t, x, (1 - r) * t, noise)
    samples = t / density * inside.weight * u.residual(r * t, inside.position)[0]
    if u.initial_defect:
        ends = simulator.simulate(t, x, t, noise)
        samples = samples + u.initial_defect * ends.weight * u.initial(0 * t, ends.position)
    return ratio * samples


class MartingaleForm(NamedTuple):
    """A variant of the martingale form.

    Attributes:
        steps: of the martingale term; with 0 there is none: plain Monte Carlo.
        less_initial: whether u0(X_t) is subtracted from the samples, whose mean is known otherwise.
    """

    steps: int
    less_initial: bool = False


MONTE_CARLO = MartingaleForm(0)


def martingale_form(
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    pairs: int,
    rngs: list[Any],
    form: MartingaleForm,
) -> CorrectionSamples:
    """Antithetic pairs of w u0(X_t) + Σ w h F(random time) - Σ w ∇ũ·√2 SΔW, minus ũ(t, x).

    Points t (n,), x (n, dim), with one random generator for each. The steps get shorter towards the
    initial time; w are the weights of the paths so far.
    """
    problem, moves = u.error_problem, max(form.steps, 1)
    value, terms = u.value(t, x)
    slope = u.gradient(t, x) if form.steps else None
    simulator = problem.paths.split_into(2 * moves)
    result = CorrectionSamples(len(t), pairs, EPS * terms)
    for rows, columns in chunks(len(t), pairs, 4 * noise_size(problem)):
        n = columns.stop - columns.start
        draws = [
            [
                (rng.random(n), simulator.sample_noise(rng, (2, n), problem.dim))
                for rng in rngs[rows]
            ]
            for _ in range(moves)
        ]
        fraction, noise = (
            np.stack([np.stack([draw[k] for draw in move]) for move in draws]) for k in (0, 1)
        )
        sample = partial(
            _martingale_samples,
            u=u,
            starts=Starts(t[rows, None], x[rows, None, :]),
            value=value[rows, None],
            slope=None if slope is None else slope[rows, None, :],
            fraction=fraction,
            less_initial=form.less_initial,
        )
        batch = extrapolate(simulator, noise, sample)
        result.put((rows, columns), batch)
        result.spread[rows] = np.maximum(result.spread[rows], batch.sizes)
    return result


def _martingale_samples(
    level: PathSimulator,
    noise: np.ndarray,
    *,
    u: NetworkEvaluator,
    starts: Starts,
    value: np.ndarray,
    slope: np.ndarray | None,
    fraction: np.ndarray,
    less_initial: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Samples of the martingale form (points, pairs), and the spread of values along paths.

    Args:
        level: simulator of the paths.
        noise: of the two parts of each step, (moves, points, 2, pairs, ...).
        u: the network and the data.
        starts: t (points, 1), x (points, 1, dim).
        value: ũ at the starts, (points, 1).
        slope: ∇ũ at the starts, (points, 1, dim); None for plain Monte Carlo.
        fraction: of each step at which F is taken, (moves, points, pairs).
        less_initial: whether u0 at the ends of the paths is subtracted.
    """
    moves, *shape = fraction.shape
    position = np.broadcast_to(starts.x, (2, *shape, starts.x.shape[-1]))
    total, martingale = np.zeros((2, *shape)), np.zeros((2, *shape))
    weight: Any = 1.0
    for k in range(moves):
        time, next_time = (starts.t * (1 - m / moves) ** 2 for m in (k, k + 1))
        h = time - next_time
        # Each step has two parts: to a random time inside it, where F is taken, and the rest.
        lags = fraction[k] * h, (1 - fraction[k]) * h
        mid = time - lags[0]
        inner = simulate_pairs(level, time, position, lags[0], noise[k][:, 0])
        outer = simulate_pairs(level, mid, inner.position, lags[1], noise[k][:, 1])
        if u.error_problem.has_source:
            (force,) = evaluate_pairs(u.source, mid, inner.position)
            total += weight * inner.weight * h * force
        if slope is not None:
            gradient = slope
            if k:
                (gradient,) = evaluate_pairs(u.gradient, np.broadcast_to(time, shape), position)
            push = inner.martingale + outer.martingale
            martingale += weight * np.sum(gradient * push, axis=-1)
        position, weight = outer.position, weight * inner.weight * outer.weight
    factor = weight - 1.0 if less_initial else weight
    if np.any(factor):
        (initial,) = evaluate_pairs(u.initial, np.zeros(shape), position)
        total += factor * initial
    return (total - martingale).mean(axis=0) - value, total.std(axis=(0, 2))
