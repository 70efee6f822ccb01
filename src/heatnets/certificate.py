"""The error equation: the error of a fit obeys the same PDE as the solution, so samples of its residual estimate it without bias.

    residual form     u(t, x) - ũ(t, x) = E[e0(X_t)] + t E[R(rt, X_{(1-r)t})],   R = F - (∂_t - DΔ)ũ,  e0 = u0 - ũ(0, ·)
    martingale form   u(t, x) = E[u0(X_t) + ∫ F(t-s, X_s) ds - ∫ ∇ũ(t-s, X_s)·√(2D) dW_s]

with X the Brownian path X_s = x + √(2D) W_s. The first needs ũ in C^{1,2}, and has a tiny variance because R is small. The second holds for
any ũ with a square-integrable gradient, for any step size with left-point sums and F at random times inside the steps; its
variance falls only with the number of steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from heatnets import streams
from heatnets.collocation import time_fractions, uniform
from heatnets.precision import EPS
from heatnets.problem import Problem
from heatnets.regions import Point

_CHUNK = 2**23  # coordinates of sample points held at once
_FEWEST = 64  # independent pairs below which no interval is believed
_HEAVY = 0.1  # kurtosis over number of samples: beyond, a few samples carry the variance
_HEAVY_POINTS = (
    0.5  # the same for squares of errors over a region, whose tails are always long: below, upper ends held in 48 of 48 trials
)
_DISAGREE = 5.0  # standard errors between the two forms that are no chance


class Paths(NamedTuple):
    """Points (t, x) of the region, P of them, and samples (s, y) on paths from each, P x S, with the weight of R there."""

    t: np.ndarray
    x: np.ndarray
    s: np.ndarray
    y: np.ndarray
    weight: np.ndarray


class Square(NamedTuple):
    """A mean square, estimated without bias, and its standard error, both in units of `unit`²."""

    mean: float
    noise: float
    unit: float

    @property
    def root(self) -> float:
        """The root of the mean square plus one standard error. Errors have heavy tails: it can be too small by a factor of three."""
        return self.unit * float(np.sqrt(max(self.mean, 0.0) + self.noise))


def paths(problem: Problem, points: int, samples: int, seed: int, stream: str) -> Paths:
    """Independent points of (0, T] x region (of t = T for a `Point`) and independent samples of the error equation there."""
    rng = streams.generator(seed, stream)
    t, x = uniform(problem.region, problem.horizon, points, problem.dim, rng)
    if isinstance(problem.region, Point):
        t = np.full(points, problem.horizon)
    r, density = time_fractions(rng, (points, samples))
    lag = (1 - r) * t[:, None]
    y = x[:, None] + np.sqrt(2 * problem.diffusion * lag)[..., None] * rng.standard_normal((points, samples, problem.dim))
    return Paths(t, x, r * t[:, None], y, t[:, None] / density)


def mean_square(corrections: np.ndarray) -> Square:
    """The mean over points of the squared expected correction, from samples (P, S): products of different samples only."""
    size = float(np.max(np.abs(corrections))) or 1.0  # squares of small numbers underflow
    scaled = corrections / size
    total, own = scaled.sum(axis=1), (scaled**2).sum(axis=1)
    samples = corrections.shape[1]
    products = (total**2 - own) / (samples * (samples - 1))
    return Square(float(products.mean()), float(products.std(ddof=1) / np.sqrt(len(products))), size)


def rms(values: np.ndarray) -> float:
    """Root mean square, without underflow."""
    size = float(np.max(np.abs(values))) or 1.0
    return size * float(np.sqrt(np.mean((values / size) ** 2)))


@dataclass(frozen=True)
class Certificate:
    """The true value at points, with an interval: each field of shape () or (n,).

    `value` is the network's value plus its estimated `error`; the truth lies between `low` and `high` as often as the confidence says,
    where `certified`. Where not, `reasons` say why. `samples` are those spent at each point.
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

    def first(self) -> Certificate:
        """The certificate of the first point alone, with fields of shape ()."""
        arrays = ("value", "error", "low", "high", "halfwidth", "certified", "samples")
        return replace(self, reasons=self.reasons[0], **{name: getattr(self, name)[0] for name in arrays})

    def __str__(self) -> str:
        fields = (np.atleast_1d(f) for f in (self.value, self.halfwidth, self.error, self.certified, self.samples))
        reasons = (self.reasons,) if np.ndim(self.certified) == 0 else self.reasons
        return "\n".join(
            f"{v:.10g} ± {h:.2g} ({100 * self.confidence:g} %, {self.method}, {n} samples; the network is off by {-e:.2g})"
            if good
            else f"{v:.10g}, not certified: {'; '.join(why)}"
            for v, h, e, good, n, why in zip(*fields, reasons, strict=True)
        )


@dataclass(frozen=True)
class RegionError:
    """The relative L2 error over (0, T] x region, estimated without an exact solution: `value`, with an interval from `low` to `high`.

    `maximum` estimates a bound of the largest error, relative to the same size: by the maximum principle |u - ũ| <= sup |e0| + T sup |R|, with the
    largest values met on sampled paths in place of the suprema. It is None where there is no residual (kinked data).
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
        return f"{self.value:.2g} (between {self.low:.2g} and {self.high:.2g}, {100 * self.confidence:g} %, {self.points} points{words})"


class Network(NamedTuple):
    """What a certificate asks of a fit and of the data, at points (n,) and (n, dim)."""

    value: Callable[..., tuple[np.ndarray, np.ndarray]]  # ũ, and Σ |w_j φ_j|: what rounding goes with
    residual: Callable[..., tuple[np.ndarray, np.ndarray]]  # R, and the sum of its terms' sizes
    gradient: Callable[..., np.ndarray]
    initial: Callable[..., np.ndarray]
    source: Callable[..., np.ndarray]
    start: float  # e0 = start · u0


class Samples(NamedTuple):
    """Independent corrections of ũ, one row of pairs per point, and what rounding may have done to their mean."""

    corrections: np.ndarray
    rounding: np.ndarray


def residual_form(problem: Problem, u: Network, t: np.ndarray, x: np.ndarray, pairs: int, rngs: list[Any]) -> Samples:
    """Antithetic pairs of e0(X_t) + t R(rt, X_{(1-r)t}) / density(r), with r from `time_fractions`."""
    D, dim = problem.diffusion, problem.dim
    out, rounding = np.empty((len(t), pairs)), np.zeros(len(t))
    for some, first, last in _chunks(len(t), pairs, 2 * dim):
        n, here, there = last - first, t[some, None], x[some, None, :]
        drawn = [(*time_fractions(rng, n), rng.standard_normal((n, dim))) for rng in rngs[some]]
        r, density, xi = (np.stack(parts) for parts in zip(*drawn, strict=True))
        step = np.sqrt(2 * D * (1 - r) * here)[..., None] * xi
        R, terms = _both(u.residual, r * here, there, step)
        weight = here / density
        out[some, first:last] = weight * R
        rounding[some] += EPS * np.sum(weight * terms, axis=1) / pairs
        if u.start:
            (e0,) = _both(lambda s, y: (u.initial(y),), r * here, there, np.sqrt(2 * D * here)[..., None] * xi)
            out[some, first:last] += u.start * e0
    return Samples(out, rounding)


def _both(function: Callable[..., Any], t: np.ndarray, x: np.ndarray, step: np.ndarray) -> list[np.ndarray]:
    """A function of points, averaged over x + step and x - step."""
    flat = step.shape[-1]
    ways = [(x + sign * step).reshape(-1, flat) for sign in (1.0, -1.0)]
    found = function(np.tile(t.ravel(), 2), np.concatenate(ways))
    return [0.5 * (f[: len(ways[0])] + f[len(ways[0]) :]).reshape(step.shape[:-1]) for f in found]


def martingale_form(
    problem: Problem, u: Network, t: np.ndarray, x: np.ndarray, pairs: int, rngs: list[Any], steps: int
) -> Samples:
    """Antithetic pairs of u0(X_t) + Σ h F(random time) - Σ ∇ũ·√(2D) ΔW, less ũ(t, x): steps shorten towards the initial time."""
    D, dim = problem.diffusion, problem.dim
    out = np.empty((len(t), pairs))
    value, terms = u.value(t, x)
    slope = u.gradient(t, x) if steps else None
    moves = max(steps, 1)
    for some, first, last in _chunks(len(t), pairs, 4 * dim):
        n, count = last - first, len(t[some])
        total = np.zeros((2, count, n))
        place = np.broadcast_to(x[some, None, :], (2, count, n, dim))
        for k in range(moves):
            to_go, after = (t[some, None] * (1 - m / moves) ** 2 for m in (k, k + 1))
            h = to_go - after
            drawn = [(rng.random(n), rng.standard_normal((2, n, dim))) for rng in rngs[some]]
            fraction, noise = (np.stack(parts) for parts in zip(*drawn, strict=True))
            inside = np.sqrt(2 * D * fraction * h)[..., None] * noise[:, 0]
            whole = inside + np.sqrt(2 * D * (1 - fraction) * h)[..., None] * noise[:, 1]
            if problem.source is not None:
                there = place + np.stack([inside, -inside])
                total += h * _at(u.source, to_go - fraction * h, there)
            move = np.stack([whole, -whole])
            if slope is not None:
                here = slope[some, None, :] if k == 0 else _at(u.gradient, np.broadcast_to(to_go, (count, n)), place)
                total -= np.sum(here * move, axis=-1)
            place = place + move
        total += _at(lambda s, y: u.initial(y), np.zeros((count, n)), place)
        out[some, first:last] = total.mean(axis=0) - value[some, None]
    return Samples(out, EPS * terms)


def _at(function: Callable[..., Any], t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A function of points at places (2, points, pairs, dim), times the same for both ways."""
    found = function(np.tile(t.ravel(), 2), x.reshape(-1, x.shape[-1]))
    return found.reshape(*x.shape[:-1], *found.shape[1:])


def _chunks(points: int, pairs: int, width: int) -> list[tuple[slice, int, int]]:
    """(points, first pair, last pair) so that no more than `_CHUNK` coordinates are held."""
    most = max(1, _CHUNK // width)
    together = max(1, most // pairs)
    return [
        (slice(i, min(i + together, points)), a, min(a + most, pairs))
        for i in range(0, points, together)
        for a in range(0, pairs, most)
    ]


class Interval(NamedTuple):
    mean: np.ndarray
    half: np.ndarray
    reasons: list[tuple[str, ...]]


def interval(samples: np.ndarray, confidence: float, what: str = "sample pairs", heavy: float = _HEAVY) -> Interval:
    """Student's interval of the mean of each row; with the standard deviation one of its own standard errors larger, and words where tails are heavy.

    The standard error of a variance is √((κ-1)/n) of it, κ the kurtosis: nothing where tails are light, a warning where one sample in ten
    effective ones carries the sum.
    """
    n = samples.shape[1]
    size = np.max(np.abs(samples), axis=1, keepdims=True)
    size = np.where((size > 0) & np.isfinite(size), size, 1.0)
    with np.errstate(all="ignore"):
        scaled = samples / size
        mean = scaled.mean(axis=1)
        centred = scaled - mean[:, None]
        variance = (centred**2).sum(axis=1) / (n - 1)
        kurtosis = np.where(variance > 0, (centred**4).mean(axis=1) / np.where(variance > 0, variance, 1.0) ** 2, 1.0)
        spread = np.sqrt(variance * (1 + np.sqrt(np.maximum(kurtosis - 1, 0.0) / n)) / n)
        half = size[:, 0] * spread * scipy.special.stdtrit(n - 1, 0.5 * (1 + confidence))
    reasons: list[tuple[str, ...]] = []
    for i in range(len(samples)):
        bad = int(np.sum(~np.isfinite(samples[i])))
        said = []
        if bad:
            said.append(f"{bad} of {n} {what} are not finite: the data, or a derivative of theirs, are not finite on some paths")
        elif n < _FEWEST:
            said.append(f"only {n} independent {what}: ask for {_FEWEST} or more")
        elif kurtosis[i] > heavy * n:
            share = float(np.max(centred[i] ** 2) / np.sum(centred[i] ** 2))
            said.append(
                f"heavy tails: one of {n} {what} carries {100 * share:.0f} % of the variance, so that larger ones may not have been seen; "
                "ask for more of them, or solve again with more features"
            )
        reasons.append(tuple(said))
    return Interval(size[:, 0] * mean, half, reasons)


class Relative(NamedTuple):
    """A relative L2 error: the estimate, its interval, and words where the interval is not to be believed."""

    value: float
    low: float
    high: float
    scale: float  # the root mean square of u
    reasons: tuple[str, ...]


def relative(corrections: np.ndarray, values: np.ndarray, rounding: np.ndarray, confidence: float) -> Relative:
    """From independent corrections (P, S) of the values (P,) of a fit at random points: products of different samples estimate the square of the error."""
    unit = float(np.max(np.abs(corrections))) or 1.0
    scaled = corrections / unit
    total, own, samples = scaled.sum(axis=1), (scaled**2).sum(axis=1), corrections.shape[1]
    products = (total**2 - own) / (samples * (samples - 1))
    found = interval(products[None], confidence, "points", _HEAVY_POINTS)
    scale = rms(values + corrections.mean(axis=1)) or 1.0
    floor = rms(rounding)

    def root(square: float) -> float:
        return float(np.hypot(unit * np.sqrt(max(square, 0.0)), floor)) / scale

    mean, half = float(found.mean[0]), float(found.half[0])
    return Relative(root(mean), root(mean - half), root(mean + half), scale, found.reasons[0])


def region_error(
    problem: Problem, u: Network, *, points: int, samples: int, confidence: float, seed: int, smooth: bool
) -> RegionError:
    """The debiased mean square of corrections at random points of (0, T] x region (of t = T for a `Point`)."""
    rng = streams.generator(seed, "region error")
    _, x = uniform(problem.region, problem.horizon, points, problem.dim, rng)
    t = (
        problem.horizon * (np.arange(points) + 1 - rng.random(points)) / points
    )  # one in each of as many intervals: errors go with time
    if isinstance(problem.region, Point):
        t = np.full(points, problem.horizon)
    rngs = [streams.generator(seed, f"region error {i}") for i in range(points)]
    pairs = max(samples // 2, 2)
    largest = 0.0

    def residual(s: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal largest
        found = u.residual(s, y)
        largest = max(largest, float(np.max(np.abs(found[0]))))
        return found

    value, terms = u.value(t, x)
    if smooth:
        drawn = residual_form(problem, u._replace(residual=residual), t, x, pairs, rngs)
        rounding = EPS * terms + drawn.rounding
    else:  # samples without steps are hundreds of times cheaper than those with
        pairs *= _PLAIN
        drawn = martingale_form(problem, u, t, x, pairs, rngs, 0)
        rounding = EPS * terms
    found = relative(drawn.corrections, value, rounding, confidence)
    top = problem.horizon * largest + (abs(u.start) * float(np.max(np.abs(u.initial(x)))) if u.start else 0.0)
    return RegionError(
        found.value, found.low, found.high, top / found.scale if smooth else None, not found.reasons, found.reasons,
        "residual" if smooth else "Monte Carlo", points, 2 * pairs, confidence,
    )  # fmt: skip


_PLAIN = 256


def disagreement(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """How many standard errors the means of two independent sets of samples lie apart, for each row."""
    gap = first.mean(axis=1) - second.mean(axis=1)
    noise = np.sqrt(sum(s.var(axis=1, ddof=1) / s.shape[1] for s in (first, second)))
    return np.abs(gap) / np.where(noise > 0, noise, np.inf)


def rounding_of(u: Network, t: np.ndarray, x: np.ndarray, seed: int) -> np.ndarray:
    """What rounding does to ũ(t, x): eps Σ |w_j φ_j|, and what changes when the last bits of x do (sums inside the user's functions cancel, too)."""
    rng = streams.generator(seed, "last bits")
    near = [x * (1 + EPS * rng.choice([-1.0, 1.0], x.shape)) for _ in range(8)]
    values = np.array([u.value(t, y)[0] for y in near])
    return EPS * u.value(t, x)[1] + 4 * np.std(values, axis=0, ddof=1)


Tell = Callable[[int, int], None]


def certify(
    problem: Problem,
    u: Network,
    t: np.ndarray,
    x: np.ndarray,
    *,
    samples: int,
    confidence: float,
    seed: int,
    halfwidth: float | None,
    smooth: bool,
    tell: Tell,
) -> Certificate:
    """Intervals for the true values at points with t >= 0: the residual form where ũ is smooth, checked by the martingale form; else the latter.

    With `halfwidth`, samples are doubled at the points that need more, up to `_MOST` times as many.
    """
    value, rounding = u.value(t, x)[0], rounding_of(u, t, x, seed)
    later = np.flatnonzero(t > 0)
    at_start = t == 0
    mean = np.where(at_start, u.start * u.initial(x), 0.0)
    half, spent = rounding.copy(), np.zeros(len(t), int)
    reasons: list[tuple[str, ...]] = [()] * len(t)
    steps = 0 if smooth else _STEPS

    def draw(points: np.ndarray, pairs: int, batch: int) -> Samples:
        rngs = [streams.generator(seed, f"certificate {batch} {i}") for i in points]
        if smooth:
            return residual_form(problem, u, t[points], x[points], pairs, rngs)
        return martingale_form(problem, u, t[points], x[points], pairs, rngs, steps)

    kept: dict[int, list[np.ndarray]] = {int(i): [] for i in later}
    added: dict[int, float] = {int(i): 0.0 for i in later}
    open_, pairs, batch = later, max(samples // 2, 2), 0
    if halfwidth is not None and not smooth:
        steps = _cheaper(problem, u, t, x, later, seed)
    while len(open_):
        together = max(1, _CHUNK // (4 * pairs * problem.dim))
        for begin in range(0, len(open_), together):
            tell(begin, len(open_))
            some = open_[begin : begin + together]
            drawn = draw(some, pairs, batch)
            for i, corrections, more in zip(some.tolist(), *drawn, strict=True):
                before = sum(map(len, kept[i]))
                kept[i].append(corrections)
                added[i] = (before * added[i] + pairs * float(more)) / (before + pairs)
        tell(len(open_), len(open_))
        for i in open_:
            found = interval(np.concatenate(kept[int(i)])[None], confidence)
            mean[i], reasons[i] = found.mean[0], found.reasons[0]
            half[i] = found.half[0] + rounding[i] + (added[int(i)] if smooth else 0.0)
            spent[i] = 2 * sum(map(len, kept[int(i)]))
        if halfwidth is None:
            break
        wide = np.array([i for i in open_ if half[i] > halfwidth and np.isfinite(half[i])], int)
        ended = [i for i in wide if spent[i] >= _MOST * samples]
        for i in ended:
            reasons[i] = (*reasons[i], f"the half-width {halfwidth:.2g} was not reached: {half[i]:.2g} after {spent[i]} samples")
        open_ = np.array([i for i in wide if i not in ended], int)
        pairs, batch = pairs if batch == 0 else 2 * pairs, batch + 1
    if smooth and len(later):
        _compare(problem, u, t, x, later, kept, reasons, max(_FEWEST, samples // 64), seed)
    good = np.array([not r for r in reasons])
    method = "residual" if smooth else f"martingale, {steps} steps" if steps else "martingale, no steps (Monte Carlo)"
    return Certificate(
        value + mean, mean, value + mean - half, value + mean + half, half, good, tuple(reasons), method, spent, confidence
    )


_STEPS = 4  # of the martingale form: they divided the variance by 15 to 20 in trials, eight steps by twice that
_CHECKS = 4  # of the sanity check
_MOST = 1024  # times the samples asked for, where a half-width is


def _compare(
    problem: Problem,
    u: Network,
    t: np.ndarray,
    x: np.ndarray,
    later: np.ndarray,
    kept: dict[int, list[np.ndarray]],
    reasons: list[tuple[str, ...]],
    pairs: int,
    seed: int,
) -> None:
    """The sanity check: the martingale form, which needs no smoothness, must not contradict the residual form."""
    for i in later:
        if reasons[i]:
            continue
        rng = streams.generator(seed, f"certificate check {i}")
        other = martingale_form(problem, u, t[[i]], x[[i]], pairs, [rng], _CHECKS)
        apart = float(disagreement(np.concatenate(kept[int(i)])[None], other.corrections)[0])
        rounded = abs(float(np.mean(other.corrections))) < 100 * float(other.rounding[0])
        if apart > _DISAGREE and not rounded:
            reasons[i] = (
                f"two forms of the error equation disagree by {apart:.1f} standard errors: the data may have kinks or jumps that were not found",
            )


def _cheaper(problem: Problem, u: Network, t: np.ndarray, x: np.ndarray, later: np.ndarray, seed: int) -> int:
    """Steps, or none: whichever costs less for the same variance, from a pilot at the first point."""
    cost = {}
    for steps in (0, _STEPS):
        rng = streams.generator(seed, f"certificate pilot {steps}")
        one = later[:1]
        for _ in range(2):  # the first compiles
            start = time.perf_counter()
            drawn = martingale_form(problem, u, t[one], x[one], _FEWEST, [rng], steps)
            seconds = time.perf_counter() - start
        cost[steps] = seconds * float(np.var(drawn.corrections))
    return min(cost, key=lambda k: cost[k])
