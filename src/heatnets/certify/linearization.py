"""Linearization of a semilinear problem at a network ũ: the linear problem that its error solves.

    e_t = L e + f_u e + f_p·∇e + R + O(e²),    f_u, f_p at (t, x, ũ, ∇ũ)
Its drift and reaction are functions of (t, x), so that certificates for linear problems apply.
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

# Steps of paths with the linearized coefficients: these are smooth, and act on an error, not on u.
STEPS = 4
_TILE = 8  # features at a time


class Fit(eqx.Module):
    """A network as a function of one point (s, y), summed over a few features at a time."""

    equation: Equation
    blocks: list[tuple[Feature, Array]]

    def value_and_gradient(self, s: Array, y: Array, slopes: bool) -> tuple[Array, Array]:
        """The value, (), and the gradient, (dim,); zeros in place of it without `slopes`."""

        def partial_sum(block: Feature, weights: Array) -> tuple[Array, Array]:
            def value(z: Array) -> Array:
                return network.values(self.equation, block, weights, s, z)

            return jax.value_and_grad(value)(y) if slopes else (value(y), jnp.zeros_like(y))

        total = jnp.zeros(()), jnp.zeros_like(y)
        for block, weights in self.blocks:
            # The largest tile that divides the number of features.
            tile = next(n for n in range(min(_TILE, len(weights)), 0, -1) if len(weights) % n == 0)
            tiled = jax.tree.map(lambda a, n=tile: a.reshape(-1, n, *a.shape[1:]), (block, weights))

            def add(sums: Any, features: tuple[Feature, Array]) -> tuple[Any, None]:
                return jax.tree.map(jnp.add, sums, partial_sum(*features)), None

            total, _ = jax.lax.scan(add, total, tiled)
        return total


class LinearizedCoefficients(CoefficientField):
    """Coefficients of the linearized problem.

    Those of the problem (`base`, None where they are constant), with the derivatives of its source
    at the network added to drift and reaction.
    """

    base: CoefficientField | None = None
    nonlinear: SemilinearSource | None = None
    fit: Fit | None = None

    def evaluate(self, s: Any, y: Any) -> LocalOperator:
        """The linearized operator at one canonical point, s () and y (dim,)."""
        assert self.nonlinear is not None
        assert self.fit is not None
        if self.base is None:
            local = LocalOperator(self.diffusion, jnp.zeros_like(y), jnp.zeros(()))
        else:
            local = self.base.evaluate(s, y)
        u, du = self.fit.value_and_gradient(jnp.asarray(s), y, self.nonlinear.uses_gradient)
        source = self.nonlinear.linearize(jnp.asarray(s), y, u, du)
        drift, reaction = local.drift + source.d_grad, local.reaction + source.d_u
        return LocalOperator(local.diffusion, drift, reaction)

    @property
    def has_reaction(self) -> bool:
        return True

    @property
    def is_expensive(self) -> bool:
        return True

    @property
    def workspace(self) -> int:
        assert self.fit is not None
        return 8 * _TILE


def linearize(problem: CanonicalProblem, fit: Fit) -> CanonicalProblem:
    """The linear problem that the error of a network solves, up to its square."""
    base = problem.coefficients
    coefficients = LinearizedCoefficients(
        problem.diffusion,
        0.0,  # drift: computed by `LinearizedCoefficients.evaluate`
        0.0,  # reaction: likewise
        None,  # steps: those of Euler
        TransformChain() if base is None else base.transform,
        False,
        False,
        () if base is None else base.jumps,
        base,
        problem.nonlinear,
        fit,
    )
    # Where f has kinks in u, f_u jumps: few steps do not suffice.
    few = base is None and not problem.steps_given and not problem.source_has_kinks
    return replace(problem, coefficients=coefficients, steps=STEPS if few else problem.steps)


def evaluate_source(
    nonlinear: SemilinearSource, fit: Fit, s: Array, y: Array
) -> tuple[Array, Array]:
    """The source at the network, f, and its part in the linearized equation, () each.

    The latter is f - f_u ũ - f_p·∇ũ.
    """
    u, du = fit.value_and_gradient(s, y, nonlinear.uses_gradient)
    source: SourceLinearization = nonlinear.linearize(s, y, u, du)
    return source.value, source.value - source.d_u * u - jnp.sum(source.d_grad * du)
