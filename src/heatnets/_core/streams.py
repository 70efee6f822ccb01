"""Random streams: one seed is split into named, independent streams.

Features and rows, which are part of a result, come from NumPy generators: they are the same on
every device, and a longer draw begins with the shorter one. Monte Carlo samples, which are
averaged, come from JAX keys, so that they never leave the device.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
from jaxtyping import Float

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


_LARGE = 2**23  # numbers: fewer take less than a tenth of a second
_BLOCK = 2**21  # numbers that one thread draws at a time


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """Standard normal numbers; many are drawn in blocks, by as many threads as there are cores."""
    return _draw(rng, "standard_normal", shape)


def uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """Uniform numbers in [0, 1), drawn like `normal`."""
    return _draw(rng, "random", shape)


def _draw(rng: np.random.Generator, law: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of a law of NumPy's generators; each block of many has a generator of its own.

    The numbers do not depend on the number of threads. A call for many advances `rng`, too: the
    next one gets other generators.
    """
    if math.prod(shape) < _LARGE:
        return np.asarray(getattr(rng, law)(shape))
    numbers = np.empty(math.prod(shape))
    blocks = np.split(numbers, range(_BLOCK, len(numbers), _BLOCK))

    def fill(child: np.random.Generator, block: np.ndarray) -> None:
        getattr(child, law)(out=block)

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, rng.spawn(len(blocks)), blocks))
    return numbers.reshape(shape)


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
