"""The program `torchx`, also as `python -m torchx_cli`: begins and ends the process in little time."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from typing import NoReturn

FEW = 100_000
"""New objects after which Python looks for garbage; most of them are parts of modules, and none."""


def program() -> NoReturn:
    """Runs the command line of this process and ends the process."""
    gc.set_threshold(FEW)
    from torchx_cli.main import main

    leave(main())


def leave(code: int) -> NoReturn:
    """Ends this process when all is done that is to be done at its exit.

    The interpreter is not taken down piece by piece: that takes a tenth of the time of a short command, and
    the kernel frees the same at once.

    Args:
        code: the exit code.
    """
    threading = sys.modules.get("threading")  # where nobody has loaded it there is this thread alone
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
