"""A network as a pure JAX function of the user's t and x: `Solution.function`."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets._core.errors import InputError
from heatnets._core.execution import ExecutionContext
from heatnets._core.precision import with_x64
from heatnets._core.sum_primitive import sum_at_point
from heatnets.features.equation import to_jax
from heatnets.features.features import Equation, Feature
from heatnets.fit import network
from heatnets.pde.problem import ROUNDED_UP
from heatnets.pde.transforms import TransformChain


class Pure(eqx.Module):
    """A function for JAX: a pytree, and compared by identity, as `jax.jit` needs a function."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class _Coordinates(eqx.Module):
    """What the network's values at the user's t and x need besides features and weights."""

    transform: TransformChain
    horizon: Float[Array, ""]
    equation: Equation


def _values(
    coordinates: _Coordinates, features: Feature, weights: Array, t: Array, x: Array
) -> Array:
    """a(t) Σ w_j φ_j(s, y), at the user's t and x; NaN at times outside of [0, T]."""
    T, transform = coordinates.horizon, coordinates.transform
    is_outside = (t < 0) | (t > T * ROUNDED_UP)
    # A time that rounding in float32 has put past T is T, and keeps its derivative.
    t = t + jax.lax.stop_gradient(jnp.where(is_outside, jnp.nan, jnp.minimum(t, T) - t))
    s, y = transform.to_canonical(t, x)
    sums = network.values(coordinates.equation, features, weights, s, y)
    return transform.value_scale(t) * sums


class NetworkFunction(Pure):
    """The network ũ(t, x) as a pure function of one time and one point, for use in JAX programs.

    It is an equinox module: a pytree of arrays (weights, directions, coefficients) and the user's
    functions. `jax.jit`, `jax.vmap`, `jax.grad`, `jax.jvp` and `jax.export` take it as they take
    any function, and `eqx.filter_jit` takes it as an argument.
    """

    _coordinates: _Coordinates
    _blocks: list[tuple[Feature, Array]]
    _dim: int = eqx.field(static=True)
    _ctx: ExecutionContext = eqx.field(static=True)

    def __call__(self, t: Any, x: Any) -> Float[Array, ""]:
        """The value ũ(t, x).

        Args:
            t: one time, ().
            x: one point, (dim,).

        Returns:
            The value, (), of the dtype of t and x.
        """
        t, x = (np.asarray(a, float) if isinstance(a, list | tuple) else a for a in (t, x))
        self._check("t", t, ())
        self._check("x", x, (self._dim,))
        dtype = _common_dtype(t, x)
        with jax.enable_x64(True):
            point = [jax.lax.convert_element_type(a, np.float64) for a in (t, x)]
            floats = self._coordinates.equation.value_workspace(self._dim)
            total = sum_at_point(_values, self._blocks, self._coordinates, point, floats, self._ctx)
            return jax.lax.convert_element_type(total, dtype)

    def _check(self, name: str, value: Any, shape: tuple[int, ...]) -> None:
        if np.shape(value) != shape:
            raise InputError(
                f"`{name}` must have shape {shape}; got shape {np.shape(value)}. It takes one time "
                "and one point: jax.vmap(u.function, (None, 0))(t, x) for one time and "
                "n points, jax.vmap(u.function)(t, x) for n times and n points."
            )

    def __repr__(self) -> str:
        features = sum(len(weights) for _, weights in self._blocks)
        return f"NetworkFunction(dim={self._dim}, features={features})"


class AtTime(Pure):
    """x ↦ ũ(t, x) at a fixed time t."""

    function: NetworkFunction
    time: Any

    def __call__(self, x: Any) -> Float[Array, ""]:
        """The value ũ(t, x) at one point x (dim,), (), of the dtype of x."""
        return self.function(self.time, x)


def _common_dtype(*values: Any) -> Any:
    """The floating dtype of some arrays: float64 or less, as JAX would promote them.

    Arrays in float64 keep it also where JAX runs in float32. Integers have the default dtype.
    """
    default = jnp.result_type(float)
    with jax.enable_x64(True):
        dtype = jnp.result_type(*values)
    return dtype if jnp.issubdtype(dtype, jnp.floating) else default


@with_x64
def network_function(
    transform: TransformChain,
    horizon: float,
    equation: Equation,
    blocks: list[tuple[Feature, Array]],
    dim: int,
    ctx: ExecutionContext,
) -> NetworkFunction:
    """The pure function of a network; `transform` leads from the user's coordinates to its own."""

    def to_array(leaf: Any) -> Any:
        # As an argument of a program, JAX would round a NumPy array to float32 if it runs in that.
        return jax.device_put(leaf) if isinstance(leaf, np.ndarray) else leaf

    with jax.ensure_compile_time_eval():  # arrays, not tracers, also if it is made inside a program
        coordinates = _Coordinates(
            to_jax(transform), to_jax(float(horizon)), jax.tree.map(to_array, equation)
        )
    return NetworkFunction(coordinates, blocks, dim, ctx)
