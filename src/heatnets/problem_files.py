"""Problems stated in files: TOML with formulas, which is only ever read, or Python, which is code and is run because the user named it."""

from __future__ import annotations

import inspect
import re
import runpy
import sys
import tomllib
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heatnets import problems
from heatnets.diffusions import diffusion
from heatnets.errors import (
    FileError,
    HeatnetsError,
    InputError,
    NotFiniteError,
    NumericalError,
    ResourceError,
    count,
    describe,
    nearest,
    positive,
)
from heatnets.formulas import Formula
from heatnets.function import Function
from heatnets.precision import in_double
from heatnets.problem import Problem
from heatnets.processes import GeometricBrownian, OrnsteinUhlenbeck, Process
from heatnets.regions import Box, Normal, Point, Region
from heatnets.settings import settings
from heatnets.solution import check_asked
from heatnets.solving import solve
from heatnets.tiles import workshop

LARGEST = 2**18  # bytes of a TOML file
_MOST = 20  # errors that are told
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
_PROCESSES: dict[str, type[Process]] = {"geometric_brownian": GeometricBrownian, "ornstein_uhlenbeck": OrnsteinUhlenbeck}
_LEFT_OUT = ("problem", "progress", "device", "checkpoint")  # of the keywords of hn.solve: not for a file
_DEFAULTS = {name: p.default for name, p in inspect.signature(solve).parameters.items() if name not in _LEFT_OUT}
OPTIONS = list(_DEFAULTS)


class Wanted(NamedTuple):
    """A point whose value is asked for with its interval, and keywords of `solution.certify`."""

    t: float
    x: np.ndarray
    options: dict[str, Any]


@dataclass(frozen=True)
class Statement:
    """What a file states: the problem, keywords of `hn.solve`, points to be certified, and the words it was stated in."""

    problem: Problem
    options: dict[str, Any]
    points: list[Wanted]
    words: list[tuple[str, str]]


def read(path: str | Path) -> Statement:
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
        raise InputError(f"there is no file {file}. `heatnets new NAME` writes one to begin with.") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}.") from None
    try:
        return from_toml(raw.decode(), str(file))
    except UnicodeDecodeError:
        raise InputError(
            f"{file} is not text in UTF-8. A problem is a TOML file, or a Python file whose name ends with .py."
        ) from None


class _Complaints:
    """Everything that is wrong with a file, each with its line, to be said at once."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.found, self.lines = name, list[tuple[int, str]](), dict[str, int]()
        for number, line in enumerate(text.splitlines(), 1):
            if match := re.match(r"\s*\[*\s*(?:[\w-]+\.)*\"?([\w-]+)\"?\s*[=\].]", line):
                self.lines.setdefault(match[1], number)

    def add(self, key: str, words: str) -> None:
        line = self.lines.get(key.rsplit(".", 1)[-1])
        if len(self.found) < _MOST:
            self.found.append((line or 10**9, f"{f'line {line}' if line else 'whole file'}: {words}"))

    def about(self, key: str, make: Callable[[], Any]) -> Any:
        """What `make` returns; None, and a complaint, where it refuses."""
        try:
            return make()
        except NotFiniteError as error:  # of the numbers, not of the file
            raise NotFiniteError(f"{self.name}: {error}") from error
        except InputError as error:
            words = str(error)
            named = next((name for name in re.findall(r"`(\w+)`", words) if name in self.lines), None)
            self.add(named or key, words if named or f"`{key}`" in words else f"`{key}`: {words}")
            return None
        except (ArithmeticError, ValueError, TypeError, MemoryError) as error:
            self.add(key, f"`{key}`: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
            return None

    def known(self, key: str, table: Mapping[str, Any], names: Any) -> None:
        for name in table:
            if name not in names and len(self.found) < _MOST:
                self.add(str(name), f"unknown key `{str(name)[:60]}`{f' in [{key}]' if key else ''}; {nearest(str(name), names)}")

    def stop(self) -> None:
        if self.found:
            count = len(self.found)
            lines = "\n".join(f"  {words}".replace("\n", "\n  ") for _, words in sorted(self.found))
            many = "one error" if count == 1 else f"{count} errors{' or more' if count == _MOST else ''}"
            raise InputError(f"{self.name}: {many}, nothing was run\n{lines}")


@in_double
def from_toml(text: str, name: str = "the problem") -> Statement:
    """The problem that a TOML text states; all that is wrong with it in one `InputError`."""
    if len(text) > LARGEST:
        raise InputError(f"{name} has more than {LARGEST} bytes. State large data in a Python file.")
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        hint = " Formulas are texts: write them in quotes." if isinstance(error, tomllib.TOMLDecodeError) else ""
        raise InputError(f"{name} is not a TOML file: {str(error) or 'too deep'}.{hint}") from None
    wrong = _Complaints(name, text)
    wrong.known("", content, _KEYS)
    problem = _named(content, wrong) if "problem" in content else _stated(content, wrong)
    options = _options(_table(content, "solve", wrong), problem, wrong)
    points = _points(content, problem, wrong)
    wrong.stop()
    assert problem is not None
    words = [("equation", _equation(content))] if "problem" not in content else []
    words += [(key, _shown(value)) for key, value in content.items() if key != "certify"]
    return Statement(problem.but(origin={"toml": text}), options, points, words)


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
    return f"u_t + {right} = 0, u(T, x) given" if "terminal" in content else f"u_t = {right}, u(0, x) given"


def _shown(value: Any) -> str:
    return ", ".join(f"{k} = {_shown(v)}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def _table(content: Mapping[str, Any], key: str, wrong: _Complaints) -> dict[str, Any]:
    found = content.get(key, {})
    if isinstance(found, dict):
        return found
    wrong.add(key, f"`{key}` must be a table: [{key}], and its entries below; got {describe(found)}.")
    return {}


def _named(content: Mapping[str, Any], wrong: _Complaints) -> Problem | None:
    """One of the package's own problems."""
    for key in (*_DATA, "diffusion", "drift", "reaction", "form", "steps", "region", "process"):
        if key in content:
            wrong.add(key, f"`{key}` and `problem` exclude each other: a named problem has its own.")
    given = {**{k: content[k] for k in ("dim", "horizon") if k in content}, **_table(content, "parameters", wrong)}
    name = content["problem"]
    if name not in problems.names():
        wrong.add("problem", f"unknown problem {describe(name)}; {nearest(str(name), problems.names())}")
        return None
    return wrong.about("problem", lambda: problems.get(name, **given))


def _stated(content: Mapping[str, Any], wrong: _Complaints) -> Problem | None:
    """A problem of the user's own."""
    before = len(wrong.found)
    dim = wrong.about("dim", lambda: _dimension(content))
    horizon = wrong.about("horizon", lambda: positive("horizon", content.get("horizon"), "It is the final time T."))
    reader = _Reader(dim or 1, horizon or 1.0, wrong)
    for name, value in _table(content, "parameters", wrong).items():
        reader.parameter(name, value)
    data: dict[str, Any] = {}
    for key in _DATA:
        if key in content:
            arguments = {"source": ("t", "x", "u", "du"), "exact": ("t", "x")}.get(key, ("x",))
            data[key] = reader.function(key, content[key], arguments)
    if ("initial" in content) == ("terminal" in content):
        came = "both" if "initial" in content else "neither"
        wrong.add("initial", f"a problem needs `initial` (u at t = 0) or `terminal` (u at t = horizon); got {came}.")
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


class _Reader:
    """Formulas and numbers of one file, in the names that are known there: d, T, i = (1, ..., d), and its parameters."""

    def __init__(self, dim: int, horizon: float, wrong: _Complaints) -> None:
        self.dim, self.wrong = dim, wrong
        self.names: dict[str, Any] = {"d": float(dim), "T": horizon, "i": np.arange(1.0, dim + 1)}

    def parameter(self, name: str, value: Any) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name) or name in ("t", "x", "u", "du", *self.names):
            self.wrong.add(name, f"`{name[:40]}` cannot name a parameter: letters and digits, and not t, x, u, du, d, T or i.")
            return
        found = self.wrong.about(name, lambda: self.constant(value))
        self.names[name] = 0.0 if found is None else found

    def constant(self, value: Any) -> Any:
        """A number, an array of numbers, or what a formula without t and x gives."""
        if isinstance(value, str):
            found = np.asarray(Formula(value, (), self.names)())
        elif isinstance(value, bool) or not isinstance(value, int | float | list):
            raise InputError(f"a number, a list of numbers or a formula in quotes is wanted; got {describe(value)}.")
        else:
            try:
                found = np.asarray(value, np.float64)
            except (TypeError, ValueError, OverflowError):
                raise InputError(f"a list must hold numbers, rows of one length; got {describe(value)}.") from None
        if not np.all(np.isfinite(found)):
            raise InputError("every number must be finite.")
        return float(found) if found.ndim == 0 else found

    def function(self, key: str, value: Any, arguments: tuple[str, ...]) -> Function | None:
        """A formula as a function; a source is one of as many of t, x, u, du as it names."""

        def make() -> Function:
            formula = Formula(
                str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value, arguments, self.names
            )
            used = arguments
            if len(arguments) > 2:
                used = arguments[: 4 if "du" in formula.names else 3 if "u" in formula.names else 2]
                formula = Formula(formula.text, used, self.names)
            return Function(formula, arguments=" ".join(used))

        return self.wrong.about(key, make)

    def coefficient(self, key: str, value: Any) -> Any:
        def make() -> Any:
            if not isinstance(value, str):
                return self.constant(value)
            formula = Formula(value, ("t", "x"), self.names)
            return Function(formula, arguments="t x") if formula.names & {"t", "x"} else self.constant(value)

        found = self.wrong.about(key, make)
        if key == "diffusion" and found is not None and not callable(found):
            self.wrong.about(key, lambda: diffusion(found, self.dim))
        return found

    def region(self, value: Any) -> Region | None:
        def make() -> Region:
            kinds = ("box", "point", "normal")
            if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in kinds:
                raise InputError(
                    f"write region = {{ box = [-1, 1] }}, {{ point = 0 }} or {{ normal = {{ mean = 0, std = 1 }} }}; got {describe(value)}."
                )
            ((kind, given),) = value.items()
            if kind == "point":
                return Point(self.place(given))
            if kind == "normal":
                if not isinstance(given, dict) or set(given) - {"mean", "std"}:
                    raise InputError(f"write normal = {{ mean = 0, std = 1 }}; got {describe(given)}.")
                return Normal(**{k: self.constant(v) for k, v in given.items()})
            if not isinstance(given, list) or len(given) != 2:
                raise InputError(
                    f"write box = [low, high], each one number, a list of {self.dim} or a formula; got {describe(given)}."
                )
            return Box(*(self.constant(bound) for bound in given))

        return self.wrong.about("region", make)

    def place(self, value: Any) -> np.ndarray:
        """A point: one number for all coordinates, a list of them, or a formula."""
        found = np.asarray(self.constant(value))
        if found.shape not in ((), (self.dim,)):
            raise InputError(f"a point is one number for all coordinates, or {self.dim} of them; got {found.size}.")
        return np.broadcast_to(found, (self.dim,)).copy()

    def process(self, value: Any) -> Process | None:
        def make() -> Process:
            if not isinstance(value, dict) or len(value) != 1 or not isinstance(next(iter(value.values())), dict):
                raise InputError(
                    f"write [process.geometric_brownian] or [process.ornstein_uhlenbeck], and its parameters below; got {describe(value)}."
                )
            ((kind, given),) = value.items()
            if kind not in _PROCESSES:
                raise InputError(f"unknown process {kind!r}; {nearest(kind, _PROCESSES)}")
            taken = list(inspect.signature(_PROCESSES[kind]).parameters)
            if unknown := [k for k in given if k not in taken]:
                raise InputError(f"unknown key `{unknown[0]}` of {kind}; {nearest(unknown[0], taken)}")
            return _PROCESSES[kind](**{k: self.constant(v) for k, v in given.items()})

        return self.wrong.about("process", make)


def _options(table: Mapping[str, Any], problem: Problem | None, wrong: _Complaints) -> dict[str, Any]:
    """Keywords of hn.solve."""
    wrong.known("solve", table, OPTIONS)
    before = len(wrong.found)
    found = {}
    for key, value in table.items():
        if key == "memory" and isinstance(value, str):
            value = wrong.about("memory", partial(size_in_bytes, value))
        elif key == "train_region":
            reader = _Reader(1, 1.0, wrong)
            value = reader.region(value)
        found[key] = tuple(value) if isinstance(value, list) else value
    if problem is not None and len(wrong.found) == before:
        wrong.about("solve", lambda: check_options(problem, found))
    return found


def check_options(problem: Problem, options: Mapping[str, Any]) -> None:
    """Refuse keywords of hn.solve that it would refuse, without solving."""
    names = [name for name in inspect.signature(settings).parameters if name != "problem"]
    settings(problem, **{name: options.get(name, _DEFAULTS.get(name)) for name in names})
    workshop(None, options.get("memory"))


_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def size_in_bytes(text: str) -> int:
    """Bytes from "4 GiB", "500M" or "1e9"."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?(?:e[0-9]{1,2})?)\s*([kmgt]?)i?b?\s*", text.lower())
    if match is None:
        raise InputError(f"`memory` must be a number of bytes, or a text like 4GiB or 500M; got {describe(text)}.")
    return int(float(match[1]) * _UNITS[match[2]])


def _points(content: Mapping[str, Any], problem: Problem | None, wrong: _Complaints) -> list[Wanted]:
    """The points of [[certify]] tables."""
    tables = content.get("certify", [])
    tables = [tables] if isinstance(tables, dict) else tables
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        wrong.add("certify", f"`certify` must be tables: [[certify]], and t and x below; got {describe(tables)}.")
        return []
    found = []
    for table in tables:
        wrong.known("certify", table, _CERTIFY)
        if problem is None:
            continue
        reader = _Reader(problem.dim, problem.horizon, wrong)
        x = wrong.about("x", partial(reader.place, table.get("x", 0.0)))
        t = wrong.about("t", partial(reader.constant, table.get("t", 0.0 if problem.backward else problem.horizon)))
        options = {k: v for k, v in table.items() if k in _CERTIFY and k not in ("t", "x")}
        wrong.about("certify", partial(check_asked, **options))
        if x is not None and t is not None and wrong.about("certify", partial(_one_point, problem, t, x)) is not None:
            found.append(Wanted(float(t), x, options))
    return found


def _one_point(problem: Problem, t: Any, x: np.ndarray) -> Any:
    if np.ndim(t):
        raise InputError("`t` must be one number; write a [[certify]] table for each point.")
    return problem.points(t, x)


def _python(file: Path) -> Statement:
    """A Python file that defines `problem`, and may define `options` (keywords of hn.solve) and `points`, pairs (t, x)."""
    if not file.is_file():
        raise InputError(f"there is no file {file}. `heatnets new NAME.py` writes one to begin with.")
    sys.path.insert(0, str(file.parent))
    try:
        found = runpy.run_path(str(file), run_name="heatnets_problem")
    except HeatnetsError as error:
        plain = type(error) if type(error) in (NotFiniteError, NumericalError, ResourceError, FileError) else InputError
        raise plain(f"{_line(file, error)}: {error}") from error
    except (Exception, SystemExit) as error:
        raise InputError(f"{_line(file, error)}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(file.parent))
    problem, options, points = found.get("problem"), found.get("options", {}), found.get("points", [])
    if not isinstance(problem, Problem):
        raise InputError(f"{file} must define `problem`, a hn.Problem; it defines {describe(problem)}.")
    if not isinstance(options, dict) or (unknown := [k for k in options if k not in OPTIONS]):
        what = f"; {nearest(str(unknown[0]), OPTIONS)}" if isinstance(options, dict) else ""
        raise InputError(f"{file}: `options` must be a dict of keywords of hn.solve; got {describe(options)}{what}")
    wanted = []
    for point in points:
        try:
            t, x = point
        except (TypeError, ValueError):
            raise InputError(f"{file}: `points` must be pairs (t, x); got {describe(point)}.") from None
        times, places, single = problem.points(t, np.broadcast_to(x, (problem.dim,)) if np.ndim(x) == 0 else x)
        if not single:
            raise InputError(f"{file}: each of `points` is one time and one point; got {len(times)}. List them one by one.")
        wanted.append(Wanted(float(times[0]), places[0].copy(), {}))
    return Statement(problem, dict(options), wanted, [("problem", f"{file.name}: {problem!r}")])


def _line(file: Path, error: BaseException) -> str:
    """The last line of the user's file that led to an error."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file}:{error.lineno}"
    numbers = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"{file}:{numbers[-1]}" if numbers else str(file)
