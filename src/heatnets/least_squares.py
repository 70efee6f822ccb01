"""min |A w - b|² (+ ridge |w|²), optionally with one exact linear condition. Rank deficiency is the normal case.

    svd        columns scaled to unit norm, singular values below rcond · largest cut off
    pinv       Moore-Penrose as the paper has it: no scaling
    cholesky   ridge normal equations as the paper has them; QR where Cholesky fails

To add a solver, write a function (A, b, rcond, ridge) -> Fit and name it in `SOLVERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
from jaxtyping import Array, Float

from heatnets.errors import NumericalError
from heatnets.precision import EPS

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
    if condition is None:
        fit = SOLVERS[solver](A, b, rcond, ridge)
    else:
        # A Householder reflection H = I - 2vvᵀ turns c into |c| e_1: the first new unknown is 1/|c|, the others are free.
        size = jnp.linalg.norm(condition)
        v = (condition / size).at[0].add(jnp.where(condition[0] < 0, -1.0, 1.0))
        v = v / jnp.linalg.norm(v)
        turned = A - 2 * jnp.outer(A @ v, v)
        first = jnp.where(condition[0] < 0, 1.0, -1.0) / size
        fit = SOLVERS[solver](turned[:, 1:], b - first * turned[:, 0], rcond, ridge)
        y = jnp.concatenate([first[None], fit.weights])
        fit = fit._replace(weights=y - 2 * v * (v @ y))
    if not bool(jnp.all(jnp.isfinite(fit.weights))):
        raise NumericalError(f"the least-squares solve ({fit.solver}) gave weights that are not finite; try solver=\"svd\".")
    if A.shape[0] < A.shape[1]:
        fit.notes.append(f"under-determined: {A.shape[0]} rows for {A.shape[1]} features; the weights are those of minimum norm")
    return fit


def _svd(A: Array, b: Array, rcond: float | None, ridge: float) -> Fit:
    norms = jnp.linalg.norm(A, axis=0)
    keep = norms > _NEGLIGIBLE * jnp.max(norms)
    scale = jnp.where(keep, 1 / jnp.where(keep, norms, 1.0), 0.0)
    fit = _truncated(A * scale, b, rcond, ridge)._replace(solver="svd")
    dropped = int(jnp.sum(~keep))
    if dropped:
        fit.notes.append(f"{dropped} of {len(norms)} columns were below {_NEGLIGIBLE:g} of the largest and left out")
    return fit._replace(weights=fit.weights * scale)


def _truncated(A: Array, b: Array, rcond: float | None, ridge: float) -> Fit:
    """Moore-Penrose with a cut-off; a ridge damps what is kept."""
    cut = max(A.shape) * EPS if rcond is None else rcond
    if A.shape[0] > A.shape[1]:  # the singular values of A are those of its small triangular factor
        Q, R = jnp.linalg.qr(A)
        A, b = R, Q.T @ b
    U, s, Vt = jnp.linalg.svd(A, full_matrices=False)
    if not bool(jnp.all(jnp.isfinite(s))):
        raise NumericalError("the singular value decomposition did not converge; try solver=\"cholesky\" with a small ridge.")
    keep = s > cut * s[0]
    filtered = jnp.where(keep, s / jnp.where(keep, s**2 + ridge, 1.0), 0.0)
    rank = int(jnp.sum(keep))
    smallest = float(s[rank - 1]) if rank else 0.0
    spread = float(s[0]) / smallest if smallest > 0 else 1.0
    return Fit(Vt.T @ (filtered * (U.T @ b)), rank, spread, cut, "pinv", [])


def _cholesky(A: Array, b: Array, rcond: float | None, ridge: float) -> Fit:
    wide = A.shape[0] < A.shape[1]  # (AᵀA + λI)⁻¹Aᵀ = Aᵀ(AAᵀ + λI)⁻¹: factor the smaller one
    gram = (A @ A.T if wide else A.T @ A) + ridge * jnp.eye(min(A.shape))
    factor = jnp.linalg.cholesky(gram)
    largest = _largest_eigenvalue(lambda v: gram @ v, gram)
    cut = float(np.sqrt(ridge / largest)) if largest > 0 else 0.0
    if bool(jnp.all(jnp.isfinite(factor))):

        def inverse(v: Array) -> Array:
            return jax.scipy.linalg.cho_solve((factor, True), v)

        w = A.T @ inverse(b) if wide else inverse(A.T @ b)
        spread = float(np.sqrt(largest * _largest_eigenvalue(inverse, gram)))
        return Fit(w, len(gram), spread, cut, "cholesky", [])
    # The normal equations square the condition number; an orthogonal factorisation of [A; √λ I] does not.
    tall = jnp.concatenate([A, jnp.sqrt(ridge) * jnp.eye(A.shape[1])]) if ridge > 0 else A
    rhs = jnp.concatenate([b, jnp.zeros(len(tall) - len(b))])
    fit = _truncated(tall, rhs, rcond, 0.0)
    note = "Cholesky failed: the normal equations are not positive definite in float64; solved by QR of the rows instead"
    return fit._replace(solver="qr", notes=[note])


def _largest_eigenvalue(apply: Callable[[Array], Array], like: Array, steps: int = 24) -> float:
    """Largest eigenvalue of a symmetric positive map by power iteration: an estimate from below, good to a few per cent."""
    v = jnp.asarray(np.random.default_rng(0).standard_normal(len(like)))
    size = jnp.ones(())
    for _ in range(steps):
        v = apply(v / jnp.linalg.norm(v))
        size = jnp.linalg.norm(v)
    return float(size) if np.isfinite(float(size)) else 0.0


SOLVERS: dict[str, Callable[[Array, Array, float | None, float], Fit]] = {
    "svd": _svd,
    "pinv": _truncated,
    "cholesky": _cholesky,
}
