"""The command line: `heatnets demo | reproduce | doctor`. Heavy imports happen inside the commands."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from heatnets import __version__, storage
from heatnets.errors import InputError, NumericalError, ResourceError

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Parabolic PDEs in high dimension.")


EXIT_CODES = {InputError: 2, NumericalError: 3, ResourceError: 4, OSError: 5}


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if show:
        print(f"heatnets {__version__}")
        raise typer.Exit


@app.command()
def demo(
    dim: Annotated[int, typer.Option(help="Number of space dimensions.")] = 100,
    seed: Annotated[int, typer.Option(help="Fixes every random stream.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the picture goes (.png, .svg or .pdf).")] = Path("heatnets-demo.png"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")] = False,
) -> None:
    """Solve a forced heat equation in 100 dimensions, measure the error, draw a picture."""
    if out.suffix not in (".png", ".svg", ".pdf") or not out.parent.is_dir():
        raise InputError(f"`out` must be a .png, .svg or .pdf file in a folder that exists; got {out}.")
    console = Console(stderr=as_json, highlight=False)
    console.print(f"u_t = Δu + F(t, x) in {dim} dimensions, u(t, x) = (t + e^-t) Σ sin(2 x_i) / √d known, 0 <= t <= 0.5")
    import heatnets as hn

    problem = hn.problems.get("oscillating", dim=dim)
    start = time.perf_counter()
    with _bars(console) as progress:
        u = hn.solve(problem, seed=seed, progress=progress)
    seconds = time.perf_counter() - start
    features, rows = u.stats["features"], u.stats["rows"]
    t, x = hn.random_points(problem, 1000, seed)
    exact = hn.exact_values(problem, t, x)
    errors = hn.relative_errors(u(t, x), exact)
    few = slice(100)
    direct = hn.relative_errors(
        hn.montecarlo.importance(problem, t[few], x[few], samples=2 * sum(features), seed=seed).value, exact[few]
    )
    hn.plots.save(hn.plots.line(u), out)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, text in {
        "features": f"{features[0]} + {features[1]} pairs (initial condition + source), directions {u.stats['design']}",
        "rows": f"{rows[0]} (the equation), the initial condition exactly",
        "least squares": f"{u.stats['solver']}, rank {u.stats['rank']}, condition {u.stats['condition']:.1e}",
        "time": f"{seconds:.1f} s, of which {u.stats['seconds']['compile']:.1f} s compilation, on {u.stats['device']}",
        "estimated error": f"{u.stats['estimated_error']:.1e} (relative L2, without the exact solution)",
        "relative L2 error": f"{errors.l2:.1e} at 1000 random points (L∞ {errors.linf:.1e})",
        "plain Monte Carlo": f"{direct.l2:.1e} with as many evaluations per point",
        "picture": str(out),
    }.items():
        table.add_row(name, text)
    console.print(table)
    if as_json:
        print(json.dumps({"dim": dim, "seed": seed, "features": features, "rows": rows, "seconds": seconds, "errors": errors._asdict(),
                          "estimated_error": u.stats["estimated_error"],
                          "monte_carlo": direct._asdict(), "picture": str(out)}))  # fmt: skip


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Results of the paper, see --list; or all.", show_default=False)
    ] = None,
    scale: Annotated[
        str, typer.Option(help="quick: smaller sizes, minutes on two cores; paper: the paper's sizes, for a GPU.")
    ] = "quick",
    out: Annotated[
        Path | None, typer.Option(help="Folder of JSON, figures and report.html.", show_default="reproduction-SCALE")
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Print the names and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")] = False,
) -> None:
    """Compute the paper's tables and figures, each beside this package's. What is finished is kept: run again to go on."""
    from heatnets import reproduce as results
    from heatnets.report import text

    console = Console(stderr=as_json, highlight=False)
    if show_list:
        for name, module in results.RESULTS.items():
            console.print(f"{name:16} {module.TITLE}", soft_wrap=True)
        return
    if not names:
        raise InputError(f"name a result: {', '.join(results.RESULTS)}, or all. `heatnets reproduce --list` says what each is.")
    chosen = list(results.RESULTS) if names == ["all"] else names
    folder = out or Path(f"reproduction-{scale}")
    _ends_at_once(f"finished cells are kept in {folder}: the same command goes on from there")
    watcher = _watch(console, results.Watcher)
    try:
        failed = results.run(chosen, scale, folder, watcher)
    finally:
        watcher.stop()
    for section in watcher.sections:
        for table in section.tables:
            console.print(f"\n{table.caption}", style="bold")
            console.print(*text(table), sep="\n")
    page = folder / "report.html"
    console.print(f"report: {page}")
    if as_json:
        print(json.dumps({"out": str(folder), "report": str(page), "results": chosen, "scale": scale, "failed": failed}))
    if failed:
        raise NumericalError(f"{len(failed)} cells failed ({', '.join(failed)}); run again to try them again.")


def _watch(console: Console, kind: type) -> Any:
    """A watcher of `reproduce.run` that prints a line per cell, with a bar and a time estimate below on a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:<16}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn(),
               TextColumn("left"), TimeRemainingColumn())  # fmt: skip
    bars = Progress(*columns, console=console, disable=not console.is_terminal, transient=True, speed_estimate_period=600)

    class Watch(kind):
        def __init__(self) -> None:
            self.sections: list[Any] = []
            self.task: Any = None
            bars.start()

        def begin(self, name: str, cells: list[Any], kept: int) -> None:
            console.print(f"{name}: {len(cells)} cells to compute" + (f", {kept} kept from before" if kept else ""))
            self.task = bars.add_task(name, total=sum(cell.cost for cell in cells) or 1)

        def cell(self, cell: Any, outcome: dict[str, Any], seconds: float) -> None:
            errors = outcome.get("errors")
            found = (
                f"L2 {errors['l2']:.2e}"
                if errors
                else f"L2 {min(outcome['l2']):.1e} … {max(outcome['l2']):.1e}"
                if "l2" in outcome
                else ""
            )
            console.print(f"  {cell.key:32} {found:24} {seconds:7.1f} s")
            bars.update(self.task, advance=cell.cost)

        def failed(self, cell: Any, error: Exception) -> None:
            console.print(f"  {cell.key:32} failed: {error}")
            bars.update(self.task, advance=cell.cost)

        def end(self, section: Any) -> None:
            self.sections.append(section)
            bars.update(self.task, visible=False)

        def stop(self) -> None:
            bars.stop()

    return Watch()


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")] = False) -> None:
    """Print devices, precision and versions, and check a small solve."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    import jax

    import heatnets as hn

    def look(name: str) -> str:
        try:
            return installed(name)
        except PackageNotFoundError:
            return "not installed as a package"

    problem = hn.problems.get("oscillating", dim=3)
    before = bool(jax.config.read("jax_enable_x64"))
    u = hn.solve(problem, features=(64, 128), rows=(600, 100), train_region=hn.Box(-3.2, 3.2))
    facts: dict[str, Any] = {
        "heatnets": __version__,
        "python": platform.python_version(),
        **{name: look(name) for name in ("jax", "jaxlib", "numpy", "scipy", "equinox", "folx", "matplotlib")},
        "devices": [f"{d.platform}: {d.device_kind}" for d in jax.devices()],
        "precision": f"{u(0.1, [0.0] * 3).dtype} inside; your jax_enable_x64 is {before} and stays so",
        "small solve": f"relative L2 error {hn.measure(u, 500).l2:.1e} (3 dimensions, 192 features)",
    }
    if as_json:
        print(json.dumps(facts))
        return
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, text in facts.items():
        table.add_row(name, ", ".join(text) if isinstance(text, list) else text)
    Console(highlight=False).print(table)


class _bars:
    """Progress bars with a time estimate, one per phase; silent when not on a terminal."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description:<16}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn(),
                   TextColumn("left"), TimeRemainingColumn())  # fmt: skip
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Any:
        self._progress.start()
        return self._report

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _report(self, phase: str, done: int, total: int) -> None:
        if phase.startswith("round") and "estimated error" in phase:  # the summary of a round, a line of its own
            self._progress.console.print(phase)
            return
        if phase not in self._tasks:
            self._tasks[phase] = self._progress.add_task(phase, total=total)
        self._progress.update(self._tasks[phase], completed=done, total=total)


def main() -> None:
    """Entry point: errors in words on standard error, exit codes 2 input, 3 numerical, 4 resources, 5 files, 130 interrupted."""
    _ends_at_once("nothing was written")
    try:
        code = app(standalone_mode=False)
    except tuple(EXIT_CODES) as error:
        sys.exit(_fail(str(error), next(code for kind, code in EXIT_CODES.items() if isinstance(error, kind))))
    except Exception as error:
        if hasattr(error, "format_message"):  # click's own usage errors
            if type(error).__name__ == "NoArgsIsHelpError":
                print(error.format_message())
                sys.exit(0)
            sys.exit(_fail(f"{error.format_message()} Try heatnets --help.", 2))
        raise
    sys.exit(code if isinstance(code, int) else 0)


def _ends_at_once(kept: str) -> None:
    """On Ctrl-C or SIGTERM say what is kept and end, there and then.

    An exception would be swallowed where it lands in one of JAX's callbacks, and crash the interpreter where XLA is still at work
    when it shuts down; files are whole or not there, so that nothing needs an orderly retreat but the terminal's cursor.
    """

    def end(number: int, _: Any) -> None:
        storage.abandon()
        with contextlib.suppress(RuntimeError):  # the signal came in the middle of a print
            sys.stdout.flush()
        cursor = "\x1b[?25h\n" if sys.stderr.isatty() else ""
        os.write(2, f"{cursor}heatnets: interrupted; {kept}\n".encode())
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _fail(message: str, code: int) -> int:
    print(f"heatnets: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
