"""Designs are sequences with the right moments."""

from __future__ import annotations

import numpy as np
import pytest

import heatnets as hn
from heatnets.collocation import grid, uniform
from heatnets.directions import DESIGNS, design

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
    np.testing.assert_allclose(rows.T @ rows / n, np.eye(5), atol=noise * np.sqrt(2))  # the fraction is not tied to a direction
    np.testing.assert_allclose((z**4).mean(axis=0), 3, atol=noise * np.sqrt(96))


def test_sobol_integrates_better_than_independent_draws():
    def error(name, seed):
        _, z = design(name).draw(1024, 0, 3, seed, "integral")
        return np.mean(np.cos(z).prod(axis=1)) - np.exp(-1.5)

    sobol, independent = (np.linalg.norm([error(name, seed) for seed in range(20)]) for name in ("sobol", "gaussian"))
    assert sobol < 0.2 * independent


def test_sobol_ends_somewhere():
    with pytest.raises(hn.InputError, match=r"reaches 21201 coordinates; this problem needs 30001"):
        design("sobol").draw(4, 1, 30000, 0, "wide")


def test_unknown_designs_are_refused():
    with pytest.raises(hn.InputError, match="`directions` must be one of 'gaussian', 'sobol'; got 'halton'"):
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
    t, x = grid(hn.Box(-np.pi, np.pi), 1.0, 3000, 1, np.random.default_rng(0))
    assert len(t) == 3000  # 50 points in space times 60 in time: nothing lost
    assert (len(np.unique(t)), len(np.unique(x))) in {(50, 60), (60, 50)}
    assert t.min() > 0
    assert t.max() == 1.0
    assert (x.min(), x.max()) == (-np.pi, np.pi)
    t, x = grid(hn.Box(-1.0, [1.0, 2.0]), 0.5, 1000, 2, np.random.default_rng(0))
    assert len(np.unique(x[:, 0])) == len(np.unique(x[:, 1]))
    assert 900 <= len(t) <= 1000


@pytest.mark.parametrize(("region", "dim"), [(hn.Normal(), 1), (hn.Box(0.0, 1.0), 5)])
def test_a_grid_needs_a_small_box(region, dim):
    with pytest.raises(hn.InputError, match='`collocation="grid"` needs a Box in at most 3 dimensions'):
        grid(region, 1.0, 100, dim, np.random.default_rng(0))


def test_uniform_rows_never_lie_at_time_zero():
    t, x = uniform(hn.Box(-1.0, 1.0), 2.0, 5000, 3, np.random.default_rng(0))
    assert t.min() > 0
    assert t.max() <= 2.0
    assert x.shape == (5000, 3)
