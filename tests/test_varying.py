"""Coefficients that vary.

The operator against brute force, paths against their laws, solves and certificates against exact
solutions, and what is refused.
"""

from __future__ import annotations

import ast
import copy
import re
import warnings
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import heatnets as hn
from heatnets.certify import error_equation
from heatnets.certify.path_sampling import step_bias_bound
from heatnets.features import designs
from heatnets.features.equation import build_equation
from heatnets.features.features import Antithetic, TransportedInitial, TransportedSource
from heatnets.pde import paths
from heatnets.pde.coefficients import CoefficientField, LocalOperator, _cholesky_scan
from heatnets.pde.diffusion import make_diffusion
from heatnets.pde.paths import EulerPaths, ExactPaths, WeightedExactPaths
from heatnets.pde.transforms import TransformChain

pytestmark = [
    pytest.mark.usefixtures("x64"),
    pytest.mark.filterwarnings("ignore:not solved"),
]  # crude networks on purpose
DIM = 4


def bell(x):
    return jnp.exp(-x @ x / x.size)


def turned(x):
    """A matrix that is positive definite and not diagonal."""
    v = jnp.sin(x + jnp.arange(x.size))
    return jnp.eye(x.size) + 0.3 * jnp.outer(v, v)


def lower(x):
    return jnp.eye(x.size) + 0.2 * jnp.tril(jnp.cos(x[:, None] + x[None, :]))


def test_the_root_of_a_matrix():
    for dim in (3, 12):
        a = np.random.default_rng(dim).standard_normal((dim, dim))
        a = a @ a.T + np.eye(dim)
        np.testing.assert_allclose(
            _cholesky_scan(jnp.asarray(a)), np.linalg.cholesky(a), rtol=1e-12, atol=1e-13
        )


def test_a_constant_factor_goes_with_a_drift_that_is_a_function():
    S = np.array([[1.0, 0.0], [0.3, 0.8]])
    problem = hn.Problem(
        dim=2, horizon=0.5, initial=bell, diffusion=hn.Factor(S), drift=lambda t, x: -x
    )
    found = problem.canonical.coefficients.evaluate(0.1, jnp.zeros(2)).diffusion
    np.testing.assert_allclose(found.apply_sqrt(np.eye(2)).T, S, rtol=1e-14)


DIFFUSIONS = {
    "number": lambda t, x: 1 + 0.4 * jnp.sin(t + x[0] * x[1]),
    "diagonal": lambda t, x: 1 + 0.4 * jnp.sin(t + x * x[::-1]),
    "matrix": lambda t, x: (1 + t) * turned(x),
    "factor": hn.Factor(lambda t, x: (1 + t) * lower(x)),
    "constant": np.linspace(0.5, 2.0, DIM),
}


def drift(t, x):
    return jnp.tanh(x) + t * jnp.roll(x, 1)


def reaction(t, x):
    return -jnp.cos(x[0] + t)


def source(t, x):
    return jnp.cos(x[0] + 2 * t) * bell(x)


def posed(diffusion, form, **more):
    return hn.Problem(
        dim=DIM,
        horizon=0.6,
        diffusion=DIFFUSIONS[diffusion],
        drift=drift,
        reaction=reaction,
        form=form,
        **({"initial": bell, "source": source} | more),
    )


def matrix_of(diffusion, t, x):
    given = DIFFUSIONS[diffusion]
    if diffusion == "factor":
        S = given.S(t, x)
        return S @ S.T
    value = given(t, x) if callable(given) else jnp.asarray(given)
    return value if value.ndim == 2 else value * jnp.eye(DIM)


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(
    ("diffusion", "form", "backward"),
    [
        ("number", "divergence", False),
        ("diagonal", "divergence", True),
        ("matrix", "divergence", False),
        ("factor", "trace", False),
        ("constant", "trace", False),
    ],
)
def test_residuals_of_features_are_those_of_the_equation_as_it_is_written(
    diffusion, form, backward
):
    more = {"initial": None, "terminal": bell} if backward else {}
    more |= {"source": None} if diffusion == "matrix" else {}  # which takes long to compile
    problem = posed(diffusion, form, **more)
    data, _ = build_equation(problem.canonical, 0)
    rng = np.random.default_rng(1)
    noise = jnp.asarray(rng.standard_normal((2, *problem.canonical.feature_paths.noise_shape(DIM))))
    features = [
        Antithetic(TransportedInitial(noise[0], jnp.asarray(0.7))),
        TransportedSource(noise[1], jnp.asarray(0.4), jnp.asarray(1.3)),
    ]
    s, x = jnp.asarray(0.35), jnp.asarray(rng.uniform(-1, 1, DIM))
    t = 0.6 - s if backward else s

    @eqx.filter_jit
    def wanted(feature):
        def phi(r, y):
            return feature.value(data, r, y)

        slope = jax.grad(lambda y: phi(s, y))
        if form == "divergence":
            second = jnp.trace(jax.jacfwd(lambda y: matrix_of(diffusion, t, y) @ slope(y))(x))
        else:
            second = jnp.sum(matrix_of(diffusion, t, x) * jax.hessian(lambda y: phi(s, y))(x))
        value = phi(s, x)
        return value, jax.grad(phi)(s, x) - second - drift(t, x) @ slope(x) - reaction(t, x) * value

    for feature in features if problem.source is not None else features[:1]:
        np.testing.assert_allclose(
            eqx.filter_jit(feature.value_and_residual)(data, s, x),
            wanted(feature),
            rtol=1e-9,
            atol=1e-11,
        )


def test_steps_with_constant_functions_have_the_exact_law():
    A, b, c = 0.7, np.array([0.5, -1.0]), -0.3
    problem = hn.Problem(
        dim=2,
        horizon=1.0,
        initial=bell,
        diffusion=lambda t, x: A * jnp.ones(()),
        drift=lambda t, x: jnp.asarray(b),
        reaction=lambda t, x: c * jnp.ones(()),
        form="trace",
    )
    assert isinstance(problem.canonical.paths, EulerPaths)
    rng = np.random.default_rng(0)
    noise = problem.canonical.paths.sample_noise(rng, (20_000,), 2)
    moved = problem.canonical.paths.simulate(0.9, np.array([0.2, 0.1]), 0.6, noise)
    np.testing.assert_allclose(moved.weight, np.exp(c * 0.6), rtol=1e-12)
    np.testing.assert_allclose(moved.position, [0.2, 0.1] + 0.6 * b + moved.martingale, atol=1e-14)
    np.testing.assert_allclose(np.cov(moved.martingale.T), 2 * 0.6 * A * np.eye(2), atol=0.04)
    # Steps half as many end at the same place, as increments are summed.
    _, (factor, coarse, pairs), (zero, coarser, fours) = problem.canonical.paths.richardson_levels(
        noise
    )
    assert (factor, zero) == (-1.0, 0.0)
    np.testing.assert_allclose(
        coarser.simulate(0.9, np.array([0.2, 0.1]), 0.6, fours).position, moved.position, atol=1e-13
    )
    np.testing.assert_allclose(
        coarse.simulate(0.9, np.array([0.2, 0.1]), 0.6, pairs).position, moved.position, atol=1e-13
    )


def test_euler_has_the_mean_of_its_recursion_and_takes_coefficients_at_the_paths_own_time():
    problem = hn.Problem(dim=1, horizon=1.0, initial=bell, drift=lambda t, x: t * x)
    walk = EulerPaths(problem.canonical.coefficients, 8)
    rng = np.random.default_rng(0)
    half = walk.sample_noise(rng, (50_000,), 1)
    moved = walk.simulate(1.0, np.array([1.5]), 0.8, np.concatenate([half, -half]))
    wanted = 1.5
    for k in range(8):
        wanted *= 1 + 0.1 * (
            0.95 - 0.1 * k
        )  # time runs down from t, and the middle of a step counts
    np.testing.assert_allclose(
        moved.position.mean(), wanted, rtol=1e-12
    )  # antithetic, and linear in the noise


@pytest.mark.parametrize("diffusion", ["diagonal", "matrix"])
def test_derivatives_of_paths(diffusion):
    problem = posed(diffusion, "trace")
    walk, rng = problem.canonical.paths, np.random.default_rng(3)
    noise, x = walk.sample_noise(rng, (3,), DIM), rng.uniform(-1, 1, (3, DIM))
    t, lag, slope, by_weight = (
        np.full(3, 0.5),
        np.array([0.1, 0.3, 0.5]),
        rng.standard_normal((3, DIM)),
        rng.standard_normal(3),
    )
    w, c, e = rng.standard_normal((3, DIM)), rng.standard_normal((3, DIM)), 1e-4

    def at(y):
        moved = walk.simulate(t, y, lag, noise)
        return np.concatenate([moved.position, moved.weight[:, None]], axis=1)

    pulled = walk.vjp(t, x, lag, noise, slope, by_weight)
    change = (at(x + e * w) - at(x - e * w)) / (2 * e)
    np.testing.assert_allclose(
        np.sum(pulled * w, axis=1),
        np.sum(slope * change[:, :-1], axis=1) + by_weight * change[:, -1],
        rtol=1e-6,
    )
    moved, first, second = walk.second_tangent(t, x, lag, noise, w, c)
    ahead, behind, here = at(x + e * w + 0.5 * e**2 * c), at(x - e * w + 0.5 * e**2 * c), at(x)
    np.testing.assert_allclose(np.c_[moved.position, moved.weight], here, rtol=1e-12)
    np.testing.assert_allclose(
        np.c_[first.position, first.weight], (ahead - behind) / (2 * e), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        np.c_[second.position, second.weight],
        (ahead - 2 * here + behind) / e**2,
        rtol=1e-4,
        atol=1e-4,
    )


class QuadraticReaction(CoefficientField):
    """c = -2 |x|², of a problem that is canonical."""

    def evaluate(self, s, y):
        return LocalOperator(self.diffusion, jnp.zeros_like(y), -2.0 * y @ y)


@pytest.mark.usefixtures("x64")
def test_weights_by_the_trapezoidal_rule_are_of_second_order():
    """E exp(-2 ∫ W²) = cosh(2)^{-1/2}, by Cameron and Martin."""
    diffusion = make_diffusion(0.5, 1)
    field = QuadraticReaction(diffusion, 0.0, 0.0, None, TransformChain(), False, False)
    errors = {}
    for simulator in (EulerPaths, WeightedExactPaths):
        for steps in (2, 8):
            walk = simulator(field, steps)
            noise = walk.sample_noise(np.random.default_rng(steps), (200_000,), 1)
            ends = walk.simulate(1.0, np.zeros((200_000, 1)), 1.0, noise)
            assert abs(np.mean(ends.position**2) - 1) < 0.02  # paths are exact
            errors[simulator, steps] = np.mean(ends.weight) - np.cosh(2.0) ** -0.5
    # Noise of 6e-4. A fourth of the steps: 16 times the error, with the left-point rule 4 times.
    assert 8 * abs(errors[WeightedExactPaths, 8]) < errors[WeightedExactPaths, 2]
    assert errors[EulerPaths, 2] < 7 * errors[EulerPaths, 8]
    assert abs(errors[WeightedExactPaths, 8]) < 0.1 * errors[EulerPaths, 8]


SOLVED = {"hyperbolic-waves": 1e-3, "rotating": 1e-2, "porous": 3e-2}


@pytest.fixture(scope="module", params=SOLVED)
def solved(request):
    problem = hn.problems.get(request.param, dim=4)
    return request.param, hn.solve(
        problem,
        features=(64, 64 if problem.source is not None else 0),
        rows=(1024, 0),
        antithetic=True,
        directions="orthogonal",
        time_degree=1,
        collocation="paths",
    )


def test_solves_and_certificates_against_exact_solutions(solved):
    name, u = solved
    error = hn.measure(u, 500)
    assert error.l2 < SOLVED[name]
    t, x = hn.random_points(u.problem, 6, seed=2)
    exact = hn.exact_values(u.problem, t, x)
    sure = u.certify(t, x, samples=512)
    assert "paths in steps" in sure.method
    assert np.mean(sure.certified) > 0.6
    assert np.all(np.abs(sure.value - exact) < 2 * sure.halfwidth)
    assert np.mean(np.abs(sure.value - exact)) < np.mean(
        np.abs(u(t, x) - exact)
    )  # corrected values are better
    told = u.error(points=128)
    assert 0.2 * told.low < error.l2 < 5 * told.high


def check_derivatives(u):
    t, (x,) = u.problem.horizon, hn.random_points(u.problem, 1, seed=4)[1]
    slope = u.certify_gradient(t, x, samples=256)
    exact = hn.exact_gradient(u.problem, t, x)
    assert np.all(np.abs(slope.value - exact) < 2 * slope.halfwidth)
    assert np.linalg.norm(slope.halfwidth) < 0.1 * np.linalg.norm(exact)
    w = np.array([1.0, -0.5, 0.2, 0.4])
    bend = u.certify_curvature(t, x, w, samples=256)
    wanted = jax.jvp(lambda y: jax.jvp(lambda z: u.problem.exact(t, z), (y,), (w,))[1], (x,), (w,))[
        1
    ]
    assert abs(bend.value - float(wanted)) < 3 * bend.halfwidth


@pytest.mark.parametrize("solved", ["rotating"], indirect=True)
def test_certified_derivatives_against_exact_solutions(solved):
    check_derivatives(solved[1])


@pytest.mark.slow
def test_certified_derivatives_with_everything():
    problem = hn.problems.get("porous", dim=4)
    check_derivatives(
        hn.solve(
            problem,
            features=(64, 64),
            rows=(1024, 0),
            antithetic=True,
            directions="orthogonal",
            time_degree=1,
            collocation="paths",
        )
    )


def test_monte_carlo_and_explanations(solved):
    _, u = solved
    t, x = u.problem.horizon, np.full(4, 0.3)
    exact = hn.exact_values(u.problem, t, x)
    found = hn.montecarlo.importance(u.problem, t, x, samples=20_000)
    assert abs(found.value - exact) < (found.high - found.low)  # two half-widths
    assert found.high - found.low >= 2 * found.truncation_bias > 0
    parts = u.explain(t, x, samples=8192)
    total = parts.initial.value + parts.source.value
    assert abs(total - exact) < 5 * np.hypot(parts.initial.error, parts.source.error) + 0.05 * abs(
        exact
    )  # steps are not corrected here


def test_a_terminal_problem_keeps_the_users_times():
    """v_t + a(t) Δv + c(t) v = 0, v(T) = bell: coefficients at calendar time."""
    T = 0.5
    gone = lambda t: (T - t) + (T**2 - t**2) / 2  # ∫_t^T (1 + s) ds  # noqa: E731

    def exact(t, x):
        q = 4 * gone(t) / x.size
        return jnp.exp(jnp.sin(T) - jnp.sin(t)) * jnp.exp(
            -0.5 * x.size * jnp.log1p(q) - x @ x / (x.size * (1 + q))
        )

    problem = hn.Problem(
        dim=3,
        horizon=T,
        terminal=bell,
        diffusion=lambda t, x: 1 + t,
        reaction=lambda t, x: jnp.cos(t),
        form="trace",
        exact=exact,
    )
    u = hn.solve(
        problem,
        features=(64, 0),
        rows=(512, 0),
        antithetic=True,
        time_degree=3,
        collocation="paths",
    )
    assert hn.measure(u, 500).l2 < 1e-2
    sure = u.certify([0.0, 0.2], np.full((2, 3), 0.4), samples=1024)
    np.testing.assert_array_less(
        np.abs(sure.value - hn.exact_values(problem, [0.0, 0.2], np.full((2, 3), 0.4))),
        2 * sure.halfwidth,
    )


def finite_differences(horizon, start, a, c, x):
    """u(T, x) of u_t = a u'' + c u in one dimension, by Crank-Nicolson on [-8, 8]."""
    z, steps = np.linspace(-8, 8, 3201), 400
    dx, h = z[1] - z[0], horizon / steps
    side = 0.5 * h * a(z) / dx**2
    middle = 2 * side - 0.5 * h * c(z)
    side[[0, -1]] = middle[[0, -1]] = 0.0  # the ends stay as they are
    implicit = np.stack(
        [np.append(0.0, -side[:-1]), 1 + middle, np.append(-side[1:], 0.0)]
    )  # bands of I - h/2 L
    value = start(z)
    for _ in range(steps):
        right = (1 - middle) * value
        right[1:-1] += side[1:-1] * (value[2:] + value[:-2])
        value = scipy.linalg.solve_banded((1, 1), implicit, right)
    return float(np.interp(x, z, value))


def test_finite_differences_are_right():
    """u_t = u'' - u from exp(-z²)."""
    exact = np.exp(-0.5) * np.exp(-(0.3**2) / 3) / np.sqrt(3)
    assert (
        abs(
            finite_differences(
                0.5, lambda z: np.exp(-(z**2)), np.ones_like, lambda z: -np.ones_like(z), 0.3
            )
            - exact
        )
        < 1e-5
    )


def test_steps_that_do_not_resolve_a_coefficient_are_told():
    """A value is certified only if right, even where the steps are too long for a coefficient.

    For |x| with A = ½ + 0.4 sin 8x, halving the steps hardly changes a value off by a tenth.
    """
    problem = hn.Problem(
        dim=1,
        horizon=1.0,
        initial=lambda x: jnp.abs(x[0]),
        diffusion=lambda t, x: 0.5 + 0.4 * jnp.sin(8 * x),
        form="trace",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        u = hn.solve(problem, tol=0, max_rounds=1)
    sure = u.certify(1.0, [-0.3], samples=16384)
    exact = finite_differences(
        1.0, np.abs, lambda z: 0.5 + 0.4 * np.sin(8 * z), np.zeros_like, -0.3
    )
    assert abs(sure.value - exact) < sure.halfwidth or not sure.certified


def test_a_reaction_that_varies_goes_with_an_exact_process():
    """A reaction that depends on time together with a process simulated exactly.

    Geometric Brownian motion killed at the rate k(t): v_t + ½σ²x²v'' + r x v' - k(t) v = 0 with
    v(T) = x has the solution v = x e^{r(T-t) - ∫k}.
    """
    r, T = 0.05, 1.0

    def exact(t, x):
        return x[0] * jnp.exp(r * (T - t) - (T - t) - (T**2 - t**2) / 2)

    problem = hn.Problem(
        dim=1,
        horizon=T,
        terminal=lambda x: x[0],
        process=hn.GeometricBrownian(0.3, r),
        reaction=lambda t, x: -(1 + t),
        region=hn.Box(0.5, 1.5),
        exact=exact,
    )
    u = hn.solve(
        problem,
        features=(32, 0),
        rows=(256, 0),
        antithetic=True,
        time_degree=3,
        collocation="paths",
    )
    assert hn.measure(u, 200).l2 < 1e-2
    sure = u.certify(0.0, [1.0], samples=4096)
    assert abs(sure.value - exact(0.0, np.array([1.0]))) < 2 * sure.halfwidth


@pytest.mark.parametrize("solved", ["hyperbolic-waves"], indirect=True)  # whose bias is the largest
def test_steps_half_as_many_tell_the_bias_and_take_it_away(solved):
    """Paths with half as many steps give a bound on the bias of steps, and halve it at least.

    Checked in both forms with a network that is zero, so that the whole of u is estimated. Fine
    paths alone are off by many standard errors, the combination of fine and coarse paths by less,
    and `step_bias_bound` of their difference covers what is left.
    """
    _, u = solved
    t, x = np.full(4, 0.5), hn.random_points(u.problem, 4, seed=9)[1]
    lacks = hn.exact_values(u.problem, t, x)
    nothing = copy.copy(u.network)
    nothing.value = nothing.residual = lambda t, x: (np.zeros(len(t)), np.zeros(len(t)))
    nothing.initial_defect = 1.0
    monte_carlo = partial(error_equation.martingale_form, form=error_equation.MONTE_CARLO)
    for form in (error_equation.residual_form, monte_carlo):
        found = form(nothing, t, x, 40_000, [np.random.default_rng(i) for i in range(4)])
        fine = found.corrections - found.steps[..., 0]  # 2f - c less f - c
        missed = np.abs(fine.mean(axis=1) - lacks)
        assert np.median(missed / fine.std(axis=1) * 200) > 5
        left = np.abs(found.corrections.mean(axis=1) - lacks)
        assert np.all(left < step_bias_bound(found.steps.mean(axis=1)))
        assert np.mean(left) < 0.5 * np.mean(missed)


@pytest.mark.parametrize(
    ("process", "backward"),
    [(hn.OrnsteinUhlenbeck(6.0, 0.2), False), (hn.OrnsteinUhlenbeck(-0.8), True), (None, False)],
    ids=["reverting", "running away", "none"],
)
def test_a_reaction_as_a_function_is_the_same_as_a_number(process, backward):
    """The weight of paths in whatever clock, through every way to a value."""
    start = {"terminal": bell} if backward else {"initial": bell}
    number, function = (
        hn.Problem(dim=2, horizon=1.0, process=process, reaction=c, **start)
        for c in (-0.9, lambda t, x: -0.9 + 0 * x[0])
    )
    t, x = 0.2 if backward else 0.8, np.array([0.4, -0.3])
    a, b = (hn.montecarlo.importance(p, t, x, samples=20_000) for p in (number, function))
    assert (
        abs(a.value - b.value)
        < 4 * np.hypot(a.standard_error, b.standard_error) + b.truncation_bias
    )
    assert b.truncation_bias < 1e-2 * b.value
    s, y = function.transform.to_canonical(np.array([t]), x[None])
    u = hn.solve(function, features=(8, 0), rows=(64, 0), antithetic=True, collocation="paths")
    network = u.network
    for steps in (0, 4):
        drawn = error_equation.martingale_form(
            network, s, y, 4096, [np.random.default_rng(0)], error_equation.MartingaleForm(steps)
        )
        value = network.value(s, y)[0] + drawn.corrections.mean(axis=1)
        assert (
            abs(value[0] - a.value)
            < 5 * np.hypot(drawn.corrections.std() / 64, a.standard_error)
            + step_bias_bound(drawn.steps.mean(axis=1))[0]
        )


@pytest.mark.parametrize("design", designs.DESIGNS)
def test_the_steps_of_a_feature_have_noise_of_their_own(design):
    problem = hn.problems.get("rotating", dim=4)
    feature, _source = hn.ImportanceFamily().draw(
        problem.canonical, (512, 0), designs.design(design), 0
    )
    first, second = np.moveaxis(np.asarray(feature.direction), 1, 0)
    assert np.max(np.abs(np.mean(first * second, axis=0))) < 0.25
    radii = [np.linalg.norm(n, axis=1) for n in (first, second)]
    assert abs(np.corrcoef(*radii)[0, 1]) < 0.25
    order = np.argsort(radii[0])
    assert np.median(np.abs(np.diff(radii[1][order]))) > 0.1 * np.std(radii[1])  # no curve of radii
    fewer, _ = hn.ImportanceFamily().draw(problem.canonical, (100, 0), designs.design(design), 0)
    np.testing.assert_array_equal(fewer.direction, feature.direction[:100])


def test_jumps_of_coefficients_are_told():
    """Coefficients that jump are refused in divergence form, and warned of elsewhere.

    In divergence form a jump of A is another equation; elsewhere the bias of steps is not known.
    """
    step = lambda t, x: jnp.where(x[0] > 0.1, 4.0, 1.0)  # noqa: E731
    with pytest.raises(hn.InputError, match="in divergence form the jump itself"):
        hn.Problem(dim=1, horizon=0.5, initial=bell, diffusion=step, form="divergence")
    with pytest.warns(hn.HeatnetsWarning, match="`diffusion` jumps"):
        hn.Problem(dim=1, horizon=0.5, initial=bell, diffusion=step, form="trace")
    with pytest.warns(hn.HeatnetsWarning, match="`reaction` jumps"):
        problem = hn.Problem(
            dim=1, horizon=0.5, initial=bell, reaction=lambda t, x: jnp.where(t > 0.27, 1.0, 0.0)
        )
    assert problem.canonical.coefficients.jumps == ("reaction",)
    for smooth in (lambda t, x: 2 + jnp.tanh(1e4 * x[0]), lambda t, x: 1 + jnp.abs(x[0])):
        assert (
            hn.Problem(
                dim=1, horizon=0.5, initial=bell, diffusion=smooth, form="divergence"
            ).canonical.coefficients.jumps
            == ()
        )


def test_a_step_of_the_users_own_is_used():
    """The exact step of dX = -X dt + √2 dW has the exact law in one step, where Euler's has not."""

    def exact_step(t, x, h, noise):
        return jnp.exp(-h) * x + jnp.sqrt(-jnp.expm1(-2 * h)) * noise

    problem = hn.Problem(dim=1, horizon=2.0, initial=bell, drift=lambda t, x: -x, step=exact_step)
    walk = EulerPaths(problem.canonical.coefficients, 1)
    noise = np.linspace(-2, 2, 9)[:, None, None]
    moved = walk.simulate(2.0, np.array([1.5]), 2.0, noise)
    np.testing.assert_allclose(
        moved.position[:, 0],
        1.5 * np.exp(-2) + np.sqrt(1 - np.exp(-4)) * noise[:, 0, 0],
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        moved.martingale[:, 0], np.sqrt(1 - np.exp(-4)) * noise[:, 0, 0], rtol=1e-12, atol=1e-15
    )
    assert isinstance(hn.Problem(dim=1, horizon=2.0, initial=bell).canonical.paths, ExactPaths)
    u = hn.solve(problem, features=(16, 0), rows=(128, 0), antithetic=True, collocation="paths")
    sure = u.certify(2.0, [0.7])
    mean, variance = 0.7 * np.exp(-2), 1 - np.exp(-4)
    exact = np.exp(-(mean**2) / (1 + 2 * variance)) / np.sqrt(1 + 2 * variance)
    assert abs(sure.value - exact) < 2 * sure.halfwidth
    # Another root of the same A, and a step of a terminal-value problem with coefficients of time.
    A = np.array([[1.0, 0.3], [0.3, 1.0]])
    values, vectors = np.linalg.eigh(A)
    root = jnp.asarray(vectors * np.sqrt(values))
    hn.Problem(
        dim=2, horizon=1.0, terminal=bell, diffusion=A, drift=lambda t, x: -(1 + t) * x,
        step=lambda t, x, h, noise: x - h * (1 + t + h / 2) * x + jnp.sqrt(2 * h) * root @ noise,
    )  # fmt: skip


def test_kinks_in_coefficients_are_found():
    """c = -|x|: against finite differences of u_t = u'' - |x| u."""
    problem = hn.Problem(dim=1, horizon=0.5, initial=bell, reaction=lambda t, x: -jnp.abs(x[0]))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        u = hn.solve(problem, tol=0, max_rounds=1)
    assert any("`reaction` has kinks or jumps" in str(w.message) for w in said)
    assert u.stats["enforce"] == "mild"
    sure = u.certify(0.5, [0.2], samples=16384)
    assert sure.certified
    exact = finite_differences(
        0.5, lambda z: np.exp(-(z**2)), np.ones_like, lambda z: -np.abs(z), 0.2
    )
    assert abs(sure.value - exact) < 2 * sure.halfwidth
    assert sure.halfwidth < 0.02 * sure.value
    with pytest.raises(hn.InputError, match="need constant coefficients"):
        u.certify_gradient(0.5, [0.2])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"drift": lambda t, x: x**3}, "paths explode"),
        ({"drift": lambda t, x: -20 * x}, "too strong for the steps"),
        ({"drift": lambda t, x: x, "steps": 10}, "`steps` must be a multiple of four"),
        ({"drift": lambda t, x: jnp.sum(x)}, r"`drift` must return an array of shape \(3,\)"),
        (
            {"diffusion": lambda t, x: jnp.sin(x), "form": "trace"},
            "`diffusion` must be positive definite wherever",
        ),
        (
            {"diffusion": lambda t, x: jnp.outer(x, x), "form": "trace"},
            "`diffusion` must be positive definite wherever",
        ),
        (
            {"diffusion": lambda t, x: turned(x) + jnp.tril(jnp.ones((3, 3))), "form": "trace"},
            "symmetric",
        ),
        ({"diffusion": lambda t, x: 1 + x**2}, "`form` must be said"),
        ({"diffusion": lambda t, x: 1 + x**2, "form": "ito"}, "`form` must be one of"),
        ({"diffusion": 2.0, "form": "ito"}, "`form` must be one of"),
        ({"diffusion": lambda t, x: x[:2], "form": "trace"}, r"shape \(\) or \(3,\) or \(3, 3\)"),
        ({"drift": lambda t, x: x[:2]}, r"`drift` must return an array of shape"),
        ({"drift": lambda x: x}, "must take 2 argument"),
        ({"reaction": lambda t, x: x}, "`reaction` must return a scalar"),
        (
            {"reaction": lambda t, x: 1 / jnp.maximum(x[0] - 9, 0)},
            "`reaction` must be finite wherever",
        ),
        ({"step": 3}, "`step` must be a function"),
        ({"drift": lambda t, x: x, "step": lambda x: x}, r"`step` must take 4 argument\(s\)"),
        (
            {"drift": lambda t, x: x, "step": lambda t, x, h, n: x[:1]},
            r"`step` must return an array of shape \(3,\)",
        ),
        (
            {"drift": lambda t, x: x, "step": lambda t, x, h, n: x + h * x + jnp.sqrt(h) * n},
            r"the covariance \(0, 0\) is 1 in place of 2",
        ),
        (
            {
                "diffusion": np.eye(3) + 0.3,
                "drift": lambda t, x: x,
                "step": lambda t, x, h, n: x + h * x + jnp.sqrt(2.6 * h) * n,
            },
            "the covariance",
        ),
        (
            {"drift": lambda t, x: x, "step": lambda t, x, h, n: x + jnp.sqrt(2 * h) * n},
            "the mean in coordinate",
        ),
        (
            {"process": hn.OrnsteinUhlenbeck(0.5), "step": lambda t, x, h, n: x},
            "exact step of its own",
        ),
        (
            {"process": hn.OrnsteinUhlenbeck(0.5), "drift": lambda t, x: x},
            "leave `diffusion` and `drift` out",
        ),
    ],
)
def test_refusals(given, words):
    with pytest.raises(hn.InputError, match=words):
        hn.Problem(dim=3, horizon=1.0, initial=bell, **given)


def test_what_needs_constant_coefficients_says_so():
    problem = hn.problems.get("rotating", dim=2)
    with pytest.raises(hn.InputError, match="without drift and reaction"):
        hn.solve(problem, family="gaussian", features=(8, 0), rows=(64, 0))
    with pytest.raises(hn.InputError, match="no coefficient that varies"):
        hn.montecarlo.transformed(problem, 0.5, [0.0, 0.0])


_RATES = np.array([0.3, 0.3, 0.5])
LINEAR = {
    "a number": (lambda t, x: -0.3 * x, "θ = 0.3 and m = 0."),
    "a mean": (lambda t, x: 0.5 * (jnp.array([0.1, 0.2, 0.4]) - x), "0.5 and m = [0.1, 0.2, 0.4]."),
    "a matrix": (lambda t, x: 1.0 - jnp.eye(3) @ x / 2, "θ = 0.5 and m = 2."),
    "compiled": (jax.jit(lambda t, x: 0.3 * x), "θ = -0.3 and m = 0."),
    "time": (lambda t, x: -t * x, ""),
    "a moving mean": (lambda t, x: jnp.sin(t) - x, ""),
    "a rate per coordinate": (lambda t, x: -_RATES * x, ""),
    "a rotation": (lambda t, x: jnp.array([-x[1], x[0], 0.0]), ""),
    "linear where paths lead": (lambda t, x: -jnp.clip(x, -1e6, 1e6), ""),
    "not linear": (lambda t, x: jnp.tanh(x), ""),
    "constant": (lambda t, x: jnp.ones(3), ""),
    "beyond the process": (lambda t, x: -16.0 * x, ""),
}


@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_drift_is_told_its_process(name, unoptimised):
    drift, words = LINEAR[name]
    given = {"dim": 3, "horizon": 1.0, "initial": bell, "diffusion": 0.5}
    notes = hn.Problem(**given, drift=drift, steps=64).notes
    assert len(notes) == bool(words)
    assert words in "".join(notes)
    advised = re.search(r"hn\.OrnsteinUhlenbeck\(rate=(.+), mean=(.+), diffusion=0.5\)", str(notes))
    if advised:  # is it the same drift?
        rate, mean = ast.literal_eval(advised[1]), np.array(ast.literal_eval(advised[2]))
        x = np.array([0.3, -2.0, 1.0])
        np.testing.assert_allclose(drift(0.7, x), rate * (mean - x), rtol=1e-12)
        of_process = hn.Problem(
            **{**given, "diffusion": None}, process=hn.OrnsteinUhlenbeck(rate, mean, 0.5)
        )
        assert of_process.notes == ()


def test_a_linear_drift_with_other_functions_has_no_note(unoptimised):
    given = {"dim": 3, "horizon": 1.0, "initial": bell, "drift": lambda t, x: -2.0 * x}
    assert len(hn.Problem(**given).notes) == 1
    assert hn.Problem(**given, diffusion=lambda t, x: 1.0 + t, form="trace").notes == ()
    # A source allows for |rate| T up to 1.
    assert hn.Problem(**given, source=lambda t, x: t).notes == ()


def test_memory_and_device_reach_paths_in_steps(monkeypatch):
    problem = hn.Problem(dim=2, horizon=0.5, initial=bell, drift=lambda t, x: -0.3 * x)
    limits, evaluate = [], paths.map_points

    def recorded(function, context, points, floats, ctx):
        limits.append(ctx.memory)
        return evaluate(function, context, points, floats, ctx)

    monkeypatch.setattr(paths, "map_points", recorded)
    options = {"features": (8, 0), "rows": (64, 0), "collocation": "paths"}
    u = hn.solve(problem, **options, memory=2**28)
    u.certify(0.5, np.zeros(2), samples=64)
    assert set(limits) == {2**28}
