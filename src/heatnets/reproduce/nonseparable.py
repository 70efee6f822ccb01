"""The paper's figure of Example 3: errors over dimension for two horizons T."""

from __future__ import annotations

import math
from typing import Any

from heatnets.plotting.html import ColumnGroup, Picture, Section, Table, number, times
from heatnets.plotting.html import seconds as duration
from heatnets.reproduce.cells import Cell
from heatnets.reproduce.compare import CellResults, notes, settings_table
from heatnets.reproduce.panels import NORMS, Line, draw, finish, panels, shades
from heatnets.reproduce.published import NONSEPARABLE

TITLE = "Example 3: a solution that does not separate, d up to 1000"
HORIZONS = (0.5, 1.0)
DIMS = {"quick": (5, 20, 100), "paper": (5, 10, 20, 50, 100, 200, 300, 500, 750, 1000)}
FURTHER = {"quick": (), "paper": (2000, 5000, 10_000)}
FEATURES = {"quick": (400, 600), "paper": (4000, 6000)}
ROWS = {"quick": (1500, 300), "paper": (15_000, 3_000)}
SECONDS = {"quick": 15.0, "paper": None}


def plan(scale: str) -> list[Cell]:
    """The cells of this result."""
    cells = []
    for d in (*DIMS[scale], *FURTHER[scale]):
        for T in HORIZONS:
            parameters = {"dim": d, "horizon": T}
            options: dict[str, Any] = {
                "features": FEATURES[scale],
                "rows": ROWS[scale],
                "train": math.pi,
            }
            if d in DIMS[scale]:
                key = f"paper d={d} T={T}"
                cost = 0.2 + sum(FEATURES[scale]) * ROWS[scale][0] * d * 2e-9
                cells.append(Cell(key, "trained", "nonseparable", parameters, options, cost=cost))
            key = f"default d={d} T={T}"
            budget = {} if SECONDS[scale] is None else {"seconds": SECONDS[scale]}
            cells.append(Cell(key, "default", "nonseparable", parameters, budget, cost=15.0))
    return cells


def section(done: CellResults, scale: str) -> Section:
    """The section of this result from finished cells."""
    dims = (*DIMS[scale], *FURTHER[scale])
    figure, axes = panels(1, 3)
    for column, (norm, title) in enumerate(NORMS.items()):
        lines = []
        for colours, kind, label, marker in (
            (shades(2, "Blues"), "paper", "the paper's set-up here", "o"),
            (shades(2, "Oranges"), "default", "the default", "^"),
        ):
            for T, colour in zip(HORIZONS, colours, strict=True):
                errors = {
                    d: done[k]["errors"][norm] for d in dims if (k := f"{kind} d={d} T={T}") in done
                }
                name = f"{label}, T = {T:g}"
                lines.append(Line(name, list(errors), list(errors.values()), colour, marker))
        draw(axes[0, column], lines, NONSEPARABLE)
        axes[0, column].set(xlabel="dimension d", title=title)
    axes[0, 0].set_ylabel("relative error")
    rows = []
    for d in dims:
        for T in HORIZONS:
            claim = "; ".join(c.words for c in NONSEPARABLE if c.first <= d <= c.last) or "–"
            setup, default = f"paper d={d} T={T}", f"default d={d} T={T}"
            l2 = done.errors(setup)[1], done.errors(default)[1]
            ratio = l2[0] / l2[1] if l2[0] and l2[1] else None
            sizes = ["–", "–"]
            if default in done:
                M0, M1 = done[default]["features"]
                sizes = [f"{M0} + {M1}", f"{done[default]['rows'][0]:,}"]
            rows.append(
                [
                    f"{d:,}",
                    f"{T:g}",
                    claim,
                    *(number(e) for e in done.errors(setup)),
                    duration(done.seconds(setup)),
                    *(number(e) for e in done.errors(default)),
                    *sizes,
                    duration(done.seconds(default)),
                    times(ratio),
                ]
            )
    (M0, M1), (N, N_ic) = FEATURES[scale], ROWS[scale]
    norms = ("L1", "L2", "L∞")
    default_columns = ("features", "rows", "seconds", "accuracy against the set-up")
    groups = (
        ColumnGroup("", ("d", "T")),
        ColumnGroup("the paper", ("in words",)),
        ColumnGroup(f"the paper's set-up here ({done.devices()})", (*norms, "seconds")),
        ColumnGroup("the default", (*norms, *default_columns)),
    )
    table = Table(
        f"Example 3, α = β = 1; the paper's set-up: M = {M0:,} + {M1:,}, N = {N:,} + {N_ic:,}",
        groups,
        rows,
    )
    budget_text = "" if SECONDS[scale] is None else f", seconds={SECONDS[scale]:g}"
    facts = {
        "problem": (
            "u = g S_2 + α t² e^(-t/3) exp(-β t |x|²/d) S_3 with α = β = 1, which the paper does "
            "not give; trained on [-π, π]^d, tested on [-π/2, π/2]^d at 6,000 random points"
        ),
        "the paper's set-up": (
            f"importance-sampling features, λ_IC² = {N / N_ic:g}, ridge 1e-6, seed 0"
        ),
        "the default": f"hn.solve(problem{budget_text})",
        "seconds": "one run each, compilation taken out",
    }
    note = (
        "The paper gives this result as curves without numbers; hatched is what its text says "
        "of them."
    )
    caption = "Example 3: errors over dimension for T = 0.5 and T = 1."
    return Section(
        "nonseparable",
        TITLE,
        notes(scale, note),
        [table],
        [Picture(finish(figure, axes, 3), caption)],
        settings_table(done, plan(scale), facts),
    )
