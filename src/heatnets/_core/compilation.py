"""How programs are compiled: compiler options for small and large ones."""

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


def is_small_call(coordinates: int, workspace: int = 0) -> bool:
    """Whether a call needs no optimisation.

    Args:
        coordinates: points x features x dim.
        workspace: floats of all intermediate values.
    """
    return coordinates <= _SMALL_COORDINATES and workspace <= _SMALL_WORKSPACE


def current_platform() -> str:
    """The platform of the default device: "cpu", "gpu", ..."""
    device = jax.config.jax_default_device or jax.default_backend()  # type: ignore[attr-defined]
    return device if isinstance(device, str) else str(device.platform)


@cache
def compiler_options(platform: str, is_small: bool) -> dict[str, Any] | None:
    """XLA compiler options for programs with little or much work on a platform, or None.

    On a CPU small programs are not optimised: they run for milliseconds, and without optimisation
    they compile in a third of the time. On a GPU XLA does not compare its two code generators on
    each fusion: this comparison took 195 seconds for one sum over chunks in 1000 dimensions, and
    gains nothing on such sums.
    """
    if platform == "cpu":
        if not is_small:
            return None
        options = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
    else:
        options = {"xla_gpu_experimental_enable_fusion_autotuner": False}
    try:  # other versions of XLA may not know these options
        jax.jit(lambda x: x + 1, compiler_options=options)(jnp.zeros(()))
    except Exception:
        return None
    return options


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: `eqx.filter_jit` with `compiler_options` for the platform and the work.

    The result takes a keyword `is_small`: whether this call is little work, as by default it is.
    """

    @cache
    def compiled_for(platform: str, is_small: bool) -> Callable[..., Any]:
        options = compiler_options(platform, is_small)
        return eqx.filter_jit(function, compiler_options=options)  # type: ignore[call-overload]

    @wraps(function)
    def run(*arguments: Any, is_small: bool = True) -> Any:
        return compiled_for(current_platform(), is_small)(*arguments)

    run.compiled_for = compiled_for  # type: ignore[attr-defined]
    return run


def traced_once(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: programs that contain the function share its trace; it is not compiled alone."""
    traced: Callable[P, R] = eqx.filter_jit(function, inline=True)  # type: ignore[call-overload]
    return traced
