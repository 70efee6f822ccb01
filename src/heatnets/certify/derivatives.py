"""Certificates for derivatives of the true solution: gradients, second derivatives along curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from heatnets._core.precision import EPS
from heatnets._core.reasons import Reason, ReasonKind
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
    EXTRA_ROUNDS,
    MOST,
    STEPS,
    Certificate,
    CertifyOptions,
    jump_reasons,
    perturbed_points,
    step_allowance,
)
from heatnets.pde.canonical import CanonicalProblem


def certify_gradient(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    options: CertifyOptions,
) -> Certificate:
    """Intervals for each component of the true gradient at points t (n,), t > 0, and x (n, dim).

    Samples are gradients of the residual form where ũ is smooth; elsewhere samples of the
    martingale form, with a weight in place of the derivative.
    """
    scale = np.abs(x) if options.rounding_scale is None else options.rounding_scale
    points = perturbed_points(x, scale, options, "last bits of the gradient", 3)
    perturbed = [u.gradient(t, y) for y in points]
    slope = u.gradient(t, x)
    rounding = EPS * np.abs(slope) + 4 * np.std([slope, *perturbed], axis=0, ddof=1)

    def draw(i: int, pairs: int, rng: Any) -> Iterator[SampleBatch]:
        if options.smooth:
            return residual_gradients(problem, u, float(t[i]), x[i], pairs, rng)
        return martingale_gradients(problem, u, float(t[i]), x[i], pairs, rng, STEPS)

    def unseen_size(i: int) -> Any:
        if options.smooth:
            return 0.0
        pilot = options.rng("gradient certificate pilot", i)
        spread = martingale_form(problem, u, t[[i]], x[[i]], FEWEST, [pilot], 0).spread[0]
        return 0.5 * float(spread) * problem.diffusion.stiffness / np.sqrt(2 * t[i])

    weighted = f"martingale, weighted, {STEPS} steps"
    method = "residual, differentiated" if options.smooth else weighted
    options = options._replace(unit=np.broadcast_to(options.unit, x.shape))
    return _certify_vectors(
        problem, draw, unseen_size, slope, slope, rounding, options, "gradient", method
    )


def certify_curvature(
    problem: CanonicalProblem,
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    options: CertifyOptions,
    *,
    curves: tuple[np.ndarray, np.ndarray],
) -> Certificate:
    """Intervals for second derivatives of u along the curves x + εw + ½ε²c, at points with t > 0.

    Shapes: t (n,), x (n, dim), `curves` = (w, c) with (n, dim) each. Samples are derivatives of the
    residual form where ũ is smooth; elsewhere samples of u with weights in place of derivatives.
    """
    value = u.value_bend(t, x, *curves)[:, None]
    scale = np.abs(x) if options.rounding_scale is None else options.rounding_scale
    points = perturbed_points(x, scale, options, "last bits of the curvature", 3)
    perturbed = [u.value_bend(t, y, *curves)[:, None] for y in points]
    rounding = EPS * np.abs(value) + 4 * np.std([value, *perturbed], axis=0, ddof=1)

    def draw(i: int, pairs: int, rng: Any) -> Iterator[SampleBatch]:
        sample = residual_curvatures if options.smooth else weighted_curvatures
        return sample(problem, u, float(t[i]), x[i], (curves[0][i], curves[1][i]), pairs, rng)

    def unseen_size(i: int) -> Any:
        if options.smooth:
            return 0.0
        pilot = options.rng("curvature certificate pilot", i)
        spread = martingale_form(problem, u, t[[i]], x[[i]], FEWEST, [pilot], 0).spread[0]
        w = curves[0][i]
        return 0.5 * float(spread) * float(w @ problem.diffusion.solve(w)) / (2 * t[i])

    method = "residual, differentiated twice" if options.smooth else "Monte Carlo, weighted"
    # With weights the samples are of u itself, not of the error of the network.
    base, rounding = (value, rounding) if options.smooth else (0.0 * value, EPS * np.abs(value))
    options = options._replace(unit=np.broadcast_to(options.unit, t.shape)[:, None])
    cert = _certify_vectors(
        problem, draw, unseen_size, base, value, rounding, options, "curvature", method
    )
    names = ("value", "error", "low", "high", "halfwidth")
    return replace(cert, **{name: getattr(cert, name)[:, 0] for name in names})


def _certify_vectors(
    problem: CanonicalProblem,
    draw: Callable[[int, int, Any], Iterator[SampleBatch]],
    unseen_size: Callable[[int], Any],
    base: np.ndarray,
    network: np.ndarray,
    rounding: np.ndarray,
    options: CertifyOptions,
    quantity: str,
    method: str,
) -> Certificate:
    """Intervals for `base` + E[vector samples], point by point; more samples as in `certify`.

    Args:
        problem: the canonical problem.
        draw: (point, pairs, generator) -> batches of samples (m, k).
        unseen_size: point -> lower bound for the size of samples that may have been missed.
        base: what the mean of the samples is added to, (n, k).
        network: values of the network, (n, k).
        rounding: bounds for rounding errors, (n, k).
        options: of the certificate, with `unit` of shape (n, k).
        quantity: its name in the names of the random streams.
        method: its name in the certificate.
    """
    samples, confidence, halfwidth = options.samples, options.confidence, options.halfwidth
    n, unit = len(base), np.asarray(options.unit)
    mean, half = np.zeros_like(base), np.zeros_like(base)
    spent, good = np.zeros(n, int), np.zeros(n, bool)
    reasons: list[tuple[str, ...]] = [()] * n
    for i in range(n):
        options.tell(i, n)
        moments, pairs, batch, least = RunningMoments(), max(samples // 2, 2), 0, unseen_size(i)
        changes: list[np.ndarray] = []  # by halving the steps of paths
        while True:
            for piece in draw(i, pairs, options.rng(f"{quantity} certificate {batch}", i)):
                moments.add(piece.samples)
                if piece.steps is not None:
                    changes.append(piece.steps)
            student = t_half_width(
                moments.variance,
                moments.kurtosis,
                moments.largest,
                moments.count,
                confidence,
                least=least,
            )
            mean[i], spent[i] = moments.mean, 2 * moments.count
            half[i], reasons[i], remaining = student + rounding[i], _sample_reasons(moments), 0.0
            if problem.coefficients is not None:
                allowed, remaining, why = step_allowance(np.concatenate(changes), half[i])
                half[i], reasons[i] = half[i] + allowed, (*reasons[i], *why)
            if not np.all(np.isfinite(half[i])):
                break
            if halfwidth is None:  # four times the samples, where tails look heavy
                if not reasons[i] or batch == EXTRA_ROUNDS or moments.count < FEWEST:
                    break
                pairs, batch = 3 * moments.count, batch + 1
                continue
            hopeless = np.max(unit[i] * (rounding[i] + remaining)) >= halfwidth
            if np.max(unit[i] * half[i]) <= halfwidth or spent[i] >= MOST * samples or hopeless:
                break
            pairs, batch = pairs if batch == 0 else 2 * pairs, batch + 1
        good[i] = not reasons[i]
        if halfwidth is not None and np.max(unit[i] * half[i]) > halfwidth:
            missed = f"the half-width {halfwidth:.2g} was not reached after {spent[i]} samples"
            reasons[i] = (*reasons[i], missed)
    options.tell(n, n)
    value = base + mean
    jumps = jump_reasons(problem)
    good, reasons = good & (not jumps), [(*r, *jumps) for r in reasons]
    cert = Certificate(
        value=value,
        error=value - network,
        low=value - half,
        high=value + half,
        halfwidth=half,
        certified=good,
        reasons=tuple(reasons),
        method=method,
        samples=spent,
        confidence=confidence,
    )
    return cert.rescale(unit)


def _sample_reasons(moments: RunningMoments) -> tuple[str, ...]:
    """Reasons not to trust an interval from such samples: not finite, too few, or heavy tails."""
    bad = int(np.sum(~np.isfinite(moments.mean)))
    heavy = int(np.sum(moments.kurtosis > HEAVY * moments.count))
    if bad:
        text = (
            f"samples of {bad} components are not finite: the data, or a derivative of theirs, "
            "are not finite on some paths"
        )
        return (Reason(ReasonKind.NOT_FINITE, text),)
    if moments.count < FEWEST:
        text = f"only {moments.count} independent sample pairs: ask for {FEWEST} or more"
        return (Reason(ReasonKind.TOO_FEW_SAMPLES, text),)
    if heavy:
        text = (
            f"heavy tails in {heavy} of {moments.mean.size} components: a few of {moments.count} "
            "sample pairs carry their variance; ask for more"
        )
        return (Reason(ReasonKind.HEAVY_TAILS, text),)
    return ()
