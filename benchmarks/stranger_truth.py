"""Exact solutions of random problems: means of functions over Gaussian paths.

The means are in closed form or by quadrature that can be refined. Everything is in plain
coordinates y (lengths over their unit, or logarithms of prices). A path that starts at y and runs
from time a to b ends at a Gaussian point, with mean and covariance from a `Law`; a shape computes
its mean over such a Gaussian. `level` refines every quadrature at once (panels are halved, ranges
grow): the difference of two levels is the error of the coarser one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np
import scipy.special

FUNCTIONS = (
    "cos",
    "sin",
    "exp",
    "tanh",
    "arctan",
    "log",
    "sqrt",
    "maximum",
    "where",
    "logaddexp",
)  # of one or two numbers, by their names in NumPy
NAMES: dict[str, Any] = {
    **{name: getattr(np, name) for name in FUNCTIONS},
    "sigmoid": scipy.special.expit,
    "abs": np.abs,
}


@dataclass
class Law:
    """The law of paths: dy = (drift + rate (centre - y) + turn J y) dt + √(2 A s(t)) dW.

    Here s(t) = 1 + swing sin(beat t). Paths carry the weight exp(∫ c) with
    c = reaction + ripple cos(beat t). J rotates the first two coordinates; with it A is a number
    and the rate is zero. With one rate per coordinate A is diagonal.
    """

    dim: int
    A: Any  # a number, a diagonal or a matrix
    drift: Any = 0.0
    rate: Any = 0.0
    centre: Any = 0.0
    turn: float = 0.0
    swing: float = 0.0
    reaction: float = 0.0
    ripple: float = 0.0
    beat: float = 1.0

    @property
    def isotropic(self) -> bool:
        """Whether orthogonal projections of a path are independent."""
        return np.ndim(self.A) == 0 and np.ndim(self.rate) == 0

    @property
    def along_axes(self) -> bool:
        """Whether coordinates of a path are independent."""
        return np.ndim(self.A) < 2

    def mean(self, y: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        lag = (b - a)[:, None]
        if self.turn:
            angle, out = self.turn * (b - a), y.copy()
            out[:, 0] = np.cos(angle) * y[:, 0] - np.sin(angle) * y[:, 1]
            out[:, 1] = np.sin(angle) * y[:, 0] + np.cos(angle) * y[:, 1]
            return out
        return self.centre + np.exp(-self.rate * lag) * (y - self.centre) + self.drift * lag

    def _clock(self, a: np.ndarray, b: np.ndarray, rate: Any) -> np.ndarray:
        """Variance per unit of A: twice the elapsed time, reduced by mean reversion."""
        lag = b - a
        swung = (
            self.swing * (np.cos(self.beat * a) - np.cos(self.beat * b)) / self.beat
            if self.swing
            else 0.0
        )
        with np.errstate(all="ignore"):
            reverted = np.where(
                rate == 0, lag, -np.expm1(-2 * rate * lag) / np.where(rate == 0, 1.0, 2 * rate)
            )
        return 2 * (reverted + swung)

    def diagonal(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Variances of all coordinates, (n, dim)."""
        A = np.diag(self.A) if np.ndim(self.A) == 2 else np.broadcast_to(self.A, (self.dim,))
        return A * self._clock(a[:, None], b[:, None], np.asarray(self.rate))

    def covariance(self, P: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Covariances of the projections P y, (n, k, k)."""
        if np.ndim(self.rate):
            return np.einsum("ki,ni,li->nkl", P, self.diagonal(a, b), P)
        A = P @ self.A @ P.T if np.ndim(self.A) == 2 else (P * self.A) @ P.T
        return self._clock(a, b, self.rate)[:, None, None] * A

    @cached_property
    def axes(self) -> tuple[np.ndarray | None, np.ndarray]:
        """Principal axes as columns (None for the coordinates themselves), and A along them."""
        if np.ndim(self.A) == 2:
            values, vectors = np.linalg.eigh(self.A)
            return vectors, values
        return None, np.broadcast_to(self.A, (self.dim,))

    def principal(
        self, y: np.ndarray, a: np.ndarray, b: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of the (independent) components along the principal axes."""
        vectors, values = self.axes
        m = self.mean(y, a, b)
        if vectors is None:
            return m, self.diagonal(a, b)
        return m @ vectors, self._clock(a, b, self.rate)[:, None] * values

    def growth(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        rippled = self.ripple * (np.sin(self.beat * b) - np.sin(self.beat * a)) / self.beat
        return np.exp(self.reaction * (b - a) + rippled)


class Shape(Protocol):
    """A function of k projections: `code` with {0}, {1}, {2} for them, and Gaussian means."""

    code: str
    k: int

    def expect(self, m: np.ndarray, V: np.ndarray, level: int) -> np.ndarray:
        """E g(Z) for Z ~ N(m, V), m (n, k) and V (n, k, k)."""
        ...


@dataclass
class WaveTerm:
    """factor p(z) exp(½ (z-c)ᵀQ(z-c) + l·(z-c)), complex; p a polynomial of a degree, or None."""

    factor: complex
    Q: np.ndarray
    l: np.ndarray  # noqa: E741
    c: np.ndarray
    polynomial: Callable[..., Any] | None = None
    degree: int = 0

    def mean(self, m: np.ndarray, V: np.ndarray) -> np.ndarray:
        """The mean over Gaussians with means (n, N, k) and covariances (n, k, k).

        A Gaussian integral, times the mean of the polynomial over the remaining Gaussian.
        """
        k = len(self.l)
        h = m - self.c
        if np.any(self.Q):
            R = _root(V.astype(complex))
            inside = np.eye(k) - np.swapaxes(R, 1, 2) @ self.Q @ R
            # The pivots of a symmetric matrix with positive real part have positive real parts:
            # this selects the branch of the root.
            root = np.prod(_pivots(inside) ** -0.5, axis=-1)
            left = R @ np.linalg.solve(inside, np.swapaxes(R, 1, 2))
        else:
            root, left = np.ones(len(V), complex), V.astype(complex)
        g = self.l + h @ self.Q
        moved = np.einsum("nNk,nkl->nNl", g, left)
        exponent = h @ self.l + 0.5 * np.sum(h * (h @ self.Q), -1) + 0.5 * np.sum(g * moved, -1)
        value = self.factor * root[:, None] * np.exp(exponent)
        if self.polynomial is None:
            return value
        x, w = np.polynomial.hermite_e.hermegauss(self.degree // 2 + 1)
        nodes = np.stack(np.meshgrid(*[x] * k, indexing="ij"), -1).reshape(-1, k)
        weights = np.prod(
            np.stack(np.meshgrid(*[w / w.sum()] * k, indexing="ij"), -1).reshape(-1, k), axis=1
        )
        z = (m + moved)[:, :, None, :] + np.einsum("nkl,ql->nqk", _root(left), nodes)[:, None]
        return value * (
            np.broadcast_to(self.polynomial(*np.moveaxis(z, -1, 0)), z.shape[:-1]) @ weights
        )


def _pivots(S: np.ndarray) -> np.ndarray:
    """The pivots of Gaussian elimination, (n, k)."""
    out = []
    while S.shape[-1]:
        out.append(S[:, 0, 0])
        S = S[:, 1:, 1:] - S[:, 1:, :1] * S[:, :1, 1:] / S[:, :1, :1]
    return np.stack(out, axis=-1)


def _root(S: np.ndarray) -> np.ndarray:
    """Lower triangular R with R Rᵀ = S, S complex symmetric (n, k, k)."""
    rest, out = S.copy(), np.zeros_like(S)
    for j in range(S.shape[-1]):
        pivot = np.sqrt(rest[:, j, j])
        with np.errstate(all="ignore"):
            column = np.where(pivot[:, None] != 0, rest[:, :, j] / pivot[:, None], 0.0)
        column[:, :j] = 0
        out[:, :, j] = column
        rest = rest - column[:, :, None] * column[:, None, :]
    return out


@dataclass
class Wave:
    """The real part of a sum of pieces, with closed forms of the means.

    Polynomials, waves, Gaussians, exponentials, products inside cosines.
    """

    code: str
    k: int
    pieces: list[WaveTerm]

    def over(self, m: np.ndarray, V: np.ndarray) -> np.ndarray:
        return sum(piece.mean(m, V).real for piece in self.pieces)

    def expect(self, m: np.ndarray, V: np.ndarray, level: int) -> np.ndarray:
        return self.over(m[:, None], V)[:, 0]


@lru_cache
def _gauss(order: int) -> tuple[np.ndarray, np.ndarray]:
    x, w = np.polynomial.legendre.leggauss(order)
    return 0.5 * (x + 1), 0.5 * w


def panels(cuts: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights between sorted cuts (n, P + 1): each (n, P order)."""
    x, w = _gauss(order)
    length = np.diff(cuts, axis=1)[:, :, None]
    n = len(cuts)
    return (cuts[:, :-1, None] + length * x).reshape(n, -1), (length * w).reshape(n, -1)


def normal_line(
    m: np.ndarray,
    sd: np.ndarray,
    marks: list[tuple[float, float]],
    step: float,
    level: int,
    reach: float = 12,
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes ξ (n, N) and weights of means over standard normals.

    They are for functions of m + sd ξ that are analytic on the scale `step`, and near each mark
    (place, width) on the scale of the width or of the distance from it; a mark of width zero is a
    kink."""
    reach, tile_shrinks = reach + 1.5 * level, 2**level
    even = int(np.ceil(reach * max(1.0, 2 * float(np.max(sd)) / step))) * tile_shrinks
    low, high = (
        -reach - 0.137 * (1 + level),
        reach + 0.411,
    )  # not symmetric, lest rounding cancel where the mean is zero
    cuts = [np.broadcast_to(np.linspace(low, high, even + 1), (len(m), even + 1))]
    safe, ratio = np.maximum(sd, 1e-150), 3 ** (1 / tile_shrinks)
    for place, width in marks:
        at = ((place - m) / safe)[:, None]
        cuts.append(at)
        if width > 0:
            count = (
                max(0, int(np.ceil(np.log(2 * reach * np.max(safe) / width) / np.log(ratio)))) + 1
            )
            away = width / safe[:, None] * ratio ** np.arange(count)
            cuts += [at - away, at + away]
    nodes, weights = panels(np.sort(np.clip(np.concatenate(cuts, axis=1), low, high), axis=1), 16)
    return nodes, weights * np.exp(-0.5 * nodes**2) / np.sqrt(2 * np.pi)


@dataclass
class Ridge:
    """f(z_1) times a wave in the others: quadrature in z_1, with panels graded where f is steep."""

    code: str
    k: int
    line: str  # f with {0}
    marks: list[tuple[float, float]]
    step: float = np.inf
    rest: Wave | None = None

    @cached_property
    def function(self) -> Callable[[np.ndarray], np.ndarray]:
        return eval(f"lambda y: {self.line.format('y')}", dict(NAMES))

    def expect(self, m: np.ndarray, V: np.ndarray, level: int) -> np.ndarray:
        sd = np.sqrt(np.maximum(V[:, 0, 0], 0.0))
        xi, weights = normal_line(m[:, 0], sd, self.marks, self.step, level)
        off = sd[:, None] * xi
        values = self.function(m[:, :1] + off)
        if self.rest is not None:
            means, left = given_first(m, V, off)
            values = values * self.rest.over(means, left)
        return np.sum(weights * values, axis=1)


def given_first(m: np.ndarray, V: np.ndarray, off: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Conditional means (n, N, k-1) and covariances, given the first minus its mean, (n, N)."""
    with np.errstate(all="ignore"):
        slope = np.where(V[:, :1, 0] > 0, V[:, 1:, 0] / V[:, :1, 0], 0.0)
    left = V[:, 1:, 1:] - slope[:, :, None] * V[:, None, 0, 1:]
    return m[:, None, 1:] + slope[:, None] * off[..., None], left


@dataclass
class Triple:
    """cos or sin of q z1 z2 z3: a Gaussian integral over z2, z3 given z1, and quadrature in z1."""

    code: str
    q: float
    odd: bool
    k: int = 3

    def expect(self, m: np.ndarray, V: np.ndarray, level: int) -> np.ndarray:
        sd = np.sqrt(np.maximum(V[:, 0, 0], 0.0))
        fast = abs(self.q) * float(np.max(np.abs(m[:, 1] * m[:, 2])))
        steep = abs(self.q) * float(np.max(np.abs(V[:, 1:, 1:])))
        xi, weights = normal_line(
            m[:, 0], sd, [(0.0, 1 / max(steep, 1e-9))], 6 / max(fast, 1e-9), level, reach=9
        )
        off = sd[:, None] * xi
        means, S = given_first(m, V, off)
        kappa = 1j * self.q * (m[:, :1] + off)
        a, b = means[..., 0], means[..., 1]
        s11, s12, s22 = (S[:, i, j][:, None] for i, j in ((0, 0), (0, 1), (1, 1)))
        cross = np.sqrt(np.maximum(s11 * s22, 0.0))
        factors = (1 - kappa * (s12 + cross), 1 - kappa * (s12 - cross))
        det = factors[0] * factors[1]
        first = ((1 - kappa * s12) * a + kappa * s11 * b) / det
        second = (kappa * s22 * a + (1 - kappa * s12) * b) / det
        value = np.exp(0.5 * kappa * (a * second + b * first)) / (
            np.sqrt(factors[0]) * np.sqrt(factors[1])
        )
        return np.sum(weights * (value.imag if self.odd else value.real), axis=1)


@dataclass
class Product:
    """A product of functions of one projection each; the projections are independent."""

    code: str
    k: int
    factors: list[Shape]

    def expect(self, m: np.ndarray, V: np.ndarray, level: int) -> np.ndarray:
        each = [
            f.expect(m[:, i : i + 1], V[:, i : i + 1, i : i + 1], level)
            for i, f in enumerate(self.factors)
        ]
        return np.prod(each, axis=0)


def inverse_square(h: np.ndarray, variances: np.ndarray, eps: float, level: int) -> np.ndarray:
    """E 1/(eps² + |h + √v ξ|²) = ∫ e^{-s eps²} E e^{-s |h + √v ξ|²} ds: a Gaussian integral inside.

    With s = e^r it is analytic for |Im r| < π/2 and decays at both ends: the error of equal steps δ
    is e^{-π²/δ}."""
    step = 0.25 / 2**level
    low = (
        -np.log(np.max(eps**2 + np.sum(h**2 + variances, axis=1))) - 38
    )  # what is left out is e^low or so, and u above 1/(...)
    s = np.exp(np.arange(low, np.log(45 / eps**2) + step, step))
    n, total = len(h), np.zeros(len(h))
    for part in np.array_split(s, max(1, min(len(s), h.size * len(s) // 2**20))):
        wide = 1 + 2 * part[:, None] * variances[:, None]
        inside = np.sum(part[:, None] * h[:, None] ** 2 / wide + 0.5 * np.log(wide), axis=2)
        total += np.exp(-part * eps**2 - inside).reshape(n, -1) @ (step * part)
    return total


@dataclass
class Radial:
    """1/(eps² + |z - c|²) in one to three projections."""

    code: str
    k: int
    eps: float
    c: np.ndarray

    def expect(self, m: np.ndarray, V: np.ndarray, level: int) -> np.ndarray:
        values, vectors = np.linalg.eigh(V)
        h = np.einsum("nk,nkl->nl", m - self.c, vectors)
        return inverse_square(h, np.maximum(values, 0.0), self.eps, level)


@dataclass
class Full:
    """A function of all coordinates, with a closed form of its mean.

    `code` has X for the coordinates; the mean is `mean(law, y, a, b, level)`.
    """

    code: str
    mean: Callable[..., np.ndarray]
    start_only: bool = False  # too dear for every time of a source
    k: int = 0


def bell(width: float) -> Full:
    """exp(-|x|² / (width d))."""

    def mean(law: Law, y: np.ndarray, a: np.ndarray, b: np.ndarray, level: int) -> np.ndarray:
        m, v = law.principal(y, a, b)
        wide = width * law.dim
        return np.exp(-np.sum(m**2 / (wide + 2 * v) + 0.5 * np.log1p(2 * v / wide), axis=1))

    return Full(f"exp(-(X @ X) / ({width} * X.size))", mean)


def rational_bell() -> Full:
    """1 / (1 + |x|² / d)."""

    def mean(law: Law, y: np.ndarray, a: np.ndarray, b: np.ndarray, level: int) -> np.ndarray:
        m, v = law.principal(y, a, b)
        return inverse_square(m / np.sqrt(law.dim), v / law.dim, 1.0, level)

    return Full("1 / (1 + X @ X / X.size)", mean, start_only=True)


def mean_wave(a_: float, odd: bool) -> Full:
    """The mean of cos(a x_i), or of sin."""

    def mean(law: Law, y: np.ndarray, a: np.ndarray, b: np.ndarray, level: int) -> np.ndarray:
        wave = np.sin if odd else np.cos
        return np.mean(
            np.exp(-0.5 * a_**2 * law.diagonal(a, b)) * wave(a_ * law.mean(y, a, b)), axis=1
        )

    return Full(f"mean({'sin' if odd else 'cos'}({a_} * X))", mean)


def mean_power(power: int) -> Full:
    """The mean of x_i² or x_i⁴."""

    def mean(law: Law, y: np.ndarray, a: np.ndarray, b: np.ndarray, level: int) -> np.ndarray:
        m, v = law.mean(y, a, b), law.diagonal(a, b)
        return np.mean(m**2 + v if power == 2 else m**4 + 6 * m**2 * v + 3 * v**2, axis=1)

    return Full("X @ X / X.size" if power == 2 else "mean(X**4)", mean)


def mean_price(power: int) -> Full:
    """The mean of e^{x_i}, or of its square, for log prices x_i; Y in its code is the prices."""

    def mean(law: Law, y: np.ndarray, a: np.ndarray, b: np.ndarray, level: int) -> np.ndarray:
        return np.mean(
            np.exp(power * law.mean(y, a, b) + 0.5 * power**2 * law.diagonal(a, b)), axis=1
        )

    return Full("mean(Y)" if power == 1 else "mean(Y**2)", mean)


def neighbours() -> Full:
    """The mean of x_i x_{i+1}."""

    def mean(law: Law, y: np.ndarray, a: np.ndarray, b: np.ndarray, level: int) -> np.ndarray:
        m, out = law.mean(y, a, b), 0.0
        if np.ndim(law.A) == 2:
            out = law._clock(a, b, law.rate) * np.mean(np.diag(law.A, 1))
        return out + np.mean(m[:, :-1] * m[:, 1:], axis=1)

    return Full("mean(X[:-1] * X[1:])", mean)


@dataclass
class Term:
    """amplitude × a function of time × a shape of projections P (k, dim), or of all coordinates."""

    kind: str
    amplitude: float
    shape: Any
    P: np.ndarray | None = None
    time: str = "1.0"
    pace: float = 0.0  # the fastest angular frequency in time

    @cached_property
    def factor(self) -> Callable[[np.ndarray], Any]:
        return eval(f"lambda t: {self.time} + 0 * t", dict(NAMES))

    def expect(
        self, law: Law, y: np.ndarray, a: np.ndarray, b: np.ndarray, level: int
    ) -> np.ndarray:
        if self.P is None:
            return self.amplitude * self.shape.mean(law, y, a, b, level)
        return self.amplitude * self.shape.expect(
            law.mean(y, a, b) @ self.P.T, law.covariance(self.P, a, b), level
        )


@dataclass
class Truth:
    """u(t, y) = E[e^{∫c} u0(end)] + ∫ E[e^{∫c} F(time, place)].

    `exact`, and its difference from the next finer level.
    """

    law: Law
    horizon: float
    backward: bool
    initial: list[Term]
    source: list[Term]
    outer: Callable[[np.ndarray], np.ndarray] | None = (
        None  # of a linear solution, where the problem is a change of variables of a linear one
    )
    level: int = 0
    error: float = field(default=np.nan)

    def lags(self, level: int) -> tuple[np.ndarray, np.ndarray]:
        """Nodes and weights on (0, 1), graded towards 0."""
        pace = max(
            [term.pace for term in self.source]
            + [self.law.beat * bool(self.law.ripple or self.law.swing), abs(self.law.turn)]
        )
        graded = 4.0 ** -np.arange(0, 13 + level, 0.5**level)
        even = np.linspace(0, 1, int(np.ceil(1 + self.horizon * pace / 4)) * 2**level + 1)
        x, w = panels(np.unique(np.concatenate([graded, even]))[None], 12)
        return x[0], w[0]

    def at(self, t: np.ndarray, y: np.ndarray, level: int) -> np.ndarray:
        """u at one level of refinement."""
        law, lag = self.law, (self.horizon - t if self.backward else t)
        start, end = (t, t + lag) if self.backward else (t - lag, t)
        total = (
            law.growth(start, end)
            * sum(term.expect(law, y, start, end, level) for term in self.initial)
            + 0 * t
        )
        if self.source and np.any(lag > 0):
            for share, weight in zip(*self.lags(level), strict=True):
                a, b = (t, t + share * lag) if self.backward else (t - share * lag, t)
                then = b if self.backward else a
                force = sum(
                    term.factor(then) * term.expect(law, y, a, b, level) for term in self.source
                )
                total += weight * lag * law.growth(a, b) * force
        return total if self.outer is None else self.outer(total)

    def exact(self, t: np.ndarray, y: np.ndarray, finer: int = 0) -> np.ndarray:
        with np.errstate(all="ignore"):  # what underflows is zero
            return self.at(np.asarray(t, float), np.asarray(y, float), self.level + finer)

    def settle(self, t: np.ndarray, y: np.ndarray, wanted: float = 1e-8, levels: int = 3) -> float:
        """Choose a level whose relative difference from the next finer one is at most `wanted`.

        Returns:
            This difference.
        """
        found = self.at(t, y, 0)
        for self.level in range(levels):
            finer = self.at(t, y, self.level + 1)
            size = np.sqrt(np.mean(finer**2))
            self.error = (
                max(float(np.max(np.abs(finer - found)) / size), 1e-15)
                if np.isfinite(size) and size > 0
                else np.inf
            )
            if self.error <= wanted:
                break
            found = finer
        return self.error


@dataclass
class Closed(Truth):
    """A solution in closed form."""

    formula: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None

    def at(self, t: np.ndarray, y: np.ndarray, level: int) -> np.ndarray:
        assert self.formula is not None
        return self.formula(self.horizon - t if self.backward else t, y)
