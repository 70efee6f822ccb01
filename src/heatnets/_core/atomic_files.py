"""Files that are whole or not there: written beside their place, flushed to the disk, renamed; and ledgers of finished cells."""

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
    """Write a file so that a reader, or a crash at any moment, finds the old one or the new one."""
    data = content.encode() if isinstance(content, str) else content
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _unwritten(path, error) from error
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
            raise _unwritten(path, error) from error
        raise
    finally:
        _unfinished.discard(name)
    return path


def _unwritten(path: Path, error: OSError) -> FileError:
    before = " The file that was there is as it was." if path.exists() else ""
    return FileError(
        f"{path} cannot be written: {error.strerror or error}.{before} Free some space, or name another place."
    )


def check_writable(path: Path) -> None:
    """Refuse, before any work, a place where no file can be written."""
    folder = path.parent
    if path.is_dir():
        raise FileError(f"{path} is a folder; name a file in it.")
    if path.exists() and not path.is_file():
        raise FileError(f"{path} is no ordinary file: it would be replaced. Name another place.")
    if not folder.is_dir():
        raise FileError(
            f"{path} cannot be written: there is no folder {folder}. Make it, or name another place."
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileError(
            f"{path} cannot be written: the folder {folder} is read-only. Name another place."
        )


def remove_partial_files() -> None:
    """Remove what `write` has begun and not finished: for a process that ends at once."""
    for name in list(_unfinished):
        with contextlib.suppress(OSError):
            os.unlink(name)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of ours, or words that say what is wrong with it."""
    try:
        content = json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(
            f"{path} is not a JSON file ({error}). Move it away, or name another folder with --out."
        ) from None
    if not isinstance(content, dict) or not isinstance(content.get("schema"), int):
        raise InputError(
            f"{path} was not written by heatnets. Move it away, or name another folder with --out."
        )
    if content["schema"] > SCHEMA:
        raise InputError(
            f"{path} was written by a newer heatnets (schema {content['schema']}, known {SCHEMA}). Update heatnets."
        )
    return content


class Ledger:
    """Finished cells by key, in one JSON file that is rewritten whole after each: a cell is never lost and never computed twice.

    A cell is what was asked for (`settings`) and what came out; it counts as finished only for the very same settings.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path, self.header = path, header
        self.cells: dict[str, dict[str, Any]] = {}
        if path.exists():
            found = read_json(path)
            for name, value in header.items():
                if found.get(name) != value:
                    raise InputError(
                        f"{path} holds {name} {found.get(name)!r}, not {value!r}. Name another folder with --out, or move it away."
                    )
            cells = found.get("cells")
            if not isinstance(cells, dict) or not all(
                isinstance(c, dict) and "settings" in c for c in cells.values()
            ):
                raise InputError(
                    f"{path} has no readable cells. Move it away, or name another folder with --out."
                )
            self.cells = cells

    def find(self, key: str, settings: dict[str, Any]) -> dict[str, Any] | None:
        """The finished cell of this key and these settings."""
        cell = self.cells.get(key)
        return (
            cell
            if cell is not None and cell["settings"] == json.loads(json.dumps(settings))
            else None
        )

    def add(self, key: str, settings: dict[str, Any], outcome: dict[str, Any]) -> None:
        """Keep a finished cell."""
        self.cells[key] = json.loads(json.dumps({"settings": settings, **outcome}))
        self._write()

    def reorder(self, keys: list[str]) -> None:
        """Keep just these cells, in this order: the file then does not tell in which order they were computed."""
        arranged = {key: self.cells[key] for key in keys if key in self.cells}
        if list(arranged) != list(self.cells):
            self.cells = arranged
            self._write()

    def _write(self) -> None:
        lines = ",\n".join(
            f"  {json.dumps(key)}: {json.dumps(cell)}" for key, cell in self.cells.items()
        )
        head = json.dumps({"schema": SCHEMA, **self.header})[:-1]
        write(self.path, f'{head}, "cells": {{\n{lines}\n}}}}\n')


@contextlib.contextmanager
def alone(path: Path, remedy: str) -> Iterator[None]:
    """Refuse to go on where another process writes the same file."""
    lock = path.with_name(f".{path.name}.lock")
    try:
        handle = _locked(lock)
    except BlockingIOError:
        raise FileError(f"another run is writing {path}. Wait for it, or {remedy}.") from None
    except OSError as error:
        raise _unwritten(path, error) from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def _locked(lock: Path) -> int:
    """A file of our own, open and locked: held until it is closed, also by a kill. Where the system has no such locks, just open."""
    while True:
        handle = os.open(lock, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock.exists() and os.path.samestat(os.fstat(handle), os.stat(lock)):
                return handle
            os.close(handle)  # the run before removed it in between
        except ImportError:
            return handle
        except OSError:
            os.close(handle)
            raise


@contextlib.contextmanager
def ledger(path: Path, header: dict[str, Any]) -> Iterator[Ledger]:
    """A ledger that no other process writes at the same time."""
    with alone(path, "name another folder with --out"):
        yield Ledger(path, header)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
