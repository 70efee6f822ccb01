"""Kinks named from programs, and features that integrate them in one direction."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy.special import ndtr

import heatnets as hn
from heatnets._core.execution import make_context
from heatnets.certify.evaluator import NetworkEvaluator
from heatnets.features.equation import build_equation
from heatnets.pde.function import Function
from heatnets.pde.kinks import UnnamedKink, name_kinks
from heatnets.pde.preintegration import find_roots, line_quadrature, quadrature
from heatnets.pde.preintegration_choice import choose_preintegration, line_errors
from heatnets.pde.smoothness import find_kinks

pytestmark = pytest.mark.usefixtures("x64")

X = np.array([1.0, -2.0, 3.5])

# A function, and the arguments at X at whose zeros its pieces meet.
NAMED = {
    "maximum": (lambda x: jnp.maximum(jnp.sum(x) - 1, 0.0), [1.5]),
    "abs": (lambda x: jnp.abs(x[0] - x[1]), [3.0]),
    "where": (lambda x: jnp.where(jnp.sum(x) > 1, x[0], 2.0), [1.5]),
    "select": (lambda x: jax.lax.select(x[0] < x[1], x[0], x[1]), [3.0]),
    "relu": (lambda x: jax.nn.relu(x[0] - 0.25), [0.75]),
    "leaky": (lambda x: jax.nn.leaky_relu(x[0]), [1.0]),
    "clip": (lambda x: jnp.clip(x[0], -1, 2), [-2.0, 1.0]),
    "comparison": (lambda x: (x[0] > 0.5) * x[1], [0.5]),
    "sign": (lambda x: jnp.sign(x[1]), [-2.0]),
    "two": (lambda x: 1.0 * ((x[0] > 0) & (x[1] < 1)), [1.0, -3.0]),
    "nested": (lambda x: jnp.minimum(jnp.maximum(x[2] - 1, 0), 0.5), [2.5, 2.0]),
    "max-call": (lambda x: jnp.maximum(jnp.max(x) - 1, 0), [-3.0, 2.5, 2.5]),
    "worst-of": (jnp.min, [-3.0, 5.5]),
    "calls": (lambda x: jnp.sum(jax.nn.relu(x - 1)), [0.0, -3.0, 2.5]),
    "cond": (lambda x: jax.lax.cond(x[0] > 0, lambda: x[0], lambda: 0.0), [1.0]),
    "table of comparisons": (lambda x: jnp.arange(3.0)[jnp.sum(x[0] > jnp.array([0, 2]))], [1, -1]),
    "jit": (jax.jit(lambda x: jnp.abs(x[0])), [1.0]),
    "smooth": (lambda x: jnp.sum(jnp.sin(x)), []),
}
HIDDEN = {
    "interp": lambda x: jnp.interp(x[0], jnp.array([0.0, 1, 2]), jnp.array([0.0, 1, 0])),
    "table": lambda x: jnp.arange(5.0)[jnp.int32(x[0])],
    "floor": lambda x: jnp.floor(x[0]),
    "sort": lambda x: jnp.sort(x)[-2],
    "argmax": lambda x: x[jnp.argmax(x)],
    "many": lambda x: jnp.sum(jnp.abs(x[0] - jnp.arange(100))),
}


@pytest.mark.parametrize("name", NAMED)
def test_kinks_are_named(name):
    f, values = NAMED[name]
    kinks, count = name_kinks(Function(f), 3)
    found = kinks(jnp.asarray(X))
    assert count == len(values)
    np.testing.assert_allclose(np.abs(found), np.abs(values), atol=1e-14)


@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_kinks_are_said(name):
    with pytest.raises(UnnamedKink):
        name_kinks(Function(HIDDEN[name]), 3)


S = np.array([[0.5, 0.0, 0.0], [0.2, 0.4, 0.0], [-0.1, 0.2, 0.3]])


def stated(f, **given):
    region = given.pop("region", hn.Box(-0.3, 0.3))
    given = {"diffusion": hn.Factor(S)} | given
    return hn.Problem(3, 0.7, initial=f, region=region, **given)


def prepared(f, **given):
    """The canonical problem with its rule, and its equation."""
    problem, ctx = stated(f, **given).canonical, make_context()
    with ctx.active():
        rule, why = choose_preintegration(problem, 0, ctx)
        assert rule is not None, why
        problem = replace(problem, preintegration=rule)
        return problem, build_equation(problem, 0)[0]


def path(t):
    return (), jnp.sqrt(2 * t)


PAYOFFS = {
    "basket": lambda x: jnp.maximum(jnp.exp(x) @ np.array([0.3, 0.5, 0.2]) - 1, 0.0),
    "step": lambda x: jnp.where(jnp.sum(jnp.exp(x)) > 3.1, 1 + x[0] ** 2, 0.3 * x[1]),
    "spread": lambda x: jnp.clip(jnp.sum(jnp.exp(x)), 2.8, 3.3) + 0.1 * x[0],
    "twice": lambda x: (
        jnp.maximum(jnp.sum(x) + 0.2 * x[0] * x[1], 0) + (jnp.sum(x) + 0.2 * x[0] * x[1] > 0)
    ),
}


@pytest.mark.parametrize("name", ["step", "spread", "twice"])
def test_features_are_line_integrals_and_residuals_are_their_derivatives(name, unoptimised):
    f = PAYOFFS[name]
    problem, equation = prepared(f)
    initial, t, x = equation.functions["initial"], jnp.asarray(0.4), jnp.array([0.1, -0.2, 0.1])
    eta = jnp.asarray(S @ np.array([0.4, -1.1, 0.7]))

    def value(t, x):
        return initial.transport((), x, jnp.sqrt(2 * t), eta)

    found, residual = jax.jit(lambda: initial.transport_with_residual(path, t, x, eta))()
    # The integral, by the midpoint rule with a million points: 1e-6 at a jump.
    rule = problem.preintegration
    across = eta - (rule.conormal @ eta) * rule.axis
    z = (np.arange(10**6) + 0.5) * 16e-6 - 8
    line = x + jnp.sqrt(2 * t) * (across + z[:, None] * rule.axis)
    integral = 16e-6 * jnp.sum(jax.vmap(f)(line) * norm.pdf(z))
    assert abs(found - integral) < 1e-5
    assert abs(found - value(t, x)) < 1e-13
    # (∂_t - tr(A D²))φ by automatic differentiation, through the roots.
    rate = jax.jit(lambda: jax.jvp(lambda s: value(s, x), (t,), (1.0,))[1])()

    def along(v):
        def shifted(e):
            return value(t, x + e * v)

        return jax.jvp(lambda e: jax.jvp(shifted, (e,), (1.0,))[1], (0.0,), (1.0,))[1]

    second = jax.jit(jax.vmap(along))(jnp.asarray(S.T))
    size = abs(rate) + np.sum(np.abs(second))
    assert abs(residual - (rate - np.sum(second))) < 1e-6 * size
    assert abs(residual) > 1e-4 * size


def test_a_ridge_is_exact_in_every_direction(unoptimised):
    """u0 = max(c·x - k, 0): φ is the formula of Bachelier, and its residual is zero."""
    c, k = np.array([0.5, -1.0, 2.0]), 0.2
    _, equation = prepared(lambda x: jnp.maximum(x @ c - k, 0.0))
    initial, rng = equation.functions["initial"], np.random.default_rng(0)
    evaluate = jax.jit(lambda t, x, e: initial.transport_with_residual(path, t, x, e))
    for _ in range(5):
        t, x, e = rng.random(), 0.3 * rng.standard_normal(3), S @ rng.standard_normal(3)
        value, residual = evaluate(t, x, e)
        width, mean = np.sqrt(2 * t) * np.linalg.norm(S.T @ c), c @ x - k
        exact = mean * norm.cdf(mean / width) + width * norm.pdf(mean / width)
        assert abs(value - exact) < 1e-10
        assert abs(residual) < 1e-10


@pytest.mark.parametrize(("std", "reach"), [(0.3, 7.5), (3.0, 14.0)])
def test_lines_reach_as_far_as_the_data_have_mass(std, reach, unoptimised):
    """E max(e^X - 1, 0) for a normal X: with a standard deviation of 3 its mass is around X = 9."""
    diffusion = std**2 / (2 * 0.7)
    f = lambda x: jnp.maximum(jnp.exp(x[0]) - 1, 0.0)  # noqa: E731
    problem, equation = prepared(f, diffusion=diffusion, region=hn.Box(-0.1, 0.1))
    rule, initial = problem.preintegration, equation.functions["initial"]
    assert rule.reach <= reach
    assert (rule.reach == 7.5) == (std == 0.3)
    value = initial.transport((), jnp.zeros(3), jnp.sqrt(1.4), jnp.ones(3) * diffusion**0.5)
    exact = np.exp(std**2 / 2) * norm.cdf(std) - 0.5
    assert abs(value / exact - 1) < 1e-10


def test_far_in_the_money_kinks_are_integrated_too():
    """Hardly a random segment meets the kink, but residuals would."""
    f = lambda x: jnp.maximum(jnp.sum(x) + 3.6, 0.0)  # noqa: E731
    problem, ctx = stated(f), make_context()
    with ctx.active():
        assert not find_kinks(problem.canonical, 0, ctx)
    u = hn.solve(problem, max_rounds=1)
    assert "pre-integrated" in u.stats["laplacian"]["initial"]
    x, width = np.array([-0.3, -0.3, -0.3]), np.sqrt(1.4) * np.linalg.norm(S.T @ np.ones(3))
    mean = np.sum(x) + 3.6
    exact = mean * norm.cdf(mean / width) + width * norm.pdf(mean / width)
    assert exact - mean > 1e-4  # the kink counts
    assert abs(u(0.7, x) - exact) < 1e-9


def test_every_point_has_lines_of_its_own():
    """A kink that is crossed in the region, and touched elsewhere, among many points."""
    ring = lambda x: jnp.where(x[0] ** 2 + x[1] ** 2 < 36.0, 1.0, 0.0)  # noqa: E731
    region = hn.Box([5.5, -0.5, -0.5], [6.5, 0.5, 0.5])
    problem, _ = prepared(ring, diffusion=0.3, region=region)
    x = np.concatenate([np.tile([6.0, 0.1, 0.0], (300, 1)), [[0.0, 6.0, 0.0]]])
    ctx = make_context()
    with ctx.active():
        errors = line_errors(problem, 0, ctx, np.full(301, 0.7), x)
    assert np.mean(errors.share[:300] > 0) < 0.05
    assert errors.share[300] > 0.1


def test_at_the_initial_time_features_are_the_data():
    _, equation = prepared(PAYOFFS["basket"])
    for x in (np.full(3, 0.2), np.array([0.3, 0.1, -0.2])):
        value = equation.functions["initial"].transport((), jnp.asarray(x), 0.0, jnp.ones(3))
        assert abs(value - PAYOFFS["basket"](x)) < 1e-12


ONE_SIDED = {
    "call": (PAYOFFS["basket"], 1),
    "put": (lambda x: jnp.maximum(3.1 - jnp.sum(jnp.exp(x)), 0.0), 1),
    "below": (lambda x: jnp.where(jnp.sum(jnp.exp(x)) < 3.1, 1 + x[0] ** 2, 0.0), -1),
    "step": (PAYOFFS["step"], 0),
    "spread": (PAYOFFS["spread"], 0),
}


@pytest.mark.parametrize("name", ONE_SIDED)
def test_data_that_are_zero_on_one_side_are_integrated_on_the_other(name, unoptimised):
    f, sign = ONE_SIDED[name]
    problem, _ = prepared(f)
    rule = problem.preintegration
    assert abs(rule.support) == abs(sign)
    z = (np.arange(10**5) + 0.5) * 16e-5 - 8
    integrate = jax.jit(lambda y, s: line_quadrature(rule, find_roots(rule, y, s)))
    for y in ([0.0, 0.0, 0.0], [0.3, -0.1, -0.4], [2.0, 2.0, 2.0], [-2.0, -2.0, -2.0]):
        for sigma in (0.0, 0.1, 1.0):  # with a root, and without one on either side
            line = np.array(y) + sigma * z[:, None] * rule.axis
            exact = 16e-5 * jnp.sum(jax.vmap(f)(line) * norm.pdf(z))  # 1e-4 at a jump
            at, weights = integrate(jnp.array(y), jnp.asarray(sigma))
            value = weights @ jax.vmap(f)(jnp.array(y) + sigma * at[:, None] * rule.axis)
            assert abs(value - exact) < (1e-7 if name in ("call", "put", "spread") else 2e-4)


def test_all_roots_on_a_line():
    problem, _ = prepared(PAYOFFS["spread"])
    rule = replace(problem.preintegration, roots=3, cells=16)
    roots = find_roots(rule, jnp.zeros(3), jnp.asarray(1.0))
    assert roots.count == 2
    assert roots.exists.tolist().count(True) == 2
    for z in np.asarray(roots.z)[np.asarray(roots.exists)]:
        total = float(jnp.sum(jnp.exp(z * rule.axis)))
        assert min(abs(total - 2.8), abs(total - 3.3)) < 1e-12


@pytest.mark.parametrize("where", [-7.0, -1.0, 0.0, 3.0, 5.0])
def test_quadratures_between_roots(where):
    z, weights = map(np.asarray, quadrature(jnp.array([where]), 24))
    for a in (0.0, 0.5, 1.0):  # ∫ e^{az} N(z) over the part above the root
        above = np.sum(np.where(z > where, weights * np.exp(a * z - a**2 / 2), 0.0))
        assert abs(above - norm.cdf(a - where)) < 1e-9


def sphere(x):
    return jnp.maximum(1 - 4 * jnp.sum(x**2), 0.0)


@jax.custom_jvp
def opaque(x):
    return jnp.maximum(jnp.sum(x), 0.0)


@opaque.defjvp
def _(primals, tangents):
    (x,), (v,) = primals, tangents
    return opaque(x), jnp.where(jnp.sum(x) > 0, jnp.sum(v), 0.0)


DECLINED = {
    "hides": lambda x: jnp.interp(jnp.sum(x), jnp.array([-1.0, 0.0, 1.0]), jnp.array([0.0, 0, 1])),
    "touch": sphere,
    # A kink that is named, and one behind a square root that is not.
    "converge": lambda x: jnp.maximum(x[0], 0.0) + jnp.sqrt((x[0] - 0.2) ** 2 + 1e-30),
    # Smooth, though entries are compared.
    "no path meets": lambda x: jax.nn.softplus(4 * x[0]) + jax.nn.logsumexp(x) + jnp.hypot(2, x[1]),
    # Too many kinks; none of them is traced.
    "kinks, more than": lambda x: jnp.max(jnp.outer(x, jnp.arange(200.0))),
}


@pytest.mark.parametrize("why", DECLINED)
def test_where_no_direction_serves_the_reason_is_said(why):
    ctx = make_context()
    with ctx.active():
        rule, reason = choose_preintegration(stated(DECLINED[why]).canonical, 0, ctx)
    assert rule is None
    assert why in reason


def test_the_worst_of_five_assets_is_left_to_mild_rows():
    """Lines meet six kinks there; equation rows were wrong by a tenth."""
    put = hn.Problem(
        5,
        1.0,
        terminal=lambda x: jnp.maximum(100.0 - jnp.min(x), 0.0),
        process=hn.GeometricBrownian(np.linspace(0.15, 0.35, 5), 0.03, 0.5),
        reaction=-0.03,
        region=hn.Box(80.0, 120.0),
    )
    ctx = make_context()
    with ctx.active():
        rule, reason = choose_preintegration(put.canonical, 0, ctx)
    assert rule is None
    assert "a line meets" in reason


def test_unnamed_kinks_are_found_in_all_directions():
    """Lines along the first coordinate cross the kink that is named, and never the other."""
    f = lambda x: jnp.maximum(x[0], 0.0) + jnp.sqrt(x[1] ** 2 + 1e-30)  # noqa: E731
    ctx = make_context()
    with ctx.active():
        rule, reason = choose_preintegration(stated(f, diffusion=0.4).canonical, 0, ctx)
    assert rule is None
    assert "operations do not name all of them" in reason


def call_on_sum(x, strike):
    return jnp.maximum(jnp.sum(x) - strike, 0.0)


def test_numbers_of_a_partial_may_move_a_kink():
    problem, equation = prepared(partial(call_on_sum, strike=0.25))
    initial, x = equation.functions["initial"], jnp.array([0.1, 0.2, -0.1])
    width, mean = np.sqrt(0.8) * np.linalg.norm(S.T @ np.ones(3)), np.sum(x) - 0.25
    exact = mean * norm.cdf(mean / width) + width * norm.pdf(mean / width)
    assert abs(initial.transport((), x, jnp.sqrt(0.8), jnp.zeros(3)) - exact) < 1e-10
    assert problem.preintegration.kinks.function.function.keywords["strike"] == 0.25


def test_a_custom_derivative_hides_no_kink():
    problem, _ = prepared(opaque)
    assert problem.preintegration.roots == 1


def test_a_hidden_kink_trains_on_mild_rows_and_says_why():
    with pytest.warns(hn.HeatnetsWarning, match="mild rows .* since `scan` hides where its kinks"):
        u = hn.solve(stated(DECLINED["hides"]), tol=0, max_rounds=1, seconds=0.1)
    assert u.stats["enforce"] == "mild"


@pytest.fixture(scope="module")
def basket():
    """A call on the mean of three assets; no closed form, but lines and a plane give it."""
    return hn.solve(stated(PAYOFFS["basket"], region=hn.Box(-0.2, 0.2)), tol=0, max_rounds=1)


def basket_value(t, x):
    """u(t, x) by Gauss-Hermite quadrature over a plane of lines, in closed form on each."""
    c = np.array([0.3, 0.5, 0.2])
    e = S.T @ c / np.linalg.norm(S.T @ c)
    plane, b = np.linalg.svd(e[None])[2][1:], np.sqrt(2 * t) * S @ e
    assert np.all(b > 0)  # the mean rises along every line: one root
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    p, q = np.meshgrid(nodes, nodes)
    noise = (p[..., None] * plane[0] + q[..., None] * plane[1]).reshape(-1, 3)
    terms = c * np.exp(x + np.sqrt(2 * t) * noise @ S.T)
    low, high = np.full(len(terms), -40.0), np.full(len(terms), 40.0)
    for _ in range(60):
        z = 0.5 * (low + high)
        above = np.sum(terms * np.exp(np.outer(z, b)), axis=1) > 1
        low, high = np.where(above, low, z), np.where(above, z, high)
    values = np.sum(terms * np.exp(b**2 / 2) * ndtr(b - z[:, None]), axis=1) - ndtr(-z)
    return float(np.outer(weights, weights).reshape(-1) @ values / (2 * np.pi))


def test_a_basket_is_solved_by_the_equation_and_certified(basket):
    """Far better than plain Monte Carlo with as many paths as the network has features."""
    assert basket.stats["enforce"] == "equation"
    assert "pre-integrated" in basket.stats["laplacian"]["initial"]
    assert not basket.stats["warnings"]
    x = np.array([0.1, -0.1, 0.05])
    exact = basket_value(0.7, x)
    assert abs(basket(0.7, x) - exact) < 1e-3 * exact
    sure = basket.certify(0.7, x, samples=1024)
    assert sure.certified
    assert "residual" in sure.method
    assert sure.halfwidth < 3e-4 * exact
    assert abs(sure.value - exact) < 1.5 * sure.halfwidth
    plain = hn.montecarlo.importance(basket.problem, 0.7, x, samples=1024)
    assert plain.high - plain.low > 100 * sure.halfwidth
    assert abs(basket.problem.initial(x) - exact) > 100 * sure.halfwidth


def test_intervals_of_deltas_and_gammas_of_a_basket_hold(basket):
    """The network is good to 2e-6; heavy tails of what is left are said, and change nothing."""
    x, w, h = np.array([0.1, -0.1, 0.05]), np.ones(3), 1e-2

    def line(direction):
        """u at -2h, -h, 0, h, 2h, for differences of fourth order."""
        return np.array([basket_value(0.7, x + k * h * direction) for k in (-2, -1, 0, 1, 2)])

    slope = [np.array([1, -8, 0, 8, -1]) @ line(e) / (12 * h) for e in np.eye(3)]
    sure = basket.certify_gradient(0.7, x, samples=1024)
    assert np.all(sure.halfwidth < 1e-3 * np.abs(slope))
    assert np.all(np.abs(sure.value - slope) < 2 * sure.halfwidth + 1e-7)
    bend = np.array([-1, 16, -30, 16, -1]) @ line(w) / (12 * h**2)
    sure = basket.certify_curvature(0.7, x, w, samples=1024)
    assert sure.halfwidth < 3e-3 * bend
    assert abs(sure.value - bend) < 2 * sure.halfwidth + 1e-6 * bend


def test_errors_count_that_of_quadratures(basket, monkeypatch):
    before = basket.error(points=64, samples=16)
    monkeypatch.setattr(
        NetworkEvaluator, "quadrature_error", lambda self, t, of_one=None: np.full(len(t), 1e-2)
    )
    size = np.sqrt(np.mean(basket(*hn.random_points(basket.problem, 200)) ** 2))
    assert before.high < 0.2e-2 / size < basket.error(points=64, samples=16).high
    sure = basket.certify(0.7, np.zeros(3), samples=64)
    assert 1e-2 < sure.halfwidth < 2e-2


def test_it_is_stored(basket, tmp_path):
    again = hn.load(basket.save(tmp_path / "basket.heatnets"), basket.problem)
    t, x = hn.random_points(basket.problem, 5, seed=1)
    assert np.array_equal(again(t, x), basket(t, x))
    assert np.array_equal(again.residual(t, x), basket.residual(t, x))
