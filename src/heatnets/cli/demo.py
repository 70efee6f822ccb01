"""`heatnets demo | doctor`: a first solve, and a check of the installation."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from heatnets import __version__
from heatnets._core.errors import InputError, NumericalError
from heatnets.cli import terminal
from heatnets.cli.terminal import option


def demo(
    dim: Annotated[int, option("Number of space dimensions.", True)] = 100,
    seed: Annotated[int, option("Fixes every random stream.", True)] = 0,
    out: Annotated[Path, option("Where the picture goes (.png, .svg or .pdf).", True)] = Path(
        "heatnets-demo.png"
    ),
    as_json: terminal.JsonFlag = False,
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
    from heatnets.solvers.options import make_options
    from heatnets.summary import why_unsolved

    problem = hn.problems.get("oscillating", dim=dim)
    start = time.perf_counter()
    with terminal.SolveBar(console, make_options(problem, seed=seed)) as progress:
        u = hn.solve(problem, seed=seed, progress=progress)
    seconds = time.perf_counter() - start
    if u.solved is False:
        raise NumericalError(why_unsolved(u.stats))
    s = u.stats
    t, x = hn.random_points(problem, 1000, seed)
    exact = hn.exact_values(problem, t, x)
    errors = hn.relative_errors(u(t, x), exact)
    # Plain Monte Carlo at the first 100 points, with as many evaluations per point as the network.
    samples = 2 * sum(s["features"])
    estimate = hn.montecarlo.importance(problem, t[:100], x[:100], samples=samples, seed=seed)
    monte_carlo = hn.relative_errors(estimate.value, exact[:100])
    hn.plots.save(hn.plots.line(u), out)
    facts = {
        **u.summary(seconds=seconds).facts,
        "relative L2 error": f"{errors.l2:.1e} at 1000 random points (L∞ {errors.linf:.1e})",
        "plain Monte Carlo": f"{monte_carlo.l2:.1e} with as many evaluations per point",
        "picture": str(out),
    }
    terminal.print_table(console, facts)
    if as_json:
        content = {name: s[name] for name in ("features", "rows", "estimated_error", "seed")}
        content |= {"dim": dim, "seconds": seconds, "picture": str(out)}
        content |= {"errors": errors._asdict(), "monte_carlo": monte_carlo._asdict()}
        terminal.print_json(content)


def doctor(as_json: terminal.JsonFlag = False) -> None:
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

    packages = "jax jaxlib numpy scipy equinox folx matplotlib"
    problem = hn.problems.get("oscillating", dim=3)
    x64_flag = bool(jax.config.read("jax_enable_x64"))
    u = hn.solve(problem, features=(64, 128), rows=(600, 100), train_region=hn.Box(-3.2, 3.2))
    facts: dict[str, Any] = {
        "heatnets": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in packages.split()},
        "devices": [f"{d.platform}: {d.device_kind}" for d in jax.devices()],
        "precision": f"{u(0.1, [0.0] * 3).dtype} inside; your jax_enable_x64 is {x64_flag} "
        "and stays so",
        "small solve": f"relative L2 error {hn.measure(u, 500).l2:.1e} "
        "(3 dimensions, 192 features)",
    }
    if as_json:
        terminal.print_json(facts)
    else:
        terminal.print_table(terminal.console(), facts)
