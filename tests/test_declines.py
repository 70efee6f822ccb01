"""A number that declines where it does not know: data that paths did not meet, that grow too fast, that were rounded before they came."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import heatnets as hn
from heatnets import solved, streams
from heatnets.certificate import rounded
from heatnets.cli.solve import _columns, _words
from heatnets.problem_files import Statement, Wanted

SINGLE = {"vector": jnp.asarray([0.1, 0.2, 0.3]), "number": jnp.asarray(0.1)}
EXACT = {"ones": jnp.ones(3), "eye": jnp.eye(3), "eighths": jnp.arange(3.0) / 8, "number": jnp.asarray(1000.5)}
DOUBLE = np.array([0.1, 0.2, 0.3])


@jax.jit
def inside(x):
    return jnp.sum(SINGLE["vector"] * x)


def said_by(make):
    """The warnings of a piece of work, and what it gave."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = make()
    return [str(w.message) for w in said if issubclass(w.category, hn.HeatnetsWarning)], found


def problem(**fields):
    return hn.Problem(**{"dim": 3, "horizon": 0.5, "initial": lambda x: jnp.sum(jnp.sin(x)), **fields})


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("initial", lambda x: jnp.sum(SINGLE["vector"] * x)),
        ("initial", lambda x: SINGLE["number"] * jnp.sum(x)),  # a weak type: JAX takes it for float64
        ("initial", lambda x: np.float32(0.1) * jnp.sum(x)),  # becomes a number of the program
        ("initial", lambda x: inside(x)),  # a program inside the program
        ("initial", lambda x: jax.lax.cond(x[0] > 0, lambda y: y @ SINGLE["vector"], lambda y: 0.0 * y[0], x)),
        ("initial", lambda x: jnp.sum(jnp.full(3, 0.1, jnp.bfloat16) * x)),
        ("source", lambda t, x: t * SINGLE["number"]),
        ("exact", lambda t, x: jnp.sum(jnp.sin(x)) * (1 + t * SINGLE["number"])),
        ("drift", lambda t, x: -SINGLE["vector"] * x),
        ("reaction", lambda t, x: SINGLE["number"] * jnp.cos(x[0])),
        ("step", lambda t, x, h, noise: x + jnp.sqrt(2 * h) * noise + 0.0 * h**2 * SINGLE["vector"]),
        ("diffusion", SINGLE["vector"]),
        ("diffusion", hn.Factor(np.diag(SINGLE["vector"]))),
    ],
)
def test_constants_in_float32_are_said(name, function):
    said, made = said_by(lambda: problem(**{name: function}))
    (own,) = [text for text in said if f"`{name}`" in text]
    for words in ("float", "7 digits", "np.asarray", "jax_enable_x64"):
        assert words in own
    assert own in made.warnings


def test_a_volatility_in_float32_is_said():
    process, region = hn.GeometricBrownian(volatility=jnp.asarray(0.3)), hn.Point([1.0] * 3)
    said, _ = said_by(lambda: problem(process=process, region=region))
    assert "`volatility` of `process`" in said[0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: EXACT["ones"] @ x,
        lambda x: x @ EXACT["eye"] @ x,
        lambda x: jnp.cos(EXACT["eighths"] @ x),
        lambda x: EXACT["number"] * x[0],
        lambda x: DOUBLE @ x,
        lambda x: 0.1 * x[0] + jnp.asarray([0.1, 0.2, 0.3]) @ x,  # made inside, in float64
    ],
)
def test_what_float32_holds_exactly_is_no_alarm(function):
    assert problem(initial=function).warnings == ()


@pytest.fixture(scope="module")
def crude():
    """A network of two features: certificates know better."""
    stated = hn.problems.get("radial-gaussian", dim=4)
    return said_by(lambda: hn.solve(stated, features=(2, 0), rows=(64, 0)))[1]


def test_a_network_outside_its_interval_is_said(crude, tmp_path):
    t, x = crude.problem.horizon, np.full(4, 0.3)
    sure = crude.certify(t, x, samples=512)
    network = float(crude(t, x))
    assert sure.certified
    assert sure.network == pytest.approx(network, rel=1e-12)
    assert sure.outside
    assert not sure.low <= network <= sure.high
    words = f"the network's value {rounded(network, float(sure.halfwidth))} lies outside"
    assert words in str(sure)
    assert words in solved._answer(crude, [(t, x, sure)]).tables[1].rows[0][2]
    wanted = [(Wanted(t, x, {}), sure)]
    assert words in _columns(Statement(crude.problem, {}, [], []), wanted)["note"][0]
    (told,) = _words(crude, 1.0, wanted, tmp_path, None)["certificates"]
    assert told["outside"] is True
    assert told["network"] == pytest.approx(network, rel=1e-12)


@pytest.fixture(scope="module")
def kinked():
    stated = hn.Problem(dim=4, horizon=0.5, initial=lambda x: jnp.maximum(jnp.mean(x), 0.0))
    return said_by(lambda: hn.solve(stated, features=(4, 0), rows=(64, 0), enforce="mild"))[1]


MARK = (269768424, 2281776340, 2672894057, 414163103)
FIELDS = ("value", "error", "low", "high", "halfwidth", "samples")


@pytest.mark.parametrize("which", ["crude", "kinked"])
@pytest.mark.parametrize("halfwidth", [None, 2e-2])
def test_samples_belong_to_the_point_and_not_to_the_call(which, halfwidth, request):
    """A permutation of points permutes the answer, and a point alone gets what it gets among others."""
    u = request.getfixturevalue(which)
    t, x = hn.random_points(u.problem, 4, seed=3)
    how = {"samples": 256, "halfwidth": halfwidth}
    all_, again, order = u.certify(t, x, **how), u.certify(t, x, **how), np.array([2, 0, 3, 1])
    turned = u.certify(t[order], x[order], **how)
    alone = [u.certify(t[i], x[i], **how) for i in range(4)]
    for name in FIELDS:
        here = getattr(all_, name)
        np.testing.assert_array_equal(here, getattr(again, name))
        np.testing.assert_allclose(here[order], getattr(turned, name), rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(here, [getattr(a, name) for a in alone], rtol=1e-9, atol=1e-13)


def test_derivatives_too(kinked):
    t, x = hn.random_points(kinked.problem, 3, seed=3)
    ways = (kinked.certify_gradient, lambda t, x, **how: kinked.certify_curvature(t, x, np.ones(4), **how))
    for way in ways:
        all_, alone = way(t, x, samples=256), way(t[2], x[2], samples=256)
        for name in FIELDS:
            np.testing.assert_allclose(getattr(all_, name)[2], getattr(alone, name), rtol=1e-9, atol=1e-13)


def test_another_point_or_problem_gets_other_samples(kinked):
    """Were the samples shared, errors in units of the standard error would be the same wherever the data are alike: one seed would miss everywhere."""

    def normal(point, **fields):
        stated = hn.Problem(**{"dim": 4, "horizon": 0.5, "initial": lambda x: jnp.maximum(jnp.mean(x), 0.0), **fields})
        sure = kinked.of(stated).certify(0.5, point, samples=256)
        return float(sure.error / sure.halfwidth)

    zero = np.zeros(4)
    same = normal(zero)
    assert same == normal(zero)  # the same problem, made again
    others = [normal(zero + 1e-12), normal(zero, horizon=0.6), normal(zero, initial=lambda x: jnp.maximum(jnp.mean(x), 0.01))]
    assert min(abs(other - same) for other in others) > 1e-3
    first, second = (kinked.of(p) for p in (kinked.problem, hn.Problem(dim=4, horizon=0.6, initial=kinked.problem.initial)))
    assert first.error(points=16).value != second.error(points=16).value
    assert first.explain(0.5, zero).initial != second.explain(0.5, zero).initial


def test_marks_are_the_same_in_every_process():
    assert streams.marks((1, 2, 3, 4), np.array([0.5]), np.array([[0.0, 1.0]])) == [MARK]
    assert streams.marks((1, 2, 3, 4), np.array([0.5]), np.array([[-0.0, 1.0]])) == [MARK]
    assert streams.mark(b"a", b"bc") != streams.mark(b"ab", b"c")
