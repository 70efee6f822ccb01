"""Coverage of certified intervals for data with kinks.

Three initial conditions with kinks, d = 10 and 100, compared with exact values.

python benchmarks/kinked_certificates.py
"""

from __future__ import annotations

import argparse
import warnings

import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

import heatnets as hn


def basket(t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """√d E max(mean X, 0): Bachelier's formula, mean X normal with variance 2t/d."""
    d = x.shape[1]
    mean, spread = x.mean(axis=1), np.sqrt(2 * t / d)
    return np.sqrt(d) * (mean * norm.cdf(mean / spread) + spread * norm.pdf(mean / spread))


def folded(t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """E |X_1|."""
    m, s = x[:, 0], np.sqrt(2 * t)
    return m * (2 * norm.cdf(m / s) - 1) + 2 * s * norm.pdf(m / s)


def largest(t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """E max_i X_i = z0 + ∫_{z0}^∞ (1 - G) - ∫_{-∞}^{z0} G, by the trapezoidal rule.

    Here G(z) = Π Φ((z - x_i)/√(2t)).
    """
    found = []
    for one, place in zip(t, x, strict=True):
        s, top = np.sqrt(2 * one), np.max(place)
        z = np.linspace(top - 12 * s, top + 12 * s, 20001)
        G = np.exp(np.sum(norm.logcdf((z[:, None] - place) / s), axis=1))
        found.append(z[0] + np.trapezoid(1 - G, z))
    return np.array(found)


DATA = {
    "max(mean(x), 0) sqrt(d)": (
        lambda x: jnp.sqrt(x.size * 1.0) * jnp.maximum(jnp.mean(x), 0.0),
        basket,
    ),
    "|x_1|": (lambda x: jnp.abs(x[0]), folded),
    "max_i x_i": (lambda x: jnp.max(x), largest),
}


def case(
    name: str, dim: int, points: int, seconds: float, samples: int, seed: int = 0
) -> tuple[np.ndarray, hn.Certificate, np.ndarray]:
    """Exact values, certificates, and values of the network at random points."""
    initial, exact = DATA[name]
    problem = hn.Problem(dim=dim, horizon=0.5, initial=initial, region=hn.Box(-1.0, 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        u = hn.solve(problem, tol=0, seconds=seconds, seed=seed)
    t, x = hn.random_points(problem, points, seed=seed)
    return exact(t, x), u.certify(t, x, samples=samples, seed=seed), u(t, x)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()
    print(
        "initial condition, d: certified, inside, worst in half-widths; root mean square "
        "errors of the network and of certified values, median half-width"
    )
    for name in DATA:
        for dim in (10, 100):
            exact, sure, network = case(name, dim, args.points, args.seconds, 1024)
            off = np.abs(sure.value - exact)
            good = sure.certified
            print(
                f"{name:26} {dim:4}: {good.sum()} of {len(good)}, "
                f"{np.sum((off <= sure.halfwidth)[good])} of {good.sum()}, "
                f"{np.max((off / np.maximum(sure.halfwidth, 1e-300))[good]):.1f}; "
                f"{np.sqrt(np.mean((network - exact) ** 2)):.1e} "
                f"{np.sqrt(np.mean(off**2)):.1e} {np.median(sure.halfwidth):.1e}   "
                f"({sure.method})",
                flush=True,
            )


if __name__ == "__main__":
    main()
