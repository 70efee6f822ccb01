"""Command line: `heatnets demo | solve | launch | eval | info | plot | problems | ...`.

JAX and other slow imports are inside the commands, so that `--help` is fast.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

from heatnets import __version__
from heatnets._core.compilation_cache import use_compilation_cache
from heatnets.cli import demo, launch, problems, reproduce, results, solve, terminal
from heatnets.cli.exit_codes import exit_code, exit_on_signals

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Parabolic PDEs in high dimension."
)


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error came from; may stand anywhere.")
    ] = False,
) -> None:
    if show:
        print(f"heatnets {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


for _command in (
    demo.demo,
    solve.solve,
    results.evaluate,
    results.info,
    results.plot,
    problems.problems,
    problems.new,
    reproduce.reproduce,
    demo.doctor,
):
    app.command("eval" if _command is results.evaluate else None)(_command)
app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(
    launch.launch
)


def main() -> None:
    """Entry point: run a command, and print errors as one line on standard error.

    Exit codes: 2 input, 3 numerical, 4 resources, 5 files, 130 interrupted.
    """
    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    exit_on_signals(lambda: "nothing was written")
    terminal.show_warnings_as_lines()
    use_compilation_cache()
    try:
        app(standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if hasattr(error, "format_message"):  # usage errors of click
            print(f"heatnets: {error.format_message()} Try heatnets --help.", file=sys.stderr)
            sys.exit(2)
        code = exit_code(error, debug)
        if "--distributed" in sys.argv:
            if code is None:
                traceback.print_exception(error)
            launch.leave(error, 1 if code is None else code)
        if code is None:
            raise
        sys.exit(code)
    sys.exit(0)


if __name__ == "__main__":
    main()
