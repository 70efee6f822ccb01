"""How paths move: by one exact jump where coefficients are constant, in steps where they vary.

A path starts at (t, x) and runs back towards the data: after a time `lag` it is at the time t - lag, and carries the weight exp(∫ c). One point and
its noise in JAX (`path`), or many in NumPy (`go`).
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from heatnets._core.execution import make_context
from heatnets._core.tiling import evaluate
from heatnets.pde.coefficients import CoefficientField
from heatnets.pde.diffusion import Diffusion


class PathEnd(NamedTuple):
    """Where a path is, its weight, and the sum of its increments' odd parts in the noise: for steps of mean zero, √2 ∫ S dW."""

    place: Any
    weight: Any
    push: Any


class PathSimulator(eqx.Module):
    """The law of paths."""

    @abc.abstractmethod
    def normals(self, dim: int) -> tuple[int, ...]:
        """The shape of the noise of one path."""

    @abc.abstractmethod
    def scale_noise(self, normal: Any) -> Any:
        """Noise from standard normals."""

    @abc.abstractmethod
    def path(self, t: Any, x: Any, lag: Any, noise: Any) -> PathEnd:
        """One path, in JAX."""

    @abc.abstractmethod
    def go(self, t: Any, x: Any, lag: Any, noise: Any) -> PathEnd:
        """Many paths, in NumPy: t and lag (...), x (..., dim)."""

    @abc.abstractmethod
    def pull(self, t: Any, x: Any, lag: Any, noise: Any, slope: Any, by_weight: Any) -> Any:
        """Gradients in x: of a function of place and weight with the derivatives `slope` (..., dim) and `by_weight` (...)."""

    @abc.abstractmethod
    def curve(
        self, t: Any, x: Any, lag: Any, noise: Any, w: Any, c: Any
    ) -> tuple[PathEnd, PathEnd, PathEnd]:
        """Paths from x, and their first and second derivatives along curves x + εw + ½ε²c."""

    def over(self, parts: int) -> PathSimulator:
        """For a path in so many pieces: the walk of each."""
        return self

    def levels(self, noise: Any) -> list[tuple[float, PathSimulator, Any]]:
        """Walks whose results, each times its factor, add up to what is free of the steps' first-order bias: (factor, walk, noise), the finest first.

        Where there are steps: those, half and a quarter as many; the last only tells whether halving them doubles what they do, as first order should.
        """
        return [(1.0, self, noise)]

    def draw(self, rng: Any, shape: tuple[int, ...], dim: int) -> np.ndarray:
        """Noise of many paths."""
        return self.scale_noise(rng.standard_normal((*shape, *self.normals(dim))))


class ExactPaths(PathSimulator):
    """Constant coefficients: x + √(2 lag) Sξ, exactly; noise is Sξ."""

    diffusion: Diffusion

    def normals(self, dim: int) -> tuple[int, ...]:
        return (dim,)

    def scale_noise(self, normal: Any) -> Any:
        return self.diffusion.apply_sqrt(normal)

    def path(self, t: Any, x: Any, lag: Any, noise: Any) -> PathEnd:
        push = jnp.sqrt(2 * lag) * noise
        return PathEnd(x + push, 1.0, push)

    def go(self, t: Any, x: Any, lag: Any, noise: Any) -> PathEnd:
        push = np.sqrt(2 * np.asarray(lag))[..., None] * noise
        return PathEnd(x + push, 1.0, push)

    def pull(self, t: Any, x: Any, lag: Any, noise: Any, slope: Any, by_weight: Any) -> Any:
        return slope

    def curve(
        self, t: Any, x: Any, lag: Any, noise: Any, w: Any, c: Any
    ) -> tuple[PathEnd, PathEnd, PathEnd]:
        return self.go(t, x, lag, noise), PathEnd(w, 0.0, None), PathEnd(c, 0.0, None)


class EulerPaths(PathSimulator):
    """Coefficients that vary: `steps` equal steps, Euler's or the user's own; noise is standard normal, (steps, dim)."""

    coefficients: CoefficientField
    steps: int = eqx.field(static=True)

    def normals(self, dim: int) -> tuple[int, ...]:
        return (self.steps, dim)

    def scale_noise(self, normal: Any) -> Any:
        return normal

    def path(self, t: Any, x: Any, lag: Any, noise: Any) -> PathEnd:
        transform = self.coefficients.transform
        begin, end = (
            transform.inverse_time(jnp.asarray(t)),
            transform.inverse_time(jnp.asarray(t - lag)),
        )
        h = (end - begin) / self.steps  # equal steps of the user's time

        def step(state: tuple[Any, Any, Any], k: Any, normal: Any) -> tuple[Any, Any, Any]:
            y, grown, pushed = state
            y, more, push = self.coefficients.move(begin + k * h, begin + (k + 1) * h, y, normal)
            return y, grown + more, pushed + push

        state = (x, jnp.zeros(()), jnp.zeros_like(x))
        if self.steps <= _UNROLLED and not self.coefficients.long:
            for k in range(self.steps):
                state = step(state, k, noise[k])
        else:
            state, _ = jax.lax.scan(
                lambda s, kn: (step(s, *kn), None), state, (jnp.arange(self.steps), noise)
            )
        return PathEnd(state[0], jnp.exp(state[1]), state[2])

    def go(self, t: Any, x: Any, lag: Any, noise: Any) -> PathEnd:
        return self._many(_path, (t, lag), (x,), noise)

    def pull(self, t: Any, x: Any, lag: Any, noise: Any, slope: Any, by_weight: Any) -> Any:
        return self._many(_pull, (t, lag, by_weight), (x, slope), noise)

    def curve(
        self, t: Any, x: Any, lag: Any, noise: Any, w: Any, c: Any
    ) -> tuple[PathEnd, PathEnd, PathEnd]:
        return self._many(_curve, (t, lag), (x, w, c), noise)

    def _many(
        self, function: Any, numbers: tuple[Any, ...], vectors: tuple[Any, ...], noise: Any
    ) -> Any:
        """A function of single paths at arrays of them, a tile at a time."""
        many, dim = noise.shape[:-2], noise.shape[-1]
        flat: list[np.ndarray] = [np.broadcast_to(a, many).reshape(-1) for a in numbers]
        flat += [np.broadcast_to(a, (*many, dim)).reshape(-1, dim) for a in vectors]
        flat.append(noise.reshape(-1, self.steps, dim))
        found = evaluate(
            function,
            self,
            tuple(flat),
            (16 * self.steps + self.coefficients.workspace) * dim,
            make_context(),
        )
        return jax.tree.map(lambda a: a.reshape(*many, *a.shape[1:]), found)

    def over(self, parts: int) -> PathSimulator:
        # Pieces are of random length: the longest of eight is nearly half the way.
        return self if parts <= 2 else EulerPaths(self.coefficients, max(4, self.steps // 2))

    def levels(self, noise: Any) -> list[tuple[float, Any, Any]]:
        found: list[tuple[float, Any, Any]]
        found, factors = [(2.0, self, noise)], (-1.0, 0.0)
        for factor in factors:
            _, finer, noise = found[-1]
            pairs = (noise[..., 0::2, :] + noise[..., 1::2, :]) / np.sqrt(2.0)
            found.append((factor, EulerPaths(self.coefficients, finer.steps // 2), pairs))
        return found


_UNROLLED = 4  # steps written out, which forward Laplacians can follow; more are a loop


def _path(walk: EulerPaths, t: Any, lag: Any, x: Any, noise: Any) -> PathEnd:
    return walk.path(t, x, lag, noise)


def _pull(
    walk: EulerPaths, t: Any, lag: Any, by_weight: Any, x: Any, slope: Any, noise: Any
) -> Any:
    moved, back = jax.vjp(lambda y: walk.path(t, y, lag, noise), x)
    return back(PathEnd(slope, by_weight, jnp.zeros_like(moved.push)))[0]


def _curve(
    walk: EulerPaths, t: Any, lag: Any, x: Any, w: Any, c: Any, noise: Any
) -> tuple[PathEnd, PathEnd, PathEnd]:
    def along(e: Any) -> PathEnd:
        return walk.path(t, x + e * w + 0.5 * e**2 * c, lag, noise)

    zero, one = jnp.zeros(()), jnp.ones(())
    (moved, first), (_, second) = jax.jvp(lambda e: jax.jvp(along, (e,), (one,)), (zero,), (one,))
    return moved, first, second
