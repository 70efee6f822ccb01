"""Names the kinks and jumps of a function: the arguments of max, abs, where, comparisons, ...

A function with kinks is smooth in pieces, and the pieces meet where such an argument g(x) is zero.
The arguments are read off the jaxpr: max(a, b) has g = a - b, |a| has g = a, a < b has g = a - b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import Literal
from jaxtyping import Array, Float

from heatnets.pde.function import Function
from heatnets.pde.sum_finder import bind

MAX_KINKS = 64  # arguments of one function; a sum of more than so many calls is not served

_COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
# Their values jump or bend at places that are no zeros of an argument. Truth values and integers
# come from comparisons, which are named, or from rounding, which is not.
_HIDDEN = "ceil cummax cummin floor nextafter reduce_precision rem round scan sort top_k while"
_HIDDEN_NAMES = frozenset(_HIDDEN.split())
_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


class UnnamedKink(Exception):
    """A function may have a kink that no argument names. The text says where."""


class KinkArguments(eqx.Module):
    """x ↦ the arguments g_i(x), (n,), at whose zeros a function has its kinks and jumps."""

    function: Function
    chosen: tuple[int, ...] | None = eqx.field(static=True, default=None)  # of all; None for all

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, " kinks"]:
        found = _Finder().run_function(self.function, x)
        arguments = [jnp.reshape(g, -1) for g in found]
        if not arguments:
            return jnp.zeros(0)
        joined = jnp.concatenate(arguments)
        return joined if self.chosen is None else joined[jnp.array(self.chosen, int)]


def name_kinks(function: Function, dim: int) -> tuple[KinkArguments, int]:
    """The arguments at whose zeros a function of x (dim,) has its kinks, and their number.

    Raises `UnnamedKink` if there may be kinks elsewhere, or too many.
    """
    arguments = KinkArguments(function)
    count = jax.eval_shape(arguments, jax.ShapeDtypeStruct((dim,), jnp.float64)).shape[0]
    if count > MAX_KINKS:
        raise UnnamedKink(f"it has {count} kinks, more than {MAX_KINKS}")
    return arguments, count


class _Finder:
    """Runs a jaxpr, and collects the arguments of the operations that join pieces."""

    def __init__(self) -> None:
        self.found: list[Array] = []

    def run_function(self, function: Callable[..., Any], x: Array) -> list[Array]:
        """The arguments of a function at x."""
        # A new function: JAX would compare the arrays of `function`, which may be traced.
        closed = jax.make_jaxpr(lambda x: function(x))(x)
        self._run(closed.jaxpr, closed.consts, [x], [True])
        return self.found

    def _run(
        self, jaxpr: Any, constants: Any, values: list[Any], varies: list[bool]
    ) -> tuple[list[Any], list[bool]]:
        """The outputs of a jaxpr; `varies` says which of its inputs, and outputs, depend on x."""
        known = dict(zip(jaxpr.constvars, [(value, False) for value in constants], strict=True))
        known |= dict(zip(jaxpr.invars, zip(values, varies, strict=True), strict=True))

        def read(v: Any) -> tuple[Any, bool]:
            return (v.val, False) if isinstance(v, Literal) else known[v]

        for eqn in jaxpr.eqns:
            inputs, depends = zip(*map(read, eqn.invars), strict=True) if eqn.invars else ((), ())
            outputs = bind(eqn, inputs)
            variable = any(depends)
            if variable:
                self._collect(eqn, list(inputs), list(depends))
            known |= {v: (value, variable) for v, value in zip(eqn.outvars, outputs, strict=True)}
        results = [read(v) for v in jaxpr.outvars]
        return [value for value, _ in results], [flag for _, flag in results]

    def _collect(self, eqn: Any, inputs: list[Any], depends: list[bool]) -> None:
        """Collect the arguments of one operation on values that depend on x."""
        name = eqn.primitive.name
        is_float = [jnp.issubdtype(jnp.result_type(v), jnp.floating) for v in inputs]
        if name in ("max", "min") or name in _COMPARISONS:
            if all(is_float):
                self.found.append(jnp.subtract(*inputs))
        elif name in ("abs", "sign"):
            self.found += inputs if is_float[0] else []
        elif name == "clamp":
            low, value, high = inputs
            self.found += [value - low, value - high] if all(is_float) else []
        elif name in ("reduce_max", "reduce_min"):
            if is_float[0]:
                self._collect_extremum(eqn, inputs[0], name)
        elif name in ("argmax", "argmin"):
            if is_float[0]:
                raise UnnamedKink(f"`{name}` hides where it jumps")
        elif name in _HIDDEN_NAMES:
            if any(is_float):
                raise UnnamedKink(f"`{name}` hides where its kinks are")
        elif name == "convert_element_type":
            to_integer = jnp.issubdtype(eqn.params["new_dtype"], jnp.integer)
            if is_float[0] and to_integer:
                raise UnnamedKink("numbers are rounded to integers")
        elif name == "cond":  # the comparisons behind its index are named
            for branch in eqn.params["branches"]:
                self._run(branch.jaxpr, branch.consts, inputs[1:], depends[1:])
        else:
            self._collect_inner(eqn, inputs, depends)

    def _collect_extremum(self, eqn: Any, array: Any, name: str) -> None:
        """The largest of many entries: each entry minus the largest of those before it."""
        axes = eqn.params["axes"]
        moved = jnp.moveaxis(array, axes, range(len(axes)))
        count = 1
        for axis in axes:
            count *= array.shape[axis]
        if count > MAX_KINKS + 1:
            raise UnnamedKink(f"it has {count - 1} kinks, more than {MAX_KINKS}")
        entries = jnp.reshape(moved, (count, -1))
        extremum = jnp.maximum if name == "reduce_max" else jnp.minimum
        best = entries[0]
        for entry in entries[1:]:
            self.found.append(entry - best)
            best = extremum(best, entry)

    def _collect_inner(self, eqn: Any, inputs: list[Any], depends: list[bool]) -> None:
        """Collect from a jaxpr that an operation calls."""
        calls = [eqn.params[p] for p in _CALLS if p in eqn.params]
        if not calls:
            return
        inner = getattr(calls[0], "jaxpr", calls[0])
        # A sine with one implementation per platform (_core/elementary.py) is smooth.
        if any(e.primitive.name == "platform_index" for e in inner.eqns):
            return
        self._run(inner, list(getattr(calls[0], "consts", ())), inputs, depends)
