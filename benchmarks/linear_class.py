"""Linear problems with default options: errors, certificates, deltas, seconds, for several seeds.

    python benchmarks/linear_class.py                    all cases
    python benchmarks/linear_class.py --seeds 1 --cases ornstein-uhlenbeck geometric-basket

Finished cases are stored in benchmark-linear/; a second run computes only the missing ones. Prices
are also measured at the spot, over a box of ±20 % and with all assets moved together by
0.8 ... 1.2. The max-call has no closed form: its reference is a plain Monte Carlo of ten million
paths, by NumPy, in this file.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from processes import over_seeds

import heatnets as hn
from heatnets.problems.finance import market

SPOT = 100.0
CASES: dict[
    str, tuple[str, dict[str, Any], float]
] = {  # name of the problem, its parameters, seconds
    **{
        f"{name} d={d}": (name, {"dim": d}, 60.0)
        for name in hn.problems.names("linear")[:3]
        for d in (10, 100, 500)
    },
    "ornstein-uhlenbeck d=100": ("ornstein-uhlenbeck", {"dim": 100}, 60.0),
    **{f"{name} d=20": (name, {"dim": 20}, 60.0) for name in hn.problems.names("variable")},
    "rotating d=100": ("rotating", {"dim": 100}, 60.0),
    "barenblatt d=100": ("barenblatt", {"dim": 100}, 60.0),
    **{
        f"geometric-basket d={d}, spot": ("geometric-basket", {"dim": d}, 120.0)
        for d in (5, 50, 200)
    },
    **{
        f"geometric-basket d={d}, box": ("geometric-basket", {"dim": d, "region": "box"}, 120.0)
        for d in (5, 50, 200)
    },
    "max-call d=10": ("max-call", {"dim": 10}, 120.0),
}


def best_of(
    dim: int, horizon: float = 1.0, strike: float = 100.0, rate: float = 0.03, paths: int = 10**7
) -> tuple[float, float]:
    """The price of the max-call at the spot by plain Monte Carlo, and its standard error."""
    volatility, correlation = market(dim)
    root, rng, found = np.linalg.cholesky(correlation), np.random.default_rng(0), []
    for _ in range(100):
        ends = rng.standard_normal((paths // 100, dim)) @ root.T
        log = (rate - 0.5 * volatility**2) * horizon + volatility * np.sqrt(horizon) * ends
        found.append(np.maximum(SPOT * np.exp(log.max(axis=1)) - strike, 0.0))
    values = np.exp(-rate * horizon) * np.concatenate(found)
    return float(values.mean()), float(values.std() / np.sqrt(paths))


def case(label: str, seed: int) -> dict[str, Any]:
    name, parameters, seconds = CASES[label]
    spot = np.full(parameters["dim"], SPOT)
    given = {
        **parameters,
        **({"region": hn.Box(0.8 * spot, 1.2 * spot)} if parameters.get("region") == "box" else {}),
    }
    problem = hn.problems.get(name, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        start = time.perf_counter()
        u = hn.solve(problem, tol=0, seed=seed, seconds=seconds)
        took = time.perf_counter() - start
        found: dict[str, Any] = {
            "seconds": took,
            "features": list(u.stats["features"]),
            "estimated": u.stats["estimated_error"],
        }
        t, x = hn.random_points(problem, 1, seed=seed)
        if name == "max-call":
            reference, noise = best_of(problem.dim)
            start = time.perf_counter()
            sure = u.certify(0.0, spot, halfwidth=0.002 * reference, seed=seed)
            found |= {
                "certify_seconds": time.perf_counter() - start,
                "reference": reference,
                "noise": noise,
            }
            gap, half = abs(float(sure.value) - reference) - 2 * noise, float(sure.halfwidth)
            found |= {
                "error": abs(float(u(0.0, spot)) - reference) / reference,
                "half": half / reference,
            }
            return found | {
                "certified": bool(sure.certified),
                "inside": gap <= half,
                "ratio": max(gap, 0.0) / half,
            }
        found["error"] = hn.measure(u, 2000).l2
        samples = 1024 if problem.canonical.coefficients is not None else 4096
        sure, exact = (
            u.certify(t[0], x[0], samples=samples, seed=seed),
            float(hn.exact_values(problem, t[0], x[0])),
        )
        gap, half = abs(float(sure.value) - exact), float(sure.halfwidth)
        found |= {
            "certified": bool(sure.certified),
            "inside": gap <= half,
            "ratio": gap / half,
            "half": half / abs(exact),
        }
        if name == "geometric-basket":
            t, x = hn.random_points(problem, 200, seed=1)
            found["delta"] = hn.relative_errors(
                u.gradient(t, x), hn.exact_gradient(problem, t, x)
            ).l2
            slope = u.certify_gradient(t[0], x[0], seed=seed)
            found["certified_delta"] = hn.relative_errors(
                slope.value, hn.exact_gradient(problem, t[0], x[0])
            ).l2
            together = np.linspace(0.8, 1.2, 21)[:, None] * spot
            found["together"] = hn.relative_errors(
                u(0.0, together), hn.exact_values(problem, 0.0, together)
            ).l2
    return found


def summary(cells: list[dict[str, Any]]) -> str:
    lines = [
        (
            "| case | seeds | error: median | worst | delta: median | worst | certified "
            "delta: worst | moved together: worst | certified | inside | worst, half-widths | "
            "seconds: worst |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for label in dict.fromkeys(c["settings"]["case"] for c in cells):
        here = [c for c in cells if c["settings"]["case"] == label]

        def worst(key: str, how: Any = max, here: list[dict[str, Any]] = here) -> str:
            values = [c[key] for c in here if key in c]
            return f"{how(values):.1e}" if values else ""

        sure = [c for c in here if c["certified"]]
        lines.append(
            f"| {label} | {len(here)} | {worst('error', np.median)} | {worst('error')} | "
            f"{worst('delta', np.median)} | {worst('delta')} | {worst('certified_delta')} "
            f"| {worst('together')} | {len(sure)} | {sum(c['inside'] for c in sure)} | "
            f"{max((c['ratio'] for c in sure), default=0):.1f} | "
            f"{max(c['seconds'] for c in here):.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    over_seeds(__file__, __doc__, "linear", CASES, case, summary)
