"""The architecture: packages import downward only, names are where promised, imports are cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import heatnets as hn

ROOT = Path(hn.__file__).parent
LAYERS = [
    ["_core"],
    ["pde"],
    ["features"],
    ["fit"],
    ["certify"],
    ["summary"],
    ["solution"],
    ["metrics"],
    ["solvers"],
    ["problems"],
    ["io"],
    ["plotting"],
    ["reproduce"],
    ["cli"],
    ["__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = {p.relative_to(ROOT).with_suffix("").parts: p for p in sorted(ROOT.rglob("*.py"))}


def imported_modules(parts: tuple[str, ...]) -> set[tuple[str, ...]]:
    """The modules of heatnets that a module imports anywhere, also inside its functions."""
    modules = set()
    for node in ast.walk(ast.parse(MODULES[parts].read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "heatnets":
            base = tuple(node.module.split(".")[1:])
            modules |= {(*base, a.name) if (*base, a.name) in MODULES else base for a in node.names}
        elif isinstance(node, ast.Import):
            modules |= {
                tuple(a.name.split(".")[1:]) for a in node.names if a.name.startswith("heatnets.")
            }
    return modules - {()}


@pytest.mark.parametrize("parts", sorted(MODULES), ids="/".join)
def test_a_package_imports_only_from_packages_below_it(parts):
    if parts == ("__init__",):
        return
    for other in imported_modules(parts):
        assert other[0] == parts[0] or LEVEL[other[0]] < LEVEL[parts[0]], f"{parts} imports {other}"


def test_no_cycles_inside_a_package():
    graph = {
        parts: {o for o in imported_modules(parts) if o in MODULES}
        for parts in MODULES
        if parts[-1] != "__init__"
    }
    done: set[tuple[str, ...]] = set()

    def visit(parts, above):
        assert parts not in above, f"imports go round: {[*above, parts]}"
        if parts not in done:
            for other in graph.get(parts, ()):
                visit(other, [*above, parts])
            done.add(parts)

    for parts in graph:
        visit(parts, [])


def test_public_names_exist():
    for name in hn.__all__:
        assert getattr(hn, name) is not None
    with pytest.raises(AttributeError, match="public names"):
        hn.does_not_exist  # noqa: B018


def test_import_and_help_load_no_jax():
    code = "import sys, heatnets, heatnets.cli; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_solve_loads_no_statistics_of_scipy():
    """They take a third of a second to import."""
    code = "import sys, heatnets; heatnets.solve; sys.exit('scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_solve_is_a_function_after_submodule_imports():
    import heatnets.solution
    import heatnets.solvers.entry  # noqa: F401

    assert callable(hn.solve)
    assert callable(hn.measure)
