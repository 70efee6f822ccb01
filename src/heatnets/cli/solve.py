"""`heatnets solve FILE`: solve the problem of a file, certify values, and write the result."""

from __future__ import annotations

import json
import math
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heatnets._core import atomic_files
from heatnets._core.errors import HeatnetsError, InputError, NumericalError
from heatnets.cli import point_files, terminal
from heatnets.cli.exit_codes import exit_on_signals

if TYPE_CHECKING:
    from heatnets.certify.values import Certificate
    from heatnets.io.problem_files import CertifyRequest, ProblemFile
    from heatnets.solution import Solution


def solve(
    file: Annotated[
        Path,
        typer.Argument(help="A problem: TOML, or Python (.py), which is run.", show_default=False),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The result.", show_default="NAME.heatnets in this folder")
    ] = None,
    at: Annotated[
        Path | None,
        typer.Option(
            help="CSV of points (t, x_1, ..., x_d) to certify, besides those of the file.",
            show_default=False,
        ),
    ] = None,
    tol: Annotated[
        float | None, typer.Option(help="Relative L2 error wanted.", show_default=False)
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Budget of the growth.", show_default="60")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="Most memory, like 4GiB.", show_default="three quarters of what is free"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Fixes every random stream.", show_default="0")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or gpu.", show_default="JAX's first")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page about it all (.html).", show_default=False)
    ] = None,
    values: Annotated[
        Path | None,
        typer.Option(help="Write the certified values (.csv or .npz).", show_default=False),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after an interruption.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing but warnings and errors.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for machines.")
    ] = False,
) -> None:
    """Solve the problem of a file, write the result, and certify values if points are given."""
    console = terminal.console(as_json, quiet)
    target = out or Path(f"{file.stem}.heatnets")
    atomic_files.check_writable(target)
    point_files.check_output(report, (".html",))
    point_files.check_output(values, (".csv", ".npz"))
    import heatnets as hn
    from heatnets._core import container
    from heatnets._core.execution import make_context
    from heatnets.io.problem_files import check_options, size_in_bytes
    from heatnets.solution import why_unsolved

    problem_file = hn.read(file)
    arguments = {
        "tol": tol,
        "seconds": seconds,
        "seed": seed,
        "memory": None if memory is None else size_in_bytes(memory),
    }
    options = {
        **problem_file.options,
        **{name: value for name, value in arguments.items() if value is not None},
    }
    requests = problem_file.points + _read_requests(at, problem_file)
    check_options(problem_file.problem, options)
    make_context(device)
    paths = [path.resolve() for path in (file, target, at, report, values) if path is not None]
    if len(set(paths)) < len(paths):
        raise InputError(
            "two of FILE, --out, --at, --report and --values are the same file: name them apart."
        )
    checkpoint = target.with_name(f"{target.name}.part")
    resume_command = shlex.join(["heatnets", *sys.argv[1:], *([] if resume else ["--resume"])])

    def saved_rounds() -> str:
        """The message after an interruption of the solve."""
        if checkpoint.exists():
            return f"finished rounds are kept in {checkpoint}; to go on: {resume_command}"
        return "no round was finished, nothing is kept"

    with atomic_files.file_lock(target, "name another result with --out"):
        if "features" not in options:
            options["checkpoint"] = checkpoint
        if checkpoint.exists() and not resume:
            container.read(checkpoint, "checkpoint")
            console.print(
                f"an interrupted run's {checkpoint} is replaced "
                "(--resume would have gone on from it)"
            )
            checkpoint.unlink()
        elif resume and not checkpoint.exists():
            console.print(f"nothing to go on from: there is no {checkpoint}")
        exit_on_signals(saved_rounds)
        console.print(f"{problem_file.problem!r}", soft_wrap=True)
        start = time.perf_counter()
        with terminal.ProgressBars(console) as progress:
            u = hn.solve(problem_file.problem, device=device, progress=progress, **options)
        elapsed = time.perf_counter() - start
        u.save(target)
        checkpoint.unlink(missing_ok=True)
        exit_on_signals(lambda: f"the solution is kept in {target}, its certificates are not")
        certificates, failed = [], list[str]()
        with terminal.ProgressBars(console) as progress:
            for request in requests:
                certify_options = {"seed": u.stats["seed"], **request.options}
                try:
                    cert = u.certify(request.t, request.x, progress=progress, **certify_options)
                    certificates.append((request, cert))
                except HeatnetsError as error:
                    failed.append(f"no certificate at t = {request.t:g}: {error}")
    _print_table(console, u, elapsed, certificates, target)
    if values is not None:
        point_files.save(values, _columns(problem_file, certificates, u.solved is not False))
        console.print(f"values: {values}")
    if report is not None:
        from heatnets.plotting import solve_report

        command = shlex.join(["heatnets", *(a for a in sys.argv[1:] if a != "--resume")])
        page = solve_report.page(
            u,
            title=file.stem,
            stated=problem_file.words,
            certificates=[(request.t, request.x, cert) for request, cert in certificates],
            reproduce=command,
            warnings=list(u.stats["warnings"]),
        )
        atomic_files.write(report, page)
        console.print(f"report: {report}")
    if as_json:
        content = _words(u, elapsed, certificates, target, report)
        print(json.dumps(terminal.replace_non_finite(content)))
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


def _read_requests(at: Path | None, problem_file: ProblemFile) -> list[CertifyRequest]:
    """The points of the file `--at` as requests to certify; none without a file."""
    from heatnets.io.problem_files import CertifyRequest

    if at is None:
        return []
    t, x = point_files.read(at, problem_file.problem)
    problem_file.problem.points(t, x)
    return [CertifyRequest(float(a), b, {}) for a, b in zip(t, x, strict=True)]


def _print_table(
    console: Any,
    u: Solution,
    elapsed: float,
    certificates: list[tuple[CertifyRequest, Certificate]],
    target: Path,
) -> None:
    """Print the summary of a solve: size, time, errors, certified values."""
    from heatnets.pde.function import place

    s = u.stats
    solved = u.solved is not False
    where = "at the point" if u.problem.region.single else "over the region"
    pairs = ", in pairs" if s["antithetic"] else ""
    compile_time = s["seconds"]["compile"]
    # After a resumed solve the compilation time includes the earlier run.
    if compile_time <= elapsed:
        time_note = f", of which {compile_time:.1f} compilation"
    else:
        time_note = " since it went on"
    if s["estimated_error"] is None:
        estimate = "none for a size that was given: u.error()"
    else:
        estimate = (
            f"{s['estimated_error']:.1e} (relative, root mean square {where}, "
            "by judges that had no part in the choice)"
        )
    facts = {
        "size": f"{s['features'][0]} + {s['features'][1]} features (initial condition + source), "
        f"{s['rows'][0]} rows, degree {s['time_degree']} in time",
        "design": f"{s['design']}{pairs}; solver {s['solver']}, rank {s['rank']}",
        "seconds": f"{elapsed:.1f}{time_note}, on {s['device']}",
        "stopped": s["stopped"] or "the size was given",
        "estimated error": estimate,
    }
    if not solved:
        facts = {
            "solved": "NOT SOLVED: no value of the network is shown",
            **facts,
            "estimated error": _error_text(s["estimated_error"]),
        }
    if s["tolerance_met"] is not None:
        facts["tolerance"] = "met" if s["tolerance_met"] else "NOT met"
    for number, (request, cert) in enumerate(certificates, 1):
        (flag,) = point_files.flags(u.problem, *_as_batch(request))
        point = place([request.t, request.x])
        name = f"point {number}, {point}" if len(certificates) > 1 else f"u at {point}"
        facts[name] = f"{cert.words(solved)}{f'; {flag}' if flag else ''}"
    facts["result"] = str(target)
    console.print(terminal.facts(facts))


def _error_text(error: float | None) -> str:
    """The estimated error as text."""
    return "not known" if error is None or not math.isfinite(error) else f"{error:.1e}"


def _may_show(cert: Certificate, solved: bool) -> bool:
    """Whether the value may be shown: it is certified, or the network solves the problem."""
    return solved or bool(cert.certified)


def _as_batch(request: CertifyRequest) -> tuple[Any, Any]:
    """t and x of one request with a leading axis of length one."""
    import numpy as np

    return np.array([request.t]), request.x[None]


def _columns(
    problem_file: ProblemFile,
    certificates: list[tuple[CertifyRequest, Certificate]],
    solved: bool = True,
) -> dict[str, Any]:
    """The columns of the file `--values`."""
    import numpy as np

    numbers = {
        name: np.array(
            [float(getattr(c, name)) if _may_show(c, solved) else np.nan for _, c in certificates]
        )
        for name in ("value", "low", "high", "halfwidth")
    }
    t = np.array([request.t for request, _ in certificates])
    x = np.array([request.x for request, _ in certificates]).reshape(len(certificates), -1)
    flags = point_files.flags(problem_file.problem, t, x) if certificates else []
    messages = [
        (*cert.reasons, cert.says_outside() if solved else "the network is not solved", flag)
        for (_, cert), flag in zip(certificates, flags, strict=True)
    ]
    notes = ["; ".join(filter(None, parts)) for parts in messages]
    return {
        "t": t,
        "x": x,
        **numbers,
        "certified": [bool(c.certified) for _, c in certificates],
        "note": notes,
    }


def _words(
    u: Solution,
    elapsed: float,
    certificates: list[tuple[CertifyRequest, Certificate]],
    target: Path,
    report: Path | None,
) -> dict[str, Any]:
    """The JSON object of `--json`."""
    s = u.stats
    solved = u.solved is not False

    def number(cert: Certificate, name: str, may_show: bool) -> float | None:
        return float(getattr(cert, name)) if may_show else None

    def certificate(request: CertifyRequest, cert: Certificate) -> dict[str, Any]:
        """The JSON object of one certified point."""
        interval = ("value", "low", "high", "halfwidth")
        return {
            "t": request.t,
            "x": request.x.tolist(),
            **{name: number(cert, name, _may_show(cert, solved)) for name in interval},
            "certified": bool(cert.certified),
            "network": number(cert, "network", solved),
            "outside": bool(cert.outside) if solved else None,
            "confidence": cert.confidence,
            "samples": int(cert.samples),
            "reasons": list(cert.reasons),
            "note": point_files.flags(u.problem, *_as_batch(request))[0],
        }

    names = (
        "features",
        "rows",
        "time_degree",
        "design",
        "estimated_error",
        "tolerance_met",
        "stopped",
        "device",
        "seed",
        "warnings",
    )
    return {
        "result": str(target),
        "dim": u.problem.dim,
        "seconds": elapsed,
        "solved": u.solved,
        **{name: s[name] for name in names},
        "certificates": [certificate(request, cert) for request, cert in certificates],
        "report": report and str(report),
    }
