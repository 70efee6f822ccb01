"""Intervals for true values, from samples of the error equation; and when not to believe them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from heatnets._core import streams
from heatnets._core.precision import EPS
from heatnets._core.statistics import FEWEST, HEAVY, interval, relative_l2_interval, tail_weight
from heatnets.certify.error_equation import (
    CHUNK,
    CorrectionSamples,
    NetworkEvaluator,
    allowance,
    martingale_form,
    reacts,
    residual_form,
)
from heatnets.certify.reference_values import HEAVY_SHARE, HEAVY_TAILS, ReferenceValues
from heatnets.certify.sampling_checks import EXACT
from heatnets.pde.canonical import CanonicalProblem

_DISAGREE = 5.0  # standard errors between the two forms that are no chance
STEPS = 4  # of the martingale form: they divided the variance by 15 to 20 in trials, eight steps by twice that
_CHECKS = 4  # of the sanity check
AGAIN = 2  # times that points whose tails look heavy get four times the samples, where no half-width was asked for
MOST = 1024  # times the samples asked for, where a half-width is
_PLAIN = (
    256  # times the samples of a region-wide error, where each costs one evaluation of the data
)


_ARRAYS = ("value", "error", "low", "high", "halfwidth", "certified", "samples")


def rounded(value: float, half: float) -> str:
    """A value with the digits that its half-width leaves, and one more."""
    if not (np.isfinite(value) and np.isfinite(half) and value and half):
        return f"{value:.10g}"
    digits = int(np.floor(np.log10(abs(value)))) - int(np.floor(np.log10(half))) + 2
    return f"{value:.{min(max(digits, 1), 16)}g}"


@dataclass(frozen=True)
class Certificate:
    """The true value at points, with an interval: each field of shape () or (n,).

    `value` is the network's value plus its estimated `error`; the truth lies between `low` and `high` as often as the confidence says,
    where `certified`. Where not, `reasons` say why; they also say where a half-width that was asked for is not reached. `samples` are those
    spent at each point. A gradient's intervals are of shape (dim,) or (n, dim).
    `network` is the network's own value, and `outside` says where it is not in the interval.
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
        """The network's own value."""
        return self.value - self.error

    @property
    def outside(self) -> np.ndarray:
        """Whether the network's own value lies outside the interval; of a gradient, for each
        component.
        """
        return np.asarray(np.abs(self.error) > self.halfwidth)

    def says_outside(self, i: int | None = None) -> str:
        """Words where the network lies outside a certified interval: of one point, or of point i of
        many; else none.
        """
        here: Any = ... if i is None else i
        apart, network, half = self.outside[here], self.network[here], self.halfwidth[here]
        if not (self.certified[here] and np.any(apart)):
            return ""
        if apart.ndim:
            return f"the network's gradient lies outside in {int(np.sum(apart))} of {apart.size} components"
        return f"the network's value {rounded(float(network), float(half))} lies outside"

    def scaled(self, unit: np.ndarray | float) -> Certificate:
        """The same in other units: those of u at each point, or of its slopes."""
        fields: dict[str, Any] = {
            name: unit * getattr(self, name)
            for name in ("value", "error", "low", "high", "halfwidth")
        }
        return replace(self, **fields)

    def widened(self, share: float) -> Certificate:
        """The same with half-widths larger by a share of the values."""
        half = self.halfwidth + share * np.abs(self.value)
        return replace(self, halfwidth=half, low=self.value - half, high=self.value + half)

    def allowing(
        self, more: np.ndarray, reasons: list[tuple[str, ...]], wanted: float | None = None
    ) -> Certificate:
        """The same with half-widths larger by `more`, and not certified where there are reasons; and said where they are then wider than was asked for."""
        half = self.halfwidth + more
        doubts = np.array([bool(why) for why in reasons])
        over = half > (np.inf if wanted is None else wanted)
        said = [(f"the half-width {wanted:.2g} was not reached: the error's square alone may be {m:.2g}",) if o and self.halfwidth[i] <= (wanted or 0) else () for i, (o, m) in enumerate(zip(over, more, strict=True))]  # fmt: skip
        told = tuple(
            (*old, *new, *also) for old, new, also in zip(self.reasons, reasons, said, strict=True)
        )
        return replace(
            self,
            halfwidth=half,
            low=self.value - half,
            high=self.value + half,
            certified=self.certified & ~doubts,
            reasons=told,
        )

    def doubting(self, reasons: list[tuple[str, ...]]) -> Certificate:
        """The same, not certified where there are reasons."""
        doubts = np.array([bool(why) for why in reasons])
        told = tuple((*new, *old) for new, old in zip(reasons, self.reasons, strict=True))
        return replace(self, certified=self.certified & ~doubts, reasons=told)

    def first(self) -> Certificate:
        """The certificate of the first point alone, with fields of shape ()."""
        return replace(
            self, reasons=self.reasons[0], **{name: getattr(self, name)[0] for name in _ARRAYS}
        )

    def __str__(self) -> str:
        return self.words()

    def words(self, solved: bool = True) -> str:
        """In words, a line for each point; of a network that solves nothing no value is shown, and
        none that rests on it uncertified.
        """
        single = np.ndim(self.certified) == 0
        one = self
        if single:
            more: dict[str, Any] = {name: np.asarray(getattr(self, name))[None] for name in _ARRAYS}
            one = replace(self, reasons=(self.reasons,), **more)
        return "\n".join(one._line(i, solved) for i in range(len(one.certified)))

    def _line(self, i: int, solved: bool) -> str:
        level = f"{100 * self.confidence:g} %, {self.method}, {self.samples[i]} samples"
        said = "".join(f"; {why}" for why in self.reasons[i])
        if not solved and not self.certified[i]:
            return f"-, not certified{said}"
        network = self.says_outside(i) or "the network's value lies inside"
        if self.value.ndim == 2:  # a gradient: the widest interval tells
            d, widest = self.value.shape[1], float(np.max(self.halfwidth[i]))
            shown = ", ".join(
                rounded(v, h) for v, h in zip(self.value[i, :4], self.halfwidth[i, :4], strict=True)
            ) + (", ..." if d > 4 else "")
            level += f"; {self.says_outside(i)}" if self.says_outside(i) else ""
            return f"({shown}), half-widths up to {widest:.2g} ({level}){'' if self.certified[i] else ', not certified'}{said}"
        value, half = float(self.value[i]), float(self.halfwidth[i])
        if not self.certified[i]:
            return f"{value:.6g}, not certified{said}"
        return (
            f"{rounded(value, half)} ± {half:.2g} ({level}{f'; {network}' if solved else ''}){said}"
        )


@dataclass(frozen=True)
class RegionError:
    """The relative L2 error over (0, T] x region, estimated without an exact solution: `value`, with an interval from `low` to `high`.

    `maximum` estimates a bound of the largest error, relative to the same size: by the maximum principle |u - ũ| <= sup |e0| + T sup |R|, with the
    largest values met on sampled paths in place of the suprema. It is None where there is no residual (kinked data), and where the reaction is a function.
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
        return (
            f"{self.value:.2g} ({span}, {100 * self.confidence:g} %, {self.points} points{words})"
        )


Tell = Callable[[int, int], None]


class CertifyOptions(NamedTuple):
    """What a certificate is asked for, and what is known of its points: `unit` makes the user's values of the problem's own, `fuzz` is the size of the
    numbers that places were computed from, where they are not the user's own."""

    samples: int
    confidence: float
    seed: int
    halfwidth: float | None
    smooth: bool
    tell: Tell
    unit: np.ndarray | float = 1.0
    rounding_scale: np.ndarray | None = None
    marks: list[streams.Mark] | None = (
        None  # of the points: their streams do not depend on the others asked for
    )
    rare: float = (
        0.0  # an error, in the user's units, that some path is known to meet and samples may miss
    )

    def rng(self, stream: str, i: int) -> np.random.Generator:
        """The stream of point i."""
        return streams.generator(
            self.seed, stream, (int(i),) if self.marks is None else self.marks[i]
        )


def certify(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    asked: CertifyOptions,
) -> Certificate:
    """Intervals for the true values at points with t >= 0: the residual form where ũ is smooth, checked by the martingale form; else the latter.

    Values come out in the user's units, `unit` times the problem's own. With `halfwidth`, in those units, samples are doubled at the points that need more, up to `MOST` times as many. Without, points where tails look heavy get
    four times the samples before that is said, and sixteen times.
    """
    samples, confidence, halfwidth, smooth, tell, unit = (
        asked.samples, asked.confidence, asked.halfwidth, asked.smooth, asked.tell, asked.unit,
    )  # fmt: skip
    value, rounding = u.value(t, x)[0], rounding_of(u, t, x, asked)
    later = np.flatnonzero(t > 0)
    at_start = t == 0
    mean = np.where(at_start, u.start * u.initial(x), 0.0)
    half, spent = rounding.copy(), np.zeros(len(t), int)
    reasons: list[tuple[str, ...]] = [()] * len(t)
    missed: dict[int, tuple[str, ...]] = {}
    steps = np.full(len(t), 0 if smooth else STEPS)
    wanted = None if halfwidth is None else halfwidth / np.broadcast_to(unit, t.shape)

    def draw(points: np.ndarray, pairs: int, batch: int) -> CorrectionSamples:
        rngs = [asked.rng(f"certificate {batch}", i) for i in points]
        if smooth:
            return residual_form(problem, u, t[points], x[points], pairs, rngs)
        return martingale_form(problem, u, t[points], x[points], pairs, rngs, int(steps[points[0]]))

    spread, least = np.zeros(len(t)), np.zeros(len(t))
    rare = asked.rare / np.broadcast_to(np.abs(unit), t.shape)
    kept: dict[int, list[np.ndarray]] = {int(i): [] for i in later}
    added: dict[int, float] = {int(i): 0.0 for i in later}
    steps_of: dict[int, list[np.ndarray]] = {
        int(i): [] for i in later
    }  # what halving the steps changes
    stepped = np.zeros(len(t))  # what is allowed for that
    halved: dict[int, tuple[str, ...]] = {}
    open_, pairs, batch = later, max(samples // 2, 2), 0
    if wanted is not None and not smooth and len(later):
        steps[later] = _cheaper(problem, u, t, x, later, asked)
    while len(open_):
        together, done = max(1, CHUNK // (4 * pairs * problem.dim)), 0
        alike = [open_[steps[open_] == k] for k in np.unique(steps[open_])]
        for some in (
            group[begin : begin + together]
            for group in alike
            for begin in range(0, len(group), together)
        ):
            tell(done, len(open_))
            done += len(some)
            drawn = draw(some, pairs, batch)
            spread[some] = np.maximum(spread[some], drawn.spread)
            for i, corrections, more, change in zip(
                some.tolist(), drawn.corrections, drawn.rounding, drawn.steps, strict=True
            ):
                before = sum(map(len, kept[i]))
                kept[i].append(corrections)
                added[i] = (before * added[i] + pairs * float(more)) / (before + pairs)
                steps_of[i].append(change)
        tell(len(open_), len(open_))
        for i in open_:
            found = interval(
                np.concatenate(kept[int(i)])[None], confidence, least=max(0.5 * spread[i], rare[i])
            )
            mean[i], reasons[i] = found.mean[0], found.reasons[0]
            spent[i] = 2 * sum(map(len, kept[int(i)]))
            if found.half[0] < rounding[i] and np.isfinite(found.half[0]):
                reasons[i] = tuple(
                    why for why in reasons[i] if "heavy tails" not in why
                )  # of rounding errors
            half[i] = found.half[0] + rounding[i] + (added[int(i)] if smooth else 0.0)
            if problem.coefficients is not None:
                stepped[i], least[i], halved[int(i)] = of_steps(
                    np.concatenate(steps_of[int(i)]), half[i]
                )
                half[i] += stepped[i]
        if wanted is None:
            doubtful = [
                i
                for i in open_
                if reasons[i] and np.isfinite(half[i]) and batch < AGAIN and pairs >= FEWEST
            ]
            open_ = np.array(doubtful, int)
            pairs, batch = 3 * max((spent[i] // 2 for i in doubtful), default=0), batch + 1
            continue
        again = 4**AGAIN * samples  # for points where tails look heavy, as without a half-width
        wide = np.array(
            [
                i
                for i in open_
                if np.isfinite(half[i])
                and (half[i] > wanted[i] or (reasons[i] and spent[i] < again))
            ],
            int,
        )
        hopeless = rounding + np.array([added.get(i, 0.0) for i in range(len(t))]) + least >= wanted
        ended = [
            i for i in wide if spent[i] >= MOST * samples or (hopeless[i] and half[i] > wanted[i])
        ]
        for i in ended:
            why = (
                f": the steps of paths alone leave {least[i]:.2g}; take more `steps`"
                if least[i] > wanted[i]
                else ""
            )
            missed[int(i)] = (
                f"the half-width {halfwidth:.2g} was not reached after {spent[i]} samples{why}",
            )
        open_ = np.array([i for i in wide if i not in ended], int)
        pairs, batch = pairs if batch == 0 else 2 * pairs, batch + 1
    if smooth and len(later):
        _compare(problem, u, t, x, later, kept, stepped, reasons, max(FEWEST, samples // 64), asked)
    reasons = [
        r if r or np.isfinite(h) else ("the value or its interval is not finite",)
        for r, h in zip(reasons, value + half, strict=True)
    ]
    reasons = [(*r, *halved.get(i, ()), *jumps(problem)) for i, r in enumerate(reasons)]
    good = np.array([not r for r in reasons])
    reasons = [(*r, *missed.get(i, ())) for i, r in enumerate(reasons)]
    ways = {0: "no steps (Monte Carlo)", STEPS: f"{STEPS} steps"}
    method = (
        "residual"
        if smooth
        else f"martingale, {' or '.join(ways[k] for k in sorted(set(steps.tolist()), reverse=True))}"
    )
    method += "" if problem.coefficients is None else ", paths in steps"
    return Certificate(
        value + mean,
        mean,
        value + mean - half,
        value + mean + half,
        half,
        good,
        tuple(reasons),
        method,
        spent,
        confidence,
    ).scaled(unit)


def of_steps(changes: np.ndarray, half: Any) -> tuple[Any, Any, tuple[str, ...]]:
    """What to allow for steps, from samples (n, ..., 2) of what halving them twice changes; what is left of it in any case; and words where halving does not act as first order should.

    `half` is the rest of the half-width: what is small against it does not matter.
    """
    mean, n = changes.mean(axis=0), len(changes)
    noise = changes.std(axis=0, ddof=1) / np.sqrt(n)
    allowed, least = allowance(mean), allowance(np.maximum(np.abs(mean) - 3 * noise, 0.0))
    bent = changes[..., 1] - 2 * changes[..., 0]
    wrong = np.abs(bent.mean(axis=0)) > allowed + 3 * bent.std(axis=0, ddof=1) / np.sqrt(n)
    if np.any(wrong & (allowed > _MATTERS * half)):
        return allowed, least, (_NOT_FIRST_ORDER,)
    return allowed, least, ()


_MATTERS = 0.2  # of a half-width
_NOT_FIRST_ORDER = "halving the steps of paths does not act as first order should, so that their bias is not known: take more `steps`"


def jumps(problem: CanonicalProblem) -> tuple[str, ...]:
    """Why nothing can be certified where coefficients jump: half as many steps do not tell the bias there."""
    names = () if problem.coefficients is None else problem.coefficients.jumps
    return tuple(f"`{name}` jumps: the bias of paths in steps is not known there" for name in names)


def rounding_of(
    u: NetworkEvaluator, t: np.ndarray, x: np.ndarray, asked: CertifyOptions
) -> np.ndarray:
    """What rounding does to ũ(t, x): 4 eps Σ |w_j φ_j|, and what changes when the last bits of x do
    (sums inside the user's functions cancel, too).
    """
    size = np.maximum(np.abs(x) if asked.rounding_scale is None else asked.rounding_scale, 1e-3)
    values = np.array([u.value(t, y)[0] for y in nearby(x, size, asked, "last bits", 8)])
    return 4 * EPS * u.value(t, x)[1] + 4 * np.std(
        values, axis=0, ddof=1
    )  # sums of many terms: some roundings each way


def nearby(
    x: np.ndarray, size: np.ndarray, asked: CertifyOptions, stream: str, number: int
) -> Iterator[np.ndarray]:
    """The points with their last bits changed at random, some times over."""
    rngs = [asked.rng(stream, i) for i in range(len(x))]
    for _ in range(number):
        yield x + EPS * size * np.stack([rng.choice([-1.0, 1.0], x.shape[1]) for rng in rngs])


def _compare(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    later: np.ndarray,
    kept: dict[int, list[np.ndarray]],
    stepped: np.ndarray,
    reasons: list[tuple[str, ...]],
    pairs: int,
    asked: CertifyOptions,
) -> None:
    """The sanity check: the martingale form, which needs no smoothness, must not contradict the residual form."""
    sure = np.array([i for i in later if not reasons[i]], int)
    if not len(sure):
        return
    rngs = [asked.rng("certificate check", i) for i in sure]
    other = martingale_form(problem, u, t[sure], x[sure], pairs, rngs, _CHECKS)
    for i, corrections, rounding, change in zip(
        sure.tolist(), other.corrections, other.rounding, other.steps, strict=True
    ):
        allowed = stepped[i] + float(allowance(change.mean(axis=0)))
        apart = float(disagreement(np.concatenate(kept[i])[None], corrections[None], allowed)[0])
        rounded = abs(float(np.mean(corrections))) < 100 * float(rounding)
        if apart > _DISAGREE and not rounded:
            reasons[i] = (
                f"two forms of the error equation disagree by {apart:.1f} standard errors: the data may have kinks or jumps that were not found",
            )


def disagreement(first: np.ndarray, second: np.ndarray, allowed: float = 0.0) -> np.ndarray:
    """How many standard errors the means of two independent sets of samples lie apart, for each row, beyond what is allowed for steps."""
    gap = np.maximum(np.abs(first.mean(axis=1) - second.mean(axis=1)) - allowed, 0.0)
    noise = np.sqrt(sum(s.var(axis=1, ddof=1) / s.shape[1] for s in (first, second)))
    return gap / np.where(noise > 0, noise, np.inf)


def _cheaper(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    later: np.ndarray,
    asked: CertifyOptions,
) -> np.ndarray:
    """Steps, or none: whichever needs fewer evaluations of the data for the same variance, from a
    pilot at each point.
    """
    sources, cost = problem.has_source, []
    for steps, evaluations in (
        (0, 1 + sources),
        (STEPS, 1 + STEPS * sources + (STEPS - 1) * u.slope_cost),
    ):
        rngs = [asked.rng(f"certificate pilot {steps}", i) for i in later]
        drawn = martingale_form(problem, u, t[later], x[later], FEWEST, rngs, steps)
        cost.append(evaluations * np.var(drawn.corrections, axis=1))
    return np.where(cost[1] < cost[0], STEPS, 0)


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
    """The debiased mean square of corrections at random points of (0, T] x region (of t = T for a `Point`).

    Where few residuals, or few points, carry it there are four times as many points. Where that does not help, where residuals are known to be large in
    rare places, or where Monte Carlo values contradict it, those decide: `reference` makes them, from points.
    """
    pairs = max(samples // 2, 2)
    if not smooth:  # samples without steps are hundreds of times cheaper than those with
        pairs *= _PLAIN
        t, x, factor, rngs = _region_points(problem, points, seed, "region error", mark)
        value, terms = u.value(t, x)
        drawn = martingale_form(problem, u, t, x, pairs, rngs, 0)
        rounding = EPS * terms + allowance(drawn.steps.mean(axis=1))
        found = relative_l2_interval(
            factor[:, None] * drawn.corrections, factor * value, factor * rounding, confidence
        )
        reasons = (*found.reasons, *_heavy_points(drawn.corrections), *jumps(problem))
        return RegionError(
            found.value,
            found.low,
            found.high,
            None,
            not reasons,
            reasons,
            "Monte Carlo",
            points,
            2 * pairs,
            confidence,
        )
    largest = _Largest(u.residual)
    for number, stream in ((points, "region error"), (4 * points, "region error again")):
        t, x, factor, rngs = _region_points(problem, number, seed, stream, mark)
        value, terms = u.value(t, x)
        drawn = residual_form(problem, u._replace(residual=largest.residual), t, x, pairs, rngs)
        corrections = drawn.corrections
        rounding = EPS * terms + drawn.rounding + allowance(drawn.steps.mean(axis=1))
        found = relative_l2_interval(
            factor[:, None] * corrections, factor * value, factor * rounding, confidence
        )
        heavy = (
            rare or not tail_weight(factor[:, None] * corrections) <= HEAVY
        ) and found.high > EXACT
        if rare or not (heavy or found.reasons):
            break
    top = problem.horizon * largest.met + (
        abs(u.start) * float(np.max(np.abs(u.initial(x)))) if u.start else 0.0
    )
    top *= float(np.max(factor))
    maximum = None if reacts(problem) else top / found.scale
    reasons, method = (*found.reasons, *jumps(problem)), "residual"
    values = None if reference is None else reference(t, x)
    if heavy:
        few = (
            "the solve met residuals that few samples do"
            if rare
            else f"one of {corrections.size} sample pairs carries the estimate"
        )
        reasons = (*reasons, f"heavy tails: {few}")
    if values is not None:
        known, certain = (values.compare(factor * value, level) for level in (confidence, _CERTAIN))
        contradicted = not certain.reasons and certain.low > found.high
        if (heavy or contradicted or found.reasons) and not known.reasons:
            inside = known.low <= found.value <= known.high
            found = known._replace(value=found.value if inside else known.value)
            reasons, method = jumps(problem), "Monte Carlo"
            maximum = None
        elif contradicted:
            reasons = (*reasons, f"Monte Carlo values differ from the network by {known.value:.2g}")
    return RegionError(
        found.value,
        found.low,
        found.high,
        maximum,
        not reasons,
        reasons,
        method,
        len(t),
        2 * pairs,
        confidence,
    )


def _region_points(
    problem: CanonicalProblem, points: int, seed: int, stream: str, mark: streams.Mark
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.random.Generator]]:
    """Random points (t, x) of (0, T] x region, what makes the user's values of the problem's own there, and a stream for each."""
    rng = streams.generator(seed, stream, mark)
    rng.random(points)
    x = problem.region.sample(rng, points, problem.dim)
    fraction = (
        np.arange(points) + 1 - rng.random(points)
    ) / points  # one in each of as many intervals: errors go with time
    t, x = problem.region.at(
        np.ones(points) if problem.region.single else fraction, problem.horizon, x
    )
    rngs = [streams.generator(seed, f"{stream} {i}", mark) for i in range(points)]
    return t, x, np.broadcast_to(problem.value_scale(t), t.shape), rngs


_CERTAIN = 0.998  # confidence at which Monte Carlo values contradict


class _Largest:
    """A residual that remembers the largest value met."""

    def __init__(self, residual: Callable[..., tuple[np.ndarray, np.ndarray]]) -> None:
        self._residual, self.met = residual, 0.0

    def residual(self, s: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = self._residual(s, y)
        size = np.max(np.abs(found[0]))
        self.met = float(np.fmax(self.met, size)) if np.isfinite(size) else np.inf
        return found


def _heavy_points(samples: np.ndarray) -> tuple[str, ...]:
    """Words where at many points a few samples carry the variance."""
    heavy = float(np.mean([not tail_weight(row - row.mean()) <= HEAVY for row in samples]))
    return (HEAVY_TAILS.format(share=100 * heavy),) if heavy > HEAVY_SHARE else ()
