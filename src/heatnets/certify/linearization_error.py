"""Linearization error of a certificate for a semilinear problem: a bound by samples.

With e = u - ũ, e_t = L e + f_u e + f_p·∇e + R + Q and |Q| <= ½ Λ(e² + |√(2t) Sᵀ∇e|²). A certificate
leaves out Q. The error of that at (t, x) is at most

    ½ E∫ w Λ e² + ½ E∫ w Λ |√(2t) Sᵀ∇e|²  ds   along paths X of the linearized problem, weights w.
"""

# Λ bounds the change of the derivatives of f (in these units) over the size of an error. A sample c
# of the error equation from (s, X_s) has the mean e(s, X_s), so that e² <= E[c²]; and by Itô's
# isometry E∫ w² |√2 Sᵀ∇e|² ds is at most the second moment of samples from (t, x). Both bounds are
# crude, and enough: errors are small, and their squares smaller.

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from heatnets._core.statistics import rms
from heatnets.certify.certificate import CertifyOptions, Reasons
from heatnets.certify.error_equation import MartingaleForm, martingale_form, single_samples
from heatnets.certify.evaluator import NetworkEvaluator
from heatnets.fit.collocation import time_fractions
from heatnets.pde.diffusion import Dense

_SAMPLES = 128  # paths from each point
_SAFETY = 2.0  # factor for the effect of Q on the e that it is made of, and for few samples
_VALID = 0.25  # of the error's size: with a larger bound the linearization does not describe it
_FORM = MartingaleForm(steps=4)  # where data are not smooth


class LinearizationError(NamedTuple):
    """Bounds to be added to half-widths, (n,), and the reasons why points are not certified."""

    bound: np.ndarray
    reasons: Reasons


def linearization_error(
    u: NetworkEvaluator, t: np.ndarray, x: np.ndarray, options: CertifyOptions, errors: np.ndarray
) -> LinearizationError:
    """Bound the linearization error at n points t (n,), t >= 0, and x (n, dim).

    `errors` (n,) are the estimated errors of the network at the points: no less is squared. Zero
    where the source does not depend on u.
    """
    bounds: list[tuple[float, tuple[str, ...]]] = [
        _bound_at_point(u, (float(time), point), options, i, abs(float(errors[i])))
        if time > 0 and u.canonical.source.uses_u
        else (0.0, ())
        for i, (time, point) in enumerate(zip(t, x, strict=True))
    ]
    return LinearizationError(np.array([bound for bound, _ in bounds]), [why for _, why in bounds])


def _bound_at_point(
    u: NetworkEvaluator,
    point: tuple[float, np.ndarray],
    options: CertifyOptions,
    i: int,
    error: float,
) -> tuple[float, tuple[str, ...]]:
    """The bound at point i, t > 0 and x (dim,), and the reasons why it is not certified."""
    problem, slopes, (t, x) = u.error_problem, u.canonical.source.uses_gradient, point
    unbounded = "the square of the slope's error is not bounded where "
    if slopes and not options.smooth:
        return 0.0, (f"{unbounded}data have kinks or jumps",)
    if slopes and isinstance(problem.diffusion, Dense) and problem.diffusion.inverse is None:
        return 0.0, (f"{unbounded}`diffusion` is a matrix that varies",)
    rng = options.rng("remainder", i)
    n, simulator = _SAMPLES, problem.paths
    start, x = np.full(n, t), np.broadcast_to(x, (n, problem.dim))

    def sample_errors(s: np.ndarray, y: np.ndarray, stream: str) -> np.ndarray:
        """One sample of the error of the network at each point s (n,), y (n, dim)."""
        if options.smooth:
            return single_samples(u, s, y, rng)
        rngs = [options.rng(f"{stream} {k}", i) for k in range(n)]
        return martingale_form(u, s, y, 1, rngs, _FORM).corrections[:, 0]

    # Many times near both ends: where f_u is very negative only the shortest paths count.
    r, density = time_fractions(rng, n)
    s = t * r
    ends = simulator.simulate(start, x, start - s, simulator.sample_noise(rng, (n,), problem.dim))
    inside = sample_errors(s, ends.position, "remainder")
    from_point = sample_errors(start, x, "remainder whole") if slopes else inside
    size = max(rms(inside), rms(from_point), error)
    if not np.isfinite(size):
        return np.inf, ("samples of the error's square are not finite",)
    if size == 0:
        return 0.0, ()
    changes = u.source_variation(s, ends.position, np.full(n, size), start)  # Λ size²
    weight: Any = np.broadcast_to(np.asarray(ends.weight), (n,))
    value = weight * changes * np.maximum(np.abs(inside), error) ** 2 / size**2 / density
    bound = 0.5 * t * (value.mean() + 2 * value.std(ddof=1) / np.sqrt(n))
    if slopes:
        relative, least_weight = rms(from_point) / size, min(1.0, float(np.min(weight)))
        bound += 0.5 * t * float(np.max(changes)) * relative**2 / least_weight
    bound = float(_SAFETY * bound)
    if bound <= _VALID * size:
        return bound, ()
    return bound, (
        "the network is too far from the solution for its error to obey a linear equation: "
        f"what that leaves out may be {bound:.2g}; solve it better first "
        "(more `seconds`, a smaller region)",
    )
