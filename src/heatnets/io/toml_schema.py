"""TOML schema of problem files: readers for formulas, numbers, regions and processes.

All errors of a file are collected and raised in one exception.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from heatnets._core.errors import InputError, NotFiniteError, short_repr, suggest
from heatnets.io.formulas import Formula
from heatnets.pde.diffusion import diffusion
from heatnets.pde.function import Function
from heatnets.pde.processes import GeometricBrownian, OrnsteinUhlenbeck, Process
from heatnets.pde.regions import Box, Normal, Point, Region

_MAX_ERRORS = 20  # errors that are reported
_PROCESSES: dict[str, type[Process]] = {
    "geometric_brownian": GeometricBrownian,
    "ornstein_uhlenbeck": OrnsteinUhlenbeck,
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
        if len(self.messages) < _MAX_ERRORS:
            place = f"line {line}" if line else "whole file"
            self.messages.append((line or 10**9, f"{place}: {message}"))

    def attempt(self, key: str, make: Callable[[], Any]) -> Any:
        """Return `make()`; if it raises an error about its input, add the error and return None."""
        try:
            return make()
        except NotFiniteError as error:  # an error of the functions, not of the file
            raise NotFiniteError(f"{self.name}: {error}") from error
        except InputError as error:
            message = str(error)
            named = next(
                (name for name in re.findall(r"`(\w+)`", message) if name in self.lines), None
            )
            has_name = named or f"`{key}`" in message
            self.add(named or key, message if has_name else f"`{key}`: {message}")
            return None
        except (ArithmeticError, ValueError, TypeError, MemoryError) as error:
            message = str(error).splitlines()[0] if str(error) else type(error).__name__
            self.add(key, f"`{key}`: {message}")
            return None

    def check_keys(self, key: str, table: Mapping[str, Any], names: Any) -> None:
        """Add an error for each entry of the table `key` that is not in `names`."""
        for name in table:
            if name not in names and len(self.messages) < _MAX_ERRORS:
                where = f" in [{key}]" if key else ""
                self.add(
                    str(name), f"unknown key `{str(name)[:60]}`{where}; {suggest(str(name), names)}"
                )

    def raise_errors(self) -> None:
        """Raise `InputError` with all messages in the order of lines, if there are any."""
        if self.messages:
            count = len(self.messages)
            lines = "\n".join(
                f"  {message}".replace("\n", "\n  ") for _, message in sorted(self.messages)
            )
            or_more = " or more" if count == _MAX_ERRORS else ""
            number = "one error" if count == 1 else f"{count} errors{or_more}"
            raise InputError(f"{self.name}: {number}, nothing was run\n{lines}")


class Reader:
    """Converts the formulas and numbers of one file.

    Formulas may use d, T, i = (1, ..., d), and the parameters of the file.
    """

    def __init__(self, dim: int, horizon: float, errors: ErrorCollector) -> None:
        self.dim, self.errors = dim, errors
        self.names: dict[str, Any] = {"d": float(dim), "T": horizon, "i": np.arange(1.0, dim + 1)}

    def add_parameter(self, name: str, value: Any) -> None:
        """Add a parameter to the names that formulas may use."""
        reserved = ("t", "x", "u", "du", *self.names)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name) or name in reserved:
            self.errors.add(
                name,
                f"`{name[:40]}` cannot name a parameter: letters and digits, and not t, x, u, du, "
                "d, T or i.",
            )
            return
        number = self.errors.attempt(name, lambda: self.constant(value))
        self.names[name] = 0.0 if number is None else number

    def constant(self, value: Any) -> Any:
        """A float or an array from a number, a list of numbers, or a formula without t and x."""
        if isinstance(value, str):
            array = np.asarray(Formula(value, (), self.names)())
        elif isinstance(value, bool) or not isinstance(value, int | float | list):
            raise InputError(
                "a number, a list of numbers or a formula in quotes is wanted; "
                f"got {short_repr(value)}."
            )
        else:
            try:
                array = np.asarray(value, np.float64)
            except (TypeError, ValueError, OverflowError):
                raise InputError(
                    f"a list must hold numbers, rows of one length; got {short_repr(value)}."
                ) from None
        if not np.all(np.isfinite(array)):
            raise InputError("every number must be finite.")
        return float(array) if array.ndim == 0 else array

    def function(self, key: str, value: Any, arguments: tuple[str, ...]) -> Function | None:
        """A formula as a function of `arguments`.

        A source has as many of the arguments t, x, u, du as its formula uses, but at least t, x.
        """

        def make() -> Function:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            formula = Formula(str(value) if is_number else value, arguments, self.names)
            used = arguments
            if len(arguments) > 2:
                used = arguments[: 4 if "du" in formula.names else 3 if "u" in formula.names else 2]
                formula = Formula(formula.text, used, self.names)
            return Function(formula, arguments=" ".join(used))

        return self.errors.attempt(key, make)

    def coefficient(self, key: str, value: Any) -> Any:
        """A coefficient: a function of (t, x) if its formula uses t or x, else a constant."""

        def make() -> Any:
            if not isinstance(value, str):
                return self.constant(value)
            formula = Formula(value, ("t", "x"), self.names)
            if formula.names & {"t", "x"}:
                return Function(formula, arguments="t x")
            return self.constant(value)

        coefficient = self.errors.attempt(key, make)
        if key == "diffusion" and coefficient is not None and not callable(coefficient):
            self.errors.attempt(key, lambda: diffusion(coefficient, self.dim))
        return coefficient

    def region(self, value: Any) -> Region | None:
        """A box, a point or a normal distribution from a table with one entry."""

        def make() -> Region:
            kinds = ("box", "point", "normal")
            if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in kinds:
                raise InputError(
                    "write region = { box = [-1, 1] }, { point = 0 } or "
                    f"{{ normal = {{ mean = 0, std = 1 }} }}; got {short_repr(value)}."
                )
            ((kind, content),) = value.items()
            if kind == "point":
                return Point(self.point(content))
            if kind == "normal":
                if not isinstance(content, dict) or set(content) - {"mean", "std"}:
                    raise InputError(
                        f"write normal = {{ mean = 0, std = 1 }}; got {short_repr(content)}."
                    )
                return Normal(**{k: self.constant(v) for k, v in content.items()})
            if not isinstance(content, list) or len(content) != 2:
                raise InputError(
                    f"write box = [low, high], each one number, a list of {self.dim} or a formula; "
                    f"got {short_repr(content)}."
                )
            return Box(*(self.constant(bound) for bound in content))

        return self.errors.attempt("region", make)

    def point(self, value: Any) -> np.ndarray:
        """A point, shape (dim,), from one number for all coordinates, a list, or a formula."""
        array = np.asarray(self.constant(value))
        if array.shape not in ((), (self.dim,)):
            raise InputError(
                f"a point is one number for all coordinates, or {self.dim} of them; "
                f"got {array.size}."
            )
        return np.broadcast_to(array, (self.dim,)).copy()

    def process(self, value: Any) -> Process | None:
        """A stochastic process from a table [process.NAME] with its parameters."""

        def make() -> Process:
            if (
                not isinstance(value, dict)
                or len(value) != 1
                or not isinstance(next(iter(value.values())), dict)
            ):
                raise InputError(
                    "write [process.geometric_brownian] or [process.ornstein_uhlenbeck], "
                    f"and its parameters below; got {short_repr(value)}."
                )
            ((kind, parameters),) = value.items()
            if kind not in _PROCESSES:
                raise InputError(f"unknown process {kind!r}; {suggest(kind, _PROCESSES)}")
            names = list(inspect.signature(_PROCESSES[kind]).parameters)
            if unknown := [k for k in parameters if k not in names]:
                raise InputError(
                    f"unknown key `{unknown[0]}` of {kind}; {suggest(unknown[0], names)}"
                )
            return _PROCESSES[kind](**{k: self.constant(v) for k, v in parameters.items()})

        return self.errors.attempt("process", make)
