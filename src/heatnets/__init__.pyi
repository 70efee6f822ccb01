# The public names and where they are defined: for type checkers, and for `__init__.py`, which
# imports a name from here when it is first used.

from heatnets import problems as problems
from heatnets._core.compilation_cache import use_compilation_cache as use_compilation_cache
from heatnets._core.errors import FileError as FileError
from heatnets._core.errors import HeatnetsError as HeatnetsError
from heatnets._core.errors import HeatnetsWarning as HeatnetsWarning
from heatnets._core.errors import InputError as InputError
from heatnets._core.errors import NumericalError as NumericalError
from heatnets._core.errors import ResourceError as ResourceError
from heatnets.certify import montecarlo as montecarlo
from heatnets.certify.certificate import Certificate as Certificate
from heatnets.certify.certificate import RegionError as RegionError
from heatnets.certify.explain import Explanation as Explanation
from heatnets.features.designs import Design as Design
from heatnets.features.families import Density as Density
from heatnets.features.families import GaussianFamily as GaussianFamily
from heatnets.features.families import ImportanceFamily as ImportanceFamily
from heatnets.fit.collocation import random_points as random_points
from heatnets.io.problem_files import read as read
from heatnets.io.result_files import info as info
from heatnets.io.result_files import load as load
from heatnets.metrics import RelativeErrors as RelativeErrors
from heatnets.metrics import exact_gradient as exact_gradient
from heatnets.metrics import exact_values as exact_values
from heatnets.metrics import measure as measure
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
from heatnets.plotting import figures as _figures
from heatnets.solution import Solution as Solution
from heatnets.solvers.entry import paper as paper
from heatnets.solvers.entry import solve as solve
from heatnets.solvers.sweep import solve_many as solve_many

plots = _figures
__version__: str
__all__: list[str]
