"""Functions of few sums over coordinates: f(t, x) = h(t, ℓ(x)), found in the jaxpr of f.

quadratic sums   ℓ_k(x) is a polynomial of degree two at most: x_1, a·x, |x|², x·Wx, Σ x_i x_{i+1}
additive sums    ℓ_k(t, x) = Σ_i c_ki g_i(t, x_i) with any g_i
The head h is all the rest. `CoordinateSums` finds the sums; `transport` evaluates f along x + σe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations_with_replacement
from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from jaxtyping import Array

from heatnets._core import elementary
from heatnets.pde.diffusion import Diagonal, Diffusion

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
class _Narrow:
    """A quantity that depends on x through sums alone, or not at all (`on_sums` is False)."""

    value: Any
    on_sums: bool = False
    timed: bool = False  # whether it depends on the arguments of f besides x
    number: Any = None  # the number, (), that all its entries are, if that is known

    def __post_init__(self) -> None:
        if self.number is None and prod(np.shape(self.value)) == 1:
            self.number = jnp.reshape(self.value, ()) if np.shape(self.value) else self.value


@dataclass(eq=False)
class _Wide:
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
    base: _Wide | None = None
    summand: _Wide | None = None
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
            inputs = (v.value(x, known) if isinstance(v, _Wide) else v for v in self.inputs)
            known[id(self)] = self.compute(*inputs)
        return known[id(self)]


@dataclass(eq=False)
class _Combination:
    """Σ_a c_a v_a with factors c_a () that depend on sums, and wide v_a; None stands for 1."""

    shape: tuple[int, ...]
    terms: list[tuple[Any, _Wide | None]]


@dataclass
class _Interpreter:
    """Runs a jaxpr in which x is symbolic; `take` gives the value of each sum that is found."""

    dim: int
    take: Callable[[_Wide], Any]
    sums: dict[Any, tuple[_Wide, Any]] = field(default_factory=dict)
    wide: dict[Any, _Wide] = field(default_factory=dict)  # by operation and inputs
    largest: int = 1  # size of the largest array that depends on sums

    @property
    def few(self) -> int:
        """The largest number of components that become sums."""
        return min(MAX_SUMS, max(1, self.dim // 2))

    def run(self, closed: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
        """The outputs of a jaxpr."""
        jaxpr = closed.jaxpr
        known: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))
        known |= dict(zip(jaxpr.constvars, map(_Narrow, closed.consts), strict=True))

        def read(v: Any) -> Any:
            return _Narrow(v.val) if isinstance(v, Literal) else known[v]

        for eqn in jaxpr.eqns:
            inputs = [read(v) for v in eqn.invars]
            known |= dict(zip(eqn.outvars, self._apply(eqn, inputs), strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _apply(self, eqn: Any, inputs: list[Any]) -> list[Any]:
        """The outputs of one operation."""
        name, shape = eqn.primitive.name, eqn.outvars[0].aval.shape
        if name in _CALLS:
            return self.run(eqn.params[_CALLS[name]], inputs)
        if all(isinstance(v, _Narrow) for v in inputs):
            on_sums, timed = (any(getattr(v, a) for v in inputs) for a in ("on_sums", "timed"))
            number = inputs[0].number if name == "broadcast_in_dim" else None
            if on_sums and number is not None and prod(shape) > self.few:
                return [_Combination(shape, [(number, None)])]
            values = _bind(eqn, [v.value for v in inputs])
            if on_sums:
                self.largest = max(self.largest, *(prod(np.shape(v)) for v in values))
            return [_Narrow(v, on_sums, timed, number) for v in values]
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

    def _operate(self, eqn: Any, name: str, inputs: list[Any], shape: tuple[int, ...]) -> _Wide:
        """A wide quantity made from wide quantities and from numbers that do not depend on x."""
        key = (name, tuple(_identity(v) for v in inputs), str(eqn.params))
        if key in self.wide:
            return self.wide[key]
        degree = _degree(eqn, name, inputs)
        coordinatewise = (
            shape == (self.dim,)
            and _is_elementwise(eqn)
            and all(
                v.coordinatewise if isinstance(v, _Wide) else np.shape(v.value) in ((), shape)
                for v in inputs
            )
        )
        summand, matrix = self._summand(eqn, name, inputs)
        if degree is None and not coordinatewise and summand is None:
            raise NotReducible(f"{name} mixes coordinates")
        factor, base = _factor(name, inputs)
        self.wide[key] = _Wide(
            shape,
            degree,
            coordinatewise,
            any(v.timed for v in inputs),
            _FAST[name]
            if name in _FAST and _is_float64(eqn)
            else lambda *values: _bind(eqn, values)[0],
            tuple(v if isinstance(v, _Wide) else v.value for v in inputs),
            factor,
            base,
            summand,
            matrix,
            name == "square"
            or (name == "mul" and inputs[0] is inputs[1])
            or (name == "integer_pow" and eqn.params["y"] % 2 == 0)
            or (name == "reduce_sum" and inputs[0].is_square),
        )
        return self.wide[key]

    def _summand(self, eqn: Any, name: str, inputs: list[Any]) -> tuple[_Wide | None, Any]:
        """g and C of a sum over coordinates C g; (None, None) if it is none."""
        first, second = inputs[0], inputs[-1]
        if name == "reduce_sum" and first.coordinatewise:
            return first, None
        if name != "dot_general":
            return None, None
        contracted, batch = eqn.params["dimension_numbers"]
        if any(map(len, batch)) or tuple(map(len, contracted)) != (1, 1):
            return None, None
        if isinstance(first, _Wide) and isinstance(second, _Wide):
            if first.coordinatewise and second.coordinatewise:
                return self._multiply(first, second), None
            return None, None
        wide, narrow = (first, second) if isinstance(first, _Wide) else (second, first)
        axis = contracted[1 if wide is first else 0][0]
        if not wide.coordinatewise or np.ndim(narrow.value) > 2:
            return None, None
        matrix = narrow.value.T if np.ndim(narrow.value) == 2 and axis == 0 else narrow.value
        return (None, None) if narrow.timed else (wide, matrix)

    def _multiply(self, v: _Wide, w: _Wide) -> _Wide:
        """The product of two wide quantities of the same shape."""
        key = ("mul", *sorted((id(v), id(w))))
        if key not in self.wide:
            degree = _limit(None if None in (v.degree, w.degree) else v.degree + w.degree)  # type: ignore[operator]
            coordinatewise = v.coordinatewise and w.coordinatewise
            if degree is None and not coordinatewise:
                raise NotReducible("a product mixes coordinates")
            timed = v.timed or w.timed
            self.wide[key] = _Wide(
                v.shape, degree, coordinatewise, timed, jnp.multiply, (v, w), is_square=v is w
            )
        return self.wide[key]

    def reduce(self, quantity: _Wide) -> _Narrow:
        """Take the value of a wide quantity of few components: it is a sum over coordinates."""
        if id(quantity) not in self.sums:
            if not quantity.is_quadratic and quantity.summand is None:
                raise NotReducible("a function of single coordinates inside a vector")
            if quantity.degree == 2 and quantity.summand is None and self.dim > _FULL_HESSIAN:
                raise NotReducible("a quadratic form of many coordinates")
            self.sums[id(quantity)] = quantity, self.take(quantity)
        return _Narrow(self.sums[id(quantity)][1], True, True)

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

    def _terms(self, quantity: Any) -> list[tuple[Any, _Wide | None]]:
        """A quantity as a list of terms."""
        if isinstance(quantity, _Combination):
            return quantity.terms
        if isinstance(quantity, _Wide):
            return [(quantity.factor, quantity.base or quantity)]
        value, shape = quantity.value, np.shape(quantity.value)
        if quantity.number is not None:
            return [(quantity.number, None)]
        if quantity.on_sums:
            raise NotReducible("a vector of functions of sums")
        return [(1.0, _Wide(shape, 0, shape == (self.dim,), quantity.timed, lambda: value))]

    def _products(self, first: list[Any], second: list[Any]) -> list[Any]:
        """Products of two lists of terms."""
        return [
            (c * e, v if w is None else w if v is None else self._multiply(v, w))
            for c, v in first
            for e, w in second
        ]

    def _total(self, terms: list[Any], shape: tuple[int, ...]) -> _Narrow:
        """The sum over all entries of a combination."""
        total: Any = 0.0
        for factor, v in terms:
            if v is None:
                total = total + factor * float(prod(shape))
                continue
            key = ("total", id(v))
            if key not in self.wide:
                summand = v if v.coordinatewise else None
                self.wide[key] = _Wide(
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
        return _Narrow(total, True, True)


def _bind(eqn: Any, values: Sequence[Any]) -> list[Any]:
    """The outputs of an operation for arrays."""
    result = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
    return list(result) if eqn.primitive.multiple_results else [result]


def _identity(quantity: Any) -> Any:
    """Equal for inputs that are surely the same."""
    if isinstance(quantity, _Wide):
        return id(quantity)
    value = quantity.value
    return float(value) if isinstance(value, float | int | np.generic) else id(value)


def _shape(quantity: Any) -> tuple[int, ...]:
    return np.shape(quantity.value) if isinstance(quantity, _Narrow) else quantity.shape


def _factor(name: str, inputs: list[Any]) -> tuple[Any, _Wide | None]:
    """A wide quantity as a number times another one, if an operation shows that."""
    first, second = inputs[0], inputs[-1]
    if name == "neg":
        return -first.factor, first.base or first
    if name == "mul" and isinstance(first, _Narrow):
        first, second = second, first
    if name not in ("mul", "div") or not isinstance(first, _Wide):
        return 1.0, None
    if not isinstance(second, _Narrow) or second.number is None:
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
    degrees = [v.degree if isinstance(v, _Wide) else 0 for v in inputs]
    if not _is_float64(eqn):
        return None
    if name in _LINEAR_NAMES or name in _COPIES or name in ("neg", "div"):
        return degrees[0] if not any(isinstance(v, _Wide) for v in inputs[1:]) else None
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


@lru_cache(maxsize=256)
def _jaxpr(rest: Any, structure: Any, shapes: Any, times: int, dim: int) -> ClosedJaxpr:
    """The jaxpr of a function of its own arrays, the times and x; traced once per shape."""

    def call(*args: Array) -> Array:
        arrays = jax.tree.unflatten(structure, args[: len(shapes)])
        return eqx.combine(arrays, rest)(*args[len(shapes) :])

    own = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    numbers = [jax.ShapeDtypeStruct((), jnp.float64)] * times
    return jax.make_jaxpr(call)(*own, *numbers, jax.ShapeDtypeStruct((dim,), jnp.float64))


class CoordinateSums:
    """The form h(times, ℓ) of a function f(*times, x), with the sums ℓ in the order found.

    Raises `NotReducible` if there is no such form. Made anew in each trace: the arrays that f uses
    may be traced.
    """

    def __init__(self, f: Callable[..., Array], times: Sequence[Array], dim: int) -> None:
        self.dim = dim
        if any(map(np.ndim, times)):
            raise NotReducible("arguments besides x that are vectors")
        arrays, rest = eqx.partition(f, lambda leaf: isinstance(leaf, jax.Array | np.ndarray))
        self._arrays, structure = jax.tree.flatten(arrays)
        shapes = tuple((np.shape(a), str(jnp.result_type(a))) for a in self._arrays)
        self.sums: list[_Wide] = []
        self.head_size = 1  # of the largest array of the head
        try:
            self._closed = _jaxpr(rest, structure, shapes, len(times), dim)
            self._run(times, self._keep)
        except NotReducible:
            raise
        except Exception as error:  # what the interpreter does not know
            raise NotReducible(f"{type(error).__name__} in its program") from error
        if sum(self.sizes) > MAX_SUMS:
            raise NotReducible(f"more than {MAX_SUMS} sums over coordinates")

    def _keep(self, quantity: _Wide) -> Array:
        """Keep a sum; any value serves to go on."""
        self.sums.append(quantity)
        return jnp.zeros(quantity.shape)

    @property
    def sizes(self) -> list[int]:
        """Numbers of components of the sums."""
        return [prod(quantity.shape) for quantity in self.sums]

    def head(self, times: Sequence[Array], components: Sequence[Array]) -> Array:
        """h: the value of f for components of the sums, each of shape ()."""
        left = list(components)

        def take(quantity: _Wide) -> Array:
            taken = [left.pop(0) for _ in range(prod(quantity.shape))]
            return jnp.stack(taken).reshape(quantity.shape) if quantity.shape else taken[0]

        return self._run(times, take)

    def _run(self, times: Sequence[Array], take: Callable[[_Wide], Any]) -> Array:
        interpreter = _Interpreter(self.dim, take)
        x: Any = _Wide((self.dim,), 1, True, False)
        if self.dim == 1:
            x = interpreter.reduce(x)
        arguments = [*map(_Narrow, self._arrays), *(_Narrow(t, False, True) for t in times), x]
        (result,) = interpreter.run(self._closed, arguments)
        self.head_size = max(self.head_size, interpreter.largest)
        if not isinstance(result, _Narrow):
            raise NotReducible("the result is a vector")
        return jnp.asarray(result.value, jnp.float64)


class _QuadraticAlong:
    """A quadratic sum q with m components along σ ↦ x + σe: q(x) + σ ∇q(x)·e + ½σ² e·He.

    All scalar products of a vector of the point with one of e are written as such: for many points
    and many e they are matrix products.
    """

    def __init__(self, quantity: _Wide, x: Array, e: Array) -> None:
        def components(y: Array) -> Array:
            return jnp.reshape(quantity.value(y), (-1,))

        self._gradients = jax.jacrev(components)
        self._quantity, zero = quantity, jnp.zeros_like(x)
        self.is_affine = quantity.degree in (0, 1)
        self.gradient = self._gradients(zero if self.is_affine else x)  # (m, dim)
        self.value, self.slope = components(x), self.gradient @ e
        if not self.is_affine:
            self.change = jax.jvp(self._gradients, (zero,), (e,))[1]  # He, (m, dim)
            self.curvature = self.change @ e

    def components(self, shift: Array) -> Array:
        """Its components at σ = shift, (m,)."""
        line = self.value + shift * self.slope
        if self.is_affine:
            return line
        total = line + 0.5 * shift**2 * self.curvature
        # Rounding must not make a sum of squares negative.
        return jnp.where(total < 0, 0.0, total) if self._quantity.is_square else total

    def gradients(self, shift: Array, scale: Callable[[Array], Array]) -> Array:
        """Sᵀ∇ of its components at σ = shift, (m, dim)."""
        gradient = scale(self.gradient)
        return gradient if self.is_affine else gradient + shift * scale(self.change)

    def products(
        self, other: _QuadraticAlong, shift: Array, scale: Callable[[Array], Array]
    ) -> Array:
        """Scalar products of Sᵀ∇ of its components with those of another sum, (m, n)."""
        a, b = scale(self.gradient), scale(other.gradient)
        total = a @ b.T
        if not other.is_affine:
            total = total + shift * (a @ scale(other.change).T)
        if not self.is_affine:
            total = total + shift * (scale(self.change) @ b.T)
        if not self.is_affine and not other.is_affine:
            total = total + shift**2 * (scale(self.change) @ scale(other.change).T)
        return total

    def traces(self, diffusion: Diffusion, dim: int) -> Array | None:
        """tr(A D²q) of its components, (m,); None for zero."""
        if self.is_affine:
            return None
        zero = jnp.zeros(dim)

        def hessian_times(v: Array) -> Array:
            return jax.jvp(self._gradients, (zero,), (v,))[1]

        if self._quantity.summand is not None:  # the Hessians are diagonal
            return jnp.sum(diffusion.std**2 * hessian_times(jnp.ones(dim)), axis=1)
        columns = diffusion.apply_sqrt(jnp.eye(dim))  # rows are the S e_i
        return jnp.sum(jax.vmap(lambda v: hessian_times(v) @ v)(columns), axis=0)


class _AdditiveAlong:
    """An additive sum C g(x) with m components along σ ↦ x + σe."""

    is_affine = False

    def __init__(self, quantity: _Wide, x: Array, e: Array) -> None:
        assert quantity.summand is not None
        self._quantity, self._summand, self._x, self._e = quantity, quantity.summand, x, e

    def components(self, shift: Array) -> Array:
        """Its components at σ = shift, (m,)."""
        return jnp.reshape(self._quantity.value(self._x + shift * self._e), (-1,))

    def _derivative(self, order: int, shift: Array) -> Array:
        """The derivative of the g_i in their coordinates, (dim,)."""
        f: Callable[[Array], Array] = self._summand.value
        for _ in range(order):
            f = _coordinate_derivative(f)
        return f(self._x + shift * self._e)

    @property
    def _matrix(self) -> Array:
        matrix = self._quantity.matrix
        return jnp.ones((1, self._x.size)) if matrix is None else jnp.atleast_2d(matrix)

    def gradients(self, shift: Array, scale: Callable[[Array], Array]) -> Array:
        """Sᵀ∇ of its components at σ = shift, (m, dim)."""
        return scale(self._matrix * self._derivative(1, shift))

    def traces(self, diffusion: Diffusion, shift: Array) -> Array:
        """tr(A D²) of its components at σ = shift, (m,)."""
        second = diffusion.std**2 * self._derivative(2, shift)
        return self._matrix @ second if self._quantity.matrix is not None else jnp.sum(second)[None]


def _coordinate_derivative(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """The derivatives of the entries of a coordinatewise f, each in its own coordinate."""
    return lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1]


def _along(quantity: _Wide, x: Array, e: Array) -> _QuadraticAlong | _AdditiveAlong:
    return (_QuadraticAlong if quantity.is_quadratic else _AdditiveAlong)(quantity, x, e)


def transport(
    f: Callable[..., Array], times: Sequence[Array], x: Array, shift: Array, e: Array
) -> Array:
    """f(*times, x + shift e), by its sums over coordinates."""
    form = CoordinateSums(f, times, x.size)
    parts = [_along(quantity, x, e).components(shift) for quantity in form.sums]
    return form.head(times, [c for part in parts for c in part])


def transport_with_residual(
    f: Callable[..., Array],
    path: Callable[[Array], tuple[tuple[Array, ...], Array]],
    t: Array,
    x: Array,
    e: Array,
    diffusion: Diffusion,
) -> tuple[Array, Array]:
    """φ = f(*times(t), x + σ(t) e) and (∂_t - tr(A D²)) φ, by the sums of f over coordinates.

    Args:
        f: function of numbers (times) and x (dim,).
        path: maps t to the times and σ.
        t: the time, ().
        x: the point, (dim,).
        e: the direction, (dim,).
        diffusion: A.
    """
    times, shift = path(t)
    form = CoordinateSums(f, times, x.size)
    fixed = [_along(quantity, x, e) for quantity in form.sums]

    def components(s: Array) -> list[Array]:
        """The components of the sums at the time s."""
        times, shift = path(s)
        sums, parts = fixed, []
        if any(quantity.timed for quantity in form.sums):
            sums = [_along(q, x, e) for q in CoordinateSums(f, times, x.size).sums]
        for now, before in zip(sums, fixed, strict=True):
            is_fixed = isinstance(before, _QuadraticAlong)
            parts.append((before if is_fixed else now).components(shift))
        return [c for part in parts for c in part]

    values, rates = jax.jvp(components, (t,), (jnp.ones_like(t),))
    times, time_rates = jax.jvp(lambda s: path(s)[0], (t,), (jnp.ones_like(t),))
    traces, products = _second_order(form, fixed, times, values, shift, diffusion)
    tangents = [
        rate if trace is None else rate - trace for rate, trace in zip(rates, traces, strict=True)
    ]

    def head(times: Sequence[Array], components: Sequence[Array]) -> Array:
        return form.head(times, components)

    value, change = jax.jvp(head, (times, values), (time_rates, tangents))
    return value, change - products


def _second_order(
    form: CoordinateSums,
    sums: list[Any],
    times: Sequence[Array],
    values: list[Array],
    shift: Array,
    diffusion: Diffusion,
) -> tuple[list[Array | None], Array]:
    """tr(A D²ℓ_k) for each component k (None for zero), and Σ_kl h_kl ∇ℓ_k·A∇ℓ_l."""
    dim = form.dim
    scale = _transposed_sqrt(diffusion, dim)
    traces: list[Array | None] = []
    owner: list[tuple[int, int]] = []  # of each component: its sum, and its number there
    for i, (along, size) in enumerate(zip(sums, form.sizes, strict=True)):
        argument = dim if isinstance(along, _QuadraticAlong) else shift
        trace = along.traces(diffusion, argument)
        traces += [None] * size if trace is None else list(trace)
        owner += [(i, k) for k in range(size)]
    known: dict[tuple[int, int], Array] = {}

    def product(k: int, m: int) -> Array:
        """∇ℓ_k·A∇ℓ_m."""
        (i, a), (j, b) = owner[k], owner[m]
        if (i, j) not in known:
            first, second = sums[i], sums[j]
            if isinstance(first, _QuadraticAlong) and isinstance(second, _QuadraticAlong):
                known[i, j] = first.products(second, shift, scale)
            else:
                known[i, j] = first.gradients(shift, scale) @ second.gradients(shift, scale).T
        return known[i, j][a, b]

    total, (index, second) = jnp.zeros(()), _head_hessian(form, times, values)
    for (a, k), (b, m) in combinations_with_replacement(enumerate(index), 2):
        total = total + (1.0 if k == m else 2.0) * second[a, b] * product(k, m)
    return traces, total


def _head_hessian(
    form: CoordinateSums, times: Sequence[Array], values: list[Array]
) -> tuple[list[int], Array]:
    """The components in which h is not linear, by its structure, and its Hessian in these."""

    def head(components: Array) -> Array:
        return form.head(times, list(components))

    def by_forward_mode(components: Array) -> Array:
        return jnp.stack([jax.jvp(head, (components,), (e,))[1] for e in jnp.eye(len(values))])

    gradient: Callable[[Array], Array] = jax.grad(head)
    point = jnp.stack(values) if values else jnp.zeros(0)
    if not values:
        return [], point
    try:
        slopes = jax.make_jaxpr(lambda *v: jax.grad(lambda v: form.head(times, v))(list(v)))(
            *values
        )
    except Exception:  # a loop of unknown length has no reverse mode
        gradient, index = by_forward_mode, list(range(len(values)))
    else:
        depends = _dependencies(slopes)
        index = [k for k, row in enumerate(depends) if any(row)]
        if not index:
            return [], jnp.zeros((0, 0))
    if len(index) == 1:  # forward mode twice: less to trace and to compute
        (k,) = index

        def along(a: Array) -> Array:
            return form.head(times, [*values[:k], a, *values[k + 1 :]])

        one = jnp.ones(())
        second = jax.jvp(lambda a: jax.jvp(along, (a,), (one,))[1], (values[k],), (one,))[1]
        return index, second[None, None]
    directions = jnp.eye(len(values))[jnp.asarray(index)]
    rows = jax.vmap(lambda e: jax.jvp(gradient, (point,), (e,))[1])(directions)
    return index, rows[:, jnp.asarray(index)]


def _dependencies(closed: ClosedJaxpr) -> list[list[bool]]:
    """Which outputs of a jaxpr depend on which of its arguments: a matrix."""
    jaxpr = closed.jaxpr
    reached: dict[Any, set[int]] = {v: {i} for i, v in enumerate(jaxpr.invars)}

    def found(v: Any) -> set[int]:
        return set() if isinstance(v, Literal) else reached.get(v, set())

    for eqn in jaxpr.eqns:
        union = set[int]().union(*(found(v) for v in eqn.invars))
        reached.update(dict.fromkeys(eqn.outvars, union))
    return [[i in found(v) for i in range(len(jaxpr.invars))] for v in jaxpr.outvars]


def laplacian(f: Callable[..., Array], args: Sequence[Array], diffusion: Diffusion) -> Array:
    """tr(A D²f) in the last argument x, by the sums of f over coordinates."""
    *times, x = args
    form, one = CoordinateSums(f, times, x.size), jnp.ones(())
    # As x/2 + x/2: a check of this Laplacian then is one of the formulas along paths, too.
    sums = [_along(quantity, 0.5 * x, 0.5 * x) for quantity in form.sums]
    values = [c for along in sums for c in along.components(one)]
    traces, products = _second_order(form, sums, times, values, one, diffusion)
    tangents = [jnp.zeros(()) if trace is None else trace for trace in traces]
    if not values:
        return jnp.zeros(())
    first = jax.jvp(lambda v: form.head(times, v), (values,), (tangents,))[1]
    return first + products


def _transposed_sqrt(diffusion: Diffusion, dim: int) -> Callable[[Array], Array]:
    """Rows v (m, dim) ↦ rows Sᵀv."""
    if isinstance(diffusion, Diagonal):
        return diffusion.apply_sqrt
    transpose = jax.vjp(diffusion.apply_sqrt, jnp.zeros(dim))[1]
    return jax.vmap(lambda row: transpose(row)[0])


def describe(f: Callable[..., Array], shapes: Sequence[Any]) -> tuple[bool, int]:
    """Whether f has additive sums besides quadratic ones, and the size of its head's arrays.

    `shapes` are those of its arguments. Raises `NotReducible` if f has no such form.
    """
    forms: list[CoordinateSums] = []

    def find(*args: Array) -> Array:
        *times, x = args
        forms.append(CoordinateSums(f, times, x.size))
        return x

    jax.eval_shape(find, *shapes)
    (form,) = forms
    return not all(quantity.is_quadratic for quantity in form.sums), form.head_size
