"""The first problem of an outside user, ten seeds: is it solved, and is the estimate right?

    u_t = ½Δu - 0.3 x·∇u + sin(t) cos(x_1 x_2),  u(0, x) = exp(-|x|²/10),  T = 2

    python benchmarks/rare_and_large.py                    all forms, ten seeds each
    python benchmarks/rare_and_large.py --form heat --dim 5 --seeds 3

Residuals of this source are rare and large: derivatives of cos(x_1 x_2) grow along paths. Forms:
"drift" (the drift as a function), "process" (Ornstein-Uhlenbeck) and "heat" (no drift). The exact
solution is one integral over time, by Gauss quadrature, of E[cos(X_1 X_2)] in closed form.
"""

from __future__ import annotations

import argparse
import time
import warnings

import jax.numpy as jnp
import numpy as np

import heatnets as hn

T, D, RATE = 2.0, 0.5, 0.3
NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)


def initial(x):
    return jnp.exp(-x @ x / 10)


def source(t, x):
    return jnp.sin(t) * jnp.cos(x[0] * x[1])


def problem(form: str, dim: int) -> hn.Problem:
    data = {"dim": dim, "horizon": T, "initial": initial, "source": source}
    if form == "drift":
        return hn.Problem(**data, diffusion=D, drift=lambda t, x: -RATE * x)
    if form == "process":
        return hn.Problem(**data, process=hn.OrnsteinUhlenbeck(rate=RATE, diffusion=D))
    return hn.Problem(**data, diffusion=D)


def exact(form: str, t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The solution at t (n,), x (n, dim)."""

    def law(lag: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Factor of the mean, and variance of a coordinate, of paths after a time `lag`."""
        if form == "heat":
            return np.ones_like(lag), 2 * D * lag
        return np.exp(-RATE * lag), D * (1 - np.exp(-2 * RATE * lag)) / RATE

    decay, v = law(t)
    square, dim = decay**2 * np.sum(x**2, axis=1), x.shape[1]
    start = (1 + v / 5) ** (-dim / 2) * np.exp(-square / (10 + 2 * v))
    s = 0.5 * t[:, None] * (1 + NODES)
    decay, v = law(t[:, None] - s)
    a, b = (decay * x[:, i, None] for i in (0, 1))
    # E exp(i X Y) for independent normal X, Y with means a, b and variance v.
    mean = np.exp((1j * a * b - 0.5 * v * (a**2 + b**2)) / (1 + v**2)).real / np.sqrt(1 + v**2)
    return start + 0.5 * t * ((np.sin(s) * mean) @ WEIGHTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--form", choices=["drift", "process", "heat"])
    parser.add_argument("--dim", type=int)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    warnings.simplefilter("ignore", hn.HeatnetsWarning)
    cases = [("drift", 30, 1e-2), ("process", 30, 1e-2), ("heat", 30, 1e-2), ("heat", 5, 1e-3)]
    if args.form:
        cases = [(args.form, args.dim or 30, 1e-2)]
    print("| form | d | seed | true error | estimated | estimate / true | seconds |")
    print("|---|---|---|---|---|---|---|")
    for form, dim, mark in cases:
        stated, results = problem(form, dim), []
        t, x = hn.random_points(stated, 4096, seed=1)
        truth = exact(form, t, x)
        for seed in range(args.seeds):
            begin = time.perf_counter()
            u = hn.solve(stated, tol=0, seed=seed, seconds=args.seconds)
            seconds = time.perf_counter() - begin
            error = float(np.sqrt(np.mean((u(t, x) - truth) ** 2) / np.mean(truth**2)))
            estimated = u.stats["estimated_error"]
            results.append((error, estimated))
            print(
                f"| {form} | {dim} | {seed} | {error:.1e} | {estimated:.1e} | "
                f"{estimated / error:.2g} | {seconds:.0f} |",
                flush=True,
            )
        good = sum(error <= mark for error, _ in results)
        honest = sum(estimated >= error / 3 for error, estimated in results)
        print(f"{form}, d = {dim}: {good} of {len(results)} solved to {mark:g}, {honest} honest")


if __name__ == "__main__":
    main()
