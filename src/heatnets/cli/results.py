"""`heatnets eval | info | plot`: results that were kept."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heatnets._core.errors import FileError, InputError, NumericalError, suggest
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
Stated = Annotated[
    Path | None,
    typer.Option(
        "--problem",
        help="The problem's file, where that was Python; it is run.",
        show_default=False,
    ),
]
Device = Annotated[str | None, typer.Option(help="cpu or gpu.", show_default="JAX's first")]


def _solution(result: Path, problem: Path | None, device: str | None) -> Solution:
    import heatnets as hn

    return hn.load(result, None if problem is None else hn.read(problem).problem, device=device)


def evaluate(
    result: Result,
    at: Annotated[
        Path,
        typer.Option(
            help="CSV of points (t, x_1, ..., x_d; or t, x for all coordinates), or npz with t and x.",
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
    problem: Stated = None,
    device: Device = None,
) -> None:
    """Values of a solution at points, as CSV."""
    import numpy as np

    point_files.check_place(out, (".csv", ".npz"))
    u = _solution(result, problem, device)
    t, x = point_files.read(at, u.problem)
    notes = point_files.flags(u.problem, t, x)
    here = np.array([not note.startswith("no value") for note in notes])
    columns: dict[str, Any] = {
        "row": np.arange(1, len(t) + 1),
        "t": t,
        "value": np.full(len(t), np.nan),
    }
    solved = u.solved is not False
    if np.any(here):
        columns["value"][here] = u(t[here], x[here]) if solved else np.nan
        if certify:
            sure = u.certify(t[here], x[here])
            for name in ("value", "low", "high"):
                columns[f"certified_{name}" if name == "value" else name] = np.full(len(t), np.nan)
                shown = np.where(sure.certified | solved, getattr(sure, name), np.nan)
                columns[f"certified_{name}" if name == "value" else name][here] = shown
            columns["certified"] = np.zeros(len(t), bool)
            columns["certified"][here] = sure.certified
            for k, (i, reasons) in enumerate(zip(np.flatnonzero(here), sure.reasons, strict=True)):
                notes[i] = "; ".join(
                    filter(None, (notes[i], *reasons, sure.says_outside(k) if solved else ""))
                )
        if gradient:
            columns["gradient"] = np.full(x.shape, np.nan)
            columns["gradient"][here] = u.gradient(t[here], x[here]) if solved else np.nan
    notes = (
        notes
        if solved
        else [
            "; ".join(filter(None, ("not solved: no value of the network", note))) for note in notes
        ]
    )
    columns["note"] = notes
    if out is None:
        print(point_files.as_csv(columns), end="")
    else:
        point_files.save(out, columns)
        terminal.console(as_json=True).print(
            f"{len(t)} values: {out}"
            + (f", {sum(map(bool, notes))} with a note" if any(notes) else "")
        )
    _end(result, u.stats)


def _end(result: Path, stats: Any) -> None:
    """Exit code 3 where the solve ended as not solved, whatever was shown of it."""
    from heatnets.solution import why_unsolved

    if words := why_unsolved(stats):
        raise NumericalError(f"{result}: {words}")


def info(
    result: Result,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for machines.")
    ] = False,
) -> None:
    """What a result says of itself. Nothing is computed, nothing in it is run."""
    import heatnets as hn

    told = hn.info(result)
    try:
        _tell(result, told, as_json)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise FileError(
            f"{result} is no complete result ({type(error).__name__}: {error})."
        ) from None
    _end(result, told["stats"])


def _tell(result: Path, told: dict[str, Any], as_json: bool) -> None:
    from heatnets.solution import is_solved

    s, origin = told["stats"], told["origin"]
    solved = is_solved(s)
    if as_json:
        kept = {name: value for name, value in told.items() if name not in ("fingerprint", "parts")}
        print(json.dumps(terminal.finite({**kept, "solved": solved})))
        return
    console = terminal.console()
    source = (
        "Python functions (give the problem again to evaluate)"
        if origin is None
        else f"named {origin['named']}"
        if "named" in origin
        else "TOML, kept inside"
    )
    error = s["estimated_error"]
    shown = {
        "problem": told["problem"], "stated as": source, "features": f"{s['features'][0]} + {s['features'][1]}, directions {s['design']}",
        "rows": s["rows"][0], "estimated error": _estimate(error, solved), "tolerance met": s["tolerance_met"], "stopped": s["stopped"],
        "seconds": f"{sum(s['seconds'].values()):.1f} on {s['device']}", "seed": s["seed"], "made with": f"heatnets {told['heatnets']}, jax {told['jax']}",
        "warnings": s["warnings"] or "none", "bytes": result.stat().st_size,
    }  # fmt: skip
    console.print(
        terminal.facts({name: value for name, value in shown.items() if value is not None})
    )
    if origin and "toml" in origin:
        console.print("\n" + terminal.strip_control_characters(origin["toml"].rstrip()))


def _estimate(error: float | None, solved: bool | None) -> str:
    known = (
        "not estimated"
        if error is None
        else f"{error:.1e}"
        if math.isfinite(error)
        else "not known"
    )
    return f"{known}: NOT SOLVED" if solved is False else known


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
    problem: Stated = None,
    device: Device = None,
) -> None:
    """Draw a solution: slices with error bands, its evolution, residuals, weights, the history of its growth."""
    from heatnets.plotting import figures

    if kind != "all" and kind not in figures.KINDS:
        raise InputError(f"unknown kind {kind!r}; {suggest(kind, (*figures.KINDS, 'all'))}")
    point_files.check_place(out, (".png", ".svg", ".pdf"))
    u = _solution(result, problem, device)
    console = terminal.console()
    for name in figures.KINDS if kind == "all" else (kind,):
        place = (
            Path(f"{result.stem}-{name}.png")
            if out is None
            else out.with_stem(f"{out.stem}-{name}")
            if kind == "all"
            else out
        )
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
        console.print(str(figures.save(figure, place, dark=dark)))
    _end(result, u.stats)
