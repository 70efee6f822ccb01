"""Placement of rows: points (t, x) in (0, T] x region.

To add a placement, write a function like `uniform` and add it to `PLACEMENTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from heatnets._core import streams
from heatnets._core.errors import InputError, check_int
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.problem import Problem
from heatnets.pde.regions import Box, Region

Points = tuple[np.ndarray, np.ndarray]  # t (rows,) and x (rows, dim)


def uniform(
    problem: CanonicalProblem, region: Region, count: int, rng: np.random.Generator
) -> Points:
    """Independent points: t uniform on (0, T], x drawn from the region (uniform for a box)."""
    fraction = 1 - rng.random(count)
    return region.at_fractions(fraction, problem.horizon, region.sample(rng, count, problem.dim))


def sample_points(
    problem: CanonicalProblem | Problem,
    count: int,
    rng: np.random.Generator,
    region: Region | None = None,
) -> Points:
    """Points at which a solution is tested: as `uniform`, but at t = T if the region is a point."""
    region = region or problem.region
    fraction, x = 1 - rng.random(count), region.sample(rng, count, problem.dim)
    return region.at_fractions(np.ones(count) if region.is_point else fraction, problem.horizon, x)


def random_points(problem: Problem, points: int = 6000, seed: int = 0) -> Points:
    """Random points for the measurement of errors, independent of the points of any solve.

    t is uniform on (0, T], or t = T if the region is a `Point`; for terminal-value problems on
    [0, T), or t = 0. x is drawn from the region.

    Args:
        problem: the problem.
        points: number n of points.
        seed: seed of the random stream.

    Returns:
        t of shape (n,) and x of shape (n, dim).
    """
    n = check_int("points", points, 1, "It is the number of test points.")
    rng = streams.generator(streams.check_seed(seed), "test points")
    t, x = sample_points(problem, n, rng)
    return (problem.horizon - t if problem.is_terminal else t), x


def grid(problem: CanonicalProblem, region: Region, count: int, rng: np.random.Generator) -> Points:
    """The grid of the paper on (0, T] x box: equal steps, with end points, without t = 0.

    It has at most `count` points.
    """
    dim = problem.dim
    box = check_grid(region, dim)
    in_space, in_time = _grid_shape(count, dim)
    low, high = (np.broadcast_to(bound, (dim,)) for bound in (box.low, box.high))
    axes = [np.linspace(low[i], high[i], in_space) for i in range(dim)]
    times = problem.horizon * np.arange(1, in_time + 1) / in_time
    points = np.array(list(product(times, *axes)))
    return points[:, 0], points[:, 1:]


def check_grid(region: Region, dim: int) -> Box:
    """Return the region; raise an `InputError` if it cannot be covered by a grid."""
    if not isinstance(region, Box) or dim > 3:
        raise InputError(
            '`collocation="grid"` needs a Box in at most 3 dimensions; '
            f'got {type(region).__name__} in {dim}. Use collocation="uniform".'
        )
    return region


def _grid_shape(count: int, dim: int) -> tuple[int, int]:
    """Steps per space axis and in time: near count^(1/(1+dim)) each, with most points in all."""
    ideal = count ** (1 / (1 + dim))
    candidates = range(max(1, int(ideal / 1.5)), int(np.ceil(1.5 * ideal)) + 1)
    steps = max(candidates, key=lambda n: (n**dim * (count // n**dim), -abs(n - ideal)))
    return steps, count // steps**dim


def paths(
    problem: CanonicalProblem, region: Region, count: int, rng: np.random.Generator
) -> Points:
    """Points of the region and points on random paths from it: where the error comes from.

    Starting points: x in the region, half of them moved towards its centre by a uniform factor (in
    high dimension the points of a box all lie on one shell, and a fit trained there says nothing
    about the rest); t uniform on (0, T], one in eight T itself. Half of the rows are (t, x), half
    are (rt, X_{(1-r)t}) on paths X from (t, x), with r from `time_fractions`.

    From a `Point` all rows lie on paths, half of them from (T, x); all of them if the source
    depends on u: rows near the point at early times, where u may be a hundred times larger than on
    paths in high dimension, would spoil the fit on the paths (Allen-Cahn, d = 100: certified
    half-widths 20 times as wide).
    """
    x = region.sample(rng, count, problem.dim)
    shrink = np.where(rng.random(count) < 0.5, rng.random(count), 1.0)
    x = region.centre + shrink[:, None] * (x - region.centre)
    share_at_end = (1.0 if problem.source.uses_u else 0.5) if region.is_point else 0.125
    fraction = np.where(rng.random(count) < share_at_end, 1.0, 1 - rng.random(count))
    t, x = region.at_fractions(fraction, problem.horizon, x)
    stays = rng.random(count) < (0.0 if region.is_point else 0.5)
    r = np.where(stays, 1.0, time_fractions(rng, count)[0])
    noise = problem.paths.sample_noise(rng, (count,), problem.dim)
    return r * t, problem.paths.simulate(t, x, (1 - r) * t, noise).position


_SHORTEST = 1e-7  # smallest r and 1 - r of `time_fractions`


def time_fractions(rng: np.random.Generator, count: Any) -> tuple[np.ndarray, np.ndarray]:
    """Random fractions r in (0, 1), and their probability density at r.

    Half are uniform, a quarter log-uniform towards 0 and a quarter log-uniform towards 1. In high
    dimension the important part may lie within a time ℓ²/(2Dd) of either end, where uniform draws
    never fall.
    """
    which, u, v = rng.random(count), rng.random(count), _SHORTEST ** rng.random(count)
    r = np.where(which < 0.5, u, np.where(which < 0.75, v, 1 - v))
    r = np.clip(r, _SHORTEST, 1 - _SHORTEST)
    return r, 0.5 + 0.25 * (1 / r + 1 / (1 - r)) / np.log(1 / _SHORTEST)


Placement = Callable[[CanonicalProblem, Region, int, np.random.Generator], Points]
PLACEMENTS: dict[str, Placement] = {"uniform": uniform, "grid": grid, "paths": paths}
