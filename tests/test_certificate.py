"""Certificates: intervals that hold the truth as often as they say, and words where they cannot."""

from __future__ import annotations

import copy
import io
import re
import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import heatnets as hn
from heatnets._core import progress, statistics, streams
from heatnets._core.execution import Summary
from heatnets.certify import (
    certificate_progress,
    derivatives,
    error_equation,
    quasi_monte_carlo,
    sequential,
    values,
)
from heatnets.certify.certificate import Certificate, CertifyOptions, RegionError, rounded
from heatnets.certify.evaluator import NetworkEvaluator
from heatnets.certify.sequential import NumberSamples, PointSamples, sample_until_good
from heatnets.pde import smoothness

pytestmark = pytest.mark.usefixtures("x64")

CRUDE = {
    "directions": "orthogonal",
    "antithetic": True,
    "collocation": "paths",
    "solver": "qr",
    "time_degree": 1,
}

ASKED = CertifyOptions(256, 0.95, 0, None, True, lambda done, total: None)


class Stub(NetworkEvaluator):
    """A network of which only some functions are known."""

    def __init__(self, problem, **functions):
        canonical = problem.canonical
        vars(self).update(canonical=canonical, error_problem=canonical, **functions)


def crude(name, dim, features, **options):
    """An under-resolved solve: an error that certificates can see."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        return hn.solve(hn.problems.get(name, dim=dim), features=features, **{**CRUDE, **options})


@pytest.fixture(scope="module")
def radial():
    return crude("radial-gaussian", 20, (32, 0))


@pytest.fixture(scope="module")
def kinked():
    """Trained on plain samples: on means over nets the network is better than the intervals."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        patch.setattr(quasi_monte_carlo, "serves", lambda problem: False)
        return hn.solve(hn.problems.get("kinked-ridge", dim=5), tol=0, max_rounds=1, enforce="mild")


def changed(u, factor):
    """The same solution with its largest weight changed."""
    weights = np.concatenate([np.asarray(w).T.reshape(-1) for w in u.weights])
    weights[np.argmax(np.abs(weights))] *= factor
    blocks = [b for b, _ in u._blocks]
    network = (u._canonical, u._equation, blocks, jnp.asarray(weights), u._ctx, dict(u.stats))
    return hn.Solution(*network).with_problem(u.problem)


@pytest.mark.parametrize(
    ("name", "dim", "features"),
    [
        ("radial-gaussian", 20, (32, 0)),
        ("nonseparable", 3, (8, 8)),
        ("forced-radial", 10, (0, 8)),
        ("neighbour-products", 10, (16, 0)),
    ],
)
def test_intervals_hold_the_truth_and_the_correction_helps(name, dim, features):
    u = crude(name, dim, features)
    t, x = hn.random_points(u.problem, 60, seed=5)
    exact = hn.exact_values(u.problem, t, x)
    sure = u.certify(t, x, samples=1024)
    assert sure.method == "residual"
    assert np.mean(sure.certified) > 0.8
    inside = np.abs(sure.value - exact) <= sure.halfwidth
    assert np.sum(inside) >= 52  # of 60 at 95 %: fewer in 3 of 1000 runs
    assert np.all((sure.low <= sure.value) & (sure.value <= sure.high))
    np.testing.assert_allclose(sure.value - sure.error, u(t, x), atol=1e-12)
    assert np.linalg.norm(sure.value - exact) < 0.2 * np.linalg.norm(u(t, x) - exact)


def test_a_correction_makes_an_under_resolved_solve_good():
    """Radial Gaussian in 100 dimensions, 64 pairs, 4096 samples: twenty times better."""
    u = crude("radial-gaussian", 100, (64, 0), time_degree=0, directions="gaussian")
    t, x = hn.random_points(u.problem, 32, seed=1)
    exact = hn.exact_values(u.problem, t, x)
    sure = u.certify(t, x)
    assert np.linalg.norm(u(t, x) - exact) > 20 * np.linalg.norm(sure.value - exact)


def test_a_wrong_weight_is_seen_and_corrected(radial):
    """The initial condition is then missed, too: e0 is part of the correction."""
    wrong = changed(radial, 1.05)
    t, x = hn.random_points(wrong.problem, 20, seed=2)
    exact = hn.exact_values(wrong.problem, t, x)
    assert np.median(np.abs(wrong(t, x) - exact)) > 10 * np.median(np.abs(radial(t, x) - exact))
    sure = wrong.certify(t, x)
    inside = np.abs(sure.value - exact) <= sure.halfwidth
    assert np.sum(inside[sure.certified]) >= np.sum(sure.certified) - 4
    assert not np.any(
        np.abs(sure.value - exact)[sure.certified] > 3 * sure.halfwidth[sure.certified]
    )


@pytest.mark.parametrize("method", ["martingale, 4 steps", "quasi-Monte Carlo, 64 scrambled nets"])
@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_kinked_data_need_no_smoothness_and_no_good_network(kinked, factor, method, monkeypatch):
    """Both forms are unbiased for any ũ: also for a network with a wrong weight."""
    if method.startswith("martingale"):
        monkeypatch.setattr(quasi_monte_carlo, "serves", lambda problem: False)
    u = changed(kinked, factor)
    t, x = hn.random_points(u.problem, 60, seed=3)
    t = np.maximum(t, 0.1 * u.problem.horizon)
    exact = hn.exact_values(u.problem, t, x)
    sure = u.certify(t, x, samples=512)
    assert sure.method == method
    good = sure.certified
    assert np.sum(good) > 30
    assert np.sum((np.abs(sure.value - exact) <= sure.halfwidth)[good]) >= np.sum(good) - 8
    if factor == 1:  # the control variate earns its keep at equal samples
        plain = hn.montecarlo.importance(u.problem, t, x, samples=512)
        assert (
            np.median(sure.halfwidth[good])
            < 0.7 * np.median(plain.high[good] - plain.low[good]) / 2
        )


def test_a_kink_that_was_not_found_is_noticed(monkeypatch):
    """A kink that the search misses must not lead to a certificate of a wrong value.

    For max(x, 0) the fit by equation rows returns u0 itself: its residual is zero, and it is wrong
    by a third. With the kink found, points of u0 are used, and right. With the search disabled,
    the residual form is used, and must not be certified: the martingale form disagrees.
    """
    problem = hn.Problem(
        dim=1, horizon=1.0, initial=lambda x: jnp.maximum(x[0], 0.0), region=hn.Box(-1.0, 1.0)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        u = hn.solve(problem, features=(32, 0), directions="gaussian", solver="svd")
    truth = np.sqrt(1 / np.pi)  # E max(√2 η, 0)
    assert u.certify(1.0, [0.0]).method.startswith("quasi-Monte Carlo")
    assert abs(u.certify(1.0, [0.0]).value - truth) < 0.05
    monkeypatch.setattr(smoothness, "find_kinks", lambda *_: {})
    u.__dict__["_smooth"] = True
    fooled = u.certify(1.0, [0.0])
    assert abs(fooled.value - truth) > 0.1 or not fooled.certified
    assert not fooled.certified
    assert "disagree" in fooled.reasons[0]


def test_a_spike_in_the_source_that_no_row_saw():
    """A narrow bump of the source between the training rows is in the certified value.

    Only a few hundredths of the paths meet it, and the network alone is wrong by more than a tenth.
    """
    calm = crude("forced-radial", 1, (0, 32))
    problem, network = calm.problem, calm.network

    def spike(x):
        return 50 * np.exp(-np.sum((x - 0.4) ** 2, axis=1) / (2 * 0.02**2))

    spiked = copy.copy(network)
    spiked.source = lambda t, x: network.source(t, x) + spike(x)
    spiked.residual = lambda t, x: (network.residual(t, x)[0] + spike(x), network.residual(t, x)[1])
    t, x = np.array([problem.horizon]), np.array([[0.2]])
    # What the spike adds: ∫ of a Gaussian of variance 2 lag + 0.02² around x, by quadrature
    # in √lag.
    root = np.linspace(0, np.sqrt(problem.horizon), 20001)
    variance = 2 * problem.diffusion * root**2 + 0.02**2
    added = np.trapezoid(
        50 * 0.02 / np.sqrt(variance) * np.exp(-(0.2**2) / (2 * variance)) * 2 * root, root
    )
    truth = float(hn.exact_values(problem, t, x)[0]) + added
    found = values.certify(spiked, t, x, ASKED._replace(samples=4096))
    assert abs(calm(t, x)[0] - truth) > 0.1 * truth  # the network alone is wrong
    assert found.certified[0]
    assert abs(found.value[0] - truth) < 1.5 * found.halfwidth[0]
    assert found.halfwidth[0] < 0.25 * added


def test_data_joined_from_pieces_are_integrated():
    """Data made of smooth pieces, max(x, 0)³, are treated like data with kinks.

    They are C², but a fit of their plain features can make the residual vanish almost everywhere
    and be wrong by a tenth.
    """
    problem = hn.Problem(
        dim=1,
        horizon=0.5,
        initial=lambda x: jnp.maximum(x[0], 0.0) ** 3,
        exact=lambda t, x: _cubed(x[0], jnp.sqrt(2 * t) + 1e-30),
    )
    u = hn.solve(problem, max_rounds=1, seed=1)
    assert "pre-integrated" in u.stats["laplacian"]["initial"]
    assert u.stats["tolerance_met"]
    assert hn.measure(u).l2 <= 1e-3
    t, x = hn.random_points(problem, 10, seed=5)
    sure, exact = u.certify(t, x, samples=256), hn.exact_values(problem, t, x)
    off = np.abs(sure.value - exact)
    assert np.sum((off > sure.halfwidth)[sure.certified]) <= 3
    assert not np.any((off > 3 * sure.halfwidth)[sure.certified])


def _cubed(m, s):
    """E max(m + s η, 0)³."""
    z = m / s
    density, below = (
        jnp.exp(-(z**2) / 2) / jnp.sqrt(2 * jnp.pi),
        0.5 * (1 + jax.scipy.special.erf(z / jnp.sqrt(2.0))),
    )
    return (m**3 + 3 * m * s**2) * below + (m**2 * s + 2 * s**3) * density


def test_the_relative_error_is_that_of_debiased_means():
    """Noise of the samples is no part of u's size, nor of the error's."""
    rng = np.random.default_rng(0)
    held = []
    for _ in range(200):
        true, gap = 1 + 0.3 * rng.standard_normal(400), 0.05 * rng.standard_normal(400)
        corrections = gap[:, None] + 2.0 * rng.standard_normal((400, 8))
        found = statistics.relative_l2_interval(corrections, true - gap, np.zeros(400), 0.95)
        held.append(found.low <= 0.05 / np.sqrt(1.09) <= found.high)
    assert np.mean(held) > 0.92
    lost = statistics.relative_l2_interval(
        100 * rng.standard_normal((400, 4)), np.full(400, 0.01), np.zeros(400), 0.95
    )
    assert lost.high == np.inf
    assert "lost in the noise" in lost.reasons[0]


def test_a_kink_far_from_the_region_is_found_from_the_points_asked():
    """A step that only six paths in a thousand from x = 1 meet is found, and certified rightly.

    The residual form would give a wrong value with a small half-width.
    """
    # No operation names where it jumps: features do not integrate it.
    initial = lambda x: jnp.clip(jnp.floor(x[0] - 2.5), 0.0, 1.0)  # noqa: E731
    problem = hn.Problem(dim=1, horizon=0.5, initial=initial)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        u = hn.solve(problem, tol=0, max_rounds=1)
    truth = 0.5 * (1 - float(jax.scipy.special.erf(2.5 / np.sqrt(2.0))))
    sure = u.certify(0.5, [1.0])
    assert sure.method.startswith("quasi-Monte Carlo")
    assert abs(sure.value - truth) < 1.5 * sure.halfwidth


def test_an_initial_condition_that_few_places_see():
    """A bump on a five-hundredth of the region: it gets features, and its error counts."""
    centre = np.array([0.31, -0.42, 0.57])

    def bump(x):
        return (
            20
            * jnp.exp(-jnp.sum((x - centre) ** 2) / (2 * 0.06**2))
            * (jnp.sum((x - centre) ** 2) < 0.15**2)
        )

    problem = hn.Problem(
        dim=3, horizon=0.1, diffusion=0.001, source=lambda t, x: jnp.cos(x[0]), initial=bump
    )
    assert not problem.canonical.zero_initial
    assert hn.Problem(dim=3, horizon=0.1, initial=lambda x: 0.0 * x[0]).canonical.zero_initial


def test_far_outside_the_training_region(radial):
    t, x = np.full(10, radial.problem.horizon), hn.random_points(radial.problem, 10, seed=4)[1] * 6
    exact = hn.exact_values(radial.problem, t, x)
    sure = radial.certify(t, x)
    off = np.abs(sure.value - exact)
    assert not np.any(sure.certified & (off > 5 * sure.halfwidth))


def test_samples_that_are_not_finite_are_not_certified(radial):
    network = copy.copy(radial.network)

    def broken(t, x):
        R, size = radial.network.residual(t, x)
        return np.where(np.arange(len(R)) == 7, np.inf, R), size

    t, x = hn.random_points(radial.problem, 2)
    network.residual = broken
    found = values.certify(network, t, x, ASKED)
    assert not found.certified[0]
    assert "not finite" in found.reasons[0][0]


@pytest.mark.parametrize("unit", [1.0, 1e-200, 1e200])
def test_intervals_of_light_tails_are_student_s(unit):
    rng = np.random.default_rng(0)
    samples = unit * (3 + rng.standard_normal((2000, 200)))
    found = statistics.confidence_interval(samples, 0.9)
    inside = np.abs(found.mean / unit - 3) <= found.half / unit
    assert (
        0.88 < np.mean(inside) < 0.935
    )  # 90 %, and up to 2 % for the widening; three standard deviations of the count are 2 %
    assert not any(found.reasons)


def test_heavy_tails_are_said():
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((2, 2000))
    samples[1, 5] = 2000.0
    found = statistics.confidence_interval(samples, 0.95)
    assert found.reasons[0] == ()
    assert "heavy tails: one of 2000 sample pairs carries 100 %" in found.reasons[1][0]
    assert (
        "only 10 independent" in statistics.confidence_interval(samples[:, :10], 0.95).reasons[0][0]
    )


def test_intervals_of_long_tails_are_widened():
    """Intervals that are not called heavy-tailed hold the mean of lognormal samples in over 96 %.

    Student's interval alone would hold it in 93 %; it is widened by the largest sample's share.
    """
    rng = np.random.default_rng(0)
    samples = np.exp(1.5 * rng.standard_normal((1000, 2048)))
    found = statistics.confidence_interval(samples, 0.95)
    sure = np.array([not why for why in found.reasons])
    inside = np.abs(found.mean - np.exp(1.5**2 / 2)) <= found.half
    assert 0.3 < np.mean(sure) < 0.9  # many do look heavy
    assert np.mean(inside[sure]) > 0.96


def test_heavy_tails_get_more_samples_before_they_are_said():
    """A residual that few samples meet is certified after up to sixteen times the samples.

    With the first samples it looks heavy-tailed.
    """
    t, x = np.full(6, 0.5), np.zeros((6, 2))
    problem = hn.Problem(
        dim=2,
        horizon=0.5,
        initial=lambda x: 0.0 * x[0],
        source=lambda t, x: jnp.where(x[0] > 1.7, 1.0, 0.0),
    )
    spike = Stub(
        problem,
        value=lambda t, x: (np.zeros(len(t)), np.zeros(len(t))),
        residual=lambda t, x: ((x[:, 0] > 1.7).astype(float), np.zeros(len(t))),
        gradient=lambda t, x: np.zeros_like(x),
        initial=lambda t, x: np.zeros(len(x)),
        source=lambda t, x: (x[:, 0] > 1.7).astype(float),
        residual_gradient=lambda t, x: np.stack([(x[:, 0] > 1.7).astype(float), 0 * t], axis=1),
        initial_defect=0.0,
    )
    for how in (values.certify, derivatives.certify_gradient):
        found = how(spike, t, x, ASKED._replace(samples=512))
        assert set(found.samples.tolist()) <= {
            512,
            4096,
            8192,
            16384,
        }  # what looks good is confirmed
        assert np.max(found.samples) > 512
        assert np.mean(found.certified) > 0.6
        assert all(
            n == 8192 for n, good in zip(found.samples, found.certified, strict=True) if not good
        )
        # Points that more samples cannot help get no more.
        given_up = how(spike, t, x, ASKED._replace(samples=512, hopeless=frozenset(range(6))))
        assert set(given_up.samples.tolist()) == {512}


def test_a_half_width_is_reached_or_said(radial, monkeypatch):
    t, x = hn.random_points(radial.problem, 3, seed=6)
    first = radial.certify(t, x, samples=256)
    wanted = float(np.min(first.halfwidth)) / 2
    more = radial.certify(t, x, samples=256, halfwidth=wanted)
    assert np.all(more.halfwidth <= wanted)
    assert np.all(more.samples > first.samples)
    assert len(set(more.samples.tolist())) > 1  # points that need fewer stop earlier
    monkeypatch.setattr(sequential, "MAX_SAMPLE_FACTOR", 2)
    assert np.all(more.reached)
    with pytest.warns(hn.HeatnetsWarning, match="3 of 3 intervals are wider than halfwidth="):
        ended = radial.certify(t, x, samples=256, halfwidth=wanted / 100)
    assert np.all(ended.certified)  # the intervals are sound, only wider
    assert not np.any(ended.reached)
    assert "was not reached" in ended.reasons[0][-1]
    assert "was not reached" in str(ended)
    # Nothing is sampled in vain; samples that are named would do.
    assert np.all(ended.samples == 256)
    advice = int(re.search(r"samples=(\d+)", ended.reasons[0][-1])[1])
    needed = 256 * (float(ended.halfwidth[0]) / (wanted / 100)) ** 2
    assert 0.9 * needed < 2 * advice < 2.2 * max(needed, 2 * 256)


def test_long_certificates_are_announced_and_reported(radial, monkeypatch, capfd):
    t, x = hn.random_points(radial.problem, 2)
    radial.certify(t, x, samples=256)
    assert capfd.readouterr().err == ""
    monkeypatch.setattr(progress, "LONG", 0.0)
    radial.certify(t, x, samples=256)
    first, *_ = capfd.readouterr().err.splitlines()
    assert re.fullmatch(r"heatnets: certificate: 0 of 2 after \d+ s", first)
    heard = []
    radial.certify(t, x, samples=256, progress=lambda *a: heard.append(a))
    assert heard[-1] == ("certificate", 2, 2)
    assert capfd.readouterr().err == ""


def test_the_time_of_a_certificate_is_known_after_a_second(monkeypatch):
    clock, heard = [0.0], []
    monkeypatch.setattr(certificate_progress.time, "perf_counter", lambda: clock[0])
    reporter = certificate_progress.CertificateProgress(lambda *a: heard.append(a), 3, work=60_000)
    for clock[0], done, total in (
        (0.5, 3, 3),  # small steps say nothing
        (2.0, 100, 5000),  # the first part compiles: it is not measured
        (2.5, 200, 5000),
        (6.0, 300, 9000),  # another step
        (6.2, 516, 9000),
        (7.2, 2300, 9000),
        (8.2, 4300, 9000),
    ):
        reporter.repeat("", done, total)
    texts = [phase for phase, *_ in heard if phase != "certificate"]
    assert texts == ["certificate: 3 points, about 35 s more"]  # 1.2 s for 2000 of 57,700
    assert len(heard) == 8
    heard.clear()
    clock[0] = 0.0
    reporter = certificate_progress.CertificateProgress(lambda *a: heard.append(a), 5, work=60_000)
    for clock[0], done in ((0.1, 0), (9.0, 1), (13.0, 2), (14.0, 3)):
        reporter.tell(done, 5)
    assert [phase for phase, *_ in heard if phase != "certificate"] == [
        "certificate: 5 points, about 12 s more"  # three times the second point; the first compiles
    ]


def test_lines_about_long_work_speak_of_its_phase(monkeypatch, capfd):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock[0])
    lines = progress.ProgressLines()
    for clock[0], phase, done in (
        (0, "rows", 0),
        (8, "rows", 50),  # too early for a line
        (30, "points", 16),  # another phase, which begins: nothing is known of it
        (36, "points", 16),
        (41, "points", 48),
        (47, "points", 64),
        (70, "points", 512),  # done
    ):
        lines(phase, done, 512)
    assert capfd.readouterr().err.splitlines() == [
        "heatnets: points: 16 of 512 after 6 s",
        "heatnets: points: 64 of 512 after 17 s, about 3 min left",
    ]


def test_the_time_left_does_not_count_what_came_before_the_first_piece(monkeypatch, capfd):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock[0])
    lines = progress.ProgressLines()
    for clock[0], done, total in ((1, 0, 1), (29, 100, 1000), (40, 320, 1000), (55, 340, 2000)):
        lines("round 0", done, total)
    assert capfd.readouterr().err.splitlines() == [
        "heatnets: round 0: 100 of 1000 after 28 s",  # of which most were spent on compiling
        "heatnets: round 0: 320 of 1000 after 39 s, about 34 s left",
        "heatnets: round 0: 340 of 2000 after 54 s",  # another part
    ]


def test_rounds_get_lines_where_the_work_is_long(monkeypatch, capfd):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock[0])
    lines = progress.ProgressLines()
    for clock[0], phase in (
        (3, Summary("round 0", 1e-1)),
        (4, Summary("about a minute more")),
        (11, Summary("round 1", 1e-2)),
    ):
        lines(phase, 1, 1)
    said = ["heatnets: about a minute more", "heatnets: round 1"]
    assert capfd.readouterr().err.splitlines() == said


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_a_terminal_shows_one_line_from_the_beginning(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("TERM", raising=False)
    clock, stderr = [0.0], Terminal()
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(progress.sys, "stderr", stderr)
    with progress.shown_progress("preparing") as line:
        for clock[0], phase, done, total in (
            (2.0, "round 0", 0, 1),
            (3.0, "round 0", 8, 16),
            (3.01, "round 0", 9, 16),  # too early for another state
            (4.0, Summary("round 0: done", 1e-2), 1, 1),
            (4.0, "round 1", 0, 1),
            (5.0, "final check", 1, 4),
            (6.0, "final check", 2, 4),
            (6.5, Summary("about a minute more"), 1, 1),
        ):
            line(phase, done, total)
    begin, *states, end = stderr.getvalue().split("\x1b[2K")
    assert (begin, end) == ("", "\r")  # erased
    assert states == [
        "heatnets: preparing, 0 s\r",
        "heatnets: round 0, compiling, 2 s\r",
        "heatnets: round 0, 3 s\r",
        "heatnets: round 1, estimated error so far 1.0e-02, 4 s\r",
        "heatnets: final check 25 %, estimated error so far 1.0e-02,\r",  # 59 characters
        "heatnets: final check 50 %, estimated error so far 1.0e-02,\r",
        "heatnets: about a minute more\n\r",
    ]
    monkeypatch.setenv("TERM", "dumb")
    with progress.shown_progress("preparing") as lines:
        assert isinstance(lines, progress.ProgressLines)


def test_a_solve_and_a_certificate_speak_to_a_terminal(monkeypatch):
    monkeypatch.delenv("TERM", raising=False)
    stderr = Terminal()
    monkeypatch.setattr(progress.sys, "stderr", stderr)
    u = hn.solve(hn.problems.get("radial-gaussian", dim=10), max_rounds=1, tol=0.05)
    said = stderr.getvalue()
    assert said.startswith("\x1b[2Kheatnets: preparing, 0 s\r\x1b[2Kheatnets: round 0, compiling,")
    assert said.endswith("\r\x1b[2K\r")
    u.certify(*hn.random_points(u.problem, 1), samples=64)
    again = stderr.getvalue().removeprefix(said)
    assert again.startswith("\x1b[2Kheatnets: certificate, 0 s\r")
    assert again.endswith("\r\x1b[2K\r")


@pytest.mark.parametrize(
    ("seconds", "text"), [(9.6, "10 s"), (99, "99 s"), (150, "2 min"), (7200, "2.0 h")]
)
def test_times_are_written_for_people(seconds, text):
    assert progress.format_seconds(seconds) == text


def test_a_wide_interval_of_kinked_data_says_how_to_narrow_it(kinked, monkeypatch):
    t, x = kinked.problem.horizon, np.zeros(5)
    assert kinked.certify(t, x, samples=128).reasons == ()  # nets: narrow
    monkeypatch.setattr(quasi_monte_carlo, "serves", lambda problem: False)
    wide = kinked.certify(t, x, samples=128)
    share = 100 * float(wide.halfwidth / abs(wide.value))
    assert share > 0.5
    assert wide.certified
    assert f"wide, {share:.2g} % of the value" in str(wide)
    assert f"halfwidth={float(wide.halfwidth) / 10:.1g} takes" in wide.reasons[-1]
    assert kinked.certify(t, x, samples=128, halfwidth=0.5).reasons == ()


def test_a_half_width_for_kinked_data_takes_the_cheaper_samples(kinked):
    t, x = kinked.problem.horizon, np.zeros(5)
    sure = kinked.certify(t, x, samples=512, halfwidth=5e-3)
    assert sure.halfwidth <= 5e-3
    assert abs(sure.value - hn.exact_values(kinked.problem, t, x)) < 2 * sure.halfwidth


def test_one_point_or_many_and_the_initial_time(radial):
    t, x = hn.random_points(radial.problem, 3)
    one, many = radial.certify(t[0], x[0], samples=256), radial.certify(t, x, samples=256)
    assert np.shape(one.value) == np.shape(one.certified) == ()
    assert np.shape(many.value) == np.shape(many.samples) == (3,)
    assert one.value == many.value[0]
    assert one.reasons == ()
    assert len(many.reasons) == 3
    assert (
        f"± {one.halfwidth:.2g} (95 %, residual, 256 samples; the network's value "
        f"{rounded(radial(t[0], x[0]), one.halfwidth)} lies outside)" in str(one)
    )
    assert len(str(many).splitlines()) == 3
    assert one.outside
    np.testing.assert_allclose(many.network, radial(t, x), rtol=1e-12)
    assert np.all(many.outside == ((many.network < many.low) | (many.network > many.high)))
    slope = radial.certify_gradient(t[0], x[0], samples=256)
    assert (
        f"the network's gradient lies outside in {np.sum(slope.outside)} of 20 components"
        in str(slope)
    )
    start = radial.certify(0.0, x[0])
    assert abs(start.value - hn.exact_values(radial.problem, 0.0, x[0])) <= start.halfwidth < 1e-10
    assert radial.certify(t[0], x[0], samples=256, seed=1).value != one.value


def test_mistakes_are_named(radial):
    for keyword, value in {"samples": 1, "confidence": 1.5, "halfwidth": -1.0, "seed": -1}.items():
        with pytest.raises(hn.InputError, match=f"`{keyword}`"):
            radial.certify(0.1, np.zeros(20), **{keyword: value})
    with pytest.raises(hn.InputError, match="`t` must lie in"):
        radial.certify(99.0, np.zeros(20))
    with pytest.raises(hn.InputError, match="`t` must lie in"):
        radial.certify_gradient(0.0, np.zeros(20))
    with pytest.raises(hn.InputError, match="one time and one point"):
        radial.explain(0.1, np.zeros((2, 20)))


@pytest.mark.parametrize("which", ["radial", "nonseparable", "kinked"])
def test_gradients_lie_in_their_intervals(which, radial, kinked, monkeypatch):
    monkeypatch.setattr(quasi_monte_carlo, "serves", lambda problem: False)
    u = {"radial": radial, "kinked": kinked}.get(which) or crude("nonseparable", 3, (8, 8))
    t, x = hn.random_points(u.problem, 12, seed=8)
    t = np.maximum(t, 0.2 * u.problem.horizon)
    exact = hn.exact_gradient(u.problem, t, x)
    sure = u.certify_gradient(t, x, samples=1024)
    assert sure.value.shape == exact.shape
    off = np.abs(sure.value - exact)
    assert (
        np.mean((off <= sure.halfwidth)[sure.certified]) > 0.85
    )  # components of one point are not independent
    assert np.linalg.norm(off) < 0.5 * np.linalg.norm(u.gradient(t, x) - exact)
    assert sure.method.startswith(
        "martingale, weighted" if which == "kinked" else "residual, differentiated"
    )
    assert str(sure).startswith("(")
    assert str(sure).count("half-widths up to") == 12
    one = u.certify_gradient(t[0], x[0], samples=1024)
    np.testing.assert_allclose(
        one.value, sure.value[0], rtol=1e-10
    )  # the same samples, summed in other tiles


def test_moments_in_pieces_are_those_of_the_whole():
    rng = np.random.default_rng(0)
    samples = np.exp(rng.standard_normal((500, 3))) * np.array([1.0, 1e-150, 1e6])
    tally = statistics.RunningMoments()
    for piece in np.split(samples, [100, 130]):
        tally.add(piece)
    centred = samples - samples.mean(axis=0)
    np.testing.assert_allclose(tally.mean, samples.mean(axis=0))
    np.testing.assert_allclose(tally.variance, samples.var(axis=0, ddof=1))
    scaled = centred / samples.std(axis=0)
    np.testing.assert_allclose(tally.kurtosis, np.mean(scaled**4, axis=0))
    np.testing.assert_allclose(tally.largest, np.max(np.abs(centred), axis=0))


@pytest.mark.parametrize(
    ("name", "dim", "features"),
    [("radial-gaussian", 20, (32, 0)), ("nonseparable", 3, (8, 8)), ("oscillating", 5, (16, 16))],
)
def test_the_region_wide_error(name, dim, features):
    u = crude(name, dim, features)
    truth, held, told = hn.measure(u, 4000), [], ""
    for seed in range(8):
        estimate = u.error(seed=seed)
        told += str(estimate)
        held.append(estimate.low <= truth.l2 <= estimate.high)
        assert estimate.high < 6 * truth.l2
        assert estimate.maximum > 0.3 * truth.l2
    assert sum(held) >= 6  # of 8 at 95 %
    assert "between" in told


def test_the_region_wide_error_of_kinked_data(kinked):
    truth, estimate = hn.measure(kinked, 4000).l2, kinked.error()
    assert estimate.method == "Monte Carlo"
    assert estimate.maximum is None
    assert truth < 2 * estimate.high
    assert estimate.high < 0.1


def test_error_equation_of_a_network_that_is_zero():
    """ũ = 0: the error is u itself, by both forms, with e0 = u0 and R = F."""
    problem = hn.problems.get("nonseparable", dim=2)
    t, x = hn.random_points(problem, 4)
    zero = Stub(
        problem,
        value=lambda t, x: (np.zeros(len(t)), np.zeros(len(t))),
        residual=lambda t, x: (_source(problem, t, x), np.zeros(len(t))),
        gradient=lambda t, x: np.zeros_like(x),
        initial=lambda t, x: hn.exact_values(problem, 0.0, x),
        source=lambda t, x: _source(problem, t, x),
        initial_defect=1.0,
    )
    exact = hn.exact_values(problem, t, x)
    rngs = [streams.generator(0, f"zero {i}") for i in range(4)]
    for drawn in (
        error_equation.residual_form(zero, t, x, 20_000, rngs),
        error_equation.martingale_form(zero, t, x, 20_000, rngs, error_equation.MartingaleForm(3)),
    ):
        mean, noise = (
            drawn.corrections.mean(axis=1),
            drawn.corrections.std(axis=1) / np.sqrt(20_000),
        )
        assert np.all(np.abs(mean - exact) < 4.5 * noise)
        assert np.all(noise < 0.02)


def _source(problem, t, x):
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(problem.source)(jnp.asarray(t), jnp.asarray(x)))


def test_a_tolerance_is_met_or_said():
    problem = hn.problems.get("radial-gaussian", dim=10)
    u = hn.solve(problem, tol=1e-2)
    assert u.stats["tolerance_met"] is True
    assert hn.measure(u).l2 <= 1e-2
    finer = hn.solve(problem, tol=1e-3)
    assert sum(finer.stats["features"]) >= sum(u.stats["features"])
    with pytest.warns(hn.HeatnetsWarning, match="the tolerance 1e-12 was not met"):
        best = hn.solve(problem, tol=1e-12, seconds=0.5)
    assert best.stats["tolerance_met"] is False
    assert "next round would take" in best.stats["stopped"]
    assert u.stats["stopped"] == "the tolerance is met"
    assert hn.solve(problem, tol=0, max_rounds=1).stats["tolerance_met"] is None
    with pytest.raises(hn.InputError, match="`tol` is for choosing a size"):
        hn.solve(problem, tol=1e-3, features=(8, 0))
    for wrong in (-1.0, 2.0, "small"):
        with pytest.raises(hn.InputError, match="`tol` must be"):
            hn.solve(problem, tol=wrong)


def test_a_tolerance_where_few_points_carry_the_error_is_a_plain_yes_or_no():
    u = hn.solve(hn.problems.get("moving-ridge", dim=2), tol=1e-2, seconds=5)
    assert u.stats["tolerance_met"] is True
    assert hn.measure(u).l2 <= 1e-2


def test_a_tolerance_with_kinked_data():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        how = {"enforce": "mild"}
        u = hn.solve(hn.problems.get("kinked-ridge", dim=5), tol=2e-2, **how)
        best = hn.solve(hn.problems.get("kinked-ridge", dim=5), tol=1e-5, max_rounds=1, **how)
    assert u.stats["tolerance_met"] is True
    assert hn.measure(u).l2 <= 2e-2
    assert best.stats["tolerance_met"] is False
    assert any("was not met" in text for text in best.stats["warnings"])


@pytest.mark.parametrize("family", ["importance", "gaussian"])
def test_explanations_add_up(family):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hn.HeatnetsWarning)
        problem = hn.problems.get("forced-sine")
        u = hn.solve(
            problem,
            features=(32, 64),
            rows=(2000, 0),
            family=family,
            train_region=hn.Box(-3.2, 3.2),
        )
    t, x = 0.7, np.array([0.4])
    found = u.explain(t, x)
    exact = float(hn.exact_values(problem, t, x))
    np.testing.assert_allclose(found.value, u(t, x), rtol=1e-6)
    assert abs(found.initial.value + found.source.value - exact) < 5 * np.hypot(
        found.initial.error, found.source.error
    )
    assert (
        abs(found.initial.value - np.exp(-t) * np.sin(0.4)) < 5 * found.initial.error
    )  # heat flow of sin x
    for part, low, high in zip(found.by_lag, found.lags[:-1], found.lags[1:], strict=True):
        lag = np.linspace(low, high, 2001)
        truth = np.trapezoid((t - lag + 1) * np.exp(-lag), lag) * np.sin(
            0.4
        )  # ∫ E[(t - lag + 1) sin X] d lag
        assert abs(part.value - truth) < 5 * part.error + 1e-6
    assert sum(found.network.values()) == pytest.approx(found.value)
    assert {k: len(w) for k, w in found.weights.items()} == {"initial": 32, "source": 64}
    assert 1 <= found.effective <= 96
    assert "effective features" in str(found)
    assert len(hn.plots.explanation(found).axes) == 2


def test_an_error_that_is_only_noise_is_printed_as_a_bound():
    noise = RegionError(2.3e-16, 0.0, 0.0081, None, True, (), "Monte Carlo", 512, 2048, 0.95)
    assert str(noise) == "below 0.0081 (95 %, 512 points)"
    known = replace(noise, value=5e-3, low=4e-3)
    assert str(known) == "0.005 (between 0.004 and 0.0081, 95 %, 512 points)"


class Scripted(PointSamples):
    """Samples whose half-widths are known beforehand."""

    def __init__(self, halves):
        super().__init__(0.0)
        self.halves = halves

    def _interval(self, confidence):
        half = self.halves[min(self.batches, len(self.halves)) - 1]
        return abs(half), ("tails",) if half < 0 else ()

    batches = 0


@pytest.mark.parametrize(
    ("target", "halves", "batches"),
    [
        (1.0, [0.5], 1),  # the first batch was not selected
        (1.0, [2.0, 0.9, 0.8], 3),  # confirmed
        (1.0, [2.0, 0.9, 1.5, 0.9, 0.8], 5),  # not confirmed at first
        (1.0, [-0.9, 0.9, 0.8], 3),
        (None, [0.5], 1),
        (None, [-2.0, 0.5, 0.4], 3),
        (None, [-2.0, -2.0, -2.0], 3),
    ],
)
def test_what_looks_good_after_more_samples_is_confirmed(target, halves, batches):
    point = Scripted(halves)

    def draw(pending, pairs, batch):
        for _ in pending:
            point.batches += 1
            point.count += pairs

    options = CertifyOptions(256, 0.95, 0, target, True, lambda *a: None, unit=np.ones(1))
    sample_until_good({0: point}, draw, options)
    assert point.batches == batches
    if point.reasons == () and batches > 1:  # the last batch doubled the samples
        assert point.count % 2 == 0


def test_stopping_does_not_select_samples_that_have_met_nothing_rare():
    """One sample in 200 is 33 times larger. A single look at the same size errs less often."""

    def missed(is_confirmed, seed):
        rng = np.random.default_rng(seed)
        point = NumberSamples(0.0, 0.0, 0.0, smooth=True)

        def draw(pending, pairs, batch):
            size = np.where(rng.random(pairs) < 1 / 200, 33.0, 1.0)
            point.add(size * rng.standard_normal(pairs) + size - 1, np.zeros((pairs, 2)), 0.0, 0.0)

        options = CertifyOptions(128, 0.95, 0, 0.15, True, lambda *a: None, unit=np.ones(1))
        sample_until_good({0: point}, draw, options)
        return not point.reasons and abs(point.mean - 32 / 200) > point.half

    assert np.mean([missed(True, seed) for seed in range(200)]) < 0.12


def test_certificates_of_some_points_are_joined():
    def some(values, method):
        n = len(values)
        return Certificate(
            value=np.array(values),
            error=np.zeros(n),
            halfwidth=np.array(values) / 10,
            certified=np.ones(n, bool),
            reasons=tuple((str(v),) for v in values),
            method=method,
            samples=np.full(n, 8),
            confidence=0.95,
        )

    parts = [(np.array([0, 3]), some([0.0, 3.0], "a")), (np.array([1, 2]), some([1.0, 2.0], "b"))]
    joined = Certificate.join(parts)
    assert joined.value.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert [why for (why,) in joined.reasons] == ["0.0", "1.0", "2.0", "3.0"]
    assert joined.method == "a or b"
    assert Certificate.join(parts[:1]) is parts[0][1]


def test_a_half_width_out_of_reach_is_said_where_samples_cannot_help():
    source = lambda t, x, u: 5 * u * (1 - u)  # noqa: E731
    problem = hn.Problem(2, 0.2, lambda x: jnp.exp(-x @ x), source=source)
    u = hn.solve(problem, features=(8, 8))
    with pytest.warns(hn.HeatnetsWarning, match="more samples do not help"):
        sure = u.certify(0.2, [0.1, 0.2], samples=256, halfwidth=2.5e-3)
    assert not sure.reached
    assert "more samples do not help" in sure.reasons[-1]
