"""One seed at the top, split once into named, independent streams.

What is frozen into a result (features, rows) comes from NumPy generators, so that it is the same on every device and
a longer draw begins with the shorter one. What is averaged away (Monte Carlo samples) comes from JAX keys, so that it
never leaves the device.
"""

from __future__ import annotations

import zlib

import jax
import numpy as np

from heatnets.errors import count


def check_seed(seed: object) -> int:
    return count("seed", seed, 0, "One whole number fixes every random stream.")


def _sequence(seed: int, stream: str) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, zlib.crc32(stream.encode())])


def generator(seed: int, stream: str) -> np.random.Generator:
    """The NumPy generator of a named stream."""
    return np.random.Generator(np.random.PCG64DXSM(_sequence(seed, stream)))


def key(seed: int, stream: str) -> jax.Array:
    """The JAX key of a named stream."""
    word = int(_sequence(seed, stream).generate_state(1, np.uint64)[0]) >> 1
    return jax.random.key(word)
