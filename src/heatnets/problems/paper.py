"""The paper's four test problems, with exact solutions.

Functions are modules with array fields, so that a sweep over T, D or other parameters compiles once
per dimension. `closed_form=True` uses Laplacians in closed form and faster sines;
`closed_form=False` has no Laplacians, and sines from jax.numpy, as a user would write them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets.pde.function import Function
from heatnets.pde.problem import Problem
from heatnets.pde.regions import Box
from heatnets.problems import elementary
from heatnets.problems.parameters import dimension, number

# Where the paper trains Examples 2 and 3 and the 1-D example; it tests on a box of half the width.
TRAIN_REGION = Box(-np.pi, np.pi)

Vector = Float[Array, " dim"]
Scalar = Float[Array, ""]


def _function(closed_form: bool, f: Callable[..., Any], laplacian: Callable[..., Any]) -> Function:
    """f as a `Function`, with its Laplacian if `closed_form`."""
    return Function(f, laplacian=laplacian if closed_form else None)


class SineSum(eqx.Module):
    """S_k(x) = Σ_i c_i sin(k x_i) / √(Σ c_i²)."""

    amplitudes: Any  # c_i / √(Σ c_i²)
    wavenumber: Any
    maths: Any = eqx.field(static=True)  # module of sin and cos: jax.numpy, or `elementary`

    def __init__(self, dim: int, wavenumber: float, closed_form: bool) -> None:
        self.amplitudes = np.full(dim, 1 / np.sqrt(dim))
        self.wavenumber = number("wavenumber", wavenumber)
        self.maths = elementary if closed_form else jnp

    def __call__(self, x: Vector) -> Scalar:
        return jnp.sum(self.amplitudes * self.maths.sin(self.wavenumber * x))

    def laplacian(self, x: Vector) -> Scalar:
        return -(self.wavenumber**2) * self(x)


def _growth(t: Scalar) -> Scalar:
    """g(t) = t + e^{-t}."""
    return t + jnp.exp(-t)


class OscillatingSource(eqx.Module):
    """F = (g'(t) + D k² g(t)) S_k(x)."""

    shape: SineSum
    diffusion: Any

    def _factor(self, t: Scalar) -> Scalar:
        return 1 - jnp.exp(-t) + self.diffusion * self.shape.wavenumber**2 * _growth(t)

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return self._factor(t) * self.shape(x)

    def laplacian(self, t: Scalar, x: Vector) -> Scalar:
        return self._factor(t) * self.shape.laplacian(x)


class OscillatingSolution(eqx.Module):
    """u = g(t) S_k(x)."""

    shape: SineSum

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return _growth(t) * self.shape(x)


def oscillating(
    dim: int = 100,
    horizon: float = 0.5,
    diffusion: float = 1.0,
    wavenumber: float = 2.0,
    closed_form: bool = True,
) -> Problem:
    """Example 2: u = (t + e^{-t}) S_k(x), k = 2, wanted on [-π/2, π/2]^d. Additive, and u0 is an
    eigenfunction: easy."""
    shape = SineSum(dimension(dim), wavenumber, closed_form)
    source = OscillatingSource(shape, number("diffusion", diffusion))
    return Problem(
        dim=dim,
        horizon=horizon,
        diffusion=diffusion,
        initial=_function(closed_form, shape, shape.laplacian),
        source=_function(closed_form, source, source.laplacian),
        region=Box(-np.pi / 2, np.pi / 2),
        exact=OscillatingSolution(shape),
    )


def forced_sine(horizon: float = 1.0, closed_form: bool = True) -> Problem:
    """The 1-D example: u = (t + e^{-t}) sin x, D = 1: Example 2 with d = 1, k = 1 and T = 1."""
    return oscillating(dim=1, horizon=horizon, wavenumber=1.0, closed_form=closed_form)


class SineProduct(eqx.Module):
    """Π_i sin(π x_i)."""

    maths: Any = eqx.field(static=True, default=jnp)

    def __call__(self, x: Vector) -> Scalar:
        return jnp.prod(self.maths.sin(jnp.pi * x))

    def laplacian(self, x: Vector) -> Scalar:
        return -x.size * jnp.pi**2 * self(x)


class SineProductSolution(eqx.Module):
    """e^{-d D π² t} Π_i sin(π x_i)."""

    diffusion: Any

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return jnp.exp(-x.size * self.diffusion * jnp.pi**2 * t) * SineProduct()(x)


def product_of_sines(
    dim: int = 5, horizon: float = 0.05, diffusion: float = 1.0, closed_form: bool = True
) -> Problem:
    """Example 1: u0 = Π sin(πx_i), no source, wanted on [-1, 1]^d (the paper does not name its
    region)."""
    shape = SineProduct(elementary if closed_form else jnp)
    return Problem(
        dim=dimension(dim),
        horizon=horizon,
        diffusion=diffusion,
        initial=_function(closed_form, shape, shape.laplacian),
        region=Box(-1.0, 1.0),
        exact=SineProductSolution(number("diffusion", diffusion)),
    )


class NonseparableSolution(eqx.Module):
    """u = g(t) S_k(x) + q(t) E(t, x) S_m(x), q = α t² e^{-t/3}, E = exp(-β t |x|²/d)."""

    slow: SineSum
    fast: SineSum
    alpha: Any
    beta: Any

    def q(self, t: Scalar) -> Scalar:
        return self.alpha * t**2 * jnp.exp(-t / 3)

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        envelope = jnp.exp(-self.beta * t * jnp.sum(x**2) / x.size)
        return _growth(t) * self.slow(x) + self.q(t) * envelope * self.fast(x)


class NonseparableSource(eqx.Module):
    """F of Example 3 as F = a(t) S_k + E H, H = (p0 + p1 |x|²) S + p2 W.

    Here S = S_m, W = x·∇S, b = βt/d. Collecting the paper's terms:
    p0 = q' + D q m² + 2 D q b d, p1 = -β q/d - 4 D q b², p2 = 4 D q b.
    """

    solution: NonseparableSolution
    diffusion: Any

    def _coefficients(self, t: Scalar, dim: int) -> tuple[Scalar, ...]:
        """a, b, p0, p1, p2 at time t."""
        u, D = self.solution, self.diffusion
        q, dq = jax.jvp(u.q, (t,), (jnp.ones_like(t),))
        m2, b = u.fast.wavenumber**2, u.beta * t / dim
        a = 1 - jnp.exp(-t) + D * u.slow.wavenumber**2 * _growth(t)
        p0 = dq + D * q * m2 + 2 * D * q * b * dim
        p1 = -u.beta * q / dim - 4 * D * q * b**2
        p2 = 4 * D * q * b
        return a, b, p0, p1, p2

    def _sums(self, x: Vector) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        """|x|², S, W = x·∇S, and V = Σ c_i x_i² sin(m x_i)."""
        fast = self.solution.fast
        c, m, maths = fast.amplitudes, fast.wavenumber, fast.maths
        sine, cosine = maths.sin(m * x), maths.cos(m * x)
        square, S = jnp.sum(x**2), jnp.sum(c * sine)
        W, V = m * jnp.sum(c * x * cosine), jnp.sum(c * x**2 * sine)
        return square, S, W, V

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        a, b, p0, p1, p2 = self._coefficients(t, x.size)
        s, S, W, _ = self._sums(x)
        return a * self.solution.slow(x) + jnp.exp(-b * s) * ((p0 + p1 * s) * S + p2 * W)

    def laplacian(self, t: Scalar, x: Vector) -> Scalar:
        """ΔF, by Δ(E H) = E [(4b²|x|² - 2bd) H - 4b x·∇H + ΔH].

        Here x·∇W = W - m² V, V = Σ c_i x_i² sin(m x_i), ΔW = -m²(2S + W).
        """
        a, b, p0, p1, p2 = self._coefficients(t, x.size)
        s, S, W, V = self._sums(x)
        d, m2 = x.size, self.solution.fast.wavenumber**2
        H = (p0 + p1 * s) * S + p2 * W
        radial = 2 * p1 * s * S + (p0 + p1 * s) * W + p2 * (W - m2 * V)
        curved = 2 * d * p1 * S + 4 * p1 * W - m2 * (p0 + p1 * s) * S - p2 * m2 * (2 * S + W)
        slow = a * self.solution.slow.laplacian(x)
        return slow + jnp.exp(-b * s) * ((4 * b**2 * s - 2 * b * d) * H - 4 * b * radial + curved)


def nonseparable(
    dim: int = 100,
    horizon: float = 0.5,
    diffusion: float = 1.0,
    alpha: float = 1.0,
    beta: float = 1.0,
    closed_form: bool = True,
) -> Problem:
    """Example 3: u = g S_2 + α t² e^{-t/3} exp(-βt|x|²/d) S_3, wanted on [-π/2, π/2]^d. The paper
    gives no α and β; 1 here."""
    n = dimension(dim)
    slow = SineSum(n, 2.0, closed_form)
    solution = NonseparableSolution(
        slow, SineSum(n, 3.0, closed_form), number("alpha", alpha), number("beta", beta)
    )
    source = NonseparableSource(solution, number("diffusion", diffusion))
    return Problem(
        dim=n,
        horizon=horizon,
        diffusion=diffusion,
        initial=_function(closed_form, slow, slow.laplacian),
        source=_function(closed_form, source, source.laplacian),
        region=Box(-np.pi / 2, np.pi / 2),
        exact=solution,
    )
