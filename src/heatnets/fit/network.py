"""A network Σ w_j(t) φ_j at one point (t, x), and the data: values, residuals, derivatives in x.

`weights` has shape (features, degree + 1): w_j(t) = Σ_k weights[j, k] t^k.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from heatnets.features.features import Equation, Feature
from heatnets.fit.assembly import initial_value, time_powers
from heatnets.pde.laplacian import gradient

DEGREES = (0, 1, 3)  # candidate degrees of the weights in time


def values(equation: Equation, features: Feature, weights: Array, t: Array, x: Array) -> Array:
    """Σ w_j φ_j."""
    p, _ = time_powers(t, weights.shape[1] - 1)
    return (weights @ p) @ jax.vmap(lambda f: f.value(equation, t, x))(features)


def values_with_abs_sum(
    equation: Equation, features: Feature, weights: Array, t: Array, x: Array
) -> tuple[Array, Array]:
    """Σ w_j φ_j and Σ |w_j φ_j|."""
    p, _ = time_powers(t, weights.shape[1] - 1)
    terms = (weights @ p) * jax.vmap(lambda f: f.value(equation, t, x))(features)
    return jnp.sum(terms), jnp.sum(jnp.abs(terms))


def residuals(equation: Equation, features: Feature, weights: Array, t: Array, x: Array) -> Array:
    """(∂_t - DΔ) Σ w_j φ_j."""
    p, dp = time_powers(t, weights.shape[1] - 1)
    values, residuals = jax.vmap(lambda f: f.value_and_residual(equation, t, x))(features)
    return (weights @ p) @ residuals + (weights @ dp) @ values


def residuals_with_abs_sum(
    equation: Equation, features: Feature, weights: Array, t: Array, x: Array
) -> tuple[Array, Array]:
    """(∂_t - DΔ) Σ w_j φ_j, and the sum of the absolute values of its terms."""
    p, dp = time_powers(t, weights.shape[1] - 1)
    values, residuals = jax.vmap(lambda f: f.value_and_residual(equation, t, x))(features)
    first, second = (weights @ p) * residuals, (weights @ dp) * values
    return jnp.sum(first + second), jnp.sum(jnp.abs(first) + jnp.abs(second))


def _gradient(f: Callable[..., Array]) -> Callable[..., Array]:
    """The gradient of f(..., x) in x, (dim,)."""
    return lambda *args: gradient(lambda y: f(*args[:-1], y), args[-1])


def _second_derivative(f: Callable[..., Array]) -> Callable[..., Array]:
    """(..., x, w, c) ↦ the second derivative of f(..., x + εw + ½ε²c) in ε at ε = 0, ()."""

    def second(*args: Array) -> Array:
        *other, x, w, c = args

        def along(e: Array) -> Array:
            return f(*other, x + e * w + 0.5 * e**2 * c)

        zero, one = jnp.zeros(()), jnp.ones(())
        return jax.jvp(lambda e: jax.jvp(along, (e,), (one,))[1], (zero,), (one,))[1]

    return second


gradients, residual_gradients = _gradient(values), _gradient(residuals)
source_gradient, initial_gradient = _gradient(Equation.source_value), _gradient(initial_value)
second_derivatives = _second_derivative(values)
residual_second_derivatives = _second_derivative(residuals)
source_second_derivative = _second_derivative(Equation.source_value)
initial_second_derivative = _second_derivative(initial_value)
