"""Blocks of features as arrays with a description, for files, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import jax
import numpy as np

from heatnets._core.errors import InputError, short_repr
from heatnets.features.features import (
    Antithetic,
    Feature,
    TransportedInitial,
    TransportedReaction,
    TransportedSource,
)
from heatnets.features.kernels import KernelSource

# The names of the classes in files do not change.
_STORED: dict[str, Any] = {
    "MovedInitial": TransportedInitial,
    "ReactedInitial": TransportedReaction,
    "MovedSource": TransportedSource,
    "KernelSource": KernelSource,
}


def to_arrays(block: Feature) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Convert a block of features to a JSON dictionary and arrays, for storage in a file."""
    feature = block.feature if isinstance(block, Antithetic) else block
    (kind,) = (name for name, stored in _STORED.items() if stored is type(feature))
    arrays = {field.name: np.asarray(getattr(feature, field.name)) for field in fields(feature)}
    return {"feature": kind, "pairs": feature is not block}, arrays


def from_arrays(
    description: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    steps: tuple[int, ...],
    dim: int,
) -> Feature:
    """Rebuild a block from the output of `to_arrays`.

    Args:
        description: the JSON dictionary.
        arrays: the arrays by field name.
        steps: the number of steps of Euler paths as a tuple, empty with constant coefficients.
        dim: dimension of x.
    """
    kind = _STORED.get(description.get("feature", ""))
    names = [] if kind is None else [field.name for field in fields(kind)]
    if kind is None or set(arrays) != set(names):
        raise InputError(
            f"features of the kind {short_repr(description.get('feature'))} with {sorted(arrays)} "
            "are not known to this version."
        )
    count = len(arrays[names[-1]])
    shapes = {"direction": (count, *steps, dim), "center": (count, dim)}
    for name, array in arrays.items():
        if array.shape != shapes.get(name, (count,)):
            raise InputError(
                f"`{name}` of the features has shape {array.shape}, which does not fit {count} "
                f"features in {dim} dimensions."
            )
    feature = kind(*(jax.device_put(arrays[name]) for name in names))
    return Antithetic(feature) if description.get("pairs") else feature
