"""Option prices in the multivariate Black-Scholes model with correlated assets.

All are terminal-value problems in calendar time: u(T, x) is the payoff.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from heatnets.pde.problem import Problem
from heatnets.pde.processes import GeometricBrownian
from heatnets.pde.regions import Box, Point, Region
from heatnets.problems.shapes import Constructor, Scalar, Vector, dimension, number


def market(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Volatilities, shape (dim,), and correlations, shape (dim, dim), of the test market.

    The volatilities run from 15 to 35 %. The correlations come from three common factors; in ten
    dimensions they are between -0.7 and 0.9.
    """
    loads = 0.8 * np.random.default_rng(7).standard_normal((dim, 3))
    covariance = loads @ loads.T + np.eye(dim)
    size = np.sqrt(np.diag(covariance))
    return np.linspace(0.15, 0.35, dim), covariance / size / size[:, None]


class Call(eqx.Module):
    """max(index(x) - strike, 0)."""

    index: Callable[[Vector], Scalar] = eqx.field(static=True)
    strike: Any

    def __call__(self, x: Vector) -> Scalar:
        return jnp.maximum(self.index(x) - self.strike, 0.0)


class GeometricPrice(eqx.Module):
    """The Black-Scholes formula for a call on the geometric mean, which is lognormal."""

    strike: Any
    rate: Any
    horizon: Any
    variance: Any  # of the logarithm of the mean, per unit of time
    trend: Any  # drift of the logarithm of the mean, per unit of time

    def __init__(self, dim: int, horizon: float, strike: np.ndarray, rate: float) -> None:
        volatility, correlation = market(dim)
        self.strike, self.rate = strike, np.asarray(float(rate))
        self.horizon = number("horizon", horizon)
        self.variance = volatility @ correlation @ volatility / dim**2
        self.trend = np.asarray(rate - 0.5 * np.mean(volatility**2))

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        remaining = jnp.maximum(self.horizon - t, 1e-300)
        centre = jnp.mean(jnp.log(x)) + self.trend * remaining
        width = jnp.sqrt(self.variance * remaining)
        z = (centre - jnp.log(self.strike)) / width
        forward = jnp.exp(centre + 0.5 * width**2)
        expected = forward * norm.cdf(z + width) - self.strike * norm.cdf(z)
        return jnp.exp(-self.rate * remaining) * expected


def _call_on(
    index: Callable[[Vector], Scalar],
    default_dim: int,
    text: str,
    price: Callable[..., Any] = lambda *parameters: None,
) -> Constructor:
    """The constructor of a call on an index of the assets of the test market.

    Args:
        index: the index, a function of the assets' prices.
        default_dim: the default dimension.
        text: what the problem is.
        price: (dim, horizon, strike, rate) -> the exact solution; default not known.
    """

    def construct(
        dim: int = default_dim,
        horizon: float = 1.0,
        strike: float = 100.0,
        rate: float = 0.03,
        region: Region | None = None,
    ) -> Problem:
        volatility, correlation = market(dimension(dim))
        call = Call(index, number("strike", strike))
        return Problem(
            dim,
            horizon,
            terminal=call,
            process=GeometricBrownian(volatility, rate, correlation),
            reaction=-rate,
            region=Point(np.full(dim, 100.0)) if region is None else region,
            exact=price(dim, horizon, call.strike, rate),
        )

    construct.__doc__ = text
    return construct


def _geometric_mean(x: Vector) -> Scalar:
    return jnp.exp(jnp.mean(jnp.log(x)))


geometric_basket = _call_on(
    _geometric_mean,
    50,
    "A call on the geometric mean of correlated assets, in closed form; at the spot 100 unless a "
    "region is given.",
    GeometricPrice,
)
arithmetic_basket = _call_on(
    jnp.mean, 50, "A call on the mean of correlated assets: no closed form."
)
max_call = _call_on(jnp.max, 10, "A call on the best of correlated assets: no closed form.")


class SquaresPrice(eqx.Module):
    """e^{(r + σ²)(T - t)} |x|²."""

    rate: Any
    volatility: Any
    horizon: Any

    def __call__(self, t: Scalar, x: Vector) -> Scalar:
        return jnp.exp((self.rate + self.volatility**2) * (self.horizon - t)) * jnp.sum(x**2)


def _squares(x: Vector) -> Scalar:
    """|x|²."""
    return jnp.sum(x**2)


def barenblatt(
    dim: int = 100, horizon: float = 1.0, volatility: float = 0.4, rate: float = 0.05
) -> Problem:
    """Black, Scholes and Barenblatt with the volatility at its upper end, where the payoff |x|²
    keeps it: linear, in closed form."""
    exact = SquaresPrice(
        np.asarray(float(rate)), number("volatility", volatility), number("horizon", horizon)
    )
    return Problem(
        dim,
        horizon,
        terminal=_squares,
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
    return Problem(
        dim,
        horizon,
        terminal=jnp.min,
        source=DefaultRate(np.asarray(2 / 3), np.asarray(0.02)),
        process=GeometricBrownian(0.2, 0.02),
        region=Point(np.full(dimension(dim), 100.0)),
    )
