"""Peers and heatnets on the same problems, one after the other on the same machine.

    python benchmarks/peers.py                    all cases
    python benchmarks/peers.py --cases basket     those whose name begins so

Allen-Cahn, d = 100, value at the origin: the deep BSDE method (E, Han and Jentzen 2017) in JAX with
its published settings (20 steps, two hidden layers of d + 10, batch normalisation, Adam, 4000
iterations of 64 paths), and heatnets with its certificate. The reference value is that of their
paper, 0.052802. Arithmetic basket call on five assets: Sobol points with the geometric basket as
control variate, and heatnets, at one spot and at 1000 spots of a box; the reference is the same
Sobol method with 2^18 points. Seconds include imports of nothing but compilation.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm, qmc

import heatnets as hn

Row = tuple[str, float, str]  # method, seconds, result

ALLEN_CAHN = 0.052802  # u(0.3, 0), E, Han and Jentzen
DIM, HORIZON, STEPS, BATCH, ITERATIONS = 100, 0.3, 20, 64, 4000


def dense(key: Any, width_in: int, width_out: int) -> dict[str, Any]:
    """Weights of a layer with batch normalisation."""
    weights = jax.random.normal(key, (width_in, width_out)) / jnp.sqrt(width_in)
    return {"w": weights, "scale": jnp.ones(width_out), "shift": jnp.zeros(width_out)}


def apply(layers: list[dict[str, Any]], x: Any) -> Any:
    """A network with batch normalisation after every layer and ReLU between them."""
    for i, layer in enumerate(layers):
        x = x @ layer["w"]
        x = (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-6) * layer["scale"] + layer["shift"]
        x = jax.nn.relu(x) if i < len(layers) - 1 else x
    return x


def bsde_loss(params: dict[str, Any], key: Any) -> Any:
    """Mean square misfit at the final time, for dX = √2 dW and the source u - u³."""
    dt = HORIZON / STEPS
    dW = jnp.sqrt(dt) * jax.random.normal(key, (STEPS, BATCH, DIM))
    y = jnp.full(BATCH, params["y"])
    z = jnp.broadcast_to(params["z"], (BATCH, DIM))
    x = jnp.zeros((BATCH, DIM))
    for n in range(STEPS):
        y = y - dt * (y - y**3) + jnp.sum(z * dW[n], axis=1)
        x = x + jnp.sqrt(2.0) * dW[n]
        if n < STEPS - 1:
            z = apply(jax.tree.map(lambda a, n=n: a[n], params["layers"]), x) / DIM
    return jnp.mean((y - 1 / (2 + 0.4 * jnp.sum(x**2, axis=1))) ** 2)


@partial(jax.jit, donate_argnums=0)
def adam_step(state: tuple[Any, ...], key: Any) -> tuple[Any, ...]:
    """One iteration of Adam with the published rate, 5e-4."""
    params, first, second, n = state
    gradient = jax.grad(bsde_loss)(params, key)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, second, gradient)
    rate = 5e-4 * jnp.sqrt(1 - 0.999 ** (n + 1)) / (1 - 0.9 ** (n + 1))
    params = jax.tree.map(
        lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), params, first, second
    )
    return params, first, second, n + 1


def deep_bsde() -> Row:
    start = time.perf_counter()
    keys = jax.random.split(jax.random.key(0), 3 * (STEPS - 1)).reshape(STEPS - 1, 3)
    widths = [(DIM, DIM + 10), (DIM + 10, DIM + 10), (DIM + 10, DIM)]
    layers = [jax.vmap(lambda k, w=w: dense(k, *w))(keys[:, i]) for i, w in enumerate(widths)]
    params = {"y": jnp.asarray(0.4), "z": jnp.zeros(DIM), "layers": layers}
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = (params, zeros, jax.tree.map(jnp.zeros_like, params), jnp.asarray(0.0))
    for i in range(ITERATIONS):
        state = adam_step(state, jax.random.fold_in(jax.random.key(1), i))
    value = float(state[0]["y"])
    error = abs(value - ALLEN_CAHN) / ALLEN_CAHN
    return "deep BSDE", time.perf_counter() - start, f"{value:.5f}, error {error:.1e}, no error bar"


def heatnets_allen_cahn() -> Row:
    start = time.perf_counter()
    x = np.zeros(DIM)
    problem = hn.Problem(
        DIM,
        HORIZON,
        initial=lambda x: 1 / (2 + 0.4 * x @ x),
        source=lambda t, x, u: u - u**3,
        region=hn.Point(x),
    )
    sure = hn.solve(problem).certify(HORIZON, x)
    spent = time.perf_counter() - start
    error = abs(sure.value - ALLEN_CAHN) / ALLEN_CAHN
    return "heatnets", spent, f"{sure.value:.5f} ± {sure.halfwidth:.0e}, error {error:.1e}"


ASSETS, STRIKE, SIGMA, RHO, RATE = 5, 100.0, 0.2, 0.5, 0.05
CORRELATION = np.full((ASSETS, ASSETS), RHO) + (1 - RHO) * np.eye(ASSETS)
FACTOR = SIGMA * np.linalg.cholesky(CORRELATION)


def geometric_price(spots: np.ndarray) -> np.ndarray:
    """Black's formula for a call on the geometric mean; spots (n, ASSETS)."""
    deviation = np.sqrt(np.sum(np.mean(FACTOR, axis=0) ** 2))
    middle = np.mean(np.log(spots), axis=1) + RATE - SIGMA**2 / 2
    d = (middle - np.log(STRIKE)) / deviation
    forward = np.exp(middle + deviation**2 / 2) * norm.cdf(d + deviation)
    return np.exp(-RATE) * (forward - STRIKE * norm.cdf(d))


def sobol_prices(spots: np.ndarray, points: int, seed: int) -> np.ndarray:
    """Arithmetic basket calls by shared Sobol points with the geometric basket as control."""
    z = norm.ppf(qmc.Sobol(ASSETS, seed=seed).random(points))
    growth = np.exp(RATE - SIGMA**2 / 2 + z @ FACTOR.T)
    geometric = np.exp(np.mean(np.log(growth), axis=1))
    prices = np.empty(len(spots))
    for i, spot in enumerate(spots):
        payoff = np.maximum(growth @ spot / ASSETS - STRIKE, 0)
        control = np.maximum(np.exp(np.mean(np.log(spot))) * geometric - STRIKE, 0)
        prices[i] = np.exp(-RATE) * np.mean(payoff - control)
    return prices + geometric_price(spots)


def basket_rows(spots: np.ndarray, problem: hn.Problem) -> Iterator[Row]:
    reference = np.mean([sobol_prices(spots, 2**18, seed) for seed in (1, 2)], axis=0)

    def judged(prices: np.ndarray) -> str:
        errors = np.abs(prices - reference) / reference
        return f"worst relative error {np.max(errors):.1e}"

    for points in (2**10, 2**14):
        start = time.perf_counter()
        prices = sobol_prices(spots, points, 0)
        yield f"Sobol, {points} points", time.perf_counter() - start, judged(prices)
    start = time.perf_counter()
    u = hn.solve(problem)
    if len(spots) == 1:
        sure = u.certify(0.0, spots[0])
        spent, prices = time.perf_counter() - start, np.array([sure.value])
        yield "heatnets", spent, f"{judged(prices)}, half-width {sure.halfwidth / sure.value:.0e}"
        return
    trained = time.perf_counter() - start
    prices = u(0.0, spots)
    evaluated = 1e6 * (time.perf_counter() - start - trained) / len(spots)
    estimate = u.stats["estimated_error"]
    result = f"{judged(prices)}; estimated {estimate:.1e}; {evaluated:.0f} µs per spot"
    yield "heatnets", trained, result


def basket(spots: np.ndarray, region: hn.Region) -> list[Row]:
    problem = hn.Problem(
        ASSETS,
        1.0,
        terminal=lambda x: jnp.maximum(jnp.mean(x) - STRIKE, 0.0),
        process=hn.GeometricBrownian(volatility=SIGMA, growth=RATE, correlation=CORRELATION),
        reaction=-RATE,
        region=region,
    )
    return list(basket_rows(spots, problem))


def one_spot() -> list[Row]:
    spot = np.full(ASSETS, 100.0)
    return basket(spot[None], hn.Point(spot))


def many_spots() -> list[Row]:
    spots = np.random.default_rng(0).uniform(80, 120, (1000, ASSETS))
    return basket(spots, hn.Box(80.0, 120.0))


CASES: dict[str, Callable[[], list[Row]]] = {
    "allen-cahn, d = 100": lambda: [deep_bsde(), heatnets_allen_cahn()],
    "basket of 5, one spot": one_spot,
    "basket of 5, 1000 spots": many_spots,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="*", default=[""])
    args = parser.parse_args()
    warnings.simplefilter("ignore", hn.HeatnetsWarning)
    print("| problem | method | seconds | result |")
    print("|---|---|---|---|")
    for name, run in CASES.items():
        if name.startswith(tuple(args.cases)):
            for method, seconds, result in run():
                print(f"| {name} | {method} | {seconds:.2f} | {result} |", flush=True)


if __name__ == "__main__":
    main()
