"""Functions of a problem called by a user: float64, whatever JAX is set to."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import heatnets as hn

X = np.array([0.1, -0.2, 0.3])


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("name", ["oscillating", "hamilton-jacobi", "burgers"])
def test_data_and_exact_solutions_are_computed_in_float64(name, double):
    problem = hn.problems.get(name, dim=3)
    t = 0.3 * problem.horizon
    with jax.enable_x64(double):
        values = [problem.exact(t, X), problem.initial(X), problem.exact(t, jnp.asarray(X))]
    assert all(np.asarray(v).dtype == np.float64 for v in values)
    assert float(values[0]) == pytest.approx(float(hn.exact_values(problem, t, X)), rel=1e-15)
    with jax.enable_x64(True):
        assert float(values[1]) == float(problem.initial(X))


def test_a_trace_of_the_user_keeps_its_precision():
    problem = hn.problems.get("oscillating", dim=3)
    with jax.enable_x64(False):
        assert jax.jit(lambda x: problem.initial(x))(X).dtype == jnp.float32
        assert jax.vmap(problem.initial)(jnp.ones((2, 3))).shape == (2,)


@pytest.mark.parametrize(
    "call",
    [
        lambda p: hn.montecarlo.transformed(p, 0.1, X, samples=16),
        lambda p: hn.solve(p, features=(2, 2), rows=(2, 0)),
    ],
    ids=["montecarlo", "solve"],
)
def test_warnings_point_at_the_line_of_the_user(call):
    with pytest.warns(hn.HeatnetsWarning) as shown:
        call(hn.problems.get("oscillating", dim=3))
    line = (__file__, call.__code__.co_firstlineno)
    assert {(warning.filename, warning.lineno) for warning in shown} == {line}


def test_a_function_that_reads_other_values_now_is_another_function():
    # JAX keeps the programs of a function by its identity.
    def value(problem):
        u = hn.solve(problem, features=(8, 0), rows=(64, 0))
        sure = u.certify(0.3, [0.0, 0.0], samples=256)
        assert abs(u(0.3, [0.0, 0.0]) / exact - 1) < 0.1
        assert sure.certified
        assert sure.low <= exact <= sure.high
        return u

    strike = 1.0

    def data(x):
        return strike * jnp.sum(jnp.cos(x))

    for strike in (1.0, 2.0):
        exact = strike * 2 * np.exp(-0.3)
        problem = hn.Problem(2, 0.3, data)
        u = value(problem)
    assert hn.Problem(2, 0.3, data).initial == problem.initial  # programs are shared
    strike = 3.0
    for call in (lambda: hn.solve(problem), lambda: u.certify(0.3, [0.0, 0.0])):
        with pytest.raises(hn.InputError, match="`initial` reads a value from outside that has"):
            call()


@dataclasses.dataclass
class Plain:
    """A callable object that is not hashable."""

    size: float

    def __call__(self, x):
        return self.size * jnp.sum(jnp.cos(x))


@pytest.mark.usefixtures("unoptimised")
def test_a_callable_object_may_be_unhashable_and_change():
    data = Plain(1.0)
    for data.size in (1.0, 2.0):
        u = hn.solve(hn.Problem(2, 0.3, data), features=(8, 0), rows=(64, 0))
        assert abs(u(0.3, [0.0, 0.0]) / (data.size * 2 * np.exp(-0.3)) - 1) < 0.1
