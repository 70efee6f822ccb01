"""Who judges the fits of a growth: points of the region and samples on paths from them, with entries that are computed once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from heatnets import error_equation, intervals, streams
from heatnets.assembly import Points, both_rows, forcing, initial_values, residual_columns, value_columns
from heatnets.features import Feature
from heatnets.operators import Equation
from heatnets.precision import EPS
from heatnets.problem import Problem
from heatnets.tiles import Workshop


class Grain(NamedTuple):
    """The smallest pieces: features and rows per compiled call; judges and last judges as (points, samples on paths from each)."""

    block: int = 16
    strip: int = 256
    judges: tuple[int, int] = (64, 7)
    last_judges: tuple[int, int] = (128, 3)  # rather more points: a small error may be larger in places


@dataclass
class Table:
    """φ and (∂_t - DΔ) φ of a growing list of features at a growing list of points: nothing is computed twice.

    Kept as NumPy arrays on any device: shapes change in every round, and NumPy compiles nothing.
    """

    data: Equation
    shop: Workshop
    strip: int
    points: Points
    blocks: list[Feature] = field(default_factory=list)
    values: np.ndarray = field(init=False)
    residuals: np.ndarray = field(init=False)
    forcing: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.values = self.residuals = np.zeros((len(self.points[0]), 0))
        self.forcing = np.asarray(forcing(self.data, self.points, self.shop))

    def _entries(self, blocks: list[Feature], points: Points, phase: str) -> tuple[Any, ...]:
        return tuple(np.asarray(e) for e in both_rows(self.data, blocks, points, self.shop, phase, self.strip))

    def add_features(self, blocks: list[Feature], phase: str) -> None:
        new = self._entries(blocks, self.points, phase)
        old = (self.values, self.residuals)
        self.values, self.residuals = (np.concatenate(p, axis=1) for p in zip(old, new, strict=True))
        self.blocks = self.blocks + blocks

    def add_points(self, points: Points, phase: str) -> None:
        new = (*self._entries(self.blocks, points, phase), np.asarray(forcing(self.data, points, self.shop)))
        old = (self.values, self.residuals, self.forcing)
        self.values, self.residuals, self.forcing = (np.concatenate(p) for p in zip(old, new, strict=True))
        self.points = (np.concatenate([self.points[0], points[0]]), np.concatenate([self.points[1], points[1]]))


class Judges:
    """Points of the region and samples on paths from them, where fits are judged by the error equation."""

    def __init__(
        self, problem: Problem, data: Equation, shop: Workshop, seed: int, stream: str, size: tuple[int, int], strip: int
    ) -> None:
        self.problem, self.paths = problem, error_equation.paths(problem, *size, seed, stream)
        s, y = self.paths.s.reshape(-1), self.paths.y.reshape(-1, problem.dim)
        self.table = Table(data, shop, strip, (np.concatenate([s, self.paths.t]), np.concatenate([y, self.paths.x])))
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
        residual, value, terms, force = self._residual(weights, columns, degree)
        square = error_equation.mean_square(self.factor[:, None] * (self.paths.weight * residual + self.missed))
        scale, rounding = root_mean_square(value) or 1.0, EPS * root_mean_square(terms)
        size = max(root_mean_square(force), (root_mean_square(value / self.factor) or 1.0) / self.problem.horizon)
        return float(np.hypot(square.root, rounding)) / scale, root_mean_square(residual) / size, size

    def bound(self, weights: np.ndarray, columns: np.ndarray, degree: int) -> float:
        """What the relative error of a fit is below, in 99 of 100 cases; where few points carry the mean, T times the largest residual met instead."""
        residual, value, terms, _ = self._residual(weights, columns, degree)
        found = intervals.relative(self.factor[:, None] * (self.paths.weight * residual + self.missed), value, EPS * terms, 0.98)
        if not found.reasons:
            return float(found.high)
        largest = self.problem.horizon * float(np.max(np.abs(residual))) + float(np.max(np.abs(self.missed)))
        largest *= float(np.max(self.factor)) * max(1.0, float(np.max(self.paths.grown)))
        return float(max(found.high, largest / found.scale))

    def _residual(self, weights: np.ndarray, columns: np.ndarray, degree: int) -> tuple[np.ndarray, ...]:
        """The residual on the paths (P, S); the fit at their starting points and the size of its terms; the source on the paths."""
        n, table = self.paths.s.size, self.table
        t, force = table.points[0], table.forcing[:n]
        T = self.problem.horizon
        A = residual_columns(table.values[:n, columns], table.residuals[:n, columns], t[:n], degree, T)
        V = value_columns(table.values[n:, columns], t[n:], degree, T)
        residual = (force - A @ weights).reshape(self.paths.weight.shape)
        return residual, self.factor * (V @ weights), self.factor * (np.abs(V) @ np.abs(weights)), force


def root_mean_square(values: Any) -> float:
    return error_equation.rms(np.asarray(values))
