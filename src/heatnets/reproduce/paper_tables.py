"""The two tables of the paper, and the computing times quoted in its text."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from heatnets.plotting.style import GREY
from heatnets.reproduce.engine import Finished, Labels, Result, Sizes
from heatnets.reproduce.rendering import DEFAULT_COLOUR, SETUP_COLOUR, add_legend, labelled_rows


class Table1(Result):
    """Table 1 of the paper: Example 1, a product of sines, d = 2, 5, 10."""

    def figure(self, done: Finished, s: Sizes) -> Figure:
        figure = super().figure(done, s)
        for ax in figure.axes:
            ax.set(xticks=s.all_dims)
            ax.get_xaxis().set_major_formatter("{x:.0f}")
            ax.minorticks_off()
        return figure


class Table2(Result):
    """Table 2 of the paper: Example 2, oscillating and additive, d = 100 to 2000.

    Also the time that a plain implementation takes on the same machine: benchmarks/plain.py
    computes its cells.
    """

    def plain_rows(self, text: Labels, done: Finished, s: Sizes) -> Iterator[Labels]:
        """Rows of the table that compares two implementations of one matrix on one machine."""
        for row in self.rows(text, done, s):
            plain, given, automatic = row["plain"], row["given"], row["automatic"]
            if plain and given and automatic:
                for cell in (given, automatic):
                    cell["plain_with_solve"] = plain["wall"] + cell["solve"]
                    cell["with_solve"] = cell["assembly"] + cell["solve"]
                yield row


class QuotedTimes(Result):
    """Computing times quoted in the text of the paper, compared with ours."""

    def figure(self, done: Finished, s: Sizes) -> Figure:
        rows = list(self.rows(self.text["tables"][0], done, s))
        names = ["Example {example}, d = {d}".format(**row) for row in rows]
        figure, ax = labelled_rows(names, "seconds, building and training", 7.5, 2.8)
        for label, kind, colour, offset in (
            ("the paper (A100)", "published", GREY, -0.27),
            ("its set-up here", "setup", SETUP_COLOUR, 0),
            ("the default", "default", DEFAULT_COLOUR, 0.27),
        ):
            seconds = [row[kind]["seconds"] or math.nan for row in rows]
            ax.barh(np.arange(len(rows)) + offset, seconds, 0.25, color=colour, label=label)
        return add_legend(figure, 3)
