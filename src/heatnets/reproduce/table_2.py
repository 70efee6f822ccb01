"""Table 2: Example 2, oscillating and additive, d = 100 to 2000; and what a plain implementation takes on the same machine."""

from __future__ import annotations

import math

from heatnets.plotting.html import ColumnGroup, Picture, Section, Table, number, times
from heatnets.plotting.html import seconds as duration
from heatnets.reproduce.cells import Cell
from heatnets.reproduce.compare import (
    NOTE,
    CellResults,
    notes,
    own_columns,
    paper_columns,
    settings_table,
    three_groups,
)
from heatnets.reproduce.figures import DEFAULT, NORMS, OURS, PUBLISHED, Line, draw, finish, panels
from heatnets.reproduce.published import TABLE_2

TITLE = "Table 2: Example 2, u = (t + e^-t) Σ sin(2 x_i) / √d, d = 100 to 2000"
# By published number of features: ours (M0, M1); then rows, dimensions, and those of the plain implementation with its timed rows.
SIZES = {
    "quick": {8000: (300, 500), 10000: (400, 600)},
    "paper": {8000: (3000, 5000), 10000: (4000, 6000)},
}
ROWS = {"quick": (1500, 300), "paper": (15_000, 3_000)}
DIMS = {"quick": (100, 500), "paper": (100, 500, 1000, 2000)}
FURTHER = {"quick": (1000, 2000), "paper": (5000, 10_000, 20_000, 50_000, 100_000)}
PLAIN = {"quick": {100: 8, 500: 2}, "paper": {100: 60, 500: 30}}


def plan(scale: str) -> list[Cell]:
    cells = []
    for d in DIMS[scale]:
        parameters = {"dim": d, "horizon": 0.5}
        for M, features in SIZES[scale].items():
            for closed_form in (True, False) if scale == "paper" or d == 100 else (True,):
                options = {"features": features, "rows": ROWS[scale], "train": math.pi, "runs": 2}
                cost = sum(features) * ROWS[scale][0] * d * 1e-9
                key, told = (
                    f"paper d={d} M={M} {_words(closed_form)}",
                    {**parameters, "closed_form": closed_form},
                )
                cells.append(Cell(key, "trained", "oscillating", told, options, cost=cost))
        if d in PLAIN[scale]:
            features = SIZES[scale][10000]
            options = {
                "features": features,
                "rows": ROWS[scale],
                "train": math.pi,
                "timed_rows": PLAIN[scale][d],
                "batch": 64,
            }
            cells.append(
                Cell(
                    f"plain d={d}",
                    "plain",
                    "oscillating",
                    {**parameters, "closed_form": False},
                    options,
                    cost=10.0,
                )
            )
    for d in (*DIMS[scale], *FURTHER[scale]):
        cells.append(
            Cell(
                f"default d={d}",
                "default",
                "oscillating",
                {"dim": d, "horizon": 0.5},
                {"runs": 2},
                cost=10.0 + 2e-3 * d,
            )
        )
    return cells


def _words(closed_form: bool) -> str:
    return "given" if closed_form else "automatic"


def section(done: CellResults, scale: str) -> Section:
    (N, N_ic), rows = ROWS[scale], []
    for (d, M), published in TABLE_2.items():
        if d not in DIMS[scale]:
            continue
        automatic = done.seconds(f"paper d={d} M={M} automatic")
        fair = published if scale == "paper" else None  # equal work
        ratio = 60 * fair.minutes / automatic if automatic and fair else None
        rows.append([
            str(d), *paper_columns(published, f"{M:,}", "15,000 + 3,000"), *own_columns(done, f"paper d={d} M={M} given", fair),
            duration(automatic), times(ratio), *own_columns(done, f"default d={d}", published),
        ])  # fmt: skip
    first, second, third = three_groups(done)
    second = ColumnGroup(
        second.head, (*second.columns, "seconds, automatic Laplacian", "time ratio")
    )
    table = Table(
        "Example 2, T = 0.5: relative errors, work and time",
        (ColumnGroup("", ("d",)), first, second, third),
        rows,
    )
    beyond = Table(
        "Further than the paper: the default",
        (
            ColumnGroup("", ("d",)),
            ColumnGroup(f"the default ({done.devices()})", third.columns[:6]),
        ),
        [[f"{d:,}", *own_columns(done, f"default d={d}", None)[:6]] for d in FURTHER[scale]],
    )
    tables = [_short(done, scale), table, beyond, _one_machine(done, scale)]
    figure, axes = panels(1, 3)
    for i, (norm, title) in enumerate(NORMS.items()):
        lines = []
        for M, style in ((8000, ":"), (10000, "-")):
            own = {
                d: done[k]["errors"][norm]
                for d in DIMS[scale]
                if (k := f"paper d={d} M={M} given") in done
            }
            lines.append(Line(f"the paper, M = {M:,}", *_curve({d: getattr(p, norm) for (d, m), p in TABLE_2.items() if m == M}),
                              PUBLISHED, "s", style))  # fmt: skip
            lines.append(
                Line(
                    f"its set-up here, M = {sum(SIZES[scale][M]):,}", *_curve(own), OURS, "o", style
                )
            )
        found = {
            d: done[k]["errors"][norm]
            for d in (*DIMS[scale], *FURTHER[scale])
            if (k := f"default d={d}") in done
        }
        lines.append(Line("the default", *_curve(found), DEFAULT, "^"))
        draw(axes[0, i], lines)
        axes[0, i].set(xlabel="dimension d", title=title)
    axes[0, 0].set_ylabel("relative error")
    facts = {
        "problem": "u_t = Δu + F, k = 2, c_i = 1, T = 0.5; trained on [-π, π]^d, tested on [-π/2, π/2]^d",
        "the paper's set-up": f"importance-sampling features {' and '.join(f'{a:,} + {b:,}' for a, b in SIZES[scale].values())}, "
        f"{N:,} + {N_ic:,} rows, λ_IC² = {N / N_ic:g}, ridge 1e-6, seed 0",
        "the default": "hn.solve(problem); trained on the region asked for and the paths from it",
        "errors": "at 6,000 random points of (0, T] x [-π/2, π/2]^d",
        "seconds": "of the second of two runs of one shape, compilation taken out",
    }
    return Section(
        "table-2", TITLE, notes(scale, NOTE), tables, [Picture(finish(figure, axes, 5), "Example 2: relative errors over dimension.")],
        settings_table(done, plan(scale), facts),
    )  # fmt: skip


def _short(done: CellResults, scale: str) -> Table:
    rows = []
    for (d, M), published in TABLE_2.items():
        keys = f"paper d={d} M={M} given", f"default d={d}"
        if d in DIMS[scale]:
            ours = [
                words
                for key in keys
                for words in (number(done.errors(key)[1]), duration(done.seconds(key)))
            ]
            rows.append(
                [str(d), f"{M:,}", number(published.l2), f"{published.minutes:.0f} min", *ours]
            )
    on = done.devices()
    heads = (
        ColumnGroup("the paper (A100)", ("L2", "time")),
        ColumnGroup(f"its set-up here ({on})", ("L2", "time")),
        ColumnGroup(f"the default ({on})", ("L2", "time")),
    )
    return Table("In short", (ColumnGroup("", ("d", "the paper's features")), *heads), rows)


def _curve(points: dict[int, float]) -> tuple[list[float], list[float]]:
    return list(points), list(points.values())


def _one_machine(done: CellResults, scale: str) -> Table:
    """The fair ratio: one machine, one matrix, two implementations."""
    rows = []
    for d, timed in PLAIN[scale].items():
        plain, keys = (
            done.get(f"plain d={d}"),
            [f"paper d={d} M=10000 {w}" for w in ("given", "automatic")],
        )
        if plain is None or any(k not in done for k in keys):
            continue
        phases = [done[k]["measured"]["phases"] for k in keys]
        slow = plain["measured"]["wall"]
        rows.append([
            str(d), duration(slow), f"{timed} of {ROWS[scale][0]:,}", f"{plain['difference']:.0e}",
            *(words for p in phases for words in (duration(p['assembly']), times(slow / p["assembly"]), times((slow + p["solve"]) / (p["assembly"] + p["solve"])))),
        ])  # fmt: skip
    columns = ("building", "ratio", "ratio with the solve")
    return Table(
        f"One machine ({done.devices()}), one matrix: a plain implementation (Hessian traces by automatic differentiation) against this package",
        (ColumnGroup("", ("d",)), ColumnGroup("plain", ("building, scaled", "from rows", "entries differ by")),
         ColumnGroup("here, Laplacian given", columns), ColumnGroup("here, automatic", columns)),
        rows,
    )  # fmt: skip
