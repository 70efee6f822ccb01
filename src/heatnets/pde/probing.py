"""Checks of the coefficients of a problem on a sample of paths from its region."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from heatnets._core.errors import InputError, WarningLog
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.coefficients import CoefficientField, check_elliptic, check_step, with_jumps
from heatnets.pde.function_values import format_point

_STIFF = 2.0  # largest ratio of path displacements with half as many steps and with all of them
_EXPLODED = 1e6  # a path explodes beyond this multiple of (size of the region + spread of paths)


class PathSample(NamedTuple):
    """Paths from points of the region at the latest canonical time to the time zero."""

    s: np.ndarray  # the time at which they start, (n,)
    y: np.ndarray  # where they start, (n, dim)
    end: np.ndarray  # where they end, (n, dim)
    fraction: np.ndarray  # a random fraction of their time, (n,)
    noise: np.ndarray


def check_coefficients(
    problem: CanonicalProblem, sample: PathSample, log: WarningLog
) -> CoefficientField:
    """Check the coefficient field of a problem on paths; returns it with `jumps` set.

    Raises `InputError` if a coefficient is not finite, A is not positive definite, paths explode,
    or the steps are too long.
    """
    field, paths = problem.coefficients, problem.paths
    assert field is not None
    s, y, end, fraction, noise = sample
    check_elliptic(field, s * fraction, y)
    inside = paths.simulate(s, y, (1 - fraction) * s, noise).position
    spread = float(np.max(np.sqrt(2 * s)) * np.max(problem.diffusion.std))
    limit = _EXPLODED * (np.max(np.abs(y)) + spread + 1)
    bounded = np.all(np.abs(inside) < limit, axis=1)
    if np.any(bounded):
        check_elliptic(field, (s * fraction)[bounded], inside[bounded])
    # Half as many steps, with the same Brownian paths.
    _, coarse_paths, coarse_noise = paths.richardson_levels(noise)[1]
    coarse_end = coarse_paths.simulate(s, y, s, coarse_noise).position
    distance, coarse_distance = (
        float(np.linalg.norm(np.clip(np.nan_to_num(p - y, nan=1e100), -1e100, 1e100)))
        for p in (end, coarse_end)
    )
    where = f"from places like {format_point([problem.outer_transform.from_canonical(s, y)[1][0]])}"
    remedy = (
        f"More `steps` (now {problem.steps}), a shorter `horizon`, or a `step` of your own may "
        "help."
    )
    is_nan = np.any(np.isnan(end), axis=1)
    if np.any(is_nan):
        raise InputError(
            f"paths lead to places where `diffusion` or `drift` is no number: {np.sum(is_nan)} of "
            f"{len(end)} {where}. Is A positive definite everywhere, not only in the region? The "
            f"equation lives on all of R^d. {remedy}"
        )
    exploded = ~np.all(np.abs(end) < limit, axis=1)
    if np.any(exploded):
        raise InputError(
            f"paths explode: {np.sum(exploded)} of {len(end)} {where} went further than "
            f"{_EXPLODED:g} times the size of the region. `drift` or `diffusion` grows too fast "
            f"for steps, if not for the process itself. {remedy}"
        )
    if not coarse_distance < _STIFF * distance:
        raise InputError(
            "`drift` or `diffusion` is too strong for the steps of paths: with half as many they "
            f"go {coarse_distance / distance:.2g} times as far, {where}. {remedy}"
        )
    check_elliptic(field, np.zeros(len(end)), end)
    check_step(field, s * fraction, y)
    times, places = np.concatenate([s * fraction, 0 * s]), np.concatenate([inside, end])
    return with_jumps(field, times, places, log)
