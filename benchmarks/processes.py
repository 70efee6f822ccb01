"""Run the cells of a study in separate processes with their own cores, several at a time."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from threading import Lock
from typing import Any

from heatnets._core.atomic_files import Ledger, ledger


def cores_for(workers: int) -> Queue[set[int]]:
    """A queue of sets of cores, one for each worker, to take and to put back.

    Each worker has two cores of its own, or an equal share where there are fewer: threads of
    workers that share a core wait for each other.
    """
    everyone = sorted(os.sched_getaffinity(0))
    each = min(2, max(1, len(everyone) // workers))
    cores: Queue[set[int]] = Queue()
    for i in range(workers):
        cores.put(set(everyone[each * i : each * (i + 1)]) or set(everyone))
    return cores


def in_new_process(script: str, *case: str, cache: str | None = None) -> dict[str, Any]:
    """The JSON object that `script --case ...` prints last, in a process of its own.

    Compiled programs are kept in the directory `cache`, or nowhere.
    """
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, script, "--case", *case],
        env=environment | ({"HEATNETS_CACHE": cache} if cache else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{', '.join(case)}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def spread(
    script: str,
    cells: Iterable[tuple[Any, list[str]]],
    workers: int,
    ended: Callable[[Any, dict[str, Any]], None],
) -> None:
    """Run `script` with the arguments of each cell, in parallel processes.

    `ended(cell, found)` is called with the JSON object that the process printed last, or with
    {"failed": its error output}.
    """
    cores = cores_for(workers)
    one_at_a_time = Lock()

    def one(cell: tuple[Any, list[str]]) -> None:
        mine = cores.get()
        try:
            command = [sys.executable, script, *cell[1]]
            out = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                preexec_fn=lambda: os.sched_setaffinity(0, mine),
            )
        finally:
            cores.put(mine)
        with one_at_a_time:
            ended(
                cell[0],
                {"failed": out.stderr[-400:]}
                if out.returncode
                else json.loads(out.stdout.splitlines()[-1]),
            )

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, cells))


def study(
    script: str, done: Ledger, plan: Iterable[tuple[str, dict[str, Any], list[str]]], workers: int
) -> list[dict[str, Any]]:
    """Run those cells (key, settings, arguments of `--case`) that are not in the ledger.

    Each outcome is stored and printed when its process ends. Returns all stored outcomes.
    """
    cells = [
        ((key, settings), ["--case", *arguments])
        for key, settings, arguments in plan
        if done.find(key, settings) is None
    ]

    def ended(cell: tuple[str, dict[str, Any]], found: dict[str, Any]) -> None:
        if "failed" not in found:
            done.add(*cell, found)
        print(cell[0], found, flush=True)

    spread(script, cells, workers, ended)
    return list(done.cells.values())


def over_seeds(
    script: str,
    words: str | None,
    name: str,
    cases: Iterable[str],
    case: Callable[[str, int], dict[str, Any]],
    summary: Callable[[list[dict[str, Any]]], str],
) -> None:
    """The command line of a study of cases over seeds, stored in benchmark-NAME/NAME.json."""
    parser = argparse.ArgumentParser(
        description=words, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", nargs=2, metavar=("CASE", "SEED"))
    parser.add_argument("--cases", nargs="*", help="only those that begin with one of these")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(f"benchmark-{name}"))
    args = parser.parse_args()
    if args.case:
        print(json.dumps(case(args.case[0], int(args.case[1]))))
        return
    args.out.mkdir(exist_ok=True)
    chosen = [c for c in cases if not args.cases or c.startswith(tuple(args.cases))]
    with ledger(args.out / f"{name}.json", {"study": name}) as done:
        plan = [
            (f"{c} seed={seed}", {"case": c, "seed": seed}, [c, str(seed)])
            for seed in range(args.seeds)
            for c in chosen
        ]
        kept = study(script, done, plan, args.workers)
    print(summary(kept))
