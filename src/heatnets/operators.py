"""The equation in computable form: its coefficients, its data with their derivatives, its residual entry."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from heatnets import streams
from heatnets.derivatives import Differentiable, choose
from heatnets.diffusions import Diffusion
from heatnets.problem import Problem


class Equation(eqx.Module):
    """u_t - tr(A D²u) = F, u(0, ·) = u0, as arrays and functions that JAX can carry: A is traced, functions are static."""

    scatter: Diffusion
    initial: Differentiable
    source: Differentiable | None

    def flow(self, t: Float[Array, ""], x: Float[Array, "dim"], noise: Float[Array, "dim"]) -> Float[Array, "dim"]:
        """Where a path from x is after a time: x + √(2t) Sη, A = S Sᵀ, η ~ N(0, I); `noise` is Sη."""
        return x + jnp.sqrt(2 * t) * noise

    def forcing(self, t: Float[Array, ""], x: Float[Array, "dim"]) -> Float[Array, ""]:
        """F(t, x), zero where there is no source."""
        return jnp.zeros(()) if self.source is None else self.source(t, x)

    def workspace(self, dim: int) -> int:
        """Floats per evaluation of the data with derivatives."""
        return max(f.workspace(dim) for f in (self.initial, self.source) if f is not None)

    @property
    def rungs(self) -> dict[str, str]:
        """Which rung serves the Laplacian of each function, for `stats["laplacian"]`."""
        return {name: f.rung for name, f in (("initial", self.initial), ("source", self.source)) if f is not None}


def values_only(problem: Problem) -> Equation:
    """The problem's equation where only values of its data are needed."""
    scatter = _on_device(problem)
    source = None if problem.source is None else Differentiable(problem.source, "none", scatter)
    return Equation(scatter, Differentiable(problem.initial, "none", scatter), source)


def equation(problem: Problem, seed: int) -> tuple[Equation, dict[str, list[str]]]:
    """The problem's equation with a checked way to each Laplacian, and the rungs that did not serve, with reasons."""
    rng = streams.generator(seed, "laplacian check")
    places = problem.region.sample(rng, 3, problem.dim)
    away = 0.01 * rng.standard_normal((3, problem.dim))
    times, places = problem.region.at(rng.uniform(0.25, 0.75, 3), problem.horizon, places)
    places, scatter = places + away, _on_device(problem)
    initial, why_initial = choose(problem.given, problem.initial, *((x,) for x in places), scatter=scatter)
    source: Differentiable | None = None
    why_source: list[str] = []
    if problem.source is not None:
        source, why_source = choose("source", problem.source, *zip(times, places, strict=True), scatter=scatter)
    skipped = {name: why for name, why in (("initial", why_initial), ("source", why_source)) if why}
    return Equation(scatter, initial, source), skipped


def _on_device(problem: Problem) -> Diffusion:
    return jax.tree.map(jnp.asarray, problem.scatter)
