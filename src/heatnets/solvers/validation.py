"""Validation set and test set (final check) of the adaptive solver. Three estimates of one error:

residual form       unbiased and sharp; misses events that are rarer than the sampled paths show
Monte Carlo values  unbiased; cannot resolve errors below their noise (`reference_values.py`)
maximum principle   |u| <= max |u0| + t max |F| over the sampled paths: costs nothing, coarse
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from heatnets._core import statistics
from heatnets._core.precision import EPS
from heatnets._core.statistics import rms
from heatnets.certify import error_equation
from heatnets.certify.importance_points import WeightedPoints
from heatnets.certify.reference_values import ReferenceValues, reference_stream
from heatnets.features.features import Equation
from heatnets.fit.assembly import initial_values, linearize_source, time_powers
from heatnets.fit.entry_cache import EntryCache
from heatnets.solvers.run import Run

ROUNDING = 4 * EPS  # relative rounding error of the terms of a sum: a few roundings per term
_MAX_EXPONENT = 30.0  # largest exponent that is used for the growth of an error
CANCELLATION = 1e10  # of the terms of a network: beyond, rare errors may be large
EXCESS = 2.0  # times the bound from the largest data met, which sampled paths underestimate
# Over the number of points: probability of places that none of them met, 95 % and 99 %.
RARE = (3.0, 4.6)
UNSOLVED = 1.0  # relative error from which no further samples are drawn
CURABLE = 3.0  # times the estimate of the residual form: possible gain by more samples
CONTRADICTION = 2.0  # ratio of the two estimates that chance does not explain


class BlockSizes(NamedTuple):
    """Sizes of the smallest pieces of work.

    `validation` and `test` are the sizes of the validation set and of the test set, as (points,
    samples on paths from each point).
    """

    block: int = 16  # features per compiled call
    row_chunk: int = 256  # rows per compiled call
    validation: tuple[int, int] = (64, 7)
    # More points here: a small error may be larger in some places.
    test: tuple[int, int] = (256, 2)


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


class ErrorSamples(NamedTuple):
    """Samples of the error of a fit, at P starting points with S paths each."""

    samples: np.ndarray  # of the error, (P, S)
    residual: np.ndarray  # on the paths, (P, S)
    source: np.ndarray  # on the paths, (P * S,)
    value: np.ndarray  # of the fit at the starting points, (P,)
    terms: np.ndarray  # sums of the sizes of the terms of the fit, (P,)
    largest: float  # T times the largest residual on the paths


class ValidationSet:
    """Points of the region, and paths from them, at which the error equation is sampled.

    The error e = u - ũ of a fit solves the PDE with the residual of ũ as source. Residuals on paths
    from (t, x) are therefore unbiased samples of e(t, x). Feature entries at all points are kept in
    `cache`: first the P * S points on paths, then the P starting points.
    """

    def __init__(
        self,
        run: Run,
        data: Equation,
        stream: str,
        size: tuple[int, int],
        *,
        row_chunk: int,
        start_points: WeightedPoints | None = None,
        draw_noise: error_equation.DrawNoise | None = None,
    ) -> None:
        self.problem, seed = run.problem, run.options.seed
        problem, dim = run.problem, run.problem.dim
        self.paths = p = error_equation.paths(
            problem, *size, seed, stream, chosen=start_points, draw_noise=draw_noise
        )
        points = (
            np.concatenate([p.s.reshape(-1), p.t]),
            np.concatenate([p.y.reshape(-1, dim), p.x]),
        )
        self.cache = EntryCache(problem, data, run.ctx, points, row_chunk)
        self.missed: Any = 0.0  # samples of the error from an initial condition without features
        # From values of the canonical problem to values of u ...
        self.value_scale = np.broadcast_to(problem.value_scale(p.t), p.t.shape)
        # ... and to a mean square over the region, if the points were chosen with weights.
        self.factor = self.value_scale * np.sqrt(p.importance)
        if problem.zero_initial:
            # u0 was zero at all points tested so far, and has no features: test again, at the
            # ends of these paths.
            noise = problem.paths.sample_noise(run.rng(f"{stream}, further"), p.s.shape, dim)
            ends = problem.paths.simulate(p.s, p.y, p.s, noise)
            u0 = initial_values(data, ends.position.reshape(-1, dim), run.ctx)
            self.missed = p.ratio * p.grown * ends.weight * u0.reshape(p.s.shape)
        self.reference = ReferenceValues(
            problem.linear_part(),
            data,
            (p.t, p.x),
            reference_stream(seed, stream),
            run.ctx,
            pool=p.pool,
        )

    @property
    def _has_values(self) -> bool:
        """Whether there are Monte Carlo values of u: not if the source depends on u."""
        return self.reference.calls > 0 and not self.problem.source.uses_u

    def assess(
        self, weights: np.ndarray, columns: np.ndarray, degree: int, rows: EntryCache | None = None
    ) -> Assessment:
        """Estimate the error of a fit in all ways.

        If `rows` is given, the maximum principle is checked at its points too.
        """
        samples, residual, source, value, terms, _ = self.sample(weights, columns, degree)
        error = self._root_mean_square(samples)
        scale = rms(value) or 1.0
        rounding = rms(ROUNDING * terms + self.quadrature_error(weights, degree))
        size = max(rms(source), (rms(value / self.factor) or 1.0) / self.problem.horizon)
        disagreement, high = 0.0, np.inf
        if self._has_values:
            difference = self.reference.compare(value, 0.98)
            disagreement = self.reference.disagreement(value)
            high = np.inf if difference.reasons else difference.high
        return Assessment(
            error=float(np.hypot(error, rounding)) / scale,
            spread=float(np.hypot(rms(samples), rounding)) / scale,
            tails=statistics.tail_weight(samples),
            residual=rms(residual) / size,
            size=size,
            amplification=rms(terms) / scale,
            excess=self._excess(weights, columns, degree, rows),
            disagreement=disagreement / scale,
            high=high,
        )

    def _root_mean_square(self, samples: np.ndarray) -> float:
        """Root mean square of the error that (P, S) samples have, plus one standard error."""
        if self.problem.region.is_point:  # all samples have the same mean
            return float(abs(np.mean(samples)) + np.std(samples, ddof=1) / np.sqrt(samples.size))
        return statistics.mean_square(samples, self.paths.pool).root

    def interval(
        self, samples: np.ndarray, value: np.ndarray, rounding: np.ndarray
    ) -> statistics.RelativeError:
        """Interval (99 %) for the relative error, from (P, S) samples of it."""
        if self.problem.region.is_point:
            return statistics.relative_interval_at_point(samples, value, rounding, 0.99)
        return statistics.relative_l2_interval(samples, value, rounding, 0.99, self.paths.pool)

    def quadrature_error(self, weights: np.ndarray, degree: int) -> np.ndarray:
        """Bound for the error of features that are integrals, at the starting points, (P,)."""
        rule = self.problem.preintegration
        if rule is None:
            return np.zeros_like(self.paths.t)
        p, _ = time_powers(self.paths.t / self.problem.horizon, degree)
        sums = np.sum(np.abs(p @ weights.reshape(degree + 1, -1)), axis=1)
        return rule.error * self.factor * sums

    def _excess(
        self, weights: np.ndarray, columns: np.ndarray, degree: int, rows: EntryCache | None
    ) -> float:
        """Largest ratio |ũ| / (max |u0| + t max |F|); 0 without Monte Carlo values."""
        if not self._has_values:
            return 0.0
        caches = [self.cache] if rows is None else [self.cache, rows]
        largest = np.array([self.reference.largest, *(c.largest_data() for c in caches)])
        initial, source = np.fmax.reduce(largest)  # without NaN
        grown, worst = max(1.0, float(np.max(self.paths.grown))), 0.0
        for cache in caches:
            bound = grown * (initial + cache.points[0] * source)
            value = np.abs(cache.fitted(weights, columns, degree))
            ratio = np.divide(value, bound, out=np.zeros_like(value), where=bound > 0)
            worst = max(worst, float(cache.largest(np.max(ratio, initial=0.0))[0]))
        return worst

    def sample(self, weights: np.ndarray, columns: np.ndarray, degree: int) -> ErrorSamples:
        """Samples of the error of a fit, and what they are computed from."""
        paths, cache = self.paths, self.cache
        n = paths.s.size
        on_paths, starts = slice(n), slice(n, None)
        residual, grown = cache.residual(weights, columns, degree, on_paths), np.ones(())
        residual = residual.reshape(paths.weight.shape)
        if self.problem.source.uses_u:
            # An error grows along the path by exp(∫ f_u), with the mean of f_u at both ends.
            lag = paths.t[:, None] - paths.s
            rate = 0.5 * (cache.reaction[:n].reshape(lag.shape) + cache.reaction[n:, None])
            grown = np.exp(np.clip(rate * lag, -_MAX_EXPONENT, _MAX_EXPONENT))
        samples = self.factor[:, None] * (paths.weight * grown * residual + self.missed)
        largest = self.problem.horizon * float(
            np.max(np.abs(np.maximum(grown, 1.0) * residual))
        ) + float(np.max(np.abs(self.missed)))
        largest *= float(np.max(self.value_scale)) * max(1.0, float(np.max(paths.grown)))
        value, terms = (
            self.factor * cache.fitted(weights, columns, degree, starts, moduli=moduli)
            for moduli in (False, True)
        )
        return ErrorSamples(samples, residual, cache.forcing[on_paths], value, terms, largest)


class Verdict(NamedTuple):
    """Result of the final check of a fit. Error and bound are infinite if nothing is known."""

    error: float  # relative
    bound: float  # upper bound of the error, 99 % confidence
    low: float  # lower end of the interval of the residual form
    doubts: tuple[str, ...]  # about the residual form: then only Monte Carlo values count
    reasons: tuple[str, ...]  # why nothing is known
    residual: float  # root mean square, relative
    curable: bool  # by more samples: the only doubt is that a few samples dominate the estimate
    facts: dict[str, Any]  # for `stats["check"]`


def final_check(
    test_set: ValidationSet,
    weights: np.ndarray,
    columns: np.ndarray,
    degree: int,
    rows: EntryCache | None = None,
) -> Verdict:
    """Check a fit on a test set, which is used for no choice of the solver.

    The check decides whether a tolerance is met, and gives the estimated error. The residual form
    is used if its tails are light, the terms of the network cancel by at most `CANCELLATION`, and
    the values satisfy the maximum principle. Otherwise the error is bounded by Monte Carlo values
    and by the largest residual. If Monte Carlo values contradict the residual form, they are used.
    The test set must contain the entries of the features.
    """
    assessment = test_set.assess(weights, columns, degree, rows)
    samples, _, _, value, terms, largest = test_set.sample(weights, columns, degree)
    rounding = ROUNDING * terms + test_set.quadrature_error(weights, degree)
    interval = test_set.interval(samples, value, rounding)
    source, slack, grown = _source_samples(test_set)
    monte_carlo, monte_carlo_998 = (
        test_set.reference.compare(value, level, source) for level in (0.99, 0.998)
    )
    has_heavy_tails = not assessment.tails <= statistics.MAX_KURTOSIS_RATIO
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
        ("data are not finite on some paths", not np.all(np.isfinite(test_set.reference.mean))),
    )
    doubts = tuple(message for message, failed in tests if failed)
    usable = not monte_carlo.reasons
    only_heavy_tails = len(doubts) == 1 and has_heavy_tails
    scale = monte_carlo.scale if usable else rms(value) or 1.0
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
        **test_set.reference.facts(monte_carlo),
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
    return Verdict(
        error, bound, float(interval.low), doubts, reasons, assessment.residual, curable, facts
    )


def _source_samples(test_set: ValidationSet) -> tuple[np.ndarray | None, float, float]:
    """Source part of the mild formulation at the fit, for a source that depends on u.

    Returns its samples, (P, S), and two factors: the defect of the mild formulation is at most
    the first times the error, and the error at most the second times the defect. The second is
    exp(∫ f_u) with the 95 % quantile of f_u; it is infinite if f depends on ∇u, because then
    nothing is known.
    """
    problem, paths, cache = test_set.problem, test_set.paths, test_set.cache
    if not problem.source.uses_u:
        return None, 1.0, 1.0
    T = problem.horizon
    at_fit = linearize_source(problem.source, cache.points, cache.u, cache.grad_u, cache.ctx)
    force = at_fit.value[: paths.s.size].reshape(paths.s.shape)
    rate = np.asarray(cache.reaction)
    growth = float(np.exp(min(T * max(float(np.quantile(rate, 0.95)), 0.0), _MAX_EXPONENT)))
    samples = test_set.factor[:, None] * paths.weight * force
    slack = 1.0 + T * float(np.max(np.abs(rate)))
    return samples, slack, np.inf if problem.source.uses_gradient else growth
