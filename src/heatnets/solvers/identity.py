"""What identifies a solve: problem, settings, versions, random draws. For checkpoints and peers."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np

from heatnets import __version__
from heatnets._core import container, streams
from heatnets._core.errors import InputError
from heatnets.pde.fingerprint import differences, fingerprint
from heatnets.pde.problem import Problem
from heatnets.solvers.run import Run

CHECKPOINT_FORMAT = 4  # of the state; a checkpoint of another format is refused


def identify(run: Run, problem: dict[str, Any]) -> dict[str, Any]:
    """What identifies a solve, in JSON types; `problem` is the fingerprint of its problem."""
    canonical, options = run.problem, run.options
    counts = (2, 0 if canonical.feature_source is None else 2)
    features = [run.draw(counts, design) for design in options.directions]
    points = options.train_region.sample(streams.generator(0, "train region"), 2, canonical.dim)
    settings = options.identity | {
        "family": options.family.name,
        "directions": [design.name for design in options.directions],
        "train_region": points @ np.cos(np.arange(canonical.dim)),  # identifies the region
        "draws": [float(np.sum(leaf)) for leaf in jax.tree.leaves(features)],
    }
    versions = {"heatnets": __version__, "jax": jax.__version__, "checkpoint": CHECKPOINT_FORMAT}
    return container.to_jsonable({"problem": problem, "settings": settings, "versions": versions})


def compare(identity: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Differences between this solve and another one, as messages."""
    messages = differences(identity["problem"], other["problem"])
    for part in ("versions", "settings"):
        for name in {**identity[part], **other[part]}:
            ours, theirs = identity[part].get(name), other[part].get(name)
            if ours != theirs:
                messages.append(f"`{name}` is {ours!r} here, {theirs!r} there")
    return messages


def require_same_solve(run: Run, problem: Problem) -> None:
    """Raise an `InputError`, in all processes, unless all were given the same solve."""
    processes, options = run.ctx.processes, run.options
    if processes.count == 1:
        return
    sizes = {"features": options.features, "rows": options.rows, "seconds": options.seconds}
    identity = identify(run, fingerprint(problem))
    identity["settings"] |= container.to_jsonable({**sizes, "max_rounds": options.max_rounds})
    text = np.frombuffer(json.dumps(identity).encode(), np.uint8)
    first, *others = (json.loads(bytes(one)) for one in processes.gather("the solve", text))
    for rank, other in enumerate(others, 1):
        if mismatches := compare(first, other):
            raise InputError(
                f"process {rank} was given another solve than process 0: {'; '.join(mismatches)} "
                "(here: process 0). Give all processes the same problem and settings."
            )
