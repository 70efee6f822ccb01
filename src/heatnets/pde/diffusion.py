"""Constant diffusion matrices A of div(A ∇u), with a square root S: A = S Sᵀ.

A is diagonal (or a multiple of the identity), dense, or diagonal plus low rank.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import numpy as np

from heatnets._core.errors import InputError, check_finite, check_positive, short_repr

_HINT = (
    "It is D in u_t = D Δu, or A in u_t = div(A ∇u): a number, one per coordinate, a matrix, "
    "hn.Factor(S) or hn.LowRank(diag, U)."
)


class Diffusion(eqx.Module):
    """A diffusion matrix A = S Sᵀ.

    Methods take NumPy or JAX arrays with vectors along the last axis, (..., dim).
    """

    @abc.abstractmethod
    def apply_sqrt(self, noise: Any) -> Any:
        """S ξ for noise ξ (..., dim)."""

    @abc.abstractmethod
    def solve(self, vector: Any) -> Any:
        """A⁻¹ v for vectors v (..., dim)."""

    @property
    @abc.abstractmethod
    def std(self) -> Any:
        """√A_ii, shape () or (dim,): √(2t) times this is the standard deviation of paths."""

    @property
    @abc.abstractmethod
    def inverse_std(self) -> Any:
        """√(A⁻¹)_ii, shape () or (dim,): size of the likelihood-ratio weights of derivatives."""

    @property
    def scalar(self) -> Any:
        """D if A = D I, else None."""
        return None

    @property
    def full_rank_part(self) -> Diffusion:
        """The full-rank part B of A = B + Σ U_k U_kᵀ, with the U_k in `low_rank_columns`.

        tr(B D²f) is computed as a Laplacian in scaled coordinates.
        """
        return self

    @property
    def low_rank_columns(self) -> Any:
        """The vectors U_k as rows, shape (k, dim); None if A is its full-rank part."""
        return None


class Diagonal(Diffusion):
    """A = diag(a), or a multiple of the identity."""

    a: Any  # (dim,), or () for A = a I

    def apply_sqrt(self, noise: Any) -> Any:
        return self.a**0.5 * noise

    def solve(self, vector: Any) -> Any:
        return vector / self.a

    @property
    def std(self) -> Any:
        return self.a**0.5

    @property
    def inverse_std(self) -> Any:
        return self.a**-0.5

    @property
    def scalar(self) -> Any:
        return None if np.ndim(self.a) else self.a


class Dense(Diffusion):
    """A = S Sᵀ with a dense S, (dim, dim)."""

    S: Any
    inverse: Any  # S⁻¹

    def apply_sqrt(self, noise: Any) -> Any:
        return noise @ self.S.T

    def solve(self, vector: Any) -> Any:
        return (vector @ self.inverse.T) @ self.inverse

    @property
    def std(self) -> Any:
        return (self.S**2).sum(axis=1) ** 0.5

    @property
    def inverse_std(self) -> Any:
        return (self.inverse**2).sum(axis=0) ** 0.5


class DiagonalPlusLowRank(Diffusion):
    """A = diag(a) + U Uᵀ with U of shape (dim, k), at the cost d k instead of d².

    S = √a (I + W diag(gain) Wᵀ), with W the left singular vectors and s the singular values of
    U/√a.
    """

    a: Any  # (dim,)
    U: Any
    W: Any  # (dim, k), orthonormal columns
    gain: Any  # (k,): √(1 + s²) - 1

    def apply_sqrt(self, noise: Any) -> Any:
        return self.a**0.5 * (noise + ((noise @ self.W) * self.gain) @ self.W.T)

    @property
    def _shrink(self) -> Any:
        """1/(1 + s²) - 1: the factors of the columns of W in A⁻¹."""
        return 1 / (1 + self.gain) ** 2 - 1

    def solve(self, vector: Any) -> Any:
        v = vector / self.a**0.5
        return (v + ((v @ self.W) * self._shrink) @ self.W.T) / self.a**0.5

    @property
    def std(self) -> Any:
        return (self.a + (self.U**2).sum(axis=1)) ** 0.5

    @property
    def inverse_std(self) -> Any:
        return ((1 + (self.W**2 * self._shrink).sum(axis=1)) / self.a) ** 0.5

    @property
    def full_rank_part(self) -> Diffusion:
        return Diagonal(self.a)

    @property
    def low_rank_columns(self) -> Any:
        return self.U.T


class Projected(Diffusion):
    """A⊥ = A - a aᵀ, with a = Se for a unit vector e: A without one direction. It is singular."""

    base: Diffusion  # A
    axis: Any  # a, (dim,)
    conormal: Any  # A⁻¹a, (dim,)

    def apply_sqrt(self, noise: Any) -> Any:
        end = self.base.apply_sqrt(noise)
        return end - (end @ self.conormal)[..., None] * self.axis

    def solve(self, vector: Any) -> Any:
        raise NotImplementedError("it is singular")

    @property
    def std(self) -> Any:
        return (self.base.std**2 - self.axis**2).clip(0.0) ** 0.5

    @property
    def inverse_std(self) -> Any:
        raise NotImplementedError("it is singular")


class Factor:
    """A diffusion matrix given by a square root: `diffusion=hn.Factor(S)` for A = S Sᵀ.

    Args:
        S: an invertible matrix of shape (dim, dim), or a function of (t, x) that returns one.
    """

    def __init__(self, S: Any) -> None:
        hint = "Write hn.Factor(S), S of shape (dim, dim)."
        self.S: Any = S if callable(S) else check_finite("Factor", S, hint)
        if not callable(S) and (self.S.ndim != 2 or self.S.shape[0] != self.S.shape[1]):
            raise InputError(
                f"`Factor` needs a square matrix S; got shape {self.S.shape}. With fewer columns A "
                "has no inverse, which is not supported; hn.LowRank(diag, U) adds a diagonal."
            )

    def __repr__(self) -> str:
        return f"Factor({short_repr(self.S)})"


class LowRank:
    """Diagonal plus low rank: `diffusion=hn.LowRank(diag, U)` for A = diag + U Uᵀ.

    Args:
        diag: the diagonal part, > 0; one number or one per coordinate.
        U: a matrix of shape (dim, k) with k <= dim.
    """

    def __init__(self, diag: Any, U: Any) -> None:
        if callable(diag) or callable(U):
            raise InputError(
                "`LowRank` takes numbers. A function of (t, x) is given as diffusion=A, or as "
                "hn.Factor(S)."
            )
        hint = "Write hn.LowRank(diag, U), U of shape (dim, k)."
        self.diag, self.U = check_finite("LowRank", diag, hint), check_finite("LowRank", U, hint)
        if self.diag.ndim > 1 or not np.all(self.diag > 0):
            raise InputError(
                "`LowRank` needs diag > 0, one number or one per coordinate; got "
                f"{short_repr(diag)}."
            )
        if self.U.ndim != 2 or self.U.shape[1] > self.U.shape[0]:
            raise InputError(
                f"`LowRank` needs U of shape (dim, k), k <= dim; got shape {self.U.shape}. Write "
                "U[:, None] for one column."
            )

    def __repr__(self) -> str:
        return f"LowRank({short_repr(self.diag)}, {short_repr(self.U)})"


def is_function(value: Any) -> bool:
    """Whether the user's A is a function of t and x."""
    return callable(value) or (isinstance(value, Factor) and callable(value.S))


def make_diffusion(value: Any, dim: int) -> Diffusion:
    """Check the user's A, and make a `Diffusion` of it.

    Raises `InputError` if A is not constant, or not symmetric positive definite.
    """
    if callable(value):
        raise InputError(
            "`diffusion` must not depend on t or x here. A function A(t, x) is given as "
            f"hn.Problem(diffusion=A). {_HINT}"
        )
    if isinstance(value, LowRank):
        a = np.broadcast_to(_check_length(value.diag, dim), (dim,)).copy()
        U = _check_length(value.U, dim)
        W, s, _ = np.linalg.svd(U / np.sqrt(a)[:, None], full_matrices=False)
        return DiagonalPlusLowRank(a, U, W, np.sqrt(1 + s**2) - 1)
    if isinstance(value, Factor):
        S = _check_length(value.S, dim)
        if not np.linalg.cond(S) < 1e12:
            raise InputError(
                "`diffusion` must have an inverse; S of hn.Factor(S) is singular. Drop what does "
                "not scatter, or use hn.LowRank(diag, U)."
            )
        return Dense(S, np.linalg.inv(S))
    array = check_finite("diffusion", value, _HINT)
    if array.ndim == 0:
        return Diagonal(check_positive("diffusion", value, _HINT))
    shape = f"got shape {array.shape}. {_HINT}"
    if array.ndim > 2:
        raise InputError(f"`diffusion` must be a number, a vector or a matrix; {shape}")
    if array.ndim == 2 and array.shape[0] != array.shape[1]:
        raise InputError(f"`diffusion` must be a square matrix; {shape}")
    _check_length(array, dim)
    if array.ndim == 1:
        if not np.all(array > 0):
            raise InputError(
                f"`diffusion` must be > 0 in every coordinate; it is {np.min(array):g} in "
                f"coordinate {int(np.argmin(array))}. {_HINT}"
            )
        return Diagonal(array)
    if not np.allclose(array, array.T, rtol=1e-10, atol=1e-12 * np.max(np.abs(array))):
        raise asymmetric(float(np.max(np.abs(array - array.T))))
    values, vectors = np.linalg.eigh(array)
    if values[0] <= 1e-12 * values[-1]:
        raise not_definite(values[0], values[-1])
    # The square root with orthogonal columns: the eigenvectors of A, scaled.
    return Dense(vectors * np.sqrt(values), (vectors / np.sqrt(values)).T)


def asymmetric(gap: float, where: str = "") -> InputError:
    """The error for an A that is not symmetric: max |A - Aᵀ|, and at which point."""
    return InputError(
        f"`diffusion` must be a symmetric matrix; A - Aᵀ is up to {gap:.2g}{where}. Give "
        "(A + Aᵀ)/2."
    )


def not_definite(low: float, high: float, domain: str = "", where: str = "") -> InputError:
    """The error for an A that is not positive definite, from its extreme eigenvalues."""
    return InputError(
        f"`diffusion` must be positive definite{domain}; its eigenvalues lie between {low:.3g} and "
        f"{high:.3g}{where}. Where A has no inverse paths do not spread in all directions, which "
        "is not supported."
    )


def _check_length(array: np.ndarray, dim: int) -> np.ndarray:
    """The array; raises `InputError` if its first axis does not have the length `dim`."""
    if array.ndim and array.shape[0] != dim:
        raise InputError(f"`diffusion` must fit {dim} coordinates; got shape {array.shape}.")
    return array
