"""From features and points to a linear system: the paper's A_PDE, A_IC and their right-hand sides.

equation rows   (∂_t - DΔ) φ_j (t_k, x_k),   F(t_k, x_k)
value rows      φ_j(t_k, x_k)                (mild rows; at t = 0 the initial rows)

Weights may vary in time: with a degree K every feature has the columns φ, (t/T) φ, ..., (t/T)^K φ.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets._core.errors import NumericalError
from heatnets._core.execution import ExecutionContext
from heatnets._core.tiling import evaluate, matrix
from heatnets.features.equation import Equation
from heatnets.features.features import Feature
from heatnets.pde.function import place
from heatnets.pde.nonlinearity import SemilinearSource, SourceLinearization

Points = tuple[np.ndarray, np.ndarray]


def _residual_entry(equation: Equation, feature: Feature, t: Array, x: Array) -> Array:
    return feature.residual(equation, t, x)


def _both_entry(equation: Equation, feature: Feature, t: Array, x: Array) -> tuple[Array, Array]:
    return feature.both(equation, t, x)


def _value_entry(equation: Equation, feature: Feature, t: Array, x: Array) -> Array:
    return feature.value(equation, t, x)


def _drag_entry(equation: Equation, feature: Feature, t: Array, x: Array, along: Array) -> Array:
    return jax.jvp(lambda y: feature.value(equation, t, y), (x,), (along,))[1]


def _tangent(
    nonlinear: SemilinearSource, t: Array, x: Array, u: Array, du: Array
) -> SourceLinearization:
    return nonlinear.tangent(t, x, u, du)


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
    """(∂_t - DΔ) (t/T)^k φ_j (t_k, x_k): the columns of k = 0 for all features, then those of k = 1, ..."""
    floats = equation.workspace(points[1].shape[1])
    if degree == 0:
        return _finite(
            matrix(_residual_entry, blocks, equation, points, floats, ctx, "equation rows"), points
        )
    return residual_columns(
        *both_rows(equation, blocks, points, ctx, "equation rows"), points[0], degree, horizon
    )


def both_rows(
    equation: Equation,
    blocks: list[Feature],
    points: Points,
    ctx: ExecutionContext,
    phase: str,
    strip: int | None = None,
) -> tuple[Array, Array]:
    """φ_j(t_k, x_k) and (∂_t - DΔ) φ_j (t_k, x_k)."""
    floats = equation.workspace(points[1].shape[1])
    values, residuals = matrix(_both_entry, blocks, equation, points, floats, ctx, phase, strip)
    return values, _finite(residuals, points)


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
    """(t/T)^k φ_j(t_k, x_k)."""
    values = _finite(
        matrix(_value_entry, blocks, equation, points, 4 * points[1].shape[1], ctx, phase, strip),
        points,
    )
    return value_columns(values, points[0], degree, horizon)


def drag_rows(
    equation: Equation,
    blocks: list[Feature],
    points: Points,
    along: np.ndarray,
    ctx: ExecutionContext,
    phase: str,
    strip: int | None = None,
) -> Array:
    """b_k·∇φ_j(t_k, x_k)."""
    return matrix(
        _drag_entry, blocks, equation, (*points, along), 8 * points[1].shape[1], ctx, phase, strip
    )


def tangent(
    nonlinear: SemilinearSource,
    points: Points,
    u: np.ndarray,
    du: np.ndarray,
    ctx: ExecutionContext,
) -> SourceLinearization:
    """A source and its derivatives at points, for values and slopes of u there."""
    return evaluate(_tangent, nonlinear, (*points, u, du), 8 * points[1].shape[1], ctx)


def powers(t: Array | np.ndarray, degree: int) -> tuple[Any, Any]:
    """1, t, ..., t^degree and their derivatives, along a new last axis."""
    k = np.arange(degree + 1)
    return t[..., None] ** k, k * t[..., None] ** np.maximum(k - 1, 0)


def _numpy(array: Any) -> Any:
    """NumPy or jax.numpy, whichever the array is of."""
    return np if isinstance(array, np.ndarray) else jnp


def value_columns(values: Any, t: np.ndarray, degree: int, horizon: float) -> Any:
    """(t/T)^k φ_j from φ_j."""
    p, _ = powers(t / horizon, degree)
    return _numpy(values).concatenate([values * p[:, k, None] for k in range(degree + 1)], axis=1)


def residual_columns(
    values: Any, residuals: Any, t: np.ndarray, degree: int, horizon: float
) -> Any:
    """(∂_t - DΔ)(t^k φ) = t^k (∂_t - DΔ) φ + k t^{k-1} φ, in units of T: more columns from the same evaluations."""
    p, dp = powers(t / horizon, degree)
    dp = dp / horizon
    return _numpy(values).concatenate(
        [residuals * p[:, k, None] + values * dp[:, k, None] for k in range(degree + 1)], axis=1
    )


def forcing(equation: Equation, points: Points, ctx: ExecutionContext) -> np.ndarray:
    """F(t_k, x_k)."""
    return evaluate(_forcing, equation, points, 4 * points[1].shape[1], ctx)


def initial_values(equation: Equation, x: np.ndarray, ctx: ExecutionContext) -> np.ndarray:
    """u0(x_l)."""
    return evaluate(_initial, equation, (x,), 4 * x.shape[1], ctx)


def _finite(rows: Array, points: Points) -> Array:
    bad = np.flatnonzero(~np.isfinite(np.asarray(jnp.sum(jnp.abs(rows), axis=1))))
    if bad.size:
        k = int(bad[0])
        raise NumericalError(
            f"{bad.size} of {len(rows)} rows are not finite, for example the one at {place([p[k] for p in points])}: "
            "`initial` or `source`, or one of their derivatives, is not finite on a path from there. "
            "Smooth the function, or move the training region away from its singularity."
        )
    return rows
