"""Options of the fixed-size and of the adaptive solver, validated before any computation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from heatnets._core import streams
from heatnets._core.atomic_files import check_writable
from heatnets._core.errors import (
    InputError,
    check_choice,
    check_fraction,
    check_int,
    check_int_pair,
    check_positive,
    short_repr,
)
from heatnets.features import families
from heatnets.features.designs import Design
from heatnets.features.designs import design as _design
from heatnets.fit import collocation, least_squares
from heatnets.pde.fingerprint import fingerprint
from heatnets.pde.problem import Problem
from heatnets.pde.regions import Region


@dataclass(frozen=True)
class FixedSizeOptions:
    """Validated options of the fixed-size solver (`features` given)."""

    family: families.Family
    features: tuple[int, int]  # (M0, M1): from the initial condition, from the source
    design: Design
    antithetic: bool
    time_degree: int
    rows: tuple[int, int]  # (N, N_ic): of the equation, of the initial condition
    collocation: str
    train_region: Region
    enforce: str
    mild_samples: int
    solver: str
    rcond: float | None
    ridge: float
    initial_rows: str
    initial_weight: float
    iteration: str
    seed: int


class CheckpointSpec(NamedTuple):
    """File of an adaptive solve, and the fingerprint that identifies its problem."""

    path: Path
    problem: dict[str, Any]


@dataclass(frozen=True)
class AdaptiveOptions:
    """Validated options of the adaptive solver; None means that the solver chooses."""

    family: families.Family
    designs: tuple[Design, ...]
    antithetic: bool
    time_degree: int | None
    collocation: str
    train_region: Region
    enforce: str | None
    solver: str
    rcond: float | None
    iteration: str
    seconds: float
    max_rounds: int | None
    seed: int
    tol: float | None
    checkpoint: CheckpointSpec | None


DEFAULT_DESIGNS = (
    "orthogonal",
    "signs",
    "hadamard",
)  # default designs; the first, dense, always stays
SECONDS = 60.0  # default time budget of the adaptive solver


def make_options(
    problem: Problem,
    *,
    seed: Any = 0,
    tol: Any = None,
    seconds: Any = None,
    max_rounds: Any = None,
    family: Any = "importance",
    features: Any = None,
    directions: Any = None,
    antithetic: Any = None,
    time_degree: Any = None,
    rows: Any = None,
    collocation: Any = None,
    train_region: Any = None,
    enforce: Any = None,
    mild_samples: Any = None,
    solver: Any = None,
    rcond: Any = None,
    ridge: Any = 0.0,
    initial_rows: Any = "exact",
    initial_weight: Any = None,
    iteration: Any = None,
    checkpoint: Any = None,
) -> FixedSizeOptions | AdaptiveOptions:
    """Check the keywords of `hn.solve` and fill in their defaults.

    Returns `FixedSizeOptions` if `features` is given, `AdaptiveOptions` if not. Raises an
    `InputError` that names the first keyword that is wrong.
    """
    is_adaptive = features is None
    if checkpoint is not None and not isinstance(checkpoint, str | Path):
        raise InputError(f"`checkpoint` must be the name of a file; got {short_repr(checkpoint)}.")
    if checkpoint is not None and not is_adaptive:
        raise InputError(
            "`checkpoint` keeps the rounds of a growth; a solve with `features` is one round. "
            "Leave one out."
        )
    if is_adaptive:
        set_by_user = {
            "rows": rows is not None,
            "mild_samples": mild_samples is not None,
            "ridge": ridge != 0,
            "initial_rows": initial_rows != "exact",
            "initial_weight": initial_weight is not None,
            "solver": solver is not None,
        }
        if fixed_size_only := [name for name, is_set in set_by_user.items() if is_set]:
            raise InputError(
                f"`{fixed_size_only[0]}` belongs to a solve of a given size: give `features` too, "
                "for example features=(256, 512), rows=(2000, 0), "
                "or the paper's choices, hn.solve(problem, **hn.paper(4000, 6000, 15000, 3000)). "
                "Without `features` sizes are chosen for you."
            )
    elif tol is not None:
        raise InputError(
            "`tol` is for choosing a size; with `features` there is nothing to choose. "
            "Leave one out; u.error() says how good a given size is."
        )
    elif seconds is not None:
        raise InputError(
            "`seconds` is the budget for choosing a size; with `features` there is nothing to "
            "choose. Leave one out."
        )
    elif max_rounds is not None:
        raise InputError(
            "`max_rounds` ends a growth; a solve with `features` is one round. Leave one out."
        )
    feature_family = _family(family)
    if antithetic is not None and not isinstance(antithetic, bool):
        raise InputError(f"`antithetic` must be True, False or None; got {short_repr(antithetic)}.")
    paired = is_adaptive if antithetic is None else antithetic
    if not isinstance(feature_family, _Importance):
        if is_adaptive:
            raise InputError(
                f"`features` and `rows` must be given with family={feature_family.name!r}: "
                'only family="importance" chooses its size. '
                "For example features=(256, 512), rows=(2000, 0)."
            )
        if paired:
            raise InputError(
                "`antithetic` pairs directions, which Gaussian kernels do not have. "
                'Use family="importance", or antithetic=False.'
            )
        if problem.transform.changes or problem.canonical.coefficients is not None:
            raise InputError(
                f"`family={feature_family.name!r}` is for initial-value problems without drift "
                'and reaction. Use family="importance".'
            )
    degree = None
    if time_degree is not None:
        hint = "Weights are polynomials of this degree in t."
        degree = check_int("time_degree", time_degree, 0, hint)
    if degree is not None and degree > 10:
        raise InputError(
            f"`time_degree` must be at most 10; got {degree}. Three is plenty for most problems."
        )
    designs = (
        tuple(_design(name) for name in DEFAULT_DESIGNS)
        if is_adaptive and directions is None
        else (_design(directions),)
    )
    for design in designs:
        design.check(1 + problem.dim)
    default_placement = "paths" if is_adaptive else "uniform"
    placement = check_choice(
        "collocation", default_placement if collocation is None else collocation, _PLACEMENTS
    )
    if is_adaptive and placement == "grid":
        raise InputError(
            '`collocation="grid"` needs a size: a grid does not grow. '
            'Give `features`, or use collocation="paths".'
        )
    region = problem.region if train_region is None else train_region
    _check_region(region, problem, placement)
    region = problem.transform_region(region)
    if rcond is not None and solver == "cholesky":
        raise InputError(
            '`rcond` has no meaning with solver="cholesky", where the ridge does the cutting. '
            'Use solver="svd" or "pinv", or ridge=.'
        )
    cutoff = None if rcond is None else _check_nonnegative("rcond", rcond)
    row_type = None if enforce is None else check_choice("enforce", enforce, ("equation", "mild"))
    if iteration is not None and problem.nonlinear is None:
        raise InputError(
            "`iteration` is for a source that depends on u; this one does not, "
            "and one solve is all there is. Leave it out."
        )
    iteration = check_choice(
        "iteration", "newton" if iteration is None else iteration, ("newton", "picard")
    )
    if (
        problem.nonlinear is not None
        and not is_adaptive
        and (
            row_type == "mild"
            or initial_rows == "soft"
            or not isinstance(feature_family, _Importance)
        )
    ):
        raise InputError(
            'a source that depends on u is solved with family="importance", enforce="equation" '
            'and initial_rows="exact"; leave these keywords out.'
        )
    if is_adaptive:
        spec = None
        if checkpoint is not None:
            spec = CheckpointSpec(Path(checkpoint), fingerprint(problem))
            check_writable(spec.path)
        budget = SECONDS
        if seconds is not None:
            budget = check_positive("seconds", seconds, "It is the time the solve may take.")
        if tol is not None:
            hint = "It is the relative L2 error over the region, for example 1e-4."
            tol = check_fraction("tol", tol, hint)
        if max_rounds is not None:
            max_rounds = check_int("max_rounds", max_rounds, 1, "It is the most rounds of growth.")
        return AdaptiveOptions(
            family=feature_family,
            designs=designs,
            antithetic=paired,
            time_degree=degree,
            collocation=placement,
            train_region=region,
            enforce=row_type,
            solver="qr",
            rcond=cutoff,
            iteration=iteration,
            seconds=budget,
            max_rounds=max_rounds,
            seed=streams.check_seed(seed),
            tol=tol,
            checkpoint=spec,
        )
    feature_counts = check_int_pair(
        "features",
        features,
        "Write (M0, M1): features from the initial condition and from the source.",
    )
    columns = sum(feature_counts) * (1 + (degree or 0))
    row_counts = check_int_pair(
        "rows",
        (4 * columns, 0) if rows is None else rows,
        "Write (N, N_ic): rows from the equation and from the initial condition.",
    )
    initial_rows = check_choice("initial_rows", initial_rows, ("exact", "soft"))
    if row_counts[0] == 0:
        raise InputError(
            f"`rows` must hold at least one row of the equation; got {row_counts}. "
            "Write rows=(2000, 0)."
        )
    if initial_rows == "soft" and row_counts[1] == 0:
        raise InputError(
            f'`rows` must hold initial rows with initial_rows="soft"; got {row_counts}. '
            f"Write rows=({row_counts[0]}, {max(row_counts[0] // 5, 1)})."
        )
    if feature_counts[0] == 0 and not problem.canonical.zero_initial:
        raise InputError(
            f"`features` must hold initial features where u0 is not zero; got {feature_counts}. "
            f"Write features=({feature_counts[1]}, {feature_counts[1]})."
        )
    solver = check_choice("solver", "svd" if solver is None else solver, _SOLVERS)
    ridge = _check_nonnegative("ridge", ridge)
    if ridge and solver in ("svd", "qr"):
        raise InputError(
            f'`ridge` has no meaning with solver="{solver}", which scales the columns. '
            'Use solver="cholesky" or "pinv", or ridge=0.'
        )
    samples_per_row = 256
    if mild_samples is not None:
        hint = "It is the number of Monte Carlo samples behind each mild row."
        samples_per_row = check_int("mild_samples", mild_samples, 2, hint)
    weight = row_counts[0] / max(row_counts[1], 1)
    if initial_weight is not None:
        hint = "It multiplies the squared misfit of the initial rows."
        weight = check_positive("initial_weight", initial_weight, hint)
    return FixedSizeOptions(
        family=feature_family,
        features=feature_counts,
        design=designs[0],
        antithetic=paired,
        time_degree=degree or 0,
        rows=row_counts,
        collocation=placement,
        train_region=region,
        enforce=row_type or "equation",
        mild_samples=samples_per_row,
        solver=solver,
        rcond=cutoff,
        ridge=ridge,
        initial_rows=initial_rows,
        initial_weight=weight,
        iteration=iteration,
        seed=streams.check_seed(seed),
    )


def _check_region(region: Any, problem: Problem, placement: str) -> None:
    """Raise an `InputError` if rows cannot be placed in `region` in this way."""
    if not isinstance(region, Region):
        raise InputError(
            '`train_region` must be hn.Box or hn.Normal (hn.Point with collocation="paths"); '
            f"got {short_repr(region)}."
        )
    problem.check_region(region, "train_region")
    if region.single and placement != "paths":
        raise InputError(
            "`train_region` must have a volume to place rows in; got a Point. "
            "Surround the point: train_region=hn.Box(x - 1, x + 1), "
            'or take collocation="paths".'
        )
    if placement == "grid":
        _check_grid(region, problem.dim)
        if problem.transform.changes:
            raise InputError(
                '`collocation="grid"` is for initial-value problems without drift and reaction. '
                'Use collocation="uniform".'
            )


def _check_nonnegative(name: str, value: Any) -> float:
    """`value` as a finite float >= 0."""
    if isinstance(value, (int, float)) and value == 0:
        return 0.0
    return check_positive(name, value, "Zero switches it off.")


# Functions of other modules under private names: the keywords of `settings` hide the public ones.
_SOLVERS, _PLACEMENTS = least_squares.SOLVERS, collocation.PLACEMENTS
_check_grid, _family, _Importance = (
    collocation.check_grid,
    families.family,
    families.ImportanceFamily,
)
