"""From features and points to a linear system: the paper's A_PDE, A_IC and their right-hand sides.

equation rows   (∂_t - DΔ) φ_j (t_k, x_k),   F(t_k, x_k)
value rows      φ_j(t_k, x_k)                (mild rows; at t = 0 the initial rows)
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets.errors import NumericalError
from heatnets.features import Feature
from heatnets.function import place
from heatnets.operators import Equation
from heatnets.tiles import Workshop, evaluate, matrix

Points = tuple[np.ndarray, np.ndarray]


def _residual_entry(equation: Equation, feature: Feature, t: Array, x: Array) -> Array:
    return feature.residual(equation, t, x)


def _value_entry(equation: Equation, feature: Feature, t: Array, x: Array) -> Array:
    return feature.value(equation, t, x)


def _forcing(equation: Equation, t: Array, x: Array) -> Array:
    return equation.forcing(t, x)


def _initial(equation: Equation, x: Array) -> Array:
    return equation.initial(x)


def residual_rows(equation: Equation, blocks: list[Feature], points: Points, shop: Workshop) -> Float[Array, "rows features"]:
    """(∂_t - DΔ) φ_j (t_k, x_k)."""
    floats = equation.workspace(points[1].shape[1])
    return _finite(matrix(_residual_entry, blocks, equation, points, floats, shop, "equation rows"), points)


def value_rows(
    equation: Equation, blocks: list[Feature], points: Points, shop: Workshop, phase: str
) -> Float[Array, "rows features"]:
    """φ_j(t_k, x_k)."""
    return _finite(matrix(_value_entry, blocks, equation, points, 4 * points[1].shape[1], shop, phase), points)


def forcing(equation: Equation, points: Points, shop: Workshop) -> np.ndarray:
    """F(t_k, x_k)."""
    return evaluate(_forcing, equation, points, 4 * points[1].shape[1], shop)


def initial_values(equation: Equation, x: np.ndarray, shop: Workshop) -> np.ndarray:
    """u0(x_l)."""
    return evaluate(_initial, equation, (x,), 4 * x.shape[1], shop)


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
