"""The paper's 1-D example over 20 seeds, and the same source with u0 = 0.

With u0 = 0 only source features contribute.

python benchmarks/one_dim.py
"""

from __future__ import annotations

import time
import warnings
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
from machine import sine_pair_rate

import heatnets as hn
from heatnets.problems.paper import TRAIN_REGION

SEEDS = 20
SETTINGS = {
    "features": (32, 64),
    "rows": (3000, 1000),
    "collocation": "grid",
    "train_region": TRAIN_REGION,
    "solver": "pinv",  # rcond = max(N, M) eps by default
    "initial_rows": "soft",
}


def grid_error(u: hn.Solution) -> float:
    """Relative L2 error on the paper's 100 x 100 grid of [0, T] x [-π/2, π/2]."""
    t, x = np.meshgrid(
        np.linspace(0, u.problem.horizon, 100), np.linspace(-np.pi / 2, np.pi / 2, 100)
    )
    t, x = t.ravel(), x.reshape(-1, 1)
    return hn.relative_errors(u(t, x), hn.exact_values(u.problem, t, x)).l2


def row(name: str, problem: hn.Problem, **change: object) -> None:
    errors, said, start = [], Counter(), time.perf_counter()
    for seed in range(SEEDS):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            errors.append(grid_error(hn.solve(problem, **{**SETTINGS, **change}, seed=seed)))
        said.update({str(w.message).split(":")[0] for w in caught})
    low, median, high = np.min(errors), np.median(errors), np.max(errors)
    print(
        (
            f"{name:44} median {median:.2e}   min {low:.1e}   max {high:.1e}   "
            f"{(time.perf_counter() - start) / SEEDS:.2f} s each"
        ),
        flush=True,
    )
    for text, times in said.items():
        print(f"    warns in {times} of {SEEDS}: {text}")


def main() -> None:
    with jax.enable_x64(True):
        rate = sine_pair_rate(1)
    print(
        f"1-D, 32 + 64 features, 3000 + 1000 rows, A = 5, rcond = max(N, M) eps, {SEEDS} "
        "seeds, relative L2 on the 100 x 100 grid"
    )
    print(
        f"floor: {4000 * 96 / rate:.4f} s of sines per solve at {rate / 1e6:.0f} M "
        "pairs/s; the rest is overhead of small arrays\n"
    )
    problem = hn.problems.get("forced-sine")
    row("Gaussian kernels", problem, family="gaussian")
    row("Gaussian kernels, Sobol", problem, family="gaussian", directions="sobol")
    row("importance sampling", problem)
    print("\nu0 = 0, the same source: u = t sin x")
    alone = hn.Problem(
        dim=1,
        horizon=1.0,
        initial=lambda x: 0.0,
        source=lambda t, x: (1 + t) * jnp.sin(x[0]),
        region=hn.Box(-np.pi / 2, np.pi / 2),
        exact=lambda t, x: t * jnp.sin(x[0]),
    )
    row("importance sampling", alone)
    row("Gaussian kernels, equation rows", alone, family="gaussian")
    row("Gaussian kernels, mild rows", alone, family="gaussian", enforce="mild")
    uniform = {"family": "gaussian", "enforce": "mild", "collocation": "uniform"}
    row("Gaussian kernels, mild rows, uniform points", alone, **uniform)
    row(
        "the same, 32 + 256 features, 1024 samples",
        alone,
        **uniform,
        features=(32, 256),
        mild_samples=1024,
    )


if __name__ == "__main__":
    main()
