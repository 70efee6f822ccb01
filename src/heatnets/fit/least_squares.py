"""Least squares: min |A w - b|² (+ ridge |w|²), optionally with one linear constraint c·w = 1.

Solvers: "svd", "qr", "pinv", "cholesky". The matrices are usually rank deficient. To add a solver,
write a function (A, b, rcond, ridge) -> LeastSquaresResult and add it to `SOLVERS`.
"""

# svd        columns scaled to unit norm; singular values below rcond · largest are cut off
# qr         columns scaled to unit norm; singular values below rcond · largest are damped, with one
#            triangular factorisation: as accurate as svd where they were compared, and four times
#            faster at 4096 x 3072
# pinv       Moore-Penrose as in the paper: no scaling
# cholesky   normal equations with a ridge as in the paper; QR if Cholesky fails

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.linalg
import scipy.linalg.lapack
from jaxtyping import Array, Float

from heatnets._core.errors import NumericalError
from heatnets._core.lapack import lapack_threads
from heatnets._core.precision import EPS
from heatnets._core.process_group import ALONE, ProcessGroup
from heatnets._core.reasons import Reason, ReasonKind
from heatnets.fit.triangular_factors import damp, factor_rows, join_factors

_LARGE = 1500  # below this many unknowns one LAPACK thread takes seconds at most
# Columns below this fraction of the largest norm contain only rounding errors; scaled up to unit
# norm they gave numbers of size 1e74.
_NEGLIGIBLE = 1e-12


class LeastSquaresResult(NamedTuple):
    """Solution of a least-squares problem."""

    weights: Float[Array, " features"]
    rank: int
    # Largest over smallest singular value in use; for qr, of the diagonal of the triangular factor:
    # an estimate from below.
    condition_number: float | None
    # Relative singular value below which a direction is cut off (or damped by more than half).
    rcond: float | None
    solver: str
    notes: list[str]  # warnings for the user
    ridge: float = 0.0


def _for_numpy_and_jax(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: function(xp, A, ...) for NumPy and for JAX arrays.

    For NumPy arrays xp = numpy, and LAPACK runs without compiling; otherwise xp = jax.numpy, and
    the function is compiled.
    """
    compiled = jax.jit(partial(function, jnp))

    def call(A: Any, *rest: Any) -> Any:
        return function(np, A, *rest) if isinstance(A, np.ndarray) else compiled(A, *rest)

    return call


def solve(
    A: Float[Array, "rows features"],
    b: Float[Array, " rows"],
    solver: str,
    rcond: float | None,
    ridge: float,
    constraint: Float[Array, " features"] | np.ndarray | None = None,
) -> LeastSquaresResult:
    """Solve a least-squares problem; with a constraint c, subject to c·w = 1."""
    rows, columns = A.shape
    with lapack_threads(_thread_count(min(rows, columns))):
        A, b, restore = _eliminate_constraint(A, b, constraint)
        if A.shape[1]:
            fit = SOLVERS[solver](A, b, rcond, ridge)
        else:  # one feature: the constraint determines its weight
            fit = LeastSquaresResult(jnp.zeros(0), 0, 1.0, rcond or 0.0, solver, [])
        fit = fit._replace(weights=restore(fit.weights), ridge=ridge)
        jax.block_until_ready(fit.weights)
    if not np.all(np.isfinite(fit.weights)):
        raise NumericalError(
            f"the least-squares solve ({fit.solver}) gave weights that are not finite; "
            'try solver="svd".'
        )
    if rows < columns:
        scaled = " after column scaling" if fit.solver in ("svd", "qr") else ""
        which = "regularised by the ridge" if ridge > 0 else f"of minimum norm{scaled}"
        fit.notes.append(
            f"under-determined: {rows} rows for {columns} features; the weights are those {which}"
        )
    return fit


def _thread_count(size: int) -> int | None:
    """Number of LAPACK threads for `size` unknowns: one, or all (None).

    Only the size decides: the last bits depend on the number of threads. OpenBLAS threads wait by
    spinning, which is harmful if other processes use the cores too: a QR of 2400 x 1091 then took
    39 s with two threads and 0.35 s with one. The larger the matrix, the smaller the harm: for an
    SVD of 4096 x 1600 two threads gain a factor of 1.6 on free cores, and lose 1.8 on busy ones.
    """
    return 1 if size < _LARGE else None


def _eliminate_constraint(A: Any, b: Any, constraint: Any) -> tuple[Any, Any, Callable[..., Array]]:
    """A and b for the unknowns that c·w = 1 leaves free, and the map from these to all weights."""
    if constraint is None:
        return A, b, lambda weights: weights
    A, b, first, reflector = reflect(A, b, constraint)
    return A, b, lambda weights, first=first: reflect_back(reflector, weights, first)


@_for_numpy_and_jax
def reflect(xp: Any, A: Array, b: Array, constraint: Array) -> tuple[Array, ...]:
    """Eliminate one unknown by the constraint c·w = 1.

    The Householder reflection H = I - 2vvᵀ maps c to ∓|c| e_1. The constraint fixes the first
    component of y = H w; the others are free. Returns the matrix and the right-hand side for the
    free unknowns, the first component, and v.
    """
    largest = xp.max(xp.abs(constraint))  # c_j of kernels may be tiny: their squares underflow
    c = constraint / largest
    sign, size = xp.where(c[0] < 0, -1.0, 1.0), xp.linalg.norm(c)
    v = c / size + sign * (xp.arange(len(c)) == 0)
    v = v / xp.linalg.norm(v)
    reflected, first = A - 2 * xp.outer(A @ v, v), -sign / size / largest
    return reflected[:, 1:], b - first * reflected[:, 0], first, v


@_for_numpy_and_jax
def reflect_back(xp: Any, v: Array, weights: Array, first: Array) -> Array:
    """w = H y, from the first component of y and the free unknowns."""
    y = xp.concatenate([xp.reshape(first, (1,)), weights])
    return y - 2 * v * (v @ y)


def ridge_to_prior(
    A: np.ndarray, b: np.ndarray, prior: np.ndarray, constraint: np.ndarray | None
) -> LeastSquaresResult:
    """Minimise |A w - b|² + λ |w - prior|² for noisy b, subject to c·w = c·prior.

    λ is chosen by generalised cross-validation; λ = ∞, the prior itself, is among the candidates.
    Reported are λ in units of max b² and, as the rank, the effective number of degrees of freedom.
    """
    size = float(np.max(np.abs(b))) or 1.0  # squares of small numbers underflow
    A, b = A / size, b / size
    gap = b - A @ prior
    with lapack_threads(_thread_count(min(A.shape))):
        A, _, restore = _eliminate_constraint(A, gap, constraint)
        U, s, Vt = scipy.linalg.svd(A, full_matrices=False, check_finite=False)
    if s[0] == 0:
        return LeastSquaresResult(jnp.asarray(prior), 0, None, None, "near", [], np.inf)
    coefficients = U.T @ gap
    rest = float(gap @ gap - coefficients @ coefficients)  # part of the gap outside the range of A
    # Score, ridge and damping factors of the best candidate; first λ = ∞.
    best: tuple[float, float, np.ndarray] = (float(gap @ gap) / len(gap), np.inf, np.zeros_like(s))
    for ridge in s[0] ** 2 * 10.0 ** np.arange(-14, 3, 0.5):
        damping = s**2 / (s**2 + ridge)
        misfit = max(rest, 0.0) + float(np.sum(((1 - damping) * coefficients) ** 2))
        score = misfit * len(gap) / (len(gap) - damping.sum()) ** 2
        if score < best[0]:
            best = score, float(ridge), damping
    change = Vt.T @ (best[2] * coefficients / np.where(s > 0, s, 1.0))
    if constraint is not None:
        change = restore(change, np.zeros(()))
    freedom = round(float(best[2].sum()))
    weights = jnp.asarray(prior + change)
    return LeastSquaresResult(weights, freedom, None, None, "near", [], best[1])


def _svd(A: Array, b: Array, rcond: float | None, ridge: float) -> LeastSquaresResult:
    """Truncated singular value decomposition with columns scaled to unit norm."""
    scaled, scale, keep = scale_columns(A)
    fit = _pinv(scaled, b, rcond, ridge)
    notes = fit.notes + _note_dropped_columns(keep)
    return fit._replace(weights=fit.weights * scale, solver="svd", notes=notes)


def _note_dropped_columns(keep: Array) -> list[str]:
    """A warning if columns were dropped; `keep` is a mask of the columns."""
    dropped = int(np.sum(~np.asarray(keep)))
    if not dropped:
        return []
    text = (
        f"{dropped} of {len(keep)} columns were below {_NEGLIGIBLE:g} of the largest norm and "
        "left out: zero data (u0 = 0, F = 0), or data of very different size"
    )
    return [Reason(ReasonKind.EMPTY_COLUMNS, text)]


class Damped:
    """min |A w - b|² + μ² |w|², A with unit columns, for several μ from one factorisation.

    μ = rcond · √M; √M bounds the largest singular value, so `rcond` is relative to it. [A b] = QR
    is computed once; then, for each μ, the triangular factor of [R; μI], a fifth of the work. It
    serves the first columns of A alone, too: their factor is the leading block of R. The rank is
    estimated from the diagonal of the factor. With a constraint c the weights satisfy c·w = 1; c is
    zero for the columns that are left out. Several processes may each have a part of the rows.
    """

    def __init__(
        self,
        A: Array,
        b: Array,
        constraint: Array | np.ndarray | None = None,
        processes: ProcessGroup = ALONE,
    ) -> None:
        self._is_host, self._processes = isinstance(A, np.ndarray), processes
        with lapack_threads(1):
            self._reflector: Any = None
            if constraint is not None:
                A, b, self._first, self._reflector = reflect(A, b, constraint)
            if A.shape[1]:
                if processes.count == 1:
                    scaled, self._scale, self._keep = scale_columns(A)
                    self._R, self._Qtb = factor_rows(scaled, b)
                else:
                    scaled, self._scale, self._keep = _scale_parts(A, processes)
                    self._R, self._Qtb = join_factors(*factor_rows(scaled, b), processes)

    def fits(self, dampings: Sequence[float], columns: int) -> list[LeastSquaresResult]:
        """The weights of the first columns, for each damping that gives finite ones.

        Several processes share the dampings.
        """
        count, rank = self._processes.count, self._processes.rank
        with lapack_threads(1), ThreadPoolExecutor(2) as pool:
            # Other threads do not have this one's precision of JAX.
            apply = pool.map if self._is_host else map
            fits = list(apply(partial(self._fit, columns), dampings[rank::count]))
        if count > 1:
            fits = self._gather(fits, dampings, columns)
        return [fit for fit in fits if fit is not None]

    def _gather(
        self, own: list[LeastSquaresResult | None], dampings: Sequence[float], columns: int
    ) -> list[LeastSquaresResult | None]:
        """The fits of all processes, in the order of the dampings."""
        packed = np.zeros((len(own), columns + 3))  # whether there is a fit, rank, condition
        for row, fit in zip(packed, own, strict=True):
            if fit is not None:
                row[:3], row[3:] = (1, fit.rank, fit.condition_number), fit.weights
        parts, count = self._processes.gather("fits", packed), self._processes.count
        rows = [parts[k % count][k // count] for k in range(len(dampings))]
        n = columns if self._reflector is None else columns - 1
        notes = _note_dropped_columns(self._keep[:n]) if n else []
        return [
            LeastSquaresResult(jnp.asarray(row[3:]), int(row[1]), float(row[2]), mu, "qr", notes)
            if row[0]
            else None
            for row, mu in zip(rows, dampings, strict=True)
        ]

    def fit(self, rcond: float, columns: int) -> LeastSquaresResult | None:
        """The weights of the first columns, for one damping.

        None if they are not finite or the factor is singular (columns of zeros with rcond = 0).
        """
        with lapack_threads(1):
            return self._fit(columns, rcond)

    def _fit(self, columns: int, rcond: float) -> LeastSquaresResult | None:
        n = columns if self._reflector is None else columns - 1
        if not n:  # one feature: the constraint determines its weight
            return LeastSquaresResult(self._restore(jnp.zeros(0)), 0, 1.0, rcond, "qr", [])
        R, right = damp(self._R[:n, :n], self._Qtb[:n], rcond * np.sqrt(n))
        diagonal = np.abs(np.asarray(R.diagonal()))
        if not np.all(diagonal > 0):
            return None
        linalg = scipy.linalg if isinstance(R, np.ndarray) else jax.scipy.linalg
        weights = self._restore(linalg.solve_triangular(R, right) * self._scale[:n])
        return damped_result(weights, diagonal, self._keep[:n], rcond)

    def _restore(self, weights: Array) -> Array:
        """All weights from those that the constraint leaves free."""
        if self._reflector is None:
            return weights
        return reflect_back(self._reflector[: len(weights) + 1], weights, self._first)


def damped_result(
    weights: Array, diagonal: np.ndarray, keep: Any, rcond: float
) -> LeastSquaresResult | None:
    """The result of a damped solve; None if the factor is singular or weights are not finite.

    Args:
        weights: all weights.
        diagonal: moduli of the diagonal of the damped triangular factor, (unknowns,).
        keep: mask of the unknowns whose columns are not negligible, (unknowns,).
        rcond: the damping, relative to the largest singular value.
    """
    if not np.all(diagonal > 0) or not np.all(np.isfinite(np.asarray(weights))):
        return None
    undamped = diagonal[diagonal > 2 * rcond * np.sqrt(len(diagonal))]
    spread = float(undamped.max() / undamped.min()) if len(undamped) else 1.0
    notes = _note_dropped_columns(keep)
    return LeastSquaresResult(weights, len(undamped), spread, rcond, "qr", notes)


def _qr(A: Array, b: Array, rcond: float | None, ridge: float) -> LeastSquaresResult:
    """Damped least squares with columns scaled to unit norm."""
    fit = Damped(A, b).fit(1e-14 if rcond is None else rcond, A.shape[1])
    return _svd(A, b, rcond, ridge) if fit is None else fit


@_for_numpy_and_jax
def scale_columns(xp: Any, A: Array) -> tuple[Array, Array, Array]:
    """Scale columns to unit norm. Returns the matrix, the factors, and the mask of columns in use.

    Negligible columns become zero.
    """
    largest = xp.max(xp.abs(A))
    unit = A / xp.where(largest > 0, largest, 1.0)
    norms = xp.linalg.norm(unit, axis=0)
    keep = norms > _NEGLIGIBLE * xp.max(norms)
    scale = xp.where(keep, 1 / xp.where(keep, norms, 1.0), 0.0)
    return unit * scale, scale / xp.where(largest > 0, largest, 1.0), keep


def _scale_parts(A: Any, processes: ProcessGroup) -> tuple[Any, ...]:
    """As `scale_columns`, where each process has some of the rows."""
    largest = float(processes.largest("largest entry", np.max(np.abs(A), initial=0.0))[0])
    unit = A / (largest or 1.0)
    norms = np.sqrt(processes.total("column norms", np.sum(np.asarray(unit) ** 2, axis=0)))
    keep = norms > _NEGLIGIBLE * np.max(norms)
    scale = np.where(keep, 1 / np.where(keep, norms, 1.0), 0.0)
    return unit * scale, scale / (largest or 1.0), keep


def _pinv(A: Array, b: Array, rcond: float | None, ridge: float) -> LeastSquaresResult:
    """Moore-Penrose inverse with a cut-off; a ridge damps the remaining directions."""
    cut = max(A.shape) * EPS if rcond is None else rcond
    try:
        weights, singular = _truncated(A, b, cut, ridge)
    except np.linalg.LinAlgError:  # NumPy raises, JAX returns nan
        singular = np.array([np.nan])
    s = np.asarray(singular)
    if not np.all(np.isfinite(s)):
        raise NumericalError(
            "the singular value decomposition did not converge; "
            'try solver="cholesky" with a small ridge.'
        )
    rank = int(np.sum(s > cut * s[0]))
    return LeastSquaresResult(
        weights, rank, float(s[0] / s[rank - 1]) if rank else 1.0, cut, "pinv", []
    )


@_for_numpy_and_jax
def _truncated(xp: Any, A: Array, b: Array, cut: float, ridge: float) -> tuple[Array, Array]:
    """Weights by the singular values above `cut` times the largest; all singular values."""
    if A.shape[0] > A.shape[1]:  # the singular values of A are those of its small triangular factor
        Q, R = xp.linalg.qr(A)
        A, b = R, Q.T @ b
    U, s, Vt = xp.linalg.svd(A, full_matrices=False)
    keep = s > cut * s[0]
    used = xp.where(keep, s, 1.0)
    filtered = xp.where(keep, 1 / (used + ridge / used), 0.0)  # s² might overflow
    return Vt.T @ (filtered * (U.T @ b)), s


def _cholesky(A: Array, b: Array, rcond: float | None, ridge: float) -> LeastSquaresResult:
    """Normal equations (AᵀA + λI) w = Aᵀb by Cholesky; by QR if that fails.

    The reported rank is the effective one, Σ σ²/(σ² + λ), rounded; the reported cut-off is √λ,
    where a direction is damped by half.
    """
    try:
        with np.errstate(all="ignore"):  # squares may overflow
            weights, *numbers, is_definite = _normal_equations(A, b, ridge)
    except np.linalg.LinAlgError:  # NumPy raises, JAX returns nan
        is_definite = False
    if is_definite:
        largest, smallest, freedom = map(float, numbers)
        # In the squared matrix, σ below √eps times the largest is rounding.
        cut = np.sqrt(max(ridge / largest, EPS)) if largest > 0 else 0.0
        spread = np.sqrt(largest / smallest) if smallest > 0 else np.inf
        fit = LeastSquaresResult(weights, round(freedom), float(spread), float(cut), "cholesky", [])
        if ridge == 0 and spread > 1e6:
            fit.notes.append(
                f"the normal equations square a condition of {spread:.1e}: digits are lost; "
                'take a ridge, or solver="svd"'
            )
        return fit
    # The normal equations square the condition number; a QR factorisation of [A; √λ I] does not.
    xp: Any = np if isinstance(A, np.ndarray) else jnp
    tall = xp.concatenate([A, np.sqrt(ridge) * xp.eye(A.shape[1])]) if ridge > 0 else A
    fit = _pinv(tall, xp.concatenate([b, xp.zeros(len(tall) - len(b))]), None, 0.0)
    note = (
        "Cholesky failed: the normal equations are not positive definite in float64; "
        "solved by QR of the rows instead"
    )
    return fit._replace(solver="qr", notes=[note])


@_for_numpy_and_jax
def _normal_equations(xp: Any, A: Array, b: Array, ridge: float) -> tuple[Array, ...]:
    """Solve the normal equations by Cholesky.

    Returns the weights; the largest and the smallest eigenvalue of the matrix; the effective number
    of degrees of freedom; and whether the Cholesky factor is finite.
    """
    wide = A.shape[0] < A.shape[1]  # (AᵀA + λI)⁻¹Aᵀ = Aᵀ(AAᵀ + λI)⁻¹: factor the smaller one
    size = min(A.shape)
    gram = (A @ A.T if wide else A.T @ A) + ridge * xp.eye(size)
    linalg = scipy.linalg if xp is np else jax.scipy.linalg
    factor = xp.linalg.cholesky(gram)

    def inverse(v: Array) -> Array:
        return linalg.cho_solve((factor, True), v, check_finite=False)

    weights = A.T @ inverse(b) if wide else inverse(A.T @ b)
    largest = _largest_eigenvalue(xp, lambda v: gram @ v, size)
    smallest = 1 / _largest_eigenvalue(xp, inverse, size)
    # tr G(G + λI)⁻¹ = size - λ |L⁻¹|².
    inverse_factor = linalg.solve_triangular(factor, xp.eye(size), lower=True, check_finite=False)
    freedom = size - ridge * xp.sum(inverse_factor**2)
    return weights, largest, smallest, freedom, xp.all(xp.isfinite(factor))


def _largest_eigenvalue(
    xp: Any, apply: Callable[[Array], Array], size: int, steps: int = 24
) -> Array:
    """Largest eigenvalue of a symmetric positive map by power iteration.

    An estimate from below, good to a few per cent.
    """

    def step(_: int, v: Array) -> Array:
        return apply(v / xp.linalg.norm(v))

    v = xp.asarray(np.random.default_rng(0).standard_normal(size))
    if xp is jnp:
        return jnp.linalg.norm(jax.lax.fori_loop(0, steps, step, v))
    for k in range(steps):
        v = step(k, v)
    return xp.linalg.norm(v)


SOLVERS: dict[str, Callable[[Array, Array, float | None, float], LeastSquaresResult]] = {
    "svd": _svd,
    "qr": _qr,
    "pinv": _pinv,
    "cholesky": _cholesky,
}
