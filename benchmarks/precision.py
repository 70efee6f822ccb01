"""Does single precision explain the published error of 1e-7?

Example 2 in the paper's set-up at a small size, with single precision in one step or another.

python benchmarks/precision.py
"""

from __future__ import annotations

import math

import jax
import numpy as np
import scipy.linalg

import heatnets as hn
from heatnets._core import streams
from heatnets._core.execution import make_context
from heatnets.features.designs import DESIGNS
from heatnets.features.equation import build_equation
from heatnets.features.families import ImportanceFamily
from heatnets.fit.assembly import initial_values, residual_rows, source_values, value_rows
from heatnets.fit.collocation import uniform

TRAIN = hn.Box(-math.pi, math.pi)


def ridge(
    A: np.ndarray, b: np.ndarray, weight: float = 1e-6, kind: type = np.float64
) -> np.ndarray:
    A, b = A.astype(kind), b.astype(kind)
    return scipy.linalg.lstsq(A.T @ A + kind(weight) * np.eye(A.shape[1], dtype=kind), A.T @ b)[0]


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    print(f"{'':40} d = 20, M = 1000   d = 100, M = 2000")
    found: dict[str, list[float]] = {}
    for d, counts, N, N_ic in ((20, (400, 600), 3000, 600), (100, (800, 1200), 5000, 1000)):
        problem, ctx = hn.problems.get("oscillating", dim=d), make_context()
        data = build_equation(problem.canonical, 0)[0]
        blocks = ImportanceFamily().draw(problem.canonical, counts, DESIGNS["gaussian"], 0)
        rows = uniform(problem.canonical, TRAIN, N, streams.generator(0, "rows"))
        start = TRAIN.sample(streams.generator(0, "initial rows"), N_ic, d)
        scale = math.sqrt(N / N_ic)
        A = np.concatenate(
            [
                residual_rows(data, blocks, rows, ctx),
                scale * value_rows(data, blocks, (np.zeros(N_ic), start), ctx, ""),
            ]
        )
        b = np.concatenate(
            [source_values(data, rows, ctx), scale * initial_values(data, start, ctx)]
        )
        t, x = hn.random_points(problem, 2000)
        values, exact = (
            np.asarray(value_rows(data, blocks, (t, x), ctx, "")),
            hn.exact_values(problem, t, x),
        )
        weights = ridge(A, b)
        A32, b32 = A.astype(np.float32).astype(float), b.astype(np.float32).astype(float)
        for name, u in {
            "double throughout": values @ weights,
            "double, ridge 1e-4 in place of 1e-6": values @ ridge(A, b, 1e-4),
            "double, ridge 1e-8": values @ ridge(A, b, 1e-8),
            "rows rounded to single, double solve": values @ ridge(A32, b32),
            "single throughout": values @ ridge(A, b, kind=np.float32),
            "double training, single evaluation": values.astype(np.float32)
            @ weights.astype(np.float32),
        }.items():
            found.setdefault(name, []).append(hn.relative_errors(u.astype(float), exact).l2)
    for name, errors in found.items():
        print(f"{name:40} {errors[0]:16.1e} {errors[1]:18.1e}")


if __name__ == "__main__":
    main()
