"""Semilinear sources f(t, x, u) or f(t, x, u, ∇u) in canonical coordinates, and approximations.

SemilinearSource  f with its linearization (derivatives in u and ∇u)
ReactionFlow      Ψ_s(v0(y)): solution of the ODE dv/ds = f(s, y, v) from v0(y), for f without ∇u
FrozenSource      f along the reaction flow, or at v0: the source for a first guess
ChebyshevSource   interpolant of f in u: a smooth f for the guess, if f has kinks in u
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets._core.errors import InputError
from heatnets.pde.function import Function, evaluate_at, jumps, probe
from heatnets.pde.transforms import TransformChain

# Runge-Kutta steps of a reaction flow in a feature: if f does not depend on x, and if it does (then
# derivatives go through each step).
_FLOW_STEPS = (4, 1)

Scalar = Float[Array, ""]
Vector = Float[Array, " dim"]


class SourceLinearization(NamedTuple):
    """The linearization of a source at (s, y, v, ∇v)."""

    value: Any  # f
    d_u: Any  # ∂f/∂v
    d_grad: Any  # ∂f/∂(∇v), (dim,)


class SemilinearSource(eqx.Module):
    """The source of the canonical problem: (s, y, v, ∇v) ↦ f(t, x, u, ∇u) / (a |ds/dt|)."""

    function: Function
    transform: TransformChain
    uses_gradient: bool = eqx.field(static=True)  # whether f depends on ∇u

    def __call__(self, s: Scalar, y: Vector, v: Scalar, dv: Vector) -> Scalar:
        t, x = self.transform.from_canonical(jnp.asarray(s), y)
        a = self.transform.value_scale(t)
        args = (
            (t, x, a * v, a * self.transform.slope(t, x) * dv)
            if self.uses_gradient
            else (t, x, a * v)
        )
        return self.function(*args) / (a * self.transform.rate(t))

    def is_x_independent(self, dim: int) -> bool:
        """Whether f depends on t and u only: x does not occur in its jaxpr."""
        if self.uses_gradient:
            return False
        number = jax.ShapeDtypeStruct((), jnp.float64)
        point = jax.ShapeDtypeStruct((dim,), jnp.float64)
        jaxpr = jax.make_jaxpr(self.function)(number, point, number).jaxpr
        x = jaxpr.invars[1]
        return all(x is not v for e in jaxpr.eqns for v in e.invars) and x not in jaxpr.outvars

    def flow_steps(self, dim: int) -> int:
        """Number of Runge-Kutta steps of a reaction flow in a feature."""
        return _FLOW_STEPS[0 if self.is_x_independent(dim) else 1]

    def linearize(self, s: Scalar, y: Vector, v: Scalar, dv: Vector) -> SourceLinearization:
        """The linearization at (s, y, v, dv)."""
        if not self.uses_gradient:
            force, d_u = jax.jvp(lambda v: self(s, y, v, dv), (v,), (jnp.ones_like(v),))
            return SourceLinearization(force, d_u, jnp.zeros_like(y))
        force, (d_u, d_grad) = jax.value_and_grad(lambda v, dv: self(s, y, v, dv), (0, 1))(v, dv)
        return SourceLinearization(force, d_u, d_grad)


_NODES = 9  # Chebyshev nodes of an interpolant


class ChebyshevSource(eqx.Module):
    """Polynomial interpolant in u of f(t, x, u), at the Chebyshev nodes between two values of u."""

    function: Function
    low: Any
    high: Any

    def __call__(self, t: Scalar, x: Vector, u: Scalar) -> Scalar:
        angles = np.pi * (np.arange(_NODES) + 0.5) / _NODES
        z = (2 * u - self.low - self.high) / (self.high - self.low)
        nodes = 0.5 * (self.low + self.high) + 0.5 * (self.high - self.low) * np.cos(angles)
        # One trace of f for all nodes: f written out nine times took a minute to compile.
        values = jax.vmap(lambda node: self.function(t, x, node))(jnp.asarray(nodes))
        transform = 2 * np.cos(np.outer(np.arange(_NODES), angles)) / _NODES  # cosine transform
        series = jnp.asarray(transform) @ values
        previous, polynomial, total = jnp.ones_like(z), z, 0.5 * series[0]
        for k in range(1, _NODES):  # `polynomial` is T_k(z), `previous` is T_{k-1}(z)
            total = total + series[k] * polynomial
            previous, polynomial = polynomial, 2 * z * polynomial - previous
        return total


class ReactionFlow(eqx.Module):
    """(s, y) ↦ Ψ_s(v0(y)), by `steps` classical Runge-Kutta steps."""

    nonlinear: SemilinearSource
    initial: Function
    steps: int = eqx.field(static=True)

    def __call__(self, s: Scalar, y: Vector) -> Scalar:
        return self.through(s, y, self.initial(y))

    def through(self, s: Scalar, y: Vector, v: Scalar) -> Scalar:
        """Ψ_s(v): solution at the time s of dv/ds = f(s, y, v) from the value v at s = 0."""
        h = s / self.steps

        def f(k: float, v: Scalar) -> Scalar:
            return self.nonlinear(k * h, y, v, jnp.zeros_like(y))

        for k in range(self.steps):
            k1 = f(k, v)
            k2 = f(k + 0.5, v + 0.5 * h * k1)
            k3 = f(k + 0.5, v + 0.5 * h * k2)
            v = v + h / 6 * (k1 + 2 * k2 + 2 * k3 + f(k + 1, v + h * k3))
        return v


class FrozenSource(eqx.Module):
    """(s, y) ↦ f(s, y, Ψ_s(v0(y))); without a flow f(s, y, v0(y), ∇v0(y))."""

    nonlinear: SemilinearSource
    initial: Function
    flow: ReactionFlow | None

    def __call__(self, s: Scalar, y: Vector) -> Scalar:
        slope = jax.grad(self.initial)(y) if self.nonlinear.uses_gradient else jnp.zeros_like(y)
        return self.through(s, y, self.initial(y), slope)

    def through(self, s: Scalar, y: Vector, v: Scalar, slope: Vector | None = None) -> Scalar:
        """The source at (s, y), for v0(y) = v and ∇v0(y) = slope (None for zero)."""
        value = v if self.flow is None else self.flow.through(s, y, v)
        return self.nonlinear(s, y, value, jnp.zeros_like(y) if slope is None else slope)


_RESOLVED = 1e-2  # largest relative change of a reaction flow with twice as many steps


class SourceInfo(NamedTuple):
    """Properties of a semilinear source, from samples."""

    u_range: tuple[float, float]  # values of u between which it was evaluated
    source_has_kinks: bool  # as a function of u
    flow_resolved: bool  # the reaction flow is finite, and its steps converge


def examine(
    nonlinear: SemilinearSource,
    initial: Function,
    u0: Function,
    horizon: float,
    points: tuple[np.ndarray, np.ndarray],
    paths: tuple[np.ndarray, np.ndarray, np.ndarray],
    values: np.ndarray,
    rng: np.random.Generator,
) -> SourceInfo:
    """Sample a source near u0, and look for kinks and for jumps in u.

    Raises `InputError` if the source is not finite near u0, or jumps as u changes.

    Args:
        nonlinear: the source.
        initial: the user's initial or terminal condition.
        u0: the initial condition in canonical coordinates.
        horizon: the final time of the user.
        points: the user's t (n,) and x (n, dim).
        paths: canonical times (m,), and points (m, dim) where paths begin and where they end.
        values: `initial` at x, (n,).
        rng: random numbers.
    """
    f, (t, x) = nonlinear.function, points
    at_initial = Function(_AtInitial(f, initial, nonlinear.uses_gradient))
    domain = "at u = u0, in the region and along the paths that leave it"
    force = probe("source", at_initial, (t, x), domain)
    margin = np.ptp(values) + np.max(np.abs(values)) + horizon * np.max(np.abs(force))
    u_range = float(np.min(values) - margin), float(np.max(values) + margin)
    # The two ends of each segment in u, or in (u, ∇u).
    u_ends = [rng.uniform(*u_range, len(t)) for _ in range(2)]
    ends: list[tuple[np.ndarray, ...]] = [(u,) for u in u_ends]
    if nonlinear.uses_gradient:
        du = evaluate_at(Function(jax.grad(initial)), x)
        ends = [
            (u, 2 * factor * rng.permutation(du))
            for u, factor in zip(u_ends, (1.0, -1.0), strict=True)
        ]

    def jumps_in_u(function: Function) -> bool:
        def value(*u: np.ndarray) -> np.ndarray:
            return np.nan_to_num(evaluate_at(function, t, x, *u))[:, None]

        return jumps(value, *ends)

    if jumps_in_u(f):
        raise InputError(
            "`source` jumps as u changes: where the solution crosses the jump the equation has no "
            "tangent, and nothing could be said of an answer. Smooth it over a width that you "
            "choose, for example 0.5 * (1 + jnp.tanh((u - level) / width)) in place of a step."
        )
    return SourceInfo(
        u_range,
        jumps_in_u(Function(_DerivativeInU(f))),
        nonlinear.uses_gradient or _is_flow_resolved(nonlinear, u0, *paths, rng),
    )


def _is_flow_resolved(
    nonlinear: SemilinearSource,
    u0: Function,
    s: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    rng: np.random.Generator,
) -> bool:
    """Whether the reaction flow is finite, and changes little with twice as many steps.

    It is evaluated at the times s (n,), where paths start and end (n, dim), and between the starts
    and their centre.
    """
    centre = np.mean(starts, axis=0)
    inner = centre + rng.random((len(starts), 1)) * (starts - centre)  # as collocation points are
    places = np.concatenate([ends, starts, inner])
    steps = nonlinear.flow_steps(starts.shape[1])
    coarse, fine = (
        evaluate_at(Function(ReactionFlow(nonlinear, u0, k * steps)), np.tile(s, 3), places)
        for k in (1, 2)
    )
    size = np.max(np.abs(fine))
    return bool(np.isfinite(size) and np.max(np.abs(coarse - fine)) <= _RESOLVED * size)


class _DerivativeInU(eqx.Module):
    """(t, x, u) or (t, x, u, ∇u) ↦ ∂F/∂u."""

    function: Function

    def __call__(self, t: Any, x: Any, u: Any, *du: Any) -> Any:
        return jax.grad(lambda v: self.function(t, x, v, *du))(u)


class _AtInitial(eqx.Module):
    """(t, x) ↦ F(t, x, u0(x), ∇u0(x))."""

    function: Function
    initial: Function
    uses_gradient: bool = eqx.field(static=True)

    def __call__(self, t: Any, x: Any) -> Any:
        u = self.initial(x)
        if not self.uses_gradient:
            return self.function(t, x, u)
        return self.function(t, x, u, jax.grad(self.initial)(x))
