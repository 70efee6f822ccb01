"""Options of `hn.solve`: each is defined once, and all are checked before any computation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
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
from heatnets.features.designs import Design, design
from heatnets.fit.collocation import PLACEMENTS, check_grid
from heatnets.fit.least_squares import SOLVERS
from heatnets.pde.fingerprint import fingerprint
from heatnets.pde.problem import Problem
from heatnets.pde.regions import Region

# Designs of the adaptive solver; the first, dense, always stays.
DEFAULT_DESIGNS = tuple(map(design, ("orthogonal", "signs", "hadamard")))
TOLERANCE = 1e-3  # default tolerance of the adaptive solver
SECONDS = 60.0  # time limit of the adaptive solver


class CheckpointSpec(NamedTuple):
    """File of an adaptive solve, and the fingerprint that identifies its problem."""

    path: Path
    problem: dict[str, Any]


def _option(check: Callable[[str, Any], Any], default: Any = None, **rule: Any) -> Any:
    """A field of `SolveOptions`.

    Args:
        check: function of the name and the value (if not None) that returns the value to use.
        default: the default of `hn.solve`.
        rule: `adaptive` and `fixed_size`, what None stands for in these modes; `fixed_size_only`;
            `refused`, the message if the option is refused with `features`; `identifies`, whether
            a checkpoint with another value belongs to another solve (default: yes, if adaptive).
    """
    return field(default=default, metadata={"check": check, **rule})


def _check_tolerance(name: str, value: Any) -> float | None:
    """`value` as a float between 0 and 1; None, no tolerance, for 0."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0:
        return None
    hint = (
        "It is the relative L2 error over the region, for example 1e-4. "
        "tol=0 goes on until nothing is left to gain."
    )
    return check_fraction(name, value, hint=hint)


def _check_nonnegative(name: str, value: Any) -> float:
    """`value` as a finite float >= 0."""
    if isinstance(value, (int, float)) and value == 0:
        return 0.0
    return check_positive(name, value, "Zero switches it off.")


def _check_bool(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"`{name}` must be True, False or None; got {short_repr(value)}.")
    return value


def _check_degree(name: str, value: Any) -> int:
    degree = check_int(name, value, 0, "Weights are polynomials of this degree in t.")
    if degree > 10:
        raise InputError(
            f"`{name}` must be at most 10; got {degree}. Three is plenty for most problems."
        )
    return degree


def _check_region(name: str, value: Any) -> Region:
    if not isinstance(value, Region):
        raise InputError(
            f'`{name}` must be hn.Box or hn.Normal (hn.Point with collocation="paths"); '
            f"got {short_repr(value)}."
        )
    return value


def _check_path(name: str, value: Any) -> Path:
    if not isinstance(value, str | Path):
        raise InputError(f"`{name}` must be the name of a file; got {short_repr(value)}.")
    return Path(value)


_LEAVE_OUT = "with `features` there is nothing to choose. Leave one out"


@dataclass(frozen=True)
class SolveOptions:
    """Options of one solve, made by `make_options`; see `hn.solve` for their meaning.

    The mode is adaptive if `features` is None, else of fixed size. Other values that are None are
    chosen by the adaptive solver.
    """

    tol: float | None = _option(  # None: no tolerance
        _check_tolerance,
        adaptive=TOLERANCE,
        refused=f"`tol` is for choosing a size; {_LEAVE_OUT}; u.error() says how good a given "
        "size is.",
    )
    seed: int = _option(lambda name, value: streams.check_seed(value), 0)
    seconds: float = _option(
        partial(check_positive, hint="It is the time the solve may take."),
        adaptive=SECONDS,
        refused=f"`seconds` is the budget for choosing a size; {_LEAVE_OUT}.",
        identifies=False,
    )
    max_rounds: int | None = _option(
        partial(check_int, least=1, hint="It is the most rounds of growth."),
        refused="`max_rounds` ends a growth; a solve with `features` is one round. Leave one out.",
        identifies=False,
    )
    family: families.Family = _option(  # noqa: RUF009
        lambda name, value: families.family(value), "importance"
    )
    features: tuple[int, int] | None = _option(
        partial(
            check_int_pair,
            hint="Write (M0, M1): features from the initial condition and from the source.",
        ),
        identifies=False,
    )
    directions: tuple[Design, ...] = _option(
        lambda name, value: (design(value),), adaptive=DEFAULT_DESIGNS, fixed_size=(design(None),)
    )
    antithetic: bool = _option(_check_bool, adaptive=True, fixed_size=False)
    time_degree: int | None = _option(_check_degree, fixed_size=0)
    rows: tuple[int, int] = _option(  # (N, N_ic): of the equation, of the initial condition
        partial(
            check_int_pair,
            hint="Write (N, N_ic): rows from the equation and from the initial condition.",
        ),
        fixed_size_only=True,
    )
    collocation: str = _option(
        partial(check_choice, options=PLACEMENTS), adaptive="paths", fixed_size="uniform"
    )
    # In canonical coordinates.
    train_region: Region = _option(_check_region)  # noqa: RUF009
    enforce: str | None = _option(
        partial(check_choice, options=("equation", "mild")), fixed_size="equation"
    )
    mild_samples: int = _option(
        partial(
            check_int, least=2, hint="It is the number of Monte Carlo samples behind each mild row."
        ),
        fixed_size=256,
        fixed_size_only=True,
    )
    solver: str = _option(
        partial(check_choice, options=SOLVERS), fixed_size="svd", fixed_size_only=True
    )
    rcond: float | None = _option(_check_nonnegative)
    ridge: float = _option(_check_nonnegative, 0.0, fixed_size_only=True)
    initial_rows: str = _option(
        partial(check_choice, options=("exact", "soft")), "exact", fixed_size_only=True
    )
    initial_weight: float | None = _option(  # None with exact initial rows
        partial(check_positive, hint="It multiplies the squared misfit of the initial rows."),
        fixed_size_only=True,
    )
    iteration: str | None = _option(partial(check_choice, options=("newton", "picard")))
    checkpoint: CheckpointSpec | None = _option(  # noqa: RUF009
        _check_path,
        refused="`checkpoint` keeps the rounds of a growth; a solve with `features` is one round. "
        "Leave one out.",
        identifies=False,
    )

    @property
    def identity(self) -> dict[str, Any]:
        """The options that a checkpoint and the solve that continues it have in common."""
        return {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.metadata.get("identifies", "fixed_size_only" not in f.metadata)
        }


OPTIONS = tuple(f.name for f in fields(SolveOptions))


def make_options(problem: Problem, **keywords: Any) -> SolveOptions:
    """Check keywords of `hn.solve` and fill in their defaults.

    Raises an `InputError` that names the first keyword that is wrong.
    """
    options = _check_each(SolveOptions(**keywords))
    _check_family(problem, options)
    for one in options.directions:
        one.check(1 + problem.dim)
    region = problem.region if options.train_region is None else options.train_region
    _check_placement(problem, region, options)
    if options.rcond is not None and options.solver == "cholesky":
        raise InputError(
            '`rcond` has no meaning with solver="cholesky", where the ridge does the cutting. '
            'Use solver="svd" or "pinv", or ridge=.'
        )
    if options.iteration is not None and not problem.canonical.source.uses_u:
        raise InputError(
            "`iteration` is for a source that depends on u; this one does not, "
            "and one solve is all there is. Leave it out."
        )
    options = replace(options, train_region=problem.transform_region(region))
    if problem.canonical.source.uses_u:
        options = replace(options, iteration=options.iteration or "newton")
    if options.features is not None:
        return _complete_fixed_size(problem, options, options.features)
    path: Any = options.checkpoint
    if path is not None:
        check_writable(path)
        options = replace(options, checkpoint=CheckpointSpec(path, fingerprint(problem)))
    return options


def _check_each(given: SolveOptions) -> SolveOptions:
    """Check every option by its own rule, and put in the default of the mode."""
    checked: dict[str, Any] = {}
    mode = "adaptive" if given.features is None else "fixed_size"
    for f in fields(given):
        rule, value = f.metadata, getattr(given, f.name)
        is_plain = isinstance(value, int | float | str)
        if value is f.default or (is_plain and value == f.default):
            pass
        elif "fixed_size_only" in rule and mode == "adaptive":
            raise InputError(
                f"`{f.name}` belongs to a solve of a given size: give `features` too, "
                "for example features=(256, 512), rows=(2000, 0), "
                "or the paper's choices, hn.solve(problem, **hn.paper(4000, 6000, 15000, 3000)). "
                "Without `features` sizes are chosen for you."
            )
        elif "refused" in rule and mode == "fixed_size":
            raise InputError(rule["refused"])
        use_default = value is None and f.default is None
        checked[f.name] = rule.get(mode) if use_default else rule["check"](f.name, value)
    return SolveOptions(**checked)


def _check_family(problem: Problem, options: SolveOptions) -> None:
    """Raise an `InputError` if the family of features does not fit the problem or the mode."""
    name = options.family.name
    if isinstance(options.family, families.ImportanceFamily):
        return
    if options.features is None:
        raise InputError(
            f"`features` and `rows` must be given with family={name!r}: "
            'only family="importance" chooses its size. '
            "For example features=(256, 512), rows=(2000, 0)."
        )
    if options.antithetic:
        raise InputError(
            "`antithetic` pairs directions, which Gaussian kernels do not have. "
            'Use family="importance", or antithetic=False.'
        )
    if problem.transform.changes or problem.canonical.coefficients is not None:
        raise InputError(
            f"`family={name!r}` is for initial-value problems without drift "
            'and reaction. Use family="importance".'
        )


def _check_placement(problem: Problem, region: Region, options: SolveOptions) -> None:
    """Raise an `InputError` if rows cannot be placed in the region in this way."""
    is_grid = options.collocation == "grid"
    if is_grid and options.features is None:
        raise InputError(
            '`collocation="grid"` needs a size: a grid does not grow. '
            'Give `features`, or use collocation="paths".'
        )
    problem.check_region(region, "train_region")
    if region.is_point and options.collocation != "paths":
        raise InputError(
            "`train_region` must have a volume to place rows in; got a Point. "
            "Surround the point: train_region=hn.Box(x - 1, x + 1), "
            'or take collocation="paths".'
        )
    if is_grid:
        check_grid(region, problem.dim)
        if problem.transform.changes:
            raise InputError(
                '`collocation="grid"` is for initial-value problems without drift and reaction. '
                'Use collocation="uniform".'
            )


def _complete_fixed_size(
    problem: Problem, options: SolveOptions, features: tuple[int, int]
) -> SolveOptions:
    """Check the options of a solve of fixed size together, and put in rows and their weight."""
    is_soft = options.initial_rows == "soft"
    is_importance = isinstance(options.family, families.ImportanceFamily)
    if problem.canonical.source.uses_u and (
        options.enforce == "mild" or is_soft or not is_importance
    ):
        raise InputError(
            'a source that depends on u is solved with family="importance", enforce="equation" '
            'and initial_rows="exact"; leave these keywords out.'
        )
    columns = sum(features) * (1 + (options.time_degree or 0))
    rows = options.rows or (4 * columns, 0)
    if rows[0] == 0:
        raise InputError(
            f"`rows` must hold at least one row of the equation; got {rows}. Write rows=(2000, 0)."
        )
    if is_soft and rows[1] == 0:
        raise InputError(
            f'`rows` must hold initial rows with initial_rows="soft"; got {rows}. '
            f"Write rows=({rows[0]}, {max(rows[0] // 5, 1)})."
        )
    if features[0] == 0 and not problem.canonical.zero_initial:
        raise InputError(
            f"`features` must hold initial features where u0 is not zero; got {features}. "
            f"Write features=({features[1]}, {features[1]})."
        )
    if options.ridge and options.solver in ("svd", "qr"):
        raise InputError(
            f'`ridge` has no meaning with solver="{options.solver}", which scales the columns. '
            'Use solver="cholesky" or "pinv", or ridge=0.'
        )
    weight = options.initial_weight or rows[0] / max(rows[1], 1)
    return replace(options, rows=rows, initial_weight=weight if is_soft else None)
