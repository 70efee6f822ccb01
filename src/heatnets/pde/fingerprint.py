"""Fingerprints of problems: values of their functions at a few points of the region and of paths.

They tell whether two problems are the same, as functions themselves cannot be compared.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from heatnets._core import streams
from heatnets._core.precision import with_x64
from heatnets.pde.function import evaluate_at
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
    noise = simulator.draw(rng, (_POINTS,), problem.dim)
    start_time = 0.0 if problem.is_terminal else problem.horizon
    s, y = transform.to_canonical(np.full(_POINTS, start_time), x)
    # Paths at half of the time and at the end. The region may be one point, and the initial
    # condition is needed where paths from it end.
    path_ends = [simulator.simulate(s, y, fraction * s, noise) for fraction in (0.5, 1.0)]
    (middle_t, middle_x), (_, end_x) = (
        transform.from_canonical((1 - fraction) * s, end.position)
        for fraction, end in zip((0.5, 1.0), path_ends, strict=True)
    )
    values: dict[str, Any] = {
        "dim": problem.dim,
        "horizon": problem.horizon,
        "given": problem.data_name,
        "region": [type(problem.region).__name__, *(x @ weights).tolist()],
        problem.data_name: evaluate_at(problem.initial, np.concatenate([x, end_x])).tolist(),
        "coefficients": [
            *(v for end in path_ends for v in (end.position @ weights).tolist()),
            *(v for end in path_ends for v in np.broadcast_to(end.weight, (_POINTS,)).tolist()),
            *np.broadcast_to(transform.value_scale(t), (_POINTS,)).tolist(),
            *(middle_x @ weights).tolist(),
        ],
    }
    times = np.concatenate([t, np.broadcast_to(middle_t, (_POINTS,))])
    places = np.concatenate([x, middle_x])
    if problem.nonlinear is None and problem.source is not None:
        values["source"] = evaluate_at(problem.source, times, places).tolist()
    elif problem.nonlinear is not None:
        low, high = problem.canonical.u_range
        u, du = rng.uniform(low, high, len(times)), rng.standard_normal(places.shape)
        columns = (times, places, u, du) if problem.nonlinear.uses_gradient else (times, places, u)
        values["source"] = evaluate_at(problem.nonlinear.function, *columns).tolist()
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
            values = ""
            if name in ("dim", "horizon", "given"):
                values = f": {_format(a)} here, {_format(b)} there"
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
