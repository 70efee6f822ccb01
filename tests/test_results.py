"""Results and checkpoints come back to the last bit.

What is damaged, foreign or hostile is refused with a message.
"""

from __future__ import annotations

import builtins
import json
import os
import pickle
import random
import time

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save as tensors

import heatnets as hn
from heatnets._core import atomic_files, container
from heatnets.pde.fingerprint import differences, fingerprint
from heatnets.solvers import adaptive, adaptive_mild

pytestmark = pytest.mark.filterwarnings("ignore::heatnets.HeatnetsWarning")


# As in test_semilinear.py, where its value is checked: it takes long to compile.
OWN = {
    "dim": 2,
    "horizon": 0.5,
    "initial": lambda x: jnp.exp(-x @ x / x.size),
    "source": lambda t, x, u: -jnp.abs(u - 0.5),
    "region": hn.Point(np.zeros(2)),
}
KINDS = {
    "source": lambda: hn.solve(hn.problems.get("nonseparable", dim=5), tol=0, max_rounds=1),
    "no source": lambda: hn.solve(hn.problems.get("radial-gaussian", dim=10), tol=0, max_rounds=1),
    "kinks": lambda: hn.solve(
        hn.problems.get("kinked-ridge", dim=5), tol=0, max_rounds=1, enforce="mild"
    ),
    "flow": lambda: hn.solve(
        hn.problems.get("allen-cahn", dim=3, horizon=0.3), tol=0, max_rounds=1
    ),
    "slopes": lambda: hn.solve(hn.problems.get("hamilton-jacobi", dim=3), tol=0, max_rounds=1),
    "steps": lambda: hn.solve(hn.problems.get("hyperbolic", dim=2), tol=0, max_rounds=1),
    "payoff": lambda: hn.solve(hn.problems.get("geometric-basket", dim=3), tol=0, max_rounds=1),
    "kernels": lambda: hn.solve(
        hn.problems.get("forced-sine"), family="gaussian", features=(20, 20), enforce="mild"
    ),
    "the paper's": lambda: hn.solve(
        hn.problems.get("oscillating", dim=5), **hn.paper(20, 20, 200, 30)
    ),
    "kinks in u": lambda: hn.solve(hn.Problem(**OWN), tol=0, max_rounds=1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_solution_comes_back_as_it_was(kind, tmp_path):
    u = KINDS[kind]()
    again = hn.load(
        u.save(tmp_path / "u.heatnets"), hn.Problem(**OWN) if kind == "kinks in u" else None
    )
    x = 0.8 + 0.4 * np.random.default_rng(0).random((5, u.problem.dim))
    t = np.linspace(0.2, 0.9, 5) * u.problem.horizon
    np.testing.assert_array_equal(again(t, x), u(t, x))
    np.testing.assert_array_equal(again.gradient(t, x), u.gradient(t, x))
    assert differences(fingerprint(again.problem), fingerprint(u.problem)) == []
    if kind not in ("slopes", "kinks in u"):  # like "flow", and their certificates compile long
        sure, before = (v.certify(t[0], x[0], samples=32).value for v in (again, u))
        assert sure == before
    assert dict(again.stats) == dict(u.stats)
    for one, other in zip(again.weights, u.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_named_problems_with_more_than_numbers_are_saved_without_their_name(tmp_path):
    problem = hn.problems.get("arithmetic-basket", dim=2, region=hn.Box(90.0, 110.0))
    path = hn.solve(problem, tol=0, max_rounds=1).save(tmp_path / "u.heatnets")
    assert hn.info(path)["origin"] is None
    assert hn.load(path, problem).stats["seed"] == 0


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A small solution, and the file it was saved to."""
    u = hn.solve(hn.problems.get("oscillating", dim=3), features=(8, 8))
    path = tmp_path_factory.mktemp("kept") / "u.heatnets"
    return u, u.save(path)


def test_directions_and_versions_are_in_the_file(kept):
    u, path = kept
    manifest, arrays = container.read(path, "result")
    block = u._blocks[0][0]
    np.testing.assert_array_equal(arrays["block 0 direction"], np.asarray(block.direction))
    assert manifest["heatnets"] == hn.__version__
    assert {"jax", "schema", "stats", "origin", "fingerprint"} <= set(manifest)
    assert all(len(part["sha256"]) == 64 for part in manifest["parts"].values())


def test_functions_are_not_stored_and_must_be_given_again(tmp_path):
    u = hn.solve(
        hn.Problem(dim=2, horizon=0.5, initial=lambda x: jnp.sum(jnp.sin(x))), features=(8, 0)
    )
    path = u.save(tmp_path / "u.heatnets")
    with pytest.raises(hn.InputError, match="which are never stored"):
        hn.load(path)
    assert hn.info(path)["stats"]["features"] == [8, 0]
    with pytest.raises(hn.InputError, match="solves another problem: `initial` differs"):
        hn.load(path, hn.Problem(dim=2, horizon=0.5, initial=lambda x: jnp.sum(jnp.cos(x))))
    with pytest.raises(hn.InputError, match="`dim` differs: 3 here, 2 there"):
        hn.load(path, hn.Problem(dim=3, horizon=0.5, initial=lambda x: jnp.sum(jnp.sin(x))))
    with pytest.raises(hn.InputError, match="must be a hn.Problem"):
        hn.load(path, 5)


def rewritten(path, target, change):
    """A file with its manifest changed and its digests right."""
    manifest, arrays = container.read(path, "result")
    del manifest["schema"], manifest["parts"]
    kind = manifest.pop("kind")
    change(manifest, arrays)
    schema = manifest.pop("schema", container.SCHEMA)
    before, container.SCHEMA = container.SCHEMA, schema
    try:
        return container.write(target, manifest.pop("kind", kind), manifest, arrays)
    finally:
        container.SCHEMA = before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m, a: m.update(schema=99), "written by a newer heatnets"),
        (lambda m, a: m.update(kind="checkpoint"), "is a heatnets checkpoint, not a result"),
        (lambda m, a: a.update({"weights 0": np.zeros(3)}), "do not belong together"),
        (lambda m, a: m.pop("stats"), "is no complete result"),
        (lambda m, a: m["blocks"][0].update(feature="os.system"), "are not known to this version"),
        (
            lambda m, a: m.update(origin={"named": "__import__", "parameters": {}}),
            "`name` must be one of",
        ),
        (lambda m, a: m.update(origin={"toml": "dim = 0"}), "errors, nothing was run"),
        (
            lambda m, a: a.update({"block 0 direction": np.zeros((8, 2))}),
            "does not fit 8 features in 3 dimensions",
        ),
    ],
)
def test_files_that_say_something_else_are_refused(kept, tmp_path, change, words):
    with pytest.raises(hn.HeatnetsError, match=words):
        hn.load(rewritten(kept[1], tmp_path / "other.heatnets", change))


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def test_foreign_files_run_nothing_and_allocate_nothing(kept, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = kept[1].read_bytes()
    huge = tensors({"a": np.zeros(4)})
    header = json.loads(huge[8 : 8 + int.from_bytes(huge[:8], "little")])
    header["a"].update(shape=[2**40], data_offsets=[0, 2**43])
    text = json.dumps(header).encode()
    for content, words in (
        (pickle.dumps(Bomb()), "is not a heatnets result"),
        (b"", "is not a heatnets result"),
        (b"PK\x03\x04" + bytes(100), "is not a heatnets result"),
        ((2**62).to_bytes(8, "little") + b"{", "is not a heatnets result"),
        ((2**20).to_bytes(8, "little") + b"{}", "is cut short"),
        (len(text).to_bytes(8, "little") + text + bytes(32), "is damaged"),
        (tensors({"a": np.zeros(4)}), "holds arrays, but is not a heatnets result"),
        (
            tensors({"a": np.zeros(4)}, {"heatnets": "[" * 100_000, "sha256": "0"}),
            "does not match its SHA-256",
        ),
        (data[:-1], "is damaged"),
        (data[: len(data) // 2], "is"),
        (data + b"\0", "is damaged"),
    ):
        file = tmp_path / "foreign.heatnets"
        file.write_bytes(content)
        with pytest.raises(hn.FileError, match=words):
            hn.load(file)
    assert [p.name for p in tmp_path.iterdir()] == ["foreign.heatnets"]
    with pytest.raises(hn.FileError, match="there is no file"):
        hn.info(tmp_path / "missing")


def test_ten_thousand_damaged_files(kept, tmp_path, monkeypatch):
    """Files with bits flipped, bytes lost or pieces moved are refused, or read as if undamaged.

    Nothing in them is executed.
    """
    ran = []
    monkeypatch.setattr(builtins, "exec", lambda *a: ran.append(a))
    monkeypatch.setattr(builtins, "eval", lambda *a: ran.append(a))
    monkeypatch.setattr(os, "system", lambda *a: ran.append(a))
    data, rng, file = kept[1].read_bytes(), random.Random(0), tmp_path / "damaged"
    manifest, arrays = container.read(kept[1], "result")
    slowest, header = 0.0, 8 + int.from_bytes(data[:8], "little")
    for number in range(10_000):
        raw = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 5))):
            kind, at = rng.randrange(5), rng.randrange(rng.choice((8, header, len(data))))
            if at >= len(raw):
                continue
            if kind == 0:
                raw[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                del raw[at : at + rng.randint(1, 40)]
            elif kind == 2:
                raw[at:at] = rng.randbytes(rng.randint(1, 20))
            elif kind == 3:
                raw = raw[:at]
            else:
                raw[at : at + 4] = rng.choice((b'":9e', b"null", b"\xff" * 4, b"[[[[", b"1e99"))
        file.write_bytes(raw)
        start = time.perf_counter()
        try:
            found, parts = container.read(file, "result")
        except hn.FileError as error:
            assert len(str(error)) > 20  # noqa: PT017
        else:
            assert found == manifest, number
            assert all(np.array_equal(parts[name], array) for name, array in arrays.items()), number
        slowest = max(slowest, time.perf_counter() - start)
    assert not ran
    assert slowest < 1.0


def test_a_full_disk_leaves_the_file_that_was_there(kept, tmp_path, monkeypatch):
    u, path = kept
    target = tmp_path / "u.heatnets"
    target.write_bytes(path.read_bytes())
    before = target.read_bytes()

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_files.os, "fsync", full)
    with pytest.raises(
        hn.FileError, match="No space left on device. The file that was there is as it was"
    ):
        u.save(target)
    assert target.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["u.heatnets"]


def test_places_that_cannot_be_written_are_refused(kept, tmp_path):
    u, _ = kept
    for place, words in (
        (tmp_path / "none" / "u.heatnets", "there is no folder"),
        (tmp_path, "is a folder"),
    ):
        with pytest.raises(hn.FileError, match=words):
            u.save(place)


class Stopped(Exception):
    pass


GROWTHS = {
    "equation": lambda: hn.problems.get("nonseparable", dim=3),
    "newton": lambda: hn.problems.get("hamilton-jacobi", dim=4),
    "mild": lambda: hn.Problem(
        5,
        0.5,
        initial=lambda x: jnp.sort(jnp.stack([0.0, jnp.mean(x)]))[1],
        source=lambda t, x: t * jnp.cos(x[0]),
    ),
    "mild, fixed-point steps": lambda: hn.Problem(
        dim=2,
        horizon=0.5,
        initial=lambda x: jnp.abs(x[0]),
        source=lambda t, x, u: 0.3 * jnp.sin(u),
        region=hn.Point([0.5, 0.0]),
    ),
}


@pytest.mark.parametrize(
    "kind",
    [
        "equation",
        "mild",
        *(
            pytest.param(kind, marks=pytest.mark.slow)
            for kind in ("newton", "mild, fixed-point steps")
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::heatnets.HeatnetsWarning")
def test_a_growth_that_is_gone_on_with_ends_as_if_it_had_not_been_stopped(
    kind, tmp_path, monkeypatch
):
    monkeypatch.setattr(adaptive_mild, "_NET_PAIRS", (64, 256))  # points of nets, to be quick
    problem, file, options = GROWTHS[kind](), tmp_path / "part", {"tol": 0, "max_rounds": 2}
    whole = hn.solve(problem, seconds=600, **options)
    assert len(whole.stats["history"]) == 2

    def stop(phase, done, total):
        if phase.startswith("round 1"):
            raise Stopped

    with pytest.raises(Stopped):
        hn.solve(problem, seconds=600, checkpoint=file, progress=stop, **options)
    lines = []
    again = hn.solve(
        problem,
        seconds=600,
        checkpoint=file,
        progress=lambda line, *_: lines.append(line),
        **options,
    )
    assert any(line.startswith("goes on after") for line in lines)
    assert not any(line.startswith("round 0:") for line in lines)
    for one, other in zip(again.weights, whole.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.stats["estimated_error"] == whole.stats["estimated_error"]
    assert [r[:5] for r in again.stats["history"]] == [r[:5] for r in whole.stats["history"]]


def test_what_a_resumed_solve_computes_again_does_not_count_towards_its_seconds(
    tmp_path, monkeypatch
):
    problem, file, elapsed = hn.problems.get("oscillating", dim=3), tmp_path / "part", []
    first = hn.solve(problem, tol=0, max_rounds=1, checkpoint=file)
    repeat, finish = adaptive.EquationGrowth.repeat_rounds, adaptive.EquationGrowth.finish

    def slowly(self):
        repeat(self)
        time.sleep(2)

    def watched(self, why):
        elapsed.append(self.run.elapsed)
        return finish(self, why)

    monkeypatch.setattr(adaptive.EquationGrowth, "repeat_rounds", slowly)
    monkeypatch.setattr(adaptive.EquationGrowth, "finish", watched)
    hn.solve(problem, tol=0, max_rounds=1, checkpoint=file)
    (spent,) = (r.seconds for r in first.stats["history"])
    assert spent <= elapsed[0] < spent + 1


def test_a_checkpoint_of_something_else_is_refused_with_the_difference(tmp_path, monkeypatch):
    file = tmp_path / "part"
    hn.solve(hn.problems.get("oscillating", dim=3), tol=0, max_rounds=1, checkpoint=file)
    before = file.read_bytes()
    with pytest.raises(
        hn.InputError, match="belongs to another solve: `dim` differs: 4 here, 3 there"
    ):
        hn.solve(hn.problems.get("oscillating", dim=4), tol=0, max_rounds=1, checkpoint=file)
    with pytest.raises(hn.InputError, match="`seed` is 1 here, 0 there"):
        hn.solve(hn.problems.get("oscillating", dim=3), seed=1, checkpoint=file)
    monkeypatch.setattr("heatnets.solvers.identity.__version__", "9.9")
    with pytest.raises(hn.InputError, match=f"`heatnets` is '9.9' here, '{hn.__version__}' there"):
        hn.solve(hn.problems.get("oscillating", dim=3), checkpoint=file)
    monkeypatch.undo()
    other = hn.ImportanceFamily(
        fraction_density=hn.Density(lambda rng, n: rng.beta(2, 1, (n, 1)), lambda r: 2 * r[:, 0])
    )
    with pytest.raises(hn.InputError, match="`draws` is"):
        hn.solve(hn.problems.get("oscillating", dim=3), family=other, checkpoint=file)
    with pytest.raises(hn.InputError, match="`checkpoint` keeps the rounds of a growth"):
        hn.solve(hn.problems.get("oscillating", dim=3), features=(8, 8), checkpoint=file)
    assert file.read_bytes() == before
