"""A number that declines where it does not know: data that paths did not meet, that grow too fast,
that were rounded before they came.
"""

from __future__ import annotations

import json
import signal
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import heatnets as hn
from heatnets import cli
from heatnets._core import container, streams
from heatnets._core.errors import WarningLog
from heatnets._core.execution import make_context
from heatnets.certify import data_checks
from heatnets.certify.certificate import rounded
from heatnets.cli.solve import _columns, _describe
from heatnets.io.problem_files import CertifyRequest
from heatnets.pde import constant_folding
from heatnets.plotting import solve_report
from heatnets.solvers import entry

SINGLE = {"vector": jnp.asarray([0.1, 0.2, 0.3]), "number": jnp.asarray(0.1)}
EXACT = {
    "ones": jnp.ones(3),
    "eye": jnp.eye(3),
    "eighths": jnp.arange(3.0) / 8,
    "number": jnp.asarray(1000.5),
}
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
    return hn.Problem(
        **{"dim": 3, "horizon": 0.5, "initial": lambda x: jnp.sum(jnp.sin(x)), **fields}
    )


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("initial", lambda x: jnp.sum(SINGLE["vector"] * x)),
        (
            "initial",
            lambda x: SINGLE["number"] * jnp.sum(x),
        ),  # a weak type: JAX takes it for float64
        ("initial", lambda x: np.float32(0.1) * jnp.sum(x)),  # becomes a number of the program
        ("initial", lambda x: inside(x)),  # a program inside the program
        (
            "initial",
            lambda x: jax.lax.cond(
                x[0] > 0, lambda y: y @ SINGLE["vector"], lambda y: 0.0 * y[0], x
            ),
        ),
        ("initial", lambda x: jnp.sum(jnp.full(3, 0.1, jnp.bfloat16) * x)),
        ("source", lambda t, x: t * SINGLE["number"]),
        ("exact", lambda t, x: jnp.sum(jnp.sin(x)) * (1 + t * SINGLE["number"])),
        ("drift", lambda t, x: -SINGLE["vector"] * x),
        ("reaction", lambda t, x: SINGLE["number"] * jnp.cos(x[0])),
        (
            "step",
            lambda t, x, h, noise: x + jnp.sqrt(2 * h) * noise + 0.0 * h**2 * SINGLE["vector"],
        ),
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


def test_a_network_outside_its_interval_is_said(crude):
    crude = crude.with_problem(crude.problem)
    crude.stats = {
        **crude.stats,
        "warnings": (),
    }  # among them "not solved", which would hide the network's value
    t, x = crude.problem.horizon, np.full(4, 0.3)
    sure = crude.certify(t, x, samples=512)
    network = float(crude(t, x))
    assert sure.certified
    assert sure.network == pytest.approx(network, rel=1e-12)
    assert sure.outside
    assert not sure.low <= network <= sure.high
    words = f"the network's value {rounded(network, float(sure.halfwidth))} lies outside"
    assert words in str(sure)
    assert words in solve_report._answer(crude, [(t, x, sure)]).tables[1].rows[0][2]
    wanted = [(CertifyRequest(t, x, {}), sure)]
    assert words in _columns(crude, wanted)["note"][0]
    (told,) = _describe(crude, crude.summary(seconds=1.0), wanted)["certificates"]
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
    """A permutation of points permutes the answer, and a point alone gets what it gets among
    others.
    """
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
    ways = (
        kinked.certify_gradient,
        lambda t, x, **how: kinked.certify_curvature(t, x, np.ones(4), **how),
    )
    for way in ways:
        all_, alone = way(t, x, samples=256), way(t[2], x[2], samples=256)
        for name in FIELDS:
            np.testing.assert_allclose(
                getattr(all_, name)[2], getattr(alone, name), rtol=1e-9, atol=1e-13
            )


def test_another_point_or_problem_gets_other_samples(kinked):
    """Were the samples shared, errors in units of the standard error would be the same wherever the
    data are alike: one seed would miss everywhere.
    """

    def normal(point, **fields):
        stated = hn.Problem(
            **{
                "dim": 4,
                "horizon": 0.5,
                "initial": lambda x: jnp.maximum(jnp.mean(x), 0.0),
                **fields,
            }
        )
        sure = kinked.with_problem(stated).certify(0.5, point, samples=256)
        return float(sure.error / sure.halfwidth)

    zero = np.zeros(4)
    same = normal(zero)
    assert same == normal(zero)  # the same problem, made again
    others = [
        normal(zero + 1e-12),
        normal(zero, horizon=0.6),
        normal(zero, initial=lambda x: jnp.maximum(jnp.mean(x), 0.01)),
    ]
    assert min(abs(other - same) for other in others) > 1e-3
    first, second = (
        kinked.with_problem(p)
        for p in (kinked.problem, hn.Problem(dim=4, horizon=0.6, initial=kinked.problem.initial))
    )
    assert first.error(points=16).value != second.error(points=16).value
    assert first.explain(0.5, zero).initial != second.explain(0.5, zero).initial


def test_marks_are_the_same_in_every_process():
    assert streams.marks((1, 2, 3, 4), np.array([0.5]), np.array([[0.0, 1.0]])) == [MARK]
    assert streams.marks((1, 2, 3, 4), np.array([0.5]), np.array([[-0.0, 1.0]])) == [MARK]
    assert streams.mark(b"a", b"bc") != streams.mark(b"ab", b"c")


def call(volatility, dim=1, strike=100.0, **process):
    """A call on the mean of some assets, spot 100, one year."""
    return hn.Problem(
        dim=dim,
        horizon=1.0,
        terminal=lambda x: jnp.maximum(jnp.mean(x) - strike, 0.0),
        process=hn.GeometricBrownian(volatility, **process),
        reaction=-0.03,
        region=hn.Point([100.0] * dim),
    )


def wall(height, away):
    """Smooth, and the same height everywhere before a wall."""
    return lambda x: height + jnp.exp(-1 / jnp.maximum(x[0] - away, 1e-9))


def short(initial, **fields):
    return hn.Problem(**{"dim": 2, "horizon": 0.1, "initial": initial, **fields})


def declines(u, said, reason):
    """Everything that a solve must say where it does not know."""
    assert any(text.startswith("not solved: ") and reason in text for text in said)
    assert u.stats["estimated_error"] == np.inf
    assert any(text.startswith("not solved: ") for text in u.stats["warnings"])
    assert u.solved is False
    assert "not solved" in repr(u)
    wide = u.error(points=64)
    assert not wide.certified
    assert any(reason in why for why in wide.reasons)


def test_a_volatility_in_per_cent_is_declined():
    """3000 %: E[max(X - 100, 0)] is 100, and every path of any sample ends at zero."""
    said, stated = said_by(lambda: call(30))
    assert "3000 %" in said[0]
    assert stated.warnings == tuple(said)
    said, u = said_by(lambda: hn.solve(stated, max_rounds=1, tol=1e-2))
    declines(u, said, "every sample is the same (0)")
    assert u.stats["tolerance_met"] is False
    assert u.stats["stopped"].startswith("the data were declined")
    x = [100.0]
    few = {"samples": 256}
    for sure in (
        u.certify(0.0, x, **few),
        u.certify_gradient(0.0, x, **few),
        u.certify_curvature(0.0, x, [1.0], **few),
    ):
        assert not sure.certified
        assert "every sample is the same (0)" in sure.reasons[0]
    assert u.certify(1.0, x).certified  # where u is given
    assert call(1.0).warnings == ()


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({"initial": wall(0.0, 9.0)}, "0"),
        ({"initial": lambda x: 0.0 * x[0], "source": lambda t, x: wall(0.0, 9.0)(x)}, "0"),
    ],
)
def test_data_that_no_path_meets_are_declined(fields, value):
    said, u = said_by(
        lambda: hn.solve(
            short(**fields), features=(4, 4 if "source" in fields else 0), rows=(64, 0)
        )
    )
    declines(u, said, f"every sample is the same ({value})")
    sure = u.certify([0.1, 0.05], np.zeros((2, 2)), samples=256)
    assert not np.any(sure.certified)
    assert all("what paths do not meet is unknown" in why[0] for why in sure.reasons)


@pytest.mark.parametrize(
    ("initial", "value"),
    [
        (lambda x: 0.0 * jnp.exp(x[0]), 0.0),
        (lambda x: 2.0, 2.0),
        (lambda x: x[0], 0.3),  # every residual is rounding, and the data are met
    ],
)
def test_what_can_be_shown_is_certified(initial, value):
    u = hn.solve(short(initial), tol=0, max_rounds=1)
    assert u.solved
    assert u.stats["estimated_error"] < 1e-12
    sure = u.certify(0.1, [0.3, 0.1], samples=256)
    assert sure.certified
    assert sure.low <= value <= sure.high


@pytest.mark.usefixtures("x64")
def test_constants_by_their_programs():
    point, number = jax.ShapeDtypeStruct((2,), jnp.float64), jax.ShapeDtypeStruct((), jnp.float64)

    @jax.jit
    def inner(x):
        return 3.0 * jnp.sum(jnp.zeros_like(x)) + 1.0

    for f, value in (
        (inner, 1.0),
        (lambda x: 0.0 * jnp.sum(x) + inner(x), 1.0),
        (lambda x: jnp.where(x[0] > 0, 2.0, 2.0), 2.0),
    ):
        assert constant_folding.constant(f, point) == value
    for f in (
        lambda x: x[0],
        lambda x: inner(x) * x[1],
        lambda x: jnp.where(x[0] > 0, 2.0, 3.0),
        wall(0.0, 9.0),
    ):
        assert constant_folding.constant(f, point) is None
    cubic = lambda t, x, u: u - u**3 + 0.0 * x[0]  # noqa: E731
    assert constant_folding.constant(cubic, number, point, 0.0) == 0.0
    assert constant_folding.constant(cubic, number, point, number) is None


def test_a_reaction_at_rest_is_certified():
    """u_t = Δu + u - u³ from zero stays there, which its programs show; from a wall that no path
    meets it may not.
    """
    rest = short(lambda x: 0.0 * x[0], source=lambda t, x, u: u - u**3)
    assert data_checks.shown_constant(rest.canonical)
    assert not data_checks.shown_constant(
        short(wall(0.0, 9.0), source=lambda t, x, u: u - u**3).canonical
    )


def test_data_that_hardly_a_path_meets_are_declined():
    """A bump of width 0.01."""
    said, u = said_by(
        lambda: hn.solve(
            short(lambda x: jnp.exp(-jnp.sum((x - 0.5) ** 2) / 1e-6)), tol=0, max_rounds=1
        )
    )
    declines(u, said, "the same (0) at all but")


def test_data_that_grow_too_fast_are_declined():
    """exp(|x|²) has no mean from t = 1/4 on."""
    said, u = said_by(
        lambda: hn.solve(short(lambda x: jnp.exp(x @ x), horizon=0.3), tol=0, max_rounds=1)
    )
    declines(u, said, "`initial` grows too fast along paths")
    sure = u.certify(0.3, [0.1, 0.1], samples=1024)
    assert not sure.certified
    assert "its mean is not finite" in sure.reasons[0]


def doubt_of(stated, by_samples, seed=0):
    with jax.enable_x64(True):
        rng, ctx = streams.generator(seed, "test"), make_context()
        return data_checks.doubt(stated.canonical, by_samples, rng, ctx)


def test_any_value_may_be_the_same():
    for initial, value in ((wall(1.0, 9.0), "1"), (lambda x: jnp.where(x[0] > 9.0, 3.0, 2.0), "2")):
        found = doubt_of(short(initial), True)
        assert f"every sample is the same ({value})" in found.words
        assert not found.curable
    assert doubt_of(short(lambda x: jnp.where(x[0] > 9.0, 2.0, 2.0)), True) is None


def test_ordinary_payoffs_are_not_declined():
    """Lognormal payoffs up to a volatility of 100 %, out of the money too, forward and backward in
    time.
    """
    growing = {"growth": 0.1, "correlation": 0.5}
    stated = [
        call(0.2),
        call(1.0),
        call(1.0, strike=300.0),
        call(1.0, 10),
        call(1.0, 100, **growing),
    ]
    forward = hn.Problem(
        dim=1,
        horizon=1.0,
        initial=lambda x: x[0] ** 2,
        process=hn.GeometricBrownian(1.0, 0.2),
        region=hn.Box(50.0, 150.0),
    )
    for one in (*stated, forward):
        assert [doubt_of(one, True, seed) for seed in range(3)] == [None] * 3


def test_where_growth_becomes_too_fast():
    """exp(a x²/2) on paths x + √(2t) ξ has a mean for 2 a t < 1, and exp(σξ) always, though a few
    samples carry it.
    """
    for T, finite in ((0.24, True), (0.26, False)):
        found = doubt_of(hn.Problem(dim=1, horizon=T, initial=lambda x: jnp.exp(x[0] ** 2)), False)
        assert (found is None or "not finite" not in found.words) == finite
    found = doubt_of(hn.Problem(dim=20, horizon=1.0, initial=lambda x: jnp.exp(jnp.sum(x))), False)
    assert "a few paths carry the mean" in found.words
    assert found.curable


def test_a_source_that_is_singular_at_the_start_is_no_growth():
    stated = short(lambda x: jnp.cos(x[0]), source=lambda t, x: jnp.cos(x[0]) / jnp.sqrt(t))
    assert [doubt_of(stated, True, seed) for seed in range(3)] == [None] * 3
    fast = short(lambda x: jnp.cos(x[0]), source=lambda t, x: jnp.exp(x @ x), horizon=0.4)
    assert "`source` grows too fast" in doubt_of(fast, False).words


def test_hills_estimate():
    rng = np.random.default_rng(0)
    for index in (0.5, 1.0, 3.0):
        found, noise = data_checks.tail(rng.random(4096) ** (-1 / index))
        assert abs(found / index - 1) < 4 * noise
    assert data_checks.tail(np.zeros(100)) == (np.inf, 0.0)


def test_a_network_that_is_exact_needs_no_samples_of_the_data(crude):
    exact = hn.solve(short(lambda x: x[0]), features=(4, 0), rows=(64, 0))
    doubt = data_checks.Doubt("a few paths carry the mean", "Do something.", True)
    assert (
        entry._decline_if_doubtful(exact, doubt, False, WarningLog()).stats["estimated_error"]
        is None
    )
    said, other = said_by(
        lambda: entry._decline_if_doubtful(
            crude.with_problem(crude.problem), doubt, True, WarningLog()
        )
    )
    assert said == ["not solved: a few paths carry the mean. Do something."]
    assert other.stats["estimated_error"] == np.inf
    assert other.stats["tolerance_met"] is False


TOML = """
dim = 2
horizon = 0.3
initial = "exp(norm2(x))"
region = { box = [-1, 1] }
[solve]
tol = 0
max_rounds = 1
[[certify]]
t = 0.3
x = 0.3
[[certify]]
t = 0
x = 0.3
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The command line in this process, in a folder where a declined solve has left its result."""
    folder = tmp_path_factory.mktemp("declined")
    (folder / "fast.toml").write_text(TOML)
    (folder / "at.csv").write_text("t,x\n0.3,0.1\n0,0.1\n")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        patch.chdir(folder)

        def heatnets(*arguments):
            patch.setattr(sys, "argv", ["heatnets", *map(str, arguments)])
            with pytest.raises(SystemExit) as ended:
                cli.main()
            return ended.value.code

        heatnets.folder = folder
        heatnets.code = heatnets(
            "solve", "fast.toml", "--quiet", "--values", "v.csv", "--report", "fast.html"
        )
        yield heatnets
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.filterwarnings("ignore::heatnets.HeatnetsWarning")
def test_the_command_line_shows_no_value_of_what_is_not_solved(run, capfd):
    assert run.code == 3
    u = hn.load(run.folder / "fast.heatnets")
    network = f"{float(u(0.3, [0.3, 0.3])):.4g}"[:4]
    values = (run.folder / "v.csv").read_text().splitlines()
    assert values[1].startswith("0.3,0.3,0.3,nan,nan,nan,nan,False,")
    assert values[2].startswith("0.0,0.3,0.3,1.19")  # where u is given, certified
    page = (run.folder / "fast.html").read_text()
    assert "Not solved: `initial` grows too fast along paths" in page
    assert "No picture of slices: not solved." in page
    assert network not in page.split('id="answer"')[1].split("</section>")[0]

    capfd.readouterr()
    assert run("solve", "fast.toml", "--json") == 3
    shown = capfd.readouterr()
    told = json.loads(shown.out, parse_constant=pytest.fail)
    assert told["solved"] is False
    assert told["estimated_error"] is None
    first, second = told["certificates"]
    assert [first[name] for name in ("value", "low", "high", "network", "certified")] == [
        None,
        None,
        None,
        None,
        False,
    ]
    assert second["certified"]
    assert second["value"] == pytest.approx(np.exp(0.18))
    assert "NOT SOLVED" in shown.err
    assert "heatnets: not solved: `initial` grows too fast along paths" in shown.err
    assert "What was found is kept in fast.heatnets" in shown.err
    assert network not in shown.err.split("NOT SOLVED")[1]


def test_results_that_are_not_solved_say_so(run, capfd):
    capfd.readouterr()
    assert run("eval", "fast.heatnets", "--at", "at.csv", "--certify", "--gradient") == 3
    shown = capfd.readouterr()
    head, first, second = shown.out.splitlines()
    names = "row,t,x_1,x_2,value,certified_value,low,high,certified,gradient_1,gradient_2,note"
    assert head == names
    assert first.startswith(
        '1,0.3,0.1,0.1,nan,nan,nan,nan,False,nan,nan,"not solved: no value of the network;'
    )
    # No network, but certified: u is given there.
    assert second.startswith("2,0.0,0.1,0.1,nan,1.02")
    assert "heatnets: fast.heatnets: not solved" in shown.err
    assert run("info", "fast.heatnets") == 3
    assert "NOT SOLVED" in capfd.readouterr().out
    assert run("info", "fast.heatnets", "--json") == 3
    told = json.loads(capfd.readouterr().out, parse_constant=pytest.fail)
    assert told["solved"] is False
    assert told["stats"]["estimated_error"] is None
    assert run("plot", "fast.heatnets") == 3
    assert "no value of the network is drawn" in capfd.readouterr().err
    assert not (run.folder / "fast-slices.png").exists()
    assert run("plot", "fast.heatnets", "--kind", "history", "--out", "h.png") == 3
    assert (run.folder / "h.png").exists()


@pytest.mark.parametrize("error", [np.inf, np.nan, 0.2, 0.05, None])
def test_whether_it_is_solved_survives_a_file(crude, error, tmp_path):
    u = crude.with_problem(crude.problem)
    u.stats = {**u.stats, "estimated_error": error, "warnings": ()}
    again = hn.load(u.save(tmp_path / "a.heatnets"))
    np.testing.assert_equal(again.stats["estimated_error"], error)
    assert again.solved is u.solved is (None if error is None else error == 0.05)
    assert ("not solved" in repr(again)) == (again.solved is False)


def test_numbers_that_json_has_not_come_back():
    kept = {"a": [np.inf, (-np.inf, np.float64(np.nan))], "b": {"c": 1.0, "d": "text"}}
    text = json.dumps(container.to_jsonable(kept), allow_nan=False)
    np.testing.assert_equal(
        container.restore_numbers(json.loads(text)),
        {"a": [np.inf, [-np.inf, np.nan]], "b": {"c": 1.0, "d": "text"}},
    )
