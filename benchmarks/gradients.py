"""Relative L2 errors of the value and of the gradient, on the paper's four problems.

python benchmarks/gradients.py
"""

from __future__ import annotations

import warnings

import numpy as np

import heatnets as hn
from heatnets.problems.paper import TRAIN_REGION

CASES = [
    (
        "forced-sine",
        {},
        {
            "features": (32, 64),
            "rows": (3000, 1000),
            "collocation": "grid",
            "train_region": TRAIN_REGION,
            "solver": "pinv",
            "initial_rows": "soft",
        },
    ),
    (
        "forced-sine",
        {},
        {
            "family": "gaussian",
            "features": (32, 64),
            "rows": (3000, 1000),
            "collocation": "grid",
            "train_region": TRAIN_REGION,
            "solver": "pinv",
            "initial_rows": "soft",
        },
    ),
    ("product-of-sines", {"dim": 2}, hn.paper(600, 0, 2000, 400)),
    ("product-of-sines", {"dim": 5}, hn.paper(1500, 0, 3000, 600)),
    ("oscillating", {"dim": 10}, {"train_region": TRAIN_REGION, **hn.paper(300, 600, 2000, 400)}),
    ("oscillating", {"dim": 100}, {"train_region": TRAIN_REGION, **hn.paper(400, 800, 2500, 500)}),
    ("nonseparable", {"dim": 10}, {"train_region": TRAIN_REGION, **hn.paper(300, 600, 2000, 400)}),
    ("nonseparable", {"dim": 100}, {"train_region": TRAIN_REGION, **hn.paper(400, 800, 2500, 500)}),
]


def main() -> None:
    warnings.simplefilter("ignore", hn.HeatnetsWarning)
    for name, parameters, settings in CASES:
        problem = hn.problems.get(name, **parameters)
        u = hn.solve(problem, **settings)
        t, x = hn.random_points(problem, 500)
        value = hn.relative_errors(u(t, x), hn.exact_values(problem, t, x)).l2
        slope = hn.relative_errors(u.gradient(t, x), hn.exact_gradient(problem, t, x)).l2
        kind = (
            f"{name}, {u.stats['family']}, d = {problem.dim}, {sum(u.stats['features'])} features"
        )
        print(
            f"{kind:60} value {value:.2e}   gradient {slope:.2e}   ratio {slope / value:.2f}",
            flush=True,
        )
        assert np.isfinite(slope)


if __name__ == "__main__":
    main()
