"""Equation rows with data that are not smooth: small training residuals, but wrong solutions.

python benchmarks/kinks.py
"""

from __future__ import annotations

import warnings

import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr

import heatnets as hn


def main() -> None:
    warnings.simplefilter("ignore", hn.HeatnetsWarning)
    print("u0 = max(x, 0), d = 1, T = 0.5, 64 features, 400 rows")
    ramp = hn.Problem(dim=1, horizon=0.5, initial=lambda x: jnp.maximum(x[0], 0.0))
    t, x = hn.random_points(ramp, 4000)
    y, spread = x[:, 0], np.sqrt(2 * t)
    exact = y * ndtr(y / spread) + spread * np.exp(-0.5 * (y / spread) ** 2) / np.sqrt(
        2 * np.pi
    )  # Bachelier
    for seed in range(4):
        u = hn.solve(ramp, features=(64, 0), rows=(400, 0), seed=seed)
        error = hn.relative_errors(u(t, x), exact).l2
        print(
            f"seed {seed}: misfit trained {u.stats['residual_train']:.0e}, held out "
            f"{u.stats['residual_held_out']:.2f}, error {error:.2f}"
        )
    print("u0 = sum |x_i|, d = 3, T = 0.5, 60 features, 400 rows")
    corner = hn.Problem(dim=3, horizon=0.5, initial=lambda x: jnp.sum(jnp.abs(x)))
    u = hn.solve(corner, features=(60, 0), rows=(400, 0))
    truth = 3 * np.sqrt(2 / np.pi)
    print(
        f"misfit held out {u.stats['residual_held_out']:.2f}, u(0.5, 0) = "
        f"{u(0.5, np.zeros(3)):.2f}, exact {truth:.2f}"
    )


if __name__ == "__main__":
    main()
