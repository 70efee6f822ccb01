"""A result of the paper: its description, and its section of the report from finished cells."""

from __future__ import annotations

import itertools
import math
import string
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from heatnets.plotting.html import ColumnGroup, Picture, Section, Table, number, seconds, times
from heatnets.reproduce.cells import Cell
from heatnets.reproduce.rendering import NORMS, Curve, Points, error_panels, shades

DESCRIPTIONS = tomllib.loads(
    Path(__file__).with_name("published_results.toml").read_text(encoding="utf-8")
)
SCALES = ("quick", "paper")
QUICK = (
    "Quick scale: sizes are about a tenth of the paper's, so that two CPU cores do all of it "
    "in minutes. The set-up's errors are those of the smaller sizes, "
    "so it has no ratios to the paper; --scale paper has the paper's sizes."
)
FORMATS: dict[str, Any] = {
    "number": number,
    "number3": lambda value: number(value, 3),
    "seconds": seconds,
    "minutes": lambda value: f"{value:g} min",
    "sum": lambda pair: f"{pair[0]:,} + {pair[1]:,}",
    "pair": lambda pair: f"{pair[0]:,} + {pair[1]:,}" if pair[1] else f"{pair[0]:,}",
    "count": lambda cells: str(sum(map(bool, cells))),
}

Labels = dict[str, Any]


class Sizes(SimpleNamespace):
    """The sizes of a result at one scale, by names that its description chooses."""


class Values(Labels):
    """Values of a finished cell; None if missing."""

    def __missing__(self, name: str) -> None:
        return None


class Finished(dict[str, Values]):
    """Values of finished cells by key; a missing cell has no values.

    The values are those of the outcome, with the errors by norm, the seconds of all phases,
    `seconds` (the whole solve without compilation) and `total` (features).
    """

    def __init__(self, outcomes: Mapping[str, Labels]) -> None:
        super().__init__()
        for key, outcome in outcomes.items():
            measured = {**outcome["measured"], **outcome["measured"].get("phases", {})}
            errors, total = outcome.get("errors", {}), sum(outcome.get("features", ()))
            spent = measured["wall"] - measured.get("compile", 0.0)
            self[key] = Values(outcome | measured | errors, seconds=spent, total=total)

    def __missing__(self, key: str) -> Values:
        return Values()

    @property
    def devices(self) -> str:
        """The devices on which the cells were computed."""
        return ", ".join(sorted({cell["made"]["device"] for cell in self.values()}))


class Result:
    """A table or figure of the paper, to compute and to show, from published_results.toml.

    Subclasses have what a description cannot express.

    Attributes:
        name: its name on the command line, in files and in published_results.toml.
        text: its description.
        sizes: its sizes by scale.
    """

    def __init__(self, name: str) -> None:
        self.name, self.text = name, DESCRIPTIONS[name]
        common = self.text.get("sizes", {})
        self.sizes = {scale: Sizes(**common, **self.text[scale]) for scale in SCALES}

    def plan(self, scale: str) -> list[Cell]:
        """The cells at a scale."""
        return list(self.cells(self.sizes[scale]))

    def cells(self, s: Sizes) -> Iterable[Cell]:
        """The cells at some sizes."""
        cells = []
        for text in self.text["cells"]:
            for labels in sweep(s, text["over"]):
                problem, parameters, options = (
                    _replaced(text.get(name, {}), {**vars(s), **labels, "pi": math.pi})
                    for name in ("problem", "parameters", "options")
                )
                key, seed = text["key"].format(**labels), labels.get("seed", 0)
                cell = Cell(key, text["kind"], problem, parameters, options, seed)
                rank = [labels.get(label, math.inf) for label in self.text.get("order", ())]
                cells.append((rank, cell))
        return [cell for _, cell in sorted(cells, key=lambda pair: pair[0])]

    def matching(self, name: str, labels: Labels) -> list[Values]:
        """The published values or claims for some labels: those that contradict none of them."""
        entries = [Values(entry) for entry in self.text.get(name, ())]
        return [e for e in entries if all(labels.get(k, v) == v for k, v in e.items())]

    def section(self, outcomes: Mapping[str, Labels], scale: str) -> Section:
        """The section of the report, from the outcomes of finished cells by key."""
        done, s = Finished(outcomes), self.sizes[scale]
        reduced = scale == "quick" and not self.text.get("full_size")
        tables = [self._table(text, done, s) for text in self.text["tables"]]
        return Section(
            self.name,
            self.text["title"],
            [*([QUICK] if reduced else []), self.text["note"]],
            [table for table in tables if table.rows],
            [Picture(self.figure(done, s), self.text["caption"].format(**vars(s)))],
            self._settings(done, scale),
        )

    def _table(self, text: Labels, done: Finished, s: Sizes) -> Table:
        """A table of the description."""
        common = {**vars(s), "devices": done.devices}
        groups, columns = [], []
        for head, group in text["columns"].items():
            names = []
            for name, column in group.items():
                if "#" in column:  # one column for each item of `each`
                    for i, labels in enumerate(sweep(s, text["each"])):
                        names.append(name.format(**labels))
                        columns.append(column.replace("#", str(i)))
                else:
                    names.append(name.strip())
                    columns.append(column)
            groups.append(ColumnGroup(head.format(**common), tuple(names)))
        rows = getattr(self, text.get("method", "rows"))(text, done, s)
        filled = [[_fill(column, {**common, **row}) for column in columns] for row in rows]
        return Table(text["caption"].format(**common), tuple(groups), filled)

    def rows(self, text: Labels, done: Finished, s: Sizes) -> Iterator[Labels]:
        """The values of each row of a table: labels, cells, what the paper has."""
        for labels in sweep(s, text["over"]):
            keys, lists = text.get("cells", {}), text.get("lists", {})
            cells: Labels = {name: done[key.format(**labels)] for name, key in keys.items()}
            cells |= {name: _find(done, s, text, key, labels) for name, key in lists.items()}
            published = next(iter(self.matching("published", labels)), Values())
            if published["minutes"]:
                published["seconds"] = 60 * published["minutes"]
            equal_work = published if getattr(s, "comparable", False) else Values()
            claims = self.matching("claims", labels)
            words = [c["words"] for c in claims if c["first"] <= labels["d"] <= c["last"]]
            paper = {"published": published, "comparable": equal_work, "words": "; ".join(words)}
            yield {**labels, **cells, **paper}

    def figure(self, done: Finished, s: Sizes) -> Figure:
        """The figure: errors over dimension, with the curves of the description."""
        rows, panels = [], self.text.get("panels", {"over": {}, "title": ""})
        for panel in sweep(s, panels["over"]):
            curves = []
            for text in self.text["curves"]:
                family = [{**panel, **labels} for labels in sweep(s, text.get("over", {}))]
                colour, *look = text["look"]
                for labels, shade in zip(family, shades(colour, len(family)), strict=True):
                    levels = (text.get("level", 0.5), *text.get("band", ()))
                    points, *band = (self._points(done, s, text, labels, q) for q in levels)
                    marker, style = (word.format(**labels) for word in look)
                    label = text["label"].format(**labels)
                    curves.append(Curve(label, points, shade, marker, style, tuple(band)))
            title, claims = panels["title"].format(**panel), self.matching("claims", panel)
            rows.append((title, curves, claims))
        return error_panels(rows, self.text.get("legend_columns", 4))

    def _points(
        self, done: Finished, s: Sizes, text: Labels, labels: Labels, level: float
    ) -> Points:
        """The points of a curve: published errors, or those of cells, or quantiles of those."""
        if "key" not in text:
            return {p["d"]: p for p in self.matching("published", labels)}
        cells = {d: _find(done, s, text, text["key"], {**labels, "d": d}) for d in s.all_dims}
        return {d: {norm: quantile(cells[d], norm, level) for norm in NORMS} for d in cells}

    def _settings(self, done: Finished, scale: str) -> Table:
        """The table of settings: facts, missing cells, versions, total seconds."""
        plan, sizes = self.plan(scale), vars(self.sizes[scale])
        rows = [[what, text.format(**sizes)] for what, text in self.text["facts"].items()]
        missing = [cell.key for cell in plan if cell.key not in done]
        if missing:
            shown = f"{', '.join(missing[:8])}{' …' if len(missing) > 8 else ''}"
            rows.append(["not computed", f"{len(missing)} of {len(plan)} cells: {shown}"])
        versions = Counter(
            "heatnets {heatnets} (source {source}), JAX {jax}, NumPy {numpy}, Python {python}, "
            "{device}".format(**cell["made"])
            for cell in done.values()
        )
        rows += [["made with", f"{text}: {count} cells"] for text, count in versions.items()]
        spent = sum(cell["first_wall"] or cell["wall"] for cell in done.values())
        rows.append(
            ["the solver took", f"{spent:.0f} s in all in first runs, compilation included"]
        )
        return Table("Settings", (ColumnGroup("", ("what", "value")),), rows)


def sweep(s: Sizes, over: dict[str, str]) -> Iterator[Labels]:
    """All combinations of items of some sizes, by label; a number n has the items 0 ... n - 1."""
    sizes = {label: getattr(s, name) for label, name in over.items()}
    lists = (range(size) if isinstance(size, int) else size for size in sizes.values())
    for items in itertools.product(*lists):
        labels: Labels = {}
        for label, item in zip(sizes, items, strict=True):
            labels |= item if isinstance(item, dict) else {label: item}
        yield labels


def _replaced(value: Any, known: Labels) -> Any:
    """`value` with "$name" replaced by a known value, and "$name?" also by None, if not known.

    In tables, None is left out.
    """
    if isinstance(value, dict):
        replaced = {name: _replaced(v, known) for name, v in value.items()}
        return {name: v for name, v in replaced.items() if v is not None}
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    return known.get(value[1:-1]) if value.endswith("?") else known[value[1:]]


def _find(done: Finished, s: Sizes, text: Labels, key: str, labels: Labels) -> list[Values]:
    """The cells of a key, for each item of the sweep `each`."""
    return [done[key.format(**labels, **more)] for more in sweep(s, text.get("each", {}))]


def quantile(cells: Iterable[Values], name: str, level: float) -> float | None:
    """A quantile of a value over finished cells."""
    values = [cell[name] for cell in cells if cell]
    return float(np.quantile(values, level)) if values else None


class _Formatter(string.Formatter):
    """`str.format` with a dash for missing values, with `FORMATS`, and with quantiles of cells."""

    def format_field(self, value: Any, spec: str) -> str:
        if " " in spec:  # cells, as "l2 0.5": the median of their L2 errors
            name, level = spec.split()
            value = quantile(value, name, float(level))
            spec = {"seconds": "seconds", "total": ".0f"}.get(name, "number")
        if value is None or value == "":
            return "–"
        return FORMATS[spec](value) if spec in FORMATS else format(value, spec)


def _fill(column: str | list[str], row: Labels) -> str:
    """The text of a column; of two names, their ratio."""
    formatter = _Formatter()
    if isinstance(column, str):
        return formatter.vformat(column, (), row)
    first, second = (formatter.get_field(name, (), row)[0] for name in column)
    return times(first / second if first and second else None)
