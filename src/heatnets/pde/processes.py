"""Diffusion processes for `hn.Problem(process=...)`, and the transforms that remove their drift."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from heatnets._core.errors import InputError, check_finite, short_repr
from heatnets.pde.diffusion import Diffusion, Factor, LowRank, is_function, make_diffusion
from heatnets.pde.transforms import DriftShift, LogTransform, OUTransform, Transform

_VOLATILE = 5.0  # a larger volatility is a warning: it may have been given in per cent


class Process(abc.ABC):
    """A diffusion process; its generator is the second-order operator of the equation."""

    is_positive = False  # whether all coordinates of the process are positive

    def check_horizon(self, horizon: float, has_source: bool) -> None:
        """Raise `InputError` if the horizon is too long for this process."""
        return

    def parameter_warning(self) -> str:
        """A warning if a parameter is probably a mistake, else ""."""
        return ""

    @abc.abstractmethod
    def canonical_form(self, dim: int) -> tuple[Diffusion | None, tuple[Transform, ...]]:
        """The constant diffusion A in canonical coordinates, and the transforms to them.

        A is None if paths need time steps.
        """

    def __repr__(self) -> str:
        parameters = ", ".join(
            f"{name}={_format(value)}" for name, value in vars(self).items() if value is not None
        )
        return f"process={type(self).__name__}({parameters})"


class DriftDiffusion(Process):
    """The process dX = b dt + √2 S dW with generator div(A ∇u) + b·∇u.

    If A or b is a function, or the user has a step, no transform makes them constant: paths then
    need time steps (coefficients.py, paths.py).
    """

    def __init__(self, diffusion: Any, drift: Any, needs_steps: bool) -> None:
        self.diffusion, self.drift, self.needs_steps = diffusion, drift, needs_steps

    def canonical_form(self, dim: int) -> tuple[Diffusion | None, tuple[Transform, ...]]:
        if self.needs_steps:
            return None, ()
        b = check_vector("drift", 0.0 if self.drift is None else self.drift, dim)
        return make_diffusion(self.diffusion, dim), (DriftShift(b),) if np.any(b) else ()

    def __repr__(self) -> str:
        drift = "" if self.drift is None else f", drift={_format(self.drift)}"
        return f"diffusion={_format(self.diffusion)}{drift}"


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

    is_positive = True

    def __init__(self, volatility: Any, growth: Any = 0.0, correlation: Any = None) -> None:
        self.volatility, self.growth, self.correlation = volatility, growth, correlation

    def canonical_form(self, dim: int) -> tuple[Diffusion | None, tuple[Transform, ...]]:
        sigma = check_vector("volatility", self.volatility, dim)
        growth = check_vector("growth", self.growth, dim)
        if not np.all(sigma > 0):
            raise InputError(
                f"`volatility` must be > 0 in every coordinate; got {short_repr(self.volatility)}."
            )
        half = 0.5 * sigma**2
        if self.correlation is None:
            A: Any = half if np.ptp(half) else half[0]
        else:
            rho = _check_correlation(self.correlation, dim)
            A = 0.5 * sigma[:, None] * rho * sigma
            common = rho[0, -1]
            if dim > 1 and common > 0 and np.ptp(rho[~np.eye(dim, dtype=bool)]) == 0:
                # One factor moves all assets: the cost is that of a diagonal.
                A = LowRank(half * (1 - common), np.sqrt(0.5 * common) * sigma[:, None])
        return make_diffusion(A, dim), (LogTransform(), DriftShift(growth - half))

    def parameter_warning(self) -> str:
        most = float(np.max(np.asarray(self.volatility, float)))
        if most <= _VOLATILE:
            return ""
        return (
            f"`volatility` is {most:g}, which is {100 * most:g} %. Were per cent meant? 0.3 is "
            "30 %."
        )


def _check_correlation(value: Any, dim: int) -> np.ndarray:
    """ρ as a matrix (dim, dim); raises `InputError` if it is no correlation matrix."""
    wanted = f"one number, or a matrix of shape ({dim}, {dim}) with ones on its diagonal"
    rho = check_finite("correlation", value, f"It is {wanted}.")
    if rho.ndim == 0:
        rho = np.where(np.eye(dim, dtype=bool), 1.0, rho)
    if rho.shape != (dim, dim) or not np.allclose(np.diag(rho), 1.0):
        diagonal = ""
        if rho.shape == (dim, dim):
            diagonal = f" and {np.diag(rho)[0]:.3g}, ... on its diagonal (a covariance?)"
        raise InputError(f"`correlation` must be {wanted}; got {short_repr(value)}{diagonal}.")
    if not np.allclose(rho, rho.T, rtol=0.0, atol=1e-12):
        raise InputError(
            "`correlation` must be symmetric; entries differ by up to "
            f"{np.max(np.abs(rho - rho.T)):.2g} from their mirror images."
        )
    least = float(np.linalg.eigvalsh(rho)[0])
    if least <= 1e-12:
        bound = ""
        if np.ndim(value) == 0:
            bound = f" One number for all pairs must lie between {-1 / (dim - 1):.3g} and 1."
        raise InputError(
            f"`correlation` must be positive definite; its smallest eigenvalue is {least:.2g}. No "
            f"assets are correlated like this, or one is a mix of the others.{bound}"
        )
    return rho


class OrnsteinUhlenbeck(Process):
    """Ornstein-Uhlenbeck process: dX = θ(m - X) dt + √2 S dW.

    Its generator is div(A ∇u) + θ(m - x)·∇u with A = S Sᵀ.

    Args:
        rate: θ, one number for all coordinates; not zero. If θ < 0, paths move away from the mean.
        mean: m, one number or one per coordinate.
        diffusion: A, a constant as in `hn.Problem`.
    """

    def __init__(self, rate: float, mean: Any = 0.0, diffusion: Any = 1.0) -> None:
        self.rate, self.mean, self.diffusion = rate, mean, diffusion

    def canonical_form(self, dim: int) -> tuple[Diffusion | None, tuple[Transform, ...]]:
        hint = "It is θ in θ(m - x), one number for all coordinates."
        theta = check_finite("rate", self.rate, hint)
        if theta.ndim or theta == 0:
            raise InputError(
                f"`rate` must be one finite number, not zero; got {short_repr(self.rate)}. For one "
                "rate per coordinate, or a matrix, give the drift as a function: drift=lambda t, "
                "x: rate * (mean - x)."
            )
        removed = OUTransform(float(theta), check_vector("mean", self.mean, dim))
        return make_diffusion(self.diffusion, dim), (removed,)

    def check_horizon(self, horizon: float, has_source: bool) -> None:
        reach, most = abs(float(self.rate)) * horizon, 1.0 if has_source else 15.0
        if reach > most:
            reason = "beyond, double precision loses the start"
            if has_source:
                reason = "with a source, whose share of the last times would be lost"
            raise InputError(
                f"`rate` times `horizon` must be at most {most:g} in size ({reason}); got "
                f"{reach:g}. Shorten the horizon, or give the drift as a function, drift=lambda t, "
                "x: rate * (mean - x), with `steps` above |rate| T."
            )


def check_vector(name: str, value: Any, dim: int) -> np.ndarray:
    """`value` as an array of shape (dim,); raises `InputError` if it is no number or vector."""
    if callable(value):
        raise InputError(
            f"`{name}` must be a vector of {dim} numbers; got a function. What depends on t or x "
            "is given as `diffusion`, `drift` and `reaction` of hn.Problem."
        )
    wanted = f"one finite number, or one for each of {dim} coordinates"
    array = check_finite(name, value, f"It is {wanted}.")
    if array.shape not in ((), (dim,)):
        raise InputError(f"`{name}` must be {wanted}; got {short_repr(value)}.")
    return np.broadcast_to(array, (dim,)).copy()


def _format(value: Any) -> str:
    """Text for a parameter of a process, with vectors and matrices shortened."""
    if is_function(value):
        return "given"
    return (
        short_repr(value) if np.ndim(value) or isinstance(value, Factor | LowRank) else f"{value:g}"
    )
