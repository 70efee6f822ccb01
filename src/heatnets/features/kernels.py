"""Transformed Gaussian kernels as features of the source, and the change of variables of lags."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from heatnets.features.features import Entry, Equation, Feature, Scalar, Vector


class KernelSource(Feature):
    """φ(t, x) = 1[g <= t] c exp(-|x-z|²/(4Dg)) F(t-g, z), a transformed Gaussian kernel.

    g is `lag`, z is `center`; c is stored as its logarithm, because c underflows for d >= 600.
    """

    center: Vector
    lag: Scalar
    log_coefficient: Scalar

    def _kernel(self, equation: Equation, x: Vector) -> Entry:
        """c exp(-|x-z|²/(4Dg)) and |x-z|²."""
        square = jnp.sum((x - self.center) ** 2)
        exponent = self.log_coefficient - square / (4 * equation.diffusion.scalar * self.lag)
        return jnp.exp(exponent), square

    def _earlier(self, t: Scalar) -> Scalar:
        """t - g; t if g > t, because F may be NaN at negative times.

        `jnp.where` does not keep NaN out of derivatives.
        """
        return jnp.where(self.lag <= t, t - self.lag, t)

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        assert equation.source is not None
        kernel, _ = self._kernel(equation, x)
        force = equation.source(self._earlier(t), self.center)
        return jnp.where(self.lag <= t, kernel * force, 0.0)

    def value_and_residual(self, equation: Equation, t: Scalar, x: Vector) -> Entry:
        assert equation.source is not None
        kernel, square = self._kernel(equation, x)
        force, change = equation.source.jvp(
            (self._earlier(t), self.center), (jnp.ones_like(t), jnp.zeros_like(x))
        )
        D = equation.diffusion.scalar
        width = 2 * D * self.lag
        residual = change - D * force * (square / width**2 - x.size / width)
        active = self.lag <= t
        return jnp.where(active, kernel * force, 0.0), jnp.where(active, kernel * residual, 0.0)

    @property
    def initial_coefficient(self) -> np.ndarray:
        return np.zeros(np.shape(self.log_coefficient))


class LagTransform:
    """The paper's change of variables for the lag g = t - s; it removes the kernel's singularity.

    τ = √g (d = 1), -ln g (d = 2), g^α with α = 1 - d/2 (d >= 3); τ is uniform on 𝒟(longest). For
    d >= 2 lags below `shortest` are cut off.
    """

    def __init__(self, dim: int, longest: Any, shortest: Any) -> None:
        self.dim, self.alpha = dim, 1 - dim / 2
        self.longest, self.log_range = longest, jnp.log(longest / shortest if dim > 1 else 1.0)

    def lag(self, unit: Any) -> Any:
        """The lag g whose τ lies at the fraction `unit` of 𝒟."""
        if self.dim == 1:
            return self.longest * unit**2
        if self.dim == 2:
            return self.longest * jnp.exp(-unit * self.log_range)
        # τ/τ_0 = (1-unit) + unit (shortest/longest)^α in logarithms: the power overflows for
        # d >= 200.
        log_tau = jnp.logaddexp(jnp.log1p(-unit), jnp.log(unit) - self.alpha * self.log_range)
        return self.longest * jnp.exp(log_tau / self.alpha)

    @property
    def length(self) -> Any:
        """The length μ(𝒟) of the interval of τ."""
        if self.dim == 1:
            return jnp.sqrt(self.longest)
        if self.dim == 2:
            return self.log_range
        return self.longest**self.alpha * jnp.expm1(-self.alpha * self.log_range)

    def log_constant(self, diffusion: Any) -> Any:
        """log of 1 / (C(d) (4πD)^{d/2}), the constant of the kernel in τ: C = 1/2, 1, |1 - d/2|."""
        C = {1: 0.5, 2: 1.0}.get(self.dim, abs(1 - self.dim / 2))
        return -jnp.log(C) - 0.5 * self.dim * jnp.log(4 * jnp.pi * diffusion)
