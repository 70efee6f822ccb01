"""What paths that go far add to the error of a network at a point, beyond a certified interval."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from heatnets._core.statistics import confidence_interval
from heatnets.certify.certificate import CertifyOptions, Reasons
from heatnets.certify.error_equation import single_samples
from heatnets.certify.evaluator import NetworkEvaluator
from heatnets.certify.stretched_paths import FAR, Directions, draw_stretched, find_directions

_SLOPES = 1024  # gradients of the data, twice, from which the directions of a point are chosen
_FEWEST = (256, 2048)  # samples on far paths from a point; with cause
_SHARE = 16  # ordinary samples for one on a far path
_FURTHER = 4  # directions at most that get further samples
_MATTERS = 0.3  # share of a half-width below which an error does not matter


class FarAllowance(NamedTuple):
    """Bounds of the error on far paths at n points, (n,), and reasons not to certify a point."""

    bound: np.ndarray
    reasons: Reasons


def far_error(
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    options: CertifyOptions,
    half: np.ndarray,
    with_cause: bool,
) -> FarAllowance:
    """Bound what paths beyond three standard deviations, in single directions, add to the error.

    The bound is zero where it is small against the half-widths.

    Args:
        u: the network; its source must not depend on u, and it must be smooth.
        t: times, (n,).
        x: points, (n, dim).
        options: of the certificate.
        half: half-widths of its intervals in canonical units, (n,).
        with_cause: whether far paths are known to carry an error; then more samples are taken.
    """
    fewest = _FEWEST[with_cause]
    bound, reasons = np.zeros(len(t)), list[tuple[str, ...]]([()] * len(t))
    for i in np.flatnonzero(t > 0):
        bound[i], reasons[i] = _far_error_at(
            u, float(t[i]), x[i], options, int(i), half=float(half[i]), fewest=fewest
        )
    return FarAllowance(bound, reasons)


def _far_error_at(
    u: NetworkEvaluator,
    t: float,
    x: np.ndarray,
    options: CertifyOptions,
    i: int,
    *,
    half: float,
    fewest: int,
) -> tuple[float, tuple[str, ...]]:
    """The bound at point i, x (dim,), by at least `fewest` samples, and reasons against it."""
    rng = options.rng("far paths", i)
    directions = find_directions(u.error_problem, x[None], t, rng, u.ctx, _SLOPES)
    if not len(directions):
        return 0.0, ()
    number = max(options.samples // _SHARE, fewest) // len(directions)
    first = _far_samples(u, t, x, directions, number, rng)
    sizes = np.sqrt(np.mean(first**2, axis=1))
    if not np.all(np.isfinite(sizes)):
        return 0.0, ("the error on paths that go far is not finite",)
    large = [int(k) for k in np.argsort(-sizes) if sizes[k] > _MATTERS * half]
    if not large:
        return 0.0, ()
    chosen = directions.take(large[:_FURTHER])
    number = max(2 * options.samples // _SHARE, _FEWEST[0])
    further = _far_samples(u, t, x, chosen, number, rng)
    rest = float(np.sum(sizes[large[_FURTHER:]]))  # other directions: means are at most this
    bound, reasons = _far_bound(further, rest, options)
    if reasons and not bound <= half:  # a few samples carry the error: take four times as many
        more = _far_samples(u, t, x, chosen, 3 * number, rng)
        bound, reasons = _far_bound(np.concatenate([further, more], axis=1), rest, options)
    return bound, reasons if not bound <= half else ()


def _far_bound(
    samples: np.ndarray, rest: float, options: CertifyOptions
) -> tuple[float, tuple[str, ...]]:
    """A bound from samples in each direction, (K, number), plus `rest`; reasons to doubt it.

    Half-widths count twice, because samples on far paths are skewed.
    """
    interval = confidence_interval(samples, options.confidence, "samples on paths that go far")
    bound = float(np.sum(np.abs(interval.mean) + 2 * interval.half)) + rest
    return bound, next((why for why in interval.reasons if why), ())


def _far_samples(
    u: NetworkEvaluator,
    t: float,
    x: np.ndarray,
    directions: Directions,
    number: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Samples of the error at (t, x) that far paths in each direction carry, (K, number)."""
    n = len(directions) * number
    draw_noise = partial(
        draw_stretched,
        problem=u.error_problem,
        direction=np.repeat(directions.noise, number, axis=0),
        stretching=FAR,
    )
    starts = np.full(n, t), np.broadcast_to(x, (n, len(x)))
    return single_samples(u, *starts, rng, draw_noise).reshape(-1, number)
