"""Exact changes of variables to canonical coordinates, where the equation is v_s = div(A ∇v) + F.

    u(t, x) = a(t) v(s(t), y(t, x))

They remove time reversal, constant drift and reaction, and the drifts of geometric Brownian motion
and of the Ornstein-Uhlenbeck process. A new transform is a new subclass of `Transform`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

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


def _ones(t: Any) -> Any:
    """1 for each of the times t."""
    return _array_module(t).ones_like(t)


def _as_array(value: Any) -> np.ndarray:
    """A number as an array, which a compiled program takes as an argument.

    So problems that differ by this number share their programs.
    """
    return np.asarray(value, np.float64)


class Transform(eqx.Module):
    """A change of variables: s = time(t), y = map(t, x), v = u / value_scale(t).

    Each coordinate of y depends only on t and on the same coordinate of x. Times have shape (n,)
    and points (n, dim); or () and (dim,) for one point.
    """

    def time(self, t: Any) -> Any:
        """The new time s(t)."""
        return t

    def inverse_time(self, s: Any) -> Any:
        """The old time t(s)."""
        return s

    def time_derivative(self, t: Any) -> Any:
        """|ds/dt| at t."""
        return _ones(t)

    def map(self, t: Any, x: Any) -> Any:
        """The new coordinates y(t, x)."""
        return x

    def inverse_map(self, t: Any, y: Any) -> Any:
        """The old coordinates x(t, y)."""
        return y

    def jacobian_diag(self, t: Any, x: Any) -> Any:
        """∂y_i/∂x_i, of shape (n, dim), or (n, 1) if it is the same for all coordinates."""
        return _ones(t)[..., None]

    def hessian_diag(self, t: Any, x: Any) -> Any:
        """∂²y_i/∂x_i²."""
        return 0.0

    def rounding_scale(self, t: Any, x: Any) -> Any:
        """Size of the terms of which y is the sum: the rounding error of y is eps times this."""
        return np.abs(x)

    def value_scale(self, t: Any) -> Any:
        """a(t) in u = a(t) v."""
        return _ones(t)

    is_uniform: ClassVar[bool] = True  # whether ∂y_i/∂x_i depends on neither i nor x


class TimeReversal(Transform):
    """s = T - t, the time to maturity."""

    horizon: Any = eqx.field(converter=_as_array)

    def time(self, t: Any) -> Any:
        return self.horizon - t

    def inverse_time(self, s: Any) -> Any:
        return self.horizon - s


class ExponentialFactor(Transform):
    """Removes the reaction c u: u = e^{ct} v."""

    rate_of_growth: Any = eqx.field(converter=_as_array)

    def value_scale(self, t: Any) -> Any:
        return _array_module(t).exp(self.rate_of_growth * t)


class DriftShift(Transform):
    """Removes the drift b·∇u: y = x + b t."""

    drift: Any

    def map(self, t: Any, x: Any) -> Any:
        return x + self.drift * t[..., None]

    def inverse_map(self, t: Any, y: Any) -> Any:
        return y - self.drift * t[..., None]

    def rounding_scale(self, t: Any, x: Any) -> Any:
        return np.abs(x) + np.abs(self.drift * t[..., None])


class LogTransform(Transform):
    """y = log x, for positive coordinates."""

    def map(self, t: Any, x: Any) -> Any:
        return _array_module(x).log(x)

    def inverse_map(self, t: Any, y: Any) -> Any:
        return _array_module(y).exp(y)

    def jacobian_diag(self, t: Any, x: Any) -> Any:
        return 1 / x

    def hessian_diag(self, t: Any, x: Any) -> Any:
        return -1 / x**2

    def rounding_scale(self, t: Any, x: Any) -> Any:
        return 1 + np.abs(np.log(x))

    is_uniform = False


class OUTransform(Transform):
    """Removes the drift θ(m - x)·∇u.

    y = m + e^{-θt}(x - m); the new time s = (1 - e^{-2θt})/(2θ) keeps the diffusion A constant.
    """

    theta: Any = eqx.field(converter=_as_array)
    mean: Any

    def time(self, t: Any) -> Any:
        return -_array_module(t).expm1(-2 * self.theta * t) / (2 * self.theta)

    def inverse_time(self, s: Any) -> Any:
        return -_array_module(s).log1p(-2 * self.theta * s) / (2 * self.theta)

    def time_derivative(self, t: Any) -> Any:
        return _array_module(t).exp(-2 * self.theta * t)

    def map(self, t: Any, x: Any) -> Any:
        return self.mean + self.jacobian_diag(t, x) * (x - self.mean)

    def inverse_map(self, t: Any, y: Any) -> Any:
        return self.mean + (y - self.mean) / self.jacobian_diag(t, y)

    def jacobian_diag(self, t: Any, x: Any) -> Any:
        return _array_module(t).exp(-self.theta * t)[..., None]

    def rounding_scale(self, t: Any, x: Any) -> Any:
        exponent_rounding = (1 + np.abs(self.theta * t))[..., None]
        distance = np.abs(x) + np.abs(self.mean)
        return np.abs(self.mean) + self.jacobian_diag(t, x) * distance * exponent_rounding


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

    def _stages(self, t: Any, x: Any) -> Iterator[tuple[Transform, Any, Any]]:
        """Each transform, with its input time and point."""
        for change in self.changes:
            yield change, t, x
            t, x = change.time(t), change.map(t, x)

    def _product(self, factor: Callable[[Transform, Any], Any], t: Any) -> Any:
        """The product of a function of each transform and its input time."""
        total = _ones(t)
        for change in self.changes:
            total = total * factor(change, t)
            t = change.time(t)
        return total

    def value_scale(self, t: Any) -> Any:
        """a(t) in u = a(t) v."""
        return self._product(lambda change, t: change.value_scale(t), t)

    def time_derivative(self, t: Any) -> Any:
        """|ds/dt| at t."""
        return self._product(lambda change, t: change.time_derivative(t), t)

    @property
    def is_uniform(self) -> bool:
        """Whether ∂y_i/∂x_i depends on neither i nor x."""
        return all(change.is_uniform for change in self.changes)

    def uniform_scale(self, t: Any) -> Any:
        """∂y_i/∂x_i at t, if `is_uniform`."""
        return self._product(lambda change, t: change.jacobian_diag(t, None)[..., 0], t)

    def jacobian_diag(self, t: Any, x: Any) -> Any:
        """∂y_i/∂x_i, of shape (n, dim) or (n, 1)."""
        total = _ones(t)[..., None]
        for change, time, point in self._stages(t, x):
            total = total * change.jacobian_diag(time, point)
        return total

    def rounding_scale(self, t: Any, x: Any) -> Any:
        """Rounding error of y in units of eps, of shape (n, dim)."""
        total = np.abs(x)
        for change, *point in self._stages(t, x):
            total = change.jacobian_diag(*point) * total + change.rounding_scale(*point)
        return total

    def push_curve(self, t: Any, x: Any, direction: Any) -> tuple[Any, Any]:
        """First and second derivative in ε of y(t, x + ε direction) at ε = 0, of x's shape."""
        first, second = direction, 0.0 * direction
        for change, *point in self._stages(t, x):
            slope = change.jacobian_diag(*point)
            first, second = slope * first, slope * second + change.hessian_diag(*point) * first**2
        return first, second

    def pull_back(self, function: Function, arguments: str) -> Function:
        """A user's function u0(x) or F(t, x) in canonical coordinates; see `_PulledBack`.

        It has a closed-form Laplacian if the user gave one and all coordinates are scaled equally.
        """
        known = function.laplacian is not None and self.is_uniform
        laplacian = _PulledBack(function.laplacian, self, 2) if known else None
        return Function(_PulledBack(function, self, 0), laplacian, arguments)


class _PulledBack(eqx.Module):
    """y ↦ u0(x) / z^power at s = 0, or (s, y) ↦ F(t, x) / (a |ds/dt| z^power).

    z is `uniform_scale`; the power is 0 for the function itself, 2 for its Laplacian.
    """

    function: Any
    transform: TransformChain
    power: int = eqx.field(static=True)

    def __call__(self, *args: Any) -> Float[Array, ""]:
        *s, y = args
        t, x = self.transform.from_canonical(jnp.asarray(s[0]) if s else jnp.zeros(()), y)
        divisor = self.transform.value_scale(t) * self.transform.time_derivative(t) if s else 1.0
        value = self.function(t, x) if s else self.function(x)
        if self.power:
            divisor = divisor * self.transform.uniform_scale(t) ** self.power
        return value / divisor


class TransformedRegion(Region):
    """A user's region for the canonical problem.

    `sample` and `centre` are in the user's coordinates; `at_fractions` returns canonical ones.
    """

    def __init__(
        self, region: Region, transform: TransformChain, horizon: float, is_terminal: bool
    ) -> None:
        self.region, self.transform = region, transform
        self.horizon, self.is_terminal = horizon, is_terminal
        self.is_point = region.is_point

    def __repr__(self) -> str:
        return repr(self.region)

    def check(self, dim: int, name: str) -> None:
        self.region.check(dim, name)

    @property
    def centre(self) -> np.ndarray:
        return self.region.centre

    def sample(self, rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
        return self.region.sample(rng, count, dim)

    def at_fractions(
        self, fraction: np.ndarray, horizon: float, x: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        elapsed = self.horizon * np.asarray(fraction)
        t = self.horizon - elapsed if self.is_terminal else elapsed
        return self.transform.to_canonical(t, x)
