"""Arrays and what they mean in one file: safetensors with a JSON manifest, each part with its SHA-256. Reading one runs nothing and believes nothing."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from heatnets._core.atomic_files import write as write_file
from heatnets._core.errors import FileError

SCHEMA = 1
_HEADER = 2**24  # bytes that the names, shapes and the manifest may take


_UNREAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def words(value: Any) -> Any:
    """A value as JSON has it; numbers that are not finite, which it has not, by their names."""
    if isinstance(value, Mapping):
        return {str(k): words(v) for k, v in value.items()}
    if isinstance(value, tuple | list | np.ndarray):
        return [words(v) for v in value]
    plain = value.item() if isinstance(value, np.generic) else value
    return f"{plain:g}" if isinstance(plain, float) and not math.isfinite(plain) else plain


def numbers(value: Any) -> Any:
    """What `words` was given, with numbers in place of their names."""
    if isinstance(value, dict):
        return {k: v if k == "origin" else numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [numbers(v) for v in value]
    return _UNREAL.get(value, value) if isinstance(value, str) else value


def write(path: Path, kind: str, manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> Path:
    """Write a file of some kind ("result", "checkpoint"), whole or not at all."""
    from safetensors.numpy import save

    parts = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    known = {
        name: {"shape": list(a.shape), "dtype": str(a.dtype), "sha256": _digest(a.tobytes())}
        for name, a in parts.items()
    }
    text = json.dumps(
        words({"schema": SCHEMA, "kind": kind, **manifest, "parts": known}), allow_nan=False
    )
    if len(text) + 200 * len(known) > _HEADER:
        raise FileError(
            f"{path}: what there is to say of it takes more than {_HEADER} bytes. State large data in a Python file, which is not kept inside."
        )
    return write_file(path, save(parts, {"heatnets": text, "sha256": _digest(text.encode())}))


def read(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Manifest and arrays, every digest checked; a `FileError` in words for anything else."""
    from safetensors import SafetensorError, safe_open

    _look(path, kind)
    try:
        with safe_open(path, framework="numpy") as file:
            manifest = _manifest(path, kind, file.metadata() or {})
            if set(manifest["parts"]) != set(file.keys()):
                raise _damaged(path, "its parts are not those of its manifest")
            arrays = {
                name: _part(path, name, known, file) for name, known in manifest["parts"].items()
            }
    except (
        SafetensorError,
        OSError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
        OverflowError,
        MemoryError,
    ) as error:
        if isinstance(error, FileError):
            raise
        raise _damaged(path, f"{error}"[:200] or type(error).__name__) from None
    return manifest, arrays


def _look(path: Path, kind: str) -> None:
    """Refuse what cannot be such a file before anything is read."""
    try:
        size = os.stat(path).st_size
        with open(path, "rb") as file:
            head = file.read(9)
    except FileNotFoundError:
        raise FileError(f"there is no file {path}.") from None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from None
    length = int.from_bytes(head[:8], "little")
    if len(head) < 9 or head[8:9] != b"{" or not 2 <= length <= _HEADER:
        raise FileError(f"{path} is not a heatnets {kind}; nothing in it was run.")
    if 8 + length > size:
        raise _damaged(path, "it is cut short")


def _manifest(path: Path, kind: str, metadata: dict[str, str]) -> dict[str, Any]:
    text = metadata.get("heatnets")
    if text is None:
        raise FileError(f"{path} holds arrays, but is not a heatnets {kind}.")
    if _digest(text.encode()) != metadata.get("sha256"):
        raise _damaged(path, "the manifest does not match its SHA-256")
    manifest = numbers(json.loads(text))
    if (
        not isinstance(manifest, dict)
        or not isinstance(manifest.get("schema"), int)
        or not isinstance(manifest.get("parts"), dict)
    ):
        raise _damaged(path, "the manifest is incomplete")
    if manifest["schema"] > SCHEMA:
        raise FileError(
            f"{path} was written by a newer heatnets ({manifest.get('heatnets')}, schema {manifest['schema']}; known is {SCHEMA}). Update heatnets."
        )
    if manifest.get("kind") != kind:
        raise FileError(f"{path} is a heatnets {str(manifest.get('kind'))[:40]}, not a {kind}.")
    return manifest


def _part(path: Path, name: str, known: dict[str, Any], file: Any) -> np.ndarray:
    array = np.asarray(file.get_tensor(name))
    if (
        known["dtype"] not in ("float64", "int64")
        or str(array.dtype) != known["dtype"]
        or list(array.shape) != known["shape"]
    ):
        raise _damaged(path, f"part {name[:40]!r} is not what the manifest says")
    if _digest(array.tobytes()) != known["sha256"]:
        raise _damaged(path, f"part {name[:40]!r} does not match its SHA-256")
    return array


def _damaged(path: Path, why: str) -> FileError:
    return FileError(
        f"{path} is damaged ({why}). Nothing of it was used: take another copy, or solve again."
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
