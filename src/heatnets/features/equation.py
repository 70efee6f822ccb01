"""The equation as JAX modules: values and residuals (∂_t - L)φ of the data at the end of a path.

With constant coefficients L = div(A ∇), paths only shift x, and derivatives are those of the data.
With variable coefficients L = tr(A D²) + b·∇ + c at (t, x), and derivatives go through the steps
of the path.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets._core import streams
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.coefficients import CoefficientField
from heatnets.pde.diffusion import Diffusion
from heatnets.pde.function import Function
from heatnets.pde.laplacian import Chained, Differentiable, choose
from heatnets.pde.paths import EulerPaths

Scalar = Float[Array, ""]
Vector = Float[Array, " dim"]


class Equation(eqx.Module):
    """u_t - tr(A D²u) = F, u(0, ·) = u0, as a JAX pytree: A is traced, functions are static."""

    diffusion: Diffusion
    initial: Differentiable
    source: Differentiable | None
    reaction: Differentiable | None  # Ψ_s(u0), if the source depends on u

    def flow(self, t: Scalar, x: Vector, noise: Vector) -> Vector:
        """End of a path from x after the time t: x + √(2t) Sη, A = S Sᵀ; `noise` is Sη."""
        return x + jnp.sqrt(2 * t) * noise

    def started(self, noise: Array, t: Scalar, x: Vector) -> Scalar:
        """u0(x + √(2t) Sη): u0 at the end of a path from (t, x) to time 0."""
        return self.initial(self.flow(t, x, noise))

    def started_entry(self, noise: Array, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        """Value of `started` and its residual, t > 0."""
        z, velocity = jax.jvp(lambda s: self.flow(s, x, noise), (t,), (jnp.ones_like(t),))
        value, change = self.initial.along((z,), (velocity,))
        return value, change - self.initial.second(z)

    def forced(self, noise: Array, fraction: Scalar, t: Scalar, x: Vector) -> Scalar:
        """t F(rt, ·) at the end of a path from (t, x) to the time rt; r is `fraction`."""
        assert self.source is not None
        return t * self.source(fraction * t, self.flow((1 - fraction) * t, x, noise))

    def forced_entry(
        self, noise: Array, fraction: Scalar, t: Scalar, x: Vector
    ) -> tuple[Scalar, Scalar]:
        """Value of `forced` and its residual, t > 0."""
        assert self.source is not None

        def end(s: Scalar) -> tuple[Scalar, Vector]:
            return fraction * s, self.flow((1 - fraction) * s, x, noise)

        point, velocity = jax.jvp(end, (t,), (jnp.ones_like(t),))
        force, change = self.source.along(point, velocity)
        # ∂_t (t F) = F + t dF/dt along the path. The path only shifts x, so that the second
        # derivatives of t F are t times those of F.
        return t * force, force + t * change - t * self.source.second(*point)

    def reacted(self, noise: Array, fraction: Scalar, t: Scalar, x: Vector) -> Scalar:
        """Ψ_{rt}(u0) at the end of a path from (t, x) to time 0; r is `fraction`.

        Ψ_s is the flow of the ODE with the source as right-hand side, without diffusion.
        """
        assert self.reaction is not None
        return self.reaction(fraction * t, self.flow(t, x, noise))

    def reacted_entry(
        self, noise: Array, fraction: Scalar, t: Scalar, x: Vector
    ) -> tuple[Scalar, Scalar]:
        """Value of `reacted` and its residual, t > 0."""
        assert self.reaction is not None

        def end(s: Scalar) -> tuple[Scalar, Vector]:
            return fraction * s, self.flow(s, x, noise)

        point, velocity = jax.jvp(end, (t,), (jnp.ones_like(t),))
        value, change = self.reaction.along(point, velocity)
        return value, change - self.reaction.second(*point)

    def forcing(self, t: Scalar, x: Vector) -> Scalar:
        """F(t, x); zero if there is no source."""
        return jnp.zeros(()) if self.source is None else self.source(t, x)

    def workspace(self, dim: int) -> int:
        """Floats needed to evaluate the data with their derivatives at one point."""
        return max(f.workspace(dim) for f in self._differentiated if f is not None)

    @property
    def _differentiated(self) -> tuple[Differentiable | None, ...]:
        """The functions for (initial condition, source) whose second derivatives are used."""
        return self.reaction or self.initial, self.source

    @property
    def rungs(self) -> dict[str, str]:
        """The method for the second derivatives of each function, for `stats["laplacian"]`."""
        return {
            name: f.rung
            for name, f in zip(("initial", "source"), self._differentiated, strict=True)
            if f is not None
        }


class Started(eqx.Module):
    """(noise, t, x) ↦ weight * u0 at the end of an Euler path."""

    paths: EulerPaths
    initial: Function

    def __call__(self, noise: Array, t: Scalar, x: Vector) -> Scalar:
        end = self.paths.simulate_one(t, x, t, noise)
        return end.weight * self.initial(end.position)


class Forced(eqx.Module):
    """(noise, r, t, x) ↦ weight * t F(rt, ·) at the end of an Euler path."""

    paths: EulerPaths
    source: Function

    def __call__(self, noise: Array, fraction: Scalar, t: Scalar, x: Vector) -> Scalar:
        end = self.paths.simulate_one(t, x, (1 - fraction) * t, noise)
        return t * end.weight * self.source(fraction * t, end.position)


class Carried(eqx.Module):
    """(noise, r, t, x) ↦ weight * Ψ_{rt}(u0) at the end of an Euler path."""

    paths: EulerPaths
    reaction: Function

    def __call__(self, noise: Array, fraction: Scalar, t: Scalar, x: Vector) -> Scalar:
        end = self.paths.simulate_one(t, x, t, noise)
        return end.weight * self.reaction(fraction * t, end.position)


class VaryingEquation(Equation):
    """u_t - tr(A D²u) - b·∇u - c u = F with coefficients that are functions of (t, x).

    `paths` are the Euler paths of the features.
    """

    coefficients: CoefficientField
    paths: EulerPaths
    moved_initial: Differentiable
    moved_source: Differentiable | None
    moved_reaction: Differentiable | None

    def started(self, noise: Array, t: Scalar, x: Vector) -> Scalar:
        return self.moved_initial(noise, t, x)

    def started_entry(self, noise: Array, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        return self._entry(self.moved_initial, (noise,), t, x)

    def forced(self, noise: Array, fraction: Scalar, t: Scalar, x: Vector) -> Scalar:
        assert self.moved_source is not None
        return self.moved_source(noise, fraction, t, x)

    def forced_entry(
        self, noise: Array, fraction: Scalar, t: Scalar, x: Vector
    ) -> tuple[Scalar, Scalar]:
        assert self.moved_source is not None
        return self._entry(self.moved_source, (noise, fraction), t, x)

    def reacted(self, noise: Array, fraction: Scalar, t: Scalar, x: Vector) -> Scalar:
        assert self.moved_reaction is not None
        return self.moved_reaction(noise, fraction, t, x)

    def reacted_entry(
        self, noise: Array, fraction: Scalar, t: Scalar, x: Vector
    ) -> tuple[Scalar, Scalar]:
        assert self.moved_reaction is not None
        return self._entry(self.moved_reaction, (noise, fraction), t, x)

    def _entry(
        self, f: Differentiable, parameters: tuple[Array, ...], t: Scalar, x: Vector
    ) -> tuple[Scalar, Scalar]:
        """Value and residual (∂_t - tr(A D²) - b·∇ - c) f of f(*parameters, t, x)."""
        local = self.coefficients.evaluate(t, x)
        zeros = tuple(jnp.zeros_like(p) for p in parameters)
        # The derivative along (1, -b) is ∂_t f - b·∇f.
        value, change = f.along((*parameters, t, x), (*zeros, jnp.ones_like(t), -local.drift))
        second = f.second(*parameters, t, x, diffusion=local.diffusion)
        return value, change - second - local.reaction * value

    def workspace(self, dim: int) -> int:
        return 2 * self.paths.steps * super().workspace(dim)

    @property
    def _differentiated(self) -> tuple[Differentiable | None, ...]:
        return self.moved_reaction or self.moved_initial, self.moved_source


def values_only(problem: CanonicalProblem) -> Equation:
    """The equation of a problem for the evaluation of values, without second derivatives."""
    diffusion = on_device(problem.diffusion)

    def without_derivatives(function: Any) -> Differentiable | None:
        return None if function is None else Differentiable(function, "none", diffusion)

    functions = (problem.initial, problem.source, problem.reaction_flow)
    data = tuple(without_derivatives(f) for f in functions)
    if problem.coefficients is None:
        return Equation(diffusion, *data)  # type: ignore[arg-type]
    assert isinstance(problem.feature_paths, EulerPaths)
    paths, coefficients = on_device(problem.feature_paths), on_device(problem.coefficients)
    path_functions = (
        Started(paths, problem.initial),
        problem.source and Forced(paths, problem.source),
        problem.reaction_flow and Carried(paths, problem.reaction_flow),
    )
    initial, source, reaction = (without_derivatives(f and Function(f)) for f in path_functions)
    assert data[0] is not None
    assert initial is not None
    return VaryingEquation(
        diffusion, data[0], data[1], data[2], coefficients, paths, initial, source, reaction
    )


def equation(problem: CanonicalProblem, seed: int) -> tuple[Equation, dict[str, list[str]]]:
    """The equation of a problem, with a tested method for each second derivative of features.

    Args:
        problem: the problem in canonical form.
        seed: the seed of the random points at which methods are tested.

    Returns:
        The equation, and for each function the methods that failed the test, with reasons.
    """
    rng = streams.generator(seed, "laplacian check")
    x = problem.region.sample(rng, 3, problem.dim)
    shift = 0.01 * rng.standard_normal((3, problem.dim))
    t, x = problem.region.at(rng.uniform(0.25, 0.75, 3), problem.horizon, x)
    x = x + shift
    result = values_only(problem)
    skipped: dict[str, list[str]] = {}
    # The functions to differentiate, with their arguments at the three test points.
    if isinstance(result, VaryingEquation):  # derivatives go through the steps of paths
        noise, fraction = (
            rng.standard_normal((3, *result.paths.noise_shape(problem.dim))),
            rng.random(3),
        )
        diffusion = result.coefficients.evaluate(jnp.asarray(t[0]), jnp.asarray(x[0])).diffusion
        arguments = {
            "moved_initial": (noise, t, x),
            "moved_source": (noise, fraction, t, x),
            "moved_reaction": (noise, fraction, t, x),
        }
    else:
        diffusion = result.diffusion
        arguments = {"initial": (x,), "source": (t, x), "reaction": (t, x)}
    # If the source depends on x only through u, its derivatives follow from those of u0.
    use_chain_rule = (
        problem.nonlinear is not None
        and not isinstance(result, VaryingEquation)
        and problem.nonlinear.is_x_independent(problem.dim)
    )
    initial, _, reaction = arguments
    needed = [
        part
        for part in arguments
        if getattr(result, part) is not None
        and (part != initial or use_chain_rule or getattr(result, reaction) is None)
    ]
    for part in needed:
        name = "source" if "source" in part else problem.data_name
        function = getattr(result, part).function
        if use_chain_rule and part != initial:
            inner: Differentiable = result.initial
            method = f"{inner.rung}, chain rule"
            chained = Chained(function, method, inner.diffusion, inner=inner)
            result = eqx.tree_at(attrgetter(part), result, chained)
            continue
        points = zip(*arguments[part], strict=True)
        differentiable, reasons = choose(name, function, *points, diffusion=diffusion)
        result = eqx.tree_at(attrgetter(part), result, differentiable)
        if reasons:
            skipped[name] = reasons
    return result, skipped


def on_device(tree: Any) -> Any:
    """Convert the NumPy arrays and floats of a pytree to JAX arrays."""
    return jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, np.ndarray | float) else a, tree)
