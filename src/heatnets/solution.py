"""The result of a solve: a function of (t, x) with gradient, residual, certificates and stats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from heatnets import __version__
from heatnets._core import atomic_files, container
from heatnets._core.errors import NumericalError
from heatnets._core.execution import ExecutionContext
from heatnets._core.tiling import weighted_sum
from heatnets.certify.certified_network import CertifiedNetwork, EvaluationPoints, in_context
from heatnets.features.features import Equation, Feature
from heatnets.features.storage import to_arrays
from heatnets.fit import network
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.fingerprint import fingerprint
from heatnets.pde.function import format_point
from heatnets.pde.problem import Problem

UNSOLVED = 0.1  # a relative error above which a problem counts as not solved


def is_solved(stats: Mapping[str, Any]) -> bool | None:
    """`Solution.solved`, from its `stats`."""
    if why_unsolved(stats):
        return False
    return None if stats["estimated_error"] is None else bool(stats["estimated_error"] <= UNSOLVED)


def why_unsolved(stats: Mapping[str, Any]) -> str:
    """A message that begins with "not solved" where a solve failed; else an empty string."""
    warning = next((text for text in stats["warnings"] if text.startswith("not solved")), "")
    error = stats["estimated_error"]
    if warning or error is None or error <= UNSOLVED:
        return warning
    estimated = f"is estimated at {error:.2g}" if np.isfinite(error) else "could not be estimated"
    return f"not solved: the error {estimated}."


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
        self._blocks = [
            (block, jax.device_put(w / units, ctx.device))
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

    def with_problem(self, problem: Problem) -> Solution:
        """A copy that takes times and points of `problem`, and returns its values.

        The network solves `problem.canonical`.
        """
        other = copy(self)
        other.problem = problem
        other.__dict__.pop("_mark", None)
        return other

    def with_stats(self, changes: dict[str, Any]) -> Solution:
        """A copy with other entries of `stats`."""
        other = copy(self)
        other.stats = MappingProxyType({**self.stats, **changes})
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
        floats = self._equation.value_workspace(self.problem.dim)
        value = points.value_scale * self._sum(network.values, points, floats)
        return value[0] if points.single else value

    @in_context
    def gradient(self, t: Any, x: Any) -> np.ndarray:
        """The gradient ∇ũ(t, x) in x.

        Args:
            t: one time (), or n times (n,).
            x: one point (dim,), or n points (n, dim).

        Returns:
            Gradients of shape (dim,) or (n, dim).
        """
        points = self._locate(t, x)
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

    def __repr__(self) -> str:
        s = self.stats
        known = [name for name in ("estimated_error", "residual_held_out") if s[name] is not None]
        quality = "not solved" if self.solved is False else f"{known[0]}={s[known[0]]:.2g}"
        return (
            f"Solution(dim={self.problem.dim}, family={s['family']!r}, features={s['features']}, "
            f"rows={s['rows']}, rank={s['rank']}, {quality})"
        )
