"""Two estimators of the gradient of the error: derivative of the residual form, likelihood weight.

Variance of one antithetic pair, and its seconds.

python benchmarks/gradient_forms.py
"""

from __future__ import annotations

import time

import jax
import numpy as np

import heatnets as hn
from heatnets._core import streams
from heatnets.certify.derivative_samples import residual_gradients
from heatnets.fit.collocation import time_fractions

PAIRS = 2048


def weighted(
    problem: hn.Problem, u, t: float, x: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """t ½(R(x + σξ) - R(x - σξ)) ξ/σ / density(r): a likelihood weight instead of a derivative."""
    r, density = time_fractions(rng, PAIRS)
    xi = rng.standard_normal((PAIRS, problem.dim))
    sigma = np.sqrt(2 * problem.diffusion * (1 - r) * t)[:, None]
    R, _ = u.residual(np.tile(r * t, 2), np.concatenate([x + sigma * xi, x - sigma * xi]))
    return (t / density * 0.5 * (R[:PAIRS] - R[PAIRS:]))[:, None] * xi / sigma


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    print(
        "problem, d, variance of the weighted form over that of the differentiated one, "
        "seconds of either"
    )
    options = {
        "directions": "orthogonal",
        "antithetic": True,
        "collocation": "paths",
        "solver": "qr",
        "time_degree": 1,
    }
    for name in ("radial-gaussian", "nonseparable", "sine-network"):
        for dim in (2, 10, 100):
            problem = hn.problems.get(name, dim=dim)
            u = hn.solve(problem, features=(32, 32 if problem.source else 0), **options)
            network, x, t = u.network, np.full(dim, 0.3), problem.horizon
            seconds, variances = [], []
            for form in (
                lambda rng: np.concatenate(
                    [batch.samples for batch in residual_gradients(network, t, x, PAIRS, rng)]
                ),
                lambda rng: weighted(problem, network, t, x, rng),
            ):
                for _ in range(2):  # the first compiles
                    start = time.perf_counter()
                    drawn = form(streams.generator(0, "forms"))
                    spent = time.perf_counter() - start
                seconds.append(spent)
                variances.append(drawn.var(axis=0).sum())
            print(
                (
                    f"{name:20} {dim:4} {variances[1] / variances[0]:10.1f} {seconds[0]:8.2f} "
                    f"{seconds[1]:8.2f}"
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
