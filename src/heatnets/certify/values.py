"""Certificates for values: confidence intervals from samples of the error equation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from heatnets._core.precision import EPS
from heatnets._core.statistics import MIN_PAIRS
from heatnets.certify import quasi_monte_carlo
from heatnets.certify.certificate import Certificate, CertifyOptions, make_certificate
from heatnets.certify.error_equation import (
    MONTE_CARLO,
    MartingaleForm,
    martingale_form,
    residual_form,
)
from heatnets.certify.evaluator import NetworkEvaluator
from heatnets.certify.path_sampling import CHUNK, step_bias_bound
from heatnets.certify.sequential import NumberSamples, sample_until_good

# Standard errors between the two forms beyond which their difference is not chance.
_DISAGREE = 5.0
# Steps of the martingale form: they divided the variance by 15 to 20 in trials, eight steps by
# twice that.
STEPS = 4
_STEPPED = MartingaleForm(STEPS)
_WITH_NETS = MartingaleForm(0, less_initial=True)  # nets tell the mean of u0
_NAMES = {
    MONTE_CARLO: "no steps (Monte Carlo)",
    _STEPPED: f"{STEPS} steps",
    _WITH_NETS: f"no steps, u0 by {quasi_monte_carlo.NETS} scrambled nets",
}


def certify(
    u: NetworkEvaluator, t: np.ndarray, x: np.ndarray, options: CertifyOptions
) -> Certificate:
    """Confidence intervals for the true values at points t (n,), t >= 0, and x (n, dim).

    Where ũ is smooth the samples are of the residual form, checked by the martingale form;
    elsewhere they are quasi-random points of u0 if u is a mean of u0, else of that variant of the
    martingale form which serves a point best. Values are in the user's units, `options.unit` times
    those of the canonical problem.
    """
    smooth, problem = options.smooth, u.error_problem
    if not smooth and quasi_monte_carlo.serves(problem):
        return _certify_by_nets(u, t, x, options)
    options = options._replace(unit=np.broadcast_to(options.unit, t.shape))
    value, rounding = u.value(t, x)[0], rounding_bounds(u, t, x, options)
    quadrature = u.quadrature_error(t, options.quadrature)
    rare = options.rare / np.abs(options.unit)
    at_start = np.where(t == 0, u.initial_defect * u.initial(t, x), 0.0)
    known = zip(rounding, quadrature, at_start, rare, strict=True)
    later = np.flatnonzero(t > 0)
    forms = [_STEPPED] * len(t)
    if not smooth:
        for i, form in zip(
            later, _choose_forms(u, t[later], x[later], options, later), strict=True
        ):
            forms[i] = form
    points = [
        quasi_monte_carlo.SamplesWithNets(
            noise + error, mean, least, noise, weighted=problem.has_path_weights
        )
        if not smooth and form == _WITH_NETS
        else NumberSamples(noise + error, mean, least, smooth=smooth, noise=noise)
        for form, (noise, error, mean, least) in zip(forms, known, strict=True)
    ]

    def draw(pending: list[int], pairs: int, batch: int) -> None:
        """As many points at a time as memory allows, all by the same form.

        One where paths take steps: that is no slower, and progress is reported.
        """
        together = 1
        if problem.coefficients is None:
            together = max(1, CHUNK // (4 * pairs * problem.dim))
        done = 0
        for form in sorted({forms[i] for i in pending}):
            group = [i for i in pending if forms[i] == form]
            for first in range(0, len(group), together):
                part = group[first : first + together]
                options.tell(done, len(pending))
                done += len(part)
                rngs = [options.rng(f"certificate {batch}", i) for i in part]
                if smooth:
                    drawn = residual_form(u, t[part], x[part], pairs, rngs)
                else:
                    drawn = martingale_form(u, t[part], x[part], pairs, rngs, form)
                rows = (drawn.corrections, drawn.steps, drawn.rounding, drawn.spread)
                for i, *row in zip(part, *rows, strict=True):
                    point = points[i]
                    if isinstance(point, quasi_monte_carlo.SamplesWithNets):
                        number, rng = point.points_for(pairs), options.rng("certificate nets", i)
                        quasi_monte_carlo.add_points(u, t[i], x[i], point.nets, number, rng)
                    point.add(*row)
        options.tell(len(pending), len(pending))

    sampled = {int(i): points[i] for i in later}
    sample_until_good(sampled, draw, options)
    if smooth:
        _check_forms(u, t, x, {i: p for i, p in sampled.items() if not p.reasons}, options)
    chosen_forms = {forms[i] for i in later} or {_STEPPED}
    used = " or ".join(_NAMES[form] for form in sorted(chosen_forms, reverse=True))
    method = "residual" if smooth else f"martingale, {used}"
    method += "" if problem.coefficients is None else ", paths in steps"
    mean = np.array([point.mean for point in points])
    return make_certificate(problem, points, value + mean, mean, method, options)


def _certify_by_nets(
    u: NetworkEvaluator, t: np.ndarray, x: np.ndarray, options: CertifyOptions
) -> Certificate:
    """The same by quasi-Monte Carlo: each of the nets gets `options.samples` points."""
    options = options._replace(unit=np.broadcast_to(options.unit, t.shape))
    value, rounding = u.value(t, x)[0], rounding_bounds(u, t, x, options)
    least = options.rare / np.abs(options.unit)
    at_start = np.where(t == 0, u.initial_defect * u.initial(t, x), 0.0)
    known = zip(rounding, least, value, at_start, strict=True)
    points = [
        quasi_monte_carlo.NetSamples(noise, start, rare, np.array([network]))
        for noise, rare, network, start in known
    ]

    def draw(pending: list[int], pairs: int, batch: int) -> None:
        for done, i in enumerate(pending):
            options.tell(done, len(pending))
            rng = options.rng("certificate nets", i)
            quasi_monte_carlo.add_points(u, t[i], x[i], points[i], 2 * pairs, rng)
        options.tell(len(pending), len(pending))

    sample_until_good({int(i): points[i] for i in np.flatnonzero(t > 0)}, draw, options)
    for point in points:
        point.mean, point.half = np.sum(point.mean), np.sum(point.half)  # numbers
    mean = np.array([point.mean for point in points])
    method = quasi_monte_carlo.METHOD
    return make_certificate(u.error_problem, points, value + mean, mean, method, options)


def rounding_bounds(
    u: NetworkEvaluator, t: np.ndarray, x: np.ndarray, options: CertifyOptions
) -> np.ndarray:
    """Bounds for the rounding errors of ũ(t, x) at n points, (n,).

    4 eps Σ |w_j φ_j|, plus the change of ũ when the last bits of x change (sums inside the user's
    functions cancel, too). The factors 4 are for sums of many terms, with several roundings each.
    """
    points = perturbed_points(x, options, "last bits", 8, 1e-3)
    values = [u.value(t, y)[0] for y in points]
    return 4 * EPS * u.value(t, x)[1] + 4 * np.std(values, axis=0, ddof=1)


def perturbed_points(
    x: np.ndarray, options: CertifyOptions, stream: str, number: int, least: float = 0.0
) -> Iterator[np.ndarray]:
    """Copies of the points x (n, dim), `number` of them, with random changes of the last bits."""
    scale = np.abs(x) if options.rounding_scale is None else options.rounding_scale
    rngs = [options.rng(stream, i) for i in range(len(x))]
    for _ in range(number):
        signs = np.stack([rng.choice([-1.0, 1.0], x.shape[1]) for rng in rngs])
        yield x + EPS * np.maximum(scale, least) * signs


def _check_forms(
    u: NetworkEvaluator,
    t: np.ndarray,
    x: np.ndarray,
    points: dict[int, NumberSamples],
    options: CertifyOptions,
) -> None:
    """Check the residual form by the martingale form, which needs no smoothness.

    Where their means contradict each other, the point gets a message.
    """
    if not points:
        return
    index, pairs = list(points), max(MIN_PAIRS, options.samples // 64)
    rngs = [options.rng("certificate check", i) for i in index]
    check = martingale_form(u, t[index], x[index], pairs, rngs, _STEPPED)
    rows = (check.corrections, check.rounding, check.steps)
    for point, checks, rounding, change in zip(points.values(), *rows, strict=True):
        allowed = point.step_bias + float(step_bias_bound(change.mean(axis=0)))
        apart = disagreement(point.samples, checks, allowed)
        only_rounding = abs(float(np.mean(checks))) < 100 * float(rounding)
        if apart > _DISAGREE and not only_rounding:
            point.reasons = (
                f"two forms of the error equation disagree by {apart:.1f} standard errors: "
                "the data may have kinks or jumps that were not found",
            )


def disagreement(first: np.ndarray, second: np.ndarray, allowed: float = 0.0) -> float:
    """Distance of the means of independent samples (n,) and (m,), in standard errors.

    `allowed` is a difference that is allowed for the steps of paths.
    """
    gap = np.maximum(np.abs(first.mean() - second.mean()) - allowed, 0.0)
    noise = np.sqrt(sum(s.var(ddof=1) / len(s) for s in (first, second)))
    return float(gap / (noise if noise > 0 else np.inf))


def _choose_forms(
    u: NetworkEvaluator, t: np.ndarray, x: np.ndarray, options: CertifyOptions, index: np.ndarray
) -> list[MartingaleForm]:
    """The variant of the martingale form at each of the points with these indices.

    Whichever needs the fewest evaluations of the data for the same variance, by a pilot at each
    point. Without a requested half-width plain Monte Carlo is not a candidate.
    """
    sources = u.error_problem.has_source
    evaluations = {
        _STEPPED: 1 + STEPS * sources + (STEPS - 1) * u.gradient_cost,
        MONTE_CARLO: 1 + sources,
        _WITH_NETS: 1 + sources + quasi_monte_carlo.NETS,
    }
    if options.halfwidth is None:
        del evaluations[MONTE_CARLO]
    if not quasi_monte_carlo.serves_initial(u.canonical):
        del evaluations[_WITH_NETS]
    candidates = list(evaluations)
    if len(candidates) == 1 or not len(t):
        return candidates[:1] * len(t)
    costs = []
    for form in candidates:
        rngs = [options.rng(f"certificate pilot {form.steps}", i) for i in index]
        drawn = martingale_form(u, t, x, MIN_PAIRS, rngs, form)
        costs.append(evaluations[form] * np.var(drawn.corrections, axis=1))
    finite = np.where(np.isfinite(costs), costs, np.inf)
    return [candidates[k] for k in np.argmin(finite, axis=0)]
