"""What tells one problem from another without its functions: their values at a few points of the region and where paths from it lead."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from heatnets._core import streams
from heatnets._core.precision import with_x64
from heatnets.pde.function import many
from heatnets.pde.problem import Problem

_POINTS = 8
_CLOSE = 1e-9  # relative: other machines round differently


@with_x64
def fingerprint(problem: Problem) -> dict[str, Any]:
    """Numbers and values that change with the problem, ready for JSON."""
    rng = streams.generator(0, "fingerprint")
    x = problem.region.sample(rng, _POINTS, problem.dim)
    t = problem.horizon * rng.random(_POINTS)
    weights = np.cos(np.arange(problem.dim))
    walk, transform = problem.canonical.paths, problem.transform
    noise = walk.draw(rng, (_POINTS,), problem.dim)
    s, y = transform.to_canonical(
        np.full(_POINTS, 0.0 if problem.is_terminal else problem.horizon), x
    )
    moved = [walk.go(s, y, part * s, noise) for part in (0.5, 1.0)]
    # A region may be one point, and data are met where its paths lead.
    (middle, between), (_, ends) = (
        transform.from_canonical((1 - part) * s, m.place)
        for part, m in zip((0.5, 1.0), moved, strict=True)
    )
    found: dict[str, Any] = {
        "dim": problem.dim,
        "horizon": problem.horizon,
        "given": problem.data_name,
        "region": [type(problem.region).__name__, *(x @ weights).tolist()],
        problem.data_name: many(problem.initial, np.concatenate([x, ends])).tolist(),
        "coefficients": [
            *(value for m in moved for value in (m.place @ weights).tolist()),
            *(value for m in moved for value in np.broadcast_to(m.weight, (_POINTS,)).tolist()),
            *np.broadcast_to(transform.value_scale(t), (_POINTS,)).tolist(),
            *(between @ weights).tolist(),
        ],
    }
    times, places = (
        np.concatenate([t, np.broadcast_to(middle, (_POINTS,))]),
        np.concatenate([x, between]),
    )
    if problem.nonlinear is None and problem.source is not None:
        found["source"] = many(problem.source, times, places).tolist()
    elif problem.nonlinear is not None:
        low, high = problem.canonical.u_range
        u, du = rng.uniform(low, high, len(times)), rng.standard_normal(places.shape)
        columns = (times, places, u, du) if problem.nonlinear.slopes else (times, places, u)
        found["source"] = many(problem.nonlinear.function, *columns).tolist()
    return found


def mark(problem: Problem) -> streams.Mark:
    """A mark of the problem for random streams, from the digits that other machines agree on."""

    def words(value: Any) -> Any:
        return (
            [words(v) for v in value]
            if isinstance(value, list)
            else f"{value:.6e}"
            if isinstance(value, float)
            else value
        )

    return streams.mark(
        json.dumps({name: words(value) for name, value in fingerprint(problem).items()}).encode()
    )


def differences(here: dict[str, Any], there: dict[str, Any]) -> list[str]:
    """Words for each part in which two fingerprints differ."""
    said = []
    for name in dict.fromkeys((*there, *here)):
        a, b = here.get(name), there.get(name)
        if not _alike(a, b):
            values = (
                f": {_shown(a)} here, {_shown(b)} there"
                if name in ("dim", "horizon", "given")
                else ""
            )
            said.append(f"`{name}` differs{values}")
    return said


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_alike(i, j) for i, j in zip(a, b, strict=True))
    if isinstance(a, int | float) and isinstance(b, int | float):
        return (
            a == b or (a != a and b != b) or bool(abs(a - b) <= _CLOSE * (abs(a) + abs(b)) + 1e-300)
        )
    return bool(a == b)


def _shown(value: Any) -> str:
    return (
        "none" if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)
    )
