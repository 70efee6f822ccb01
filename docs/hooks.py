"""Hooks of the documentation site (mkdocs.yml): pages that live elsewhere in the repository, and links that hold in both places.

The README is the site's first page, CONTRIBUTING and CHANGELOG are pages of it, and nothing is kept twice. Links in all pages are written
for the repository; here a link to a file outside docs/ becomes one to its place in the site. Under a link to an example stands its code.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
COPIED = ("CITATION.cff", "LICENSE", "examples/*.py", "examples/*.toml")
RESULTS, REPORT = "results/README.md", "results/report.html"

_LINK = re.compile(r"(\]\()([^)\s#]+)([^)]*\))")
_DOCTEST = re.compile(r"^>>> (?:.+\n?)+", re.MULTILINE)
_EXAMPLE = re.compile(r"^\[[^\]]+\]\([./]*(examples/\w+\.py)\)$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add what the site shows and docs/ does not hold."""
    for origin, page in PAGES.items():
        files.append(
            File.generated(config, page, content=(ROOT / origin).read_text(encoding="utf-8"))
        )
    for pattern in COPIED:
        for path in sorted(ROOT.glob(pattern)):
            files.append(
                File(
                    path.relative_to(ROOT).as_posix(),
                    str(ROOT),
                    config.site_dir,
                    use_directory_urls=False,
                )
            )
    if files.get_file_from_path(REPORT) is None:
        files.append(File.generated(config, REPORT, content=_report()))
    return files


def on_post_build(config: Any) -> None:
    """Where the site is opened from a folder, its index comes as a script."""
    index = Path(config.site_dir) / "search" / "search_index.json"
    index.with_suffix(".js").write_text(
        f"var __index = {index.read_text(encoding='utf-8')}", encoding="utf-8"
    )


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Show the code of examples, and turn links that lead out of docs/ to where the site has their targets."""
    here = page.file.src_uri
    shown = _EXAMPLE.sub(_with_code, markdown)
    if here == RESULTS:
        shown += "\n[The report of these results](report.html), on one page.\n"
    origin = next((name for name, uri in PAGES.items() if uri == here), f"docs/{here}")
    return _LINK.sub(lambda link: link[1] + _moved(link[2], origin, here) + link[3], shown)


def _moved(target: str, origin: str, here: str) -> str:
    """A link of the file `origin` of the repository as the page `here` of the site must write it."""
    wanted = os.path.normpath(os.path.join(os.path.dirname(origin), target))
    if ":" in target or not (ROOT / wanted).is_file():
        return target
    place = PAGES.get(wanted, wanted.removeprefix("docs/"))
    return os.path.relpath(place, os.path.dirname(here) or ".").replace(os.sep, "/")


def _with_code(link: re.Match[str]) -> str:
    code = (ROOT / link[1]).read_text(encoding="utf-8")
    return (
        f'{link[0]}\n\n??? example "The script"\n    ```python\n'
        + re.sub(r"^(?=.)", "    ", code, flags=re.MULTILINE)
        + "    ```"
    )


def _report() -> str:
    """The page that `heatnets reproduce` writes, from the results in docs/results."""
    from heatnets import reproduce

    return reproduce.report_page(ROOT / "docs" / "results")


class Doctests(griffe.Extension):
    """Examples in docstrings are code: `>>>` alone would be a quotation in Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _DOCTEST.sub(
                lambda code: f"```pycon\n{code[0].rstrip()}\n```\n", obj.docstring.value
            )
