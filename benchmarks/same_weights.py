"""Do two versions of the package give the same numbers? 24 small solves of fixed size.

    python benchmarks/same_weights.py --out before.json          # with one version installed
    python benchmarks/same_weights.py --compare before.json      # with the other

Weights are compared to the last bit; certified values and half-widths too. Uses public names only,
so that it runs with any version. A few minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import heatnets as hn


def bell(x):
    return jnp.exp(-0.5 * x @ x)


def kink(x):
    return jnp.maximum(jnp.sum(x), 0.0)


def wave(t, x):
    return jnp.cos(t) * jnp.sin(jnp.sum(x))


def heat(**more):
    return hn.Problem(dim=3, horizon=0.5, initial=bell, **more)


SMALL = {"features": (16, 16), "rows": (256, 0), "seed": 3}
PROCESS = hn.GeometricBrownian(volatility=0.3, growth=0.05)
SPOT = {"region": hn.Box(0.8, 1.2), "process": PROCESS}
CASES = {
    "heat": (lambda: heat(), {"features": (16, 0), "rows": (256, 0), "seed": 3}),
    "source": (lambda: heat(source=wave), SMALL),
    "antithetic pairs": (lambda: heat(source=wave), {**SMALL, "antithetic": True}),
    "time polynomial": (lambda: heat(source=wave), {**SMALL, "time_degree": 2}),
    "orthogonal directions": (lambda: heat(source=wave), {**SMALL, "directions": "orthogonal"}),
    "Sobol directions": (lambda: heat(source=wave), {**SMALL, "directions": "sobol"}),
    "rows on paths": (lambda: heat(source=wave), {**SMALL, "collocation": "paths"}),
    "soft initial rows": (
        lambda: heat(source=wave),
        {**SMALL, "rows": (256, 64), "initial_rows": "soft"},
    ),
    "Cholesky": (lambda: heat(source=wave), {**hn.paper(16, 16, 256, 64), "seed": 3}),
    "QR": (lambda: heat(source=wave), {**SMALL, "solver": "qr"}),
    "mild rows": (lambda: heat(source=wave), {**SMALL, "enforce": "mild", "mild_samples": 16}),
    "Gaussian kernels": (
        lambda: hn.Problem(dim=1, horizon=0.5, initial=bell),
        {"features": (32, 0), "rows": (128, 0), "family": "gaussian", "seed": 3},
    ),
    "a point": (
        lambda: heat(source=wave, region=hn.Point(np.zeros(3))),
        {**SMALL, "collocation": "paths"},
    ),
    "matrix and drift": (
        lambda: heat(source=wave, diffusion=np.diag([1.0, 2.0, 3.0]) + 0.3, drift=[0.1, -0.2, 0.3]),
        SMALL,
    ),
    "reaction": (lambda: heat(source=wave, reaction=-0.7), SMALL),
    "Ornstein-Uhlenbeck": (
        lambda: heat(source=wave, process=hn.OrnsteinUhlenbeck(rate=0.5, mean=0.1, diffusion=0.8)),
        SMALL,
    ),
    "Black-Scholes, terminal": (
        lambda: hn.Problem(
            dim=2, horizon=1.0, terminal=lambda x: jnp.log(x @ x), reaction=-0.05, **SPOT
        ),
        {"features": (32, 0), "rows": (256, 0), "seed": 3},
    ),
    "drift as a function": (lambda: heat(source=wave, drift=lambda t, x: -0.3 * x), SMALL),
    "diffusion as a function": (
        lambda: heat(source=wave, diffusion=lambda t, x: 1 + 0.2 * jnp.sin(x), form="divergence"),
        SMALL,
    ),
    "reaction as a function": (
        lambda: heat(source=wave, reaction=lambda t, x: -0.2 * x[0] ** 2),
        SMALL,
    ),
    "source of u": (lambda: heat(source=lambda t, x, u: u - u**3), SMALL),
    "source of the gradient": (
        lambda: heat(source=lambda t, x, u, du: -0.1 * du @ du),
        {**SMALL, "features": (64, 64), "rows": (1024, 0), "time_degree": 1},
    ),
    "source of u, Picard": (
        lambda: heat(source=lambda t, x, u: u - u**3),
        {**SMALL, "iteration": "picard"},
    ),
    "kinked data": (
        lambda: hn.Problem(dim=3, horizon=0.5, initial=kink),
        {"features": (32, 0), "rows": (128, 0), "enforce": "mild", "mild_samples": 32, "seed": 3},
    ),
}
assert len(CASES) == 24


def measured(name: str) -> dict[str, object]:
    """The weights of a case, and a certified value inside the region."""
    make, options = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = make()
        u = hn.solve(problem, **options)
        inside = np.full(problem.dim, 1.0 if "Black" in name else 0.0)
        found = u.certify(0.0 if "terminal" in name else problem.horizon, inside, samples=256)
    return {
        "weights": [float(w) for block in u.weights for w in np.ravel(block)],
        "certified": [float(found.value), float(found.halfwidth)],
    }


def largest_difference(a: list[float], b: list[float]) -> float:
    """The largest difference relative to the largest number; 0 if equal to the last bit."""
    if len(a) != len(b):
        return float("inf")
    x, y = np.array(a), np.array(b)
    return (
        0.0
        if np.array_equal(x, y, equal_nan=True)
        else float(np.max(np.abs(x - y)) / np.max(np.abs(y)))
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the numbers here")
    parser.add_argument("--compare", type=Path, help="hold them against those of another version")
    parser.add_argument("--only", help="cases whose name contains this")
    args = parser.parse_args()
    names = [name for name in CASES if args.only is None or args.only in name]
    before = json.loads(args.compare.read_text()) if args.compare else {}
    results, differing = {}, 0
    for name in names:
        results[name] = measured(name)
        if name in before:
            gaps = [
                largest_difference(results[name][k], before[name][k])
                for k in ("weights", "certified")
            ]
            differing += any(gaps)
            said = (
                "the same"
                if not any(gaps)
                else f"weights differ by {gaps[0]:.1e}, certified values by {gaps[1]:.1e}"
            )
            print(f"{name:26} {said}", flush=True)
        else:
            print(f"{name:26} {len(results[name]['weights'])} weights", flush=True)
    if args.out:
        args.out.write_text(json.dumps(results))
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
