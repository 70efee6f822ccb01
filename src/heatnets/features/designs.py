"""Direction designs: sequences of random or quasi-random draws for the parameters of features.

"gaussian" and "sobol" are those of the paper; `DESIGNS` lists all. The first M entries of a design
never change when more are drawn. To add one, write a class with `draw` and add an instance to
`_BUILT_IN`.
"""

from __future__ import annotations

import abc
import itertools
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.special

from heatnets._core import streams
from heatnets._core.errors import InputError, check_choice
from heatnets._core.lapack import lapack_threads

Draws = tuple[np.ndarray, np.ndarray]  # uniform (count, uniform) and normal (count, normal)


class Design(abc.ABC):
    """A sequence of draws, with some coordinates uniform on (0, 1) and the others standard normal.

    A subclass has a `name` and a method `draw`. Features need normal coordinates with mean 0 and
    variance 1; the rest of their law is free, except that `kurtosis` must say the fourth moment.
    """

    name: str

    def kurtosis(self, normal: int) -> float:
        """Fourth moment of one of `normal` coordinates."""
        return 3.0

    def check(self, width: int) -> None:
        """Raise `InputError` if the design has no draws of `width` coordinates."""
        return

    @abc.abstractmethod
    def draw(self, count: int, uniform: int, normal: int, seed: int, stream: str) -> Draws:
        """Draw the first `count` entries of the sequence.

        Args:
            count: number of draws.
            uniform: number of uniform coordinates.
            normal: number of normal coordinates.
            seed: the seed of the solve.
            stream: name of the random stream.

        Returns:
            Arrays of shape (count, uniform) in (0, 1), and (count, normal) with mean 0, variance 1.
        """


@dataclass(frozen=True)
class IndependentDraws(Design):
    """Independent draws."""

    name = "gaussian"

    def draw(self, count: int, uniform: int, normal: int, seed: int, stream: str) -> Draws:
        # Two streams, so that the number of draws of one does not change the other.
        uniforms = streams.generator(seed, f"{stream}/uniform").random((count, uniform))
        normals = streams.generator(seed, f"{stream}/normal").standard_normal((count, normal))
        return uniforms, normals


@dataclass(frozen=True)
class SobolDraws(Design):
    """Scrambled Sobol points, one joint sequence for uniform and normal coordinates.

    One joint sequence, because two Sobol sequences share the structure of their first coordinate,
    even if they are scrambled differently. Above a few hundred dimensions pairs of coordinates are
    strongly correlated (0.94 at d = 2000 with 1024 points); the design exists because the paper
    uses it.
    """

    name = "sobol"

    def check(self, width: int) -> None:
        from scipy.stats.qmc import Sobol  # slow to import, and no default needs it

        if width > Sobol.MAXDIM:
            raise InputError(
                f'`directions="sobol"` reaches {Sobol.MAXDIM} coordinates; '
                f'this problem needs {width}. Use directions="gaussian".'
            )

    def draw(self, count: int, uniform: int, normal: int, seed: int, stream: str) -> Draws:
        from scipy.stats.qmc import Sobol

        width = uniform + normal
        self.check(width)
        if count == 0 or width == 0:
            return np.empty((count, uniform)), np.empty((count, normal))
        with warnings.catch_warnings():
            # scipy warns if `count` is no power of two; here only the sequence matters.
            warnings.simplefilter("ignore", UserWarning)
            rng = streams.generator(seed, stream)
            points = Sobol(width, scramble=True, rng=rng).random(count)
        # Points have 30 bits: keep them half a cell away from 0 and 1.
        points = np.clip(points, 2.0**-31, 1 - 2.0**-31)
        return points[:, :uniform], scipy.special.ndtri(points[:, uniform:])


@dataclass(frozen=True)
class RandomSigns(Design):
    """Directions ρ s with independent random signs s and radius ρ from the quantiles of |N(0, 1)|.

    ρ and the uniform coordinates are one joint quasi-random sequence. Every coordinate has the same
    variance. Signs, also those of `HadamardSigns`, are not dense (η_i⁴ = η_i² η_j² always): a set
    of features that shall converge must also contain Gaussian directions.
    """

    name = "signs"

    def draw(self, count: int, uniform: int, normal: int, seed: int, stream: str) -> Draws:
        halton = _shifted_halton(count, 1 + uniform, seed, f"{stream}/signs")
        rng = streams.generator(seed, f"{stream}/signs")
        signs = 2.0 * rng.integers(0, 2, (count, normal), np.int8) - 1
        return halton[:, 1:], _radius(halton[:, :1]) * signs


@dataclass(frozen=True)
class HadamardSigns(Design):
    """Directions ρ s with s the rows of Hadamard matrices of size L, the next power of two >= d.

    As `RandomSigns`, but complete blocks with one radius have Σ η ηᵀ ∝ I. For each block of L
    directions the columns are permuted and get random signs, and the rows are in random order.

    Args:
        one_radius: if True, one ρ per block, so that complete blocks have Σ η ηᵀ = L ρ² I; if
            False, ρ varies inside blocks. With one radius per block, few blocks cover few radii:
            the default is one radius per block if eight blocks are at most 1024 directions
            (d <= 128).
    """

    one_radius: bool | None = None
    name = "hadamard"

    def draw(self, count: int, uniform: int, normal: int, seed: int, stream: str) -> Draws:
        length = 1 << max(normal - 1, 0).bit_length()
        block, row = np.divmod(np.arange(count), length)
        signs = np.empty((count, normal))
        for b in range(-(-count // length)):
            rng = streams.generator(seed, f"{stream}/hadamard {b}")
            columns, flips = rng.permutation(length)[:normal], 2.0 * rng.integers(0, 2, normal) - 1
            rows = rng.permutation(length)[row[block == b]]
            # Entry (i, j) of a Hadamard matrix is (-1)^|i & j|, |.| the number of binary ones.
            odd = np.bitwise_count(rows[:, None] & columns) & 1
            signs[block == b] = flips * (1.0 - 2.0 * odd)
        halton = _shifted_halton(count, 1 + uniform, seed, f"{stream}/hadamard")
        one_radius = length <= 128 if self.one_radius is None else self.one_radius
        radius = _radius(halton[:, :1])
        return halton[:, 1:], (radius[block] if one_radius and count else radius) * signs


@dataclass(frozen=True)
class OrthogonalDraws(Design):
    """Gaussian directions that are orthogonal within blocks of min(d, 256).

    Their lengths are drawn from the χ distribution, as those of independent Gaussian vectors.
    """

    name = "orthogonal"

    def draw(self, count: int, uniform: int, normal: int, seed: int, stream: str) -> Draws:
        size = max(1, min(normal, 256))
        blocks = [np.empty((0, normal))]
        for b in range(-(-count // size) if normal else 0):
            rng = streams.generator(seed, f"{stream}/orthogonal {b}")
            gaussian = rng.standard_normal((normal, size))
            blocks.append(_rotation(gaussian).T * np.sqrt(rng.chisquare(normal, (size, 1))))
        uniforms = _shifted_halton(count, uniform, seed, f"{stream}/orthogonal")
        return uniforms, np.concatenate(blocks)[:count] if normal else np.empty((count, 0))


def _rotation(gaussian: np.ndarray) -> np.ndarray:
    """Q of gaussian = QR with a positive diagonal of R: Haar distributed (dim, size).

    From four times as many rows as columns on, R is the Cholesky factor of the Gram matrix: the
    columns are then so nearly orthogonal (condition number at most 3 or so) that nothing is lost,
    and matrix products are ten times faster than a QR of 100,000 x 256.
    """
    rows, columns = gaussian.shape
    with lapack_threads(1):
        if rows >= 4 * columns and columns > 1:
            L = np.linalg.cholesky(gaussian.T @ gaussian)
            return scipy.linalg.solve_triangular(L, gaussian.T, lower=True, check_finite=False).T
        Q, R = np.linalg.qr(gaussian)
        return Q * np.sign(np.diag(R))


def _shifted_halton(count: int, width: int, seed: int, stream: str) -> np.ndarray:
    """The first points of a randomly shifted Halton sequence in (0, 1)^width, (count, width)."""
    shift = streams.generator(seed, f"{stream}/spread").random(width)
    points = [_radical_inverse(count, prime) for prime in itertools.islice(_primes(), width)]
    halton = np.reshape(points, (width, count)).T
    return np.clip((halton + shift) % 1.0, 2.0**-40, 1 - 2.0**-40)


def _radical_inverse(count: int, base: int) -> np.ndarray:
    """The van der Corput sequence: the digits of 0, 1, … mirrored at the point, (count,).

    That of SciPy takes a third of a second to import.
    """
    quotient, unit, points = np.arange(count), 1 / base, np.zeros(count)
    while np.any(quotient):
        quotient, digit = np.divmod(quotient, base)
        points += digit * unit
        unit /= base
    return points


def _primes() -> Iterator[int]:
    """2, 3, 5, …"""
    return (n for n in itertools.count(2) if all(n % k for k in range(2, math.isqrt(n) + 1)))


def _radius(unit: np.ndarray) -> np.ndarray:
    """Quantiles of |N(0, 1)| at the levels `unit`."""
    return scipy.special.ndtri(0.5 * (1 + unit))


_BUILT_IN = (IndependentDraws(), SobolDraws(), RandomSigns(), HadamardSigns(), OrthogonalDraws())
DESIGNS: dict[str, Design] = {design.name: design for design in _BUILT_IN}


def design(directions: str | Design | None) -> Design:
    """The design with a name, or `directions` itself if it is a `Design`."""
    if isinstance(directions, Design):
        if not isinstance(getattr(directions, "name", None), str):
            raise InputError(
                f"`directions` must be a Design with a `name`; {type(directions).__name__} has "
                'none. Write name = "..." in the class.'
            )
        return directions
    return DESIGNS[
        check_choice("directions", "gaussian" if directions is None else directions, DESIGNS)
    ]


def checked_draw(
    design: Design, count: int, uniform: int, normal: int, seed: int, stream: str
) -> Draws:
    """Draws of a design, with their shapes checked, because a user may have written the design."""
    uniforms, normals = (
        np.asarray(a, np.float64) for a in design.draw(count, uniform, normal, seed, stream)
    )
    if (uniforms.shape, normals.shape) != ((count, uniform), (count, normal)) or not (
        np.all(np.isfinite(uniforms)) and np.all(np.isfinite(normals))
    ):
        raise InputError(
            f"`{design.name}.draw` must return finite arrays of shape ({count}, {uniform}) and "
            f"({count}, {normal}); got shapes {uniforms.shape} and {normals.shape}."
        )
    return uniforms, normals
