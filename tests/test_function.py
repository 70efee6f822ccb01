"""`u.function` and `u.at`: a solution as a pure function inside JAX programs.

It is compared with the NumPy call, with finite differences, and with identities of derivatives.
"""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import heatnets as hn

pytestmark = pytest.mark.filterwarnings("ignore::heatnets.HeatnetsWarning")

SAME = 1e-13  # relative to the largest value: sums of 32 terms in another order
SMALL = {"features": (16, 16)}
ASSETS = hn.GeometricBrownian(volatility=0.3, growth=0.04, correlation=0.2)
MARKET = {"dim": 3, "horizon": 0.7, "process": ASSETS, "reaction": -0.04}
REGION = hn.Box(80.0, 120.0)


def wave(x):
    return jnp.cos(x[0]) + jnp.sin(x @ x / 3)


PROBLEMS = {
    "heat": lambda: (hn.problems.get("nonseparable", dim=5), {**SMALL, "time_degree": 1}),
    "drift, reaction": lambda: (
        hn.Problem(
            dim=3,
            horizon=0.8,
            initial=wave,
            source=lambda t, x: t * wave(2 * x),
            drift=[0.5, -0.3, 0.1],
            reaction=-0.4,
            diffusion=[0.5, 1.0, 2.0],
        ),
        SMALL,
    ),
    "mean-reverting": lambda: (hn.problems.get("ornstein-uhlenbeck", dim=3), SMALL),
    "terminal": lambda: (
        hn.Problem(**MARKET, terminal=lambda x: jnp.log1p(jnp.sum(x)) ** 2, region=REGION),
        {"features": (16, 0)},
    ),
    "kinked payoff": lambda: (
        hn.Problem(**MARKET, terminal=lambda x: jnp.maximum(jnp.mean(x) - 100, 0), region=REGION),
        {"max_rounds": 1},
    ),
    "varying": lambda: (
        hn.Problem(
            dim=3,
            horizon=0.5,
            initial=wave,
            diffusion=lambda t, x: 1 + 0.5 * jnp.tanh(x) * jnp.cos(t),
            drift=lambda t, x: -0.3 * x,
            reaction=lambda t, x: -0.1 * x[0] ** 2,
            form="trace",
        ),
        SMALL,
    ),
    "semilinear": lambda: (hn.problems.get("allen-cahn", dim=3), {**SMALL, "collocation": "paths"}),
    "kernels": lambda: (
        hn.problems.get("forced-sine"),
        {**SMALL, "family": "gaussian", "collocation": "grid"},
    ),
}


@cache
def solution(name: str) -> hn.Solution:
    problem, options = PROBLEMS[name]()
    return hn.solve(problem, **options)


def points(problem, count=5):
    """Times inside of (0, T) and points of the region, or around it if it is a single point."""
    rng = np.random.default_rng(1)
    t, x = hn.random_points(problem, count, seed=3)
    if problem.region.is_point:
        t, x = problem.horizon * rng.random(count), x + rng.normal(size=x.shape)
    return t, x


def gap(found, wanted):
    """The largest difference, relative to the largest value."""
    return np.max(np.abs(np.asarray(found, float) - wanted)) / np.max(np.abs(wanted))


def in_float64(*arrays):
    """JAX arrays in float64, also where JAX runs in float32."""
    with jax.enable_x64(True):
        return tuple(map(jnp.asarray, arrays))


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_values_and_gradients_are_those_of_the_numpy_call(name, double):
    u = solution(name)
    f, (t, x) = u.function, points(u.problem)
    values, slopes = u(t, x), u.gradient(t, x)

    @jax.jit
    @jax.vmap
    def program(t, x, v):
        along, derivative = jax.jvp(lambda x: f(t, x), (x,), (v,))
        return f(t, x), jax.grad(f, 1)(t, x), along, derivative

    with jax.enable_x64(double):
        assert gap(f(t[0], x[0]), values[0]) < SAME  # NumPy arrays, no program around it
        found = program(*in_float64(t, x, np.ones_like(x)))
    for array, wanted in zip(found, (values, slopes, values, slopes.sum(axis=1)), strict=True):
        assert gap(array, wanted) < SAME


@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
def test_transformations_in_any_order(double):
    u = solution("terminal")
    f, (t, x) = u.function, points(u.problem)
    times, places = in_float64(t, x)
    with jax.enable_x64(double):
        for program in (jax.vmap(f), jax.vmap(jax.jit(f)), jax.jit(jax.vmap(jax.jit(f)))):
            assert gap(program(times, places), u(t, x)) < SAME
        for program in (jax.vmap(jax.grad(f, 1)), jax.vmap(jax.grad(jax.jit(f), 1))):
            assert gap(program(times, places), u.gradient(t, x)) < SAME
        loop = jax.lax.map(lambda point: f(*point), (times, places))
        assert gap(loop, u(t, x)) < SAME


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", ["heat", "terminal", "semilinear"])
def test_where_jax_runs_in_float32_the_result_is_rounded_once(name):
    u = solution(name)
    t, x = (a.astype(np.float32) for a in points(u.problem))
    with jax.enable_x64(False):
        values = jax.jit(jax.vmap(u.function))(t, x)
        slopes = jax.jit(jax.vmap(jax.grad(u.function, 1)))(t, x)
        total = 2.0 * jnp.sum(values)
    # float32 arithmetic would be off by several of these units in the last digit.
    assert values.dtype == slopes.dtype == total.dtype == np.float32
    np.testing.assert_array_almost_equal_nulp(np.asarray(values), u(t, x).astype(np.float32), 1)
    exact = u.gradient(t, x)
    assert np.all(np.abs(slopes - exact) <= 6.1e-8 * np.abs(exact) + 1e-13 * np.max(np.abs(exact)))


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("name", ["drift, reaction", "terminal", "varying"])
def test_an_exported_function_is_the_same(name, double):
    u = solution(name)
    t, x = points(u.problem)
    times, places = in_float64(t, x)
    with jax.enable_x64(double):
        exported = jax.export.export(jax.jit(jax.vmap(u.function)))(times, places)
        stored = exported.serialize(vjp_order=1)
        again = jax.export.deserialize(stored)
        assert gap(again.call(times, places), u(t, x)) < SAME
        _, pull_back = jax.vjp(lambda x: again.call(times, x), places)
        (slopes,) = pull_back(in_float64(np.ones(len(t)))[0])
        assert gap(slopes, u.gradient(t, x)) < SAME


@pytest.mark.usefixtures("x64", "unoptimised")
@pytest.mark.parametrize("name", ["drift, reaction", "terminal"])
def test_derivatives_in_time_and_of_second_order(name):
    u = solution(name)
    f, (t, x) = u.function, (a[0] for a in points(u.problem))
    h = 1e-5
    by_t = (u(t + h, x) - u(t - h, x)) / (2 * h)
    assert gap(jax.grad(f)(t, x), by_t) < 1e-6  # of central differences, h² and 1e-16/h
    size = 1e-4 * np.mean(np.abs(x))
    steps = size * np.eye(len(x))
    hessian = (u.gradient(t, x + steps) - u.gradient(t, x - steps)) / (2 * size)
    forward_reverse = jax.jit(jax.hessian(f, 1))(t, x)
    assert gap(forward_reverse, hessian) < 1e-5
    assert gap(jax.jacrev(jax.grad(f, 1), 1)(t, x), forward_reverse) < 1e-12
    # The cotangent of a gradient, as in a cost of a control: ∇(½|∇u|²) = D²u ∇u.
    cost = jax.grad(lambda x: 0.5 * jnp.sum(jax.grad(f, 1)(t, x) ** 2))(x)
    assert gap(cost, forward_reverse @ u.gradient(t, x)) < 1e-12
    mixed = jax.grad(lambda t: jnp.sum(jax.grad(f, 1)(t, x)))(t)
    swapped = jnp.sum(jax.grad(lambda x: jax.grad(f)(t, x))(x))
    assert gap(mixed, np.asarray(swapped)) < 1e-10


def test_times_at_and_outside_of_the_horizon_in_float32():
    u = solution("drift, reaction")
    T, (_, x) = u.problem.horizon, (a[0] for a in points(u.problem))
    late = np.nextafter(np.float32(T), np.float32(np.inf))  # as rounding may give
    with jax.enable_x64(False):
        slope = jax.grad(u.function)(late, x)
        outside = [u.function(t, x) for t in (np.float32(-0.1), np.float32(1.1 * T))]
    with jax.enable_x64(True):
        by_t = jax.grad(u.function)(T, x)
    assert float(slope) == pytest.approx(float(by_t), rel=1e-5)
    assert float(by_t) != 0
    assert np.all(np.isnan(outside))


@pytest.mark.usefixtures("x64")
def test_a_loop_of_unknown_length_has_its_gradient_by_forward_mode():
    def initial(x):
        return jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 0.9), (0, x @ x))[
            1
        ]

    u = hn.solve(hn.Problem(dim=2, horizon=0.5, initial=initial), features=(8, 0))
    x = np.array([0.3, -0.2])
    assert gap(jax.jit(jax.grad(u.function, 1))(0.2, x), u.gradient(0.2, x)) < SAME
    assert gap(u.gradient(0.2, x), 2 * 0.9**3 * x) < 1e-8


@pytest.mark.usefixtures("x64")
def test_many_points_are_evaluated_in_tiles():
    u = hn.solve(hn.problems.get("nonseparable", dim=50), features=(64, 0), rows=(100, 50))
    t, x = hn.random_points(u.problem, 8191)  # a prime: the last tile is padded
    all_at_once = 8 * len(t) * 64 * 50  # bytes of one array (points, features, dim)
    grid = np.tile(x, (2, 1, 1))
    for function, wanted in ((u.function, u), (jax.grad(u.function, 1), u.gradient)):
        program = jax.jit(jax.vmap(jax.vmap(function), (None, 0))).lower(t, grid).compile()
        assert program.memory_analysis().temp_size_in_bytes < all_at_once / 2
        assert gap(program(t, grid)[1, -5:], wanted(t[-5:], x[-5:])) < SAME


@pytest.mark.usefixtures("x64")
def test_it_is_a_module_whose_arrays_are_arguments():
    u = solution("heat")
    t, x = points(u.problem)
    assert isinstance(u.function, eqx.Module)
    traces = []

    @eqx.filter_jit
    def program(f, t, x):
        traces.append(f)
        return jax.vmap(f)(t, x)

    assert gap(program(u.function, t, x), u(t, x)) < SAME
    doubled = eqx.tree_at(
        lambda f: [w for _, w in f._blocks], u.function, replace_fn=lambda w: 2 * w
    )
    assert gap(program(doubled, t, x), 2 * u(t, x)) < SAME
    assert len(traces) == 1
    # A derivative in the weights: u is linear in them, so that it is u itself along the weights.
    slopes = eqx.filter_grad(lambda f: f(t[0], x[0]))(u.function)
    pairs = zip(slopes._blocks, u.function._blocks, strict=True)
    assert gap(sum(jnp.vdot(s, w) for (_, s), (_, w) in pairs), u(t[0], x[0])) < SAME
    pair = eqx.filter_vmap(
        lambda factor: eqx.tree_at(
            lambda f: [w for _, w in f._blocks], u.function, replace_fn=lambda w: factor * w
        )
    )(jnp.array([1.0, 3.0]))
    both = eqx.filter_vmap(lambda f: f(t[0], x[0]))(pair)
    assert gap(both, u(t[0], x[0]) * np.array([1.0, 3.0])) < SAME


def test_at_a_time():
    u = solution("terminal")
    _, x = points(u.problem)
    times, places = in_float64(np.array(0.2), x)
    assert gap(jax.jit(jax.vmap(u.at(0.2)))(places), u(0.2, x)) < SAME
    assert gap(jax.vmap(jax.grad(u.at(0.2)))(places), u.gradient(0.2, x)) < SAME
    inside = jax.jit(lambda t, x: jax.vmap(u.at(t))(x))(times, places)  # also a time of a program
    assert gap(inside, u(0.2, x)) < SAME
    # The float32 number next to T = 0.7 is earlier, that next to 0.7 + 5e-8 is later: both are T.
    late = np.nextafter(np.float32(0.7), np.float32(1))
    assert late > 0.7
    assert gap(u.function(late, x[0]), u(0.7, x[0])) < SAME
    for wrong in (-0.1, 0.8, np.nan, [0.1, 0.2], "now"):
        with pytest.raises(hn.InputError, match="`t`"):
            u.at(wrong)


def test_it_may_be_made_inside_a_program():
    u = solution("terminal").with_stats({})
    u.__dict__.pop("function", None)
    x = np.array([90.0, 100.0, 110.0])
    inside = jax.jit(lambda x: u.function(0.2, x))(x)
    assert inside == jnp.float32(u(0.2, x))
    assert gap(u.function(0.2, x), u(0.2, x)) < SAME  # no tracer was kept


def test_shapes_are_checked():
    u = solution("terminal")
    for t, x in ((0.1, np.ones(4)), (0.1, np.ones((5, 3))), (np.zeros(5), np.ones((5, 3)))):
        with pytest.raises(hn.InputError, match=r"jax\.vmap"):
            u.function(t, x)
        with pytest.raises(hn.InputError, match=r"jax\.vmap"):
            jax.jit(u.function)(t, x)
    with pytest.raises(hn.InputError, match=r"u\.function"):
        jax.jit(u)(0.1, np.ones(3))


def test_a_loaded_solution_has_it_too(tmp_path):
    u = solution("heat")
    t, x = points(u.problem)
    again = hn.load(u.save(tmp_path / "heat.heatnets"))
    assert np.array_equal(again.function(t[0], x[0]), u.function(t[0], x[0]))
    assert gap(again.function(t[0], x[0]), u(t[0], x[0])) < SAME


def test_a_copy_for_another_problem_has_a_function_of_its_own():
    u = solution("heat")
    value = u.function(0.1, np.zeros(5))
    later = u.with_problem(hn.Problem(dim=5, horizon=u.problem.horizon, terminal=lambda x: x[0]))
    found = later.function(u.problem.horizon - 0.1, np.zeros(5))
    assert gap(found, np.asarray(value)) < 1e-11  # 0.5 - (0.5 - 0.1) is not 0.1
