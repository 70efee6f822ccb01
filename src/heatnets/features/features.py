"""Features: value and residual of one feature at one point.

A feature is a small module that holds its own frozen draw. A block of M features is the same module with one more
axis on every array; only `tiling` knows about that axis. Both families move u0 along paths, so three formulas serve:

    MovedInitial   c u0(x + √(2t) Sη)                          both families (kernel: η = √2 y)
    ReactedInitial c Ψ_{rt}(u0(x + √(2t) Sη))                  importance sampling, where the source depends on u
    MovedSource    c t F(rt, x + √(2(1-r)t) Sξ)                importance sampling
    KernelSource   1[g <= t] c exp(-|x-z|²/(4Dg)) F(t-g, z)    transformed Gaussian kernels
    Pair           ½[φ(η) + φ(-η)]                             antithetic pairs of the first two
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
Vector = Float[Array, "dim"]


class Feature(eqx.Module):
    """One frozen feature φ(t, x)."""

    @abc.abstractmethod
    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        """φ(t, x)."""

    @abc.abstractmethod
    def both(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        """φ and (∂_t - div A ∇) φ at (t, x), for t > 0."""

    def residual(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        """(∂_t - div A ∇) φ (t, x), for t > 0."""
        return self.both(equation, t, x)[1]

    @property
    @abc.abstractmethod
    def start(self) -> Scalar:
        """The factor c in φ(0, ·) = c u0."""


class MovedInitial(Feature):
    """φ(t, x) = c u0(x + √(2t) Sη); `direction` is Sη. Where coefficients vary: u0 at the end of a path in steps, (steps, dim) of noise."""

    direction: Vector
    coefficient: Scalar

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        return self.coefficient * equation.started(self.direction, t, x)

    def both(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        value, residual = equation.started_entry(self.direction, t, x)
        return self.coefficient * value, self.coefficient * residual

    @property
    def start(self) -> Scalar:
        return self.coefficient


class ReactedInitial(Feature):
    """φ(t, x) = c Ψ_{rt}(u0(x + √(2t) Sη)): u0 moved, and what a source that depends on u makes of it in a part of the time; `direction` is Sη."""

    direction: Vector
    fraction: Scalar
    coefficient: Scalar

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        return self.coefficient * equation.reacted(self.direction, self.fraction, t, x)

    def both(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        value, residual = equation.reacted_entry(self.direction, self.fraction, t, x)
        return self.coefficient * value, self.coefficient * residual

    @property
    def start(self) -> Scalar:
        return self.coefficient


class MovedSource(Feature):
    """φ(t, x) = c t F(rt, x + √(2(1-r)t) Sξ); `direction` is Sξ."""

    direction: Vector
    fraction: Scalar
    coefficient: Scalar

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        return self.coefficient * equation.forced(self.direction, self.fraction, t, x)

    def both(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        value, residual = equation.forced_entry(self.direction, self.fraction, t, x)
        return self.coefficient * value, self.coefficient * residual

    @property
    def start(self) -> Scalar:
        return jnp.zeros_like(self.coefficient)


class KernelSource(Feature):
    """φ(t, x) = 1[g <= t] c exp(-|x-z|²/(4Dg)) F(t-g, z), with c kept as its logarithm: it underflows from d = 600."""

    center: Vector
    lag: Scalar
    log_coefficient: Scalar

    def _kernel(self, equation: Equation, x: Vector) -> tuple[Scalar, Scalar]:
        square = jnp.sum((x - self.center) ** 2)
        return jnp.exp(
            self.log_coefficient - square / (4 * equation.diffusion.scalar * self.lag)
        ), square

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        assert equation.source is not None
        kernel, _ = self._kernel(equation, x)
        # Before its lag a feature looks at F(t, z), never at times before zero: NaN must not hide behind the indicator.
        force = equation.source(jnp.where(self.lag <= t, t - self.lag, t), self.center)
        return jnp.where(self.lag <= t, kernel * force, 0.0)

    def both(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        assert equation.source is not None
        kernel, square = self._kernel(equation, x)
        before = jnp.where(self.lag <= t, t - self.lag, t)
        force, change = equation.source.along(
            (before, self.center), (jnp.ones_like(t), jnp.zeros_like(x))
        )
        D = equation.diffusion.scalar
        width = 2 * D * self.lag
        residual = change - D * force * (square / width**2 - x.size / width)
        on = self.lag <= t
        return jnp.where(on, kernel * force, 0.0), jnp.where(on, kernel * residual, 0.0)

    @property
    def start(self) -> Scalar:
        return jnp.zeros_like(self.log_coefficient)


class Pair(Feature):
    """½[φ(t, x; η) + φ(t, x; -η)]: odd terms cancel, and with them the t^{-1/2} of ∂_t φ at t = 0."""

    one: MovedInitial | ReactedInitial | MovedSource

    def _mean(self, of: Callable[[Feature], Any]) -> Any:
        def turned(sign: Scalar) -> Any:
            return of(eqx.tree_at(lambda f: f.direction, self.one, sign * self.one.direction))

        return jax.tree.map(
            lambda both: 0.5 * (both[0] + both[1]), jax.vmap(turned)(jnp.array([1.0, -1.0]))
        )

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        return self._mean(lambda f: f.value(equation, t, x))

    def both(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        return self._mean(lambda f: f.both(equation, t, x))

    @property
    def start(self) -> Scalar:
        return self.one.start


_STORED = {
    kind.__name__: kind for kind in (MovedInitial, ReactedInitial, MovedSource, KernelSource)
}


def packed(block: Feature) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A block as words and arrays, to be stored."""
    one = block.one if isinstance(block, Pair) else block
    names = [field.name for field in fields(one)]
    arrays = {name: np.asarray(getattr(one, name)) for name in names}
    return {"feature": type(one).__name__, "pairs": isinstance(block, Pair)}, arrays


def unpacked(
    words: Mapping[str, Any], arrays: Mapping[str, np.ndarray], steps: tuple[int, ...], dim: int
) -> Feature:
    """A block from what was stored; `steps` are those of the paths that its features follow."""
    kind = _STORED.get(words.get("feature", ""))
    names = [] if kind is None else [field.name for field in fields(kind)]
    if kind is None or set(arrays) != set(names):
        raise InputError(
            f"features of the kind {short_repr(words.get('feature'))} with {sorted(arrays)} are not known to this version."
        )
    count = len(arrays[names[-1]])
    for name, array in arrays.items():
        long = name in ("direction", "center")
        if array.shape != (
            (count, *(steps if name == "direction" else ()), dim) if long else (count,)
        ):
            raise InputError(
                f"`{name}` of the features has shape {array.shape}, which does not fit {count} features in {dim} dimensions."
            )
    one: Any = kind(*(jnp.asarray(arrays[name]) for name in names))
    return Pair(one) if words.get("pairs") else one
