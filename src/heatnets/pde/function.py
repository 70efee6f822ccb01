"""`Function`: a function given by the user; and its checks by tracing and by sampling."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import subjaxprs
from jaxtyping import Array

from heatnets._core.compilation import compiled, is_small_call
from heatnets._core.errors import InputError, NotFiniteError, WarningLog, short_repr
from heatnets._core.precision import LOW, constants, is_low_precision, low_precision_constants

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
    # Set where a problem checks the function: the shapes of its arguments, and a digest of its
    # program. JAX keeps programs by their static data. With the digest a function that reads a
    # global or an attribute gets a new program when that has another value.
    _shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True, default=())
    _version: str = eqx.field(static=True, default="")

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

    def with_version(self, shapes: tuple[tuple[int, ...], ...]) -> Function:
        """The same function of arguments of these shapes, with a digest of its program."""
        parts = [self.function] if self.laplacian is None else [self.function, self.laplacian]
        version = hashlib.sha256(b"".join(_digest(f, shapes) for f in parts)).hexdigest()
        return replace(self, _shapes=shapes, _version=version)

    def has_changed(self) -> bool:
        """Whether the function reads values that have changed since a problem checked it."""
        return bool(self._version) and self.with_version(self._shapes)._version != self._version

    def arity(self) -> list[str] | None:
        """Names of the required positional arguments; None if the signature cannot be read."""
        if self.arguments is not None:
            return self.arguments.replace(",", " ").split()
        parameters = self._positional()
        if parameters is None:
            return None
        return [p.name for p in parameters if p.default is inspect.Parameter.empty]

    def optional_arguments(self) -> list[str]:
        """Names of the positional arguments that have a default value; none where
        `arguments` names those that are used.
        """
        parameters = self._positional() if self.arguments is None else None
        return [p.name for p in parameters or () if p.default is not inspect.Parameter.empty]

    def _positional(self) -> list[inspect.Parameter] | None:
        """The positional parameters; None if the signature cannot be read."""
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError):
            return None
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return [p for p in parameters if p.kind in kinds]


def check_function(
    name: str,
    value: Any,
    arguments: Sequence[str],
    dim: int,
    log: WarningLog,
    shapes: tuple[tuple[int, ...], ...] = ((),),
) -> Function:
    """Check that `value` is a function that JAX can trace, and wrap it as a `Function`.

    Raises `InputError` otherwise; low precision inside the function is a warning.

    Args:
        name: the argument of `Problem`, for messages.
        value: the user's function.
        arguments: names of its arguments, from "t", "x", "u", "du", "h", "noise".
        dim: the number of coordinates of x, du and noise.
        log: the log that takes warnings.
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
        jax.ShapeDtypeStruct((dim,) if a in ("x", "du", "noise") else (), jnp.float64)
        for a in arguments
    )
    _check_trace(name, function.function, args, log, shapes)
    value, laplacian = _trace_parameters(_as_hashable(function.function), args), function.laplacian
    if laplacian is not None:
        _check_trace(f"{name}'s laplacian", laplacian, args, log, shapes)
        laplacian = _trace_parameters(_as_hashable(laplacian), args)
    checked = replace(function, function=value, laplacian=laplacian)
    return checked.with_version(tuple(a.shape for a in args))


def _as_hashable(f: Any) -> Any:
    """A function that JAX can use as a key: a callable object without a hash goes by identity."""
    if isinstance(f, Hashable) or not jax.tree_util.all_leaves([f]):
        return f

    @wraps(f)
    def call(*args: Any) -> Any:
        return f(*args)

    return call


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in the names of functions


def _digest(f: Any, shapes: tuple[tuple[int, ...], ...]) -> bytes:
    """A digest of the program of f: of its operations and of the values that it reads.

    The arrays of a module are no part of it, since programs take them as arguments.
    """
    arrays, rest = eqx.partition(f, lambda leaf: isinstance(leaf, jax.Array | np.ndarray))

    def call(arrays: Any, *args: Array) -> Any:  # a new function, so that JAX traces it anew
        return eqx.combine(arrays, rest)(*args)

    args = (jax.ShapeDtypeStruct(shape, jnp.float64) for shape in shapes)
    closed = jax.make_jaxpr(call)(arrays, *args)
    parts = [_ADDRESS.sub("", str(closed.jaxpr)).encode()]
    known = (value for value in constants(closed) if not isinstance(value, jax.core.Tracer))
    parts += [np.asarray(value).tobytes() for value in known]
    return hashlib.sha256(b"".join(parts)).digest()


def _trace_parameters(f: Any, args: tuple[jax.ShapeDtypeStruct, ...]) -> Any:
    """A `functools.partial` as a pytree whose leaves are its numbers; other functions unchanged.

    A compiled program then takes the numbers as arguments, and serves all their values. A partial
    is kept as it is if its function needs the numbers while it is traced: as a size, for example.
    """
    if type(f) is not partial:
        return f
    bound = jax.tree.map(_float_as_array, (f.args, f.keywords))
    traced = jax.tree_util.Partial(f.func, *bound[0], **bound[1])
    try:
        eqx.filter_eval_shape(lambda g, *a: g(*a), traced, *args)
    except Exception:
        return f
    return traced


def _float_as_array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, float) else value


def check_differentiable(name: str, f: Callable[..., Any], args: Sequence[Any], order: int) -> None:
    """Raise `InputError` if JAX cannot trace the derivatives of f up to an order at `args`."""

    def derivative(g: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *a: jax.jvp(g, a, tuple(jnp.ones_like(v) for v in a))[1]

    for _ in range(order):
        f = derivative(f)
    try:
        jax.eval_shape(f, *args)
    except Exception as error:
        raise InputError(
            f"JAX must be able to differentiate `{name}` {order} times; it raised "
            f"{type(error).__name__}: {str(error).partition(chr(10))[0]} ({_where(error)}). Kinks "
            "are searched with these derivatives, and a Laplacian in closed form is checked with "
            "them. Write the function with jax.numpy, or with a jax.custom_jvp rule that JAX can "
            "differentiate."
        ) from error


def _example(arguments: Sequence[str]) -> str:
    """An example of a function of these arguments, for messages."""
    body = "x + jnp.sqrt(2 * h) * noise" if "noise" in arguments else "jnp.sum(jnp.sin(x))"
    return f"For example: lambda {', '.join(arguments)}: {body}."


def _check_arity(name: str, function: Function, arguments: Sequence[str]) -> None:
    """Raise `InputError` if a function does not have the required number of arguments."""
    parameters, wanted = function.arity(), list(arguments)
    known = {"t", "x", "u", "du", *arguments}
    if parameters is None:
        return
    is_other = len(parameters) == len(wanted) > 1 and parameters != wanted
    if is_other and known.issuperset(parameters):
        order = [a for a in ("t", "x", "u", "du", "h", "noise") if a in {"t", "x", *parameters}]
        raise InputError(
            f"`{name}` must be a function of ({', '.join(wanted)}); its parameters are "
            f"({', '.join(parameters)}). Time comes first: lambda {', '.join(order)}: ..."
        )
    if len(parameters) == len(arguments):
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
    log: WarningLog,
    shapes: tuple[tuple[int, ...], ...],
) -> None:
    """Raise `InputError` if JAX cannot trace f to one real array of a permitted shape."""
    dim = next(a.shape[0] for a in args if a.shape)
    try:
        closed, out = jax.make_jaxpr(lambda *a: f(*a), return_shape=True)(*args)
    except Exception as error:
        raise InputError(f"`{name}`{_trace_failure(error, dim)}") from error
    dtype = _check_result(name, jax.tree.leaves(out), shapes, dim)
    _check_indices(name, f, args, closed)
    if low := low_precision_constants(f, closed):
        log.warn(f"`{name}` captures constants of low precision: {', '.join(low)}. They are {LOW}")
    elif is_low_precision(dtype):
        log.warn(
            f"`{name}` returns {dtype}: something inside it casts. The answer cannot be better "
            "than that."
        )


def _trace_failure(error: Exception, dim: int) -> str:
    """The end of the message for a function that JAX cannot trace."""
    where = _where(error)
    if isinstance(error, InputError):
        return f": {error}"
    if isinstance(error, jax.errors.TracerBoolConversionError):
        return (
            " must be traceable by JAX; it branches in Python on a value that depends on its "
            f"arguments ({where}). Use jnp.where(condition, a, b) or jax.lax.cond."
        )
    if isinstance(error, jax.errors.TracerArrayConversionError):
        return (
            f" must be traceable by JAX; it hands its arguments to NumPy ({where}). Use jax.numpy "
            "in place of numpy: jnp.sin, jnp.sum, ..."
        )
    is_concretization = isinstance(error, jax.errors.ConcretizationTypeError)
    if is_concretization or "converted to Python scalar" in str(error):
        return (
            " must be traceable by JAX; it needs a Python number where an array is being traced "
            f"({where}). Use jnp.sin in place of math.sin, and no float(...) or int(...) of an "
            "argument."
        )
    return (
        f" must be computable for x of shape ({dim},); it raised {type(error).__name__}: "
        f"{str(error).partition(chr(10))[0]} ({where}). x is one point, an array of shape (dim,)."
    )


def _check_result(
    name: str, leaves: list[Any], shapes: tuple[tuple[int, ...], ...], dim: int
) -> Any:
    """The dtype of a result; raises `InputError` if it is no real array of a permitted shape."""
    is_scalar = shapes == ((),)
    wanted = "scalar" if is_scalar else f"array of shape {' or '.join(map(str, shapes))}"
    if len(leaves) != 1 or not hasattr(leaves[0], "shape"):
        remedy = "Return a single number." if is_scalar else "Join them: jnp.stack([...])."
        raise InputError(
            f"`{name}` must return one {wanted}; for x of shape ({dim},) it returned "
            f"{len(leaves)} arrays. {remedy}"
        )
    shape, dtype = leaves[0].shape, leaves[0].dtype
    if shape not in shapes:
        remedy = " Sum over the coordinates" + (", or take x[0]?" if dim == 1 else "?")
        raise InputError(
            f"`{name}` must return {'a' if is_scalar else 'an'} {wanted}; for x of shape ({dim},) "
            f"it returned shape {shape}.{remedy if is_scalar else ''}"
        )
    if not jnp.issubdtype(dtype, jnp.floating):
        kind, remedy = "float", "Write 1.0 for 1, or multiply by 1.0."
        if jnp.issubdtype(dtype, jnp.complexfloating):
            kind, remedy = "number", "Take jnp.real(...), or solve real and imaginary part apart."
        raise InputError(f"`{name}` must return a real {kind}; it returned {dtype}. {remedy}")
    return dtype


def _check_indices(
    name: str, f: Callable[..., Any], args: tuple[jax.ShapeDtypeStruct, ...], closed: Any
) -> None:
    """Raise `InputError` for an index out of bounds.

    In three dimensions JAX silently reads x[2] for x[5]; NumPy raises an error, so f is called once
    with NumPy arrays if it may use indices.
    """
    if not _may_index(closed.jaxpr) or max(a.shape[0] for a in args if a.shape) > _INDEX_CHECK:
        return
    arrays = [np.full(a.shape, 0.5) for a in args]

    def call() -> Any:
        return f(*arrays)

    # Traced, nothing is compiled; but NumPy takes no traced indices.
    for run in (partial(jax.eval_shape, call), call):
        try:
            run()
        except IndexError as error:
            raise InputError(
                f"`{name}` must stay inside x, which has shape {max(a.shape for a in args)}; it "
                f"raised IndexError: {error} ({_where(error)}). Is `dim` right?"
            ) from error
        except Exception:
            continue  # a function may use what only traced arguments have: no mistake of the user
        return


def _may_index(jaxpr: Any) -> bool:
    """Whether a jaxpr, or one that it calls, takes entries of an array."""
    indexing = ("gather", "dynamic_slice", "slice", "squeeze")
    if any(e.primitive.name in indexing for e in jaxpr.eqns):
        return True
    return any(map(_may_index, subjaxprs(jaxpr)))


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


@compiled
def _map(function: Function, columns: tuple[np.ndarray, ...]) -> Array:
    """The values of a function at n points, compiled; each column has n entries or rows."""
    return jax.lax.map(lambda args: function(*args), columns)


def evaluate_at(function: Function, *columns: np.ndarray) -> np.ndarray:
    """The values (n,) of a function at n points, one after the other.

    Each column holds one argument: times (n,), points (n, dim), ...
    """
    is_small = is_small_call(sum(map(np.size, columns)))
    return np.asarray(_map(function, columns, is_small=is_small))


def probe_finite(
    name: str, function: Function, columns: tuple[np.ndarray, ...], where: str
) -> np.ndarray:
    """Values (n,) at probe points; the last column holds the points (n, dim).

    Raises `NotFiniteError` if one is not finite; `where` describes the points in the message.
    """
    values = evaluate_at(function, *columns)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        example = format_point([c[bad[0]] for c in columns])
        raise NotFiniteError(
            f"`{name}` must be finite {where}; it was {values[bad[0]]} at {bad.size} of "
            f"{values.size} probe points, for example {example}. The equation lives on all of R^d "
            "and its paths leave the region: make the function finite there, or choose a smaller "
            "region or horizon."
        )
    return values


_HALVINGS = 40  # bisections of a segment: a change that is still there then is a jump


Arrays = tuple[np.ndarray, ...]


def choose_half(left: np.ndarray, start: Arrays, centre: Arrays, end: Arrays) -> list[Arrays]:
    """The ends of one half of each of n segments: of the first half where `left` (n,) is true.

    The ends and the centres are tuples of arrays with n entries or rows, one for each argument.
    """

    def where(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(left.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return [tuple(map(where, start, centre)), tuple(map(where, centre, end))]


def has_jump(value: Callable[..., np.ndarray], start: Arrays, end: Arrays) -> bool:
    """Whether a function jumps on one of n segments.

    Each segment is bisected 40 times, towards the half with the larger change. The function jumps
    if the change is then still more than 1e-3 of the first change (plus rounding).

    Args:
        value: the function; its values have shape (n, ...).
        start: first ends of the segments, one array with n entries or rows per argument.
        end: second ends of the segments.
    """

    def flat(points: Arrays) -> np.ndarray:
        return value(*points).reshape(len(points[0]), -1)

    low, high = flat(start), flat(end)
    first_change = np.max(np.abs(high - low), axis=1)
    for _ in range(_HALVINGS):
        centre = tuple(0.5 * (a + b) for a, b in zip(start, end, strict=True))
        middle = flat(centre)
        left = np.max(np.abs(middle - low), axis=1) >= np.max(np.abs(high - middle), axis=1)
        start, end = choose_half(left, start, centre, end)
        ((low,), (high,)) = choose_half(left, (low,), (middle,), (high,))
    size = np.max(np.abs(low), axis=1) + np.max(np.abs(high), axis=1)
    return bool(np.any(np.max(np.abs(high - low), axis=1) > 1e-3 * first_change + 1e-9 * size))


def format_point(columns: Sequence[Any]) -> str:
    """Text for a point (x,) or (t, x), with at most four coordinates."""
    *times, x = columns
    shown = ", ".join(f"{v:.4g}" for v in x[:4]) + (", ..." if len(x) > 4 else "")
    return "".join(f"t = {t:.4g}, " for t in times) + f"x = [{shown}]"


def format_points(points: Sequence[Sequence[Any]]) -> list[str]:
    """Texts for points (x,) or (t, x) that tell them apart.

    Where `format_point` writes different points alike, those coordinates follow in which a point
    differs from most of them: at most three, if these suffice.
    """
    if not points:
        return []
    texts = [format_point(columns) for columns in points]
    flat = np.stack([np.hstack([np.asarray(c, float) for c in columns]) for columns in points])
    n_times = len(points[0]) - 1
    names = ["t"] * n_times + [f"x[{k}]" for k in range(flat.shape[1] - n_times)]
    result = list(texts)
    for text in dict.fromkeys(texts):
        group = [i for i, other in enumerate(texts) if other == text]
        usual = np.median(flat[group], axis=0)
        for most in (3, flat.shape[1]):
            for i in group:
                apart = np.flatnonzero(flat[i] != usual)[:most]
                result[i] = text + "".join(f", {names[k]} = {flat[i, k]:.10g}" for k in apart)
            if len({result[i] for i in group}) == len(np.unique(flat[group], axis=0)):
                break
    return result


# Parameters of a primitive that hold the jaxpr it calls, and primitives that only call a jaxpr.
_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_CALLED = {"pjit", "jit", "closed_call", "core_call", "remat", "checkpoint"}
_CALLED |= {"custom_jvp_call", "custom_vjp_call"}


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
        called = [e.params[p] for p in _CALLS if p in e.params] if name in _CALLED else []
        if called:
            inner = getattr(called[0], "jaxpr", called[0])
            outputs = _evaluate_known(inner, list(getattr(called[0], "consts", ())), operands)
        elif all(v is not None for v in operands):
            inputs = {v: read(v) for v in e.invars if not hasattr(v, "val")}
            single = jaxpr.replace(constvars=[], invars=list(inputs), outvars=e.outvars, eqns=[e])
            outputs = jax.core.eval_jaxpr(single, [], *inputs.values())
        elif (value := _value_despite_unknowns(name, operands)) is not None:
            aval = e.outvars[0].aval
            outputs = [jnp.zeros(aval.shape, aval.dtype) + value]
        else:
            outputs = [None] * len(e.outvars)
        values.update(zip(e.outvars, outputs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _value_despite_unknowns(name: str, operands: list[Any]) -> Any:
    """The value of a primitive with an unknown operand, if the known ones decide it; else None.

    A product (or quotient) with a factor zero is zero; a selection between equals is one of them.
    """
    factors = operands if name in ("mul", "dot_general") else operands[:1] if name == "div" else []
    if any(v is not None and not np.any(v) for v in factors):
        return 0.0
    cases = operands[1:] if name == "select_n" else []
    if cases and all(v is not None and np.array_equal(v, cases[0]) for v in cases):
        return cases[0]
    return None
