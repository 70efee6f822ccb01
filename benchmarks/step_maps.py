"""Features for variable coefficients: paths with frozen coefficients, or steps of the process.

Frozen coefficients are the paper's L0; the process itself is simulated in one, two or four steps.

    python benchmarks/step_maps.py [--dim 10] [--features 192]

All have the same number of features, rows and degrees. Printed are relative L2 errors against exact
solutions, and seconds.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np

import heatnets as hn
from heatnets._core.precision import with_x64
from heatnets.pde.coefficients import CoefficientField
from heatnets.pde.paths import EulerPaths

MAPS = ("frozen", "1 step", "2 steps", "4 steps")


@with_x64
def walk_of(problem: hn.Problem, name: str) -> EulerPaths:
    given = problem.canonical.coefficients
    assert given is not None
    if name != "frozen":
        return EulerPaths(given, int(name.split()[0]))
    here = given.evaluate(jnp.asarray(problem.horizon / 2), jnp.zeros(problem.dim))
    still: Any = (problem.canonical.diffusion, np.asarray(here.drift), float(here.reaction))
    return EulerPaths(CoefficientField(*still, None, given.transform, False, False), 1)


def error(name: str, dim: int, features: int, which: str) -> tuple[float, float]:
    problem = hn.problems.get(name, dim=dim)
    problem.__dict__["feature_walk"] = walk_of(problem, which)
    sizes = (features, 0) if problem.source is None else (features // 2, features // 2)
    start, best = time.perf_counter(), np.inf
    for degree in (0, 1, 3):
        u = hn.solve(
            problem,
            features=sizes,
            rows=(8 * features, 0),
            directions="orthogonal",
            antithetic=True,
            time_degree=degree,
            collocation="paths",
            solver="qr",
        )
        best = min(best, hn.measure(u, 1000).l2)
    return best, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--features", type=int, default=192)
    args = parser.parse_args()
    warnings.simplefilter("ignore", hn.HeatnetsWarning)
    print(
        f"{args.features} pairs of features in {args.dim} dimensions; the best of degrees "
        "0, 1, 3 in time\n"
    )
    print(f"| problem | {' | '.join(MAPS)} |\n|---|{'---|' * len(MAPS)}")
    for name in hn.problems.names("variable"):
        found = [error(name, args.dim, args.features, which) for which in MAPS]
        print(
            f"| {name} | " + " | ".join(f"{e:.1e} ({s:.0f} s)" for e, s in found) + " |", flush=True
        )


if __name__ == "__main__":
    main()
