"""Files of points (input) and of values (output): CSV or npz."""

from __future__ import annotations

import contextlib
import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heatnets._core.atomic_files import check_writable, write
from heatnets._core.errors import InputError, short_repr
from heatnets._core.reasons import Reason, ReasonKind

if TYPE_CHECKING:
    import numpy as np

    from heatnets.pde.problem import Problem

LARGEST = 2**30  # bytes of a file of points
_TIMES = ("t", "time", "times")  # names that a column of times may have


def read(path: Path, problem: Problem, lines: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Read points from a CSV file (- is standard input), or from an npz file with arrays t and x.

    A CSV file has rows `t, x_1, ..., x_d`, or `t, x` with one number for all coordinates. The first
    line may hold names; empty lines and lines that begin with # are skipped. `lines` is what
    standard input held, if it was read before.

    Returns:
        t of shape (n,) and x of shape (n, dim).
    """
    import numpy as np

    if str(path) != "-" and not path.exists():
        raise InputError(
            f"there is no file {path}. It should hold rows: t, x_1, ..., x_{problem.dim}."
        )
    if path.is_file() and path.stat().st_size > LARGEST:
        raise InputError(f"{path} has more than {LARGEST} bytes: split it.")
    if path.suffix == ".npz":
        return _read_npz(path, problem)
    row_format = f"rows are t and {problem.dim} coordinates, or t and one number for all of them"
    t, x, has_header = list[float](), list[np.ndarray](), False
    with _open(path) if lines is None else io.StringIO(lines) as file:
        try:
            for number, row in enumerate(csv.reader(file), 1):
                if not row or row[0].lstrip().startswith("#"):
                    continue
                values = [_as_number(cell) for cell in row]
                if not t and not has_header and all(value is None for value in values):
                    has_header = True
                    if row[0].strip().lower() not in _TIMES:
                        raise InputError(
                            f"{path}: the first column is named {short_repr(row[0])}; it must hold "
                            f"the time t. In this order: {row_format}."
                        )
                    continue
                if None in values:
                    raise InputError(
                        f"{path}, line {number}: {short_repr(','.join(row))} is not made of "
                        f"numbers; {row_format}."
                    )
                if len(row) not in (2, 1 + problem.dim):
                    raise InputError(f"{path}, line {number}: {len(row)} numbers; {row_format}.")
                t.append(values[0])
                x.append(np.broadcast_to(np.array(values[1:], float), (problem.dim,)))
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not a CSV file ({error}).") from None
    if not t:
        raise InputError(f"{path} holds no points; {row_format}.")
    return np.array(t), np.stack(x)


def _open(path: Path) -> Any:
    """A CSV file as text; standard input for -, which is left open."""
    if str(path) == "-":
        return contextlib.nullcontext(sys.stdin)
    try:
        return open(path, newline="", encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None


def _as_number(cell: str) -> Any:
    """The number in a cell of a CSV file; None if there is none."""
    try:
        return float(cell)
    except ValueError:
        return None


def _read_npz(path: Path, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Read the arrays t and x of an npz file; one t may stand for all points."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as arrays:
            t, x = np.asarray(arrays["t"], float), np.asarray(arrays["x"], float)
    except Exception as error:
        raise InputError(
            f"{path} must hold arrays of numbers t (n,) and x (n, {problem.dim}): {error}."
        ) from None
    if x.ndim != 2 or x.shape[1] != problem.dim:
        raise InputError(f"{path}: x must have shape (n, {problem.dim}); got {x.shape}.")
    return np.broadcast_to(t, (len(x),)).copy(), x


def flags(problem: Problem, t: np.ndarray, x: np.ndarray) -> list[str]:
    """One note per point: "" inside horizon and region, else why its value is not reliable."""
    import numpy as np

    outside_horizon = (t < 0) | (t > problem.horizon * (1 + 1e-6)) | ~np.isfinite(t)
    no_value = Reason(
        ReasonKind.OUTSIDE_HORIZON, f"no value: outside the horizon, 0 to {problem.horizon:g}"
    )
    return [
        no_value if outside else "" if inside else "extrapolated: outside the region"
        for outside, inside in zip(outside_horizon, problem.region.contains(x), strict=True)
    ]


def join_notes(*notes: str) -> str:
    """Join the notes that are not empty."""
    return "; ".join(filter(None, notes))


def save(path: Path, columns: dict[str, Any]) -> Path:
    """Write columns of one length as CSV, or as arrays in an npz file."""
    import numpy as np

    if path.suffix != ".npz":
        return write(path, as_csv(columns))
    out = io.BytesIO()
    np.savez(out, **{name: np.asarray(values) for name, values in columns.items()})  # type: ignore[arg-type]
    return write(path, out.getvalue())


def as_csv(columns: dict[str, Any]) -> str:
    """Columns as CSV text, numbers with all their digits; a matrix becomes name_1, name_2, ..."""
    import numpy as np

    flat = dict[str, Any]()
    for name, values in columns.items():
        if np.ndim(values) == 2:
            flat |= {f"{name}_{k}": column for k, column in enumerate(values.T, 1)}
        else:
            flat[name] = values
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(flat)
    for row in zip(*flat.values(), strict=True):
        writer.writerow([repr(float(v)) if isinstance(v, np.floating) else v for v in row])
    return out.getvalue()


def check_output(path: Path | None, endings: tuple[str, ...]) -> None:
    """Raise an error if an output file cannot be written or has a wrong ending; before any work."""
    if path is None:
        return
    if path.suffix.lower() not in endings:
        raise InputError(f"{path} must end with {' or '.join(endings)}.")
    check_writable(path)
