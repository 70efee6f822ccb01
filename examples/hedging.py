"""Delta hedging along Black-Scholes paths: `u.function` and its gradient in a JAX simulation.

A bank sells a call on the geometric mean of five assets, and holds ∇u(t, S) of them until the end.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from matplotlib.figure import Figure

import heatnets as hn

d, T, K, r, sigma, rho = 5, 1.0, 100.0, 0.03, 0.25, 0.3
spot, steps, paths = 100.0, 52, 2000  # a hedge each week


def formula(t, x):
    left = jnp.maximum(T - t, 1e-12)  # the geometric mean is lognormal
    centre = jnp.mean(jnp.log(x)) + (r - sigma**2 / 2) * left
    width = sigma * jnp.sqrt((1 + (d - 1) * rho) / d * left)
    z = (centre - np.log(K)) / width
    forward = jnp.exp(centre + width**2 / 2)
    return jnp.exp(-r * left) * (forward * norm.cdf(z + width) - K * norm.cdf(z))


def payoff(x):
    return jnp.maximum(jnp.exp(jnp.mean(jnp.log(x))) - K, 0.0)


problem = hn.Problem(
    dim=d,
    horizon=T,
    terminal=payoff,
    process=hn.GeometricBrownian(volatility=sigma, growth=r, correlation=rho),
    reaction=-r,
    region=hn.Box(60.0, 160.0),
    exact=formula,
)


def simulate(delta, key):
    """One path of the assets (exact steps): the discounted payoff, and the gains of the hedge."""
    h = T / steps
    own, common = jnp.sqrt(1 - rho), jnp.sqrt(rho)

    def step(state, inputs):
        (x, gains), (k, noise) = state, inputs
        shocks = own * noise[:d] + common * noise[d]
        moved = x * jnp.exp((r - sigma**2 / 2) * h + sigma * jnp.sqrt(h) * shocks)
        change = jnp.exp(-r * (k + 1) * h) * moved - jnp.exp(-r * k * h) * x  # discounted
        return (moved, gains + delta(k * h, x) @ change), None

    inputs = (jnp.arange(steps), jax.random.normal(key, (steps, d + 1)))
    (x, gains), _ = jax.lax.scan(step, (jnp.full(d, spot), 0.0), inputs)
    return jnp.exp(-r * T) * payoff(x), gains


def main(out: Path | None = None) -> dict[str, float]:
    u = hn.solve(problem, seconds=5)  # finds the kink, and integrates it
    keys = jax.random.split(jax.random.key(0), paths)

    @jax.jit
    @jax.vmap
    def run(key):
        owed, gains = simulate(jax.grad(u.function, 1), key)
        return owed, gains, simulate(jax.grad(formula, 1), key)[1]

    owed, gains, gains_by_formula = run(keys)
    price, exact = float(u(0.0, np.full(d, spot))), float(formula(0.0, jnp.full(d, spot)))
    unhedged, hedged = price - owed, price - owed + gains  # what the bank earns, discounted
    by_formula = float(jnp.std(gains_by_formula - owed))
    value = float(jnp.mean(owed - gains))  # for every hedge its mean is the price
    print(f"price                  {price:.1f}")
    print(f"exact                  {exact:.1f}")
    print(f"mean cost of the hedge {value:.1f}")
    print(f"risk, not hedged       {jnp.std(unhedged):.1f}")
    print(f"risk, hedged           {jnp.std(hedged):.1f}")
    print(f"with the exact delta   {by_formula:.1f}")
    if out is not None:
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        ax = figure.subplots()
        for gain, label, colour in (
            (unhedged, "not hedged", hn.plots.COLOURS[1]),
            (hedged, "hedged each week", hn.plots.COLOURS[0]),
        ):
            name = f"{label}: standard deviation {jnp.std(gain):.1f}"
            ax.hist(gain, np.linspace(-50, 12, 125), color=colour, alpha=0.6, label=name)
        ax.set(
            xlabel="gain of the bank (discounted, in the currency of the spots)",
            ylabel="paths (log scale)",
            title="selling a call on five assets",
            yscale="log",
        )
        ax.legend(frameon=False, loc="upper left")
        hn.plots.save(figure, out)
    risks = {"risk": float(jnp.std(unhedged)), "hedged_risk": float(jnp.std(hedged))}
    return {"value": value, "exact": exact, **risks, "exact_risk": by_formula}


if __name__ == "__main__":
    main(Path("hedging.png"))
