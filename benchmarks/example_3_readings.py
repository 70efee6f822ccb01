"""Example 3 for several α and β, which the paper does not give: errors of the paper's set-up.

The size is one that two cores solve in a minute.

    python benchmarks/example_3_readings.py [--alpha 1 0.1 0.03] [--beta 1 0.1 0.01]

d = 100, T = 0.5, M = 1,000 + 1,500, N = 6,000 + 1,200.
"""

from __future__ import annotations

import argparse
import math

import heatnets as hn


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--alpha", nargs="*", type=float, default=[1.0, 0.1, 0.03])
    parser.add_argument("--beta", nargs="*", type=float, default=[1.0, 0.1, 0.01])
    args = parser.parse_args()
    print(f"| | {' | '.join(f'β = {b:g}' for b in args.beta)} |\n|---|{'---|' * len(args.beta)}")
    for alpha in args.alpha:
        errors = []
        for beta in args.beta:
            problem = hn.problems.get("nonseparable", dim=100, horizon=0.5, alpha=alpha, beta=beta)
            u = hn.solve(
                problem, **hn.paper(1000, 1500, 6000, 1200), train_region=hn.Box(-math.pi, math.pi)
            )
            errors.append(f"{hn.measure(u, 2000).l2:.1e}")
        print(f"| α = {alpha:g} | {' | '.join(errors)} |", flush=True)


if __name__ == "__main__":
    main()
