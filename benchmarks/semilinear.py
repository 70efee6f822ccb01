"""Semilinear problems with default settings, every case of `heatnets reproduce semilinear` with several seeds.

python benchmarks/semilinear.py                      all cases up to d = 1000, kept in benchmark-semilinear/ as they end: run again to go on
python benchmarks/semilinear.py --seeds 3 --cases allen-cahn
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from processes import study

from heatnets.reproduce import cells, semilinear
from heatnets.storage import ledger

LARGEST = 1000
CELLS = {c.key: c for c in semilinear.plan("paper") if c.parameters["dim"] <= LARGEST and c.key != "hamilton-jacobi d=1000 T=1"}


def case(key: str, seed: int) -> dict[str, Any]:
    cell = CELLS[key]
    return cells.compute(cells.Cell(key, cell.kind, cell.problem, cell.parameters, cell.options, seed))


def summary(kept: list[dict[str, Any]]) -> str:
    lines = [
        "| case | seeds | error: median | worst | certified | holds | value's error: median | worst | half-width: median | worst, half-widths | seconds: median | certificate |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key in CELLS:
        here = [c for c in kept if c["settings"]["case"] == key]
        if not here:
            continue
        sure = [c for c in here if c["certified"]]

        def of(name: str, how: Any, cells: list[dict[str, Any]] = sure) -> str:
            return f"{how([c[name] for c in cells]):.1e}" if cells else ""

        lines.append(
            f"| {key} | {len(here)} | {of('error', np.median, here)} | {of('error', max, here)} | {len(sure)} | {sum(c['inside'] for c in sure)} | {of('certified_error', np.median)} "
            f"| {of('certified_error', max)} | {of('half', np.median)} | {max((c['ratio'] for c in sure), default=0):.1f} "
            f"| {np.median([c['measured']['wall'] for c in here]):.0f} | {np.median([c['measured']['certify'] for c in here]):.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs=2, metavar=("CASE", "SEED"))
    parser.add_argument("--cases", nargs="*", help="only those that begin with one of these")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmark-semilinear"))
    args = parser.parse_args()
    if args.case:
        print(json.dumps(case(args.case[0], int(args.case[1]))))
        return
    args.out.mkdir(exist_ok=True)
    chosen = [c for c in CELLS if not args.cases or c.startswith(tuple(args.cases))]
    with ledger(args.out / "semilinear.json", {"study": "semilinear"}) as done:
        plan = [
            (f"{key} seed={seed}", {"case": key, "seed": seed}, [key, str(seed)])
            for seed in range(args.first, args.first + args.seeds)
            for key in chosen
        ]
        kept = study(__file__, done, plan, args.workers)
    print(summary(kept))


if __name__ == "__main__":
    main()
