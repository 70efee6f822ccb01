"""The figures of the paper, and its convergence rates.

The paper gives no numbers for its figures; hatched boxes show what its text says of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from heatnets.plotting.style import COLOURS, GREY
from heatnets.reproduce.cells import Cell, decode
from heatnets.reproduce.engine import Finished, Labels, Result, Sizes
from heatnets.reproduce.rendering import SETUP_COLOUR, Curve, add_legend, draw, panels


class OneDim(Result):
    """The 1-D example: three kinds of features, error maps, and errors over 20 seeds."""

    def cells(self, s: Sizes) -> Iterator[Cell]:
        for cell in super().cells(s):
            yield replace(cell, options={**cell.options, "maps": cell.seed == 0})

    def figure(self, done: Finished, s: Sizes) -> Figure:
        """The solution by Gaussian kernels, error maps with one colour scale, all errors."""
        figure = Figure(figsize=(11, 6.4), layout="constrained")
        first, *others, spread = figure.subplots(2, 3).ravel()
        labels = {variant["variant"]: variant["label"] for variant in s.variants}

        def show(ax: Any, name: str, field: str, title: str, label: str, **look: Any) -> None:
            if maps := done[f"{name} seed=0"]["maps"]:
                values = decode(maps[field]).reshape(s.grid, s.grid)
                extent = (-np.pi / 2, np.pi / 2, 0, 1)
                image = ax.imshow(values, origin="lower", extent=extent, aspect="auto", **look)
                ax.set(xlabel="x", ylabel="t")
                ax.set_title(title, fontsize=10)
                extend = "neither" if field == "u" else "both"
                figure.colorbar(image, ax=ax, label=label, extend=extend)

        title, errors = "solution by Gaussian kernels", {"cmap": "magma", "vmin": -16, "vmax": -8}
        show(first, "gaussian", "u", title, "u(t, x)", cmap="cividis")
        for i, (name, title) in enumerate(labels.items()):
            show(others[i], name, "log10_error", title, "log10 |error|", **errors)
            cells = [done[f"{name} seed={seed}"] for seed in range(s.seeds)]
            l2 = [cell["l2"] for cell in cells if cell]
            spread.semilogx(l2, np.full(len(l2), i), "|", ms=14, color=SETUP_COLOUR)
        names = [text.replace(", ", ",\n").replace(" s", "\ns") for text in labels.values()]
        spread.set(yticks=range(4), yticklabels=names)
        spread.set(xlabel="relative L2 error", ylim=(3.5, -0.5), xlim=(1e-17, 1e-5))
        spread.set_title("all seeds", fontsize=10)
        spread.grid(alpha=0.25, linewidth=0.6)
        return figure


class Convergence(Result):
    """Convergence rates: direct Monte Carlo estimators over samples, networks over features."""

    def _sweeps(self, done: Finished, s: Sizes) -> Iterator[tuple[Any, ...]]:
        """The sweeps with at least one complete size.

        Yields:
            Label, colour, marker and style; sizes; errors, shape (repetitions, sizes); their root
            mean square, shape (sizes,).
        """
        sweeps: list[tuple[tuple[str, ...], dict[Any, Any]]] = []
        for labels, colour in zip(s.estimators, COLOURS, strict=False):
            name, d = labels["estimator"], labels["d"]
            errors = {n: done[f"{name} d={d} samples={n}"]["l2"] for n in s.samples}
            sweeps.append(((f"direct, {name}, d = {d}", colour, "s", "--"), errors))
        for d, colour in zip(s.dims, COLOURS, strict=False):
            errors = {
                M: [done[f"network d={d} M={M} seed={seed}"]["l2"] for seed in range(s.seeds)]
                for M in (network["M"] for network in s.networks)
            }
            sweeps.append(((f"the paper's set-up here, d = {d}", colour, "o", "-"), errors))
            default = done[f"default d={d}"]
            errors = {default["total"]: [default["l2"]]}
            sweeps.append(((f"the default, d = {d}", colour, "*", ""), errors))
        for look, errors in sweeps:
            complete = {n: runs for n, runs in errors.items() if runs and None not in runs}
            if complete:
                runs = np.array(list(complete.values())).T
                yield look, list(complete), runs, np.sqrt(np.mean(runs**2, axis=0))

    def sweep_rows(self, text: Labels, done: Finished, s: Sizes) -> Iterator[Labels]:
        """A row for each sweep, with the fitted exponent if it has several sizes."""
        for (label, *_), sizes, errors, middle in self._sweeps(done, s):
            row = {"label": label, "sizes": f"{sizes[0]:,}", "runs": len(errors)}
            row |= {"errors": middle[[0, -1]], "theory": None, "p": None, "interval": None}
            if len(sizes) > 1:
                p, low, high = slope(sizes, errors)
                row |= {"theory": "-0.5", "p": f"{p:.2f}", "interval": f"[{low:.2f}, {high:.2f}]"}
                row["sizes"] += f" – {sizes[-1]:,}"
            yield row

    def figure(self, done: Finished, s: Sizes) -> Figure:
        figure, ((ax,),) = panels(1, 1, 7.5, 4.6)
        for (label, *look), sizes, _, middle in self._sweeps(done, s):
            points = {n: {"l2": error} for n, error in zip(sizes, middle, strict=True)}
            draw(ax, [Curve(label, points, *look)])
        n = np.array(s.samples, float)
        ax.plot(n, 3 / np.sqrt(n), color=GREY, lw=0.8, label="slope -1/2")
        ax.set(xlabel="samples per point, or features", ylabel="relative L2 error")
        return add_legend(figure, 3)


def slope(sizes: Sizes, errors: Any) -> tuple[float, float, float]:
    """Estimate the exponent p of error ~ size^p.

    Args:
        sizes: shape (n,).
        errors: shape (repetitions, n); one exponent is fitted for each row.

    Returns:
        The mean of the exponents, and the ends of its 95 % t-interval.
    """
    slopes = np.polyfit(np.log(sizes), np.log(errors).T, 1)[0]
    mean, spread = float(np.mean(slopes)), float(np.std(slopes, ddof=1)) / math.sqrt(len(slopes))
    half = float(stats.t.ppf(0.975, len(slopes) - 1)) * spread
    return mean, mean - half, mean + half
