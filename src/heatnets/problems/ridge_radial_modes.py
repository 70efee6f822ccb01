"""Heat equations with exact solutions: functions of a·x or of |x|², and sums of eigenfunctions.

Each function under a decorator is the mathematics of one problem: a profile p(t, y, D, d), or the
eigenfunctions; the decorator makes the constructor of the problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array

from heatnets._core import elementary
from heatnets._core.errors import check_int
from heatnets.pde.problem import Problem
from heatnets.problems.shapes import (
    AtStart,
    Constructor,
    Modes,
    OneCoordinate,
    Radius,
    Ridge,
    Scalar,
    Vector,
    dimension,
    number,
    with_laplacian,
)


def _heat(
    shape: Callable[..., Any], forced: bool = False
) -> Callable[[Callable[..., Any]], Constructor]:
    """Decorator: a function that `shape` completes to an exact solution becomes a constructor.

    Args:
        shape: (function, dim, D, maths) -> the exact solution; maths is the module of sin and cos.
        forced: whether the solution has a source.
    """

    def decorate(function: Callable[..., Any]) -> Constructor:
        def construct(
            dim: int = 100, horizon: float = 0.5, diffusion: float = 1.0, closed_form: bool = True
        ) -> Problem:
            n, maths = dimension(dim), elementary if closed_form else jnp
            u = shape(function, n, number("diffusion", diffusion), maths)
            source = with_laplacian(replace(u, forced=True), closed_form) if forced else None
            start = u.start if isinstance(u, Quadratic) else AtStart(u)
            return Problem(
                n,
                horizon,
                diffusion=float(u.diffusion),
                initial=with_laplacian(start, closed_form),
                source=source,
                exact=u,
            )

        construct.__doc__ = function.__doc__
        return construct

    return decorate


def _unit(dim: int) -> np.ndarray:
    """A unit vector with entries proportional to 1/i, shape (dim,).

    A few coordinates dominate it, so that ridges along it are far from additive.
    """
    a = 1.0 / np.arange(1, dim + 1)
    return a / np.linalg.norm(a)


def _even(dim: int) -> np.ndarray:
    """The unit vector with equal entries, shape (dim,)."""
    return np.full(dim, 1 / np.sqrt(dim))


# --- functions of one coordinate ---


def _along(weights: Callable[[int], np.ndarray]) -> Callable[..., OneCoordinate]:
    """The shape p(t, a·x)."""
    return lambda profile, dim, D, maths: OneCoordinate(profile, Ridge(weights(dim)), D)


def _radial(profile: Callable[..., Scalar], dim: int, D: Any, maths: Any) -> OneCoordinate:
    """The shape p(t, |x|²/d)."""
    return OneCoordinate(profile, Radius(dim), D)


@_heat(_radial)
def radial_gaussian(t: Scalar, y: Scalar, D: Scalar, d: int) -> Scalar:
    """u0 = exp(-|x|²/d), no source."""
    spread = 4 * D * t / d
    return jnp.exp(-0.5 * d * jnp.log1p(spread) - y / (1 + spread))


@_heat(_radial)
def polynomial(t: Scalar, y: Scalar, D: Scalar, d: int) -> Scalar:
    """u0 = |x|⁴/d², no source."""
    c = 4 * (1 + 2 / d)
    return y**2 + c * D * t * y + c * (D * t) ** 2


@_heat(_radial, forced=True)
def forced_radial(t: Scalar, y: Scalar, D: Scalar, d: int) -> Scalar:
    """u0 = 0, u = t exp(-|x|²/d)."""
    return t * jnp.exp(-y)


@_heat(_along(_unit))
def ridge(t: Scalar, y: Scalar, D: Scalar, d: int) -> Scalar:
    """u0 = exp(-(a·x)²), a ~ (1, 1/2, 1/3, ...), no source."""
    return jnp.exp(-(y**2) / (1 + 4 * D * t)) / jnp.sqrt(1 + 4 * D * t)


@_heat(_along(_unit), forced=True)
def moving_ridge(t: Scalar, y: Scalar, D: Scalar, d: int) -> Scalar:
    """u = exp(-(a·x - t)²), a ~ (1, 1/2, 1/3, ...): initial condition and source matter alike."""
    return jnp.exp(-((y - t) ** 2))


@_heat(_along(_unit), forced=True)
def forced_ridge(t: Scalar, y: Scalar, D: Scalar, d: int) -> Scalar:
    """u0 = 0, u = sin(3t) exp(-(a·x)²), a ~ (1, 1/2, 1/3, ...)."""
    return jnp.sin(3 * t) * jnp.exp(-(y**2))


@_heat(_along(_even))
def smooth_basket(t: Scalar, y: Scalar, D: Scalar, d: int) -> Scalar:
    """A call on a basket of equal weights, its payoff smoothed over a width of 0.3: Bachelier's
    formula."""
    # E[(y - K + σ N)⁺], σ² = 0.3² + 2Dt, for N standard normal.
    strike, blur = 0.25, 0.3
    width = jnp.sqrt(blur**2 + 2 * D * t)
    z = (y - strike) / width
    return width * (z * norm.cdf(z) + norm.pdf(z))


@_heat(_along(_even))
def constant(t: Scalar, y: Scalar, D: Scalar, d: int) -> Scalar:
    """u = 1."""
    return jnp.ones_like(y)


class KinkedRidge(eqx.Module):
    """E[(a·x + √(2Dt) N)⁺], |a| = 1, N standard normal."""

    weights: Any
    diffusion: Any

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        y = jnp.sum(self.weights * x)
        width = jnp.sqrt(2 * self.diffusion * jnp.maximum(t, 1e-300))
        return y * norm.cdf(y / width) + width * norm.pdf(y / width)

    def initial(self, x: Vector) -> Scalar:
        """max(a·x, 0)."""
        return jnp.maximum(jnp.sum(self.weights * x), 0.0)


def kinked_ridge(dim: int = 100, horizon: float = 0.5, diffusion: float = 1.0) -> Problem:
    """u0 = max(a·x, 0), a of equal weights, |a| = 1, no source: not C², Bachelier's formula."""
    u = KinkedRidge(_even(dimension(dim)), number("diffusion", diffusion))
    return Problem(dim=dim, horizon=horizon, diffusion=diffusion, initial=u.initial, exact=u)


# --- sums of eigenfunctions ---


def _decaying(t: Scalar, rates: Array) -> Array:
    """exp(-D λ t): the heat equation without a source."""
    return jnp.exp(-rates * t)


def _switched_on(t: Scalar, rates: Array) -> Array:
    """sin(2t) for the slow modes, t² for the others."""
    return jnp.where(rates < jnp.median(rates), jnp.sin(2 * t), t**2)


def _modes(amplitudes: Callable[[Scalar, Array], Array]) -> Callable[..., Modes]:
    """The shape Σ a_k(t) e_k(x), from a function (dim, maths) -> (e, λ)."""
    return lambda modes, dim, D, maths: Modes(amplitudes, D, *modes(dim, maths))


class SineUnits(eqx.Module):
    """The functions c_k sin(a_k·x + b_k), k = 1, ..., units."""

    frequencies: Any  # a, (units, dim)
    phases: Any  # b, (units,)
    weights: Any  # c, (units,)
    maths: Any = eqx.field(static=True)

    def __call__(self, x: Vector) -> Array:
        return self.weights * self.maths.sin(self.frequencies @ x + self.phases)


class NeighbourProducts(eqx.Module):
    """Σ_i cos x_i cos x_{i+1} / √d and Σ_i sin x_i sin 2x_{i+1} / √d, cyclic."""

    maths: Any = eqx.field(static=True)

    def __call__(self, x: Vector) -> Array:
        after, maths = jnp.roll(x, -1), self.maths
        first = jnp.sum(maths.cos(x) * maths.cos(after))
        second = jnp.sum(maths.sin(x) * maths.sin(2 * after))
        return jnp.stack([first, second]) / np.sqrt(x.size)


class CosineProduct(eqx.Module):
    """Π_i cos(κ x_i)."""

    wavenumber: Any
    maths: Any = eqx.field(static=True)

    def __call__(self, x: Vector) -> Array:
        return jnp.prod(self.maths.cos(self.wavenumber * x))[None]


def _network(dim: int, maths: Any) -> tuple[SineUnits, np.ndarray]:
    """32 random sine units (with a fixed seed) with frequencies |a_k| from 1 to 3, and |a_k|²."""
    rng = np.random.default_rng(32)
    a = rng.standard_normal((32, dim))
    a *= rng.uniform(1, 3, (32, 1)) / np.linalg.norm(a, axis=1, keepdims=True)
    phases, weights = rng.uniform(0, 2 * np.pi, 32), rng.standard_normal(32) / np.sqrt(32)
    return SineUnits(a, phases, weights, maths), np.sum(a**2, axis=1)


@_heat(_modes(_decaying))
def sine_network(dim: int, maths: Any) -> tuple[SineUnits, np.ndarray]:
    """u0 = Σ c_k sin(a_k·x + b_k), 32 units, no source."""
    return _network(dim, maths)


@_heat(_modes(_switched_on), forced=True)
def forced_network(dim: int, maths: Any) -> tuple[SineUnits, np.ndarray]:
    """u0 = 0, u = Σ a_k(t) c_k sin(a_k·x + b_k), half of the units growing like sin 2t, half
    like t²."""
    return _network(dim, maths)


@_heat(_modes(_decaying))
def neighbour_products(dim: int, maths: Any) -> tuple[NeighbourProducts, np.ndarray]:
    """u0 = Σ (cos x_i cos x_{i+1} + sin x_i sin 2x_{i+1}) / √d, cyclic, no source; d >= 2."""
    check_int("dim", dim, 2, "Neighbours need two coordinates.")
    return NeighbourProducts(maths), np.array([2.0, 5.0])


@_heat(_modes(_decaying))
def product_of_cosines(dim: int, maths: Any) -> tuple[CosineProduct, np.ndarray]:
    """u0 = Π cos(κ x_i), d κ² = 4, no source."""
    return CosineProduct(np.asarray(2 / np.sqrt(dim)), maths), np.array([4.0])


# --- a quadratic form ---


class QuadraticForm(eqx.Module):
    """q(x) = Σ q_i x_i² + (v·x)²."""

    diagonal: Any  # q, (dim,)
    vector: Any  # v, (dim,)

    def __call__(self, x: Vector) -> Scalar:
        return jnp.sum(self.diagonal * x**2) + jnp.sum(self.vector * x) ** 2

    def laplacian(self, x: Vector) -> Scalar:
        return 2 * (jnp.sum(self.diagonal) + jnp.sum(self.vector**2))


class Quadratic(eqx.Module):
    """q(x) + D t Δq."""

    start: QuadraticForm
    diffusion: Any

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return self.start(x) + self.diffusion * t * self.start.laplacian(x)


@_heat(lambda form, dim, D, maths: Quadratic(form(dim), D))
def quadratic_form(dim: int) -> QuadraticForm:
    """u0 = Σ i x_i²/d² + (v·x)², |v| = 1, no source."""
    return QuadraticForm(np.arange(1, dim + 1) / dim**2, _unit(dim))
