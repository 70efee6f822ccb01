"""Sources that depend on u: f(t, x, u) or f(t, x, u, ∇u), in plain coordinates; their tangent, and what they alone make of u0.

Nonlinear   f with its derivatives in u and ∇u
Reacted     Ψ_s(u0(y)): dv/ds = f(s, y, v) from u0(y), each place for itself; for sources without ∇u
Guessed     f along Reacted, or at u0 itself: the source of a first guess
Polynomial  f with a polynomial in u in its place: a smooth stand-in for a guess where f has kinks in u
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets._core.errors import InputError
from heatnets.pde.function import Function, jumps, many, probe
from heatnets.pde.transforms import TransformChain

_FLOW_STEPS = (
    4,
    1,
)  # of Runge and Kutta, along a feature: where f is the same at all places, and where it is not and derivatives go through each step

Scalar = Float[Array, ""]
Vector = Float[Array, "dim"]


class SourceLinearization(NamedTuple):
    """A source at a value and a slope: f, ∂f/∂u, ∂f/∂∇u."""

    force: Any
    d_u: Any
    d_grad: Any


class SemilinearSource(eqx.Module):
    """(s, y, v, ∇v) ↦ f(t, x, u, ∇u) / (a ds/dt), what drives v."""

    function: Function
    transform: TransformChain
    slopes: bool = eqx.field(static=True)  # whether f depends on ∇u

    def __call__(self, s: Scalar, y: Vector, v: Scalar, dv: Vector) -> Scalar:
        t, x = self.transform.from_canonical(jnp.asarray(s), y)
        a = self.transform.value_scale(t)
        given = (t, x, a * v, a * self.transform.slope(t, x) * dv) if self.slopes else (t, x, a * v)
        return self.function(*given) / (a * self.transform.rate(t))

    def is_x_independent(self, dim: int) -> bool:
        """Whether f depends on t and u alone."""
        if self.slopes:
            return False
        number, point = (
            jax.ShapeDtypeStruct((), jnp.float64),
            jax.ShapeDtypeStruct((dim,), jnp.float64),
        )
        jaxpr = jax.make_jaxpr(self.function)(number, point, number).jaxpr
        x = jaxpr.invars[1]
        return all(x is not v for e in jaxpr.eqns for v in e.invars) and x not in jaxpr.outvars

    def flow_steps(self, dim: int) -> int:
        return _FLOW_STEPS[0 if self.is_x_independent(dim) else 1]

    def tangent(self, s: Scalar, y: Vector, v: Scalar, dv: Vector) -> SourceLinearization:
        if not self.slopes:
            force, d_u = jax.jvp(lambda v: self(s, y, v, dv), (v,), (jnp.ones_like(v),))
            return SourceLinearization(force, d_u, jnp.zeros_like(y))
        force, (d_u, d_grad) = jax.value_and_grad(lambda v, dv: self(s, y, v, dv), (0, 1))(v, dv)
        return SourceLinearization(force, d_u, d_grad)


_NODES = 9


class ChebyshevSource(eqx.Module):
    """(t, x, u) ↦ the polynomial in u that is f at the points of Chebyshev between two values; f without ∇u."""

    function: Function
    low: Any
    high: Any

    def __call__(self, t: Scalar, x: Vector, u: Scalar) -> Scalar:
        angles = np.pi * (np.arange(_NODES) + 0.5) / _NODES
        z = (2 * u - self.low - self.high) / (self.high - self.low)
        at = 0.5 * (self.low + self.high) + 0.5 * (self.high - self.low) * np.cos(angles)
        values = jnp.stack([self.function(t, x, a) for a in at])
        before, polynomial, total = jnp.ones_like(z), z, jnp.mean(values)
        for k in range(1, _NODES):  # of Chebyshev
            total = total + 2 * jnp.mean(values * np.cos(k * angles)) * polynomial
            before, polynomial = polynomial, 2 * z * polynomial - before
        return total


class ReactionFlow(eqx.Module):
    """(s, y) ↦ Ψ_s(u0(y))."""

    nonlinear: SemilinearSource
    initial: Function
    steps: int = eqx.field(static=True)

    def __call__(self, s: Scalar, y: Vector) -> Scalar:
        return self.through(s, y, self.initial(y))

    def through(self, s: Scalar, y: Vector, v: Scalar) -> Scalar:
        """Ψ_s(v) at y."""
        h = s / self.steps

        def f(k: float, v: Scalar) -> Scalar:
            return self.nonlinear(k * h, y, v, jnp.zeros_like(y))

        for k in range(self.steps):
            one = f(k, v)
            two = f(k + 0.5, v + 0.5 * h * one)
            three = f(k + 0.5, v + 0.5 * h * two)
            v = v + h / 6 * (one + 2 * two + 2 * three + f(k + 1, v + h * three))
        return v


class FrozenSource(eqx.Module):
    """(s, y) ↦ f(s, y, Ψ_s(u0(y))); without a flow f(s, y, u0(y), ∇u0(y))."""

    nonlinear: SemilinearSource
    initial: Function
    flow: ReactionFlow | None

    def __call__(self, s: Scalar, y: Vector) -> Scalar:
        slope = jax.grad(self.initial)(y) if self.nonlinear.slopes else jnp.zeros_like(y)
        return self.through(s, y, self.initial(y), slope)

    def through(self, s: Scalar, y: Vector, v: Scalar, slope: Vector | None = None) -> Scalar:
        there = v if self.flow is None else self.flow.through(s, y, v)
        return self.nonlinear(s, y, there, jnp.zeros_like(y) if slope is None else slope)


_RESOLVED = 1e-2  # relative: what twice as many steps of a source's flow may change


class SourceInfo(NamedTuple):
    """What is known of a source: values of u between which it was looked at; whether it has kinks in u; whether what it alone makes of u0 can be computed."""

    u_range: tuple[float, float]
    source_has_kinks: bool
    flow_resolved: bool


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
    """Refuse a source that is not finite near u0, or jumps as u changes.

    `points` are the user's (t, x) where `initial` has the `values`; `paths` are plain times with the places where paths begin and end, and `u0` is the plain initial condition.
    """
    f, (t, x) = nonlinear.function, points
    begun = Function(_AtInitial(f, initial, nonlinear.slopes))
    force = probe(
        "source", begun, (t, x), "at u = u0, in the region and along the paths that leave it"
    )
    wide = np.ptp(values) + np.max(np.abs(values)) + horizon * np.max(np.abs(force))
    u_range = float(np.min(values) - wide), float(np.max(values) + wide)
    ends = [rng.uniform(*u_range, len(t)) for _ in range(2)]
    given: list[tuple[np.ndarray, ...]] = [(u,) for u in ends]
    if nonlinear.slopes:
        du = many(Function(jax.grad(initial)), x)
        given = [
            (u, 2 * factor * rng.permutation(du))
            for u, factor in zip(ends, (1.0, -1.0), strict=True)
        ]

    def jumping(function: Function) -> bool:
        return jumps(lambda *moved: np.nan_to_num(many(function, t, x, *moved))[:, None], *given)

    if jumping(f):
        raise InputError(
            "`source` jumps as u changes: where the solution crosses the jump the equation has no tangent, and nothing could be said of an answer. Smooth it over a width that you choose, "
            "for example 0.5 * (1 + jnp.tanh((u - level) / width)) in place of a step."
        )
    return SourceInfo(
        u_range,
        jumping(Function(_DerivativeInU(f))),
        nonlinear.slopes or _flows(nonlinear, u0, *paths, rng),
    )


def _flows(
    nonlinear: SemilinearSource,
    u0: Function,
    s: np.ndarray,
    near: np.ndarray,
    far: np.ndarray,
    rng: np.random.Generator,
) -> bool:
    """Whether the flow is finite, and twice as many steps change little."""
    centre = np.mean(near, axis=0)
    places = np.concatenate(
        [far, near, centre + rng.random((len(near), 1)) * (near - centre)]
    )  # as rows are placed
    steps = nonlinear.flow_steps(near.shape[1])
    few, more = (
        many(Function(ReactionFlow(nonlinear, u0, k * steps)), np.tile(s, 3), places)
        for k in (1, 2)
    )
    size = np.max(np.abs(more))
    return bool(np.isfinite(size) and np.max(np.abs(few - more)) <= _RESOLVED * size)


class _DerivativeInU(eqx.Module):
    """(t, x, u, ...) ↦ ∂F/∂u."""

    function: Function

    def __call__(self, t: Any, x: Any, u: Any, *du: Any) -> Any:
        return jax.grad(lambda v: self.function(t, x, v, *du))(u)


class _AtInitial(eqx.Module):
    """(t, x) ↦ F(t, x, u0(x), ∇u0(x))."""

    function: Function
    initial: Function
    slopes: bool = eqx.field(static=True)

    def __call__(self, t: Any, x: Any) -> Any:
        return self.function(
            t, x, self.initial(x), *((jax.grad(self.initial)(x),) if self.slopes else ())
        )
