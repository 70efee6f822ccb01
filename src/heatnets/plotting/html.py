"""Tables as Markdown, HTML or terminal text, and self-contained HTML pages of sections.

A page needs no network and no script, follows the reader's light or dark setting, and prints in
black on white.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from heatnets import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ColumnGroup(NamedTuple):
    """Columns under a common head; the head is empty for columns that name the row."""

    head: str
    columns: tuple[str, ...]


class Table(NamedTuple):
    """A table of text cells under groups of columns.

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
    if ratio < 1e6:
        return f"{float(f'{ratio:.2g}'):,.0f}×"
    return f"{ratio:.0e}×"


def parts(table: Table) -> list[tuple[str, list[str], list[list[str]]]]:
    """Split a wide table into one narrow table for each group of columns.

    In each narrow table empty rows are omitted, and consecutive rows with equal cells are merged
    into one, named "first … last".

    Returns:
        For each group: its head, its columns (those that name a row first), and its rows.
    """
    narrow, start, names = [], 0, 0
    for group in table.groups:
        end = start + len(group.columns)
        if group.head:
            columns = [*table.columns[:names], *group.columns]
            filled = [
                (row[:names], row[start:end]) for row in table.rows if set(row[start:end]) != {"–"}
            ]
            rows = []
            for cells, equal_rows in groupby(filled, key=lambda row: row[1]):
                name_columns = list(zip(*(name for name, _ in equal_rows), strict=True))
                merged = (c[0] if c[0] == c[-1] else f"{c[0]} … {c[-1]}" for c in name_columns)
                rows.append([*merged, *cells])
            narrow.append((group.head, columns, rows))
        else:
            names = end
        start = end
    return narrow


def markdown(table: Table, widest: int = 10) -> str:
    """Format a table in Markdown.

    The head of a group is written before the names of its columns. A table with more than `widest`
    columns is split by `parts`, with the head of each group above its table.
    """
    if len(table.columns) > widest:
        return "\n\n".join(
            f"*{head}*\n\n{_lines(columns, rows)}" for head, columns, rows in parts(table)
        )
    names = [
        f"{group.head}: {column}" if group.head else column
        for group in table.groups
        for column in group.columns
    ]
    return _lines(names, table.rows)


def _lines(columns: list[str], rows: list[list[str]]) -> str:
    """Lines of a Markdown table; the empty row stands for the rule below the column names."""
    return "\n".join(
        f"| {' | '.join(row)} |" if row else f"|{'---|' * len(columns)}"
        for row in (columns, [], *rows)
    )


def text(table: Table) -> list[Any]:
    """Format a table for a terminal: one `rich` table for each group of columns."""
    from rich.table import Table as RichTable

    tables = []
    names = sum(len(group.columns) for group in table.groups if not group.head)
    for head, columns, rows in parts(table):
        rich_table = RichTable(
            title=head, title_justify="left", title_style="italic", box=None, padding=(0, 2, 0, 0)
        )
        for i, column in enumerate(columns):
            justify: Literal["left", "right"] = "left" if i < names else "right"
            rich_table.add_column(column, justify=justify, overflow="fold")
        for row in rows:
            rich_table.add_row(*row)
        tables.append(rich_table)
    return tables


def page(title: str, intro: str, sections: Sequence[Section], *, flowing: bool = False) -> str:
    """Build a self-contained HTML page.

    Args:
        title: title of the page.
        intro: its first paragraph.
        sections: its sections.
        flowing: print in portrait, one section after another; else each section is printed on a
            sheet of its own, in landscape.

    Returns:
        The HTML text.
    """
    contents = "".join(f'<li><a href="#{s.name}">{html.escape(s.title)}</a></li>' for s in sections)
    main = "<main class=flowing>" if flowing else "<main>"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{main}\n"
        f"<h1>{html.escape(title)}</h1>\n<p>{html.escape(intro)}</p>\n<nav><ol>{contents}</ol></nav>\n"
        + "\n".join(_section(s) for s in sections)
        + f"\n<footer>heatnets {__version__}</footer>\n</main>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    """A section as HTML."""
    from heatnets.plotting.figures import svg

    parts = [f'<section id="{section.name}">', f"<h2>{html.escape(section.title)}</h2>"]
    parts += [f"<p>{html.escape(p)}</p>" for p in section.paragraphs]
    parts += [_table(t) for t in section.tables]
    pictures = []
    for picture in section.pictures:
        caption = html.escape(picture.caption)
        broad = " class=broad" if picture.figure.get_figwidth() > _BROAD else ""
        pictures.append(
            f'<figure role="img" aria-label="{caption}"{broad}>{svg(picture.figure)}'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    if pictures:
        parts.append("\n".join(['<div class="pictures">', *pictures, "</div>"]))
    if section.code:
        parts.append(f"<pre><code>{html.escape(section.code)}</code></pre>")
    if section.settings is not None:
        parts.append(f'<div class="settings">{_table(section.settings)}</div>')
    return "\n".join([*parts, "</section>"])


def _table(table: Table) -> str:
    """A table as HTML."""

    def group_head(group: ColumnGroup) -> str:
        kind = " class=group" if group.head else ""
        return f'<th colspan="{len(group.columns)}"{kind}>{html.escape(group.head)}</th>'

    # The first column of each group with a head has a rule to its left.
    is_first = [i == 0 and bool(g.head) for g in table.groups for i in range(len(g.columns))]
    classes = [" class=first" if first else "" for first in is_first]

    def row_of(tag: str, cells: Sequence[str]) -> str:
        pairs = zip(classes, cells, strict=True)
        tagged = [f"<{tag}{kind}>{html.escape(text)}</{tag}>" for kind, text in pairs]
        return f"<tr>{''.join(tagged)}</tr>"

    heads = "".join(group_head(group) for group in table.groups)
    groups = f"<tr>{heads}</tr>" if any(g.head for g in table.groups) else ""
    body = "\n".join(row_of("td", row) for row in table.rows)
    start = "<table class=words>" if table.words else "<table>"
    return (
        f'<div class="wide">{start}<caption>{html.escape(table.caption)}</caption>'
        f"<thead>{groups}{row_of('th', table.columns)}</thead>\n"
        f"<tbody>{body}</tbody></table></div>"
    )


# Width in inches above which a picture is scrolled on a small screen: scaled down, its text would
# be too small to read.
_BROAD = 7.0

# A backslash at the end of a line continues a rule of the style sheet.
_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fdfdfb; --rule: #c9c9c4; \
--faint: #5d5d58; --link: #0a5c94; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e6e1; --paper: #16181a; --rule: #43474b; \
--faint: #a3a29c; --link: #7cc0ee; } }
@media print { :root { --ink: #000; --paper: #fff; --rule: #999; --faint: #333; --link: #000; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); \
font: 16px/1.55 Georgia, "Times New Roman", serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1, h2 { line-height: 1.2; font-weight: 600; }
h2 { margin-top: 3rem; border-top: 1px solid var(--rule); padding-top: 1.5rem; }
p { max-width: 46rem; }
a { color: var(--link); }
nav ol { columns: 2 15rem; padding-left: 1.4rem; }
p, h1, h2, li, figcaption { overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 1.25rem 0; }
table { border-collapse: collapse; font: 13px/1.4 system-ui, "DejaVu Sans", sans-serif; \
font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
th, td { padding: .22rem .6rem; text-align: right; white-space: nowrap; }
td:first-child, thead tr:last-child th:first-child { text-align: left; }
thead tr:last-child th { border-bottom: 1px solid var(--ink); font-weight: 600; }
th.group { text-align: center; border-bottom: 1px solid var(--rule); }
td.first, th.first { border-left: 1px solid var(--rule); }
tbody tr:nth-child(even) { background: color-mix(in srgb, var(--ink) 4%, transparent); }
.settings td, .settings thead tr:last-child th { text-align: left; white-space: normal; }
.settings table { color: var(--faint); }
table.words { width: 100%; max-width: 60rem; }
table.words td, table.words thead tr:last-child th { text-align: left; white-space: normal; \
vertical-align: top; }
table.words td:last-child { overflow-wrap: anywhere; min-width: 9rem; }
pre { border: 1px solid var(--rule); border-radius: 4px; padding: .7rem .9rem; \
font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; }
figure { margin: 1.5rem 0; color: var(--ink); max-width: 100%; }
figure svg { max-width: 100%; height: auto; }
figure.broad { overflow-x: auto; }
figure.broad svg { min-width: 38rem; }
.flowing .pictures { display: grid; \
grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 0 2rem; \
align-items: start; }
figcaption, footer { color: var(--faint); font-size: .9rem; max-width: 46rem; }
@page { size: A4 landscape; margin: 12mm; }
@page upright { size: A4 portrait; margin: 16mm; }
@media print { main { max-width: none; padding: 0; } section { break-before: page; } \
nav { display: none; }
  figure, tr { break-inside: avoid; } .wide { overflow: visible; } table { font-size: 8px; } \
th, td { padding: .1rem .18rem; }
  figure.broad svg { min-width: 0; } h2 { break-after: avoid; }
  .flowing { page: upright; } .flowing section { break-before: auto; } \
.flowing table { font-size: 11px; } .flowing h2 { margin-top: 1.2rem; }
  .flowing table { break-inside: avoid; } .flowing .pictures { grid-template-columns: 1fr 1fr; } }
"""
