"""Texts for people that carry a kind for the program: no decision depends on the wording."""

from __future__ import annotations

import enum


class ReasonKind(enum.Enum):
    """What a reason is about."""

    NOT_FINITE = "samples or data are not finite"
    TOO_FEW_SAMPLES = "too few samples for an interval"
    HEAVY_TAILS = "a few samples carry the variance"
    TOO_WIDE = "a requested half-width was not reached"
    EMPTY_COLUMNS = "columns of zeros were left out of a system"
    OUTSIDE_HORIZON = "a point has no value: its time is outside the horizon"


class Reason(str):
    """A text with its kind; it is stored and compared as the text."""

    kind: ReasonKind

    def __new__(cls, kind: ReasonKind, text: str) -> Reason:
        reason = super().__new__(cls, text)
        reason.kind = kind
        return reason


def is_kind(text: str, kind: ReasonKind) -> bool:
    """Whether a text is a `Reason` of this kind."""
    return isinstance(text, Reason) and text.kind is kind
