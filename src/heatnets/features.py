"""The two feature families of the paper: one point and one feature to value and residual.

A feature is a small module that holds its own frozen draw. A block of M features is the same module with one more
axis on every array; only `tiles` knows about that axis. Both families move u0 along paths, so three formulas serve:

    MovedInitial   c u0(x + √(2t) Sη)                          both families (kernel: η = √2 y)
    ReactedInitial c Ψ_{rt}(u0(x + √(2t) Sη))                  importance sampling, where the source depends on u
    MovedSource    c t F(rt, x + √(2(1-r)t) Sξ)                importance sampling
    KernelSource   1[g <= t] c exp(-|x-z|²/(4Dg)) F(t-g, z)    transformed Gaussian kernels
    Pair           ½[φ(η) + φ(-η)]                             antithetic pairs of the first two
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets import streams
from heatnets.directions import Design, draws
from heatnets.errors import InputError, NumericalError, choice, describe, positive
from heatnets.operators import Equation
from heatnets.problem import Problem

Scalar = Float[Array, ""]
Vector = Float[Array, "dim"]


class Feature(eqx.Module):
    """One frozen feature φ(t, x)."""

    @abc.abstractmethod
    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        """φ(t, x)."""

    @abc.abstractmethod
    def both(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        """φ and (∂_t - div A ∇) φ at (t, x), for t > 0."""

    def residual(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        """(∂_t - div A ∇) φ (t, x), for t > 0."""
        return self.both(equation, t, x)[1]

    @property
    @abc.abstractmethod
    def start(self) -> Scalar:
        """The factor c in φ(0, ·) = c u0."""


class MovedInitial(Feature):
    """φ(t, x) = c u0(x + √(2t) Sη); `direction` is Sη. Where coefficients vary: u0 at the end of a path in steps, (steps, dim) of noise."""

    direction: Vector
    coefficient: Scalar

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        return self.coefficient * equation.started(self.direction, t, x)

    def both(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        value, residual = equation.started_entry(self.direction, t, x)
        return self.coefficient * value, self.coefficient * residual

    @property
    def start(self) -> Scalar:
        return self.coefficient


class ReactedInitial(Feature):
    """φ(t, x) = c Ψ_{rt}(u0(x + √(2t) Sη)): u0 moved, and what a source that depends on u makes of it in a part of the time; `direction` is Sη."""

    direction: Vector
    fraction: Scalar
    coefficient: Scalar

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        return self.coefficient * equation.reacted(self.direction, self.fraction, t, x)

    def both(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        value, residual = equation.reacted_entry(self.direction, self.fraction, t, x)
        return self.coefficient * value, self.coefficient * residual

    @property
    def start(self) -> Scalar:
        return self.coefficient


class MovedSource(Feature):
    """φ(t, x) = c t F(rt, x + √(2(1-r)t) Sξ); `direction` is Sξ."""

    direction: Vector
    fraction: Scalar
    coefficient: Scalar

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        return self.coefficient * equation.forced(self.direction, self.fraction, t, x)

    def both(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        value, residual = equation.forced_entry(self.direction, self.fraction, t, x)
        return self.coefficient * value, self.coefficient * residual

    @property
    def start(self) -> Scalar:
        return jnp.zeros_like(self.coefficient)


class KernelSource(Feature):
    """φ(t, x) = 1[g <= t] c exp(-|x-z|²/(4Dg)) F(t-g, z), with c kept as its logarithm: it underflows from d = 600."""

    center: Vector
    lag: Scalar
    log_coefficient: Scalar

    def _kernel(self, equation: Equation, x: Vector) -> tuple[Scalar, Scalar]:
        square = jnp.sum((x - self.center) ** 2)
        return jnp.exp(self.log_coefficient - square / (4 * equation.scatter.scalar * self.lag)), square

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        assert equation.source is not None
        kernel, _ = self._kernel(equation, x)
        # Before its lag a feature looks at F(t, z), never at times before zero: NaN must not hide behind the indicator.
        force = equation.source(jnp.where(self.lag <= t, t - self.lag, t), self.center)
        return jnp.where(self.lag <= t, kernel * force, 0.0)

    def both(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        assert equation.source is not None
        kernel, square = self._kernel(equation, x)
        before = jnp.where(self.lag <= t, t - self.lag, t)
        force, change = equation.source.along((before, self.center), (jnp.ones_like(t), jnp.zeros_like(x)))
        D = equation.scatter.scalar
        width = 2 * D * self.lag
        residual = change - D * force * (square / width**2 - x.size / width)
        on = self.lag <= t
        return jnp.where(on, kernel * force, 0.0), jnp.where(on, kernel * residual, 0.0)

    @property
    def start(self) -> Scalar:
        return jnp.zeros_like(self.log_coefficient)


class Pair(Feature):
    """½[φ(t, x; η) + φ(t, x; -η)]: odd terms cancel, and with them the t^{-1/2} of ∂_t φ at t = 0."""

    one: MovedInitial | ReactedInitial | MovedSource

    def _mean(self, of: Callable[[Feature], Any]) -> Any:
        def turned(sign: Scalar) -> Any:
            return of(eqx.tree_at(lambda f: f.direction, self.one, sign * self.one.direction))

        return jax.tree.map(lambda both: 0.5 * (both[0] + both[1]), jax.vmap(turned)(jnp.array([1.0, -1.0])))

    def value(self, equation: Equation, t: Scalar, x: Vector) -> Scalar:
        return self._mean(lambda f: f.value(equation, t, x))

    def both(self, equation: Equation, t: Scalar, x: Vector) -> tuple[Scalar, Scalar]:
        return self._mean(lambda f: f.both(equation, t, x))

    @property
    def start(self) -> Scalar:
        return self.one.start


_STORED = {kind.__name__: kind for kind in (MovedInitial, ReactedInitial, MovedSource, KernelSource)}


def packed(block: Feature) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A block as words and arrays, to be stored."""
    one = block.one if isinstance(block, Pair) else block
    names = [field.name for field in fields(one)]
    arrays = {name: np.asarray(getattr(one, name)) for name in names}
    return {"feature": type(one).__name__, "pairs": isinstance(block, Pair)}, arrays


def unpacked(words: Mapping[str, Any], arrays: Mapping[str, np.ndarray], steps: tuple[int, ...], dim: int) -> Feature:
    """A block from what was stored; `steps` are those of the paths that its features follow."""
    kind = _STORED.get(words.get("feature", ""))
    names = [] if kind is None else [field.name for field in fields(kind)]
    if kind is None or set(arrays) != set(names):
        raise InputError(
            f"features of the kind {describe(words.get('feature'))} with {sorted(arrays)} are not known to this version."
        )
    count = len(arrays[names[-1]])
    for name, array in arrays.items():
        long = name in ("direction", "center")
        if array.shape != ((count, *(steps if name == "direction" else ()), dim) if long else (count,)):
            raise InputError(
                f"`{name}` of the features has shape {array.shape}, which does not fit {count} features in {dim} dimensions."
            )
    one: Any = kind(*(jnp.asarray(arrays[name]) for name in names))
    return Pair(one) if words.get("pairs") else one


@dataclass(frozen=True)
class Density:
    """A sampling density ψ of the user's in place of uniform draws; features are then divided by ψ.

    Args:
        draw: `draw(rng, n)` returns n points as rows, shape (n, k), drawn with the NumPy generator `rng`.
        pdf: `pdf(points)` returns their densities, shape (n,), all > 0.
    """

    draw: Callable[[np.random.Generator, int], np.ndarray]
    pdf: Callable[[np.ndarray], np.ndarray]

    def points(self, count: int, width: int, seed: int, stream: str) -> tuple[np.ndarray, np.ndarray]:
        """`count` points of `width` coordinates, and the logarithm of their density."""
        points = np.asarray(self.draw(streams.generator(seed, stream), count), np.float64)
        if points.shape != (count, width) or not np.all(np.isfinite(points)):
            raise InputError(f"`Density.draw` must return finite points of shape ({count}, {width}); got shape {points.shape}.")
        pdf = np.asarray(self.pdf(points), np.float64)
        if pdf.shape != (count,) or not np.all(np.isfinite(pdf) & (pdf > 0)):
            raise InputError(
                f"`Density.pdf` must return {count} finite numbers > 0, one per drawn point; got {describe(pdf)}"
                + (f" with {int(np.sum(~(pdf > 0)))} not > 0." if pdf.shape == (count,) else ".")
            )
        return points, np.log(pdf)


class Family(abc.ABC):
    """A way of freezing the mild solution's integrals into features."""

    name: str

    @abc.abstractmethod
    def draw(
        self, problem: Problem, counts: tuple[int, int], design: Design, seed: int, antithetic: bool = False
    ) -> list[Feature]:
        """Blocks of features (pairs of them if antithetic), each with a leading axis: `counts[0]` from the initial condition,
        `counts[1]` from the source."""

    def cautions(self, problem: Problem, counts: tuple[int, int], enforce: str, collocation: str) -> list[str]:
        """What a user of this family must be told."""
        return []


@dataclass(frozen=True)
class ImportanceFamily(Family):
    """Importance sampling: the heat kernel is the law of the draws.

    Args:
        fraction_density: density on (0, 1) of the time fraction r in place of the uniform one.
    """

    fraction_density: Density | None = None
    name = "importance"

    def draw(
        self, problem: Problem, counts: tuple[int, int], design: Design, seed: int, antithetic: bool = False
    ) -> list[Feature]:
        reacts = problem.reacted is not None
        part, eta = _noise(problem, design, counts[0], int(reacts), seed, "initial features")
        r, xi = _noise(problem, design, counts[1], 1, seed, "source features")
        coefficient = np.ones(counts[1])
        if self.fraction_density is not None:
            r, log_pdf = self.fraction_density.points(counts[1], 1, seed, "fraction density")
            if not np.all((r > 0) & (r < 1)):
                raise InputError("`fraction_density` must draw time fractions inside (0, 1); some lie outside.")
            coefficient = np.exp(-log_pdf)
        ones = jnp.ones(counts[0])
        initial = (
            ReactedInitial(jnp.asarray(eta), jnp.asarray(part[:, 0]), ones) if reacts else MovedInitial(jnp.asarray(eta), ones)
        )
        source = MovedSource(jnp.asarray(xi), jnp.asarray(r[:, 0]), jnp.asarray(coefficient))
        return [Pair(initial), Pair(source)] if antithetic else [initial, source]


_SHUFFLED = 64


def _noise(problem: Problem, design: Design, count: int, uniform: int, seed: int, stream: str) -> tuple[np.ndarray, np.ndarray]:
    """Uniform numbers, and the noise of as many paths: one draw of the design for each of their steps."""
    walk, dim = problem.feature_walk, problem.dim
    flat, bell = draws(design, count, uniform, dim, seed, stream)
    *steps, _ = walk.normals(dim)
    if not steps:
        return flat, walk.shape(bell)
    # A design's sequences resemble each other (radii, Sobol points): each step takes its own in an order of its own, block by block, so that more draws change nothing.
    whole, more = -(-count // _SHUFFLED) * _SHUFFLED, []
    for k in range(1, steps[0]):
        rng = streams.generator(seed, f"{stream}, order of step {k}")
        order = np.concatenate([i + rng.permutation(_SHUFFLED) for i in range(0, whole, _SHUFFLED)] or [np.zeros(0, int)])
        more.append(draws(design, whole, 0, dim, seed, f"{stream}, step {k}")[1][order[:count]])
    return flat, walk.shape(np.stack([bell, *more], axis=1))


@dataclass(frozen=True)
class GaussianFamily(Family):
    """Transformed Gaussian kernels, drawn uniformly on [-A, A]^d and on the transformed lags.

    Args:
        half_width: A, the half width of the box of y and z.
        shortest_lag: g_min as a fraction of the horizon, where the lag integral is cut for d >= 2; what is cut is at
            most g_min sup|F|.
        initial_density: density of y on R^d in place of the uniform one.
        source_density: density of (lag, z) on (0, T] x R^d in place of the uniform one; rows are (lag, z_1, ..., z_d).
    """

    half_width: float = 5.0
    shortest_lag: float = 1e-3
    initial_density: Density | None = None
    source_density: Density | None = None
    name = "gaussian"

    def __post_init__(self) -> None:
        positive("half_width", self.half_width, "It is A in [-A, A]^d.")
        if positive("shortest_lag", self.shortest_lag, "It is a fraction of the horizon.") >= 1:
            raise InputError(f"`shortest_lag` must be below 1, a fraction of the horizon; got {self.shortest_lag:g}.")

    def draw(
        self, problem: Problem, counts: tuple[int, int], design: Design, seed: int, antithetic: bool = False
    ) -> list[Feature]:
        if antithetic:
            raise InputError(
                '`antithetic` pairs directions, which Gaussian kernels do not have. Use family="importance", or antithetic=False.'
            )
        d, A, D = problem.dim, self.half_width, problem.scatter.scalar
        if D is None:
            raise InputError('`family="gaussian"` needs a scalar diffusion. Use family="importance".')
        if self.initial_density is None:
            unit, _ = draws(design, counts[0], d, 0, seed, "initial features")
            y, log_pdf = A * (2 * unit - 1), np.zeros(counts[0])
        else:
            y, log_pdf = self.initial_density.points(counts[0], d, seed, "initial density")
        log_c = -0.5 * d * np.log(np.pi) - np.sum(y**2, axis=1) - log_pdf
        if counts[0] and not np.any(np.exp(log_c)):
            raise NumericalError(
                f"every Gaussian kernel feature underflows to zero in {d} dimensions: e^-|y|² with y in [-{A:g}, {A:g}]^{d}. "
                'Use family="importance", or give GaussianFamily an `initial_density` that draws y where the kernel is.'
            )
        initial = MovedInitial(jnp.asarray(np.sqrt(2.0 * D) * y), jnp.asarray(np.exp(log_c)))

        if self.source_density is None:
            unit, _ = draws(design, counts[1], 1 + d, 0, seed, "source features")
            lag = Lags(d, problem.horizon, self.shortest_lag * problem.horizon).at(unit[:, 0])
            z, log_kernel = A * (2 * unit[:, 1:] - 1), np.full(counts[1], log_kernel_constant(d, D))
        else:
            rows, log_pdf = self.source_density.points(counts[1], 1 + d, seed, "source density")
            lag, z = rows[:, 0], rows[:, 1:]
            if not np.all((lag > 0) & (lag <= problem.horizon)):
                raise InputError(
                    f"`source_density` must draw lags in (0, horizon] in its first column; horizon = {problem.horizon:g}."
                )
            log_kernel = -0.5 * d * np.log(4 * np.pi * D * lag) - log_pdf
        return [initial, KernelSource(jnp.asarray(z), jnp.asarray(lag), jnp.asarray(log_kernel))]

    def cautions(self, problem: Problem, counts: tuple[int, int], enforce: str, collocation: str) -> list[str]:
        said = []
        if problem.source is not None and counts[1] and enforce == "equation":
            said.append(
                "Gaussian kernel source features jump in t where their indicator switches on, and equation rows cannot see "
                "a jump: a solution that needs the source features can be wrong by tens of per cent. "
                'Use family="importance", or enforce="mild" with collocation="uniform".'
            )
        if problem.source is not None and counts[1] and enforce == "mild" and collocation == "grid":
            said.append(
                "Gaussian kernel source features jump in t: mild rows on a grid of times leave the fit free between the lines, where it was "
                'wrong by a factor of two in trials. Use collocation="uniform".'
            )
        if problem.dim >= 3 and (self.initial_density is None or (counts[1] and self.source_density is None)):
            said.append(
                f"Gaussian kernels drawn uniformly on [-{self.half_width:g}, {self.half_width:g}]^{problem.dim} hardly ever land where "
                'the kernel is: from d = 3 the family is kept for fidelity only. Use family="importance".'
            )
        return said


class Lags:
    """The paper's change of the lag g = t - s that removes the kernel's singularity, cut at `shortest` for d >= 2.

    τ = √g (d = 1), -ln g (d = 2), g^α with α = 1 - d/2 (d >= 3); τ is uniform on 𝒟(longest).
    """

    def __init__(self, dim: int, longest: Any, shortest: Any) -> None:
        self.dim, self.alpha = dim, 1 - dim / 2
        self.longest, self.log_range = longest, jnp.log(longest / shortest if dim > 1 else 1.0)

    def at(self, unit: Any) -> Any:
        """The lag of τ at the fraction `unit` of 𝒟."""
        if self.dim == 1:
            return self.longest * unit**2
        if self.dim == 2:
            return self.longest * jnp.exp(-unit * self.log_range)
        # τ/τ_0 = (1-unit) + unit (shortest/longest)^α in logarithms: the power overflows from d = 200.
        log_tau = jnp.logaddexp(jnp.log1p(-unit), jnp.log(unit) - self.alpha * self.log_range)
        return self.longest * jnp.exp(log_tau / self.alpha)

    @property
    def length(self) -> Any:
        """μ(𝒟)."""
        if self.dim == 1:
            return jnp.sqrt(self.longest)
        if self.dim == 2:
            return self.log_range
        return self.longest**self.alpha * jnp.expm1(-self.alpha * self.log_range)


def log_kernel_constant(dim: int, diffusion: Any) -> Any:
    """log of 1 / (C(d) (4πD)^{d/2}), C = 1/2, 1, |1 - d/2|."""
    C = {1: 0.5, 2: 1.0}.get(dim, abs(1 - dim / 2))
    return -jnp.log(C) - 0.5 * dim * jnp.log(4 * jnp.pi * diffusion)


FAMILIES: dict[str, Family] = {family.name: family for family in (ImportanceFamily(), GaussianFamily())}


def family(value: str | Family) -> Family:
    """A family by name, or the user's own."""
    return value if isinstance(value, Family) else FAMILIES[choice("family", value, FAMILIES)]
