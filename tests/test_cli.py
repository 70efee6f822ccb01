"""The command line as a user meets it: exit codes, words on standard error, files."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from rich.console import Console

import heatnets as hn
from heatnets._core.execution import Summary
from heatnets._core.progress import SolveFraction
from heatnets.cli import terminal
from heatnets.solvers.options import make_options


def heatnets(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "heatnets", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def test_demo_solves_measures_and_draws(tmp_path):
    done = heatnets("demo", "--out", "picture.svg", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    # -log E 2/(1 + |√2 ξ|²) by the law of |ξ|, chi with 100 degrees of freedom.
    r = np.linspace(0, 20, 40_001)[1:]
    density = np.exp(99 * np.log(r / 10) - r**2 / 2)
    exact = -np.log(np.sum(2 / (1 + 2 * r**2) * density) / np.sum(density))
    assert result["exact"] == pytest.approx(exact, rel=1e-6)
    assert abs(result["value"] - exact) <= 3 * result["halfwidth"] < 3e-3 * exact
    assert (tmp_path / "picture.svg").read_text().count("<path") > 10
    assert "tolerance met" in done.stderr


def test_one_bar_for_a_solve():
    now = [0.0]
    bar = SolveFraction(1e-4, 60.0, clock=lambda: now[0])
    shown = [bar.fraction]
    assert bar.seconds_left is None
    for seconds, error in ((3.0, 1e-2), (9.0, 1e-3), (12.0, 3e-3)):
        now[0] = seconds
        bar("round", 1, 2)  # a phase moves it by the clock alone
        shown.append(bar.fraction)
        bar(Summary("round", error), 1, 1)
        shown.append(bar.fraction)
    # From 1e-2 to 1e-4 an error of 1e-3 is half of the way; a worse round does not set it back.
    assert shown == pytest.approx([0, 0.05, 0.05, 0.15, 0.5, 0.5, 0.5])
    assert bar.seconds_left == pytest.approx(12.0)
    now[0] = 54.0
    bar("round", 1, 2)
    assert bar.fraction == pytest.approx(0.9)
    now[0] = 70.0
    bar(Summary("round", 1e-9), 1, 1)
    assert bar.fraction < 1
    assert bar.seconds_left == 0.0
    bar.finish()
    assert bar.fraction == 1


def test_the_bar_of_given_rounds_and_of_a_given_size():
    rounds = SolveFraction(None, None, 3)
    for _ in range(2):
        rounds(Summary("round", None), 1, 1)
    assert rounds.fraction == pytest.approx(1 / 4)
    fixed = SolveFraction(grows=False)
    fixed("equation rows", 1, 2)
    assert fixed.fraction == 0.5
    fixed("least squares", 0, 1)
    assert fixed.fraction == 0.5


def test_a_solve_shows_one_bar_on_a_terminal(monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, width=100, highlight=False)
    problem = hn.problems.get("oscillating", dim=3)
    options = {"features": (8, 8)}
    with terminal.SolveBar(console, make_options(problem, **options)) as progress:
        hn.solve(problem, progress=progress, **options)
    last = console.file.getvalue().split("\r")[-2]
    assert "100 %" in last
    assert last.count("%") == 1


def test_doctor_tells_devices_precision_and_versions(run_command):
    facts = json.loads(run_command("doctor", "--json").out)
    assert facts["devices"][0].startswith("cpu")
    assert facts["precision"].startswith("float64")
    assert {"jax", "folx", "numpy"} <= set(facts)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["demo", "--dim", "0"], 2, "heatnets: `dim` must be a whole number >= 1; got 0"),
        (["demo", "--out", "missing/picture.png"], 2, "heatnets: `out` must be"),
        (["demo", "--out", "picture.txt"], 2, "heatnets: `out` must be"),
        (["demo", "--seed", "-1"], 2, "heatnets: `seed` must be"),
        (["demo", "--speed"], 2, "No such option: --speed"),
        (["paint"], 2, "No such command 'paint'"),
        (["reproduce"], 2, "name a result: one-dim"),
        (["reproduce", "table-3"], 2, "`name` must be one of 'one-dim'"),
        (["reproduce", "table-2", "--scale", "huge"], 2, "`scale` must be one of 'quick', 'paper'"),
    ],
)
def test_mistakes_are_answered_in_words(arguments, code, words, run_command, tmp_path):
    done = run_command(*arguments)
    assert done.code == code
    assert words in done.err
    assert "Traceback" not in done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_is_clean(number, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "heatnets", "demo", "--dim", "300"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()  # it has begun
    time.sleep(3)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert errors.strip() == "heatnets: interrupted; nothing was written"
    assert not list(tmp_path.iterdir())


def test_results_are_listed(run_command):
    done = run_command("reproduce", "--list")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == [
        "one-dim",
        "table-1",
        "horizons",
        "table-2",
        "underdetermined",
        "nonseparable",
        "convergence",
        "claims",
        "semilinear",
    ]


def test_an_interrupted_reproduction_says_what_is_kept(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "heatnets", "reproduce", "one-dim", "--out", "out"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    while "seed=1 " not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors.strip() == (
        "heatnets: interrupted; finished cells are kept in out: the same command goes on from there"
    )
    kept = json.loads((tmp_path / "out" / "one-dim.json").read_text())["cells"]
    assert {"gaussian seed=0", "gaussian seed=1"} <= set(kept)


def test_version(run_command):
    assert run_command("--version").out.startswith("heatnets 0.")
