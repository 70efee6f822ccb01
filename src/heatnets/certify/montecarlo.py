"""The two direct Monte Carlo estimators of u(t, x) in the paper, with standard errors.

`importance` draws normal increments of paths. `transformed` is for d <= 2: the same integrals after
a change of lag that removes the singularity of the kernel, with y and z uniform on [-A, A]^d and τ
uniform on 𝒟(t).
"""

# They use nothing of a network: an independent check of one. Samples are streamed in tiles.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array

from heatnets._core import streams
from heatnets._core.errors import (
    InputError,
    NumericalError,
    WarningLog,
    check_fraction,
    check_int,
    check_positive,
    short_repr,
)
from heatnets._core.execution import ExecutionContext, make_context
from heatnets._core.operations import count_operations
from heatnets._core.precision import with_x64
from heatnets._core.tiling import map_points, weighted_sum
from heatnets.features.equation import equation_values_only, to_jax
from heatnets.features.features import Equation
from heatnets.features.kernels import KernelSource, LagTransform
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.function_values import format_point
from heatnets.pde.paths import PathSimulator
from heatnets.pde.problem import Problem


@dataclass(frozen=True)
class Estimate:
    """A Monte Carlo estimate of u at one point, arrays of shape (), or at n points, (n,).

    Attributes:
        value: the mean of the samples.
        standard_error: its standard error.
        low: lower end of the confidence interval.
        high: upper end of the confidence interval.
        samples: the number of samples at each point.
        confidence: the confidence level of each interval.
        truncation_bias: a bound for the bias. For `transformed`, of cutting off short lags: the
            shortest lag times the mean |F| over shorter ones, itself sampled; it is not part of the
            interval. For `importance` where coefficients vary, of the steps of paths: the change
            with half as many steps (the mean is of twice the finer minus the coarser); it is part
            of the interval. Else zero.
    """

    value: np.ndarray
    standard_error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    samples: int
    confidence: float
    truncation_bias: np.ndarray

    def __str__(self) -> str:
        level = f"({100 * self.confidence:g} %, {self.samples} samples)"
        half = np.atleast_1d(self.high - self.low) / 2
        return "\n".join(
            f"{v:.8g} ± {h:.2g} {level}"
            for v, h in zip(np.atleast_1d(self.value), half, strict=True)
        )


@with_x64
def importance(
    problem: Problem,
    t: Any,
    x: Any,
    *,
    samples: int = 4096,
    confidence: float = 0.95,
    seed: int = 0,
    memory: int | None = None,
    device: Any = None,
    progress: Any = None,
) -> Estimate:
    """Estimate u(t, x) by importance sampling, with a standard error ~ samples^{-1/2}.

        u(t, x) = E[u0(x + √(2Dt) η)] + t E[F(rt, x + √(2D(1-r)t) ξ)],
        η, ξ ~ N(0, I), r ~ U(0, 1)

    The estimate is unbiased in any dimension, except for the steps of paths where coefficients
    vary.

    Args:
        problem: the problem; its source must not depend on u.
        t: one time (), or n times (n,).
        x: one point (dim,), or n points (n, dim).
        samples: random samples at each point.
        confidence: confidence level of the intervals.
        seed: seed of the random numbers.
        memory: bytes of memory that may be used; by default three quarters of what is free.
        device: "cpu", "gpu" or a `jax.Device`; by default the first device of JAX.
        progress: called as progress("samples", done, total).

    Returns:
        An `Estimate` with arrays of shape () for one point, (n,) for n points.

    >>> import heatnets as hn
    >>> problem = hn.problems.get("oscillating", dim=100)
    >>> estimate = hn.montecarlo.importance(problem, 0.5, [0.5] * 100)
    >>> bool(estimate.low < hn.exact_values(problem, 0.5, [0.5] * 100) < estimate.high)
    True
    """
    _check_problem(problem)
    request = _Request(samples, confidence, seed, make_context(device, memory, progress))
    return _estimate(problem, t, x, request)


class _Request(NamedTuple):
    """Options of an estimate.

    `terms` gives the sums over samples at one point; `extra` are further arrays for it: A and the
    shortest lag (relative to t) for `transformed`, nothing for `importance`.
    """

    samples: int
    confidence: float
    seed: Any
    ctx: ExecutionContext
    stream: str = "monte carlo"
    terms: Callable[..., Any] | None = None
    extra: tuple[Array, ...] = ()


def mild_samples(
    problem: CanonicalProblem,
    points: tuple[np.ndarray, np.ndarray],
    samples: int,
    seed: int,
    ctx: ExecutionContext,
    *,
    stream: str = "",
    paired: bool = False,
) -> Estimate:
    """Unbiased estimates of u for mild rows, at canonical points t (n,), x (n, dim).

    Samples are antithetic pairs if `paired`. Nothing else draws from their random stream.
    """
    terms = _paired_terms if paired else _importance_terms
    return _sample(
        problem, *points, _Request(samples, 0.95, seed, ctx, f"mild rows{stream}", terms)
    )


def count_pair_operations(problem: CanonicalProblem) -> int:
    """Count the operations of one antithetic pair of `mild_samples`."""
    equation, simulator = equation_values_only(problem), to_jax(problem.paths)
    pair = partial(_importance_sample, equation, simulator, signs=(1.0, -1.0))
    t, x = (jax.ShapeDtypeStruct(shape, jnp.float64) for shape in ((), (problem.dim,)))
    return count_operations(pair, jax.eval_shape(lambda: jax.random.key(0)), t, x)


@with_x64
def transformed(
    problem: Problem,
    t: Any,
    x: Any,
    *,
    samples: int = 4096,
    half_width: float | None = None,
    shortest_lag: float = 1e-3,
    confidence: float = 0.95,
    seed: int = 0,
    memory: int | None = None,
    device: Any = None,
    progress: Any = None,
) -> Estimate:
    """Estimate u(t, x) by the transformed kernels and uniform draws, for d <= 2.

    Up to d = 5 it runs with a warning, to show how it fails.

    Args:
        problem: the problem, with a scalar diffusion and constant coefficients; its source must
            not depend on u.
        t: one time (), or n times (n,), t > 0 (t < T for a terminal-value problem).
        x: one point (dim,), or n points (n, dim).
        samples: random samples at each point.
        half_width: A in [-A, A]^d; by default max |x_i| + 6 √(2Dt), at least 5, so that what lies
            outside weighs less than 1e-8.
        shortest_lag: where the integral over lags is cut off for d >= 2, as a fraction of t;
            `truncation_bias` bounds the loss.
        confidence: confidence level of the intervals.
        seed: seed of the random numbers.
        memory: bytes of memory that may be used; by default three quarters of what is free.
        device: "cpu", "gpu" or a `jax.Device`; by default the first device of JAX.
        progress: called as progress("samples", done, total).

    Returns:
        An `Estimate` with arrays of shape () for one point, (n,) for n points.
    """
    _check_problem(problem)
    if problem.dim > 5:
        raise InputError(
            f"`transformed` draws uniformly on a box; in {problem.dim} dimensions practically no "
            "draw would count. Use montecarlo.importance."
        )
    if problem.dim >= 3:
        WarningLog().warn(
            f"`transformed` in {problem.dim} dimensions: few draws carry the whole sum, so that "
            "standard errors and intervals are too small. Use montecarlo.importance."
        )
    if check_positive("shortest_lag", shortest_lag, "It is a fraction of t.") >= 1:
        raise InputError(f"`shortest_lag` must be below 1, a fraction of t; got {shortest_lag:g}.")
    canonical = problem.canonical
    if canonical.diffusion.scalar is None or canonical.coefficients is not None:
        raise InputError(
            "`transformed` needs a scalar diffusion, and no coefficient that varies. "
            "Use montecarlo.importance."
        )
    times, places = problem.transform.to_canonical(*problem.as_points(t, x, positive_time=True)[:2])
    reach = np.max(np.abs(places)) + 6 * np.sqrt(2 * canonical.diffusion.scalar * np.max(times))
    if half_width is None:
        A = max(5.0, float(reach))
    else:
        A = check_positive("half_width", half_width, "It is A in [-A, A]^d.")
    request = _Request(samples, confidence, seed, make_context(device, memory, progress))
    extra = (jnp.asarray(A), jnp.asarray(shortest_lag))
    return _estimate(problem, t, x, request._replace(terms=_transformed_terms, extra=extra))


def _check_problem(problem: Any) -> None:
    """Refuse an object that is no `Problem`, and a source that depends on u."""
    if not isinstance(problem, Problem):
        raise InputError(
            f"`problem` must be a hn.Problem; got {short_repr(problem)}. "
            "For a solution u it is u.problem."
        )
    if problem.canonical.source.uses_u:
        raise InputError(
            "`source` depends on u, which a sample of a path does not know: there is no direct "
            "estimator. Solve it, hn.solve(problem), and certify the value."
        )


def _estimate(problem: Problem, t: Any, x: Any, request: _Request) -> Estimate:
    """Check the arguments, and estimate u at the user's points, in the user's units."""
    request = request._replace(
        samples=check_int("samples", request.samples, 2, "A standard error needs at least two."),
        confidence=check_fraction("confidence", request.confidence),
    )
    times, points, single = problem.as_points(t, x)
    scale = problem.transform.value_scale(times)
    estimate = _sample(problem.canonical, *problem.transform.to_canonical(times, points), request)
    names = ("value", "standard_error", "low", "high", "truncation_bias")
    scaled = {name: scale * getattr(estimate, name) for name in names}
    return replace(estimate, **{k: v[0] if single else v for k, v in scaled.items()})


def _sample(
    problem: CanonicalProblem, times: np.ndarray, places: np.ndarray, request: _Request
) -> Estimate:
    """The estimate at n canonical points, times (n,) and places (n, dim)."""
    samples, confidence, seed, ctx, stream, terms, extra = request
    with ctx.active():
        equation, simulator = equation_values_only(problem), to_jax(problem.paths)
        context = (equation, simulator, streams.key(streams.check_seed(seed), stream), *extra)
        points = (np.arange(len(times)), times, places)
        floats = 12 * int(np.prod(simulator.noise_shape(problem.dim))) + 40
        blocks = [(jnp.arange(samples), jnp.ones(samples))]
        total, square, bias_total = weighted_sum(
            terms or _importance_terms, blocks, context, points, floats, ctx, label="samples"
        )
        base = map_points(_centre, equation, (times, places), 4 * problem.dim, ctx)
    check_finite(problem, (times, places), total + square)
    mean = total / samples
    error = np.sqrt(np.maximum(square / samples - mean**2, 0.0) / (samples - 1))
    half = error * scipy.special.stdtrit(samples - 1, 0.5 * (1 + confidence))
    bias = np.abs(bias_total) / samples
    if not extra:
        half = half + bias
    else:
        bias = float(extra[1]) * times * bias if problem.dim > 1 else np.zeros_like(times)
    value = base + mean
    return Estimate(value, error, value - half, value + half, samples, confidence, np.asarray(bias))


def check_finite(
    problem: CanonicalProblem, points: tuple[np.ndarray, np.ndarray], sums: np.ndarray
) -> None:
    """Raise a `NumericalError` where sums (n,) over samples from the points are not finite."""
    bad = np.flatnonzero(~np.isfinite(sums))
    if bad.size:
        point = problem.outer_transform.from_canonical(*(array[bad[0]] for array in points))
        raise NumericalError(
            f"Monte Carlo samples from {format_point(list(point))} are not finite: "
            f"`{problem.data_name}` or `source` is not finite on a path from there."
        )


def _centre(equation: Equation, t: Array, x: Array) -> Array:
    """u0(x) + t F(t, x). It is subtracted from samples to avoid cancellation in their variance."""
    return equation.initial(x) + t * equation.source_value(t, x)


def _moments(
    sample: Any, samples: Array, weights: Array, centre: Array
) -> tuple[Array, Array, Array]:
    """Weighted sums of v, v² and of the bias terms, with v the sample minus the centre.

    `sample` maps the index of a sample to its value and bias term; `samples` are the indices, (m,).
    """
    values, biases = jax.vmap(sample)(samples)
    v = values - centre
    return jnp.sum(weights * v), jnp.sum(weights * v**2), jnp.sum(weights * biases)


def _importance_sample(
    equation: Equation,
    simulator: PathSimulator,
    key: Array,
    t: Array,
    x: Array,
    signs: tuple[float, ...],
) -> tuple[Array, Array]:
    """One sample of u0(X_t) + t F(rt, X_{(1-r)t}), averaged over the signs of the noise.

    The second result is its change with half as many steps of the paths.
    """
    first, second, third = jax.random.split(key, 3)
    r, shape = jax.random.uniform(third), simulator.noise_shape(x.size)
    eta, xi = (simulator.scale_noise(jax.random.normal(k, shape)) for k in (first, second))

    # Levels with the factor zero only check the order of the steps: not here.
    pairs = zip(simulator.richardson_levels(eta), simulator.richardson_levels(xi), strict=True)
    value, values = jnp.zeros(()), []
    for (factor, level, start_noise), (_, _, noise) in pairs:
        if not factor:
            continue
        total = jnp.zeros(())
        for sign in signs:
            end = level.simulate_one(t, x, t, sign * start_noise)
            mid = level.simulate_one(t, x, (1 - r) * t, sign * noise)
            initial = end.weight * equation.initial(end.position)
            total = total + (initial + t * mid.weight * equation.source_value(r * t, mid.position))
        values.append(total / len(signs))
        value = value + factor * values[-1]
    return value, values[0] - values[min(1, len(values) - 1)]


def _importance_terms(
    context: Any,
    samples: Array,
    weights: Array,
    index: Array,
    t: Array,
    x: Array,
    *,
    signs: tuple[float, ...] = (1.0,),
) -> tuple[Array, ...]:
    """Sums over samples of `importance` at one point; for `weighted_sum`.

    Args:
        context: equation, simulator of paths and random key.
        samples: indices of the samples, (m,).
        weights: of the samples, (m,).
        index: of the point.
        t: its time, ().
        x: its place, (dim,).
        signs: of the noise: (1, -1) for antithetic pairs.
    """
    equation, simulator, key = context
    key = jax.random.fold_in(key, index)

    def sample(j: Array) -> tuple[Array, Array]:
        return _importance_sample(equation, simulator, jax.random.fold_in(key, j), t, x, signs)

    return _moments(sample, samples, weights, _centre(equation, t, x))


_paired_terms = partial(_importance_terms, signs=(1.0, -1.0))


def _transformed_terms(
    context: Any, samples: Array, weights: Array, index: Array, t: Array, x: Array
) -> tuple[Array, ...]:
    """Sums over samples of `transformed` at one point; arguments as `_importance_terms`."""
    equation, _, key, A, shortest = context
    key, d = jax.random.fold_in(key, index), x.size
    lags = LagTransform(d, t, shortest * t)
    log_box = d * jnp.log(2 * A)

    def sample(j: Array) -> tuple[Array, Array]:
        first, second, third, fourth, fifth = jax.random.split(jax.random.fold_in(key, j), 5)
        y = jax.random.uniform(first, (d,), minval=-A, maxval=A)
        weight = jnp.exp(log_box - 0.5 * d * jnp.log(jnp.pi) - jnp.sum(y**2))
        noise = equation.diffusion.apply_sqrt(jnp.sqrt(2.0) * y)
        value = weight * equation.initial(equation.displace(t, x, noise))
        if equation.source is None:
            return value, jnp.zeros(())
        z = jax.random.uniform(second, (d,), minval=-A, maxval=A)
        lag = lags.lag(jax.random.uniform(third))
        log_c = jnp.log(lags.length) + log_box + lags.log_constant(equation.diffusion.scalar)
        kernel = KernelSource(z, lag, log_c).value(equation, t, x)
        # The cut leaves out the mean of F over lags below the shortest, times that lag.
        short = shortest * t * jax.random.uniform(fourth)
        time = t - short
        noise = equation.diffusion.apply_sqrt(jax.random.normal(fifth, (d,)))
        cut = equation.source_value(time, equation.displace(short, x, noise))
        return value + kernel, jnp.abs(cut)

    return _moments(sample, samples, weights, _centre(equation, t, x))
