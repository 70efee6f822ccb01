"""How long will it take? The default call on problems of each kind, by dimension.

    python benchmarks/how_long.py                     all cases
    python benchmarks/how_long.py --cases heat        those whose name begins so

Each case is `hn.solve(problem)`, a relative error of 1e-3, in two processes one after the other,
with one empty directory for compiled programs: the first compiles (cold), the second reads them
(warm).
CPU seconds are those of all threads of the process during the call. Problems are written as a user
would write them, with functions of jax.numpy and without Laplacians.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from processes import in_new_process
from seconds import allen_cahn, hamilton_jacobi, smooth_heat, varying

import heatnets as hn


def ornstein_uhlenbeck(dim: int) -> hn.Problem:
    return hn.Problem(
        dim,
        1.0,
        initial=lambda x: jnp.exp(-x @ x / (2 * x.size)),
        process=hn.OrnsteinUhlenbeck(rate=0.5, mean=0.2, diffusion=0.5),
    )


def option(dim: int, payoff: Callable[[Any], Any]) -> hn.Problem:
    """A claim on the mean of correlated assets."""
    return hn.Problem(
        dim,
        1.0,
        terminal=lambda x: payoff(jnp.mean(x) - 100.0),
        process=hn.GeometricBrownian(volatility=0.2, growth=0.03, correlation=0.3),
        reaction=-0.03,
        region=hn.Box(90.0, 110.0),
    )


def smooth_option(dim: int) -> hn.Problem:
    return option(dim, lambda y: 5 * jnp.logaddexp(0.0, y / 5))


def call(dim: int) -> hn.Problem:
    return option(dim, lambda y: jnp.maximum(y, 0.0))


KINDS: dict[str, tuple[Callable[[int], hn.Problem], tuple[int, ...]]] = {
    "heat, smooth": (smooth_heat, (5, 20, 100, 1000)),
    "Ornstein-Uhlenbeck": (ornstein_uhlenbeck, (5, 20, 100, 1000)),
    "Black-Scholes, smooth": (smooth_option, (5, 20, 100)),
    "Black-Scholes, kinked basket": (call, (5, 20, 100)),
    "coefficients of (t, x)": (varying, (5, 20)),
    "source of u": (allen_cahn, (5, 20, 100, 1000)),
    "source of u and ∇u": (hamilton_jacobi, (5, 20, 100, 1000)),
}


def run_one(kind: str, dim: int) -> dict[str, Any]:
    """One solve: wall and CPU seconds, and its error."""
    hn.use_compilation_cache()
    problem = KINDS[kind][0](dim)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        start, used = time.perf_counter(), time.process_time()
        u = hn.solve(problem)
    return {
        "wall": time.perf_counter() - start,
        "cpu": time.process_time() - used,
        "estimated": u.stats["estimated_error"],
        "met": bool(u.stats["tolerance_met"]),
        "features": sum(u.stats["features"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="*", default=[""])
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(run_one(args.case[0], int(args.case[1]))))
        return
    print(
        "| kind | d | CPU s, cold | CPU s, warm | s, cold | s, warm | estimated error | features |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for kind, (_, dims) in KINDS.items():
        if not kind.startswith(tuple(args.cases)):
            continue
        for dim in dims:
            with tempfile.TemporaryDirectory() as cache:
                cold, warm = (
                    in_new_process(__file__, kind, str(dim), cache=cache) for _ in range(2)
                )
            error = f"{warm['estimated']:.1e}{'' if warm['met'] else ' (not met)'}"
            print(
                f"| {kind} | {dim} | {cold['cpu']:.1f} | {warm['cpu']:.1f} | {cold['wall']:.1f} "
                f"| {warm['wall']:.1f} | {error} | {warm['features']} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
