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

    def value(self, feature: Transported, t: Scalar, x: Vector) -> Scalar:
        """Value of a feature with the coefficient 1."""
        end = self.displace(feature.lag(t), x, feature.direction)
        value = self.functions[feature.data](*feature.arguments(t, end))
        return t * value if feature.times_t else value

    def value_and_residual(self, feature: Transported, t: Scalar, x: Vector) -> Entry:
        """Value and residual of a feature with the coefficient 1, t > 0."""
        function = self.functions[feature.data]

        def arguments(s: Scalar) -> tuple[Array, ...]:
            return feature.arguments(s, self.displace(feature.lag(s), x, feature.direction))

        point, velocity = jax.jvp(arguments, (t,), (jnp.ones_like(t),))
        value, change = function.jvp(point, velocity)
        # The path only shifts x: the second derivatives in x are those of the data.
        second = function.trace_hessian(*point)
        if not feature.times_t:
            return value, change - second
        return t * value, value + t * change - t * second

    def workspace(self, dim: int) -> int:
        """Floats needed to evaluate the data with their derivatives at one point."""
        return max(f.workspace(dim) for f in self._of_features.values())

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

    def value(self, feature: Transported, t: Scalar, x: Vector) -> Scalar:
        return self.functions[feature.data](*feature.parameters, t, x)

    def value_and_residual(self, feature: Transported, t: Scalar, x: Vector) -> Entry:
        f, parameters = self.functions[feature.data], feature.parameters
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
        return weight * self.function(*feature.arguments(t, end.position))


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

    @abc.abstractmethod
    def arguments(self, t: Scalar, end: Vector) -> tuple[Array, ...]:
        """The arguments of f, with the end of the path."""

    @property
    def parameters(self) -> tuple[Array, ...]:
        """All fields except the coefficient."""
        return tuple(getattr(self, field.name) for field in fields(self)[:-1])

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        return self.coefficient * equation.value(self, t, x)

    def value_and_residual(self, equation: Equation, t: Scalar, x: Vector) -> Entry:
        value, residual = equation.value_and_residual(self, t, x)
        return self.coefficient * value, self.coefficient * residual

    @property
    def initial_coefficient(self) -> Scalar | np.ndarray:
        return np.zeros(np.shape(self.coefficient)) if self.times_t else self.coefficient


class TransportedInitial(Transported):
    """φ(t, x) = c u0(x + √(2t) Sη), for both families (Gaussian kernels: η = √2 y)."""

    direction: Array
    coefficient: Scalar
    data = "initial"

    def arguments(self, t: Scalar, end: Vector) -> tuple[Array, ...]:
        return (end,)


class TransportedReaction(Transported):
    """φ(t, x) = c Ψ_{rt}(u0(x + √(2t) Sη)), if the source depends on u; r is `fraction`.

    Ψ_s is the flow of the ODE with the source as right-hand side, without diffusion.
    """

    direction: Array
    fraction: Scalar
    coefficient: Scalar
    data = "reaction"

    def arguments(self, t: Scalar, end: Vector) -> tuple[Array, ...]:
        return self.fraction * t, end


class TransportedSource(Transported):
    """φ(t, x) = c t F(rt, x + √(2(1-r)t) Sξ); r is `fraction`, `direction` is Sξ."""

    direction: Array
    fraction: Scalar
    coefficient: Scalar
    data = "source"
    times_t = True

    def lag(self, t: Scalar) -> Scalar:
        return (1 - self.fraction) * t

    def arguments(self, t: Scalar, end: Vector) -> tuple[Array, ...]:
        return self.fraction * t, end


class Antithetic(Feature):
    """Antithetic pair ½[φ(t, x; η) + φ(t, x; -η)] of transported features.

    Odd terms in η cancel, and with them the t^{-1/2} singularity of ∂_t φ at t = 0.
    """

    feature: Transported

    def _mean(self, function: Callable[[Feature], Any]) -> Any:
        """Mean of function(feature) over the directions η and -η."""

        def signed(sign: Scalar) -> Any:
            direction = sign * self.feature.direction
            return function(eqx.tree_at(lambda f: f.direction, self.feature, direction))

        values = jax.vmap(signed)(jnp.array([1.0, -1.0]))
        return jax.tree.map(lambda pair: 0.5 * (pair[0] + pair[1]), values)

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        return self._mean(lambda f: f.value(equation, t, x))

    def value_and_residual(self, equation: Equation, t: Scalar, x: Vector) -> Entry:
        return self._mean(lambda f: f.value_and_residual(equation, t, x))

    @property
    def initial_coefficient(self) -> Scalar | np.ndarray:
        return self.feature.initial_coefficient
