"""Cells, the units of a reproduction: one solve or one estimate with its settings and outcome.

An outcome has `errors` and other values that are the same in every run, `measured` (seconds and
bytes of this run), and `made` (versions and device).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import platform
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from heatnets import __version__
from heatnets._core.errors import HeatnetsWarning
from heatnets.certify import montecarlo
from heatnets.metrics import exact_values, random_points, relative_errors
from heatnets.pde.problem import Problem
from heatnets.pde.regions import Box
from heatnets.problems import get
from heatnets.solution import Solution
from heatnets.solvers.entry import paper, solve

Progress = Callable[[str, int, int], None] | None
Options = dict[str, Any]
Outcome = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One computation.

    Attributes:
        key: its name in the files of results.
        kind: a key of `KINDS`; cells of other kinds are only read from files.
        problem: the name of the problem.
        parameters: the parameters of the problem.
        options: the options of this kind of computation.
        seed: the random seed.
    """

    key: str
    kind: str
    problem: str
    parameters: Options
    options: Options = field(default_factory=dict)
    seed: int = 0

    @property
    def settings(self) -> Options:
        """The settings that identify an outcome."""
        return {name: value for name, value in vars(self).items() if name != "key"}

    @property
    def cost(self) -> float:
        """A guess of its share of the time, for the progress bar."""
        base = 1.0 if self.kind in ("trained", "direct") else 5.0
        return base + 2e-3 * self.parameters.get("dim", 1)


def compute(cell: Cell, progress: Progress = None) -> Outcome:
    """Compute one cell."""
    problem = get(cell.problem, **cell.parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeatnetsWarning)  # the outcome contains them
        outcome = KINDS[cell.kind](problem, cell.options, cell.seed, progress)
    return {**outcome, "made": made()}


def network(problem: Problem, options: Options, seed: int, progress: Progress) -> Outcome:
    """Call `hn.solve`, and measure the errors.

    The default goes on until nothing is left to gain.
    Options: `seconds` (its limit), `runs` (the last run needs no compilation), those of
    `_errors`; for the paper's procedure `features`, `rows`, `train` (half width of the box of
    rows), `solve` (other keywords of `hn.solve`).
    """
    keywords: Options = {"tol": 0, "seconds": options.get("seconds")}
    if "features" in options:
        keywords = {**paper(*options["features"], *options["rows"]), **options.get("solve", {})}
    if "train" in options:
        keywords["train_region"] = Box(-options["train"], options["train"])
    u, measured = _timed_solve(problem, seed, progress, keywords, options.get("runs", 1))
    return {**_errors(u, options), **_facts(u, *_NETWORK), "measured": measured}


def semilinear(problem: Problem, options: Options, seed: int, progress: Progress) -> Outcome:
    """Call `hn.solve(problem)` for a source that depends on u, and certify one point.

    Options: `seconds`, `samples` of the certificate, `reference`. With `reference`, the value of u
    at the single point of the region, errors are those at this point. Without it the network is
    compared with the exact solution over the region, and certified at one of its points.
    """
    u, measured = _timed_solve(
        problem, seed, progress, {"tol": 0, "seconds": options.get("seconds")}
    )
    t, x = (a[0] for a in random_points(problem, 1, seed=seed))
    value, truth = float(u(t, x)), options.get("reference")
    if truth is None:
        error = _errors(u, {"points": 2000})["errors"]["l2"]
        truth = float(exact_values(problem, t, x))
    else:
        error = abs(value - truth) / abs(truth)
    start = time.perf_counter()
    cert = u.certify(t, x, samples=options["samples"], seed=seed)
    measured["certify"] = time.perf_counter() - start
    gap, halfwidth = abs(float(cert.value) - truth), float(cert.halfwidth)
    return {
        "error": error,
        "value": value,
        "reference": truth,
        "certified": bool(cert.certified),
        "reasons": list(cert.reasons),
        "certified_error": gap / abs(truth),
        "half": halfwidth / abs(truth),
        "ratio": gap / halfwidth,
        "inside": gap <= halfwidth,
        **_facts(u, "features", "rows", "time_degree", "iterations", "estimated_error", "warnings"),
        "measured": measured,
    }


def direct(problem: Problem, options: Options, seed: int, progress: Progress) -> Outcome:
    """Run a direct Monte Carlo estimator, and measure its relative L2 error in each repetition.

    Options: `estimator` (its name in `hn.montecarlo`), `samples`, `points`, `repetitions`.
    """
    estimator = getattr(montecarlo, options["estimator"])
    t, x = random_points(problem, options["points"])
    exact = exact_values(problem, t, x)
    start = time.perf_counter()
    errors = []
    for i in range(options["repetitions"]):
        estimate = estimator(problem, t, x, samples=options["samples"], seed=seed + i)
        errors.append(float(np.linalg.norm(estimate.value - exact) / np.linalg.norm(exact)))
        if progress is not None:
            progress("repetitions", i + 1, options["repetitions"])
    return {"l2": errors, "measured": {"wall": time.perf_counter() - start}}


KINDS: dict[str, Callable[..., Outcome]] = {
    "trained": network,
    "default": network,
    "semilinear": semilinear,
    "direct": direct,
}


def _timed_solve(
    problem: Problem, seed: int, progress: Progress, keywords: Options, runs: int = 1
) -> tuple[Solution, Outcome]:
    """Solve `runs` times (the last run needs no compilation).

    Returns:
        The solution, and seconds and bytes of the run.
    """
    walls = []
    for _ in range(runs):
        start = time.perf_counter()
        u = solve(problem, seed=seed, progress=progress, **keywords)
        walls.append(time.perf_counter() - start)
    phases, peak = dict(u.stats["seconds"]), u.stats["peak_bytes"]
    return u, {"wall": walls[-1], "first_wall": walls[0], "phases": phases, "peak_bytes": peak}


_NETWORK = (
    "features",
    "rows",
    "time_degree",
    "design",
    "antithetic",
    "solver",
    "ridge",
    "rank",
    "condition",
    "laplacian",
    "residual_held_out",
    "estimated_error",
    "warnings",
)


def _facts(u: Solution, *names: str) -> Outcome:
    """Some entries of `stats`."""
    facts = {name: u.stats[name] for name in names}
    return {name: dict(v) if isinstance(v, Mapping) else v for name, v in facts.items()}


def _errors(u: Solution, options: Options) -> Outcome:
    """Errors at random `points`, or on the paper's `grid` of times 0 ... T and the region.

    With the option `maps` also u and log10 |error| on the grid, for a figure.
    """
    n, region = options.get("grid"), u.problem.region
    if n is None:
        t, x = random_points(u.problem, options.get("points", 6000))
    else:
        assert isinstance(region, Box)
        axes = np.linspace(0, u.problem.horizon, n), np.linspace(region.low, region.high, n)
        times, points = np.meshgrid(*axes, indexing="ij")
        t, x = times.ravel(), points.reshape(-1, 1)
    value, exact = u(t, x), exact_values(u.problem, t, x)
    outcome: Outcome = {"errors": relative_errors(value, exact)._asdict()}
    if options.get("maps"):
        log_error = np.log10(np.maximum(np.abs(value - exact), 1e-17))
        outcome["maps"] = {"u": encode(value), "log10_error": encode(log_error)}
    return outcome


def encode(values: np.ndarray) -> str:
    """Encode numbers for a figure compactly: half precision, little-endian, in base 64."""
    return base64.b64encode(values.astype("<f2").tobytes()).decode()


def decode(text: str) -> np.ndarray:
    """Decode the numbers of `encode`."""
    return np.frombuffer(base64.b64decode(text), "<f2").astype(float)


@functools.cache
def made() -> Outcome:
    """Versions of the software and the device, for the outcome of a cell."""
    device = jax.devices()[0]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "heatnets": __version__,
        "source": source_digest(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("jax", "numpy", "scipy")},
        "device": device.device_kind if device.platform != "cpu" else f"{cores} CPU cores",
    }


@functools.cache
def source_digest() -> str:
    """Twelve hex digits of a hash of the package's source: identifies the code that made a cell."""
    digest = hashlib.sha256()
    root = Path(__file__).parent.parent
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
