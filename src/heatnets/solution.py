"""The result of a solve: a function u(t, x) with its gradient and residual, and everything known about how it was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from heatnets import __version__
from heatnets._core import atomic_files, container, streams
from heatnets._core.errors import InputError, NumericalError, count, fraction, positive
from heatnets._core.execution import ExecutionContext, Progress, make_context
from heatnets._core.precision import EPS, with_x64
from heatnets._core.statistics import HEAVY
from heatnets._core.tiling import contract, evaluate
from heatnets.certify import derivatives, linearization, sampling_checks, values
from heatnets.certify.error_equation import NetworkEvaluator
from heatnets.certify.explain import Explanation, explain
from heatnets.certify.linearization_error import bent, remainder
from heatnets.certify.reference_values import ReferenceValues
from heatnets.certify.values import Certificate, CertifyOptions, RegionError
from heatnets.features.equation import Equation, equation, on_device
from heatnets.features.features import Feature, KernelSource, MovedSource, packed
from heatnets.fit import network
from heatnets.fit.assembly import forcing, initial_values, powers, value_rows
from heatnets.pde import smoothness
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.fingerprint import fingerprint, mark
from heatnets.pde.function import place
from heatnets.pde.problem import Problem

UNSOLVED = 0.1  # a relative error above which a solve is said to be none


def is_solved(stats: Mapping[str, Any]) -> bool | None:
    """`Solution.solved`, from its `stats`."""
    if why_unsolved(stats):
        return False
    return None if stats["estimated_error"] is None else bool(stats["estimated_error"] <= UNSOLVED)


def why_unsolved(stats: Mapping[str, Any]) -> str:
    """The words that begin with "not solved", where a solve ended so; else none."""
    said = next((text for text in stats["warnings"] if text.startswith("not solved")), "")
    error = stats["estimated_error"]
    if said or error is None or error <= UNSOLVED:
        return said
    estimated = f"is estimated at {error:.2g}" if np.isfinite(error) else "could not be estimated"
    return f"not solved: the error {estimated}."


class EvaluationPoints(NamedTuple):
    """Points (t, x) of the user's, where the plain problem has them (s, y), and what turns its values, slopes and residuals into the user's."""

    t: np.ndarray
    x: np.ndarray
    s: np.ndarray
    y: np.ndarray
    value_scale: np.ndarray  # (n,)
    slope: np.ndarray  # (n, dim) or (n, 1)
    rate: np.ndarray  # (n,)
    single: bool


def _forced(data: tuple[Any, linearization.Fit], s: Array, y: Array) -> Array:
    return linearization.evaluate_source(*data, s, y)[0]


def _left_over(data: tuple[Any, linearization.Fit], s: Array, y: Array) -> Array:
    return linearization.evaluate_source(*data, s, y)[1]


def check_asked(
    samples: Any = 4096, confidence: Any = 0.95, seed: Any = 0, halfwidth: Any = None
) -> tuple[int, float, int, float | None]:
    """The options of a certificate, refused in words where they are wrong."""
    number = count(
        "samples", samples, 4, "They come in pairs, and an interval needs some: 4096 by default."
    )
    level = fraction("confidence", confidence)
    hint = "It is in units of u, for a gradient over those of x."
    return (
        number,
        level,
        streams.check_seed(seed),
        None if halfwidth is None else positive("halfwidth", halfwidth, hint),
    )


class Solution:
    """ũ(t, x) = Σ_j w_j φ_j(t, x), from `hn.solve`; with a time degree K, w_j = Σ_k w_jk (t/T)^k.

    Call it with one time and point, () and (dim,), or with many, (n,) and (n, dim); one of the two may stay single.
    Values are NumPy float64, of shape () or (n,). Points are streamed through in tiles: n may be large.
    """

    problem: Problem
    stats: Mapping[str, Any]
    weights: tuple[
        np.ndarray, ...
    ]  # of each block of features, initial ones first: shape (M,), or (M, K + 1) with a time degree

    def __init__(
        self,
        canonical: CanonicalProblem,
        equation: Equation,
        blocks: list[Feature],
        weights: Float[Array, " columns"],
        ctx: ExecutionContext,
        stats: dict[str, Any],
    ) -> None:
        self._canonical, self.stats = canonical, MappingProxyType(stats)
        self._equation, self._ctx = equation, ctx
        sizes = [len(block.start) for block in blocks]
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
        """Whether the estimated error is at most a tenth; False too where it is not known, or a
        warning says "not solved"; None where it was not judged, as the size was given.
        """
        return is_solved(self.stats)

    def with_problem(self, problem: Problem) -> Solution:
        """This solution of `problem.canonical` as one of the problem itself, in the user's times, points and values."""
        other = copy(self)
        other.problem = problem
        other.__dict__.pop("_mark", None)
        return other

    def with_stats(self, changes: dict[str, Any]) -> Solution:
        """The same solution with other entries of `stats`."""
        other = copy(self)
        other.stats = MappingProxyType({**self.stats, **changes})
        return other

    @with_x64
    def __call__(self, t: Any, x: Any) -> np.ndarray:
        """ũ(t, x)."""
        seen = self._see(t, x)
        value = seen.value_scale * self._contract(network.values, seen, floats=4 * self.problem.dim)
        return value[0] if seen.single else value

    @with_x64
    def gradient(self, t: Any, x: Any) -> np.ndarray:
        """∇ũ(t, x), of shape (dim,) or (n, dim)."""
        seen = self._see(t, x)
        slope = seen.slope * self._contract(network.gradients, seen, floats=8 * self.problem.dim)
        return slope[0] if seen.single else slope

    @with_x64
    def residual(self, t: Any, x: Any) -> np.ndarray:
        """What is missing in the equation at (t, x), t > 0 (t < T for a terminal-value problem): R = F - (∂_t - div A ∇ - b·∇ - c) ũ."""
        seen = self._see(t, x, positive_time=True)
        left = self._contract(
            network.residuals,
            seen,
            floats=self._differentiable.workspace(self.problem.dim),
            equation=self._differentiable,
        )
        with jax.default_device(self._ctx.device):
            missing = seen.value_scale * seen.rate * (self._force(seen.s, seen.y) - left)
        return missing[0] if seen.single else missing

    def _see(self, t: Any, x: Any, positive_time: bool = False) -> EvaluationPoints:
        times, places, single = self.problem.points(t, x, positive_time=positive_time)
        transform = self.problem.transform
        value_scale = transform.value_scale(times)
        return EvaluationPoints(
            times,
            places,
            *transform.to_canonical(times, places),
            value_scale,
            value_scale[:, None] * transform.slope(times, places),
            transform.rate(times),
            single,
        )

    @with_x64
    def certify(
        self,
        t: Any,
        x: Any,
        *,
        samples: int = 4096,
        confidence: float = 0.95,
        seed: int = 0,
        halfwidth: float | None = None,
        progress: Progress | None = None,
    ) -> Certificate:
        """The true value at one point or many, with an interval that holds it as often as `confidence` says.

        The error of the network obeys the same equation as u, so its mean over random paths is an unbiased correction; `value` is the
        network's value with it. Where the data are smooth the samples are of the equation's residual, and few suffice; where they have
        kinks or jumps, or for Gaussian kernels, they are of the martingale form, which needs no smoothness (docs/trust.md).

        Args:
            t: one time or many, as for a call of the solution.
            x: one point or many, likewise.
            samples: random paths per point, in antithetic pairs; four or sixteen times as many where their tails look heavy.
            confidence: of the interval, at each point on its own.
            seed: of the samples; they are independent of the solve's whatever its seed was.
            halfwidth: samples are added until no interval is wider than this (in units of u), up to 1024 times `samples`.
            progress: called as progress("certificate", points done, points); default that of the solve. A point costs as much as `samples` rows of the solve's system.

        Returns:
            A `Certificate`: value, error (what the network lacks), low, high, halfwidth, certified, reasons, method, samples.
            Not certified are points with heavy tails, residuals that are not finite, or two forms that disagree; `reasons` say which.

        >>> import heatnets as hn
        >>> u = hn.solve(hn.problems.get("oscillating", dim=5), features=(32, 64), train_region=hn.Box(-3.2, 3.2))
        >>> sure = u.certify(0.5, [0.3] * 5)
        >>> bool(sure.certified and sure.low < hn.exact_values(u.problem, 0.5, [0.3] * 5) < sure.high)
        True
        """
        seen = self._see(t, x)
        return self._certified(
            values.certify, seen, seen.value_scale, samples, confidence, seed, halfwidth, progress
        )

    @with_x64
    def certify_gradient(
        self,
        t: Any,
        x: Any,
        *,
        samples: int = 4096,
        confidence: float = 0.95,
        seed: int = 0,
        halfwidth: float | None = None,
        progress: Progress | None = None,
    ) -> Certificate:
        """The true gradient at one point or many, t > 0 (t < T for a terminal-value problem), each component with an interval of its own.

        As `certify`, with fields of shape (dim,) or (n, dim); `certified`, `reasons` and `samples` are of a point. Where the data are smooth the
        error equation is differentiated (samples of the residual's gradient); where they have kinks or jumps, a weight takes the place of the derivative.
        """
        seen = self._see(t, x, positive_time=True)
        return self._certified(
            derivatives.certify_gradient,
            seen,
            seen.slope,
            samples,
            confidence,
            seed,
            halfwidth,
            progress,
            True,
        )

    @with_x64
    def certify_curvature(
        self,
        t: Any,
        x: Any,
        direction: Any,
        *,
        samples: int = 4096,
        confidence: float = 0.95,
        seed: int = 0,
        halfwidth: float | None = None,
        progress: Progress | None = None,
    ) -> Certificate:
        """The true second derivative of u along a direction, d²/dε² u(t, x + ε direction) at ε = 0, with an interval: a gamma.

        As `certify`, with t > 0 (t < T for a terminal-value problem); `direction` is of shape (dim,), or (n, dim) with one for each point. Where the data are smooth the
        error equation is differentiated twice; where they have kinks or jumps, samples of u get a weight in place of the derivatives.
        """
        seen = self._see(t, x, positive_time=True)
        along = np.asarray(direction, np.float64)
        if (
            along.shape not in ((self.problem.dim,), seen.x.shape)
            or not np.all(np.isfinite(along))
            or not np.any(along)
        ):
            raise InputError(
                f"`direction` must be a vector of {self.problem.dim} finite numbers, not all zero, or one for each point; got shape {along.shape}."
            )
        first, second = self.problem.transform.curve(seen.t, seen.x, along * np.ones_like(seen.x))
        how = partial(derivatives.certify_curvature, curves=(first, second))
        return self._certified(
            how, seen, seen.value_scale, samples, confidence, seed, halfwidth, progress, True
        )

    def _certified(
        self,
        how: Callable[..., Certificate],
        seen: EvaluationPoints,
        unit: np.ndarray,
        samples: Any,
        confidence: Any,
        seed: Any,
        halfwidth: Any,
        progress: Any,
        weighted: bool = False,
    ) -> Certificate:
        """Certificates of values or of derivatives (`weighted` where data are not smooth), their arguments checked; `unit` is what makes the user's of the plain problem's."""
        samples, level, seed, wanted = check_asked(samples, confidence, seed, halfwidth)
        if weighted and self._canonical.nonlinear is not None:
            raise InputError(
                "certified derivatives are for sources that do not depend on u: what the tangent of such a source leaves out is bounded for values alone. "
                "u.gradient(t, x) is the network's; u.certify at two nearby points bounds a difference."
            )
        smooth = self._smooth_from(seen.s, seen.y)
        if not smooth and weighted and self._canonical.coefficients is not None:
            raise InputError(
                "certified derivatives of data with kinks or jumps need constant coefficients: the weight that takes a derivative's place is known for those. "
                "Smooth the data, or certify values at nearby points."
            )
        rounding_scale = (
            self.problem.transform.rounding_scale(seen.t, seen.x)
            if self.problem.transform.changes
            else None
        )
        marks = streams.marks(self._mark, seen.t, seen.x)
        rare = 0.0 if weighted else self._rare
        asked = CertifyOptions(
            samples,
            level,
            seed,
            wanted,
            smooth,
            self._teller(progress),
            unit,
            rounding_scale,
            marks,
            rare,
        )
        with jax.default_device(self._ctx.device):
            found = how(self._linear, self.network(), seen.s, seen.y, asked)
            if self._canonical.nonlinear is not None:
                left = remainder(
                    self._linear,
                    self._canonical.nonlinear.slopes,
                    self.network(),
                    self._bends,
                    seen.s,
                    seen.y,
                    smooth,
                    asked.rng,
                    found.error / unit,
                )
                found = found.add_linearization_error(unit * left.bound, left.reasons, wanted)
            found = found.add_reasons(
                [
                    self._doubts(s, y, asked, i)
                    for i, (s, y) in enumerate(zip(seen.s, seen.y, strict=True))
                ]
            )
        if self.problem.transform.changes:
            found = found.widen(
                4 * EPS
            )  # exponentials and logarithms on the way to plain coordinates and back
        return found.first_point() if seen.single else found

    def _doubts(self, s: float, y: np.ndarray, asked: CertifyOptions, i: int) -> tuple[str, ...]:
        """Why what paths from a point meet does not tell a mean."""
        if s == 0:
            return ()
        rng = asked.rng("encounters", i)
        met = sampling_checks.from_point(self._canonical, float(s), y, rng, self._quiet)
        found = sampling_checks.doubt(
            self._canonical, met, not asked.smooth, rng, self._quiet, rare=0.0
        )
        return () if found is None or found.curable else (found.words,)

    @with_x64
    def error(
        self, *, points: int = 512, samples: int = 8, confidence: float = 0.95, seed: int = 0
    ) -> RegionError:
        """The relative L2 error over (0, T] x region (for a `Point` at t = T, at t = 0 of a terminal-value problem), with an interval, without an exact solution.

        Args:
            points: random points of the region.
            samples: random paths from each, in antithetic pairs (256 times as many, of the data alone, where these have kinks or jumps).
            confidence: of the interval.
            seed: of points and paths; independent of the solve's whatever its seed was.

        >>> import heatnets as hn
        >>> u = hn.solve(hn.problems.get("oscillating", dim=5), features=(32, 64), train_region=hn.Box(-3.2, 3.2))
        >>> estimate = u.error()
        >>> bool(estimate.low < hn.measure(u).l2 < estimate.high)
        True
        """
        points = count("points", points, 16, "A mean over the region needs some.")
        samples = count(
            "samples", samples, 4, "They come in pairs, and two independent ones are multiplied."
        )
        found = values.region_error(
            self._linear, self.network(), points=points, samples=samples, confidence=fraction("confidence", confidence),
            seed=streams.check_seed(seed), smooth=self._smooth, mark=self._mark, rare=self._rare > 0, reference=None if self._canonical.nonlinear is not None else partial(self._reference, seed),
        )  # fmt: skip
        with jax.default_device(self._ctx.device):
            rng = streams.generator(seed, "region encounters", self._mark)
            met = sampling_checks.over_region(self._canonical, rng, self._quiet)
            doubt = sampling_checks.doubt(self._canonical, met, not self._smooth, rng, self._quiet)
        if doubt is None or (doubt.curable and found.high <= sampling_checks.EXACT):
            return found
        return replace(found, certified=False, reasons=(doubt.words, *found.reasons))

    @property
    def _rare(self) -> float:
        """T times the largest residual that the solve's final check met, where few of its samples met such: an error that others may miss. Else zero."""
        check = self.stats.get("check") or {}
        return (
            check["largest_residual"] * check["size"]
            if not check.get("tails", 0.0) <= HEAVY
            else 0.0
        )

    def _reference(self, seed: int, s: np.ndarray, y: np.ndarray) -> ReferenceValues:
        """Monte Carlo values at points of the canonical problem, at a small part of the cost of the network's residuals there."""
        with jax.default_device(self._ctx.device):
            found = ReferenceValues(
                self._canonical, self._equation, s, y, seed, "region error", self._quiet, self._mark
            )
            found.extend(8 * len(s) * sum(len(w) for w in self.weights))
        return found

    @with_x64
    def explain(self, t: float, x: Any, *, samples: int = 4096, seed: int = 0) -> Explanation:
        """Where the value at one point comes from: initial condition and source by time lag (Monte Carlo), and the features that carry it.

        Print it for a table; `hn.plots.save(hn.plots.explanation(u.explain(t, x)), "why.png")` draws it.
        """
        samples = count("samples", samples, 4, "They come in pairs.")
        seen = self._see(t, x)
        if not seen.single:
            raise InputError(
                f"`explain` takes one time and one point; got {len(seen.t)}. Call it for each."
            )
        with jax.default_device(self._ctx.device):
            terms = {}
            for block, w in self._blocks:
                kind = (
                    "source"
                    if isinstance(getattr(block, "one", block), MovedSource | KernelSource)
                    else "initial"
                )
                phi = np.asarray(
                    value_rows(self._equation, [block], (seen.s, seen.y), self._quiet, "")
                )[0]
                terms[kind] = (np.asarray(w) @ powers(seen.s[0], w.shape[1] - 1)[0], phi)
        network = self.network()
        network = (
            network if self._canonical.nonlinear is None else network._replace(source=self._force)
        )
        (mark,) = streams.marks(self._mark, seen.t, seen.x)
        rng = streams.generator(streams.check_seed(seed), "explanation", mark)
        found = explain(self._canonical, network, terms, float(seen.s[0]), seen.y[0], samples, rng)
        passed = np.abs(seen.t[0] - self.problem.transform.inverse_time(seen.s[0] - found.lags))
        return found.in_user_units(float(seen.t[0]), seen.x[0], passed, float(seen.value_scale[0]))

    def save(self, path: str | Path) -> Path:
        """Write this solution to one file: weights, drawn directions, `stats`, and what tells its problem; never code.

        `hn.load(path)` gives it back, values equal to the last bit on the same machine. Functions are not stored: where the problem was not a named one or a TOML
        file, say it again, `hn.load(path, problem)`. The file is whole or not there.

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
            words, parts = packed(block)
            blocks.append(words)
            arrays |= {f"block {i} {name}": array for name, array in parts.items()}
        arrays |= {f"weights {i}": w for i, w in enumerate(self.weights)}
        manifest = {
            "heatnets": __version__, "jax": jax.__version__, "origin": container.words(self.problem.provenance), "problem": repr(self.problem), "fingerprint": fingerprint(self.problem),
            "guessed": "smoothly" if self._canonical.smoothed_guess else "", "blocks": blocks, "stats": container.words(self.stats),
        }  # fmt: skip
        return container.write(target, "result", manifest, arrays)

    @cached_property
    @with_x64
    def kinks(self) -> str:
        """Which of the data have kinks or jumps, in words; empty where none were found. Where they have, `residual` says nothing."""
        with jax.default_device(self._ctx.device):
            return smoothness.describe(
                smoothness.kinks(self._canonical, self.stats["seed"], self._quiet)
            )

    @cached_property
    def _mark(self) -> streams.Mark:
        """What its certificates' streams depend on besides the seed: the problem."""
        return mark(self.problem)

    @cached_property
    def _smooth(self) -> bool:
        """Whether the residual form may be used: no kinks or jumps in the data, none in the features."""
        return self.stats["family"] == "importance" and not self.kinks

    def _smooth_from(self, t: np.ndarray, x: np.ndarray) -> bool:
        """The same on paths from given points, which the region may know nothing of."""
        with jax.default_device(self._ctx.device):
            return self._smooth and not smoothness.kinks(
                self._canonical, self.stats["seed"], self._quiet, (t, x)
            )

    def _teller(self, progress: Progress | None) -> Callable[[int, int], None]:
        tell = (
            self._ctx.progress
            if progress is None
            else make_context(self._ctx.device, None, progress).progress
        )
        return lambda done, total: tell("certificate", done, total)

    @cached_property
    def _quiet(self) -> ExecutionContext:
        return replace(self._ctx, progress=lambda phase, done, total: None)

    @cached_property
    def _differentiable(self) -> Equation:
        """The equation with Laplacians, also where the weights were found without."""
        with jax.default_device(self._ctx.device):
            known = "none" not in self._equation.rungs.values()
            return self._equation if known else equation(self._canonical, self.stats["seed"])[0]

    def network(self) -> NetworkEvaluator:
        """This solution as a certificate asks for it."""
        dim, ctx = self._canonical.dim, self._quiet

        def contracted(
            terms: Callable[..., Any], data: Equation, floats: int, t: np.ndarray, x: np.ndarray
        ) -> Any:
            with jax.default_device(ctx.device):
                return contract(terms, self._blocks, data, (t, x), floats, ctx, "")

        def value(t: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return contracted(network.sized_values, self._equation, 4 * dim, t, x)

        def residual(t: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            data = self._differentiable
            left, size = contracted(network.sized_residuals, data, data.workspace(dim), t, x)
            with jax.default_device(ctx.device):
                return self._force(t, x) - left, size

        def slope(t: np.ndarray, x: np.ndarray) -> np.ndarray:
            return contracted(network.gradients, self._equation, 8 * dim, t, x)

        def residual_slope(t: np.ndarray, x: np.ndarray) -> np.ndarray:
            data = self._differentiable
            left = contracted(network.residual_gradients, data, 4 * data.workspace(dim), t, x)
            with jax.default_device(ctx.device):
                return evaluate(network.source_gradient, data, (t, x), 8 * dim, ctx) - left

        def initial_slope(x: np.ndarray) -> np.ndarray:
            with jax.default_device(ctx.device):
                return evaluate(network.initial_gradient, self._equation, (x,), 8 * dim, ctx)

        def value_bend(t: np.ndarray, x: np.ndarray, w: np.ndarray, c: np.ndarray) -> np.ndarray:
            with jax.default_device(ctx.device):
                return contract(
                    network.bent_values,
                    self._blocks,
                    self._equation,
                    (t, x, w, c),
                    16 * dim,
                    ctx,
                    "",
                )

        def residual_bend(t: np.ndarray, x: np.ndarray, w: np.ndarray, c: np.ndarray) -> np.ndarray:
            data = self._differentiable
            with jax.default_device(ctx.device):
                left = contract(
                    network.bent_residuals,
                    self._blocks,
                    data,
                    (t, x, w, c),
                    4 * data.workspace(dim),
                    ctx,
                    "",
                )
                return evaluate(network.bent_source, data, (t, x, w, c), 16 * dim, ctx) - left

        def initial_bend(x: np.ndarray, w: np.ndarray, c: np.ndarray) -> np.ndarray:
            with jax.default_device(ctx.device):
                return evaluate(network.bent_initial, self._equation, (x, w, c), 16 * dim, ctx)

        def initial(x: np.ndarray) -> np.ndarray:
            with jax.default_device(ctx.device):
                return initial_values(self._equation, x, ctx)

        def source(t: np.ndarray, x: np.ndarray) -> np.ndarray:
            with jax.default_device(ctx.device):
                if self._canonical.nonlinear is not None:
                    return evaluate(_left_over, self._tangent_data, (t, x), 32 * dim, ctx)
                return forcing(self._equation, (t, x), ctx)

        begun = sum(
            float(np.asarray(block.start) @ np.asarray(w)[:, 0]) for block, w in self._blocks
        )
        slope_cost = 6 * sum(
            len(w) for _, w in self._blocks
        )  # pairs of features, and a gradient costs about three values
        return NetworkEvaluator(
            value,
            residual,
            slope,
            initial,
            source,
            residual_slope,
            initial_slope,
            value_bend,
            residual_bend,
            initial_bend,
            1 - begun,
            slope_cost,
        )

    def _force(self, s: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The source; at the network, where it depends on u."""
        if self._canonical.nonlinear is None:
            return forcing(self._equation, (s, y), self._quiet)
        return evaluate(_forced, self._tangent_data, (s, y), 32 * self._canonical.dim, self._quiet)

    def _bends(self, s: np.ndarray, y: np.ndarray, size: np.ndarray, t: np.ndarray) -> np.ndarray:
        """How much the derivatives of the source change over an error of some size."""
        data = (
            *self._tangent_data,
            on_device(self._canonical.diffusion),
            on_device(self._canonical.coefficients),
        )
        return evaluate(bent, data, (s, y, size, t), 64 * self._canonical.dim, self._quiet)

    @cached_property
    def _tangent_data(self) -> tuple[Any, linearization.Fit]:
        return self._canonical.nonlinear, linearization.Fit(self._equation, self._blocks)

    @cached_property
    def _linear(self) -> CanonicalProblem:
        """The linear problem that the error of this solution obeys."""
        return (
            self._canonical
            if self._canonical.nonlinear is None
            else linearization.linearize(self._canonical, self._tangent_data[1])
        )

    def _contract(
        self,
        terms: Callable[..., Any],
        seen: EvaluationPoints,
        floats: int,
        equation: Equation | None = None,
    ) -> np.ndarray:
        with jax.default_device(self._ctx.device):
            total = contract(
                terms,
                self._blocks,
                equation or self._equation,
                (seen.s, seen.y),
                floats,
                self._ctx,
                "points",
            )
        bad = np.flatnonzero(~np.isfinite(total).reshape(len(seen.t), -1).all(axis=1))
        if bad.size:
            where = place([seen.t[bad[0]], seen.x[bad[0]]])
            raise NumericalError(
                f"the solution is not finite at {bad.size} of {len(seen.t)} points, for example {where}: "
                "the data, or a derivative of theirs, are not finite on a path from there."
            )
        return total

    def __repr__(self) -> str:
        s = self.stats
        known = [name for name in ("estimated_error", "residual_held_out") if s[name] is not None]
        told = "not solved" if self.solved is False else f"{known[0]}={s[known[0]]:.2g}"
        return (
            f"Solution(dim={self.problem.dim}, family={s['family']!r}, features={s['features']}, rows={s['rows']}, "
            f"rank={s['rank']}, {told})"
        )
