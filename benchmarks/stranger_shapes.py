"""Random functions of one to three projections, as code and with their means over Gaussians.

The grammar has typical and difficult functions: products inside cosines, high powers and
frequencies, narrow bumps, poles near the real axis, steep fronts, exponentials, rare events,
several scales at once, kinks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from stranger_truth import (
    Full,
    Product,
    Radial,
    Ridge,
    Shape,
    Triple,
    Wave,
    WaveTerm,
    bell,
    mean_power,
    mean_price,
    mean_wave,
    neighbours,
    rational_bell,
)

Rng = np.random.Generator


def short(value: float, digits: int = 3) -> float:
    """Round a number to a few digits, as a person would write it."""
    return float(f"{value:.{digits}g}")


def log_uniform(rng: Rng, low: float, high: float) -> float:
    return short(float(np.exp(rng.uniform(np.log(low), np.log(high)))))


def pick(rng: Rng, weights: dict[str, float]) -> str:
    p = np.array(list(weights.values()))
    return str(rng.choice(list(weights), p=p / p.sum()))


@dataclass
class Reach:
    """The range of the projections along paths.

    Means and standard deviations, in the region and altogether, and the largest variance of a path.
    """

    middle: np.ndarray
    region: np.ndarray
    spread: np.ndarray
    variance: np.ndarray
    independent: bool
    prices: bool = False

    @property
    def k(self) -> int:
        return len(self.middle)

    def centre(self, rng: Rng, i: int = 0, times: float = 1.0) -> float:
        """A random position in the range of paths, `times` as far from the mean."""
        return short(self.middle[i] + times * self.spread[i] * rng.standard_normal())


# Shapes, as code and as closed forms. A wave exp(i(½ zᵀQz + l·z)) is a `WaveTerm` with imaginary
# Q and l.


def off(i: int, c: float) -> str:
    """The text of z_i - c."""
    return f"{{{i}}}" if c == 0 else f"({{{i}}} {'-' if c > 0 else '+'} {abs(c)})"


def zeros(k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros((k, k), complex), np.zeros(k, complex), np.zeros(k)


def plane_wave(a: list[float], phase: float, odd: bool) -> Wave:
    """cos or sin of a·z + phase."""
    Q, _, c = zeros(len(a))
    inside = " + ".join(f"{v} * {{{i}}}" for i, v in enumerate(a)) + (
        f" + {phase}" if phase else ""
    )
    factor = np.exp(1j * phase) * (-1j if odd else 1)
    return Wave(
        f"{'sin' if odd else 'cos'}({inside})", len(a), [WaveTerm(factor, Q, 1j * np.array(a), c)]
    )


def wave_product(a: float, b: float, odd: bool) -> Wave:
    """cos or sin of a z1, times cos of b z2."""
    Q, _, c = zeros(2)
    factor = 0.5 * (-1j if odd else 1)
    pieces = [WaveTerm(factor, Q, 1j * np.array([a, s * b]), c) for s in (1, -1)]
    return Wave(f"{'sin' if odd else 'cos'}({a} * {{0}}) * cos({b} * {{1}})", 2, pieces)


def polynomial(code: str, k: int, degree: int) -> Wave:
    """A polynomial of total degree `degree` in all projections, which may be correlated."""
    function = eval(f"lambda z0, z1=0, z2=0: {code.format('z0', 'z1', 'z2')}")
    return Wave(code, k, [WaveTerm(1.0, *zeros(k), polynomial=function, degree=degree)])


def gaussian(c: list[float], width: float) -> Wave:
    """exp(-|z - c|² / (2 width²))."""
    k = len(c)
    square = " + ".join(f"{off(i, v)}**2" for i, v in enumerate(c))
    square = f"({square})" if k > 1 else square
    return Wave(
        f"exp(-{square} / {short(2 * width**2, 6)})",
        k,
        [
            WaveTerm(
                1.0,
                -2 / short(2 * width**2, 6) * np.eye(k, dtype=complex),
                zeros(k)[1],
                np.array(c),
            )
        ],
    )


def chirp(q: float, kind: str, odd: bool) -> Wave:
    """cos or sin of q z1 z2, or of q z1²."""
    k = 2 if kind == "product" else 1
    Q = 1j * q * (np.array([[0, 1], [1, 0]]) if k == 2 else np.array([[2.0]]))
    inside = "{0} * {1}" if k == 2 else "{0}**2"
    return Wave(
        f"{'sin' if odd else 'cos'}({q} * {inside})",
        k,
        [WaveTerm(-1j if odd else 1.0, Q, *zeros(k)[1:])],
    )


def exponential(a: list[float], b: float) -> Wave:
    """exp(a·z + b z1²)."""
    k = len(a)
    Q, _, c = zeros(k)
    Q[0, 0] = 2 * b
    parts = [f"{v} * {{{i}}}" for i, v in enumerate(a) if v] + ([f"{b} * {{0}}**2"] if b else [])
    return Wave(f"exp({' + '.join(parts)})", k, [WaveTerm(1.0, Q, np.array(a, complex), c)])


def added(parts: list[tuple[float, Wave]]) -> Wave:
    """A sum of waves of the same projections."""
    pieces = [
        WaveTerm(f * p.factor, p.Q, p.l, p.c, p.polynomial, p.degree)
        for f, w in parts
        for p in w.pieces
    ]
    return Wave("(" + " + ".join(f"{f} * {w.code}" for f, w in parts) + ")", parts[0][1].k, pieces)


def ridge(
    line: str, marks: list[tuple[float, float]], step: float = np.inf, rest: Wave | None = None
) -> Ridge:
    """A function of one projection, times a wave in the others."""
    code = (
        line
        if rest is None
        else f"{line} * {rest.code.format(*(f'{{{i + 1}}}' for i in range(rest.k)))}"
    )
    return Ridge(code, 1 + (rest.k if rest is not None else 0), line, marks, step, rest)


def companion(rng: Rng, reach: Reach) -> Wave | None:
    """A second factor in another projection, or None."""
    if reach.k < 2 or rng.random() < 0.6:
        return None
    return [
        plane_wave([log_uniform(rng, 0.5, 5)], 0.0, bool(rng.random() < 0.5)),
        polynomial("{0}", 1, 1),
        gaussian([0.0], log_uniform(rng, 0.3, 1.5)),
    ][rng.integers(3)]


def benign(rng: Rng, reach: Reach) -> Shape:
    two = reach.k > 1
    options: list[Callable[[], Shape]] = [
        lambda: plane_wave([1.0], 0.0, bool(rng.random() < 0.5)),
        lambda: polynomial(f"(1 + {{0}} - {short(rng.uniform(0.1, 1))} * {{0}}**2)", 1, 2),
        lambda: polynomial(f"({{0}}**3 - {short(rng.uniform(0.1, 3))} * {{0}})", 1, 3),
        lambda: gaussian([0.0], log_uniform(rng, 0.7, 3)),
    ]
    if two:
        options += [
            lambda: polynomial("{0} * {1}", 2, 2),
            lambda: plane_wave([1.0, 1.0], 0.0, False),
            lambda: wave_product(1.0, 1.0, True),
            lambda: gaussian([0.0] * reach.k, log_uniform(rng, 0.7, 3)),
        ]
    return options[rng.integers(len(options))]()


def inside_waves(rng: Rng, reach: Reach) -> Shape:
    """Products and squares inside cosines."""
    odd, q = bool(rng.random() < 0.5), log_uniform(rng, 0.5, 8)
    kind = rng.choice(["square", "product", "triple"][: reach.k])
    if kind == "triple":
        q = log_uniform(rng, 0.5, 4)
        return Triple(f"{'sin' if odd else 'cos'}({q} * {{0}} * {{1}} * {{2}})", q, odd)
    return chirp(q, kind, odd)


def powers(rng: Rng, reach: Reach) -> Shape:
    n, c = int(rng.choice([4, 5, 6, 8])), 0.0 if rng.random() < 0.6 else reach.centre(rng)
    options = [
        (f"{off(0, c)}**{n}", 1, n),
        (f"({{0}}**{n} - {short(rng.uniform(1, 15))} * {{0}}**2)", 1, n),
    ]
    if reach.k > 1:
        options += [
            (f"({{0}} + {{1}})**{n}", 2, n),
            ("{0}**4 * {1}**2", 2, 6),
            ("{0}**3 * {1}**3", 2, 6),
        ]
    if reach.k > 2:
        options += [("{0}**2 * {1}**2 * {2}**2", 3, 6), ("{0} * {1} * {2}", 3, 3)]
    return polynomial(*options[rng.integers(len(options))])


def frequencies(rng: Rng, reach: Reach) -> Shape:
    a, odd = log_uniform(rng, 5, 30), bool(rng.random() < 0.5)
    if reach.k > 1 and rng.random() < 0.5:
        return wave_product(a, log_uniform(rng, 1, 30), odd)
    return plane_wave([a], short(rng.uniform(0, 3)), odd)


def bumps(rng: Rng, reach: Reach) -> Shape:
    k = int(rng.integers(1, reach.k + 1))
    outside = rng.random() < 0.3
    width = log_uniform(rng, (0.01, 0.02, 0.06)[k - 1], 0.5)
    return gaussian(
        [reach.centre(rng, i, 2.0 if outside and i == 0 else 0.6) for i in range(k)], width
    )


def rationals(rng: Rng, reach: Reach) -> Shape:
    eps, c = log_uniform(rng, 0.02, 1), 0.0 if rng.random() < 0.5 else reach.centre(rng)
    if reach.k > 1 and rng.random() < 0.4:
        k = int(rng.integers(2, reach.k + 1))
        square = " + ".join(f"{{{i}}}**2" for i in range(k))
        return Radial(f"1 / ({eps} ** 2 + {square})", k, eps, np.zeros(k))
    top = rng.choice(["1", "up"])
    y = off(0, c)
    return ridge(
        f"{y if top == 'up' else 1} / ({eps} ** 2 + {y}**2)", [(c, eps)], rest=companion(rng, reach)
    )


def front_line(rng: Rng, c: float, steep: float) -> tuple[str, list[tuple[float, float]]]:
    kind = rng.choice(["tanh", "sigmoid", "arctan"])
    return f"{kind}({steep} * {off(0, c)})", [(c, 1 / steep)]


def fronts(rng: Rng, reach: Reach) -> Shape:
    steep = log_uniform(rng, 2, 100)
    line, marks = front_line(rng, 0.0 if rng.random() < 0.4 else reach.centre(rng), steep)
    if reach.k > 1 and reach.independent and rng.random() < 0.35:
        factors = [ridge(line, marks)]
        for i in range(1, int(rng.integers(2, reach.k + 1))):
            more, where = front_line(rng, reach.centre(rng, i), log_uniform(rng, 2, 100))
            factors.append(ridge(more, where))
        code = " * ".join(f.code.replace("{0}", f"{{{i}}}") for i, f in enumerate(factors))
        return Product(code, len(factors), list(factors))
    return ridge(line, marks, rest=companion(rng, reach))


def exponentials(rng: Rng, reach: Reach) -> Shape:
    a, kind = short(rng.uniform(0.5, 3.0) / max(reach.spread[0], 0.3)), rng.random()
    if kind < 0.3:
        return exponential([a], 0.0)
    if kind < 0.6:
        return exponential(
            [short(rng.uniform(-0.5, 0.5))],
            short(rng.uniform(0.02, 0.4) / max(2 * reach.variance[0], 0.1)),
        )
    if kind < 0.8 and reach.k > 1:
        return exponential([a, short(-a * rng.random())], 0.0)
    b, depth = log_uniform(rng, 0.5, 6), short(rng.uniform(0.5, 3))
    return ridge(f"exp({depth} * cos({b} * {{0}}))", [], step=2.0 / (b * (1 + depth)))


def rare(rng: Rng, reach: Reach) -> Shape:
    far = rng.choice([-1, 1]) * rng.uniform(2.5, 5.0)
    c = short(reach.middle[0] + far * reach.spread[0])
    if rng.random() < 0.3:
        return gaussian([c], log_uniform(rng, 0.05, 0.3))
    steep = log_uniform(rng, 3, 60)
    return ridge(
        f"sigmoid({steep if far > 0 else -steep} * {off(0, c)})",
        [(c, 1 / steep)],
        rest=companion(rng, reach),
    )


def scales(rng: Rng, reach: Reach) -> Shape:
    """Several scales in one function."""
    if rng.random() < 0.5:
        parts = [
            (
                short(rng.uniform(0.1, 1)),
                plane_wave([log_uniform(rng, lo, hi)], 0.0, bool(rng.random() < 0.5)),
            )
            for lo, hi in ((0.5, 2), (3, 8), (12, 30))
        ]
        return added(parts)
    return added(
        [
            (short(rng.uniform(0.3, 2)), gaussian([reach.centre(rng, 0, 0.5)], w))
            for w in (1.0, 0.2, log_uniform(rng, 0.01, 0.1))
        ]
    )


def soft(rng: Rng, reach: Reach) -> Shape:
    """Functions that grow slowly, and rounded corners."""
    steep, c = log_uniform(rng, 1, 50), 0.0 if rng.random() < 0.5 else reach.centre(rng)
    line = rng.choice(
        [
            f"log(1 + ({steep} * {off(0, c)})**2)",
            f"sqrt(1 + ({steep} * {off(0, c)})**2)",
            f"logaddexp(0.0, {steep} * {off(0, c)})",
        ]
    )
    return ridge(str(line), [(c, 1 / steep)], rest=companion(rng, reach))


def kinks(rng: Rng, reach: Reach) -> Shape:
    c = reach.centre(rng, 0, 0.7)
    y = off(0, c)
    if reach.prices:
        strike = short(np.exp(c), 4)
        line = rng.choice(
            [f"maximum(exp({{0}}) - {strike}, 0.0)", f"maximum({strike} - exp({{0}}), 0.0)"]
        )
        return ridge(str(line), [(float(np.log(strike)), 0.0)])
    line = rng.choice(
        [
            f"maximum({y}, 0.0)",
            f"abs({y})",
            f"where({{0}} > {c}, 1.0, 0.0)",
            f"maximum(1 - abs({y}), 0.0)",
        ]
    )
    return ridge(str(line), [(c, 0.0), (c - 1, 0.0), (c + 1, 0.0)], rest=companion(rng, reach))


def full(rng: Rng, dim: int, source: bool, prices: bool) -> Full:
    options: list[Callable[[], Full]] = [
        lambda: bell(log_uniform(rng, 0.3, 4)),
        lambda: mean_wave(log_uniform(rng, 0.5, 10), bool(rng.random() < 0.5)),
        lambda: mean_power(2),
        lambda: mean_power(4),
    ]
    if dim > 1:
        options.append(neighbours)
    if not source:
        options.append(rational_bell)
    if prices:
        options += [lambda: mean_price(1), lambda: mean_price(2)]
    return options[rng.integers(len(options))]()


KINDS: dict[str, Callable[[Rng, Reach], Shape]] = {
    "benign": benign,
    "inside waves": inside_waves,
    "powers": powers,
    "frequencies": frequencies,
    "bumps": bumps,
    "rational": rationals,
    "fronts": fronts,
    "exponentials": exponentials,
    "rare": rare,
    "scales": scales,
    "soft": soft,
    "kinks": kinks,
}
