"""The heat equation in 1000 dimensions from a Gaussian, against its closed form."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np

import heatnets as hn

d, T = 1000, 0.5
bell = lambda x: jnp.exp(-jnp.sum(x**2) / d)  # noqa: E731
# u_t = Δu on R^1000. The Laplacian may be omitted: heatnets then computes it, which takes some
# seconds more.
problem = hn.Problem(
    dim=d,
    horizon=T,
    initial=hn.Function(bell, laplacian=lambda x: (4 * jnp.sum(x**2) / d**2 - 2) * bell(x)),
    exact=lambda t, x: (1 + 4 * t / d) ** (-d / 2) * jnp.exp(-jnp.sum(x**2) / (d + 4 * t)),
)


def main(out: Path | None = None) -> dict[str, float]:
    u = hn.solve(problem)
    x = np.full(d, 0.5)
    value, exact = float(u(T, x)), float(hn.exact_values(problem, T, x))
    sure = u.certify(T, x, samples=512)
    error = hn.measure(u, points=500).l2
    print(f"u(0.5, x)         {value:.3f}")
    print(f"exact             {exact:.3f}")
    print(f"error, L2         {error:.0e}")
    print(f"error, certified  {sure.halfwidth:.0e}")
    if out is not None:
        hn.plots.save(hn.plots.line(u), out)
    return {
        "value": value,
        "exact": exact,
        "error": error,
        "low": float(sure.low),
        "high": float(sure.high),
    }


if __name__ == "__main__":
    main(Path("heat_1000.png"))
