"""`Function`: a function given by the user; and its checks by tracing and by sampling."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from heatnets._core.errors import InputError, NotFiniteError, WarningLog, short_repr
from heatnets._core.precision import LOW, is_low_precision, low_precision_constants

_INDEX_CHECK = 1000  # up to this dimension functions are also called once outside a trace


class Function(eqx.Module):
    """A scalar function given by the user, with its Laplacian if that is known.

    Args:
        function: `f(x)` or `f(t, x)`, written with `jax.numpy` for one point x of shape (dim,). It
            returns a scalar.
        laplacian: the Laplacian of f in x in closed form, a function of the same arguments. It is
            faster than all automatic methods.
        arguments: names of the arguments, for example `"t x"`, if the signature of `function` does
            not show them.

    >>> import jax.numpy as jnp, heatnets as hn
    >>> square = hn.Function(lambda x: x @ x, laplacian=lambda x: 2.0 * x.size)
    >>> float(square(jnp.ones(3)))
    3.0
    """

    function: Callable[..., Any]
    laplacian: Callable[..., Any] | None = None
    arguments: str | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        for name in ("function", "laplacian"):
            value = getattr(self, name)
            if not callable(value) and not (name == "laplacian" and value is None):
                raise InputError(
                    f"`{name}` must be a function; got {short_repr(value)}. Write hn.Function(f, "
                    "laplacian=g)."
                )

    def __call__(self, *args: Any) -> Any:
        """The value, in float64 also where JAX is not; then it is a NumPy array.

        Inside a trace (`jax.jit`, `jax.vmap`) of a program in float32 it is float32.
        """
        if jax.config.jax_enable_x64 or any(isinstance(a, jax.core.Tracer) for a in args):  # type: ignore[attr-defined]
            return jnp.asarray(self.function(*args), jnp.result_type(float))
        with jax.enable_x64(True):
            return np.asarray(self.function(*(jnp.asarray(a, float) for a in args)), float)

    def arity(self) -> list[str] | None:
        """Names of the required positional arguments; None if the signature cannot be read."""
        if self.arguments is not None:
            return self.arguments.replace(",", " ").split()
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError):
            return None
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return [
            p.name for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty
        ]


def check_function(
    name: str,
    value: Any,
    arguments: Sequence[str],
    dim: int,
    notes: WarningLog,
    shapes: tuple[tuple[int, ...], ...] = ((),),
) -> Function:
    """Check that `value` is a function that JAX can trace, and wrap it as a `Function`.

    Raises `InputError` otherwise; low precision inside the function is a warning.

    Args:
        name: the argument of `Problem`, for messages.
        value: the user's function.
        arguments: names of its arguments, from "t", "x", "u", "du".
        dim: the number of coordinates of x and du.
        notes: the log that takes warnings.
        shapes: the permitted shapes of the result; a scalar by default.
    """
    if not callable(value):
        raise InputError(
            f"`{name}` must be a function of ({', '.join(arguments)}); got {short_repr(value)}. "
            f"{_example(arguments)}"
        )
    function = value if isinstance(value, Function) else Function(value)
    _check_arity(name, function, arguments)
    args = tuple(
        jax.ShapeDtypeStruct((dim,) if a in ("x", "du") else (), jnp.float64) for a in arguments
    )
    _check_trace(name, function.function, args, notes, shapes)
    if function.laplacian is not None:
        _check_trace(f"{name}'s laplacian", function.laplacian, args, notes, shapes)
    return function


def _example(arguments: Sequence[str]) -> str:
    """An example of a function of these arguments, for messages."""
    return f"For example: lambda {', '.join(arguments)}: jnp.sum(jnp.sin(x))."


def _check_arity(name: str, function: Function, arguments: Sequence[str]) -> None:
    """Raise `InputError` if a function does not have the required number of arguments."""
    parameters = function.arity()
    if parameters == ["x", "t"] and len(arguments) == 2:
        raise InputError(
            f"`{name}` must be a function of (t, x); its parameters are (x, t). Time comes first: "
            "lambda t, x: ..."
        )
    if parameters is None or len(parameters) == len(arguments):
        return
    raise InputError(
        f"`{name}` must take {len(arguments)} argument(s), ({', '.join(arguments)}); it takes "
        f"{len(parameters)} required one(s), ({', '.join(parameters)}). Give further parameters "
        "default values, or close over them."
    )


def _check_trace(
    name: str,
    f: Callable[..., Any],
    args: tuple[jax.ShapeDtypeStruct, ...],
    notes: WarningLog,
    shapes: tuple[tuple[int, ...], ...],
) -> None:
    """Raise `InputError` if JAX cannot trace f to one real array of a permitted shape."""
    dim = next(a.shape[0] for a in args if a.shape)
    try:
        closed, out = jax.make_jaxpr(f, return_shape=True)(*args)
    except InputError as error:
        raise InputError(f"`{name}`: {error}") from error
    except jax.errors.TracerBoolConversionError as error:
        raise InputError(
            f"`{name}` must be traceable by JAX; it branches in Python on a value that depends on "
            f"its arguments ({_where(error)}). Use jnp.where(condition, a, b) or jax.lax.cond."
        ) from error
    except jax.errors.TracerArrayConversionError as error:
        raise InputError(
            f"`{name}` must be traceable by JAX; it hands its arguments to NumPy "
            f"({_where(error)}). Use jax.numpy in place of numpy: jnp.sin, jnp.sum, ..."
        ) from error
    except (jax.errors.JAXTypeError, TypeError, ValueError, IndexError) as error:
        is_concretization = isinstance(error, jax.errors.ConcretizationTypeError)
        if is_concretization or "converted to Python scalar" in str(error):
            raise InputError(
                f"`{name}` must be traceable by JAX; it needs a Python number where an array is "
                f"being traced ({_where(error)}). Use jnp.sin in place of math.sin, and no "
                "float(...) or int(...) of an argument."
            ) from error
        raise InputError(
            f"`{name}` must be computable for x of shape ({dim},); it raised "
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''} "
            f"({_where(error)}). x is one point, an array of shape (dim,)."
        ) from error
    except Exception as error:
        raise InputError(
            f"`{name}` must be computable for x of shape ({dim},); it raised "
            f"{type(error).__name__}: {error}."
        ) from error
    leaves = jax.tree_util.tree_leaves(out)
    if len(leaves) != 1 and shapes != ((),):
        raise InputError(
            f"`{name}` must return one array of shape {' or '.join(map(str, shapes))}; it returned "
            f"{len(leaves)}. Join them: jnp.stack([...])."
        )
    if len(leaves) != 1 or not hasattr(leaves[0], "shape"):
        raise InputError(
            f"`{name}` must return one scalar; for x of shape ({dim},) it returned {len(leaves)} "
            "arrays. Return a single number."
        )
    shape, dtype = leaves[0].shape, leaves[0].dtype
    if shape not in shapes and shapes != ((),):
        raise InputError(
            f"`{name}` must return an array of shape {' or '.join(map(str, shapes))}; for x of "
            f"shape ({dim},) it returned shape {shape}."
        )
    if shape not in shapes:
        remedy = "Sum over the coordinates" + (", or take x[0]?" if dim == 1 else "?")
        raise InputError(
            f"`{name}` must return a scalar; for x of shape ({dim},) it returned shape {shape}. "
            f"{remedy}"
        )
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise InputError(
            f"`{name}` must return a real number; it returned {dtype}. Take jnp.real(...), or "
            "solve real and imaginary part apart."
        )
    if not jnp.issubdtype(dtype, jnp.floating):
        raise InputError(
            f"`{name}` must return a real float; it returned {dtype}. Write 1.0 for 1, or multiply "
            "by 1.0."
        )
    _check_indices(name, f, args, closed)
    low = low_precision_constants(f, closed)
    if low:
        notes.warn(
            f"`{name}` captures constants of low precision: {', '.join(low)}. They are {LOW}"
        )
    elif is_low_precision(dtype):
        notes.warn(
            f"`{name}` returns {dtype}: something inside it casts. The answer cannot be better "
            "than that."
        )


def _check_indices(
    name: str, f: Callable[..., Any], args: tuple[jax.ShapeDtypeStruct, ...], closed: Any
) -> None:
    """Raise `InputError` for an index out of bounds.

    In three dimensions JAX silently reads x[2] for x[5]; NumPy raises an error, so f is called once
    with NumPy arrays if it may use indices.
    """
    may_index = any(
        e.primitive.name in ("gather", "dynamic_slice", "slice", "squeeze", "pjit", "jit")
        for e in closed.jaxpr.eqns
    )
    if not may_index or max(a.shape[0] for a in args if a.shape) > _INDEX_CHECK:
        return
    try:
        f(*(np.full(a.shape, 0.5) for a in args))
    except IndexError as error:
        raise InputError(
            f"`{name}` must stay inside x, which has shape {max(a.shape for a in args)}; it raised "
            f"IndexError: {error} ({_where(error)}). Is `dim` right?"
        ) from error
    except Exception:
        return  # a function may use what only traced arguments have: no mistake of the user


_LIBRARY_PATHS = ("/heatnets/pde/", "/heatnets/_core/", "/jax/", "/numpy/", "/equinox/")


def _where(error: BaseException) -> str:
    """The user's line in which a trace failed: the last one outside JAX and heatnets."""
    place, frame = "line unknown", error.__traceback__
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        if not any(part in file.replace("\\", "/") for part in _LIBRARY_PATHS):
            place = f"{file.rsplit('/', 1)[-1]}:{frame.tb_lineno}"
        frame = frame.tb_next
    return place


@eqx.filter_jit
def _map(function: Function, columns: tuple[Array, ...]) -> Array:
    """The values of a function at n points, compiled; each column has n entries or rows."""
    return jax.lax.map(lambda args: function(*args), columns)


def evaluate_at(function: Function, *columns: np.ndarray) -> np.ndarray:
    """The values (n,) of a function at n points, one after the other.

    Each column holds one argument: times (n,), points (n, dim), ...
    """
    return np.asarray(_map(function, tuple(jnp.asarray(c) for c in columns)))


def probe(name: str, function: Function, columns: tuple[np.ndarray, ...], where: str) -> np.ndarray:
    """Values (n,) at probe points; the last column holds the points (n, dim).

    Raises `NotFiniteError` if one is not finite; `where` describes the points in the message.
    """
    values = evaluate_at(function, *columns)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise NotFiniteError(
            f"`{name}` must be finite {where}; it was {values[bad[0]]} at {bad.size} of "
            f"{values.size} probe points, for example {place([c[bad[0]] for c in columns])}. The "
            "equation lives on all of R^d and its paths leave the region: make the function finite "
            "there, or choose a smaller region or horizon."
        )
    return values


_HALVINGS = 40  # bisections of a segment: a change that is still there then is a jump


def jumps(
    value: Callable[..., np.ndarray], start: tuple[np.ndarray, ...], end: tuple[np.ndarray, ...]
) -> bool:
    """Whether a function jumps on one of n segments.

    Each segment is bisected 40 times, towards the half with the larger change. The function jumps
    if the change is then still more than 1e-3 of the first change (plus rounding).

    Args:
        value: the function; its values have shape (n, k).
        start: first ends of the segments, one array with n entries or rows per argument.
        end: second ends of the segments.
    """
    low, high = value(*start), value(*end)
    first_change = np.max(np.abs(high - low), axis=1)
    for _ in range(_HALVINGS):
        centre = tuple(0.5 * (a + b) for a, b in zip(start, end, strict=True))
        middle = value(*centre)
        left = np.max(np.abs(middle - low), axis=1) >= np.max(np.abs(high - middle), axis=1)

        def where(a: np.ndarray, b: np.ndarray, left: np.ndarray = left) -> np.ndarray:
            return np.where(left.reshape(-1, *[1] * (a.ndim - 1)), a, b)

        start, end = tuple(map(where, start, centre)), tuple(map(where, centre, end))
        low, high = where(low, middle), where(middle, high)
    size = np.max(np.abs(low), axis=1) + np.max(np.abs(high), axis=1)
    return bool(np.any(np.max(np.abs(high - low), axis=1) > 1e-3 * first_change + 1e-9 * size))


def place(columns: Sequence[Any]) -> str:
    """Text for a point (x,) or (t, x), with at most four coordinates."""
    *times, x = columns
    shown = ", ".join(f"{v:.4g}" for v in x[:4]) + (", ..." if len(x) > 4 else "")
    return "".join(f"t = {t:.4g}, " for t in times) + f"x = [{shown}]"


# Parameters of a primitive that hold the jaxpr it calls, and primitives that only call a jaxpr.
_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_CALLED = (
    "pjit",
    "jit",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "remat",
    "checkpoint",
)


def constant(function: Callable[..., Any], *args: Any) -> np.ndarray | None:
    """The value of a function that does not depend on its unknown arguments, from its jaxpr.

    Returns None if this cannot be shown. An argument is a `jax.ShapeDtypeStruct` if it is unknown,
    or a known value.
    """
    structs = [
        a if isinstance(a, jax.ShapeDtypeStruct) else jax.ShapeDtypeStruct(np.shape(a), jnp.float64)
        for a in args
    ]
    closed = jax.make_jaxpr(function)(*structs)
    known = [None if isinstance(a, jax.ShapeDtypeStruct) else np.asarray(a, float) for a in args]
    (value,) = _evaluate_known(closed.jaxpr, list(closed.consts), known)
    return None if value is None else np.asarray(value)


def _evaluate_known(jaxpr: Any, constants: list[Any], args: list[Any]) -> list[Any]:
    """The outputs of a jaxpr; None for an unknown argument, and for an output that depends on one.

    Zero times an unknown value is zero.
    """
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *args], strict=True))

    def read(v: Any) -> Any:
        return v.val if hasattr(v, "val") else values.get(v)

    for e in jaxpr.eqns:
        name, operands = e.primitive.name, [read(v) for v in e.invars]
        inner = None
        if name in _CALLED:
            inner = next((e.params[p] for p in _CALLS if p in e.params), None)
        if inner is not None:
            inner_jaxpr, inner_constants = (
                getattr(inner, "jaxpr", inner),
                getattr(inner, "consts", ()),
            )
            outputs = _evaluate_known(inner_jaxpr, list(inner_constants), operands)
        elif all(v is not None for v in operands):
            inputs = {v: read(v) for v in e.invars if not hasattr(v, "val")}
            single = jaxpr.replace(constvars=[], invars=list(inputs), outvars=e.outvars, eqns=[e])
            outputs = jax.core.eval_jaxpr(single, [], *inputs.values())
        elif _has_zero_factor(name, operands) or _selects_equals(name, operands):
            zeros = jnp.zeros(e.outvars[0].aval.shape, e.outvars[0].aval.dtype)
            outputs = [zeros if _has_zero_factor(name, operands) else zeros + operands[1]]
        else:
            outputs = [None] * len(e.outvars)
        values.update(zip(e.outvars, outputs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _has_zero_factor(name: str, operands: list[Any]) -> bool:
    """Whether a primitive is a product (or quotient) that is zero because a factor is zero."""
    factors = operands if name in ("mul", "dot_general") else operands[:1] if name == "div" else []
    return any(v is not None and not np.any(v) for v in factors)


def _selects_equals(name: str, operands: list[Any]) -> bool:
    """Whether a primitive selects between known operands that are equal."""
    cases = operands[1:]
    return name == "select_n" and all(
        v is not None and np.array_equal(v, operands[1]) for v in cases
    )
