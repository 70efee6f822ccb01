"""Derivatives of a user's function: one directional derivative, and tr(A D²f), a Laplacian in stretched coordinates, by the first rung that works.

Rungs, best first: the closed form the user gave; folx (forward Laplacian) with sparsity; folx without; second-order
JVPs along the coordinates, in chunks. A rung either traces or it does not, so the choice costs no computation; it is
checked once per solve against second derivatives along directions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import equinox as eqx
import folx
import folx.api
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import subjaxprs
from jaxtyping import Array, Float

from heatnets._core.errors import InputError, NumericalError
from heatnets.pde.diffusion import Diffusion, Isotropic
from heatnets.pde.function import Function, place

RUNGS = ("closed form", "folx sparse", "folx dense", "second-order JVPs")

_NARROW = 8  # times the dimension: arrays up to this size count as vectors
_CHUNK = 32  # coordinates per step of the last rung
_EXACT_CHECK = 4096  # up to this dimension the check sums all d second derivatives, beyond it samples directions
_DIRECTIONS = 64
_UNIT = Isotropic(1.0)


class Differentiable(eqx.Module):
    """A user's function of (x) or (t, x) together with the matrix A and the rung that serves its second derivatives in x."""

    function: Function
    rung: str = eqx.field(static=True)
    diffusion: Diffusion = _UNIT
    largest: int = eqx.field(static=True, default=0)  # of the arrays that its Laplacian holds

    def __call__(self, *args: Array) -> Float[Array, ""]:
        return self.function(*args)

    def along(
        self, args: Sequence[Array], tangents: Sequence[Array]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The value at `args` and the derivative along `tangents`, in one forward pass."""
        return jax.jvp(self.function, tuple(args), tuple(tangents))

    def second(self, *args: Array, diffusion: Diffusion | None = None) -> Float[Array, ""]:
        """tr(A D²f) in the last argument, the others held; with another A where `scatter` is given."""
        if diffusion is not None:
            return Differentiable(self.function, self.rung, diffusion, self.largest).second(*args)
        D, columns = self.diffusion.scalar, self.diffusion.columns
        bulk = self.laplacian(*args) if D is None else D * self.laplacian(*args)
        if columns is None:
            return bulk
        *held, x = args
        return bulk + jnp.sum(
            jax.vmap(lambda u: _second(lambda y: self.function(*held, y), x, u))(columns)
        )

    def laplacian(self, *args: Array) -> Float[Array, ""]:
        """Δ in the last argument, the others held; where A is no multiple of I, in the coordinates that its bulk stretches."""
        if self.rung == "closed form":
            assert self.function.laplacian is not None
            return jnp.asarray(self.function.laplacian(*args), jnp.float64)
        f, x = self.local(*args)
        if self.rung == "folx sparse":
            return _folx(f, x, min(6, x.size - 1))
        if self.rung == "folx dense":
            return _folx(f, x, 0)
        return _by_jvps(f, x)

    def local(self, *args: Array) -> tuple[Callable[[Array], Array], Array]:
        """The function of the coordinates whose Laplacian is asked for, and where it is."""
        *held, x = args
        if self.diffusion.scalar is not None:
            return lambda y: self.function(*held, y), x
        return lambda y: self.function(
            *held, x + self.diffusion.bulk.apply_sqrt(y)
        ), jnp.zeros_like(x)

    def workspace(self, dim: int) -> int:
        """Floats a compiled Laplacian may hold per evaluation, for sizing tiles."""
        # Matrices, in what folx makes of a gradient, say: four times faster in tiles that caches hold.
        sparse = 24 * max(dim, self.largest if self.largest > _NARROW * dim else 0)
        return {
            "closed form": 8 * dim,
            "folx sparse": sparse,
            "folx dense": 4 * dim * dim + 8 * dim,
        }.get(self.rung, 8 * _CHUNK * dim)


class Chained(Differentiable):
    """A function of (s, y) that depends on y through one function of y alone, h(s, g(y)): tr(A D²) = h' tr(A D²g) + h'' ∇gᵀA∇g."""

    inner: Differentiable | None = None  # g

    def second(self, *args: Array, diffusion: Diffusion | None = None) -> Float[Array, ""]:
        assert self.inner is not None
        s, y = args
        A = self.inner.diffusion if diffusion is None else diffusion
        value, slope = self.inner(y), gradient(self.inner.function, y)
        (spread,) = jax.vjp(A.apply_sqrt, jnp.zeros_like(y))[1](slope)  # Sᵀ∇g

        flow: Any = self.function.function

        def outer(v: Array) -> Array:
            return jax.jvp(lambda w: flow.through(s, y, w), (v,), (jnp.ones_like(v),))[1]

        first, bend = jax.jvp(outer, (value,), (jnp.ones_like(value),))
        return first * self.inner.second(y, diffusion=diffusion) + bend * jnp.sum(spread**2)

    def workspace(self, dim: int) -> int:
        assert self.inner is not None
        return self.inner.workspace(dim) + 8 * dim


def choose(
    name: str, function: Function, *points: Sequence[np.ndarray], diffusion: Diffusion = _UNIT
) -> tuple[Differentiable, list[str]]:
    """The first rung that traces and passes the check at all `points`, and what was said of those before it."""
    shapes = [jax.ShapeDtypeStruct(np.shape(a), jnp.float64) for a in points[0]]
    reasons: list[str] = []
    for rung in RUNGS[
        0 if function.laplacian is not None and diffusion.scalar is not None else 1 :
    ]:
        candidate = Differentiable(function, rung, diffusion)
        with _folx_records() as records:
            try:
                candidate = replace(
                    candidate, largest=_largest(jax.make_jaxpr(candidate.laplacian)(*shapes).jaxpr)
                )
            except Exception as error:
                reasons.append(
                    f"{rung}: {type(error).__name__}: "
                    f"{str(error).splitlines()[0] if str(error) else ''}"
                )
                continue
        if records:
            # folx falls back to a full Hessian per entry for what it does not know: d² memory, refused here.
            reasons.append(f"{rung}: {records[0]}")
            continue
        complaint = next(filter(None, (_check(candidate, point) for point in points)), None)
        if complaint is None:
            return candidate, reasons
        if rung == "closed form":
            raise InputError(
                f"`{name}`'s laplacian must be the Laplacian in x of `{name}`; {complaint}. "
                "Correct it, or leave it out: it is then computed automatically."
            )
        reasons.append(f"{rung}: {complaint}")
    raise NumericalError(
        f"no way to the Laplacian of `{name}` worked: {'; '.join(reasons)}. Give it in closed "
        "form: hn.Function(f, laplacian=g)."
    )


def _largest(jaxpr: Any) -> int:
    """The size of the largest array of a computation, those inside its calls and loops included."""
    sizes = [int(np.prod(v.aval.shape)) for e in jaxpr.eqns for v in e.outvars]
    return max([1, *sizes, *map(_largest, subjaxprs(jaxpr))])


def gradient(f: Callable[[Array], Array], x: Array) -> Array:
    """∇f(x) by reverse mode; by forward mode where reverse mode does not trace (loops of unknown length)."""
    try:
        jax.eval_shape(jax.grad(f), x)
    except Exception:
        return jax.jacfwd(f)(x)
    return jax.grad(f)(x)


def _folx(f: Callable[[Array], Array], x: Array, threshold: int) -> Array:
    out = folx.forward_laplacian(f, sparsity_threshold=threshold, disable_jit=True)(x)
    # A result that does not depend on x comes back as a bare number.
    return jnp.asarray(
        out.laplacian if isinstance(out, folx.api.FwdLaplArray) else 0.0, jnp.float64
    )


def _second(f: Callable[[Array], Array], x: Array, direction: Array) -> Array:
    """d²/dε² f(x + ε direction) at ε = 0."""
    return jax.jvp(lambda y: jax.jvp(f, (y,), (direction,))[1], (x,), (direction,))[1]


def _by_jvps(f: Callable[[Array], Array], x: Array, absolute: bool = False) -> Array:
    """Σ_i ∂_i² f(x) (or Σ_i |∂_i² f(x)|), `_CHUNK` coordinates at a time."""
    chunk = min(_CHUNK, x.size)
    starts = jnp.arange(0, x.size, chunk)

    def add(total: Array, start: Array) -> tuple[Array, None]:
        # An index past the end gives the zero direction, which adds nothing.
        directions = jax.nn.one_hot(start + jnp.arange(chunk), x.size, dtype=x.dtype)
        terms = jax.vmap(lambda e: _second(f, x, e))(directions)
        return total + jnp.sum(jnp.abs(terms) if absolute else terms), None

    return jax.lax.scan(add, jnp.zeros((), x.dtype), starts)[0]


@eqx.filter_jit
def _compare(
    candidate: Differentiable, args: tuple[Array, ...], directions: np.ndarray | None
) -> tuple[Array, ...]:
    f, x = candidate.local(*args)
    claimed, value = candidate.laplacian(*args), candidate(*args)
    if directions is None:
        return claimed, value, _by_jvps(f, x), _by_jvps(f, x, absolute=True), jnp.zeros(())
    terms = jax.lax.map(lambda v: _second(f, x, v), jnp.asarray(directions))
    # E[vᵀHv] = tr H for random signs v.
    return (
        claimed,
        value,
        jnp.mean(terms),
        jnp.max(jnp.abs(terms)),
        jnp.std(terms, ddof=1) / np.sqrt(len(directions)),
    )


def _check(candidate: Differentiable, args: Sequence[np.ndarray]) -> str | None:
    """None, or what is wrong with the candidate's Laplacian at one point."""
    dim = np.size(args[-1])
    signs = (
        np.random.default_rng(0).choice([-1.0, 1.0], (_DIRECTIONS, dim))
        if dim > _EXACT_CHECK
        else None
    )
    if candidate.rung == RUNGS[-1] and signs is None:
        return None  # the check would compare the rung with itself
    arrays = tuple(jnp.asarray(a, jnp.float64) for a in args)
    claimed, value, wanted, size, noise = map(float, _compare(candidate, arrays, signs))
    # Rounding only: relative to the second derivatives, and to the value where they are zero (linear functions).
    allowed = 1e-7 * size + 6 * noise + 1e-12 * abs(value)
    if np.isfinite(wanted) and np.isfinite(claimed) and abs(claimed - wanted) <= allowed:
        return None
    return f"at {place([np.asarray(a) for a in args[-2:]])} it gives {claimed:.8g} where the second derivatives sum to {wanted:.8g}"


@contextmanager
def _folx_records() -> Iterator[list[str]]:
    """Collect the warnings folx sends to the root logger instead of letting it print them."""
    records: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        if "folx" not in record.pathname:
            return True
        if record.levelno >= logging.WARNING:
            records.append(record.getMessage().split(". ")[0])
        return False

    root = logging.getLogger()
    root.addFilter(keep)
    try:
        yield records
    finally:
        root.removeFilter(keep)
