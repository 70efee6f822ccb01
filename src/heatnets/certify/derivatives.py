"""Intervals for derivatives of the true solution: gradients, and second derivatives along a direction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from heatnets._core.precision import EPS
from heatnets._core.statistics import FEWEST, HEAVY, RunningMoments, t_half_width
from heatnets.certify.error_equation import (
    NetworkEvaluator,
    SampleBatch,
    martingale_form,
    martingale_gradients,
    residual_curvatures,
    residual_gradients,
    weighted_curvatures,
)
from heatnets.certify.values import (
    AGAIN,
    MOST,
    STEPS,
    Certificate,
    CertifyOptions,
    jumps,
    nearby,
    of_steps,
)
from heatnets.pde.canonical import CanonicalProblem


def certify_gradient(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    asked: CertifyOptions,
) -> Certificate:
    """Intervals for each component of the true gradient at points with t > 0: the residual form differentiated where ũ is smooth, else a weight."""
    size = np.abs(x) if asked.rounding_scale is None else asked.rounding_scale
    near = [u.gradient(t, y) for y in nearby(x, size, asked, "last bits of the gradient", 3)]
    slope = u.gradient(t, x)
    rounding = EPS * np.abs(slope) + 4 * np.std([slope, *near], axis=0, ddof=1)

    def draw(i: int, pairs: int, rng: Any) -> Iterator[SampleBatch]:
        if asked.smooth:
            return residual_gradients(problem, u, float(t[i]), x[i], pairs, rng)
        return martingale_gradients(problem, u, float(t[i]), x[i], pairs, rng, STEPS)

    def unseen(i: int) -> Any:
        if asked.smooth:
            return 0.0
        pilot = asked.rng("gradient certificate pilot", i)
        spread = martingale_form(problem, u, t[[i]], x[[i]], FEWEST, [pilot], 0).spread[0]
        return 0.5 * float(spread) * problem.diffusion.stiffness / np.sqrt(2 * t[i])

    method = "residual, differentiated" if asked.smooth else f"martingale, weighted, {STEPS} steps"
    units = np.broadcast_to(asked.unit, x.shape)
    return _tallied(
        problem,
        draw,
        unseen,
        slope,
        slope,
        rounding,
        asked._replace(unit=units),
        "gradient",
        method,
    )


def certify_curvature(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    asked: CertifyOptions,
    *,
    curves: tuple[np.ndarray, np.ndarray],
) -> Certificate:
    """Intervals for second derivatives of u along curves x + εw + ½ε²c at points with t > 0: of the residual form where ũ is smooth, else by weights."""
    value = u.value_bend(t, x, *curves)[:, None]
    size = np.abs(x) if asked.rounding_scale is None else asked.rounding_scale
    near = [
        u.value_bend(t, y, *curves)[:, None]
        for y in nearby(x, size, asked, "last bits of the curvature", 3)
    ]
    rounding = EPS * np.abs(value) + 4 * np.std([value, *near], axis=0, ddof=1)

    def draw(i: int, pairs: int, rng: Any) -> Iterator[SampleBatch]:
        how = residual_curvatures if asked.smooth else weighted_curvatures
        return how(problem, u, float(t[i]), x[i], (curves[0][i], curves[1][i]), pairs, rng)

    def unseen(i: int) -> Any:
        if asked.smooth:
            return 0.0
        pilot = asked.rng("curvature certificate pilot", i)
        spread = martingale_form(problem, u, t[[i]], x[[i]], FEWEST, [pilot], 0).spread[0]
        return (
            0.5
            * float(spread)
            * float(curves[0][i] @ problem.diffusion.solve(curves[0][i]))
            / (2 * t[i])
        )

    method = "residual, differentiated twice" if asked.smooth else "Monte Carlo, weighted"
    # By weights the samples are of u itself, not of what the network lacks.
    base, rounding = (value, rounding) if asked.smooth else (0.0 * value, EPS * np.abs(value))
    units = np.broadcast_to(asked.unit, t.shape)[:, None]
    found = _tallied(
        problem,
        draw,
        unseen,
        base,
        value,
        rounding,
        asked._replace(unit=units),
        "curvature",
        method,
    )
    return replace(
        found,
        **{
            name: getattr(found, name)[:, 0]
            for name in ("value", "error", "low", "high", "halfwidth")
        },
    )


def _tallied(
    problem: CanonicalProblem,
    draw: Callable[[int, int, Any], Iterator[SampleBatch]],
    unseen: Callable[[int], Any],
    base: np.ndarray,
    network: np.ndarray,
    rounding: np.ndarray,
    asked: CertifyOptions,
    what: str,
    method: str,
) -> Certificate:
    """Intervals for `base` plus the mean of vectors that `draw` gives in pieces, point by point; samples are added as `certify` does."""
    samples, confidence, halfwidth, tell = (
        asked.samples,
        asked.confidence,
        asked.halfwidth,
        asked.tell,
    )
    n, unit = len(base), np.asarray(asked.unit)
    mean, half, spent, good = (
        np.zeros_like(base),
        np.zeros_like(base),
        np.zeros(n, int),
        np.zeros(n, bool),
    )
    reasons: list[tuple[str, ...]] = [()] * n
    for i in range(n):
        tell(i, n)
        tally, pairs, batch, least = RunningMoments(), max(samples // 2, 2), 0, unseen(i)
        steps: list[np.ndarray] = []
        while True:
            for piece in draw(i, pairs, asked.rng(f"{what} certificate {batch}", i)):
                tally.add(piece.samples)
                if piece.steps is not None:
                    steps.append(piece.steps)
            found = t_half_width(
                tally.variance, tally.kurtosis, tally.largest, tally.count, confidence, least=least
            )
            mean[i], spent[i] = tally.mean, 2 * tally.count
            half[i], reasons[i], left = found + rounding[i], _doubts(tally), 0.0
            if problem.coefficients is not None:
                allowed, left, why = of_steps(np.concatenate(steps), half[i])
                half[i], reasons[i] = half[i] + allowed, (*reasons[i], *why)
            if not np.all(np.isfinite(half[i])):
                break
            if halfwidth is None:
                if not reasons[i] or batch == AGAIN or tally.count < FEWEST:
                    break
                pairs, batch = 3 * tally.count, batch + 1
                continue
            hopeless = np.max(unit[i] * (rounding[i] + left)) >= halfwidth
            if np.max(unit[i] * half[i]) <= halfwidth or spent[i] >= MOST * samples or hopeless:
                break
            pairs, batch = pairs if batch == 0 else 2 * pairs, batch + 1
        good[i] = not reasons[i]
        if halfwidth is not None and np.max(unit[i] * half[i]) > halfwidth:
            reasons[i] = (
                *reasons[i],
                f"the half-width {halfwidth:.2g} was not reached after {spent[i]} samples",
            )
    tell(n, n)
    value = base + mean
    doubts = jumps(problem)
    good, reasons = good & (not doubts), [(*r, *doubts) for r in reasons]
    found_all = Certificate(
        value,
        value - network,
        value - half,
        value + half,
        half,
        good,
        tuple(reasons),
        method,
        spent,
        confidence,
    )
    return found_all.scaled(unit)


def _doubts(tally: RunningMoments) -> tuple[str, ...]:
    said = []
    bad, heavy = (
        int(np.sum(~np.isfinite(tally.mean))),
        int(np.sum(tally.kurtosis > HEAVY * tally.count)),
    )
    if bad:
        said.append(
            f"samples of {bad} components are not finite: the data, or a derivative of theirs, are not finite on some paths"
        )
    elif tally.count < FEWEST:
        said.append(f"only {tally.count} independent sample pairs: ask for {FEWEST} or more")
    elif heavy:
        said.append(
            f"heavy tails in {heavy} of {tally.mean.size} components: a few of {tally.count} sample pairs carry their variance; ask for more"
        )
    return tuple(said)
