"""Are the error estimates right on random problems? Problems with known solutions are solved.

    python benchmarks/strangers.py --count 1000 --workers 8
    python benchmarks/strangers.py --first 500 --count 500 --out there     part of another machine
    python benchmarks/strangers.py --merge a/strangers.json b/strangers.json     table of ledgers
    python benchmarks/strangers.py --show 12 0        describe problem 12 of seed 0
    python benchmarks/strangers.py --case 12 0        solve it, and print the outcome as JSON

Finished cases are stored in benchmark-strangers/; a second run computes only the missing ones. Even
numbers are solved with a tolerance, odd ones without. Errors are relative L2 errors at random
points of (0, T] x region (2048, or 256 with a source), those of plain Monte Carlo at 256 of them:
as many samples as fit into the seconds of the solve, its compilation not counted (extrapolated by
the square root from one second if the solve took longer). Numbers that are not finite are stored
as text.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, Queue
from threading import Lock, Thread
from typing import Any

import jax
import numpy as np
from processes import cores_for
from stranger_problems import Stranger, stranger

import heatnets as hn
from heatnets._core.atomic_files import ledger, read_json

ROUNDING = 1e-12  # errors below say nothing about an estimate
START_UP = 30.0  # seconds that a process may take before its first case


def jsonable(value: Any) -> Any:
    """A copy with numbers that are not finite as text, which `float` reads."""
    if isinstance(value, dict):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [jsonable(v) for v in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else str(float(value))
    return int(value) if isinstance(value, np.integer) else value


def first_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:160]}"


def case(number: int, seed: int, seconds: float = 10.0, tol: float = 1e-2) -> dict[str, Any]:
    """Solve one random problem and check the results; every failure is an outcome."""
    whole = time.perf_counter()
    who = stranger(number, seed)
    found: dict[str, Any] = {
        "tags": who.tags,
        "truth_error": who.truth_error,
        "replaced": who.replaced,
        "tol": tol if number % 2 == 0 else 0.0,
    }
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found |= {"outcome": "solved", **judged(who, seconds, found["tol"])}
        except hn.InputError as error:
            found |= {"outcome": "refused", "words": first_words(error), "estimated": np.inf}
        except hn.HeatnetsError as error:
            found |= {"outcome": "declined", "words": first_words(error), "estimated": np.inf}
        except Exception as error:  # a crash is what the study is to find
            found |= {"outcome": "crashed", "words": first_words(error), "estimated": np.nan}
    texts = list(
        dict.fromkeys(str(w.message) for w in said if issubclass(w.category, hn.HeatnetsWarning))
    )
    found |= {
        "not_solved": any(text.startswith("not solved") for text in texts),
        "warnings": [text[:120] for text in texts],
    }
    found["whole_seconds"] = time.perf_counter() - whole
    return jsonable(found)


def judged(who: Stranger, seconds: float, tol: float | None) -> dict[str, Any]:
    """Solve, and compare all reported errors with the exact solution."""
    problem = who.problem
    begin = time.perf_counter()
    u = hn.solve(problem, seconds=seconds, tol=tol)
    took = time.perf_counter() - begin
    single = who.region.is_point
    t, x = hn.random_points(
        problem, 1 if single else (256 if who.truth.source else 2048), seed=who.number
    )
    begin = time.perf_counter()
    truth = who.exact(t, x)
    truth_seconds = time.perf_counter() - begin
    values = u(t, x)
    # The exact solution is checked once more where it is largest, and where the error of the
    # network is largest.
    doubted = np.unique(
        np.concatenate([np.argsort(-np.abs(v))[:12] for v in (truth, values - truth)])
    )
    finer = who.finer(t[doubted], x[doubted])
    found: dict[str, Any] = {
        "seconds": took,
        "features": list(u.stats["features"]),
        "estimated": u.stats.get("estimated_error", np.nan),
        "met": u.stats.get("tolerance_met"),
        **true_error(values, truth),
        "size": rms(truth),
        "truth_seconds": truth_seconds,
        "truth_error": max(
            who.truth_error, float(np.max(np.abs(finer - truth[doubted]))) / rms(truth)
        ),
    }
    steps: dict[str, Callable[[], Any]] = {
        "region": lambda: region_error(u),
        "points": lambda: certificates(u, who, rms(truth)),
        "monte_carlo": lambda: monte_carlo(who, t[:256], x[:256], truth[:256], took),
    }
    for name, step in steps.items():
        begin = time.perf_counter()
        try:
            found[name] = step()
        except hn.HeatnetsError as error:
            found[name] = {"failed": first_words(error)}
        found[f"{name}_seconds"] = time.perf_counter() - begin
    return found


def rms(values: np.ndarray) -> float:
    size = float(np.max(np.abs(values)))  # squares of small numbers underflow
    return (
        size * float(np.sqrt(np.mean((values / size) ** 2)))
        if size > 0 and np.isfinite(size)
        else size
    )


def true_error(values: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """The relative L2 error, its 95 % interval, and effective numbers of points.

    The interval is that over other draws of the points; the effective numbers are those of points
    that dominate the means.
    """
    size = np.max(np.abs(truth))
    gap, scaled = ((values - truth) / size) ** 2, (truth / size) ** 2
    again = np.random.default_rng(0).integers(0, len(gap), (400, len(gap)))
    with np.errstate(all="ignore"):
        ratios = np.sqrt(gap[again].mean(axis=1) / scaled[again].mean(axis=1))
    low, high = (
        np.quantile(ratios, [0.025, 0.975]) if np.all(np.isfinite(ratios)) else (np.nan, np.nan)
    )
    return {
        "error": math.sqrt(gap.mean() / scaled.mean()),
        "error_low": low,
        "error_high": high,
        "effective_points": scaled.sum() ** 2 / (scaled**2).sum(),
        "effective_gaps": gap.sum() ** 2 / max((gap**2).sum(), 1e-300),
    }


def region_error(u: hn.Solution) -> dict[str, Any]:
    sure = u.error()
    return {
        "value": sure.value,
        "low": sure.low,
        "high": sure.high,
        "certified": sure.certified,
        "method": sure.method,
    }


def certificates(u: hn.Solution, who: Stranger, size: float) -> list[dict[str, Any]]:
    """Certified intervals at two random points at the end time (one if the region is a point)."""
    n = 1 if who.region.is_point else 2
    x = who.region.sample(np.random.default_rng([who.seed, who.number, 1]), n, who.tags["dim"])
    t = np.full(n, 0.0 if who.truth.backward else who.truth.horizon)
    sure, truth = u.certify(t, x, samples=1024), who.exact(t, x)
    slack = max(who.truth_error, 2e-15) * size  # of the truth itself
    gaps = np.maximum(np.abs(sure.value - truth) - slack, 0.0)
    return [
        {
            "certified": sure.certified[i],
            "inside": gaps[i] <= sure.halfwidth[i],
            "ratio": gaps[i] / max(sure.halfwidth[i], 1e-300),
            "halfwidth": sure.halfwidth[i],
            "truth": truth[i],
            "gap": gaps[i],
            "method": sure.method,
            "reasons": [r[:100] for r in sure.reasons[i]],
        }
        for i in range(n)
    ]


def monte_carlo(
    who: Stranger, t: np.ndarray, x: np.ndarray, truth: np.ndarray, seconds: float
) -> dict[str, Any] | None:
    """Plain Monte Carlo in the seconds of the solve."""
    if who.problem.canonical.source.uses_u:
        return None

    steps = 1 if who.problem.canonical.coefficients is None else 64
    samples = int(
        np.clip(4e7 / (len(t) * who.tags["dim"] * steps), 16, 2**18 / len(t))
    )  # of one call: each number is a program of its own

    def timed(seed: int) -> tuple[float, np.ndarray]:
        begin = time.perf_counter()
        value = hn.montecarlo.importance(who.problem, t, x, samples=samples, seed=seed).value
        return time.perf_counter() - begin, value

    timed(0)  # compiled
    spent, total = timed(1)
    calls = 1
    while spent * (calls + 1) / calls < min(seconds, 1.0):
        more, value = timed(calls + 1)
        spent, total, calls = spent + more, total + value, calls + 1
    error, fits = true_error(total / calls, truth)["error"], seconds / spent
    return {
        "error": error / math.sqrt(fits),
        "samples": int(samples * calls * fits),
        "samples_run": samples * calls,
        "error_run": error,
    }


# Many of them


def attend(
    numbers: list[int],
    command: list[str],
    cores: set[int],
    limit: float,
    ended: Callable[[int, dict[str, Any]], None],
) -> None:
    """Run cases one after another in a worker process.

    A new process is started after a case that gives no answer in time or ends the process.
    """
    left = list(numbers)
    while left:
        with tempfile.TemporaryFile("w+") as errors:
            before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, cores)  # of this thread, and of what it starts
            try:
                process = subprocess.Popen(
                    [*command, *map(str, left)], stdout=subprocess.PIPE, stderr=errors, text=True
                )
            finally:
                os.sched_setaffinity(0, before)
            lines: Queue[str | None] = Queue()

            def read(stream: Any = process.stdout, lines: Queue[str | None] = lines) -> None:
                for line in stream:
                    lines.put(line)
                lines.put(None)

            reader = Thread(target=read, daemon=True)
            reader.start()
            allowance, words = limit + START_UP, ""
            while left:
                try:
                    line = lines.get(timeout=allowance)
                except Empty:
                    words = f"no answer within {allowance:g} s"
                    break
                if line is None:
                    errors.seek(0)
                    words = errors.read()[-400:] or "the process ended"
                    break
                if line.startswith('{"number"'):
                    found = json.loads(line)
                    number = found.pop("number")
                    left.remove(number)
                    ended(number, found)
                    allowance = limit
            process.kill()
            reader.join()
            process.communicate()
            if words:
                ended(left.pop(0), {"outcome": "failed", "words": words})


def study(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the cases that are not in the ledger; return all of its cases."""
    args.out.mkdir(exist_ok=True, parents=True)
    cores, one_at_a_time = cores_for(args.workers), Lock()
    command = [
        sys.executable,
        __file__,
        "--seconds",
        str(args.seconds),
        "--tol",
        str(args.tol),
        "--seed",
        str(args.seed),
        "--cases",
    ]
    with ledger(args.out / "strangers.json", {"study": "strangers"}) as done:

        def settings(number: int) -> dict[str, Any]:
            return {"number": number, "seed": args.seed, "seconds": args.seconds, "tol": args.tol}

        def ended(number: int, found: dict[str, Any]) -> None:
            if "tags" not in found:
                found["tags"] = stranger(number, args.seed).tags
            with one_at_a_time:
                done.add(f"{args.seed}/{number}", settings(number), found)
                print(line_of({"settings": settings(number), **found}), flush=True)

        def batch(numbers: list[int]) -> None:
            mine = cores.get()
            try:
                attend(numbers, command, mine, args.limit, ended)
            finally:
                cores.put(mine)

        everyone = range(args.first, args.first + args.count)
        kept = {n: done.find(f"{args.seed}/{n}", settings(n)) for n in everyone}
        todo = [
            n
            for n, cell in kept.items()
            if cell is None or (args.again and cell["outcome"] in ("failed", "crashed"))
        ]
        with ThreadPoolExecutor(args.workers) as pool:
            list(
                pool.map(batch, [todo[i : i + args.batch] for i in range(0, len(todo), args.batch)])
            )
        return list(done.cells.values())


def line_of(cell: dict[str, Any]) -> str:
    """One line of text about a case."""
    who, tags = cell["settings"], cell["tags"]
    name = f"{who['number']:5} {tags['operator']} d={tags['dim']} {kinds_of(tags)}"
    if cell["outcome"] != "solved":
        return f"{name:90} {cell['outcome']}: {cell['words'][:100]}"
    numbers = (
        f"error {num(cell['error']):.1e}, estimated {num(cell['estimated']):.1e}, "
        f"{cell['seconds']:.0f} s"
    )
    return f"{name:90} {numbers}{', not solved' if cell['not_solved'] else ''}"


def kinds_of(tags: dict[str, Any]) -> str:
    return f"{'+'.join(tags['initial'])} | {'+'.join(tags['source'])}"


# The table


def num(value: Any) -> float:
    """A number from a ledger, which may be stored as text."""
    return math.nan if value is None else float(value)


def solved(cell: dict[str, Any]) -> bool:
    return cell["outcome"] == "solved"


def accurate(cell: dict[str, Any]) -> bool:
    """Whether the true error is at most one per cent."""
    return solved(cell) and num(cell["error"]) <= 1e-2


def said(cell: dict[str, Any]) -> bool:
    """Whether the estimated error is at most one per cent, and the problem reported as solved."""
    return solved(cell) and num(cell["estimated"]) <= 1e-2 and not cell["not_solved"]


def ratio(cell: dict[str, Any]) -> float:
    """The estimated over the true error; infinite if not solved or the error is only rounding."""
    if not solved(cell):
        return math.inf
    error, estimated = num(cell["error"]), num(cell["estimated"])
    if error <= max(ROUNDING, 3 * num(cell["truth_error"])):
        return math.inf
    return estimated / error if math.isfinite(error) else 0.0


def share(hits: list[bool]) -> str:
    return f"{100 * np.mean(hits):.1f} % ({sum(hits)} of {len(hits)})" if hits else "–"


def listed(cells: list[dict[str, Any]], most: int = 60) -> list[str]:
    """Cases to look at: first those without the warning "not solved", then by `ratio`."""
    return [
        f"- {name_of(c)}: {_numbers(c)}; {_words(c)}"
        for c in sorted(cells, key=lambda c: (c["not_solved"], ratio(c)))[:most]
    ]


def name_of(cell: dict[str, Any]) -> str:
    return f"{cell['settings']['number']} of seed {cell['settings']['seed']}"


def _numbers(cell: dict[str, Any]) -> str:
    span = f"{num(cell['error_low']):.1e} to {num(cell['error_high']):.1e}"
    claim = (
        f"estimated {num(cell['estimated']):.1e}{', said not solved' if cell['not_solved'] else ''}"
    )
    return f"error {num(cell['error']):.1e} ({span}), {claim}, region {_region(cell)}"


def _words(cell: dict[str, Any]) -> str:
    tags = cell["tags"]
    return (
        f"{tags['variant']}, d = {tags['dim']}, T = {tags['horizon']:g}, {tags['region']}, "
        f"{kinds_of(tags)}"
    )


def _region(cell: dict[str, Any]) -> str:
    found = cell.get("region") or {}
    if "value" not in found:
        return "none"
    return (
        f"{num(found['value']):.1e} up to {num(found['high']):.1e} "
        f"{'certified' if found['certified'] else 'not certified'}"
    )


def buckets(cell: dict[str, Any]) -> list[str]:
    """The rows of the table in which a case is counted."""
    tags = cell["tags"]
    dim, T = tags["dim"], tags["horizon"]
    kinds = {k for k in tags["initial"] + tags["source"] if k not in ("none", "zero")}
    return [
        f"operator: {tags['operator']}",
        *(f"kind: {k}" for k in sorted(kinds)),
        f"source: {'yes' if tags['source'] != ['none'] else 'no'}",
        f"region: {tags['region']}",
        f"terms: {'one kind' if len(kinds) == 1 else 'several kinds'}",
        f"dim: {'1-3' if dim <= 3 else '4-30' if dim <= 30 else '31-300'}",
        f"horizon: {'below 0.3' if T < 0.3 else '0.3-1.5' if T < 1.5 else 'above 1.5'}",
    ]


def row(name: str, cells: list[dict[str, Any]]) -> str:
    def part(hits: list[bool]) -> str:
        return f"{100 * np.mean(hits):.0f} %" if hits else "–"

    sampled = [
        num(c["monte_carlo"]["error"]) <= 1e-2
        for c in cells
        if solved(c) and "error" in (c.get("monte_carlo") or {})
    ]
    seconds = [c["seconds"] for c in cells if solved(c)]
    return (
        f"| {name} | {len(cells)} | {part([accurate(c) for c in cells])} | "
        f"{part([accurate(c) and said(c) for c in cells])} "
        f"| {part([not solved(c) or c['not_solved'] for c in cells])} | "
        f"{part([not solved(c) for c in cells])} "
        f"| {part([ratio(c) < 1 / 3 and not c['not_solved'] for c in cells])} | "
        f"{np.median(seconds) if seconds else math.nan:.0f} | {part(sampled)} |"
    )


def summary(cells: list[dict[str, Any]]) -> str:
    """Markdown tables: reported and true results, overall and by class."""
    good = [c for c in cells if solved(c)]
    counts = {
        name: sum(c["outcome"] == name for c in cells)
        for name in ("solved", "declined", "refused", "crashed", "failed")
    }
    lines = [
        f"{len(cells)} strangers: " + ", ".join(f"{n} {name}" for name, n in counts.items()),
        "",
    ]
    lines += [
        f"- {words}: {n}"
        for words, n in _counted([c["words"][:70] for c in cells if not solved(c)])
    ]
    third, tenth = [c for c in good if ratio(c) < 1 / 3], [c for c in good if ratio(c) < 0.1]
    large = [c for c in third if num(c["error"]) > 1e-6]
    silent = [c for c in third if not c["not_solved"]]
    asked = [c for c in good if c["tol"]]
    met = [c for c in asked if c["met"]]
    false = [c for c in met if num(c["error"]) > c["tol"]]
    regions = [c for c in good if (c.get("region") or {}).get("certified")]
    outside = [
        c
        for c in regions
        if not num(c["region"]["low"]) <= num(c["error"]) <= num(c["region"]["high"])
    ]
    apart = [
        c
        for c in outside
        if num(c["error_low"]) > num(c["region"]["high"])
        and num(c["error"]) > max(ROUNDING, 3 * num(c["truth_error"]))
    ]
    points = [p for c in good if isinstance(c.get("points"), list) for p in c["points"]]
    sure = [p for p in points if p["certified"]]
    worst = max(
        (
            (num(p["ratio"]), c["settings"]["number"], c["settings"]["seed"])
            for c in good
            if isinstance(c.get("points"), list)
            for p in c["points"]
            if p["certified"]
        ),
        default=(0.0, 0, 0),
    )
    lines += [
        "",
        "| | |",
        "|---|---|",
        f"| estimate below a third of the true error | {share([c in third for c in cells])} |",
        f'| of these, without the words "not solved" | {len(silent)} |',
        (
            "| estimate below a third, and the true error above 1e-6 | "
            f"{share([c in large for c in cells])} |"
        ),
        f"| estimate below a tenth of the true error | {share([c in tenth for c in cells])} |",
        (
            "| true error above 1e-2 and estimate below 1e-2 | "
            f"{share([said(c) and not accurate(c) for c in cells])} |"
        ),
        f"| `tol` claimed to be met, of those asked | {share([bool(c['met']) for c in asked])} |",
        f"| claimed falsely | {share([num(c['error']) > c['tol'] for c in met])} |",
        (
            "| the same, by more than the draw of the points explains | "
            f"{share([num(c['error_low']) > c['tol'] for c in met])} |"
        ),
        f"| `error()` certified | {share([c in regions for c in good])} |",
        (
            "| certified, true error outside its interval | "
            f"{share([c in outside for c in regions])} |"
        ),
        (
            "| above it by more than the draw of the points explains | "
            f"{share([c in apart for c in regions])} |"
        ),
        f"| points certified | {share([p['certified'] for p in points])} |",
        f"| certified intervals that hold the truth | {share([p['inside'] for p in sure])} |",
        f"| furthest off, in half-widths | {worst[0]:.1f} ({worst[1]} of seed {worst[2]}) |",
        (
            "| draws replaced, their truth not good enough | "
            f"{sum(c.get('replaced', 0) for c in cells)} |"
        ),
        (
            "| truth's own error, worst | "
            f"{max((num(c['truth_error']) for c in cells if 'truth_error' in c), default=0):.1e} "
            "|"
        ),
        "",
        "| class | cases | within 1e-2 in truth | and said so | said not solved, or declined "
        "| declined or failed "
        "| estimate below a third, without those words | seconds: median | plain Monte Carlo "
        "within 1e-2 |",
        "|---|---|---|---|---|---|---|---|---|",
        row("all", cells),
    ]
    names = sorted({b for c in cells for b in buckets(c)}, key=lambda n: (n.split(":")[0], n))
    lines += [row(name, [c for c in cells if name in buckets(c)]) for name in names]
    for title, chosen in (
        ("Estimate below a tenth of the truth", tenth),
        ("Estimate between a tenth and a third", [c for c in third if c not in tenth]),
        ("`tol` claimed falsely", false),
        ("`error()` certified, and the true error above it", apart),
    ):
        lines += ["", f"{title}: {len(chosen)}", *listed(chosen)]
    off = [
        (c, p)
        for c in good
        if isinstance(c.get("points"), list)
        for p in c["points"]
        if p["certified"] and num(p["ratio"]) > 1.5
    ]
    lines += ["", f"Certified intervals off by more than 1.5 half-widths: {len(off)}"]
    lines += [f"- {name_of(c)}: {num(p['ratio']):.1f} half-widths, {p['method']}" for c, p in off]
    crashed = [c for c in cells if c["outcome"] in ("crashed", "failed")]
    lines += ["", f"Crashed or without an answer: {len(crashed)}"]
    lines += [f"- {name_of(c)}: {c['words'][-160:]}" for c in crashed]
    return "\n".join(lines)


def _counted(words: list[str]) -> list[tuple[str, int]]:
    return sorted(((w, words.count(w)) for w in set(words)), key=lambda p: -p[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", nargs=2, type=int, metavar=("NUMBER", "SEED"))
    parser.add_argument("--show", nargs=2, type=int, metavar=("NUMBER", "SEED"))
    parser.add_argument("--cases", nargs="+", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--merge", nargs="+", type=Path, metavar="LEDGER")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1, help="strangers to a process")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--tol", type=float, default=1e-2, help="of the even numbers")
    parser.add_argument(
        "--limit", type=float, default=180.0, help="seconds that a case may take in all"
    )
    parser.add_argument(
        "--again", action="store_true", help="run those again that crashed or gave no answer"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmark-strangers"))
    args = parser.parse_args()
    if args.show:
        print(stranger(*args.show))
    elif args.case:
        print(json.dumps(case(*args.case, args.seconds, args.tol)))
    elif args.cases:
        for number in args.cases:
            print(
                json.dumps({"number": number, **case(number, args.seed, args.seconds, args.tol)}),
                flush=True,
            )
            jax.clear_caches()
            gc.collect()
    elif args.merge:
        print(summary([cell for path in args.merge for cell in read_json(path)["cells"].values()]))
    else:
        print(summary(study(args)))


if __name__ == "__main__":
    main()
