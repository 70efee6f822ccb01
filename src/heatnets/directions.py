"""Direction designs: where the frozen draws of the features come from.

A design is a sequence: its first M entries never change when more are drawn. To add one, write a class with `draw`
and name it in `DESIGNS`.
"""

from __future__ import annotations

import abc
import warnings
from dataclasses import dataclass

import numpy as np
import scipy.special
import scipy.stats.qmc

from heatnets import streams
from heatnets.errors import InputError, choice


class Design(abc.ABC):
    """A sequence of draws, each with some coordinates uniform on (0, 1) and some standard normal."""

    name: str

    def check(self, width: int) -> None:
        """Refuse, before any work, a number of coordinates that the design does not reach."""
        return

    @abc.abstractmethod
    def draw(self, count: int, uniform: int, normal: int, seed: int, stream: str) -> tuple[np.ndarray, np.ndarray]:
        """Arrays of shape (count, uniform) in (0, 1) and (count, normal) from N(0, I)."""


@dataclass(frozen=True)
class IndependentDraws(Design):
    """Independent draws."""

    name = "gaussian"

    def draw(self, count: int, uniform: int, normal: int, seed: int, stream: str) -> tuple[np.ndarray, np.ndarray]:
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

    def draw(self, count: int, uniform: int, normal: int, seed: int, stream: str) -> tuple[np.ndarray, np.ndarray]:
        width = uniform + normal
        self.check(width)
        if count == 0 or width == 0:
            return np.empty((count, uniform)), np.empty((count, normal))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # scipy asks for powers of two; a sequence has no such wish
            points = scipy.stats.qmc.Sobol(width, scramble=True, rng=streams.generator(seed, stream)).random(count)
        points = np.clip(points, 2.0**-31, 1 - 2.0**-31)  # 30-bit points: half a cell away from 0 and 1
        return points[:, :uniform], scipy.special.ndtri(points[:, uniform:])


DESIGNS: dict[str, Design] = {design.name: design for design in (IndependentDraws(), SobolDraws())}


def design(directions: str | Design | None) -> Design:
    """A design by name, or the user's own."""
    if isinstance(directions, Design):
        if not isinstance(getattr(directions, "name", None), str):
            raise InputError(
                f'`directions` must be a Design with a `name`; {type(directions).__name__} has none. Write name = "..." in the class.'
            )
        return directions
    return DESIGNS[choice("directions", "gaussian" if directions is None else directions, DESIGNS)]


def draws(design: Design, count: int, uniform: int, normal: int, seed: int, stream: str) -> tuple[np.ndarray, np.ndarray]:
    """What a design drew, checked: designs may be the user's own."""
    flat, bell = (np.asarray(a, np.float64) for a in design.draw(count, uniform, normal, seed, stream))
    if (flat.shape, bell.shape) != ((count, uniform), (count, normal)) or not (
        np.all(np.isfinite(flat)) and np.all(np.isfinite(bell))
    ):
        raise InputError(
            f"`{design.name}.draw` must return finite arrays of shape ({count}, {uniform}) and ({count}, {normal}); "
            f"got shapes {flat.shape} and {bell.shape}."
        )
    return flat, bell
