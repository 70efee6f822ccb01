"""Tables as Markdown, HTML or terminal text, and self-contained HTML pages of sections.

A page (template `page.html`) needs no network and no script, follows the reader's light or dark
setting, and prints in black on white.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heatnets import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Width in inches above which a picture is scrolled on a small screen: scaled down, its text would
# be too small to read.
_BROAD = 7.0


class ColumnGroup(NamedTuple):
    """Columns under a common head; the head is empty for columns that name the row."""

    head: str
    columns: tuple[str, ...]


class Table(NamedTuple):
    """A table of text cells under groups of columns; those that name the row come first.

    `words`: the cells are sentences or formulas, which may be broken into lines (numbers may not).
    """

    caption: str
    groups: tuple[ColumnGroup, ...]
    rows: list[list[str]]
    words: bool = False

    @property
    def columns(self) -> list[str]:
        """The names of all columns."""
        return [column for group in self.groups for column in group.columns]

    @property
    def names(self) -> int:
        """The number of columns that name the row."""
        return sum(len(group.columns) for group in self.groups if not group.head)

    @property
    def starts_group(self) -> list[bool]:
        """For each column, whether it is the first one under a head; it has a rule to its left."""
        return [i == 0 and bool(g.head) for g in self.groups for i in range(len(g.columns))]


def plain_table(
    caption: str, columns: tuple[str, ...], rows: list[list[str]], words: bool = False
) -> Table:
    """A table without heads above its columns."""
    return Table(caption, (ColumnGroup("", columns),), rows, words)


class Picture(NamedTuple):
    """A figure with a caption."""

    figure: Figure
    caption: str


class Section(NamedTuple):
    """A section of a page: title, paragraphs, tables, pictures, a table of settings, and code."""

    name: str
    title: str
    paragraphs: list[str]
    tables: list[Table]
    pictures: list[Picture]
    settings: Table | None = None
    code: str = ""


def number(value: float | None, digits: int = 2) -> str:
    """Format a number for a table: 1.2e-05 if small or large, else plain; a dash for None."""
    if value is None:
        return "–"
    if value == 0 or 0.1 <= abs(value) < 9999.5:
        return f"{value:.{digits}g}" if abs(value) < 100 else f"{value:.0f}"
    return f"{value:.{digits - 1}e}"


def seconds(value: float | None) -> str:
    """Format a duration in seconds for a table; a dash for None."""
    if value is None:
        return "–"
    return f"{value:.2g} s" if value < 99.5 else f"{value:,.0f} s"


def times(ratio: float | None) -> str:
    """Format a ratio: 3.2×, 5,400×, 1e+08×; a dash for None."""
    if ratio is None:
        return "–"
    if ratio < 100:
        return f"{ratio:.2g}×"
    return f"{float(f'{ratio:.2g}'):,.0f}×" if ratio < 1e6 else f"{ratio:.0e}×"


def split_by_group(table: Table) -> list[tuple[str, list[str], list[list[str]]]]:
    """Split a wide table into one narrow table for each group of columns.

    In each narrow table empty rows are omitted, and consecutive rows with equal cells are merged
    into one, named "first … last".

    Returns:
        For each group: its head, its columns (those that name a row first), and its rows.
    """
    narrow, names, end = [], table.names, 0
    for group in table.groups:
        start, end = end, end + len(group.columns)
        if not group.head:
            continue
        filled = [row for row in table.rows if set(row[start:end]) != {"–"}]
        rows = []
        for cells, equal_rows in groupby(filled, key=lambda row: row[start:end]):
            name_columns = list(zip(*(row[:names] for row in equal_rows), strict=True))
            merged = (c[0] if c[0] == c[-1] else f"{c[0]} … {c[-1]}" for c in name_columns)
            rows.append([*merged, *cells])
        narrow.append((group.head, [*table.columns[:names], *group.columns], rows))
    return narrow


def markdown(table: Table, widest: int = 10) -> str:
    """Format a table in Markdown.

    The head of a group is written before the names of its columns. A table with more than `widest`
    columns is split by group, with the head of each group above its table.
    """

    def lines(columns: list[str], rows: list[list[str]]) -> str:
        head, *body = (f"| {' | '.join(row)} |" for row in (columns, *rows))
        return "\n".join([head, f"|{'---|' * len(columns)}", *body])

    if len(table.columns) > widest:
        parts = split_by_group(table)
        return "\n\n".join(f"*{head}*\n\n{lines(columns, rows)}" for head, columns, rows in parts)
    heads = [
        f"{group.head}: " if group.head else "" for group in table.groups for _ in group.columns
    ]
    return lines(
        [head + column for head, column in zip(heads, table.columns, strict=True)], table.rows
    )


def to_rich(table: Table) -> list[Any]:
    """Format a table for a terminal: one `rich` table for each group of columns."""
    from rich.table import Table as RichTable

    tables = []
    for head, columns, rows in split_by_group(table):
        rich_table = RichTable(
            title=head, title_justify="left", title_style="italic", box=None, padding=(0, 2, 0, 0)
        )
        for i, column in enumerate(columns):
            rich_table.add_column(
                column, justify="left" if i < table.names else "right", overflow="fold"
            )
        for row in rows:
            rich_table.add_row(*row)
        tables.append(rich_table)
    return tables


def page(
    title: str, intro: str, sections: Sequence[Section], *, verdict: str = "", flowing: bool = False
) -> str:
    """Build a self-contained HTML page.

    Args:
        title: title of the page.
        intro: its first paragraph.
        sections: its sections.
        verdict: a sentence that stands above everything else, in a frame; none if empty.
        flowing: print in portrait, one section after another; else each section is printed on a
            sheet of its own, in landscape.

    Returns:
        The HTML text.
    """
    import jinja2

    from heatnets.plotting.style import svg

    text = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    template = jinja2.Template(text, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return template.render(
        title=title,
        intro=intro,
        verdict=verdict,
        sections=sections,
        flowing=flowing,
        svg=svg,
        broad=_BROAD,
        version=__version__,
    )
