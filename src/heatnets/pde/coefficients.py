"""Coefficient fields: A(t, x), b(t, x), c(t, x) as functions given by the user, with their checks.

The operator is kept in the form tr(A D²u) + b·∇u + c u.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets._core.errors import InputError, WarningLog, check_choice, short_repr
from heatnets._core.precision import LOW, low_precision_constants
from heatnets.pde.diffusion import Dense, Diagonal, Diffusion, Factor, Isotropic, diffusion
from heatnets.pde.function import check_function, jumps, place
from heatnets.pde.laplacian import gradient
from heatnets.pde.processes import vector
from heatnets.pde.transforms import TransformChain

FORMS = ("divergence", "trace")


class LocalOperator(NamedTuple):
    """The operator at one point: tr(A D²u) + b·∇u + c u, with A = S Sᵀ."""

    diffusion: Diffusion
    drift: Float[Array, " dim"]
    reaction: Float[Array, ""]


def _root(A: Any) -> Any:
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

    # A Diffusion; or a function that returns A as a number, a diagonal or a matrix (S if `factor`).
    diffusion: Any
    drift: Any  # a vector, or a function
    reaction: Any  # a number, or a function
    step: Any  # the user's one-step scheme, or None for Euler's
    transform: TransformChain
    factor: bool = eqx.field(static=True)  # `diffusion` returns S in A = S Sᵀ
    divergence: bool = eqx.field(static=True)  # the user's form is div(A ∇u), not tr(A D²u)
    # Names of discontinuous coefficients: the order of the time steps is then not known.
    jumps: tuple[str, ...] = eqx.field(static=True, default=())

    def evaluate(self, s: Any, y: Any) -> LocalOperator:
        """The operator at the canonical time s and point y (dim,)."""
        t, x = self.transform.from_canonical(jnp.asarray(s), y)
        diffusion = self.diffusion_at(t, x)
        drift = jnp.broadcast_to(self.drift(t, x) if callable(self.drift) else self.drift, x.shape)
        if self.divergence and not isinstance(self.diffusion, Diffusion):
            drift = drift + self._divergence(t, x)
        reaction = self.reaction(t, x) if callable(self.reaction) else self.reaction
        return LocalOperator(diffusion, drift, reaction / self.transform.rate(t))

    @property
    def has_reaction(self) -> bool:
        """Whether paths carry the weight exp(∫ c), which depends on the path."""
        return callable(self.reaction)

    @property
    def is_expensive(self) -> bool:
        """Whether a step is so large a program that a loop over steps must not be unrolled."""
        return False

    @property
    def workspace(self) -> int:
        """Number of vectors (dim,) that an evaluation needs in addition to those of the path."""
        return 0

    def diffusion_at(self, t: Any, x: Any) -> Diffusion:
        """A at the user's (t, x), with its square root."""
        if isinstance(self.diffusion, Diffusion):
            return self.diffusion
        value = self.diffusion(t, x)
        if self.factor:
            return Dense(value, None)
        return (Isotropic, Diagonal, lambda A: Dense(_root(A), None))[value.ndim](value)

    def _divergence(self, t: Any, x: Any) -> Array:
        """div A = Σ_i ∂_i A_ij, of shape (dim,): div(A ∇u) = tr(A D²u) + (div A)·∇u."""

        def A(z: Array) -> Array:
            value = self.diffusion(t, z)
            return value @ value.T if self.factor else value

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
        log_weight = operator.reaction * self.transform.rate(middle) * jnp.abs(t - until)
        if self.step is None:
            push = jnp.sqrt(2 * h) * operator.diffusion.apply_sqrt(noise)
            return y + operator.drift * h + push, log_weight, push
        position, mirrored = self.step(t, y, h, noise), self.step(t, y, h, -noise)
        return position, log_weight, 0.5 * (position - mirrored)


def varies(value: Any) -> bool:
    """Whether a coefficient is a function of t and x."""
    return callable(value) or (isinstance(value, Factor) and callable(value.S))


def with_jumps(
    field: CoefficientField, s: np.ndarray, y: np.ndarray, notes: WarningLog
) -> CoefficientField:
    """The field with `jumps` set: the names of coefficients that jump between points (s, y).

    Warns about jumps. Raises `InputError` if A jumps in divergence form, as paths then follow
    another equation.

    Args:
        field: the coefficient field.
        s: canonical times, shape (n,).
        y: canonical points, shape (n, dim).
        notes: the log that takes the warning.
    """
    discontinuous = find_jumps(field, s, y)
    if "diffusion" in discontinuous and field.divergence:
        raise InputError(
            "`diffusion` jumps, and in divergence form the jump itself acts on paths (div A is "
            "infinite there), which steps cannot follow. Smooth A over a width that you choose, "
            "for example with jnp.tanh; or, if you mean tr(A D²u), say "
            'form="trace".'
        )
    if discontinuous:
        names = " and ".join(f"`{name}`" for name in discontinuous)
        notes.warn(
            f"{names} jumps: what the steps of paths do to a value is then known only roughly, and "
            "certificates will say so. Smooth it if you can."
        )
    return replace(field, jumps=discontinuous)


def make_field(
    A: Any,
    b: Any,
    c: Any,
    form: Any,
    step: Any,
    constant: Diffusion | None,
    dim: int,
    transform: TransformChain,
    notes: WarningLog,
) -> CoefficientField:
    """Check the user's A, b, c, form and step, and make a coefficient field of them.

    `constant` is A if it is constant, in coordinates without drift; then A and b are ignored.
    """
    factor = isinstance(A, Factor)
    divergence = False
    if constant is not None:
        A, b = constant, 0.0
    elif varies(A):
        shapes = ((dim, dim),) if factor else ((), (dim,), (dim, dim))
        A = check_function("diffusion", A.S if factor else A, ("t", "x"), dim, notes, shapes)
        if form is None:
            raise InputError(
                "`form` must be said where `diffusion` is a function, as the two differ: "
                'form="divergence" for div(A ∇u), form="trace" for tr(A D²u), '
                "the generator of dX = b dt + √2 S dW with A = S Sᵀ."
            )
        divergence = check_choice("form", form, FORMS) == "divergence"
    else:
        A = diffusion(1.0 if A is None else A, dim)
    if form is not None:
        check_choice("form", form, FORMS)
    if callable(b):
        b = check_function("drift", b, ("t", "x"), dim, notes, ((dim,),))
    else:
        b = vector("drift", 0.0 if b is None else b, dim)
    if callable(c):
        c = check_function("reaction", c, ("t", "x"), dim, notes)
    if step is not None:
        step = _check_traceable(step, dim, notes)
    return CoefficientField(A, b, c, step, transform, factor, divergence)


def _check_traceable(step: Any, dim: int, notes: WarningLog) -> Any:
    """Raise `InputError` if JAX cannot trace the user's step to an array of shape (dim,)."""
    hint = (
        "Write step(t, x, h, noise): where a path from x at the time t is after a time h; noise is "
        "standard normal, of shape (dim,)."
    )
    if not callable(step):
        raise InputError(f"`step` must be a function; got {short_repr(step)}. {hint}")
    number, point = jax.ShapeDtypeStruct((), jnp.float64), jax.ShapeDtypeStruct((dim,), jnp.float64)
    try:
        closed, output = jax.make_jaxpr(step, return_shape=True)(number, point, number, point)
    except Exception as error:
        raise InputError(
            f"`step` must be traceable by JAX; it raised {type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else type(error).__name__}. {hint}"
        ) from error
    if getattr(output, "shape", None) != (dim,):
        raise InputError(
            f"`step` must return a place of shape ({dim},); got "
            f"{getattr(output, 'shape', short_repr(output))}. {hint}"
        )
    if low := low_precision_constants(step, closed):
        notes.warn(f"`step` captures constants of low precision: {', '.join(low)}. They are {LOW}")
    return step


@eqx.filter_jit
def _evaluate(field: CoefficientField, s: Array, y: Array) -> tuple[Array, Array, Array]:
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
        if field.factor:
            eigenvalues = jnp.linalg.svd(A, compute_uv=False) ** 2
        elif A.ndim == 2:
            eigenvalues, skew = jnp.linalg.eigvalsh(A), jnp.max(jnp.abs(A - A.T))
        bounds = jnp.stack([jnp.min(eigenvalues), jnp.max(eigenvalues), skew])
        return bounds, operator.drift, operator.reaction

    return jax.lax.map(evaluate_one, (s, y))


def check(field: CoefficientField, s: np.ndarray, y: np.ndarray) -> None:
    """Check the coefficients at canonical times s (n,) and points y (n, dim).

    Raises `InputError` if a coefficient is not finite, or A is not symmetric positive definite.
    """
    bounds, drift, reaction = (
        np.asarray(a) for a in _evaluate(field, jnp.asarray(s), jnp.asarray(y))
    )
    t, x = field.transform.from_canonical(s, y)
    for name, value in (("diffusion", bounds), ("drift", drift), ("reaction", reaction[:, None])):
        bad = np.flatnonzero(~np.all(np.isfinite(value), axis=1))
        if bad.size:
            also = ", with its derivatives," if name == "drift" and field.divergence else ""
            raise InputError(
                f"`{name}`{also} must be finite wherever paths lead; it was not at {bad.size} of "
                f"{len(s)} places, for example {place([np.atleast_1d(t)[bad[0]], x[bad[0]]])}."
            )
    if np.max(bounds[:, 2] / np.maximum(np.abs(bounds[:, 1]), 1e-300)) > 1e-10:
        k = int(np.argmax(bounds[:, 2]))
        raise InputError(
            f"`diffusion` must be a symmetric matrix; A - Aᵀ is up to {bounds[k, 2]:.2g} at "
            f"{place([t[k], x[k]])}. Give (A + Aᵀ)/2."
        )
    k = int(np.argmin(bounds[:, 0]))
    if not bounds[k, 0] > 1e-12 * np.max(np.abs(bounds[:, 1])):
        raise InputError(
            "`diffusion` must be positive definite wherever paths lead; its eigenvalues lie "
            f"between {bounds[k, 0]:.3g} and {bounds[k, 1]:.3g} at {place([t[k], x[k]])}. Where A "
            "has no inverse paths do not spread in all directions, which is not supported."
        )


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
        mean, mean_error, drift, covariance, twice_A = (
            np.asarray(a) for a in _moments(field, *ends, jnp.asarray(y[k]), jnp.asarray(noise))
        )
        size = float(np.max(np.diagonal(twice_A)))
        wrong_covariance = np.abs(covariance - twice_A) > 0.02 * size
        tolerance = 6 * mean_error + 0.05 * np.max(np.abs(drift)) + 1e-3 * size
        wrong_mean = np.abs(mean - drift) > tolerance
        if not (np.any(wrong_covariance) or np.any(wrong_mean)):
            continue
        if np.any(wrong_covariance):
            i, j = divmod(int(np.argmax(np.abs(covariance - twice_A))), covariance.shape[1])
            moment = f"the covariance ({i}, {j})"
            value, expected = covariance[i, j], twice_A[i, j]
        else:
            i = int(np.argmax(np.abs(mean - drift)))
            moment = f"the mean in coordinate {i}"
            value, expected = mean[i], drift[i]
        raise InputError(
            "`step` must move as `drift` and `diffusion` say (in the form tr(A D²u) + b·∇u); per "
            f"unit of time {moment} is {value:.3g} in place of {expected:.3g}, at "
            f"{place([t[k], y[k]])}. For A = S Sᵀ a path moves by b h + √(2h) S noise."
        )


@eqx.filter_jit
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


@eqx.filter_jit
def _coefficient_values(field: CoefficientField, name: str, t: Array, x: Array) -> Array:
    """Values of one coefficient at the user's t (n,) and x (n, dim), flattened to (n, k)."""

    def evaluate_one(point: tuple[Array, Array]) -> Array:
        return jnp.ravel(getattr(field, name)(*point))

    return jax.lax.map(evaluate_one, (t, x))


def find_jumps(field: CoefficientField, s: np.ndarray, y: np.ndarray) -> tuple[str, ...]:
    """Names of the coefficients that jump on some segment between canonical points.

    Segments join a point of the first half of s (n,), y (n, dim) to one of the second half.
    """
    discontinuous = []
    points = field.transform.from_canonical(s, y)
    half = len(s) // 2
    for name in ("diffusion", "drift", "reaction"):
        if not callable(getattr(field, name)):
            continue

        def value(t: np.ndarray, x: np.ndarray, name: str = name) -> np.ndarray:
            return np.asarray(_coefficient_values(field, name, jnp.asarray(t), jnp.asarray(x)))

        if jumps(value, tuple(p[:half] for p in points), tuple(p[half : 2 * half] for p in points)):
            discontinuous.append(name)
    return tuple(discontinuous)
