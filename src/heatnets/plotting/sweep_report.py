"""Report of a sweep as an HTML page: one table of values, and a picture of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from heatnets.certify.certificate import rounded
from heatnets.pde.function_values import format_point
from heatnets.plotting import html
from heatnets.plotting.html import Picture, Section, number, plain_table, seconds
from heatnets.plotting.style import COLOURS, legend_above, panels


def page(
    title: str, stated: list[tuple[str, str]], rows: Sequence[dict[str, Any]], reproduce: str
) -> str:
    """Build a self-contained HTML page about the same problem with several values.

    Args:
        title: title of the page.
        stated: the first problem as its author stated it, rows of a name and a formula.
        rows: one per problem and point: `set` (the values), `verdict`, `solved`, and if known
            `estimated_error`, `features`, `seconds`, `point` (t, x, value, low, high, halfwidth,
            certified).
        reproduce: the command that repeats the computation.

    Returns:
        The HTML text.
    """
    keys = list(rows[0]["set"])
    by_problem = {str(row["set"]): row["solved"] for row in rows}
    solved = sum(by_problem.values())
    points = [row["point"] for row in rows if "point" in row]
    certified = sum(point["certified"] for point in points)
    parts = [f"{solved} of {len(by_problem)} problems solved as asked for"]
    if points:
        parts.append(f"{certified} of {len(points)} values certified")
    columns = (*keys, "t", "x", "u", "±", "certified", "estimated error", "features", "time")
    table = plain_table("Values", columns, [_cells(row, keys) for row in rows])
    notes = [
        [", ".join(f"{k} = {v}" for k, v in row["set"].items()), row["verdict"]]
        for row in {str(row["set"]): row for row in rows}.values()
    ]
    verdicts = plain_table("Each problem", ("values", "verdict"), notes, words=True)
    statement = plain_table("As stated", ("what", "formula"), [list(r) for r in stated], words=True)
    figure = _figure(rows, keys)
    pictures = [Picture(figure, f"u over {keys[0]}, with 95 % intervals.")] if figure else []
    sections = [
        Section("values", "The values", [], [table], pictures),
        Section("verdicts", "Each problem", [], [verdicts], []),
        Section("problem", "The problem", ["With the first values:"], [statement], []),
        Section("again", "How to compute it again", [], [], [], code=reproduce),
    ]
    intro = f"One problem for {len(by_problem)} values of {', '.join(keys)}."
    return html.page(title, intro, sections, verdict=f"{'; '.join(parts)}.", flowing=True)


def _cells(row: dict[str, Any], keys: list[str]) -> list[str]:
    """The cells of one row of the table."""
    point = row.get("point")
    cells = [str(row["set"][key]) for key in keys]
    if point is None:
        cells += ["–"] * 5
    else:
        half, shown = point["halfwidth"], point["value"] is not None
        x = format_point([np.atleast_1d(point["x"])]).removeprefix("x = ")
        cells += [f"{point['t']:g}", x, rounded(point["value"], half) if shown else "–"]
        cells += [number(half), "yes"] if point["certified"] else ["–", "no"]
    error = row.get("estimated_error")
    cells += [number(error), str(row.get("features", "–")), seconds(row.get("seconds"))]
    return cells


def _figure(rows: Sequence[dict[str, Any]], keys: list[str]) -> Figure | None:
    """u at each point over the value, with its interval; None unless one number varies."""
    curves = dict[str, list[tuple[float, float, float]]]()
    for row in rows:
        point, value = row.get("point"), row["set"][keys[0]]
        if len(keys) > 1 or isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if point is not None and point["certified"]:
            where = f"t = {point['t']:g}, {format_point([np.atleast_1d(point['x'])])}"
            curves.setdefault(where, []).append((value, point["value"], point["halfwidth"]))
    if not curves or len(curves) > len(COLOURS) or max(map(len, curves.values())) < 2:
        return None
    figure, (ax,) = panels(1, height=3.3)
    for colour, (where, triples) in zip(COLOURS, curves.items(), strict=False):
        s, value, half = np.array(sorted(triples)).T
        ax.errorbar(s, value, half, fmt="o-", ms=4, capsize=3, color=colour, label=where)
    ax.set(xlabel=keys[0], ylabel="u")
    legend_above(ax, f"certified values over {keys[0]}", 1)
    return figure
