"""Is `seconds=5` kept, and does the solve say so? The slowest problems, each in new processes.

    python benchmarks/time_limit.py                    all cases
    python benchmarks/time_limit.py --cases varying    those whose name begins so

The cases are the slowest ones of benchmarks/seconds.py, a basket of fifty assets, and Example 3 in
1000 dimensions. They are asked for all accuracy that there is (`tol=0`), without a cache of
compiled programs. One process makes a single round: the seconds in which JAX traces, lowers and
compiles are the share that no limit can save. Another one solves with `seconds=5`. It keeps the
limit if it ends within 6 s and that share; it says so if a warning and `stats["stopped"]` name the
limit.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
from processes import in_new_process
from seconds import allen_cahn, varying

import heatnets as hn

LIMIT, ALLOWED = 5.0, 6.0
_COMPILING = ("jaxpr_trace_duration", "jaxpr_to_mlir_module_duration", "backend_compile_duration")

CASES: dict[str, Callable[[], hn.Problem]] = {
    "varying d=15": lambda: varying(15),
    "radial-gaussian d=100": lambda: hn.problems.get("radial-gaussian", dim=100, closed_form=False),
    "nonseparable d=1000": lambda: hn.problems.get("nonseparable", dim=1000, closed_form=False),
    "allen-cahn d=1000": lambda: allen_cahn(1000),
    "arithmetic-basket d=50": lambda: hn.problems.get("arithmetic-basket", dim=50),
}


def run_one(name: str, limited: bool) -> dict[str, Any]:
    """One solve: its seconds, those of compiling, and what it says about the limit."""
    compiling: list[tuple[float, float]] = []

    def listen(event: str, duration: float, **_: Any) -> None:
        if event.endswith(_COMPILING):
            now = time.perf_counter()
            compiling.append((now - duration, now))

    problem = CASES[name]()
    options: dict[str, Any] = {"seconds": LIMIT} if limited else {"max_rounds": 1}
    jax.monitoring.register_event_duration_secs_listener(listen)
    start, used = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        u = hn.solve(problem, tol=0, **options)
    wall, cpu = time.perf_counter() - start, time.process_time() - used
    warned = any("`seconds`" in str(warning.message) for warning in heard)
    return {
        "wall": wall,
        "cpu": cpu,
        "compiling": _total(compiling),
        "rounds": len(u.stats["history"]),
        "error": u.stats["estimated_error"],
        "stopped": u.stats["stopped"],
        "said": warned and "`seconds`" in str(u.stats["stopped"]),
    }


def _total(intervals: list[tuple[float, float]]) -> float:
    """The length of the union of intervals: programs are traced inside of others."""
    total, reached = 0.0, -float("inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="*", default=[""])
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(run_one(args.case[0], args.case[1] == "limited")))
        return
    print("| case | wall | CPU | compiling one round | kept | said | rounds | estimated error |")
    print("|---|---|---|---|---|---|---|---|")
    for name in CASES:
        if not name.startswith(tuple(args.cases)):
            continue
        share = in_new_process(__file__, name, "one round")["compiling"]
        r = in_new_process(__file__, name, "limited")
        kept = "yes" if r["wall"] <= ALLOWED + share else "NO"
        said = "yes" if r["said"] else f"NO: {r['stopped']}"
        print(
            f"| {name} | {r['wall']:.1f} | {r['cpu']:.1f} | {share:.1f} | {kept} | {said} "
            f"| {r['rounds']} | {r['error']:.1e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
