"""The relative L2 error of a network over the region, with an interval."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from heatnets._core import streams
from heatnets._core.precision import EPS
from heatnets._core.reasons import Reason, ReasonKind
from heatnets._core.statistics import (
    MAX_KURTOSIS_RATIO,
    RelativeError,
    relative_l2_interval,
    tail_weight,
)
from heatnets.certify.certificate import RegionError, jump_reasons
from heatnets.certify.data_checks import EXACT
from heatnets.certify.error_equation import (
    MONTE_CARLO,
    CorrectionSamples,
    martingale_form,
    residual_form,
)
from heatnets.certify.evaluator import NetworkEvaluator
from heatnets.certify.importance_points import WeightedPoints, choose_points
from heatnets.certify.path_sampling import step_bias_bound
from heatnets.certify.reference_values import HEAVY_SHARE, HEAVY_TAILS, ReferenceValues

# Factor of the samples where each costs one evaluation of the data.
_PLAIN = 256
# Confidence at which Monte Carlo values contradict an estimate.
_CERTAIN = 0.998


class _RegionSamples(NamedTuple):
    """Samples of the error at n random points of the region.

    `values` (n,) and `corrections` (n, pairs) are in the user's units, times the roots of the
    weights of the points.
    """

    points: WeightedPoints
    values: np.ndarray
    corrections: np.ndarray
    estimate: RelativeError


def region_error(
    u: NetworkEvaluator,
    *,
    points: int,
    samples: int,
    confidence: float,
    seed: int,
    smooth: bool,
    mark: streams.Mark = (),
    rare: bool = False,
    reference: Callable[[WeightedPoints], ReferenceValues] | None = None,
) -> RegionError:
    """The relative L2 error over (0, T] x region (at t = T for a `Point`), with an interval.

    It is the debiased mean square of corrections at random points, for smooth data more of them
    where the residual is large. If a few residuals, or a few points, carry the estimate, it is
    repeated with four times as many points. If that does not help, if residuals are known to be
    large in rare places (`rare`), or if Monte Carlo values contradict the estimate, these values
    decide: `reference` makes them at the same points.
    """
    problem, pairs = u.error_problem, max(samples // 2, 2)
    jumps, recorder = jump_reasons(problem), _ResidualRecorder(u.residual)

    def draw(number: int, pairs: int, stream: str, form: Callable[..., Any]) -> _RegionSamples:
        key = (seed, stream, mark)
        chosen = _choose_points(u, recorder.residual, number, key) if smooth else None
        chosen = chosen or _uniform_points(u, number, key)
        t, x = chosen.t, chosen.x
        factor = problem.value_scale(t) * np.sqrt(chosen.weight)
        rngs = [streams.generator(seed, f"{stream} {i}", mark) for i in range(number)]
        value, terms = u.value(t, x)
        drawn: CorrectionSamples = form(u, t, x, pairs, rngs)
        rounding = EPS * terms + u.quadrature_error(t) + (drawn.rounding if smooth else 0.0)
        rounding = rounding + step_bias_bound(drawn.steps.mean(axis=1))
        corrections, value = factor[:, None] * drawn.corrections, factor * value
        estimate = relative_l2_interval(
            corrections, value, factor * rounding, confidence, chosen.statistics
        )
        return _RegionSamples(chosen, value, corrections, estimate)

    def result(
        estimate: RelativeError, reasons: tuple[str, ...], method: str, maximum: float | None = None
    ) -> RegionError:
        size, certified = (len(drawn.values), 2 * pairs), not reasons
        ends = estimate.value, estimate.low, estimate.high
        return RegionError(*ends, maximum, certified, reasons, method, *size, confidence)

    if not smooth:  # samples without steps are hundreds of times cheaper than those with steps
        pairs *= _PLAIN
        drawn = draw(points, pairs, "region error", partial(martingale_form, form=MONTE_CARLO))
        tails = _heavy_tail_reasons(drawn.corrections)
        return result(drawn.estimate, (*drawn.estimate.reasons, *tails, *jumps), "Monte Carlo")
    form = partial(residual_form, residual=recorder.residual)
    for number, stream in ((points, "region error"), (4 * points, "region error again")):
        drawn = draw(number, pairs, stream, form)
        estimate = drawn.estimate
        carried = tail_weight(drawn.corrections, drawn.points.statistics)
        long_tails = rare or not carried <= MAX_KURTOSIS_RATIO
        heavy = long_tails and estimate.high > EXACT
        if rare or not (heavy or estimate.reasons):
            break
    reasons: tuple[str, ...] = (*estimate.reasons, *jumps)
    if heavy:
        cause = (
            "the solve met residuals that few samples do"
            if rare
            else f"one of {drawn.corrections.size} sample pairs carries the estimate"
        )
        reasons = (*reasons, Reason(ReasonKind.HEAVY_TAILS, f"heavy tails: {cause}"))
    if reference is not None:
        reference_values = reference(drawn.points)
        compared, strict = (
            reference_values.compare(drawn.values, level) for level in (confidence, _CERTAIN)
        )
        contradicted = not strict.reasons and strict.low > estimate.high
        if (heavy or contradicted or estimate.reasons) and not compared.reasons:
            inside = compared.low <= estimate.value <= compared.high
            compared = compared._replace(value=estimate.value if inside else compared.value)
            return result(compared, jumps, "Monte Carlo")
        if contradicted:
            difference = f"Monte Carlo values differ from the network by {compared.value:.2g}"
            reasons = (*reasons, difference)
    if problem.has_path_weights:
        return result(estimate, reasons, "residual")
    # Maximum principle: |u - ũ| <= sup |e0| + T sup |R|.
    bound = problem.horizon * recorder.largest
    if u.initial_defect:
        initial = u.initial(drawn.points.t, drawn.points.x)
        bound += abs(u.initial_defect) * float(np.max(np.abs(initial)))
    bound *= float(np.max(problem.value_scale(drawn.points.t)))
    return result(estimate, reasons, "residual", bound / estimate.scale)


_CANDIDATES = 4  # random points from which one point is chosen

Key = tuple[int, str, streams.Mark]  # of a random stream


def _choose_points(
    u: NetworkEvaluator, residual: Callable[..., Any], points: int, key: Key
) -> WeightedPoints | None:
    """Points of the region, more of them where t |R| or |ũ| is large; None for a `Point`.

    The first is the likely size of the error, the second the size to which it is compared.
    """
    problem, (seed, stream, mark) = u.error_problem, key
    if problem.region.is_point:
        return None
    t, x, *_ = _uniform_points(u, _CANDIDATES * points, key)
    scale = problem.value_scale(t)
    sizes = scale * t * np.abs(residual(t, x)[0]), scale * np.abs(u.value(t, x)[0])
    rng = streams.generator(seed, f"{stream}, points", mark)
    return choose_points(t, x, [np.nan_to_num(size) for size in sizes], points, rng)


def _uniform_points(u: NetworkEvaluator, points: int, key: Key) -> WeightedPoints:
    """Random points of (0, T] x region, of equal weights."""
    problem, rng = u.error_problem, streams.generator(*key)
    rng.random(points)  # not used, but the draws below depend on it
    x = problem.region.sample(rng, points, problem.dim)
    # Stratified in time, one point in each of n intervals: errors depend on time.
    fraction = (np.arange(points) + 1 - rng.random(points)) / points
    if problem.region.is_point:
        fraction = np.ones(points)
    t, x = problem.region.at_fractions(fraction, problem.horizon, x)
    return WeightedPoints(t, x, np.ones(points), 0)


class _ResidualRecorder:
    """A residual function that records the largest |R| it has returned."""

    def __init__(self, residual: Callable[..., tuple[np.ndarray, np.ndarray]]) -> None:
        self._residual, self.largest = residual, 0.0

    def residual(self, s: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        result = self._residual(s, y)
        size = np.max(np.abs(result[0]))
        self.largest = float(np.fmax(self.largest, size)) if np.isfinite(size) else np.inf
        return result


def _heavy_tail_reasons(samples: np.ndarray) -> tuple[str, ...]:
    """A message where at many points (rows) a few samples carry the variance."""
    heavy = float(
        np.mean([not tail_weight(row - row.mean()) <= MAX_KURTOSIS_RATIO for row in samples])
    )
    return (HEAVY_TAILS.format(share=100 * heavy),) if heavy > HEAVY_SHARE else ()
