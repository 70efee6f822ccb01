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

from heatnets import least_squares, newton, streams
from heatnets.assembly import Points
from heatnets.checkpoints import Checkpoint
from heatnets.clock import Clock
from heatnets.collocation import PLACEMENTS
from heatnets.errors import Notes, NumericalError
from heatnets.features import Feature
from heatnets.judges import Grain, Judges, root_mean_square
from heatnets.operators import Equation, equation
from heatnets.problem import Problem
from heatnets.rounds import Course, Fit, Round
from heatnets.settings import Growth
from heatnets.solution import Solution
from heatnets.tables import Table
from heatnets.tiles import Workshop, peak_bytes

DEGREES = (0, 1, 3)  # of the weights in time

_ROWS_PER_FEATURE = 8  # two per column at the highest degree
_ON_DEVICE = 2**24  # entries from which a system is factored on a GPU: below, compiling for its shape takes longer than LAPACK
_RESOLVED = 1e-11  # an estimated error that no user can tell from rounding: growing stops


_SMALL = Grain(4, 64, (16, 7), (32, 3))  # a sixteenth of the work: for data whose derivatives take milliseconds


def kinds(problem: Problem) -> list[int]:
    """The kinds of features that a problem has any use for: 0 from the initial condition, 1 from the source."""
    return [
        kind
        for kind, used in enumerate((not problem.starts_at_zero or problem.reacted is not None, problem.source is not None))
        if used
    ] or [0]


class Dictionary:
    """Features of several designs and two kinds, in blocks; rows to train on and paths to be judged on."""

    def __init__(self, problem: Problem, settings: Growth, data: Equation, shop: Workshop, grain: Grain) -> None:
        self.problem, self.settings, self.shop, self.grain = problem, settings, shop, grain
        self.kinds = kinds(problem)
        self.designs = settings.designs
        self.sizes = dict.fromkeys((d.name for d in self.designs), 0)  # features of each kind
        self.iterations: list[list[float]] = []  # for a source that depends on u: what each changed, in each round
        # What each column is: its kind, the number of its design, its place in the design's sequence.
        self.kind, self.design, self.rank = (np.zeros(0, int) for _ in range(3))
        self.rows = Table(problem, data, shop, self._points(0, grain.strip), grain.strip)
        self.judges = Judges(problem, data, shop, settings.seed, "judges", grain.judges, grain.strip)

    def _points(self, first: int, last: int) -> Points:
        """Training points, a strip at a time from a stream of its own: a longer list begins with the shorter one."""
        p, s, strip = self.problem, self.settings, self.grain.strip
        place = PLACEMENTS[s.collocation]
        generators = [streams.generator(s.seed, f"rows {i}") for i in range(first // strip, last // strip)]
        pieces = [place(s.train_region, p.horizon, strip, p.dim, rng, p.walk, p.nonlinear is not None) for rng in generators]
        t, x = zip(*pieces, strict=True)
        return np.concatenate(t), np.concatenate(x)

    def planned(self, growing: list[str]) -> tuple[dict[str, int], int]:
        """Sizes and rows after the next round."""
        sizes = {n: (2 * size or self.grain.block) if n in growing else size for n, size in self.sizes.items()}
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
            drawn = self.settings.family.draw(self.problem, counts, design, self.settings.seed, self.settings.antithetic)
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
        return 8 * (2 * columns * (rows + judges) * 2 + 4 * (rows + full) * full + (rows + columns + judges) * self.problem.dim)

    @property
    def degrees(self) -> tuple[int, ...]:
        return DEGREES if self.settings.time_degree is None else (self.settings.time_degree,)

    @property
    def counts(self) -> tuple[int, int]:
        return int(np.sum(self.kind == 0)), int(np.sum(self.kind == 1))

    def solve(self, columns: np.ndarray, degree: int) -> Fit:
        """Weights of some columns, and their error by the error equation."""
        table = self.rows
        A, b = table.system(columns, degree)
        condition = None
        if 0 in self.kinds and not self.problem.starts_at_zero:
            start = (self.kind[columns] == 0).astype(float)  # φ_j(0, ·) = u0 for features from u0, zero for the others
            condition = np.concatenate([start, np.zeros(degree * len(columns))])
        if self.shop.device.platform != "cpu" and A.size > _ON_DEVICE:
            A, b = jnp.asarray(A), jnp.asarray(b)
        solved = least_squares.solve(A, b, self.settings.solver, self.settings.rcond, 0.0, condition)
        weights = np.asarray(solved.weights)
        error, judged, size = self.judges.error(weights, columns, degree)
        trained = root_mean_square(A @ solved.weights - b) / size
        return Fit(len(columns), len(table.points[0]), degree, solved, error, trained, judged)

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

    def grow_again(self, course: Course) -> None:
        """All rounds of an earlier run, without their solves."""
        for k, growing in enumerate(course.makes):
            self.grow(growing, f"round {k} again")
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
            found = self.solve(columns, fit.degree)
            return np.asarray(found.solved.weights), found.error

        tables = (self.rows, self.judges.table)
        weights, changes = newton.settle(tables, np.asarray(fit.solved.weights), fit.degree, solve, self.settings.iteration)
        self.iterations.append(changes)
        error, judged, _ = self.judges.error(weights, columns, fit.degree)
        return found._replace(solved=found.solved._replace(weights=jnp.asarray(weights)), error=error, judged=judged)


def grow(problem: Problem, settings: Growth, shop: Workshop, notes: Notes) -> Solution:
    """Rounds of growth until the estimated error is met, no longer falls, or the budget is spent."""
    started, clock = time.perf_counter(), Clock()
    checkpoint = Checkpoint(settings, problem, "equation rows")
    kept = checkpoint.find()
    with clock.phase("pilot"):
        data, skipped = equation(problem, settings.seed)
        grain = _grain(problem, settings, data, shop, notes) if kept is None else Grain.of(kept[0]["grain"])
        dictionary = Dictionary(problem, settings, data, shop, grain)
    growing = [d.name for d in dictionary.designs]
    shop.require(dictionary.bytes(growing), "the first round", "")
    course = Course() if kept is None else Course.of(*kept)
    referee = None if settings.tol is None else Referee(problem, data, shop, settings, grain)
    if kept is not None:
        started = min(started, time.perf_counter() - course.history[-1].seconds)
        with clock.phase("assembly"):
            dictionary.grow_again(course)
        clock.add(course.clock)
        notes.recall(kept[0]["warnings"])
        if referee is not None:
            referee.restore(course.referee)
        shop.progress(f"goes on after {course.history[-1]}", 1, 1)
    while True:
        if kept is None:
            label, entries, before = f"round {len(course.history)}", dictionary.entries(growing), dict(clock.seconds)
            with clock.phase("assembly"):
                dictionary.grow(growing, label)
            with clock.phase("solve"):
                everything = np.arange(len(dictionary.kind))
                dictionary.begin(course.best)
                fit = min((dictionary.solve(everything, k) for k in dictionary.degrees), key=lambda f: f.error)
                fit = dictionary.settle(fit)
            elapsed = time.perf_counter() - started
            made = Round(dictionary.counts, len(dictionary.rows.points[0]), fit.degree, " + ".join(growing), fit.error, elapsed)
            shop.progress(f"{label}: {made}", 1, 1)
            spent = {phase: clock.seconds[phase] - before.get(phase, 0.0) for phase in ("assembly", "solve")}
            course.take(fit, made, growing, entries, spent, clock.seconds)
            course.iterations, course.referee = dictionary.iterations, referee and [referee.target, *referee.known]
            checkpoint.keep({"grain": grain, "warnings": notes.texts, **course.words}, course.arrays)
        kept, best, growing = None, course.best, course.makes[-1]
        assert best is not None
        if best.error <= _RESOLVED:
            why = "the estimated error is at rounding"
            break
        if course.stalled == 3:
            why = "three rounds brought no gain"
            break
        if referee is not None and best.error <= referee.target:
            with clock.phase("check"):
                if referee.met(dictionary, best):
                    why = "the tolerance is met"
                    break

        def late(make: list[str]) -> str:
            """Words if a round that doubles `make` would not end in time: cost goes with the entries, and with the cube of the columns."""
            growth = sum(dictionary.planned(make)[0].values()) / sum(dictionary.sizes.values())
            needed = course.spent["assembly"] * dictionary.entries(make) / course.entries + course.spent["solve"] * growth**3
            return no_time(needed, time.perf_counter() - started, settings.seconds)

        if why := late(growing[:1]):
            break
        with clock.phase("choice"):
            growing = _choose(dictionary, best.degree, growing)
        if why := late(growing):
            break
        if dictionary.bytes(growing) > shop.memory:
            why = "the next round would not fit into `memory`"
            notes.warn(f"growth ended at {sum(dictionary.counts)} features: {why}", 5)
            break
    with clock.phase("check"):
        # The judges chose the best of many fits, so that their verdict on it flatters: others have the last word.
        others = Judges(problem, data, shop, settings.seed, "last judges", grain.last_judges, grain.strip)
        others.table.add_features(dictionary.rows.blocks[: best.features // grain.block], "last judges")
        if problem.nonlinear is not None:
            others.table.linearise(np.asarray(best.solved.weights), best.degree)
        error, judged, _ = others.error(np.asarray(best.solved.weights), np.arange(best.features), best.degree)
        if problem.nonlinear is not None:
            newton.check_tangent(others.table, error, problem)
        best = best._replace(error=error, judged=judged)
        met = None if referee is None else referee.met(dictionary, best)
    return _network(problem, settings, dictionary, best, course.history, clock, skipped, shop, notes, Ending(why, met))


class Ending(NamedTuple):
    """Why a growth ended, and whether its tolerance is met (None where none was asked for)."""

    why: str
    met: bool | None


def no_time(needed: float, elapsed: float, seconds: float) -> str:
    """Words if the next round, `needed` seconds long, would end after the budget; none if it fits."""
    if elapsed + needed < seconds:
        return ""
    return f"the next round would take about {needed:.2g} s, and {elapsed:.2g} of {seconds:g} s are spent"


class Referee:
    """Whether a tolerance is met, by judges that have no other part: a growth asks them when its own estimate is below `target`."""

    def __init__(self, problem: Problem, data: Equation, shop: Workshop, settings: Growth, grain: Grain) -> None:
        assert settings.tol is not None
        self.tol, self.target, self.grain = settings.tol, settings.tol, grain
        points, samples = grain.last_judges
        self.judges = Judges(problem, data, shop, settings.seed, "referee", (2 * points, samples + 1), grain.strip)
        self.known: tuple[int, bool] = (0, False)

    def restore(self, kept: Any) -> None:
        """As it was after the last round of an earlier run."""
        self.target, *known = kept
        self.known = known[0], known[1]

    def met(self, dictionary: Dictionary, fit: Fit) -> bool:
        if self.known[0] != fit.features:
            have = len(self.judges.table.blocks)
            self.judges.table.add_features(dictionary.rows.blocks[have : fit.features // self.grain.block], "referee")
            if dictionary.problem.nonlinear is not None:
                self.judges.table.linearise(np.asarray(fit.solved.weights), fit.degree)
            bound = self.judges.bound(np.asarray(fit.solved.weights), np.arange(fit.features), fit.degree)
            self.target = min(self.target, fit.error / 2)  # not yet: ask again when the error has halved
            self.known = fit.features, bound <= self.tol
        return self.known[1]


def _grain(problem: Problem, settings: Growth, data: Equation, shop: Workshop, notes: Notes) -> Grain:
    """Smaller pieces where the first round would otherwise take longer than all the time there is.

    That is for Laplacians that are not given, in high dimension: those of products, say, cost d² operations.
    """
    automatic = any(rung != "closed form" for rung in data.rungs.values())
    if not automatic or problem.dim <= 100 or shop.device.platform != "cpu":
        return Grain()
    trial = Dictionary(problem, settings, data, shop, Grain(block=2, strip=2, judges=(2, 2)))
    trial.grow([settings.designs[0].name], "pilot")  # compiles
    rate = _seconds(trial, 2)
    if rate < 2e-3:  # a call may cost more than its entries: time more of them
        trial = Dictionary(problem, settings, data, shop, Grain(block=16, strip=32, judges=(2, 2)))
        trial.grow([settings.designs[0].name], "pilot")
        rate = _seconds(trial, 32)
    usual = Dictionary(problem, settings, data, shop, Grain()).entries([d.name for d in settings.designs])
    if rate * usual < settings.seconds / 2:
        return Grain()
    if rate > 2e-3:
        notes.warn(
            f"`{problem.given}` or `source` with derivatives takes {1e3 * rate:.2g} ms per feature and point: the solve starts small. "
            "Give the Laplacian in closed form: hn.Function(f, laplacian=g).",
            stacklevel=6,
        )
    return _SMALL


def _seconds(dictionary: Dictionary, rows: int) -> float:
    """Seconds per entry of one more strip."""
    start, known = time.perf_counter(), dictionary.rows.values.size
    dictionary.rows.add_points(dictionary._points(0, rows), "pilot")
    return (time.perf_counter() - start) / (dictionary.rows.values.size - known)


def _choose(dictionary: Dictionary, degree: int, growing: list[str]) -> list[str]:
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
    makes = [growing, *([n for n in growing if n != left] for left in others if len(others) > 1), names[:1]]
    errors = np.array(
        [[_error(dictionary, [names.index(n) for n in make], m, degree) for m in (size // 2, size)] for make in makes]
    )
    if not np.all(errors > 0):
        return growing
    slopes = np.clip(np.log2(errors[:, 0] / errors[:, 1]), 0, 8)
    promised = errors[:, 1] * (np.array([len(make) for make in makes]) / (2 * len(growing))) ** slopes
    as_good = np.all(errors < 1.25 * errors[0], axis=1)
    worth = as_good & (slopes >= 1) & (2 * promised < promised[0])
    return makes[int(np.argmin(np.where(worth, promised, np.inf)))] if np.any(worth) else growing


def _error(dictionary: Dictionary, numbers: list[int], size: int, degree: int) -> float:
    """The error of the first `size` features of some designs alone, from the entries that are there."""
    columns = np.flatnonzero(np.isin(dictionary.design, numbers) & (dictionary.rank < size))
    return dictionary.solve(columns, degree).error


def _network(
    problem: Problem,
    settings: Growth,
    dictionary: Dictionary,
    fit: Fit,
    history: list[Round],
    clock: Clock,
    skipped: dict[str, list[str]],
    shop: Workshop,
    notes: Notes,
    ending: Ending,
) -> Solution:
    """The network of one fit, its features sorted by kind."""
    block = dictionary.grain.block
    kind, blocks = dictionary.kind[: fit.features], dictionary.rows.blocks[: fit.features // block]
    by_kind = [[b for i, b in enumerate(blocks) if kind[i * block] == k] for k in dictionary.kinds]
    whole = [jax.tree.map(lambda *parts: jnp.concatenate(parts), *some) for some in by_kind]
    weights = np.asarray(fit.solved.weights).reshape(fit.degree + 1, -1)[:, np.argsort(kind, kind="stable")]
    solved = fit.solved
    for note in solved.notes:
        if "left out" not in note:  # columns of zeros are no news in a dictionary
            notes.warn(note, 6)
    return network(problem, settings, shop, notes, clock, history, fit.error, dictionary.rows.data, whole, weights.reshape(-1), ending, {
        "features": (int(np.sum(kind == 0)), int(np.sum(kind == 1))), "rows": (fit.rows, 0), "time_degree": fit.degree, "enforce": "equation",
        "solver": solved.solver, "rcond": solved.rcond, "rank": solved.rank, "condition": solved.condition, "ridge": 0.0,
        "residual_train": fit.trained, "residual_held_out": fit.judged,
        "laplacian": dictionary.rows.data.rungs, "laplacian_skipped": skipped, "iterations": tuple(map(tuple, dictionary.iterations)),
    })  # fmt: skip


def network(
    problem: Problem,
    settings: Growth,
    shop: Workshop,
    notes: Notes,
    clock: Clock,
    history: list[Round],
    error: float,
    data: Equation,
    blocks: list[Feature],
    weights: np.ndarray,
    ending: Ending,
    facts: dict[str, Any],
) -> Solution:
    """What a growth ended with, as a `Solution`; `facts` are the stats that depend on how its weights were found."""
    if not error <= 0.1 and problem.nonlinear is not None:
        raise NumericalError(newton.unsolved(f"the error is estimated at {error:.2g} of the solution's size", problem))
    if error > 0.1:
        notes.warn(
            f"not solved: the error is estimated at {error:.2g} of the solution's size. Give more `seconds`, or a smaller region or "
            "horizon; data that grow too fast at infinity cannot be met at all.",
            stacklevel=7 if facts["enforce"] == "equation" else 6,  # the caller's line
        )
    elif ending.met is False:
        notes.warn(
            f"the tolerance {settings.tol:g} was not met: the error is estimated at {error:.2g}. Growth ended as {ending.why}; the best fit found is "
            "returned. More `seconds`, a smaller region or a shorter horizon may help.",
            stacklevel=7 if facts["enforce"] == "equation" else 6,
        )
    return Solution(problem, data, blocks, jnp.asarray(weights), shop, stats={
        "family": settings.family.name, "design": " + ".join(d.name for d in settings.designs), "antithetic": settings.antithetic,
        "collocation": settings.collocation, "initial_rows": "exact", "initial_weight": None, **facts,
        "seconds": MappingProxyType(clock.seconds), "peak_bytes": peak_bytes(shop.device), "device": shop.device.device_kind, "seed": settings.seed,
        "estimated_error": error, "tolerance_met": ending.met, "stopped": ending.why, "history": tuple(history), "warnings": (*problem.warnings, *notes.texts),
    })  # fmt: skip
