"""The result of a solve: a function of (t, x) with gradient, residual, certificates and stats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from heatnets import __version__
from heatnets._core import atomic_files, container
from heatnets._core.errors import InputError, NumericalError, WarningLog
from heatnets._core.execution import ExecutionContext, current_context, make_context
from heatnets._core.tiling import weighted_sum
from heatnets.certify.certified_network import CertifiedNetwork, EvaluationPoints, in_context
from heatnets.features.features import Equation, Feature
from heatnets.features.storage import to_arrays
from heatnets.fit import network
from heatnets.fit.collocation import random_points
from heatnets.fit.network_function import AtTime, NetworkFunction, network_function
from heatnets.pde import smoothness
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.fingerprint import fingerprint
from heatnets.pde.function_values import format_point
from heatnets.pde.problem import Problem
from heatnets.summary import UNSOLVED as UNSOLVED
from heatnets.summary import SolveSummary, is_solved
from heatnets.summary import why_unsolved as why_unsolved

_SUMMARY_POINTS = 256  # at which the range of values is taken


class Solution(CertifiedNetwork):
    """The network ũ(t, x) = Σ_j w_j φ_j(t, x) found by `hn.solve`, a function of t and x.

    With a time degree K the weights are polynomials, w_j = Σ_k w_jk (t/T)^k. Call the solution with
    one time () and one point (dim,), or with n times (n,) and n points (n, dim); one of the two may
    be single. Values are NumPy float64 of shape () or (n,). Points are evaluated in tiles, so that
    n may be large.

    Attributes:
        problem: the problem that was solved.
        stats: facts about the solve: sizes, errors, warnings, seconds and options.
        weights: for each block of features, those of the initial condition first, an array (M,), or
            (M, K + 1) with a time degree.
    """

    def __init__(
        self,
        canonical: CanonicalProblem,
        equation: Equation,
        blocks: list[Feature],
        weights: Float[Array, " columns"],
        ctx: ExecutionContext,
        stats: Mapping[str, Any],
    ) -> None:
        self._canonical, self.stats = canonical, MappingProxyType(stats)
        self._equation, self._ctx = equation, ctx
        sizes = [len(block.initial_coefficient) for block in blocks]
        degree = stats["time_degree"]
        parts = np.split(np.asarray(weights).reshape(degree + 1, -1).T, np.cumsum(sizes)[:-1])
        self.weights = tuple(part if degree else part[:, 0] for part in parts)
        units = canonical.horizon ** np.arange(degree + 1.0)  # weights belong to (t/T)^k
        # Zeros up to a common degree: programs that take the weights serve every degree.
        zeros = ((0, 0), (0, max(0, network.DEGREES[-1] - degree)))
        self._blocks = [
            (block, jax.device_put(np.pad(w / units, zeros), ctx.device))
            for block, w in zip(blocks, parts, strict=True)
            if len(w)
        ]

    @property
    def solved(self) -> bool | None:
        """Whether the estimated relative error is at most 0.1.

        False also where the error is not known, or where a warning says "not solved". None where it
        was not estimated, because the user chose the size of the network.
        """
        return is_solved(self.stats)

    def summary(self, **facts: Any) -> SolveSummary:
        """The outcome of the solve in words, as `print(u)` and notebooks show it.

        Args:
            facts: `seconds`, `certified`, `more` and `notes` of `SolveSummary`.

        Returns:
            The summary; `str` gives a sentence, `.verdict` its beginning, `.facts` a table.
        """
        values, is_point = None, self.problem.region.is_point
        if self.solved is not False:
            points = random_points(self.problem, 1 if is_point else _SUMMARY_POINTS)
            with suppress(NumericalError):  # values that are not finite
                sample = self(*points)
                values = float(sample.min()), float(sample.max())
        facts = {"notes": self.problem.notes, **facts}
        return SolveSummary(self.stats, is_point, values, **facts)

    def with_problem(self, problem: Problem) -> Solution:
        """A copy that takes times and points of `problem`, and returns its values.

        The network solves `problem.canonical`.
        """
        other = copy(self)
        other.problem = problem
        for name in ("_mark", "_reach", "function"):
            other.__dict__.pop(name, None)
        return other

    def with_stats(self, changes: dict[str, Any]) -> Solution:
        """A copy with other entries of `stats`."""
        other = copy(self)
        other.stats = MappingProxyType({**self.stats, **changes})
        return other

    def with_devices(self, devices: Any) -> Solution:
        """A copy whose values and certificates several processes compute together.

        All processes must make the same calls; each computes a part of the samples, and all get the
        same numbers. A solution itself is computed by the process that calls it.

        Args:
            devices: as `devices` of `hn.solve`.
        """
        other, ctx = copy(self), make_context(progress=self._ctx.progress, devices=devices)
        other._ctx = replace(ctx, memory=self._ctx.memory) if ctx.processes.count == 1 else ctx
        for name in ("network", "_quiet", "_smooth", "kinks"):  # made for other processes
            other.__dict__.pop(name, None)
        return other

    @in_context
    def __call__(self, t: Any, x: Any) -> np.ndarray:
        """The value ũ(t, x).

        Args:
            t: one time (), or n times (n,).
            x: one point (dim,), or n points (n, dim).

        Returns:
            Values of shape () or (n,).
        """
        points = self._locate(t, x)
        self._warn_if_far(points)
        floats = self._equation.value_workspace(self.problem.dim)
        value = points.value_scale * self._sum(network.values, points, floats)
        return value[0] if points.single else value

    @cached_property
    @in_context
    def function(self) -> NetworkFunction:
        """ũ as a pure function for JAX programs, called with one time () and one point (dim,).

        It is an equinox module, a pytree of arrays and of the functions of the problem, in the
        coordinates and times of the problem. `jax.jit`, `jax.vmap`, `jax.grad`, `jax.jvp` and
        `jax.export` work, in any order and to any order of derivatives. For n points write
        `jax.vmap(u.function, (None, 0))(t, x)`; they are evaluated in tiles.

        It computes in float64, also where JAX runs in float32 (JAX's default), and returns the
        dtype of its arguments. So in float32 the value is exact to the rounding of t, x and the
        result, 6e-8 each; in float64 it is that of `u(t, x)`.

        Nothing is checked but shapes. The result is NaN where `u(t, x)` would raise an error.
        Derivatives in t exist for t > 0 (t < T for a terminal-value problem).

        >>> import jax, heatnets as hn
        >>> u = hn.solve(hn.problems.get("oscillating", dim=5), features=(16, 16))
        >>> points = hn.random_points(u.problem, 1000)
        >>> values = jax.jit(jax.vmap(u.function))(*points)
        >>> bool(abs(values - u(*points)).max() < 1e-5)
        True
        """
        transform, horizon = self.problem.transform, self.problem.horizon
        ctx = current_context()  # no progress is reported
        return network_function(
            transform, horizon, self._equation, self._blocks, self.problem.dim, ctx
        )

    def at(self, t: float) -> Callable[[Any], Float[Array, ""]]:
        """x ↦ ũ(t, x) as a pure function for JAX programs; see `function`.

        Args:
            t: one time, ().

        Returns:
            A function of one point x (dim,), with values () of the dtype of x.

        >>> import jax, heatnets as hn
        >>> u = hn.solve(hn.problems.get("oscillating", dim=5), features=(16, 16))
        >>> jax.grad(u.at(0.3))(jax.numpy.zeros(5)).shape
        (5,)
        """
        if isinstance(t, jax.core.Tracer):
            return AtTime(self.function, t)
        times, _, is_single = self.problem.as_points(t, np.ones(self.problem.dim))
        if not is_single:
            raise InputError(
                f"`t` must be one number; got shape {np.shape(t)}. For many times use u.function."
            )
        return AtTime(self.function, float(times[0]))

    @in_context
    def gradient(self, t: Any, x: Any) -> np.ndarray:
        """The gradient ∇ũ(t, x) in x.

        Data that jump are refused: the derivatives of their features miss the jumps.

        Args:
            t: one time (), or n times (n,).
            x: one point (dim,), or n points (n, dim).

        Returns:
            Gradients of shape (dim,) or (n, dim).
        """
        points = self._locate(t, x)
        if self._jumps:
            raise InputError(
                f"`{self._jumps[0]}` jumps, and so do the features: the network's gradient leaves "
                "the jumps out (for steps it is zero). u.certify_gradient(t, x) gives the true "
                "gradient, with an interval."
            )
        self._warn_if_far(points)
        floats = 2 * self._equation.value_workspace(self.problem.dim)
        slope = points.slope * self._sum(network.gradients, points, floats)
        return slope[0] if points.single else slope

    @in_context
    def residual(self, t: Any, x: Any) -> np.ndarray:
        """The residual of the equation, R = F - (∂_t - div A ∇ - b·∇ - c) ũ.

        Args:
            t: one time (), or n times (n,), t > 0 (t < T for a terminal-value problem).
            x: one point (dim,), or n points (n, dim).

        Returns:
            Residuals of shape () or (n,).
        """
        points = self._locate(t, x, positive_time=True)
        data = self.network.with_laplacians
        left_side = self._sum(network.residuals, points, data.workspace(self.problem.dim), data)
        source = self.network.source_at_network(points.s, points.y)
        residual = points.value_scale * points.rate * (source - left_side)
        return residual[0] if points.single else residual

    def _warn_if_far(self, points: EvaluationPoints) -> None:
        """Warn once if a point lies further away than paths from the region lead."""
        low, high = self._reach
        if self._far_log.messages or np.all(
            (np.min(points.y, axis=0) >= low) & (np.max(points.y, axis=0) <= high)
        ):
            return
        far = int(np.argmax(np.any((points.y < low) | (points.y > high), axis=1)))
        self._far_log.warn(
            f"{format_point([points.t[far], points.x[far]])} lies far outside the region "
            f"{self.problem.region}: the network may be far off there, and its estimated error "
            "does not cover it. Solve with a `region` that holds the point, or use "
            "u.certify(t, x). (This is said once.)"
        )

    @cached_property
    def _far_log(self) -> WarningLog:
        """The warning about points that lie far away, once it was shown."""
        return WarningLog()

    @cached_property
    def _reach(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds, (dim,), of the canonical points that do not lie far outside the region.

        Twice the region, and six standard deviations of paths that leave it.
        """
        problem, canonical = self.problem, self._canonical
        n = int(np.clip(2**20 / problem.dim, 2, 256))
        x = problem.region.sample(np.random.default_rng(0), n, problem.dim)
        times = (0.0, problem.horizon)
        y = np.concatenate([problem.transform.to_canonical(np.full(n, t), x)[1] for t in times])
        low, high = np.min(y, axis=0), np.max(y, axis=0)
        spread = np.sqrt(2 * canonical.horizon) * np.max(canonical.diffusion.std)
        margin = 0.5 * (high - low) + 6 * spread
        return low - margin, high + margin

    @cached_property
    def _jumps(self) -> list[str]:
        """The data that jump."""
        return smoothness.find_jumps(self._canonical, self.stats["seed"])

    def save(self, path: str | Path) -> Path:
        """Write this solution to one file: weights, drawn directions, `stats`, and its problem.

        `hn.load(path)` gives it back, with values equal to the last bit on the same machine. Code
        is never stored. If the problem was neither a named one nor a TOML file, its functions must
        be given again, `hn.load(path, problem)`. The file is complete or does not exist.

        Args:
            path: the file to write.

        Returns:
            The path of the file.

        >>> import tempfile, heatnets as hn
        >>> from pathlib import Path
        >>> u = hn.solve(hn.problems.get("oscillating", dim=5), features=(16, 16))
        >>> again = hn.load(u.save(Path(tempfile.mkdtemp()) / "oscillating.heatnets"))
        >>> bool(again(0.3, [0.1] * 5) == u(0.3, [0.1] * 5))
        True
        """
        target = Path(path)
        atomic_files.check_writable(target)
        blocks, arrays = [], dict[str, np.ndarray]()
        for i, (block, _) in enumerate(self._blocks):
            description, parts = to_arrays(block)
            blocks.append(description)
            arrays |= {f"block {i} {name}": array for name, array in parts.items()}
        arrays |= {f"weights {i}": w for i, w in enumerate(self.weights)}
        rule = self._canonical.preintegration
        if rule is not None:
            arrays["axis"] = np.asarray(rule.axis)
        manifest = {
            "heatnets": __version__,
            "jax": jax.__version__,
            "origin": container.to_jsonable(self.problem.provenance),
            "problem": repr(self.problem),
            "fingerprint": fingerprint(self.problem),
            "guessed": "smoothly" if self._canonical.smoothed_guess else "",
            "preintegration": None if rule is None else rule.describe(),
            "blocks": blocks,
            "stats": container.to_jsonable(self.stats),
        }
        return container.write(target, "result", manifest, arrays)

    def _sum(
        self,
        terms: Callable[..., Any],
        points: EvaluationPoints,
        workspace: int,
        equation: Equation | None = None,
    ) -> np.ndarray:
        """Sum `terms` over all features at n points; a `NumericalError` where not finite."""
        data, where = equation or self._equation, (points.s, points.y)
        total = weighted_sum(terms, self._blocks, data, where, workspace, self._ctx, label="points")
        bad = np.flatnonzero(~np.isfinite(total).reshape(len(points.t), -1).all(axis=1))
        if bad.size:
            example = format_point([points.t[bad[0]], points.x[bad[0]]])
            raise NumericalError(
                f"the solution is not finite at {bad.size} of {len(points.t)} points, "
                f"for example {example}: "
                "the data, or a derivative of theirs, are not finite on a path from there."
            )
        return total

    def __str__(self) -> str:
        return str(self.summary())

    def __rich__(self) -> SolveSummary:
        return self.summary()

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def __repr__(self) -> str:
        s = self.stats
        known = [name for name in ("estimated_error", "residual_held_out") if s[name] is not None]
        quality = "not solved" if self.solved is False else f"{known[0]}={s[known[0]]:.2g}"
        return (
            f"Solution(dim={self.problem.dim}, family={s['family']!r}, features={s['features']}, "
            f"rows={s['rows']}, rank={s['rank']}, {quality})"
        )
