"""Entry point of `torchx` and `python -m torchx_cli`, with fast startup and exit."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from typing import NoReturn

from torchx_cli import placeholder

GC_THRESHOLD = 100_000
"""New objects before a garbage collection; most belong to modules and are never garbage."""

UNUSED_BY_MOST = ("ast", "bz2", "ipaddress", "lzma", "subprocess", "tokenize")
"""Modules that Typer and the standard library import, and that few commands use."""


def program() -> NoReturn:
    """Runs the command line of this process and exits."""
    gc.set_threshold(GC_THRESHOLD)

    if sys.argv[1:2] != ["__complete"]:
        placeholder.warn()  # before the first import of `torchx`, which may be that of another distribution
    try:
        from torchx.lazy import postpone

        postpone(
            *UNUSED_BY_MOST, platform={"system": lambda: os.uname().sysname}
        )  # `uuid` calls it when it is imported
        from torchx_cli.main import main
    except ImportError as error:
        if not placeholder.foreign_distributions():
            raise
        sys.stderr.write(f"error: {error}\n  {placeholder.REPAIR}\n")
        leave(1)
    leave(main())


def leave(code: int) -> NoReturn:
    """Runs the exit handlers and exits without finalizing the interpreter.

    Finalization takes a tenth of the time of a short command.

    Args:
        code: the exit code.
    """
    threading = sys.modules.get("threading")  # if not loaded, this is the only thread
    if threading is not None and any(
        thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()
    ):
        sys.exit(code)  # Python waits for them
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    program()
