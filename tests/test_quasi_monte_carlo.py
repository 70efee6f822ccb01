"""Certificates by scrambled Sobol' nets, for kinks and steps that features do not integrate."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import heatnets as hn
from heatnets.certify.quasi_monte_carlo import NETS

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
