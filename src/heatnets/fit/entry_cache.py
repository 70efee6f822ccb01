"""Cache of feature entries: values and residuals of features at points, each computed once.

Both lists, of features and of points, can be extended. Linear systems are built from the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from heatnets._core.execution import ExecutionContext
from heatnets._core.process_group import ALONE, ProcessGroup
from heatnets._core.statistics import rms
from heatnets._core.tiling import weighted_sum
from heatnets.features.features import Equation, Feature
from heatnets.fit.assembly import (
    advection_rows,
    initial_values,
    linearize_source,
    residual_columns,
    source_values,
    time_powers,
    value_and_residual_rows,
)
from heatnets.fit.collocation import Points
from heatnets.fit.network import gradients
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.function_values import format_point

quietly = np.errstate(all="ignore")  # no NumPy warnings: values are checked, with own messages


@dataclass
class EntryCache:
    """Values φ_j and residuals (∂_t - DΔ) φ_j of features at points, (points, features).

    The arrays are NumPy arrays on any device: their shapes change in every round, and NumPy does
    not compile. For a source f(t, x, u, ∇u) that depends on u the cache also holds the source
    linearized at a fit: f ≈ forcing + reaction u + f_p·∇u.
    """

    problem: CanonicalProblem
    data: Equation
    ctx: ExecutionContext
    points: Points
    row_chunk: int | None = None  # rows per compiled call
    processes: ProcessGroup = ALONE  # each has a part of the points, this cache that of this one
    blocks: list[Feature] = field(default_factory=list)
    values: np.ndarray = field(init=False)
    residuals: np.ndarray = field(init=False)
    forcing: np.ndarray = field(init=False)  # right-hand side of the equation rows
    initial: np.ndarray = field(init=False)  # u0 at the points
    reaction: Any = field(init=False, default=None)  # f_u at the fit, (points,)
    advection: Any = field(init=False, default=None)  # f_p·∇φ_j at the fit, (points, features)
    u: Any = field(init=False, default=0.0)  # values of the fit, (points,)
    grad_u: Any = field(init=False, default=0.0)  # gradients of the fit, (points, dim)
    # Values, residuals and times on the device; None if they are not there.
    _sent: tuple[jax.Array, ...] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.values = self.residuals = np.zeros((len(self.points[0]), 0))
        self.forcing = np.asarray(source_values(self.data, self.points, self.ctx))
        self.initial = initial_values(self.data, self.points[1], self.ctx)

    def size(self, values: np.ndarray) -> float:
        """Root mean square of values at the points of all processes; infinite if not finite."""
        mean_square = rms(values) ** 2 if np.all(np.isfinite(values)) else np.inf
        if self.processes.count == 1:
            return rms(values) if np.isfinite(mean_square) else np.inf
        total, count = self.processes.total("size", [mean_square * len(values), len(values)])
        return float(np.sqrt(total / count))

    def largest(self, numbers: Any) -> np.ndarray:
        """Numbers of this process, or those of another one that are larger."""
        return self.processes.largest("largest values", numbers)

    def largest_data(self) -> np.ndarray:
        """The largest |u0| and |right-hand side| at the points of all processes, (2,)."""
        return self.largest([np.max(np.abs(a), initial=0.0) for a in (self.initial, self.forcing)])

    def system(
        self, columns: np.ndarray, degree: int, rows: slice = slice(None)
    ) -> tuple[Any, Any]:
        """Matrix and right-hand side of the equation rows, for some features.

        If the source depends on u, these are the rows of the linearized equation.
        """
        values, residuals = self.values[rows, columns], self.residuals[rows, columns]
        if self.reaction is not None:
            residuals = residuals - self.reaction[rows, None] * values
        if self.advection is not None:
            residuals = residuals - self.advection[rows, columns]
        t, horizon = self.points[0][rows], self.problem.horizon
        return residual_columns(values, residuals, t, degree, horizon), self.forcing[rows]

    def on_device(self, padded_size: Callable[[int], int]) -> tuple[jax.Array, ...]:
        """Values and residuals of all entries, times and right-hand side, on the device.

        Of the linearized equation if the source depends on u. Arrays are padded with zeros. What
        has not changed since the last call is not sent again.

        Args:
            padded_size: maps a number of rows, or of features, to one that is not smaller.
        """
        rows, features = self.values.shape
        extra_rows, extra = padded_size(rows) - rows, padded_size(features) - features

        def send(array: np.ndarray) -> jax.Array:
            widths = ((0, extra_rows), (0, extra))[: array.ndim]
            padded = np.pad(array, widths) if extra_rows + extra else array
            return jax.device_put(padded, self.ctx.device)

        if self._sent is None:
            self._sent = send(self.values), send(self.residuals), send(self.points[0])
        values, residuals, t = self._sent
        if self.reaction is not None:
            residuals = _less_reaction(residuals, values, send(self.reaction))
        if self.advection is not None:
            residuals = residuals - send(self.advection)
        return values, residuals, t, send(self.forcing)

    def fitted(
        self,
        weights: np.ndarray,
        columns: np.ndarray,
        degree: int,
        rows: slice = slice(None),
        *,
        moduli: bool = False,
    ) -> np.ndarray:
        """Values of the fit with these weights, (rows,).

        With `moduli` the sums of |w_j φ_j|: how large the terms of the fit are.
        """
        values, W = self.values[rows], self._scatter(weights, columns, degree)
        p, _ = time_powers(self.points[0][rows] / self.problem.horizon, degree)
        if moduli:
            values, W = np.abs(values), np.abs(W)
        return np.sum((values @ W) * p, axis=1)

    def residual(
        self, weights: np.ndarray, columns: np.ndarray, degree: int, rows: slice = slice(None)
    ) -> np.ndarray:
        """Residual F - (∂_t - L) ũ of the fit with these weights, (rows,).

        The same as b - A w with the `system` (A, b), without forming A. If the source depends on
        u, the residual is that of the linearized equation.
        """
        W, horizon = self._scatter(weights, columns, degree), self.problem.horizon
        p, dp = time_powers(self.points[0][rows] / horizon, degree)
        values, residuals = self.values[rows] @ W, self.residuals[rows] @ W
        if self.reaction is not None:
            residuals = residuals - self.reaction[rows, None] * values
        if self.advection is not None:
            residuals = residuals - self.advection[rows] @ W
        return self.forcing[rows] - np.sum(residuals * p + values * (dp / horizon), axis=1)

    def _scatter(self, weights: np.ndarray, columns: np.ndarray, degree: int) -> np.ndarray:
        """Weights of all features, (features, degree + 1), zero for those not in `columns`."""
        W = np.zeros((self.values.shape[1], degree + 1))
        W[columns] = weights.reshape(degree + 1, -1).T
        return W

    @quietly
    def linearize(self, weights: np.ndarray, degree: int, picard: bool = False) -> np.ndarray:
        """Linearize a source that depends on u at a fit of the first columns.

        With `picard` only the value of the source is used, not its derivatives. Returns the fit at
        the points, (points,).
        """
        source = self.problem.source
        count = len(weights) // (degree + 1)
        self.u = self.fitted(weights, np.arange(count), degree)
        self.grad_u = np.zeros_like(self.points[1])
        if source.uses_gradient:
            self.grad_u = self._gradients(weights.reshape(degree + 1, count))
        local = linearize_source(source, self.points, self.u, self.grad_u, self.ctx)
        if picard:
            self.forcing, self.reaction, self.advection = local.value, None, None
            return self.u
        self.reaction = local.d_u
        self.forcing = local.value - local.d_u * self.u - np.sum(local.d_grad * self.grad_u, axis=1)
        if source.uses_gradient:
            points = (*self.points, local.d_grad)
            self.advection = np.asarray(
                advection_rows(self.data, self.blocks, points, self.ctx, "tangent", self.row_chunk)
            )
        return self.u

    def _gradients(self, weights: np.ndarray) -> np.ndarray:
        """∇ of the fit of the first columns, (points, dim); `weights` (degree + 1, features)."""
        (powers, count), first = weights.shape, 0
        scaled = (weights / self.problem.horizon ** np.arange(powers)[:, None]).T
        total = np.zeros_like(self.points[1])
        floats = 2 * self.data.value_workspace(self.problem.dim)
        for block in self.blocks:
            size = len(block.initial_coefficient)
            if first < count and size:
                weighted = [(block, jnp.asarray(scaled[first : first + size]))]
                total = total + weighted_sum(
                    gradients, weighted, self.data, self.points, floats, self.ctx, label="tangent"
                )
            first += size
        return total

    @quietly
    def nonfinite_message(self) -> str:
        """Message that says where the linearized source is not finite; "" if it is finite."""
        linearized = self.forcing if self.reaction is None else self.forcing + self.reaction
        bad = np.flatnonzero(~np.isfinite(linearized))
        if not bad.size:
            return ""
        k = int(bad[0])
        return (
            f"`source`, or its derivative in u, is not finite at {bad.size} of "
            f"{len(self.forcing)} rows, for example at "
            f"{format_point([p[k] for p in self.points])}, u = {self.u[k]:.3g}"
        )

    def linearization_change(self, error: float) -> float:
        """How much the derivatives of the source change over the error of the fit.

        T |Δf_u| + √(T/A) |Δf_p|, where the fit and its gradient change by the relative `error` in
        both directions; the 95 % quantile over the points.
        """
        T = self.problem.horizon
        smallest_deviation = float(np.min(self.problem.diffusion.std))
        size = error * rms(self.u)
        centre, *shifted = (
            linearize_source(
                self.problem.source,
                self.points,
                self.u + k * size,
                (1 + k * error) * self.grad_u,
                self.ctx,
            )
            for k in (0, -1, 1)
        )
        changes = [
            T * np.abs(source.d_u - centre.d_u)
            + np.sqrt(T)
            / smallest_deviation
            * np.linalg.norm(source.d_grad - centre.d_grad, axis=1)
            for source in shifted
        ]
        return float(np.quantile(np.stack(changes), 0.95))

    @quietly
    def misfit(self, weights: np.ndarray, degree: int) -> float:
        """Root mean square residual of the rows, for a fit of the first columns.

        The source must be linearised at this fit. Infinite if a residual is not finite.
        """
        return self.size(self.residual(weights, np.arange(len(weights) // (degree + 1)), degree))

    def add_features(self, blocks: list[Feature], label: str) -> None:
        """Append features: compute their entries at all points."""
        new = value_and_residual_rows(
            self.data, blocks, self.points, self.ctx, label, self.row_chunk
        )
        self.values, self.residuals = (
            np.concatenate([old, np.asarray(entries)], axis=1)
            for old, entries in zip((self.values, self.residuals), new, strict=True)
        )
        self.blocks, self._sent = self.blocks + blocks, None

    def add_points(self, points: Points, label: str) -> None:
        """Append points: compute the entries of all features there."""
        new = EntryCache(self.problem, self.data, self.ctx, points, self.row_chunk)
        new.add_features(self.blocks, label)
        for name in ("values", "residuals", "forcing", "initial"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(new, name)]))
        self._sent = None
        (t, x), (t_new, x_new) = self.points, points
        self.points = (np.concatenate([t, t_new]), np.concatenate([x, x_new]))


@jax.jit
def _less_reaction(residuals: Array, values: Array, reaction: Array) -> Array:
    """Residuals of the linearized equation, for a source with the derivative `reaction` in u."""
    return residuals - reaction[:, None] * values
