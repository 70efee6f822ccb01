"""Adaptive solver (the default): a dictionary of several designs that grows in rounds.

A round doubles the features of the useful designs, and the rows with them; computed entries are
reused. Candidate fits (degrees in time, dampings, subsets of designs) are compared by the error
equation on a validation set. Stopping rule: the estimate no longer falls, or no time or memory.
"""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from heatnets._core import streams
from heatnets._core.errors import NumericalError, WarningLog
from heatnets._core.execution import ExecutionContext, Summary, peak_bytes
from heatnets._core.reasons import ReasonKind, is_kind
from heatnets._core.timing import PhaseTimer
from heatnets.certify.error_equation import WeightedPoints, important_points
from heatnets.features.equation import Equation, equation
from heatnets.features.features import Feature
from heatnets.fit import least_squares, newton
from heatnets.fit.assembly import Points, both_rows
from heatnets.fit.collocation import PLACEMENTS, sample_points
from heatnets.fit.entry_cache import EntryCache
from heatnets.pde.canonical import CanonicalProblem
from heatnets.solution import Solution
from heatnets.solvers.checkpoint import Checkpoint
from heatnets.solvers.options import AdaptiveOptions
from heatnets.solvers.state import Fit, GrowthState, Round
from heatnets.solvers.validation import (
    EXCESS,
    BlockSizes,
    FinalCheck,
    ValidationSet,
    Verdict,
    root_mean_square,
)

DEGREES = (0, 1, 3)  # candidate degrees of the weights in time
# Candidate dampings of the least-squares problem, relative to its largest singular value.
DAMPINGS = (1e-14, 1e-11, 1e-8, 1e-6, 1e-4)

_ROWS_PER_FEATURE = 8  # two per column at the highest degree
# Number of entries above which a system is factored on a GPU: for smaller systems, compiling for
# the shape takes longer than LAPACK.
_ON_DEVICE = 2**24
_NEARLY_BEST = 2.0  # times the best score: differences up to this factor are noise
# The points of the final check are chosen from 4 to 16 times as many candidates (1024 to 4096);
# one candidate costs as much as this many entries of the system.
_ENTRIES_PER_CANDIDATE = 128
_FINAL_RESIDUALS = 2  # residuals per feature in the final check: a quarter of the rows
_RESOLVED = 1e-11  # estimated error at which the solve stops: no user can tell it from rounding

# A sixteenth of the work, for data whose derivatives take milliseconds.
_SMALL = BlockSizes(4, 64, (16, 7), (48, 2))


def kinds(problem: CanonicalProblem) -> list[int]:
    """Kinds of features that are useful: 0 from the initial condition, 1 from the source."""
    has_initial = not problem.zero_initial or problem.reaction_flow is not None
    is_useful = (has_initial, problem.source is not None)
    return [kind for kind, useful in enumerate(is_useful) if useful] or [0]


class Dictionary:
    """Features of several designs and two kinds, their training rows, and the validation set.

    `kind`, `design` and `rank` describe the columns, (features,): the kind of the feature, the
    number of its design, and its position in the sequence of the design.
    """

    def __init__(
        self,
        problem: CanonicalProblem,
        options: AdaptiveOptions,
        data: Equation,
        ctx: ExecutionContext,
        grain: BlockSizes,
    ) -> None:
        self.problem, self.options, self.ctx, self.grain = problem, options, ctx, grain
        self.kinds = kinds(problem)
        self.designs = options.designs
        # Number of features of each kind, per design.
        self.sizes = dict.fromkeys((design.name for design in self.designs), 0)
        # For a source that depends on u: relative change by each Newton or Picard step, per round.
        self.iterations: list[list[float]] = []
        self.kind, self.design, self.rank = (np.zeros(0, int) for _ in range(3))
        self.rows = EntryCache(problem, data, ctx, self._points(0, grain.strip), grain.strip)
        self.judges = ValidationSet(
            problem, data, ctx, options.seed, "judges", grain.judges, grain.strip
        )

    def _points(self, first: int, last: int) -> Points:
        """Training points `first` to `last` (multiples of the strip length).

        Every strip has its own random stream, so that a longer list begins with the shorter one.
        """
        p, s, strip = self.problem, self.options, self.grain.strip
        place = PLACEMENTS[s.collocation]
        generators = [
            streams.generator(s.seed, f"rows {i}") for i in range(first // strip, last // strip)
        ]
        pieces = [
            place(s.train_region, p.horizon, strip, p.dim, rng, p.paths, p.nonlinear is not None)
            for rng in generators
        ]
        t, x = zip(*pieces, strict=True)
        return np.concatenate(t), np.concatenate(x)

    def next_sizes(self, growing: list[str]) -> tuple[dict[str, int], int]:
        """Features per design and number of rows after a round that doubles these designs."""
        sizes = {
            name: (2 * size or self.grain.block) if name in growing else size
            for name, size in self.sizes.items()
        }
        features, strip = sum(sizes.values()) * len(self.kinds), self.grain.strip
        return sizes, -(-_ROWS_PER_FEATURE * features // strip) * strip

    def grow(self, growing: list[str], phase: str) -> None:
        """Double the features of the named designs, and add rows in proportion."""
        sizes, rows = self.next_sizes(growing)
        new_blocks: list[Feature] = []
        for number, design in enumerate(self.designs):
            old, size = self.sizes[design.name], sizes[design.name]
            if size == old:
                continue
            counts = (size if 0 in self.kinds else 0, size if 1 in self.kinds else 0)
            drawn = self.options.family.draw(
                self.problem, counts, design, self.options.seed, self.options.antithetic
            )
            for kind in self.kinds:
                block = self.grain.block
                for start in range(old, size, block):
                    piece = slice(start, start + block)
                    new_blocks.append(jax.tree.map(lambda a, i=piece: a[i], drawn[kind]))
                added = size - old
                self.kind = np.append(self.kind, np.full(added, kind))
                self.design = np.append(self.design, np.full(added, number))
                self.rank = np.append(self.rank, np.arange(old, size))
        self.judges.table.add_features(new_blocks, phase)
        self.rows.add_features(new_blocks, phase)
        old_rows = len(self.rows.points[0])
        if rows > old_rows:
            self.rows.add_points(self._points(old_rows, rows), phase)
        self.sizes = sizes

    def extend_reference(self) -> None:
        """Draw more Monte Carlo values on the validation set, at a small part of the total cost."""
        if self.problem.nonlinear is None:
            self.judges.reference.extend(len(self.kind) * len(self.rows.points[0]))

    def count_new_entries(self, growing: list[str]) -> int:
        """Number of matrix entries that the next round would compute."""
        sizes, rows = self.next_sizes(growing)
        M, N = len(self.kind), len(self.rows.points[0])
        M_new = sum(sizes.values()) * len(self.kinds)
        return M_new * rows - M * N + (M_new - M) * len(self.judges.table.points[0])

    def bytes_needed(self, growing: list[str]) -> int:
        """Memory of the next round.

        Counted are values and residuals of all entries, the system at the highest degree with its
        copies, and the coordinates of points and features.
        """
        sizes, rows = self.next_sizes(growing)
        features = sum(sizes.values()) * len(self.kinds)
        columns = features * (1 + max(self.degrees))
        judges = 2 * len(self.judges.table.points[0])
        return 8 * (
            2 * features * (rows + judges) * 2
            + 4 * (rows + columns) * columns
            + (rows + features + judges) * self.problem.dim
        )

    @property
    def degrees(self) -> tuple[int, ...]:
        """Degrees in time to try."""
        return DEGREES if self.options.time_degree is None else (self.options.time_degree,)

    @property
    def counts(self) -> tuple[int, int]:
        """Numbers of features from the initial condition and from the source."""
        return int(np.sum(self.kind == 0)), int(np.sum(self.kind == 1))

    def solve(self, columns: np.ndarray, degree: int, damping: float | None = None) -> Fit:
        """Fit the weights of some columns, and estimate the error on the validation set.

        Without `damping` (and without `rcond` in the options) several dampings are tried. Weakly
        damped weights of opposite sign can cancel to ten digits at the rows but not elsewhere: on
        rare paths the residual is then very large. Among the fits whose score is nearly the best,
        the one with the strongest damping is returned.
        """
        A, b = self.rows.system(columns, degree)
        condition = None
        if 0 in self.kinds and not self.problem.zero_initial:
            # φ_j(0, ·) = u0 for features from u0, zero for the others.
            start = (self.kind[columns] == 0).astype(float)
            condition = np.concatenate([start, np.zeros(degree * len(columns))])
        if self.ctx.device.platform != "cpu" and A.size > _ON_DEVICE:
            A, b = jnp.asarray(A), jnp.asarray(b)
        fixed_rcond = self.options.rcond if damping is None else damping
        if self.options.solver != "qr":
            solved = [least_squares.solve(A, b, self.options.solver, fixed_rcond, 0.0, condition)]
        else:
            system = least_squares.Damped(A, b, condition)
            dampings = DAMPINGS if fixed_rcond is None else (fixed_rcond,)
            damped = (system.fit(rcond) for rcond in dampings)
            solved = [fit for fit in damped if fit is not None] or [
                least_squares.solve(A, b, "svd", None, 0.0, condition)
            ]
        candidates = (self._judge(columns, degree, one, A, b) for one in solved)
        fits = [fit for fit in candidates if np.isfinite(fit.score)]
        if not fits:
            raise NumericalError(
                "residuals are not finite on paths from the region: `source`, or a derivative of "
                "the data, is not finite there. "
                "Smooth the function, or move the region away from its singularity."
            )
        best = min(fit.score for fit in fits)
        return next(fit for fit in reversed(fits) if fit.score <= _NEARLY_BEST * best)

    def _judge(
        self, columns: np.ndarray, degree: int, solved: least_squares.Fit, A: Any, b: Any
    ) -> Fit:
        """Estimate the error of a least-squares solution on the validation set."""
        weights = np.asarray(solved.weights)
        assessment = self.judges.assess(weights, columns, degree, self.rows)
        score = max(assessment.spread, assessment.disagreement)
        if not assessment.excess <= EXCESS:
            score = max(score, assessment.excess)
        return Fit(
            features=len(columns),
            rows=len(self.rows.points[0]),
            degree=degree,
            solved=solved,
            error=max(min(assessment.error, assessment.high), assessment.disagreement),
            trained=root_mean_square(A @ solved.weights - b) / assessment.size,
            judged=assessment.residual,
            score=score,
        )

    def linearise_at(self, fit: Fit | None) -> None:
        """Linearise a source that depends on u at a fit (None: at the mean of the u0 features)."""
        if self.problem.nonlinear is None:
            return
        if fit is None:
            start = self.kind == 0
            weights, degree = np.where(start, 1.0, 0.0) / max(np.sum(start), 1), 0
        else:
            weights, degree = np.asarray(fit.solved.weights), fit.degree
        self.rows.linearise(weights, degree, self.options.iteration == "picard")
        self.judges.table.linearise(weights, degree)
        newton.check(self.rows)

    def repeat_rounds(self, state: GrowthState) -> None:
        """Recompute all entries of an earlier run, without its least-squares solves."""
        for k, growing in enumerate(state.makes):
            self.grow(growing, f"round {k} again")
        self.extend_reference()
        self.linearise_at(state.fit)
        self.iterations = state.iterations

    def iterate(self, fit: Fit) -> Fit:
        """Newton's method or Picard's iteration from a fit, for a source that depends on u."""
        if self.problem.nonlinear is None:
            return fit
        last_fit = fit
        columns = np.arange(fit.features)

        def solve() -> tuple[np.ndarray, float]:
            nonlocal last_fit
            last_fit = self.solve(columns, fit.degree, fit.solved.rcond)
            return np.asarray(last_fit.solved.weights), last_fit.error

        tables = (self.rows, self.judges.table)
        weights, changes = newton.settle(
            tables, np.asarray(fit.solved.weights), fit.degree, solve, self.options.iteration
        )
        self.iterations.append(changes)
        assessment = self.judges.assess(weights, columns, fit.degree)
        return last_fit._replace(
            solved=last_fit.solved._replace(weights=jnp.asarray(weights)),
            error=assessment.error,
            judged=assessment.residual,
            score=assessment.spread,
        )


def grow(
    problem: CanonicalProblem, options: AdaptiveOptions, ctx: ExecutionContext, log: WarningLog
) -> Solution:
    """Adaptive solve by equation rows.

    Rounds are made until the tolerance is met, the estimated error no longer falls, or the budget
    is spent.
    """
    started, clock = time.perf_counter(), PhaseTimer()
    checkpoint = Checkpoint(options, problem, "equation rows")
    stored = checkpoint.find()
    with clock.phase("pilot"):
        data, skipped = equation(problem, options.seed)
        grain = (
            _grain(problem, options, data, ctx, log)
            if stored is None
            else BlockSizes.of(stored[0]["grain"])
        )
        dictionary = Dictionary(problem, options, data, ctx, grain)
    growing = [design.name for design in dictionary.designs]
    ctx.require(dictionary.bytes_needed(growing), "the first round", "")
    state = GrowthState() if stored is None else GrowthState.of(*stored)
    # A final check, which costs time, is made only when the estimated error is below the target.
    target = np.inf if options.tol is None else options.tol
    verdicts: dict[int, Verdict] = {}

    def final_check(fit: Fit) -> Verdict:
        """Result of the final check of a fit; computed once."""
        if fit.features not in verdicts:
            verdicts[fit.features] = _final_verdict(dictionary, fit)
        return verdicts[fit.features]

    def time_limit(growing: list[str]) -> str:
        """Message if a round that doubles these designs would not end in time, else "".

        The cost of assembly is proportional to the entries, that of the solve to the cube of the
        columns.
        """
        features, old_features = dictionary.next_sizes(growing)[0], dictionary.sizes
        growth = sum(features.values()) / sum(old_features.values())
        needed = (
            state.spent["assembly"] * dictionary.count_new_entries(growing) / state.entries
            + state.spent["solve"] * growth**3
        )
        return time_limit_message(needed, time.perf_counter() - started, options.seconds)

    if stored is not None:
        started = min(started, time.perf_counter() - state.history[-1].seconds)
        with clock.phase("assembly"):
            dictionary.repeat_rounds(state)
        clock.add(state.clock)
        log.restore(stored[0]["warnings"])
        target = state.target if options.tol is not None else target
        ctx.progress(Summary(f"goes on after {state.history[-1]}"), 1, 1)
    while True:
        if stored is None:
            _make_round(dictionary, state, growing, clock, started)
            state.target = target
            checkpoint.keep({"grain": grain, "warnings": log.messages, **state.words}, state.arrays)
        stored, best, growing = None, state.best, state.makes[-1]
        assert best is not None
        if best.error <= _RESOLVED:
            reason = "the estimated error is at rounding"
            break
        if state.stalled == 3:
            reason = "three rounds brought no gain"
            break
        if options.tol is not None and best.error <= target:
            with clock.phase("check"):
                if final_check(best).bound <= options.tol:
                    reason = "the tolerance is met"
                    break
            target = best.error / 2  # not met yet: check again when the error has halved
        # Every round doubles at least the first design: stop if even that takes too long.
        if reason := round_limit_message(options, len(state.history)) or time_limit(growing[:1]):
            break
        with clock.phase("choice"):
            growing = _choose(dictionary, best, growing)
        if reason := time_limit(growing):
            break
        if dictionary.bytes_needed(growing) > ctx.memory:
            reason = "the next round would not fit into `memory`"
            log.warn(f"growth ended at {sum(dictionary.counts)} features: {reason}")
            break
    with clock.phase("check"):
        verdict = final_check(best)
    met = None if options.tol is None else bool(verdict.bound <= options.tol)
    best = best._replace(error=verdict.error, judged=verdict.residual)
    ending = StopReason(reason, met, verdict.reasons, verdict.facts)
    if verdict.error > 1 and problem.nonlinear is None:
        best = best._replace(error=np.inf)
        too_large = f"it is larger than the solution itself, {verdict.error:.2g} times"
        ending = ending._replace(unknown=verdict.reasons or (too_large,))
    return _network(
        problem, options, dictionary, best, state.history, clock, skipped, ctx, log, ending
    )


def _make_round(
    dictionary: Dictionary,
    state: GrowthState,
    growing: list[str],
    clock: PhaseTimer,
    started: float,
) -> None:
    """One round: add features and rows, fit for every degree in time, record the best fit."""
    label = f"round {len(state.history)}"
    entries, before = dictionary.count_new_entries(growing), dict(clock.seconds)
    with clock.phase("assembly"):
        dictionary.grow(growing, label)
    with clock.phase("check"):
        dictionary.extend_reference()
    with clock.phase("solve"):
        all_columns = np.arange(len(dictionary.kind))
        dictionary.linearise_at(state.best)
        candidates = (dictionary.solve(all_columns, degree) for degree in dictionary.degrees)
        fit = min(candidates, key=lambda fit: fit.score)
        fit = dictionary.iterate(fit)
    made = Round(
        features=dictionary.counts,
        rows=len(dictionary.rows.points[0]),
        time_degree=fit.degree,
        make=" + ".join(growing),
        estimated_error=fit.error,
        seconds=time.perf_counter() - started,
    )
    dictionary.ctx.progress(Summary(f"{label}: {made}"), 1, 1)
    spent = {
        phase: clock.seconds[phase] - before.get(phase, 0.0) for phase in ("assembly", "solve")
    }
    state.take(fit, made, growing, entries, spent, clock.seconds)
    state.iterations = dictionary.iterations


def _final_verdict(dictionary: Dictionary, fit: Fit) -> Verdict:
    """Final check of a fit on a test set that was not used to choose it.

    The test set has two residuals per feature, and Monte Carlo values. If a few residuals dominate
    the estimate, the check is repeated with four times as many points
    (eight residuals per feature).
    """
    problem, grain, rows = dictionary.problem, dictionary.grain, dictionary.rows
    seed = dictionary.options.seed
    points, samples = grain.last_judges
    samples = max(samples, _FINAL_RESIDUALS * fit.features // points)
    weights, columns = np.asarray(fit.solved.weights), np.arange(fit.features)
    for factor, stream in ((1, "final check"), (4, "final check again")):
        size = (factor * points, samples)
        start_points = _choose_test_points(dictionary, fit, factor * points, stream)
        test_set = ValidationSet(
            problem, rows.data, dictionary.ctx, seed, stream, size, grain.strip, start_points
        )
        check = FinalCheck(test_set)
        test_set.table.add_features(rows.blocks[: fit.features // grain.block], "final check")
        if problem.nonlinear is not None:
            test_set.table.linearise(weights, fit.degree)
        check.reference.extend(fit.features * fit.rows)
        verdict = check.verdict(weights, columns, fit.degree, rows)
        if not verdict.curable:
            break
    if problem.nonlinear is not None and np.isfinite(verdict.error):
        newton.check_tangent(test_set.table, verdict.error, problem)
    return verdict


def _choose_test_points(
    dictionary: Dictionary, fit: Fit, points: int, stream: str
) -> WeightedPoints | None:
    """Points for the final check, with higher density where residuals of single features are large.

    None if the region is one point. An error that is concentrated on a thousandth of the region is
    met by a few of 128 such points, and by none of 128 uniform points.
    """
    problem, grain, rows = dictionary.problem, dictionary.grain, dictionary.rows
    if problem.region.single:
        return None
    rng = streams.generator(dictionary.options.seed, f"{stream}, points")
    affordable = fit.features * fit.rows // (_ENTRIES_PER_CANDIDATE * grain.block)
    candidates = int(np.clip(affordable, 4 * points, 16 * points))
    t, x = sample_points(
        problem.region, problem.horizon, candidates // grain.strip * grain.strip, problem.dim, rng
    )
    density = np.zeros(len(t))
    weight_sizes = np.abs(np.asarray(fit.solved.weights).reshape(fit.degree + 1, -1))
    feature_weights = np.sum(weight_sizes, axis=0)
    for kind in dictionary.kinds:
        of_kind = dictionary.kind[: fit.features] == kind
        # One block stands for all features of its kind.
        block = rows.blocks[int(np.flatnonzero(of_kind)[0]) // grain.block]
        values, residuals = both_rows(
            rows.data, [block], (t, x), dictionary.ctx, "final check", grain.strip
        )
        size = np.hypot(np.asarray(residuals), np.asarray(values) / problem.horizon)
        density += (
            np.sum(feature_weights[of_kind])
            * np.sqrt(np.mean((size / (np.max(size) or 1.0)) ** 2, axis=1))
            * (np.max(size) or 1.0)
        )
    return important_points(t, x, problem.value_scale(t) * density, points, rng)


class StopReason(NamedTuple):
    """How an adaptive solve ended."""

    why: str  # the rule that stopped it
    met: bool | None  # whether the tolerance is met; None without a tolerance
    unknown: tuple[str, ...]  # why nothing is known of the error, if so
    check: dict[str, Any]  # results of the final check


def round_limit_message(options: AdaptiveOptions, made: int) -> str:
    """Message if `max_rounds` rounds were made, else ""."""
    most = options.max_rounds
    return "" if most is None or made < most else f"`max_rounds` = {most} rounds were made"


def time_limit_message(needed: float, elapsed: float, seconds: float) -> str:
    """Message if a round of `needed` seconds would end after the budget, else ""."""
    if elapsed + needed < seconds:
        return ""
    return (
        f"the next round would take about {needed:.2g} s, "
        f"and {elapsed:.2g} of {seconds:g} s are spent"
    )


def _grain(
    problem: CanonicalProblem,
    options: AdaptiveOptions,
    data: Equation,
    ctx: ExecutionContext,
    log: WarningLog,
) -> BlockSizes:
    """Block sizes: smaller than usual if the first round would take more than half of the budget.

    This happens for automatic Laplacians in high dimension: that of a product, for example, costs
    d² operations. The time per entry is measured in a trial.
    """
    is_automatic = any(rung != "closed form" for rung in data.rungs.values())
    if not is_automatic or problem.dim <= 100 or ctx.device.platform != "cpu":
        return BlockSizes()
    trial = Dictionary(problem, options, data, ctx, BlockSizes(block=2, strip=2, judges=(2, 2)))
    trial.grow([options.designs[0].name], "pilot")  # compiles
    rate = _seconds(trial, 2)
    if rate < 2e-3:  # the call may cost more than its entries: measure with more entries
        trial = Dictionary(
            problem, options, data, ctx, BlockSizes(block=16, strip=32, judges=(2, 2))
        )
        trial.grow([options.designs[0].name], "pilot")
        rate = _seconds(trial, 32)
    usual = Dictionary(problem, options, data, ctx, BlockSizes())
    entries = usual.count_new_entries([design.name for design in options.designs])
    if rate * entries < options.seconds / 2:
        return BlockSizes()
    if rate > 2e-3:
        log.warn(
            f"`{problem.data_name}` or `source` with derivatives takes {1e3 * rate:.2g} ms per "
            "feature and point: the solve starts small. "
            "Give the Laplacian in closed form: hn.Function(f, laplacian=g)."
        )
    return _SMALL


def _seconds(dictionary: Dictionary, rows: int) -> float:
    """Measure the seconds per entry, by adding rows."""
    start, old_size = time.perf_counter(), dictionary.rows.values.size
    dictionary.rows.add_points(dictionary._points(0, rows), "pilot")
    return (time.perf_counter() - start) / (dictionary.rows.values.size - old_size)


def _choose(dictionary: Dictionary, fit: Fit, growing: list[str]) -> list[str]:
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
                _error(dictionary, [names.index(name) for name in subset], m, fit)
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


def _error(dictionary: Dictionary, numbers: list[int], size: int, fit: Fit) -> float:
    """Score of the first `size` features of some designs, with the degree and damping of `fit`.

    Only cached entries are used.
    """
    columns = np.flatnonzero(np.isin(dictionary.design, numbers) & (dictionary.rank < size))
    return dictionary.solve(columns, fit.degree, fit.solved.rcond).score


def _network(
    problem: CanonicalProblem,
    options: AdaptiveOptions,
    dictionary: Dictionary,
    fit: Fit,
    history: list[Round],
    clock: PhaseTimer,
    skipped: dict[str, list[str]],
    ctx: ExecutionContext,
    log: WarningLog,
    ending: StopReason,
) -> Solution:
    """The solution of one fit, with its features sorted by kind."""
    size, data = dictionary.grain.block, dictionary.rows.data
    kind, blocks = dictionary.kind[: fit.features], dictionary.rows.blocks[: fit.features // size]
    by_kind = [[b for i, b in enumerate(blocks) if kind[i * size] == k] for k in dictionary.kinds]
    merged = [jax.tree.map(lambda *parts: jnp.concatenate(parts), *group) for group in by_kind]
    order = np.argsort(kind, kind="stable")
    weights = np.asarray(fit.solved.weights).reshape(fit.degree + 1, -1)[:, order].reshape(-1)
    solved = fit.solved
    for note in solved.notes:
        if not is_kind(
            note, ReasonKind.EMPTY_COLUMNS
        ):  # columns of zeros are usual in a dictionary
            log.warn(note)
    facts = {
        "features": (int(np.sum(kind == 0)), int(np.sum(kind == 1))),
        "rows": (fit.rows, 0),
        "time_degree": fit.degree,
        "enforce": "equation",
        "solver": solved.solver,
        "rcond": solved.rcond,
        "rank": solved.rank,
        "condition": solved.condition,
        "ridge": 0.0,
        "residual_train": fit.trained,
        "residual_held_out": fit.judged,
        "laplacian": data.rungs,
        "laplacian_skipped": skipped,
        "iterations": tuple(map(tuple, dictionary.iterations)),
    }
    return network(
        problem, options, ctx, log, clock, history, fit.error, data, merged, weights, ending, facts
    )


def network(
    problem: CanonicalProblem,
    options: AdaptiveOptions,
    ctx: ExecutionContext,
    log: WarningLog,
    clock: PhaseTimer,
    history: list[Round],
    error: float,
    data: Equation,
    blocks: list[Feature],
    weights: np.ndarray,
    ending: StopReason,
    facts: dict[str, Any],
) -> Solution:
    """The `Solution` of an adaptive solve; warns (or raises) if its error is too large.

    `facts` are the stats that depend on the type of the rows.
    """
    if not error <= 0.1 and problem.nonlinear is not None:
        raise NumericalError(
            newton.failure_message(
                f"the error is estimated at {error:.2g} of the solution's size", problem
            )
        )
    if not error <= 0.1:
        why = (
            f"the error is estimated at {error:.2g} of the solution's size"
            if np.isfinite(error)
            else f"the error cannot be estimated ({'; '.join(ending.unknown)})"
        )
        log.warn(
            f"not solved: {why}. Give more `seconds`, or a smaller region or horizon; data that "
            "grow too fast at infinity cannot be met at all."
        )
    elif ending.met is False:
        log.warn(
            f"the tolerance {options.tol:g} was not met: the error is estimated at {error:.2g}. "
            f"Growth ended as {ending.why}; the best fit found is "
            "returned. More `seconds`, a smaller region or a shorter horizon may help."
        )
    stats = {
        "family": options.family.name,
        "design": " + ".join(design.name for design in options.designs),
        "antithetic": options.antithetic,
        "collocation": options.collocation,
        "initial_rows": "exact",
        "initial_weight": None,
        **facts,
        "seconds": MappingProxyType(clock.seconds),
        "peak_bytes": peak_bytes(ctx.device),
        "device": ctx.device.device_kind,
        "seed": options.seed,
        "estimated_error": error,
        "tolerance_met": ending.met,
        "stopped": ending.why,
        "check": MappingProxyType(ending.check),
        "history": tuple(history),
        "warnings": (*problem.warnings, *log.messages),
    }
    return Solution(problem, data, blocks, jnp.asarray(weights), ctx, stats=stats)
