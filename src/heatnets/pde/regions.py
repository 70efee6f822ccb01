"""Regions of R^d in which the solution is computed: boxes, single points, normal distributions."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

import numpy as np

from heatnets._core.errors import InputError, short_repr


class Region(abc.ABC):
    """A set of points in R^d from which random points can be drawn; the base class of regions."""

    @abc.abstractmethod
    def check(self, dim: int, name: str) -> None:
        """Raise `InputError` if the region does not fit the dimension.

        Args:
            dim: the number of coordinates.
            name: the argument that holds the region, for the message.
        """

    def __repr__(self) -> str:
        values = ", ".join(_format(value) for value in vars(self).values())
        return f"{type(self).__name__}({values})"

    single: bool = False  # a single point: errors are estimated at the end of the time interval

    @property
    def positive(self) -> bool:
        """Whether all points of the region have positive coordinates."""
        return False

    def at(
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
        low, high = _check_numbers("Box", "low", self.low), _check_numbers("Box", "high", self.high)
        if low.ndim and high.ndim and low.shape != high.shape:
            raise InputError(f"`Box` needs bounds of one length; got {low.shape} and {high.shape}.")
        if not np.all(low < high):
            raise InputError(
                f"`Box` needs low < high in every coordinate; got low {short_repr(self.low)}, high "
                f"{short_repr(self.high)}."
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def check(self, dim: int, name: str) -> None:
        for bound in (self.low, self.high):
            _check_dimension("Box", bound, dim, name)

    @property
    def centre(self) -> np.ndarray:
        return 0.5 * (self.low + self.high)

    @property
    def positive(self) -> bool:
        return bool(np.all(self.low > 0))

    def contains(self, x: np.ndarray) -> np.ndarray:
        slack = 1e-9 * (self.high - self.low)
        return np.all((x >= self.low - slack) & (x <= self.high + slack), axis=1)

    def sample(self, rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
        return self.low + (self.high - self.low) * rng.random((count, dim))


@dataclass(frozen=True, eq=False, repr=False)
class Point(Region):
    """A single point.

    Args:
        x: the point, shape (dim,).
    """

    x: Any
    single = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", _check_numbers("Point", "x", self.x))
        if self.x.ndim != 1:
            raise InputError(
                f"`Point` needs x of shape (dim,); got shape {self.x.shape}. For dim = 1 write "
                "hn.Point([0.0])."
            )

    def check(self, dim: int, name: str) -> None:
        _check_dimension("Point", self.x, dim, name)

    @property
    def centre(self) -> np.ndarray:
        return self.x

    @property
    def positive(self) -> bool:
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
        object.__setattr__(self, "mean", _check_numbers("Normal", "mean", self.mean))
        object.__setattr__(self, "std", _check_numbers("Normal", "std", self.std))
        if not np.all(self.std > 0):
            raise InputError(
                f"`Normal` needs std > 0 in every coordinate; got {short_repr(self.std)}. For a "
                "single point use hn.Point."
            )

    def check(self, dim: int, name: str) -> None:
        for value in (self.mean, self.std):
            _check_dimension("Normal", value, dim, name)

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
        return self.mean + self.std * rng.standard_normal((count, dim))


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


def _check_dimension(region: str, value: np.ndarray, dim: int, name: str) -> None:
    """Raise `InputError` if a parameter of a region does not have `dim` entries."""
    if value.ndim == 1 and value.shape != (dim,):
        raise InputError(
            f"`{name}` must be a region of R^{dim}; this {region} has {value.shape[0]} "
            "coordinates. "
            f"Give {dim} coordinates" + ("." if region == "Point" else ", or one number for all.")
        )


def _format(value: np.ndarray) -> str:
    """Text for a number or a vector, with at most three entries."""
    if value.ndim == 0:
        return f"{value:g}"
    return f"[{', '.join(f'{v:g}' for v in value[:3])}{', ...' if len(value) > 3 else ''}]"
