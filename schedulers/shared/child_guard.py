"""The process that ends a program of `torchx exec` with all processes below it if the command line is killed.

The kernel ends only the program itself then. The process learns the end of the command line from a pipe.
"""

from __future__ import annotations

import signal

from torchx.jobs.recovery import end_processes
from torchx.machine import marks, processes
from torchx.machine.processes import Process
from torchx.schedulers.shared.exec_guard import ENDED, VARIABLE

GRACE = 2.0
"""Seconds between TERM and KILL."""


def main(argv: list[str]) -> None:
    """Waits for the end of the command line.

    Args:
        argv: the mark of the processes, and the descriptor of a pipe with the pid and the start time of the
            program, and with :data:`ENDED` at its end.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    with open(int(argv[1]), "rb") as pipe:
        program, end = pipe.readline().split(), pipe.readline()
    if end == ENDED:  # the processes that the program has left may stay
        return

    def find() -> set[Process]:
        found = set(marks.marked(VARIABLE, argv[0]))
        if program:
            leader = Process(*map(int, program))
            entry = processes.look_up(leader.pid)
            if entry is None or entry.process == leader:  # its pid is not reused
                found |= processes.family([leader.pid])
            if processes.is_alive(leader):
                found.add(leader)
        return found

    end_processes(find, GRACE)
