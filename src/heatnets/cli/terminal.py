"""What commands show: consoles, progress with a time estimate, tables of facts, warnings in words."""

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
    """Standard output; standard error where that is for machines. No colour when piped, or with NO_COLOR."""
    return Console(stderr=as_json, highlight=False, quiet=quiet, markup=False)


def facts(told: Mapping[str, Any]) -> Table:
    """Names and what there is to say of them."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in told.items():
        table.add_row(
            Text(name),
            Text(
                strip_control_characters(
                    ", ".join(map(str, text)) if isinstance(text, list | tuple) else str(text)
                )
            ),
        )
    return table


def finite(value: Any) -> Any:
    """With null for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: finite(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def strip_control_characters(text: str) -> str:
    """Text from a file without what a terminal would obey."""
    return "".join(c for c in text if c == "\n" or c == "\t" or c.isprintable())


def say_warnings() -> None:
    """From now on warnings of ours are one line on standard error, without a line of code."""

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any
    ) -> None:
        own = issubclass(category, HeatnetsWarning)
        print(
            f"heatnets: warning: {message}"
            if own
            else f"{filename}:{lineno}: {category.__name__}: {message}",
            file=sys.stderr,
        )

    warnings.showwarning = show  # type: ignore[assignment]


def columns() -> tuple[Any, ...]:
    """Of progress bars."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    return (TextColumn("{task.description:<16}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn(),
            TextColumn("left"), TimeRemainingColumn())  # fmt: skip


class ProgressBars:
    """Progress bars with a time estimate, one per phase; on a terminal only. Each round of a growth is a line of its own."""

    def __init__(self, screen: Console) -> None:
        from rich.progress import Progress

        self._progress = Progress(
            *columns(), console=screen, disable=not screen.is_terminal, transient=True
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Any:
        self._progress.start()
        return self._report

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _report(self, phase: str, done: int, total: int) -> None:
        if "estimated error" in phase:  # the summary of a round
            for task in self._tasks.values():
                self._progress.update(task, visible=False)
            self._tasks.clear()
            self._progress.console.print(phase)
            return
        if phase not in self._tasks:
            self._tasks[phase] = self._progress.add_task(phase, total=total)
        self._progress.update(self._tasks[phase], completed=done, total=total)
