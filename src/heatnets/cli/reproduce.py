"""`heatnets reproduce`: the paper's tables and figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from heatnets._core.errors import InputError, NumericalError
from heatnets.cli import terminal
from heatnets.cli.exit_codes import exit_on_signals


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Results of the paper, see --list; or all.", show_default=False),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="quick: smaller sizes, minutes on two cores; paper: the paper's sizes, for a GPU."
        ),
    ] = "quick",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of JSON, figures and report.html.", show_default="reproduction-SCALE"
        ),
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Print the names and stop.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for machines.")
    ] = False,
) -> None:
    """Compute the paper's tables and figures, and compare them with the published ones.

    Finished parts are saved: run the command again to go on.
    """
    from heatnets import reproduce as results
    from heatnets.plotting.html import to_rich

    console = terminal.console(as_json)
    if show_list:
        for name, module in results.RESULTS.items():
            console.print(f"{name:16} {module.text['title']}", soft_wrap=True)
        return
    if not names:
        raise InputError(
            f"name a result: {', '.join(results.RESULTS)}, or all. "
            "`heatnets reproduce --list` says what each is."
        )
    selected = list(results.RESULTS) if names == ["all"] else names
    folder = out or Path(f"reproduction-{scale}")
    exit_on_signals(
        lambda: f"finished cells are kept in {folder}: the same command goes on from there"
    )
    watcher = _make_watcher(console, results.Watcher)
    try:
        failed = results.run(selected, scale, folder, watcher)
    finally:
        watcher.stop()
    for section in watcher.sections:
        for table in section.tables:
            console.print(f"\n{table.caption}", style="bold")
            console.print(*to_rich(table), sep="\n")
    page = folder / "report.html"
    console.print(f"report: {page}")
    if as_json:
        content = {
            "out": str(folder),
            "report": str(page),
            "results": selected,
            "scale": scale,
            "failed": failed,
        }
        print(json.dumps(content))
    if failed:
        raise NumericalError(
            f"{len(failed)} cells failed ({', '.join(failed)}); run again to try them again."
        )


def _make_watcher(console: Console, kind: type) -> Any:
    """A subclass of `reproduce.Watcher` that prints one line per cell.

    On a terminal it also shows a progress bar with a time estimate.
    """
    from rich.progress import Progress

    bars = Progress(
        *terminal.progress_columns(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
        speed_estimate_period=600,
    )

    class ConsoleWatcher(kind):
        def __init__(self) -> None:
            self.sections: list[Any] = []
            self.task: Any = None
            bars.start()

        def begin(self, name: str, cells: list[Any], kept: int) -> None:
            console.print(
                f"{name}: {len(cells)} cells to compute"
                + (f", {kept} kept from before" if kept else "")
            )
            self.task = bars.add_task(name, total=sum(cell.cost for cell in cells) or 1)

        def cell(self, cell: Any, outcome: dict[str, Any], seconds: float) -> None:
            errors, error_text = outcome.get("errors"), ""
            if errors:
                error_text = f"L2 {errors['l2']:.2e}"
            elif "l2" in outcome:
                error_text = f"L2 {min(outcome['l2']):.1e} … {max(outcome['l2']):.1e}"
            console.print(f"  {cell.key:32} {error_text:24} {seconds:7.1f} s")
            bars.update(self.task, advance=cell.cost)

        def failed(self, cell: Any, error: Exception) -> None:
            console.print(f"  {cell.key:32} failed: {error}")
            bars.update(self.task, advance=cell.cost)

        def end(self, section: Any) -> None:
            self.sections.append(section)
            bars.update(self.task, visible=False)

        def stop(self) -> None:
            bars.stop()

    return ConsoleWatcher()
