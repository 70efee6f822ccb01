"""The paper's four test problems, with exact solutions.

`closed_form=True` uses Laplacians in closed form and faster sines; `closed_form=False` has no
Laplacians, and sines from jax.numpy, as a user would write them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from heatnets._core import elementary
from heatnets.pde.problem import Problem
from heatnets.pde.regions import Box
from heatnets.problems.shapes import Scalar, Vector, dimension, number, with_laplacian

# Where the paper trains Examples 2 and 3 and the 1-D example; it tests on a box of half the width.
TRAIN_REGION = Box(-np.pi, np.pi)
_TEST_REGION = Box(-np.pi / 2, np.pi / 2)


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


class Oscillating(eqx.Module):
    """u = g(t) S_k(x), g = t + e^{-t}; if `forced`, its source (g'(t) + D k² g(t)) S_k(x)."""

    shape: SineSum
    diffusion: Any
    forced: bool = eqx.field(static=True, default=False)

    def _factor(self, t: Scalar) -> Scalar:
        if not self.forced:
            return t + jnp.exp(-t)
        rate = self.diffusion * self.shape.wavenumber**2
        return 1 - jnp.exp(-t) + rate * (t + jnp.exp(-t))

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return self._factor(t) * self.shape(x)

    def laplacian(self, t: Scalar, x: Vector) -> Scalar:
        return self._factor(t) * self.shape.laplacian(x)


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
    u = Oscillating(shape, number("diffusion", diffusion))
    return Problem(
        dim,
        horizon,
        diffusion=diffusion,
        initial=with_laplacian(shape, closed_form),
        source=with_laplacian(replace(u, forced=True), closed_form),
        region=_TEST_REGION,
        exact=u,
    )


def forced_sine(horizon: float = 1.0, closed_form: bool = True) -> Problem:
    """The 1-D example: u = (t + e^{-t}) sin x, D = 1: Example 2 with d = 1, k = 1 and T = 1."""
    return oscillating(dim=1, horizon=horizon, wavenumber=1.0, closed_form=closed_form)


class SineProduct(eqx.Module):
    """Π_i sin(π x_i)."""

    maths: Any = eqx.field(static=True)

    def __call__(self, x: Vector) -> Scalar:
        return jnp.prod(self.maths.sin(jnp.pi * x))

    def laplacian(self, x: Vector) -> Scalar:
        return -x.size * jnp.pi**2 * self(x)


class DecayingProduct(eqx.Module):
    """e^{-d D π² t} Π_i sin(π x_i)."""

    diffusion: Any

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return jnp.exp(-x.size * self.diffusion * jnp.pi**2 * t) * SineProduct(jnp)(x)


def product_of_sines(
    dim: int = 5, horizon: float = 0.05, diffusion: float = 1.0, closed_form: bool = True
) -> Problem:
    """Example 1: u0 = Π sin(πx_i), no source, wanted on [-1, 1]^d (the paper does not name its
    region)."""
    shape = SineProduct(elementary if closed_form else jnp)
    exact = DecayingProduct(number("diffusion", diffusion))
    initial = with_laplacian(shape, closed_form)
    return Problem(dim, horizon, diffusion=diffusion, initial=initial, exact=exact)


class Nonseparable(eqx.Module):
    """u = g(t) S_k(x) + q(t) E(t, x) S_m(x), q = α t² e^{-t/3}, E = exp(-β t |x|²/d)."""

    slow: Oscillating
    fast: SineSum
    alpha: Any
    beta: Any

    def q(self, t: Scalar) -> Scalar:
        return self.alpha * t**2 * jnp.exp(-t / 3)

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        envelope = jnp.exp(-self.beta * t * jnp.sum(x**2) / x.size)
        return self.slow(t, x) + self.q(t) * envelope * self.fast(x)


class NonseparableSource(eqx.Module):
    """F of Example 3: that of g S_k, and E H, H = (p0 + p1 |x|²) S + p2 W.

    Here S = S_m, W = x·∇S, b = βt/d. Collecting the paper's terms:
    p0 = q' + D q m² + 2 D q b d, p1 = -β q/d - 4 D q b², p2 = 4 D q b.
    """

    solution: Nonseparable
    slow: Oscillating

    def _terms(self, t: Scalar, x: Vector) -> tuple[Scalar, ...]:
        """b, p0, p1, p2; |x|², S, W, and V = Σ c_i x_i² sin(m x_i)."""
        u, D, d = self.solution, self.slow.diffusion, x.size
        c, m, maths = u.fast.amplitudes, u.fast.wavenumber, u.fast.maths
        q, dq = jax.jvp(u.q, (t,), (jnp.ones_like(t),))
        b = u.beta * t / d
        p0 = dq + D * q * m**2 + 2 * D * q * b * d
        p1 = -u.beta * q / d - 4 * D * q * b**2
        sine, cosine = maths.sin(m * x), maths.cos(m * x)
        square, S = jnp.sum(x**2), jnp.sum(c * sine)
        W, V = m * jnp.sum(c * x * cosine), jnp.sum(c * x**2 * sine)
        return b, p0, p1, 4 * D * q * b, square, S, W, V

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        b, p0, p1, p2, s, S, W, _ = self._terms(t, x)
        return self.slow(t, x) + jnp.exp(-b * s) * ((p0 + p1 * s) * S + p2 * W)

    def laplacian(self, t: Scalar, x: Vector) -> Scalar:
        """ΔF, by Δ(E H) = E [(4b²|x|² - 2bd) H - 4b x·∇H + ΔH].

        Here x·∇W = W - m² V and ΔW = -m²(2S + W).
        """
        b, p0, p1, p2, s, S, W, V = self._terms(t, x)
        d, m2 = x.size, self.solution.fast.wavenumber**2
        H = (p0 + p1 * s) * S + p2 * W
        radial = 2 * p1 * s * S + (p0 + p1 * s) * W + p2 * (W - m2 * V)
        curved = 2 * d * p1 * S + 4 * p1 * W - m2 * (p0 + p1 * s) * S - p2 * m2 * (2 * S + W)
        fast = jnp.exp(-b * s) * ((4 * b**2 * s - 2 * b * d) * H - 4 * b * radial + curved)
        return self.slow.laplacian(t, x) + fast


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
    slow, fast = (SineSum(dimension(dim), k, closed_form) for k in (2.0, 3.0))
    first = Oscillating(slow, number("diffusion", diffusion))
    u = Nonseparable(first, fast, number("alpha", alpha), number("beta", beta))
    source = NonseparableSource(u, replace(first, forced=True))
    return Problem(
        dim,
        horizon,
        diffusion=diffusion,
        initial=with_laplacian(slow, closed_form),
        source=with_laplacian(source, closed_form),
        region=_TEST_REGION,
        exact=u,
    )
