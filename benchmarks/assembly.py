"""Nanoseconds per coordinate to assemble values and residuals of features, by kind of function.

python benchmarks/assembly.py [--dim 100] [--rows 2048] [--pairs 128]

One coordinate is one entry of one direction of an antithetic pair at one point: rows x pairs x 2 x
dim of them. The second of two equal calls is timed, so that compiling does not count. Each function
is timed twice in one run: by the method that is chosen, and by the best without coordinate sums.
The floor is one matrix product of points and directions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import heatnets as hn
from heatnets._core.execution import make_context
from heatnets.features.designs import DESIGNS
from heatnets.features.equation import build_equation
from heatnets.features.families import FAMILIES
from heatnets.fit.assembly import value_and_residual_rows
from heatnets.pde import laplacian_choice


def functions(dim: int) -> dict[str, Callable]:
    """Functions as a user writes them."""
    weights = np.random.default_rng(0).standard_normal((32, dim)) / np.sqrt(dim)
    return {
        "radial, 1/(2 + 0.4|x|²)": lambda x: 1 / (2 + 0.4 * x @ x),
        "radial, log(½(1 + |x|²))": lambda x: jnp.log(0.5 * (1 + x @ x)),
        "ridge, sin(Σx/√d)": lambda x: jnp.sin(jnp.sum(x) / jnp.sqrt(x.size)),
        "additive, Σ sin x": lambda x: jnp.sum(jnp.sin(x)),
        "additive in a head, exp(mean cos x)": lambda x: jnp.exp(jnp.mean(jnp.cos(x))),
        "Σ sin x + exp(-|x|²/d)": lambda x: jnp.sum(jnp.sin(x)) + jnp.exp(-x @ x / x.size),
        "dense network, 32 units": lambda x: jnp.sum(jnp.tanh(weights @ x)),
    }


def measure(f: Callable, dim: int, rows: int, pairs: int) -> tuple[str, float]:
    """The method, and seconds to assemble rows x pairs entries."""
    problem = hn.Problem(dim=dim, horizon=0.5, initial=f, region=hn.Box(-1.0, 1.0)).canonical
    rng, ctx = np.random.default_rng(0), make_context()
    points = rng.uniform(0.05, 0.5, rows), rng.uniform(-1, 1, (rows, dim))
    with jax.enable_x64(True), ctx.active():
        equation, _ = build_equation(problem, 0)
        design = DESIGNS["orthogonal"]
        block = FAMILIES["importance"].draw(problem, (pairs, 0), design, 0, True)[0]
        for _ in range(2):
            start = time.perf_counter()
            entries = value_and_residual_rows(equation, [block], points, ctx, "", rows)
            jax.block_until_ready(entries)
            seconds = time.perf_counter() - start
    return equation.laplacian_methods["initial"], seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--pairs", type=int, default=128)
    asked = parser.parse_args()
    coordinates = asked.rows * asked.pairs * 2 * asked.dim
    a, b = np.ones((asked.rows, asked.dim)), np.ones((asked.dim, asked.pairs))
    start = time.perf_counter()
    for _ in range(10):
        a @ b
    floor = (time.perf_counter() - start) / 10
    print(f"d = {asked.dim}; floor (one matrix product) {1e9 * floor / coordinates:.3f} ns")
    without = tuple(m for m in laplacian_choice.METHODS if m.name != "coordinate sums")
    for name, f in functions(asked.dim).items():
        chosen, seconds = measure(f, asked.dim, asked.rows, asked.pairs)
        with mock.patch.object(laplacian_choice, "METHODS", without):
            other, before = measure(f, asked.dim, asked.rows, asked.pairs)
        ns, ns_before = (1e9 * s / coordinates for s in (seconds, before))
        print(f"{name:38} {chosen:16} {ns:8.2f} ns   {other:12} {ns_before:8.2f} ns")


if __name__ == "__main__":
    main()
