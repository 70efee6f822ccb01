"""One seed at the top, split once into named, independent streams.

What is frozen into a result (features, rows) comes from NumPy generators, so that it is the same on every device and
a longer draw begins with the shorter one. What is averaged away (Monte Carlo samples) comes from JAX keys, so that it
never leaves the device.
"""

from __future__ import annotations

import hashlib
import zlib

import jax
import numpy as np

from heatnets._core.errors import count


def check_seed(seed: object) -> int:
    return count("seed", seed, 0, "One whole number fixes every random stream.")


Mark = tuple[int, ...]  # what a stream belongs to, as numbers of 32 bits


def _sequence(seed: int, stream: str, mark: Mark = ()) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, zlib.crc32(stream.encode()), *mark])


def generator(seed: int, stream: str, mark: Mark = ()) -> np.random.Generator:
    """The NumPy generator of a named stream; another one for each mark."""
    return np.random.Generator(np.random.PCG64DXSM(_sequence(seed, stream, mark)))


def mark(*parts: bytes) -> Mark:
    """A mark of whatever these bytes tell, the same in every process."""
    digest = hashlib.sha256(b"".join(len(p).to_bytes(8, "little") + p for p in parts)).digest()
    return tuple(np.frombuffer(digest[:16], "<u4").tolist())


def marks(problem: Mark, t: np.ndarray, x: np.ndarray) -> list[Mark]:
    """A mark for each point (t, x) of a problem, whatever others it is asked with."""
    own = np.array(problem, "<u4").tobytes()
    points = np.column_stack([t, x]).astype("<f8") + 0.0  # no negative zeros
    return [mark(own, row.tobytes()) for row in points]


def key(seed: int, stream: str) -> jax.Array:
    """The JAX key of a named stream."""
    word = int(_sequence(seed, stream).generate_state(1, np.uint64)[0]) >> 1
    return jax.random.key(word)
