"""min |A w - b|² (+ ridge |w|²), optionally with one exact linear condition. Rank deficiency is the normal case.

    svd        columns scaled to unit norm, singular values below rcond · largest cut off
    qr         columns scaled to unit norm, singular values below rcond · largest damped, by one triangular factorisation: as
               accurate as svd where that was compared, and four times faster at 4096 x 3072
    pinv       Moore-Penrose as the paper has it: no scaling
    cholesky   ridge normal equations as the paper has them; QR where Cholesky fails

To add a solver, write a function (A, b, rcond, ridge) -> Fit and name it in `SOLVERS`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.linalg
import scipy.linalg.lapack
import threadpoolctl
from jaxtyping import Array, Float

from heatnets._core.errors import NumericalError
from heatnets._core.precision import EPS

_LARGE = 1500  # below this many unknowns one LAPACK thread takes seconds at most
_NEGLIGIBLE = 1e-12  # columns below this fraction of the largest norm carry rounding only; scaled up they gave 1e74


class Fit(NamedTuple):
    """Weights and what there is to know about how they came about."""

    weights: Float[Array, " features"]
    rank: int
    condition: float  # largest over smallest singular value kept; for qr of the factor's diagonal, which estimates it from below
    rcond: float  # relative singular value below which a direction is cut off (or damped by more than half)
    solver: str
    notes: list[str]


def _anywhere(function: Callable[..., Any]) -> Callable[..., Any]:
    """function(xp, A, ...) with xp = numpy for NumPy arrays, where LAPACK runs without compiling, or compiled with jax.numpy."""
    compiled = jax.jit(partial(function, jnp))
    return lambda A, *rest: (
        function(np, A, *rest) if isinstance(A, np.ndarray) else compiled(A, *rest)
    )


def solve(
    A: Float[Array, "rows features"],
    b: Float[Array, " rows"],
    solver: str,
    rcond: float | None,
    ridge: float,
    condition: Float[Array, " features"] | np.ndarray | None = None,
) -> Fit:
    """The least-squares solution by a named solver; with `condition` c, among the w with c·w = 1."""
    with _lapack_threads(min(A.shape)):
        if condition is None:
            fit = SOLVERS[solver](A, b, rcond, ridge)
        else:
            turned, rhs, first, mirror = _turn(A, b, condition)
            empty = Fit(
                jnp.zeros(0), 0, 1.0, rcond or 0.0, solver, []
            )  # one feature: the condition says it all
            fit = SOLVERS[solver](turned, rhs, rcond, ridge) if turned.shape[1] else empty
            fit = fit._replace(weights=_turn_back(mirror, fit.weights, first))
        jax.block_until_ready(fit.weights)
    if not np.all(np.isfinite(fit.weights)):
        raise NumericalError(
            f'the least-squares solve ({fit.solver}) gave weights that are not finite; try solver="svd".'
        )
    fit.notes.extend(_under_determined(A.shape[0], A.shape[1], fit.solver, ridge))
    return fit


def _under_determined(rows: int, columns: int, solver: str, ridge: float) -> list[str]:
    if rows >= columns:
        return []
    scaled = " after column scaling" if solver in ("svd", "qr") else ""
    among = "regularised by the ridge" if ridge > 0 else f"of minimum norm{scaled}"
    return [f"under-determined: {rows} rows for {columns} features; the weights are those {among}"]


def _lapack_threads(size: int) -> threadpoolctl.threadpool_limits:
    return threadpoolctl.threadpool_limits(_thread_count(size), user_api="blas")


def _thread_count(size: int) -> int | None:
    """One LAPACK thread, or all of them (None) where the system is large and they measurably help at this moment.

    OpenBLAS threads wait by spinning. On two cores that other processes were using too, a QR of 2400 x 1091 took 39 s with
    two threads and 0.35 s with one.
    """
    if size < _LARGE:
        return 1
    sample = np.random.default_rng(0).standard_normal((512, 512))
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        alone = min(_seconds(sample) for _ in range(3))
    together = max(_seconds(sample) for _ in range(3))
    return None if together < alone else 1


def _seconds(sample: np.ndarray) -> float:
    start = time.perf_counter()
    scipy.linalg.qr(sample, mode="r", check_finite=False)
    return time.perf_counter() - start


@_anywhere
def _turn(xp: Any, A: Array, b: Array, condition: Array) -> tuple[Array, Array, Array, Array]:
    """A Householder reflection I - 2vvᵀ takes c to ∓|c| e_1: the first new unknown is then known, the others are free."""
    largest = xp.max(
        xp.abs(condition)
    )  # kernels' c_j may be tiny: their squares must not underflow
    c = condition / largest
    sign, size = xp.where(c[0] < 0, -1.0, 1.0), xp.linalg.norm(c)
    v = c / size + sign * (xp.arange(len(c)) == 0)
    v = v / xp.linalg.norm(v)
    turned, first = A - 2 * xp.outer(A @ v, v), -sign / size / largest
    return turned[:, 1:], b - first * turned[:, 0], first, v


@_anywhere
def _turn_back(xp: Any, v: Array, weights: Array, first: Array) -> Array:
    y = xp.concatenate([xp.reshape(first, (1,)), weights])
    return y - 2 * v * (v @ y)


def near(
    A: np.ndarray, b: np.ndarray, prior: np.ndarray, condition: np.ndarray | None
) -> tuple[np.ndarray, float, float]:
    """min |A w - b|² + λ |w - prior|² for noisy b, with condition·w kept; λ by generalised cross-validation.

    Returns the weights, λ in units of max b², and the degrees of freedom spent. λ = ∞, the prior itself, is among the candidates.
    """
    size = float(np.max(np.abs(b))) or 1.0  # squares of small numbers underflow
    A, b = A / size, b / size
    gap = b - A @ prior
    with _lapack_threads(min(A.shape)):
        mirror = None
        if condition is not None:
            A, _, _, mirror = _turn(A, gap, condition)
        U, s, Vt = scipy.linalg.svd(A, full_matrices=False, check_finite=False)
    if s[0] == 0:
        return prior, np.inf, 0.0
    along = U.T @ gap
    rest = float(gap @ gap - along @ along)
    best: tuple[float, float, np.ndarray] = (float(gap @ gap) / len(gap), np.inf, np.zeros_like(s))
    for ridge in s[0] ** 2 * 10.0 ** np.arange(-14, 3, 0.5):
        damp = s**2 / (s**2 + ridge)
        misfit = max(rest, 0.0) + float(np.sum(((1 - damp) * along) ** 2))
        score = misfit * len(gap) / (len(gap) - damp.sum()) ** 2
        if score < best[0]:
            best = score, float(ridge), damp
    change = Vt.T @ (best[2] * along / np.where(s > 0, s, 1.0))
    if mirror is not None:
        change = _turn_back(mirror, change, np.zeros(()))
    return prior + change, best[1], float(best[2].sum())


def _svd(A: Array, b: Array, rcond: float | None, ridge: float) -> Fit:
    scaled, scale, keep = _scale(A)
    fit = _pinv(scaled, b, rcond, ridge)
    return fit._replace(
        weights=fit.weights * scale, solver="svd", notes=fit.notes + _left_out(keep)
    )


def _left_out(keep: Array) -> list[str]:
    dropped = int(np.sum(~np.asarray(keep)))
    if not dropped:
        return []
    return [
        f"{dropped} of {len(keep)} columns were below {_NEGLIGIBLE:g} of the largest norm and left out: "
        "zero data (u0 = 0, F = 0), or data of very different size"
    ]


class Damped:
    """min |A w - b|² + μ² |w|², A with unit columns, for several μ = rcond · √M from one factorisation.

    [A b] = QR once; then the triangular factor of [R; μI] for each μ, a fifth of the work. √M bounds the largest
    singular value, so `rcond` is relative to it. The rank is estimated from the diagonal of the factor. With
    `condition` c the weights keep c·w = 1.
    """

    def __init__(self, A: Array, b: Array, condition: Array | np.ndarray | None = None) -> None:
        self._mirror: Array | None = None
        self._threads = _thread_count(min(A.shape))
        with threadpoolctl.threadpool_limits(self._threads, user_api="blas"):
            if condition is not None:
                A, b, self._first, self._mirror = _turn(A, b, condition)
            self._free = A.shape[1]
            if self._free:
                scaled, self._scale, self._keep = _scale(A)
                self._triangle, self._right = _triangle(scaled, b)

    def fit(self, rcond: float) -> Fit | None:
        """The weights for one damping; None where they are not finite, or the factor is singular: nothing damps columns of zeros."""
        if not self._free:  # one feature: the condition says it all
            return Fit(self._restore(jnp.zeros(0)), 0, 1.0, rcond, "qr", [])
        damping = rcond * np.sqrt(self._free)
        with threadpoolctl.threadpool_limits(self._threads, user_api="blas"):
            triangle, right = _damp(self._triangle, self._right, damping)
            diagonal = np.abs(np.asarray(triangle.diagonal()))
            if not np.all(diagonal > 0):
                return None
            numpy = isinstance(triangle, np.ndarray)
            solve = scipy.linalg.solve_triangular if numpy else jax.scipy.linalg.solve_triangular
            weights = self._restore(solve(triangle, right) * self._scale)
        if not np.all(np.isfinite(np.asarray(weights))):
            return None
        kept = diagonal[diagonal > 2 * damping]
        spread = float(kept.max() / kept.min()) if len(kept) else 1.0
        return Fit(weights, len(kept), spread, rcond, "qr", _left_out(self._keep))

    def _restore(self, weights: Array) -> Array:
        return weights if self._mirror is None else _turn_back(self._mirror, weights, self._first)


def _qr(A: Array, b: Array, rcond: float | None, ridge: float) -> Fit:
    """Damped least squares with columns scaled to unit norm."""
    fit = Damped(A, b).fit(1e-14 if rcond is None else rcond)
    return _svd(A, b, rcond, ridge) if fit is None else fit


_BLOCK = (
    128  # columns per block of the triangular update: faster than 16, 32 and 64 at 1500 columns
)


@_anywhere
def _triangle(xp: Any, A: Array, b: Array) -> tuple[Array, Array]:
    """R, square, and Qᵀb of A = QR, Q never formed."""
    n = A.shape[1]
    if xp is np:
        R = scipy.linalg.qr(
            np.column_stack([A, b]), mode="r", overwrite_a=True, check_finite=False
        )[0][:n]
    else:
        R = xp.linalg.qr(xp.concatenate([A, b[:, None]], axis=1), mode="r")[:n]
    if len(R) < n:  # fewer rows than columns
        R = xp.concatenate([R, xp.zeros((n - len(R), n + 1))])
    return R[:, :n], R[:, n]


@_anywhere
def _damp(xp: Any, R: Array, right: Array, damping: float) -> tuple[Array, Array]:
    """The triangular factor of [R; damping I] and what becomes of the right-hand side."""
    n = len(right)
    if xp is np:
        below = np.diag(np.full(n, float(damping)))
        factor, reflectors, blocks, _ = scipy.linalg.lapack.dtpqrt(
            n, min(_BLOCK, n), R, below, overwrite_b=True
        )
        top, _, _ = scipy.linalg.lapack.dtpmqrt(
            n, reflectors, blocks, right[:, None], np.zeros((n, 1)), trans="T"
        )
        return np.triu(factor), top[:, 0]
    tall = xp.concatenate([xp.concatenate([R, right[:, None]], axis=1), xp.eye(n, n + 1) * damping])
    factor = xp.linalg.qr(tall, mode="r")
    return factor[:n, :n], factor[:n, n]


@_anywhere
def _scale(xp: Any, A: Array) -> tuple[Array, Array, Array]:
    largest = xp.max(xp.abs(A))
    unit = A / xp.where(largest > 0, largest, 1.0)
    norms = xp.linalg.norm(unit, axis=0)
    keep = norms > _NEGLIGIBLE * xp.max(norms)
    scale = xp.where(keep, 1 / xp.where(keep, norms, 1.0), 0.0)
    return unit * scale, scale / xp.where(largest > 0, largest, 1.0), keep


def _pinv(A: Array, b: Array, rcond: float | None, ridge: float) -> Fit:
    """Moore-Penrose with a cut-off; a ridge damps what is kept."""
    cut = max(A.shape) * EPS if rcond is None else rcond
    weights, singular = _truncated(A, b, cut, ridge)
    s = np.asarray(singular)
    if not np.all(np.isfinite(s)):
        raise NumericalError(
            'the singular value decomposition did not converge; try solver="cholesky" with a small ridge.'
        )
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
        cut = (
            np.sqrt(max(ridge / largest, EPS)) if largest > 0 else 0.0
        )  # squared, σ below √eps of the largest is rounding
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
    freedom = size - ridge * jnp.sum(
        jax.scipy.linalg.solve_triangular(factor, jnp.eye(size), lower=True) ** 2
    )
    return weights, largest, smallest, freedom, jnp.all(jnp.isfinite(factor))


def _power(apply: Callable[[Array], Array], size: int, steps: int = 24) -> Array:
    """Largest eigenvalue of a symmetric positive map by power iteration: an estimate from below, good to a few per cent."""
    start = jnp.asarray(np.random.default_rng(0).standard_normal(size))
    v = jax.lax.fori_loop(0, steps, lambda _, v: apply(v / jnp.linalg.norm(v)), start)
    return jnp.linalg.norm(v)


SOLVERS: dict[str, Callable[[Array, Array, float | None, float], Fit]] = {
    "svd": _svd,
    "qr": _qr,
    "pinv": _pinv,
    "cholesky": _cholesky,
}
