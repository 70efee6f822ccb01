"""Three columns side by side: the paper, the paper's set-up in this package, this package's default."""

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
    "Accuracy ratio: the paper's L2 error over ours. Time ratio: the paper's minutes on an A100 (building and training) over our seconds on the device named; "
    "two machines, so it tells what a reader waits, not what an algorithm saves."
)
QUICK = (
    "Quick scale: sizes are about a tenth of the paper's, so that two CPU cores do all of it in minutes. The set-up's errors are those of the smaller sizes, "
    "so it has no ratios to the paper; --scale paper has the paper's sizes."
)


def notes(scale: str, *words: str) -> list[str]:
    """Paragraphs of a section; at quick scale the first warns."""
    return [*([QUICK] if scale == "quick" else []), *words]


class CellResults(dict[str, dict[str, Any]]):
    """Finished cells by key; one that is missing or failed gives None, and tables a dash."""

    def errors(self, key: str) -> tuple[float | None, float | None, float | None]:
        errors = self.get(key, {}).get("errors", {})
        return errors.get("l1"), errors.get("l2"), errors.get("linf")

    def seconds(self, key: str) -> float | None:
        """Seconds of building and training, without compilation where a run without it was made."""
        measured = self.get(key, {}).get("measured")
        return None if measured is None else working(measured)

    def devices(self) -> str:
        return ", ".join(sorted({cell["made"]["device"] for cell in self.values()}))


def working(measured: dict[str, Any]) -> float:
    """Seconds of a solve less those of compilation."""
    return measured["wall"] - measured.get("phases", {}).get("compile", 0.0)


def paper_columns(published: Published | None, features: str, rows: str) -> list[str]:
    if published is None:
        return ["–"] * 6
    p = published
    return [*(number(e, 3) for e in (p.l1, p.l2, p.linf)), features, rows, f"{p.minutes:g} min"]


def own_columns(done: CellResults, key: str, published: Published | None) -> list[str]:
    """Errors, features, rows, seconds, and both ratios to the published figures, where there are any to compare with."""
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
    on = done.devices()
    return (
        ColumnGroup("the paper (A100)", (*ERRORS, *WORK, "time")),
        ColumnGroup(f"the paper's set-up here ({on})", (*ERRORS, *WORK, "seconds", *RATIOS)),
        ColumnGroup(f"the default ({on})", (*ERRORS, *WORK, "seconds", *RATIOS)),
    )


def _plus(pair: list[int]) -> str:
    return f"{pair[0]:,} + {pair[1]:,}" if pair[1] else f"{pair[0]:,}"


def settings_table(done: CellResults, plan: list[Cell], facts: dict[str, str]) -> Table:
    """How a result was made: what is the same in all its cells, and with which versions."""
    rows = [[name, words] for name, words in facts.items()]
    missing = [cell.key for cell in plan if cell.key not in done]
    if missing:
        rows.append(
            [
                "not computed",
                f"{len(missing)} of {len(plan)} cells: {', '.join(missing[:8])}{' …' if len(missing) > 8 else ''}",
            ]
        )
    makes: dict[str, int] = {}
    for cell in done.values():
        m = cell["made"]
        words = f"heatnets {m['heatnets']} (source {m['source']}), JAX {m['jax']}, NumPy {m['numpy']}, Python {m['python']}, {m['device']}"
        makes[words] = makes.get(words, 0) + 1
    rows += [["made with", f"{words}: {count} cells"] for words, count in makes.items()]
    spent = sum(
        cell["measured"]["first_wall"]
        if "first_wall" in cell["measured"]
        else cell["measured"]["wall"]
        for cell in done.values()
    )
    rows.append(["the solver took", f"{spent:.0f} s in all in first runs, compilation included"])
    return Table("Settings", (ColumnGroup("", ("what", "value")),), rows)


def quantiles(values: Iterable[float], *levels: float) -> list[float]:
    return [float(q) for q in np.quantile(np.array(list(values)), levels)]
