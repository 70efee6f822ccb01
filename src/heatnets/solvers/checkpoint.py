"""Checkpoint file of an adaptive solve: written after each round, read to continue the solve.

Matrix entries are not stored. They are recomputed, and are the same to the last bit.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from heatnets import __version__
from heatnets._core import container, streams
from heatnets._core.errors import FileError, InputError
from heatnets.pde.canonical import CanonicalProblem
from heatnets.pde.fingerprint import differences
from heatnets.solvers.options import AdaptiveOptions


class Checkpoint:
    """Checkpoint file of one adaptive solve; does nothing if the options name no file.

    `way` is the type of the rows ("equation rows" or "mild rows").
    """

    def __init__(self, options: AdaptiveOptions, problem: CanonicalProblem, way: str) -> None:
        spec = options.checkpoint
        self.path = None if spec is None else spec.path
        self._identity = {} if spec is None else _describe(options, spec.problem, problem, way)

    def find(self) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """State and arrays stored by an earlier run of the same solve, or None.

        Raises an `InputError` if the problem, the settings or the versions differ.
        """
        if self.path is None or not self.path.exists():
            return None
        manifest, arrays = container.read(self.path, "checkpoint")
        try:
            mismatches = _compare(self._identity, manifest["identity"])
            state = manifest["state"]
        except (KeyError, TypeError, AttributeError) as error:
            raise FileError(
                f"{self.path} is no complete checkpoint ({error}). Remove it to begin anew."
            ) from None
        if mismatches:
            raise InputError(
                f"{self.path} belongs to another solve: {'; '.join(mismatches)}. "
                "Go back to that one, or remove the file to begin anew."
            )
        return state, arrays

    def keep(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write the state, replacing the file."""
        if self.path is not None:
            contents = {"identity": self._identity, "state": container.words(state)}
            container.write(self.path, "checkpoint", contents, arrays)


def _describe(
    options: AdaptiveOptions, fingerprint: dict[str, Any], problem: CanonicalProblem, way: str
) -> dict[str, Any]:
    """What identifies a solve: problem, settings, versions, a few random draws, type of rows."""
    counts = (2, 0 if problem.source is None else 2)
    features = [
        options.family.draw(problem, counts, design, options.seed, options.antithetic)
        for design in options.designs
    ]
    rng = streams.generator(0, "train region")
    points = options.train_region.sample(rng, 2, problem.dim)
    description = {
        "family": options.family.name,
        "directions": [design.name for design in options.designs],
        "antithetic": options.antithetic,
        "time_degree": options.time_degree,
        "collocation": options.collocation,
        "train_region": points @ np.cos(np.arange(problem.dim)),  # identifies the region
        "enforce": options.enforce,
        "solver": options.solver,
        "rcond": options.rcond,
        "iteration": options.iteration,
        "seed": options.seed,
        "tol": options.tol,
        "draws": [float(np.sum(leaf)) for leaf in jax.tree.leaves(features)],
    }
    versions = {"heatnets": __version__, "jax": jax.__version__}
    return container.words(
        {"problem": fingerprint, "settings": description, "versions": versions, "rows": way}
    )


def _compare(identity: dict[str, Any], stored: dict[str, Any]) -> list[str]:
    """Differences between this solve and the stored one, as messages."""
    messages = differences(identity["problem"], stored["problem"])
    for part in ("settings", "versions"):
        for name in {**identity[part], **stored[part]}:
            ours, theirs = identity[part].get(name), stored[part].get(name)
            if ours != theirs:
                messages.append(f"`{name}` is {ours!r} here, {theirs!r} there")
    if messages or identity["rows"] == stored["rows"]:
        return messages
    return [f"rows are {identity['rows']} here, {stored['rows']} there"]
