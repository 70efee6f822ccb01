"""Samples of the mild solution: by nets, by random paths, and of a source that depends on u."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from heatnets._core.tiling import map_points
from heatnets.certify import linearization, montecarlo, quasi_monte_carlo
from heatnets.certify.quasi_monte_carlo import NetPoints
from heatnets.features.features import Equation, Feature
from heatnets.fit.assembly import initial_values
from heatnets.fit.collocation import Points, sample_points
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.function import Function
from heatnets.pde.sources import LinearSource, Source
from heatnets.solvers.run import Run

ROWS = 2048  # points of one call, and training points of the first round
VALIDATION = 128  # points at which errors are estimated, and over which u0 is examined
_SOURCE_PAIRS = 16  # pairs per point for the part of a source that depends on u
_MOST_DIM = 500  # of nets; there they are about as good as orthogonal directions
# Fixed-point steps per round, for a source that depends on u. Default risk in 100 dimensions: its
# value is off by 6e-4 after two steps of the first round, by 1e-5 after three.
_PICARD_STEPS = 3


class _SourceAtFit(eqx.Module):
    """(s, y) ↦ f(s, y, ũ, ∇ũ)."""

    source: Source
    fit: linearization.Fit

    def __call__(self, s: Array, y: Array) -> Array:
        return self.source(s, y, *self.fit.value_and_gradient(s, y, self.source.uses_gradient))


def _reaction_rate(function: Any, s: Array, y: Array) -> Array:
    """f_u at the fit."""
    at_fit: _SourceAtFit = function.function
    source = at_fit.source
    return source.linearize(s, y, *at_fit.fit.value_and_gradient(s, y, source.uses_gradient)).d_u


class NoSource:
    """In place of the samples of a source that depends on u, if there is none."""

    steps = 1  # fits per round

    def set_fit(self, data: Equation, blocks: list[Feature], weights: np.ndarray) -> None:
        """Evaluate the source at this fit from now on; at first, at a guess of u."""

    def sample(self, points: Points, stream: str, batches: int = 1) -> MildSamples:
        """Samples of the part of the mild solution that comes from the source."""
        return no_samples(points)

    def error_growth(self, points: Points) -> float:
        """Factor by which the error may exceed the defect of the fixed-point equation."""
        return 1.0


class NonlinearSourceSampler(NoSource):
    """Samples of the part of the mild solution that comes from a source that depends on u."""

    steps = _PICARD_STEPS

    def __init__(self, run: Run) -> None:
        self._run, self._source = run, run.problem.source
        # The problem with zero initial condition and with the source frozen at the fit.
        guess = LinearSource(run.problem.feature_source)
        self._frozen = replace(run.problem, initial=ZERO, source=guess)

    def set_fit(self, data: Equation, blocks: list[Feature], weights: np.ndarray) -> None:
        parts = np.split(
            weights, np.cumsum([len(block.initial_coefficient) for block in blocks])[:-1]
        )
        fit = linearization.Fit(
            data, [(block, jnp.asarray(w)[:, None]) for block, w in zip(blocks, parts, strict=True)]
        )
        source = LinearSource(Function(_SourceAtFit(self._source, fit)))
        self._frozen = replace(self._frozen, source=source)

    def sample(self, points: Points, stream: str, batches: int = 1) -> MildSamples:
        return sample_mild(
            self._run, self._frozen, points, f"forces {stream}", _SOURCE_PAIRS, batches
        )

    def error_growth(self, points: Points) -> float:
        """exp(∫ f_u), with the 95 % quantile of f_u over the points."""
        problem, function = self._frozen, self._frozen.feature_source
        rate = map_points(_reaction_rate, function, points, 32 * problem.dim, self._run.ctx)
        return float(np.exp(problem.horizon * max(float(np.quantile(rate, 0.95)), 0.0)))


ZERO = Function(lambda x: jnp.zeros(()))  # u0 = 0

# Means, (points,); root mean square of their standard errors; bias by time steps, (points,).
MildSamples = tuple[np.ndarray, float, np.ndarray]


def no_samples(points: Points) -> MildSamples:
    """Samples that are exactly zero."""
    return np.zeros(len(points[0])), 0.0, np.zeros(len(points[0]))


def sample_mild(
    run: Run, problem: CanonicalProblem, points: Points, stream: str, pairs: int, batches: int = 1
) -> MildSamples:
    """Monte Carlo means of the mild solution, over `batches` times `pairs` antithetic pairs.

    All calls have the same shape, so that a growing number of points and samples compiles once.
    """
    parts = []
    for start in range(0, len(points[0]), ROWS):
        t, x = points[0][start : start + ROWS], points[1][start : start + ROWS]
        estimates = [
            montecarlo.mild_samples(
                problem,
                (t, x),
                pairs,
                run.options.seed,
                run.ctx,
                stream=f" {stream}, {start}, batch {batch}",
                paired=True,
            )
            for batch in range(batches)
        ]
        parts.append(
            (
                np.mean([estimate.value for estimate in estimates], axis=0),
                np.mean([estimate.truncation_bias for estimate in estimates], axis=0),
                np.mean([estimate.standard_error**2 for estimate in estimates], axis=0) / batches,
            )
        )
    values, biases, variances = (np.concatenate(part) for part in zip(*parts, strict=True))
    return values, float(np.sqrt(np.mean(variances))), biases


def served_by_nets(run: Run) -> bool:
    """Whether rows are means over nets."""
    problem = run.problem
    is_mean = quasi_monte_carlo.serves(problem.without_source()) and problem.dim <= _MOST_DIM
    return is_mean and not problem.zero_initial


class NetSampler:
    """Samples of u by nets, turned to the directions in which u0 varies most over the region."""

    def __init__(self, run: Run, data: Equation) -> None:
        self._run, self._data, problem = run, data, run.problem
        rng = run.rng("mild nets, directions")
        t, x = sample_points(problem, VALIDATION, rng)

        def evaluate(normal: np.ndarray, place: np.ndarray) -> np.ndarray:
            k, noise = place % VALIDATION, problem.paths.scale_noise(normal)
            ends = problem.paths.simulate(t[k], x[k], t[k], noise)
            with run.ctx.active():
                return initial_values(data, ends.position, run.ctx)

        self.rotation = quasi_monte_carlo.leading_rotation(evaluate, problem.dim, rng)

    def sample(self, points: Points, part: NetPoints, stream: str) -> np.ndarray:
        """Means of u0 over further points of the nets of a stream, (n,)."""
        run = self._run
        return quasi_monte_carlo.net_means(
            run.problem,
            self._data,
            points,
            part,
            run.rng(f"{stream}, nets"),
            run.ctx,
            rotation=self.rotation,
        )
