"""Features against the paper's formulas, and their residuals against automatic differentiation."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import heatnets as hn
from heatnets._core.execution import make_context
from heatnets.features.designs import design
from heatnets.features.equation import build_equation
from heatnets.features.families import GaussianFamily, ImportanceFamily, family
from heatnets.features.features import Feature
from heatnets.features.kernels import KernelSource, LagTransform
from heatnets.fit.assembly import residual_rows, value_rows

pytestmark = pytest.mark.usefixtures("x64")

D = 0.7


def u0(x):
    return jnp.exp(-0.3 * x @ x / x.size) * jnp.sin(jnp.sum(x))


def F(t, x):
    return jnp.cos(3 * t) * jnp.exp(-0.2 * x @ x / x.size) + t * jnp.sum(x**2) / x.size


def problem(dim):
    return hn.Problem(dim=dim, horizon=0.8, initial=u0, source=F, diffusion=D)


def one(block, j):
    return jax.tree.map(lambda a: a[j], block)


def whole_residual(feature, data, t, x):
    """(∂_t - DΔ) φ by differentiating the feature as it stands."""
    dt = jax.jacfwd(lambda s: feature.value(data, s, x))(t)
    return dt - D * jnp.trace(jax.hessian(lambda y: feature.value(data, t, y))(x))


@pytest.mark.parametrize("dim", [1, 2, 3, 6])
@pytest.mark.parametrize("name", ["importance", "antithetic", "gaussian"])
def test_residual_matches_autodiff_of_the_whole_feature(name, dim):
    """A feature's residual is the equation's operator applied to it by automatic differentiation.

    Kernels are placed where they are not negligible: y small, lags of order one, x near z. Every
    number compared is of order one.
    """
    near = hn.Density(
        lambda rng, n: 0.5 * rng.standard_normal((n, dim)),
        lambda y: np.full(len(y), np.pi ** (-dim / 2)),
    )
    lag_z = hn.Density(
        lambda rng, n: np.column_stack(
            [rng.uniform(0.1, 0.4, n), 0.3 * rng.standard_normal((n, dim))]
        ),
        lambda rows: (4 * np.pi * D * rows[:, 0]) ** (-dim / 2),
    )
    kind = (
        GaussianFamily(initial_density=near, source_density=lag_z)
        if name == "gaussian"
        else ImportanceFamily()
    )
    data, _ = build_equation(problem(dim).canonical, 0)
    rng = np.random.default_rng(1)
    whole, claimed = (
        eqx.filter_jit(whole_residual),
        eqx.filter_jit(lambda feature, *args: feature.residual(*args)),
    )
    for block in kind.draw(
        problem(dim).canonical, (4, 4), design("gaussian"), 3, antithetic=name == "antithetic"
    ):
        for j in range(4):
            t, x = jnp.asarray(rng.uniform(0.5, 0.8)), jnp.asarray(0.3 * rng.standard_normal(dim))
            feature = one(block, j)
            wanted = whole(feature, data, t, x)
            assert abs(wanted) > 1e-3
            np.testing.assert_allclose(claimed(feature, data, t, x), wanted, rtol=1e-9)


def test_pairs_are_means_of_opposite_features():
    p, t, x = problem(4), jnp.asarray(0.3), jnp.asarray([0.1, -0.4, 0.9, 0.2])
    data, _ = build_equation(p.canonical, 0)
    single, pairs = (
        ImportanceFamily().draw(p.canonical, (3, 3), design("gaussian"), 0, antithetic)
        for antithetic in (False, True)
    )
    for block, pair in zip(single, pairs, strict=True):
        opposite = eqx.tree_at(lambda f: f.direction, block, -block.direction)
        wanted = [
            0.5 * (a + b)
            for a, b in zip(
                one(block, 1).value_and_residual(data, t, x),
                one(opposite, 1).value_and_residual(data, t, x),
                strict=True,
            )
        ]
        np.testing.assert_allclose(one(pair, 1).value_and_residual(data, t, x), wanted, rtol=1e-13)
        np.testing.assert_array_equal(pair.initial_coefficient, block.initial_coefficient)


def test_pairs_have_no_singularity_at_the_start():
    """∂_t of one feature grows like t^{-1/2}; of a pair it tends to ηᵀ D²u0 η D."""
    p, x = problem(4), jnp.asarray([0.1, -0.4, 0.9, 0.2])
    data, _ = build_equation(p.canonical, 0)
    single, pair = (
        one(ImportanceFamily().draw(p.canonical, (2, 0), design("gaussian"), 0, anti)[0], 1)
        for anti in (False, True)
    )
    eta, hessian = single.direction / jnp.sqrt(D), jax.hessian(u0)(x)
    limit = D * (eta @ hessian @ eta - jnp.trace(hessian))
    np.testing.assert_allclose(pair.residual(data, jnp.asarray(1e-8), x), limit, rtol=1e-6)
    assert abs(single.residual(data, jnp.asarray(1e-8), x)) > 100 * abs(limit)


@pytest.mark.parametrize("degree", [0, 2])
def test_columns_of_weights_that_vary_in_time(degree):
    """The columns t^k φ and their residuals, against differentiating t^k φ as it stands."""
    p = problem(3)
    data, _ = build_equation(p.canonical, 0)
    blocks = ImportanceFamily().draw(p.canonical, (2, 3), design("gaussian"), 0, True)
    rng = np.random.default_rng(0)
    points = rng.uniform(0.2, 0.8, 4), rng.standard_normal((4, 3))
    ctx = make_context()
    rows, values = (
        residual_rows(data, blocks, points, ctx, degree, 2.0),
        value_rows(data, blocks, points, ctx, "values", degree=degree, horizon=2.0),
    )
    features = [one(block, j) for block in blocks for j in range(len(block.initial_coefficient))]

    class Raised(eqx.Module):
        feature: Feature

        def value(self, equation, t, x):
            return (t / 2.0) ** k * self.feature.value(equation, t, x)

    for k in range(degree + 1):
        for j, feature in enumerate(features):
            t, x = jnp.asarray(points[0][1]), jnp.asarray(points[1][1])
            column = k * len(features) + j
            np.testing.assert_allclose(
                rows[1, column], whole_residual(Raised(feature), data, t, x), rtol=1e-9
            )
            np.testing.assert_allclose(
                values[1, column], (t / 2.0) ** k * feature.value(data, t, x), rtol=1e-12
            )


def test_importance_features_are_the_papers():
    p, t, x = problem(4), jnp.asarray(0.3), jnp.asarray([0.1, -0.4, 0.9, 0.2])
    data, _ = build_equation(p.canonical, 0)
    initial, source = ImportanceFamily().draw(p.canonical, (3, 3), design("gaussian"), 0)
    eta, xi, r = (
        initial.direction[1] / jnp.sqrt(D),
        source.direction[1] / jnp.sqrt(D),
        source.fraction[1],
    )
    np.testing.assert_allclose(
        one(initial, 1).value(data, t, x), u0(x + jnp.sqrt(2 * D * t) * eta), rtol=1e-14
    )
    np.testing.assert_allclose(
        one(source, 1).value(data, t, x),
        t * F(r * t, x + jnp.sqrt(2 * D * (1 - r) * t) * xi),
        rtol=1e-14,
    )


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
def test_kernel_features_are_the_papers(dim):
    p, A, cut = problem(dim), 4.0, 1e-2
    data, _ = build_equation(p.canonical, 0)
    initial, source = GaussianFamily(half_width=A, shortest_lag=cut).draw(
        p.canonical, (5, 200), design("gaussian"), 0
    )
    unit, _ = design("gaussian").draw(5, dim, 0, 0, "initial features")
    y = A * (2 * unit[2] - 1)
    t, x = jnp.asarray(0.6), jnp.linspace(-0.5, 0.5, dim)
    wanted = np.pi ** (-dim / 2) * np.exp(-y @ y) * u0(x + np.sqrt(4 * D * 0.6) * y)
    np.testing.assert_allclose(one(initial, 2).value(data, t, x), wanted, rtol=1e-12)

    unit, _ = design("gaussian").draw(200, 1 + dim, 0, 0, "source features")
    alpha, T = 1 - dim / 2, p.horizon
    values, force = jax.jit(jax.vmap(lambda f: f.value(data, t, x)))(source), jax.jit(F)
    for j in range(200):
        if dim == 1:
            tau = unit[j, 0] * np.sqrt(T)
            g, C, on = tau**2, 0.5, tau <= np.sqrt(0.6)
        elif dim == 2:
            tau = -np.log(T) + unit[j, 0] * (np.log(T) - np.log(cut * T))
            g, C, on = np.exp(-tau), 1.0, tau >= -np.log(0.6)
        else:
            tau = T**alpha + unit[j, 0] * ((cut * T) ** alpha - T**alpha)
            g, C, on = tau ** (1 / alpha), abs(alpha), tau >= 0.6**alpha
        z = A * (2 * unit[j, 1:] - 1)
        kernel = np.exp(-np.sum((x - z) ** 2) / (4 * D * g)) / (C * (4 * np.pi * D) ** (dim / 2))
        wanted = kernel * force(0.6 - g, z) if on else 0.0
        np.testing.assert_allclose(values[j], wanted, rtol=1e-10, atol=1e-300)


@pytest.mark.parametrize("name", ["importance", "gaussian"])
def test_start_is_the_factor_of_u0_at_time_zero(name):
    p, x = problem(2), jnp.asarray([0.3, -0.8])
    data, _ = build_equation(p.canonical, 0)
    for block in family(name).draw(p.canonical, (4, 4), design("gaussian"), 0):
        for j in range(4):
            feature = one(block, j)
            np.testing.assert_allclose(
                feature.value(data, jnp.zeros(()), x),
                feature.initial_coefficient * u0(x),
                rtol=1e-14,
            )


def test_the_kernel_drawn_by_its_own_density_is_importance_sampling():
    """With ψ(y) = π^{-d/2} e^{-|y|²} the kernel features are u0(x + √(2Dt) η).

    This is the paper's alternative-sampling proposition.
    """
    p = problem(3)
    data, _ = build_equation(p.canonical, 0)
    bell = hn.Density(
        draw=lambda rng, n: rng.standard_normal((n, 3)) / np.sqrt(2),
        pdf=lambda y: np.pi**-1.5 * np.exp(-np.sum(y**2, axis=1)),
    )
    block = GaussianFamily(initial_density=bell).draw(p.canonical, (5, 0), design("gaussian"), 0)[0]
    t, x = jnp.asarray(0.4), jnp.asarray([0.2, 0.1, -0.3])
    for j in range(5):
        np.testing.assert_allclose(
            one(block, j).value(data, t, x),
            u0(x + jnp.sqrt(2 * t) * block.direction[j]),
            rtol=1e-12,
        )


def test_source_features_under_any_density_average_to_the_same_integral():
    """Means over draws agree with ∫∫ G F within sampling error, whatever density they come from.

    The densities are the uniform one, one of (lag, z), and one of the fraction r.
    """
    p = hn.Problem(
        dim=1,
        horizon=0.8,
        initial=lambda x: 0.0,
        source=lambda t, x: (1 + t) * jnp.sin(x[0]),
        diffusion=1.0,
    )
    data, _ = build_equation(p.canonical, 0)
    t, x, n = 0.8, jnp.asarray([0.6]), 20000
    exact = t * np.sin(0.6)  # u = t sin x solves u_t = u_xx + (1 + t) sin x

    def lag_z(rng, n):
        lag = 0.8 * rng.random(n) ** 2
        return np.column_stack([lag, 0.6 + np.sqrt(2 * lag) * rng.standard_t(5, n)])

    def pdf(rows):
        from scipy.stats import t as t_half_width

        lag, z = rows.T
        return (
            0.5
            / np.sqrt(0.8 * lag)
            * t_half_width.pdf((z - 0.6) / np.sqrt(2 * lag), 5)
            / np.sqrt(2 * lag)
        )

    squares = hn.Density(
        lambda rng, n: rng.random((n, 1)) ** 2 * 0.999 + 0.0005,
        lambda r: 0.5 / np.sqrt((r[:, 0] - 0.0005) * 0.999),
    )
    uniform = GaussianFamily(half_width=8.0)
    cases = [
        (GaussianFamily(source_density=hn.Density(lag_z, pdf)), 1.0),
        (ImportanceFamily(fraction_density=squares), 1.0),
        (ImportanceFamily(), 1.0),
        (
            uniform,
            float(LagTransform(1, 0.8, 0.0).length) * 16.0,
        ),  # the paper leaves μ(𝒟)(2A)^d to the weights
    ]
    for fam, volume in cases:
        block = fam.draw(p.canonical, (0, n), design("gaussian"), 1)[1]
        values = volume * np.asarray(
            jax.jit(jax.vmap(lambda f: f.value(data, jnp.asarray(t), x)))(block)
        )
        error = values.std() / np.sqrt(n)
        assert abs(values.mean() - exact) < 4 * error, fam
        assert error < 0.1 * exact, fam


def test_bad_densities_are_refused():
    p = problem(2)
    shape = hn.Density(lambda rng, n: rng.random((n, 5)), lambda y: np.ones(len(y)))
    with pytest.raises(
        hn.InputError, match=r"`Density.draw` must return finite points of shape \(4, 2\)"
    ):
        GaussianFamily(initial_density=shape).draw(p.canonical, (4, 4), design(None), 0)
    zero = hn.Density(lambda rng, n: rng.random((n, 2)), lambda y: np.zeros(len(y)))
    with pytest.raises(
        hn.InputError, match=r"`Density.pdf` must return 4 finite numbers > 0.*4 not > 0"
    ):
        GaussianFamily(initial_density=zero).draw(p.canonical, (4, 4), design(None), 0)
    late = hn.Density(lambda rng, n: 1 + rng.random((n, 3)), lambda y: np.ones(len(y)))
    with pytest.raises(hn.InputError, match=r"lags in \(0, horizon\]"):
        GaussianFamily(source_density=late).draw(p.canonical, (4, 4), design(None), 0)
    outside = hn.Density(lambda rng, n: 1 + rng.random((n, 1)), lambda y: np.ones(len(y)))
    with pytest.raises(hn.InputError, match=r"inside \(0, 1\)"):
        ImportanceFamily(fraction_density=outside).draw(p.canonical, (4, 4), design(None), 0)


def test_kernels_that_all_underflow_are_refused():
    with pytest.raises(hn.NumericalError, match="underflows to zero in 200 dimensions"):
        GaussianFamily().draw(problem(200).canonical, (8, 0), design(None), 0)
    with pytest.raises(hn.InputError, match="`shortest_lag` must be below 1"):
        GaussianFamily(shortest_lag=2.0)


def test_a_feature_that_is_off_hides_no_nan():
    """Value, gradient and residual of a kernel before its lag are zero, not NaN.

    F is singular at t = 0.
    """
    singular = hn.Problem(
        dim=1,
        horizon=0.8,
        initial=lambda x: jnp.cos(x[0]),
        source=lambda t, x: jnp.cos(x[0]) / jnp.sqrt(t),
    )
    data, _ = build_equation(singular.canonical, 0)
    feature, t, x = (
        KernelSource(jnp.zeros(1), jnp.asarray(0.5), jnp.zeros(())),
        jnp.asarray(0.3),
        jnp.zeros(1),
    )
    assert feature.value(data, t, x) == 0
    assert feature.residual(data, t, x) == 0
    assert jax.grad(lambda y: feature.value(data, t, y))(x) == 0


@pytest.mark.parametrize("dim", [3, 7, 500])
def test_lags_reach_both_ends_in_any_dimension(dim):
    lags = LagTransform(dim, 0.8, 8e-4)
    ends = np.asarray(lags.lag(np.array([0.0, 1 - 1e-16])))
    np.testing.assert_allclose(ends[0], 0.8, rtol=1e-12)
    assert 8e-4 * (1 - 1e-12) <= ends[1] < 0.01
    if dim < 100:  # uniform in τ = g^α
        tau = np.asarray(lags.lag(np.array([0.25, 0.5, 0.75]))) ** (1 - dim / 2)
        np.testing.assert_allclose(np.diff(tau), 0.25 * lags.length, rtol=1e-10)


def test_a_kernel_feature_is_off_before_its_lag():
    feature = KernelSource(jnp.zeros(1), jnp.asarray(0.5), jnp.zeros(()))
    data, _ = build_equation(problem(1).canonical, 0)
    x = jnp.zeros(1)
    assert feature.value(data, jnp.asarray(0.49), x) == 0
    assert feature.residual(data, jnp.asarray(0.49), x) == 0
    assert feature.value(data, jnp.asarray(0.5), x) != 0  # the jump that equation rows cannot see
