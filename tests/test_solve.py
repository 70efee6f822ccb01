"""Whole solves: accuracy that simpler ways miss, symmetries, both families, both kinds of rows.

Every wrong option is refused with a message.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from contextlib import contextmanager

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import heatnets as hn
from heatnets.features.equation import build_equation
from heatnets.io.problem_files import from_toml
from heatnets.pde import smoothness
from heatnets.problems.paper import TRAIN_REGION

ONE_DIM = {
    "features": (32, 64),
    "rows": (3000, 1000),
    "collocation": "grid",
    "train_region": TRAIN_REGION,
    "solver": "pinv",
    "initial_rows": "soft",
}


def errors_of_simpler_ways(problem, samples, points=100):
    """Relative L2 errors of u0 alone and of plain Monte Carlo with `samples` samples per point.

    Callers ask for as many samples as there are features.
    """
    t, x = hn.random_points(problem, points)
    exact = hn.exact_values(problem, t, x)
    with jax.enable_x64(True):
        frozen = np.asarray(jax.lax.map(problem.initial, jnp.asarray(x)))
    direct = hn.montecarlo.importance(problem, t, x, samples=samples).value
    return hn.relative_errors(frozen, exact).l2, hn.relative_errors(direct, exact).l2


WIDE = {"train_region": TRAIN_REGION}
ACCURACY = [
    # problem, parameters, settings, tolerance: ten times the worst of four seeds
    ("forced-sine", {}, ONE_DIM, 3e-9),
    ("oscillating", {"dim": 10}, {"features": (200, 300), "rows": (1500, 300), **WIDE}, 1e-13),
    ("oscillating", {"dim": 20}, {**WIDE, **hn.paper(200, 400, 1500, 300)}, 4e-7),
    ("product-of-sines", {"dim": 3}, {"features": (600, 0), "rows": (1500, 300)}, 6e-9),
    ("nonseparable", {"dim": 5}, {"features": (200, 400), "rows": (2000, 300), **WIDE}, 9e-4),
    (
        "oscillating",
        {"dim": 10, "closed_form": False},
        {"features": (200, 300), "rows": (1500, 300), **WIDE},
        1e-13,
    ),
]


@pytest.mark.parametrize(
    ("name", "parameters", "settings", "tolerance"),
    ACCURACY,
    ids=[f"{i}-{c[0]}" for i, c in enumerate(ACCURACY)],
)
def test_accuracy_that_simpler_ways_miss(name, parameters, settings, tolerance):
    problem = hn.problems.get(name, **parameters)
    u = hn.solve(problem, **settings)
    assert hn.measure(u, 1000).l2 < tolerance
    frozen, direct = errors_of_simpler_ways(problem, sum(settings["features"]))
    assert frozen > 10 * tolerance
    assert direct > 10 * tolerance
    t, x = hn.random_points(problem, 300, seed=1)
    slope = hn.relative_errors(u.gradient(t, x), hn.exact_gradient(problem, t, x)).l2
    assert slope < 10 * max(hn.measure(u, 1000).l2, 1e-14)


def test_kernel_family_on_the_one_dimensional_example():
    with pytest.warns(hn.HeatnetsWarning, match="cannot see a jump"):
        u = hn.solve(hn.problems.get("forced-sine"), family="gaussian", **ONE_DIM)
    assert (
        hn.measure(u).l2 < 2e-6
    )  # ten times the worst of 20 seeds (1.9e-7; the median is 2.5e-10)
    assert any("cannot see a jump" in w for w in u.stats["warnings"])


def source_only():
    """u = t sin x: u0 = 0 and the source of the 1-D example; source features must do the work."""
    return hn.Problem(
        dim=1,
        horizon=1.0,
        initial=lambda x: 0.0,
        source=lambda t, x: (1 + t) * jnp.sin(x[0]),
        region=hn.Box(-np.pi / 2, np.pi / 2),
        exact=lambda t, x: t * jnp.sin(x[0]),
    )


@pytest.mark.filterwarnings("ignore::heatnets.HeatnetsWarning")
def test_source_only_needs_importance_or_mild_rows():
    problem = source_only()
    assert hn.measure(hn.solve(problem, **ONE_DIM)).l2 < 1e-9
    kernels = {**ONE_DIM, "family": "gaussian", "collocation": "uniform"}
    blind = hn.solve(problem, **kernels)
    assert (
        hn.measure(blind).l2 > 0.25
    )  # equation rows cannot see the jumps that 64 kernels put into t
    seeing = hn.solve(problem, **kernels, enforce="mild", mild_samples=1024)
    assert hn.measure(seeing).l2 < 0.15  # mild rows can: what is left is the staircase of 64 steps,
    finer = hn.solve(
        problem, **{**kernels, "features": (32, 256)}, enforce="mild", mild_samples=1024
    )
    assert hn.measure(finer).l2 < 0.5 * hn.measure(seeing).l2  # and finer steps make it smaller


def test_mild_rows_converge_with_their_samples():
    problem = hn.problems.get("forced-sine")
    with pytest.warns(hn.HeatnetsWarning, match="not solved"):
        rough = hn.measure(hn.solve(problem, enforce="mild", mild_samples=16, **ONE_DIM)).l2
    fine = hn.measure(hn.solve(problem, enforce="mild", mild_samples=4096, **ONE_DIM)).l2
    assert fine < 0.2 * rough  # noise ratio 16; half an order of slack
    assert fine < 3e-3


@pytest.mark.parametrize("initial_rows", ["exact", "soft"])
@pytest.mark.parametrize("solver", ["svd", "pinv", "cholesky"])
def test_every_solver_with_both_kinds_of_initial_rows(solver, initial_rows):
    problem = hn.problems.get("oscillating", dim=3)
    ridge = 1e-7 if solver == "cholesky" else 0.0
    u = hn.solve(
        problem,
        features=(60, 100),
        rows=(800, 200),
        solver=solver,
        ridge=ridge,
        initial_rows=initial_rows,
        train_region=TRAIN_REGION,
    )
    tolerance = 5e-8 if ridge else 3e-14  # ten times the worst of two seeds
    assert hn.measure(u, 500).l2 < tolerance
    x = hn.random_points(problem, 50)[1]
    start = hn.relative_errors(u(0.0, x), hn.exact_values(problem, 0.0, x)).l2
    assert start < (1e-12 if initial_rows == "exact" else tolerance)


def test_every_option_is_defined_once():
    """The signature of `hn.solve` and the fields of `SolveOptions` are the same."""
    from heatnets.solvers.options import SolveOptions

    defaults = {name: p.default for name, p in inspect.signature(hn.solve).parameters.items()}
    for name in ("problem", "memory", "device", "devices", "progress"):
        del defaults[name]
    assert {f.name: f.default for f in dataclasses.fields(SolveOptions)} == defaults


@pytest.mark.usefixtures("x64")
def test_initial_weight_multiplies_the_squared_misfit():
    from heatnets._core.execution import make_context
    from heatnets.solvers import fixed_size
    from heatnets.solvers.options import make_options
    from heatnets.solvers.run import Run

    problem = hn.problems.get("oscillating", dim=3)
    soft = {"rows": (9, 7), "initial_rows": "soft", "initial_weight": 5.0}
    options = make_options(problem, features=(5, 4), **soft)
    run = Run(problem.canonical, options, make_context())
    blocks = run.draw((5, 4), options.directions[0])
    rows, values = fixed_size._initial_rows(run, build_equation(problem.canonical, 0)[0], blocks)
    x = problem.region.sample(run.rng("initial rows"), 7, 3)
    start = np.array([problem.initial(jnp.asarray(p)) for p in x])
    np.testing.assert_allclose(np.asarray(values) ** 2, 5.0 * start**2, rtol=1e-12)
    np.testing.assert_allclose(
        np.asarray(rows[:, :5]) ** 2, np.tile(5.0 * start[:, None] ** 2, 5), rtol=1e-12
    )
    np.testing.assert_array_equal(rows[:, 5:], 0.0)
    assert hn.paper(4000, 6000, 15000, 3000)["initial_weight"] == 5.0  # λ_IC = √5


SAME = {"features": (30, 40), "rows": (300, 60)}


def gaussian_bump(x):
    return jnp.exp(-x @ x / x.size) + jnp.sin(x[0])


def push(t, x):
    return jnp.cos(t) * jnp.exp(-jnp.sum((x - 0.2) ** 2) / x.size)


def values(problem, t, x):
    return hn.solve(problem, **SAME, solver="cholesky", ridge=1e-8)(t, x)


def test_translation():
    shift = np.array([0.3, -1.2, 0.7])
    here = hn.Problem(
        dim=3, horizon=0.5, initial=gaussian_bump, source=push, region=hn.Box(-1.0, 1.0)
    )
    there = hn.Problem(
        dim=3,
        horizon=0.5,
        initial=lambda x: gaussian_bump(x - shift),
        source=lambda t, x: push(t, x - shift),
        region=hn.Box(-1.0 + shift, 1.0 + shift),
    )
    t, x = hn.random_points(here, 40)
    np.testing.assert_allclose(
        values(there, t, x + shift), values(here, t, x), rtol=1e-6, atol=1e-8
    )


def test_scaling_of_time_and_space():
    """Solves scale with time and space as the equation does.

    v(t, x) = u(a² t, a x) solves the same equation with F scaled by a²; diffusion scaled by b runs
    time b times faster.
    """
    a, b = 1.7, 2.5
    base = hn.Problem(
        dim=2, horizon=0.5, initial=gaussian_bump, source=push, region=hn.Box(-1.0, 1.0)
    )
    t, x = hn.random_points(base, 40)
    wide = hn.Problem(
        dim=2,
        horizon=0.5 / a**2,
        initial=lambda x: gaussian_bump(a * x),
        source=lambda t, x: a**2 * push(a**2 * t, a * x),
        region=hn.Box(-1.0 / a, 1.0 / a),
    )
    fast = hn.Problem(
        dim=2,
        horizon=0.5 / b,
        initial=gaussian_bump,
        source=lambda t, x: b * push(b * t, x),
        region=hn.Box(-1.0, 1.0),
        diffusion=b,
    )
    options = {**SAME, "solver": "svd", "rcond": 1e-10}
    wanted = hn.solve(base, **options)(t, x)
    np.testing.assert_allclose(
        hn.solve(wide, **options)(t / a**2, x / a), wanted, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(hn.solve(fast, **options)(t / b, x), wanted, rtol=1e-5, atol=1e-6)


def test_linearity():
    """Multiplying u0 and F by a constant multiplies the answer.

    The features scale with them and the weights do not.
    """
    base = hn.Problem(dim=3, horizon=0.5, initial=gaussian_bump, source=push)
    triple = hn.Problem(
        dim=3,
        horizon=0.5,
        initial=lambda x: -3 * gaussian_bump(x),
        source=lambda t, x: -3 * push(t, x),
    )
    t, x = hn.random_points(base, 40)
    options = {**SAME, "rcond": 1e-10}
    np.testing.assert_allclose(
        hn.solve(triple, **options)(t, x),
        -3 * hn.solve(base, **options)(t, x),
        rtol=1e-7,
        atol=1e-9,
    )


def test_permutation_of_coordinates():
    """If the data treat all coordinates alike, permuting x changes u by no more than its error."""
    problem = hn.problems.get("oscillating", dim=6)
    u = hn.solve(problem, features=(120, 200), rows=(1200, 200), train_region=TRAIN_REGION)
    t, x = hn.random_points(problem, 100)
    order = np.random.default_rng(0).permutation(6)
    gap = hn.relative_errors(u(t, x[:, order]), u(t, x)).l2
    assert gap < 4 * hn.measure(u, 500).l2


def test_same_seed_same_digits_other_seed_other_features():
    problem = hn.problems.get("oscillating", dim=3)
    first, second, third = (hn.solve(problem, **SAME, seed=s) for s in (0, 0, 1))
    t, x = hn.random_points(problem, 20)
    np.testing.assert_array_equal(first(t, x), second(t, x))
    assert np.all(first.weights[0] != third.weights[0])


def test_same_digits_with_x64_on_and_off_and_the_flag_unchanged():
    problem = hn.problems.get("nonseparable", dim=3)
    t, x = hn.random_points(problem, 20)
    results = []
    for flag in (False, True):
        with jax.enable_x64(flag):
            assert jnp.ones(()).dtype == (jnp.float64 if flag else jnp.float32)
            u = hn.solve(problem, **SAME)
            results.append((u(t, x), u.gradient(t, x), u.residual(t, x), *u.weights))
            assert jnp.ones(()).dtype == (jnp.float64 if flag else jnp.float32)
            with pytest.raises(hn.InputError):
                hn.solve(problem, features=(0, 0), rows=(10, 10))
            assert jnp.ones(()).dtype == (jnp.float64 if flag else jnp.float32)
    for off, on in zip(*results, strict=True):
        assert off.dtype == np.float64
        np.testing.assert_array_equal(off, on)


def scanned(x):
    return jax.lax.scan(lambda c, xi: (c + jnp.sin(xi), None), jnp.zeros(()), x)[0]


def awkward(dim):
    """Data that break automatic Laplacians, with exact solutions."""
    A = np.random.default_rng(dim).standard_normal((dim, dim)) / dim

    def sines(x):
        return jnp.sum(jnp.sin(x))

    return {
        "no source": ({"initial": sines}, lambda t, x: jnp.exp(-t) * sines(x)),
        "constant u0": (
            {"initial": lambda x: 2.0, "source": lambda t, x: (1 + t) * sines(x)},
            lambda t, x: 2.0 + t * sines(x),
        ),
        "constant alone": ({"initial": lambda x: 2.0}, lambda t, x: 2.0 + 0.0 * t),
        "zero u0": (
            {"initial": lambda x: 0.0, "source": lambda t, x: (1 + t) * sines(x)},
            lambda t, x: t * sines(x),
        ),
        "zero alone": ({"initial": lambda x: 0.0, "source": lambda t, x: 0.0}, None),
        "x @ A @ x": (
            {"initial": lambda x: x @ A @ x},
            lambda t, x: x @ A @ x + 2 * t * np.trace(A),
        ),
        "scan": ({"initial": scanned}, lambda t, x: jnp.exp(-t) * sines(x)),
    }


AWKWARD_SOLVES = [
    *((case, 3) for case in awkward(1)),
    *((case, dim) for dim in (1, 1000) for case in ("constant u0", "scan")),
]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("dim", [1, 2, 7, 1000])
@pytest.mark.parametrize("case", awkward(1))
def test_second_derivatives_of_awkward_data(case, dim):
    """Those that a solve takes, against closed forms; `test_awkward_data_are_solved` solves some.

    Every source is (1 + t) Σ sin x_i or zero.
    """
    data, exact = awkward(dim)[case]
    found, _ = build_equation(hn.Problem(dim=dim, horizon=0.2, **data).canonical, 0)
    t, x = jnp.asarray(0.1), jnp.asarray(np.random.default_rng(0).uniform(-1, 1, dim))
    wave = -jnp.sum(jnp.sin(x))
    # exact = u0 + t Δu0 + O(t²) without a source; the waves are a factor of e^{-t}.
    initial = 0.0 if exact is None or "source" in data else jax.grad(exact)(jnp.zeros(()), x)
    np.testing.assert_allclose(found.initial.trace_hessian(x), initial, rtol=1e-11, atol=1e-12)
    if "source" in data:
        force = 0.0 if exact is None else 1.1 * wave
        np.testing.assert_allclose(found.source.trace_hessian(t, x), force, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("case", "dim"), AWKWARD_SOLVES)
@pytest.mark.filterwarnings(
    "ignore:.*columns were below", "ignore:under-determined", "ignore:not solved"
)
def test_awkward_data_are_solved(case, dim):
    data, exact = awkward(dim)[case]
    problem = hn.Problem(dim=dim, horizon=0.2, exact=exact or (lambda t, x: 0.0 * x[0]), **data)
    small = dim < 1000
    features = (80, 80) if "source" in data else (80, 0)
    u = hn.solve(
        problem,
        features=features if small else (6, 6 * bool(features[1])),
        rows=(500 if small else 12, 0),
    )
    t, x = hn.random_points(problem, 100 if small else 10)
    assert np.all(np.isfinite(u(t, x)))
    if exact is None:
        np.testing.assert_array_equal(u(t, x), 0.0)
    elif case == "constant alone":
        np.testing.assert_allclose(u(t, x), 2.0, rtol=1e-14)
    elif small:
        assert hn.measure(u, 300).l2 < 2e-3


BAD = [
    (
        {"features": None},
        "`rows` belongs to a solve of a given size: give `features` too.*hn.paper",
    ),
    ({"features": None, "rows": None, "ridge": 1e-6}, "`ridge` belongs to a solve of a given size"),
    (
        {"features": None, "rows": None, "family": "gaussian"},
        "`features` and `rows` must be given with family='gaussian'",
    ),
    ({"features": None, "rows": None, "seconds": 0}, "`seconds` must be one finite number > 0"),
    (
        {"features": None, "rows": None, "seconds": "long"},
        "`seconds` must be one finite number > 0",
    ),
    (
        {"features": None, "rows": None, "collocation": "grid"},
        '`collocation="grid"` needs a size: a grid does not grow',
    ),
    ({"seconds": 10}, "`seconds` is the budget for choosing a size"),
    ({"antithetic": 1}, "`antithetic` must be True, False or None; got 1"),
    (
        {"antithetic": True, "family": "gaussian"},
        "`antithetic` pairs directions, which Gaussian kernels do not have",
    ),
    ({"time_degree": -1}, "`time_degree` must be a whole number >= 0; got -1"),
    ({"time_degree": 50}, "`time_degree` must be at most 10; got 50"),
    ({"features": 5}, r"`features` must be a pair of whole numbers; got 5. Write \(M0, M1\)"),
    ({"features": (0, 0)}, r"`features` must not be \(0, 0\)"),
    ({"features": (2, -1)}, "`features` must be a whole number >= 0; got -1"),
    ({"rows": (1, 2, 3)}, "`rows` must be a pair"),
    ({"rows": (0, 10)}, "`rows` must hold at least one row of the equation"),
    ({"rows": (10, 0), "initial_rows": "soft"}, "`rows` must hold initial rows"),
    ({"family": "fourier"}, "`family` must be one of 'importance', 'gaussian'; got 'fourier'"),
    ({"directions": "halton"}, "`directions` must be one of"),
    ({"collocation": "random"}, "`collocation` must be one of 'uniform', 'grid', 'paths'"),
    ({"enforce": "weak"}, "`enforce` must be one of 'equation', 'mild'"),
    ({"solver": "lu"}, "`solver` must be one of 'svd', 'qr', 'pinv', 'cholesky'"),
    ({"rcond": -1.0}, "`rcond` must be one finite number > 0"),
    ({"ridge": float("nan")}, "`ridge` must be"),
    ({"ridge": 1e-6}, '`ridge` has no meaning with solver="svd"'),
    ({"initial_rows": "hard"}, "`initial_rows` must be one of 'exact', 'soft'"),
    ({"initial_weight": 0.0}, "`initial_weight` must be"),
    ({"mild_samples": 1}, "`mild_samples` must be a whole number >= 2"),
    ({"train_region": 3}, "`train_region` must be hn.Box or hn.Normal"),
    ({"train_region": hn.Point([0.0, 0.0])}, "`train_region` must have a volume"),
    ({"train_region": hn.Box([0.0], [1.0])}, r"`train_region` must be a region of R\^2"),
    ({"rcond": 1e-6, "solver": "cholesky"}, '`rcond` has no meaning with solver="cholesky"'),
    ({"features": (0, 5)}, "`features` must hold initial features where u0 is not zero"),
    ({"solver": np.array(["svd"])}, "`solver` must be one of"),
    ({"collocation": "grid", "train_region": hn.Normal()}, '`collocation="grid"` needs a Box'),
    ({"seed": 1.5}, "`seed` must be a whole number"),
    ({"seed": None}, "`seed` must be a whole number"),
    ({"family": None}, "`family` must be"),
    ({"ridge": None}, "`ridge` must be"),
    ({"initial_rows": None}, "`initial_rows` must be one of"),
]


@pytest.mark.parametrize(
    ("change", "message"), BAD, ids=[f"{i}-{next(iter(c))}" for i, (c, _) in enumerate(BAD)]
)
def test_bad_settings_are_refused_in_words(change, message):
    calls = []
    with pytest.raises(hn.InputError, match=message):
        hn.solve(
            hn.problems.get("oscillating", dim=2),
            **{**SAME, **change},
            progress=lambda *a: calls.append(a),
        )
    assert not calls


def test_what_is_not_a_problem_is_refused():
    with pytest.raises(hn.InputError, match="`problem` must be a hn.Problem; got 'heat'"):
        hn.solve("heat", **SAME)
    with pytest.raises(
        hn.InputError, match="`features` must hold initial features where u0 is not zero"
    ):
        hn.solve(hn.problems.get("product-of-sines", dim=2), features=(0, 5), rows=(10, 5))
    with pytest.raises(hn.InputError, match="`N` must be a whole number"):
        hn.paper(1, 1, -5, 1)


def test_source_features_without_a_source_are_left_out_and_said():
    with pytest.warns(
        hn.HeatnetsWarning, match="there is no source: the 7 source features are left out"
    ):
        u = hn.solve(hn.problems.get("product-of-sines", dim=2), features=(9, 7), rows=(50, 10))
    assert u.stats["features"] == (9, 0)


def test_a_source_without_features_is_said():
    with (
        pytest.warns(hn.HeatnetsWarning, match="the source has no features of its own"),
        pytest.warns(hn.HeatnetsWarning, match="not solved: rows held out are missed by"),
    ):
        hn.solve(hn.problems.get("nonseparable", dim=2, alpha=50.0), features=(9, 0), rows=(50, 10))


@pytest.mark.filterwarnings("ignore:not solved. a few paths carry the mean")
def test_data_that_cannot_be_met_are_said():
    steep = hn.Problem(dim=3, horizon=0.5, initial=lambda x: jnp.exp(-100 * x @ x))
    with pytest.warns(hn.HeatnetsWarning, match="not solved: rows held out are missed by"):
        u = hn.solve(steep, features=(60, 0), rows=(400, 0))
    assert any("not solved" in w for w in u.stats["warnings"])


def test_a_bump_between_the_probes_is_met_at_the_start():
    """u0 = 0 at every probe point is no proof that u0 = 0."""

    def bump(x):
        r = x @ x / 0.01
        return jnp.where(r < 1, jnp.exp(-1 / jnp.where(r < 1, 1 - r, 1.0)), 0.0)

    with pytest.warns(hn.HeatnetsWarning):
        u = hn.solve(hn.Problem(dim=3, horizon=0.5, initial=bump), features=(40, 0), rows=(200, 0))
    np.testing.assert_allclose(u(0.0, np.zeros(3)), np.exp(-1), rtol=1e-12)


def test_a_solution_that_is_not_finite_is_refused():
    problem = hn.Problem(
        dim=1,
        horizon=1.0,
        initial=lambda x: jnp.cos(x[0]),
        source=lambda t, x: jnp.cos(x[0]) / jnp.sqrt(t),
    )
    u = hn.solve(problem, features=(20, 20), rows=(200, 0))
    with pytest.raises(
        hn.NumericalError, match=r"not finite at 1 of 1 points, for example t = 0, x = \[0.2\]"
    ):
        u(0.0, [0.2])


def test_a_design_is_checked():
    class Nameless(hn.Design):
        def draw(self, count, uniform, normal, seed, stream):
            return np.zeros((count, uniform)), np.zeros((count, normal))

    class Wrong(Nameless):
        name = "wrong"

        def draw(self, count, uniform, normal, seed, stream):
            return np.zeros((count, uniform)), np.zeros((count, normal + 1))

    problem = hn.problems.get("oscillating", dim=2)
    with pytest.raises(
        hn.InputError, match="`directions` must be a Design with a `name`; Nameless has none"
    ):
        hn.solve(problem, **SAME, directions=Nameless())
    with pytest.raises(
        hn.InputError,
        match=r"`wrong.draw` must return finite arrays of shape \(30, 0\) and \(30, 2\)",
    ):
        hn.solve(problem, **SAME, directions=Wrong())


@pytest.mark.filterwarnings("ignore:.*kinks or jumps")
def test_rows_that_are_not_finite_name_the_point():
    """Rows that are not finite are reported with their point.

    |x| is finite where it was probed, but not twice differentiable at the origin, where a row of
    the grid lies.
    """
    problem = hn.Problem(
        dim=1, horizon=1.0, initial=lambda x: jnp.cos(x[0]), source=lambda t, x: jnp.sqrt(x @ x)
    )
    kernel = hn.ImportanceFamily(
        fraction_density=hn.Density(
            lambda rng, n: np.full((n, 1), 1 - 1e-17), lambda r: np.ones(len(r))
        )
    )
    with pytest.raises(hn.InputError, match=r"inside \(0, 1\)"):
        hn.solve(problem, features=(2, 2), rows=(9, 0), family=kernel)

    class Still(hn.Design):
        name = "still"

        def draw(self, count, uniform, normal, seed, stream):
            return np.full((count, uniform), 0.5), np.zeros((count, normal))

    with pytest.raises(
        hn.NumericalError, match=r"rows are not finite, for example the one at t = .*, x = \[0\]"
    ):
        hn.solve(
            problem,
            features=(2, 2),
            rows=(9, 0),
            directions=Still(),
            collocation="grid",
            enforce="equation",
        )


def test_stats_are_complete_and_fixed():
    u = hn.solve(hn.problems.get("oscillating", dim=3), **SAME)
    promised = {
        "family",
        "features",
        "rows",
        "design",
        "antithetic",
        "time_degree",
        "collocation",
        "enforce",
        "solver",
        "rcond",
        "rank",
        "condition",
        "residual_train",
        "residual_held_out",
        "laplacian",
        "seconds",
        "peak_bytes",
        "device",
        "seed",
        "estimated_error",
        "tolerance_met",
        "history",
        "warnings",
    }
    assert promised <= set(u.stats)
    assert {"compile", "pilot", "assembly", "solve"} <= set(u.stats["seconds"])
    with pytest.raises(TypeError):
        u.stats["rank"] = 3
    assert "rank=" in repr(u)


def test_under_determined_solves_are_labelled():
    with pytest.warns(hn.HeatnetsWarning, match="under-determined: 60 rows for 200 features"):
        u = hn.solve(
            hn.problems.get("oscillating", dim=5),
            train_region=TRAIN_REGION,
            **hn.paper(80, 120, 50, 10),
        )
    assert any("regularised by the ridge" in w for w in u.stats["warnings"])


def test_residual_is_the_residual():
    """R = F - (∂_t - DΔ) ũ by differentiating the solution numerically."""
    problem = hn.problems.get("nonseparable", dim=3, diffusion=0.5)
    u = hn.solve(problem, **SAME)
    t, x, h = 0.3, np.array([0.4, -0.7, 0.2]), 1e-3
    steps = [np.zeros(3), *(s * h * e for e in np.eye(3) for s in (1, -1))]
    centre, *around = u(t, x + np.array(steps))
    laplacian = (sum(around) - 6 * centre) / h**2
    change = (u(t + h, x) - u(t - h, x)) / (2 * h)
    with jax.enable_x64(True):
        wanted = problem.source(jnp.asarray(t), jnp.asarray(x)) - (change - 0.5 * laplacian)
    np.testing.assert_allclose(u.residual(t, x), wanted, atol=1e-4)
    with pytest.raises(hn.InputError, match=r"`t` must lie in \(0, 0.5\]; got 0"):
        u.residual(0.0, x)


def test_shapes_of_a_solution():
    u = hn.solve(hn.problems.get("oscillating", dim=3), **SAME)
    x = np.zeros((5, 3))
    assert u(0.1, x[0]).shape == ()
    assert u(0.1, x).shape == u(np.full(5, 0.1), x[0]).shape == u.residual(0.1, x).shape == (5,)
    assert u.gradient(0.1, x[0]).shape == (3,)
    assert u.gradient(0.1, x).shape == (5, 3)
    assert u(0.1, x.tolist()).dtype == np.float64
    np.testing.assert_allclose(u(0.1, x + 0.3)[0], u(0.1, x[0] + 0.3), rtol=1e-10)


@pytest.mark.slow
def test_a_hundred_dimensions_in_the_papers_set_up():
    """M = 500 + 1000 features with a third of the paper's rows.

    The paper reports errors of order 1e-8 to 1e-7 for d <= 100 with 10,000 + 2,000 rows.
    """
    problem = hn.problems.get("oscillating", dim=100)
    u = hn.solve(problem, **WIDE, **hn.paper(500, 1000, 3000, 600))
    assert hn.measure(u, 1000).l2 < 3e-6  # ten times the worst of two seeds
    frozen, direct = errors_of_simpler_ways(problem, 1500)
    assert min(frozen, direct) > 1e-2


def test_points_far_outside_the_region_are_said_once():
    problem = hn.problems.get("oscillating", dim=3)
    u = hn.solve(problem, features=(16, 16), train_region=TRAIN_REGION)
    t, x = hn.random_points(problem, 5)
    u(t, x)
    u(t, 3 * x)  # outside, but not further than paths lead
    u.gradient(t, x)
    x[3, 1] = 1e3
    with pytest.warns(hn.HeatnetsWarning, match=r"1000.* lies far outside the region Box"):
        u(t, x)
    u(t, x)
    u.gradient(t, x)


def test_gradients_of_data_that_jump_are_refused():
    """Where the data are steps the features have the gradient zero, and say nothing of u."""
    problem = hn.Problem(dim=2, horizon=0.5, initial=lambda x: jnp.where(x[0] > 0, 1.0, 0.0))
    u = hn.solve(problem, features=(64, 0), rows=(256, 0), enforce="mild")
    point = np.array([0.1, 0.0])
    with pytest.raises(hn.InputError, match=r"`initial` jumps.* u.certify_gradient\(t, x\)"):
        u.gradient(0.5, point)
    sure = u.certify_gradient(0.5, point, samples=2**14)
    exact = [np.exp(-(0.1**2) / 2) / np.sqrt(2 * np.pi), 0.0]
    assert sure.certified
    assert np.all(np.abs(sure.value - exact) < 2 * sure.halfwidth)
    assert np.max(sure.halfwidth) < 0.05


@pytest.mark.usefixtures("unoptimised", "x64")
@pytest.mark.parametrize(
    ("initial", "found"),
    [
        (lambda x: jnp.abs(x[0]) + jnp.maximum(x[1], 0.0) ** 2, []),
        (lambda x: jnp.tanh(50 * x[0]) * jnp.where(x[1] > 0, 1.0, 1.0), []),
        (lambda x: 0.5 * x[1] + jnp.where(x[0] > 0, 1.0, 0.0), ["initial"]),
        (lambda x: jnp.floor(x[1] + 0.5), ["initial"]),
    ],
)
def test_kinks_and_steep_functions_are_no_jumps(initial, found):
    problem = hn.Problem(dim=2, horizon=0.5, initial=initial)
    assert smoothness.find_jumps(problem.canonical, 0) == found


@contextmanager
def counted_programs():
    """Counts the programs that JAX compiles, or reads from its cache."""
    names = []

    def listen(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield names
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def waves(x, a):
    return jnp.sum(jnp.sin(a * x))


WAVES = 'dim = 3\nhorizon = 0.5\ninitial = "sum(sin(a * x))"\n[parameters]\na = {}\n'
SWEEPS = {  # problems with the solution e^{-a²t} Σ sin(a x_i)
    "partial": lambda a: hn.Problem(3, 0.5, functools.partial(waves, a=a)),
    "formula": lambda a: from_toml(WAVES.format(a)).problem,
    "terminal": lambda a: hn.Problem(
        3, 0.25 + 0.25 * a, terminal=functools.partial(waves, a=a), reaction=-0.1 * a
    ),
}


@pytest.mark.parametrize("kind", SWEEPS)
def test_problems_that_differ_by_numbers_share_their_programs(kind):
    x = np.array([0.3, 0.1, -0.4])
    for number, a in enumerate((1.0, 1.25)):
        problem = SWEEPS[kind](a)
        with counted_programs() as programs:
            u = hn.solve(problem, tol=0, max_rounds=1)
        assert len(programs) == 0 if number else len(programs) > 0
        t = 0.2
        left = problem.horizon - t if kind == "terminal" else t
        growth = -(a**2) - (0.1 * a if kind == "terminal" else 0.0)
        exact = np.exp(growth * left) * np.sum(np.sin(a * x))
        assert u(t, x) == pytest.approx(exact, rel=1e-5)


def smooth_call(x, strike):
    return jnp.logaddexp(0.0, jnp.mean(x) - strike)


def bell(x):
    return jnp.exp(-x @ x / 6)


def wave(t, x, a):
    return jnp.sin(a * t) * bell(x)


# One number varies: in the data, in a process, in a source.
NUMBERS = {
    "strike": lambda k: hn.Problem(
        3,
        1.0,
        terminal=functools.partial(smooth_call, strike=k),
        process=hn.GeometricBrownian(0.2, 0.03, 0.3),
        reaction=-0.03,
        region=hn.Box(0.8, 1.2),
    ),
    "rate": lambda k: hn.Problem(3, 0.5, bell, process=hn.OrnsteinUhlenbeck(0.5 * k)),
    "source": lambda k: hn.Problem(3, 0.5, bell, functools.partial(wave, a=k)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_the_second_problem_of_a_sweep_compiles_nothing(name, unoptimised):
    """Not where it is stated, solved, evaluated or certified.

    A problem that needs other steps than the first one, a higher degree in time or more samples,
    compiles those.
    """
    options = {"tol": 0.05, "max_rounds": 1, "time_degree": 1}
    values, counts = [], []
    for k in (0.95, 1.0, 1.05):
        with counted_programs() as programs:
            problem = NUMBERS[name](k)
            (u,) = hn.solve_many([problem], **options)
            t, x = 0.5 * problem.horizon, np.full(3, 0.9)
            values.append(u(t, x))
            u.gradient(t, x), u.certify(t, x, samples=1024)
        counts.append(len(programs))
    assert counts[0] > 5
    assert counts[1:] == [0, 0]
    assert len(set(values)) == 3


def call_on_mean(x, strike):
    return jnp.maximum(jnp.mean(x) - strike, 0.0)


def test_payoffs_that_differ_by_their_strike_share_their_programs():
    for number, strike in enumerate((0.05, 0.1)):
        problem = hn.Problem(3, 0.5, functools.partial(call_on_mean, strike=strike))
        with counted_programs() as programs:
            u = hn.solve(problem, max_rounds=1)
        assert len(programs) == 0 if number else len(programs) > 0
        std = np.sqrt(2 * 0.5 / 3)  # of the mean at the end of a path from 0
        z = -strike / std
        exact = std * (scipy.stats.norm.pdf(z) + z * scipy.stats.norm.cdf(z))
        assert u(0.5, np.zeros(3)) == pytest.approx(exact, rel=1e-5)


def test_networks_of_other_time_degrees_share_the_programs_of_values_and_certificates():
    problem, x = SWEEPS["terminal"](1.0), np.array([[0.3, 0.1, -0.4], [0.0, 0.2, 0.4]])
    for degree in (0, 1, 3):
        u = hn.solve(problem, tol=0, max_rounds=1, time_degree=degree)
        with counted_programs() as programs:
            u([0.2, 0.1], x), u.gradient([0.2, 0.1], x), u.certify(0.2, x[0], samples=64)
        assert len(programs) == 0 if degree else len(programs) > 0


def test_a_partial_of_a_size_or_of_a_branch_is_kept():
    def powers(x, k, number, sign):
        total = sum(k * jnp.sum(x) ** i for i in range(number))
        return total if sign > 0 else -total

    sizes = functools.partial(powers, k=2.0, number=2, sign=1.0)
    kept = hn.Problem(3, 0.5, sizes).initial
    assert float(kept(jnp.ones(3))) == 8.0
    assert not jax.tree.leaves(eqx.filter(kept, eqx.is_array))  # `sign` is needed while tracing
    known = hn.Problem(3, 0.5, functools.partial(powers, k=2.0, number=2, sign=1)).initial
    assert float(known(jnp.ones(3))) == 8.0
    assert [float(leaf) for leaf in jax.tree.leaves(eqx.filter(known, eqx.is_array))] == [2.0]


def test_many_problems_of_which_one_fails():
    heard = []
    blows_up = hn.Problem(3, 5.0, lambda x: 1.0 + 0 * x[0], source=lambda t, x, u: u**3)
    problems = [SWEEPS["partial"](1.0), blows_up, SWEEPS["partial"](1.25)]
    with pytest.warns(hn.HeatnetsWarning, match="problem 2 of 3 failed: the iteration"):
        first, failed, last = hn.solve_many(
            problems, tol=0, max_rounds=1, progress=lambda *report: heard.append(report)
        )
    assert isinstance(failed, hn.NumericalError)
    x = [0.3, 0.1, -0.4]
    assert last(0.2, x) == hn.solve(problems[2], tol=0, max_rounds=1)(0.2, x)
    assert first(0.2, x) != last(0.2, x)
    assert [report[1:] for report in heard if report[0] == "problems"] == [(1, 3), (2, 3), (3, 3)]
    assert any(str(phase).startswith("problem 3 of 3, round 0: ") for phase, _, _ in heard)


@pytest.mark.parametrize(
    ("problems", "options", "words"),
    [
        ([1], {}, "`problems` must be a list of hn.Problem; number 1 is 1"),
        ([SWEEPS["partial"](1.0)], {"tol": 5}, "problem 1 of 1: `tol` must be"),
        ([SWEEPS["partial"](1.0)], {"tolerance": 0.1}, "no argument `tolerance`: did you mean"),
        ([SWEEPS["partial"](1.0)], {"device": "abacus"}, "`device`"),
        ([SWEEPS["partial"](1.0)], {"checkpoint": "a.part"}, "the file of one solve"),
    ],
)
def test_many_problems_refuse_in_words(problems, options, words):
    with pytest.raises(hn.InputError, match=words):
        hn.solve_many(problems, **options)
