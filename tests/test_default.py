"""`hn.solve` with its defaults: how it grows, its error estimate, and data that are not smooth."""

from __future__ import annotations

import itertools
import re
import time
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import heatnets as hn
from heatnets._core import statistics
from heatnets._core.execution import make_context
from heatnets._core.operations import count_operations
from heatnets.certify import montecarlo, quasi_monte_carlo
from heatnets.features.equation import build_equation, equation_values_only
from heatnets.fit.entry_cache import EntryCache
from heatnets.pde import smoothness
from heatnets.solvers import adaptive, stopping
from heatnets.solvers.adaptive_mild import MildGrowth
from heatnets.solvers.candidate_fits import DEGREES, Dictionary
from heatnets.solvers.growth import Growth
from heatnets.solvers.options import make_options
from heatnets.solvers.run import Run
from heatnets.solvers.validation import BlockSizes, ValidationSet

pytestmark = pytest.mark.usefixtures("x64")


def test_the_estimated_error_is_the_error():
    """The estimated error of one round's fit is between half and three times the true error.

    One round is far from converged, so that there is an error to estimate. The estimate is meant to
    be too large by one standard error.
    """
    for name, dim, degree in (
        ("nonseparable", 10, 0),
        ("radial-gaussian", 30, 1),
        ("neighbour-products", 20, 0),
    ):
        problem = hn.problems.get(name, dim=dim)
        u = hn.solve(problem, tol=0, max_rounds=1, time_degree=degree)
        assert len(u.stats["history"]) == 1
        error = hn.measure(u, 1000).l2
        assert error > 1e-5
        assert repr(u).endswith(f"estimated_error={u.stats['estimated_error']:.2g})")
        assert 0.5 < u.stats["estimated_error"] / error < 3


@pytest.mark.parametrize(
    ("seconds", "operations", "pairs", "of_nets"),
    [
        (60, 10**3, 512, 4096),
        (10, 10**5, 17, 64),
        (60, 8000, 512, 512),
        (1e-3, 10**5, 16, 64),
        (1e6, 10**5, 512, 8192),
    ],
)
def test_samples_of_the_first_round_fit_into_seconds(
    seconds, operations, pairs, of_nets, monkeypatch
):
    monkeypatch.setattr(montecarlo, "count_pair_operations", lambda *given: operations)
    monkeypatch.setattr(quasi_monte_carlo, "count_point_operations", lambda *given: operations)
    mean = hn.problems.get("kinked-ridge", dim=5)
    with_source = hn.Problem(5, 0.5, initial=mean.initial, source=lambda t, x: jnp.abs(x[0]))
    for problem, of_source in ((with_source, pairs), (mean, 0)):
        run = Run(problem.canonical, make_options(problem, seconds=seconds), make_context())
        growth = MildGrowth(run)
        assert growth.state.pairs == of_nets
        assert growth.state.monte_carlo_pairs == of_source


def test_operations_of_a_pair_grow_with_the_source():
    """A sum of 1000 sines in the source costs two samples at least 2000 operations more."""
    shifts = np.linspace(0, 1, 1000)
    count = [
        montecarlo.count_pair_operations(
            hn.Problem(
                dim=2, horizon=1.0, initial=lambda x: x[0], diffusion=0.5, source=source
            ).canonical
        )
        for source in (
            lambda t, x: jnp.abs(x[0]),
            lambda t, x: jnp.abs(x[0]) + jnp.sum(jnp.sin(x[1] + jnp.asarray(shifts))),
        )
    ]
    assert count[1] - count[0] > 2000


def test_operations_of_a_point_of_a_net():
    """Coordinates are turned by a matrix; a sort takes d log d comparisons."""
    count = [
        quasi_monte_carlo.count_point_operations(problem, equation_values_only(problem))
        for problem in (
            hn.Problem(dim=64, horizon=1.0, initial=u0).canonical
            for u0 in (lambda x: jnp.max(x), lambda x: jnp.sort(x)[-1])
        )
    ]
    assert count[0] >= 64**2 / 4
    assert count[1] - count[0] > 64 * np.log2(64)


@pytest.mark.parametrize("kinked", [False, True])
def test_rounds_end_by_number_and_not_by_the_clock(kinked):
    problem = hn.problems.get("kinked-ridge" if kinked else "nonseparable", dim=5)
    u = hn.solve(problem, seconds=600, tol=0, max_rounds=2, enforce="mild" if kinked else None)
    assert len(u.stats["history"]) == 2
    assert u.stats["stopped"] == "`max_rounds` = 2 rounds were made"
    with pytest.raises(hn.InputError, match="`max_rounds` ends a growth"):
        hn.solve(problem, features=(8, 8), max_rounds=2)


@pytest.mark.parametrize("kinked", [False, True])
def test_a_round_that_the_clock_ends_is_given_up(kinked, monkeypatch):
    """The result is then that of the rounds before, to the last bit, and a warning says so."""
    problem = hn.problems.get("kinked-ridge" if kinked else "radial-gaussian", dim=3)
    options = {"tol": 0, "seconds": 1e-3, "enforce": "mild" if kinked else None}
    whole = hn.solve(problem, max_rounds=1, **options)
    monkeypatch.setattr(Growth, "time_limit", lambda self, needed: "")
    with pytest.warns(hn.HeatnetsWarning, match="`seconds` = 0.001 ended round 1.* Raise the lim"):
        ended = hn.solve(problem, **options)
    assert ended.stats["stopped"] == "`seconds` = 0.001 ended round 1, which is given up"
    assert len(ended.stats["history"]) == 1
    for one, other in zip(whole.weights, ended.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_slow_machine_gives_the_same_bits(monkeypatch):
    problem = hn.problems.get("nonseparable", dim=4)
    options = {"tol": 1e-2, "seconds": 1e6}
    usual, clock = hn.solve(problem, **options), time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: 1e3 * clock())
    slow = hn.solve(problem, **options)
    assert slow.stats["history"][-1].seconds > 100 * usual.stats["history"][-1].seconds
    for one, other in zip(usual.weights, slow.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def growth(error=1e-3, stalled=0, rounds=1, tol=None, met=False, max_rounds=None, floor=0.0):
    """A growth as stopping rules see it."""
    return SimpleNamespace(
        best=SimpleNamespace(error=error),
        state=SimpleNamespace(stalled=stalled, history=[None] * rounds),
        run=SimpleNamespace(options=SimpleNamespace(tol=tol, max_rounds=max_rounds)),
        meets_tolerance=lambda tol: met,
        error_floor=floor,
    )


RULES = [
    (growth(), ""),
    (growth(error=1e-12), "the estimated error is at rounding"),
    (growth(error=1e-9, floor=1e-8), "the estimated error is at rounding"),
    (growth(stalled=2), ""),
    (growth(stalled=3), "three rounds brought no gain"),
    (growth(tol=1e-2, met=True), "the tolerance is met"),
    (growth(tol=1e-2), ""),
    (growth(met=True), ""),  # no tolerance was asked for
    (growth(rounds=2, max_rounds=2), "`max_rounds` = 2 rounds were made"),
    (growth(rounds=3, max_rounds=2), "`max_rounds` = 2 rounds were made"),  # from a checkpoint
    (growth(rounds=2, max_rounds=3), ""),
    (growth(error=np.nan, tol=1e-2, stalled=3, met=True), "three rounds brought no gain"),
]


@pytest.mark.parametrize(("state", "why"), RULES)
def test_stopping_rules(state, why):
    assert stopping.first_reason(stopping.EQUATION, state) == why
    # Mild rows are noisy: they end by the tolerance, by the number of rounds or by the limits.
    mild = "" if "gain" in why or "rounding" in why else why
    if np.isfinite(state.best.error):
        assert stopping.first_reason(stopping.MILD, state) == mild


def test_judges_are_unbiased():
    """The judges estimate the mean squared error of a bad fit without bias.

    The weights are random, far from any solution, and the error is known from the exact solution.
    """
    problem = hn.problems.get("oscillating", dim=3)
    data, _ = build_equation(problem.canonical, 0)
    squares = []
    truth = []
    for seed in range(12):
        run = Run(problem.canonical, make_options(problem, seed=seed), make_context())
        judges = ValidationSet(run, data, "test", (64, 7), row_chunk=256)
        dictionary = Dictionary(run, data, BlockSizes())
        dictionary.grow(["signs"], "test")
        judges.cache.add_features(dictionary.rows.blocks, "test")
        # Weights far from any solution, but Σ w = 1 over the initial features: ũ(0, ·) = u0.
        rng = np.random.default_rng(seed)
        w = 0.1 * rng.standard_normal(len(dictionary.kind))
        first = dictionary.kind == 0
        w[first] += (1 - w[first].sum()) / first.sum()
        n = judges.paths.s.size
        residual = judges.cache.forcing[:n] - judges.cache.residuals[:n] @ w
        square = statistics.mean_square(
            judges.paths.weight * residual.reshape(judges.paths.weight.shape)
        )
        squares.append((square.mean * square.unit**2, square.noise * square.unit**2))
        exact = hn.exact_values(problem, judges.paths.t, judges.paths.x)
        truth.append(np.mean((exact - judges.cache.values[n:] @ w) ** 2))
    (mean, noise), truth = np.array(squares).T, np.array(truth)
    # noise also counts the spread of the points, which the truth at the same points does not have
    pulls = (mean - truth) / noise
    assert np.all(np.abs(pulls) < 4)
    assert abs(np.mean(mean / truth) - 1) < 0.2


def test_mean_square_is_debiased_and_knows_its_noise():
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(400):
        mean = rng.standard_normal(50) * 0.1
        square = statistics.mean_square(
            (mean[:, None] + rng.standard_normal((50, 6))) * 1e-200
        )  # squares would underflow
        hits.append(
            (square.mean * (square.unit / 1e-200) ** 2, square.noise * (square.unit / 1e-200) ** 2)
        )
    means, noises = np.array(hits).T
    assert (
        abs(means.mean() - 0.01) < 4 * means.std() / 20
    )  # with the bias 1/6 of a plain square this would fail by far
    assert 0.8 < noises.mean() / means.std() < 1.25


def test_growth_keeps_what_it_has():
    problem = hn.problems.get("moving-ridge", dim=4)
    data, _ = build_equation(problem.canonical, 0)
    run = Run(problem.canonical, make_options(problem), make_context())
    grown = Dictionary(run, data, BlockSizes())
    names = [d.name for d in grown.designs]
    grown.grow(names, "round 0")
    before = grown.rows.values.copy(), grown.rows.residuals.copy(), grown.rows.points[1].copy()
    grown.grow(names[:2], "round 1")
    n, m = before[0].shape
    np.testing.assert_array_equal(grown.rows.values[:n, :m], before[0])
    np.testing.assert_array_equal(grown.rows.residuals[:n, :m], before[1])
    np.testing.assert_array_equal(grown.rows.points[1][:n], before[2])
    assert grown.sizes == {"orthogonal": 32, "signs": 32, "hadamard": 16}
    # What was added is what would have been computed at once.
    fresh = EntryCache(problem.canonical, data, make_context(), grown.rows.points, 256)
    fresh.add_features(grown.rows.blocks, "at once")
    np.testing.assert_allclose(grown.rows.residuals, fresh.residuals, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(grown.rows.values, fresh.values, rtol=1e-13)


def test_an_estimate_below_a_tolerance_that_is_not_met_is_explained():
    """Noise of the check: the estimate is below the tolerance, its upper bound is above."""
    problem = hn.problems.get("radial-gaussian", dim=10)
    error = hn.solve(problem, tol=0, max_rounds=1).stats["estimated_error"]
    with pytest.warns(
        hn.HeatnetsWarning, match=r"not met.*, but its upper bound \(99 %\) is above"
    ):
        u = hn.solve(problem, tol=1.0001 * error, max_rounds=1)
    assert u.stats["estimated_error"] == error
    assert u.stats["tolerance_met"] is False
    with pytest.warns(hn.HeatnetsWarning, match=r"not met: the error is estimated at \S+\. Growth"):
        hn.solve(problem, tol=0.5 * error, max_rounds=1)


def test_history_tells_the_rounds():
    lines = []
    problem = hn.problems.get("radial-gaussian", dim=10)
    u = hn.solve(
        problem, tol=0, max_rounds=3, progress=lambda phase, done, total: lines.append(phase)
    )
    history = u.stats["history"]
    assert len(history) >= 2
    for earlier, later in itertools.pairwise(history):
        assert sum(later.features) > sum(earlier.features)
        assert later.seconds > earlier.seconds
    assert sum(line.startswith("round") and "estimated error" in line for line in lines) == len(
        history
    )
    assert u.stats["time_degree"] in DEGREES
    assert u.stats["features"] in [h.features for h in history]
    assert "orthogonal" in u.stats["design"]


@pytest.mark.parametrize("size", [1e-150, 1e150])
def test_the_scale_of_the_data_does_not_matter(size):
    one, scaled = (
        hn.Problem(dim=3, horizon=0.5, initial=lambda x, c=c: c * jnp.exp(-x @ x / 3))
        for c in (1.0, size)
    )
    u, v = (hn.solve(p, tol=0, max_rounds=1) for p in (one, scaled))
    t, x = hn.random_points(one, 50)
    np.testing.assert_allclose(v(t, x) / size, u(t, x), rtol=1e-6)
    np.testing.assert_allclose(v.stats["estimated_error"], u.stats["estimated_error"], rtol=0.1)


@pytest.mark.parametrize("unit", [1e-6, 1e5])
def test_the_unit_of_time_does_not_matter(unit):
    """T and 1/D in other units: the same mathematics, also for weights that are cubic in time."""

    def bell(x):
        return jnp.exp(-x @ x / 2)

    one, other = (
        hn.Problem(dim=2, horizon=0.5 * c, diffusion=1 / c, initial=bell) for c in (1.0, unit)
    )
    u, v = (hn.solve(p, tol=0, max_rounds=1, time_degree=3) for p in (one, other))
    t, x = hn.random_points(one, 50)
    np.testing.assert_allclose(v(t * unit, x), u(t, x), rtol=1e-6)
    assert u.stats["rank"] == v.stats["rank"]
    np.testing.assert_allclose(v.gradient(t * unit, x), u.gradient(t, x), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(unit * v.residual(t * unit, x), u.residual(t, x), atol=1e-5)


def test_the_same_seed_gives_the_same_answer_and_another_seed_another():
    problem = hn.problems.get("radial-gaussian", dim=10)
    first, again, other = (
        hn.solve(problem, tol=0, max_rounds=1, seed=seed)(0.3, np.full(10, 0.2))
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert abs(first - other) < 1e-2 * abs(first)


def test_at_a_point():
    """At a Point, rows lie on the paths that leave it, and the error is that at the horizon."""
    x = np.full(6, 0.7)
    named = hn.problems.get("radial-gaussian", dim=6)
    problem = hn.Problem(
        dim=6, horizon=0.5, initial=named.initial, region=hn.Point(x), exact=named.exact
    )
    u = hn.solve(problem, tol=0, max_rounds=4)
    exact = hn.exact_values(problem, 0.5, x)
    assert abs(u(0.5, x) - exact) < 1e-5 * abs(exact)
    assert u.stats["estimated_error"] < 1e-4


def test_options_of_the_growth():
    problem = hn.problems.get("oscillating", dim=3)
    u = hn.solve(
        problem,
        directions="signs",
        antithetic=False,
        time_degree=1,
        seconds=0.1,
        collocation="uniform",
        train_region=hn.Box(-3, 3),
    )
    s = u.stats
    assert (s["design"], s["antithetic"], s["time_degree"], s["collocation"]) == (
        "signs",
        False,
        1,
        "uniform",
    )
    assert u.weights[0].shape == (16, 2)


def test_memory_too_small_for_a_first_round_is_said_before_it():
    with pytest.raises(hn.ResourceError, match="the first round needs .* Raise it: memory="):
        hn.solve(hn.problems.get("oscillating", dim=3), memory=2**20)


def test_the_explicit_solve_with_pairs_and_time_degree():
    problem = hn.problems.get("nonseparable", dim=4)
    options = {
        "features": (64, 64),
        "rows": (1500, 0),
        "directions": "orthogonal",
        "collocation": "paths",
    }
    plain, better = (
        hn.measure(hn.solve(problem, **options, antithetic=a, time_degree=k), 500).l2
        for a, k in ((False, 0), (True, 2))
    )
    assert better < 0.2 * plain


SMOOTH = {
    "linear": lambda x: x[0],
    "constant": lambda x: 2.0,
    "fast sine": lambda x: jnp.sum(jnp.sin(40 * x)),
    "softplus": lambda x: 0.01 * jax.nn.softplus(jnp.sum(x) / 0.01),
    "gaussian": lambda x: jnp.exp(-x @ x),
    "steep": lambda x: jnp.tanh(40 * x[0]),
    "joined, and smooth": lambda x: (
        jax.scipy.special.logsumexp(20 * x) + jnp.where(x[0] > -50.0, jnp.exp(-x @ x), 0.0)
    ),
}
ROUGH = {
    "payoff": lambda x: jnp.maximum(jnp.mean(x) - 0.1, 0.0),
    "sum of |x_i|": lambda x: jnp.sum(jnp.abs(x)),
    "largest": jnp.max,
    "step": lambda x: jnp.where(x[0] > 0.2, 1.0, 0.0),
    # A fit can hide the residual of these in slivers between break points, where no row and no
    # sample falls.
    "jump of curvature": lambda x: jnp.maximum(x[0], 0.0) ** 2,
    "jump of the third derivative": lambda x: jnp.maximum(jnp.mean(x), 0.0) ** 3,
    "relu squared": lambda x: jax.nn.relu(x[0]) ** 2,
}


@pytest.mark.parametrize("name", [*SMOOTH, *ROUGH])
def test_kinks_and_jumps_are_found_and_nothing_else(name):
    f = {**SMOOTH, **ROUGH}[name]
    problem = hn.Problem(dim=4, horizon=0.5, initial=f)
    found = smoothness.find_kinks(problem.canonical, 0, make_context())
    if name in SMOOTH:
        assert found == {}
    else:
        assert found["initial"] > 0.05


def test_kinks_of_a_source_in_time_are_found():
    problem = hn.Problem(
        dim=2,
        horizon=1.0,
        initial=lambda x: x[0],
        source=lambda t, x: jnp.where(t > 0.5, x[0], 0.0),
    )
    assert set(smoothness.find_kinks(problem.canonical, 0, make_context())) == {"source"}


@pytest.mark.parametrize("dim", [1, 5])
def test_a_kinked_payoff_is_solved_and_said(dim):
    problem = hn.problems.get("kinked-ridge", dim=dim)

    def hidden(x):
        """max(a·x, 0) by sorting, which does not name where the kink is."""
        return jnp.sort(jnp.stack([0.0, jnp.sum(x) / np.sqrt(dim)]))[1]

    problem = hn.Problem(dim, problem.horizon, initial=hidden, exact=problem.exact)
    with pytest.warns(
        hn.HeatnetsWarning,
        match="`initial` has kinks or jumps .* trained on mild rows .* since `sort` hides",
    ):
        u = hn.solve(problem, tol=0, max_rounds=1)
    t, x = hn.random_points(problem, 1000)
    exact = hn.exact_values(problem, t, x)
    error = hn.relative_errors(u(t, x), exact).l2
    assert error < 2e-5  # by plain samples: 1e-3
    assert error < u.stats["estimated_error"] < 2e-5  # the noise of its own samples
    assert (
        hn.relative_errors(np.array(jax.vmap(problem.initial)(x)), exact).l2 > 0.2
    )  # what equation rows would return
    assert u.stats["enforce"] == "mild"
    np.testing.assert_allclose(u(0.0, x), jax.vmap(problem.initial)(x), atol=1e-12)  # Σ w = 1
    assert "estimated_error" in repr(u)


def test_kinks_are_said_where_the_user_insists():
    problem = hn.Problem(1, 0.5, initial=lambda x: jnp.sort(jnp.stack([0.0, x[0]]))[1])
    for options in (
        {"features": (20, 0), "rows": (200, 0)},
        {"enforce": "equation", "seconds": 0.1},
    ):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            u = hn.solve(problem, **options)
        assert any("kinks or jumps" in str(w.message) for w in said)
        assert any("kinks or jumps" in w for w in u.stats["warnings"])


def test_what_paths_hardly_ever_see_is_said():
    """Data that practically no path from the region sees are reported as "not solved".

    An example is a payoff far out of the money: almost every path ends where it is zero.
    """
    for strike, message in (
        (1.8, "not solved: .* the same \\(0\\) at all but"),
        (9.0, "not solved: every sample is the same"),
    ):
        problem = hn.Problem(
            dim=2,
            horizon=0.1,
            initial=lambda x, k=strike: jnp.exp(-1 / jnp.maximum(x[0] - k, 1e-9)),
        )
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            hn.solve(problem, tol=0, max_rounds=1)
        assert any(re.search(message, str(w.message)) for w in said)


def test_a_kinked_source():
    """u_t = u_xx + |x| with u0 = 0 in one dimension, against quadrature.

    The solution is u(t, x) = ∫_0^t E|x + √(2s) N| ds.
    """
    problem = hn.Problem(
        dim=1, horizon=0.5, initial=lambda x: 0.0, source=lambda t, x: jnp.abs(x[0])
    )
    with pytest.warns(hn.HeatnetsWarning, match="`source` has kinks"):
        u = hn.solve(problem, tol=0, max_rounds=2)
    from scipy.stats import norm

    s, x = 0.5 * (np.arange(4000) + 0.5) / 4000, np.array([[0.0], [0.4], [-0.9]])
    width = np.sqrt(2 * s)
    wanted = 0.5 * np.mean(
        2 * width * norm.pdf(x / width) + x * (1 - 2 * norm.cdf(-x / width)), axis=1
    )
    # The estimate averages over the region, these are three points of it: a factor of three apart
    # at most.
    assert hn.relative_errors(u(0.5, x), wanted).l2 < 3 * u.stats["estimated_error"]
    assert u.stats["estimated_error"] < 2e-2


@pytest.mark.usefixtures("x64")
def test_a_fit_is_not_solved_again_with_the_same_columns():
    problem = hn.problems.get("nonseparable", dim=5)
    run = Run(problem.canonical, make_options(problem), make_context())
    dictionary = Dictionary(run, build_equation(run.problem, 0)[0], BlockSizes())
    dictionary.grow([design.name for design in dictionary.designs], "test")
    columns = np.arange(len(dictionary.kind))
    fit = dictionary.solve(columns, 1)
    again = dictionary.solve(columns, 1, fit.solved.rcond)
    np.testing.assert_array_equal(again.weights, fit.weights)
    assert dictionary.refit(fit, columns) is fit
    assert again.score == fit.score
    assert dictionary.refit(fit, columns[::2]).score != fit.score


class Errors:
    """A dictionary whose fits have given errors.

    `table[designs] = (error at half the size, error at the size)`.
    """

    def __init__(self, table, size=64):
        self.designs = [SimpleNamespace(name=n) for n in ("orthogonal", "hadamard", "signs")]
        self.sizes = {d.name: size for d in self.designs}
        self.design = np.repeat(np.arange(3), size)
        self.rank = np.tile(np.arange(size), 3)
        self.table = table

    def refit(self, fit, columns):
        made = tuple(sorted(set(self.design[columns].tolist())))
        whole = len(columns) == len(made) * self.sizes["signs"]
        return SimpleNamespace(score=self.table.get(made, (1.0, 1.0))[whole])


ALL = ["orthogonal", "hadamard", "signs"]


@pytest.mark.parametrize(
    ("table", "size", "kept"),
    [
        # The first design alone is as good at both sizes and converges: it reaches further with the
        # same number of features.
        ({(0, 1, 2): (1e-2, 1e-4), (0,): (1e-2, 1e-4)}, 64, ["orthogonal"]),
        ({(0, 1, 2): (1e-2, 1e-4), (0, 1): (1e-2, 1e-4)}, 64, ["orthogonal", "hadamard"]),
        ({(0, 1, 2): (1e-2, 1e-4), (0, 2): (1e-2, 1e-4)}, 64, ["orthogonal", "signs"]),
        # As good at the last size only, by luck perhaps.
        ({(0, 1, 2): (1e-2, 1e-4), (0,): (1.0, 1e-4)}, 64, ALL),
        # As good, but not converging: nothing is promised.
        ({(0, 1, 2): (1e-2, 0.9e-2), (0,): (1e-2, 0.9e-2)}, 64, ALL),
        # Converging slowly, by a factor of 1.9 from size to size.
        ({(0, 1, 2): (1e-2, 5.3e-3), (0,): (1e-2, 5.3e-3)}, 64, ALL),
        # Converging, but two designs of three promise less than half the error.
        ({(0, 1, 2): (1e-2, 4.5e-3), (0, 1): (1e-2, 4.5e-3)}, 64, ALL),
        # Clearly behind.
        ({(0, 1, 2): (1e-2, 1e-4), (0,): (2e-2, 2e-4)}, 64, ALL),
        # Too small to tell.
        ({(0, 1, 2): (1e-2, 1e-4), (0,): (1e-2, 1e-4)}, 16, ALL),
        # The others without the first, however good: it is never dropped, as only it is dense.
        ({(0, 1, 2): (1e-2, 1e-4), (1,): (1e-8, 1e-9), (1, 2): (1e-8, 1e-9)}, 64, ALL),
        # An estimate of zero says nothing about rates.
        ({(0, 1, 2): (1e-2, 0.0), (0,): (1e-2, 0.0)}, 64, ALL),
    ],
)
def test_a_design_is_dropped_only_where_the_others_are_as_good_and_converge(table, size, kept):
    assert adaptive._choose_designs(Errors(table, size), None, ALL) == kept


@pytest.mark.parametrize(
    ("operations", "blocks"),
    [
        (1e5, BlockSizes()),
        (None, adaptive._SMALL_BLOCKS),  # as counted: d² for each entry
        (3e6, adaptive._SMALLEST_BLOCKS),
    ],
)
def test_many_operations_start_small(operations, blocks, monkeypatch):
    problem = hn.problems.get("product-of-cosines", dim=100, closed_form=False)
    run = Run(problem.canonical, make_options(problem), make_context())
    if operations is not None:
        monkeypatch.setattr(adaptive, "_operations_per_entry", lambda run, data: operations)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        sizes = adaptive._choose_block_sizes(run, build_equation(problem.canonical, 0)[0])
    assert sizes == blocks
    is_slow = blocks == adaptive._SMALLEST_BLOCKS
    assert any("closed form" in text for text in run.log.messages) == is_slow


def test_operations_are_counted_as_often_as_they_are_made():
    """n additions per step of a loop, a product of matrices, the larger of two branches."""
    x, A = np.ones(7), np.ones((5, 7))

    def loop(x):
        return jax.lax.scan(lambda s, _: (s + x, None), x, length=11)[0]

    def branches(x):
        return jax.lax.cond(x[0] > 0, lambda y: y + y + y, lambda y: y + y, x)

    assert count_operations(loop, x) == 11 * 7
    assert count_operations(lambda x: A @ x, x) == 2 * 5 * 7
    assert count_operations(lambda x: x + A.T @ (A @ np.ones(7)), x) == 7  # constants are free
    assert 14 <= count_operations(branches, x) <= 17


class Sizes:
    """A dictionary as `_choose_designs` sees it: three designs of one size."""

    def __init__(self, size):
        self.designs = [SimpleNamespace(name=name) for name in "abc"]
        self.sizes = dict.fromkeys("abc", size)


@pytest.mark.parametrize(
    ("errors", "size", "kept"),
    [
        (
            {"abc": (0.1, 0.01), "ab": (0.1, 0.01), "ac": (1, 1), "a": (1, 1)},
            64,
            "ab",
        ),  # c adds nothing, and the others converge
        (
            {"abc": (0.1, 0.01), "ab": (0.1, 0.01), "ac": (0.1, 0.01), "a": (0.1, 0.01)},
            64,
            "a",
        ),  # the dense design alone
        (
            {"abc": (0.1, 0.01), "ab": (0.1, 0.01), "ac": (1, 1), "a": (1, 1)},
            16,
            "abc",
        ),  # too small to tell
        (
            {"abc": (0.1, 0.007), "ab": (0.1, 0.01), "ac": (1, 1), "a": (1, 1)},
            64,
            "abc",
        ),  # all together are better
        (
            {"abc": (0.1, 0.08), "ab": (0.1, 0.08), "ac": (1, 1), "a": (1, 1)},
            64,
            "abc",
        ),  # nothing converges
        (
            {"abc": (0.1, 0.01), "ab": (1, 0.01), "ac": (1, 1), "a": (1, 1)},
            64,
            "abc",
        ),  # as good at one size only
        (
            {"abc": (0.1, 0.0), "ab": (0.1, 0.01), "ac": (1, 1), "a": (1, 1)},
            64,
            "abc",
        ),  # no error to compare
    ],
)
def test_a_design_is_dropped_only_where_the_others_do_without_it(monkeypatch, errors, size, kept):
    def error(dictionary, numbers, m, fit):
        return float(errors["".join("abc"[n] for n in numbers)][0 if m < size else 1])

    monkeypatch.setattr(adaptive, "_score", error)
    assert "".join(adaptive._choose_designs(Sizes(size), None, list("abc"))) == kept
