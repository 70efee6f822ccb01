"""Programs that JAX compiles for five strikes: lambdas, partials, modules; a payoff with a kink.

    python benchmarks/sweep.py

A basket call in 5 dimensions, with a smooth payoff in all ways but the last; two rounds of growth
for each strike, without a compilation cache. Printed are, for each strike, the number of
compilations and the seconds.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import heatnets as hn

STRIKES = (-0.2, -0.1, 0.0, 0.1, 0.2)


def payoff(x: Any, strike: Any) -> Any:
    """A smooth call on the mean."""
    return jnp.logaddexp(0.0, 5 * (jnp.mean(x) - strike)) / 5


class Payoff(eqx.Module):
    """The same with the strike as an array field."""

    strike: Any

    def __call__(self, x: Any) -> Any:
        return payoff(x, self.strike)


def call(x: Any, strike: Any) -> Any:
    """A call on the mean, with its kink."""
    return jnp.maximum(jnp.mean(x) - strike, 0.0)


WAYS = {
    "lambda": lambda k: lambda x: payoff(x, k),
    "functools.partial": lambda k: partial(payoff, strike=k),
    "equinox module": lambda k: Payoff(np.asarray(k)),
    "partial, with a kink": lambda k: partial(call, strike=k),
}


def main() -> None:
    """Count and print."""
    jax.config.update("jax_enable_compilation_cache", False)
    compiled: list[str] = []

    def listen(event: str, duration: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    hn.solve(hn.Problem(5, 0.5, lambda x: jnp.sum(x)), max_rounds=2)  # what every solve needs
    for name, way in WAYS.items():
        counts, seconds = [], []
        for strike in STRIKES:
            compiled.clear()
            start = time.perf_counter()
            hn.solve(hn.Problem(5, 0.5, way(strike)), max_rounds=2)
            counts.append(len(compiled))
            seconds.append(f"{time.perf_counter() - start:.1f}")
        print(f"{name:20} compilations {counts}, seconds {', '.join(seconds)}", flush=True)


if __name__ == "__main__":
    main()
