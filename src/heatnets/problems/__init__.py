"""Named problems, nearly all with exact solutions: `hn.problems.get("oscillating", dim=1000)`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from heatnets._core.container import words
from heatnets._core.errors import InputError, check_choice
from heatnets.pde.problem import Problem
from heatnets.problems import (
    constant_coefficients,
    finance,
    paper,
    ridge_radial_modes,
    semilinear,
    variable_coefficients,
)

PROBLEMS: dict[str, Callable[..., Problem]] = {
    "forced-sine": paper.forced_sine,
    "product-of-sines": paper.product_of_sines,
    "oscillating": paper.oscillating,
    "nonseparable": paper.nonseparable,
    "radial-gaussian": ridge_radial_modes.radial_gaussian,
    "ridge": ridge_radial_modes.ridge,
    "smooth-basket": ridge_radial_modes.smooth_basket,
    "neighbour-products": ridge_radial_modes.neighbour_products,
    "quadratic-form": ridge_radial_modes.quadratic_form,
    "sine-network": ridge_radial_modes.sine_network,
    "product-of-cosines": ridge_radial_modes.product_of_cosines,
    "polynomial": ridge_radial_modes.polynomial,
    "constant": ridge_radial_modes.constant,
    "kinked-ridge": ridge_radial_modes.kinked_ridge,
    "moving-ridge": ridge_radial_modes.moving_ridge,
    "forced-radial": ridge_radial_modes.forced_radial,
    "forced-ridge": ridge_radial_modes.forced_ridge,
    "forced-network": ridge_radial_modes.forced_network,
    "anisotropic-gaussian": constant_coefficients.anisotropic_gaussian,
    "anisotropic-ridge": constant_coefficients.anisotropic_ridge,
    "anisotropic-waves": constant_coefficients.anisotropic_waves,
    "ornstein-uhlenbeck": constant_coefficients.ornstein_uhlenbeck,
    "hyperbolic": variable_coefficients.hyperbolic,
    "hyperbolic-waves": variable_coefficients.hyperbolic_waves,
    "rotating": variable_coefficients.rotating,
    "seasonal": variable_coefficients.seasonal,
    "porous": variable_coefficients.porous,
    "allen-cahn": semilinear.allen_cahn,
    "sine-gordon": semilinear.sine_gordon,
    "rational": semilinear.rational,
    "hamilton-jacobi": semilinear.hamilton_jacobi,
    "reaction-diffusion": semilinear.reaction_diffusion,
    "quadratic-gradient": semilinear.quadratic_gradient,
    "burgers": semilinear.burgers,
    "geometric-basket": finance.geometric_basket,
    "arithmetic-basket": finance.arithmetic_basket,
    "max-call": finance.max_call,
    "barenblatt": finance.barenblatt,
    "default-risk": finance.default_risk,
}
KINDS = {
    "heat": (paper, ridge_radial_modes),
    "linear": (constant_coefficients,),
    "variable": (variable_coefficients,),
    "semilinear": (semilinear,),
    "finance": (finance,),
}


def names(kind: str | None = None) -> list[str]:
    """List the names of the problems that `get` can build.

    Args:
        kind: one kind only: "heat" (D Δ and a source), "linear" (drift, anisotropy, reaction),
            "variable" (coefficients that are functions), "semilinear" (sources that depend on u),
            or "finance"; default all kinds.

    Returns:
        The names, for example "oscillating".
    """
    if kind is None:
        return list(PROBLEMS)
    modules = [module.__name__ for module in KINDS[check_choice("kind", kind, KINDS)]]
    return [name for name, make in PROBLEMS.items() if make.__module__ in modules]


def parameters_of(name: str) -> list[str]:
    """List the parameters that `get` takes for a problem.

    Args:
        name: the name of the problem.

    Returns:
        The names of its parameters, for example "dim" and "horizon".
    """
    if name not in PROBLEMS:
        raise InputError(f"`name` must be one of {', '.join(map(repr, PROBLEMS))}; got {name!r}.")
    return list(inspect.signature(PROBLEMS[name]).parameters)


def words_of(name: str) -> str:
    """Describe a named problem in a line or two: its formula and exact solution."""
    parameters_of(name)
    return " ".join((inspect.getdoc(PROBLEMS[name]) or "").split("\n\n")[0].split())


def _origin(name: str, parameters: dict[str, Any]) -> dict[str, Any] | None:
    """Name and parameters for result files; None if a parameter is not serialisable as JSON."""
    origin = words({"named": name, "parameters": parameters})
    try:
        json.dumps(origin)
    except TypeError:
        return None
    return origin


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
    return PROBLEMS[name](**parameters).with_provenance(_origin(name, parameters))
