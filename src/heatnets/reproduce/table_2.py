"""Table 2 of the paper: Example 2, oscillating and additive, d = 100 to 2000.

Also the time that a plain implementation takes on the same machine.
"""

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
from heatnets.reproduce.panels import DEFAULT, NORMS, OURS, PUBLISHED, Line, draw, finish, panels
from heatnets.reproduce.published import TABLE_2

TITLE = "Table 2: Example 2, u = (t + e^-t) Σ sin(2 x_i) / √d, d = 100 to 2000"
# By published number of features: ours (M0, M1).
SIZES = {
    "quick": {8000: (300, 500), 10000: (400, 600)},
    "paper": {8000: (3000, 5000), 10000: (4000, 6000)},
}
ROWS = {"quick": (1500, 300), "paper": (15_000, 3_000)}
DIMS = {"quick": (100, 500), "paper": (100, 500, 1000, 2000)}
FURTHER = {"quick": (1000, 2000), "paper": (5000, 10_000, 20_000, 50_000, 100_000)}
# Dimensions of the plain implementation, with its number of timed rows.
PLAIN = {"quick": {100: 8, 500: 2}, "paper": {100: 60, 500: 30}}


def plan(scale: str) -> list[Cell]:
    """The cells of this result."""
    cells = []
    for d in DIMS[scale]:
        parameters = {"dim": d, "horizon": 0.5}
        for M, features in SIZES[scale].items():
            for closed_form in (True, False) if scale == "paper" or d == 100 else (True,):
                options = {"features": features, "rows": ROWS[scale], "train": math.pi, "runs": 2}
                cost = sum(features) * ROWS[scale][0] * d * 1e-9
                key = f"paper d={d} M={M} {_words(closed_form)}"
                with_form = {**parameters, "closed_form": closed_form}
                cells.append(Cell(key, "trained", "oscillating", with_form, options, cost=cost))
        if d in PLAIN[scale]:
            features = SIZES[scale][10000]
            options = {
                "features": features,
                "rows": ROWS[scale],
                "train": math.pi,
                "timed_rows": PLAIN[scale][d],
                "batch": 64,
            }
            with_form = {**parameters, "closed_form": False}
            key = f"plain d={d}"
            cells.append(Cell(key, "plain", "oscillating", with_form, options, cost=10.0))
    for d in (*DIMS[scale], *FURTHER[scale]):
        key, cost = f"default d={d}", 10.0 + 2e-3 * d
        parameters, options = {"dim": d, "horizon": 0.5}, {"runs": 2}
        cells.append(Cell(key, "default", "oscillating", parameters, options, cost=cost))
    return cells


def _words(closed_form: bool) -> str:
    """How the Laplacian is computed, for keys of cells."""
    return "given" if closed_form else "automatic"


def section(done: CellResults, scale: str) -> Section:
    """The section of this result from finished cells."""
    (N, N_ic), rows = ROWS[scale], []
    for (d, M), published in TABLE_2.items():
        if d not in DIMS[scale]:
            continue
        automatic = done.seconds(f"paper d={d} M={M} automatic")
        # Ratios are shown only for equal work, that is at the scale of the paper.
        comparable = published if scale == "paper" else None
        ratio = 60 * comparable.minutes / automatic if automatic and comparable else None
        rows.append(
            [
                str(d),
                *paper_columns(published, f"{M:,}", "15,000 + 3,000"),
                *own_columns(done, f"paper d={d} M={M} given", comparable),
                duration(automatic),
                times(ratio),
                *own_columns(done, f"default d={d}", published),
            ]
        )
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
            paper = {d: getattr(p, norm) for (d, m), p in TABLE_2.items() if m == M}
            setup = {
                d: done[k]["errors"][norm]
                for d in DIMS[scale]
                if (k := f"paper d={d} M={M} given") in done
            }
            lines.append(Line(f"the paper, M = {M:,}", *_curve(paper), PUBLISHED, "s", style))
            setup_label = f"its set-up here, M = {sum(SIZES[scale][M]):,}"
            lines.append(Line(setup_label, *_curve(setup), OURS, "o", style))
        default = {
            d: done[k]["errors"][norm]
            for d in (*DIMS[scale], *FURTHER[scale])
            if (k := f"default d={d}") in done
        }
        lines.append(Line("the default", *_curve(default), DEFAULT, "^"))
        draw(axes[0, i], lines)
        axes[0, i].set(xlabel="dimension d", title=title)
    axes[0, 0].set_ylabel("relative error")
    sizes = " and ".join(f"{a:,} + {b:,}" for a, b in SIZES[scale].values())
    facts = {
        "problem": (
            "u_t = Δu + F, k = 2, c_i = 1, T = 0.5; trained on [-π, π]^d, tested on [-π/2, π/2]^d"
        ),
        "the paper's set-up": (
            f"importance-sampling features {sizes}, {N:,} + {N_ic:,} rows, "
            f"λ_IC² = {N / N_ic:g}, ridge 1e-6, seed 0"
        ),
        "the default": "hn.solve(problem); trained on the region asked for and the paths from it",
        "errors": "at 6,000 random points of (0, T] x [-π/2, π/2]^d",
        "seconds": "of the second of two runs of one shape, compilation taken out",
    }
    return Section(
        "table-2",
        TITLE,
        notes(scale, NOTE),
        tables,
        [Picture(finish(figure, axes, 5), "Example 2: relative errors over dimension.")],
        settings_table(done, plan(scale), facts),
    )


def _short(done: CellResults, scale: str) -> Table:
    """The short table: L2 errors and times."""
    rows = []
    for (d, M), published in TABLE_2.items():
        keys = f"paper d={d} M={M} given", f"default d={d}"
        if d in DIMS[scale]:
            ours = [(number(done.errors(key)[1]), duration(done.seconds(key))) for key in keys]
            paper = [number(published.l2), f"{published.minutes:.0f} min"]
            rows.append([str(d), f"{M:,}", *paper, *ours[0], *ours[1]])
    devices = done.devices()
    heads = (
        ColumnGroup("the paper (A100)", ("L2", "time")),
        ColumnGroup(f"its set-up here ({devices})", ("L2", "time")),
        ColumnGroup(f"the default ({devices})", ("L2", "time")),
    )
    return Table("In short", (ColumnGroup("", ("d", "the paper's features")), *heads), rows)


def _curve(points: dict[int, float]) -> tuple[list[float], list[float]]:
    """Dimensions and errors of a curve."""
    return list(points), list(points.values())


def _one_machine(done: CellResults, scale: str) -> Table:
    """The table that compares two implementations of one matrix on one machine."""
    rows = []
    for d, timed in PLAIN[scale].items():
        plain = done.get(f"plain d={d}")
        keys = [f"paper d={d} M=10000 {kind}" for kind in ("given", "automatic")]
        if plain is None or any(k not in done for k in keys):
            continue
        slow = plain["measured"]["wall"]
        row = [str(d), duration(slow), f"{timed} of {ROWS[scale][0]:,}"]
        row.append(f"{plain['difference']:.0e}")
        for key in keys:
            phases = done[key]["measured"]["phases"]
            building, solving = phases["assembly"], phases["solve"]
            row += [duration(building), times(slow / building)]
            row.append(times((slow + solving) / (building + solving)))
        rows.append(row)
    columns = ("building", "ratio", "ratio with the solve")
    groups = (
        ColumnGroup("", ("d",)),
        ColumnGroup("plain", ("building, scaled", "from rows", "entries differ by")),
        ColumnGroup("here, Laplacian given", columns),
        ColumnGroup("here, automatic", columns),
    )
    caption = (
        f"One machine ({done.devices()}), one matrix: a plain implementation (Hessian traces "
        "by automatic differentiation) against this package"
    )
    return Table(caption, groups, rows)
