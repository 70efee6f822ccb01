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
from heatnets.features.equation import Equation
from heatnets.features.features import Feature
from heatnets.pde.function import place
from heatnets.pde.nonlinearity import SemilinearSource, SourceLinearization

Points = tuple[np.ndarray, np.ndarray]  # t (rows,) and x (rows, dim)


def _residual_entry(equation: Equation, feature: Feature, t: Array, x: Array) -> Array:
    return feature.residual(equation, t, x)


def _both_entry(equation: Equation, feature: Feature, t: Array, x: Array) -> tuple[Array, Array]:
    return feature.value_and_residual(equation, t, x)


def _value_entry(equation: Equation, feature: Feature, t: Array, x: Array) -> Array:
    return feature.value(equation, t, x)


def _drag_entry(equation: Equation, feature: Feature, t: Array, x: Array, along: Array) -> Array:
    """along·∇φ(t, x)."""
    return jax.jvp(lambda y: feature.value(equation, t, y), (x,), (along,))[1]


def _tangent(
    nonlinear: SemilinearSource, t: Array, x: Array, u: Array, du: Array
) -> SourceLinearization:
    return nonlinear.linearize(t, x, u, du)


def _forcing(equation: Equation, t: Array, x: Array) -> Array:
    return equation.forcing(t, x)


def _initial(equation: Equation, x: Array) -> Array:
    return equation.initial(x)


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
    floats = equation.workspace(points[1].shape[1])
    if degree == 0:
        rows = assemble_matrix(
            _residual_entry, blocks, equation, points, floats, ctx, "equation rows"
        )
        return _check_finite(rows, points)
    values, residuals = both_rows(equation, blocks, points, ctx, "equation rows")
    return residual_columns(values, residuals, points[0], degree, horizon)


def both_rows(
    equation: Equation,
    blocks: list[Feature],
    points: Points,
    ctx: ExecutionContext,
    phase: str,
    strip: int | None = None,
) -> tuple[Array, Array]:
    """φ_j(t_k, x_k) and (∂_t - DΔ) φ_j (t_k, x_k), each (rows, features)."""
    floats = equation.workspace(points[1].shape[1])
    values, residuals = assemble_matrix(
        _both_entry, blocks, equation, points, floats, ctx, phase, strip
    )
    return values, _check_finite(residuals, points)


def value_rows(
    equation: Equation,
    blocks: list[Feature],
    points: Points,
    ctx: ExecutionContext,
    phase: str,
    degree: int = 0,
    horizon: float = 1.0,
    strip: int | None = None,
) -> Float[Array, "rows columns"]:
    """Matrix of the value rows: (t/T)^k φ_j at the points, columns as in `residual_rows`."""
    floats = 4 * points[1].shape[1]
    values = assemble_matrix(_value_entry, blocks, equation, points, floats, ctx, phase, strip)
    return value_columns(_check_finite(values, points), points[0], degree, horizon)


def drag_rows(
    equation: Equation,
    blocks: list[Feature],
    points: Points,
    along: np.ndarray,
    ctx: ExecutionContext,
    phase: str,
    strip: int | None = None,
) -> Array:
    """Directional derivatives b_k·∇φ_j(t_k, x_k), (rows, features); `along` is b, (rows, dim)."""
    return assemble_matrix(
        _drag_entry, blocks, equation, (*points, along), 8 * points[1].shape[1], ctx, phase, strip
    )


def tangent(
    nonlinear: SemilinearSource,
    points: Points,
    u: np.ndarray,
    du: np.ndarray,
    ctx: ExecutionContext,
) -> SourceLinearization:
    """A source that depends on u, and its derivatives in u and ∇u, at points.

    `u` (rows,) and `du` (rows, dim) are the values and gradients of u at the points.
    """
    return map_points(_tangent, nonlinear, (*points, u, du), 8 * points[1].shape[1], ctx)


def powers(t: Array | np.ndarray, degree: int) -> tuple[Any, Any]:
    """1, t, ..., t^degree and their derivatives in t, along a new last axis."""
    k = np.arange(degree + 1)
    return t[..., None] ** k, k * t[..., None] ** np.maximum(k - 1, 0)


def _numpy_of(array: Any) -> Any:
    """The module of an array: numpy or jax.numpy."""
    return np if isinstance(array, np.ndarray) else jnp


def value_columns(values: Any, t: np.ndarray, degree: int, horizon: float) -> Any:
    """Columns (t/T)^k φ_j, k = 0, ..., degree, from φ_j."""
    p, _ = powers(t / horizon, degree)
    columns = [values * p[:, k, None] for k in range(degree + 1)]
    return _numpy_of(values).concatenate(columns, axis=1)


def residual_columns(
    values: Any, residuals: Any, t: np.ndarray, degree: int, horizon: float
) -> Any:
    """Residuals of (t/T)^k φ_j, k = 0, ..., degree, from values and residuals of φ_j.

    (∂_t - DΔ)(t^k φ) = t^k (∂_t - DΔ) φ + k t^{k-1} φ, with t in units of T.
    """
    p, dp = powers(t / horizon, degree)
    dp = dp / horizon
    columns = [residuals * p[:, k, None] + values * dp[:, k, None] for k in range(degree + 1)]
    return _numpy_of(values).concatenate(columns, axis=1)


def forcing(equation: Equation, points: Points, ctx: ExecutionContext) -> np.ndarray:
    """F(t_k, x_k), (rows,)."""
    return map_points(_forcing, equation, points, 4 * points[1].shape[1], ctx)


def initial_values(equation: Equation, x: np.ndarray, ctx: ExecutionContext) -> np.ndarray:
    """u0(x_l), (rows,)."""
    return map_points(_initial, equation, (x,), 4 * x.shape[1], ctx)


def _check_finite(rows: Array, points: Points) -> Array:
    """Return `rows`; raise a `NumericalError` if an entry is not finite."""
    bad = np.flatnonzero(~np.isfinite(np.asarray(jnp.sum(jnp.abs(rows), axis=1))))
    if bad.size:
        k = int(bad[0])
        raise NumericalError(
            f"{bad.size} of {len(rows)} rows are not finite, for example the one at "
            f"{place([p[k] for p in points])}: "
            "`initial` or `source`, or one of their derivatives, is not finite on a path from "
            "there. "
            "Smooth the function, or move the training region away from its singularity."
        )
    return rows
