"""`heatnets solve | eval | info | plot | problems | new`, called as users and scripts call them.

Checked are what is printed and written, and how every fault of the input is reported.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import cache

import numpy as np
import pytest

import heatnets as hn
from heatnets._core import atomic_files
from heatnets.cli import point_files

pytestmark = pytest.mark.filterwarnings("ignore::heatnets.HeatnetsWarning")

TOML = """
dim = 3
horizon = 0.5
initial = "sum(sin(a*x))"
diffusion = 1.0
region = { box = [-1, 1] }
exact = "exp(-a^2*t) * sum(sin(a*x))"
[parameters]
a = 2.0
[solve]
tol = 0
max_rounds = 1
[[certify]]
t = 0.5
x = 0.3
"""
EXACT = float(np.exp(-2.0) * 3 * np.sin(0.6))


@pytest.fixture
def heatnets(run_command, tmp_path):
    """The command line in this process, in a folder with a problem."""
    (tmp_path / "own.toml").write_text(TOML)
    return run_command


def left(folder):
    return sorted(p.name for p in folder.iterdir())


def test_from_a_file_to_values(heatnets, tmp_path):
    done = heatnets("solve", "own.toml", "--json", "--values", "v.csv", "--report", "own.html")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    (sure,) = found["certificates"]
    assert sure["certified"]
    assert sure["low"] <= EXACT <= sure["high"]
    assert found["estimated_error"] < 1e-6
    assert "round 0:" in done.err
    assert left(tmp_path) == ["own.heatnets", "own.html", "own.toml", "v.csv"]
    assert (
        (tmp_path / "v.csv")
        .read_text()
        .startswith("t,x_1,x_2,x_3,value,low,high,halfwidth,certified,note\n0.5,0.3,")
    )
    assert "sum(sin(a*x))" in (tmp_path / "own.html").read_text()

    (tmp_path / "at.csv").write_text("t,x\n0.5,0.3\n0.25,0.1\n0.25,7\n0.7,0.1\n")
    done = heatnets("eval", "own.heatnets", "--at", "at.csv", "--certify", "--gradient")
    assert done.code == 0, done.err
    head, first, second, far, late = (line.split(",") for line in done.out.splitlines())
    assert head[:6] == ["row", "t", "x_1", "x_2", "x_3", "value"]
    assert second[:5] == ["2", "0.25", "0.1", "0.1", "0.1"]
    assert float(first[5]) == pytest.approx(EXACT, rel=1e-6)
    assert float(second[5]) == pytest.approx(np.exp(-1.0) * 3 * np.sin(0.2), rel=1e-5)
    assert float(first[head.index("low")]) <= EXACT <= float(first[head.index("high")])
    assert float(first[head.index("gradient_1")]) == pytest.approx(
        2 * np.exp(-2.0) * np.cos(0.6), rel=1e-5
    )
    assert far[-1].startswith("extrapolated: outside the region")
    assert late[5] == "nan"
    assert late[-1] == '"no value: outside the horizon' or "outside the horizon" in ",".join(late)

    assert heatnets("eval", "own.heatnets", "--at", "at.csv", "--out", "values.npz").code == 0
    with np.load(tmp_path / "values.npz") as arrays:
        assert arrays["value"][0] == float(first[5])
        assert arrays["t"].tolist() == [0.5, 0.25, 0.25, 0.7]
        assert arrays["x"].shape == (4, 3)
    done = heatnets("info", "own.heatnets")
    assert done.code == 0
    assert 'initial = "sum(sin(a*x))"' in done.out
    assert json.loads(heatnets("info", "own.heatnets", "--json").out)["stats"]["seed"] == 0
    done = heatnets("plot", "own.heatnets", "--kind", "evolution", "--out", "e.svg", "--dark")
    assert done.code == 0, done.err
    assert (tmp_path / "e.svg").stat().st_size > 5000
    assert heatnets("plot", "own.heatnets", "--axis", "1", "--times", "0.1,0.5").code == 0
    assert (tmp_path / "own-axis.png").exists()
    done = heatnets("plot", "own.heatnets", "--kind", "slices", "--times", "0.1")
    assert done.code == 2
    assert "--times is for the kinds axis and line" in done.err
    assert (
        heatnets("plot", "own.heatnets", "--kind", "slicez")
        .err.strip()
        .endswith("did you mean 'slices'?")
    )


def test_what_is_not_certified_ends_with_three(heatnets, tmp_path, monkeypatch):
    (tmp_path / "own.toml").write_text(TOML + "samples = 4\n")
    done = heatnets("solve", "own.toml", "--json")
    assert done.code == 3
    assert "not certified: 1 of 1 points (only 2 independent sample pairs" in done.err
    assert json.loads(done.out)["certificates"][0]["certified"] is False
    certify = hn.Solution.certify
    monkeypatch.setattr(
        hn.Solution, "certify", lambda *a, **named: certify(*a, **{**named, "samples": 4})
    )
    # Points from a pipe.
    monkeypatch.setattr(sys, "stdin", io.StringIO("t,x\n0.5,0.3\n0.25,0.1\n"))
    done = heatnets("eval", "own.heatnets", "--at", "-", "--certify")
    assert done.code == 3
    assert "not certified: 2 of 2 points" in done.err
    first = next(csv.DictReader(io.StringIO(done.out)))
    assert float(first["value"]) == pytest.approx(EXACT, rel=1e-6)


def test_a_finished_result_is_not_solved_again_by_resume(heatnets, tmp_path):
    (tmp_path / "own.heatnets").write_bytes(b"finished")
    done = heatnets("solve", "own.toml", "--resume")
    assert done.code == 2
    assert "there is no own.heatnets.part, and own.heatnets is finished" in done.err
    assert (tmp_path / "own.heatnets").read_bytes() == b"finished"
    assert left(tmp_path) == ["own.heatnets", "own.toml"]


def test_python_problems_need_their_file_again(heatnets, tmp_path):
    assert heatnets("new", "mine.py").code == 0
    assert heatnets("solve", "mine.py", "--seconds", "0.5", "--quiet").out == ""
    (tmp_path / "at.csv").write_text("0.5,0.3\n")
    done = heatnets("eval", "mine.heatnets", "--at", "at.csv")
    assert done.code == 2
    assert "--problem FILE" in done.err
    assert heatnets("eval", "mine.heatnets", "--at", "at.csv", "--problem", "mine.py").code == 0


def test_templates_and_the_list_of_problems(heatnets, tmp_path):
    assert heatnets("new", "first").code == 0
    assert heatnets("solve", "first.toml", "--tol", "0.05", "--seed", "3", "--json").code == 0
    done = heatnets("new", "first")
    assert done.code == 5
    assert "is there already" in done.err
    done = heatnets("problems")
    assert done.code == 0
    assert all(name in done.out for name in hn.problems.names())
    told = json.loads(heatnets("problems", "--json", "--kind", "finance").out)
    assert set(told) == set(hn.problems.names("finance"))
    assert all(len(about["is"]) > 20 for about in told.values())


def test_nothing_is_coloured_when_piped(heatnets):
    assert "\x1b" not in heatnets("solve", "own.toml").out


def test_a_file_of_values_without_points_holds_names_alone(heatnets, tmp_path):
    (tmp_path / "bare.toml").write_text(TOML.split("[[certify]]")[0])
    assert heatnets("solve", "bare.toml", "--seconds", "2", "--values", "v.csv").code == 0
    names = "t,x_1,x_2,x_3,value,low,high,halfwidth,certified,note\n"
    assert (tmp_path / "v.csv").read_text() == names


def test_a_sweep_writes_one_table(heatnets, tmp_path):
    done = heatnets("solve", "own.toml", "--set", "a=1,1.5,2", "--json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["rows"]
    assert [row["set"] for row in rows] == [{"a": 1}, {"a": 1.5}, {"a": 2}]
    head, *lines = csv.reader((tmp_path / "own-sweep.csv").read_text().splitlines())
    assert head[:7] == ["a", "t", "x_1", "x_2", "x_3", "value", "low"]
    for line in lines:
        found = dict(zip(head, line, strict=True))
        a = float(found["a"])
        exact = np.exp(-(a**2) / 2) * 3 * np.sin(0.3 * a)
        assert float(found["low"]) <= exact <= float(found["high"])
        assert found["certified"] == found["solved"] == "True"
        assert float(hn.load(tmp_path / found["result"])(0.5, [0.3] * 3)) == pytest.approx(
            exact, rel=1e-5
        )
    shown = done.err.splitlines()
    start = shown.index("u 1: u at t = 0.5, x = [0.3, 0.3, 0.3]")
    assert shown[start + 1].split() == ["a", "u", "1", "verdict"]
    for line, a in zip(shown[start + 2 : start + 5], (1, 1.5, 2), strict=True):
        value, half, verdict = re.fullmatch(rf"{a} +(\S+) ± (\S+) +(Solved to .*)", line).groups()
        exact = np.exp(-(a**2) / 2) * 3 * np.sin(0.3 * a)
        assert abs(float(value) - exact) <= max(1.1 * float(half), 1e-9)  # ten digits are shown
        assert re.search(r"the point is certified\. \d+\.\d s$", verdict)
    page = (tmp_path / "own-sweep.html").read_text()
    assert "3 of 3 problems solved as asked for; 3 of 3 values certified." in page
    assert page.count("<svg") == 1
    assert left(tmp_path) == [
        *(f"own-{i}.heatnets" for i in (1, 2, 3)),
        "own-sweep.csv",
        "own-sweep.html",
        "own.toml",
    ]
    assert "# set: a = 1.5" in heatnets("info", "own-2.heatnets").out


def test_a_sweep_of_a_parameter_of_the_process(heatnets, tmp_path):
    """u_t = Δu - θ x·∇u from Σ x_i: u = e^{-θ t} Σ x_i."""
    (tmp_path / "ou.toml").write_text(
        'dim = 3\nhorizon = 1.0\ninitial = "sum(x)"\n[process.ornstein_uhlenbeck]\nrate = 9.0\n'
        "[solve]\ntol = 0\nmax_rounds = 1\n[[certify]]\nx = 0.5\nsamples = 256\n"
    )
    done = heatnets("solve", "ou.toml", "--set", "process.rate=0.1,0.2", "--json")
    assert done.code == 0, done.err
    for row, rate in zip(json.loads(done.out)["rows"], (0.1, 0.2), strict=True):
        assert row["set"] == {"process.rate": rate}
        assert row["point"]["low"] <= 1.5 * np.exp(-rate) <= row["point"]["high"]
        assert row["point"]["halfwidth"] < 1e-6  # e^{-0.1} and e^{-0.2} differ by 0.09


def test_a_sweep_reads_points_once_and_names_its_columns_apart(heatnets, tmp_path, monkeypatch):
    renamed = TOML.split("[[certify]]")[0]
    for old, new in (("a*x", "low*x"), ("a^2", "low^2"), ("a =", "low =")):
        renamed = renamed.replace(old, new)
    (tmp_path / "low.toml").write_text(renamed)
    monkeypatch.setattr("sys.stdin", io.StringIO("0.5, 0.3\n"))
    given = ("solve", "low.toml", "--set", "low=1,2", "--at", "-")
    done = heatnets(*given)
    assert done.code == 0, done.err
    head, *lines = csv.reader((tmp_path / "low-sweep.csv").read_text().splitlines())
    rows = [dict(zip(head, line, strict=True)) for line in lines]
    for row, a in zip(rows, (1.0, 2.0), strict=True):
        assert float(row["set_low"]) == a
        exact = np.exp(-(a**2) / 2) * 3 * np.sin(0.3 * a)
        assert float(row["low"]) <= exact <= float(row["high"])
    points = "0.5, 0.3\n"
    (tmp_path / "p.csv").write_text(points)
    done = heatnets(*given[:-1], "p.csv", "--values", "p.csv")
    assert done.code == 2
    assert "are the same file" in done.err
    assert (tmp_path / "p.csv").read_text() == points
    assert "Values are written as in TOML" in heatnets(*given[:3], "low=.5,1").err


def test_columns_of_points_are_named_in_their_order(heatnets, tmp_path):
    assert heatnets("solve", "own.toml").code == 0
    (tmp_path / "p.csv").write_text("x,t\n0.3,0.5\n")
    done = heatnets("eval", "own.heatnets", "--at", "p.csv")
    assert done.code == 2
    assert "the first column is named 'x'; it must hold the time t" in done.err
    (tmp_path / "p.csv").write_text("Time,x\n0.5,0.3\n")
    assert heatnets("eval", "own.heatnets", "--at", "p.csv", "--samples", "64").code == 2
    done = heatnets("eval", "own.heatnets", "--at", "p.csv", "--certify", "--samples", "256")
    assert done.code == 0, done.err
    (row,) = csv.DictReader(done.out.splitlines())
    assert float(row["low"]) <= EXACT <= float(row["high"])


def test_a_sweep_whose_points_are_not_certified_ends_with_three(heatnets, tmp_path):
    (tmp_path / "few.toml").write_text(TOML + "samples = 8\n")
    done = heatnets("solve", "few.toml", "--set", "a=1,2")
    assert done.code == 3
    assert "2 of 2 problems were not solved as asked for" in done.err
    assert re.search(r"^2 +not certified +Solved to .*the point is NOT certified", done.out, re.M)


def test_a_problem_of_a_sweep_that_fails_does_not_end_the_others(heatnets, tmp_path):
    (tmp_path / "hard.toml").write_text(
        'problem = "nonseparable"\ndim = 5\n[solve]\ntol = 1e-9\nmax_rounds = 1\n'
    )
    done = heatnets("solve", "hard.toml", "--set", "solve.tol=1e-9,0.5", "--values", "t.csv")
    assert done.code == 3
    assert "1 of 2 problems were not solved as asked for: solve.tol = 1e-09. See t.csv" in done.err
    assert re.search(r"^solve.tol +verdict$", done.out, re.M)
    assert re.search(r"^1e-09 +Solved to .*tolerance NOT met; u from", done.out, re.M)
    assert "round 0" not in done.out  # rounds are for single solves
    head, first, second = csv.reader((tmp_path / "t.csv").read_text().splitlines())
    assert [dict(zip(head, row, strict=True))["solved"] for row in (first, second)] == [
        "False",
        "True",
    ]


PY = (
    "import jax.numpy as jnp, heatnets as hn\n"
    "problem = hn.Problem(dim=2, horizon=0.5, initial=lambda x: {})\n"
)
FAULTS = {
    "several mistakes": (
        {"f.toml": 'dim = 0\nhorizon = nan\ndiffusion = -1\nintial = "1"\n'},
        ["f.toml"],
        2,
        "5 errors, nothing was run",
    ),
    "unknown key": (
        {"f.toml": TOML.replace("horizon", "horizn")},
        ["f.toml"],
        2,
        "did you mean 'horizon'?",
    ),
    "no file": ({}, ["f.toml"], 2, "there is no file f.toml"),
    "not TOML": ({"f.toml": "{"}, ["f.toml"], 2, "is not a TOML file"),
    "raises inside": (
        {"f.py": "x = 1\nraise KeyError('mine')\n"},
        ["f.py"],
        2,
        "f.py:2: KeyError: 'mine'",
    ),
    "wrong shape": ({"f.py": PY.format("x")}, ["f.py"], 2, "must return a scalar"),
    "int": ({"f.py": PY.format("1")}, ["f.py"], 2, "Write 1.0 for 1"),
    "complex": ({"f.py": PY.format("1j * x[0]")}, ["f.py"], 2, "must return a real number"),
    "math.sin": (
        {"f.py": PY.format("__import__('math').sin(x[0])")},
        ["f.py"],
        2,
        "Use jnp.sin in place of math.sin",
    ),
    "if": ({"f.py": PY.format("1.0 if x[0] > 0 else 0.0")}, ["f.py"], 2, "Use jnp.where"),
    "not finite": (
        {"f.toml": TOML.replace("sum(sin(a*x))", "log(x[0])")},
        ["f.toml"],
        3,
        "probe points, for example x = [",
    ),
    "memory": (
        {"f.toml": TOML},
        ["f.toml", "--memory", "1MiB"],
        4,
        "`memory` allows 1.00 MiB; the first round needs",
    ),
    "memory, fixed size": (
        {"f.toml": TOML.replace("tol = 0\nmax_rounds = 1", "features = [4000, 0]")},
        ["f.toml", "--memory", "64MiB"],
        4,
        "would fit",
    ),
    "memory in words": ({"f.toml": TOML}, ["f.toml", "--memory", "much"], 2, "a text like 4GiB"),
    "no such folder": (
        {"f.toml": TOML},
        ["f.toml", "--out", "none/u.heatnets"],
        5,
        "there is no folder none",
    ),
    "a folder": ({"f.toml": TOML}, ["f.toml", "--out", "."], 5, "is a folder"),
    "report without a folder": (
        {"f.toml": TOML},
        ["f.toml", "--report", "none/r.html"],
        5,
        "there is no folder none",
    ),
    "no gpu": ({"f.toml": TOML}, ["f.toml", "--device", "gpu"], 2, "`device` must be one of 'cpu'"),
    "hostile formula": (
        {"f.toml": TOML.replace("sum(sin(a*x))", "__import__(x)")},
        ["f.toml"],
        2,
        "unknown function '__import__'",
    ),
    "megabytes": (
        {"f.toml": TOML.replace("sum(sin(a*x))", "(" * 2**20)},
        ["f.toml"],
        2,
        "has more than",
    ),
    "points": (
        {"f.toml": TOML, "p.csv": "t,x\n1,2,3\n"},
        ["f.toml", "--at", "p.csv"],
        2,
        "line 2: 3 numbers; rows are t and 3 coordinates",
    ),
    "points that are none": (
        {"f.toml": TOML, "p.csv": "t,x\na,b\n"},
        ["f.toml", "--at", "p.csv"],
        2,
        "line 2",
    ),
    "late points": (
        {"f.toml": TOML, "p.csv": "9,0\n"},
        ["f.toml", "--at", "p.csv"],
        2,
        "`t` must lie in",
    ),
    "a number for a name": (
        {"f.toml": TOML + "samples = 'many'\n"},
        ["f.toml"],
        2,
        "`samples` must be a whole number",
    ),
    "a file to delete": (
        {
            "f.toml": TOML.replace("tol = 0\nmax_rounds = 1", "checkpoint = 'v.txt'"),
            "v.txt": "mine",
        },
        ["f.toml"],
        2,
        "unknown key `checkpoint` in [solve]",
    ),
    "not a checkpoint": (
        {"f.toml": TOML, "f.heatnets.part": "mine"},
        ["f.toml"],
        5,
        "is not a heatnets checkpoint",
    ),
    "a mistake with an interrupted run": (
        {"f.toml": TOML, "f.heatnets.part": "mine"},
        ["f.toml", "--tol", "5"],
        2,
        "`tol` must be below 1",
    ),
    "result over problem": (
        {"f.toml": TOML},
        ["f.toml", "--out", "f.toml"],
        2,
        "are the same file",
    ),
    "no volatility": (
        {
            "f.toml": TOML.replace("diffusion = 1.0", "")
            + "[process.geometric_brownian]\ngrowth = 1\n"
        },
        ["f.toml"],
        2,
        "volatility",
    ),
    "too wide": (
        {"f.toml": TOML.replace("dim = 3", "dim = 10000000000000")},
        ["f.toml"],
        2,
        "`dim` must be at most",
    ),
    "division": (
        {"f.toml": TOML.replace("a = 2.0", "a = '1/(d-3)'")},
        ["f.toml"],
        2,
        "every number must be finite",
    ),
    "a header that is none": (
        {"f.toml": TOML, "p.csv": "0.5,O.2\n0.5,0.1\n"},
        ["f.toml", "--at", "p.csv"],
        2,
        "line 1",
    ),
    "set nothing": ({"f.toml": TOML}, ["f.toml", "--set", "a"], 2, "like --set a=1,2,3"),
    "set an unknown name": (
        {"f.toml": TOML},
        ["f.toml", "--set", "horizn=1,2"],
        2,
        "neither a parameter nor a key that can be set; did you mean 'horizon'?",
    ),
    "set a wrong value": (
        {"f.toml": TOML},
        ["f.toml", "--set", "horizon=1,-2"],
        2,
        "`horizon` must be",
    ),
    "set in Python": (
        {"f.py": PY.format("x[0]")},
        ["f.py", "--set", "horizon=1,2"],
        2,
        "only values of a TOML file",
    ),
    "budget": ({"f.toml": TOML}, ["f.toml", "--seconds", "-1"], 2, "`seconds` must be"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_answered_in_words_before_any_work(fault, heatnets, tmp_path):
    files, arguments, code, words = FAULTS[fault]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    before = left(tmp_path)
    done = heatnets("solve", *arguments)
    assert done.code == code
    assert words in done.err
    assert "Traceback" not in done.err
    assert left(tmp_path) == before
    assert "Traceback" in heatnets("--debug", "solve", *arguments).err or (code == 2 and not files)


def test_a_tolerance_that_is_not_met_is_said_and_what_was_found_is_kept(heatnets, tmp_path):
    (tmp_path / "hard.toml").write_text(
        'problem = "nonseparable"\ndim = 5\n[solve]\ntol = 1e-9\nmax_rounds = 1\n'
    )
    done = heatnets("solve", "hard.toml")
    assert done.code == 3
    assert "the tolerance was not met" in done.err
    assert hn.load(tmp_path / "hard.heatnets").stats["tolerance_met"] is False


def test_a_disk_that_is_full(heatnets, tmp_path, monkeypatch):
    (tmp_path / "own.heatnets").write_text("what was there")

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_files.os, "fsync", full)
    done = heatnets("solve", "own.toml")
    assert done.code == 5
    assert "No space left on device" in done.err
    assert (tmp_path / "own.heatnets").read_text() == "what was there"


def test_a_folder_that_is_read_only(heatnets, tmp_path, monkeypatch):
    (tmp_path / "locked").mkdir(mode=0o500)
    if os.geteuid() == 0:  # for whom nothing is read-only
        monkeypatch.setattr(atomic_files.os, "access", lambda path, mode: "locked" not in str(path))
    done = heatnets("solve", "own.toml", "--out", "locked/u.heatnets")
    assert done.code == 5
    assert "the folder locked is read-only" in done.err


def test_two_runs_do_not_write_one_result(heatnets, tmp_path):
    with atomic_files.file_lock(tmp_path / "own.heatnets", "wait"):
        done = heatnets("solve", "own.toml")
    assert done.code == 5
    assert "another run is writing own.heatnets" in done.err


@pytest.mark.parametrize("content", [b"\x80\x04\x95pickle", b"", b"{}" * 50, b"\xff" * 100])
@pytest.mark.parametrize("command", ["info", "plot", "eval"])
def test_files_that_are_no_results(command, content, heatnets, tmp_path):
    (tmp_path / "bad.heatnets").write_bytes(content)
    (tmp_path / "at.csv").write_text("0.1,0\n")
    done = heatnets(command, "bad.heatnets", *(["--at", "at.csv"] if command == "eval" else []))
    assert done.code == 5
    assert "is not a heatnets result" in done.err or "is cut short" in done.err


def test_points_are_flagged():
    problem = hn.problems.get("oscillating", dim=2)
    t, x = (
        np.array([0.1, 0.1, -1.0, 9.0]),
        np.array([[0.0, 0.0], [0.0, 50.0], [0.0, 0.0], [0.0, 0.0]]),
    )
    assert [flag[:6] for flag in point_files.flags(problem, t, x)] == [
        "",
        "extrap",
        "no val",
        "no val",
    ]
    cloud = hn.Normal(0.0, 1.0)
    assert cloud.contains(np.random.default_rng(0).standard_normal((1000, 50))).mean() > 0.98
    assert not cloud.contains(3 * np.ones((1, 50)))[0]
    assert hn.Point([1.0, 2.0]).contains(np.array([[1.0, 2.0], [1.0, 2.1]])).tolist() == [
        True,
        False,
    ]


LONG = """
problem = "radial-gaussian"
dim = 10
[solve]
tol = 0
max_rounds = 3
"""


@cache
def whole():
    """The solve of `LONG`, not interrupted."""
    return hn.solve(hn.problems.get("radial-gaussian", dim=10), tol=0, max_rounds=3)


def start(folder, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "heatnets", "solve", "long.toml", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_solve_goes_on_to_the_same_result(number, tmp_path):
    (tmp_path / "long.toml").write_text(LONG)
    process = start(tmp_path)
    part, end = tmp_path / "long.heatnets.part", time.time() + 120
    while not part.exists() and time.time() < end and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    if number != signal.SIGKILL:
        assert (
            "finished rounds are kept in long.heatnets.part; "
            "to go on: heatnets solve long.toml --resume" in err
        )
    assert not (tmp_path / "long.heatnets").exists()
    assert not [
        name
        for name in left(tmp_path)
        if name.startswith(".long.heatnets.p") and number != signal.SIGKILL
    ]
    again = start(tmp_path, "--resume")
    out, err = again.communicate(timeout=200)
    assert again.returncode == 0, err
    assert "goes on after" in out
    assert not part.exists()
    for one, other in zip(
        hn.load(tmp_path / "long.heatnets").weights, whole().weights, strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_resuming_something_else_is_refused_with_the_difference(heatnets, tmp_path):
    (tmp_path / "long.toml").write_text(LONG)
    hn.solve(
        hn.problems.get("radial-gaussian", dim=4),
        tol=0,
        max_rounds=1,
        checkpoint=tmp_path / "long.heatnets.part",
    )
    done = heatnets("solve", "long.toml", "--resume")
    assert done.code == 2
    assert "`dim` differs: 10 here, 4 there" in done.err
    assert (tmp_path / "long.heatnets.part").exists()


def test_help_is_quick_and_loads_nothing_heavy(tmp_path):
    def run(code):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        return time.perf_counter() - started

    assert (
        "jax"
        not in subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "heatnets", "--help"],
            check=True,
            capture_output=True,
            text=True,
        ).stderr
    )
    assert run("import heatnets.cli") < 20 * max(run("pass"), 0.05)
