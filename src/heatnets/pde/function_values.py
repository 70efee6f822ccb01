"""Values of a user's function at many points: are they finite, do they jump; points in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from heatnets._core.compilation import compiled, optimisation_level
from heatnets._core.errors import NotFiniteError
from heatnets.pde.function import Function


@compiled
def _map(function: Function, columns: tuple[np.ndarray, ...]) -> Array:
    """The values of a function at n points, compiled; each column has n entries or rows."""
    return jax.lax.map(lambda args: function(*args), columns)


def evaluate_at(function: Function, *columns: np.ndarray) -> np.ndarray:
    """The values (n,) of a function at n points, one after the other.

    Each column holds one argument: times (n,), points (n, dim), ...
    """
    level = optimisation_level(sum(map(np.size, columns)))
    return np.asarray(_map(function, columns, level=level))


def probe_finite(
    name: str, function: Function, columns: tuple[np.ndarray, ...], where: str
) -> np.ndarray:
    """Values (n,) at probe points; the last column holds the points (n, dim).

    Raises `NotFiniteError` if one is not finite; `where` describes the points in the message.
    """
    values = evaluate_at(function, *columns)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        example = format_point([c[bad[0]] for c in columns])
        raise NotFiniteError(
            f"`{name}` must be finite {where}; it was {values[bad[0]]} at {bad.size} of "
            f"{values.size} probe points, for example {example}. The equation lives on all of R^d "
            "and its paths leave the region: make the function finite there, or choose a smaller "
            "region or horizon."
        )
    return values


_HALVINGS = 40  # bisections of a segment: a change that is still there then is a jump


Arrays = tuple[np.ndarray, ...]


def choose_half(left: np.ndarray, start: Arrays, centre: Arrays, end: Arrays) -> list[Arrays]:
    """The ends of one half of each of n segments: of the first half where `left` (n,) is true.

    The ends and the centres are tuples of arrays with n entries or rows, one for each argument.
    """

    def where(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(left.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return [tuple(map(where, start, centre)), tuple(map(where, centre, end))]


def has_jump(value: Callable[..., np.ndarray], start: Arrays, end: Arrays) -> bool:
    """Whether a function jumps on one of n segments.

    Each segment is bisected 40 times, towards the half with the larger change. The function jumps
    if the change is then still more than 1e-3 of the first change (plus rounding).

    Args:
        value: the function; its values have shape (n, ...).
        start: first ends of the segments, one array with n entries or rows per argument.
        end: second ends of the segments.
    """

    def flat(points: Arrays) -> np.ndarray:
        return value(*points).reshape(len(points[0]), -1)

    low, high = flat(start), flat(end)
    first_change = np.max(np.abs(high - low), axis=1)
    for _ in range(_HALVINGS):
        centre = tuple(0.5 * (a + b) for a, b in zip(start, end, strict=True))
        middle = flat(centre)
        left = np.max(np.abs(middle - low), axis=1) >= np.max(np.abs(high - middle), axis=1)
        start, end = choose_half(left, start, centre, end)
        ((low,), (high,)) = choose_half(left, (low,), (middle,), (high,))
    size = np.max(np.abs(low), axis=1) + np.max(np.abs(high), axis=1)
    return bool(np.any(np.max(np.abs(high - low), axis=1) > 1e-3 * first_change + 1e-9 * size))


def format_point(columns: Sequence[Any]) -> str:
    """Text for a point (x,) or (t, x), with at most four coordinates."""
    *times, x = columns
    shown = ", ".join(f"{v:.4g}" for v in x[:4]) + (", ..." if len(x) > 4 else "")
    return "".join(f"t = {t:.4g}, " for t in times) + f"x = [{shown}]"


def format_points(points: Sequence[Sequence[Any]]) -> list[str]:
    """Texts for points (x,) or (t, x) that tell them apart.

    Where `format_point` writes different points alike, those coordinates follow in which a point
    differs from most of them: at most three, if these suffice.
    """
    if not points:
        return []
    texts = [format_point(columns) for columns in points]
    flat = np.stack([np.hstack([np.asarray(c, float) for c in columns]) for columns in points])
    n_times = len(points[0]) - 1
    names = ["t"] * n_times + [f"x[{k}]" for k in range(flat.shape[1] - n_times)]
    result = list(texts)
    for text in dict.fromkeys(texts):
        group = [i for i, other in enumerate(texts) if other == text]
        usual = np.median(flat[group], axis=0)
        for most in (3, flat.shape[1]):
            for i in group:
                apart = np.flatnonzero(flat[i] != usual)[:most]
                result[i] = text + "".join(f", {names[k]} = {flat[i, k]:.10g}" for k in apart)
            if len({result[i] for i in group}) == len(np.unique(flat[group], axis=0)):
                break
    return result
