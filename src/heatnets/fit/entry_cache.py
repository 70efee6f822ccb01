"""Entries of a growing list of features at a growing list of points, and the rows that they make: nothing is computed twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from heatnets._core.execution import ExecutionContext
from heatnets._core.statistics import rms
from heatnets._core.tiling import contract
from heatnets.features.equation import Equation
from heatnets.features.features import Feature
from heatnets.fit.assembly import (
    Points,
    both_rows,
    drag_rows,
    forcing,
    initial_values,
    powers,
    residual_columns,
    tangent,
    value_columns,
)
from heatnets.fit.network import gradients
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.function import place

quietly = np.errstate(all="ignore")  # what is not finite is said in words


@dataclass
class Table:
    """φ and (∂_t - DΔ) φ of features at points.

    Kept as NumPy arrays on any device: shapes change in every round, and NumPy compiles nothing.
    """

    problem: CanonicalProblem
    data: Equation
    ctx: ExecutionContext
    points: Points
    strip: int | None = None
    blocks: list[Feature] = field(default_factory=list)
    values: np.ndarray = field(init=False)
    residuals: np.ndarray = field(init=False)
    forcing: np.ndarray = field(init=False)
    initial: np.ndarray = field(init=False)  # u0 at the points
    reaction: Any = field(init=False, default=0.0)  # of the tangent, where the source depends on u
    drag: Any = field(
        init=False, default=None
    )  # the tangent's drift times the slope of each feature
    fit: Any = field(init=False, default=0.0)  # whose tangent it is, at the points
    slope: Any = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.values = self.residuals = np.zeros((len(self.points[0]), 0))
        self.forcing = np.asarray(forcing(self.data, self.points, self.ctx))
        self.initial = initial_values(self.data, self.points[1], self.ctx)

    def system(
        self, columns: np.ndarray, degree: int, rows: slice = slice(None)
    ) -> tuple[Any, Any]:
        """The equation's rows for some columns, and their right-hand side; of the tangent where the source depends on u."""
        values, residuals, t = (
            self.values[rows, columns],
            self.residuals[rows, columns],
            self.points[0][rows],
        )
        if self.problem.nonlinear is not None:
            residuals = (
                residuals
                - np.broadcast_to(self.reaction, self.points[0].shape)[rows, None] * values
            )
            residuals = residuals if self.drag is None else residuals - self.drag[rows, columns]
        return residual_columns(values, residuals, t, degree, self.problem.horizon), self.forcing[
            rows
        ]

    def fitted(self, weights: np.ndarray, columns: np.ndarray, degree: int) -> np.ndarray:
        """A fit of some columns at the points."""
        p, _ = powers(self.points[0] / self.problem.horizon, degree)
        return np.sum((self.values[:, columns] @ weights.reshape(degree + 1, -1).T) * p, axis=1)

    @quietly
    def linearise(self, weights: np.ndarray, degree: int, picard: bool = False) -> np.ndarray:
        """Take the tangent of a source that depends on u at a fit of the first columns; for Picard's iteration, its value alone. Returns the fit at the points."""
        nonlinear, horizon = self.problem.nonlinear, self.problem.horizon
        assert nonlinear is not None
        t, x = self.points
        count = len(weights) // (degree + 1)
        u, du = (
            value_columns(self.values[:, :count], t, degree, horizon) @ weights,
            np.zeros_like(x),
        )
        if nonlinear.slopes:
            scaled = (
                weights.reshape(degree + 1, count) / horizon ** np.arange(degree + 1)[:, None]
            ).T
            first = 0
            for block in self.blocks:
                size = len(block.start)
                if first < count and size:
                    own = [(block, jnp.asarray(scaled[first : first + size]))]
                    du = du + contract(
                        gradients, own, self.data, self.points, 8 * x.shape[1], self.ctx, "tangent"
                    )
                first += size
        self.fit, self.slope, there = u, du, tangent(nonlinear, self.points, u, du, self.ctx)
        if picard:
            self.reaction, self.forcing, self.drag = 0.0, there.force, None
            return u
        self.reaction, self.forcing = (
            there.d_u,
            there.force - there.d_u * u - np.sum(there.d_grad * du, axis=1),
        )
        if nonlinear.slopes:
            self.drag = np.asarray(
                drag_rows(
                    self.data,
                    self.blocks,
                    self.points,
                    there.d_grad,
                    self.ctx,
                    "tangent",
                    self.strip,
                )
            )
        return u

    @quietly
    def complaint(self) -> str:
        """Where the tangent is not finite, in words; none where it is."""
        bad = np.flatnonzero(~np.isfinite(self.forcing + self.reaction))
        if not bad.size:
            return ""
        k = int(bad[0])
        return (
            f"`source`, or its derivative in u, is not finite at {bad.size} of {len(self.forcing)} rows, for example at "
            f"{place([p[k] for p in self.points])}, u = {self.fit[k]:.3g}"
        )

    def bend(self, error: float) -> float:
        """T times the change of f_u, plus √(T/A) times that of f_p, when the fit and its slope change by a relative error either way; the largest but for one point in twenty."""
        nonlinear, T = self.problem.nonlinear, self.problem.horizon
        assert nonlinear is not None
        size, found = error * rms(self.fit), []
        here = tangent(nonlinear, self.points, self.fit, self.slope, self.ctx)
        narrow = float(np.min(self.problem.diffusion.deviations))
        for k in (-1, 1):
            there = tangent(
                nonlinear, self.points, self.fit + k * size, (1 + k * error) * self.slope, self.ctx
            )
            d_grad = np.linalg.norm(there.d_grad - here.d_grad, axis=1)
            found.append(T * np.abs(there.d_u - here.d_u) + np.sqrt(T) / narrow * d_grad)
        return float(np.quantile(np.stack(found), 0.95))

    @quietly
    def misfit(self, weights: np.ndarray, degree: int) -> float:
        """How far the rows are from being met by a fit of the first columns, whose tangent they have."""
        A, b = self.system(np.arange(len(weights) // (degree + 1)), degree)
        left = A @ weights - b
        return rms(left) if np.all(np.isfinite(left)) else np.inf

    def _entries(self, blocks: list[Feature], points: Points, phase: str) -> tuple[Any, ...]:
        return tuple(
            np.asarray(e) for e in both_rows(self.data, blocks, points, self.ctx, phase, self.strip)
        )

    def add_features(self, blocks: list[Feature], phase: str) -> None:
        new = self._entries(blocks, self.points, phase)
        old = (self.values, self.residuals)
        self.values, self.residuals = (
            np.concatenate(p, axis=1) for p in zip(old, new, strict=True)
        )
        self.blocks = self.blocks + blocks

    def add_points(self, points: Points, phase: str) -> None:
        new = (
            *self._entries(self.blocks, points, phase),
            np.asarray(forcing(self.data, points, self.ctx)),
        )
        old = (self.values, self.residuals, self.forcing)
        self.values, self.residuals, self.forcing = (
            np.concatenate(p) for p in zip(old, new, strict=True)
        )
        self.initial = np.concatenate(
            [self.initial, initial_values(self.data, points[1], self.ctx)]
        )
        self.points = (
            np.concatenate([self.points[0], points[0]]),
            np.concatenate([self.points[1], points[1]]),
        )
