"""Are bumps found that hardly any path reaches? Errors and estimates, with and without far paths.

    python benchmarks/far_bumps.py               the strangers 252 and 338 of seed 815847
    python benchmarks/far_bumps.py --random 12 --first 100    random bumps, from this seed on

Random bumps are 4 to 6 standard deviations of a path away from most of the region.

Each line: the true relative L2 error, the estimated one with and without paths that go far, and of
six certified points how many are certified and how many of these are off by more than one (five)
half-widths.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import jax.numpy as jnp
import numpy as np
from stranger_problems import stranger

import heatnets as hn
from heatnets.certify import far_paths, stretched_paths
from heatnets.certify.stretched_paths import Directions

POINTS = 6


@contextmanager
def without_far_paths() -> Iterator[None]:
    """No direction is found inside this context."""
    none = Directions(np.zeros((0, 1)), np.zeros((0, 1)))
    with (
        mock.patch.object(far_paths, "find_directions", return_value=none),
        mock.patch.object(stretched_paths, "find_directions", return_value=none),
    ):
        yield


def line(
    name: str, problem: hn.Problem, exact: Callable[..., np.ndarray], x: np.ndarray, t: float
) -> str:
    """Solve a problem twice, and describe its errors; x (n, dim) are certified at the time t."""
    where = hn.random_points(problem, 4096, seed=1)
    truth, at_points = exact(*where), exact(np.full(len(x), t), x)
    words = []
    for context in (nullcontext(), without_far_paths()):
        with context, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            u = hn.solve(problem, seconds=10.0, tol=1e-2)
            sure = u.certify(np.full(len(x), t), x, samples=1024)
        values = u(*where)
        error = np.sqrt(np.mean((values - truth) ** 2) / np.mean(truth**2))
        slack = 6e-15 * np.sqrt(np.mean(truth**2))  # rounding of the truth itself
        gap = np.maximum(np.abs(sure.value - at_points) - slack, 0.0)
        off = [int(np.sum(sure.certified & (gap > k * sure.halfwidth))) for k in (1, 5)]
        words.append(
            f"error {error:.1e}, estimated {u.stats['estimated_error']:.1e}; "
            f"{int(np.sum(sure.certified))} certified, {off[0]} ({off[1]}) off"
        )
    return f"{name}: {words[0]} | without: {words[1]}"


def random_bump(seed: int) -> str:
    """A bump on a random line through the origin, in u0 or in F, on top of waves in u0."""
    rng = np.random.default_rng(seed)
    dim = int(rng.integers(2, 31))
    D, T, half = rng.uniform(0.05, 0.5), rng.uniform(0.1, 1.0), rng.uniform(0.3, 1.0)
    a, b = (v / np.linalg.norm(v) for v in rng.standard_normal((2, dim)))
    if rng.random() < 0.5:
        a = np.eye(dim)[-1]
    distance, deviation = rng.uniform(4, 6), np.sqrt(2 * D * T)
    edge = half * min(np.sum(np.abs(a)), 3 * np.sqrt(1 / 3))  # of most of the box along a
    centre, width = edge + distance * deviation, rng.uniform(0.1, 0.7) * deviation
    forced = bool(rng.random() < 0.5)

    def bump(x: Any) -> Any:
        return jnp.exp(-(((a @ x - centre) / width) ** 2))

    def mean_bump(x: np.ndarray, lag: np.ndarray) -> np.ndarray:
        wide = width**2 + 4 * D * lag
        return width / np.sqrt(wide) * np.exp(-((x - centre) ** 2) / wide)

    def exact(t: np.ndarray, x: np.ndarray) -> np.ndarray:
        waves = np.cos(x @ b) * np.exp(-D * t)
        if not forced:
            return waves + mean_bump(x @ a, t)
        nodes, weights = np.polynomial.legendre.leggauss(200)
        part = mean_bump((x @ a)[:, None], 0.5 * t[:, None] * (1 + nodes))
        return waves + np.sin(x[:, 0]) * -np.expm1(-D * t) / D + 0.5 * t * (part @ weights)

    data: dict[str, Any] = {"initial": lambda x: jnp.cos(b @ x) + bump(x)}
    if forced:
        data = {"initial": lambda x: jnp.cos(b @ x), "source": lambda t, x: jnp.sin(x[0]) + bump(x)}
    region = hn.Box(-half, half)
    problem = hn.Problem(dim=dim, horizon=T, diffusion=D, region=region, **data)
    x = region.sample(rng, POINTS, dim)
    kind = "F" if forced else "u0"
    return line(f"bump in {kind}, d={dim}, {distance:.1f} deviations", problem, exact, x, T)


def known_stranger(number: int) -> str:
    who = stranger(number, 815847)
    rng = np.random.default_rng([who.seed, number, 1])
    x = who.region.sample(rng, POINTS, who.tags["dim"])
    end = 0.0 if who.truth.backward else who.truth.horizon
    return line(f"stranger {number}", who.problem, who.exact, x, end)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, default=0, help="number of random bumps")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.random)
    lines = map(random_bump, seeds) if args.random else map(known_stranger, (252, 338))
    for text in lines:
        print(text, flush=True)
