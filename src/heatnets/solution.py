"""The result of a solve: a function of (t, x) with gradient, residual, certificates and stats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property, partial, wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import jax
import numpy as np
from jaxtyping import Array, Float

from heatnets import __version__
from heatnets._core import atomic_files, container, streams
from heatnets._core.errors import (
    InputError,
    NumericalError,
    check_fraction,
    check_int,
    check_positive,
)
from heatnets._core.execution import ExecutionContext, Progress, make_context
from heatnets._core.precision import EPS, with_x64
from heatnets._core.statistics import HEAVY
from heatnets._core.tiling import map_points, weighted_sum
from heatnets.certify import derivatives, linearization, sampling_checks, values
from heatnets.certify.error_equation import NetworkEvaluator
from heatnets.certify.explain import Explanation, explain
from heatnets.certify.linearization_error import derivative_variation, remainder
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


class EvaluationPoints(NamedTuple):
    """n points in the user's and in canonical coordinates, and factors to the user's values."""

    t: np.ndarray  # the user's times, (n,)
    x: np.ndarray  # the user's points, (n, dim)
    s: np.ndarray  # times of the canonical problem, (n,)
    y: np.ndarray  # points of the canonical problem, (n, dim)
    value_scale: np.ndarray  # factor of values, (n,)
    slope: np.ndarray  # factor of gradients, (n, dim) or (n, 1)
    rate: np.ndarray  # factor of residuals besides `value_scale`: ds/dt, (n,)
    single: bool  # whether the user gave a single point


def _source_at_network(data: tuple[Any, linearization.Fit], s: Array, y: Array) -> Array:
    return linearization.evaluate_source(*data, s, y)[0]


def _linearized_source(data: tuple[Any, linearization.Fit], s: Array, y: Array) -> Array:
    return linearization.evaluate_source(*data, s, y)[1]


def check_asked(
    samples: Any = 4096, confidence: Any = 0.95, seed: Any = 0, halfwidth: Any = None
) -> tuple[int, float, int, float | None]:
    """Check the options of a certificate; an `InputError` names a wrong one."""
    hint = "They come in pairs, and an interval needs some: 4096 by default."
    number = check_int("samples", samples, 4, hint)
    level = check_fraction("confidence", confidence)
    checked_seed = streams.check_seed(seed)
    hint = "It is in units of u, for a gradient over those of x."
    width = None if halfwidth is None else check_positive("halfwidth", halfwidth, hint)
    return number, level, checked_seed, width


P = ParamSpec("P")
R = TypeVar("R")
Method = Callable[Concatenate["Solution", P], R]


def _in_context(method: Method[P, R]) -> Method[P, R]:
    """Decorator: run a method of `Solution` with its device and memory limit active."""

    @wraps(method)
    def wrapped(self: Solution, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._ctx.active():
            return method(self, *args, **kwargs)

    return wrapped


class Solution:
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

    problem: Problem
    stats: Mapping[str, Any]
    weights: tuple[np.ndarray, ...]

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

    @with_x64
    @_in_context
    def __call__(self, t: Any, x: Any) -> np.ndarray:
        """The value ũ(t, x).

        Args:
            t: one time (), or n times (n,).
            x: one point (dim,), or n points (n, dim).

        Returns:
            Values of shape () or (n,).
        """
        points = self._locate(t, x)
        floats = 4 * self.problem.dim
        value = points.value_scale * self._contract(network.values, points, floats=floats)
        return value[0] if points.single else value

    @with_x64
    @_in_context
    def gradient(self, t: Any, x: Any) -> np.ndarray:
        """The gradient ∇ũ(t, x) in x.

        Args:
            t: one time (), or n times (n,).
            x: one point (dim,), or n points (n, dim).

        Returns:
            Gradients of shape (dim,) or (n, dim).
        """
        points = self._locate(t, x)
        floats = 8 * self.problem.dim
        slope = points.slope * self._contract(network.gradients, points, floats=floats)
        return slope[0] if points.single else slope

    @with_x64
    @_in_context
    def residual(self, t: Any, x: Any) -> np.ndarray:
        """The residual of the equation, R = F - (∂_t - div A ∇ - b·∇ - c) ũ.

        Args:
            t: one time (), or n times (n,), t > 0 (t < T for a terminal-value problem).
            x: one point (dim,), or n points (n, dim).

        Returns:
            Residuals of shape () or (n,).
        """
        points = self._locate(t, x, positive_time=True)
        data = self._differentiable
        floats = data.workspace(self.problem.dim)
        left_side = self._contract(network.residuals, points, floats=floats, equation=data)
        with self._ctx.active():
            source = self._force(points.s, points.y)
            residual = points.value_scale * points.rate * (source - left_side)
        return residual[0] if points.single else residual

    def _locate(self, t: Any, x: Any, positive_time: bool = False) -> EvaluationPoints:
        """Check points of the user, and map them to the canonical problem."""
        times, places, single = self.problem.points(t, x, positive_time=positive_time)
        transform = self.problem.transform
        value_scale = transform.value_scale(times)
        s, y = transform.to_canonical(times, places)
        return EvaluationPoints(
            t=times,
            x=places,
            s=s,
            y=y,
            value_scale=value_scale,
            slope=value_scale[:, None] * transform.slope(times, places),
            rate=transform.rate(times),
            single=single,
        )

    @with_x64
    @_in_context
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
        """The true value u(t, x) at one point or at n points, with confidence intervals.

        The error of the network solves the same equation as u, with the residual as its source. So
        its mean over random paths is an unbiased correction; `value` is the network's value plus
        this correction. Where the data are smooth the samples are of the residual, and few suffice.
        Where they have kinks or jumps, and for Gaussian kernels, the samples are of the martingale
        form, which needs no smoothness (docs/trust.md).

        Args:
            t: one time (), or n times (n,).
            x: one point (dim,), or n points (n, dim).
            samples: random paths from each point, in antithetic pairs; four or sixteen times as
                many where their tails look heavy.
            confidence: confidence level of the interval at each point.
            seed: seed of the samples. They are independent of the solve, whatever its seed was.
            halfwidth: samples are added until no interval has a larger half-width than this (in
                units of u), up to 1024 times `samples`.
            progress: called as progress("certificate", points done, points); by default the
                callback of the solve. A point costs as much as `samples` rows of the system of the
                solve.

        Returns:
            A `Certificate` with arrays of shape () for one point, (n,) for n points. Points with
            heavy tails, with residuals that are not finite, or with two forms of the error equation
            that disagree, are not certified; `reasons` say why.

        >>> import heatnets as hn
        >>> u = hn.solve(
        ...     hn.problems.get("oscillating", dim=5),
        ...     features=(32, 64),
        ...     train_region=hn.Box(-3.2, 3.2),
        ... )
        >>> sure = u.certify(0.5, [0.3] * 5)
        >>> bool(
        ...     sure.certified
        ...     and sure.low < hn.exact_values(u.problem, 0.5, [0.3] * 5) < sure.high
        ... )
        True
        """
        points = self._locate(t, x)
        arguments = (samples, confidence, seed, halfwidth)
        return self._certify(values.certify, points, points.value_scale, arguments, progress)

    @with_x64
    @_in_context
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
        """The true gradient ∇u(t, x), with a confidence interval for each component.

        As `certify`. Where the data are smooth the error equation is differentiated: samples of the
        gradient of the residual. Where they have kinks or jumps, a weight takes the place of the
        derivative.

        Args:
            t: one time (), or n times (n,), t > 0 (t < T for a terminal-value problem).
            x: one point (dim,), or n points (n, dim).
            samples: random paths from each point, in antithetic pairs.
            confidence: confidence level of each interval.
            seed: seed of the samples.
            halfwidth: the requested half-width of all components (in units of u over those of x).
            progress: called as progress("certificate", points done, points).

        Returns:
            A `Certificate` with values and half-widths of shape (dim,) or (n, dim). `certified`,
            `reasons` and `samples` are those of a point.
        """
        points = self._locate(t, x, positive_time=True)
        arguments = (samples, confidence, seed, halfwidth)
        certify = derivatives.certify_gradient
        return self._certify(certify, points, points.slope, arguments, progress, derivative=True)

    @with_x64
    @_in_context
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
        """The true second derivative of u along a direction, with a confidence interval: a gamma.

            d²/dε² u(t, x + ε direction) at ε = 0

        As `certify`. Where the data are smooth the error equation is differentiated twice. Where
        they have kinks or jumps, samples of u get a weight in place of the derivatives.

        Args:
            t: one time (), or n times (n,), t > 0 (t < T for a terminal-value problem).
            x: one point (dim,), or n points (n, dim).
            direction: one direction (dim,), or one for each point (n, dim).
            samples: random paths from each point, in antithetic pairs.
            confidence: confidence level of the interval at each point.
            seed: seed of the samples.
            halfwidth: the requested half-width.
            progress: called as progress("certificate", points done, points).

        Returns:
            A `Certificate` with arrays of shape () for one point, (n,) for n points.
        """
        points = self._locate(t, x, positive_time=True)
        along = np.asarray(direction, np.float64)
        known_shape = along.shape in ((self.problem.dim,), points.x.shape)
        if not known_shape or not np.all(np.isfinite(along)) or not np.any(along):
            raise InputError(
                f"`direction` must be a vector of {self.problem.dim} finite numbers, not all zero, "
                f"or one for each point; got shape {along.shape}."
            )
        curves = self.problem.transform.curve(points.t, points.x, along * np.ones_like(points.x))
        certify = partial(derivatives.certify_curvature, curves=curves)
        arguments = (samples, confidence, seed, halfwidth)
        scale = points.value_scale
        return self._certify(certify, points, scale, arguments, progress, derivative=True)

    def _certify(
        self,
        certify: Callable[..., Certificate],
        points: EvaluationPoints,
        unit: np.ndarray,
        arguments: tuple[Any, Any, Any, Any],
        progress: Any,
        derivative: bool = False,
    ) -> Certificate:
        """Check the options, certify values or derivatives, and add the doubts about the samples.

        Args:
            certify: `values.certify`, `derivatives.certify_gradient` or the like.
            points: where.
            unit: factor from quantities of the canonical problem to the user's.
            arguments: samples, confidence, seed and halfwidth, as the user gave them.
            progress: progress callback of the user, or None.
            derivative: whether a derivative is certified.
        """
        samples, level, seed, target = check_asked(*arguments)
        if derivative and self._canonical.nonlinear is not None:
            raise InputError(
                "certified derivatives are for sources that do not depend on u: what the tangent "
                "of such a source leaves out is bounded for values alone. "
                "u.gradient(t, x) is the network's; u.certify at two nearby points bounds a "
                "difference."
            )
        smooth = self._is_smooth_from(points.s, points.y)
        if not smooth and derivative and self._canonical.coefficients is not None:
            raise InputError(
                "certified derivatives of data with kinks or jumps need constant coefficients: "
                "the weight that takes a derivative's place is known for those. "
                "Smooth the data, or certify values at nearby points."
            )
        transform = self.problem.transform
        rounding_scale = None
        if transform.changes:
            rounding_scale = transform.rounding_scale(points.t, points.x)
        options = CertifyOptions(
            samples=samples,
            confidence=level,
            seed=seed,
            halfwidth=target,
            smooth=smooth,
            tell=self._progress_callback(progress),
            unit=unit,
            rounding_scale=rounding_scale,
            marks=streams.marks(self._mark, points.t, points.x),
            rare=0.0 if derivative else self._rare_error,
        )
        with self._ctx.active():
            cert = certify(self._linear, self.network(), points.s, points.y, options)
            if self._canonical.nonlinear is not None:
                linearized = remainder(
                    self._linear,
                    self._canonical.nonlinear.uses_gradient,
                    self.network(),
                    self._source_changes,
                    points.s,
                    points.y,
                    smooth,
                    options.rng,
                    cert.error / unit,
                )
                bound = unit * linearized.bound
                cert = cert.add_linearization_error(bound, linearized.reasons, target)
            canonical_points = enumerate(zip(points.s, points.y, strict=True))
            doubts = [self._sampling_doubts(s, y, options, i) for i, (s, y) in canonical_points]
            cert = cert.add_reasons(doubts)
        if transform.changes:
            # Rounding of exponentials and logarithms in the change of coordinates.
            cert = cert.widen(4 * EPS)
        return cert.first_point() if points.single else cert

    def _sampling_doubts(
        self, s: float, y: np.ndarray, options: CertifyOptions, i: int
    ) -> tuple[str, ...]:
        """Why samples of the data on paths from point i, (s, y), do not determine a mean."""
        if s == 0:
            return ()
        rng = options.rng("encounters", i)
        samples = sampling_checks.from_point(self._canonical, float(s), y, rng, self._quiet)
        doubt = sampling_checks.doubt(
            self._canonical, samples, not options.smooth, rng, self._quiet, rare=0.0
        )
        return () if doubt is None or doubt.curable else (doubt.words,)

    @with_x64
    @_in_context
    def error(
        self, *, points: int = 512, samples: int = 8, confidence: float = 0.95, seed: int = 0
    ) -> RegionError:
        """The relative L2 error over (0, T] x region, with a confidence interval.

        No exact solution is needed. If the region is a `Point`, it is the error at t = T (at t = 0
        for a terminal-value problem).

        Args:
            points: random points of the region.
            samples: random paths from each point, in antithetic pairs (256 times as many, of the
                data only, where these have kinks or jumps).
            confidence: confidence level of the interval.
            seed: seed of points and paths. They are independent of the solve, whatever its seed
                was.

        Returns:
            A `RegionError` with the estimate, its interval, and whether it is certified.

        >>> import heatnets as hn
        >>> u = hn.solve(
        ...     hn.problems.get("oscillating", dim=5),
        ...     features=(32, 64),
        ...     train_region=hn.Box(-3.2, 3.2),
        ... )
        >>> estimate = u.error()
        >>> bool(estimate.low < hn.measure(u).l2 < estimate.high)
        True
        """
        points = check_int("points", points, 16, "A mean over the region needs some.")
        hint = "They come in pairs, and two independent ones are multiplied."
        samples = check_int("samples", samples, 4, hint)
        linear = self._canonical.nonlinear is None
        error = values.region_error(
            self._linear,
            self.network(),
            points=points,
            samples=samples,
            confidence=check_fraction("confidence", confidence),
            seed=streams.check_seed(seed),
            smooth=self._smooth,
            mark=self._mark,
            rare=self._rare_error > 0,
            reference=partial(self._reference_values, seed) if linear else None,
        )
        with self._ctx.active():
            rng = streams.generator(seed, "region encounters", self._mark)
            data = sampling_checks.over_region(self._canonical, rng, self._quiet)
            doubt = sampling_checks.doubt(self._canonical, data, not self._smooth, rng, self._quiet)
        if doubt is None or (doubt.curable and error.high <= sampling_checks.EXACT):
            return error
        return replace(error, certified=False, reasons=(doubt.words, *error.reasons))

    @property
    def _rare_error(self) -> float:
        """An error that samples may miss; zero where the final check of the solve found no such.

        T times the largest residual in that check, where only few of its samples were so large.
        """
        check = self.stats.get("check") or {}
        if check.get("tails", 0.0) <= HEAVY:
            return 0.0
        return check["largest_residual"] * check["size"]

    def _reference_values(self, seed: int, s: np.ndarray, y: np.ndarray) -> ReferenceValues:
        """Monte Carlo values at canonical points s (n,), y (n, dim).

        They cost a small part of the network's residuals there.
        """
        with self._ctx.active():
            reference = ReferenceValues(
                self._canonical, self._equation, s, y, seed, "region error", self._quiet, self._mark
            )
            reference.extend(8 * len(s) * sum(len(w) for w in self.weights))
        return reference

    @with_x64
    @_in_context
    def explain(self, t: float, x: Any, *, samples: int = 4096, seed: int = 0) -> Explanation:
        """Where the value at one point comes from.

        The parts of the initial condition and of the source by time lag, both by Monte Carlo, and
        the features that carry the value of the network. Print the result for a table;
        `hn.plots.save(hn.plots.explanation(u.explain(t, x)), "why.png")` draws it.

        Args:
            t: one time.
            x: one point (dim,).
            samples: Monte Carlo samples for each part, in antithetic pairs.
            seed: seed of the samples.

        Returns:
            An `Explanation` with the parts and their standard errors.
        """
        samples = check_int("samples", samples, 4, "They come in pairs.")
        points = self._locate(t, x)
        if not points.single:
            raise InputError(
                f"`explain` takes one time and one point; got {len(points.t)}. Call it for each."
            )
        where = (points.s, points.y)
        with self._ctx.active():
            terms = {}
            for block, w in self._blocks:
                feature = getattr(block, "one", block)
                is_source = isinstance(feature, MovedSource | KernelSource)
                phi = np.asarray(value_rows(self._equation, [block], where, self._quiet, ""))[0]
                weights = np.asarray(w) @ powers(points.s[0], w.shape[1] - 1)[0]
                terms["source" if is_source else "initial"] = (weights, phi)
        evaluator = self.network()
        if self._canonical.nonlinear is not None:
            evaluator = evaluator._replace(source=self._force)
        (mark,) = streams.marks(self._mark, points.t, points.x)
        rng = streams.generator(streams.check_seed(seed), "explanation", mark)
        s, y, time = float(points.s[0]), points.y[0], points.t[0]
        parts = explain(self._canonical, evaluator, terms, s, y, samples, rng)
        lags = np.abs(time - self.problem.transform.inverse_time(points.s[0] - parts.lags))
        return parts.in_user_units(float(time), points.x[0], lags, float(points.value_scale[0]))

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
            description, parts = packed(block)
            blocks.append(description)
            arrays |= {f"block {i} {name}": array for name, array in parts.items()}
        arrays |= {f"weights {i}": w for i, w in enumerate(self.weights)}
        manifest = {
            "heatnets": __version__,
            "jax": jax.__version__,
            "origin": container.words(self.problem.provenance),
            "problem": repr(self.problem),
            "fingerprint": fingerprint(self.problem),
            "guessed": "smoothly" if self._canonical.smoothed_guess else "",
            "blocks": blocks,
            "stats": container.words(self.stats),
        }
        return container.write(target, "result", manifest, arrays)

    @cached_property
    @with_x64
    @_in_context
    def kinks(self) -> str:
        """Which of the data have kinks or jumps, as text; empty where none were found.

        Where they have, `residual` is no measure of the error.
        """
        with self._ctx.active():
            kinks = smoothness.kinks(self._canonical, self.stats["seed"], self._quiet)
            return smoothness.describe(kinks)

    @cached_property
    def _mark(self) -> streams.Mark:
        """A mark of the problem: random streams of certificates depend on it and on the seed."""
        return mark(self.problem)

    @cached_property
    def _smooth(self) -> bool:
        """Whether the residual form may be used: neither data nor features have kinks or jumps."""
        return self.stats["family"] == "importance" and not self.kinks

    def _is_smooth_from(self, t: np.ndarray, x: np.ndarray) -> bool:
        """The same on paths from points t (n,), x (n, dim), which may lie outside the region."""
        if not self._smooth:
            return False
        with self._ctx.active():
            seed = self.stats["seed"]
            return not smoothness.kinks(self._canonical, seed, self._quiet, (t, x))

    def _progress_callback(self, progress: Progress | None) -> Callable[[int, int], None]:
        """The function (points done, points) that reports the progress of a certificate."""
        if progress is None:
            report = self._ctx.progress
        else:
            report = make_context(self._ctx.device, None, progress).progress
        return lambda done, total: report("certificate", done, total)

    @cached_property
    def _quiet(self) -> ExecutionContext:
        """The execution context without progress reports."""
        return replace(self._ctx, progress=lambda phase, done, total: None)

    @cached_property
    def _differentiable(self) -> Equation:
        """The equation with Laplacians, also where the weights were found without them."""
        with self._ctx.active():
            known = "none" not in self._equation.rungs.values()
            return self._equation if known else equation(self._canonical, self.stats["seed"])[0]

    def network(self) -> NetworkEvaluator:
        """The functions of this solution and of the data that certificates need."""
        dim, ctx = self._canonical.dim, self._quiet

        def sum_features(
            terms: Callable[..., Any], data: Equation, floats: int, *points: np.ndarray
        ) -> Any:
            with ctx.active():
                return weighted_sum(terms, self._blocks, data, points, floats, ctx, "")

        def evaluate_data(
            function: Callable[..., Any], data: Equation, floats: int, *points: np.ndarray
        ) -> Any:
            with ctx.active():
                return map_points(function, data, points, floats, ctx)

        def value(t: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return sum_features(network.sized_values, self._equation, 4 * dim, t, x)

        def residual(t: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            data = self._differentiable
            left, size = sum_features(network.sized_residuals, data, data.workspace(dim), t, x)
            with ctx.active():
                return self._force(t, x) - left, size

        def gradient(t: np.ndarray, x: np.ndarray) -> np.ndarray:
            return sum_features(network.gradients, self._equation, 8 * dim, t, x)

        def residual_gradient(t: np.ndarray, x: np.ndarray) -> np.ndarray:
            data = self._differentiable
            floats = 4 * data.workspace(dim)
            left = sum_features(network.residual_gradients, data, floats, t, x)
            return evaluate_data(network.source_gradient, data, 8 * dim, t, x) - left

        def initial_gradient(x: np.ndarray) -> np.ndarray:
            return evaluate_data(network.initial_gradient, self._equation, 8 * dim, x)

        def value_bend(t: np.ndarray, x: np.ndarray, w: np.ndarray, c: np.ndarray) -> np.ndarray:
            return sum_features(network.bent_values, self._equation, 16 * dim, t, x, w, c)

        def residual_bend(t: np.ndarray, x: np.ndarray, w: np.ndarray, c: np.ndarray) -> np.ndarray:
            data = self._differentiable
            floats = 4 * data.workspace(dim)
            left = sum_features(network.bent_residuals, data, floats, t, x, w, c)
            return evaluate_data(network.bent_source, data, 16 * dim, t, x, w, c) - left

        def initial_bend(x: np.ndarray, w: np.ndarray, c: np.ndarray) -> np.ndarray:
            return evaluate_data(network.bent_initial, self._equation, 16 * dim, x, w, c)

        def initial(x: np.ndarray) -> np.ndarray:
            with ctx.active():
                return initial_values(self._equation, x, ctx)

        def source(t: np.ndarray, x: np.ndarray) -> np.ndarray:
            with ctx.active():
                if self._canonical.nonlinear is not None:
                    return map_points(_linearized_source, self._tangent_data, (t, x), 32 * dim, ctx)
                return forcing(self._equation, (t, x), ctx)

        # The factor of u0 in ũ(0, ·).
        begun = sum(
            float(np.asarray(block.start) @ np.asarray(w)[:, 0]) for block, w in self._blocks
        )
        # Features come in pairs, and a gradient costs about three values.
        slope_cost = 6 * sum(len(w) for _, w in self._blocks)
        return NetworkEvaluator(
            value=value,
            residual=residual,
            gradient=gradient,
            initial=initial,
            source=source,
            residual_gradient=residual_gradient,
            initial_gradient=initial_gradient,
            value_bend=value_bend,
            residual_bend=residual_bend,
            initial_bend=initial_bend,
            start=1 - begun,
            slope_cost=slope_cost,
        )

    def _force(self, s: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The source at canonical points s (n,), y (n, dim); at ũ where it depends on u."""
        if self._canonical.nonlinear is None:
            return forcing(self._equation, (s, y), self._quiet)
        floats = 32 * self._canonical.dim
        return map_points(_source_at_network, self._tangent_data, (s, y), floats, self._quiet)

    def _source_changes(
        self, s: np.ndarray, y: np.ndarray, size: np.ndarray, t: np.ndarray
    ) -> np.ndarray:
        """The change of the derivatives of the source over errors of some size; see `bent`."""
        diffusion = on_device(self._canonical.diffusion)
        data = (*self._tangent_data, diffusion, on_device(self._canonical.coefficients))
        return map_points(
            derivative_variation, data, (s, y, size, t), 64 * self._canonical.dim, self._quiet
        )

    @cached_property
    def _tangent_data(self) -> tuple[Any, linearization.Fit]:
        """The nonlinear source, and the network at which it is linearized."""
        return self._canonical.nonlinear, linearization.Fit(self._equation, self._blocks)

    @cached_property
    def _linear(self) -> CanonicalProblem:
        """The linear problem that the error of this solution solves."""
        if self._canonical.nonlinear is None:
            return self._canonical
        return linearization.linearize(self._canonical, self._tangent_data[1])

    def _contract(
        self,
        terms: Callable[..., Any],
        points: EvaluationPoints,
        floats: int,
        equation: Equation | None = None,
    ) -> np.ndarray:
        """Sum `terms` over all features at n points; a `NumericalError` where not finite."""
        data, where = equation or self._equation, (points.s, points.y)
        with self._ctx.active():
            total = weighted_sum(terms, self._blocks, data, where, floats, self._ctx, "points")
        bad = np.flatnonzero(~np.isfinite(total).reshape(len(points.t), -1).all(axis=1))
        if bad.size:
            example = place([points.t[bad[0]], points.x[bad[0]]])
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
