"""Test problems from the literature with sources f(u) or f(u, ∇u), in any dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from heatnets.pde.function import Function
from heatnets.pde.problem import Problem
from heatnets.pde.regions import Point
from heatnets.problems.shapes import Constructor, Scalar, Vector, dimension, number

# Nodes log λ for ∫ e^{-λ} ... dλ: the trapezoidal rule is exact to rounding for such integrands.
_LOGARITHMS = np.linspace(-60.0, 6.0, 600)


def _bell(x: Vector) -> Scalar:
    """1 / (2 + 0.4 |x|²)."""
    return 1 / (2 + 0.4 * (x @ x))


def _bell_laplacian(x: Vector) -> Scalar:
    square, v = x @ x, _bell(x)
    return -0.8 * x.size * v**2 + 1.28 * square * v**3


def _from_bell(source: Callable[..., Scalar]) -> Constructor:
    """Decorator: f of u_t = D Δu + f(u) with u0 = `_bell`, at the origin, becomes a constructor."""

    def construct(dim: int = 100, horizon: float = 0.3, diffusion: float = 1.0) -> Problem:
        return Problem(
            dim,
            horizon,
            initial=Function(_bell, _bell_laplacian),
            source=source,
            diffusion=number("diffusion", diffusion),
            region=Point(np.zeros(dimension(dim))),
        )

    construct.__doc__ = source.__doc__
    return construct


@_from_bell
def allen_cahn(t: Scalar, x: Vector, u: Scalar) -> Scalar:
    """u_t = D Δu + u - u³, u0 = 1/(2 + 0.4|x|²), at the origin."""
    return u - u**3


@_from_bell
def sine_gordon(t: Scalar, x: Vector, u: Scalar) -> Scalar:
    """u_t = D Δu + sin u, the same start."""
    return jnp.sin(u)


@_from_bell
def rational(t: Scalar, x: Vector, u: Scalar) -> Scalar:
    """u_t = D Δu + (1 - u²)/(1 + u²), the same start."""
    return (1 - u**2) / (1 + u**2)


def _initial_cost(x: Vector) -> Scalar:
    """log((1 + |x|²)/2)."""
    return jnp.log(0.5 * (1 + x @ x))


def _optimal_cost(t: Scalar, x: Vector) -> Scalar:
    """The solution -log E 2/(1 + |x + √(2t) ξ|²), ξ standard normal, by the Cole-Hopf transform.

    It is evaluated as -log 2∫ e^{-λ} (1 + 4λt)^{-d/2} exp(-λ|x|²/(1 + 4λt)) dλ.
    """
    λ = jnp.exp(_LOGARITHMS)
    wide = 1 + 4 * λ * t
    logs = _LOGARITHMS - λ - 0.5 * x.size * jnp.log(wide) - λ * (x @ x) / wide
    return -jax.scipy.special.logsumexp(logs) - np.log(2 * (_LOGARITHMS[1] - _LOGARITHMS[0]))


def _control(t: Scalar, x: Vector, u: Scalar, du: Vector) -> Scalar:
    return -du @ du


def hamilton_jacobi(dim: int = 100, horizon: float = 1.0) -> Problem:
    """u_t = Δu - |∇u|², u0 = log((1 + |x|²)/2): linear-quadratic control, at the origin."""
    origin = Point(np.zeros(dimension(dim)))
    return Problem(
        dim, horizon, initial=_initial_cost, source=_control, exact=_optimal_cost, region=origin
    )


class Wave(eqx.Module):
    """κ + 1 + sin(λ Σ x_i) exp(λ² d (t - T)/2), λ = 1/√d."""

    kappa: Any
    horizon: Any

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        mean = self.kappa + 1
        return mean + jnp.sin(jnp.sum(x) / np.sqrt(x.size)) * jnp.exp(0.5 * (t - self.horizon))

    def source(self, t: Scalar, x: Vector, u: Scalar) -> Scalar:
        """min(1, (u - v)²), v the solution."""
        return jnp.minimum(1.0, (u - self(t, x)) ** 2)


def reaction_diffusion(dim: int = 100, horizon: float = 1.0, kappa: float = 0.6) -> Problem:
    """v_t + ½Δv + min(1, (v - solution)²) = 0, v(T) = κ + 1 + sin(Σ x_i/√d): oscillating, of the
    deep-BSDE paper."""
    T: Any = np.asarray(float(horizon))
    v = Wave(number("kappa", kappa), T)
    return Problem(
        dim, horizon, terminal=lambda x: v(T, x), source=v.source, exact=v, diffusion=0.5
    )


class Power(eqx.Module):
    """sin((T - t + |x|²/d)^0.4)."""

    horizon: Any

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return jnp.sin((self.horizon - t + x @ x / x.size) ** 0.4)

    def source(self, t: Scalar, x: Vector, u: Scalar, du: Vector) -> Scalar:
        """|∇v|² - |∇ψ|² - ψ_t - ½Δψ, ψ the solution, a function of r = T - t + |x|²/d."""
        d = x.size
        r = self.horizon - t + x @ x / d
        p, p1, p2 = r**0.4, 0.4 * r**-0.6, -0.24 * r**-1.6
        first = jnp.cos(p) * p1  # ∂ψ/∂r
        second = -jnp.sin(p) * p1**2 + jnp.cos(p) * p2  # ∂²ψ/∂r²
        square = 4 * (x @ x) / d**2  # |∇r|²
        return du @ du - first**2 * square + first - 0.5 * (second * square + 2 * first)


def quadratic_gradient(dim: int = 100, horizon: float = 1.0) -> Problem:
    """v_t + ½Δv + |∇v|² = what makes sin((T - t + |x|²/d)^0.4) a solution: of the deep-BSDE
    paper."""
    T: Any = np.asarray(float(horizon))
    v = Power(T)
    return Problem(
        dim, horizon, terminal=lambda x: v(T, x), source=v.source, exact=v, diffusion=0.5
    )


def _front(t: Scalar, x: Vector) -> Scalar:
    """1/(1 + exp(-t - Σ x_i/d))."""
    return jax.nn.sigmoid(t + jnp.mean(x))


def _front_source(t: Scalar, x: Vector, u: Scalar, du: Vector) -> Scalar:
    d = x.size
    return (u - (2 + d) / (2 * d)) * d * jnp.sum(du)


def burgers(dim: int = 20, horizon: float = 0.5) -> Problem:
    """v_t + d²/2 Δv + d (v - (2 + d)/(2d)) Σ ∂_i v = 0, a travelling front: Burgers type, of the
    deep-BSDE paper."""
    T: Any = np.asarray(float(horizon))
    D = 0.5 * dimension(dim) ** 2
    return Problem(
        dim,
        horizon,
        terminal=lambda x: _front(T, x),
        source=_front_source,
        exact=_front,
        diffusion=D,
    )
