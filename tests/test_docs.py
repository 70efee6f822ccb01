"""Python blocks of the pages and docstring examples print what they say, and the site builds."""

from __future__ import annotations

import contextlib
import doctest
import html.parser
import importlib.util
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import heatnets as hn

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
README = (ROOT / "README.md").read_text()


def fenced(text):
    """The blocks of a page, in order, as (language, content); those inside lists are indented."""
    found = re.findall(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", text, flags=re.MULTILINE | re.DOTALL)
    return [
        (language, re.sub(rf"^{indent}", "", code, flags=re.MULTILINE))
        for indent, language, code in found
    ]


def test_the_first_shell_block_holds_two_commands():
    first = next(code for language, code in fenced(README) if language == "sh")
    commands = [line for line in first.splitlines() if line and not line.startswith("#")]
    assert len(commands) == 2
    assert commands[0].endswith("heatnets demo")
    assert commands[1].endswith("python -m pytest")


@pytest.mark.filterwarnings("ignore::heatnets.HeatnetsWarning")
@pytest.mark.parametrize(
    "page", [p for p in PAGES if "```python" in p.read_text()], ids=lambda p: p.stem
)
def test_the_code_of_a_page_prints_what_it_says(page, tmp_path, monkeypatch, same_output):
    """A page's blocks run in order in one namespace; a text block right after one is its output."""
    monkeypatch.chdir(tmp_path)
    names, printed = {}, None
    for language, code in fenced(page.read_text()):
        if language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(code, names)
            printed = out.getvalue()
        else:
            if language == "text" and printed is not None:
                same_output(printed, code)
            printed = None


@pytest.fixture(scope="module")
def refresh():
    """The module docs/refresh.py."""
    spec = importlib.util.spec_from_file_location("refresh", ROOT / "docs" / "refresh.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_those_of_the_results(refresh):
    for page in refresh.PAGES:
        assert "<!-- end -->" in page.read_text()
        assert refresh.filled(page.read_text()) == page.read_text(), (
            f"run python docs/refresh.py: {page.name} differs from docs/results"
        )


def test_links_lead_somewhere():
    for path in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


SOURCE = ROOT / "src" / "heatnets"
EXAMPLES = [
    path.relative_to(SOURCE) for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text()
]


@pytest.mark.parametrize("path", EXAMPLES, ids=str)
def test_docstring_examples(path):
    parts = path.with_suffix("").parts
    result = doctest.testmod(
        importlib.import_module(".".join(("heatnets", *parts)).removesuffix(".__init__"))
    )
    assert result.attempted > 0
    assert result.failed == 0


def test_the_api_page_has_every_public_name():
    page = (ROOT / "docs" / "api.md").read_text()
    shown = set(re.findall(r"^::: heatnets\.(\w+)$", page, flags=re.MULTILINE))
    assert shown == set(hn.__all__) - {"__version__"}
    assert "`heatnets.__version__`" in page


def test_the_api_page_can_be_read_unbuilt(refresh):
    """Its table has every public name with a sentence, and is that of the docstrings."""
    text = refresh.API.read_text()
    assert refresh.with_names(text) == text, "run python docs/refresh.py: docstrings have changed"
    rows = re.findall(r"^\| `hn\.(\S+)` \| (.*) \| \[.*\]\((.*)\) \|$", text, re.MULTILINE)
    assert {name for name, *_ in rows} >= set(hn.__all__) - {"__version__"}
    assert all(words.endswith((".", "`.")) or ":" in words for _, words, _ in rows)
    defined = {name: (ROOT / "docs" / file).read_text() for name, _, file in rows}
    for name in ("Problem", "Solution.certify", "problems.get", "plots.slices", "measure"):
        assert re.search(rf"^ *(class|def) {name.split('.')[-1]}\b", defined[name], re.MULTILINE)


class LinkParser(html.parser.HTMLParser):
    """Where a page's links lead, what it loads, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag == "link" and given.get("href") and given.get("rel") != "canonical":
            self.loads.append(given["href"])
        elif given.get("src"):
            self.loads.append(given["src"])


def test_the_site_builds_without_a_warning_and_needs_no_network(tmp_path):
    missing = [
        name
        for name in ("mkdocs", "material", "mkdocstrings")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        pytest.skip(
            f"the site is built with {', '.join(missing)}, not installed here: "
            "pip install -e '.[docs]'"
        )
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path),
    ]
    run = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    pages = {
        path: LinkParser(path.read_text())
        for path in tmp_path.rglob("*.html")
        if path.name != "404.html"
    }
    assert {
        "index.html",
        "start.html",
        "api.html",
        "faq.html",
        "gallery.html",
        "contributing.html",
    } <= {p.name for p in pages}
    for path, page in pages.items():
        assert not [url for url in page.loads if re.match(r"(https?:)?//", url)], (
            f"{path.name} loads from the network"
        )
        for link in [*page.links, *page.loads]:
            if re.match(r"[a-z]+:|//", link):
                continue
            target, _, anchor = link.partition("#")
            there = (path.parent / target).resolve() if target else path
            there = there / "index.html" if there.is_dir() else there
            assert there.exists(), f"{path.name} links to {link}"
            if anchor and there in pages and not anchor.startswith("__"):
                assert anchor in pages[there].anchors, f"{path.name} links to {link}"
    known = pages[tmp_path / "api.html"].anchors
    assert not [
        name for name in hn.__all__ if name != "__version__" and f"heatnets.{name}" not in known
    ]
