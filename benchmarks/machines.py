"""Several processes that solve one problem: do they agree, how fast are they, what do they send?

    python benchmarks/machines.py --agree          ten problems by 1, 2 and 4 processes
    python benchmarks/machines.py --speed          one and two processes, on one core each
    python benchmarks/machines.py --kill 10        end a process at a random moment, and go on

Values of the networks are compared at 20 points of the region, relative to their size; values and
half-widths of certificates at one point likewise. Bytes are those that one process gave to others.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import heatnets as hn
from heatnets._core.process_group import find_devices, process_group


def layers(x: Any) -> Any:
    """A small dense network: no structure that makes its Laplacian cheap."""
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((32, x.size)) / np.sqrt(x.size), rng.standard_normal(32)
    return jnp.mean(jnp.sin(jnp.tanh(A @ x + b) * 2))


def named(name: str, dim: int, **parameters: Any) -> Any:
    return lambda: hn.problems.get(name, dim=dim, **parameters)


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "oscillating": (named("oscillating", 20), {"tol": 0}),
    "nonseparable": (named("nonseparable", 10), {"tol": 3e-4}),
    "radial-gaussian": (named("radial-gaussian", 100), {"tol": 1e-5}),
    "allen-cahn": (named("allen-cahn", 20), {"tol": 1e-3}),
    "hamilton-jacobi": (named("hamilton-jacobi", 20), {"tol": 1e-3}),
    "ornstein-uhlenbeck": (named("ornstein-uhlenbeck", 10), {"tol": 1e-4}),
    "hyperbolic-waves": (named("hyperbolic-waves", 4), {"tol": 1e-2, "max_rounds": 3}),
    "kinked-ridge": (named("kinked-ridge", 5), {"tol": 1e-3}),
    "max-call": (named("max-call", 5), {"tol": 1e-2, "max_rounds": 2}),
    "paper's settings": (named("oscillating", 10), hn.paper(100, 100, 800, 100)),
    "dense network": (
        lambda: hn.Problem(200, 0.5, initial=layers, region=hn.Box(-1, 1)),
        {"tol": 0, "max_rounds": 5},
    ),
}
AGREE = [name for name in CASES if name != "dense network"]


def run_one(name: str) -> dict[str, Any]:
    """Solve one case with all processes, and describe the result."""
    make, options = CASES[name]
    group = process_group(find_devices("all"))
    problem = make()
    if "features" not in options:
        options = {"seconds": 600, **options}
    sent, start = group.sent, time.perf_counter()
    u = hn.solve(problem, devices="all", progress=lambda *_: None, **options)
    seconds, sent = time.perf_counter() - start, group.sent - sent
    x = problem.region.sample(np.random.default_rng(1), 20, problem.dim)
    t = 0.0 if problem.is_terminal else problem.horizon
    sure = u.with_devices("all").certify(t, x[0], samples=512)
    return {
        "seconds": seconds,
        "phases": dict(u.stats["seconds"]),
        "values": u(np.full(20, t), x).tolist(),
        "certificate": [float(sure.value), float(sure.halfwidth)],
        "samples": int(sure.samples),
        "sent": sent,
        "rounds": len(u.stats["history"]),
        "unknowns": sum(u.stats["features"]) * (u.stats["time_degree"] + 1),
    }


def worker(rank: int, count: int, port: int, names: list[str]) -> None:
    """One process: solve the cases, print one line of JSON for each."""
    warnings.simplefilter("ignore")
    if count > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", count, rank)
    for name in names:
        result = run_one(name)
        if rank == 0:
            print("RESULT " + json.dumps({"name": name, **result}), flush=True)
    if count > 1:
        process_group(find_devices("all")).from_first("end", "")
        jax.distributed.shutdown()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def by_processes(count: int, names: list[str]) -> dict[str, dict[str, Any]]:
    """Results of cases, solved by so many processes; each is pinned to one core."""
    port, cores = free_port(), sorted(os.sched_getaffinity(0))
    started = [
        subprocess.Popen(
            [
                *("taskset", "-c", str(cores[rank % len(cores)])),
                *(sys.executable, __file__, "--worker", str(rank), str(count), str(port)),
                *names,
            ],
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank in range(count)
    ]
    output, _ = started[0].communicate()
    if any(process.wait() for process in started):
        raise SystemExit(f"a process of {count} has failed")
    lines = [line[7:] for line in output.splitlines() if line.startswith("RESULT ")]
    return {one["name"]: one for one in map(json.loads, lines)}


def difference(one: list[float], other: list[float]) -> float:
    return float(np.max(np.abs(np.subtract(one, other))) / np.max(np.abs(one)))


def agree() -> None:
    alone = by_processes(1, AGREE)
    print("| case | processes | values differ by | certificate | same samples | MB sent |")
    print("|---|---|---|---|---|---|")
    for count in (2, 4):
        for name, r in by_processes(count, AGREE).items():
            first = alone[name]
            print(
                f"| {name} | {count} | {difference(first['values'], r['values']):.0e} "
                f"| {difference(first['certificate'], r['certificate']):.0e} "
                f"| {first['samples'] == r['samples']} | {r['sent'] / 1e6:.1f} |",
                flush=True,
            )


def row(one: float, two: float) -> str:
    return f"| {one:.1f} | {two:.1f} | {one / (two or 1.0):.2f} |"


def speed() -> None:
    name = "dense network"
    one, two = (by_processes(count, [name])[name] for count in (1, 2))
    print("| | one process | two processes | ratio |\n|---|---|---|---|")
    print(f"| whole solve {row(one['seconds'], two['seconds'])}")
    for phase, seconds in one["phases"].items():
        print(f"| {phase} {row(seconds, two['phases'][phase])}")
    print(f"sent by each of two: {two['sent'] / 1e6:.1f} MB in {two['rounds']} rounds")


PROBLEM = """
dim = 10
horizon = 0.5
initial = "exp(-norm2(x) / d) * mean(cos(2*x))"
source = "t * exp(-norm2(x) / (2*d))"
diffusion = 1.0
region = { box = [-1, 1] }
[solve]
tol = 0
max_rounds = 4
seconds = 600
"""


def kill(times: int) -> None:
    """End one process of three at a random moment; go on with two; compare with one alone."""
    heatnets = [sys.executable, "-m", "heatnets"]
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "p.toml").write_text(PROBLEM)

        def run(*arguments: str) -> subprocess.Popen[str]:
            return subprocess.Popen(
                [*heatnets, *arguments, "--quiet"], cwd=folder, stderr=subprocess.PIPE, text=True
            )

        start = time.perf_counter()
        run("solve", "p.toml", "--out", "alone.heatnets").communicate()
        whole = time.perf_counter() - start
        print(f"alone: {whole:.0f} s")
        alone = hn.load(folder / "alone.heatnets")
        x = alone.problem.region.sample(np.random.default_rng(1), 20, 10)
        print("| ended | after | seconds until all had ended | message | values after --resume |")
        print("|---|---|---|---|---|")
        rng = random.Random(0)
        for number in range(times):
            rank, out = number % 3, f"{number}.heatnets"
            solve = ("solve", "p.toml", "--out", out)
            process = run("launch", "-n", "3", *solve)
            delay = 3 + 0.8 * whole * rng.random()
            time.sleep(delay)
            children = subprocess.run(
                ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True
            )
            os.kill(sorted(map(int, children.stdout.split()))[rank], signal.SIGKILL)
            start = time.perf_counter()
            _, message = process.communicate()
            ended = time.perf_counter() - start
            has_rounds = (folder / f"{out}.part").exists()
            again = run("launch", "-n", "2", *solve, *(["--resume"] if has_rounds else []))
            again.communicate()
            u = hn.load(folder / out)
            apart = difference(alone(0.5, x).tolist(), u(0.5, x).tolist())
            text = message.strip().splitlines()[-1].replace(directory, "")[:90]
            print(
                f"| {rank} of 3 | {delay:.0f} s | {ended:.1f} | {text} | {apart:.0e} |", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agree", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--kill", type=int, default=0, metavar="TIMES")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        rank, count, port, *names = args.worker
        worker(int(rank), int(count), int(port), names)
    if args.agree:
        agree()
    if args.speed:
        speed()
    if args.kill:
        kill(args.kill)


if __name__ == "__main__":
    main()
