"""What a user waits for: solve and certificate in a new process, cold and with a warm cache.

    python benchmarks/seconds.py                   all cases
    python benchmarks/seconds.py --cases heat      those whose name begins so

Each case runs in two processes, one after the other, with one empty directory for compiled
programs: the first compiles (cold), the second reads them (warm). `process` is the time from start
to end of the process, imports included; `again` is the time of one more certified point, for which
a relative half-width of 1e-3 is asked. Problems are written as a user would write them, with
functions of jax.numpy and without Laplacians.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from processes import in_new_process

import heatnets as hn


def bell(x: Any) -> Any:
    return 1 / (2 + 0.4 * x @ x)


def allen_cahn(dim: int) -> hn.Problem:
    region = hn.Point(np.zeros(dim))
    return hn.Problem(
        dim, 0.3, initial=bell, source=lambda t, x, u: u - u**3, diffusion=1.0, region=region
    )


def hamilton_jacobi(dim: int) -> hn.Problem:
    return hn.Problem(
        dim,
        1.0,
        terminal=lambda x: jnp.log(0.5 * (1 + x @ x)),
        source=lambda t, x, u, du: -du @ du,
        region=hn.Point(np.zeros(dim)),
    )


def varying(dim: int) -> hn.Problem:
    """u = e^{-t} sin(Σx/√d), with a source by automatic differentiation."""

    def exact(t: Any, x: Any) -> Any:
        return jnp.exp(-t) * jnp.sin(jnp.sum(x) / np.sqrt(x.size))

    def A(t: Any, x: Any) -> Any:
        return 0.5 + 0.2 * jnp.sin(x + t)

    def b(t: Any, x: Any) -> Any:
        return 0.3 * jnp.cos(x)

    def c(t: Any, x: Any) -> Any:
        return -0.1 * (1 + jnp.cos(x[0]))

    def source(t: Any, x: Any) -> Any:
        slope, hessian = jax.grad(exact, 1)(t, x), jax.hessian(exact, 1)(t, x)
        operator = jnp.sum(A(t, x) * jnp.diag(hessian)) + b(t, x) @ slope
        return jax.grad(exact)(t, x) - operator - c(t, x) * exact(t, x)

    return hn.Problem(
        dim,
        0.5,
        initial=lambda x: exact(0.0, x),
        source=source,
        diffusion=A,
        form="trace",
        drift=b,
        reaction=c,
        exact=exact,
        region=hn.Box(-1.0, 1.0),
    )


def smooth_heat(dim: int) -> hn.Problem:
    return hn.Problem(
        dim,
        0.5,
        initial=lambda x: jnp.sum(jnp.cos(x)),
        source=lambda t, x: t * jnp.exp(-x @ x / x.size),
        region=hn.Box(-1.0, 1.0),
    )


CASES: dict[str, tuple[Callable[[], hn.Problem], dict[str, Any]]] = {
    "heat d=20": (lambda: smooth_heat(20), {"tol": 1e-3}),
    "allen-cahn d=100": (lambda: allen_cahn(100), {"tol": 1e-3}),
    "allen-cahn d=1000": (lambda: allen_cahn(1000), {"tol": 1e-3}),
    "hamilton-jacobi d=100": (lambda: hamilton_jacobi(100), {"tol": 1e-3}),
    "nonseparable d=100": (
        lambda: hn.problems.get("nonseparable", dim=100, closed_form=False),
        {"tol": 1e-3},
    ),
    "radial-gaussian d=100": (
        lambda: hn.problems.get("radial-gaussian", dim=100, closed_form=False),
        {"tol": 1e-6},
    ),
    "varying d=15": (lambda: varying(15), {"tol": 5e-3}),
}


def run_one(name: str) -> dict[str, Any]:
    """Solve and certify one case; seconds, and how good the results are."""
    hn.use_compilation_cache()
    make, options = CASES[name]
    problem = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        start = time.perf_counter()
        u = hn.solve(problem, **options)
        middle = time.perf_counter()
        t = 0.0 if problem.is_terminal else problem.horizon
        sure = u.certify(t, np.zeros(problem.dim))
        end = time.perf_counter()
        x = np.full(problem.dim, 0.3)
        again = u.certify(t, x, samples=256, halfwidth=1e-3 * abs(u(t, x)))
    return {
        "solve": middle - start,
        "certify": end - middle,
        "again": time.perf_counter() - end,
        "reached": bool(again.certified and again.reached),
        "met": bool(u.stats["tolerance_met"]),
        "certified": bool(sure.certified),
        "half-width": float(sure.halfwidth / abs(sure.value)) if sure.value else float("nan"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="*", default=[""])
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(run_one(args.case)))
        return
    print("| case | cache | process | solve | certify | met | certified | half-width | again |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in CASES:
        if not name.startswith(tuple(args.cases)):
            continue
        with tempfile.TemporaryDirectory() as directory:
            for cache in ("cold", "warm"):
                start = time.perf_counter()
                r = in_new_process(__file__, name, cache=directory)
                seconds = time.perf_counter() - start
                print(
                    f"| {name} | {cache} | {seconds:.1f} | {r['solve']:.1f} | {r['certify']:.1f} "
                    f"| {r['met']} | {r['certified']} | {r['half-width']:.0e} "
                    f"| {r['again']:.1f}{'' if r['reached'] else ' (not reached)'} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
