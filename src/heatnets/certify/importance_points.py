"""Random points of (0, T] x region at which an error is measured, by importance sampling.

Points are chosen from a larger pool of random points, more of them where an error is likely to be
large, and weighted so that means over the region stay unbiased.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from heatnets._core.precision import EPS
from heatnets._core.statistics import Pool

_UNIFORM = 0.5  # share of the probability that is uniform over the pool


class WeightedPoints(NamedTuple):
    """P points t (P,), x (P, dim) with weights (P,), chosen from `pool` random points.

    Weighted means over the points estimate means over (0, T] x region. `pool` is 0 where the
    points themselves are random points of the region.
    """

    t: np.ndarray
    x: np.ndarray
    weight: np.ndarray
    pool: int

    @property
    def statistics(self) -> Pool:
        """The weights and the size of the pool, for the noise of means."""
        return Pool(self.weight, self.pool)


def choose_points(
    t: np.ndarray,
    x: np.ndarray,
    importances: Sequence[np.ndarray],
    count: int,
    rng: np.random.Generator,
    uniform: float = _UNIFORM,
) -> WeightedPoints:
    """Choose `count` of n random points t (n,), x (n, dim), with replacement.

    A share `uniform` of the probability, by default half, is uniform. The rest is shared equally by
    the importances, arrays (n,) of likely sizes of the error: each share is proportional to the
    square of one of them, as errors count in a mean square. No weight is then larger than
    1 / uniform.
    """
    probability = np.full(len(t), uniform / len(t))
    for importance in importances:
        squares = (importance / (float(np.max(importance)) or 1.0)) ** 2
        share = (1 - uniform) / len(importances)
        probability += share * squares / max(float(np.sum(squares)), 1e-300)
    probability /= np.sum(probability)
    chosen = rng.choice(len(t), count, p=probability)
    return WeightedPoints(t[chosen], x[chosen], 1 / (len(t) * probability[chosen]), len(t))


def mean_squared_score(columns: np.ndarray) -> np.ndarray:
    """Mean over columns of the squared standard scores of each row: (n, columns) -> (n,).

    A row with a large score carries much of the variance of the columns. Columns without variance
    do not count.
    """
    scale = np.max(np.abs(columns), axis=0)
    varying = columns[:, scale > 0] / scale[scale > 0]
    deviations = varying - varying.mean(axis=0)
    variance = np.mean(deviations**2, axis=0)
    usable = variance > EPS**2
    if not np.any(usable):
        return np.zeros(len(columns))
    return np.mean(deviations[:, usable] ** 2 / variance[usable], axis=1)
