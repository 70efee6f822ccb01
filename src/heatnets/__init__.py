"""heatnets: parabolic PDEs in 1 to 100,000 dimensions by random-feature networks of heat kernels.

    import heatnets as hn

Nothing heavy is imported until a name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Problem": "problem",
    "Function": "function",
    "Box": "regions",
    "Point": "regions",
    "Normal": "regions",
    "Region": "regions",
    "Factor": "diffusions",
    "LowRank": "diffusions",
    "GeometricBrownian": "processes",
    "OrnsteinUhlenbeck": "processes",
    "Design": "directions",
    "Density": "features",
    "ImportanceFamily": "features",
    "GaussianFamily": "features",
    "solve": "solving",
    "paper": "solving",
    "Solution": "solution",
    "load": "results",
    "info": "results",
    "read": "problem_files",
    "Certificate": "certificate",
    "RegionError": "certificate",
    "Explanation": "explain",
    "RelativeErrors": "accuracy",
    "relative_errors": "accuracy",
    "measure": "accuracy",
    "random_points": "accuracy",
    "exact_values": "accuracy",
    "exact_gradient": "accuracy",
    "FileError": "errors",
    "HeatnetsError": "errors",
    "HeatnetsWarning": "errors",
    "InputError": "errors",
    "NumericalError": "errors",
    "ResourceError": "errors",
}
_ROOMS = ("montecarlo", "problems", "plots")

__all__ = ["__version__", *_HOME, *_ROOMS]

if TYPE_CHECKING:
    from heatnets import montecarlo as montecarlo
    from heatnets import plots as plots
    from heatnets import problems as problems
    from heatnets.accuracy import RelativeErrors as RelativeErrors
    from heatnets.accuracy import exact_gradient as exact_gradient
    from heatnets.accuracy import exact_values as exact_values
    from heatnets.accuracy import measure as measure
    from heatnets.accuracy import random_points as random_points
    from heatnets.accuracy import relative_errors as relative_errors
    from heatnets.certificate import Certificate as Certificate
    from heatnets.certificate import RegionError as RegionError
    from heatnets.diffusions import Factor as Factor
    from heatnets.diffusions import LowRank as LowRank
    from heatnets.directions import Design as Design
    from heatnets.errors import FileError as FileError
    from heatnets.errors import HeatnetsError as HeatnetsError
    from heatnets.errors import HeatnetsWarning as HeatnetsWarning
    from heatnets.errors import InputError as InputError
    from heatnets.errors import NumericalError as NumericalError
    from heatnets.errors import ResourceError as ResourceError
    from heatnets.explain import Explanation as Explanation
    from heatnets.features import Density as Density
    from heatnets.features import GaussianFamily as GaussianFamily
    from heatnets.features import ImportanceFamily as ImportanceFamily
    from heatnets.function import Function as Function
    from heatnets.problem import Problem as Problem
    from heatnets.problem_files import read as read
    from heatnets.processes import GeometricBrownian as GeometricBrownian
    from heatnets.processes import OrnsteinUhlenbeck as OrnsteinUhlenbeck
    from heatnets.regions import Box as Box
    from heatnets.regions import Normal as Normal
    from heatnets.regions import Point as Point
    from heatnets.regions import Region as Region
    from heatnets.results import info as info
    from heatnets.results import load as load
    from heatnets.solution import Solution as Solution
    from heatnets.solving import paper as paper
    from heatnets.solving import solve as solve


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"heatnets.{name}")
    if name in _HOME:
        value = getattr(importlib.import_module(f"heatnets.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"heatnets has no attribute {name!r}; public names: {', '.join(sorted(__all__))}")


def __dir__() -> list[str]:
    return sorted(__all__)
