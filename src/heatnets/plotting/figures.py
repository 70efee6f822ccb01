"""Pictures of solutions. Every function returns a matplotlib figure; `save` writes it, `svg` gives it to a page."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, SymmetricalLogLocator

from heatnets._core import streams
from heatnets._core.errors import InputError, count, numeric, short_repr
from heatnets._core.statistics import rms
from heatnets.certify.explain import Explanation
from heatnets.metrics import random_points
from heatnets.pde.function import place as named
from heatnets.plotting.line_plots import (
    LEAST,
    Curve,
    above,
    drawn,
    end_of,
    from_point,
    middle_of,
    reach_of,
    scale_of,
    size_of,
)
from heatnets.plotting.style import COLOURS, GREY, decades, gridded, legend, legend_above, panels
from heatnets.plotting.style import save as save
from heatnets.plotting.style import svg as svg
from heatnets.solution import Solution

_BINS, _TIMES = 40, 12  # of residuals: by size, by time
_LINEAR = 20.0  # weights times M up to which a linear axis shows them all
_MOST_DOTS = 1000  # of one kind of weights: a page of more would be slow to open


def line(solution: Solution, *, times: Any = None, points: int = 201, seed: int = 0) -> Figure:
    """u along a random diagonal through the region's middle, at a few times, with the estimated error, and the true one where u is known.

    Args:
        solution: what `hn.solve` returned.
        times: at which u is drawn; default the start, the middle and the end.
        points: on the line.
        seed: of the line.
    """
    problem = solution.problem
    rng = streams.generator(streams.check_seed(seed), "plot line")
    s = _positions(points)
    x = middle_of(solution) + s[:, None] * reach_of(solution) * np.sign(
        rng.standard_normal(problem.dim)
    )
    chosen = (
        np.array([0.0, 0.5, 1.0]) * problem.horizon
        if times is None
        else np.atleast_1d(numeric("times", times, "For example [0.1, 0.5]."))
    )
    curves = [Curve(f"t = {t:g}", s, np.full(len(s), t), x) for t in chosen]
    return drawn(
        solution,
        curves,
        0,
        seed,
        f"u along a diagonal of the region, d = {problem.dim}",
        scale_of(solution),
    )


def slices(
    solution: Solution,
    *,
    t: float | None = None,
    coordinates: Sequence[int] | None = None,
    lines: int = 2,
    points: int = 101,
    certified: int = 0,
    seed: int = 0,
) -> Figure:
    """u along coordinate axes and random lines through the region's middle at one time, with its error.

    The shading is the solve's estimated error, times the size of u (root mean square over the region); it is known at the point alone where the region is a `Point`, and not at all of
    a solve of fixed size. Circles are the exact solution, where the problem has one. Below, on a logarithmic axis: the true error, the estimate, and what certificates leave possible.

    Args:
        solution: what `hn.solve` returned.
        t: the time; default the end: T, or 0 of a terminal-value problem.
        coordinates: along which axes, counted from 0 as in x[0]; default the first two.
        lines: random lines from face to face; none in one dimension.
        points: on each line.
        certified: at so many points of each line the true value is drawn with its interval (`solution.certify`; seconds each).
        seed: of the lines and of the certificates.
    """
    problem = solution.problem
    s, middle, reach = _positions(points), middle_of(solution), reach_of(solution)
    times, _, single = problem.points(end_of(solution) if t is None else t, middle)
    if not single:
        raise InputError(
            f"`t` must be one time; got {short_repr(t)}. Call `slices` for each, or `line` for several in one picture."
        )
    time = float(times[0])
    axes = _coordinates(coordinates, problem.dim)
    more = 0 if problem.dim == 1 else count("lines", lines, 0, "It is the number of random lines.")
    if not axes and not more:
        raise InputError(
            "`slices` has nothing to draw: give `coordinates`, or `lines` of at least 1."
        )
    ways = [
        (f"along $x_{{{i + 1}}}$" if problem.dim > 1 else "u", np.eye(1, problem.dim, i)[0])
        for i in axes
    ]
    rng = streams.generator(streams.check_seed(seed), "plot slices")
    for k in range(more):
        way = rng.standard_normal(problem.dim)
        ways.append((f"random line {k + 1}", way / np.max(np.abs(way))))
    alone = len(ways) == 1 and bool(axes)  # then the axis can be the coordinate itself
    curves = []
    for label, way in ways:
        x = middle + s[:, None] * reach * way
        curves.append(Curve(label, x[:, axes[0]] if alone else s, np.full(len(s), time), x))
    along = (f"$x_{{{axes[0] + 1}}}$" if problem.dim > 1 else "x") if alone else scale_of(solution)
    return drawn(
        solution,
        curves,
        certified,
        seed,
        f"u({time:g}, x) through the region's middle, d = {problem.dim}",
        along,
    )


def evolution(
    solution: Solution, *, x: Any = None, points: int = 101, certified: int = 0, seed: int = 0
) -> Figure:
    """u over time at one point, with its error as in `slices`.

    Args:
        solution: what `hn.solve` returned.
        x: the point; default the region's middle.
        points: of time.
        certified: at so many times the true value is drawn with its interval (`solution.certify`; seconds each).
        seed: of the certificates.
    """
    problem = solution.problem
    t = problem.horizon * (0.5 + 0.5 * _positions(points))
    place = middle_of(solution) if x is None else numeric("x", x, "It is one point.")
    if place.shape != (problem.dim,):
        raise InputError(
            f"`x` must be one point, of shape ({problem.dim},); got shape {place.shape}."
        )
    curve = Curve("u", t, t, np.broadcast_to(place, (len(t), problem.dim)))
    given = " (u is given at the right end)" if problem.is_terminal else ""
    return drawn(
        solution,
        [curve],
        certified,
        seed,
        f"u(t, x) at {named([place])}, d = {problem.dim}",
        f"t{given}",
    )


def residuals(solution: Solution, *, points: int = 2000, seed: int = 0) -> Figure:
    """How large the equation's residual R is, at random points of the region and times: how often each size, and by time.

    From a `Point` the points are those of paths that leave it: there R makes the error. Data with kinks or jumps leave no residual to draw, and are refused.

    Args:
        solution: what `hn.solve` returned.
        points: random points.
        seed: of the points.
    """
    problem = solution.problem
    points = count("points", points, 2 * _TIMES, "Their residuals are shown by time.")
    if solution.kinks:
        raise InputError(
            f"{solution.kinks}: second derivatives, and with them the residual of the equation, are not defined there. Judge this solution by u.certify(t, x) and u.error()."
        )
    if problem.region.single:
        rng = streams.generator(streams.check_seed(seed), "plot residuals")
        t, x = from_point(solution, rng, 1 - rng.random(points))
    else:
        t, x = random_points(problem, points, seed)
    unit = size_of(solution) / problem.horizon
    found = above(solution.residual(t, x), unit)
    typical = rms(found)
    figure, (often, when) = panels(2)
    low, high = found.min() / 1.01, found.max() * 1.01
    often.hist(found, np.geomspace(low, high, _BINS + 1), color=COLOURS[0], alpha=0.75)
    marks = {"median": float(np.median(found)), "rms": typical, "largest": float(found.max())}
    for (name, value), style in zip(marks.items(), (":", "--", "-"), strict=True):
        often.axvline(
            value, color=COLOURS[1], linestyle=style, linewidth=1.4, label=f"{name} {value:.1e}"
        )
    often.set(xscale="log", xlabel="|R|, in units of u over time", ylabel=f"points (of {points})")
    where = "on paths from the point" if problem.region.single else "in the region"
    legend_above(often, f"residual |R| {where}: rms {typical / unit:.1e} of u/T", 3)
    edges = np.linspace(0, problem.horizon, _TIMES + 1)
    slot = np.clip(np.searchsorted(edges, t, side="left") - 1, 0, _TIMES - 1)
    filled = [k for k in range(_TIMES) if np.any(slot == k)]
    middle = 0.5 * (edges[:-1] + edges[1:])[filled]
    spread = np.array([np.quantile(found[slot == k], [0.05, 0.5, 0.95, 1.0]) for k in filled])
    when.fill_between(
        middle,
        spread[:, 0],
        spread[:, 2],
        color=COLOURS[0],
        alpha=0.25,
        linewidth=0,
        label="5 to 95 %",
    )
    when.plot(middle, spread[:, 1], color=COLOURS[0], label="median")
    when.plot(middle, spread[:, 3], ".-", color=COLOURS[1], linewidth=1, label="largest")
    when.set(yscale="log", xlabel="t", ylabel="|R|", xlim=(0, problem.horizon))
    legend_above(when, "by time", 3)
    return figure


def weights(solution: Solution) -> Figure:
    """The trained weights at the end of the time interval, times the number M of their kind: 1 is what plain Monte Carlo would take."""
    figure, (ax,) = panels(1, height=3.3)
    found = {}
    kinds = [
        kind
        for kind, number in zip(("initial", "source"), solution.stats["features"], strict=True)
        if number
    ]
    for kind, w in zip(kinds, (w for w in solution.weights if len(w)), strict=True):
        found["terminal" if kind == "initial" and solution.problem.is_terminal else kind] = (
            w if w.ndim == 1 else w.sum(axis=1)
        )
    _weights(ax, found)
    degree = solution.stats["time_degree"]
    legend_above(
        ax,
        f"weights at t = {end_of(solution):g}" + (f" (degree {degree} in time)" if degree else ""),
        3,
    )
    return figure


def history(solution: Solution) -> Figure:
    """The growth of the default, round by round: its estimated error against the features, and against the seconds since the start."""
    rounds = solution.stats["history"]
    if not rounds:
        raise InputError(
            "this solve was of a fixed size (`features` was given): it has no rounds of growth to draw. Leave `features` out for a solve that grows."
        )
    features = [sum(r.features) for r in rounds]
    error = [max(r.estimated_error, LEAST) for r in rounds]
    last = max(solution.stats["estimated_error"], LEAST)
    figure, axes = panels(2)
    for ax, across in zip(axes, (features, [r.seconds for r in rounds]), strict=True):
        ax.semilogy(across, error, "o-", color=COLOURS[0], label="each round, by its own judges")
        ax.axhline(
            last,
            color=COLOURS[1],
            linestyle="--",
            label=f"the answer, by the last judges: {last:.1e}",
        )
        ax.set_ylabel("estimated relative error")
        for i, (place, height) in enumerate(zip(across, error, strict=True)):
            ax.annotate(
                str(i), (place, height), xytext=(6, 4), textcoords="offset points", fontsize=8
            )
        ax.margins(0.1)
        decades(ax)
    axes[0].set(xscale="log", xlabel="features", xlim=(min(features) / 1.5, max(features) * 1.5))
    axes[0].set_xticks(sorted(set(features)), [f"{m:,}" for m in sorted(set(features))])
    axes[0].xaxis.set_minor_locator(NullLocator())
    axes[1].set(xlabel="seconds since the start", xlim=(0, 1.08 * rounds[-1].seconds))
    taken = [
        i
        for i, r in enumerate(rounds)
        if (r.features, r.rows) == (solution.stats["features"], solution.stats["rows"][0])
    ]
    for i in taken[:1]:
        axes[0].plot(
            features[i], error[i], "o", ms=11, mfc="none", color=COLOURS[1], label="the one taken"
        )
    title = f"growth in {len(rounds)} round{'s' if len(rounds) > 1 else ''}; it ended as {solution.stats['stopped']}"
    legend_above(axes[0], textwrap.fill(title, 60), 1)
    return figure


def explanation(found: Explanation) -> Figure:
    """What `solution.explain` found: the parts of the value, and the weights against those of Monte Carlo."""
    figure = Figure(figsize=(9.6, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = ["initial condition"] + [
        f"{a:.3g}–{b:.3g}" for a, b in zip(found.lags[:-1], found.lags[1:], strict=True)
    ]
    parts = [found.initial, *found.by_lag]
    colours = [COLOURS[0]] + [COLOURS[1]] * len(found.by_lag)
    left.bar(
        range(len(parts)),
        [p.value for p in parts],
        yerr=[2 * p.error for p in parts],
        color=colours,
        capsize=2,
        ecolor=GREY,
    )
    left.axhline(0, color=GREY, linewidth=0.8)
    left.set_xticks(range(len(parts)), names, rotation=45, ha="right", fontsize=8)
    left.set(
        ylabel="part of u (± two standard errors)",
        xlabel="source by time lag",
        title=f"u({found.t:g}, x) = {found.value:.5g}",
    )
    _weights(right, found.weights)
    right.set_title(
        f"weights; {found.effective:.3g} effective features of {sum(map(len, found.weights.values()))}"
    )
    legend(right)
    for ax in (left, right):
        gridded(ax)
    return figure


KINDS: dict[str, Callable[[Solution], Figure]] = {
    "slices": slices,
    "line": line,
    "evolution": evolution,
    "residuals": residuals,
    "weights": weights,
    "history": history,
}
"""The pictures of a solution by name, each of which can be drawn without further choices."""


def _weights(ax: Any, weights: Mapping[str, np.ndarray]) -> None:
    """Weights of each kind, by size, times their number; with the line of Monte Carlo."""
    for colour, (kind, found) in zip(COLOURS, weights.items(), strict=False):
        M = len(found)
        ordered, rank = np.sort(found * M)[::-1], np.arange(1, M + 1)
        few = np.unique(np.linspace(0, M - 1, min(M, _MOST_DOTS)).astype(int))
        ax.plot(rank[few], ordered[few], ".", ms=4, color=colour, label=f"{kind} ({M})")
    ax.axhline(1, color=GREY, linewidth=1, linestyle="--", label="1/M: Monte Carlo")
    ax.margins(y=0.08)
    ax.set(xlabel="feature, by weight", ylabel="weight / (1/M)")
    largest = max(float(np.max(np.abs(w))) * len(w) for w in weights.values())
    if largest > _LINEAR:
        ax.set_yscale("symlog")
        ax.yaxis.set_major_locator(
            SymmetricalLogLocator(base=10 if largest < 1e4 else 1000, linthresh=1)
        )


def _positions(points: int) -> np.ndarray:
    return np.linspace(-1, 1, count("points", points, 2, "A curve needs two."))


def _coordinates(given: Sequence[int] | None, dim: int) -> list[int]:
    if given is None:
        return list(range(min(dim, 2)))
    chosen = [
        count("coordinates", i, 0, "Coordinates are counted from 0, as in x[0].") for i in given
    ]
    if any(i >= dim for i in chosen):
        raise InputError(
            f"`coordinates` must be whole numbers below {dim}, the dimension; got {short_repr(list(given))}."
        )
    return chosen
