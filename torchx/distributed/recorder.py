"""Dumps of PyTorch's flight recorder on request, for backends without a thread for it, such as gloo.

As with NCCL, a byte in a pipe requests a dump; ``torchx run --stall`` sets the variables and writes the byte.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

THREAD = "torchx-dumps"
"""The name of the thread, which ``torchx stacks`` leaves out."""

PIPE, DUMP = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DUMP_TEMP_FILE"
"""The variables with the beginnings of the paths of pipes and dumps, which the rank follows."""

_started: set[int] = set()


def answer_dump_requests(rank: int, dump: Callable[[], bytes] | None) -> None:
    """Starts the thread that answers requests, if they are set up.

    Args:
        rank: the rank of this process.
        dump: PyTorch's function that returns a dump; None if this version cannot dump.
    """
    pipe, target = os.environ.get(PIPE), os.environ.get(DUMP)
    if not pipe or not target or dump is None or rank in _started:
        return
    path = Path(f"{pipe}{rank}.pipe")
    try:
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        # open for writing too: it never ends
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # no dumps
        return
    _started.add(rank)
    arguments = (descriptor, Path(f"{target}{rank}"), dump)
    threading.Thread(target=_answer, args=arguments, name=THREAD, daemon=True).start()


def _answer(descriptor: int, path: Path, dump: Callable[[], bytes]) -> None:
    new = Path(f"{path}.new")
    while os.read(descriptor, 64):
        with suppress(OSError, RuntimeError):
            new.write_bytes(dump())
            new.replace(path)
