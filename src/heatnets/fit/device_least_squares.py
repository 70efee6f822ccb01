"""Damped least squares on a GPU: the entries stay there, and few shapes are ever compiled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
from jaxtyping import Array, Float

from heatnets.fit.assembly import residual_columns
from heatnets.fit.entry_cache import EntryCache
from heatnets.fit.least_squares import (
    Damped,
    LeastSquaresResult,
    damped_result,
    reflect,
    reflect_back,
    scale_columns,
)

_DEVICE_FLOPS = 2e9  # from so many operations of a factorisation a GPU pays


def damped_system(
    rows: EntryCache,
    columns: np.ndarray,
    degree: int,
    constraint: Float[np.ndarray, " features"] | None,
) -> Damped | DeviceDamped:
    """The system of the equation rows for some features: on a CPU, or if it is large on a GPU.

    Args:
        rows: values and residuals of all features.
        columns: numbers of the features, (features,).
        degree: the highest degree of the weights in time.
        constraint: c with c·w = 1, for the weights that are constant in time.
    """
    flops = 2.0 * len(rows.points[0]) * ((degree + 1) * len(columns)) ** 2
    is_shared = rows.processes.count > 1
    if rows.ctx.device.platform == "cpu" or flops < _DEVICE_FLOPS or is_shared:
        return _host_system(rows, columns, degree, constraint)
    try:
        return DeviceDamped(rows, columns, degree, constraint)
    except jax.errors.JaxRuntimeError as error:
        _require_out_of_memory(error)
        return _host_system(rows, columns, degree, constraint)


def _host_system(
    rows: EntryCache, columns: np.ndarray, degree: int, constraint: np.ndarray | None
) -> Damped:
    if constraint is not None:
        constraint = np.concatenate([constraint, np.zeros(degree * len(columns))])
    return Damped(*rows.system(columns, degree), constraint, rows.processes)


def _require_out_of_memory(error: jax.errors.JaxRuntimeError) -> None:
    """Raise the error again if it is not that the device ran out of memory."""
    if "RESOURCE_EXHAUSTED" not in str(error):
        raise error


class DeviceDamped:
    """As `Damped`, with the matrix on a device, and zeros where it is smaller than its shape.

    Zero rows change nothing. Zero columns get a damping of one, so that their weights are zero.
    """

    def __init__(
        self, rows: EntryCache, columns: np.ndarray, degree: int, constraint: np.ndarray | None
    ) -> None:
        self._host = partial(_host_system, rows, columns, degree, constraint)
        self._count, width = len(columns), padded_size(len(columns))
        padding = (0, width - self._count)
        self._is_feature = np.pad(np.ones(self._count), padding)
        start = np.zeros(width) if constraint is None else np.pad(constraint, padding)
        self._has_constraint = constraint is not None
        selection = (np.pad(columns, padding), self._is_feature)
        self._factor = _factor(
            rows.on_device(padded_size),
            selection,
            start,
            rows.problem.horizon,
            degree,
            self._has_constraint,
        )
        jax.block_until_ready(self._factor)

    def fits(self, dampings: Sequence[float], columns: int) -> list[LeastSquaresResult]:
        """As `Damped.fits`."""
        degrees = columns // self._count
        pads = np.tile(1 - self._is_feature, degrees)
        used = np.tile(self._is_feature, degrees)[int(self._has_constraint) :] > 0
        mu = np.asarray(dampings) * np.sqrt(np.sum(used))
        try:
            weights, diagonals = map(
                np.asarray, _fits(self._factor, mu, pads, degrees, self._has_constraint)
            )
        except jax.errors.JaxRuntimeError as error:
            _require_out_of_memory(error)
            return self._host().fits(dampings, columns)
        keep = np.asarray(self._factor[3])[: len(used)][used]
        results = [
            damped_result(
                jnp.asarray(w.reshape(degrees, -1)[:, : self._count].ravel()),
                diagonal[used],
                keep,
                rcond,
            )
            for w, diagonal, rcond in zip(weights, diagonals, dampings, strict=True)
        ]
        return [result for result in results if result is not None]


@partial(jax.jit, static_argnums=(4, 5))
def _factor(
    entries: tuple[Any, ...],
    selection: tuple[Array, Array],
    start: Array,
    horizon: float,
    degree: int,
    has_constraint: bool,
) -> tuple[Any, ...]:
    """R and Qᵀb of [A b] = QR, the column scales and masks, and what `reflect` returns.

    Args:
        entries: as `EntryCache.on_device`.
        selection: numbers of the features, and 0 for those that only fill the shape.
        start: the constraint on the weights that are constant in time.
        horizon: T.
        degree: the highest degree in time.
        has_constraint: whether there is a constraint.
    """
    values, residuals, t, b = entries
    index, is_feature = selection
    values, residuals = (entry[:, index] * is_feature for entry in (values, residuals))
    A = residual_columns(values, residuals, t, degree, horizon)
    reflector: Any = ()
    if has_constraint:
        c = jnp.concatenate([start, jnp.zeros(degree * len(start))])
        A, b, *reflector = reflect(A, b, c)
    scaled, scale, keep = scale_columns(A)
    R = jnp.linalg.qr(jnp.concatenate([scaled, b[:, None]], axis=1), mode="r")
    n = A.shape[1]
    R = jnp.pad(R, ((0, max(0, n - R.shape[0])), (0, 0)))[:n]
    return R[:, :n], R[:, n], scale, keep, reflector


@partial(jax.jit, static_argnums=(3, 4))
def _fits(
    factor: tuple[Any, ...], dampings: Array, pads: Array, degrees: int, has_constraint: bool
) -> tuple[Array, Array]:
    """Weights for each damping, and the diagonal of the damped triangular factor.

    Args:
        factor: as `_factor` returns it.
        dampings: μ, not relative to anything.
        pads: one for columns that only fill the shape, for the unknowns before `reflect`.
        degrees: the number of degrees in time, from zero.
        has_constraint: whether there is a constraint.
    """
    R, right, scale, _, reflector = factor
    pads = pads[int(has_constraint) :]
    n = len(pads)
    top = jnp.concatenate([R[:n, :n], right[:n, None]], axis=1)

    def fit(damping: Array) -> tuple[Array, Array]:
        below = jnp.diag(jnp.where(pads > 0, 1.0, damping))
        tall = jnp.concatenate([top, jnp.pad(below, ((0, 0), (0, 1)))])
        damped = jnp.linalg.qr(tall, mode="r")[:n]
        weights = jax.scipy.linalg.solve_triangular(damped[:, :n], damped[:, n]) * scale[:n]
        if has_constraint:
            first, v = reflector
            weights = reflect_back(v[: n + 1], weights, first)
        return weights, jnp.abs(jnp.diag(damped))

    return jax.lax.map(fit, dampings)


def padded_size(size: int) -> int:
    """The smallest of 1, 1.5, 2, 3, 4, 6, 8, 12, ... that is not smaller, times 256."""
    unit, steps = 256, 1
    while unit * steps < size:
        if 3 * unit * steps >= 2 * size:
            return unit * steps * 3 // 2
        steps *= 2
    return unit * steps
