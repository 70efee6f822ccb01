"""Functions of few sums over coordinates, against brute-force automatic differentiation."""

from __future__ import annotations

from unittest import mock

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from heatnets._core import elementary
from heatnets.pde import coordinate_sums
from heatnets.pde.coordinate_sums import CoordinateSums
from heatnets.pde.diffusion import Dense, Diagonal, DiagonalPlusLowRank
from heatnets.pde.function import Function
from heatnets.pde.laplacian import NO_LAPLACIAN, FunctionWithLaplacian
from heatnets.pde.laplacian import CoordinateSums as CoordinateSumsMethod
from heatnets.pde.laplacian_choice import select_method
from heatnets.pde.sum_finder import NotReducible

pytestmark = pytest.mark.usefixtures("x64", "unoptimised")

RNG = np.random.default_rng(0)
DIM = 9
A = RNG.standard_normal(DIM)
W = RNG.standard_normal((DIM, DIM))
V = RNG.standard_normal((3, DIM))
C = RNG.standard_normal((2, DIM))


def _inner(x):
    return 1 / (2 + 0.4 * x @ x)


REDUCIBLE = {
    "radial": (1, lambda t, x: 1 / (2 + 0.4 * x @ x)),
    "logarithm": (1, lambda t, x: jnp.log(0.5 * (1 + jnp.sum(x**2)))),
    "ridge": (1, lambda t, x: jnp.sin(A @ x) * t),
    "coefficient in t": (1, lambda t, x: jnp.exp(-jnp.sum((t * x) * x))),
    "sum and radial": (2, lambda t, x: jnp.sum(jnp.cos(x)) + t * jnp.exp(-x @ x / x.size)),
    "additive in t": (1, lambda t, x: jnp.exp(0.1 * jnp.sum(jnp.cos(x + t) * A))),
    "two coordinates": (2, lambda t, x: jnp.sin(t) * jnp.cos(x[0] * x[1])),
    "quadratic form": (1, lambda t, x: jnp.sin(0.1 * x @ W @ x)),
    "neighbours": (1, lambda t, x: jnp.sum(x[1:] * x[:-1])),
    "few rows": (3, lambda t, x: jnp.tanh(jnp.sum(jnp.sin(V @ x)))),
    "two bumps": (2, lambda t, x: jnp.sum(jnp.exp(-0.1 * jnp.sum((x - C) ** 2, axis=1)))),
    "norm": (1, lambda t, x: jnp.exp(-jnp.linalg.norm(x - 1.0))),
    "square of a gradient": (1, lambda t, x: -jnp.sum(jax.grad(_inner)(x) ** 2)),
    "gradient of a sum": (
        2,
        lambda t, x: -jnp.sum(jax.grad(lambda y: jnp.log(jnp.sum(jnp.cosh(y))))(x) ** 2),
    ),
    "rows of cosines": (3, lambda t, x: jnp.sum(jnp.tanh(V @ jnp.cos(x)))),
    "custom derivative": (1, lambda t, x: jnp.sum(jax.nn.softplus(x))),
    "mean": (1, lambda t, x: jnp.exp(jnp.mean(x))),
    "loop": (1, lambda t, x: jax.lax.fori_loop(0, 3, lambda _, v: v - 0.1 * v**3, _inner(x))),
    "constant": (0, lambda t, x: 3.0 * t),
    "linear": (1, lambda t, x: t * jnp.sum(x)),
}
DIFFUSIONS = {
    "scalar": Diagonal(0.7),
    "diagonal": Diagonal(RNG.uniform(0.5, 1, DIM)),
    "dense": Dense(np.tril(RNG.standard_normal((DIM, DIM))), None),
    "low rank": None,
}


def _low_rank():
    rng = np.random.default_rng(1)
    a, U = rng.uniform(0.5, 1, DIM), rng.standard_normal((DIM, 2))
    left, s, _ = np.linalg.svd(U / a[:, None] ** 0.5, full_matrices=False)
    return DiagonalPlusLowRank(a, U, left, np.sqrt(1 + s**2) - 1)


def _check(f, diffusion, dim=DIM, seed=0):
    """Value, residual and Laplacian along a path, against Hessians."""
    rng = np.random.default_rng(seed)
    x, e, t, r = rng.standard_normal(dim), rng.standard_normal(dim), 0.4, 0.3

    def path(t):
        return (r * t,), jnp.sqrt(2 * (1 - r) * t)

    S = np.asarray(diffusion.apply_sqrt(np.eye(dim))).T
    matrix = S @ S.T

    @jax.jit
    def compute(t, x, e):
        def along(t, x):
            times, shift = path(t)
            return f(*times, x + shift * e)

        times, shift = path(t)
        hessian, at_x = jax.hessian(along, 1)(t, x), jax.hessian(f, 1)(times[0], x)
        by_sums = (
            coordinate_sums.transport(f, times, x, shift, e),
            *coordinate_sums.transport_with_residual(f, path, t, x, e, diffusion),
            coordinate_sums.laplacian(f, (*times, x), diffusion),
        )
        rate = jax.grad(along)(t, x)
        trace, laplacian = jnp.sum(matrix * hessian), jnp.sum(matrix * at_x)
        size = jnp.sum(jnp.abs(matrix * hessian)) + jnp.sum(jnp.abs(matrix * at_x)) + jnp.abs(rate)
        value = along(t, x)
        return by_sums, (value, value, rate - trace, laplacian), size + jnp.abs(value) + 1e-3

    by_sums, wanted, size = compute(t, x, e)
    # Rounding: 1e-12 of the terms that are summed.
    np.testing.assert_allclose(by_sums, wanted, rtol=0, atol=1e-12 * float(size))


GENERAL = ("sum and radial", "few rows", "quadratic form")  # with every kind of diffusion


@pytest.mark.parametrize(
    ("name", "diffusion"),
    [(name, "dense") for name in REDUCIBLE]
    + [(name, kind) for name in GENERAL for kind in DIFFUSIONS if kind != "dense"],
)
def test_residuals_are_those_of_automatic_differentiation(name, diffusion):
    number, f = REDUCIBLE[name]
    matrix = _low_rank() if diffusion == "low rank" else DIFFUSIONS[diffusion]
    assert sum(CoordinateSums(f, (0.5,), DIM).sizes) == number
    _check(f, matrix)


@pytest.mark.parametrize("dim", [1, 2, 4, 5, 200])
def test_every_dimension(dim):
    _check(lambda t, x: jnp.exp(-x @ x / dim) + t * jnp.sum(jnp.sin(x)) ** 2, Diagonal(0.5), dim)


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (lambda t, x: jnp.prod(jnp.sin(x)), "reduce_prod mixes"),
        (lambda t, x: jnp.sum(jnp.tanh(W @ x)), "tanh mixes"),
        (lambda t, x: jnp.max(x), "reduce_max mixes"),
        (lambda t, x: jnp.cos(x)[0], "slice mixes"),
        (lambda t, x: jnp.sum(jnp.sin(x[:9] * jnp.sum(x))), "sin of a vector"),
        (lambda t, x: jnp.sum(jnp.sort(x)), "sort"),
        (lambda t, x: jnp.var(x), "shifted by a function of sums"),  # digits would be lost
        (lambda t, x: jnp.where(jnp.sum(x > 0) >= 5, 1.0, 0.0), "not of type float64"),
        (lambda t, x: jnp.real(jnp.sum(jnp.exp(1j * x))), "not of type float64"),
        (lambda t, x: jnp.sum(x.astype(jnp.float32)).astype(float), "not of type float64"),
    ],
)
def test_other_functions_are_refused_in_words(f, why):
    with pytest.raises(NotReducible, match=why):
        CoordinateSums(f, (0.5,), DIM)


def test_many_points_and_directions_are_one_matrix_product():
    """No array of shape (points, directions, dim) is made for quadratic sums."""

    def f(t, x):
        return jnp.log(1 + x @ x) * jnp.cos(A @ x)

    def entry(x, e):
        def path(t):
            return (t,), jnp.sqrt(2 * t)

        return coordinate_sums.transport_with_residual(
            f, path, jnp.asarray(0.3), x, e, Diagonal(1.0)
        )[1]

    both = jax.vmap(jax.vmap(entry, (None, 0)), (0, None))
    jaxpr = jax.make_jaxpr(both)(jnp.zeros((5, DIM)), jnp.zeros((7, DIM)))
    sizes = [np.prod(v.aval.shape) for e in jaxpr.jaxpr.eqns for v in e.outvars]
    assert max(sizes) < 5 * 7 * DIM


def _expressions(dim):
    """Random functions of (t, x): a head of random depth on random sums."""
    sums = st.sampled_from(
        [
            lambda t, x: x @ x / dim,
            lambda t, x: jnp.sum(x) / dim,
            lambda t, x: x[0],
            lambda t, x: jnp.sum(x[:-1] * x[1:]) / dim,
            lambda t, x: jnp.sum(jnp.sin(2 * x)) / dim,
            lambda t, x: jnp.mean(jnp.exp(-((x - t) ** 2))),
            lambda t, x: jnp.mean(jnp.cos(x) * x),
            lambda t, x: t * jnp.mean(x**3),
            lambda t, x: t,
        ]
    )
    unary = st.sampled_from(
        [jnp.sin, jnp.tanh, lambda v: jnp.exp(-(v**2)), lambda v: 1 / (2 + v * v)]
    )
    binary = st.sampled_from([jnp.add, jnp.multiply, jnp.subtract, jnp.arctan2])

    def extend(inner):
        return st.one_of(
            st.builds(lambda op, a: lambda t, x: op(a(t, x)), unary, inner),
            st.builds(
                lambda op, a, b: lambda t, x: op(a(t, x), 1.5 + b(t, x)), binary, inner, inner
            ),
        )

    return st.recursive(sums, extend, max_leaves=4)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data(), dim=st.sampled_from([1, 3, 6, 30]), seed=st.integers(0, 2**16))
def test_random_expressions(data, dim, seed):
    f = data.draw(_expressions(dim))
    _check(f, Diagonal(0.8), dim, seed)


def test_casts_to_integers_are_not_linear():
    """x - floor(x), written as a cast: an additive sum, not a polynomial."""

    def f(t, x):
        return jnp.sum((x - x.astype(int)) ** 2)

    x, e = jnp.asarray(3 * np.random.default_rng(0).standard_normal((2, DIM)))
    value = coordinate_sums.transport(f, (0.1,), x, jnp.asarray(0.7), e)
    np.testing.assert_allclose(value, f(0.1, x + 0.7 * e), rtol=1e-12)


def test_sums_of_squares_do_not_become_negative():
    """At the end of a path near the origin, |x + σe|² is rounding: the norm must not be NaN."""

    def f(t, x):
        return jnp.linalg.norm(x)

    for x in jnp.asarray(np.random.default_rng(0).standard_normal((50, 2))):
        assert np.isfinite(coordinate_sums.transport(f, (0.1,), x, jnp.asarray(0.7), -x / 0.7))


def test_modules_with_any_field_are_no_trouble():
    class Data(eqx.Module):
        table: dict
        scale: np.ndarray

        def __call__(self, x):
            return self.scale * jnp.sum(x) ** self.table["power"]

    f = Data({"power": 2}, np.asarray(0.5))
    direct = 0.5 * jnp.sum(jnp.arange(9.0) + 2) ** 2
    ends = jnp.arange(9.0), jnp.asarray(2.0), jnp.ones(9)
    candidate = FunctionWithLaplacian(Function(f), NO_LAPLACIAN)
    np.testing.assert_allclose(candidate.transport((), *ends), direct, rtol=1e-14)


def test_a_large_head_needs_memory():
    """The largest array of the head counts, for tiles that fit into memory."""
    nodes = np.linspace(0, 1, 2000)
    shapes = [jax.ShapeDtypeStruct((100,), jnp.float64)]
    found = coordinate_sums.describe(lambda x: jnp.sum(jnp.cos(nodes * (x @ x))), shapes)
    assert found == (False, 2000)
    assert CoordinateSumsMethod(*found).workspace(100, 1) >= 24 * 2000


def test_a_wrong_form_fails_the_check_of_the_solve():
    """The check once per solve compares values along a path: break the mixed term and see."""
    with mock.patch.object(
        coordinate_sums._QuadraticAlong, "components", lambda self, shift: self.value
    ):
        chosen, reasons = select_method("initial", Function(_inner), (np.arange(1.0, 7.0),))
    assert chosen.method.name == "folx sparse"
    assert "coordinate sums: " in reasons[0]


@pytest.mark.parametrize("size", [1.0, 1e5, 1e7, 1e8])
def test_fast_sines_of_large_numbers(size):
    x = size * np.random.default_rng(0).uniform(-1, 1, 1000)
    for name in ("sin", "cos"):
        fast = np.asarray(getattr(elementary, name)(jnp.asarray(x)))
        # The argument itself is rounded to eps |x|: no more is lost.
        allowed = np.finfo(float).eps * np.maximum(4.0, np.abs(x))
        assert np.all(np.abs(fast - getattr(np, name)(x)) <= allowed)


def test_infinite_values_stay_infinite():
    """A pole on the path: what automatic differentiation gives, not a finite number."""

    def f(t, x):
        return 1 / (x @ x)

    x = jnp.zeros(DIM)
    assert not np.isfinite(coordinate_sums.transport(f, (0.1,), x, jnp.zeros(()), x))
