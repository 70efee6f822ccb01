"""Features φ(t, x): value and residual of one feature at one point.

A feature is an equinox module that holds its random parameters. A block of M features is the same
module with a leading axis of length M on every array; only `tiling` uses that axis. The families
combine MovedInitial, ReactedInitial, MovedSource, KernelSource, and antithetic `Pair`s.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets._core.errors import InputError, short_repr
from heatnets.features.equation import Equation

Scalar = Float[Array, ""]
Vector = Float[Array, " dim"]


class Feature(eqx.Module):
    """One feature φ(t, x) with fixed random parameters."""

    @abc.abstractmethod
    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        """Value φ(t, x)."""

    @abc.abstractmethod
    def value_and_residual(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        """Value φ and residual (∂_t - div A ∇) φ at (t, x), for t > 0."""

    def residual(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        """Residual (∂_t - div A ∇) φ at (t, x), for t > 0."""
        return self.value_and_residual(equation, t, x)[1]

    @property
    @abc.abstractmethod
    def start(self) -> Scalar:
        """The factor c in φ(0, ·) = c u0."""


class MovedInitial(Feature):
    """φ(t, x) = c u0(x + √(2t) Sη), for both families (Gaussian kernels: η = √2 y).

    `direction` is Sη, shape (dim,). With variable coefficients the argument of u0 is the end of an
    Euler path, and `direction` is its noise, shape (steps, dim).
    """

    direction: Vector
    coefficient: Scalar

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        return self.coefficient * equation.started(self.direction, t, x)

    def value_and_residual(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        value, residual = equation.started_entry(self.direction, t, x)
        return self.coefficient * value, self.coefficient * residual

    @property
    def start(self) -> Scalar:
        return self.coefficient


class ReactedInitial(Feature):
    """φ(t, x) = c Ψ_{rt}(u0(x + √(2t) Sη)), importance sampling with a source that depends on u.

    Ψ_s is the flow of the ODE with the source as right-hand side; r is `fraction`, and `direction`
    is Sη.
    """

    direction: Vector
    fraction: Scalar
    coefficient: Scalar

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        return self.coefficient * equation.reacted(self.direction, self.fraction, t, x)

    def value_and_residual(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        value, residual = equation.reacted_entry(self.direction, self.fraction, t, x)
        return self.coefficient * value, self.coefficient * residual

    @property
    def start(self) -> Scalar:
        return self.coefficient


class MovedSource(Feature):
    """φ(t, x) = c t F(rt, x + √(2(1-r)t) Sξ), importance sampling of the source.

    r is `fraction`, and `direction` is Sξ.
    """

    direction: Vector
    fraction: Scalar
    coefficient: Scalar

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        return self.coefficient * equation.forced(self.direction, self.fraction, t, x)

    def value_and_residual(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        value, residual = equation.forced_entry(self.direction, self.fraction, t, x)
        return self.coefficient * value, self.coefficient * residual

    @property
    def start(self) -> Scalar:
        return jnp.zeros_like(self.coefficient)


class KernelSource(Feature):
    """φ(t, x) = 1[g <= t] c exp(-|x-z|²/(4Dg)) F(t-g, z), a transformed Gaussian kernel.

    g is `lag`, z is `center`; c is stored as its logarithm, because c underflows for d >= 600.
    """

    center: Vector
    lag: Scalar
    log_coefficient: Scalar

    def _kernel(self, equation: Equation, x: Vector) -> tuple[Scalar, Scalar]:
        """c exp(-|x-z|²/(4Dg)) and |x-z|²."""
        square = jnp.sum((x - self.center) ** 2)
        exponent = self.log_coefficient - square / (4 * equation.diffusion.scalar * self.lag)
        return jnp.exp(exponent), square

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        assert equation.source is not None
        kernel, _ = self._kernel(equation, x)
        # For t < g evaluate F(t, z), never F at a negative time, where it may be NaN: `jnp.where`
        # does not keep NaN out of derivatives.
        force = equation.source(jnp.where(self.lag <= t, t - self.lag, t), self.center)
        return jnp.where(self.lag <= t, kernel * force, 0.0)

    def value_and_residual(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        assert equation.source is not None
        kernel, square = self._kernel(equation, x)
        earlier = jnp.where(self.lag <= t, t - self.lag, t)
        force, change = equation.source.along(
            (earlier, self.center), (jnp.ones_like(t), jnp.zeros_like(x))
        )
        D = equation.diffusion.scalar
        width = 2 * D * self.lag
        residual = change - D * force * (square / width**2 - x.size / width)
        active = self.lag <= t
        return jnp.where(active, kernel * force, 0.0), jnp.where(active, kernel * residual, 0.0)

    @property
    def start(self) -> Scalar:
        return jnp.zeros_like(self.log_coefficient)


class Pair(Feature):
    """Antithetic pair ½[φ(t, x; η) + φ(t, x; -η)] of features with a direction.

    Odd terms in η cancel, and with them the t^{-1/2} singularity of ∂_t φ at t = 0.
    """

    one: MovedInitial | ReactedInitial | MovedSource

    def _mean(self, function: Callable[[Feature], Any]) -> Any:
        """Mean of function(feature) over the directions η and -η."""

        def signed(sign: Scalar) -> Any:
            direction = sign * self.one.direction
            return function(eqx.tree_at(lambda f: f.direction, self.one, direction))

        values = jax.vmap(signed)(jnp.array([1.0, -1.0]))
        return jax.tree.map(lambda pair: 0.5 * (pair[0] + pair[1]), values)

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        return self._mean(lambda f: f.value(equation, t, x))

    def value_and_residual(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        return self._mean(lambda f: f.value_and_residual(equation, t, x))

    @property
    def start(self) -> Scalar:
        return self.one.start


_STORED = {
    kind.__name__: kind for kind in (MovedInitial, ReactedInitial, MovedSource, KernelSource)
}


def packed(block: Feature) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Convert a block of features to a JSON dictionary and arrays, for storage in a file."""
    one = block.one if isinstance(block, Pair) else block
    names = [field.name for field in fields(one)]
    arrays = {name: np.asarray(getattr(one, name)) for name in names}
    return {"feature": type(one).__name__, "pairs": isinstance(block, Pair)}, arrays


def unpacked(
    words: Mapping[str, Any], arrays: Mapping[str, np.ndarray], steps: tuple[int, ...], dim: int
) -> Feature:
    """Rebuild a block from the output of `packed`.

    Args:
        words: the JSON dictionary.
        arrays: the arrays by field name.
        steps: the number of steps of Euler paths as a tuple, empty with constant coefficients.
        dim: dimension of x.
    """
    kind = _STORED.get(words.get("feature", ""))
    names = [] if kind is None else [field.name for field in fields(kind)]
    if kind is None or set(arrays) != set(names):
        raise InputError(
            f"features of the kind {short_repr(words.get('feature'))} with {sorted(arrays)} are "
            "not known to this version."
        )
    count = len(arrays[names[-1]])
    shapes = {"direction": (count, *steps, dim), "center": (count, dim)}
    for name, array in arrays.items():
        if array.shape != shapes.get(name, (count,)):
            raise InputError(
                f"`{name}` of the features has shape {array.shape}, which does not fit {count} "
                f"features in {dim} dimensions."
            )
    one: Any = kind(*(jnp.asarray(arrays[name]) for name in names))
    return Pair(one) if words.get("pairs") else one
