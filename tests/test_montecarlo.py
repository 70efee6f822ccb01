"""The direct estimators: intervals hold the truth, error ~ samples^{-1/2}, truncation is stated."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import heatnets as hn
from heatnets.certify import montecarlo


def flat(problem, runs, x=None):
    """One point, many times: each row of a call has draws of its own."""
    x = np.full(problem.dim, 0.4) if x is None else x
    return np.full(runs, problem.horizon), np.tile(x, (runs, 1))


def coverage(estimate, truth):
    return np.mean((estimate.low <= truth) & (truth <= estimate.high))


@pytest.mark.parametrize(
    ("name", "dim", "samples"),
    [
        ("importance", 1, 256),
        ("importance", 10, 256),
        ("transformed", 1, 1024),
        ("transformed", 2, 8192),
    ],
)
def test_intervals_hold_the_truth(name, dim, samples):
    problem = hn.problems.get("oscillating", dim=dim, wavenumber=1.0)
    t, x = flat(problem, 600)
    estimate = getattr(montecarlo, name)(problem, t, x, samples=samples)
    truth = hn.exact_values(problem, t[0], x[0])
    held = coverage(estimate, truth)
    assert 0.92 <= held <= 0.98  # 0.95 ± 3.4 standard deviations of 600 runs
    spread = np.std(estimate.value - truth) / np.mean(estimate.standard_error)
    assert 0.9 < spread < 1.1
    assert np.mean(estimate.truncation_bias) < 0.1 * np.mean(estimate.standard_error)


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "samples"), [(3, 1024), (1000, 64)])
def test_intervals_hold_the_truth_in_high_dimension(dim, samples):
    problem = hn.problems.get("oscillating", dim=dim, wavenumber=1.0)
    t, x = flat(problem, 1000)
    held = coverage(
        montecarlo.importance(problem, t, x, samples=samples), hn.exact_values(problem, t[0], x[0])
    )
    assert 0.93 <= held <= 0.97


@pytest.mark.parametrize("name", ["importance", "transformed"])
def test_error_falls_like_one_over_the_square_root(name):
    problem = hn.problems.get("forced-sine")
    t, x = flat(problem, 200)
    truth = hn.exact_values(problem, t[0], x[0])
    counts = np.array([64, 256, 1024, 4096])
    errors = [
        np.sqrt(
            np.mean((getattr(montecarlo, name)(problem, t, x, samples=int(n)).value - truth) ** 2)
        )
        for n in counts
    ]
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert abs(slope + 0.5) < 0.07


def test_transformed_in_three_dimensions_states_its_bias():
    """`truncation_bias` is exactly what the cut loses: shortest_lag · t for F = 1, where u = t."""
    problem = hn.Problem(dim=3, horizon=1.0, initial=lambda x: 0.0, source=lambda t, x: 1.0)
    with pytest.warns(hn.HeatnetsWarning, match="intervals are too small"):
        estimate = montecarlo.transformed(
            problem, 1.0, np.zeros(3), samples=400_000, shortest_lag=0.05, half_width=9.0
        )
    np.testing.assert_allclose(estimate.truncation_bias, 0.05, rtol=1e-12)
    assert abs(estimate.value + estimate.truncation_bias - 1.0) < 4 * estimate.standard_error
    assert abs(estimate.value - 1.0) > 1e-3


def test_a_constant_has_no_error():
    problem = hn.Problem(dim=4, horizon=1.0, initial=lambda x: 3.7)
    estimate = montecarlo.importance(problem, 0.5, np.ones(4), samples=100)
    assert estimate.value == 3.7
    assert estimate.standard_error == 0
    assert estimate.low == estimate.high == 3.7


def test_nearly_constant_samples_do_not_cancel():
    """The standard error is right for F = 1 + 1e-8 sin x, whose spread is 1e-8 of its value."""
    problem = hn.Problem(
        dim=1, horizon=1.0, initial=lambda x: 0.0, source=lambda t, x: 1 + 1e-8 * jnp.sin(x[0])
    )
    t, x = flat(problem, 300)
    estimate = montecarlo.importance(problem, t, x, samples=256)
    truth = 1 + 1e-8 * np.sin(0.4) * (1 - np.exp(-1.0))
    np.testing.assert_allclose(
        np.std(estimate.value - 1.0), np.mean(estimate.standard_error), rtol=0.15
    )
    assert 0.9 < coverage(estimate, truth) < 0.99


def test_mild_rows_and_the_judge_do_not_share_draws():
    from heatnets._core.execution import make_context

    problem = hn.problems.get("oscillating", dim=2)
    t, x = hn.random_points(problem, 5)
    with jax.enable_x64(True):
        rows = montecarlo.mild_samples(problem.canonical, (t, x), 64, 0, make_context())
    assert not np.any(rows.value == montecarlo.importance(problem, t, x, samples=64, seed=0).value)


def test_shapes_seeds_and_streaming():
    problem = hn.problems.get("oscillating", dim=3)
    t, x = hn.random_points(problem, 20)
    many = montecarlo.importance(problem, t, x, samples=100)
    assert many.value.shape == many.low.shape == (20,)
    assert montecarlo.importance(problem, t[0], x[0], samples=100).value.shape == ()
    streamed = montecarlo.importance(problem, t, x, samples=100, memory=2**20)
    np.testing.assert_allclose(
        streamed.value, many.value, rtol=1e-12
    )  # tiles do not change the draws
    assert not np.any(montecarlo.importance(problem, t, x, samples=100, seed=1).value == many.value)


def test_linear_in_the_data():
    def estimate(initial, source):
        problem = hn.Problem(dim=2, horizon=1.0, initial=initial, source=source)
        return montecarlo.importance(problem, 0.7, [0.1, 0.2], samples=64).value

    def f(x):
        return jnp.sum(jnp.cos(x))

    def g(t, x):
        return t * x[0] * x[1]

    both = estimate(lambda x: 2 * f(x), lambda t, x: -3 * g(t, x))
    apart = 2 * estimate(f, lambda t, x: 0.0) - 3 * estimate(lambda x: 0.0, g)
    np.testing.assert_allclose(both, apart, rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 1}, "`samples` must be a whole number >= 2"),
        ({"confidence": 1.0}, "`confidence` must be below 1"),
        ({"confidence": 0.0}, "`confidence` must be one finite number > 0"),
        ({"seed": -1}, "`seed` must be a whole number >= 0"),
        ({"half_width": -1.0}, "`half_width` must be"),
        ({"shortest_lag": 1.5}, "`shortest_lag` must be below 1"),
        ({"t": 0.0}, r"`t` must lie in \(0, 0.5\]"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    problem = hn.problems.get("oscillating", dim=2)
    with pytest.raises(hn.InputError, match=message):
        montecarlo.transformed(problem, **{"t": 0.3, "x": [0.0, 0.0], **change})


def test_transformed_refuses_high_dimensions_and_paths_that_blow_up_are_named():
    with pytest.raises(hn.InputError, match="Use montecarlo.importance"):
        montecarlo.transformed(hn.problems.get("oscillating", dim=6), 0.5, np.zeros(6))
    with pytest.raises(hn.InputError, match="`problem` must be a hn.Problem"):
        montecarlo.importance("heat", 0.5, np.zeros(6))
    spike = hn.Problem(dim=1, horizon=1.0, initial=lambda x: jnp.where(x[0] > 8.0, jnp.nan, 1.0))
    with pytest.raises(hn.NumericalError, match=r"from t = 1, x = \[7.5\] are not finite"):
        montecarlo.importance(spike, 1.0, [7.5], samples=1000)
