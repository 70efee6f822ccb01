"""Have the data kinks or jumps? Equation rows cannot see a kink or a jump: for max(x, 0) they return u0, wrong by a third, with residual zero.

Along random segments g(s) = f(start + s (end - start)) the change of g' must be the integral of g'', and the change of g that of g',
by Gauss quadrature. A segment that fails is halved, towards the half that fails, until it is resolved (steep, but smooth) or not
(a kink: its jump of slope does not shrink with the segment).
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from heatnets._core import streams
from heatnets._core.execution import ExecutionContext
from heatnets._core.tiling import evaluate
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.coefficients import CoefficientField
from heatnets.pde.function import Function

_NODES, _WEIGHTS = (
    0.5 * (a + b) for a, b in zip(np.polynomial.legendre.leggauss(16), (1.0, 0.0), strict=True)
)
_COORDINATES = 2e6  # 2000 segments up to d = 1000, fewer beyond, 256 at least: kinks cross 7 to 58 % of segments
_HALVINGS = 8  # what is narrower than 1/256 of a segment is a kink to rows, too
_NEGLIGIBLE = 0.001  # a share of segments below which a kink hardly matters (or is a jump of curvature that looked like one)
_TOLERANCE = 1e-6  # of the derivatives' size: smooth segments miss by rounding


def kinks(
    problem: CanonicalProblem,
    seed: int,
    ctx: ExecutionContext,
    points: tuple[np.ndarray, np.ndarray] | None = None,
) -> dict[str, float]:
    """The share of segments on which a function of the problem has a kink or a jump, for each function that has such segments.

    Segments join places on paths from the region; or on paths from given points (t, x), and then no share is negligible.
    """
    rng = streams.generator(seed, "segments")
    n = int(np.clip(_COORDINATES / problem.dim, 256, 2000))
    ends: list[tuple[np.ndarray, np.ndarray]] = []
    for _ in range(2):
        if points is None:
            t, x = problem.region.at(
                np.ones(n), problem.horizon, problem.region.sample(rng, n, problem.dim)
            )
        else:
            chosen = rng.integers(len(points[0]), size=n)
            t, x = points[0][chosen], points[1][chosen]
        lag, walk = t * rng.random(n), problem.paths
        ends.append(
            (t * rng.random(n), walk.go(t, x, lag, walk.draw(rng, (n,), problem.dim)).place)
        )
    (t0, x0), (t1, x1) = ends
    found = {problem.data_name: _share(problem.initial, (x0,), (x1,), ctx)}
    for name, function in _coefficients(problem).items():
        found[name] = _share(function, (t0, x0), (t1, x1), ctx)
    if problem.source is not None:
        found["source"] = _share(problem.source, (t0, x0), (t1, x1), ctx)
    return {
        name: share
        for name, share in found.items()
        if share > (_NEGLIGIBLE if points is None else 0.0)
    }


class _Mixed(eqx.Module):
    """A random combination of the entries of a coefficient: one with a kink has one."""

    coefficients: CoefficientField
    name: str = eqx.field(static=True)

    def __call__(self, t: Array, x: Array) -> Array:
        here = self.coefficients.at(t, x)
        ways = jnp.asarray(np.random.default_rng(0).standard_normal((2, x.size)))
        values = {
            "diffusion": here.diffusion.apply_sqrt(ways[0]),
            "drift": here.drift,
            "reaction": here.reaction,
        }
        return jnp.sum(values[self.name] * (ways[1] if self.name != "reaction" else 1.0))


def _coefficients(problem: CanonicalProblem) -> dict[str, Function]:
    """Those of the problem's coefficients that are functions, as functions of (t, x) with one value."""
    given = problem.coefficients
    if given is None:
        return {}
    parts = {"diffusion": given.diffusion, "drift": given.drift, "reaction": given.reaction}
    return {
        name: Function(_Mixed(given, name))
        for name, part in parts.items()
        if isinstance(part, Function)
    }


def _share(
    f: Function, start: tuple[np.ndarray, ...], end: tuple[np.ndarray, ...], ctx: ExecutionContext
) -> float:
    total = len(start[0])
    orders = 4 if _in_pieces(f, start) else 2
    first: np.ndarray | None = None
    for level in range(_HALVINGS + 1):
        if level:
            middle = tuple(0.5 * (a + b) for a, b in zip(start, end, strict=True))
            left, right = _miss(f, start, middle, orders, ctx), _miss(f, middle, end, orders, ctx)
            goes_left = _worst(left) >= _worst(right)
            start, end = (
                tuple(_where(goes_left, a, b) for a, b in zip(*pair, strict=True))
                for pair in ((start, middle), (middle, end))
            )
            miss = (
                np.where(goes_left[:, None], left[0], right[0]),
                np.where(goes_left[:, None], left[1], right[1]),
            )
        else:
            miss = _miss(f, start, end, orders, ctx)
        # A jump of the value stays as it is when a segment is halved, a jump of the slope is halved with it, and so on.
        jump = miss[0] * 2.0 ** (level * np.arange(orders))
        first = jump if first is None else np.maximum(first, jump) if level < 4 else first
        open_ = np.any((miss[0] > _TOLERANCE * miss[1]) & (jump > 0.25 * first), axis=1)
        start, end = tuple(a[open_] for a in start), tuple(a[open_] for a in end)
        first = first[open_]
        if not len(first):
            return 0.0
    return len(start[0]) / total


def _worst(miss: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return np.max(miss[0] / np.maximum(miss[1], 1e-300), axis=1)


def _where(left: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(left if a.ndim == 1 else left[:, None], a, b)


def _miss(
    f: Function,
    start: tuple[np.ndarray, ...],
    end: tuple[np.ndarray, ...],
    orders: int,
    ctx: ExecutionContext,
) -> tuple[np.ndarray, np.ndarray]:
    """How far the changes of g, g', ... are from the integrals of g', g'', ..., and the size of what was compared; (n, orders) each."""
    floats = 4 * 2 ** (orders - 1) * (len(_NODES) + 2) * start[-1].shape[1]
    return evaluate(_segment, (f, len(start), orders), (*start, *end), floats, ctx)


_PIECES = {
    "abs",
    "argmax",
    "argmin",
    "ceil",
    "clamp",
    "cond",
    "floor",
    "max",
    "min",
    "reduce_max",
    "reduce_min",
    "rem",
    "round",
    "select_n",
    "sign",
    "sort",
}


def _in_pieces(f: Function, at: tuple[np.ndarray, ...]) -> bool:
    """Whether the function is written with operations that join pieces: then jumps of second and third derivatives are looked for, too.

    A fit to max(x, 0)³, say, can make the residual vanish but for slivers between the features' break points, where no sample falls.
    """

    def is_inner(p: Any) -> bool:
        return hasattr(p, "eqns") or hasattr(p, "jaxpr")

    def joined(jaxpr: Any) -> bool:
        for e in jaxpr.eqns:
            inner: list[Any] = [
                getattr(p, "jaxpr", p)
                for p in jax.tree.leaves(list(e.params.values()), is_leaf=is_inner)
                if is_inner(p)
            ]
            # A sine with a program for each platform and a derivative of its own (problems/elementary.py) is smooth, whatever is inside.
            if any(i.primitive.name == "platform_index" for j in inner for i in j.eqns):
                continue
            if e.primitive.name in _PIECES or any(joined(j) for j in inner):
                return True
        return False

    return joined(jax.make_jaxpr(f)(*(a[0] for a in at)).jaxpr)


def _segment(context: tuple[Function, int, int], *ends: Array) -> tuple[Array, Array]:
    f, arity, orders = context
    start, end = ends[:arity], ends[arity:]

    def g(s: Array) -> Array:
        return f(*(a + s * (b - a) for a, b in zip(start, end, strict=True)))

    def jet(s: Array, order: int = orders) -> tuple[Array, ...]:
        """g and its derivatives up to an order."""
        if order == 0:
            return (g(s),)
        lower, change = jax.jvp(lambda r: jet(r, order - 1), (s,), (jnp.ones_like(s),))
        return (*lower, change[-1])

    along = jax.vmap(jet)(jnp.asarray(np.concatenate([[0.0, 1.0], _NODES])))

    def compare(of: Array, derivative: Array) -> tuple[Array, Array]:
        change, inside = of[1] - of[0], _WEIGHTS * derivative[2:]
        size = jnp.sum(jnp.abs(inside)) + jnp.abs(of[0]) + jnp.abs(of[1])
        size += 1e-3 * jnp.max(jnp.abs(along[0]))  # derivatives that are zero but for rounding
        return jnp.abs(change - jnp.sum(inside)), size

    missed, sizes = zip(*(compare(along[k], along[k + 1]) for k in range(orders)), strict=True)
    return jnp.stack(missed), jnp.stack(sizes)


def describe(found: dict[str, float]) -> str:
    """What was found, in words."""
    return " and ".join(
        f"`{name}` has kinks or jumps ({100 * share:.2g} % of random segments cross one)"
        for name, share in found.items()
    )
