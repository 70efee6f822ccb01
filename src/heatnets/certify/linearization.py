"""The tangent of a problem whose source depends on u, at a network: the linear problem that the network's error obeys, up to its square.

    e_t = L e + f_u e + f_p·∇e + R + O(e²),    f_u, f_p at (t, x, ũ, ∇ũ)

Its drift and reaction are functions of (t, x): everything that certifies linear problems with such coefficients serves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from heatnets.features.equation import Equation
from heatnets.features.features import Feature
from heatnets.fit import network
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.coefficients import CoefficientField, LocalOperator
from heatnets.pde.nonlinearity import SemilinearSource, SourceLinearization
from heatnets.pde.transforms import TransformChain

STEPS = (
    4  # of paths with the tangent's coefficients: these are smooth, and act on an error, not on u
)
_TILE = 8  # features at a time


class Fit(eqx.Module):
    """A network as one function of (s, y), a few features at a time."""

    equation: Equation
    blocks: list[tuple[Feature, Array]]

    def both(self, s: Array, y: Array, slopes: bool) -> tuple[Array, Array]:
        """The value, and its gradient where that is asked for."""

        def part(block: Feature, weights: Array) -> tuple[Array, Array]:
            def value(z: Array) -> Array:
                return network.values(self.equation, block, weights, s, z)

            return jax.value_and_grad(value)(y) if slopes else (value(y), jnp.zeros_like(y))

        total = jnp.zeros(()), jnp.zeros_like(y)
        for block, weights in self.blocks:
            tile = next(n for n in range(min(_TILE, len(weights)), 0, -1) if len(weights) % n == 0)
            tiled = jax.tree.map(lambda a, n=tile: a.reshape(-1, n, *a.shape[1:]), (block, weights))
            total, _ = jax.lax.scan(
                lambda sums_, some: (jax.tree.map(jnp.add, sums_, part(*some)), None), total, tiled
            )
        return total


class LinearizedCoefficients(CoefficientField):
    """Coefficients of the tangent: those of the problem, and the derivatives of its source at a network."""

    base: CoefficientField | None = None
    nonlinear: SemilinearSource | None = None
    fit: Fit | None = None

    def at(self, s: Any, y: Any) -> LocalOperator:
        assert self.nonlinear is not None
        assert self.fit is not None
        here = (
            LocalOperator(self.diffusion, jnp.zeros_like(y), jnp.zeros(()))
            if self.base is None
            else self.base.at(s, y)
        )
        source = self.nonlinear.tangent(
            jnp.asarray(s), y, *self.fit.both(jnp.asarray(s), y, self.nonlinear.slopes)
        )
        return LocalOperator(here.diffusion, here.drift + source.d_grad, here.reaction + source.d_u)

    @property
    def long(self) -> bool:
        return True

    @property
    def workspace(self) -> int:
        assert self.fit is not None
        return 8 * _TILE


def tangent(problem: CanonicalProblem, fit: Fit) -> CanonicalProblem:
    """The linear problem that the error of a network obeys."""
    base = problem.coefficients
    transform = TransformChain() if base is None else base.transform
    jumps = () if base is None else base.jumps
    coefficients = LinearizedCoefficients(
        problem.diffusion,
        0.0,
        _weighted,
        None,
        transform,
        False,
        False,
        jumps,
        base,
        problem.nonlinear,
        fit,
    )
    few = (
        base is None and not problem.steps_given and not problem.source_has_kinks
    )  # where f has kinks in u, f_u jumps
    return replace(problem, coefficients=coefficients, steps=STEPS if few else problem.steps)


def _weighted(t: Any, x: Any) -> Any:
    """In place of the reaction, which `Tangential.at` computes: paths carry weights."""
    raise NotImplementedError


def at(nonlinear: SemilinearSource, fit: Fit, s: Array, y: Array) -> tuple[Array, Array]:
    """The source at the network, and what is left of it in the tangent's equation: f and f - f_u ũ - f_p·∇ũ."""
    u, du = fit.both(s, y, nonlinear.slopes)
    there: SourceLinearization = nonlinear.tangent(s, y, u, du)
    return there.force, there.force - there.d_u * u - jnp.sum(there.d_grad * du)
