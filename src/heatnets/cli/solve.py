"""`heatnets solve FILE`: solve the problem of a file, certify values, and write the result."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heatnets._core import atomic_files
from heatnets._core.errors import HeatnetsError, InputError, NumericalError
from heatnets.cli import point_files, terminal
from heatnets.cli.exit_codes import exit_on_signals
from heatnets.cli.terminal import option

if TYPE_CHECKING:
    from heatnets.certify.certificate import Certificate
    from heatnets.io.problem_files import CertifyRequest
    from heatnets.solution import Solution

    CertifiedPoint = tuple[CertifyRequest, Certificate]

_INTERVAL = ("value", "low", "high", "halfwidth")


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
    resume: Annotated[bool, option("Go on after an interruption.", False, "--resume")] = False,
    quiet: Annotated[
        bool, option("Print nothing but warnings and errors.", False, "--quiet")
    ] = False,
    as_json: terminal.JsonFlag = False,
) -> None:
    """Solve the problem of a file, write the result, and certify values if points are given."""
    console = terminal.console(as_json, quiet)
    target = out or Path(f"{file.stem}.heatnets")
    atomic_files.check_writable(target)
    point_files.check_output(report, (".html",))
    point_files.check_output(values, (".csv", ".npz"))
    with terminal.words_for(file) as translate:
        _solve(
            file,
            target,
            console,
            translate,
            at=at,
            report=report,
            values=values,
            resume=resume,
            as_json=as_json,
            arguments={
                "tol": tol,
                "seconds": seconds,
                "seed": seed,
                "memory": memory,
                "device": device,
            },
        )


def _solve(
    file: Path,
    target: Path,
    console: Any,
    translate: Callable[[str], str],
    *,
    at: Path | None,
    report: Path | None,
    values: Path | None,
    resume: bool,
    as_json: bool,
    arguments: dict[str, Any],
) -> None:
    """Solve the problem of a file; `arguments` are the keywords of `hn.solve` that were given."""
    import heatnets as hn
    from heatnets.io.problem_files import CertifyRequest, check_options, size_in_bytes

    problem_file = hn.read(file)
    problem, requests = problem_file.problem, list(problem_file.points)
    if arguments["memory"] is not None:
        arguments["memory"] = size_in_bytes(arguments["memory"])
    options = problem_file.options | {k: v for k, v in arguments.items() if v is not None}
    if at is not None:
        t, x, _ = problem.as_points(*point_files.read(at, problem))
        requests += [CertifyRequest(float(a), b, {}) for a, b in zip(t, x, strict=True)]
    check_options(problem, options)
    paths = [path.resolve() for path in (file, target, at, report, values) if path is not None]
    if len(set(paths)) < len(paths):
        raise InputError(
            "two of FILE, --out, --at, --report and --values are the same file: name them apart."
        )
    certificates, failed = list["CertifiedPoint"](), list[str]()
    with atomic_files.file_lock(target, "name another result with --out"):
        checkpoint = _prepare_checkpoint(target, resume, console)
        if "features" not in options:
            options["checkpoint"] = checkpoint
        console.print(f"{problem!r}", soft_wrap=True)
        start = time.perf_counter()
        with terminal.ProgressBars(console) as progress:
            u = hn.solve(problem, progress=progress, **options)
        elapsed = time.perf_counter() - start
        u.save(target)
        checkpoint.unlink(missing_ok=True)
        exit_on_signals(lambda: f"the solution is kept in {target}, its certificates are not")
        with terminal.ProgressBars(console) as progress:
            for request in requests:
                certify_options = {"seed": u.stats["seed"], **request.options}
                try:
                    cert = u.certify(request.t, request.x, progress=progress, **certify_options)
                    reasons = tuple(map(translate, cert.reasons))
                    certificates.append((request, replace(cert, reasons=reasons)))
                except HeatnetsError as error:
                    failed.append(f"no certificate at t = {request.t:g}: {error}")
    _print_summary(console, u, elapsed, certificates, target)
    if values is not None:
        point_files.save(values, _columns(u, certificates))
        console.print(f"values: {values}")
    if report is not None:
        from heatnets.plotting import solve_report

        warnings = [translate(text) for text in u.stats["warnings"]]
        page = solve_report.page(
            u.with_stats({"warnings": warnings}),
            title=file.stem,
            stated=problem_file.words,
            certificates=[(request.t, request.x, cert) for request, cert in certificates],
            reproduce=shlex.join(["heatnets", *(a for a in sys.argv[1:] if a != "--resume")]),
        )
        atomic_files.write(report, page)
        console.print(f"report: {report}")
    if as_json:
        content = _summary(u, elapsed, certificates)
        terminal.print_json({"result": str(target), "report": report and str(report), **content})
    _raise_failure(u, failed, certificates, target)


def _prepare_checkpoint(target: Path, resume: bool, console: Any) -> Path:
    """The checkpoint of a solve; one of an earlier run is removed unless the solve resumes."""
    from heatnets._core import container

    checkpoint = target.with_name(f"{target.name}.part")
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
    return checkpoint


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


def _print_summary(
    console: Any, u: Solution, elapsed: float, certificates: list[CertifiedPoint], target: Path
) -> None:
    """Print the summary of a solve: size, time, errors, certified values."""
    from heatnets.pde.function import format_points

    where = "at the point" if u.problem.region.is_point else "over the region"
    note = f"relative, root mean square {where}, on an independent test sample"
    facts = terminal.solve_facts(u.stats, note, elapsed)
    points = format_points([(request.t, request.x) for request, _ in certificates])
    for number, (point, (request, cert)) in enumerate(zip(points, certificates, strict=True), 1):
        name = f"point {number}, {point}" if len(certificates) > 1 else f"u at {point}"
        text = cert.words(u.solved is not False)
        facts[name] = point_files.join_notes(text, _flag(u, request))
    facts["result"] = str(target)
    terminal.print_table(console, facts)


def _flag(u: Solution, request: CertifyRequest) -> str:
    """A note if the point lies outside the region."""
    import numpy as np

    return point_files.flags(u.problem, np.array([request.t]), request.x[None])[0]


def _describe_point(u: Solution, request: CertifyRequest, cert: Certificate) -> dict[str, Any]:
    """A certified point in JSON types; None for a value that may not be shown.

    A value may be shown if it is certified, or if the network solves the problem.
    """
    solved, certified = u.solved is not False, bool(cert.certified)
    return {
        "t": request.t,
        "x": request.x.tolist(),
        **{k: float(getattr(cert, k)) if solved or certified else None for k in _INTERVAL},
        "certified": certified,
        "network": float(cert.network) if solved else None,
        "outside": bool(cert.outside) if solved else None,
        "confidence": cert.confidence,
        "samples": int(cert.samples),
        "reasons": list(cert.reasons),
        "note": _flag(u, request),
    }


def _columns(u: Solution, certificates: list[CertifiedPoint]) -> dict[str, Any]:
    """The columns of the file `--values`."""
    import numpy as np

    points = [_describe_point(u, *pair) for pair in certificates]
    notes = []
    for point, (_, cert) in zip(points, certificates, strict=True):
        network = "the network is not solved" if u.solved is False else cert.says_outside()
        notes.append(point_files.join_notes(*cert.reasons, network, point["note"]))
    x = np.array([point["x"] for point in points], float).reshape(len(points), u.problem.dim)
    return {
        "t": np.array([point["t"] for point in points], float),
        "x": x,
        **{name: np.array([point[name] for point in points], float) for name in _INTERVAL},
        "certified": [point["certified"] for point in points],
        "note": notes,
    }


def _summary(u: Solution, elapsed: float, certificates: list[CertifiedPoint]) -> dict[str, Any]:
    """The summary of a solve in JSON types."""
    names = (
        "features rows time_degree design estimated_error tolerance_met stopped device seed "
        "warnings"
    )
    return {
        "dim": u.problem.dim,
        "seconds": elapsed,
        "solved": u.solved,
        **{name: u.stats[name] for name in names.split()},
        "certificates": [_describe_point(u, *pair) for pair in certificates],
    }
