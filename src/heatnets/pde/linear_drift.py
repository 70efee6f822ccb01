"""Finds drifts b(t, x) = θ(m - x) that were given as functions: Ornstein-Uhlenbeck processes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import Array

from heatnets._core.errors import InputError
from heatnets.pde.function import Function
from heatnets.pde.processes import OrnsteinUhlenbeck

_SHOWN = 3  # coordinates of a mean that are written out


def linear_drift_note(
    drift: Function, diffusion: Any, dim: int, horizon: float, has_source: bool
) -> str:
    """A note that names the process of a drift θ(m - x); empty if it is another drift.

    `diffusion` is the constant A, as the user gave it.
    """
    process = _as_process(drift, dim)
    if process is None:
        return ""
    try:
        process.check_horizon(horizon, has_source)
    except InputError:
        return ""
    mean = [f"{m:.6g}" for m in process.mean[:_SHOWN]]
    more = ["..."] if dim > _SHOWN else []
    m = f"[{', '.join([*mean, *more])}]" if np.ptp(process.mean) else mean[0]
    diffusion = 1.0 if diffusion is None else diffusion
    A = f"{diffusion:g}" if isinstance(diffusion, int | float) else "A"
    return (
        f"`drift` is θ(m - x) with θ = {process.rate:.6g} and m = {m}. Errors and times are "
        "smaller if paths need no time steps: in place of `drift` and `diffusion` give `process`, "
        f"hn.OrnsteinUhlenbeck(rate={process.rate:.6g}, mean={m}, diffusion={A})."
    )


def _as_process(drift: Function, dim: int) -> OrnsteinUhlenbeck | None:
    """The process, with diffusion 1, whose drift this is; None if it is of another form."""

    def drift_and_slope(t: Array, x: Array, direction: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda y: drift(t, y), (x,), (direction,))

    vector = jax.ShapeDtypeStruct((dim,), jnp.float64)
    jaxpr = jax.make_jaxpr(drift_and_slope)(jax.ShapeDtypeStruct((), jnp.float64), vector, vector)
    # Inputs that reach b, and inputs that reach its slope.
    (on_time, *_), (slope_on_time, slope_on_place, _) = (
        dce_jaxpr(jaxpr.jaxpr, list(outputs))[1] for outputs in ((True, False), (False, True))
    )
    if on_time or slope_on_time or slope_on_place:
        return None
    zero = np.zeros(dim)
    direction = np.random.default_rng(0).standard_normal(dim)
    at_zero, slope = (np.asarray(v) for v in jax.jit(drift_and_slope)(0.0, zero, direction))
    rate = -float(slope @ direction / (direction @ direction))
    if rate == 0 or not np.allclose(slope, -rate * direction, rtol=1e-12, atol=0.0):
        return None
    return OrnsteinUhlenbeck(rate, at_zero / rate + 0.0)  # no -0
