"""The supervisor's side of time limits: the clock of each run, the notice, the environment of replicas."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Collection, Mapping

from torchx import settings
from torchx.end_causes import EndCause, Reason
from torchx.jobs.paths import JobPaths
from torchx.jobs.record import JobRecord
from torchx.machine import files, processes
from torchx.machine.processes import Entry, Process
from torchx.printable import counted
from torchx.scheduling.limits import LimitRule, exact
from torchx.supervisor.policies import Policy, Replica
from torchx.supervisor.policy import Action, Gang, Requeue
from torchx.supervisor.replicas import Replicas

OF_A_RUN = (
    settings.TORCHX_RUN,
    settings.TORCHX_ENDS_AT,
    settings.TORCHX_NOTICE,
    settings.TORCHX_CHECKPOINT_DIR,
)
"""The variables of a run."""


NOTICE, LIMIT = "notice", "limit"

AGAIN_AFTER = 2.0
"""Seconds until the next notice to processes that do not handle its signal yet."""
LONGEST_PAUSE = 16.0
"""The same for replicas of which a process has got it; others may be helpers that never handle it."""


def latest_end(record: JobRecord) -> float | None:
    """Returns the latest end of a job that starts now, seconds since the epoch; None if unknown."""
    rule = rule_of(record)
    if rule.limit is None or rule.requeue:
        return None
    return time.time() + rule.limit + record.grace


class Limits(Policy[Replica]):
    """The time limit of a job and its runs.

    Args:
        record: the job.
        paths: its record.
        replicas: its replicas.
        gang: its rules.
        note: appends to its events.
    """

    before_ends = True  # programs may end because of the notice

    def __init__(
        self,
        record: JobRecord,
        paths: JobPaths,
        replicas: Replicas,
        gang: Gang,
        note: Callable[..., None],
    ) -> None:
        self._rule = rule_of(record)
        self._gang, self._note, self._replicas = gang, note, replicas
        self._coming: list[tuple[float, str]] = []  # when the notice and the limit of the run are due
        self._ends_at: float | None = None  # the end of the run, seconds since the epoch
        self._unreached: set[Process] = set()  # the replicas of which not all processes have got the notice
        self._complete: set[Process] = set()  # those of which all have got it when it was sent last
        self._notified: set[Process] = set()
        self._pause = AGAIN_AFTER
        self._again_at = 0.0
        self._checkpoints = self._rule.checkpoint_dir or str(paths.checkpoints)
        with contextlib.suppress(OSError):  # a full disk: the programs report it
            files.make_folder(paths.checkpoints)
        gang.requeues = self._rule.requeues

    def variables(self, ordinal: int) -> Mapping[str, str]:
        """Returns the variables of the run."""
        self.begin()
        return {
            **self._rule.variables(self._gang.run, self._ends_at),
            settings.TORCHX_CHECKPOINT_DIR: self._checkpoints,
        }

    def begin(self) -> None:
        """Begins the run with the start of its first replica."""
        if self._ends_at is None and self._rule.limit is not None:
            self._ends_at = time.time() + self._rule.limit
            end = time.monotonic() + self._rule.limit
            self._coming = [(end - self._rule.notice, NOTICE), (end, LIMIT)]
            if not self._rule.notice:
                del self._coming[0]

    def pause(self) -> float | None:
        """Returns the seconds until the notice or the limit, None without one."""
        if not self._coming or self._gang.cancelled or self._gang.decided:
            return None
        wait = max(self._coming[0][0] - time.monotonic(), 0.0)
        if self._unreached:
            return min(wait, self._pause)
        return wait

    def due(self) -> list[Action]:
        """Sends the notice if it is due; returns the actions that the limit requires if that is due."""
        now, due = time.monotonic(), ""
        if self._coming and now >= self._coming[0][0] and not (self._gang.cancelled or self._gang.decided):
            due = self._coming.pop(0)[1]
        if due == NOTICE:
            self._gang.notice()
            self._unreached = {running.process for running in self._replicas.by_pid.values()}
            self._notified, self._complete, self._pause = set(), set(), AGAIN_AFTER
            self._send_notice()
        elif due == LIMIT:
            self._unreached.clear()
            return self._gang.expire()
        elif self._unreached and now >= self._again_at:
            self._send_notice(again=True)
        return []

    def _send_notice(self, *, again: bool = False) -> None:
        """Sends the notice to the programs that handle its signal, and records it.

        Those that do not yet, since they are starting, get it later.
        """
        self._unreached &= {running.process for running in self._replicas.by_pid.values()}
        name = f"SIG{self._rule.signal}"
        number = signal.Signals[name]
        found, incomplete = handling(self._unreached, number)
        # twice: a child has the handlers of a shell until it is a program, and hides the shell
        reached, self._complete = self._complete - incomplete, self._unreached - incomplete
        self._unreached -= reached
        new = [process for group in found.values() for process in group if process not in self._notified]
        self._notified.update(new)
        sent = sum(processes.send(process, number) for process in new)
        if self._unreached <= found.keys():
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        else:
            self._pause = AGAIN_AFTER
        self._again_at = time.monotonic() + self._pause
        if again and not sent:
            return
        count = counted(sent, "process", "processes")
        self._note(
            "notice",
            msg=f"{exact(self._rule.notice)} before the time limit; {name} sent to {count}",
            run=self._gang.run,
        )

    def requeued(self, requeue: Requeue) -> None:
        """Records a requeue; the next start begins the next run."""
        self._ends_at, self._coming = None, []
        self._note("requeue", n=requeue.number, of=requeue.allowed, why="time limit")

    @property
    def reason(self) -> Reason | None:
        """The reason for the end of the job, if it is the time limit."""
        if self._gang.expired:
            return Reason(self._rule.reached(self._gang.run), EndCause.TIME_LIMIT)
        return None


def own_run(env: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without the variables of the run of another job, from which this one started."""
    return {name: value for name, value in env.items() if name not in OF_A_RUN}


def rule_of(record: JobRecord) -> LimitRule:
    """Returns the rule of a job; an empty one if its record is damaged."""
    try:
        return LimitRule.of(record.cfg)
    except ValueError:
        return LimitRule()


def handling(leaders: Collection[Process], number: int) -> tuple[dict[Process, list[Process]], set[Process]]:
    """Returns the processes of each replica that handle a signal: those nearest to its main process.

    The signal would end a process without a handler, such as a shell or the agent of torchrun, so the
    processes that it has started are searched instead. Those below a process with a handler belong to it.

    Args:
        leaders: the main processes of replicas.
        number: the signal.

    Returns:
        These processes by replica, and the replicas with a process that does not handle the signal, nor one
        that it has started.
    """
    children: dict[int, list[Entry]] = {}
    for entry in processes.table():
        children.setdefault(entry.parent, []).append(entry)
    found: dict[Process, list[Process]] = {}
    incomplete: set[Process] = set()
    for leader in leaders:
        todo = [leader]
        while todo:
            process = todo.pop()
            if _handles(process.pid, number):
                found.setdefault(leader, []).append(process)
            elif process.pid in children:
                todo += [child.process for child in children[process.pid]]
            else:
                incomplete.add(leader)
    return found, incomplete


def _handles(pid: int, number: int) -> bool:
    for line in processes.read_proc(f"/proc/{pid}/status").splitlines():
        name, _, value = line.partition(b":")
        if name == b"SigCgt":
            return bool(int(value, 16) >> (number - 1) & 1)
    return False
