"""Problems stated in files: what they mean, and that all their mistakes are reported at once."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import heatnets as hn
from heatnets.io.problem_files import from_toml, read, size_in_bytes
from heatnets.io.toml_words import in_toml_words
from heatnets.pde.fingerprint import differences, fingerprint

OWN = """
dim = 4
horizon = 0.5
initial = "exp(-norm2(x)/d) * sum(sin(a*x))"
source = "t * dot(w, x)^2"
diffusion = 0.5
drift = [0.1, 0.2, 0.3, 0.4]
reaction = -0.1
region = { box = [-1, "2 * a"] }
[parameters]
a = 1.5
w = "1/i^2"
[solve]
seconds = 3
memory = "2GiB"
[[certify]]
x = 0.5
[[certify]]
t = 0.25
x = [0.1, 0.2, 0.3, 0.4]
samples = 1024
"""


def own(**changes):
    w = 1 / np.arange(1.0, 5.0) ** 2
    return hn.Problem(
        **{
            "dim": 4,
            "horizon": 0.5,
            "initial": lambda x: jnp.exp(-x @ x / 4) * jnp.sum(jnp.sin(1.5 * x)),
            "source": lambda t, x: t * (w @ x) ** 2,
            "diffusion": 0.5,
            "drift": [0.1, 0.2, 0.3, 0.4],
            "reaction": -0.1,
            "region": hn.Box(-1.0, 3.0),
            **changes,
        }
    )


def test_a_file_states_the_same_problem_as_python():
    stated = from_toml(OWN)
    assert differences(fingerprint(stated.problem), fingerprint(own())) == []
    assert stated.options == {"seconds": 3, "memory": 2 * 2**30}
    assert [w.t for w in stated.points] == [0.5, 0.25]
    np.testing.assert_array_equal(stated.points[0].x, np.full(4, 0.5))
    assert stated.points[1].options == {"samples": 1024}
    assert ("initial", "exp(-norm2(x)/d) * sum(sin(a*x))") in stated.words


@pytest.mark.parametrize(
    "change",
    [
        {"initial": lambda x: 1.0001 * jnp.exp(-x @ x / 4)},
        {"source": None},
        {"diffusion": 0.5001},
        {"drift": 0.1},
        {"reaction": -0.101},
        {"horizon": 0.50001},
        {"region": hn.Box(-1.0, 3.001)},
    ],
)
def test_fingerprints_tell_problems_apart(change):
    assert differences(fingerprint(own()), fingerprint(own(**change)))


def test_fingerprints_see_what_lies_outside_the_region():
    """A region may be one point; data are met where its paths lead."""

    def call(strike):
        return hn.Problem(
            dim=2,
            horizon=1.0,
            terminal=lambda x: jnp.maximum(jnp.mean(x) - strike, 0.0),
            region=hn.Point([100.0, 100.0]),
            process=hn.GeometricBrownian(0.2),
        )

    def at_a_point(factor, k=1.0):
        start = lambda x: factor * jnp.sum(jnp.sin(x)) + 5.0  # noqa: E731
        return hn.Problem(
            dim=2,
            horizon=0.5,
            initial=start,
            source=lambda t, x, u: -k * jnp.maximum(u - 1, 0.0),
            region=hn.Point([0.0, 0.0]),
        )

    assert differences(fingerprint(call(100.0)), fingerprint(call(130.0)))
    assert not differences(fingerprint(call(130.0)), fingerprint(call(130.0)))
    assert differences(fingerprint(at_a_point(1.0)), fingerprint(at_a_point(7.0)))
    assert differences(fingerprint(at_a_point(1.0)), fingerprint(at_a_point(1.0, k=3.0)))


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ('source = "u - u^3"', {"source": lambda t, x, u: u - u**3}),
        ('source = "-norm2(du)"', {"source": lambda t, x, u, du: -du @ du}),
        (
            'diffusion = "1 + 0.1*tanh(x[0])"\nform = "trace"',
            {"diffusion": lambda t, x: 1 + 0.1 * jnp.tanh(x[0]), "form": "trace"},
        ),
        ('drift = "-x * (1 + t)"', {"drift": lambda t, x: -x * (1 + t)}),
        (
            'reaction = "-t * x[0]^2 / (1 + x[0]^2)"',
            {"reaction": lambda t, x: -t * x[0] ** 2 / (1 + x[0] ** 2)},
        ),
        ("diffusion = [[1.0, 0.2], [0.2, 2.0]]", {"diffusion": np.array([[1.0, 0.2], [0.2, 2.0]])}),
        ("region = { normal = { mean = 0.5, std = 2 } }", {"region": hn.Normal(0.5, 2.0)}),
        ("region = { point = 0.5 }", {"region": hn.Point([0.5, 0.5])}),
        (
            "[process.ornstein_uhlenbeck]\nrate = 0.5\nmean = 1.0",
            {"process": hn.OrnsteinUhlenbeck(0.5, 1.0)},
        ),
    ],
)
def test_everything_a_problem_may_have(more, wanted):
    stated = from_toml(f'dim = 2\nhorizon = 0.3\ninitial = "cos(x[0]) + x[1]"\n{more}\n').problem
    python = hn.Problem(dim=2, horizon=0.3, initial=lambda x: jnp.cos(x[0]) + x[1], **wanted)
    assert differences(fingerprint(stated), fingerprint(python)) == []


def test_terminal_problems_and_processes():
    text = (
        'dim = 2\nhorizon = 1\nterminal = "softplus(mean(x) - 100)"\nreaction = -0.05\n'
        "region = { point = 100 }\n[process.geometric_brownian]\nvolatility = 0.2\n"
        "growth = 0.05\ncorrelation = 0.3\n"
    )
    stated = from_toml(text + "[[certify]]\nx = 100\n")
    assert stated.problem.is_terminal
    assert stated.points[0].t == 0
    python = hn.Problem(
        dim=2,
        horizon=1.0,
        terminal=lambda x: jnp.logaddexp(jnp.mean(x) - 100, 0.0),
        reaction=-0.05,
        region=hn.Point([100.0, 100.0]),
        process=hn.GeometricBrownian(0.2, 0.05, 0.3),
    )
    assert differences(fingerprint(stated.problem), fingerprint(python)) == []


def test_named_problems():
    stated = from_toml('problem = "allen-cahn"\ndim = 7\nhorizon = 0.25\n').problem
    assert (
        differences(
            fingerprint(stated), fingerprint(hn.problems.get("allen-cahn", dim=7, horizon=0.25))
        )
        == []
    )


def test_all_errors_are_told_at_once_with_their_lines():
    text = (
        'dim = 0\nhorizon = nan\ndiffusion = -1\nintial = "sum(sin(x))"\n'
        'source = "exp(-norm3(x))"\n[parameters]\nx = 3\nb = "1/0"\n'
        "[solve]\nsecnds = 3\n[[certify]]\ny = 3\n"
    )
    with pytest.raises(hn.InputError) as caught:
        from_toml(text, "own.toml")
    said = str(caught.value)
    for words in (
        "own.toml: 10 errors, nothing was run",
        "line 1: `dim` must be a whole number >= 1; got 0",
        "line 2: `horizon` must be one finite number > 0; got nan",
        "line 3: `diffusion` must be",
        "line 4: unknown key `intial`; did you mean 'initial'?",
        "line 5: `source`: unknown function 'norm3'; did you mean 'norm'?",
        "line 7: `x` cannot name a parameter",
        "line 8: `b`: this is no finite number",
        "line 10: unknown key `secnds` in [solve]; did you mean 'seconds'?",
        "line 12: unknown key `y` in [certify]",
        "a problem needs `initial`",
    ):
        assert words in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dim = 3\nhorizon = 1\ninitial = sum(x)\n", "is not a TOML file"),
        ("[" * 5000, "is not a TOML file"),
        ("x" * 2**19, "has more than"),
        ("".join(f"k{i} = 1\n" for i in range(30)), "20 errors or more, nothing was run"),
        (
            'dim = 3\nhorizon = 1\ninitial = "x"\n',
            r"must return a scalar; for x of shape \(3,\) it returned shape \(3,\)",
        ),
        ('dim = 3\nhorizon = 1\ninitial = "x[7]"\n', r"x\[7\] is past the end"),
        ('dim = 3\nhorizon = 1\ninitial = "log(x[0])"\n', "must be finite"),
        ('dim = 3\nhorizon = 1\ninitial = "1"\nregion = "box"\n', "write region = { box"),
        ('dim = 3\nhorizon = 1\ninitial = "1"\nregion = { ball = 1 }\n', "write region = { box"),
        ('dim = 3\nhorizon = 1\ninitial = "1"\ndiffusion = "1 + x[0]^2"\n', "`form`"),
        ('dim = 3\nhorizon = 1\ninitial = "1"\n[solve]\ntol = 2\n', "`tol` must be below 1"),
        (
            'dim = 3\nhorizon = 1\ninitial = "1"\n[solve]\nmemory = "much"\n',
            "`memory` must be a number of bytes",
        ),
        (
            'dim = 3\nhorizon = 1\ninitial = "1"\n[[certify]]\nt = 2\n',
            r"`t` must lie in \[0, 1\]; got 2",
        ),
        (
            'dim = 3\nhorizon = 1\ninitial = "1"\n[[certify]]\nx = [1, 2]\n',
            "a point is one number for all coordinates, or 3",
        ),
        (
            'dim = 3\nhorizon = 1\ninitial = "1"\n[process.levy]\nalpha = 1\n',
            "unknown process 'levy'",
        ),
        ('dim = 3\nhorizon = 1\ninitial = "1"\nsolve = 3\n', r"`solve` must be a table"),
        ('problem = "alen-cahn"\n', "did you mean 'allen-cahn'?"),
        ('problem = "allen-cahn"\ninitial = "1"\n', "exclude each other"),
        ("dim = 3\nhorizon = 1\ninitial = true\n", "a formula is a text in quotes"),
        ("dim = 3\nseconds = 10\n", r"unknown key `seconds`; it belongs below \[solve\]\."),
        ("dim = 3\nhalfwidth = 1\n", r"it belongs below \[\[certify\]\]\."),
        ("dim = 3\nvolatility = 1\n", r"it belongs below \[process.geometric_brownian\]\."),
        ("dim = 3\nbarrier = 80\n", r"line 2: unknown key `barrier`; barriers are not supported"),
    ],
)
def test_mistakes(text, words):
    with pytest.raises(hn.InputError, match=words):
        from_toml(text)


HEAD = "dim = 3\nhorizon = 1\n"
INITIAL = 'initial = "sum(x)"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f"{HEAD}[process.ornstein_uhlenbeck]\nrate = 0.5\n{INITIAL}",
            "line 5: `initial` stands inside of the table [process.ornstein_uhlenbeck]: write it "
            "above the table.",
        ),
        (
            f"[process.ornstein_uhlenbeck]\nrate = 0.5\n{HEAD}{INITIAL}",
            "line 3: `dim`, `horizon` and `initial` stand inside of the table "
            "[process.ornstein_uhlenbeck]: write them above the table.",
        ),
        (f"{HEAD}[parameters]\na = 1.0\n{INITIAL}", "inside of the table [parameters]"),
        (f"[parameters]\n{HEAD}{INITIAL}", "`dim`, `horizon` and `initial` stand inside"),
        (
            f"{HEAD}{INITIAL}[parameters]\na = 1\nregion = {{ point = 0 }}\n",
            "line 6: `region` stands inside of the table [parameters]",
        ),
        (
            f"{HEAD}{INITIAL}[parameters]\na = 1\nsource = 'a * t'\n",
            "line 6: `source` stands inside of the table [parameters]",
        ),
        (f"{HEAD}[solve]\ntol = 0.1\n{INITIAL}", "inside of the table [solve]"),
        (f"{HEAD}[[certify]]\nx = 0.1\n{INITIAL}", "inside of the table [[certify]]"),
        (f"problem = 'allen-cahn'\n[solve]\ntol = 0.1\n{HEAD}", "`dim` and `horizon` stand"),
    ],
)
def test_keys_below_the_header_of_a_table(text, words):
    """One error says where they stand; none that they are missing or unknown."""
    with pytest.raises(hn.InputError) as caught:
        from_toml(text, "own.toml")
    assert "own.toml: one error, nothing was run" in str(caught.value)
    assert words in str(caught.value)


def test_parameters_may_have_the_names_of_keys():
    text = f"{HEAD}{INITIAL}reaction = '-2*reaction'\n[parameters]\nreaction = 0.1\ndrift = 1\n"
    problem = from_toml(text).problem
    assert (problem.reaction, problem.canonical.coefficients) == (-0.2, None)


def test_keys_are_set_in_tables():
    rate = f"{HEAD}{INITIAL}[process.ornstein_uhlenbeck]\nrate = {{}}\n"
    wanted = fingerprint(from_toml(rate.format(0.02)).problem)
    for key in ("process.rate", "process.ornstein_uhlenbeck.rate"):
        stated = from_toml(rate.format(0.5), changes={key: 0.02})
        assert differences(fingerprint(stated.problem), wanted) == []
    # What the file does not state has a default.
    wanted = fingerprint(from_toml(f"{rate.format(0.5)}mean = 0.3\n").problem)
    stated = from_toml(rate.format(0.5), changes={"process.mean": 0.3, "solve.tol": 0.1})
    assert differences(fingerprint(stated.problem), wanted) == []
    assert stated.options == {"tol": 0.1}
    named = from_toml(f"problem = 'geometric-basket'\n{HEAD}", changes={"strike": 90.0})
    wanted = hn.problems.get("geometric-basket", dim=3, horizon=1, strike=90.0)
    assert differences(fingerprint(named.problem), fingerprint(wanted)) == []


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("proces.rate", "did you mean 'process.rate'?"),
        ("process.rte", "unknown key `rte` of ornstein_uhlenbeck; did you mean 'rate'?"),
        ("solve.tl", "unknown key `tl` in [solve]; did you mean 'tol'?"),
    ],
)
def test_keys_that_cannot_be_set(key, words):
    with pytest.raises(hn.InputError) as caught:
        from_toml(f"{HEAD}{INITIAL}[process.ornstein_uhlenbeck]\nrate = 1\n", changes={key: 0.5})
    assert words in str(caught.value)
    assert "SolveOptions" not in str(caught.value)


@pytest.mark.parametrize(
    ("python", "toml"),
    [
        (
            "For example hn.Point(spot), or hn.Box(0.8 * spot, 1.2 * spot).",
            "For example { box = [80, 120] }.",
        ),
        ("got Box(-1, 1). Write hn.Point([0.0]).", "got { box = [-1, 1] }. Write { point = 0.0 }."),
        ("write reaction=-0.03; reaction=0 if", "write reaction = -0.03; reaction = 0 if"),
        ("For example: lambda t, x: jnp.sum(jnp.sin(x)).", 'For example: "sum(sin(x))".'),
        (
            'Use family="importance", or antithetic=False.',
            'Use family = "importance", or antithetic = false.',
        ),
        ("features=(256, 512), rows=(2000, 0).", "features = [256, 512], rows = [2000, 0]."),
        (
            "Ask for samples=16384, or for halfwidth=1e-3.",
            "Ask for samples = 16384, or for halfwidth = 1e-3.",
        ),
        (
            "hn.OrnsteinUhlenbeck(rate=0.3, mean=[0, 1], diffusion=1).",
            "[process.ornstein_uhlenbeck] with rate = 0.3, mean = [0, 1], diffusion = 1.",
        ),
        ("got None. It is the final time T.", "got nothing. It is the final time T."),
        (
            "Give more `seconds`, or u.certify(t, x).",
            "Give more `seconds`, or a [[certify]] table.",
        ),
    ],
)
def test_advice_is_in_the_words_of_the_file(python, toml):
    assert in_toml_words(python) == toml


BLACK_SCHOLES = """
dim = 2
horizon = 1.0
terminal = "max(mean(x) - 100, 0)"
[process.geometric_brownian]
volatility = 0.2
growth = 0.03
"""


@pytest.mark.filterwarnings("always::heatnets.HeatnetsWarning")
def test_files_are_advised_in_their_own_words(run_command, tmp_path):
    """No word of Python for whoever wrote TOML, in errors and in warnings."""
    with pytest.raises(hn.InputError, match=r"For example \{ box = \[80, 120\] \}"):
        from_toml(BLACK_SCHOLES)
    (tmp_path / "price.toml").write_text(
        f"region = {{ point = 100 }}\n{BLACK_SCHOLES}[solve]\ntol=7"
    )
    done = run_command("solve", "price.toml")
    assert done.code == 2
    assert "For a price write reaction = -0.03; reaction = 0 if this is meant" in done.err
    (tmp_path / "price.py").write_text(
        "import heatnets as hn\nimport jax.numpy as jnp\n"
        "problem = hn.Problem(2, 1.0, terminal=lambda x: jnp.max(x), region=hn.Point([1.0, 1.0]),\n"
        "    process=hn.GeometricBrownian(0.2, 0.03))\noptions = {'tol': 7}\n"
    )
    done = run_command("solve", "price.py")
    assert done.code == 2
    assert "For a price write reaction=-0.03; reaction=0 if this is meant" in done.err


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GiB", 2**32), ("500M", 500 * 2**20), ("1e9", 10**9), (" 2.5 kB ", 2560), ("7", 7)],
)
def test_sizes(text, size):
    assert size_in_bytes(text) == size


PYTHON = """
import jax.numpy as jnp, heatnets as hn
problem = hn.Problem(dim=2, horizon=0.5, initial=lambda x: {})
{}
"""


def test_python_files(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        PYTHON.format(
            "jnp.sum(jnp.sin(x))",
            "options = {'seconds': 2}\npoints = [(0.5, 0.1), (0.2, [0.1, 0.3])]",
        )
    )
    stated = read(file)
    assert stated.options == {"seconds": 2}
    assert [w.t for w in stated.points] == [0.5, 0.2]


@pytest.mark.parametrize(
    ("body", "more", "words"),
    [
        ("jnp.sum(jnp.sin(x))", "1 / 0", r"own.py:4: ZeroDivisionError: division by zero"),
        ("jnp.sum(jnp.sin(x))", "def f(:", r"own.py:4: SyntaxError"),
        ("jnp.sum(jnp.sin(x))", "raise SystemExit(0)", r"own.py:4: SystemExit"),
        ("jnp.sum(jnp.sin(x))", "problem = 3", "must define `problem`, a hn.Problem; it defines 3"),
        ("jnp.sum(jnp.sin(x))", "options = {'secnds': 3}", "did you mean 'seconds'?"),
        ("jnp.sum(jnp.sin(x))", "points = [3]", r"`points` must be pairs \(t, x\)"),
        ("x", "", r"own.py:3: `initial` must return a scalar"),
        ("1", "", r"own.py:3: `initial` must return a real float"),
        ("1j * x[0]", "", r"own.py:3: `initial` must return a real number"),
        ("__import__('math').sin(x[0])", "", r"own.py:3: .*Use jnp.sin in place of math.sin"),
        ("1.0 if x[0] > 0 else 0.0", "", r"own.py:3: .*Use jnp.where"),
    ],
)  # fmt: skip
def test_mistakes_in_python_files_name_the_line(tmp_path, body, more, words):
    file = tmp_path / "own.py"
    file.write_text(PYTHON.format(body, more))
    with pytest.raises(hn.InputError, match=words):
        read(file)


def test_missing_and_unreadable_files(tmp_path):
    for name in ("none.toml", "none.py"):
        with pytest.raises(hn.InputError, match="there is no file"):
            read(tmp_path / name)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(hn.InputError, match="is not text in UTF-8"):
        read(tmp_path / "bytes.toml")


def test_fuzzed_files_are_read_or_refused_in_words():
    rng, lines, read_ = random.Random(0), OWN.strip().splitlines(), 0
    junk = [
        "=",
        "[[",
        "dim = 1e400",
        'initial = "(((("',
        "\x00",
        'x = "9^9^9"',
        "[solve]",
        "d = 3",
        "region = 3",
        '"',
        "dim = 3",
        "horizon = inf",
        "[parameters]",
        "certify = 3",
    ]
    for _ in range(300):
        text = list(lines)
        for _ in range(rng.randint(1, 3)):
            k = rng.randrange(len(text))
            text[k] = rng.choice(
                [rng.choice(junk), text[k][: rng.randrange(len(text[k]) + 1)], text[k][::-1]]
            )
        try:
            from_toml("\n".join(text))
            read_ += 1
        except hn.InputError as error:
            assert len(str(error)) > 10  # noqa: PT017
    assert 0 < read_ < 300
    assert math.isfinite(read_)


@pytest.mark.filterwarnings("ignore::heatnets.HeatnetsWarning")
def test_the_files_shown_on_the_pages_are_problems():
    root = Path(__file__).parent.parent
    shown = [
        block
        for page in (root / "README.md", *(root / "docs").glob("*.md"))
        for block in re.findall(
            r"^```toml\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL
        )
    ]
    assert len(shown) >= 4
    for text in (*shown, (root / "examples" / "own_problem.toml").read_text()):
        assert from_toml(text).problem.dim > 1
