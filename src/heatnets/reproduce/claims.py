"""Computing times quoted in the text of the paper, compared with ours."""

from __future__ import annotations

import math
from typing import Any

from heatnets.plotting.html import ColumnGroup, Picture, Section, Table, number, times
from heatnets.plotting.html import seconds as duration
from heatnets.reproduce.cells import Cell
from heatnets.reproduce.compare import CellResults, notes, settings_table
from heatnets.reproduce.panels import DEFAULT, OURS, PUBLISHED, panels
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
    """The features at a scale: a tenth at quick scale."""
    return features if scale == "paper" else (features[0] // 10, features[1] // 10)


def plan(scale: str) -> list[Cell]:
    """The cells of this result."""
    cells = []
    for problem, d, features, _ in CASES:
        parameters = {"dim": d, "horizon": 0.5}
        options: dict[str, Any] = {
            "features": _features(scale, features),
            "rows": ROWS[scale],
            "train": math.pi,
            "runs": 2,
        }
        key, budget = f"{problem} d={d}", {"seconds": 20.0}
        cells.append(Cell(f"paper {key}", "trained", problem, parameters, options, cost=3.0))
        cells.append(Cell(f"default {key}", "default", problem, parameters, budget, cost=20.0))
    return cells


def section(done: CellResults, scale: str) -> Section:
    """The section of this result from finished cells."""
    rows, bars = [], []
    for problem, d, features, seconds in CASES:
        setup, default = f"paper {problem} d={d}", f"default {problem} d={d}"
        phases = done[setup]["measured"]["phases"] if setup in done else {}
        spent = [done.seconds(key) for key in (setup, default)]
        chosen = "–"
        if default in done:
            M0, M1 = done[default]["features"]
            chosen = f"{M0} + {M1}"
        rows.append(
            [
                f"{_NAMES[problem]}, d = {d}",
                f"{sum(features):,}",
                f"{seconds:g} s",
                " + ".join(map(str, _features(scale, features))),
                number(done.errors(setup)[1]),
                duration(phases.get("assembly")),
                duration(phases.get("solve")),
                duration(spent[0]),
                times(seconds / spent[0] if spent[0] and scale == "paper" else None),
                chosen,
                number(done.errors(default)[1]),
                duration(spent[1]),
                times(seconds / spent[1] if spent[1] else None),
            ]
        )
        bars.append((f"{_NAMES[problem]}, d = {d}", seconds, *spent))
    figure, axes = panels(1, 1, 7.5, 2.8)
    ax = axes[0, 0]
    labels = {"the paper (A100)": PUBLISHED, "its set-up here": OURS, "the default": DEFAULT}
    for i, (label, colour) in enumerate(labels.items()):
        positions = [k + 0.27 * (i - 1) for k in range(len(bars))]
        lengths = [bar[1 + i] or float("nan") for bar in bars]
        ax.barh(positions, lengths, 0.25, color=colour, label=label)
    ax.set(
        xscale="log",
        yticks=range(len(bars)),
        yticklabels=[bar[0] for bar in bars],
        xlabel="seconds, building and training",
    )
    ax.invert_yaxis()
    ax.grid(axis="x", alpha=0.25, linewidth=0.6)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8.5)
    N, N_ic = ROWS[scale]
    groups = (
        ColumnGroup("", ("case",)),
        ColumnGroup("the paper (A100)", ("features", "time")),
        ColumnGroup(
            "the paper's set-up here",
            ("features", "L2", "building", "solving", "whole solve", "time ratio"),
        ),
        ColumnGroup("the default", ("features", "L2", "seconds", "time ratio")),
    )
    table = Table(
        f"Building and training, T = 0.5, here with N = {N:,} + {N_ic:,} rows ({done.devices()})",
        groups,
        rows,
    )
    if scale == "paper":
        sizes, caption_note = "800 + 1,200 features for M = 2000", ""
    else:
        sizes = "a tenth of the features, and of the rows"
        caption_note = " Here with a tenth of the paper's features and rows."
    facts = {
        "the paper": (
            "“around 900 seconds for building and training, for all problems considered” "
            "(d = 300, M = 1500); 9.3 s building and 10.9 s training (Example 2, d = 9, M = 2000). "
            "It gives no errors for them, and neither rows nor the split of M = 2000"
        ),
        "here": (
            f"{sizes}; Laplacian given; the second of two runs, compilation taken out; "
            "a whole solve also tests the data and the fit"
        ),
        "the default": "hn.solve(problem, seconds=20)",
    }
    note = "Time ratio: the paper's seconds over ours, on two different machines."
    caption = f"Seconds of building and training, logarithmic.{caption_note}"
    return Section(
        "claims",
        TITLE,
        notes(scale, note),
        [table],
        [Picture(figure, caption)],
        settings_table(done, plan(scale), facts),
    )
