"""Fixed-size solver, Algorithm 1 of the paper.

Draw random features, place rows, assemble the linear system, solve one least-squares problem. If
the source depends on u, several least-squares problems are solved (Newton or Picard).
"""

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
from heatnets.fit.entry_cache import EntryCache
from heatnets.pde.canonical import CanonicalProblem
from heatnets.solution import Solution
from heatnets.solvers.options import FixedSizeOptions

_HELD_OUT = 256  # rows that are not used in the fit, to report its residual at new points


def solve_fixed_size(
    problem: CanonicalProblem, options: FixedSizeOptions, ctx: ExecutionContext, log: WarningLog
) -> Solution:
    """Solve with a fixed number of features and rows."""
    clock = PhaseTimer()
    counts = _feature_counts(problem, options, log)
    _check_memory(problem, options, counts, ctx)
    degree, all_columns = options.time_degree, np.arange(sum(counts))
    with clock.phase("assembly"):
        data, skipped = equation(problem, options.seed)
        # 1, 2  Draw the features φ = [φ⁰ φ¹]; they stay fixed from here on.
        blocks = options.family.draw(
            problem, counts, options.design, options.seed, options.antithetic
        )
        for caution in options.family.cautions(
            problem, counts, options.enforce, options.collocation
        ):
            log.warn(caution)
        # 3  Training points (t_k, x_k) in (0, T] x region, then held-out points; and points x_l
        #    for the initial condition.
        points, n_train = _place_rows(problem, options)
        x_initial = _place_initial_rows(problem, options)
        # 4  Rows of the equation (or of the mild formulation) and of the initial condition.
        tables: list[EntryCache] = []
        if problem.nonlinear is not None:
            tables = _make_tables(problem, data, blocks, points, n_train, ctx)
        if tables:
            (A, b), (A_held, b_held) = (table.system(all_columns, degree) for table in tables)
        else:
            A, b = _make_rows(problem, data, blocks, points, options, ctx)
            A, A_held, b, b_held = A[:n_train], A[n_train:], b[:n_train], b[n_train:]
        condition, A_ic, b_ic = None, A[:0], b[:0]
        if options.initial_rows == "soft":
            A_ic, b_ic = _initial_rows(data, blocks, x_initial, options, ctx)
        elif counts[0] and not (problem.zero_initial and problem.nonlinear is not None):
            # φ_j(0, ·) = c_j u0 and φ¹_j(0, ·) = 0: the initial condition is Σ c_j w_j = 1.
            starts = jnp.concatenate([block.start for block in blocks])
            condition = jnp.concatenate([starts, jnp.zeros(degree * len(starts))])
    with clock.phase("solve"):
        # 5  One least-squares solve.
        ctx.progress("least squares", 0, 1)
        system: tuple[Array, Array] = (A, b)
        if len(b_ic):
            system = (jnp.concatenate([A, A_ic]), jnp.concatenate([b, b_ic]))
        fit = least_squares.solve(*system, options.solver, options.rcond, options.ridge, condition)
        changes: list[float] = []
        if tables:  # so far the source was evaluated at a first guess of u: iterate
            fit, changes = _iterate(tables, fit, options, condition)
            (A, b), (A_held, b_held) = (table.system(all_columns, degree) for table in tables)
        ctx.progress("least squares", 1, 1)
    for note in fit.notes:
        log.warn(note)
    with clock.phase("check"):
        scale = _residual_scale(problem, data, b, points, options.enforce, ctx)
        train_misfit, held_misfit = (
            float(_misfit(*rows, fit.weights)) / scale for rows in ((A, b), (A_held, b_held))
        )
    _check_misfits(problem, train_misfit, held_misfit, options, log)
    # 6  ũ = Σ w_j φ_j.
    is_soft = options.initial_rows == "soft"
    stats = {
        "family": options.family.name,
        "features": counts,
        "rows": (n_train, len(b_ic)),
        "design": options.design.name,
        "antithetic": options.antithetic,
        "time_degree": options.time_degree,
        "collocation": options.collocation,
        "enforce": options.enforce,
        "solver": fit.solver,
        "rcond": fit.rcond,
        "rank": fit.rank,
        "condition": fit.condition,
        "ridge": options.ridge,
        "initial_rows": options.initial_rows,
        "initial_weight": options.initial_weight if is_soft else None,
        "residual_train": train_misfit,
        "residual_held_out": held_misfit,
        "laplacian": data.rungs,
        "laplacian_skipped": skipped,
        "iterations": (tuple(changes),) if tables else (),
        "seconds": MappingProxyType(clock.seconds),
        "peak_bytes": peak_bytes(ctx.device),
        "device": ctx.device.device_kind,
        "seed": options.seed,
        "estimated_error": None,
        "tolerance_met": None,
        "stopped": None,
        "check": MappingProxyType({}),
        "history": (),
        "warnings": (*problem.warnings, *log.messages),
    }
    solution = Solution(problem, data, blocks, fit.weights, ctx, stats=stats)
    if problem.nonlinear is not None:
        return solution
    entries = sum(counts) * n_train
    return _compare_with_monte_carlo(solution, problem, data, entries, options, clock, ctx, log)


def _compare_with_monte_carlo(
    solution: Solution,
    problem: CanonicalProblem,
    data: Equation,
    entries: int,
    options: FixedSizeOptions,
    clock: PhaseTimer,
    ctx: ExecutionContext,
    log: WarningLog,
) -> Solution:
    """Compare the network with Monte Carlo values of u, and warn if they differ by more than 10 %.

    The comparison needs no smooth data. `entries` (size of the linear system) sets its cost.
    """
    with clock.phase("check"):
        reference = ReferenceValues.over_region(
            problem, data, options.seed, "final check", ctx, entries
        )
        difference = reference.compare(
            reference.factor * solution.network().value(*reference.points)[0], 0.998
        )
    if (
        not difference.reasons
        and difference.low > 0.1
        and not any(text.startswith("not solved") for text in log.messages)
    ):
        log.warn(
            f"not solved: Monte Carlo values differ from the network by {difference.value:.2g} "
            f"of the solution's size. {_REMEDY}"
        )
    stats = {
        "check": MappingProxyType(reference.facts(difference)),
        "warnings": (*problem.warnings, *log.messages),
    }
    return solution.with_stats({**stats, "seconds": MappingProxyType(clock.seconds)})


_REMEDY = (
    "Take more features, more rows, or a smaller train_region; data that are not smooth, or grow "
    "too fast at infinity, cannot be met at all."
)


def _make_tables(
    problem: CanonicalProblem,
    data: Equation,
    blocks: list[Feature],
    points: Points,
    n_train: int,
    ctx: ExecutionContext,
) -> list[EntryCache]:
    """Cached entries of the training rows and of the held-out rows, for Newton or Picard steps."""
    tables = [
        EntryCache(problem, data, ctx, (points[0][part], points[1][part]))
        for part in (slice(n_train), slice(n_train, None))
    ]
    for table in tables:
        table.add_features(blocks, "equation rows")
    return tables


def _iterate(
    tables: list[EntryCache],
    fit: least_squares.Fit,
    options: FixedSizeOptions,
    condition: Array | None,
) -> tuple[least_squares.Fit, list[float]]:
    """Newton's method or Picard's iteration, started from a fit with a first guess of the source.

    Returns the last fit, and the relative change made by each iteration.
    """
    columns, degree = np.arange(tables[0].values.shape[1]), options.time_degree

    def solve() -> tuple[np.ndarray, float]:
        nonlocal fit
        A, b = tables[0].system(columns, degree)
        fit = least_squares.solve(A, b, options.solver, options.rcond, options.ridge, condition)
        return np.asarray(fit.weights), 0.0

    weights, changes = newton.settle(
        tables, np.asarray(fit.weights), degree, solve, options.iteration
    )
    return fit._replace(weights=jnp.asarray(weights)), changes


def _check_misfits(
    problem: CanonicalProblem,
    train_misfit: float,
    held_misfit: float,
    options: FixedSizeOptions,
    log: WarningLog,
) -> None:
    """Warn (raise, for a source that depends on u) if the misfit of the held-out rows is large."""
    if not held_misfit <= 0.1 and problem.nonlinear is not None:
        raise NumericalError(
            newton.failure_message(
                f"rows held out are missed by {held_misfit:.2g} of their size", problem
            )
        )
    if held_misfit > 0.1:
        log.warn(
            f"not solved: rows held out are missed by {held_misfit:.2g} of their size "
            f"(those trained on by {train_misfit:.2g}). {_REMEDY}"
        )
    elif options.enforce == "mild" and held_misfit > 2 * train_misfit:
        log.warn(
            f"mild rows are fitted down to their noise: misfit {train_misfit:.2g} where trained, "
            f"{held_misfit:.2g} where held out. "
            "Take ten rows or more per feature, more mild_samples, or a larger rcond."
        )


def _check_memory(
    problem: CanonicalProblem,
    options: FixedSizeOptions,
    counts: tuple[int, int],
    ctx: ExecutionContext,
) -> None:
    """Raise a `ResourceError` before any work if the linear system does not fit into memory.

    Counted are the matrix with its copies during the factorisation, two square matrices, and the
    coordinates of points and features.
    """
    is_soft, copies = options.initial_rows == "soft", 4 if options.solver == "cholesky" else 6

    def bytes_of(share: float) -> tuple[int, int, int]:
        """Bytes needed for this share of the features and rows; number of rows and of columns."""
        N_ic = int(share * options.rows[1]) if is_soft else 0
        N = int(share * options.rows[0]) + _HELD_OUT + N_ic
        M = sum(int(share * count) for count in counts) * (1 + options.time_degree)
        return 8 * (copies * N * M + 2 * min(N, M) ** 2 + (N + M) * problem.dim), N, M

    needed, N, M = bytes_of(1.0)
    # The largest share that would fit, for the message.
    shares = 0.98 ** np.arange(1, 300)
    share = next((share for share in shares if bytes_of(share)[0] <= ctx.memory), 0.0)
    sizes = [tuple(int(share * n) for n in pair) for pair in (counts, options.rows)]
    remedy = (
        f"features={sizes[0]}, rows={sizes[1]} would fit."
        if min(max(pair) for pair in sizes)
        else "Take fewer features or rows."
    )
    ctx.require(needed, f"{N} rows of {M} columns with their factorisation", remedy)


def _feature_counts(
    problem: CanonicalProblem, options: FixedSizeOptions, log: WarningLog
) -> tuple[int, int]:
    """(M0, M1) as given by the user; M1 = 0 if there is no source."""
    if problem.source is None and options.features[1]:
        log.warn(f"there is no source: the {options.features[1]} source features are left out")
        return options.features[0], 0
    if problem.source is not None and not options.features[1]:
        log.warn("the source has no features of its own: `features` has M1 = 0")
    return options.features


def _place_rows(problem: CanonicalProblem, options: FixedSizeOptions) -> tuple[Points, int]:
    """Points of the training rows followed by those of the held-out rows; number of training rows.

    Shapes: t (rows,), x (rows, dim).
    """
    parts = []
    held_out_placement = options.collocation if options.train_region.single else "uniform"
    for placement, count, stream in (
        (options.collocation, options.rows[0], "rows"),
        (held_out_placement, _HELD_OUT, "held-out rows"),
    ):
        rng = streams.generator(options.seed, stream)
        parts.append(
            PLACEMENTS[placement](
                options.train_region,
                problem.horizon,
                count,
                problem.dim,
                rng,
                problem.paths,
                problem.nonlinear is not None,
            )
        )
    (t, x), (t_held, x_held) = parts
    return (np.concatenate([t, t_held]), np.concatenate([x, x_held])), len(t)


def _place_initial_rows(problem: CanonicalProblem, options: FixedSizeOptions) -> np.ndarray:
    """Points x_l of the initial rows, (N_ic, dim)."""
    rng, region = streams.generator(options.seed, "initial rows"), options.train_region
    x = region.sample(rng, options.rows[1], problem.dim)
    return region.at(np.zeros(options.rows[1]), problem.horizon, x)[1]


def _make_rows(
    problem: CanonicalProblem,
    data: Equation,
    blocks: list[Feature],
    points: Points,
    options: FixedSizeOptions,
    ctx: ExecutionContext,
) -> tuple[Array, Array]:
    """Matrix (rows, columns) and right-hand side (rows,) of the equation rows or mild rows."""
    degree, horizon = options.time_degree, problem.horizon
    if options.enforce == "equation":
        A = residual_rows(data, blocks, points, ctx, degree, horizon)
        return A, jnp.asarray(forcing(data, points, ctx))
    # Mild rows: the network equals an unbiased sample of the mild solution at each point.
    samples = montecarlo.mild_samples(problem, *points, options.mild_samples, options.seed, ctx)
    A = value_rows(data, blocks, points, ctx, "mild rows", degree, horizon)
    return A, jnp.asarray(samples.value)


def _initial_rows(
    data: Equation,
    blocks: list[Feature],
    x: np.ndarray,
    options: FixedSizeOptions,
    ctx: ExecutionContext,
) -> tuple[Array, Array]:
    """φ_j(0, x_l) and u0(x_l), both times λ_IC = √weight: the squared misfit has this weight."""
    scale = np.sqrt(options.initial_weight)
    points = (np.zeros(len(x)), x)
    rows = value_rows(data, blocks, points, ctx, "initial rows", options.time_degree)
    return scale * rows, jnp.asarray(scale * initial_values(data, x, ctx))


def _residual_scale(
    problem: CanonicalProblem,
    data: Equation,
    b: Array,
    points: Points,
    enforce: str,
    ctx: ExecutionContext,
) -> float:
    """Unit of misfits: rms of the right-hand side; for equation rows at least rms of u0 / T."""
    size = _rms(np.asarray(b))
    if enforce == "equation":
        size = max(size, _rms(initial_values(data, points[1], ctx)) / problem.horizon)
    return size or 1.0


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


@jax.jit
def _misfit(A: Array, b: Array, weights: Array) -> Array:
    """Root mean square of A w - b."""
    return jnp.sqrt(jnp.mean((A @ weights - b) ** 2))
