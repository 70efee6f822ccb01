"""Derivatives of a user's function f: directional derivatives, and tr(A D²f) by several methods.

tr(A D²f) is computed as a Laplacian in scaled coordinates. `laplacian_choice` chooses the method.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import equinox as eqx
import folx
import folx.api
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from heatnets.pde import coordinate_sums
from heatnets.pde.diffusion import Diagonal, Diffusion
from heatnets.pde.function import Function
from heatnets.pde.sum_finder import NotReducible

Scalar = Float[Array, ""]
Path = Callable[[Array], tuple[tuple[Array, ...], Array]]

_NARROW = 8  # arrays up to this multiple of the dimension count as vectors
_CHUNK = 32  # coordinates per step of the last method
UNIT_DIFFUSION = Diagonal(1.0)


class Method(abc.ABC):
    """A method for Laplacians.

    Up to dimension 4096 it is checked against the sum of all second derivatives, beyond against
    the mean of second derivatives along random directions.
    """

    name: ClassVar[str]  # in `stats["laplacian"]`
    tolerance: ClassVar[float] = 1e-7  # of the check, relative to the size of second derivatives
    is_reference: ClassVar[bool] = False  # computes the sum that others are checked against

    def for_function(self, f: FunctionWithLaplacian, shapes: Sequence[Any]) -> Method | None:
        """The method for f at arguments of these shapes; None if it cannot be tried."""
        return self

    @abc.abstractmethod
    def laplacian(self, f: FunctionWithLaplacian, *args: Array) -> Array:
        """The Laplacian in the last argument x, in scaled coordinates if A is no multiple of I."""

    @abc.abstractmethod
    def workspace(self, dim: int, largest: int) -> int:
        """Floats per evaluation; `largest` is the size of the largest array of the Laplacian."""

    def value_workspace(self, dim: int) -> int:
        """Floats per evaluation of a value along a path."""
        return 4 * dim

    def transport(
        self, f: FunctionWithLaplacian, times: Sequence[Array], x: Array, shift: Array, e: Array
    ) -> Scalar:
        """f(*times, x + shift e)."""
        return f(*times, x + shift * e)

    def transport_with_residual(
        self, f: FunctionWithLaplacian, path: Path, t: Array, x: Array, e: Array
    ) -> tuple[Scalar, Scalar]:
        """φ = f(*times, x + shift e) and (∂_t - tr(A D²)) φ; `path` maps t to times and shift."""

        def arguments(s: Array) -> tuple[Array, ...]:
            times, shift = path(s)
            return *times, x + shift * e

        point, velocity = jax.jvp(arguments, (t,), (jnp.ones_like(t),))
        value, change = f.jvp(point, velocity)
        # The path only shifts x: the second derivatives in x are those of f.
        return value, change - f.trace_hessian(*point)


@dataclass(frozen=True)
class ClosedForm(Method):
    """The user's closed form."""

    name = "closed form"

    def for_function(self, f: FunctionWithLaplacian, shapes: Sequence[Any]) -> Method | None:
        is_known = f.function.laplacian is not None and f.diffusion.scalar is not None
        return self if is_known else None

    def laplacian(self, f: FunctionWithLaplacian, *args: Array) -> Array:
        assert f.function.laplacian is not None
        return jnp.asarray(f.function.laplacian(*args), jnp.float64)

    def workspace(self, dim: int, largest: int) -> int:
        return 8 * dim


@dataclass(frozen=True)
class CoordinateSums(Method):
    """f is a function of few sums over coordinates (`coordinate_sums`)."""

    name = "coordinate sums"
    has_additive_sums: bool = True  # besides quadratic sums
    head_size: int = 1  # size of the largest array of the head

    def for_function(self, f: FunctionWithLaplacian, shapes: Sequence[Any]) -> Method | None:
        return CoordinateSums(*coordinate_sums.describe(f.function, shapes))

    def laplacian(self, f: FunctionWithLaplacian, *args: Array) -> Array:
        full_rank = f.diffusion.full_rank_part if f.diffusion.scalar is None else UNIT_DIFFUSION
        return coordinate_sums.laplacian(f.function, args, full_rank)

    def workspace(self, dim: int, largest: int) -> int:
        # For quadratic sums all vectors belong to the point, or to the direction.
        return 64 * self.head_size + (24 * dim if self.has_additive_sums else 0)

    def value_workspace(self, dim: int) -> int:
        return 16 * self.head_size + (4 * dim if self.has_additive_sums else 0)

    def transport(
        self, f: FunctionWithLaplacian, times: Sequence[Array], x: Array, shift: Array, e: Array
    ) -> Scalar:
        return coordinate_sums.transport(f.function, times, x, shift, e)

    def transport_with_residual(
        self, f: FunctionWithLaplacian, path: Path, t: Array, x: Array, e: Array
    ) -> tuple[Scalar, Scalar]:
        return coordinate_sums.transport_with_residual(f.function, path, t, x, e, f.diffusion)


@dataclass(frozen=True)
class FolxSparse(Method):
    """folx (forward Laplacian) with sparsity."""

    name = "folx sparse"

    def laplacian(self, f: FunctionWithLaplacian, *args: Array) -> Array:
        g, x = f.whitened(*args)
        return _folx(g, x, min(6, x.size - 1))

    def workspace(self, dim: int, largest: int) -> int:
        # Some Laplacians hold matrices, for example that of a gradient: four times faster in tiles
        # that fit into the caches.
        return 24 * max(dim, largest if largest > _NARROW * dim else 0)


@dataclass(frozen=True)
class FolxDense(Method):
    """folx (forward Laplacian) without sparsity."""

    name = "folx dense"

    def laplacian(self, f: FunctionWithLaplacian, *args: Array) -> Array:
        return _folx(*f.whitened(*args), 0)

    def workspace(self, dim: int, largest: int) -> int:
        return 4 * dim * dim + 8 * dim


@dataclass(frozen=True)
class SecondOrderJVPs(Method):
    """Second-order JVPs along the coordinates, in chunks."""

    name = "second-order JVPs"
    is_reference = True

    def laplacian(self, f: FunctionWithLaplacian, *args: Array) -> Array:
        return sum_second_derivatives(*f.whitened(*args))[0]

    def workspace(self, dim: int, largest: int) -> int:
        return 8 * _CHUNK * dim


@dataclass(frozen=True)
class NoLaplacian(Method):
    """For functions of which only values and first derivatives are used."""

    name = "none"

    def laplacian(self, f: FunctionWithLaplacian, *args: Array) -> Array:
        raise NotImplementedError("no method for this Laplacian was chosen: use `select_method`.")

    def workspace(self, dim: int, largest: int) -> int:
        return 8 * _CHUNK * dim

    def transport(
        self, f: FunctionWithLaplacian, times: Sequence[Array], x: Array, shift: Array, e: Array
    ) -> Scalar:
        try:
            return coordinate_sums.transport(f.function, times, x, shift, e)
        except NotReducible:
            return super().transport(f, times, x, shift, e)


CLOSED_FORM, NO_LAPLACIAN = ClosedForm(), NoLaplacian()
METHODS = (
    CLOSED_FORM,
    CoordinateSums(),
    FolxSparse(),
    FolxDense(),
    SecondOrderJVPs(),
)  # best first


class FunctionWithLaplacian(eqx.Module):
    """A user's function of (x) or (t, x), with a matrix A and the method for tr(A D²f)."""

    function: Function
    method: Method = eqx.field(static=True)
    diffusion: Diffusion = UNIT_DIFFUSION
    largest: int = eqx.field(static=True, default=0)  # size of the largest array of its Laplacian

    def __check_init__(self) -> None:
        if not isinstance(self.method, Method):
            raise TypeError(f"`method` must be a Method, for example of METHODS; got {self.method}")

    def __call__(self, *args: Array) -> Scalar:
        return self.function(*args)

    @property
    def method_name(self) -> str:
        """The method, for `stats["laplacian"]`."""
        return self.method.name

    def transport(self, times: Sequence[Array], x: Array, shift: Array, e: Array) -> Scalar:
        """f(*times, x + shift e)."""
        return self.method.transport(self, times, x, shift, e)

    def transport_with_residual(
        self, path: Path, t: Array, x: Array, e: Array
    ) -> tuple[Scalar, Scalar]:
        """φ = f(*times, x + shift e) and (∂_t - tr(A D²)) φ; `path` maps t to times and shift."""
        return self.method.transport_with_residual(self, path, t, x, e)

    def jvp(self, args: Sequence[Array], tangents: Sequence[Array]) -> tuple[Scalar, Scalar]:
        """The value at `args` and the directional derivative along `tangents`, in one JVP."""
        return jax.jvp(self.function, tuple(args), tuple(tangents))

    def trace_hessian(self, *args: Array, diffusion: Diffusion | None = None) -> Scalar:
        """tr(A D²f) in the last argument x; with `diffusion` instead of A if that is not None."""
        if diffusion is not None:
            return replace(self, diffusion=diffusion).trace_hessian(*args)
        D, columns = self.diffusion.scalar, self.diffusion.low_rank_columns
        total = self.laplacian(*args) if D is None else D * self.laplacian(*args)
        if columns is None:
            return total
        *fixed, x = args

        def of_x(y: Array) -> Array:
            return self.function(*fixed, y)

        # The low-rank part of A: Σ_k U_kᵀ D²f U_k.
        return total + jnp.sum(jax.vmap(lambda u: second_derivative(of_x, x, u))(columns))

    def laplacian(self, *args: Array) -> Scalar:
        """The Laplacian in the last argument x; in scaled coordinates if A is no multiple of I.

        With B = S Sᵀ the full-rank part of A, it is that of y ↦ f(x + S y) at y = 0: tr(B D²f).
        """
        return self.method.laplacian(self, *args)

    def whitened(self, *args: Array) -> tuple[Callable[[Array], Array], Array]:
        """The function of (scaled) coordinates whose Laplacian `laplacian` is, and its argument."""
        *fixed, x = args
        if self.diffusion.scalar is not None:
            return lambda y: self.function(*fixed, y), x

        def of_scaled(y: Array) -> Array:
            return self.function(*fixed, x + self.diffusion.full_rank_part.apply_sqrt(y))

        return of_scaled, jnp.zeros_like(x)

    def workspace(self, dim: int) -> int:
        """Number of floats that a compiled Laplacian needs per evaluation, to choose tile sizes."""
        return self.method.workspace(dim, self.largest)

    def value_workspace(self, dim: int) -> int:
        """Number of floats that a value along a path needs, to choose tile sizes."""
        return self.method.value_workspace(dim)


class ComposedFunction(FunctionWithLaplacian):
    """A function h(s, g(y)), by the chain rule: tr(A D²h) = h' tr(A D²g) + h'' ∇gᵀA∇g.

    Derivatives ' are in the second argument of h. h is a `ReactionFlow` or a `FrozenSource`, whose
    method `apply` takes the value of g.
    """

    inner: FunctionWithLaplacian | None = None  # g

    @property
    def method_name(self) -> str:
        return f"{self.method.name}, chain rule"

    def trace_hessian(self, *args: Array, diffusion: Diffusion | None = None) -> Scalar:
        assert self.inner is not None
        s, y = args
        A = self.inner.diffusion if diffusion is None else diffusion
        value, slope = self.inner(y), gradient(self.inner.function, y)
        (scaled_slope,) = jax.vjp(A.apply_sqrt, jnp.zeros_like(y))[1](slope)  # Sᵀ∇g

        outer: Any = self.function.function

        def outer_derivative(v: Array) -> Array:
            return jax.jvp(lambda w: outer.apply(s, y, w), (v,), (jnp.ones_like(v),))[1]

        first, second = jax.jvp(outer_derivative, (value,), (jnp.ones_like(value),))
        trace = self.inner.trace_hessian(y, diffusion=diffusion)
        return first * trace + second * jnp.sum(scaled_slope**2)

    def workspace(self, dim: int) -> int:
        assert self.inner is not None
        return self.inner.workspace(dim) + 8 * dim


def gradient(f: Callable[[Array], Array], x: Array) -> Array:
    """∇f(x) by reverse mode; by forward mode if reverse mode fails (loops of unknown length)."""
    try:
        jax.eval_shape(jax.grad(f), x)
    except Exception:
        return jax.jacfwd(f)(x)
    return jax.grad(f)(x)


def _folx(f: Callable[[Array], Array], x: Array, threshold: int) -> Array:
    """Δf(x) by folx; threshold 0 switches sparsity off."""
    out = folx.forward_laplacian(f, sparsity_threshold=threshold, disable_jit=True)(x)
    # folx returns a bare number for a function that does not depend on x.
    value = out.laplacian if isinstance(out, folx.api.FwdLaplArray) else 0.0
    return jnp.asarray(value, jnp.float64)


def second_derivative(f: Callable[[Array], Array], x: Array, direction: Array) -> Array:
    """d²/dε² f(x + ε direction) at ε = 0."""
    return jax.jvp(lambda y: jax.jvp(f, (y,), (direction,))[1], (x,), (direction,))[1]


def sum_second_derivatives(f: Callable[[Array], Array], x: Array) -> tuple[Array, Array]:
    """Σ_i ∂_i² f(x) and Σ_i |∂_i² f(x)|, `_CHUNK` coordinates at a time."""
    chunk = min(_CHUNK, x.size)
    starts = jnp.arange(0, x.size, chunk)

    def add(totals: tuple[Array, Array], start: Array) -> tuple[tuple[Array, Array], None]:
        # An index past the end gives the zero direction, which adds nothing.
        directions = jax.nn.one_hot(start + jnp.arange(chunk), x.size, dtype=x.dtype)
        terms = jax.vmap(lambda e: second_derivative(f, x, e))(directions)
        return (totals[0] + jnp.sum(terms), totals[1] + jnp.sum(jnp.abs(terms))), None

    zero = jnp.zeros((), x.dtype)
    return jax.lax.scan(add, (zero, zero), starts)[0]
