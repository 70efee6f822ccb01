"""One solve as a page for readers: the problem, the answer with its error, pictures, how it was computed, how to compute it again."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed

import numpy as np

from heatnets import __version__
from heatnets._core.errors import HeatnetsError
from heatnets.certify.values import Certificate, rounded
from heatnets.pde.function import place
from heatnets.plotting import figures, html
from heatnets.plotting.html import ColumnGroup, Picture, Section, Table, number, seconds
from heatnets.plotting.line_plots import size_of
from heatnets.solution import Solution, why_unsolved

_CAPTIONS = {
    "slices": "u along coordinate axes and random lines through the middle of the region, and what is known of its error.",
    "evolution": "u over time in the middle of the region, and what is known of its error.",
    "residuals": "What is missing in the equation at random points: how often each size, and by time.",
    "weights": "The trained weights by size, as multiples of 1/M, which plain Monte Carlo would take.",
    "history": "The growth of the network: the error that each round was estimated to leave.",
}


def page(
    solution: Solution,
    *,
    title: str,
    stated: list[tuple[str, str]],
    certificates: list[tuple[float, np.ndarray, Certificate]],
    reproduce: str,
    warnings: list[str],
) -> str:
    """One self-contained HTML page of a solve, without script or network, for screens of any width, light or dark, and for print.

    Args:
        solution: what `hn.solve` returned.
        title: of the page.
        stated: the problem as its author stated it, rows of a name and a formula.
        certificates: (t, x, solution.certify(t, x)) of single points; may be empty.
        reproduce: the command, or the code, that computes this again.
        warnings: to be shown with those in `solution.stats["warnings"]`.
    """
    problem = solution.problem
    intro = (
        f"A parabolic problem in {problem.dim} dimension{'s' if problem.dim > 1 else ''}, 0 ≤ t ≤ {problem.horizon:g}; "
        f"the answer is wanted on {problem.region}."
    )
    told = list(dict.fromkeys([*solution.stats["warnings"], *warnings]))
    sections = [
        Section("problem", "The problem", [], [Table("As stated", (ColumnGroup("", ("what", "formula")),), [list(row) for row in stated], words=True)], []),
        *([Section("warnings", f"Warnings ({len(told)})", [f"{i}. {words}" for i, words in enumerate(told, 1)], [], [])] if told else []),
        _answer(solution, certificates),
        _pictures(solution),
        _computed(solution),
        Section("again", "How to compute it again", [_again(solution)], [], [], code=reproduce),
    ]  # fmt: skip
    return html.page(title, intro, sections, flowing=True)


def _answer(
    solution: Solution, certificates: list[tuple[float, np.ndarray, Certificate]]
) -> Section:
    """What u is, and how far it may be believed."""
    stats, region = solution.stats, solution.problem.region
    estimate, size = stats["estimated_error"], size_of(solution)
    end = "0" if solution.problem.is_terminal else "T"
    where = (
        f"at the point, t = {end}"
        if region.single
        else "root mean square over the region and all times"
    )
    good = solution.solved is not False
    if not good:
        said = [f"N{why_unsolved(stats)[1:]} No value of the network is shown."]
    elif estimate is None:
        said = [
            "No estimate of its error was made, as the solve was of a fixed size. Rows held out of the fit are missed by "
            f"{number(stats['residual_held_out'])} of their size; u.error() and u.certify(t, x) say more."
        ]
    else:
        said = [
            f"The estimated error of u is {number(estimate)} of its size ({where}; one standard error is added). "
            f"Its size there is {number(size, 3)}, so that u is off by about {number(estimate * size)}."
        ]
    if stats["tolerance_met"] is not None:
        met = "is met" if stats["tolerance_met"] else "is not met"
        said.append(f"The tolerance that was asked for {met}: growth ended as {stats['stopped']}.")
    if not certificates:
        said.append(
            "No point was certified; u.certify(t, x) gives the true value at a point, with an interval."
        )
        return Section("answer", "The answer", said, [], [])
    rows, verdicts = [], []
    for i, (t, x, sure) in enumerate(certificates, 1):
        half, certified = float(sure.halfwidth), bool(sure.certified)
        network, value, low, high = (
            rounded(float(v), half) for v in (sure.network, sure.value, sure.low, sure.high)
        )
        shown = [network if good else "–", value if good or certified else "–"]
        interval = [number(half), f"{low} to {high}"] if certified else ["–", "not certified"]
        rows.append(
            [str(i), f"{t:g}", place([np.atleast_1d(x)]).removeprefix("x = "), *shown, *interval]
        )
        told = [
            "certified" if certified else "not certified",
            sure.says_outside() if good else "",
            *sure.reasons,
        ]
        verdict = "; ".join(filter(None, told))
        verdicts.append(
            [
                str(i),
                f"{100 * sure.confidence:g} %, {int(sure.samples)} samples, {sure.method}",
                verdict,
            ]
        )
    said.append(
        "True values at points, each with an interval that holds it as often as its confidence says, "
        "from samples of the equation that the network's error obeys."
    )
    values = Table(
        "Values",
        (ColumnGroup("", ("point", "t", "x", "network", "true value", "±", "interval")),),
        rows,
    )
    judged = Table(
        "Whether to believe them",
        (ColumnGroup("", ("point", "confidence", "verdict")),),
        verdicts,
        words=True,
    )
    return Section("answer", "The answer", said, [values, judged], [])


def _pictures(solution: Solution) -> Section:
    """Every picture that can be drawn, and in words why one cannot."""
    shown, missing = [], []
    for kind, caption in _CAPTIONS.items():
        if solution.solved is False and kind in ("slices", "evolution"):
            missing.append(f"No picture of {kind}: not solved.")
            continue
        try:
            shown.append(Picture(figures.KINDS[kind](solution), caption))
        except HeatnetsError as error:
            missing.append(f"No picture of {'the ' if kind == 'history' else ''}{kind}: {error}")
    return Section("pictures", "Pictures", missing, [], shown)


def _computed(solution: Solution) -> Section:
    """Sizes, choices, least squares, seconds and versions."""
    s, given = solution.stats, solution.problem.data_name
    rows, phases = (
        s["rows"],
        {name: spent for name, spent in s["seconds"].items() if spent >= 0.0005},
    )
    facts = {
        "features": f"{s['features'][0]} from `{given}` + {s['features'][1]} from the source{', in antithetic pairs' if s['antithetic'] else ''}",
        "family": s["family"],
        "directions": s["design"],
        "weights in time": f"polynomials of degree {s['time_degree']}"
        if s["time_degree"]
        else "constant",
        "trained on": f"{rows[0]} rows of the {'equation' if s['enforce'] == 'equation' else 'mild formulation'}, {s['collocation']}",
        f"`{given}`": f"{rows[1]} rows" if s["initial_rows"] == "soft" else "exactly",
        "least squares": f"{s['solver']}; rank {s['rank']}, condition {number(s['condition'])}, cut-off {number(s['rcond'])}, ridge {number(s['ridge'])}",
        "misfit of rows": f"{number(s['residual_train'])} where trained, {number(s['residual_held_out'])} where held out (relative)",
        "Laplacians": "; ".join(f"{name}: {way}" for name, way in s["laplacian"].items()) or "–",
        "seconds": f"{sum(phases.values()):.2f}: "
        + ", ".join(f"{name} {spent:.2g}" for name, spent in phases.items()),
        "growth ended as": s["stopped"] or "– (a fixed size)",
        "device": s["device"],
        "memory": "–" if not s["peak_bytes"] else f"{s['peak_bytes'] / 2**20:,.0f} MiB at most",
        "seed": str(s["seed"]),
        "versions": f"heatnets {__version__}, Python {platform.python_version()}, "
        + ", ".join(f"{name} {installed(name)}" for name in ("jax", "numpy", "scipy")),
    }
    tables = [
        Table(
            "What was done",
            (ColumnGroup("", ("what", "how")),),
            [[name, str(words)] for name, words in facts.items()],
            words=True,
        )
    ]
    if s["history"]:
        columns = ("round", "features", "rows", "degree in time", "estimated error", "seconds")
        rounds = [
            [
                str(i),
                f"{r.features[0]} + {r.features[1]}",
                str(r.rows),
                str(r.time_degree),
                number(r.estimated_error),
                seconds(r.seconds),
            ]
            for i, r in enumerate(s["history"])
        ]
        tables.append(Table("Rounds of growth", (ColumnGroup("", columns),), rounds))
    return Section("computed", "How it was computed", [], tables, [])


def _again(solution: Solution) -> str:
    grown = (
        " How far the growth gets in its seconds depends on the machine."
        if solution.stats["history"]
        else ""
    )
    return f"Every random draw comes from the seed {solution.stats['seed']}: the same versions give the same numbers, but for rounding.{grown}"
