"""Errors on paths that go far: found by stretched paths, missed by ordinary ones."""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import heatnets as hn
from heatnets._core.execution import make_context
from heatnets.certify import certified_network, stretched_paths
from heatnets.certify.far_paths import FarAllowance
from heatnets.certify.stretched_paths import ALL, FAR, draw_stretched, find_directions, stretch

pytestmark = pytest.mark.usefixtures("x64")

DIFFUSION, HORIZON, CENTRE, WIDTH = 0.1, 0.5, 2.6, 0.15


def bump(z):
    """A bump five standard deviations of a path outside of [-1, 1]."""
    return jnp.exp(-(((z - CENTRE) / WIDTH) ** 2))


def mean_bump(z, variance):
    """E[bump(z + N(0, variance))]."""
    wide = WIDTH**2 + 2 * variance
    return WIDTH / np.sqrt(wide) * np.exp(-((z - CENTRE) ** 2) / wide)


def waves_exact(t, x):
    return np.cos(x[:, 0]) * np.exp(-DIFFUSION * t)


def exact_of_initial(t, x):
    return waves_exact(t, x) + mean_bump(x[:, 3], 2 * DIFFUSION * t)


def exact_of_source(t, x):
    nodes, weights = np.polynomial.legendre.leggauss(200)
    lag = 0.5 * t[:, None] * (1 + nodes)
    part = mean_bump(x[:, 3, None], 2 * DIFFUSION * lag)
    wave = np.sin(x[:, 1]) * -np.expm1(-DIFFUSION * t) / DIFFUSION
    return waves_exact(t, x) + wave + 0.5 * t * np.sum(weights * part, axis=1)


CASES = {
    "initial": ({"initial": lambda x: jnp.cos(x[0]) + bump(x[3])}, exact_of_initial),
    "source": (
        {"initial": lambda x: jnp.cos(x[0]), "source": lambda t, x: jnp.sin(x[1]) + bump(x[3])},
        exact_of_source,
    ),
}


@cache
def solved(case):
    data, exact = CASES[case]
    problem = hn.Problem(dim=5, horizon=HORIZON, diffusion=DIFFUSION, **data)
    return hn.solve(problem, tol=0, max_rounds=2, seconds=300), exact


def normal_bump(z, centre=5.0, width=0.3):
    return np.exp(-(((z - centre) / width) ** 2))


def normal_mean(power=1, centre=5.0, width=0.3):
    """E[normal_bump(N(0, 1))^power]."""
    width = width / np.sqrt(power)
    return width / np.sqrt(width**2 + 2) * np.exp(-(centre**2) / (width**2 + 2))


def unit(rng, m):
    v = rng.standard_normal(m)
    return v / np.linalg.norm(v)


@pytest.mark.parametrize("stretching", [FAR, ALL])
def test_stretched_noise_has_ordinary_means(stretching):
    """Weighted means are those of ordinary noise, within four standard errors."""
    rng = np.random.default_rng(1)
    n, m = 200_000, 4
    v, w = unit(rng, m), unit(rng, m)
    noise, ratio = stretch(rng, rng.standard_normal((n, m)), v, stretching)
    c = float(v @ w)
    # P(v·η > b), E[cos(w·η); v·η > b] by quadrature over the component, and the rare bump.
    low = stretching.beyond if stretching.ordinary == 0 else -12.0
    z, weight = np.polynomial.legendre.leggauss(400)
    z, weight = low + 0.5 * (12 - low) * (1 + z), 0.5 * (12 - low) * weight
    density = weight * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    waves = np.exp(-0.5 * (1 - c**2)) * np.sum(density * np.cos(c * z))
    known = {
        "one": (np.ones(n), scipy.special.ndtr(-low)),
        "wave": (np.cos(noise @ w), waves),
        "bump": (normal_bump(noise @ v), normal_mean()),
    }
    for name, (f, exact) in known.items():
        samples = ratio * f
        error = samples.std(ddof=1) / np.sqrt(n)
        assert abs(samples.mean() - exact) < 4 * error + 1e-12, name
    assert np.max(ratio) <= (1 / stretching.ordinary if stretching.ordinary else 0.02)


@pytest.mark.parametrize("stretching", [FAR, ALL])
def test_stretched_noise_meets_a_rare_bump(stretching):
    """The variance for a bump at five standard deviations is a ten-thousandth of the plain one."""
    rng = np.random.default_rng(2)
    v = unit(rng, 6)
    noise, ratio = stretch(rng, rng.standard_normal((20_000, 6)), v, stretching)
    plain = normal_mean(2) - normal_mean() ** 2
    assert np.var(ratio * normal_bump(noise @ v)) < 1e-4 * plain


def test_stretched_paths_have_ordinary_ends():
    """Weighted means at the ends of stretched paths are exact Gaussian means, for a full matrix."""
    A = np.array([[1.0, 0.4, 0.0], [0.4, 0.7, -0.2], [0.0, -0.2, 0.3]])
    a = np.array([0.5, -1.0, 0.8])
    problem = hn.Problem(
        dim=3,
        horizon=0.5,
        diffusion=A,
        initial=lambda x: jnp.cos(x[0]) + jnp.exp(-(((a @ x - 4.0) / 0.2) ** 2)),
    ).canonical
    rng, x = np.random.default_rng(3), np.array([0.1, 0.2, -0.3])
    found = find_directions(problem, x[None], 0.5, rng, make_context())
    deviation = np.sqrt(2 * 0.5 * a @ A @ a)
    best = int(np.argmax(found.ridge @ a / np.linalg.norm(found.ridge, axis=1)))
    noise, ratio = draw_stretched(
        rng, (50_000,), problem=problem, direction=found.noise[best], stretching=ALL
    )
    ends = problem.paths.simulate(0.5, x, 0.5, noise).position
    samples = ratio * np.exp(-(((ends @ a - 4.0) / 0.2) ** 2))
    wide = 0.2**2 + 2 * deviation**2
    exact = 0.2 / np.sqrt(wide) * np.exp(-((a @ x - 4.0) ** 2) / wide)
    error = samples.std() / np.sqrt(len(samples))
    assert abs(samples.mean() - exact) < 4 * error
    assert error < 0.05 * exact
    # The projection of a path on its ridge has the lag as variance.
    move = np.sqrt(2.0) * problem.paths.scale_noise(np.eye(3)).T @ found.noise.T
    np.testing.assert_allclose(np.sum(found.ridge * move.T, axis=1), 1.0, rtol=1e-6)


def test_directions_of_data_without_slopes():
    """Constant data have no directions, and gradients that are not finite do not count."""
    rng, x = np.random.default_rng(4), np.zeros((1, 3))

    def count(initial):
        problem = hn.Problem(dim=3, horizon=0.5, initial=initial).canonical
        return len(find_directions(problem, x, 0.5, rng, make_context(), 64))

    assert count(lambda x: 1.0 + 0.0 * x[0]) == 0
    # Seven standard deviations from the start: not on ordinary paths, which are checked.
    assert count(lambda x: jnp.where(x[0] > 7.0, jnp.nan, x[2])) == 2


def test_bump_of_tiny_slope_is_found():
    """A far bump on top of larger waves: its direction is found, in 30 dimensions."""
    rng = np.random.default_rng(5)
    a, b = unit(rng, 30), unit(rng, 30)
    problem = hn.Problem(
        dim=30,
        horizon=0.5,
        diffusion=0.1,
        initial=lambda x: (
            100 * jnp.sin(b @ x) * jnp.cos(x[1]) + jnp.exp(-(((a @ x - 2) / 0.1) ** 2))
        ),
    ).canonical
    x = rng.uniform(-0.1, 0.1, (64, 30))
    found = find_directions(problem, x, 0.5, rng, make_context())
    assert np.max(found.noise @ a) > 0.85


@pytest.mark.parametrize("case", CASES)
def test_estimate_knows_of_a_far_bump(case):
    """The estimated error is not below a third of the error, though no ordinary sample shows it."""
    u, exact = solved(case)
    t, x = hn.random_points(u.problem, 20_000, seed=1)
    values, truth = u(t, x), exact(t, x)
    true = float(np.sqrt(np.mean((values - truth) ** 2) / np.mean(truth**2)))
    check = u.stats["check"]
    assert check["residual_form"] < true / 10
    assert true / 3 < u.stats["estimated_error"] < 10 * true
    assert any("go far" in words for words in check["doubts"])
    sure = u.error()
    assert sure.high > true / 3 or not sure.certified


@pytest.mark.parametrize("case", CASES)
def test_certificates_know_of_a_far_bump(case, monkeypatch):
    """Intervals contain the value, or are declined; those of ordinary samples alone do not."""
    u, exact = solved(case)
    x = np.random.default_rng(6).uniform(-1, 1, (6, 5))
    x[:, 3] = [0.98, 0.7, 0.5, 0.4, 0.3, -0.5]
    t = np.full(6, HORIZON)
    truth = exact(t, x)
    sure = u.certify(t, x, samples=1024)
    gap = np.abs(sure.value - truth)
    assert np.all((gap <= sure.halfwidth) | ~sure.certified)
    assert sure.certified[-1]
    nothing = FarAllowance(np.zeros(6), [()] * 6)
    monkeypatch.setattr(certified_network, "far_error", lambda *args: nothing)
    blind = u.certify(t, x, samples=1024)
    wrong = np.abs(blind.value - truth) > 5 * blind.halfwidth
    assert np.any(wrong & blind.certified)
    assert blind.halfwidth[-1] <= sure.halfwidth[-1]


@pytest.mark.parametrize(("n", "width", "rank"), [(60, 5, 5), (80, 30, 3), (0, 4, 1)])
def test_chosen_directions_are_those_of_deflation(n, width, rank):
    """The largest slopes and those unlike all others, with every row made orthogonal each time."""
    rng = np.random.default_rng(n)
    slopes = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, width + 2))
    slopes /= np.linalg.norm(slopes[:, :width], axis=1, keepdims=True)
    sizes = np.exp(3 * rng.standard_normal(n))
    chosen = []
    for importance in (np.ones(n), sizes / np.max(sizes, initial=1e-300)):
        rest = importance[:, None] * slopes
        for _ in range(stretched_paths._MOST):
            norms = np.linalg.norm(rest[:, :width], axis=1)
            if not np.max(norms, initial=0.0) > stretched_paths._NEGLIGIBLE:
                break
            i = int(np.argmax(norms))
            remainder = rest[i] / norms[i]
            low, high = stretched_paths._OBLIQUE
            candidate = slopes[i] if low < norms[i] / importance[i] < high else remainder
            if all(abs(candidate[:width] @ c[:width]) < stretched_paths._SAME for c in chosen):
                chosen.append(candidate)
            rest = rest - np.outer(rest[:, :width] @ remainder[:width], remainder)
    found = stretched_paths._choose_directions(np.column_stack([slopes, sizes]), width)
    expected = np.array([s * v for v in chosen for s in (1.0, -1.0)]).reshape(-1, width + 2)
    np.testing.assert_allclose(found.noise, expected[:, :width], atol=1e-9)
    np.testing.assert_allclose(found.ridge, expected[:, width:], atol=1e-9)
