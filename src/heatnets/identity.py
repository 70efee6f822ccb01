"""What tells one problem from another without its functions: their values at a few points, and where a few paths lead."""

from __future__ import annotations

from typing import Any

import numpy as np

from heatnets import streams
from heatnets.function import many
from heatnets.precision import in_double
from heatnets.problem import Problem

_POINTS = 8
_CLOSE = 1e-9  # relative: other machines round differently


@in_double
def fingerprint(problem: Problem) -> dict[str, Any]:
    """Numbers and values that change with the problem, ready for JSON."""
    rng = streams.generator(0, "fingerprint")
    x = problem.region.sample(rng, _POINTS, problem.dim)
    t = problem.horizon * rng.random(_POINTS)
    weights = np.cos(np.arange(problem.dim))
    s, y = problem.frame.inward(t, x)
    walk = problem.plain.walk
    moved = walk.go(s, y, 0.5 * s, walk.draw(rng, (_POINTS,), problem.dim))
    found: dict[str, Any] = {
        "dim": problem.dim,
        "horizon": problem.horizon,
        "given": problem.given,
        "region": [type(problem.region).__name__, *(x @ weights).tolist()],
        problem.given: many(problem.initial, x).tolist(),
        "coefficients": [
            *(moved.place @ weights).tolist(),
            *np.broadcast_to(moved.weight, (_POINTS,)).tolist(),
            *np.broadcast_to(problem.frame.amplitude(t), (_POINTS,)).tolist(),
        ],
    }
    if problem.nonlinear is None and problem.source is not None:
        found["source"] = many(problem.source, t, x).tolist()
    elif problem.nonlinear is not None:
        u, du = rng.random(_POINTS), rng.standard_normal((_POINTS, problem.dim))
        columns = (t, x, u, du) if problem.nonlinear.slopes else (t, x, u)
        found["source"] = many(problem.nonlinear.function, *columns).tolist()
    return found


def differences(here: dict[str, Any], there: dict[str, Any]) -> list[str]:
    """Words for each part in which two fingerprints differ."""
    said = []
    for name in dict.fromkeys((*there, *here)):
        a, b = here.get(name), there.get(name)
        if not _alike(a, b):
            values = f": {_shown(a)} here, {_shown(b)} there" if name in ("dim", "horizon", "given") else ""
            said.append(f"`{name}` differs{values}")
    return said


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_alike(i, j) for i, j in zip(a, b, strict=True))
    if isinstance(a, int | float) and isinstance(b, int | float):
        return bool(abs(a - b) <= _CLOSE * (abs(a) + abs(b)) + 1e-300)
    return bool(a == b)


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)
