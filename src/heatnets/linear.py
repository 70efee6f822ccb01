"""Algorithm 1 of the paper on one screen: draw and freeze features, place rows, assemble, one least-squares solve."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from heatnets import least_squares, montecarlo, streams
from heatnets.assembly import Points, forcing, initial_values, residual_rows, value_rows
from heatnets.clock import Clock
from heatnets.collocation import PLACEMENTS
from heatnets.errors import Notes
from heatnets.features import Feature
from heatnets.operators import Equation, equation
from heatnets.problem import Problem
from heatnets.settings import Settings
from heatnets.solution import Solution
from heatnets.tiles import Workshop, peak_bytes

_HELD_OUT = 256  # rows kept out of the fit to report its residual where it was not trained


def train(problem: Problem, settings: Settings, shop: Workshop, notes: Notes) -> Solution:
    """Features, rows, system, weights: a trained HEATNET."""
    clock = Clock()
    with clock.phase("assembly"):
        data, skipped = equation(problem, settings.seed)
        # 1, 2  Sample and freeze the features φ = [φ⁰ φ¹].
        counts = _counts(problem, settings, notes)
        blocks = settings.family.draw(problem, counts, settings.design, settings.seed)
        for caution in settings.family.cautions(problem, counts, settings.enforce):
            notes.warn(caution, stacklevel=4)
        # 3  Training points (t_k, x_k) in (0, T] x region, and x_l for the initial condition.
        points = _place(problem, settings, settings.rows[0], "rows")
        start = _place(problem, settings, settings.rows[1], "initial rows")[1]
        # 4  Rows of the equation (or of the mild formulation) and of the initial condition.
        A, b = _rows(problem, data, blocks, points, settings, shop)
        zero = not np.any(initial_values(data, points[1][:64], shop))  # u0 ≡ 0: nothing to enforce
        condition = None
        if settings.initial_rows == "exact" and not zero and counts[0]:
            # φ_j(0, ·) = c_j u0 and Σ c_j w_j = 1 says all that the initial rows can say.
            condition = jnp.concatenate([block.start for block in blocks])
        elif settings.initial_rows == "soft" and len(start):
            A, b = _with_initial_rows(A, b, data, blocks, start, settings.initial_weight, shop)
    with clock.phase("solve"):
        # 5  One least-squares solve.
        shop.progress("least squares", 0, 1)
        fit = least_squares.solve(A, b, settings.solver, settings.rcond, settings.ridge, condition)
        misfit = _relative(A[: len(points[0])] @ fit.weights - b[: len(points[0])], b[: len(points[0])], problem, data, points, shop)
        shop.progress("least squares", 1, 1)
    for note in fit.notes:
        notes.warn(note, stacklevel=4)
    # 6  ũ = Σ w_j φ_j.
    stats: dict[str, Any] = {
        "family": settings.family.name, "features": counts, "rows": (len(points[0]), len(start)),
        "design": settings.design.name, "antithetic": False, "time_degree": 0,
        "collocation": settings.collocation, "enforce": settings.enforce,
        "solver": fit.solver, "rcond": fit.rcond, "rank": fit.rank, "condition": fit.condition, "ridge": settings.ridge,
        "initial_rows": settings.initial_rows,
        "initial_weight": settings.initial_weight if settings.initial_rows == "soft" else None,
        "residual_train": misfit, "laplacian": data.rungs, "laplacian_skipped": skipped,
        "seconds": clock.seconds, "device": shop.device.device_kind, "seed": settings.seed,
        "estimated_error": None, "tolerance_met": None, "history": (), "warnings": (*problem.warnings, *notes.texts),
    }  # fmt: skip
    solution = Solution(problem, data, blocks, fit.weights, shop, stats)
    stats["residual_held_out"] = _held_out(solution, settings, data, shop, clock)
    stats["peak_bytes"] = peak_bytes(shop.device)
    return solution


def _counts(problem: Problem, settings: Settings, notes: Notes) -> tuple[int, int]:
    if problem.source is None and settings.features[1]:
        notes.warn(f"there is no source: the {settings.features[1]} source features are left out", stacklevel=5)
        return settings.features[0], 0
    return settings.features


def _place(problem: Problem, settings: Settings, count: int, stream: str) -> Points:
    if count == 0:
        return np.empty(0), np.empty((0, problem.dim))
    rng = streams.generator(settings.seed, stream)
    how = PLACEMENTS[settings.collocation if stream == "rows" else "uniform"]
    return how(settings.train_region, problem.horizon, count, problem.dim, rng)


def _rows(
    problem: Problem, data: Equation, blocks: list[Feature], points: Points, settings: Settings, shop: Workshop
) -> tuple[Array, Array]:
    if settings.enforce == "equation":
        return residual_rows(data, blocks, points, shop), jnp.asarray(forcing(data, points, shop))
    # Mild rows: the network equals an unbiased sample of the mild solution at each point.
    sample = montecarlo.importance(
        problem, *points, samples=settings.mild_samples, seed=settings.seed, memory=shop.memory, device=shop.device, progress=shop.progress
    )
    return value_rows(data, blocks, points, shop, "mild rows"), jnp.asarray(sample.value)


def _with_initial_rows(
    A: Array, b: Array, data: Equation, blocks: list[Feature], x: np.ndarray, weight: float, shop: Workshop
) -> tuple[Array, Array]:
    """The stacked system; rows scaled by λ_IC = √weight, so that the squared misfit carries `weight`."""
    at_start = value_rows(data, blocks, (np.zeros(len(x)), x), shop, "initial rows")
    shop.require(3 * A.nbytes, "the stacked system", "Take fewer features or rows.")
    scale = np.sqrt(weight)
    return jnp.concatenate([A, scale * at_start]), jnp.concatenate([b, scale * initial_values(data, x, shop)])


def _relative(misfit: Array, b: Array, problem: Problem, data: Equation, points: Points, shop: Workshop) -> float:
    """Root mean square of a misfit over that of the right-hand side; where that is zero, over that of u0 / T."""
    size = float(jnp.linalg.norm(b))
    if size == 0:
        size = float(np.linalg.norm(initial_values(data, points[1], shop))) / problem.horizon
    return float(jnp.linalg.norm(misfit)) / size if size else 0.0


def _held_out(solution: Solution, settings: Settings, data: Equation, shop: Workshop, clock: Clock) -> float:
    with clock.phase("check"), jax.default_device(shop.device):
        points = _place(solution.problem, settings, _HELD_OUT, "held-out rows")
        misfit = jnp.asarray(solution.residual(*points))
        return _relative(misfit, jnp.asarray(forcing(data, points, shop)), solution.problem, data, points, shop)
