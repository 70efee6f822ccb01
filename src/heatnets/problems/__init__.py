"""Named problems, nearly all with exact solutions: `hn.problems.get("oscillating", dim=1000)`."""

from __future__ import annotations

import inspect
import json
from dataclasses import is_dataclass
from typing import Any

from heatnets._core.container import to_jsonable
from heatnets._core.errors import InputError, check_choice
from heatnets.pde.problem import Problem
from heatnets.problems import constant_coefficients as constant
from heatnets.problems import finance, paper, semilinear
from heatnets.problems import ridge_radial_modes as heat
from heatnets.problems import variable_coefficients as variable
from heatnets.problems.shapes import Constructor

KINDS: dict[str, dict[str, Constructor]] = {
    "heat": {
        "forced-sine": paper.forced_sine,
        "product-of-sines": paper.product_of_sines,
        "oscillating": paper.oscillating,
        "nonseparable": paper.nonseparable,
        "radial-gaussian": heat.radial_gaussian,
        "ridge": heat.ridge,
        "smooth-basket": heat.smooth_basket,
        "neighbour-products": heat.neighbour_products,
        "quadratic-form": heat.quadratic_form,
        "sine-network": heat.sine_network,
        "product-of-cosines": heat.product_of_cosines,
        "polynomial": heat.polynomial,
        "constant": heat.constant,
        "kinked-ridge": heat.kinked_ridge,
        "moving-ridge": heat.moving_ridge,
        "forced-radial": heat.forced_radial,
        "forced-ridge": heat.forced_ridge,
        "forced-network": heat.forced_network,
    },
    "linear": {
        "anisotropic-gaussian": constant.anisotropic_gaussian,
        "anisotropic-ridge": constant.anisotropic_ridge,
        "anisotropic-waves": constant.anisotropic_waves,
        "ornstein-uhlenbeck": constant.ornstein_uhlenbeck,
    },
    "variable": {
        "hyperbolic": variable.hyperbolic,
        "hyperbolic-waves": variable.hyperbolic_waves,
        "rotating": variable.rotating,
        "seasonal": variable.seasonal,
        "porous": variable.porous,
    },
    "semilinear": {
        "allen-cahn": semilinear.allen_cahn,
        "sine-gordon": semilinear.sine_gordon,
        "rational": semilinear.rational,
        "hamilton-jacobi": semilinear.hamilton_jacobi,
        "reaction-diffusion": semilinear.reaction_diffusion,
        "quadratic-gradient": semilinear.quadratic_gradient,
        "burgers": semilinear.burgers,
    },
    "finance": {
        "geometric-basket": finance.geometric_basket,
        "arithmetic-basket": finance.arithmetic_basket,
        "max-call": finance.max_call,
        "barenblatt": finance.barenblatt,
        "default-risk": finance.default_risk,
    },
}
PROBLEMS = {name: construct for group in KINDS.values() for name, construct in group.items()}


def names(kind: str | None = None) -> list[str]:
    """List the names of the problems that `get` can build.

    Args:
        kind: one kind only: "heat" (D Δ and a source), "linear" (drift, anisotropy, reaction),
            "variable" (coefficients that are functions), "semilinear" (sources that depend on u),
            or "finance"; default all kinds.

    Returns:
        The names, for example "oscillating".
    """
    return list(PROBLEMS if kind is None else KINDS[check_choice("kind", kind, KINDS)])


def parameters_of(name: str) -> list[str]:
    """List the parameters that `get` takes for a problem.

    Args:
        name: the name of the problem.

    Returns:
        The names of its parameters, for example "dim" and "horizon".
    """
    return list(inspect.signature(PROBLEMS[check_choice("name", name, PROBLEMS)]).parameters)


def words_of(name: str) -> str:
    """Describe a named problem in a line or two: its formula and exact solution."""
    construct = PROBLEMS[check_choice("name", name, PROBLEMS)]
    return " ".join((inspect.getdoc(construct) or "").split("\n\n")[0].split())


def get(name: str, **parameters: Any) -> Problem:
    """Build a named problem.

    >>> import heatnets as hn
    >>> hn.problems.get("oscillating", dim=1000).dim
    1000

    Args:
        name: one of `names()`.
        **parameters: parameters of the problem (see `parameters_of`), for example `dim`, `horizon`.

    Returns:
        The problem, in most cases with its exact solution.
    """
    known = parameters_of(name)
    if unknown := [p for p in parameters if p not in known]:
        raise InputError(
            f"problem {name!r} takes the parameters {', '.join(known)}; got "
            f"{', '.join(map(repr, unknown))}."
        )
    return PROBLEMS[name](**parameters).with_provenance(_provenance(name, parameters))


def _provenance(name: str, parameters: dict[str, Any]) -> dict[str, Any] | None:
    """Name and parameters for result files; None if a parameter is not serialisable as JSON."""
    if any(map(is_dataclass, parameters.values())):  # a region
        return None
    provenance = to_jsonable({"named": name, "parameters": parameters})
    try:
        json.dumps(provenance)
    except TypeError:
        return None
    return provenance
