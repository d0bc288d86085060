"""Jobs of several users on fake GPUs while processes of the queue are killed at random."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from users import User

from torchx.leases.holders import names_in_use
from torchx.machine import processes
from torchx.machine.processes import Process

LINE = 'echo "{kind} $TORCHX_JOB_ID $CUDA_VISIBLE_DEVICES" >> "{trace}"'

SAMPLED_EVERY = 0.01
"""Seconds between two samples of the leases."""


class Submitted(NamedTuple):
    """A job that was submitted.

    Attributes:
        user: its user.
        app_id: the application.
        at: the time when its submission returned, seconds since the epoch; None if it was killed: until the
            next command of its user, the queue may not know the job.
    """

    user: User
    app_id: str
    at: float | None


class Chaos:
    """Submits jobs of users, and kills their processes at random.

    Args:
        users: the users.
        folder: a folder that all users may enter.
        guards: kill keepers together with their guards too; their jobs wait until the next command then.
    """

    def __init__(self, users: Sequence[User], folder: Path, *, guards: bool = True) -> None:
        self._users, self._guards = users, guards
        self._chance = random.Random(int(os.environ.get("TORCHX_CHAOS_SEED", "17")))
        self._hit: set[str] = set()
        self._trace = folder / "trace"
        self._trace.touch()
        self._trace.chmod(0o666)
        self.jobs: list[Submitted] = []
        """All jobs, without those whose submission was killed before they were recorded."""

    def submit(self, count: int) -> None:
        """Submits a number of jobs, and kills keepers, supervisors and command lines meanwhile."""
        for number in range(count):
            user = self._users[number % len(self._users)]
            app_id = user.submit(self._script(), self._gpus(), priority=self._priority())
            self.jobs.append(Submitted(user, app_id, time.time()))
            if number % 5 == 4:
                self._kill_keeper(self._chance.choice(self._users))
            if number % 10 == 9:
                self._kill_a_supervisor()
            if number % 6 == 5:
                self._submit_and_kill(user)

    def all_have_ended(self) -> bool:
        """Returns True if all jobs have ended; kills a keeper from time to time."""
        for user in self._users:
            if self._chance.random() < 0.1:
                self._kill_keeper(user)
        return not [app_id for user in self._users for app_id in user.unfinished()]

    def trace(self) -> list[tuple[str, str, list[str]]]:
        """Returns the starts and ends of jobs, in order: ``begin`` or ``end``, id, GPUs."""
        lines = [line.split() for line in self._trace.read_text().splitlines()]
        return [(kind, app.rpartition("/")[2], gpus.split(",")) for kind, app, gpus in lines]

    def _script(self) -> str:
        begin, end = (LINE.format(kind=kind, trace=self._trace) for kind in ("begin", "end"))
        return f"{begin}; sleep {self._chance.uniform(0.05, 0.2):.2f}; {end}"

    def _gpus(self) -> int:
        return self._chance.choice((1, 1, 2, 3, 4, 8))

    def _priority(self) -> int:
        return self._chance.choice((0, 0, 0, 1))

    def _submit_and_kill(self, user: User) -> None:
        before = set(user.jobs())
        after = self._chance.uniform(0.0, 0.2)
        user.submit_and_kill(self._script(), self._gpus(), after, priority=self._priority())
        self.jobs += [Submitted(user, app_id, None) for app_id in set(user.jobs()) - before]

    def _kill_keeper(self, user: User) -> None:
        pids = user.processes("queue.keeper")
        for pid in pids if self._guards and self._chance.random() < 0.5 else pids[-1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _kill_a_supervisor(self) -> None:
        """Kills the supervisor of a job or its guard; without both, its processes would have no lease."""
        running = {}
        for job in self.jobs:
            events = job.user.events(job.app_id)
            if job.app_id not in self._hit and events[-1:] and events[-1]["e"] != "end":
                running |= {job.app_id: each for each in events if each["e"] == "supervisor"}  # noqa: B035  # one
        if running:
            app_id = self._chance.choice(sorted(running))
            self._hit.add(app_id)
            event = running[app_id]
            both = [Process(event["pid"], event["start"]), Process(*event["guard"])]
            processes.send(self._chance.choice(both), signal.SIGKILL)


class Sampler:
    """Samples the free GPUs in a thread; a context manager.

    Args:
        gpus: the ids of the GPUs.
    """

    def __init__(self, gpus: Sequence[str]) -> None:
        self._leases = [f"gpu-{gpu}" for gpu in gpus]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.samples: list[tuple[float, frozenset[int]]] = []
        """The times, seconds since the epoch, and the indexes of the GPUs that are free."""

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(SAMPLED_EVERY):
            at, used = time.time(), names_in_use()
            free = frozenset(n for n, lease in enumerate(self._leases) if lease not in used)
            self.samples.append((at, free))


class _Job(NamedTuple):
    place: tuple[object, ...]
    gpus: int
    submitted: float
    enqueued: float | None
    taken: float


def longest_gap(chaos: Chaos, sampler: Sampler) -> float:
    """Returns the longest time for which the first waiting job fitted into the free GPUs, in seconds.

    Args:
        chaos: the jobs, which have ended.
        sampler: the free GPUs at each time.
    """
    own = {app: frozenset(map(int, gpus)) for kind, app, gpus in chaos.trace() if kind == "begin"}
    jobs = [_job(job, own[job.app_id], sampler.samples) for job in chaos.jobs if job.app_id in own]
    longest, since, first = 0.0, 0.0, None
    for at, free in sampler.samples:
        waiting = [job for job in jobs if job.submitted <= at < job.taken]
        head = min(waiting, default=None)
        if head is None or len(free) < head.gpus or head.enqueued is None or at < head.enqueued:
            first = None
        elif first != head:
            first, since = head, at
        else:
            longest = max(longest, at - since)
    return longest


def _job(job: Submitted, gpus: frozenset[int], samples: Sequence[tuple[float, frozenset[int]]]) -> _Job:
    record = json.loads(job.user.home.job(job.app_id).record.read_text())
    needed = sum(role["resource"]["gpu"] for role in record["app"]["roles"])
    place = (-record["cfg"]["priority"], record["submitted_at"], job.user.uid, job.app_id)
    started = next(event["t"] for event in job.user.events(job.app_id) if event["e"] == "supervisor")
    # its leases are taken before its supervisor is started: after the last sample in which one was free
    taken = max((at for at, free in samples if at <= started and free & gpus), default=started)
    return _Job(place, needed, record["submitted_at"], job.at, taken)
