"""Semilinear test problems of the literature, compared with results of other methods."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp
from scipy.stats import chi2

from heatnets.plotting.html import number
from heatnets.plotting.style import GREY
from heatnets.reproduce.engine import Finished, Labels, Result, Sizes, Values
from heatnets.reproduce.rendering import DEFAULT_COLOUR, SETUP_COLOUR, add_legend, labelled_rows

_REACTIONS: dict[str, Any] = {
    "allen-cahn": lambda u: u - u**3,
    "sine-gordon": np.sin,
    "rational": lambda u: (1 - u**2) / (1 + u**2),
}


@functools.cache
def simple_error(problem: str, T: float, d: int, reference: float | None) -> float | None:
    """The relative error of a simple approximation, without any method.

    For f(u): the solution of the heat equation at the point, then the scalar reaction u' = f(u)
    over the horizon. For the control problem: the solution without |∇u|². None for other problems.
    """
    if reference is None or problem not in (*_REACTIONS, "hamilton-jacobi"):
        return None
    square = chi2(d).ppf((np.arange(400_000) + 0.5) / 400_000) * 2 * T
    if problem in _REACTIONS:
        heat, f = np.mean(1 / (2 + 0.4 * square)), _REACTIONS[problem]
        value = solve_ivp(lambda t, u: f(u), (0, T), [heat], rtol=1e-12, atol=1e-14).y[0, -1]
    else:
        value = np.mean(np.log(0.5 * (1 + square)))
    return float(abs(value - reference) / abs(reference))


class Semilinear(Result):
    """Sources that depend on u or ∇u, by the default, with a certified value."""

    def rows(self, text: Labels, done: Finished, s: Sizes) -> Iterator[Labels]:
        """A row for each problem; `peers`: results of other methods."""
        for row in super().rows(text, done, s):
            problem, T, d, cell = (row[name] for name in ("problem", "T", "d", "cell"))
            reference, peers = row.get("reference"), self.matching("published", row)
            row |= {"peers": peers, "name": s.names[problem], "value_error": None, "holds": None}
            row["label"] = f"{row['name']}, d = {d:,}, T = {T:g}"
            texts = [f"{p['method']} {number(p['error'])}, {p['seconds']:g} s" for p in peers]
            row["peers_text"] = "; ".join(texts)
            row["simple"] = simple_error(problem, T, d, reference)
            row["reference"] = f"{reference:.10g}" if reference else "exact, over a region"
            row["certified"] = cell if cell["certified"] else Values()
            if cell["certified"]:
                row["value_error"] = number(cell["certified_error"])
                row["holds"] = (
                    "yes" if cell["inside"] else f"off by {cell['ratio']:.1f} half-widths"
                )
            elif cell:
                row["value_error"] = "not certified"
            yield row

    def peer_rows(self, text: Labels, done: Finished, s: Sizes) -> Iterator[Labels]:
        """A row for each result of another method, next to ours."""
        for row in self.rows(text, done, s):
            yield from (row | peer for peer in row["peers"])

    def figure(self, done: Finished, s: Sizes) -> Figure:
        rows = list(self.rows(self.text["tables"][0], done, s))
        names, height = [row["label"] for row in rows], 0.8 + 0.27 * len(rows)
        figure, ax = labelled_rows(names, "relative error", 8.5, height)
        ax.tick_params(axis="y", labelsize=8)
        for k, row in enumerate(rows):
            cell, sure = row["cell"], row["certified"]
            if row["simple"]:
                label = "heat first, then the reaction (or no |∇u|²)"
                ax.plot(row["simple"], k, "|", color=GREY, ms=10, mew=2, label=label)
            for peer in row["peers"]:
                ax.plot(peer["error"], k, "*", color="black", ms=8, label="peers")
            if cell:
                ax.plot(cell["error"], k, "o", color=SETUP_COLOUR, ms=5, label="network")
            if sure:
                label = "certified value, and half-width"
                error, half = max(sure["certified_error"], 1e-17), sure["half"]
                ax.plot([half], [k], "|", color=DEFAULT_COLOUR, ms=8)
                ax.plot([error, half], [k, k], "-", color=DEFAULT_COLOUR, lw=1)
                ax.plot(error, k, "^", color=DEFAULT_COLOUR, ms=5, label=label)
        return add_legend(figure)
