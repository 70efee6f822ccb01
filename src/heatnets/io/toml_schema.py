"""TOML schema of problem files: readers for formulas, numbers, regions and processes.

All errors of a file are collected and raised in one exception.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from heatnets._core.errors import InputError, NotFiniteError, short_repr, suggest
from heatnets.io.formulas import Formula
from heatnets.io.toml_words import in_toml_words
from heatnets.pde.diffusion import make_diffusion
from heatnets.pde.function import Function
from heatnets.pde.problem import explain_unknown
from heatnets.pde.processes import GeometricBrownian, OrnsteinUhlenbeck, Process
from heatnets.pde.regions import Box, Normal, Point, Region

_MAX_ERRORS = 20  # errors that are reported
_PROCESSES: dict[str, type[Process]] = {
    "geometric_brownian": GeometricBrownian,
    "ornstein_uhlenbeck": OrnsteinUhlenbeck,
}


PROCESS_TABLES = {
    f"[process.{name}]": list(inspect.signature(kind).parameters)
    for name, kind in _PROCESSES.items()
}


class ErrorCollector:
    """The errors of one file with their lines, to be raised together."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.messages, self.lines = name, list[tuple[int, str]](), dict[str, int]()
        # The line of the first occurrence of each key, as `key =`, `[key]` or `key.`.
        for number, line in enumerate(text.splitlines(), 1):
            if match := re.match(r"\s*\[*\s*(?:[\w-]+\.)*\"?([\w-]+)\"?\s*[=\].]", line):
                self.lines.setdefault(match[1], number)

    def add(self, key: str, message: str) -> None:
        """Add an error about a key of the file."""
        line = self.lines.get(key.rsplit(".", 1)[-1])
        place = f"line {line}" if line else "whole file"
        self.messages.append((line or 10**9, f"{place}: {message}"))

    def attempt(self, key: str, function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        """Call a function; if it raises an error about its input, add the error, return None."""
        try:
            return function(*args, **named)
        except NotFiniteError as error:  # an error of the functions, not of the file
            raise NotFiniteError(f"{self.name}: {in_toml_words(str(error))}") from error
        except (ArithmeticError, ValueError, TypeError, MemoryError) as error:
            message, subject = in_toml_words(str(error)) or type(error).__name__, None
            if isinstance(error, InputError):
                default = key if f"`{key}`" in message else None
                names = re.findall(r"`(\w+)`", message)
                subject = next((name for name in names if name in self.lines), default)
            else:
                message = message.splitlines()[0]
            self.add(subject or key, message if subject else f"`{key}`: {message}")

    def check_keys(
        self,
        key: str,
        table: Mapping[str, Any],
        names: Any,
        elsewhere: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        """Add an error for each entry of the table `key` that is not in `names`.

        `elsewhere` are the keys of other tables, which may have been meant.
        """
        where, explain = (f" in [{key}]", suggest) if key else ("", explain_unknown)
        for name in table:
            if name in names or len(self.messages) >= _MAX_ERRORS:
                continue
            homes = [home for home, keys in (elsewhere or {}).items() if name in keys]
            hint = f"it belongs below {homes[0]}." if homes else explain(name, names)
            if not (key or homes) and len(name) < 3 and isinstance(table[name], int | float):
                hint += " A parameter of a formula stands below [parameters]."
            self.add(name, f"unknown key `{name[:60]}`{where}; {hint}")

    def raise_errors(self) -> None:
        """Raise `InputError` with all messages in the order of lines, if there are any."""
        messages = sorted(self.messages)[:_MAX_ERRORS]
        if not messages:
            return
        or_more = " or more" if len(messages) == _MAX_ERRORS else ""
        number = "one error" if len(messages) == 1 else f"{len(messages)} errors{or_more}"
        lines = [f"  {message}".replace("\n", "\n  ") for _, message in messages]
        raise InputError("\n".join([f"{self.name}: {number}, nothing was run", *lines]))


def _single_entry(value: Any) -> tuple[str, Any]:
    """Name and content of a table with one entry; ("", None) for anything else."""
    is_single = isinstance(value, dict) and len(value) == 1
    return next(iter(value.items())) if is_single else ("", None)


class Reader:
    """Converts TOML values; a value that is wrong raises `InputError`.

    Formulas may use d, T, i = (1, ..., d), and the parameters of the file.
    """

    def __init__(self, dim: int = 1, horizon: float = 1.0) -> None:
        self.dim = dim
        self.names: dict[str, Any] = {"d": float(dim), "T": horizon, "i": np.arange(1.0, dim + 1)}

    def parameter(self, name: str, value: Any) -> Any:
        """The value of a parameter, if formulas can use its name."""
        reserved = ("t", "x", "u", "du", *self.names)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name) or name in reserved:
            raise InputError(
                f"`{name[:40]}` cannot name a parameter: letters and digits, and not t, x, u, du, "
                "d, T or i."
            )
        return self.constant(value)

    def constant(self, value: Any) -> Any:
        """A float or an array from a number, a list of numbers, or a formula without t and x."""
        if isinstance(value, str):
            value = Formula(value, (), self.names)()
        elif isinstance(value, bool) or not isinstance(value, int | float | list):
            raise InputError(
                "a number, a list of numbers or a formula in quotes is wanted; "
                f"got {short_repr(value)}."
            )
        try:
            array = np.asarray(value, np.float64)
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"a list must hold numbers, rows of one length; got {short_repr(value)}."
            ) from None
        if not np.all(np.isfinite(array)):
            raise InputError("every number must be finite.")
        return float(array) if array.ndim == 0 else array

    def function(self, value: Any, arguments: tuple[str, ...]) -> Function:
        """A formula as a function of `arguments`.

        A source has as many of the arguments t, x, u, du as its formula uses, but at least t, x.
        """
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        formula = Formula(str(value) if is_number else value, arguments, self.names)
        used = [k + 1 for k, name in enumerate(arguments) if name in formula.names]
        formula.arguments = arguments[: max([2, *used])]
        return Function(formula, arguments=" ".join(formula.arguments))

    def coefficient(self, value: Any) -> Any:
        """A coefficient: a function of (t, x) if its formula uses t or x, else a constant."""
        if isinstance(value, str):
            formula = Formula(value, ("t", "x"), self.names)
            if formula.names & {"t", "x"}:
                return Function(formula, arguments="t x")
        return self.constant(value)

    def diffusion(self, value: Any) -> Any:
        """The diffusion; a constant must be positive definite."""
        coefficient = self.coefficient(value)
        if not callable(coefficient):
            make_diffusion(coefficient, self.dim)
        return coefficient

    def point(self, value: Any) -> np.ndarray:
        """A point, shape (dim,), from one number for all coordinates, a list, or a formula."""
        array = np.asarray(self.constant(value))
        if array.shape not in ((), (self.dim,)):
            raise InputError(
                f"a point is one number for all coordinates, or {self.dim} of them; "
                f"got {array.size}."
            )
        return np.broadcast_to(array, (self.dim,)).copy()

    def region(self, value: Any) -> Region:
        """A box, a point or a normal distribution from a table with one entry."""
        match _single_entry(value):
            case "point", point:
                return Point(self.point(point))
            case "box", [low, high]:
                return Box(self.constant(low), self.constant(high))
            case "normal", dict(law) if set(law) <= {"mean", "std"}:
                return Normal(**{name: self.constant(v) for name, v in law.items()})
        raise InputError(
            "write region = { box = [-1, 1] }, { point = 0 } or { normal = { mean = 0, std = 1 } } "
            f"with numbers, lists or formulas; got {short_repr(value)}."
        )

    def process(self, value: Any) -> Process:
        """A stochastic process from a table [process.NAME] with its parameters."""
        kind, parameters = _single_entry(value)
        if not isinstance(parameters, dict):
            raise InputError(
                "write [process.geometric_brownian] or [process.ornstein_uhlenbeck], "
                f"and its parameters below; got {short_repr(value)}."
            )
        if kind not in _PROCESSES:
            raise InputError(f"unknown process {kind!r}; {suggest(kind, _PROCESSES)}")
        names = inspect.signature(_PROCESSES[kind]).parameters
        if unknown := [k for k in parameters if k not in names]:
            raise InputError(f"unknown key `{unknown[0]}` of {kind}; {suggest(unknown[0], names)}")
        return _PROCESSES[kind](**{k: self.constant(v) for k, v in parameters.items()})

    def verbatim(self, value: Any) -> Any:
        """The value itself, which `Problem` checks."""
        return value


# Keys of a problem with data of its own, and how their values are read.
PROBLEM_KEYS: dict[str, Callable[[Reader, Any], Any]] = {
    "initial": partial(Reader.function, arguments=("x",)),
    "terminal": partial(Reader.function, arguments=("x",)),
    "source": partial(Reader.function, arguments=("t", "x", "u", "du")),
    "exact": partial(Reader.function, arguments=("t", "x")),
    "diffusion": Reader.diffusion,
    "drift": Reader.coefficient,
    "reaction": Reader.coefficient,
    "form": Reader.verbatim,
    "steps": Reader.verbatim,
    "region": Reader.region,
    "process": Reader.process,
}

KEYS = (*PROBLEM_KEYS, "dim", "horizon", "problem", "parameters", "solve", "certify")
