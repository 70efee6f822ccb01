"""How programs are compiled: the more work a call is, the more XLA optimises its program."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

P = ParamSpec("P")
R = TypeVar("R")

# Coordinates (points x features x dim) and floats of workspace up to which a call takes
# milliseconds even if it is compiled without optimisation.
_SMALL_COORDINATES, _SMALL_WORKSPACE = 60_000, 5_000_000
# Coordinates from which a call takes a tenth of a second: as long as XLA's further passes.
_LARGE_COORDINATES = 10_000_000


def optimisation_level(coordinates: int, workspace: int = 0) -> int:
    """How much XLA optimises a program: 0 not at all, 1 quickly, 2 as usual.

    Args:
        coordinates: points x features x dim.
        workspace: floats of all intermediate values.
    """
    if coordinates <= _SMALL_COORDINATES and workspace <= _SMALL_WORKSPACE:
        return 0
    return 1 if coordinates <= _LARGE_COORDINATES else 2


def current_platform() -> str:
    """The platform of the default device: "cpu", "gpu", ..."""
    device = jax.config.jax_default_device or jax.default_backend()  # type: ignore[attr-defined]
    return device if isinstance(device, str) else str(device.platform)


@cache
def compiler_options(platform: str, level: int) -> dict[str, Any] | None:
    """XLA compiler options for an `optimisation_level` on a platform, or None.

    On a CPU the level 1 compiles in two thirds of the time of the level 2, the level 0 in a third.
    At level 1 most programs run as fast as at level 2: without fusion emitters functions of |x|²
    are up to four times as fast by forward Laplacians, a dense network takes a third longer
    (benchmarks/assembly.py). On a GPU XLA does not compare its two code generators on each fusion:
    this comparison took 195 seconds for one sum over chunks in 1000 dimensions, and gains nothing
    on such sums.
    """
    if platform == "cpu":
        if level == 2:
            return None
        options = {
            "xla_backend_optimization_level": level,
            "xla_cpu_use_fusion_emitters": False,
            "xla_cpu_parallel_codegen_split_count": 1,  # the parts of 32 would be tiny
        }
    else:
        options = {"xla_gpu_experimental_enable_fusion_autotuner": False}
    try:  # other versions of XLA may not know these options
        jax.jit(lambda x: x + 1, compiler_options=options)(jnp.zeros(()))
    except Exception:
        return None
    return options


class _Rest:
    """All leaves of arguments that are not arrays, and their structure; hashed once."""

    def __init__(self, leaves: tuple[Any, ...], structure: Any) -> None:
        self._leaves, self._structure = leaves, structure
        self._hash = hash((leaves, structure))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, _Rest)
            and self._hash == other._hash
            and (self._leaves, self._structure) == (other._leaves, other._structure)
        )

    def with_arrays(self, arrays: list[Any]) -> Any:
        """The arguments, put together again."""
        left = iter(arrays)
        leaves = [next(left) if leaf is _ARRAY else leaf for leaf in self._leaves]
        return jax.tree.unflatten(self._structure, leaves)


def _on_default_device(array: Any) -> jax.Array:
    """The array on the device where programs run; the same one if it is there."""
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    if not isinstance(array, jax.Array):
        return jax.device_put(array)
    is_there = not isinstance(device, jax.Device) or array.devices() == {device}
    return array if is_there else jax.device_put(array, device)


_ARRAY = object()  # stands for an array among the leaves of `_Rest`


class Compiled:
    """A function compiled for its platform and work: arrays are traced, all else is static.

    The same as `eqx.filter_jit`, with `compiler_options` for the platform and the work, and with
    a way to call it many times with the same first arguments.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        @wraps(function)
        def call(rest: _Rest, arrays: list[Any], last: tuple[Any, ...]) -> Any:
            return function(*rest.with_arrays(arrays), *last)

        @cache
        def compiled_for(platform: str, level: int) -> Any:
            options = compiler_options(platform, level)
            return jax.jit(call, static_argnums=0, compiler_options=options)

        self.function, self._compiled_for = function, compiled_for

    def __call__(self, *arguments: Any, level: int = 0) -> Any:
        """The result; `level` is the `optimisation_level` of this call."""
        return self.fix(*arguments)(level=level)

    def fix(self, *first: Any) -> Callable[..., Any]:
        """The function of its last arguments, pytrees of arrays.

        The first arguments are taken apart and sent to the device here. For a large pytree that
        takes a millisecond, more than a call.
        """
        leaves, structure = jax.tree.flatten(first)
        arrays = [_on_default_device(a) for a in leaves if eqx.is_array(a)]
        rest = _Rest(tuple(_ARRAY if eqx.is_array(a) else a for a in leaves), structure)

        def call(*last: Any, level: int = 0) -> Any:
            platform = current_platform()
            # Elsewhere options are the same at all levels, and so is the program.
            level = level if platform == "cpu" else 2
            return self._compiled_for(platform, level)(rest, arrays, last)

        return call


def compiled(function: Callable[..., Any]) -> Compiled:
    """Decorator: make a function `Compiled`."""
    return Compiled(function)


def traced_once(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: programs that contain the function share its trace; it is not compiled alone."""
    traced: Callable[P, R] = eqx.filter_jit(function, inline=True)  # type: ignore[call-overload]
    return traced
