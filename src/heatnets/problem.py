"""The mathematics of a problem: u_t = D Δu + F(t, x) on R^d, u(0, x) = u0(x), 0 <= t <= T. Nothing numerical."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from heatnets import streams
from heatnets.errors import InputError, Notes, count, describe, positive
from heatnets.function import Function, checked, probe
from heatnets.precision import in_double
from heatnets.regions import Box, Region

_PROBE_COORDINATES = 2**22  # 256 probe points up to d = 16,384, fewer beyond, 32 at least


class Problem:
    """A parabolic problem `u_t = D Δu + F(t, x)`, `u(0, x) = u0(x)` on all of R^d, for 0 <= t <= T.

    Args:
        dim: number of space coordinates d >= 1.
        horizon: the final time T > 0.
        initial: u0, a function of x (shape (dim,), also for dim = 1) that returns a scalar; or `hn.Function`.
        source: F, a function of (t, x) that returns a scalar; None for F = 0.
        diffusion: D > 0 in `u_t = D Δu`, with no hidden one half.
        region: where the answer is wanted: `hn.Box`, `hn.Point` or `hn.Normal`.
        exact: the solution u(t, x) where it is known; only ever used to measure.

    Everything is checked here: functions are traced once and evaluated at up to 512 points of the region and of
    the paths that leave it. Raises `InputError` with what was wanted, what came and what to do.

    >>> import jax.numpy as jnp, heatnets as hn
    >>> hn.Problem(dim=3, horizon=0.5, initial=lambda x: jnp.sum(jnp.sin(x)))
    Problem(dim=3, horizon=0.5, diffusion=1.0, region=Box(-1, 1), source=None)
    """

    dim: int
    horizon: float
    initial: Function
    source: Function | None
    diffusion: float
    region: Region
    exact: Function | None
    starts_at_zero: bool  # u0 = 0 at every probe point
    warnings: tuple[str, ...]

    @in_double
    def __init__(
        self,
        dim: int,
        horizon: float,
        initial: Callable[..., Any],
        source: Callable[..., Any] | None = None,
        diffusion: float = 1.0,
        region: Region | None = None,
        exact: Callable[..., Any] | None = None,
    ) -> None:
        notes = Notes()
        self.dim = count("dim", dim, 1, "It is the number of space coordinates.")
        self.horizon = positive("horizon", horizon, "It is the final time T.")
        self.diffusion = positive("diffusion", diffusion, "It is D in u_t = D Δu; vectors and matrices are not supported yet.")
        self.region = Box(-1.0, 1.0) if region is None else region
        if not isinstance(self.region, Region):
            raise InputError(f"`region` must be hn.Box, hn.Point or hn.Normal; got {describe(region)}. Write hn.Box(-1.0, 1.0).")
        self.region.check(self.dim, "region")
        self.initial = checked("initial", initial, ("x",), self.dim, notes)
        self.source = None if source is None else checked("source", source, ("t", "x"), self.dim, notes)
        self.exact = None if exact is None else checked("exact", exact, ("t", "x"), self.dim, notes)
        self._probe(notes)
        self.warnings = tuple(notes.texts)
        self._done = True

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_done", False):
            raise AttributeError(f"a Problem does not change: make a new one with another `{name}`.")
        super().__setattr__(name, value)

    def _probe(self, notes: Notes) -> None:
        rng = streams.generator(0, "probe")
        n = max(32, min(256, _PROBE_COORDINATES // self.dim))
        x = self.region.sample(rng, n, self.dim)
        t = self.horizon * rng.random(n)
        spread = np.sqrt(2 * self.diffusion * self.horizon) * rng.standard_normal(x.shape)
        paths = np.concatenate([x, x + spread])
        times = np.concatenate([t, t])
        initial = probe("initial", self.initial, (paths,), "in the region and along the paths that leave it")
        if not np.any(initial):  # what is zero everywhere gets no features: look at many more places before saying so
            many = self.region.sample(rng, max(64, min(8192, 8 * _PROBE_COORDINATES // self.dim)), self.dim)
            initial = np.append(initial, probe("initial", self.initial, (many,), "in the region"))
        self.starts_at_zero = not np.any(initial)
        if self.source is not None:
            probe("source", self.source, (times, paths), "in the region and along the paths that leave it")
        if self.exact is not None:
            start = probe("exact", self.exact, (0.0 * t, x), "in the region")
            gap = np.max(np.abs(start - initial[:n]))
            if gap > 1e-6 * np.max(np.abs(start)):
                notes.warn(
                    f"`exact` at t = 0 differs from `initial` by up to {gap:.2g}: errors measured against it will mislead."
                )

    def points(self, t: Any, x: Any, *, positive_time: bool = False) -> tuple[np.ndarray, np.ndarray, bool]:
        """Times and points as arrays of shape (n,) and (n, dim), and whether a single point was asked for."""
        times, places = _floats("t", t), _floats("x", x)
        if places.ndim not in (1, 2) or places.shape[-1] != self.dim:
            hint = (
                "For dim = 1 write x=[0.3], or x[:, None] for many."
                if self.dim == 1
                else "Points are rows; time comes first: (t, x)."
            )
            raise InputError(f"`x` must have shape ({self.dim},) or (n, {self.dim}); got shape {places.shape}. {hint}")
        if times.ndim > 1 or (times.ndim == 1 and places.ndim == 2 and len(times) != len(places)):
            raise InputError(
                f"`t` must be one number or one per point; got shape {times.shape} for x of shape {places.shape}. "
                "Times and points are taken in pairs; build a grid with np.repeat and np.tile."
            )
        if places.size == 0 or times.size == 0:
            raise InputError(f"`x` holds no points: shape {places.shape}, with t of shape {times.shape}.")
        outside = (times <= 0 if positive_time else times < 0) | (
            times > self.horizon * (1 + 1e-6)
        )  # float32 times round upwards
        if np.any(outside):
            interval = f"{'(' if positive_time else '['}0, {self.horizon:g}]"
            worst = np.atleast_1d(times)[np.atleast_1d(outside)][0]
            why = "There the derivative in time is singular." if worst == 0 else "The problem was posed up to `horizon`."
            raise InputError(f"`t` must lie in {interval}; got {worst:g}. {why}")
        times = np.minimum(times, self.horizon)
        single = times.ndim == 0 and places.ndim == 1
        n = max(times.size, len(np.atleast_2d(places)))
        return np.broadcast_to(times, (n,)), np.broadcast_to(places, (n, self.dim)), single

    def __repr__(self) -> str:
        source = "given" if self.source is not None else None
        return (
            f"Problem(dim={self.dim}, horizon={self.horizon:g}, diffusion={self.diffusion}, "
            f"region={self.region}, source={source})"
        )


def _floats(name: str, value: Any) -> np.ndarray:
    try:
        if isinstance(value, str):
            raise TypeError("text")
        array = np.asarray(value, dtype=np.float64)
    except Exception as error:
        raise InputError(
            f"`{name}` must be numbers; got {describe(value)}. Inside jax.jit or vmap call heatnets from outside, with NumPy arrays."
        ) from error
    if not np.all(np.isfinite(array)):
        raise InputError(f"`{name}` must be finite; {int(np.sum(~np.isfinite(array)))} of {array.size} entries are not.")
    return array
