"""`heatnets demo | doctor`: a first solve, and a check of the installation."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from heatnets import __version__
from heatnets._core.errors import InputError, NumericalError
from heatnets.cli import terminal
from heatnets.cli.terminal import option

_DEMO_TOLERANCE = 1e-3


def demo(
    dim: Annotated[int, option("Number of space dimensions.", True)] = 100,
    seed: Annotated[int, option("Fixes every random stream.", True)] = 0,
    out: Annotated[Path, option("Where the picture goes (.png, .svg or .pdf).", True)] = Path(
        "heatnets-demo.png"
    ),
    as_json: terminal.JsonFlag = False,
) -> None:
    """Solve a control problem in 100 dimensions, compare with its exact value, draw a picture."""
    if out.suffix not in (".png", ".svg", ".pdf") or not out.parent.is_dir():
        raise InputError(
            f"`out` must be a .png, .svg or .pdf file in a folder that exists; got {out}."
        )
    console = terminal.console(as_json)
    console.print(
        f"The least cost of steering in {dim} dimensions: the Hamilton-Jacobi-Bellman equation\n"
        f"u_t = Δu - |∇u|², u(0, x) = log((1 + |x|²)/2), for x in [-1, 1]^{dim}, 0 <= t <= 1"
    )
    import heatnets as hn
    from heatnets.solvers.options import make_options
    from heatnets.summary import why_unsolved

    at_point = hn.problems.get("hamilton-jacobi", dim=dim)
    problem = hn.Problem(dim, 1.0, at_point.initial, source=at_point.source, exact=at_point.exact)
    options: dict[str, Any] = {"tol": _DEMO_TOLERANCE, "seed": seed}
    start = time.perf_counter()
    with terminal.SolveBar(console, make_options(problem, **options)) as progress:
        u = hn.solve(problem, progress=progress, **options)
    seconds = time.perf_counter() - start
    if u.solved is False:
        raise NumericalError(why_unsolved(u.stats))
    x = [0.0] * dim
    value, exact = (float(v) for v in (u(1.0, x), hn.exact_values(problem, 1.0, x)))
    half = u.stats["estimated_error"] * abs(value)
    hn.plots.save(hn.plots.line(u, times=[0.1, 0.5, 1.0]), out)
    more = {
        "u(1, 0)": f"{value:.4f} ± {half:.1g} (estimated, without the exact value)",
        "exact value": f"{exact:.4f}: u is off by {abs(value - exact):.1g}",
        "picture": str(out),
    }
    console.print(u.summary(seconds=seconds, more=more))
    if as_json:
        names = ("features", "rows", "estimated_error", "tolerance_met", "seed")
        content = {name: u.stats[name] for name in names}
        content |= {"dim": dim, "seconds": seconds, "picture": str(out)}
        content |= {"value": value, "halfwidth": half, "exact": exact}
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
