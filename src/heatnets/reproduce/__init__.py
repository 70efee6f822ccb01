"""Reproduction of the paper's results and of semilinear benchmarks: `heatnets reproduce NAME`.

A result is a subclass of `Result`: its text, its sizes at each scale, its cells, tables and figure.
To add one, write such a class and list it in `RESULTS`.
"""

from __future__ import annotations

import time
from pathlib import Path

from heatnets._core.atomic_files import Ledger, ledger, read_json, write
from heatnets._core.errors import HeatnetsError, InputError, check_choice
from heatnets.plotting import figures, html
from heatnets.reproduce.cells import KINDS, Cell, Outcome, Progress, compute
from heatnets.reproduce.engine import SCALES, Result
from heatnets.reproduce.paper_figures import Convergence, OneDim
from heatnets.reproduce.paper_tables import QuotedTimes, Table1, Table2
from heatnets.reproduce.semilinear import Semilinear

RESULTS: dict[str, Result] = {
    name: kind(name)
    for name, kind in {
        "one-dim": OneDim,
        "table-1": Table1,
        "horizons": Result,
        "table-2": Table2,
        "underdetermined": Result,
        "nonseparable": Result,
        "convergence": Convergence,
        "claims": QuotedTimes,
        "semilinear": Semilinear,
    }.items()
}


class Watcher:
    """Observer of the progress of `run`; this base class does nothing."""

    def begin(self, name: str, cells: list[Cell], kept: int) -> None: ...
    def cell(self, cell: Cell, outcome: Outcome, seconds: float) -> None: ...
    def failed(self, cell: Cell, error: Exception) -> None: ...
    def end(self, section: html.Section) -> None: ...

    progress: Progress = None


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
            kept = _finished(cells, done)
            missing = [cell for cell in cells if cell.key not in kept and cell.kind in KINDS]
            watcher.begin(name, missing, len(kept))
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
            section = RESULTS[name].section(_finished(cells, done), scale)
        for ending in ("png", "svg"):
            figures.save(section.pictures[0].figure, out / f"{name}.{ending}")
        watcher.end(section)
        write(out / "report.html", report_page(out))
    return failures


def _finished(cells: list[Cell], done: Ledger) -> dict[str, Outcome]:
    """The outcomes of finished cells whose settings are those of the plan."""
    return {
        cell.key: outcome
        for cell in cells
        if (outcome := done.find(cell.key, cell.settings)) is not None
    }


def sections(out: Path) -> list[html.Section]:
    """The sections of all results in a folder."""
    result = []
    for name in RESULTS:
        path = out / f"{name}.json"
        if path.exists():
            scale = check_choice("scale", read_json(path).get("scale"), SCALES)
            finished = Ledger(path, {"result": name, "scale": scale})
            outcomes = _finished(RESULTS[name].plan(scale), finished)
            result.append(RESULTS[name].section(outcomes, scale))
    return result


def report_page(out: Path) -> str:
    """The HTML page of all results in a folder."""
    intro = (
        "The results of “HEATNETs: Explainable Random Feature Neural Networks for "
        "High-Dimensional Parabolic PDEs” (Georgiou, Fabiani, Siettos, "
        "Yannacopoulos), each beside the same set-up in this package and this package's default."
    )
    return html.page("The paper, reproduced", intro, sections(out))
