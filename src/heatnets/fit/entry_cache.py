"""Cache of feature entries: values and residuals of features at points, each computed once.

Both lists, of features and of points, can be extended. Linear systems are built from the cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from heatnets._core.execution import ExecutionContext
from heatnets._core.statistics import rms
from heatnets._core.tiling import weighted_sum
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

quietly = np.errstate(all="ignore")  # no NumPy warnings: values are checked, with own messages


@dataclass
class EntryCache:
    """Values φ_j and residuals (∂_t - DΔ) φ_j of features at points, (points, features).

    The arrays are NumPy arrays on any device: their shapes change in every round, and NumPy does
    not compile. For a source f(t, x, u, ∇u) that depends on u the table also holds the source
    linearised at a fit: f ≈ forcing + reaction u + (f_p)·∇u.
    """

    problem: CanonicalProblem
    data: Equation
    ctx: ExecutionContext
    points: Points
    strip: int | None = None  # rows per compiled call
    blocks: list[Feature] = field(default_factory=list)
    values: np.ndarray = field(init=False)
    residuals: np.ndarray = field(init=False)
    forcing: np.ndarray = field(init=False)  # right-hand side of the equation rows
    initial: np.ndarray = field(init=False)  # u0 at the points
    reaction: Any = field(init=False, default=0.0)  # f_u at the fit
    drag: Any = field(
        init=False, default=None
    )  # f_p·∇φ_j, f_p the derivative of f in ∇u at the fit
    fit: Any = field(init=False, default=0.0)  # values of the fit at the points
    slope: Any = field(init=False, default=0.0)  # gradients of the fit at the points

    def __post_init__(self) -> None:
        self.values = self.residuals = np.zeros((len(self.points[0]), 0))
        self.forcing = np.asarray(forcing(self.data, self.points, self.ctx))
        self.initial = initial_values(self.data, self.points[1], self.ctx)

    def system(
        self, columns: np.ndarray, degree: int, rows: slice = slice(None)
    ) -> tuple[Any, Any]:
        """Matrix and right-hand side of the equation rows, for some features.

        If the source depends on u, these are the rows of the linearised equation.
        """
        values, residuals = self.values[rows, columns], self.residuals[rows, columns]
        t, horizon = self.points[0][rows], self.problem.horizon
        if self.problem.nonlinear is not None:
            reaction = np.broadcast_to(self.reaction, self.points[0].shape)
            residuals = residuals - reaction[rows, None] * values
            residuals = residuals if self.drag is None else residuals - self.drag[rows, columns]
        return residual_columns(values, residuals, t, degree, horizon), self.forcing[rows]

    def fitted(self, weights: np.ndarray, columns: np.ndarray, degree: int) -> np.ndarray:
        """Values at the points of the fit with these weights, (points,)."""
        p, _ = powers(self.points[0] / self.problem.horizon, degree)
        return np.sum((self.values[:, columns] @ weights.reshape(degree + 1, -1).T) * p, axis=1)

    @quietly
    def linearise(self, weights: np.ndarray, degree: int, picard: bool = False) -> np.ndarray:
        """Linearise a source that depends on u at a fit of the first columns.

        With `picard` only the value of the source is used, not its derivatives. Returns the fit at
        the points, (points,).
        """
        nonlinear, horizon = self.problem.nonlinear, self.problem.horizon
        assert nonlinear is not None
        t, x = self.points
        count = len(weights) // (degree + 1)
        u = value_columns(self.values[:, :count], t, degree, horizon) @ weights
        du = np.zeros_like(x)
        if nonlinear.uses_gradient:
            scaled = (
                weights.reshape(degree + 1, count) / horizon ** np.arange(degree + 1)[:, None]
            ).T
            first = 0
            for block in self.blocks:
                size = len(block.start)
                if first < count and size:
                    weighted = [(block, jnp.asarray(scaled[first : first + size]))]
                    floats = 8 * x.shape[1]
                    du = du + weighted_sum(
                        gradients, weighted, self.data, self.points, floats, self.ctx, "tangent"
                    )
                first += size
        self.fit, self.slope = u, du
        source = tangent(nonlinear, self.points, u, du, self.ctx)
        if picard:
            self.reaction, self.forcing, self.drag = 0.0, source.value, None
            return u
        self.reaction = source.d_u
        self.forcing = source.value - source.d_u * u - np.sum(source.d_grad * du, axis=1)
        if nonlinear.uses_gradient:
            drag = drag_rows(
                self.data, self.blocks, self.points, source.d_grad, self.ctx, "tangent", self.strip
            )
            self.drag = np.asarray(drag)
        return u

    @quietly
    def complaint(self) -> str:
        """Message that says where the linearised source is not finite; "" if it is finite."""
        bad = np.flatnonzero(~np.isfinite(self.forcing + self.reaction))
        if not bad.size:
            return ""
        k = int(bad[0])
        return (
            f"`source`, or its derivative in u, is not finite at {bad.size} of "
            f"{len(self.forcing)} rows, for example at "
            f"{place([p[k] for p in self.points])}, u = {self.fit[k]:.3g}"
        )

    def bend(self, error: float) -> float:
        """How much the derivatives of the source change over the error of the fit.

        T |Δf_u| + √(T/A) |Δf_p|, where the fit and its gradient change by the relative `error` in
        both directions; the 95 % quantile over the points.
        """
        nonlinear, T = self.problem.nonlinear, self.problem.horizon
        assert nonlinear is not None
        size, changes = error * rms(self.fit), []
        centre = tangent(nonlinear, self.points, self.fit, self.slope, self.ctx)
        smallest_deviation = float(np.min(self.problem.diffusion.deviations))
        for k in (-1, 1):
            u, du = self.fit + k * size, (1 + k * error) * self.slope
            shifted = tangent(nonlinear, self.points, u, du, self.ctx)
            d_u = np.abs(shifted.d_u - centre.d_u)
            d_grad = np.linalg.norm(shifted.d_grad - centre.d_grad, axis=1)
            changes.append(T * d_u + np.sqrt(T) / smallest_deviation * d_grad)
        return float(np.quantile(np.stack(changes), 0.95))

    @quietly
    def misfit(self, weights: np.ndarray, degree: int) -> float:
        """Root mean square residual of the rows, for a fit of the first columns.

        The source must be linearised at this fit. Infinite if a residual is not finite.
        """
        A, b = self.system(np.arange(len(weights) // (degree + 1)), degree)
        residual = A @ weights - b
        return rms(residual) if np.all(np.isfinite(residual)) else np.inf

    def _compute_entries(
        self, blocks: list[Feature], points: Points, phase: str
    ) -> tuple[Any, ...]:
        """Values and residuals of features at points."""
        entries = both_rows(self.data, blocks, points, self.ctx, phase, self.strip)
        return tuple(np.asarray(entry) for entry in entries)

    def add_features(self, blocks: list[Feature], phase: str) -> None:
        """Append features: compute their entries at all points."""
        new = self._compute_entries(blocks, self.points, phase)
        old = (self.values, self.residuals)
        self.values, self.residuals = (
            np.concatenate(pair, axis=1) for pair in zip(old, new, strict=True)
        )
        self.blocks = self.blocks + blocks

    def add_points(self, points: Points, phase: str) -> None:
        """Append points: compute the entries of all features there."""
        values, residuals = self._compute_entries(self.blocks, points, phase)
        new = (values, residuals, np.asarray(forcing(self.data, points, self.ctx)))
        old = (self.values, self.residuals, self.forcing)
        self.values, self.residuals, self.forcing = (
            np.concatenate(pair) for pair in zip(old, new, strict=True)
        )
        new_initial = initial_values(self.data, points[1], self.ctx)
        self.initial = np.concatenate([self.initial, new_initial])
        t, x = self.points
        self.points = (np.concatenate([t, points[0]]), np.concatenate([x, points[1]]))
