"""Convergence rates: direct Monte Carlo estimators over samples, networks over features."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

from heatnets.plotting.html import ColumnGroup, Picture, Section, Table, number
from heatnets.plotting.style import COLOURS
from heatnets.reproduce.cells import Cell
from heatnets.reproduce.compare import CellResults, notes, settings_table
from heatnets.reproduce.panels import Line, draw, finish, panels

TITLE = "Rates: direct estimators and trained networks"
# Estimator, problem, dimension.
DIRECT = [
    ("importance", "oscillating", 10),
    ("importance", "oscillating", 100),
    ("transformed", "forced-sine", 1),
]
SAMPLES = {"quick": (64, 256, 1024, 4096), "paper": (64, 256, 1024, 4096, 16384, 65536)}
REPETITIONS = {"quick": 8, "paper": 20}
NETWORK = (10, 100)
FEATURES = {"quick": (60, 120, 240, 480), "paper": (60, 120, 240, 480, 960, 1920, 3840)}
ROWS = {"quick": (1500, 300), "paper": (15_000, 3_000)}
SEEDS = {"quick": 3, "paper": 5}


def plan(scale: str) -> list[Cell]:
    """The cells of this result."""
    cells = []
    for estimator, problem, d in DIRECT:
        for n in SAMPLES[scale]:
            options: dict[str, Any] = {
                "estimator": estimator,
                "samples": n,
                "points": 16,
                "repetitions": REPETITIONS[scale],
            }
            parameters = {"dim": d, "horizon": 0.5} if d > 1 else {"horizon": 0.5}
            key, cost = f"{estimator} d={d} samples={n}", 1 + n * d * 1e-6
            cells.append(Cell(key, "direct", problem, parameters, options, cost=cost))
    for d in NETWORK:
        parameters = {"dim": d, "horizon": 0.5}
        for M in FEATURES[scale]:
            options = {"features": (M // 3, M - M // 3), "rows": ROWS[scale], "train": math.pi}
            for seed in range(SEEDS[scale]):
                key, cost = f"network d={d} M={M} seed={seed}", 0.3 + M * d * 1e-5
                cells.append(Cell(key, "trained", "oscillating", parameters, options, seed, cost))
        cells.append(Cell(f"default d={d}", "default", "oscillating", parameters, cost=5.0))
    return cells


def slope(sizes: Any, errors: Any) -> tuple[float, float, float]:
    """Estimate the exponent p of error ~ size^p.

    Args:
        sizes: shape (n,).
        errors: shape (repetitions, n); one exponent is fitted for each row.

    Returns:
        The mean of the exponents, and the ends of its 95 % t-interval.
    """
    slopes = np.polyfit(np.log(np.asarray(sizes, float)), np.log(np.asarray(errors, float)).T, 1)[0]
    mean, spread = float(np.mean(slopes)), float(np.std(slopes, ddof=1)) / math.sqrt(len(slopes))
    half = float(stats.t.ppf(0.975, len(slopes) - 1)) * spread
    return mean, mean - half, mean + half


def section(done: CellResults, scale: str) -> Section:
    """The section of this result from finished cells."""
    figure, axes = panels(1, 1, 7.5, 4.6)
    rows, lines = [], []

    def add(
        label: str,
        theory: str,
        sizes: list[int],
        errors: np.ndarray,
        colour: str,
        marker: str,
        style: str,
    ) -> None:
        """Add a curve and a row of the table; `errors` has shape (repetitions, sizes)."""
        middle = np.sqrt(np.mean(errors**2, axis=0))
        lines.append(Line(label, sizes, list(middle), colour, marker, style))
        p, low, high = (
            slope(sizes, errors) if len(sizes) > 1 and len(errors) > 1 else (math.nan,) * 3
        )
        rows.append(
            [
                label,
                theory,
                f"{p:.2f}",
                f"[{low:.2f}, {high:.2f}]",
                f"{sizes[0]:,} – {sizes[-1]:,}",
                f"{len(errors)}",
                number(float(middle[0])),
                number(float(middle[-1])),
            ]
        )

    for i, (estimator, _, d) in enumerate(DIRECT):
        sizes = [n for n in SAMPLES[scale] if f"{estimator} d={d} samples={n}" in done]
        if sizes:
            errors = np.array([done[f"{estimator} d={d} samples={n}"]["l2"] for n in sizes]).T
            add(f"direct, {estimator}, d = {d}", "-0.5", sizes, errors, COLOURS[i], "s", "--")
    for i, d in enumerate(NETWORK):
        sizes = [
            M
            for M in FEATURES[scale]
            if all(f"network d={d} M={M} seed={s}" in done for s in range(SEEDS[scale]))
        ]
        if sizes:
            errors = np.array(
                [
                    [done[f"network d={d} M={M} seed={s}"]["errors"]["l2"] for M in sizes]
                    for s in range(SEEDS[scale])
                ]
            )
            add(f"the paper's set-up here, d = {d}", "-0.5", sizes, errors, COLOURS[i], "o", "-")
        if (key := f"default d={d}") in done:
            size, error = sum(done[key]["features"]), done[key]["errors"]["l2"]
            label = f"the default, d = {d}"
            lines.append(Line(label, [size], [error], COLOURS[i], "*", ""))
            rows.append([label, "–", "–", "–", f"{size}", "1", number(error), number(error)])
    draw(axes[0, 0], lines)
    n = np.array(SAMPLES[scale], float)
    axes[0, 0].plot(n, 3 / np.sqrt(n), color="#777777", lw=0.8, label="slope -1/2")
    axes[0, 0].set(xlabel="samples per point, or features", ylabel="relative L2 error")
    columns = ("p", "95 % interval", "sizes", "runs", "error, smallest", "error, largest")
    groups = (
        ColumnGroup("", ("what",)),
        ColumnGroup("the paper", ("p",)),
        ColumnGroup("here", columns),
    )
    table = Table(
        (
            "Error ~ size^p, size the samples of an estimator or the features of a network "
            f"({done.devices()})"
        ),
        groups,
        rows,
    )
    facts = {
        "direct estimators": (
            f"at 16 random points of (0, T] x region, T = 0.5, {REPETITIONS[scale]} "
            "repetitions with fresh samples"
        ),
        "networks": (
            "Example 2, T = 0.5, importance-sampling features (one third from u0), "
            f"{ROWS[scale][0]:,} + {ROWS[scale][1]:,} rows, ridge 1e-6, {SEEDS[scale]} seeds; "
            "6,000 points"
        ),
        "interval": (
            "of the mean of one fitted slope per repetition, Student's t. A network's curve is no "
            "power law: its p is a mean over the sizes shown, and ends where the ridge's own error "
            "begins"
        ),
    }
    note = (
        "The paper proves N^(-1/2) for both: for the direct estimator, where it is the rate, and "
        "for some choice of weights of the network, where it is a bound. Trained weights do far "
        "better on this example."
    )
    caption = "Errors over samples (direct estimators) and features (networks)."
    return Section(
        "convergence",
        TITLE,
        notes(scale, note),
        [table],
        [Picture(finish(figure, axes, 3), caption)],
        settings_table(done, plan(scale), facts),
    )
