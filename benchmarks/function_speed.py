"""100,000 points through `u.function` under `jax.jit`, beside the NumPy call `u(t, x)`.

python benchmarks/function_speed.py [--points 100000]

Shortest of five times each, in turn, without compilation; values and gradients. Points are float64.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import heatnets as hn

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("oscillating", {"dim": 10}, {}),
    ("nonseparable", {"dim": 10}, {}),
    ("radial-gaussian", {"dim": 100}, {}),
    ("product-of-sines", {"dim": 5}, {}),
    ("arithmetic-basket", {"dim": 5}, {"collocation": "paths"}),
    ("hyperbolic", {"dim": 5}, {}),
    ("allen-cahn", {"dim": 10}, {"collocation": "paths"}),
]


def seconds(run: Callable[[], Any]) -> float:
    """The time of one run."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=100_000)
    count = parser.parse_args().points
    warnings.simplefilter("ignore", hn.HeatnetsWarning)
    print(f"{count} points, seconds            values: NumPy  u.function    gradients: NumPy  grad")
    for name, parameters, options in CASES:
        problem = hn.problems.get(name, **parameters)
        u = hn.solve(problem, features=(128, 128 if problem.canonical.has_source else 0), **options)
        t, x = hn.random_points(problem, count)
        cells = []
        with jax.enable_x64(True):
            times, places = jnp.asarray(t), jnp.asarray(x)
            values = jax.jit(jax.vmap(u.function))
            slopes = jax.jit(jax.vmap(jax.grad(u.function, 1)))
            pairs = [
                (lambda: u(t, x), lambda: values(times, places)),
                (lambda: u.gradient(t, x), lambda: slopes(times, places)),
            ]
            for by_numpy, by_jax in pairs:
                gap = np.max(np.abs(by_numpy() - by_jax())) / np.max(np.abs(by_numpy()))
                assert gap < 1e-12, gap
                both = [(seconds(by_numpy), seconds(by_jax)) for _ in range(5)]
                cells += [f"{min(times):8.2f}" for times in zip(*both, strict=True)]
        print(f"{name:18} d = {problem.dim:3}, {sum(u.stats['features'])} features ", *cells)


if __name__ == "__main__":
    main()
