"""Triangular factors R and right-hand sides Qᵀb of [A b] = QR: computed, damped, joined."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.linalg.lapack

from heatnets._core.process_group import ProcessGroup

# Columns per block of the triangular update: faster than 16, 32 and 64 at 1500 columns.
_BLOCK = 128
_PARALLEL = 128  # from so many columns two threads are faster than one


def factor_rows(A: Any, b: Any) -> tuple[Any, Any]:
    """R (square) and Qᵀb of A = QR; Q is not formed."""
    xp: Any = np if isinstance(A, np.ndarray) else jnp
    n = A.shape[1]
    R = _triangular_factor(xp.concatenate([A, b[:, None]], axis=1))[:n]
    if len(R) < n:  # fewer rows than columns
        R = xp.concatenate([R, xp.zeros((n - len(R), n + 1))])
    return R[:, :n], R[:, n]


def damp(R: Any, right: Any, damping: float) -> tuple[Any, Any]:
    """Triangular factor of [R; damping I], and the right-hand side transformed accordingly."""
    n = len(right)
    if isinstance(R, np.ndarray):
        return _stack((R, right), (np.diag(np.full(n, float(damping))), np.zeros(n)))
    tall = jnp.concatenate(
        [jnp.concatenate([R, right[:, None]], axis=1), jnp.eye(n, n + 1) * damping]
    )
    factor = _triangular_factor(tall)
    return factor[:n, :n], factor[:n, n]


def _stack(
    first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The triangular factor of two such, one above the other, and the right-hand sides likewise."""
    (R, right), (below, right_below), n = first, second, len(first[1])
    factor, reflectors, blocks, _ = scipy.linalg.lapack.dtpqrt(n, min(_BLOCK, n), R, below)
    top, _, _ = scipy.linalg.lapack.dtpmqrt(
        n, reflectors, blocks, right[:, None], right_below[:, None], trans="T"
    )
    return np.triu(factor), top[:, 0]


def join_factors(
    R: np.ndarray, right: np.ndarray, processes: ProcessGroup
) -> tuple[np.ndarray, np.ndarray]:
    """The factor of the rows of all processes from that of each, the same in all of them.

    In each of log2(count) steps pairs of processes exchange their factors; both then compute the
    same one. Processes beyond the largest power of two give theirs away first, and get the result.
    """
    rank, half = processes.rank, 1 << (processes.count.bit_length() - 1)
    pair = R, right

    def swap(pairs: dict[int, int]) -> tuple[np.ndarray, np.ndarray]:
        received = processes.exchange("factors", np.column_stack(pair), pairs)
        return received[:, :-1], received[:, -1]

    further = {k: k - half for k in range(half, processes.count)}
    if further:
        received = swap(further)
        if rank in further.values():
            pair = _stack(pair, received)
    step = 1
    while step < half:
        received = swap({k: k ^ step for k in range(half)})
        if rank < half:
            pair = _stack(*((received, pair) if rank & step else (pair, received)))
        step *= 2
    if further:
        received = swap({k: j for j, k in further.items()})
        if rank in further:
            pair = received
    return pair


def _triangular_factor(A: Any) -> Any:
    """R of A = QR."""
    return parallel_qr(A) if isinstance(A, np.ndarray) else _compiled_qr(A)


_compiled_qr = jax.jit(partial(jnp.linalg.qr, mode="r"))


def parallel_qr(A: np.ndarray) -> np.ndarray:
    """The triangular factor R of A = QR: factors of two halves of the rows, then one of both.

    The halves are factored at the same time by threads with one LAPACK thread each. OpenBLAS's own
    threads wait by spinning: beside other work a QR of 2400 x 1091 took 39 s instead of 0.35 s. The
    result does not depend on the number of cores.
    """
    rows, n = A.shape
    if rows < 2 * n or n < _PARALLEL:
        return _host_qr(A)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(_host_qr, (A[: rows // 2], A[rows // 2 :]))
    factor, *_ = scipy.linalg.lapack.dtpqrt(n, min(_BLOCK, n), first, second)
    return np.triu(factor)


def _host_qr(A: np.ndarray) -> np.ndarray:
    """R (n, n) of A = QR with n columns; (rows, n) if there are fewer rows."""
    R = scipy.linalg.qr(A, mode="r", check_finite=False)[0]
    return R[: A.shape[1]]
