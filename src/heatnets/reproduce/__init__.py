"""Reproduction of the paper's results and of semilinear benchmarks: `heatnets reproduce NAME`.

A result is a module with a `TITLE`, a function `plan` (its cells at a scale) and a function
`section` (tables and figures from finished cells). To add one, write such a module and list it in
`RESULTS`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from heatnets._core.atomic_files import Ledger, ledger, read_json, write
from heatnets._core.errors import HeatnetsError, InputError, check_choice
from heatnets.plotting import figures, html
from heatnets.reproduce import (
    claims,
    convergence,
    horizons,
    nonseparable,
    one_dim,
    semilinear,
    table_1,
    table_2,
    underdetermined,
)
from heatnets.reproduce.cells import Cell, compute
from heatnets.reproduce.compare import CellResults

RESULTS: dict[str, ModuleType] = {
    "one-dim": one_dim,
    "table-1": table_1,
    "horizons": horizons,
    "table-2": table_2,
    "underdetermined": underdetermined,
    "nonseparable": nonseparable,
    "convergence": convergence,
    "claims": claims,
    "semilinear": semilinear,
}
SCALES = ("quick", "paper")


class Watcher:
    """Observer of the progress of `run`; this base class does nothing."""

    def begin(self, name: str, cells: list[Cell], kept: int) -> None: ...
    def cell(self, cell: Cell, outcome: dict[str, Any], seconds: float) -> None: ...
    def failed(self, cell: Cell, error: Exception) -> None: ...
    def end(self, section: html.Section) -> None: ...

    progress: Callable[[str, int, int], None] | None = None


def run(names: list[str], scale: str, out: Path, watcher: Watcher | None = None) -> list[str]:
    """Compute all missing cells of some results; write JSON files, figures and the report.

    Args:
        names: names of results, keys of `RESULTS`.
        scale: "quick" or "paper".
        out: the output folder; finished cells in it are not computed again.
        watcher: receives the progress.

    Returns:
        The keys of cells that failed.
    """
    for name in names:
        check_choice("name", name, RESULTS)
    check_choice("scale", scale, SCALES)
    if out.exists() and not out.is_dir():
        raise InputError(f"`out` must be a folder; {out} is a file.")
    watcher = watcher or Watcher()
    out.mkdir(parents=True, exist_ok=True)
    failures = []
    for name in names:
        cells = RESULTS[name].plan(scale)
        with ledger(out / f"{name}.json", {"result": name, "scale": scale}) as done:
            missing = [cell for cell in cells if done.find(cell.key, cell.settings) is None]
            watcher.begin(name, missing, len(cells) - len(missing))
            for cell in missing:
                start = time.perf_counter()
                try:
                    outcome = compute(cell, watcher.progress)
                except HeatnetsError as error:
                    failures.append(f"{name}: {cell.key}")
                    watcher.failed(cell, error)
                    continue
                done.add(cell.key, cell.settings, outcome)
                watcher.cell(cell, outcome, time.perf_counter() - start)
            done.reorder([cell.key for cell in cells])
            section = _section(name, scale, done)
        for picture in section.pictures[:1]:
            for ending in ("png", "svg"):
                figures.save(picture.figure, out / f"{name}.{ending}")
        watcher.end(section)
        write(out / "report.html", report_page(out))
    return failures


def _section(name: str, scale: str, finished: Ledger) -> html.Section:
    """The section of a result, from finished cells whose settings agree with the current plan."""
    plan = RESULTS[name].plan(scale)
    outcomes = {cell.key: finished.find(cell.key, cell.settings) for cell in plan}
    results = CellResults(
        {key: outcome for key, outcome in outcomes.items() if outcome is not None}
    )
    return RESULTS[name].section(results, scale)


def sections(out: Path) -> list[html.Section]:
    """The sections of all results in a folder."""
    result = []
    for name in RESULTS:
        path = out / f"{name}.json"
        if path.exists():
            scale = check_choice("scale", read_json(path).get("scale"), SCALES)
            finished = Ledger(path, {"result": name, "scale": scale})
            result.append(_section(name, scale, finished))
    return result


def report_page(out: Path) -> str:
    """The HTML page of all results in a folder."""
    intro = (
        "The results of “HEATNETs: Explainable Random Feature Neural Networks for "
        "High-Dimensional Parabolic PDEs” (Georgiou, Fabiani, Siettos, "
        "Yannacopoulos), each beside the same set-up in this package and this package's default."
    )
    return html.page("The paper, reproduced", intro, sections(out))
