"""The paper's 1-D example: three kinds of features, error maps, and errors over 20 seeds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from heatnets.plotting.html import ColumnGroup, Picture, Section, Table, number
from heatnets.plotting.html import seconds as duration
from heatnets.plotting.style import COLOURS
from heatnets.reproduce.cells import Cell, decoded
from heatnets.reproduce.compare import CellResults, quantiles, settings_table

TITLE = "The 1-D example: u = (t + e^-t) sin x"
SEEDS = 20
GRID = 100
VARIANTS = {
    "gaussian": ("Gaussian kernels", {"family": "gaussian", "directions": "gaussian"}),
    "gaussian-sobol": ("Gaussian kernels, Sobol", {"family": "gaussian", "directions": "sobol"}),
    "importance": ("importance sampling", {"family": "importance", "directions": "gaussian"}),
}


def plan(scale: str) -> list[Cell]:
    """The cells of this result; nearly the same at both scales, as they take seconds."""
    cells = []
    for name, (_, keywords) in VARIANTS.items():
        solve = {"collocation": "grid", "solver": "pinv", "ridge": 0.0, **keywords}
        for seed in range(SEEDS):
            options: dict[str, Any] = {
                "features": (32, 64),
                "rows": (3000, 1000),
                "train": math.pi,
                "solve": solve,
                "grid": GRID,
                "maps": seed == 0,
            }
            cells.append(Cell(f"{name} seed={seed}", "trained", "forced-sine", {}, options, seed))
    for seed in range(SEEDS if scale == "paper" else 5):
        options = {"grid": GRID, "maps": seed == 0}
        cells.append(Cell(f"default seed={seed}", "default", "forced-sine", {}, options, seed, 3.0))
    return cells


def section(done: CellResults, scale: str) -> Section:
    """The section of this result from finished cells."""
    labels = {**{name: label for name, (label, _) in VARIANTS.items()}, "default": "the default"}
    rows = []
    for name, label in labels.items():
        keys = [key for seed in range(SEEDS) if (key := f"{name} seed={seed}") in done]
        if not keys:
            continue
        l2 = quantiles((done[k]["errors"]["l2"] for k in keys), 0, 0.25, 0.5, 0.75, 1)
        linf = quantiles((done[k]["errors"]["linf"] for k in keys), 0.5)
        (M0, M1), (N, N_ic) = done[keys[0]]["features"], done[keys[0]]["rows"]
        seconds = quantiles((done.seconds(k) or 0.0 for k in keys), 0.5)
        rows.append(
            [
                label,
                "figure only",
                f"{len(keys)}",
                *(number(v) for v in l2),
                number(linf[0]),
                f"{M0} + {M1}",
                f"{N:,} + {N_ic:,}",
                duration(seconds[0]),
            ]
        )
    groups = (
        ColumnGroup("", ("features",)),
        ColumnGroup("the paper", ("errors",)),
        ColumnGroup("seeds", ("",)),
        ColumnGroup("L2", ("best", "25 %", "median", "75 %", "worst")),
        ColumnGroup("L∞", ("median",)),
        ColumnGroup("work", ("features, seed 0", "rows", "seconds, median")),
    )
    table = Table(
        f"The 1-D example: relative errors on the 100 x 100 grid over seeds ({done.devices()})",
        groups,
        rows,
    )
    facts = {
        "problem": (
            "u_t = u_xx + (t + 1) sin x, u0 = sin x, T = 1; trained on [-π, π], tested on a "
            "100 x 100 grid of [0, 1] x [-π/2, π/2]"
        ),
        "the paper's set-up": (
            "32 + 64 features, 3,000 + 1,000 rows on a grid, λ_IC² = 3, Moore-Penrose with cut-off "
            "max(N, M) eps, A = 5 (the paper gives neither cut-off nor A)"
        ),
        "the default": "hn.solve(problem)",
    }
    note = (
        "The paper shows one run of each as maps and gives no numbers. The maps below are "
        "seed 0; the table is what 20 seeds do."
    )
    caption = "The 1-D example: the solution, and log10 of the absolute error of each variant."
    return Section(
        "one-dim",
        TITLE,
        [note],
        [table],
        [Picture(_maps(done), caption)],
        settings_table(done, plan(scale), facts),
    )


def _maps(done: CellResults) -> Figure:
    """Figure: the solution by Gaussian kernels, error maps with one colour scale, all errors."""
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    axes = figure.subplots(2, 3)
    titles = {**{name: label for name, (label, _) in VARIANTS.items()}, "default": "the default"}
    maps = {name: done[key]["maps"] for name in titles if (key := f"{name} seed=0") in done}

    def show(ax: Any, encoded_values: str, title: str, **style: Any) -> Any:
        values = decoded(encoded_values).reshape(GRID, GRID)
        extent = (-np.pi / 2, np.pi / 2, 0, 1)
        image = ax.imshow(values, origin="lower", extent=extent, aspect="auto", **style)
        ax.set(xlabel="x", ylabel="t")
        ax.set_title(title, fontsize=10)
        return image

    if "gaussian" in maps:
        title = "solution by Gaussian kernels"
        image = show(axes[0, 0], maps["gaussian"]["u"], title, cmap="cividis")
        figure.colorbar(image, ax=axes[0, 0], label="u(t, x)")
    for name, ax in zip(titles, (axes[0, 1], axes[0, 2], axes[1, 0], axes[1, 1]), strict=True):
        if name in maps:
            errors = maps[name]["log10_error"]
            image = show(ax, errors, titles[name], cmap="magma", vmin=-16, vmax=-8)
            figure.colorbar(image, ax=ax, label="log10 |error|", extend="both")
    spread = axes[1, 2]
    for i, name in enumerate(titles):
        keys = [key for seed in range(SEEDS) if (key := f"{name} seed={seed}") in done]
        l2 = [done[key]["errors"]["l2"] for key in keys]
        spread.semilogx(l2, np.full(len(l2), i), "|", ms=14, color=COLOURS[0])
    tick_labels = [title.replace(", ", ",\n").replace(" s", "\ns") for title in titles.values()]
    spread.set(yticks=range(4), yticklabels=tick_labels)
    spread.set(xlabel="relative L2 error", ylim=(3.5, -0.5), xlim=(1e-17, 1e-5))
    spread.set_title("all seeds", fontsize=10)
    spread.grid(alpha=0.25, linewidth=0.6)
    return figure
