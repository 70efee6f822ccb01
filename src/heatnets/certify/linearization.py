"""Linearization of a semilinear problem at a network ũ: the linear problem that its error solves.

    e_t = L e + f_u e + f_p·∇e + R + O(e²),    f_u, f_p at (t, x, ũ, ∇ũ)
Its drift and reaction are functions of (t, x), so that certificates for linear problems apply.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from heatnets.features.features import Equation, Feature
from heatnets.fit import network
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.coefficients import CoefficientField, LocalOperator
from heatnets.pde.diffusion import Diffusion
from heatnets.pde.sources import LinearSource, Source
from heatnets.pde.transforms import TransformChain

# Steps of paths with the linearized coefficients: these are smooth, and act on an error, not on u.
STEPS = 4
KINKED_STEPS = 8  # where the reaction jumps, and paths are exact
_TILE = 8  # features at a time
_POWER_ITERATIONS = 6  # of the power method for the variation of derivatives


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

        def add(sums: Any, features: tuple[Feature, Array]) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, sums, partial_sum(*features)), None

        total = jnp.zeros(()), jnp.zeros_like(y)
        for block, weights in self.blocks:
            # The largest tile that divides the number of features.
            tile = next(n for n in range(min(_TILE, len(weights)), 0, -1) if len(weights) % n == 0)
            tiled = jax.tree.map(lambda a, n=tile: a.reshape(-1, n, *a.shape[1:]), (block, weights))
            total, _ = jax.lax.scan(add, total, tiled)
        return total


class LinearizedCoefficients(CoefficientField):
    """Coefficients of the linearized problem.

    Those of the problem (`base`, None where they are constant), with the derivatives of its source
    at the network added to drift and reaction.
    """

    base: CoefficientField | None = None
    source: Source = LinearSource()
    fit: Fit | None = None
    is_expensive: ClassVar[bool] = True
    workspace: ClassVar[int] = 8 * _TILE

    def evaluate(self, s: Any, y: Any) -> LocalOperator:
        """The linearized operator at one canonical point, s () and y (dim,)."""
        assert self.fit is not None
        if self.base is None:
            local = LocalOperator(self.diffusion, jnp.zeros_like(y), jnp.zeros(()))
        else:
            local = self.base.evaluate(s, y)
        u, du = self.fit.value_and_gradient(jnp.asarray(s), y, self.source.uses_gradient)
        source = self.source.linearize(jnp.asarray(s), y, u, du)
        drift, reaction = local.drift + source.d_grad, local.reaction + source.d_u
        return LocalOperator(local.diffusion, drift, reaction)

    @property
    def has_reaction(self) -> bool:
        return True

    @property
    def only_reaction_varies(self) -> bool:
        return self.base is None and not self.source.uses_gradient


def linearize(problem: CanonicalProblem, fit: Fit) -> CanonicalProblem:
    """The linear problem that the error of a network solves, up to its square."""
    if not problem.source.uses_u:
        return problem
    base = problem.coefficients
    coefficients = LinearizedCoefficients(
        problem.diffusion,
        drift=0.0,  # computed by `LinearizedCoefficients.evaluate`, as the reaction
        reaction=0.0,
        step=None,
        transform=TransformChain() if base is None else base.transform,
        is_sqrt=False,
        divergence=False,
        jumps=() if base is None else base.jumps,
        base=base,
        source=problem.source,
        fit=fit,
    )
    steps = problem.steps
    if base is None and not problem.steps_given:
        # Where f has kinks in u, f_u jumps: few steps do not suffice.
        kinked_steps = KINKED_STEPS if coefficients.only_reaction_varies else steps
        steps = kinked_steps if problem.source_has_kinks else STEPS
    return replace(problem, coefficients=coefficients, steps=steps)


def source_at_network(data: tuple[Source, Fit], s: Array, y: Array) -> Array:
    """f at the network, ()."""
    source, fit = data
    u, du = fit.value_and_gradient(s, y, source.uses_gradient)
    return source.linearize(s, y, u, du).value


def linearized_source(data: tuple[Source, Fit], s: Array, y: Array) -> Array:
    """The source of the linearized equation, f - f_u ũ - f_p·∇ũ at the network, ()."""
    source, fit = data
    u, du = fit.value_and_gradient(s, y, source.uses_gradient)
    local = source.linearize(s, y, u, du)
    return local.value - local.d_u * u - jnp.sum(local.d_grad * du)


def derivative_variation(
    data: tuple[Source, Fit, Diffusion, CoefficientField | None],
    s: Array,
    y: Array,
    size: Array,
    t: Array,
) -> Array:
    """Λ size²: the change of the derivatives of f at the network over an error of some size.

    The value of the network changes by `size`; where f depends on ∇u, also √(2t) Sᵀ times its
    gradient, in the direction that changes the derivatives most (by the power method).

    Args:
        data: the source f, the network, the constant diffusion, and the coefficients that vary.
        s: the time, ().
        y: the point, (dim,).
        size: of the error, ().
        t: the time of the certified point, ().
    """
    source, fit, diffusion, varying = data
    u, du = fit.value_and_gradient(s, y, source.uses_gradient)
    if varying is not None and source.uses_gradient:
        diffusion = varying.evaluate(s, y).diffusion

    def f(z: tuple[Array, Array]) -> Array:
        value = u + size * z[0]
        if not source.uses_gradient:
            return source(s, y, value, du)
        slope = du + size / jnp.sqrt(2 * t) * diffusion.solve(diffusion.apply_sqrt(z[1]))
        return source(s, y, value, slope)

    derivatives, origin = jax.grad(f), (jnp.zeros(()), jnp.zeros_like(y))
    at_network = derivatives(origin)

    def change(z: tuple[Array, Array]) -> tuple[Array, Array]:
        return jax.tree.map(jnp.subtract, derivatives(z), at_network)

    if not source.uses_gradient:
        changes = [change((jnp.asarray(k), origin[1]))[0] / abs(k) for k in (-2.0, -1.0, 1.0, 2.0)]
        return jnp.max(jnp.abs(jnp.stack(changes)))
    signs = jax.random.rademacher(jax.random.key(0), y.shape, y.dtype)
    z = 0.6 * jnp.ones(()), 0.8 * signs / jnp.sqrt(1.0 * y.size)
    most = jnp.zeros(())
    for _ in range(_POWER_ITERATIONS):
        moved = change(z)
        norm = jnp.sqrt(moved[0] ** 2 + jnp.sum(moved[1] ** 2))
        most = jnp.maximum(most, norm)
        z = jax.tree.map(lambda a, norm=norm: a / jnp.maximum(norm, 1e-300), moved)
    return most
