"""`Problem`: the statement of a parabolic equation by the user.

    u_t = div(A ∇u) + b·∇u + c u + F(t, x, u, ∇u) on R^d,  u(0, x) = u0(x),  0 <= t <= T

It checks all arguments and builds the canonical problem; numerical parameters are not part of it.
"""

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
    check_choice,
    check_finite,
    check_int,
    check_positive,
    short_repr,
)
from heatnets._core.precision import LOW, is_rounded, with_x64
from heatnets.pde import coefficients
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.coefficients import CoefficientField, varies
from heatnets.pde.diffusion import Diffusion, Factor, LowRank
from heatnets.pde.function import Function, check_function, probe
from heatnets.pde.nonlinearity import SemilinearSource, examine
from heatnets.pde.processes import Brownian, Process, VariableCoefficients
from heatnets.pde.regions import Box, Region
from heatnets.pde.transforms import (
    ExponentialFactor,
    TimeReversal,
    TransformChain,
    TransformedRegion,
    canonical_initial,
    canonical_source,
)

_MOST_GROWTH = 100.0  # largest |c| T
_STIFF = 2.0  # largest ratio of path displacements with half as many steps and with all of them
_EXPLODED = 1e6  # a path explodes beyond this multiple of (size of the region + spread of paths)
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
        reaction: c, one number (-r to discount at the rate r); or a function c(t, x).
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
    source: Function | None  # F(t, x)
    nonlinear: SemilinearSource | None  # F, if it depends on u
    diffusion: Any  # as the user gave it
    region: Region
    exact: Function | None
    process: Process
    reaction: Any  # a number, or the user's function
    is_terminal: bool
    transform: TransformChain  # from the user's times, points and values to those of `canonical`
    canonical: CanonicalProblem  # the problem that is solved
    warnings: tuple[str, ...]
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
        reaction: Any = 0.0,
        terminal: Callable[..., Any] | None = None,
        process: Process | None = None,
        form: str | None = None,
        step: Callable[..., Any] | None = None,
        steps: int | None = None,
    ) -> None:
        notes = WarningLog()
        self.dim = check_int("dim", dim, 1, "It is the number of space coordinates.")
        self.horizon = check_positive("horizon", horizon, "It is the final time T.")
        self.is_terminal = terminal is not None
        if (initial is None) == (terminal is None):
            received = "both" if self.is_terminal else "neither"
            raise InputError(
                "a problem needs `initial` (u at t = 0) or `terminal` (u at t = horizon); got "
                f"{received}."
            )

        # The process, the constant reaction, and the transforms that remove them.
        if process is not None and not isinstance(process, Process):
            raise InputError(
                "`process` must be hn.GeometricBrownian(...) or hn.OrnsteinUhlenbeck(...); got "
                f"{short_repr(process)}. Constant coefficients are given as `diffusion` and "
                "`drift`."
            )
        if process is not None and (diffusion is not None or drift is not None):
            raise InputError(
                "`process` says how paths move and scatter: leave `diffusion` and `drift` out, or "
                "give them to the process."
            )
        self.diffusion = 1.0 if diffusion is None and process is None else diffusion
        needs_steps = varies(diffusion) or varies(drift) or step is not None
        default_process = VariableCoefficients if needs_steps else Brownian
        self.process = process or default_process(self.diffusion, drift)
        if process is not None and step is not None:
            raise InputError(
                "`step` belongs to `diffusion` and `drift`: a process has an exact step of its "
                "own. Leave one out."
            )
        self.reaction = reaction if callable(reaction) else _check_reaction(reaction)
        constant_diffusion, process_transforms = (
            (None, ()) if needs_steps else self.process.law(self.dim)
        )
        has_constant_reaction = not callable(self.reaction) and self.reaction != 0
        time_and_value_transforms = (
            *((TimeReversal(self.horizon),) if self.is_terminal else ()),
            *((ExponentialFactor(self.reaction),) if has_constant_reaction else ()),
        )
        self.transform = TransformChain((*time_and_value_transforms, *process_transforms))

        # The region, the horizon and the number of steps.
        self.region = Box(-1.0, 1.0) if region is None else region
        if not isinstance(self.region, Region):
            raise InputError(
                f"`region` must be hn.Box, hn.Point or hn.Normal; got {short_repr(region)}. Write "
                "hn.Box(-1.0, 1.0)."
            )
        self.check_region(self.region, "region")
        if has_constant_reaction and abs(self.reaction) * self.horizon > _MOST_GROWTH:
            raise InputError(
                f"`reaction` times `horizon` must be at most {_MOST_GROWTH:g} in size: "
                f"e^{self.reaction * self.horizon:.3g} is what u is multiplied by. Shorten the "
                "horizon."
            )
        if message := self.process.complaint(self.horizon, source is not None):
            raise InputError(message)
        if message := self.process.doubt():
            notes.warn(message)
        steps_given = steps is not None
        steps = check_int(
            "steps", 16 if steps is None else steps, 8, "It is the number of steps of a path."
        )
        if steps % 4:
            raise InputError(
                "`steps` must be a multiple of four, as half and a quarter as many are taken too; "
                f"got {steps}."
            )

        # The coefficient field, if a coefficient is a function.
        field: CoefficientField | None = None
        if needs_steps or callable(self.reaction):
            c = self.reaction if callable(self.reaction) else 0.0
            field = coefficients.make_field(
                diffusion, drift, c, form, step, constant_diffusion, self.dim, self.transform, notes
            )
        elif form is not None:
            check_choice("form", form, coefficients.FORMS)
        for name, value in (
            ("diffusion", diffusion),
            ("drift", drift),
            ("reaction", reaction),
            ("process", process),
        ):
            _warn_if_rounded(name, value, notes)

        # The initial or terminal condition, the source and the exact solution.
        self.data_name = "terminal" if self.is_terminal else "initial"
        data = terminal if self.is_terminal else initial
        self.initial = check_function(self.data_name, data, ("x",), self.dim, notes)
        arguments = _source_arguments(source)
        source_function = (
            None if source is None else check_function("source", source, arguments, self.dim, notes)
        )
        is_linear = len(arguments) == 2
        self.nonlinear = (
            None
            if source_function is None or is_linear
            else SemilinearSource(source_function, self.transform, len(arguments) == 4)
        )
        self.source = source_function if is_linear else None
        self.exact = (
            None if exact is None else check_function("exact", exact, ("t", "x"), self.dim, notes)
        )

        # The same problem in canonical coordinates.
        is_canonical = not self.transform.changes and self.nonlinear is None
        v0, force = self.initial, self.source
        if not is_canonical:
            v0 = canonical_initial(self.initial, self.transform)
            force = None if force is None else canonical_source(force, self.transform)
        start_time, data_time = (0.0, self.horizon) if self.is_terminal else (self.horizon, 0.0)
        s, _ = self.transform.to_canonical(np.asarray(start_time), np.ones(self.dim))
        reference_diffusion = (
            self._reference_diffusion(field) if constant_diffusion is None else constant_diffusion
        )
        canonical = CanonicalProblem(
            dim=self.dim,
            horizon=float(s),
            initial=v0,
            data_name=self.data_name,
            source=force,
            nonlinear=self.nonlinear,
            region=self.transform_region(self.region),
            diffusion=reference_diffusion,
            coefficients=field,
            steps=steps,
            steps_given=steps_given,
            zero_initial=False,
            warnings=(),
            outer_transform=self.transform,
        )
        self.canonical = self._check_functions(canonical, start_time, data_time, notes)
        self.warnings, self.provenance = tuple(notes.messages), None
        self.canonical = replace(self.canonical, warnings=self.warnings)
        self._frozen = True

    def with_provenance(self, provenance: Mapping[str, Any] | None) -> Problem:
        """The same problem with the text or the name from which it can be made again."""
        other = copy(self)
        other.__dict__["provenance"] = provenance
        return other

    def _reference_diffusion(self, field: CoefficientField | None) -> Diffusion:
        """A at the centre of the region and at T/2: sets the length scale of paths if A varies."""
        assert field is not None
        centre = jnp.broadcast_to(jnp.asarray(self.region.centre, float), (self.dim,))
        A = field.diffusion_at(jnp.asarray(0.5 * self.horizon), centre)
        return jax.tree.map(np.asarray, A)

    def check_region(self, region: Region, name: str) -> None:
        """Raise `InputError` if the region does not fit the dimension or the process."""
        region.check(self.dim, name)
        if self.process.positive and not region.positive:
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

    def _check_functions(
        self, canonical: CanonicalProblem, start_time: float, data_time: float, notes: WarningLog
    ) -> CanonicalProblem:
        """Evaluate all functions at random points of the region and of paths from it.

        Raises `InputError` where a value is not finite. Returns the canonical problem with the
        fields that depend on these values. Paths start at the time `start_time`; the initial or
        terminal condition is given at the time `data_time` (both in the user's time).
        """
        rng = streams.generator(0, "probe")
        n = max(32, min(256, _PROBE_COORDINATES // self.dim))
        x = self.region.sample(rng, n, self.dim)
        fraction = rng.random(n)
        noise = canonical.paths.draw(rng, (n,), self.dim)
        t = self.horizon * (1 - fraction if self.is_terminal else fraction)
        s, y = self.transform.to_canonical(np.full(n, start_time), x)
        y_end = canonical.paths.simulate(s, y, s, noise).position
        if canonical.coefficients is not None:
            canonical = self._check_coefficients(canonical, notes, s, y, y_end, fraction, noise)
        x_end = self.transform.from_canonical(np.zeros(n), y_end)[1]
        points = np.concatenate([x, x_end])
        times = np.concatenate([t, t])
        domain = "in the region and along the paths that leave it"
        initial = probe(self.data_name, self.initial, (points,), domain)
        if not np.any(initial):
            # A zero initial condition gets no features: test many more points before that.
            n_more = max(64, min(8192, 8 * _PROBE_COORDINATES // self.dim))
            more_points = self.region.sample(rng, n_more, self.dim)
            values = probe(self.data_name, self.initial, (more_points,), "in the region")
            initial = np.append(initial, values)
        if self.source is not None:
            probe("source", self.source, (times, points), domain)
        if self.nonlinear is not None:
            info = examine(
                self.nonlinear,
                self.initial,
                canonical.initial,
                self.horizon,
                (times, points),
                (s, y, y_end),
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
            exact = probe("exact", self.exact, (np.full(n, data_time), x), "in the region")
            gap = np.max(np.abs(exact - initial[:n]))
            if gap > 1e-6 * max(np.max(np.abs(exact)), np.max(np.abs(initial[: 2 * n]))):
                notes.warn(
                    f"`exact` at t = {data_time:g} differs from `{self.data_name}` by up to "
                    f"{gap:.2g}: errors measured against it will mislead."
                )
        canonical = replace(canonical, zero_initial=not np.any(initial))
        return canonical if self.nonlinear is None else canonical.with_source_guess()

    def _check_coefficients(
        self,
        canonical: CanonicalProblem,
        notes: WarningLog,
        s: np.ndarray,
        y: np.ndarray,
        y_end: np.ndarray,
        fraction: np.ndarray,
        noise: np.ndarray,
    ) -> CanonicalProblem:
        """Check the coefficient field on paths from (s, y) to (0, y_end).

        Raises `InputError` if a coefficient is not finite, A is not positive definite, paths
        explode, or the steps are too long. Returns the problem with `coefficients.jumps` set.
        """
        field = canonical.coefficients
        assert field is not None
        coefficients.check(field, s * fraction, y)
        y_inside = canonical.paths.simulate(s, y, (1 - fraction) * s, noise).position
        spread = float(np.max(np.sqrt(2 * s)) * np.max(canonical.diffusion.deviations))
        reach = np.max(np.abs(y)) + spread + 1
        finite = np.isfinite(y_inside) & (np.abs(y_inside) < _EXPLODED * reach)
        bounded = np.all(finite, axis=1)
        if np.any(bounded):
            coefficients.check(field, s[bounded] * fraction[bounded], y_inside[bounded])
        # Half as many steps, with the same Brownian paths.
        _, coarse_simulator, coarse_noise = canonical.paths.richardson_levels(noise)[1]
        y_coarse = coarse_simulator.simulate(s, y, s, coarse_noise).position
        exploded = ~np.all(np.abs(y_end) < _EXPLODED * reach, axis=1)
        distance, coarse_distance = (
            float(np.linalg.norm(np.where(np.isfinite(p), np.clip(p - y, -1e100, 1e100), 1e100)))
            for p in (y_end, y_coarse)
        )
        x = self.transform.from_canonical(s, y)[1][0]
        shown = f"[{', '.join(f'{v:.3g}' for v in x[:4])}{', ...' if self.dim > 4 else ''}]"
        remedy = (
            f"More `steps` (now {canonical.steps}), a shorter `horizon`, or a `step` of your own "
            "may help."
        )
        if np.any(np.isnan(y_end)):
            n_nan = int(np.sum(np.any(np.isnan(y_end), axis=1)))
            raise InputError(
                f"paths lead to places where `diffusion` or `drift` is no number: {n_nan} of "
                f"{len(y_end)} from places like x = {shown}. Is A positive definite everywhere, "
                f"not only in the region? The equation lives on all of R^d. {remedy}"
            )
        if np.any(exploded):
            raise InputError(
                f"paths explode: {int(np.sum(exploded))} of {len(y_end)} from places like x = "
                f"{shown} went further than {_EXPLODED:g} times the size of the region. `drift` or "
                f"`diffusion` grows too fast for steps, if not for the process itself. {remedy}"
            )
        if not coarse_distance < _STIFF * distance:
            raise InputError(
                "`drift` or `diffusion` is too strong for the steps of paths: with half as many "
                f"they go {coarse_distance / distance:.2g} times as far, from places like x = "
                f"{shown}. {remedy}"
            )
        coefficients.check(field, np.zeros(len(y_end)), y_end)
        coefficients.check_step(field, s * fraction, y)
        times, places = np.concatenate([s * fraction, 0 * s]), np.concatenate([y_inside, y_end])
        return replace(canonical, coefficients=coefficients.with_jumps(field, times, places, notes))

    def points(
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
        times = np.where((times > T) & (times <= T * (1 + 1e-6)), T, times)  # float32 rounds up
        data_time = T if self.is_terminal else 0.0  # the time at which u is given
        outside = (times < 0) | (times > T) | ((times == data_time) & positive_time)
        if np.any(outside):
            left = "(" if positive_time and not self.is_terminal else "["
            right = ")" if positive_time and self.is_terminal else "]"
            worst = np.atleast_1d(times)[np.atleast_1d(outside)][0]
            reason = (
                "There u is given, and its derivatives may be singular."
                if worst == data_time
                else f"The problem was posed from 0 to `horizon` = {T:g}."
            )
            raise InputError(f"`t` must lie in {left}0, {T:g}{right}; got {worst:g}. {reason}")
        if self.process.positive and not np.all(places > 0):
            raise InputError(
                "`x` must be positive, where a geometric Brownian motion lives; some coordinates "
                "are not."
            )
        single = times.ndim == 0 and places.ndim == 1
        n = max(times.size, len(np.atleast_2d(places)))
        return np.broadcast_to(times, (n,)), np.broadcast_to(places, (n, self.dim)), single

    def __repr__(self) -> str:
        source = "given" if self.source is not None or self.nonlinear is not None else None
        c = "given" if callable(self.reaction) else f"{self.reaction:g}" if self.reaction else ""
        more = (f", reaction={c}" if c else "") + (", terminal=given" if self.is_terminal else "")
        return (
            f"Problem(dim={self.dim}, horizon={self.horizon:g}, {self.process}, "
            f"region={self.region}, source={source}{more})"
        )


def _source_arguments(source: Any) -> tuple[str, ...]:
    """Names of the arguments of a source, by the number of its required parameters."""
    parameters = None
    if callable(source):
        parameters = (source if isinstance(source, Function) else Function(source)).arity()
    known = {2: ("t", "x"), 3: ("t", "x", "u"), 4: ("t", "x", "u", "du")}
    if parameters is not None and len(parameters) not in known:
        raise InputError(
            "`source` must be a function of (t, x), (t, x, u) or (t, x, u, du); its required "
            f"parameters are ({', '.join(parameters)}). Give further parameters default values, or "
            "close over them."
        )
    return known[2 if parameters is None else len(parameters)]


def _warn_if_rounded(name: str, value: Any, notes: WarningLog) -> None:
    """Warn if numbers were given as float32: 0.1 is then 0.100000001."""
    parts = vars(value) if isinstance(value, Process | Factor | LowRank) else {"": value}
    for part, numbers in parts.items():
        if isinstance(numbers, Factor | LowRank):
            _warn_if_rounded(name, numbers, notes)
        elif numbers is not None and not callable(numbers) and is_rounded(numbers):
            argument = f"`{part}` of `{name}`" if part else f"`{name}`"
            notes.warn(f"the numbers of {argument} were made in float32. They are {LOW}")


def _check_reaction(value: Any) -> float:
    """A constant c as a float."""
    array = check_finite("reaction", value, "It is c in c u, one number.")
    if array.ndim:
        raise InputError(f"`reaction` must be one number, c in c u; got {short_repr(value)}.")
    return float(array)


def _float_array(name: str, value: Any) -> np.ndarray:
    """`value` as a float64 array with finite entries."""
    try:
        if isinstance(value, str):
            raise TypeError("text")
        array = np.asarray(value, dtype=np.float64)
    except Exception as error:
        raise InputError(
            f"`{name}` must be numbers; got {short_repr(value)}. Inside jax.jit or vmap call "
            "heatnets from outside, with NumPy arrays."
        ) from error
    if not np.all(np.isfinite(array)):
        raise InputError(
            f"`{name}` must be finite; {int(np.sum(~np.isfinite(array)))} of {array.size} entries "
            "are not."
        )
    return array
