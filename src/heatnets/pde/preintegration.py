"""Data with kinks and jumps, integrated in closed form in one direction: smooth for t > 0.

    φ(t, x) = ∫ u0(x + √(2t) (Sη⊥ + z a)) N(z) dz,    a = Se, |e| = 1, η⊥ = η - (η·e) e

takes the place of u0(x + √(2t) Sη). Along the line the kinks of u0 are roots of functions that
`kinks` names, and between the roots Gauss-Legendre quadrature is exact up to rounding. The mean
over η is the same, and φ is as smooth as the roots are: where lines cross the kinks, not where they
touch them.
"""

# In the literature: pre-integration, or conditional Monte Carlo (Griewank, Kuo, Leövey and Sloan,
# "High dimensional integration of kinks and jumps - smoothing by preintegration", 2018).
#
# Residual. With U(τ, y) = ∫ u0(y + √(2τ) z a) N(z) dz we have φ(t, x) = U(t, x + √(2t) w), w = Sη⊥,
# and U solves the heat equation in the direction a exactly, U_τ = aᵀD²U a. So, with A = S Sᵀ,
#
#     (∂_t - tr(A D²)) φ = w·∇U / √(2t) - tr(A⊥ D²U),    A⊥ = A - a aᵀ.
#
# Derivatives of U in y are taken under the integral sign. With σ = √(2t), a root z_r(y) of a kink's
# argument g on the line, ∇z_r = -∇g / (σ ∂_a g), and [f] the value before the root minus that
# after,
#
#     ∂_w U       = ∫ N ∂_w u0      + Σ_r N [u0] w·∇z_r
#     tr(A⊥ D²U)  = ∫ N tr(A⊥ D²u0) + Σ_r N { 2 [∇u0]·A⊥∇z_r + σ [∂_a u0] |∇z_r|²
#                                             - z_r [u0] |∇z_r|² + [u0] tr(A⊥ D²z_r) }
#
# with |v|² = vᵀA⊥v. For a ridge, where u0 depends on a·x alone, both vanish: one feature is exact.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets.pde.diffusion import Diffusion, Projected
from heatnets.pde.function import Function
from heatnets.pde.kinks import KinkArguments
from heatnets.pde.laplacian import (
    METHODS,
    CoordinateSums,
    FunctionWithLaplacian,
    Method,
    Path,
    Scalar,
    gradient,
    second_derivative,
)

REACH = 7.5  # lines end here unless the data grow fast: what is beyond weighs 3e-14
ITERATIONS = 40  # of the safeguarded Newton method in a cell, at most
_CUBIC = 0.3  # part of the cubic in the map of quadrature nodes
_POLISHED = 2  # Newton steps that are differentiated: derivatives of roots up to the third
_BESIDE = 1e-8  # distance from a root at which limits from either side are taken


class PreIntegration(eqx.Module):
    """How the initial condition of a problem is integrated.

    Attributes:
        kinks: the arguments of its kinks.
        axis: a, (dim,), the direction of the lines.
        conormal: A⁻¹a, (dim,): η·e = conormal·Sη.
        roots: largest number of roots on a line.
        cells: of a line, in which roots are looked for, one per cell and kink.
        nodes: quadrature nodes between two roots.
        iterations: of the method that finds a root in its cell.
        support: the sign that the only argument has where u0 is not zero; 0 if there is no such.
        reach: lines are integrated over |z| < reach.
        error: bound for the error of the quadrature, in units of u0; measured on sampled lines.
        relative_error: the same over the root mean square of u.
        kink_method: method for tr(A D²g), if the initial condition jumps; else None.
    """

    kinks: KinkArguments
    axis: Any
    conormal: Any
    roots: int = eqx.field(static=True)
    cells: int = eqx.field(static=True)
    nodes: int = eqx.field(static=True)
    iterations: int = eqx.field(static=True, default=ITERATIONS)
    support: int = eqx.field(static=True, default=0)
    reach: float = eqx.field(static=True, default=REACH)
    # No static data: each problem has its own, and programs are shared.
    error: Any = eqx.field(default_factory=lambda: np.zeros(()))
    relative_error: Any = eqx.field(default_factory=lambda: np.zeros(()))
    kink_method: Method | None = eqx.field(static=True, default=None)

    def describe(self) -> dict[str, Any]:
        """All but the axis as a JSON dictionary, for files."""
        return {
            "kinks": list(self.kinks.chosen or ()),
            "roots": self.roots,
            "cells": self.cells,
            "nodes": self.nodes,
            "iterations": self.iterations,
            "support": self.support,
            "reach": self.reach,
            "error": float(self.error),
            "relative_error": float(self.relative_error),
            "kink_method": None if self.kink_method is None else self.kink_method.name,
        }

    @classmethod
    def restore(
        cls, description: dict[str, Any], axis: np.ndarray, initial: Function, diffusion: Diffusion
    ) -> PreIntegration:
        """The rule for an initial condition, from `describe` and its axis."""
        methods = {method.name: method for method in METHODS}
        kinks = KinkArguments(initial, tuple(description["kinks"]))
        names = ["roots", "cells", "nodes", "reach"]
        # Earlier versions have no others.
        names += [name for name in ("iterations", "support") if name in description]
        return cls(
            kinks,
            axis,
            np.asarray(diffusion.solve(axis)),
            **{name: description[name] for name in names},
            error=np.asarray(description["error"]),
            relative_error=np.asarray(description["relative_error"]),
            kink_method=methods.get(description["kink_method"]),
        )

    def apply_to(self, f: FunctionWithLaplacian) -> PreIntegratedFunction:
        """The function whose transport along a path is integrated."""
        return PreIntegratedFunction(f.function, f.method, f.diffusion, f.largest, self)


class Argument(eqx.Module):
    """x ↦ g_i(x)."""

    kinks: KinkArguments
    index: Any

    def __call__(self, x: Array) -> Scalar:
        return self.kinks(x)[self.index]


class Roots(eqx.Module):
    """The kinks on a line, in the order of z; zeros in place of those that are missing.

    Attributes:
        z: (roots,).
        kink: number of the kink, (roots,).
        exists: whether it is a root, (roots,).
        count: how many there are on the line, also if there is no room for them.
        is_positive: whether the arguments are positive at the upper end of the line, (kinks,).
    """

    z: Any
    kink: Any
    exists: Any
    count: Any
    is_positive: Any


def find_roots(rule: PreIntegration, y: Array, sigma: Array, cells: int | None = None) -> Roots:
    """The roots of all arguments on the line y + σ z a, |z| < reach: the first `rule.roots`.

    With `cells` they are looked for in so many cells, with `ITERATIONS`.
    """
    iterations = rule.iterations if cells is None else ITERATIONS
    kinks, axis, roots = rule.kinks, jnp.asarray(rule.axis), rule.roots
    edges = jnp.linspace(-rule.reach, rule.reach, (cells or rule.cells) + 1)
    fixed = jax.tree.map(
        lambda v: jax.lax.stop_gradient(v) if eqx.is_array(v) else v, (kinks, y, sigma, axis)
    )

    def along(z: Array, line: Any) -> Array:
        g, base, s, a = line
        return g(base + s * z * a)

    at_edges = jax.vmap(lambda z: along(z, fixed))(edges)
    signs = at_edges > 0
    changes = (signs[1:] != signs[:-1]).reshape(-1)
    number = jnp.cumsum(changes)
    count = number[-1]
    # The first change with each number. (`argmax` needs float64 also where it is compiled.)
    first = jnp.minimum(
        jnp.sum(number < jnp.arange(1, roots + 1)[:, None], axis=1), len(number) - 1
    )
    exists = jnp.arange(roots) < count
    cell, kink = jnp.divmod(first, signs.shape[1])

    def find(cell: Array, kink: Array) -> Array:
        """One root, by Newton's method inside a bracket."""

        def step(_: Any, state: tuple[Array, ...]) -> tuple[Array, ...]:
            low, high, z = state
            g, slope = jax.jvp(lambda v: along(v, fixed)[kink], (z,), (jnp.ones_like(z),))
            below = (g > 0) == rises
            low, high = jnp.where(below, low, z), jnp.where(below, z, high)
            newton = z - g / jnp.where(slope == 0, 1.0, slope)
            inside = (newton >= low) & (newton <= high) & (slope != 0)
            return low, high, jnp.where(inside, newton, 0.5 * (low + high))

        rises = ~signs[cell, kink]  # g > 0 at the upper end
        low, high = edges[cell], edges[cell + 1]
        # The secant's root is close to that of a smooth argument.
        g_low, g_high = at_edges[cell, kink], at_edges[cell + 1, kink]
        share = g_low / jnp.where(g_low == g_high, 1.0, g_low - g_high)
        start = low + jnp.where((share >= 0) & (share <= 1), share, 0.5) * (high - low)
        return jax.lax.fori_loop(0, iterations, step, (low, high, start))[2]

    z = jnp.where(exists, jax.vmap(find)(cell, kink), 0.0)
    if roots > 1:
        order = jnp.argsort(z)
        z, kink, exists = z[order], kink[order], exists[order]

    def polish(z: Array, kink: Array, exists: Array) -> Array:
        """Newton steps from the root, which give it its derivatives in y, σ and a."""
        for _ in range(_POLISHED):
            g, slope = jax.jvp(
                lambda v: along(v, (kinks, y, sigma, axis))[kink], (z,), (jnp.ones_like(z),)
            )
            usable = exists & (slope != 0)
            z = z - jnp.where(usable, g, 0.0) / jnp.where(usable, slope, 1.0)
        return z

    return Roots(jax.vmap(polish)(z, kink, exists), kink, exists, count, signs[-1])


def quadrature(z: Array, nodes: int, reach: float = REACH) -> tuple[Array, Array]:
    """Nodes and weights for ∫ f(z) N(z) dz, with kinks of f at z (roots,): (roots + 1) * nodes."""
    edges = _with_ends(z, reach)
    return _between(edges[:-1], edges[1:], nodes)


def line_quadrature(rule: PreIntegration, roots: Roots) -> tuple[Array, Array]:
    """Nodes and weights for ∫ u0 N(z) dz on a line with these roots."""
    if not rule.support:
        return quadrature(roots.z, rule.nodes, rule.reach)
    # Only the side of the root on which u0 is not zero.
    is_upper = roots.is_positive[0] == (rule.support > 0)
    end = jnp.where(is_upper, rule.reach, -rule.reach)
    at, weights = _between(jnp.minimum(roots.z, end), jnp.maximum(roots.z, end), rule.nodes)
    # Without a root the whole line, or nothing.
    points, sizes = np.polynomial.hermite_e.hermegauss(rule.nodes)
    without = jnp.where(is_upper, sizes / np.sqrt(2 * np.pi), 0.0)
    exists = roots.exists[0]
    return jnp.where(exists, at, points), jnp.where(exists, weights, without)


def _between(low: Array, high: Array, nodes: int) -> tuple[Array, Array]:
    """Nodes and weights for ∫ f(z) N(z) dz between `low` and `high` (pieces,), of all pieces."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    # Long pieces hold the density in their middle: move the nodes there by a cubic map. (The
    # largest error with 20 nodes falls from 1e-6 to 1e-8, with 24 from 1e-8 to 3e-11.)
    points, weights = (
        (1 - _CUBIC) * points + _CUBIC * points**3,
        weights * (1 - _CUBIC + 3 * _CUBIC * points**2),
    )
    middle, half = 0.5 * (high + low), 0.5 * (high - low)
    at = (middle[:, None] + half[:, None] * points).reshape(-1)
    return at, (half[:, None] * weights).reshape(-1) * normal_density(at)


def _with_ends(z: Array, reach: float) -> Array:
    """Numbers in (-reach, reach) with both ends."""
    return jnp.concatenate([jnp.array([-reach]), z, jnp.array([reach])])


def normal_density(z: Array) -> Array:
    """N(z), the density of the standard normal distribution."""
    return jnp.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)


class PreIntegratedFunction(FunctionWithLaplacian):
    """u0, of which `transport` gives φ(t, x): a line integral through the end of the path."""

    rule: PreIntegration | None = None

    @property
    def _rule(self) -> PreIntegration:
        assert self.rule is not None
        return self.rule

    @property
    def method_name(self) -> str:
        return f"{self.method.name}, pre-integrated"

    def _across(self, e: Array) -> Array:
        """The part of a direction Sη that is left when its part along the axis is removed."""
        return e - (self._rule.conormal @ e) * self._rule.axis

    def transport(self, times: Sequence[Array], x: Array, shift: Array, e: Array) -> Scalar:
        rule, y = self._rule, x + shift * self._across(e)
        z, weights = line_quadrature(rule, find_roots(rule, y, shift))
        values = jax.vmap(lambda v: self.method.transport(self, times, y, shift * v, rule.axis))(z)
        return weights @ values

    def transport_with_residual(
        self, path: Path, t: Array, x: Array, e: Array
    ) -> tuple[Scalar, Scalar]:
        (_, sigma), (_, rate) = jax.jvp(path, (t,), (jnp.ones_like(t),))
        rule, w = self._rule, self._across(e)
        y, a = x + sigma * w, rule.axis
        roots = find_roots(rule, y, sigma)
        z, weights = line_quadrature(rule, roots)
        projected: FunctionWithLaplacian = self
        if isinstance(self.method, CoordinateSums):
            projected = replace(self, diffusion=Projected(self.diffusion, a, rule.conormal))

        def at_node(z: Array) -> tuple[Scalar, Scalar, Scalar]:
            """u0, ∂_w u0 and tr(A⊥ D²u0)."""

            def along(shift: Array) -> Scalar:
                return self.method.transport(self, (), y, shift, a)

            shift = sigma * z
            value, slope = jax.jvp(
                lambda p: self.method.transport(self, (), p, shift, a), (y,), (w,)
            )
            # On a path that stands still the residual is minus the trace.
            _, minus_trace = self.method.transport_with_residual(
                projected, lambda s: ((), shift + 0 * s), t, y, a
            )
            if projected is not self:
                return value, slope, -minus_trace
            return value, slope, -minus_trace - second_derivative(along, shift, jnp.ones_like(t))

        value, slope, trace = (weights @ terms for terms in jax.vmap(at_node)(z))
        jumps = jax.vmap(lambda r: self._at_root(roots, r, y, sigma, w))(jnp.arange(rule.roots))
        slope, trace = slope + jnp.sum(jumps[0]), trace + jnp.sum(jumps[1])
        return value, rate * slope - trace

    def _at_root(
        self, roots: Roots, r: Array, y: Array, sigma: Array, w: Array
    ) -> tuple[Scalar, Scalar]:
        """What root r adds to ∂_w U and to tr(A⊥ D²U)."""
        rule, a, exists = self._rule, self._rule.axis, roots.exists[r]
        edges = _with_ends(roots.z, rule.reach)
        before, z, after = edges[r], edges[r + 1], edges[r + 2]
        argument, end = Argument(rule.kinks, roots.kink[r]), y + sigma * z * a
        normal, across = root_normal(rule, self.diffusion, roots.kink[r], end)
        crossing = jnp.where(exists, sigma * (a @ normal), 1.0)  # σ ∂_a g
        size = (normal @ across) / crossing**2  # |∇z_r|²
        # Two roots may coincide: their limits in between are taken at one point.
        beside = (
            jnp.maximum(z - _BESIDE, 0.5 * (before + z)),
            jnp.minimum(z + _BESIDE, 0.5 * (z + after)),
        )

        def limits(z: Array) -> tuple[Array, Array]:
            """u0, and its derivatives along A⊥∇g and a."""
            at = y + sigma * z * a
            along_across = self.jvp((at,), (across,))[1]
            value, along_axis = self.jvp((at,), (a,))
            return value, jnp.stack([along_across, along_axis])

        (v0, d0), (v1, d1) = map(limits, beside)
        jump, slopes = v0 - v1, d0 - d1
        trace = -2 * slopes[0] / crossing + sigma * slopes[1] * size
        if rule.kink_method is not None:
            kink = FunctionWithLaplacian(Function(argument), rule.kink_method, self.diffusion)

            def along_axis(p: Array) -> Array:
                return jax.jvp(argument, (p,), (a,))[1]

            second_along, mixed = (jax.jvp(along_axis, (end,), (v,))[1] for v in (a, across))
            across_trace = kink.trace_hessian(end) - second_along
            curvature = (
                -(across_trace - 2 * sigma * mixed / crossing + sigma**2 * second_along * size)
                / crossing
            )
            trace = trace - z * jump * size + jump * curvature
        weight = jnp.where(exists, normal_density(z), 0.0)
        slope = -jump * (w @ normal) / crossing if rule.kink_method is not None else jnp.zeros(())
        return weight * slope, weight * trace

    def workspace(self, dim: int) -> int:
        return self._lines * super().workspace(dim)

    def value_workspace(self, dim: int) -> int:
        return self._lines * super().value_workspace(dim)

    @property
    def _lines(self) -> int:
        """Points on a line at which the function is evaluated."""
        pieces = 1 if self._rule.support else self._rule.roots + 1
        return pieces * self._rule.nodes


def root_normal(
    rule: PreIntegration, diffusion: Diffusion, kink: Array, x: Float[Array, " dim"]
) -> tuple[Array, Array]:
    """∇g and A⊥∇g at x, for the argument g of a kink."""
    a, normal = jnp.asarray(rule.axis), gradient(Argument(rule.kinks, kink), x)
    (transposed,) = jax.vjp(diffusion.apply_sqrt, jnp.zeros_like(x))[1](normal)
    return normal, diffusion.apply_sqrt(transposed) - (a @ normal) * a
