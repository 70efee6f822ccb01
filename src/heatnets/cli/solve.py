"""`heatnets solve FILE`: a problem stated in a file, solved, certified where asked, and kept."""

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
from heatnets.cli.exit_codes import ends_at_once

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
    """Solve the problem that a file states; write the result, and its value with an interval where asked for."""
    console = terminal.console(as_json, quiet)
    target = out or Path(f"{file.stem}.heatnets")
    atomic_files.check_writable(target)
    point_files.check_place(report, (".html",))
    point_files.check_place(values, (".csv", ".npz"))
    import heatnets as hn
    from heatnets._core import container
    from heatnets._core.execution import make_context
    from heatnets.io.problem_files import check_options, size_in_bytes
    from heatnets.solution import why_unsolved

    statement = hn.read(file)
    given = {
        "tol": tol,
        "seconds": seconds,
        "seed": seed,
        "memory": None if memory is None else size_in_bytes(memory),
    }
    options = {
        **statement.options,
        **{name: value for name, value in given.items() if value is not None},
    }
    wanted = statement.points + _asked(at, statement)
    check_options(statement.problem, options)
    make_context(device)
    places = [path.resolve() for path in (file, target, at, report, values) if path is not None]
    if len(set(places)) < len(places):
        raise InputError(
            "two of FILE, --out, --at, --report and --values are the same file: name them apart."
        )
    part = target.with_name(f"{target.name}.part")
    again = shlex.join(["heatnets", *sys.argv[1:], *([] if resume else ["--resume"])])
    with atomic_files.alone(target, "name another result with --out"):
        if "features" not in options:
            options["checkpoint"] = part
        if part.exists() and not resume:
            container.read(part, "checkpoint")
            console.print(
                f"an interrupted run's {part} is replaced (--resume would have gone on from it)"
            )
            part.unlink()
        elif resume and not part.exists():
            console.print(f"nothing to go on from: there is no {part}")
        ends_at_once(
            lambda: (
                f"finished rounds are kept in {part}; to go on: {again}"
                if part.exists()
                else "no round was finished, nothing is kept"
            )
        )
        console.print(f"{statement.problem!r}", soft_wrap=True)
        start = time.perf_counter()
        with terminal.ProgressBars(console) as progress:
            u = hn.solve(statement.problem, device=device, progress=progress, **options)
        took = time.perf_counter() - start
        u.save(target)
        part.unlink(missing_ok=True)
        ends_at_once(lambda: f"the solution is kept in {target}, its certificates are not")
        certificates, failed = [], list[str]()
        with terminal.ProgressBars(console) as progress:
            for w in wanted:
                try:
                    certificates.append(
                        (
                            w,
                            u.certify(
                                w.t,
                                w.x,
                                progress=progress,
                                **{"seed": u.stats["seed"], **w.options},
                            ),
                        )
                    )
                except HeatnetsError as error:
                    failed.append(f"no certificate at t = {w.t:g}: {error}")
    _show(console, u, took, certificates, target)
    if values is not None:
        point_files.save(values, _columns(statement, certificates, u.solved is not False))
        console.print(f"values: {values}")
    if report is not None:
        from heatnets.plotting import solve_report

        told = [(w.t, w.x, c) for w, c in certificates]
        command = shlex.join(["heatnets", *(a for a in sys.argv[1:] if a != "--resume")])
        page = solve_report.page(
            u,
            title=file.stem,
            stated=statement.words,
            certificates=told,
            reproduce=command,
            warnings=list(u.stats["warnings"]),
        )
        atomic_files.write(report, page)
        console.print(f"report: {report}")
    if as_json:
        print(json.dumps(terminal.finite(_words(u, took, certificates, target, report))))
    if failed:
        raise NumericalError(f"{'; '.join(failed)}. The solution is kept in {target}.")
    if u.solved is False:
        raise NumericalError(
            f"{why_unsolved(u.stats)} What was found is kept in {target}; its values are none of u."
        )
    if u.stats["tolerance_met"] is False:
        raise NumericalError(
            f"the tolerance was not met: the error is estimated at {u.stats['estimated_error']:.2g}. What was found is in {target}."
        )


def _asked(at: Path | None, statement: ProblemFile) -> list[CertifyRequest]:
    from heatnets.io.problem_files import CertifyRequest

    if at is None:
        return []
    t, x = point_files.read(at, statement.problem)
    statement.problem.points(t, x)
    return [CertifyRequest(float(a), b, {}) for a, b in zip(t, x, strict=True)]


def _show(
    console: Any,
    u: Solution,
    took: float,
    certificates: list[tuple[CertifyRequest, Certificate]],
    target: Path,
) -> None:
    """The table at the end."""
    from heatnets.pde.function import place

    s = u.stats
    good = u.solved is not False
    compiled, where = (
        s["seconds"]["compile"],
        "at the point" if u.problem.region.single else "over the region",
    )
    told = {
        "size": f"{s['features'][0]} + {s['features'][1]} features (initial condition + source), {s['rows'][0]} rows, degree {s['time_degree']} in time",
        "design": f"{s['design']}{', in pairs' if s['antithetic'] else ''}; solver {s['solver']}, rank {s['rank']}",
        "seconds": f"{took:.1f}{f', of which {compiled:.1f} compilation' if compiled <= took else ' since it went on'}, on {s['device']}",
        "stopped": s["stopped"] or "the size was given",
        "estimated error": "none for a size that was given: u.error()" if s["estimated_error"] is None else f"{s['estimated_error']:.1e} (relative, root mean square {where}, by judges that had no part in the choice)",
    }  # fmt: skip
    if not good:
        told = {
            "solved": "NOT SOLVED: no value of the network is shown",
            **told,
            "estimated error": _estimate(s["estimated_error"]),
        }
    if s["tolerance_met"] is not None:
        told["tolerance"] = "met" if s["tolerance_met"] else "NOT met"
    for number, (wanted, sure) in enumerate(certificates, 1):
        (flag,) = point_files.flags(u.problem, *_one(wanted))
        name = (
            f"point {number}, {place([wanted.t, wanted.x])}"
            if len(certificates) > 1
            else f"u at {place([wanted.t, wanted.x])}"
        )
        told[name] = f"{sure.words(good)}{f'; {flag}' if flag else ''}"
    told["result"] = str(target)
    console.print(terminal.facts(told))


def _estimate(error: float | None) -> str:
    return "not known" if error is None or not math.isfinite(error) else f"{error:.1e}"


def _kept(sure: Certificate, solved: bool) -> bool:
    """Whether the value may be shown: it is certified, or rests on a network that solves something."""
    return solved or bool(sure.certified)


def _one(wanted: CertifyRequest) -> tuple[Any, Any]:
    import numpy as np

    return np.array([wanted.t]), wanted.x[None]


def _columns(
    statement: ProblemFile,
    certificates: list[tuple[CertifyRequest, Certificate]],
    solved: bool = True,
) -> dict[str, Any]:
    import numpy as np

    numbers = {
        name: np.array(
            [float(getattr(c, name)) if _kept(c, solved) else np.nan for _, c in certificates]
        )
        for name in ("value", "low", "high", "halfwidth")
    }
    t, x = (
        np.array([w.t for w, _ in certificates]),
        np.array([w.x for w, _ in certificates]).reshape(len(certificates), -1),
    )
    notes = point_files.flags(statement.problem, t, x) if certificates else []
    told = [
        (*c.reasons, c.says_outside() if solved else "the network is not solved", note)
        for (_, c), note in zip(certificates, notes, strict=True)
    ]
    reasons = ["; ".join(filter(None, words)) for words in told]
    return {
        "t": t,
        "x": x,
        **numbers,
        "certified": [bool(c.certified) for _, c in certificates],
        "note": reasons,
    }


def _words(
    u: Solution,
    took: float,
    certificates: list[tuple[CertifyRequest, Certificate]],
    target: Path,
    report: Path | None,
) -> dict[str, Any]:
    s = u.stats
    good = u.solved is not False

    def shown(c: Certificate, name: str, there: bool) -> float | None:
        return float(getattr(c, name)) if there else None

    told = [
        {"t": w.t, "x": w.x.tolist(), **{name: shown(c, name, _kept(c, good)) for name in ("value", "low", "high", "halfwidth")}, "certified": bool(c.certified),
         "network": shown(c, "network", good), "outside": bool(c.outside) if good else None, "confidence": c.confidence, "samples": int(c.samples), "reasons": list(c.reasons), "note": point_files.flags(u.problem, *_one(w))[0]}
        for w, c in certificates
    ]  # fmt: skip
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
        "seconds": took,
        "solved": u.solved,
        **{name: s[name] for name in names},
        "certificates": told,
        "report": report and str(report),
    }
