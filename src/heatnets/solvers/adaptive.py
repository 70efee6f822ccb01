"""The default: a dictionary of several designs that grows, with its size and make chosen by estimated errors.

A round doubles the features of the designs that pay and the rows with them; entries already computed are kept. In
each round the weights are solved for several degrees in time and several make-ups of the dictionary, from the same entries, and
judged by the error equation at points of their own. The best fit so far is the answer when the estimate no longer falls,
or when the next round would not fit into the time or the memory.
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
from heatnets._core.execution import ExecutionContext, peak_bytes
from heatnets._core.timing import PhaseTimer
from heatnets.certify.error_equation import WeightedPoints, important_points
from heatnets.features.equation import Equation, equation
from heatnets.features.features import Feature
from heatnets.fit import least_squares, newton
from heatnets.fit.assembly import Points, both_rows
from heatnets.fit.collocation import PLACEMENTS, judged
from heatnets.fit.entry_cache import Table
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

DEGREES = (0, 1, 3)  # of the weights in time
DAMPINGS = (
    1e-14,
    1e-11,
    1e-8,
    1e-6,
    1e-4,
)  # of the least-squares problem, relative to its largest singular value

_ROWS_PER_FEATURE = 8  # two per column at the highest degree
_ON_DEVICE = (
    2**24
)  # entries from which a system is factored on a GPU: below, compiling for its shape takes longer than LAPACK
_NEARLY_BEST = 2.0  # times the best score: noise of the judges
_CANDIDATES, _ENTRIES_PER_CANDIDATE = (
    (1024, 4096),
    128,
)  # points that those of the final check are chosen from; entries that pay for one
_FINAL_RESIDUALS = 2  # per feature, of the final check: a quarter of the rows
_RESOLVED = 1e-11  # an estimated error that no user can tell from rounding: growing stops


_SMALL = BlockSizes(
    4, 64, (16, 7), (48, 2)
)  # a sixteenth of the work: for data whose derivatives take milliseconds


def kinds(problem: CanonicalProblem) -> list[int]:
    """The kinds of features that a problem has any use for: 0 from the initial condition, 1 from the source."""
    return [
        kind
        for kind, used in enumerate(
            (
                not problem.zero_initial or problem.reaction_flow is not None,
                problem.source is not None,
            )
        )
        if used
    ] or [0]


class Dictionary:
    """Features of several designs and two kinds, in blocks; rows to train on and paths to be judged on."""

    def __init__(
        self,
        problem: CanonicalProblem,
        settings: AdaptiveOptions,
        data: Equation,
        ctx: ExecutionContext,
        grain: BlockSizes,
    ) -> None:
        self.problem, self.settings, self.ctx, self.grain = problem, settings, ctx, grain
        self.kinds = kinds(problem)
        self.designs = settings.designs
        self.sizes = dict.fromkeys((d.name for d in self.designs), 0)  # features of each kind
        self.iterations: list[
            list[float]
        ] = []  # for a source that depends on u: what each changed, in each round
        # What each column is: its kind, the number of its design, its place in the design's sequence.
        self.kind, self.design, self.rank = (np.zeros(0, int) for _ in range(3))
        self.rows = Table(problem, data, ctx, self._points(0, grain.strip), grain.strip)
        self.judges = ValidationSet(
            problem, data, ctx, settings.seed, "judges", grain.judges, grain.strip
        )

    def _points(self, first: int, last: int) -> Points:
        """Training points, a strip at a time from a stream of its own: a longer list begins with the shorter one."""
        p, s, strip = self.problem, self.settings, self.grain.strip
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

    def planned(self, growing: list[str]) -> tuple[dict[str, int], int]:
        """Sizes and rows after the next round."""
        sizes = {
            n: (2 * size or self.grain.block) if n in growing else size
            for n, size in self.sizes.items()
        }
        features, strip = sum(sizes.values()) * len(self.kinds), self.grain.strip
        return sizes, -(-_ROWS_PER_FEATURE * features // strip) * strip

    def grow(self, growing: list[str], phase: str) -> None:
        """Double the features of the designs named, and take rows to match."""
        sizes, rows = self.planned(growing)
        new: list[Feature] = []
        for number, design in enumerate(self.designs):
            old, size = self.sizes[design.name], sizes[design.name]
            if size == old:
                continue
            counts = (size if 0 in self.kinds else 0, size if 1 in self.kinds else 0)
            drawn = self.settings.family.draw(
                self.problem, counts, design, self.settings.seed, self.settings.antithetic
            )
            for kind in self.kinds:
                block = self.grain.block
                for start in range(old, size, block):
                    new.append(jax.tree.map(lambda a, i=start: a[i : i + block], drawn[kind]))
                added = size - old
                self.kind = np.append(self.kind, np.full(added, kind))
                self.design = np.append(self.design, np.full(added, number))
                self.rank = np.append(self.rank, np.arange(old, size))
        self.judges.table.add_features(new, phase)
        self.rows.add_features(new, phase)
        have = len(self.rows.points[0])
        if rows > have:
            self.rows.add_points(self._points(have, rows), phase)
        self.sizes = sizes

    def extend_reference(self) -> None:
        """Monte Carlo values at the judges' points, as many samples as are a small part of the work so far."""
        if self.problem.nonlinear is None:
            self.judges.reference.extend(len(self.kind) * len(self.rows.points[0]))

    def entries(self, growing: list[str]) -> int:
        """Entries the next round would compute."""
        sizes, rows = self.planned(growing)
        M, N = len(self.kind), len(self.rows.points[0])
        new = sum(sizes.values()) * len(self.kinds)
        return new * rows - M * N + (new - M) * len(self.judges.table.points[0])

    def bytes(self, growing: list[str]) -> int:
        """Memory the next round would take: both kinds of entries, and the system at the highest degree with its copies."""
        sizes, rows = self.planned(growing)
        columns = sum(sizes.values()) * len(self.kinds)
        full = columns * (1 + max(self.degrees))
        judges = 2 * len(self.judges.table.points[0])
        return 8 * (
            2 * columns * (rows + judges) * 2
            + 4 * (rows + full) * full
            + (rows + columns + judges) * self.problem.dim
        )

    @property
    def degrees(self) -> tuple[int, ...]:
        return DEGREES if self.settings.time_degree is None else (self.settings.time_degree,)

    @property
    def counts(self) -> tuple[int, int]:
        return int(np.sum(self.kind == 0)), int(np.sum(self.kind == 1))

    def solve(self, columns: np.ndarray, degree: int, damping: float | None = None) -> Fit:
        """Weights of some columns, and their error by the error equation; with a damping of its own, or with the one that judges find best.

        Hardly damped weights of opposite sign cancel to ten digits where rows are, and not elsewhere: on rare paths the residual is then enormous.
        Of the fits that are nearly the best the most damped is taken.
        """
        table = self.rows
        A, b = table.system(columns, degree)
        condition = None
        if 0 in self.kinds and not self.problem.zero_initial:
            start = (self.kind[columns] == 0).astype(
                float
            )  # φ_j(0, ·) = u0 for features from u0, zero for the others
            condition = np.concatenate([start, np.zeros(degree * len(columns))])
        if self.ctx.device.platform != "cpu" and A.size > _ON_DEVICE:
            A, b = jnp.asarray(A), jnp.asarray(b)
        asked = self.settings.rcond if damping is None else damping
        if self.settings.solver != "qr":
            solved = [least_squares.solve(A, b, self.settings.solver, asked, 0.0, condition)]
        else:
            system = least_squares.Damped(A, b, condition)
            damped = (system.fit(rcond) for rcond in (DAMPINGS if asked is None else (asked,)))
            solved = [one for one in damped if one is not None] or [
                least_squares.solve(A, b, "svd", None, 0.0, condition)
            ]
        judged = (self._judge(columns, degree, one, A, b) for one in solved)
        fits = [fit for fit in judged if np.isfinite(fit.score)]
        if not fits:
            raise NumericalError(
                "residuals are not finite on paths from the region: `source`, or a derivative of the data, is not finite there. "
                "Smooth the function, or move the region away from its singularity."
            )
        best = min(fit.score for fit in fits)
        return next(fit for fit in reversed(fits) if fit.score <= _NEARLY_BEST * best)

    def _judge(
        self, columns: np.ndarray, degree: int, solved: least_squares.Fit, A: Any, b: Any
    ) -> Fit:
        weights = np.asarray(solved.weights)
        found = self.judges.assess(weights, columns, degree, self.rows)
        trained = root_mean_square(A @ solved.weights - b) / found.size
        error = max(min(found.error, found.high), found.disagreement)
        score = max(found.spread, found.disagreement)
        if not found.excess <= EXCESS:
            score = max(score, found.excess)
        return Fit(
            len(columns),
            len(self.rows.points[0]),
            degree,
            solved,
            error,
            trained,
            found.residual,
            score,
        )

    def begin(self, fit: Fit | None) -> None:
        """Take the tangent of a source that depends on u at the best fit so far, or at the mean of the features from u0."""
        if self.problem.nonlinear is None:
            return
        if fit is None:
            start = self.kind == 0
            weights, degree = np.where(start, 1.0, 0.0) / max(np.sum(start), 1), 0
        else:
            weights, degree = np.asarray(fit.solved.weights), fit.degree
        self.rows.linearise(weights, degree, self.settings.iteration == "picard")
        self.judges.table.linearise(weights, degree)
        newton.check(self.rows)

    def grow_again(self, course: GrowthState) -> None:
        """All rounds of an earlier run, without their solves."""
        for k, growing in enumerate(course.makes):
            self.grow(growing, f"round {k} again")
        self.extend_reference()
        self.begin(course.fit)
        self.iterations = course.iterations

    def settle(self, fit: Fit) -> Fit:
        """The fit that is left as it is by its own tangent, where the source depends on u."""
        if self.problem.nonlinear is None:
            return fit
        found = fit
        columns = np.arange(fit.features)

        def solve() -> tuple[np.ndarray, float]:
            nonlocal found
            found = self.solve(columns, fit.degree, fit.solved.rcond)
            return np.asarray(found.solved.weights), found.error

        tables = (self.rows, self.judges.table)
        weights, changes = newton.settle(
            tables, np.asarray(fit.solved.weights), fit.degree, solve, self.settings.iteration
        )
        self.iterations.append(changes)
        settled = self.judges.assess(weights, columns, fit.degree)
        solved = found.solved._replace(weights=jnp.asarray(weights))
        return found._replace(
            solved=solved, error=settled.error, judged=settled.residual, score=settled.spread
        )


def grow(
    problem: CanonicalProblem, settings: AdaptiveOptions, ctx: ExecutionContext, notes: WarningLog
) -> Solution:
    """Rounds of growth until the estimated error is met, no longer falls, or the budget is spent."""
    started, clock = time.perf_counter(), PhaseTimer()
    checkpoint = Checkpoint(settings, problem, "equation rows")
    kept = checkpoint.find()
    with clock.phase("pilot"):
        data, skipped = equation(problem, settings.seed)
        grain = (
            _grain(problem, settings, data, ctx, notes)
            if kept is None
            else BlockSizes.of(kept[0]["grain"])
        )
        dictionary = Dictionary(problem, settings, data, ctx, grain)
    growing = [d.name for d in dictionary.designs]
    ctx.require(dictionary.bytes(growing), "the first round", "")
    course = GrowthState() if kept is None else GrowthState.of(*kept)
    target = (
        np.inf if settings.tol is None else settings.tol
    )  # an estimate below it is worth a final check
    verdicts: dict[int, Verdict] = {}

    def verdict_on(fit: Fit) -> Verdict:
        """The last word on a fit, by samples of its own."""
        if fit.features not in verdicts:
            verdicts[fit.features] = _final_verdict(dictionary, fit)
        return verdicts[fit.features]

    if kept is not None:
        started = min(started, time.perf_counter() - course.history[-1].seconds)
        with clock.phase("assembly"):
            dictionary.grow_again(course)
        clock.add(course.clock)
        notes.restore(kept[0]["warnings"])
        target = course.target if settings.tol is not None else target
        ctx.progress(f"goes on after {course.history[-1]}", 1, 1)
    while True:
        if kept is None:
            label, entries, before = (
                f"round {len(course.history)}",
                dictionary.entries(growing),
                dict(clock.seconds),
            )
            with clock.phase("assembly"):
                dictionary.grow(growing, label)
            with clock.phase("check"):
                dictionary.extend_reference()
            with clock.phase("solve"):
                everything = np.arange(len(dictionary.kind))
                dictionary.begin(course.best)
                fit = min(
                    (dictionary.solve(everything, k) for k in dictionary.degrees),
                    key=lambda f: f.score,
                )
                fit = dictionary.settle(fit)
            elapsed = time.perf_counter() - started
            made = Round(
                dictionary.counts,
                len(dictionary.rows.points[0]),
                fit.degree,
                " + ".join(growing),
                fit.error,
                elapsed,
            )
            ctx.progress(f"{label}: {made}", 1, 1)
            spent = {
                phase: clock.seconds[phase] - before.get(phase, 0.0)
                for phase in ("assembly", "solve")
            }
            course.take(fit, made, growing, entries, spent, clock.seconds)
            course.iterations, course.target = dictionary.iterations, target
            checkpoint.keep(
                {"grain": grain, "warnings": notes.messages, **course.words}, course.arrays
            )
        kept, best, growing = None, course.best, course.makes[-1]
        assert best is not None
        if best.error <= _RESOLVED:
            why = "the estimated error is at rounding"
            break
        if course.stalled == 3:
            why = "three rounds brought no gain"
            break
        if settings.tol is not None and best.error <= target:
            with clock.phase("check"):
                if verdict_on(best).bound <= settings.tol:
                    why = "the tolerance is met"
                    break
            target = best.error / 2  # not yet: ask again when the error has halved

        def late(make: list[str]) -> str:
            """Words if a round that doubles `make` would not end in time: cost goes with the entries, and with the cube of the columns."""
            growth = sum(dictionary.planned(make)[0].values()) / sum(dictionary.sizes.values())
            needed = (
                course.spent["assembly"] * dictionary.entries(make) / course.entries
                + course.spent["solve"] * growth**3
            )
            return no_time(needed, time.perf_counter() - started, settings.seconds)

        if why := no_rounds(settings, len(course.history)) or late(growing[:1]):
            break
        with clock.phase("choice"):
            growing = _choose(dictionary, best, growing)
        if why := late(growing):
            break
        if dictionary.bytes(growing) > ctx.memory:
            why = "the next round would not fit into `memory`"
            notes.warn(f"growth ended at {sum(dictionary.counts)} features: {why}", 5)
            break
    with clock.phase("check"):
        verdict = verdict_on(best)
    met = None if settings.tol is None else bool(verdict.bound <= settings.tol)
    best = best._replace(error=verdict.error, judged=verdict.residual)
    ending = StopReason(why, met, verdict.reasons, verdict.facts)
    if verdict.error > 1 and problem.nonlinear is None:
        best = best._replace(error=np.inf)
        ending = ending._replace(
            unknown=verdict.reasons
            or (f"it is larger than the solution itself, {verdict.error:.2g} times",)
        )
    return _network(
        problem, settings, dictionary, best, course.history, clock, skipped, ctx, notes, ending
    )


def _final_verdict(dictionary: Dictionary, fit: Fit) -> Verdict:
    """What samples say of a fit that had no part in choosing it: two residuals per feature, or eight where few of two carry the estimate, and Monte Carlo values."""
    problem, grain, rows = dictionary.problem, dictionary.grain, dictionary.rows
    points, samples = grain.last_judges
    samples = max(samples, _FINAL_RESIDUALS * fit.features // points)
    weights, columns = np.asarray(fit.solved.weights), np.arange(fit.features)
    for more, stream in ((1, "final check"), (4, "final check again")):
        size, at = (
            (more * points, samples),
            _suspicious_points(dictionary, fit, more * points, stream),
        )
        seed = dictionary.settings.seed
        check = FinalCheck(
            ValidationSet(problem, rows.data, dictionary.ctx, seed, stream, size, grain.strip, at)
        )
        check.judges.table.add_features(rows.blocks[: fit.features // grain.block], "final check")
        if problem.nonlinear is not None:
            check.judges.table.linearise(weights, fit.degree)
        check.reference.extend(fit.features * fit.rows)
        verdict = check.verdict(weights, columns, fit.degree, rows)
        if not verdict.curable:
            break
    if problem.nonlinear is not None and np.isfinite(verdict.error):
        newton.check_tangent(check.judges.table, verdict.error, problem)
    return verdict


def _suspicious_points(
    dictionary: Dictionary, fit: Fit, points: int, stream: str
) -> WeightedPoints | None:
    """Points to check a fit at, more of them where it may be wrong: where residuals of single features are large. None where the region is one point.

    An error that lives on a thousandth of the region is met by a few of 128 such points, and by none of 128 that are uniform.
    """
    problem, grain, rows = dictionary.problem, dictionary.grain, dictionary.rows
    if problem.region.single:
        return None
    rng = streams.generator(dictionary.settings.seed, f"{stream}, points")
    number = int(
        np.clip(
            fit.features * fit.rows // (_ENTRIES_PER_CANDIDATE * grain.block),
            4 * points,
            16 * points,
        )
    )
    t, x = judged(
        problem.region, problem.horizon, number // grain.strip * grain.strip, problem.dim, rng
    )
    total = np.zeros(len(t))
    each = np.sum(np.abs(np.asarray(fit.solved.weights).reshape(fit.degree + 1, -1)), axis=0)
    for kind in dictionary.kinds:
        own = dictionary.kind[: fit.features] == kind
        block = rows.blocks[int(np.flatnonzero(own)[0]) // grain.block]
        values, residuals = both_rows(
            rows.data, [block], (t, x), dictionary.ctx, "final check", grain.strip
        )
        size = np.hypot(np.asarray(residuals), np.asarray(values) / problem.horizon)
        total += (
            np.sum(each[own])
            * np.sqrt(np.mean((size / (np.max(size) or 1.0)) ** 2, axis=1))
            * (np.max(size) or 1.0)
        )
    return important_points(t, x, problem.value_scale(t) * total, points, rng)


class StopReason(NamedTuple):
    """Why a growth ended; whether its tolerance is met (None where none was asked for); why nothing is known of its error, where that is so."""

    why: str
    met: bool | None
    unknown: tuple[str, ...]
    check: dict[str, Any]  # what the last word was based on


def no_rounds(settings: AdaptiveOptions, made: int) -> str:
    """Words if as many rounds were made as the user allows."""
    most = settings.max_rounds
    return "" if most is None or made < most else f"`max_rounds` = {most} rounds were made"


def no_time(needed: float, elapsed: float, seconds: float) -> str:
    """Words if the next round, `needed` seconds long, would end after the budget; none if it fits."""
    if elapsed + needed < seconds:
        return ""
    return f"the next round would take about {needed:.2g} s, and {elapsed:.2g} of {seconds:g} s are spent"


def _grain(
    problem: CanonicalProblem,
    settings: AdaptiveOptions,
    data: Equation,
    ctx: ExecutionContext,
    notes: WarningLog,
) -> BlockSizes:
    """Smaller pieces where the first round would otherwise take longer than all the time there is.

    That is for Laplacians that are not given, in high dimension: those of products, say, cost d² operations.
    """
    automatic = any(rung != "closed form" for rung in data.rungs.values())
    if not automatic or problem.dim <= 100 or ctx.device.platform != "cpu":
        return BlockSizes()
    trial = Dictionary(problem, settings, data, ctx, BlockSizes(block=2, strip=2, judges=(2, 2)))
    trial.grow([settings.designs[0].name], "pilot")  # compiles
    rate = _seconds(trial, 2)
    if rate < 2e-3:  # a call may cost more than its entries: time more of them
        trial = Dictionary(
            problem, settings, data, ctx, BlockSizes(block=16, strip=32, judges=(2, 2))
        )
        trial.grow([settings.designs[0].name], "pilot")
        rate = _seconds(trial, 32)
    usual = Dictionary(problem, settings, data, ctx, BlockSizes()).entries(
        [d.name for d in settings.designs]
    )
    if rate * usual < settings.seconds / 2:
        return BlockSizes()
    if rate > 2e-3:
        notes.warn(
            f"`{problem.data_name}` or `source` with derivatives takes {1e3 * rate:.2g} ms per feature and point: the solve starts small. "
            "Give the Laplacian in closed form: hn.Function(f, laplacian=g).",
            stacklevel=6,
        )
    return _SMALL


def _seconds(dictionary: Dictionary, rows: int) -> float:
    """Seconds per entry of one more strip."""
    start, known = time.perf_counter(), dictionary.rows.values.size
    dictionary.rows.add_points(dictionary._points(0, rows), "pilot")
    return (time.perf_counter() - start) / (dictionary.rows.values.size - known)


def _choose(dictionary: Dictionary, fit: Fit, growing: list[str]) -> list[str]:
    """The designs to double next: all that grew so far, unless some add nothing where others converge.

    Small dictionaries rank designs wrongly (neighbour products prefer Gaussian directions at 64 pairs; at 512 the union is better by
    orders of magnitude). A design is dropped only if at the last two sizes the others alone are as good as all together, if their
    error is at least halved from one size to the next, and if extrapolated to the same number of features they promise half the error.
    """
    names = [d.name for d in dictionary.designs]
    size = dictionary.sizes[names[0]]
    if len(growing) == 1 or size < 32:
        return growing
    others = [n for n in growing if n != names[0]]
    makes = [
        growing,
        *([n for n in growing if n != left] for left in others if len(others) > 1),
        names[:1],
    ]
    errors = np.array(
        [
            [_error(dictionary, [names.index(n) for n in make], m, fit) for m in (size // 2, size)]
            for make in makes
        ]
    )
    if not np.all(errors > 0):
        return growing
    slopes = np.clip(np.log2(errors[:, 0] / errors[:, 1]), 0, 8)
    promised = (
        errors[:, 1] * (np.array([len(make) for make in makes]) / (2 * len(growing))) ** slopes
    )
    as_good = np.all(errors < 1.25 * errors[0], axis=1)
    worth = as_good & (slopes >= 1) & (2 * promised < promised[0])
    return makes[int(np.argmin(np.where(worth, promised, np.inf)))] if np.any(worth) else growing


def _error(dictionary: Dictionary, numbers: list[int], size: int, fit: Fit) -> float:
    """The score of the first `size` features of some designs alone, fitted like `fit`, from the entries that are there."""
    columns = np.flatnonzero(np.isin(dictionary.design, numbers) & (dictionary.rank < size))
    return dictionary.solve(columns, fit.degree, fit.solved.rcond).score


def _network(
    problem: CanonicalProblem,
    settings: AdaptiveOptions,
    dictionary: Dictionary,
    fit: Fit,
    history: list[Round],
    clock: PhaseTimer,
    skipped: dict[str, list[str]],
    ctx: ExecutionContext,
    notes: WarningLog,
    ending: StopReason,
) -> Solution:
    """The network of one fit, its features sorted by kind."""
    block = dictionary.grain.block
    kind, blocks = dictionary.kind[: fit.features], dictionary.rows.blocks[: fit.features // block]
    by_kind = [[b for i, b in enumerate(blocks) if kind[i * block] == k] for k in dictionary.kinds]
    whole = [jax.tree.map(lambda *parts: jnp.concatenate(parts), *some) for some in by_kind]
    weights = np.asarray(fit.solved.weights).reshape(fit.degree + 1, -1)[
        :, np.argsort(kind, kind="stable")
    ]
    solved = fit.solved
    for note in solved.notes:
        if "left out" not in note:  # columns of zeros are no news in a dictionary
            notes.warn(note, 6)
    return network(problem, settings, ctx, notes, clock, history, fit.error, dictionary.rows.data, whole, weights.reshape(-1), ending, {
        "features": (int(np.sum(kind == 0)), int(np.sum(kind == 1))), "rows": (fit.rows, 0), "time_degree": fit.degree, "enforce": "equation",
        "solver": solved.solver, "rcond": solved.rcond, "rank": solved.rank, "condition": solved.condition, "ridge": 0.0,
        "residual_train": fit.trained, "residual_held_out": fit.judged,
        "laplacian": dictionary.rows.data.rungs, "laplacian_skipped": skipped, "iterations": tuple(map(tuple, dictionary.iterations)),
    })  # fmt: skip


def network(
    problem: CanonicalProblem,
    settings: AdaptiveOptions,
    ctx: ExecutionContext,
    notes: WarningLog,
    clock: PhaseTimer,
    history: list[Round],
    error: float,
    data: Equation,
    blocks: list[Feature],
    weights: np.ndarray,
    ending: StopReason,
    facts: dict[str, Any],
) -> Solution:
    """What a growth ended with, as a `Solution`; `facts` are the stats that depend on how its weights were found."""
    if not error <= 0.1 and problem.nonlinear is not None:
        raise NumericalError(
            newton.unsolved(
                f"the error is estimated at {error:.2g} of the solution's size", problem
            )
        )
    if not error <= 0.1:
        known = f"the error is estimated at {error:.2g} of the solution's size"
        why = (
            known
            if np.isfinite(error)
            else f"the error cannot be estimated ({'; '.join(ending.unknown)})"
        )
        notes.warn(
            f"not solved: {why}. Give more `seconds`, or a smaller region or horizon; data that grow too fast at infinity cannot be met at all.",
            stacklevel=7 if facts["enforce"] == "equation" else 6,  # the caller's line
        )
    elif ending.met is False:
        notes.warn(
            f"the tolerance {settings.tol:g} was not met: the error is estimated at {error:.2g}. Growth ended as {ending.why}; the best fit found is "
            "returned. More `seconds`, a smaller region or a shorter horizon may help.",
            stacklevel=7 if facts["enforce"] == "equation" else 6,
        )
    return Solution(problem, data, blocks, jnp.asarray(weights), ctx, stats={
        "family": settings.family.name, "design": " + ".join(d.name for d in settings.designs), "antithetic": settings.antithetic,
        "collocation": settings.collocation, "initial_rows": "exact", "initial_weight": None, **facts,
        "seconds": MappingProxyType(clock.seconds), "peak_bytes": peak_bytes(ctx.device), "device": ctx.device.device_kind, "seed": settings.seed,
        "estimated_error": error, "tolerance_met": ending.met, "stopped": ending.why, "check": MappingProxyType(ending.check), "history": tuple(history), "warnings": (*problem.warnings, *notes.messages),
    })  # fmt: skip
