"""Peak resident memory of one solve on the CPU: d = 1000, 512 features, 2048 rows.

The (N, M, d) array would take 7.8 GiB.

python benchmarks/memory.py
"""

from __future__ import annotations

import resource
import warnings

import heatnets as hn
from heatnets.problems.paper import TRAIN_REGION


def main() -> None:
    warnings.simplefilter(
        "ignore", hn.HeatnetsWarning
    )  # too few features for d = 1000: memory is what is measured
    floor = 8 * (2560 * 512 * 2 + (2560 + 512) * 1000)
    print(
        "floor: the matrix and its factor, the points and the features, "
        f"{floor / 2**20:.0f} MiB; JAX itself takes about 300 MiB"
    )
    for closed_form in (True, False):
        problem = hn.problems.get("nonseparable", dim=1000, closed_form=closed_form)
        u = hn.solve(
            problem,
            features=(192, 320),
            rows=(2048, 256),
            initial_rows="soft",
            train_region=TRAIN_REGION,
            device="cpu",
        )
        u.gradient(*hn.random_points(problem, 500))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        whole = 8 * 2048 * 512 * 1000
        print(
            (
                f"Laplacian by {u.stats['laplacian']['source']}: peak {peak / 2**30:.2f} GiB; "
                f"(N, M, d) would be {whole / 2**30:.1f} GiB"
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
