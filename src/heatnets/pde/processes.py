"""Diffusion processes for `hn.Problem(process=...)`, and the transforms that remove their drift."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from heatnets._core.errors import InputError, check_finite, short_repr
from heatnets.pde.diffusion import Diffusion, diffusion
from heatnets.pde.transforms import DriftShift, LogTransform, OUTransform, Transform

_VOLATILE = 5.0  # a larger volatility is a warning: it may have been given in per cent


class Process(abc.ABC):
    """A diffusion process; its generator is the second-order operator of the equation."""

    positive = False  # whether all coordinates of the process are positive

    def complaint(self, horizon: float, source: bool) -> str:
        """An error message if the horizon is too long for this process, else ""."""
        return ""

    def doubt(self) -> str:
        """A warning if a parameter is probably a mistake, else ""."""
        return ""

    @abc.abstractmethod
    def law(self, dim: int) -> tuple[Diffusion, tuple[Transform, ...]]:
        """The constant diffusion A in canonical coordinates, and the transforms to them."""


class Brownian(Process):
    """Brownian motion with constant drift: dX = b dt + √2 S dW, generator div(A ∇u) + b·∇u."""

    def __init__(self, A: Any = 1.0, drift: Any = None) -> None:
        self.A, self.drift = A, drift

    def law(self, dim: int) -> tuple[Diffusion, tuple[Transform, ...]]:
        b = None if self.drift is None else vector("drift", self.drift, dim)
        return diffusion(self.A, dim), () if b is None or not np.any(b) else (DriftShift(b),)

    def __repr__(self) -> str:
        drift = "" if self.drift is None else f", drift={_format(self.drift)}"
        return f"diffusion={_format(self.A)}{drift}"


class VariableCoefficients(Process):
    """A process whose coefficients are functions of t and x.

    No transform makes them constant: paths need time steps (coefficients.py, paths.py).
    """

    def __init__(self, A: Any, drift: Any) -> None:
        self.A, self.drift = A, drift

    def law(self, dim: int) -> tuple[Diffusion, tuple[Transform, ...]]:
        raise NotImplementedError("its scatter is that of its coefficients at a point")

    def __repr__(self) -> str:
        parts = (("diffusion", 1.0 if self.A is None else self.A), ("drift", self.drift))
        return ", ".join(
            f"{name}={'given' if callable(v) or hasattr(v, 'S') else _format(v)}"
            for name, v in parts
            if v is not None
        )


class GeometricBrownian(Process):
    """Geometric Brownian motion: dX_i = X_i (growth_i dt + volatility_i dB_i), with correlated B_i.

    Its generator is ½ Σ σ_i σ_j ρ_ij x_i x_j ∂_i ∂_j + Σ growth_i x_i ∂_i. This gives the
    Black-Scholes equation, with growth = rate - dividends and `reaction=-rate`.

    Args:
        volatility: σ, one number or one per coordinate.
        growth: one number or one per coordinate.
        correlation: ρ, a matrix with ones on its diagonal, or one number for all pairs of
            coordinates; None for independent B_i.
    """

    positive = True

    def __init__(self, volatility: Any, growth: Any = 0.0, correlation: Any = None) -> None:
        self.volatility, self.growth, self.correlation = volatility, growth, correlation

    def law(self, dim: int) -> tuple[Diffusion, tuple[Transform, ...]]:
        sigma = vector("volatility", self.volatility, dim)
        growth = vector("growth", self.growth, dim)
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
            rho = check_finite("correlation", self.correlation, hint)
            if rho.ndim == 0:
                rho = np.full((dim, dim), float(rho))
                np.fill_diagonal(rho, 1.0)
            if rho.shape != (dim, dim) or not np.allclose(np.diag(rho), 1.0):
                diagonal = (
                    f" and {np.diag(rho)[0]:.3g}, ... on its diagonal (a covariance?)"
                    if rho.shape == (dim, dim)
                    else ""
                )
                raise InputError(
                    f"`correlation` must be one number, or a matrix of shape ({dim}, {dim}) with "
                    f"ones on its diagonal; got {short_repr(self.correlation)}{diagonal}."
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
        return (
            f"`volatility` is {most:g}, which is {100 * most:g} %. Were per cent meant? 0.3 is "
            "30 %."
        )

    def __repr__(self) -> str:
        correlated = (
            "" if self.correlation is None else f", correlation={_format(self.correlation)}"
        )
        return (
            f"process=GeometricBrownian(volatility={_format(self.volatility)}, "
            f"growth={_format(self.growth)}{correlated})"
        )


class OrnsteinUhlenbeck(Process):
    """Ornstein-Uhlenbeck process: dX = θ(m - X) dt + √2 S dW.

    Its generator is div(A ∇u) + θ(m - x)·∇u with A = S Sᵀ.

    Args:
        rate: θ, one number for all coordinates; not zero. If θ < 0, paths move away from the mean.
        mean: m, one number or one per coordinate.
        diffusion: A, a constant as in `hn.Problem`.
    """

    def __init__(self, rate: float, mean: Any = 0.0, diffusion: Any = 1.0) -> None:
        self.rate, self.mean, self.A = rate, mean, diffusion

    def law(self, dim: int) -> tuple[Diffusion, tuple[Transform, ...]]:
        theta = check_finite(
            "rate", self.rate, "It is θ in θ(m - x), one number for all coordinates."
        )
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
        reason = (
            "with a source, whose share of the last times would be lost"
            if source
            else "beyond, double precision loses the start"
        )
        return (
            f"`rate` times `horizon` must be at most {most:g} in size ({reason}); got {reach:g}. "
            "Shorten the horizon, or give the drift as a function, drift=lambda t, x: rate * "
            "(mean - x), with `steps` above |rate| T."
        )

    def __repr__(self) -> str:
        return (
            f"process=OrnsteinUhlenbeck(rate={self.rate:g}, mean={_format(self.mean)}, "
            f"diffusion={_format(self.A)})"
        )


def vector(name: str, value: Any, dim: int) -> np.ndarray:
    """`value` as an array of shape (dim,); raises `InputError` if it is no number or vector."""
    if callable(value):
        raise InputError(
            f"`{name}` must be a vector of {dim} numbers; got a function. What depends on t or x "
            "is given as `diffusion`, `drift` and `reaction` of hn.Problem."
        )
    array = check_finite(name, value, f"It is one number, or one for each of {dim} coordinates.")
    if array.shape not in ((), (dim,)):
        raise InputError(
            f"`{name}` must be one finite number, or one for each of {dim} coordinates; got "
            f"{short_repr(value)}."
        )
    return np.broadcast_to(array, (dim,)).copy()


def _format(value: Any) -> str:
    """Text for a parameter of a process, with vectors and matrices shortened."""
    is_factor = hasattr(value, "S") or hasattr(value, "U")
    return f"{value:g}" if np.ndim(value) == 0 and not is_factor else short_repr(value)
