"""Formulas as text, `exp(-norm2(x)/d) * sum(sin(3*x))`: parsed here, checked, evaluated with JAX. Nothing else can be said in them.

A formula knows numbers, the names it is given, + - * / ^ (or **), comparisons, `name[index]` and the functions of `FUNCTIONS`. There is no `eval` and no Python
syntax, and length, depth and exponents are bounded, so that no text can run anything or take long.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from heatnets._core.errors import InputError, short_repr, suggest

LONGEST = 4000  # characters
DEEPEST = 60  # parentheses, calls and signs inside each other
LARGEST_EXPONENT = 100.0
LARGEST_INDEX = 10**7

FUNCTIONS = {  # name: the fewest and the most arguments
    **dict.fromkeys(("sin", "cos", "tan", "arctan", "exp", "log", "sqrt", "abs", "tanh", "sinh", "cosh", "log1p", "expm1"), (1, 1)),
    **dict.fromkeys(("erf", "sigmoid", "softplus", "sum", "mean", "prod", "norm", "norm2", "roll"), (1, 1)),
    "dot": (2, 2),
    "min": (1, 2),
    "max": (1, 2),
    "where": (3, 3),
}  # fmt: skip
CONSTANTS = {"pi": math.pi}


class FormulaError(InputError):
    """What is wrong with a formula, and where."""

    def __init__(self, words: str, text: str, position: int) -> None:
        start = max(0, position - 60)
        shown = re.sub(r"\s", " ", text[start : position + 40])
        super().__init__(f"{words}\n    {shown}\n    {' ' * (position - start)}^")


class Instruction(NamedTuple):
    """One step of a formula in postfix order: takes as many values from the stack and leaves one."""

    kind: str  # "number", "name", "index", "call", "power" or an operator
    value: Any
    takes: int = 0


class Formula:
    """A formula as a function of its arguments: `Formula("t * sum(a * x)", ("t", "x"), {"a": 2.0})(t, x)`.

    >>> import jax.numpy as jnp
    >>> float(Formula("a * norm2(x) - x[1]^2", ("x",), {"a": 2.0})(jnp.array([1.0, 3.0])))
    11.0
    """

    def __init__(
        self, text: Any, arguments: tuple[str, ...], constants: Mapping[str, Any] | None = None
    ) -> None:
        self.text, self.arguments, self.constants = text, arguments, dict(constants or {})
        self.steps = parse(text, (*arguments, *self.constants))

    @property
    def names(self) -> set[str]:
        """The names that occur in it."""
        return {
            step.value if step.kind == "name" else step.value[0]
            for step in self.steps
            if step.kind in ("name", "index")
        }

    def __call__(self, *values: Any) -> Any:
        import jax.numpy as jnp

        known = {**self.constants, **dict(zip(self.arguments, values, strict=True))}
        known = {name: jnp.asarray(value, jnp.result_type(float)) for name, value in known.items()}
        return jnp.asarray(_evaluate(self.steps, known), jnp.result_type(float))

    def __repr__(self) -> str:
        return f"Formula({self.text!r})"


def parse(text: Any, known: tuple[str, ...]) -> tuple[Instruction, ...]:
    """The steps of a formula in the names `known`."""
    if not isinstance(text, str):
        raise InputError(f"a formula is a text in quotes; got {short_repr(text)}.")
    if len(text) > LONGEST:
        raise FormulaError(f"too long: {len(text)} characters, at most {LONGEST}", text[:60], 0)
    if not text.strip():
        raise FormulaError("the formula is empty", text, 0)
    return _Parser(text, known).whole()


_TOKEN = re.compile(
    r"[ \t\r\n]*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)|(?P<name>[A-Za-z_][A-Za-z_0-9]*)|(?P<op>\*\*|<=|>=|[-+*/^()\[\],<>]))"
)
_BINDING = {"<": 1, ">": 1, "<=": 1, ">=": 1, "+": 2, "-": 2, "*": 3, "/": 3, "^": 5}
_SIGN = 4
_SOURCE_ALONE = "u and du are known in `source` alone"
_COMPARISONS = ("<", ">", "<=", ">=")
_LOOKALIKES = {"×": "*", "·": "*", "−": "-", "–": "-", "÷": "/", "π": "pi", "²": "^2", "³": "^3", "½": "0.5", "Σ": "sum(...)", "√": "sqrt(...)"}  # fmt: skip


class _Parser:
    """Precedence climbing; steps come out in the order in which they are to be done.

    A part is known by its value where it is made of numbers alone, else by None.
    """

    def __init__(self, text: str, known: tuple[str, ...]) -> None:
        self.text, self.known, self.depth, self.at = text, known, 0, 0
        self.tokens, self.steps = _tokens(text), list[Instruction]()

    def whole(self) -> tuple[Instruction, ...]:
        self.expression(0)
        kind, value, position = self.tokens[self.at]
        if kind != "end":
            what = (
                "is one too many"
                if value in (")", "]")
                else "is not expected here: an operator is missing before it"
            )
            raise FormulaError(f"{value!r} {what}", self.text, position)
        return tuple(self.steps)

    def expression(self, binding: int) -> float | None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise FormulaError(
                f"too deep: at most {DEEPEST} parentheses and signs inside each other",
                self.text,
                self.tokens[self.at][2],
            )
        left, compared = self.operand(), False
        while True:
            kind, value, position = self.tokens[self.at]
            value = "^" if value == "**" else value
            strength = _BINDING.get(value, 0) if kind == "op" else 0
            if strength <= binding:
                break
            if compared and value in _COMPARISONS:
                raise FormulaError(
                    "comparisons do not chain: write (a < b) * (b < c)", self.text, position
                )
            compared = value in _COMPARISONS
            self.at += 1
            right = self.expression(strength - 1 if value == "^" else strength)  # a^b^c is a^(b^c)
            left = self.operation(value, left, right, position)
        self.depth -= 1
        return left

    def operation(
        self, operator: str, left: float | None, right: float | None, position: int
    ) -> float | None:
        if operator == "^" and right is not None:
            if not abs(right) <= LARGEST_EXPONENT:
                raise FormulaError(
                    f"exponents must be at most {LARGEST_EXPONENT:g} in size", self.text, position
                )
            self.steps.pop()  # the exponent: constants are folded, so that it is one step
            self.steps.append(Instruction("power", int(right) if right.is_integer() else right, 1))
        else:
            self.steps.append(Instruction(operator, None, 2))
        if left is None or right is None:
            return None
        try:
            found = float(_ARITHMETIC[operator](left, right))
        except (ArithmeticError, ValueError, TypeError):
            found = math.nan
        if not math.isfinite(found):
            raise FormulaError("this is no finite number", self.text, position)
        return self.folded(found, 2 if operator != "^" else 1)

    def folded(self, value: float, parts: int) -> float:
        """A constant in place of the operation on constants that was written last."""
        del self.steps[-parts - 1 :]
        self.steps.append(Instruction("number", value))
        return value

    def operand(self) -> float | None:
        kind, value, position = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return self.number(float(value), position)
        if kind == "op" and value in ("+", "-"):
            inside = self.expression(_SIGN)
            if value == "-":
                self.steps.append(Instruction("negative", None, 1))
                return None if inside is None else self.folded(-inside, 1)
            return inside
        if kind == "op" and value == "(":
            inside = self.expression(0)
            self.expect(")")
            return inside
        if kind == "name":
            return self.named(value, position)
        what = "the formula ends here" if kind == "end" else f"{value!r} is not expected here"
        raise FormulaError(f"{what}: a number, a name or '(' must follow", self.text, position)

    def number(self, value: float, position: int) -> float:
        if not math.isfinite(value):
            raise FormulaError("this is no finite number", self.text, position)
        self.steps.append(Instruction("number", value))
        return value

    def named(self, name: str, position: int) -> float | None:
        following = self.tokens[self.at][:2]
        if following == ("op", "("):
            self.call(name, position)
        elif name in CONSTANTS and name not in self.known:
            return self.number(CONSTANTS[name], position)
        elif name not in self.known:
            hint = (
                "it is a function: write its argument in parentheses"
                if name in FUNCTIONS
                else suggest(name, (*self.known, *CONSTANTS, *FUNCTIONS))
            )
            raise FormulaError(
                f"unknown name {name[:40]!r}; {_SOURCE_ALONE if name in ('u', 'du') else hint}",
                self.text,
                position,
            )
        elif following == ("op", "["):
            self.at += 1
            kind, index, where = self.tokens[self.at]
            if kind != "number" or not index.isdigit() or int(index[:9]) > LARGEST_INDEX:
                raise FormulaError("an index is a whole number, 0 for the first", self.text, where)
            self.at += 1
            self.expect("]")
            self.steps.append(Instruction("index", (name, int(index))))
        else:
            self.steps.append(Instruction("name", name))
        return None

    def call(self, name: str, position: int) -> None:
        if name not in FUNCTIONS:
            hint = (
                f"{name[:40]!r} is no function: is an operator missing?"
                if name in self.known
                else f"unknown function {name[:40]!r}; {suggest(name, FUNCTIONS)}"
            )
            raise FormulaError(hint, self.text, position)
        self.at += 1
        count = 0
        while count == 0 or self.tokens[self.at][:2] == ("op", ","):
            self.at += count > 0
            self.expression(0)
            count += 1
        self.expect(")")
        fewest, most = FUNCTIONS[name]
        if not fewest <= count <= most:
            wanted = f"{fewest}" if fewest == most else f"{fewest} or {most}"
            raise FormulaError(
                f"{name} takes {wanted} argument{'' if wanted == '1' else 's'}, not {count}",
                self.text,
                position,
            )
        self.steps.append(Instruction("call", name, count))

    def expect(self, wanted: str) -> None:
        kind, value, position = self.tokens[self.at]
        if (kind, value) != ("op", wanted):
            raise FormulaError(f"{wanted!r} is missing", self.text, position)
        self.at += 1


def _tokens(text: str) -> list[tuple[str, str, int]]:
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            odd = text[at]
            hint = (
                f": write {_LOOKALIKES[odd]}"
                if odd in _LOOKALIKES
                else ""
                if odd.isascii()
                else f" (U+{ord(odd):04X}, which may look like another)"
            )
            raise FormulaError(f"{odd!r} has no meaning in a formula{hint}", text, at)
        kind = str(match.lastgroup)
        found.append((kind, match[kind], match.start(kind)))
        at = match.end()
    return [*found, ("end", "", len(text))]


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "^": lambda a, b: a**b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "negative": lambda a: -a,
}


def _evaluate(steps: tuple[Instruction, ...], names: Mapping[str, Any]) -> Any:
    """The value of a formula: arrays in, an array out."""
    functions, stack = _functions(), list[Any]()
    for kind, value, takes in steps:
        given = [stack.pop() for _ in range(takes)][::-1]
        if kind == "number":
            stack.append(value)
        elif kind == "name":
            stack.append(names[value])
        elif kind == "index":
            stack.append(_component(names[value[0]], *value))
        elif kind == "call":
            stack.append(functions[value](*given))
        elif kind == "power":
            stack.append(given[0] ** value)
        elif kind in _COMPARISONS:
            stack.append(
                1.0 * _ARITHMETIC[kind](*given)
            )  # 1 or 0, so that conditions can be added and multiplied
        else:
            stack.append(_ARITHMETIC[kind](*given))
    return stack[0]


def _component(vector: Any, name: str, index: int) -> Any:
    shape = getattr(vector, "shape", ())
    if not shape:
        raise InputError(f"{name} is one number: write {name}, not {name}[{index}].")
    if index >= shape[0]:
        raise InputError(
            f"{name}[{index}] is past the end: {name} has {shape[0]} components, 0 to {shape[0] - 1}."
        )
    return vector[index]


def _functions() -> dict[str, Callable[..., Any]]:
    import jax
    import jax.numpy as jnp

    own: dict[str, Callable[..., Any]] = {
        "erf": jax.scipy.special.erf,
        "sigmoid": jax.nn.sigmoid,
        "softplus": jax.nn.softplus,
        "norm2": lambda a: jnp.sum(jnp.asarray(a) ** 2),
        "norm": lambda a: jnp.sqrt(jnp.sum(jnp.asarray(a) ** 2)),
        "dot": lambda a, b: jnp.sum(a * b),
        "min": lambda a, *b: jnp.minimum(a, *b) if b else jnp.min(jnp.asarray(a)),
        "max": lambda a, *b: jnp.maximum(a, *b) if b else jnp.max(jnp.asarray(a)),
        "where": lambda condition, a, b: jnp.where(jnp.asarray(condition) != 0, a, b),
        "roll": lambda a: jnp.roll(jnp.asarray(a), 1),
    }
    return {name: own.get(name) or getattr(jnp, name) for name in FUNCTIONS}
