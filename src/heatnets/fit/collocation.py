"""Where rows are placed: points (t, x) in (0, T] x region for the equation, points x for the initial condition.

To add a placement, write a function like `uniform` and name it in `PLACEMENTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from heatnets._core.errors import InputError
from heatnets.pde.paths import PathSimulator
from heatnets.pde.regions import Box, Region


def uniform(
    region: Region,
    horizon: float,
    count: int,
    dim: int,
    rng: np.random.Generator,
    walk: PathSimulator | None = None,
    last: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Independent points: t uniform on (0, T], x drawn from the region (uniform for a box)."""
    fraction = 1 - rng.random(count)
    return region.at(fraction, horizon, region.sample(rng, count, dim))


def judged(
    region: Region, horizon: float, count: int, dim: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Where an answer is judged: as `uniform`, but at the end of the time interval where the region is a single point."""
    fraction, x = 1 - rng.random(count), region.sample(rng, count, dim)
    return region.at(np.ones(count) if region.single else fraction, horizon, x)


def grid(
    region: Region,
    horizon: float,
    count: int,
    dim: int,
    rng: np.random.Generator,
    walk: PathSimulator | None = None,
    last: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The paper's grid on (0, T] x box: equal steps, ends included but for t = 0; at most `count` points."""
    check_grid(region, dim)
    assert isinstance(region, Box)
    in_space, in_time = _shape(count, dim)
    low, high = (np.broadcast_to(bound, (dim,)) for bound in (region.low, region.high))
    axes = [np.linspace(low[i], high[i], in_space) for i in range(dim)]
    times = horizon * np.arange(1, in_time + 1) / in_time
    points = np.array(list(product(times, *axes)))
    return points[:, 0], points[:, 1:]


def check_grid(region: Region, dim: int) -> None:
    """Refuse what a grid cannot cover."""
    if not isinstance(region, Box) or dim > 3:
        raise InputError(
            f'`collocation="grid"` needs a Box in at most 3 dimensions; got {type(region).__name__} in {dim}. Use collocation="uniform".'
        )


def _shape(count: int, dim: int) -> tuple[int, int]:
    """Steps per space axis and in time: near count^(1/(1+dim)) each, using up as many of `count` as can be."""
    ideal = count ** (1 / (1 + dim))
    candidates = range(max(1, int(ideal / 1.5)), int(np.ceil(1.5 * ideal)) + 1)
    steps = max(candidates, key=lambda n: (n**dim * (count // n**dim), -abs(n - ideal)))
    return steps, count // steps**dim


def paths(
    region: Region,
    horizon: float,
    count: int,
    dim: int,
    rng: np.random.Generator,
    walk: PathSimulator,
    last: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The region and the paths that lead from it: where the error of an answer in the region comes from.

    From points x of the region, half of them drawn towards its centre by a uniform factor (in high dimension the points of a
    box all lie on one shell, and a fit trained there says nothing about the rest), at times t uniform on (0, T], one in
    eight T itself: half of the rows are (t, x), half (rt, X_{(1-r)t}) on paths X from them with r from `time_fractions`. From a `Point`
    all rows lie on paths, half of them from (T, x); all of them with `last`, as a source that depends on u asks for: rows near the point at early times, where u may be a
    hundred times larger than on paths in high dimension, would take the fit away from those (Allen-Cahn, d = 100: certified half-widths 20 times as wide).
    """
    x = region.sample(rng, count, dim)
    shrink = np.where(rng.random(count) < 0.5, rng.random(count), 1.0)
    x = region.centre + shrink[:, None] * (x - region.centre)
    t, x = region.at(
        np.where(
            rng.random(count) < ((1.0 if last else 0.5) if region.single else 0.125),
            1.0,
            1 - rng.random(count),
        ),
        horizon,
        x,
    )
    stays = rng.random(count) < (0.0 if region.single else 0.5)
    r = np.where(stays, 1.0, time_fractions(rng, count)[0])
    return r * t, walk.go(t, x, (1 - r) * t, walk.draw(rng, (count,), dim)).place


_SHORTEST = 1e-7  # of t


def time_fractions(rng: np.random.Generator, count: Any) -> tuple[np.ndarray, np.ndarray]:
    """Fractions r in (0, 1), half uniform, a quarter log-uniform towards 0 and a quarter towards 1; and their density.

    In high dimension what matters may happen within a time ℓ²/(2Dd) of either end, which uniform draws never see.
    """
    which, u, v = rng.random(count), rng.random(count), _SHORTEST ** rng.random(count)
    r = np.where(which < 0.5, u, np.where(which < 0.75, v, 1 - v))
    r = np.clip(r, _SHORTEST, 1 - _SHORTEST)
    return r, 0.5 + 0.25 * (1 / r + 1 / (1 - r)) / np.log(1 / _SHORTEST)


Placement = Callable[..., tuple[np.ndarray, np.ndarray]]
PLACEMENTS: dict[str, Placement] = {"uniform": uniform, "grid": grid, "paths": paths}
