"""Coefficient fields: A(t, x), b(t, x), c(t, x) as functions given by the user, with their checks.

The operator is kept in the form tr(A D²u) + b·∇u + c u.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets._core.compilation import compiled, optimisation_level
from heatnets._core.errors import InputError, WarningLog, check_choice
from heatnets.pde.diffusion import (
    Dense,
    Diagonal,
    Diffusion,
    Factor,
    asymmetric,
    is_function,
    make_diffusion,
    not_definite,
)
from heatnets.pde.function import Function
from heatnets.pde.function_checks import check_function
from heatnets.pde.function_values import evaluate_at, format_point, has_jump
from heatnets.pde.laplacian import gradient
from heatnets.pde.processes import check_vector
from heatnets.pde.transforms import TransformChain

FORMS = ("divergence", "trace")


class GivenOperator(NamedTuple):
    """The coefficients of the operator as the user gave them to `Problem`."""

    diffusion: Any
    drift: Any
    reaction: Any
    form: Any
    step: Any

    @property
    def needs_steps(self) -> bool:
        """Whether paths need time steps."""
        return is_function(self.diffusion) or callable(self.drift) or self.step is not None


class LocalOperator(NamedTuple):
    """The operator at one point: tr(A D²u) + b·∇u + c u, with A = S Sᵀ."""

    diffusion: Diffusion
    drift: Float[Array, " dim"]
    reaction: Float[Array, ""]


def _cholesky_scan(A: Any) -> Any:
    """The Cholesky factor of A (dim, dim), column by column.

    The derivative of LAPACK's factorisation solves batched triangular systems: on two cores, two of
    these solves at the same time ended in a deadlock.
    """

    def eliminate(schur: Any, k: Any) -> tuple[Any, Any]:
        column = jnp.where(jnp.arange(len(A)) >= k, schur[:, k], 0.0) / jnp.sqrt(schur[k, k])
        return schur - jnp.outer(column, column), column

    return jax.lax.scan(eliminate, A, jnp.arange(len(A)))[1].T


class CoefficientField(eqx.Module):
    """The operator in canonical coordinates, from functions of the user's (t, x) or constants.

    The canonical time s is zero where the initial or terminal condition is given.
    """

    # A Diffusion; or a function that returns A as a number, a diagonal or a matrix, or S.
    diffusion: Any
    drift: Any  # a vector, or a function
    reaction: Any  # a number, or a function
    step: Any  # the user's one-step scheme, or None for Euler's
    transform: TransformChain
    is_sqrt: bool = eqx.field(static=True)  # `diffusion` returns S in A = S Sᵀ
    divergence: bool = eqx.field(static=True)  # the user's form is div(A ∇u), not tr(A D²u)
    # Names of discontinuous coefficients: the order of the time steps is then not known.
    jumps: tuple[str, ...] = eqx.field(static=True, default=())
    # Whether a step is so large a program that a loop over steps must not be unrolled.
    is_expensive: ClassVar[bool] = False
    workspace: ClassVar[int] = 0  # vectors (dim,) that an evaluation needs besides those of a path

    def evaluate(self, s: Any, y: Any) -> LocalOperator:
        """The operator at the canonical time s and point y (dim,)."""
        t, x = self.transform.from_canonical(jnp.asarray(s), y)
        diffusion = self.diffusion_at(t, x)
        drift = jnp.broadcast_to(self.drift(t, x) if callable(self.drift) else self.drift, x.shape)
        if self.divergence and not isinstance(self.diffusion, Diffusion):
            drift = drift + self._divergence(t, x)
        reaction = self.reaction(t, x) if callable(self.reaction) else self.reaction
        return LocalOperator(diffusion, drift, reaction / self.transform.time_derivative(t))

    @property
    def functions(self) -> dict[str, Function]:
        """The coefficients that are functions of the user's (t, x), by name."""
        parts = {"diffusion": self.diffusion, "drift": self.drift, "reaction": self.reaction}
        return {name: part for name, part in parts.items() if isinstance(part, Function)}

    @property
    def has_reaction(self) -> bool:
        """Whether paths carry the weight exp(∫ c), which depends on the path."""
        return callable(self.reaction)

    @property
    def only_reaction_varies(self) -> bool:
        """Whether A is constant, and there is neither drift nor change of coordinates."""
        return False

    def diffusion_at(self, t: Any, x: Any) -> Diffusion:
        """A at the user's (t, x), with its square root."""
        if isinstance(self.diffusion, Diffusion):
            return self.diffusion
        value = self.diffusion(t, x)
        if value.ndim < 2:
            return Diagonal(value)
        return Dense(value if self.is_sqrt else _cholesky_scan(value), None)

    def _divergence(self, t: Any, x: Any) -> Array:
        """div A = Σ_i ∂_i A_ij, of shape (dim,): div(A ∇u) = tr(A D²u) + (div A)·∇u."""

        def A(z: Array) -> Array:
            value = self.diffusion(t, z)
            return value @ value.T if self.is_sqrt else value

        ndim = jax.eval_shape(A, x).ndim
        if ndim == 0:
            return gradient(A, x)
        slopes = jax.jacfwd(A)(x)
        return jnp.diagonal(slopes) if ndim == 1 else jnp.einsum("iji->j", slopes)

    def advance(self, t: Any, until: Any, y: Any, noise: Any) -> tuple[Any, Any, Any]:
        """One time step of a path at y, from the user's time t to the user's time `until`.

        Coefficients are evaluated at y and at the midpoint in time: a second-order error if they
        depend on time only.

        Returns:
            The new position (dim,), the logarithm of the weight, and the part of the increment that
            is odd in the noise.
        """
        middle = 0.5 * (t + until)
        # Rounding could make h negative if no time passes.
        h = jnp.maximum(self.transform.time(t) - self.transform.time(until), 0.0)
        operator = self.evaluate(self.transform.time(middle), y)
        # c in the user's time, times the length of the step in that time.
        log_weight = operator.reaction * self.transform.time_derivative(middle) * jnp.abs(t - until)
        if self.step is None:
            push = jnp.sqrt(2 * h) * operator.diffusion.apply_sqrt(noise)
            return y + operator.drift * h + push, log_weight, push
        position, mirrored = self.step(t, y, h, noise), self.step(t, y, h, -noise)
        return position, log_weight, 0.5 * (position - mirrored)


def with_jumps(
    field: CoefficientField, s: np.ndarray, y: np.ndarray, log: WarningLog
) -> CoefficientField:
    """The field with `jumps` set: the names of coefficients that jump.

    They are searched on segments that join a point of the first half of s (n,), y (n, dim) to one
    of the second half. Jumps are a warning. Raises `InputError` if A jumps in divergence form, as
    paths then follow another equation.
    """
    points, half = field.transform.from_canonical(s, y), len(s) // 2
    start, end = (tuple(p[k * half : (k + 1) * half] for p in points) for k in (0, 1))
    discontinuous = tuple(
        name
        for name, function in field.functions.items()
        if has_jump(partial(evaluate_at, function), start, end)
    )
    if "diffusion" in discontinuous and field.divergence:
        raise InputError(
            "`diffusion` jumps, and in divergence form the jump itself acts on paths (div A is "
            "infinite there), which steps cannot follow. Smooth A over a width that you choose, "
            "for example with jnp.tanh; or, if you mean tr(A D²u), say "
            'form="trace".'
        )
    if discontinuous:
        names = " and ".join(f"`{name}`" for name in discontinuous)
        log.warn(
            f"{names} jumps: what the steps of paths do to a value is then known only roughly, and "
            "certificates will say so. Smooth it if you can."
        )
    return replace(field, jumps=discontinuous)


def make_field(
    given: GivenOperator,
    constant: Diffusion | None,
    dim: int,
    transform: TransformChain,
    log: WarningLog,
) -> CoefficientField | None:
    """Check the user's coefficients, and make a field of them; None if all are constant.

    `constant` is A if it is constant, in coordinates without drift; then A and b are ignored.
    """
    A, b, c, form, step = given
    if form is not None:
        check_choice("form", form, FORMS)
    if not given.needs_steps and not callable(c):
        return None
    is_sqrt, divergence = False, False
    if constant is not None:
        A, b = constant, 0.0
    elif is_function(A):
        is_sqrt, divergence = isinstance(A, Factor), form == "divergence"
        shapes = ((dim, dim),) if is_sqrt else ((), (dim,), (dim, dim))
        A = check_function("diffusion", A.S if is_sqrt else A, ("t", "x"), dim, log, shapes)
        if form is None:
            raise InputError(
                "`form` must be said where `diffusion` is a function, as the two differ: "
                'form="divergence" for div(A ∇u), form="trace" for tr(A D²u), '
                "the generator of dX = b dt + √2 S dW with A = S Sᵀ."
            )
    else:
        A = make_diffusion(1.0 if A is None else A, dim)
    if callable(b):
        b = check_function("drift", b, ("t", "x"), dim, log, ((dim,),))
    else:
        b = check_vector("drift", 0.0 if b is None else b, dim)
    c = check_function("reaction", c, ("t", "x"), dim, log) if callable(c) else 0.0
    if step is not None:
        step = check_function("step", step, ("t", "x", "h", "noise"), dim, log, ((dim,),))
    return CoefficientField(A, b, c, step, transform, is_sqrt, divergence)


@compiled
def _probe(field: CoefficientField, s: Array, y: Array) -> tuple[Array, Array, Array]:
    """The coefficients at canonical points.

    Returns:
        Smallest and largest eigenvalue of A and max |A - Aᵀ|, shape (n, 3); b, shape (n, dim); c,
        shape (n,).
    """

    def evaluate_one(point: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        s, y = point
        t, x = field.transform.from_canonical(s, y)
        operator = field.evaluate(s, y)
        A = field.diffusion(t, x) if callable(field.diffusion) else jnp.ones(())
        eigenvalues, skew = A, jnp.zeros(())
        if field.is_sqrt:
            eigenvalues = jnp.linalg.svd(A, compute_uv=False) ** 2
        elif A.ndim == 2:
            eigenvalues, skew = jnp.linalg.eigvalsh(A), jnp.max(jnp.abs(A - A.T))
        bounds = jnp.stack([jnp.min(eigenvalues), jnp.max(eigenvalues), skew])
        return bounds, operator.drift, operator.reaction

    return jax.lax.map(evaluate_one, (s, y))


def check_elliptic(field: CoefficientField, s: np.ndarray, y: np.ndarray) -> None:
    """Check the coefficients at canonical times s (n,) and points y (n, dim).

    Raises `InputError` if a coefficient is not finite, or A is not symmetric positive definite.
    """
    bounds, drift, reaction = (np.asarray(a) for a in _probe(field, jnp.asarray(s), jnp.asarray(y)))
    t, x = field.transform.from_canonical(s, y)
    for name, value in (("diffusion", bounds), ("drift", drift), ("reaction", reaction[:, None])):
        bad = np.flatnonzero(~np.all(np.isfinite(value), axis=1))
        if bad.size:
            also = ", with its derivatives," if name == "drift" and field.divergence else ""
            example = format_point([np.atleast_1d(t)[bad[0]], x[bad[0]]])
            raise InputError(
                f"`{name}`{also} must be finite wherever paths lead; it was not at {bad.size} of "
                f"{len(s)} places, for example {example}."
            )
    low, high, skew = bounds.T
    k = int(np.argmax(skew))
    if np.max(skew / np.maximum(np.abs(high), 1e-300)) > 1e-10:
        raise asymmetric(skew[k], f" at {format_point([t[k], x[k]])}")
    k = int(np.argmin(low))
    if not low[k] > 1e-12 * np.max(np.abs(high)):
        where = f" at {format_point([t[k], x[k]])}"
        raise not_definite(low[k], high[k], " wherever paths lead", where)


def check_step(field: CoefficientField, s: np.ndarray, y: np.ndarray) -> None:
    """Check the moments of the user's step at up to four of the canonical points (s, y).

    Raises `InputError` if, over a short time, its mean is not b h or its covariance is not 2 A h.
    """
    if field.step is None:
        return
    dim = y.shape[1]
    noise = np.random.default_rng(0).standard_normal((max(16, min(2048, 2**18 // dim)), dim))
    t = field.transform.inverse_time(s)
    # Paths run towards s = 0: backwards in the user's time, unless the transform reverses time.
    direction = -1.0 if field.transform.time(1.0) - field.transform.time(0.0) > 0 else 1.0
    h = 1e-4 * float(np.max(s))
    for k in np.argsort(s)[:: max(1, len(s) // 4)][:4]:
        ends = (jnp.asarray(t[k]), jnp.asarray(t[k] + direction * h))
        arguments = (field, *ends, jnp.asarray(y[k]), jnp.asarray(noise))
        mean, mean_error, drift, covariance, twice_A = (
            np.asarray(a) for a in _moments(*arguments, level=optimisation_level(noise.size))
        )
        size = float(np.max(np.diagonal(twice_A)))
        gap, mean_gap = np.abs(covariance - twice_A), np.abs(mean - drift)
        tolerance = 6 * mean_error + 0.05 * np.max(np.abs(drift)) + 1e-3 * size
        if np.any(gap > 0.02 * size):
            i, j = divmod(int(np.argmax(gap)), dim)
            moment, value, expected = f"covariance ({i}, {j})", covariance[i, j], twice_A[i, j]
        elif np.any(mean_gap > tolerance):
            i = int(np.argmax(mean_gap))
            moment, value, expected = f"mean in coordinate {i}", mean[i], drift[i]
        else:
            continue
        raise InputError(
            "`step` must move as `drift` and `diffusion` say (in the form tr(A D²u) + b·∇u); per "
            f"unit of time the {moment} is {value:.3g} in place of {expected:.3g}, at "
            f"{format_point([t[k], y[k]])}. For A = S Sᵀ a path moves by b h + √(2h) S noise."
        )


@compiled
def _moments(
    field: CoefficientField, t: Array, until: Array, y: Array, noise: Array
) -> tuple[Array, ...]:
    """Moments of a step per unit of time, and what they should be.

    Returns:
        The mean of the part that is even in the noise, its standard error, and b, each (dim,); the
        covariance, from the Jacobian of the step in the noise at zero, and 2A, each (dim, dim).
    """
    h = jnp.abs(t - until)
    positions, _, odd = jax.lax.map(lambda n: field.advance(t, until, y, n), noise, batch_size=256)
    even = (positions - y - odd) / h
    J = jax.jacfwd(lambda n: field.advance(t, until, y, n)[0])(jnp.zeros_like(y))
    operator = field.evaluate(field.transform.time(0.5 * (t + until)), y)
    S = jax.vmap(operator.diffusion.apply_sqrt)(jnp.eye(y.size)).T
    return (
        even.mean(axis=0),
        even.std(axis=0) / np.sqrt(len(noise)),
        operator.drift,
        J @ J.T / h,
        2 * S @ S.T,
    )
