"""Designs are sequences with the right moments."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

import heatnets as hn
from heatnets.features.designs import DESIGNS, HadamardSigns, design
from heatnets.fit.collocation import grid, paths, time_fractions, uniform

EACH = pytest.mark.parametrize("name", DESIGNS)


@EACH
def test_the_first_entries_never_change(name):
    short, long = (design(name).draw(n, 2, 5, 7, "a stream") for n in (37, 300))
    for a, b in zip(short, long, strict=True):
        np.testing.assert_array_equal(a, b[:37])


@EACH
def test_streams_and_seeds_are_independent(name):
    first = design(name).draw(16, 1, 3, 0, "a stream")[1]
    assert not np.any(first == design(name).draw(16, 1, 3, 1, "a stream")[1])
    assert not np.any(first == design(name).draw(16, 1, 3, 0, "another")[1])


@EACH
def test_moments(name):
    n = 8192
    u, z = design(name).draw(n, 1, 4, 3, "moments")
    rows = np.column_stack([(u - 0.5) * np.sqrt(12), z])
    noise = 5 / np.sqrt(n)
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=noise)
    np.testing.assert_allclose(
        rows.T @ rows / n, np.eye(5), atol=noise * np.sqrt(2)
    )  # the fraction is not tied to a direction
    kurtosis = design(name).kurtosis(4)
    np.testing.assert_allclose((z**4).mean(axis=0), kurtosis, atol=noise * np.sqrt(96))


@EACH
def test_no_coordinates_are_no_trouble(name):
    flat, bell = design(name).draw(5, 1, 0, 0, "empty")
    assert (flat.shape, bell.shape) == ((5, 1), (5, 0))
    assert design(name).draw(0, 1, 3, 0, "empty")[1].shape == (0, 3)


@pytest.mark.parametrize("name", ["signs", "hadamard"])
def test_signs_give_every_coordinate_the_same_size(name):
    _, z = design(name).draw(512, 0, 200, 1, "signs")
    radius = np.abs(z[:, 0])
    np.testing.assert_array_equal(np.abs(z), np.tile(radius[:, None], 200))
    # The radii are spread like quantiles of |N(0, 1)|: their distribution function misses by less
    # than 3/512, not by 512^{-1/2}.
    miss = np.sort(radius) - scipy.special.ndtri(0.5 + 0.5 * (np.arange(512) + 0.5) / 512)
    assert np.max(np.abs(miss[:480])) < 0.03


@pytest.mark.parametrize("dim", [1, 5, 16, 100])
def test_complete_hadamard_blocks_are_isotropic(dim):
    length = 1 << max(dim - 1, 0).bit_length()
    _, z = HadamardSigns(one_radius=True).draw(3 * length, 0, dim, 4, "blocks")
    for block in np.split(z, 3):
        np.testing.assert_allclose(
            block.T @ block, length * block[0, 0] ** 2 * np.eye(dim), atol=1e-12 * length
        )
    radii = [block[0, 0] ** 2 for block in np.split(z, 3)]
    assert len(set(radii)) == 3
    _, inside = HadamardSigns(one_radius=False).draw(length, 0, dim, 4, "blocks")
    assert dim < 2 or len(np.unique(np.abs(inside[:, 0]))) > 1


@pytest.mark.parametrize("dim", [1, 7, 300])
def test_orthogonal_blocks_are_orthogonal_with_gaussian_lengths(dim):
    size = min(dim, 256)
    _, z = design("orthogonal").draw(20 * size, 0, dim, 2, "blocks")
    for block in np.split(z, 20):
        gram = block @ block.T
        np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-11 * dim)
    lengths = np.sum(z**2, axis=1)  # χ² with d degrees of freedom: mean d, variance 2d
    assert abs(lengths.mean() - dim) < 6 * np.sqrt(2 * dim / len(z))


def heat(dim, horizon):
    return hn.Problem(dim, horizon, initial=jnp.sum, diffusion=0.5).canonical


def test_paths_cover_the_region_and_what_leads_there():
    """In 500 dimensions: not one shell, both ends of time, the region itself and the paths."""
    t, x = paths(heat(500, 2.0), hn.Box(1.0, 3.0), 4000, np.random.default_rng(0))
    assert t.shape == (4000,)
    assert x.shape == (4000, 500)
    assert np.all((t > 0) & (t <= 2))
    radius = np.linalg.norm(x - 2, axis=1) / np.sqrt(
        500 / 3
    )  # points of the box lie on the shell 1
    for low in (0.1, 0.3, 0.5, 0.7, 1.1, 1.5):
        assert np.mean((radius > low) & (radius < low + 0.2)) > 0.01
    assert np.mean(np.all(np.abs(x - 2) <= 1, axis=1)) > 0.4
    assert np.mean(t < 1e-3) > 0.02
    assert np.mean(t > 2 - 1e-3) > 0.03
    t, x = paths(heat(3, 1.0), hn.Point(np.zeros(3)), 1000, np.random.default_rng(0))
    assert len(np.unique(x[:, 0])) == 1000
    assert np.mean(np.linalg.norm(x, axis=1) < 0.05) > 0.05


def test_time_fractions_have_the_density_they_say():
    r, density = time_fractions(np.random.default_rng(1), 200_000)
    assert np.all((r > 0) & (r < 1))
    for f in (lambda r: r**0, lambda r: r, lambda r: np.cos(3 * r), lambda r: 0.1 / (0.1 + r)):
        samples = f(r) / density
        exact = scipy.integrate.quad(f, 0, 1)[0]
        assert abs(samples.mean() - exact) < 4 * samples.std() / np.sqrt(len(r)) + 1e-6
    assert np.mean(r < 1e-3) > 0.1
    assert np.mean(1 - r < 1e-3) > 0.1


def test_sobol_integrates_better_than_independent_draws():
    def error(name, seed):
        _, z = design(name).draw(1024, 0, 3, seed, "integral")
        return np.mean(np.cos(z).prod(axis=1)) - np.exp(-1.5)

    sobol, independent = (
        np.linalg.norm([error(name, seed) for seed in range(20)]) for name in ("sobol", "gaussian")
    )
    assert sobol < 0.2 * independent


def test_uniform_coordinates_are_shifted_halton_points():
    shifted = design("signs").draw(3000, 4, 2, 7, "points")[0]
    halton = scipy.stats.qmc.Halton(5, scramble=False).random(3000)[:, 1:]
    shift = (shifted[:1] - halton[:1]) % 1.0
    assert len(np.unique(shift)) == 4
    np.testing.assert_allclose((halton + shift) % 1.0, shifted, atol=1e-11)


def test_sobol_ends_somewhere():
    with pytest.raises(hn.InputError, match=r"reaches 21201 coordinates; this problem needs 30001"):
        design("sobol").draw(4, 1, 30000, 0, "wide")


def test_unknown_designs_are_refused():
    names = ", ".join(map(repr, DESIGNS))
    with pytest.raises(hn.InputError, match=f"`directions` must be one of {names}; got 'halton'"):
        design("halton")


def test_a_design_of_the_users_own_serves():
    class Axes(hn.Design):
        name = "axes"

        def draw(self, count, uniform, normal, seed, stream):
            return np.full((count, uniform), 0.5), np.eye(normal)[np.arange(count) % max(normal, 1)]

    problem = hn.problems.get("oscillating", dim=2)
    with pytest.warns(hn.HeatnetsWarning, match="not solved"):
        u = hn.solve(problem, features=(4, 4), rows=(50, 10), directions=Axes())
    assert u.stats["design"] == "axes"


def test_the_papers_grid():
    t, x = grid(heat(1, 1.0), hn.Box(-np.pi, np.pi), 3000, np.random.default_rng(0))
    assert len(t) == 3000  # 50 points in space times 60 in time: nothing lost
    assert (len(np.unique(t)), len(np.unique(x))) in {(50, 60), (60, 50)}
    assert t.min() > 0
    assert t.max() == 1.0
    assert (x.min(), x.max()) == (-np.pi, np.pi)
    t, x = grid(heat(2, 0.5), hn.Box(-1.0, [1.0, 2.0]), 1000, np.random.default_rng(0))
    assert len(np.unique(x[:, 0])) == len(np.unique(x[:, 1]))
    assert 900 <= len(t) <= 1000


@pytest.mark.parametrize(("region", "dim"), [(hn.Normal(), 1), (hn.Box(0.0, 1.0), 5)])
def test_a_grid_needs_a_small_box(region, dim):
    with pytest.raises(
        hn.InputError, match='`collocation="grid"` needs a Box in at most 3 dimensions'
    ):
        grid(heat(dim, 1.0), region, 100, np.random.default_rng(0))


def test_uniform_rows_never_lie_at_time_zero():
    t, x = uniform(heat(3, 2.0), hn.Box(-1.0, 1.0), 5000, np.random.default_rng(0))
    assert t.min() > 0
    assert t.max() <= 2.0
    assert x.shape == (5000, 3)
