"""Options beside QuantLib's Monte Carlo and a Sobol script with a control variate.

    pip install QuantLib; python benchmarks/quantlib.py

One window, CPU seconds of all threads, compilation included. QuantLib gets as many antithetic
paths as take the time of the solve and certificate of heatnets. Half-widths are at 95 %, for a spot
of 100 in five assets (volatility 0.2, correlation 0.5, rate 0.03, a year). The script is run for a
thousand spots, too, with the same points at every spot.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import QuantLib as ql
from payoffs import RATE, STRIKE, arithmetic_reference, equal_market, option
from scipy.special import ndtri
from scipy.stats import norm, qmc, t

import heatnets as hn

DIM, SPOT = 5, 100.0
PAYOFFS: dict[str, tuple[Callable, Callable, Callable]] = {  # of JAX, of NumPy, of QuantLib
    "call on the mean": (
        lambda x: jnp.maximum(jnp.mean(x) - STRIKE, 0.0),
        lambda x: np.maximum(np.mean(x, axis=-1) - STRIKE, 0.0),
        lambda call: ql.AverageBasketPayoff(call, DIM),
    ),
    "call on the best": (
        lambda x: jnp.maximum(jnp.max(x) - STRIKE, 0.0),
        lambda x: np.maximum(np.max(x, axis=-1) - STRIKE, 0.0),
        ql.MaxBasketPayoff,
    ),
}


def show(who: str, seconds: float, value: float, half: float) -> None:
    print(
        f"  {who:40s} {seconds:7.2f} s  {value:.6f} ± {half:.1e}  ({half / value:.1e})", flush=True
    )


def heatnets(payoff: Callable) -> tuple[hn.Solution, float]:
    """Solve and certify; returns the solution and the CPU seconds."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        u = hn.solve(option(DIM, payoff, of=equal_market))
    solved = time.process_time() - start
    sure = u.certify(0.0, np.full(DIM, SPOT))
    seconds = time.process_time() - start
    show(f"heatnets, solve {solved:.1f} s, certificate", seconds, sure.value, sure.halfwidth)
    start = time.process_time()
    delta = u.certify_gradient(0.0, np.full(DIM, SPOT))
    more = time.process_time() - start
    show("  its first delta", more, float(delta.value[0]), float(delta.halfwidth[0]))
    return u, seconds


def quantlib(payoff: Callable, seconds: float) -> None:
    """European Monte Carlo with as many antithetic paths as the seconds allow."""
    volatility, correlation = equal_market(DIM)
    today, days = ql.Date(2, 1, 2025), ql.Actual365Fixed()
    ql.Settings.instance().evaluationDate = today
    rates = [ql.YieldTermStructureHandle(ql.FlatForward(today, r, days)) for r in (0.0, RATE)]
    processes = [
        ql.BlackScholesMertonProcess(
            ql.QuoteHandle(ql.SimpleQuote(SPOT)),
            *rates,
            ql.BlackVolTermStructureHandle(
                ql.BlackConstantVol(today, ql.NullCalendar(), float(v), days)
            ),
        )
        for v in volatility
    ]
    matrix = ql.Matrix(DIM, DIM)
    for i in range(DIM):
        for j in range(DIM):
            matrix[i][j] = float(correlation[i, j])
    process = ql.StochasticProcessArray(processes, matrix)
    call = ql.PlainVanillaPayoff(ql.Option.Call, STRIKE)
    exercise = ql.EuropeanExercise(today + 365)
    paths = 2**16
    while True:
        start = time.process_time()
        priced = ql.BasketOption(payoff(call), exercise)
        engine = ql.MCEuropeanBasketEngine(
            process,
            "pseudorandom",
            timeSteps=1,
            antitheticVariate=True,
            requiredSamples=paths,
            seed=1,
        )
        priced.setPricingEngine(engine)
        value, spent = priced.NPV(), time.process_time() - start
        if spent > seconds / 1.5:
            break
        paths = int(min(8.0, 0.9 * seconds / spent) * paths)
    show(f"QuantLib, {paths:.1e} antithetic pairs", spent, value, 1.96 * priced.errorEstimate())


def sobol(payoff: Callable, has_control: bool, nets: int = 32, points: int = 2**14) -> None:
    """The script: means over scrambled nets, with the call on the geometric mean as control."""
    start = time.process_time()
    volatility, correlation = equal_market(DIM)
    root, means = np.linalg.cholesky(correlation), []
    deviation = float(np.sqrt(volatility @ correlation @ volatility)) / DIM
    trend = RATE - 0.5 * float(np.mean(volatility**2))
    forward, d = SPOT * np.exp(trend + 0.5 * deviation**2), np.log(SPOT / STRIKE) + trend
    exact = forward * norm.cdf(d / deviation + deviation) - STRIKE * norm.cdf(d / deviation)
    for seed in range(nets):
        normal = ndtri(qmc.Sobol(DIM, rng=seed).random(points) + 2.0**-31)
        x = SPOT * np.exp(RATE - 0.5 * volatility**2 + volatility * (normal @ root.T))
        value = payoff(x)
        if has_control:
            value = value - np.maximum(np.exp(np.mean(np.log(x), axis=1)) - STRIKE, 0.0) + exact
        means.append(np.exp(-RATE) * np.mean(value))
    half = t.ppf(0.975, nets - 1) * np.std(means, ddof=1) / np.sqrt(nets)
    name = f"Sobol script, {nets} x {points}" + (", control" if has_control else "")
    show(name, time.process_time() - start, float(np.mean(means)), float(half))


def many_spots(u: hn.Solution, count: int = 1000) -> None:
    """A thousand spots: errors and seconds of the network and of a script with shared points."""
    x, exact, noise = arithmetic_reference(DIM, equal_market, count, 2**11)
    print(f"  {count} spots in [80, 120]^5, reference good to {np.max(noise / exact):.0e}:")
    u(0.0, x)
    start = time.process_time()
    wrong = np.max(np.abs(u(0.0, x) / exact - 1))
    print(f"    heatnets, solved: {time.process_time() - start:.2f} s, worst error {wrong:.1e}")
    volatility, correlation = equal_market(DIM)
    root = np.linalg.cholesky(correlation)
    for points in (2**10, 2**14):
        start = time.process_time()
        normal = ndtri(qmc.Sobol(DIM, rng=0).random(points) + 2.0**-31)
        growth = np.exp(RATE - 0.5 * volatility**2 + volatility * (normal @ root.T))
        geometric = np.exp(np.mean(np.log(growth), axis=1))
        deviation = float(np.sqrt(volatility @ correlation @ volatility)) / DIM
        trend = RATE - 0.5 * float(np.mean(volatility**2))
        values = []
        for spot in x:
            centre = np.exp(np.mean(np.log(spot)))
            d = (np.log(centre / STRIKE) + trend) / deviation
            known = centre * np.exp(trend + 0.5 * deviation**2) * norm.cdf(d + deviation)
            known -= STRIKE * norm.cdf(d)
            sampled = np.maximum(growth @ spot / DIM - STRIKE, 0.0)
            control = np.maximum(centre * geometric - STRIKE, 0.0)
            values.append(np.exp(-RATE) * (np.mean(sampled - control) + known))
        spent, wrong = time.process_time() - start, np.max(np.abs(values / exact - 1))
        print(
            f"    script, {points} shared points, control: {spent:.2f} s, worst error {wrong:.1e}"
        )


def main() -> None:
    """Print a block per payoff."""
    for name, (of_jax, of_numpy, of_quantlib) in PAYOFFS.items():
        print(name)
        u, seconds = heatnets(of_jax)
        quantlib(of_quantlib, seconds)
        sobol(of_numpy, name == "call on the mean")
        if name == "call on the mean":
            many_spots(u)


if __name__ == "__main__":
    main()
