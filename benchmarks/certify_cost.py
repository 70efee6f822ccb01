"""Cost and gain of certificates: seconds per point, and the variance of one sample.

The variance is compared with that of plain Monte Carlo, at equal samples and at equal seconds.

python benchmarks/certify_cost.py
"""

from __future__ import annotations

import argparse
import time
import warnings

import jax
import numpy as np

import heatnets as hn
from heatnets._core import streams
from heatnets.certify.error_equation import residual_form

SAMPLES = 4096


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", nargs="*", default=["oscillating", "nonseparable"])
    parser.add_argument("--dims", nargs="*", type=int, default=[100, 1000])
    args = parser.parse_args()
    print(
        f"{jax.devices()[0].device_kind}: default solves, one point, {SAMPLES} samples "
        "(antithetic pairs count twice)"
    )
    for name in args.problems:
        for dim in args.dims:
            problem = hn.problems.get(name, dim=dim)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", hn.HeatnetsWarning)
                u = hn.solve(problem, tol=0)
            t, x = problem.horizon, hn.random_points(problem, 1, seed=7)[1][0]
            spent = []
            for seed in (0, 1):  # the first compiles
                start = time.perf_counter()
                sure = u.certify(t, x, samples=SAMPLES, seed=seed)
                spent.append(time.perf_counter() - start)
            with jax.enable_x64(True):
                start = time.perf_counter()
                drawn = residual_form(
                    u.network,
                    np.array([t]),
                    x[None],
                    SAMPLES // 2,
                    [streams.generator(2, "variance")],
                )
                seconds = time.perf_counter() - start
            variance = 2 * float(np.var(drawn.corrections))  # of one sample: a pair is two
            hn.montecarlo.importance(problem, t, x, samples=SAMPLES)
            start = time.perf_counter()
            plain = hn.montecarlo.importance(problem, t, x, samples=SAMPLES)
            direct = time.perf_counter() - start
            ratio = float(plain.standard_error) ** 2 * SAMPLES / variance
            exact = float(hn.exact_values(problem, t, x))
            print(
                f"{name:14} d={dim:<6} features {u.stats['features']}: network off by "
                f"{abs(float(u(t, x)) - exact):.1e}, certified value by "
                f"{abs(float(sure.value) - exact):.1e} "
                f"± {float(sure.halfwidth):.1e}; variance {ratio:.1e} times below Monte "
                f"Carlo's at equal samples, {ratio * direct / seconds:.1e} at equal seconds; "
                f"certify took {spent[0]:.1f} s, without compilation {spent[1]:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
