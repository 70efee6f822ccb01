"""`heatnets demo | doctor`: a first solve, and a check of the installation."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from heatnets import __version__
from heatnets._core.errors import InputError, NumericalError
from heatnets.cli import terminal


def demo(
    dim: Annotated[int, typer.Option(help="Number of space dimensions.")] = 100,
    seed: Annotated[int, typer.Option(help="Fixes every random stream.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the picture goes (.png, .svg or .pdf).")] = Path(
        "heatnets-demo.png"
    ),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for machines.")
    ] = False,
) -> None:
    """Solve a forced heat equation in 100 dimensions, measure the error, draw a picture."""
    if out.suffix not in (".png", ".svg", ".pdf") or not out.parent.is_dir():
        raise InputError(
            f"`out` must be a .png, .svg or .pdf file in a folder that exists; got {out}."
        )
    console = terminal.console(as_json)
    console.print(
        f"u_t = Δu + F(t, x) in {dim} dimensions, u(t, x) = (t + e^-t) Σ sin(2 x_i) / √d known, "
        "0 <= t <= 0.5"
    )
    import heatnets as hn
    from heatnets.solution import why_unsolved

    problem = hn.problems.get("oscillating", dim=dim)
    start = time.perf_counter()
    with terminal.ProgressBars(console) as progress:
        u = hn.solve(problem, seed=seed, progress=progress)
    seconds = time.perf_counter() - start
    if u.solved is False:
        raise NumericalError(why_unsolved(u.stats))
    features, rows = u.stats["features"], u.stats["rows"]
    t, x = hn.random_points(problem, 1000, seed)
    exact = hn.exact_values(problem, t, x)
    errors = hn.relative_errors(u(t, x), exact)
    # Plain Monte Carlo at the first 100 points, with as many evaluations per point as the network.
    samples = 2 * sum(features)
    estimate = hn.montecarlo.importance(problem, t[:100], x[:100], samples=samples, seed=seed)
    monte_carlo = hn.relative_errors(estimate.value, exact[:100])
    hn.plots.save(hn.plots.line(u), out)
    s = u.stats
    facts = {
        "features": f"{features[0]} + {features[1]} pairs (initial condition + source), "
        f"directions {s['design']}",
        "rows": f"{rows[0]} (the equation), the initial condition exactly",
        "least squares": f"{s['solver']}, rank {s['rank']}, condition {s['condition']:.1e}",
        "time": f"{seconds:.1f} s, of which {s['seconds']['compile']:.1f} s compilation, "
        f"on {s['device']}",
        "estimated error": f"{s['estimated_error']:.1e} (relative L2, without the exact solution)",
        "relative L2 error": f"{errors.l2:.1e} at 1000 random points (L∞ {errors.linf:.1e})",
        "plain Monte Carlo": f"{monte_carlo.l2:.1e} with as many evaluations per point",
        "picture": str(out),
    }
    console.print(terminal.facts(facts))
    if as_json:
        content = {
            "dim": dim,
            "seed": seed,
            "features": features,
            "rows": rows,
            "seconds": seconds,
            "errors": errors._asdict(),
            "estimated_error": s["estimated_error"],
            "monte_carlo": monte_carlo._asdict(),
            "picture": str(out),
        }
        print(json.dumps(content))


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for machines.")
    ] = False,
) -> None:
    """Print devices, precision and versions, and check a small solve."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    import jax

    import heatnets as hn

    def version(name: str) -> str:
        try:
            return installed(name)
        except PackageNotFoundError:
            return "not installed as a package"

    problem = hn.problems.get("oscillating", dim=3)
    x64_flag = bool(jax.config.read("jax_enable_x64"))
    u = hn.solve(problem, features=(64, 128), rows=(600, 100), train_region=hn.Box(-3.2, 3.2))
    facts: dict[str, Any] = {
        "heatnets": __version__,
        "python": platform.python_version(),
        **{
            name: version(name)
            for name in ("jax", "jaxlib", "numpy", "scipy", "equinox", "folx", "matplotlib")
        },
        "devices": [f"{d.platform}: {d.device_kind}" for d in jax.devices()],
        "precision": f"{u(0.1, [0.0] * 3).dtype} inside; your jax_enable_x64 is {x64_flag} "
        "and stays so",
        "small solve": f"relative L2 error {hn.measure(u, 500).l2:.1e} "
        "(3 dimensions, 192 features)",
    }
    if as_json:
        print(json.dumps(facts))
        return
    terminal.console().print(terminal.facts(facts))
