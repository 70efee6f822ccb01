"""Atomic file writes (temporary file, fsync, rename), file locks, and ledgers of finished work.

A ledger is a JSON file that stores the outcome of each finished cell of an experiment.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heatnets._core.errors import FileError, InputError

SCHEMA = 1

_unfinished: set[str] = set()


def write(path: Path, content: str | bytes) -> Path:
    """Write a file atomically: after a crash at any moment it has the old or the new content."""
    data = content.encode() if isinstance(content, str) else content
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _write_error(path, error) from error
    _unfinished.add(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        if isinstance(error, OSError):
            raise _write_error(path, error) from error
        raise
    finally:
        _unfinished.discard(name)
    return path


def _write_error(path: Path, error: OSError) -> FileError:
    old_file = " The file that was there is as it was." if path.exists() else ""
    return FileError(
        f"{path} cannot be written: {error.strerror or error}.{old_file} "
        "Free some space, or name another place."
    )


def check_writable(path: Path) -> None:
    """Raise `FileError` if no file can be written at `path`; called before any work is done."""
    folder = path.parent
    if path.is_dir():
        raise FileError(f"{path} is a folder; name a file in it.")
    if path.exists() and not path.is_file():
        raise FileError(f"{path} is no ordinary file: it would be replaced. Name another place.")
    if not folder.is_dir():
        raise FileError(
            f"{path} cannot be written: there is no folder {folder}. "
            "Make it, or name another place."
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileError(
            f"{path} cannot be written: the folder {folder} is read-only. Name another place."
        )


def remove_partial_files() -> None:
    """Remove the temporary files of unfinished calls of `write`, before the process exits."""
    for name in list(_unfinished):
        with contextlib.suppress(OSError):
            os.unlink(name)


_MOVE = "Move it away, or name another folder with --out."


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file written by heatnets; raise `InputError` if it is something else."""
    try:
        content = json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is not a JSON file ({error}). {_MOVE}") from None
    if not isinstance(content, dict) or not isinstance(content.get("schema"), int):
        raise InputError(f"{path} was not written by heatnets. {_MOVE}")
    if content["schema"] > SCHEMA:
        raise InputError(
            f"{path} was written by a newer heatnets (schema {content['schema']}, known {SCHEMA}). "
            "Update heatnets."
        )
    return content


class Ledger:
    """Finished cells by key, stored in one JSON file.

    The file is rewritten completely after each cell, so that no cell is lost or computed twice. A
    cell has its `settings` (the inputs) and its outcome; it counts as finished only for exactly the
    same settings.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path, self.header = path, header
        self.cells: dict[str, dict[str, Any]] = {}
        if path.exists():
            content = read_json(path)
            for name, value in header.items():
                if content.get(name) != value:
                    raise InputError(
                        f"{path} holds {name} {content.get(name)!r}, not {value!r}. {_MOVE}"
                    )
            cells = content.get("cells")
            if not isinstance(cells, dict) or not all(
                isinstance(cell, dict) and "settings" in cell for cell in cells.values()
            ):
                raise InputError(f"{path} has no readable cells. {_MOVE}")
            self.cells = cells

    def find(self, key: str, settings: dict[str, Any]) -> dict[str, Any] | None:
        """The finished cell with this key and these settings, or None."""
        cell = self.cells.get(key)
        if cell is not None and cell["settings"] == json.loads(json.dumps(settings)):
            return cell
        return None

    def add(self, key: str, settings: dict[str, Any], outcome: dict[str, Any]) -> None:
        """Store a finished cell."""
        self.cells[key] = json.loads(json.dumps({"settings": settings, **outcome}))
        self._write()

    def reorder(self, keys: list[str]) -> None:
        """Keep only the cells `keys`, in this order, so that the file does not depend on the order
        of computation.
        """
        ordered = {key: self.cells[key] for key in keys if key in self.cells}
        if list(ordered) != list(self.cells):
            self.cells = ordered
            self._write()

    def _write(self) -> None:
        lines = ",\n".join(
            f"  {json.dumps(key)}: {json.dumps(cell)}" for key, cell in self.cells.items()
        )
        head = json.dumps({"schema": SCHEMA, **self.header})[:-1]
        write(self.path, f'{head}, "cells": {{\n{lines}\n}}}}\n')


@contextlib.contextmanager
def file_lock(path: Path, remedy: str) -> Iterator[None]:
    """Hold a lock on `path`; raise `FileError` if another process holds it."""
    lock = path.with_name(f".{path.name}.lock")
    try:
        handle = _open_and_lock(lock)
    except BlockingIOError:
        raise FileError(f"another run is writing {path}. Wait for it, or {remedy}.") from None
    except OSError as error:
        raise _write_error(path, error) from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def _open_and_lock(lock: Path) -> int:
    """Open and lock the file `lock`; return its file descriptor.

    The lock is released when the descriptor is closed, also when the process is killed. Systems
    without `fcntl` only open the file.
    """
    while True:
        handle = os.open(lock, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock.exists() and os.path.samestat(os.fstat(handle), os.stat(lock)):
                return handle
            os.close(handle)  # another run removed the file between `open` and `flock`: try again
        except ImportError:
            return handle
        except OSError:
            os.close(handle)
            raise


@contextlib.contextmanager
def ledger(path: Path, header: dict[str, Any]) -> Iterator[Ledger]:
    """Open a ledger under a lock, so that no other process writes it at the same time."""
    with file_lock(path, "name another folder with --out"):
        yield Ledger(path, header)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
