"""The outcome of a solve in words: a verdict, one sentence, a table (print, rich, HTML)."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heatnets.certify.certificate import rounded

UNSOLVED = 0.1  # a relative error above which a problem counts as not solved


def is_solved(stats: Mapping[str, Any]) -> bool | None:
    """`Solution.solved`, from its `stats`."""
    if why_unsolved(stats):
        return False
    return None if stats["estimated_error"] is None else bool(stats["estimated_error"] <= UNSOLVED)


def why_unsolved(stats: Mapping[str, Any]) -> str:
    """A message that begins with "not solved" where a solve failed; else an empty string."""
    warning = next((text for text in stats["warnings"] if text.startswith("not solved")), "")
    error = stats["estimated_error"]
    if warning or error is None or error <= UNSOLVED:
        return warning
    estimated = f"is estimated at {error:.2g}" if math.isfinite(error) else "could not be estimated"
    return f"not solved: the error {estimated}."


@dataclass(frozen=True)
class SolveSummary:
    """The outcome of a solve in words: `print(u)`, the end of a command, the verdict of a page.

    `str` gives one sentence, the warnings and the notes. `rich` and notebooks show a table below
    the sentence.

    Attributes:
        stats: the `stats` of the solution.
        at_point: whether the region is a single point; None if it is not known.
        values: smallest and largest value of the network at random points of the region; None if
            it was not evaluated, or not solved.
        seconds: seconds of the solve; None for the sum of its phases.
        certified: for each point that was certified or not, whether it was.
        more: further rows of the table.
        notes: how the problem could be stated better.
    """

    stats: Mapping[str, Any]
    at_point: bool | None = None
    values: tuple[float, float] | None = None
    seconds: float | None = None
    certified: Sequence[bool] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def verdict(self) -> str:
        """Whether to use the solution, as a sentence: its error, the tolerance, certified points.

        It begins with "Do not use" if the problem was not solved.
        """
        s = self.stats
        if reason := why_unsolved(s):
            return f"Do not use: {reason}"
        error = s["estimated_error"]
        parts = ["Error not estimated, as the size was given"]
        if error is not None:
            parts = [f"Solved to {error:.1e}"]
        if s["tolerance_met"] is not None:
            parts.append("tolerance met" if s["tolerance_met"] else "tolerance NOT met")
        if self.certified:
            parts.append(self._certified_text)
        return f"{', '.join(parts)}."

    @property
    def sentence(self) -> str:
        """The verdict with values, features and seconds."""
        s = self.stats
        texts = [self.verdict.removesuffix(".")]
        if self.values is not None:
            texts.append(self._values_text)
        texts.append(f"{s['features'][0]} + {s['features'][1]} features")
        texts.append(f"{self._seconds:.1f} s")
        if count := len(self._warnings):
            texts.append(f"{count} warning{'s' if count > 1 else ''}")
        return f"{'; '.join(texts)}."

    @property
    def facts(self) -> dict[str, Any]:
        """The rows of the table: size, method, time, end, estimated error, values."""
        s, facts = self.stats, dict[str, Any]()
        if is_solved(s) is False:
            facts["solved"] = "NOT SOLVED: no value of the network is shown"
        compile_time, time_note = s["seconds"]["compile"], " since it went on"
        # After a resumed solve the compilation time includes the earlier run.
        if compile_time <= self._seconds:
            time_note = f", of which {compile_time:.1f} compilation"
        error, estimate = s["estimated_error"], "none for a size that was given: u.error()"
        if error is not None:
            estimate = f"{error:.1e} (relative{self._where})" if math.isfinite(error) else "unknown"
        facts |= {
            "size": f"{s['features'][0]} + {s['features'][1]} features (initial condition + "
            f"source), {s['rows'][0]} rows, degree {s['time_degree']} in time",
            "design": f"{s['design']}{', in pairs' if s['antithetic'] else ''}; "
            f"solver {s['solver']}, rank {s['rank']}",
            "seconds": f"{self._seconds:.1f}{time_note}, on {s['device']}",
            "stopped": s["stopped"] or "the size was given",
            "estimated error": estimate,
        }
        if s["tolerance_met"] is not None:
            facts["tolerance"] = "met" if s["tolerance_met"] else "NOT met"
        if self.values is not None:
            facts["values"] = self._values_text
        if self._warnings:
            facts["warnings"] = " ".join(self._warnings)
        if self.notes:
            facts["note"] = " ".join(self.notes)
        return {**facts, **self.more}

    @property
    def _seconds(self) -> float:
        return sum(self.stats["seconds"].values()) if self.seconds is None else self.seconds

    @property
    def _warnings(self) -> list[str]:
        return list(dict.fromkeys(self.stats["warnings"]))

    @property
    def _where(self) -> str:
        """What the estimated error is besides relative."""
        if self.at_point is None:
            return ""
        return ", at the point" if self.at_point else ", root mean square over the region"

    @property
    def _certified_text(self) -> str:
        points, good = len(self.certified), sum(map(bool, self.certified))
        if points == 1:
            return "the point is certified" if good else "the point is NOT certified"
        if good == points:
            return f"all {points} points certified"
        return f"only {good} of {points} points certified" if good else "no point certified"

    @property
    def _values_text(self) -> str:
        assert self.values is not None
        (low, high), error = self.values, self.stats["estimated_error"]
        half = 0.0 if error is None else error * max(abs(low), abs(high))
        if self.at_point:
            text = f"u = {rounded(high, half)} at the point"
            return f"{text}, ± {half:.1g} estimated" if half else text
        return f"u from {low:.4g} to {high:.4g} at random points"

    def __str__(self) -> str:
        warnings = [f"Warning: {text}" for text in self._warnings]
        return "\n".join([self.sentence, *warnings, *(f"Note: {text}" for text in self.notes)])

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        return Group(facts_table(self.facts), Text(self.sentence))

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(str(text))}</td></tr>"
            for name, text in self.facts.items()
        )
        return f"<p>{html.escape(self.sentence)}</p><table>{rows}</table>"


def facts_table(facts: Mapping[str, Any]) -> Any:
    """A `rich` table of two columns, name and value; lists are joined by commas."""
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        table.add_row(Text(name), Text(printable(text)))
    return table


def printable(text: str) -> str:
    """Remove control characters, which a terminal would execute, from a text of a file."""
    return "".join(c for c in text if c == "\n" or c == "\t" or c.isprintable())
