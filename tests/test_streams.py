"""Random numbers: many at a time, drawn by several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from heatnets._core import streams


@pytest.fixture
def large(monkeypatch):
    """Blocks of 1000 numbers, so that small arrays count as large."""
    monkeypatch.setattr(streams, "_LARGE", 5000)
    monkeypatch.setattr(streams, "_BLOCK", 1000)


def test_few_numbers_are_those_of_numpy():
    drawn = streams.normal(streams.generator(3, "a"), (7, 5))
    np.testing.assert_array_equal(drawn, streams.generator(3, "a").standard_normal((7, 5)))


@pytest.mark.parametrize(("draw", "moments"), [("normal", (0, 1, 3)), ("uniform", (0.5, 1 / 3))])
def test_many_numbers_follow_the_law_and_do_not_depend_on_threads(
    draw, moments, large, monkeypatch
):
    rng = streams.generator(0, "b")
    first, second = (getattr(streams, draw)(rng, (130, 333)) for _ in range(2))
    numbers = first.ravel()
    powers = {"normal": (1, 2, 4), "uniform": (1, 2)}[draw]
    for power, moment in zip(powers, moments, strict=True):
        # Five standard errors; the eighth moment of a normal number is 105.
        assert abs(np.mean(numbers**power) - moment) < 5 * np.sqrt(105 / len(numbers))
    # Neither blocks nor calls repeat numbers, and the last block is filled.
    assert len(np.unique(np.concatenate([numbers, second.ravel()]))) == 2 * len(numbers)
    monkeypatch.setattr(streams, "ThreadPoolExecutor", partial(ThreadPoolExecutor, 1))
    again = getattr(streams, draw)(streams.generator(0, "b"), (130, 333))
    np.testing.assert_array_equal(first, again)
