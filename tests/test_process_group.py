"""Several processes that solve one problem: shares, exchanges, failures, one solution."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import jax
import numpy as np
import pytest

import heatnets as hn
from heatnets._core.precision import with_x64
from heatnets._core.process_group import ALONE, ProcessGroup, find_devices, process_group
from heatnets.fit import triangular_factors
from heatnets.fit.least_squares import Damped


class Threads(ProcessGroup):
    """A group whose processes are threads: they exchange arrays in memory."""

    def __init__(self, rank, count, barrier, board):
        self.rank, self.count, self.barrier, self.board = rank, count, barrier, board

    def post(self, array):
        self.board[self.rank] = np.array(array)
        self.barrier.wait()
        posted = [self.board[k] for k in range(self.count)]
        self.barrier.wait()
        return posted

    def gather(self, label, array):
        return self.post(array)

    def exchange(self, label, array, pairs):
        posted = self.post(array)
        assert len(set(pairs.values())) == len(pairs)
        sender = next((k for k, to in pairs.items() if to == self.rank), None)
        return np.zeros_like(array) if sender is None else posted[sender]


def in_threads(count, work):
    """What each of so many processes returns, in the order of their ranks."""
    barrier, board = Barrier(count), {}
    groups = [Threads(rank, count, barrier, board) for rank in range(count)]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(with_x64(work), groups))


@pytest.mark.parametrize("rows", [1, 5, 256, 768, 4096])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shares_are_a_partition_in_whole_chunks_where_there_are_enough(rows, count):
    shares = in_threads(count, lambda group: group.share(rows, 256))
    joined = np.concatenate([np.arange(rows)[share] for share in shares])
    assert joined.tolist() == list(range(rows))
    if rows >= 256 * count:
        assert all(share.start % 256 == 0 for share in shares)
        sizes = [share.stop - share.start for share in shares]
        assert max(sizes) - min(sizes) <= 256


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_rows_of_several_processes_have_one_least_squares_solution(count):
    rng = np.random.default_rng(count)
    A = rng.standard_normal((120, 12)) * 10.0 ** rng.integers(-2, 2, 12)
    A[:, 3] = 0.0  # a negligible column
    b, c = rng.standard_normal(120), rng.random(12)
    for constraint in (None, c):
        expected = Damped(A, b, constraint).fits((1e-12, 1e-3), 12)

        def work(group, constraint=constraint):
            own = group.share(120)
            return Damped(A[own], b[own], constraint, group).fits((1e-12, 1e-3), 12)

        results = in_threads(count, work)
        for fits in results:
            for fit, other, first in zip(fits, expected, results[0], strict=True):
                np.testing.assert_allclose(A @ fit.weights, A @ other.weights, atol=1e-11)
                np.testing.assert_array_equal(fit.weights, first.weights)
                assert (fit.rank, fit.rcond, fit.notes) == (other.rank, other.rcond, other.notes)


@pytest.mark.parametrize("count", [2, 3, 6])
def test_joined_factors_are_a_factor_of_all_rows(count):
    A = np.random.default_rng(0).standard_normal((90, 7))
    b = np.arange(90.0)

    def work(group):
        own = group.share(90)
        R, right = triangular_factors.factor_rows(A[own], b[own])
        return triangular_factors.join_factors(R, right, group)

    (first, _), *_ = joined = in_threads(count, work)
    for R, right in joined:
        np.testing.assert_array_equal(R, first)
        np.testing.assert_allclose(R.T @ R, A.T @ A, atol=1e-12)
        np.testing.assert_allclose(R.T @ right, A.T @ b, atol=1e-10)
        assert np.all(np.tril(R, -1) == 0)


def test_joined_rows_keep_their_order_types_and_shapes():
    t, x = np.arange(10.0), np.random.default_rng(0).standard_normal((10, 2, 3))

    def work(group):
        own = group.share(10)
        return group.join_rows("rows", {"t": t[own], "x": x[own], "late": t[own] > 4})

    for joined in in_threads(3, work):
        np.testing.assert_array_equal(joined["t"], t)
        np.testing.assert_array_equal(joined["x"], x)
        assert joined["late"].dtype == bool
        assert joined["late"].tolist() == (t > 4).tolist()


def test_one_process_alone_shares_nothing():
    assert process_group(jax.devices()) is ALONE  # jax.distributed is not in use
    assert ALONE.share(7) == slice(0, 7)
    assert ALONE.from_first("text", "x") == "x"


@pytest.mark.parametrize("devices", ["gpus", 3, [], ["cpu"]])
def test_devices_that_are_none_are_refused(devices):
    problem = hn.problems.get("oscillating", dim=2)
    with pytest.raises(hn.InputError, match="`devices` must be"):
        hn.solve(problem, devices=devices)


def test_a_device_that_is_given_twice_is_refused():
    device = jax.devices()[0]
    with pytest.raises(hn.InputError, match="each device once"):
        find_devices([device, device])


def test_a_mesh_and_a_list_name_devices():
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    assert find_devices(mesh) == find_devices("all") == jax.devices()
    with pytest.raises(hn.InputError, match="leave `device` out"):
        hn.solve(hn.problems.get("oscillating", dim=2), device="cpu", devices=mesh)


# One pair of processes for what follows: they take seconds to start. Points are divided even where
# it does not pay.
SCRIPT = """
import json, sys
import jax, numpy as np
jax.distributed.initialize("127.0.0.1:PORT", 2, int(sys.argv[1]), initialization_timeout=60)
import heatnets as hn
from heatnets._core import tiling
from heatnets._core.process_group import find_devices, process_group

tiling._DIVIDED = 1000
group, seen = process_group(find_devices("all")), {}


def attempt(name, call):
    try:
        seen[name] = call()
    except hn.HeatnetsError as error:
        seen[name] = [type(error).__name__, str(error)]


def solve(problem, **options):
    u = hn.solve(problem, devices="all", **options)
    x = np.full((3, problem.dim), 0.3) * [[1], [0], [-2]]
    sure = u.with_devices("all").certify(problem.horizon, x[0], samples=256)
    known = [u.stats[name] for name in ("residual_train", "estimated_error")]
    return [u(problem.horizon, x).tolist(), [sure.value, sure.halfwidth, *known], u.stats["rows"]]


get, first = hn.problems.get, group.rank == 0
attempt("equation", lambda: solve(get("nonseparable", dim=5), max_rounds=2))
attempt("newton", lambda: solve(get("allen-cahn", dim=5), max_rounds=1))
attempt("mild", lambda: solve(get("oscillating", dim=3), enforce="mild", max_rounds=1, seconds=1))
attempt("other problem", lambda: solve(get("oscillating", dim=2, horizon=1.0 if first else 2.0)))
attempt("other seed", lambda: solve(get("oscillating", dim=2), seed=group.rank))
attempt("bad option in one", lambda: solve(get("oscillating", dim=2), tol=1e-3 if first else -1))


def fail():
    with group.watch():
        if not first:
            raise hn.NumericalError("rows are not finite")
        group.total("sums", 1.0)


attempt("one fails", fail)
attempt("and again", lambda: group.total("sums", 1.0).tolist())
print("SEEN", json.dumps(seen), flush=True)
group.from_first("end", "")
jax.distributed.shutdown()
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def two_processes():
    """What two processes have seen."""
    script = SCRIPT.replace("PORT", str(free_port()))
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", script, str(rank)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    outputs = [process.communicate(timeout=300) for process in started]
    seen = []
    for out, err in outputs:
        lines = [line for line in out.splitlines() if line.startswith("SEEN")]
        assert lines, err[-3000:]
        seen.append(json.loads(lines[0][5:]))
    return seen


@pytest.mark.parametrize(
    ("name", "problem", "dim", "options"),
    [
        ("equation", "nonseparable", 5, {"max_rounds": 2}),
        ("newton", "allen-cahn", 5, {"max_rounds": 1}),
        ("mild", "oscillating", 3, {"max_rounds": 1, "enforce": "mild", "seconds": 1}),
    ],
)
@pytest.mark.filterwarnings("ignore::heatnets.HeatnetsWarning")
def test_two_processes_find_the_solution_of_one(two_processes, name, problem, dim, options):
    problem = hn.problems.get(problem, dim=dim)
    u = hn.solve(problem, **options)
    x = np.full((3, dim), 0.3) * [[1], [0], [-2]]
    sure = u.certify(problem.horizon, x[0], samples=256)
    for seen in two_processes:
        values, numbers, rows = seen[name]
        np.testing.assert_allclose(values, u(problem.horizon, x), rtol=1e-10)
        known = [u.stats[name] for name in ("residual_train", "estimated_error")]
        np.testing.assert_allclose(numbers, [sure.value, sure.halfwidth, *known], rtol=1e-6)
        assert tuple(rows) == u.stats["rows"]
    assert two_processes[0][name] == two_processes[1][name]


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("other problem", "InputError", "process 1 was given another solve"),
        ("other seed", "InputError", "`seed` is 0 here, 1 there"),
        ("bad option in one", "InputError", "`tol` must be"),
        ("one fails", "NumericalError", "rows are not finite"),
    ],
)
def test_all_processes_end_with_the_error_of_one(two_processes, name, kind, text):
    for seen in two_processes:
        assert seen[name][0] == kind
        assert text in seen[name][1]
    assert two_processes[0]["and again"] == two_processes[1]["and again"] == [2.0]


TWO_DEVICES = """
import jax
import heatnets as hn
from heatnets._core import tiling

tiling._DIVIDED = 0
assert len(jax.devices()) == 2
u = hn.solve(hn.problems.get("oscillating", dim=3), devices="all", max_rounds=1)
print(float(u(0.5, [0.3] * 3)), u.stats["estimated_error"])
"""


def test_two_devices_of_one_process_find_the_solution_of_one():
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
    out = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TWO_DEVICES],
        env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    u = hn.solve(hn.problems.get("oscillating", dim=3), max_rounds=1)
    value, error = map(float, out.split())
    assert value == pytest.approx(float(u(0.5, [0.3] * 3)), rel=1e-12)
    assert error < 1e-13
    assert u.stats["estimated_error"] < 1e-13


PROBLEM = """
dim = 6
horizon = 0.5
initial = "exp(-norm2(x) / d) * mean(cos(2*x))"
diffusion = 1.0
[solve]
tol = 0
max_rounds = {rounds}
[[certify]]
t = 0.5
x = 0.3
"""


def heatnets(folder, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "heatnets", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_killed_process_ends_the_others_and_the_solve_goes_on_with_fewer(tmp_path):
    (tmp_path / "p.toml").write_text(PROBLEM.format(rounds=5))
    launched = heatnets(tmp_path, "launch", "-n", "2", "solve", "p.toml", "--quiet")
    part = tmp_path / "p.heatnets.part"
    deadline = time.monotonic() + 120
    while not part.exists():
        assert time.monotonic() < deadline
        assert launched.poll() is None, launched.communicate()
        time.sleep(0.02)
    children = subprocess.run(
        ["pgrep", "-P", str(launched.pid)], capture_output=True, text=True, check=True
    )
    os.kill(max(map(int, children.stdout.split())), signal.SIGKILL)
    start = time.monotonic()
    _, err = launched.communicate(timeout=60)
    assert launched.returncode == 4
    assert "process 1 of 2 was ended by signal 9" in err
    assert "p.heatnets.part" in err
    assert time.monotonic() - start < 60
    (tmp_path / "p.toml").write_text(PROBLEM.format(rounds=3))
    again = heatnets(tmp_path, "solve", "p.toml", "--resume", "--json")
    out, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    resumed = hn.load(tmp_path / "p.heatnets")
    assert len(resumed.stats["history"]) >= 3
    whole = hn.solve(
        hn.load(tmp_path / "p.heatnets").problem, tol=0, max_rounds=len(resumed.stats["history"])
    )
    x = np.full(6, 0.3)
    assert resumed(0.5, x) == pytest.approx(float(whole(0.5, x)), rel=1e-10)
    (point,) = json.loads(out)["certificates"]
    assert point["certified"]


def test_launched_processes_print_and_write_once(tmp_path):
    (tmp_path / "p.toml").write_text(PROBLEM.format(rounds=1))
    out, err = heatnets(tmp_path, "launch", "-n", "2", "solve", "p.toml", "--json").communicate()
    answer = json.loads(out)  # one object: the other process is silent, and so are libraries
    assert answer["certificates"][0]["certified"]
    assert err.count("round 0:") <= 1
    missing = heatnets(tmp_path, "launch", "-n", "2", "solve", "q.toml")
    _, err = missing.communicate()
    assert missing.returncode == 2
    assert err.count("there is no file q.toml") == 1


def test_processes_that_do_not_find_each_other_end_with_a_message():
    code = (
        "from heatnets.cli.launch import _within; import time\n"
        "with _within(0.1, 'alone'): time.sleep(9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (4, "heatnets: alone\n")


def test_memory_that_several_processes_have_is_named():
    problem = hn.problems.get("nonseparable", dim=3)
    with pytest.raises(hn.ResourceError, match="3 processes with as much each"):
        hn.solve(problem, memory=16_000_000)
    with pytest.warns(hn.HeatnetsWarning, match=r"into `memory` \(\d+ processes with as much"):
        hn.solve(problem, tol=1e-9, memory=60_000_000)


def test_launch_and_distributed_say_what_they_are_for(tmp_path):
    for arguments, text in (
        (("launch", "-n", "2", "demo"), "heatnets launch -n 4 solve FILE"),
        (("launch", "-n", "0", "solve", "p.toml"), "must be at least 1"),
        (("solve", "p.toml", "--distributed"), "finds no launcher that JAX knows"),
    ):
        process = heatnets(tmp_path, *arguments)
        _, err = process.communicate()
        assert process.returncode == 2
        assert text in textwrap.fill(err, 10_000)
