"""Solvers against closed forms.

Consistent systems, ridge by its definition, solutions of minimum norm, one exact condition.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import heatnets as hn
from heatnets._core.execution import make_context
from heatnets._core.process_group import ALONE
from heatnets.features.equation import build_equation
from heatnets.fit import device_least_squares
from heatnets.fit.assembly import time_columns
from heatnets.fit.device_least_squares import DeviceDamped, padded_size
from heatnets.fit.least_squares import SOLVERS, ridge_to_prior, solve
from heatnets.solvers.candidate_fits import Dictionary
from heatnets.solvers.options import make_options
from heatnets.solvers.run import Run
from heatnets.solvers.validation import BlockSizes

pytestmark = pytest.mark.usefixtures("x64")
EPS = np.finfo(float).eps


def matrix(rows, columns, singular_values, seed=0):
    rng = np.random.default_rng(seed)
    k = len(singular_values)
    U, V = (
        np.linalg.qr(rng.standard_normal((rows, k)))[0],
        np.linalg.qr(rng.standard_normal((columns, k)))[0],
    )
    return U @ np.diag(singular_values) @ V.T


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("shape", [(60, 20), (20, 20)])
def test_well_conditioned_systems_are_solved(solver, shape):
    A = matrix(*shape, np.linspace(1, 5, 20))
    w = np.random.default_rng(1).standard_normal(20)
    fit = solve(jnp.asarray(A), jnp.asarray(A @ w), solver, None, 0.0)
    np.testing.assert_allclose(fit.weights, w, rtol=1e-11)
    assert fit.rank == 20
    if solver == "qr":
        assert (
            1 <= fit.condition_number <= np.linalg.cond(A / np.linalg.norm(A, axis=0))
        )  # of the triangle's diagonal: from below
    else:
        wanted = np.linalg.cond(A / np.linalg.norm(A, axis=0)) if solver == "svd" else 5.0
        np.testing.assert_allclose(fit.condition_number, wanted, rtol=0.05)
    assert not fit.notes


@pytest.mark.parametrize("shape", [(50, 30), (30, 50)])
def test_ridge_is_the_minimiser_of_its_definition(shape):
    A, b = (
        matrix(*shape, np.geomspace(1, 1e-3, 30)),
        np.random.default_rng(2).standard_normal(shape[0]),
    )
    wanted = np.linalg.lstsq(
        np.vstack([A, np.sqrt(1e-4) * np.eye(shape[1])]),
        np.concatenate([b, np.zeros(shape[1])]),
        rcond=None,
    )[0]
    for solver in ("cholesky", "pinv"):
        fit = solve(jnp.asarray(A), jnp.asarray(b), solver, None, 1e-4)
        np.testing.assert_allclose(fit.weights, wanted, rtol=1e-7, atol=1e-9)
    cut = solve(jnp.asarray(A), jnp.asarray(b), "cholesky", None, 1e-4).rcond
    np.testing.assert_allclose(cut, 1e-2, rtol=0.05)  # σ = √λ = 1e-2 of the largest, which is 1


def test_cut_off_rank_and_condition_are_reported():
    A = matrix(80, 30, np.geomspace(1, 1e-20, 30))
    fit = solve(jnp.asarray(A), jnp.asarray(A @ np.ones(30)), "pinv", 1e-8, 0.0)
    assert fit.rank == np.sum(np.geomspace(1, 1e-20, 30) > 1e-8)
    assert fit.rcond == 1e-8
    assert 1e7 < fit.condition_number < 1e8
    assert solve(jnp.asarray(A), jnp.asarray(A @ np.ones(30)), "pinv", None, 0.0).rcond == 80 * EPS


def test_column_scaling_rescues_badly_scaled_columns():
    A = matrix(60, 10, np.linspace(1, 2, 10)) * np.geomspace(1, 1e-10, 10)
    w = 1 / np.geomspace(1, 1e-10, 10)
    b = jnp.asarray(A @ w)
    np.testing.assert_allclose(solve(jnp.asarray(A), b, "svd", 1e-9, 0.0).weights, w, rtol=1e-9)
    assert solve(jnp.asarray(A), b, "pinv", 1e-9, 0.0).rank < 10


def test_negligible_columns_are_left_out_and_said():
    A = matrix(60, 10, np.linspace(1, 2, 10))
    A[:, 3] = 1e-40
    fit = solve(jnp.asarray(A), jnp.ones(60), "svd", None, 0.0)
    assert fit.weights[3] == 0
    assert "1 of 10 columns" in fit.notes[0]


@pytest.mark.parametrize("solver", ["svd", "pinv"])
def test_under_determined_systems_get_the_minimum_norm_and_a_label(solver):
    A = matrix(8, 30, np.linspace(1, 2, 8))
    A /= np.linalg.norm(
        A, axis=0
    )  # so that scaling is the identity and both solvers mean the same norm
    b = np.random.default_rng(3).standard_normal(8)
    fit = solve(jnp.asarray(A), jnp.asarray(b), solver, None, 0.0)
    np.testing.assert_allclose(fit.weights, np.linalg.pinv(A) @ b, rtol=1e-10, atol=1e-12)
    assert (
        "under-determined: 8 rows for 30 features; the weights are those of minimum norm"
        in fit.notes[-1]
    )
    assert ("after column scaling" in fit.notes[-1]) == (solver == "svd")


@pytest.mark.parametrize("ridge", [0.0, 1e-30])
def test_failed_cholesky_falls_back_and_says_so(ridge):
    A = matrix(60, 20, np.geomspace(1, 1e-17, 20))
    w = np.ones(20)
    fit = solve(jnp.asarray(A), jnp.asarray(A @ w), "cholesky", None, ridge)
    assert fit.solver == "qr"
    assert "Cholesky failed" in fit.notes[0]
    np.testing.assert_allclose(A @ np.asarray(fit.weights), A @ w, atol=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_exact_condition(solver, sign):
    """Against the closed form by Lagrange multipliers."""
    A, b = matrix(40, 12, np.linspace(1, 3, 12)), np.random.default_rng(4).standard_normal(40)
    c = np.random.default_rng(5).standard_normal(12)
    c[0] = sign * abs(c[0])
    G = np.linalg.inv(A.T @ A)
    free = G @ A.T @ b
    wanted = free + G @ c * (1 - c @ free) / (c @ G @ c)
    fit = solve(jnp.asarray(A), jnp.asarray(b), solver, None, 0.0, jnp.asarray(c))
    np.testing.assert_allclose(fit.weights, wanted, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(c @ np.asarray(fit.weights), 1.0, rtol=1e-14)


def test_ridge_reports_its_effective_rank():
    s = np.concatenate([np.linspace(1, 2, 10), np.full(30, 1e-7)])
    A = matrix(60, 40, s)
    fit = solve(jnp.asarray(A), jnp.ones(60), "cholesky", None, 1e-8)
    assert fit.solver == "cholesky"
    assert abs(fit.rank - np.sum(s**2 / (s**2 + 1e-8))) < 1


def test_normal_equations_without_a_ridge_say_what_they_lose():
    A = matrix(60, 20, np.geomspace(1, 1e-7, 20))
    fit = solve(jnp.asarray(A), jnp.ones(60), "cholesky", None, 0.0)
    assert "square a condition" in fit.notes[0] or fit.solver == "qr"


@pytest.mark.parametrize("solver", SOLVERS)
def test_one_feature_and_a_condition_leave_nothing_to_solve(solver):
    fit = solve(jnp.ones((5, 1)), jnp.zeros(5), solver, None, 0.0, jnp.asarray([4.0]))
    np.testing.assert_allclose(fit.weights, [0.25])


@pytest.mark.parametrize("tiny", [1e-170, 1e-30, 1e30])
def test_the_size_of_data_and_condition_does_not_matter(tiny):
    A, b = matrix(40, 12, np.linspace(1, 3, 12)), np.random.default_rng(4).standard_normal(40)
    c = np.random.default_rng(5).standard_normal(12)
    base = solve(jnp.asarray(A), jnp.asarray(b), "svd", None, 0.0, jnp.asarray(c)).weights
    small = solve(
        jnp.asarray(A * tiny), jnp.asarray(b), "svd", None, 0.0, jnp.asarray(c * tiny)
    ).weights
    np.testing.assert_allclose(np.asarray(small) * tiny, base, rtol=1e-10)


def test_the_condition_holds_where_the_rows_say_nothing():
    c = jnp.asarray([1.0, 1.0, 0.0])
    fit = solve(jnp.zeros((5, 3)), jnp.zeros(5), "svd", None, 0.0, c)
    np.testing.assert_allclose(fit.weights, [0.5, 0.5, 0.0], atol=1e-15)


def test_rows_that_are_not_finite_are_refused():
    with pytest.raises(hn.NumericalError, match="did not converge|not finite"):
        solve(jnp.full((5, 3), jnp.nan), jnp.zeros(5), "pinv", None, 0.0)


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
def test_damped_qr_is_as_good_as_a_cut_off(array):
    """For a matrix of rank 12 of 30 to rounding, damped QR does as well as the SVD with a cut-off.

    Both must reproduce b with weights of moderate size, and meet the condition.
    """
    A = matrix(80, 30, np.concatenate([np.geomspace(1, 1e-3, 12), np.full(18, 1e-17)]))
    b, c = A @ np.random.default_rng(3).standard_normal(30), np.ones(30)
    for condition in (None, array(c)):
        fits = [solve(array(A), array(b), solver, None, 0.0, condition) for solver in ("svd", "qr")]
        for fit in fits:
            assert np.linalg.norm(A @ np.asarray(fit.weights) - b) < 1e-11 * np.linalg.norm(b)
            assert np.linalg.norm(fit.weights) < 1e3
            assert condition is None or abs(c @ np.asarray(fit.weights) - 1) < 1e-12
        assert (
            12 <= fits[1].rank + (condition is not None) <= 18
        )  # an estimate, from the diagonal of the factor


def test_damped_qr_solves_its_definition():
    """For unit columns the weights minimise |A w - b|² + μ² |w|² with μ = rcond √M."""
    A = matrix(40, 8, np.linspace(1, 2, 8))
    A, b, mu = (
        A / np.linalg.norm(A, axis=0),
        np.random.default_rng(4).standard_normal(40),
        0.1 * np.sqrt(8),
    )
    wanted = np.linalg.solve(A.T @ A + mu**2 * np.eye(8), A.T @ b)
    np.testing.assert_allclose(solve(A, b, "qr", 0.1, 0.0).weights, wanted, rtol=1e-11)


def test_weights_stay_near_the_prior_as_far_as_noise_asks():
    rng = np.random.default_rng(5)
    A, prior, c = rng.standard_normal((400, 30)) / 20, np.full(30, 1 / 30), np.ones(30)
    truth = prior + 0.3 * (v := rng.standard_normal(30)) - 0.3 * v.mean()
    errors = {}
    for noise in (0.0, 0.01, 10.0):
        b = A @ truth + noise * rng.standard_normal(400)
        fit = ridge_to_prior(A, b, prior, c)
        w = fit.weights
        assert abs(c @ w - 1) < 1e-12
        assert 0 <= fit.rank < 30
        errors[noise] = np.linalg.norm(w - truth), fit.ridge
    assert errors[0.0][0] < 1e-5
    assert errors[0.01][0] < 0.1
    # Noise thirty times the signal: least squares would be off by 10 √30; the prior is off by 1.6.
    assert errors[10.0][0] < 2.5
    assert errors[10.0][1] > 100 * errors[0.0][1]


@pytest.fixture(scope="module")
def rows():
    """Entries of 48 + 48 features of a problem in five dimensions at 768 points."""
    with jax.enable_x64(True):
        problem = hn.problems.get("nonseparable", dim=5)
        run = Run(problem.canonical, make_options(problem), make_context())
        dictionary = Dictionary(run, build_equation(run.problem, 0)[0], BlockSizes())
        dictionary.grow([design.name for design in dictionary.designs], "test")
        yield dictionary.rows


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("columns", [np.arange(96), np.arange(3, 90, 2)], ids=["all", "some"])
def test_a_device_solves_as_the_host_does(rows, columns, constrained):
    """Padding to a common shape changes nothing; here the CPU stands for the device."""
    constraint = (np.arange(len(columns)) % 3 == 0).astype(float) if constrained else None
    host = device_least_squares._host_system(rows, columns, 3, constraint)
    sent = DeviceDamped(rows, columns, 3, constraint)
    for degree in (0, 1, 3):
        unknowns = (degree + 1) * len(columns)
        results = zip(
            host.fits((1e-6, 1e-3), unknowns), sent.fits((1e-6, 1e-3), unknowns), strict=True
        )
        for one, other in results:
            assert (one.rank, one.rcond, one.notes) == (other.rank, other.rcond, other.notes)
            assert abs(one.condition_number / other.condition_number - 1) < 1e-6
            # Weights carry the rounding times 1/rcond; what they fit does not.
            weights = [np.asarray(fit.weights) for fit in (one, other)]
            residuals = [rows.residual(w, columns, degree) for w in weights]
            size = np.linalg.norm(residuals[0]) + np.linalg.norm(rows.forcing)
            assert np.linalg.norm(residuals[0] - residuals[1]) < 1e-9 * size
            np.testing.assert_allclose(*weights, atol=1e-9 * np.linalg.norm(weights[0]))


@pytest.mark.usefixtures("x64")
def test_entries_on_a_device_are_those_of_the_linearized_equation(rows):
    n, d_u, advection = len(rows.points[0]), rows.values[:, 0], 0.1 * rows.values
    changed = dataclasses.replace(rows)
    changed.values, changed.residuals, changed.forcing = rows.values, rows.residuals, rows.forcing
    changed.reaction, changed.advection = d_u, advection
    A, b = changed.system(np.arange(96), 0)
    values, residuals, _, forcing = changed.on_device(padded_size)
    assert values.shape == residuals.shape == (768, 256)
    np.testing.assert_allclose(residuals[:n, :96], A, atol=1e-12)
    np.testing.assert_array_equal(forcing[:n], b)
    assert not np.any(np.asarray(values[:, 96:]))
    w = np.random.default_rng(0).standard_normal(96)
    np.testing.assert_allclose(changed.residual(w, np.arange(96), 0), b - A @ w, atol=1e-10)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("columns", [np.arange(96), np.arange(3, 90, 2)], ids=["all", "some"])
def test_fits_are_those_of_their_columns(rows, columns):
    """Values, sums of moduli and residuals without forming the columns t^k φ_j."""
    t, w = rows.points[0], np.random.default_rng(0).standard_normal(4 * len(columns))
    V = time_columns(rows.values[:, columns], t, 3, rows.problem.horizon)
    A, b = rows.system(columns, 3)
    part = slice(5, 700)
    for result, expected in (
        (rows.fitted(w, columns, 3, part), V @ w),
        (rows.fitted(w, columns, 3, part, moduli=True), np.abs(V) @ np.abs(w)),
        (rows.residual(w, columns, 3, part), b - A @ w),
    ):
        np.testing.assert_allclose(result, expected[part], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("size", "padded"), [(1, 256), (256, 256), (257, 384), (385, 512), (3000, 3072), (3073, 4096)]
)
def test_padded_sizes(size, padded):
    assert padded_size(size) == padded


def test_only_large_systems_go_to_a_gpu(monkeypatch):
    monkeypatch.setattr(device_least_squares, "_host_system", lambda *_: "host")
    monkeypatch.setattr(device_least_squares, "DeviceDamped", lambda *_: "device")

    def place(platform, points, features):
        device = SimpleNamespace(platform=platform)
        cache = SimpleNamespace(
            points=[range(points)], ctx=SimpleNamespace(device=device), processes=ALONE
        )
        return device_least_squares.damped_system(cache, np.arange(features), 1, None)

    assert place("gpu", 4000, 1000) == "device"
    assert place("gpu", 400, 100) == "host"
    assert place("cpu", 4000, 1000) == "host"


@pytest.mark.usefixtures("x64")
def test_a_device_without_memory_leaves_the_factor_to_the_host(monkeypatch, rows):
    def exhausted(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")

    columns = np.arange(96)
    expected = device_least_squares._host_system(rows, columns, 0, None).fit(1e-6, 96)
    system = DeviceDamped(rows, columns, 0, None)
    monkeypatch.setattr(device_least_squares, "_fits", exhausted)
    np.testing.assert_array_equal(system.fits((1e-6,), 96)[0].weights, expected.weights)
    monkeypatch.setattr(device_least_squares, "_factor", exhausted)
    monkeypatch.setattr(device_least_squares, "_DEVICE_FLOPS", 0)
    monkeypatch.setattr(rows, "on_device", lambda _: ())
    monkeypatch.setattr(rows, "ctx", SimpleNamespace(device=SimpleNamespace(platform="gpu")))
    system = device_least_squares.damped_system(rows, columns, 0, None)
    np.testing.assert_array_equal(system.fits((1e-6,), 96)[0].weights, expected.weights)


def test_normal_equations_that_overflow_are_solved_by_qr():
    rows = np.random.default_rng(0).standard_normal((20, 4))
    rows[0, 0] = 1e160  # its square is not finite
    fit = solve(rows, rows @ np.ones(4), "cholesky", None, 0.0)
    assert fit.solver == "qr"
    assert "Cholesky failed" in fit.notes[0]
