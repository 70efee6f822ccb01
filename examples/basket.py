"""A call on the geometric mean of ten correlated assets, with its delta: Black-Scholes."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from matplotlib.figure import Figure

import heatnets as hn

d, T, K, r, sigma, rho = 10, 1.0, 100.0, 0.03, 0.25, 0.3
spot = np.full(d, 100.0)


def formula(t, x):
    left = jnp.maximum(T - t, 1e-12)  # the geometric mean is lognormal
    centre, width = (
        jnp.mean(jnp.log(x)) + (r - sigma**2 / 2) * left,
        sigma * jnp.sqrt((1 + (d - 1) * rho) / d * left),
    )
    z = (centre - np.log(K)) / width
    return jnp.exp(-r * left) * (
        jnp.exp(centre + width**2 / 2) * norm.cdf(z + width) - K * norm.cdf(z)
    )


payoff = lambda x: jnp.maximum(jnp.exp(jnp.mean(jnp.log(x))) - K, 0.0)  # noqa: E731
assets = hn.GeometricBrownian(volatility=sigma, growth=r, correlation=rho)
region = hn.Box(0.8 * spot, 1.2 * spot)
problem = hn.Problem(
    dim=d, horizon=T, terminal=payoff, process=assets, reaction=-r, region=region, exact=formula
)


def main(out: Path | None = None) -> dict[str, float]:
    u = hn.solve(problem, seconds=4)  # finds the kink, and integrates it
    price, delta = u.certify(0.0, spot, halfwidth=0.05), u.certify_gradient(0.0, spot)
    exact, slope = float(hn.exact_values(problem, 0.0, spot)), hn.exact_gradient(problem, 0.0, spot)
    inside = float(np.mean((delta.low < slope) & (slope < delta.high)))
    print(f"price             {price.value:.1f}")
    print(f"exact             {exact:.1f}")
    print(f"error, certified  {price.halfwidth:.0e}")
    print(f"delta, summed     {delta.value.sum():.2f}")
    print(f"exact             {slope.sum():.2f}")
    if out is not None:
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        ax, s = figure.subplots(), np.linspace(80, 120, 41)
        together = s[:, None] * np.ones(d)
        for t, colour in zip((0.0, 0.5, T), hn.plots.COLOURS, strict=False):
            ax.plot(
                s, u(t, together), color=colour, label=f"t = {t:g}" + (": payoff" if t == T else "")
            )
            ax.plot(
                s[::4], hn.exact_values(problem, t, together[::4]), "o", mfc="none", color=colour
            )
        ax.set(
            xlabel="all ten spots",
            ylabel="price",
            title="call on a geometric mean (circles: formula)",
        )
        ax.legend(frameon=False)
        hn.plots.save(figure, out)
    found = {
        "value": float(price.value),
        "exact": exact,
        "low": float(price.low),
        "high": float(price.high),
    }
    return found | {
        "delta": float(delta.value.sum()),
        "exact_delta": float(slope.sum()),
        "inside": inside,
    }


if __name__ == "__main__":
    main(Path("basket.png"))
