"""Sources F(s, y, v, ∇v) of the canonical problem, with linearizations, and approximations.

LinearSource      F(s, y), also F = 0
SemilinearSource  F that depends on v or ∇v
ReactionFlow      Ψ_s(v0(y)): solution of the ODE dv/ds = f(s, y, v) from v0(y), for f without ∇u
FrozenSource      f along the reaction flow, or at v0: the source for a first guess
ChebyshevSource   interpolant of f in u: a smooth f for the guess, if f has kinks in u
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets._core.errors import InputError
from heatnets.pde.function import Function
from heatnets.pde.function_values import Arrays, evaluate_at, has_jump, probe_finite
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


class Source(eqx.Module):
    """A source (s, y, v, ∇v) ↦ F of the canonical problem."""

    uses_u: eqx.AbstractVar[bool]  # whether F depends on v or ∇v
    uses_gradient: eqx.AbstractVar[bool]  # whether F depends on ∇v

    @abstractmethod
    def __call__(self, s: Scalar, y: Vector, v: Scalar, dv: Vector) -> Scalar:
        """F at one point, ()."""

    @abstractmethod
    def linearize(self, s: Scalar, y: Vector, v: Scalar, dv: Vector) -> SourceLinearization:
        """F and its derivatives in v and ∇v at one point."""


class LinearSource(Source):
    """A source F(s, y) that does not depend on the solution, or F = 0."""

    function: Function | None = None  # None for F = 0
    uses_u: bool = eqx.field(static=True, default=False, init=False)
    uses_gradient: bool = eqx.field(static=True, default=False, init=False)

    def __call__(self, s: Scalar, y: Vector, v: Scalar, dv: Vector) -> Scalar:
        return jnp.zeros(()) if self.function is None else self.function(s, y)

    def linearize(self, s: Scalar, y: Vector, v: Scalar, dv: Vector) -> SourceLinearization:
        return SourceLinearization(self(s, y, v, dv), jnp.zeros_like(v), jnp.zeros_like(y))


class SemilinearSource(Source):
    """A source that depends on the solution: (s, y, v, ∇v) ↦ f(t, x, u, ∇u) / (a |ds/dt|)."""

    function: Function  # the user's f(t, x, u) or f(t, x, u, ∇u)
    transform: TransformChain
    uses_gradient: bool = eqx.field(static=True)
    uses_u: bool = eqx.field(static=True, default=True, init=False)

    def __call__(self, s: Scalar, y: Vector, v: Scalar, dv: Vector) -> Scalar:
        t, x = self.transform.from_canonical(jnp.asarray(s), y)
        a = self.transform.value_scale(t)
        du = (a * self.transform.jacobian_diag(t, x) * dv,) if self.uses_gradient else ()
        return self.function(t, x, a * v, *du) / (a * self.transform.time_derivative(t))

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
        if self.uses_gradient:
            value, slopes = jax.value_and_grad(partial(self, s, y), (0, 1))(v, dv)
            return SourceLinearization(value, *slopes)
        value, d_u = jax.jvp(lambda v: self(s, y, v, dv), (v,), (jnp.ones_like(v),))
        return SourceLinearization(value, d_u, jnp.zeros_like(y))


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

    source: SemilinearSource
    initial: Function
    steps: int = eqx.field(static=True)

    def __call__(self, s: Scalar, y: Vector) -> Scalar:
        return self.apply(s, y, self.initial(y))

    def apply(self, s: Scalar, y: Vector, v: Scalar) -> Scalar:
        """Ψ_s(v): solution at the time s of dv/ds = f(s, y, v) from the value v at s = 0."""
        h = s / self.steps

        @jax.jit  # traced once, not at each of the four stages of a step
        def f(k: Any, v: Scalar) -> Scalar:
            return self.source(k * h, y, v, jnp.zeros_like(y))

        def step(v: Scalar, k: Any) -> tuple[Scalar, None]:
            k1 = f(k, v)
            k2 = f(k + 0.5, v + 0.5 * h * k1)
            k3 = f(k + 0.5, v + 0.5 * h * k2)
            return v + h / 6 * (k1 + 2 * k2 + 2 * k3 + f(k + 1, v + h * k3)), None

        if self.steps == 1:
            return step(v, 0.0)[0]
        # A loop: written out, the steps took most of the time of tracing and compiling.
        return jax.lax.scan(step, v, jnp.arange(self.steps, dtype=float))[0]


class FrozenSource(eqx.Module):
    """(s, y) ↦ f(s, y, Ψ_s(v0(y))); without a flow f(s, y, v0(y), ∇v0(y))."""

    source: SemilinearSource
    initial: Function
    flow: ReactionFlow | None

    def __call__(self, s: Scalar, y: Vector) -> Scalar:
        slope = jax.grad(self.initial)(y) if self.source.uses_gradient else jnp.zeros_like(y)
        return self.apply(s, y, self.initial(y), slope)

    def apply(self, s: Scalar, y: Vector, v: Scalar, slope: Vector | None = None) -> Scalar:
        """The source at (s, y), for v0(y) = v and ∇v0(y) = slope (None for zero)."""
        value = v if self.flow is None else self.flow.apply(s, y, v)
        return self.source(s, y, value, jnp.zeros_like(y) if slope is None else slope)


_RESOLVED = 1e-2  # largest relative change of a reaction flow with twice as many steps


def inspect_source(
    source: SemilinearSource,
    initial: Function,
    horizon: float,
    points: tuple[np.ndarray, np.ndarray],
    values: np.ndarray,
    rng: np.random.Generator,
) -> tuple[tuple[float, float], bool]:
    """Sample a source near u0, and look for kinks and for jumps in u.

    Raises `InputError` if the source is not finite near u0, or jumps as u changes.

    Args:
        source: the source.
        initial: the user's initial or terminal condition.
        horizon: the final time of the user.
        points: the user's t (n,) and x (n, dim).
        values: `initial` at x, (n,).
        rng: random numbers.

    Returns:
        The range of u in which the source was evaluated, and whether it has kinks in u there.
    """
    f, (t, x) = source.function, points
    at_initial = Function(_AtInitial(f, initial, source.uses_gradient))
    domain = "at u = u0, in the region and along the paths that leave it"
    force = probe_finite("source", at_initial, points, domain)
    margin = np.ptp(values) + np.max(np.abs(values)) + horizon * np.max(np.abs(force))
    u_range = float(np.min(values) - margin), float(np.max(values) + margin)
    # The two ends of each segment in u, or in (u, ∇u), at the same (t, x).
    ends: list[Arrays] = [(t, x, rng.uniform(*u_range, len(t))) for _ in range(2)]
    if source.uses_gradient:
        du = evaluate_at(Function(eqx.filter_grad(initial)), x)
        ends = [(*ends[k], 2 * (-1.0) ** k * rng.permutation(du)) for k in (0, 1)]

    def jumps_in_u(function: Function) -> bool:
        return has_jump(lambda *args: np.nan_to_num(evaluate_at(function, *args)), *ends)

    if jumps_in_u(f):
        raise InputError(
            "`source` jumps as u changes: where the solution crosses the jump the equation has no "
            "tangent, and nothing could be said of an answer. Smooth it over a width that you "
            "choose, for example 0.5 * (1 + jnp.tanh((u - level) / width)) in place of a step."
        )
    return u_range, jumps_in_u(Function(_DerivativeInU(f)))


def is_flow_resolved(
    source: SemilinearSource,
    u0: Function,
    s: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    rng: np.random.Generator,
) -> bool:
    """Whether the reaction flow is finite, and changes little with twice as many steps.

    It is evaluated at the canonical times s (n,), where paths start and end (n, dim), and between
    the starts and their centre. True if the source depends on ∇u: it has no flow.
    """
    if source.uses_gradient:
        return True
    centre = np.mean(starts, axis=0)
    inner = centre + rng.random((len(starts), 1)) * (starts - centre)  # as collocation points are
    points = np.tile(s, 3), np.concatenate([ends, starts, inner])
    steps = source.flow_steps(starts.shape[1])
    coarse, fine = (
        evaluate_at(Function(ReactionFlow(source, u0, k * steps)), *points) for k in (1, 2)
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
        du = (jax.grad(self.initial)(x),) if self.uses_gradient else ()
        return self.function(t, x, self.initial(x), *du)
