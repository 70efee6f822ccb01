"""Certificates by scrambled Sobol' nets, for kinks and steps that features do not integrate."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import heatnets as hn
from heatnets._core.execution import make_context
from heatnets.certify import quasi_monte_carlo
from heatnets.certify.quasi_monte_carlo import (
    NETS,
    NetPoints,
    Rotation,
    leading_rotation,
    net_means,
)
from heatnets.features.equation import equation_values_only

DIM, HORIZON, STEP = 3, 0.2, 0.5


def table(x):
    grid = jnp.linspace(-8.0, 8.0, 1601)
    return jnp.interp(jnp.sum(x), grid, jnp.maximum(grid, 0.0))


def step(x):
    return jnp.where(jnp.floor(jnp.sum(x) - STEP) >= 0, 1.0, 0.0)


WIDTH = np.sqrt(2 * HORIZON * DIM)  # of Σ x at the end of a path


def exact(data, total):
    if data is step:
        return norm.cdf((total - STEP) / WIDTH)
    return total * norm.cdf(total / WIDTH) + WIDTH * norm.pdf(total / WIDTH)


@pytest.fixture(scope="module", params=[table, step])
def solved(request):
    """A poor network: its certificates do not depend on it."""
    problem = hn.Problem(DIM, HORIZON, initial=request.param, region=hn.Box(-0.5, 0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        return request.param, hn.solve(problem, features=(8, 0), enforce="mild")


def test_intervals_hold_at_many_points(solved):
    """Of 300 intervals at 95 %, conservative for few points, at least 93 % hold; none by far."""
    data, u = solved
    x = np.random.default_rng(0).uniform(-0.5, 0.5, (300, DIM))
    sure = u.certify(np.full(300, HORIZON), x, samples=64)
    assert sure.method.startswith("quasi-Monte Carlo")
    assert np.sum(sure.certified) > 250
    apart = np.abs(sure.value - exact(data, x.sum(axis=1)))[sure.certified]
    miss = apart / sure.halfwidth[sure.certified]
    assert np.mean(miss <= 1) > 0.93
    assert np.max(miss) < 2
    assert np.max(np.abs(sure.error)) > 10 * np.max(sure.halfwidth)  # the network is poor


def test_deltas_and_gammas_hold(solved):
    """Derivatives in closed form; the network's own are wrong by more."""
    data, u = solved
    x = np.random.default_rng(1).uniform(-0.3, 0.3, (20, DIM))
    total, w = x.sum(axis=1), np.ones((20, DIM))
    z = (total - STEP) / WIDTH if data is step else total / WIDTH
    slope = norm.pdf(z) / WIDTH if data is step else norm.cdf(z)
    bend = DIM**2 * (-z * norm.pdf(z) / WIDTH**2 if data is step else norm.pdf(z) / WIDTH)
    t = np.full(20, HORIZON)
    deltas = u.certify_gradient(t, x, samples=256)
    gammas = u.certify_curvature(t, x, w, samples=256)
    for sure, truth in ((deltas, np.repeat(slope[:, None], DIM, axis=1)), (gammas, bend)):
        assert sure.method.endswith("scrambled nets, weighted")
        assert np.all(sure.certified)
        miss = np.abs(sure.value - truth) / sure.halfwidth
        assert np.mean(miss <= 1) > 0.9
        assert np.max(miss) < 2
        assert np.max(sure.halfwidth) < 0.1 * np.max(np.abs(truth))


def test_they_are_narrower_than_plain_monte_carlo(solved):
    data, u = solved
    x = np.full(DIM, 0.1)
    sure = u.certify(HORIZON, x, samples=1024)
    assert sure.samples == NETS * 1024
    assert abs(sure.value - exact(data, x.sum())) < 1.5 * sure.halfwidth
    plain = hn.montecarlo.importance(u.problem, HORIZON, x, samples=NETS * 1024)
    assert sure.halfwidth < (0.1 if data is table else 0.25) * (plain.high - plain.low) / 2


def test_a_half_width_is_reached_with_further_points_of_the_same_nets(solved):
    data, u = solved
    x = np.full(DIM, 0.1)
    first = u.certify(HORIZON, x, samples=64)
    sure = u.certify(HORIZON, x, samples=64, halfwidth=0.2 * float(first.halfwidth))
    assert sure.reached
    assert sure.samples > first.samples
    assert np.log2(sure.samples) % 1 == 0
    assert abs(sure.value - exact(data, x.sum())) < 1.5 * sure.halfwidth


def margrabe(left, x):
    """E[max(X_1 - X_2, 0)] for independent assets without drift; `left` is the time to maturity."""
    width = jnp.hypot(*VOLATILITY) * jnp.sqrt(jnp.maximum(left, 1e-300))
    high = (jnp.log(x[0] / x[1]) + 0.5 * width**2) / width
    cdf = jax.scipy.stats.norm.cdf
    return x[0] * cdf(high) - x[1] * cdf(high - width)


VOLATILITY = np.array([0.2, 0.4])


@pytest.fixture(scope="module")
def exchange():
    """An option to exchange one of two assets for the other."""
    return hn.Problem(
        2,
        1.0,
        terminal=lambda x: jnp.maximum(x[0] - x[1], 0.0),
        process=hn.GeometricBrownian(VOLATILITY, 0.0, np.eye(2)),
        region=hn.Box(80.0, 120.0),
        exact=lambda t, x: margrabe(1.0 - t, x),
    )


def rows_of(problem, points, part, seed=0):
    problem = problem.canonical
    rotation = Rotation.onto(np.array([[0.6], [0.8]]))
    rng = np.random.default_rng(seed)
    with jax.enable_x64(True):
        data = equation_values_only(problem)
        return net_means(problem, data, points, part, rng, make_context(), rotation=rotation)


def test_means_over_nets_are_unbiased_and_hardly_depend_on_each_other(exchange):
    """At one point: the mean of 256 is off by as much as independent ones would be.

    Their number is that of four groups that share scrambled coordinates: were all of a group alike,
    the mean would be off by eight times as much.
    """
    x = np.array([100.0, 110.0])
    where = exchange.transform.to_canonical(np.zeros(256), np.tile(x, (256, 1)))
    exact = float(hn.exact_values(exchange, 0.0, x))
    ratios = []
    for seed in range(6):
        means = rows_of(exchange, where, NetPoints(0, 256), seed)
        spread = np.std(means, ddof=1)
        assert spread < 0.007 * exact  # of as many random points: 0.1
        ratios.append((np.mean(means) - exact) / (spread / 16))
    assert np.sqrt(np.mean(np.square(ratios))) < 2


def test_further_points_of_the_same_nets(exchange):
    where = exchange.transform.to_canonical(*hn.random_points(exchange, 70))
    whole, first, rest = (
        rows_of(exchange, where, NetPoints(*part)) for part in ((0, 512), (0, 256), (256, 256))
    )
    np.testing.assert_allclose((first + rest) / 2, whole, rtol=1e-12)
    own = rows_of(exchange, where, NetPoints(0, 512, shared=False))
    exact = hn.exact_values(exchange, *exchange.transform.from_canonical(*where))
    for means in (whole, own):
        assert np.sqrt(np.mean((means - exact) ** 2)) < 3e-3 * np.sqrt(np.mean(exact**2))


def test_a_network_of_mild_rows_is_good_to_four_digits(exchange):
    """Its error over the region, by the closed form; the estimate says as much. It was 1e-3."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        u = hn.solve(exchange, enforce="mild")
        again = hn.solve(exchange, enforce="mild", tol=0, max_rounds=1)
    error = hn.measure(u).l2
    assert error < 1e-4
    assert error / 3 < u.stats["estimated_error"] < 3 * error + 1e-5
    for one, other in zip(u.weights, again.weights, strict=True):  # the same call, the same bits
        np.testing.assert_array_equal(one, other)


def test_coordinates_are_turned_where_one_direction_leads():
    """A ridge is found; a sum over coordinates keeps them, the steepest first."""
    direction = np.arange(1.0, 9.0) / np.linalg.norm(np.arange(1.0, 9.0))

    def ridge(noise, place):
        return np.maximum(noise @ direction, 0.0)

    def separate(noise, place):
        return np.abs(noise) @ np.arange(1.0, 9.0)

    turn = leading_rotation(ridge, 8, np.random.default_rng(0))
    noise = np.random.default_rng(1).standard_normal((5, 8))
    np.testing.assert_allclose(turn(noise) @ turn(noise).T, noise @ noise.T)  # orthogonal
    assert abs(turn(np.eye(8))[0] @ direction) > 0.99  # differences are not quite gradients
    kept = leading_rotation(separate, 8, np.random.default_rng(0))
    np.testing.assert_allclose(np.abs(kept(noise)), np.abs(noise[:, ::-1]))
    flat = leading_rotation(lambda noise, place: np.ones(len(noise)), 8, np.random.default_rng(0))
    np.testing.assert_array_equal(flat(noise), noise)


# F; from the exact values without it those with it; relative error of the network; how many times
# narrower intervals are
SOURCES = {
    "of x": (
        lambda t, x: t * jnp.cos(x[0]),
        lambda values, t, x: values + np.cos(x[:, 0]) * (t - 1 + np.exp(-t)),
        2e-3,
        5.0,
    ),
    "of u": (
        lambda t, x, u: -20 * t**2 * u,  # weights are integrals of what varies
        lambda values, t, x: np.exp(-20 * t**3 / 3) * values,
        2e-2,
        1.5,  # u0 has weights, so that an allowance for its unseen values is left
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_with_a_source_nets_tell_the_part_of_the_initial_condition(name, monkeypatch):
    """Intervals hold, and are far narrower than those of the martingale form alone."""
    source, add, error, narrower = SOURCES[name]
    problem = hn.Problem(DIM, HORIZON, initial=table, source=source, region=hn.Box(-0.5, 0.5))
    with pytest.warns(hn.HeatnetsWarning, match="mild rows"):
        u = hn.solve(problem, tol=0, max_rounds=1, seconds=5)
    x = np.random.default_rng(2).uniform(-0.5, 0.5, (10, DIM))
    t = np.full(10, HORIZON)
    truth = add(exact(table, x.sum(axis=1)), t, x)
    assert np.linalg.norm(u(t, x) - truth) < error * np.linalg.norm(truth)
    sure = u.certify(t, x, samples=512)
    assert sure.method.startswith("martingale, no steps, u0 by 64 scrambled nets")
    assert np.all(sure.certified)
    miss = np.abs(sure.value - truth) / sure.halfwidth
    assert np.mean(miss <= 1) >= 0.9
    assert np.max(miss) < 2
    monkeypatch.setattr(quasi_monte_carlo, "serves_initial", lambda problem: False)
    alone = u.certify(t[:1], x[:1], samples=512)
    assert alone.method.startswith("martingale, 4 steps")
    assert alone.halfwidth[0] > narrower * sure.halfwidth[0]


@pytest.mark.parametrize("chunk", [2**23, 3 * 256])
def test_points_that_are_added_in_pieces_count_as_they_are(chunk, solved, monkeypatch):
    """Three times as many points as before are no power of two: the last piece is shorter."""
    data, u = solved
    monkeypatch.setattr(quasi_monte_carlo, "CHUNK", chunk)
    x, t = np.array([0.1, -0.2, 0.3]), HORIZON
    point = quasi_monte_carlo.NetSamples(0.0, 0.0, 0.0, np.zeros(1))
    for number in (128, 384):
        quasi_monte_carlo.add_points(u.network, t, x, point, number, np.random.default_rng(3))
    assert point.moments.count == NETS * 512
    mean, noise = np.mean(point.means), np.std(point.means) / np.sqrt(NETS)
    assert abs(mean - exact(data, x.sum())) < 5 * noise


def solve_root(source):
    """A solution with u0 = √(x_1²), whose kink has no name, and a source that depends on u."""
    problem = hn.Problem(
        2, 0.5, initial=lambda x: jnp.sqrt(x[0] ** 2), source=source, region=hn.Point([0.3, 0.0])
    )
    with pytest.warns(hn.HeatnetsWarning, match="mild rows"):
        return hn.solve(problem, tol=0, max_rounds=1, seconds=2)


def test_what_no_path_has_met_is_allowed_for():
    """A reaction that no sampled path meets: the half-width allows for the u0 it might take."""
    u = solve_root(lambda t, x, u: -1e4 * jnp.maximum(jnp.abs(x[1]) - 6.0, 0.0) * u)
    sure = u.certify(0.5, np.array([0.3, 0.0]), samples=512)
    deviation = 0.5  # of u0 at the end of a path, about
    assert sure.halfwidth > 3 / 256 * 0.5 * deviation


def test_a_reaction_that_is_infinite_at_the_start_of_time():
    """f_u = -0.3 t^{-1/2}: the weight is not evaluated where it would be zero."""
    u = solve_root(lambda t, x, u: -0.3 * u / jnp.sqrt(t))
    sure = u.certify(0.5, np.array([0.3, 0.0]), samples=1024)
    # The standard deviation of the path is one.
    mean = 0.3 * (2 * norm.cdf(0.3) - 1) + 2 * norm.pdf(0.3)
    truth = np.exp(-0.6 * np.sqrt(0.5)) * mean
    assert abs(sure.value - truth) < 1.5 * sure.halfwidth or not sure.certified
    assert sure.value > 0.5 * truth
