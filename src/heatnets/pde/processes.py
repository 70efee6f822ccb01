"""Processes with a law in closed form, for `hn.Problem(process=...)`: how they scatter, and in which coordinates they only scatter."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from heatnets._core.errors import InputError, numeric, short_repr
from heatnets.pde.diffusion import Diffusion, diffusion
from heatnets.pde.transforms import DriftShift, LogTransform, OUTransform, Transform

_VOLATILE = 5.0  # a volatility above which one asks whether per cent were meant


class Process(abc.ABC):
    """A diffusion process whose generator is the equation's operator."""

    positive = False  # lives on positive coordinates only

    def complaint(self, horizon: float, source: bool) -> str:
        """Words if a horizon is too long for this process."""
        return ""

    def doubt(self) -> str:
        """Words where a parameter is hardly what was meant."""
        return ""

    @abc.abstractmethod
    def law(self, dim: int) -> tuple[Diffusion, tuple[Transform, ...]]:
        """How it scatters, and the changes of variables in which nothing else is left of it."""


class Brownian(Process):
    """Constant coefficients: dX = b dt + √2 S dW, generator div(A ∇u) + b·∇u."""

    def __init__(self, A: Any = 1.0, drift: Any = None) -> None:
        self.A, self.drift = A, drift

    def law(self, dim: int) -> tuple[Diffusion, tuple[Transform, ...]]:
        b = None if self.drift is None else vector("drift", self.drift, dim)
        return diffusion(self.A, dim), () if b is None or not np.any(b) else (DriftShift(b),)

    def __repr__(self) -> str:
        return f"diffusion={_short(self.A)}" + (
            "" if self.drift is None else f", drift={_short(self.drift)}"
        )


class VariableCoefficients(Process):
    """Coefficients that are functions of t and x: no coordinates make it plain, and paths go in steps (coefficients.py, paths.py)."""

    def __init__(self, A: Any, drift: Any) -> None:
        self.A, self.drift = A, drift

    def law(self, dim: int) -> tuple[Diffusion, tuple[Transform, ...]]:
        raise NotImplementedError("its scatter is that of its coefficients at a point")

    def __repr__(self) -> str:
        parts = (("diffusion", 1.0 if self.A is None else self.A), ("drift", self.drift))
        return ", ".join(
            f"{name}={'given' if callable(v) or hasattr(v, 'S') else _short(v)}"
            for name, v in parts
            if v is not None
        )


class GeometricBrownian(Process):
    """Correlated geometric Brownian motion: dX_i = X_i (growth_i dt + volatility_i dB_i), the B_i correlated.

    Its generator is ½ Σ σ_i σ_j ρ_ij x_i x_j ∂_i ∂_j + Σ growth_i x_i ∂_i: the equation of Black and Scholes with growth = rate - dividends and
    `reaction=-rate`.

    Args:
        volatility: σ, one number or one per coordinate.
        growth: one number or one per coordinate.
        correlation: a matrix with ones on its diagonal, or one number between any two; default none.
    """

    positive = True

    def __init__(self, volatility: Any, growth: Any = 0.0, correlation: Any = None) -> None:
        self.volatility, self.growth, self.correlation = volatility, growth, correlation

    def law(self, dim: int) -> tuple[Diffusion, tuple[Transform, ...]]:
        sigma, growth = (
            vector("volatility", self.volatility, dim),
            vector("growth", self.growth, dim),
        )
        if not np.all(sigma > 0):
            raise InputError(
                f"`volatility` must be > 0 in every coordinate; got {short_repr(self.volatility)}."
            )
        half = 0.5 * sigma**2
        if self.correlation is None:
            A: Any = half if np.ptp(half) else half[0]
        else:
            hint = (
                f"It is one number, or a matrix of shape ({dim}, {dim}) with ones on its diagonal."
            )
            rho = numeric("correlation", self.correlation, hint)
            if rho.ndim == 0:
                rho = np.full((dim, dim), float(rho))
                np.fill_diagonal(rho, 1.0)
            if rho.shape != (dim, dim) or not np.allclose(np.diag(rho), 1.0):
                found = (
                    f" and {np.diag(rho)[0]:.3g}, ... on its diagonal (a covariance?)"
                    if rho.shape == (dim, dim)
                    else ""
                )
                raise InputError(
                    f"`correlation` must be one number, or a matrix of shape ({dim}, {dim}) with "
                    f"ones on its diagonal; got {short_repr(self.correlation)}{found}."
                )
            if not np.allclose(rho, rho.T, rtol=0.0, atol=1e-12):
                raise InputError(
                    "`correlation` must be symmetric; entries differ by up to "
                    f"{np.max(np.abs(rho - rho.T)):.2g} from their mirror images."
                )
            least = float(np.linalg.eigvalsh(rho)[0])
            if least <= 1e-12:
                bound = (
                    f" One number between any two must lie between {-1 / (dim - 1):.3g} and 1."
                    if np.ndim(self.correlation) == 0
                    else ""
                )
                raise InputError(
                    "`correlation` must be positive definite; its smallest eigenvalue is "
                    f"{least:.2g}. No assets are correlated like this, or one is a mix of the "
                    f"others.{bound}"
                )
            A = 0.5 * sigma[:, None] * rho * sigma
        return diffusion(A, dim), (LogTransform(), DriftShift(growth - half))

    def doubt(self) -> str:
        most = float(np.max(np.asarray(self.volatility, float)))
        if most <= _VOLATILE:
            return ""
        return f"`volatility` is {most:g}, which is {100 * most:g} %. Were per cent meant? 0.3 is 30 %."

    def __repr__(self) -> str:
        correlated = "" if self.correlation is None else f", correlation={_short(self.correlation)}"
        return f"process=GeometricBrownian(volatility={_short(self.volatility)}, growth={_short(self.growth)}{correlated})"


class OrnsteinUhlenbeck(Process):
    """Reversion to a mean: dX = θ(m - X) dt + √2 S dW, generator div(A ∇u) + θ(m - x)·∇u.

    Args:
        rate: θ, one number for all coordinates; not zero (below zero paths run away from the mean).
        mean: m, one number or one per coordinate.
        diffusion: A as in `hn.Problem`.
    """

    def __init__(self, rate: float, mean: Any = 0.0, diffusion: Any = 1.0) -> None:
        self.rate, self.mean, self.A = rate, mean, diffusion

    def law(self, dim: int) -> tuple[Diffusion, tuple[Transform, ...]]:
        theta = numeric("rate", self.rate, "It is θ in θ(m - x), one number for all coordinates.")
        if theta.ndim or theta == 0:
            raise InputError(
                f"`rate` must be one finite number, not zero; got {short_repr(self.rate)}. For one "
                "rate per coordinate, or a matrix, give the drift as a function: drift=lambda t, "
                "x: rate * (mean - x)."
            )
        return diffusion(self.A, dim), (OUTransform(float(theta), vector("mean", self.mean, dim)),)

    def complaint(self, horizon: float, source: bool) -> str:
        reach, most = abs(float(self.rate)) * horizon, 1.0 if source else 15.0
        if reach <= most:
            return ""
        why = (
            "with a source, whose share of the last times would be lost"
            if source
            else "beyond, double precision loses the start"
        )
        return f"`rate` times `horizon` must be at most {most:g} in size ({why}); got {reach:g}. Shorten the horizon, or give the drift as a function, drift=lambda t, x: rate * (mean - x), with `steps` above |rate| T."

    def __repr__(self) -> str:
        return f"process=OrnsteinUhlenbeck(rate={self.rate:g}, mean={_short(self.mean)}, diffusion={_short(self.A)})"


def vector(name: str, value: Any, dim: int) -> np.ndarray:
    """`value` as one number per coordinate."""
    if callable(value):
        raise InputError(
            f"`{name}` must be a vector of {dim} numbers; got a function. What depends on t or x "
            "is given as `diffusion`, `drift` and `reaction` of hn.Problem."
        )
    array = numeric(name, value, f"It is one number, or one for each of {dim} coordinates.")
    if array.shape not in ((), (dim,)):
        raise InputError(
            f"`{name}` must be one finite number, or one for each of {dim} coordinates; got "
            f"{short_repr(value)}."
        )
    return np.broadcast_to(array, (dim,)).copy()


def _short(value: Any) -> str:
    return (
        f"{value:g}"
        if np.ndim(value) == 0 and not hasattr(value, "S") and not hasattr(value, "U")
        else short_repr(value)
    )
