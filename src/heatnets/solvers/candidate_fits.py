"""Dictionary of the adaptive solver: features of several designs, their rows, and their fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from heatnets._core.errors import InputError, NumericalError
from heatnets.features.features import Equation, Feature
from heatnets.fit import least_squares
from heatnets.fit.collocation import PLACEMENTS, Points
from heatnets.fit.device_least_squares import damped_system
from heatnets.fit.entry_cache import EntryCache
from heatnets.fit.iteration import CandidateFit
from heatnets.fit.least_squares import LeastSquaresResult
from heatnets.fit.network import DEGREES
from heatnets.solvers.growth import feature_kinds
from heatnets.solvers.run import Run
from heatnets.solvers.validation import EXCESS, BlockSizes, ValidationSet

# Candidate dampings of the least-squares problem, relative to its largest singular value.
DAMPINGS = (1e-14, 1e-11, 1e-8, 1e-6, 1e-4)

_ROWS_PER_FEATURE = 8  # two per column at the highest degree
_MOST_PROCESSES = 1000  # in a message about memory
_NEARLY_BEST = 2.0  # times the best score: differences up to this factor are noise


class Plan(NamedTuple):
    """A round that doubles the features of some designs."""

    sizes: dict[str, int]  # features of each kind, per design, after the round
    rows: int  # after the round
    entries: int  # matrix entries to compute
    memory: int  # bytes of each process
    processes: int | None  # the least number of processes for which `memory` is enough
    growth: float  # features after the round over features before


class Dictionary:
    """Features of several designs and two kinds, their training rows, and the validation set.

    `kind`, `design` and `rank` describe the columns, (features,): the kind of the feature, the
    number of its design, and its position in the sequence of the design.
    """

    def __init__(self, run: Run, data: Equation, block_sizes: BlockSizes) -> None:
        self.run, self.block_sizes = run, block_sizes
        self.problem, self.options, self.ctx = run.problem, run.options, run.ctx
        self.kinds = feature_kinds(run.problem)
        self.designs = run.options.directions
        # Number of features of each kind, per design.
        self.sizes = dict.fromkeys((design.name for design in self.designs), 0)
        self.kind, self.design, self.rank = (np.zeros(0, int) for _ in range(3))
        row_chunk = block_sizes.row_chunk
        if run.ctx.processes.count > row_chunk:
            raise InputError(
                f"at most {row_chunk} processes can share this solve; got "
                f"{run.ctx.processes.count}. Start fewer."
            )
        self.row_count = row_chunk  # of all processes
        self.rows = EntryCache(
            run.problem,
            data,
            run.ctx.alone(),
            self._own_points(0, row_chunk),
            row_chunk,
            run.ctx.processes,
        )
        self.validation = ValidationSet(
            run, data, "judges", block_sizes.validation, row_chunk=row_chunk
        )

    def points(self, first: int, last: int) -> Points:
        """Training points `first` to `last` (multiples of the row chunk).

        Every row chunk has its own random stream: a longer list begins with the shorter one.
        """
        row_chunk, place = self.block_sizes.row_chunk, PLACEMENTS[self.options.collocation]
        pieces = [
            place(self.problem, self.options.train_region, row_chunk, self.run.rng(f"rows {i}"))
            for i in range(first // row_chunk, last // row_chunk)
        ]
        t, x = zip(*pieces, strict=True)
        return np.concatenate(t), np.concatenate(x)

    def _own_points(self, first: int, last: int) -> Points:
        """The part of the `points` whose rows this process computes."""
        own = self.ctx.processes.share(last - first, self.block_sizes.row_chunk)
        t, x = self.points(first, last)
        return t[own], x[own]

    def plan(self, growing: list[str]) -> Plan:
        """What a round that doubles these designs takes.

        Counted as memory are values and residuals of all entries, the system at the highest degree
        with its copies, factors that processes exchange, and the coordinates of points and
        features.
        """
        sizes = {
            name: (2 * size or self.block_sizes.block) if name in growing else size
            for name, size in self.sizes.items()
        }
        M, M_old = sum(sizes.values()) * len(self.kinds), len(self.kind)
        row_chunk, N_old = self.block_sizes.row_chunk, self.row_count
        N, validation = (
            -(-_ROWS_PER_FEATURE * M // row_chunk) * row_chunk,
            len(self.validation.cache.points[0]),
        )
        columns = M * (1 + max(self.degrees))

        def memory(processes: int) -> int:
            own = -(-N // processes)
            exchanged = 3 * columns**2 if processes > 1 else 0
            return 8 * (
                4 * M * (own + 2 * validation)
                + 4 * (own + columns) * columns
                + exchanged
                + (N + M + 2 * validation) * self.problem.dim
            )

        enough = (k for k in range(1, _MOST_PROCESSES) if memory(k) <= self.ctx.memory)
        entries = M * N - M_old * N_old + (M - M_old) * validation
        needed = memory(self.ctx.processes.count)
        return Plan(sizes, N, entries, needed, next(enough, None), M / max(M_old, 1))

    def grow(self, growing: list[str], label: str) -> None:
        """Double the features of the named designs, and add rows in proportion."""
        plan, block = self.plan(growing), self.block_sizes.block
        new_blocks: list[Feature] = []
        for number, design in enumerate(self.designs):
            old, size = self.sizes[design.name], plan.sizes[design.name]
            if size == old:
                continue
            drawn = self.run.draw(
                (size if 0 in self.kinds else 0, size if 1 in self.kinds else 0), design
            )
            for kind in self.kinds:
                for start in range(old, size, block):
                    piece = slice(start, start + block)
                    new_blocks.append(jax.tree.map(lambda a, i=piece: a[i], drawn[kind]))
                added = size - old
                self.kind = np.append(self.kind, np.full(added, kind))
                self.design = np.append(self.design, np.full(added, number))
                self.rank = np.append(self.rank, np.arange(old, size))
        self.validation.cache.add_features(new_blocks, label)
        self.rows.add_features(new_blocks, label)
        if plan.rows > self.row_count:
            self.rows.add_points(self._own_points(self.row_count, plan.rows), label)
            self.row_count = plan.rows
        self.sizes = plan.sizes

    def extend_reference(self) -> None:
        """Draw more Monte Carlo values on the validation set, at a small part of the total cost."""
        if not self.problem.source.uses_u:
            self.validation.reference.extend(len(self.kind) * self.row_count)

    @property
    def degrees(self) -> tuple[int, ...]:
        """Degrees in time to try."""
        return DEGREES if self.options.time_degree is None else (self.options.time_degree,)

    @property
    def counts(self) -> tuple[int, int]:
        """Numbers of features from the initial condition and from the source."""
        return int(np.sum(self.kind == 0)), int(np.sum(self.kind == 1))

    def solve(self, columns: np.ndarray, degree: int, damping: float | None = None) -> CandidateFit:
        """Fit the weights of some columns; as `solve_degrees`, for one degree."""
        return self.solve_degrees(columns, (degree,), damping)[0]

    def refit(self, fit: CandidateFit, columns: np.ndarray) -> CandidateFit:
        """Fit some columns with the degree and damping of a fit; itself if it has just these."""
        is_same = len(columns) == len(self.kind) == fit.features
        if is_same and not self.problem.source.uses_u:
            return fit
        return self.solve(columns, fit.degree, fit.solved.rcond)

    def solve_degrees(
        self, columns: np.ndarray, degrees: Sequence[int], damping: float | None = None
    ) -> list[CandidateFit]:
        """Fits of the weights of some columns, one for each degree, with their estimated errors.

        Without `damping` (and without `rcond` in the options) several dampings are tried. Weakly
        damped weights of opposite sign can cancel to ten digits at the rows but not elsewhere: on
        rare paths the residual is then very large. Among the fits whose score is nearly the best,
        the one with the strongest damping is returned.
        """
        constraint = None
        if 0 in self.kinds and not self.problem.zero_initial:
            # φ_j(0, ·) = u0 for features from u0, zero for the others.
            constraint = (self.kind[columns] == 0).astype(float)
        rcond = self.options.rcond if damping is None else damping
        # Columns are ordered by degree: one factorisation serves all degrees.
        system, fits = damped_system(self.rows, columns, max(degrees), constraint), []
        for degree in degrees:
            solved = system.fits(
                DAMPINGS if rcond is None else (rcond,), (degree + 1) * len(columns)
            ) or [self._solve_by_svd(columns, degree, constraint)]
            fits.append(self._best([self.assess(columns, degree, one) for one in solved]))
        return fits

    def _solve_by_svd(
        self, columns: np.ndarray, degree: int, constraint: np.ndarray | None
    ) -> LeastSquaresResult:
        """The weights where no damped fit is finite."""
        if constraint is not None:
            constraint = np.concatenate([constraint, np.zeros(degree * len(columns))])
        A, b = self.rows.processes.join_rows("system", self.rows.system(columns, degree))
        return least_squares.solve(A, b, "svd", None, 0.0, constraint)

    def _best(self, candidates: list[CandidateFit]) -> CandidateFit:
        """The most strongly damped of the fits whose score is nearly the best."""
        fits = [fit for fit in candidates if np.isfinite(fit.score)]
        if not fits:
            raise NumericalError(
                "residuals are not finite on paths from the region: `source`, or a derivative of "
                "the data, is not finite there. "
                "Smooth the function, or move the region away from its singularity."
            )
        best = min(fit.score for fit in fits)
        return next(fit for fit in reversed(fits) if fit.score <= _NEARLY_BEST * best)

    def assess(self, columns: np.ndarray, degree: int, solved: LeastSquaresResult) -> CandidateFit:
        """Estimate the error of the solution of a system on the validation set."""
        weights = np.asarray(solved.weights)
        estimate = self.validation.assess(weights, columns, degree, self.rows)
        misfit = self.rows.size(self.rows.residual(weights, columns, degree))
        score = max(estimate.spread, estimate.disagreement)
        if not estimate.excess <= EXCESS:
            score = max(score, estimate.excess)
        return CandidateFit(
            features=len(columns),
            rows=self.row_count,
            degree=degree,
            solved=solved,
            error=float(max(min(estimate.error, estimate.high), estimate.disagreement)),
            training_residual=misfit / estimate.size,
            validation_residual=estimate.residual,
            score=score,
        )

    @property
    def _caches(self) -> tuple[EntryCache, EntryCache]:
        return self.rows, self.validation.cache

    def linearize_at(self, fit: CandidateFit | None) -> None:
        """Linearize a source that depends on u at a fit (None: at the mean of the u0 features)."""
        start = self.kind == 0
        weights = np.where(start, 1.0, 0.0) / max(np.sum(start), 1)
        if fit is not None:
            weights = fit.weights
        self.run.iteration.linearize(self._caches, weights, 0 if fit is None else fit.degree)

    def iterate(self, fit: CandidateFit) -> tuple[CandidateFit, list[float]]:
        """Newton's method or Picard's iteration from a fit, for a source that depends on u.

        Returns the fit, and the relative change by each step.
        """
        columns, degree, rcond = np.arange(fit.features), fit.degree, fit.solved.rcond
        fit, changes = self.run.iteration.iterate(
            self._caches, fit, lambda: self.solve(columns, degree, rcond)
        )
        if changes:
            estimate = self.validation.assess(fit.weights, columns, degree)
            fit = fit._replace(
                error=estimate.error, validation_residual=estimate.residual, score=estimate.spread
            )
        return fit, changes
