"""A weighted sum over features as a JAX primitive: a function of points inside JAX programs.

    S(points) = Σ_j terms(context, feature_j, weight_j, *point)  at each point

The primitive keeps, through all transformations of JAX, what JAX's own rules would lose:

batching       `jax.vmap` adds points to one sum in tiles; no array (points, features, dim) is made
derivatives    a derivative in a point is again such a sum, of the derivatives of the terms, of any
               order, forward and reverse; no intermediate values of all features are kept
precision      the program is float64 also inside a program of a JAX in float32
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, PyTree

from heatnets._core.compilation import compiled
from heatnets._core.execution import ExecutionContext
from heatnets._core.precision import with_x64
from heatnets._core.tiling import sum_in_program, sum_level

Terms = Callable[..., Array]

# Floats of a derivative, as a multiple of those of the terms: reverse mode keeps all intermediate
# values. With twice, tiles left the caches: gradients of reaction flows took 1.6 times as long.
_DERIVATIVE = 8


def sum_at_point(
    terms: Terms,
    blocks: list[tuple[Any, Array]],
    context: PyTree,
    point: Sequence[Array],
    workspace: int,
    ctx: ExecutionContext,
) -> Array:
    """Sum over all features of terms(context, features, weights, *point), at one point: ().

    Args:
        terms: a module-level function; maps a feature chunk, its weights and one point to the sum
            over the chunk, ().
        blocks: blocks of features with their weights, shape (features, ...).
        context: pytree, passed to `terms`.
        point: float64 arrays.
        workspace: the floats that one (point, feature) may need for intermediate values.
        ctx: device and memory limit.
    """
    arrays, rest = eqx.partition((blocks, context), _is_array)
    leaves, structure = jax.tree.flatten(arrays)
    program = _Program(terms, structure, _Static.of(rest), (), workspace, ctx)
    rows = (jax.lax.reshape(a, (1, *a.shape)) for a in point)
    return jax.lax.reshape(_sum_p.bind(*leaves, *rows, program=program), ())


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray)


@dataclass(frozen=True)
class _Static:
    """The leaves of a pytree that are not arrays, to be compared and hashed."""

    leaves: tuple[Any, ...]
    structure: Any

    @classmethod
    def of(cls, tree: PyTree) -> _Static:
        leaves, structure = jax.tree.flatten(tree)
        return cls(tuple(leaves), structure)


@dataclass(frozen=True)
class _Program:
    """What the primitive computes, without its arrays (leaves of blocks and context, points)."""

    terms: Terms
    structure: Any  # of the arrays of (blocks, context)
    rest: _Static  # (blocks, context) without their arrays
    shape: tuple[int, ...]  # of the result at one point
    workspace: int
    ctx: ExecutionContext

    def split(self, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The leaves of blocks and context, and the arrays of points."""
        count = self.structure.num_leaves
        return list(args[:count]), list(args[count:])

    def blocks_and_context(self, leaves: Sequence[Any]) -> tuple[list[tuple[Any, Array]], PyTree]:
        arrays = jax.tree.unflatten(self.structure, leaves)
        rest = jax.tree.unflatten(self.rest.structure, self.rest.leaves)
        return eqx.combine(arrays, rest)

    def differentiated(self, index: int) -> _Program:
        """The derivative in one argument of the points, along one more argument, the last."""
        terms = _Directional(self.terms, index)
        return replace(self, terms=terms, workspace=_DERIVATIVE * self.workspace)

    def transposed(self, shape: tuple[int, ...]) -> _Program:
        """The transpose of a sum that is linear in its last argument, which has a shape."""
        return replace(self, terms=_Transposed(self.terms, shape), shape=shape)


@dataclass(frozen=True)
class _Directional:
    """(..., *point, v) ↦ the derivative of `terms` in argument `index` of the point, along v."""

    terms: Terms
    index: int

    def __call__(self, context: PyTree, features: Any, weights: Array, *args: Array) -> Array:
        *point, v = args
        along = self.of_argument(context, features, weights, point)
        return jax.jvp(along, (point[self.index],), (v,))[1]

    def of_argument(
        self, context: PyTree, features: Any, weights: Array, point: Sequence[Array]
    ) -> Callable[[Array], Array]:
        """`terms` as a function of the argument alone."""

        def function(argument: Array) -> Array:
            moved = [*point[: self.index], argument, *point[self.index + 1 :]]
            return self.terms(context, features, weights, *moved)

        return function


@dataclass(frozen=True)
class _Transposed:
    """(..., *point, c) ↦ Lᵀc, where `terms` is L v, linear in its last argument v."""

    terms: Terms
    shape: tuple[int, ...]  # of v

    def __call__(self, context: PyTree, features: Any, weights: Array, *args: Array) -> Array:
        *point, c = args

        def linear(v: Array) -> Array:
            return self.terms(context, features, weights, *point, v)

        zero = jnp.zeros(self.shape)
        try:
            if isinstance(self.terms, _Directional):  # the gradient, as JAX computes it
                function = self.terms.of_argument(context, features, weights, point)
                return jax.vjp(function, point[self.terms.index])[1](c)[0]
            return jax.linear_transpose(linear, zero)(c)[0]
        except Exception:  # loops of unknown length have no reverse mode
            units = jnp.eye(zero.size).reshape(-1, *self.shape)
            return jax.vmap(lambda e: jnp.vdot(linear(e), c))(units).reshape(self.shape)


@with_x64
def _evaluate(program: _Program, *args: Array) -> Array:
    """The sums at n points, (n, *program.shape)."""
    leaves, points = program.split(args)
    blocks, context = program.blocks_and_context(leaves)
    floats = program.workspace
    return sum_in_program(program.terms, blocks, context, tuple(points), floats, program.ctx)


_compiled = compiled(_evaluate)


@with_x64
def _run(*args: Array, program: _Program) -> Array:
    """The primitive outside of a program."""
    leaves, points = program.split(args)
    blocks, _ = program.blocks_and_context(leaves)
    level = sum_level(blocks, tuple(points), program.workspace)
    return _compiled(program, *args, level=level)


def _shape(*args: Any, program: _Program) -> Any:
    """The shape and the dtype of the result."""
    points = program.split(args)[1]
    return jax.core.ShapedArray((points[0].shape[0], *program.shape), jnp.dtype(np.float64))


@with_x64
def _batched(args: Sequence[Any], axes: Sequence[Any], *, program: _Program) -> tuple[Array, int]:
    """A batch of n points each: one sum at all of their points."""
    leaves_axes, points_axes = program.split(axes)
    if any(axis is not None for axis in leaves_axes):  # a batch of networks
        return jax.vmap(lambda *a: _evaluate(program, *a), tuple(axes))(*args), 0
    leaves, points = program.split(args)
    pairs = list(zip(points, points_axes, strict=True))
    size = next(p.shape[axis] for p, axis in pairs if axis is not None)
    moved = [batching.bdim_at_front(p, axis, size) for p, axis in pairs]
    count = moved[0].shape[1]
    flat = (jax.lax.reshape(p, (size * count, *p.shape[2:])) for p in moved)
    sums = _sum_p.bind(*leaves, *flat, program=program)
    return jax.lax.reshape(sums, (size, count, *program.shape)), 0


@with_x64
def _differentiate(
    args: Sequence[Any], tangents: Sequence[Any], *, program: _Program
) -> tuple[Array, Any]:
    """Derivatives along tangents of points; along those of weights by JAX's own rules."""
    leaves, points = program.split(args)
    leaves_tangents, points_tangents = program.split(tangents)
    value = _sum_p.bind(*args, program=program)
    total = ad.Zero(_tangent_type(value))
    for i, v in enumerate(points_tangents):
        if type(v) is not ad.Zero:
            part = _sum_p.bind(*args, v, program=program.differentiated(i))
            total = ad.add_tangents(total, part)
    moving = [i for i, v in enumerate(leaves_tangents) if type(v) is not ad.Zero]
    if moving:

        def of_leaves(*moved: Array) -> Array:
            arrays = dict(enumerate(leaves)) | dict(zip(moving, moved, strict=True))
            return _evaluate(program, *arrays.values(), *points)

        primals = tuple(leaves[i] for i in moving)
        along = tuple(leaves_tangents[i] for i in moving)
        total = ad.add_tangents(total, jax.jvp(of_leaves, primals, along)[1])
    return value, total


def _tangent_type(value: Any) -> Any:
    return jax.core.ShapedArray(value.shape, value.dtype)


@with_x64
def _transpose(cotangent: Any, *args: Any, program: _Program) -> list[Any]:
    """The cotangent of the last argument, in which the sum is linear."""
    *known, last = args
    transposed = program.transposed(last.aval.shape[1:])
    return [None] * len(known) + [_sum_p.bind(*known, cotangent, program=transposed)]


_sum_p = Primitive("sum_over_features")
_sum_p.def_impl(_run)
_sum_p.def_abstract_eval(_shape)
ad.primitive_jvps[_sum_p] = _differentiate
ad.primitive_transposes[_sum_p] = _transpose
batching.primitive_batchers[_sum_p] = _batched
_lower_sum = mlir.lower_fun(
    lambda *args, program: _evaluate(program, *args), multiple_results=False
)
# Operations inside of it may be traced only when they are lowered: that, too, is in float64.
mlir.register_lowering(_sum_p, with_x64(_lower_sum))
