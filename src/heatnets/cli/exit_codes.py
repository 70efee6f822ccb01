"""How commands end: exit codes with words, and interruptions that lose nothing."""

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

EXIT_CODES = {NumericalError: 3, InputError: 2, ResourceError: 4, OSError: 5}  # the first that fits


def code_of(error: Exception, debug: bool) -> int | None:
    """The exit code of an error, which is said on standard error; None for one that is no one's mistake but ours."""
    code = next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), None)
    if debug:
        traceback.print_exception(error)
    if code is not None:
        print(f"heatnets: {error}", file=sys.stderr)
    return code


def ends_at_once(kept: Callable[[], str]) -> None:
    """On Ctrl-C or SIGTERM say what is kept and end, there and then.

    An exception would be swallowed where it lands in one of JAX's callbacks, and crash the interpreter where XLA is still at work
    when it shuts down; files are whole or not there, so that nothing needs an orderly retreat but the terminal's cursor.
    """

    def end(number: int, _: Any) -> None:
        try:
            atomic_files.remove_partial_files()
            words = kept()
            with contextlib.suppress(
                Exception
            ):  # the signal came in the middle of a print, or no one reads
                sys.stdout.flush()
            cursor = "\x1b[?25h\n" if sys.stderr.isatty() else ""
            os.write(2, f"{cursor}heatnets: interrupted; {words}\n".encode())
        finally:
            os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
