"""The guard of a supervisor: if the supervisor is killed, ends its processes and records the end of the job.

The guard adopts all processes of a killed supervisor, even a daemon that has cleared its environment. While
the supervisor is alive, the guard sleeps and shares its memory.
"""

from __future__ import annotations

import contextlib
import os
import signal

from torchx.errors import TorchxError
from torchx.jobs.paths import JobPaths
from torchx.jobs.recovery import finalize_orphaned_job  # now: torchx may be upgraded while the job runs
from torchx.jobs.view import load
from torchx.machine import processes
from torchx.machine.processes import Process
from torchx.notifications import launch as notifications
from torchx.supervisor import ending


def watch(supervisor: int, paths: JobPaths) -> None:
    """Waits for the end of the supervisor; ends the job if the supervisor could not.

    Args:
        supervisor: its pid, a child of this process.
        paths: the record of the job.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # a request to end the guard is meant for the job
        signal.signal(number, lambda number, _: os.kill(supervisor, number))
    os.waitid(os.P_PID, supervisor, os.WEXITED | os.WNOWAIT)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _, status = os.waitpid(supervisor, 0)
    if status == 0:
        return
    with contextlib.suppress(OSError, TorchxError):  # the record was removed or damaged in the meantime
        view = load(paths)
        if not view.has_ended:
            finalize_orphaned_job(view, paths, _remaining)
    ending.kill(ending.descendants())
    notifications.start(paths)


def _remaining() -> set[Process]:
    """Reaps ended processes; returns the remaining processes of the supervisor."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return processes.family([os.getpid()])
