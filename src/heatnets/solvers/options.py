"""The choices of a solve, checked once, before any work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from heatnets._core import streams
from heatnets._core.atomic_files import check_writable
from heatnets._core.errors import InputError, choice, count, fraction, pair, positive, short_repr
from heatnets.features import families
from heatnets.features.designs import Design
from heatnets.features.designs import design as _design
from heatnets.fit import collocation, least_squares
from heatnets.pde.fingerprint import fingerprint
from heatnets.pde.problem import Problem
from heatnets.pde.regions import Region


@dataclass(frozen=True)
class FixedSizeOptions:
    """How to solve with a given size: every keyword of `hn.solve` that touches the numbers."""

    family: families.Family
    features: tuple[int, int]
    design: Design
    antithetic: bool
    time_degree: int
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
    iteration: str
    seed: int


class CheckpointSpec(NamedTuple):
    """Where the rounds of a growth are kept, and what tells its problem from others."""

    path: Path
    problem: dict[str, Any]


@dataclass(frozen=True)
class AdaptiveOptions:
    """How to grow where no size is given; None is for what growth chooses."""

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


DICTIONARY = ("orthogonal", "signs", "hadamard")  # the first is dense and is never left out
SECONDS = 60.0


def settings(
    problem: Problem,
    *,
    seed: Any,
    tol: Any,
    seconds: Any,
    max_rounds: Any,
    family: Any,
    features: Any,
    directions: Any,
    antithetic: Any,
    time_degree: Any,
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
    iteration: Any,
    checkpoint: Any,
) -> FixedSizeOptions | AdaptiveOptions:
    """The keywords of `hn.solve`, checked: `Settings` where a size is given, `Growth` where none is.

    Raises an `InputError` that names the first keyword that is wrong.
    """
    grows = features is None
    if checkpoint is not None and not isinstance(checkpoint, str | Path):
        raise InputError(f"`checkpoint` must be the name of a file; got {short_repr(checkpoint)}.")
    if checkpoint is not None and not grows:
        raise InputError(
            "`checkpoint` keeps the rounds of a growth; a solve with `features` is one round. Leave one out."
        )
    if grows:
        given = {
            "rows": rows is not None,
            "mild_samples": mild_samples is not None,
            "ridge": ridge != 0,
            "initial_rows": initial_rows != "exact",
            "initial_weight": initial_weight is not None,
            "solver": solver is not None,
        }
        if alone := [name for name, here in given.items() if here]:
            raise InputError(
                f"`{alone[0]}` belongs to a solve of a given size: give `features` too, for example features=(256, 512), rows=(2000, 0), "
                "or the paper's choices, hn.solve(problem, **hn.paper(4000, 6000, 15000, 3000)). Without `features` sizes are chosen for you."
            )
    elif tol is not None:
        raise InputError(
            "`tol` is for choosing a size; with `features` there is nothing to choose. Leave one out; u.error() says how good a given size is."
        )
    elif seconds is not None:
        raise InputError(
            "`seconds` is the budget for choosing a size; with `features` there is nothing to choose. Leave one out."
        )
    elif max_rounds is not None:
        raise InputError(
            "`max_rounds` ends a growth; a solve with `features` is one round. Leave one out."
        )
    kind = _family(family)
    if antithetic is not None and not isinstance(antithetic, bool):
        raise InputError(f"`antithetic` must be True, False or None; got {short_repr(antithetic)}.")
    paired = grows if antithetic is None else antithetic
    if not isinstance(kind, _Importance):
        if grows:
            raise InputError(
                f'`features` and `rows` must be given with family={kind.name!r}: only family="importance" chooses its size. '
                "For example features=(256, 512), rows=(2000, 0)."
            )
        if paired:
            raise InputError(
                '`antithetic` pairs directions, which Gaussian kernels do not have. Use family="importance", or antithetic=False.'
            )
        if problem.transform.changes or problem.canonical.coefficients is not None:
            raise InputError(
                f'`family={kind.name!r}` is for initial-value problems without drift and reaction. Use family="importance".'
            )
    degree = (
        None
        if time_degree is None
        else count("time_degree", time_degree, 0, "Weights are polynomials of this degree in t.")
    )
    if degree is not None and degree > 10:
        raise InputError(
            f"`time_degree` must be at most 10; got {degree}. Three is plenty for most problems."
        )
    designs = (
        tuple(_design(n) for n in DICTIONARY)
        if grows and directions is None
        else (_design(directions),)
    )
    for design in designs:
        design.check(1 + problem.dim)
    placement = choice(
        "collocation",
        ("paths" if grows else "uniform") if collocation is None else collocation,
        _PLACEMENTS,
    )
    if grows and placement == "grid":
        raise InputError(
            '`collocation="grid"` needs a size: a grid does not grow. Give `features`, or use collocation="paths".'
        )
    region = problem.region if train_region is None else train_region
    _check_region(region, problem, placement)
    region = problem.transform_region(region)
    if rcond is not None and solver == "cholesky":
        raise InputError(
            '`rcond` has no meaning with solver="cholesky", where the ridge does the cutting. Use solver="svd" or "pinv", or ridge=.'
        )
    cut = None if rcond is None else _nonnegative("rcond", rcond)
    rule = None if enforce is None else choice("enforce", enforce, ("equation", "mild"))
    if iteration is not None and problem.nonlinear is None:
        raise InputError(
            "`iteration` is for a source that depends on u; this one does not, and one solve is all there is. Leave it out."
        )
    iterated = choice(
        "iteration", "newton" if iteration is None else iteration, ("newton", "picard")
    )
    if (
        problem.nonlinear is not None
        and not grows
        and (rule == "mild" or initial_rows == "soft" or not isinstance(kind, _Importance))
    ):
        raise InputError(
            'a source that depends on u is solved with family="importance", enforce="equation" and initial_rows="exact"; leave these keywords out.'
        )
    if grows:
        kept = (
            None if checkpoint is None else CheckpointSpec(Path(checkpoint), fingerprint(problem))
        )
        if kept is not None:
            check_writable(kept.path)
        budget = (
            SECONDS
            if seconds is None
            else positive("seconds", seconds, "It is the time the solve may take.")
        )
        wanted = (
            None
            if tol is None
            else fraction(
                "tol", tol, "It is the relative L2 error over the region, for example 1e-4."
            )
        )
        return AdaptiveOptions(
            kind,
            designs,
            paired,
            degree,
            placement,
            region,
            rule,
            "qr",
            cut,
            iterated,
            budget,
            None
            if max_rounds is None
            else count("max_rounds", max_rounds, 1, "It is the most rounds of growth."),
            streams.check_seed(seed),
            wanted,
            kept,
        )
    counts = pair(
        "features",
        features,
        "Write (M0, M1): features from the initial condition and from the source.",
    )
    columns = sum(counts) * (1 + (degree or 0))
    sizes = pair(
        "rows",
        (4 * columns, 0) if rows is None else rows,
        "Write (N, N_ic): rows from the equation and from the initial condition.",
    )
    initial_rows = choice("initial_rows", initial_rows, ("exact", "soft"))
    if sizes[0] == 0:
        raise InputError(
            f"`rows` must hold at least one row of the equation; got {sizes}. Write rows=(2000, 0)."
        )
    if initial_rows == "soft" and sizes[1] == 0:
        raise InputError(
            f'`rows` must hold initial rows with initial_rows="soft"; got {sizes}. Write rows=({sizes[0]}, {max(sizes[0] // 5, 1)}).'
        )
    if counts[0] == 0 and not problem.canonical.zero_initial:
        raise InputError(
            f"`features` must hold initial features where u0 is not zero; got {counts}. Write features=({counts[1]}, {counts[1]})."
        )
    solver = choice("solver", "svd" if solver is None else solver, _SOLVERS)
    ridge = _nonnegative("ridge", ridge)
    if ridge and solver in ("svd", "qr"):
        raise InputError(
            f'`ridge` has no meaning with solver="{solver}", which scales the columns. Use solver="cholesky" or "pinv", or ridge=0.'
        )
    return FixedSizeOptions(
        family=kind,
        features=counts,
        design=designs[0],
        antithetic=paired,
        time_degree=degree or 0,
        rows=sizes,
        collocation=placement,
        train_region=region,
        enforce=rule or "equation",
        mild_samples=256
        if mild_samples is None
        else count(
            "mild_samples",
            mild_samples,
            2,
            "It is the number of Monte Carlo samples behind each mild row.",
        ),
        solver=solver,
        rcond=cut,
        ridge=ridge,
        initial_rows=initial_rows,
        initial_weight=sizes[0] / max(sizes[1], 1)
        if initial_weight is None
        else positive(
            "initial_weight",
            initial_weight,
            "It multiplies the squared misfit of the initial rows.",
        ),
        iteration=iterated,
        seed=streams.check_seed(seed),
    )


def _check_region(region: Any, problem: Problem, placement: str) -> None:
    if not isinstance(region, Region):
        raise InputError(
            f'`train_region` must be hn.Box or hn.Normal (hn.Point with collocation="paths"); got {short_repr(region)}.'
        )
    problem.check_region(region, "train_region")
    if region.single and placement != "paths":
        raise InputError(
            "`train_region` must have a volume to place rows in; got a Point. Surround the point: train_region=hn.Box(x - 1, x + 1), "
            'or take collocation="paths".'
        )
    if placement == "grid":
        _check_grid(region, problem.dim)
        if problem.transform.changes:
            raise InputError(
                '`collocation="grid"` is for initial-value problems without drift and reaction. Use collocation="uniform".'
            )


def _nonnegative(name: str, value: Any) -> float:
    return (
        0.0
        if isinstance(value, (int, float)) and value == 0
        else positive(name, value, "Zero switches it off.")
    )


# The modules' own names, kept apart from the keywords of the same name.
_SOLVERS, _PLACEMENTS, _check_grid = (
    least_squares.SOLVERS,
    collocation.PLACEMENTS,
    collocation.check_grid,
)
_family, _Importance = families.family, families.ImportanceFamily
