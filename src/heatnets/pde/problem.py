"""`Problem`: the statement of a parabolic equation by the user.

    u_t = div(A ∇u) + b·∇u + c u + F(t, x, u, ∇u) on R^d,  u(0, x) = u0(x),  0 <= t <= T

It checks all arguments and builds the canonical problem; numerical parameters are not part of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
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
    check_finite,
    check_int,
    check_positive,
    short_repr,
    suggest,
)
from heatnets._core.precision import LOW, is_rounded, with_x64
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.coefficients import CoefficientField, GivenOperator, make_field
from heatnets.pde.diffusion import Factor, LowRank, is_function
from heatnets.pde.function import Function
from heatnets.pde.function_checks import check_function
from heatnets.pde.function_values import probe_finite
from heatnets.pde.linear_drift import linear_drift_note
from heatnets.pde.probing import PathSample, check_coefficients
from heatnets.pde.processes import DriftDiffusion, GeometricBrownian, Process
from heatnets.pde.regions import Box, Region
from heatnets.pde.sources import (
    LinearSource,
    SemilinearSource,
    Source,
    inspect_source,
    is_flow_resolved,
)
from heatnets.pde.transforms import (
    ExponentialFactor,
    TimeReversal,
    Transform,
    TransformChain,
    TransformedRegion,
)

ROUNDED_UP = 1 + 1e-6  # times from T to this multiple of T are T: float32 rounds up
_MOST_GROWTH = 100.0  # largest |c| T
_PROBE_COORDINATES = 2**22  # 256 probe points up to d = 16,384, fewer beyond, 32 at least


class Problem:
    """A parabolic initial value problem (or terminal value problem) on all of R^d.

    The equation is `u_t = div(A ∇u) + b·∇u + c u + F(t, x, u, ∇u)`, `u(0, x) = u0(x)`, for
    0 <= t <= T.

    Args:
        dim: number of space coordinates d >= 1.
        horizon: the final time T > 0.
        initial: the initial condition u0, a function of x that returns a scalar; x has shape
            (dim,), also for dim = 1. Or an `hn.Function`.
        source: F, a function of (t, x), of (t, x, u), or of (t, x, u, du) with du the gradient of
            u, that returns a scalar; None for F = 0.
        diffusion: A, without a hidden factor one half. A number D > 0 for D Δu, one number per
            coordinate, a symmetric positive definite matrix, `hn.Factor(S)` for A = S Sᵀ, or
            `hn.LowRank(diag, U)` for A = diag + U Uᵀ. Or a function A(t, x) that returns a number,
            a diagonal or a matrix (`hn.Factor` of a function returns S); then `form` is required.
        region: the set of points x at which the solution is computed: `hn.Box`, `hn.Point` or
            `hn.Normal`.
        exact: the exact solution u(t, x), if it is known; only used to measure errors.
        drift: b, one number or one per coordinate; or a function b(t, x) that returns a vector.
        reaction: c, one number (-r to discount at the rate r); or a function c(t, x). Default 0.
        terminal: the terminal condition g, instead of `initial`, for the backward equation
            `u_t + div(A ∇u) + b·∇u + c u + F = 0`, `u(T, x) = g(x)`. Times are not reversed: t in
            your functions and in results is the t of this equation.
        process: `hn.GeometricBrownian` or `hn.OrnsteinUhlenbeck`, instead of `diffusion` and
            `drift`.
        form: "divergence" for div(A ∇u), "trace" for tr(A D²u). Both are the same for a constant
            A; required if A is a function.
        step: a one-step scheme for paths, instead of Euler's, where coefficients are functions:
            step(t, x, h, noise) returns the position after a time h of a path that is at x at the
            time t; `noise` is standard normal.
        steps: number of time steps of the validation paths (used for certificates, errors and
            Monte Carlo), if coefficients are functions or the source depends on u. A multiple of
            four; default 16, or 4 if only the source depends on u. More steps reduce the bias.

    The arguments are checked when the problem is made: functions are traced once by JAX, and
    evaluated at up to 512 points in the region and on paths that start in it. Raises `InputError`
    with what was expected, what was received, and a remedy.

    >>> import jax.numpy as jnp, heatnets as hn
    >>> hn.Problem(dim=3, horizon=0.5, initial=lambda x: jnp.sum(jnp.sin(x)))
    Problem(dim=3, horizon=0.5, diffusion=1, region=Box(-1, 1), source=None)
    """

    dim: int
    horizon: float
    initial: Function  # u0, or the terminal condition
    data_name: str  # "initial" or "terminal": the name of the argument that gave it
    source: Function | None  # F, as the user gave it
    diffusion: Any  # as the user gave it
    region: Region
    exact: Function | None
    process: Process
    reaction: Any  # a number, or the user's function
    is_terminal: bool
    transform: TransformChain  # from the user's times, points and values to those of `canonical`
    canonical: CanonicalProblem  # the problem that is solved
    warnings: tuple[str, ...]
    notes: tuple[str, ...]  # other ways to state the problem, with smaller errors
    provenance: Mapping[str, Any] | None  # the text or the name from which it can be made again

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
        reaction: Any = None,
        terminal: Callable[..., Any] | None = None,
        process: Process | None = None,
        form: str | None = None,
        step: Callable[..., Any] | None = None,
        steps: int | None = None,
        **unknown: Any,
    ) -> None:
        for name in unknown:
            known = [k for k in inspect.signature(Problem).parameters if k != "unknown"]
            raise InputError(f"`Problem` has no argument `{name}`: {explain_unknown(name, known)}")
        log = WarningLog()
        is_discounted = reaction is not None
        reaction = 0.0 if reaction is None else reaction
        self.dim = check_int("dim", dim, 1, "It is the number of space coordinates.")
        self.horizon = check_positive("horizon", horizon, "It is the final time T.")
        self.is_terminal = terminal is not None
        self.data_name = "terminal" if self.is_terminal else "initial"
        if (initial is None) == (terminal is None):
            raise InputError(
                "a problem needs `initial` (u at t = 0) or `terminal` (u at t = horizon); got "
                f"{'both' if self.is_terminal else 'neither'}."
            )
        given = GivenOperator(diffusion, drift, reaction, form, step)
        self.diffusion = 1.0 if diffusion is None and process is None else diffusion
        self.process = _check_process(process, given) or DriftDiffusion(
            self.diffusion, drift, given.needs_steps
        )
        self.reaction = reaction if callable(reaction) else _check_reaction(reaction, self.horizon)
        constant_diffusion, removed = self.process.canonical_form(self.dim)
        self.transform = TransformChain((*self._time_and_value_transforms(), *removed))
        self.region = Box(-1.0, 1.0) if region is None else region
        self.check_region(self.region, "region")
        self.process.check_horizon(self.horizon, source is not None)
        if message := self.process.parameter_warning():
            log.warn(message)
        field = make_field(given, constant_diffusion, self.dim, self.transform, log)
        for name, value in {**given._asdict(), "process": process}.items():
            _warn_if_rounded(name, value, log)
        data = terminal if self.is_terminal else initial
        self.initial = check_function(self.data_name, data, ("x",), self.dim, log)
        arguments = _source_arguments(source)
        if not is_discounted and self.is_terminal and len(arguments) == 2:
            _hint_at_discounting(self.process, log)
        self.source, self.exact = (
            None if value is None else check_function(name, value, names, self.dim, log)
            for name, value, names in (("source", source, arguments), ("exact", exact, ("t", "x")))
        )
        self.notes = self._find_notes(given, field)
        v0, force = self._canonical_functions(arguments)
        if constant_diffusion is None:
            assert field is not None
            # A at the centre of the region and at T/2: sets the length scale of paths.
            centre = jnp.broadcast_to(jnp.asarray(self.region.centre, float), (self.dim,))
            local = field.diffusion_at(jnp.asarray(0.5 * self.horizon), centre)
            constant_diffusion = jax.tree.map(np.asarray, local)
        start = self.transform.to_canonical(np.asarray(self.start_time), np.ones(self.dim))[0]
        canonical = CanonicalProblem(
            dim=self.dim,
            horizon=float(start),
            initial=v0,
            data_name=self.data_name,
            source=force,
            region=self.transform_region(self.region),
            diffusion=constant_diffusion,
            coefficients=field,
            steps=_check_steps(steps),
            steps_given=steps is not None,
            outer_transform=self.transform,
        )
        canonical = self._check_on_paths(canonical, log)
        self.warnings, self.provenance = tuple(log.messages), None
        self.canonical = replace(canonical, warnings=self.warnings)
        self._frozen = True

    @with_x64
    def check_unchanged(self) -> None:
        """Raise `InputError` if a function reads values that have changed since it was checked."""
        field = self.canonical.coefficients
        functions = {self.data_name: self.initial, "source": self.source, "exact": self.exact}
        for name, function in {**functions, **(field.functions if field else {})}.items():
            if isinstance(function, Function) and function.has_changed():
                raise InputError(
                    f"`{name}` reads a value from outside that has changed since the problem was "
                    "made. Make the problem again after the change; or bind the value, "
                    "functools.partial(f, strike=100.0), so that each problem keeps its own."
                )

    def with_provenance(self, provenance: Mapping[str, Any] | None) -> Problem:
        """The same problem with the text or the name from which it can be made again."""
        other = copy(self)
        other.__dict__["provenance"] = provenance
        return other

    @property
    def data_time(self) -> float:
        """The time at which u is given."""
        return self.horizon if self.is_terminal else 0.0

    @property
    def start_time(self) -> float:
        """The time furthest from `data_time`, at which paths start."""
        return self.horizon - self.data_time

    def check_region(self, region: Any, name: str) -> None:
        """Raise `InputError` if it is no region that fits the dimension and the process."""
        if not isinstance(region, Region):
            raise InputError(
                f"`{name}` must be hn.Box, hn.Point or hn.Normal; got {short_repr(region)}. Write "
                "hn.Box(-1.0, 1.0)."
            )
        region.check(self.dim, name)
        if self.process.is_positive and not region.is_positive:
            raise InputError(
                f"`{name}` must lie in positive coordinates, where a geometric Brownian motion "
                f"lives; got {region}. For example hn.Point(spot), or hn.Box(0.8 * spot, 1.2 * "
                "spot)."
            )

    def transform_region(self, region: Region) -> Region:
        """The region in canonical coordinates."""
        if not self.transform.changes:
            return region
        return TransformedRegion(region, self.transform, self.horizon, self.is_terminal)

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("_frozen", False):
            raise AttributeError(
                f"a Problem does not change: make a new one with another `{name}`."
            )
        super().__setattr__(name, value)

    def _time_and_value_transforms(self) -> list[Transform]:
        """The transforms that remove time reversal and a constant reaction."""
        transforms: list[Transform] = [TimeReversal(self.horizon)] if self.is_terminal else []
        if not callable(self.reaction) and self.reaction != 0:
            transforms.append(ExponentialFactor(self.reaction))
        return transforms

    def _find_notes(self, given: GivenOperator, field: CoefficientField | None) -> tuple[str, ...]:
        """Notes on coefficients that could be given in a better form."""
        if field is None or given.step is not None or not callable(given.drift):
            return ()
        if is_function(given.diffusion):
            return ()
        has_source = self.source is not None
        note = linear_drift_note(field.drift, self.diffusion, self.dim, self.horizon, has_source)
        return (note,) if note else ()

    def _canonical_functions(self, arguments: tuple[str, ...]) -> tuple[Function, Source]:
        """The initial condition and the source in canonical coordinates."""
        source: Source = LinearSource(self.source)
        if self.source is not None and len(arguments) > 2:
            source = SemilinearSource(
                function=self.source, transform=self.transform, uses_gradient=len(arguments) == 4
            )
        elif self.source is not None and self.transform.changes:
            source = LinearSource(self.transform.pull_back(self.source, "t x"))
        if source.uses_u or self.transform.changes:
            return self.transform.pull_back(self.initial, "x"), source
        return self.initial, source

    def _check_on_paths(self, canonical: CanonicalProblem, log: WarningLog) -> CanonicalProblem:
        """Evaluate all functions at random points of the region and of paths from it.

        Raises `InputError` where a value is not finite. Returns the canonical problem with the
        fields that depend on these values.
        """
        rng = streams.generator(0, "probe")
        n = max(32, min(256, _PROBE_COORDINATES // self.dim))
        x = self.region.sample(rng, n, self.dim)
        fraction = rng.random(n)
        noise = canonical.paths.sample_noise(rng, (n,), self.dim)
        t = self.horizon * (1 - fraction if self.is_terminal else fraction)
        s, y = self.transform.to_canonical(np.full(n, self.start_time), x)
        end = canonical.paths.simulate(s, y, s, noise).position
        if canonical.coefficients is not None:
            sample = PathSample(s, y, end, fraction, noise)
            field = check_coefficients(canonical, sample, log)
            canonical = replace(canonical, coefficients=field)
        x_end = self.transform.from_canonical(np.zeros(n), end)[1]
        points = np.concatenate([t, t]), np.concatenate([x, x_end])
        domain = "in the region and along the paths that leave it"
        initial = probe_finite(self.data_name, self.initial, points[1:], domain)
        is_zero = not np.any(initial)
        if is_zero:
            # A zero initial condition gets no features: test many more points before that.
            n_more = max(64, min(8192, 8 * _PROBE_COORDINATES // self.dim))
            more_points = self.region.sample(rng, n_more, self.dim)
            more = probe_finite(self.data_name, self.initial, (more_points,), "in the region")
            is_zero = not np.any(more)
        canonical = replace(canonical, zero_initial=is_zero)
        if isinstance(canonical.source, SemilinearSource):
            u_range, has_kinks = inspect_source(
                canonical.source, self.initial, self.horizon, points, initial, rng
            )
            resolved = is_flow_resolved(canonical.source, canonical.initial, s, y, end, rng)
            canonical = replace(
                canonical, u_range=u_range, source_has_kinks=has_kinks, flow_resolved=resolved
            ).with_source_guess()
        elif self.source is not None:
            probe_finite("source", self.source, points, domain)
        if self.exact is not None:
            start = (np.full(n, self.data_time), x)
            exact = probe_finite("exact", self.exact, start, "in the region")
            gap = np.max(np.abs(exact - initial[:n]))
            if gap > 1e-6 * max(np.max(np.abs(exact)), np.max(np.abs(initial))):
                log.warn(
                    f"`exact` at t = {self.data_time:g} differs from `{self.data_name}` by up to "
                    f"{gap:.2g}: errors measured against it will mislead."
                )
        return canonical

    def as_points(
        self, t: Any, x: Any, *, positive_time: bool = False
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """Check times and points, and broadcast them against each other.

        Returns:
            t of shape (n,), x of shape (n, dim), and whether the input was a single point.
        """
        times, places = _float_array("t", t), _float_array("x", x)
        if places.ndim not in (1, 2) or places.shape[-1] != self.dim:
            hint = (
                "For dim = 1 write x=[0.3], or x[:, None] for many."
                if self.dim == 1
                else "Points are rows; time comes first: (t, x)."
            )
            raise InputError(
                f"`x` must have shape ({self.dim},) or (n, {self.dim}); got shape {places.shape}. "
                f"{hint}"
            )
        if times.ndim > 1 or (times.ndim == 1 and places.ndim == 2 and len(times) != len(places)):
            raise InputError(
                f"`t` must be one number or one per point; got shape {times.shape} for x of shape "
                f"{places.shape}. Times and points are taken in pairs; build a grid with np.repeat "
                "and np.tile."
            )
        if places.size == 0 or times.size == 0:
            raise InputError(
                f"`x` holds no points: shape {places.shape}, with t of shape {times.shape}."
            )
        T = self.horizon
        times = np.where((times > T) & (times <= T * ROUNDED_UP), T, times)
        outside = (times < 0) | (times > T) | ((times == self.data_time) & positive_time)
        if np.any(outside):
            left = "(" if positive_time and not self.is_terminal else "["
            right = ")" if positive_time and self.is_terminal else "]"
            worst = np.atleast_1d(times)[np.atleast_1d(outside)][0]
            reason = (
                "There u is given, and its derivatives may be singular."
                if worst == self.data_time
                else f"The problem was posed from 0 to `horizon` = {T:g}."
            )
            raise InputError(f"`t` must lie in {left}0, {T:g}{right}; got {worst:g}. {reason}")
        if self.process.is_positive and not np.all(places > 0):
            raise InputError(
                "`x` must be positive, where a geometric Brownian motion lives; some coordinates "
                "are not."
            )
        single = times.ndim == 0 and places.ndim == 1
        n = max(times.size, len(np.atleast_2d(places)))
        return np.broadcast_to(times, (n,)), np.broadcast_to(places, (n, self.dim)), single

    def __repr__(self) -> str:
        source = None if self.source is None else "given"
        c = "given" if callable(self.reaction) else f"{self.reaction:g}" if self.reaction else ""
        more = (f", reaction={c}" if c else "") + (", terminal=given" if self.is_terminal else "")
        return (
            f"Problem(dim={self.dim}, horizon={self.horizon:g}, {self.process}, "
            f"region={self.region}, source={source}{more})"
        )


_WHOLE_SPACE = (
    "boundary conditions are not supported. The equation is solved on all of R^d; `region` only "
    "says where the answer is wanted. Periodic data need no boundary. Up to three dimensions use "
    "finite differences or finite elements."
)
_BARRIER = (
    "barriers are not supported: paths never stop. Without the barrier `terminal` gives the value "
    "of the claim that cannot be knocked out, an upper bound. For the barrier use Monte Carlo with "
    "a Brownian bridge, or finite differences."
)
_EXERCISE = (
    "early exercise is not supported. `terminal` gives the value of the European claim, a lower "
    "bound. For early exercise use regression Monte Carlo (Longstaff-Schwartz)."
)
_UNSUPPORTED = {
    **dict.fromkeys(("boundary", "bc", "dirichlet", "neumann", "domain", "periodic"), _WHOLE_SPACE),
    **dict.fromkeys(("barrier", "knock", "absorb"), _BARRIER),
    **dict.fromkeys(("american", "bermudan", "exercise", "obstacle"), _EXERCISE),
}


_SYNONYMS = {
    **dict.fromkeys(("T", "t_max", "maturity", "final_time"), "horizon"),
    **dict.fromkeys(("d", "n", "ndim", "dimension", "dims"), "dim"),
    **dict.fromkeys(("payoff", "g"), "terminal"),
    **dict.fromkeys(("u0", "ic", "initial_condition"), "initial"),
    **dict.fromkeys(("f", "F", "rhs", "forcing", "nonlinearity"), "source"),
    **dict.fromkeys(("D", "A", "nu", "kappa"), "diffusion"),
    **dict.fromkeys(("mu", "b", "velocity"), "drift"),
    **dict.fromkeys(("c", "potential"), "reaction"),
    **dict.fromkeys(("r", "rate", "discount"), "reaction, -r to discount at the rate r"),
    **dict.fromkeys(
        ("sigma", "vol", "volatility"),
        "diffusion, σ²/2 for dX = σ dW; or process, geometric Brownian motion, for assets",
    ),
}


def explain_unknown(name: str, known: Iterable[str]) -> str:
    """What to use in place of an argument that a problem does not have, as a sentence."""
    matches = [text for part, text in _UNSUPPORTED.items() if name.lower().startswith(part)]
    if name in _SYNONYMS:
        return f"write {_SYNONYMS[name]}."
    return matches[0] if matches else suggest(name, known)


def _hint_at_discounting(process: Process, log: WarningLog) -> None:
    """Warn if assets grow and nothing is discounted: prices are usually meant."""
    growth = process.growth if isinstance(process, GeometricBrownian) else 0.0
    if np.any(np.asarray(growth)):
        advice = "your interest rate, negative, as `reaction`"
        if np.ndim(growth) == 0:
            advice = f"reaction={-float(growth):g}"
        log.warn(
            f"`growth` is {short_repr(growth)} and no `reaction` is given: u is the expected "
            f"payoff, not discounted. For a price write {advice}; reaction=0 if this is meant."
        )


def _check_process(process: Any, given: GivenOperator) -> Process | None:
    """The user's process; raises `InputError` if it is none, or coefficients are given too."""
    if process is None:
        return None
    if not isinstance(process, Process):
        raise InputError(
            "`process` must be hn.GeometricBrownian(...) or hn.OrnsteinUhlenbeck(...); got "
            f"{short_repr(process)}. Constant coefficients are given as `diffusion` and `drift`."
        )
    if given.diffusion is not None or given.drift is not None:
        raise InputError(
            "`process` says how paths move and scatter: leave `diffusion` and `drift` out, or give "
            "them to the process."
        )
    if given.step is not None:
        raise InputError(
            "`step` belongs to `diffusion` and `drift`: a process has an exact step of its own. "
            "Leave one out."
        )
    return process


def _check_reaction(value: Any, horizon: float) -> float:
    """A constant c as a float."""
    array = check_finite("reaction", value, "It is c in c u, one number.")
    if array.ndim:
        raise InputError(f"`reaction` must be one number, c in c u; got {short_repr(value)}.")
    if abs(array) * horizon > _MOST_GROWTH:
        raise InputError(
            f"`reaction` times `horizon` must be at most {_MOST_GROWTH:g} in size: "
            f"e^{array * horizon:.3g} is what u is multiplied by. Shorten the horizon."
        )
    return float(array)


def _check_steps(steps: Any) -> int:
    """The number of time steps of validation paths; 16 by default."""
    hint = "It is the number of steps of a path."
    number = check_int("steps", 16 if steps is None else steps, 8, hint)
    if number % 4:
        raise InputError(
            "`steps` must be a multiple of four, as half and a quarter as many are taken too; got "
            f"{number}."
        )
    return number


_SOURCE_ARGUMENTS = ("t", "x", "u", "du")


def _source_arguments(source: Any) -> tuple[str, ...]:
    """Names of the arguments of a source, by the number of its required parameters."""
    parameters, fixed = None, []
    if callable(source):
        function = source if isinstance(source, Function) else Function(source)
        parameters = function.arity()
        fixed = [name for name in function.optional_arguments() if name in _SOURCE_ARGUMENTS]
    if parameters is not None and not 2 <= len(parameters) <= 4:
        raise InputError(
            "`source` must be a function of (t, x), (t, x, u) or (t, x, u, du); its required "
            f"parameters are ({', '.join(parameters)}). Give further parameters default values, or "
            "close over them."
        )
    if fixed:
        names = ", ".join(_SOURCE_ARGUMENTS[: _SOURCE_ARGUMENTS.index(fixed[-1]) + 1])
        raise InputError(
            f"`source` gives its argument {fixed[0]} a default value, which would always be taken. "
            f"For a source that depends on {fixed[0]} write lambda {names}: ... without it; else "
            "give it another name."
        )
    return _SOURCE_ARGUMENTS[: 2 if parameters is None else len(parameters)]


def _warn_if_rounded(name: str, value: Any, log: WarningLog) -> None:
    """Warn if numbers were given as float32: 0.1 is then 0.100000001."""
    parts = vars(value) if isinstance(value, Process | Factor | LowRank) else {"": value}
    for part, numbers in parts.items():
        if isinstance(numbers, Factor | LowRank):
            _warn_if_rounded(name, numbers, log)
        elif numbers is not None and not callable(numbers) and is_rounded(numbers):
            argument = f"`{part}` of `{name}`" if part else f"`{name}`"
            log.warn(f"the numbers of {argument} were made in float32. They are {LOW}")


def _float_array(name: str, value: Any) -> np.ndarray:
    """`value` as a float64 array with finite entries."""
    try:
        if isinstance(value, str):
            raise TypeError("text")
        array = np.asarray(value, dtype=np.float64)
    except Exception as error:
        raise InputError(
            f"`{name}` must be numbers; got {short_repr(value)}. Inside jax.jit, vmap or "
            "grad use u.function(t, x) in place of u(t, x)."
        ) from error
    if not np.all(np.isfinite(array)):
        raise InputError(
            f"`{name}` must be finite; {int(np.sum(~np.isfinite(array)))} of {array.size} entries "
            "are not."
        )
    return array
