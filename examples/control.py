"""A Hamilton-Jacobi-Bellman equation in 50 dimensions: u_t = Δu - |∇u|².

u is the least cost of steering a Brownian motion.
"""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import heatnets as hn

d, T, c = (
    50,
    1.0,
    0.1,
)  # the cost at the end is c|x|², and on the way that of the control: ∇u is the best one
problem = hn.Problem(
    dim=d,
    horizon=T,
    initial=lambda x: c * jnp.sum(x**2),
    source=lambda t, x, u, du: -jnp.sum(du**2),
    exact=lambda t, x: d / 2 * jnp.log(1 + 4 * c * t) + c * jnp.sum(x**2) / (1 + 4 * c * t),
)


def main(out: Path | None = None) -> dict[str, float]:
    u = hn.solve(problem)
    x = np.zeros(d)
    value, exact, error = (
        float(u(T, x)),
        float(hn.exact_values(problem, T, x)),
        hn.measure(u, points=500).l2,
    )
    print(f"u(1, 0)          {value:.3f}")
    print(f"exact            {exact:.3f}")
    print(f"without control  {2 * c * d * T:.3f}")
    print(f"error, L2        {error:.0e}")
    if out is not None:
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        ax, s = figure.subplots(), np.linspace(-1, 1, 41)
        x = s[:, None] * np.ones(d)
        ax.plot(s, c * d * (s**2 + 2 * T), "--", color="#777777", label="without control")
        ax.plot(s, u(T, x), color=hn.plots.COLOURS[0], label="network")
        ax.plot(
            s[::4],
            hn.exact_values(problem, T, x[::4]),
            "o",
            mfc="none",
            color=hn.plots.COLOURS[1],
            label="exact",
        )
        ax.set(
            xlabel="position on the diagonal", ylabel="cost", title="least expected cost, d = 50"
        )
        ax.legend(frameon=False)
        hn.plots.save(figure, out)
    return {"value": value, "exact": exact, "error": error, "idle": 2 * c * d * T}


if __name__ == "__main__":
    main(Path("control.png"))
