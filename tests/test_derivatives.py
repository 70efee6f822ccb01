"""Each method of the Laplacian against a brute-force Hessian."""

from __future__ import annotations

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import heatnets as hn
from heatnets.pde.function import Function
from heatnets.pde.laplacian import (
    CLOSED_FORM,
    METHODS,
    NO_LAPLACIAN,
    FolxSparse,
    FunctionWithLaplacian,
    gradient,
)
from heatnets.pde.laplacian_choice import select_method
from heatnets.pde.sum_finder import NotReducible

pytestmark = pytest.mark.usefixtures("x64")


def scanned(x):
    return jax.lax.scan(lambda c, xi: (c + 0.1 * c * jnp.sin(xi) + xi, None), jnp.ones(()), x)[0]


def looped(x):
    return jax.lax.while_loop(
        lambda c: c[0] < 3,
        lambda c: (c[0] + 1, c[1] * jnp.sin(x[0]) + x[-1] ** 2),
        (0, jnp.ones(())),
    )[1]


def quadratic(x):
    A = np.arange(x.size**2).reshape(x.size, x.size) / x.size**2
    return x @ A @ x


FUNCTIONS = {
    "sines": lambda x: jnp.sum(jnp.sin(2 * x)),
    "radial": lambda x: jnp.exp(-x @ x / x.size),
    "product": lambda x: jnp.prod(jnp.cos(x)),
    "neighbours": lambda x: jnp.sum(x[:-1] * x[1:]) + x[0] ** 3,
    "network": lambda x: jnp.sum(jnp.tanh(np.linspace(-1, 1, 4 * x.size).reshape(4, x.size) @ x)),
    "quadratic": quadratic,
    "constant": lambda x: 2.0,
    "linear": lambda x: jnp.sum(x),
    "scan": scanned,
    "while": looped,
    "cond": lambda x: jax.lax.cond(x[0] > 0, lambda y: y @ y, lambda y: jnp.sum(y**3), x),
}


def brute_force(f, x):
    return np.trace(jax.jit(jax.jacfwd(jax.jacfwd(lambda y: jnp.asarray(f(y), float))))(x))


@pytest.mark.parametrize("dim", [1, 2, 3, 20])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_chosen_rung_matches_the_hessian(name, dim):
    x = np.random.default_rng(dim).standard_normal(dim)
    chosen, _ = select_method("initial", Function(FUNCTIONS[name]), (x,))
    wanted = brute_force(FUNCTIONS[name], x)
    np.testing.assert_allclose(
        jax.jit(chosen.laplacian)(jnp.asarray(x)), wanted, rtol=1e-11, atol=1e-12
    )


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("name", ["sines", "radial", "product", "neighbours", "network"])
def test_every_rung_matches_the_hessian(name, method):
    x = jnp.asarray(np.random.default_rng(5).standard_normal(40))
    f = FUNCTIONS[name]
    function = Function(f, laplacian=lambda y: jnp.trace(jax.hessian(f)(y)))
    if method.name == "coordinate sums" and name == "product":
        with pytest.raises(NotReducible, match="reduce_prod mixes coordinates"):
            FunctionWithLaplacian(function, method).laplacian(x)
        return
    np.testing.assert_allclose(
        jax.jit(FunctionWithLaplacian(function, method).laplacian)(x),
        brute_force(FUNCTIONS[name], x),
        rtol=1e-11,
        atol=1e-12,
    )


def test_only_a_method_gives_a_laplacian():
    function = Function(FUNCTIONS["sines"])
    with pytest.raises(TypeError, match="`method` must be a Method, for example of METHODS"):
        FunctionWithLaplacian(function, "folx")
    with pytest.raises(NotImplementedError, match="no method for this Laplacian was chosen"):
        FunctionWithLaplacian(function, NO_LAPLACIAN).laplacian(jnp.ones(3))


def test_the_ladder_goes_down_only_where_it_must():
    x = np.ones(40)
    assert (
        select_method(
            "initial",
            Function(FUNCTIONS["sines"], laplacian=lambda x: -4 * jnp.sum(jnp.sin(2 * x))),
            (x,),
        )[0].method
        is CLOSED_FORM
    )
    for name, dim, method in (
        ("sines", 40, "coordinate sums"),
        ("radial", 40, "coordinate sums"),
        ("sines", 3, "coordinate sums"),
        ("product", 40, "folx sparse"),
        ("product", 5, "folx sparse"),  # folx wants threshold < d
    ):
        chosen, _ = select_method("initial", Function(FUNCTIONS[name]), (x[:dim],))
        assert chosen.method.name == method
    down, reasons = select_method("initial", Function(scanned), (x,))
    assert down.method.name == "second-order JVPs"
    assert len(reasons) == 3
    assert reasons[0] == "coordinate sums: NotReducible: scan mixes coordinates"


def test_folx_stays_silent(capfd, caplog):
    with caplog.at_level(logging.WARNING):
        select_method("initial", Function(FUNCTIONS["cond"]), (np.ones(5),))
        select_method("initial", Function(scanned), (np.ones(5),))
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


@pytest.mark.parametrize(
    "dim", [3, 5000]
)  # the check sums all second derivatives, or samples directions
def test_a_wrong_laplacian_is_refused(dim):
    with pytest.raises(
        hn.InputError,
        match=r"`initial`'s laplacian must be the Laplacian.*second derivatives sum to",
    ):
        select_method(
            "initial",
            Function(FUNCTIONS["sines"], laplacian=lambda x: -2 * jnp.sum(jnp.sin(2 * x))),
            (np.linspace(0, 1, dim),),
        )
    chosen, _ = select_method(
        "initial",
        Function(FUNCTIONS["sines"], laplacian=lambda x: -4 * jnp.sum(jnp.sin(2 * x))),
        (np.linspace(0, 1, dim),),
    )
    assert chosen.method is CLOSED_FORM


@pytest.mark.parametrize("size", [1.0, 1e-20])
def test_a_wrong_laplacian_of_small_data_is_refused(size):
    with pytest.raises(hn.InputError, match="second derivatives sum to"):
        select_method(
            "initial",
            Function(lambda x: size * jnp.prod(jnp.sin(3 * x)), laplacian=lambda x: 0.0 * x[0]),
            (np.full(60, 0.9),),
        )


@jax.custom_jvp
def called_back(x):
    shape = jax.ShapeDtypeStruct((), x.dtype)
    return jax.pure_callback(lambda y: np.sum(np.sin(y)), shape, x, vmap_method="sequential")


@called_back.defjvp
def _(points, tangents):
    (x,), (v,) = points, tangents
    slope = jax.pure_callback(np.cos, x, x, vmap_method="sequential")
    return called_back(x), slope @ v


def test_a_function_with_first_derivatives_only_is_refused():
    """A Laplacian in closed form does not help: there is nothing to check it with."""
    function = Function(called_back, laplacian=lambda x: -called_back(x))
    message = (
        r"differentiate `initial` 2 times; it raised ValueError: Pure callbacks.*\(test_deriv.*"
        r"custom_jvp rule that JAX can differentiate"
    )
    with pytest.raises(hn.InputError, match=message):
        select_method("initial", function, (np.ones(3),))
    with pytest.raises(hn.InputError, match=message):
        hn.solve(hn.Problem(dim=3, horizon=0.5, initial=function), features=(8, 0))


def test_time_is_held_in_the_laplacian_and_moves_in_along():
    f = FunctionWithLaplacian(Function(lambda t, x: t**3 * jnp.sum(x**4)), FolxSparse())
    t, x, v = jnp.asarray(0.7), jnp.asarray([1.0, -2.0, 0.5]), jnp.asarray([0.3, 0.1, -1.0])
    np.testing.assert_allclose(f.laplacian(t, x), t**3 * 12 * jnp.sum(x**2), rtol=1e-14)
    value, change = f.jvp((t, x), (jnp.asarray(2.0), v))
    np.testing.assert_allclose(value, t**3 * jnp.sum(x**4), rtol=1e-14)
    np.testing.assert_allclose(
        change, 2 * 3 * t**2 * jnp.sum(x**4) + t**3 * 4 * jnp.sum(x**3 * v), rtol=1e-14
    )


def test_gradient_without_reverse_mode():
    x = jnp.asarray([0.3, -0.2, 0.5])
    np.testing.assert_allclose(gradient(looped, x), jax.jacfwd(looped)(x))
    np.testing.assert_allclose(
        gradient(FUNCTIONS["radial"], x), -2 * x / 3 * jnp.exp(-x @ x / 3), rtol=1e-14
    )
