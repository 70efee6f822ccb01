"""Results for readers: tables as Markdown, HTML or in the terminal, and one self-contained page of sections.

The page needs no network and no script; it follows the reader's light or dark setting, and prints in black on white.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from heatnets import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ColumnGroup(NamedTuple):
    """Columns that belong together, under one head; an empty head for columns that name the row."""

    head: str
    columns: tuple[str, ...]


class Table(NamedTuple):
    """Rows of words under groups of columns; `words` for sentences and formulas, which are broken into lines where numbers are not."""

    caption: str
    groups: tuple[ColumnGroup, ...]
    rows: list[list[str]]
    words: bool = False

    @property
    def columns(self) -> list[str]:
        return [column for group in self.groups for column in group.columns]


class Picture(NamedTuple):
    figure: Figure
    caption: str


class Section(NamedTuple):
    """One result: a title, paragraphs, tables, pictures, how it was made, and code as it is typed."""

    name: str
    title: str
    paragraphs: list[str]
    tables: list[Table]
    pictures: list[Picture]
    settings: Table | None = None
    code: str = ""


def number(value: float | None, digits: int = 2) -> str:
    """A number for a table: 1.2e-05 where small or large, plain otherwise; a dash where there is none."""
    if value is None:
        return "–"
    if value == 0 or 0.1 <= abs(value) < 9999.5:
        return f"{value:.{digits}g}" if abs(value) < 100 else f"{value:.0f}"
    return f"{value:.{digits - 1}e}"


def seconds(value: float | None) -> str:
    """A duration for a table."""
    if value is None:
        return "–"
    return f"{value:.2g} s" if value < 99.5 else f"{value:,.0f} s"


def times(ratio: float | None) -> str:
    """A ratio in words: 3.2×, 5,400×, 1e+08×."""
    if ratio is None:
        return "–"
    return (
        f"{ratio:.2g}×"
        if ratio < 100
        else f"{float(f'{ratio:.2g}'):,.0f}×"
        if ratio < 1e6
        else f"{ratio:.0e}×"
    )


def parts(table: Table) -> list[tuple[str, list[str], list[list[str]]]]:
    """A wide table as narrow ones: for each group its head, and the columns that name a row together with its own.

    In each, rows that hold nothing are left out, and neighbours that say the same are one.
    """
    found, start, names = [], 0, 0
    for group in table.groups:
        end = start + len(group.columns)
        if group.head:
            columns = [*table.columns[:names], *group.columns]
            filled = [
                (row[:names], row[start:end]) for row in table.rows if set(row[start:end]) != {"–"}
            ]
            rows = []
            for own, same in groupby(filled, key=lambda row: row[1]):
                called = list(zip(*(name for name, _ in same), strict=True))
                rows.append(
                    [*(c[0] if c[0] == c[-1] else f"{c[0]} … {c[-1]}" for c in called), *own]
                )
            found.append((group.head, columns, rows))
        else:
            names = end
        start = end
    return found


def markdown(table: Table, widest: int = 10) -> str:
    """The table in Markdown; a group's head goes before its columns' names, or above a table of its own where all would be too wide."""
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
    return "\n".join(
        f"| {' | '.join(row)} |" if row else f"|{'---|' * len(columns)}"
        for row in (columns, [], *rows)
    )


def text(table: Table) -> list[Any]:
    """The table for a terminal, as rich renderables, one group of columns below the other."""
    from rich.table import Table as Rich

    shown = []
    names = sum(len(group.columns) for group in table.groups if not group.head)
    for head, columns, rows in parts(table):
        one = Rich(
            title=head, title_justify="left", title_style="italic", box=None, padding=(0, 2, 0, 0)
        )
        for i, column in enumerate(columns):
            one.add_column(column, justify="left" if i < names else "right", overflow="fold")
        for row in rows:
            one.add_row(*row)
        shown.append(one)
    return shown


def page(title: str, intro: str, sections: Sequence[Section], *, flowing: bool = False) -> str:
    """One HTML page; in print each section is on a sheet of its own across, or all are upright and one after the other (`flowing`)."""
    contents = "".join(f'<li><a href="#{s.name}">{html.escape(s.title)}</a></li>' for s in sections)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main{" class=flowing" if flowing else ""}>\n'
        f"<h1>{html.escape(title)}</h1>\n<p>{html.escape(intro)}</p>\n<nav><ol>{contents}</ol></nav>\n"
        + "\n".join(_section(s) for s in sections)
        + f"\n<footer>heatnets {__version__}</footer>\n</main>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    from heatnets.plotting.figures import svg

    parts = [f'<section id="{section.name}">', f"<h2>{html.escape(section.title)}</h2>"]
    parts += [f"<p>{html.escape(p)}</p>" for p in section.paragraphs]
    parts += [_table(t) for t in section.tables]
    shown = []
    for picture in section.pictures:
        words = html.escape(picture.caption)
        broad = " class=broad" if picture.figure.get_figwidth() > _BROAD else ""
        shown.append(
            f'<figure role="img" aria-label="{words}"{broad}>{svg(picture.figure)}<figcaption>{words}</figcaption></figure>'
        )
    if shown:
        parts.append("\n".join(['<div class="pictures">', *shown, "</div>"]))
    if section.code:
        parts.append(f"<pre><code>{html.escape(section.code)}</code></pre>")
    if section.settings is not None:
        parts.append(f'<div class="settings">{_table(section.settings)}</div>')
    return "\n".join([*parts, "</section>"])


def _table(table: Table) -> str:
    heads = "".join(
        f'<th colspan="{len(g.columns)}"{" class=group" if g.head else ""}>{html.escape(g.head)}</th>'
        for g in table.groups
    )
    first = [i == 0 and bool(g.head) for g in table.groups for i in range(len(g.columns))]

    def line(tag: str, words: Sequence[str]) -> str:
        marks = (" class=first" if f else "" for f in first)
        return (
            "<tr>"
            + "".join(
                f"<{tag}{m}>{html.escape(w)}</{tag}>" for m, w in zip(marks, words, strict=True)
            )
            + "</tr>"
        )

    body = "\n".join(line("td", row) for row in table.rows)
    groups = f"<tr>{heads}</tr>" if any(g.head for g in table.groups) else ""
    return (
        f'<div class="wide"><table{" class=words" if table.words else ""}><caption>{html.escape(table.caption)}</caption><thead>{groups}{line("th", table.columns)}</thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


_BROAD = 7.0  # inches from which a picture is scrolled on a small screen, as its words would be too small to read

_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fdfdfb; --rule: #c9c9c4; --faint: #5d5d58; --link: #0a5c94; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e6e1; --paper: #16181a; --rule: #43474b; --faint: #a3a29c; --link: #7cc0ee; } }
@media print { :root { --ink: #000; --paper: #fff; --rule: #999; --faint: #333; --link: #000; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 Georgia, "Times New Roman", serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1, h2 { line-height: 1.2; font-weight: 600; }
h2 { margin-top: 3rem; border-top: 1px solid var(--rule); padding-top: 1.5rem; }
p { max-width: 46rem; }
a { color: var(--link); }
nav ol { columns: 2 15rem; padding-left: 1.4rem; }
p, h1, h2, li, figcaption { overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 1.25rem 0; }
table { border-collapse: collapse; font: 13px/1.4 system-ui, "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; }
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
table.words td, table.words thead tr:last-child th { text-align: left; white-space: normal; vertical-align: top; }
table.words td:last-child { overflow-wrap: anywhere; min-width: 9rem; }
pre { border: 1px solid var(--rule); border-radius: 4px; padding: .7rem .9rem; font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; }
figure { margin: 1.5rem 0; color: var(--ink); max-width: 100%; }
figure svg { max-width: 100%; height: auto; }
figure.broad { overflow-x: auto; }
figure.broad svg { min-width: 38rem; }
.flowing .pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 0 2rem; align-items: start; }
figcaption, footer { color: var(--faint); font-size: .9rem; max-width: 46rem; }
@page { size: A4 landscape; margin: 12mm; }
@page upright { size: A4 portrait; margin: 16mm; }
@media print { main { max-width: none; padding: 0; } section { break-before: page; } nav { display: none; }
  figure, tr { break-inside: avoid; } .wide { overflow: visible; } table { font-size: 8px; } th, td { padding: .1rem .18rem; }
  figure.broad svg { min-width: 0; } h2 { break-after: avoid; }
  .flowing { page: upright; } .flowing section { break-before: auto; } .flowing table { font-size: 11px; } .flowing h2 { margin-top: 1.2rem; }
  .flowing table { break-inside: avoid; } .flowing .pictures { grid-template-columns: 1fr 1fr; } }
"""
