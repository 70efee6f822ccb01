"""Coefficients that vary: A(t, x), b(t, x), c(t, x) as the user's functions, checked, in the form tr(A D²u) + b·∇u + c u."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets._core.errors import InputError, WarningLog, choice, short_repr
from heatnets._core.precision import LOW, low_precision_constants
from heatnets.pde.diffusion import Dense, Diagonal, Diffusion, Factor, Isotropic, diffusion
from heatnets.pde.function import checked, jumps, place
from heatnets.pde.laplacian import gradient
from heatnets.pde.processes import vector
from heatnets.pde.transforms import TransformChain

FORMS = ("divergence", "trace")


class LocalOperator(NamedTuple):
    """The operator at one point: tr(A D²u) + b·∇u + c u, with A = S Sᵀ."""

    diffusion: Diffusion
    drift: Float[Array, "dim"]
    reaction: Float[Array, ""]


def _root(A: Any) -> Any:
    """The Cholesky factor, column by column. LAPACK's, differentiated, solves triangles in batches, and two of those at once waited for each other for ever on two cores."""

    def column(rest: Any, k: Any) -> tuple[Any, Any]:
        found = jnp.where(jnp.arange(len(A)) >= k, rest[:, k], 0.0) / jnp.sqrt(rest[k, k])
        return rest - jnp.outer(found, found), found

    return jax.lax.scan(column, A, jnp.arange(len(A)))[1].T


class CoefficientField(eqx.Module):
    """The operator in the coordinates of the plain problem, whose time runs from the data: functions of the user's (t, x), or constants."""

    diffusion: (
        Any  # a Diffusion, or a function: A as a number, a diagonal or a matrix; S where `factor`
    )
    drift: Any  # a vector, or a function
    reaction: Any  # a number, or a function
    step: Any  # the user's own step map, or None for Euler's
    transform: TransformChain
    factor: bool = eqx.field(static=True)
    divergence: bool = eqx.field(static=True)
    jumps: tuple[str, ...] = eqx.field(
        static=True, default=()
    )  # coefficients found to jump: what steps do is then not known

    def at(self, s: Any, y: Any) -> LocalOperator:
        """The operator at a plain time and place."""
        t, x = self.transform.from_canonical(jnp.asarray(s), y)
        diffusion = self.diffusion_at(t, x)
        drift = jnp.broadcast_to(self.drift(t, x) if callable(self.drift) else self.drift, x.shape)
        if self.divergence and not isinstance(self.diffusion, Diffusion):
            drift = drift + self._divergence(t, x)
        reaction = self.reaction(t, x) if callable(self.reaction) else self.reaction
        return LocalOperator(diffusion, drift, reaction / self.transform.rate(t))

    @property
    def long(self) -> bool:
        """Whether a step is so long a program that steps are not to be written out one after the other."""
        return False

    @property
    def workspace(self) -> int:
        """Vectors an evaluation holds beside the path's own."""
        return 0

    def diffusion_at(self, t: Any, x: Any) -> Diffusion:
        """A at the user's (t, x), with its root."""
        if isinstance(self.diffusion, Diffusion):
            return self.diffusion
        value = self.diffusion(t, x)
        if self.factor:
            return Dense(value, None)
        return (Isotropic, Diagonal, lambda A: Dense(_root(A), None))[value.ndim](value)

    def _divergence(self, t: Any, x: Any) -> Array:
        """Σ_i ∂_i A_ij: div(A ∇u) = tr(A D²u) + (div A)·∇u."""

        def A(z: Array) -> Array:
            given = self.diffusion(t, z)
            return given @ given.T if self.factor else given

        ndim = jax.eval_shape(A, x).ndim
        if ndim == 0:
            return gradient(A, x)
        slopes = jax.jacfwd(A)(x)
        return jnp.diagonal(slopes) if ndim == 1 else jnp.einsum("iji->j", slopes)

    def move(self, t: Any, until: Any, y: Any, noise: Any) -> tuple[Any, Any, Any]:
        """One step of a path at y from one of the user's times to another: where it leads, the logarithm of its weight, and the part that is odd in the noise.

        Coefficients are taken at y and in the middle of the time, which leaves those of time alone a second-order error.
        """
        middle = 0.5 * (t + until)
        h = jnp.maximum(
            self.transform.time(t) - self.transform.time(until), 0.0
        )  # rounding, where no time passes
        here = self.at(self.transform.time(middle), y)
        grown = (
            here.reaction * self.transform.rate(middle) * jnp.abs(t - until)
        )  # c in the user's time
        if self.step is None:
            push = jnp.sqrt(2 * h) * here.diffusion.apply_sqrt(noise)
            return y + here.drift * h + push, grown, push
        there, back = self.step(t, y, h, noise), self.step(t, y, h, -noise)
        return there, grown, 0.5 * (there - back)


def varies(value: Any) -> bool:
    """Whether what the user gave is a function of t and x."""
    return callable(value) or (isinstance(value, Factor) and callable(value.S))


def settled(
    given: CoefficientField, s: np.ndarray, y: np.ndarray, notes: WarningLog
) -> CoefficientField:
    """The same once it is known whether coefficients jump between plain points where paths lead: refused where the equation would be another one."""
    found = jumping(given, s, y)
    if "diffusion" in found and given.divergence:
        raise InputError(
            "`diffusion` jumps, and in divergence form the jump itself acts on paths (div A is infinite there), which steps cannot follow. Smooth A over a width "
            'that you choose, for example with jnp.tanh; or, if you mean tr(A D²u), say form="trace".'
        )
    if found:
        names = " and ".join(f"`{name}`" for name in found)
        notes.warn(
            f"{names} jumps: what the steps of paths do to a value is then known only roughly, and certificates will say so. Smooth it if you can."
        )
    return replace(given, jumps=found)


def coefficients(
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
    """What the user gave, checked. `constant` is A where it is known already, in coordinates that leave no drift."""
    factor = isinstance(A, Factor)
    divergence = False
    if constant is not None:
        A, b = constant, 0.0
    elif varies(A):
        shapes = ((dim, dim),) if factor else ((), (dim,), (dim, dim))
        A = checked("diffusion", A.S if factor else A, ("t", "x"), dim, notes, shapes)
        if form is None:
            raise InputError(
                '`form` must be said where `diffusion` is a function, as the two differ: form="divergence" for div(A ∇u), form="trace" for tr(A D²u), '
                "the generator of dX = b dt + √2 S dW with A = S Sᵀ."
            )
        divergence = choice("form", form, FORMS) == "divergence"
    else:
        A = diffusion(1.0 if A is None else A, dim)
    if form is not None:
        choice("form", form, FORMS)
    b = (
        checked("drift", b, ("t", "x"), dim, notes, ((dim,),))
        if callable(b)
        else vector("drift", 0.0 if b is None else b, dim)
    )
    if callable(c):
        c = checked("reaction", c, ("t", "x"), dim, notes)
    if step is not None:
        step = _step(step, dim, notes)
    return CoefficientField(A, b, c, step, transform, factor, divergence)


def _step(step: Any, dim: int, notes: WarningLog) -> Any:
    hint = "Write step(t, x, h, noise): where a path from x at the time t is after a time h; noise is standard normal, of shape (dim,)."
    if not callable(step):
        raise InputError(f"`step` must be a function; got {short_repr(step)}. {hint}")
    number, point = jax.ShapeDtypeStruct((), jnp.float64), jax.ShapeDtypeStruct((dim,), jnp.float64)
    try:
        closed, came = jax.make_jaxpr(step, return_shape=True)(number, point, number, point)
    except Exception as error:
        raise InputError(
            f"`step` must be traceable by JAX; it raised {type(error).__name__}: {str(error).splitlines()[0]}. {hint}"
        ) from error
    if getattr(came, "shape", None) != (dim,):
        raise InputError(
            f"`step` must return a place of shape ({dim},); got {getattr(came, 'shape', short_repr(came))}. {hint}"
        )
    if low := low_precision_constants(step, closed):
        notes.warn(f"`step` captures constants of low precision: {', '.join(low)}. They are {LOW}")
    return step


@eqx.filter_jit
def _looked_at(given: CoefficientField, s: Array, y: Array) -> tuple[Array, Array, Array]:
    """At points: the smallest and largest eigenvalue of A and the size of A - Aᵀ; b; c."""

    def one(point: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        s, y = point
        t, x = given.transform.from_canonical(s, y)
        here, A = (
            given.at(s, y),
            given.diffusion(t, x) if callable(given.diffusion) else jnp.ones(()),
        )
        values, skew = A, jnp.zeros(())
        if given.factor:
            values = jnp.linalg.svd(A, compute_uv=False) ** 2
        elif A.ndim == 2:
            values, skew = jnp.linalg.eigvalsh(A), jnp.max(jnp.abs(A - A.T))
        return jnp.stack([jnp.min(values), jnp.max(values), skew]), here.drift, here.reaction

    return jax.lax.map(one, (s, y))


def check(given: CoefficientField, s: np.ndarray, y: np.ndarray) -> None:
    """Refuse coefficients that are not finite, or no diffusion, at plain points where paths lead."""
    bounds, drift, reaction = (
        np.asarray(a) for a in _looked_at(given, jnp.asarray(s), jnp.asarray(y))
    )
    t, x = given.transform.from_canonical(s, y)
    for name, value in (("diffusion", bounds), ("drift", drift), ("reaction", reaction[:, None])):
        bad = np.flatnonzero(~np.all(np.isfinite(value), axis=1))
        if bad.size:
            also = ", with its derivatives," if name == "drift" and given.divergence else ""
            raise InputError(
                f"`{name}`{also} must be finite wherever paths lead; it was not at {bad.size} of {len(s)} places, for example "
                f"{place([np.atleast_1d(t)[bad[0]], x[bad[0]]])}."
            )
    if np.max(bounds[:, 2] / np.maximum(np.abs(bounds[:, 1]), 1e-300)) > 1e-10:
        k = int(np.argmax(bounds[:, 2]))
        raise InputError(
            f"`diffusion` must be a symmetric matrix; A - Aᵀ is up to {bounds[k, 2]:.2g} at {place([t[k], x[k]])}. Give (A + Aᵀ)/2."
        )
    k = int(np.argmin(bounds[:, 0]))
    if not bounds[k, 0] > 1e-12 * np.max(np.abs(bounds[:, 1])):
        raise InputError(
            f"`diffusion` must be positive definite wherever paths lead; its eigenvalues lie between {bounds[k, 0]:.3g} and {bounds[k, 1]:.3g} at "
            f"{place([t[k], x[k]])}. Where A has no inverse paths do not spread in all directions, which is not supported."
        )


def check_step(given: CoefficientField, s: np.ndarray, y: np.ndarray) -> None:
    """A user's step, over a short time, must have the mean and the covariance that drift and diffusion say, at a few plain points."""
    if given.step is None:
        return
    dim = y.shape[1]
    noise = np.random.default_rng(0).standard_normal((max(16, min(2048, 2**18 // dim)), dim))
    t = given.transform.inverse_time(s)
    toward = -1.0 if given.transform.time(1.0) - given.transform.time(0.0) > 0 else 1.0
    h = 1e-4 * float(np.max(s))
    for k in np.argsort(s)[:: max(1, len(s) // 4)][:4]:
        ends = (jnp.asarray(t[k]), jnp.asarray(t[k] + toward * h))
        mean, noisy, drift, root, wanted = (
            np.asarray(a) for a in _moments(given, *ends, jnp.asarray(y[k]), jnp.asarray(noise))
        )
        size = float(np.max(np.diagonal(wanted)))
        apart = np.abs(root - wanted) > 0.02 * size
        late = np.abs(mean - drift) > 6 * noisy + 0.05 * np.max(np.abs(drift)) + 1e-3 * size
        if not (np.any(apart) or np.any(late)):
            continue
        if np.any(apart):
            i, j = divmod(int(np.argmax(np.abs(root - wanted))), root.shape[1])
            what, came, due = f"the covariance ({i}, {j})", root[i, j], wanted[i, j]
        else:
            i = int(np.argmax(np.abs(mean - drift)))
            what, came, due = f"the mean in coordinate {i}", mean[i], drift[i]
        raise InputError(
            f"`step` must move as `drift` and `diffusion` say (in the form tr(A D²u) + b·∇u); per unit of time {what} is {came:.3g} in place of {due:.3g}, "
            f"at {place([t[k], y[k]])}. For A = S Sᵀ a path moves by b h + √(2h) S noise."
        )


@eqx.filter_jit
def _moments(
    given: CoefficientField, t: Array, until: Array, y: Array, noise: Array
) -> tuple[Array, ...]:
    """Per unit of time: the mean of a step's even part and its standard error, and b; the covariance from its slope in the noise, and 2A."""
    h = jnp.abs(t - until)
    there, _, odd = jax.lax.map(lambda n: given.move(t, until, y, n), noise, batch_size=256)
    even = (there - y - odd) / h
    J = jax.jacfwd(lambda n: given.move(t, until, y, n)[0])(jnp.zeros_like(y))
    here = given.at(given.transform.time(0.5 * (t + until)), y)
    S = jax.vmap(here.diffusion.apply_sqrt)(jnp.eye(y.size)).T
    return (
        even.mean(axis=0),
        even.std(axis=0) / np.sqrt(len(noise)),
        here.drift,
        J @ J.T / h,
        2 * S @ S.T,
    )


@eqx.filter_jit
def _values(given: CoefficientField, name: str, t: Array, x: Array) -> Array:
    def one(point: tuple[Array, Array]) -> Array:
        return jnp.ravel(getattr(given, name)(*point))

    return jax.lax.map(one, (t, x))


def jumping(given: CoefficientField, s: np.ndarray, y: np.ndarray) -> tuple[str, ...]:
    """Names of the coefficients that jump between some of the plain points."""
    found = []
    points = given.transform.from_canonical(s, y)
    half = len(s) // 2
    for name in ("diffusion", "drift", "reaction"):
        if not callable(getattr(given, name)):
            continue

        def value(t: np.ndarray, x: np.ndarray, name: str = name) -> np.ndarray:
            return np.asarray(_values(given, name, jnp.asarray(t), jnp.asarray(x)))

        if jumps(value, tuple(p[:half] for p in points), tuple(p[half : 2 * half] for p in points)):
            found.append(name)
    return tuple(found)
