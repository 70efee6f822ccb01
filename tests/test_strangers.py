"""Random problems: their exact values against other quadrature, the equation and Monte Carlo.

The table of their results is checked, too.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest
from scipy.integrate import quad

import heatnets as hn

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import stranger_problems as sp
import stranger_shapes as shapes
import stranger_truth as st
import strangers


def gaussians(k: int, n: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Means and covariances, correlated; the same in every test."""
    rng = np.random.default_rng(k)
    S = rng.standard_normal((n, k, k)) / np.sqrt(2 * k)
    return rng.standard_normal((n, k)), S @ np.swapaxes(S, 1, 2) + 0.05 * np.eye(k)


def brute(code: str, m: np.ndarray, V: np.ndarray, nodes: int) -> np.ndarray:
    """E g(Z) by Gauss and Hermite in every direction, for smooth g."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    k = m.shape[1]
    grid = np.stack(np.meshgrid(*[x] * k, indexing="ij"), -1).reshape(-1, k)
    weights = np.prod(
        np.stack(np.meshgrid(*[w / w.sum()] * k, indexing="ij"), -1).reshape(-1, k), axis=1
    )
    f = eval(f"lambda z: {code.format('z[..., 0]', 'z[..., 1]', 'z[..., 2]')}", dict(st.NAMES))
    z = m[:, None] + np.einsum("nkl,ql->nqk", np.linalg.cholesky(V), grid)
    return f(z) @ weights


def reach(k: int) -> shapes.Reach:
    ones = np.ones(k)
    return shapes.Reach(0 * ones, 0.6 * ones, ones, ones, independent=False)


@pytest.mark.parametrize("kind", ["benign", "powers", "inside waves"])
def test_polynomials_of_the_grammar_are_integrated_whatever_the_covariance(kind):
    """Rules of their degree must be exact: no refinement would tell."""
    for i in range(60):
        shape = shapes.KINDS[kind](np.random.default_rng(i), reach(1 + i % 3))
        if isinstance(shape, st.Wave) and any(piece.polynomial for piece in shape.pieces):
            m, V = gaussians(shape.k)
            assert np.allclose(
                shape.expect(m, V, 0), brute(shape.code, m, V, 8), rtol=1e-9, atol=1e-9
            )


@pytest.mark.parametrize(
    ("shape", "nodes"),
    [
        (shapes.plane_wave([2.0, -1.0], 0.3, True), 60),
        (shapes.wave_product(3.0, 1.0, False), 60),
        (shapes.polynomial("({0} + {1})**6", 2, 6), 10),
        (shapes.polynomial("{0} * {1}", 2, 2), 6),
        (shapes.polynomial("{0}**2 * {1}**2 * {2}**2", 3, 6), 6),
        (shapes.gaussian([0.3, -0.2, 0.1], 0.9), 60),
        (shapes.chirp(1.3, "product", True), 110),
        (shapes.chirp(0.8, "square", False), 110),
        (shapes.exponential([0.7, -0.3], -0.2), 60),
        (
            shapes.added(
                [(0.5, shapes.gaussian([0.1], 0.9)), (2.0, shapes.plane_wave([1.0], 0.0, True))]
            ),
            80,
        ),
        (st.Triple("sin(0.5 * {0} * {1} * {2})", 0.5, True), 50),
        (st.Radial("1 / (2.0 ** 2 + {0}**2 + {1}**2)", 2, 2.0, np.zeros(2)), 120),
        (
            shapes.ridge(
                "tanh(0.7 * {0})", [(0.0, 1.4)], rest=shapes.plane_wave([1.5], 0.0, False)
            ),
            110,
        ),
        (shapes.ridge("exp(0.5 * cos(1.5 * {0}))", [], step=1.0), 80),
    ],
    ids=lambda v: getattr(v, "code", "")[:40],
)
def test_means_of_smooth_shapes(shape, nodes):
    m, V = gaussians(shape.k)
    wanted = brute(shape.code, m, V, nodes)
    # Hermite's rule is exact for polynomials, and good to 1e-8 for the rest at these scales.
    assert np.allclose(shape.expect(m, V, 0), wanted, rtol=1e-7, atol=1e-8 * np.max(np.abs(wanted)))


@pytest.mark.parametrize(
    ("line", "marks"),
    [
        ("tanh(100.0 * ({0} - 0.3))", [(0.3, 0.01)]),
        ("1 / (0.02 ** 2 + {0}**2)", [(0.0, 0.02)]),
        ("sigmoid(60.0 * ({0} - 4.0))", [(4.0, 1 / 60)]),
        ("maximum({0} - 0.2, 0.0)", [(0.2, 0.0)]),
        ("where({0} > 0.2, 1.0, 0.0)", [(0.2, 0.0)]),
    ],
)
def test_means_of_steep_lines(line, marks):
    f, (c, width) = eval(f"lambda y: {line.format('y')}", dict(st.NAMES)), marks[0]
    for m, sd in ((0.4, 0.7), (-0.2, 1e-3), (0.21, 0.05)):
        found = shapes.ridge(line, marks).expect(np.array([[m]]), np.array([[[sd**2]]]), 0)[0]
        cuts = sorted(
            {
                min(max(c + s * width * 4**j, m - 12 * sd), m + 12 * sd)
                for j in range(8)
                for s in (-1, 0, 1)
            }
            | {m - sd, m, m + sd}
        )
        ends = [m - 12 * sd, *cuts, m + 12 * sd]
        pieces = [
            quad(lambda y: f(y) * np.exp(-0.5 * ((y - m) / sd) ** 2), a, b, epsrel=1e-11, epsabs=0)[
                0
            ]
            for a, b in pairwise(ends)
            if b > a
        ]
        assert found == pytest.approx(sum(pieces) / np.sqrt(2 * np.pi) / sd, rel=1e-8, abs=1e-30)


def test_narrow_bumps_and_products_of_fronts():
    m, V = np.array([[0.1, 0.3]]), np.diag([0.2, 0.4])[None]
    w = 0.01
    wide = np.diag(V[0]) + w**2
    known = np.prod(w / np.sqrt(wide) * np.exp(-((m[0] - 0.2) ** 2) / (2 * wide)))
    assert shapes.gaussian([0.2, 0.2], w).expect(m, V, 0)[0] == pytest.approx(known, rel=1e-10)
    fronts = [
        shapes.ridge("tanh(50.0 * {0})", [(0.0, 0.02)]),
        shapes.ridge("arctan(9.0 * {0})", [(0.0, 1 / 9)]),
    ]
    alone = [
        f.expect(m[:, i : i + 1], V[:, i : i + 1, i : i + 1], 0)[0] for i, f in enumerate(fronts)
    ]
    assert st.Product("", 2, fronts).expect(m, V, 0)[0] == pytest.approx(alone[0] * alone[1])


def test_full_dimensional_closed_forms():
    """Solutions of u_t = D Δu for data in all coordinates, against other closed forms and sampling.

    exp(-|x|²/(s d)), mean cos and |x|²/d are held against closed forms, 1/(1 + |x|²/d) and the
    mean of x⁴ against Monte Carlo.
    """
    d, D, t, rng = 7, 0.3, np.array([0.4]), np.random.default_rng(0)
    law, y, zero = st.Law(d, D), rng.uniform(-1, 1, (1, d)), np.zeros(1)
    wide = 1.5 * d + 4 * D * t[0]
    assert st.bell(1.5).mean(law, y, zero, t, 0)[0] == pytest.approx(
        (1.5 * d / wide) ** (d / 2) * np.exp(-np.sum(y**2) / wide)
    )
    assert st.mean_wave(2.0, False).mean(law, y, zero, t, 0)[0] == pytest.approx(
        np.exp(-4 * D * t[0]) * np.mean(np.cos(2 * y))
    )
    assert st.mean_power(2).mean(law, y, zero, t, 0)[0] == pytest.approx(
        np.mean(y**2) + 2 * D * t[0]
    )
    ends = y + np.sqrt(2 * D * t[0]) * rng.standard_normal((200_000, d))
    for shape, f in (
        (st.rational_bell(), lambda x: 1 / (1 + np.mean(x**2, axis=1))),
        (st.mean_power(4), lambda x: np.mean(x**4, axis=1)),
    ):
        samples = f(ends)
        assert abs(
            shape.mean(law, y, zero, t, 0)[0] - samples.mean()
        ) < 5 * samples.std() / np.sqrt(len(samples))


def test_prices_grow_as_they_should():
    """E X = x e^{growth t} and E X² = x² e^{(2 growth + σ²) t} under geometric Brownian motion."""
    sigma, growth, t, zero = np.array([0.2, 0.5]), 0.07, np.array([1.3]), np.zeros(1)
    law, x = st.Law(2, 0.5 * sigma**2, drift=growth - 0.5 * sigma**2), np.array([[0.9, 1.4]])
    assert st.mean_price(1).mean(law, np.log(x), zero, t, 0)[0] == pytest.approx(
        x.mean() * np.exp(growth * t[0])
    )
    squares = x[0] ** 2 * np.exp((2 * growth + sigma**2) * t[0])
    assert st.mean_price(2).mean(law, np.log(x), zero, t, 0)[0] == pytest.approx(squares.mean())


def drawn(number: int, seed: int, most: int = 30) -> sp.Stranger:
    return sp.draw(np.random.default_rng([seed, number]), number, seed, most)


def test_the_grammar_has_everything_and_is_fixed_by_its_numbers():
    found = [drawn(i, 5).tags for i in range(250)]
    assert {t["operator"] for t in found} == set(sp.OPERATORS)
    assert {k for t in found for k in t["initial"]} >= set(sp.WEIGHTS) | {"zero", "positive"}
    assert {k for t in found for k in t["source"]} >= set(sp.WEIGHTS) | {"none"}
    assert {t["region"] for t in found} == {"Box", "Normal", "Point"}
    assert {t["dim"] for t in found} >= {1, 2, 3}
    one, two = sp.stranger(3, 5), sp.stranger(3, 5)
    assert str(one) == str(two)
    t, x = (
        np.full(3, 0.5 * one.truth.horizon),
        one.region.sample(np.random.default_rng(0), 3, one.tags["dim"]),
    )
    assert np.array_equal(one.exact(t, x), two.exact(t, x))


def in_numpy(f: FunctionType) -> FunctionType:
    """A user's function with NumPy's functions in the place of JAX's: nothing is compiled."""
    return FunctionType(
        f.__code__,
        {**f.__globals__, **st.NAMES, "mean": np.mean, "jnp": np},
        argdefs=f.__defaults__,
    )


def test_at_the_start_the_truth_is_what_the_user_wrote():
    for number in range(100):
        who = drawn(number, 1)
        x = who.region.sample(np.random.default_rng(0), 3, who.tags["dim"])
        given = in_numpy(who.told["terminal" if who.truth.backward else "initial"])
        found, wanted = (
            who.exact(np.full(3, who.truth.horizon if who.truth.backward else 0.0), x),
            [given(row) for row in x],
        )
        size = who.tags["factor"] * 1e-12 + np.max(np.abs(wanted))
        assert np.allclose(found, wanted, rtol=0, atol=1e-11 * size), (
            who
        )  # narrow bumps magnify rounding


def residual(who: sp.Stranger, t: float, x: np.ndarray) -> tuple[float, float]:
    """The equation's residual in plain coordinates, and the size of its terms.

    Derivatives are differences of fourth order.
    """
    law, unit, d = who.operator.law, who.operator.unit, len(x)
    y, h, s = who.plain(x), 4e-3, 1e-3 * who.truth.horizon
    shift = np.array([-2, -1, 1, 2])
    first, second = np.array([1, -8, 8, -1]) / 12, np.array([-1, 16, 16, -1]) / 12
    steps = np.eye(d)
    pairs = [(i, j) for i in range(d) for j in range(i)]
    places = [
        y,
        *(y + k * h * e for e in steps for k in shift),
        *(y + k * h * (steps[i] + steps[j]) for i, j in pairs for k in shift),
    ]
    times = np.concatenate([np.full(len(places), t), t + s * shift])
    v = who.truth.exact(times, np.array([*places, *[y] * 4]))
    along = v[1 : 1 + 4 * d].reshape(d, 4)
    slope, curve = along @ first / h, (along @ second - 2.5 * v[0]) / h**2
    hessian = np.diag(curve)
    for n, (i, j) in enumerate(pairs):
        both = (v[1 + 4 * d + 4 * n : 5 + 4 * d + 4 * n] @ second - 2.5 * v[0]) / h**2
        hessian[i, j] = hessian[j, i] = 0.5 * (both - curve[i] - curve[j])
    rate = v[-4:] @ first / s
    A = np.asarray(law.A) * np.eye(d) if np.ndim(law.A) < 2 else law.A
    A = A * (1 + law.swing * np.sin(law.beat * t))
    b = law.drift + law.rate * (law.centre - y)
    if law.turn:
        b = b + law.turn * np.array([-y[1], y[0], *[0.0] * (d - 2)])
    c = law.reaction + law.ripple * np.cos(law.beat * t)
    terms = [-rate if not who.truth.backward else rate, np.sum(A * hessian), b @ slope, c * v[0]]
    if "source" in who.told:
        given = in_numpy(who.told["source"])
        terms.append(given(*[t, x, v[0], slope / unit][: given.__code__.co_argcount]))
        if who.tags["variant"] == "reaction as a source":
            terms[3] = 0.0  # it is in the source
    return sum(terms), sum(abs(term) for term in terms)


def test_the_truth_obeys_the_equation():
    """Every operator in up to three dimensions, among them all nonlinear ones."""
    seen, number = set(), 0
    hard = {
        "kinks",
        "bumps",
        "frequencies",
        "scales",
        "fronts",
        "rational",
        "rare",
        "inside waves",
        "soft",
    }
    while len(seen) < len(sp.OPERATORS) + 5:
        number += 1
        who = drawn(number, 2, most=3)
        if who.tags["variant"] in seen or hard & {*who.tags["initial"], *who.tags["source"]}:
            continue
        x = who.region.sample(np.random.default_rng(0), 1, who.tags["dim"])[0]
        left, size = residual(who, 0.5 * who.truth.horizon, x)
        assert abs(left) < 1e-5 * size, (
            who
        )  # differences: h⁴ times sixth derivatives, and 1e-15 / h²
        seen.add(who.tags["variant"])


LINEAR = [name for name in sp.OPERATORS if name != "semilinear"]


@pytest.mark.parametrize(
    "wanted",
    [
        name if name in ("matrix", "geometric") else pytest.param(name, marks=pytest.mark.slow)
        for name in LINEAR
    ],
)
def test_the_truth_is_what_monte_carlo_finds(wanted):
    who = next(
        w
        for w in (drawn(i, 3) for i in range(1000))
        if w.tags["operator"] == wanted and w.truth.source and w.tags["region"] == "Box"
    )
    t, x = hn.random_points(who.problem, 16)
    sampled = hn.montecarlo.importance(who.problem, t, x, samples=4096)
    gap = np.maximum(np.abs(sampled.value - who.exact(t, x)) - sampled.truncation_bias, 0.0)
    assert np.all(gap < 5 * sampled.standard_error)


def test_what_is_not_finite_goes_into_a_file_and_back():
    kept = json.loads(
        json.dumps(
            strangers.jsonable(
                {
                    "a": np.inf,
                    "b": [np.float64(1.5), np.nan],
                    "c": np.bool_(True),
                    "d": np.int64(3),
                    "e": None,
                }
            )
        )
    )
    assert kept == {"a": "inf", "b": [1.5, "nan"], "c": True, "d": 3, "e": None}
    assert strangers.num("inf") == np.inf


def cell(number: int, error: float, estimated: float, **more) -> dict:
    tags = drawn(number, 0).tags
    known = {
        "settings": {"number": number, "seed": 0},
        "tags": tags,
        "outcome": "solved",
        "error": error,
        "error_low": 0.9 * error,
        "error_high": 1.1 * error,
        "estimated": estimated,
        "truth_error": 1e-15,
        "not_solved": estimated > 0.1,
        "seconds": 5.0,
        "met": estimated < 1e-2,
        "tol": 1e-2,
        "region": {"value": error, "low": 0.5 * error, "high": 2 * error, "certified": True},
        "points": [{"certified": True, "inside": True, "ratio": 0.3, "method": "residual"}],
        "monte_carlo": {"error": 0.02},
        "replaced": 0,
    }
    return known | more


def test_the_table_counts_what_was_wrong():
    cells = [
        cell(0, 1e-3, 2e-3),
        cell(1, 5e-2, 4e-3, region={"value": 1e-3, "low": 1e-4, "high": 2e-3, "certified": True}),
        cell(2, 0.5, 0.4),
        cell(3, 1e-14, 1e-17),
        {
            **cell(4, 0, 0),
            "outcome": "declined",
            "words": "NumericalError: not solved",
            "estimated": "inf",
        },
        cell(
            5,
            1e-3,
            2e-3,
            points=[{"certified": True, "inside": False, "ratio": 3.0, "method": "residual"}],
        ),
    ]
    text = strangers.summary(cells)
    assert "estimate below a third of the true error | 16.7 % (1 of 6)" in text
    assert "estimate below a tenth of the true error | 16.7 % (1 of 6)" in text
    assert "claimed falsely | 25.0 % (1 of 4)" in text
    assert "explains | 20.0 % (1 of 5)" in text
    assert "hold the truth | 80.0 % (4 of 5)" in text
    assert "- 1 of seed 0: error 5.0e-02" in text
    assert "furthest off, in half-widths | 3.0 (5 of seed 0)" in text
    assert "| all | 6 | 50 % | 50 % | 33 % | 17 % |" in text


def test_cases_that_crash_or_hang_are_kept_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr(strangers, "START_UP", 1.0)
    script = (
        "import json, sys, time\n"
        "for n in map(int, sys.argv[1:]):\n"
        "    if n == 2: raise SystemExit('broken')\n"
        "    if n == 4: time.sleep(60)\n"
        "    print(json.dumps({'number': n, 'outcome': 'solved'}), flush=True)\n"
    )
    kept = {}
    strangers.attend(
        [1, 2, 3, 4, 5],
        [sys.executable, "-c", script],
        {0},
        1.0,
        lambda n, found: kept.update({n: found}),
    )
    assert {n: found["outcome"] for n, found in kept.items()} == {
        1: "solved",
        2: "failed",
        3: "solved",
        4: "failed",
        5: "solved",
    }
    assert kept[2]["words"] == "broken\n"
    assert "no answer" in kept[4]["words"]
