"""The choices of a solve, checked once, before any work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heatnets import collocation, directions, features, least_squares, streams
from heatnets.errors import InputError, choice, count, describe, pair, positive
from heatnets.problem import Problem
from heatnets.regions import Point, Region


@dataclass(frozen=True)
class Settings:
    """How to solve: every keyword of `hn.solve` that touches the numbers."""

    family: features.Family
    features: tuple[int, int]
    design: directions.Design
    rows: tuple[int, int]
    collocation: str
    train_region: Region
    enforce: str
    mild_samples: int
    solver: str
    rcond: float | None
    ridge: float
    initial_rows: str
    initial_weight: float
    seed: int


def settings(
    problem: Problem,
    *,
    seed: Any,
    family: Any,
    features: Any,
    directions: Any,
    rows: Any,
    collocation: Any,
    train_region: Any,
    enforce: Any,
    mild_samples: Any,
    solver: Any,
    rcond: Any,
    ridge: Any,
    initial_rows: Any,
    initial_weight: Any,
) -> Settings:
    """The keywords of `hn.solve` as Settings, or an `InputError` that names the first one that is wrong."""
    if features is None or rows is None:
        raise InputError(
            "`features` and `rows` must be given: this version does not choose them by itself yet. For example "
            "hn.solve(problem, features=(256, 512), rows=(2000, 0)), or the paper's choices: "
            "hn.solve(problem, **hn.paper(4000, 6000, 15000, 3000))."
        )
    counts = pair("features", features, "Write (M0, M1): features from the initial condition and from the source.")
    sizes = pair("rows", rows, "Write (N, N_ic): rows from the equation and from the initial condition.")
    initial_rows = choice("initial_rows", initial_rows, ("exact", "soft"))
    if sizes[0] == 0:
        raise InputError(f"`rows` must hold at least one row of the equation; got {sizes}. Write rows=(2000, 0).")
    if initial_rows == "soft" and sizes[1] == 0:
        raise InputError(
            f'`rows` must hold initial rows with initial_rows="soft"; got {sizes}. Write rows=({sizes[0]}, {max(sizes[0] // 5, 1)}).'
        )
    if counts[0] == 0 and not problem.starts_at_zero:
        raise InputError(
            f"`features` must hold initial features where u0 is not zero; got {counts}. Write features=({counts[1]}, {counts[1]})."
        )
    region = problem.region if train_region is None else train_region
    if not isinstance(region, Region):
        raise InputError(f"`train_region` must be hn.Box or hn.Normal; got {describe(region)}.")
    region.check(problem.dim, "train_region")
    if isinstance(region, Point):
        raise InputError(
            "`train_region` must have a volume to place rows in; got a Point. Surround the point: train_region=hn.Box(x - 1, x + 1)."
        )
    solver = choice("solver", solver, _SOLVERS)
    ridge = _nonnegative("ridge", ridge)
    if ridge and solver == "svd":
        raise InputError(
            '`ridge` has no meaning with solver="svd", which scales the columns. Use solver="cholesky" or "pinv", or ridge=0.'
        )
    if rcond is not None and solver == "cholesky":
        raise InputError(
            '`rcond` has no meaning with solver="cholesky", where the ridge does the cutting. Use solver="svd" or "pinv", or ridge=.'
        )
    design = _design(directions)
    design.check(1 + problem.dim)
    placement = choice("collocation", "uniform" if collocation is None else collocation, _PLACEMENTS)
    if placement == "grid":
        _check_grid(region, problem.dim)
    return Settings(
        family=_family(family),
        features=counts,
        design=design,
        rows=sizes,
        collocation=placement,
        train_region=region,
        enforce=choice("enforce", enforce, ("equation", "mild")),
        mild_samples=count("mild_samples", mild_samples, 2, "It is the number of Monte Carlo samples behind each mild row."),
        solver=solver,
        rcond=None if rcond is None else _nonnegative("rcond", rcond),
        ridge=ridge,
        initial_rows=initial_rows,
        initial_weight=sizes[0] / max(sizes[1], 1)
        if initial_weight is None
        else positive("initial_weight", initial_weight, "It multiplies the squared misfit of the initial rows."),
        seed=streams.check_seed(seed),
    )


def _nonnegative(name: str, value: Any) -> float:
    return 0.0 if isinstance(value, (int, float)) and value == 0 else positive(name, value, "Zero switches it off.")


# The modules' own names, kept apart from the keywords of the same name.
_SOLVERS, _PLACEMENTS, _check_grid = least_squares.SOLVERS, collocation.PLACEMENTS, collocation.check_grid
_family, _design = features.family, directions.design
