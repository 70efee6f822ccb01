"""Named problems with exact solutions: `hn.problems.get("oscillating", dim=1000)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from heatnets.errors import InputError
from heatnets.problem import Problem
from heatnets.problems import paper

PROBLEMS: dict[str, Callable[..., Problem]] = {
    "forced-sine": paper.forced_sine,
    "product-of-sines": paper.product_of_sines,
    "oscillating": paper.oscillating,
    "nonseparable": paper.nonseparable,
}


def names() -> list[str]:
    """The names `get` knows."""
    return list(PROBLEMS)


def get(name: str, **parameters: Any) -> Problem:
    """A named problem. Parameters are those of its function here, for example `dim` and `horizon`.

    >>> import heatnets as hn
    >>> hn.problems.get("oscillating", dim=1000).dim
    1000
    """
    if name not in PROBLEMS:
        raise InputError(f"`name` must be one of {', '.join(map(repr, PROBLEMS))}; got {name!r}.")
    known = list(inspect.signature(PROBLEMS[name]).parameters)
    if unknown := [p for p in parameters if p not in known]:
        raise InputError(f"problem {name!r} takes the parameters {', '.join(known)}; got {', '.join(map(repr, unknown))}.")
    return PROBLEMS[name](**parameters)
