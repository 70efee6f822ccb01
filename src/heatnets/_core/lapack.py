"""Number of threads that LAPACK uses."""

from __future__ import annotations

import threadpoolctl


def lapack_threads(count: int | None) -> threadpoolctl.threadpool_limits:
    """Context manager that sets the number of LAPACK threads; None for all.

    OpenBLAS threads wait by spinning, which is harmful if other processes use the cores too. The
    last bits of a result may depend on the number.
    """
    return threadpoolctl.threadpool_limits(count, user_api="blas")
