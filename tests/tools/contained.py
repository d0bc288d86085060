"""Runs a command for a limited time, and ends all processes that it leaves: those of a changed supervisor.

As root it runs the command in a PID namespace of its own, since changed code may signal wrong processes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # not the changed copy that the command imports

from torchx.machine import processes

TIMED_OUT = "the time limit ended the tests"
"""Printed if the command took too long."""
NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def main(argv: list[str]) -> int:
    """Runs `SECONDS COMMAND...`; returns 0 if the command succeeds within that time."""
    if os.getpid() != 1 and not os.geteuid() and shutil.which(NAMESPACE[0]):
        os.execvp(NAMESPACE[0], [*NAMESPACE, sys.executable, "-I", "-S", __file__, *argv])
    if not processes.become_subreaper():
        sys.exit("cannot contain the processes of the tests: this system has no subreapers")
    command = subprocess.Popen(argv[1:])
    signal.signal(signal.SIGALRM, lambda *_: time_out())
    signal.setitimer(signal.ITIMER_REAL, float(argv[0]))
    while True:
        pid, status = os.wait()  # orphans too: tests wait until their processes are gone
        if pid == command.pid:
            end_descendants()
            return os.waitstatus_to_exitcode(status) and 1


def time_out() -> None:
    """Ends the command, and prints that it was ended."""
    end_descendants()
    os.write(1, f"{TIMED_OUT}\n".encode())


def end_descendants() -> None:
    """Ends all descendants of this process, which adopts those whose parents have ended."""
    while remaining := {
        process for process in processes.family([os.getpid()]) if processes.is_alive(process)
    }:
        for process in remaining:
            processes.send(process, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
