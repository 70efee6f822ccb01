"""Example 2 in the paper's set-up: errors with the published ones, seconds with a lower bound.

The lower bound follows from operation counts and the peak rates of the machine.

python benchmarks/paper_scale.py --dims 100 500 1000 2000            # the paper's sizes, for a GPU
python benchmarks/paper_scale.py --dims 100 --features 400 600 --rows 1500 300   # two CPU cores
"""

from __future__ import annotations

import argparse
import json
import time

import jax
from machine import product_rate, sine_pair_rate

import heatnets as hn
from heatnets.problems.paper import TRAIN_REGION

PUBLISHED = {100: 9.99e-8, 500: 1.42e-7, 1000: 9.20e-5, 2000: 6.43e-3}  # relative L2, M = 10,000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dims", type=int, nargs="+", default=[100, 500, 1000, 2000])
    parser.add_argument("--features", type=int, nargs=2, default=[4000, 6000])
    parser.add_argument("--rows", type=int, nargs=2, default=[15000, 3000])
    parser.add_argument("--laplacian", choices=["given", "automatic", "both"], default="both")
    parser.add_argument(
        "--runs", type=int, default=2, help="runs per case; the last one is free of compilation"
    )
    parser.add_argument("--points", type=int, default=6000)
    arguments = parser.parse_args()
    (M0, M1), (N, N_ic) = arguments.features, arguments.rows
    M = M0 + M1
    kinds = {"given": [True], "automatic": [False], "both": [True, False]}[arguments.laplacian]
    print(
        f"{jax.devices()[0].device_kind}: Example 2, M = {M0} + {M1}, N = {N} + {N_ic}, "
        f"ridge 1e-6, T = 0.5, {arguments.points} test points"
    )
    for dim in arguments.dims:
        with jax.enable_x64(True):
            pairs, flops = sine_pair_rate(dim), product_rate()
        # One sine and one cosine per coordinate of each equation entry, half of that for an initial
        # entry; normal equations N M² (symmetric: half of 2 N M²) and a factorisation M³/3.
        floor_assembly = (N + 0.5 * N_ic) * M * dim / pairs
        floor_solve = ((N + N_ic) * M**2 + M**3 / 3) / flops
        print(
            f"\nd = {dim}: floor {floor_assembly:.2f} s assembly at {pairs / 1e9:.3g} G pairs/s, "
            f"{floor_solve:.2f} s solve at {flops / 1e12:.3g} TFLOP/s"
        )
        for closed_form in kinds:
            problem = hn.problems.get("oscillating", dim=dim, closed_form=closed_form)
            for run in range(arguments.runs):
                start = time.perf_counter()
                u = hn.solve(
                    problem, train_region=TRAIN_REGION, seed=run, **hn.paper(M0, M1, N, N_ic)
                )
                wall = time.perf_counter() - start
                errors = hn.measure(u, arguments.points)
                s = u.stats["seconds"]
                work = s["assembly"] + s["solve"]
                line = {
                    "dim": dim,
                    "laplacian": u.stats["laplacian"]["source"],
                    "run": run + 1,
                    "L1": f"{errors.l1:.3g}",
                    "L2": f"{errors.l2:.3g}",
                    "Linf": f"{errors.linf:.3g}",
                    "paper_L2": PUBLISHED.get(dim),
                    "wall": round(wall, 2),
                    **{k: round(v, 2) for k, v in s.items()},
                    "ratio_to_floor": round(work / (floor_assembly + floor_solve), 2),
                    "solver": u.stats["solver"],
                    "condition": f"{u.stats['condition']:.1e}",
                    "GiB": round(u.stats["peak_bytes"] / 2**30, 2),
                }
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
