"""MkDocs hooks of the documentation site (mkdocs.yml): pages from outside docs/, and links to them.

README, CONTRIBUTING and CHANGELOG are pages of the site without a copy. Links in all pages are
written for the repository; a link to a file outside docs/ is changed to its page in the site, and
one to the source, which is not in the site, to its name. The code of an example is shown below a
link to it.
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
_SOURCE = re.compile(r"\[([^\]]+)\]\((?:\.\./)*src/[^)]*\)")
_DOCTEST = re.compile(r"^>>> (?:.+\n?)+", re.MULTILINE)
_EXAMPLE = re.compile(r"^\[[^\]]+\]\([./]*(examples/\w+\.py)\)$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add pages and files of the site that are not in docs/."""
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
    """Write the search index as a script too, for a site that is opened from a folder."""
    index = Path(config.site_dir) / "search" / "search_index.json"
    index.with_suffix(".js").write_text(
        f"var __index = {index.read_text(encoding='utf-8')}", encoding="utf-8"
    )


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Show the code of examples, and rewrite links to files outside docs/."""
    here = page.file.src_uri
    shown = _SOURCE.sub(r"`\1`", _EXAMPLE.sub(_with_code, markdown))
    if here == RESULTS:
        shown += "\n[The report of these results](report.html), on one page.\n"
    origin = next((name for name, uri in PAGES.items() if uri == here), f"docs/{here}")
    return _LINK.sub(lambda link: link[1] + _moved(link[2], origin, here) + link[3], shown)


def _moved(target: str, origin: str, here: str) -> str:
    """A link in the file `origin` of the repository, rewritten for the page `here` of the site."""
    wanted = os.path.normpath(os.path.join(os.path.dirname(origin), target))
    if ":" in target or not (ROOT / wanted).is_file():
        return target
    place = PAGES.get(wanted, wanted.removeprefix("docs/"))
    return os.path.relpath(place, os.path.dirname(here) or ".").replace(os.sep, "/")


def _with_code(link: re.Match[str]) -> str:
    """A link to an example, followed by its code."""
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
    """Mark doctests as code blocks: `>>>` alone would be a quotation in Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _DOCTEST.sub(
                lambda code: f"```pycon\n{code[0].rstrip()}\n```\n", obj.docstring.value
            )
