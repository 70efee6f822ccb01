"""Bias of time-stepped paths, and the part of it that remains in a certificate.

u0 is evaluated at the ends of paths of 4 to 32 steps, driven by the same Brownian motion.

    python benchmarks/step_bias.py [--problem hyperbolic-waves] [--dim 4] [--pairs 200000]

The problem has variable coefficients and no source; the points lie in the region, at t = T.
"""

from __future__ import annotations

import argparse

import jax
import numpy as np

import heatnets as hn
from heatnets._core.precision import with_x64
from heatnets.certify.path_sampling import extrapolate, step_bias_bound
from heatnets.pde.paths import EulerPaths

PIECE = 20_000


@with_x64
def study(
    problem: hn.Problem, x: np.ndarray, pairs: int, steps: int
) -> tuple[float, float, float, float]:
    """The bias of time-stepped paths at a point.

    Returns:
        The bias of the paths, the bias that remains in a certificate, the allowance of the
        certificate for it, and the standard error of the remaining bias.
    """
    assert problem.canonical.coefficients is not None
    walk, t, rng = (
        EulerPaths(problem.canonical.coefficients, steps),
        problem.horizon,
        np.random.default_rng(0),
    )
    initial = jax.jit(jax.vmap(problem.initial))
    samples, changes, finest = [], [], []

    def sample(level: EulerPaths, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ends = [level.simulate(t, x, t, sign * noise) for sign in (1.0, -1.0)]
        value = 0.5 * sum(end.weight * np.asarray(initial(end.position)) for end in ends)
        return value, value

    for _ in range(pairs // PIECE):
        noise = walk.sample_noise(rng, (PIECE,), problem.dim)
        batch = extrapolate(walk, noise, sample)
        samples.append(batch.samples)
        changes.append(batch.steps)
        finest.append(batch.sizes)
    exact, values = float(hn.exact_values(problem, t, x)), np.concatenate(samples)
    allowed = float(step_bias_bound(np.concatenate(changes).mean(axis=0)))
    return (
        np.concatenate(finest).mean() - exact,
        values.mean() - exact,
        allowed,
        values.std() / np.sqrt(len(values)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--problem",
        default="hyperbolic-waves",
        choices=[n for n in hn.problems.names("variable") if n != "porous"],
    )
    parser.add_argument("--dim", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=200_000)
    args = parser.parse_args()
    problem = hn.problems.get(args.problem, dim=args.dim)
    print(
        "| point | steps | bias | left | allowed | left / allowed | standard error of "
        "what is left |\n|---|---|---|---|---|---|---|"
    )
    for k, x in enumerate(hn.random_points(problem, 5, seed=9)[1]):
        for steps in (8, 16, 32):
            bias, left, allowed, noise = study(problem, x, args.pairs, steps)
            print(
                (
                    f"| {k} | {steps} | {bias:.4f} | {left:.4f} | {allowed:.4f} | "
                    f"{abs(left) / allowed:.2f} | {noise:.4f} |"
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
