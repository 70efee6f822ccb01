"""A problem with a source in 20 dimensions: a heater that moves along the first axis.

The exact value is an integral over time, by quadrature.
"""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import heatnets as hn

d, T = 20, 0.5
wide = np.append(1.0, np.full(d - 1, d))  # the squared width of the heater, axis by axis
nodes, weights = np.polynomial.legendre.leggauss(64)


def heater(t, x):
    """A Gaussian whose centre oscillates along x_1."""
    return jnp.exp(-jnp.sum(x.at[0].add(-jnp.sin(2 * jnp.pi * t)) ** 2 / wide))


def exact(t, x):
    """The integral over all times before t of the heater, spread by the heat kernel."""
    lag = (t * (nodes + 1) / 2)[:, None]
    from_centre = jnp.tile(x, (64, 1)).at[:, :1].add(-jnp.sin(2 * jnp.pi * (t - lag)))
    bells = jnp.exp(
        -jnp.sum(from_centre**2 / (wide + 4 * lag) + 0.5 * jnp.log1p(4 * lag / wide), axis=1)
    )
    return t / 2 * jnp.sum(weights * bells)


problem = hn.Problem(
    dim=d, horizon=T, initial=lambda x: 0.0 * x[0], source=heater, exact=exact
)  # u_t = Δu + F, from u = 0


def main(out: Path | None = None) -> dict[str, float]:
    u = hn.solve(
        problem, features=(0, 128), antithetic=True, time_degree=3, collocation="paths"
    )  # a size, not a time
    x = np.zeros(d)
    value, truth, error = (
        float(u(T, x)),
        float(hn.exact_values(problem, T, x)),
        hn.measure(u, points=500).l2,
    )
    print(f"u(0.5, 0)  {value:.3f}")
    print(f"exact      {truth:.3f}")
    print(f"error, L2  {error:.0e}")
    if out is not None:
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        ax, s = figure.subplots(), np.linspace(-1, 1, 41)
        line = s[:, None] * np.eye(d)[0]
        for t, colour in zip((0.1, 0.25, 0.5), hn.plots.COLOURS, strict=False):
            ax.plot(s, u(t, line), color=colour, label=f"t = {t:g}")
            ax.plot(s[::4], hn.exact_values(problem, t, line[::4]), "o", mfc="none", color=colour)
        ax.set(xlabel="x_1", ylabel="u", title="a moving heater, d = 20 (circles: exact)")
        ax.legend(frameon=False)
        hn.plots.save(figure, out)
    return {"value": value, "exact": truth, "error": error}


if __name__ == "__main__":
    main(Path("forced.png"))
