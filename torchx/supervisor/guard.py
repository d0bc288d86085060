"""Stands behind a supervisor: when that is killed, ends all that it left, at once, and says so on record.

What a killed supervisor had started becomes the guard's: nothing gets out of its sight, not even a daemon
that has taken off its environment. While the supervisor lives the guard sleeps, and shares its memory.
"""

from __future__ import annotations

import contextlib
import os
import signal

from torchx.errors import TorchxError
from torchx.jobs.paths import JobPaths
from torchx.jobs.recovery import bury  # now, not when it is needed: this program may be upgraded meanwhile
from torchx.jobs.view import load
from torchx.machine import processes
from torchx.machine.processes import Process
from torchx.supervisor import ending


def detach() -> None:
    """Goes on in a child process, so that the one who started this process need not look after it."""
    if os.fork():
        os._exit(0)


def watch(supervisor: int, paths: JobPaths) -> None:
    """Waits for the end of the supervisor, and ends its job if it could not do so itself.

    Args:
        supervisor: its pid, a child of this process.
        paths: where the job is on record.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # whoever asks the guard to end means the job
        signal.signal(number, lambda number, _: os.kill(supervisor, number))
    os.waitid(os.P_PID, supervisor, os.WEXITED | os.WNOWAIT)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _, status = os.waitpid(supervisor, 0)
    if status == 0:
        return
    with contextlib.suppress(OSError, TorchxError):  # a record that was removed or damaged meanwhile
        view = load(paths)
        if not view.has_ended:
            bury(view, paths, _left)
    ending.kill(ending.of_this_process())


def _left() -> set[Process]:
    """Returns what the supervisor has left; what has ended of it is reaped on the way."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return processes.family([os.getpid()])
