"""Tiles change nothing but memory: invariance, one compilation per shape, budgets, progress."""

from __future__ import annotations

import re
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import heatnets as hn
from heatnets._core import execution, tiling
from heatnets.features.designs import design
from heatnets.features.equation import build_equation
from heatnets.features.families import family
from heatnets.fit.assembly import residual_rows, value_rows


def system(dim=5, features=(13, 17)):
    problem = hn.problems.get("nonseparable", dim=dim)
    data, _ = build_equation(problem.canonical, 0)
    return problem, data, family("importance").draw(problem.canonical, features, design(None), 0)


@pytest.mark.usefixtures("x64")
def test_tile_sizes_and_row_order_change_nothing():
    problem, data, blocks = system()
    t, x = hn.random_points(problem, 101)
    whole = np.asarray(residual_rows(data, blocks, (t, x), execution.make_context()))
    one = eqx.filter_jit(lambda feature, *args: feature.residual(*args))
    one_by_one = np.array(
        [
            [
                one(f, data, t[k], x[k])
                for b in blocks
                for f in (
                    jax.tree.map(lambda a, j=j: a[j], b) for j in range(len(b.initial_coefficient))
                )
            ]
            for k in (0, 50, 100)
        ]
    )
    np.testing.assert_allclose(whole[[0, 50, 100]], one_by_one, rtol=1e-12, atol=1e-14)
    for tile_bytes in (2**11, 2**13, 2**15):
        small = execution.ExecutionContext(jax.devices()[0], 8 * tile_bytes, lambda *_: None)
        assert tiling._chunk_sizes(17, data.workspace(5), (t, x), small) != tiling._chunk_sizes(
            17, data.workspace(5), (t, x), execution.make_context()
        )
        np.testing.assert_allclose(
            residual_rows(data, blocks, (t, x), small), whole, rtol=1e-12, atol=1e-14
        )
    order = np.random.default_rng(0).permutation(101)
    np.testing.assert_allclose(
        residual_rows(data, blocks, (t[order], x[order]), execution.make_context()),
        whole[order],
        rtol=1e-12,
        atol=1e-14,
    )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("rows", [8, 100, 129])
def test_many_blocks_in_few_calls(rows, monkeypatch):
    """Blocks and strips of the same kind are joined into few calls, and every entry stays the same.

    Blocks of another kind and rows left over are not joined.
    """
    monkeypatch.setattr(tiling, "_MANY", 0)
    problem, data, (first, second) = system(features=(70, 41))
    pieces = [jax.tree.map(lambda a, i=i: a[i : i + 2], first) for i in range(0, 70, 2)]
    pieces[20:20] = [jax.tree.map(lambda a, i=i: a[i : i + 2], second) for i in range(0, 40, 2)]
    t, x = hn.random_points(problem, rows)
    heights = [
        call.height for call in tiling._schedule(pieces, rows, 4, lambda size: (10**6, size))
    ]
    assert set(heights) == {4, min(64, rows // 4 * 4)}
    assert len(heights) < 0.65 * len(pieces) * rows / 4
    # In the order in which the matrix is computed, blocks of one kind follow one another.
    grouped = [pieces[i] for i in tiling._group_alike(pieces)]
    calls = list(tiling._schedule(grouped, rows, 4, lambda size: (10**6, size)))
    assert len(calls) < len(heights)
    assert grouped[:35] == [*pieces[:20], *pieces[40:]]
    seen = []
    ctx = execution.ExecutionContext(
        jax.devices()[0], 2**30, lambda phase, done, total: seen.append((done, total))
    )
    found = np.asarray(value_rows(data, pieces, (t, x), ctx, "many", row_chunk=4))
    monkeypatch.setattr(tiling, "_MANY", 10**9)
    np.testing.assert_allclose(
        found,
        value_rows(data, pieces, (t, x), ctx, "one by one", row_chunk=4),
        rtol=1e-12,
        atol=1e-14,
    )
    assert seen[-1] == (rows * 110, rows * 110)


def test_solutions_do_not_depend_on_the_budget():
    problem = hn.problems.get("oscillating", dim=3)
    settings = {"features": (40, 60), "rows": (300, 50), "train_region": hn.Box(-2.0, 2.0)}
    points = hn.random_points(problem, 50)
    large = hn.solve(problem, **settings)(*points)
    small = hn.solve(problem, **settings, memory=4 * 2**20)(*points)
    np.testing.assert_allclose(small, large, rtol=1e-9)


def test_what_does_not_fit_is_refused_before_the_work():
    calls = []
    problem = hn.problems.get("oscillating", dim=3)
    words = (
        r"`memory` allows 4.00 MiB; 100256 rows of 2000 columns .* needs \d\.\d+ GiB. "
        r"features=\((\d+), (\d+)\), rows=\((\d+), (\d+)\) would fit"
    )
    with pytest.raises(hn.ResourceError, match=words) as caught:
        hn.solve(
            problem,
            features=(1000, 1000),
            rows=(100000, 20000),
            memory=2**22,
            progress=lambda *a: calls.append(a),
        )
    assert not calls
    M0, M1, N, N_ic = map(int, re.search(words, str(caught.value)).groups())
    assert hn.solve(problem, features=(M0, M1), rows=(N, N_ic), memory=2**22).stats["features"] == (
        M0,
        M1,
    )


@pytest.mark.parametrize(
    ("files", "free"),
    [
        (
            {
                "memory.max": "1000000",
                "memory.current": "600000",
                "memory.stat": "anon 1\ninactive_file 100000\n",
            },
            500000,
        ),
        ({"memory.max": "max", "memory.current": "600000", "memory.stat": "anon 1\n"}, 2**62),
        (
            {
                "memory/memory.limit_in_bytes": "900",
                "memory/memory.usage_in_bytes": "400",
                "memory/memory.stat": "x 1\n",
            },
            500,
        ),
        ({}, 2**62),
    ],
)
def test_limits_of_containers_are_respected(files, free, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert execution._free_in_group(tmp_path) == free


@pytest.mark.parametrize(("enough", "times"), [(2**23 >> 2, 2), (2**23 >> 4, 3)])
def test_tiles_are_halved_where_the_device_runs_out_of_memory(enough, times, monkeypatch):
    tried = []

    def work(ctx):
        tried.append(ctx.tile_bytes)
        if ctx.tile_bytes > enough:
            raise jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4096 bytes"
            )
        return ctx.tile_bytes

    ctx = execution.make_context()
    if times < 3:
        assert execution.within_memory(work, ctx) == enough
        # Later work in the same context, or in a copy of it, begins with the small tiles.
        assert execution.within_memory(work, replace(ctx, memory=ctx.memory + 1)) == enough
        assert tried.pop() == tried[-1]
    else:
        with pytest.raises(
            hn.ResourceError, match="ran out of memory, also with tiles an eighth as large"
        ):
            execution.within_memory(work, ctx)
    assert tried == [2**23 >> k for k in range(times + 1)]


def test_a_solve_goes_on_with_smaller_tiles(monkeypatch):
    problem = hn.problems.get("oscillating", dim=3)
    settings = {"features": (20, 30), "rows": (300, 0), "train_region": hn.Box(-2.0, 2.0)}
    points = hn.random_points(problem, 20)
    usual, fix, failed = hn.solve(problem, **settings)(*points), tiling._entries.fix, []

    def exhausted(*first):
        if not failed:
            failed.append(True)
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return fix(*first)

    monkeypatch.setattr(tiling._entries, "fix", exhausted)
    np.testing.assert_allclose(hn.solve(problem, **settings)(*points), usual, rtol=1e-9)
    assert failed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memory": 10}, "`memory` must be at least one MiB; got 10 bytes"),
        ({"memory": -1}, "`memory` must be one finite number > 0"),
        ({"device": "abacus"}, "`device` must be one of 'cpu'"),
        ({"device": 3.5}, "`device` must be one of 'cpu'"),
        ({"device": "rocm"}, r"JAX finds no GPU.* pip install -e '.\[cuda12\]' or "),
        ({"progress": 5}, "`progress` must be None or a function"),
    ],
)
def test_bad_workshops_are_refused(change, message):
    with pytest.raises(hn.InputError, match=message):
        hn.solve(hn.problems.get("oscillating", dim=2), features=(4, 4), rows=(20, 5), **change)


def test_progress_reaches_the_end_of_every_phase():
    last = {}

    def progress(phase, done, total):
        assert 0 <= done <= total
        assert done >= last.get(phase, (0, 0))[0]
        last[phase] = (done, total)

    problem = hn.problems.get("oscillating", dim=4)
    hn.solve(
        problem,
        features=(30, 30),
        rows=(200, 50),
        initial_rows="soft",
        memory=2**22,
        progress=progress,
    )
    assert {"equation rows", "initial rows", "least squares"} <= set(last)
    assert all(done == total for done, total in last.values())


quiet = pytest.mark.filterwarnings(
    "ignore:not solved"
)  # small sizes: what is tested here is not accuracy


def compilations(run):
    """How often JAX's compiler was called."""
    seen = []

    def listen(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        run()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    return len(seen)


@quiet
def test_a_sweep_compiles_once_per_shape():
    """T, D, seeds and parameters of a named problem are traced: changing them compiles nothing."""

    def run(seed=0, **parameters):
        problem = hn.problems.get("nonseparable", dim=6, **parameters)
        u = hn.solve(problem, features=(20, 30), rows=(100, 20), seed=seed)
        u(*hn.random_points(problem, 30))
        u.gradient(*hn.random_points(problem, 30))

    assert compilations(run) > 0
    assert compilations(lambda: run(seed=1)) == 0
    assert compilations(lambda: run(horizon=0.9)) == 0
    assert compilations(lambda: run(diffusion=0.3)) == 0
    assert compilations(lambda: run(alpha=2.0, beta=0.5)) == 0


@quiet
def test_a_first_solve_compiles_few_programs_and_a_second_none():
    def value(x):
        return jnp.sum(jnp.cos(x))

    def force(t, x):
        return jnp.exp(-t) * jnp.sum(jnp.sin(x))

    # Laplacians in closed form: folx compiles programs of its own.
    problem = hn.Problem(
        dim=3,
        horizon=0.5,
        region=hn.Box(-1.0, 1.0),
        initial=hn.Function(value, laplacian=lambda x: -value(x)),
        source=hn.Function(force, laplacian=lambda t, x: -force(t, x)),
    )
    # On a CPU 23: 4 to look for kinks, 2 to check Laplacians, 6 for the matrix and its check, 2 for
    # data at the rows, 5 for least squares, 4 to check the fit.
    assert 0 < compilations(lambda: hn.solve(problem, features=(8, 8))) <= 24
    assert compilations(lambda: hn.solve(problem, features=(8, 8), seed=1)) == 0


@quiet
def test_many_strips_compile_no_more_than_one():
    problem = hn.problems.get("oscillating", dim=11)
    u = hn.solve(problem, features=(16, 16), rows=(64, 8), memory=2**20)
    t, x = hn.random_points(problem, 5000)
    assert tiling._chunk_sizes(16, 4 * 11, (t, x), u._ctx)[0] < 2500  # several strips
    values = u(t, x)
    assert values.shape == (5000,)
    np.testing.assert_allclose(
        u(t[::-1], x[::-1])[::-1], values, rtol=1e-10, atol=1e-13
    )  # strips are put together in order
    np.testing.assert_allclose(u(t[4990:], x[4990:]), values[4990:], rtol=1e-10, atol=1e-13)
    assert compilations(lambda: u(t, x)) == 0
    assert compilations(lambda: u(t[:-1], x[:-1])) == 0  # a remainder has no shape of its own


@pytest.mark.usefixtures("x64")
def test_no_array_of_points_times_features_times_dimension():
    """The compiled strip's temporaries stay far below (rows, features, dim)."""
    problem, data, blocks = system(dim=200, features=(128, 0))
    t, x = hn.random_points(problem, 256)
    ctx = execution.make_context(memory=2**27)
    strip, tile = tiling._chunk_sizes(128, data.workspace(200), (t, x), ctx)
    here = (jnp.asarray(t[:strip]), jnp.asarray(x[:strip]))

    def entries(block, data, here):
        return tiling._entries.function(_value, data, block, tile, here)

    compiled = eqx.filter_jit(entries).lower(blocks[0], data, here).compile()
    temporaries = compiled.compiled.memory_analysis().temp_size_in_bytes
    assert temporaries <= ctx.tile_bytes
    assert value_rows(data, blocks, (t, x), ctx, "values").shape == (256, 128)


def _value(data, feature, t, x):
    return feature.residual(data, t, x)


@pytest.mark.usefixtures("x64")
def test_blocks_are_written_alike_on_the_host_and_on_a_device():
    parts = (np.arange(6.0).reshape(2, 3), -np.ones((2, 3)))
    host = tiling._write_host((np.zeros((4, 5)), np.zeros((4, 5))), parts, 1, 2)
    device = tiling._write_device((tiling._zeros((4, 5)), tiling._zeros((4, 5))), parts, 1, 2)
    for a, b, part in zip(host, device, parts, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a[1:3, 2:5], part)
        assert np.sum(np.abs(a)) == np.sum(np.abs(part))


@pytest.mark.usefixtures("x64")
def test_values_are_the_same_at_all_levels_of_optimisation():
    problem, data, blocks = system(dim=4, features=(8, 8))
    t, x = hn.random_points(problem, 3)
    for block in blocks:
        first, *others = (
            tiling._entries(_value, data, block, 4, (t, x), level=level) for level in (0, 1, 2)
        )
        for other in others:
            np.testing.assert_allclose(first, other, rtol=1e-12, atol=1e-13)
