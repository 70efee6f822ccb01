"""The under-determined case of Example 2: far fewer rows than Sobol features; errors by seed."""

from __future__ import annotations

import math
from typing import Any

from heatnets.plotting.html import ColumnGroup, Picture, Section, Table, number
from heatnets.plotting.html import seconds as duration
from heatnets.reproduce.cells import Cell
from heatnets.reproduce.compare import CellResults, notes, quantiles, settings_table
from heatnets.reproduce.panels import DEFAULT, NORMS, OURS, Line, draw, finish, panels
from heatnets.reproduce.published import UNDERDETERMINED

TITLE = "Example 2, under-determined: 600 rows, 8,000 Sobol features"
DIMS = {"quick": (50, 200), "paper": (50, 100, 200, 300, 500, 750, 1000)}
FEATURES = {"quick": (300, 500), "paper": (3000, 5000)}
ROWS = {"quick": (50, 10), "paper": (500, 100)}
INSTANCES = {"quick": 5, "paper": 20}
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)


def plan(scale: str) -> list[Cell]:
    """The cells of this result."""
    cells = []
    for d in DIMS[scale]:
        parameters = {"dim": d, "horizon": 0.5}
        options: dict[str, Any] = {
            "features": FEATURES[scale],
            "rows": ROWS[scale],
            "train": math.pi,
            "solve": {"directions": "sobol"},
        }
        for seed in range(INSTANCES[scale]):
            key, cost = f"paper d={d} seed={seed}", 0.5 + d * 1e-3
            cells.append(Cell(key, "trained", "oscillating", parameters, options, seed, cost))
        cells.append(Cell(f"default d={d}", "default", "oscillating", parameters, cost=5.0))
    return cells


def section(done: CellResults, scale: str) -> Section:
    """The section of this result from finished cells."""
    figure, axes = panels(1, 3)
    rows = []
    keys = {
        d: [k for seed in range(INSTANCES[scale]) if (k := f"paper d={d} seed={seed}") in done]
        for d in DIMS[scale]
    }
    for column, (norm, title) in enumerate(NORMS.items()):
        bands: dict[int, list[float]] = {}
        for d in DIMS[scale]:
            if keys[d]:
                bands[d] = quantiles((done[k]["errors"][norm] for k in keys[d]), *LEVELS)
        dims = list(bands)
        q = [[b[i] for b in bands.values()] for i in range(len(LEVELS))]
        errors = {
            d: done[f"default d={d}"]["errors"][norm]
            for d in DIMS[scale]
            if f"default d={d}" in done
        }
        label = "the paper's set-up here: median and quartiles"
        lines = [
            Line(label, dims, q[2], OURS, band=(q[1], q[3])),
            Line("10 and 90 % of instances", dims, q[0], OURS, "", ":"),
            Line("", dims, q[4], OURS, "", ":"),
            Line("the default", list(errors), list(errors.values()), DEFAULT, "^"),
        ]
        draw(axes[0, column], lines, UNDERDETERMINED)
        axes[0, column].set(xlabel="dimension d", title=title)
        if norm != "l2":
            continue
        for d, band in bands.items():
            claim = "; ".join(c.words for c in UNDERDETERMINED if c.first <= d <= c.last) or "–"
            seconds = [done.seconds(k) or 0.0 for k in keys[d]]
            setup = [*(number(v) for v in band), duration(quantiles(seconds, 0.5)[0])]
            default = ["–"] * 4
            if cell := done.get(f"default d={d}"):
                default = [
                    number(errors[d]),
                    f"{sum(cell['features'])}",
                    f"{cell['rows'][0]:,}",
                    duration(done.seconds(f"default d={d}")),
                ]
            rows.append([str(d), claim, *setup, *default])
    axes[0, 0].set_ylabel("relative error")
    (M0, M1), (N, N_ic) = FEATURES[scale], ROWS[scale]
    setup_columns = ("10 %", "25 %", "median", "75 %", "90 %", "seconds, median")
    groups = (
        ColumnGroup("", ("d",)),
        ColumnGroup("the paper", ("in words",)),
        ColumnGroup(f"the paper's set-up here ({done.devices()})", setup_columns),
        ColumnGroup("the default", ("L2", "features", "rows", "seconds")),
    )
    table_caption = (
        f"Example 2, T = 0.5, {M0:,} + {M1:,} Sobol features, {N} + {N_ic} rows: relative L2 "
        f"errors over {INSTANCES[scale]} instances"
    )
    table = Table(table_caption, groups, rows)
    facts = {
        "problem": (
            "u = (t + e^-t) Σ sin(2 x_i) / √d, T = 0.5; trained on [-π, π]^d, tested on "
            "[-π/2, π/2]^d at 6,000 random points"
        ),
        "the paper's set-up": (
            f"scrambled Sobol features, uniform rows, λ_IC² = {N / N_ic:g}, ridge 1e-6, "
            f"instances are seeds 0 to {INSTANCES[scale] - 1}"
        ),
        "the default": (
            "hn.solve(problem): it takes as many rows as it finds useful, so its row count is "
            "not the paper's"
        ),
    }
    note = (
        "The paper gives this result as bands without numbers; hatched is what its text says "
        "of the L2 error."
    )
    caption = (
        "The under-determined case: median, quartiles (shaded) and 10/90 % (dotted) over instances."
    )
    return Section(
        "underdetermined",
        TITLE,
        notes(scale, note),
        [table],
        [Picture(finish(figure, axes), caption)],
        settings_table(done, plan(scale), facts),
    )
