"""Problems stated in files: TOML with formulas, which is only ever read, or Python, which is code and is run because the user named it."""

from __future__ import annotations

import inspect
import re
import runpy
import sys
import tomllib
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
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
    count,
    positive,
    short_repr,
    suggest,
)
from heatnets._core.execution import make_context
from heatnets._core.precision import with_x64
from heatnets.io.toml_schema import ErrorCollector, Reader
from heatnets.pde.problem import Problem
from heatnets.solution import check_asked
from heatnets.solvers.entry import solve
from heatnets.solvers.options import settings

LARGEST = 2**18  # bytes of a TOML file
_WIDEST = 10**7  # dimensions
_DATA = ("initial", "terminal", "source", "exact")
_KEYS = (
    *_DATA,
    "dim",
    "horizon",
    "diffusion",
    "drift",
    "reaction",
    "form",
    "steps",
    "region",
    "process",
    "problem",
    "parameters",
    "solve",
    "certify",
)
_CERTIFY = ("t", "x", "samples", "confidence", "halfwidth", "seed")
_LEFT_OUT = (
    "problem",
    "progress",
    "device",
    "checkpoint",
)  # of the keywords of hn.solve: not for a file
_DEFAULTS = {
    name: p.default
    for name, p in inspect.signature(solve).parameters.items()
    if name not in _LEFT_OUT
}
OPTIONS = list(_DEFAULTS)


class CertifyRequest(NamedTuple):
    """A point whose value is asked for with its interval, and keywords of `solution.certify`."""

    t: float
    x: np.ndarray
    options: dict[str, Any]


@dataclass(frozen=True)
class ProblemFile:
    """What a file states: the problem, keywords of `hn.solve`, points to be certified, and the words it was stated in."""

    problem: Problem
    options: dict[str, Any]
    points: list[CertifyRequest]
    words: list[tuple[str, str]]


def read(path: str | Path) -> ProblemFile:
    """The problem stated in a file: TOML (nothing is run), or Python (`.py`, which is run).

    >>> from pathlib import Path
    >>> import tempfile, heatnets as hn
    >>> file = Path(tempfile.mkdtemp()) / "heat.toml"
    >>> _ = file.write_text('dim = 3\\nhorizon = 0.5\\ninitial = "a * sum(sin(x))"\\n[parameters]\\na = 2.0\\n')
    >>> hn.read(file).problem
    Problem(dim=3, horizon=0.5, diffusion=1, region=Box(-1, 1), source=None)
    """
    file = Path(path)
    if file.suffix == ".py":
        return _python(file)
    try:
        with open(file, "rb") as stream:
            raw = stream.read(LARGEST + 1)
    except FileNotFoundError:
        raise InputError(
            f"there is no file {file}. `heatnets new NAME` writes one to begin with."
        ) from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}.") from None
    try:
        return from_toml(raw.decode(), str(file))
    except UnicodeDecodeError:
        raise InputError(
            f"{file} is not text in UTF-8. A problem is a TOML file, or a Python file whose name ends with .py."
        ) from None


@with_x64
def from_toml(text: str, name: str = "the problem") -> ProblemFile:
    """The problem that a TOML text states; all that is wrong with it in one `InputError`."""
    if len(text) > LARGEST:
        raise InputError(
            f"{name} has more than {LARGEST} bytes. State large data in a Python file."
        )
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        hint = (
            " Formulas are texts: write them in quotes."
            if isinstance(error, tomllib.TOMLDecodeError)
            else ""
        )
        raise InputError(f"{name} is not a TOML file: {str(error) or 'too deep'}.{hint}") from None
    wrong = ErrorCollector(name, text)
    wrong.known("", content, _KEYS)
    problem = _named(content, wrong) if "problem" in content else _stated(content, wrong)
    options = _options(_table(content, "solve", wrong), problem, wrong)
    points = _points(content, problem, wrong)
    wrong.stop()
    assert problem is not None
    words = [("equation", _equation(content))] if "problem" not in content else []
    words += [(key, _shown(value)) for key, value in content.items() if key != "certify"]
    return ProblemFile(problem.with_provenance({"toml": text}), options, points, words)


def _equation(content: Mapping[str, Any]) -> str:
    """The equation in symbols, with what the file gives it."""
    A = content.get("diffusion", 1.0)
    if "process" in content:
        terms = ["L u, L the generator of the process"]
    elif isinstance(A, str | list):
        terms = ["tr(A D²u)" if content.get("form") == "trace" else "div(A ∇u)"]
    else:
        terms = ["Δu" if A == 1 else f"{A:g} Δu"]
    terms += ["b·∇u"] if "drift" in content else []
    terms += ["c u"] if "reaction" in content else []
    terms += ["F"] if "source" in content else []
    right = " + ".join(terms)
    return (
        f"u_t + {right} = 0, u(T, x) given"
        if "terminal" in content
        else f"u_t = {right}, u(0, x) given"
    )


def _shown(value: Any) -> str:
    return (
        ", ".join(f"{k} = {_shown(v)}" for k, v in value.items())
        if isinstance(value, dict)
        else str(value)
    )


def _table(content: Mapping[str, Any], key: str, wrong: ErrorCollector) -> dict[str, Any]:
    found = content.get(key, {})
    if isinstance(found, dict):
        return found
    wrong.add(
        key, f"`{key}` must be a table: [{key}], and its entries below; got {short_repr(found)}."
    )
    return {}


def _named(content: Mapping[str, Any], wrong: ErrorCollector) -> Problem | None:
    """One of the package's own problems."""
    for key in (*_DATA, "diffusion", "drift", "reaction", "form", "steps", "region", "process"):
        if key in content:
            wrong.add(
                key, f"`{key}` and `problem` exclude each other: a named problem has its own."
            )
    given = {
        **{k: content[k] for k in ("dim", "horizon") if k in content},
        **_table(content, "parameters", wrong),
    }
    name = content["problem"]
    if name not in problems.names():
        wrong.add(
            "problem", f"unknown problem {short_repr(name)}; {suggest(str(name), problems.names())}"
        )
        return None
    return wrong.about("problem", lambda: problems.get(name, **given))


def _stated(content: Mapping[str, Any], wrong: ErrorCollector) -> Problem | None:
    """A problem of the user's own."""
    before = len(wrong.found)
    dim = wrong.about("dim", lambda: _dimension(content))
    horizon = wrong.about(
        "horizon", lambda: positive("horizon", content.get("horizon"), "It is the final time T.")
    )
    reader = Reader(dim or 1, horizon or 1.0, wrong)
    for name, value in _table(content, "parameters", wrong).items():
        reader.parameter(name, value)
    data: dict[str, Any] = {}
    for key in _DATA:
        if key in content:
            arguments = {"source": ("t", "x", "u", "du"), "exact": ("t", "x")}.get(key, ("x",))
            data[key] = reader.function(key, content[key], arguments)
    if ("initial" in content) == ("terminal" in content):
        came = "both" if "initial" in content else "neither"
        wrong.add(
            "initial",
            f"a problem needs `initial` (u at t = 0) or `terminal` (u at t = horizon); got {came}.",
        )
    for key in ("diffusion", "drift", "reaction"):
        if key in content:
            data[key] = reader.coefficient(key, content[key])
    data |= {key: content[key] for key in ("form", "steps") if key in content}
    if "region" in content:
        data["region"] = reader.region(content["region"])
    if "process" in content:
        data["process"] = reader.process(content["process"])
    if len(wrong.found) > before or dim is None or horizon is None:
        return None
    return wrong.about("problem", lambda: Problem(dim, horizon, **data))


def _dimension(content: Mapping[str, Any]) -> int:
    dim = count("dim", content.get("dim"), 1, "It is the number of space coordinates.")
    if dim > _WIDEST:
        raise InputError(f"`dim` must be at most {_WIDEST} in a file; got {dim}.")
    return dim


def _options(
    table: Mapping[str, Any], problem: Problem | None, wrong: ErrorCollector
) -> dict[str, Any]:
    """Keywords of hn.solve."""
    wrong.known("solve", table, OPTIONS)
    before = len(wrong.found)
    found = {}
    for key, value in table.items():
        if key == "memory" and isinstance(value, str):
            value = wrong.about("memory", partial(size_in_bytes, value))
        elif key == "train_region":
            reader = Reader(1, 1.0, wrong)
            value = reader.region(value)
        found[key] = tuple(value) if isinstance(value, list) else value
    if problem is not None and len(wrong.found) == before:
        wrong.about("solve", lambda: check_options(problem, found))
    return found


def check_options(problem: Problem, options: Mapping[str, Any]) -> None:
    """Refuse keywords of hn.solve that it would refuse, without solving."""
    names = [name for name in inspect.signature(settings).parameters if name != "problem"]
    settings(problem, **{name: options.get(name, _DEFAULTS.get(name)) for name in names})
    make_context(None, options.get("memory"))


_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def size_in_bytes(text: str) -> int:
    """Bytes from "4 GiB", "500M" or "1e9"."""
    match = re.fullmatch(
        r"\s*([0-9]+(?:\.[0-9]*)?(?:e[0-9]{1,2})?)\s*([kmgt]?)i?b?\s*", text.lower()
    )
    if match is None:
        raise InputError(
            f"`memory` must be a number of bytes, or a text like 4GiB or 500M; got {short_repr(text)}."
        )
    return int(float(match[1]) * _UNITS[match[2]])


def _points(
    content: Mapping[str, Any], problem: Problem | None, wrong: ErrorCollector
) -> list[CertifyRequest]:
    """The points of [[certify]] tables."""
    tables = content.get("certify", [])
    tables = [tables] if isinstance(tables, dict) else tables
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        wrong.add(
            "certify",
            f"`certify` must be tables: [[certify]], and t and x below; got {short_repr(tables)}.",
        )
        return []
    found = []
    for table in tables:
        wrong.known("certify", table, _CERTIFY)
        if problem is None:
            continue
        reader = Reader(problem.dim, problem.horizon, wrong)
        x = wrong.about("x", partial(reader.place, table.get("x", 0.0)))
        t = wrong.about(
            "t",
            partial(
                reader.constant, table.get("t", 0.0 if problem.is_terminal else problem.horizon)
            ),
        )
        options = {k: v for k, v in table.items() if k in _CERTIFY and k not in ("t", "x")}
        wrong.about("certify", partial(check_asked, **options))
        if (
            x is not None
            and t is not None
            and wrong.about("certify", partial(_one_point, problem, t, x)) is not None
        ):
            found.append(CertifyRequest(float(t), x, options))
    return found


def _one_point(problem: Problem, t: Any, x: np.ndarray) -> Any:
    if np.ndim(t):
        raise InputError("`t` must be one number; write a [[certify]] table for each point.")
    return problem.points(t, x)


def _python(file: Path) -> ProblemFile:
    """A Python file that defines `problem`, and may define `options` (keywords of hn.solve) and `points`, pairs (t, x)."""
    if not file.is_file():
        raise InputError(
            f"there is no file {file}. `heatnets new NAME.py` writes one to begin with."
        )
    sys.path.insert(0, str(file.parent))
    try:
        found = runpy.run_path(str(file), run_name="heatnets_problem")
    except HeatnetsError as error:
        plain = (
            type(error)
            if type(error) in (NotFiniteError, NumericalError, ResourceError, FileError)
            else InputError
        )
        raise plain(f"{_line(file, error)}: {error}") from error
    except (Exception, SystemExit) as error:
        raise InputError(f"{_line(file, error)}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(file.parent))
    problem, options, points = (
        found.get("problem"),
        found.get("options", {}),
        found.get("points", []),
    )
    if not isinstance(problem, Problem):
        raise InputError(
            f"{file} must define `problem`, a hn.Problem; it defines {short_repr(problem)}."
        )
    if not isinstance(options, dict) or (unknown := [k for k in options if k not in OPTIONS]):
        what = f"; {suggest(str(unknown[0]), OPTIONS)}" if isinstance(options, dict) else ""
        raise InputError(
            f"{file}: `options` must be a dict of keywords of hn.solve; got {short_repr(options)}{what}"
        )
    wanted = []
    for point in points:
        try:
            t, x = point
        except (TypeError, ValueError):
            raise InputError(
                f"{file}: `points` must be pairs (t, x); got {short_repr(point)}."
            ) from None
        times, places, single = problem.points(
            t, np.broadcast_to(x, (problem.dim,)) if np.ndim(x) == 0 else x
        )
        if not single:
            raise InputError(
                f"{file}: each of `points` is one time and one point; got {len(times)}. List them one by one."
            )
        wanted.append(CertifyRequest(float(times[0]), places[0].copy(), {}))
    return ProblemFile(problem, dict(options), wanted, [("problem", f"{file.name}: {problem!r}")])


def _line(file: Path, error: BaseException) -> str:
    """The last line of the user's file that led to an error."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file}:{error.lineno}"
    numbers = [
        transform.lineno
        for transform in traceback.extract_tb(error.__traceback__)
        if transform.filename == str(file)
    ]
    return f"{file}:{numbers[-1]}" if numbers else str(file)
