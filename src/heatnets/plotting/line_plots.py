"""Plots of u along curves (t, x), with its estimated, true and certified errors.

Also the extent of a region: its centre, and lines through it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from heatnets._core.errors import check_int
from heatnets._core.statistics import rms
from heatnets.metrics import exact_gradient, exact_values, random_points
from heatnets.pde.regions import Box
from heatnets.plotting.style import (
    COLOURS,
    GREY,
    legend_above,
    move_offset_to_label,
    panels,
    set_log_decades,
)
from heatnets.solution import Solution

LOG_FLOOR = 1e-17  # smallest error on logarithmic axes, relative to the size of u
_SIZE_POINTS = 512  # number of points that give the size of u over the region to a few per cent


class Curve(NamedTuple):
    """n points (t, x) along which u is plotted, and their positions s on the horizontal axis."""

    label: str
    s: np.ndarray  # (n,)
    t: np.ndarray  # (n,)
    x: np.ndarray  # (n, dim)


def plot_curves(
    solution: Solution,
    curves: list[Curve],
    certified: int,
    seed: int,
    *,
    title: str,
    axis_label: str,
    known: list[CertifiedPoints] | None = None,
    derivative: int | None = None,
) -> Figure:
    """Plot u along curves with all error information that is available.

    The upper panel has u, with errors as shaded bands or bars. The lower panel has the errors on a
    logarithmic axis; it is omitted if neither an exact solution nor certificates are available.

    Args:
        solution: the solution.
        curves: the curves, all with the same number of points.
        certified: number of points of each curve to certify.
        seed: random seed of the certificates.
        title: title of the figure.
        axis_label: label of the horizontal axis.
        known: certificates at points of the curves that are drawn if `certified` is 0.
        derivative: a coordinate; the derivative of u in it is drawn in a panel between the two.
    """
    problem, is_point = solution.problem, solution.problem.region.is_point
    estimate, size = solution.stats["estimated_error"], rms_size(solution)
    half = None if estimate is None or not np.isfinite(estimate) else estimate * size
    certificates = _certify_curves(solution, curves, certified, seed) or known or []
    has_exact = problem.exact is not None
    rows = 1 + (derivative is not None) + bool(has_exact or certificates)
    figure, (top, *below) = panels(rows, share=True)
    if derivative is not None:
        _plot_derivatives(below.pop(0), solution, curves, derivative)
    for i, curve in enumerate(curves):
        colour, value = COLOURS[i % len(COLOURS)], solution(curve.t, curve.x)
        top.plot(curve.s, value, color=colour, label=curve.label)
        if has_exact:
            exact = exact_values(problem, curve.t, curve.x)
            some = slice(None, None, max(len(curve.s) // 20, 1))
            top.plot(curve.s[some], exact[some], "o", mfc="none", ms=4, color=colour)
            below[0].plot(curve.s, clip_for_log(value - exact, size), color=colour, linewidth=1.2)
        if half is not None and not is_point:
            band = {"color": colour, "alpha": 0.3, "linewidth": 0}
            top.fill_between(curve.s, value - half, value + half, **band)
        elif half is not None and np.any(mask := _estimate_mask(solution, curve)):
            s = curve.s[mask]
            top.errorbar(s, value[mask], half, fmt="none", color=colour, elinewidth=6, alpha=0.5)
            for errors in below:
                errors.plot(s, np.full(len(s), half), "D", ms=6, color=GREY)
        if certificates:
            _plot_certificates(top, below[0], certificates[i], colour)
    # Legend handles of both panels are grey: they stand for all curves.
    handles, error_handles = [], []
    if certificates:
        good = np.concatenate([c.certified for c in certificates])
        if np.any(good):
            label = f"certified, {100 * certificates[0].confidence:g} %"
            handles.append(_grey(label, "", marker=".", ms=6))
        if not np.all(good):
            handles.append(_grey("not certified", "", marker="x", ms=6))
    if has_exact:
        handles.append(_grey("exact", "", marker="o", mfc="none", ms=4))
        error_handles.append(_grey("true error", "-"))
    if half is not None:
        label = f"estimated ± {half:.1e}"
        if is_point:
            handles.append(_grey(label, "", marker="|", ms=8, mew=4, alpha=0.6))
            error_handles.append(_grey("estimated, at the point", "", marker="D", ms=6))
        else:
            handles.append(Patch(color=GREY, alpha=0.4, label=label))
            error_handles.append(_grey("estimated (rms)", "--"))
            for errors in below:
                errors.axhline(half, color=GREY, linestyle="--", linewidth=1.2)
    if certificates:
        error_handles.append(_grey("certified bound", "", marker="v", ms=5))
    _widen_limits(top, size)
    top.set_ylabel("u")
    legend_above(top, title, 3, handles)
    for errors in below:
        errors.set_ylabel("|error of u|")
        legend_above(errors, "", 3, error_handles)
        set_log_decades(errors)
    figure.axes[-1].set_xlabel(axis_label)
    move_offset_to_label(figure, top)
    return figure


def _plot_derivatives(ax: Any, solution: Solution, curves: list[Curve], i: int) -> None:
    """Plot the derivative of the network in coordinate i along curves, and the exact one."""
    problem, handles = solution.problem, []
    for k, curve in enumerate(curves):
        colour = COLOURS[k % len(COLOURS)]
        ax.plot(curve.s, solution.gradient(curve.t, curve.x)[:, i], color=colour)
        if problem.exact is not None:
            some = slice(None, None, max(len(curve.s) // 20, 1))
            exact = exact_gradient(problem, curve.t[some], curve.x[some])[:, i]
            ax.plot(curve.s[some], exact, "o", mfc="none", ms=4, color=colour)
    if problem.exact is not None:
        handles.append(_grey("exact", "", marker="o", mfc="none", ms=4))
    name = f"∂u/∂$x_{{{i + 1}}}$" if problem.dim > 1 else "∂u/∂x"
    ax.set_ylabel(name)
    legend_above(ax, f"{name} of the network", 3, handles)


def _grey(label: str, line: Any, **marker: Any) -> Any:
    """A grey legend handle: a line (none if empty), or a marker."""
    return Line2D([], [], color=GREY, linestyle=line, linewidth=1.2, label=label, **marker)


class CertifiedPoints(NamedTuple):
    """Certificates at m points of a curve, at the positions s."""

    confidence: float
    s: np.ndarray  # (m,), as the arrays below
    value: np.ndarray
    error: np.ndarray
    halfwidth: np.ndarray
    certified: np.ndarray


def _certify_curves(
    solution: Solution, curves: list[Curve], number: int, seed: int
) -> list[CertifiedPoints]:
    """Certify `number` evenly spread points of each curve; an empty list if `number` is 0."""
    hint = "It is the number of points of each line to certify."
    number = check_int("certified", number, 0, hint)
    if not number:
        return []
    n = len(curves[0].s)
    indices = np.unique(np.round((np.arange(number) + 0.5) / number * (n - 1)).astype(int))
    t = np.concatenate([curve.t[indices] for curve in curves])
    x = np.concatenate([curve.x[indices] for curve in curves])
    certificate = solution.certify(t, x, seed=seed)
    names = ("value", "error", "halfwidth", "certified")
    by_curve = zip(*(np.split(getattr(certificate, k), len(curves)) for k in names), strict=True)
    return [
        CertifiedPoints(certificate.confidence, curve.s[indices], *arrays)
        for curve, arrays in zip(curves, by_curve, strict=True)
    ]


def _plot_certificates(top: Any, errors: Any, points: CertifiedPoints, colour: str) -> None:
    """Plot certified values with their intervals, and crosses at points that are not certified."""
    _, s, value, error, half, good = points
    if np.any(good):
        marks = {"fmt": ".", "ms": 5, "color": colour, "capsize": 3, "linewidth": 1.2}
        top.errorbar(s[good], value[good], half[good], **marks)
        errors.plot(s[good], np.abs(error[good]) + half[good], "v", ms=5, color=colour)
    if not np.all(good):
        top.plot(s[~good], value[~good], "x", ms=6, color=GREY)


def _widen_limits(ax: Any, size: float) -> None:
    """Widen the y limits where u is constant to rounding, so that no rounding errors are shown."""
    low, high = ax.get_ylim()
    if high - low < 1e-9 * size:
        ax.set_ylim(low - 0.1 * size, high + 0.1 * size)


def clip_for_log(values: np.ndarray, size: float) -> np.ndarray:
    """|values|, at least `LOG_FLOOR` times `size`: for logarithmic axes."""
    return np.maximum(np.abs(values), LOG_FLOOR * size)


def rms_size(solution: Solution) -> float:
    """The root mean square of u over (0, T] x region, as in its estimated error; 1 if u is zero."""
    return rms(solution(*random_points(solution.problem, _SIZE_POINTS))) or 1.0


def _estimate_mask(solution: Solution, curve: Curve) -> np.ndarray:
    """Mask, shape (n,): where on a curve the error is estimated if the region is a `Point`.

    This is the point itself, at the end time.
    """
    at_point = np.all(np.isclose(curve.x, region_centre(solution)), axis=1)
    return (curve.t == end_time(solution)) & at_point


def end_time(solution: Solution) -> float:
    """The time furthest from the initial (or terminal) condition."""
    return 0.0 if solution.problem.is_terminal else solution.problem.horizon


def line_axis_label(solution: Solution) -> str:
    """Label of the horizontal axis: what the positions ±1 on a line are."""
    region = solution.problem.region
    if isinstance(region, Box):
        return "position (±1: the region's faces)"
    return f"position (±1: two standard deviations{' of paths' if region.is_point else ''})"


def region_centre(solution: Solution) -> np.ndarray:
    """The centre of the region, shape (dim,)."""
    return np.broadcast_to(solution.problem.region.centre, (solution.problem.dim,))


def lines_through(
    solution: Solution, s: np.ndarray, directions: np.ndarray, point: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """Points on lines through a point, from face to face of a box around the region.

    The box is the region itself, if that is a box. Else its half lengths are two standard
    deviations of a normal region, or of paths that start in a single point. It is made larger
    where the point lies outside.

    Args:
        solution: the solution.
        s: positions, from -1 to 1, the faces, shape (n,).
        directions: shape (lines, dim), in units of the half lengths.
        point: shape (dim,).

    Returns:
        The points of each line, shape (n, dim), and the position of the point on each line.
    """
    problem, region, rng = solution.problem, solution.problem.region, np.random.default_rng(0)
    centre = region_centre(solution)
    if isinstance(region, Box):
        half_lengths = np.broadcast_to((region.high - region.low) / 2, (problem.dim,))
    elif not region.is_point:
        half_lengths = 2 * region.sample(rng, 256, problem.dim).std(axis=0)
    else:
        half_lengths = 2 * sample_paths_from_point(solution, rng, np.zeros(256))[1].std(axis=0)
        if problem.process.is_positive:
            half_lengths = np.minimum(half_lengths, 0.9 * centre)
    half_lengths = np.maximum(half_lengths, np.abs(point - centre))
    lines, positions = [], []
    for direction in directions:
        moving = direction != 0
        step = half_lengths * direction
        faces = [centre - point + sign * half_lengths for sign in (-1, 1)]
        ends = [face[moving] / step[moving] for face in faces]
        low, high = np.max(np.minimum(*ends)), np.min(np.maximum(*ends))
        if high - low < 0.1:  # the line only touches the box, in a corner: it leaves the box
            low, high = -1.0, 1.0
        lines.append(point + 0.5 * (low + high + s[:, None] * (high - low)) * step)
        positions.append(-(low + high) / (high - low))
    return lines, np.array(positions)


def sample_paths_from_point(
    solution: Solution, rng: np.random.Generator, remaining: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sample points of paths that start in the region's single point at the end time.

    Args:
        solution: the solution.
        rng: the random generator.
        remaining: fractions of the time interval that remain to the initial (or terminal)
            condition, shape (n,).

    Returns:
        Times, shape (n,), and points, shape (n, dim), in the variables of the problem.
    """
    problem, canonical, n = solution.problem, solution.problem.canonical, len(remaining)
    _, y = problem.transform.to_canonical(
        np.full(n, end_time(solution)), np.tile(region_centre(solution), (n, 1))
    )
    s = np.full(n, canonical.horizon)
    draws = canonical.paths.sample_noise(rng, (n,), problem.dim)
    ends = canonical.paths.simulate(s, y, (1 - remaining) * s, draws).position
    t, x = problem.transform.from_canonical(remaining * s, ends)
    return np.clip(t, 0.0, problem.horizon), x
