"""The supervisor's process, started by launch.py alone."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from torchx.jobs import ended
from torchx.jobs.paths import JobPaths, LogPaths
from torchx.jobs.record import JobRecord
from torchx.jobs.view import load
from torchx.machine import marks as process_marks
from torchx.machine import processes
from torchx.machine.processes import Process
from torchx.supervisor import guard
from torchx.supervisor.loop import Supervisor


def main(argv: list[str]) -> None:
    """Runs a job, with a guard behind.

    Args:
        argv: the job's folder, and the descriptor on which to say ``ready`` once the job is on record.
    """
    paths, ready = JobPaths(Path(argv[0])), int(argv[1])
    processes.keep_descriptors_to_itself()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # what the caller has blocked is to reach us
    guard.detach()
    processes.become_subreaper()
    supervisor = os.fork()
    if supervisor:
        os.close(ready)
        guard.watch(supervisor, paths)
    else:
        processes.become_subreaper()
        supervise(paths, ready)
    os._exit(0)  # all is written; taking down the interpreter would only make others wait


def supervise(paths: JobPaths, ready: int) -> None:
    """Runs a job to its end.

    Args:
        paths: where it is on record.
        ready: descriptor on which to say that the job has a supervisor.
    """
    umask = os.umask(0o077)  # all that it makes is private; the replicas get back the one of the caller
    record = JobRecord.load(paths.record)
    process_marks.mark_limit(process_marks.mark_of(record.app_id))
    supervisor = Supervisor(record, paths, os.environ, umask)
    me, behind = _process(os.getpid()), _process(os.getppid())
    supervisor.note(
        "supervisor",
        pid=me.pid,
        start=me.start,
        boot=processes.boot_id(),
        guard=[behind.pid, behind.start],
    )
    with contextlib.suppress(BrokenPipeError):  # whoever started it was killed: the job runs all the same
        os.write(ready, b"ready")
    os.close(ready)
    supervisor.run()
    view = load(paths)
    paths.reserve.unlink(missing_ok=True)
    ended.write_success(view, LogPaths(Path(record.log_dir)))
    ended.remember(view, paths)
    processes.send(behind, signal.SIGCONT)  # a guard that was stopped would hold the job's lock


def _process(pid: int) -> Process:
    entry = processes.look_up(pid)
    return entry.process if entry is not None else Process(pid, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
