"""Times quoted in the paper's text, beside ours."""

from __future__ import annotations

import math
from typing import Any

from heatnets.plotting.html import ColumnGroup, Picture, Section, Table, number, times
from heatnets.plotting.html import seconds as duration
from heatnets.reproduce.cells import Cell
from heatnets.reproduce.compare import CellResults, notes, settings_table
from heatnets.reproduce.figures import DEFAULT, OURS, PUBLISHED, panels
from heatnets.reproduce.published import CLAIM_9, CLAIM_300

TITLE = "Times quoted in the text"
ROWS = {"quick": (1000, 200), "paper": (10_000, 2_000)}
# Problem, dimension, (M0, M1), the paper's seconds.
CASES = [
    ("oscillating", 300, (500, 1000), CLAIM_300),
    ("nonseparable", 300, (500, 1000), CLAIM_300),
    ("oscillating", 9, (800, 1200), sum(CLAIM_9)),
]
_NAMES = {"oscillating": "Example 2", "nonseparable": "Example 3"}


def _features(scale: str, features: tuple[int, int]) -> tuple[int, int]:
    return features if scale == "paper" else (features[0] // 10, features[1] // 10)


def plan(scale: str) -> list[Cell]:
    cells = []
    for problem, d, features, _ in CASES:
        parameters = {"dim": d, "horizon": 0.5}
        options: dict[str, Any] = {
            "features": _features(scale, features),
            "rows": ROWS[scale],
            "train": math.pi,
            "runs": 2,
        }
        cells.append(
            Cell(f"paper {problem} d={d}", "trained", problem, parameters, options, cost=3.0)
        )
        cells.append(
            Cell(
                f"default {problem} d={d}",
                "default",
                problem,
                parameters,
                {"seconds": 20.0},
                cost=20.0,
            )
        )
    return cells


def section(done: CellResults, scale: str) -> Section:
    rows, bars = [], []
    for problem, d, features, seconds in CASES:
        own, default = f"paper {problem} d={d}", f"default {problem} d={d}"
        phases = done[own]["measured"]["phases"] if own in done else {}
        spent = [done.seconds(k) for k in (own, default)]
        chosen = (
            f"{done[default]['features'][0]} + {done[default]['features'][1]}"
            if default in done
            else "–"
        )
        rows.append([
            f"{_NAMES[problem]}, d = {d}", f"{sum(features):,}", f"{seconds:g} s", "–".join(map(str, _features(scale, features))).replace("–", " + "),
            number(done.errors(own)[1]), duration(phases.get('assembly')), duration(phases.get('solve')), duration(spent[0]),
            times(seconds / spent[0] if spent[0] and scale == "paper" else None), chosen, number(done.errors(default)[1]), duration(spent[1]),
            times(seconds / spent[1] if spent[1] else None),
        ])  # fmt: skip
        bars.append((f"{_NAMES[problem]}, d = {d}", seconds, *spent))
    figure, axes = panels(1, 1, 7.5, 2.8)
    ax = axes[0, 0]
    for i, (label, colour) in enumerate(
        (("the paper (A100)", PUBLISHED), ("its set-up here", OURS), ("the default", DEFAULT))
    ):
        ax.barh(
            [k + 0.27 * (i - 1) for k in range(len(bars))],
            [bar[1 + i] or float("nan") for bar in bars],
            0.25,
            color=colour,
            label=label,
        )
    ax.set(
        xscale="log",
        yticks=range(len(bars)),
        yticklabels=[bar[0] for bar in bars],
        xlabel="seconds, building and training",
    )
    ax.invert_yaxis()
    ax.grid(axis="x", alpha=0.25, linewidth=0.6)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8.5)
    table = Table(
        f"Building and training, T = 0.5, here with N = {ROWS[scale][0]:,} + {ROWS[scale][1]:,} rows ({done.devices()})",
        (ColumnGroup("", ("case",)), ColumnGroup("the paper (A100)", ("features", "time")),
         ColumnGroup("the paper's set-up here", ("features", "L2", "building", "solving", "whole solve", "time ratio")),
         ColumnGroup("the default", ("features", "L2", "seconds", "time ratio"))),
        rows,
    )  # fmt: skip
    facts = {
        "the paper": "“around 900 seconds for building and training, for all problems considered” (d = 300, M = 1500); 9.3 s building and 10.9 s "
        "training (Example 2, d = 9, M = 2000). It gives no errors for them, and neither rows nor the split of M = 2000",
        "here": f"{'800 + 1,200 features for M = 2000' if scale == 'paper' else 'a tenth of the features, and of the rows'}; Laplacian given; the second of two runs, compilation taken out; "
        "a whole solve also tests the data and the fit",
        "the default": "hn.solve(problem, seconds=20)",
    }
    return Section(
        "claims", TITLE, notes(scale, "Time ratio: the paper's seconds over ours, on two different machines."), [table],
        [Picture(figure, "Seconds of building and training, logarithmic." + ("" if scale == "paper" else " Here with a tenth of the paper's features and rows."))], settings_table(done, plan(scale), facts),
    )  # fmt: skip
