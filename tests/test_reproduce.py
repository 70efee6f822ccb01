"""Reproductions: plans are complete, sections are made from whatever is there, runs can be killed.

The functions they measure with are checked, too.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import heatnets as hn
from heatnets import reproduce
from heatnets._core.errors import InputError
from heatnets.plotting.html import markdown
from heatnets.reproduce import cells
from heatnets.reproduce.engine import Sizes
from heatnets.reproduce.paper_figures import slope

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import plain

# Table 2 so small that a run takes seconds.
SMALL = {
    "networks": [
        {"M": 8000, "features": [8, 16], "total": 24, "style": ":"},
        {"M": 10000, "features": [16, 24], "total": 40, "style": "-"},
    ],
    "rows": [120, 20],
    "dims": [100],
    "automatic": [100],
    "further": [3],
    "all_dims": [100, 3],
    "plain": [{"d": 100, "timed": 2, "features": [16, 24]}],
    "comparable": False,
}
TABLE_2 = reproduce.RESULTS["table-2"]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setitem(TABLE_2.sizes, "quick", Sizes(**SMALL))


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """A folder with a whole run of the small table; tests copy it."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TABLE_2.sizes, "quick", Sizes(**SMALL))
        assert reproduce.run(["table-2"], "quick", folder) == []
    return folder


@pytest.mark.parametrize("scale", reproduce.SCALES)
@pytest.mark.parametrize("name", reproduce.RESULTS)
def test_plans_are_whole_and_sections_show_what_is_there(name, scale):
    plan = reproduce.RESULTS[name].plan(scale)
    assert len({cell.key for cell in plan}) == len(plan)
    for cell in plan:
        assert json.loads(json.dumps(cell.settings))["kind"] in {*cells.KINDS, "plain"}
        parameters = hn.problems.parameters_of(cell.problem)
        assert set(cell.parameters) <= set(parameters)
        assert cell.cost > 0
    section = reproduce.RESULTS[name].section({}, scale)  # nothing computed: dashes, no failure
    assert section.name == name
    assert all(len(row) == len(table.columns) for table in section.tables for row in table.rows)
    assert f"{len(plan)} of {len(plan)} cells" in " ".join(section.settings.rows[-2])


def test_the_paper_s_sizes_are_in_the_plans():
    """As printed in the paper's text and captions."""
    plan = {name: result.plan("paper") for name, result in reproduce.RESULTS.items()}

    def sizes(name):
        return {
            (tuple(c.options["features"]), tuple(c.options["rows"]))
            for c in plan[name]
            if c.kind == "trained"
        }

    assert sizes("one-dim") == {((32, 64), (3000, 1000))}
    assert sizes("table-1") == {((15000, 0), (20000, 4000))}
    assert sizes("horizons") == {((500, 1000), (10000, 2000)), ((3000, 5000), (10000, 2000))}
    assert sizes("table-2") == {((3000, 5000), (15000, 3000)), ((4000, 6000), (15000, 3000))}
    assert sizes("underdetermined") == {((3000, 5000), (500, 100))}
    assert sizes("nonseparable") == {((4000, 6000), (15000, 3000))}
    assert {c.seed for c in plan["underdetermined"] if c.kind == "trained"} == set(range(20))
    assert {(c.parameters["dim"], c.parameters["horizon"]) for c in plan["horizons"]} >= {
        (d, T)
        for d in (5, 10, 20, 50, 100, 200, 300, 500, 750, 1000)
        for T in (0.25, 0.5, 0.75, 1.0)
    }
    assert max(c.parameters["dim"] for c in plan["table-2"]) == 100_000
    assert max(c.parameters["dim"] for c in plan["nonseparable"]) == 10_000
    semilinear = reproduce.RESULTS["semilinear"].sizes  # the same references at both scales
    assert all(case in semilinear["paper"].cases for case in semilinear["quick"].cases)
    assert {(p["d"], p["M"]) for p in TABLE_2.text["published"]} == {
        (d, M) for d in (100, 500, 1000, 2000) for M in (8000, 10000)
    }


def test_a_run_writes_everything_and_the_next_computes_nothing(
    whole_run, small, tmp_path, monkeypatch
):
    shutil.copytree(whole_run, tmp_path, dirs_exist_ok=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "report.html",
        "table-2.json",
        "table-2.png",
        "table-2.svg",
    ]
    found = json.loads((tmp_path / "table-2.json").read_text())
    assert list(found["cells"]) == [c.key for c in TABLE_2.plan("quick") if c.kind != "plain"]
    assert len(reproduce.sections(tmp_path)[0].tables) == 3
    plain.add_cells("quick", tmp_path)  # measured by a benchmark, shown with the others
    found = json.loads((tmp_path / "table-2.json").read_text())
    assert list(found["cells"]) == [cell.key for cell in TABLE_2.plan("quick")]
    given = found["cells"]["paper d=100 M=10000 given"]
    assert given["features"] == [16, 24]
    assert given["rows"] == [120, 20]
    assert given["settings"]["seed"] == 0
    assert {"heatnets", "source", "jax", "numpy", "device"} <= set(given["made"])
    assert given["measured"]["wall"] > 0
    automatic = found["cells"]["paper d=100 M=10000 automatic"]
    assert automatic["errors"]["l2"] == pytest.approx(
        given["errors"]["l2"], rel=1e-6
    )  # one network, two Laplacians
    assert found["cells"]["default d=3"]["errors"]["l2"] < 1e-12
    assert found["cells"]["plain d=100"]["difference"] < 1e-13

    def never(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(reproduce, "compute", never)
    before = (tmp_path / "table-2.json").read_bytes()
    reproduce.run(["table-2"], "quick", tmp_path)
    assert (tmp_path / "table-2.json").read_bytes() == before
    tables = reproduce.sections(tmp_path)[0].tables
    assert [row[0] for row in tables[3].rows] == ["100"]
    table = markdown(tables[1])
    assert f"{given['errors']['l2']:.2e}" in table or f"{given['errors']['l2']:.3g}" in table
    assert "9.99e-08" in table


def test_a_cell_that_fails_is_said_and_tried_again(small, tmp_path, monkeypatch):
    def fail(cell, progress):
        if cell.key == "default d=3":
            raise hn.NumericalError("not today")
        return {
            "errors": {"l1": 1.0, "l2": 1.0, "linf": 1.0},
            "features": [1, 1],
            "rows": [1, 1],
            "difference": 0.0,
            "measured": {"wall": 1.0, "phases": {"assembly": 1.0, "solve": 1.0}},
            "made": cells.made(),
        }

    monkeypatch.setattr(reproduce, "compute", fail)
    assert reproduce.run(["table-2"], "quick", tmp_path) == ["table-2: default d=3"]
    assert "default d=3" not in json.loads((tmp_path / "table-2.json").read_text())["cells"]
    assert "2 of 7 cells: default d=3, plain d=100" in (tmp_path / "report.html").read_text()


def test_killed_in_the_middle_it_goes_on_and_ends_the_same(whole_run, small, tmp_path):
    run = (
        f"SMALL = {SMALL!r}"
        + """
import sys
from pathlib import Path
from heatnets import reproduce
from heatnets.reproduce.engine import Sizes
reproduce.RESULTS["table-2"].sizes["quick"] = Sizes(**SMALL)
class Watch(reproduce.Watcher):
    def cell(self, cell, outcome, seconds):
        print(cell.key, flush=True)
reproduce.run(["table-2"], "quick", Path(sys.argv[1]), Watch())
"""
    )

    def start(folder):
        return subprocess.Popen(
            [sys.executable, "-c", run, str(folder)], stdout=subprocess.PIPE, text=True
        )

    whole = [cell.key for cell in TABLE_2.plan("quick") if cell.kind != "plain"]
    killed = start(tmp_path / "killed")
    first = [killed.stdout.readline().strip() for _ in range(3)]
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    kept = json.loads((tmp_path / "killed" / "table-2.json").read_text())["cells"]
    assert set(first) <= set(kept)
    assert len(kept) < len(whole)
    rest = start(tmp_path / "killed").communicate()[0].splitlines()
    assert set(rest).isdisjoint(first)
    assert set(rest) | set(kept) == set(whole)

    def timeless(folder):
        found = json.loads((folder / "table-2.json").read_text())
        for key, cell in found["cells"].items():
            measured = cell.pop("measured")
            if key in kept and folder != whole_run:
                assert measured == kept[key]["measured"]  # not computed again
        return json.dumps(found)

    assert timeless(tmp_path / "killed") == timeless(whole_run)


def test_the_plain_matrix_is_ours():
    problem = hn.problems.get("nonseparable", dim=4, closed_form=False)
    options = {"features": (5, 7), "rows": (100, 20), "train": 3.0, "timed_rows": 6, "batch": 4}
    found = plain.measure(problem, options, 0)
    assert found["entries"] == 6 * 12
    assert found["difference"] < 1e-13
    assert found["measured"]["wall"] == pytest.approx(found["measured"]["timed"] * 100 / 6)


def test_slopes_and_their_intervals():
    sizes = np.array([10, 100, 1000])
    p, low, high = slope(sizes, np.outer([1.0, 2.0, 5.0], sizes**-0.5))
    assert (p, low, high) == pytest.approx((-0.5, -0.5, -0.5))
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        noisy = sizes**-0.5 * np.exp(0.3 * rng.standard_normal((8, 3)))
        _, low, high = slope(sizes, noisy)
        inside += low < -0.5 < high
    assert 0.92 < inside / 400 < 0.98  # three standard deviations of a 95 % interval's count


def test_maps_are_kept_small_and_true():
    values = np.linspace(-17, 1.4, 10_000)
    text = cells.encode(values)
    assert len(text) < 27_000
    assert np.max(np.abs(cells.decode(text) - values)) < 0.01
    keys = [
        cell.key for cell in reproduce.RESULTS["one-dim"].plan("paper") if cell.options.get("maps")
    ]
    assert keys == [
        "gaussian seed=0",
        "gaussian-sobol seed=0",
        "importance seed=0",
        "default seed=0",
    ]


def test_the_source_digest_is_of_the_source():
    assert re.fullmatch("[0-9a-f]{12}", cells.source_digest())


@pytest.mark.parametrize(
    ("names", "scale", "words"),
    [
        (["table-3"], "quick", "`name` must be one of"),
        (["table-2"], "huge", "`scale` must be one of"),
    ],
)
def test_mistakes_are_answered_before_anything_is_written(names, scale, words, tmp_path):
    with pytest.raises(InputError, match=words):
        reproduce.run(names, scale, tmp_path / "out")
    assert not (tmp_path / "out").exists()
