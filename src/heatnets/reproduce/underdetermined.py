"""The under-determined case of Example 2: far fewer rows than Sobol features, many instances."""

from __future__ import annotations

import math
from typing import Any

from heatnets.plotting.html import ColumnGroup, Picture, Section, Table, number
from heatnets.plotting.html import seconds as duration
from heatnets.reproduce.cells import Cell
from heatnets.reproduce.compare import CellResults, notes, quantiles, settings_table
from heatnets.reproduce.figures import DEFAULT, NORMS, OURS, Line, draw, finish, panels
from heatnets.reproduce.published import UNDERDETERMINED

TITLE = "Example 2, under-determined: 600 rows, 8,000 Sobol features"
DIMS = {"quick": (50, 200), "paper": (50, 100, 200, 300, 500, 750, 1000)}
FEATURES = {"quick": (300, 500), "paper": (3000, 5000)}
ROWS = {"quick": (50, 10), "paper": (500, 100)}
INSTANCES = {"quick": 5, "paper": 20}
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)


def plan(scale: str) -> list[Cell]:
    cells = []
    for d in DIMS[scale]:
        parameters = {"dim": d, "horizon": 0.5}
        options: dict[str, Any] = {
            "features": FEATURES[scale],
            "rows": ROWS[scale],
            "train": math.pi,
            "solve": {"directions": "sobol"},
        }
        cells += [
            Cell(
                f"paper d={d} seed={seed}",
                "trained",
                "oscillating",
                parameters,
                options,
                seed,
                0.5 + d * 1e-3,
            )
            for seed in range(INSTANCES[scale])
        ]
        cells.append(Cell(f"default d={d}", "default", "oscillating", parameters, cost=5.0))
    return cells


def section(done: CellResults, scale: str) -> Section:
    figure, axes = panels(1, 3)
    rows = []
    for column, (norm, title) in enumerate(NORMS.items()):
        bands: dict[int, list[float]] = {}
        for d in DIMS[scale]:
            keys = [
                k for seed in range(INSTANCES[scale]) if (k := f"paper d={d} seed={seed}") in done
            ]
            if keys:
                bands[d] = quantiles((done[k]["errors"][norm] for k in keys), *LEVELS)
        q = [[b[i] for b in bands.values()] for i in range(len(LEVELS))]
        found = {
            d: done[f"default d={d}"]["errors"][norm]
            for d in DIMS[scale]
            if f"default d={d}" in done
        }
        draw(
            axes[0, column],
            [
                Line(
                    "the paper's set-up here: median and quartiles",
                    list(bands),
                    q[2],
                    OURS,
                    band=(q[1], q[3]),
                ),
                Line("10 and 90 % of instances", list(bands), q[0], OURS, "", ":"),
                Line("", list(bands), q[4], OURS, "", ":"),
                Line("the default", list(found), list(found.values()), DEFAULT, "^"),
            ],
            UNDERDETERMINED,
        )
        axes[0, column].set(xlabel="dimension d", title=title)
        if norm == "l2":
            for d, b in bands.items():
                said = "; ".join(s.words for s in UNDERDETERMINED if s.first <= d <= s.last) or "–"
                own = [
                    done.seconds(k) or 0.0
                    for seed in range(INSTANCES[scale])
                    if (k := f"paper d={d} seed={seed}") in done
                ]
                default = done.get(f"default d={d}")
                rows.append(
                    [str(d), said, *(number(v) for v in b), duration(quantiles(own, 0.5)[0])]
                    + ([number(found[d]), f"{sum(default['features'])}", f"{default['rows'][0]:,}", duration(done.seconds(f'default d={d}'))]
                       if default else ["–"] * 4)
                )  # fmt: skip
    axes[0, 0].set_ylabel("relative error")
    (M0, M1), (N, N_ic) = FEATURES[scale], ROWS[scale]
    table = Table(
        f"Example 2, T = 0.5, {M0:,} + {M1:,} Sobol features, {N} + {N_ic} rows: relative L2 errors over {INSTANCES[scale]} instances",
        (ColumnGroup("", ("d",)), ColumnGroup("the paper", ("in words",)),
         ColumnGroup(f"the paper's set-up here ({done.devices()})", ("10 %", "25 %", "median", "75 %", "90 %", "seconds, median")),
         ColumnGroup("the default", ("L2", "features", "rows", "seconds"))),
        rows,
    )  # fmt: skip
    facts = {
        "problem": "u = (t + e^-t) Σ sin(2 x_i) / √d, T = 0.5; trained on [-π, π]^d, tested on [-π/2, π/2]^d at 6,000 random points",
        "the paper's set-up": f"scrambled Sobol features, uniform rows, λ_IC² = {N / N_ic:g}, ridge 1e-6, instances are seeds 0 to {INSTANCES[scale] - 1}",
        "the default": "hn.solve(problem): it takes as many rows as it finds useful, so its row count is not the paper's",
    }
    words = "The paper gives this result as bands without numbers; hatched is what its text says of the L2 error."
    caption = (
        "The under-determined case: median, quartiles (shaded) and 10/90 % (dotted) over instances."
    )
    return Section(
        "underdetermined",
        TITLE,
        notes(scale, words),
        [table],
        [Picture(finish(figure, axes), caption)],
        settings_table(done, plan(scale), facts),
    )
