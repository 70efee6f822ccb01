"""Errors as the paper measures them, against exact solutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from heatnets._core import streams
from heatnets._core.errors import InputError, count
from heatnets._core.execution import make_context
from heatnets._core.precision import with_x64
from heatnets._core.tiling import evaluate
from heatnets.fit.assembly import Points
from heatnets.fit.collocation import judged
from heatnets.pde.laplacian import gradient
from heatnets.pde.problem import Problem

if TYPE_CHECKING:
    from heatnets.solution import Solution


class RelativeErrors(NamedTuple):
    """|ũ - u|_p / |u|_p over a set of points, p = 1, 2, ∞."""

    l1: float
    l2: float
    linf: float


def relative_errors(approximate: Any, exact: Any) -> RelativeErrors:
    """Relative L1, L2 and L∞ errors of values (n,), or of vectors (n, d) with all entries counted alike."""
    a, e = np.asarray(approximate, np.float64), np.asarray(exact, np.float64)
    if a.shape != e.shape or a.size == 0:
        raise InputError(
            f"`approximate` and `exact` must have one shape and not be empty; got {a.shape} and {e.shape}."
        )
    if not np.any(e):
        raise InputError("`exact` is zero at every point: a relative error has no meaning there.")
    size = np.max(np.abs(e))  # squares of small numbers underflow
    gap, e = np.abs(a - e) / size, e / size
    return RelativeErrors(
        float(gap.sum() / np.abs(e).sum()),
        float(np.linalg.norm(gap) / np.linalg.norm(e)),
        float(gap.max() / np.abs(e).max()),
    )


def random_points(problem: Problem, points: int = 6000, seed: int = 0) -> Points:
    """Random points to measure at: t uniform on (0, T] (t = T for a `Point`; t = 0 and [0, T) for terminal problems), x from the region, from a stream no solve draws from."""
    n = count("points", points, 1, "It is the number of test points.")
    rng = streams.generator(streams.check_seed(seed), "test points")
    t, x = judged(problem.region, problem.horizon, n, problem.dim, rng)
    return (problem.horizon - t if problem.is_terminal else t), x


@with_x64
def exact_values(problem: Problem, t: Any, x: Any) -> np.ndarray:
    """The exact solution at points, streamed."""
    return _exact(_value, problem, t, x)


@with_x64
def exact_gradient(problem: Problem, t: Any, x: Any) -> np.ndarray:
    """The gradient of the exact solution at points, by automatic differentiation."""
    return _exact(_gradient, problem, t, x)


def measure(solution: Solution, points: int = 6000, seed: int = 0) -> RelativeErrors:
    """Relative errors of a solution on random points of (0, T] x region, against the problem's exact solution."""
    t, x = random_points(solution.problem, points, seed)
    return relative_errors(solution(t, x), exact_values(solution.problem, t, x))


def _exact(function: Any, problem: Problem, t: Any, x: Any) -> np.ndarray:
    if problem.exact is None:
        raise InputError(
            "`problem` has no exact solution to measure against. Give one: hn.Problem(..., exact=u)."
        )
    times, places, single = problem.points(t, x)
    ctx = make_context()
    with jax.default_device(ctx.device):
        out = evaluate(function, problem.exact, (times, places), 8 * problem.dim, ctx)
    return out[0] if single else out


def _value(exact: Any, t: Array, x: Array) -> Array:
    return exact(t, x)


def _gradient(exact: Any, t: Array, x: Array) -> Array:
    return gradient(lambda y: exact(t, y), x)
