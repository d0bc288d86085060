"""The supervisor's process, started by launch.py alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from torchx import processes
from torchx.jobs import ended
from torchx.jobs.paths import JobPaths, LogPaths
from torchx.jobs.record import JobRecord
from torchx.jobs.view import load
from torchx.supervisor.loop import Supervisor


def main(argv: list[str]) -> None:
    """Runs a job.

    Args:
        argv: the job's folder, and the descriptor on which to say ``ready`` once the job is on record.
    """
    paths, ready = JobPaths(Path(argv[0])), int(argv[1])
    record = JobRecord.load(paths.record)
    processes.keep_descriptors_to_itself()
    processes.become_subreaper()
    me = processes.look_up(os.getpid())
    supervisor = Supervisor(record, paths, os.environ)
    supervisor.note(
        "supervisor", pid=os.getpid(), start=me.process.start if me else 0, boot=processes.boot_id()
    )
    os.write(ready, b"ready")
    os.close(ready)
    supervisor.run()
    view = load(paths)
    paths.reserve.unlink(missing_ok=True)
    ended.write_success(view, LogPaths(Path(record.log_dir)))
    ended.remember(view, paths)


if __name__ == "__main__":
    main(sys.argv[1:])
