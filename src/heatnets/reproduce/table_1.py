"""Table 1 of the paper: Example 1, a product of sines, d = 2, 5, 10."""

from __future__ import annotations

from heatnets.plotting.html import ColumnGroup, Picture, Section, Table
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
from heatnets.reproduce.published import TABLE_1

TITLE = "Table 1: Example 1, u0 = Π sin(π x_i), d = 2, 5, 10"
HORIZON = 0.05
FURTHER = {"quick": (), "paper": (15,)}
SIZES = {"quick": (1500, (2000, 400)), "paper": (15_000, (20_000, 4_000))}


def plan(scale: str) -> list[Cell]:
    """The cells of this result."""
    M, rows = SIZES[scale]
    cells = []
    for d in (*TABLE_1, *FURTHER[scale]):
        parameters = {"dim": d, "horizon": HORIZON}
        if d in TABLE_1:
            key, cost = f"paper d={d}", M * rows[0] * 1e-6
            setup = {"features": (M, 0), "rows": rows, "runs": 2}
            cells.append(Cell(key, "trained", "product-of-sines", parameters, setup, cost=cost))
        key, cost = f"default d={d}", 4.0 * d
        default = {"runs": 1 if d > 5 else 2}
        cells.append(Cell(key, "default", "product-of-sines", parameters, default, cost=cost))
    return cells


def section(done: CellResults, scale: str) -> Section:
    """The section of this result from finished cells."""
    M, (N, N_ic) = SIZES[scale]
    table = Table(
        f"Example 1, T = {HORIZON}, region [-1, 1]^d: relative errors, work and time",
        (ColumnGroup("", ("d",)), *three_groups(done)),
        [
            [
                str(d),
                *paper_columns(TABLE_1.get(d), "15,000", "20,000 + 4,000"),
                *own_columns(done, f"paper d={d}", TABLE_1.get(d) if scale == "paper" else None),
                *own_columns(done, f"default d={d}", TABLE_1.get(d)),
            ]
            for d in (*TABLE_1, *FURTHER[scale])
        ],
    )
    figure, axes = panels(1, 3)
    for i, (norm, title) in enumerate(NORMS.items()):
        published = [getattr(p, norm) for p in TABLE_1.values()]
        lines = [Line("the paper", list(TABLE_1), published, PUBLISHED, "s", "--")]
        for kind, label, colour, marker in (
            ("paper", "the paper's set-up here", OURS, "o"),
            ("default", "the default", DEFAULT, "^"),
        ):
            errors = {
                d: done[f"{kind} d={d}"]["errors"][norm]
                for d in (*TABLE_1, *FURTHER[scale])
                if f"{kind} d={d}" in done
            }
            lines.append(Line(label, list(errors), list(errors.values()), colour, marker))
        draw(axes[0, i], lines)
        axes[0, i].set(xlabel="dimension d", title=title, xticks=[*TABLE_1, *FURTHER[scale]])
        axes[0, i].get_xaxis().set_major_formatter("{x:.0f}")
        axes[0, i].minorticks_off()
    axes[0, 0].set_ylabel("relative error")
    facts = {
        "problem": (
            f"u_t = Δu, u0 = Π sin(π x_i), T = {HORIZON}; trained and tested on [-1, 1]^d (the "
            "paper names no region)"
        ),
        "the paper's set-up": (
            f"{M:,} importance-sampling features, {N:,} + {N_ic:,} rows, λ_IC² = {N / N_ic:g}, "
            "ridge 1e-6, seed 0"
        ),
        "the default": "hn.solve(problem)",
        "errors": "at 6,000 random points of (0, T] x [-1, 1]^d",
    }
    return Section(
        "table-1",
        TITLE,
        notes(scale, NOTE),
        [table],
        [Picture(finish(figure, axes), "Example 1: relative errors over dimension.")],
        settings_table(done, plan(scale), facts),
    )
