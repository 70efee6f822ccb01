"""Pictures of solutions. Every function returns a matplotlib figure; `save` writes it, `svg` gives it to a page."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import SymmetricalLogLocator

from heatnets import streams
from heatnets.accuracy import exact_values
from heatnets.explain import Explanation
from heatnets.regions import Box
from heatnets.solution import Solution

# Okabe-Ito: told apart by colour-blind readers, and in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def line(solution: Solution, *, times: Any = None, points: int = 201, seed: int = 0) -> Figure:
    """u along a random line through the region's middle, at a few times, with the error below where u is known."""
    problem = solution.problem
    rng = streams.generator(streams.check_seed(seed), "plot line")
    middle, direction = _middle(solution), np.sign(rng.standard_normal(problem.dim))
    s = np.linspace(-1, 1, points)
    reach = _reach(solution)
    x = middle + s[:, None] * reach * direction
    chosen = np.array([0.0, 0.5, 1.0]) * problem.horizon if times is None else np.atleast_1d(np.asarray(times, float))
    known = problem.exact is not None
    figure = Figure(figsize=(6.4, 5.4 if known else 3.6), layout="constrained")
    axes = figure.subplots(2 if known else 1, 1, sharex=True, squeeze=False)[:, 0]
    for i, t in enumerate(chosen):
        colour, name = COLOURS[i % len(COLOURS)], f"t = {t:g}"
        value = solution(t, x)
        axes[0].plot(s, value, color=colour, label=name)
        if known:
            exact = exact_values(problem, t, x)
            axes[0].plot(s[::10], exact[::10], "o", mfc="none", ms=4, color=colour)
            axes[1].semilogy(s, np.maximum(np.abs(value - exact), 1e-17), color=colour, label=name)
    axes[0].set_ylabel("u(t, x)")
    axes[0].set_title(f"heatnets, d = {problem.dim}" + ("   (circles: exact)" if known else ""))
    axes[0].legend(frameon=False)
    if known:
        axes[1].set_ylabel("|error|")
    axes[-1].set_xlabel("position on a diagonal of the region")
    for ax in axes:
        ax.grid(alpha=0.25, linewidth=0.6)
    return figure


def explanation(found: Explanation) -> Figure:
    """What `solution.explain` found: the parts of the value, and the weights against those of Monte Carlo."""
    figure = Figure(figsize=(9.6, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = ["initial condition"] + [f"{a:.3g}–{b:.3g}" for a, b in zip(found.lags[:-1], found.lags[1:], strict=True)]
    parts = [found.initial, *found.by_lag]
    colours = [COLOURS[0]] + [COLOURS[1]] * len(found.by_lag)
    left.bar(
        range(len(parts)), [p.value for p in parts], yerr=[2 * p.error for p in parts], color=colours, capsize=2, ecolor="#777777"
    )
    left.axhline(0, color="#777777", linewidth=0.8)
    left.set_xticks(range(len(parts)), names, rotation=45, ha="right", fontsize=8)
    left.set(
        ylabel="part of u (± two standard errors)",
        xlabel="source by time lag",
        title=f"u({found.t:g}, x) = {found.value:.5g}",
    )
    for colour, (kind, weights) in zip(COLOURS, found.weights.items(), strict=False):
        ordered = np.sort(weights * len(weights))[::-1]
        right.plot(np.arange(1, len(ordered) + 1), ordered, ".", ms=4, color=colour, label=f"{kind} ({len(weights)})")
    right.axhline(1, color="#777777", linewidth=1, linestyle="--", label="1/M: Monte Carlo")
    right.margins(y=0.08)
    right.set(
        xlabel="feature, by weight",
        ylabel="weight / (1/M)",
        title=f"weights; {found.effective:.3g} effective features of {sum(map(len, found.weights.values()))}",
    )
    right.set_yscale("symlog")
    right.yaxis.set_major_locator(SymmetricalLogLocator(base=1000, linthresh=1))
    right.legend(frameon=False, fontsize=8.5)
    for ax in (left, right):
        ax.grid(alpha=0.25, linewidth=0.6)
    return figure


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as its file name says (.png, .svg, .pdf)."""
    target = Path(path)
    with matplotlib.rc_context({"svg.hashsalt": "heatnets"}):
        figure.savefig(target, dpi=160, metadata={"Date": None} if target.suffix == ".svg" else None)
    return target


def svg(figure: Figure) -> str:
    """A figure as SVG text to stand inside a page: no background, and black is the colour of the page's own text."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "heatnets"}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    drawn = out.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    # Text and lines in matplotlib's black carry the colour, or none at all, which means black too.
    drawn = re.sub(r"#000000|#262626", "currentColor", drawn)
    return drawn.replace("<svg ", '<svg fill="currentColor" ', 1)


def _middle(solution: Solution) -> np.ndarray:
    region = solution.problem.region
    if isinstance(region, Box):
        return np.broadcast_to((region.low + region.high) / 2, (solution.problem.dim,))
    return np.broadcast_to(region.centre, (solution.problem.dim,))


def _reach(solution: Solution) -> np.ndarray:
    """How far a line goes: through a box or a cloud; from a single point as far as paths go, to two standard deviations."""
    problem, rng = solution.problem, np.random.default_rng(0)
    region = problem.region
    if isinstance(region, Box):
        return np.broadcast_to((region.high - region.low) / 2, (problem.dim,))
    if not region.single:
        return 2 * region.sample(rng, 256, problem.dim).std(axis=0)
    middle, plain = _middle(solution), problem.plain
    _, y = problem.frame.inward(np.full(256, 0.0 if problem.backward else problem.horizon), np.tile(middle, (256, 1)))
    s = np.full(256, plain.horizon)
    ends = problem.frame.outward(np.zeros(256), plain.walk.go(s, y, s, plain.walk.draw(rng, (256,), problem.dim)).place)[1]
    reach = 2 * ends.std(axis=0)
    return np.minimum(reach, 0.9 * middle) if problem.process.positive else reach
