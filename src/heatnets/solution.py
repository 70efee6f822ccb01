"""The result of a solve: a function u(t, x) with its gradient and residual, and everything known about how it was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from heatnets.assembly import forcing, powers
from heatnets.derivatives import gradient
from heatnets.errors import NumericalError
from heatnets.features import Feature
from heatnets.function import place
from heatnets.operators import Equation
from heatnets.precision import in_double
from heatnets.problem import Problem
from heatnets.tiles import Workshop, contract


class Solution:
    """ũ(t, x) = Σ_j w_j φ_j(t, x), from `hn.solve`; with a time degree K, w_j = Σ_k w_jk (t/T)^k.

    Call it with one time and point, () and (dim,), or with many, (n,) and (n, dim); one of the two may stay single.
    Values are NumPy float64, of shape () or (n,). Points are streamed through in tiles: n may be large.
    """

    problem: Problem
    stats: Mapping[str, Any]
    weights: tuple[np.ndarray, ...]  # of each block of features, initial ones first: shape (M,), or (M, K + 1) with a time degree

    def __init__(
        self,
        problem: Problem,
        equation: Equation,
        blocks: list[Feature],
        weights: Float[Array, " columns"],
        shop: Workshop,
        stats: dict[str, Any],
    ) -> None:
        self.problem, self.stats = problem, MappingProxyType(stats)
        self._equation, self._shop = equation, shop
        sizes = [len(block.start) for block in blocks]
        degree = stats["time_degree"]
        parts = np.split(np.asarray(weights).reshape(degree + 1, -1).T, np.cumsum(sizes)[:-1])
        self.weights = tuple(part if degree else part[:, 0] for part in parts)
        units = problem.horizon ** np.arange(degree + 1.0)  # weights belong to (t/T)^k
        self._blocks = [(block, jax.device_put(w / units, shop.device)) for block, w in zip(blocks, parts, strict=True) if len(w)]

    @in_double
    def __call__(self, t: Any, x: Any) -> np.ndarray:
        """ũ(t, x)."""
        return self._contract(_value_terms, *self.problem.points(t, x), floats=4 * self.problem.dim)

    @in_double
    def gradient(self, t: Any, x: Any) -> np.ndarray:
        """∇ũ(t, x), of shape (dim,) or (n, dim)."""
        return self._contract(_gradient_terms, *self.problem.points(t, x), floats=8 * self.problem.dim)

    @in_double
    def residual(self, t: Any, x: Any) -> np.ndarray:
        """R = F - (∂_t - D Δ) ũ at (t, x), t > 0: what is missing in the equation."""
        times, places, single = self.problem.points(t, x, positive_time=True)
        left = self._contract(_residual_terms, times, places, single, floats=self._equation.workspace(self.problem.dim))
        with jax.default_device(self._shop.device):
            right = forcing(self._equation, (times, places), self._shop)
        return (right[0] if single else right) - left

    def _contract(self, terms: Callable[..., Any], t: np.ndarray, x: np.ndarray, single: bool, floats: int) -> np.ndarray:
        with jax.default_device(self._shop.device):
            total = contract(terms, self._blocks, self._equation, (t, x), floats, self._shop, "points")
        bad = np.flatnonzero(~np.isfinite(total).reshape(len(t), -1).all(axis=1))
        if bad.size:
            raise NumericalError(
                f"the solution is not finite at {bad.size} of {len(t)} points, for example {place([t[bad[0]], x[bad[0]]])}: "
                "`initial` or `source`, or a derivative of theirs, is not finite on a path from there."
            )
        return total[0] if single else total

    def __repr__(self) -> str:
        s = self.stats
        known = [name for name in ("estimated_error", "residual_held_out") if s[name] is not None]
        told = f"{known[0]}={s[known[0]]:.2g}"
        return (
            f"Solution(dim={self.problem.dim}, family={s['family']!r}, features={s['features']}, rows={s['rows']}, "
            f"rank={s['rank']}, {told})"
        )


def _value_terms(equation: Equation, features: Feature, weights: Array, t: Array, x: Array) -> Array:
    p, _ = powers(t, weights.shape[1] - 1)
    return (weights @ p) @ jax.vmap(lambda f: f.value(equation, t, x))(features)


def _gradient_terms(equation: Equation, features: Feature, weights: Array, t: Array, x: Array) -> Array:
    return gradient(lambda y: _value_terms(equation, features, weights, t, y), x)


def _residual_terms(equation: Equation, features: Feature, weights: Array, t: Array, x: Array) -> Array:
    p, dp = powers(t, weights.shape[1] - 1)
    values, residuals = jax.vmap(lambda f: f.both(equation, t, x))(features)
    return (weights @ p) @ residuals + (weights @ dp) @ values
