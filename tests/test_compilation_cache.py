"""The cache of compiled programs: written, read, damaged, switched off, kept small."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from heatnets._core import compilation_cache
from heatnets._core.compilation import compiled, compiler_options, optimisation_level
from heatnets._core.compilation_cache import use_compilation_cache

PROGRAM = """
import sys
import heatnets as hn
if "early" in sys.argv: hn.use_compilation_cache()
import jax, jax.monitoring
found = []
jax.monitoring.register_event_listener(lambda event, **k: found.append(event))
if "early" not in sys.argv: hn.use_compilation_cache()
print(float(jax.jit(lambda x: 2 * x + 1)(3.0)), "/jax/compilation_cache/cache_hits" in found)
"""


def printed(directory, *arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment |= {"HEATNETS_CACHE": str(directory), "PYTHONWARNINGS": "error"}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_second_process_reads_programs_also_beside_damaged_ones(tmp_path):
    assert printed(tmp_path) == ["7.0", "False"]
    assert printed(tmp_path, "early") == ["7.0", "True"]
    for entry in tmp_path.glob("*-cache"):
        entry.write_bytes(entry.read_bytes()[:40])
    assert printed(tmp_path) == ["7.0", "False"]


@pytest.mark.parametrize("word", ["off", "0", "None"])
def test_switched_off(monkeypatch, word):
    monkeypatch.setenv("HEATNETS_CACHE", word)
    assert use_compilation_cache() is None


@pytest.mark.parametrize("place", ["file/cache", "~nobody-of-this-name/cache"])
def test_a_directory_that_cannot_be_made_is_ignored(tmp_path, monkeypatch, place):
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    assert use_compilation_cache(place) is None


def test_a_cache_that_jax_was_given_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "old-cache").write_bytes(bytes(100))
    monkeypatch.setattr(compilation_cache, "_MOST_BYTES", 50)
    monkeypatch.delenv("HEATNETS_CACHE", raising=False)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    before = jax.config.jax_compilation_cache_dir
    assert use_compilation_cache() is None
    assert jax.config.jax_compilation_cache_dir == before
    assert (tmp_path / "old-cache").exists()


def test_programs_are_optimised_by_their_work():
    for level in (0, 1):
        assert compiler_options("cpu", level)  # this version of XLA knows them
    assert compiler_options("cpu", 2) is None
    assert optimisation_level(1000, 1000) == 0
    assert optimisation_level(10**6, 1000) == optimisation_level(1000, 10**8) == 1
    assert optimisation_level(10**8, 1000) == 2


def test_the_oldest_programs_are_removed(tmp_path, monkeypatch):
    for age, name in enumerate(("new-cache", "older-cache", "oldest-cache")):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    (tmp_path / "other").write_bytes(bytes(1000))
    monkeypatch.setattr(compilation_cache, "_MOST_BYTES", 250)
    compilation_cache._remove_oldest(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new-cache", "older-cache", "other"]


def test_programs_serve_other_arrays_but_not_other_settings():
    traces = []

    @compiled
    def scale(parameters, power, x):
        traces.append(power)
        return parameters["factor"] * x**power

    x = np.array([1.0, 2.0])
    for factor, power in ((2.0, 2), (3.0, 2), (3.0, 3)):
        powers_of = scale.fix({"factor": np.array(factor)}, power)
        np.testing.assert_allclose(powers_of(x), factor * x**power, rtol=1e-6)
        np.testing.assert_allclose(powers_of(2 * x), factor * (2 * x) ** power, rtol=1e-6)
        np.testing.assert_allclose(scale({"factor": np.array(factor)}, power, x), powers_of(x))
    assert set(traces) == {2, 3}
    assert len(traces) == 4  # `x` is a fixed argument in one program, and a last one in the other
