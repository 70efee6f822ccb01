"""Adaptive solver (the default): a dictionary of several designs that grows in rounds.

A round doubles the features of the useful designs, and the rows with them; computed entries are
reused. Candidate fits (degrees in time, dampings, subsets of designs) are compared by the error
equation on a validation set. The solve ends by the rules of `stopping`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from heatnets._core import streams
from heatnets._core.operations import count_operations
from heatnets._core.reasons import ReasonKind, is_kind
from heatnets.certify.importance_points import WeightedPoints, choose_points, mean_squared_score
from heatnets.features.equation import build_equation
from heatnets.features.features import Equation
from heatnets.fit.assembly import value_and_residual_rows
from heatnets.fit.collocation import sample_points
from heatnets.fit.iteration import CandidateFit
from heatnets.pde.laplacian import CLOSED_FORM, CoordinateSums
from heatnets.solution import Solution
from heatnets.solvers import stopping
from heatnets.solvers.candidate_fits import Dictionary
from heatnets.solvers.far_error import add_far_error
from heatnets.solvers.growth import Growth, GrowthState
from heatnets.solvers.run import Round, Run, StopReason
from heatnets.solvers.validation import BlockSizes, ValidationSet, Verdict, final_check

# The points of the final check are chosen from 4 to 16 times as many candidates (1024 to 4096);
# one candidate costs as much as this many entries of the system.
_ENTRIES_PER_CANDIDATE = 128
_FINAL_RESIDUALS = 2  # residuals per feature in the final check: a quarter of the rows
_FINAL_CHECKS = ((1, "final check"), (4, "final check again"), (16, "final check, third"))
_NOISY = 8.0  # a bound of the error up to so many times the tolerance may be noise
_CHECK_SHARE = 0.5  # entries of the final check, at most about this share of those of the system
# A first round of 1e10 operations takes 3 to 10 s on two cores. With more, the solve starts with
# less: a seventh of the work, or a sixteenth with fewer points to estimate errors.
_MANY_OPERATIONS, _VERY_MANY_OPERATIONS = 1e10, 1e11
_SMALL_BLOCKS, _SMALLEST_BLOCKS = BlockSizes(4, 64), BlockSizes(4, 64, (16, 7), (48, 2))
_SLOW_ENTRY = 2e6  # operations: milliseconds per entry


@dataclass
class EquationState(GrowthState):
    """State of an adaptive solve by equation rows."""

    block_sizes: BlockSizes | None = None
    designs: list[list[str]] = field(default_factory=list)  # that were doubled, per round
    fit: CandidateFit | None = None  # of the last round; `best` has the smallest score
    stalled: int = 0  # number of consecutive rounds without gain
    entries: int = 0  # matrix entries computed in the last round
    iterations: list[list[float]] = field(default_factory=list)  # changes by Newton or Picard steps
    # A final check, which costs time, is made when the estimated error is below this value.
    next_check_below: float = np.inf


class EquationGrowth(Growth):
    """Adaptive solve by equation rows."""

    State = EquationState
    rules = stopping.EQUATION
    state: EquationState

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        with run.clock.phase("pilot"):
            self.data, self.skipped = build_equation(run.problem, run.options.seed)
            if self.state.block_sizes is None:
                self.state.block_sizes = _choose_block_sizes(run, self.data)
                # At a point, the estimate of a round may be all noise.
                margin = _NOISY / 2 if run.problem.region.is_point else 1.0
                self.state.next_check_below = margin * (run.options.tol or np.inf)
            self.dictionary = Dictionary(run, self.data, self.state.block_sizes)
        self._growing = [design.name for design in self.dictionary.designs]
        self._choice_seconds = 0.0  # of the last choice
        plan = self.dictionary.plan(self._growing)
        remedy = (
            f"{plan.processes} processes with as much each would do (docs/machines.md)."
            if plan.processes
            else ""
        )
        run.ctx.require_memory(plan.memory, "the first round", remedy)
        # Results of final checks by the number of features, without and with paths that go far.
        self._verdicts: dict[int, Verdict] = {}
        self._far_verdicts: dict[int, Verdict] = {}

    def repeat_rounds(self) -> None:
        for k, growing in enumerate(self.state.designs):
            self.dictionary.grow(growing, f"round {k} again")
        self.dictionary.extend_reference()
        self.dictionary.linearize_at(self.state.fit)
        self._growing = self.state.designs[-1]

    def make_round(self, label: str) -> Round:
        """Add features and rows, fit for every degree in time, keep the best fit."""
        dictionary, state, clock = self.dictionary, self.state, self.run.clock
        state.entries = dictionary.plan(self._growing).entries
        with clock.phase("assembly"):
            dictionary.grow(self._growing, label)
        with clock.phase("check"):
            dictionary.extend_reference()
        with clock.phase("solve"):
            columns = np.arange(len(dictionary.kind))
            dictionary.linearize_at(state.best)
            candidates = dictionary.solve_degrees(columns, dictionary.degrees)
            fit, changes = dictionary.iterate(min(candidates, key=lambda fit: fit.score))
        if changes:
            state.iterations.append(changes)
        state.designs.append(self._growing)
        no_gain = state.best is not None and fit.score > stopping.GAIN * state.best.score
        state.stalled = state.stalled + 1 if no_gain else 0
        state.fit = fit
        if state.best is None or fit.score < state.best.score:
            state.best = fit
        names = " + ".join(self._growing)
        return Round(dictionary.counts, fit.rows, fit.degree, names, fit.error, self.run.elapsed)

    def meets_tolerance(self, tol: float) -> bool:
        error = self.best.error
        if not error <= self.state.next_check_below:
            return False
        with self.run.clock.phase("check"):
            bound = self._final_check(self.best).bound
            if bound <= tol:
                bound = self._check_far_paths(self.best).bound
        # Check again when the error has fallen: a check costs a quarter of its round, and the next
        # round several times as much.
        self.state.next_check_below = 0.9 * error
        return bool(bound <= tol)

    def plan_round(self) -> str:
        # Every round doubles at least the first design: stop if even that takes too long. Twice the
        # columns and rows are eight times the work of a choice; often fewer designs are left then.
        if why := self._time_limit(self._growing[:1], 4 * self._choice_seconds):
            return why
        start = time.perf_counter()
        with self.run.clock.phase("choice"):
            self._growing = _choose_designs(self.dictionary, self.best, self._growing)
        self._choice_seconds = time.perf_counter() - start
        if why := self._time_limit(self._growing):
            return why
        plan = self.dictionary.plan(self._growing)
        return self.memory_limit(plan.memory, plan.processes)

    def check_seconds(self) -> float:
        if self.best.features in self._far_verdicts:
            return 0.0
        entries = _CHECK_SHARE * self.best.features * self.best.rows
        return float(self.state.spent["assembly"] * entries / self.state.entries)

    def _time_limit(self, growing: list[str], choice: float = 0.0) -> str:
        """Message if a round that doubles these designs would not end in time, else "".

        `choice` are the seconds that it takes to choose the designs before.

        The cost of assembly is proportional to the entries, that of the solve to the cube of the
        columns.
        """
        plan, spent = self.dictionary.plan(growing), self.state.spent
        return self.time_limit(
            choice
            + spent["assembly"] * plan.entries / self.state.entries
            + spent["solve"] * plan.growth**3
        )

    def finish(self, why: str) -> Solution:
        problem, tol = self.run.problem, self.run.options.tol
        with self.run.clock.phase("check"):
            verdict = self._check_far_paths(self.best)
        met = None if tol is None else bool(verdict.bound <= tol)
        ending = StopReason(why, met, verdict.reasons, verdict.facts)
        fit = self.best._replace(error=verdict.error, validation_residual=verdict.residual)
        if verdict.error > 1 and not problem.source.uses_u:
            fit = fit._replace(error=np.inf)
            too_large = f"it is larger than the solution itself, {verdict.error:.2g} times"
            ending = ending._replace(unknown=verdict.reasons or (too_large,))
        for note in fit.solved.notes:
            # Columns of zeros are usual in a dictionary.
            if not is_kind(note, ReasonKind.EMPTY_COLUMNS):
                self.run.log.warn(note)
        # Features sorted by kind.
        size, kinds = self.dictionary.block_sizes.block, self.dictionary.kinds
        kind = self.dictionary.kind[: fit.features]
        blocks = self.dictionary.rows.blocks[: fit.features // size]
        by_kind = [[b for i, b in enumerate(blocks) if kind[i * size] == k] for k in kinds]
        merged = [jax.tree.map(lambda *parts: jnp.concatenate(parts), *group) for group in by_kind]
        weights = fit.weights.reshape(fit.degree + 1, -1)[:, np.argsort(kind, kind="stable")]
        return self.build_solution(
            fit.with_weights(weights.reshape(-1)),
            merged,
            ending,
            features=(int(np.sum(kind == 0)), int(np.sum(kind == 1))),
            skipped=self.skipped,
            iterations=self.state.iterations,
        )

    def _final_check(self, fit: CandidateFit) -> Verdict:
        """Final check of a fit on a test set that was not used to choose it; made once.

        The test set has two residuals per feature, and Monte Carlo values. If a few residuals
        dominate the estimate, the check is repeated with four times as many points (eight residuals
        per feature). At a `Point` more samples are cheaper than more features: if noise leaves open
        whether the tolerance is met, there are four and sixteen times as many.
        """
        if fit.features in self._verdicts:
            return self._verdicts[fit.features]
        rows, sizes = self.dictionary.rows, self.dictionary.block_sizes
        points, samples = sizes.test
        samples = max(samples, _FINAL_RESIDUALS * fit.features // points)
        is_point = self.run.problem.region.is_point
        for factor, stream in _FINAL_CHECKS[: 3 if is_point else 2]:
            size = (factor * points, samples)
            start_points = _choose_test_points(self.dictionary, fit, size[0], stream)
            test_set = ValidationSet(
                self.run,
                rows.data,
                stream,
                size,
                row_chunk=sizes.row_chunk,
                start_points=start_points,
            )
            cache = test_set.cache
            cache.add_features(rows.blocks[: fit.features // sizes.block], "final check")
            if self.run.problem.source.uses_u:
                cache.linearize(fit.weights, fit.degree)
            test_set.reference.extend(fit.features * fit.rows)
            columns = np.arange(fit.features)
            verdict = final_check(test_set, fit.weights, columns, fit.degree, rows)
            if not verdict.curable and not (is_point and self._is_undecided(verdict)):
                break
        self.run.iteration.check_error(cache, verdict.error)
        self._verdicts[fit.features] = verdict
        return verdict

    def _is_undecided(self, verdict: Verdict) -> bool:
        """Whether the noise of the check leaves open if the tolerance is met."""
        tol = self.run.options.tol
        return tol is not None and verdict.low <= tol < verdict.bound <= _NOISY * tol

    def _check_far_paths(self, fit: CandidateFit) -> Verdict:
        """The final check of a fit with the error that only far paths meet; made once.

        Sources that depend on u are left out.
        """
        if fit.features not in self._far_verdicts:
            verdict = self._final_check(fit)
            if np.isfinite(verdict.error) and not self.run.problem.source.uses_u:
                verdict = self._with_far_paths(fit, verdict)
            self._far_verdicts[fit.features] = verdict
        return self._far_verdicts[fit.features]

    def _with_far_paths(self, fit: CandidateFit, verdict: Verdict) -> Verdict:
        """The result of a final check, with a larger error where far paths show one."""
        known, scale = (verdict.error, verdict.bound), verdict.facts["size"]
        rows, sizes = self.dictionary.rows, self.dictionary.block_sizes
        far = add_far_error(self.run, rows, sizes, fit, known, scale)
        facts = {**verdict.facts, "far_directions": far.directions, "far_error": 0.0}
        if far.error > verdict.error:
            doubts = (*verdict.doubts, f"paths that go far carry an error of {far.error:.2g}")
            facts |= {"far_error": far.error, "doubts": doubts}
            verdict = verdict._replace(error=far.error, doubts=doubts)
        return verdict._replace(bound=far.bound, facts=facts)


def _choose_test_points(
    dictionary: Dictionary, fit: CandidateFit, points: int, stream: str
) -> WeightedPoints | None:
    """Points for the final check, more of them where an error is likely to be large.

    That is where values and residuals of single features are large, or where they deviate most
    from their means. Where one of the 1024 to 4096 candidates meets an error that is concentrated
    on a small part of the region, many of the points do. None if the region is one point.
    """
    problem, block_sizes, rows = dictionary.problem, dictionary.block_sizes, dictionary.rows
    if problem.region.is_point:
        return None
    rng = streams.generator(dictionary.options.seed, f"{stream}, points")
    affordable = fit.features * fit.rows // (_ENTRIES_PER_CANDIDATE * block_sizes.block)
    candidates = int(np.clip(affordable, 4 * points, 16 * points))
    t, x = sample_points(problem, candidates // block_sizes.row_chunk * block_sizes.row_chunk, rng)
    # Scores mark points that carry much of the variance of single features. They count times t:
    # an error at the time t has had the time t to grow.
    sizes, scores = np.zeros(len(t)), np.zeros(len(t))
    weight_sizes = np.abs(np.asarray(fit.solved.weights).reshape(fit.degree + 1, -1))
    feature_weights = np.sum(weight_sizes, axis=0)
    for kind in dictionary.kinds:
        of_kind = dictionary.kind[: fit.features] == kind
        # One block stands for all features of its kind.
        block = rows.blocks[int(np.flatnonzero(of_kind)[0]) // block_sizes.block]
        values, residuals = (
            np.asarray(entries)
            for entries in value_and_residual_rows(
                rows.data, [block], (t, x), dictionary.ctx, "final check", block_sizes.row_chunk
            )
        )
        size = np.hypot(residuals, values / problem.horizon)
        sizes += (
            np.sum(feature_weights[of_kind])
            * np.sqrt(np.mean((size / (np.max(size) or 1.0)) ** 2, axis=1))
            * (np.max(size) or 1.0)
        )
        scores += mean_squared_score(values) + mean_squared_score(residuals)
    scale = problem.value_scale(t)
    return choose_points(t, x, (scale * sizes, scale * t * np.sqrt(scores)), points, rng)


def _choose_block_sizes(run: Run, data: Equation) -> BlockSizes:
    """Block sizes: smaller than usual if the operations of the first round are many.

    This happens for automatic Laplacians in high dimension (that of a product, for example, costs
    d² operations) and for coefficients that are functions. The operations are counted, not timed:
    the choice is the same on every machine.
    """
    fast = (CLOSED_FORM.name, CoordinateSums.name)
    is_automatic = any(method not in fast for method in data.laplacian_methods.values())
    if not is_automatic or run.ctx.device.platform != "cpu":
        return BlockSizes()
    names = [design.name for design in run.options.directions]
    per_entry = _operations_per_entry(run, data)
    operations = per_entry * Dictionary(run, data, BlockSizes()).plan(names).entries
    if per_entry > _SLOW_ENTRY:
        run.log.warn(
            f"`{run.problem.data_name}` or `source` with derivatives takes {per_entry:.1e} "
            "operations per feature and point: the solve starts small. "
            "Give the Laplacian in closed form: hn.Function(f, laplacian=g)."
        )
    if operations > _VERY_MANY_OPERATIONS:
        return _SMALLEST_BLOCKS
    return _SMALL_BLOCKS if operations > _MANY_OPERATIONS else BlockSizes()


def _operations_per_entry(run: Run, data: Equation) -> float:
    """Mean number of operations of one entry (value and residual), over the kinds of features."""
    blocks = run.draw((1, int(run.problem.feature_source is not None)), run.options.directions[0])
    t, x = (jax.ShapeDtypeStruct(shape, jnp.float64) for shape in ((), (run.problem.dim,)))
    counts = [
        count_operations(
            lambda feature, t, x: feature.value_and_residual(data, t, x),
            jax.tree.map(lambda a: a[0], block),
            t,
            x,
        )
        for block in blocks
        if len(block.initial_coefficient)
    ]
    return float(np.mean(counts))


def _choose_designs(dictionary: Dictionary, fit: CandidateFit, growing: list[str]) -> list[str]:
    """Choose the designs to double next: all that grew so far, unless some are of no use.

    Small dictionaries rank designs wrongly (neighbour products prefer Gaussian directions at 64
    pairs; at 512 the union is better by orders of magnitude). A design is dropped only if, at the
    last two sizes, the others without it are as good as all together, if their error is at least
    halved from one size to the next, and if their error, extrapolated to the same number of
    features, is half of that of all together. The first design is never dropped.
    """
    names = [design.name for design in dictionary.designs]
    size = dictionary.sizes[names[0]]
    if len(growing) == 1 or size < 32:
        return growing
    others = [name for name in growing if name != names[0]]
    subsets = [
        growing,
        *([name for name in growing if name != left_out] for left_out in others if len(others) > 1),
        names[:1],
    ]
    errors = np.array(
        [
            [
                _score(dictionary, [names.index(name) for name in subset], m, fit)
                for m in (size // 2, size)
            ]
            for subset in subsets
        ]
    )
    if not np.all(errors > 0):
        return growing
    slopes = np.clip(np.log2(errors[:, 0] / errors[:, 1]), 0, 8)
    growth = np.array([len(subset) for subset in subsets]) / (2 * len(growing))
    predicted = errors[:, 1] * growth**slopes
    as_good = np.all(errors < 1.25 * errors[0], axis=1)
    better = as_good & (slopes >= 1) & (2 * predicted < predicted[0])
    if not np.any(better):
        return growing
    return subsets[int(np.argmin(np.where(better, predicted, np.inf)))]


def _score(dictionary: Dictionary, numbers: list[int], size: int, fit: CandidateFit) -> float:
    """Score of the first `size` features of some designs, with the degree and damping of `fit`.

    Only cached entries are used.
    """
    columns = np.flatnonzero(np.isin(dictionary.design, numbers) & (dictionary.rank < size))
    return dictionary.refit(fit, columns).score
