"""Who judges the fits of a growth: points of the region and samples on paths from them, with entries that are computed once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from heatnets import error_equation, intervals, streams
from heatnets.assembly import initial_values, value_columns
from heatnets.operators import Equation
from heatnets.precision import EPS
from heatnets.problem import Problem
from heatnets.tables import Table
from heatnets.tiles import Workshop

_MOST = 30.0  # the exponent of an error's growth that is believed


class Grain(NamedTuple):
    """The smallest pieces: features and rows per compiled call; judges and last judges as (points, samples on paths from each)."""

    block: int = 16
    strip: int = 256
    judges: tuple[int, int] = (64, 7)
    last_judges: tuple[int, int] = (128, 3)  # rather more points: a small error may be larger in places

    @classmethod
    def of(cls, words: list[Any]) -> Grain:
        """One that was kept."""
        return cls(words[0], words[1], tuple(words[2]), tuple(words[3]))


class Judges:
    """Points of the region and samples on paths from them, where fits are judged by the error equation."""

    def __init__(
        self, problem: Problem, data: Equation, shop: Workshop, seed: int, stream: str, size: tuple[int, int], strip: int
    ) -> None:
        self.problem, self.paths = problem, error_equation.paths(problem, *size, seed, stream)
        s, y = self.paths.s.reshape(-1), self.paths.y.reshape(-1, problem.dim)
        points = np.concatenate([s, self.paths.t]), np.concatenate([y, self.paths.x])
        self.table = Table(problem, data, shop, points, strip)
        self.missed: Any = 0.0
        self.factor = np.broadcast_to(problem.amplitude(self.paths.t), self.paths.t.shape)  # from v to u
        if (
            problem.starts_at_zero
        ):  # u0 was zero wherever it was looked at, and has no features: look again, at the ends of these paths
            p = self.paths
            rng = streams.generator(seed, f"{stream}, further")
            ends = problem.walk.go(p.s, p.y, p.s, problem.walk.draw(rng, p.s.shape, problem.dim))
            found = initial_values(data, ends.place.reshape(-1, problem.dim), shop).reshape(p.s.shape)
            self.missed = p.grown * ends.weight * found

    def error(self, weights: np.ndarray, columns: np.ndarray, degree: int) -> tuple[float, float, float]:
        """The relative error of a fit, one standard error added; its relative residual; and what residuals are relative to."""
        residual, grown, value, terms, force = self._residual(weights, columns, degree)
        square = error_equation.mean_square(self.factor[:, None] * (self.paths.weight * grown * residual + self.missed))
        scale, rounding = root_mean_square(value) or 1.0, EPS * root_mean_square(terms)
        size = max(root_mean_square(force), (root_mean_square(value / self.factor) or 1.0) / self.problem.horizon)
        return float(np.hypot(square.root, rounding)) / scale, root_mean_square(residual) / size, size

    def bound(self, weights: np.ndarray, columns: np.ndarray, degree: int) -> float:
        """What the relative error of a fit is below, in 99 of 100 cases; where few points carry the mean, T times the largest residual met instead."""
        residual, grown, value, terms, _ = self._residual(weights, columns, degree)
        corrections = self.factor[:, None] * (self.paths.weight * grown * residual + self.missed)
        found = intervals.relative(corrections, value, EPS * terms, 0.98)
        if not found.reasons:
            return float(found.high)
        largest = self.problem.horizon * float(np.max(np.abs(np.maximum(grown, 1.0) * residual))) + float(
            np.max(np.abs(self.missed))
        )
        largest *= float(np.max(self.factor)) * max(1.0, float(np.max(self.paths.grown)))
        return float(max(found.high, largest / found.scale))

    def _residual(self, weights: np.ndarray, columns: np.ndarray, degree: int) -> tuple[np.ndarray, ...]:
        """The residual on the paths (P, S), and by how much an error made there grows on the way; the fit at their starting points and the size of its terms; the source on the paths."""
        n, table = self.paths.s.size, self.table
        A, force = table.system(columns, degree, slice(n))
        V = value_columns(table.values[n:, columns], table.points[0][n:], degree, self.problem.horizon)
        residual, grown = (force - A @ weights).reshape(self.paths.weight.shape), np.ones(())
        if self.problem.nonlinear is not None:  # the mean of f_u at both ends of the way
            lag = self.paths.t[:, None] - self.paths.s
            rate = 0.5 * (table.reaction[:n].reshape(lag.shape) + table.reaction[n:, None])
            grown = np.exp(np.clip(rate * lag, -_MOST, _MOST))
        return residual, grown, self.factor * (V @ weights), self.factor * (np.abs(V) @ np.abs(weights)), force


def root_mean_square(values: Any) -> float:
    return error_equation.rms(np.asarray(values))
