"""The paper's figure of Example 2: errors over dimension for several T, at two network sizes."""

from __future__ import annotations

import math
from typing import Any

from heatnets.plotting.html import ColumnGroup, Picture, Section, Table, number
from heatnets.plotting.html import seconds as duration
from heatnets.reproduce.cells import Cell
from heatnets.reproduce.compare import CellResults, notes, settings_table
from heatnets.reproduce.panels import NORMS, Line, draw, finish, panels, shades
from heatnets.reproduce.published import HORIZONS

TITLE = "Example 2 over dimensions and horizons"
DIMS = {"quick": (5, 20, 100), "paper": (5, 10, 20, 50, 100, 200, 300, 500, 750, 1000)}
FURTHER = {"quick": (500,), "paper": (2000, 5000, 10_000)}
TIMES = {"quick": (0.25, 1.0), "paper": (0.25, 0.5, 0.75, 1.0)}
# By published number of features: ours (M0, M1).
SIZES = {
    "quick": {1500: (100, 200), 8000: (300, 500)},
    "paper": {1500: (500, 1000), 8000: (3000, 5000)},
}
ROWS = {"quick": (1500, 300), "paper": (10_000, 2_000)}


def plan(scale: str) -> list[Cell]:
    """The cells of this result."""
    cells = []
    for d in (*DIMS[scale], *FURTHER[scale]):
        for T in TIMES[scale]:
            parameters = {"dim": d, "horizon": T}
            for M, features in SIZES[scale].items() if d in DIMS[scale] else ():
                options: dict[str, Any] = {
                    "features": features,
                    "rows": ROWS[scale],
                    "train": math.pi,
                }
                key = f"paper d={d} T={T} M={M}"
                cost = 0.2 + sum(features) * ROWS[scale][0] * d * 1e-9
                cells.append(Cell(key, "trained", "oscillating", parameters, options, cost=cost))
            key, cost = f"default d={d} T={T}", 2 + 4e-3 * d
            cells.append(Cell(key, "default", "oscillating", parameters, cost=cost))
    return cells


def section(done: CellResults, scale: str) -> Section:
    """The section of this result from finished cells."""
    times, dims = TIMES[scale], (*DIMS[scale], *FURTHER[scale])
    figure, axes = panels(2, 3)
    for row, (M, features) in enumerate(SIZES[scale].items()):
        for column, (norm, title) in enumerate(NORMS.items()):
            lines = []
            for colours, kind, label, marker in (
                (shades(len(times), "Blues"), f" M={M}", "the paper's set-up here", "o"),
                (shades(len(times), "Oranges"), "", "the default", "^"),
            ):
                for T, colour in zip(times, colours, strict=True):
                    keys = {d: f"{'paper' if kind else 'default'} d={d} T={T}{kind}" for d in dims}
                    errors = {d: done[k]["errors"][norm] for d, k in keys.items() if k in done}
                    name = f"{label}, T = {T:g}"
                    lines.append(Line(name, list(errors), list(errors.values()), colour, marker))
            draw(axes[row, column], lines, HORIZONS[M])
            axes[row, column].set(xlabel="dimension d", title=f"{title}, M = {sum(features):,}")
        axes[row, 0].set_ylabel("relative error")
    tables = []
    for M, features in SIZES[scale].items():
        rows = []
        for d in dims:
            claims = dict.fromkeys(c.words for c in HORIZONS[M] if c.first <= d <= c.last)
            setup = [number(done.errors(f"paper d={d} T={T} M={M}")[1]) for T in times]
            default = [number(done.errors(f"default d={d} T={T}")[1]) for T in times]
            chosen = [
                sum(done[k]["features"]) for T in times if (k := f"default d={d} T={T}") in done
            ]
            seconds = [
                done.seconds(f"{k} d={d} T={T}{m}")
                for k, m in (("paper", f" M={M}"), ("default", ""))
                for T in times
            ]
            halves = seconds[: len(times)], seconds[len(times) :]
            spent = [
                duration(max(s for s in half if s is not None)) if any(half) else "–"
                for half in halves
            ]
            most = f"{max(chosen)}" if chosen else "–"
            claim = "; ".join(claims) or "–"
            rows.append([f"{d:,}", claim, *setup, spent[0], *default, most, spent[1]])
        columns = tuple(f"T = {T:g}" for T in times)
        setup_head = f"the paper's set-up here ({done.devices()})"
        groups = (
            ColumnGroup("", ("d",)),
            ColumnGroup("the paper", ("in words",)),
            ColumnGroup(setup_head, (*columns, "seconds, at most")),
            ColumnGroup("the default", (*columns, "features, at most", "seconds, at most")),
        )
        sizes = (
            f"M = {features[0]:,} + {features[1]:,}, N = {ROWS[scale][0]:,} + {ROWS[scale][1]:,}"
        )
        tables.append(Table(f"Example 2, relative L2 errors, {sizes}", groups, rows))
    facts = {
        "problem": (
            "u = (t + e^-t) Σ sin(2 x_i) / √d; trained on [-π, π]^d, tested on [-π/2, π/2]^d "
            "at 6,000 random points"
        ),
        "the paper's set-up": (
            "importance-sampling features, λ_IC² = N / N_IC = 5, ridge 1e-6, seed 0; the "
            "paper lists no dimensions for this figure"
        ),
        "the default": "hn.solve(problem)",
        "seconds": "one run each, compilation taken out",
    }
    note = (
        "The paper gives this result as curves without numbers; hatched is what its text says of "
        "them. Accuracy and time cannot be put as ratios here (Table 2 has them)."
    )
    caption = (
        "Example 2: errors over dimension for several horizons, upper row the smaller "
        "network, lower row the larger."
    )
    return Section(
        "horizons",
        TITLE,
        notes(scale, note),
        tables,
        [Picture(finish(figure, axes, 3), caption)],
        settings_table(done, plan(scale), facts),
    )
