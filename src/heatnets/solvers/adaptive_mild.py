"""Adaptive solver for data that are not C²: the network is fitted to mild rows.

Mild rows (Monte Carlo samples of the mild solution) need no derivatives, so kinks and jumps do no
harm, but they are noisy. The weights are therefore pulled towards 1/M, where the network is the
Monte Carlo average over its own draws; cross-validation sets the strength, and the initial
condition stays exact. A source that depends on u takes u from the fit before (Picard).

Where coefficients are constant, u0 is averaged over scrambled Sobol' nets, one for each row, and
the features are the points of another net. Without a source that average is so good that few
weights are left to fit: features with consecutive points share one.
"""

# A control variate (the martingale -∫∇ũ·dW of the current fit) is not used: four steps divide the
# variance of a sample by 15 to 20, sixteen by 50 to 80, but each step costs a gradient of the whole
# network, and with 96 features a sample then costs 50 or 200 plain ones
# (benchmarks/control_variate.py). At equal time plain samples are better by a factor of 3 to 5, and
# more so for larger networks.

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from heatnets._core import statistics
from heatnets.certify import montecarlo, quasi_monte_carlo
from heatnets.certify.quasi_monte_carlo import NetPoints, TurnedSobolDraws
from heatnets.certify.reference_values import ReferenceValues
from heatnets.features.equation import equation_values_only
from heatnets.features.features import Feature
from heatnets.fit import least_squares
from heatnets.fit.assembly import value_rows
from heatnets.fit.collocation import PLACEMENTS, Points, sample_points
from heatnets.fit.iteration import CandidateFit
from heatnets.pde.canonical import CanonicalProblem
from heatnets.solution import Solution
from heatnets.solvers import stopping
from heatnets.solvers.growth import Growth, GrowthState, feature_kinds
from heatnets.solvers.mild_samples import (
    ROWS,
    VALIDATION,
    ZERO,
    MildSamples,
    NetSampler,
    NonlinearSourceSampler,
    NoSource,
    no_samples,
    sample_mild,
    served_by_nets,
)
from heatnets.solvers.options import DEFAULT_DESIGNS
from heatnets.solvers.run import Round, Run, StopReason
from heatnets.solvers.validation import CONTRADICTION

_FEATURES = 32  # of each design and kind in the first round
_PAIRS = (16, 512)  # antithetic pairs of samples per training point, at least and at most
# Operations of samples in the first round, per second of `seconds`: samples at the training points
# may take a quarter of it (a core makes 1.3 to 8 operations per nanosecond). Beyond, a point gets
# fewer pairs.
_OPERATIONS_PER_SECOND = 3.5e8
_SOURCE_FEATURES = 128  # features of each design and kind with such a source and nets, at most
_BATCHES = 4  # batches of pairs at a validation point, in each of two independent halves
# Nets in training: half the points of a net in the first round, which are as many as features, at
# least and at most; weights, at most. Call on the best of 20 assets
# (benchmarks/payoffs.py), relative error over the region with 4096 pairs and rows without noise:
# 7.5e-4 with the weights 1/M, 4.8e-4 with 256 weights, of which noise of rows leaves 5.4e-4. 768
# pairs of the three default designs: 1.7e-3, of orthogonal directions or a net: 1.1e-3.
_NET_PAIRS, _NET_WEIGHTS = (64, 8192), 256
# As above, for a point of a net: samples, features and checks of a round, which take 2.3 times as
# long as the samples, may take half of `seconds` (a core makes 0.7 to 6 operations per nanosecond
# as they are counted, 2 for the best of 20 assets).
_NET_OPERATIONS_PER_SECOND = 4.3e8


@dataclass
class MildState(GrowthState):
    """State of an adaptive solve by mild rows."""

    size: int = 0  # features of each design and kind
    pairs: int = 0  # antithetic pairs of samples per point and batch; half the points of nets
    monte_carlo_pairs: int = 0  # the same by Monte Carlo
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0))  # of the last round
    values: np.ndarray = field(default_factory=lambda: np.zeros(0))  # samples at the rows
    extensions: list[int] = field(default_factory=list)  # numbers of rows, per round
    variance: float = 0.0  # mean square of the standard errors of the samples
    # Two independent estimates of u at the validation points; every round adds samples to them.
    halves: np.ndarray = field(default_factory=lambda: np.zeros((2, VALIDATION)))


class MildGrowth(Growth):
    """Adaptive solve by mild rows.

    Each round has twice the rows and twice the features of the one before.
    """

    State = MildState
    rules = stopping.MILD
    state: MildState

    def __init__(self, run: Run) -> None:
        if run.options.time_degree is not None or run.options.rcond is not None:
            run.log.warn("`time_degree` and `rcond` play no part in training on mild rows")
        # A source that depends on u takes it from all features, at each of its samples.
        most = _SOURCE_FEATURES if run.problem.source.uses_u else _NET_PAIRS[1]
        entries = ROWS * most if served_by_nets(run) else ROWS * 6 * _FEATURES
        needed = 8 * (4 * entries + 4 * ROWS * run.problem.dim)
        run.ctx.require_memory(needed, "the first round", "")
        # Without reaction flow the weights 1/M give a first guess of the solution.
        problem = run.problem = replace(run.problem, reaction_flow=None)
        super().__init__(run)
        self.data = equation_values_only(problem)
        self.source = NonlinearSourceSampler(run) if problem.source.uses_u else NoSource()
        self.nets = None
        self.sampled: CanonicalProblem | None = problem.linear_part()  # by Monte Carlo
        self.points: Points = (np.zeros(0), np.zeros((0, problem.dim)))
        self.validation = sample_points(problem, VALIDATION, run.rng("mild judges"))
        # From values of the canonical problem to values of u.
        self.factor = np.broadcast_to(problem.value_scale(self.validation[0]), (VALIDATION,))
        self._size, self._rows = _FEATURES, ROWS  # of the next round
        self._weights: int | None = None  # most weights of a design and kind
        if served_by_nets(run):
            self.sampled = self.sampled if self.sampled.has_source else None
            self.sampled = self.sampled and replace(self.sampled, initial=ZERO)
            self.nets = NetSampler(run, self.data)
            self._rows, self._weights = ROWS, _NET_WEIGHTS
            if run.options.directions == DEFAULT_DESIGNS:
                design = TurnedSobolDraws(self.nets.rotation)
                run.options = replace(run.options, directions=(design,))
        if not self.state.pairs:
            self._choose_pairs()
        if self.nets is not None:
            self._size = min(self.state.pairs, most)

    def _choose_pairs(self) -> None:
        """Choose the pairs of samples at each point in the first round: what `seconds` allow.

        Operations are counted, not timed: the choice is the same on every machine.
        """
        seconds, state, operations = self.run.options.seconds, self.state, 0
        if self.sampled is not None:
            operations = montecarlo.count_pair_operations(self.sampled)
            affordable = _OPERATIONS_PER_SECOND * seconds / (ROWS * operations)
            state.monte_carlo_pairs = int(np.clip(affordable, *_PAIRS))
        state.pairs = state.monte_carlo_pairs
        if self.nets is None:
            return
        # There are as many features of a source as points.
        operations += 2 * quasi_monte_carlo.count_point_operations(self.run.problem, self.data)
        affordable = _NET_OPERATIONS_PER_SECOND * seconds / (ROWS * operations)
        state.pairs = 2 ** int(np.log2(np.clip(affordable, *_NET_PAIRS)))  # nets are best so

    def _add_points(self, rows: int, label: str) -> Points:
        """Draw training points until there are `rows` in all; returns the new ones.

        For a source that depends on u they lie also on paths from the region.
        """
        problem, region = self.run.problem, self.run.options.train_region
        count, rng = rows - len(self.points[0]), self.run.rng(f"mild rows {label}")
        if not count:  # rows of nets stay where they are
            return np.zeros(0), np.zeros((0, problem.dim))
        if problem.source.uses_u:
            t, x = PLACEMENTS["paths"](problem, region, count, rng)
        else:  # at t = T for a `Point`: it says nothing of other times
            t, x = sample_points(problem, count, rng, region)
        self.points = (np.concatenate([self.points[0], t]), np.concatenate([self.points[1], x]))
        return t, x

    def repeat_rounds(self) -> None:
        for k, rows in enumerate(self.state.extensions):
            self._add_points(rows, f"round {k}")
        blocks = _draw_features(self.run, self.state.size, self._weights).blocks
        self.source.set_fit(self.data, blocks, self.state.weights)

    def make_round(self, label: str) -> Round:
        """Add rows and samples, fit the weights of new features, and estimate the error."""
        run, state, clock = self.run, self.state, self.run.clock
        rows = self._rows
        with clock.phase("samples"):
            self._extend_rows(rows, label)
        with clock.phase("assembly"):
            drawn = _draw_features(run, self._size, self._weights)
            A = drawn.combine(self._evaluate(drawn.blocks, self.points, label))
        for turn in range(self.source.steps):
            with clock.phase("samples"):
                batches = 1 if self.nets is None else 2 ** len(state.history)
                of_source = self.source.sample(self.points, f"{label}, turn {turn}", batches)
                b = state.values + of_source[0]
            with clock.phase("solve"):
                constraint = drawn.start if np.any(drawn.start) else None
                solved = least_squares.ridge_to_prior(A, b, drawn.prior, constraint)
                misfit = A @ np.asarray(solved.weights) - b
                solved = solved._replace(weights=jnp.repeat(solved.weights, drawn.shared))
                state.weights = np.asarray(solved.weights)
            self.source.set_fit(self.data, drawn.blocks, state.weights)
        with clock.phase("check"):
            error, bound, scale = self._estimate_error(drawn.blocks, label)
        state.size = self._size
        state.extensions.append(rows)
        fit = CandidateFit(
            features=self._size,
            rows=rows,
            degree=0,
            solved=solved,
            error=error,
            training_residual=statistics.rms(misfit) / scale,
            validation_residual=None,
            score=error,
            bound=bound,
            noise=float(np.sqrt(state.variance)) / scale,
        )
        # Small gains are hidden by the noise of the estimates: a larger round replaces the best
        # one unless it is clearly worse.
        if state.best is None or error < 1.2 * state.best.error or self._is_met(fit):
            state.best = fit
        names = " + ".join(design.name for design in run.options.directions)
        return Round(_count(run, drawn.blocks), rows, 0, names, error, run.elapsed)

    def _extend_rows(self, rows: int, label: str) -> None:
        """Draw training points until there are `rows`, and their samples."""
        state, old = self.state, len(self.state.values)
        points = self._add_points(rows, label)
        if self.nets is not None:  # further points of the nets of all rows
            new = self.nets.sample(self.points, self._net_points(shared=True), "mild rows")
            new = new + self._sample(self.points, label, self._doublings)[0]
            state.values = 0.5 * (state.values + new) if old else new
            return
        values, noise, _ = self._sample(points, label)
        state.values = np.concatenate([state.values, values])
        state.variance = (old * state.variance + (rows - old) * noise**2) / rows

    @property
    def _doublings(self) -> int:
        """How many times the samples of the first round this round adds: as many as there are."""
        return int(2 ** max(len(self.state.history) - 1, 0))

    def _net_points(self, shared: bool) -> NetPoints:
        """The points of nets that this round adds."""
        number = 2 * self.state.pairs * self._doublings
        return NetPoints(number if self.state.history else 0, number, shared)

    def _sample(self, points: Points, stream: str, batches: int = 1) -> MildSamples:
        """Samples of the part of the mild solution that does not depend on u in the source.

        Without that of u0, where nets tell it.
        """
        if self.sampled is None:
            return no_samples(points)
        pairs = self.state.monte_carlo_pairs
        return sample_mild(self.run, self.sampled, points, stream, pairs, batches)

    def _sample_halves(self, label: str, growth: int) -> tuple[list[MildSamples], float]:
        """New samples of both halves, and their share among all: at least as many as before."""
        if self.nets is not None:
            streams = ("mild judges, half 0", "mild judges, half 1")
            part = self._net_points(shared=False)
            of_initial = [self.nets.sample(self.validation, part, stream) for stream in streams]
            of_source = [
                self._sample(self.validation, f"{label}, half {h}", self._doublings) for h in (0, 1)
            ]
            drawn = [
                (mean + values, noise, bias)
                for mean, (values, noise, bias) in zip(of_initial, of_source, strict=True)
            ]
            return drawn, 0.5 if part.first else 1.0
        halves = [f"{label}, half {h}" for h in (0, 1)]
        drawn = [self._sample(self.validation, half, _BATCHES * growth) for half in halves]
        return drawn, growth / (2 * growth - 1)

    def _estimate_error(self, blocks: list[Feature], label: str) -> tuple[float, float, float]:
        """Relative error of the last fit, an upper bound (99 %), and the size of u."""
        state, factor, growth = self.state, self.factor, 2 ** len(self.state.history)
        # As many samples again as before (in the first round, a first set): the estimates are
        # averages over all of them.
        drawn, share = self._sample_halves(label, growth)
        new = np.stack([factor * values for values, _, _ in drawn])
        state.halves = (1 - share) * state.halves + share * new
        if self.nets is not None:  # rows have as many points as the halves
            state.variance = float(np.mean((state.halves[0] - state.halves[1]) ** 2)) / 2
        bias = factor * np.mean([biases for _, _, biases in drawn], axis=0)
        from_source = [
            self.source.sample(self.validation, f"{label}, half {h}", _BATCHES * growth)
            for h in (0, 1)
        ]
        estimates = state.halves + factor * np.stack([values for values, _, _ in from_source])
        bias = bias + factor * np.mean([biases for _, _, biases in from_source], axis=0)
        scale = statistics.rms(estimates.mean(axis=0)) or 1.0
        value = factor * (self._evaluate(blocks, self.validation, label) @ state.weights)
        corrections = (estimates - value).T
        root = statistics.mean_square(corrections).root
        # With a source that depends on u, the samples estimate the defect of the fixed-point
        # equation. The error may be larger by this factor.
        error_growth = self.source.error_growth(self.validation)
        error = error_growth * (float(np.hypot(root, statistics.rms(bias))) / scale)
        interval = statistics.relative_l2_interval(corrections, value, bias, 0.98)
        bound = np.inf if interval.reasons else error_growth * interval.high
        return error, float(bound), scale

    def _is_met(self, fit: CandidateFit) -> bool | None:
        """Whether the tolerance is met; None without a tolerance."""
        tol = self.run.options.tol
        return None if tol is None else fit.bound <= tol

    def meets_tolerance(self, tol: float) -> bool:
        # A round that meets the tolerance is the best one.
        return self.best.bound <= tol

    def plan_round(self) -> str:
        """Twice the features and rows; with nets, twice the features and points."""
        state, spent = self.state, self.state.spent
        if self.nets is not None:
            self._size = 2 * state.size
            phases = ("samples", "assembly", "solve", "check")
            return self.time_limit(2 * sum(spent[phase] for phase in phases)) or self.memory_limit(
                2 * 8 * self._rows * self._size
            )
        rows, old_rows = ([0, *state.extensions][k] for k in (-1, -2))
        self._size, self._rows = 2 * state.size, 2 * rows
        return self.time_limit(
            spent["samples"] / (rows - old_rows) * rows
            + 4 * spent["assembly"]
            + 8 * spent["solve"]
            + 2 * spent["check"]
        ) or self.memory_limit(64 * self._rows * 2 * len(state.weights))

    def check_seconds(self) -> float:
        return float(self.state.spent["check"])

    def finish(self, why: str) -> Solution:
        fit = self.best
        blocks = _draw_features(self.run, fit.features, self._weights).blocks
        ending = StopReason(why, self._is_met(fit))
        if not self.run.problem.source.uses_u:
            with self.run.clock.phase("check"):
                fit, ending = self._final_check(fit, blocks, ending)
        return self.build_solution(fit, blocks, ending, features=_count(self.run, blocks))

    def _final_check(
        self, fit: CandidateFit, blocks: list[Feature], ending: StopReason
    ) -> tuple[CandidateFit, StopReason]:
        """Compare the best fit with Monte Carlo values at new points (the test set).

        The values may contradict the estimate; if a few samples dominate them, nothing is known and
        the error is infinite.
        """
        run, met = self.run, ending.met
        reference = ReferenceValues.over_region(
            run.problem,
            self.data,
            run.options.seed,
            "final check",
            run.ctx,
            entries=fit.rows * len(fit.weights),
            points=VALIDATION,
        )
        features = self._evaluate(blocks, reference.points, "final check")
        value = reference.factor * (features @ fit.weights)
        difference, difference_998 = (reference.compare(value, level) for level in (0.98, 0.998))
        unknown = difference.reasons
        check = {**reference.facts(difference), "reasons": unknown}
        if unknown:
            fit, met = fit._replace(error=np.inf), met and False  # stays None without a tolerance
        elif difference_998.low > CONTRADICTION * fit.error:
            fit = fit._replace(error=difference.value)
            met = met and difference.high <= (run.options.tol or 0.0)
        return fit, StopReason(ending.why, met, unknown, check)

    def _evaluate(self, blocks: list[Feature], points: Points, label: str) -> np.ndarray:
        """φ_j(t_k, x_k), (points, features); all calls have the same shape."""
        pieces = [
            jax.tree.map(lambda a, i=i: a[i : i + _FEATURES], block)
            for block in blocks
            for i in range(0, len(block.initial_coefficient), _FEATURES)
        ]
        ctx = self.run.ctx
        return np.asarray(value_rows(self.data, pieces, points, ctx, label, row_chunk=VALIDATION))


class _Drawn(NamedTuple):
    """Features of all designs; `shared` consecutive ones of each have the same weight."""

    blocks: list[Feature]  # one per kind
    # 1/M for the first design and 0 for the others: the network is then a Monte Carlo average.
    prior: np.ndarray
    start: np.ndarray  # φ_j(0, ·) / u0
    shared: int = 1

    def combine(self, A: np.ndarray) -> np.ndarray:
        """Sums over the features that share a weight, from a matrix (rows, features)."""
        return A.reshape(len(A), -1, self.shared).sum(axis=2) if self.shared > 1 else A


def _draw_features(run: Run, size: int, weights: int | None) -> _Drawn:
    """Draw `size` features of each design and kind, with `weights` of them at most."""
    blocks, prior = [], []
    shared = 1 if weights is None else max(size // weights, 1)
    for kind in feature_kinds(run.problem):
        counts = (size, 0) if kind == 0 else (0, size)
        drawn = [run.draw(counts, design)[kind] for design in run.options.directions]
        blocks.append(jax.tree.map(lambda *parts: jnp.concatenate(parts), *drawn))
        first, others = size // shared, size // shared * (len(drawn) - 1)
        prior.append(np.repeat([1.0 / size, 0.0], [first, others]))
    starts = np.concatenate([np.asarray(block.initial_coefficient) for block in blocks])
    return _Drawn(blocks, np.concatenate(prior), starts.reshape(-1, shared).sum(axis=1), shared)


def _count(run: Run, blocks: list[Feature]) -> tuple[int, int]:
    """Numbers of features from the initial condition and from the source."""
    counts = dict(
        zip(feature_kinds(run.problem), (len(b.initial_coefficient) for b in blocks), strict=True)
    )
    return counts.get(0, 0), counts.get(1, 0)
