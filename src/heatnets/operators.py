"""The equation in computable form: its coefficients, its data with their derivatives, and the residual of what features are made of.

A feature is made of the data at the end of a path: u0 moved, or the source moved. An equation gives their values, and their residuals
(∂_t - L)φ. Where coefficients are constant, L = div(A ∇), paths only shift x, and derivatives are those of the data; where they vary, L is
tr(A D²) + b·∇ + c at (t, x), and derivatives go through the path's steps.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets import streams
from heatnets.derivatives import Differentiable, choose
from heatnets.diffusions import Diffusion
from heatnets.function import Function
from heatnets.problem import Problem
from heatnets.varying import Coefficients
from heatnets.walks import Stepped

Scalar = Float[Array, ""]
Vector = Float[Array, "dim"]


class Equation(eqx.Module):
    """u_t - tr(A D²u) = F, u(0, ·) = u0, as arrays and functions that JAX can carry: A is traced, functions are static."""

    scatter: Diffusion
    initial: Differentiable
    source: Differentiable | None

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

    def forced_entry(self, noise: Array, fraction: Scalar, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        """The same and its residual, t > 0."""
        assert self.source is not None
        place, velocity = jax.jvp(lambda s: (fraction * s, self.flow((1 - fraction) * s, x, noise)), (t,), (jnp.ones_like(t),))
        force, change = self.source.along(place, velocity)
        # ∂_t (t F) = F + t dF/dt along the path; second derivatives of t F are t times F's, as the path only shifts x.
        return t * force, force + t * change - t * self.source.second(*place)

    def forcing(self, t: Scalar, x: Vector) -> Scalar:
        """F(t, x), zero where there is no source."""
        return jnp.zeros(()) if self.source is None else self.source(t, x)

    def workspace(self, dim: int) -> int:
        """Floats per evaluation of the data with derivatives."""
        return max(f.workspace(dim) for f in self._differentiated if f is not None)

    @property
    def _differentiated(self) -> tuple[Differentiable | None, ...]:
        return self.initial, self.source

    @property
    def rungs(self) -> dict[str, str]:
        """Which rung serves the second derivatives of each function, for `stats["laplacian"]`."""
        return {name: f.rung for name, f in zip(("initial", "source"), self._differentiated, strict=True) if f is not None}


class Started(eqx.Module):
    """(noise, t, x) ↦ the weighted u0 at the end of a path in steps."""

    walk: Stepped
    initial: Function

    def __call__(self, noise: Array, t: Scalar, x: Vector) -> Scalar:
        moved = self.walk.path(t, x, t, noise)
        return moved.weight * self.initial(moved.place)


class Forced(eqx.Module):
    """(noise, r, t, x) ↦ the weighted t F(rt, ·) at the end of a path in steps."""

    walk: Stepped
    source: Function

    def __call__(self, noise: Array, fraction: Scalar, t: Scalar, x: Vector) -> Scalar:
        moved = self.walk.path(t, x, (1 - fraction) * t, noise)
        return t * moved.weight * self.source(fraction * t, moved.place)


class VaryingEquation(Equation):
    """u_t - tr(A D²u) - b·∇u - c u = F with coefficients that are functions of (t, x); `walk` is that of the features."""

    coefficients: Coefficients
    walk: Stepped
    moved_initial: Differentiable
    moved_source: Differentiable | None

    def started(self, noise: Array, t: Scalar, x: Vector) -> Scalar:
        return self.moved_initial(noise, t, x)

    def started_entry(self, noise: Array, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        return self._entry(self.moved_initial, (noise,), t, x)

    def forced(self, noise: Array, fraction: Scalar, t: Scalar, x: Vector) -> Scalar:
        assert self.moved_source is not None
        return self.moved_source(noise, fraction, t, x)

    def forced_entry(self, noise: Array, fraction: Scalar, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        assert self.moved_source is not None
        return self._entry(self.moved_source, (noise, fraction), t, x)

    def _entry(self, f: Differentiable, held: tuple[Array, ...], t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        here = self.coefficients.at(t, x)
        still = tuple(jnp.zeros_like(h) for h in held)
        value, change = f.along((*held, t, x), (*still, jnp.ones_like(t), -here.drift))
        return value, change - f.second(*held, t, x, scatter=here.scatter) - here.reaction * value

    def workspace(self, dim: int) -> int:
        return 2 * self.walk.steps * super().workspace(dim)

    @property
    def _differentiated(self) -> tuple[Differentiable | None, ...]:
        return self.moved_initial, self.moved_source


def values_only(problem: Problem) -> Equation:
    """The problem's equation where only values of its data are needed."""
    scatter = on_device(problem.scatter)
    source = None if problem.source is None else Differentiable(problem.source, "none", scatter)
    initial = Differentiable(problem.initial, "none", scatter)
    if problem.varying is None:
        return Equation(scatter, initial, source)
    assert isinstance(problem.feature_walk, Stepped)
    walk, coefficients = on_device(problem.feature_walk), on_device(problem.varying)
    moved_source = None if problem.source is None else Differentiable(Function(Forced(walk, problem.source)), "none", scatter)
    return VaryingEquation(
        scatter,
        initial,
        source,
        coefficients,
        walk,
        Differentiable(Function(Started(walk, problem.initial)), "none", scatter),
        moved_source,
    )


def equation(problem: Problem, seed: int) -> tuple[Equation, dict[str, list[str]]]:
    """The problem's equation with a checked way to each second derivative, and the rungs that did not serve, with reasons."""
    rng = streams.generator(seed, "laplacian check")
    places = problem.region.sample(rng, 3, problem.dim)
    away = 0.01 * rng.standard_normal((3, problem.dim))
    times, places = problem.region.at(rng.uniform(0.25, 0.75, 3), problem.horizon, places)
    places = places + away
    plain = values_only(problem)
    if isinstance(plain, VaryingEquation):
        return _varying(problem, plain, times, places, rng)
    initial, why_initial = choose(problem.given, problem.initial, *((x,) for x in places), scatter=plain.scatter)
    source: Differentiable | None = None
    why_source: list[str] = []
    if problem.source is not None:
        source, why_source = choose("source", problem.source, *zip(times, places, strict=True), scatter=plain.scatter)
    return Equation(plain.scatter, initial, source), _reasons(why_initial, why_source)


def _varying(
    problem: Problem, plain: VaryingEquation, times: np.ndarray, places: np.ndarray, rng: np.random.Generator
) -> tuple[Equation, dict[str, list[str]]]:
    """The same through the steps of paths."""
    noise = rng.standard_normal((3, *plain.walk.normals(problem.dim)))
    here = plain.coefficients.at(jnp.asarray(times[0]), jnp.asarray(places[0]))
    initial, why_initial = choose(
        problem.given, plain.moved_initial.function, *zip(noise, times, places, strict=True), scatter=here.scatter
    )
    source: Differentiable | None = None
    why_source: list[str] = []
    if plain.moved_source is not None:
        points = zip(noise, rng.random(3), times, places, strict=True)
        source, why_source = choose("source", plain.moved_source.function, *points, scatter=here.scatter)
    return VaryingEquation(plain.scatter, plain.initial, plain.source, plain.coefficients, plain.walk, initial, source), _reasons(
        why_initial, why_source
    )


def _reasons(initial: list[str], source: list[str]) -> dict[str, list[str]]:
    return {name: why for name, why in (("initial", initial), ("source", source)) if why}


def on_device(tree: Any) -> Any:
    """With its arrays as JAX arrays."""
    return jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, np.ndarray | float) else a, tree)
