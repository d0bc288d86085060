"""The process that creates the containers of an application whose turn it is.

The keeper of the queue starts it with the leases of the application, and its supervisor takes its place when
the containers run. A guard replaces it if it is killed. Like a supervisor it does not import installed
packages.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchx.errors import TorchxError
from torchx.jobs import ticket
from torchx.jobs.events import Clock, EventLog
from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.record import JobRecord
from torchx.jobs.ticket import Ticket
from torchx.jobs.view import load
from torchx.lazy import lazy_imports
from torchx.leases.gpus import PREFIX
from torchx.leases.holders import Leases, inherited
from torchx.leases.reception import answer
from torchx.machine import processes
from torchx.machine.outage import Outage
from torchx.schedulers.docker.cancel import join_kills
from torchx.schedulers.docker.folder import REQUEST, load_request
from torchx.schedulers.docker.record import data_of
from torchx.schedulers.docker.rules.job import job_from
from torchx.supervisor.process import continue_under_guard, report_ready, separate

with lazy_imports:  # the keeper waits only for the others
    from torchx.queue import ends
    from torchx.schedulers.docker import cancel, gpus, lookup, networks, replay, submit
    from torchx.schedulers.docker.engine import address, client
    from torchx.schedulers.docker.images import pull

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.schedulers.docker.containers import Container
    from torchx.schedulers.docker.engine.client import Engine
    from torchx.schedulers.docker.rules.job import Job

ENGINE_BACK_WITHIN = 120.0
"""Seconds to wait for an engine that does not answer: it may be restarted just now."""

SUPERVISED_WITHIN = 5.0
"""Seconds to wait for a supervisor that a killed process may have started."""

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class CancelledError(Exception):
    """The application was cancelled before its containers were created."""


class Start(NamedTuple):
    """The start of an application.

    Attributes:
        paths: its record.
        app_id: the application.
        lock: the descriptor of its lock.
        leases: its leases.
        devices: the ids of its GPUs, in their order.
        job: its rules.
        containers: the name and the body of each of its containers.
    """

    paths: JobPaths
    app_id: str
    lock: int
    leases: Leases
    devices: list[str]
    job: Job
    containers: list[tuple[str, Object]]

    def run(self) -> None:
        """Starts the containers, or records why that failed."""
        if not self._is_unstarted():  # the process before this one was killed after it had finished
            self._cancel_if_requested()
            return
        home, state, reason = Home(self.paths.folder.parent.parent), "", ""
        try:
            answer(self.leases, self.app_id, self._latest_end())
            self._start()
        except CancelledError:
            state = "CANCELLED"
        except TorchxError as error:
            state, reason = "FAILED", error.message
        except Exception as error:  # whatever its files contain: it must not be started again and again
            state, reason = "FAILED", f"it could not be started: {type(error).__name__}: {error}"
        if state and self._is_unstarted():
            with contextlib.suppress(OSError, TorchxError):  # a full disk: the next command records it
                ends.finish(home, self.paths, state, reason)

    def _is_unstarted(self) -> bool:
        return (self.paths.folder / REQUEST).exists()

    def _latest_end(self) -> float | None:
        """Returns the latest end of the application, seconds since the epoch; None if unknown."""
        job = self.job
        if job.limits.limit is None or job.limits.requeue:
            return None
        return time.time() + job.limits.limit + job.grace

    def _start(self) -> None:
        engine, outage = client.Engine(), Outage(ENGINE_BACK_WITHIN)
        engine.patience = client.LOADED_PATIENCE
        held = [self.lock, *self.leases.descriptors]
        bodies = [body for _, body in self.containers]
        gpus.assign(bodies, self.devices)
        while True:
            self._check()
            try:
                present = lookup.containers_of(engine, self.app_id)
                outage.over()
                if present and self._continue(engine, present, held):
                    return
                self._provide(engine, bodies)
                break
            except address.NoEngineError:
                if outage.is_too_long():
                    raise
            time.sleep(1.0)
        self._check()
        submit.start_containers(engine, self.job, self.paths, self.containers, held)

    def _continue(self, engine: Engine, present: Sequence[Container], held: Sequence[int]) -> bool:
        """Continues after a process that was killed: supervises its containers if they have begun.

        Returns:
            False if they were removed, as they had not begun.
        """
        if not replay.has_begun(present):
            cancel.remove_containers(engine, self.app_id)
            return False
        if not self._gets_supervisor():
            submit.supervise(engine, self.job, self.paths, held)
        self._cancel_if_requested()
        return True

    def _provide(self, engine: Engine, bodies: list[Object]) -> None:
        """Pulls missing images, and creates missing networks."""
        for image in dict.fromkeys(str(body["Image"]) for body in bodies):
            if pull.inspect_image(engine, image) is None:  # it was removed since the submission
                pull.provide(engine, image, lambda _: self._check())
        networks.provide_for(engine, bodies)

    def _gets_supervisor(self) -> bool:
        """Returns True if the process before this one has started the supervisor: it records the start."""
        end = time.monotonic() + SUPERVISED_WITHIN
        while self._is_unstarted() and time.monotonic() < end:
            time.sleep(0.05)
        return not self._is_unstarted()

    def _check(self) -> None:
        if self.paths.cancel.exists():
            raise CancelledError

    def _cancel_if_requested(self) -> None:
        """Cancels the containers if that was requested while they were created."""
        with contextlib.suppress(TorchxError):
            submit.cancel_if_requested(client.Engine(), self.app_id, self.paths)


def main(argv: list[str]) -> None:
    """Creates and starts the containers of an application.

    Args:
        argv: the folder of its record, the descriptor of its lock, and the descriptor to write ``ready`` to
            when the process is recorded.
    """
    paths, lock, ready = JobPaths(Path(argv[0])), int(argv[1]), int(argv[2])
    separate()
    os.umask(0o077)
    for number in SIGNALS:  # handlers, not SIG_IGN: the supervisor would inherit that
        signal.signal(number, lambda *_: None)
    start = _prepare(paths, lock)
    _record(paths)
    ticket.clear(Home(paths.folder.parent.parent), paths)
    report_ready(ready)
    continue_under_guard()
    start.run()
    join_kills()


def _prepare(paths: JobPaths, lock: int) -> Start:
    mine, leases = Ticket.load(paths), inherited()
    own = [lease.removeprefix(PREFIX) for lease, _, _ in mine.visible if lease in leases.names]
    job = job_from(mine.app_id, data_of(JobRecord.load(paths.record)))
    return Start(paths, mine.app_id, lock, leases, own, job, load_request(paths))


def _record(paths: JobPaths) -> None:
    """Records this process."""
    me = processes.look_up(os.getpid())
    clock = Clock(load(paths).seen_at)
    with contextlib.closing(EventLog(paths.events, clock, paths.reserve)) as log:
        start = me.process.start if me is not None else 0
        log.add("supervisor", pid=os.getpid(), start=start, boot=processes.boot_id())
