"""Random streams: one seed is split into named, independent streams.

Features and rows, which are part of a result, come from NumPy generators: they are the same on
every device, and a longer draw begins with the shorter one. Monte Carlo samples, which are
averaged, come from JAX keys, so that they never leave the device.
"""

from __future__ import annotations

import hashlib
import zlib

import jax
import numpy as np

from heatnets._core.errors import check_int


def check_seed(seed: object) -> int:
    """Convert `seed` to an int >= 0, or raise `InputError`."""
    return check_int("seed", seed, 0, "One whole number fixes every random stream.")


Mark = tuple[int, ...]  # a hash of the object that uses the stream, as 32-bit words


def _sequence(seed: int, stream: str, mark: Mark = ()) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, zlib.crc32(stream.encode()), *mark])


def generator(seed: int, stream: str, mark: Mark = ()) -> np.random.Generator:
    """The NumPy generator of a named stream; each mark has an independent one."""
    return np.random.Generator(np.random.PCG64DXSM(_sequence(seed, stream, mark)))


def mark(*parts: bytes) -> Mark:
    """A mark computed from byte strings by SHA-256; the same in every process."""
    digest = hashlib.sha256(b"".join(len(p).to_bytes(8, "little") + p for p in parts)).digest()
    return tuple(np.frombuffer(digest[:16], "<u4").tolist())


def marks(problem: Mark, t: np.ndarray, x: np.ndarray) -> list[Mark]:
    """One mark per point (t, x) of a problem, which does not depend on the other points.

    `t` has shape (n,), `x` has shape (n, dim).
    """
    problem_bytes = np.array(problem, "<u4").tobytes()
    points = np.column_stack([t, x]).astype("<f8") + 0.0  # no negative zeros
    return [mark(problem_bytes, row.tobytes()) for row in points]


def key(seed: int, stream: str) -> jax.Array:
    """The JAX key of a named stream."""
    word = int(_sequence(seed, stream).generate_state(1, np.uint64)[0]) >> 1
    return jax.random.key(word)
