"""Checks of the named problems' parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from heatnets._core.errors import check_int, check_positive


def dimension(dim: Any) -> int:
    """Check a dimension: a positive integer."""
    return check_int("dim", dim, 1, "It is the number of space coordinates.")


def number(name: str, value: Any) -> np.ndarray:
    """Check a positive parameter; an array of shape (), so that JAX traces it."""
    return np.asarray(check_positive(name, value, "It is a parameter of the problem."))
