"""Columns of the tables: the paper, the paper's set-up in this package, this package's default."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from heatnets.plotting.html import ColumnGroup, Table, number, times
from heatnets.plotting.html import seconds as duration
from heatnets.reproduce.cells import Cell
from heatnets.reproduce.published import Published

ERRORS = ("L1", "L2", "L∞")
WORK = ("features", "rows")
RATIOS = ("accuracy ratio", "time ratio")
NOTE = (
    "Accuracy ratio: the paper's L2 error over ours. Time ratio: the paper's minutes on an "
    "A100 (building and training) over our seconds on the device named; "
    "two machines, so it tells what a reader waits, not what an algorithm saves."
)
QUICK = (
    "Quick scale: sizes are about a tenth of the paper's, so that two CPU cores do all of it "
    "in minutes. The set-up's errors are those of the smaller sizes, "
    "so it has no ratios to the paper; --scale paper has the paper's sizes."
)


def notes(scale: str, *words: str) -> list[str]:
    """Paragraphs of a section; at quick scale the first one is the warning `QUICK`."""
    return [*([QUICK] if scale == "quick" else []), *words]


class CellResults(dict[str, dict[str, Any]]):
    """Finished cells by key; missing or failed cells give None, shown as a dash in tables."""

    def errors(self, key: str) -> tuple[float | None, float | None, float | None]:
        """Relative L1, L2 and L∞ errors of a cell."""
        errors = self.get(key, {}).get("errors", {})
        return errors.get("l1"), errors.get("l2"), errors.get("linf")

    def seconds(self, key: str) -> float | None:
        """Seconds of building and training, without compilation."""
        measured = self.get(key, {}).get("measured")
        return None if measured is None else working(measured)

    def devices(self) -> str:
        """The devices on which the cells were computed."""
        return ", ".join(sorted({cell["made"]["device"] for cell in self.values()}))


def working(measured: dict[str, Any]) -> float:
    """Seconds of a solve minus those of compilation."""
    return measured["wall"] - measured.get("phases", {}).get("compile", 0.0)


def paper_columns(published: Published | None, features: str, rows: str) -> list[str]:
    """Errors, features, rows and minutes of the paper; dashes if it has no such result."""
    if published is None:
        return ["–"] * 6
    p = published
    return [*(number(e, 3) for e in (p.l1, p.l2, p.linf)), features, rows, f"{p.minutes:g} min"]


def own_columns(done: CellResults, key: str, published: Published | None) -> list[str]:
    """Errors, features, rows and seconds of a cell, and its two ratios to published figures.

    The ratios are dashes if `published` is None.
    """
    if key not in done:
        return ["–"] * 8
    _, l2, _ = done.errors(key)
    seconds = done.seconds(key)
    assert l2 is not None
    assert seconds is not None
    cell = done[key]
    accuracy = published.l2 / l2 if published else None
    time = 60 * published.minutes / seconds if published else None
    return [
        *(number(e, 3) for e in done.errors(key)),
        _plus(cell["features"]),
        _plus(cell["rows"]),
        duration(seconds),
        times(accuracy),
        times(time),
    ]


def three_groups(done: CellResults) -> tuple[ColumnGroup, ...]:
    """The three groups of columns: the paper, its set-up here, the default."""
    devices = done.devices()
    return (
        ColumnGroup("the paper (A100)", (*ERRORS, *WORK, "time")),
        ColumnGroup(f"the paper's set-up here ({devices})", (*ERRORS, *WORK, "seconds", *RATIOS)),
        ColumnGroup(f"the default ({devices})", (*ERRORS, *WORK, "seconds", *RATIOS)),
    )


def _plus(pair: list[int]) -> str:
    """Format two numbers as "a + b", or "a" if b is 0."""
    return f"{pair[0]:,} + {pair[1]:,}" if pair[1] else f"{pair[0]:,}"


def settings_table(done: CellResults, plan: list[Cell], facts: dict[str, str]) -> Table:
    """The table of settings of a result: common facts, missing cells, versions, total seconds."""
    rows = [[name, text] for name, text in facts.items()]
    missing = [cell.key for cell in plan if cell.key not in done]
    if missing:
        shown = f"{', '.join(missing[:8])}{' …' if len(missing) > 8 else ''}"
        rows.append(["not computed", f"{len(missing)} of {len(plan)} cells: {shown}"])
    counts: dict[str, int] = {}
    for cell in done.values():
        m = cell["made"]
        versions = (
            f"heatnets {m['heatnets']} (source {m['source']}), JAX {m['jax']}, NumPy {m['numpy']}, "
            f"Python {m['python']}, {m['device']}"
        )
        counts[versions] = counts.get(versions, 0) + 1
    rows += [["made with", f"{versions}: {count} cells"] for versions, count in counts.items()]
    measured = [cell["measured"] for cell in done.values()]
    spent = sum(m["first_wall"] if "first_wall" in m else m["wall"] for m in measured)
    rows.append(["the solver took", f"{spent:.0f} s in all in first runs, compilation included"])
    return Table("Settings", (ColumnGroup("", ("what", "value")),), rows)


def quantiles(values: Iterable[float], *levels: float) -> list[float]:
    """Quantiles of values at some levels."""
    return [float(q) for q in np.quantile(np.array(list(values)), levels)]
