"""Terminal output of commands: consoles, progress bars, tables of facts, warnings as lines."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from heatnets._core.errors import HeatnetsWarning


def console(as_json: bool = False, quiet: bool = False) -> Console:
    """A console on standard output, or on standard error if standard output is for JSON.

    No colour if the output is piped, or with NO_COLOR.
    """
    return Console(stderr=as_json, highlight=False, quiet=quiet, markup=False)


def facts(values: Mapping[str, Any]) -> Table:
    """A table of two columns, name and value; lists are joined by commas."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in values.items():
        text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        table.add_row(Text(name), Text(strip_control_characters(text)))
    return table


def replace_non_finite(value: Any) -> Any:
    """Replace inf and NaN, which JSON does not have, by None in nested dicts and lists."""
    if isinstance(value, dict):
        return {name: replace_non_finite(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def strip_control_characters(text: str) -> str:
    """Remove control characters, which a terminal would execute, from a text of a file."""
    return "".join(c for c in text if c == "\n" or c == "\t" or c.isprintable())


def show_warnings_as_lines() -> None:
    """Print warnings as one line on standard error, those of heatnets without a code location."""

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any
    ) -> None:
        if issubclass(category, HeatnetsWarning):
            line = f"heatnets: warning: {message}"
        else:
            line = f"{filename}:{lineno}: {category.__name__}: {message}"
        print(line, file=sys.stderr)

    warnings.showwarning = show  # type: ignore[assignment]


def progress_columns() -> tuple[Any, ...]:
    """The columns of a progress bar: phase, bar, per cent, time elapsed, time left."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    return (
        TextColumn("{task.description:<16}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )


class ProgressBars:
    """Progress bars with a time estimate, one per phase, if the console is a terminal.

    A context manager; its value is a progress callback for `hn.solve`. Each round of an adaptive
    solve is printed as a line.
    """

    def __init__(self, console: Console) -> None:
        from rich.progress import Progress

        self._progress = Progress(
            *progress_columns(), console=console, disable=not console.is_terminal, transient=True
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Any:
        self._progress.start()
        return self._report

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _report(self, phase: str, done: int, total: int) -> None:
        """Update the bar of a phase, or print the summary of a round."""
        from heatnets._core.execution import Summary

        if isinstance(phase, Summary):
            for task in self._tasks.values():
                self._progress.update(task, visible=False)
            self._tasks.clear()
            self._progress.console.print(phase)
            return
        if phase not in self._tasks:
            self._tasks[phase] = self._progress.add_task(phase, total=total)
        self._progress.update(self._tasks[phase], completed=done, total=total)
