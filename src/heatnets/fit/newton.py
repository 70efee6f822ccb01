"""Newton and Picard iterations for a source that depends on u, with fixed features.

Newton: the source linearised at a fit gives a linear least-squares problem, whose solution is the
next fit. Picard (the paper): the same with the value of the source instead of its linearisation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from heatnets._core.errors import NumericalError
from heatnets._core.precision import EPS
from heatnets._core.statistics import rms
from heatnets.fit.entry_cache import EntryCache
from heatnets.pde.canonical import CanonicalProblem

ITERATIONS = {"newton": 8, "picard": 40}  # largest numbers of iterations
_SMALLEST_STEP = 1 / 64  # of a damped Newton step
_UNSETTLED = 0.5  # relative change by the last iteration that counts as divergence
_SETTLED = 0.03  # times the estimated error: change by one iteration that counts as convergence

# Solves the linearised least-squares problem: returns the weights and their estimated error.
Solve = Callable[[], tuple[np.ndarray, float]]


def settle(
    tables: Sequence[EntryCache], weights: np.ndarray, degree: int, solve: Solve, iteration: str
) -> tuple[np.ndarray, list[float]]:
    """Iterate until the values of the fit at the rows no longer change.

    Returns the weights, and the relative change made by each iteration. The first table holds the
    rows; the source is linearised in the others too. `weights` are those of the first columns. A
    Newton step is halved while it more than doubles the misfit of the rows. Raises a
    `NumericalError` if the source is not finite at a fit, or if the changes grow.
    """
    rows, *other_tables = tables
    picard = iteration == "picard"
    last = weights
    last_values, last_misfit = rows.linearise(last, degree, picard), rows.misfit(last, degree)
    check(rows)
    changes: list[float] = []
    for _ in range(ITERATIONS[iteration]):
        for table in other_tables:
            table.linearise(last, degree)
        full_step, error = solve()
        weights, step = full_step, 1.0
        values = rows.linearise(weights, degree, picard)
        misfit = rows.misfit(weights, degree)
        while not picard and not misfit <= 2 * last_misfit and step > _SMALLEST_STEP:
            step /= 2
            weights = last + step * (full_step - last)
            values = rows.linearise(weights, degree, picard)
            misfit = rows.misfit(weights, degree)
        if not np.isfinite(misfit):
            raise NumericalError(_DIVERGED.format(rows.complaint() or "rows are not finite"))
        changes.append(rms(values - last_values) / (rms(values) or 1.0))
        last, last_values, last_misfit = weights, values, misfit
        if changes[-1] <= max(_SETTLED * error, 100 * EPS):
            break
        if len(changes) > 3 and changes[-1] > 2 * max(changes[0], 0.1):
            last_changes = ", ".join(f"{c:.2g}" for c in changes[-3:])
            raise NumericalError(
                _DIVERGED.format(f"its changes grow ({last_changes} of the fit's size)")
            )
    if changes[-1] > _UNSETTLED:
        raise NumericalError(
            _DIVERGED.format(
                f"the last of {len(changes)} steps still changed the fit "
                f"by {changes[-1]:.2g} of its size"
            )
        )
    for table in other_tables:
        table.linearise(last, degree)
    return last, changes


def check(table: EntryCache) -> None:
    """Raise a `NumericalError` if the linearised source is not finite."""
    if message := table.complaint():
        raise NumericalError(
            f"{message}. On the way to a solution u takes values near it: make `source` finite "
            "there too, for example jnp.log(jnp.maximum(u, 1e-12)) where u is positive. "
            "Or the solution "
            "blows up before the horizon: shorten it."
        )


_DIVERGED = (
    "the iteration for a source that depends on u does not converge: {}. "
    "The solution may blow up before the horizon, or the source be too stiff: "
    "shorten `horizon`, or start from a smaller one."
)


_VALID = 0.1  # largest change of the derivatives of the source over the error, see `Table.bend`


def check_tangent(table: EntryCache, error: float, problem: CanonicalProblem) -> None:
    """Raise a `NumericalError` if the linearisation is not valid over the error of the fit.

    `error` is relative. If the derivatives of the source change too much over such an error, the
    estimate of the error itself means nothing.
    """
    change = table.bend(error)
    if not change <= _VALID:
        raise NumericalError(
            failure_message(
                f"the error is estimated at {error:.2g} of the solution's size, over which the "
                f"source's derivatives change by {change:.2g} (in units of the horizon)",
                problem,
            )
        )


def failure_message(why: str, problem: CanonicalProblem) -> str:
    """Message for a problem with a source that depends on u and a large error.

    A large error does not satisfy the linearised equation, so that nothing is known of it.
    """
    flow_message = (
        ""
        if problem.flow_resolved
        else f" The source alone makes `{problem.data_name}` grow without bound, "
        "or is too stiff for a few steps."
    )
    return (
        f"not solved: {why}.{flow_message} The solution may blow up before the horizon, or the "
        "source be too stiff. Shorten `horizon` and look how the error grows with it; "
        "or give more `seconds`, or a smaller region."
    )
