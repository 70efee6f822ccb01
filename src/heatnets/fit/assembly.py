"""Rows of the linear system: the matrices A_PDE and A_IC of the paper, and right-hand sides.

equation rows: (∂_t - DΔ) φ_j (t_k, x_k), with right-hand side F(t_k, x_k)
value rows: φ_j(t_k, x_k), used as mild rows and, at t = 0, as initial rows
With weights of degree K in time, a feature has the columns φ, (t/T) φ, ..., (t/T)^K φ.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets._core.errors import NumericalError
from heatnets._core.execution import ExecutionContext
from heatnets._core.tiling import assemble_matrix, map_points
from heatnets.features.features import Equation, Feature
from heatnets.fit.collocation import Points
from heatnets.pde.function_values import format_point
from heatnets.pde.sources import Source, SourceLinearization


def _residual_entry(equation: Equation, feature: Feature, t: Array, x: Array) -> Array:
    return feature.residual(equation, t, x)


def _value_and_residual_entry(
    equation: Equation, feature: Feature, t: Array, x: Array
) -> tuple[Array, Array]:
    return feature.value_and_residual(equation, t, x)


def _value_entry(equation: Equation, feature: Feature, t: Array, x: Array) -> Array:
    return feature.value(equation, t, x)


def _advection_entry(
    equation: Equation, feature: Feature, t: Array, x: Array, along: Array
) -> Array:
    """along·∇φ(t, x)."""
    return jax.jvp(lambda y: feature.value(equation, t, y), (x,), (along,))[1]


def residual_rows(
    equation: Equation,
    blocks: list[Feature],
    points: Points,
    ctx: ExecutionContext,
    degree: int = 0,
    horizon: float = 1.0,
) -> Float[Array, "rows columns"]:
    """Matrix of the equation rows: (∂_t - DΔ) (t/T)^k φ_j at the points.

    Columns: k = 0 for all features, then k = 1 for all features, and so on up to `degree`.
    """
    if degree == 0:
        floats = equation.workspace(points[1].shape[1])
        rows = assemble_matrix(
            _residual_entry, blocks, equation, points, floats, ctx, label="equation rows"
        )
        return _check_finite(rows, points)
    values, residuals = value_and_residual_rows(equation, blocks, points, ctx, "equation rows")
    return residual_columns(values, residuals, points[0], degree, horizon)


def value_and_residual_rows(
    equation: Equation,
    blocks: list[Feature],
    points: Points,
    ctx: ExecutionContext,
    label: str,
    row_chunk: int | None = None,
) -> tuple[Array, Array]:
    """φ_j(t_k, x_k) and (∂_t - DΔ) φ_j (t_k, x_k), each (rows, features)."""
    floats = equation.workspace(points[1].shape[1])
    values, residuals = assemble_matrix(
        _value_and_residual_entry,
        blocks,
        equation,
        points,
        floats,
        ctx,
        label=label,
        row_chunk=row_chunk,
    )
    return values, _check_finite(residuals, points)


def value_rows(
    equation: Equation,
    blocks: list[Feature],
    points: Points,
    ctx: ExecutionContext,
    label: str,
    *,
    degree: int = 0,
    horizon: float = 1.0,
    row_chunk: int | None = None,
) -> Float[Array, "rows columns"]:
    """Matrix of the value rows: (t/T)^k φ_j at the points, columns as in `residual_rows`."""
    floats = equation.value_workspace(points[1].shape[1])
    values = assemble_matrix(
        _value_entry, blocks, equation, points, floats, ctx, label=label, row_chunk=row_chunk
    )
    _check_finite(values, points)
    return values if degree == 0 else time_columns(values, points[0], degree, horizon)


def advection_rows(
    equation: Equation,
    blocks: list[Feature],
    points: tuple[np.ndarray, np.ndarray, np.ndarray],
    ctx: ExecutionContext,
    label: str,
    row_chunk: int | None = None,
) -> Array:
    """b_k·∇φ_j(t_k, x_k), (rows, features); `points` are t (rows,), x and b (rows, dim)."""
    floats = 8 * points[1].shape[1]
    return assemble_matrix(
        _advection_entry, blocks, equation, points, floats, ctx, label=label, row_chunk=row_chunk
    )


def _linearize(source: Source, t: Array, x: Array, u: Array, du: Array) -> SourceLinearization:
    return source.linearize(t, x, u, du)


def linearize_source(
    source: Source, points: Points, u: np.ndarray, du: np.ndarray, ctx: ExecutionContext
) -> SourceLinearization:
    """A source that depends on u, and its derivatives in u and ∇u, at points.

    `u` (rows,) and `du` (rows, dim) are the values and gradients of u at the points.
    """
    return map_points(_linearize, source, (*points, u, du), 8 * points[1].shape[1], ctx)


def time_powers(t: Array | np.ndarray, degree: int) -> tuple[Any, Any]:
    """1, t, ..., t^degree and their derivatives in t, along a new last axis."""
    k = np.arange(degree + 1)
    return t[..., None] ** k, k * t[..., None] ** np.maximum(k - 1, 0)


def _join(values: Any, columns: list[Any]) -> Any:
    """Join columns by the module of `values`: numpy or jax.numpy."""
    return (np if isinstance(values, np.ndarray) else jnp).concatenate(columns, axis=1)


def time_columns(values: Any, t: np.ndarray, degree: int, horizon: float) -> Any:
    """Columns (t/T)^k φ_j, k = 0, ..., degree, from φ_j."""
    p, _ = time_powers(t / horizon, degree)
    return _join(values, [values * p[:, k, None] for k in range(degree + 1)])


def residual_columns(
    values: Any, residuals: Any, t: np.ndarray, degree: int, horizon: float
) -> Any:
    """Residuals of (t/T)^k φ_j, k = 0, ..., degree, from values and residuals of φ_j.

    (∂_t - DΔ)(t^k φ) = t^k (∂_t - DΔ) φ + k t^{k-1} φ, with t in units of T.
    """
    p, dp = time_powers(t / horizon, degree)
    dp = dp / horizon
    columns = [residuals * p[:, k, None] + values * dp[:, k, None] for k in range(degree + 1)]
    return _join(values, columns)


def source_values(equation: Equation, points: Points, ctx: ExecutionContext) -> np.ndarray:
    """F(t_k, x_k), (rows,)."""
    return map_points(Equation.source_value, equation, points, 4 * points[1].shape[1], ctx)


def initial_value(equation: Equation, x: Array) -> Array:
    """u0(x) at one point."""
    return equation.initial(x)


def initial_values(equation: Equation, x: np.ndarray, ctx: ExecutionContext) -> np.ndarray:
    """u0(x_l), (rows,)."""
    return map_points(initial_value, equation, (x,), 4 * x.shape[1], ctx)


@jax.jit
def _abs_sums(rows: Array) -> Array:
    return jnp.sum(jnp.abs(rows), axis=1)


def _check_finite(rows: Array, points: Points) -> Array:
    """Return `rows`; raise a `NumericalError` if an entry is not finite."""
    is_host = isinstance(rows, np.ndarray)
    is_finite = np.all(np.isfinite(rows), axis=1) if is_host else np.isfinite(_abs_sums(rows))
    bad = np.flatnonzero(~is_finite)
    if bad.size:
        k = int(bad[0])
        raise NumericalError(
            f"{bad.size} of {len(rows)} rows are not finite, for example the one at "
            f"{format_point([p[k] for p in points])}: "
            "`initial` or `source`, or one of their derivatives, is not finite on a path from "
            "there. "
            "Smooth the function, or move the training region away from its singularity."
        )
    return rows
