"""Is it useful to place rows where the residual is large?

Half of the rows are random; the other half is random too, or placed where a fit with half the
features has the largest residuals.

python benchmarks/row_choice.py
"""

from __future__ import annotations

import jax
import numpy as np

import heatnets as hn
from heatnets._core import streams
from heatnets._core.execution import make_context
from heatnets.features.designs import DESIGNS
from heatnets.features.equation import build_equation
from heatnets.features.families import ImportanceFamily
from heatnets.fit import least_squares
from heatnets.fit.assembly import (
    residual_columns,
    source_values,
    time_columns,
    value_and_residual_rows,
)
from heatnets.fit.collocation import paths

CASES = [
    ("radial-gaussian", 10, 192, 3),
    ("nonseparable", 10, 96, 3),
    ("neighbour-products", 50, 192, 1),
    ("product-of-sines", 6, 192, 3),
]


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    print(
        "relative L2 error: rows at random; where the residual is largest of three times "
        "as many; drawn in proportion to it"
    )
    for name, dim, M, degree in CASES:
        problem, ctx = hn.problems.get(name, dim=dim), make_context()
        data, T = build_equation(problem.canonical, 0)[0], problem.horizon
        kinds = 1 if problem.source is None else 2
        blocks = ImportanceFamily().draw(
            problem.canonical, (M, M * (kinds - 1)), DESIGNS["orthogonal"], 0, True
        )
        N = 8 * M * kinds
        rng = streams.generator(0, "candidates")
        t, x = paths(problem.canonical, problem.region, 2 * N, rng)
        values, residuals = (
            np.asarray(a) for a in value_and_residual_rows(data, blocks, (t, x), ctx, "")
        )
        force = np.asarray(source_values(data, (t, x), ctx))
        at, there = hn.random_points(problem, 1500)
        exact = hn.exact_values(problem, at, there)
        tested = np.asarray(value_and_residual_rows(data, blocks, (at, there), ctx, "")[0])

        def fit(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
            A = residual_columns(
                values[rows][:, columns], residuals[rows][:, columns], t[rows], degree, T
            )
            start = np.concatenate([(columns < M).astype(float), np.zeros(degree * len(columns))])
            return np.asarray(least_squares.solve(A, force[rows], "qr", None, 0.0, start).weights)

        def error(rows: np.ndarray) -> float:
            u = time_columns(tested, at, degree, T) @ fit(rows, np.arange(M * kinds))
            return hn.relative_errors(u, exact).l2

        half = np.concatenate([k * M + np.arange(M // 2) for k in range(kinds)])
        first, rest = np.arange(N // 2), np.arange(N // 2, 2 * N)
        here = residual_columns(values[rest][:, half], residuals[rest][:, half], t[rest], degree, T)
        missed = np.abs(force[rest] - here @ fit(first, half))
        largest = rest[np.argsort(-missed)[: N // 2]]
        drawn = np.random.default_rng(0).choice(
            rest, N // 2, replace=False, p=missed / missed.sum()
        )
        errors = [error(np.concatenate([first, more])) for more in (rest[: N // 2], largest, drawn)]
        print(
            f"{name:20} d={dim:<4} {errors[0]:.2e}   {errors[1]:.2e}   {errors[2]:.2e}", flush=True
        )


if __name__ == "__main__":
    main()
