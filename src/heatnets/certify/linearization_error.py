"""Linearization error of a certificate for a semilinear problem: a bound by samples.

With e = u - ũ, e_t = L e + f_u e + f_p·∇e + R + Q and |Q| <= ½ Λ(e² + |√(2t) Sᵀ∇e|²). A certificate
leaves out Q. The error of that at (t, x) is at most

    ½ E∫ w Λ e² + ½ E∫ w Λ |√(2t) Sᵀ∇e|²  ds   along paths X of the linearized problem, weights w.
"""

# Λ bounds the change of the derivatives of f (in these units) over the size of an error. A sample c
# of the error equation from (s, X_s) has the mean e(s, X_s), so that e² <= E[c²]; and by Itô's
# isometry E∫ w² |√2 Sᵀ∇e|² ds is at most the second moment of samples from (t, x). Both bounds are
# crude, and enough: errors are small, and their squares smaller.

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from heatnets._core.statistics import rms
from heatnets.certify.error_equation import NetworkEvaluator, martingale_form
from heatnets.certify.linearization import Fit
from heatnets.fit.collocation import time_fractions
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.coefficients import CoefficientField
from heatnets.pde.diffusion import Dense, Diffusion
from heatnets.pde.nonlinearity import SemilinearSource

_SAMPLES = 128  # paths from each point
_TURNS = 6  # iterations of the power method for Λ
_SAFETY = 2.0  # factor for the effect of Q on the e that it is made of, and for few samples
_VALID = 0.25  # of the error's size: with a larger bound the linearization does not describe it
_STEPS = 4  # of the martingale form, where data are not smooth

Rng = Callable[..., np.random.Generator]  # name of a stream -> its random generator
Bends = Callable[..., np.ndarray]  # `bent` at n points (s, y, size, t)


class LinearizationError(NamedTuple):
    """Bounds to be added to half-widths, (n,), and the reasons why points are not certified."""

    bound: np.ndarray
    reasons: list[tuple[str, ...]]


def remainder(
    problem: CanonicalProblem,
    slopes: bool,
    u: NetworkEvaluator,
    bends: Bends,
    t: np.ndarray,
    x: np.ndarray,
    smooth: bool,
    rng: Rng,
    errors: np.ndarray,
) -> LinearizationError:
    """Bound the linearization error at n points with t >= 0.

    Args:
        problem: the linearized problem.
        slopes: whether the source f depends on ∇u.
        u: functions of the network and of the data.
        bends: Λ size² at points (s, y), see `bent`.
        t: times, (n,).
        x: points, (n, dim).
        smooth: whether the residual form may be used.
        rng: random generators of the points, by the name of a stream and the index `i`.
        errors: estimated errors of the network at the points, (n,): no less is squared.
    """
    bounds, reasons = np.zeros(len(t)), []
    for i, (time, place) in enumerate(zip(t, x, strict=True)):
        why: tuple[str, ...] = ()
        if time > 0:
            point_rng = partial(rng, i=i)
            error = abs(float(errors[i]))
            bounds[i], why = _bound_at_point(
                problem, slopes, u, bends, float(time), place, smooth, point_rng, error
            )
        reasons.append(why)
    return LinearizationError(bounds, reasons)


def _bound_at_point(
    problem: CanonicalProblem,
    slopes: bool,
    u: NetworkEvaluator,
    bends: Bends,
    t: float,
    x: np.ndarray,
    smooth: bool,
    point_rng: Rng,
    error: float,
) -> tuple[float, tuple[str, ...]]:
    """The bound at one point x (dim,), t > 0, and the reasons why it is not certified."""
    unbounded = "the square of the slope's error is not bounded where "
    if slopes and not smooth:
        return 0.0, (f"{unbounded}data have kinks or jumps",)
    if slopes and isinstance(problem.diffusion, Dense) and problem.diffusion.inverse is None:
        return 0.0, (f"{unbounded}`diffusion` is a matrix that varies",)
    rng = point_rng("remainder")
    n, dim, simulator = _SAMPLES, problem.dim, problem.paths
    start, places = np.full(n, t), np.broadcast_to(x, (n, dim))
    # Many times near both ends: where f_u is very negative only the shortest paths count.
    r, density = time_fractions(rng, n)
    s = t * r
    ends = simulator.simulate(start, places, start - s, simulator.draw(rng, (n,), dim))
    inside = _sample_errors(problem, u, s, ends.position, smooth, rng, point_rng, "remainder")
    from_point = inside
    if slopes:
        stream = "remainder whole"
        from_point = _sample_errors(problem, u, start, places, smooth, rng, point_rng, stream)
    size = max(rms(inside), rms(from_point), error)
    if not np.isfinite(size):
        return np.inf, ("samples of the error's square are not finite",)
    if size == 0:
        return 0.0, ()
    changes = bends(s, ends.position, np.full(n, size), start)  # Λ size²
    weight = np.broadcast_to(np.asarray(ends.weight), (n,))
    value = weight * changes * np.maximum(np.abs(inside), error) ** 2 / size**2 / density
    bound = 0.5 * t * (value.mean() + 2 * value.std(ddof=1) / np.sqrt(n))
    if slopes:
        relative, least_weight = rms(from_point) / size, min(1.0, float(np.min(weight)))
        bound += 0.5 * t * float(np.max(changes)) * relative**2 / least_weight
    bound = float(_SAFETY * bound)
    if not bound <= _VALID * size:
        return bound, (
            "the network is too far from the solution for its error to obey a linear equation: "
            f"what that leaves out may be {bound:.2g}; solve it better first "
            "(more `seconds`, a smaller region)",
        )
    return bound, ()


def _sample_errors(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    smooth: bool,
    rng: Any,
    point_rng: Rng,
    stream: str,
) -> np.ndarray:
    """One sample of the error of the network at each point t (n,), x (n, dim)."""
    if not smooth:
        rngs = [point_rng(f"{stream} {k}") for k in range(len(t))]
        return martingale_form(problem, u, t, x, 1, rngs, _STEPS).corrections[:, 0]
    simulator = problem.paths
    r, density = time_fractions(rng, len(t))
    noise = simulator.draw(rng, (len(t),), problem.dim)
    inside = simulator.simulate(t, x, (1 - r) * t, noise)
    samples = t / density * inside.weight * u.residual(r * t, inside.position)[0]
    if u.start:
        ends = simulator.simulate(t, x, t, noise)
        samples = samples + u.start * ends.weight * u.initial(ends.position)
    return samples


def derivative_variation(
    data: tuple[SemilinearSource, Fit, Diffusion, CoefficientField | None],
    s: Array,
    y: Array,
    size: Array,
    t: Array,
) -> Array:
    """Λ size²: the change of the derivatives of f at the network over an error of some size.

    The value of the network changes by `size`; where f depends on ∇u, also √(2t) Sᵀ times its
    gradient, in the direction that changes the derivatives most (by the power method).

    Args:
        data: the source f, the network, the constant diffusion, and the coefficients that vary.
        s: the time, ().
        y: the point, (dim,).
        size: of the error, ().
        t: the time of the certified point, ().
    """
    nonlinear, fit, diffusion, varying = data
    u, du = fit.value_and_gradient(s, y, nonlinear.uses_gradient)
    if varying is not None and nonlinear.uses_gradient:
        diffusion = varying.evaluate(s, y).diffusion

    def f(z: tuple[Array, Array]) -> Array:
        value = u + size * z[0]
        if not nonlinear.uses_gradient:
            return nonlinear(s, y, value, du)
        slope = du + size / jnp.sqrt(2 * t) * diffusion.solve(diffusion.apply_sqrt(z[1]))
        return nonlinear(s, y, value, slope)

    derivatives = jax.grad(f)
    origin = jnp.zeros(()), jnp.zeros_like(y)
    at_network = derivatives(origin)

    def change(z: tuple[Array, Array]) -> tuple[Array, Array]:
        return jax.tree.map(jnp.subtract, derivatives(z), at_network)

    def length(z: tuple[Array, Array]) -> Array:
        return jnp.sqrt(z[0] ** 2 + jnp.sum(z[1] ** 2))

    if not nonlinear.uses_gradient:
        changes = [change((jnp.asarray(k), origin[1]))[0] / abs(k) for k in (-2.0, -1.0, 1.0, 2.0)]
        return jnp.max(jnp.abs(jnp.stack(changes)))
    signs = jax.random.rademacher(jax.random.key(0), y.shape, y.dtype)
    z = 0.6 * jnp.ones(()), 0.8 * signs / jnp.sqrt(1.0 * y.size)
    most = jnp.zeros(())
    for _ in range(_TURNS):
        moved = change(z)
        norm = length(moved)
        most = jnp.maximum(most, norm)
        z = jax.tree.map(lambda a, norm=norm: a / jnp.maximum(norm, 1e-300), moved)
    return most
