"""Result files: read the manifest (`info`), or rebuild the solution (`load`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
import numpy as np

from heatnets import problems
from heatnets._core import container
from heatnets._core.errors import FileError, HeatnetsError, InputError, short_repr
from heatnets._core.execution import make_context
from heatnets._core.precision import with_x64
from heatnets.features.equation import build_equation, equation_values_only
from heatnets.features.features import Feature
from heatnets.features.storage import from_arrays
from heatnets.io.problem_files import from_toml
from heatnets.pde.fingerprint import differences, fingerprint
from heatnets.pde.preintegration import PreIntegration
from heatnets.pde.problem import Problem
from heatnets.solution import Solution
from heatnets.solvers.run import Round, SolveStats


def info(path: str | Path) -> dict[str, Any]:
    """Read the manifest of a result file. Every digest is checked; nothing is computed.

    Args:
        path: the file that `solution.save` wrote.

    Returns:
        A dictionary with versions, the text of the problem, and how it was solved.
    """
    return container.read(Path(path), "result")[0]


@with_x64
def load(path: str | Path, problem: Problem | None = None, *, device: Any = None) -> Solution:
    """Load a saved solution.

    Args:
        path: the file that `solution.save` wrote.
        problem: the problem that the file solves; not needed for a named problem or a TOML file.
            It is compared with values stored in the file.
        device: as in `hn.solve`.

    Returns:
        The solution, with the same values as when it was saved.
    """
    manifest, arrays = container.read(Path(path), "result")
    try:
        return _build_solution(Path(path), manifest, arrays, problem, device)
    except HeatnetsError:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise FileError(
            f"{path} is no complete result ({type(error).__name__}: {error}). Solve again."
        ) from None


def _build_solution(
    path: Path,
    manifest: dict[str, Any],
    arrays: dict[str, np.ndarray],
    problem: Problem | None,
    device: Any,
) -> Solution:
    """Build a solution from the content of its file and its problem."""
    if problem is None:
        problem = _stored_problem(path, manifest)
    if not isinstance(problem, Problem):
        raise InputError(f"`problem` must be a hn.Problem; got {short_repr(problem)}.")
    if messages := differences(fingerprint(problem), manifest["fingerprint"]):
        raise InputError(
            f"{path} solves another problem: {'; '.join(messages)}. Give the one that was solved."
        )
    stats = _read_stats(manifest["stats"])
    canonical = problem.canonical
    if manifest["guessed"] == "smoothly":
        canonical = canonical.with_smoothed_guess()
    if stats["solver"] == "near":
        canonical = replace(canonical, reaction_flow=None)
    if manifest.get("preintegration") is not None:  # earlier versions have none
        rule = PreIntegration.restore(
            manifest["preintegration"], arrays["axis"], canonical.initial, canonical.diffusion
        )
        canonical = replace(canonical, preintegration=rule)
    steps = canonical.feature_paths.noise_shape(canonical.dim)[:-1]
    weights = tuple(array for name, array in arrays.items() if name.startswith("weights "))
    # One matrix of shape (features, time_degree + 1) per block that is not empty.
    matrices = [w.reshape(len(w), -1) for w in weights if len(w)]
    ctx, blocks = make_context(device), list[Feature]()
    with ctx.active():
        if stats["laplacian"]:
            data, _ = build_equation(canonical, stats["seed"])
        else:
            data = equation_values_only(canonical)
        for i, description in enumerate(manifest["blocks"]):
            prefix = f"block {i} "
            parts = {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
            blocks.append(from_arrays(description, parts, steps, canonical.dim))
        if [w.shape for w in matrices] != [
            (len(b.initial_coefficient), stats["time_degree"] + 1) for b in blocks
        ]:
            raise FileError(f"{path}: weights and features do not belong together. Solve again.")
        flat = np.concatenate(matrices).T.reshape(-1)
        solution = Solution(canonical, data, blocks, jnp.asarray(flat), ctx, stats)
    solution.weights = weights
    return solution.with_problem(problem)


def _stored_problem(path: Path, manifest: dict[str, Any]) -> Problem:
    """The problem of a result file, from its TOML text or its name and parameters."""
    origin = manifest["origin"]
    if origin is None:
        raise InputError(
            f"{path} solves a problem given as Python functions, which are never stored: "
            f"{str(manifest['problem'])[:200]}. Give it again, hn.load(path, problem), or "
            "--problem FILE on the command line; hn.info(path) reads the rest."
        )
    if "toml" in origin:
        return from_toml(origin["toml"], str(path), origin.get("set")).problem
    return problems.get(origin["named"], **origin["parameters"])


def _read_stats(stored: dict[str, Any]) -> dict[str, Any]:
    """Convert stored `stats` from JSON types to the types that a solve returns."""
    # Results of earlier versions have no `check`.
    stats = {name: _freeze(value) for name, value in {"check": {}, **stored}.items()}
    history = tuple(Round(*row) for row in stats["history"])
    return vars(SolveStats(**{**stats, "history": history}))


def _freeze(value: Any) -> Any:
    """A JSON value with tuples for lists and read-only mappings for dictionaries."""
    if isinstance(value, dict):
        return MappingProxyType({name: _freeze(v) for name, v in value.items()})
    return tuple(map(_freeze, value)) if isinstance(value, list) else value
