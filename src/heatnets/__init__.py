"""heatnets: parabolic PDEs in 1 to 100,000 dimensions by random-feature networks of heat kernels.

    import heatnets as hn

Modules are imported when a name is first used, so that `import heatnets` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULE_OF = {
    "Problem": "pde.problem",
    "Function": "pde.function",
    "Box": "pde.regions",
    "Point": "pde.regions",
    "Normal": "pde.regions",
    "Region": "pde.regions",
    "Factor": "pde.diffusion",
    "LowRank": "pde.diffusion",
    "GeometricBrownian": "pde.processes",
    "OrnsteinUhlenbeck": "pde.processes",
    "Design": "features.designs",
    "Density": "features.families",
    "ImportanceFamily": "features.families",
    "GaussianFamily": "features.families",
    "solve": "solvers.entry",
    "paper": "solvers.entry",
    "Solution": "solution",
    "load": "io.result_files",
    "info": "io.result_files",
    "read": "io.problem_files",
    "Certificate": "certify.values",
    "RegionError": "certify.values",
    "Explanation": "certify.explain",
    "RelativeErrors": "metrics",
    "relative_errors": "metrics",
    "measure": "metrics",
    "random_points": "metrics",
    "exact_values": "metrics",
    "exact_gradient": "metrics",
    "FileError": "_core.errors",
    "HeatnetsError": "_core.errors",
    "HeatnetsWarning": "_core.errors",
    "InputError": "_core.errors",
    "NumericalError": "_core.errors",
    "ResourceError": "_core.errors",
}
_MODULES = {"montecarlo": "certify.montecarlo", "problems": "problems", "plots": "plotting.figures"}

__all__ = ["__version__", *_MODULE_OF, *_MODULES]

if TYPE_CHECKING:
    from heatnets import problems as problems
    from heatnets._core.errors import FileError as FileError
    from heatnets._core.errors import HeatnetsError as HeatnetsError
    from heatnets._core.errors import HeatnetsWarning as HeatnetsWarning
    from heatnets._core.errors import InputError as InputError
    from heatnets._core.errors import NumericalError as NumericalError
    from heatnets._core.errors import ResourceError as ResourceError
    from heatnets.certify import montecarlo as montecarlo
    from heatnets.certify.explain import Explanation as Explanation
    from heatnets.certify.values import Certificate as Certificate
    from heatnets.certify.values import RegionError as RegionError
    from heatnets.features.designs import Design as Design
    from heatnets.features.families import Density as Density
    from heatnets.features.families import GaussianFamily as GaussianFamily
    from heatnets.features.families import ImportanceFamily as ImportanceFamily
    from heatnets.io.problem_files import read as read
    from heatnets.io.result_files import info as info
    from heatnets.io.result_files import load as load
    from heatnets.metrics import RelativeErrors as RelativeErrors
    from heatnets.metrics import exact_gradient as exact_gradient
    from heatnets.metrics import exact_values as exact_values
    from heatnets.metrics import measure as measure
    from heatnets.metrics import random_points as random_points
    from heatnets.metrics import relative_errors as relative_errors
    from heatnets.pde.diffusion import Factor as Factor
    from heatnets.pde.diffusion import LowRank as LowRank
    from heatnets.pde.function import Function as Function
    from heatnets.pde.problem import Problem as Problem
    from heatnets.pde.processes import GeometricBrownian as GeometricBrownian
    from heatnets.pde.processes import OrnsteinUhlenbeck as OrnsteinUhlenbeck
    from heatnets.pde.regions import Box as Box
    from heatnets.pde.regions import Normal as Normal
    from heatnets.pde.regions import Point as Point
    from heatnets.pde.regions import Region as Region
    from heatnets.plotting import figures as plots  # noqa: F401
    from heatnets.solution import Solution as Solution
    from heatnets.solvers.entry import paper as paper
    from heatnets.solvers.entry import solve as solve


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name in _MODULES:
        return importlib.import_module(f"heatnets.{_MODULES[name]}")
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(f"heatnets.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(
        f"heatnets has no attribute {name!r}; public names: {', '.join(sorted(__all__))}"
    )


def __dir__() -> list[str]:
    return sorted(__all__)
