"""The paper's change of variables for the time lag of Gaussian kernels."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


class LagTransform:
    """The paper's change of variables for the lag g = t - s; it removes the kernel's singularity.

    τ = √g (d = 1), -ln g (d = 2), g^α with α = 1 - d/2 (d >= 3); τ is uniform on 𝒟(longest). For
    d >= 2 lags below `shortest` are cut off.
    """

    def __init__(self, dim: int, longest: Any, shortest: Any) -> None:
        self.dim, self.alpha = dim, 1 - dim / 2
        self.longest, self.log_range = longest, jnp.log(longest / shortest if dim > 1 else 1.0)

    def at(self, unit: Any) -> Any:
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


def log_kernel_constant(dim: int, diffusion: Any) -> Any:
    """log of 1 / (C(d) (4πD)^{d/2}), C = 1/2, 1, |1 - d/2|."""
    C = {1: 0.5, 2: 1.0}.get(dim, abs(1 - dim / 2))
    return -jnp.log(C) - 0.5 * dim * jnp.log(4 * jnp.pi * diffusion)
