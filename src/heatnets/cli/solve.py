"""`heatnets solve FILE`: solve the problem of a file, certify values, and write the result."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from heatnets._core import atomic_files
from heatnets._core.errors import InputError, NumericalError
from heatnets.cli import point_files, terminal
from heatnets.cli.exit_codes import exit_on_signals
from heatnets.cli.launch import connect, together
from heatnets.cli.sweep import combinations, run_sweep
from heatnets.cli.tasks import INTERVAL, Task, check_apart, describe_point, flag
from heatnets.cli.terminal import option

if TYPE_CHECKING:
    from heatnets._core.process_group import ProcessGroup
    from heatnets.certify.certificate import Certificate
    from heatnets.io.problem_files import CertifyRequest
    from heatnets.solution import Solution
    from heatnets.summary import SolveSummary

    CertifiedPoint = tuple[CertifyRequest, Certificate]


def solve(
    file: Annotated[
        Path,
        typer.Argument(help="A problem: TOML, or Python (.py), which is run.", show_default=False),
    ],
    *,
    out: Annotated[Path | None, option("The result.", "NAME.heatnets in this folder")] = None,
    at: Annotated[
        Path | None,
        option("CSV of points (t, x_1, ..., x_d) to certify, besides the file's; - is a pipe."),
    ] = None,
    tol: Annotated[
        float | None, option("Relative L2 error wanted; 0: as small as possible.", "0.001")
    ] = None,
    seconds: Annotated[float | None, option("Time limit of the solve.", "60")] = None,
    memory: Annotated[
        str | None, option("Most memory, like 4GiB.", "three quarters of what is free")
    ] = None,
    seed: Annotated[int | None, option("Fixes every random stream.", "0")] = None,
    device: terminal.Device = None,
    report: Annotated[Path | None, option("Write a page about it all (.html).")] = None,
    values: Annotated[Path | None, option("Write the certified values (.csv or .npz).")] = None,
    sweep: Annotated[
        list[str] | None,
        option(
            "Solve for several values of a parameter or key of a TOML file, like a=1,2,3: one "
            "table, NAME-sweep.csv and .html.",
            False,
            "--set",
        ),
    ] = None,
    resume: Annotated[bool, option("Go on after an interruption.", False, "--resume")] = False,
    distributed: Annotated[
        bool,
        option(
            "Solve together with the other processes that SLURM, Open MPI, Kubernetes or "
            "`heatnets launch` has started.",
            False,
            "--distributed",
        ),
    ] = False,
    quiet: Annotated[
        bool, option("Print nothing but warnings and errors.", False, "--quiet")
    ] = False,
    as_json: terminal.JsonFlag = False,
) -> None:
    """Solve the problem of a file, write the result, and certify values if points are given."""
    processes = connect() if distributed else None
    quiet = quiet or (processes is not None and processes.rank > 0)
    console = terminal.console(as_json, quiet)
    target = out or Path(f"{file.stem}.heatnets")
    atomic_files.check_writable(target)
    point_files.check_output(report, (".html",))
    point_files.check_output(values, (".csv", ".npz"))
    from heatnets.io.problem_files import size_in_bytes

    size = None if memory is None else size_in_bytes(memory)
    arguments = {"tol": tol, "seconds": seconds, "seed": seed, "memory": size, "device": device}
    arguments = {k: v for k, v in arguments.items() if v is not None}
    choices = combinations(sweep or [])
    if sweep and resume:
        raise InputError("--resume goes on with one solve: leave it out with --set.")
    if sweep and distributed:
        raise InputError("--distributed is for one solve: leave it out with --set.")
    with terminal.words_for(file) as translate:
        if not sweep:
            outputs = _Outputs(target, report, values, as_json)
            with processes.watch() if processes is not None else nullcontext():
                solved = _solve(
                    file,
                    at,
                    arguments,
                    outputs,
                    resume=resume,
                    console=console,
                    translate=translate,
                    processes=processes,
                )
            with together(processes):
                if processes is None or processes.rank == 0:
                    _present(file, solved, outputs, console, translate)
            return
        tables = values or Path(f"{file.stem}-sweep.csv"), report or Path(f"{file.stem}-sweep.html")
        run_sweep(
            file, choices, at, arguments, target, tables=tables, console=console, as_json=as_json
        )


class _Outputs(NamedTuple):
    """What a solve writes: its result, a page, a table of values, and JSON."""

    target: Path
    report: Path | None
    values: Path | None
    as_json: bool


class _Solved(NamedTuple):
    """A solution with its certificates."""

    task: Task
    u: Solution
    seconds: float
    certificates: list[CertifiedPoint]
    failed: list[str]  # messages about certificates that failed


def _solve(
    file: Path,
    at: Path | None,
    arguments: dict[str, Any],
    outputs: _Outputs,
    *,
    resume: bool,
    console: Any,
    translate: Callable[[str], str],
    processes: ProcessGroup | None,
) -> _Solved:
    """Solve the problem of a file, write the result, and certify values.

    Of several processes only the first writes and prints.

    Args:
        file: the problem file.
        at: the file of points, or None.
        arguments: keywords of `hn.solve`, which replace those of the file.
        outputs: what is written.
        resume: whether to go on after an interruption.
        console: where it is shown.
        translate: puts texts into the words of the problem file.
        processes: the processes that solve it together; None for this one alone.
    """
    import heatnets as hn

    target, report, values, _ = outputs
    with terminal.reading(console, file):
        task = Task.read(file, at, arguments)
    problem, options = task.file.problem, task.options
    check_apart(file, target, at, report, values)
    checkpoint, is_shared = target.with_name(f"{target.name}.part"), processes is not None
    is_first = processes is None or processes.rank == 0
    if is_shared:
        options["devices"] = "all"
    lock = atomic_files.file_lock(target, "name another result with --out")
    with lock if is_first else nullcontext():
        if is_first:
            _prepare_checkpoint(checkpoint, target, resume, console)
        if "features" not in options:
            options["checkpoint"] = checkpoint
        console.print(f"{problem!r}", soft_wrap=True)
        start = time.perf_counter()
        with terminal.SolveBar(console, task.checked) as progress:
            u = hn.solve(problem, progress=progress, **options)
        elapsed = time.perf_counter() - start
        if is_first:
            u.save(target)
            checkpoint.unlink(missing_ok=True)
        exit_on_signals(lambda: f"the solution is kept in {target}, its certificates are not")
        shared = u.with_devices("all") if is_shared else u
        certificates, failed = task.certify(shared, console, translate)
    return _Solved(task, u, elapsed, certificates, failed)


def _present(
    file: Path, solved: _Solved, outputs: _Outputs, console: Any, translate: Callable[[str], str]
) -> None:
    """Print the outcome, and write what was asked for; arguments as those of `_solve`."""
    (task, u, elapsed, certificates, failed), (target, report, values, as_json) = solved, outputs
    u = u.with_stats({"warnings": tuple(map(translate, u.stats["warnings"]))})
    notes = [translate(note) for note in task.file.problem.notes]
    summary = _summarise(u, elapsed, task.requests, certificates, target, notes)
    console.print(summary)
    if values is not None:
        point_files.save(values, _columns(u, certificates))
        console.print(f"values: {values}")
    if report is not None:
        from heatnets.plotting import solve_report

        page = solve_report.page(
            u,
            title=file.stem,
            stated=task.file.words,
            certificates=[(request.t, request.x, cert) for request, cert in certificates],
            reproduce=shlex.join(["heatnets", *(a for a in sys.argv[1:] if a != "--resume")]),
            summary=summary,
        )
        atomic_files.write(report, page)
        console.print(f"report: {report}")
    if as_json:
        content = _describe(u, summary, certificates)
        terminal.print_json({"result": str(target), "report": report and str(report), **content})
    _raise_failure(u, failed, certificates, target)


def _prepare_checkpoint(checkpoint: Path, target: Path, resume: bool, console: Any) -> None:
    """Remove the checkpoint of an earlier run, unless the solve resumes from it."""
    from heatnets._core import container

    if checkpoint.exists() and not resume:
        container.read(checkpoint, "checkpoint")  # never remove another kind of file
        console.print(
            f"an interrupted run's {checkpoint} is replaced (--resume would have gone on from it)"
        )
        checkpoint.unlink()
    elif resume and not checkpoint.exists() and target.exists():
        raise InputError(
            f"--resume has nothing to go on from: there is no {checkpoint}, and {target} is "
            "finished. It is left as it is. To solve again leave --resume out, or name another "
            f"result with --out; for more points: heatnets eval {target} --at FILE --certify."
        )
    elif resume and not checkpoint.exists():
        console.print(f"nothing to go on from: there is no {checkpoint}")
    command = shlex.join(["heatnets", *sys.argv[1:], *([] if resume else ["--resume"])])
    exit_on_signals(
        lambda: (
            f"finished rounds are kept in {checkpoint}; to go on: {command}"
            if checkpoint.exists()
            else "no round was finished, nothing is kept"
        )
    )


def _raise_failure(
    u: Solution, failed: list[str], certificates: list[CertifiedPoint], target: Path
) -> None:
    """Raise `NumericalError` (exit code 3) unless the solve and its certificates succeeded."""
    from heatnets.solution import why_unsolved

    if failed:
        raise NumericalError(f"{'; '.join(failed)}. The solution is kept in {target}.")
    if u.solved is False:
        raise NumericalError(
            f"{why_unsolved(u.stats)} What was found is kept in {target}; its values are none of u."
        )
    if u.stats["tolerance_met"] is False:
        raise NumericalError(
            "the tolerance was not met: the error is estimated at "
            f"{u.stats['estimated_error']:.2g}. What was found is in {target}."
        )
    doubts = [cert.reasons for _, cert in certificates if not cert.certified]
    if doubts:
        raise NumericalError(
            f"not certified: {len(doubts)} of {len(certificates)} points ({'; '.join(doubts[0])}). "
            f"The solution is kept in {target}."
        )


def _summarise(
    u: Solution,
    elapsed: float,
    requests: list[CertifyRequest],
    certificates: list[CertifiedPoint],
    target: Path,
    notes: list[str],
) -> SolveSummary:
    """The summary of a solve with its certified values; a request that failed is not certified."""
    from heatnets.pde.function_values import format_points

    more = dict[str, str]()
    points = format_points([(request.t, request.x) for request, _ in certificates])
    for number, (point, (request, cert)) in enumerate(zip(points, certificates, strict=True), 1):
        name = f"point {number}, {point}" if len(certificates) > 1 else f"u at {point}"
        text = cert.words(u.solved is not False)
        more[name] = point_files.join_notes(text, flag(u, request))
    certified = [bool(cert.certified) for _, cert in certificates]
    certified += [False] * (len(requests) - len(certificates))
    more["result"] = str(target)
    return u.summary(seconds=elapsed, certified=certified, more=more, notes=notes)


def _columns(u: Solution, certificates: list[CertifiedPoint]) -> dict[str, Any]:
    """The columns of the file `--values`."""
    import numpy as np

    points = [describe_point(u, *pair) for pair in certificates]
    notes = []
    for point, (_, cert) in zip(points, certificates, strict=True):
        network = "the network is not solved" if u.solved is False else cert.says_outside()
        notes.append(point_files.join_notes(*cert.reasons, network, point["note"]))
    x = np.array([point["x"] for point in points], float).reshape(len(points), u.problem.dim)
    return {
        "t": np.array([point["t"] for point in points], float),
        "x": x,
        **{name: np.array([point[name] for point in points], float) for name in INTERVAL},
        "certified": [point["certified"] for point in points],
        "note": notes,
    }


def _describe(
    u: Solution, summary: SolveSummary, certificates: list[CertifiedPoint]
) -> dict[str, Any]:
    """The summary of a solve in JSON types."""
    names = (
        "features rows time_degree design estimated_error tolerance_met stopped device seed "
        "warnings"
    )
    return {
        "dim": u.problem.dim,
        "seconds": summary.seconds,
        "solved": u.solved,
        "verdict": summary.verdict,
        "values": summary.values,
        **{name: u.stats[name] for name in names.split()},
        "certificates": [describe_point(u, *pair) for pair in certificates],
    }
