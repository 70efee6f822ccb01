"""Double precision: the float64 decorator of public functions, and detection of float32 data.

JAX computes in float32 unless its `jax_enable_x64` flag is set. Every public call of heatnets
computes in float64 whatever the caller's flag is, and leaves the flag as it was.
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


def with_x64(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: run `function` with JAX in float64, and restore the caller's setting after it."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wrapped


def is_low_precision(dtype: Any) -> bool:
    """Whether a dtype is floating (or complex) with fewer digits than float64."""
    return (
        jnp.issubdtype(dtype, jnp.inexact)
        and float(np.finfo(dtype if dtype != jnp.bfloat16 else np.float16).eps) > EPS
    )


def low_precision_constants(function: Callable[..., Any], closed: Any) -> list[str]:
    """Describe the float32 (or shorter) constants that `function` captured.

    0.1 rounded to float32 is wrong by 1e-9, and a solve cannot be more accurate than its data.
    Whole numbers and short binary fractions (ones, an identity, 0.5) are the same in float64, and
    are not listed.

    Args:
        function: a function of the user.
        closed: its closed jaxpr.

    Returns:
        One text per constant, with its name if it is known, its dtype and its shape.
    """
    captured = {name: value for name, value in _captured(function) if _is_low_array(value)}
    descriptions: list[str] = []
    for constant in constants(closed):
        if isinstance(constant, jax.core.Tracer) or not is_rounded(constant):
            continue
        array = np.asarray(constant)
        kind = (array.dtype, array.shape)
        if is_low_precision(array.dtype):
            # A jaxpr does not know the names of constants: compare identity, or shape and dtype.
            names = [
                name
                for name, value in captured.items()
                if value is constant or (value.dtype, np.shape(value)) == kind
            ]
            descriptions += [
                f"`{name}` ({array.dtype}, shape {array.shape})"
                for name in names or ["an unnamed constant"]
            ]
        elif array.shape == ():  # a float32 number that became a literal of the jaxpr
            descriptions.append(f"{float(constant):.10g} (float32, a number)")
    return list(dict.fromkeys(descriptions))


LOW = (
    "rounded to 7 digits or fewer, so that the problem is another one from there on, and the "
    "answer cannot be better. Make them with np.asarray(..., float) in place of jnp.asarray, or "
    'call jax.config.update("jax_enable_x64", True) first.'
)


def is_rounded(value: Any) -> bool:
    """Whether `value` looks rounded to float32 or less.

    True if all its finite numbers are float32 (or shorter) numbers, and one of them is neither a
    whole number nor a short binary fraction.
    """
    array = np.asarray(value)
    if array.size == 0 or not jnp.issubdtype(array.dtype, jnp.inexact):
        return False
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        return is_rounded(array.real) or is_rounded(array.imag)
    # Binary digits of a "short" fraction: half of those of the dtype.
    digits = {jnp.dtype(jnp.bfloat16): 4, np.dtype(np.float16): 5}.get(array.dtype, 12)
    exact = array.astype(np.float64)
    exact = exact[np.isfinite(exact)]
    with np.errstate(over="ignore"):
        if not is_low_precision(array.dtype) and not np.all(exact == exact.astype(np.float32)):
            return False
    scaled = np.ldexp(np.frexp(exact)[0], digits)
    return bool(np.any((scaled != np.round(scaled)) & (exact != np.round(exact))))


def constants(closed: Any) -> Iterator[Any]:
    """The constants and the literal numbers of a jaxpr and of all jaxprs nested in it."""
    yield from getattr(closed, "consts", ())
    for equation in getattr(closed, "jaxpr", closed).eqns:
        yield from (v.val for v in equation.invars if hasattr(v, "val"))
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=is_program):
            if is_program(inner):
                yield from constants(inner)


def is_program(value: Any) -> bool:
    """Whether a parameter of a JAX primitive is a jaxpr."""
    return hasattr(value, "eqns") or hasattr(value, "jaxpr")


def _is_low_array(value: Any) -> bool:
    return isinstance(value, (jax.Array, np.ndarray, np.generic)) and is_low_precision(value.dtype)


def _captured(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """(name, value) of everything that a function can read besides its arguments."""
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
        closure = inspect.getclosurevars(plain)
        for name, value in {**closure.globals, **closure.nonlocals}.items():
            yield name, value
            if isinstance(value, (dict, list, tuple)):
                for path, leaf in jax.tree_util.tree_leaves_with_path(value):
                    yield name + jax.tree_util.keystr(path), leaf
