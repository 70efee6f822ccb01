"""`heatnets eval | info | plot`: commands for result files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heatnets._core.errors import FileError, InputError, NumericalError, suggest
from heatnets._core.reasons import ReasonKind, is_kind
from heatnets.cli import point_files, terminal

if TYPE_CHECKING:
    from heatnets.solution import Solution

_VALUES = ("slices", "line", "evolution")  # pictures of u

Result = Annotated[
    Path,
    typer.Argument(
        help="A file that `heatnets solve` or `solution.save` wrote.", show_default=False
    ),
]
ProblemOption = Annotated[
    Path | None,
    typer.Option(
        "--problem",
        help="The problem's file, where that was Python; it is run.",
        show_default=False,
    ),
]
Device = Annotated[str | None, typer.Option(help="cpu or gpu.", show_default="JAX's first")]


def _load(result: Path, problem: Path | None, device: str | None) -> Solution:
    """Load the solution of a result file, with the problem of a problem file if there is one."""
    import heatnets as hn

    return hn.load(result, None if problem is None else hn.read(problem).problem, device=device)


def evaluate(
    result: Result,
    at: Annotated[
        Path,
        typer.Option(
            help="CSV of points (t, x_1, ..., x_d; or t, x for all coordinates), "
            "or npz with t and x.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Where values go (.csv or .npz).", show_default="standard output"),
    ] = None,
    certify: Annotated[
        bool, typer.Option("--certify", help="With 95 % intervals of the true values.")
    ] = False,
    gradient: Annotated[bool, typer.Option("--gradient", help="With the gradient.")] = False,
    problem: ProblemOption = None,
    device: Device = None,
) -> None:
    """Values of a solution at points, as CSV."""
    import numpy as np

    point_files.check_output(out, (".csv", ".npz"))
    u = _load(result, problem, device)
    t, x = point_files.read(at, u.problem)
    notes = point_files.flags(u.problem, t, x)
    valid = np.array([not is_kind(note, ReasonKind.OUTSIDE_HORIZON) for note in notes])
    columns: dict[str, Any] = {
        "row": np.arange(1, len(t) + 1),
        "t": t,
        "value": np.full(len(t), np.nan),
    }
    solved = u.solved is not False
    if np.any(valid):
        columns["value"][valid] = u(t[valid], x[valid]) if solved else np.nan
        if certify:
            cert = u.certify(t[valid], x[valid])
            for name in ("value", "low", "high"):
                column = f"certified_{name}" if name == "value" else name
                columns[column] = np.full(len(t), np.nan)
                # Without a solved network only certified values are shown.
                numbers = np.where(cert.certified | solved, getattr(cert, name), np.nan)
                columns[column][valid] = numbers
            columns["certified"] = np.zeros(len(t), bool)
            columns["certified"][valid] = cert.certified
            for k, (i, reasons) in enumerate(zip(np.flatnonzero(valid), cert.reasons, strict=True)):
                outside = cert.says_outside(k) if solved else ""
                notes[i] = "; ".join(filter(None, (notes[i], *reasons, outside)))
        if gradient:
            columns["gradient"] = np.full(x.shape, np.nan)
            columns["gradient"][valid] = u.gradient(t[valid], x[valid]) if solved else np.nan
    if not solved:
        warning = "not solved: no value of the network"
        notes = ["; ".join(filter(None, (warning, note))) for note in notes]
    columns["note"] = notes
    if out is None:
        print(point_files.as_csv(columns), end="")
    else:
        point_files.save(out, columns)
        terminal.console(as_json=True).print(
            f"{len(t)} values: {out}"
            + (f", {sum(map(bool, notes))} with a note" if any(notes) else "")
        )
    _check_solved(result, u.stats)


def _check_solved(result: Path, stats: Any) -> None:
    """Raise `NumericalError` (exit code 3) if the problem was not solved; called at the end."""
    from heatnets.solution import why_unsolved

    if reason := why_unsolved(stats):
        raise NumericalError(f"{result}: {reason}")


def info(
    result: Result,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for machines.")
    ] = False,
) -> None:
    """Print the description stored in a result file. Nothing is computed, no code in it is run."""
    import heatnets as hn

    manifest = hn.info(result)
    try:
        _print_manifest(result, manifest, as_json)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise FileError(
            f"{result} is no complete result ({type(error).__name__}: {error})."
        ) from None
    _check_solved(result, manifest["stats"])


def _print_manifest(result: Path, manifest: dict[str, Any], as_json: bool) -> None:
    """Print the manifest of a result file as JSON or as a table."""
    from heatnets.solution import is_solved

    s, origin = manifest["stats"], manifest["origin"]
    solved = is_solved(s)
    if as_json:
        content = {
            name: value for name, value in manifest.items() if name not in ("fingerprint", "parts")
        }
        print(json.dumps(terminal.replace_non_finite({**content, "solved": solved})))
        return
    console = terminal.console()
    if origin is None:
        source = "Python functions (give the problem again to evaluate)"
    else:
        source = f"named {origin['named']}" if "named" in origin else "TOML, kept inside"
    error = s["estimated_error"]
    facts = {
        "problem": manifest["problem"],
        "stated as": source,
        "features": f"{s['features'][0]} + {s['features'][1]}, directions {s['design']}",
        "rows": s["rows"][0],
        "estimated error": _error_text(error, solved),
        "tolerance met": s["tolerance_met"],
        "stopped": s["stopped"],
        "seconds": f"{sum(s['seconds'].values()):.1f} on {s['device']}",
        "seed": s["seed"],
        "made with": f"heatnets {manifest['heatnets']}, jax {manifest['jax']}",
        "warnings": s["warnings"] or "none",
        "bytes": result.stat().st_size,
    }
    console.print(
        terminal.facts({name: value for name, value in facts.items() if value is not None})
    )
    if origin and "toml" in origin:
        console.print("\n" + terminal.strip_control_characters(origin["toml"].rstrip()))


def _error_text(error: float | None, solved: bool | None) -> str:
    """The estimated error as text."""
    if error is None:
        text = "not estimated"
    else:
        text = f"{error:.1e}" if math.isfinite(error) else "not known"
    return f"{text}: NOT SOLVED" if solved is False else text


def plot(
    result: Result,
    kind: Annotated[
        str, typer.Option(help="slices, line, evolution, residuals, weights or history; or all.")
    ] = "slices",
    out: Annotated[
        Path | None,
        typer.Option(
            help="The picture (.png, .svg or .pdf); for all, its name before -KIND.",
            show_default="RESULT-KIND.png",
        ),
    ] = None,
    dark: Annotated[bool, typer.Option("--dark", help="For a dark page.")] = False,
    problem: ProblemOption = None,
    device: Device = None,
) -> None:
    """Draw a solution: slices with error bands, evolution, residuals, weights, solver history."""
    from heatnets.plotting import figures

    if kind != "all" and kind not in figures.KINDS:
        raise InputError(f"unknown kind {kind!r}; {suggest(kind, (*figures.KINDS, 'all'))}")
    point_files.check_output(out, (".png", ".svg", ".pdf"))
    u = _load(result, problem, device)
    console = terminal.console()
    for name in figures.KINDS if kind == "all" else (kind,):
        if out is None:
            path = Path(f"{result.stem}-{name}.png")
        else:
            path = out.with_stem(f"{out.stem}-{name}") if kind == "all" else out
        try:
            if u.solved is False and name in _VALUES:
                raise NumericalError(
                    "not solved: no value of the network is drawn; --kind history shows its growth."
                )
            figure = figures.KINDS[name](u)
        except (InputError, NumericalError) as error:
            if kind != "all":
                raise
            console.print(f"{name}: {error}", soft_wrap=True)
            continue
        console.print(str(figures.save(figure, path, dark=dark)))
    _check_solved(result, u.stats)
