"""Fast vectorised sine and cosine for the named problems.

On CPUs XLA's sine calls the C library for each number; these use plain arithmetic. Measured on two
CPU cores: 36 M pairs (sin and cos of one argument) per second with jnp, 141 M with these, in one
run; error below 2.3e-16 for |x| <= 1e4. On a GPU jnp is faster (by a third on an H200) and is used.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

# π/2 in four parts; the first has 27 binary digits, the next two have 26, so that n times them is
# exact for |n| < 2^26 (Cody and Waite).
_HALF_PI = (1.570796325802803, 9.920935739593517e-10, 5.721188709663575e-18, 1.6446256936324258e-26)
_MOST_TURNS = 2.0**26
# Minimax coefficients on [-π/4, π/4], as in the Cephes library: (sin r - r)/r³ and
# (cos r - 1 + r²/2)/r⁴ as polynomials in r², highest power first.
_SIN = (
    1.58962301576546568060e-10,
    -2.50507477628578072866e-8,
    2.75573136213857245213e-6,
    -1.98412698295895385996e-4,
    8.33333333332211858878e-3,
    -1.66666666666666307295e-1,
)
_COS = (
    -1.13585365213876817300e-11,
    2.08757008419747316778e-9,
    -2.75573141792967388112e-7,
    2.48015872888517045348e-5,
    -1.38888888888730564116e-3,
    4.16666666666665929218e-2,
)


def _shifted_sine(x: Array, turns: int) -> Array:
    """sin(x + turns π/2)."""
    # Range reduction: x = n π/2 + r with |r| <= π/4.
    n = jnp.round(x * (2 / np.pi))
    r = (((x - n * _HALF_PI[0]) - n * _HALF_PI[1]) - n * _HALF_PI[2]) - n * _HALF_PI[3]
    z = r * r
    sine = r + r * z * _horner(_SIN, z)
    cosine = 1 - 0.5 * z + z * z * _horner(_COS, z)
    k = n + turns - 4 * jnp.floor(0.25 * (n + turns))  # quadrant: 0, 1, 2, 3
    value = jnp.where((k == 1) | (k == 3), cosine, sine)
    # Beyond |x| = 1.05e8 the reduction loses digits: NaN rather than a wrong value.
    return jnp.where(jnp.abs(n) < _MOST_TURNS, jnp.where(k >= 2, -value, value), jnp.nan)


def _horner(coefficients: tuple[float, ...], z: Array) -> Array:
    """The polynomial in z with these coefficients, highest power first."""
    value = jnp.full_like(z, coefficients[0])
    for c in coefficients[1:]:
        value = value * z + c
    return value


@jax.custom_jvp
def _sin(x: Array) -> Array:
    return jax.lax.platform_dependent(x, cpu=lambda x: _shifted_sine(x, 0), default=jnp.sin)


@jax.custom_jvp
def _cos(x: Array) -> Array:
    return jax.lax.platform_dependent(x, cpu=lambda x: _shifted_sine(x, 1), default=jnp.cos)


# Calls of compiled functions: JAX traces, batches and differentiates their arithmetic only once.
_compiled_sin, _compiled_cos = jax.jit(_sin), jax.jit(_cos)


def sin(x: Array) -> Array:
    """sin x for |x| < 1e8; NaN for |x| > 1.06e8."""
    return _compiled_sin(x)


def cos(x: Array) -> Array:
    """cos x for |x| < 1e8; NaN for |x| > 1.06e8."""
    return _compiled_cos(x)


@_sin.defjvp
def _sin_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return sin(primals[0]), cos(primals[0]) * tangents[0]


@_cos.defjvp
def _cos_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return cos(primals[0]), -sin(primals[0]) * tangents[0]
