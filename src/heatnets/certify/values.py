"""Certificates: confidence intervals for true values and for the error over the region.

They come from samples of the error equation. Each carries the reasons why it cannot be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from heatnets._core import streams
from heatnets._core.precision import EPS
from heatnets._core.reasons import Reason, ReasonKind, is_kind
from heatnets._core.statistics import FEWEST, HEAVY, interval, relative_l2_interval, tail_weight
from heatnets.certify.error_equation import (
    CHUNK,
    CorrectionSamples,
    NetworkEvaluator,
    martingale_form,
    residual_form,
    step_bias_bound,
)
from heatnets.certify.reference_values import HEAVY_SHARE, HEAVY_TAILS, ReferenceValues
from heatnets.certify.sampling_checks import EXACT
from heatnets.pde.canonical import CanonicalProblem

# Standard errors between the two forms beyond which their difference is not chance.
_DISAGREE = 5.0
# Steps of the martingale form: they divided the variance by 15 to 20 in trials, eight steps by
# twice that.
STEPS = 4
# Steps of the martingale form where it only checks the residual form.
_CHECKS = 4
# How often points whose tails look heavy get four times the samples, without a target half-width.
EXTRA_ROUNDS = 2
# Most samples with a target half-width, as a multiple of `samples`.
MOST = 1024
# Factor of the samples of a region-wide error where each costs one evaluation of the data.
_PLAIN = 256
# Share of a half-width below which the bias of the steps does not matter.
_MATTERS = 0.2
# Confidence at which Monte Carlo values contradict an estimate.
_CERTAIN = 0.998

_NOT_FIRST_ORDER = (
    "halving the steps of paths does not act as first order should, so that their bias is not "
    "known: take more `steps`"
)

_SCALED = ("value", "error", "low", "high", "halfwidth")  # fields in units of u, or of its slopes
_ARRAYS = (*_SCALED, "certified", "samples")  # fields that are arrays over the points


def rounded(value: float, half: float) -> str:
    """A value with the digits that are certain by its half-width, and one more."""
    if not (np.isfinite(value) and np.isfinite(half) and value and half):
        return f"{value:.10g}"
    digits = int(np.floor(np.log10(abs(value)))) - int(np.floor(np.log10(half))) + 2
    return f"{value:.{min(max(digits, 1), 16)}g}"


@dataclass(frozen=True)
class Certificate:
    """Confidence intervals for the true solution at one point or at n points.

    Arrays have the shape () for one point and (n,) for n points. For a gradient the arrays `value`,
    `error`, `low`, `high` and `halfwidth` have the shape (dim,) or (n, dim).

    Attributes:
        value: the network's value plus its estimated error; the centre of the interval.
        error: the estimated error of the network, u - ũ.
        low: lower end of the interval.
        high: upper end of the interval.
        halfwidth: half of its width.
        certified: whether the interval holds the true value with the given confidence.
        reasons: why a point is not certified, or why a requested half-width was not reached: a
            tuple of messages for one point, a tuple of such tuples for n points.
        method: the form of the error equation that was sampled.
        samples: the number of samples taken at each point.
        confidence: the confidence level of each interval.
    """

    value: np.ndarray
    error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    halfwidth: np.ndarray
    certified: np.ndarray
    reasons: tuple[Any, ...]
    method: str
    samples: np.ndarray
    confidence: float

    @property
    def network(self) -> np.ndarray:
        """The value of the network itself, of the shape of `value`."""
        return self.value - self.error

    @property
    def outside(self) -> np.ndarray:
        """Whether the value of the network lies outside the interval, of the shape of `value`."""
        return np.asarray(np.abs(self.error) > self.halfwidth)

    def says_outside(self, i: int | None = None) -> str:
        """A message where the network lies outside a certified interval, else an empty string.

        Args:
            i: the index of the point; None for a certificate of one point.
        """
        index: Any = ... if i is None else i
        apart, network, half = self.outside[index], self.network[index], self.halfwidth[index]
        if not (self.certified[index] and np.any(apart)):
            return ""
        if apart.ndim:
            components = f"{int(np.sum(apart))} of {apart.size} components"
            return f"the network's gradient lies outside in {components}"
        return f"the network's value {rounded(float(network), float(half))} lies outside"

    def rescale(self, unit: np.ndarray | float) -> Certificate:
        """The certificate in other units: `unit` times values, errors and half-widths."""
        fields: dict[str, Any] = {name: unit * getattr(self, name) for name in _SCALED}
        return replace(self, **fields)

    def widen(self, share: float) -> Certificate:
        """The certificate with half-widths larger by a share of |value|."""
        half = self.halfwidth + share * np.abs(self.value)
        return replace(self, halfwidth=half, low=self.value - half, high=self.value + half)

    def add_linearization_error(
        self, bound: np.ndarray, reasons: list[tuple[str, ...]], target: float | None = None
    ) -> Certificate:
        """The certificate of n points with a bound of the linearization error in its half-widths.

        Args:
            bound: added to the half-widths, (n,).
            reasons: why a point is not certified, for each point; empty where it is.
            target: the requested half-width; a message is added where only `bound` exceeds it.
        """
        half = self.halfwidth + bound
        doubtful = np.array([bool(why) for why in reasons])
        too_wide = half > (np.inf if target is None else target)

        def missed(i: int) -> tuple[str, ...]:
            if not (too_wide[i] and self.halfwidth[i] <= (target or 0)):
                return ()
            return (
                f"the half-width {target:.2g} was not reached: "
                f"the error's square alone may be {bound[i]:.2g}",
            )

        messages = tuple(
            (*old, *new, *missed(i))
            for i, (old, new) in enumerate(zip(self.reasons, reasons, strict=True))
        )
        return replace(
            self,
            halfwidth=half,
            low=self.value - half,
            high=self.value + half,
            certified=self.certified & ~doubtful,
            reasons=messages,
        )

    def add_reasons(self, reasons: list[tuple[str, ...]]) -> Certificate:
        """The certificate of n points, not certified at points with reasons against it."""
        doubtful = np.array([bool(why) for why in reasons])
        messages = tuple((*new, *old) for new, old in zip(reasons, self.reasons, strict=True))
        return replace(self, certified=self.certified & ~doubtful, reasons=messages)

    def first_point(self) -> Certificate:
        """The certificate of the first of n points, with arrays of shape ()."""
        fields = {name: getattr(self, name)[0] for name in _ARRAYS}
        return replace(self, reasons=self.reasons[0], **fields)

    def __str__(self) -> str:
        return self.words()

    def words(self, solved: bool = True) -> str:
        """A line of text for each point.

        Args:
            solved: whether the network solves its problem. If not, the network's value is not
                shown, nor a value that is not certified.
        """
        cert = self
        if np.ndim(self.certified) == 0:
            fields: dict[str, Any] = {
                name: np.asarray(getattr(self, name))[None] for name in _ARRAYS
            }
            cert = replace(self, reasons=(self.reasons,), **fields)
        return "\n".join(cert._line(i, solved) for i in range(len(cert.certified)))

    def _line(self, i: int, solved: bool) -> str:
        """The line of text of point i of n."""
        level = f"{100 * self.confidence:g} %, {self.method}, {self.samples[i]} samples"
        reasons = "".join(f"; {why}" for why in self.reasons[i])
        if not solved and not self.certified[i]:
            return f"-, not certified{reasons}"
        network = self.says_outside(i) or "the network's value lies inside"
        if self.value.ndim == 2:  # a gradient: show the widest interval
            d, widest = self.value.shape[1], float(np.max(self.halfwidth[i]))
            shown = ", ".join(
                rounded(v, h) for v, h in zip(self.value[i, :4], self.halfwidth[i, :4], strict=True)
            ) + (", ..." if d > 4 else "")
            level += f"; {self.says_outside(i)}" if self.says_outside(i) else ""
            verdict = "" if self.certified[i] else ", not certified"
            return f"({shown}), half-widths up to {widest:.2g} ({level}){verdict}{reasons}"
        value, half = float(self.value[i]), float(self.halfwidth[i])
        if not self.certified[i]:
            return f"{value:.6g}, not certified{reasons}"
        note = f"; {network}" if solved else ""
        return f"{rounded(value, half)} ± {half:.2g} ({level}{note}){reasons}"


@dataclass(frozen=True)
class RegionError:
    """The relative L2 error over (0, T] x region, estimated without an exact solution.

    Attributes:
        value: the estimate.
        low: lower end of its confidence interval.
        high: upper end of its confidence interval.
        maximum: estimate of a bound of the largest error, relative to the same size of u. By the
            maximum principle |u - ũ| <= sup |e0| + T sup |R|; the largest values on sampled paths
            take the place of the suprema. None where there is no residual (kinked data), and where
            the reaction is a function.
        certified: whether the interval holds the error with the given confidence.
        reasons: why it is not certified.
        method: "residual" or "Monte Carlo".
        points: the number of random points.
        samples: the number of samples at each point.
        confidence: the confidence level of the interval.
    """

    value: float
    low: float
    high: float
    maximum: float | None
    certified: bool
    reasons: tuple[str, ...]
    method: str
    points: int
    samples: int
    confidence: float

    def __str__(self) -> str:
        words = "" if self.certified else f"; not certified: {'; '.join(self.reasons)}"
        span = (
            f"below {self.high:.2g}"
            if self.low < 0.01 * self.high
            else f"between {self.low:.2g} and {self.high:.2g}"
        )
        level = f"{100 * self.confidence:g} %"
        return f"{self.value:.2g} ({span}, {level}, {self.points} points{words})"


Tell = Callable[[int, int], None]  # progress: (points done, points)


class CertifyOptions(NamedTuple):
    """Options of a certificate, and what is known of its n points.

    Attributes:
        samples: samples at each point, in antithetic pairs.
        confidence: confidence level of the intervals.
        seed: seed of the random numbers.
        halfwidth: requested half-width in the user's units, or None.
        smooth: whether ũ is smooth, so that the residual form may be used.
        tell: progress callback.
        unit: factor from values of the canonical problem to the user's, broadcast to (n,), or to
            (n, dim) for a gradient.
        rounding_scale: size of the numbers that the points were computed from, (n, dim); None
            where the points are the user's, unchanged.
        marks: marks of the points in their random streams, so that the samples of a point do not
            depend on the other points; None to use their index.
        rare: an error in the user's units that some path is known to have, and that samples may
            miss.
    """

    samples: int
    confidence: float
    seed: int
    halfwidth: float | None
    smooth: bool
    tell: Tell
    unit: np.ndarray | float = 1.0
    rounding_scale: np.ndarray | None = None
    marks: list[streams.Mark] | None = None
    rare: float = 0.0

    def rng(self, stream: str, i: int) -> np.random.Generator:
        """The random generator of point i in a named stream."""
        mark = (int(i),) if self.marks is None else self.marks[i]
        return streams.generator(self.seed, stream, mark)


def certify(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    options: CertifyOptions,
) -> Certificate:
    """Confidence intervals for the true values at points t (n,), t >= 0, and x (n, dim).

    Where ũ is smooth the samples are of the residual form, checked by the martingale form;
    elsewhere they are of the martingale form. Values are in the user's units, `options.unit` times
    those of the canonical problem.

    With `options.halfwidth` the samples are doubled at the points that need more, up to `MOST`
    times as many. Without it, points where tails look heavy get four times the samples, then
    sixteen times, before that becomes a reason against them.
    """
    samples, smooth, unit = options.samples, options.smooth, options.unit
    value, rounding = u.value(t, x)[0], rounding_bounds(u, t, x, options)
    later = np.flatnonzero(t > 0)
    mean = np.where(t == 0, u.start * u.initial(x), 0.0)
    half, spent = rounding.copy(), np.zeros(len(t), int)
    reasons: list[tuple[str, ...]] = [()] * len(t)
    missed: dict[int, tuple[str, ...]] = {}  # messages: the requested half-width was not reached
    steps = np.full(len(t), 0 if smooth else STEPS)
    target: np.ndarray | None = None  # the requested half-width in units of the canonical problem
    if options.halfwidth is not None:
        target = options.halfwidth / np.broadcast_to(unit, t.shape)

    def draw(points: np.ndarray, pairs: int, batch: int) -> CorrectionSamples:
        rngs = [options.rng(f"certificate {batch}", i) for i in points]
        if smooth:
            return residual_form(problem, u, t[points], x[points], pairs, rngs)
        return martingale_form(problem, u, t[points], x[points], pairs, rngs, int(steps[points[0]]))

    spread = np.zeros(len(t))
    rare = options.rare / np.broadcast_to(np.abs(unit), t.shape)
    corrections: dict[int, list[np.ndarray]] = {int(i): [] for i in later}  # samples of a point
    sample_rounding: dict[int, float] = {int(i): 0.0 for i in later}  # rounding of their mean
    changes: dict[int, list[np.ndarray]] = {int(i): [] for i in later}  # by halving the steps
    step_bias, step_floor = np.zeros(len(t)), np.zeros(len(t))  # allowed for it; left in any case
    order_reasons: dict[int, tuple[str, ...]] = {}
    pending, pairs, batch = later, max(samples // 2, 2), 0
    if target is not None and not smooth and len(later):
        steps[later] = _choose_steps(problem, u, t, x, later, options)
    while len(pending):
        # Draw: as many points at a time as memory allows, all with the same number of steps.
        together, done = max(1, CHUNK // (4 * pairs * problem.dim)), 0
        groups = [pending[steps[pending] == k] for k in np.unique(steps[pending])]
        for points in (
            group[begin : begin + together]
            for group in groups
            for begin in range(0, len(group), together)
        ):
            options.tell(done, len(pending))
            done += len(points)
            drawn = draw(points, pairs, batch)
            spread[points] = np.maximum(spread[points], drawn.spread)
            for i, correction, drawn_rounding, change in zip(
                points.tolist(), drawn.corrections, drawn.rounding, drawn.steps, strict=True
            ):
                before = sum(map(len, corrections[i]))
                corrections[i].append(correction)
                rounding_sum = before * sample_rounding[i] + pairs * float(drawn_rounding)
                sample_rounding[i] = rounding_sum / (before + pairs)
                changes[i].append(change)
        options.tell(len(pending), len(pending))
        # Intervals from all samples so far.
        for i in pending:
            least = max(0.5 * spread[i], rare[i])
            student = interval(
                np.concatenate(corrections[int(i)])[None], options.confidence, least=least
            )
            mean[i], reasons[i] = student.mean[0], student.reasons[0]
            spent[i] = 2 * sum(map(len, corrections[int(i)]))
            if student.half[0] < rounding[i] and np.isfinite(student.half[0]):
                # Heavy tails of rounding errors do not matter.
                reasons[i] = tuple(
                    why for why in reasons[i] if not is_kind(why, ReasonKind.HEAVY_TAILS)
                )
            half[i] = student.half[0] + rounding[i] + (sample_rounding[int(i)] if smooth else 0.0)
            if problem.coefficients is not None:
                step_bias[i], step_floor[i], order_reasons[int(i)] = step_allowance(
                    np.concatenate(changes[int(i)]), half[i]
                )
                half[i] += step_bias[i]
        # Which points need more samples?
        if target is None:
            doubtful = [
                i
                for i in pending
                if reasons[i] and np.isfinite(half[i]) and batch < EXTRA_ROUNDS and pairs >= FEWEST
            ]
            pending = np.array(doubtful, int)
            pairs, batch = 3 * max((spent[i] // 2 for i in doubtful), default=0), batch + 1
            continue
        retry_below = 4**EXTRA_ROUNDS * samples  # where tails look heavy, as without a target
        wide = [
            i
            for i in pending
            if np.isfinite(half[i])
            and (half[i] > target[i] or (reasons[i] and spent[i] < retry_below))
        ]
        all_rounding = rounding + np.array([sample_rounding.get(i, 0.0) for i in range(len(t))])
        hopeless = all_rounding + step_floor >= target
        ended = [
            i for i in wide if spent[i] >= MOST * samples or (hopeless[i] and half[i] > target[i])
        ]
        for i in ended:
            why = (
                f": the steps of paths alone leave {step_floor[i]:.2g}; take more `steps`"
                if step_floor[i] > target[i]
                else ""
            )
            missed[int(i)] = (
                f"the half-width {options.halfwidth:.2g} was not reached "
                f"after {spent[i]} samples{why}",
            )
        pending = np.array([i for i in wide if i not in ended], int)
        pairs, batch = pairs if batch == 0 else 2 * pairs, batch + 1
    if smooth and len(later):
        pairs = max(FEWEST, samples // 64)
        _check_forms(problem, u, t, x, later, corrections, step_bias, reasons, pairs, options)
    reasons = [
        r if r or np.isfinite(h) else ("the value or its interval is not finite",)
        for r, h in zip(reasons, value + half, strict=True)
    ]
    reasons = [
        (*r, *order_reasons.get(i, ()), *jump_reasons(problem)) for i, r in enumerate(reasons)
    ]
    good = np.array([not r for r in reasons])
    reasons = [(*r, *missed.get(i, ())) for i, r in enumerate(reasons)]
    names = {0: "no steps (Monte Carlo)", STEPS: f"{STEPS} steps"}
    used = " or ".join(names[k] for k in sorted(set(steps.tolist()), reverse=True))
    method = "residual" if smooth else f"martingale, {used}"
    method += "" if problem.coefficients is None else ", paths in steps"
    return Certificate(
        value=value + mean,
        error=mean,
        low=value + mean - half,
        high=value + mean + half,
        halfwidth=half,
        certified=good,
        reasons=tuple(reasons),
        method=method,
        samples=spent,
        confidence=options.confidence,
    ).rescale(unit)


def step_allowance(changes: np.ndarray, half: Any) -> tuple[Any, Any, tuple[str, ...]]:
    """Bound the bias of paths in steps, and check that it is of first order.

    Args:
        changes: samples of what halving the number of steps changes, once and twice, (n, ..., 2).
        half: the other parts of the half-width, (...); a bias that is small against it does not
            matter.

    Returns:
        The bound, (...), a part of it that more samples will not remove, (...), and a message where
        the two changes are not in the proportion 1 : 2 of first order.
    """
    mean, n = changes.mean(axis=0), len(changes)
    noise = changes.std(axis=0, ddof=1) / np.sqrt(n)
    allowed, least = (
        step_bias_bound(mean),
        step_bias_bound(np.maximum(np.abs(mean) - 3 * noise, 0.0)),
    )
    excess = changes[..., 1] - 2 * changes[..., 0]  # of mean zero at first order
    wrong = np.abs(excess.mean(axis=0)) > allowed + 3 * excess.std(axis=0, ddof=1) / np.sqrt(n)
    if np.any(wrong & (allowed > _MATTERS * half)):
        return allowed, least, (_NOT_FIRST_ORDER,)
    return allowed, least, ()


def jump_reasons(problem: CanonicalProblem) -> tuple[str, ...]:
    """Why nothing is certified where coefficients jump: halving the steps does not show the bias.

    Returns one message for each coefficient that jumps.
    """
    names = () if problem.coefficients is None else problem.coefficients.jumps
    return tuple(f"`{name}` jumps: the bias of paths in steps is not known there" for name in names)


def rounding_bounds(
    u: NetworkEvaluator, t: np.ndarray, x: np.ndarray, options: CertifyOptions
) -> np.ndarray:
    """Bounds for the rounding errors of ũ(t, x) at n points, (n,).

    4 eps Σ |w_j φ_j|, plus the change of ũ when the last bits of x change (sums inside the user's
    functions cancel, too). The factors 4 are for sums of many terms, with several roundings each.
    """
    scale = np.abs(x) if options.rounding_scale is None else options.rounding_scale
    points = perturbed_points(x, np.maximum(scale, 1e-3), options, "last bits", 8)
    values = np.array([u.value(t, y)[0] for y in points])
    return 4 * EPS * u.value(t, x)[1] + 4 * np.std(values, axis=0, ddof=1)


def perturbed_points(
    x: np.ndarray, scale: np.ndarray, options: CertifyOptions, stream: str, number: int
) -> Iterator[np.ndarray]:
    """Copies of the points x (n, dim), `number` of them, with random changes ±eps · scale."""
    rngs = [options.rng(stream, i) for i in range(len(x))]
    for _ in range(number):
        yield x + EPS * scale * np.stack([rng.choice([-1.0, 1.0], x.shape[1]) for rng in rngs])


def _check_forms(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    later: np.ndarray,
    corrections: dict[int, list[np.ndarray]],
    step_bias: np.ndarray,
    reasons: list[tuple[str, ...]],
    pairs: int,
    options: CertifyOptions,
) -> None:
    """Check the residual form by the martingale form, which needs no smoothness.

    Where their means contradict each other, `reasons` of the point are replaced by a message.
    """
    points = np.array([i for i in later if not reasons[i]], int)
    if not len(points):
        return
    rngs = [options.rng("certificate check", i) for i in points]
    check = martingale_form(problem, u, t[points], x[points], pairs, rngs, _CHECKS)
    for i, checks, rounding, change in zip(
        points.tolist(), check.corrections, check.rounding, check.steps, strict=True
    ):
        allowed = step_bias[i] + float(step_bias_bound(change.mean(axis=0)))
        samples = np.concatenate(corrections[i])
        apart = float(disagreement(samples[None], checks[None], allowed)[0])
        only_rounding = abs(float(np.mean(checks))) < 100 * float(rounding)
        if apart > _DISAGREE and not only_rounding:
            reasons[i] = (
                f"two forms of the error equation disagree by {apart:.1f} standard errors: "
                "the data may have kinks or jumps that were not found",
            )


def disagreement(first: np.ndarray, second: np.ndarray, allowed: float = 0.0) -> np.ndarray:
    """Distance of the means of two independent sets of samples, in standard errors.

    Args:
        first: samples, (rows, n).
        second: samples, (rows, m).
        allowed: a difference that is allowed for the steps of paths.

    Returns:
        The distance for each row, (rows,).
    """
    gap = np.maximum(np.abs(first.mean(axis=1) - second.mean(axis=1)) - allowed, 0.0)
    noise = np.sqrt(sum(s.var(axis=1, ddof=1) / s.shape[1] for s in (first, second)))
    return gap / np.where(noise > 0, noise, np.inf)


def _choose_steps(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    later: np.ndarray,
    options: CertifyOptions,
) -> np.ndarray:
    """The number of steps of the martingale form at each point, `STEPS` or 0.

    Whichever needs fewer evaluations of the data for the same variance, by a pilot at each point.
    """
    sources, costs = problem.has_source, []
    for steps, evaluations in (
        (0, 1 + sources),
        (STEPS, 1 + STEPS * sources + (STEPS - 1) * u.slope_cost),
    ):
        rngs = [options.rng(f"certificate pilot {steps}", i) for i in later]
        drawn = martingale_form(problem, u, t[later], x[later], FEWEST, rngs, steps)
        costs.append(evaluations * np.var(drawn.corrections, axis=1))
    return np.where(costs[1] < costs[0], STEPS, 0)


def region_error(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    *,
    points: int,
    samples: int,
    confidence: float,
    seed: int,
    smooth: bool,
    mark: streams.Mark = (),
    rare: bool = False,
    reference: Callable[[np.ndarray, np.ndarray], ReferenceValues] | None = None,
) -> RegionError:
    """The relative L2 error over (0, T] x region (at t = T for a `Point`), with an interval.

    It is the debiased mean square of corrections at random points. If a few residuals, or a few
    points, carry the estimate, it is repeated with four times as many points. If that does not
    help, if residuals are known to be large in rare places (`rare`), or if Monte Carlo values
    contradict the estimate, these values decide: `reference` makes them, from points (t, x).
    """
    pairs = max(samples // 2, 2)
    if not smooth:  # samples without steps are hundreds of times cheaper than those with steps
        pairs *= _PLAIN
        t, x, factor, rngs = _region_points(problem, points, seed, "region error", mark)
        value, terms = u.value(t, x)
        drawn = martingale_form(problem, u, t, x, pairs, rngs, 0)
        rounding = EPS * terms + step_bias_bound(drawn.steps.mean(axis=1))
        estimate = relative_l2_interval(
            factor[:, None] * drawn.corrections, factor * value, factor * rounding, confidence
        )
        tails = _heavy_tail_reasons(drawn.corrections)
        reasons = (*estimate.reasons, *tails, *jump_reasons(problem))
        return RegionError(
            value=estimate.value,
            low=estimate.low,
            high=estimate.high,
            maximum=None,
            certified=not reasons,
            reasons=reasons,
            method="Monte Carlo",
            points=points,
            samples=2 * pairs,
            confidence=confidence,
        )
    recorder = _ResidualRecorder(u.residual)
    for number, stream in ((points, "region error"), (4 * points, "region error again")):
        t, x, factor, rngs = _region_points(problem, number, seed, stream, mark)
        value, terms = u.value(t, x)
        drawn = residual_form(problem, u._replace(residual=recorder.residual), t, x, pairs, rngs)
        corrections = drawn.corrections
        rounding = EPS * terms + drawn.rounding + step_bias_bound(drawn.steps.mean(axis=1))
        estimate = relative_l2_interval(
            factor[:, None] * corrections, factor * value, factor * rounding, confidence
        )
        long_tails = rare or not tail_weight(factor[:, None] * corrections) <= HEAVY
        heavy = long_tails and estimate.high > EXACT
        if rare or not (heavy or estimate.reasons):
            break
    # Maximum principle: |u - ũ| <= sup |e0| + T sup |R|.
    largest_e0 = abs(u.start) * float(np.max(np.abs(u.initial(x)))) if u.start else 0.0
    bound = problem.horizon * recorder.largest + largest_e0
    bound *= float(np.max(factor))
    maximum = None if problem.has_path_weights else bound / estimate.scale
    reasons, method = (*estimate.reasons, *jump_reasons(problem)), "residual"
    values = None if reference is None else reference(t, x)
    if heavy:
        cause = (
            "the solve met residuals that few samples do"
            if rare
            else f"one of {corrections.size} sample pairs carries the estimate"
        )
        reasons = (*reasons, Reason(ReasonKind.HEAVY_TAILS, f"heavy tails: {cause}"))
    if values is not None:
        compared, strict = (
            values.compare(factor * value, level) for level in (confidence, _CERTAIN)
        )
        contradicted = not strict.reasons and strict.low > estimate.high
        if (heavy or contradicted or estimate.reasons) and not compared.reasons:
            inside = compared.low <= estimate.value <= compared.high
            estimate = compared._replace(value=estimate.value if inside else compared.value)
            reasons, method = jump_reasons(problem), "Monte Carlo"
            maximum = None
        elif contradicted:
            difference = f"Monte Carlo values differ from the network by {compared.value:.2g}"
            reasons = (*reasons, difference)
    return RegionError(
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        maximum=maximum,
        certified=not reasons,
        reasons=reasons,
        method=method,
        points=len(t),
        samples=2 * pairs,
        confidence=confidence,
    )


def _region_points(
    problem: CanonicalProblem, points: int, seed: int, stream: str, mark: streams.Mark
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.random.Generator]]:
    """Random points t (n,), x (n, dim) of (0, T] x region, and a random generator for each.

    The third result, (n,), is the factor from values of the canonical problem to the user's.
    """
    rng = streams.generator(seed, stream, mark)
    rng.random(points)  # not used, but the draws below depend on it
    x = problem.region.sample(rng, points, problem.dim)
    # Stratified in time, one point in each of n intervals: errors depend on time.
    fraction = (np.arange(points) + 1 - rng.random(points)) / points
    if problem.region.single:
        fraction = np.ones(points)
    t, x = problem.region.at(fraction, problem.horizon, x)
    rngs = [streams.generator(seed, f"{stream} {i}", mark) for i in range(points)]
    return t, x, np.broadcast_to(problem.value_scale(t), t.shape), rngs


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
    heavy = float(np.mean([not tail_weight(row - row.mean()) <= HEAVY for row in samples]))
    return (HEAVY_TAILS.format(share=100 * heavy),) if heavy > HEAVY_SHARE else ()
