"""Adaptive solver for data that are not C²: the network is fitted to mild rows.

Mild rows (Monte Carlo samples of the mild solution) need no derivatives, so kinks and jumps do no
harm, but they are noisy. The weights are therefore pulled towards 1/M, where the network is the
Monte Carlo average over its own draws; cross-validation sets the strength, and the initial
condition stays exact. A source that depends on u takes u from the fit before (Picard).
"""

# A control variate (the martingale -∫∇ũ·dW of the current fit) is not used: four steps divide the
# variance of a sample by 15 to 20, sixteen by 50 to 80, but each step costs a gradient of the whole
# network, and with 96 features a sample then costs 50 or 200 plain ones
# (benchmarks/control_variate.py). At equal time plain samples are better by a factor of 3 to 5, and
# more so for larger networks.

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
from heatnets._core.execution import ExecutionContext, Summary
from heatnets._core.tiling import map_points
from heatnets._core.timing import PhaseTimer
from heatnets.certify import linearization, montecarlo
from heatnets.certify.reference_values import ReferenceValues
from heatnets.features.equation import Equation, values_only
from heatnets.features.features import Feature
from heatnets.fit import least_squares
from heatnets.fit.assembly import Points, value_rows
from heatnets.fit.collocation import PLACEMENTS, sample_points
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.function import Function
from heatnets.pde.nonlinearity import SemilinearSource
from heatnets.pde.regions import Region
from heatnets.solution import Solution
from heatnets.solvers.adaptive import (
    StopReason,
    kinds,
    network,
    round_limit_message,
    time_limit_message,
)
from heatnets.solvers.checkpoint import Checkpoint
from heatnets.solvers.options import AdaptiveOptions
from heatnets.solvers.state import Round
from heatnets.solvers.validation import CONTRADICTION

_FEATURES, _ROWS = 32, 2048  # first round: features of each design and kind; training points
_PAIRS = (16, 512)  # antithetic pairs of samples per training point, at least and at most
# Most normal random numbers in the samples of the first round: beyond, a point gets fewer pairs.
_COORDINATES = 2**29
_SOURCE_PAIRS = 16  # pairs per point for the part of a source that depends on u
_PICARD_STEPS = 2  # fixed-point steps per round, for a source that depends on u
_JUDGES = 128  # validation points at which errors are estimated
_BATCHES = 4  # batches of pairs at a validation point, in each of two independent halves


def grow(
    problem: CanonicalProblem, options: AdaptiveOptions, ctx: ExecutionContext, log: WarningLog
) -> Solution:
    """Adaptive solve by mild rows.

    Each round has twice the rows of the one before, and twice the features if there is time for
    that, until the tolerance is met or the budget is spent.
    """
    started, clock = time.perf_counter(), PhaseTimer()
    if options.time_degree is not None or options.rcond is not None:
        log.warn("`time_degree` and `rcond` play no part in training on mild rows")
    ctx.require(8 * (4 * _ROWS * 6 * _FEATURES + 4 * _ROWS * problem.dim), "the first round", "")
    source_sampler = None
    if problem.nonlinear is not None:
        # Without reaction flow the weights 1/M give a first guess of the solution.
        problem = replace(problem, reaction_flow=None)
        source_sampler = _SourceSampler(problem, options, ctx)
    data = values_only(problem)
    judges = _make_points(problem, problem.region, _JUDGES, options.seed, "mild judges")
    # From values of the canonical problem to values of u.
    factor = np.broadcast_to(problem.value_scale(judges[0]), (_JUDGES,))
    # Two independent estimates of u at the validation points; every round adds samples to them.
    halves = np.zeros((2, _JUDGES))
    history: list[Round] = []
    best: _Best | None = None
    size, rows, samples = _FEATURES, _ROWS, _MildRows(problem, options, ctx)
    checkpoint = Checkpoint(options, problem, "mild rows")
    stored = checkpoint.find()
    if stored is not None:
        state, arrays = stored
        history.extend(map(Round.of, state["history"]))
        size, rows, halves = state["size"], state["rows"], arrays["halves"]
        best = _Best.of(state["best"], arrays["best"])
        samples.restore(state["samples"], arrays["values"])
        if source_sampler is not None:
            blocks = _draw_features(problem, options, state["taken"])[0]
            source_sampler.set_fit(data, blocks, arrays["weights"])
        clock.add(state["clock"])
        log.restore(state["warnings"])
        started = min(started, time.perf_counter() - history[-1].seconds)
        ctx.progress(Summary(f"goes on after {history[-1]}"), 1, 1)
    while True:
        before, label, growth = dict(clock.seconds), f"round {len(history)}", 2 ** len(history)
        new_rows = rows - samples.count
        with clock.phase("samples"):
            samples.extend(rows, label)
        with clock.phase("assembly"):
            blocks, prior, start = _draw_features(problem, options, size)
            A = _evaluate_features(data, blocks, samples.points, ctx, label)
        b = samples.values
        for turn in range(1 if source_sampler is None else _PICARD_STEPS):
            if source_sampler is not None:
                with clock.phase("samples"):
                    stream = f"{label}, turn {turn}"
                    b = samples.values + source_sampler.sample(samples.points, stream)[0]
            with clock.phase("solve"):
                condition = start if np.any(start) else None
                weights, ridge, freedom = least_squares.near(A, b, prior, condition)
            if source_sampler is not None:
                source_sampler.set_fit(data, blocks, weights)
        with clock.phase("check"):
            # As many samples again as before (in the first round, a first set): the estimates are
            # averages over all of them.
            linear_part = _without_nonlinear_source(problem)
            streams_of_halves = [f"{label}, half {h}" for h in (0, 1)]
            drawn = [
                _sample_mild(linear_part, judges, _BATCHES * growth, options.seed, ctx, stream)
                for stream in streams_of_halves
            ]
            new_halves = [factor * values for values, _, _ in drawn]
            bias = factor * np.mean([biases for _, _, biases in drawn], axis=0)
            share = growth / (2 * growth - 1)  # share of the new samples among all
            halves = (1 - share) * halves + share * np.stack(new_halves)
            estimates = halves
            if source_sampler is not None:
                drawn = [
                    source_sampler.sample(judges, stream, _BATCHES * growth)
                    for stream in streams_of_halves
                ]
                estimates = halves + factor * np.stack([values for values, _, _ in drawn])
                bias = bias + factor * np.mean([biases for _, _, biases in drawn], axis=0)
            scale = statistics.rms(estimates.mean(axis=0)) or 1.0
            value = factor * (_evaluate_features(data, blocks, judges, ctx, label) @ weights)
            corrections = (estimates - value).T
            root = statistics.mean_square(corrections).root
            error = float(np.hypot(root, statistics.rms(bias))) / scale
            # With a source that depends on u, the samples estimate the defect of the fixed-point
            # equation. The error may be larger by this factor.
            defect_factor = 1.0 if source_sampler is None else source_sampler.error_growth(judges)
            error = defect_factor * error
            interval = statistics.relative_l2_interval(corrections, value, bias, 0.98)
            met = None
            if options.tol is not None:
                met = not interval.reasons and defect_factor * interval.high <= options.tol
        counts = tuple(len(block.start) for block in blocks)
        elapsed = time.perf_counter() - started
        features = (
            counts[0] if 0 in kinds(problem) else 0,
            counts[-1] if 1 in kinds(problem) else 0,
        )
        names = " + ".join(design.name for design in options.designs)
        history.append(Round(features, rows, 0, names, error, elapsed))
        ctx.progress(Summary(f"{label}: {history[-1]}"), 1, 1)
        misfit = statistics.rms(A @ weights - b)
        facts = {
            "features": features,
            "rows": (rows, 0),
            "rank": round(freedom),
            "ridge": ridge,
            "residual_train": misfit / scale,
            "mild_noise": samples.noise / scale,
        }
        # Small gains are hidden by the noise of the estimates: a larger round replaces the best
        # one unless it is clearly worse.
        if best is None or error < 1.2 * best.error or met:
            best = _Best(error, size, weights, met, facts)
        if met:
            reason = "the tolerance is met"
            break
        spent = {
            phase: seconds - before.get(phase, 0.0) for phase, seconds in clock.seconds.items()
        }
        if reason := round_limit_message(options, len(history)):
            break
        # Twice the features and rows; if there is no time for that, twice the rows.
        for feature_factor in (2, 1):
            needed = (
                spent["samples"] / new_rows * rows
                + 2 * feature_factor * spent["assembly"]
                + 2 * feature_factor**2 * spent["solve"]
                + 2 * spent["check"]
            )
            reason = time_limit_message(needed, elapsed, options.seconds)
            if not reason and 8 * A.nbytes * 2 * feature_factor > ctx.memory:
                reason = "the next round would not fit into `memory`"
            if not reason:
                break
        if reason:
            break
        last_size, size, rows = size, feature_factor * size, 2 * rows
        state = {
            "history": history,
            "size": size,
            "rows": rows,
            "taken": last_size,
            "best": best.words,
            "samples": samples.words,
            "clock": clock.seconds,
            "warnings": log.messages,
        }
        checkpoint.keep(
            state,
            {"best": best.weights, "weights": weights, "halves": halves, "values": samples.values},
        )
    error, size, weights, met, facts = best
    blocks = _draw_features(problem, options, size)[0]
    ending = StopReason(reason, met, (), {})
    if problem.nonlinear is None:
        with clock.phase("check"):
            error, ending = _final_check(problem, data, blocks, best, options, ctx, ending)
    facts = {
        **facts,
        "collocation": "uniform",
        "time_degree": 0,
        "enforce": "mild",
        "solver": "near",
        "rcond": None,
        "condition": None,
        "residual_held_out": None,
        "laplacian": {},
        "laplacian_skipped": {},
        "iterations": (),
    }
    return network(
        problem, options, ctx, log, clock, history, error, data, blocks, weights, ending, facts
    )


def _final_check(
    problem: CanonicalProblem,
    data: Equation,
    blocks: list[Feature],
    best: _Best,
    options: AdaptiveOptions,
    ctx: ExecutionContext,
    ending: StopReason,
) -> tuple[float, StopReason]:
    """Compare the best fit with Monte Carlo values at new points (the test set).

    Returns the estimated error and the updated `ending`. The values may contradict the estimate;
    if a few samples dominate them, nothing is known and the error is infinite.
    """
    reference = ReferenceValues.over_region(
        problem,
        data,
        options.seed,
        "final check",
        ctx,
        entries=best.facts["rows"][0] * len(best.weights),
        points=_JUDGES,
    )
    features = _evaluate_features(data, blocks, reference.points, ctx, "final check")
    value = reference.factor * (features @ best.weights)
    difference, difference_998 = (reference.compare(value, level) for level in (0.98, 0.998))
    check = {**reference.facts(difference), "reasons": difference.reasons}
    met = ending.met
    if difference.reasons:
        met = met and False  # stays None without a tolerance
        return np.inf, ending._replace(met=met, unknown=difference.reasons, check=check)
    if difference_998.low > CONTRADICTION * best.error:
        met = met and difference.high <= (options.tol or 0.0)
        return difference.value, ending._replace(met=met, check=check)
    return best.error, ending._replace(check=check)


class _Best(NamedTuple):
    """The best fit so far."""

    error: float
    size: int  # features of each design and kind
    weights: np.ndarray
    met: bool | None  # whether the tolerance is met; None without a tolerance
    facts: dict[str, Any]  # for `stats`

    @property
    def words(self) -> list[Any]:
        """All fields except the weights, for a checkpoint."""
        return [self.error, self.size, self.met, self.facts]

    @classmethod
    def of(cls, words: list[Any], weights: np.ndarray) -> _Best:
        """Restore a fit stored in a checkpoint."""
        error, size, met, facts = words
        facts = {**facts, "features": tuple(facts["features"]), "rows": tuple(facts["rows"])}
        return cls(error, size, weights, met, facts)


class _SourceAtFit(eqx.Module):
    """(s, y) ↦ f(s, y, ũ, ∇ũ)."""

    nonlinear: SemilinearSource
    fit: linearization.Fit

    def __call__(self, s: Array, y: Array) -> Array:
        return self.nonlinear(
            s, y, *self.fit.value_and_gradient(s, y, self.nonlinear.uses_gradient)
        )


def _reaction_rate(source: Any, s: Array, y: Array) -> Array:
    """f_u at the fit."""
    function: _SourceAtFit = source.function
    nonlinear = function.nonlinear
    return nonlinear.linearize(
        s, y, *function.fit.value_and_gradient(s, y, nonlinear.uses_gradient)
    ).d_u


class _SourceSampler:
    """Samples of the part of the mild solution that comes from a source that depends on u.

    The source is evaluated at the last fit; at first, at a guess of u.
    """

    def __init__(
        self, problem: CanonicalProblem, options: AdaptiveOptions, ctx: ExecutionContext
    ) -> None:
        self._problem, self._options, self._ctx = problem, options, ctx
        # The problem with zero initial condition and with the source frozen at the fit.
        zero = Function(lambda x: jnp.zeros(()))
        self._frozen = replace(problem, initial=zero, nonlinear=None)

    def set_fit(self, data: Equation, blocks: list[Feature], weights: np.ndarray) -> None:
        """Evaluate the source at this fit from now on."""
        parts = np.split(weights, np.cumsum([len(block.start) for block in blocks])[:-1])
        fit = linearization.Fit(
            data, [(block, jnp.asarray(w)[:, None]) for block, w in zip(blocks, parts, strict=True)]
        )
        assert self._problem.nonlinear is not None
        source = Function(_SourceAtFit(self._problem.nonlinear, fit))
        self._frozen = replace(self._frozen, source=source)

    def sample(
        self, points: Points, stream: str, batches: int = 1
    ) -> tuple[np.ndarray, float, np.ndarray]:
        """Samples at the points, as returned by `_sample_mild`."""
        stream, seed = f"forces {stream}", self._options.seed
        return _sample_mild(self._frozen, points, batches, seed, self._ctx, stream, _SOURCE_PAIRS)

    def error_growth(self, points: Points) -> float:
        """Factor by which the error may exceed the defect of the fixed-point equation.

        exp(∫ f_u), with the 95 % quantile of f_u over the points.
        """
        source, dim = self._frozen.source, self._problem.dim
        rate = map_points(_reaction_rate, source, points, 32 * dim, self._ctx)
        return float(np.exp(self._problem.horizon * max(float(np.quantile(rate, 0.95)), 0.0)))


class _MildRows:
    """Training points and samples of the mild solution there; a list that can be extended."""

    def __init__(
        self, problem: CanonicalProblem, options: AdaptiveOptions, ctx: ExecutionContext
    ) -> None:
        self._problem, self._options, self._ctx = problem, options, ctx
        self.points: Points = (np.zeros(0), np.zeros((0, problem.dim)))
        self.values, self._variance = np.zeros(0), 0.0
        # After each extension: number of rows, and its label (the name of its random stream).
        self._extensions: list[tuple[int, str]] = []

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.values)

    @property
    def noise(self) -> float:
        """Root mean square of the standard errors of the samples."""
        return float(np.sqrt(self._variance))

    @property
    def words(self) -> dict[str, Any]:
        """All fields except the values, for a checkpoint."""
        return {"taken": self._extensions, "variance": self._variance}

    def restore(self, words: dict[str, Any], values: np.ndarray) -> None:
        """Restore the samples of a checkpoint; their points are drawn again."""
        for rows, label in words["taken"]:
            self._add_points(rows, label)
        self.values, self._variance = values, words["variance"]

    def _add_points(self, rows: int, label: str) -> Points:
        """Draw points until there are `rows` in all; returns the new ones."""
        count, region = rows - len(self.points[0]), self._options.train_region
        stream = f"mild rows {label}"
        t, x = _make_points(self._problem, region, count, self._options.seed, stream, True)
        self.points = (np.concatenate([self.points[0], t]), np.concatenate([self.points[1], x]))
        self._extensions.append((rows, label))
        return t, x

    def extend(self, rows: int, label: str) -> None:
        """Add points and samples until there are `rows` in all."""
        old_rows, new_points = self.count, self._add_points(rows, label)
        linear_part = _without_nonlinear_source(self._problem)
        values, noise, _ = _sample_mild(
            linear_part, new_points, 1, self._options.seed, self._ctx, label
        )
        self.values = np.concatenate([self.values, values])
        self._variance = (old_rows * self._variance + (rows - old_rows) * noise**2) / rows


def _sample_mild(
    problem: CanonicalProblem,
    points: Points,
    batches: int,
    seed: int,
    ctx: ExecutionContext,
    stream: str,
    pairs: int | None = None,
) -> tuple[np.ndarray, float, np.ndarray]:
    """Monte Carlo means of the mild solution, over `batches` times `pairs` antithetic pairs.

    Returns the means, (points,), the root mean square of their standard errors, and their bias by
    time steps, (points,). All calls have the same shape, so that a growing number of points and
    samples compiles once.
    """
    width = 2 * int(np.prod(problem.paths.noise_shape(problem.dim)))
    pairs = pairs or int(np.clip(_COORDINATES // (_ROWS * width), *_PAIRS))
    parts = []
    for start in range(0, len(points[0]), _ROWS):
        t, x = points[0][start : start + _ROWS], points[1][start : start + _ROWS]
        names = [f" {stream}, {start}, batch {batch}" for batch in range(batches)]
        estimates = [
            montecarlo.mild_samples(problem, t, x, pairs, seed, ctx, name, paired=True)
            for name in names
        ]
        parts.append(
            (
                np.mean([estimate.value for estimate in estimates], axis=0),
                np.mean([estimate.truncation_bias for estimate in estimates], axis=0),
                np.mean([estimate.standard_error**2 for estimate in estimates], axis=0) / batches,
            )
        )
    values, biases, variances = (np.concatenate(part) for part in zip(*parts, strict=True))
    return values, float(np.sqrt(np.mean(variances))), biases


def _evaluate_features(
    data: Equation, blocks: list[Feature], points: Points, ctx: ExecutionContext, phase: str
) -> np.ndarray:
    """φ_j(t_k, x_k), (points, features); all calls have the same shape."""
    pieces = [
        jax.tree.map(lambda a, i=i: a[i : i + _FEATURES], block)
        for block in blocks
        for i in range(0, len(block.start), _FEATURES)
    ]
    return np.asarray(value_rows(data, pieces, points, ctx, phase, strip=_JUDGES))


def _without_nonlinear_source(problem: CanonicalProblem) -> CanonicalProblem:
    """The problem without a source that depends on u, which is sampled separately."""
    return problem if problem.nonlinear is None else replace(problem, source=None, nonlinear=None)


def _make_points(
    problem: CanonicalProblem,
    region: Region,
    count: int,
    seed: int,
    stream: str,
    for_training: bool = False,
) -> Points:
    """Random points of (0, T] x region, at t = T for a `Point`: it says nothing of other times.

    Training points for a source that depends on u lie also on paths from the region.
    """
    rng = streams.generator(seed, stream)
    horizon, dim = problem.horizon, problem.dim
    if for_training and problem.nonlinear is not None:
        return PLACEMENTS["paths"](region, horizon, count, dim, rng, problem.paths, True)
    return sample_points(region, horizon, count, dim, rng)


def _draw_features(
    problem: CanonicalProblem, options: AdaptiveOptions, size: int
) -> tuple[list[Feature], np.ndarray, np.ndarray]:
    """Draw `size` features of each design and kind.

    Returns one block per kind; the prior weights, 1/M for the first design and 0 for the others,
    for which the network is a Monte Carlo average; and the ratios φ_j(0, ·) / u0.
    """
    blocks, prior = [], []
    for kind in kinds(problem):
        counts = (size, 0) if kind == 0 else (0, size)
        drawn = [
            options.family.draw(problem, counts, design, options.seed, options.antithetic)[kind]
            for design in options.designs
        ]
        blocks.append(jax.tree.map(lambda *parts: jnp.concatenate(parts), *drawn))
        prior.append(np.repeat([1.0 / size, 0.0], [size, size * (len(drawn) - 1)]))
    starts = [np.asarray(block.start) for block in blocks]
    return blocks, np.concatenate(prior), np.concatenate(starts)
