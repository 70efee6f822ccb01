"""The default: a dictionary of several designs that grows, with its size and make chosen by estimated errors.

A round doubles the features of the designs that pay and the rows with them; entries already computed are kept. In
each round the weights are solved for several degrees in time and several make-ups of the dictionary, from the same entries, and
judged by the error equation at points of their own. The best fit so far is the answer when the estimate no longer falls,
or when the next round would not fit into the time or the memory.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from heatnets import certificate, least_squares, streams
from heatnets.assembly import Points, both_rows, forcing, residual_columns, value_columns
from heatnets.clock import Clock
from heatnets.collocation import PLACEMENTS
from heatnets.errors import Notes
from heatnets.features import Feature
from heatnets.operators import Equation, equation
from heatnets.precision import EPS
from heatnets.problem import Problem
from heatnets.settings import Growth
from heatnets.solution import Solution
from heatnets.tiles import Workshop, peak_bytes

DEGREES = (0, 1, 3)  # of the weights in time

_BLOCK, _STRIP = 16, 256  # features and rows per compiled call
_ROWS_PER_FEATURE = 8  # two per column at the highest degree
_JUDGES, _SAMPLES = 64, 7  # points at which errors are estimated, and samples on paths from each
_RESOLVED = 1e-11  # an estimated error that no user can tell from rounding: growing stops
_STALLED = 0.8  # a round that leaves more than this part of the error, twice in a row, ends the growth


class Round(NamedTuple):
    """One round of the growth, as kept in `stats["history"]`."""

    features: tuple[int, int]
    rows: int
    time_degree: int
    make: str  # which designs grew into this round
    estimated_error: float
    seconds: float  # since the start

    def __str__(self) -> str:
        return (
            f"{self.features[0]} + {self.features[1]} features ({self.make}), {self.rows} rows, degree {self.time_degree} in time: "
            f"estimated error {self.estimated_error:.1e}, {self.seconds:.1f} s"
        )


class Fit(NamedTuple):
    """Weights of some columns of the dictionary, and the error they are estimated to leave."""

    columns: np.ndarray  # of the dictionary
    degree: int
    solved: least_squares.Fit
    error: float  # relative, on the safe side
    misfit: float  # of the judges' rows, relative


@dataclass
class Table:
    """φ and (∂_t - DΔ) φ of a growing list of features at a growing list of points: nothing is computed twice."""

    data: Equation
    shop: Workshop
    points: Points
    blocks: list[Feature] = field(default_factory=list)
    values: Any = None
    residuals: Any = None
    forcing: Any = None

    def __post_init__(self) -> None:
        self.values = self.residuals = self._xp.zeros((len(self.points[0]), 0))
        self.forcing = self._xp.asarray(forcing(self.data, self.points, self.shop))

    @property
    def _xp(self) -> Any:
        """NumPy on a CPU: linear algebra there compiles nothing, and shapes change in every round."""
        return np if self.shop.device.platform == "cpu" else jnp

    def _entries(self, blocks: list[Feature], points: Points, phase: str) -> tuple[Any, ...]:
        return tuple(self._xp.asarray(e) for e in both_rows(self.data, blocks, points, self.shop, phase, _STRIP))

    def add_features(self, blocks: list[Feature], phase: str) -> None:
        new = self._entries(blocks, self.points, phase)
        old = (self.values, self.residuals)
        self.values, self.residuals = (self._xp.concatenate(p, axis=1) for p in zip(old, new, strict=True))
        self.blocks = self.blocks + blocks

    def add_points(self, points: Points, phase: str) -> None:
        new = (*self._entries(self.blocks, points, phase), self._xp.asarray(forcing(self.data, points, self.shop)))
        old = (self.values, self.residuals, self.forcing)
        self.values, self.residuals, self.forcing = (self._xp.concatenate(p) for p in zip(old, new, strict=True))
        self.points = (np.concatenate([self.points[0], points[0]]), np.concatenate([self.points[1], points[1]]))


class Dictionary:
    """Features of several designs and two kinds, in blocks; rows to train on and paths to be judged on."""

    def __init__(self, problem: Problem, settings: Growth, data: Equation, shop: Workshop) -> None:
        self.problem, self.settings, self.shop = problem, settings, shop
        self.kinds = [k for k, used in enumerate((not problem.starts_at_zero, problem.source is not None)) if used] or [0]
        self.designs = settings.designs
        self.sizes = dict.fromkeys((d.name for d in self.designs), 0)  # features of each kind
        # What each column is: its kind, the number of its design, its place in the design's sequence.
        self.kind, self.design, self.rank = (np.zeros(0, int) for _ in range(3))
        self.rows = Table(data, shop, self._points(0, _STRIP))
        self.paths = certificate.paths(problem, _JUDGES, _SAMPLES, settings.seed, "judges")
        s, y = self.paths.s.reshape(-1), self.paths.y.reshape(-1, problem.dim)
        self.judges = Table(data, shop, (np.concatenate([s, self.paths.t]), np.concatenate([y, self.paths.x])))

    def _points(self, first: int, last: int) -> Points:
        """Training points, a strip at a time from a stream of its own: a longer list begins with the shorter one."""
        p, s = self.problem, self.settings
        pieces = [
            PLACEMENTS[s.collocation](
                s.train_region, p.horizon, _STRIP, p.dim, streams.generator(s.seed, f"rows {i}"), p.diffusion
            )
            for i in range(first // _STRIP, last // _STRIP)
        ]
        t, x = zip(*pieces, strict=True)
        return np.concatenate(t), np.concatenate(x)

    def planned(self, growing: list[str]) -> tuple[dict[str, int], int]:
        """Sizes and rows after the next round."""
        sizes = {n: (2 * size or _BLOCK) if n in growing else size for n, size in self.sizes.items()}
        features = sum(sizes.values()) * len(self.kinds)
        return sizes, max(_STRIP, -(-_ROWS_PER_FEATURE * features // _STRIP) * _STRIP)

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
                for start in range(old, size, _BLOCK):
                    new.append(jax.tree.map(lambda a, i=start: a[i : i + _BLOCK], drawn[kind]))
                added = size - old
                self.kind = np.append(self.kind, np.full(added, kind))
                self.design = np.append(self.design, np.full(added, number))
                self.rank = np.append(self.rank, np.arange(old, size))
        self.judges.add_features(new, phase)
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
        return new * rows - M * N + (new - M) * len(self.judges.points[0])

    def bytes(self, growing: list[str]) -> int:
        """Memory the next round would take: both kinds of entries, and the system at the highest degree with its copies."""
        sizes, rows = self.planned(growing)
        columns = sum(sizes.values()) * len(self.kinds)
        full = columns * (1 + max(self.degrees))
        return 8 * (2 * columns * rows * 2 + 4 * (rows + full) * full + (rows + columns) * self.problem.dim)

    @property
    def degrees(self) -> tuple[int, ...]:
        return DEGREES if self.settings.time_degree is None else (self.settings.time_degree,)

    @property
    def counts(self) -> tuple[int, int]:
        return int(np.sum(self.kind == 0)), int(np.sum(self.kind == 1))

    def solve(self, columns: np.ndarray, degree: int) -> Fit:
        """Weights of some columns, and their error by the error equation."""
        table, judges = self.rows, self.judges
        A = residual_columns(table.values[:, columns], table.residuals[:, columns], table.points[0], degree)
        condition = None
        if 0 in self.kinds:
            start = (self.kind[columns] == 0).astype(float)  # φ_j(0, ·) = u0 for features from u0, zero for the others
            condition = np.concatenate([start, np.zeros(degree * len(columns))])
        solved = least_squares.solve(A, table.forcing, self.settings.solver, self.settings.rcond, 0.0, condition)
        n = self.paths.s.size
        t = judges.points[0]
        B = residual_columns(judges.values[:n, columns], judges.residuals[:n, columns], t[:n], degree)
        V = value_columns(judges.values[n:, columns], t[n:], degree)
        residual = np.asarray(judges.forcing[:n] - B @ solved.weights)
        value, terms = np.asarray(V @ solved.weights), np.asarray(abs(V) @ abs(solved.weights))
        square = certificate.mean_square(self.paths.weight * residual.reshape(self.paths.weight.shape))
        scale = float(np.sqrt(np.mean(value**2))) or 1.0
        rounding = EPS * float(np.sqrt(np.mean(terms**2)))
        size = float(np.sqrt(np.mean(np.asarray(judges.forcing[:n]) ** 2))) or scale / self.problem.horizon
        misfit = float(np.sqrt(np.mean(residual**2))) / size
        return Fit(columns, degree, solved, float(np.hypot(square.root, rounding)) / scale, misfit)


def grow(problem: Problem, settings: Growth, shop: Workshop, notes: Notes) -> Solution:
    """Rounds of growth until the estimated error is met, no longer falls, or the budget is spent."""
    started, clock = time.perf_counter(), Clock()
    with clock.phase("pilot"):
        data, skipped = equation(problem, settings.seed)
        dictionary = Dictionary(problem, settings, data, shop)
    growing = [d.name for d in dictionary.designs]
    best: Fit | None = None
    history: list[Round] = []
    stalled = 0
    while True:
        label, entries, before = f"round {len(history)}", dictionary.entries(growing), dict(clock.seconds)
        with clock.phase("assembly"):
            dictionary.grow(growing, label)
        with clock.phase("solve"):
            everything = np.arange(len(dictionary.kind))
            fit = min((dictionary.solve(everything, k) for k in dictionary.degrees), key=lambda f: f.error)
        elapsed = time.perf_counter() - started
        history.append(
            Round(dictionary.counts, len(dictionary.rows.points[0]), fit.degree, " + ".join(growing), fit.error, elapsed)
        )
        shop.progress(f"{label}: {history[-1]}", 1, 1)
        stalled = stalled + 1 if best is not None and fit.error > _STALLED * best.error else 0
        best = fit if best is None or fit.error < best.error else best
        if best.error <= _RESOLVED or stalled == 2:
            break
        spent = {phase: clock.seconds[phase] - before.get(phase, 0.0) for phase in ("assembly", "solve")}

        def fits(make: list[str], entries: int = entries, spent: dict[str, float] = spent) -> bool:
            """Whether a round that doubles `make` would end in time: cost goes with the entries, and with the cube of the columns."""
            growth = sum(dictionary.planned(make)[0].values()) / sum(dictionary.sizes.values())
            needed = spent["assembly"] * dictionary.entries(make) / entries + spent["solve"] * growth**3
            return time.perf_counter() - started + needed < settings.seconds

        if not fits(growing[:1]):
            break
        with clock.phase("choice"):
            growing = _choose(dictionary, best.degree, growing)
        if not fits(growing):
            break
        if dictionary.bytes(growing) > shop.memory:
            notes.warn(f"growth ended at {sum(dictionary.counts)} features: the next round would not fit into `memory`", 4)
            break
    assert best is not None
    return _solution(problem, settings, dictionary, best, history, clock, skipped, shop, notes)


def _choose(dictionary: Dictionary, degree: int, growing: list[str]) -> list[str]:
    """The designs to double next: all that grew so far, unless fewer promise half the error at the same number of features.

    The error of each make-up is extrapolated from its last two sizes. The first design is in all of them.
    """
    names = [d.name for d in dictionary.designs]
    size = dictionary.sizes[names[0]]
    if len(growing) == 1 or size < 2 * _BLOCK:
        return growing
    others = [n for n in growing if n != names[0]]
    makes = [growing, *([n for n in growing if n != left] for left in others if len(others) > 1), names[:1]]
    promised = []
    for make in makes:
        numbers = [names.index(n) for n in make]
        errors = []
        for m in (size // 2, size):
            columns = np.flatnonzero(np.isin(dictionary.design, numbers) & (dictionary.rank < m))
            errors.append(dictionary.solve(columns, degree).error)
        slope = np.clip(np.log2(errors[0] / errors[1]), 0, 8)
        promised.append(errors[1] * (len(make) / (2 * len(growing))) ** slope)
    least = int(np.argmin(promised))
    return makes[least] if 2 * promised[least] < promised[0] else growing


def _solution(
    problem: Problem,
    settings: Growth,
    dictionary: Dictionary,
    fit: Fit,
    history: list[Round],
    clock: Clock,
    skipped: dict[str, list[str]],
    shop: Workshop,
    notes: Notes,
) -> Solution:
    """The network of one fit: its features sorted by kind, initial ones first."""
    M = len(fit.columns)
    everything = [jax.tree.map(lambda *a: jnp.concatenate(a), *_of_kind(dictionary, fit, k)) for k in dictionary.kinds]
    order = np.argsort(dictionary.kind[fit.columns], kind="stable")
    weights = np.asarray(fit.solved.weights).reshape(fit.degree + 1, M)[:, order].reshape(-1)
    for note in fit.solved.notes:
        if "left out" not in note:  # zero columns are no news in a dictionary
            notes.warn(note, 4)
    if fit.error > 0.1:
        notes.warn(
            f"not solved: the error is estimated at {fit.error:.2g} of the solution's size. Give more `seconds`, or a smaller "
            "region or horizon; data that are not smooth, or grow too fast at infinity, cannot be met at all.",
            stacklevel=4,
        )
    counts = tuple(int(np.sum(dictionary.kind[fit.columns] == k)) for k in (0, 1))
    return Solution(problem, dictionary.rows.data, everything, jnp.asarray(weights), shop, stats={
        "family": settings.family.name, "features": counts, "rows": (len(dictionary.rows.points[0]), 0),
        "design": " + ".join(d.name for d in dictionary.designs), "antithetic": settings.antithetic, "time_degree": fit.degree,
        "collocation": settings.collocation, "enforce": "equation",
        "solver": fit.solved.solver, "rcond": fit.solved.rcond, "rank": fit.solved.rank, "condition": fit.solved.condition, "ridge": 0.0,
        "initial_rows": "exact", "initial_weight": None,
        "residual_train": None, "residual_held_out": fit.misfit,
        "laplacian": dictionary.rows.data.rungs, "laplacian_skipped": skipped,
        "seconds": MappingProxyType(clock.seconds), "peak_bytes": peak_bytes(shop.device), "device": shop.device.device_kind, "seed": settings.seed,
        "estimated_error": fit.error, "tolerance_met": None, "history": tuple(history), "warnings": (*problem.warnings, *notes.texts),
    })  # fmt: skip


def _of_kind(dictionary: Dictionary, fit: Fit, kind: int) -> list[Feature]:
    """The blocks of one kind that a fit uses (fits use whole blocks)."""
    used = set(fit.columns // _BLOCK)
    return [b for i, b in enumerate(dictionary.rows.blocks) if i in used and dictionary.kind[i * _BLOCK] == kind]
