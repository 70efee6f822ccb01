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
from heatnets.pde.fingerprint import differences
from heatnets.solvers.run import Run

_FORMAT = 3  # of the state; a checkpoint of another format is refused


class Checkpoint:
    """Checkpoint file of one adaptive solve; does nothing if the options name no file."""

    def __init__(self, run: Run) -> None:
        spec = run.options.checkpoint
        self.path = None if spec is None else spec.path
        self._identity = {} if spec is None else _identify(run, spec.problem)

    def find(self, kind: type[Any]) -> Any:
        """The state, of type `kind`, stored by an earlier run of the same solve, or None.

        Raises an `InputError` if the problem, the settings or the versions differ.
        """
        if self.path is None or not self.path.exists():
            return None
        manifest, arrays = container.read(self.path, "checkpoint")
        try:
            mismatches = _compare(self._identity, manifest["identity"])
            if not mismatches:
                return container.from_jsonable(kind, manifest["state"], arrays)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise FileError(
                f"{self.path} is no complete checkpoint ({error}). Remove it to begin anew."
            ) from None
        raise InputError(
            f"{self.path} belongs to another solve: {'; '.join(mismatches)}. "
            "Go back to that one, or remove the file to begin anew."
        )

    def keep(self, state: Any) -> None:
        """Write the state, replacing the file."""
        if self.path is not None:
            contents = {"identity": self._identity, "state": state}
            container.write(self.path, "checkpoint", contents, state.arrays)


def _identify(run: Run, fingerprint: dict[str, Any]) -> dict[str, Any]:
    """What identifies a solve: problem, settings, versions and a few random draws."""
    problem, options = run.problem, run.options
    counts = (2, 0 if problem.feature_source is None else 2)
    features = [run.draw(counts, design) for design in options.directions]
    points = options.train_region.sample(streams.generator(0, "train region"), 2, problem.dim)
    settings = options.identity | {
        "family": options.family.name,
        "directions": [design.name for design in options.directions],
        "train_region": points @ np.cos(np.arange(problem.dim)),  # identifies the region
        "draws": [float(np.sum(leaf)) for leaf in jax.tree.leaves(features)],
    }
    versions = {"heatnets": __version__, "jax": jax.__version__, "checkpoint": _FORMAT}
    return container.to_jsonable(
        {"problem": fingerprint, "settings": settings, "versions": versions}
    )


def _compare(identity: dict[str, Any], stored: dict[str, Any]) -> list[str]:
    """Differences between this solve and the stored one, as messages."""
    messages = differences(identity["problem"], stored["problem"])
    for part in ("versions", "settings"):
        for name in {**identity[part], **stored[part]}:
            ours, theirs = identity[part].get(name), stored[part].get(name)
            if ours != theirs:
                messages.append(f"`{name}` is {ours!r} here, {theirs!r} there")
    return messages
