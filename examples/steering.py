"""Steering with a solved Hamilton-Jacobi-Bellman equation: `u.function` inside a JAX simulation.

A particle dX = α dt + √2 dW in ten dimensions shall end near one of two targets. The effort
costs ∫ ¼|α|² dt, the end g(X_T), the squared distance to the nearer target (smoothed). The least
expected cost solves u_t + Δu - |∇u|² = 0, u(T, ·) = g, and the best control is α = -2∇u(t, X).
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import heatnets as hn

d, T, steps, paths = 10, 0.5, 100, 1000
m, w = 1.5, 0.6  # targets at ±m on the first axis, and their width


def cost(x, width=w):
    """-log of the mean of two Gaussians, of the variance `width`, at the targets."""
    squares = jnp.stack([(x[0] - m) ** 2, (x[0] + m) ** 2]) + jnp.sum(x[1:] ** 2)
    mixture = jax.nn.logsumexp(-squares / (2 * width)) - np.log(2)
    return d / 2 * jnp.log(width / w) - mixture


problem = hn.Problem(
    dim=d,
    horizon=T,
    terminal=cost,
    source=lambda t, x, u, du: -jnp.sum(du**2),
    region=hn.Box(-2, 2),
    exact=lambda t, x: cost(x, w + 2 * (T - t)),  # by Cole and Hopf: e^-u solves the heat equation
)


def simulate(slope, key):
    """One path from 0 that is steered with α = -2 slope(t, x): positions and cost.

    The martingale √2 ∇u·dW has mean zero for every control; without it the cost hardly varies.
    """
    h = T / steps

    def step(state, inputs):
        (x, effort, martingale), (k, noise) = state, inputs
        p, push = slope(k * h, x), jnp.sqrt(2 * h) * noise
        state = (x - 2 * p * h + push, effort + h * p @ p, martingale + p @ push)
        return state, x

    start = (jnp.zeros(d), 0.0, 0.0)
    inputs = (jnp.arange(steps), jax.random.normal(key, (steps, d)))
    (x, effort, martingale), positions = jax.lax.scan(step, start, inputs)
    total = effort + cost(x)
    return jnp.concatenate([positions, x[None]]), total, total - martingale


def main(out: Path | None = None) -> dict[str, float]:
    u = hn.solve(problem, seconds=5)
    keys = jax.random.split(jax.random.key(0), paths)
    controls = {"steered": jax.grad(u.function, 1), "left alone": lambda t, x: 0.0 * x}
    runs = {}
    for name, control in controls.items():
        runs[name] = jax.jit(jax.vmap(lambda key, slope=control: simulate(slope, key)))(keys)
    found = {name: float(jnp.mean(run[1])) for name, run in runs.items()}
    value = float(jnp.mean(runs["steered"][2]))
    exact = float(hn.exact_values(problem, 0.0, np.zeros(d)))
    print(f"least cost, u(0, 0)  {u(0.0, np.zeros(d)):.2f}")
    print(f"exact                {exact:.2f}")
    print(f"cost when steered    {value:.2f}")
    print(f"left alone           {found['left alone']:.1f}")
    if out is not None:
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        (left, right), t = figure.subplots(1, 2), np.linspace(0, T, steps + 1)
        for (name, (x, total, _)), colour in zip(runs.items(), hn.plots.COLOURS, strict=False):
            to_target = jnp.hypot(jnp.abs(x[..., 0]) - m, jnp.linalg.norm(x[..., 1:], axis=-1))
            low, middle, high = np.quantile(to_target, (0.1, 0.5, 0.9), axis=0)
            left.fill_between(t, low, high, color=colour, alpha=0.25, lw=0)
            left.plot(t, middle, color=colour, label=name)
            right.hist(total, np.linspace(0, 20, 41), color=colour, alpha=0.6, label=name)
        left.set(
            xlabel="t",
            ylabel="distance (median, 80 % of paths)",
            title="distance to the nearer target",
        )
        left.set_ylim(bottom=0)
        right.axvline(exact, color="#333333", ls="--", label="u(0, 0)")
        right.set(xlabel="cost", ylabel="paths", title="cost of each path")
        left.legend(frameon=False, loc="lower right")
        right.legend(frameon=False)
        hn.plots.save(figure, out)
    return {"value": value, "exact": exact, "left_alone": found["left alone"]}


if __name__ == "__main__":
    main(Path("steering.png"))
