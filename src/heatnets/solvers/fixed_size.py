"""Fixed-size solver, Algorithm 1 of the paper.

Draw random features, place rows, assemble the linear system, solve one least-squares problem. If
the source depends on u, several least-squares problems are solved (Newton or Picard).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from heatnets.certify import montecarlo
from heatnets.certify.reference_values import ReferenceValues
from heatnets.features.equation import build_equation
from heatnets.features.features import Equation, Feature
from heatnets.fit import least_squares
from heatnets.fit.assembly import initial_values, residual_rows, source_values, value_rows
from heatnets.fit.collocation import PLACEMENTS, Points
from heatnets.fit.entry_cache import EntryCache
from heatnets.fit.iteration import CandidateFit
from heatnets.solution import Solution
from heatnets.solvers.run import Run

_HELD_OUT = 256  # rows that are not used in the fit, to report its residual at new points
_REMEDY = (
    "Take more features, more rows, or a smaller train_region; data that are not smooth, or grow "
    "too fast at infinity, cannot be met at all."
)


def solve_fixed_size(run: Run) -> Solution:
    """Solve with a fixed number of features and rows."""
    problem, options = run.problem, run.options
    counts = _feature_counts(run)
    _check_memory(run, counts)
    degree, columns = options.time_degree or 0, np.arange(sum(counts))
    with run.clock.phase("assembly"):
        data, skipped = build_equation(problem, options.seed)
        # 1, 2  Draw the features φ = [φ⁰ φ¹]; they stay fixed from here on.
        blocks = run.draw(counts, options.directions[0])
        for caution in options.family.warnings_for(
            problem, counts, options.enforce or "equation", options.collocation
        ):
            run.log.warn(caution)
        # 3  Training points (t_k, x_k) in (0, T] x region, and held-out points.
        points = _place_rows(run)
        # 4  Rows of the equation (or of the mild formulation) and of the initial condition.
        caches: list[EntryCache] = []
        if problem.source.uses_u:
            caches = [EntryCache(problem, data, run.ctx, part) for part in points]
            for cache in caches:
                cache.add_features(blocks, "equation rows")
            systems = [cache.system(columns, degree) for cache in caches]
        else:
            systems = _make_rows(run, data, blocks, points)
        (A, b), constraint, initial_rows = systems[0], None, 0
        if options.initial_rows == "soft":
            A_ic, b_ic = _initial_rows(run, data, blocks)
            initial_rows = len(b_ic)
            A = (np if isinstance(A, np.ndarray) else jnp).concatenate([A, A_ic])
            b = np.concatenate([b, b_ic])
        elif counts[0] and not (problem.zero_initial and problem.source.uses_u):
            # φ_j(0, ·) = c_j u0 and φ¹_j(0, ·) = 0: the initial condition is Σ c_j w_j = 1.
            starts = np.concatenate([block.initial_coefficient for block in blocks])
            constraint = np.concatenate([starts, np.zeros(degree * len(starts))])

    def solve(A: Any, b: Any) -> CandidateFit:
        solved = least_squares.solve(A, b, options.solver, options.rcond, options.ridge, constraint)
        return CandidateFit(len(columns), len(points[0][0]), degree, solved, 0.0, 0.0, None, 0.0)

    with run.clock.phase("solve"):
        # 5  One least-squares solve. If the source depends on u, this was with a guess: iterate.
        run.ctx.progress("least squares", 0, 1)
        fit, changes = run.iteration.iterate(
            caches, solve(A, b), lambda: solve(*caches[0].system(columns, degree))
        )
        if changes:
            systems = [cache.system(columns, degree) for cache in caches]
        run.ctx.progress("least squares", 1, 1)
    for note in fit.solved.notes:
        run.log.warn(note)
    with run.clock.phase("check"):
        unit = _rms(np.asarray(systems[0][1]))  # of misfits
        if options.enforce == "equation":
            x = np.concatenate([x for _, x in points])
            unit = max(unit, _rms(initial_values(data, x, run.ctx)) / problem.horizon)
        train, held = (float(m) / (unit or 1.0) for m in _misfits(systems, fit.solved.weights))
    fit = fit._replace(training_residual=train, validation_residual=held)
    _check_misfits(run, train, held)
    # 6  ũ = Σ w_j φ_j.
    solution = run.solution(
        fit,
        data,
        blocks,
        features=counts,
        initial_rows=initial_rows,
        skipped=skipped,
        iterations=[changes] if changes else [],
    )
    return solution if problem.source.uses_u else _compare_with_monte_carlo(run, solution, data)


def _compare_with_monte_carlo(run: Run, solution: Solution, data: Equation) -> Solution:
    """Compare the network with Monte Carlo values of u, and warn if they differ by more than 10 %.

    The comparison needs no smooth data. The size of the linear system sets its cost.
    """
    entries = sum(solution.stats["features"]) * solution.stats["rows"][0]
    with run.clock.phase("check"):
        reference = ReferenceValues.over_region(
            run.problem, data, run.options.seed, "final check", run.ctx, entries=entries
        )
        value = reference.factor * solution.network.value(*reference.points)[0]
        difference = reference.compare(value, 0.998)
    if (
        not difference.reasons
        and difference.low > 0.1
        and not any(text.startswith("not solved") for text in run.log.messages)
    ):
        run.log.warn(
            f"not solved: Monte Carlo values differ from the network by {difference.value:.2g} "
            f"of the solution's size. {_REMEDY}"
        )
    return solution.with_stats(
        {
            "check": MappingProxyType(reference.facts(difference)),
            "warnings": (*run.problem.warnings, *run.log.messages),
        }
    )


def _check_misfits(run: Run, train: float, held: float) -> None:
    """Warn (raise, for a source that depends on u) if the misfit of the held-out rows is large."""
    if not held <= 0.1:
        run.iteration.reject(f"rows held out are missed by {held:.2g} of their size", run.problem)
    if held > 0.1:
        run.log.warn(
            f"not solved: rows held out are missed by {held:.2g} of their size "
            f"(those trained on by {train:.2g}). {_REMEDY}"
        )
    elif run.options.enforce == "mild" and held > 2 * train:
        run.log.warn(
            f"mild rows are fitted down to their noise: misfit {train:.2g} where trained, "
            f"{held:.2g} where held out. "
            "Take ten rows or more per feature, more mild_samples, or a larger rcond."
        )


def _check_memory(run: Run, counts: tuple[int, int]) -> None:
    """Raise a `ResourceError` before any work if the linear system does not fit into memory.

    Counted are the matrix with its copies during the factorisation, two square matrices, and the
    coordinates of points and features.
    """
    options = run.options
    is_soft, copies = options.initial_rows == "soft", 4 if options.solver == "cholesky" else 6

    def bytes_of(share: float) -> tuple[int, int, int]:
        """Bytes needed for this share of the features and rows; number of rows and of columns."""
        N_ic = int(share * options.rows[1]) if is_soft else 0
        N = int(share * options.rows[0]) + _HELD_OUT + N_ic
        M = sum(int(share * count) for count in counts) * (1 + (options.time_degree or 0))
        return 8 * (copies * N * M + 2 * min(N, M) ** 2 + (N + M) * run.problem.dim), N, M

    needed, N, M = bytes_of(1.0)
    # The largest share that would fit, for the message.
    shares = 0.98 ** np.arange(1, 300)
    share = next((share for share in shares if bytes_of(share)[0] <= run.ctx.memory), 0.0)
    sizes = [tuple(int(share * n) for n in pair) for pair in (counts, options.rows)]
    remedy = (
        f"features={sizes[0]}, rows={sizes[1]} would fit."
        if min(max(pair) for pair in sizes)
        else "Take fewer features or rows."
    )
    run.ctx.require_memory(needed, f"{N} rows of {M} columns with their factorisation", remedy)


def _feature_counts(run: Run) -> tuple[int, int]:
    """(M0, M1) as given by the user; M1 = 0 if there is no source."""
    M0, M1 = run.options.features or (0, 0)
    has_source = run.problem.feature_source is not None
    if not has_source and M1:
        run.log.warn(f"there is no source: the {M1} source features are left out")
        return M0, 0
    if has_source and not M1:
        run.log.warn("the source has no features of its own: `features` has M1 = 0")
    return M0, M1


def _place_rows(run: Run) -> list[Points]:
    """Points of the training rows and of the held-out rows."""
    region, placement = run.options.train_region, run.options.collocation
    held_placement = placement if region.is_point else "uniform"
    return [
        PLACEMENTS[name](run.problem, region, count, run.rng(stream))
        for name, count, stream in (
            (placement, run.options.rows[0], "rows"),
            (held_placement, _HELD_OUT, "held-out rows"),
        )
    ]


def _make_rows(
    run: Run, data: Equation, blocks: list[Feature], points: list[Points]
) -> list[tuple[Array, np.ndarray]]:
    """Matrices and right-hand sides of the equation rows or mild rows at lists of points."""
    ctx, degree, horizon = run.ctx, run.options.time_degree or 0, run.problem.horizon
    t, x = (np.concatenate(parts) for parts in zip(*points, strict=True))
    if run.options.enforce == "equation":
        A = residual_rows(data, blocks, (t, x), ctx, degree, horizon)
        b = source_values(data, (t, x), ctx)
    else:  # the network equals an unbiased sample of the mild solution at each point
        samples, seed = run.options.mild_samples, run.options.seed
        b = montecarlo.mild_samples(run.problem, (t, x), samples, seed, ctx).value
        A = value_rows(data, blocks, (t, x), ctx, "mild rows", degree=degree, horizon=horizon)
    trained = len(points[0][0])
    return [(A[:trained], b[:trained]), (A[trained:], b[trained:])]


def _initial_rows(run: Run, data: Equation, blocks: list[Feature]) -> tuple[Array, np.ndarray]:
    """φ_j(0, x_l) and u0(x_l), both times λ_IC = √weight: the squared misfit has this weight."""
    count, region, dim = run.options.rows[1], run.options.train_region, run.problem.dim
    x = region.sample(run.rng("initial rows"), count, dim)
    t, x = np.zeros(count), region.at_fractions(np.zeros(count), run.problem.horizon, x)[1]
    degree, scale = run.options.time_degree or 0, np.sqrt(run.options.initial_weight or 1.0)
    rows = value_rows(data, blocks, (t, x), run.ctx, "initial rows", degree=degree)
    return scale * rows, scale * initial_values(data, x, run.ctx)


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _misfits(systems: list[tuple[Array, np.ndarray]], weights: Array) -> list[float]:
    """Root mean square of A w - b, for each system (A, b)."""
    return [_rms(np.asarray(A @ np.asarray(weights)) - b) for A, b in systems]
