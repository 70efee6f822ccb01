"""Checkpoint file of an adaptive solve: written after each round, read to continue the solve.

Matrix entries are not stored. They are recomputed, and are the same to the last bit.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from heatnets._core import container
from heatnets._core.errors import FileError, InputError
from heatnets.solvers.identity import compare, identify
from heatnets.solvers.run import Run


class Checkpoint:
    """Checkpoint file of one adaptive solve; does nothing if the options name no file."""

    def __init__(self, run: Run) -> None:
        spec = run.options.checkpoint
        self.path = None if spec is None else spec.path
        self._identity = {} if spec is None else identify(run, spec.problem)
        self._processes = run.ctx.processes
        if self.path is not None:
            self._processes.remedy = (
                f"Finished rounds are in {self.path}: the same solve, with any number of "
                "processes, goes on from there."
            )

    def find(self, kind: type[Any]) -> Any:
        """The state, of type `kind`, stored by an earlier run of the same solve, or None.

        Raises an `InputError` if the problem, the settings or the versions differ.
        """
        stored = self._read()
        if stored is None:
            return None
        manifest, arrays = stored
        try:
            mismatches = compare(self._identity, manifest["identity"])
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

    def _read(self) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """The manifest and the arrays of the file, or None; process 0 reads it for all."""
        if self.path is None:
            return None
        if self._processes.count == 1:
            return container.read(self.path, "checkpoint") if self.path.exists() else None
        is_there = self._processes.rank == 0 and self.path.exists()
        content = self._processes.bytes_from_first(
            "checkpoint", self.path.read_bytes() if is_there else b""
        )
        if not content:
            return None
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory) / self.path.name
            copy.write_bytes(content)
            return container.read(copy, "checkpoint")

    def keep(self, state: Any) -> None:
        """Write the state, replacing the file; process 0 does it for all."""
        if self.path is not None and self._processes.rank == 0:
            contents = {"identity": self._identity, "state": state}
            container.write(self.path, "checkpoint", contents, state.arrays)
