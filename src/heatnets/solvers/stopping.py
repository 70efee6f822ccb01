"""Stopping rules of adaptive solves.

A rule is a function of the growth after a round. It returns why the solve ends, or "". `EQUATION`
and `MILD` list the rules for the two types of rows; the first that applies counts. Limits of time
and memory depend on the next round, and are checked where that is planned (`Growth.plan_round`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

# A `Growth`, of which rules read `best` (the best fit), `state`, `run.options` and `error_floor`.
Rule = Callable[[Any], str]


class Limit(str):
    """Why a growth ended before its goal: a limit that the user may raise."""


ROUNDING = 1e-11  # relative error that no user can tell from rounding
# A round whose score is above this fraction of the best score so far brought no gain.
GAIN = 0.8
_ROUNDS_WITHOUT_GAIN = 3


def at_rounding(growth: Any) -> str:
    """The estimated error is at rounding."""
    floor = max(ROUNDING, growth.error_floor)
    return "the estimated error is at rounding" if growth.best.error <= floor else ""


def no_gain(growth: Any) -> str:
    """Three rounds in a row brought no gain."""
    stalled = growth.state.stalled == _ROUNDS_WITHOUT_GAIN
    return "three rounds brought no gain" if stalled else ""


def tolerance_met(growth: Any) -> str:
    """The tolerance is met."""
    tol = growth.run.options.tol
    return "the tolerance is met" if tol is not None and growth.meets_tolerance(tol) else ""


def rounds_made(growth: Any) -> str:
    """`max_rounds` rounds were made."""
    most = growth.run.options.max_rounds
    made = len(growth.state.history)  # a checkpoint may hold more
    return f"`max_rounds` = {most} rounds were made" if most is not None and made >= most else ""


EQUATION: Sequence[Rule] = (at_rounding, no_gain, tolerance_met, rounds_made)
MILD: Sequence[Rule] = (tolerance_met, rounds_made)


def first_reason(rules: Sequence[Rule], growth: Any) -> str:
    """The reason of the first rule that applies, or ""."""
    return next((why for rule in rules if (why := rule(growth))), "")
