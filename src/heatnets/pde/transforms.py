"""Exact changes of variables to canonical coordinates, where the equation is v_s = div(A ∇v) + F.

    u(t, x) = a(t) v(s(t), y(t, x))

They remove time reversal, constant drift and reaction, and the drifts of geometric Brownian motion
and of the Ornstein-Uhlenbeck process. A new transform is a new subclass of `Transform`.
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


def _array_module(value: Any) -> Any:
    """jax.numpy for JAX arrays (and tracers), else numpy."""
    return jnp if isinstance(value, jax.Array) else np


class Transform(eqx.Module):
    """A change of variables: s = time(t), y = place(t, x), v = u / value_scale(t).

    Each coordinate of y depends only on t and on the same coordinate of x. Times have shape (n,)
    and points (n, dim); or () and (dim,) for one point.
    """

    def time(self, t: Any) -> Any:
        """The new time s(t)."""
        return t

    def inverse_time(self, s: Any) -> Any:
        """The old time t(s)."""
        return s

    def rate(self, t: Any) -> Any:
        """|ds/dt| at t."""
        return _array_module(t).ones_like(t)

    def map(self, t: Any, x: Any) -> Any:
        """The new coordinates y(t, x)."""
        return x

    def inverse_map(self, t: Any, y: Any) -> Any:
        """The old coordinates x(t, y)."""
        return y

    def slope(self, t: Any, x: Any) -> Any:
        """∂y_i/∂x_i, of shape (n, dim), or (n, 1) if it is the same for all coordinates."""
        return _array_module(t).ones_like(t)[..., None]

    def bend(self, t: Any, x: Any) -> Any:
        """∂²y_i/∂x_i²."""
        return 0.0

    def size(self, t: Any, x: Any) -> Any:
        """Size of the terms of which y is the sum: the rounding error of y is eps times this."""
        return np.abs(x)

    def value_scale(self, t: Any) -> Any:
        """a(t) in u = a(t) v."""
        return _array_module(t).ones_like(t)

    @property
    def stretch(self) -> Any:
        """∂y_i/∂x_i as a function of t, if it does not depend on i and x; else None."""
        return lambda t: self.slope(t, None)[..., 0]


class TimeReversal(Transform):
    """s = T - t, the time to maturity."""

    horizon: float

    def time(self, t: Any) -> Any:
        return self.horizon - t

    def inverse_time(self, s: Any) -> Any:
        return self.horizon - s


class ExponentialFactor(Transform):
    """Removes the reaction c u: u = e^{ct} v."""

    rate_of_growth: Any

    def value_scale(self, t: Any) -> Any:
        return _array_module(t).exp(self.rate_of_growth * t)


class DriftShift(Transform):
    """Removes the drift b·∇u: y = x + b t."""

    drift: Any

    def map(self, t: Any, x: Any) -> Any:
        return x + self.drift * t[..., None]

    def inverse_map(self, t: Any, y: Any) -> Any:
        return y - self.drift * t[..., None]

    def size(self, t: Any, x: Any) -> Any:
        return np.abs(x) + np.abs(self.drift * t[..., None])


class LogTransform(Transform):
    """y = log x, for positive coordinates."""

    def map(self, t: Any, x: Any) -> Any:
        return _array_module(x).log(x)

    def inverse_map(self, t: Any, y: Any) -> Any:
        return _array_module(y).exp(y)

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
    """Removes the drift θ(m - x)·∇u.

    y = m + e^{-θt}(x - m); the new time s = (1 - e^{-2θt})/(2θ) keeps the diffusion A constant.
    """

    theta: float
    mean: Any

    def time(self, t: Any) -> Any:
        return -_array_module(t).expm1(-2 * self.theta * t) / (2 * self.theta)

    def inverse_time(self, s: Any) -> Any:
        return -_array_module(s).log1p(-2 * self.theta * s) / (2 * self.theta)

    def rate(self, t: Any) -> Any:
        return _array_module(t).exp(-2 * self.theta * t)

    def map(self, t: Any, x: Any) -> Any:
        return self.mean + self.slope(t, x) * (x - self.mean)

    def inverse_map(self, t: Any, y: Any) -> Any:
        return self.mean + (y - self.mean) / self.slope(t, y)

    def slope(self, t: Any, x: Any) -> Any:
        return _array_module(t).exp(-self.theta * t)[..., None]

    def size(self, t: Any, x: Any) -> Any:
        exponent_rounding = (1 + np.abs(self.theta * t))[..., None]
        distance = np.abs(x) + np.abs(self.mean)
        return np.abs(self.mean) + self.slope(t, x) * distance * exponent_rounding


class TransformChain(eqx.Module):
    """Composition of transforms: from the user's (t, x) to canonical coordinates (s, y)."""

    changes: tuple[Transform, ...] = ()

    def to_canonical(self, t: Any, x: Any) -> tuple[Any, Any]:
        """(s, y) for the user's (t, x)."""
        for change in self.changes:
            t, x = change.time(t), change.map(t, x)
        return t, x

    def from_canonical(self, s: Any, y: Any) -> tuple[Any, Any]:
        """The user's (t, x) for (s, y)."""
        for change in reversed(self.changes):
            s = change.inverse_time(s)
            y = change.inverse_map(s, y)
        return s, y

    def time(self, t: Any) -> Any:
        """The canonical time s(t)."""
        for change in self.changes:
            t = change.time(t)
        return t

    def inverse_time(self, s: Any) -> Any:
        """The user's time t(s)."""
        for change in reversed(self.changes):
            s = change.inverse_time(s)
        return s

    def _times(self, t: Any) -> list[Any]:
        """For each transform, its input time."""
        times = []
        for change in self.changes:
            times.append(t)
            t = change.time(t)
        return times

    def value_scale(self, t: Any) -> Any:
        """a(t) in u = a(t) v."""
        total = _array_module(t).ones_like(t)
        for change, time in zip(self.changes, self._times(t), strict=True):
            total = total * change.value_scale(time)
        return total

    def rate(self, t: Any) -> Any:
        """|ds/dt| at t."""
        total = _array_module(t).ones_like(t)
        for change, time in zip(self.changes, self._times(t), strict=True):
            total = total * change.rate(time)
        return total

    def slope(self, t: Any, x: Any) -> Any:
        """∂y_i/∂x_i, of shape (n, dim) or (n, 1)."""
        total = _array_module(t).ones_like(t)[..., None]
        for change in self.changes:
            total = total * change.slope(t, x)
            t, x = change.time(t), change.map(t, x)
        return total

    def rounding_scale(self, t: Any, x: Any) -> Any:
        """Rounding error of y in units of eps, of shape (n, dim)."""
        total = np.abs(x)
        for change in self.changes:
            total = change.slope(t, x) * total + change.size(t, x)
            t, x = change.time(t), change.map(t, x)
        return total

    def curve(self, t: Any, x: Any, direction: Any) -> tuple[Any, Any]:
        """First and second derivative in ε of y(t, x + ε direction) at ε = 0, of x's shape."""
        first, second = direction, 0.0 * direction
        for change in self.changes:
            slope = change.slope(t, x)
            first, second = slope * first, slope * second + change.bend(t, x) * first**2
            t, x = change.time(t), change.map(t, x)
        return first, second

    def stretch(self, t: Any) -> Any:
        """∂y_i/∂x_i at t, if it does not depend on i and x; else None."""
        total = _array_module(t).ones_like(t)
        for change, time in zip(self.changes, self._times(t), strict=True):
            if change.stretch is None:
                return None
            total = total * change.stretch(time)
        return total


class _CanonicalInitial(eqx.Module):
    """y ↦ f(x) / stretch^power at s = 0; power 0 for u0 itself, 2 for its Laplacian."""

    function: Any
    transform: TransformChain
    power: int = eqx.field(static=True)

    def __call__(self, y: Float[Array, " dim"]) -> Float[Array, ""]:
        t, x = self.transform.from_canonical(jnp.zeros(()), y)
        return self.function(x) / (self.transform.stretch(t) ** self.power if self.power else 1.0)


class _CanonicalSource(eqx.Module):
    """(s, y) ↦ f(t, x) / (a |ds/dt| stretch^power); power 0 for F itself, 2 for its Laplacian."""

    function: Any
    transform: TransformChain
    power: int = eqx.field(static=True)

    def __call__(self, s: Float[Array, ""], y: Float[Array, " dim"]) -> Float[Array, ""]:
        t, x = self.transform.from_canonical(jnp.asarray(s), y)
        divisor = self.transform.value_scale(t) * self.transform.rate(t)
        value = self.function(t, x)
        if self.power:
            divisor = divisor * self.transform.stretch(t) ** self.power
        return value / divisor


def _in_canonical_coordinates(
    function: Function, transform: TransformChain, kind: type, arguments: str
) -> Function:
    """A user's function in canonical coordinates.

    It has a closed-form Laplacian if the user gave one and all coordinates are scaled equally.
    """
    known = function.laplacian is not None and transform.stretch(np.zeros(())) is not None
    laplacian = kind(function.laplacian, transform, 2) if known else None
    return Function(kind(function, transform, 0), laplacian, arguments)


def canonical_initial(function: Function, transform: TransformChain) -> Function:
    """The initial condition v0(y) for the user's u0(x) or g(x)."""
    return _in_canonical_coordinates(function, transform, _CanonicalInitial, "x")


def canonical_source(function: Function, transform: TransformChain) -> Function:
    """The source (s, y) ↦ F(t, x) / (a |ds/dt|) for the user's F(t, x)."""
    return _in_canonical_coordinates(function, transform, _CanonicalSource, "t x")


class TransformedRegion(Region):
    """A user's region for the canonical problem.

    `sample` and `centre` are in the user's coordinates; `at` transforms points to canonical ones.
    """

    def __init__(
        self, region: Region, transform: TransformChain, horizon: float, is_terminal: bool
    ) -> None:
        self.region, self.transform = region, transform
        self.horizon, self.is_terminal = horizon, is_terminal
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
        elapsed = self.horizon * np.asarray(fraction)
        t = self.horizon - elapsed if self.is_terminal else elapsed
        return self.transform.to_canonical(t, x)
