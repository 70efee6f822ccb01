"""The same call gives the same bits: 24 problems, each solved alone and on a busy machine.

    python benchmarks/same_bits.py                     all problems
    python benchmarks/same_bits.py --only basket       those whose name contains this

Every problem is solved twice with the same seed, the second time beside two processes that keep two
cores busy. Weights are compared to the last bit. A solve that `seconds` ended is said; it may
differ. Some minutes on two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import heatnets as hn

# Names and dimensions of problems of all kinds.
PROBLEMS = {
    "moving-ridge": 3,
    "product-of-sines": 5,
    "oscillating": 10,
    "nonseparable": 10,
    "radial-gaussian": 20,
    "ridge": 5,
    "smooth-basket": 10,
    "neighbour-products": 6,
    "quadratic-form": 8,
    "sine-network": 10,
    "product-of-cosines": 10,
    "polynomial": 5,
    "kinked-ridge": 5,
    "forced-radial": 10,
    "forced-network": 5,
    "anisotropic-gaussian": 5,
    "ornstein-uhlenbeck": 5,
    "hyperbolic": 3,
    "seasonal": 3,
    "allen-cahn": 20,
    "hamilton-jacobi": 20,
    "burgers": 5,
    "geometric-basket": 5,
    "max-call": 3,
}
assert len(PROBLEMS) == 24


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Keep two cores busy."""
    spin = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(spin) for _ in range(2)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def solve(name: str, **options: Any) -> tuple[list[np.ndarray], str, float]:
    """Weights, why the solve ended, and its seconds."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        u = hn.solve(hn.problems.get(name, dim=PROBLEMS[name]), **options)
    return list(u.weights), u.stats["stopped"], time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="problems whose name contains this")
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    hn.use_compilation_cache()
    names = [name for name in PROBLEMS if args.only in name]
    same = ended = 0
    for name in names:
        weights, why, alone = solve(name, seconds=args.seconds)
        with busy_cores():
            again, why_again, busy = solve(name, seconds=args.seconds)
        by_clock = "seconds" in why + why_again
        equal = len(weights) == len(again) and all(map(np.array_equal, weights, again))
        same, ended = same + equal, ended + by_clock
        verdict = "same bits" if equal else "DIFFERENT"
        note = f"ended by `seconds`: {why} / {why_again}" if by_clock else why
        print(f"{name:22} {verdict}  {alone:5.1f} s alone, {busy:5.1f} s busy; {note}", flush=True)
    print(f"the same bits in {same} of {len(names)}; `seconds` ended {ended}")
    return int(same < len(names))


if __name__ == "__main__":
    sys.exit(main())
