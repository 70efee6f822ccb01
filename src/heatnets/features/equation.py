"""The equation of a problem as a JAX module, with a method for each second derivative."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from heatnets._core import streams
from heatnets.features.features import (
    AlongPath,
    Equation,
    TransportedInitial,
    TransportedReaction,
    TransportedSource,
    VaryingEquation,
)
from heatnets.pde import coordinate_sums
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.function import Function
from heatnets.pde.laplacian import NO_LAPLACIAN, ComposedFunction, FunctionWithLaplacian
from heatnets.pde.laplacian_choice import select_method
from heatnets.pde.paths import EulerPaths
from heatnets.pde.sources import SemilinearSource
from heatnets.pde.sum_finder import NotReducible

_KINDS = {kind.data: kind for kind in (TransportedInitial, TransportedSource, TransportedReaction)}


def equation_values_only(problem: CanonicalProblem) -> Equation:
    """The equation of a problem for the evaluation of values, without second derivatives."""
    diffusion = to_jax(problem.diffusion)

    def without_derivatives(functions: dict[str, Function]) -> dict[str, FunctionWithLaplacian]:
        return {k: FunctionWithLaplacian(f, NO_LAPLACIAN, diffusion) for k, f in functions.items()}

    functions = {
        "initial": problem.initial,
        "source": problem.feature_source,
        "reaction": problem.reaction_flow,
    }
    # On the device once, not in each call of a compiled program.
    data = {k: _arrays_on_device(f) for k, f in functions.items() if f is not None}
    if problem.coefficients is None:
        return _pre_integrated(problem, Equation(diffusion, without_derivatives(data)))
    paths = to_jax(problem.feature_paths)
    assert isinstance(paths, EulerPaths)
    along = {name: Function(AlongPath(_KINDS[name], paths, f)) for name, f in data.items()}
    return VaryingEquation(
        diffusion,
        without_derivatives(along),
        to_jax(problem.coefficients),
        paths,
        without_derivatives(data),
    )


def build_equation(problem: CanonicalProblem, seed: int) -> tuple[Equation, dict[str, list[str]]]:
    """The equation of a problem, with a tested method for each second derivative of features.

    Args:
        problem: the problem in canonical form.
        seed: the seed of the random points at which methods are tested.

    Returns:
        The equation, and for each function the methods that failed the test, with reasons.
    """
    rng = streams.generator(seed, "laplacian check")
    x = problem.region.sample(rng, 3, problem.dim)
    shift = 0.01 * rng.standard_normal((3, problem.dim))
    t, x = problem.region.at_fractions(rng.uniform(0.25, 0.75, 3), problem.horizon, x)
    x = x + shift
    equation = equation_values_only(problem)
    functions = dict(equation.functions)
    # The arguments of the functions besides x, at the three test points.
    if isinstance(equation, VaryingEquation):
        noise = rng.standard_normal((3, *equation.paths.noise_shape(problem.dim)))
        parameters: tuple[np.ndarray, ...] = (noise, rng.random(3), t)
        initial_parameters: tuple[np.ndarray, ...] = (noise, t)
        diffusion = equation.coefficients.evaluate(*jax.device_put((t[0], x[0]))).diffusion
    else:
        parameters, initial_parameters, diffusion = (t,), (), equation.diffusion
    # If the source depends on x only through u, its derivatives follow from those of u0.
    use_chain_rule = (
        isinstance(problem.source, SemilinearSource)
        and problem.coefficients is None
        and problem.source.is_x_independent(problem.dim)
    )
    skipped: dict[str, list[str]] = {}
    for part in [name for name in _KINDS if name in functions]:
        function = functions[part].function
        if part == "initial" and "reaction" in functions and not use_chain_rule:
            continue
        if part != "initial" and use_chain_rule:
            inner = functions["initial"]
            if not _is_reducible(function, problem.dim):
                functions[part] = ComposedFunction(
                    function, inner.method, inner.diffusion, inner=inner
                )
                continue
        name = "source" if part == "source" else problem.data_name
        first = initial_parameters if part == "initial" else parameters
        points = zip(*first, x, strict=True)
        functions[part], reasons = select_method(name, function, *points, diffusion=diffusion)
        if reasons:
            skipped[name] = reasons
    return _pre_integrated(problem, replace(equation, functions=functions)), skipped


def _pre_integrated(problem: CanonicalProblem, equation: Equation) -> Equation:
    """The equation with an initial condition that features integrate, if the problem says so."""
    if problem.preintegration is None:
        return equation
    initial = to_jax(problem.preintegration).apply_to(equation.initial)
    return replace(equation, functions={**equation.functions, "initial": initial})


def _is_reducible(function: Function, dim: int) -> bool:
    """Whether a function of (s, y) is a function of few sums over coordinates."""
    shapes = [jax.ShapeDtypeStruct(shape, np.float64) for shape in ((), (dim,))]
    try:
        coordinate_sums.describe(function, shapes)
    except NotReducible:
        return False
    return True


def _arrays_on_device(function: Function) -> Function:
    """A function whose NumPy arrays are JAX arrays; its floats stay part of the program."""
    return jax.tree.map(lambda a: jax.device_put(a) if isinstance(a, np.ndarray) else a, function)


def to_jax(tree: Any) -> Any:
    """Convert the NumPy arrays and floats of a pytree to JAX arrays."""
    return jax.tree.map(
        lambda a: jax.device_put(a) if isinstance(a, np.ndarray | float) else a, tree
    )
