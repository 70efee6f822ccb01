"""What a TOML file of a problem may say: formulas, numbers, regions, processes; and everything that is wrong with it, said at once."""

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

_MOST = 20  # errors that are told
_PROCESSES: dict[str, type[Process]] = {
    "geometric_brownian": GeometricBrownian,
    "ornstein_uhlenbeck": OrnsteinUhlenbeck,
}


class ErrorCollector:
    """Everything that is wrong with a file, each with its line, to be said at once."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.found, self.lines = name, list[tuple[int, str]](), dict[str, int]()
        for number, line in enumerate(text.splitlines(), 1):
            if match := re.match(r"\s*\[*\s*(?:[\w-]+\.)*\"?([\w-]+)\"?\s*[=\].]", line):
                self.lines.setdefault(match[1], number)

    def add(self, key: str, words: str) -> None:
        line = self.lines.get(key.rsplit(".", 1)[-1])
        if len(self.found) < _MOST:
            self.found.append(
                (line or 10**9, f"{f'line {line}' if line else 'whole file'}: {words}")
            )

    def about(self, key: str, make: Callable[[], Any]) -> Any:
        """What `make` returns; None, and a complaint, where it refuses."""
        try:
            return make()
        except NotFiniteError as error:  # of the numbers, not of the file
            raise NotFiniteError(f"{self.name}: {error}") from error
        except InputError as error:
            words = str(error)
            named = next(
                (name for name in re.findall(r"`(\w+)`", words) if name in self.lines), None
            )
            self.add(named or key, words if named or f"`{key}`" in words else f"`{key}`: {words}")
            return None
        except (ArithmeticError, ValueError, TypeError, MemoryError) as error:
            self.add(
                key,
                f"`{key}`: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            )
            return None

    def known(self, key: str, table: Mapping[str, Any], names: Any) -> None:
        for name in table:
            if name not in names and len(self.found) < _MOST:
                self.add(
                    str(name),
                    f"unknown key `{str(name)[:60]}`{f' in [{key}]' if key else ''}; {suggest(str(name), names)}",
                )

    def stop(self) -> None:
        if self.found:
            count = len(self.found)
            lines = "\n".join(f"  {words}".replace("\n", "\n  ") for _, words in sorted(self.found))
            many = (
                "one error"
                if count == 1
                else f"{count} errors{' or more' if count == _MOST else ''}"
            )
            raise InputError(f"{self.name}: {many}, nothing was run\n{lines}")


class Reader:
    """Formulas and numbers of one file, in the names that are known there: d, T, i = (1, ..., d), and its parameters."""

    def __init__(self, dim: int, horizon: float, wrong: ErrorCollector) -> None:
        self.dim, self.wrong = dim, wrong
        self.names: dict[str, Any] = {"d": float(dim), "T": horizon, "i": np.arange(1.0, dim + 1)}

    def parameter(self, name: str, value: Any) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name) or name in (
            "t",
            "x",
            "u",
            "du",
            *self.names,
        ):
            self.wrong.add(
                name,
                f"`{name[:40]}` cannot name a parameter: letters and digits, and not t, x, u, du, d, T or i.",
            )
            return
        found = self.wrong.about(name, lambda: self.constant(value))
        self.names[name] = 0.0 if found is None else found

    def constant(self, value: Any) -> Any:
        """A number, an array of numbers, or what a formula without t and x gives."""
        if isinstance(value, str):
            found = np.asarray(Formula(value, (), self.names)())
        elif isinstance(value, bool) or not isinstance(value, int | float | list):
            raise InputError(
                f"a number, a list of numbers or a formula in quotes is wanted; got {short_repr(value)}."
            )
        else:
            try:
                found = np.asarray(value, np.float64)
            except (TypeError, ValueError, OverflowError):
                raise InputError(
                    f"a list must hold numbers, rows of one length; got {short_repr(value)}."
                ) from None
        if not np.all(np.isfinite(found)):
            raise InputError("every number must be finite.")
        return float(found) if found.ndim == 0 else found

    def function(self, key: str, value: Any, arguments: tuple[str, ...]) -> Function | None:
        """A formula as a function; a source is one of as many of t, x, u, du as it names."""

        def make() -> Function:
            formula = Formula(
                str(value)
                if isinstance(value, int | float) and not isinstance(value, bool)
                else value,
                arguments,
                self.names,
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
            return (
                Function(formula, arguments="t x")
                if formula.names & {"t", "x"}
                else self.constant(value)
            )

        found = self.wrong.about(key, make)
        if key == "diffusion" and found is not None and not callable(found):
            self.wrong.about(key, lambda: diffusion(found, self.dim))
        return found

    def region(self, value: Any) -> Region | None:
        def make() -> Region:
            kinds = ("box", "point", "normal")
            if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in kinds:
                raise InputError(
                    f"write region = {{ box = [-1, 1] }}, {{ point = 0 }} or {{ normal = {{ mean = 0, std = 1 }} }}; got {short_repr(value)}."
                )
            ((kind, given),) = value.items()
            if kind == "point":
                return Point(self.place(given))
            if kind == "normal":
                if not isinstance(given, dict) or set(given) - {"mean", "std"}:
                    raise InputError(
                        f"write normal = {{ mean = 0, std = 1 }}; got {short_repr(given)}."
                    )
                return Normal(**{k: self.constant(v) for k, v in given.items()})
            if not isinstance(given, list) or len(given) != 2:
                raise InputError(
                    f"write box = [low, high], each one number, a list of {self.dim} or a formula; got {short_repr(given)}."
                )
            return Box(*(self.constant(bound) for bound in given))

        return self.wrong.about("region", make)

    def place(self, value: Any) -> np.ndarray:
        """A point: one number for all coordinates, a list of them, or a formula."""
        found = np.asarray(self.constant(value))
        if found.shape not in ((), (self.dim,)):
            raise InputError(
                f"a point is one number for all coordinates, or {self.dim} of them; got {found.size}."
            )
        return np.broadcast_to(found, (self.dim,)).copy()

    def process(self, value: Any) -> Process | None:
        def make() -> Process:
            if (
                not isinstance(value, dict)
                or len(value) != 1
                or not isinstance(next(iter(value.values())), dict)
            ):
                raise InputError(
                    f"write [process.geometric_brownian] or [process.ornstein_uhlenbeck], and its parameters below; got {short_repr(value)}."
                )
            ((kind, given),) = value.items()
            if kind not in _PROCESSES:
                raise InputError(f"unknown process {kind!r}; {suggest(kind, _PROCESSES)}")
            taken = list(inspect.signature(_PROCESSES[kind]).parameters)
            if unknown := [k for k in given if k not in taken]:
                raise InputError(
                    f"unknown key `{unknown[0]}` of {kind}; {suggest(unknown[0], taken)}"
                )
            return _PROCESSES[kind](**{k: self.constant(v) for k, v in given.items()})

        return self.wrong.about("process", make)
