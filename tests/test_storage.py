"""Files that are whole or not there, and ledgers that lose nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from heatnets._core import atomic_files, container
from heatnets._core.errors import FileError, InputError

HEADER = {"result": "table-2", "scale": "quick"}


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    atomic_files.write(path, "old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        atomic_files.write(path, "new, and longer")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]  # and nothing is left beside it


def test_what_is_begun_can_be_abandoned_and_what_is_finished_stays(tmp_path, monkeypatch):
    atomic_files.write(tmp_path / "kept.txt", "whole")
    seen = []

    def stop(_):
        seen.append(len(os.listdir(tmp_path)))
        atomic_files.remove_partial_files()
        seen.append(len(os.listdir(tmp_path)))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        atomic_files.write(tmp_path / "begun.txt", "half")
    assert seen == [2, 1]
    atomic_files.remove_partial_files()
    assert (tmp_path / "kept.txt").read_text() == "whole"


def test_a_ledger_keeps_finished_cells_of_the_same_settings(tmp_path):
    path = tmp_path / "table-2.json"
    with atomic_files.ledger(path, HEADER) as ledger:
        ledger.add("a", {"features": (1, 2)}, {"error": 0.1 + 0.2})
        ledger.add("b", {"features": (3, 4)}, {"error": 1e-300})
    with atomic_files.ledger(path, HEADER) as again:
        assert again.find("a", {"features": (1, 2)})["error"] == 0.1 + 0.2  # to the last bit
        assert (
            again.find("a", {"features": (1, 3)}) is None
        )  # asked for something else: not finished
        assert again.find("c", {"features": (1, 2)}) is None
        again.reorder(["b", "a"])
    assert list(json.loads(path.read_text())["cells"]) == ["b", "a"]
    assert os.listdir(tmp_path) == ["table-2.json"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"schema": 1, "result": "table-2", "scale": "qui', "is not a JSON file"),
        ("[1, 2]", "was not written by heatnets"),
        ('{"cells": {}}', "was not written by heatnets"),
        (
            '{"schema": 99, "result": "table-2", "scale": "quick", "cells": {}}',
            "written by a newer heatnets",
        ),
        (
            '{"schema": 1, "result": "table-2", "scale": "paper", "cells": {}}',
            "holds scale 'paper', not 'quick'",
        ),
        ('{"schema": 1, "result": "table-2", "scale": "quick", "cells": [1]}', "no readable cells"),
    ],
)
def test_files_that_are_not_ours_are_refused_in_words_and_left_alone(tmp_path, content, words):
    path = tmp_path / "table-2.json"
    path.write_text(content)
    with pytest.raises(InputError, match=words), atomic_files.ledger(path, HEADER):
        pass
    assert path.read_text() == content


def test_two_runs_do_not_write_one_ledger(tmp_path):
    path = tmp_path / "table-2.json"
    with (
        atomic_files.ledger(path, HEADER),
        pytest.raises(FileError, match="another run is writing"),
        atomic_files.ledger(path, HEADER),
    ):
        pass


def test_a_killed_process_leaves_every_finished_cell_and_no_lock(tmp_path):
    path = tmp_path / "table-2.json"
    code = f"""
from pathlib import Path
from heatnets._core import atomic_files
with atomic_files.ledger(Path({str(path)!r}), {HEADER!r}) as ledger:
    i = 0
    while True:
        ledger.add(str(i), {{"i": i}}, {{"text": "x" * 20000}})
        print(i, flush=True)
        i += 1
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    while int(process.stdout.readline()) < 20:
        pass
    time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    said = [int(line) for line in process.communicate()[0].split()]
    with atomic_files.ledger(path, HEADER) as ledger:
        assert len(ledger.cells) >= max(said, default=20) + 1
        assert all(ledger.find(key, {"i": int(key)}) for key in ledger.cells)


class _Inner(NamedTuple):
    weights: Float[Array, " features"]
    rank: int
    notes: list[str]


class _Step(NamedTuple):
    sizes: tuple[int, int]
    error: float


@dataclass
class _Record:
    steps: list[_Step]
    times: tuple[float, ...]
    clock: dict[str, float]
    best: _Inner | None = None
    last: _Inner | None = None


def test_records_become_json_and_back_and_their_arrays_are_kept_apart():
    inner = _Inner(jnp.asarray([1.0, 2.0]), 2, ["note"])
    steps = [_Step((1, 2), np.inf), _Step((3, 4), np.float64(0.5))]
    record = _Record(steps, (1.0, 2.0, 3.0), {"solve": -np.inf}, inner)
    text = json.dumps(container.to_jsonable(record), allow_nan=False)
    assert json.loads(text) == {
        "steps": [[[1, 2], "inf"], [[3, 4], 0.5]],
        "times": [1.0, 2.0, 3.0],
        "clock": {"solve": "-inf"},
        "best": [2, ["note"]],
        "last": None,
    }
    stored = {**container.restore_numbers(json.loads(text)), "another entry": 1}
    again = container.from_jsonable(_Record, stored, {"best": inner.weights})
    assert again == record
    assert isinstance(again.steps[0], _Step)
    assert again.best.weights is inner.weights
    with pytest.raises(ValueError, match="shorter"):
        container.from_jsonable(_Step, [[1, 2]])
