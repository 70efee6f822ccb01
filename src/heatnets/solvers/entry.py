"""The public function `hn.solve`, and `hn.paper`: the settings of the paper as keywords for it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from heatnets._core import streams
from heatnets._core.errors import InputError, WarningLog, check_int, short_repr
from heatnets._core.execution import ExecutionContext, Progress, make_context
from heatnets._core.precision import with_x64
from heatnets.certify import sampling_checks
from heatnets.certify.sampling_checks import Doubt
from heatnets.features.designs import Design
from heatnets.features.families import Family
from heatnets.pde import smoothness
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.problem import Problem
from heatnets.pde.regions import Region
from heatnets.solution import Solution
from heatnets.solvers import adaptive, adaptive_mild
from heatnets.solvers.fixed_size import solve_fixed_size
from heatnets.solvers.options import AdaptiveOptions, FixedSizeOptions, make_options


@with_x64
def solve(
    problem: Problem,
    *,
    tol: float | None = None,
    seed: int = 0,
    seconds: float | None = None,
    max_rounds: int | None = None,
    memory: int | None = None,
    device: Any = None,
    progress: Progress | None = None,
    family: str | Family = "importance",
    features: tuple[int, int] | None = None,
    directions: str | Design | None = None,
    antithetic: bool | None = None,
    time_degree: int | None = None,
    rows: tuple[int, int] | None = None,
    collocation: str | None = None,
    train_region: Region | None = None,
    enforce: str | None = None,
    mild_samples: int | None = None,
    solver: str | None = None,
    rcond: float | None = None,
    ridge: float = 0.0,
    initial_rows: str = "exact",
    initial_weight: float | None = None,
    iteration: str | None = None,
    checkpoint: str | Path | None = None,
) -> Solution:
    """Solve a parabolic PDE by a random-feature network of heat kernels and linear least squares.

    The equation is `u_t = div(A ∇u) + b·∇u + c u + F` with `u(0, x) = u0(x)`, or the same with
    terminal data. There are two solvers:

    - Adaptive (`features` not given): the network grows in rounds until its estimated error stops
      falling or the budget is spent. Sizes and methods are chosen automatically
      (docs/choosing.md).
    - Fixed size (`features` given): Algorithm 1 of the paper runs once, with the given options.

    Args:
        problem: the PDE, its data, and the region where the solution is needed.
        tol: target for the relative L2 error over (0, T] x region. The adaptive solver stops when
            an upper bound of the error (99 % confidence) is below `tol`, or when the budget is
            spent. `stats["tolerance_met"]` says which; a warning is given if it was not met.
        seed: seed of all random numbers.
        seconds: time budget of the adaptive solver; default 60. The solver stops earlier when
            further rounds bring no gain.
        max_rounds: largest number of rounds of the adaptive solver; each round is about twice as
            large as the one before. Default: as many as fit into `seconds`. With `max_rounds` and
            enough `seconds` the result does not depend on the speed of the machine.
        memory: bytes that the solve may use; default three quarters of the free memory.
        device: "cpu", "gpu" or a jax.Device; default the first device of JAX.
        progress: function called as progress(phase, done, total). After each round of the
            adaptive solver `phase` is a summary of the round.
        family: type of features: "importance", "gaussian" (transformed kernels), or a family
            object with its own options.
        features: (M0, M1), the numbers of features built from the initial condition and from the
            source. An antithetic pair counts as one feature.
        directions: how the random directions of features are drawn: "gaussian" (independent
            draws), "sobol", "signs", "hadamard", "orthogonal", or a `Design`. Default "gaussian"
            with `features`; without, the last three together.
        antithetic: use pairs ½[φ(η) + φ(-η)] as features; default True without `features`, False
            with.
        time_degree: the weights are polynomials of this degree in t. Default: chosen by the
            adaptive solver; 0 with `features`.
        rows: (N, N_ic), the numbers of least-squares rows for the equation and for the initial
            condition; default four rows per column.
        collocation: how the points of the rows are placed: "uniform", "grid" or "paths" (in the
            region and on random paths that start there). Default "paths" without `features`,
            "uniform" with.
        train_region: region in which the rows are placed; default the region of the problem.
        enforce: what a row states: "equation" (the PDE at a point), or "mild" (the network equals
            a Monte Carlo sample of the mild solution at a point). Default "equation"; without
            `features`, "mild" if kinks or jumps are detected in the data.
        mild_samples: number of Monte Carlo samples per mild row; default 256.
        solver: least-squares solver: "svd" (scaled columns, small singular values cut off; the
            default), "qr" (scaled columns, damped), "pinv" (Moore-Penrose) or "cholesky" (normal
            equations with a ridge). The adaptive solver uses "qr".
        rcond: relative singular value below which directions are cut off (or damped); default
            max(N, M) eps, for "qr" 1e-14.
        ridge: λ of the penalty λ|w|², for "cholesky" and "pinv".
        initial_rows: "exact" (one linear constraint, Σ c_j w_j = 1, which is equivalent to all
            initial rows) or "soft" (least-squares rows as in the paper).
        initial_weight: factor of the squared misfit of soft initial rows; default N / N_ic.
        iteration: "newton" or "picard", for a source that depends on u; default "newton".
        checkpoint: file in which the adaptive solver stores its state after each round. If the
            file exists, the solve continues from it and gives the result of an uninterrupted
            solve. A file of another problem, of other settings (except `seconds` and
            `max_rounds`) or of other versions is refused. The file is not deleted at the end.

    Returns:
        A `Solution`. Its `stats` describe the solve:

        - `estimated_error` (adaptive solver only): relative root-mean-square error over
          (0, T] x region (at t = T for a `Point`), plus one standard error.
        - `residual_train`, `residual_held_out`: root-mean-square misfits of the rows (equation or
          mild rows) used in the fit and held out of it, relative to the right-hand side (to u0/T
          if that is zero).
        - `warnings`: all warnings given during the solve.

    >>> import heatnets as hn
    >>> problem = hn.problems.get("oscillating", dim=5)
    >>> u = hn.solve(problem)
    >>> bool(hn.measure(u).l2 < 1e-12 and u.stats["estimated_error"] < 1e-12)
    True
    """
    if not isinstance(problem, Problem):
        raise InputError(f"`problem` must be a hn.Problem; got {short_repr(problem)}.")
    options = make_options(
        problem,
        seed=seed,
        tol=tol,
        seconds=seconds,
        max_rounds=max_rounds,
        family=family,
        features=features,
        directions=directions,
        antithetic=antithetic,
        time_degree=time_degree,
        rows=rows,
        collocation=collocation,
        train_region=train_region,
        enforce=enforce,
        mild_samples=mild_samples,
        solver=solver,
        rcond=rcond,
        ridge=ridge,
        initial_rows=initial_rows,
        initial_weight=initial_weight,
        iteration=iteration,
        checkpoint=checkpoint,
    )
    ctx = make_context(device, memory, progress)
    with ctx.active():
        return _solve(problem.canonical, options, ctx, WarningLog()).with_problem(problem)


def _solve(
    problem: CanonicalProblem,
    options: FixedSizeOptions | AdaptiveOptions,
    ctx: ExecutionContext,
    log: WarningLog,
) -> Solution:
    """Check the data for kinks and rare values, then run the fixed-size or the adaptive solver."""
    kinks = {} if options.enforce == "mild" else smoothness.kinks(problem, options.seed, ctx)
    if problem.nonlinear is not None and set(kinks) == {"source"}:
        # A source with kinks in u only has a smooth solution, but the first guess of the source
        # F(t, x, guess) has kinks. Use a smoothed guess if that removes all of them.
        smoothed = problem.with_smoothed_guess()
        if not smoothness.kinks(smoothed, options.seed, ctx) and (
            smoothed.source is not None or not problem.zero_initial
        ):
            problem, kinks = smoothed, {}
    description = smoothness.describe(kinks)
    if isinstance(options, FixedSizeOptions):
        if kinks:
            log.warn(
                f"{description}. Equation rows cannot see them, and the answer can be wrong by "
                "tens of per cent with a tiny residual. "
                'Use enforce="mild", smooth the data, or leave `features` out: the default takes '
                "care of it."
            )
        doubt = _find_doubt(problem, options.seed, options.enforce == "mild", ctx)
        return _judged(solve_fixed_size(problem, options, ctx, log), doubt, False, log)
    if kinks and options.enforce == "equation":
        log.warn(
            f"{description}, which equation rows cannot see: the estimated error means nothing, "
            "and `tol` cannot be judged. Leave `enforce` out."
        )
        options = replace(options, tol=None)
    elif kinks:
        log.warn(
            f"{description}: trained on mild rows (Monte Carlo samples of the solution) instead "
            "of the equation."
        )
    has_tol = options.tol is not None
    by_samples = options.enforce == "mild" or bool(kinks and options.enforce is None)
    doubt = _find_doubt(problem, options.seed, by_samples, ctx)
    if doubt is not None and not doubt.curable:  # more rounds would gain nothing
        log.warn(_decline_message(doubt))
        options = replace(options, seconds=min(options.seconds, _DECLINED_SECONDS), tol=None)
    solver = adaptive_mild if by_samples else adaptive
    return _judged(solver.grow(problem, options, ctx, log), doubt, has_tol, log)


_DECLINED_SECONDS = 0.1  # time budget for a problem whose result is declined anyway


def _find_doubt(
    problem: CanonicalProblem, seed: int, by_samples: bool, ctx: ExecutionContext
) -> Doubt | None:
    """Check the data on random paths from the region: a `Doubt` if they do not determine u."""
    rng = streams.generator(seed, "encounters")
    data_on_paths = sampling_checks.over_region(problem, rng, ctx)
    return sampling_checks.doubt(problem, data_on_paths, by_samples, rng, ctx)


def _decline_message(doubt: Doubt) -> str:
    return f"not solved: {doubt.words}. {doubt.advice}"


def _judged(solution: Solution, doubt: Doubt | None, has_tol: bool, log: WarningLog) -> Solution:
    """Set the estimated error to infinity if there is a doubt that the solution does not remove.

    `has_tol`: the user gave a tolerance. It is then reported as not met.
    """
    stats = dict(solution.stats)
    error = (
        stats["residual_held_out"] if stats["estimated_error"] is None else stats["estimated_error"]
    )
    # The final check uses many more Monte Carlo samples than the check that raised the doubt.
    checked = stats["estimated_error"] is not None and stats["check"].get("monte_carlo") is not None
    if doubt is None or (doubt.curable and (checked or error <= sampling_checks.EXACT)):
        return solution
    log.warn(_decline_message(doubt))
    messages = dict.fromkeys((*stats["warnings"], *log.messages))
    if stats["stopped"] is not None and not doubt.curable:
        stats["stopped"] = "the data were declined: one round was made"
    met = False if has_tol else None
    solution.stats = MappingProxyType(
        {**stats, "estimated_error": math.inf, "tolerance_met": met, "warnings": tuple(messages)}
    )
    return solution


def paper(M0: int, M1: int, N: int, N_ic: int) -> dict[str, Any]:
    """The settings of the paper, as keywords for `hn.solve`.

    Independent importance-sampling features, uniform rows, soft initial rows of equal total weight
    (λ_IC² = N / N_ic), and the normal equations with ridge 1e-6.

    Args:
        M0: number of features from the initial condition.
        M1: number of features from the source.
        N: number of rows for the equation.
        N_ic: number of rows for the initial condition.

    Returns:
        A dictionary, for `hn.solve(problem, **hn.paper(...))`.
    """
    hint = "For example hn.paper(4000, 6000, 15000, 3000)."
    sizes = [
        check_int(name, value, 0, hint)
        for name, value in (("M0", M0), ("M1", M1), ("N", N), ("N_ic", N_ic))
    ]
    return {
        "family": "importance",
        "features": (sizes[0], sizes[1]),
        "directions": "gaussian",
        "antithetic": False,
        "time_degree": 0,
        "rows": (sizes[2], sizes[3]),
        "collocation": "uniform",
        "enforce": "equation",
        "solver": "cholesky",
        "ridge": 1e-6,
        "initial_rows": "soft",
        "initial_weight": sizes[2] / max(sizes[3], 1),
    }
