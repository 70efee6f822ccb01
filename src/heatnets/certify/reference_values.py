"""Reference values: Monte Carlo means of u at points of the region, to compare a network with.

    u(t, x) = E[u0(X_t)] + t E[F(rt, X_{(1-r)t})],    X the path from x, r uniform on (0, 1)

They need no smoothness, and nothing of the network or its residual.
"""

# Residuals sampled at a few hundred places cannot see what is rare and large. A plain average of
# the data can: a network that is wrong by the size of u differs from it, whatever its residual. A
# sample costs two evaluations of the data, where a sample of the residual costs one with
# derivatives for every feature: so there can be many samples.

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array

from heatnets._core import streams
from heatnets._core.execution import ExecutionContext
from heatnets._core.statistics import (
    MAX_KURTOSIS_RATIO,
    SIZE_UNKNOWN,
    Pool,
    RelativeError,
    RunningMoments,
    relative_of_squares,
    rms,
)
from heatnets._core.tiling import map_points
from heatnets.certify.path_sampling import Starts, antithetic_mean, extrapolate, noise_size
from heatnets.features.features import Equation
from heatnets.fit.assembly import initial_values, source_values
from heatnets.fit.collocation import sample_points
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.paths import ExactPaths, PathSimulator

_PER_CALL = 2**13  # pairs at all points together: calls of one shape compile once
_COORDINATES = 2**22  # most coordinates of the noise of those pairs
_ENTRIES_PER_PAIR = 16  # entries of the system that cost more than one pair
_ENTRIES_PER_HOST_PAIR = 1024  # the same, if a GPU computes entries and the host draws pairs
_FREE = 2**21  # coordinates of pairs that are always affordable: a tenth of a second
_OVERHEAD = 16  # coordinates that a pair costs in addition to its noise
_FEWEST_PAIRS = 64  # at a point: with fewer, normal samples look as if they had heavy tails
_MOST = 256  # calls
_DEVICE_WIDTH = 64  # from so many numbers per path the noise is drawn on a GPU
HEAVY_SHARE = 0.1  # of the points: if more of them have heavy tails, nothing is known
_AGREE = 3.0  # standard errors


def reference_stream(seed: int, stream: str, mark: streams.Mark = ()) -> np.random.Generator:
    """The random generator of reference values, by the name of a stream."""
    return streams.generator(seed, f"{stream}, Monte Carlo values", mark)


HEAVY_TAILS = "a few Monte Carlo samples carry the variance at {share:.0f} % of the points"


class ReferenceValues:
    """Means of antithetic Monte Carlo samples of u at n points; `extend` adds samples.

    If the points were chosen from a `pool`, all values are multiplied by the roots of their
    weights, so that mean squares over the points are weighted.

    Attributes:
        mean: the means, in units of u, (n,).
        noise: their standard errors, (n,).
        bias: estimates of the bias from the steps of paths, (n,).
        factor: from values of the canonical problem to u, times the roots of the weights, (n,).
        pairs: pairs at each point in one call.
        calls: calls so far.
        largest: largest |u0| and |F| so far, without the weights of paths.
    """

    def __init__(
        self,
        problem: CanonicalProblem,
        data: Equation,
        points: tuple[np.ndarray, np.ndarray],
        rng: np.random.Generator,
        ctx: ExecutionContext,
        *,
        pool: Pool = Pool(),  # noqa: B008
    ) -> None:
        self._problem, self._data, self._rng, self._ctx = problem, data, rng, ctx
        self.points, self._pool = points, pool  # canonical t (n,) and x (n, dim)
        self.factor = problem.value_scale(points[0]) * np.sqrt(pool.weight)
        self._moments, self._steps = RunningMoments(), RunningMoments()
        self._width = noise_size(problem)
        most_pairs = min(_PER_CALL, _COORDINATES // self._width)
        self.pairs = max(most_pairs // len(self.factor), 2)
        self._single = problem.region.is_point
        self.calls, self.largest = 0, [0.0, 0.0]

    @classmethod
    def over_region(
        cls,
        problem: CanonicalProblem,
        data: Equation,
        seed: int,
        stream: str,
        ctx: ExecutionContext,
        *,
        entries: int = 0,
        points: int = 64,
    ) -> ReferenceValues:
        """Reference values at random points of (0, T] x region (at t = T for a `Point`).

        Args:
            problem: the canonical problem.
            data: its data as an equation.
            seed: seed of the random numbers.
            stream: name of their stream.
            ctx: where to run.
            entries: as for `extend`.
            points: the number of points.
        """
        where = sample_points(problem, points, streams.generator(seed, f"{stream}, points"))
        reference = cls(problem, data, where, reference_stream(seed, stream), ctx)
        reference.extend(entries)
        return reference

    @property
    def samples(self) -> int:
        """The number of samples at each point."""
        return 2 * self.pairs * self.calls

    def extend(self, entries: int) -> None:
        """Draw samples until their cost is a small part of a solve with so many matrix entries.

        The cost is counted, never measured by the clock: the same call draws the same samples.
        """
        is_alike = self._is_for_device or self._ctx.device.platform == "cpu"
        entries_per_pair = _ENTRIES_PER_PAIR if is_alike else _ENTRIES_PER_HOST_PAIR
        pairs = max(
            entries * self._problem.dim // (entries_per_pair * self._width),
            _FREE // (self._width + _OVERHEAD),
        )
        fewest = max(2, -(-_FEWEST_PAIRS // self.pairs))
        affordable = pairs // (len(self.factor) * self.pairs)
        calls = int(np.clip(affordable, fewest, max(_MOST, fewest)))
        for samples, steps in self._draw_calls(max(calls - self.calls, 0)):
            self._moments.add((self.factor[:, None] * samples).T)
            self._steps.add((self.factor[:, None] * steps).T)
            self.calls += 1
        self.mean = self._moments.mean
        self.noise = self._moments.deviation / np.sqrt(self._moments.count)
        self.bias = self._steps.mean

    def _draw_calls(self, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Draw samples so many times; each time has its own random numbers.

        Several processes share the calls: each gets the samples of all.
        """
        processes, draw = self._ctx.processes, self._draw
        if self._is_for_device:
            draw = self._draw_on_device
        generators = self._rng.spawn(count)
        if processes.count == 1:
            yield from map(draw, generators)
            return
        shape, own = (
            (2, len(self.factor), self.pairs),
            generators[processes.rank :: processes.count],
        )
        with self._ctx.alone().active():
            drawn = np.array([draw(rng) for rng in own]).reshape(-1, *shape)
        parts = processes.gather("reference values", drawn)
        self.largest = processes.largest("largest data", self.largest).tolist()
        for k in range(count):
            samples, steps = parts[k % processes.count][k // processes.count]
            yield samples, steps

    def _draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Antithetic pairs of samples, and what halving the steps changes, (points, pairs) each."""
        simulator, (t, x) = self._problem.paths, self.points
        starts, shape = Starts(t[:, None], x[:, None, :]), (len(t), self.pairs)
        has_source = self._problem.feature_source is not None
        noises = [
            simulator.sample_noise(rng, shape, self._problem.dim) for _ in range(1 + has_source)
        ]
        lag = (1 - rng.random(shape)) * starts.t

        def sample(level: PathSimulator, noise: np.ndarray) -> tuple[np.ndarray, None]:
            (value,) = antithetic_mean(self._initial, level, starts, starts.t, noise[0])
            if has_source:
                (force,) = antithetic_mean(self._force, level, starts, lag, noise[1])
                value = value + starts.t * force
            return value, None

        samples, steps, _ = extrapolate(simulator, np.stack(noises), sample)
        return samples, np.zeros(shape) if steps is None else steps[..., 0]

    @property
    def _is_for_device(self) -> bool:
        """Whether the device draws the noise.

        The host draws 100 million normal numbers per second: a minute in 100,000 dimensions.
        """
        is_exact = isinstance(self._problem.paths, ExactPaths)
        return is_exact and self._width >= _DEVICE_WIDTH and self._ctx.device.platform != "cpu"

    def _draw_on_device(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """As `_draw`, for paths without steps; the device draws the noise from seeds."""
        (t, x), shape = self.points, (len(self.factor), self.pairs)
        seeds = rng.integers(2**32, size=shape, dtype=np.uint32)
        context = (self._data, self._problem.paths, self._problem.feature_source is not None)
        floats = 8 * self._problem.dim
        samples, initial, force = map_points(
            _sample_pairs, context, (t, x, seeds), floats, self._ctx.alone()
        )
        self._record(0, initial)
        self._record(1, force)
        return samples, np.zeros(shape)

    def _initial(self, s: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self._record(0, initial_values(self._data, y, self._ctx.alone()))

    def _force(self, s: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self._record(1, source_values(self._data, (s, y), self._ctx.alone()))

    def _record(self, kind: int, values: np.ndarray) -> np.ndarray:
        """Keep the largest |value| of u0 (kind 0) or F (kind 1); return the values."""
        self.largest[kind] = float(np.fmax(self.largest[kind], np.max(np.abs(values))))
        return values

    def facts(self, known: RelativeError) -> dict[str, Any]:
        """Entries of `stats["check"]` from the result of `compare`."""
        usable = not known.reasons
        return {
            "monte_carlo": known.value if usable else None,
            "monte_carlo_high": known.high if usable else None,
            "floor": self.floor,
            "monte_carlo_samples": self.samples * len(self.factor),
        }

    @property
    def heavy(self) -> float:
        """The share of points with heavy tails, where a few samples carry the variance."""
        return float(np.mean(~(self._moments.kurtosis <= MAX_KURTOSIS_RATIO * self._moments.count)))

    def compare(
        self, values: np.ndarray, confidence: float, source: np.ndarray | None = None
    ) -> RelativeError:
        """The relative L2 difference between a network and u, with a confidence interval.

        The noise of the reference values is subtracted: it does not count as a difference.

        Args:
            values: of the network at the points, (n,).
            confidence: confidence level of the interval.
            source: samples of a source that the reference values leave out, (n, S).
        """
        mean, noise = self.mean, self.noise
        if source is not None:
            mean = mean + source.mean(axis=1)
            noise = np.hypot(noise, source.std(axis=1, ddof=1) / np.sqrt(source.shape[1]))
        if self._single:
            return self._with_tails(self._compare_one(mean, noise, values, confidence))
        # Squares of small numbers underflow: everything in units of its largest value.
        unit, size = (float(np.max(np.abs(a))) or 1.0 for a in (mean - values, mean))
        error, true = (
            (a / s) ** 2 - (noise / s) ** 2 for a, s in ((mean - values, unit), (mean, size))
        )
        known = relative_of_squares(error, true, (unit, size), np.zeros(1), confidence, self._pool)
        bias = float(rms(self.bias) / known.scale)  # part of the difference, or hides a part of it
        low, high = max(known.low - bias, 0.0), known.high + bias
        return self._with_tails(known._replace(low=low, high=high))

    def _with_tails(self, known: RelativeError) -> RelativeError:
        """The result of a comparison, with a message where too many points have heavy tails."""
        heavy = (HEAVY_TAILS.format(share=100 * self.heavy),) if self.heavy > HEAVY_SHARE else ()
        return known._replace(reasons=(*known.reasons, *heavy))

    def _compare_one(
        self, mean: np.ndarray, noises: np.ndarray, values: np.ndarray, confidence: float
    ) -> RelativeError:
        """`compare` where all points are the same, so that all samples are of one value."""
        gap, size = abs(float(np.mean(mean - values))), abs(float(np.mean(mean)))
        noise, bias = rms(noises) / np.sqrt(len(mean)), abs(float(np.mean(self.bias)))
        half = noise * float(scipy.special.ndtri(0.5 * (1 + confidence)))
        if not size > 3 * noise:
            return RelativeError(np.inf, 0.0, np.inf, size, (SIZE_UNKNOWN,))
        error = float(np.sqrt(max((gap / size) ** 2 - (noise / size) ** 2, 0.0)))
        low, high = max(gap - half - bias, 0.0), gap + half + bias
        return RelativeError(error, low / size, high / size, size, ())

    def disagreement(self, values: np.ndarray) -> float:
        """The root mean square difference of network values (n,) from u that is not chance.

        In units of u, zero where the differences can be noise or bias.
        """
        if self._single:
            noise = rms(self.noise) / np.sqrt(len(values))
            distance, bias = abs(float(np.mean(self.mean - values))), abs(float(np.mean(self.bias)))
            return max(distance - _AGREE * noise - bias, 0.0)
        gap = self.mean - values
        unit = float(np.max(np.abs(gap))) or 1.0
        square = (gap / unit) ** 2 - (self.noise / unit) ** 2 - (self.bias / unit) ** 2
        deviation = float(np.std(square, ddof=1))
        significant = float(np.mean(square)) - _AGREE * deviation / np.sqrt(len(square))
        return unit * float(np.sqrt(max(significant, 0.0)))

    @property
    def floor(self) -> float:
        """The largest relative root mean square difference that cannot be told from noise."""
        scale = rms(self.mean) or 1.0
        mean, noise = self.mean / scale, self.noise / scale
        size = float(np.mean(mean**2 - noise**2))
        if not size > 0:
            return np.inf
        if self._single:
            return _AGREE * rms(noise) / float(np.sqrt(len(mean) * size))
        return float(np.sqrt(_AGREE * np.sqrt(2 * np.mean(noise**4) / len(mean)) / size))


def _sample_pairs(
    context: tuple[Equation, PathSimulator, bool], t: Array, x: Array, seeds: Array
) -> tuple[Array, Array, Array]:
    """Antithetic samples of u at one point: the values, and the largest |u0| and |F|, (pairs,)."""
    data, paths, has_source = context

    def mean_of_pair(
        function: Callable[[Array, Array], Array], lag: Array, key: Array
    ) -> tuple[Array, Array]:
        noise = paths.scale_noise(jax.random.normal(key, paths.noise_shape(x.size), x.dtype))
        ends = [paths.simulate_one(t, x, lag, sign * noise).position for sign in (1.0, -1.0)]
        values = jnp.stack([function(t - lag, end) for end in ends])
        return jnp.mean(values), jnp.max(jnp.abs(values))

    def sample(seed: Array) -> tuple[Array, Array, Array]:
        of_initial, of_source, of_lag = jax.random.split(jax.random.key(seed), 3)
        value, largest = mean_of_pair(lambda s, y: data.initial(y), t, of_initial)
        if not has_source:
            return value, largest, jnp.zeros(())
        lag = (1 - jax.random.uniform(of_lag, dtype=x.dtype)) * t
        force, largest_force = mean_of_pair(data.source_value, lag, of_source)
        return value + t * force, largest, largest_force

    return jax.lax.map(sample, seeds)
