"""Search for kinks and jumps of a problem's functions, which residuals of the equation do not show.

(For u0 = max(x, 0) a fit to the equation returns u0, wrong by a third, with zero residual.) Method:
on random segments g(s) = f(start + s (end - start)), compare the changes of g and g' with Gauss
quadratures of g' and g''. Where they differ, bisect towards the larger difference: a steep smooth
function is resolved in the end; for a kink the jump of the slope does not shrink.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from heatnets._core import streams
from heatnets._core.execution import ExecutionContext
from heatnets._core.tiling import map_points
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.coefficients import CoefficientField
from heatnets.pde.function import Function
from heatnets.pde.function_checks import check_differentiable
from heatnets.pde.function_values import Arrays, choose_half, evaluate_at, has_jump

# Gauss nodes and weights on [0, 1].
_NODES, _WEIGHTS = (
    0.5 * (a + b) for a, b in zip(np.polynomial.legendre.leggauss(16), (1.0, 0.0), strict=True)
)
# 2000 segments up to d = 1000, fewer beyond, 256 at least: kinks cross 7 to 58 % of segments.
_COORDINATES = 2e6
_HALVINGS = 8  # a transition within 1/256 of a segment acts like a kink on collocation points too
# If a smaller share of segments has a kink it hardly matters (or it is a jump of the curvature).
_NEGLIGIBLE = 0.001
_TOLERANCE = 1e-6  # relative to the size of derivatives: smooth segments only have rounding errors


def find_kinks(
    problem: CanonicalProblem,
    seed: int,
    ctx: ExecutionContext,
    points: tuple[np.ndarray, np.ndarray] | None = None,
) -> dict[str, float]:
    """Search for kinks and jumps of the initial condition, coefficients and source of a problem.

    Args:
        problem: the canonical problem.
        seed: seed of the random segments.
        ctx: the execution context.
        points: times (n,) and points (n, dim). Segments join points on paths from these; if None,
            on paths from the region.

    Returns:
        For each function with kinks or jumps, the share of segments on which it has one. Shares
        below 0.001 are left out if `points` is None. Kinks that features integrate do not count;
        `preintegration_choice.line_errors` says where they miss some.
    """
    n = int(np.clip(_COORDINATES / problem.dim, 256, 2000))
    (t0, x0), (t1, x1) = _segments(problem, streams.generator(seed, "segments"), n, points)
    name = problem.data_name
    if problem.preintegration is None:
        shares = {name: _kink_share(name, problem.initial, (x0,), (x1,), ctx)}
    else:  # features integrate its kinks
        shares = {}
    if problem.coefficients is not None:
        for name in problem.coefficients.functions:
            combination = Function(_RandomCombination(problem.coefficients, name))
            shares[name] = _kink_share(name, combination, (t0, x0), (t1, x1), ctx)
    if problem.feature_source is not None:
        shares["source"] = _kink_share("source", problem.feature_source, (t0, x0), (t1, x1), ctx)
    threshold = _NEGLIGIBLE if points is None else 0.0
    return {name: share for name, share in shares.items() if share > threshold}


def _segments(
    problem: CanonicalProblem,
    rng: np.random.Generator,
    n: int,
    points: tuple[np.ndarray, np.ndarray] | None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Both ends of n segments, times (n,) and points (n, dim) on paths; see `find_kinks`."""
    ends = []
    for _ in range(2):
        if points is None:
            t, x = problem.region.at_fractions(
                np.ones(n), problem.horizon, problem.region.sample(rng, n, problem.dim)
            )
        else:
            chosen = rng.integers(len(points[0]), size=n)
            t, x = points[0][chosen], points[1][chosen]
        lag, simulator = t * rng.random(n), problem.paths
        times = t * rng.random(n)
        noise = simulator.sample_noise(rng, (n,), problem.dim)
        ends.append((times, simulator.simulate(t, x, lag, noise).position))
    return ends


def find_jumps(problem: CanonicalProblem, seed: int) -> list[str]:
    """Names of the data whose jumps features have: initial condition, source.

    Jumps that features integrate do not count.
    """
    n = int(np.clip(_COORDINATES / problem.dim, 64, 512))
    first, second = _segments(problem, streams.generator(seed, "jumps"), n, None)
    data: dict[str, tuple[Function, Arrays, Arrays]] = {}
    if problem.preintegration is None:
        data[problem.data_name] = (problem.initial, first[1:], second[1:])
    if problem.feature_source is not None:
        data["source"] = (problem.feature_source, first, second)
    return [
        name
        for name, (f, start, end) in data.items()
        if _is_piecewise(f, start) and has_jump(partial(evaluate_at, f), start, end)
    ]


class _RandomCombination(eqx.Module):
    """A random linear combination of the entries of a coefficient: it has the kinks of all."""

    coefficients: CoefficientField
    name: str = eqx.field(static=True)

    def __call__(self, t: Array, x: Array) -> Array:
        operator = self.coefficients.evaluate(t, x)
        normals = jnp.asarray(np.random.default_rng(0).standard_normal((2, x.size)))
        values = {
            "diffusion": operator.diffusion.apply_sqrt(normals[0]),
            "drift": operator.drift,
            "reaction": operator.reaction,
        }
        return jnp.sum(values[self.name] * (normals[1] if self.name != "reaction" else 1.0))


def _kink_share(name: str, f: Function, start: Arrays, end: Arrays, ctx: ExecutionContext) -> float:
    """The share of n segments on which f has a kink or a jump.

    The ends of segments are tuples of arguments: points (n, dim), or times (n,) and points.
    """
    total = len(start[0])
    orders = 4 if _is_piecewise(f, start) else 2
    check_differentiable(name, f, [a[0] for a in start], orders)
    first_jump = np.zeros(())
    for level in range(_HALVINGS + 1):
        if level:
            # Bisect, and go on with the half that has the larger relative defect.
            middle = tuple(0.5 * (a + b) for a, b in zip(start, end, strict=True))
            left, left_size = _defects(f, start, middle, orders, ctx)
            right, right_size = _defects(f, middle, end, orders, ctx)
            goes_left = _worst(left, left_size) >= _worst(right, right_size)
            start, end = choose_half(goes_left, start, middle, end)
            defect = np.where(goes_left[:, None], left, right)
            size = np.where(goes_left[:, None], left_size, right_size)
        else:
            defect, size = _defects(f, start, end, orders, ctx)
        # If a segment is halved, the defect of a jump of g stays the same, that of a jump of g'
        # (a derivative in s) is halved, and so on: `jump` does not change.
        jump = defect * 2.0 ** (level * np.arange(orders))
        if level < 4:
            first_jump = np.maximum(first_jump, jump)
        unresolved = np.any((defect > _TOLERANCE * size) & (jump > 0.25 * first_jump), axis=1)
        start, end = tuple(a[unresolved] for a in start), tuple(a[unresolved] for a in end)
        first_jump = first_jump[unresolved]
        if not len(first_jump):
            return 0.0
    return len(start[0]) / total


def _worst(defect: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The largest relative defect of each segment, (n,)."""
    return np.max(defect / np.maximum(size, 1e-300), axis=1)


def _defects(
    f: Function, start: Arrays, end: Arrays, orders: int, ctx: ExecutionContext
) -> tuple[np.ndarray, np.ndarray]:
    """Defects |change of g - ∫ g'|, |change of g' - ∫ g''|, ... on segments.

    Returns:
        The defects, and the size of the numbers compared, each of shape (n, orders).
    """
    floats = 4 * 2 ** (orders - 1) * (len(_NODES) + 2) * start[-1].shape[1]
    return map_points(_segment_defects, (f, len(start), orders), (*start, *end), floats, ctx)


# JAX primitives that join pieces of functions.
_PIECES = {"abs", "argmax", "argmin", "ceil", "clamp", "cond", "floor", "max", "min", "reduce_max"}
_PIECES |= {"reduce_min", "rem", "round", "select_n", "sign", "sort"}


def _is_piecewise(f: Function, points: Arrays) -> bool:
    """Whether the jaxpr of f has primitives that join pieces, such as max.

    Then jumps of second and third derivatives are searched too. A fit to max(x, 0)³, for example,
    can make the residual vanish except in slivers between the break points of the features, where
    no sample falls.
    """

    def is_inner(p: Any) -> bool:
        return hasattr(p, "eqns") or hasattr(p, "jaxpr")

    def has_pieces(jaxpr: Any) -> bool:
        for e in jaxpr.eqns:
            inner: list[Any] = [
                getattr(p, "jaxpr", p)
                for p in jax.tree.leaves(list(e.params.values()), is_leaf=is_inner)
                if is_inner(p)
            ]
            # A sine with one implementation per platform and a custom derivative
            # (_core/elementary.py) is smooth, whatever primitives are inside.
            if any(i.primitive.name == "platform_index" for j in inner for i in j.eqns):
                continue
            if e.primitive.name in _PIECES or any(has_pieces(j) for j in inner):
                return True
        return False

    return has_pieces(jax.make_jaxpr(f)(*(a[0] for a in points)).jaxpr)


def _segment_defects(context: tuple[Function, int, int], *ends: Array) -> tuple[Array, Array]:
    """`_defects` for one segment, in JAX: defects and sizes, each of shape (orders,)."""
    f, arity, orders = context
    start, end = ends[:arity], ends[arity:]

    def g(s: Array) -> Array:
        return f(*(a + s * (b - a) for a, b in zip(start, end, strict=True)))

    def jet(s: Array, order: int = orders) -> tuple[Array, ...]:
        """g and its derivatives at s, up to an order."""
        if order == 0:
            return (g(s),)
        lower, change = jax.jvp(lambda r: jet(r, order - 1), (s,), (jnp.ones_like(s),))
        return (*lower, change[-1])

    # For each derivative: its values at both ends, then at the quadrature nodes.
    derivatives = jax.vmap(jet)(jnp.asarray(np.concatenate([[0.0, 1.0], _NODES])))

    def compare(lower: Array, higher: Array) -> tuple[Array, Array]:
        change, terms = lower[1] - lower[0], _WEIGHTS * higher[2:]
        size = jnp.sum(jnp.abs(terms)) + jnp.abs(lower[0]) + jnp.abs(lower[1])
        size += 1e-3 * jnp.max(jnp.abs(derivatives[0]))  # if derivatives are zero up to rounding
        return jnp.abs(change - jnp.sum(terms)), size

    pairs = (compare(derivatives[k], derivatives[k + 1]) for k in range(orders))
    defects, sizes = zip(*pairs, strict=True)
    return jnp.stack(defects), jnp.stack(sizes)


def format_kinks(shares: dict[str, float]) -> str:
    """Text for the result of `kinks`."""
    return " and ".join(
        f"`{name}` has kinks or jumps ({100 * share:.2g} % of random segments cross one)"
        for name, share in shares.items()
    )
