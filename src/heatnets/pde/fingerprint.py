"""Fingerprints of problems: values of their functions at a few points of the region and of paths.

They tell whether two problems are the same, as functions themselves cannot be compared.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from heatnets._core import streams
from heatnets._core.precision import with_x64
from heatnets.pde.function_values import evaluate_at
from heatnets.pde.problem import Problem

_POINTS = 8  # number of points
_CLOSE = 1e-9  # relative tolerance: other machines round differently


@with_x64
def fingerprint(problem: Problem) -> dict[str, Any]:
    """Numbers that identify a problem, as a dictionary that JSON can store."""
    rng = streams.generator(0, "fingerprint")
    x = problem.region.sample(rng, _POINTS, problem.dim)
    t = problem.horizon * rng.random(_POINTS)
    weights = np.cos(np.arange(problem.dim))
    simulator, transform = problem.canonical.paths, problem.transform
    noise = simulator.sample_noise(rng, (_POINTS,), problem.dim)
    s, y = transform.to_canonical(np.full(_POINTS, problem.start_time), x)
    # Paths at half of the time and at the end. The region may be one point, and the initial
    # condition is needed where paths from it end.
    middle, end = (simulator.simulate(s, y, fraction * s, noise) for fraction in (0.5, 1.0))
    middle_t, middle_x = transform.from_canonical(0.5 * s, middle.position)
    end_x = transform.from_canonical(0.0 * s, end.position)[1]
    coefficients = (
        middle.position @ weights,
        end.position @ weights,
        middle.weight,
        end.weight,
        transform.value_scale(t),
        middle_x @ weights,
    )
    values: dict[str, Any] = {
        "dim": problem.dim,
        "horizon": problem.horizon,
        "given": problem.data_name,
        "region": [type(problem.region).__name__, *(x @ weights).tolist()],
        problem.data_name: evaluate_at(problem.initial, np.concatenate([x, end_x])).tolist(),
        "coefficients": np.ravel(np.broadcast_arrays(*coefficients)).tolist(),
    }
    if problem.source is not None:
        points = np.concatenate([t, middle_t]), np.concatenate([x, middle_x])
        u = rng.uniform(*problem.canonical.u_range, 2 * _POINTS)
        du = rng.standard_normal((2 * _POINTS, problem.dim))
        source = problem.canonical.source
        columns = (*points, u, du)[: 2 + source.uses_u + source.uses_gradient]
        values["source"] = evaluate_at(problem.source, *columns).tolist()
    return values


def mark(problem: Problem) -> streams.Mark:
    """A mark of the problem for random streams, from digits that are the same on all machines."""

    def rounded(value: Any) -> Any:
        if isinstance(value, list):
            return [rounded(v) for v in value]
        return f"{value:.6e}" if isinstance(value, float) else value

    values = {name: rounded(value) for name, value in fingerprint(problem).items()}
    return streams.mark(json.dumps(values).encode())


def differences(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """One message for each entry in which two fingerprints differ.

    In messages the first fingerprint is "here", the second is "there".
    """
    messages = []
    for name in dict.fromkeys((*second, *first)):
        a, b = first.get(name), second.get(name)
        if not _equal(a, b):
            shown = name in ("dim", "horizon", "given")
            values = f": {_format(a)} here, {_format(b)} there" if shown else ""
            messages.append(f"`{name}` differs{values}")
    return messages


def _equal(a: Any, b: Any) -> bool:
    """Whether two entries are equal, up to rounding of numbers; nan equals nan."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_equal(i, j) for i, j in zip(a, b, strict=True))
    if isinstance(a, int | float) and isinstance(b, int | float):
        both_nan = a != a and b != b
        return a == b or both_nan or bool(abs(a - b) <= _CLOSE * (abs(a) + abs(b)) + 1e-300)
    return bool(a == b)


def _format(value: Any) -> str:
    """Text for one entry of a fingerprint."""
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, int | float) else str(value)
