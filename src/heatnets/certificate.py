"""The error equation: the error of a fit obeys the same PDE as the solution, so samples of its residual estimate it.

With R = F - (∂_t - DΔ)ũ and ũ(0, ·) = u0,   u(t, x) - ũ(t, x) = t E[R(rt, x + √(2D(1-r)t) ξ)] for smooth data. Samples of the
right-hand side are unbiased corrections, whatever ũ is; their mean square over a region is debiased by multiplying
independent ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from heatnets import streams
from heatnets.collocation import time_fractions, uniform
from heatnets.problem import Problem
from heatnets.regions import Point


class Paths(NamedTuple):
    """Points (t, x) of the region, P of them, and samples (s, y) on paths from each, P x S, with the weight of R there."""

    t: np.ndarray
    x: np.ndarray
    s: np.ndarray
    y: np.ndarray
    weight: np.ndarray


class Square(NamedTuple):
    """A mean square, estimated without bias, and its standard error, both in units of `unit`²."""

    mean: float
    noise: float
    unit: float

    @property
    def root(self) -> float:
        """The root of the mean square plus one standard error. Errors have heavy tails: it can be too small by a factor of three."""
        return self.unit * float(np.sqrt(max(self.mean, 0.0) + self.noise))


def paths(problem: Problem, points: int, samples: int, seed: int, stream: str) -> Paths:
    """Independent points of (0, T] x region (of t = T for a `Point`) and independent samples of the error equation there."""
    rng = streams.generator(seed, stream)
    t, x = uniform(problem.region, problem.horizon, points, problem.dim, rng)
    if isinstance(problem.region, Point):
        t = np.full(points, problem.horizon)
    r, density = time_fractions(rng, (points, samples))
    lag = (1 - r) * t[:, None]
    y = x[:, None] + np.sqrt(2 * problem.diffusion * lag)[..., None] * rng.standard_normal((points, samples, problem.dim))
    return Paths(t, x, r * t[:, None], y, t[:, None] / density)


def mean_square(corrections: np.ndarray) -> Square:
    """The mean over points of the squared expected correction, from samples (P, S): products of different samples only."""
    size = float(np.max(np.abs(corrections))) or 1.0  # squares of small numbers underflow
    scaled = corrections / size
    total, own = scaled.sum(axis=1), (scaled**2).sum(axis=1)
    samples = corrections.shape[1]
    products = (total**2 - own) / (samples * (samples - 1))
    return Square(float(products.mean()), float(products.std(ddof=1) / np.sqrt(len(products))), size)


def rms(values: np.ndarray) -> float:
    """Root mean square, without underflow."""
    size = float(np.max(np.abs(values))) or 1.0
    return size * float(np.sqrt(np.mean((values / size) ** 2)))
