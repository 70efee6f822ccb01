"""Where rows are placed: points (t, x) in (0, T] x region for the equation, points x for the initial condition.

To add a placement, write a function like `uniform` and name it in `PLACEMENTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from heatnets.errors import InputError
from heatnets.regions import Box, Region


def uniform(region: Region, horizon: float, count: int, dim: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Independent points: t uniform on (0, T], x drawn from the region (uniform for a box)."""
    return horizon * (1 - rng.random(count)), region.sample(rng, count, dim)


def grid(region: Region, horizon: float, count: int, dim: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
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


Placement = Callable[[Region, float, int, int, np.random.Generator], tuple[np.ndarray, np.ndarray]]
PLACEMENTS: dict[str, Placement] = {"uniform": uniform, "grid": grid}
