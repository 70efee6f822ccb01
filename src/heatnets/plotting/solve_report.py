"""Report of one solve as an HTML page: problem, answer with its error, figures, computation."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import version as installed
from typing import Any

import numpy as np

from heatnets import __version__
from heatnets._core.errors import HeatnetsError
from heatnets.certify.certificate import Certificate, rounded
from heatnets.pde.function_values import format_points
from heatnets.plotting import figures, html
from heatnets.plotting.html import Picture, Section, number, plain_table, seconds
from heatnets.plotting.line_plots import rms_size
from heatnets.solution import Solution, why_unsolved
from heatnets.summary import SolveSummary

_CAPTIONS = {
    "slices": (
        "u along coordinate axes and random lines through the middle of the region, and what "
        "is known of its error."
    ),
    "evolution": "u over time in the middle of the region, and what is known of its error.",
    "residuals": (
        "What is missing in the equation at random points: how often each size, and by time."
    ),
    "weights": (
        "The trained weights by size, as multiples of 1/M, which plain Monte Carlo would take."
    ),
    "history": "The growth of the network: the error that each round was estimated to leave.",
}


def page(
    solution: Solution,
    *,
    title: str,
    stated: list[tuple[str, str]],
    certificates: list[tuple[float, np.ndarray, Certificate]],
    reproduce: str,
    summary: SolveSummary | None = None,
) -> str:
    """Build a self-contained HTML page about one solve.

    The page needs no script and no network; it suits screens of any width, light or dark mode, and
    print.

    Args:
        solution: what `hn.solve` returned.
        title: title of the page.
        stated: the problem as its author stated it, rows of a name and a formula.
        certificates: (t, x, solution.certify(t, x)) of single points; may be empty.
        reproduce: the command, or the code, that repeats the computation.
        summary: the summary whose verdict opens the page, with its notes; default one of
            `certificates`. Give it where a certificate failed, which `certificates` does not show.

    Returns:
        The HTML text.
    """
    problem = solution.problem
    intro = (
        f"A parabolic problem in {problem.dim} dimension{'s' if problem.dim > 1 else ''}, "
        f"0 ≤ t ≤ {problem.horizon:g}; the answer is wanted on {problem.region}."
    )
    formulas = [list(row) for row in stated]
    statement = plain_table("As stated", ("what", "formula"), formulas, words=True)
    sections = [Section("problem", "The problem", [], [statement], [])]
    messages = list(dict.fromkeys(solution.stats["warnings"]))
    if messages:
        numbered = [f"{i}. {message}" for i, message in enumerate(messages, 1)]
        sections.append(Section("warnings", f"Warnings ({len(messages)})", numbered, [], []))
    if summary is None:
        certified = [bool(cert.certified) for _, _, cert in certificates]
        summary = solution.summary(certified=certified)
    if summary.notes:
        sections.append(Section("notes", "Notes", list(summary.notes), [], []))
    note = _reproduction_note(solution)
    sections += [
        _answer(solution, certificates),
        _pictures(solution, certificates),
        _computation(solution),
        Section("again", "How to compute it again", [note], [], [], code=reproduce),
    ]
    return html.page(title, intro, sections, verdict=summary.verdict, flowing=True)


def _answer(
    solution: Solution, certificates: list[tuple[float, np.ndarray, Certificate]]
) -> Section:
    """The section about the answer: the estimated error of u, and certified values."""
    stats, region = solution.stats, solution.problem.region
    estimate, size = stats["estimated_error"], rms_size(solution)
    end = "0" if solution.problem.is_terminal else "T"
    where = (
        f"at the point, t = {end}"
        if region.is_point
        else "root mean square over the region and all times"
    )
    solved = solution.solved is not False
    if not solved:
        text = f"N{why_unsolved(stats)[1:]} No value of the network is shown."
    elif estimate is None:
        text = (
            "No estimate of its error was made, as the solve was of a fixed size. Rows held out of "
            f"the fit are missed by {number(stats['residual_held_out'])} of their size; u.error() "
            "and u.certify(t, x) say more."
        )
    else:
        text = (
            f"The estimated error of u is {number(estimate)} of its size ({where}; one standard "
            f"error is added). Its size there is {number(size, 3)}, so that u is off by about "
            f"{number(estimate * size)}."
        )
    paragraphs = [text]
    if stats["tolerance_met"] is not None:
        met = "is met" if stats["tolerance_met"] else "is not met"
        paragraphs.append(
            f"The tolerance that was asked for {met}: growth ended as {stats['stopped']}."
        )
    if not certificates:
        paragraphs.append(
            "No point was certified; u.certify(t, x) gives the true value at a point, with an "
            "interval."
        )
        return Section("answer", "The answer", paragraphs, [], [])
    rows, verdicts = [], []
    points = format_points([(np.atleast_1d(x),) for _, x, _ in certificates])
    for i, (t, _, cert) in enumerate(certificates, 1):
        half, certified = float(cert.halfwidth), bool(cert.certified)
        network, value, low, high = (
            rounded(float(v), half) for v in (cert.network, cert.value, cert.low, cert.high)
        )
        # The network's value is shown only if the problem was solved.
        values = [network if solved else "–", value if solved or certified else "–"]
        interval = [number(half), f"{low} to {high}"] if certified else ["–", "not certified"]
        point = points[i - 1].removeprefix("x = ")
        rows.append([str(i), f"{t:g}", point, *values, *interval])
        verdict = "certified" if certified else "not certified"
        outside = cert.says_outside() if solved else ""
        texts = [text for text in (verdict, outside, *cert.reasons) if text]
        samples = f"{100 * cert.confidence:g} %, {int(cert.samples)} samples, {cert.method}"
        verdicts.append([str(i), samples, "; ".join(texts)])
    paragraphs.append(
        "True values at points, each with an interval that holds it as often as its confidence "
        "says, from samples of the equation that the network's error obeys."
    )
    columns = ("point", "t", "x", "network", "true value", "±", "interval")
    reasons = ("point", "confidence", "verdict")
    tables = [
        plain_table("Values", columns, rows),
        plain_table("Whether to believe them", reasons, verdicts, words=True),
    ]
    return Section("answer", "The answer", paragraphs, tables, [])


def _pictures(
    solution: Solution, certificates: list[tuple[float, np.ndarray, Certificate]]
) -> Section:
    """The section of figures, with the reasons for those that cannot be drawn.

    The slices pass through the first certified point, and mark it.
    """
    pictures, missing = [], []
    sure = [i for i, (_, _, cert) in enumerate(certificates) if cert.certified][:1]
    chosen = dict[str, dict[str, Any]]()
    captions = dict(_CAPTIONS)
    for i in sure:
        t, x, cert = certificates[i]
        chosen["slices"] = {"t": t, "through": np.atleast_1d(x), "known": cert}
        captions["slices"] = (
            f"u along coordinate axes and random lines through point {i + 1} of the table, with "
            "its certified interval, and what is known of the error."
        )
    for kind, caption in captions.items():
        if solution.solved is False and kind in ("slices", "evolution"):
            missing.append(f"No picture of {kind}: not solved.")
            continue
        try:
            draw: Callable[..., Any] = figures.KINDS[kind]
            pictures.append(Picture(draw(solution, **chosen.get(kind, {})), caption))
        except HeatnetsError as error:
            missing.append(f"No picture of {'the ' if kind == 'history' else ''}{kind}: {error}")
    return Section("pictures", "Pictures", missing, [], pictures)


def _computation(solution: Solution) -> Section:
    """The section about the computation: sizes, options, least squares, seconds, versions."""
    s, data_name = solution.stats, solution.problem.data_name
    (M0, M1), rows = s["features"], s["rows"]
    phases = {name: spent for name, spent in s["seconds"].items() if spent >= 0.0005}
    phase_texts = [f"{name} {spent:.2g}" for name, spent in phases.items()]
    pairs = ", in antithetic pairs" if s["antithetic"] else ""
    degree = s["time_degree"]
    form = "equation" if s["enforce"] == "equation" else "mild formulation"
    laplacians = [f"{name}: {method}" for name, method in s["laplacian"].items()]
    versions = [f"{name} {installed(name)}" for name in ("jax", "numpy", "scipy")]
    facts = {
        "features": f"{M0} from `{data_name}` + {M1} from the source{pairs}",
        "family": s["family"],
        "directions": s["design"],
        "weights in time": f"polynomials of degree {degree}" if degree else "constant",
        "trained on": f"{rows[0]} rows of the {form}, {s['collocation']}",
        f"`{data_name}`": f"{rows[1]} rows" if s["initial_rows"] == "soft" else "exactly",
        "least squares": (
            f"{s['solver']}; rank {s['rank']}, condition {number(s['condition'])}, "
            f"cut-off {number(s['rcond'])}, ridge {number(s['ridge'])}"
        ),
        "misfit of rows": (
            f"{number(s['residual_train'])} where trained, "
            f"{number(s['residual_held_out'])} where held out (relative)"
        ),
        "Laplacians": "; ".join(laplacians) or "–",
        "seconds": f"{sum(phases.values()):.2f}: " + ", ".join(phase_texts),
        "growth ended as": s["stopped"] or "– (a fixed size)",
        "device": s["device"],
        "memory": "–" if not s["peak_bytes"] else f"{s['peak_bytes'] / 2**20:,.0f} MiB at most",
        "seed": str(s["seed"]),
        "versions": (
            f"heatnets {__version__}, Python {platform.python_version()}, " + ", ".join(versions)
        ),
    }
    fact_rows = [[name, str(text)] for name, text in facts.items()]
    tables = [plain_table("What was done", ("what", "how"), fact_rows, words=True)]
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
        tables.append(plain_table("Rounds of growth", columns, rounds))
    return Section("computed", "How it was computed", [], tables, [])


def _reproduction_note(solution: Solution) -> str:
    """A paragraph on how far a second run gives the same numbers."""
    text = (
        f"Every random draw comes from the seed {solution.stats['seed']}: the same versions give "
        "the same numbers, but for rounding."
    )
    if solution.stats["history"]:
        text += " How far the growth gets in its seconds depends on the machine."
    return text
