"""Number of threads that LAPACK uses."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

import scipy.linalg  # noqa: F401  loads the LAPACK whose threads are limited
from threadpoolctl import ThreadpoolController


def lapack_threads(count: int | None) -> AbstractContextManager:
    """Context manager that sets the number of LAPACK threads; None for all.

    OpenBLAS threads wait by spinning, which is harmful if other processes use the cores too. The
    last bits of a result may depend on the number.
    """
    return _controller().limit(limits=count, user_api="blas")


@cache
def _controller() -> ThreadpoolController:
    """The libraries of this process; to look for them takes longer than a small factorisation."""
    return ThreadpoolController()
