"""Test problems with coefficients that depend on t and x, with exact solutions; any dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from heatnets.pde.problem import Problem
from heatnets.problems.shapes import AtStart, Constructor, Scalar, Vector, dimension, gaussian


def _solves(end: float = 0.5, **equation: Any) -> Callable[[Callable[..., Scalar]], Constructor]:
    """Decorator: the exact solution u(t, x) of an equation becomes a constructor.

    Args:
        end: the default horizon.
        **equation: coefficients and source, as arguments of `Problem`.
    """

    def decorate(u: Callable[..., Scalar]) -> Constructor:
        def construct(dim: int = 20, horizon: float = end) -> Problem:
            return Problem(dim, horizon, initial=AtStart(u), exact=u, **equation)

        construct.__doc__ = u.__doc__
        return construct

    return decorate


# Coefficients of sinh of a Brownian motion.
_SINH: dict[str, Any] = {
    "diffusion": lambda t, x: 1 + x**2,
    "drift": lambda t, x: x,
    "form": "trace",
}


@_solves(**_SINH)
def hyperbolic(t: Scalar, x: Vector) -> Scalar:
    """Brownian motion seen through sinh: A = diag(1 + x_i²), b = x in the form tr(A D²u);
    u0 = exp(-Σ asinh(x_i)²/d)."""
    return gaussian(jnp.sum(jnp.arcsinh(x) ** 2), 4 * t / x.size, x.size)


@_solves(**_SINH)
def hyperbolic_waves(t: Scalar, x: Vector) -> Scalar:
    """The same operator; u0 = Σ cos(2 asinh x_i)/√d."""
    return jnp.exp(-4 * t) * jnp.sum(jnp.cos(2 * jnp.arcsinh(x))) / np.sqrt(x.size)


@_solves(
    1.0,
    form="trace",
    diffusion=lambda t, x: 1 + 0.5 * jnp.cos(4 * t),
    drift=lambda t, x: jnp.sin(t + jnp.arange(x.size)),
    reaction=lambda t, x: jnp.cos(t) - 1.0,
)
def seasonal(t: Scalar, x: Vector) -> Scalar:
    """Coefficients of time alone: A = (1 + ½ cos 4t) I, b_i = sin(t + i), c = cos t - 1;
    u0 = exp(-|x|²/d)."""
    i = jnp.arange(x.size)
    moved = x + jnp.cos(i) - jnp.cos(t + i)
    growth, square = jnp.exp(jnp.sin(t) - t), moved @ moved
    spread = 4 * (t + jnp.sin(4 * t) / 8) / x.size
    return growth * gaussian(square, spread, x.size)


def _porous_source(t: Scalar, x: Vector) -> Scalar:
    """The source F for which exp(-t - |x|²/d) solves u_t = div(a ∇u) + b·∇u + c u + F.

    Here a = 1 + ½ sin(t + Σ x_i/√d), b = tanh x, c = -cos x_1.
    """
    d = x.size
    phase = t + jnp.sum(x) / np.sqrt(d)
    a, slope = 1 + 0.5 * jnp.sin(phase), 0.5 * jnp.cos(phase) / np.sqrt(d)
    second, first = 4 * (x @ x) / d**2 - 2, -2 / d * (slope * jnp.sum(x) + jnp.tanh(x) @ x)
    return jnp.exp(-t - x @ x / d) * (-1 - a * second - first + jnp.cos(x[0]))


@_solves(
    source=_porous_source,
    form="divergence",
    diffusion=lambda t, x: 1 + 0.5 * jnp.sin(t + jnp.sum(x) / np.sqrt(x.size)),
    drift=lambda t, x: jnp.tanh(x),
    reaction=lambda t, x: -jnp.cos(x[0]),
)
def porous(t: Scalar, x: Vector) -> Scalar:
    """Divergence form with everything: a = 1 + ½ sin(t + Σ x_i/√d), b = tanh x, c = -cos x_1, and a
    source; u = exp(-t - |x|²/d)."""
    return jnp.exp(-t - x @ x / x.size)


class Rotating(eqx.Module):
    """E exp(-|X_t|²/d) for the drift B x, B + Bᵀ = -2θ I."""

    B: Any
    theta: float

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        ahead = jax.scipy.linalg.expm(self.B * t) @ x
        square = ahead @ ahead
        spread = 2 * -jnp.expm1(-2 * self.theta * t) / (self.theta * x.size)
        return gaussian(square, spread, x.size)


def rotating(dim: int = 20, horizon: float = 0.5, seed: int = 0) -> Problem:
    """Paths that turn and revert: the drift B x with a random matrix B, B + Bᵀ = -1.6 I;
    u0 = exp(-|x|²/d)."""
    turn = np.random.default_rng(seed).standard_normal((dimension(dim), dim)) / np.sqrt(dim)
    B = -0.8 * np.eye(dim) + 0.5 * (turn - turn.T)
    u = Rotating(B, 0.8)
    return Problem(dim, horizon, initial=AtStart(u), exact=u, drift=lambda t, x: jnp.asarray(B) @ x)
