"""Arithmetic operations of a function, counted from its jaxpr.

A count is the same on every machine and at any load, unlike a measured time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import jaxprs_in_params

# Operations that one value of an elementary function takes, about.
_ELEMENTARY = dict.fromkeys(
    ("sin", "cos", "tan", "exp", "exp2", "log", "log1p", "expm1", "tanh", "sinh", "cosh", "pow"), 20
)
_ELEMENTARY |= dict.fromkeys(("erf", "erfc", "erf_inv", "logistic", "atan2", "lgamma"), 40)
_ELEMENTARY |= dict.fromkeys(("div", "sqrt", "rsqrt", "rem"), 5)
_COMPARISON = 20  # the same of a sort, for each comparison
# Data movement; constants.
_ELEMENTARY |= dict.fromkeys(("broadcast_in_dim", "reshape", "squeeze", "slice", "iota", "copy"), 0)


def count_operations(function: Callable[..., Any], *args: Any) -> int:
    """Count the operations of one call, from arguments or their shapes (`jax.ShapeDtypeStruct`).

    The body of a loop counts as often as it runs; a `while` loop of unknown length counts once, and
    of several branches the largest counts. What depends on constants alone does not count: the
    compiler computes it once.
    """
    return _count(jax.make_jaxpr(function)(*args).jaxpr)


def _count(jaxpr: Any) -> int:
    total, unknown = 0, set(jaxpr.invars)
    for equation in jaxpr.eqns:
        if any(not hasattr(v, "val") and v in unknown for v in equation.invars):
            unknown.update(equation.outvars)
            total += _count_equation(equation)
    return total


def _count_equation(equation: Any) -> int:
    name, params = equation.primitive.name, equation.params
    inner = [_count(jaxpr) for jaxpr in jaxprs_in_params(params)]
    if inner:
        called = max(inner) if name == "cond" else sum(inner)
        return called * int(params["length"] if name == "scan" else 1)
    size = sum(math.prod(v.aval.shape) for v in equation.outvars)
    if name == "dot_general":
        contracted, shape = params["dimension_numbers"][0][0], equation.invars[0].aval.shape
        return 2 * size * math.prod(shape[i] for i in contracted)
    if name.startswith(("reduce_", "cum")):
        size = max(size, *(math.prod(v.aval.shape) for v in equation.invars))
    if name == "sort":
        length = equation.invars[0].aval.shape[params["dimension"]]
        return int(_COMPARISON * size * max(math.log2(length), 1.0))
    return size * _ELEMENTARY.get(name, 1)
