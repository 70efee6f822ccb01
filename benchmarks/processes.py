"""Cells of a study in processes of their own, two cores each, as many at a time as asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from threading import Lock
from typing import Any

from heatnets.storage import Ledger


def spread(
    script: str, cells: Iterable[tuple[Any, list[str]]], workers: int, ended: Callable[[Any, dict[str, Any]], None]
) -> None:
    """Run `script` with the arguments of each cell; `ended(cell, found)` gets the JSON object it printed last, or {"failed": its words}."""
    cores: Queue[set[int]] = Queue()
    everyone = sorted(os.sched_getaffinity(0))
    for i in range(workers):
        cores.put(set(everyone[2 * i : 2 * i + 2]) or set(everyone))

    one_at_a_time = Lock()

    def one(cell: tuple[Any, list[str]]) -> None:
        mine = cores.get()
        try:
            command = [sys.executable, script, *cell[1]]
            out = subprocess.run(
                command, capture_output=True, text=True, check=False, preexec_fn=lambda: os.sched_setaffinity(0, mine)
            )
        finally:
            cores.put(mine)
        with one_at_a_time:
            ended(cell[0], {"failed": out.stderr[-400:]} if out.returncode else json.loads(out.stdout.splitlines()[-1]))

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, cells))


def study(script: str, done: Ledger, plan: Iterable[tuple[str, dict[str, Any], list[str]]], workers: int) -> list[dict[str, Any]]:
    """Run the cells (key, settings, arguments of `--case`) that a ledger has not, keep and print each as it ends; return all that are kept."""
    cells = [((key, settings), ["--case", *arguments]) for key, settings, arguments in plan if done.find(key, settings) is None]

    def ended(cell: tuple[str, dict[str, Any]], found: dict[str, Any]) -> None:
        if "failed" not in found:
            done.add(*cell, found)
        print(cell[0], found, flush=True)

    spread(script, cells, workers, ended)
    return list(done.cells.values())
