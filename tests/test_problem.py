"""Every message: which argument, what was wanted, what came, what to do. And what is accepted."""

from __future__ import annotations

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import heatnets as hn
from heatnets.pde.function_values import format_points


def smooth(x):
    return jnp.sum(jnp.sin(x))


GOOD = {"dim": 3, "horizon": 0.5, "initial": smooth}


def branch(x):
    return x[0] if x[0] > 0 else -x[0]


def broken(x):
    return x @ jnp.ones(7)


BAD = [
    ({"dim": 0}, r"`dim` must be a whole number >= 1; got 0"),
    ({"dim": 2.5}, r"`dim` must be a whole number"),
    ({"dim": True}, r"`dim` must be a whole number"),
    ({"horizon": 0.0}, r"`horizon` must be one finite number > 0; got 0.0"),
    ({"horizon": -1}, r"`horizon` must be"),
    ({"horizon": float("nan")}, r"`horizon` must be .* got nan"),
    ({"horizon": "soon"}, r"`horizon` must be .* got 'soon'"),
    ({"diffusion": 0.0}, r"`diffusion` must be .* D in u_t"),
    ({"diffusion": -2.0}, r"`diffusion` must be"),
    ({"diffusion": np.ones(4)}, r"`diffusion` must fit 3 coordinates; got shape \(4,\)"),
    (
        {"diffusion": np.array([1.0, -1.0, 2.0])},
        r"`diffusion` must be > 0 in every coordinate; it is -1 in coordinate 1",
    ),
    (
        {"diffusion": np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])},
        r"`diffusion` must be positive definite; its eigenvalues lie between -1 and 3",
    ),
    ({"diffusion": np.eye(3) + np.eye(3, k=1)}, r"`diffusion` must be a symmetric matrix"),
    ({"diffusion": np.ones((3, 3, 3))}, r"`diffusion` must be a number, a vector or a matrix"),
    ({"diffusion": np.eye(4)}, r"`diffusion` must fit 3 coordinates"),
    ({"diffusion": np.array([1.0, np.nan, 1.0])}, r"finite"),
    ({"diffusion": lambda x: 1.0}, r"`diffusion` must take 2 argument\(s\), \(t, x\)"),
    ({"drift": np.ones(2)}, r"`drift` must be one finite number, or one for each of 3 coordinates"),
    (
        {"process": hn.OrnsteinUhlenbeck(0.5, mean=lambda t, x: x)},
        r"`mean` must be a vector of 3 numbers; got a function",
    ),
    ({"reaction": np.ones(2)}, r"`reaction` must be one number, c in c u"),
    ({"reaction": lambda x: 1.0}, r"`reaction` must take 2 argument\(s\), \(t, x\)"),
    (
        {"terminal": lambda x: x[0]},
        r"`initial` \(u at t = 0\) or `terminal` \(u at t = horizon\); got both",
    ),
    ({"initial": None}, r"or `terminal` \(u at t = horizon\); got neither"),
    ({"process": "brownian"}, r"`process` must be hn.GeometricBrownian"),
    ({"diffusion": np.ones((3, 2))}, r"`diffusion` must be a square matrix; got shape \(3, 2\)"),
    ({"diffusion": np.complex128(1 + 1j)}, r"`diffusion` must be made of finite real numbers"),
    ({"diffusion": [[1.0, 2.0], [1.0]]}, r"`diffusion` must be made of finite real numbers"),
    ({"drift": "3"}, r"`drift` must be made of finite real numbers; got '3'"),
    ({"reaction": float("nan")}, r"`reaction` must be made of finite real numbers; got nan"),
    ({"reaction": 1000.0}, r"`reaction` times `horizon` must be at most 100 in size"),
    (
        {"process": hn.OrnsteinUhlenbeck("a")},
        r"`rate` must be made of finite real numbers; got 'a'",
    ),
    (
        {"process": hn.OrnsteinUhlenbeck(40.0)},
        r"`rate` times `horizon` must be at most 15 in size .*; got 20",
    ),
    (
        {"process": hn.OrnsteinUhlenbeck(4.0), "source": lambda t, x: x[0]},
        r"`rate` times `horizon` must be at most 1 in size .*source",
    ),
    (
        {"process": hn.GeometricBrownian(0.2, correlation="a"), "region": hn.Box(1.0, 2.0)},
        r"`correlation` must be made of finite real",
    ),
    (
        {"process": hn.GeometricBrownian(0.2), "region": hn.Normal(1.0, 0.01)},
        r"`region` must lie in positive coordinates",
    ),
    (
        {"process": hn.GeometricBrownian(0.2), "region": hn.Box(0.0, 0.1)},
        r"`region` must lie in positive coordinates",
    ),
    ({"process": hn.OrnsteinUhlenbeck(1.0), "drift": 1.0}, r"leave `diffusion` and `drift` out"),
    ({"process": hn.OrnsteinUhlenbeck(0.0)}, r"`rate` must be one finite number, not zero"),
    ({"process": hn.GeometricBrownian(0.2)}, r"`region` must lie in positive coordinates"),
    (
        {"process": hn.GeometricBrownian(-0.2), "region": hn.Box(1.0, 2.0)},
        r"`volatility` must be > 0",
    ),
    (
        {"process": hn.GeometricBrownian(0.2, correlation=np.eye(2)), "region": hn.Box(1.0, 2.0)},
        r"`correlation` must be one number, or",
    ),
    (
        {"process": hn.GeometricBrownian(0.2, correlation=-1.5), "region": hn.Box(1.0, 2.0)},
        r"`correlation` must be positive definite",
    ),
    ({"initial": 3.0}, r"`initial` must be a function of \(x\); got 3.0.*lambda x"),
    (
        {"initial": lambda x: jnp.sin(x)},
        r"`initial` must return a scalar; for x of shape \(3,\) it returned shape \(3,\). Sum over",
    ),
    ({"initial": lambda x: 1}, r"`initial` must return a real float; it returned int.*1.0"),
    (
        {"initial": lambda x: jnp.sum(jnp.exp(1j * x))},
        r"`initial` must return a real number; it returned complex128.*jnp.real",
    ),
    ({"initial": lambda x: (x[0], x[1])}, r"`initial` must return one scalar; .* 2 arrays"),
    (
        {"initial": lambda x: math.sin(x[0])},
        r"`initial` must be traceable.*jnp.sin in place of math.sin",
    ),
    (
        {"initial": lambda x: math.sin(x)},
        r"`initial` must be traceable.*jnp.sin in place of math.sin",
    ),
    ({"initial": branch}, r"`initial` must be traceable.*branches.*test_problem.py:\d+.*jnp.where"),
    ({"initial": lambda x: np.sin(x).sum()}, r"`initial` must be traceable.*NumPy.*jnp.sin"),
    (
        {"initial": broken},
        r"`initial` must be computable for x of shape \(3,\); it raised TypeError",
    ),
    ({"initial": lambda x: {}["key"]}, r"`initial` must be computable .* KeyError"),
    (
        {"initial": lambda t, x: x[0]},
        r"`initial` must take 1 argument\(s\), \(x\); it takes 2 required one\(s\), \(t, x\)",
    ),
    ({"initial": lambda: 1.0}, r"`initial` must take 1 argument"),
    (
        {"initial": lambda x: jnp.sum(jnp.sqrt(x))},
        r"`initial` must be finite.* it was nan at \d+ of 512 probe points, for example x = \[",
    ),
    ({"initial": lambda x: jnp.log(x[0] + 1.5)}, r"`initial` must be finite.*leave the region"),
    (
        {"source": lambda x: x[0]},
        r"`source` must be a function of \(t, x\), \(t, x, u\) or .*; "
        r"its required parameters are \(x\)",
    ),
    (
        {"source": lambda x, t: x[0]},
        r"`source` must be a function of \(t, x\); its parameters are \(x, t\). Time comes first",
    ),
    (
        {"initial": lambda x: jnp.sum(x[jnp.array([0, 7])])},
        r"`initial` must stay inside x, which has shape \(3,\).*IndexError",
    ),
    (
        {"initial": lambda x: x[5]},
        r"`initial` must stay inside x, which has shape \(3,\).*IndexError",
    ),
    (
        {"source": lambda t, x, u, du, more: u},
        r"`source` must be a function of .*; its required parameters are \(t, x, u, du, more\)",
    ),
    ({"source": lambda t, x: x}, r"`source` must return a scalar"),
    ({"source": lambda t, x: jnp.sum(x) / (t - t)}, r"`source` must be finite.*t = "),
    ({"region": 1.0}, r"`region` must be hn.Box, hn.Point or hn.Normal; got 1.0"),
    (
        {"region": hn.Box([0.0, 0.0], [1.0, 1.0])},
        r"`region` must be a region of R\^3; this Box has 2 coordinates",
    ),
    (
        {"region": hn.Point([0.0])},
        r"`region` must be a region of R\^3; this Point has 1 coordinates",
    ),
    ({"region": hn.Normal(np.zeros(4))}, r"`region` must be a region of R\^3; this Normal has 4"),
    ({"exact": lambda x: x[0]}, r"`exact` must take 2 argument"),
    (
        {"source": lambda x, t, u: u},
        r"function of \(t, x, u\); its parameters are \(x, t, u\)\. .*lambda t, x, u: ",
    ),
    ({"source": lambda x, u: u}, r"its parameters are \(x, u\)\. .*lambda t, x, u: "),
    ({"source": lambda t, x, du, u: u}, r"its parameters are \(t, x, du, u\)\. .*u, du: "),
    ({"exact": lambda x, t: x[0]}, r"`exact` must be a function of \(t, x\).*lambda t, x: "),
    (
        {"source": lambda t, x, u=0.0: u},
        r"`source` gives its argument u a default value.* lambda t, x, u: \.\.\. without it",
    ),
    ({"barrier": 80.0}, r"no argument `barrier`: barriers are not supported: .*`terminal` gives"),
    ({"american": True}, r"no argument `american`: early exercise is not .*European.*Longstaff"),
    ({"boundary": "dirichlet"}, r"boundary conditions are not supported\. .*all of R\^d; `region`"),
    ({"boundary_conditions": 0}, r"boundary conditions are not supported"),
    ({"T": 1.0}, r"`Problem` has no argument `T`: write horizon\."),
    ({"sigma": 0.2}, r"no argument `sigma`: write diffusion, σ²/2 for dX = σ dW; or process"),
    ({"terminals": smooth}, r"`Problem` has no argument `terminals`: did you mean 'terminal'\?"),
]


@pytest.mark.parametrize(
    ("change", "message"), BAD, ids=[f"{i}-{next(iter(c))}" for i, (c, _) in enumerate(BAD)]
)
def test_bad_problems_are_refused_in_words(change, message):
    with pytest.raises(hn.InputError, match=message):
        hn.Problem(**{**GOOD, **change})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hn.Box(1.0, -1.0), r"`Box` needs low < high"),
        (lambda: hn.Box([0, 0], [1, 1, 1]), r"bounds of one length"),
        (lambda: hn.Box(0.0, float("inf")), r"`Box` needs a finite number"),
        (lambda: hn.Box("a", 1.0), r"`Box` needs a finite number"),
        (lambda: hn.Point(0.0), r"shape \(dim,\).*hn.Point\(\[0.0\]\)"),
        (lambda: hn.Normal(0.0, 0.0), r"`Normal` needs std > 0.*hn.Point"),
        (lambda: hn.Function(3), r"`function` must be a function"),
        (lambda: hn.Function(smooth, laplacian=2.0), r"`laplacian` must be a function"),
        (lambda: hn.problems.get("nothing"), r"`name` must be one of 'forced-sine'.*got 'nothing'"),
        (
            lambda: hn.problems.get("oscillating", dims=3),
            r"takes the parameters dim, horizon.*got 'dims'",
        ),
        (
            lambda: hn.problems.get("oscillating", diffusion="a"),
            r"`diffusion` must be one finite number > 0; got 'a'",
        ),
        (lambda: hn.problems.get("oscillating", dim=0), r"`dim` must be"),
    ],
)
def test_bad_pieces_are_refused_in_words(make, message):
    with pytest.raises(hn.InputError, match=message):
        make()


def test_arity_counts_required_positional_parameters():
    hn.Problem(**{**GOOD, "initial": lambda x, scale=2.0: scale * smooth(x)})
    hn.Problem(**{**GOOD, "initial": functools.partial(lambda a, x: a * smooth(x), 2.0)})
    hn.Problem(
        **{**GOOD, "source": hn.Function(lambda *args: args[0] * smooth(args[1]), arguments="t x")}
    )


def test_arguments_that_are_named_settle_the_doubt():
    source = hn.Function(lambda t, x, u=2.0: u * smooth(x), arguments="t x")
    assert hn.Problem(**{**GOOD, "source": source}).source.function is source.function


def test_prices_that_are_not_discounted_get_a_hint():
    def price(**changes):
        assets = hn.GeometricBrownian(0.2, changes.pop("growth", 0.03))
        fields = {"terminal": smooth, "process": assets, "region": hn.Point([1.0] * 3)}
        return hn.Problem(3, 1.0, **{**fields, **changes}).warnings

    with pytest.warns(hn.HeatnetsWarning, match=r"not discounted. .*write reaction=-0.03; react"):
        price()
    assert not price(reaction=-0.03)
    assert not price(reaction=0)
    assert not price(growth=0.0)
    assert not price(source=lambda t, x, u: -0.03 * u)
    assert not price(terminal=None, initial=smooth)


def test_float32_constants_are_pointed_out_by_name():
    coefficients = jnp.asarray([0.1, 0.2, 0.3], jnp.float32)
    with pytest.warns(
        hn.HeatnetsWarning, match=r"`initial` captures.*`coefficients` \(float32, shape \(3,\)\)"
    ):
        hn.Problem(**{**GOOD, "initial": lambda x: jnp.sum(coefficients * x)})


def test_float32_fields_of_a_module_are_pointed_out_by_name():
    class Wave(eqx.Module):
        heights: jax.Array

        def __call__(self, x):
            return jnp.sum(self.heights * jnp.sin(x))

    with pytest.warns(hn.HeatnetsWarning, match=r"`heights` \(float32"):
        hn.Problem(**{**GOOD, "initial": Wave(jnp.full(3, 0.1, jnp.float32))})
    hn.Problem(**{**GOOD, "initial": Wave(np.ones(3))})  # no warning, which would be an error here


def test_a_cast_inside_is_pointed_out():
    with pytest.warns(hn.HeatnetsWarning, match="`initial` returns float32"):
        hn.Problem(**{**GOOD, "initial": lambda x: jnp.sum(x.astype(jnp.float32))})


def test_an_exact_solution_that_starts_elsewhere_is_pointed_out():
    with pytest.warns(hn.HeatnetsWarning, match="`exact` at t = 0 differs"):
        hn.Problem(**GOOD, exact=lambda t, x: 2.0 * smooth(x))


def test_a_problem_does_not_change():
    problem = hn.Problem(**GOOD)
    with pytest.raises(AttributeError, match="make a new one"):
        problem.horizon = 2.0


def test_points_accept_one_or_many_and_refuse_the_rest():
    problem = hn.Problem(**GOOD)
    assert problem.as_points(0.1, [0, 0, 0])[2]
    assert problem.as_points([0.1, 0.2], np.zeros(3))[1].shape == (2, 3)
    assert problem.as_points(0.1, np.zeros((5, 3)))[0].shape == (5,)
    for t, x, message in [
        (0.1, np.zeros(2), r"`x` must have shape \(3,\) or \(n, 3\); got shape \(2,\)"),
        (0.1, 0.0, r"`x` must have shape"),
        (np.zeros(4), np.zeros((5, 3)), r"`t` must be one number or one per point"),
        (0.6, np.zeros(3), r"`t` must lie in \[0, 0.5\]; got 0.6"),
        (-0.1, np.zeros(3), r"`t` must lie in"),
        (0.1, [0, np.nan, 0], r"`x` must be finite; 1 of 3"),
        ("now", np.zeros(3), r"`t` must be numbers"),
        (0.1, np.zeros((0, 3)), r"`x` holds no points"),
        ([], np.zeros(3), r"`x` holds no points"),
    ]:
        with pytest.raises(hn.InputError, match=message):
            problem.as_points(t, x)


def test_points_of_a_traced_call_are_refused_in_words():
    problem = hn.Problem(**GOOD)
    with pytest.raises(hn.InputError, match="Inside jax.jit"):
        jax.jit(lambda x: problem.as_points(0.1, x))(jnp.zeros(3))


def test_points_that_differ_are_told_apart():
    def texts(*x):
        return format_points([(0.5, np.array(row)) for row in x])

    zero, unit = np.zeros(7), np.eye(7)
    assert texts(zero) == ["t = 0.5, x = [0, 0, 0, 0, ...]"]
    assert texts(zero, zero, unit[5], unit[6]) == [
        "t = 0.5, x = [0, 0, 0, 0, ...]",
        "t = 0.5, x = [0, 0, 0, 0, ...]",
        "t = 0.5, x = [0, 0, 0, 0, ...], x[5] = 1",
        "t = 0.5, x = [0, 0, 0, 0, ...], x[6] = 1",
    ]
    assert texts([100.001], [100.002]) == [
        "t = 0.5, x = [100], x[0] = 100.001",
        "t = 0.5, x = [100], x[0] = 100.002",
    ]
    many = 1e-7 * np.random.default_rng(0).choice([-1.0, 1.0], (40, 12))
    assert len(set(texts(*many))) == 40


def test_one_dimension_has_vectors_too():
    problem = hn.Problem(dim=1, horizon=1.0, initial=lambda x: jnp.sin(x[0]))
    with pytest.raises(hn.InputError, match=r"x=\[0.3\]"):
        problem.as_points(0.1, 0.3)
    with pytest.raises(hn.InputError, match=r"take x\[0\]"):
        hn.Problem(dim=1, horizon=1.0, initial=lambda x: jnp.sin(x))


@pytest.mark.parametrize(
    "region",
    [hn.Box(-2.0, [1.0, 2.0, 3.0]), hn.Normal([1.0, 2.0, 3.0], 0.1), hn.Point([1.0, 2.0, 3.0])],
)
def test_regions_sample_where_they_say(region):
    x = region.sample(np.random.default_rng(0), 4000, 3)
    assert x.shape == (4000, 3)
    if isinstance(region, hn.Box):
        assert np.all((x >= region.low) & (x <= region.high))
        np.testing.assert_allclose(x.mean(axis=0), (region.low + region.high) / 2, atol=0.1)
    else:
        np.testing.assert_allclose(x.mean(axis=0), [1, 2, 3], atol=0.01)


def test_equally_correlated_assets_have_the_same_covariance_at_the_cost_of_a_diagonal():
    sigma = np.array([0.1, 0.2, 0.4])
    for rho in (0.5, -0.2):
        process = hn.GeometricBrownian(sigma, correlation=rho)
        diffusion, _ = process.canonical_form(3)
        S = diffusion.apply_sqrt(np.eye(3)).T
        correlation = np.where(np.eye(3, dtype=bool), 1.0, rho)
        np.testing.assert_allclose(S @ S.T, 0.5 * np.outer(sigma, sigma) * correlation, atol=1e-15)
        assert (diffusion.low_rank_columns is not None) == (rho > 0)
