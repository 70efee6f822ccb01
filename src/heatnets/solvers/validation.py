"""Samples that fits of a growth are judged by: points of the region and places on paths from them, with entries that are computed once.

Three estimates of the same error, each blind in its own way:

    residual form        unbiased, sharp, blind for what happens on rarer paths than were sampled
    Monte Carlo values   unbiased, blind below their noise (`reference.py`)
    maximum principle    |u| <= max |u0| + t max |F| over sampled paths: free, and coarse
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from heatnets._core import statistics, streams
from heatnets._core.execution import ExecutionContext
from heatnets._core.precision import EPS
from heatnets.certify import error_equation
from heatnets.certify.error_equation import WeightedPoints
from heatnets.certify.reference_values import ReferenceValues
from heatnets.features.equation import Equation
from heatnets.fit.assembly import initial_values, tangent, value_columns
from heatnets.fit.entry_cache import Table
from heatnets.pde.canonical import CanonicalProblem

ROUNDING = 4 * EPS  # of the terms of a sum: some roundings each way
_MOST = 30.0  # the exponent of an error's growth that is believed


class BlockSizes(NamedTuple):
    """The smallest pieces: features and rows per compiled call; judges and last judges as (points, samples on paths from each)."""

    block: int = 16
    strip: int = 256
    judges: tuple[int, int] = (64, 7)
    last_judges: tuple[int, int] = (
        256,
        2,
    )  # rather more points: a small error may be larger in places

    @classmethod
    def of(cls, words: list[Any]) -> BlockSizes:
        """One that was kept."""
        return cls(words[0], words[1], tuple(words[2]), tuple(words[3]))


class Assessment(NamedTuple):
    """What samples say of a fit. Errors are relative to the root mean square of u over (0, T] x region."""

    error: float  # by the residual form, one standard error added
    spread: float  # root mean square of single samples: what the error is below, if residuals on a path never cancel
    tails: float  # kurtosis of the samples over their number: above a tenth a few of them carry the estimate
    residual: float  # root mean square, relative to `size`
    size: float  # what residuals are relative to
    amplification: float  # Σ |w_j φ_j| / |u|: how much the terms of the network cancel
    excess: float  # |ũ| over what the maximum principle allows, where it is largest
    disagreement: float  # from Monte Carlo values, beyond chance
    high: float  # what Monte Carlo values say the error is below


class ValidationSet:
    """Points of the region and samples on paths from them, where fits are judged by the error equation."""

    def __init__(
        self,
        problem: CanonicalProblem,
        data: Equation,
        ctx: ExecutionContext,
        seed: int,
        stream: str,
        size: tuple[int, int],
        strip: int,
        at: WeightedPoints | None = None,
    ) -> None:
        self.problem, self.paths = problem, error_equation.paths(problem, *size, seed, stream, at)
        s, y = self.paths.s.reshape(-1), self.paths.y.reshape(-1, problem.dim)
        points = np.concatenate([s, self.paths.t]), np.concatenate([y, self.paths.x])
        self.table = Table(problem, data, ctx, points, strip)
        self.missed: Any = 0.0
        self.value_scale = np.broadcast_to(
            problem.value_scale(self.paths.t), self.paths.t.shape
        )  # from v to u
        self.factor = self.value_scale * np.sqrt(
            self.paths.importance
        )  # and to a mean square over the region
        if problem.zero_initial:  # u0 was zero wherever it was looked at, and has no features: look again, at the ends of these paths
            p = self.paths
            rng = streams.generator(seed, f"{stream}, further")
            ends = problem.paths.go(p.s, p.y, p.s, problem.paths.draw(rng, p.s.shape, problem.dim))
            found = initial_values(data, ends.place.reshape(-1, problem.dim), ctx).reshape(
                p.s.shape
            )
            self.missed = p.grown * ends.weight * found
        alone = (
            problem if problem.nonlinear is None else replace(problem, source=None, nonlinear=None)
        )
        self.reference = ReferenceValues(
            alone, data, self.paths.t, self.paths.x, seed, stream, ctx, pool=self.paths.pool
        )

    def assess(
        self, weights: np.ndarray, columns: np.ndarray, degree: int, rows: Table | None = None
    ) -> Assessment:
        """Everything that these samples say of a fit; values at `rows`, too, are held against the maximum principle."""
        residual, _, _, _, force = self._residual(weights, columns, degree)
        samples, value, terms, _ = self._corrections(weights, columns, degree)
        square = statistics.mean_square(samples, self.paths.pool)
        scale, rounding = root_mean_square(value) or 1.0, ROUNDING * root_mean_square(terms)
        size = max(
            root_mean_square(force),
            (root_mean_square(value / self.factor) or 1.0) / self.problem.horizon,
        )
        return Assessment(
            float(np.hypot(square.root, rounding)) / scale,
            float(np.hypot(root_mean_square(samples), rounding)) / scale,
            statistics.tail_weight(samples),
            root_mean_square(residual) / size,
            size,
            root_mean_square(terms) / scale,
            self._excess(weights, columns, degree, rows),
            self._disagreement(value) / scale,
            self._high(value),
        )

    def error(
        self, weights: np.ndarray, columns: np.ndarray, degree: int
    ) -> tuple[float, float, float]:
        """The relative error of a fit, one standard error added; its relative residual; and what residuals are relative to."""
        found = self.assess(weights, columns, degree)
        return found.error, found.residual, found.size

    def _disagreement(self, value: np.ndarray) -> float:
        known = self.reference.calls > 0 and self.problem.nonlinear is None
        return self.reference.disagreement(value) if known else 0.0

    def _high(self, value: np.ndarray) -> float:
        if self.problem.nonlinear is not None or not self.reference.calls:
            return np.inf
        known = self.reference.compare(value, 0.98)
        return np.inf if known.reasons else known.high

    def _excess(
        self, weights: np.ndarray, columns: np.ndarray, degree: int, rows: Table | None
    ) -> float:
        """|ũ| / (max |u0| + t max |F|) where it is largest; zero where the source depends on u, so that its maximum is not known."""
        if self.problem.nonlinear is not None or not self.reference.calls:
            return 0.0
        tables = [self.table] if rows is None else [self.table, rows]
        force = max(
            self.reference.largest[1], *(float(np.max(np.abs(table.forcing))) for table in tables)
        )
        start = max(
            self.reference.largest[0], *(float(np.max(np.abs(table.initial))) for table in tables)
        )
        grown, worst = max(1.0, float(np.max(self.paths.grown))), 0.0
        for table in tables:
            bound = grown * (start + table.points[0] * force)
            value = np.abs(table.fitted(weights, columns, degree))
            worst = max(
                worst,
                float(np.max(np.divide(value, bound, out=np.zeros_like(value), where=bound > 0))),
            )
        return worst

    def _corrections(
        self, weights: np.ndarray, columns: np.ndarray, degree: int
    ) -> tuple[np.ndarray, ...]:
        """Samples of the error at each point (P, S); the fit there and the size of its terms; T times the largest residual met."""
        residual, grown, value, terms, _ = self._residual(weights, columns, degree)
        samples = self.factor[:, None] * (self.paths.weight * grown * residual + self.missed)
        largest = self.problem.horizon * float(
            np.max(np.abs(np.maximum(grown, 1.0) * residual))
        ) + float(np.max(np.abs(self.missed)))
        largest *= float(np.max(self.value_scale)) * max(1.0, float(np.max(self.paths.grown)))
        return samples, value, terms, np.asarray(largest)

    def _residual(
        self, weights: np.ndarray, columns: np.ndarray, degree: int
    ) -> tuple[np.ndarray, ...]:
        """The residual on the paths (P, S), and by how much an error made there grows on the way; the fit at their starting points and the size of its terms; the source on the paths."""
        n, table = self.paths.s.size, self.table
        A, force = table.system(columns, degree, slice(n))
        V = value_columns(
            table.values[n:, columns], table.points[0][n:], degree, self.problem.horizon
        )
        residual, grown = (force - A @ weights).reshape(self.paths.weight.shape), np.ones(())
        if self.problem.nonlinear is not None:  # the mean of f_u at both ends of the way
            lag = self.paths.t[:, None] - self.paths.s
            rate = 0.5 * (table.reaction[:n].reshape(lag.shape) + table.reaction[n:, None])
            grown = np.exp(np.clip(rate * lag, -_MOST, _MOST))
        return (
            residual,
            grown,
            self.factor * (V @ weights),
            self.factor * (np.abs(V) @ np.abs(weights)),
            force,
        )


class Verdict(NamedTuple):
    """The last word on a fit: its relative error, an upper bound of it, why neither is known where they are infinite, and what was compared."""

    error: float
    bound: float  # 99 %
    doubts: tuple[str, ...]  # about the residual form: then Monte Carlo values alone decide
    reasons: tuple[str, ...]  # why nothing is known
    residual: float  # root mean square, relative
    curable: bool  # by more samples: all that is wrong is that few of them carry the estimate
    facts: dict[str, Any]  # for `stats["check"]`


class FinalCheck:
    """Samples that have no part in any choice: whether a tolerance is met, and what the error is in the end.

    The residual form is believed where its tails are light, the network's terms do not cancel by more than `CANCELLATION`, and its values obey the
    maximum principle. Where it is not, the error is what Monte Carlo values and the largest residual leave possible. Where Monte Carlo
    values contradict it, they win.
    """

    def __init__(self, judges: ValidationSet) -> None:
        self.problem, self._ctx, self.judges = judges.problem, judges.table.ctx, judges
        self.reference = self.judges.reference

    def verdict(
        self, weights: np.ndarray, columns: np.ndarray, degree: int, rows: Table | None = None
    ) -> Verdict:
        """Everything known of a fit whose features these samples have."""
        judges, reference = self.judges, self.reference
        found = judges.assess(weights, columns, degree, rows)
        samples, value, terms, largest = judges._corrections(weights, columns, degree)
        sharp = statistics.relative_l2_interval(
            samples, value, ROUNDING * terms, 0.99, judges.paths.pool
        )
        source, slack, grown = self._source_samples()
        known, certain = (reference.compare(value, level, source) for level in (0.99, 0.998))
        doubts = tuple(
            words
            for words, doubtful in (
                (
                    f"one of {samples.size} residuals carries the estimate",
                    not found.tails <= statistics.HEAVY,
                ),
                (
                    f"terms of the network cancel by {found.amplification:.0e}",
                    not found.amplification <= CANCELLATION,
                ),
                (
                    f"values exceed the maximum principle {found.excess:.2g} times",
                    not found.excess <= EXCESS,
                ),
                ("data are not finite on some paths", not np.all(np.isfinite(reference.mean))),
            )
            if doubtful
        )
        usable, heavy = not known.reasons, len(doubts) == 1 and not found.tails <= statistics.HEAVY
        scale = known.scale if usable else root_mean_square(value) or 1.0
        # What none of the points met may be as large as the largest sample, on a part of the region of this chance.
        rare, rarer = (
            found.error + float(np.sqrt(n / len(samples)) * np.max(np.abs(samples)) / scale)
            for n in RARE
        )
        error, bound, reasons = found.error, float(sharp.high), tuple[str, ...]()
        if sharp.reasons:
            bound = max(bound, rarer) if np.isfinite(bound) else rarer
        if doubts:
            error, bound = (rare, max(bound, rarer)) if heavy else (np.inf, np.inf)
            reasons = () if usable or heavy else (*doubts, *known.reasons)
        if usable:
            error, bound = min(error, grown * known.high), min(bound, grown * known.high)
        if not certain.reasons and certain.low > CONTRADICTION * slack * error:
            error, bound = grown * known.value, grown * known.high
            doubts = (*doubts, f"Monte Carlo values differ by {known.value:.2g}")
        facts = {
            **reference.facts(known), "size": float(scale), "residual_form": found.error, "tails": found.tails,
            "residual_samples": samples.size, "largest_residual": float(largest / scale), "amplification": found.amplification, "maximum_principle": found.excess,
            "doubts": doubts, "reasons": reasons,
        }  # fmt: skip
        return Verdict(
            error,
            max(bound, error),
            doubts,
            reasons,
            found.residual,
            heavy and CURABLE * found.error < error < UNSOLVED,
            facts,
        )

    def _source_samples(self) -> tuple[np.ndarray | None, float, float]:
        """Of a source that depends on u, at the fit: its part of the mild formulation, (P, S); and by how much a defect of that may be larger than the error, or smaller.

        Smaller by exp(∫ f_u), f_u as large as at all but one point in twenty; nothing is known where f depends on ∇u.
        """
        nonlinear, paths, table = self.problem.nonlinear, self.judges.paths, self.judges.table
        if nonlinear is None:
            return None, 1.0, 1.0
        n, T = paths.s.size, self.problem.horizon
        force = (
            tangent(nonlinear, table.points, table.fit, table.slope, self._ctx)
            .force[:n]
            .reshape(paths.s.shape)
        )
        rate = np.asarray(table.reaction)
        smaller = float(np.exp(min(T * max(float(np.quantile(rate, 0.95)), 0.0), _MOST)))
        samples = self.judges.factor[:, None] * paths.weight * force
        return (
            samples,
            1.0 + T * float(np.max(np.abs(rate))),
            np.inf if nonlinear.slopes else smaller,
        )


CANCELLATION = 1e10  # of the terms of a network: beyond, what is rare may be large
EXCESS = 2.0  # over the largest data met, which sampled paths underestimate
RARE = (
    3.0,
    4.6,
)  # over the number of points: the chance of places that none of them met, 95 % and 99 %
UNSOLVED = 1.0  # an error that no further samples are wasted on
CURABLE = 3.0  # times the estimate of the residual form: what more samples may gain
CONTRADICTION = 2.0  # between the two estimates that is no chance


def root_mean_square(values: Any) -> float:
    return statistics.rms(np.asarray(values))
