"""What the user states: u_t = div(A ∇u) + b·∇u + c u + F(t, x, u, ∇u) on R^d, u(0, x) = u0(x), 0 <= t <= T. Nothing numerical."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from heatnets._core import streams
from heatnets._core.errors import (
    InputError,
    WarningLog,
    choice,
    count,
    numeric,
    positive,
    short_repr,
)
from heatnets._core.precision import LOW, is_rounded, with_x64
from heatnets.pde import coefficients
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.coefficients import CoefficientField, varies
from heatnets.pde.diffusion import Diffusion, Factor, LowRank
from heatnets.pde.function import Function, checked, probe
from heatnets.pde.nonlinearity import SemilinearSource, examine
from heatnets.pde.processes import Brownian, Process, VariableCoefficients
from heatnets.pde.regions import Box, Region
from heatnets.pde.transforms import (
    ExponentialFactor,
    TimeReversal,
    TransformChain,
    TransformedRegion,
    force,
    start,
)

_MOST_GROWTH = 100.0  # of |c| T
_STIFF = 2.0  # how much further paths may go with half as many steps
_EXPLODED = 1e6  # times the size of the region and of what paths scatter
_PROBE_COORDINATES = 2**22  # 256 probe points up to d = 16,384, fewer beyond, 32 at least


class Problem:
    """A parabolic problem `u_t = div(A ∇u) + b·∇u + c u + F(t, x, u, ∇u)`, `u(0, x) = u0(x)` on all of R^d, for 0 <= t <= T.

    Args:
        dim: number of space coordinates d >= 1.
        horizon: the final time T > 0.
        initial: u0, a function of x (shape (dim,), also for dim = 1) that returns a scalar; or `hn.Function`.
        source: F, a function of (t, x) that returns a scalar; or of (t, x, u), or (t, x, u, du) with du the gradient; None for F = 0.
        diffusion: A, with no hidden one half: D > 0 for D Δu, one number per coordinate, a symmetric positive definite matrix,
            `hn.Factor(S)` for S Sᵀ, or `hn.LowRank(diag, U)` for diag + U Uᵀ; or a function A(t, x) that returns a number, a diagonal
            or a matrix (`hn.Factor` of a function: S), and then `form` must be said.
        region: where the answer is wanted: `hn.Box`, `hn.Point` or `hn.Normal`.
        exact: the solution u(t, x) where it is known; only ever used to measure.
        drift: b, one number or one per coordinate; or a function b(t, x) that returns a vector.
        reaction: c, one number, -r for discounting at the rate r; or a function c(t, x).
        terminal: g in place of `initial`, for `u_t + div(A ∇u) + b·∇u + c u + F = 0`, `u(T, x) = g(x)`: every time stays your own.
        process: `hn.GeometricBrownian` or `hn.OrnsteinUhlenbeck` in place of `diffusion` and `drift`.
        form: "divergence" for div(A ∇u), "trace" for tr(A D²u): the same for a constant A, to be said where A is a function.
        step: a step map of your own in place of Euler's where coefficients are functions: step(t, x, h, noise) is where a path from x at the time t is
            after a time h, with `noise` standard normal.
        steps: of the paths that judge an answer (certificates, errors, Monte Carlo) where coefficients are functions, or the source depends on u; a multiple of four, default 16 (4 for
            the latter). More of them leave less bias.

    Everything is checked here: functions are traced once and evaluated at up to 512 points of the region and of
    the paths that leave it. Raises `InputError` with what was wanted, what came and what to do.

    >>> import jax.numpy as jnp, heatnets as hn
    >>> hn.Problem(dim=3, horizon=0.5, initial=lambda x: jnp.sum(jnp.sin(x)))
    Problem(dim=3, horizon=0.5, diffusion=1, region=Box(-1, 1), source=None)
    """

    dim: int
    horizon: float
    initial: Function  # u0, or the terminal condition
    data_name: str  # which of the two, by the name of its argument
    source: Function | None  # F(t, x)
    nonlinear: SemilinearSource | None  # F, where it depends on u
    diffusion: Any  # as given
    region: Region
    exact: Function | None
    process: Process
    reaction: Any  # a number, or a function as given
    is_terminal: bool
    transform: TransformChain  # from the user's times, points and values to those of `canonical`
    canonical: CanonicalProblem  # what is solved
    warnings: tuple[str, ...]
    provenance: Mapping[str, Any] | None  # the text or the name it can be made from again

    @with_x64
    def __init__(
        self,
        dim: int,
        horizon: float,
        initial: Callable[..., Any] | None = None,
        source: Callable[..., Any] | None = None,
        diffusion: Any = None,
        region: Region | None = None,
        exact: Callable[..., Any] | None = None,
        *,
        drift: Any = None,
        reaction: Any = 0.0,
        terminal: Callable[..., Any] | None = None,
        process: Process | None = None,
        form: str | None = None,
        step: Callable[..., Any] | None = None,
        steps: int | None = None,
    ) -> None:
        notes = WarningLog()
        self.dim = count("dim", dim, 1, "It is the number of space coordinates.")
        self.horizon = positive("horizon", horizon, "It is the final time T.")
        self.is_terminal = terminal is not None
        if (initial is None) == (terminal is None):
            came = "both" if self.is_terminal else "neither"
            raise InputError(
                f"a problem needs `initial` (u at t = 0) or `terminal` (u at t = horizon); got {came}."
            )
        if process is not None and not isinstance(process, Process):
            raise InputError(
                f"`process` must be hn.GeometricBrownian(...) or hn.OrnsteinUhlenbeck(...); got {short_repr(process)}. "
                "Constant coefficients are given as `diffusion` and `drift`."
            )
        if process is not None and (diffusion is not None or drift is not None):
            raise InputError(
                "`process` says how paths move and scatter: leave `diffusion` and `drift` out, or give them to the process."
            )
        self.diffusion = 1.0 if diffusion is None and process is None else diffusion
        stepping = varies(diffusion) or varies(drift) or step is not None
        self.process = process or (VariableCoefficients if stepping else Brownian)(
            self.diffusion, drift
        )
        if process is not None and step is not None:
            raise InputError(
                "`step` belongs to `diffusion` and `drift`: a process has an exact step of its own. Leave one out."
            )
        self.reaction = reaction if callable(reaction) else _reaction(reaction)
        constant, changes = (None, ()) if stepping else self.process.law(self.dim)
        growing = not callable(self.reaction) and self.reaction != 0
        before = (
            *((TimeReversal(self.horizon),) if self.is_terminal else ()),
            *((ExponentialFactor(self.reaction),) if growing else ()),
        )
        self.transform = TransformChain((*before, *changes))
        self.region = Box(-1.0, 1.0) if region is None else region
        if not isinstance(self.region, Region):
            raise InputError(
                f"`region` must be hn.Box, hn.Point or hn.Normal; got {short_repr(region)}. Write hn.Box(-1.0, 1.0)."
            )
        self.check_region(self.region, "region")
        if growing and abs(self.reaction) * self.horizon > _MOST_GROWTH:
            raise InputError(
                f"`reaction` times `horizon` must be at most {_MOST_GROWTH:g} in size: e^{self.reaction * self.horizon:.3g} is what u is multiplied by. Shorten the horizon."
            )
        if words := self.process.complaint(self.horizon, source is not None):
            raise InputError(words)
        if words := self.process.doubt():
            notes.warn(words)
        steps_given = steps is not None
        steps = count(
            "steps", 16 if steps is None else steps, 8, "It is the number of steps of a path."
        )
        if steps % 4:
            raise InputError(
                f"`steps` must be a multiple of four, as half and a quarter as many are taken too; got {steps}."
            )
        varying: CoefficientField | None = None
        if stepping or callable(self.reaction):
            c = self.reaction if callable(self.reaction) else 0.0
            varying = coefficients.coefficients(
                diffusion, drift, c, form, step, constant, self.dim, self.transform, notes
            )
        elif form is not None:
            choice("form", form, coefficients.FORMS)
        for name, value in (
            ("diffusion", diffusion),
            ("drift", drift),
            ("reaction", reaction),
            ("process", process),
        ):
            _say_rounded(name, value, notes)
        self.data_name = "terminal" if self.is_terminal else "initial"
        self.initial = checked(
            self.data_name, terminal if self.is_terminal else initial, ("x",), self.dim, notes
        )
        arguments = _arguments(source)
        given = None if source is None else checked("source", source, arguments, self.dim, notes)
        linear = len(arguments) == 2
        self.nonlinear = (
            None
            if given is None or linear
            else SemilinearSource(given, self.transform, len(arguments) == 4)
        )
        self.source = given if linear else None
        self.exact = None if exact is None else checked("exact", exact, ("t", "x"), self.dim, notes)
        same = not self.transform.changes and self.nonlinear is None
        first, last = (0.0, self.horizon) if self.is_terminal else (self.horizon, 0.0)
        self.canonical = self._checked(
            CanonicalProblem(
                dim=self.dim,
                horizon=float(self.transform.to_canonical(np.asarray(first), np.ones(self.dim))[0]),
                initial=self.initial if same else start(self.initial, self.transform),
                data_name=self.data_name,
                source=self.source
                if same or self.source is None
                else force(self.source, self.transform),
                nonlinear=self.nonlinear,
                region=self.transform_region(self.region),
                diffusion=self._reference_diffusion(varying) if constant is None else constant,
                coefficients=varying,
                steps=steps,
                steps_given=steps_given,
                zero_initial=False,
                warnings=(),
                outer_transform=self.transform,
            ),
            first,
            last,
            notes,
        )
        self.warnings, self.provenance = tuple(notes.messages), None
        self.canonical = replace(self.canonical, warnings=self.warnings)
        self._frozen = True

    def with_provenance(self, provenance: Mapping[str, Any] | None) -> Problem:
        """The same problem with the text or the name that it can be made from again."""
        other = copy(self)
        other.__dict__["provenance"] = provenance
        return other

    def _reference_diffusion(self, varying: CoefficientField | None) -> Diffusion:
        """A in the middle of the region and of the time: the scale of paths where it varies."""
        assert varying is not None
        centre = jnp.broadcast_to(jnp.asarray(self.region.centre, float), (self.dim,))
        return jax.tree.map(
            np.asarray, varying.diffusion_at(jnp.asarray(0.5 * self.horizon), centre)
        )

    def check_region(self, region: Region, name: str) -> None:
        """Refuse a region that does not fit the coordinates."""
        region.check(self.dim, name)
        if self.process.positive and not region.positive:
            raise InputError(
                f"`{name}` must lie in positive coordinates, where a geometric Brownian motion lives; got {region}. "
                "For example hn.Point(spot), or hn.Box(0.8 * spot, 1.2 * spot)."
            )

    def transform_region(self, region: Region) -> Region:
        """A region in canonical coordinates."""
        changed = bool(self.transform.changes)
        return (
            TransformedRegion(region, self.transform, self.horizon, self.is_terminal)
            if changed
            else region
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("_frozen", False):
            raise AttributeError(
                f"a Problem does not change: make a new one with another `{name}`."
            )
        super().__setattr__(name, value)

    def _checked(
        self, canonical: CanonicalProblem, first: float, last: float, notes: WarningLog
    ) -> CanonicalProblem:
        """Refuse functions that are not finite where paths lead; complete the problem by what they show.

        Paths start at the time `first`; the data are given at the time `last`.
        """
        rng = streams.generator(0, "probe")
        n = max(32, min(256, _PROBE_COORDINATES // self.dim))
        x = self.region.sample(rng, n, self.dim)
        fraction = rng.random(n)
        noise = canonical.paths.draw(rng, (n,), self.dim)
        t = self.horizon * (1 - fraction if self.is_terminal else fraction)
        s, y = self.transform.to_canonical(np.full(n, first), x)
        far = canonical.paths.go(s, y, s, noise).place
        if canonical.coefficients is not None:
            canonical = self._check_varying(canonical, notes, s, y, far, fraction, noise)
        ends = self.transform.from_canonical(np.zeros(n), far)[1]
        paths = np.concatenate([x, ends])
        times = np.concatenate([t, t])
        initial = probe(
            self.data_name,
            self.initial,
            (paths,),
            "in the region and along the paths that leave it",
        )
        if not np.any(
            initial
        ):  # what is zero everywhere gets no features: look at many more places before saying so
            many = self.region.sample(
                rng, max(64, min(8192, 8 * _PROBE_COORDINATES // self.dim)), self.dim
            )
            initial = np.append(
                initial, probe(self.data_name, self.initial, (many,), "in the region")
            )
        if self.source is not None:
            probe(
                "source",
                self.source,
                (times, paths),
                "in the region and along the paths that leave it",
            )
        if self.nonlinear is not None:
            info = examine(
                self.nonlinear,
                self.initial,
                canonical.initial,
                self.horizon,
                (times, paths),
                (s, y, far),
                initial[: 2 * n],
                rng,
            )
            canonical = replace(
                canonical,
                u_range=info.u_range,
                source_has_kinks=info.source_has_kinks,
                flow_resolved=info.flow_resolved,
            )
        if self.exact is not None:
            begin = probe("exact", self.exact, (np.full(n, last), x), "in the region")
            gap = np.max(np.abs(begin - initial[:n]))
            if gap > 1e-6 * max(np.max(np.abs(begin)), np.max(np.abs(initial[: 2 * n]))):
                notes.warn(
                    f"`exact` at t = {last:g} differs from `{self.data_name}` by up to {gap:.2g}: errors measured against it will mislead."
                )
        canonical = replace(canonical, zero_initial=not np.any(initial))
        return canonical if self.nonlinear is None else canonical.with_source_guess()

    def _check_varying(
        self,
        canonical: CanonicalProblem,
        notes: WarningLog,
        s: np.ndarray,
        y: np.ndarray,
        far: np.ndarray,
        fraction: np.ndarray,
        noise: np.ndarray,
    ) -> CanonicalProblem:
        """Refuse coefficients that are no operator where paths lead, and processes whose paths leave for infinity, or whose steps do."""
        varying = canonical.coefficients
        assert varying is not None
        coefficients.check(varying, s * fraction, y)
        inside = canonical.paths.go(s, y, (1 - fraction) * s, noise).place
        whole = np.all(np.isfinite(inside) & (np.abs(inside) < _EXPLODED), axis=1)
        if np.any(whole):
            coefficients.check(varying, s[whole] * fraction[whole], inside[whole])
        _, half, pairs = canonical.paths.levels(noise)[1]
        coarse = half.go(s, y, s, pairs).place
        reach = (
            np.max(np.abs(y))
            + float(np.max(np.sqrt(2 * s)) * np.max(canonical.diffusion.deviations))
            + 1
        )
        gone = ~np.all(np.abs(far) < _EXPLODED * reach, axis=1)
        wide = [
            float(np.linalg.norm(np.where(np.isfinite(p), np.clip(p - y, -1e100, 1e100), 1e100)))
            for p in (far, coarse)
        ]
        shown = f"[{', '.join(f'{v:.3g}' for v in y[0][:4])}{', ...' if self.dim > 4 else ''}]"
        remedy = f"More `steps` (now {canonical.steps}), a shorter `horizon`, or a `step` of your own may help."
        if np.any(np.isnan(far)):
            raise InputError(
                f"paths lead to places where `diffusion` or `drift` is no number: {int(np.sum(np.any(np.isnan(far), axis=1)))} of {len(far)} from places like x = {shown}. Is A positive "
                f"definite everywhere, not only in the region? The equation lives on all of R^d. {remedy}"
            )
        if np.any(gone):
            raise InputError(
                f"paths explode: {int(np.sum(gone))} of {len(far)} from places like x = {shown} went further than {_EXPLODED:g} times the size of the region. "
                f"`drift` or `diffusion` grows too fast for steps, if not for the process itself. {remedy}"
            )
        if not wide[1] < _STIFF * wide[0]:
            raise InputError(
                f"`drift` or `diffusion` is too strong for the steps of paths: with half as many they go {wide[1] / wide[0]:.2g} times as far, from places like x = {shown}. {remedy}"
            )
        coefficients.check(varying, np.zeros(len(far)), far)
        coefficients.check_step(varying, s * fraction, y)
        settled = coefficients.settled(
            varying, np.concatenate([s * fraction, 0 * s]), np.concatenate([inside, far]), notes
        )
        return replace(canonical, coefficients=settled)

    def points(
        self, t: Any, x: Any, *, positive_time: bool = False
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """Times and points as arrays of shape (n,) and (n, dim), and whether a single point was asked for."""
        times, places = _floats("t", t), _floats("x", x)
        if places.ndim not in (1, 2) or places.shape[-1] != self.dim:
            hint = (
                "For dim = 1 write x=[0.3], or x[:, None] for many."
                if self.dim == 1
                else "Points are rows; time comes first: (t, x)."
            )
            raise InputError(
                f"`x` must have shape ({self.dim},) or (n, {self.dim}); got shape {places.shape}. {hint}"
            )
        if times.ndim > 1 or (times.ndim == 1 and places.ndim == 2 and len(times) != len(places)):
            raise InputError(
                f"`t` must be one number or one per point; got shape {times.shape} for x of shape {places.shape}. "
                "Times and points are taken in pairs; build a grid with np.repeat and np.tile."
            )
        if places.size == 0 or times.size == 0:
            raise InputError(
                f"`x` holds no points: shape {places.shape}, with t of shape {times.shape}."
            )
        times = np.where(
            (times > self.horizon) & (times <= self.horizon * (1 + 1e-6)), self.horizon, times
        )  # float32 times round upwards
        T, first = (
            self.horizon,
            self.horizon if self.is_terminal else 0.0,
        )  # the time at which u is given
        outside = (times < 0) | (times > T) | ((times == first) & positive_time)
        if np.any(outside):
            left, right = (
                "(" if positive_time and not self.is_terminal else "[",
                ")" if positive_time and self.is_terminal else "]",
            )
            worst = np.atleast_1d(times)[np.atleast_1d(outside)][0]
            why = (
                "There u is given, and its derivatives may be singular."
                if worst == first
                else f"The problem was posed from 0 to `horizon` = {T:g}."
            )
            raise InputError(f"`t` must lie in {left}0, {T:g}{right}; got {worst:g}. {why}")
        if self.process.positive and not np.all(places > 0):
            raise InputError(
                "`x` must be positive, where a geometric Brownian motion lives; some coordinates are not."
            )
        single = times.ndim == 0 and places.ndim == 1
        n = max(times.size, len(np.atleast_2d(places)))
        return np.broadcast_to(times, (n,)), np.broadcast_to(places, (n, self.dim)), single

    def __repr__(self) -> str:
        source = "given" if self.source is not None or self.nonlinear is not None else None
        c = "given" if callable(self.reaction) else f"{self.reaction:g}" if self.reaction else ""
        more = (f", reaction={c}" if c else "") + (", terminal=given" if self.is_terminal else "")
        return f"Problem(dim={self.dim}, horizon={self.horizon:g}, {self.process}, region={self.region}, source={source}{more})"


def _arguments(source: Any) -> tuple[str, ...]:
    """What a source is a function of, by the number of its arguments."""
    came = (
        (source if isinstance(source, Function) else Function(source)).arity()
        if callable(source)
        else None
    )
    known = {2: ("t", "x"), 3: ("t", "x", "u"), 4: ("t", "x", "u", "du")}
    if came is not None and len(came) not in known:
        raise InputError(
            f"`source` must be a function of (t, x), (t, x, u) or (t, x, u, du); its required parameters are ({', '.join(came)}). "
            "Give further parameters default values, or close over them."
        )
    return known[2 if came is None else len(came)]


def _say_rounded(name: str, value: Any, notes: WarningLog) -> None:
    """Say so where numbers came as float32: 0.1 is then 0.100000001."""
    parts = vars(value) if isinstance(value, Process | Factor | LowRank) else {"": value}
    for part, numbers in parts.items():
        if isinstance(numbers, Factor | LowRank):
            _say_rounded(name, numbers, notes)
        elif numbers is not None and not callable(numbers) and is_rounded(numbers):
            of = f"`{part}` of `{name}`" if part else f"`{name}`"
            notes.warn(f"the numbers of {of} were made in float32. They are {LOW}")


def _reaction(value: Any) -> float:
    array = numeric("reaction", value, "It is c in c u, one number.")
    if array.ndim:
        raise InputError(f"`reaction` must be one number, c in c u; got {short_repr(value)}.")
    return float(array)


def _floats(name: str, value: Any) -> np.ndarray:
    try:
        if isinstance(value, str):
            raise TypeError("text")
        array = np.asarray(value, dtype=np.float64)
    except Exception as error:
        raise InputError(
            f"`{name}` must be numbers; got {short_repr(value)}. Inside jax.jit or vmap call heatnets from outside, with NumPy arrays."
        ) from error
    if not np.all(np.isfinite(array)):
        raise InputError(
            f"`{name}` must be finite; {int(np.sum(~np.isfinite(array)))} of {array.size} entries are not."
        )
    return array
