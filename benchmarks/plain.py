"""A plain implementation of the paper's matrix, by automatic differentiation and Hessian traces.

No solve uses it: it is the baseline for timings on one machine. Features, points and therefore
entries are the same as those of the package.

python benchmarks/plain.py --scale quick --out reproduction-quick

The cells are added to those of Table 2; `heatnets reproduce table-2` shows them in its last table.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from heatnets import reproduce
from heatnets._core import streams
from heatnets._core.atomic_files import ledger
from heatnets._core.compilation import compiler_options
from heatnets._core.execution import make_context
from heatnets._core.precision import with_x64
from heatnets.features.designs import DESIGNS
from heatnets.features.equation import build_equation
from heatnets.features.families import ImportanceFamily
from heatnets.features.features import TransportedInitial, TransportedSource
from heatnets.fit.assembly import residual_rows
from heatnets.fit.collocation import uniform
from heatnets.pde.problem import Problem
from heatnets.pde.regions import Box
from heatnets.problems import get
from heatnets.reproduce.cells import made


@with_x64
def measure(problem: Problem, options: dict[str, Any], seed: int) -> dict[str, Any]:
    """Time the assembly of the equation rows, and compare the entries with those of the package.

    Options: `features` (M0, M1), `rows`, `timed_rows` (rows that are computed; the seconds are
    scaled to all `rows`), `train` (half width of the box of points), `batch`.
    """
    M0, M1 = options["features"]
    n = options["timed_rows"]
    blocks = ImportanceFamily().draw(problem.canonical, (M0, M1), DESIGNS["gaussian"], seed)
    region = Box(-options["train"], options["train"])
    t, x = uniform(problem.canonical, region, n, streams.generator(seed, "rows"))
    rows = jax.jit(
        _rows(problem, options["batch"]),
        compiler_options=compiler_options(jax.default_backend(), False),
    )
    initial, source = blocks
    assert isinstance(initial, TransportedInitial)
    assert isinstance(source, TransportedSource)
    draws = tuple(map(jnp.asarray, (initial.direction, source.direction, source.fraction)))
    jax.block_until_ready(rows(*draws, jnp.asarray(t), jnp.asarray(x)))  # compiles the function
    start = time.perf_counter()
    A = np.asarray(jax.block_until_ready(rows(*draws, jnp.asarray(t), jnp.asarray(x))))
    spent = time.perf_counter() - start
    ctx = make_context()
    with ctx.active():
        ours = np.asarray(
            residual_rows(build_equation(problem.canonical, seed)[0], blocks, (t, x), ctx)
        )
    gap = float(np.max(np.abs(A - ours)) / np.max(np.abs(ours)))
    return {
        "difference": gap,
        "entries": int(A.size),
        "measured": {"wall": spent * options["rows"][0] / n, "timed": spent},
    }


def _rows(problem: Problem, batch: int) -> Callable[..., Any]:
    """A function that computes (∂_t - DΔ) φ_j(t_k, x_k) for all features and points, in batches."""
    u0, F, D = problem.initial, problem.source, problem.diffusion

    def phi0(t: Any, x: Any, eta: Any) -> Any:
        return u0(x + jnp.sqrt(2 * D * t) * eta)

    def phi1(t: Any, x: Any, xi: Any, r: Any) -> Any:
        return t * F(r * t, x + jnp.sqrt(2 * D * (1 - r) * t) * xi)  # type: ignore[misc]

    def residual(phi: Callable[..., Any]) -> Callable[..., Any]:
        return lambda t, x, *draw: (
            jax.grad(phi)(t, x, *draw) - D * jnp.trace(jax.hessian(phi, argnums=1)(t, x, *draw))
        )

    def rows(eta: Any, xi: Any, r: Any, t: Any, x: Any) -> Any:
        def one(point: Any) -> Any:
            first = jax.lax.map(lambda e: residual(phi0)(*point, e), eta, batch_size=batch)
            draws = (xi, r)
            second = jax.lax.map(lambda z: residual(phi1)(*point, *z), draws, batch_size=batch)
            return jnp.concatenate([first, second])

        return jax.lax.map(one, (t, x))

    return rows


def add_cells(scale: str, out: Path) -> None:
    """Measure the missing plain cells of Table 2, and add them to its file."""
    plan = reproduce.RESULTS["table-2"].plan(scale)
    with ledger(out / "table-2.json", {"result": "table-2", "scale": scale}) as done:
        for cell in plan:
            if cell.kind == "plain" and done.find(cell.key, cell.settings) is None:
                problem = get(cell.problem, **cell.parameters)
                found = {**measure(problem, cell.options, cell.seed), "made": made()}
                done.add(cell.key, cell.settings, found)
                print(cell.key, found["measured"], flush=True)
        done.reorder([cell.key for cell in plan])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", choices=reproduce.SCALES, default="quick")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    add_cells(arguments.scale, arguments.out)
