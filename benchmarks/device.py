"""Seconds of solves and certificates on a GPU: first and second call of each shape.

    python benchmarks/device.py                    all cases
    python benchmarks/device.py --cases allen      those whose name begins so
    python benchmarks/device.py --small            sizes for a CPU, to try the script

The second call has another seed and the same shapes. `compile` are the seconds that XLA spent, and
`trace` those in which JAX traced and lowered functions. Errors are relative L2 errors.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import jax
import jax.monitoring
import numpy as np

import heatnets as hn
from heatnets.problems.paper import TRAIN_REGION

SPENT: dict[str, float] = defaultdict(float)


def listen(event: str, seconds: float, **_: Any) -> None:
    """Add up the seconds that JAX reports for tracing and compiling."""
    if event.endswith("backend_compile_duration"):
        SPENT["compile"] += seconds
    elif event.endswith(("trace_duration", "mlir_module_duration")):
        SPENT["trace"] += seconds


def timed(label: str, call: Callable[[], Any]) -> Any:
    SPENT.clear()
    start = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    print(
        f"  {label:20} {seconds:7.2f} s   compile {SPENT['compile']:6.2f}   "
        f"trace {SPENT['trace']:6.2f}",
        end="   ",
        flush=True,
    )
    return result


def case(name: str, problem: hn.Problem, certify: bool, **options: Any) -> None:
    """Solve twice with different seeds, and print what it took."""
    print(name, flush=True)
    for seed in (0, 1):
        u = timed("solve", lambda seed=seed: hn.solve(problem, seed=seed, **options))
        kept = {k: round(v, 2) for k, v in u.stats["seconds"].items() if v >= 0.05}
        error = "" if problem.exact is None else f"error {hn.measure(u, 1000).l2:.1e}  "
        estimated = u.stats["estimated_error"]
        estimate = "" if estimated is None else f"estimated {estimated:.1e}  "
        print(f"{error}{estimate}{kept}", flush=True)
        if certify:
            x = np.zeros(problem.dim)
            sure = timed("certify", lambda u=u, x=x: u.certify(problem.horizon, x))
            print(f"half-width {sure.halfwidth / abs(sure.value):.1e} of the value", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="*", default=[""])
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore", hn.HeatnetsWarning)
    jax.monitoring.register_event_duration_secs_listener(listen)
    print(jax.devices()[0].device_kind)
    shrink = 50 if args.small else 1
    paper = hn.paper(4000 // shrink, 6000 // shrink, 15000 // shrink, 3000 // shrink)
    named: dict[str, tuple[str, int, bool, dict[str, Any]]] = {
        "allen-cahn d=100 tol=1e-5": ("allen-cahn", 100, True, {"tol": 1e-5}),
        "example-3 d=10": ("nonseparable", 10, False, {"tol": 0}),
        "example-3 d=100": ("nonseparable", 100, False, {"tol": 0}),
        "example-3 d=1000": ("nonseparable", 1000, False, {"tol": 0}),
        "example-2 d=100,000": ("oscillating", 100_000, False, {"tol": 0}),
        "example-2 d=1,000,000": ("oscillating", 1_000_000, False, {"tol": 0}),
        "paper d=2000, given": ("oscillating", 2000, False, paper),
        "paper d=2000, found": ("oscillating", 2000, False, paper | {"found": True}),
    }
    for name, (problem, dim, certify, options) in named.items():
        if not name.startswith(tuple(args.cases)):
            continue
        options = dict(options)
        found = options.pop("found", False)
        dim = max(3, dim // shrink) if args.small else dim
        parameters = {"closed_form": False} if found else {}
        if "features" in options:
            options["train_region"] = TRAIN_REGION
        elif args.small:
            options["seconds"] = 5
        case(name, hn.problems.get(problem, dim=dim, **parameters), certify, **options)


if __name__ == "__main__":
    main()
