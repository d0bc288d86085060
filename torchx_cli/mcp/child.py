"""The process of one command of the server; its arguments arrive on stdin, where no other user sees them."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Sequence

from torchx_cli.main import main as run

EXIT_ABANDONED = 143
"""128 + SIGTERM."""


def main(arguments: Sequence[str]) -> None:
    """Runs the command line on the first line of stdin; ends if stdin is closed before the command ends."""
    request = os.dup(0)
    argv = json.loads(_first_line(request))
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    os.close(devnull)
    # the answer is alone on its descriptor: programs and libraries that print reach stderr
    answer = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = open(answer, "w", encoding="utf-8")  # noqa: SIM115  # kept open
    threading.Thread(target=_end_with, args=(request,), daemon=True).start()
    sys.argv = ["torchx", *argv]  # the command line that is recorded
    sys.exit(run(argv))


def _first_line(descriptor: int) -> bytes:
    line = b""
    while not line.endswith(b"\n") and (data := os.read(descriptor, 1 << 16)):
        line += data
    return line


def _end_with(descriptor: int) -> None:
    """Ends this process with the server, or when the server closes the descriptor."""
    while os.read(descriptor, 1):
        pass
    os._exit(EXIT_ABANDONED)
