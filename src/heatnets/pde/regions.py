"""Where the answer is wanted: boxes, single points, normal clouds."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

import numpy as np

from heatnets._core.errors import InputError, short_repr


class Region(abc.ABC):
    """A part of R^d that points can be drawn from."""

    @abc.abstractmethod
    def check(self, dim: int, name: str) -> None:
        """Refuse a region that does not fit `dim`; `name` is the argument it came in."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(_short(value) for value in vars(self).values())})"

    single: bool = False  # one point, judged at the end of the time interval

    @property
    def positive(self) -> bool:
        """Whether all its points have positive coordinates."""
        return False

    def at(
        self, fraction: np.ndarray, horizon: float, x: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Times and places of points x of the region when a fraction of the time has passed."""
        return horizon * fraction, x

    def contains(self, x: np.ndarray) -> np.ndarray:
        """Which of the points x (n, dim) it covers; values elsewhere are extrapolated. All of them, for a region that does not say."""
        return np.ones(len(x), bool)

    @property
    @abc.abstractmethod
    def centre(self) -> np.ndarray:
        """Its middle, shape () or (dim,)."""

    @abc.abstractmethod
    def sample(self, rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
        """`count` points as rows, shape (count, dim)."""


@dataclass(frozen=True, eq=False, repr=False)
class Box(Region):
    """The box low <= x <= high; each bound one number for all coordinates, or one per coordinate."""

    low: Any
    high: Any

    def __post_init__(self) -> None:
        low, high = _numbers("Box", "low", self.low), _numbers("Box", "high", self.high)
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
            _fits("Box", bound, dim, name)

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
    """The single point x."""

    x: Any
    single = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", _numbers("Point", "x", self.x))
        if self.x.ndim != 1:
            raise InputError(
                f"`Point` needs x of shape (dim,); got shape {self.x.shape}. For dim = 1 write "
                "hn.Point([0.0])."
            )

    def check(self, dim: int, name: str) -> None:
        _fits("Point", self.x, dim, name)

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
    """A normal cloud with independent coordinates: mean and std one number for all, or one per coordinate."""

    mean: Any = 0.0
    std: Any = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", _numbers("Normal", "mean", self.mean))
        object.__setattr__(self, "std", _numbers("Normal", "std", self.std))
        if not np.all(self.std > 0):
            raise InputError(
                f"`Normal` needs std > 0 in every coordinate; got {short_repr(self.std)}. For a "
                "single point use hn.Point."
            )

    def check(self, dim: int, name: str) -> None:
        for value in (self.mean, self.std):
            _fits("Normal", value, dim, name)

    @property
    def centre(self) -> np.ndarray:
        return self.mean

    def contains(self, x: np.ndarray) -> np.ndarray:
        """Up to three standard deviations of a cloud's own distances from its mean."""
        dim = x.shape[1]
        return np.sum(((x - self.mean) / self.std) ** 2, axis=1) <= dim + 3 * np.sqrt(2 * dim) + 3

    def sample(self, rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
        return self.mean + self.std * rng.standard_normal((count, dim))


def _numbers(region: str, name: str, value: Any) -> np.ndarray:
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


def _fits(region: str, value: np.ndarray, dim: int, name: str) -> None:
    if value.ndim == 1 and value.shape != (dim,):
        raise InputError(
            f"`{name}` must be a region of R^{dim}; this {region} has {value.shape[0]} "
            "coordinates. "
            f"Give {dim} coordinates" + ("." if region == "Point" else ", or one number for all.")
        )


def _short(value: np.ndarray) -> str:
    if value.ndim == 0:
        return f"{value:g}"
    return f"[{', '.join(f'{v:g}' for v in value[:3])}{', ...' if len(value) > 3 else ''}]"
