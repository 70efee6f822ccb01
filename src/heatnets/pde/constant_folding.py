"""Constant folding: the value of a function where its unknown arguments do not matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Parameters of a primitive that hold the jaxpr it calls, and primitives that only call a jaxpr.
_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_CALLED = {"pjit", "jit", "closed_call", "core_call", "remat", "checkpoint"}
_CALLED |= {"custom_jvp_call", "custom_vjp_call"}


def constant(function: Callable[..., Any], *args: Any) -> np.ndarray | None:
    """The value of a function that does not depend on its unknown arguments, from its jaxpr.

    Returns None if this cannot be shown. An argument is a `jax.ShapeDtypeStruct` if it is unknown,
    or a known value.
    """
    structs = [
        a if isinstance(a, jax.ShapeDtypeStruct) else jax.ShapeDtypeStruct(np.shape(a), jnp.float64)
        for a in args
    ]
    closed = jax.make_jaxpr(function)(*structs)
    known = [None if isinstance(a, jax.ShapeDtypeStruct) else np.asarray(a, float) for a in args]
    (value,) = _evaluate_known(closed.jaxpr, list(closed.consts), known)
    return None if value is None else np.asarray(value)


def _evaluate_known(jaxpr: Any, constants: list[Any], args: list[Any]) -> list[Any]:
    """The outputs of a jaxpr; None for an unknown argument, and for an output that depends on one.

    Zero times an unknown value is zero.
    """
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *args], strict=True))

    def read(v: Any) -> Any:
        return v.val if hasattr(v, "val") else values.get(v)

    for e in jaxpr.eqns:
        name, operands = e.primitive.name, [read(v) for v in e.invars]
        called = [e.params[p] for p in _CALLS if p in e.params] if name in _CALLED else []
        if called:
            inner = getattr(called[0], "jaxpr", called[0])
            outputs = _evaluate_known(inner, list(getattr(called[0], "consts", ())), operands)
        elif all(v is not None for v in operands):
            inputs = {v: read(v) for v in e.invars if not hasattr(v, "val")}
            single = jaxpr.replace(constvars=[], invars=list(inputs), outvars=e.outvars, eqns=[e])
            outputs = jax.core.eval_jaxpr(single, [], *inputs.values())
        elif (value := _value_despite_unknowns(name, operands)) is not None:
            aval = e.outvars[0].aval
            outputs = [jnp.zeros(aval.shape, aval.dtype) + value]
        else:
            outputs = [None] * len(e.outvars)
        values.update(zip(e.outvars, outputs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _value_despite_unknowns(name: str, operands: list[Any]) -> Any:
    """The value of a primitive with an unknown operand, if the known ones decide it; else None.

    A product (or quotient) with a factor zero is zero; a selection between equals is one of them.
    """
    factors = operands if name in ("mul", "dot_general") else operands[:1] if name == "div" else []
    if any(v is not None and not np.any(v) for v in factors):
        return 0.0
    cases = operands[1:] if name == "select_n" else []
    if cases and all(v is not None and np.array_equal(v, cases[0]) for v in cases):
        return cases[0]
    return None
