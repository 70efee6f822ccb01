"""Formulas as text, `exp(-norm2(x)/d) * sum(sin(3*x))`: parser and evaluation with JAX.

A formula has numbers, names, + - * / ^ (or **), comparisons, `name[index]` and `FUNCTIONS`. There
is no `eval` and no Python syntax, and length, depth and exponents are bounded, so that no text can
run code or take long.
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

_TRIGONOMETRIC = ("sin", "cos", "tan", "arctan")
_EXPONENTIAL = ("exp", "log", "sqrt", "abs", "tanh", "sinh", "cosh", "log1p", "expm1")
_SIGMOIDAL = ("erf", "sigmoid", "softplus")
_REDUCTIONS = ("sum", "mean", "prod", "norm", "norm2")
FUNCTIONS = {  # name: (fewest arguments, most arguments)
    **dict.fromkeys((*_TRIGONOMETRIC, *_EXPONENTIAL, *_SIGMOIDAL, *_REDUCTIONS), (1, 1)),
    "roll": (1, 1),
    "dot": (2, 2),
    "min": (1, 2),
    "max": (1, 2),
    "where": (3, 3),
}
CONSTANTS = {"pi": math.pi}


class FormulaError(InputError):
    """A syntax error in a formula, with a mark at its position."""

    def __init__(self, message: str, text: str, position: int) -> None:
        start = max(0, position - 60)
        excerpt = re.sub(r"\s", " ", text[start : position + 40])
        super().__init__(f"{message}\n    {excerpt}\n    {' ' * (position - start)}^")


class Instruction(NamedTuple):
    """One step of a formula in postfix order: pops `takes` values from the stack, pushes one."""

    kind: str  # "number", "name", "index", "call", "power" or an operator
    value: Any
    takes: int = 0


class Formula:
    """A formula as a function: `Formula("t * sum(a * x)", ("t", "x"), {"a": 2.0})(t, x)`.

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
        """The names that occur in the formula."""
        return {
            step.value if step.kind == "name" else step.value[0]
            for step in self.steps
            if step.kind in ("name", "index")
        }

    def __call__(self, *values: Any) -> Any:
        import jax.numpy as jnp

        names = {**self.constants, **dict(zip(self.arguments, values, strict=True))}
        names = {name: jnp.asarray(value, jnp.result_type(float)) for name, value in names.items()}
        return jnp.asarray(_evaluate(self.steps, names), jnp.result_type(float))

    def __repr__(self) -> str:
        return f"Formula({self.text!r})"


def parse(text: Any, known: tuple[str, ...]) -> tuple[Instruction, ...]:
    """Parse a formula that may use the names `known`; return its steps in postfix order."""
    if not isinstance(text, str):
        raise InputError(f"a formula is a text in quotes; got {short_repr(text)}.")
    if len(text) > LONGEST:
        raise FormulaError(f"too long: {len(text)} characters, at most {LONGEST}", text[:60], 0)
    if not text.strip():
        raise FormulaError("the formula is empty", text, 0)
    return _Parser(text, known).parse_formula()


_TOKEN = re.compile(
    r"[ \t\r\n]*(?:"
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"
    r"|(?P<op>\*\*|<=|>=|[-+*/^()\[\],<>]))"
)
_PRECEDENCE = {"<": 1, ">": 1, "<=": 1, ">=": 1, "+": 2, "-": 2, "*": 3, "/": 3, "^": 5}
_SIGN_PRECEDENCE = 4
_SOURCE_ALONE = "u and du are known in `source` alone"
_COMPARISONS = ("<", ">", "<=", ">=")
_LOOKALIKES = {
    "×": "*",
    "·": "*",
    "−": "-",
    "–": "-",
    "÷": "/",
    "π": "pi",
    "²": "^2",
    "³": "^3",
    "½": "0.5",
    "Σ": "sum(...)",
    "√": "sqrt(...)",
}


class _Parser:
    """Precedence-climbing parser; emits the steps of a formula in postfix order.

    Parsing methods return the value of a constant subexpression, and None for any other.
    """

    def __init__(self, text: str, known: tuple[str, ...]) -> None:
        self.text, self.known, self.depth, self.index = text, known, 0, 0
        self.tokens, self.steps = _split_tokens(text), list[Instruction]()

    def parse_formula(self) -> tuple[Instruction, ...]:
        """Parse the complete text."""
        self.parse_expression(0)
        kind, value, position = self.tokens[self.index]
        if kind != "end":
            what = (
                "is one too many"
                if value in (")", "]")
                else "is not expected here: an operator is missing before it"
            )
            raise FormulaError(f"{value!r} {what}", self.text, position)
        return tuple(self.steps)

    def parse_expression(self, precedence: int) -> float | None:
        """Parse operators that bind stronger than `precedence`, and their operands."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise FormulaError(
                f"too deep: at most {DEEPEST} parentheses and signs inside each other",
                self.text,
                self.tokens[self.index][2],
            )
        left, compared = self.parse_operand(), False
        while True:
            kind, value, position = self.tokens[self.index]
            value = "^" if value == "**" else value
            strength = _PRECEDENCE.get(value, 0) if kind == "op" else 0
            if strength <= precedence:
                break
            if compared and value in _COMPARISONS:
                raise FormulaError(
                    "comparisons do not chain: write (a < b) * (b < c)", self.text, position
                )
            compared = value in _COMPARISONS
            self.index += 1
            # a^b^c is a^(b^c)
            right = self.parse_expression(strength - 1 if value == "^" else strength)
            left = self.emit_operation(value, left, right, position)
        self.depth -= 1
        return left

    def emit_operation(
        self, operator: str, left: float | None, right: float | None, position: int
    ) -> float | None:
        """Emit a binary operation; return its value if both operands are constants."""
        if operator == "^" and right is not None:
            if not abs(right) <= LARGEST_EXPONENT:
                raise FormulaError(
                    f"exponents must be at most {LARGEST_EXPONENT:g} in size", self.text, position
                )
            self.steps.pop()  # the exponent, one step because constants are folded
            self.steps.append(Instruction("power", int(right) if right.is_integer() else right, 1))
        else:
            self.steps.append(Instruction(operator, None, 2))
        if left is None or right is None:
            return None
        try:
            result = float(_ARITHMETIC[operator](left, right))
        except (ArithmeticError, ValueError, TypeError):
            result = math.nan
        if not math.isfinite(result):
            raise FormulaError("this is no finite number", self.text, position)
        return self.fold(result, 2 if operator != "^" else 1)

    def fold(self, value: float, operands: int) -> float:
        """Replace the last operation and its constant operands by their value."""
        del self.steps[-operands - 1 :]
        self.steps.append(Instruction("number", value))
        return value

    def parse_operand(self) -> float | None:
        """Parse a number, a name, a call, a signed expression or one in parentheses."""
        kind, value, position = self.tokens[self.index]
        self.index += 1
        if kind == "number":
            return self.emit_number(float(value), position)
        if kind == "op" and value in ("+", "-"):
            inside = self.parse_expression(_SIGN_PRECEDENCE)
            if value == "-":
                self.steps.append(Instruction("negative", None, 1))
                return None if inside is None else self.fold(-inside, 1)
            return inside
        if kind == "op" and value == "(":
            inside = self.parse_expression(0)
            self.expect(")")
            return inside
        if kind == "name":
            return self.parse_name(value, position)
        what = "the formula ends here" if kind == "end" else f"{value!r} is not expected here"
        raise FormulaError(f"{what}: a number, a name or '(' must follow", self.text, position)

    def emit_number(self, value: float, position: int) -> float:
        """Emit a finite number."""
        if not math.isfinite(value):
            raise FormulaError("this is no finite number", self.text, position)
        self.steps.append(Instruction("number", value))
        return value

    def parse_name(self, name: str, position: int) -> float | None:
        """Parse the rest of a call, a constant, `name[index]` or a plain name."""
        following = self.tokens[self.index][:2]
        if following == ("op", "("):
            self.parse_call(name, position)
        elif name in CONSTANTS and name not in self.known:
            return self.emit_number(CONSTANTS[name], position)
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
            self.index += 1
            kind, component, where = self.tokens[self.index]
            is_integer = kind == "number" and component.isdigit()
            if not is_integer or int(component[:9]) > LARGEST_INDEX:
                raise FormulaError("an index is a whole number, 0 for the first", self.text, where)
            self.index += 1
            self.expect("]")
            self.steps.append(Instruction("index", (name, int(component))))
        else:
            self.steps.append(Instruction("name", name))
        return None

    def parse_call(self, name: str, position: int) -> None:
        """Parse the arguments of a function in parentheses, and emit the call."""
        if name not in FUNCTIONS:
            hint = (
                f"{name[:40]!r} is no function: is an operator missing?"
                if name in self.known
                else f"unknown function {name[:40]!r}; {suggest(name, FUNCTIONS)}"
            )
            raise FormulaError(hint, self.text, position)
        self.index += 1
        count = 0
        while count == 0 or self.tokens[self.index][:2] == ("op", ","):
            self.index += count > 0  # skip the comma
            self.parse_expression(0)
            count += 1
        self.expect(")")
        fewest, most = FUNCTIONS[name]
        if not fewest <= count <= most:
            allowed = f"{fewest}" if fewest == most else f"{fewest} or {most}"
            raise FormulaError(
                f"{name} takes {allowed} argument{'' if allowed == '1' else 's'}, not {count}",
                self.text,
                position,
            )
        self.steps.append(Instruction("call", name, count))

    def expect(self, operator: str) -> None:
        """Skip the next token, which must be `operator`."""
        kind, value, position = self.tokens[self.index]
        if (kind, value) != ("op", operator):
            raise FormulaError(f"{operator!r} is missing", self.text, position)
        self.index += 1


def _split_tokens(text: str) -> list[tuple[str, str, int]]:
    """Split a formula into tokens (kind, text, position); the last one is of kind "end"."""
    tokens, position, end = [], 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            position += len(text[position:]) - len(text[position:].lstrip())
            character = text[position]
            hint = ""
            if character in _LOOKALIKES:
                hint = f": write {_LOOKALIKES[character]}"
            elif not character.isascii():
                hint = f" (U+{ord(character):04X}, which may look like another)"
            raise FormulaError(f"{character!r} has no meaning in a formula{hint}", text, position)
        kind = str(match.lastgroup)
        tokens.append((kind, match[kind], match.start(kind)))
        position = match.end()
    return [*tokens, ("end", "", len(text))]


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
    """Evaluate the steps of a formula on a stack; `names` are the values of its names."""
    functions, stack = _jax_functions(), list[Any]()
    for kind, value, takes in steps:
        operands = [stack.pop() for _ in range(takes)][::-1]
        if kind == "number":
            stack.append(value)
        elif kind == "name":
            stack.append(names[value])
        elif kind == "index":
            stack.append(_component(names[value[0]], *value))
        elif kind == "call":
            stack.append(functions[value](*operands))
        elif kind == "power":
            stack.append(operands[0] ** value)
        elif kind in _COMPARISONS:
            # 1 or 0, so that conditions can be added and multiplied.
            stack.append(1.0 * _ARITHMETIC[kind](*operands))
        else:
            stack.append(_ARITHMETIC[kind](*operands))
    return stack[0]


def _component(vector: Any, name: str, index: int) -> Any:
    """vector[index], with a check of the index."""
    shape = getattr(vector, "shape", ())
    if not shape:
        raise InputError(f"{name} is one number: write {name}, not {name}[{index}].")
    if index >= shape[0]:
        raise InputError(
            f"{name}[{index}] is past the end: {name} has {shape[0]} components, "
            f"0 to {shape[0] - 1}."
        )
    return vector[index]


def _jax_functions() -> dict[str, Callable[..., Any]]:
    """The functions of formulas in JAX; those not listed here are functions of jax.numpy."""
    import jax
    import jax.numpy as jnp

    special: dict[str, Callable[..., Any]] = {
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
    return {name: special.get(name) or getattr(jnp, name) for name in FUNCTIONS}
