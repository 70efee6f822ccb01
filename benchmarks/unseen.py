"""Three problems chosen after the defaults were frozen, solved by `hn.solve(problem, tol=0)`."""

from __future__ import annotations

import time

import jax.numpy as jnp
import numpy as np

import heatnets as hn


def rational(dim: int = 50) -> hn.Problem:
    """u = (1 + t) / (1 + |x|²/d): heavy tails, radial, with a source."""

    def u(t, x):
        return (1 + t) / (1 + x @ x / dim)

    def source(t, x):
        # Δ g(y) = 4y/d g'' + 2 g' with y = |x|²/d, g = 1/(1 + y).
        y = x @ x / dim
        return 1 / (1 + y) - (1 + t) * (8 * y / dim / (1 + y) ** 3 - 2 / (1 + y) ** 2)

    return hn.Problem(
        dim=dim,
        horizon=0.5,
        initial=lambda x: u(0.0, x),
        source=source,
        region=hn.Box(-2.0, 2.0),
        exact=u,
    )


def crossed_waves(dim: int = 20) -> hn.Problem:
    """u = e^{-t} tanh(a·x) cos(b·x), a and b orthogonal unit vectors: a front crossed by a wave."""
    a, b = np.linalg.qr(np.random.default_rng(5).standard_normal((dim, 2)))[0].T

    def u(t, x):
        return jnp.exp(-t) * jnp.tanh(a @ x) * jnp.cos(b @ x)

    def source(t, x):
        T = jnp.tanh(a @ x)
        return jnp.exp(-t) * jnp.cos(b @ x) * (-T + 2 * T * (1 - T**2) + T)

    return hn.Problem(
        dim=dim,
        horizon=1.0,
        initial=lambda x: u(0.0, x),
        source=source,
        region=hn.Box(-1.5, 1.5),
        exact=u,
    )


def mixture(dim: int = 8) -> hn.Problem:
    """Five Gaussian bumps of different widths and signs, D = 0.3, T = 1, on a normal region."""
    rng = np.random.default_rng(8)
    centres, variances, weights = (
        rng.normal(0, 0.5, (5, dim)),
        rng.uniform(0.5, 2.0, 5),
        rng.choice([-1.0, 1.0, 2.0], 5),
    )

    def u(t, x):
        wide = variances + 2 * 0.3 * t
        squares = jnp.sum((x - centres) ** 2, axis=1)
        return jnp.sum(weights * (variances / wide) ** (dim / 2) * jnp.exp(-squares / (2 * wide)))

    region = hn.Normal(0.0, 0.7)
    return hn.Problem(
        dim=dim, horizon=1.0, diffusion=0.3, initial=lambda x: u(0.0, x), region=region, exact=u
    )


if __name__ == "__main__":
    print(
        "| problem | d | relative L2 error | estimated | seconds | features | Monte "
        "Carlo, as many samples as features |\n|---|---|---|---|---|---|---|"
    )
    for make in (rational, crossed_waves, mixture):
        problem = make()
        start = time.perf_counter()
        u = hn.solve(problem, tol=0)
        seconds = time.perf_counter() - start
        t, x = hn.random_points(problem, 1000)
        exact, size = hn.exact_values(problem, t, x), u.stats["features"]
        error = hn.relative_errors(u(t, x), exact).l2
        direct = hn.relative_errors(
            hn.montecarlo.importance(problem, t, x, samples=sum(size)).value, exact
        ).l2
        print(
            f"| {make.__name__.replace('_', ' ')} | {problem.dim} | {error:.1e} | "
            f"{u.stats['estimated_error']:.1e} | {seconds:.0f} "
            f"| {size[0]} + {size[1]} | {direct:.1e} |",
            flush=True,
        )
