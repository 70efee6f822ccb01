"""What the tangent's equation leaves out: the square of the error, bounded by samples.

With e = u - ũ, e_t = L e + f_u e + f_p·∇e + R + Q and |Q| <= ½ Λ(e² + |√(2t) Sᵀ∇e|²), where Λ bounds the change of f's derivatives (in these units) over an error's
size. A certificate solves this without Q; what it misses at (t, x) is at most

    ½ E∫ w Λ e² + ½ E∫ w Λ |√(2t) Sᵀ∇e|²  ds   along the tangent's paths, with their weights w.

A sample c of the error equation from (s, X_s) has the mean e(s, X_s), so that e² <= E[c²]; and by Itô's isometry E∫ w² |√2 Sᵀ∇e|² ds is at most the second moment of
samples from (t, x). Both are crude, and enough: errors are small, and their squares smaller.
"""

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

_SAMPLES = 128  # of paths from each point
_TURNS = 6  # of the power iteration for Λ
_SAFETY = 2.0  # Q's own effect on the e that it is made of, and samples that are few
_VALID = 0.25  # of the error's size: a square that is larger says that the tangent does not describe the error
_STEPS = 4  # of the martingale form, where data are not smooth

Rng = Callable[..., np.random.Generator]  # the stream of some name
Bends = Callable[..., np.ndarray]  # `bent` at many points (s, y, size, t)


class LinearizationError(NamedTuple):
    """What is to be added to half-widths (n,), and why a point is not certified."""

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
    """For the tangent's problem at a network, at points with t >= 0; `slopes` where f depends on ∇u.

    `errors` are those that the tangent's equation was found to have there: no less is squared.
    """
    bounds, reasons = np.zeros(len(t)), []
    for i, (time, place) in enumerate(zip(t, x, strict=True)):
        why: tuple[str, ...] = ()
        if time > 0:
            own = partial(rng, i=i)
            error = abs(float(errors[i]))
            bounds[i], why = _at(problem, slopes, u, bends, float(time), place, smooth, own, error)
        reasons.append(why)
    return LinearizationError(bounds, reasons)


def _at(
    problem: CanonicalProblem,
    slopes: bool,
    u: NetworkEvaluator,
    bends: Bends,
    t: float,
    x: np.ndarray,
    smooth: bool,
    own: Rng,
    error: float,
) -> tuple[float, tuple[str, ...]]:
    if slopes and not smooth:
        return 0.0, (
            "the square of the slope's error is not bounded where data have kinks or jumps",
        )
    if slopes and isinstance(problem.diffusion, Dense) and problem.diffusion.inverse is None:
        return 0.0, (
            "the square of the slope's error is not bounded where `diffusion` is a matrix that varies",
        )
    rng = own("remainder")
    n, dim, walk = _SAMPLES, problem.dim, problem.paths
    start = np.full(n, t)
    r, density = time_fractions(
        rng, n
    )  # many near both ends: where f_u is very negative only the shortest ways count
    s = t * r
    there = walk.go(start, np.broadcast_to(x, (n, dim)), start - s, walk.draw(rng, (n,), dim))
    inside = _samples(problem, u, s, there.place, smooth, rng, own, "remainder")
    whole = (
        _samples(
            problem, u, start, np.broadcast_to(x, (n, dim)), smooth, rng, own, "remainder whole"
        )
        if slopes
        else inside
    )
    size = max(rms(inside), rms(whole), error)
    if not np.isfinite(size):
        return np.inf, ("samples of the error's square are not finite",)
    if size == 0:
        return 0.0, ()
    bent = bends(s, there.place, np.full(n, size), start)  # Λ size²
    weight = np.broadcast_to(np.asarray(there.weight), (n,))
    value = weight * bent * np.maximum(np.abs(inside), error) ** 2 / size**2 / density
    bound = 0.5 * t * (value.mean() + 2 * value.std(ddof=1) / np.sqrt(n))
    if slopes:
        bound += (
            0.5
            * t
            * float(np.max(bent))
            * (rms(whole) / size) ** 2
            / min(1.0, float(np.min(weight)))
        )
    bound = float(_SAFETY * bound)
    if not bound <= _VALID * size:
        return bound, (
            f"the network is too far from the solution for its error to obey a linear equation: what that leaves out may be {bound:.2g}; solve it better first (more `seconds`, a smaller region)",
        )
    return bound, ()


def _samples(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    smooth: bool,
    rng: Any,
    own: Rng,
    stream: str,
) -> np.ndarray:
    """One sample of the error at each point."""
    if not smooth:
        rngs = [own(f"{stream} {k}") for k in range(len(t))]
        return martingale_form(problem, u, t, x, 1, rngs, _STEPS).corrections[:, 0]
    walk = problem.paths
    r, density = time_fractions(rng, len(t))
    noise = walk.draw(rng, (len(t),), problem.dim)
    moved = walk.go(t, x, (1 - r) * t, noise)
    found = t / density * moved.weight * u.residual(r * t, moved.place)[0]
    if u.start:
        ends = walk.go(t, x, t, noise)
        found = found + u.start * ends.weight * u.initial(ends.place)
    return found


def bent(
    data: tuple[SemilinearSource, Fit, Diffusion, CoefficientField | None],
    s: Array,
    y: Array,
    size: Array,
    t: Array,
) -> Array:
    """Λ size²: by how much the derivatives of f at the network change when its value changes by `size`, or √(2t) Sᵀ times its slope; for a slope along the direction that changes them most."""
    nonlinear, fit, diffusion, varying = data
    u, du = fit.both(s, y, nonlinear.slopes)
    if varying is not None and nonlinear.slopes:
        diffusion = varying.at(s, y).diffusion

    def f(z: tuple[Array, Array]) -> Array:
        if not nonlinear.slopes:
            return nonlinear(s, y, u + size * z[0], du)
        return nonlinear(
            s,
            y,
            u + size * z[0],
            du + size / jnp.sqrt(2 * t) * diffusion.solve(diffusion.apply_sqrt(z[1])),
        )

    slope = jax.grad(f)
    origin = jnp.zeros(()), jnp.zeros_like(y)
    here = slope(origin)

    def change(z: tuple[Array, Array]) -> tuple[Array, Array]:
        return jax.tree.map(jnp.subtract, slope(z), here)

    def length(z: tuple[Array, Array]) -> Array:
        return jnp.sqrt(z[0] ** 2 + jnp.sum(z[1] ** 2))

    if not nonlinear.slopes:
        ways = [change((jnp.asarray(k), origin[1]))[0] / abs(k) for k in (-2.0, -1.0, 1.0, 2.0)]
        return jnp.max(jnp.abs(jnp.stack(ways)))
    z = (
        0.6 * jnp.ones(()),
        0.8 * jax.random.rademacher(jax.random.key(0), y.shape, y.dtype) / jnp.sqrt(1.0 * y.size),
    )
    most = jnp.zeros(())
    for _ in range(_TURNS):
        moved = change(z)
        far = length(moved)
        most = jnp.maximum(most, far)
        z = jax.tree.map(lambda a, far=far: a / jnp.maximum(far, 1e-300), moved)
    return most
