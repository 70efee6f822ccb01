"""Checks of a user's function by tracing: its arguments, its result, indices, derivatives."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import subjaxprs

from heatnets._core.errors import InputError, WarningLog, short_repr
from heatnets._core.precision import LOW, is_low_precision, low_precision_constants
from heatnets.pde.function import Function

_INDEX_CHECK = 1000  # up to this dimension functions are also called once outside a trace


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
