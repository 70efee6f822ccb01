"""Growths that can be gone on with: after each round what was decided and found, in one file; entries are computed again, bit by bit the same."""

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
    """The file of one growth; without a path it keeps nothing."""

    def __init__(self, settings: AdaptiveOptions, problem: CanonicalProblem, way: str) -> None:
        self.path = None if settings.checkpoint is None else settings.checkpoint.path
        self._known = (
            {}
            if settings.checkpoint is None
            else _identity(settings, settings.checkpoint.problem, problem, way)
        )

    def find(self) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """What an earlier run of the same growth kept, or None; refused where the problem, the settings or the versions are others."""
        if self.path is None or not self.path.exists():
            return None
        there, arrays = container.read(self.path, "checkpoint")
        try:
            found, state = _compare(self._known, there["identity"]), there["state"]
        except (KeyError, TypeError, AttributeError) as error:
            raise FileError(
                f"{self.path} is no complete checkpoint ({error}). Remove it to begin anew."
            ) from None
        if found:
            raise InputError(
                f"{self.path} belongs to another solve: {'; '.join(found)}. Go back to that one, or remove the file to begin anew."
            )
        return state, arrays

    def keep(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        if self.path is not None:
            container.write(
                self.path,
                "checkpoint",
                {"identity": self._known, "state": container.words(state)},
                arrays,
            )


def _identity(
    settings: AdaptiveOptions, fingerprint: dict[str, Any], canonical: CanonicalProblem, way: str
) -> dict[str, Any]:
    counts = (2, 0 if canonical.source is None else 2)
    drawn = [
        settings.family.draw(canonical, counts, d, settings.seed, settings.antithetic)
        for d in settings.designs
    ]
    some = settings.train_region.sample(streams.generator(0, "train region"), 2, canonical.dim)
    chosen = {
        "family": settings.family.name, "directions": [d.name for d in settings.designs], "antithetic": settings.antithetic, "time_degree": settings.time_degree,
        "collocation": settings.collocation, "train_region": some @ np.cos(np.arange(canonical.dim)), "enforce": settings.enforce, "solver": settings.solver, "rcond": settings.rcond,
        "iteration": settings.iteration, "seed": settings.seed, "tol": settings.tol, "draws": [float(np.sum(leaf)) for leaf in jax.tree.leaves(drawn)],
    }  # fmt: skip
    versions = {"heatnets": __version__, "jax": jax.__version__}
    return container.words(
        {"problem": fingerprint, "settings": chosen, "versions": versions, "rows": way}
    )


def _compare(here: dict[str, Any], there: dict[str, Any]) -> list[str]:
    """In which respects two growths are not the same."""
    said = differences(here["problem"], there["problem"])
    for part in ("settings", "versions"):
        for name in {**here[part], **there[part]}:
            ours, theirs = here[part].get(name), there[part].get(name)
            if ours != theirs:
                said.append(f"`{name}` is {ours!r} here, {theirs!r} there")
    return said or (
        []
        if here["rows"] == there["rows"]
        else [f"rows are {here['rows']} here, {there['rows']} there"]
    )
