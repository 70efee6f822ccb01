"""Figures in the style of the paper: curves of errors over dimension, in panels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from heatnets.plotting.style import COLOURS, GREY

NORMS = {"l1": "relative L1 error", "l2": "relative L2 error", "linf": "relative L∞ error"}
SETUP_COLOUR, DEFAULT_COLOUR = COLOURS[:2]
NAMED = {"set-up": SETUP_COLOUR, "default": DEFAULT_COLOUR, "grey": GREY}

Points = Mapping[Any, Mapping[str, Any]]  # x, and the errors there by norm
Claims = Sequence[Mapping[str, Any]]  # see published_results.toml


class Curve(NamedTuple):
    """A curve and its style; `band`: the two ends of a shaded band."""

    label: str
    points: Points
    colour: str
    marker: str = "o"
    style: str = "-"
    band: tuple[Points, ...] = ()


def error_panels(
    rows: Sequence[tuple[str, list[Curve], Claims]], legend_columns: int = 4
) -> Figure:
    """Errors over dimension, a panel for each norm.

    Args:
        rows: for each row of panels, what follows the norm in its titles, its curves, and the
            statements of the paper about them.
        legend_columns: number of columns of the legend.
    """
    figure, axes = panels(len(rows), 3)
    for row, (suffix, curves, claims) in zip(axes, rows, strict=True):
        for ax, (norm, title) in zip(row, NORMS.items(), strict=True):
            draw(ax, curves, norm, claims)
            ax.set(xlabel="dimension d", title=title + suffix)
        row[0].set_ylabel("relative error")
    return add_legend(figure, legend_columns)


def panels(
    rows: int, columns: int, width: float = 10.5, height: float = 3.2
) -> tuple[Figure, np.ndarray]:
    """A figure and its axes, shape (rows, columns); `height` is that of one row, in inches."""
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharey="row")


def draw(ax: Any, curves: Iterable[Curve], norm: str = "l2", claims: Claims = ()) -> None:
    """Draw curves on logarithmic axes, and statements of the paper's text as hatched boxes."""
    for label, points, colour, marker, style, band in curves:
        x = [x for x, point in points.items() if point and point[norm] is not None]
        y, *ends = ([values[place][norm] for place in x] for values in (points, *band))
        if not x:
            continue
        if ends:
            ax.fill_between(x, *ends, color=colour, alpha=0.2, linewidth=0)
        size = 9 if marker == "*" else 4
        ax.plot(x, y, style, marker=marker, ms=size, lw=1.2, color=colour, label=label)
    for claim in claims:
        first, last, low, high = (claim[name] for name in ("first", "last", "low", "high"))
        # A single value gets a box of some height, a single dimension one of some width.
        wider, taller = 1.12 if first == last else 1.0, 1.25 if low == high else 1.0
        box = [first / wider, last * wider], low / taller, high * taller
        look = {"facecolor": "none", "edgecolor": GREY, "hatch": "////", "linewidth": 0.8}
        ax.fill_between(*box, label="the paper, in words", **look)
    ax.set(xscale="log", yscale="log")
    ax.grid(alpha=0.25, linewidth=0.6)


def labelled_rows(names: list[str], xlabel: str, width: float, height: float) -> tuple[Figure, Any]:
    """A figure with one logarithmic panel, in which each row 0, 1, ... has a name."""
    figure, ((ax,),) = panels(1, 1, width, height)
    ax.set(xscale="log", yticks=range(len(names)), yticklabels=names, xlabel=xlabel)
    ax.invert_yaxis()
    ax.grid(axis="x", alpha=0.25, linewidth=0.6)
    return figure, ax


def add_legend(figure: Figure, columns: int = 4) -> Figure:
    """Add one legend below all panels; equal labels have one entry."""
    handles: dict[str, Any] = {}
    for ax in figure.axes:
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


def shades(name: str, count: int) -> list[str]:
    """Colours for a family of curves: one of `NAMED`, or shades of a colour map, dark to light."""
    if name in NAMED:
        return [NAMED[name]] * count
    colours = matplotlib.colormaps[name](np.linspace(0.9, 0.45, count))
    return [matplotlib.colors.to_hex(colour) for colour in colours]
