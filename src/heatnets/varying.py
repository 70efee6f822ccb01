"""Coefficients that vary: A(t, x), b(t, x), c(t, x) as the user's functions, checked, in the form tr(A D²u) + b·∇u + c u."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets.diffusions import Dense, Diagonal, Diffusion, Factor, Isotropic, diffusion
from heatnets.errors import InputError, Notes, choice, describe
from heatnets.frames import Frame
from heatnets.function import checked, place
from heatnets.processes import vector

FORMS = ("divergence", "trace")


class Local(NamedTuple):
    """The operator at one point: tr(A D²u) + b·∇u + c u, with A = S Sᵀ."""

    scatter: Diffusion
    drift: Float[Array, "dim"]
    reaction: Float[Array, ""]


class Coefficients(eqx.Module):
    """The operator in the coordinates of the plain problem, whose time runs from the data: functions of the user's (t, x), or constants."""

    diffusion: Any  # a Diffusion, or a function: A as a number, a diagonal or a matrix; S where `factor`
    drift: Any  # a vector, or a function
    reaction: Any  # a number, or a function
    step: Any  # the user's own step map, or None for Euler's
    frame: Frame
    factor: bool = eqx.field(static=True)
    divergence: bool = eqx.field(static=True)

    def at(self, s: Any, y: Any) -> Local:
        """The operator at a plain time and place."""
        t, x = self.frame.outward(jnp.asarray(s), y)
        scatter = self.scatter(t, x)
        drift = jnp.broadcast_to(self.drift(t, x) if callable(self.drift) else self.drift, x.shape)
        if self.divergence and not isinstance(self.diffusion, Diffusion):
            drift = drift + self._divergence(t, x)
        reaction = self.reaction(t, x) if callable(self.reaction) else self.reaction
        return Local(scatter, drift, reaction / self.frame.rate(t))

    def scatter(self, t: Any, x: Any) -> Diffusion:
        """A at the user's (t, x), with its root."""
        if isinstance(self.diffusion, Diffusion):
            return self.diffusion
        value = self.diffusion(t, x)
        if self.factor:
            return Dense(value, None)
        return (Isotropic, Diagonal, lambda A: Dense(jnp.linalg.cholesky(A), None))[value.ndim](value)

    def _divergence(self, t: Any, x: Any) -> Array:
        """Σ_i ∂_i A_ij: div(A ∇u) = tr(A D²u) + (div A)·∇u."""
        if self.factor:

            def A(z: Array) -> Array:
                S = self.diffusion(t, z)
                return S @ S.T
        else:

            def A(z: Array) -> Array:
                return self.diffusion(t, z)

        ndim = jax.eval_shape(A, x).ndim
        if ndim == 0:
            return jax.jacfwd(A)(x)
        slopes = jax.jacfwd(A)(x)
        return jnp.diagonal(slopes) if ndim == 1 else jnp.einsum("iji->j", slopes)

    def move(self, s: Any, y: Any, h: Any, noise: Any) -> tuple[Any, Any, Any]:
        """One step of a path from (s, y) to the time s - h: where it leads, the logarithm of its weight, and the part that is odd in the noise.

        Coefficients are taken at y and in the middle of the time, which leaves those of time alone a second-order error.
        """
        here = self.at(s - 0.5 * h, y)
        if self.step is None:
            push = jnp.sqrt(2 * h) * here.scatter.shape(noise)
            return y + here.drift * h + push, here.reaction * h, push
        t = self.frame.clock_back(jnp.asarray(s))
        there, back = self.step(t, y, h, noise), self.step(t, y, h, -noise)
        return there, here.reaction * h, 0.5 * (there - back)


def varies(value: Any) -> bool:
    """Whether what the user gave is a function of t and x."""
    return callable(value) or (isinstance(value, Factor) and callable(value.S))


def coefficients(
    A: Any, b: Any, c: Any, form: Any, step: Any, scatter: Diffusion | None, dim: int, frame: Frame, notes: Notes
) -> Coefficients:
    """What the user gave, checked. `scatter` is A where it is known already, in coordinates that leave no drift."""
    factor = isinstance(A, Factor)
    divergence = False
    if scatter is not None:
        A, b = scatter, 0.0
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
    if callable(b):
        b = checked("drift", b, ("t", "x"), dim, notes, ((), (dim,)))
    else:
        b = vector("drift", 0.0 if b is None else b, dim)
    if callable(c):
        c = checked("reaction", c, ("t", "x"), dim, notes)
    if step is not None:
        step = _step(step, dim)
    return Coefficients(A, b, c, step, frame, factor, divergence)


def _step(step: Any, dim: int) -> Any:
    hint = "Write step(t, x, h, noise): where a path from x at the time t is after a time h; noise is standard normal, of shape (dim,)."
    if not callable(step):
        raise InputError(f"`step` must be a function; got {describe(step)}. {hint}")
    number, point = jax.ShapeDtypeStruct((), jnp.float64), jax.ShapeDtypeStruct((dim,), jnp.float64)
    try:
        came = jax.eval_shape(step, number, point, number, point)
    except Exception as error:
        raise InputError(
            f"`step` must be traceable by JAX; it raised {type(error).__name__}: {str(error).splitlines()[0]}. {hint}"
        ) from error
    if getattr(came, "shape", None) != (dim,):
        raise InputError(f"`step` must return a place of shape ({dim},); got {getattr(came, 'shape', describe(came))}. {hint}")
    return step


@eqx.filter_jit
def _looked_at(given: Coefficients, s: Array, y: Array) -> tuple[Array, Array, Array, Array]:
    """At points: S applied to the unit vectors' sum, b, c, and the smallest and largest eigenvalue of A."""

    def one(point: tuple[Array, Array]) -> tuple[Array, Array, Array, Array]:
        s, y = point
        t, x = given.frame.outward(s, y)
        here, A = given.at(s, y), given.diffusion(t, x) if callable(given.diffusion) else jnp.ones(())
        values, skew = A, jnp.zeros(())
        if given.factor:
            values = jnp.linalg.svd(A, compute_uv=False) ** 2
        elif A.ndim == 2:
            values, skew = jnp.linalg.eigvalsh(A), jnp.max(jnp.abs(A - A.T))
        return (
            jnp.stack([jnp.min(values), jnp.max(values), skew]),
            here.drift,
            here.reaction,
            here.scatter.shape(jnp.ones_like(y)),
        )

    return jax.lax.map(one, (s, y))


def check(given: Coefficients, s: np.ndarray, y: np.ndarray) -> None:
    """Refuse coefficients that are not finite, or no diffusion, at plain points where paths lead."""
    bounds, drift, reaction, _ = (np.asarray(a) for a in _looked_at(given, jnp.asarray(s), jnp.asarray(y)))
    t, x = given.frame.outward(s, y)
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
    if given.step is not None:
        _check_step(given, s, y)


_STEPS_CHECKED = 4096


@eqx.filter_jit
def _moments(given: Coefficients, s: Array, y: Array, h: Array, noise: Array) -> tuple[Array, ...]:
    """Mean of a step over noise and its standard error; mean square of its odd part; what both should be."""
    there, _, odd = jax.lax.map(lambda n: given.move(s, y, h, n), noise, batch_size=256)
    here, ways = given.at(s, y), jnp.mean(there - y, axis=0)
    even = there - y - odd
    size = jnp.mean(jax.vmap(here.scatter.shape)(noise) ** 2, axis=0) * 2 * h
    return (
        ways - jnp.mean(odd, axis=0),
        jnp.std(even, axis=0) / np.sqrt(len(noise)),
        jnp.mean(odd**2, axis=0),
        here.drift * h,
        size,
    )


def _check_step(given: Coefficients, s: np.ndarray, y: np.ndarray) -> None:
    """A user's step, over a short time, must have the mean and the variance that drift and diffusion say."""
    noise = np.random.default_rng(0).standard_normal((max(64, min(_STEPS_CHECKED, 2**20 // y.shape[1])), y.shape[1]))
    h = 1e-4 * float(np.max(s))
    k = int(np.argmax(s))
    mean, noisy, square, drift, size = (
        np.asarray(a) for a in _moments(given, jnp.asarray(s[k]), jnp.asarray(y[k]), jnp.asarray(h), jnp.asarray(noise))
    )
    allowed = 6 * noisy + 0.05 * np.abs(drift) + 1e-3 * size  # terms of higher order in h
    wrong = np.abs(square - size) > 0.05 * size
    if np.any(wrong) or np.any(np.abs(mean - drift) > allowed):
        what = "variance" if np.any(wrong) else "mean"
        i = int(np.argmax(np.abs(square - size) / size)) if np.any(wrong) else int(np.argmax(np.abs(mean - drift) - allowed))
        came, wanted = (square[i], size[i]) if np.any(wrong) else (mean[i], drift[i])
        raise InputError(
            f"`step` must have the {what} that `drift` and `diffusion` say (in the form tr(A D²u) + b·∇u); over a time {h:.2g} coordinate {i} has "
            f"{came:.3g} in place of {wanted:.3g}, at {place([s[k], y[k]])}. For A = S Sᵀ a path moves by b h + √(2h) S noise."
        )
