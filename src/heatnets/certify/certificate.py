"""Results and options of certificates: intervals for values and derivatives, error over the region.

Each result carries the reasons why it cannot be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from heatnets._core import streams
from heatnets._core.reasons import Reason, ReasonKind, is_kind
from heatnets.pde.canonical import CanonicalProblem

SCALED = ("value", "error", "halfwidth")  # fields in units of u, or of its slopes
_WIDE = 5e-3  # a half-width relative to the value, above which it is called wide
_ARRAYS = (*SCALED, "certified", "samples")  # fields that are arrays over the points

Reasons = list[tuple[str, ...]]  # messages for each point; none where it is certified


def rounded(value: float, half: float) -> str:
    """A value with the digits that are certain by its half-width, and one more."""
    if not (np.isfinite(value) and np.isfinite(half) and value and half):
        return f"{value:.10g}"
    digits = int(np.floor(np.log10(abs(value)))) - int(np.floor(np.log10(half))) + 2
    return f"{value:.{min(max(digits, 1), 16)}g}"


@dataclass(frozen=True)
class Certificate:
    """Confidence intervals for the true solution at one point or at n points.

    Arrays have the shape () for one point and (n,) for n points. For a gradient the arrays `value`,
    `error`, `low`, `high` and `halfwidth` have the shape (dim,) or (n, dim).

    Attributes:
        value: the network's value plus its estimated error; the centre of the interval.
        error: the estimated error of the network, u - ũ.
        halfwidth: half of the width of the interval.
        certified: whether the interval holds the true value with the given confidence.
        reasons: why a point is not certified, or why a requested half-width was not reached, or
            that an interval is wide and how to narrow it: a tuple of messages for one point, a
            tuple of such tuples for n points.
        method: the form of the error equation that was sampled.
        samples: the number of samples taken at each point.
        confidence: the confidence level of each interval.
        requested: the half-width that was asked for, or None.
    """

    value: np.ndarray
    error: np.ndarray
    halfwidth: np.ndarray
    certified: np.ndarray
    reasons: tuple[Any, ...]
    method: str
    samples: np.ndarray
    confidence: float
    requested: float | None = None

    @property
    def reached(self) -> np.ndarray:
        """Whether the requested half-width was reached, () or (n,); true if none was asked for."""
        target = np.inf if self.requested is None else self.requested
        within = np.asarray(self.halfwidth <= target)
        return np.asarray(within.all(axis=-1) if within.ndim > np.ndim(self.certified) else within)

    @property
    def low(self) -> np.ndarray:
        """Lower end of the interval."""
        return self.value - self.halfwidth

    @property
    def high(self) -> np.ndarray:
        """Upper end of the interval."""
        return self.value + self.halfwidth

    @property
    def network(self) -> np.ndarray:
        """The value of the network itself, of the shape of `value`."""
        return self.value - self.error

    @property
    def outside(self) -> np.ndarray:
        """Whether the value of the network lies outside the interval, of the shape of `value`."""
        return np.asarray(np.abs(self.error) > self.halfwidth)

    def says_outside(self, i: int | None = None) -> str:
        """A message where the network lies outside a certified interval, else an empty string.

        Args:
            i: the index of the point; None for a certificate of one point.
        """
        index: Any = ... if i is None else i
        apart = self.outside[index]
        if not (self.certified[index] and np.any(apart)):
            return ""
        if apart.ndim:
            components = f"{int(np.sum(apart))} of {apart.size} components"
            return f"the network's gradient lies outside in {components}"
        value = rounded(float(self.network[index]), float(self.halfwidth[index]))
        return f"the network's value {value} lies outside"

    @staticmethod
    def join(parts: Sequence[tuple[np.ndarray, Certificate]]) -> Certificate:
        """The certificate of all points from those of some, each with the indices of its points."""
        (_, first), *others = parts
        if not others:
            return first
        order = np.argsort(np.concatenate([chosen for chosen, _ in parts]))
        certs = [cert for _, cert in parts]
        reasons = [why for cert in certs for why in cert.reasons]
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(cert, name) for cert in certs])[order] for name in _ARRAYS
        }
        method = " or ".join(cert.method for cert in certs)
        return replace(first, **arrays, reasons=tuple(reasons[i] for i in order), method=method)

    def rescale(self, unit: np.ndarray | float) -> Certificate:
        """The certificate in other units: `unit` times values, errors and half-widths."""
        return self.map(lambda a: unit * a, SCALED)

    def map(self, f: Callable[[Any], Any], names: tuple[str, ...], **more: Any) -> Certificate:
        """The certificate with a function applied to some of its arrays, and with other fields."""
        return replace(self, **{name: f(getattr(self, name)) for name in names}, **more)

    def widen(self, more: np.ndarray) -> Certificate:
        """The certificate with larger half-widths."""
        return replace(self, halfwidth=self.halfwidth + more)

    def add_reasons(self, reasons: Reasons, first: bool = False) -> Certificate:
        """The certificate of n points, not certified at points with reasons against it.

        The reasons come before those that it has, if `first`, else after them.
        """
        pairs = zip(*((reasons, self.reasons) if first else (self.reasons, reasons)), strict=True)
        return replace(
            self,
            certified=self.certified & np.array([not why for why in reasons]),
            reasons=tuple((*a, *b) for a, b in pairs),
        )

    def add_allowance(
        self, bound: np.ndarray, reasons: Reasons, cause: str, target: float | None = None
    ) -> Certificate:
        """The certificate of n points with a bound of another error in its half-widths.

        Args:
            bound: added to the half-widths, (n,).
            reasons: why a point is not certified, for each point.
            cause: of the other error, for messages.
            target: the requested half-width; a message is added where only `bound` exceeds it.
        """
        cert = self.add_reasons(reasons).widen(bound)
        if target is None:
            return cert
        text = f"the half-width {target:.2g} was not reached: {cause} alone may be "
        missed = (cert.halfwidth > target) & (self.halfwidth <= target)
        notes = (Reason(ReasonKind.TOO_WIDE, f"{text}{b:.2g}") for b in bound)
        return cert.add_notes([(n,) if m else () for n, m in zip(notes, missed, strict=True)])

    def with_request(self, target: float | None) -> Certificate:
        """The certificate of n points with the requested half-width; where it is wider, it says so.

        Points of which more samples could not have made more have no message yet.
        """
        if target is None:
            return self
        cert = replace(self, requested=target)
        notes: Reasons = []
        for half, reached, reasons in zip(cert.widest, cert.reached, cert.reasons, strict=True):
            text = (
                f"the half-width {target:.2g} was not reached (it is {half:.2g}), and more samples "
                "do not help: solve to a smaller `tol`, or with a region nearer to the point"
            )
            is_silent = not reached and not any(is_kind(r, ReasonKind.TOO_WIDE) for r in reasons)
            notes.append((Reason(ReasonKind.TOO_WIDE, text),) if is_silent else ())
        return cert.add_notes(notes)

    def add_notes(self, notes: Reasons) -> Certificate:
        """The certificate of n points with further messages; what is certified stays so."""
        pairs = zip(self.reasons, notes, strict=True)
        return replace(self, reasons=tuple((*a, *b) for a, b in pairs))

    @property
    def widest(self) -> np.ndarray:
        """The largest half-width of each of n points, (n,)."""
        return self.halfwidth.reshape(len(self.halfwidth), -1).max(axis=1)

    def width_notes(self) -> Reasons:
        """For each of n points a message if its interval is wide, with the way to a narrower one.

        For certificates of data with kinks or jumps, whose samples are noisy.
        """
        size = np.abs(self.value).reshape(len(self.value), -1).max(axis=1)
        fold = "20 to 30" if self.method.startswith("quasi") else "about 100"
        is_wide = self.certified & (self.widest > _WIDE * size) & (size > 0)
        return [
            (
                f"wide, {100 * half / value:.2g} % of the value, as data with kinks or jumps make "
                f"samples noisy: halfwidth={half / 10:.1g} takes {fold} times the samples",
            )
            if wide
            else ()
            for wide, half, value in zip(is_wide, self.widest, size, strict=True)
        ]

    def first_point(self) -> Certificate:
        """The certificate of the first of n points, with arrays of shape ()."""
        return self.map(lambda a: a[0], _ARRAYS, reasons=self.reasons[0])

    def __str__(self) -> str:
        return self.words()

    def words(self, solved: bool = True) -> str:
        """A line of text for each point.

        Args:
            solved: whether the network solves its problem. If not, the network's value is not
                shown, nor a value that is not certified.
        """
        cert = self
        if np.ndim(self.certified) == 0:
            cert = self.map(lambda a: np.asarray(a)[None], _ARRAYS, reasons=(self.reasons,))
        return "\n".join(cert._line(i, solved) for i in range(len(cert.certified)))

    def _line(self, i: int, solved: bool) -> str:
        """The line of text of point i of n."""
        level = f"{100 * self.confidence:g} %, {self.method}, {self.samples[i]} samples"
        reasons = "".join(f"; {why}" for why in self.reasons[i])
        certified, outside = self.certified[i], self.says_outside(i)
        if not solved and not certified:
            return f"-, not certified{reasons}"
        if self.value.ndim == 2:  # a gradient: show the widest interval
            d, half = self.value.shape[1], self.halfwidth[i]
            shown = [rounded(v, h) for v, h in zip(self.value[i, :4], half[:4], strict=True)]
            shown += ["..."] if d > 4 else []
            level += f"; {outside}" if outside else ""
            verdict = "" if certified else ", not certified"
            widest = f"half-widths up to {float(np.max(half)):.2g}"
            return f"({', '.join(shown)}), {widest} ({level}){verdict}{reasons}"
        value, half = float(self.value[i]), float(self.halfwidth[i])
        if not certified:
            return f"{value:.6g}, not certified{reasons}"
        if solved:
            level = f"{level}; " + (outside or "the network's value lies inside")
        return f"{rounded(value, half)} ± {half:.2g} ({level}){reasons}"


@dataclass(frozen=True)
class RegionError:
    """The relative L2 error over (0, T] x region, estimated without an exact solution.

    Attributes:
        value: the estimate.
        low: lower end of its confidence interval.
        high: upper end of its confidence interval.
        maximum: estimate of a bound of the largest error, relative to the same size of u. By the
            maximum principle |u - ũ| <= sup |e0| + T sup |R|; the largest values on sampled paths
            take the place of the suprema. None where there is no residual (kinked data), and where
            the reaction is a function.
        certified: whether the interval holds the error with the given confidence.
        reasons: why it is not certified.
        method: "residual" or "Monte Carlo".
        points: the number of random points.
        samples: the number of samples at each point.
        confidence: the confidence level of the interval.
    """

    value: float
    low: float
    high: float
    maximum: float | None
    certified: bool
    reasons: tuple[str, ...]
    method: str
    points: int
    samples: int
    confidence: float

    def __str__(self) -> str:
        words = "" if self.certified else f"; not certified: {'; '.join(self.reasons)}"
        level = f"{100 * self.confidence:g} %, {self.points} points{words}"
        if self.low < 0.01 * self.high:  # the estimate itself is noise
            return f"below {self.high:.2g} ({level})"
        return f"{self.value:.2g} (between {self.low:.2g} and {self.high:.2g}, {level})"


class CertifyOptions(NamedTuple):
    """Options of a certificate, and what is known of its n points.

    Attributes:
        samples: samples at each point, in antithetic pairs.
        confidence: confidence level of the intervals.
        seed: seed of the random numbers.
        halfwidth: requested half-width in the user's units, or None.
        smooth: whether ũ is smooth, so that the residual form may be used.
        tell: progress callback (points done, points).
        unit: factor from values of the canonical problem to the user's, broadcast to (n,), or to
            (n, dim) for a gradient.
        rounding_scale: size of the numbers that the points were computed from, (n, dim); None
            where the points are the user's, unchanged.
        marks: marks of the points in their random streams, so that the samples of a point do not
            depend on the other points; None to use their index.
        rare: an error in the user's units that some path is known to have, and that samples may
            miss.
        quadrature: errors of one feature, where features are integrals, on paths from the points,
            (n,): as far as they are larger than the bound that the problem knows.
        hopeless: indices of points that are known not to be certified, or not to reach the
            half-width: they get `samples` samples and no more.
        announce: takes a line of text about long work that begins.
    """

    samples: int
    confidence: float
    seed: int
    halfwidth: float | None
    smooth: bool
    tell: Callable[[int, int], None]
    unit: np.ndarray | float = 1.0
    rounding_scale: np.ndarray | None = None
    marks: list[streams.Mark] | None = None
    rare: float = 0.0
    quadrature: np.ndarray | None = None
    hopeless: frozenset[int] = frozenset()
    announce: Callable[[str], None] = lambda text: None

    def at(self, chosen: np.ndarray) -> CertifyOptions:
        """The options for some of the points."""
        arrays = {name: getattr(self, name) for name in ("unit", "rounding_scale", "quadrature")}
        some = {name: a if np.ndim(a) == 0 else a[chosen] for name, a in arrays.items()}
        marks = None if self.marks is None else [self.marks[i] for i in chosen]
        return self._replace(**some, marks=marks)

    def rng(self, stream: str, i: int) -> np.random.Generator:
        """The random generator of point i in a named stream."""
        mark = (int(i),) if self.marks is None else self.marks[i]
        return streams.generator(self.seed, stream, mark)


def make_certificate(
    problem: CanonicalProblem,
    points: Sequence[Any],
    value: np.ndarray,
    error: np.ndarray,
    method: str,
    options: CertifyOptions,
) -> Certificate:
    """The certificate in the user's units; a point is certified if nothing speaks against it.

    Args:
        problem: the problem that the error solves.
        points: the samples of the n points (`sequential.PointSamples`).
        value: centres of the intervals, (n,) or (n, k).
        error: estimated errors of the network, of the same shape.
        method: its name in the certificate.
        options: of the certificate.
    """
    half = np.stack([point.half for point in points])
    finite = np.isfinite(value + half).reshape(len(points), -1).all(axis=1)
    not_finite, jumps = ("the value or its interval is not finite",), jump_reasons(problem)
    reasons = [
        (*(p.reasons or (() if is_finite else not_finite)), *p.order_reasons, *jumps)
        for p, is_finite in zip(points, finite, strict=True)
    ]
    return Certificate(
        value=value,
        error=error,
        halfwidth=half,
        certified=np.array([not why for why in reasons]),
        reasons=tuple((*why, *p.missed) for why, p in zip(reasons, points, strict=True)),
        method=method,
        samples=np.array([p.drawn for p in points]),
        confidence=options.confidence,
    ).rescale(options.unit)


def jump_reasons(problem: CanonicalProblem) -> tuple[str, ...]:
    """Why nothing is certified where coefficients jump: halving the steps does not show the bias.

    Returns one message for each coefficient that jumps.
    """
    names = () if problem.coefficients is None else problem.coefficients.jumps
    return tuple(f"`{name}` jumps: the bias of paths in steps is not known there" for name in names)
