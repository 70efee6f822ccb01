"""Test problems with coefficients that depend on t and x, with exact solutions; any dimension."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets.pde.problem import Problem
from heatnets.problems.constant_coefficients import Start
from heatnets.problems.parameters import dimension

Vector = Float[Array, " dim"]
Scalar = Float[Array, ""]


def _bell(square: Any, spread: Any, dim: int) -> Any:
    """E exp(-|Y|²/d) = (1 + q)^{-d/2} exp(-|y|²/(d (1 + q))) for Y normal with mean y.

    The components of Y are independent with equal variance, q = 2 variance/d.

    Args:
        square: |y|².
        spread: q.
        dim: d.
    """
    return jnp.exp(-0.5 * dim * jnp.log1p(spread) - square / (dim * (1 + spread)))


class Hyperbolic(eqx.Module):
    """E exp(-|Y|²/d) for the Brownian motion Y = asinh X."""

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return _bell(jnp.sum(jnp.arcsinh(x) ** 2), 4 * t / x.size, x.size)


class HyperbolicWaves(eqx.Module):
    """Σ e^{-4t} cos(2 asinh x_i)/√d."""

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return jnp.exp(-4 * t) * jnp.sum(jnp.cos(2 * jnp.arcsinh(x))) / np.sqrt(x.size)


class Rotating(eqx.Module):
    """E exp(-|X_t|²/d) for the drift B x, B + Bᵀ = -2θ I."""

    B: Any
    theta: float

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        ahead = jax.scipy.linalg.expm(self.B * t) @ x
        square = ahead @ ahead
        spread = 2 * -jnp.expm1(-2 * self.theta * t) / (self.theta * x.size)
        return _bell(square, spread, x.size)


class Seasonal(eqx.Module):
    """E exp(-|X_t|²/d) e^{sin t - t} for A = (1 + ½ cos 4t) I, b_i = sin(t + i), c = cos t - 1."""

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        i = jnp.arange(x.size)
        moved = x + jnp.cos(i) - jnp.cos(t + i)
        growth, square = jnp.exp(jnp.sin(t) - t), moved @ moved
        spread = 4 * (t + jnp.sin(4 * t) / 8) / x.size
        return growth * _bell(square, spread, x.size)


class Porous(eqx.Module):
    """exp(-t - |x|²/d)."""

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return jnp.exp(-t - x @ x / x.size)


class PorousSource(eqx.Module):
    """The source F for which exp(-t - |x|²/d) solves u_t = div(a ∇u) + b·∇u + c u + F.

    Here a = 1 + ½ sin(t + Σ x_i/√d), b = tanh x, c = -cos x_1.
    """

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        d = x.size
        phase = t + jnp.sum(x) / np.sqrt(d)
        a, slope = 1 + 0.5 * jnp.sin(phase), 0.5 * jnp.cos(phase) / np.sqrt(d)
        second, first = 4 * (x @ x) / d**2 - 2, -2 / d * (slope * jnp.sum(x) + jnp.tanh(x) @ x)
        return jnp.exp(-t - x @ x / d) * (-1 - a * second - first + jnp.cos(x[0]))


def hyperbolic(dim: int = 20, horizon: float = 0.5) -> Problem:
    """Brownian motion seen through sinh: A = diag(1 + x_i²), b = x in the form tr(A D²u);
    u0 = exp(-Σ asinh(x_i)²/d)."""
    u = Hyperbolic()
    return Problem(dim=dimension(dim), horizon=horizon, initial=Start(u), exact=u, **_SINH)


def hyperbolic_waves(dim: int = 20, horizon: float = 0.5) -> Problem:
    """The same operator; u0 = Σ cos(2 asinh x_i)/√d."""
    u = HyperbolicWaves()
    return Problem(dim=dimension(dim), horizon=horizon, initial=Start(u), exact=u, **_SINH)


# Coefficients of sinh of a Brownian motion.
_SINH: dict[str, Any] = {
    "diffusion": lambda t, x: 1 + x**2,
    "drift": lambda t, x: x,
    "form": "trace",
}


def rotating(dim: int = 20, horizon: float = 0.5, seed: int = 0) -> Problem:
    """Paths that turn and revert: the drift B x with a random matrix B, B + Bᵀ = -1.6 I;
    u0 = exp(-|x|²/d)."""
    turn = np.random.default_rng(seed).standard_normal((dimension(dim), dim)) / np.sqrt(dim)
    B = -0.8 * np.eye(dim) + 0.5 * (turn - turn.T)
    u = Rotating(B, 0.8)
    return Problem(
        dim=dim, horizon=horizon, initial=Start(u), exact=u, drift=lambda t, x: jnp.asarray(B) @ x
    )


def seasonal(dim: int = 20, horizon: float = 1.0) -> Problem:
    """Coefficients of time alone: A = (1 + ½ cos 4t) I, b_i = sin(t + i), c = cos t - 1;
    u0 = exp(-|x|²/d)."""
    u = Seasonal()
    return Problem(
        dim=dimension(dim),
        horizon=horizon,
        initial=Start(u),
        exact=u,
        form="trace",
        diffusion=lambda t, x: 1 + 0.5 * jnp.cos(4 * t),
        drift=lambda t, x: jnp.sin(t + jnp.arange(x.size)),
        reaction=lambda t, x: jnp.cos(t) - 1.0,
    )


def porous(dim: int = 20, horizon: float = 0.5) -> Problem:
    """Divergence form with everything: a = 1 + ½ sin(t + Σ x_i/√d), b = tanh x, c = -cos x_1, and a
    source; u = exp(-t - |x|²/d)."""
    u = Porous()
    return Problem(
        dim=dimension(dim),
        horizon=horizon,
        initial=Start(u),
        source=PorousSource(),
        exact=u,
        form="divergence",
        diffusion=lambda t, x: 1 + 0.5 * jnp.sin(t + jnp.sum(x) / np.sqrt(x.size)),
        drift=lambda t, x: jnp.tanh(x),
        reaction=lambda t, x: -jnp.cos(x[0]),
    )
