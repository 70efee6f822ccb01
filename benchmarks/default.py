"""The call `hn.solve(problem, tol=0)` on every named problem: errors, seconds, and Monte Carlo.

    python benchmarks/default.py                      the table, one process per cell
    python benchmarks/default.py --workers 8          eight processes at a time, two cores each
    python benchmarks/default.py --marks              the paper's three examples, and ten seeds on
                                                      three problems
    python benchmarks/default.py --cell ridge 100     one cell, as JSON

Errors are relative L2 errors at 512 random points of (0, T] x region. Seconds are those of the
call, compilation included. Plain Monte Carlo runs at the same points for a few seconds; its error
is scaled to the seconds of the solve by samples^{-1/2}.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from processes import spread

DIMS = (3, 10, 100, 1000)
POINTS = 512


def cell(
    name: str, dim: int, closed_form: bool = True, seed: int = 0, monte_carlo: bool = True
) -> dict[str, Any]:
    """Call `hn.solve(problem, tol=0)` once, and measure it."""
    import jax

    import heatnets as hn

    parameters = {"dim": dim, "closed_form": closed_form}
    known = hn.problems.parameters_of(name)
    problem = hn.problems.get(name, **{k: v for k, v in parameters.items() if k in known})
    t, x = hn.random_points(problem, POINTS)
    exact = hn.exact_values(problem, t, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        start = time.perf_counter()
        u = hn.solve(problem, tol=0, seed=seed)
        seconds = time.perf_counter() - start
        found: dict[str, Any] = {
            "problem": name,
            "dim": dim,
            "closed_form": closed_form,
            "seed": seed,
            "error": hn.relative_errors(u(t, x), exact).l2,
            "estimated": u.stats["estimated_error"],
            "seconds": seconds,
            "compile": u.stats["seconds"]["compile"],
            "features": u.stats["features"],
            "rows": u.stats["rows"][0],
            "time_degree": u.stats["time_degree"],
            "enforce": u.stats["enforce"],
            "rounds": len(u.stats["history"]),
            "device": str(jax.devices()[0].device_kind),
            "jax": jax.__version__,
        }
        if closed_form and problem.source is not None and monte_carlo:
            # The same size with initial features only: what the source features are worth.
            size = max(sum(u.stats["features"]), 32) if dim <= 100 else 64
            plain = {
                "features": (size, 0),
                "directions": "orthogonal",
                "antithetic": True,
                "collocation": "paths",
                "solver": "qr",
            }
            v = hn.solve(
                problem,
                time_degree=u.stats["time_degree"],
                rows=(u.stats["rows"][0], 0),
                seed=seed,
                **plain,
            )
            found["without_source_features"] = hn.relative_errors(v(t, x), exact).l2
    if monte_carlo:
        samples = 64
        while True:
            start = time.perf_counter()
            estimate = hn.montecarlo.importance(problem, t, x, samples=samples, seed=seed)
            spent = time.perf_counter() - start
            if spent > min(2.0, 0.5 * seconds) or samples >= 2**16:
                break
            samples *= 2
        # Once more, compiled: the fair rate.
        start = time.perf_counter()
        estimate = hn.montecarlo.importance(problem, t, x, samples=samples, seed=seed)
        spent = time.perf_counter() - start
        error = float(np.linalg.norm(estimate.value - exact) / np.linalg.norm(exact))
        found["monte_carlo"] = error / np.sqrt(max(seconds / spent, 1.0))
        found["monte_carlo_samples"] = int(samples * max(seconds / spent, 1.0))
    return found


def run(
    cells: list[tuple[str, int, bool, int]], workers: int, folder: Path, monte_carlo: bool
) -> list[dict[str, Any]]:
    """Run all cells, each in its own process on two cores.

    Cells that were finished at this commit are read from files and not run again.
    """
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    folder = folder / (commit or "no-commit")
    folder.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []

    def ended(cell: tuple[tuple[str, int, bool, int], Path], found: dict[str, Any]) -> None:
        (name, dim, closed_form, seed), kept = cell
        if "failed" in found:
            found = {"problem": name, "dim": dim, "closed_form": closed_form, "seed": seed, **found}
            print(json.dumps(found), flush=True)
        else:
            kept.write_text(json.dumps(found))
            mc = f", Monte Carlo {found['monte_carlo']:.1e}" if "monte_carlo" in found else ""
            print(
                f"{name:20} d={dim:<6} {'given' if closed_form else 'automatic':10} seed {seed} "
                f"error {found['error']:.1e} "
                f"estimated {found['estimated']:.1e} {found['seconds']:.1f} s{mc}",
                flush=True,
            )
        results.append(found)

    open_ones = []
    for what in cells:
        name, dim, closed_form, seed = what
        kept = folder / f"{name}-{dim}-{'given' if closed_form else 'automatic'}-{seed}.json"
        if kept.exists():
            results.append(json.loads(kept.read_text()))
            continue
        arguments = [
            "--cell",
            name,
            str(dim),
            "--seed",
            str(seed),
            *([] if closed_form else ["--automatic"]),
        ]
        open_ones.append(
            ((what, kept), [*arguments, *([] if monte_carlo else ["--no-monte-carlo"])])
        )
    spread(__file__, open_ones, workers, ended)
    order = {what: i for i, what in enumerate(cells)}
    return sorted(
        results, key=lambda r: order[(r["problem"], r["dim"], r["closed_form"], r["seed"])]
    )


def table(results: list[dict[str, Any]]) -> str:
    """A Markdown table with one row for each problem and dimension."""
    lines = [
        (
            "| problem | d | error | estimated | seconds | features | Monte Carlo | no source "
            "features | error, Laplacian not given | seconds |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    by = {(r["problem"], r["dim"], r["closed_form"]): r for r in results}
    for name, dim in dict.fromkeys((r["problem"], r["dim"]) for r in results):
        a, b = by.get((name, dim, True)), by.get((name, dim, False))
        words = [name, str(dim)]
        for r in (a, b):
            if r is None or "failed" in r:
                words += ["-"] * (6 if r is a else 2)
                continue
            words += [f"{r['error']:.1e}"]
            if r is a:
                alone = (
                    f"{r['without_source_features']:.1e}" if "without_source_features" in r else ""
                )
                words += [
                    f"{r['estimated']:.1e}",
                    f"{r['seconds']:.0f}",
                    f"{r['features'][0]} + {r['features'][1]}",
                    f"{r['monte_carlo']:.1e}",
                    alone,
                ]
            else:
                words += [f"{r['seconds']:.0f}"]
        lines.append(f"| {' | '.join(words)} |")
    good = [r for r in results if "error" in r]
    small = sum(r["error"] <= 1e-3 for r in good)
    wins = sum(r["error"] <= r["monte_carlo"] for r in good if "monte_carlo" in r)
    lines.append("")
    lines.append(
        f"{small} of {len(results)} cells <= 1e-3 ({100 * small / len(results):.0f} %); "
        f"{wins} of {len(results)} at or below Monte Carlo."
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cell", nargs=2, metavar=("PROBLEM", "DIM"))
    parser.add_argument(
        "--automatic", action="store_true", help="leave the closed-form Laplacians out"
    )
    parser.add_argument("--no-monte-carlo", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--marks", action="store_true")
    parser.add_argument("--problems", nargs="*")
    parser.add_argument("--dims", nargs="*", type=int, default=list(DIMS))
    parser.add_argument("--laplacian", choices=["given", "automatic", "both"], default="both")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmark-default"))
    args = parser.parse_args()
    if args.cell:
        print(
            json.dumps(
                cell(
                    args.cell[0],
                    int(args.cell[1]),
                    not args.automatic,
                    args.seed,
                    not args.no_monte_carlo,
                )
            )
        )
        return
    if args.marks:
        first = [
            ("oscillating", 1000, True, 0),
            ("nonseparable", 1000, True, 0),
            ("product-of-sines", 10, True, 0),
        ]
        seeds = [
            (name, 100, True, seed)
            for name in ("oscillating", "nonseparable", "radial-gaussian")
            for seed in range(10)
        ]
        results = run(first + seeds, args.workers, args.out / "marks", False)
        for name in ("oscillating", "nonseparable", "radial-gaussian"):
            errors = sorted(r.get("error", np.inf) for r in results[3:] if r["problem"] == name)
            middle = float(np.median(errors))
            print(
                f"{name} d=100, ten seeds: median {middle:.1e}, worst {errors[-1]:.1e}, "
                f"ratio {errors[-1] / middle:.1f}"
            )
        return
    import heatnets as hn

    names = args.problems or [
        n for n in hn.problems.names("heat") if n != "forced-sine"
    ]  # which is one-dimensional
    cells = [
        (name, dim, given, args.seed)
        for given in {"given": [True], "automatic": [False], "both": [True, False]}[args.laplacian]
        for name in names
        for dim in args.dims
        if given or "closed_form" in hn.problems.parameters_of(name)
    ]
    cells.sort(key=lambda c: -c[1])  # the long ones first
    results = run(cells, args.workers, args.out / "table", True)
    order = {name: i for i, name in enumerate(names)}
    results.sort(key=lambda r: (order[r["problem"]], r["dim"], not r["closed_form"]))
    print(table(results))


if __name__ == "__main__":
    main()
