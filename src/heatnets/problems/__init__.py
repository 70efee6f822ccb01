"""Named problems, nearly all with exact solutions: `hn.problems.get("oscillating", dim=1000)`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from heatnets.archives import words
from heatnets.errors import InputError, choice
from heatnets.problem import Problem
from heatnets.problems import coefficients, finance, paper, semilinear, structures, variable

PROBLEMS: dict[str, Callable[..., Problem]] = {
    "forced-sine": paper.forced_sine,
    "product-of-sines": paper.product_of_sines,
    "oscillating": paper.oscillating,
    "nonseparable": paper.nonseparable,
    "radial-gaussian": structures.radial_gaussian,
    "ridge": structures.ridge,
    "smooth-basket": structures.smooth_basket,
    "neighbour-products": structures.neighbour_products,
    "quadratic-form": structures.quadratic_form,
    "sine-network": structures.sine_network,
    "product-of-cosines": structures.product_of_cosines,
    "polynomial": structures.polynomial,
    "constant": structures.constant,
    "kinked-ridge": structures.kinked_ridge,
    "moving-ridge": structures.moving_ridge,
    "forced-radial": structures.forced_radial,
    "forced-ridge": structures.forced_ridge,
    "forced-network": structures.forced_network,
    "anisotropic-gaussian": coefficients.anisotropic_gaussian,
    "anisotropic-ridge": coefficients.anisotropic_ridge,
    "anisotropic-waves": coefficients.anisotropic_waves,
    "ornstein-uhlenbeck": coefficients.ornstein_uhlenbeck,
    "hyperbolic": variable.hyperbolic,
    "hyperbolic-waves": variable.hyperbolic_waves,
    "rotating": variable.rotating,
    "seasonal": variable.seasonal,
    "porous": variable.porous,
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
    "heat": (paper, structures),
    "linear": (coefficients,),
    "variable": (variable,),
    "semilinear": (semilinear,),
    "finance": (finance,),
}


def names(kind: str | None = None) -> list[str]:
    """The names `get` knows; or those of a kind: "heat" (D Δ and a source), "linear" (drift, anisotropy, reaction), "variable" (coefficients that are functions), "semilinear" (sources that depend on u), "finance"."""
    if kind is None:
        return list(PROBLEMS)
    homes = [module.__name__ for module in KINDS[choice("kind", kind, KINDS)]]
    return [name for name, make in PROBLEMS.items() if make.__module__ in homes]


def parameters_of(name: str) -> list[str]:
    """The parameters `get` takes for a name."""
    if name not in PROBLEMS:
        raise InputError(f"`name` must be one of {', '.join(map(repr, PROBLEMS))}; got {name!r}.")
    return list(inspect.signature(PROBLEMS[name]).parameters)


def words_of(name: str) -> str:
    """What a named problem is, in a line or two: its formula and exact solution."""
    parameters_of(name)
    return " ".join((inspect.getdoc(PROBLEMS[name]) or "").split("\n\n")[0].split())


def _origin(name: str, parameters: dict[str, Any]) -> dict[str, Any] | None:
    """What a file can tell of a named problem; None where a parameter is more than numbers."""
    told = words({"named": name, "parameters": parameters})
    try:
        json.dumps(told)
    except TypeError:
        return None
    return told


def get(name: str, **parameters: Any) -> Problem:
    """A named problem. Parameters are those of its function here, for example `dim` and `horizon`.

    >>> import heatnets as hn
    >>> hn.problems.get("oscillating", dim=1000).dim
    1000
    """
    known = parameters_of(name)
    if unknown := [p for p in parameters if p not in known]:
        raise InputError(f"problem {name!r} takes the parameters {', '.join(known)}; got {', '.join(map(repr, unknown))}.")
    return PROBLEMS[name](**parameters).but(origin=_origin(name, parameters))
