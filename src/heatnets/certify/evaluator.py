"""What certificates evaluate: a network ũ, the data of its problem, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Array

from heatnets._core.execution import ExecutionContext, Progress
from heatnets._core.precision import EPS
from heatnets._core.tiling import map_points, weighted_sum
from heatnets.certify import linearization
from heatnets.features.equation import build_equation, to_jax
from heatnets.features.features import Equation, Feature
from heatnets.fit import network
from heatnets.fit.assembly import initial_values, source_values, time_powers
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.laplacian import NO_LAPLACIAN

Points = tuple[np.ndarray, ...]  # t (n,), x (n, dim), and more arrays with a first axis n


class NetworkEvaluator:
    """A network ũ and the data of its problem, at canonical points t (n,) and x (n, dim).

    Gradients have the shape (n, dim), all else (n,). Second derivatives are along the curves
    x + εw + ½ε²c with w and c of shape (n, dim).

    Attributes:
        canonical: the problem that the network solves.
        ctx: where to run.
        initial_defect: the factor in e0 = u0 - ũ(0, ·) = initial_defect · u0.
        gradient_cost: cost of one gradient of ũ, in evaluations of the data.
    """

    def __init__(
        self,
        canonical: CanonicalProblem,
        data: Equation,
        blocks: list[tuple[Feature, Array]],
        seed: int,
        ctx: ExecutionContext,
    ) -> None:
        self.canonical, self._data, self._blocks = canonical, data, blocks
        self._seed, self.ctx, self._dim = seed, ctx, canonical.dim
        self._floats = data.value_workspace(canonical.dim)
        starts = np.concatenate(
            [np.asarray(block.initial_coefficient) * np.asarray(w)[:, 0] for block, w in blocks]
            or [np.zeros(0)]
        )
        defect = 1 - float(np.sum(starts))
        # A defect that is rounding is held by the bound for rounding errors of ũ.
        is_rounding = abs(defect) <= 4 * EPS * float(np.sum(np.abs(starts)))
        self.initial_defect = 0.0 if is_rounding else defect
        # Features come in pairs, and a gradient costs about three values.
        self.gradient_cost = 6 * sum(len(w) for _, w in blocks)

    @contextmanager
    def reporting(self, progress: Progress) -> Iterator[None]:
        """Report each piece of work to a callback."""
        quiet = self.ctx
        self.ctx = replace(quiet, progress=progress)
        try:
            yield
        finally:
            self.ctx = quiet

    @cached_property
    def error_problem(self) -> CanonicalProblem:
        """The linear problem that the error of the network solves."""
        return linearization.linearize(self.canonical, self._linearization[1])

    @cached_property
    def _linearization(self) -> tuple[Any, linearization.Fit]:
        """The source, and the network at which it is linearized."""
        return self.canonical.source, linearization.Fit(self._data, self._blocks)

    @cached_property
    def with_laplacians(self) -> Equation:
        """The equation with Laplacians, also where the weights were found without them."""
        if NO_LAPLACIAN.name not in self._data.laplacian_methods.values():
            return self._data
        with self.ctx.active():
            return build_equation(self.canonical, self._seed)[0]

    def _sum(
        self, terms: Callable[..., Any], data: Equation, workspace: int, points: Points
    ) -> Any:
        """Sum `terms` over all features at n points."""
        with self.ctx.active():
            return weighted_sum(terms, self._blocks, data, points, workspace, self.ctx, label="")

    def _map(self, function: Callable[..., Any], data: Any, workspace: int, points: Points) -> Any:
        """Evaluate a function of the data at n points; the workspace is in multiples of dim."""
        with self.ctx.active():
            return map_points(function, data, points, workspace * self._dim, self.ctx)

    def value(self, *points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """ũ, and Σ |w_j φ_j|: the scale of its rounding errors."""
        return self._sum(network.values_with_abs_sum, self._data, self._floats, points)

    def quadrature_error(self, t: np.ndarray, of_one: np.ndarray | None = None) -> np.ndarray:
        """Bound for the error of features that are integrals: that of one times Σ |w_j(t)|.

        `of_one` (n,) is the error of one feature, where it is known to be larger than usual.
        """
        rule = self.canonical.preintegration
        if rule is None:
            return np.zeros_like(t)
        sizes = (
            np.sum(np.abs(time_powers(t, w.shape[1] - 1)[0] @ np.asarray(w).T), axis=1)
            for _, w in self._blocks
        )
        return np.maximum(rule.error, 0.0 if of_one is None else of_one) * sum(sizes)

    def gradient(self, *points: np.ndarray) -> np.ndarray:
        """∇ũ."""
        return self._sum(network.gradients, self._data, 2 * self._floats, points)

    def second_derivative(self, *curves: np.ndarray) -> np.ndarray:
        """The second derivative of ũ along curves (t, x, w, c)."""
        return self._sum(network.second_derivatives, self._data, 4 * self._floats, curves)

    def residual(self, *points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """R = F - (∂_t - div A ∇)ũ, and the sum of |its terms|."""
        left, size = self._left_side(network.residuals_with_abs_sum, 1, points)
        return self.source_at_network(*points) - left, size

    def residual_gradient(self, *points: np.ndarray) -> np.ndarray:
        """∇R."""
        source = self._map(network.source_gradient, self.with_laplacians, 8, points)
        return source - self._left_side(network.residual_gradients, 4, points)

    def residual_second_derivative(self, *curves: np.ndarray) -> np.ndarray:
        """The second derivative of R along curves (t, x, w, c)."""
        source = self._map(network.source_second_derivative, self.with_laplacians, 16, curves)
        return source - self._left_side(network.residual_second_derivatives, 4, curves)

    def _left_side(self, terms: Callable[..., Any], factor: int, points: Points) -> Any:
        """Sum terms of (∂_t - div A ∇)ũ, or derivatives of it."""
        data = self.with_laplacians
        return self._sum(terms, data, factor * data.workspace(self._dim), points)

    def initial(self, t: np.ndarray, x: np.ndarray) -> np.ndarray:
        """u0; t is not used."""
        with self.ctx.active():
            return initial_values(self._data, x, self.ctx)

    def initial_gradient(self, t: np.ndarray, x: np.ndarray) -> np.ndarray:
        """∇u0."""
        return self._map(network.initial_gradient, self._data, 8, (x,))

    def initial_second_derivative(self, t: np.ndarray, *curves: np.ndarray) -> np.ndarray:
        """The second derivative of u0 along curves (x, w, c)."""
        return self._map(network.initial_second_derivative, self._data, 16, curves)

    def source(self, *points: np.ndarray) -> np.ndarray:
        """The source of `error_problem`: F, where it depends on u its part of order zero."""
        if self.canonical.source.uses_u:
            return self._map(linearization.linearized_source, self._linearization, 32, points)
        return self.source_at_network(*points)

    def source_at_network(self, t: np.ndarray, x: np.ndarray) -> np.ndarray:
        """F, at ũ where it depends on u."""
        if self.canonical.source.uses_u:
            return self._map(linearization.source_at_network, self._linearization, 32, (t, x))
        with self.ctx.active():
            return source_values(self._data, (t, x), self.ctx)

    def source_variation(self, *errors: np.ndarray) -> np.ndarray:
        """The change of the derivatives of F over errors (s, y, size, t).

        See `linearization.derivative_variation`.
        """
        fixed = to_jax((self.canonical.diffusion, self.canonical.coefficients))
        data = (*self._linearization, *fixed)
        return self._map(linearization.derivative_variation, data, 64, errors)
