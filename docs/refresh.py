"""Fill the tables of the documents from docs/results: python docs/refresh.py

A table stands between `<!-- NAME NUMBER -->` and `<!-- end -->`; a test compares it with the
results. `python docs/refresh.py gallery` runs the examples and draws their pictures again.
"""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

from PIL import Image

from heatnets import reproduce
from heatnets.plotting import html

HERE = Path(__file__).parent
PAGES = [HERE / "reproduction.md", HERE / "semilinear.md", HERE / "peers.md"]


def filled(text: str) -> str:
    """The text of a page with its tables filled from the results."""
    tables = {
        (s.name, i): t for s in reproduce.sections(HERE / "results") for i, t in enumerate(s.tables)
    }

    def table(match: re.Match[str]) -> str:
        return f"{match[1]}\n{html.markdown(tables[match[2], int(match[3])])}\n{match[4]}"

    return re.sub(r"(<!-- ([a-z0-9-]+) (\d+) -->).*?(<!-- end -->)", table, text, flags=re.DOTALL)


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
