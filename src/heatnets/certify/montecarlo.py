"""The paper's two direct estimators of u(t, x), with standard errors, streamed.

    importance    E[u0(x + √(2Dt) η)] + t E[F(rt, x + √(2D(1-r)t) ξ)],   η, ξ ~ N(0, I), r ~ U(0, 1)
    transformed   the same integrals after the change of lag that removes the kernel's singularity, with y and z
                  uniform on [-A, A]^d and τ uniform on 𝒟(t): for d <= 2

They know nothing of networks, and so are the independent judge of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

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
    count,
    fraction,
    positive,
    short_repr,
)
from heatnets._core.execution import ExecutionContext, make_context
from heatnets._core.precision import with_x64
from heatnets._core.tiling import contract, evaluate
from heatnets.features.equation import Equation, on_device, values_only
from heatnets.features.features import KernelSource
from heatnets.features.lag_transform import LagTransform, log_kernel_constant
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.function import place
from heatnets.pde.paths import PathSimulator
from heatnets.pde.problem import Problem


@dataclass(frozen=True)
class Estimate:
    """A Monte Carlo estimate, each field of shape () or (n,).

    `low` and `high` bound the sampling error at the given confidence. `truncation_bias` bounds what the transformed
    estimator leaves out by cutting the lags (the shortest lag times the mean |F| over shorter ones, itself sampled); where coefficients vary it
    is what paths of half as many steps changed (twice the finer less the coarser is what is averaged). Only the latter is inside the interval.
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
    """u(t, x) by importance sampling: unbiased in any dimension (where coefficients vary, but for the steps of paths), standard error ~ samples^{-1/2}.

    >>> import heatnets as hn
    >>> problem = hn.problems.get("oscillating", dim=100)
    >>> estimate = hn.montecarlo.importance(problem, 0.5, [0.5] * 100)
    >>> bool(estimate.low < hn.exact_values(problem, 0.5, [0.5] * 100) < estimate.high)
    True
    """
    _check_problem(problem)
    ctx = make_context(device, memory, progress)
    return _run(_importance_terms, problem, t, x, samples, confidence, seed, "monte carlo", ctx, ())


def mild_samples(
    problem: CanonicalProblem,
    t: np.ndarray,
    x: np.ndarray,
    samples: int,
    seed: int,
    ctx: ExecutionContext,
    stream: str = "",
    paired: bool = False,
) -> Estimate:
    """Unbiased samples of u(t, x) for mild rows, in antithetic pairs or not, from a stream that no other judge draws from."""
    terms = _paired_terms if paired else _importance_terms
    return _sample(terms, problem, t, x, samples, 0.95, seed, f"mild rows{stream}", ctx, ())


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
    """u(t, x) by the transformed kernels and uniform draws: for d <= 2; up to d = 5 with a warning, to see where it ends.

    Args:
        half_width: A; by default max |x_i| + 6 √(2Dt), at least 5, so that what lies outside weighs less than 1e-8.
        shortest_lag: where the lag integral is cut for d >= 2, as a fraction of t; `truncation_bias` bounds the loss.
    """
    _check_problem(problem)
    if problem.dim > 5:
        raise InputError(
            f"`transformed` draws uniformly on a box; in {problem.dim} dimensions practically no draw would count. Use montecarlo.importance."
        )
    if problem.dim >= 3:
        WarningLog().warn(
            f"`transformed` in {problem.dim} dimensions: few draws carry the whole sum, so that standard errors and intervals are too small. "
            "Use montecarlo.importance.",
            stacklevel=3,
        )
    if positive("shortest_lag", shortest_lag, "It is a fraction of t.") >= 1:
        raise InputError(f"`shortest_lag` must be below 1, a fraction of t; got {shortest_lag:g}.")
    canonical = problem.canonical
    if canonical.diffusion.scalar is None or canonical.coefficients is not None:
        raise InputError(
            "`transformed` needs a scalar diffusion, and no coefficient that varies. Use montecarlo.importance."
        )
    times, places = problem.transform.to_canonical(*problem.points(t, x, positive_time=True)[:2])
    reach = np.max(np.abs(places)) + 6 * np.sqrt(2 * canonical.diffusion.scalar * np.max(times))
    A = (
        max(5.0, float(reach))
        if half_width is None
        else positive("half_width", half_width, "It is A in [-A, A]^d.")
    )
    ctx = make_context(device, memory, progress)
    context = (jnp.asarray(A), jnp.asarray(shortest_lag))
    return _run(
        _transformed_terms, problem, t, x, samples, confidence, seed, "monte carlo", ctx, context
    )


def _check_problem(problem: Any) -> None:
    if not isinstance(problem, Problem):
        raise InputError(
            f"`problem` must be a hn.Problem; got {short_repr(problem)}. For a solution u it is u.problem."
        )
    if problem.nonlinear is not None:
        raise InputError(
            "`source` depends on u, which a sample of a path does not know: there is no direct estimator. Solve it, hn.solve(problem), and certify the value."
        )


def _run(
    terms: Any,
    problem: Problem,
    t: Any,
    x: Any,
    samples: Any,
    confidence: Any,
    seed: Any,
    stream: str,
    ctx: ExecutionContext,
    extra: tuple[Array, ...],
) -> Estimate:
    samples = count("samples", samples, 2, "A standard error needs at least two.")
    level = fraction("confidence", confidence)
    asked_t, asked_x, single = problem.points(t, x)
    scale = problem.transform.value_scale(asked_t)
    points = problem.transform.to_canonical(asked_t, asked_x)
    found = _sample(terms, problem.canonical, *points, samples, level, seed, stream, ctx, extra)
    fields = (found.value, found.standard_error, found.low, found.high, found.truncation_bias)
    value, error, low, high, bias = (scale[0] * f[0] if single else scale * f for f in fields)
    return Estimate(value, error, low, high, samples, level, bias)


def _sample(
    terms: Any,
    problem: CanonicalProblem,
    times: np.ndarray,
    places: np.ndarray,
    samples: int,
    level: float,
    seed: Any,
    stream: str,
    ctx: ExecutionContext,
    extra: tuple[Array, ...],
) -> Estimate:
    """The estimate at canonical points, (n,) and (n, dim)."""
    with jax.default_device(ctx.device):
        equation = values_only(problem)
        walk = on_device(problem.paths)
        context = (equation, walk, streams.key(streams.check_seed(seed), stream), *extra)
        points = (np.arange(len(times)), times, places)
        total, square, force = contract(
            terms,
            [(jnp.arange(samples), jnp.ones(samples))],
            context,
            points,
            12 * int(np.prod(walk.normals(problem.dim))) + 40,
            ctx,
            "samples",
        )
        base = evaluate(_centre, equation, (times, places), 4 * problem.dim, ctx)
    bad = np.flatnonzero(~np.isfinite(total + square))
    if bad.size:
        raise NumericalError(
            f"Monte Carlo samples from {place(list(problem.outer_transform.from_canonical(times[bad[0]], places[bad[0]])))} are not finite: "
            f"`{problem.data_name}` or `source` is not finite on a path from there."
        )
    mean = total / samples
    error = np.sqrt(np.maximum(square / samples - mean**2, 0.0) / (samples - 1))
    half = error * scipy.special.stdtrit(samples - 1, 0.5 * (1 + level))
    bias = np.abs(force) / samples
    if len(extra):
        bias = float(extra[1]) * times * bias if problem.dim > 1 else np.zeros_like(times)
    half = half + (0.0 if len(extra) else bias)
    return Estimate(
        base + mean, error, base + mean - half, base + mean + half, samples, level, np.asarray(bias)
    )


def _centre(equation: Equation, t: Array, x: Array) -> Array:
    """Samples are measured from here, so that nearly constant ones do not cancel in the variance."""
    return equation.initial(x) + t * equation.forcing(t, x)


def _moments(
    sample: Any, samples: Array, weights: Array, centre: Array
) -> tuple[Array, Array, Array]:
    """Sums of v, v² and of what tells the bias, with v measured from the centre."""
    values, biases = jax.vmap(sample)(samples)
    v = values - centre
    return jnp.sum(weights * v), jnp.sum(weights * v**2), jnp.sum(weights * biases)


def _importance_sample(
    equation: Equation,
    walk: PathSimulator,
    key: Array,
    t: Array,
    x: Array,
    signs: tuple[float, ...],
) -> tuple[Array, Array]:
    """u0 + t F at random ends of paths, averaged over the signs of the noise; and what steps half as many change."""
    first, second, third = jax.random.split(key, 3)
    r, shape = jax.random.uniform(third), walk.normals(x.size)
    eta, xi = (walk.scale_noise(jax.random.normal(k, shape)) for k in (first, second))

    def one(
        start: tuple[float, PathSimulator, Array],
        inside: tuple[float, PathSimulator, Array],
        sign: float,
    ) -> Array:
        end, mid = (
            start[1].path(t, x, t, sign * start[2]),
            inside[1].path(t, x, (1 - r) * t, sign * inside[2]),
        )
        return end.weight * equation.initial(end.place) + t * mid.weight * equation.forcing(
            r * t, mid.place
        )

    found = []
    levels = [pair for pair in zip(walk.levels(eta), walk.levels(xi), strict=True) if pair[0][0]]
    for start, inside in levels:
        found.append(sum((one(start, inside, s) for s in signs), jnp.zeros(())) / len(signs))
    value = sum((start[0] * v for (start, _), v in zip(levels, found, strict=True)), jnp.zeros(()))
    return value, found[0] - found[min(1, len(found) - 1)]


def _importance_terms(
    context: Any,
    samples: Array,
    weights: Array,
    index: Array,
    t: Array,
    x: Array,
    signs: tuple[float, ...] = (1.0,),
) -> tuple[Array, ...]:
    equation, walk, key = context
    key = jax.random.fold_in(key, index)

    def sample(j: Array) -> tuple[Array, Array]:
        return _importance_sample(equation, walk, jax.random.fold_in(key, j), t, x, signs)

    return _moments(sample, samples, weights, _centre(equation, t, x))


_paired_terms = partial(_importance_terms, signs=(1.0, -1.0))


def _transformed_terms(
    context: Any, samples: Array, weights: Array, index: Array, t: Array, x: Array
) -> tuple[Array, ...]:
    equation, _, key, A, shortest = context
    key, d = jax.random.fold_in(key, index), x.size
    lags = LagTransform(d, t, shortest * t)
    log_box = d * jnp.log(2 * A)

    def sample(j: Array) -> tuple[Array, Array]:
        first, second, third, fourth, fifth = jax.random.split(jax.random.fold_in(key, j), 5)
        y = jax.random.uniform(first, (d,), minval=-A, maxval=A)
        weight = jnp.exp(log_box - 0.5 * d * jnp.log(jnp.pi) - jnp.sum(y**2))
        value = weight * equation.initial(
            equation.flow(t, x, equation.diffusion.apply_sqrt(jnp.sqrt(2.0) * y))
        )
        if equation.source is None:
            return value, jnp.zeros(())
        z = jax.random.uniform(second, (d,), minval=-A, maxval=A)
        lag = lags.at(jax.random.uniform(third))
        log_c = jnp.log(lags.length) + log_box + log_kernel_constant(d, equation.diffusion.scalar)
        kernel = KernelSource(z, lag, log_c).value(equation, t, x)
        # What the cut leaves out is the mean of F over lags below the shortest, times that lag.
        short = shortest * t * jax.random.uniform(fourth)
        cut = equation.forcing(
            t - short,
            equation.flow(short, x, equation.diffusion.apply_sqrt(jax.random.normal(fifth, (d,)))),
        )
        return value + kernel, jnp.abs(cut)

    return _moments(sample, samples, weights, _centre(equation, t, x))
