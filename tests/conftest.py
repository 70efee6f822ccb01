"""Shared by all tests: a fresh look at warnings, and small helpers with no mathematics of their own."""

from __future__ import annotations

import jax
import pytest


@pytest.fixture
def x64():
    """JAX in float64 for tests that call the inner rooms directly; public calls must not need it."""
    with jax.enable_x64(True):
        yield
