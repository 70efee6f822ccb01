"""Terminal output of commands: consoles, progress bars, tables of facts, warnings as lines."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from heatnets._core.errors import HeatnetsError, HeatnetsWarning


def option(text: str, default: str | bool = False, *names: str) -> Any:
    """An option with its help text; `default` is what the help shows as its default."""
    return typer.Option(*names, help=text, show_default=default)


# Options of several commands.
JsonFlag = Annotated[bool, option("Print one JSON object for machines.", False, "--json")]
Device = Annotated[str | None, option("cpu or gpu.", "JAX's first")]


def console(as_json: bool = False, quiet: bool = False) -> Console:
    """A console on standard output, or on standard error if standard output is for JSON.

    No colour if the output is piped, or with NO_COLOR.
    """
    return Console(stderr=as_json, highlight=False, quiet=quiet, markup=False)


def print_table(console: Console, values: Mapping[str, Any]) -> None:
    """Print a table of two columns, name and value; lists are joined by commas."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in values.items():
        text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        table.add_row(Text(name), Text(strip_control_characters(text)))
    console.print(table)


def print_json(value: Any) -> None:
    """Print one JSON object; inf and NaN, which JSON does not have, become null."""
    print(json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None)))


def solve_facts(s: Mapping[str, Any], note: str, elapsed: float | None = None) -> dict[str, Any]:
    """Size, method, time, end and estimated error of a solve, for a table.

    Args:
        s: the `stats` of the solution.
        note: what the estimated error is, to be shown after it.
        elapsed: seconds of the solve, if not the sum of its phases.
    """
    from heatnets.solution import is_solved

    facts = dict[str, Any]()
    if is_solved(s) is False:
        facts["solved"] = "NOT SOLVED: no value of the network is shown"
    compile_time, time_note = s["seconds"]["compile"], " since it went on"
    seconds = sum(s["seconds"].values()) if elapsed is None else elapsed
    # After a resumed solve the compilation time includes the earlier run.
    if compile_time <= seconds:
        time_note = f", of which {compile_time:.1f} compilation"
    error, estimate = s["estimated_error"], "none for a size that was given: u.error()"
    if error is not None:
        estimate = f"{error:.1e} ({note})" if math.isfinite(error) else "not known"
    facts |= {
        "size": f"{s['features'][0]} + {s['features'][1]} features (initial condition + source), "
        f"{s['rows'][0]} rows, degree {s['time_degree']} in time",
        "design": f"{s['design']}{', in pairs' if s['antithetic'] else ''}; "
        f"solver {s['solver']}, rank {s['rank']}",
        "seconds": f"{seconds:.1f}{time_note}, on {s['device']}",
        "stopped": s["stopped"] or "the size was given",
        "estimated error": estimate,
    }
    if s["tolerance_met"] is not None:
        facts["tolerance"] = "met" if s["tolerance_met"] else "NOT met"
    return facts


def strip_control_characters(text: str) -> str:
    """Remove control characters, which a terminal would execute, from a text of a file."""
    return "".join(c for c in text if c == "\n" or c == "\t" or c.isprintable())


def show_warnings_as_lines(translate: Callable[[str], str] = str) -> None:
    """Print warnings as one line on standard error, those of heatnets without a code location.

    Args:
        translate: applied to the texts of heatnets.
    """

    def show(message: Any, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
        is_own = issubclass(category, HeatnetsWarning)
        origin = "heatnets: warning" if is_own else f"{filename}:{lineno}: {category.__name__}"
        print(f"{origin}: {translate(str(message)) if is_own else message}", file=sys.stderr)

    warnings.showwarning = show  # type: ignore[assignment]


@contextmanager
def words_for(file: Path) -> Iterator[Callable[[str], str]]:
    """Warnings and errors about a problem file in its own words: TOML or Python.

    The value is the function that translates a text.
    """
    if file.suffix == ".py":
        yield str
        return
    from heatnets.io.toml_words import in_toml_words

    show_warnings_as_lines(in_toml_words)
    try:
        yield in_toml_words
    except HeatnetsError as error:
        error.args = (in_toml_words(str(error)),)
        raise
    finally:
        show_warnings_as_lines()


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
    """Progress bars with a time estimate, one per phase; lines if there is no terminal.

    A context manager; its value is a progress callback for `hn.solve`. Each round of an adaptive
    solve is printed as a line. Without a terminal long work is reported on standard error.
    """

    def __init__(self, console: Console) -> None:
        from rich.progress import Progress

        from heatnets._core.progress import ProgressLines

        self._progress = Progress(
            *progress_columns(), console=console, disable=not console.is_terminal, transient=True
        )
        self._tasks: dict[str, Any] = {}
        self._lines = None if console.is_terminal or console.quiet else ProgressLines()

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
        if self._lines is not None:
            self._lines(phase, done, total)
        if phase not in self._tasks:
            self._tasks[phase] = self._progress.add_task(phase, total=total)
        self._progress.update(self._tasks[phase], completed=done, total=total)
