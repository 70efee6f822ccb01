"""Test problems with constant coefficients and exact solutions, in any dimension.

Anisotropic diffusion with drift; an Ornstein-Uhlenbeck process with a reaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from heatnets.pde.problem import Problem
from heatnets.pde.processes import OrnsteinUhlenbeck
from heatnets.problems.shapes import (
    AtStart,
    Constructor,
    Scalar,
    Vector,
    dimension,
    gaussian,
    number,
)


class Axes(eqx.Module):
    """A = Q diag(λ) Qᵀ with random eigenvectors Q and λ from 2/condition to 2; a random drift b.

    The drift has a length of about √dim/2.
    """

    Q: Any  # (dim, dim)
    rates: Any  # λ, (dim,)
    drift: Any  # b, (dim,)

    def __init__(self, dim: int, condition: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.Q = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
        self.rates = 2 * np.geomspace(1 / condition, 1.0, dim)
        self.drift = 0.5 * rng.standard_normal(dim)

    def coordinates(self, t: Scalar, x: Vector) -> Vector:
        """Qᵀ (x + bt): the coordinates of x + bt in the eigenvectors of A."""
        return (x + self.drift * t) @ self.Q

    @property
    def matrix(self) -> np.ndarray:
        """A, shape (dim, dim)."""
        return (self.Q * self.rates) @ self.Q.T


class AnisotropicGaussian(eqx.Module):
    """u for u0 = exp(-|x|²/d): Π (1 + 4λ_i t/d)^{-1/2} exp(-y_i²/(d + 4λ_i t)), y = Qᵀ(x + bt)."""

    axes: Axes

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        d, spread = x.size, 4 * self.axes.rates * t / x.size
        log_factor = -0.5 * jnp.sum(jnp.log1p(spread))
        return jnp.exp(log_factor - jnp.sum(self.axes.coordinates(t, x) ** 2 / (1 + spread)) / d)


class AnisotropicRidge(eqx.Module):
    """u for u0 = exp(-(a·x)²): (1 + 4vt)^{-1/2} exp(-(a·(x + bt))²/(1 + 4vt)), v = aᵀAa."""

    direction: Any
    drift: Any
    rate: Any

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        spread = 1 + 4 * self.rate * t
        return jnp.exp(-((self.direction @ (x + self.drift * t)) ** 2) / spread) / jnp.sqrt(spread)


class AnisotropicWaves(eqx.Module):
    """Σ e^{-4λ_i t} sin(2 y_i)/√d, y = Qᵀ(x + bt)."""

    axes: Axes

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        decay = jnp.exp(-4 * self.axes.rates * t)
        return jnp.sum(decay * jnp.sin(2 * self.axes.coordinates(t, x))) / np.sqrt(x.size)


def _initial_gaussian(x: Vector) -> Scalar:
    """exp(-|x|²/d)."""
    return jnp.exp(-jnp.sum(x**2) / x.size)


def _anisotropic(solution: Callable[[Axes, int], Any]) -> Constructor:
    """Decorator: a function (axes, seed) -> (u0, u) becomes a constructor."""

    def construct(
        dim: int = 100, horizon: float = 0.5, condition: float = 100.0, seed: int = 0
    ) -> Problem:
        axes = Axes(dimension(dim), float(number("condition", condition)), seed)
        u0, u = solution(axes, seed)
        return Problem(dim, horizon, initial=u0, diffusion=axes.matrix, drift=axes.drift, exact=u)

    construct.__doc__ = solution.__doc__
    return construct


@_anisotropic
def anisotropic_gaussian(axes: Axes, seed: int) -> Any:
    """u0 = exp(-|x|²/d), a matrix A of given condition with random axes, a random drift."""
    return _initial_gaussian, AnisotropicGaussian(axes)


@_anisotropic
def anisotropic_ridge(axes: Axes, seed: int) -> Any:
    """u0 = exp(-(a·x)²) with a random unit vector a; A and drift as in `anisotropic_gaussian`."""
    a = np.random.default_rng(seed + 1).standard_normal(axes.drift.size)
    a = a / np.linalg.norm(a)
    u = AnisotropicRidge(a, axes.drift, a @ axes.matrix @ a)
    return AtStart(u), u


@_anisotropic
def anisotropic_waves(axes: Axes, seed: int) -> Any:
    """u0 = Σ sin(2 y_i)/√d in A's own axes; A and drift as in `anisotropic_gaussian`."""
    u = AnisotropicWaves(axes)
    return AtStart(u), u


class Reverting(eqx.Module):
    """e^{ct} E exp(-|X_t|²/d) for an Ornstein-Uhlenbeck process X that starts in x."""

    rate: Any
    mean: Any
    diffusion: Any
    reaction: Any

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        decay = jnp.exp(-self.rate * t)
        centre = self.mean + decay * (x - self.mean)
        spread = 2 * self.diffusion * (1 - decay**2) / (self.rate * x.size)
        shape = gaussian(jnp.sum(centre**2), spread, x.size)
        return jnp.exp(self.reaction * t) * shape


def ornstein_uhlenbeck(
    dim: int = 100,
    horizon: float = 1.0,
    rate: float = 0.8,
    mean: float = 0.3,
    diffusion: float = 0.6,
    reaction: float = -0.5,
) -> Problem:
    """u0 = exp(-|x|²/d), the drift θ(m - x), the reaction c u."""
    u = Reverting(*(np.asarray(v, np.float64) for v in (rate, mean, diffusion, reaction)))
    process = OrnsteinUhlenbeck(rate, mean, diffusion)
    return Problem(
        dim, horizon, initial=_initial_gaussian, process=process, reaction=reaction, exact=u
    )
