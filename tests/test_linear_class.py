"""Drift, anisotropy, reaction, processes in closed form, terminal values.

Each is held against automatic differentiation, closed forms and the plain heat equation.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import heatnets as hn
from heatnets._core.precision import EPS
from heatnets.certify import quasi_monte_carlo
from heatnets.pde import diffusion
from heatnets.pde.function import Function
from heatnets.pde.laplacian import CLOSED_FORM, METHODS, FunctionWithLaplacian
from heatnets.pde.laplacian_choice import select_method

pytestmark = [
    pytest.mark.usefixtures("x64"),
    pytest.mark.filterwarnings("ignore:not solved"),
]  # crude networks on purpose

DIM = 4
rng = np.random.default_rng(0)
ROOT = rng.standard_normal((DIM, DIM))
U = rng.standard_normal((DIM, 2))
DIFFUSIONS = {
    "scalar": (0.7, 0.7 * np.eye(DIM)),
    "diagonal": (np.array([0.2, 1.0, 3.0, 0.5]), np.diag([0.2, 1.0, 3.0, 0.5])),
    "matrix": (ROOT @ ROOT.T, ROOT @ ROOT.T),
    "factor": (hn.Factor(ROOT), ROOT @ ROOT.T),
    "low rank": (
        hn.LowRank(np.array([0.2, 1.0, 3.0, 0.5]), U),
        np.diag([0.2, 1.0, 3.0, 0.5]) + U @ U.T,
    ),
    "low rank, one number": (hn.LowRank(0.4, U), 0.4 * np.eye(DIM) + U @ U.T),
}
DRIFT = np.array([0.3, -1.0, 0.2, 0.5])
SIGMA, GROWTH = np.array([0.2, 0.3, 0.4, 0.1]), np.array([0.05, 0.0, -0.1, 0.02])
RHO = 0.3 + 0.7 * np.eye(DIM)


K = np.array([1.0, -0.5, 0.7, 0.4])


def u(t, x):
    """A function of (t, x) that solves nothing simpler: its source is made for each operator."""
    return jnp.cos(t) * jnp.sin(K @ x)


CLASSES = {
    "drift": ({"drift": DRIFT}, lambda x: np.eye(DIM), lambda x: DRIFT, 0.0),
    "reaction": ({"reaction": -0.8}, lambda x: np.eye(DIM), lambda x: 0 * DRIFT, -0.8),
    "matrix, drift, reaction": (
        {"diffusion": ROOT @ ROOT.T, "drift": DRIFT, "reaction": 0.4},
        lambda x: ROOT @ ROOT.T,
        lambda x: DRIFT,
        0.4,
    ),
    "reverting": (
        {"process": hn.OrnsteinUhlenbeck(0.9, DRIFT, hn.LowRank(0.4, U)), "reaction": 0.3},
        lambda x: 0.4 * np.eye(DIM) + U @ U.T,
        lambda x: 0.9 * (DRIFT - x),
        0.3,
    ),
    "running away": (
        {"process": hn.OrnsteinUhlenbeck(-0.5, 0.2)},
        lambda x: np.eye(DIM),
        lambda x: -0.5 * (0.2 - x),
        0.0,
    ),
    "geometric": (
        {
            "process": hn.GeometricBrownian(SIGMA, GROWTH, RHO),
            "reaction": -0.05,
            "region": hn.Box(0.5, 2.0),
        },
        lambda x: 0.5 * (SIGMA * x)[:, None] * RHO * (SIGMA * x),
        lambda x: GROWTH * x,
        -0.05,
    ),
}


def source_of(name, backward):
    """F = u_t - L u, for terminal problems -u_t - L u.

    L is in trace form: A of the geometric motion depends on x.
    """
    _, A, b, c = CLASSES[name]

    def F(t, x):
        wave, slope = jnp.sin(K @ x), jnp.cos(K @ x)
        change = -jnp.sin(t) * wave
        generated = jnp.cos(t) * (-(K @ A(x) @ K) * wave + (b(x) @ K) * slope + c * wave)
        return (-change if backward else change) - generated

    return F


def problem_of(name, backward=False, **more):
    horizon = 0.6
    start = {"terminal": lambda x: u(horizon, x)} if backward else {"initial": lambda x: u(0.0, x)}
    return hn.Problem(
        dim=DIM,
        horizon=horizon,
        source=source_of(name, backward),
        exact=u,
        **start,
        **CLASSES[name][0],
        **more,
    )


@pytest.mark.parametrize("name", DIFFUSIONS)
def test_roots(name):
    given, A = DIFFUSIONS[name]
    scatter = diffusion.make_diffusion(given, DIM)
    S = scatter.apply_sqrt(np.eye(DIM)).T
    np.testing.assert_allclose(S @ S.T, A, atol=1e-13)
    np.testing.assert_allclose(scatter.solve(np.eye(DIM)), np.linalg.inv(A), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(scatter.std * np.ones(DIM), np.sqrt(np.diag(A)), rtol=1e-13)
    np.testing.assert_allclose(
        scatter.inverse_std * np.ones(DIM), np.sqrt(np.diag(np.linalg.inv(A))), rtol=1e-9
    )
    if isinstance(given, np.ndarray):
        changed = given.copy()
        kept = diffusion.make_diffusion(changed, DIM)
        changed[:] = 0.0
        S = kept.apply_sqrt(np.eye(DIM)).T  # a problem does not change
        np.testing.assert_allclose(S @ S.T, A, atol=1e-13)


@pytest.mark.parametrize("method", [*METHODS, None])
@pytest.mark.parametrize("name", ["scalar", "diagonal", "matrix", "low rank"])
def test_second_derivatives(name, method):
    """tr(A D²f) by every method, and by the one that is chosen, against the Hessian."""
    given, A = DIFFUSIONS[name]
    scatter = jax.tree.map(jnp.asarray, diffusion.make_diffusion(given, DIM))

    def f(x):
        return jnp.sin(x[0] * x[1]) + jnp.sum(jnp.exp(0.3 * x)) + x[2] ** 3 * x[3]

    function = Function(f, laplacian=lambda x: jnp.trace(jax.hessian(f)(x)))
    x = np.array([0.3, -0.7, 0.9, 0.4])
    wanted = np.sum(A * np.asarray(jax.hessian(f)(x)))
    if method is None:
        found, _ = select_method("f", function, (x,), diffusion=scatter)
        assert found.method.name == ("closed form" if name == "scalar" else "coordinate sums")
    elif method is CLOSED_FORM and name != "scalar":
        return
    else:
        found = FunctionWithLaplacian(function, method, scatter)
    np.testing.assert_allclose(found.trace_hessian(jnp.asarray(x)), wanted, rtol=1e-11)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", CLASSES)
def test_plain_coordinates(name, backward):
    """The change to plain coordinates: its inverse, its derivatives, and the equation in them.

    Derivatives in space and time are held against automatic differentiation, and
    v_s - tr(A D²v) = F is checked for a u that solves no simpler equation.
    """
    problem = problem_of(name, backward)
    frame, plain = problem.transform, problem.canonical
    S = plain.diffusion.apply_sqrt(np.eye(DIM)).T
    A = S @ S.T
    assert np.isclose(
        plain.horizon, frame.to_canonical(np.asarray(0.0 if backward else 0.6), np.ones(DIM))[0]
    )
    t, x = hn.random_points(problem, 5)
    s, y = frame.to_canonical(t, x)
    np.testing.assert_allclose(
        np.column_stack(frame.from_canonical(s, y)), np.column_stack([t, x]), rtol=1e-12
    )
    np.testing.assert_allclose(frame.inverse_time(s), t, rtol=1e-12)

    def v(s, y):
        time, place = frame.from_canonical(s, y)
        return u(time, place) / frame.value_scale(time)

    @jax.jit
    def sides(s, y):
        left = jax.jacfwd(lambda r: v(r, y))(s) - jnp.sum(A * jax.hessian(lambda z: v(s, z))(y))
        return left, plain.feature_source(s, y), plain.initial(y), v(0.0 * s, y)

    for i in range(5):
        one, place = jnp.asarray(t[i]), jnp.asarray(x[i])
        left, right, start, begin = sides(jnp.asarray(s[i]), jnp.asarray(y[i]))
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(start, begin, rtol=1e-12)
        jacobian = jax.jacfwd(lambda z, one=one: frame.to_canonical(one, z)[1])(place)
        np.testing.assert_allclose(
            jnp.diag(jacobian), frame.jacobian_diag(t, x)[i] * np.ones(DIM), rtol=1e-12
        )
        rate = jax.jacfwd(lambda r, place=place: frame.to_canonical(r, place)[0])(one)
        np.testing.assert_allclose(jnp.abs(rate), frame.time_derivative(t)[i], rtol=1e-12)


@pytest.mark.parametrize("name", CLASSES)
def test_closed_form_laplacians_are_carried_over(name):
    """Laplacians in closed form are right in plain coordinates, too.

    They are kept where all coordinates are stretched alike, and dropped where they are not.
    """
    more = {k: v for k, v in CLASSES[name][0].items() if k != "diffusion"}
    more = {"process": hn.OrnsteinUhlenbeck(0.9, DRIFT, 0.7)} if name == "reverting" else more
    problem = hn.Problem(
        dim=DIM,
        horizon=0.5,
        initial=hn.Function(
            lambda x: jnp.sum(jnp.sin(x)), laplacian=lambda x: -jnp.sum(jnp.sin(x))
        ),
        source=hn.Function(lambda t, x: t * jnp.sum(x**2), laplacian=lambda t, x: t * 2.0 * DIM),
        **more,
    )
    plain = problem.canonical
    if name == "geometric":
        assert plain.initial.laplacian is None
        return
    y = jnp.asarray(np.random.default_rng(1).standard_normal(DIM))
    np.testing.assert_allclose(
        plain.initial.laplacian(y), jnp.trace(jax.hessian(plain.initial)(y)), rtol=1e-11
    )
    wanted = jnp.trace(jax.hessian(lambda z: plain.feature_source(0.2, z))(y))
    np.testing.assert_allclose(plain.feature_source.laplacian(0.2, y), wanted, rtol=1e-11)


@pytest.mark.parametrize(
    ("name", "backward"),
    [*((name, False) for name in CLASSES), ("geometric", True), ("reverting", True)],
)
def test_monte_carlo_follows_the_process(name, backward):
    problem = problem_of(name, backward)
    t, x = hn.random_points(problem, 6)
    found = hn.montecarlo.importance(problem, t, x, samples=20_000)
    exact = hn.exact_values(problem, t, x)
    assert np.all(np.abs(found.value - exact) < 4.5 * found.standard_error)
    assert np.all(found.standard_error < 0.1 * np.max(np.abs(exact)) + 0.1)


@pytest.mark.parametrize(
    ("name", "backward"),
    [("matrix, drift, reaction", False), ("reverting", False), ("geometric", True)],
)
def test_crude_networks_are_certified(name, backward):
    """Intervals of a poor fit hold the true values, slopes, curvatures and region-wide error.

    All are in the user's units.
    """
    problem = problem_of(name, backward)
    solution = hn.solve(
        problem, features=(2, 2), antithetic=True, collocation="paths", rows=(200, 0)
    )
    t, x = hn.random_points(problem, 12, seed=3)
    exact, slopes = hn.exact_values(problem, t, x), hn.exact_gradient(problem, t, x)
    assert hn.relative_errors(solution(t, x), exact).l2 < 0.3
    sure = solution.certify(t, x, samples=2048)
    good = sure.certified
    assert np.sum(good) >= 9
    assert np.sum((np.abs(sure.value - exact) <= sure.halfwidth)[good]) >= np.sum(good) - 2
    assert np.all((np.abs(sure.value - exact) <= 3 * sure.halfwidth)[good])
    np.testing.assert_allclose(sure.value - sure.error, solution(t, x), rtol=1e-9)
    steep = solution.certify_gradient(t[:4], x[:4], samples=2048)
    inside = np.abs(steep.value - slopes[:4]) <= 1.5 * steep.halfwidth
    assert np.mean(inside) > 0.85
    direction = np.array([1.0, 0.5, -1.0, 2.0])
    bent = solution.certify_curvature(t[:4], x[:4], direction, samples=2048)
    truths = [_second(problem.exact, t[i], x[i], direction) for i in range(4)]
    assert np.all(np.abs(bent.value - truths) <= 2 * bent.halfwidth)
    own = _second_difference(solution, t[:4], x[:4], direction)
    np.testing.assert_allclose(
        bent.value - bent.error, own, rtol=1e-3, atol=1e-3 * np.max(np.abs(truths))
    )
    assert np.mean(bent.halfwidth) < 0.5 * np.mean(np.abs(truths)) + 0.2
    estimate, truth = solution.error(), hn.measure(solution, 4000).l2
    assert 0.7 * estimate.low < truth < 1.4 * estimate.high
    np.testing.assert_allclose(
        solution.gradient(t, x),
        _differences(solution, t, x),
        rtol=1e-4,
        atol=1e-4 * np.max(np.abs(slopes)),
    )


def _second(u, t, x, direction):
    """d²/dε² u(t, x + ε direction), by autodiff."""
    return float(direction @ jax.hessian(lambda y: u(t, y))(jnp.asarray(x)) @ direction)


def _second_difference(solution, t, x, direction, step=1e-3):
    moves = [solution(t, x + k * step * direction) for k in (-1, 0, 1)]
    return (moves[0] - 2 * moves[1] + moves[2]) / step**2


@pytest.mark.parametrize(
    ("name", "given"),
    [("kinked-ridge", {"dim": 5}), ("geometric-basket", {"dim": 3, "region": hn.Box(80.0, 120.0)})],
)
def test_greeks_of_kinked_payoffs(name, given, monkeypatch):
    """Value, delta and gamma along a direction with intervals that hold the closed form's."""
    monkeypatch.setattr(quasi_monte_carlo, "serves", lambda problem: False)
    problem = hn.problems.get(name, **given)
    solution = hn.solve(problem, tol=0, max_rounds=1, enforce="mild")
    t, x = hn.random_points(problem, 5, seed=1)
    t = np.clip(t, 0.3 * problem.horizon, 0.7 * problem.horizon)
    direction = np.linspace(0.5, 1.5, problem.dim)
    gamma = solution.certify_curvature(t, x, direction, samples=40_000)
    wanted = np.array(
        [_second(problem.exact, *point, direction) for point in zip(t, x, strict=True)]
    )
    assert gamma.method == "Monte Carlo, weighted"
    assert np.all(gamma.certified)
    assert np.all(np.abs(gamma.value - wanted) < 1.5 * gamma.halfwidth)
    assert np.all(gamma.halfwidth < 0.15 * np.max(wanted))
    delta, slopes = solution.certify_gradient(t, x), hn.exact_gradient(problem, t, x)
    assert np.mean(np.abs(delta.value - slopes) <= delta.halfwidth) > 0.75
    price, exact = solution.certify(t, x), hn.exact_values(problem, t, x)
    assert np.all(np.abs(price.value - exact) < 1.5 * price.halfwidth)
    one = solution.certify_curvature(
        t[0], x[0], direction, halfwidth=3 * float(gamma.halfwidth[0]), samples=512
    )
    assert one.value.shape == ()
    assert one.halfwidth <= 3 * gamma.halfwidth[0]
    with pytest.raises(hn.InputError, match="`direction` must be a vector"):
        solution.certify_curvature(t, x, np.ones(4))


def _differences(solution, t, x, step=1e-5):
    """Central differences of the values."""
    moves = step * np.eye(x.shape[1])
    return np.stack([(solution(t, x + m) - solution(t, x - m)) / (2 * step) for m in moves], axis=1)


@pytest.mark.parametrize("name", CLASSES)
def test_the_residual_is_the_users(name):
    """F - (∂_t - L) ũ, with derivatives of ũ by differences."""
    problem = problem_of(name)
    solution = hn.solve(problem, features=(2, 2), antithetic=True, rows=(200, 0))
    t, x = hn.random_points(problem, 3, seed=5)
    t = np.clip(t, 0.1, 0.5)
    _, A, b, c = CLASSES[name]
    h = 1e-4
    change = (solution(t + h, x) - solution(t - h, x)) / (2 * h)
    slope = _differences(solution, t, x, h)
    for i in range(3):
        D2 = np.stack(
            [
                (solution.gradient(t[i], x[i] + h * e) - solution.gradient(t[i], x[i] - h * e))
                / (2 * h)
                for e in np.eye(DIM)
            ]
        )
        generated = np.sum(A(x[i]) * D2) + b(x[i]) @ slope[i] + c * solution(t[i], x[i])
        force = source_of(name, False)(t[i], jnp.asarray(x[i]))
        np.testing.assert_allclose(
            solution.residual(t[i], x[i]), force - change[i] + generated, rtol=2e-5, atol=2e-5
        )


def test_terminal_problems_are_initial_problems_read_backwards():
    given = {
        "dim": 3,
        "horizon": 0.7,
        "drift": 0.4,
        "reaction": -0.3,
        "diffusion": np.array([0.5, 1.0, 2.0]),
    }
    forward = hn.Problem(
        initial=lambda x: jnp.sum(jnp.cos(x)), source=lambda t, x: t * x[0], **given
    )
    backward = hn.Problem(
        terminal=lambda x: jnp.sum(jnp.cos(x)), source=lambda t, x: (0.7 - t) * x[0], **given
    )
    one, other = (hn.solve(p, features=(4, 4), rows=(200, 0)) for p in (forward, backward))
    t, x = hn.random_points(forward, 20)
    np.testing.assert_allclose(one(t, x), other(0.7 - t, x), rtol=1e-9)
    np.testing.assert_allclose(
        one.gradient(t, x), other.gradient(0.7 - t, x), rtol=1e-8, atol=1e-10
    )
    assert np.all(hn.random_points(backward, 50)[0] < 0.7)
    with pytest.raises(hn.InputError, match=r"`t` must lie in \[0, 0.7\); got 0.7"):
        other.residual(0.7, x[0])
    np.testing.assert_allclose(other(0.7, x), np.sum(np.cos(x), axis=1), rtol=1e-12)


def test_drift_only_moves_and_reaction_only_multiplies():
    """u_b,c(t, x) = e^{ct} u(t, x + bt)."""
    b, c = np.array([0.5, -0.2]), 0.9
    given = {"dim": 2, "horizon": 0.5, "initial": lambda x: jnp.exp(-0.5 * (x @ x))}
    still = hn.solve(hn.Problem(**given, region=hn.Box(-1.5, 1.5)), tol=0, max_rounds=2)
    moved = hn.solve(hn.Problem(**given, drift=b, reaction=c), tol=0, max_rounds=2)
    t, x = hn.random_points(moved.problem, 50)
    assert hn.relative_errors(moved(t, x), np.exp(c * t) * still(t, x + t[:, None] * b)).l2 < 1e-4


def test_explanations_are_in_the_users_units():
    problem = problem_of("reverting", backward=True)
    solution = hn.solve(problem, features=(32, 32), antithetic=True, solver="qr")
    x = np.full(DIM, 0.2)
    found = solution.explain(0.1, x, samples=20_000)
    assert found.t == 0.1
    np.testing.assert_allclose([found.lags[0], found.lags[-1]], [0.0, 0.5], atol=1e-12)
    # Two ways of summing the same terms, which cancel by six digits: rounding of the terms.
    place = solution._locate(0.1, x)
    (terms,) = place.value_scale * solution.network.value(place.s, place.y)[1]
    np.testing.assert_allclose(found.value, solution(0.1, x), rtol=0, atol=EPS * terms)
    exact, noise = (
        hn.exact_values(problem, 0.1, x),
        np.hypot(found.initial.error, found.source.error),
    )
    assert abs(found.initial.value + found.source.value - exact) < 5 * noise


def test_rounding_of_the_change_of_variables_is_inside_the_interval():
    """Where y = x + bt cancels, its rounding is that of x and bt."""
    problem = hn.Problem(
        dim=1, horizon=1.0, initial=lambda x: jnp.sin(x[0]), drift=1e4, region=hn.Point([-9e3])
    )
    solution = hn.solve(
        problem,
        features=(8, 0),
        antithetic=True,
        directions="signs",
        collocation="paths",
        time_degree=3,
    )
    t = 0.9 + np.arange(1, 20) * 1e-3
    x = -1e4 * t + 1e-3
    sure = solution.certify(t, x[:, None], samples=256)
    exact = np.exp(-t.astype(np.longdouble)) * np.sin(
        x.astype(np.longdouble) + np.longdouble(1e4) * t.astype(np.longdouble)
    )
    assert np.all(np.abs(sure.value - exact) <= sure.halfwidth)


@pytest.mark.parametrize("given", ["initial", "terminal"])
def test_a_strong_reaction_weighs_the_region_wide_error(given):
    """Errors and sizes are in the user's units: e^{4t} makes the end of the interval count most."""
    given = {given: lambda x: jnp.sin(2 * x[0])}
    problem = hn.Problem(
        dim=1, horizon=1.0, reaction=4.0, exact=lambda t, x: jnp.sin(2 * x[0]) + 0.0 * t, **given
    )  # 4 - 2² = 0
    solution = hn.solve(problem, features=(4, 0), antithetic=True, rows=(400, 0))
    estimate, truth = solution.error(points=2048, samples=64), hn.measure(solution, 8000).l2
    assert 0.8 * truth < estimate.value < 1.25 * truth


def test_the_payoff_itself_can_be_asked_for():
    """At the time where u is given the certified value is the payoff, and nothing is sampled.

    Lines are drawn through spots of the region, and a training region must be positive.
    """
    problem = hn.problems.get("geometric-basket", dim=3)
    solution = hn.solve(problem, tol=0, max_rounds=1)
    spot = np.array([100.0, 120.0, 110.0])
    sure = solution.certify(1.0, spot, halfwidth=0.1)
    np.testing.assert_allclose(sure.value, np.prod(spot) ** (1 / 3) - 100.0, rtol=1e-12)
    with pytest.raises(hn.InputError, match=r"`t` must lie in \[0, 1\)"):
        solution.certify_gradient(1.0 + 5e-7, spot)
    lines = hn.plots.line(solution).axes[0].lines
    assert all(np.ptp(line.get_ydata()) > 0.1 for line in lines)
    with pytest.raises(hn.InputError, match="`train_region` must lie in positive coordinates"):
        hn.solve(problem, train_region=hn.Box(-1.0, 1.0))


def test_points_of_geometric_motions_are_positive():
    solution = hn.solve(problem_of("geometric"), features=(8, 8))
    with pytest.raises(hn.InputError, match="`x` must be positive"):
        solution(0.1, [1.0, 1.0, 0.0, 1.0])


def test_kernels_need_a_scalar_diffusion():
    problem = hn.Problem(dim=2, horizon=0.5, initial=lambda x: x[0], diffusion=np.array([1.0, 2.0]))
    with pytest.raises(hn.InputError, match="needs a scalar diffusion"):
        hn.solve(problem, family="gaussian", features=(8, 0), rows=(100, 0))
    with pytest.raises(hn.InputError, match="without drift and reaction"):
        hn.solve(problem_of("drift"), family="gaussian", features=(8, 8), rows=(100, 0))
    drifted = hn.Problem(
        dim=1, horizon=0.5, initial=lambda x: jnp.sin(x[0]), drift=0.5, reaction=-1.0
    )
    found = hn.montecarlo.transformed(drifted, 0.5, [0.3], samples=200_000)
    assert abs(found.value - np.exp(-1.0) * np.sin(0.3 + 0.25)) < 4.5 * found.standard_error + 1e-6
