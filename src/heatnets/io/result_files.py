"""Solutions read back from files: what they say of themselves, and, with their problem, the function u(t, x)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from heatnets import problems
from heatnets._core import container
from heatnets._core.errors import FileError, HeatnetsError, InputError, short_repr
from heatnets._core.execution import make_context
from heatnets._core.precision import with_x64
from heatnets.features.equation import equation, values_only
from heatnets.features.features import Feature, unpacked
from heatnets.io.problem_files import from_toml
from heatnets.pde.fingerprint import differences, fingerprint
from heatnets.pde.problem import Problem
from heatnets.solution import Solution
from heatnets.solvers.state import Round


def info(path: str | Path) -> dict[str, Any]:
    """What a result file says of itself: versions, the problem's words, how it was solved. Every digest is checked; nothing is computed."""
    return container.read(Path(path), "result")[0]


@with_x64
def load(path: str | Path, problem: Problem | None = None, *, device: Any = None) -> Solution:
    """A solution that was saved.

    Args:
        path: the file that `solution.save` wrote.
        problem: the problem it solves; may be left out where that was a named problem or a TOML file. It is held against values kept in the file.
        device: as in `hn.solve`.
    """
    manifest, arrays = container.read(Path(path), "result")
    try:
        return _loaded(Path(path), manifest, arrays, problem, device)
    except (
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        if isinstance(error, HeatnetsError):
            raise
        raise FileError(
            f"{path} is no complete result ({type(error).__name__}: {error}). Solve again."
        ) from None


def _loaded(
    path: Path,
    manifest: dict[str, Any],
    arrays: dict[str, np.ndarray],
    given: Problem | None,
    device: Any,
) -> Solution:
    problem = _problem(path, manifest) if given is None else given
    if not isinstance(problem, Problem):
        raise InputError(f"`problem` must be a hn.Problem; got {short_repr(problem)}.")
    if found := differences(fingerprint(problem), manifest["fingerprint"]):
        raise InputError(
            f"{path} solves another problem: {'; '.join(found)}. Give the one that was solved."
        )
    stats = _stats(manifest["stats"])
    canonical = (
        problem.canonical.with_smoothed_guess()
        if manifest["guessed"] == "smoothly"
        else problem.canonical
    )
    if canonical.nonlinear is not None and stats["solver"] == "near":
        canonical = replace(canonical, reaction_flow=None)
    ctx = make_context(device)
    steps, blocks = canonical.feature_paths.normals(canonical.dim)[:-1], list[Feature]()
    weights = [
        arrays[f"weights {i}"] for i in range(sum(name.startswith("weights ") for name in arrays))
    ]
    with jax.default_device(ctx.device):
        data = (
            equation(canonical, stats["seed"])[0] if stats["laplacian"] else values_only(canonical)
        )
        for i, words in enumerate(manifest["blocks"]):
            own = {
                name.split(" ", 2)[2]: array
                for name, array in arrays.items()
                if name.startswith(f"block {i} ")
            }
            blocks.append(unpacked(words, own, steps, canonical.dim))
        full = [w if w.ndim == 2 else w[:, None] for w in weights if len(w)]
        if [len(w) for w in full] != [len(b.start) for b in blocks] or any(
            w.shape[1] != stats["time_degree"] + 1 for w in full
        ):
            raise FileError(f"{path}: weights and features do not belong together. Solve again.")
        flat = np.concatenate(full).T.reshape(-1)
        solution = Solution(canonical, data, blocks, jnp.asarray(flat), ctx, stats)
    solution.weights = tuple(weights)
    return solution.with_problem(problem)


def _problem(path: Path, manifest: dict[str, Any]) -> Problem:
    origin = manifest["origin"]
    if origin is None:
        raise InputError(
            f"{path} solves a problem given as Python functions, which are never stored: {str(manifest['problem'])[:200]}. "
            "Give it again, hn.load(path, problem), or --problem FILE on the command line; hn.info(path) reads the rest."
        )
    return (
        from_toml(origin["toml"], str(path)).problem
        if "toml" in origin
        else problems.get(origin["named"], **origin["parameters"])
    )


def _stats(words: dict[str, Any]) -> dict[str, Any]:
    """`stats` with the types that a solve gives them."""
    found = {
        name: tuple(value) if isinstance(value, list) else value for name, value in words.items()
    }
    found["seconds"] = MappingProxyType(words["seconds"])
    check = words.get("check", {})  # results of earlier versions have none
    found["check"] = MappingProxyType(
        {name: tuple(v) if isinstance(v, list) else v for name, v in check.items()}
    )
    found["iterations"] = tuple(map(tuple, words["iterations"]))
    found["history"] = tuple(map(Round.of, words["history"]))
    return found
