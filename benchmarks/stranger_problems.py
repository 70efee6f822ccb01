"""Random test problems with known solutions: `stranger(number, seed)`.

Initial conditions and sources are drawn from a grammar of typical and of difficult functions
(`stranger_shapes.py`); operators are those whose paths are Gaussian, so that the solution is an
integral over one to three projections (`stranger_truth.py`). Everything is fixed by (number, seed).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit
from stranger_shapes import (
    KINDS,
    Reach,
    Rng,
    full,
    gaussian,
    log_uniform,
    off,
    pick,
    plane_wave,
    ridge,
    short,
    zeros,
)
from stranger_truth import FUNCTIONS, Closed, Law, Term, Truth, Wave, WaveTerm

import heatnets as hn

GOOD = 1e-6  # of the truth, relative: a problem whose truth is worse is replaced by the next draw
USER = {
    **{name: getattr(jnp, name) for name in (*FUNCTIONS, "abs", "mean")},
    "sigmoid": jax.nn.sigmoid,
    "jnp": jnp,
}
WEIGHTS = {
    "benign": 4,
    "inside waves": 3,
    "powers": 2,
    "frequencies": 2.5,
    "bumps": 3,
    "rational": 2.5,
    "fronts": 3,
    "exponentials": 2,
    "rare": 2,
    "scales": 2,
    "soft": 1.5,
    "kinks": 1.2,
    "full": 3,
}
OPERATORS = {
    "heat": 5,
    "diagonal": 2,
    "matrix": 3,
    "drift": 2.5,
    "reaction": 2,
    "ornstein-uhlenbeck": 2.5,
    "stepped reversion": 2,
    "stepped turning": 1,
    "reaction of time": 1.2,
    "diffusion of time": 1,
    "geometric": 2.5,
    "semilinear": 1.4,
}


@dataclass
class Operator:
    """An operator: in plain coordinates, as arguments of `hn.Problem`, and in words."""

    name: str
    law: Law
    told: dict[str, Any]
    words: str
    unit: float  # of lengths, or the price whose logarithm is zero
    prices: bool = False


def matrix(rng: Rng, dim: int, size: float, condition: float) -> np.ndarray:
    """A random symmetric positive definite matrix with eigenvalues up to `size`."""
    axes = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    return (axes * (size * condition ** -np.linspace(0, 1, dim))) @ axes.T


def draw_operator(rng: Rng, dim: int, horizon: float, forced: bool) -> Operator:
    name = pick(rng, OPERATORS)
    if name == "stepped turning" and dim == 1:
        name = "stepped reversion"
    D, unit = (
        log_uniform(rng, 0.05, 2),
        float(rng.choice([1.0, 1.0, 1.0, 1.0, 1.0, 1e-3, 1e3, 0.02])),
    )
    law, told, words = Law(dim, D), {"diffusion": D * unit**2}, f"{D * unit**2:g} Δu"
    if name == "diagonal":
        A = np.exp(rng.uniform(np.log(0.05), np.log(2), dim))
        law, told, words = (
            Law(dim, A),
            {"diffusion": A * unit**2},
            "Σ A_i u_ii, A_i log-uniform from 0.05 to 2",
        )
    elif name == "matrix":
        condition = log_uniform(rng, 2, 100)
        A = matrix(rng, dim, D, condition)
        how = rng.choice(["matrix", "factor", "low rank"])
        told, words = (
            {"diffusion": A * unit**2},
            f"div(A ∇u), A a {how} of size {D:g}, condition {condition:g}",
        )
        if how == "factor":
            told = {"diffusion": hn.Factor(np.linalg.cholesky(A) * unit)}
        elif how == "low rank":
            U = rng.standard_normal((dim, min(2, dim))) * np.sqrt(D / dim)
            A = D / 4 * np.eye(dim) + U @ U.T
            told = {"diffusion": hn.LowRank(D / 4 * unit**2, U * unit)}
        law = Law(dim, 0.5 * (A + A.T))
    elif name == "drift":
        b = (
            rng.uniform(-2, 2, dim)
            if rng.random() < 0.7
            else np.full(dim, short(rng.uniform(-1, 1)))
        )
        law, told = Law(dim, D, drift=b), {**told, "drift": b * unit}
        words += (
            " + b·∇u, b = "
            f"[{', '.join(f'{v * unit:.3g}' for v in b[:3])}{', ...' if dim > 3 else ''}]"
        )
        if rng.random() < 0.4:
            A = matrix(rng, dim, D, log_uniform(rng, 2, 30))
            law.A, told["diffusion"], words = (
                A,
                A * unit**2,
                words.replace(f"{D * unit**2:g} Δu", "div(A ∇u), A a matrix,"),
            )
    elif name == "reaction":
        c = short(rng.uniform(-1.5, 1.5))
        law, told, words = Law(dim, D, reaction=c), {**told, "reaction": c}, f"{words} + {c} u"
    elif name in ("ornstein-uhlenbeck", "stepped reversion"):
        most = 1.0 if forced and name == "ornstein-uhlenbeck" else 2.0
        rate: Any = short(rng.choice([1, 1, 1, -0.5]) * most * rng.uniform(0.2, 0.99) / horizon)
        centre = short(rng.uniform(-0.5, 0.5)) if rng.random() < 0.5 else 0.0
        words += f" + {rate} ({centre * unit:g} - x)·∇u"
        if name == "stepped reversion":
            if rng.random() < 0.3:
                rate = rate * rng.uniform(0.5, 1.0, dim)
                words += " (times one number in (0.5, 1) per coordinate)"
            told["drift"] = lambda t, x, rate=rate, centre=centre * unit: rate * (centre - x)
            words += ", the drift given as a function"
        else:
            told = {"process": hn.OrnsteinUhlenbeck(rate, centre * unit, D * unit**2)}
        law = Law(dim, D, rate=rate, centre=centre)
    elif name == "stepped turning":
        turn = short(rng.choice([-1, 1]) * rng.uniform(0.3, 2) / horizon)
        told["drift"] = lambda t, x: (
            turn * jnp.concatenate([jnp.stack([-x[1], x[0]]), jnp.zeros(dim - 2)])
        )
        law, words = (
            Law(dim, D, turn=turn),
            f"{words} + {turn} (x_1 u_2 - x_2 u_1), the drift given as a function",
        )
    elif name == "reaction of time":
        c, e, w = (
            short(rng.uniform(-1, 1)),
            short(rng.uniform(0.2, 1)),
            short(rng.uniform(0.5, 6) / horizon),
        )
        told["reaction"] = lambda t, x: c + e * jnp.cos(w * t)
        law, words = (
            Law(dim, D, reaction=c, ripple=e, beat=w),
            f"{words} + ({c} + {e} cos({w} t)) u",
        )
    elif name == "diffusion of time":
        swing, w = short(rng.uniform(0.2, 0.8)), short(rng.uniform(0.5, 6) / horizon)
        told = {
            "diffusion": lambda t, x: D * unit**2 * (1 + swing * jnp.sin(w * t)),
            "form": str(rng.choice(["trace", "divergence"])),
        }
        law, words = Law(dim, D, swing=swing, beat=w), f"{words} (1 + {swing} sin({w} t))"
    elif name == "geometric":
        unit = float(rng.choice([1.0, 100.0, 100.0, 1e4]))
        sigma = (
            rng.uniform(0.1, 0.6, dim)
            if rng.random() < 0.5
            else np.full(dim, short(rng.uniform(0.1, 0.6)))
        )
        growth, rho = (
            short(rng.uniform(-0.05, 0.1)),
            short(rng.uniform(0, 0.7)) if rng.random() < 0.6 and dim > 1 else None,
        )
        A: Any = (
            0.5 * sigma**2
            if rho is None
            else 0.5 * np.outer(sigma, sigma) * (rho + (1 - rho) * np.eye(dim))
        )
        r = short(rng.uniform(0, 0.1)) if rng.random() < 0.7 else 0.0
        told = {
            "process": hn.GeometricBrownian(
                sigma if np.ptp(sigma) else float(sigma[0]), growth, rho
            ),
            "reaction": -r,
        }
        law = Law(dim, A, drift=growth - 0.5 * sigma**2, reaction=-r)
        words = (
            f"geometric Brownian motion, σ {sigma.min():.2g} to {sigma.max():.2g}, growth "
            f"{growth}, correlation {rho}, rate {r}"
        )
    if (
        name
        in (
            "diagonal",
            "matrix",
            "drift",
            "ornstein-uhlenbeck",
            "stepped reversion",
            "diffusion of time",
        )
        and rng.random() < 0.25
    ):
        law.reaction = told["reaction"] = short(rng.uniform(-1.5, 1.5))
        words += f" + {law.reaction} u"
    return Operator(name, law, told, words, unit, name == "geometric")


def draw_region(rng: Rng, dim: int, operator: Operator) -> hn.regions.Region:
    kind, unit = rng.random(), operator.unit
    if operator.prices:
        if kind < 0.35:
            return hn.Point(
                unit * np.exp(rng.uniform(-0.1, 0.1, dim))
                if rng.random() < 0.5
                else np.full(dim, unit)
            )
        return hn.Box(0.8 * unit, 1.2 * unit) if kind < 0.8 else hn.Box(0.5 * unit, 2.0 * unit)
    if kind < 0.6:
        return hn.Box(-unit, unit)
    if kind < 0.75:
        low = short(rng.uniform(-2, 1)) * unit
        return hn.Box(low, low + log_uniform(rng, 0.2, 4) * unit)
    if kind < 0.9:
        return hn.Normal(short(rng.uniform(-0.5, 0.5)) * unit, log_uniform(rng, 0.1, 1) * unit)
    return hn.Point(
        np.round(rng.uniform(-1, 1, dim), 2) * unit if rng.random() < 0.6 else np.zeros(dim)
    )


def projections(rng: Rng, dim: int) -> tuple[np.ndarray, tuple[int, ...] | None]:
    """Up to three orthonormal rows; and their indices if they are coordinate axes, else None."""
    k, kind = min(3, dim), rng.random()
    if kind < 0.35:
        axes = (
            tuple(int(i) for i in rng.permutation(dim)[:k])
            if rng.random() < 0.4
            else tuple(range(k))
        )
        return np.eye(dim)[list(axes)], axes
    rows = rng.standard_normal((k, dim))
    if kind < 0.55:
        rows[0] = 1.0
    elif kind < 0.7:  # a few coordinates only
        rows = rows * (rng.permutation(dim) < max(k, min(5, dim)))
    return np.linalg.qr(rows.T)[0].T * np.sign(rows[0].sum() or 1.0), None


TIMES: dict[str, Callable[[Rng, float], tuple[str, float]]] = {
    "1.0": lambda rng, T: ("1.0", 0.0),
    "t": lambda rng, T: ("t", 0.0),
    "wave": lambda rng, T: (lambda w: (f"sin({w} * t)", w))(log_uniform(rng, 0.5, 30)),
    "beat": lambda rng, T: (lambda w: (f"cos({w} * t)", w))(log_uniform(rng, 0.5, 30)),
    "decay": lambda rng, T: (lambda a: (f"exp(-{a} * t)", 0.3 * a))(log_uniform(rng, 0.2, 10)),
    "polynomial": lambda rng, T: (f"(1 - {short(1 / T)} * t)**2", 0.0),
}


@dataclass
class Formula:
    """Terms as a user would write them: text in x (and t), and the arrays that it names."""

    text: str
    arrays: dict[str, np.ndarray]

    def function(self, arguments: str) -> Callable[..., Any]:
        return eval(f"lambda {arguments}: {self.text}", {**USER, **self.arrays})


@dataclass
class Stranger:
    """A random problem: its tags, its formulas, `problem` and `exact`.

    `problem` may raise the errors of heatnets for unsupported problems.
    """

    number: int
    seed: int
    tags: dict[str, Any]
    operator: Operator
    truth: Truth
    region: hn.regions.Region
    told: dict[str, Any]
    words: list[str]
    replaced: int = 0  # draws before it whose truth was not good enough
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @cached_property
    def problem(self) -> hn.Problem:
        return hn.Problem(
            dim=self.tags["dim"], horizon=self.truth.horizon, region=self.region, **self.told
        )

    @property
    def name(self) -> str:
        return f"stranger {self.number} of seed {self.seed}"

    @property
    def truth_error(self) -> float:
        """Change by a finer quadrature, relative to the root mean square of u; 1e-8 is the aim."""
        return self.truth.error

    def plain(self, x: np.ndarray) -> np.ndarray:
        scaled = np.asarray(x, float) / self.operator.unit
        return np.log(scaled) if self.operator.prices else scaled

    def exact(self, t: Any, x: Any) -> np.ndarray:
        """u at times (n,) and points (n, dim), in the user's units."""
        return self.truth.exact(np.asarray(t, float), self.plain(x))

    def finer(self, t: Any, x: Any) -> np.ndarray:
        """The same values at the next finer level of quadrature."""
        return self.truth.exact(np.asarray(t, float), self.plain(x), 1)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.name}: {self.tags}",
                *self.words,
                f"truth good to {self.truth_error:.1e}, {self.replaced} draws replaced",
            ]
        )


class Writer:
    """Draws random terms, and writes them as formulas."""

    def __init__(
        self, rng: Rng, operator: Operator, region: Any, horizon: float, factor: float
    ) -> None:
        self.rng, self.operator, self.horizon, self.factor = rng, operator, horizon, factor
        unit, law, n = operator.unit, operator.law, 400
        x = region.sample(rng, n, law.dim) / unit
        self.start = np.log(x) if operator.prices else x
        self.end = law.mean(self.start, np.zeros(n), horizon * rng.random(n))
        self.coordinates = (
            f"log(x / {unit})" if operator.prices else ("x" if unit == 1 else f"(x / {unit})")
        )
        self.arrays: dict[str, np.ndarray] = {}
        self.projected = 0

    def reach(self, P: np.ndarray, axes: tuple[int, ...] | None) -> Reach:
        law, zero = self.operator.law, np.zeros(1)
        V = np.diag(law.covariance(P, zero, zero + self.horizon)[0])
        z = self.end @ P.T
        region = (self.start @ P.T).std(axis=0)
        return Reach(
            z.mean(axis=0),
            region,
            np.sqrt(z.var(axis=0) + 0.5 * V),
            V,
            law.isotropic or (law.along_axes and axes is not None),
            self.operator.prices,
        )

    def term(self, source: bool, kinds: dict[str, float]) -> tuple[Term, str]:
        """Draw one term; the term and its text."""
        rng, dim = self.rng, self.operator.law.dim
        kind = pick(rng, kinds)
        time, pace = (
            TIMES[str(rng.choice(list(TIMES)))](rng, self.horizon) if source else ("1.0", 0.0)
        )
        amplitude = short(log_uniform(rng, 0.2, 3) * rng.choice([-1, 1]) * self.factor)
        if kind == "full":
            shape: Any = full(rng, dim, source, self.operator.prices)
            return Term(kind, amplitude, shape, None, time, pace), self.joined(
                amplitude,
                time,
                shape.code.replace("X", self.coordinates).replace(
                    "Y", f"(x / {self.operator.unit})"
                ),
            )
        P, axes = projections(rng, dim)
        shape = KINDS[kind](rng, self.reach(P, axes))
        P = P[: shape.k]
        self.projected += shape.k
        return Term(kind, amplitude, shape, P, time, pace), self.joined(
            amplitude, time, self.written(shape.code, P, axes)
        )

    def joined(self, amplitude: float, time: str, code: str) -> str:
        return " * ".join([str(amplitude)] + ([] if time == "1.0" else [time]) + [code])

    def written(self, code: str, P: np.ndarray, axes: tuple[int, ...] | None) -> str:
        """The code of a shape as text in x."""
        unit, prices = self.operator.unit, self.operator.prices
        if axes is not None:
            each = [
                f"log(x[{i}] / {unit})"
                if prices
                else (f"x[{i}]" if unit == 1 else f"(x[{i}] / {unit})")
                for i in axes[: len(P)]
            ]
            return code.format(*each, *[""] * 3)
        place = self.coordinates if prices else "x"
        rows = P if prices else P / unit
        count = len(self.arrays)
        if len(P) > 1 and self.rng.random() < 0.5:
            self.arrays[f"P{count}"] = rows
            return f"(lambda z: {code.format('z[0]', 'z[1]', 'z[2]')})(P{count} @ {place})"
        names = [f"p{count + i}" for i in range(len(P))]
        self.arrays.update(zip(names, rows, strict=True))
        return code.format(*(f"({name} @ {place})" for name in names), *[""] * 3)


def positive(writer: Writer) -> tuple[list[Term], str]:
    """Draw a positive function: a constant, plus cosines, bumps or sigmoids that stay above it."""
    rng, terms, texts, floor = writer.rng, [], [], 0.3
    for _ in range(int(rng.integers(1, 3))):
        P, axes = projections(rng, writer.operator.law.dim)
        reach, size, kind = writer.reach(P, axes), short(rng.uniform(0.3, 2)), rng.random()
        if kind < 0.4:
            shape: Any = plane_wave([log_uniform(rng, 0.5, 6)], 0.0, False)
            floor += size
        elif kind < 0.7:
            shape = gaussian([reach.centre(rng, 0, 0.5)], log_uniform(rng, 0.1, 0.7))
        else:
            steep, c = log_uniform(rng, 1, 20), reach.centre(rng, 0, 0.5)
            shape = ridge(f"sigmoid({steep} * {off(0, c)})", [(c, 1 / steep)])
        writer.projected += 1
        terms.append(Term("positive", size, shape, P[:1]))
        texts.append(f"{size} * {writer.written(shape.code, P[:1], axes)}")
    floor = short(floor)
    flat = np.eye(writer.operator.law.dim)[:1]
    terms.append(Term("positive", floor, Wave("1.0", 1, [WaveTerm(1.0, *zeros(1))]), flat))
    return terms, " + ".join([str(floor), *texts])


def draw(rng: Rng, number: int, seed: int, most: int = 300) -> Stranger:
    """Draw one problem in up to `most` dimensions, without a check of its exact solution."""
    dim, horizon = (
        round(float(np.exp(rng.uniform(0, np.log(most + 0.49))))),
        log_uniform(rng, 0.05, 5),
    )
    forced = bool(rng.random() < 0.6)
    operator = draw_operator(rng, dim, horizon, forced)
    region = draw_region(rng, dim, operator)
    factor = 1.0 if rng.random() < 0.6 else float(10.0 ** rng.integers(-6, 7))
    backward = bool(rng.random() < (0.8 if operator.prices else 0.2))
    writer = Writer(rng, operator, region, horizon, factor)
    told = dict(operator.told)
    if operator.name == "semilinear":
        truth, texts, variant = semilinear(writer, told, backward, horizon)
    else:
        counts = rng.choice([1, 1, 1, 2, 3]), rng.choice([1, 1, 2, 3]) if forced else 0
        found = [
            [writer.term(source, WEIGHTS) for _ in range(count)]
            for source, count in zip((False, True), counts, strict=True)
        ]
        if forced and rng.random() < 0.15:
            found[0] = []
        truth = Truth(
            operator.law, horizon, backward, *([term for term, _ in part] for part in found)
        )
        texts, variant = (
            [" + ".join(text for _, text in part) or "0.0 * x[0]" for part in found],
            operator.name,
        )
        if forced:
            told["source"] = Formula(texts[1], writer.arrays).function("t, x")
    told["terminal" if backward else "initial"] = Formula(texts[0], writer.arrays).function("x")
    equation = f"{operator.words}{' + F' if 'source' in told else ''}"
    words = [
        f"u_t + {equation} = 0" if backward else f"u_t = {equation}",
        f"T = {horizon}, {region}",
        f"{'u(T, x)' if backward else 'u(0, x)'} = {texts[0]}",
    ]
    if "source" in told:
        words.append(f"F = {texts[1]}")
    words += [
        f"{name} of shape {a.shape}: {np.array2string(a.ravel()[:4], precision=4)}"
        for name, a in writer.arrays.items()
    ]
    tags = {
        "operator": operator.name,
        "variant": variant,
        "terminal": backward,
        "region": type(region).__name__,
        "unit": operator.unit,
        "factor": factor,
        "initial": sorted({term.kind for term in truth.initial})
        or [variant if operator.name == "semilinear" else "zero"],
        "source": sorted({term.kind for term in truth.source})
        or ["none" if operator.name != "semilinear" else variant],
        "dim": dim,
        "horizon": horizon,
        "projections": writer.projected,
    }
    return Stranger(number, seed, tags, operator, truth, region, told, words, arrays=writer.arrays)


def semilinear(
    writer: Writer, told: dict[str, Any], backward: bool, horizon: float
) -> tuple[Truth, list[str], str]:
    """Draw a nonlinear problem with a known solution.

    These are linear problems in other variables, travelling waves, or a reaction as a source.
    """
    rng, operator, f = writer.rng, writer.operator, writer.factor
    D, law = float(operator.law.A), operator.law
    A = D * operator.unit**2
    variant = str(
        rng.choice(["control", "exponential", "sinh", "fisher", "nagumo", "reaction as a source"])
    )
    truth = Truth(law, horizon, backward, [], [])
    if variant in ("control", "exponential", "sinh"):
        truth.initial, text = positive(writer)
    if variant == "control":  # v = e^{-λu/A} obeys v_t = A Δv
        lam = short(A * rng.uniform(0.3, 3) / f)
        texts = [f"{-A / lam} * log({text})", f"-{lam} * du @ du"]
        truth.outer = lambda v: -(A / lam) * np.log(v)
    elif variant == "exponential":  # u = f e^v
        texts = [f"{f} * exp({text})", f"-{A} * du @ du / u"]
        truth.outer = lambda v: f * np.exp(v)
    elif variant == "sinh":  # u = f sinh v
        texts = [f"{f} * jnp.sinh({text})", f"-{A} * u * (du @ du) / ({f**2} + u**2)"]
        truth.outer = lambda v: f * np.sinh(v)
    elif variant in ("fisher", "nagumo"):
        P, axes = projections(rng, law.dim)
        r, c, sign = (
            short(log_uniform(rng, 0.3, 8) / horizon),
            writer.reach(P, axes).centre(rng),
            rng.choice([-1.0, 1.0]),
        )
        a = short(rng.uniform(0, 1))
        steep = float(sign * np.sqrt(r / ((6 if variant == "fisher" else 2) * D)))
        speed, power = (5 / 6 * r, 2) if variant == "fisher" else (r * (0.5 - a), 1)
        place = writer.written(off(0, c), P[:1], axes)
        writer.projected += 1
        texts = [
            f"{f} * sigmoid({steep} * {place})" + ("**2" if power == 2 else ""),
            f"{r} * u * (1 - u / {f})"
            if power == 2
            else f"{r} * u * (1 - u / {f}) * (u / {f} - {a})",
        ]
        told["source"] = Formula(texts[1], {}).function("t, x, u")
        truth = Closed(
            law,
            horizon,
            backward,
            [],
            [],
            formula=lambda t, y: f * expit(steep * (y @ P[0] - c) + speed * t) ** power,
        )
    else:
        law.reaction = short(rng.uniform(-1.5, 1.5))
        first, second = writer.term(False, WEIGHTS), writer.term(True, WEIGHTS)
        truth.initial, truth.source, texts = (
            [first[0]],
            [second[0]],
            [first[1], f"{law.reaction} * u + {second[1]}"],
        )
        told["source"] = Formula(texts[1], writer.arrays).function("t, x, u")
    told.setdefault("source", Formula(texts[1], {}).function("t, x, u, du"))
    return truth, texts, variant


def stranger(number: int, seed: int = 0) -> Stranger:
    """The random problem of this number.

    Draws whose exact solution is not accurate to 1e-6 are counted and replaced by the next draw.
    """
    rng = np.random.default_rng([seed, number])
    for replaced in range(50):
        found = draw(rng, number, seed)
        found.replaced = replaced
        T = found.truth.horizon
        n = 1 if found.region.is_point else 24
        t = (
            np.full(n, 0.0 if found.truth.backward else T)
            if found.region.is_point
            else T * rng.random(n)
        )
        with np.errstate(all="ignore"):
            error = found.truth.settle(
                t, found.plain(found.region.sample(rng, n, found.tags["dim"]))
            )
        if error <= GOOD:
            return found
    raise RuntimeError(f"no draw of stranger {number}, seed {seed}, has a good truth")
