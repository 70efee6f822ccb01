"""Figures of solutions: u along lines and over time, residuals, weights, adaptive rounds.

Each function returns a matplotlib figure; `save` writes it to a file, `svg` makes SVG text of it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, SymmetricalLogLocator

from heatnets._core import streams
from heatnets._core.errors import InputError, check_finite, check_int, short_repr
from heatnets._core.statistics import rms
from heatnets.certify.certificate import Certificate
from heatnets.certify.explain import Explanation
from heatnets.metrics import random_points
from heatnets.pde.function_values import format_point
from heatnets.plotting.line_plots import (
    LOG_FLOOR,
    CertifiedPoints,
    Curve,
    clip_for_log,
    end_time,
    line_axis_label,
    lines_through,
    plot_curves,
    region_centre,
    rms_size,
    sample_paths_from_point,
)
from heatnets.plotting.style import COLOURS, GREY, legend_above, panels, set_log_decades
from heatnets.plotting.style import save as save
from heatnets.plotting.style import svg as svg
from heatnets.solution import Solution

_BINS, _TIMES = 40, 12  # number of bins of residuals: by size, by time
_LINEAR = 20.0  # largest weight times M that is still shown on a linear axis
_MOST_DOTS = 1000  # per kind of weights: a page with more would be slow to open


def line(solution: Solution, *, times: Any = None, points: int = 201, seed: int = 0) -> Figure:
    """Plot u along a random diagonal through the centre of the region, at a few times.

    The figure has the estimated error, and the true error if the problem has an exact solution.

    Args:
        solution: what `hn.solve` returned.
        times: the times at which u is drawn; default the start, the middle and the end.
        points: number of points on the line.
        seed: random seed of the line.

    Returns:
        The figure.
    """
    problem = solution.problem
    rng = streams.generator(streams.check_seed(seed), "plot line")
    s = _positions(points)
    diagonal = np.sign(rng.standard_normal((1, problem.dim)))
    (x,), _ = lines_through(solution, s, diagonal, region_centre(solution))
    curves = [Curve(f"t = {t:g}", s, np.full(len(s), t), x) for t in _times(solution, times)]
    title = f"u along a diagonal of the region, d = {problem.dim}"
    return plot_curves(solution, curves, 0, seed, title=title, axis_label=line_axis_label(solution))


def axis(
    solution: Solution,
    *,
    axis: int = 0,
    times: Any = None,
    points: int = 101,
    certified: int = 0,
    seed: int = 0,
) -> Figure:
    """Plot u and its derivative along a coordinate axis through the region's centre, by time.

    The shaded band of u, and the panel of errors if there is one, are as in `slices`. The
    derivative is that of the network; `solution.certify_gradient` gives intervals for the true one.

    Args:
        solution: what `hn.solve` returned.
        axis: the coordinate, counted from 0 as in x[0].
        times: the times at which u is drawn, six at most; default the start, the middle and the
            end.
        points: number of points on the axis.
        certified: number of points at each time at which the true value is drawn with its interval
            (`solution.certify`; each takes seconds).
        seed: random seed of the certificates.

    Returns:
        The figure.
    """
    problem = solution.problem
    (i,) = _coordinates([axis], problem.dim, "axis")
    along, middle = np.eye(1, problem.dim, i), region_centre(solution)
    (x,), _ = lines_through(solution, _positions(points), along, middle)
    curves = [Curve(f"t = {t:g}", x[:, i], np.full(len(x), t), x) for t in _times(solution, times)]
    name = f"$x_{{{i + 1}}}$" if problem.dim > 1 else "x"
    title = f"u along {name} through the region's middle, d = {problem.dim}"
    return plot_curves(
        solution, curves, certified, seed, title=title, axis_label=name, derivative=i
    )


def slices(
    solution: Solution,
    *,
    t: float | None = None,
    coordinates: Sequence[int] | None = None,
    lines: int = 2,
    points: int = 101,
    certified: int = 0,
    through: Any = None,
    known: Certificate | None = None,
    seed: int = 0,
) -> Figure:
    """Plot u along coordinate axes and random lines through a point of the region at one time.

    The shaded band is the estimated relative error of the solve times the size of u (root mean
    square over the region). If the region is a `Point`, the estimate holds at this point only; a
    solve of fixed size has none. Circles are the exact solution, if the problem has one. The panel
    below has a logarithmic axis: the true error, the estimate, and the bounds from certificates.

    Args:
        solution: what `hn.solve` returned.
        t: the time; default the end: T, or 0 for a terminal-value problem.
        coordinates: the axes, counted from 0 as in x[0]; default the first two.
        lines: number of random lines from face to face; none in one dimension.
        points: number of points on each line.
        certified: number of points of each line at which the true value is drawn with its interval
            (`solution.certify`; each takes seconds).
        through: the point that all lines meet; default the centre of the region.
        known: the certificate of u(t, through), to be drawn if `certified` is 0.
        seed: random seed of the lines and of the certificates.

    Returns:
        The figure.
    """
    problem, dim, s = solution.problem, solution.problem.dim, _positions(points)
    end = end_time(solution) if t is None else t
    point = region_centre(solution) if through is None else np.asarray(through, float)
    time, _, single = problem.as_points(end, point)
    if not single:
        raise InputError(
            f"`t` must be one time and `through` one point; got {short_repr(t)} and "
            f"{short_repr(through)}. Call `slices` for each, or `line` for several times in one "
            "picture."
        )
    axes = _coordinates(coordinates, dim)
    lines = check_int("lines", lines, 0, "It is the number of random lines.") if dim > 1 else 0
    if not axes and not lines:
        raise InputError(
            "`slices` has nothing to draw: give `coordinates`, or `lines` of at least 1."
        )
    rng = streams.generator(streams.check_seed(seed), "plot slices")
    normals = rng.standard_normal((lines, dim))
    units = np.arange(dim) == np.array(axes, int)[:, None]
    directions = np.concatenate([units, normals / abs(normals).max(1, keepdims=True)])
    labels = [f"along $x_{{{i + 1}}}$" if dim > 1 else "u" for i in axes]
    labels += [f"random line {k + 1}" for k in range(lines)]
    # With a single coordinate line the horizontal axis is the coordinate itself.
    one_axis = len(labels) == 1 and bool(axes)
    places, positions = lines_through(solution, s, directions, point)
    curves = [
        Curve(label, x[:, axes[0]] if one_axis else s, np.full(len(s), time[0]), x)
        for label, x in zip(labels, places, strict=True)
    ]
    coordinate = f"$x_{{{axes[0] + 1}}}$" if axes and dim > 1 else "x"
    axis_label = coordinate if one_axis else line_axis_label(solution)
    where = "the region's middle" if through is None else format_point([point])
    title = f"u({time[0]:g}, x) through {where}, d = {dim}"
    marks = None
    if known is not None:
        values = (known.value, known.error, known.halfwidth, known.certified)
        marks = [
            CertifiedPoints(known.confidence, *(np.atleast_1d(a) for a in (s_point, *values)))
            for s_point in (point[axes[:1]] if one_axis else positions)
        ]
    return plot_curves(
        solution, curves, certified, seed, title=title, axis_label=axis_label, known=marks
    )


def evolution(
    solution: Solution, *, x: Any = None, points: int = 101, certified: int = 0, seed: int = 0
) -> Figure:
    """Plot u over time at one point, with its error as in `slices`.

    Args:
        solution: what `hn.solve` returned.
        x: the point; default the centre of the region.
        points: number of times.
        certified: number of times at which the true value is drawn with its interval
            (`solution.certify`; each takes seconds).
        seed: random seed of the certificates.

    Returns:
        The figure.
    """
    problem = solution.problem
    t = problem.horizon * (0.5 + 0.5 * _positions(points))
    point = region_centre(solution) if x is None else check_finite("x", x, "It is one point.")
    if point.shape != (problem.dim,):
        raise InputError(
            f"`x` must be one point, of shape ({problem.dim},); got shape {point.shape}."
        )
    curve = Curve("u", t, t, np.broadcast_to(point, (len(t), problem.dim)))
    note = " (u is given at the right end)" if problem.is_terminal else ""
    title = f"u(t, x) at {format_point([point])}, d = {problem.dim}"
    return plot_curves(solution, [curve], certified, seed, title=title, axis_label=f"t{note}")


def residuals(solution: Solution, *, points: int = 2000, seed: int = 0) -> Figure:
    """Plot the residual R of the equation at random times and points: a histogram, and R by time.

    If the region is a `Point`, the points lie on paths that start in it, because R along these
    paths causes the error. Data with kinks or jumps have no residual and raise `InputError`.

    Args:
        solution: what `hn.solve` returned.
        points: number of random points.
        seed: random seed of the points.

    Returns:
        The figure.
    """
    problem = solution.problem
    points = check_int("points", points, 2 * _TIMES, "Their residuals are shown by time.")
    if solution.kinks:
        raise InputError(
            f"{solution.kinks}: second derivatives, and with them the residual of the "
            "equation, are not defined there. Judge this solution by u.certify(t, x) and "
            "u.error()."
        )
    if problem.region.is_point:
        rng = streams.generator(streams.check_seed(seed), "plot residuals")
        t, x = sample_paths_from_point(solution, rng, 1 - rng.random(points))
    else:
        t, x = random_points(problem, points, seed)
    unit = rms_size(solution) / problem.horizon
    residual = clip_for_log(solution.residual(t, x), unit)
    typical = rms(residual)
    figure, (histogram, by_time) = panels(2)
    low, high = residual.min() / 1.01, residual.max() * 1.01
    histogram.hist(residual, np.geomspace(low, high, _BINS + 1), color=COLOURS[0], alpha=0.75)
    marks = {"median": float(np.median(residual)), "rms": typical, "largest": float(residual.max())}
    for (name, value), style in zip(marks.items(), (":", "--", "-"), strict=True):
        histogram.axvline(
            value, color=COLOURS[1], linestyle=style, linewidth=1.4, label=f"{name} {value:.1e}"
        )
    histogram.set(
        xscale="log", xlabel="|R|, in units of u over time", ylabel=f"points (of {points})"
    )
    where = "on paths from the point" if problem.region.is_point else "in the region"
    legend_above(histogram, f"residual |R| {where}: rms {typical / unit:.1e} of u/T", 3)
    # Quantiles of |R| in time bins; empty bins are omitted.
    edges = np.linspace(0, problem.horizon, _TIMES + 1)
    bins = np.clip(np.searchsorted(edges, t, side="left") - 1, 0, _TIMES - 1)
    filled = [k for k in range(_TIMES) if np.any(bins == k)]
    middle = 0.5 * (edges[:-1] + edges[1:])[filled]
    low, median, high, largest = np.array(
        [np.quantile(residual[bins == k], [0.05, 0.5, 0.95, 1.0]) for k in filled]
    ).T
    band = {"color": COLOURS[0], "alpha": 0.25, "linewidth": 0}
    by_time.fill_between(middle, low, high, label="5 to 95 %", **band)
    by_time.plot(middle, median, color=COLOURS[0], label="median")
    by_time.plot(middle, largest, ".-", color=COLOURS[1], linewidth=1, label="largest")
    by_time.set(yscale="log", xlabel="t", ylabel="|R|", xlim=(0, problem.horizon))
    legend_above(by_time, "by time", 3)
    return figure


def weights(solution: Solution) -> Figure:
    """Plot the trained weights at the end of the time interval, sorted, times their number M.

    M is counted for each kind of features (initial, source); plain Monte Carlo has weights 1/M, so
    the value 1 in the figure.

    Args:
        solution: what `hn.solve` returned.

    Returns:
        The figure.
    """
    figure, (ax,) = panels(1, height=3.3)
    names = ("terminal" if solution.problem.is_terminal else "initial", "source")
    numbers = solution.stats["features"]
    kinds = [name for name, number in zip(names, numbers, strict=True) if number]
    arrays = [w for w in solution.weights if len(w)]
    # Weights that depend on time: their basis functions are all 1 at the end of the interval.
    values = [w if w.ndim == 1 else w.sum(axis=1) for w in arrays]
    _weights(ax, dict(zip(kinds, values, strict=True)))
    degree = solution.stats["time_degree"]
    note = f" (degree {degree} in time)" if degree else ""
    legend_above(ax, f"weights at t = {end_time(solution):g}{note}", 3)
    return figure


def history(solution: Solution) -> Figure:
    """Plot the rounds of an adaptive solve: estimated error over features, and over seconds.

    Args:
        solution: what `hn.solve` returned.

    Returns:
        The figure.
    """
    rounds = solution.stats["history"]
    if not rounds:
        raise InputError(
            "this solve was of a fixed size (`features` was given): it has no rounds of "
            "growth to draw. Leave `features` out for a solve that grows."
        )
    features = [sum(r.features) for r in rounds]
    error = [max(r.estimated_error, LOG_FLOOR) for r in rounds]
    final = max(solution.stats["estimated_error"], LOG_FLOOR)
    figure, axes = panels(2)
    final_label = f"the answer, by the last judges: {final:.1e}"
    for ax, xs in zip(axes, (features, [r.seconds for r in rounds]), strict=True):
        ax.semilogy(xs, error, "o-", color=COLOURS[0], label="each round, by its own judges")
        ax.axhline(final, color=COLOURS[1], linestyle="--", label=final_label)
        ax.set_ylabel("estimated relative error")
        for i, xy in enumerate(zip(xs, error, strict=True)):
            ax.annotate(str(i), xy, xytext=(6, 4), textcoords="offset points", fontsize=8)
        ax.margins(0.1)
        set_log_decades(ax)
    axes[0].set(xscale="log", xlabel="features", xlim=(min(features) / 1.5, max(features) * 1.5))
    axes[0].set_xticks(sorted(set(features)), [f"{m:,}" for m in sorted(set(features))])
    axes[0].xaxis.set_minor_locator(NullLocator())
    axes[1].set(xlabel="seconds since the start", xlim=(0, 1.08 * rounds[-1].seconds))
    # The round whose network is the answer.
    sizes = (solution.stats["features"], solution.stats["rows"][0])
    chosen = [i for i, r in enumerate(rounds) if (r.features, r.rows) == sizes]
    for i in chosen[:1]:
        axes[0].plot(
            features[i], error[i], "o", ms=11, mfc="none", color=COLOURS[1], label="the one taken"
        )
    plural = "s" if len(rounds) > 1 else ""
    title = f"growth in {len(rounds)} round{plural}; it ended as {solution.stats['stopped']}"
    legend_above(axes[0], textwrap.fill(title, 60), 1)
    return figure


def explanation(explained: Explanation) -> Figure:
    """Plot an `Explanation`: the parts of u(t, x), and the weights relative to Monte Carlo.

    Args:
        explained: what `solution.explain` returned.

    Returns:
        The figure.
    """
    figure, (left, right) = panels(1, 2, width=9.6, height=3.3)
    names = ["initial condition", *(f"{a:.3g}–{b:.3g}" for a, b in pairwise(explained.lags))]
    parts = [explained.initial, *explained.by_lag]
    left.bar(
        range(len(parts)),
        [p.value for p in parts],
        yerr=[2 * p.error for p in parts],
        color=[COLOURS[0]] + [COLOURS[1]] * len(explained.by_lag),
        capsize=2,
        ecolor=GREY,
    )
    left.axhline(0, color=GREY, linewidth=0.8)
    left.set_xticks(range(len(parts)), names, rotation=45, ha="right", fontsize=8)
    left.set(
        ylabel="part of u (± two standard errors)",
        xlabel="source by time lag",
        title=f"u({explained.t:g}, x) = {explained.value:.5g}",
    )
    _weights(right, explained.weights)
    total = sum(map(len, explained.weights.values()))
    right.set_title(f"weights; {explained.effective:.3g} effective features of {total}")
    right.legend(frameon=False, fontsize=8.5)
    return figure


KINDS: dict[str, Callable[[Solution], Figure]] = {
    "slices": slices,
    "line": line,
    "axis": axis,
    "evolution": evolution,
    "residuals": residuals,
    "weights": weights,
    "history": history,
}
"""The figures of a solution by name; each can be drawn without further arguments."""


def _weights(ax: Any, weights: Mapping[str, np.ndarray]) -> None:
    """Plot the weights of each kind, sorted, times their number M; Monte Carlo is the line 1."""
    for colour, (kind, values) in zip(COLOURS, weights.items(), strict=False):
        M = len(values)
        ordered, rank = np.sort(values * M)[::-1], np.arange(1, M + 1)
        some = np.unique(np.linspace(0, M - 1, min(M, _MOST_DOTS)).astype(int))
        ax.plot(rank[some], ordered[some], ".", ms=4, color=colour, label=f"{kind} ({M})")
    ax.axhline(1, color=GREY, linewidth=1, linestyle="--", label="1/M: Monte Carlo")
    ax.margins(y=0.08)
    ax.set(xlabel="feature, by weight", ylabel="weight / (1/M)")
    largest = max(float(np.max(np.abs(w))) * len(w) for w in weights.values())
    if largest > _LINEAR:
        ax.set_yscale("symlog")
        base = 10 if largest < 1e4 else 1000
        ax.yaxis.set_major_locator(SymmetricalLogLocator(base=base, linthresh=1))


def _positions(points: int) -> np.ndarray:
    """Equidistant positions from -1 to 1, shape (points,)."""
    return np.linspace(-1, 1, check_int("points", points, 2, "A curve needs two."))


def _times(solution: Solution, times: Any) -> np.ndarray:
    """Check the times of curves; default the start, the middle and the end."""
    if times is None:
        return np.array([0.0, 0.5, 1.0]) * solution.problem.horizon
    chosen = np.atleast_1d(check_finite("times", times, "For example [0.1, 0.5]."))
    if chosen.ndim > 1 or not 0 < len(chosen) <= len(COLOURS):
        raise InputError(
            f"`times` must be one to {len(COLOURS)} times, one curve each; got {short_repr(times)}."
        )
    return chosen


def _coordinates(
    coordinates: Sequence[int] | None, dim: int, name: str = "coordinates"
) -> list[int]:
    """Check the indices of coordinate axes, an argument `name`; default the first two."""
    if coordinates is None:
        return list(range(min(dim, 2)))
    hint = "Coordinates are counted from 0, as in x[0]."
    chosen = [check_int(name, i, 0, hint) for i in coordinates]
    if any(i >= dim for i in chosen):
        raise InputError(
            f"`{name}` must be whole numbers below {dim}, the dimension; got "
            f"{short_repr(list(coordinates))}."
        )
    return chosen
