"""Certificates for derivatives of the true solution: gradients, second derivatives along curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from heatnets._core.precision import EPS
from heatnets._core.statistics import MIN_PAIRS
from heatnets.certify import quasi_monte_carlo
from heatnets.certify.certificate import SCALED, Certificate, CertifyOptions, make_certificate
from heatnets.certify.derivative_samples import (
    curvature_weights,
    martingale_gradients,
    residual_curvatures,
    residual_gradients,
    weighted_curvatures,
)
from heatnets.certify.error_equation import MONTE_CARLO, martingale_form
from heatnets.certify.evaluator import NetworkEvaluator
from heatnets.certify.path_sampling import SampleBatch
from heatnets.certify.sequential import VectorSamples, sample_until_good
from heatnets.certify.values import STEPS, perturbed_points


class _Derivative(NamedTuple):
    """A derivative (k,) of u that is certified.

    Attributes:
        name: its name in the random streams.
        method: the name of the method in the certificate.
        network: maps points x (n, dim) to the derivative of the network, (n, k).
        draw: (index of the point, pairs, generator) -> batches of samples (m, k).
        scale: (index of the point, size of values) -> size of samples with weights, (k,).
        weigh: index of the point -> weights for values of u0 that give samples of u itself.
        of_error: whether the samples are of the error, not of u itself.
    """

    name: str
    method: str
    network: Callable[[np.ndarray], np.ndarray]
    draw: Callable[[int, int, Any], Iterator[SampleBatch]]
    scale: Callable[[int, float], Any]
    weigh: Callable[[int], quasi_monte_carlo.Weigh]
    of_error: bool = True


def certify_gradient(
    u: NetworkEvaluator, t: np.ndarray, x: np.ndarray, options: CertifyOptions
) -> Certificate:
    """Intervals for each component of the true gradient at points t (n,), t > 0, and x (n, dim).

    Samples are gradients of the residual form where ũ is smooth; elsewhere samples of the
    martingale form, with a weight in place of the derivative.
    """
    smooth, diffusion = options.smooth, u.error_problem.diffusion
    form = residual_gradients if smooth else partial(martingale_gradients, steps=STEPS)
    weighted = f"martingale, weighted, {STEPS} steps"
    gradient = _Derivative(
        name="gradient",
        method="residual, differentiated" if smooth else weighted,
        network=lambda y: u.gradient(t, y),
        draw=lambda i, pairs, rng: form(u, float(t[i]), x[i], pairs, rng),
        scale=lambda i, size: size * diffusion.inverse_std / np.sqrt(2 * t[i]),
        weigh=lambda i: lambda f, p: (f / (2 * t[i]))[:, None] * diffusion.solve(p),
    )
    options = options._replace(unit=np.broadcast_to(options.unit, x.shape))
    return _certify(u, t, x, options, gradient)


def certify_curvature(
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
    smooth, (w, c) = options.smooth, curves
    solve = u.error_problem.diffusion.solve
    form = residual_curvatures if smooth else weighted_curvatures
    curvature = _Derivative(
        name="curvature",
        method="residual, differentiated twice" if smooth else "Monte Carlo, weighted",
        network=lambda y: u.second_derivative(t, y, w, c)[:, None],
        draw=lambda i, pairs, rng: form(u, float(t[i]), x[i], pairs, rng, (w[i], c[i])),
        scale=lambda i, size: size * float(w[i] @ solve(w[i])) / (2 * t[i]),
        weigh=lambda i: partial(_weigh_curvature, curvature_weights(u, (w[i], c[i])), t[i]),
        of_error=smooth,
    )
    options = options._replace(unit=np.broadcast_to(options.unit, t.shape)[:, None])
    return _certify(u, t, x, options, curvature).map(lambda a: a[:, 0], SCALED)


def _weigh_curvature(
    weights: Callable[..., np.ndarray], t: float, values: np.ndarray, p: np.ndarray
) -> np.ndarray:
    """Samples of a second derivative, (n, 1), from values at x + p without those at x - p."""
    return weights(2 * values, np.zeros_like(values), p, t)[:, None]


def _certify(
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    options: CertifyOptions,
    derivative: _Derivative,
) -> Certificate:
    """Intervals for a derivative, one point after the other; `options.unit` has shape (n, k)."""
    name, n = derivative.name, len(t)
    network = derivative.network(x)
    if not options.smooth and quasi_monte_carlo.serves(u.error_problem):
        return _certify_by_nets(u, t, x, options, derivative, network)
    base: Any = 0.0
    rounding = noise = EPS * np.abs(network)
    if derivative.of_error:
        perturbed = perturbed_points(x, options, f"last bits of the {name}", 3)
        values = [network, *map(derivative.network, perturbed)]
        base, noise = network, noise + 4 * np.std(values, axis=0, ddof=1)
        rounding = noise.copy()
        for i, size in enumerate(u.quadrature_error(t, options.quadrature)):
            rounding[i] += derivative.scale(i, size)
    points = []
    for i in range(n):
        options.tell(i, n)
        least = 0.0
        if not options.smooth:
            pilot = [options.rng(f"{name} certificate pilot", i)]
            (spread,) = martingale_form(u, t[[i]], x[[i]], MIN_PAIRS, pilot, MONTE_CARLO).spread
            least = derivative.scale(i, 0.5 * float(spread))
        point = VectorSamples(rounding[i], least, noise[i])

        def draw(pending: list[int], pairs: int, batch: int, point: VectorSamples = point) -> None:
            for i in pending:
                rng = options.rng(f"{name} certificate {batch}", i)
                for piece in derivative.draw(i, pairs, rng):
                    point.add(piece)

        sample_until_good({i: point}, draw, options)
        point.changes.clear()
        points.append(point)
    options.tell(n, n)
    value = base + np.stack([point.mean for point in points])
    return make_certificate(
        u.error_problem, points, value, value - network, derivative.method, options
    )


def _certify_by_nets(
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    options: CertifyOptions,
    derivative: _Derivative,
    network: np.ndarray,
) -> Certificate:
    """The same by quasi-Monte Carlo: each of the nets gets `options.samples` points."""
    points = []
    for i in range(len(t)):
        options.tell(i, len(t))
        scale, zero = derivative.scale(i, 1.0), np.zeros(network.shape[1])
        point = quasi_monte_carlo.NetSamples(EPS * np.abs(network[i]), zero, zero, zero, scale)

        def draw(
            pending: list[int], pairs: int, batch: int, point: quasi_monte_carlo.NetSamples = point
        ) -> None:
            for i in pending:
                rng = options.rng(f"{derivative.name} certificate nets", i)
                weigh = derivative.weigh(i)
                quasi_monte_carlo.add_points(u, t[i], x[i], point, 2 * pairs, rng, weigh=weigh)

        sample_until_good({i: point}, draw, options)
        points.append(point)
    options.tell(len(t), len(t))
    value = np.stack([point.mean for point in points])
    method = f"{quasi_monte_carlo.METHOD}, weighted"
    return make_certificate(u.error_problem, points, value, value - network, method, options)
