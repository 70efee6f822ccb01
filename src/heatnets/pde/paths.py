"""Path simulators: exact for constant coefficients, with Euler steps for coefficient fields.

A path starts at (t, x), in canonical coordinates, and runs towards the initial condition: after a
time `lag` it is at the time t - lag, with the weight exp(∫ c). `simulate_one` simulates one path in
JAX, `simulate` simulates arrays of paths in NumPy.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from heatnets._core import streams
from heatnets._core.execution import current_context
from heatnets._core.tiling import map_points
from heatnets.pde.coefficients import CoefficientField
from heatnets.pde.diffusion import Diffusion


class PathEnd(NamedTuple):
    """The end of a path."""

    position: Any  # (..., dim)
    weight: Any  # exp(∫ c), (...)
    martingale: Any  # sum of the odd parts of the increments in the noise: √2 ∫ S dW for Euler


Curve = tuple[PathEnd, PathEnd, PathEnd]  # ends of paths, with two derivatives in a parameter


class PathSimulator(eqx.Module):
    """Base class of path simulators."""

    @abc.abstractmethod
    def noise_shape(self, dim: int) -> tuple[int, ...]:
        """The shape of the noise of one path."""

    @abc.abstractmethod
    def scale_noise(self, normal: Any) -> Any:
        """The noise of paths for standard normal numbers of shape (..., *noise_shape(dim))."""

    @abc.abstractmethod
    def simulate_one(self, t: Any, x: Any, lag: Any, noise: Any) -> PathEnd:
        """Simulate one path from x (dim,) at the time t, in JAX."""

    @abc.abstractmethod
    def simulate(self, t: Any, x: Any, lag: Any, noise: Any) -> PathEnd:
        """Simulate an array of paths, in NumPy: t and lag (...), x (..., dim)."""

    @abc.abstractmethod
    def vjp(self, t: Any, x: Any, lag: Any, noise: Any, slope: Any, by_weight: Any) -> Any:
        """Gradients in the starting points x of f(position, weight), by the chain rule: (..., dim).

        `slope` (..., dim) is ∂f/∂position and `by_weight` (...) is ∂f/∂weight.
        """

    @abc.abstractmethod
    def second_tangent(self, t: Any, x: Any, lag: Any, noise: Any, w: Any, c: Any) -> Curve:
        """Paths from x + εw + ½ε²c, and their first and second derivatives in ε, at ε = 0."""

    def split_into(self, parts: int) -> PathSimulator:
        """The simulator for each piece of a path that is cut into `parts` pieces."""
        return self

    def richardson_levels(self, noise: Any) -> list[tuple[float, PathSimulator, Any]]:
        """Simulators for Richardson extrapolation: (factor, simulator, noise), the finest first.

        The sum of factor times result has no first-order bias of the time steps. With time steps
        there are three levels, with all, half and a quarter of the steps. The last has the factor
        zero: it only shows whether the bias doubles if the steps are halved, as at first order.
        """
        return [(1.0, self, noise)]

    def sample_noise(self, rng: Any, shape: tuple[int, ...], dim: int) -> np.ndarray:
        """Random noise for an array of paths, (*shape, *noise_shape(dim))."""
        return self.scale_noise(streams.normal(rng, (*shape, *self.noise_shape(dim))))


class ExactPaths(PathSimulator):
    """Exact simulator for constant coefficients: x + √(2 lag) Sξ. The noise is Sξ, (dim,)."""

    diffusion: Diffusion

    def noise_shape(self, dim: int) -> tuple[int, ...]:
        return (dim,)

    def scale_noise(self, normal: Any) -> Any:
        return self.diffusion.apply_sqrt(normal)

    def simulate_one(self, t: Any, x: Any, lag: Any, noise: Any) -> PathEnd:
        push = jnp.sqrt(2 * lag) * noise
        return PathEnd(x + push, 1.0, push)

    def simulate(self, t: Any, x: Any, lag: Any, noise: Any) -> PathEnd:
        push = np.sqrt(2 * np.asarray(lag))[..., None] * noise
        return PathEnd(x + push, 1.0, push)

    def vjp(self, t: Any, x: Any, lag: Any, noise: Any, slope: Any, by_weight: Any) -> Any:
        return slope

    def second_tangent(self, t: Any, x: Any, lag: Any, noise: Any, w: Any, c: Any) -> Curve:
        return self.simulate(t, x, lag, noise), PathEnd(w, 0.0, None), PathEnd(c, 0.0, None)


class EulerPaths(PathSimulator):
    """Simulator for coefficient fields: `steps` equal time steps, by Euler or the user's scheme.

    The noise is standard normal, (steps, dim). With `used`, a path has only so many steps, and the
    rest of the noise is not used: paths with all numbers of steps share one program.
    """

    coefficients: CoefficientField
    steps: int = eqx.field(static=True)
    used: Any = None  # number of steps, an integer array (); None for `steps`

    def noise_shape(self, dim: int) -> tuple[int, ...]:
        return (self.steps, dim)

    def scale_noise(self, normal: Any) -> Any:
        return normal

    def simulate_one(self, t: Any, x: Any, lag: Any, noise: Any) -> PathEnd:
        transform = self.coefficients.transform
        begin = transform.inverse_time(jnp.asarray(t))
        end = transform.inverse_time(jnp.asarray(t - lag))
        used = self.steps if self.used is None else self.used
        h = (end - begin) / used  # equal steps of the user's time

        def step(state: tuple[Any, Any, Any], k: Any, normal: Any) -> tuple[Any, Any, Any]:
            y, log_weight, total_push = state
            y, change, push = self.coefficients.advance(
                begin + k * h, begin + (k + 1) * h, y, normal
            )
            return y, log_weight + change, total_push + push

        state = (x, jnp.zeros(()), jnp.zeros_like(x))
        if self.steps <= _UNROLLED and not self.coefficients.is_expensive and self.used is None:
            for k in range(self.steps):
                state = step(state, k, noise[k])
        else:

            def next_state(state: Any, kn: tuple[Any, Any]) -> tuple[Any, None]:
                if self.used is None:
                    return step(state, *kn), None
                return jax.lax.cond(kn[0] < used, lambda s: step(s, *kn), lambda s: s, state), None

            state, _ = jax.lax.scan(next_state, state, (jnp.arange(self.steps), noise))
        return PathEnd(state[0], jnp.exp(state[1]), state[2])

    def simulate(self, t: Any, x: Any, lag: Any, noise: Any) -> PathEnd:
        return self._map_paths(_simulate, (t, lag), (x,), noise)

    def vjp(self, t: Any, x: Any, lag: Any, noise: Any, slope: Any, by_weight: Any) -> Any:
        return self._map_paths(_pull_back, (t, lag, by_weight), (x, slope), noise)

    def second_tangent(self, t: Any, x: Any, lag: Any, noise: Any, w: Any, c: Any) -> Curve:
        return self._map_paths(_differentiate_twice, (t, lag), (x, w, c), noise)

    def _map_paths(
        self, function: Any, numbers: tuple[Any, ...], vectors: tuple[Any, ...], noise: Any
    ) -> Any:
        """Apply a function of one path to an array of paths, a tile at a time.

        The numbers broadcast to (...), the vectors to (..., dim); the noise is (..., steps, dim).
        """
        batch, dim = noise.shape[:-2], noise.shape[-1]
        flat: list[np.ndarray] = [np.broadcast_to(a, batch).reshape(-1) for a in numbers]
        flat += [np.broadcast_to(a, (*batch, dim)).reshape(-1, dim) for a in vectors]
        flat.append(noise.reshape(-1, self.steps, dim))
        floats = (16 * self.steps + self.coefficients.workspace) * dim  # workspace of one path
        results = map_points(function, self, tuple(flat), floats, current_context())
        return jax.tree.map(lambda a: a.reshape(*batch, *a.shape[1:]), results)

    def split_into(self, parts: int) -> PathSimulator:
        # Pieces have random lengths: the longest of eight is nearly half of the path.
        if parts <= 2:
            return self
        steps = max(4, self.steps // 2)
        return type(self)(self.coefficients, steps, np.asarray(steps))

    def richardson_levels(self, noise: Any) -> list[tuple[float, Any, Any]]:
        levels: list[tuple[float, Any, Any]] = []
        for factor, used in ((2.0, self.steps), (-1.0, self.steps // 2), (0.0, self.steps // 4)):
            if levels:  # two increments of a Brownian path become one of twice the time
                noise = (noise[..., 0::2, :] + noise[..., 1::2, :]) / np.sqrt(2.0)
            xp = np if isinstance(noise, np.ndarray) else jnp
            rest = xp.zeros((*noise.shape[:-2], self.steps - used, noise.shape[-1]))
            level = type(self)(self.coefficients, self.steps, np.asarray(used))
            levels.append((factor, level, xp.concatenate([noise, rest], axis=-2)))
        return levels


class WeightedExactPaths(EulerPaths):
    """Exact paths for a field of which only the reaction varies.

    The weight takes it by the trapezoidal rule: an error of second order in the steps, where the
    left-point rule of `EulerPaths` has one of first order. Times are canonical.
    """

    def simulate_one(self, t: Any, x: Any, lag: Any, noise: Any) -> PathEnd:
        used = self.steps if self.used is None else self.used
        h = jnp.maximum(lag, 0.0) / used  # rounding could make it negative

        def reaction(s: Any, y: Any) -> Any:
            # Not at s = 0, where c may be infinite and u0 has kinks: the order stays the same.
            c = self.coefficients.evaluate(jnp.maximum(s, 0.25 * h), y).reaction
            return jnp.where(jnp.isfinite(c), c, jnp.nan)  # a weight of zero would hide it

        def step(state: Any, k: Any, normal: Any) -> Any:
            y, log_weight, total_push, last = state
            push = jnp.sqrt(2 * h) * self.coefficients.diffusion.apply_sqrt(normal)
            here = reaction(t - (k + 1) * h, y + push)
            return y + push, log_weight + 0.5 * h * (last + here), total_push + push, here

        def next_state(state: Any, kn: tuple[Any, Any]) -> tuple[Any, None]:
            return jax.lax.cond(kn[0] < used, lambda s: step(s, *kn), lambda s: s, state), None

        state = (x, jnp.zeros(()), jnp.zeros_like(x), reaction(jnp.asarray(t), x))
        state, _ = jax.lax.scan(next_state, state, (jnp.arange(self.steps), noise))
        return PathEnd(state[0], jnp.exp(state[1]), state[2])


_UNROLLED = 4  # up to so many steps are unrolled, as forward Laplacians need; more are a loop


def _simulate(simulator: EulerPaths, t: Any, lag: Any, x: Any, noise: Any) -> PathEnd:
    """`EulerPaths.simulate_one` with the arguments in the order of `_map_paths`."""
    return simulator.simulate_one(t, x, lag, noise)


def _pull_back(
    simulator: EulerPaths, t: Any, lag: Any, by_weight: Any, x: Any, slope: Any, noise: Any
) -> Any:
    """`EulerPaths.vjp` for one path, by reverse mode."""
    end, vjp = jax.vjp(lambda y: simulator.simulate_one(t, y, lag, noise), x)
    return vjp(PathEnd(slope, by_weight, jnp.zeros_like(end.martingale)))[0]


def _differentiate_twice(
    simulator: EulerPaths, t: Any, lag: Any, x: Any, w: Any, c: Any, noise: Any
) -> Curve:
    """`EulerPaths.second_tangent` for one path, by forward mode over forward mode."""

    def along(e: Any) -> PathEnd:
        return simulator.simulate_one(t, x + e * w + 0.5 * e**2 * c, lag, noise)

    zero, one = jnp.zeros(()), jnp.ones(())
    (end, first), (_, second) = jax.jvp(lambda e: jax.jvp(along, (e,), (one,)), (zero,), (one,))
    return end, first, second
