"""Formulas: their values against the same in Python, what they refuse, and hostile text.

No text may be executed, hang or crash.
"""

from __future__ import annotations

import math
import random
import sys
import time

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heatnets._core.errors import InputError
from heatnets.io.formulas import (
    FUNCTIONS,
    MAX_DEPTH,
    MAX_LENGTH,
    OPERATORS,
    Formula,
    FormulaError,
    parse,
)

pytestmark = pytest.mark.usefixtures("x64")

X = np.array([0.3, -1.2, 2.0])
NAMES = {"d": 3.0, "w": np.array([1.0, 2.0, 3.0])}
KNOWN = ("t", "x", "u", "du", "d", "T", "i")


def value(text, t=0.7):
    return float(Formula(text, ("t", "x"), NAMES)(t, jnp.asarray(X)))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("exp(-norm2(x)/d) * sum(sin(3*x))", np.exp(-X @ X / 3) * np.sum(np.sin(3 * X))),
        ("-x[0]^2", -(X[0] ** 2)),
        ("2^3^2", 512),
        ("-2^2 + 2^-1", -3.5),
        ("1 - 2 - 3", -4),
        ("8/4/2", 1),
        ("2*x[1]*-3", -6 * X[1]),
        ("dot(w, x) + t", X @ [1, 2, 3] + 0.7),
        ("where(x[1] > 0, 1, 2)", 2),
        ("max(x) + sum(min(x, 0))", 2 - 1.2),
        ("sum(x * roll(x))", X @ np.roll(X, 1)),
        ("norm(x) + prod(x) + mean(x)", np.linalg.norm(X) + np.prod(X) + np.mean(X)),
        ("sum(x > 0)", 2),
        ("(x[0] > 0) + (x[2] > 0) - (t > 0)", 1),
        ("where((0 < t) * (t < 1), 3, 4)", 3),
        ("erf(t) + pi", math.erf(0.7) + math.pi),
        ("x[2]**t", 2**0.7),
        ("1e-3 + .5 + 2.", 2.501),
        ("(((((1)))))", 1),
        ("sigmoid(t) + softplus(t)", 1 / (1 + np.exp(-0.7)) + np.log1p(np.exp(0.7))),
    ],
)  # fmt: skip
def test_a_formula_means_what_it_says(text, wanted):
    np.testing.assert_allclose(value(text), wanted, rtol=1e-14)


def test_every_function_is_there_and_counts_its_arguments():
    for name, (fewest, most) in FUNCTIONS.items():
        assert np.isfinite(value(f"sum(0 * {name}({', '.join(['x + 3'] * fewest)}))"))
        with pytest.raises(FormulaError, match=f"{name} takes"):
            value(f"{name}({', '.join(['x'] * (most + 1))})")


@pytest.mark.parametrize(
    ("text", "words", "at"),
    [
        ("sum(six(x))", "unknown function 'six'; did you mean 'sin'?", 4),
        ("exp(norm2(xx))", "unknown name 'xx'; did you mean 'x'?", 10),
        ("sin", "it is a function: write its argument in parentheses", 0),
        ("x(3)", "'x' is no function", 0),
        ("1 2", "an operator is missing before it", 2),
        ("exp(x", "')' is missing", 5),
        ("(x))", "')' is one too many", 3),
        ("3 + * 4", "'*' is not expected here", 4),
        ("x[1.5]", "an index is a whole number", 2),
        ("1e999", "no finite number", 0),
        ("t + 1/0", "no finite number", 5),
        ("(-1)^0.5", "no finite number", 4),
        ("x^101", "exponents must be at most 100", 1),
        ("9**9**9**9", "exponents must be at most 100", 4),
        ("__import__('os').system('id')", "has no meaning in a formula", 11),
        ("x.__class__.__mro__", "'.' has no meaning", 1),
        ("ｘ + 1", "U+FF58", 0),
        ("2×t", "write *", 1),
        ("lambda: 1", "':' has no meaning", 6),
        ("x; 1", "';' has no meaning", 1),
        ("where(0 < t < 1, 1, 2)", "comparisons do not chain", 12),
        ("x_1 + 1", "unknown name 'x_1'; write x[0]: coordinates are counted from 0", 0),
        ("x2^2", "unknown name 'x2'; write x[1]", 0),
        ("exp(-|x|^2)", "write norm2(x) for |x|^2, norm(x) for |x|", 5),
        ("np.exp(x[0])", "'.' has no meaning in a formula: write exp, without np", 2),
        ("jnp.maximum(t, 0)", "write max, without jnp", 3),
        ("x.sum()", "write sum(x)", 1),
        ("ln(t)", "unknown function 'ln'; write log", 0),
        ("", "the formula is empty", 0),
        ("(" * 4000, "too deep", 60),
        ("-" * 300 + "1", "too deep", 60),
        ("(" * 2**20, "too long: 1048576 characters", 0),
    ],
)
def test_what_is_wrong_is_said_at_its_place_and_at_once(text, words, at):
    start = time.perf_counter()
    with pytest.raises(FormulaError) as caught:
        parse(text, ("t", "x"))
    assert time.perf_counter() - start < 0.05
    said, shown, caret = str(caught.value).rsplit("\n", 2)
    assert words in said
    assert caret.index("^") - 4 == min(at, 60)
    assert text[:40][: len(shown) - 4].replace("\n", " ") in shown or at > 60


def test_a_space_of_another_kind_is_pointed_at():
    with pytest.raises(FormulaError, match=r"U\+00A0.*\n    x \+ 1\n     \^$"):
        parse("x\u00a0+ 1", KNOWN)


def test_long_sums_need_no_deep_stack():
    text = "+".join(["t"] * 1900)
    np.testing.assert_allclose(value(text, t=1.0), 1900)
    limit = sys.getrecursionlimit()
    assert len(parse("*".join(["x[0]"] * 700), KNOWN)) > limit


def test_what_is_no_number_is_nan_and_never_complex():
    assert np.isnan(value("(d - 4)^0.5"))
    assert np.isnan(value("(t - 1)^0.5"))
    assert value("1/(d - 3)") == np.inf


def test_components_stay_inside():
    with pytest.raises(InputError, match=r"x\[5\] is past the end: x has 3 components"):
        value("x[5]")
    with pytest.raises(InputError, match="t is one number"):
        value("t[0]")


PIECES = (
    "t",
    "x",
    "u",
    "d",
    "1",
    "2.5",
    "1e9",
    "(",
    ")",
    "[",
    "]",
    ",",
    "+",
    "-",
    "*",
    "/",
    "^",
    "**",
    "<",
    ">=",
    "sin",
    "sum(",
    "where(",
    "norm2(x)",
    " ",
    "\n",
    "x[0]",
    "__import__",
    "'",
    '"',
    "eval(",
    ".",
    ":",
    "lambda",
    "=",
    "import os",
    "ⅹ",
    "\u202e",
    "\x00",
    "9**9",
    "{",
    "}",
    "@",
    "`",
    "\\",
    "1/0",
    "du",
    "π",
)


def survives(text):
    """Parsed or refused in words, within the time; what is parsed is made of known steps only."""
    start = time.perf_counter()
    try:
        steps = parse(text, KNOWN)
    except InputError as error:
        assert str(error)  # noqa: PT017
    else:
        assert {s.kind for s in steps} <= {"number", "name", "index", "apply"}
        assert all(s.value in KNOWN for s in steps if s.kind == "name")
        assert all(s.value in {**FUNCTIONS, **OPERATORS} for s in steps if s.kind == "apply")
    return time.perf_counter() - start


def test_ten_thousand_fuzzed_formulas():
    rng, slowest = random.Random(0), 0.0
    for _ in range(10_000):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 60)))
        slowest = max(slowest, survives(text))
    assert slowest < 0.05


@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(max_size=MAX_LENGTH + 10))
def test_any_text(text):
    survives(text)


def trees(rng, depth):
    """A random formula as text for here and for Python."""
    if depth == 0 or rng.random() < 0.15:
        leaf = rng.choice(["t", "x[0]", "x[2]", "d", f"{rng.uniform(0.1, 3):.3f}"])
        return leaf, leaf
    kind = rng.choice(["+", "-", "*", "sin", "exp", "square", "negative", "sum"])
    a, pa = trees(rng, depth - 1)
    if kind in "+-*":
        b, pb = trees(rng, depth - 1)
        return f"({a} {kind} {b})", f"({pa} {kind} {pb})"
    if kind == "square":
        return f"({a})^2", f"({pa})**2"
    if kind == "negative":
        return f"-({a})", f"-({pa})"
    if kind == "sum":
        return f"sum(x * ({a}))", f"np.sum(x * ({pa}))"
    inside = f"{kind}(tanh({a}))"
    return inside, f"np.{kind}(np.tanh({pa}))"


def test_random_formulas_agree_with_python():
    rng = random.Random(1)
    for _ in range(60):
        text, python = trees(rng, 4)
        wanted = eval(python, {"np": np, "t": 0.7, "x": X, "d": 3.0})
        np.testing.assert_allclose(value(text), wanted, rtol=1e-10, atol=1e-12, err_msg=text)


def test_parentheses_up_to_the_limit():
    inside = MAX_DEPTH - 1
    assert value("(" * inside + "t" + ")" * inside) == pytest.approx(0.7)
