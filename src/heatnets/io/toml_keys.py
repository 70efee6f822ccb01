"""Keys of a problem file that stand inside of a table by mistake, and keys that are set anew."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from heatnets import problems
from heatnets._core.errors import InputError, suggest
from heatnets.io.toml_schema import KEYS, ErrorCollector


def lift_misplaced(
    content: dict[str, Any], tables: Mapping[str, Iterable[str]], errors: ErrorCollector
) -> None:
    """Add an error for keys of the file that stand inside of a table, and lift them out of it.

    In TOML, a key below the header of a table belongs to this table.

    Args:
        content: the file, which is changed, so that the other errors are those of the file as it
            was meant.
        tables: the keys that each table may have, by its header.
        errors: the errors of the file.
    """
    if "problem" not in content:
        parameters = _entries(content, "parameters")
        meant = [k for k in parameters if k in KEYS and not _may_be_parameter(k, parameters[k])]
        tables = {**tables, "[parameters]": parameters.keys() - set(meant)}
    for header, known in {"[process]": (), **tables}.items():
        for table in _find_tables(content, header):
            lifted = [k for k in table if k in KEYS and k not in known and k not in content]
            for key in lifted:
                content[key] = table.pop(key)
            if lifted:
                names = [f"`{key}`" for key in lifted]
                listed = " and ".join([", ".join(names[:-1]), names[-1]]) if names[1:] else names[0]
                stand, it = ("stand", "them") if names[1:] else ("stands", "it")
                errors.add(
                    lifted[0],
                    f"{listed} {stand} inside of the table {header}: write {it} above the table. "
                    "In TOML, all keys below the header of a table belong to it.",
                )


def _may_be_parameter(key: str, value: Any) -> bool:
    """Whether a key of the file may be a name in [parameters], too: of a constant."""
    if key in ("dim", "horizon", "initial", "terminal") or isinstance(value, dict):
        return False
    return not re.search(r"\b(t|x|u|du)\b", str(value))


def _find_tables(content: Mapping[str, Any], header: str) -> Iterator[dict[str, Any]]:
    """The tables of a header: none, one, or several [[tables]]."""
    table: Any = content
    for part in header.strip("[]").split("."):
        table = table.get(part) if isinstance(table, dict) else None
    for entry in table if isinstance(table, list) else [table]:
        if isinstance(entry, dict):
            yield entry


def set_key(content: dict[str, Any], key: str, value: Any, name: str) -> None:
    """Set a value of a TOML file: a parameter, or a key with its tables before it and dots.

    A parameter of the process may be named without its kind: `process.rate`.

    Args:
        content: the file, which is changed.
        key: the key.
        value: its new value.
        name: the file, for messages.
    """
    is_parameter = key in (*_entries(content, "parameters"), *_named_parameters(content))
    *tables, last = ["parameters", key] if is_parameter else key.split(".")
    if tables in (["parameters"], ["solve"]):
        content.setdefault(tables[0], {})
    elif tables == ["process"]:
        tables += list(_entries(content, "process"))[:1]
    table: Any = content
    for part in tables:
        table = table.get(part) if isinstance(table, dict) else None
    if not isinstance(table, dict) or (table is content and last not in KEYS):
        raise InputError(
            f"{name}: `{key}` is neither a parameter nor a key that can be set; "
            f"{suggest(key, _settable(content))}"
        )
    table[last] = value


def _entries(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The table `key` of the file; empty if there is none."""
    table = content.get(key)
    return table if isinstance(table, dict) else {}


def _named_parameters(content: Mapping[str, Any]) -> list[str]:
    """The parameters of the named problem of a file, also those that it leaves at defaults."""
    name = content.get("problem")
    known = problems.parameters_of(name) if name in problems.names() else []
    return [parameter for parameter in known if parameter not in KEYS]


def _settable(content: Mapping[str, Any]) -> list[str]:
    """The names of what a file states, as they are set."""
    names = [k for k in content if not isinstance(content[k], dict | list)]
    names += [*_entries(content, "parameters"), *_named_parameters(content)]
    names += [f"solve.{key}" for key in _entries(content, "solve")]
    processes = _entries(content, "process")
    return names + [f"process.{key}" for kind in processes for key in _entries(processes, kind)]
