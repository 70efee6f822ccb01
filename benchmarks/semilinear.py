"""Cases of `heatnets reproduce semilinear` with default options, for several seeds.

python benchmarks/semilinear.py                      all cases up to d = 1000
python benchmarks/semilinear.py --seeds 3 --cases allen-cahn
python benchmarks/semilinear.py --case "allen-cahn d=10000 T=0.3" 0      print one case; this one
                                                                         needs an accelerator

Finished cases are stored in benchmark-semilinear/; a second run computes only the missing ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from processes import over_seeds

from heatnets.reproduce import RESULTS, cells

LARGEST = 1000
CELLS = {c.key: c for c in RESULTS["semilinear"].plan("paper")}
USUAL = [
    key
    for key, c in CELLS.items()
    if c.parameters["dim"] <= LARGEST and key != "hamilton-jacobi d=1000 T=1"
]


def case(key: str, seed: int) -> dict[str, Any]:
    return cells.compute(replace(CELLS[key], seed=seed))


def summary(kept: list[dict[str, Any]]) -> str:
    lines = [
        (
            "| case | seeds | error: median | worst | certified | holds | value's error: "
            "median | worst | half-width: median | worst, half-widths | seconds: median | "
            "certificate |"
        ),
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
            f"| {key} | {len(here)} | {of('error', np.median, here)} | "
            f"{of('error', max, here)} | {len(sure)} | {sum(c['inside'] for c in sure)} | "
            f"{of('certified_error', np.median)} "
            f"| {of('certified_error', max)} | {of('half', np.median)} | "
            f"{max((c['ratio'] for c in sure), default=0):.1f} "
            f"| {np.median([c['measured']['wall'] for c in here]):.0f} | "
            f"{np.median([c['measured']['certify'] for c in here]):.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    over_seeds(__file__, __doc__, "semilinear", USUAL, case, summary)
