"""u along curves in time and space, with every error that is known; and where curves through a region go."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from heatnets._core.errors import count
from heatnets._core.statistics import rms
from heatnets.certify.values import Certificate
from heatnets.metrics import exact_values, random_points
from heatnets.pde.regions import Box
from heatnets.plotting.style import COLOURS, GREY, decades, legend_above, panels, spelled
from heatnets.solution import Solution

LEAST = 1e-17  # of the size of u: on logarithmic axes what is smaller is drawn as this
_SIZED = 512  # points from which the size of u over the region is known to a few per cent


class Curve(NamedTuple):
    """Points (t, x) along which u is drawn, and their positions on the horizontal axis."""

    label: str
    s: np.ndarray  # (n,)
    t: np.ndarray  # (n,)
    x: np.ndarray  # (n, dim)


def drawn(
    solution: Solution, curves: list[Curve], certified: int, seed: int, title: str, along: str
) -> Figure:
    """u along curves, with every error that is known: shaded or as bars above, on a logarithmic axis below."""
    problem, single = solution.problem, solution.problem.region.single
    known, estimate = problem.exact is not None, solution.stats["estimated_error"]
    sure = _certified(solution, curves, certified, seed)
    size = size_of(solution)
    half = None if estimate is None or not np.isfinite(estimate) else estimate * size
    below = known or bool(sure)
    figure, axes = panels(2 if below else 1, share=True)
    top = axes[0]
    marks: list[Artist] = []
    for i, curve in enumerate(curves):
        colour, value = COLOURS[i % len(COLOURS)], solution(curve.t, curve.x)
        top.plot(curve.s, value, color=colour, label=curve.label)
        if known:
            exact, few = (
                exact_values(problem, curve.t, curve.x),
                slice(None, None, max(len(curve.s) // 20, 1)),
            )
            top.plot(curve.s[few], exact[few], "o", mfc="none", ms=4, color=colour)
            axes[1].plot(curve.s, above(value - exact, size), color=colour, linewidth=1.2)
        if half is not None and not single:
            top.fill_between(
                curve.s, value - half, value + half, color=colour, alpha=0.3, linewidth=0
            )
        elif half is not None and np.any(here := _judged(solution, curve)):
            top.errorbar(
                curve.s[here], value[here], half, fmt="none", color=colour, elinewidth=6, alpha=0.5
            )
            if below:
                axes[1].plot(curve.s[here], np.full(int(here.sum()), half), "D", ms=6, color=GREY)
        if sure:
            marks += _bars(top, axes[1], curve, sure[i], colour)
    if known:
        marks.append(
            Line2D([], [], marker="o", mfc="none", ms=4, color=GREY, linestyle="", label="exact")
        )
    if half is not None:
        name = f"estimated ± {half:.1e}"
        at_point = Line2D(
            [], [], marker="|", ms=8, mew=4, alpha=0.6, color=GREY, linestyle="", label=name
        )
        marks.append(at_point if single else Patch(color=GREY, alpha=0.4, label=name))
        if below and not single:
            axes[1].axhline(half, color=GREY, linestyle="--", linewidth=1.2)
    _widened(top, size)
    top.set_ylabel("u")
    legend_above(top, title, 3, {mark.get_label(): mark for mark in marks}.values())
    if below:
        axes[1].set_ylabel("|error of u|")
        told = [Line2D([], [], color=GREY, linewidth=1.2, label="true error")] if known else []
        if half is not None:
            how: dict[str, Any] = (
                {"marker": "D", "ms": 6, "linestyle": ""}
                if single
                else {"linestyle": "--", "linewidth": 1.2}
            )
            told.append(
                Line2D(
                    [],
                    [],
                    color=GREY,
                    label="estimated, at the point" if single else "estimated (rms)",
                    **how,
                )
            )
        if sure:
            told.append(
                Line2D([], [], marker="v", ms=5, color=GREY, linestyle="", label="certified bound")
            )
        legend_above(axes[1], "", 3, told)
        decades(axes[1])
    axes[-1].set_xlabel(along)
    spelled(figure, top)
    return figure


class _Sure(NamedTuple):
    """Certificates of some points of a curve."""

    where: np.ndarray  # their numbers
    found: Certificate
    part: slice  # of the certificate


def _certified(solution: Solution, curves: list[Curve], number: int, seed: int) -> list[_Sure]:
    """For each curve the certificates of some of its points, evenly spread; none where none are asked for."""
    number = count("certified", number, 0, "It is the number of points of each line to certify.")
    if not number:
        return []
    n = len(curves[0].s)
    where = np.unique(np.round((np.arange(number) + 0.5) / number * (n - 1)).astype(int))
    t, x = (
        np.concatenate([getattr(curve, name)[where] for curve in curves]) for name in ("t", "x")
    )
    found = solution.certify(t, x, seed=seed)
    return [
        _Sure(where, found, slice(i * len(where), (i + 1) * len(where))) for i in range(len(curves))
    ]


def _bars(top: Any, errors: Any, curve: Curve, sure: _Sure, colour: str) -> list[Line2D]:
    """Certified values with their intervals; those that are not certified as crosses, without. What the legend says of them."""
    value, error, half, good = (
        getattr(sure.found, name)[sure.part]
        for name in ("value", "error", "halfwidth", "certified")
    )
    s, told = curve.s[sure.where], []
    if np.any(good):
        top.errorbar(
            s[good], value[good], half[good], fmt=".", ms=5, color=colour, capsize=3, linewidth=1.2
        )
        errors.plot(s[good], np.abs(error[good]) + half[good], "v", ms=5, color=colour)
        told.append(
            Line2D(
                [],
                [],
                marker=".",
                ms=6,
                color=GREY,
                linestyle="",
                label=f"certified, {100 * sure.found.confidence:g} %",
            )
        )
    if not np.all(good):
        top.plot(s[~good], value[~good], "x", ms=6, color=GREY)
        told.append(
            Line2D([], [], marker="x", ms=6, color=GREY, linestyle="", label="not certified")
        )
    return told


def _widened(ax: Any, size: float) -> None:
    """Where u is constant to rounding, room around it: rounding errors are no shape of u."""
    low, high = ax.get_ylim()
    if high - low < 1e-9 * size:
        ax.set_ylim(low - 0.1 * size, high + 0.1 * size)


def above(values: np.ndarray, size: float) -> np.ndarray:
    """|values|, none of them zero: for logarithmic axes."""
    return np.maximum(np.abs(values), LEAST * size)


def size_of(solution: Solution) -> float:
    """The root mean square of u where its estimated error is of: over (0, T] x region; 1 where u is zero."""
    return rms(solution(*random_points(solution.problem, _SIZED))) or 1.0


def _judged(solution: Solution, curve: Curve) -> np.ndarray:
    """The points of a curve at which a `Point`'s error is estimated: the point itself, at the end."""
    return (curve.t == end_of(solution)) & np.all(np.isclose(curve.x, middle_of(solution)), axis=1)


def end_of(solution: Solution) -> float:
    """The time furthest from where u is given."""
    return 0.0 if solution.problem.is_terminal else solution.problem.horizon


def scale_of(solution: Solution) -> str:
    """What ±1 on a line is."""
    region = solution.problem.region
    if isinstance(region, Box):
        return "position (±1: the region's faces)"
    return f"position (±1: two standard deviations{' of paths' if region.single else ''})"


def middle_of(solution: Solution) -> np.ndarray:
    """The region's middle, shape (dim,)."""
    return np.broadcast_to(solution.problem.region.centre, (solution.problem.dim,))


def reach_of(solution: Solution) -> np.ndarray:
    """How far a line goes: through a box or a cloud; from a single point as far as paths go, to two standard deviations."""
    problem, rng = solution.problem, np.random.default_rng(0)
    region = problem.region
    if isinstance(region, Box):
        return np.broadcast_to((region.high - region.low) / 2, (problem.dim,))
    if not region.single:
        return 2 * region.sample(rng, 256, problem.dim).std(axis=0)
    reach = 2 * from_point(solution, rng, np.zeros(256))[1].std(axis=0)
    return np.minimum(reach, 0.9 * middle_of(solution)) if problem.process.positive else reach


def from_point(
    solution: Solution, rng: np.random.Generator, left: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Times and places on paths from a single point, when these fractions of the time are left to where u is given."""
    problem, canonical, n = solution.problem, solution.problem.canonical, len(left)
    _, y = problem.transform.to_canonical(
        np.full(n, end_of(solution)), np.tile(middle_of(solution), (n, 1))
    )
    s = np.full(n, canonical.horizon)
    ends = canonical.paths.go(
        s, y, (1 - left) * s, canonical.paths.draw(rng, (n,), problem.dim)
    ).place
    t, x = problem.transform.from_canonical(left * s, ends)
    return np.clip(t, 0.0, problem.horizon), x
