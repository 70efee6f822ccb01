"""Coverage of certified intervals for data with kinks and jumps.

    python benchmarks/kinked_certificates.py [--points 25] [--samples 1024] [--seed 0]

Each row is one solve by default, of u_t = Δu + F on [-1, 1]^d up to t = 1/2, and certificates at
random points, compared with exact values. In the data of the second group the kinks are in a table,
in `jnp.interp`, under a root or in a function with its own derivative, where no operation names
them. With a source certificates are of the martingale form, not of nets. The last column says how
the network was trained.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

import heatnets as hn

HORIZON = 0.5
Profile = Callable[[jax.Array], jax.Array]  # of one number
NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)


class Case(NamedTuple):
    """Data with kinks, and the exact solution without the source."""

    name: str
    initial: Callable[[jax.Array], jax.Array]
    exact: Callable[[np.ndarray, np.ndarray], np.ndarray]  # t (n,), x (n, d) -> (n,)
    has_source: bool = False


def along(profile: Profile, kinks: Sequence[float], direction: str) -> tuple[Callable, Callable]:
    """The data profile(a·x), and their mean: Gauss quadrature between the kinks.

    Args:
        profile: a function of one number.
        kinks: where it is not smooth.
        direction: "first" for a·x = x_1, "mean" for the mean times √d.
    """

    def initial(x: jax.Array) -> jax.Array:
        return profile(x[0] if direction == "first" else jnp.sum(x) / math.sqrt(x.size))

    def exact(t: np.ndarray, x: np.ndarray) -> np.ndarray:
        m = x[:, 0] if direction == "first" else np.sum(x, axis=1) / math.sqrt(x.shape[1])
        return np.array(
            [gaussian_mean(profile, kinks, a, np.sqrt(2 * b)) for a, b in zip(m, t, strict=True)]
        )

    return initial, exact


def gaussian_mean(profile: Profile, kinks: Sequence[float], m: float, s: float) -> float:
    """E profile(m + s z) for normal z, by pieces between the kinks."""
    inside = np.clip((np.array(kinks) - m) / s, -12.0, 12.0)
    ends = np.unique(np.concatenate([np.linspace(-12.0, 12.0, 25), inside]))
    half, middle = np.diff(ends) / 2, (ends[1:] + ends[:-1]) / 2
    z = middle[:, None] + half[:, None] * NODES
    with jax.enable_x64(True):
        values = np.asarray(jax.vmap(profile)(jnp.asarray(m + s * z.reshape(-1)))).reshape(z.shape)
    return float(np.sum(half[:, None] * WEIGHTS * values * norm.pdf(z)))


def largest(t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """E max_i X_i = z0 + ∫_{z0}^∞ (1 - G) - ∫_{-∞}^{z0} G, by the trapezoidal rule.

    Here G(z) = Π Φ((z - x_i)/√(2t)).
    """
    values = []
    for time_left, place in zip(t, x, strict=True):
        s, top = np.sqrt(2 * time_left), np.max(place)
        z = np.linspace(top - 12 * s, top + 12 * s, 20001)
        G = np.exp(np.sum(norm.logcdf((z[:, None] - place) / s), axis=1))
        values.append(z[0] + np.trapezoid(1 - G, z))
    return np.array(values)


@jax.custom_jvp
def own_modulus(z: jax.Array) -> jax.Array:
    """|z|, with a derivative of its own."""
    return jnp.abs(z)


@own_modulus.defjvp
def _(primals: tuple, tangents: tuple) -> tuple:
    return own_modulus(*primals), jnp.sign(primals[0]) * tangents[0]


BREAKS, LEVELS = np.array([-1.0, -0.2, 0.5, 1.5]), np.array([0.0, 1.0, -0.5, 2.0])
TABLE = np.array([0.3, 1.0, 0.2, 0.8, 1.5])  # steps at -1, 0, 1, 2


def look_up(z: jax.Array) -> jax.Array:
    """A step function: the entry of the table for the interval of z."""
    return jnp.asarray(TABLE)[jnp.clip(jnp.floor(z) + 2, 0, 4).astype(int)]


# Where features may integrate the kinks, or the maximum of all coordinates is seen.
NAMED = [
    Case("max(mean √d, 0)", *along(lambda z: jnp.maximum(z, 0.0), [0.0], "mean")),
    Case("|x_1|", *along(jnp.abs, [0.0], "first")),
    Case("mean √d > 0.3", *along(lambda z: jnp.where(z > 0.3, 1.0, 0.0), [0.3], "mean")),
    Case("clip(x_1, -0.5, 1)", *along(lambda z: jnp.clip(z, -0.5, 1.0), [-0.5, 1.0], "first")),
    Case("max_i x_i", jnp.max, largest),
]
HIDDEN = [
    Case("interp(mean √d)", *along(lambda z: jnp.interp(z, BREAKS, LEVELS), BREAKS, "mean")),
    Case("table[x_1]", *along(look_up, [-1.0, 0.0, 1.0, 2.0], "first")),
    Case("√(x_1²)", *along(lambda z: jnp.sqrt(z**2), [0.0], "first")),
    Case("own |mean √d|", *along(own_modulus, [0.0], "mean")),
]
CASES = [*NAMED, *HIDDEN, *(case._replace(has_source=True) for case in HIDDEN)]


def source(t: jax.Array, x: jax.Array) -> jax.Array:
    """t cos(x_1)."""
    return t * jnp.cos(x[0])


def from_source(t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Its part of the solution: cos(x_1) ∫ s e^{s-t} ds."""
    return np.cos(x[:, 0]) * (t - 1 + np.exp(-t))


class Result(NamedTuple):
    """One solve and its certificates."""

    exact: np.ndarray
    sure: hn.Certificate
    network: np.ndarray
    how: str
    seconds: float


def measure(case: Case, dim: int, points: int, samples: int, seed: int) -> Result:
    """Exact values, certificates, and values of the network at random points."""
    begin = time.process_time()
    force = {"source": source} if case.has_source else {}
    region = hn.Box(-1.0, 1.0)
    problem = hn.Problem(dim, HORIZON, initial=case.initial, region=region, **force)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        u = hn.solve(problem, seed=seed)
        t, x = hn.random_points(problem, points, seed=seed)
        sure = u.certify(t, x, samples=samples, seed=seed)
    seconds = time.process_time() - begin
    exact = case.exact(t, x) + (from_source(t, x) if case.has_source else 0.0)
    rows = "mild rows" if u.stats["enforce"] == "mild" else str(u.stats["laplacian"])
    said = any("mild rows" in warning for warning in u.stats["warnings"])
    rows += "" if u.stats["enforce"] != "mild" else (", said" if said else ", NOT SAID")
    return Result(exact, sure, u(t, x), rows, seconds)


def main() -> None:
    """Measure, and print a line per case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=25)
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(
        "data, d: certified, of these inside, worst in half-widths; root mean square errors of the "
        "network and of certified values, median half-width; CPU seconds"
    )
    total, certified, inside, worst = 0, 0, 0, 0.0
    for case in CASES:
        for dim in (10, 100):
            result = measure(case, dim, args.points, args.samples, args.seed)
            sure, off = result.sure, np.abs(result.sure.value - result.exact)
            good = sure.certified
            ratios = (off / np.maximum(sure.halfwidth, 1e-300))[good]
            furthest = float(np.max(ratios, initial=0.0))
            total, certified = total + len(good), certified + int(good.sum())
            inside, worst = inside + int(np.sum(ratios <= 1)), max(worst, furthest)
            print(
                f"{case.name + (' + F' if case.has_source else ''):22} {dim:4}: "
                f"{good.sum():3} of {len(good)}, {np.sum(ratios <= 1):3}, {furthest:.1f}; "
                f"{np.sqrt(np.mean((result.network - result.exact) ** 2)):.1e} "
                f"{np.sqrt(np.mean(off**2)):.1e} {np.median(sure.halfwidth):.1e}; "
                f"{result.seconds:5.1f}   ({sure.method}; {result.how})",
                flush=True,
            )
    share = 100 * inside / max(certified, 1)
    print(
        f"all: {certified} of {total} certified, {inside} hold ({share:.1f} %), worst {worst:.1f}"
    )


if __name__ == "__main__":
    main()
