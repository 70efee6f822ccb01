"""float64, in one place.

JAX computes in float32 unless its `jax_enable_x64` flag is set. Every public call of heatnets computes in float64
whatever the caller's flag is, and leaves the flag as it was.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

P = ParamSpec("P")
R = TypeVar("R")

EPS = float(np.finfo(np.float64).eps)


def in_double(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` with JAX in float64; the caller's setting returns when it ends or raises."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wrapped


def is_low(dtype: Any) -> bool:
    """Whether a dtype is floating (or complex) with fewer digits than float64."""
    return jnp.issubdtype(dtype, jnp.inexact) and float(np.finfo(dtype if dtype != jnp.bfloat16 else np.float16).eps) > EPS


def low_precision_constants(function: Callable[..., Any], constants: list[Any]) -> list[str]:
    """Names of the float32 (or shorter) arrays that `function` captured, given its traced constants.

    0.1 rounded to float32 is wrong by 1e-9: a solve can never be better than the data it is given.
    """
    low = [c for c in constants if is_low(jnp.result_type(c))]
    named = {name: value for name, value in _captured(function) if _is_low_array(value)}
    found: list[str] = []
    for constant in low:
        shape, dtype = np.shape(constant), jnp.result_type(constant)
        names = [n for n, v in named.items() if v is constant or (np.shape(v), v.dtype) == (shape, dtype)]
        found.extend(f"`{name}` ({dtype}, shape {shape})" for name in names or ["an unnamed constant"])
    return list(dict.fromkeys(found))


def _is_low_array(value: Any) -> bool:
    return isinstance(value, (jax.Array, np.ndarray, np.generic)) and is_low(value.dtype)


def _captured(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """(name, array) for everything a function can see beyond its arguments."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(function):
        if not callable(leaf):
            yield jax.tree_util.keystr(path).lstrip("."), leaf
        elif leaf is not function:
            yield from _captured(leaf)
    if isinstance(function, functools.partial):
        yield from function.keywords.items()
        yield from ((f"argument {i}", value) for i, value in enumerate(function.args))
        yield from _captured(function.func)
    plain = inspect.unwrap(function) if callable(function) else function
    if inspect.isfunction(plain):
        seen = inspect.getclosurevars(plain)
        for name, value in {**seen.globals, **seen.nonlocals}.items():
            yield name, value
            if isinstance(value, (dict, list, tuple)):
                for path, leaf in jax.tree_util.tree_leaves_with_path(value):
                    yield name + jax.tree_util.keystr(path), leaf
