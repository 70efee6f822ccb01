"""Exact changes of variables that leave `v_s = div(A ∇v) + F` of a problem: the user's time, drift, reaction, logarithms, reversion to a mean.

    u(t, x) = a(t) v(s(t), y(t, x))

Coordinates that move with the drift, values that carry the reaction's factor: what is left to solve has neither. A new change is one class here.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets.pde.function import Function
from heatnets.pde.regions import Region


def _maths(value: Any) -> Any:
    return jnp if isinstance(value, jax.Array) else np


class Transform(eqx.Module):
    """One change of variables, elementwise in x: from (t, x) to (clock(t), place(t, x)), values divided by `amplitude`. Arrays (n,) and (n, dim), or one point."""

    def time(self, t: Any) -> Any:
        """The new time."""
        return t

    def inverse_time(self, s: Any) -> Any:
        return s

    def rate(self, t: Any) -> Any:
        """|ds/dt|."""
        return _maths(t).ones_like(t)

    def place(self, t: Any, x: Any) -> Any:
        """The new coordinates."""
        return x

    def unplace(self, t: Any, y: Any) -> Any:
        return y

    def slope(self, t: Any, x: Any) -> Any:
        """∂y_i/∂x_i, of x's shape or for all coordinates alike."""
        return _maths(t).ones_like(t)[..., None]

    def bend(self, t: Any, x: Any) -> Any:
        """∂²y_i/∂x_i²."""
        return 0.0

    def size(self, t: Any, x: Any) -> Any:
        """How large the numbers are that y is summed from: its rounding goes with them."""
        return np.abs(x)

    def value_scale(self, t: Any) -> Any:
        """a(t)."""
        return _maths(t).ones_like(t)

    @property
    def stretch(self) -> Any:
        """A function of t: ∂y_i/∂x_i where it is the same for all coordinates and places; None where it is not."""
        return lambda t: self.slope(t, None)[..., 0]


class TimeReversal(Transform):
    """Time to maturity: s = T - t."""

    horizon: float

    def time(self, t: Any) -> Any:
        return self.horizon - t

    def inverse_time(self, s: Any) -> Any:
        return self.horizon - s


class ExponentialFactor(Transform):
    """The reaction c u: values carry e^{ct}."""

    rate_of_growth: Any

    def value_scale(self, t: Any) -> Any:
        return _maths(t).exp(self.rate_of_growth * t)


class DriftShift(Transform):
    """The drift b·∇u: y = x + b t."""

    drift: Any

    def place(self, t: Any, x: Any) -> Any:
        return x + self.drift * t[..., None]

    def unplace(self, t: Any, y: Any) -> Any:
        return y - self.drift * t[..., None]

    def size(self, t: Any, x: Any) -> Any:
        return np.abs(x) + np.abs(self.drift * t[..., None])


class LogTransform(Transform):
    """y = log x, for positive coordinates."""

    def place(self, t: Any, x: Any) -> Any:
        return _maths(x).log(x)

    def unplace(self, t: Any, y: Any) -> Any:
        return _maths(y).exp(y)

    def slope(self, t: Any, x: Any) -> Any:
        return 1 / x

    def bend(self, t: Any, x: Any) -> Any:
        return -1 / x**2

    def size(self, t: Any, x: Any) -> Any:
        return 1 + np.abs(np.log(x))

    @property
    def stretch(self) -> None:
        return None


class OUTransform(Transform):
    """The drift θ(m - x)·∇u: y = m + e^{-θt}(x - m), and the clock s = (1 - e^{-2θt})/(2θ) at which paths scatter."""

    theta: float
    mean: Any

    def time(self, t: Any) -> Any:
        return -_maths(t).expm1(-2 * self.theta * t) / (2 * self.theta)

    def inverse_time(self, s: Any) -> Any:
        return -_maths(s).log1p(-2 * self.theta * s) / (2 * self.theta)

    def rate(self, t: Any) -> Any:
        return _maths(t).exp(-2 * self.theta * t)

    def place(self, t: Any, x: Any) -> Any:
        return self.mean + self.slope(t, x) * (x - self.mean)

    def unplace(self, t: Any, y: Any) -> Any:
        return self.mean + (y - self.mean) / self.slope(t, y)

    def slope(self, t: Any, x: Any) -> Any:
        return _maths(t).exp(-self.theta * t)[..., None]

    def size(self, t: Any, x: Any) -> Any:
        return (
            np.abs(self.mean)
            + self.slope(t, x)
            * (np.abs(x) + np.abs(self.mean))
            * (1 + np.abs(self.theta * t))[..., None]
        )


class TransformChain(eqx.Module):
    """Changes one after the other: from the user's (t, x) to the plain (s, y) and back."""

    changes: tuple[Transform, ...] = ()

    def to_canonical(self, t: Any, x: Any) -> tuple[Any, Any]:
        for change in self.changes:
            t, x = change.time(t), change.place(t, x)
        return t, x

    def from_canonical(self, s: Any, y: Any) -> tuple[Any, Any]:
        for change in reversed(self.changes):
            s = change.inverse_time(s)
            y = change.unplace(s, y)
        return s, y

    def time(self, t: Any) -> Any:
        """The plain time of one of the user's."""
        for change in self.changes:
            t = change.time(t)
        return t

    def inverse_time(self, s: Any) -> Any:
        """The user's time of a plain one."""
        for change in reversed(self.changes):
            s = change.inverse_time(s)
        return s

    def _times(self, t: Any) -> list[Any]:
        """The time each change sees."""
        found = []
        for change in self.changes:
            found.append(t)
            t = change.time(t)
        return found

    def value_scale(self, t: Any) -> Any:
        total = _maths(t).ones_like(t)
        for change, own in zip(self.changes, self._times(t), strict=True):
            total = total * change.value_scale(own)
        return total

    def rate(self, t: Any) -> Any:
        total = _maths(t).ones_like(t)
        for change, own in zip(self.changes, self._times(t), strict=True):
            total = total * change.rate(own)
        return total

    def slope(self, t: Any, x: Any) -> Any:
        """∂y_i/∂x_i, shape (n, dim) or (n, 1)."""
        total = _maths(t).ones_like(t)[..., None]
        for change in self.changes:
            total = total * change.slope(t, x)
            t, x = change.time(t), change.place(t, x)
        return total

    def rounding_scale(self, t: Any, x: Any) -> Any:
        """The size of y's rounding, in units of eps."""
        total = np.abs(x)
        for change in self.changes:
            total = change.slope(t, x) * total + change.size(t, x)
            t, x = change.time(t), change.place(t, x)
        return total

    def curve(self, t: Any, x: Any, direction: Any) -> tuple[Any, Any]:
        """First and second derivative of y(t, x + ε direction) at ε = 0."""
        first, second = direction, 0.0 * direction
        for change in self.changes:
            slope = change.slope(t, x)
            first, second = slope * first, slope * second + change.bend(t, x) * first**2
            t, x = change.time(t), change.place(t, x)
        return first, second

    def stretch(self, t: Any) -> Any:
        """∂y_i/∂x_i at t where it is the same for all coordinates and places; None where it is not."""
        total = _maths(t).ones_like(t)
        for change, own in zip(self.changes, self._times(t), strict=True):
            if change.stretch is None:
                return None
            total = total * change.stretch(own)
        return total


class _Start(eqx.Module):
    """y ↦ u0(x) at the start."""

    function: Any
    transform: TransformChain
    power: int = eqx.field(static=True)

    def __call__(self, y: Float[Array, "dim"]) -> Float[Array, ""]:
        t, x = self.transform.from_canonical(jnp.zeros(()), y)
        return self.function(x) / (self.transform.stretch(t) ** self.power if self.power else 1.0)


class _Force(eqx.Module):
    """(s, y) ↦ F(t, x) / (a ds/dt), what drives v."""

    function: Any
    transform: TransformChain
    power: int = eqx.field(static=True)

    def __call__(self, s: Float[Array, ""], y: Float[Array, "dim"]) -> Float[Array, ""]:
        t, x = self.transform.from_canonical(jnp.asarray(s), y)
        share = self.transform.value_scale(t) * self.transform.rate(t)
        return self.function(t, x) / (
            share * self.transform.stretch(t) ** self.power if self.power else share
        )


def seen(function: Function, transform: TransformChain, kind: type, arguments: str) -> Function:
    """A function of the user's in plain coordinates, with its Laplacian where that is given and coordinates are stretched alike."""
    known = function.laplacian is not None and transform.stretch(np.zeros(())) is not None
    return Function(
        kind(function, transform, 0),
        kind(function.laplacian, transform, 2) if known else None,
        arguments,
    )


def start(function: Function, transform: TransformChain) -> Function:
    return seen(function, transform, _Start, "x")


def force(function: Function, transform: TransformChain) -> Function:
    return seen(function, transform, _Force, "t x")


class TransformedRegion(Region):
    """A region of the user's, in plain coordinates: drawn where the user sees it, then moved."""

    def __init__(
        self, region: Region, transform: TransformChain, horizon: float, is_terminal: bool
    ) -> None:
        self.region, self.transform, self.horizon, self.is_terminal = (
            region,
            transform,
            horizon,
            is_terminal,
        )
        self.single = region.single

    def __repr__(self) -> str:
        return repr(self.region)

    def check(self, dim: int, name: str) -> None:
        self.region.check(dim, name)

    @property
    def centre(self) -> np.ndarray:
        return self.region.centre

    def sample(self, rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
        return self.region.sample(rng, count, dim)

    def at(
        self, fraction: np.ndarray, horizon: float, x: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        gone = self.horizon * np.asarray(fraction)
        return self.transform.to_canonical(self.horizon - gone if self.is_terminal else gone, x)
