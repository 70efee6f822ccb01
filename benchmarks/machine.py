"""Peak rates of this machine, by which other scripts divide their operation counts."""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from heatnets._core import elementary


def best_seconds(run: Callable[[], jax.Array], repeats: int = 3) -> float:
    """The shortest time of a few runs, without compilation."""
    run().block_until_ready()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run().block_until_ready()
        times.append(time.perf_counter() - start)
    return min(times)


def sine_pair_rate(dim: int) -> float:
    """Coordinates per second of Σ_i (sin z_i + cos z_i), z = x_k + η_j.

    This is the kernel of the sine problems alone.
    """
    size = 64 if jax.devices()[0].platform == "cpu" else 512
    rng = np.random.default_rng(0)
    x, eta = (
        jnp.asarray(rng.standard_normal((size, dim))),
        jnp.asarray(rng.standard_normal((size, dim))),
    )

    def one(x: jax.Array, eta: jax.Array) -> jax.Array:
        z = x + eta
        return jnp.sum(elementary.sin(z)) + jnp.sum(elementary.cos(z))

    kernel = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))
    return size * size * dim / best_seconds(lambda: kernel(x, eta))


def product_rate() -> float:
    """Floating-point operations per second of a float64 matrix product."""
    n = 1500 if jax.devices()[0].platform == "cpu" else 8192
    a = jnp.asarray(np.random.default_rng(0).standard_normal((n, n)))
    product = jax.jit(lambda a: a @ a)
    return 2 * n**3 / best_seconds(lambda: product(a))


def normal_rate() -> float:
    """Standard normal numbers per second from JAX's generator, float64, one large array."""
    draw = jax.jit(lambda key: jnp.sum(jax.random.normal(key, (2**22,))))
    return 2**22 / best_seconds(lambda: draw(jax.random.key(0)))
