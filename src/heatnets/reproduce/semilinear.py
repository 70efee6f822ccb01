"""Semilinear test problems of the literature, compared with results of other methods."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import solve_ivp
from scipy.stats import chi2

from heatnets.plotting.html import ColumnGroup, Picture, Section, Table, number, times
from heatnets.plotting.html import seconds as duration
from heatnets.reproduce.cells import Cell
from heatnets.reproduce.compare import CellResults, settings_table
from heatnets.reproduce.panels import DEFAULT, OURS, PUBLISHED, panels
from heatnets.reproduce.published import CONTROL as REFERENCE_CONTROL
from heatnets.reproduce.published import DEFAULT_RISK, PEERS, SEMILINEAR

TITLE = "Semilinear problems, beside their peers"
BELLS = ("allen-cahn", "sine-gordon", "rational")
DIMS: dict[str, dict[float, tuple[int, ...]]] = {
    "quick": {0.3: (10, 100)},
    "paper": {0.3: (10, 100, 1000, 10_000), 1.0: (10, 100, 1000)},
}
CONTROL = {"quick": (100,), "paper": (100, 1000)}
CLOSED = {
    "quick": {"reaction-diffusion": 100},
    "paper": {"reaction-diffusion": 100, "quadratic-gradient": 100, "burgers": 100},
}
RISKY = {"quick": (), "paper": (100,)}
SECONDS = {"quick": 10.0, "paper": None}
# Samples of a certificate; four times as many for the default risk: because of its kinks only the
# slower form of the certificate is possible.
SAMPLES = 1024
_NAMES = {
    "allen-cahn": "Allen-Cahn, u - u³",
    "sine-gordon": "sine-Gordon, sin u",
    "rational": "(1 - u²)/(1 + u²)",
    "hamilton-jacobi": "Hamilton-Jacobi-Bellman, -‖∇u‖²",
    "reaction-diffusion": "reaction-diffusion",
    "quadratic-gradient": "quadratic gradient",
    "burgers": "Burgers type",
    "default-risk": "Black-Scholes, default risk",
}
_REACTIONS = {
    "allen-cahn": lambda u: u - u**3,
    "sine-gordon": np.sin,
    "rational": lambda u: (1 - u**2) / (1 + u**2),
}


class Case(NamedTuple):
    """A problem with its dimension, horizon and reference value."""

    problem: str
    dim: int
    horizon: float
    reference: float | None  # None if the exact solution is known over a region

    @property
    def key(self) -> str:
        """The key of its cell."""
        return f"{self.problem} d={self.dim} T={self.horizon:g}"


def cases(scale: str) -> list[Case]:
    """The problems of this result."""
    result = [
        Case(name, d, T, SEMILINEAR[name, T][d])
        for T, dims in DIMS[scale].items()
        for name in BELLS
        for d in dims
    ]
    result += [Case("hamilton-jacobi", d, 1.0, REFERENCE_CONTROL[d]) for d in CONTROL[scale]]
    result += [
        Case(name, d, 0.5 if name == "burgers" else 1.0, None) for name, d in CLOSED[scale].items()
    ]
    return result + [Case("default-risk", d, 1.0, DEFAULT_RISK) for d in RISKY[scale]]


def simply(case: Case) -> float | None:
    """A simple approximation of the value, without any method.

    For f(u): the solution of the heat equation at the point, then the scalar reaction u' = f(u)
    over the horizon. For the control problem: the solution without |∇u|². None for other problems.
    """
    square = chi2(case.dim).ppf((np.arange(400_000) + 0.5) / 400_000) * 2 * case.horizon
    if case.problem == "hamilton-jacobi":
        return float(np.mean(np.log(0.5 * (1 + square))))
    if case.problem not in BELLS:
        return None
    heat = float(np.mean(1 / (2 + 0.4 * square)))
    f: Any = _REACTIONS[case.problem]
    reaction = solve_ivp(lambda t, u: f(u), (0, case.horizon), [heat], rtol=1e-12, atol=1e-14)
    return float(reaction.y[0, -1])


def plan(scale: str) -> list[Cell]:
    """The cells of this result."""
    cells = []
    for case in cases(scale):
        samples = 4 * SAMPLES if case.problem == "default-risk" else SAMPLES
        options: dict[str, Any] = {"samples": samples}
        if SECONDS[scale] is not None:
            options["seconds"] = SECONDS[scale]
        if case.reference is not None:
            options["reference"] = case.reference
        parameters = {"dim": case.dim, "horizon": case.horizon}
        cells.append(Cell(case.key, "semilinear", case.problem, parameters, options, cost=40.0))
    return cells


def section(done: CellResults, scale: str) -> Section:
    """The section of this result from finished cells."""
    rows, marks = [], []
    for case in cases(scale):
        cell, simple = done.get(case.key), simply(case)
        simple_error = None
        if simple is not None and case.reference is not None:
            simple_error = abs(simple - case.reference) / abs(case.reference)
        peers = PEERS.get((case.problem, case.horizon, case.dim), [])
        peer_texts = [f"{p.method} {number(p.error)}, {p.seconds:g} s" for p in peers]
        reference = "exact, over a region" if case.reference is None else f"{case.reference:.10g}"
        rows.append(
            [
                _NAMES[case.problem],
                f"{case.dim:,}",
                f"{case.horizon:g}",
                reference,
                number(simple_error),
                *_own_columns(cell, simple_error),
                "; ".join(peer_texts) or "–",
            ]
        )
        marks.append((case, simple_error, cell, peers))
    figure, axes = panels(1, 1, 8.5, 0.8 + 0.27 * len(marks))
    ax = axes[0, 0]
    shown = dict.fromkeys(("simple", "network", "certified", "peer"), False)

    def label(kind: str, text: str) -> str | None:
        """The label for the first mark of a kind, None for the others: one entry in the legend."""
        first, shown[kind] = not shown[kind], True
        return text if first else None

    for k, (_, simple_error, cell, peers) in enumerate(marks):
        if simple_error:
            name = label("simple", "heat first, then the reaction (or no |∇u|²)")
            ax.plot(simple_error, k, "|", color=PUBLISHED, ms=10, mew=2, label=name)
        for peer in peers:
            ax.plot(peer.error, k, "*", color="black", ms=8, label=label("peer", "peers"))
        if cell is not None:
            ax.plot(cell["error"], k, "o", color=OURS, ms=5, label=label("network", "network"))
            if cell["certified"]:
                name = label("certified", "certified value, and half-width")
                error, half = max(cell["certified_error"], 1e-17), cell["half"]
                ax.plot([half], [k], "|", color=DEFAULT, ms=8)
                ax.plot([error, half], [k, k], "-", color=DEFAULT, lw=1)
                ax.plot(error, k, "^", color=DEFAULT, ms=5, label=name)
    names = [f"{_NAMES[c.problem]}, d = {c.dim:,}, T = {c.horizon:g}" for c, *_ in marks]
    ax.set(xscale="log", yticks=range(len(names)), yticklabels=names, xlabel="relative error")
    ax.tick_params(axis="y", labelsize=8)
    ax.invert_yaxis()
    ax.grid(axis="x", alpha=0.25, linewidth=0.6)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    groups = (
        ColumnGroup("", ("problem", "d", "T")),
        ColumnGroup("known", ("reference", "without a method")),
        ColumnGroup("the default", ("error", "against that", "features", "seconds")),
        ColumnGroup("certified", ("value's error", "half-width", "holds", "seconds")),
        ColumnGroup("peers", ("error, time",)),
    )
    table = Table(
        (
            "Sources that depend on u or ∇u: relative errors at (T, 0), or over the region "
            f"({done.devices()})"
        ),
        groups,
        rows,
    )
    budget = "" if SECONDS[scale] is None else f", seconds={SECONDS[scale]:g}"
    facts = {
        "references": (
            "u_t = Δu + f(u) from 1/(2 + 0.4|x|²): the radial reduction to one dimension, two "
            "grids agreeing to 4e-8. Control problem: its closed form. Default risk: 57.300 as "
            "published, good to about 1e-3. The others: exact solutions, errors at 2,000 random "
            "points of [-1, 1]^d and (0, T], certified at one of them"
        ),
        "without a method": (
            "the heat equation first, then the scalar reaction (for the control problem: the "
            "solution without |∇u|², so that the next column is the share of the nonlinear "
            "part)"
        ),
        "the default": f"hn.solve(problem{budget})",
        "certified": (
            f"u.certify(T, x, samples={SAMPLES}), default risk {4 * SAMPLES}, 95 %; relative "
            "to the reference"
        ),
        "seconds": "one run each, compilation included",
        "peers": (
            "as published: deep BSDE by E, Han and Jentzen (2017) on a laptop; random deep "
            "splitting measured with NumPy on two CPU cores"
        ),
    }
    note = (
        "Beware of easy problems: what is known without a method (the heat equation first, then "
        "the scalar reaction) is good to 2e-8 for d >= 1000; the hard ones are d = 10 ... 100, and "
        "T = 1."
    )
    return Section(
        "semilinear",
        TITLE,
        [note],
        [table, _peers_table(done, scale)],
        [Picture(figure, "Relative errors, logarithmic.")],
        settings_table(done, plan(scale), facts),
    )


def _own_columns(cell: dict[str, Any] | None, simple_error: float | None) -> list[str]:
    """Columns of a finished cell: the default's error and work, and the certified value."""
    if cell is None:
        return ["–"] * 8
    share = cell["error"] / simple_error if simple_error else None
    M0, M1 = cell["features"]
    certified = ["not certified", "–", "–"]
    if cell["certified"]:
        holds = "yes" if cell["inside"] else f"off by {cell['ratio']:.1f} half-widths"
        certified = [number(cell["certified_error"]), number(cell["half"]), holds]
    return [
        number(cell["error"]),
        times(share) if share else "–",
        f"{M0} + {M1}",
        duration(cell["measured"]["wall"]),
        *certified,
        duration(cell["measured"]["certify"]),
    ]


def _peers_table(done: CellResults, scale: str) -> Table:
    """The results of other methods, each next to ours."""
    rows = []
    for case in cases(scale):
        for peer in PEERS.get((case.problem, case.horizon, case.dim), []):
            cell = done.get(case.key)
            own_columns = ["–"] * 4
            if cell is not None:
                own_columns = [
                    number(cell["error"]),
                    duration(cell["measured"]["wall"]),
                    number(cell["half"]) if cell["certified"] else "–",
                    duration(cell["measured"]["certify"]),
                ]
            name = f"{_NAMES[case.problem]}, d = {case.dim:,}, T = {case.horizon:g}"
            peer_time = f"{peer.seconds:g} s, {peer.machine}"
            rows.append([name, peer.method, number(peer.error), peer_time, *own_columns])
    own_names = ("error", "seconds", "certified half-width", "seconds more")
    groups = (
        ColumnGroup("", ("problem",)),
        ColumnGroup("peer", ("method", "error", "time")),
        ColumnGroup("heatnets", own_names),
    )
    return Table("What peers report for the same", groups, rows)
