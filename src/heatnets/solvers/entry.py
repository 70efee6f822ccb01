"""The public function `hn.solve`, and `hn.paper`: the settings of the paper as keywords for it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from heatnets._core.errors import InputError, WarningLog, check_int, short_repr
from heatnets._core.execution import Progress, make_context
from heatnets._core.precision import with_x64
from heatnets._core.progress import shown_progress
from heatnets.certify import data_checks
from heatnets.certify.data_checks import Doubt
from heatnets.features.designs import Design
from heatnets.features.families import Family
from heatnets.pde import smoothness
from heatnets.pde.preintegration_choice import choose_preintegration
from heatnets.pde.problem import Problem
from heatnets.pde.regions import Region
from heatnets.solution import Solution
from heatnets.solvers.adaptive import EquationGrowth
from heatnets.solvers.adaptive_mild import MildGrowth
from heatnets.solvers.fixed_size import solve_fixed_size
from heatnets.solvers.identity import require_same_solve
from heatnets.solvers.options import OPTIONS, make_options
from heatnets.solvers.run import Run


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
    devices: Any = None,
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

    - Adaptive (`features` not given): the network grows in rounds until its error is shown to be
      below `tol`. Sizes and methods are chosen automatically (docs/choosing.md).
    - Fixed size (`features` given): Algorithm 1 of the paper runs once, with the given options.

    Args:
        problem: the PDE, its data, and the region where the solution is needed.
        tol: target for the relative L2 error over (0, T] x region; default 1e-3. The adaptive
            solver stops when an upper bound of the error (99 % confidence) is below `tol`. If a
            limit stops it before, `stats["tolerance_met"]` is False, and a warning is given.
            tol=0 goes on until nothing is left to gain.
        seed: seed of all random numbers.
        seconds: time limit of the adaptive solver; default 60. The first round is always made. A
            result that no time limit ended does not depend on the speed of the machine.
        max_rounds: largest number of rounds of the adaptive solver; each round is about twice as
            large as the one before. Default: no limit.
        memory: bytes that the solve may use; default three quarters of the free memory.
        device: "cpu", "gpu" or a jax.Device; default the first device of JAX.
        devices: "all", a list of jax.Devices, or a `jax.sharding.Mesh`: these devices solve the
            problem together. If `jax.distributed` has connected several processes, each makes the
            same call and gets the same solution (docs/machines.md). Default: one device.
        progress: function called as progress(phase, done, total). After each round of the
            adaptive solver `phase` is a summary of the round. By default the state is shown on
            standard error: on a terminal in one line, which is erased at the end; elsewhere in
            lines, from ten seconds on.
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
            `features`, "mild" if the data have kinks or jumps that features cannot integrate.
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
        A `Solution`. Its `stats` describe the solve. `estimated_error` (adaptive solver only) is
        the relative root-mean-square error over (0, T] x region (at t = T for a `Point`), plus one
        standard error. `residual_train` and `residual_held_out` are root-mean-square misfits of the
        rows used in the fit and held out of it, relative to the right-hand side (to u0/T if that is
        zero). `warnings` has all warnings given during the solve.

    >>> import heatnets as hn
    >>> problem = hn.problems.get("oscillating", dim=5)
    >>> u = hn.solve(problem, tol=0)
    >>> bool(hn.measure(u).l2 < 1e-12 and u.stats["estimated_error"] < 1e-12)
    True
    """
    keywords = {name: value for name, value in locals().items() if name in OPTIONS}
    if not isinstance(problem, Problem):
        raise InputError(f"`problem` must be a hn.Problem; got {short_repr(problem)}.")
    ctx = make_context(device, memory, progress, devices)
    is_shown = ctx.processes.rank == 0
    with ctx.processes.watch():
        options = make_options(problem, **keywords)
        problem.check_unchanged()
        with ctx.active(), shown_progress("preparing", progress if is_shown else ctx.progress) as p:
            own, log = replace(ctx, progress=p), WarningLog(is_shown)
            run = Run(problem.canonical, options, own, lasting=ctx.alone(), log=log)
            require_same_solve(run, problem)
            return _solve(run).with_problem(problem)


def _solve(run: Run) -> Solution:
    """Check the data for kinks and rare values, then run the fixed-size or the adaptive solver."""
    options, seed = run.options, run.options.seed
    has_tol, is_blind, kinks = options.tol is not None, False, dict[str, float]()
    if options.enforce != "mild":
        kinks = smoothness.find_kinks(run.problem, seed, run.ctx)
    if run.problem.source.uses_u and set(kinks) == {"source"}:
        # A source with kinks in u only has a smooth solution, but the first guess of the source
        # F(t, x, guess) has kinks. Use a smoothed guess if that removes all of them.
        smoothed = run.problem.with_smoothed_guess()
        if not smoothness.find_kinks(smoothed, seed, run.ctx) and (
            smoothed.feature_source is not None or not smoothed.zero_initial
        ):
            run.problem, kinks = smoothed, {}
    description = smoothness.format_kinks(kinks)
    is_adaptive, is_mild = options.features is None, options.enforce == "mild"
    why_mild = ""
    if is_adaptive and not is_mild and set(kinks) <= {run.problem.data_name}:
        # Also where hardly a segment meets a kink: deep in the money.
        rule, why_mild = choose_preintegration(run.problem, seed, run.ctx)
        if rule is not None:
            run.problem, kinks = replace(run.problem, preintegration=rule), {}
    if kinks and not is_adaptive:
        run.log.warn(
            f"{description}. Equation rows cannot see them, and the answer can be wrong by "
            "tens of per cent with a tiny residual. "
            'Use enforce="mild", smooth the data, or leave `features` out: the default takes '
            "care of it."
        )
    elif kinks and options.enforce == "equation":
        is_blind = True
        run.log.warn(
            f"not solved: {description}, which equation rows cannot see. Nothing is known about "
            "the error. Leave `enforce` out."
        )
        options = replace(options, tol=None)
    elif kinks:
        is_mild = True
        run.log.warn(
            f"{description}: trained on mild rows (Monte Carlo samples of the solution) instead "
            f"of the equation{f', since {why_mild}' if why_mild else ''}."
        )
    # Do the data on random paths from the region determine u?
    rng = run.rng("encounters")
    doubt = data_checks.doubt(run.problem, is_mild, rng, run.ctx)
    if not is_adaptive:
        return _decline_if_doubtful(solve_fixed_size(run), doubt, has_tol, run.log)
    if doubt is not None and not doubt.curable:  # more rounds would gain nothing
        run.log.warn(_decline_message(doubt))
        options = replace(options, max_rounds=1, tol=None)
    if is_mild:
        run.options = replace(options, enforce="mild", collocation="uniform")
        solution = MildGrowth(run).grow()
    else:
        run.options = replace(options, enforce="equation")
        solution = EquationGrowth(run).grow()
    if is_blind:
        unknown = {"estimated_error": math.inf, "tolerance_met": False if has_tol else None}
        return solution.with_stats(unknown)
    return _decline_if_doubtful(solution, doubt, has_tol, run.log)


def _decline_message(doubt: Doubt) -> str:
    return f"not solved: {doubt.words}. {doubt.advice}"


def _decline_if_doubtful(
    solution: Solution, doubt: Doubt | None, has_tol: bool, log: WarningLog
) -> Solution:
    """Set the estimated error to infinity if there is a doubt that the solution does not remove.

    `has_tol`: the user gave a tolerance. It is then reported as not met.
    """
    stats = solution.stats
    estimate = stats["estimated_error"]
    error = stats["residual_held_out"] if estimate is None else estimate
    # The final check uses many more Monte Carlo samples than the check that raised the doubt.
    checked = estimate is not None and stats["check"].get("monte_carlo") is not None
    if doubt is None or (doubt.curable and (checked or error <= data_checks.EXACT)):
        return solution
    log.warn(_decline_message(doubt))
    changes: dict[str, Any] = {
        "estimated_error": math.inf,
        "tolerance_met": False if has_tol else None,
        "warnings": tuple(dict.fromkeys((*stats["warnings"], *log.messages))),
    }
    if stats["stopped"] is not None and not doubt.curable:
        changes["stopped"] = "the data were declined: one round was made"
    return solution.with_stats(changes)


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
