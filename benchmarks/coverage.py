"""Coverage of the 95 % intervals of the direct estimators over 1000 runs.

Also the dimensions beyond which the transformed estimator is of no use.

python benchmarks/coverage.py
"""

from __future__ import annotations

import time
import warnings

import jax
import numpy as np
from machine import normal_rate

import heatnets as hn
from heatnets.certify import montecarlo

RUNS = 1000


def line(name: str, dim: int, samples: int, rate: float, **options: float) -> None:
    # k = 1, T = 0.5: the exact value at x = (0.4, ..., 0.4) is of order one in every dimension.
    problem = hn.problems.get("oscillating", dim=dim, wavenumber=1.0)
    t, x = np.full(RUNS, 0.5), np.full((RUNS, dim), 0.4)
    truth = float(hn.exact_values(problem, 0.5, x[0]))
    getattr(montecarlo, name)(
        problem, t[:64], x[:64], samples=samples, **options
    )  # most of the compilation
    start = time.perf_counter()
    estimate = getattr(montecarlo, name)(problem, t, x, samples=samples, **options)
    seconds = time.perf_counter() - start
    held = np.mean((estimate.low <= truth) & (truth <= estimate.high))
    rms = np.sqrt(np.mean((estimate.value - truth) ** 2)) / abs(truth)
    bias = (np.mean(estimate.value) - truth) / abs(truth)
    print(
        f"{name:12} d = {dim:<5} n = {samples:<7} coverage {100 * held:5.1f} %   relative "
        f"error {rms:.1e}   "
        f"mean - truth {bias:+.1e} ± {1.96 * rms / np.sqrt(RUNS):.1e}   stated truncation "
        f"{np.mean(estimate.truncation_bias) / abs(truth):.1e}"
        f"   {seconds:.1f} s, {seconds / (RUNS * samples * (2 * dim + 1) / rate):.1f} x floor",
        flush=True,
    )


def main() -> None:
    warnings.simplefilter("ignore", hn.HeatnetsWarning)
    with jax.enable_x64(True):
        rate = normal_rate()
    print(
        f"{RUNS} runs each; 95 % ± 1.4 % is two standard deviations of the count itself; "
        f"floor: 2d + 1 draws at {rate / 1e6:.0f} M/s"
    )
    for dim, samples in ((1, 1024), (3, 1024), (10, 512), (1000, 64)):
        line("importance", dim, samples, rate)
    line("transformed", 1, 4096, rate)
    line("transformed", 2, 16384, rate)
    print("\nbeyond two dimensions: uniform draws seldom land where the kernel is")
    for dim in (3, 5):
        for shortest in (1e-1, 1e-2, 1e-3):
            line("transformed", dim, 65536, rate, shortest_lag=shortest)


if __name__ == "__main__":
    main()
