"""Relative errors against exact solutions, at random points, as in the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Array

from heatnets._core.errors import InputError
from heatnets._core.execution import make_context
from heatnets._core.precision import with_x64
from heatnets._core.tiling import map_points
from heatnets.fit.collocation import random_points as random_points
from heatnets.pde.laplacian import gradient
from heatnets.pde.problem import Problem

if TYPE_CHECKING:
    from heatnets.solution import Solution


class RelativeErrors(NamedTuple):
    """Relative errors |ũ - u|_p / |u|_p over a set of points, for p = 1, 2, ∞.

    Attributes:
        l1: p = 1.
        l2: p = 2.
        linf: p = ∞.
    """

    l1: float
    l2: float
    linf: float


def relative_errors(approximate: Any, exact: Any) -> RelativeErrors:
    """Relative L1, L2 and L∞ errors of values or of vectors.

    Args:
        approximate: values of shape (n,), or vectors of shape (n, d), whose entries all count
            equally.
        exact: the exact values, of the same shape.

    Returns:
        The three relative errors.
    """
    a, e = np.asarray(approximate, np.float64), np.asarray(exact, np.float64)
    if a.shape != e.shape or a.size == 0:
        raise InputError(
            "`approximate` and `exact` must have one shape and not be empty; "
            f"got {a.shape} and {e.shape}."
        )
    if not np.any(e):
        raise InputError("`exact` is zero at every point: a relative error has no meaning there.")
    scale = np.max(np.abs(e))  # squares of small numbers underflow
    error, e = np.abs(a - e) / scale, e / scale
    return RelativeErrors(
        float(error.sum() / np.abs(e).sum()),
        float(np.linalg.norm(error) / np.linalg.norm(e)),
        float(error.max() / np.abs(e).max()),
    )


@with_x64
def exact_values(problem: Problem, t: Any, x: Any) -> np.ndarray:
    """Values of the exact solution at points.

    Args:
        problem: a problem with an exact solution.
        t: times, a number or shape (n,).
        x: points, shape (dim,) or (n, dim).

    Returns:
        Values of shape (n,), or a scalar for one point.
    """
    return _evaluate_exact(_value, problem, t, x)


@with_x64
def exact_gradient(problem: Problem, t: Any, x: Any) -> np.ndarray:
    """Gradients of the exact solution at points, by automatic differentiation.

    Args:
        problem: a problem with an exact solution.
        t: times, a number or shape (n,).
        x: points, shape (dim,) or (n, dim).

    Returns:
        Gradients of shape (n, dim), or (dim,) for one point.
    """
    return _evaluate_exact(_gradient, problem, t, x)


def measure(solution: Solution, points: int = 6000, seed: int = 0) -> RelativeErrors:
    """Relative errors of a solution at random points, against the exact solution of its problem.

    Args:
        solution: a solution whose problem has an exact solution.
        points: number of points.
        seed: seed of the random points.

    Returns:
        The relative L1, L2 and L∞ errors.
    """
    t, x = random_points(solution.problem, points, seed)
    return relative_errors(solution(t, x), exact_values(solution.problem, t, x))


def _evaluate_exact(function: Any, problem: Problem, t: Any, x: Any) -> np.ndarray:
    """Evaluate function(exact, t, x) at points, in chunks."""
    if problem.exact is None:
        raise InputError(
            "`problem` has no exact solution to measure against. "
            "Give one: hn.Problem(..., exact=u)."
        )
    t_array, x_array, single = problem.as_points(t, x)
    ctx = make_context()
    with ctx.active():
        out = map_points(function, problem.exact, (t_array, x_array), 8 * problem.dim, ctx)
    return out[0] if single else out


def _value(exact: Any, t: Array, x: Array) -> Array:
    return exact(t, x)


def _gradient(exact: Any, t: Array, x: Array) -> Array:
    return gradient(lambda y: exact(t, y), x)
