"""Problem files: TOML with formulas, or Python.

A TOML file is only parsed, never executed. A Python file is code of the user, and is executed.
"""

from __future__ import annotations

import re
import runpy
import sys
import tomllib
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heatnets import problems
from heatnets._core.errors import (
    FileError,
    HeatnetsError,
    InputError,
    NotFiniteError,
    NumericalError,
    ResourceError,
    check_int,
    check_positive,
    short_repr,
    suggest,
)
from heatnets._core.execution import make_context
from heatnets._core.precision import with_x64
from heatnets.certify.certified_network import check_certify_options
from heatnets.io.toml_keys import lift_misplaced, set_key
from heatnets.io.toml_schema import KEYS, PROBLEM_KEYS, PROCESS_TABLES, ErrorCollector, Reader
from heatnets.pde.problem import Problem
from heatnets.solvers.options import OPTIONS as SOLVE_OPTIONS
from heatnets.solvers.options import SolveOptions, make_options

LARGEST = 2**18  # bytes of a TOML file
_MAX_DIM = 10**7
_CERTIFY_OPTIONS = ("samples", "confidence", "halfwidth", "seed")
# Keywords of hn.solve that a file can set.
OPTIONS = ["memory", *(name for name in SOLVE_OPTIONS if name != "checkpoint")]


class CertifyRequest(NamedTuple):
    """A point (t, x) to certify, and keywords of `solution.certify`."""

    t: float
    x: np.ndarray
    options: dict[str, Any]


@dataclass(frozen=True)
class ProblemFile:
    """The content of a problem file.

    Args:
        problem: the problem.
        options: keywords of `hn.solve`.
        points: the points to certify.
        words: pairs (key, text) that describe the problem in reports.
    """

    problem: Problem
    options: dict[str, Any]
    points: list[CertifyRequest]
    words: list[tuple[str, str]]


def read(path: str | Path, changes: Mapping[str, Any] | None = None) -> ProblemFile:
    """Read a problem file: TOML (nothing is executed), or Python (`.py`, which is executed).

    Args:
        path: the file.
        changes: other values for keys of a TOML file: a name in [parameters], or a key like
            `horizon` or `process.volatility`.

    Returns:
        The problem (`.problem`), keywords of `hn.solve` (`.options`), the points to certify
        (`.points`), and a description (`.words`).

    >>> from pathlib import Path
    >>> import tempfile, heatnets as hn
    >>> file = Path(tempfile.mkdtemp()) / "heat.toml"
    >>> _ = file.write_text(
    ...     'dim = 3\\nhorizon = 0.5\\ninitial = "a * sum(sin(x))"\\n[parameters]\\na = 2.0\\n')
    >>> hn.read(file).problem
    Problem(dim=3, horizon=0.5, diffusion=1, region=Box(-1, 1), source=None)
    """
    file = Path(path)
    is_python = file.suffix == ".py"
    if not file.exists():
        name = "NAME.py" if is_python else "NAME"
        raise InputError(
            f"there is no file {file}. `heatnets new {name}` writes one to begin with."
        )
    if is_python and changes:
        raise InputError(f"{file} is Python: only values of a TOML file can be changed.")
    if is_python:
        return _run_python_file(file)
    try:
        with open(file, "rb") as stream:
            return from_toml(stream.read(LARGEST + 1).decode(), str(file), changes)
    except UnicodeDecodeError:
        raise InputError(
            f"{file} is not text in UTF-8. A problem is a TOML file, or a Python file whose name "
            "ends with .py."
        ) from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}.") from None


@with_x64
def from_toml(
    text: str, name: str = "the problem", changes: Mapping[str, Any] | None = None
) -> ProblemFile:
    """Read a problem from a TOML text; all errors are in one `InputError`.

    `changes` are other values for some of its keys; see `read`.
    """
    if len(text) > LARGEST:
        raise InputError(
            f"{name} has more than {LARGEST} bytes. State large data in a Python file."
        )
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = "Formulas are texts: write them in quotes. Numbers have a decimal point."
        if "twice" in str(error):
            hint = "Several points are several tables: [[certify]], in double brackets."
        raise InputError(f"{name} is not a TOML file: {error}. {hint}") from None
    except (RecursionError, ValueError) as error:
        raise InputError(f"{name} is not a TOML file: {error or 'too deep'}.") from None
    errors = ErrorCollector(name, text)
    tables = {"[solve]": OPTIONS, "[[certify]]": ("t", "x", *_CERTIFY_OPTIONS), **PROCESS_TABLES}
    lift_misplaced(content, tables, errors)
    for key, value in (changes or {}).items():
        set_key(content, key, value, name)
    errors.check_keys("", content, KEYS, tables)
    is_named = "problem" in content
    problem = (_named_problem if is_named else _user_problem)(content, errors)
    options = _read_options(_read_table(content, "solve", errors), problem, errors)
    points = _read_points(content, problem, errors)
    errors.raise_errors()
    assert problem is not None
    words = [] if is_named else [("equation", _equation_text(content))]
    words += [(key, _value_text(value)) for key, value in content.items() if key != "certify"]
    origin = {"toml": text, **({"set": dict(changes)} if changes else {})}
    return ProblemFile(problem.with_provenance(origin), options, points, words)


def _equation_text(content: Mapping[str, Any]) -> str:
    """The equation in symbols, with the terms that the file has."""
    A = content.get("diffusion", 1.0)
    if "process" in content:
        terms = ["L u, L the generator of the process"]
    elif isinstance(A, str | list):
        terms = ["tr(A D²u)" if content.get("form") == "trace" else "div(A ∇u)"]
    else:
        terms = ["Δu" if A == 1 else f"{A:g} Δu"]
    symbols = {"drift": "b·∇u", "reaction": "c u", "source": "F"}
    right = " + ".join([*terms, *(text for key, text in symbols.items() if key in content)])
    if "terminal" in content:
        return f"u_t + {right} = 0, u(T, x) given"
    return f"u_t = {right}, u(0, x) given"


def _value_text(value: Any) -> str:
    """A TOML value as text for reports."""
    if isinstance(value, dict):
        return ", ".join(f"{k} = {_value_text(v)}" for k, v in value.items())
    return str(value)


def _read_table(content: Mapping[str, Any], key: str, errors: ErrorCollector) -> dict[str, Any]:
    """The table `key` of the file; empty if there is none."""
    table = content.get(key, {})
    if isinstance(table, dict):
        return table
    errors.add(
        key, f"`{key}` must be a table: [{key}], and its entries below; got {short_repr(table)}."
    )
    return {}


def _named_problem(content: Mapping[str, Any], errors: ErrorCollector) -> Problem | None:
    """A problem of `heatnets.problems`, by its name and parameters."""
    for key in PROBLEM_KEYS:
        if key in content:
            errors.add(
                key, f"`{key}` and `problem` exclude each other: a named problem has its own."
            )
    parameters = {k: content[k] for k in ("dim", "horizon") if k in content}
    parameters |= _read_table(content, "parameters", errors)
    name = content["problem"]
    if name not in problems.names():
        errors.add(
            "problem", f"unknown problem {short_repr(name)}; {suggest(str(name), problems.names())}"
        )
        return None
    return errors.attempt("problem", problems.get, name, **parameters)


def _user_problem(content: Mapping[str, Any], errors: ErrorCollector) -> Problem | None:
    """A problem with the data and coefficients of the file."""
    earlier_errors = len(errors.messages)
    dim = errors.attempt("dim", _check_dim, content.get("dim"))
    hint = "It is the final time T."
    horizon = errors.attempt("horizon", check_positive, "horizon", content.get("horizon"), hint)
    reader = Reader(dim or 1, horizon or 1.0)
    for name, value in _read_table(content, "parameters", errors).items():
        number = errors.attempt(name, reader.parameter, name, value)
        reader.names.setdefault(name, 0.0 if number is None else number)
    data = {
        key: errors.attempt(key, read_value, reader, content[key])
        for key, read_value in PROBLEM_KEYS.items()
        if key in content
    }
    if ("initial" in content) == ("terminal" in content):
        count = "both" if "initial" in content else "neither"
        errors.add(
            "initial",
            "a problem needs `initial` (u at t = 0) or `terminal` (u at t = horizon); "
            f"got {count}.",
        )
    if len(errors.messages) > earlier_errors:
        return None
    return errors.attempt("problem", Problem, dim, horizon, **data)


def _check_dim(value: Any) -> int:
    dim = check_int("dim", value, 1, "It is the number of space coordinates.")
    if dim > _MAX_DIM:
        raise InputError(f"`dim` must be at most {_MAX_DIM} in a file; got {dim}.")
    return dim


def _read_options(
    table: Mapping[str, Any], problem: Problem | None, errors: ErrorCollector
) -> dict[str, Any]:
    """Keywords of `hn.solve` from the table [solve]."""
    earlier_errors = len(errors.messages)
    errors.check_keys("solve", table, OPTIONS)
    options = {}
    for key, value in table.items():
        if key == "memory" and isinstance(value, str):
            value = errors.attempt(key, size_in_bytes, value)
        elif key == "train_region":
            value = errors.attempt(key, Reader().region, value)
        options[key] = tuple(value) if isinstance(value, list) else value
    if problem is not None and len(errors.messages) == earlier_errors:
        errors.attempt("solve", check_options, problem, options)
    return options


def check_options(problem: Problem, options: Mapping[str, Any]) -> SolveOptions:
    """Raise the errors that `hn.solve` raises for these keywords, without solving.

    Returns:
        The checked options.
    """
    execution = ("device", "memory")
    checked = make_options(problem, **{k: v for k, v in options.items() if k not in execution})
    make_context(*(options.get(name) for name in execution))
    return checked


_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def size_in_bytes(text: str) -> int:
    """Convert a text like "4 GiB", "500M" or "1e9" to bytes."""
    match = re.fullmatch(
        r"\s*([0-9]+(?:\.[0-9]*)?(?:e[0-9]{1,2})?)\s*([kmgt]?)i?b?\s*", text.lower()
    )
    if match is None:
        raise InputError(
            "`memory` must be a number of bytes, or a text like 4GiB or 500M; "
            f"got {short_repr(text)}."
        )
    return int(float(match[1]) * _UNITS[match[2]])


def _read_points(
    content: Mapping[str, Any], problem: Problem | None, errors: ErrorCollector
) -> list[CertifyRequest]:
    """The points of [[certify]] tables."""
    tables = content.get("certify", [])
    tables = [tables] if isinstance(tables, dict) else tables
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        errors.add(
            "certify",
            f"`certify` must be tables: [[certify]], and t and x below; got {short_repr(tables)}.",
        )
        return []
    requests = []
    for table in tables:
        errors.check_keys("certify", table, ("t", "x", *_CERTIFY_OPTIONS))
        if problem is None:
            continue
        reader = Reader(problem.dim, problem.horizon)
        default_t = 0.0 if problem.is_terminal else problem.horizon
        x = errors.attempt("x", reader.point, table.get("x", 0.0))
        t = errors.attempt("t", reader.constant, table.get("t", default_t))
        options = {name: table[name] for name in _CERTIFY_OPTIONS if name in table}
        errors.attempt("certify", check_certify_options, **options)
        if x is not None and t is not None:
            requests.append(errors.attempt("certify", _make_request, problem, t, x, options))
    return requests


def _make_request(problem: Problem, t: Any, x: Any, options: dict[str, Any]) -> CertifyRequest:
    """A request to certify one point; one number x stands for all coordinates."""
    x = np.full(problem.dim, x) if np.ndim(x) == 0 else x
    times, points, single = problem.as_points(t, x)
    if not single:
        raise InputError(
            f"a point to certify is one `t` and one `x`; got {len(times)}. List them one by one."
        )
    return CertifyRequest(float(times[0]), points[0].copy(), options)


def _run_python_file(file: Path) -> ProblemFile:
    """Run a Python file and read its variables.

    It defines `problem`, and may define `options` (keywords of hn.solve) and `points` (pairs t, x).
    """
    sys.path.insert(0, str(file.parent))
    try:
        variables = runpy.run_path(str(file), run_name="heatnets_problem")
    except (Exception, SystemExit) as error:
        message = str(error)
        if not isinstance(error, HeatnetsError):
            message = f"{type(error).__name__}: {error}"
        # Keep the class of the error if it can be made from a message; the exit code depends on it.
        known = (NotFiniteError, NumericalError, ResourceError, FileError)
        error_class = type(error) if type(error) in known else InputError
        raise error_class(f"{_error_line(file, error)}: {message}") from error
    finally:
        sys.path.remove(str(file.parent))
    problem, options = variables.get("problem"), variables.get("options", {})
    points = variables.get("points", [])
    if not isinstance(problem, Problem):
        raise InputError(
            f"{file} must define `problem`, a hn.Problem; it defines {short_repr(problem)}."
        )
    if not isinstance(options, dict) or (unknown := [k for k in options if k not in OPTIONS]):
        hint = f"; {suggest(str(unknown[0]), OPTIONS)}" if isinstance(options, dict) else ""
        raise InputError(
            f"{file}: `options` must be a dict of keywords of hn.solve; "
            f"got {short_repr(options)}{hint}"
        )
    requests = []
    for point in points:
        try:
            t, x = point
        except (TypeError, ValueError):
            raise InputError(
                f"{file}: `points` must be pairs (t, x); got {short_repr(point)}."
            ) from None
        requests.append(_make_request(problem, t, x, {}))
    return ProblemFile(problem, dict(options), requests, [("problem", f"{file.name}: {problem!r}")])


def _error_line(file: Path, error: BaseException) -> str:
    """FILE:LINE with the last line of the file in the traceback of an error."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file}:{error.lineno}"
    numbers = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(file)
    ]
    return f"{file}:{numbers[-1]}" if numbers else str(file)
