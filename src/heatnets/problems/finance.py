"""Option prices in the multivariate Black-Scholes model with correlated assets.

All are terminal-value problems in calendar time: u(T, x) is the payoff.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from heatnets.pde.problem import Problem
from heatnets.pde.processes import GeometricBrownian
from heatnets.pde.regions import Box, Point, Region
from heatnets.problems.parameters import dimension, number

Vector = Float[Array, " dim"]
Scalar = Float[Array, ""]


def market(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Volatilities, shape (dim,), and correlations, shape (dim, dim), of the test market.

    The volatilities run from 15 to 35 %. The correlations come from three common factors; in ten
    dimensions they are between -0.7 and 0.9.
    """
    loads = 0.8 * np.random.default_rng(7).standard_normal((dim, 3))
    covariance = loads @ loads.T + np.eye(dim)
    size = np.sqrt(np.diag(covariance))
    return np.linspace(0.15, 0.35, dim), covariance / size / size[:, None]


class GeometricPayoff(eqx.Module):
    """max(geometric mean - strike, 0)."""

    strike: Any

    def __call__(self, x: Vector) -> Scalar:
        return jnp.maximum(jnp.exp(jnp.mean(jnp.log(x))) - self.strike, 0.0)


class ArithmeticPayoff(eqx.Module):
    """max(mean - strike, 0)."""

    strike: Any

    def __call__(self, x: Vector) -> Scalar:
        return jnp.maximum(jnp.mean(x) - self.strike, 0.0)


class WorstPayoff(eqx.Module):
    """The smallest price."""

    def __call__(self, x: Vector) -> Scalar:
        return jnp.min(x)


class BestPayoff(eqx.Module):
    """max(largest - strike, 0)."""

    strike: Any

    def __call__(self, x: Vector) -> Scalar:
        return jnp.maximum(jnp.max(x) - self.strike, 0.0)


class GeometricPrice(eqx.Module):
    """The Black-Scholes formula for a call on the geometric mean, which is lognormal."""

    strike: Any
    rate: Any
    horizon: Any
    variance: Any  # of the logarithm of the mean, per unit of time
    trend: Any  # drift of the logarithm of the mean, per unit of time

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        remaining = jnp.maximum(self.horizon - t, 1e-300)
        centre = jnp.mean(jnp.log(x)) + self.trend * remaining
        width = jnp.sqrt(self.variance * remaining)
        z = (centre - jnp.log(self.strike)) / width
        forward = jnp.exp(centre + 0.5 * width**2)
        expected = forward * norm.cdf(z + width) - self.strike * norm.cdf(z)
        return jnp.exp(-self.rate * remaining) * expected


class SquaresPrice(eqx.Module):
    """e^{(r + σ²)(T - t)} |x|²."""

    rate: Any
    volatility: Any
    horizon: Any

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return jnp.exp((self.rate + self.volatility**2) * (self.horizon - t)) * jnp.sum(x**2)


class Squares(eqx.Module):
    """|x|²."""

    def __call__(self, x: Vector) -> Scalar:
        return jnp.sum(x**2)


def _option_problem(
    payoff: Any, dim: int, horizon: float, rate: float, region: Region | None, exact: Any = None
) -> Problem:
    """The price of a payoff in the test market; the default region is the spot price 100."""
    volatility, correlation = market(dim)
    return Problem(
        dim=dim,
        horizon=horizon,
        terminal=payoff,
        process=GeometricBrownian(volatility, rate, correlation),
        reaction=-rate,
        region=Point(np.full(dim, 100.0)) if region is None else region,
        exact=exact,
    )


def geometric_basket(
    dim: int = 50,
    horizon: float = 1.0,
    strike: float = 100.0,
    rate: float = 0.03,
    region: Region | None = None,
) -> Problem:
    """A call on the geometric mean of correlated assets, in closed form; at the spot 100 unless
    a region is given."""
    n = dimension(dim)
    volatility, correlation = market(n)
    variance = volatility @ correlation @ volatility / n**2
    strike_array = number("strike", strike)
    exact = GeometricPrice(
        strike=strike_array,
        rate=np.asarray(float(rate)),
        horizon=number("horizon", horizon),
        variance=variance,
        trend=np.asarray(rate - 0.5 * np.mean(volatility**2)),
    )
    return _option_problem(GeometricPayoff(strike_array), n, horizon, rate, region, exact)


def arithmetic_basket(
    dim: int = 50,
    horizon: float = 1.0,
    strike: float = 100.0,
    rate: float = 0.03,
    region: Region | None = None,
) -> Problem:
    """A call on the mean of correlated assets: no closed form."""
    payoff = ArithmeticPayoff(number("strike", strike))
    return _option_problem(payoff, dimension(dim), horizon, rate, region)


def max_call(
    dim: int = 10,
    horizon: float = 1.0,
    strike: float = 100.0,
    rate: float = 0.03,
    region: Region | None = None,
) -> Problem:
    """A call on the best of correlated assets: no closed form."""
    payoff = BestPayoff(number("strike", strike))
    return _option_problem(payoff, dimension(dim), horizon, rate, region)


def barenblatt(
    dim: int = 100, horizon: float = 1.0, volatility: float = 0.4, rate: float = 0.05
) -> Problem:
    """Black, Scholes and Barenblatt with the volatility at its upper end, where the payoff |x|²
    keeps it: linear, in closed form."""
    n = dimension(dim)
    exact = SquaresPrice(
        rate=np.asarray(float(rate)),
        volatility=number("volatility", volatility),
        horizon=number("horizon", horizon),
    )
    return Problem(
        dim=n,
        horizon=horizon,
        terminal=Squares(),
        process=GeometricBrownian(volatility, rate),
        reaction=-rate,
        region=Box(0.5, 1.5),
        exact=exact,
    )


class DefaultRate(eqx.Module):
    """The source -(1 - δ) Q(v) v - R v: losses of a claim of value v by default and by discounting.

    The default rate Q(v) falls linearly from γ_h below v_h to γ_l above v_l; δ is the recovery.
    """

    recovery: Any
    rate: Any

    def __call__(self, t: Scalar, x: Vector, u: Scalar) -> Scalar:
        values, rates = jnp.array([50.0, 70.0]), jnp.array([0.2, 0.02])
        intensity = jnp.interp(u, values, rates)
        return -(1 - self.recovery) * intensity * u - self.rate * u


def default_risk(dim: int = 100, horizon: float = 1.0) -> Problem:
    """The price of a claim on the worst of `dim` assets that may default, of the deep-BSDE paper:
    at spot 100, volatility 20 %, drift and rate 2 %, recovery 2/3.

    The paper gives 57.300 for d = 100 and T = 1, by multilevel Picard.
    """
    n = dimension(dim)
    process = GeometricBrownian(0.2, 0.02)
    source = DefaultRate(number("recovery", 2 / 3), number("rate", 0.02))
    return Problem(
        dim=n,
        horizon=horizon,
        terminal=WorstPayoff(),
        source=source,
        process=process,
        region=Point(np.full(n, 100.0)),
    )
