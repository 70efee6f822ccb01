"""`heatnets solve FILE --set name=1,2,3`: the same problem for several values, as one table."""

from __future__ import annotations

import itertools
import math
import shlex
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heatnets._core import atomic_files
from heatnets._core.errors import HeatnetsError, InputError, NumericalError
from heatnets.cli import point_files, terminal
from heatnets.cli.exit_codes import exit_on_signals
from heatnets.cli.tasks import INTERVAL, Task, check_apart, describe_point

_MOST = 1000  # problems of one sweep
_SHOWN = 3  # points whose values are printed
_WIDTH = 24  # of a value with its half-width
_COLUMNS = {"t", "x", *INTERVAL, "certified", "estimated_error", "features", "seconds", "solved"}
_COLUMNS |= {"result", "note"}


def run_sweep(
    file: Path,
    choices: list[dict[str, Any]],
    at: Path | None,
    arguments: Mapping[str, Any],
    target: Path,
    *,
    tables: tuple[Path, Path],
    console: Any,
    as_json: bool,
) -> None:
    """Solve a TOML file for all combinations of values; write results, a CSV and an HTML table.

    Args:
        file: the problem file.
        choices: values of keys of the file, one dictionary for each solve (`combinations`).
        at: file of points to certify, or None.
        arguments: keywords of `hn.solve` from the command line.
        target: the results are written beside it, with a number in their names.
        tables: the files of the table, CSV (or npz) and HTML.
        console: where lines are printed.
        as_json: also print the rows as JSON.
    """
    values, report = tables
    point_files.check_output(values, (".csv", ".npz"))
    point_files.check_output(report, (".html",))
    results = [target.with_stem(f"{target.stem}-{i}") for i in range(1, len(choices) + 1)]
    check_apart(file, at, values, report, *results)
    for path in results:
        atomic_files.check_writable(path)
    # Every problem is read before the first one is solved, so that mistakes are found at once.
    piped = sys.stdin.read() if str(at) == "-" else None
    with terminal.reading(console, file):
        tasks = [Task.read(file, at, arguments, changes, piped) for changes in choices]
    rows, failed = list[dict[str, Any]](), list[str]()
    exit_on_signals(
        lambda: (
            f"finished problems are kept, with their table {values}"
            if rows
            else "no problem was finished, nothing is kept"
        )
    )
    with (
        atomic_files.file_lock(values, "name another table with --values"),
        atomic_files.file_lock(target, "name other results with --out"),
    ):
        lines = _Lines(console, choices, tasks[0])
        for i, (changes, task, path) in enumerate(zip(choices, tasks, results, strict=True), 1):
            try:
                number = f"{i} of {len(tasks)}"
                made, is_good, verdict = _solve(task, changes, path, console, number)
            except HeatnetsError as error:
                verdict = f"Do not use: {error}"
                made, is_good = [{"set": changes, "verdict": verdict, "solved": False}], False
            rows += made
            if not is_good:
                failed.append(", ".join(f"{key} = {value}" for key, value in changes.items()))
            lines.add(made, verdict)
            point_files.save(values, _columns(rows))
    from heatnets.plotting import sweep_report

    command = shlex.join(["heatnets", *sys.argv[1:]])
    words = tasks[0].file.words
    atomic_files.write(report, sweep_report.page(file.stem, words, rows, command))
    console.print(f"table: {values}\nreport: {report}")
    if as_json:
        terminal.print_json({"table": str(values), "report": str(report), "rows": rows})
    if failed:
        raise NumericalError(
            f"{len(failed)} of {len(tasks)} problems were not solved as asked for: "
            f"{'; '.join(failed)}. See {values}."
        )


def combinations(settings: list[str]) -> list[dict[str, Any]]:
    """All combinations of the values of "name=1,2,3" texts, the last name varying fastest."""
    choices = dict[str, list[Any]]()
    for text in settings:
        key, equals, listed = text.partition("=")
        key = key.strip()
        chosen, hint = list[Any](), ""
        try:
            chosen = tomllib.loads(f"v = [{listed}]")["v"]
        except tomllib.TOMLDecodeError:
            hint = " Values are written as in TOML: 0.5, not .5; texts in quotes, 'a=\"mild\"'."
        if not (key and equals and chosen) or key in choices:
            raise InputError(
                "--set needs a name and its values, like --set a=1,2,3, each name once; "
                f"got {text!r}.{hint}"
            )
        choices[key] = chosen
    grid = [dict(zip(choices, v, strict=True)) for v in itertools.product(*choices.values())]
    if len(grid) > _MOST:
        raise InputError(
            f"--set asks for {len(grid)} problems; at most {_MOST} are solved at once."
        )
    return grid


class _Lines:
    """The table that is printed as it grows: the values that are set, u at the points, a verdict.

    Args:
        console: where it is printed.
        choices: the values of all problems.
        task: the first problem.
    """

    def __init__(self, console: Any, choices: list[dict[str, Any]], task: Task) -> None:
        from heatnets.pde.function_values import format_points

        self._console = console
        self._widths = {
            key: max(len(key), *(len(str(values[key])) for values in choices)) for key in choices[0]
        }
        points = format_points([(request.t, request.x) for request in task.requests])[:_SHOWN]
        for number, point in enumerate(points, 1):
            console.print(f"u {number}: u at {point}", soft_wrap=True)
        names = [f"u {number}" for number in range(1, len(points) + 1)]
        self._widths |= dict.fromkeys(names, _WIDTH)
        self._print([*self._widths, "verdict"])

    def add(self, rows: list[dict[str, Any]], verdict: str) -> None:
        """Print the line of one problem."""
        cells = [str(value) for value in rows[0]["set"].values()]
        shown = [_value(row["point"]) for row in rows if "point" in row][:_SHOWN]
        cells += shown + ["–"] * (len(self._widths) - len(cells) - len(shown))
        self._print([*cells, verdict])

    def _print(self, cells: list[str]) -> None:
        *padded, last = cells
        texts = [f"{c:<{w}}" for c, w in zip(padded, self._widths.values(), strict=True)]
        self._console.print("  ".join([*texts, last]), soft_wrap=True)


def _value(point: dict[str, Any]) -> str:
    """A certified value with its half-width; else why there is none."""
    from heatnets.certify.certificate import rounded

    if not point["certified"]:
        return "not certified"
    value = float(rounded(point["value"], point["halfwidth"]))
    return f"{value:.10g} ± {point['halfwidth']:.1g}"


def _solve(
    task: Task, changes: dict[str, Any], path: Path, console: Any, number: str
) -> tuple[list[dict[str, Any]], bool, str]:
    """Solve one problem, save it and certify its points.

    Returns:
        One row per point, at least one; whether all is as it was asked for: the problem solved,
        the tolerance met, all points certified; and a verdict in a sentence.
    """
    import heatnets as hn

    start = time.perf_counter()
    with terminal.SolveBar(console, task.checked, number) as progress:
        u = hn.solve(task.file.problem, progress=progress, **task.options)
    seconds = time.perf_counter() - start
    u.save(path)
    certificates, failed = task.certify(u, console)
    certified = [bool(cert.certified) for _, cert in certificates] + [False] * len(failed)
    summary = u.summary(seconds=seconds, certified=certified)
    facts = {
        "set": changes,
        "verdict": summary.sentence,
        "solved": u.solved is not False and u.stats["tolerance_met"] is not False and not failed,
        "failures": failed,
        "estimated_error": u.stats["estimated_error"],
        "features": sum(u.stats["features"]),
        "seconds": seconds,
        "result": str(path),
    }
    points = [describe_point(u, request, cert) for request, cert in certificates]
    is_good = bool(facts["solved"]) and all(certified)
    rows = [{**facts, "point": point} for point in points] or [facts]
    return rows, is_good, f"{summary.verdict} {seconds:.1f} s" if points else summary.sentence


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The columns of the CSV file."""
    import numpy as np

    def column(read: Any, missing: Any = math.nan) -> Any:
        values = [read(row) for row in rows]
        return [missing if value is None else value for value in values]

    def of_point(name: str) -> Any:
        return lambda row: row.get("point", {}).get(name)

    keys = rows[0]["set"]
    # A swept parameter may have the name of another column.
    names = {key: f"set_{key}" if key in _COLUMNS else key for key in keys}
    columns: dict[str, Any] = {names[key]: [row["set"][key] for row in rows] for key in keys}
    columns["t"] = column(of_point("t"))
    sizes = {len(point["x"]) for row in rows if (point := row.get("point"))}
    if len(sizes) == 1:  # one dimension in all problems
        blank = [math.nan] * sizes.pop()
        columns["x"] = np.array(column(of_point("x"), blank), float)
    columns |= {name: column(of_point(name)) for name in INTERVAL}
    columns["certified"] = column(of_point("certified"), False)
    for name in ("estimated_error", "features", "seconds"):
        columns[name] = column(lambda row, name=name: row.get(name))
    columns["solved"] = column(lambda row: row["solved"])
    columns["result"] = column(lambda row: row.get("result"), "")
    columns["note"] = [
        point_files.join_notes(
            "" if row["solved"] else row["verdict"],
            *row.get("failures", ()),
            *(of_point("reasons")(row) or ()),
        )
        for row in rows
    ]
    return columns
