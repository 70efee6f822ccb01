"""The shapes of exact solutions behind the named problems, and checks of their parameters.

`OneCoordinate`: p(t, y(x)), y = a·x or |x|²/d, with the Laplacian |∇y|² ∂_yy p + Δy ∂_y p.
`Modes`: Σ_k a_k(t) e_k(x) with Δ e_k = -λ_k e_k.
Parameters are array fields of modules, so that a sweep over them compiles once per dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets._core.errors import check_int, check_positive
from heatnets.pde.function import Function
from heatnets.pde.problem import Problem

Vector = Float[Array, " dim"]
Scalar = Float[Array, ""]
Constructor = Callable[..., Problem]


def dimension(dim: Any) -> int:
    """Check a dimension: a positive integer."""
    return check_int("dim", dim, 1, "It is the number of space coordinates.")


def number(name: str, value: Any) -> np.ndarray:
    """Check a positive parameter; an array of shape (), so that JAX traces it."""
    return np.asarray(check_positive(name, value, "It is a parameter of the problem."))


class AtStart(eqx.Module):
    """x -> u(0, x)."""

    solution: Any

    def __call__(self, x: Vector) -> Scalar:
        return self.solution(jnp.zeros(()), x)

    def laplacian(self, x: Vector) -> Scalar:
        return self.solution.laplacian(jnp.zeros(()), x)


def gaussian(square: Any, spread: Any, dim: int) -> Scalar:
    """E exp(-|Y|²/d) = (1 + q)^{-d/2} exp(-|y|²/(d (1 + q))) for Y normal with mean y.

    The components of Y are independent with equal variance, q = 2 variance/d.

    Args:
        square: |y|².
        spread: q.
        dim: d.
    """
    return jnp.exp(-0.5 * dim * jnp.log1p(spread) - square / (dim * (1 + spread)))


def with_laplacian(f: Any, closed_form: bool) -> Function:
    """f as a `Function`, with the Laplacian `f.laplacian` if `closed_form`."""
    return Function(f, laplacian=f.laplacian if closed_form else None)


# --- functions of one coordinate ---


def _derivative(f: Callable[[Scalar], Scalar], y: Scalar) -> Scalar:
    """f'(y)."""
    return jax.jvp(f, (y,), (jnp.ones_like(y),))[1]


class Ridge(eqx.Module):
    """The coordinate y = a·x."""

    weights: Any  # a, (dim,)
    laplacian = 0.0  # Δy

    def __call__(self, x: Vector) -> Scalar:
        return jnp.sum(self.weights * x)

    def squared_gradient(self, y: Scalar) -> Scalar:
        """|∇y|²."""
        return jnp.sum(self.weights**2)


class Radius(eqx.Module):
    """The coordinate y = |x|²/d."""

    dim: int = eqx.field(static=True)
    laplacian = 2.0  # Δy

    def __call__(self, x: Vector) -> Scalar:
        return jnp.sum(x**2) / self.dim

    def squared_gradient(self, y: Scalar) -> Scalar:
        """|∇y|²."""
        return 4 * y / self.dim


class OneCoordinate(eqx.Module):
    """The function p(t, y(x)); if `forced`, its source p_t - D Δp."""

    profile: Callable[..., Scalar] = eqx.field(static=True)  # p(t, y, D, d)
    coordinate: Ridge | Radius
    diffusion: Any
    forced: bool = eqx.field(static=True, default=False)

    def _laplacian(self, p: Callable[[Scalar], Scalar], y: Scalar) -> Scalar:
        """Δ p(y(x)) as a function of y."""
        first, second = jax.jvp(lambda z: _derivative(p, z), (y,), (jnp.ones_like(y),))
        return self.coordinate.squared_gradient(y) * second + self.coordinate.laplacian * first

    def _value(self, t: Scalar, y: Scalar, dim: int) -> Scalar:
        """p(t, y), or its source if `forced`."""

        def p(t: Scalar, y: Scalar) -> Scalar:
            return self.profile(t, y, self.diffusion, dim)

        if not self.forced:
            return p(t, y)
        time_derivative = _derivative(lambda s: p(s, y), t)
        return time_derivative - self.diffusion * self._laplacian(lambda z: p(t, z), y)

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return self._value(t, self.coordinate(x), x.size)

    def laplacian(self, t: Scalar, x: Vector) -> Scalar:
        return self._laplacian(lambda z: self._value(t, z, x.size), self.coordinate(x))


# --- sums of eigenfunctions ---


class Modes(eqx.Module):
    """Σ_k a_k(t) e_k(x), Δ e_k = -λ_k e_k; if `forced`, its source Σ_k (a_k' + D λ_k a_k) e_k."""

    amplitudes: Callable[[Scalar, Array], Array] = eqx.field(static=True)  # a(t, D λ)
    diffusion: Any
    functions: Callable[[Vector], Array]  # x -> e(x), (modes,)
    eigenvalues: Any  # λ, (modes,)
    forced: bool = eqx.field(static=True, default=False)

    def _a(self, t: Scalar) -> Array:
        """Coefficients of the eigenfunctions at time t, shape (modes,)."""
        rates = self.diffusion * self.eigenvalues
        a, change = jax.jvp(lambda s: self.amplitudes(s, rates), (t,), (jnp.ones_like(t),))
        return change + rates * a if self.forced else a

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return jnp.sum(self._a(t) * self.functions(x))

    def laplacian(self, t: Scalar, x: Vector) -> Scalar:
        return -jnp.sum(self._a(t) * self.eigenvalues * self.functions(x))
