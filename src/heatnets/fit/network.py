"""A network Σ w_j(t) φ_j at one point (t, x): value, residual and derivatives; data likewise.

`weights` has shape (features, degree + 1): w_j(t) = Σ_k weights[j, k] t^k.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from heatnets.features.equation import Equation
from heatnets.features.features import Feature
from heatnets.fit.assembly import powers
from heatnets.pde.laplacian import gradient


def values(equation: Equation, features: Feature, weights: Array, t: Array, x: Array) -> Array:
    """Σ w_j φ_j."""
    p, _ = powers(t, weights.shape[1] - 1)
    return (weights @ p) @ jax.vmap(lambda f: f.value(equation, t, x))(features)


def sized_values(
    equation: Equation, features: Feature, weights: Array, t: Array, x: Array
) -> tuple[Array, Array]:
    """Σ w_j φ_j and Σ |w_j φ_j|."""
    p, _ = powers(t, weights.shape[1] - 1)
    terms = (weights @ p) * jax.vmap(lambda f: f.value(equation, t, x))(features)
    return jnp.sum(terms), jnp.sum(jnp.abs(terms))


def sized_residuals(
    equation: Equation, features: Feature, weights: Array, t: Array, x: Array
) -> tuple[Array, Array]:
    """(∂_t - DΔ) Σ w_j φ_j, and the sum of the absolute values of its terms."""
    p, dp = powers(t, weights.shape[1] - 1)
    values, residuals = jax.vmap(lambda f: f.value_and_residual(equation, t, x))(features)
    first, second = (weights @ p) * residuals, (weights @ dp) * values
    return jnp.sum(first + second), jnp.sum(jnp.abs(first) + jnp.abs(second))


def residual_gradients(
    equation: Equation, features: Feature, weights: Array, t: Array, x: Array
) -> Array:
    """Gradient in x of (∂_t - DΔ) Σ w_j φ_j, (dim,)."""
    return gradient(lambda y: residuals(equation, features, weights, t, y), x)


def source_gradient(equation: Equation, t: Array, x: Array) -> Array:
    """∇F(t, x), (dim,)."""
    return gradient(lambda y: equation.forcing(t, y), x)


def initial_gradient(equation: Equation, x: Array) -> Array:
    """∇u0(x), (dim,)."""
    return gradient(equation.initial, x)


def gradients(equation: Equation, features: Feature, weights: Array, t: Array, x: Array) -> Array:
    """Gradient in x of Σ w_j φ_j, (dim,)."""
    return gradient(lambda y: values(equation, features, weights, t, y), x)


def _second_along_curve(f: Callable[[Array], Array], x: Array, w: Array, c: Array) -> Array:
    """Second derivative in ε of f(x + εw + ½ε²c) at ε = 0."""

    def along(e: Array) -> Array:
        return f(x + e * w + 0.5 * e**2 * c)

    zero, one = jnp.zeros(()), jnp.ones(())
    return jax.jvp(lambda e: jax.jvp(along, (e,), (one,))[1], (zero,), (one,))[1]


def bent_values(
    equation: Equation, features: Feature, weights: Array, t: Array, x: Array, w: Array, c: Array
) -> Array:
    """Second derivative of Σ w_j φ_j along the curve x + εw + ½ε²c."""
    return _second_along_curve(lambda y: values(equation, features, weights, t, y), x, w, c)


def bent_residuals(
    equation: Equation, features: Feature, weights: Array, t: Array, x: Array, w: Array, c: Array
) -> Array:
    """Second derivative of (∂_t - DΔ) Σ w_j φ_j along the curve x + εw + ½ε²c."""
    return _second_along_curve(lambda y: residuals(equation, features, weights, t, y), x, w, c)


def bent_source(equation: Equation, t: Array, x: Array, w: Array, c: Array) -> Array:
    """Second derivative of F along the curve x + εw + ½ε²c."""
    return _second_along_curve(lambda y: equation.forcing(t, y), x, w, c)


def bent_initial(equation: Equation, x: Array, w: Array, c: Array) -> Array:
    """Second derivative of u0 along the curve x + εw + ½ε²c."""
    return _second_along_curve(equation.initial, x, w, c)


def residuals(equation: Equation, features: Feature, weights: Array, t: Array, x: Array) -> Array:
    """(∂_t - DΔ) Σ w_j φ_j."""
    p, dp = powers(t, weights.shape[1] - 1)
    values, residuals = jax.vmap(lambda f: f.value_and_residual(equation, t, x))(features)
    return (weights @ p) @ residuals + (weights @ dp) @ values
