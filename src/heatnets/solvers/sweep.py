"""`hn.solve_many`: the same solve for several problems, such as strikes, maturities, parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heatnets._core.errors import HeatnetsError, InputError, WarningLog, short_repr, suggest
from heatnets._core.execution import Progress, Summary, make_context
from heatnets.pde.problem import Problem
from heatnets.solution import Solution
from heatnets.solvers.entry import solve
from heatnets.solvers.options import OPTIONS, make_options

_EXECUTION = ("memory", "device", "devices")


def solve_many(
    problems: Iterable[Problem], *, progress: Progress | None = None, **options: Any
) -> list[Solution | HeatnetsError]:
    """Solve several problems with the same options; one that fails does not end the others.

    Problems that differ only by numbers share their compiled programs, if JAX sees these numbers.
    It does if a function is a `functools.partial` of one function, or an equinox module whose
    fields are arrays. It does not see what a `lambda` captures: each one is compiled anew. Horizon,
    region, constant coefficients, parameters of a process, and parameters of TOML files are always
    seen. All problems have the same random numbers, so that differences of solutions are smooth.

    Args:
        problems: the problems.
        progress: called as `progress` of `hn.solve`, with "problem 2 of 5, " before each phase; and
            as progress("problems", done, total) after each problem.
        options: keywords of `hn.solve`, except `checkpoint`.

    Returns:
        A list with a `Solution` for each problem, or the `HeatnetsError` that it raised. A warning
        names the problems that failed.

    >>> from functools import partial
    >>> import jax.numpy as jnp, heatnets as hn
    >>> def call(x, strike):
    ...     return jnp.logaddexp(0.0, jnp.mean(x) - strike)
    >>> problems = [hn.Problem(3, 0.5, partial(call, strike=k)) for k in (-0.1, 0.0, 0.1)]
    >>> low, middle, high = hn.solve_many(problems, max_rounds=1)
    >>> bool(low(0.5, [0.0] * 3) > middle(0.5, [0.0] * 3) > high(0.5, [0.0] * 3))
    True
    """
    if isinstance(problems, Problem):
        raise InputError("`problems` must be a list of hn.Problem; got one. Call hn.solve for it.")
    chosen = list(problems)
    for name in options:
        if name not in (known := (*OPTIONS, *_EXECUTION)):
            raise InputError(f"`hn.solve_many` has no argument `{name}`: {suggest(name, known)}")
    make_context(options.get("device"), options.get("memory"), None, options.get("devices"))
    if "checkpoint" in options:
        raise InputError(
            "`checkpoint` is the file of one solve. Leave it out, or call hn.solve for each."
        )
    for i, problem in enumerate(chosen, 1):
        if not isinstance(problem, Problem):
            raise InputError(
                f"`problems` must be a list of hn.Problem; number {i} is {short_repr(problem)}."
            )
        try:
            make_options(problem, **{k: v for k, v in options.items() if k not in _EXECUTION})
        except InputError as error:
            raise InputError(f"problem {i} of {len(chosen)}: {error}") from None
    solutions, log = list[Solution | HeatnetsError](), WarningLog()
    for i, problem in enumerate(chosen, 1):
        name = f"problem {i} of {len(chosen)}"
        try:
            solutions.append(solve(problem, progress=_named(progress, name), **options))
        except HeatnetsError as error:
            solutions.append(error)
            log.warn(f"{name} failed: {error}")
        if progress is not None:
            progress("problems", i, len(chosen))
    return solutions


def _named(progress: Progress | None, name: str) -> Progress | None:
    """A progress callback that writes `name` before each phase."""
    if progress is None:
        return None

    def report(phase: str, done: int, total: int) -> None:
        text = f"{name}, {phase}"
        if isinstance(phase, Summary):
            text = Summary(text, phase.error)
        progress(text, done, total)

    return report
