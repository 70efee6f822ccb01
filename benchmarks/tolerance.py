"""Is `tol` met when the solver reports so?

python benchmarks/tolerance.py                     all cases
python benchmarks/tolerance.py --workers 8         eight processes of two cores each

Every named problem, four dimensions, four tolerances, 20 seconds each. Finished cases are stored in
benchmark-tolerance/; a second run computes only the missing ones.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

from processes import study

import heatnets as hn
from heatnets._core.atomic_files import ledger

DIMS = (2, 10, 100, 1000)
TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-6)


def case(name: str, dim: int, tol: float) -> dict[str, Any]:
    """Solve one problem to a tolerance, and measure the true error."""
    problem = hn.problems.get(name, dim=dim)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        start = time.perf_counter()
        u = hn.solve(problem, tol=tol, seconds=20.0)
        seconds = time.perf_counter() - start
        error = hn.measure(u, 2000).l2
    return {
        "met": u.stats["tolerance_met"],
        "error": error,
        "estimated": u.stats["estimated_error"],
        "seconds": seconds,
        "features": list(u.stats["features"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", nargs=3, metavar=("PROBLEM", "DIM", "TOL"))
    parser.add_argument(
        "--problems",
        nargs="*",
        default=[n for n in hn.problems.names("heat") if n != "forced-sine"],
    )
    parser.add_argument("--dims", nargs="*", type=int, default=list(DIMS))
    parser.add_argument("--tolerances", nargs="*", type=float, default=list(TOLERANCES))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmark-tolerance"))
    args = parser.parse_args()
    if args.case:
        print(json.dumps(case(args.case[0], int(args.case[1]), float(args.case[2]))))
        return
    args.out.mkdir(exist_ok=True)
    plan = [
        (name, dim, tol)
        for dim in sorted(args.dims, reverse=True)
        for name in args.problems
        for tol in args.tolerances
    ]
    with ledger(args.out / "tolerance.json", {"study": "tolerance"}) as done:
        cells = study(
            __file__,
            done,
            [
                (
                    f"{name} d={dim} tol={tol:g}",
                    {"problem": name, "dim": dim, "tol": tol},
                    [name, str(dim), str(tol)],
                )
                for name, dim, tol in plan
            ],
            args.workers,
        )
    print(summary(cells))


def summary(cells: list[dict[str, Any]]) -> str:
    claimed = [c for c in cells if c["met"]]
    wrong = [c for c in claimed if c["error"] > c["settings"]["tol"]]
    lines = [
        (
            "| tolerance | cases | claimed met | met in truth | claimed and not met | worst "
            "of these, error over tolerance | median seconds |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    for tol in sorted({c["settings"]["tol"] for c in cells}, reverse=True):
        here = [c for c in cells if c["settings"]["tol"] == tol]
        false = [c for c in here if c in wrong]
        worst = max((c["error"] / tol for c in false), default=0.0)
        seconds = sorted(c["seconds"] for c in here)[len(here) // 2]
        lines.append(
            f"| {tol:g} | {len(here)} | {sum(c['met'] for c in here)} | "
            f"{sum(c['error'] <= tol for c in here)} | {len(false)} | {worst:.1f} | "
            f"{seconds:.0f} |"
        )
    lines.append("")
    lines.append(
        f"claimed met and not met in truth: {len(wrong)} of {len(cells)} cases "
        f"({100 * len(wrong) / max(len(cells), 1):.1f} %)"
    )
    lines += [
        f"- {c['settings']}: error {c['error']:.1e}, estimated {c['estimated']:.1e}" for c in wrong
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
