"""The Allen-Cahn equation in ten dimensions, u_t = Δu + u - u³, against a radial reduction."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp

import heatnets as hn

d, T, origin = 10, 0.3, np.zeros(10)
u0 = lambda square: 1 / (2 + 0.4 * square)  # noqa: E731
problem = hn.Problem(
    dim=d,
    horizon=T,
    initial=lambda x: u0(x @ x),
    source=lambda t, x, u: u - u**3,
    region=hn.Point(origin),
)
r, h = np.linspace(0, 9, 901, retstep=True)


def radial(t, u):
    """u_rr + (d - 1)/r u_r + u - u³ by central differences; at r = 0 the Laplacian is d u_rr."""
    after, before = np.append(u[1:], u[-1]), np.append(u[1], u[:-1])
    bend, slope = (after - 2 * u + before) / h**2, (after - before) / (2 * h)
    return bend + (d - 1) * np.where(r > 0, slope / np.maximum(r, h), bend) + u - u**3


def main(out: Path | None = None) -> dict[str, float]:
    u = hn.solve(problem)
    value, estimate = float(u(T, origin)), u.stats["estimated_error"]
    grid = solve_ivp(radial, (0, T), u0(r**2), "LSODA", rtol=1e-8, atol=1e-10, lband=1, uband=1).y[
        :, -1
    ]
    print(f"u(0.3, 0)         {value:.3f}")
    print(f"radial grid       {grid[0]:.3f}")
    print(f"error, estimated  {estimate:.0e}")
    if out is not None:
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        ax, some = figure.subplots(), slice(0, 401, 10)
        for t, colour in zip((0.0, T), hn.plots.COLOURS, strict=False):
            ax.plot(
                r[some],
                u(t, r[some, None] * np.ones(d) / np.sqrt(d)),
                color=colour,
                label=f"t = {t:g}",
            )
        ax.plot(
            r[some], grid[some], "o", mfc="none", color=hn.plots.COLOURS[1], label="radial grid"
        )
        ax.set(xlabel="|x|", ylabel="u", title="Allen-Cahn, d = 10, solved for the origin")
        ax.legend(frameon=False)
        hn.plots.save(figure, out)
    return {"value": value, "exact": float(grid[0]), "error": estimate}


if __name__ == "__main__":
    main(Path("allen_cahn.png"))
