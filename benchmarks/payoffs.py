"""Options: errors of prices, deltas and certificates beside their marks, and seconds.

    python benchmarks/payoffs.py [--seeds 1] [--only geometric,digital,...]

Prints one line per figure: what was measured, its median and its worst over the seeds, the mark.
With several seeds a mark is met by the median if no seed is worse than three times the mark.
Solves are over spots of ±20 %, and default ones where no `tol` is named. Seconds are CPU seconds of
all threads, compilation included. The reference of an arithmetic basket is Monte Carlo with Sobol
points and one direction in closed form, written here with NumPy; its own error is printed.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr
from scipy.stats import norm, qmc

import heatnets as hn
from heatnets.problems.finance import market

RATE, STRIKE = 0.03, 100.0
BOX = hn.Box(80.0, 120.0)
Figure = tuple[str, float, float | None]  # what, figure, mark
Market = tuple[np.ndarray, np.ndarray]  # volatilities (dim,) and correlations (dim, dim)


def equal_market(dim: int) -> Market:
    """Volatilities of 20 %, correlations of 0.5."""
    return np.full(dim, 0.2), np.full((dim, dim), 0.5) + 0.5 * np.eye(dim)


def option(
    dim: int, payoff: Callable, exact: Callable | None = None, of: Callable = market
) -> hn.Problem:
    """An option on the assets of a market."""
    volatility, correlation = of(dim)
    return hn.Problem(
        dim,
        1.0,
        terminal=payoff,
        process=hn.GeometricBrownian(volatility, RATE, correlation),
        reaction=-RATE,
        region=BOX,
        exact=exact,
    )


def law(dim: int) -> tuple[float, float]:
    """Variance and trend of the logarithm of the geometric mean, per year."""
    volatility, correlation = market(dim)
    variance = float(volatility @ correlation @ volatility) / dim**2
    return variance, RATE - 0.5 * float(np.mean(volatility**2))


def geometric_put(dim: int) -> hn.Problem:
    """A put on the geometric mean, by the parity with the call."""
    call, (variance, trend) = hn.problems.get("geometric-basket", dim=dim).exact, law(dim)

    def exact(t: jax.Array, x: jax.Array) -> jax.Array:
        left = 1.0 - t
        forward = jnp.exp(jnp.mean(jnp.log(x)) + (trend + 0.5 * variance) * left)
        return call(t, x) - jnp.exp(-RATE * left) * (forward - STRIKE)

    return option(dim, lambda x: jnp.maximum(STRIKE - jnp.exp(jnp.mean(jnp.log(x))), 0.0), exact)


def digital(dim: int) -> hn.Problem:
    """Pays one if the geometric mean ends above the strike."""
    variance, trend = law(dim)

    def exact(t: jax.Array, x: jax.Array) -> jax.Array:
        left = jnp.maximum(1.0 - t, 1e-300)
        d = (jnp.mean(jnp.log(x)) + trend * left - np.log(STRIKE)) / jnp.sqrt(variance * left)
        return jnp.exp(-RATE * left) * jax.scipy.stats.norm.cdf(d)

    return option(dim, lambda x: jnp.where(jnp.mean(jnp.log(x)) > np.log(STRIKE), 1.0, 0.0), exact)


@cache
def arithmetic_reference(
    dim: int, of: Callable, count: int, points: int, seeds: int = 8
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random spots (count, dim), prices, standard errors: Sobol points, one direction exactly.

    Along a line the mean is Σ c_i exp(b_i z), a convex function with at most two roots of the
    strike, and the expectation over z is a sum of normal distribution functions.
    """
    volatility, correlation = of(dim)
    spots = np.random.default_rng(3).uniform(80.0, 120.0, (count, dim))
    root = np.linalg.cholesky(correlation)
    e = root.T @ volatility / np.linalg.norm(root.T @ volatility)
    plane = np.linalg.svd(e[None])[2][1:]
    b = volatility * (root @ e)
    runs = []
    for seed in range(seeds):
        normal = norm.ppf(qmc.Sobol(dim - 1, seed=seed).random(points)) @ plane
        factor = np.exp(RATE - 0.5 * volatility**2 + (normal @ root.T) * volatility) / dim
        runs.append([np.exp(-RATE) * np.mean(_call(spot * factor, b)) for spot in spots])
    return spots, np.mean(runs, axis=0), np.std(runs, axis=0, ddof=1) / np.sqrt(seeds)


def _call(c: np.ndarray, b: np.ndarray) -> np.ndarray:
    """E[max(Σ c_i exp(b_i z) - K, 0)] for normal z, (n,); c (n, dim) > 0, b (dim,)."""
    total = np.exp(0.5 * b**2) * c
    value = np.zeros(len(c))
    for sign in (1.0, -1.0) if np.any(b < 0) else (1.0,):
        z = np.full(len(c), 12.0 * sign)
        for _ in range(20):  # Newton's method from outside: monotone, since the mean is convex
            terms = c * np.exp(b * z[:, None])
            outside = sign * (terms @ b) > 0  # else there is no root on this side
            slope = np.where(outside, terms @ b, 1.0)
            step = (terms.sum(axis=1) - STRIKE) / slope
            z = np.where(outside, np.clip(z - step, -12.0, 12.0), sign * 12.0)
            if np.max(np.abs(np.where(outside, step, 0.0))) < 1e-9:
                break
        above = ndtr(sign * (b - z[:, None]))
        value += np.sum(total * above, axis=1) - STRIKE * ndtr(-sign * z)
    return value


def solved(problem: hn.Problem, seed: int, **options: float) -> tuple[hn.Solution, float]:
    """The solution, and the CPU seconds it took."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        solution = hn.solve(problem, seed=seed, **options)
    return solution, time.process_time() - start


def with_exact(name: str, problem: hn.Problem, seed: int, mark: float) -> Iterator[Figure]:
    """Errors of price and delta over the region, and the certificate at its centre."""
    u, seconds = solved(problem, seed)
    terminal = "terminal" in u.problem.canonical.data_name
    t, x = hn.random_points(problem, 300, seed=1)
    t = 0.9 * t if terminal else np.maximum(t, 0.1 * problem.horizon)
    start = (0.0, np.full(problem.dim, 100.0)) if terminal else (problem.horizon, x[0])
    yield f"{name}: price, relative L2", hn.measure(u).l2, mark
    with jax.enable_x64(True):
        slopes = hn.exact_gradient(problem, t, x)
    wrong = np.linalg.norm(u.gradient(t, x) - slopes) / np.linalg.norm(slopes)
    yield f"{name}: delta, relative L2", float(wrong), 10 * mark
    begin = time.process_time()
    sure = u.certify(*start)
    seconds += time.process_time() - begin
    truth = float(hn.exact_values(problem, *start))
    yield f"{name}: half-width, relative", float(sure.halfwidth / abs(truth)), 1e-4
    yield f"{name}: miss in half-widths", float(abs(sure.value - truth) / sure.halfwidth), None
    yield f"{name}: CPU seconds, solve and certificate", seconds, 20.0


def arithmetic(
    dim: int,
    seed: int,
    of: Callable = market,
    spots: tuple[int, int] = (20, 2**15),
    **options: float,
) -> Iterator[Figure]:
    """A call on the mean of assets, against Sobol points; `spots`, and points for each."""
    payoff = lambda x: jnp.maximum(jnp.mean(x) - STRIKE, 0.0)  # noqa: E731
    u, seconds = solved(option(dim, payoff, of=of), seed, **options)
    x, exact, noise = arithmetic_reference(dim, of, *spots)
    name = f"arithmetic basket, d = {dim}"
    name += ", correlation 0.5" if of is equal_market else ""
    name += "".join(f", {key}={value:g}" for key, value in options.items())
    yield f"{name}: noise of the reference", float(np.max(noise / exact)), None
    wrong = float(np.max(np.abs(u(0.0, x) / exact - 1)))
    yield f"{name}: worst of {len(x)} spots", wrong, 1e-4
    yield f"{name}: CPU seconds, solve", seconds, 10.0
    many = np.random.default_rng(4).uniform(80.0, 120.0, (1000, dim))
    u(0.0, many)
    begin = time.process_time()
    u(0.0, many)
    yield f"{name}: CPU microseconds per spot", 1e3 * (time.process_time() - begin), 100.0
    begin = time.process_time()
    sure = u.certify(0.0, np.full(dim, 100.0))
    yield f"{name}: half-width, relative", float(sure.halfwidth / sure.value), 1e-4
    seconds += time.process_time() - begin
    yield f"{name}: CPU seconds, solve and certificate", seconds, 20.0
    delta = u.certify_gradient(0.0, np.full(dim, 100.0))
    half = np.max(delta.halfwidth) / np.max(delta.value) if delta.certified else np.inf
    yield f"{name}: certified deltas, relative half-width", float(half), 1e-3
    gamma = u.certify_curvature(0.0, np.full(dim, 100.0), np.ones(dim))
    half = gamma.halfwidth / gamma.value if gamma.certified else np.inf
    yield f"{name}: certified gamma, relative half-width", float(half), 1e-2


def many_kinks(name: str, payoff: Callable, dim: int, seed: int) -> Iterator[Figure]:
    """An option with many kinks: the network's error against a certificate with many points."""
    u, seconds = solved(option(dim, payoff), seed)
    name, start = f"{name}, d = {dim}", (0.0, np.full(dim, 100.0))
    begin = time.process_time()
    sure = u.certify(*start)
    seconds += time.process_time() - begin
    yield f"{name}: half-width, relative", float(sure.halfwidth / sure.value), 5e-4
    yield f"{name}: CPU seconds, solve and certificate", seconds, 20.0
    precise = u.certify(*start, samples=2**16, seed=1)
    half = float(precise.halfwidth / precise.value)
    yield f"{name}: half-width of the reference", half, None
    yield f"{name}: network's error", float(abs(precise.error / precise.value)), 2e-4
    gap = abs(float(sure.value - precise.value)) / float(sure.halfwidth)
    yield f"{name}: miss in half-widths", gap, None


def default_risk(seed: int) -> Iterator[Figure]:
    """A claim on 100 assets with default risk: F has kinks in u. Multilevel Picard has 57.300."""
    problem = hn.problems.get("default-risk")
    u, seconds = solved(problem, seed)
    name, start = "default risk, d = 100", (0.0, np.full(100, 100.0))
    yield f"{name}: distance from 57.300, relative", float(abs(u(*start) / 57.3 - 1)), 3e-4
    begin = time.process_time()
    sure = u.certify(*start)
    seconds += time.process_time() - begin
    half = float(sure.halfwidth / sure.value) if sure.certified else np.inf
    yield f"{name}: half-width, relative", half, 1e-3
    yield f"{name}: 57.300 in half-widths", float(abs(sure.value - 57.3) / sure.halfwidth), None
    yield f"{name}: CPU seconds, solve and certificate", seconds, 20.0


CASES: dict[str, list[Callable[[int], Iterator[Figure]]]] = {
    "geometric": [
        *(
            lambda seed, d=d: with_exact(
                f"geometric call, d = {d}",
                hn.problems.get("geometric-basket", dim=d, region=BOX),
                seed,
                2e-5,
            )
            for d in (5, 20, 100)
        ),
        lambda seed: with_exact("geometric put, d = 20", geometric_put(20), seed, 2e-5),
    ],
    "digital": [lambda seed: with_exact("digital, d = 12", digital(12), seed, 1e-4)],
    "ridge": [
        lambda seed, d=d: with_exact(
            f"kinked-ridge, d = {d}", hn.problems.get("kinked-ridge", dim=d), seed, 1e-6
        )
        for d in (3, 100, 1000)
    ],
    "arithmetic": [lambda seed, d=d: arithmetic(d, seed) for d in (5, 20)],
    "precise": [
        lambda seed, d=d, tol=tol: arithmetic(d, seed, tol=tol)
        for d, tol in ((5, 1e-4), (20, 5e-5))
    ],
    "many": [
        lambda seed, name=name, f=f, d=d: many_kinks(name, f, d, seed)
        for name, f in (
            ("best of", lambda x: jnp.maximum(jnp.max(x) - STRIKE, 0.0)),
            ("worst of", lambda x: jnp.maximum(STRIKE - jnp.min(x), 0.0)),
        )
        for d in (5, 20)
    ],
    "default-risk": [default_risk],
    "equal": [lambda seed: arithmetic(5, seed, equal_market, (1000, 2**11))],
}


def main() -> None:
    """Measure, and print a line per figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default=",".join(CASES))
    given = parser.parse_args()
    for case in (case for name in given.only.split(",") for case in CASES[name]):
        runs = [list(case(seed)) for seed in range(given.seeds)]
        for row in zip(*runs, strict=True):
            (what, _, mark), figures = row[0], [figure for _, figure, _ in row]
            median, worst = float(np.median(figures)), max(figures)
            verdict = ""
            if mark is not None:
                is_met = median <= mark and worst <= 3 * mark
                verdict = f"mark {mark:.0e}  {'met' if is_met else 'MISSED'}"
            print(f"{what:70s} {median:9.2e} {worst:9.2e}  {verdict}", flush=True)


if __name__ == "__main__":
    main()
