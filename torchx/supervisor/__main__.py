"""The process that supervises the replicas of a job, or guards the one that does; started by process.py."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from torchx.jobs import ended, ticket
from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.record import JobRecord
from torchx.jobs.view import load
from torchx.leases.holders import inherited
from torchx.leases.reception import answer
from torchx.machine import marks as process_marks
from torchx.machine import processes
from torchx.machine.processes import Process
from torchx.notifications import launch as notifications
from torchx.supervisor import guard
from torchx.supervisor.limits import latest_end
from torchx.supervisor.loop import Supervisor
from torchx.supervisor.process import fork, report_ready, separate


def main(argv: list[str]) -> None:
    """Runs a job with a guard.

    Args:
        argv: the job's folder, and the descriptor to write ``ready`` to when the supervisor is recorded.
    """
    paths, ready = JobPaths(Path(argv[0])), int(argv[1])
    separate()
    processes.become_subreaper()
    supervisor = fork()
    if supervisor:
        os.close(ready)
        guard.watch(supervisor, paths)
    else:
        processes.become_subreaper()
        supervise(paths, ready)
    os._exit(0)  # all is written; a normal exit of the interpreter would take longer


def supervise(paths: JobPaths, ready: int) -> None:
    """Runs a job to its end.

    Args:
        paths: its record.
        ready: descriptor to write ``ready`` to when the supervisor is recorded.
    """
    umask = os.umask(0o077)  # its own files are private; the replicas get the caller's umask
    record = JobRecord.load(paths.record)
    process_marks.mark_limit(process_marks.mark_of(record.app_id))
    supervisor = Supervisor(record, paths, os.environ, umask)
    answer(inherited(), record.app_id, latest_end(record))
    me, parent = _process(os.getpid()), _process(os.getppid())  # the parent is the guard
    supervisor.note(
        "supervisor",
        pid=me.pid,
        start=me.start,
        boot=processes.boot_id(),
        uptime=round(processes.uptime(), 3),
        guard=[parent.pid, parent.start],
    )
    if paths.is_waiting():  # the keeper may be killed before it does this
        ticket.clear(Home(paths.folder.parent.parent), paths)
    report_ready(ready)
    supervisor.run()
    ended.finish(load(paths), paths)
    notifications.start(paths)
    processes.send(parent, signal.SIGCONT)  # a stopped guard would keep the job's lock


def _process(pid: int) -> Process:
    entry = processes.look_up(pid)
    if entry is not None:
        return entry.process
    return Process(pid, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
