"""Unbiased samples of derivatives of the error, or of u, at one point x (dim,).

Where ũ is smooth, the residual form is differentiated. Elsewhere weights take the place of
derivatives; also where features integrate kinks, for residuals near the initial time, which are
small but rough there. Batches of samples have the shape (n, dim) for gradients and (n, 1) for
second derivatives along the curve x + εw + ½ε²c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from heatnets.certify.error_equation import residual_samples
from heatnets.certify.evaluator import NetworkEvaluator
from heatnets.certify.path_sampling import (
    SampleBatch,
    batches,
    evaluate_pairs,
    noise_size,
    opposite,
)
from heatnets.fit.collocation import time_fractions
from heatnets.pde.paths import PathSimulator

# Where features integrate kinks, paths longer than this part of t get weights.
_WEIGHED = 0.1

Curve = tuple[np.ndarray, np.ndarray]  # first and second derivative (w, c) of a curve, (dim,) each


class _SmoothFunction(NamedTuple):
    """A function of n points (s, y), its gradient, and its second derivative along curves."""

    value: Callable[..., np.ndarray]
    gradient: Callable[..., np.ndarray]
    second_derivative: Callable[..., np.ndarray]


def residual_gradients(
    u: NetworkEvaluator, t: float, x: np.ndarray, pairs: int, rng: Any
) -> Iterator[SampleBatch]:
    """Antithetic pairs of ∇e0(X_t) + t ∇R(rt, X_{(1-r)t}) / density(r).

    The alternative, a likelihood weight R ξ/σ in place of ∇R, has about d times the variance: each
    component then carries the noise of all.
    """
    weighted = u.error_problem.has_path_weights

    def pull_back(
        f: _SmoothFunction, level: PathSimulator, time: np.ndarray, lag: np.ndarray, noise: Any
    ) -> np.ndarray:
        """Gradients in x of weight · f at the ends of paths, (n, dim)."""
        ends = level.simulate(time, x, lag, noise)
        weight = np.broadcast_to(np.asarray(ends.weight), time.shape)[:, None]
        by_position = weight * f.gradient(time - lag, ends.position)
        by_weight = f.value(time - lag, ends.position) if weighted else np.zeros(len(time))
        return level.vjp(time, x, lag, noise, by_position, by_weight)

    def weigh(plus: np.ndarray, minus: np.ndarray, p: np.ndarray, s: np.ndarray) -> np.ndarray:
        return (0.25 * (plus - minus) / s)[:, None] * u.error_problem.diffusion.solve(p)

    return _differentiated_residual_form(u, (t, x), pairs, rng, pull_back, weigh, width=4)


def residual_curvatures(
    u: NetworkEvaluator, t: float, x: np.ndarray, pairs: int, rng: Any, curve: Curve
) -> Iterator[SampleBatch]:
    """Antithetic pairs of second derivatives of the residual form along a curve."""
    weighted = u.error_problem.has_path_weights

    def differentiate(
        f: _SmoothFunction, level: PathSimulator, time: np.ndarray, lag: np.ndarray, noise: Any
    ) -> np.ndarray:
        """Second derivatives of weight · f at the ends of paths, (n, 1)."""
        w, c = (np.broadcast_to(v, (len(time), len(x))) for v in curve)
        ends, first, second = level.second_tangent(
            time, np.broadcast_to(x, w.shape), lag, noise, w, c
        )
        s, y = time - lag, ends.position
        samples = ends.weight * f.second_derivative(s, y, first.position, second.position)
        if weighted:  # the weights depend on x, too: product rule
            along = np.sum(f.gradient(s, y) * first.position, axis=1)
            samples = samples + 2 * first.weight * along + second.weight * f.value(s, y)
        return samples[:, None]

    weigh = curvature_weights(u, curve)
    return _differentiated_residual_form(
        u, (t, x), pairs, rng, differentiate, lambda *at: weigh(*at)[:, None], width=8
    )


def _differentiated_residual_form(
    u: NetworkEvaluator,
    point: tuple[float, np.ndarray],
    pairs: int,
    rng: Any,
    derivative: Callable[..., np.ndarray],
    weigh: Callable[..., np.ndarray],
    *,
    width: int,
) -> Iterator[SampleBatch]:
    """The residual form with derivatives (n, k) in place of the values of R and e0.

    Args:
        u: the network.
        point: (t, x).
        pairs: the number of antithetic pairs.
        rng: the random generator.
        derivative: maps a function and n paths (simulator, times, lags, noise) to an array (n, k).
        weigh: maps values of R at the points x ± p, both (n,), p (n, dim) and the lags (n,) to
            samples (n, k) with weights in place of derivatives.
        width: floats of one path, as a multiple of its noise.
    """
    problem, simulator, (t, x) = u.error_problem, u.error_problem.paths, point

    def mean(
        f: _SmoothFunction, simulator: PathSimulator, lag: np.ndarray, noise: np.ndarray
    ) -> list[np.ndarray]:
        """The mean over antithetic pairs, (n, k)."""
        n, lag = len(lag), np.tile(lag, 2)
        parts = derivative(f, simulator, np.full(2 * n, t), lag, np.concatenate([noise, -noise]))
        return [0.5 * (parts[:n] + parts[n:])]

    def mean_of_residual(
        simulator: PathSimulator, lag: np.ndarray, noise: np.ndarray
    ) -> list[np.ndarray]:
        """The same for R, with weights on all but short paths if features integrate kinks.

        R is small there, but its derivatives are not: they grow as the time falls.
        """
        is_early = lag > _WEIGHED * t
        if problem.preintegration is None or not np.any(is_early):
            return mean(residual, simulator, lag, noise)
        s = lag[is_early]
        p = np.sqrt(2 * s)[:, None] * noise[is_early]  # of constant coefficients: Sξ
        ((plus, minus),) = evaluate_pairs(residual.value, t - s, x + opposite(p))
        early = weigh(plus, minus, p, s)
        result = np.empty((len(lag), early.shape[1]))
        result[is_early] = early
        if not np.all(is_early):
            (result[~is_early],) = mean(residual, simulator, lag[~is_early], noise[~is_early])
        return [result]

    residual = _SmoothFunction(
        lambda s, y: u.residual(s, y)[0], u.residual_gradient, u.residual_second_derivative
    )
    initial = _SmoothFunction(u.initial, u.initial_gradient, u.initial_second_derivative)
    means: list[Callable[..., list[np.ndarray]]] = [mean_of_residual, partial(mean, initial)]
    for columns in batches(pairs, width * noise_size(problem)):
        n = columns.stop - columns.start
        r, density = time_fractions(rng, n)
        noise = simulator.sample_noise(rng, (n,), problem.dim)
        lags = (1 - r) * t, np.full(n, t)
        yield residual_samples(u, simulator, noise, (t / density)[:, None], lags, means)


def martingale_gradients(
    u: NetworkEvaluator, t: float, x: np.ndarray, pairs: int, rng: Any, steps: int
) -> Iterator[SampleBatch]:
    """Antithetic pairs of unbiased samples of ∇u(t, x) - ∇ũ(t, x).

    No derivative of the data is taken.

        ∇u = E[(u0(X_t) - Σ g·√2 SΔW) S⁻ᵀW_t/(√2 t) + Σ g h/t + Σ h F S⁻ᵀW_s/(√2 s)],
        g = ∇ũ at the left ends of the steps.

    The weight S⁻ᵀW_t/(√2 t) takes the place of a derivative. The term Σ g h/t adds again what this
    weight makes of the martingale, E[g·SΔW S⁻ᵀW_t] = E[g] h.
    """
    problem = u.error_problem
    diffusion, dim = problem.diffusion, problem.dim
    slope = u.gradient(np.array([t]), x[None])
    for columns in batches(pairs, 8 * dim):
        n = columns.stop - columns.start
        position, scalar = np.broadcast_to(x, (2, n, dim)), np.zeros((2, n))
        weighted, path = np.zeros((n, dim)), np.zeros((n, dim))
        for k in range(steps):
            time, next_time = (t * (1 - m / steps) ** 2 for m in (k, k + 1))
            h, fraction = time - next_time, rng.random(n)
            noise = diffusion.apply_sqrt(rng.standard_normal((2, n, dim)))
            # To a random time inside the step, where F is taken; and to its end.
            inner = np.sqrt(2 * fraction * h)[:, None] * noise[0]
            increment = inner + np.sqrt(2 * (1 - fraction) * h)[:, None] * noise[1]
            if problem.has_source:
                mid = time - fraction * h
                (force,) = evaluate_pairs(u.source, mid, position + opposite(inner))
                elapsed = t - time + fraction * h
                odd_force = h * 0.5 * (force[0] - force[1]) / (2 * elapsed)
                weighted += odd_force[:, None] * diffusion.solve(path + inner)
            gradient = np.broadcast_to(slope, position.shape)
            if k:
                (gradient,) = evaluate_pairs(u.gradient, np.full(n, time), position)
            scalar -= np.sum(gradient * opposite(increment), axis=-1)
            weighted += 0.5 * (gradient[0] + gradient[1]) * h / t
            position, path = position + opposite(increment), path + increment
        (initial,) = evaluate_pairs(u.initial, np.zeros(n), position)
        scalar += initial
        odd_part = 0.5 * (scalar[0] - scalar[1]) / (2 * t)
        yield SampleBatch(weighted + odd_part[:, None] * diffusion.solve(path) - slope)


def weighted_curvatures(
    u: NetworkEvaluator, t: float, x: np.ndarray, pairs: int, rng: Any, curve: Curve
) -> Iterator[SampleBatch]:
    """Antithetic pairs of unbiased samples of the second derivative of u along a curve.

    No derivative of the data is taken. With p = √(2s) Sξ the increment of a path over a time s,
    E[f(x + p)] has the derivatives

        E[f ((wᵀA⁻¹p)²/(2s) - wᵀA⁻¹w)/(2s)]   along w twice,
        E[f cᵀA⁻¹p/(2s)]                      along c.

    Both are zero for a constant f. So f is measured from its value at x, for u0 from ũ(t, x).
    """
    problem, weights = u.error_problem, curvature_weights(u, curve)
    diffusion, dim = problem.diffusion, problem.dim

    def weigh(f: Callable[..., np.ndarray], centre: Any, p: np.ndarray, s: Any) -> np.ndarray:
        """Weighted samples (n,) of f at the time t - s and the points x ± p, p (n, dim)."""
        time = np.broadcast_to(t - s, len(p))
        ((plus, minus),) = evaluate_pairs(f, time, x + opposite(p))
        return weights(plus - centre, minus - centre, p, s)

    (network_value,) = u.value(np.array([t]), x[None])[0]
    for columns in batches(pairs, 8 * dim):
        n = columns.stop - columns.start
        lag = t * (1 - rng.random(n))
        noise = diffusion.apply_sqrt(rng.standard_normal((2, n, dim)))
        samples = weigh(u.initial, network_value, np.sqrt(2 * t) * noise[0], t)
        if problem.has_source:
            centre = u.source(t - lag, np.broadcast_to(x, (n, dim)))
            q = np.sqrt(2 * lag)[:, None] * noise[1]
            samples = samples + t * weigh(u.source, centre, q, lag)
        yield SampleBatch(samples[:, None])


def curvature_weights(u: NetworkEvaluator, curve: Curve) -> Callable[..., np.ndarray]:
    """The function (f(x + p), f(x - p), p, s) ↦ samples (n,) of `weighted_curvatures`."""
    w, c = curve
    diffusion = u.error_problem.diffusion
    solved_w, solved_c = diffusion.solve(w), diffusion.solve(c)  # A⁻¹w, A⁻¹c
    size = float(w @ solved_w)

    def weigh(plus: np.ndarray, minus: np.ndarray, p: np.ndarray, s: Any) -> np.ndarray:
        even, odd = 0.5 * (plus + minus), 0.5 * (plus - minus)
        return (even * ((p @ solved_w) ** 2 / (2 * s) - size) + odd * (p @ solved_c)) / (2 * s)

    return weigh
