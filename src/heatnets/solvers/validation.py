"""Validation set and test set (final check) of the adaptive solver. Three estimates of one error:

residual form       unbiased and sharp; misses events that are rarer than the sampled paths show
Monte Carlo values  unbiased; cannot resolve errors below their noise (`reference_values.py`)
maximum principle   |u| <= max |u0| + t max |F| over the sampled paths: costs nothing, coarse
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from heatnets._core import statistics, streams
from heatnets._core.execution import ExecutionContext
from heatnets._core.precision import EPS
from heatnets.certify import error_equation
from heatnets.certify.error_equation import WeightedPoints
from heatnets.certify.reference_values import ReferenceValues
from heatnets.features.equation import Equation
from heatnets.fit.assembly import initial_values, tangent, value_columns
from heatnets.fit.entry_cache import EntryCache
from heatnets.pde.canonical import CanonicalProblem

ROUNDING = 4 * EPS  # relative rounding error of the terms of a sum: a few roundings per term
_MOST = 30.0  # largest exponent that is used for the growth of an error


class BlockSizes(NamedTuple):
    """Sizes of the smallest pieces of work.

    `judges` and `last_judges` are the sizes of the validation set and of the test set, as (points,
    samples on paths from each point).
    """

    block: int = 16  # features per compiled call
    strip: int = 256  # rows per compiled call
    judges: tuple[int, int] = (64, 7)
    # More points here: a small error may be larger in some places.
    last_judges: tuple[int, int] = (256, 2)

    @classmethod
    def of(cls, words: list[Any]) -> BlockSizes:
        """Restore the sizes stored in a checkpoint."""
        return cls(words[0], words[1], tuple(words[2]), tuple(words[3]))


class Assessment(NamedTuple):
    """Estimates for one fit; errors are relative to the rms of u over (0, T] x region."""

    error: float  # by the residual form, plus one standard error
    # Root mean square of single samples: bounds the error if residuals on a path never cancel.
    spread: float
    # Kurtosis of the samples over their number: above 0.1, a few samples dominate the estimate.
    tails: float
    residual: float  # root mean square, relative to `size`
    size: float  # unit of residuals
    amplification: float  # Σ |w_j φ_j| / |u|: how much the terms of the network cancel
    excess: float  # largest ratio of |ũ| to the bound of the maximum principle
    disagreement: float  # significant difference from Monte Carlo values
    high: float  # upper bound of the error by Monte Carlo values


class ValidationSet:
    """Points of the region, and paths from them, at which the error equation is sampled.

    The error e = u - ũ of a fit solves the PDE with the residual of ũ as source. Residuals on paths
    from (t, x) are therefore unbiased samples of e(t, x). Feature entries at all points are cached
    in `table`: first the P * S points on paths, then the P starting points.
    """

    def __init__(
        self,
        problem: CanonicalProblem,
        data: Equation,
        ctx: ExecutionContext,
        seed: int,
        stream: str,
        size: tuple[int, int],
        strip: int,
        start_points: WeightedPoints | None = None,
    ) -> None:
        self.problem = problem
        self.paths = error_equation.paths(problem, *size, seed, stream, start_points)
        s, y = self.paths.s.reshape(-1), self.paths.y.reshape(-1, problem.dim)
        points = np.concatenate([s, self.paths.t]), np.concatenate([y, self.paths.x])
        self.table = EntryCache(problem, data, ctx, points, strip)
        self.missed: Any = 0.0  # samples of the error from an initial condition without features
        # From values of the canonical problem to values of u ...
        self.value_scale = np.broadcast_to(problem.value_scale(self.paths.t), self.paths.t.shape)
        # ... and to a mean square over the region, if the points were chosen with weights.
        self.factor = self.value_scale * np.sqrt(self.paths.importance)
        if problem.zero_initial:
            # u0 was zero at all points tested so far, and has no features: test again, at the
            # ends of these paths.
            p = self.paths
            rng = streams.generator(seed, f"{stream}, further")
            ends = problem.paths.simulate(
                p.s, p.y, p.s, problem.paths.draw(rng, p.s.shape, problem.dim)
            )
            u0 = initial_values(data, ends.position.reshape(-1, problem.dim), ctx)
            self.missed = p.grown * ends.weight * u0.reshape(p.s.shape)
        linear_part = (
            problem if problem.nonlinear is None else replace(problem, source=None, nonlinear=None)
        )
        self.reference = ReferenceValues(
            linear_part, data, self.paths.t, self.paths.x, seed, stream, ctx, pool=self.paths.pool
        )

    def assess(
        self, weights: np.ndarray, columns: np.ndarray, degree: int, rows: EntryCache | None = None
    ) -> Assessment:
        """Estimate the error of a fit in all ways.

        If `rows` is given, the maximum principle is checked at its points too.
        """
        residual, _, _, _, force = self._residual(weights, columns, degree)
        samples, value, terms, _ = self._corrections(weights, columns, degree)
        square = statistics.mean_square(samples, self.paths.pool)
        scale, rounding = root_mean_square(value) or 1.0, ROUNDING * root_mean_square(terms)
        size = max(
            root_mean_square(force),
            (root_mean_square(value / self.factor) or 1.0) / self.problem.horizon,
        )
        return Assessment(
            error=float(np.hypot(square.root, rounding)) / scale,
            spread=float(np.hypot(root_mean_square(samples), rounding)) / scale,
            tails=statistics.tail_weight(samples),
            residual=root_mean_square(residual) / size,
            size=size,
            amplification=root_mean_square(terms) / scale,
            excess=self._excess(weights, columns, degree, rows),
            disagreement=self._disagreement(value) / scale,
            high=self._monte_carlo_bound(value),
        )

    def error(
        self, weights: np.ndarray, columns: np.ndarray, degree: int
    ) -> tuple[float, float, float]:
        """Relative error plus one standard error; relative residual; unit of the residual."""
        assessment = self.assess(weights, columns, degree)
        return assessment.error, assessment.residual, assessment.size

    def _disagreement(self, value: np.ndarray) -> float:
        """Significant rms difference of the fit from Monte Carlo values; 0 if there are none."""
        has_reference = self.reference.calls > 0 and self.problem.nonlinear is None
        return self.reference.disagreement(value) if has_reference else 0.0

    def _monte_carlo_bound(self, value: np.ndarray) -> float:
        """Upper bound of the relative error by Monte Carlo values; infinite if unknown."""
        if self.problem.nonlinear is not None or not self.reference.calls:
            return np.inf
        difference = self.reference.compare(value, 0.98)
        return np.inf if difference.reasons else difference.high

    def _excess(
        self, weights: np.ndarray, columns: np.ndarray, degree: int, rows: EntryCache | None
    ) -> float:
        """Largest ratio |ũ| / (max |u0| + t max |F|).

        Zero if the source depends on u, because its maximum is then unknown.
        """
        if self.problem.nonlinear is not None or not self.reference.calls:
            return 0.0
        tables = [self.table] if rows is None else [self.table, rows]
        force = max(
            self.reference.largest[1], *(float(np.max(np.abs(table.forcing))) for table in tables)
        )
        start = max(
            self.reference.largest[0], *(float(np.max(np.abs(table.initial))) for table in tables)
        )
        grown, worst = max(1.0, float(np.max(self.paths.grown))), 0.0
        for table in tables:
            bound = grown * (start + table.points[0] * force)
            value = np.abs(table.fitted(weights, columns, degree))
            ratio = np.divide(value, bound, out=np.zeros_like(value), where=bound > 0)
            worst = max(worst, float(np.max(ratio)))
        return worst

    def _corrections(
        self, weights: np.ndarray, columns: np.ndarray, degree: int
    ) -> tuple[np.ndarray, ...]:
        """Samples of the error, (P, S); the fit, (P,); the size of its terms, (P,); a bound.

        The bound is T times the largest residual on the paths.
        """
        residual, grown, value, terms, _ = self._residual(weights, columns, degree)
        samples = self.factor[:, None] * (self.paths.weight * grown * residual + self.missed)
        largest = self.problem.horizon * float(
            np.max(np.abs(np.maximum(grown, 1.0) * residual))
        ) + float(np.max(np.abs(self.missed)))
        largest *= float(np.max(self.value_scale)) * max(1.0, float(np.max(self.paths.grown)))
        return samples, value, terms, np.asarray(largest)

    def _residual(
        self, weights: np.ndarray, columns: np.ndarray, degree: int
    ) -> tuple[np.ndarray, ...]:
        """Residuals on the paths and values of the fit at their starting points.

        Returns the residuals, (P, S); the factors by which an error grows along the path, (P, S)
        or (); the fit at the starting points, (P,); the sum of the sizes of its terms, (P,); and
        the source on the paths, (P * S,).
        """
        n, table = self.paths.s.size, self.table
        A, force = table.system(columns, degree, slice(n))
        V = value_columns(
            table.values[n:, columns], table.points[0][n:], degree, self.problem.horizon
        )
        residual, grown = (force - A @ weights).reshape(self.paths.weight.shape), np.ones(())
        if self.problem.nonlinear is not None:
            # exp(∫ f_u), with the mean of f_u at both ends of the path.
            lag = self.paths.t[:, None] - self.paths.s
            rate = 0.5 * (table.reaction[:n].reshape(lag.shape) + table.reaction[n:, None])
            grown = np.exp(np.clip(rate * lag, -_MOST, _MOST))
        value = self.factor * (V @ weights)
        terms = self.factor * (np.abs(V) @ np.abs(weights))
        return residual, grown, value, terms, force


class Verdict(NamedTuple):
    """Result of the final check of a fit. Error and bound are infinite if nothing is known."""

    error: float  # relative
    bound: float  # upper bound of the error, 99 % confidence
    doubts: tuple[str, ...]  # about the residual form: then only Monte Carlo values count
    reasons: tuple[str, ...]  # why nothing is known
    residual: float  # root mean square, relative
    curable: bool  # by more samples: the only doubt is that a few samples dominate the estimate
    facts: dict[str, Any]  # for `stats["check"]`


class FinalCheck:
    """Final check of a fit on a test set, which is used for no choice of the solver.

    It decides whether a tolerance is met, and gives the estimated error. The residual form is used
    if its tails are light, the terms of the network cancel by at most `CANCELLATION`, and the
    values satisfy the maximum principle. Otherwise the error is bounded by Monte Carlo values and
    by the largest residual. If Monte Carlo values contradict the residual form, they are used.
    """

    def __init__(self, judges: ValidationSet) -> None:
        self.problem, self._ctx, self.judges = judges.problem, judges.table.ctx, judges
        self.reference = self.judges.reference

    def verdict(
        self, weights: np.ndarray, columns: np.ndarray, degree: int, rows: EntryCache | None = None
    ) -> Verdict:
        """Check a fit. The test set must contain the entries of its features."""
        test_set, reference = self.judges, self.reference
        assessment = test_set.assess(weights, columns, degree, rows)
        samples, value, terms, largest = test_set._corrections(weights, columns, degree)
        interval = statistics.relative_l2_interval(
            samples, value, ROUNDING * terms, 0.99, test_set.paths.pool
        )
        source, slack, grown = self._source_samples()
        monte_carlo, monte_carlo_998 = (
            reference.compare(value, level, source) for level in (0.99, 0.998)
        )
        has_heavy_tails = not assessment.tails <= statistics.HEAVY
        tests = (
            (f"one of {samples.size} residuals carries the estimate", has_heavy_tails),
            (
                f"terms of the network cancel by {assessment.amplification:.0e}",
                not assessment.amplification <= CANCELLATION,
            ),
            (
                f"values exceed the maximum principle {assessment.excess:.2g} times",
                not assessment.excess <= EXCESS,
            ),
            ("data are not finite on some paths", not np.all(np.isfinite(reference.mean))),
        )
        doubts = tuple(message for message, failed in tests if failed)
        usable = not monte_carlo.reasons
        only_heavy_tails = len(doubts) == 1 and has_heavy_tails
        scale = monte_carlo.scale if usable else root_mean_square(value) or 1.0
        # An error at places that none of the points met may be as large as the largest sample, on
        # a part of the region of probability RARE / (number of points).
        rare, rarer = (
            assessment.error + float(np.sqrt(n / len(samples)) * np.max(np.abs(samples)) / scale)
            for n in RARE
        )
        error, bound, reasons = assessment.error, float(interval.high), tuple[str, ...]()
        if interval.reasons:
            bound = max(bound, rarer) if np.isfinite(bound) else rarer
        if doubts:
            error, bound = (rare, max(bound, rarer)) if only_heavy_tails else (np.inf, np.inf)
            reasons = () if usable or only_heavy_tails else (*doubts, *monte_carlo.reasons)
        if usable:
            error = min(error, grown * monte_carlo.high)
            bound = min(bound, grown * monte_carlo.high)
        if not monte_carlo_998.reasons and monte_carlo_998.low > CONTRADICTION * slack * error:
            error, bound = grown * monte_carlo.value, grown * monte_carlo.high
            doubts = (*doubts, f"Monte Carlo values differ by {monte_carlo.value:.2g}")
        facts = {
            **reference.facts(monte_carlo),
            "size": float(scale),
            "residual_form": assessment.error,
            "tails": assessment.tails,
            "residual_samples": samples.size,
            "largest_residual": float(largest / scale),
            "amplification": assessment.amplification,
            "maximum_principle": assessment.excess,
            "doubts": doubts,
            "reasons": reasons,
        }
        curable = only_heavy_tails and CURABLE * assessment.error < error < UNSOLVED
        bound = max(bound, error)
        return Verdict(error, bound, doubts, reasons, assessment.residual, curable, facts)

    def _source_samples(self) -> tuple[np.ndarray | None, float, float]:
        """Source part of the mild formulation at the fit, for a source that depends on u.

        Returns its samples, (P, S), and two factors: the defect of the mild formulation is at most
        the first times the error, and the error at most the second times the defect. The second is
        exp(∫ f_u) with the 95 % quantile of f_u; it is infinite if f depends on ∇u, because then
        nothing is known.
        """
        nonlinear, paths, table = self.problem.nonlinear, self.judges.paths, self.judges.table
        if nonlinear is None:
            return None, 1.0, 1.0
        n, T = paths.s.size, self.problem.horizon
        linearization = tangent(nonlinear, table.points, table.fit, table.slope, self._ctx)
        force = linearization.value[:n].reshape(paths.s.shape)
        rate = np.asarray(table.reaction)
        growth = float(np.exp(min(T * max(float(np.quantile(rate, 0.95)), 0.0), _MOST)))
        samples = self.judges.factor[:, None] * paths.weight * force
        slack = 1.0 + T * float(np.max(np.abs(rate)))
        return samples, slack, np.inf if nonlinear.uses_gradient else growth


CANCELLATION = 1e10  # of the terms of a network: beyond, rare errors may be large
EXCESS = 2.0  # times the bound from the largest data met, which sampled paths underestimate
# Over the number of points: probability of places that none of them met, 95 % and 99 %.
RARE = (3.0, 4.6)
UNSOLVED = 1.0  # relative error from which no further samples are drawn
CURABLE = 3.0  # times the estimate of the residual form: possible gain by more samples
CONTRADICTION = 2.0  # ratio of the two estimates that chance does not explain


def root_mean_square(values: Any) -> float:
    """Root mean square of all entries, without underflow."""
    return statistics.rms(np.asarray(values))
