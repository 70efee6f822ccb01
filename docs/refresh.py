"""Fill the tables of the documents from docs/results and from docstrings: python docs/refresh.py

A table stands between `<!-- NAME NUMBER -->` and `<!-- end -->`; a test compares it with the
results. The table of public names, in api.md, stands between `<!-- names -->` and `<!-- end -->`.
`python docs/refresh.py gallery` runs the examples and draws their pictures again.
"""

from __future__ import annotations

import inspect
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

import heatnets
from heatnets import reproduce
from heatnets.plotting import html

HERE = Path(__file__).parent
PAGES = [HERE / "reproduction.md", HERE / "semilinear.md", HERE / "peers.md"]
API = HERE / "api.md"

_HEADING_OR_NAME = re.compile(
    r"^## (?P<heading>.+)|^::: (?P<name>\S+)(?P<options>(?:\n +.*)*)", re.M
)


def filled(text: str) -> str:
    """The text of a page with its tables filled from the results."""
    tables = {
        (s.name, i): t for s in reproduce.sections(HERE / "results") for i, t in enumerate(s.tables)
    }

    def table(match: re.Match[str]) -> str:
        return f"{match[1]}\n{html.markdown(tables[match[2], int(match[3])])}\n{match[4]}"

    return re.sub(r"(<!-- ([a-z0-9-]+) (\d+) -->).*?(<!-- end -->)", table, text, flags=re.DOTALL)


def with_names(text: str) -> str:
    """The API page with its table of public names, for readers of the page itself."""
    lines = ["| name | what it is | source |", "|---|---|---|", *_name_rows(text)]
    table = "\n".join(["<!-- names -->", *lines, "<!-- end -->"])
    return re.sub(r"<!-- names -->.*?<!-- end -->", lambda _: table, text, flags=re.DOTALL)


def _name_rows(text: str) -> Iterator[str]:
    """A row for each heading, name and listed member of the page that holds something."""
    heading = ""
    for match in _HEADING_OR_NAME.finditer(text):
        if match["heading"]:
            heading = match["heading"]
            continue
        if heading:
            yield f"| **{heading}** | | |"
            heading = ""
        name = match["name"].removeprefix("heatnets.")
        listed = re.search(r"members: \[(.*)\]", match["options"])
        members = re.findall(r"\w+", listed[1]) if listed else []
        owner: Any = getattr(heatnets, name)
        for label, value in [
            (name, owner),
            *((f"{name}.{member}", inspect.getattr_static(owner, member)) for member in members),
        ]:
            source = Path(inspect.getsourcefile(_code(value) or owner) or "")
            file = source.relative_to(HERE.parent).as_posix()
            paragraph = (inspect.getdoc(value) or "").split("\n\n")[0]
            words = " ".join(paragraph.split()).replace("|", "\\|")
            yield f"| `hn.{label}` | {words} | [{file.removeprefix('src/heatnets/')}](../{file}) |"


def _code(value: Any) -> Any:
    """What has the source code of a public name; None for attributes."""
    value = getattr(value, "fget", getattr(value, "func", value))
    value = inspect.unwrap(value)
    is_code = inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value)
    return value if is_code else None


def drawn(script: Path, out: Path) -> None:
    """Run an example and store its picture with 64 colours: a tenth of the bytes, same look."""
    print(f"{script.name}:")
    runpy.run_path(str(script))["main"](out)
    Image.open(out).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(out, optimize=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["gallery"]:
        for script in sorted((HERE.parent / "examples").glob("*.py")):
            drawn(script, HERE / "gallery" / f"{script.stem}.png")
    else:
        for page in PAGES:
            page.write_text(filled(page.read_text()))
        API.write_text(with_names(API.read_text()))
