"""Functions of few sums over coordinates: f(t, x) = h(t, ℓ(x)), found in the jaxpr of f.

quadratic sums   ℓ_k(x) is a polynomial of degree two at most: x_1, a·x, |x|², x·Wx, Σ x_i x_{i+1}
additive sums    ℓ_k(t, x) = Σ_i c_ki g_i(t, x_i) with any g_i
The head h is all the rest. `CoordinateSums` finds the sums; `transport` evaluates f along x + σe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

from heatnets.pde.diffusion import Diagonal, Diffusion
from heatnets.pde.sum_finder import MAX_SUMS, Interpreter, Narrow, NotReducible, Wide


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
        self.sums: list[Wide] = []
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

    def _keep(self, quantity: Wide) -> Array:
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

        def take(quantity: Wide) -> Array:
            taken = [left.pop(0) for _ in range(prod(quantity.shape))]
            return jnp.stack(taken).reshape(quantity.shape) if quantity.shape else taken[0]

        return self._run(times, take)

    def _run(self, times: Sequence[Array], take: Callable[[Wide], Any]) -> Array:
        interpreter = Interpreter(self.dim, take)
        x: Any = Wide((self.dim,), 1, True, False)
        if self.dim == 1:
            x = interpreter.reduce(x)
        arguments = [*map(Narrow, self._arrays), *(Narrow(t, False, True) for t in times), x]
        (result,) = interpreter.run(self._closed, arguments)
        self.head_size = max(self.head_size, interpreter.largest)
        if not isinstance(result, Narrow):
            raise NotReducible("the result is a vector")
        return jnp.asarray(result.value, jnp.float64)


class _QuadraticAlong:
    """A quadratic sum q with m components along σ ↦ x + σe: q(x) + σ ∇q(x)·e + ½σ² e·He.

    All scalar products of a vector of the point with one of e are written as such: for many points
    and many e they are matrix products.
    """

    def __init__(self, quantity: Wide, x: Array, e: Array) -> None:
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

    def __init__(self, quantity: Wide, x: Array, e: Array) -> None:
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


def _along(quantity: Wide, x: Array, e: Array) -> _QuadraticAlong | _AdditiveAlong:
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
    """Which outputs of a jaxpr depend on which of its arguments, differentiably: a matrix.

    Not through truth values and integers: max(s, 0) has no second derivative in s.
    """
    jaxpr = closed.jaxpr
    reached: dict[Any, set[int]] = {v: {i} for i, v in enumerate(jaxpr.invars)}

    def found(v: Any) -> set[int]:
        return set() if isinstance(v, Literal) else reached.get(v, set())

    for eqn in jaxpr.eqns:
        union = set[int]().union(*(found(v) for v in eqn.invars))
        for v in eqn.outvars:
            reached[v] = union if jnp.issubdtype(v.aval.dtype, jnp.floating) else set()
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
