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

from heatnets.frames import Frame
from heatnets.function import Function

_FLOW_STEPS = (
    4,
    1,
)  # of Runge and Kutta, along a feature: where f is the same at all places, and where it is not and derivatives go through each step

Scalar = Float[Array, ""]
Vector = Float[Array, "dim"]


class Tangent(NamedTuple):
    """A source at a value and a slope: f, ∂f/∂u, ∂f/∂∇u."""

    force: Any
    by_value: Any
    by_slope: Any


class Nonlinear(eqx.Module):
    """(s, y, v, ∇v) ↦ f(t, x, u, ∇u) / (a ds/dt), what drives v."""

    function: Function
    frame: Frame
    slopes: bool = eqx.field(static=True)  # whether f depends on ∇u

    def __call__(self, s: Scalar, y: Vector, v: Scalar, dv: Vector) -> Scalar:
        t, x = self.frame.outward(jnp.asarray(s), y)
        a = self.frame.amplitude(t)
        given = (t, x, a * v, a * self.frame.slope(t, x) * dv) if self.slopes else (t, x, a * v)
        return self.function(*given) / (a * self.frame.rate(t))

    def everywhere_alike(self, dim: int) -> bool:
        """Whether f depends on t and u alone."""
        if self.slopes:
            return False
        number, point = jax.ShapeDtypeStruct((), jnp.float64), jax.ShapeDtypeStruct((dim,), jnp.float64)
        jaxpr = jax.make_jaxpr(self.function)(number, point, number).jaxpr
        x = jaxpr.invars[1]
        return all(x is not v for e in jaxpr.eqns for v in e.invars) and x not in jaxpr.outvars

    def flow_steps(self, dim: int) -> int:
        return _FLOW_STEPS[0 if self.everywhere_alike(dim) else 1]

    def tangent(self, s: Scalar, y: Vector, v: Scalar, dv: Vector) -> Tangent:
        if not self.slopes:
            force, by_value = jax.jvp(lambda v: self(s, y, v, dv), (v,), (jnp.ones_like(v),))
            return Tangent(force, by_value, jnp.zeros_like(y))
        force, (by_value, by_slope) = jax.value_and_grad(lambda v, dv: self(s, y, v, dv), (0, 1))(v, dv)
        return Tangent(force, by_value, by_slope)


_NODES = 9


class Polynomial(eqx.Module):
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


class Reacted(eqx.Module):
    """(s, y) ↦ Ψ_s(u0(y))."""

    nonlinear: Nonlinear
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


class Guessed(eqx.Module):
    """(s, y) ↦ f(s, y, Ψ_s(u0(y))); without a flow f(s, y, u0(y), ∇u0(y))."""

    nonlinear: Nonlinear
    initial: Function
    flow: Reacted | None

    def __call__(self, s: Scalar, y: Vector) -> Scalar:
        slope = jax.grad(self.initial)(y) if self.nonlinear.slopes else jnp.zeros_like(y)
        return self.through(s, y, self.initial(y), slope)

    def through(self, s: Scalar, y: Vector, v: Scalar, slope: Vector | None = None) -> Scalar:
        there = v if self.flow is None else self.flow.through(s, y, v)
        return self.nonlinear(s, y, there, jnp.zeros_like(y) if slope is None else slope)
