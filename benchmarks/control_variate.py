"""Is the martingale of the current fit useful as a control variate of mild rows?

Variance and seconds per sample, relative to plain antithetic pairs.

python benchmarks/control_variate.py
"""

from __future__ import annotations

import time
import warnings

import numpy as np

import heatnets as hn


def main() -> None:
    warnings.simplefilter("ignore", hn.HeatnetsWarning)
    print(
        "| d | features | steps | variance / plain | seconds per sample / plain | "
        "product: below one it pays |\n|---|---|---|---|---|---|"
    )
    for dim in (1, 10):
        problem = hn.problems.get("kinked-ridge", dim=dim)
        u = hn.solve(problem, tol=0, seconds=5)
        t, rng, paths = 0.5, np.random.default_rng(0), 2000
        x = np.full(dim, 0.1)

        def payoff(points: np.ndarray, problem: hn.Problem = problem, dim: int = dim) -> np.ndarray:
            return np.maximum(points.sum(axis=1) / np.sqrt(dim), 0.0)

        hn.montecarlo.importance(problem, t, x, samples=100_000)
        start = time.perf_counter()
        plain = hn.montecarlo.importance(problem, t, x, samples=100_000)
        plain_seconds = (time.perf_counter() - start) / 100_000
        plain_variance = float(plain.standard_error) ** 2 * 100_000
        for steps in (4, 16, 64):
            u.gradient(np.full(paths, t), np.tile(x, (paths, 1)))  # compiles
            start = time.perf_counter()
            place, martingale = np.tile(x, (paths, 1)), np.zeros(paths)
            for i in range(steps):
                move = np.sqrt(2 * t / steps) * rng.standard_normal(place.shape)
                martingale += np.sum(
                    u.gradient(np.full(paths, t * (1 - i / steps)), place) * move, axis=1
                )
                place = place + move
            seconds = (time.perf_counter() - start) / paths
            ratio, cost = (
                float(np.var(payoff(place) - martingale)) / plain_variance,
                seconds / plain_seconds,
            )
            print(
                (
                    f"| {dim} | {sum(u.stats['features'])} | {steps} | {ratio:.3f} | "
                    f"{cost:.0f} | {ratio * cost:.0f} |"
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
