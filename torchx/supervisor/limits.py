"""The supervisor's side of time limits: the clock of each run, the notice, the environment of replicas."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Collection, Mapping

from torchx import settings
from torchx.jobs.paths import JobPaths
from torchx.jobs.record import JobRecord
from torchx.machine import files, processes
from torchx.machine.processes import Entry, Process
from torchx.scheduling.limits import LimitRule, exact
from torchx.supervisor.clock import LIMIT, NOTICE, RunClock
from torchx.supervisor.policy import Action, Gang, Requeue
from torchx.supervisor.replicas import Replicas

OF_A_RUN = (
    settings.TORCHX_RUN,
    settings.TORCHX_ENDS_AT,
    settings.TORCHX_NOTICE,
    settings.TORCHX_CHECKPOINT_DIR,
)
"""The variables of a run."""


def latest_end(record: JobRecord) -> float | None:
    """Returns the latest end of a job that starts now, seconds since the epoch; None if unknown."""
    rule = rule_of(record)
    if rule.limit is None or rule.requeue:
        return None
    return time.time() + rule.limit + record.grace


class Limits:
    """The time limit of a job and its runs.

    Args:
        record: the job.
        paths: its record.
        replicas: its replicas; they get the variables of the run.
        gang: its rules.
        note: appends to its events.
    """

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
        self._clock = RunClock(self._rule)
        self._ends_at: float | None = None
        self._checkpoints = self._rule.checkpoint_dir or str(paths.checkpoints)
        with contextlib.suppress(OSError):  # a full disk: the programs report it
            files.make_folder(paths.checkpoints)
        replicas.variables.append(self._variables)
        gang.requeues = self._rule.requeues

    def _variables(self, _ordinal: int) -> Mapping[str, str]:
        self.begin()
        return {
            **self._rule.variables(self._gang.run, self._ends_at),
            settings.TORCHX_CHECKPOINT_DIR: self._checkpoints,
        }

    def begin(self) -> None:
        """Begins the run with the start of its first replica."""
        if self._clock.ends_at is None and self._rule.limit is not None:
            self._clock.begin(time.monotonic())
            self._ends_at = time.time() + self._rule.limit

    def pause(self) -> float | None:
        """Returns the seconds until the notice or the limit, None without one."""
        return self._clock.pause(time.monotonic())

    def due_actions(self) -> list[Action]:
        """Sends the notice if it is due; returns the actions that the limit requires if that is due."""
        due = "" if self._gang.cancelled or self._gang.over else self._clock.due(time.monotonic())
        if due == NOTICE:
            self._gang.notice()
            self._send_notice([running.process for running in self._replicas.by_pid.values()])
        return self._gang.expire() if due == LIMIT else []

    def _send_notice(self, leaders: Collection[Process]) -> None:
        """Sends the notice to the programs, and records it.

        Args:
            leaders: the main processes of the running replicas.
        """
        name = f"SIG{self._rule.signal}"
        number = signal.Signals[name]
        reached = [process for process in handling(leaders, number) if processes.send(process, number)]
        count = f"{len(reached)} process{'' if len(reached) == 1 else 'es'}"
        self._note(
            "notice",
            msg=f"{exact(self._rule.notice)} before the time limit; {name} sent to {count}",
            run=self._gang.run,
        )

    def requeued(self, requeue: Requeue) -> None:
        """Records a requeue; the next start begins the next run."""
        self._clock.end()
        self._note("requeue", n=requeue.number, of=requeue.allowed, why="time limit")

    @property
    def message(self) -> str:
        """The message about the end of the job by the time limit, or an empty text."""
        return self._rule.reached(self._gang.run) if self._gang.expired else ""


def own_run(env: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without the variables of the run of another job, from which this one started."""
    return {name: value for name, value in env.items() if name not in OF_A_RUN}


def rule_of(record: JobRecord) -> LimitRule:
    """Returns the rule of a job; an empty one if its record is damaged."""
    try:
        return LimitRule.of(record.cfg)
    except ValueError:
        return LimitRule()


def handling(leaders: Collection[Process], number: int) -> list[Process]:
    """Returns the processes that handle a signal: for each replica those nearest to its main process.

    The signal would end a process without a handler, such as a shell or the agent of torchrun, so the
    processes that it has started are searched instead. Those below a process with a handler belong to it.
    """
    children: dict[int, list[Entry]] = {}
    for entry in processes.table():
        children.setdefault(entry.parent, []).append(entry)
    found: list[Process] = []
    todo = list(leaders)
    while todo:
        process = todo.pop()
        if _handles(process.pid, number):
            found.append(process)
        else:
            todo += [child.process for child in children.get(process.pid, ())]
    return found


def _handles(pid: int, number: int) -> bool:
    for line in processes.read_proc(f"/proc/{pid}/status").splitlines():
        name, _, value = line.partition(b":")
        if name == b"SigCgt":
            return bool(int(value, 16) >> (number - 1) & 1)
    return False
