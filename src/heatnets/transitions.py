"""The process behind the equation: where a path that starts at x is after a time."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class HeatFlow(eqx.Module):
    """Brownian motion with generator D Δ: X_t = x + √(2Dt) η, η ~ N(0, I)."""

    diffusion: Float[Array, ""]

    def __call__(self, t: Float[Array, ""], x: Float[Array, "dim"], noise: Float[Array, "dim"]) -> Float[Array, "dim"]:
        return x + jnp.sqrt(2 * self.diffusion * t) * noise
