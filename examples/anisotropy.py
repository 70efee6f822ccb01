"""Anisotropic diffusion with drift in ten dimensions: u_t = div(A ∇u) + b·∇u, u0 a Gaussian."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import heatnets as hn

d, T = 10, 1.0
strong = np.ones(d) / np.sqrt(d)  # along the diagonal it spreads sixteen times as fast as across
A = 0.2 * np.eye(d) + 3.0 * np.outer(strong, strong)
b = np.append(-1.0, np.zeros(d - 1))
rates, axes = np.linalg.eigh(A)


def exact(t, x):
    y, wide = (x + b * t) @ axes, 1 + 4 * rates * t / d
    return jnp.exp(-jnp.sum(y**2 / wide) / d - 0.5 * jnp.sum(jnp.log(wide)))


bell = lambda x: jnp.exp(-jnp.sum(x**2) / d)  # noqa: E731
problem = hn.Problem(
    dim=d, horizon=T, initial=bell, diffusion=A, drift=b, region=hn.Box(-2.0, 2.0), exact=exact
)


def main(out: Path | None = None) -> dict[str, float]:
    u = hn.solve(problem)
    value, truth, error = (
        float(u(T, np.zeros(d))),
        float(hn.exact_values(problem, T, np.zeros(d))),
        hn.measure(u, 500).l2,
    )
    print(f"u(1, 0)    {value:.3f}")
    print(f"exact      {truth:.3f}")
    print(f"error, L2  {error:.0e}")
    if out is not None:
        across = np.eye(d)[0] - strong * strong[0]
        across /= np.linalg.norm(across)
        s, r = np.meshgrid(np.linspace(-5, 5, 61), np.linspace(-5, 5, 61))
        plane = s[..., None] * strong + r[..., None] * across
        figure = Figure(figsize=(7.2, 3.4), layout="constrained")
        for ax, t in zip(figure.subplots(1, 2, sharey=True), (0.0, T), strict=True):
            shown = ax.contourf(
                s,
                r,
                u(t, plane.reshape(-1, d)).reshape(s.shape),
                levels=np.linspace(0, 1, 11),
                cmap="cividis",
            )
            ax.set(title=f"t = {t:g}", xlabel="along the diagonal", aspect="equal")
        figure.axes[0].set_ylabel("across it")
        figure.colorbar(shown, ax=figure.axes, label="u")
        hn.plots.save(figure, out)
    return {"value": value, "exact": truth, "error": error}


if __name__ == "__main__":
    main(Path("anisotropy.png"))
