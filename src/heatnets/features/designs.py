"""Direction designs: where the frozen draws of the features come from.

A design is a sequence: its first M entries never change when more are drawn. To add one, write a class with `draw`
and name it in `DESIGNS`.

    gaussian     independent draws
    sobol        scrambled Sobol points, as in the paper
    signs        ρ s, random signs s, ρ spread over the quantiles of |N(0, 1)|: every coordinate sees the same variance
    hadamard     the same with signs from Hadamard matrices: complete blocks of one radius have Σ η ηᵀ ∝ I
    orthogonal   Gaussian directions, orthogonal to each other in blocks, with χ radii

Signs are not dense (η_i⁴ = η_i² η_j² always): a dictionary that is to converge must hold Gaussian directions too.
"""

from __future__ import annotations

import abc
import warnings
from dataclasses import dataclass

import numpy as np
import scipy.special
import scipy.stats.qmc

from heatnets._core import streams
from heatnets._core.errors import InputError, choice


class Design(abc.ABC):
    """A sequence of draws, each with some coordinates uniform on (0, 1) and some standard normal."""

    name: str

    def check(self, width: int) -> None:
        """Refuse, before any work, a number of coordinates that the design does not reach."""
        return

    @abc.abstractmethod
    def draw(
        self, count: int, uniform: int, normal: int, seed: int, stream: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Arrays of shape (count, uniform) in (0, 1) and (count, normal) from N(0, I)."""


@dataclass(frozen=True)
class IndependentDraws(Design):
    """Independent draws."""

    name = "gaussian"

    def draw(
        self, count: int, uniform: int, normal: int, seed: int, stream: str
    ) -> tuple[np.ndarray, np.ndarray]:
        # Two streams, so that the length of one does not shift the other.
        flat = streams.generator(seed, f"{stream}/uniform").random((count, uniform))
        bell = streams.generator(seed, f"{stream}/normal").standard_normal((count, normal))
        return flat, bell


@dataclass(frozen=True)
class SobolDraws(Design):
    """Scrambled Sobol points, one joint sequence for uniform and normal coordinates.

    Joint, because two Sobol sequences drawn side by side share their first coordinate's structure however they are
    scrambled. Above a few hundred dimensions coordinate pairs correlate strongly (0.94 at d = 2000 with 1024 points);
    kept because the paper uses it.
    """

    name = "sobol"

    def check(self, width: int) -> None:
        if width > scipy.stats.qmc.Sobol.MAXDIM:
            raise InputError(
                f'`directions="sobol"` reaches {scipy.stats.qmc.Sobol.MAXDIM} coordinates; this problem needs {width}. '
                'Use directions="gaussian".'
            )

    def draw(
        self, count: int, uniform: int, normal: int, seed: int, stream: str
    ) -> tuple[np.ndarray, np.ndarray]:
        width = uniform + normal
        self.check(width)
        if count == 0 or width == 0:
            return np.empty((count, uniform)), np.empty((count, normal))
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # scipy asks for powers of two; a sequence has no such wish
            points = scipy.stats.qmc.Sobol(
                width, scramble=True, rng=streams.generator(seed, stream)
            ).random(count)
        points = np.clip(
            points, 2.0**-31, 1 - 2.0**-31
        )  # 30-bit points: half a cell away from 0 and 1
        return points[:, :uniform], scipy.special.ndtri(points[:, uniform:])


@dataclass(frozen=True)
class RandomSigns(Design):
    """ρ s with independent random signs s and ρ spread over the quantiles of |N(0, 1)|, jointly with the uniform coordinates."""

    name = "signs"

    def draw(
        self, count: int, uniform: int, normal: int, seed: int, stream: str
    ) -> tuple[np.ndarray, np.ndarray]:
        spread = _spread(count, 1 + uniform, seed, f"{stream}/signs")
        signs = (
            2.0
            * streams.generator(seed, f"{stream}/signs").integers(0, 2, (count, normal), np.int8)
            - 1
        )
        return spread[:, 1:], _radius(spread[:, :1]) * signs


@dataclass(frozen=True)
class HadamardSigns(Design):
    """ρ s with s the rows of Hadamard matrices of size L, the next power of two >= d; columns permuted and given random signs,
    rows in random order, afresh for each block of L.

    Args:
        one_radius: one ρ per block, so that complete blocks have Σ η ηᵀ = L ρ² I; otherwise ρ varies inside blocks. A block
            has one direction of each radius to offer, so a few blocks of one radius each resolve nothing else: by default one
            radius per block where eight blocks are at most 1024 directions (d <= 128).
    """

    one_radius: bool | None = None
    name = "hadamard"

    def draw(
        self, count: int, uniform: int, normal: int, seed: int, stream: str
    ) -> tuple[np.ndarray, np.ndarray]:
        length = 1 << max(normal - 1, 0).bit_length()
        block, row = np.divmod(np.arange(count), length)
        signs = np.empty((count, normal))
        for b in range(-(-count // length)):
            rng = streams.generator(seed, f"{stream}/hadamard {b}")
            columns, flips = rng.permutation(length)[:normal], 2.0 * rng.integers(0, 2, normal) - 1
            rows = rng.permutation(length)[row[block == b]]
            odd = (
                np.bitwise_count(rows[:, None] & columns) & 1
            )  # entry (i, j) of a Hadamard matrix: (-1)^|i & j|
            signs[block == b] = flips * (1.0 - 2.0 * odd)
        spread = _spread(count, 1 + uniform, seed, f"{stream}/hadamard")
        one = length <= 128 if self.one_radius is None else self.one_radius
        radius = _radius(spread[:, :1])
        return spread[:, 1:], (radius[block] if one and count else radius) * signs


@dataclass(frozen=True)
class OrthogonalDraws(Design):
    """Gaussian directions in blocks of min(d, 256), orthogonal within a block; lengths from the χ distribution of Gaussian ones."""

    name = "orthogonal"

    def draw(
        self, count: int, uniform: int, normal: int, seed: int, stream: str
    ) -> tuple[np.ndarray, np.ndarray]:
        size = max(1, min(normal, 256))
        blocks = [np.empty((0, normal))]
        for b in range(-(-count // size) if normal else 0):
            rng = streams.generator(seed, f"{stream}/orthogonal {b}")
            Q, R = np.linalg.qr(rng.standard_normal((normal, size)))
            turned = (Q * np.sign(np.diag(R))).T  # without the signs Q is not uniformly distributed
            blocks.append(turned * np.sqrt(rng.chisquare(normal, (size, 1))))
        flat = _spread(count, uniform, seed, f"{stream}/orthogonal")
        return flat, np.concatenate(blocks)[:count] if normal else np.empty((count, 0))


def _spread(count: int, width: int, seed: int, stream: str) -> np.ndarray:
    """A Halton sequence in (0, 1)^width, shifted at random."""
    shift = streams.generator(seed, f"{stream}/spread").random(width)
    points = (
        scipy.stats.qmc.Halton(width, scramble=False).random(count)
        if count and width
        else np.empty((count, width))
    )
    return np.clip((points + shift) % 1.0, 2.0**-40, 1 - 2.0**-40)


def _radius(unit: np.ndarray) -> np.ndarray:
    """Quantiles of |N(0, 1)|."""
    return scipy.special.ndtri(0.5 * (1 + unit))


DESIGNS: dict[str, Design] = {
    design.name: design
    for design in (
        IndependentDraws(),
        SobolDraws(),
        RandomSigns(),
        HadamardSigns(),
        OrthogonalDraws(),
    )
}


def design(directions: str | Design | None) -> Design:
    """A design by name, or the user's own."""
    if isinstance(directions, Design):
        if not isinstance(getattr(directions, "name", None), str):
            raise InputError(
                f'`directions` must be a Design with a `name`; {type(directions).__name__} has none. Write name = "..." in the class.'
            )
        return directions
    return DESIGNS[choice("directions", "gaussian" if directions is None else directions, DESIGNS)]


def draws(
    design: Design, count: int, uniform: int, normal: int, seed: int, stream: str
) -> tuple[np.ndarray, np.ndarray]:
    """What a design drew, checked: designs may be the user's own."""
    flat, bell = (
        np.asarray(a, np.float64) for a in design.draw(count, uniform, normal, seed, stream)
    )
    if (flat.shape, bell.shape) != ((count, uniform), (count, normal)) or not (
        np.all(np.isfinite(flat)) and np.all(np.isfinite(bell))
    ):
        raise InputError(
            f"`{design.name}.draw` must return finite arrays of shape ({count}, {uniform}) and ({count}, {normal}); "
            f"got shapes {flat.shape} and {bell.shape}."
        )
    return flat, bell
