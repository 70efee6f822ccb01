"""Everything heatnets says when it must say no, and the checks of plain arguments.

A message names the argument, what was wanted, what came, and what to do about it.
"""

from __future__ import annotations

import difflib
import math
import numbers
import operator
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np


class HeatnetsError(Exception):
    """Base of every error heatnets raises on purpose."""


class InputError(HeatnetsError, ValueError):
    """An argument or a function of the user's is not what was wanted."""


class NumericalError(HeatnetsError, ArithmeticError):
    """The numbers went wrong: a value that is not finite, a factorisation that failed."""


class NotFiniteError(NumericalError, InputError):
    """A function of the user's is not finite where it is needed."""


class ResourceError(HeatnetsError, MemoryError):
    """What was asked for does not fit into the memory that was allowed."""


class FileError(HeatnetsError, OSError):
    """A file cannot be written, is being written by another run, or is not what its name promises."""


class HeatnetsWarning(UserWarning):
    """Something a user should know, and `stats["warnings"]` keeps."""


class WarningLog:
    """The warnings of one piece of work: each is shown once and kept for `stats["warnings"]`."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def restore(self, messages: list[str]) -> None:
        """What an earlier run said, kept but not said again."""
        self.messages.extend(text for text in messages if text not in self.messages)

    def warn(self, text: str, stacklevel: int = 2) -> None:
        if text not in self.messages:
            self.messages.append(text)
            warnings.warn(text, HeatnetsWarning, stacklevel=stacklevel + 1)


def suggest(name: str, known: Iterable[str]) -> str:
    """Words that follow an unknown name: the known one that it may be a slip of, or all of them."""
    options = sorted(known)
    close = difflib.get_close_matches(name[:40], options, 1, 0.5)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(options)}."


def short_repr(value: Any) -> str:
    """A value in a few words, for the "what came" part of a message."""
    shape = getattr(value, "shape", None)
    if shape is not None and shape != ():
        return f"an array of shape {tuple(shape)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def numeric(name: str, value: Any, hint: str) -> np.ndarray:
    """`value` as a float64 array of its own, refused where it is not made of finite real numbers."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" or array.size == 0 or not np.all(np.isfinite(array)):
        raise InputError(
            f"`{name}` must be made of finite real numbers; got {short_repr(value)}. {hint}"
        )
    return np.array(array, np.float64)


def positive(name: str, value: Any, hint: str) -> float:
    """`value` as a finite float > 0."""
    is_number = isinstance(value, numbers.Real) or getattr(value, "shape", None) == ()
    try:
        number = float(value) if is_number and not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise InputError(f"`{name}` must be one finite number > 0; got {short_repr(value)}. {hint}")
    return number


def fraction(name: str, value: Any, hint: str = "For example 0.95.") -> float:
    """`value` as a number between 0 and 1."""
    number = positive(name, value, hint)
    if number >= 1:
        raise InputError(f"`{name}` must be below 1; got {number:g}. {hint}")
    return number


def count(name: str, value: Any, least: int, hint: str) -> int:
    """`value` as a whole number >= least."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise InputError(
            f"`{name}` must be a whole number >= {least}; got {short_repr(value)}. {hint}"
        )
    return number


def pair(name: str, value: Any, hint: str) -> tuple[int, int]:
    """`value` as two whole numbers >= 0, not both zero."""
    items = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else None
    if items is None or len(items) != 2:
        raise InputError(
            f"`{name}` must be a pair of whole numbers; got {short_repr(value)}. {hint}"
        )
    first, second = (count(name, item, 0, hint) for item in items)
    if first + second == 0:
        raise InputError(
            f"`{name}` must not be (0, 0): nothing would be left to solve with. {hint}"
        )
    return first, second


def choice(name: str, value: Any, options: Iterable[str]) -> str:
    """`value` as one of `options`."""
    known = list(options)
    if not isinstance(value, str) or value not in known:
        raise InputError(
            f"`{name}` must be one of {', '.join(map(repr, known))}; got {short_repr(value)}."
        )
    return value
