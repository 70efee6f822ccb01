"""Features φ(t, x), and the equation that evaluates them: values and residuals (∂_t - L)φ.

A feature is an equinox module that holds its random parameters. A block of M features is the same
module with a leading axis of length M on every array; only `tiling` uses that axis.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets._core.compilation import traced_once
from heatnets.pde.coefficients import CoefficientField
from heatnets.pde.diffusion import Diffusion
from heatnets.pde.function import Function
from heatnets.pde.laplacian import FunctionWithLaplacian
from heatnets.pde.paths import EulerPaths

Scalar = Float[Array, ""]
Vector = Float[Array, " dim"]
Entry = tuple[Scalar, Scalar]  # value φ and residual (∂_t - L)φ at one point


class Equation(eqx.Module):
    """u_t - tr(A D²u) = F, u(0, ·) = u0, as a JAX pytree: A is traced, functions are static."""

    diffusion: Diffusion
    functions: dict[str, FunctionWithLaplacian]  # what features are made of, by the names in `data`

    @property
    def data(self) -> dict[str, FunctionWithLaplacian]:
        """The data: "initial" u0, "source" F, "reaction" Ψ_s(u0)."""
        return self.functions

    @property
    def initial(self) -> FunctionWithLaplacian:
        """The initial condition u0."""
        return self.data["initial"]

    @property
    def source(self) -> FunctionWithLaplacian | None:
        """The source F of the source features, or None."""
        return self.data.get("source")

    def source_value(self, t: Scalar, x: Vector) -> Scalar:
        """F(t, x); zero if there is no source."""
        return jnp.zeros(()) if self.source is None else self.source(t, x)

    def displace(self, lag: Scalar, x: Vector, noise: Vector) -> Vector:
        """End of a path from x after the time `lag`: x + √(2 lag) Sη, A = S Sᵀ; `noise` is Sη."""
        return x + jnp.sqrt(2 * lag) * noise

    def value(self, feature: Transported, t: Scalar, x: Vector, sign: Any = 1.0) -> Scalar:
        """Value of a feature with the coefficient 1; `sign` times its direction is used."""
        times, shift = feature.path(t)
        value = self.functions[feature.data].transport(times, x, sign * shift, feature.direction)
        return t * value if feature.times_t else value

    def value_and_residual(
        self, feature: Transported, t: Scalar, x: Vector, sign: Any = 1.0
    ) -> Entry:
        """Value and residual of a feature with the coefficient 1, t > 0; `sign` as in `value`."""

        def path(s: Scalar) -> tuple[tuple[Array, ...], Array]:
            times, shift = feature.path(s)
            return times, sign * shift

        function = self.functions[feature.data]
        value, residual = function.transport_with_residual(path, t, x, feature.direction)
        return (t * value, value + t * residual) if feature.times_t else (value, residual)

    def workspace(self, dim: int) -> int:
        """Floats needed to evaluate the data with their derivatives at one point."""
        return max(f.workspace(dim) for f in self._of_features.values())

    def value_workspace(self, dim: int) -> int:
        """Floats needed to evaluate a feature at one point, without derivatives."""
        return max(f.value_workspace(dim) for f in self._of_features.values())

    @property
    def laplacian_methods(self) -> dict[str, str]:
        """The method for the second derivatives of each function, for `stats["laplacian"]`."""
        return {name: f.method_name for name, f in self._of_features.items()}

    @property
    def _of_features(self) -> dict[str, FunctionWithLaplacian]:
        """The functions of the initial and the source features."""
        f = self.functions
        initial = {"initial": f.get("reaction", f["initial"])}
        return {**initial, "source": f["source"]} if "source" in f else initial


class VaryingEquation(Equation):
    """u_t - tr(A D²u) - b·∇u - c u = F with coefficients that are functions of (t, x).

    The functions are `AlongPath`s: residuals are derivatives through the steps of Euler paths.
    """

    coefficients: CoefficientField
    paths: EulerPaths
    data_functions: dict[str, FunctionWithLaplacian]

    @property
    def data(self) -> dict[str, FunctionWithLaplacian]:
        return self.data_functions

    def value(self, feature: Transported, t: Scalar, x: Vector, sign: Any = 1.0) -> Scalar:
        return self.functions[feature.data](*feature.parameters(sign), t, x)

    def value_and_residual(
        self, feature: Transported, t: Scalar, x: Vector, sign: Any = 1.0
    ) -> Entry:
        f, parameters = self.functions[feature.data], feature.parameters(sign)
        local = self.coefficients.evaluate(t, x)
        zeros = tuple(jnp.zeros_like(p) for p in parameters)
        # The derivative along (1, -b) is ∂_t f - b·∇f.
        value, change = f.jvp((*parameters, t, x), (*zeros, jnp.ones_like(t), -local.drift))
        second = f.trace_hessian(*parameters, t, x, diffusion=local.diffusion)
        return value, change - second - local.reaction * value

    def workspace(self, dim: int) -> int:
        return 2 * self.paths.steps * super().workspace(dim)


class AlongPath(eqx.Module):
    """(*parameters, t, x) ↦ value of the feature `kind` with the coefficient 1, on Euler paths."""

    kind: Any = eqx.field(static=True)  # a subclass of `Transported`
    paths: EulerPaths
    function: Function

    def __call__(self, *arguments: Array) -> Scalar:
        *parameters, t, x = arguments
        feature = self.kind(*parameters, jnp.ones(()))
        end = self.paths.simulate_one(t, x, feature.lag(t), feature.direction)
        weight = t * end.weight if feature.times_t else end.weight
        return weight * self.function(*feature.times(t), end.position)


class Feature(eqx.Module):
    """One feature φ(t, x) with fixed random parameters."""

    @abc.abstractmethod
    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        """Value φ(t, x)."""

    @abc.abstractmethod
    def value_and_residual(self, equation: Equation, t: Scalar, x: Vector) -> Entry:
        """Value φ and residual (∂_t - L)φ at (t, x), for t > 0."""

    def residual(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        """Residual (∂_t - L)φ at (t, x), for t > 0."""
        return self.value_and_residual(equation, t, x)[1]

    @property
    @abc.abstractmethod
    def initial_coefficient(self) -> Scalar | np.ndarray:
        """The factor c in φ(0, ·) = c u0."""


class Transported(Feature):
    """Data at the end of a path from (t, x) that runs for the time `lag`: φ = c f(..., X_lag).

    `direction` is the noise of the path: Sη, (dim,), or with variable coefficients (steps, dim).
    """

    if TYPE_CHECKING:  # fields of every subclass: the first and the last, an order that files keep
        direction: Array
        coefficient: Scalar
    data: ClassVar[str]  # name of f in the data of the equation
    times_t: ClassVar[bool] = False  # whether t is a factor of φ

    def lag(self, t: Scalar) -> Scalar:
        """Duration of the path."""
        return t

    def times(self, t: Scalar) -> tuple[Array, ...]:
        """The arguments of f before the end of the path."""
        return ()

    def path(self, t: Scalar) -> tuple[tuple[Array, ...], Array]:
        """The arguments of f before the end of the path x + √(2 lag) Sη, and √(2 lag)."""
        return self.times(t), jnp.sqrt(2 * self.lag(t))

    def parameters(self, sign: Any = 1.0) -> tuple[Array, ...]:
        """All fields except the coefficient; the direction, the first, times `sign`."""
        first, *others = (getattr(self, field.name) for field in fields(self)[:-1])
        return sign * first, *others

    def value(self, equation: Equation, t: Scalar, x: Vector, sign: Any = 1.0) -> Scalar:
        """Value φ(t, x), with `sign` times the direction."""
        return self.coefficient * _value(equation, self, t, x, jnp.asarray(sign))

    def value_and_residual(
        self, equation: Equation, t: Scalar, x: Vector, sign: Any = 1.0
    ) -> Entry:
        """Value φ and residual (∂_t - L)φ at (t, x), t > 0, with `sign` times the direction."""
        value, residual = _value_and_residual(equation, self, t, x, jnp.asarray(sign))
        return self.coefficient * value, self.coefficient * residual

    @property
    def initial_coefficient(self) -> Scalar | np.ndarray:
        return np.zeros(np.shape(self.coefficient)) if self.times_t else self.coefficient


@traced_once
def _value(equation: Equation, feature: Transported, t: Scalar, x: Vector, sign: Scalar) -> Scalar:
    """`equation.value`."""
    return equation.value(feature, t, x, sign)


@traced_once
def _value_and_residual(
    equation: Equation, feature: Transported, t: Scalar, x: Vector, sign: Scalar
) -> Entry:
    """`equation.value_and_residual`."""
    return equation.value_and_residual(feature, t, x, sign)


class TransportedInitial(Transported):
    """φ(t, x) = c u0(x + √(2t) Sη), for both families (Gaussian kernels: η = √2 y)."""

    direction: Array
    coefficient: Scalar
    data = "initial"


class TransportedReaction(Transported):
    """φ(t, x) = c Ψ_{rt}(u0(x + √(2t) Sη)), if the source depends on u; r is `fraction`.

    Ψ_s is the flow of the ODE with the source as right-hand side, without diffusion.
    """

    direction: Array
    fraction: Scalar
    coefficient: Scalar
    data = "reaction"

    def times(self, t: Scalar) -> tuple[Array, ...]:
        return (self.fraction * t,)


class TransportedSource(Transported):
    """φ(t, x) = c t F(rt, x + √(2(1-r)t) Sξ); r is `fraction`, `direction` is Sξ."""

    direction: Array
    fraction: Scalar
    coefficient: Scalar
    data = "source"
    times_t = True

    def lag(self, t: Scalar) -> Scalar:
        return (1 - self.fraction) * t

    def times(self, t: Scalar) -> tuple[Array, ...]:
        return (self.fraction * t,)


class Antithetic(Feature):
    """Antithetic pair ½[φ(t, x; η) + φ(t, x; -η)] of transported features.

    Odd terms in η cancel, and with them the t^{-1/2} singularity of ∂_t φ at t = 0.
    """

    feature: Transported

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        return _mean_over_signs(lambda sign: self.feature.value(equation, t, x, sign))

    def value_and_residual(self, equation: Equation, t: Scalar, x: Vector) -> Entry:
        return _mean_over_signs(lambda sign: self.feature.value_and_residual(equation, t, x, sign))

    @property
    def initial_coefficient(self) -> Scalar | np.ndarray:
        return self.feature.initial_coefficient


def _mean_over_signs(function: Callable[[Scalar], Any]) -> Any:
    """Mean of function(sign) over the signs 1 and -1."""
    values = jax.vmap(function)(jnp.array([1.0, -1.0]))
    return jax.tree.map(lambda pair: 0.5 * (pair[0] + pair[1]), values)
