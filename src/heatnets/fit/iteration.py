"""Iterations for a source that depends on u, with fixed features.

Direct: the source does not depend on u, and one linear least-squares problem is all there is.
Newton: the source linearized at a fit gives a linear problem, whose solution is the next fit.
Picard (the paper): the same with the value of the source instead of its linearization.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

import jax.numpy as jnp
import numpy as np

from heatnets._core.errors import NumericalError
from heatnets._core.precision import EPS
from heatnets.fit.entry_cache import EntryCache
from heatnets.fit.least_squares import LeastSquaresResult
from heatnets.pde.canonical import CanonicalProblem

_SMALLEST_STEP = 1 / 64  # of a damped Newton step
_DIVERGENCE = 0.5  # relative change by the last iteration that counts as divergence
_CONVERGENCE = 0.03  # times the estimated error: change by one iteration that ends the iteration
_VALID = 0.1  # largest `linearization_change` over the error


class CandidateFit(NamedTuple):
    """Weights of the first columns of a dictionary, and their estimated error."""

    features: int  # number of columns that are used
    rows: int
    degree: int  # of the weights in time
    solved: LeastSquaresResult
    error: float  # relative, plus one standard error; 0 if it was not estimated
    # Root mean square misfit of the training rows, relative to the source (to u/T without source).
    training_residual: float
    validation_residual: float | None  # the same on the validation set
    # Fits are compared by their score: an upper estimate of the error, less sensitive than `error`
    # to rare large residuals that were not sampled.
    score: float
    bound: float = np.inf  # upper bound of the error, if it is known from the round itself
    noise: float | None = None  # root mean square of the noise of mild rows, relative

    @property
    def weights(self) -> np.ndarray:
        """The weights as a NumPy array, (columns * (degree + 1),)."""
        return np.asarray(self.solved.weights)

    def with_weights(self, weights: np.ndarray) -> CandidateFit:
        """The fit with other weights."""
        return self._replace(solved=self.solved._replace(weights=jnp.asarray(weights)))


class Direct:
    """The source does not depend on u: nothing to do. The first of `caches` holds the rows."""

    def linearize(self, caches: Sequence[EntryCache], weights: np.ndarray, degree: int) -> None:
        """Linearize the source at a fit of the first columns."""

    def iterate(
        self, caches: Sequence[EntryCache], fit: CandidateFit, solve: Callable[[], CandidateFit]
    ) -> tuple[CandidateFit, list[float]]:
        """Iterate from a fit; `solve` solves the linearized problem.

        Returns the last fit, and the relative change made by each step.
        """
        return fit, []

    def check_error(self, cache: EntryCache, error: float) -> None:
        """Raise a `NumericalError` if the linearization is not valid over the relative error."""

    def reject(self, why: str, problem: CanonicalProblem) -> None:
        """Raise a `NumericalError` because the error is large.

        A large error does not satisfy the linearized equation, so that nothing is known of it.
        """


class Newton(Direct):
    """Newton's method. A step is halved while it more than doubles the misfit of the rows."""

    max_steps = 8
    picard = False

    def linearize(self, caches: Sequence[EntryCache], weights: np.ndarray, degree: int) -> None:
        rows, *others = caches
        rows.linearize(weights, degree, self.picard)
        for cache in others:
            cache.linearize(weights, degree)
        if message := rows.nonfinite_message():
            raise NumericalError(
                f"{message}. On the way to a solution u takes values near it: make `source` finite "
                "there too, for example jnp.log(jnp.maximum(u, 1e-12)) where u is positive. "
                "Or the solution blows up before the horizon: shorten it."
            )

    def iterate(
        self, caches: Sequence[EntryCache], fit: CandidateFit, solve: Callable[[], CandidateFit]
    ) -> tuple[CandidateFit, list[float]]:
        rows, degree = caches[0], fit.degree
        last = fit.weights
        self.linearize(caches, last, degree)
        last_values, last_misfit = rows.u, rows.misfit(last, degree)
        changes: list[float] = []
        for _ in range(self.max_steps):
            fit = solve()
            weights, step = fit.weights, 1.0
            values = rows.linearize(weights, degree, self.picard)
            misfit = rows.misfit(weights, degree)
            while not self.picard and not misfit <= 2 * last_misfit and step > _SMALLEST_STEP:
                step /= 2
                weights = last + step * (fit.weights - last)
                values = rows.linearize(weights, degree)
                misfit = rows.misfit(weights, degree)
            if not np.isfinite(misfit):
                _diverge(rows.nonfinite_message() or "rows are not finite")
            changes.append(rows.size(values - last_values) / (rows.size(values) or 1.0))
            last, last_values, last_misfit = weights, values, misfit
            for cache in caches[1:]:
                cache.linearize(last, degree)
            if changes[-1] <= max(_CONVERGENCE * fit.error, 100 * EPS):
                break
            if len(changes) > 3 and changes[-1] > 2 * max(changes[0], 0.1):
                last_changes = ", ".join(f"{c:.2g}" for c in changes[-3:])
                _diverge(f"its changes grow ({last_changes} of the fit's size)")
        if changes[-1] > _DIVERGENCE:
            _diverge(
                f"the last of {len(changes)} steps still changed the fit "
                f"by {changes[-1]:.2g} of its size"
            )
        return fit.with_weights(last), changes

    def check_error(self, cache: EntryCache, error: float) -> None:
        change = cache.linearization_change(error) if np.isfinite(error) else 0.0
        if not change <= _VALID:
            self.reject(
                f"the error is estimated at {error:.2g} of the solution's size, over which the "
                f"source's derivatives change by {change:.2g} (in units of the horizon)",
                cache.problem,
            )

    def reject(self, why: str, problem: CanonicalProblem) -> None:
        growth = (
            ""
            if problem.flow_resolved
            else f" The source alone makes `{problem.data_name}` grow without bound, "
            "or is too stiff for a few steps."
        )
        raise NumericalError(
            f"not solved: {why}.{growth} The solution may blow up before the horizon, or the "
            "source be too stiff. Shorten `horizon` and look how the error grows with it; "
            "or give more `seconds`, or a smaller region."
        )


class Picard(Newton):
    """Picard's iteration: only the value of the source is used, not its derivatives."""

    max_steps = 40
    picard = True


ITERATIONS: dict[str | None, Direct] = {None: Direct(), "newton": Newton(), "picard": Picard()}


def _diverge(why: str) -> NoReturn:
    raise NumericalError(
        f"the iteration for a source that depends on u does not converge: {why}. "
        "The solution may blow up before the horizon, or the source be too stiff: "
        "shorten `horizon`, or start from a smaller one."
    )
