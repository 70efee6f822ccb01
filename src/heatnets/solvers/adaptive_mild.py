"""Growth for data that are not C²: the network is fitted to Monte Carlo samples of the solution, not to the equation.

The mild formulation needs no derivatives, so that kinks and jumps do no harm; but its rows are noisy, and an unregularised fit chases the
noise. The weights are therefore held near 1/M, where the network is the plain Monte Carlo average over its own draws, as firmly as
cross-validation asks, and the initial condition is kept.

A control variate (the martingale -∫∇ũ·dW of the current fit) is not used: four steps divide the variance of a sample by 15 to 20, sixteen by
50 to 80, but each step costs a gradient of the whole network, and with 96 features a sample then costs 50 or 200 plain ones
(benchmarks/control_variate.py). At equal time plain samples are better by a factor of 3 to 5, and more so for larger networks.

Where the source depends on u, its samples take u from the fit before: the paper's fixed-point iteration, a step or two of it in each round.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from heatnets._core import statistics, streams
from heatnets._core.errors import WarningLog
from heatnets._core.execution import ExecutionContext
from heatnets._core.tiling import evaluate
from heatnets._core.timing import PhaseTimer
from heatnets.certify import linearization, montecarlo
from heatnets.certify.reference_values import ReferenceValues
from heatnets.features.equation import Equation, values_only
from heatnets.features.features import Feature
from heatnets.fit import least_squares
from heatnets.fit.assembly import Points, value_rows
from heatnets.fit.collocation import PLACEMENTS, judged
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.function import Function
from heatnets.pde.nonlinearity import SemilinearSource
from heatnets.pde.regions import Region
from heatnets.solution import Solution
from heatnets.solvers.adaptive import StopReason, kinds, network, no_rounds, no_time
from heatnets.solvers.checkpoint import Checkpoint
from heatnets.solvers.options import AdaptiveOptions
from heatnets.solvers.state import Round
from heatnets.solvers.validation import CONTRADICTION

_FEATURES, _ROWS = 32, 2048  # of each design and kind; training points
_PAIRS = (16, 512)  # antithetic pairs of samples at each training point, at least and at most
_COORDINATES = 2**29  # of the noise of the first round's samples: beyond, a point gets fewer pairs
_FORCED, _TURNS = (
    16,
    2,
)  # the same for a source that depends on u, at a fit; fixed-point steps in a round
_JUDGES, _BATCHES = (
    128,
    4,
)  # points at which errors are estimated; batches of pairs, in each of two independent halves


def grow(
    problem: CanonicalProblem, settings: AdaptiveOptions, ctx: ExecutionContext, notes: WarningLog
) -> Solution:
    """Rounds of growth, each with twice the rows, and twice the features while there is time for that, until the budget is spent."""
    started, clock = time.perf_counter(), PhaseTimer()
    if settings.time_degree is not None or settings.rcond is not None:
        notes.warn("`time_degree` and `rcond` play no part in training on mild rows", 5)
    ctx.require(8 * (4 * _ROWS * 6 * _FEATURES + 4 * _ROWS * problem.dim), "the first round", "")
    forces = None
    if problem.nonlinear is not None:
        problem = replace(
            problem, reaction_flow=None
        )  # so that the weights 1/M make a first guess of the solution
        forces = _Forces(problem, settings, ctx)
    data = values_only(problem)
    asked = _points(problem, problem.region, _JUDGES, settings.seed, "mild judges")
    factor = np.broadcast_to(problem.value_scale(asked[0]), (_JUDGES,))  # from v to u
    halves = np.zeros(
        (2, _JUDGES)
    )  # two independent estimates of u there, from more samples in each round
    history: list[Round] = []
    best: _Best | None = None
    size, rows, samples = _FEATURES, _ROWS, _Rows(problem, settings, ctx)
    checkpoint = Checkpoint(settings, problem, "mild rows")
    kept = checkpoint.find()
    if kept is not None:
        state, arrays = kept
        history.extend(map(Round.of, state["history"]))
        size, rows, best, halves = (
            state["size"],
            state["rows"],
            _Best.of(state["best"], arrays["best"]),
            arrays["halves"],
        )
        samples.restore(state["samples"], arrays["values"])
        if forces is not None:
            forces.take(data, _features(problem, settings, state["taken"])[0], arrays["weights"])
        clock.add(state["clock"])
        notes.restore(state["warnings"])
        started = min(started, time.perf_counter() - history[-1].seconds)
        ctx.progress(f"goes on after {history[-1]}", 1, 1)
    while True:
        before, label, growth, new = (
            dict(clock.seconds),
            f"round {len(history)}",
            2 ** len(history),
            rows - samples.count,
        )
        with clock.phase("samples"):
            samples.extend(rows, label)
        with clock.phase("assembly"):
            blocks, prior, start = _features(problem, settings, size)
            A = _values(data, blocks, samples.points, ctx, label)
        wanted = samples.values
        for turn in range(1 if forces is None else _TURNS):
            if forces is not None:
                with clock.phase("samples"):
                    wanted = samples.values + forces.at(samples.points, f"{label}, turn {turn}")
            with clock.phase("solve"):
                weights, ridge, freedom = least_squares.near(
                    A, wanted, prior, start if np.any(start) else None
                )
            if forces is not None:
                forces.take(data, blocks, weights)
        with clock.phase("check"):
            # As many samples again as before (in the first round, some): the average is over all of them.
            drawn = [
                _samples(
                    _unforced(problem),
                    asked,
                    _BATCHES * growth,
                    settings.seed,
                    ctx,
                    f"{label}, half {h}",
                )
                for h in (0, 1)
            ]
            fresh, bias = (
                [factor * d[0] for d in drawn],
                factor * np.mean([d[2] for d in drawn], axis=0),
            )
            share = growth / (2 * growth - 1)
            halves = (1 - share) * halves + share * np.stack(fresh)
            judged_by = halves
            if forces is not None:
                more = [
                    forces.sampled(asked, f"{label}, half {h}", _BATCHES * growth) for h in (0, 1)
                ]
                judged_by = halves + factor * np.stack([m[0] for m in more])
                bias = bias + factor * np.mean([m[2] for m in more], axis=0)
            scale = statistics.rms(judged_by.mean(axis=0)) or 1.0
            value = factor * (_values(data, blocks, asked, ctx, label) @ weights)
            error = (
                float(
                    np.hypot(
                        statistics.mean_square((judged_by - value).T).root, statistics.rms(bias)
                    )
                )
                / scale
            )
            grown = (
                1.0 if forces is None else forces.grown(asked)
            )  # what is judged is the defect of the fixed-point equation
            error = grown * error
            bound = statistics.relative_l2_interval((judged_by - value).T, value, bias, 0.98)
            met = (
                None
                if settings.tol is None
                else not bound.reasons and grown * bound.high <= settings.tol
            )
        counts = tuple(len(b.start) for b in blocks)
        elapsed = time.perf_counter() - started
        features = (
            counts[0] if 0 in kinds(problem) else 0,
            counts[-1] if 1 in kinds(problem) else 0,
        )
        history.append(
            Round(features, rows, 0, " + ".join(d.name for d in settings.designs), error, elapsed)
        )
        ctx.progress(f"{label}: {history[-1]}", 1, 1)
        misfit = statistics.rms(A @ weights - wanted)
        facts = {
            "features": features, "rows": (rows, 0), "rank": round(freedom), "ridge": ridge,
            "residual_train": misfit / scale, "mild_noise": samples.noise / scale,
        }  # fmt: skip
        # The judges' noise hides small gains: larger rounds are taken unless they are clearly worse.
        if best is None or error < 1.2 * best.error or met:
            best = _Best(error, size, weights, met, facts)
        if met:
            why = "the tolerance is met"
            break
        spent = {
            phase: seconds - before.get(phase, 0.0) for phase, seconds in clock.seconds.items()
        }
        if why := no_rounds(settings, len(history)):
            break
        for wider in (
            2,
            1,
        ):  # twice the features and rows, or twice the rows where there is no time for more
            needed = (
                spent["samples"] / new * rows
                + 2 * wider * spent["assembly"]
                + 2 * wider**2 * spent["solve"]
                + 2 * spent["check"]
            )
            why = no_time(needed, elapsed, settings.seconds)
            if not why and 8 * A.nbytes * 2 * wider > ctx.memory:
                why = "the next round would not fit into `memory`"
            if not why:
                break
        if why:
            break
        taken, size, rows = size, wider * size, 2 * rows
        words = {
            "history": history, "size": size, "rows": rows, "taken": taken, "best": best.words, "samples": samples.words, "clock": clock.seconds, "warnings": notes.messages,
        }  # fmt: skip
        checkpoint.keep(
            words,
            {"best": best.weights, "weights": weights, "halves": halves, "values": samples.values},
        )
    error, size, weights, met, facts = best
    blocks = _features(problem, settings, size)[0]
    ending = StopReason(why, met, (), {})
    if problem.nonlinear is None:
        with clock.phase("check"):
            error, ending = _last_word(problem, data, blocks, best, settings, ctx, ending)
    return network(problem, settings, ctx, notes, clock, history, error, data, blocks, weights, ending, {
        **facts, "collocation": "uniform", "time_degree": 0, "enforce": "mild", "solver": "near", "rcond": None, "condition": None,
        "residual_held_out": None, "laplacian": {}, "laplacian_skipped": {}, "iterations": (),
    })  # fmt: skip


def _last_word(
    problem: CanonicalProblem,
    data: Equation,
    blocks: list[Feature],
    best: _Best,
    settings: AdaptiveOptions,
    ctx: ExecutionContext,
    ending: StopReason,
) -> tuple[float, StopReason]:
    """Values at points of their own: they may contradict the estimate, and where few samples carry them nothing is known."""
    reference = ReferenceValues.over_region(
        problem,
        data,
        settings.seed,
        "final check",
        ctx,
        entries=best.facts["rows"][0] * len(best.weights),
        points=_JUDGES,
    )
    value = reference.factor * (
        _values(data, blocks, reference.points, ctx, "final check") @ best.weights
    )
    known, certain = (reference.compare(value, level) for level in (0.98, 0.998))
    check = {**reference.facts(known), "reasons": known.reasons}
    if known.reasons:
        return np.inf, ending._replace(met=ending.met and False, unknown=known.reasons, check=check)
    if certain.low > CONTRADICTION * best.error:
        return known.value, ending._replace(
            met=ending.met and known.high <= (settings.tol or 0.0), check=check
        )
    return best.error, ending._replace(check=check)


class _Best(NamedTuple):
    """The best fit so far."""

    error: float
    size: int  # features of each design and kind
    weights: np.ndarray
    met: bool | None
    facts: dict[str, Any]

    @property
    def words(self) -> list[Any]:
        """All but the weights, to be kept."""
        return [self.error, self.size, self.met, self.facts]

    @classmethod
    def of(cls, words: list[Any], weights: np.ndarray) -> _Best:
        """One that was kept."""
        error, size, met, facts = words
        return cls(
            error,
            size,
            weights,
            met,
            {**facts, "features": tuple(facts["features"]), "rows": tuple(facts["rows"])},
        )


class _AtFit(eqx.Module):
    """(s, y) ↦ f(s, y, ũ, ∇ũ)."""

    nonlinear: SemilinearSource
    fit: linearization.Fit

    def __call__(self, s: Array, y: Array) -> Array:
        return self.nonlinear(s, y, *self.fit.both(s, y, self.nonlinear.slopes))


def _rate(source: Any, s: Array, y: Array) -> Array:
    """f_u at the fit."""
    at: _AtFit = source.function
    return at.nonlinear.tangent(s, y, *at.fit.both(s, y, at.nonlinear.slopes)).d_u


class _Forces:
    """What a source that depends on u adds to samples of the solution, with u from the fit before; from a guess at first."""

    def __init__(
        self, problem: CanonicalProblem, settings: AdaptiveOptions, ctx: ExecutionContext
    ) -> None:
        self._problem, self._settings, self._ctx = problem, settings, ctx
        self._alone = replace(problem, initial=Function(lambda x: jnp.zeros(())), nonlinear=None)

    def take(self, data: Equation, blocks: list[Feature], weights: np.ndarray) -> None:
        """From now on u is this fit."""
        parts = np.split(weights, np.cumsum([len(b.start) for b in blocks])[:-1])
        fit = linearization.Fit(
            data, [(b, jnp.asarray(w)[:, None]) for b, w in zip(blocks, parts, strict=True)]
        )
        assert self._problem.nonlinear is not None
        self._alone = replace(self._alone, source=Function(_AtFit(self._problem.nonlinear, fit)))

    def sampled(
        self, points: Points, stream: str, batches: int = 1
    ) -> tuple[np.ndarray, float, np.ndarray]:
        return _samples(
            self._alone,
            points,
            batches,
            self._settings.seed,
            self._ctx,
            f"forces {stream}",
            _FORCED,
        )

    def at(self, points: Points, stream: str) -> np.ndarray:
        return self.sampled(points, stream)[0]

    def grown(self, points: Points) -> float:
        """By how much an error may be larger than the defect of the fixed-point equation: exp(∫ f_u), f_u as large as at all but one point in twenty."""
        rate = evaluate(_rate, self._alone.source, points, 32 * self._problem.dim, self._ctx)
        return float(np.exp(self._problem.horizon * max(float(np.quantile(rate, 0.95)), 0.0)))


class _Rows:
    """Points to train on and samples of the solution there: a list that grows, none of it drawn twice."""

    def __init__(
        self, problem: CanonicalProblem, settings: AdaptiveOptions, ctx: ExecutionContext
    ) -> None:
        self._problem, self._settings, self._ctx = problem, settings, ctx
        self.points: Points = (np.zeros(0), np.zeros((0, problem.dim)))
        self.values, self._variance = np.zeros(0), 0.0
        self._taken: list[
            tuple[int, str]
        ] = []  # how many rows there were after each extension, and its label

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def noise(self) -> float:
        """The root mean square standard error of the samples."""
        return float(np.sqrt(self._variance))

    @property
    def words(self) -> dict[str, Any]:
        """All but the values, to be kept."""
        return {"taken": self._taken, "variance": self._variance}

    def restore(self, words: dict[str, Any], values: np.ndarray) -> None:
        """The samples that an earlier run kept, and their points again."""
        for rows, label in words["taken"]:
            self._place(rows, label)
        self.values, self._variance = values, words["variance"]

    def _place(self, rows: int, label: str) -> Points:
        """Points up to as many rows; those that are new."""
        have = len(self.points[0])
        more = _points(
            self._problem,
            self._settings.train_region,
            rows - have,
            self._settings.seed,
            f"mild rows {label}",
            True,
        )
        self.points = (
            np.concatenate([self.points[0], more[0]]),
            np.concatenate([self.points[1], more[1]]),
        )
        self._taken.append((rows, label))
        return more

    def extend(self, rows: int, label: str) -> None:
        """As many rows in all."""
        have, more = self.count, self._place(rows, label)
        values, noise, _ = _samples(
            _unforced(self._problem), more, 1, self._settings.seed, self._ctx, label
        )
        self.values = np.concatenate([self.values, values])
        self._variance = (have * self._variance + (rows - have) * noise**2) / rows


def _samples(
    problem: CanonicalProblem,
    points: Points,
    batches: int,
    seed: int,
    ctx: ExecutionContext,
    stream: str,
    pairs: int | None = None,
) -> tuple[np.ndarray, float, np.ndarray]:
    """Means of `batches` times `pairs` antithetic pairs at each point, their root mean square standard error, and what steps may have done.

    Always in calls of one shape, so that a growing number of points and samples compiles once.
    """
    width = 2 * int(np.prod(problem.paths.normals(problem.dim)))
    pairs = pairs or int(np.clip(_COORDINATES // (_ROWS * width), *_PAIRS))
    parts = []
    for start in range(0, len(points[0]), _ROWS):
        here = (points[0][start : start + _ROWS], points[1][start : start + _ROWS])
        names = [f" {stream}, {start}, batch {batch}" for batch in range(batches)]
        found = [
            montecarlo.mild_samples(problem, *here, pairs, seed, ctx, name, paired=True)
            for name in names
        ]
        means = [
            np.mean([getattr(e, name) for e in found], axis=0)
            for name in ("value", "truncation_bias")
        ]
        parts.append((*means, np.mean([e.standard_error**2 for e in found], axis=0) / batches))
    values, biases, variances = (np.concatenate(p) for p in zip(*parts, strict=True))
    return values, float(np.sqrt(np.mean(variances))), biases


def _values(
    data: Equation, blocks: list[Feature], points: Points, ctx: ExecutionContext, phase: str
) -> np.ndarray:
    """φ_j(t_k, x_k), in calls of one shape."""
    pieces = [
        jax.tree.map(lambda a, i=i: a[i : i + _FEATURES], block)
        for block in blocks
        for i in range(0, len(block.start), _FEATURES)
    ]
    return np.asarray(value_rows(data, pieces, points, ctx, phase, strip=_JUDGES))


def _unforced(problem: CanonicalProblem) -> CanonicalProblem:
    """Without a source that depends on u, which has samples of its own."""
    return problem if problem.nonlinear is None else replace(problem, source=None, nonlinear=None)


def _points(
    problem: CanonicalProblem,
    region: Region,
    count: int,
    seed: int,
    stream: str,
    trained: bool = False,
) -> Points:
    """Points of (0, T] x region; of t = T for a `Point`, as the region says nothing of other times. To train for a source that depends on u, also on paths from there."""
    if trained and problem.nonlinear is not None:
        return PLACEMENTS["paths"](
            region,
            problem.horizon,
            count,
            problem.dim,
            streams.generator(seed, stream),
            problem.paths,
            True,
        )
    return judged(region, problem.horizon, count, problem.dim, streams.generator(seed, stream))


def _features(
    problem: CanonicalProblem, settings: AdaptiveOptions, size: int
) -> tuple[list[Feature], np.ndarray, np.ndarray]:
    """One block per kind; the weights that make it a Monte Carlo average over the first design; φ_j(0, ·) / u0."""
    blocks, prior = [], []
    for kind in kinds(problem):
        counts = (size, 0) if kind == 0 else (0, size)
        drawn = [
            settings.family.draw(problem, counts, d, settings.seed, settings.antithetic)[kind]
            for d in settings.designs
        ]
        blocks.append(jax.tree.map(lambda *parts: jnp.concatenate(parts), *drawn))
        prior.append(np.repeat([1.0 / size, 0.0], [size, size * (len(drawn) - 1)]))
    return blocks, np.concatenate(prior), np.concatenate([np.asarray(b.start) for b in blocks])
