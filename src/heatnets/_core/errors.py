"""Exceptions and warnings of heatnets, and checks of scalar arguments.

An error message names the argument, the expected value, the value received, and a remedy.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import numbers
import operator
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np


class HeatnetsError(Exception):
    """Base class of all exceptions that heatnets raises."""


class InputError(HeatnetsError, ValueError):
    """An argument, or a function passed by the user, is invalid."""


class NumericalError(HeatnetsError, ArithmeticError):
    """A computation failed: a value is not finite, or a factorisation failed."""


class NotFiniteError(NumericalError, InputError):
    """A function passed by the user is not finite at a point where it is evaluated."""


class ResourceError(HeatnetsError, MemoryError):
    """A computation needs more memory than is allowed or available."""


class FileError(HeatnetsError, OSError):
    """A file cannot be read or written, is locked by another run, or has the wrong format."""


class HeatnetsWarning(UserWarning):
    """A warning of heatnets; the text is also stored in `stats["warnings"]`."""


class WarningLog:
    """The warnings of one computation: each is shown once and stored for `stats["warnings"]`."""

    def __init__(self, is_shown: bool = True) -> None:
        self.messages: list[str] = []
        self._is_shown = is_shown

    def restore(self, messages: list[str]) -> None:
        """Add the messages of an earlier run, without showing them again."""
        self.messages.extend(text for text in messages if text not in self.messages)

    def warn(self, text: str) -> None:
        """Show a warning at the user's line, the first one outside the package."""
        if text in self.messages:
            return
        self.messages.append(text)
        if self._is_shown:
            warnings.warn(text, HeatnetsWarning, stacklevel=_level_of_caller())


_OWN_FILES = (str(Path(__file__).parents[1]), contextlib.__file__)


def _level_of_caller() -> int:
    """The `stacklevel` of the first frame outside the package, for the function that calls this."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN_FILES):
        frame, level = frame.f_back, level + 1
    return level


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the most similar known name, or all of them."""
    options = sorted(known)
    close = difflib.get_close_matches(name[:40], options, 1, 0.5)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(options)}."


def short_repr(value: Any) -> str:
    """A short description of a value for error messages."""
    shape = getattr(value, "shape", None)
    if shape is not None and shape != ():
        return f"an array of shape {tuple(shape)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_finite(name: str, value: Any, hint: str) -> np.ndarray:
    """Copy `value` to a float64 array; raise `InputError` unless it is finite and real."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" or array.size == 0 or not np.all(np.isfinite(array)):
        raise InputError(
            f"`{name}` must be made of finite real numbers; got {short_repr(value)}. {hint}"
        )
    return np.array(array, np.float64)


def check_positive(name: str, value: Any, hint: str) -> float:
    """Convert `value` to a finite float > 0, or raise `InputError`."""
    is_number = isinstance(value, numbers.Real) or getattr(value, "shape", None) == ()
    try:
        number = float(value) if is_number and not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise InputError(f"`{name}` must be one finite number > 0; got {short_repr(value)}. {hint}")
    return number


def check_fraction(name: str, value: Any, hint: str = "For example 0.95.") -> float:
    """Convert `value` to a float in (0, 1), or raise `InputError`."""
    number = check_positive(name, value, hint)
    if number >= 1:
        raise InputError(f"`{name}` must be below 1; got {number:g}. {hint}")
    return number


def check_int(name: str, value: Any, least: int, hint: str) -> int:
    """Convert `value` to an int >= least, or raise `InputError`."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise InputError(
            f"`{name}` must be a whole number >= {least}; got {short_repr(value)}. {hint}"
        )
    return number


def check_int_pair(name: str, value: Any, hint: str) -> tuple[int, int]:
    """Convert `value` to two ints >= 0, not both zero, or raise `InputError`."""
    items = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else None
    if items is None or len(items) != 2:
        raise InputError(
            f"`{name}` must be a pair of whole numbers; got {short_repr(value)}. {hint}"
        )
    first, second = (check_int(name, item, 0, hint) for item in items)
    if first + second == 0:
        raise InputError(
            f"`{name}` must not be (0, 0): nothing would be left to solve with. {hint}"
        )
    return first, second


def check_choice(name: str, value: Any, options: Iterable[str]) -> str:
    """Return `value` if it is one of `options`, else raise `InputError`."""
    names = list(options)
    if not isinstance(value, str) or value not in names:
        raise InputError(
            f"`{name}` must be one of {', '.join(map(repr, names))}; got {short_repr(value)}."
        )
    return value
