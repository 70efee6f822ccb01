"""min |A w - b|² (+ ridge |w|²), optionally with one exact linear condition. Rank deficiency is the normal case.

    svd        columns scaled to unit norm, singular values below rcond · largest cut off
    pinv       Moore-Penrose as the paper has it: no scaling
    cholesky   ridge normal equations as the paper has them; QR where Cholesky fails

To add a solver, write a function (A, b, rcond, ridge) -> Fit and name it in `SOLVERS`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.linalg
import threadpoolctl
from jaxtyping import Array, Float

from heatnets.errors import NumericalError
from heatnets.precision import EPS

_LARGE = 1500  # below this many unknowns one LAPACK thread takes seconds at most
_NEGLIGIBLE = 1e-12  # columns below this fraction of the largest norm carry rounding only; scaled up they gave 1e74


class Fit(NamedTuple):
    """Weights and what there is to know about how they came about."""

    weights: Float[Array, " features"]
    rank: int
    condition: float  # largest over smallest singular value kept
    rcond: float  # relative singular value below which a direction is cut off (or damped by more than half)
    solver: str
    notes: list[str]


def solve(
    A: Float[Array, "rows features"],
    b: Float[Array, " rows"],
    solver: str,
    rcond: float | None,
    ridge: float,
    condition: Float[Array, " features"] | None = None,
) -> Fit:
    """The least-squares solution by a named solver; with `condition` c, among the w with c·w = 1."""
    with _lapack_threads(min(A.shape)):
        if condition is None:
            fit = SOLVERS[solver](A, b, rcond, ridge)
        else:
            turned, rhs, first, mirror = _turn(A, b, condition)
            empty = Fit(jnp.zeros(0), 0, 1.0, rcond or 0.0, solver, [])  # one feature: the condition says it all
            fit = SOLVERS[solver](turned, rhs, rcond, ridge) if turned.shape[1] else empty
            fit = fit._replace(weights=_turn_back(fit.weights, first, mirror))
        fit.weights.block_until_ready()
    if not np.all(np.isfinite(fit.weights)):
        raise NumericalError(f'the least-squares solve ({fit.solver}) gave weights that are not finite; try solver="svd".')
    if A.shape[0] < A.shape[1]:
        among = (
            "regularised by the ridge"
            if ridge > 0
            else "of minimum norm" + (" after column scaling" if fit.solver == "svd" else "")
        )
        fit.notes.append(f"under-determined: {A.shape[0]} rows for {A.shape[1]} features; the weights are those {among}")
    return fit


def _lapack_threads(size: int) -> threadpoolctl.threadpool_limits:
    """One LAPACK thread, or all of them where the system is large and they measurably help at this moment.

    OpenBLAS threads wait by spinning. On two cores that other processes were using too, a QR of 2400 x 1091 took 39 s with
    two threads and 0.35 s with one.
    """
    if size < _LARGE:
        return threadpoolctl.threadpool_limits(1, user_api="blas")
    sample = np.random.default_rng(0).standard_normal((512, 512))
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        alone = min(_seconds(sample) for _ in range(3))
    together = max(_seconds(sample) for _ in range(3))
    return threadpoolctl.threadpool_limits(None if together < alone else 1, user_api="blas")


def _seconds(sample: np.ndarray) -> float:
    start = time.perf_counter()
    scipy.linalg.qr(sample, mode="r", check_finite=False)
    return time.perf_counter() - start


@jax.jit
def _turn(A: Array, b: Array, condition: Array) -> tuple[Array, Array, Array, Array]:
    """A Householder reflection I - 2vvᵀ takes c to ∓|c| e_1: the first new unknown is then known, the others are free."""
    largest = jnp.max(jnp.abs(condition))  # kernels' c_j may be tiny: their squares must not underflow
    c = condition / largest
    sign, size = jnp.where(c[0] < 0, -1.0, 1.0), jnp.linalg.norm(c)
    v = (c / size).at[0].add(sign)
    v = v / jnp.linalg.norm(v)
    turned, first = A - 2 * jnp.outer(A @ v, v), -sign / size / largest
    return turned[:, 1:], b - first * turned[:, 0], first, v


@jax.jit
def _turn_back(weights: Array, first: Array, v: Array) -> Array:
    y = jnp.concatenate([first[None], weights])
    return y - 2 * v * (v @ y)


def _svd(A: Array, b: Array, rcond: float | None, ridge: float) -> Fit:
    scaled, scale, keep = _scale(A)
    fit = _pinv(scaled, b, rcond, ridge)
    dropped = int(np.sum(~np.asarray(keep)))
    if dropped:
        fit.notes.append(
            f"{dropped} of {A.shape[1]} columns were below {_NEGLIGIBLE:g} of the largest norm and left out: "
            "zero data (u0 = 0, F = 0), or data of very different size"
        )
    return fit._replace(weights=fit.weights * scale, solver="svd")


@jax.jit
def _scale(A: Array) -> tuple[Array, Array, Array]:
    largest = jnp.max(jnp.abs(A))
    unit = A / jnp.where(largest > 0, largest, 1.0)
    norms = jnp.linalg.norm(unit, axis=0)
    keep = norms > _NEGLIGIBLE * jnp.max(norms)
    scale = jnp.where(keep, 1 / jnp.where(keep, norms, 1.0), 0.0)
    return unit * scale, scale / jnp.where(largest > 0, largest, 1.0), keep


def _pinv(A: Array, b: Array, rcond: float | None, ridge: float) -> Fit:
    """Moore-Penrose with a cut-off; a ridge damps what is kept."""
    cut = max(A.shape) * EPS if rcond is None else rcond
    weights, singular = _truncated(A, b, cut, ridge)
    s = np.asarray(singular)
    if not np.all(np.isfinite(s)):
        raise NumericalError('the singular value decomposition did not converge; try solver="cholesky" with a small ridge.')
    rank = int(np.sum(s > cut * s[0]))
    return Fit(weights, rank, float(s[0] / s[rank - 1]) if rank else 1.0, cut, "pinv", [])


@jax.jit
def _truncated(A: Array, b: Array, cut: float, ridge: float) -> tuple[Array, Array]:
    if A.shape[0] > A.shape[1]:  # the singular values of A are those of its small triangular factor
        Q, R = jnp.linalg.qr(A)
        A, b = R, Q.T @ b
    U, s, Vt = jnp.linalg.svd(A, full_matrices=False)
    keep = s > cut * s[0]
    filtered = jnp.where(keep, s / jnp.where(keep, s**2 + ridge, 1.0), 0.0)
    return Vt.T @ (filtered * (U.T @ b)), s


def _cholesky(A: Array, b: Array, rcond: float | None, ridge: float) -> Fit:
    """Rank is the effective one, Σ σ²/(σ² + λ) to the nearest whole number; the cut-off is √λ, where a direction is half damped."""
    weights, *numbers, finite = _normal_equations(A, b, ridge)
    if bool(finite):
        largest, smallest, freedom = map(float, numbers)
        cut = np.sqrt(max(ridge / largest, EPS)) if largest > 0 else 0.0  # squared, σ below √eps of the largest is rounding
        spread = np.sqrt(largest / smallest) if smallest > 0 else np.inf
        fit = Fit(weights, round(freedom), float(spread), float(cut), "cholesky", [])
        if ridge == 0 and spread > 1e6:
            fit.notes.append(
                f'the normal equations square a condition of {spread:.1e}: digits are lost; take a ridge, or solver="svd"'
            )
        return fit
    # The normal equations square the condition number; an orthogonal factorisation of [A; √λ I] does not.
    tall = jnp.concatenate([A, np.sqrt(ridge) * jnp.eye(A.shape[1])]) if ridge > 0 else A
    fit = _pinv(tall, jnp.concatenate([b, jnp.zeros(len(tall) - len(b))]), None, 0.0)
    note = "Cholesky failed: the normal equations are not positive definite in float64; solved by QR of the rows instead"
    return fit._replace(solver="qr", notes=[note])


@jax.jit
def _normal_equations(A: Array, b: Array, ridge: float) -> tuple[Array, ...]:
    """Weights; largest and smallest eigenvalue and degrees of freedom of the regularised normal matrix; whether Cholesky held."""
    wide = A.shape[0] < A.shape[1]  # (AᵀA + λI)⁻¹Aᵀ = Aᵀ(AAᵀ + λI)⁻¹: factor the smaller one
    size = min(A.shape)
    gram = (A @ A.T if wide else A.T @ A) + ridge * jnp.eye(size)
    factor = jnp.linalg.cholesky(gram)

    def inverse(v: Array) -> Array:
        return jax.scipy.linalg.cho_solve((factor, True), v)

    weights = A.T @ inverse(b) if wide else inverse(A.T @ b)
    largest, smallest = _power(lambda v: gram @ v, size), 1 / _power(inverse, size)
    # tr G(G + λI)⁻¹ = size - λ |L⁻¹|².
    freedom = size - ridge * jnp.sum(jax.scipy.linalg.solve_triangular(factor, jnp.eye(size), lower=True) ** 2)
    return weights, largest, smallest, freedom, jnp.all(jnp.isfinite(factor))


def _power(apply: Callable[[Array], Array], size: int, steps: int = 24) -> Array:
    """Largest eigenvalue of a symmetric positive map by power iteration: an estimate from below, good to a few per cent."""
    start = jnp.asarray(np.random.default_rng(0).standard_normal(size))
    v = jax.lax.fori_loop(0, steps, lambda _, v: apply(v / jnp.linalg.norm(v)), start)
    return jnp.linalg.norm(v)


SOLVERS: dict[str, Callable[[Array, Array, float | None, float], Fit]] = {"svd": _svd, "pinv": _pinv, "cholesky": _cholesky}
