"""`heatnets eval | info | plot`: commands for result files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heatnets._core.errors import FileError, InputError, NumericalError, suggest
from heatnets._core.reasons import ReasonKind, is_kind
from heatnets.cli import point_files, terminal
from heatnets.cli.terminal import option

if TYPE_CHECKING:
    from heatnets.solution import Solution

_VALUES = ("slices", "line", "axis", "evolution")  # pictures of u

Result = Annotated[
    Path,
    typer.Argument(
        help="A file that `heatnets solve` or `solution.save` wrote.", show_default=False
    ),
]
ProblemOption = Annotated[
    Path | None, option("The problem's file, where that was Python; it is run.", False, "--problem")
]


def _load(result: Path, problem: Path | None, device: str | None) -> Solution:
    """Load the solution of a result file, with the problem of a problem file if there is one."""
    import heatnets as hn

    return hn.load(result, None if problem is None else hn.read(problem).problem, device=device)


def evaluate(
    result: Result,
    *,
    at: Annotated[
        Path,
        option(
            "CSV of points (t, x_1, ..., x_d; or t, x for all coordinates), or npz with t and x; "
            "- reads CSV from standard input."
        ),
    ],
    out: Annotated[
        Path | None, option("Where values go (.csv or .npz).", "standard output")
    ] = None,
    certify: Annotated[
        bool, option("With 95 % intervals of the true values.", False, "--certify")
    ] = False,
    samples: Annotated[
        int | None, option("Samples of a certificate at each point.", "4096", "--samples")
    ] = None,
    halfwidth: Annotated[
        float | None,
        option("Certificates take samples until their half-width is this.", False, "--halfwidth"),
    ] = None,
    gradient: Annotated[bool, option("With the gradient.", False, "--gradient")] = False,
    problem: ProblemOption = None,
    device: terminal.Device = None,
) -> None:
    """Values of a solution at points, as CSV."""
    import numpy as np

    point_files.check_output(out, (".csv", ".npz"))
    given = {"samples": samples, "halfwidth": halfwidth}
    wanted: dict[str, Any] = {name: v for name, v in given.items() if v is not None}
    if wanted and not certify:
        raise InputError("--samples and --halfwidth belong to a certificate: add --certify.")
    u = _load(result, problem, device)
    t, x = point_files.read(at, u.problem)
    notes = point_files.flags(u.problem, t, x)
    valid = np.array([not is_kind(note, ReasonKind.OUTSIDE_HORIZON) for note in notes])
    solved = u.solved is not False

    def column(values: Any, shown: Any = solved, missing: Any = np.nan) -> np.ndarray:
        """Values at the valid points, where they may be shown, and `missing` at all others."""
        full = np.full((len(t), *values.shape[1:]), missing)
        full[valid] = np.where(shown, values, missing)
        return full

    columns: dict[str, Any] = {"row": np.arange(1, len(t) + 1), "t": t, "x": x}
    columns["value"] = np.full(len(t), np.nan)
    doubtful = 0
    if np.any(valid):
        points = t[valid], x[valid]
        if solved:
            columns["value"] = column(u(*points))
        if certify:
            cert = u.certify(*points, **wanted)
            doubtful = int(np.sum(~cert.certified))
            shown = cert.certified | solved  # without a solved network only certified values
            columns |= {
                "certified_value": column(cert.value, shown),
                "low": column(cert.low, shown),
                "high": column(cert.high, shown),
                "certified": column(cert.certified, True, False),
            }
            for k, i in enumerate(np.flatnonzero(valid)):
                outside = cert.says_outside(k) if solved else ""
                notes[i] = point_files.join_notes(notes[i], *cert.reasons[k], outside)
        if gradient:
            slopes = u.gradient(*points) if solved else np.full(points[1].shape, np.nan)
            columns["gradient"] = column(slopes)
    unsolved = "" if solved else "not solved: no value of the network"
    columns["note"] = notes = [point_files.join_notes(unsolved, note) for note in notes]
    if out is None:
        print(point_files.as_csv(columns), end="")
    else:
        point_files.save(out, columns)
        noted = sum(map(bool, notes))
        noted_text = f", {noted} with a note" if noted else ""
        terminal.console(as_json=True).print(f"{len(t)} values: {out}{noted_text}")
    _check_solved(result, u.stats)
    if doubtful:
        raise NumericalError(f"not certified: {doubtful} of {len(t)} points; their notes say why.")


def _check_solved(result: Path, stats: Any) -> None:
    """Raise `NumericalError` (exit code 3) if the problem was not solved; called at the end."""
    from heatnets.summary import why_unsolved

    if reason := why_unsolved(stats):
        raise NumericalError(f"{result}: {reason}")


def info(result: Result, as_json: terminal.JsonFlag = False) -> None:
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
    from heatnets.summary import SolveSummary, is_solved, printable

    s, origin = manifest["stats"], manifest["origin"]
    if as_json:
        content = {k: v for k, v in manifest.items() if k not in ("fingerprint", "parts")}
        terminal.print_json({**content, "solved": is_solved(s)})
        return
    if origin is None:
        source = "Python functions (give the problem again to evaluate)"
    else:
        source = f"named {origin['named']}" if "named" in origin else "TOML, kept inside"
    facts = {
        "problem": manifest["problem"],
        "stated as": source,
        "warnings": "none",
        **SolveSummary(s).facts,
        "seed": s["seed"],
        "made with": f"heatnets {manifest['heatnets']}, jax {manifest['jax']}",
        "bytes": result.stat().st_size,
    }
    console = terminal.console()
    terminal.print_table(console, facts)
    if origin and "toml" in origin:
        console.print("\n" + printable(origin["toml"].rstrip()))
        for key, value in origin.get("set", {}).items():
            console.print(printable(f"# set: {key} = {value}"))


def plot(
    result: Result,
    *,
    kind: Annotated[
        str | None,
        option("slices, line, axis, evolution, residuals, weights or history; or all.", "slices"),
    ] = None,
    axis: Annotated[
        int | None, option("u and its derivative along this axis, from 0: kind axis.")
    ] = None,
    times: Annotated[
        str | None,
        option("Times of the curves (kinds axis and line), like 0.5,1,2.", "start, middle, end"),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "The picture (.png, .svg or .pdf); for all, its name before -KIND.", "RESULT-KIND.png"
        ),
    ] = None,
    dark: Annotated[bool, option("For a dark page.", False, "--dark")] = False,
    problem: ProblemOption = None,
    device: terminal.Device = None,
) -> None:
    """Draw a solution: slices with error bands, evolution, residuals, weights, solver history."""
    from heatnets.plotting import figures

    kind, arguments = _plot_arguments(kind, axis, times)
    if kind != "all" and kind not in figures.KINDS:
        raise InputError(f"unknown kind {kind!r}; {suggest(kind, (*figures.KINDS, 'all'))}")
    point_files.check_output(out, (".png", ".svg", ".pdf"))
    u = _load(result, problem, device)
    console = terminal.console()
    base = out or Path(f"{result.stem}.png")
    for name in figures.KINDS if kind == "all" else (kind,):
        try:
            if u.solved is False and name in _VALUES:
                raise NumericalError(
                    "not solved: no value of the network is drawn; --kind history shows its growth."
                )
            figure = figures.KINDS[name](u, **arguments)
        except (InputError, NumericalError) as error:
            if kind != "all":
                raise
            console.print(f"{name}: {error}", soft_wrap=True)
            continue
        path = base if out and kind != "all" else base.with_stem(f"{base.stem}-{name}")
        console.print(str(figures.save(figure, path, dark=dark)))
    _check_solved(result, u.stats)


def _plot_arguments(
    kind: str | None, axis: int | None, times: str | None
) -> tuple[str, dict[str, Any]]:
    """The kind of a plot, and the arguments for its function."""
    chosen = kind or ("slices" if axis is None and times is None else "axis")
    if axis is not None and chosen != "axis":
        raise InputError(f"--axis is for the kind axis; got --kind {chosen}.")
    if times is not None and chosen not in ("axis", "line"):
        raise InputError(f"--times is for the kinds axis and line; got --kind {chosen}.")
    arguments: dict[str, Any] = {} if axis is None else {"axis": axis}
    if times is not None:
        try:
            arguments["times"] = [float(text) for text in times.split(",")]
        except ValueError:
            raise InputError(f"--times must be numbers like 0.5,1,2; got {times!r}.") from None
    return chosen, arguments
