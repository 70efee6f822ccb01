"""Exit codes of errors, and handlers for Ctrl-C and SIGTERM."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from heatnets._core import atomic_files
from heatnets._core.errors import InputError, NumericalError, ResourceError

# The first class that an error is an instance of decides.
EXIT_CODES = {NumericalError: 3, InputError: 2, ResourceError: 4, OSError: 5}


def exit_code(error: Exception, debug: bool) -> int | None:
    """Print an error on standard error and return its exit code; None for a bug of heatnets."""
    code = next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), None)
    if debug:
        traceback.print_exception(error)
    if code is not None:
        print(f"heatnets: {error}", file=sys.stderr)
    return code


def exit_on_signals(saved: Callable[[], str]) -> None:
    """On Ctrl-C or SIGTERM print `saved()`, a sentence about the saved files, and exit at once.

    An exception could be swallowed in a callback of JAX, or crash the interpreter if it shuts down
    while XLA is still running. Files are written atomically, so that only the cursor of the
    terminal must be restored.
    """

    def end(number: int, _: Any) -> None:
        try:
            atomic_files.remove_partial_files()
            message = saved()
            # The signal may have come in the middle of a print, or the pipe may be closed.
            with contextlib.suppress(Exception):
                sys.stdout.flush()
            show_cursor = "\x1b[?25h\n" if sys.stderr.isatty() else ""
            os.write(2, f"{show_cursor}heatnets: interrupted; {message}\n".encode())
        finally:
            os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
