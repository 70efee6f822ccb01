"""Sources that depend on u.

Their parts against mathematics, solves and certificates against exact solutions and a radial
reduction, and what is refused.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import heatnets as hn
from heatnets._core.errors import InputError, NumericalError
from heatnets._core.execution import make_context
from heatnets.certify import certified_network
from heatnets.certify.linearization import Fit, derivative_variation
from heatnets.certify.linearization_error import LinearizationError
from heatnets.features import designs
from heatnets.features.equation import build_equation, to_jax
from heatnets.features.families import ImportanceFamily
from heatnets.features.features import Antithetic, TransportedReaction
from heatnets.fit.collocation import uniform
from heatnets.fit.entry_cache import EntryCache
from heatnets.fit.iteration import Newton, Picard
from heatnets.pde.function import Function
from heatnets.pde.function_values import has_jump
from heatnets.pde.laplacian import ComposedFunction
from heatnets.pde.sources import ChebyshevSource, ReactionFlow

pytestmark = pytest.mark.usefixtures("x64")


def bell(x):
    return jnp.exp(-x @ x / x.size)


def cubic(t, x, u):
    return u - u**3


def radial(dim, horizon, initial, f, width=12.0, cells=1200):
    """u(T, 0) of u_t = Δu + f(u) with u0 a function of |x|: finite volumes in the radius."""
    h = width / cells
    edges = h * np.arange(cells + 1)
    centres = 0.5 * (edges[1:] + edges[:-1])
    volume = (edges[1:] ** dim - edges[:-1] ** dim) / dim
    flux = edges[1:-1] ** (dim - 1) / h

    def right(t, u):
        out, flow = f(u).copy(), flux * np.diff(u)
        out[:-1] += flow / volume[:-1]
        out[1:] -= flow / volume[1:]
        return out

    u = solve_ivp(
        right,
        (0, horizon),
        initial(centres),
        method="LSODA",
        rtol=1e-9,
        atol=1e-12,
        lband=1,
        uband=1,
    ).y[:, -1]
    return (9 * u[0] - u[1]) / 8  # even in the radius


def test_the_radial_oracle_knows_the_heat_equation():
    """∫ of a Gaussian: exp(-r²/d) becomes (1 + 4T/d)^(-d/2) at the origin."""
    found = radial(3, 0.5, lambda r: np.exp(-(r**2) / 3), lambda u: -0.3 * u)
    assert found == pytest.approx(np.exp(-0.15) * (1 + 2 / 3) ** -1.5, rel=2e-5)


# Parts


def test_the_flow_of_a_source_is_that_of_its_differential_equation():
    """v' = v - v³ from v0: v²= e^{2s} v0² / (1 + v0²(e^{2s} - 1))."""
    problem = hn.Problem(dim=3, horizon=0.8, initial=bell, source=cubic).canonical
    y, s = jnp.array([0.3, -0.2, 0.9]), 0.7
    v0 = bell(y)
    wanted = np.sqrt(np.exp(2 * s) * v0**2 / (1 + v0**2 * (np.exp(2 * s) - 1)))
    assert problem.flow_resolved
    assert float(problem.reaction_flow(s, y)) == pytest.approx(float(wanted), rel=1e-5)
    finer = ReactionFlow(problem.source, problem.initial, steps=64)
    assert float(finer(s, y)) == pytest.approx(float(wanted), rel=1e-9)
    assert float(problem.guess(s, y)) == pytest.approx(float(wanted - wanted**3), rel=1e-4)


def test_a_polynomial_stands_in_for_a_source_with_kinks():
    def smooth(t, x, u):
        return t * x[0] * u**8 - u**3 + 0.5

    problem = hn.Problem(dim=2, horizon=1.0, initial=bell, source=smooth)
    stand_in = ChebyshevSource(problem.source, -1.5, 2.5)
    for u in (-1.0, 0.2, 2.4):
        wanted = smooth(0.4, np.array([1.2, 0.0]), u)
        assert float(stand_in(0.4, jnp.array([1.2, 0.0]), u)) == pytest.approx(wanted, rel=1e-10)
    kinked = hn.Problem(dim=2, horizon=1.0, initial=bell, source=lambda t, x, u: jnp.abs(u))
    assert kinked.canonical.source_has_kinks
    assert not problem.canonical.source_has_kinks
    assert abs(float(ChebyshevSource(kinked.source, -1.0, 1.0)(0.0, jnp.zeros(2), 0.7)) - 0.7) < 0.1


def brute(phi, t, x):
    return jax.grad(phi)(t, x) - jnp.trace(jax.hessian(lambda y: phi(t, y))(x))


@pytest.mark.parametrize(
    "source",
    [
        cubic,
        lambda t, x, u: jnp.sin(3 * t) * jnp.cos(u),
        lambda t, x, u: 0.5 * jnp.sin(u * x[0]) + 0.2 * t,
        lambda t, x, u, du: u * du[0] - du @ du,
    ],
    ids=["alike", "of t and u", "of x and u", "of the slope"],
)
@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("initial", [bell, lambda x: jnp.prod(jnp.cos(x))], ids=["sum", "product"])
def test_entries_are_those_of_brute_force(source, initial):
    """φ and (∂_t - Δ)φ of both kinds of features, against autodiff of the value."""
    problem = hn.Problem(dim=3, horizon=0.6, initial=initial, source=source).canonical
    data, _ = build_equation(problem, 0)
    reaction = data.data.get("reaction")
    if initial is bell and reaction is not None:
        assert reaction.method.name == "coordinate sums"
    else:  # a product over coordinates is no function of few sums: the chain rule serves
        assert isinstance(reaction, ComposedFunction) == problem.source.is_x_independent(3)
    blocks = ImportanceFamily().draw(problem, (2, 2), designs.DESIGNS["gaussian"], 0, True)
    assert all(isinstance(b, Antithetic) for b in blocks)
    assert isinstance(blocks[0].feature, TransportedReaction) == (not problem.source.uses_gradient)
    t, x = jnp.asarray(0.37), jnp.array([0.2, -0.5, 0.4])
    for block in blocks:
        one = jax.tree.map(lambda a: a[1], block)

        @jax.jit
        def expected(t, x, one=one):
            return one.value(data, t, x), brute(lambda s, y: one.value(data, s, y), t, x)

        found = jax.jit(lambda t, x, one=one: one.value_and_residual(data, t, x))(t, x)
        value, residual = map(float, expected(t, x))
        assert float(found[0]) == pytest.approx(value, rel=1e-13)
        assert float(found[1]) == pytest.approx(residual, rel=1e-9)


def table(problem, features, rows=40, seed=0):
    data, _ = build_equation(problem, 0)
    points = uniform(problem, problem.region, rows, np.random.default_rng(seed))
    found = EntryCache(problem, data, make_context(), points)
    found.add_features(
        ImportanceFamily().draw(problem, features, designs.DESIGNS["gaussian"], 0, True), ""
    )
    return found


@pytest.mark.parametrize(
    "source",
    [lambda t, x, u: jnp.sin(2 * u) + t, lambda t, x, u, du: u * du[0] - du @ du],
    ids=["u", "du"],
)
@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("degree", [0, 2])
def test_rows_are_the_tangent_of_the_equation(source, degree):
    """A w - b at the linearisation point is the residual, and A its derivative in the weights."""
    problem = hn.Problem(dim=3, horizon=0.6, initial=bell, source=source).canonical
    rows = table(problem, (3, 2))
    w = np.random.default_rng(1).standard_normal(5 * (degree + 1)) / 3

    def residual(weights):
        rows.linearize(weights, degree)
        A, b = rows.system(np.arange(5), degree)
        return A @ weights - b, A

    here, A = residual(w)
    # The residual itself, by autodiff of Σ w (t/T)^k φ.
    data = rows.data

    def u(t, x):
        total, first = 0.0, 0
        for block in rows.blocks:
            n = len(block.initial_coefficient)
            phi = jax.vmap(lambda f: f.value(data, t, x))(block)
            for k in range(degree + 1):
                total += (t / 0.6) ** k * (phi @ w.reshape(degree + 1, -1)[k, first : first + n])
            first += n
        return total

    @jax.jit
    def brute_residual(t, x):
        arguments = (u(t, x), jax.grad(u, 1)(t, x))[: 2 if problem.source.uses_gradient else 1]
        return brute(u, t, x) - source(t, x, *arguments)

    for i in (0, 7):
        expected = brute_residual(rows.points[0][i], rows.points[1][i])
        assert here[i] == pytest.approx(float(expected), rel=1e-8)
    for j in (0, len(w) - 1):
        step = 1e-5 * np.eye(len(w))[j]
        slope = (residual(w + step)[0] - residual(w - step)[0]) / 2e-5
        np.testing.assert_allclose(A[:, j], slope, rtol=1e-6, atol=1e-7)
    rows.linearize(w, degree, picard=True)
    plain, b = rows.system(np.arange(5), degree)
    np.testing.assert_allclose(
        plain @ w - b, here, rtol=1e-10, atol=1e-12
    )  # the same residual, without the tangent


def test_the_change_of_a_slope_is_bounded_in_all_directions():
    """The bound on how much the derivative of f changes, against two closed forms.

    For f = -|p|² it changes by 2 size²/(2t) |z|, in every direction; for f = u³ by 6 u size² and
    terms of higher order.
    """
    problem = hn.Problem(
        dim=4,
        horizon=1.0,
        initial=bell,
        source=lambda t, x, u, du: -du @ du,
        diffusion=np.array([0.5, 1, 2, 4.0]),
    ).canonical
    data, _ = build_equation(problem, 0)
    blocks = ImportanceFamily().draw(problem, (4, 4), designs.DESIGNS["gaussian"], 0, True)
    fit = Fit(data, [(b, jnp.full((4, 1), 0.25)) for b in blocks])
    given = (problem.source, fit, to_jax(problem.diffusion), None)
    s, y, size, t = (
        jnp.asarray(0.4),
        jnp.array([0.1, 0.2, -0.3, 0.4]),
        jnp.asarray(0.01),
        jnp.asarray(0.7),
    )
    assert float(derivative_variation(given, s, y, size, t)) == pytest.approx(
        0.01**2 / 0.7 / 0.5, rel=1e-3
    )  # 2/(2t) over the smallest of A
    alone = hn.Problem(dim=4, horizon=1.0, initial=bell, source=lambda t, x, u: u**3).canonical
    data, _ = build_equation(alone, 0)
    blocks = ImportanceFamily().draw(alone, (4, 4), designs.DESIGNS["gaussian"], 0, True)
    fit = Fit(data, [(b, jnp.full((4, 1), 0.25)) for b in blocks])
    u = float(fit.value_and_gradient(s, y, False)[0])
    assert float(
        derivative_variation((alone.source, fit, to_jax(alone.diffusion), None), s, y, size, t)
    ) == pytest.approx(6 * u * 1e-4, rel=0.1)


def test_newton_is_quadratic_and_picard_ends_at_the_same_fit():
    problem = hn.problems.get("allen-cahn", dim=4)
    keywords = {"features": (24, 24), "collocation": "paths", "antithetic": True}
    one, other = hn.solve(problem, **keywords), hn.solve(problem, iteration="picard", **keywords)
    (fast,), (slow,) = one.stats["iterations"], other.stats["iterations"]
    assert len(fast) < len(slow)
    assert fast[2] < 10 * fast[1] ** 2 + 1e-12
    assert one(0.3, np.zeros(4)) == pytest.approx(
        float(other(0.3, np.zeros(4))), rel=1e-4
    )  # residuals are weighted alike only in the limit


# Solves


def quadratic(t, x):
    """Of v_t + ½ Σ σ² x_i² v_ii = 0, backward from T = 1."""
    return jnp.exp(0.04 * (1 - t)) * (x @ x) / x.size / 1e4


def waves(t, x):
    return jnp.exp(-t) * jnp.mean(jnp.cos(x))


def moved_waves(t, x):
    """Of u_t = Δu + b·∇u - u/2, b = (1, -1, 0.5)."""
    return jnp.exp(-1.5 * t) * jnp.mean(jnp.cos(x + t * jnp.array([1.0, -1.0, 0.5])))


OPERATORS = {
    "heat": (waves, {"dim": 3, "horizon": 0.5, "initial": lambda x: waves(0.0, x)}),
    "drift and reaction": (
        moved_waves,
        {
            "dim": 3,
            "horizon": 0.5,
            "initial": lambda x: moved_waves(0.0, x),
            "drift": np.array([1.0, -1.0, 0.5]),
            "reaction": -0.5,
        },
    ),
    "Black-Scholes, terminal": (
        quadratic,
        {
            "dim": 3,
            "horizon": 1.0,
            "terminal": lambda x: quadratic(1.0, x),
            "process": hn.GeometricBrownian(0.2),
            "region": hn.Box(80.0, 120.0),
        },
    ),
    "functions": (
        waves,
        {
            "dim": 3,
            "horizon": 0.5,
            "initial": lambda x: waves(0.0, x),
            "diffusion": lambda t, x: 1 + 0.5 * jnp.sin(x) ** 2,
            "form": "trace",
            "drift": lambda t, x: (
                -0.5 * jnp.sin(x) * jnp.cos(x)
            ),  # not the divergence: what it leaves is in the source
        },
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow if n in ("drift and reaction", "functions") else ())
        for n in OPERATORS
    ],
)
def test_every_operator_takes_a_source_that_depends_on_u(name):
    """Every operator can be solved with the source sin(u) - sin(exact), which keeps its solution.

    Where `exact` does not solve the equation without a source, the missing terms are added to it.
    """
    exact, given = OPERATORS[name]

    def missing(t, x):
        if name != "functions":
            return 0.0
        bend, slope = jnp.diagonal(jax.hessian(waves, 1)(t, x)), jax.grad(waves, 1)(t, x)
        return (
            jax.grad(waves)(t, x)
            - (1 + 0.5 * jnp.sin(x) ** 2) @ bend
            + 0.5 * (jnp.sin(x) * jnp.cos(x)) @ slope
        )

    problem = hn.Problem(
        source=lambda t, x, u: jnp.sin(u) - jnp.sin(exact(t, x)) + missing(t, x),
        exact=exact,
        **given,
    )
    u = hn.solve(problem, features=(24, 24), antithetic=True, time_degree=1, collocation="paths")
    assert hn.measure(u, 200).l2 < 5e-3
    if name == "heat":  # certified in test_allen_cahn_against_the_radial_reduction
        return
    t, x = hn.random_points(problem, 1)
    sure, truth = u.certify(t[0], x[0], samples=256), hn.exact_values(problem, t[0], x[0])
    assert abs(float(sure.value) - truth) < 2 * float(sure.halfwidth) + 1e-12


def test_linear_terms_written_as_a_source_are_those_of_the_operator():
    b, c = np.array([0.5, -1.0, 0.2]), -0.7
    asked = {"dim": 3, "horizon": 0.5, "initial": bell}
    plain = hn.solve(hn.Problem(drift=b, reaction=c, **asked), tol=0, max_rounds=1)
    other = hn.solve(
        hn.Problem(source=lambda t, x, u, du: c * u + b @ du, **asked), tol=0, max_rounds=1
    )
    t, x = hn.random_points(plain.problem, 50)
    assert hn.relative_errors(other(t, x), plain(t, x)).l2 < 5e-4  # of two networks of one round


def test_allen_cahn_against_the_radial_reduction():
    problem = hn.problems.get("allen-cahn", dim=3, horizon=0.5)
    wanted = radial(
        3, 0.5, lambda r: 1 / (2 + 0.4 * r**2), lambda u: u - u**3, width=30.0, cells=3000
    )
    u = hn.solve(problem, tol=0, max_rounds=1)
    assert float(u(0.5, np.zeros(3))) == pytest.approx(wanted, rel=3e-4)
    sure = u.certify(0.5, np.zeros(3), samples=1024)
    assert abs(float(sure.value) - wanted) < 2 * float(sure.halfwidth) + 2e-6 * wanted
    assert sure.halfwidth < 1e-3 * wanted


@pytest.mark.parametrize(
    ("name", "parameters"), [("hamilton-jacobi", {"dim": 8}), ("burgers", {"dim": 5})]
)
def test_sources_that_depend_on_the_gradient(name, parameters):
    problem = hn.problems.get(name, **parameters)
    u = hn.solve(problem, features=(48, 48), antithetic=True, time_degree=1, collocation="paths")
    assert hn.measure(u, 200).l2 < 5e-3
    if name == "hamilton-jacobi":  # certified in test_crude_networks_are_corrected_or_not_certified
        return
    t, x = hn.random_points(problem, 1)
    sure, truth = u.certify(t[0], x[0], samples=256), hn.exact_values(problem, t[0], x[0])
    assert sure.certified, sure.reasons
    assert abs(float(sure.value) - truth) < 2 * float(sure.halfwidth)


def test_kinks_in_u_and_in_the_data():
    kink = hn.Problem(
        dim=2,
        horizon=0.5,
        initial=bell,
        source=lambda t, x, u: -jnp.abs(u - 0.5),
        region=hn.Point(np.zeros(2)),
    )
    wanted = radial(2, 0.5, lambda r: np.exp(-(r**2) / 2), lambda u: -np.abs(u - 0.5))
    u = hn.solve(kink, tol=0, max_rounds=1)
    assert not u.stats["warnings"]  # the solution is smooth: no mild rows
    assert float(u(0.5, np.zeros(2))) == pytest.approx(wanted, rel=0.03)
    payoff = hn.Problem(
        dim=2,
        horizon=0.5,
        initial=lambda x: jnp.maximum(1 - jnp.sqrt(x @ x + 1e-12), 0.0),
        source=lambda t, x, u: u - 4 * u**2,
        region=hn.Point(np.zeros(2)),
    )
    wanted = radial(2, 0.5, lambda r: np.maximum(1 - r, 0.0), lambda u: u - 4 * u**2)
    with pytest.warns(hn.HeatnetsWarning, match="mild rows"):
        u = hn.solve(payoff, tol=0, max_rounds=1)
    assert float(u(0.5, np.zeros(2))) == pytest.approx(wanted, rel=0.05)
    sure = u.certify(0.5, np.zeros(2), samples=2048)
    assert abs(float(sure.value) - wanted) < 2 * float(sure.halfwidth)


# Certificates


@pytest.mark.filterwarnings("ignore::heatnets.HeatnetsWarning")
def test_crude_networks_are_corrected_or_not_certified():
    """The control problem by networks of a few features: certified values hold, or are withheld."""
    problem = hn.problems.get("hamilton-jacobi", dim=20)
    truth = float(hn.exact_values(problem, 1.0, np.zeros(20)))
    for seed in range(2):
        u = hn.solve(
            problem, features=(8, 8), antithetic=True, collocation="paths", rows=(200, 0), seed=seed
        )
        assert abs(float(u(1.0, np.zeros(20))) - truth) > 3e-4
        found = u.certify(1.0, np.zeros(20), samples=512, seed=seed)
        assert found.certified
        assert abs(float(found.value) - truth) < 1.5 * float(found.halfwidth)


def test_a_network_that_is_no_solution_is_not_certified():
    u = hn.solve(
        hn.problems.get("allen-cahn", dim=4, horizon=1.0),
        features=(12, 12),
        antithetic=True,
        collocation="paths",
    )
    far = hn.Problem(
        dim=4,
        horizon=1.0,
        initial=lambda x: 30 / (2 + 0.4 * (x @ x)),
        source=cubic,
        region=hn.Point(np.zeros(4)),
    )
    wrong = u.with_problem(far)
    wrong._canonical, wrong._blocks = (
        far.canonical,
        [(block, 30 * w) for block, w in u._blocks],
    )  # thirty times a solution is none
    wrong.__dict__.pop("network", None)
    for seed in (9, 3, 0):  # all three were certified before the error found was squared, too
        found = wrong.certify(1.0, np.zeros(4), samples=256, seed=seed)
        assert not found.certified
    assert (
        "linear equation" in " ".join(found.reasons)
        or "disagree" in " ".join(found.reasons)
        or "heavy" in " ".join(found.reasons)
    )


def test_the_remainder_is_in_the_interval(monkeypatch):
    problem = hn.problems.get("allen-cahn", dim=4)
    crude = hn.solve(problem, features=(3, 3), antithetic=True, collocation="paths", rows=(100, 0))
    whole = crude.certify(0.3, np.zeros(4), samples=512)
    nothing = LinearizationError(np.zeros(1), [()])
    monkeypatch.setattr(certified_network, "linearization_error", lambda *_: nothing)
    samples_alone = crude.certify(0.3, np.zeros(4), samples=512)
    assert samples_alone.value == whole.value
    assert 0 < whole.halfwidth - samples_alone.halfwidth < samples_alone.halfwidth


def test_a_value_is_explained():
    u = hn.solve(
        hn.problems.get("allen-cahn", dim=4),
        features=(24, 24),
        antithetic=True,
        collocation="paths",
    )
    found = u.explain(0.3, np.zeros(4), samples=4096)
    parts = found.initial.value + found.source.value
    assert parts == pytest.approx(
        float(u(0.3, np.zeros(4))), abs=4 * (found.initial.error + found.source.error)
    )
    assert found.source.value > 0.01


def test_region_wide_errors_go_through_the_tangent():
    problem = hn.problems.get("reaction-diffusion", dim=5)
    u = hn.solve(problem, features=(16, 16), antithetic=True, time_degree=1)
    found, true = u.error(points=128), hn.measure(u, 1000).l2
    assert found.low / 2 < true < 2 * found.high


# Refusals


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (lambda u: u, r"\(t, x, u, du\); its required parameters are \(u\)"),
        (lambda t, x, u, du, more: u, r"required parameters are \(t, x, u, du, more\)"),
        (lambda t, x, u: jnp.where(u > 0.5, 1.0, 0.0), "jumps as u changes"),
        (lambda t, x, u: jnp.where(u > 1.7, 1.0, 0.0), "jumps as u changes"),  # where u0 never is
        (lambda t, x, u, du: jnp.sign(du[0]) * u, "jumps as u changes"),
        (lambda t, x, u: jnp.log(u - 5), "finite at u = u0"),
        (lambda t, x, u, du: du, "must return a scalar"),
    ],
    ids=[
        "arity 1",
        "arity 5",
        "jump",
        "jump elsewhere",
        "jump of the slope",
        "not finite",
        "vector",
    ],
)
def test_sources_that_are_refused(source, words):
    with pytest.raises(InputError, match=words):
        hn.Problem(dim=3, horizon=1.0, initial=bell, source=source)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (lambda t, x, u: 20 * u**3, "blow up"),
        (lambda t, x, u: jnp.exp(3 * u), "blow"),
        (lambda t, x, u: 1e4 * (u - u**3), "stiff"),
        (lambda t, x, u: u * jnp.log(u), "jnp.maximum"),
    ],
    ids=["blow-up", "blow-up, fast", "stiff", "not finite below zero"],
)
def test_no_answer_is_returned_where_there_is_none(source, words):
    problem = hn.Problem(dim=3, horizon=1.0, initial=bell, source=source)
    with pytest.raises(NumericalError, match=words):
        hn.solve(problem, seconds=5)
    with pytest.raises(NumericalError, match=words), np.errstate(all="ignore"):
        hn.solve(problem, features=(16, 16), antithetic=True)


def test_other_things_that_are_refused():
    problem = hn.problems.get("allen-cahn", dim=3)
    with pytest.raises(InputError, match="no direct estimator"):
        hn.montecarlo.importance(problem, 0.3, np.zeros(3))
    for keywords in (
        {"enforce": "mild"},
        {"initial_rows": "soft", "rows": (100, 20)},
        {"family": "gaussian"},
    ):
        with pytest.raises(InputError, match="depends on u"):
            hn.solve(problem, features=(8, 8), collocation="paths", **keywords)
    with pytest.raises(InputError, match="`iteration` is for a source that depends on u"):
        hn.solve(hn.problems.get("oscillating", dim=2), iteration="picard")
    with pytest.raises(InputError, match=r"newton.*picard"):
        hn.solve(problem, iteration="gauss")
    u = hn.solve(problem, features=(8, 8), antithetic=True, collocation="paths")
    with pytest.raises(InputError, match="certified derivatives"):
        u.certify_gradient(0.3, np.zeros(3))


def test_picard_says_when_it_diverges():
    problem = hn.Problem(dim=2, horizon=2.0, initial=bell, source=lambda t, x, u: -12 * u)
    with pytest.raises(NumericalError, match="does not converge"):
        hn.solve(problem, features=(16, 16), antithetic=True, iteration="picard")
    assert Picard.max_steps > Newton.max_steps


def test_jumps_are_told_from_steep_slopes():
    start, end = (np.linspace(-1, 0, 50),), (np.linspace(1, 2, 50),)
    assert has_jump(lambda u: np.where(u > 0.123, 1.0, 0.0)[:, None], start, end)
    assert not has_jump(lambda u: np.tanh(1000 * (u - 0.123))[:, None], start, end)
    assert not has_jump(lambda u: np.abs(u)[:, None], start, end)


def test_values_are_the_function_s_own():
    f = Function(lambda t, x, u: u, arguments="t x u")
    assert hn.Problem(dim=2, horizon=1.0, initial=bell, source=f).canonical.source.uses_u


@pytest.mark.filterwarnings("ignore::heatnets.HeatnetsWarning")
def test_a_source_with_kinks_in_x_is_not_trained_on_the_equation():
    problem = hn.Problem(
        dim=2, horizon=0.5, initial=bell, source=lambda t, x, u: jnp.abs(x[0]) - u**3
    )
    u = hn.solve(problem, tol=0, max_rounds=1)
    assert u.stats["enforce"] == "mild"
