"""Regions of R^d in which the solution is computed: boxes, single points, normal distributions."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

import numpy as np

from heatnets._core import streams
from heatnets._core.errors import InputError, short_repr


class Region(abc.ABC):
    """A set of points in R^d from which random points can be drawn; the base class of regions."""

    def _convert_parameters(self) -> None:
        """Convert the parameters to float64 arrays of shape () or (dim,)."""
        for name, value in vars(self).items():
            object.__setattr__(self, name, _check_numbers(type(self).__name__, name, value))

    def check(self, dim: int, name: str) -> None:
        """Raise `InputError` if the region does not fit the dimension.

        Args:
            dim: the number of coordinates.
            name: the argument that holds the region, for the message.
        """
        for value in vars(self).values():
            if np.ndim(value) == 1 and len(value) != dim:
                raise InputError(
                    f"`{name}` must be a region of R^{dim}; this {type(self).__name__} has "
                    f"{len(value)} coordinates. Give {dim} coordinates"
                    f"{'' if self.is_point else ', or one number for all'}."
                )

    def __repr__(self) -> str:
        values = ", ".join(_format(value) for value in vars(self).values())
        return f"{type(self).__name__}({values})"

    is_point: bool = False  # a single point: errors are estimated at the end of the time interval

    @property
    def is_positive(self) -> bool:
        """Whether all points of the region have positive coordinates."""
        return False

    def at_fractions(
        self, fraction: np.ndarray, horizon: float, x: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Canonical times and points for points x of the region, at a fraction of the horizon.

        Args:
            fraction: elapsed fraction of the time interval, between 0 and 1, shape (n,).
            horizon: the canonical horizon.
            x: points of the region, shape (n, dim).
        """
        return horizon * fraction, x

    def contains(self, x: np.ndarray) -> np.ndarray:
        """Which of the points x (n, dim) are in the region, shape (n,); others are extrapolated.

        The default is all of them.
        """
        return np.ones(len(x), bool)

    @property
    @abc.abstractmethod
    def centre(self) -> np.ndarray:
        """The centre of the region, shape () or (dim,)."""

    @abc.abstractmethod
    def sample(self, rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
        """Draw random points of the region.

        Args:
            rng: the random number generator.
            count: the number of points.
            dim: the number of coordinates.

        Returns:
            The points as rows, shape (count, dim).
        """


@dataclass(frozen=True, eq=False, repr=False)
class Box(Region):
    """The box low <= x <= high.

    Args:
        low: lower bound, one number for all coordinates or one per coordinate.
        high: upper bound, one number for all coordinates or one per coordinate.
    """

    low: Any
    high: Any

    def __post_init__(self) -> None:
        self._convert_parameters()
        low, high = self.low, self.high
        if low.ndim and high.ndim and low.shape != high.shape:
            raise InputError(f"`Box` needs bounds of one length; got {low.shape} and {high.shape}.")
        if not np.all(low < high):
            raise InputError(
                f"`Box` needs low < high in every coordinate; got low {_format(low)}, high "
                f"{_format(high)}."
            )

    @property
    def centre(self) -> np.ndarray:
        return 0.5 * (self.low + self.high)

    @property
    def is_positive(self) -> bool:
        return bool(np.all(self.low > 0))

    def contains(self, x: np.ndarray) -> np.ndarray:
        slack = 1e-9 * (self.high - self.low)
        return np.all((x >= self.low - slack) & (x <= self.high + slack), axis=1)

    def sample(self, rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
        return self.low + (self.high - self.low) * streams.uniform(rng, (count, dim))


@dataclass(frozen=True, eq=False, repr=False)
class Point(Region):
    """A single point.

    Args:
        x: the point, shape (dim,).
    """

    x: Any
    is_point = True

    def __post_init__(self) -> None:
        self._convert_parameters()
        if self.x.ndim != 1:
            raise InputError(
                f"`Point` needs x of shape (dim,); got shape {self.x.shape}. For dim = 1 write "
                "hn.Point([0.0])."
            )

    @property
    def centre(self) -> np.ndarray:
        return self.x

    @property
    def is_positive(self) -> bool:
        return bool(np.all(self.x > 0))

    def contains(self, x: np.ndarray) -> np.ndarray:
        return np.all(np.isclose(x, self.x, rtol=1e-9, atol=1e-9), axis=1)

    def sample(self, rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
        return np.tile(self.x, (count, 1))


@dataclass(frozen=True, eq=False, repr=False)
class Normal(Region):
    """A normal distribution of points with independent coordinates.

    Args:
        mean: one number for all coordinates or one per coordinate.
        std: standard deviation, one number for all coordinates or one per coordinate.
    """

    mean: Any = 0.0
    std: Any = 1.0

    def __post_init__(self) -> None:
        self._convert_parameters()
        if not np.all(self.std > 0):
            raise InputError(
                f"`Normal` needs std > 0 in every coordinate; got {_format(self.std)}. For a "
                "single point use hn.Point."
            )

    @property
    def centre(self) -> np.ndarray:
        return self.mean

    def contains(self, x: np.ndarray) -> np.ndarray:
        """Whether |(x - mean)/std|² is at most dim + 3 √(2 dim) + 3.

        Under the normal distribution its mean is dim and its standard deviation is √(2 dim).
        """
        dim = x.shape[1]
        return np.sum(((x - self.mean) / self.std) ** 2, axis=1) <= dim + 3 * np.sqrt(2 * dim) + 3

    def sample(self, rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
        return self.mean + self.std * streams.normal(rng, (count, dim))


def _check_numbers(region: str, name: str, value: Any) -> np.ndarray:
    """A parameter of a region as a float64 array of shape () or (dim,)."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.asarray(np.nan)
    if array.ndim > 1 or array.size == 0 or not np.all(np.isfinite(array)):
        raise InputError(
            f"`{region}` needs a finite number or one per coordinate for {name}; got "
            f"{short_repr(value)}."
        )
    return array


def _format(value: np.ndarray) -> str:
    """Text for a number or a vector, with at most three entries."""
    if value.ndim == 0:
        return f"{value:g}"
    return f"[{', '.join(f'{v:g}' for v in value[:3])}{', ...' if len(value) > 3 else ''}]"
