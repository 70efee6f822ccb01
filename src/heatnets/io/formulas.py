"""Formulas as text, `exp(-norm2(x)/d) * sum(sin(3*x))`: parser and evaluation with JAX.

A formula has numbers, names, + - * / ^ (or **), comparisons, `name[index]` and `FUNCTIONS`. There
is no `eval` and no Python syntax, and length, depth and exponents are bounded, so that no text can
run code or take long.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from heatnets._core.errors import InputError, short_repr, suggest

MAX_LENGTH = 4000  # characters
MAX_DEPTH = 60  # parentheses, calls and signs inside each other
MAX_EXPONENT = 100.0
MAX_INDEX = 10**7

_OF_ONE_ARGUMENT = (
    "sin cos tan arctan exp log sqrt abs tanh sinh cosh log1p expm1 erf sigmoid softplus "
    "sum mean prod norm norm2 roll"
)
FUNCTIONS = {  # name: (fewest arguments, most arguments)
    **dict.fromkeys(_OF_ONE_ARGUMENT.split(), (1, 1)),
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

    kind: str  # "number", "name", "index" (of a vector) or "apply" (a function or an operator)
    value: Any
    takes: int = 0


@jax.tree_util.register_pytree_node_class
class Formula:
    """A formula as a function: `Formula("t * sum(a * x)", ("t", "x"), {"a": 2.0})(t, x)`.

    It is a pytree whose leaves are the constants that it uses, so that one compiled program serves
    all their values.

    >>> import jax.numpy as jnp
    >>> float(Formula("a * norm2(x) - x[1]^2", ("x",), {"a": 2.0})(jnp.array([1.0, 3.0])))
    11.0
    """

    def __init__(
        self, text: Any, arguments: tuple[str, ...], constants: Mapping[str, Any] | None = None
    ) -> None:
        self.text, self.arguments, self.constants = text, arguments, dict(constants or {})
        self.steps = parse(text, (*arguments, *self.constants))

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """The constants that occur in the formula; its text, arguments, steps and their names."""
        used = tuple(sorted(self.names & set(self.constants)))
        leaves = tuple(_as_array(self.constants[name]) for name in used)
        return leaves, (self.text, self.arguments, self.steps, used)

    @classmethod
    def tree_unflatten(cls, static: Any, leaves: tuple[Any, ...]) -> Formula:
        """The formula with other values of its constants."""
        formula = object.__new__(cls)
        formula.text, formula.arguments, formula.steps, used = static
        formula.constants = dict(zip(used, leaves, strict=True))
        return formula

    @property
    def names(self) -> set[str]:
        """The names that occur in the formula."""
        return {step.value for step in self.steps if step.kind == "name"}

    def __call__(self, *values: Any) -> Any:
        names = {**self.constants, **dict(zip(self.arguments, values, strict=True))}
        names = {name: jnp.asarray(value, jnp.result_type(float)) for name, value in names.items()}
        return jnp.asarray(_evaluate(self.steps, names), jnp.result_type(float))

    def __repr__(self) -> str:
        return f"Formula({self.text!r})"


def _as_array(constant: Any) -> Any:
    """Numbers as arrays: JAX takes a number as a part of the program."""
    return np.asarray(constant, np.float64) if isinstance(constant, int | float) else constant


def parse(text: Any, known: tuple[str, ...]) -> tuple[Instruction, ...]:
    """Parse a formula that may use the names `known`; return its steps in postfix order."""
    if not isinstance(text, str):
        raise InputError(f"a formula is a text in quotes; got {short_repr(text)}.")
    if len(text) > MAX_LENGTH:
        raise FormulaError(f"too long: {len(text)} characters, at most {MAX_LENGTH}", text[:60], 0)
    if not text.strip():
        raise FormulaError("the formula is empty", text, 0)
    return _Parser(text, known).parse_formula()


def _as_number(compare: Callable[..., Any]) -> Callable[..., Any]:
    """A comparison whose result is 1 or 0, so that conditions can be added and multiplied."""
    return lambda a, b: 1.0 * compare(a, b)


_COMPARISON, _SIGN, _POWER = 1, 4, 5  # precedences
_BINARY: dict[str, tuple[int, Callable[..., Any]]] = {  # operator: precedence, function
    "<": (_COMPARISON, _as_number(operator.lt)),
    ">": (_COMPARISON, _as_number(operator.gt)),
    "<=": (_COMPARISON, _as_number(operator.le)),
    ">=": (_COMPARISON, _as_number(operator.ge)),
    "+": (2, operator.add),
    "-": (2, operator.sub),
    "*": (3, operator.mul),
    "/": (3, operator.truediv),
    "^": (_POWER, operator.pow),
    "**": (_POWER, operator.pow),
}
OPERATORS = {"negative": operator.neg, **{name: f for name, (_, f) in _BINARY.items()}}
_TOKEN = re.compile(
    r"[ \t\r\n]*(?:"
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"
    r"|(?P<op>\*\*|<=|>=|[-+*/^()\[\],<>])"
    r"|(?P<other>.))",
    re.DOTALL,
)
_LOOKALIKES = {
    **dict.fromkeys("×·", "*"),
    **dict.fromkeys("−–", "-"),
    "÷": "/",
    "π": "pi",
    "²": "^2",
    "³": "^3",
    "½": "0.5",
    "Σ": "sum(...)",
    "√": "sqrt(...)",
    "|": "norm2(x) for |x|^2, norm(x) for |x|, abs(a) for the size of a number",
    "=": "<= or >=; a formula is what stands right of an equals sign",
    "&": "(a < b) * (b < c)",
    "∇": "du, the gradient of u, in `source`",
}
_OTHER_NAMES = {
    "ln": "log",
    "maximum": "max",
    "minimum": "min",
    "fabs": "abs",
    "power": "a^b",
    "square": "a^2",
    "atan": "arctan",
    "arctan2": "arctan",
    "e": "exp(1)",
    **dict.fromkeys(("grad", "gradient", "grad_u", "u_x", "ux", "dudx"), "du"),
    **dict.fromkeys(("dim", "n", "size", "len"), "d, the dimension"),
    **dict.fromkeys(("x_i", "xi"), "x, which is the whole vector; x[0] is its first entry"),
    "if": "where(condition, a, b)",
}


def _hint_at_dot(text: str, position: int) -> str:
    """The right spelling where Python's modules and methods are used: `np.exp`, `x.sum()`."""
    before = re.search(r"[A-Za-z_]\w*$", text[:position])
    after = re.match(r"[A-Za-z_]\w*", text[position + 1 :])
    if before is None or after is None:
        return ""
    name = _OTHER_NAMES.get(after[0], after[0])
    if before[0] in ("np", "jnp", "numpy", "math", "jax"):
        return f": write {name}, without {before[0]}"
    return f": write {name}({before[0]})" if name in FUNCTIONS else ""


def _hint_at_name(name: str, known: Iterable[str]) -> str:
    """The right spelling of an unknown name, or the most similar known one."""
    coordinate = re.fullmatch(r"(x|du)_?([0-9]{1,7})", name)
    if coordinate:
        vector, number = coordinate[1], int(coordinate[2])
        return f"write {vector}[{max(number - 1, 0)}]: coordinates are counted from 0"
    if name in _OTHER_NAMES:
        return f"write {_OTHER_NAMES[name]}"
    return suggest(name, known)


class _Token(NamedTuple):
    kind: str  # "number", "name", "op" or "end"
    text: str  # empty at the end
    position: int


def _split_tokens(text: str) -> list[_Token]:
    """Split a formula into tokens; the last one is of kind "end"."""
    tokens = []
    for match in _TOKEN.finditer(text.rstrip()):
        kind = str(match.lastgroup)
        token = _Token(kind, match[kind], match.start(kind))
        if kind == "other":
            hint = ""
            if token.text in _LOOKALIKES:
                hint = f": write {_LOOKALIKES[token.text]}"
            elif token.text == ".":
                hint = _hint_at_dot(text, token.position)
            elif not token.text.isascii():
                hint = f" (U+{ord(token.text):04X}, which may look like another)"
            message = f"{token.text!r} has no meaning in a formula{hint}"
            raise FormulaError(message, text, token.position)
        tokens.append(token)
    return [*tokens, _Token("end", "", len(text))]


class _Parser:
    """Precedence-climbing parser; appends the steps of a formula in postfix order."""

    def __init__(self, text: str, known: tuple[str, ...]) -> None:
        self.text, self.known, self.depth, self.index = text, known, 0, 0
        self.tokens, self.steps = _split_tokens(text), list[Instruction]()

    @property
    def next(self) -> _Token:
        """The next token."""
        return self.tokens[self.index]

    def error(self, message: str, token: _Token | None = None) -> FormulaError:
        """An error at a token, by default the next one."""
        return FormulaError(message, self.text, (token or self.next).position)

    def parse_formula(self) -> tuple[Instruction, ...]:
        """Parse the complete text."""
        self.parse_expression(0)
        if self.next.text in (")", "]"):
            raise self.error(f"{self.next.text!r} is one too many")
        if self.next.kind != "end":
            raise self.error(
                f"{self.next.text!r} is not expected here: an operator is missing before it"
            )
        return tuple(self.steps)

    def parse_expression(self, precedence: int) -> None:
        """Parse an operand, and operators that bind stronger than `precedence` with theirs."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(
                f"too deep: at most {MAX_DEPTH} parentheses and signs inside each other"
            )
        self.parse_operand()
        compared = False
        while True:
            token = self.next
            strength = _BINARY[token.text][0] if token.text in _BINARY else 0
            if strength <= precedence:
                break
            if compared and strength == _COMPARISON:
                raise self.error("comparisons do not chain: write (a < b) * (b < c)")
            compared = strength == _COMPARISON
            self.index += 1
            # a^b^c is a^(b^c)
            self.parse_expression(strength - 1 if strength == _POWER else strength)
            if strength == _POWER:
                self.check_exponent(token)
            self.apply_operator(token.text, 2, token)
        self.depth -= 1

    def check_exponent(self, token: _Token) -> None:
        """Bound a constant exponent; integers become ints, for which powers are products."""
        kind, value, _ = self.steps[-1]
        if kind != "number":
            return
        if abs(value) > MAX_EXPONENT:
            raise self.error(f"exponents must be at most {MAX_EXPONENT:g} in size", token)
        if value.is_integer():
            self.steps[-1] = Instruction("number", int(value))

    def apply_operator(self, name: str, operands: int, token: _Token) -> None:
        """Append an operation, or its value where all operands are constants.

        A constant operand is always one step, because operations on constants are not kept.
        """
        last = self.steps[-operands:]
        if any(step.kind != "number" for step in last):
            self.steps.append(Instruction("apply", name, operands))
            return
        try:
            value = float(OPERATORS[name](*(step.value for step in last)))
        except (ArithmeticError, ValueError, TypeError):
            value = math.nan
        del self.steps[-operands:]
        self.append_number(value, token)

    def append_number(self, value: float, token: _Token) -> None:
        """Append a number, which must be finite."""
        if not math.isfinite(value):
            raise self.error("this is no finite number", token)
        self.steps.append(Instruction("number", value))

    def parse_operand(self) -> None:
        """Parse a number, a name, a call, a signed expression or one in parentheses."""
        token = self.next
        kind, text, _ = token
        if kind == "end" or (kind == "op" and text not in "+-("):
            what = "the formula ends here" if kind == "end" else f"{text!r} is not expected here"
            raise self.error(f"{what}: a number, a name or '(' must follow")
        self.index += 1
        if kind == "number":
            self.append_number(float(text), token)
        elif kind == "name":
            self.parse_name(token)
        elif text == "(":
            self.parse_expression(0)
            self.expect(")")
        else:
            self.parse_expression(_SIGN)
            if text == "-":
                self.apply_operator("negative", 1, token)

    def parse_name(self, token: _Token) -> None:
        """Parse the rest of a call, a constant, `name[index]` or a plain name."""
        name = token.text
        if self.next.text == "(":
            self.parse_call(token)
        elif name in self.known:
            self.steps.append(Instruction("name", name))
            if self.next.text == "[":
                self.index += 1
                index = self.next.text
                if not index.isdigit() or int(index) > MAX_INDEX:
                    raise self.error("an index is a whole number, 0 for the first")
                self.index += 1
                self.expect("]")
                self.steps.append(Instruction("index", (name, int(index)), 1))
        elif name in CONSTANTS:
            self.append_number(CONSTANTS[name], token)
        else:
            if name in ("u", "du"):
                hint = "u and du are known in `source` alone"
            elif name in FUNCTIONS:
                hint = "it is a function: write its argument in parentheses"
            else:
                hint = _hint_at_name(name, (*self.known, *CONSTANTS, *FUNCTIONS))
            raise self.error(f"unknown name {name[:40]!r}; {hint}", token)

    def parse_call(self, token: _Token) -> None:
        """Parse the arguments of a function in parentheses, and append the call."""
        name, count = token.text, 0
        if name not in FUNCTIONS:
            message = f"unknown function {name[:40]!r}; {_hint_at_name(name, FUNCTIONS)}"
            if name in self.known:
                message = f"{name[:40]!r} is no function: is an operator missing?"
            raise self.error(message, token)
        while count == 0 or self.next.text == ",":
            self.index += 1  # the parenthesis or a comma
            self.parse_expression(0)
            count += 1
        self.expect(")")
        fewest, most = FUNCTIONS[name]
        if not fewest <= count <= most:
            allowed = f"{fewest}" if fewest == most else f"{fewest} or {most}"
            plural = "" if allowed == "1" else "s"
            raise self.error(f"{name} takes {allowed} argument{plural}, not {count}", token)
        self.steps.append(Instruction("apply", name, count))

    def expect(self, operator: str) -> None:
        """Skip the next token, which must be `operator`."""
        if self.next.text != operator:
            raise self.error(f"{operator!r} is missing")
        self.index += 1


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
            stack.append(_component(*operands, *value))
        else:
            stack.append(functions[value](*operands))
    return stack[0]


def _component(vector: Any, name: str, index: int) -> Any:
    """vector[index], with a check of the index."""
    if not vector.shape:
        raise InputError(f"{name} is one number: write {name}, not {name}[{index}].")
    if index >= (size := vector.shape[0]):
        raise InputError(
            f"{name}[{index}] is past the end: {name} has {size} components, 0 to {size - 1}."
        )
    return vector[index]


def _jax_functions() -> dict[str, Callable[..., Any]]:
    """Operators and functions in JAX; those not listed here are functions of jax.numpy."""
    special: dict[str, Callable[..., Any]] = {
        **OPERATORS,
        "erf": jax.scipy.special.erf,
        "sigmoid": jax.nn.sigmoid,
        "softplus": jax.nn.softplus,
        "norm2": lambda a: jnp.sum(a**2),
        "norm": lambda a: jnp.sqrt(jnp.sum(a**2)),
        "dot": lambda a, b: jnp.sum(a * b),
        "min": lambda a, *b: jnp.minimum(a, *b) if b else jnp.min(a),
        "max": lambda a, *b: jnp.maximum(a, *b) if b else jnp.max(a),
        "where": lambda condition, a, b: jnp.where(condition != 0, a, b),
        "roll": lambda a: jnp.roll(a, 1),
    }
    return special | {name: getattr(jnp, name) for name in FUNCTIONS if name not in special}
