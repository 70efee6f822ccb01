"""Error of a fit on paths that go too far for the final check to meet them.

The samples are those of the final check, on paths that are stretched along single directions
(`certify.stretched_paths`), from points of the region where such paths are likely.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from heatnets._core import statistics
from heatnets._core.statistics import rms
from heatnets.certify import stretched_paths
from heatnets.certify.importance_points import WeightedPoints
from heatnets.certify.stretched_paths import ALL, FAR, Directions, Stretching
from heatnets.fit.collocation import sample_points
from heatnets.fit.entry_cache import EntryCache
from heatnets.fit.iteration import CandidateFit
from heatnets.solvers.run import Run
from heatnets.solvers.validation import BlockSizes, ValidationSet

_SAMPLES = (4, 32)  # paths from each point, in the first samples and in further ones
_FURTHER = 2  # directions at most that get further samples
_MATTERS = 0.3  # share of the known error, or of the largest bound, below which a bound is small
_NOISE = 2.33  # standard errors of an upper bound, 99 % confidence


class FarError(NamedTuple):
    """Relative error of a fit with what far paths add; as it was where they add nothing."""

    error: float
    bound: float  # upper bound of the error, 99 % confidence
    directions: int  # in which paths were stretched


class _FarSamples(NamedTuple):
    """Samples of the error in one direction, (points, samples), and their points."""

    samples: np.ndarray
    points: WeightedPoints


@dataclass(frozen=True)
class _FarSampler:
    """Draws samples of the error of a fit on stretched paths.

    Args:
        run: the solve.
        rows: features and data.
        sizes: block sizes.
        fit: the fit.
        candidates: points t (n,), x (n, dim) of the region from which paths may start.
        rng: the random generator.
    """

    run: Run
    rows: EntryCache
    sizes: BlockSizes
    fit: CandidateFit
    candidates: tuple[np.ndarray, np.ndarray]
    rng: np.random.Generator

    def draw(
        self, directions: Directions, points: int, samples: int, stretching: Stretching
    ) -> list[_FarSamples]:
        """Samples for each direction, on `samples` paths from each of `points` points."""
        problem, fit, sizes = self.run.problem, self.fit, self.sizes
        chosen = [
            stretched_paths.points_near(problem, ridge, self.candidates, points, self.rng)
            for ridge in directions.ridge
        ]
        t, x, weight = (np.concatenate(part) for part in list(zip(*chosen, strict=True))[:3])
        test_set = ValidationSet(
            self.run,
            self.rows.data,
            f"far paths, {samples} samples",
            (len(t), samples),
            row_chunk=sizes.row_chunk,
            start_points=WeightedPoints(t, x, weight, len(self.candidates[0])),
            draw_noise=partial(
                stretched_paths.draw_stretched,
                problem=problem,
                direction=np.repeat(directions.noise, points, axis=0)[:, None],
                stretching=stretching,
            ),
        )
        test_set.cache.add_features(self.rows.blocks[: fit.features // sizes.block], "final check")
        drawn = test_set.sample(fit.weights, np.arange(fit.features), fit.degree).samples
        by_direction = drawn.reshape(len(chosen), points, samples)
        return [_FarSamples(*pair) for pair in zip(by_direction, chosen, strict=True)]


def add_far_error(
    run: Run,
    rows: EntryCache,
    sizes: BlockSizes,
    fit: CandidateFit,
    known: tuple[float, float],
    scale: float,
) -> FarError:
    """Add the error that only far paths meet to the estimated error of a fit.

    In each direction the root mean square of samples on paths that go beyond three standard
    deviations bounds the error that these paths carry. Where that is not small against the known
    error, further samples, on paths of all lengths, estimate the whole error. If the estimate is
    not significant, it counts up to the bound. If a few samples carry it, the root mean square of
    the mean at each point takes its place, whose noise makes it too large.

    Args:
        run: the solve.
        rows: features and data.
        sizes: block sizes.
        fit: the fit; its source must not depend on u.
        known: relative error of the fit, and its upper bound.
        scale: size of u.
    """
    problem, (error, bound) = run.problem, known
    rng = run.rng("far paths")
    candidates = sample_points(problem, stretched_paths.candidate_count(problem), rng)
    latest = np.argsort(candidates[0])[-64:]
    directions = stretched_paths.find_directions(
        problem, candidates[1][latest], float(np.max(candidates[0])), rng, run.ctx
    )
    if not len(directions):
        return FarError(error, bound, 0)
    sampler = _FarSampler(run, rows, sizes, fit, candidates, rng)
    points = max(sizes.test[0] // (2 * len(directions)), 4)
    first = sampler.draw(directions, points, _SAMPLES[0], FAR)
    bounds = np.array([rms(drawn.samples) for drawn in first]) / scale
    bounds[~np.isfinite(bounds)] = 0.0
    least = _MATTERS * max(error, float(np.max(bounds)))
    largest = [int(k) for k in np.argsort(-bounds)[:_FURTHER] if bounds[k] > least]
    if not largest:
        return FarError(error, bound, len(directions))
    further = sampler.draw(directions.take(largest), max(sizes.test[0] // 4, 4), _SAMPLES[1], ALL)
    for k, (samples, chosen) in zip(largest, further, strict=True):
        square = statistics.mean_square(samples / scale, chosen.statistics)
        at_most = float(np.hypot(known[0], bounds[k]))
        tails = statistics.tail_weight(samples, chosen.statistics)
        estimate, high = square.root, square.upper(_NOISE)
        if not tails <= statistics.MAX_KURTOSIS_RATIO:
            # The mean square of means of samples is too large by their variance.
            of_means = rms(samples.mean(axis=1)) / scale
            estimate, high = max(estimate, of_means), max(high, at_most)
        elif not square.mean - square.noise > (known[0] / square.unit) ** 2:
            estimate, high = min(estimate, at_most), min(high, at_most)
        if np.isfinite(estimate):
            error, bound = max(error, estimate), max(bound, high)
    return FarError(error, max(bound, error), len(directions))
