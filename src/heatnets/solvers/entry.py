"""The public entry: `hn.solve`, and the paper's choices as keywords for it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax

from heatnets._core import streams
from heatnets._core.errors import InputError, WarningLog, count, short_repr
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
from heatnets.solvers.fixed_size import train
from heatnets.solvers.options import AdaptiveOptions, FixedSizeOptions, settings


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
    """Solve `u_t = div(A ∇u) + b·∇u + c u + F` by a random-feature network of heat kernels and linear least squares.

    Without `features` everything is chosen: the network grows until its estimated error stops falling or the budget is spent
    (docs/choosing.md). With `features` Algorithm 1 of the paper runs once with the options given.

    Args:
        problem: the mathematics.
        tol: the relative L2 error over (0, T] x region that is wanted: the growth ends when an upper bound of it (99 %) is below, or the budget is
            spent; `stats["tolerance_met"]` says which, and a warning if it was not met.
        seed: fixes every random stream.
        seconds: the time the growth may take; default 60. It ends earlier where nothing is left to gain.
        max_rounds: the most rounds of growth, each about twice the size of the one before; default as many as there is time for. With it and
            enough `seconds` the answer does not depend on how fast the machine is.
        memory: bytes the solve may use; default three quarters of what is free.
        device: "cpu", "gpu" or a jax.Device; default JAX's first.
        progress: called as progress(phase, done, total); after each round of growth `phase` is its summary.
        family: "importance", "gaussian" (transformed kernels), or a family object with options of its own.
        features: (M0, M1), features from the initial condition and from the source; a pair counts once.
        directions: "gaussian" (independent draws), "sobol", "signs", "hadamard", "orthogonal", or a `Design`; default "gaussian"
            with `features`, a dictionary of the last three without.
        antithetic: features in pairs ½[φ(η) + φ(-η)]; default True without `features`, False with.
        time_degree: weights are polynomials of this degree in t; default chosen without `features`, 0 with.
        rows: (N, N_ic), rows from the equation and from the initial condition; default four per column.
        collocation: "uniform", "grid" or "paths" (the region and the paths from it); default "paths" without `features`, "uniform" with.
        train_region: where rows are placed; default the problem's region.
        enforce: "equation", or "mild": the network equals Monte Carlo samples of the mild solution. Default "equation"; without
            `features`, "mild" where the data are found to have kinks or jumps.
        mild_samples: Monte Carlo samples behind each mild row; default 256.
        solver: "svd" (scaled columns, cut off; the default), "qr" (scaled columns, damped), "pinv" (Moore-Penrose) or "cholesky"
            (ridge normal equations). The growth uses "qr".
        rcond: relative singular value below which directions are cut (or damped); default max(N, M) eps, for "qr" 1e-14.
        ridge: λ in λ|w|², for "cholesky" and "pinv".
        initial_rows: "exact" (the condition Σ c_j w_j = 1, all that the initial rows can say) or "soft" (the paper's rows).
        initial_weight: multiplies the squared misfit of soft initial rows; default N / N_ic.
        iteration: "newton" or "picard", for a source that depends on u; default "newton".
        checkpoint: a file that keeps each finished round of the growth. Where it exists the growth goes on from it, to what an uninterrupted one would have
            found; it is refused where it belongs to another problem, other settings (but `seconds`) or other versions. It stays when the solve has ended.

    Returns:
        A `Solution`; its `stats` say how it was made. `estimated_error` is that of the growth: relative, root mean square over
        (0, T] x region (at t = T for a `Point`), plus one standard error. `residual_train` and `residual_held_out` are root mean square misfits of
        the rows that were enforced (the equation, or the mild rows), trained on and held out, relative to the right-hand side
        (to u0/T where that is zero). Warnings are also kept in `stats["warnings"]`.

    >>> import heatnets as hn
    >>> problem = hn.problems.get("oscillating", dim=5)
    >>> u = hn.solve(problem)
    >>> bool(hn.measure(u).l2 < 1e-12 and u.stats["estimated_error"] < 1e-12)
    True
    """
    if not isinstance(problem, Problem):
        raise InputError(f"`problem` must be a hn.Problem; got {short_repr(problem)}.")
    chosen = settings(
        problem, seed=seed, tol=tol, seconds=seconds, max_rounds=max_rounds, family=family, features=features, directions=directions, antithetic=antithetic,
        time_degree=time_degree, rows=rows, collocation=collocation,
        train_region=train_region, enforce=enforce, mild_samples=mild_samples, solver=solver, rcond=rcond, ridge=ridge,
        initial_rows=initial_rows, initial_weight=initial_weight, iteration=iteration, checkpoint=checkpoint,
    )  # fmt: skip
    ctx = make_context(device, memory, progress)
    with jax.default_device(ctx.device):
        return _solve(problem.canonical, chosen, ctx, WarningLog()).with_problem(problem)


def _solve(
    problem: CanonicalProblem,
    chosen: FixedSizeOptions | AdaptiveOptions,
    ctx: ExecutionContext,
    notes: WarningLog,
) -> Solution:
    """Test the data, then train what was asked for, or grow it."""
    rough = {} if chosen.enforce == "mild" else smoothness.kinks(problem, chosen.seed, ctx)
    if problem.nonlinear is not None and set(rough) == {"source"}:
        # Kinks in u alone leave the solution smooth, but not what is guessed.
        smoothed = problem.with_smoothed_guess()
        if not smoothness.kinks(smoothed, chosen.seed, ctx) and (
            smoothed.source is not None or not problem.zero_initial
        ):
            problem, rough = smoothed, {}
    found = smoothness.describe(rough)
    if isinstance(chosen, FixedSizeOptions):
        if rough:
            notes.warn(
                f"{found}. Equation rows cannot see them, and the answer can be wrong by tens of per cent with a tiny residual. "
                'Use enforce="mild", smooth the data, or leave `features` out: the default takes care of it.',
                stacklevel=4,
            )
        doubt = _doubt(problem, chosen.seed, chosen.enforce == "mild", ctx)
        return _judged(train(problem, chosen, ctx, notes), doubt, False, notes)
    if rough and chosen.enforce == "equation":
        notes.warn(
            f"{found}, which equation rows cannot see: the estimated error means nothing, and `tol` cannot be judged. Leave `enforce` out.",
            4,
        )
        chosen = replace(chosen, tol=None)
    elif rough:
        notes.warn(
            f"{found}: trained on mild rows (Monte Carlo samples of the solution) instead of the equation.",
            4,
        )
    asked = chosen.tol is not None
    by_samples = chosen.enforce == "mild" or bool(rough and chosen.enforce is None)
    doubt = _doubt(problem, chosen.seed, by_samples, ctx)
    if doubt is not None and not doubt.curable:  # nothing is gained by growing on
        notes.warn(_declined(doubt), 4)
        chosen = replace(chosen, seconds=min(chosen.seconds, _SHORT), tol=None)
    return _judged(
        (adaptive_mild if by_samples else adaptive).grow(problem, chosen, ctx, notes),
        doubt,
        asked,
        notes,
    )


_SHORT = 0.1  # seconds for what is declined anyway


def _doubt(
    problem: CanonicalProblem, seed: int, by_samples: bool, ctx: ExecutionContext
) -> Doubt | None:
    """Why what paths from the region meet does not tell the answer."""
    rng = streams.generator(seed, "encounters")
    return sampling_checks.doubt(
        problem, sampling_checks.over_region(problem, rng, ctx), by_samples, rng, ctx
    )


def _declined(doubt: Doubt) -> str:
    return f"not solved: {doubt.words}. {doubt.advice}"


def _judged(solution: Solution, doubt: Doubt | None, asked: bool, notes: WarningLog) -> Solution:
    """A solution with an error that nobody knows, where there is a doubt that it does not dispel;
    `asked` for a tolerance.
    """
    stats = dict(solution.stats)
    error = (
        stats["residual_held_out"] if stats["estimated_error"] is None else stats["estimated_error"]
    )
    checked = (
        stats["estimated_error"] is not None and stats["check"].get("monte_carlo") is not None
    )  # by many more samples
    if doubt is None or (doubt.curable and (checked or error <= sampling_checks.EXACT)):
        return solution
    notes.warn(_declined(doubt), 5)
    told = dict.fromkeys((*stats["warnings"], *notes.messages))
    if stats["stopped"] is not None and not doubt.curable:
        stats["stopped"] = "the data were declined: one round was made"
    met = False if asked else None
    solution.stats = MappingProxyType(
        {**stats, "estimated_error": math.inf, "tolerance_met": met, "warnings": tuple(told)}
    )
    return solution


def paper(M0: int, M1: int, N: int, N_ic: int) -> dict[str, Any]:
    """The paper's choices as keywords for `hn.solve`: independent importance-sampling features, uniform rows, soft
    initial rows of equal total weight (λ_IC² = N / N_ic), ridge 1e-6 on the normal equations."""
    hint = "For example hn.paper(4000, 6000, 15000, 3000)."
    sizes = [
        count(name, value, 0, hint)
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
