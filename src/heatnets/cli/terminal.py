"""Terminal output of commands: consoles, progress bars, tables of facts, warnings as lines."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

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
    from heatnets.summary import facts_table

    console.print(facts_table(values))


def print_json(value: Any) -> None:
    """Print one JSON object; inf and NaN, which JSON does not have, become null."""
    print(json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None)))


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

    return (*_bar_columns(TextColumn, BarColumn, TimeElapsedColumn), TimeRemainingColumn())


def _bar_columns(text: Any, bar: Any, elapsed: Any) -> tuple[Any, ...]:
    return (
        text("{task.description:<16}"),
        bar(),
        text("{task.percentage:>3.0f} %"),
        elapsed(),
        text("left"),
    )


@contextmanager
def reading(console: Console, file: Path) -> Iterator[None]:
    """Say on a terminal that a problem is read and checked: that takes a second or two."""
    if not console.is_terminal or console.quiet:
        yield
        return
    with console.status(f"reading {file}"):
        yield


class SolveBar:
    """One progress bar from 0 to 100 % for a solve, with the time left, if there is a terminal.

    A context manager; its value is a progress callback for `hn.solve`. Each round of an adaptive
    solve is printed as a line. Without a terminal long work is reported on standard error.

    Args:
        console: where it is shown.
        options: the checked options of the solve (`SolveOptions`).
        name: of the solve, if it is one of several: it stands before the phases. Rounds are then
            not printed.
    """

    def __init__(self, console: Console, options: Any, name: str = "") -> None:
        from heatnets._core.progress import SolveFraction

        grows = options.features is None
        self._model = SolveFraction(options.tol, options.seconds, options.max_rounds, grows=grows)
        self._bar, self._lines = _one_bar(console), _lines_without_terminal(console)
        self._name = name
        self._task = self._bar.add_task(self._with_name("preparing"), total=1.0, left="")

    def __enter__(self) -> Any:
        self._bar.start()
        return self._report

    def __exit__(self, *_: object) -> None:
        self._model.finish()
        self._show("solve")
        self._bar.stop()

    def _report(self, phase: str, done: int, total: int) -> None:
        """Update the bar; print the summary of a round."""
        from heatnets._core.execution import Summary

        self._model(phase, done, total)
        if not isinstance(phase, Summary):
            self._lines(self._with_name(phase), done, total)
        elif not self._name:
            self._bar.console.print(phase, soft_wrap=True)
        self._show("solve" if isinstance(phase, Summary) else phase)

    def _show(self, phase: str) -> None:
        left, model = self._model.seconds_left, self._model
        text = "" if left is None else f"{int(left) // 60}:{int(left) % 60:02d}"
        description = self._with_name(phase)
        self._bar.update(self._task, description=description, completed=model.fraction, left=text)

    def _with_name(self, phase: str) -> str:
        return f"{self._name}, {phase}" if self._name else phase


class CountBar:
    """One progress bar for a number of calls that each report progress: certificates, for example.

    A context manager; its value is a function: `next_call()` begins a call, and returns its
    progress callback.
    """

    def __init__(self, console: Console, name: str, total: int) -> None:
        self._bar, self._lines = _one_bar(console), _lines_without_terminal(console)
        self._task = self._bar.add_task(name, total=total, left="", visible=total > 0)
        self._started, self._total, self._calls = time.perf_counter(), total, 0

    def __enter__(self) -> Any:
        self._bar.start()
        return self._next_call

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _next_call(self) -> Any:
        from heatnets._core.execution import Summary

        before = self._calls
        self._calls += 1

        def report(phase: str, done: int, total: int) -> None:
            self._lines(phase, done, total)
            if isinstance(phase, Summary):
                return
            completed = before + done / max(total, 1)
            elapsed, left = time.perf_counter() - self._started, ""
            if completed:
                seconds = int(elapsed * (self._total - completed) / completed)
                left = f"{seconds // 60}:{seconds % 60:02d}"
            self._bar.update(self._task, completed=completed, left=left)

        return report


def _one_bar(console: Console) -> Any:
    """A progress display whose time left is the field `left` of its task."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = _bar_columns(TextColumn, BarColumn, TimeElapsedColumn)
    return Progress(
        *columns,
        TextColumn("{task.fields[left]}"),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


def _lines_without_terminal(console: Console) -> Any:
    """A progress callback: lines on standard error, or nothing on a terminal or if it is quiet."""
    from heatnets._core.progress import ProgressLines

    if console.is_terminal or console.quiet:
        return lambda phase, done, total: None
    return ProgressLines()
