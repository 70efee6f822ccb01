"""The equation in computable form: its coefficients, its data with their derivatives, and the residual of what features are made of.

A feature is made of the data at the end of a path: u0 moved, or the source moved. An equation gives their values, and their residuals
(∂_t - L)φ. Where coefficients are constant, L = div(A ∇), paths only shift x, and derivatives are those of the data; where they vary, L is
tr(A D²) + b·∇ + c at (t, x), and derivatives go through the path's steps.
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
Vector = Float[Array, "dim"]


class Equation(eqx.Module):
    """u_t - tr(A D²u) = F, u(0, ·) = u0, as arrays and functions that JAX can carry: A is traced, functions are static."""

    diffusion: Diffusion
    initial: Differentiable
    source: Differentiable | None
    reaction: Differentiable | None  # Ψ_s(u0), where the source depends on u

    def flow(self, t: Scalar, x: Vector, noise: Vector) -> Vector:
        """Where a path from x is after a time: x + √(2t) Sη, A = S Sᵀ, η ~ N(0, I); `noise` is Sη."""
        return x + jnp.sqrt(2 * t) * noise

    def started(self, noise: Array, t: Scalar, x: Vector) -> Scalar:
        """u0 at the end of a path from (t, x)."""
        return self.initial(self.flow(t, x, noise))

    def started_entry(self, noise: Array, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        """The same and its residual, t > 0."""
        z, velocity = jax.jvp(lambda s: self.flow(s, x, noise), (t,), (jnp.ones_like(t),))
        value, change = self.initial.along((z,), (velocity,))
        return value, change - self.initial.second(z)

    def forced(self, noise: Array, fraction: Scalar, t: Scalar, x: Vector) -> Scalar:
        """t F(rt, ·) at the end of a path from (t, x) to the time rt."""
        assert self.source is not None
        return t * self.source(fraction * t, self.flow((1 - fraction) * t, x, noise))

    def forced_entry(
        self, noise: Array, fraction: Scalar, t: Scalar, x: Vector
    ) -> tuple[Scalar, Scalar]:
        """The same and its residual, t > 0."""
        assert self.source is not None
        place, velocity = jax.jvp(
            lambda s: (fraction * s, self.flow((1 - fraction) * s, x, noise)),
            (t,),
            (jnp.ones_like(t),),
        )
        force, change = self.source.along(place, velocity)
        # ∂_t (t F) = F + t dF/dt along the path; second derivatives of t F are t times F's, as the path only shifts x.
        return t * force, force + t * change - t * self.source.second(*place)

    def reacted(self, noise: Array, fraction: Scalar, t: Scalar, x: Vector) -> Scalar:
        """Ψ(u0) at the end of a path from (t, x): what the source alone makes of it in a part of the time."""
        assert self.reaction is not None
        return self.reaction(fraction * t, self.flow(t, x, noise))

    def reacted_entry(
        self, noise: Array, fraction: Scalar, t: Scalar, x: Vector
    ) -> tuple[Scalar, Scalar]:
        """The same and its residual, t > 0."""
        assert self.reaction is not None
        place, velocity = jax.jvp(
            lambda s: (fraction * s, self.flow(s, x, noise)), (t,), (jnp.ones_like(t),)
        )
        value, change = self.reaction.along(place, velocity)
        return value, change - self.reaction.second(*place)

    def forcing(self, t: Scalar, x: Vector) -> Scalar:
        """F(t, x), zero where there is no source."""
        return jnp.zeros(()) if self.source is None else self.source(t, x)

    def workspace(self, dim: int) -> int:
        """Floats per evaluation of the data with derivatives."""
        return max(f.workspace(dim) for f in self._differentiated if f is not None)

    @property
    def _differentiated(self) -> tuple[Differentiable | None, ...]:
        return self.reaction or self.initial, self.source

    @property
    def rungs(self) -> dict[str, str]:
        """Which rung serves the second derivatives of each function, for `stats["laplacian"]`."""
        return {
            name: f.rung
            for name, f in zip(("initial", "source"), self._differentiated, strict=True)
            if f is not None
        }


class Started(eqx.Module):
    """(noise, t, x) ↦ the weighted u0 at the end of a path in steps."""

    paths: EulerPaths
    initial: Function

    def __call__(self, noise: Array, t: Scalar, x: Vector) -> Scalar:
        moved = self.paths.path(t, x, t, noise)
        return moved.weight * self.initial(moved.place)


class Forced(eqx.Module):
    """(noise, r, t, x) ↦ the weighted t F(rt, ·) at the end of a path in steps."""

    paths: EulerPaths
    source: Function

    def __call__(self, noise: Array, fraction: Scalar, t: Scalar, x: Vector) -> Scalar:
        moved = self.paths.path(t, x, (1 - fraction) * t, noise)
        return t * moved.weight * self.source(fraction * t, moved.place)


class Carried(eqx.Module):
    """(noise, r, t, x) ↦ the weighted Ψ_{rt}(u0) at the end of a path in steps."""

    paths: EulerPaths
    reaction: Function

    def __call__(self, noise: Array, fraction: Scalar, t: Scalar, x: Vector) -> Scalar:
        moved = self.paths.path(t, x, t, noise)
        return moved.weight * self.reaction(fraction * t, moved.place)


class VaryingEquation(Equation):
    """u_t - tr(A D²u) - b·∇u - c u = F with coefficients that are functions of (t, x); `paths` are those of the features."""

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
        self, f: Differentiable, held: tuple[Array, ...], t: Scalar, x: Vector
    ) -> tuple[Scalar, Scalar]:
        here = self.coefficients.at(t, x)
        still = tuple(jnp.zeros_like(h) for h in held)
        value, change = f.along((*held, t, x), (*still, jnp.ones_like(t), -here.drift))
        return value, change - f.second(
            *held, t, x, diffusion=here.diffusion
        ) - here.reaction * value

    def workspace(self, dim: int) -> int:
        return 2 * self.paths.steps * super().workspace(dim)

    @property
    def _differentiated(self) -> tuple[Differentiable | None, ...]:
        return self.moved_reaction or self.moved_initial, self.moved_source


def values_only(problem: CanonicalProblem) -> Equation:
    """The problem's equation where only values of its data are needed."""
    diffusion = on_device(problem.diffusion)

    def plain(function: Any) -> Differentiable | None:
        return None if function is None else Differentiable(function, "none", diffusion)

    data = tuple(plain(f) for f in (problem.initial, problem.source, problem.reaction_flow))
    if problem.coefficients is None:
        return Equation(diffusion, *data)  # type: ignore[arg-type]
    assert isinstance(problem.feature_paths, EulerPaths)
    walk, coefficients = on_device(problem.feature_paths), on_device(problem.coefficients)
    moved = (
        Started(walk, problem.initial),
        problem.source and Forced(walk, problem.source),
        problem.reaction_flow and Carried(walk, problem.reaction_flow),
    )
    initial, source, reaction = (plain(m and Function(m)) for m in moved)
    assert data[0] is not None
    assert initial is not None
    return VaryingEquation(
        diffusion, data[0], data[1], data[2], coefficients, walk, initial, source, reaction
    )


def equation(problem: CanonicalProblem, seed: int) -> tuple[Equation, dict[str, list[str]]]:
    """The problem's equation with a checked way to each second derivative that features need, and the rungs that did not serve, with reasons."""
    rng = streams.generator(seed, "laplacian check")
    places = problem.region.sample(rng, 3, problem.dim)
    away = 0.01 * rng.standard_normal((3, problem.dim))
    times, places = problem.region.at(rng.uniform(0.25, 0.75, 3), problem.horizon, places)
    places = places + away
    plain = values_only(problem)
    skipped: dict[str, list[str]] = {}
    if isinstance(plain, VaryingEquation):  # through the steps of paths
        noise, fraction = rng.standard_normal((3, *plain.paths.normals(problem.dim))), rng.random(3)
        diffusion = plain.coefficients.at(jnp.asarray(times[0]), jnp.asarray(places[0])).diffusion
        parts = {
            "moved_initial": (noise, times, places),
            "moved_source": (noise, fraction, times, places),
            "moved_reaction": (noise, fraction, times, places),
        }
    else:
        diffusion = plain.diffusion
        parts = {"initial": (places,), "source": (times, places), "reaction": (times, places)}
    alike = (
        problem.nonlinear is not None
        and not isinstance(plain, VaryingEquation)
        and problem.nonlinear.is_x_independent(problem.dim)
    )
    first, _, third = parts
    needed = [
        part
        for part in parts
        if getattr(plain, part) is not None
        and (part != first or alike or getattr(plain, third) is None)
    ]
    for part in needed:
        name = "source" if "source" in part else problem.data_name
        if alike and part != first:
            inner: Differentiable = plain.initial
            chained = Chained(
                getattr(plain, part).function,
                f"{inner.rung}, chain rule",
                inner.diffusion,
                inner=inner,
            )
            plain = eqx.tree_at(attrgetter(part), plain, chained)
            continue
        chosen, why = choose(
            name,
            getattr(plain, part).function,
            *zip(*parts[part], strict=True),
            diffusion=diffusion,
        )
        plain = eqx.tree_at(attrgetter(part), plain, chosen)
        if why:
            skipped[name] = why
    return plain, skipped


def on_device(tree: Any) -> Any:
    """With its arrays as JAX arrays."""
    return jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, np.ndarray | float) else a, tree)
