"""File container: arrays and a JSON manifest in one safetensors file, each with its SHA-256.

Reading a container runs no code from it, and every part is checked.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import jax
import numpy as np
from jaxtyping import AbstractArray

from heatnets._core.atomic_files import write as write_file
from heatnets._core.errors import FileError

SCHEMA = 1
_MAX_HEADER = 2**24  # bytes: names and shapes of the arrays, and the manifest


_NON_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def to_jsonable(value: Any) -> Any:
    """Convert a value to JSON types.

    A dataclass becomes a dictionary of its fields, a tuple or a named tuple a list. Array fields of
    these two are left out. inf and NaN, which JSON does not have, become strings.
    """
    if is_dataclass(type(value)):
        return {name: to_jsonable(getattr(value, name)) for name in _stored_fields(type(value))}
    if isinstance(value, Mapping):
        return {str(k): to_jsonable(v) for k, v in value.items()}
    if hasattr(value, "_fields"):
        value = [getattr(value, name) for name in _stored_fields(type(value))]
    if isinstance(value, tuple | list | np.ndarray):
        return [to_jsonable(v) for v in value]
    plain = value.item() if isinstance(value, np.generic) else value
    return f"{plain:g}" if isinstance(plain, float) and not math.isfinite(plain) else plain


def from_jsonable(kind: Any, value: Any, arrays: Any = None) -> Any:
    """Rebuild a value of the type `kind` from the output of `to_jsonable`.

    Args:
        kind: a dataclass, a named tuple, or a type hint made of these, tuples, lists and None.
        value: the JSON value; other entries of a dictionary are ignored.
        arrays: the value of the array fields; or a mapping from the fields of `kind` to the array
            in each.
    """
    arguments = get_args(kind)
    if NoneType in arguments:
        (inner,) = (a for a in arguments if a is not NoneType)
        return None if value is None else from_jsonable(inner, value, arrays)
    if get_origin(kind) is list:
        return [from_jsonable(arguments[0], v) for v in value]
    if get_origin(kind) is tuple:
        kinds = [arguments[0]] * len(value) if arguments[1:] == (...,) else arguments
        return tuple(from_jsonable(k, v) for k, v in zip(kinds, value, strict=True))
    if not is_dataclass(kind) and not hasattr(kind, "_fields"):
        return value
    if not isinstance(value, Mapping):
        value = dict(zip(_stored_fields(kind), value, strict=True))
    parts = {}
    for name, hint in get_type_hints(kind).items():
        array = arrays.get(name) if isinstance(arrays, Mapping) else arrays
        parts[name] = array if _is_array(hint) else from_jsonable(hint, value[name], array)
    return kind(**parts)


def _stored_fields(kind: Any) -> list[str]:
    """Names of the fields of a dataclass or a named tuple that are no arrays."""
    return [name for name, hint in get_type_hints(kind).items() if not _is_array(hint)]


def _is_array(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, np.ndarray | jax.Array | AbstractArray)


def restore_numbers(value: Any) -> Any:
    """Turn the strings "inf", "-inf" and "nan" of a JSON value into floats again."""
    if isinstance(value, dict):
        return {k: v if k == "origin" else restore_numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [restore_numbers(v) for v in value]
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value


def write(path: Path, kind: str, manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> Path:
    """Write a container of a kind ("result" or "checkpoint") atomically."""
    from safetensors.numpy import save

    parts = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    entries = {
        name: {"shape": list(a.shape), "dtype": str(a.dtype), "sha256": _digest(a.tobytes())}
        for name, a in parts.items()
    }
    text = json.dumps(
        to_jsonable({"schema": SCHEMA, "kind": kind, **manifest, "parts": entries}), allow_nan=False
    )
    if len(text) + 200 * len(entries) > _MAX_HEADER:
        raise FileError(
            f"{path}: what there is to say of it takes more than {_MAX_HEADER} bytes. "
            "State large data in a Python file, which is not kept inside."
        )
    return write_file(path, save(parts, {"heatnets": text, "sha256": _digest(text.encode())}))


def read(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the manifest and the arrays, and check every digest.

    Raises `FileError` if the file is of another kind, or is damaged in any way.
    """
    from safetensors import safe_open

    _check_header(path, kind)
    try:
        with safe_open(path, framework="numpy") as file:
            manifest = _read_manifest(path, kind, file.metadata() or {})
            if set(manifest["parts"]) != set(file.keys()):
                raise ValueError("its parts are not those of its manifest")
            arrays = {
                name: _read_part(name, entry, file) for name, entry in manifest["parts"].items()
            }
    except FileError:
        raise
    except Exception as error:  # whatever damage leads to
        raise _damage_error(path, f"{error}"[:200] or type(error).__name__) from None
    return manifest, arrays


def _check_header(path: Path, kind: str) -> None:
    """Raise `FileError` if the first bytes or the size show that this is no container."""
    try:
        size = os.stat(path).st_size
        with open(path, "rb") as file:
            head = file.read(9)
    except FileNotFoundError:
        raise FileError(f"there is no file {path}.") from None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from None
    length = int.from_bytes(head[:8], "little")
    if len(head) < 9 or head[8:9] != b"{" or not 2 <= length <= _MAX_HEADER:
        raise FileError(f"{path} is not a heatnets {kind}; nothing in it was run.")
    if 8 + length > size:
        raise _damage_error(path, "it is cut short")


def _read_manifest(path: Path, kind: str, metadata: dict[str, str]) -> dict[str, Any]:
    text = metadata.get("heatnets")
    if text is None:
        raise FileError(f"{path} holds arrays, but is not a heatnets {kind}.")
    if _digest(text.encode()) != metadata.get("sha256"):
        raise ValueError("the manifest does not match its SHA-256")
    manifest = restore_numbers(json.loads(text))
    if (
        not isinstance(manifest, dict)
        or not isinstance(manifest.get("schema"), int)
        or not isinstance(manifest.get("parts"), dict)
    ):
        raise ValueError("the manifest is incomplete")
    if manifest["schema"] > SCHEMA:
        raise FileError(
            f"{path} was written by a newer heatnets ({manifest.get('heatnets')}, "
            f"schema {manifest['schema']}; known is {SCHEMA}). Update heatnets."
        )
    if manifest.get("kind") != kind:
        raise FileError(f"{path} is a heatnets {str(manifest.get('kind'))[:40]}, not a {kind}.")
    return manifest


def _read_part(name: str, entry: dict[str, Any], file: Any) -> np.ndarray:
    """Read one array and compare it with its entry of the manifest."""
    array = np.asarray(file.get_tensor(name))
    if (
        entry["dtype"] not in ("float64", "int64")
        or str(array.dtype) != entry["dtype"]
        or list(array.shape) != entry["shape"]
    ):
        raise ValueError(f"part {name[:40]!r} is not what the manifest says")
    if _digest(array.tobytes()) != entry["sha256"]:
        raise ValueError(f"part {name[:40]!r} does not match its SHA-256")
    return array


def _damage_error(path: Path, why: str) -> FileError:
    return FileError(
        f"{path} is damaged ({why}). Nothing of it was used: take another copy, or solve again."
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
