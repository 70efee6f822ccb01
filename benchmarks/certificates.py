"""Coverage of certified 95 % intervals: all named problems, under- and well-resolved solves.

    python benchmarks/certificates.py                    all cases
    python benchmarks/certificates.py --reduced          a tenth of them

Finished cases are stored in benchmark-certificates/; a second run computes only the missing ones.
A case is a point of one solve. Points are random in (0, T] x region. Under-resolved solves have
16 + 16 pairs, well-resolved ones are adaptive with ten seconds.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from processes import spread

import heatnets as hn
from heatnets._core.atomic_files import Ledger, ledger

# Every named problem. The product of sines in high dimension is left out: it is so small that its
# Monte Carlo values mean nothing.
DIMS = {name: (2, 10, 100) for name in hn.problems.names("heat")} | {
    "forced-sine": (1,),
    "product-of-sines": (2, 10),
}
UNDER = {
    "features": (16, 16),
    "directions": "orthogonal",
    "antithetic": True,
    "collocation": "paths",
    "solver": "qr",
    "time_degree": 1,
}
SOLVES: dict[str, dict[str, Any]] = {"under": UNDER, "well": {"seconds": 10.0}}


def case(name: str, dim: int, how: str, seed: int, points: int) -> dict[str, Any]:
    """Solve one problem, and certify it at random points."""
    known = hn.problems.parameters_of(name)
    problem = hn.problems.get(name, **({"dim": dim} if "dim" in known else {}))
    options = dict(SOLVES[how])
    if how == "under" and problem.source is None:
        options["features"] = (16, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        u = hn.solve(problem, seed=seed, **options)
        t, x = hn.random_points(problem, points, seed=seed + 1)
        exact = hn.exact_values(problem, t, x)
        start = time.perf_counter()
        sure = u.certify(t, x, samples=4096, seed=seed)
    return {
        "exact": exact.tolist(),
        "network": u(t, x).tolist(),
        "value": sure.value.tolist(),
        "halfwidth": sure.halfwidth.tolist(),
        "certified": sure.certified.tolist(),
        "reasons": [list(r) for r in sure.reasons],
        "method": sure.method,
        "rounding": (2.3e-16 * np.abs(exact)).tolist(),
        "seconds": time.perf_counter() - start,
    }


def rows(cells: Ledger) -> list[dict[str, Any]]:
    """One row for each certified point."""
    found = []
    for cell in cells.cells.values():
        for i, exact in enumerate(cell["exact"]):
            if abs(exact) > 1e-100:
                gap = abs(cell["value"][i] - exact)
                found.append(
                    {
                        **cell["settings"],
                        "inside": gap <= cell["halfwidth"][i],
                        "certified": cell["certified"][i],
                        "method": cell["method"],
                        "ratio": gap / cell["halfwidth"][i] if cell["halfwidth"][i] else 0.0,
                        "sampled": cell["halfwidth"][i] > 10 * 1e-15 * max(abs(exact), 1e-3),
                        "gain": abs(cell["network"][i] - exact) / max(gap, 1e-300),
                    }
                )
    return found


def table(found: list[dict[str, Any]]) -> str:
    """The coverage by problem, and overall, as a Markdown table."""
    lines = [
        (
            "| problem | cases | certified: under-resolved | well-resolved | inside, of "
            "certified | worst, in half-widths |"
        ),
        "|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(r["problem"] for r in found):
        here = [r for r in found if r["problem"] == name]
        lines.append(f"| {name} | {len(here)} | {_line(here)}")
    lines.append(f"| all | {len(found)} | {_line(found)}")
    smooth = [r for r in found if r["method"] == "residual"]
    sampled = [r for r in found if r["certified"] and r["sampled"]]
    lines.append("")
    lines.append(
        "certified where well resolved and smooth: "
        f"{_share([r['certified'] for r in smooth if r['solve'] == 'well'])}; "
        "where under-resolved: "
        f"{_share([r['certified'] for r in found if r['solve'] == 'under'])}"
    )
    lines.append(
        "inside where the half-width is ten times rounding: "
        f"{_share([r['inside'] for r in sampled])} of {len(sampled)}; "
        f"inside of all, certified or not: {_share([r['inside'] for r in found])}; "
        "certified and off by more than five half-widths: "
        f"{sum(r['certified'] and r['ratio'] > 5 for r in found)}"
    )
    return "\n".join(lines)


def _line(here: list[dict[str, Any]]) -> str:
    shares = [_share([r["certified"] for r in here if r["solve"] == how]) for how in SOLVES]
    sure = [r for r in here if r["certified"]]
    return (
        f"{shares[0]} | {shares[1]} | {_share([r['inside'] for r in sure])} | "
        f"{max((r['ratio'] for r in sure), default=0):.1f} |"
    )


def _share(hits: list[bool]) -> str:
    return f"{100 * np.mean(hits):.0f} %" if hits else "–"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reduced", action="store_true")
    parser.add_argument("--problems", nargs="*")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--points", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("benchmark-certificates"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--case", nargs=4, metavar=("PROBLEM", "DIM", "SOLVE", "SEED"))
    args = parser.parse_args()
    if args.case:
        name, dim, how, seed = args.case
        print(json.dumps(case(name, int(dim), how, int(seed), args.points)))
        return
    args.out.mkdir(exist_ok=True)
    plan = [
        (name, dim, how, seed)
        for seed in range(1 if args.reduced else args.seeds)
        for name in args.problems or DIMS
        for dim in (DIMS[name][:1] if args.reduced else DIMS[name])
        for how in SOLVES
    ]
    with ledger(
        args.out / "certificates.json", {"study": "certificates", "points": args.points}
    ) as done:
        cells = []
        for name, dim, how, seed in plan:
            key, settings = (
                f"{name} d={dim} {how} seed={seed}",
                {"problem": name, "dim": dim, "solve": how, "seed": seed},
            )
            if done.find(key, settings) is None:
                cells.append(
                    (
                        (key, settings),
                        ["--case", name, str(dim), how, str(seed), "--points", str(args.points)],
                    )
                )

        def ended(cell: tuple[str, dict[str, Any]], found: dict[str, Any]) -> None:
            if "failed" in found:
                print(cell[0], found, flush=True)
                return
            done.add(*cell, found)
            inside = np.abs(np.array(found["value"]) - np.array(found["exact"])) <= np.array(
                found["halfwidth"]
            )
            print(
                (
                    f"{cell[0]:45} {found['method']:22} certified {sum(found['certified'])}, "
                    f"inside {sum(inside)} of {len(inside)}, {found['seconds']:.1f} s"
                ),
                flush=True,
            )

        spread(__file__, cells, args.workers, ended)
        print(table(rows(done)))


if __name__ == "__main__":
    main()
