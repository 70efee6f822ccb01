"""The cache of compiled programs: written, read, damaged, switched off, kept small."""

import os
import subprocess
import sys

import pytest

from heatnets._core import compilation_cache
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


def test_a_directory_that_cannot_be_made_is_ignored(tmp_path):
    (tmp_path / "file").write_text("")
    assert use_compilation_cache(tmp_path / "file" / "cache") is None


def test_the_oldest_programs_are_removed(tmp_path, monkeypatch):
    for age, name in enumerate(("new-cache", "older-cache", "oldest-cache")):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    (tmp_path / "other").write_bytes(bytes(1000))
    monkeypatch.setattr(compilation_cache, "_MOST_BYTES", 250)
    compilation_cache._remove_oldest(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new-cache", "older-cache", "other"]
