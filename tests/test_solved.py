"""The summary and the page of a solve: what they say, and how a browser shows the page."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import escape, unescape
from html.parser import HTMLParser

import jax.numpy as jnp
import matplotlib.image
import numpy as np
import pytest
from rich.console import Console

import heatnets as hn
from heatnets.plotting import html, solve_report
from heatnets.summary import SolveSummary

FORMULA = "t * exp(-x @ x / d) + " * 12 + "0 & <script>alert(1)</script>"
COMMAND = "heatnets solve problem.toml --seed 0 --out " + "a-long-name-without-a-gap" * 6 + ".html"
WARNING = "<b>a warning</b> that names <data>"


@pytest.fixture(scope="module")
def solution():
    return hn.solve(hn.problems.get("forced-radial", dim=4), tol=0, max_rounds=1)


@pytest.fixture(scope="module")
def certificates(solution):
    sure = solution.certify(0.5, [0.3] * 4, samples=512)
    doubted = replace(
        sure,
        certified=np.asarray(False),
        reasons=("heavy tails: one of 256 pairs carries 90 % of the variance",),
    )
    return [(0.5, np.full(4, 0.3), sure), (0.25, np.zeros(4), doubted)]


@pytest.fixture(scope="module")
def page(solution, certificates):
    stated = [("equation", "u_t = Δu + F(t, x)"), ("F(t, x)", FORMULA)]
    warned = (*solution.stats["warnings"], WARNING, WARNING)
    return solve_report.page(
        solution.with_stats({"warnings": warned}),
        title="A <i>page</i>",
        stated=stated,
        certificates=certificates,
        reproduce=COMMAND,
    )


@pytest.fixture(scope="module")
def fixed_page():
    problem = hn.Problem(dim=1, horizon=0.5, terminal=lambda x: jnp.sin(2 * x[0]))
    u = hn.solve(problem, features=(8, 0), antithetic=True)
    return solve_report.page(
        u, title="One", stated=[("u(T, x)", "sin(2 x)")], certificates=[], reproduce="python one.py"
    )


class Reader(HTMLParser):
    """Sections of a page as text, rows of its tables, and what it would fetch or run."""

    def __init__(self, page):
        super().__init__()
        self.open, self.rows, self.sections, self.outside, self.pictures = [], [], {}, [], 0
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag not in ("meta", "br", "hr", "img", "link"):
            self.open.append(tag)
        self.outside += [tag] if tag in ("script", "link", "img", "iframe", "object") else []
        self.outside += [
            v
            for k, v in attrs
            if k.startswith("on") or (k in ("src", "href", "xlink:href") and not v.startswith("#"))
        ]
        self.pictures += tag == "svg"
        if tag == "section":
            self.sections[found["id"]] = ""
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "section" in self.open:
            name = next(reversed(self.sections))
            self.sections[name] += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_the_slices_pass_through_the_certified_point(page):
    assert "through point 1 of the table, with its certified interval" in page


def test_the_page_says_what_is_known(page, solution, certificates):
    read = Reader(page)
    assert read.outside == []
    assert list(read.sections) == ["problem", "warnings", "answer", "pictures", "computed", "again"]
    assert ["F(t, x)", FORMULA] in read.rows
    assert read.sections["warnings"].count(WARNING) == 1
    assert (
        f"error of u is {html.number(solution.stats['estimated_error'])} of its size"
        in read.sections["answer"]
    )
    assert "tolerance" not in read.sections["answer"]
    assert COMMAND in read.sections["again"]
    assert "the seed 0" in read.sections["again"]
    assert read.pictures == 5
    rows = {row[0]: row for row in read.rows if row and row[0] in "12" and len(row) == 7}
    sure = certificates[0][2]
    low, high = map(float, rows["1"][6].split(" to "))
    assert float(rows["1"][4]) == pytest.approx(float(sure.value), abs=float(sure.halfwidth))
    assert (low, high) == pytest.approx(
        (float(sure.low), float(sure.high)), abs=0.2 * float(sure.halfwidth)
    )
    assert low < hn.exact_values(solution.problem, 0.5, [0.3] * 4) < high
    assert float(rows["1"][3]) == pytest.approx(
        float(solution(0.5, [0.3] * 4)), abs=float(sure.halfwidth)
    )
    assert rows["2"][5:] == ["–", "not certified"]
    verdicts = {row[0]: row[1:] for row in read.rows if len(row) == 3}
    assert verdicts["1"][0] == f"95 %, {int(sure.samples)} samples, residual"
    assert verdicts["1"][1].split(";")[0] == "certified"
    assert verdicts["2"][1].startswith("not certified; heavy tails: one of 256 pairs")
    facts = {row[0]: row[1] for row in read.rows if len(row) == 2}
    assert facts["features"].startswith(
        f"0 from `initial` + {solution.stats['features'][1]} from the source"
    )
    assert f"rank {solution.stats['rank']}," in facts["least squares"]
    assert facts["seed"] == "0"
    spent = dict(part.rsplit(" ", 1) for part in facts["seconds"].split(": ")[1].split(", "))
    assert float(spent["assembly"]) == pytest.approx(
        solution.stats["seconds"]["assembly"], rel=0.06
    )
    assert {"heatnets", "Python", "jax", "numpy"} <= set(facts["versions"].replace(",", "").split())
    assert sum(len(row) == 6 for row in read.rows) == 1 + len(solution.stats["history"])


def test_what_is_not_known_is_said(fixed_page, solution):
    read = Reader(fixed_page)
    assert list(read.sections) == ["problem", "answer", "pictures", "computed", "again"]
    assert "No estimate of its error was made" in read.sections["answer"]
    assert "No point was certified" in read.sections["answer"]
    assert "No picture of the history: this solve was of a fixed size" in read.sections["pictures"]
    assert read.pictures == 4
    for met, words in ((True, "is met: growth ended as"), (False, "is not met: growth ended as")):
        stats = {**solution.stats, "tolerance_met": met}
        other = solution.with_problem(solution.problem)
        other.stats = stats
        assert (
            f"The tolerance that was asked for {words}"
            in solve_report._answer(other, []).paragraphs[1]
        )


TO = "Solved to 8.0e-04"
VERDICTS = [
    ({"tolerance_met": True}, [True] * 3, f"{TO}, tolerance met, all 3 points certified."),
    ({"tolerance_met": False}, [], f"{TO}, tolerance NOT met."),
    ({}, [True], f"{TO}, the point is certified."),
    ({}, [False], f"{TO}, the point is NOT certified."),
    ({}, [False, True], f"{TO}, only 1 of 2 points certified."),
    ({}, [False, False], f"{TO}, no point certified."),
    ({"estimated_error": None}, [], "Error not estimated, as the size was given."),
    ({"estimated_error": 0.3}, [True], "Do not use: not solved: the error is estimated at 0.3."),
    ({"warnings": ("not solved: paths miss.",)}, [], "Do not use: not solved: paths miss."),
]


@pytest.mark.parametrize(("changes", "certified", "words"), VERDICTS)
def test_a_verdict_says_whether_to_use_it(solution, changes, certified, words):
    stats = {**solution.stats, "estimated_error": 8e-4, "tolerance_met": None, "warnings": ()}
    stats |= changes
    summary = SolveSummary(stats, certified=certified)
    assert summary.verdict == words
    assert str(summary).startswith(words[:-1])


def test_the_summary_is_one_object_for_text_tables_and_pages(solution, page):
    values = solution(*hn.random_points(solution.problem, 256))
    low, high = f"{values.min():.4g}", f"{values.max():.4g}"
    assert f"u from {low} to {high} at random points; 0 + " in str(solution)
    warned = solution.with_stats({"warnings": (WARNING, WARNING)})
    assert str(warned).splitlines()[0].endswith("; 1 warning.")
    assert str(warned).splitlines()[1:] == [f"Warning: {WARNING}"]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(warned)
    shown = console.export_text()
    assert str(warned).splitlines()[0] in shown
    assert WARNING in shown
    in_notebook = warned._repr_html_()
    assert escape(str(warned).splitlines()[0]) in in_notebook
    assert "<b>" not in in_notebook
    for text in warned.summary().facts.values():
        assert escape(text) in in_notebook
    head, _ = page.split("<nav>")  # the page opens with the verdict
    assert re.search(r"<p class=verdict>Solved to \S+, only 1 of 2 points certified.</p>", head)
    noted = solution.summary(notes=("a note.",))
    assert str(noted).splitlines()[-1] == "Note: a note."
    assert noted.facts["note"] == "a note."
    assert "note" not in solution.summary().facts
    unsolved = solution.with_stats({"estimated_error": np.inf})
    assert unsolved.summary().values is None
    assert "u from" not in str(unsolved)


needs_chromium = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="needs Debian's chromium"
)

MEASURE = """<!doctype html><meta charset="utf-8"><meta name="color-scheme"
  content="light dark"><body style="margin:0">
<iframe style="border:0;width:{width}px;height:6000px"
  srcdoc="{page}"></iframe><pre id="measured"></pre><script>
addEventListener("load", () => {{
  const frame = document.querySelector("iframe"), page = frame.contentDocument,
    view = frame.contentWindow, all = [...page.querySelectorAll("*")];
  const inner = e => e.closest(".wide") || e.closest("figure.broad") || e.closest("svg");
  const style = view.getComputedStyle(page.body);
  document.querySelector("#measured").textContent = JSON.stringify({{
    width: view.innerWidth, page: page.documentElement.scrollWidth,
    dark: view.matchMedia("(prefers-color-scheme: dark)").matches,
    over: all.filter(e =>
      !inner(e) && e.getBoundingClientRect().right > view.innerWidth + 0.5).map(e =>
      e.outerHTML.slice(0, 80)),
    boxes: [...page.querySelectorAll(".wide")].map(e => [e.clientWidth, e.scrollWidth]),
    words: [...page.querySelectorAll("table.words")].map(e =>
      [e.parentElement.clientWidth, e.parentElement.scrollWidth]),
    pictures: [...page.querySelectorAll("figure > svg")].map(e =>
      e.getBoundingClientRect().width / e.viewBox.baseVal.width),
    small: all.filter(e =>
      e.children.length == 0 && e.textContent.trim() && !e.closest("svg") &&
      parseFloat(view.getComputedStyle(e).fontSize) < 12).length,
    ink: style.color, paper: style.backgroundColor }});
}});
</script>"""


def chromium(tmp_path, path, width, dark, *options):
    """Run a browser that no window is needed for; what it printed, and no word on its console."""
    command = [
        "chromium",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={tmp_path}/profile",
        f"--window-size={width},1600",
        "--enable-logging=stderr",
        "--v=0",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        *options,
        path.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr
    return done.stdout


@needs_chromium
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_a_browser_shows_everything_within_its_width(page, fixed_page, width, dark, tmp_path):
    """Nothing on the page is wider than the page, and no text is too small to read.

    The page is shown in a frame, because windows cannot be narrower than 500; it is not changed.
    """
    for shown in (page, fixed_page):
        path = tmp_path / "measure.html"
        path.write_text(MEASURE.format(width=width, page=escape(shown)))
        dom = chromium(tmp_path, path, 1400, dark, "--dump-dom")
        found = json.loads(
            unescape(re.search(r'<pre id="measured">(.+?)</pre>', dom, re.S).group(1))
        )
        assert (found["width"], found["page"], found["dark"]) == (width, width, dark)
        assert found["over"] == []
        assert all(
            inner <= outer for outer, inner in found["words"]
        )  # sentences are broken into lines
        assert found["small"] == 0
        assert min(found["pictures"]) > (
            0.55 if width == 400 else 0.9
        )  # of pictures whose words are of 11 to 13 pixels
        if width == 1280:
            assert all(inner <= outer for outer, inner in found["boxes"])
        ink, paper = (
            np.mean([float(v) for v in re.findall(r"\d+", found[name])[:3]])
            for name in ("ink", "paper")
        )
        assert (ink > 200 and paper < 40) if dark else (ink < 40 and paper > 240)


@needs_chromium
def test_a_browser_paints_it_and_prints_it(page, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(page)
    means = []
    for dark in (False, True):
        chromium(tmp_path, path, 1280, dark, f"--screenshot={tmp_path}/shot.png")
        pixels = matplotlib.image.imread(tmp_path / "shot.png")[..., :3]
        means.append(float(pixels.mean()))
        assert pixels.shape[:2] == (1600, 1280)
        assert pixels.std() > 0.05  # there is something to see
    assert means[0] > 0.85
    assert means[1] < 0.25
    chromium(
        tmp_path, path, 1280, True, "--no-pdf-header-footer", f"--print-to-pdf={tmp_path}/page.pdf"
    )
    printed = (tmp_path / "page.pdf").read_bytes()
    assert printed.startswith(b"%PDF")
    sheets = re.findall(rb"/MediaBox ?\[0 0 ([\d.]+) ([\d.]+)\]", printed)
    assert 2 <= len(sheets) <= 5
    assert all(float(width) < float(height) for width, height in sheets)
