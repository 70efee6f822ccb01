"""`heatnets problems | new`: the list of named problems, and templates of problem files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heatnets._core.atomic_files import check_writable, write
from heatnets._core.errors import FileError, InputError
from heatnets.cli import terminal
from heatnets.cli.terminal import option


def problems(
    kind: Annotated[
        str | None, option("heat, linear, variable, semilinear or finance.", "all")
    ] = None,
    as_json: terminal.JsonFlag = False,
) -> None:
    """List the named problems: formula, exact solution if it is known, parameters."""
    from heatnets import problems as library

    entries = {
        name: {"is": library.words_of(name), "parameters": library.parameters_of(name)}
        for name in library.names(kind)
    }
    if as_json:
        terminal.print_json(entries)
        return
    console = terminal.console()
    for name, entry in entries.items():
        console.print(f"{name}  ({', '.join(entry['parameters'])})", style="bold")
        console.print(f"    {entry['is']}", soft_wrap=not console.is_terminal)


def new(
    name: Annotated[
        str, typer.Argument(help="Of the file: NAME.toml, or NAME.py.", show_default=False)
    ],
) -> None:
    """Write a commented problem file as a template: TOML, or Python if the name ends with .py."""
    path = Path(name if name.endswith((".toml", ".py")) else f"{name}.toml")
    if not path.stem or path.stem.startswith("-"):
        raise InputError(f"{name!r} cannot name a file.")
    check_writable(path)
    if path.exists():
        raise FileError(f"{path} is there already: choose another name. Nothing was written.")
    template = Path(__file__).parent / "templates" / f"problem{path.suffix}.txt"
    write(path, template.read_bytes())
    terminal.console().print(f"{path}: edit it, then `heatnets solve {path}`")
