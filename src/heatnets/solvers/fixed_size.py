"""Algorithm 1 of the paper on one screen: draw and freeze features, place rows, assemble, one least-squares solve; a few, where the source depends on u."""

from __future__ import annotations

from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from heatnets._core import streams
from heatnets._core.errors import NumericalError, WarningLog
from heatnets._core.execution import ExecutionContext, peak_bytes
from heatnets._core.timing import PhaseTimer
from heatnets.certify import montecarlo
from heatnets.certify.reference_values import ReferenceValues
from heatnets.features.equation import Equation, equation
from heatnets.features.features import Feature
from heatnets.fit import least_squares, newton
from heatnets.fit.assembly import Points, forcing, initial_values, residual_rows, value_rows
from heatnets.fit.collocation import PLACEMENTS
from heatnets.fit.entry_cache import Table
from heatnets.pde.canonical import CanonicalProblem
from heatnets.solution import Solution
from heatnets.solvers.options import FixedSizeOptions

_HELD_OUT = 256  # rows kept out of the fit to report its residual where it was not trained


def train(
    problem: CanonicalProblem, settings: FixedSizeOptions, ctx: ExecutionContext, notes: WarningLog
) -> Solution:
    """Features, rows, system, weights: a trained HEATNET."""
    clock = PhaseTimer()
    counts = _counts(problem, settings, notes)
    _check_memory(problem, settings, counts, ctx)
    with clock.phase("assembly"):
        data, skipped = equation(problem, settings.seed)
        # 1, 2  Sample and freeze the features φ = [φ⁰ φ¹].
        blocks = settings.family.draw(
            problem, counts, settings.design, settings.seed, settings.antithetic
        )
        for caution in settings.family.cautions(
            problem, counts, settings.enforce, settings.collocation
        ):
            notes.warn(caution, stacklevel=5)
        # 3  Training points (t_k, x_k) in (0, T] x region, some to be held out, and x_l for the initial condition.
        points, n = _place(problem, settings)
        start = _start(problem, settings)
        # 4  Rows of the equation (or of the mild formulation) and of the initial condition.
        tables = [] if problem.nonlinear is None else _tables(problem, data, blocks, points, n, ctx)
        if tables:
            (A, b), (held_A, held_b) = (
                table.system(np.arange(sum(counts)), settings.time_degree) for table in tables
            )
        else:
            A, b = _rows(problem, data, blocks, points, settings, ctx)
            A, held_A, b, held_b = A[:n], A[n:], b[:n], b[n:]
        condition, A_ic, b_ic = None, A[:0], b[:0]
        if settings.initial_rows == "soft":
            A_ic, b_ic = _initial_rows(data, blocks, start, settings, ctx)
        elif counts[0] and not (problem.zero_initial and problem.nonlinear is not None):
            # φ_j(0, ·) = c_j u0 and φ¹_j(0, ·) = 0: Σ c_j w_j = 1 says all that initial rows can say.
            starts = jnp.concatenate([block.start for block in blocks])
            condition = jnp.concatenate([starts, jnp.zeros(settings.time_degree * len(starts))])
    with clock.phase("solve"):
        # 5  One least-squares solve.
        ctx.progress("least squares", 0, 1)
        stacked: tuple[Array, Array] = (
            (jnp.concatenate([A, A_ic]), jnp.concatenate([b, b_ic])) if len(b_ic) else (A, b)
        )
        fit = least_squares.solve(
            *stacked, settings.solver, settings.rcond, settings.ridge, condition
        )
        changes: list[float] = []
        if tables:  # that was with the source at a first guess: now with its tangent at each fit
            fit, changes = _iterate(tables, fit, settings, condition)
            (A, b), (held_A, held_b) = (
                table.system(np.arange(sum(counts)), settings.time_degree) for table in tables
            )
        ctx.progress("least squares", 1, 1)
    for note in fit.notes:
        notes.warn(note, stacklevel=5)
    with clock.phase("check"):
        scale = _scale(problem, data, b, points, settings.enforce, ctx)
        train_misfit, held_misfit = (
            float(_misfit(*rows, fit.weights)) / scale for rows in ((A, b), (held_A, held_b))
        )
    _judge(problem, train_misfit, held_misfit, settings, notes)
    # 6  ũ = Σ w_j φ_j.
    solution = Solution(problem, data, blocks, fit.weights, ctx, stats={
        "family": settings.family.name, "features": counts, "rows": (n, len(b_ic)),
        "design": settings.design.name, "antithetic": settings.antithetic, "time_degree": settings.time_degree,
        "collocation": settings.collocation, "enforce": settings.enforce,
        "solver": fit.solver, "rcond": fit.rcond, "rank": fit.rank, "condition": fit.condition, "ridge": settings.ridge,
        "initial_rows": settings.initial_rows,
        "initial_weight": settings.initial_weight if settings.initial_rows == "soft" else None,
        "residual_train": train_misfit, "residual_held_out": held_misfit,
        "laplacian": data.rungs, "laplacian_skipped": skipped, "iterations": (tuple(changes),) if tables else (),
        "seconds": MappingProxyType(clock.seconds), "peak_bytes": peak_bytes(ctx.device), "device": ctx.device.device_kind, "seed": settings.seed,
        "estimated_error": None, "tolerance_met": None, "stopped": None, "check": MappingProxyType({}), "history": (), "warnings": (*problem.warnings, *notes.messages),
    })  # fmt: skip
    return (
        solution
        if problem.nonlinear is not None
        else _checked(solution, problem, data, sum(counts) * n, settings, clock, ctx, notes)
    )


def _checked(
    solution: Solution,
    problem: CanonicalProblem,
    data: Equation,
    entries: int,
    settings: FixedSizeOptions,
    clock: PhaseTimer,
    ctx: ExecutionContext,
    notes: WarningLog,
) -> Solution:
    """Hold the network against Monte Carlo values, which need no smoothness, and say so where they contradict it."""
    with clock.phase("check"):
        reference = ReferenceValues.over_region(
            problem, data, settings.seed, "final check", ctx, entries
        )
        known = reference.compare(
            reference.factor * solution.network().value(*reference.points)[0], 0.998
        )
    if (
        not known.reasons
        and known.low > 0.1
        and not any(text.startswith("not solved") for text in notes.messages)
    ):
        notes.warn(
            f"not solved: Monte Carlo values differ from the network by {known.value:.2g} of the solution's size. {_REMEDY}",
            stacklevel=6,
        )
    facts = {
        "check": MappingProxyType(reference.facts(known)),
        "warnings": (*problem.warnings, *notes.messages),
    }
    return solution.with_stats({**facts, "seconds": MappingProxyType(clock.seconds)})


_REMEDY = "Take more features, more rows, or a smaller train_region; data that are not smooth, or grow too fast at infinity, cannot be met at all."


def _tables(
    problem: CanonicalProblem,
    data: Equation,
    blocks: list[Feature],
    points: Points,
    n: int,
    ctx: ExecutionContext,
) -> list[Table]:
    """Entries of the rows to train on and of those held out, where the source depends on u."""
    tables = [
        Table(problem, data, ctx, (points[0][part], points[1][part]))
        for part in (slice(n), slice(n, None))
    ]
    for table in tables:
        table.add_features(blocks, "equation rows")
    return tables


def _iterate(
    tables: list[Table], fit: least_squares.Fit, settings: FixedSizeOptions, condition: Array | None
) -> tuple[least_squares.Fit, list[float]]:
    """Newton's method, or Picard's iteration, from a fit with the source at a first guess."""
    columns, degree = np.arange(tables[0].values.shape[1]), settings.time_degree

    def solve() -> tuple[np.ndarray, float]:
        nonlocal fit
        fit = least_squares.solve(
            *tables[0].system(columns, degree),
            settings.solver,
            settings.rcond,
            settings.ridge,
            condition,
        )
        return np.asarray(fit.weights), 0.0

    weights, changes = newton.settle(
        tables, np.asarray(fit.weights), degree, solve, settings.iteration
    )
    return fit._replace(weights=jnp.asarray(weights)), changes


def _judge(
    problem: CanonicalProblem,
    train_misfit: float,
    held_misfit: float,
    settings: FixedSizeOptions,
    notes: WarningLog,
) -> None:
    """Say so where rows that were held out are not met."""
    if not held_misfit <= 0.1 and problem.nonlinear is not None:
        raise NumericalError(
            newton.unsolved(f"rows held out are missed by {held_misfit:.2g} of their size", problem)
        )
    if held_misfit > 0.1:
        notes.warn(
            f"not solved: rows held out are missed by {held_misfit:.2g} of their size (those trained on by {train_misfit:.2g}). {_REMEDY}",
            stacklevel=6,
        )
    elif settings.enforce == "mild" and held_misfit > 2 * train_misfit:
        notes.warn(
            f"mild rows are fitted down to their noise: misfit {train_misfit:.2g} where trained, {held_misfit:.2g} where held out. "
            "Take ten rows or more per feature, more mild_samples, or a larger rcond.",
            stacklevel=6,
        )


def _check_memory(
    problem: CanonicalProblem,
    settings: FixedSizeOptions,
    counts: tuple[int, int],
    ctx: ExecutionContext,
) -> None:
    """Refuse before the work what would not fit: the matrix, its copies on the way to a factorisation (counted), the squares."""
    soft, copies = settings.initial_rows == "soft", 4 if settings.solver == "cholesky" else 6

    def bytes_of(part: float) -> tuple[int, int, int]:
        """What a part of the features and rows needs, and how many rows and columns that is."""
        N = int(part * settings.rows[0]) + _HELD_OUT + (int(part * settings.rows[1]) if soft else 0)
        M = sum(int(part * c) for c in counts) * (1 + settings.time_degree)
        return 8 * (copies * N * M + 2 * min(N, M) ** 2 + (N + M) * problem.dim), N, M

    needed, N, M = bytes_of(1.0)
    fits = next(
        (part for part in 0.98 ** np.arange(1, 300) if bytes_of(part)[0] <= ctx.memory), 0.0
    )
    sizes = [tuple(int(fits * n) for n in pair) for pair in (counts, settings.rows)]
    remedy = (
        f"features={sizes[0]}, rows={sizes[1]} would fit."
        if min(max(pair) for pair in sizes)
        else "Take fewer features or rows."
    )
    ctx.require(needed, f"{N} rows of {M} columns with their factorisation", remedy)


def _counts(
    problem: CanonicalProblem, settings: FixedSizeOptions, notes: WarningLog
) -> tuple[int, int]:
    if problem.source is None and settings.features[1]:
        notes.warn(
            f"there is no source: the {settings.features[1]} source features are left out",
            stacklevel=6,
        )
        return settings.features[0], 0
    if problem.source is not None and not settings.features[1]:
        notes.warn("the source has no features of its own: `features` has M1 = 0", stacklevel=6)
    return settings.features


def _place(problem: CanonicalProblem, settings: FixedSizeOptions) -> tuple[Points, int]:
    """Rows to train on, then rows held out; and how many are trained on."""
    parts = []
    held = settings.collocation if settings.train_region.single else "uniform"
    for how, count, stream in (
        (settings.collocation, settings.rows[0], "rows"),
        (held, _HELD_OUT, "held-out rows"),
    ):
        rng = streams.generator(settings.seed, stream)
        parts.append(
            PLACEMENTS[how](
                settings.train_region,
                problem.horizon,
                count,
                problem.dim,
                rng,
                problem.paths,
                problem.nonlinear is not None,
            )
        )
    (t, x), (held_t, held_x) = parts
    return (np.concatenate([t, held_t]), np.concatenate([x, held_x])), len(t)


def _start(problem: CanonicalProblem, settings: FixedSizeOptions) -> np.ndarray:
    rng, region = streams.generator(settings.seed, "initial rows"), settings.train_region
    return region.at(
        np.zeros(settings.rows[1]),
        problem.horizon,
        region.sample(rng, settings.rows[1], problem.dim),
    )[1]


def _rows(
    problem: CanonicalProblem,
    data: Equation,
    blocks: list[Feature],
    points: Points,
    settings: FixedSizeOptions,
    ctx: ExecutionContext,
) -> tuple[Array, Array]:
    if settings.enforce == "equation":
        return residual_rows(
            data, blocks, points, ctx, settings.time_degree, problem.horizon
        ), jnp.asarray(forcing(data, points, ctx))
    # Mild rows: the network equals an unbiased sample of the mild solution at each point.
    sample = montecarlo.mild_samples(
        problem, *points, settings.mild_samples, settings.seed, ctx
    ).value
    return value_rows(
        data, blocks, points, ctx, "mild rows", settings.time_degree, problem.horizon
    ), jnp.asarray(sample)


def _initial_rows(
    data: Equation,
    blocks: list[Feature],
    x: np.ndarray,
    settings: FixedSizeOptions,
    ctx: ExecutionContext,
) -> tuple[Array, Array]:
    """φ_j(0, x_l) and u0(x_l), scaled by λ_IC = √weight, so that the squared misfit carries the weight."""
    scale = np.sqrt(settings.initial_weight)
    rows = value_rows(
        data, blocks, (np.zeros(len(x)), x), ctx, "initial rows", settings.time_degree
    )
    return scale * rows, jnp.asarray(scale * initial_values(data, x, ctx))


def _scale(
    problem: CanonicalProblem,
    data: Equation,
    b: Array,
    points: Points,
    enforce: str,
    ctx: ExecutionContext,
) -> float:
    """What a misfit is measured by: the root mean square of the right-hand side, or of u0 / T where the equation's is smaller."""
    size = _rms(np.asarray(b))
    if enforce == "equation":
        size = max(size, _rms(initial_values(data, points[1], ctx)) / problem.horizon)
    return size or 1.0


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


@jax.jit
def _misfit(A: Array, b: Array, weights: Array) -> Array:
    return jnp.sqrt(jnp.mean((A @ weights - b) ** 2))
