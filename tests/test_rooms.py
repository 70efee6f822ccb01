"""The architecture: imports go one way, names are where they were promised, importing costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import heatnets as hn

ROOT = Path(hn.__file__).parent
ORDER = [
    "errors", "precision", "streams", "clock", "storage", "archives", "formulas",
    "tiles", "function", "regions", "diffusions", "derivatives", "frames", "processes", "varying", "walks", "reactions", "problem",
    "identity", "operators",
    "directions", "features", "collocation",
    "smoothness", "encounters", "assembly", "least_squares", "montecarlo", "error_equation", "intervals", "reference", "certificate", "slopes", "explain",
    "settings", "checkpoints", "sums", "tables", "newton", "tangents", "remainder", "solution", "accuracy", "linear", "rounds", "judges", "refine", "mild", "solving",
    "problems", "statements", "problem_files", "results", "canvas", "curves", "plots", "report", "solved", "reproduce", "cli", "__main__",
]  # fmt: skip


def imported_rooms(path: Path) -> set[str]:
    """The rooms of heatnets a file imports at its top level."""
    rooms = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "heatnets":
            parts = node.module.split(".")
            rooms |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            rooms |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("heatnets.")}
    return rooms


def test_every_file_has_its_place_in_the_order():
    found = {p.stem if p.parent == ROOT else p.parent.name for p in ROOT.rglob("*.py")} - {"__init__", "heatnets"}
    assert found == set(ORDER)


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_only_from_above(path):
    if path == ROOT / "__init__.py":
        return
    room = path.stem if path.parent == ROOT else path.parent.name
    for other in imported_rooms(path) - {"__version__"}:
        assert ORDER.index(other) < ORDER.index(room) or other == room in ("problems", "reproduce", "cli"), (
            f"{room} imports {other}"
        )


def test_public_names_exist():
    for name in hn.__all__:
        assert getattr(hn, name) is not None
    with pytest.raises(AttributeError, match="public names"):
        hn.does_not_exist  # noqa: B018


def test_import_and_help_load_no_jax():
    code = "import sys, heatnets, heatnets.cli; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_solve_is_a_function_after_submodule_imports():
    import heatnets.solution
    import heatnets.solving  # noqa: F401

    assert callable(hn.solve)
    assert callable(hn.measure)
