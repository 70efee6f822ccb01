"""Pictures show what the solution, its estimates and its certificates say.

Files are complete, and texts do not overlap.
"""

from __future__ import annotations

from types import SimpleNamespace

import jax.numpy as jnp
import matplotlib.image
import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

import heatnets as hn
from heatnets.plotting import figures, style
from heatnets.solvers.run import Round


@pytest.fixture(scope="module")
def grown():
    """A short growth, with weights of some degree in time; u is known."""
    return hn.solve(hn.problems.get("product-of-sines", dim=4), tol=0, max_rounds=1)


@pytest.fixture(scope="module")
def fixed():
    return hn.solve(
        hn.problems.get("oscillating", dim=5), features=(32, 64), train_region=hn.Box(-3.2, 3.2)
    )


@pytest.fixture(scope="module")
def backward():
    """A terminal-value problem in one dimension, fixed size, so coarse that its error shows."""
    problem = hn.Problem(
        dim=1,
        horizon=0.5,
        terminal=lambda x: jnp.sin(2 * x[0]),
        exact=lambda t, x: jnp.exp(-4 * (0.5 - t)) * jnp.sin(2 * x[0]),
    )
    return hn.solve(problem, features=(8, 0), antithetic=True)


@pytest.fixture(scope="module")
def kinked():
    return hn.solve(hn.problems.get("geometric-basket", dim=3), tol=0, max_rounds=1, enforce="mild")


@pytest.fixture(scope="module")
def cloud():
    """A normal region, no exact solution, a source."""
    problem = hn.Problem(
        dim=3,
        horizon=0.5,
        initial=lambda x: jnp.sin(jnp.sum(x)),
        source=lambda t, x: t * x[0],
        region=hn.Normal(1.0, 0.5),
    )
    return hn.solve(problem, features=(16, 16), antithetic=True)  # fmt: skip


def size(solution):
    values = solution(*hn.random_points(solution.problem, 4000, seed=1))
    return np.sqrt(np.mean(values**2))


def words_in_place(figure: Figure):
    """No title, legend or label leaves the figure, and no title lies on a legend."""
    figure.draw_without_rendering()
    renderer, whole = figure._get_renderer(), figure.bbox
    for ax in figure.axes:
        shown = [
            ax.get_window_extent(),
            ax.xaxis.label.get_window_extent(renderer),
            ax.yaxis.label.get_window_extent(renderer),
        ]
        title = ax._left_title.get_window_extent(renderer)
        if ax.get_legend() is not None:
            legend = ax.get_legend().get_window_extent(renderer)
            shown.append(legend)
            assert legend.y0 > ax.get_window_extent().y1 - 4
            if ax.get_title("left").strip():
                assert title.y0 > legend.y1 - 4
        for box in [*shown, *([title] if ax.get_title("left").strip() else [])]:
            assert box.x0 > whole.x0 - 1
            assert box.x1 < whole.x1 + 1
            assert box.y0 > whole.y0 - 1
            assert box.y1 < whole.y1 + 1


def test_slices_draw_u_its_band_and_the_exact_solution(grown):
    problem, region = grown.problem, grown.problem.region
    figure = figures.slices(grown, coordinates=[0, 2], lines=1, points=41)
    top, errors = figure.axes
    s = np.linspace(-1, 1, 41)
    half = grown.stats["estimated_error"] * size(grown)
    curves, circles = top.lines[::2], top.lines[1::2]
    assert [c.get_label() for c in curves] == ["along $x_{1}$", "along $x_{3}$", "random line 1"]
    for i, coordinate in enumerate((0, 2)):
        x = np.tile(region.centre * np.ones(4), (41, 1))
        x[:, coordinate] += s * (region.high - region.low) / 2
        value, exact = grown(problem.horizon, x), hn.exact_values(problem, problem.horizon, x)
        np.testing.assert_allclose(curves[i].get_xdata(), s)
        np.testing.assert_allclose(curves[i].get_ydata(), value, rtol=1e-12)
        np.testing.assert_allclose(circles[i].get_ydata(), exact[::2], rtol=1e-12)
        np.testing.assert_allclose(
            errors.lines[i].get_ydata(),
            np.maximum(np.abs(value - exact), 1e-17 * size(grown)),
            rtol=0.1,
        )
        band = top.collections[i].get_paths()[0].vertices
        for position, u in zip(s[1:-1], value[1:-1], strict=True):
            low, *_, high = np.sort(band[np.isclose(band[:, 0], position), 1])
            # 512 random points know the size to a few per cent; what is left of 0.1 + 1e-7 after
            # subtraction is rounded.
            np.testing.assert_allclose([u - low, high - u], half, rtol=0.15, atol=4e-16)
    words_in_place(figure)


def test_the_band_is_as_wide_as_the_error(grown):
    """The band is the estimated error times the size of u.

    That is not far below the root mean square error. It may be above, where few residuals carry the
    estimate.
    """
    t, x = hn.random_points(grown.problem, 2000, seed=3)
    exact = hn.exact_values(grown.problem, t, x)
    true = np.sqrt(np.mean((grown(t, x) - exact) ** 2))
    line = figures.slices(grown, lines=0, points=11).axes[1].lines[-1].get_ydata()
    assert line[0] == pytest.approx(
        grown.stats["estimated_error"] * np.sqrt(np.mean(exact**2)), rel=0.5
    )
    assert line[0] > true / 3


def test_certified_bars_hold_the_exact_solution(backward):
    """The network is wrong by per cents; the bars are not."""
    figure = figures.slices(backward, certified=3, points=101)
    top, errors = figure.axes
    assert backward.stats["estimated_error"] is None
    (bars,) = [c for c in top.containers if isinstance(c, ErrorbarContainer)]
    x, _ = bars.lines[0].get_data()
    np.testing.assert_allclose(x, [-0.66, 0.0, 0.66], atol=0.011)
    exact = hn.exact_values(backward.problem, 0.0, x[:, None])
    low, high = np.array([path.vertices[:, 1] for path in bars.lines[2][0].get_paths()]).T
    assert np.all((low <= exact) & (exact <= high))
    off = np.abs(backward(0.0, x[:, None]) - exact)
    assert np.any((backward(0.0, x[:, None]) < low) | (backward(0.0, x[:, None]) > high))
    bound = errors.lines[-1].get_ydata()
    assert np.all(bound >= off)
    assert np.all(bound <= off + 2 * (high - low))
    words_in_place(figure)


def test_a_terminal_value_problem_in_one_dimension(backward):
    """The default time is 0, the axis is x itself, and there are no random lines."""
    figure = figures.slices(backward, points=21)
    ax = figure.axes[0]
    assert "u(0, x)" in ax.get_title("left")
    assert figure.axes[-1].get_xlabel() == "x"
    assert len(ax.lines) == 2
    x = np.linspace(-1, 1, 21)
    np.testing.assert_allclose(ax.lines[0].get_data(), (x, backward(0.0, x[:, None])), rtol=1e-12)
    figure = figures.evolution(backward, x=[0.4], points=11)
    t = np.linspace(0, 0.5, 11)
    np.testing.assert_allclose(
        figure.axes[0].lines[0].get_data(), (t, backward(t, [0.4])), rtol=1e-12
    )
    np.testing.assert_allclose(
        figure.axes[0].lines[1].get_ydata(), np.exp(-4 * (0.5 - t)) * np.sin(0.8), rtol=1e-12
    )
    assert "given at the right end" in figure.axes[-1].get_xlabel()
    figures.weights(backward)
    assert figures.weights(backward).axes[0].get_legend_handles_labels()[1][0] == "terminal (8)"


def test_residuals_by_size_and_by_time(fixed):
    figure = figures.residuals(fixed, points=600, seed=2)
    often, when = figure.axes
    t, x = hn.random_points(fixed.problem, 600, 2)
    found = np.abs(fixed.residual(t, x))
    heights = np.array([bar.get_height() for bar in often.patches])
    edges = np.array([bar.get_x() for bar in often.patches])
    assert heights.sum() == 600
    # Bars from the first edge above the median on hold the residuals from there on.
    upper = edges > np.median(found)
    assert heights[upper].sum() == np.sum(found >= edges[upper].min() * (1 - 1e-12))
    median, rms, largest = (line.get_xdata()[0] for line in often.lines)
    np.testing.assert_allclose(
        [median, rms, largest], [np.median(found), np.sqrt(np.mean(found**2)), found.max()]
    )
    slot = np.ceil(12 * t / fixed.problem.horizon).astype(int) - 1
    np.testing.assert_allclose(
        when.lines[1].get_ydata(), [found[slot == k].max() for k in range(12)]
    )
    np.testing.assert_allclose(
        when.lines[0].get_ydata(), [np.median(found[slot == k]) for k in range(12)]
    )
    words_in_place(figure)


def test_kinked_data_have_no_residual_and_all_the_rest(kinked):
    """Kinked data have no residual plot; all other plots work.

    The region is a `Point` of a geometric Brownian motion: coordinates stay positive, and the error
    bar is drawn at the point alone.
    """
    assert "`terminal` has kinks" in kinked.kinks
    with pytest.raises(
        hn.InputError,
        match=r"`terminal` has kinks .* not defined there. Judge this solution by u.certify",
    ):
        figures.residuals(kinked)
    figure = figures.slices(kinked, points=21, lines=1)
    value = kinked(0.0, [100.0] * 3)
    for i, bars in enumerate(figure.axes[0].containers):
        (path,) = bars.lines[2][0].get_paths()
        half = kinked.stats["estimated_error"] * abs(value)
        np.testing.assert_allclose(
            path.vertices,
            [[0, value - half], [0, value + half]],
            rtol=1e-9,
            atol=1e-9,
            err_msg=str(i),
        )
    assert len(figure.axes[0].containers) == 3
    for kind in ("line", "evolution", "weights", "history"):
        words_in_place(figures.KINDS[kind](kinked))


def test_weights_are_drawn_times_their_number(fixed, grown):
    ax = figures.weights(fixed).axes[0]
    for line, w in zip(ax.lines, fixed.weights, strict=False):
        np.testing.assert_allclose(line.get_ydata(), len(w) * np.sort(w)[::-1])
    assert ax.lines[-1].get_ydata()[0] == 1
    assert [line.get_label() for line in ax.lines] == [
        "initial (32)",
        "source (64)",
        "1/M: Monte Carlo",
    ]
    # Weights that are polynomials in time are drawn at its end: as `explain` has them there, from
    # its own sums of powers.
    (w,) = grown.weights
    assert w.ndim == 2
    drawn = figures.weights(grown).axes[0].lines[0].get_ydata()
    found = grown.explain(grown.problem.horizon, [0.2] * 4, samples=16)
    np.testing.assert_allclose(
        drawn,
        len(w) * np.sort(found.weights["initial"])[::-1],
        rtol=1e-9,
        atol=1e-9 * np.abs(drawn).max(),
    )
    np.testing.assert_allclose(
        figures.explanation(found).axes[1].lines[0].get_ydata(),
        drawn,
        rtol=1e-9,
        atol=1e-9 * np.abs(drawn).max(),
    )


def test_many_weights_are_thinned_to_their_ends():
    figure = Figure()
    ax = figure.subplots()
    figures._weights(ax, {"initial": np.linspace(0, 1, 5000)})
    drawn = ax.lines[0].get_data()
    assert len(drawn[0]) == 1000
    assert (drawn[0][0], drawn[0][-1], drawn[1][0], drawn[1][-1]) == (1, 5000, 5000, 0)


def test_history_shows_every_round(fixed):
    errors = [1e-2, 3e-5, 0.0]
    rounds = [
        Round((48 * 2**i, 48 * 2**i), 768 * 2**i, 3, "signs", e, 2.0**i)
        for i, e in enumerate(errors)
    ]
    stopped = "the next round would take about 11 s, and 4.1 of 10 s are spent"
    stats = {
        "history": tuple(rounds),
        "estimated_error": 4e-5,
        "features": (96, 96),
        "rows": (1536, 0),
        "stopped": stopped,
    }
    figure = figures.history(SimpleNamespace(stats=stats))
    by_features, by_seconds = figure.axes
    np.testing.assert_allclose(
        by_features.lines[0].get_data(), ([96, 192, 384], [1e-2, 3e-5, 1e-17])
    )
    np.testing.assert_allclose(by_seconds.lines[0].get_data(), ([1, 2, 4], [1e-2, 3e-5, 1e-17]))
    assert by_features.lines[1].get_ydata()[0] == 4e-5
    assert by_features.lines[2].get_xdata()[0] == 192  # the one taken: not the last
    assert [label.get_text() for label in by_features.get_xticklabels()] == ["96", "192", "384"]
    assert stopped in by_features.get_title("left").replace("\n", " ")
    words_in_place(figure)
    with pytest.raises(hn.InputError, match="fixed size .* no rounds of growth"):
        figures.history(fixed)


def test_a_normal_region_and_every_kind(cloud, grown):
    figure = figures.slices(cloud, coordinates=[1], lines=0, points=9)
    x = figure.axes[0].lines[0].get_xdata()
    assert figure.axes[-1].get_xlabel() == "$x_{2}$"
    assert x[4] == 1.0
    assert x[-1] - x[0] == pytest.approx(
        2.0, rel=0.15
    )  # twice two standard deviations, known from 256 points
    assert len(figure.axes) == 1  # nothing is known of its error
    for kind in set(figures.KINDS) - {"history"}:
        words_in_place(figures.KINDS[kind](cloud))
    for draw in figures.KINDS.values():
        words_in_place(draw(grown))


def test_slices_mark_a_known_certificate_on_every_line(fixed):
    point, t = np.array([0.3, -0.5, 0.0, 0.9, -1.0]), 0.25
    sure = fixed.certify(t, point, samples=256)
    figure = figures.slices(fixed, t=t, through=point, known=sure, points=81)
    top = figure.axes[0]
    marks = [c for c in top.containers if c.__class__.__name__ == "ErrorbarContainer"]
    assert len(marks) == 4
    for i, mark in enumerate(marks):
        (s,), (value,) = mark.lines[0].get_data()
        assert value == sure.value
        if i < 2:  # the coordinate axes of the box
            assert s == pytest.approx(point[i] / fixed.problem.region.high)
    curves = [c for c in top.lines if c.get_label().startswith(("along", "random"))]
    for mark, curve in zip(marks, curves, strict=True):
        s, u = curve.get_data()
        (at,), (value,) = mark.lines[0].get_data()
        assert np.interp(at, s, u) == pytest.approx(value, abs=2e-3 * np.ptp(u) + 1e-3)
    assert "through x = [0.3, -0.5, 0, 0.9, ...]" in top.get_title("left")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"t": 0.7}, r"`t` must lie in \[0, 0.5\]"),
        ({"t": [0.1, 0.2]}, "`t` must be one time"),
        ({"coordinates": [5]}, "`coordinates` must be whole numbers below 5"),
        ({"coordinates": [], "lines": 0}, "nothing to draw"),
        ({"points": 1}, "`points` must be a whole number >= 2"),
        ({"certified": -1}, "`certified` must be"),
    ],
)
def test_slices_refuse_in_words(fixed, arguments, words):
    with pytest.raises(hn.InputError, match=words):
        figures.slices(fixed, **arguments)


def test_an_axis_has_u_and_its_derivative_at_each_time(grown):
    problem = grown.problem
    figure = figures.axis(grown, axis=2, times=[0.01, 0.05], points=21)
    top, slope, errors = figure.axes
    assert [c.get_label() for c in top.lines[::2]] == ["t = 0.01", "t = 0.05"]
    assert errors.get_xlabel() == "$x_{3}$"
    for k, t in enumerate((0.01, 0.05)):
        x = np.tile(problem.region.centre * np.ones(4), (21, 1))
        x[:, 2] = top.lines[2 * k].get_xdata()
        np.testing.assert_allclose(top.lines[2 * k].get_ydata(), grown(t, x), rtol=1e-12)
        drawn, exact = slope.lines[2 * k].get_ydata(), slope.lines[2 * k + 1].get_ydata()
        np.testing.assert_allclose(exact, hn.exact_gradient(problem, t, x)[:, 2], rtol=1e-12)
        # A central difference of u, exact up to terms of second order.
        step = 1e-4 * np.eye(4)[2]
        difference = (grown(t, x + step) - grown(t, x - step)) / 2e-4
        np.testing.assert_allclose(drawn, difference, atol=1e-6)
    words_in_place(figure)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"axis": 5}, "`axis` must be whole numbers below 5"),
        ({"times": [0.1] * 7}, "`times` must be one to 6 times"),
        ({"times": 0.7}, r"`t` must lie in \[0, 0.5\]"),
    ],
)
def test_an_axis_refuses_in_words(fixed, arguments, words):
    with pytest.raises(hn.InputError, match=words):
        figures.axis(fixed, **arguments)


def test_evolution_takes_one_point(fixed):
    with pytest.raises(
        hn.InputError, match=r"`x` must be one point, of shape \(5,\); got shape \(2, 5\)"
    ):
        figures.evolution(fixed, x=np.zeros((2, 5)))


def test_dark_pictures_leave_the_figure_as_it_was(fixed, tmp_path):
    figure = figures.residuals(fixed, points=100)
    light, dark, again = (tmp_path / f"{name}.png" for name in ("light", "dark", "again"))
    figures.save(figure, light)
    assert figures.save(figure, dark, dark=True) == dark
    figures.save(figure, again)
    assert light.read_bytes() == again.read_bytes()
    bright, dim = (matplotlib.image.imread(path)[..., :3] for path in (light, dark))
    assert bright.shape == dim.shape
    assert np.all(bright[0, 0] == 1)
    assert np.all(dim[0, 0] < 0.12)
    assert np.mean(dim) < 0.25
    # No ink is left that cannot be seen: what was black is bright, and nothing is as dark as black.
    black = np.all(bright < 0.02, axis=2)
    assert black.sum() > 500
    assert np.all(dim[black] > 0.6)
    assert dim.max(axis=2).min() > 0.09


def test_every_colour_can_be_seen_on_white_and_on_dark():
    """The contrast of every colour, as WCAG defines it, is high enough on white and on dark.

    WCAG asks for 3 in graphics; here each colour has a marker or a label as well.
    """

    def luminance(colour):
        rgb = np.array(matplotlib.colors.to_rgb(colour))
        return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [
            0.2126,
            0.7152,
            0.0722,
        ]

    def contrast(one, other):
        low, high = sorted([luminance(one), luminance(other)])
        return (high + 0.05) / (low + 0.05)

    for paper in ("#ffffff", style._PAPER):
        assert min(contrast(colour, paper) for colour in style.COLOURS) > 2.2
        assert min(contrast(colour, paper) for colour in (*style.COLOURS[:3], style.GREY)) > 3.3


@pytest.mark.parametrize(
    ("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_files_are_of_their_kind_and_the_same_each_time(ending, magic, tmp_path):
    figure = Figure()
    figure.subplots().plot([0, 1], [1, 0])
    for dark in (False, True):
        first = figures.save(figure, tmp_path / f"a.{ending}", dark).read_bytes()
        assert first.startswith(magic)
        assert figures.save(figure, tmp_path / f"b.{ending.upper()}", dark).read_bytes() == first


def test_save_refuses_in_words_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    figure = Figure()
    with pytest.raises(hn.InputError, match=r"must end in .png, .svg or .pdf; got '.*a.jpg'"):
        figures.save(figure, tmp_path / "a.jpg")
    with pytest.raises(hn.InputError, match="a folder that exists"):
        figures.save(figure, tmp_path / "missing" / "a.png")

    def fails(out, **options):
        out.write(b"half")
        raise RuntimeError("the disk is gone")

    monkeypatch.setattr(figure, "savefig", fails)
    with pytest.raises(RuntimeError):
        figures.save(figure, tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []
