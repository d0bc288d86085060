"""Starts the sender of a local job's notifications, without waiting for it."""

from __future__ import annotations

import contextlib
import os

from torchx.jobs.paths import JobPaths
from torchx.machine import files, processes
from torchx.supervisor import process

MODULE = "torchx.notifications.sender"


def start(paths: JobPaths, event: str = "end", *, reap: bool = False) -> None:
    """Starts the sender of a job's notifications, if the job has any.

    An error is ignored: the end of a job does not depend on it, and the next `torchx status` starts a sender.

    Args:
        paths: the job.
        event: end or stall.
        reap: wait for the first process, which ends when the sender has separated from the caller.
    """
    if not paths.notifications.exists():
        return
    with contextlib.suppress(OSError):
        log = files.open_file(paths.notifications / "sender.log", files.APPEND)
        try:
            child = processes.spawn(process.python_command(MODULE, [str(paths.folder), event]), stderr=log)
        finally:
            os.close(log)
        if reap:
            process.reap(child.pid)
