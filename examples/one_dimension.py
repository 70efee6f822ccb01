"""One dimension: from u0 = 1/(1 + x²) u becomes a Voigt profile, which SciPy provides."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.special import voigt_profile

import heatnets as hn

T = 1.0
problem = hn.Problem(
    dim=1, horizon=T, initial=lambda x: 1 / (1 + x[0] ** 2), region=hn.Box(-5.0, 5.0)
)


def exact(t, x):
    """π times a Voigt profile.

    1/(1 + x²) is π times the Cauchy density; the heat equation convolves it with the normal density
    of variance 2t.
    """
    return np.pi * voigt_profile(x, np.sqrt(2 * t), 1.0)


def main(out: Path | None = None) -> dict[str, float]:
    u = hn.solve(problem, tol=1e-8)
    x = np.linspace(-5, 5, 401)
    values, truth = u(T, x[:, None]), exact(T, x)
    worst = float(np.max(np.abs(values - truth)))
    print(f"u(1, 0)         {values[200]:.4f}")
    print(f"exact           {truth[200]:.4f}")
    print(f"error, largest  {worst:.0e}")
    if out is not None:
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True)
        for t, colour in zip((0.0, 0.1, 0.3, 1.0), hn.plots.COLOURS, strict=False):
            above.plot(x, u(t, x[:, None]), color=colour, label=f"t = {t:g}")
            below.semilogy(
                x, np.maximum(np.abs(u(t, x[:, None]) - exact(t, x)), 1e-17), color=colour
            )
        above.set(ylabel="u(t, x)", title="1/(1 + x²) spreads: Voigt's profile")
        below.set(ylabel="|error|", xlabel="x")
        above.legend(frameon=False)
        hn.plots.save(figure, out)
    return {"value": float(values[200]), "exact": float(truth[200]), "error": worst}


if __name__ == "__main__":
    main(Path("one_dimension.png"))
