"""A jaxpr run with symbolic x, to find the sums over coordinates through which f(x) depends on x.

Quantities that depend on all of x are wide: they stay functions of x. A sum over coordinates makes
a narrow quantity, a number or a small array, from a wide one; all that follows is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from jaxtyping import Array

from heatnets._core import elementary

MAX_SUMS = 8  # the head needs second derivatives in all pairs of sums
_FULL_HESSIAN = 512  # up to this dimension the trace of a Hessian that is not diagonal is computed

_POLYNOMIAL = frozenset(("add", "add_any", "sub", "mul", "div", "neg", "integer_pow", "square"))
_COPIES = frozenset(("convert_element_type", "copy", "copy_p"))
_ELEMENTWISE = """
    abs acos acosh asin asinh atan atan2 atanh cbrt ceil clamp cos cosh digamma erf erf_inv erfc
    exp exp2 expm1 floor is_finite lgamma log log1p logistic max min pow rem round rsqrt select_n
    sign sin sinh sqrt tan tanh eq ne lt le gt ge and or not xor
"""
_ELEMENTWISE_NAMES = frozenset(_ELEMENTWISE.split())
# Linear in their first argument; the others, if any, are indices.
_LINEAR = """
    broadcast_in_dim cumsum dynamic_slice gather reduce_sum reshape rev slice squeeze transpose
"""
_LINEAR_NAMES = frozenset(_LINEAR.split())
_CALLS = {"pjit": "jaxpr", "jit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr"}


_FAST = {"sin": elementary.sin, "cos": elementary.cos}  # for vectors; tracing takes longer


class NotReducible(Exception):
    """The function is not a function of few sums over coordinates. The text says why."""


@dataclass(eq=False)
class Narrow:
    """A quantity that depends on x through sums alone, or not at all (`on_sums` is False)."""

    value: Any
    on_sums: bool = False
    timed: bool = False  # whether it depends on the arguments of f besides x
    number: Any = None  # the number, (), that all its entries are, if that is known

    def __post_init__(self) -> None:
        if self.number is None and prod(np.shape(self.value)) == 1:
            self.number = jnp.reshape(self.value, ()) if np.shape(self.value) else self.value


@dataclass(eq=False)
class Wide:
    """A quantity that depends on all of x, as a function of x.

    Attributes:
        shape: of its value.
        degree: 0, 1 or 2 if it is a polynomial in x of this degree, else None.
        coordinatewise: whether it has the shape (dim,) and entry i depends on x_i alone.
        timed: whether it depends on the arguments of f besides x, too.
        compute: its value, from the values of its inputs; None for x itself.
        inputs: wide quantities and arrays.
        factor: it is this number, (), times `base`, ...
        base: ... a wide quantity; None stands for itself.
        summand: for a sum over coordinates: the coordinatewise quantity g of which it is C g ...
        matrix: ... and C, (k, dim) or (dim,); None for a vector of ones.
        is_square: whether it is a square, or a sum of squares.
    """

    shape: tuple[int, ...]
    degree: int | None
    coordinatewise: bool
    timed: bool
    compute: Callable[..., Any] | None = None
    inputs: tuple[Any, ...] = ()
    factor: Any = 1.0
    base: Wide | None = None
    summand: Wide | None = None
    matrix: Any = None
    is_square: bool = False

    @property
    def is_quadratic(self) -> bool:
        """Whether it is a polynomial in x of degree two at most, the same at all times."""
        return self.degree is not None and not self.timed

    def value(self, x: Array, known: dict[int, Any] | None = None) -> Any:
        """The value at x (dim,)."""
        known = {} if known is None else known
        if self.compute is None:
            return x
        if id(self) not in known:
            inputs = (v.value(x, known) if isinstance(v, Wide) else v for v in self.inputs)
            known[id(self)] = self.compute(*inputs)
        return known[id(self)]


@dataclass(eq=False)
class _Combination:
    """Σ_a c_a v_a with factors c_a () that depend on sums, and wide v_a; None stands for 1."""

    shape: tuple[int, ...]
    terms: list[tuple[Any, Wide | None]]


@dataclass
class Interpreter:
    """Runs a jaxpr in which x is symbolic; `take` gives the value of each sum that is found."""

    dim: int
    take: Callable[[Wide], Any]
    sums: dict[Any, tuple[Wide, Any]] = field(default_factory=dict)
    wide: dict[Any, Wide] = field(default_factory=dict)  # by operation and inputs
    exponents: dict[int, Wide] = field(default_factory=dict)  # v, by the id of exp(v)
    largest: int = 1  # size of the largest array that depends on sums

    @property
    def few(self) -> int:
        """The largest number of components that become sums."""
        return min(MAX_SUMS, max(1, self.dim // 2))

    def run(self, closed: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
        """The outputs of a jaxpr."""
        jaxpr = closed.jaxpr
        known: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))
        known |= dict(zip(jaxpr.constvars, map(Narrow, closed.consts), strict=True))

        def read(v: Any) -> Any:
            return Narrow(v.val) if isinstance(v, Literal) else known[v]

        for eqn in jaxpr.eqns:
            inputs = [read(v) for v in eqn.invars]
            known |= dict(zip(eqn.outvars, self._apply(eqn, inputs), strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _apply(self, eqn: Any, inputs: list[Any]) -> list[Any]:
        """The outputs of one operation."""
        name, shape = eqn.primitive.name, eqn.outvars[0].aval.shape
        if name in _CALLS:
            return self.run(eqn.params[_CALLS[name]], inputs)
        if all(isinstance(v, Narrow) for v in inputs):
            on_sums, timed = (any(getattr(v, a) for v in inputs) for a in ("on_sums", "timed"))
            number = inputs[0].number if name == "broadcast_in_dim" else None
            if on_sums and number is not None and prod(shape) > self.few:
                return [_Combination(shape, [(number, None)])]
            values = bind(eqn, [v.value for v in inputs])
            if on_sums:
                self.largest = max(self.largest, *(prod(np.shape(v)) for v in values))
            return [Narrow(v, on_sums, timed, number) for v in values]
        if len(eqn.outvars) > 1:
            raise NotReducible(f"{name} of all coordinates")
        if any(isinstance(v, _Combination) or getattr(v, "on_sums", False) for v in inputs):
            return [self._combine(eqn, name, inputs, shape)]
        if shape == () and name in ("reduce_sum", "dot_general"):
            vectors = [v for v in inputs if _shape(v) == (self.dim,)]
            if len(vectors) == len(inputs) and _is_float64(eqn):
                return [self._combine(eqn, name, inputs, shape)]
        quantity = self._operate(eqn, name, inputs, shape)
        if prod(shape) > self.few:
            return [quantity]
        if eqn.outvars[0].aval.dtype != jnp.float64:
            raise NotReducible("a sum that is not of type float64")
        return [self.reduce(quantity)]

    def _operate(self, eqn: Any, name: str, inputs: list[Any], shape: tuple[int, ...]) -> Wide:
        """A wide quantity made from wide quantities and from numbers that do not depend on x."""
        key = (name, tuple(_identity(v) for v in inputs), str(eqn.params))
        if key in self.wide:
            return self.wide[key]
        if name == "log" and id(inputs[0]) in self.exponents:
            return self.exponents[id(inputs[0])]  # prices: users write log(x), and x is exp(y)
        degree = _degree(eqn, name, inputs)
        coordinatewise = (
            shape == (self.dim,)
            and _is_elementwise(eqn)
            and all(
                v.coordinatewise if isinstance(v, Wide) else np.shape(v.value) in ((), shape)
                for v in inputs
            )
        )
        summand, matrix = self._summand(eqn, name, inputs)
        if degree is None and not coordinatewise and summand is None:
            raise NotReducible(f"{name} mixes coordinates")
        factor, base = _factor(name, inputs)
        self.wide[key] = Wide(
            shape,
            degree,
            coordinatewise,
            any(v.timed for v in inputs),
            _FAST[name]
            if name in _FAST and _is_float64(eqn)
            else lambda *values: bind(eqn, values)[0],
            tuple(v if isinstance(v, Wide) else v.value for v in inputs),
            factor,
            base,
            summand,
            matrix,
            name == "square"
            or (name == "mul" and inputs[0] is inputs[1])
            or (name == "integer_pow" and eqn.params["y"] % 2 == 0)
            or (name == "reduce_sum" and inputs[0].is_square),
        )
        if name == "exp":
            self.exponents[id(self.wide[key])] = inputs[0]
        return self.wide[key]

    def _summand(self, eqn: Any, name: str, inputs: list[Any]) -> tuple[Wide | None, Any]:
        """g and C of a sum over coordinates C g; (None, None) if it is none."""
        first, second = inputs[0], inputs[-1]
        if name == "reduce_sum" and first.coordinatewise:
            return first, None
        if name != "dot_general":
            return None, None
        contracted, batch = eqn.params["dimension_numbers"]
        if any(map(len, batch)) or tuple(map(len, contracted)) != (1, 1):
            return None, None
        if isinstance(first, Wide) and isinstance(second, Wide):
            if first.coordinatewise and second.coordinatewise:
                return self._multiply(first, second), None
            return None, None
        wide, narrow = (first, second) if isinstance(first, Wide) else (second, first)
        axis = contracted[1 if wide is first else 0][0]
        if not wide.coordinatewise or np.ndim(narrow.value) > 2:
            return None, None
        matrix = narrow.value.T if np.ndim(narrow.value) == 2 and axis == 0 else narrow.value
        return (None, None) if narrow.timed else (wide, matrix)

    def _multiply(self, v: Wide, w: Wide) -> Wide:
        """The product of two wide quantities of the same shape."""
        key = ("mul", *sorted((id(v), id(w))))
        if key not in self.wide:
            degree = _limit(None if None in (v.degree, w.degree) else v.degree + w.degree)  # type: ignore[operator]
            coordinatewise = v.coordinatewise and w.coordinatewise
            if degree is None and not coordinatewise:
                raise NotReducible("a product mixes coordinates")
            timed = v.timed or w.timed
            self.wide[key] = Wide(
                v.shape, degree, coordinatewise, timed, jnp.multiply, (v, w), is_square=v is w
            )
        return self.wide[key]

    def reduce(self, quantity: Wide) -> Narrow:
        """Take the value of a wide quantity of few components: it is a sum over coordinates."""
        if id(quantity) not in self.sums:
            if not quantity.is_quadratic and quantity.summand is None:
                raise NotReducible("a function of single coordinates inside a vector")
            if quantity.degree == 2 and quantity.summand is None and self.dim > _FULL_HESSIAN:
                raise NotReducible("a quadratic form of many coordinates")
            self.sums[id(quantity)] = quantity, self.take(quantity)
        return Narrow(self.sums[id(quantity)][1], True, True)

    def _combine(self, eqn: Any, name: str, inputs: list[Any], shape: tuple[int, ...]) -> Any:
        """A linear operation on wide quantities with factors that depend on sums."""
        first, second = (self._terms(v) for v in (inputs[0], inputs[-1]))
        if not all(v.aval.dtype == jnp.float64 for v in (*eqn.invars, *eqn.outvars)):
            raise NotReducible(f"{name} of numbers that are not of type float64")
        is_scaling = name == "dot_general" and () in map(_shape, inputs)
        if name in ("add", "add_any", "sub"):
            sign = -1.0 if name == "sub" else 1.0
            terms = [*first, *((sign * c, v) for c, v in second)]
            if len({v is None for _, v in terms}) > 1:
                # As x - mean(x): the square, expanded, would lose digits.
                raise NotReducible("a vector shifted by a function of sums")
            return _Combination(shape, terms)
        if name == "neg":
            return _Combination(shape, [(-c, v) for c, v in first])
        if name in _COPIES and _is_float64(eqn):
            return inputs[0]
        if (
            is_scaling
            or name in ("mul", "square")
            or (name == "integer_pow" and eqn.params["y"] == 2)
        ):
            return _Combination(shape, self._products(first, second))
        if name == "div" and len(second) == 1 and second[0][1] is None:
            return _Combination(shape, [(c / second[0][0], v) for c, v in first])
        if name == "reduce_sum" and shape == ():
            return self._total(first, _shape(inputs[0]))
        if name == "dot_general" and shape == () and len(_shape(inputs[0])) == 1:
            return self._total(self._products(first, second), _shape(inputs[0]))
        raise NotReducible(f"{name} of a vector whose factor depends on x")

    def _terms(self, quantity: Any) -> list[tuple[Any, Wide | None]]:
        """A quantity as a list of terms."""
        if isinstance(quantity, _Combination):
            return quantity.terms
        if isinstance(quantity, Wide):
            return [(quantity.factor, quantity.base or quantity)]
        value, shape = quantity.value, np.shape(quantity.value)
        if quantity.number is not None:
            return [(quantity.number, None)]
        if quantity.on_sums:
            raise NotReducible("a vector of functions of sums")
        return [(1.0, Wide(shape, 0, shape == (self.dim,), quantity.timed, lambda: value))]

    def _products(self, first: list[Any], second: list[Any]) -> list[Any]:
        """Products of two lists of terms."""
        return [
            (c * e, v if w is None else w if v is None else self._multiply(v, w))
            for c, v in first
            for e, w in second
        ]

    def _total(self, terms: list[Any], shape: tuple[int, ...]) -> Narrow:
        """The sum over all entries of a combination."""
        total: Any = 0.0
        for factor, v in terms:
            if v is None:
                total = total + factor * float(prod(shape))
                continue
            key = ("total", id(v))
            if key not in self.wide:
                summand = v if v.coordinatewise else None
                self.wide[key] = Wide(
                    (),
                    v.degree,
                    False,
                    v.timed,
                    jnp.sum,
                    (v,),
                    summand=summand,
                    is_square=v.is_square,
                )
            total = total + factor * self.reduce(self.wide[key]).value
        return Narrow(total, True, True)


def bind(eqn: Any, values: Sequence[Any]) -> list[Any]:
    """The outputs of an operation for arrays."""
    result = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
    return list(result) if eqn.primitive.multiple_results else [result]


def _identity(quantity: Any) -> Any:
    """Equal for inputs that are surely the same."""
    if isinstance(quantity, Wide):
        return id(quantity)
    value = quantity.value
    return float(value) if isinstance(value, float | int | np.generic) else id(value)


def _shape(quantity: Any) -> tuple[int, ...]:
    return np.shape(quantity.value) if isinstance(quantity, Narrow) else quantity.shape


def _factor(name: str, inputs: list[Any]) -> tuple[Any, Wide | None]:
    """A wide quantity as a number times another one, if an operation shows that."""
    first, second = inputs[0], inputs[-1]
    if name == "neg":
        return -first.factor, first.base or first
    if name == "mul" and isinstance(first, Narrow):
        first, second = second, first
    if name not in ("mul", "div") or not isinstance(first, Wide):
        return 1.0, None
    if not isinstance(second, Narrow) or second.number is None:
        return 1.0, None
    number = second.number if name == "mul" else 1.0 / second.number
    return number * first.factor, first.base or first


def _is_float64(eqn: Any) -> bool:
    """Whether all arrays of an operation are float64: a cast is not linear."""
    return (
        all(v.aval.dtype == jnp.float64 for v in eqn.outvars)
        and all(
            jnp.issubdtype(v.aval.dtype, jnp.integer) or v.aval.dtype == jnp.float64
            for v in eqn.invars[1:]
        )
        and eqn.invars[0].aval.dtype == jnp.float64
    )


def _limit(degree: int | None) -> int | None:
    return degree if degree is not None and degree <= 2 else None


def _degree(eqn: Any, name: str, inputs: list[Any]) -> int | None:
    """The degree of an operation's result as a polynomial in x; None beyond two."""
    degrees = [v.degree if isinstance(v, Wide) else 0 for v in inputs]
    if not _is_float64(eqn):
        return None
    if name in _LINEAR_NAMES or name in _COPIES or name in ("neg", "div"):
        return degrees[0] if not any(isinstance(v, Wide) for v in inputs[1:]) else None
    if name == "integer_pow":
        power = eqn.params["y"]
        return _limit(None if degrees[0] is None or power < 0 else degrees[0] * power)
    known = [degree for degree in degrees if degree is not None]
    if len(known) < len(degrees):
        return None
    if name in ("add", "add_any", "sub", "concatenate", "pad"):
        return max(known)
    if name in ("mul", "dot_general"):
        return _limit(sum(known))
    return _limit(2 * known[0]) if name == "square" else None


def _is_elementwise(eqn: Any) -> bool:
    """Whether an operation acts on each entry alone; also calls with a rule for derivatives."""
    name = eqn.primitive.name
    if name in ("custom_jvp_call", "custom_vjp_call"):
        return all(map(_is_elementwise, eqn.params["call_jaxpr"].jaxpr.eqns))
    if name == "cond":
        return all(
            _is_elementwise(e) for branch in eqn.params["branches"] for e in branch.jaxpr.eqns
        )
    if name in _CALLS:
        return all(map(_is_elementwise, eqn.params[_CALLS[name]].jaxpr.eqns))
    is_known = name in _POLYNOMIAL or name in _COPIES or name in _ELEMENTWISE_NAMES
    # In a call, numbers may be spread over a vector.
    return is_known or (name == "broadcast_in_dim" and not eqn.invars[0].aval.shape)
