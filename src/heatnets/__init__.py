"""heatnets: parabolic PDEs in 1 to 100,000 dimensions by random-feature networks of heat kernels.

    import heatnets as hn

Names are listed in the stub `__init__.pyi`. Modules are imported when a name is first used, so that
`import heatnets` is fast.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


_MODULES = {"montecarlo": "certify.montecarlo", "problems": "problems", "plots": "plotting.figures"}


def _read_stub() -> dict[str, str]:
    """The module of each class and function that the stub imports from another module."""
    stub = ast.parse(Path(__file__).with_name("__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    names = {a.asname or a.name: str(node.module) for node in imports for a in node.names}
    return {n: module for n, module in names.items() if n[0] != "_" and n not in _MODULES}


_MODULE_OF = _read_stub()
__all__ = ["__version__", *_MODULE_OF, *_MODULES]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name in _MODULES:
        return importlib.import_module(f"heatnets.{_MODULES[name]}")
    if name in _MODULE_OF:
        globals()[name] = value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        return value
    raise AttributeError(
        f"heatnets has no attribute {name!r}; public names: {', '.join(sorted(__all__))}"
    )


def __dir__() -> list[str]:
    return sorted(__all__)
