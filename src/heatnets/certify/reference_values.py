"""Monte Carlo values at points of the region: a check of a network that needs no smoothness and knows nothing of its residual.

    u(t, x) = E[u0(X_t)] + t E[F(rt, X_{(1-r)t})],    X the path from x, r uniform on (0, 1)

Residuals sampled at a few hundred places cannot see what is rare and large. A plain average of the data can: a network that is wrong by
the size of u differs from it, whatever its residual. A sample costs two evaluations of the data, where a sample of the residual costs one
with derivatives for every feature, so that there can be many.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special

from heatnets._core import streams
from heatnets._core.execution import ExecutionContext
from heatnets._core.statistics import (
    HEAVY,
    SIZE_UNKNOWN,
    Pool,
    RelativeError,
    RunningMoments,
    relative_of_squares,
    rms,
)
from heatnets.certify.error_equation import antithetic_mean, combined
from heatnets.features.equation import Equation
from heatnets.fit.assembly import forcing, initial_values
from heatnets.fit.collocation import judged
from heatnets.pde.canonical import CanonicalProblem

_PER_CALL = 2**13  # pairs at all points together: calls of one shape compile once
_COORDINATES = 2**22  # of the noise of those pairs at most
_ENTRIES_PER_PAIR = 16  # entries of the system that cost more than one pair
_FREE = 2**21  # coordinates of pairs that are always affordable: a tenth of a second
_OVERHEAD = 16  # coordinates that a pair costs beside its own
_FEWEST_PAIRS = 64  # at a point: of fewer, normal samples look as if they had heavy tails
_MOST = 256  # calls
HEAVY_SHARE = 0.1  # of the points: more of them with heavy tails, and nothing is known
_AGREE = 3.0  # standard errors

HEAVY_TAILS = "a few Monte Carlo samples carry the variance at {share:.0f} % of the points"


class ReferenceValues:
    """Means of antithetic Monte Carlo samples of u at points (t, x), which more samples sharpen.

    `mean`, `noise` (its standard error) and `bias` (what steps of paths may have done) have shape (points,), in units of u; where the points were chosen
    from a `pool` they are multiplied by the roots of their weights, so that mean squares are weighted.
    """

    def __init__(
        self,
        problem: CanonicalProblem,
        data: Equation,
        t: np.ndarray,
        x: np.ndarray,
        seed: int,
        stream: str,
        ctx: ExecutionContext,
        mark: streams.Mark = (),
        pool: Pool = Pool(),  # noqa: B008
    ) -> None:
        self._problem, self._data, self._ctx, self._t, self._x = problem, data, ctx, t, x
        self._rng = streams.generator(seed, f"{stream}, Monte Carlo values", mark)
        self.factor = problem.value_scale(t) * np.sqrt(
            pool.weight
        )  # from the canonical problem's values to u in a mean square
        self._moments, self._steps, self._source = (
            RunningMoments(),
            RunningMoments(),
            problem.source is not None,
        )
        self._width = int(np.prod(problem.paths.normals(problem.dim)))
        self.pairs = int(
            np.clip(min(_PER_CALL, _COORDINATES // self._width) // len(t), 2, None)
        )  # in a call
        self._single, self._pool = problem.region.single, pool
        self.calls = 0
        self.largest = [0.0, 0.0]  # |u0| and |F| met, before weights of paths

    @classmethod
    def over_region(
        cls,
        problem: CanonicalProblem,
        data: Equation,
        seed: int,
        stream: str,
        ctx: ExecutionContext,
        entries: int = 0,
        points: int = 64,
    ) -> ReferenceValues:
        """Values at random points of (0, T] x region (of t = T for a `Point`)."""
        rng = streams.generator(seed, f"{stream}, points")
        found = cls(
            problem,
            data,
            *judged(problem.region, problem.horizon, points, problem.dim, rng),
            seed,
            stream,
            ctx,
        )
        found.extend(entries)
        return found

    @property
    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """(t, x) in the coordinates of the canonical problem."""
        return self._t, self._x

    @property
    def samples(self) -> int:
        """At each point."""
        return 2 * self.pairs * self.calls

    def extend(self, entries: int) -> None:
        """Draw as much in all as is a small part of a solve that computes so many entries of its system: by counting, never by the clock."""
        pairs = max(
            entries * self._problem.dim // (_ENTRIES_PER_PAIR * self._width),
            _FREE // (self._width + _OVERHEAD),
        )
        fewest = max(2, -(-_FEWEST_PAIRS // self.pairs))
        for _ in range(
            self.calls,
            int(np.clip(pairs // (len(self._t) * self.pairs), fewest, max(_MOST, fewest))),
        ):
            samples, steps = self._draw()
            self._moments.add((self.factor[:, None] * samples).T)
            self._steps.add((self.factor[:, None] * steps).T)
            self.calls += 1
        self.mean, self.noise = (
            self._moments.mean,
            self._moments.deviation / np.sqrt(self._moments.count),
        )
        self.bias = self._steps.mean

    def _draw(self) -> tuple[np.ndarray, np.ndarray]:
        """Antithetic pairs of samples, (points, pairs), and what steps half as many change."""
        walk, here, there = self._problem.paths, self._t[:, None], self._x[:, None, :]
        shape = (len(self._t), self.pairs)
        ends, inside = (
            walk.levels(walk.draw(self._rng, shape, self._problem.dim)) for _ in range(2)
        )
        lag = (1 - self._rng.random(shape)) * here
        levels = []
        for (factor, level, noise), (_, _, other) in zip(ends, inside, strict=True):
            (value,) = antithetic_mean(
                lambda s, y: (self._initial(y),), level, here, there, here, noise
            )
            if self._source:
                (force,) = antithetic_mean(
                    lambda s, y: (self._force(s, y),), level, here, there, lag, other
                )
                value = value + here * force
            levels.append((factor, value))
        samples, steps = combined(levels)
        return samples, steps[..., 0]

    def _initial(self, y: np.ndarray) -> np.ndarray:
        return self._noted(0, initial_values(self._data, y, self._ctx))

    def _force(self, s: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self._noted(1, forcing(self._data, (s, y), self._ctx))

    def _noted(self, kind: int, values: np.ndarray) -> np.ndarray:
        self.largest[kind] = float(np.fmax(self.largest[kind], np.max(np.abs(values))))
        return values

    def facts(self, known: RelativeError) -> dict[str, Any]:
        """What a comparison found, for `stats["check"]`."""
        usable = not known.reasons
        return {
            "monte_carlo": known.value if usable else None,
            "monte_carlo_high": known.high if usable else None,
            "floor": self.floor,
            "monte_carlo_samples": self.samples * len(self._t),
        }

    @property
    def heavy(self) -> float:
        """The share of points where a few samples carry the variance."""
        return float(np.mean(~(self._moments.kurtosis <= HEAVY * self._moments.count)))

    def compare(
        self, values: np.ndarray, confidence: float, source: np.ndarray | None = None
    ) -> RelativeError:
        """The relative L2 difference of the values of a network, (points,), from u, with an interval: noise does not count as difference.

        `source` are samples (points, S) of what a source adds that these values do not know.
        """
        mean, noise = self.mean, self.noise
        if source is not None:
            mean = mean + source.mean(axis=1)
            noise = np.hypot(noise, source.std(axis=1, ddof=1) / np.sqrt(source.shape[1]))
        if self._single:
            return self._known(self._compare_one(mean, noise, values, confidence))
        unit, size = (
            float(np.max(np.abs(a))) or 1.0 for a in (mean - values, mean)
        )  # squares of small numbers underflow
        error, true = (
            (a / s) ** 2 - (noise / s) ** 2 for a, s in ((mean - values, unit), (mean, size))
        )
        found = relative_of_squares(error, true, (unit, size), np.zeros(1), confidence, self._pool)
        bias = float(
            rms(self.bias) / found.scale
        )  # may be part of the difference, or hide some of it
        return self._known(found._replace(low=max(found.low - bias, 0.0), high=found.high + bias))

    def _known(self, found: RelativeError) -> RelativeError:
        heavy = (HEAVY_TAILS.format(share=100 * self.heavy),) if self.heavy > HEAVY_SHARE else ()
        return found._replace(reasons=(*found.reasons, *heavy))

    def _compare_one(
        self, mean: np.ndarray, noises: np.ndarray, values: np.ndarray, confidence: float
    ) -> RelativeError:
        """The same where all points are one, so that all samples are of one value."""
        gap, size = abs(float(np.mean(mean - values))), abs(float(np.mean(mean)))
        noise, bias = rms(noises) / np.sqrt(len(mean)), abs(float(np.mean(self.bias)))
        half = noise * float(scipy.special.ndtri(0.5 * (1 + confidence)))
        if not size > 3 * noise:
            return RelativeError(np.inf, 0.0, np.inf, size, (SIZE_UNKNOWN,))
        known = float(np.sqrt(max((gap / size) ** 2 - (noise / size) ** 2, 0.0)))
        low, high = max(gap - half - bias, 0.0), gap + half + bias
        return RelativeError(known, low / size, high / size, size, ())

    def disagreement(self, values: np.ndarray) -> float:
        """The root mean square difference from u that is beyond chance, in units of u."""
        if self._single:
            noise = rms(self.noise) / np.sqrt(len(values))
            return max(
                abs(float(np.mean(self.mean - values)))
                - _AGREE * noise
                - abs(float(np.mean(self.bias))),
                0.0,
            )
        gap = self.mean - values
        unit = float(np.max(np.abs(gap))) or 1.0
        square = (gap / unit) ** 2 - (self.noise / unit) ** 2 - (self.bias / unit) ** 2
        beyond = float(np.mean(square)) - _AGREE * float(np.std(square, ddof=1)) / np.sqrt(
            len(square)
        )
        return unit * float(np.sqrt(max(beyond, 0.0)))

    @property
    def floor(self) -> float:
        """The root mean square difference that would not be told from noise, relative to u."""
        scale = rms(self.mean) or 1.0
        mean, noise = self.mean / scale, self.noise / scale
        size = float(np.mean(mean**2 - noise**2))
        if not size > 0:
            return np.inf
        if self._single:
            return _AGREE * rms(noise) / float(np.sqrt(len(mean) * size))
        return float(np.sqrt(_AGREE * np.sqrt(2 * np.mean(noise**4) / len(mean)) / size))
