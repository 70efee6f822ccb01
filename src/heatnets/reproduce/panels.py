"""Figures in the style of the paper: curves of errors over dimension, in panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from heatnets.plotting.style import COLOURS
from heatnets.reproduce.published import TextClaim

NORMS = {"l1": "relative L1 error", "l2": "relative L2 error", "linf": "relative L∞ error"}


class Line(NamedTuple):
    """A curve: its points and its style; `band` has the lower and upper ends of a shaded band."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    marker: str = "o"
    style: str = "-"
    band: tuple[Sequence[float], Sequence[float]] | None = None


def panels(
    rows: int, columns: int, width: float = 10.5, height: float = 3.2
) -> tuple[Figure, np.ndarray]:
    """A figure and its axes, shape (rows, columns); `height` is that of one row, in inches."""
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharey="row")


def draw(ax: Any, lines: Sequence[Line], claims: Sequence[TextClaim] = ()) -> None:
    """Draw curves on logarithmic axes, and statements of the paper's text as hatched boxes."""
    for line in lines:
        if not len(line.x):
            continue
        if line.band is not None:
            ax.fill_between(line.x, *line.band, color=line.colour, alpha=0.2, linewidth=0)
        ax.plot(
            line.x,
            line.y,
            line.style,
            marker=line.marker,
            ms=9 if line.marker == "*" else 4,
            lw=1.2,
            color=line.colour,
            label=line.label,
        )
    for i, claim in enumerate(claims):
        # A single value gets a box of some height, a single dimension one of some width.
        low, high, first, last = claim.low, claim.high, float(claim.first), float(claim.last)
        if claim.low == claim.high:
            low, high = claim.low / 1.25, claim.high * 1.25
        if claim.first == claim.last:
            first, last = claim.first / 1.12, claim.last * 1.12
        style = {"facecolor": "none", "edgecolor": "#777777", "hatch": "////", "linewidth": 0.8}
        box = ax.fill_between([first, last], low, high, **style)
        if i == 0:
            box.set_label("the paper, in words")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.grid(alpha=0.25, linewidth=0.6)


def finish(figure: Figure, axes: np.ndarray, columns: int = 4) -> Figure:
    """Add one legend below all panels."""
    handles: dict[str, Any] = {}
    for ax in axes.ravel():
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=8.5,
    )
    return figure


def shades(count: int, name: str) -> list[str]:
    """`count` colours of a colour map, dark to light, for a family of curves."""
    return [
        matplotlib.colors.to_hex(matplotlib.colormaps[name](v))
        for v in np.linspace(0.9, 0.45, count)
    ]


OURS, DEFAULT, PUBLISHED, FOURTH = COLOURS[0], COLOURS[1], "#777777", COLOURS[2]
