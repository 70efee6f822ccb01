"""Published results: the paper's tables, statements of its text about figures, other methods.

The paper gives no numbers for its figures.
"""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """Relative errors and minutes of model building and training on an A100 with 80 GB."""

    l1: float
    l2: float
    linf: float
    minutes: float


class TextClaim(NamedTuple):
    """A statement about a figure: errors from `low` to `high` for dimensions `first` to `last`."""

    first: int
    last: int
    low: float
    high: float
    words: str


# Table 1: Example 1, T = 0.05, M = M0 = 15,000, N = 20,000 + 4,000; by dimension.
TABLE_1 = {
    2: Published(9.09e-8, 9.70e-8, 1.33e-7, 1.52),
    5: Published(1.66e-7, 1.49e-7, 1.61e-7, 1.97),
    10: Published(1.58e-5, 4.71e-6, 1.25e-6, 2.77),
}

# Table 2: Example 2, T = 0.5, N = 15,000 + 3,000; by dimension and number of features.
TABLE_2 = {
    (100, 8000): Published(9.35e-8, 9.94e-8, 1.29e-7, 5.16),
    (100, 10000): Published(9.41e-8, 9.99e-8, 1.58e-7, 6.49),
    (500, 8000): Published(1.61e-7, 1.65e-7, 1.55e-7, 26.03),
    (500, 10000): Published(1.39e-7, 1.42e-7, 2.04e-7, 38.23),
    (1000, 8000): Published(8.73e-4, 9.38e-4, 1.35e-3, 113.18),
    (1000, 10000): Published(8.39e-5, 9.20e-5, 1.49e-4, 115.13),
    (2000, 8000): Published(8.94e-3, 9.06e-3, 1.06e-2, 348.89),
    (2000, 10000): Published(6.21e-3, 6.43e-3, 7.29e-3, 437.18),
}

# Statements of the paper about its figures (relative L2 unless stated otherwise).
HORIZONS = {
    1500: [TextClaim(5, 100, 1e-8, 1e-7, "L1, L2, L∞ of the order 1e-8 to 1e-7 up to d = 100")],
    8000: [
        TextClaim(300, 300, 1e-7, 1e-7, "order 1e-7 at d = 300"),
        TextClaim(5, 500, 1e-8, 1e-7, "as low as 1e-8 to 1e-7 up to d = 500"),
    ],
}
UNDERDETERMINED = [
    TextClaim(50, 50, 1e-5, 1e-5, "approximately 1e-5 at d = 50"),
    TextClaim(100, 1000, 1e-3, 1e-3, "approximately 1e-3 at d = 100, stable up to d = 1000"),
]
NONSEPARABLE = [
    TextClaim(5, 1000, 5e-3, 5e-3, "never above the order 5e-3"),
    TextClaim(100, 300, 1e-5, 1e-5, "1e-5 at d = 100 and 300"),
    TextClaim(1000, 1000, 1e-4, 1e-3, "1e-4 to 1e-3 at d = 1000"),
]

# Seconds quoted in the text.
CLAIM_300 = 900.0  # building and training, d = 300, M = 1500, "for all problems considered"
CLAIM_9 = (9.3, 10.9)  # building A and b, training; Example 2, d = 9, M = 2000


class Peer(NamedTuple):
    """The result that another method reports for the same problem."""

    method: str
    error: float
    seconds: float
    machine: str


# u(T, 0) of u_t = Δu + f(u), u0 = 1/(2 + 0.4|x|²), by problem, T and dimension: from the radial
# reduction to one dimension; two grids agree to 4e-8.
SEMILINEAR: dict[tuple[str, float], dict[int, float]] = {
    ("allen-cahn", 0.3): {
        10: 0.3165127134,
        100: 0.0527813574,
        1000: 0.0055888830,
        10_000: 0.000562085,
    },
    ("sine-gordon", 0.3): {
        10: 0.3229263853,
        100: 0.0528094354,
        1000: 0.0055889159,
        10_000: 0.00056208508,
    },
    ("rational", 0.3): {
        10: 0.4695498714,
        100: 0.3166278076,
        1000: 0.2874683915,
        10_000: 0.2843071314,
    },
    ("allen-cahn", 1.0): {10: 0.2956956, 100: 0.0337755719, 1000: 0.0033961203},
    ("sine-gordon", 1.0): {10: 0.3061929906, 100: 0.0337896147, 1000: 0.0033961344},
    ("rational", 1.0): {
        10: 0.7258435194,
        100: 0.6923045861,
        1000: 0.6883404079,
        10_000: 0.6879386919,
    },
}
# u(1, 0) of the control problem, by dimension: -log E[2/(1 + 2χ²)].
CONTROL = {100: 4.5901617246, 1000: 6.9062551579}
# u(0, 100, ..., 100), d = 100, T = 1, by multilevel Picard: accurate to about 1e-3.
DEFAULT_RISK = 57.300

# E, Han and Jentzen 2017 (deep BSDE); random deep splitting, measured with NumPy on two CPU cores.
PEERS = {
    ("allen-cahn", 0.3, 100): [
        Peer("deep BSDE", 3.0e-3, 647.0, "laptop"),
        Peer("random deep splitting", 2.8e-2, 12.0, "two CPU cores"),
    ],
    ("rational", 0.3, 1000): [Peer("random deep splitting", 3e-1, 42.0, "two CPU cores")],
    ("hamilton-jacobi", 1.0, 100): [Peer("deep BSDE", 1.7e-3, 330.0, "laptop")],
}
