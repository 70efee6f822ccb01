"""Newton's method for sources that depend on u, on frozen features: the tangent of the source at a fit makes a linear least-squares problem, whose
solution is the next fit. Picard's iteration, the paper's, is the same with the source's value in place of its tangent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from heatnets._core.errors import NumericalError
from heatnets._core.precision import EPS
from heatnets._core.statistics import rms
from heatnets.fit.entry_cache import Table
from heatnets.pde.canonical import CanonicalProblem

ITERATIONS = {"newton": 8, "picard": 40}  # at most
_SMALLEST_STEP = 1 / 64
_UNSETTLED = 0.5  # a change by the last iteration that is no convergence
_SETTLED = 0.03  # of the estimated error: what one more iteration may change

Solve = Callable[
    [], tuple[np.ndarray, float]
]  # with the rows' present tangent: weights, and the error they are estimated to leave


def settle(
    tables: Sequence[Table], weights: np.ndarray, degree: int, solve: Solve, iteration: str
) -> tuple[np.ndarray, list[float]]:
    """Iterate from weights of the first columns until the fit at the rows stays as it is: the weights then, and what each iteration changed.

    The first table holds the rows; others are given the tangent too. A step of Newton's is halved where the whole of it makes the rows' misfit larger. Where
    a source is not finite at the fits, or the changes grow, a `NumericalError` says so.
    """
    rows, *others = tables
    picard = iteration == "picard"
    last = weights
    before, misfit = rows.linearise(last, degree, picard), rows.misfit(last, degree)
    check(rows)
    changes: list[float] = []
    for _ in range(ITERATIONS[iteration]):
        for other in others:
            other.linearise(last, degree)
        whole, error = solve()
        found, part = whole, 1.0
        now = rows.linearise(found, degree, picard)
        left = rows.misfit(found, degree)
        while not picard and not left <= 2 * misfit and part > _SMALLEST_STEP:
            part /= 2
            found = last + part * (whole - last)
            now = rows.linearise(found, degree, picard)
            left = rows.misfit(found, degree)
        if not np.isfinite(left):
            raise NumericalError(_DIVERGED.format(rows.complaint() or "rows are not finite"))
        changes.append(rms(now - before) / (rms(now) or 1.0))
        last, before, misfit = found, now, left
        if changes[-1] <= max(_SETTLED * error, 100 * EPS):
            break
        if len(changes) > 3 and changes[-1] > 2 * max(changes[0], 0.1):
            raise NumericalError(
                _DIVERGED.format(
                    f"its changes grow ({', '.join(f'{c:.2g}' for c in changes[-3:])} of the fit's size)"
                )
            )
    if changes[-1] > _UNSETTLED:
        raise NumericalError(
            _DIVERGED.format(
                f"the last of {len(changes)} steps still changed the fit by {changes[-1]:.2g} of its size"
            )
        )
    for other in others:
        other.linearise(last, degree)
    return last, changes


def check(table: Table) -> None:
    """Refuse a tangent that is not finite."""
    if words := table.complaint():
        raise NumericalError(
            f"{words}. On the way to a solution u takes values near it: make `source` finite there too, for example jnp.log(jnp.maximum(u, 1e-12)) where u is positive. Or the solution "
            "blows up before the horizon: shorten it."
        )


_DIVERGED = "the iteration for a source that depends on u does not converge: {}. The solution may blow up before the horizon, or the source be too stiff: shorten `horizon`, or start from a smaller one."


_VALID = 0.1  # of T times the change of f_u over the error


def check_tangent(table: Table, error: float, problem: CanonicalProblem) -> None:
    """Refuse a fit whose error, relative to its size, is so large that the source is another one there: then the estimate of the error means nothing, either."""
    change = table.bend(error)
    if not change <= _VALID:
        raise NumericalError(
            unsolved(
                f"the error is estimated at {error:.2g} of the solution's size, over which the source's derivatives change by {change:.2g} (in units of the horizon)",
                problem,
            )
        )


def unsolved(why: str, problem: CanonicalProblem) -> str:
    """Why there is no answer to a problem whose source depends on u: an error that large does not obey the tangent's equation, so that nothing is known of it."""
    alone = (
        ""
        if problem.flow_resolved
        else f" The source alone makes `{problem.data_name}` grow without bound, or is too stiff for a few steps."
    )
    return (
        f"not solved: {why}.{alone} The solution may blow up before the horizon, or the source be too stiff. Shorten `horizon` and look how the error grows with it; "
        "or give more `seconds`, or a smaller region."
    )
