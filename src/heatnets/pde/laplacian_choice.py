"""Which method computes tr(A D²f) of a user's function: the first that works, checked at points.

The first of `METHODS` that JAX can trace is used, so the choice costs no computation; it is checked
once per solve against second derivatives along directions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import subjaxprs
from jaxtyping import Array

from heatnets._core.compilation import compiled, optimisation_level
from heatnets._core.errors import InputError, NumericalError
from heatnets.pde import coordinate_sums
from heatnets.pde.diffusion import Diffusion
from heatnets.pde.function import Function
from heatnets.pde.function_checks import check_differentiable
from heatnets.pde.function_values import format_point
from heatnets.pde.laplacian import (
    CLOSED_FORM,
    METHODS,
    UNIT_DIFFUSION,
    CoordinateSums,
    FunctionWithLaplacian,
    gradient,
    second_derivative,
    sum_second_derivatives,
)
from heatnets.pde.sum_finder import NotReducible

_EXACT_CHECK = 4096  # up to this dimension the check sums all d second derivatives, ...
_DIRECTIONS = 64  # ... and beyond it takes the mean over this number of random directions
_PATH_TOLERANCE = 1e-10  # of a value along a path, against relative changes of x


def select_method(
    name: str,
    function: Function,
    *points: Sequence[np.ndarray],
    diffusion: Diffusion = UNIT_DIFFUSION,
) -> tuple[FunctionWithLaplacian, list[str]]:
    """Choose the method for tr(A D²f): the first that JAX can trace and that passes the check.

    Args:
        name: the argument of `Problem`, for messages.
        function: the function f.
        points: points at which the method is checked; each a tuple (x,) or (t, x).
        diffusion: A.

    Returns:
        The function with its method, and the reasons why the methods before it were not taken.
    """
    shapes = [jax.ShapeDtypeStruct(np.shape(a), jnp.float64) for a in points[0]]
    reasons: list[str] = []
    *fixed, x = (jnp.asarray(a, jnp.float64) for a in points[0])
    check_differentiable(name, partial(function, *fixed), (x,), 2)  # in x, as the check below
    for method in METHODS:
        candidate = FunctionWithLaplacian(function, method, diffusion)
        with _folx_records() as records:
            try:
                chosen = method.for_function(candidate, shapes)
                if chosen is None:
                    continue
                candidate = replace(candidate, method=chosen)
                jaxpr = jax.make_jaxpr(candidate.laplacian)(*shapes).jaxpr
                candidate = replace(candidate, largest=_largest_array(jaxpr))
            except Exception as error:
                first_line = str(error).partition("\n")[0]
                reasons.append(f"{method.name}: {type(error).__name__}: {first_line}")
                continue
        if records:
            # For an unknown primitive folx computes a full Hessian per entry: d² memory, not used.
            reasons.append(f"{method.name}: {records[0]}")
            continue
        failure = next(filter(None, (_check(candidate, point) for point in points)), None)
        if failure is None and method is CLOSED_FORM and _has_quadratic_sums(candidate, shapes):
            continue  # even faster
        if failure is None:
            return candidate, reasons
        if method is CLOSED_FORM:
            raise InputError(
                f"`{name}`'s laplacian must be the Laplacian in x of `{name}`; {failure}. "
                "Correct it, or leave it out: it is then computed automatically."
            )
        reasons.append(f"{method.name}: {failure}")
    raise NumericalError(
        f"no way to the Laplacian of `{name}` worked: {'; '.join(reasons)}. Give it in closed "
        "form: hn.Function(f, laplacian=g)."
    )


def _has_quadratic_sums(f: FunctionWithLaplacian, shapes: Sequence[Any]) -> bool:
    """Whether f is a function of few quadratic sums over coordinates."""
    try:
        has_additive_sums, head_size = coordinate_sums.describe(f.function, shapes)
    except NotReducible:
        return False
    return not has_additive_sums and head_size == 1


def _largest_array(jaxpr: Any) -> int:
    """The size of the largest array in a jaxpr, including the jaxprs that it calls."""
    sizes = [int(np.prod(v.aval.shape)) for e in jaxpr.eqns for v in e.outvars]
    return max([1, *sizes, *map(_largest_array, subjaxprs(jaxpr))])


@compiled
def _compare(
    candidate: FunctionWithLaplacian, args: tuple[Any, ...], directions: np.ndarray | None
) -> tuple[Array, ...]:
    """The candidate's Laplacian at one point, and a reference for it.

    Without directions the reference is the sum of all d second derivatives, else the mean of second
    derivatives along the directions (n, dim).

    Returns:
        The Laplacian, the value of f, the reference, the size of the second derivatives, the
        standard error of the reference, the error of the value along a path, and its scale.
    """
    f, x = candidate.whitened(*args)
    claimed, value = candidate.laplacian(*args), candidate(*args)
    path = _compare_path(candidate, args, value)
    if directions is None:
        return claimed, value, *sum_second_derivatives(f, x), jnp.zeros(()), *path
    terms = jax.lax.map(lambda v: second_derivative(f, x, v), jnp.asarray(directions))
    # E[vᵀHv] = tr H for a Hessian H and random signs v.
    return (
        claimed,
        value,
        jnp.mean(terms),
        jnp.max(jnp.abs(terms)),
        jnp.std(terms, ddof=1) / np.sqrt(len(directions)),
        *path,
    )


def _compare_path(
    candidate: FunctionWithLaplacian, args: tuple[Any, ...], value: Array
) -> tuple[Array, Array]:
    """The error of the value at the end of a path, and how much a change of x may change it.

    Only coordinate sums compute a value along a path in a way of their own.
    """
    if not isinstance(candidate.method, CoordinateSums):
        return jnp.zeros(()), jnp.ones(())
    *times, x = args
    e, shift = 0.7 * jnp.roll(x, 1) + 0.3, jnp.asarray(1.3)
    moved = candidate.transport(times, x - shift * e, shift, e)
    slope = gradient(lambda y: candidate.function(*times, y), jnp.asarray(x))
    condition = jnp.linalg.norm(slope) * (jnp.linalg.norm(x) + jnp.linalg.norm(e))
    return moved - value, jnp.abs(value) + condition


def _check(candidate: FunctionWithLaplacian, args: Sequence[np.ndarray]) -> str | None:
    """Check the candidate's Laplacian at one point: None, or a message if it is wrong."""
    dim = np.size(args[-1])
    signs = None
    if dim > _EXACT_CHECK:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (_DIRECTIONS, dim))
    if candidate.method.is_reference and signs is None:
        return None  # the check would compare the method with itself
    arrays = tuple(np.asarray(a, np.float64) for a in args)
    laplacian, value, reference, size, noise, change, scale = map(
        float, _compare(candidate, arrays, signs, level=optimisation_level(dim**2))
    )
    if not abs(change) <= _PATH_TOLERANCE * scale:
        return f"its value along a path differs by {change:.2g} of {scale:.2g}"
    # Only rounding errors are allowed: relative to the second derivatives, or to the value if these
    # are zero (linear functions).
    allowed = candidate.method.tolerance * size + 6 * noise + 1e-12 * abs(value)
    is_finite = np.isfinite(reference) and np.isfinite(laplacian)
    if is_finite and abs(laplacian - reference) <= allowed:
        return None
    return (
        f"at {format_point([np.asarray(a) for a in args[-2:]])} it gives {laplacian:.8g} where the "
        f"second derivatives sum to {reference:.8g}"
    )


@contextmanager
def _folx_records() -> Iterator[list[str]]:
    """Collect the warnings that folx sends to the root logger, so that they are not printed."""
    records: list[str] = []

    def is_not_folx(record: logging.LogRecord) -> bool:
        if "folx" not in record.pathname:
            return True
        if record.levelno >= logging.WARNING:
            records.append(record.getMessage().split(". ")[0])
        return False

    root = logging.getLogger()
    root.addFilter(is_not_folx)
    try:
        yield records
    finally:
        root.removeFilter(is_not_folx)
