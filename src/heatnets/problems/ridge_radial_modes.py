"""Heat-equation test problems with exact solutions, in any dimension.

`OneCoordinate`: p(t, y(x)), y = a·x or |x|²/d, with the Laplacian |∇y|² ∂_yy p + Δy ∂_y p.
`Modes`: Σ_k a_k(t) e_k(x) with Δ e_k = -λ_k e_k.
Both represent solutions u and their sources u_t - D Δu, which have the same form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from heatnets._core.errors import check_int
from heatnets.pde.function import Function
from heatnets.pde.problem import Problem
from heatnets.pde.regions import Box
from heatnets.problems import elementary
from heatnets.problems.parameters import dimension, number

Vector = Float[Array, " dim"]
Scalar = Float[Array, ""]
Profile = Callable[[Scalar, Scalar, Scalar], Scalar]  # p(t, y, D)


def _derivative(f: Callable[[Scalar], Scalar], y: Scalar) -> Scalar:
    """f'(y)."""
    return jax.jvp(f, (y,), (jnp.ones_like(y),))[1]


class Ridge(eqx.Module):
    """The coordinate y = a·x."""

    weights: Any  # a, (dim,)

    def __call__(self, x: Vector) -> Scalar:
        return jnp.sum(self.weights * x)

    def slope2(self, y: Scalar) -> Scalar:
        """|∇y|²."""
        return jnp.sum(self.weights**2)

    bend = 0.0  # Δy


class Radius(eqx.Module):
    """The coordinate y = |x|²/d."""

    dim: int = eqx.field(static=True)

    def __call__(self, x: Vector) -> Scalar:
        return jnp.sum(x**2) / self.dim

    def slope2(self, y: Scalar) -> Scalar:
        """|∇y|²."""
        return 4 * y / self.dim

    bend = 2.0  # Δy


class OneCoordinate(eqx.Module):
    """The function p(t, y(x)); if `forced`, its source p_t - D Δp."""

    profile: Profile = eqx.field(static=True)
    coordinate: Ridge | Radius
    diffusion: Any
    forced: bool = eqx.field(static=True, default=False)

    def _p(self, t: Scalar, y: Scalar) -> Scalar:
        """p(t, y)."""
        return self.profile(t, y, self.diffusion)

    def _laplacian(self, p: Callable[[Scalar], Scalar], y: Scalar) -> Scalar:
        """Δ p(y(x)) as a function of y."""
        first, second = jax.jvp(lambda z: _derivative(p, z), (y,), (jnp.ones_like(y),))
        return self.coordinate.slope2(y) * second + self.coordinate.bend * first

    def _value(self, t: Scalar, y: Scalar) -> Scalar:
        """p(t, y), or its source if `forced`."""
        if not self.forced:
            return self._p(t, y)
        time_derivative = _derivative(lambda s: self._p(s, y), t)
        return time_derivative - self.diffusion * self._laplacian(lambda z: self._p(t, z), y)

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return self._value(t, self.coordinate(x))

    def laplacian(self, t: Scalar, x: Vector) -> Scalar:
        return self._laplacian(lambda z: self._value(t, z), self.coordinate(x))

    @property
    def source(self) -> OneCoordinate:
        """The source p_t - D Δp of this solution."""
        return OneCoordinate(self.profile, self.coordinate, self.diffusion, forced=True)


class Modes(eqx.Module):
    """Σ_k a_k(t) e_k(x), Δ e_k = -λ_k e_k; if `forced`, its source Σ_k (a_k' + D λ_k a_k) e_k."""

    amplitudes: Callable[[Scalar, Array], Array] = eqx.field(static=True)  # a(t, D λ)
    functions: Callable[[Vector], Array]  # x -> e(x), (modes,)
    eigenvalues: Any  # λ, (modes,)
    diffusion: Any
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

    @property
    def source(self) -> Modes:
        """The source Σ_k (a_k' + D λ_k a_k) e_k of this solution."""
        return Modes(self.amplitudes, self.functions, self.eigenvalues, self.diffusion, forced=True)


class AtStart(eqx.Module):
    """x -> u(0, x)."""

    solution: OneCoordinate | Modes

    def __call__(self, x: Vector) -> Scalar:
        return self.solution(jnp.zeros(()), x)

    def laplacian(self, x: Vector) -> Scalar:
        return self.solution.laplacian(jnp.zeros(()), x)


def _problem(
    u: OneCoordinate | Modes, dim: int, horizon: float, closed_form: bool, forced: bool
) -> Problem:
    """The problem with the exact solution u, on [-1, 1]^dim; with its source if `forced`."""

    def function(f: Any) -> Function:
        return Function(f, laplacian=f.laplacian if closed_form else None)

    return Problem(
        dim=dim,
        horizon=horizon,
        diffusion=float(u.diffusion),
        initial=function(AtStart(u)),
        source=function(u.source) if forced else None,
        region=Box(-1.0, 1.0),
        exact=u,
    )


def _unit(dim: int) -> np.ndarray:
    """A unit vector with entries proportional to 1/i, shape (dim,).

    A few coordinates dominate it, so that ridges along it are far from additive.
    """
    a = 1.0 / np.arange(1, dim + 1)
    return a / np.linalg.norm(a)


def _even(dim: int) -> np.ndarray:
    """The unit vector with equal entries, shape (dim,)."""
    return np.full(dim, 1 / np.sqrt(dim))


# --- functions of one coordinate ---


def _bell(t: Scalar, y: Scalar, D: Scalar) -> Scalar:
    """The heat solution that starts as exp(-y²)."""
    return jnp.exp(-(y**2) / (1 + 4 * D * t)) / jnp.sqrt(1 + 4 * D * t)


def _call(t: Scalar, y: Scalar, D: Scalar) -> Scalar:
    """Bachelier's formula: E[(y - K + σ N)⁺], σ² = ε² + 2Dt, for N standard normal."""
    strike, blur = 0.25, 0.3
    width = jnp.sqrt(blur**2 + 2 * D * t)
    z = (y - strike) / width
    return width * (z * norm.cdf(z) + norm.pdf(z))


def _growing_bell(t: Scalar, y: Scalar, D: Scalar) -> Scalar:
    return jnp.sin(3 * t) * jnp.exp(-(y**2))


def _moving_bell(t: Scalar, y: Scalar, D: Scalar) -> Scalar:
    return jnp.exp(-((y - t) ** 2))


def _growing_radial(t: Scalar, y: Scalar, D: Scalar) -> Scalar:
    return t * jnp.exp(-y)


class _RadialBell(eqx.Module):
    """(1 + 4Dt/d)^{-d/2} exp(-|x|²/(d + 4Dt)), y = |x|²/d."""

    dim: int

    def __call__(self, t: Scalar, y: Scalar, D: Scalar) -> Scalar:
        spread = 4 * D * t / self.dim
        return jnp.exp(-0.5 * self.dim * jnp.log1p(spread) - y / (1 + spread))


class _RadialQuartic(eqx.Module):
    """The heat polynomial of |x|⁴/d²: y² + 4(1 + 2/d) D t y + 4(1 + 2/d) D² t²."""

    dim: int

    def __call__(self, t: Scalar, y: Scalar, D: Scalar) -> Scalar:
        c = 4 * (1 + 2 / self.dim)
        return y**2 + c * D * t * y + c * (D * t) ** 2


def radial_gaussian(
    dim: int = 100, horizon: float = 0.5, diffusion: float = 1.0, closed_form: bool = True
) -> Problem:
    """u0 = exp(-|x|²/d), no source."""
    n = dimension(dim)
    u = OneCoordinate(_RadialBell(n), Radius(n), number("diffusion", diffusion))
    return _problem(u, n, horizon, closed_form, forced=False)


def polynomial(
    dim: int = 100, horizon: float = 0.5, diffusion: float = 1.0, closed_form: bool = True
) -> Problem:
    """u0 = |x|⁴/d², no source."""
    n = dimension(dim)
    u = OneCoordinate(_RadialQuartic(n), Radius(n), number("diffusion", diffusion))
    return _problem(u, n, horizon, closed_form, forced=False)


def ridge(
    dim: int = 100, horizon: float = 0.5, diffusion: float = 1.0, closed_form: bool = True
) -> Problem:
    """u0 = exp(-(a·x)²), a ~ (1, 1/2, 1/3, ...), no source."""
    n = dimension(dim)
    u = OneCoordinate(_bell, Ridge(_unit(n)), number("diffusion", diffusion))
    return _problem(u, n, horizon, closed_form, forced=False)


def smooth_basket(
    dim: int = 100, horizon: float = 0.5, diffusion: float = 1.0, closed_form: bool = True
) -> Problem:
    """A call on a basket of equal weights, its payoff smoothed over a width of 0.3: Bachelier's
    formula."""
    n = dimension(dim)
    u = OneCoordinate(_call, Ridge(_even(n)), number("diffusion", diffusion))
    return _problem(u, n, horizon, closed_form, forced=False)


def moving_ridge(
    dim: int = 100, horizon: float = 0.5, diffusion: float = 1.0, closed_form: bool = True
) -> Problem:
    """u = exp(-(a·x - t)²), a ~ (1, 1/2, 1/3, ...): initial condition and source matter alike."""
    n = dimension(dim)
    u = OneCoordinate(_moving_bell, Ridge(_unit(n)), number("diffusion", diffusion))
    return _problem(u, n, horizon, closed_form, forced=True)


def forced_ridge(
    dim: int = 100, horizon: float = 0.5, diffusion: float = 1.0, closed_form: bool = True
) -> Problem:
    """u0 = 0, u = sin(3t) exp(-(a·x)²), a ~ (1, 1/2, 1/3, ...)."""
    n = dimension(dim)
    u = OneCoordinate(_growing_bell, Ridge(_unit(n)), number("diffusion", diffusion))
    return _problem(u, n, horizon, closed_form, forced=True)


def forced_radial(
    dim: int = 100, horizon: float = 0.5, diffusion: float = 1.0, closed_form: bool = True
) -> Problem:
    """u0 = 0, u = t exp(-|x|²/d)."""
    n = dimension(dim)
    u = OneCoordinate(_growing_radial, Radius(n), number("diffusion", diffusion))
    return _problem(u, n, horizon, closed_form, forced=True)


# --- sums of eigenfunctions ---


def _decaying(t: Scalar, rates: Array) -> Array:
    """exp(-D λ t): the heat equation without a source."""
    return jnp.exp(-rates * t)


def _switched_on(t: Scalar, rates: Array) -> Array:
    """sin(2t) for the slow modes, t² for the others."""
    return jnp.where(rates < jnp.median(rates), jnp.sin(2 * t), t**2)


class SineUnits(eqx.Module):
    """The functions c_k sin(a_k·x + b_k), k = 1, ..., units."""

    frequencies: Any  # a, (units, dim)
    phases: Any  # b, (units,)
    weights: Any  # c, (units,)
    maths: Any = eqx.field(static=True)

    def __call__(self, x: Vector) -> Array:
        return self.weights * self.maths.sin(self.frequencies @ x + self.phases)


class NeighbourProducts(eqx.Module):
    """Σ_i cos x_i cos x_{i+1} / √d and Σ_i sin x_i sin 2x_{i+1} / √d, cyclic."""

    maths: Any = eqx.field(static=True)

    def __call__(self, x: Vector) -> Array:
        after, maths = jnp.roll(x, -1), self.maths
        first = jnp.sum(maths.cos(x) * maths.cos(after))
        second = jnp.sum(maths.sin(x) * maths.sin(2 * after))
        return jnp.stack([first, second]) / np.sqrt(x.size)


class CosineProduct(eqx.Module):
    """Π_i cos(κ x_i)."""

    wavenumber: Any
    maths: Any = eqx.field(static=True)

    def __call__(self, x: Vector) -> Array:
        return jnp.prod(self.maths.cos(self.wavenumber * x))[None]


def _network(dim: int, closed_form: bool) -> tuple[SineUnits, np.ndarray]:
    """32 random sine units (with a fixed seed) with frequencies |a_k| from 1 to 3, and |a_k|²."""
    rng = np.random.default_rng(32)
    a = rng.standard_normal((32, dim))
    a *= rng.uniform(1, 3, (32, 1)) / np.linalg.norm(a, axis=1, keepdims=True)
    phases, weights = rng.uniform(0, 2 * np.pi, 32), rng.standard_normal(32) / np.sqrt(32)
    return SineUnits(a, phases, weights, _maths(closed_form)), np.sum(a**2, axis=1)


def _maths(closed_form: bool) -> Any:
    """The module of sin and cos: `elementary` (faster) or jax.numpy."""
    return elementary if closed_form else jnp


def sine_network(
    dim: int = 100, horizon: float = 0.5, diffusion: float = 1.0, closed_form: bool = True
) -> Problem:
    """u0 = Σ c_k sin(a_k·x + b_k), 32 units, no source."""
    n = dimension(dim)
    units, eigenvalues = _network(n, closed_form)
    u = Modes(_decaying, units, eigenvalues, number("diffusion", diffusion))
    return _problem(u, n, horizon, closed_form, forced=False)


def forced_network(
    dim: int = 100, horizon: float = 0.5, diffusion: float = 1.0, closed_form: bool = True
) -> Problem:
    """u0 = 0, u = Σ a_k(t) c_k sin(a_k·x + b_k), half of the units growing like sin 2t, half
    like t²."""
    n = dimension(dim)
    units, eigenvalues = _network(n, closed_form)
    u = Modes(_switched_on, units, eigenvalues, number("diffusion", diffusion))
    return _problem(u, n, horizon, closed_form, forced=True)


def neighbour_products(
    dim: int = 100, horizon: float = 0.5, diffusion: float = 1.0, closed_form: bool = True
) -> Problem:
    """u0 = Σ (cos x_i cos x_{i+1} + sin x_i sin 2x_{i+1}) / √d, cyclic, no source; d >= 2."""
    n = check_int("dim", dim, 2, "Neighbours need two coordinates.")
    products = NeighbourProducts(_maths(closed_form))
    u = Modes(_decaying, products, np.array([2.0, 5.0]), number("diffusion", diffusion))
    return _problem(u, n, horizon, closed_form, forced=False)


def product_of_cosines(
    dim: int = 100, horizon: float = 0.5, diffusion: float = 1.0, closed_form: bool = True
) -> Problem:
    """u0 = Π cos(κ x_i), d κ² = 4, no source."""
    n = dimension(dim)
    product = CosineProduct(np.asarray(2 / np.sqrt(n)), _maths(closed_form))
    u = Modes(_decaying, product, np.array([4.0]), number("diffusion", diffusion))
    return _problem(u, n, horizon, closed_form, forced=False)


# --- others ---


class QuadraticForm(eqx.Module):
    """Σ q_i x_i² + (v·x)², q_i = i/d²."""

    diagonal: Any
    vector: Any

    def __call__(self, x: Vector) -> Scalar:
        return jnp.sum(self.diagonal * x**2) + jnp.sum(self.vector * x) ** 2

    def laplacian(self, x: Vector) -> Scalar:
        return 2 * (jnp.sum(self.diagonal) + jnp.sum(self.vector**2))


class QuadraticSolution(eqx.Module):
    """q(x) + D t Δq, q the quadratic form."""

    initial: QuadraticForm
    diffusion: Any

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return self.initial(x) + self.diffusion * t * self.initial.laplacian(x)


class KinkedSolution(eqx.Module):
    """E[(a·x + √(2Dt) N)⁺], |a| = 1, N standard normal."""

    weights: Any
    diffusion: Any

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        y = jnp.sum(self.weights * x)
        width = jnp.sqrt(2 * self.diffusion * jnp.maximum(t, 1e-300))
        return y * norm.cdf(y / width) + width * norm.pdf(y / width)


class Kink(eqx.Module):
    """max(a·x, 0)."""

    weights: Any

    def __call__(self, x: Vector) -> Scalar:
        return jnp.maximum(jnp.sum(self.weights * x), 0.0)


class Constant(eqx.Module):
    """x -> c."""

    value: Any

    def __call__(self, x: Vector) -> Scalar:
        return jnp.asarray(self.value)

    def laplacian(self, x: Vector) -> Scalar:
        return jnp.zeros(())


class ConstantSolution(eqx.Module):
    """(t, x) -> c."""

    initial: Constant

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return self.initial(x)


def quadratic_form(
    dim: int = 100, horizon: float = 0.5, diffusion: float = 1.0, closed_form: bool = True
) -> Problem:
    """u0 = Σ i x_i²/d² + (v·x)², |v| = 1, no source."""
    n = dimension(dim)
    u0 = QuadraticForm(np.arange(1, n + 1) / n**2, _unit(n))
    return Problem(
        dim=n,
        horizon=horizon,
        diffusion=diffusion,
        initial=Function(u0, laplacian=u0.laplacian if closed_form else None),
        exact=QuadraticSolution(u0, number("diffusion", diffusion)),
    )


def kinked_ridge(dim: int = 100, horizon: float = 0.5, diffusion: float = 1.0) -> Problem:
    """u0 = max(a·x, 0), a of equal weights, |a| = 1, no source: not C², Bachelier's formula."""
    n = dimension(dim)
    exact = KinkedSolution(_even(n), number("diffusion", diffusion))
    return Problem(dim=n, horizon=horizon, diffusion=diffusion, initial=Kink(_even(n)), exact=exact)


def constant(
    dim: int = 100, horizon: float = 0.5, diffusion: float = 1.0, closed_form: bool = True
) -> Problem:
    """u = 1."""
    one = Constant(np.asarray(1.0))
    initial = Function(one, laplacian=one.laplacian if closed_form else None)
    return Problem(
        dim=dimension(dim),
        horizon=horizon,
        diffusion=diffusion,
        initial=initial,
        exact=ConstantSolution(one),
    )
