"""Tables and the page: what a reader sees, offline, in light and dark and on paper."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from heatnets.plotting import html
from heatnets.plotting.html import ColumnGroup, Picture, Section, Table

TABLE = Table(
    "Errors & seconds",
    (
        ColumnGroup("", ("d",)),
        ColumnGroup("the paper", ("L2", "min")),
        ColumnGroup("here", ("L2",)),
    ),
    [["100", "1e-7", "5", "<1e-9"], ["200", "1e-7", "5", "3e-9"], ["500", "–", "–", "2e-8"]],
)


def picture():
    figure = Figure(figsize=(4, 3))
    ax = figure.subplots()
    ax.loglog([1, 10, 100], [1e-1, 1e-3, 1e-5], "o-", label="errors")
    ax.imshow(np.eye(3), extent=(1, 2, 1e-5, 1e-4))
    ax.set(xlabel="d", title="a title")
    ax.legend(frameon=False)
    return Picture(figure, "Errors over d.")


@pytest.fixture(scope="module")
def page():
    settings = Table("Settings", (ColumnGroup("", ("what", "value")),), [["seed", "0"]])
    sections = [
        Section(
            name, f"Result {name}", ["Words with <angles> & more."], [TABLE], [picture()], settings
        )
        for name in "ab"
    ]
    return html.page("A report", "What it is.", sections)


class Checker(HTMLParser):
    """Every tag is closed in order, and nothing is fetched."""

    void = frozenset({"meta", "br", "hr", "img", "link", "input"})

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.messages, self.ids = [], [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in self.void:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and not value.startswith(("#", "data:")):
                self.fetched.append(value)
            if name == "id" and tag == "section":
                self.ids.append(value)
        assert tag != "script"

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.void:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.messages.append(data)


def test_the_page_is_well_formed_and_fetches_nothing(page):
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert checker.fetched == []
    assert "@import" not in page
    assert "url(" not in re.sub(r"url\(#", "", page)
    assert checker.ids == ["a", "b"]
    text = " ".join(checker.messages)
    assert "<1e-9" in text
    assert "Words with <angles> & more." in text
    assert text.count("2e-8") == 2


def test_pictures_follow_the_colour_of_the_page(page):
    assert "currentColor" in page
    assert not re.search(r"(fill|stroke): ?(#000000|#ffffff|black|white)", page)
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_tables_in_markdown_and_in_a_terminal():
    lines = html.markdown(TABLE).splitlines()
    assert lines[0] == "| d | the paper: L2 | the paper: min | here: L2 |"
    assert lines[2] == "| 100 | 1e-7 | 5 | <1e-9 |"
    assert all(line.count("|") == 5 for line in lines)
    stacked = html.markdown(TABLE, widest=3)
    assert stacked.startswith(
        "*the paper*\n\n| d | L2 | min |\n|---|---|---|\n| 100 … 200 | 1e-7 | 5 |\n\n*here*"
    )
    assert stacked.endswith("| 500 | 2e-8 |")
    console = Console(width=40, record=True, file=io.StringIO())
    console.print(*html.to_rich(TABLE))
    shown = console.export_text()
    assert "100 … 200" in shown
    assert shown.count("500") == 1  # one group has nothing to say of it


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "–"),
        (0.0, "0"),
        (1.234e-7, "1.2e-07"),
        (0.05, "5.0e-02"),
        (0.5, "0.5"),
        (42.3, "42"),
        (12345.0, "1.2e+04"),
    ],
)
def test_numbers(value, words):
    assert html.number(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "–"), (0.05, "0.05×"), (3.21, "3.2×"), (5432.1, "5,400×"), (3e8, "3e+08×")],
)
def test_ratios(value, words):
    assert html.times(value) == words


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
def test_a_browser_shows_the_page(page, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page)
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}/profile",
        "--dump-dom",
        path.as_uri(),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
    assert shown.count("<svg") == 2
    assert shown.count("<tbody>") == 4
