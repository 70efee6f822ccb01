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
from collections.abc import Callable
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
from heatnets.reproduce import plain
from heatnets.solution import Solution
from heatnets.solvers.entry import paper, solve

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Cell:
    """One computation.

    Attributes:
        key: its name in the files of results.
        kind: a key of `KINDS`.
        problem: the name of the problem.
        parameters: the parameters of the problem.
        options: the options of this kind of computation.
        seed: the random seed.
        cost: a guess of its share of the time; not a part of `settings`.
    """

    key: str
    kind: str
    problem: str
    parameters: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    cost: float = 1.0

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that identify an outcome."""
        return {
            "kind": self.kind,
            "problem": self.problem,
            "parameters": self.parameters,
            "options": self.options,
            "seed": self.seed,
        }


def compute(cell: Cell, progress: Progress | None = None) -> dict[str, Any]:
    """Compute one cell."""
    problem = get(cell.problem, **cell.parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeatnetsWarning)  # the outcome contains them
        outcome = KINDS[cell.kind](problem, cell.options, cell.seed, progress)
    return {**outcome, "made": made()}


def trained(
    problem: Problem, options: dict[str, Any], seed: int, progress: Progress | None
) -> dict[str, Any]:
    """Train a network of fixed size by the paper's procedure.

    Options: `features`, `rows`, `train` (half width of the box of rows), `solve` (other keywords of
    `hn.solve`).
    """
    keywords = {**paper(*options["features"], *options["rows"]), **options.get("solve", {})}
    region = Box(-options["train"], options["train"]) if "train" in options else None
    return _solve_and_measure(
        problem, {**keywords, "train_region": region}, options, seed, progress
    )


def default(
    problem: Problem, options: dict[str, Any], seed: int, progress: Progress | None
) -> dict[str, Any]:
    """Call `hn.solve(problem)`; option: `seconds`, the time budget."""
    keywords = {"seconds": options.get("seconds")}
    return _solve_and_measure(problem, keywords, options, seed, progress)


def _solve_and_measure(
    problem: Problem,
    keywords: dict[str, Any],
    options: dict[str, Any],
    seed: int,
    progress: Progress | None,
) -> dict[str, Any]:
    """Solve `runs` times (the last run needs no compilation), and measure errors.

    The errors are those at `points` random points, or on a `grid`.
    """
    walls = []
    for _ in range(options.get("runs", 1)):
        start = time.perf_counter()
        u = solve(problem, seed=seed, progress=progress, **keywords)
        walls.append(time.perf_counter() - start)
    s = u.stats
    outcome = {
        **_measure(u, options),
        "features": list(s["features"]),
        "rows": list(s["rows"]),
        "time_degree": s["time_degree"],
        "design": s["design"],
        "antithetic": s["antithetic"],
        "solver": s["solver"],
        "ridge": s["ridge"],
        "rank": s["rank"],
        "condition": s["condition"],
        "laplacian": dict(s["laplacian"]),
        "residual_held_out": s["residual_held_out"],
        "estimated_error": s["estimated_error"],
        "warnings": list(s["warnings"]),
    }
    measured = {
        "wall": walls[-1],
        "first_wall": walls[0],
        "phases": dict(s["seconds"]),
        "peak_bytes": s["peak_bytes"],
    }
    return {**outcome, "measured": measured}


def _measure(u: Solution, options: dict[str, Any]) -> dict[str, Any]:
    """Errors at random points; or on the paper's grid of times 0 ... T and points of the region.

    With the option `maps` also u and log10 |error| on the grid, for a figure.
    """
    if "grid" not in options:
        t, x = random_points(u.problem, options.get("points", 6000))
        return {"errors": _errors(u(t, x), exact_values(u.problem, t, x))}
    n = options["grid"]
    region = u.problem.region
    assert isinstance(region, Box)
    times, points = np.meshgrid(
        np.linspace(0, u.problem.horizon, n), np.linspace(region.low, region.high, n), indexing="ij"
    )
    t, x = times.ravel(), points.reshape(-1, 1)
    value, exact = u(t, x), exact_values(u.problem, t, x)
    outcome: dict[str, Any] = {"errors": _errors(value, exact)}
    if options.get("maps"):
        gap = np.maximum(np.abs(value - exact), 1e-17)
        outcome["maps"] = {"u": encoded(value), "log10_error": encoded(np.log10(gap))}
    return outcome


def encoded(values: np.ndarray) -> str:
    """Encode numbers for a figure compactly: half precision, little-endian, in base 64."""
    return base64.b64encode(values.astype("<f2").tobytes()).decode()


def decoded(text: str) -> np.ndarray:
    """Decode the numbers of `encoded`."""
    return np.frombuffer(base64.b64decode(text), "<f2").astype(float)


def direct(
    problem: Problem, options: dict[str, Any], seed: int, progress: Progress | None
) -> dict[str, Any]:
    """Run a direct Monte Carlo estimator, and measure its relative L2 error in each repetition.

    Options: `estimator`, `samples`, `points`, `repetitions`.
    """
    estimators = {"importance": montecarlo.importance, "transformed": montecarlo.transformed}
    estimator = estimators[options["estimator"]]
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


def transcribed(
    problem: Problem, options: dict[str, Any], seed: int, progress: Progress | None
) -> dict[str, Any]:
    """Time a plain implementation of the paper's matrix on some rows, scaled to all `rows`."""
    return plain.measure(problem, options, seed)


def semilinear(
    problem: Problem, options: dict[str, Any], seed: int, progress: Progress | None
) -> dict[str, Any]:
    """Call `hn.solve(problem)` for a source that depends on u, and certify one point.

    With the option `reference`, the value of u at the single point of the region, errors are those
    at this point, of the network and of the certified value. Without it the network is compared
    with the exact solution over the region, and certified at one of its points.
    """
    start = time.perf_counter()
    u = solve(problem, seed=seed, progress=progress, seconds=options.get("seconds"))
    wall = time.perf_counter() - start
    reference, s = options.get("reference"), u.stats
    t, x = random_points(problem, 1, seed=seed)
    if reference is None:
        error = _measure(u, {"points": 2000})["errors"]["l2"]
        truth = float(exact_values(problem, t[0], x[0]))
    else:
        error, truth = abs(float(u(t[0], x[0])) - reference) / abs(reference), reference
    start = time.perf_counter()
    cert = u.certify(t[0], x[0], samples=options["samples"], seed=seed)
    certify_seconds = time.perf_counter() - start
    gap = abs(float(cert.value) - truth)
    return {
        "error": error,
        "value": float(u(t[0], x[0])),
        "reference": truth,
        "certified": bool(cert.certified),
        "reasons": list(cert.reasons),
        "certified_error": gap / abs(truth),
        "half": float(cert.halfwidth) / abs(truth),
        "ratio": gap / float(cert.halfwidth),
        "inside": gap <= float(cert.halfwidth),
        "features": list(s["features"]),
        "rows": list(s["rows"]),
        "time_degree": s["time_degree"],
        "iterations": [list(i) for i in s["iterations"]],
        "estimated_error": s["estimated_error"],
        "warnings": list(s["warnings"]),
        "measured": {
            "wall": wall,
            "certify": certify_seconds,
            "phases": dict(s["seconds"]),
            "peak_bytes": s["peak_bytes"],
        },
    }


KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "trained": trained,
    "default": default,
    "direct": direct,
    "plain": transcribed,
    "semilinear": semilinear,
}


def _errors(value: np.ndarray, exact: np.ndarray) -> dict[str, float]:
    """Relative errors as a dictionary for JSON."""
    return relative_errors(value, exact)._asdict()


@functools.cache
def made() -> dict[str, Any]:
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
