"""The user's functions: wrapped, counted, traced and probed before anything long is done with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from heatnets._core.errors import InputError, NotFiniteError, WarningLog, short_repr
from heatnets._core.precision import LOW, is_low_precision, low_precision_constants

_INDEX_CHECK = 1000  # up to this dimension functions are also called once outside a trace


class Function(eqx.Module):
    """A scalar function of the user's, with what is known about it.

    Args:
        function: `f(x)` or `f(t, x)`, written with `jax.numpy` for one point x of shape (dim,), returning a scalar.
        laplacian: the Laplacian in x in closed form, with the same arguments. Faster than any automatic rung.
        arguments: names of the arguments, for example `"t x"`, where the signature leaves doubt.

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
                    f"`{name}` must be a function; got {short_repr(value)}. Write hn.Function(f, laplacian=g)."
                )

    def __call__(self, *args: Any) -> Float[Array, ""]:
        return jnp.asarray(self.function(*args), jnp.result_type(float))

    def arity(self) -> list[str] | None:
        """Names of the required positional arguments; None where the signature cannot be read."""
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


def checked(
    name: str,
    value: Any,
    wanted: Sequence[str],
    dim: int,
    notes: WarningLog,
    shapes: tuple[tuple[int, ...], ...] = ((),),
) -> Function:
    """`value` as a Function of the arguments `wanted` ("x" or "t", "x") that JAX can trace to one real number, or to an array of one of `shapes`."""
    if not callable(value):
        raise InputError(
            f"`{name}` must be a function of ({', '.join(wanted)}); got {short_repr(value)}. {_example(wanted)}"
        )
    function = value if isinstance(value, Function) else Function(value)
    _check_arity(name, function, wanted)
    args = tuple(
        jax.ShapeDtypeStruct((dim,) if a in ("x", "du") else (), jnp.float64) for a in wanted
    )
    _check_trace(name, function.function, args, notes, shapes)
    if function.laplacian is not None:
        _check_trace(f"{name}'s laplacian", function.laplacian, args, notes, shapes)
    return function


def _example(wanted: Sequence[str]) -> str:
    return f"For example: lambda {', '.join(wanted)}: jnp.sum(jnp.sin(x))."


def _check_arity(name: str, function: Function, wanted: Sequence[str]) -> None:
    came = function.arity()
    if came == ["x", "t"] and len(wanted) == 2:
        raise InputError(
            f"`{name}` must be a function of (t, x); its parameters are (x, t). Time comes first: lambda t, x: ..."
        )
    if came is None or len(came) == len(wanted):
        return
    raise InputError(
        f"`{name}` must take {len(wanted)} argument(s), ({', '.join(wanted)}); it takes {len(came)} required "
        f"one(s), ({', '.join(came)}). "
        "Give further parameters default values, or close over them."
    )


def _check_trace(
    name: str,
    f: Callable[..., Any],
    args: tuple[jax.ShapeDtypeStruct, ...],
    notes: WarningLog,
    shapes: tuple[tuple[int, ...], ...],
) -> None:
    dim = next(a.shape[0] for a in args if a.shape)
    try:
        closed, out = jax.make_jaxpr(f, return_shape=True)(*args)
    except InputError as error:
        raise InputError(f"`{name}`: {error}") from error
    except jax.errors.TracerBoolConversionError as error:
        raise InputError(
            f"`{name}` must be traceable by JAX; it branches in Python on a value that depends on its arguments "
            f"({_where(error)}). Use jnp.where(condition, a, b) or jax.lax.cond."
        ) from error
    except jax.errors.TracerArrayConversionError as error:
        raise InputError(
            f"`{name}` must be traceable by JAX; it hands its arguments to NumPy ({_where(error)}). "
            "Use jax.numpy in place of numpy: jnp.sin, jnp.sum, ..."
        ) from error
    except (jax.errors.JAXTypeError, TypeError, ValueError, IndexError) as error:
        if isinstance(
            error, jax.errors.ConcretizationTypeError
        ) or "converted to Python scalar" in str(error):
            raise InputError(
                f"`{name}` must be traceable by JAX; it needs a Python number where an array is being traced "
                f"({_where(error)}). Use jnp.sin in place of math.sin, and no float(...) or int(...) of an argument."
            ) from error
        raise InputError(
            f"`{name}` must be computable for x of shape ({dim},); it raised {type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else ''} ({_where(error)}). "
            f"x is one point, an array of shape (dim,)."
        ) from error
    except Exception as error:
        raise InputError(
            f"`{name}` must be computable for x of shape ({dim},); it raised {type(error).__name__}: {error}."
        ) from error
    leaves = jax.tree_util.tree_leaves(out)
    if len(leaves) != 1 and shapes != ((),):
        raise InputError(
            f"`{name}` must return one array of shape {' or '.join(map(str, shapes))}; it returned {len(leaves)}. Join them: jnp.stack([...])."
        )
    if len(leaves) != 1 or not hasattr(leaves[0], "shape"):
        raise InputError(
            f"`{name}` must return one scalar; for x of shape ({dim},) it returned {len(leaves)} arrays. Return a single number."
        )
    shape, dtype = leaves[0].shape, leaves[0].dtype
    if shape not in shapes and shapes != ((),):
        raise InputError(
            f"`{name}` must return an array of shape {' or '.join(map(str, shapes))}; for x of shape ({dim},) it returned shape {shape}."
        )
    if shape not in shapes:
        raise InputError(
            f"`{name}` must return a scalar; for x of shape ({dim},) it returned shape {shape}. "
            + (
                "Sum over the coordinates, or take x[0]?"
                if dim == 1
                else "Sum over the coordinates?"
            )
        )
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise InputError(
            f"`{name}` must return a real number; it returned {dtype}. Take jnp.real(...), or solve real and imaginary part apart."
        )
    if not jnp.issubdtype(dtype, jnp.floating):
        raise InputError(
            f"`{name}` must return a real float; it returned {dtype}. Write 1.0 for 1, or multiply by 1.0."
        )
    _check_indices(name, f, args, closed)
    low = low_precision_constants(f, closed)
    if low:
        notes.warn(
            f"`{name}` captures constants of low precision: {', '.join(low)}. They are {LOW}"
        )
    elif is_low_precision(dtype):
        notes.warn(
            f"`{name}` returns {dtype}: something inside it casts. The answer cannot be better than that."
        )


def _check_indices(
    name: str, f: Callable[..., Any], args: tuple[jax.ShapeDtypeStruct, ...], closed: Any
) -> None:
    """Refuse x[5] in three dimensions, which JAX would clamp to x[2] in silence and NumPy does not."""
    indexed = any(
        e.primitive.name in ("gather", "dynamic_slice", "slice", "squeeze", "pjit", "jit")
        for e in closed.jaxpr.eqns
    )
    if not indexed or max(a.shape[0] for a in args if a.shape) > _INDEX_CHECK:
        return
    try:
        f(*(np.full(a.shape, 0.5) for a in args))
    except IndexError as error:
        raise InputError(
            f"`{name}` must stay inside x, which has shape {max(a.shape for a in args)}; it raised IndexError: {error} ({_where(error)}). Is `dim` right?"
        ) from error
    except Exception:
        return  # what only a traced argument can do is no mistake


def _where(error: BaseException) -> str:
    """The user's line in which a trace failed: the last one outside JAX and heatnets."""
    place, step = "line unknown", error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if not any(
            part in file.replace("\\", "/")
            for part in ("heatnets/function.py", "/jax/", "/numpy/", "/equinox/")
        ):
            place = f"{file.rsplit('/', 1)[-1]}:{step.tb_lineno}"
        step = step.tb_next
    return place


@eqx.filter_jit
def _values(function: Function, columns: tuple[Array, ...]) -> Array:
    return jax.lax.map(lambda args: function(*args), columns)


def many(function: Function, *columns: np.ndarray) -> np.ndarray:
    """A function at many points, one after the other."""
    return np.asarray(_values(function, tuple(jnp.asarray(c) for c in columns)))


def probe(name: str, function: Function, columns: tuple[np.ndarray, ...], where: str) -> np.ndarray:
    """Values at probe points (the last column holds the points), refused where one is not finite."""
    values = many(function, *columns)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise NotFiniteError(
            f"`{name}` must be finite {where}; it was {values[bad[0]]} at {bad.size} of {values.size} probe points, "
            f"for example {place([c[bad[0]] for c in columns])}. The equation lives on all of R^d and its paths leave the region: "
            "make the function finite there, or choose a smaller region or horizon."
        )
    return values


_HALVINGS = 40  # of a segment on which a function changes: what still changes then jumps


def jumps(
    value: Callable[..., np.ndarray], start: tuple[np.ndarray, ...], end: tuple[np.ndarray, ...]
) -> bool:
    """Whether a function with values (n, k) jumps between points: segments are halved towards the larger change until it is gone, or is not."""
    low, high = value(*start), value(*end)
    first = np.max(np.abs(high - low), axis=1)
    for _ in range(_HALVINGS):
        centre = tuple(0.5 * (a + b) for a, b in zip(start, end, strict=True))
        middle = value(*centre)
        left = np.max(np.abs(middle - low), axis=1) >= np.max(np.abs(high - middle), axis=1)

        def where(a: np.ndarray, b: np.ndarray, left: np.ndarray = left) -> np.ndarray:
            return np.where(left.reshape(-1, *[1] * (a.ndim - 1)), a, b)

        start, end = tuple(map(where, start, centre)), tuple(map(where, centre, end))
        low, high = where(low, middle), where(middle, high)
    size = np.max(np.abs(low), axis=1) + np.max(np.abs(high), axis=1)
    return bool(np.any(np.max(np.abs(high - low), axis=1) > 1e-3 * first + 1e-9 * size))


def place(columns: Sequence[Any]) -> str:
    """A point (x) or (t, x) in words, long ones cut."""
    *times, x = columns
    shown = ", ".join(f"{v:.4g}" for v in x[:4]) + (", ..." if len(x) > 4 else "")
    return "".join(f"t = {t:.4g}, " for t in times) + f"x = [{shown}]"


_CALLS = (
    "jaxpr",
    "call_jaxpr",
    "fun_jaxpr",
)  # parameters that hold a program which is called as it is
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
    """The value of a function that does not depend on its arguments, by its program; None where that cannot be shown.

    An argument is a `jax.ShapeDtypeStruct`, or a value that is known.
    """
    structs = [
        a if isinstance(a, jax.ShapeDtypeStruct) else jax.ShapeDtypeStruct(np.shape(a), jnp.float64)
        for a in args
    ]
    closed = jax.make_jaxpr(function)(*structs)
    known = [None if isinstance(a, jax.ShapeDtypeStruct) else np.asarray(a, float) for a in args]
    (found,) = _known(closed.jaxpr, list(closed.consts), known)
    return None if found is None else np.asarray(found)


def _known(jaxpr: Any, constants: list[Any], args: list[Any]) -> list[Any]:
    """What a program returns, None for what depends on an unknown argument; zero times anything is
    zero.
    """
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *args], strict=True))

    def read(v: Any) -> Any:
        return v.val if hasattr(v, "val") else values.get(v)

    for e in jaxpr.eqns:
        name, given = e.primitive.name, [read(v) for v in e.invars]
        inner = (
            next((e.params[p] for p in _CALLS if p in e.params), None) if name in _CALLED else None
        )
        if inner is not None:
            found = _known(
                getattr(inner, "jaxpr", inner), list(getattr(inner, "consts", ())), given
            )
        elif all(v is not None for v in given):
            inputs = {v: read(v) for v in e.invars if not hasattr(v, "val")}
            alone = jaxpr.replace(constvars=[], invars=list(inputs), outvars=e.outvars, eqns=[e])
            found = jax.core.eval_jaxpr(alone, [], *inputs.values())
        elif _vanishes(name, given) or _alike(name, given):
            whole = jnp.zeros(e.outvars[0].aval.shape, e.outvars[0].aval.dtype)
            found = [whole if _vanishes(name, given) else whole + given[1]]
        else:
            found = [None] * len(e.outvars)
        values.update(zip(e.outvars, found, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _vanishes(name: str, given: list[Any]) -> bool:
    """Whether an operation gives zero because a factor is."""
    factors = given if name in ("mul", "dot_general") else given[:1] if name == "div" else []
    return any(v is not None and not np.any(v) for v in factors)


def _alike(name: str, given: list[Any]) -> bool:
    """Whether a choice is between equals."""
    return name == "select_n" and all(
        v is not None and np.array_equal(v, given[1]) for v in given[1:]
    )
