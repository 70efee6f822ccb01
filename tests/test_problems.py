"""Named problems satisfy their equation, and their closed-form Laplacians are right."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import heatnets as hn
from heatnets._core import elementary

pytestmark = pytest.mark.usefixtures("unoptimised", "x64")
PARAMETERS = {
    "forced-sine": [{}],
    "product-of-sines": [{"dim": 1}, {"dim": 4, "diffusion": 0.4}],
    "oscillating": [{"dim": 1}, {"dim": 6, "diffusion": 0.3, "wavenumber": 1.5}],
    "nonseparable": [
        {"dim": 1},
        {"dim": 2, "alpha": 0.5},
        {"dim": 7, "diffusion": 0.6, "alpha": 2.0, "beta": 0.7},
    ],
}
PARAMETERS |= {
    name: [{"dim": 2}, {"dim": 5}]
    for kind in ("linear", "variable", "semilinear", "finance")
    for name in hn.problems.names(kind)
}
DEFAULT = [{"dim": 2, "diffusion": 1.3}, {"dim": 5, "diffusion": 0.4}]
CASES = [
    pytest.param(name, p, id=f"{name}-{i}")
    for name in hn.problems.names()
    for i, p in enumerate(PARAMETERS.get(name, DEFAULT))
]


@pytest.mark.parametrize(("name", "parameters"), CASES)
def test_the_exact_solution_solves_the_equation(name, parameters):
    problem = hn.problems.get(name, **parameters)
    if problem.exact is None:
        assert name in (
            "arithmetic-basket",
            "max-call",
            "default-risk",
            "allen-cahn",
            "sine-gordon",
            "rational",
        )
        return
    # In coordinates where nothing is left but scatter and source; those of heat problems are the
    # user's own.
    plain, frame = problem.canonical, problem.transform
    S = plain.diffusion.apply_sqrt(np.eye(problem.dim)).T
    A = S @ S.T

    def v(s, y):
        t, x = frame.from_canonical(s, y)
        return problem.exact(t, x) / frame.value_scale(t)

    def operator(s, y):
        if plain.coefficients is None:
            return jnp.sum(A * jax.hessian(lambda z: v(s, z))(y))
        given, (t, x) = plain.coefficients, frame.from_canonical(s, y)  # as the user wrote it

        def flux(z):
            a = given.diffusion(t, z) if callable(given.diffusion) else jnp.ones(())
            return a * jax.grad(lambda q: v(s, q))(z)

        slope, hessian = jax.grad(lambda z: v(s, z))(y), jax.hessian(lambda z: v(s, z))(y)
        trace = jnp.sum(
            (given.diffusion(t, x) if callable(given.diffusion) else 1.0) * jnp.diagonal(hessian)
        )
        second = jnp.trace(jax.jacfwd(flux)(y)) if given.divergence else trace
        c = given.reaction(t, x) if callable(given.reaction) else given.reaction
        return second + given.drift(t, x) @ slope + c * v(s, y)

    @jax.jit
    def sides(s, y):
        left = jax.jacfwd(lambda r: v(r, y))(s) - operator(s, y)
        right = plain.source(s, y, v(s, y), jax.grad(lambda z: v(s, z))(y))
        return left, right, v(jnp.zeros(()), y), plain.initial(y)

    region = problem.transform_region(
        hn.Box(80.0, 120.0) if name == "geometric-basket" else problem.region
    )
    rng = np.random.default_rng(0)
    for s, y in zip(
        *region.at_fractions(
            1 - rng.random(5), problem.horizon, region.sample(rng, 5, problem.dim)
        ),
        strict=True,
    ):
        left, right, start, initial = sides(s, y)
        size = abs(initial) if name == "barenblatt" else 1.0
        np.testing.assert_allclose(
            left, right, rtol=1e-11, atol=1e-12 * size if name != "geometric-basket" else 1e-9
        )
        np.testing.assert_allclose(
            start,
            initial,
            rtol=1e-14 if not frame.changes and name != "hamilton-jacobi" else 1e-12,
            atol=1e-15,
        )  # an integral


@pytest.mark.parametrize(("name", "parameters"), CASES)
def test_closed_form_laplacians(name, parameters):
    problem = hn.problems.get(name, **parameters)
    if problem.initial.laplacian is None:
        assert name == "kinked-ridge" or name not in hn.problems.names("heat")
        return
    t, x = (jnp.asarray(a[0]) for a in hn.random_points(problem, 1, seed=3))
    hessian = jax.jit(jax.hessian(problem.initial))(x)
    np.testing.assert_allclose(
        jax.jit(lambda y: problem.initial.laplacian(y))(x),
        jnp.trace(hessian),
        rtol=1e-11,
        atol=1e-12,
    )
    if problem.source is not None and not problem.canonical.source.uses_u:
        wanted = jnp.trace(jax.jit(jax.hessian(lambda y: problem.source(t, y)))(x))
        np.testing.assert_allclose(problem.source.laplacian(t, x), wanted, rtol=1e-10, atol=1e-11)


def test_sine_and_cosine():
    x = np.concatenate(
        [
            np.random.default_rng(0).uniform(-1e4, 1e4, 20000),
            np.arange(-40, 41) * np.pi / 4,
            [0.0, 1e-300],
        ]
    )
    for name in ("sin", "cos"):
        wanted = getattr(np, name)(x.astype(np.longdouble))
        assert float(np.max(np.abs(np.asarray(getattr(elementary, name)(x)) - wanted))) < 2.3e-16
    second = jax.vmap(jax.grad(jax.grad(elementary.sin)))(jnp.asarray(x))
    np.testing.assert_allclose(second, -np.sin(x), atol=3e-16)


def test_laplacians_can_be_left_out():
    problem = hn.problems.get("nonseparable", dim=3, closed_form=False)
    assert problem.initial.laplacian is None
    assert problem.source.laplacian is None


def test_relative_errors_are_the_papers():
    errors = hn.relative_errors([1.0, 2.0, 4.0], [1.0, 2.5, 3.0])
    np.testing.assert_allclose(
        errors, [1.5 / 6.5, np.sqrt(0.25 + 1) / np.sqrt(1 + 6.25 + 9), 1.0 / 3.0]
    )
    with pytest.raises(hn.InputError, match="one shape"):
        hn.relative_errors([1.0], [1.0, 2.0])
    with pytest.raises(hn.InputError, match="zero at every point"):
        hn.relative_errors([1.0], [0.0])


def test_measuring_needs_an_exact_solution():
    problem = hn.Problem(dim=2, horizon=1.0, initial=lambda x: x[0])
    with pytest.raises(hn.InputError, match="no exact solution"):
        hn.exact_values(problem, 0.1, [0.0, 0.0])


class Bell(eqx.Module):
    """exp(-|x|²/width)."""

    width: np.ndarray

    def __call__(self, x):
        return jnp.exp(-x @ x / self.width)


def test_a_module_with_arrays_and_a_source_of_the_gradient():
    """Equinox warns of transformed functions with arrays inside; none must be made of u0."""
    problem = hn.Problem(
        dim=2, horizon=0.1, initial=Bell(np.asarray(2.0)), source=lambda t, x, u, du: du @ du
    )
    assert problem.warnings == ()
