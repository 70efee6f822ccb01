"""Plots of u along curves (t, x), with its estimated, true and certified errors.

Also the extent of a region: its centre, and how far lines through it are plot_curves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from heatnets._core.errors import check_int
from heatnets._core.statistics import rms
from heatnets.certify.values import Certificate
from heatnets.metrics import exact_values, random_points
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
    solution: Solution, curves: list[Curve], certified: int, seed: int, title: str, axis_label: str
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
    """
    problem, single = solution.problem, solution.problem.region.single
    has_exact, estimate = problem.exact is not None, solution.stats["estimated_error"]
    certificates = _certify_curves(solution, curves, certified, seed)
    size = rms_size(solution)
    half = None if estimate is None or not np.isfinite(estimate) else estimate * size
    has_errors = has_exact or bool(certificates)
    figure, axes = panels(2 if has_errors else 1, share=True)
    top = axes[0]
    handles: list[Artist] = []
    for i, curve in enumerate(curves):
        colour, value = COLOURS[i % len(COLOURS)], solution(curve.t, curve.x)
        top.plot(curve.s, value, color=colour, label=curve.label)
        if has_exact:
            exact = exact_values(problem, curve.t, curve.x)
            some = slice(None, None, max(len(curve.s) // 20, 1))
            top.plot(curve.s[some], exact[some], "o", mfc="none", ms=4, color=colour)
            axes[1].plot(curve.s, clip_for_log(value - exact, size), color=colour, linewidth=1.2)
        if half is not None and not single:
            top.fill_between(
                curve.s, value - half, value + half, color=colour, alpha=0.3, linewidth=0
            )
        elif half is not None and np.any(mask := _estimate_mask(solution, curve)):
            s = curve.s[mask]
            top.errorbar(s, value[mask], half, fmt="none", color=colour, elinewidth=6, alpha=0.5)
            if has_errors:
                axes[1].plot(s, np.full(int(mask.sum()), half), "D", ms=6, color=GREY)
        if certificates:
            handles += _plot_certificates(top, axes[1], curve, certificates[i], colour)
    if has_exact:
        handles.append(_marker("exact", marker="o", mfc="none", ms=4))
    if half is not None:
        name = f"estimated ± {half:.1e}"
        at_point = _marker(name, marker="|", ms=8, mew=4, alpha=0.6)
        handles.append(at_point if single else Patch(color=GREY, alpha=0.4, label=name))
        if has_errors and not single:
            axes[1].axhline(half, color=GREY, linestyle="--", linewidth=1.2)
    _widen_limits(top, size)
    top.set_ylabel("u")
    legend_above(top, title, 3, {handle.get_label(): handle for handle in handles}.values())
    if has_errors:
        axes[1].set_ylabel("|error of u|")
        legend_above(axes[1], "", 3, _error_handles(has_exact, half, single, bool(certificates)))
        set_log_decades(axes[1])
    axes[-1].set_xlabel(axis_label)
    move_offset_to_label(figure, top)
    return figure


def _marker(label: str, **style: Any) -> Line2D:
    """A grey legend handle that shows a marker without a line."""
    return Line2D([], [], color=GREY, linestyle="", label=label, **style)


def _error_handles(
    has_exact: bool, half: float | None, single: bool, certified: bool
) -> list[Line2D]:
    """Legend handles of the lower panel: true error, estimated error, certified bound."""
    handles = []
    if has_exact:
        handles.append(Line2D([], [], color=GREY, linewidth=1.2, label="true error"))
    if half is not None and single:
        handles.append(_marker("estimated, at the point", marker="D", ms=6))
    elif half is not None:
        handles.append(
            Line2D([], [], color=GREY, linestyle="--", linewidth=1.2, label="estimated (rms)")
        )
    if certified:
        handles.append(_marker("certified bound", marker="v", ms=5))
    return handles


class _CurveCertificates(NamedTuple):
    """Certificates at some points of a curve."""

    indices: np.ndarray  # of these points on the curve
    certificate: Certificate  # of the points of all curves
    part: slice  # the part of the certificate that belongs to this curve


def _certify_curves(
    solution: Solution, curves: list[Curve], number: int, seed: int
) -> list[_CurveCertificates]:
    """Certify `number` evenly spread points of each curve; an empty list if `number` is 0."""
    number = check_int(
        "certified", number, 0, "It is the number of points of each line to certify."
    )
    if not number:
        return []
    n = len(curves[0].s)
    indices = np.unique(np.round((np.arange(number) + 0.5) / number * (n - 1)).astype(int))
    t = np.concatenate([curve.t[indices] for curve in curves])
    x = np.concatenate([curve.x[indices] for curve in curves])
    certificate = solution.certify(t, x, seed=seed)
    m = len(indices)
    return [
        _CurveCertificates(indices, certificate, slice(i * m, (i + 1) * m))
        for i in range(len(curves))
    ]


def _plot_certificates(
    top: Any, errors: Any, curve: Curve, certificates: _CurveCertificates, colour: str
) -> list[Line2D]:
    """Plot certified values with their intervals, and crosses at points that are not certified.

    Returns:
        Legend handles of these marks.
    """
    value, error, half, good = (
        getattr(certificates.certificate, name)[certificates.part]
        for name in ("value", "error", "halfwidth", "certified")
    )
    s, handles = curve.s[certificates.indices], []
    if np.any(good):
        top.errorbar(
            s[good], value[good], half[good], fmt=".", ms=5, color=colour, capsize=3, linewidth=1.2
        )
        errors.plot(s[good], np.abs(error[good]) + half[good], "v", ms=5, color=colour)
        confidence = certificates.certificate.confidence
        handles.append(_marker(f"certified, {100 * confidence:g} %", marker=".", ms=6))
    if not np.all(good):
        top.plot(s[~good], value[~good], "x", ms=6, color=GREY)
        handles.append(_marker("not certified", marker="x", ms=6))
    return handles


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
    return f"position (±1: two standard deviations{' of paths' if region.single else ''})"


def region_centre(solution: Solution) -> np.ndarray:
    """The centre of the region, shape (dim,)."""
    return np.broadcast_to(solution.problem.region.centre, (solution.problem.dim,))


def line_half_lengths(solution: Solution) -> np.ndarray:
    """Half lengths of lines through the region by coordinate, shape (dim,).

    Half the widths of a box; two standard deviations of a normal region; two standard deviations
    of paths that start in a single point.
    """
    problem, rng = solution.problem, np.random.default_rng(0)
    region = problem.region
    if isinstance(region, Box):
        return np.broadcast_to((region.high - region.low) / 2, (problem.dim,))
    if not region.single:
        return 2 * region.sample(rng, 256, problem.dim).std(axis=0)
    reach = 2 * sample_paths_from_point(solution, rng, np.zeros(256))[1].std(axis=0)
    return np.minimum(reach, 0.9 * region_centre(solution)) if problem.process.positive else reach


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
    draws = canonical.paths.draw(rng, (n,), problem.dim)
    ends = canonical.paths.simulate(s, y, (1 - remaining) * s, draws).position
    t, x = problem.transform.from_canonical(remaining * s, ends)
    return np.clip(t, 0.0, problem.horizon), x
