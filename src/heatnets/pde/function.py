"""`Function`: a function given by the user, and a digest of its program."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from heatnets._core.errors import InputError, short_repr
from heatnets._core.precision import constants


class Function(eqx.Module):
    """A scalar function given by the user, with its Laplacian if that is known.

    Args:
        function: `f(x)` or `f(t, x)`, written with `jax.numpy` for one point x of shape (dim,). It
            returns a scalar.
        laplacian: the Laplacian of f in x in closed form, a function of the same arguments. It is
            faster than all automatic methods.
        arguments: names of the arguments, for example `"t x"`, if the signature of `function` does
            not show them.

    >>> import jax.numpy as jnp, heatnets as hn
    >>> square = hn.Function(lambda x: x @ x, laplacian=lambda x: 2.0 * x.size)
    >>> float(square(jnp.ones(3)))
    3.0
    """

    function: Callable[..., Any]
    laplacian: Callable[..., Any] | None = None
    arguments: str | None = eqx.field(static=True, default=None)
    # Set where a problem checks the function: the shapes of its arguments, and a digest of its
    # program. JAX keeps programs by their static data. With the digest a function that reads a
    # global or an attribute gets a new program when that has another value.
    _shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True, default=())
    _version: str = eqx.field(static=True, default="")

    def __check_init__(self) -> None:
        for name in ("function", "laplacian"):
            value = getattr(self, name)
            if not callable(value) and not (name == "laplacian" and value is None):
                raise InputError(
                    f"`{name}` must be a function; got {short_repr(value)}. Write hn.Function(f, "
                    "laplacian=g)."
                )

    def __call__(self, *args: Any) -> Any:
        """The value, in float64 also where JAX is not; then it is a NumPy array.

        Inside a trace (`jax.jit`, `jax.vmap`) of a program in float32 it is float32.
        """
        if jax.config.jax_enable_x64 or any(isinstance(a, jax.core.Tracer) for a in args):  # type: ignore[attr-defined]
            return jnp.asarray(self.function(*args), jnp.result_type(float))
        with jax.enable_x64(True):
            return np.asarray(self.function(*(jnp.asarray(a, float) for a in args)), float)

    def with_version(self, shapes: tuple[tuple[int, ...], ...]) -> Function:
        """The same function of arguments of these shapes, with a digest of its program."""
        parts = [self.function] if self.laplacian is None else [self.function, self.laplacian]
        version = hashlib.sha256(b"".join(_digest(f, shapes) for f in parts)).hexdigest()
        return replace(self, _shapes=shapes, _version=version)

    def has_changed(self) -> bool:
        """Whether the function reads values that have changed since a problem checked it."""
        return bool(self._version) and self.with_version(self._shapes)._version != self._version

    def arity(self) -> list[str] | None:
        """Names of the required positional arguments; None if the signature cannot be read."""
        if self.arguments is not None:
            return self.arguments.replace(",", " ").split()
        parameters = self._positional()
        if parameters is None:
            return None
        return [p.name for p in parameters if p.default is inspect.Parameter.empty]

    def optional_arguments(self) -> list[str]:
        """Names of the positional arguments that have a default value; none where
        `arguments` names those that are used.
        """
        parameters = self._positional() if self.arguments is None else None
        return [p.name for p in parameters or () if p.default is not inspect.Parameter.empty]

    def _positional(self) -> list[inspect.Parameter] | None:
        """The positional parameters; None if the signature cannot be read."""
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError):
            return None
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return [p for p in parameters if p.kind in kinds]


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in the names of functions


def _digest(f: Any, shapes: tuple[tuple[int, ...], ...]) -> bytes:
    """A digest of the program of f: of its operations and of the values that it reads.

    The arrays of a module are no part of it, since programs take them as arguments.
    """
    arrays, rest = eqx.partition(f, lambda leaf: isinstance(leaf, jax.Array | np.ndarray))

    def call(arrays: Any, *args: Array) -> Any:  # a new function, so that JAX traces it anew
        return eqx.combine(arrays, rest)(*args)

    args = (jax.ShapeDtypeStruct(shape, jnp.float64) for shape in shapes)
    closed = jax.make_jaxpr(call)(arrays, *args)
    parts = [_ADDRESS.sub("", str(closed.jaxpr)).encode()]
    known = (value for value in constants(closed) if not isinstance(value, jax.core.Tracer))
    parts += [np.asarray(value).tobytes() for value in known]
    return hashlib.sha256(b"".join(parts)).digest()
