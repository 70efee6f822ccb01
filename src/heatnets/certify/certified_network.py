"""Certificates of a solved network: values, derivatives, error over the region, explanations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np
from jaxtyping import Array

from heatnets._core import streams
from heatnets._core.errors import InputError, WarningLog, check_fraction, check_int, check_positive
from heatnets._core.execution import ExecutionContext, Progress, make_context
from heatnets._core.precision import EPS, with_x64
from heatnets._core.progress import shown_progress
from heatnets._core.reasons import ReasonKind, is_kind
from heatnets._core.statistics import MAX_KURTOSIS_RATIO
from heatnets.certify import data_checks, derivatives, values
from heatnets.certify.certificate import Certificate, CertifyOptions, RegionError, jump_reasons
from heatnets.certify.certificate_progress import CertificateProgress
from heatnets.certify.evaluator import NetworkEvaluator
from heatnets.certify.explain import Explanation, explain
from heatnets.certify.far_paths import far_error
from heatnets.certify.importance_points import WeightedPoints
from heatnets.certify.linearization_error import linearization_error
from heatnets.certify.reference_values import ReferenceValues, reference_stream
from heatnets.certify.region_error import region_error
from heatnets.features.features import Equation, Feature, TransportedSource
from heatnets.features.kernels import KernelSource
from heatnets.fit.assembly import time_powers, value_rows
from heatnets.pde import smoothness
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.fingerprint import mark
from heatnets.pde.preintegration_choice import LineErrors, line_errors
from heatnets.pde.problem import Problem


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


def check_certify_options(
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


S = TypeVar("S", bound="CertifiedNetwork")
P = ParamSpec("P")
R = TypeVar("R")
Method = Callable[Concatenate[S, P], R]


def in_context(method: Method[S, P, R]) -> Method[S, P, R]:
    """Decorator: run a method of a network in float64, on its device, with its memory limit."""

    @with_x64
    @wraps(method)
    def wrapped(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._ctx.processes.watch(), self._ctx.active():
            return method(self, *args, **kwargs)

    return wrapped


def _at_all(certify: Callable[..., Certificate]) -> Callable[..., Certificate]:
    """The same function, with the indices `chosen` of its points as an argument."""
    return lambda *arguments, chosen: certify(*arguments)


class CertifiedNetwork:
    """A network ũ that solves a problem, with certificates: the base class of `Solution`."""

    problem: Problem
    stats: Mapping[str, Any]
    weights: tuple[np.ndarray, ...]
    _canonical: CanonicalProblem
    _equation: Equation
    _blocks: list[tuple[Feature, Array]]
    _ctx: ExecutionContext

    def _locate(self, t: Any, x: Any, positive_time: bool = False) -> EvaluationPoints:
        """Check points of the user, and map them to the canonical problem."""
        times, places, single = self.problem.as_points(t, x, positive_time=positive_time)
        transform = self.problem.transform
        value_scale = transform.value_scale(times)
        s, y = transform.to_canonical(times, places)
        return EvaluationPoints(
            t=times,
            x=places,
            s=s,
            y=y,
            value_scale=value_scale,
            slope=value_scale[:, None] * transform.jacobian_diag(times, places),
            rate=transform.time_derivative(times),
            single=single,
        )

    @in_context
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
        Where they have kinks or jumps, and for Gaussian kernels, u0 is sampled at points of
        scrambled Sobol' nets if coefficients are constant, and only a source at random paths; else
        the samples are of the martingale form, which needs no smoothness (docs/trust.md).

        Args:
            t: one time (), or n times (n,).
            x: one point (dim,), or n points (n, dim).
            samples: random paths from each point, in antithetic pairs; four or sixteen times as
                many where their tails look heavy. Points of each of 64 nets, where there are nets.
            confidence: confidence level of the interval at each point.
            seed: seed of the samples. They are independent of the solve, whatever its seed was.
            halfwidth: samples are added until no interval has a larger half-width than this (in
                units of u), up to 1024 times `samples`. Where that is not enough, sampling stops
                as soon as this is clear; a warning says so, and what would be enough.
            progress: called as progress("certificate", points done, points); by default the
                callback of the solve. Without one, the state is shown in one line of a terminal;
                elsewhere, work of more than ten seconds is announced on standard error, and
                reported there every ten seconds. A point costs as much as `samples` rows of the
                system of the solve.

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
        certify = _at_all(values.certify)
        return self._certify(certify, points, points.value_scale, arguments, progress)

    @in_context
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
        derivative; where features integrate these, of that of residuals on all but short paths.

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
        certify = _at_all(derivatives.certify_gradient)
        return self._certify(certify, points, points.slope, arguments, progress, derivative=True)

    @in_context
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
        w, c = self.problem.transform.push_curve(points.t, points.x, along * np.ones_like(points.x))

        def certify(u: NetworkEvaluator, *at: Any, chosen: np.ndarray) -> Certificate:
            return derivatives.certify_curvature(u, *at, curves=(w[chosen], c[chosen]))

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
        *,
        derivative: bool = False,
    ) -> Certificate:
        """Check the options, and certify values or derivatives.

        Points whose paths meet kinks that features do not integrate get the martingale form, the
        others the residual form.

        Args:
            certify: `values.certify`, `derivatives.certify_gradient` or the like, at the points
                with the indices `chosen`.
            points: where.
            unit: factor from quantities of the canonical problem to the user's.
            arguments: samples, confidence, seed and halfwidth, as the user gave them.
            progress: progress callback of the user, or None.
            derivative: whether a derivative is certified.
        """
        samples, level, seed, target = check_certify_options(*arguments)
        self.problem.check_unchanged()
        if derivative and self._canonical.source.uses_u:
            raise InputError(
                "certified derivatives are for sources that do not depend on u: what the tangent "
                "of such a source leaves out is bounded for values alone. "
                "u.gradient(t, x) is the network's; u.certify at two nearby points bounds a "
                "difference."
            )
        smooth = self._smooth_from(points.s, points.y)
        if derivative and not np.all(smooth) and self._canonical.coefficients is not None:
            raise InputError(
                "certified derivatives of data with kinks or jumps need constant coefficients: "
                "the weight that takes a derivative's place is known for those. "
                "Smooth the data, or certify values at nearby points."
            )
        transform, n = self.problem.transform, len(points.t)
        rounding_scale = None
        if transform.changes:
            rounding_scale = transform.rounding_scale(points.t, points.x)
        levels = 1 if self.network.error_problem.coefficients is None else 3
        work = 1.3 * levels * n * samples  # with checks
        parts = []
        with self._shown_progress(progress) as shown:
            reporter = CertificateProgress(shown, n, work)
            options = CertifyOptions(
                samples=samples,
                confidence=level,
                seed=seed,
                halfwidth=target,
                smooth=True,
                tell=reporter.tell,
                announce=reporter.announce,
                unit=unit,
                rounding_scale=rounding_scale,
                marks=streams.marks(self._mark, points.t, points.x),
                rare=0.0 if derivative else self._rare_error,
                quadrature=self._line_errors(points.s, points.y).difference,
            )
            with self.network.reporting(reporter.repeat):
                for is_smooth in (True, False):
                    chosen = np.flatnonzero(smooth == is_smooth)
                    if len(chosen):
                        some = options.at(chosen)._replace(smooth=is_smooth)
                        here = partial(certify, chosen=chosen)
                        cert = self._certify_alike(here, points, some, chosen, derivative)
                        parts.append((chosen, cert))
        cert = Certificate.join(parts)
        if transform.changes:
            # Rounding of exponentials and logarithms in the change of coordinates.
            cert = cert.widen(4 * EPS * np.abs(cert.value))
        cert = cert.with_request(target)
        if np.any(missed := ~cert.reached):
            reasons = cert.reasons[int(np.argmax(missed))]
            why = next(why for why in reasons if is_kind(why, ReasonKind.TOO_WIDE))
            WarningLog().warn(
                f"{int(np.sum(missed))} of {n} intervals are wider than halfwidth={target:g}, up "
                f"to {float(np.max(cert.widest)):.2g}: {why}."
            )
        return cert.first_point() if points.single else cert

    def _certify_alike(
        self,
        certify: Callable[..., Certificate],
        points: EvaluationPoints,
        options: CertifyOptions,
        chosen: np.ndarray,
        derivative: bool,
    ) -> Certificate:
        """Certify some of the points by one form, and add the doubts about their samples."""
        s, y, unit, target = points.s[chosen], points.y[chosen], options.unit, options.halfwidth
        pairs = enumerate(zip(s, y, strict=True))
        doubts = [self._sampling_doubts(*at, options, i) for i, at in pairs]
        options = options._replace(hopeless=self._hopeless_points(s, y, options, doubts))
        cert = certify(self.network, s, y, options)
        if self._canonical.source.uses_u:
            left_out = linearization_error(self.network, s, y, options, cert.error / unit)
            cert = cert.add_allowance(
                unit * left_out.bound, left_out.reasons, "the error's square", target
            )
        elif options.smooth and not derivative:
            half, found = cert.halfwidth / unit, self._far_error > 0
            far = far_error(self.network, s, y, options, half, found)
            cert = cert.add_allowance(unit * far.bound, far.reasons, "paths that go far", target)
        cert = cert.add_reasons(doubts, first=True)
        if target is None and not options.smooth:
            cert = cert.add_notes(cert.width_notes())
        return cert

    def _hopeless_points(
        self, s: np.ndarray, y: np.ndarray, options: CertifyOptions, doubts: list[tuple[str, ...]]
    ) -> frozenset[int]:
        """Points that more samples cannot help: what speaks against them is known beforehand."""
        n, target, unit = len(s), options.halfwidth, options.unit
        if jump_reasons(self._canonical):
            return frozenset(range(n))
        hopeless = {i for i in range(n) if doubts[i]}
        if target is not None and self._canonical.source.uses_u:
            left_out = linearization_error(self.network, s, y, options, np.zeros(n))
            too_much = unit * left_out.bound >= target
            hopeless |= {i for i in range(n) if too_much[i] or left_out.reasons[i]}
        return frozenset(hopeless)

    def _sampling_doubts(
        self, s: float, y: np.ndarray, options: CertifyOptions, i: int
    ) -> tuple[str, ...]:
        """Why samples of the data on paths from point i, (s, y), do not determine a mean."""
        if s == 0:
            return ()
        rng = options.rng("encounters", i)
        start = (float(s), y)
        doubt = data_checks.doubt(self._canonical, not options.smooth, rng, self._quiet, start)
        return () if doubt is None or doubt.curable else (doubt.words,)

    @in_context
    def error(
        self, *, points: int = 512, samples: int = 8, confidence: float = 0.95, seed: int = 0
    ) -> RegionError:
        """The relative L2 error over (0, T] x region, with a confidence interval.

        No exact solution is needed. If the region is a `Point`, it is the error at t = T (at t = 0
        for a terminal-value problem).

        Args:
            points: points of the region (for smooth data chosen from four times as many).
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
        linear = not self._canonical.source.uses_u
        error = region_error(
            self.network,
            points=points,
            samples=samples,
            confidence=check_fraction("confidence", confidence),
            seed=streams.check_seed(seed),
            smooth=self._smooth,
            mark=self._mark,
            rare=self._rare_error > 0,
            reference=partial(self._reference_values, seed) if linear else None,
        )
        error = self._with_far_error(error)
        rng = streams.generator(seed, "region encounters", self._mark)
        doubt = data_checks.doubt(self._canonical, not self._smooth, rng, self._quiet)
        if doubt is None or (doubt.curable and error.high <= data_checks.EXACT):
            return error
        return replace(error, certified=False, reasons=(doubt.words, *error.reasons))

    @property
    def _far_error(self) -> float:
        """The relative error that the solve found on paths that go far; zero if none."""
        return (self.stats.get("check") or {}).get("far_error", 0.0)

    def _with_far_error(self, error: RegionError) -> RegionError:
        """The result of `error`, not certified if the solve found more on paths that go far."""
        if not self._far_error > error.high:
            return error
        text = f"paths that go too far for these samples carry an error of {self._far_error:.2g}"
        return replace(error, certified=False, reasons=(*error.reasons, text))

    @property
    def _rare_error(self) -> float:
        """An error that samples may miss; zero where the final check of the solve found no such.

        T times the largest residual in that check, where only few of its samples were so large.
        """
        check = self.stats.get("check") or {}
        if check.get("tails", 0.0) <= MAX_KURTOSIS_RATIO:
            return 0.0
        return check["largest_residual"] * check["size"]

    def _reference_values(self, seed: int, points: WeightedPoints) -> ReferenceValues:
        """Monte Carlo values at canonical points.

        They cost a small part of the network's residuals there.
        """
        rng = reference_stream(seed, "region error", self._mark)
        reference = ReferenceValues(
            self._canonical,
            self._equation,
            (points.t, points.x),
            rng,
            self._quiet,
            pool=points.statistics,
        )
        reference.extend(8 * len(points.t) * sum(len(w) for w in self.weights))
        return reference

    @in_context
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
        where, terms = (points.s, points.y), {}
        for block, w in self._blocks:
            feature = getattr(block, "feature", block)
            is_source = isinstance(feature, TransportedSource | KernelSource)
            phi = np.asarray(value_rows(self._equation, [block], where, self._quiet, ""))[0]
            weights = np.asarray(w) @ time_powers(points.s[0], w.shape[1] - 1)[0]
            terms["source" if is_source else "initial"] = (weights, phi)
        (mark,) = streams.marks(self._mark, points.t, points.x)
        rng = streams.generator(streams.check_seed(seed), "explanation", mark)
        point, unit = (float(points.s[0]), points.y[0]), float(points.value_scale[0])
        parts = explain(self.network, terms, point, unit, samples, rng)
        (time,) = points.t
        lags = np.abs(time - self.problem.transform.inverse_time(points.s[0] - parts.lags))
        return replace(parts, t=float(time), x=points.x[0], lags=lags)

    @cached_property
    @in_context
    def kinks(self) -> str:
        """Which of the data have kinks or jumps, as text; empty where none were found.

        Where they have, `residual` is no measure of the error.
        """
        kinks = smoothness.find_kinks(self._canonical, self.stats["seed"], self._quiet)
        return smoothness.format_kinks(kinks)

    @cached_property
    def _mark(self) -> streams.Mark:
        """A mark of the problem: random streams of certificates depend on it and on the seed."""
        return mark(self.problem)

    @cached_property
    def _smooth(self) -> bool:
        """Whether the residual form may be used: neither data nor features have kinks or jumps."""
        return self.stats["family"] == "importance" and not self.kinks

    def _smooth_from(self, t: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The same on paths from each of the points t (n,), x (n, dim), (n,).

        The points may lie outside the region.
        """
        seed = self.stats["seed"]
        if not self._smooth or smoothness.find_kinks(self._canonical, seed, self._quiet, (t, x)):
            return np.zeros(len(t), bool)
        return self._line_errors(t, x).share == 0

    def _line_errors(self, t: np.ndarray, x: np.ndarray) -> LineErrors:
        """Errors of features that are integrals, on paths from points t (n,), x (n, dim)."""
        if self._canonical.preintegration is None:
            return LineErrors(np.zeros(len(t)), np.zeros(len(t)))
        return line_errors(self._canonical, self.stats["seed"], self._quiet, t, x)

    def _shown_progress(self, progress: Progress | None) -> AbstractContextManager[Progress]:
        """The callback of this call, or of the solve; where there is none, standard error."""
        if progress is not None:
            progress = make_context(self._ctx.device, None, progress).progress
        elif not self._ctx.is_silent:
            progress = self._ctx.progress
        return shown_progress("certificate", progress)

    @cached_property
    def _quiet(self) -> ExecutionContext:
        """The execution context without progress reports."""
        return replace(self._ctx, progress=lambda phase, done, total: None)

    @cached_property
    def network(self) -> NetworkEvaluator:
        """The network and the data of its problem, as certificates evaluate them."""
        seed = self.stats["seed"]
        return NetworkEvaluator(self._canonical, self._equation, self._blocks, seed, self._quiet)
