"""Samples at the ends of random paths: antithetic pairs, extrapolated in the time steps.

Where coefficients vary, paths are simulated in steps and carry a weight exp(∫ c). Each sample is
then computed on the same path with all, half and a quarter of the steps. Where coefficients are
constant, paths are exact, and there is no bias to bound.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.paths import PathEnd, PathSimulator

CHUNK = 2**23  # coordinates of sample points held in memory at once
_MATTERS = 0.2  # share of a half-width below which the bias of the steps does not matter

_NOT_FIRST_ORDER = (
    "halving the steps of paths does not act as first order should, so that their bias is not "
    "known: take more `steps`"
)


class SampleBatch(NamedTuple):
    """Samples, and what the steps of paths do to them.

    Attributes:
        samples: without the first-order bias of the steps, (...).
        steps: changes of each sample when the number of steps is halved once and twice, (..., 2);
            None where paths are exact.
        sizes: what else was computed on the finest paths.
    """

    samples: np.ndarray
    steps: np.ndarray | None = None
    sizes: Any = None


def extrapolate(
    simulator: PathSimulator, noise: np.ndarray, sample: Callable[..., tuple[np.ndarray, Any]]
) -> SampleBatch:
    """Richardson extrapolation of samples over the levels of a path simulator.

    Twice the samples on the finest paths minus those with half as many steps have no first-order
    bias. The third level, with a quarter of the steps, only checks the order.

    Args:
        simulator: of the paths.
        noise: of the paths, as from `simulator.sample_noise`.
        sample: maps the simulator of a level and its noise to samples (...) and further results.
    """
    levels = simulator.richardson_levels(noise)
    results = [sample(level, level_noise) for _, level, level_noise in levels]
    values = [value for value, _ in results]
    sizes = results[0][1]
    if len(values) == 1:
        return SampleBatch(values[0], None, sizes)
    factors = [factor for factor, _, _ in levels]
    total: Any = sum(f * value for f, value in zip(factors, values, strict=True) if f)
    differences = np.stack([a - b for a, b in itertools.pairwise(values)], axis=-1)
    return SampleBatch(total, differences, sizes)


def step_bias_bound(steps: np.ndarray) -> Any:
    """Bound for the bias of paths in steps, from mean differences of the levels, (..., 2) -> (...).

    All that the last halving of the number of steps changed, or half of what the one before did.
    """
    return np.maximum(np.abs(steps[..., 0]), 0.5 * np.abs(steps[..., 1]))


def step_allowance(changes: np.ndarray, half: Any) -> tuple[Any, Any, tuple[str, ...]]:
    """Bound the bias of paths in steps, and check that it is of first order.

    Args:
        changes: samples of what halving the number of steps changes, once and twice, (n, ..., 2).
        half: the other parts of the half-width, (...); a bias that is small against it does not
            matter.

    Returns:
        The bound, (...), a part of it that more samples will not remove, (...), and a message where
        the two changes are not in the proportion 1 : 2 of first order.
    """
    mean, root = changes.mean(axis=0), np.sqrt(len(changes))
    noise = changes.std(axis=0, ddof=1) / root
    allowed = step_bias_bound(mean)
    least = step_bias_bound(np.maximum(np.abs(mean) - 3 * noise, 0.0))
    excess = changes[..., 1] - 2 * changes[..., 0]  # of mean zero at first order
    wrong = np.abs(excess.mean(axis=0)) > allowed + 3 * excess.std(axis=0, ddof=1) / root
    wrong &= ~(excess.mean(axis=0) * mean[..., 0] > 0)  # of higher order: the bound is too large
    doubtful = np.any(wrong & (allowed > _MATTERS * half))
    return allowed, least, (_NOT_FIRST_ORDER,) if doubtful else ()


class Starts(NamedTuple):
    """Start times t, broadcast with the lags of paths, and start points x (..., dim)."""

    t: Any
    x: np.ndarray


def antithetic_mean(
    function: Callable[..., Any],
    simulator: PathSimulator,
    starts: Starts,
    lag: np.ndarray,
    noise: np.ndarray,
) -> list[np.ndarray]:
    """Weighted mean of a function over the ends of two paths, with a noise and its opposite.

    Args:
        function: maps times (n,) and points (n, dim) to an array (n,), or to a tuple of arrays.
        simulator: of the paths.
        starts: where the paths start.
        lag: durations of the paths.
        noise: of the paths, as from `simulator.sample_noise`.

    Returns:
        The mean of each array.
    """
    ends = simulate_pairs(simulator, starts.t, (starts.x, starts.x), lag, noise)
    time = np.broadcast_to(starts.t - lag, ends.position.shape[1:-1])
    results = evaluate_pairs(function, time, ends.position)
    return [(ends.weight * f).mean(axis=0) for f in results]


def simulate_pairs(
    simulator: PathSimulator, t: Any, x: Iterable[np.ndarray], lag: Any, noise: np.ndarray
) -> PathEnd:
    """The ends of antithetic pairs of paths, (2, ...); the two parts of x are where they start."""
    ends = [simulator.simulate(t, y, lag, z) for y, z in zip(x, opposite(noise), strict=True)]
    return PathEnd(
        *(a if isinstance(a, float) else np.stack([a, b]) for a, b in zip(*ends, strict=True))
    )


def opposite(noise: np.ndarray) -> np.ndarray:
    """The noise of both paths of antithetic pairs, (2, ...)."""
    return np.stack([noise, -noise])


def evaluate_pairs(function: Callable[..., Any], t: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
    """A function at the points (2, ..., dim) of antithetic pairs; times t (...) serve both paths.

    Returns:
        The array that the function returns, or its arrays, with the first axes (2, ...).
    """
    results = function(np.tile(t.ravel(), 2), x.reshape(-1, x.shape[-1]))
    arrays = results if isinstance(results, tuple) else (results,)
    return [values.reshape(*x.shape[:-1], *values.shape[1:]) for values in arrays]


def noise_size(problem: CanonicalProblem) -> int:
    """The number of random numbers that one path takes."""
    return int(np.prod(problem.paths.noise_shape(problem.dim)))


def batches(pairs: int, width: int) -> list[slice]:
    """Split `pairs` samples of `width` numbers each so that a batch holds at most `CHUNK`."""
    most = max(1, CHUNK // width)
    return [slice(first, min(first + most, pairs)) for first in range(0, pairs, most)]


def chunks(points: int, pairs: int, width: int) -> list[tuple[slice, slice]]:
    """(points, pairs) such that at most `CHUNK` coordinates are held at once."""
    together = max(1, CHUNK // width // pairs)
    rows = [slice(i, min(i + together, points)) for i in range(0, points, together)]
    return list(itertools.product(rows, batches(pairs, width)))
