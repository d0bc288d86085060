"""Watches the services of an application in containers, in a thread: marks ready ones, ends late ones.

The marks are in the names of the containers, so they outlive the supervisor, and every query sees them.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from torchx.errors import TorchxError
from torchx.schedulers.docker.cancel import end_all, mark_ready
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine import frames
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.engine.following import Following, follow
from torchx.schedulers.docker.engine.http import receive
from torchx.schedulers.docker.replay import Progress
from torchx.schedulers.docker.rules.marks import unready
from torchx.schedulers.docker.services.checks import Checks
from torchx.schedulers.docker.services.private import with_probes
from torchx.services.probe import LOG, ServiceRule
from torchx.supervisor.services.watch import Watch

READ_SIZE = 1 << 16
REOPEN_AFTER = 1.0
"""Seconds after which a log that the engine has closed is opened again."""


class Watched:
    """A container of a service that is not ready yet.

    Args:
        engine: the engine.
        container: the container.
        rule: the rule of its service.
    """

    def __init__(self, engine: Engine, container: Container, rule: ServiceRule) -> None:
        self.container = container
        self._engine = engine
        self._reads = rule.probe.kind == LOG
        # another machine may have another clock
        known = container.started if engine.address.path else None
        age = 0.0 if known is None else max(time.time() - known, 0.0)
        self.watch = Watch(rule, Checks(engine, container, rule.probe).start, age)
        self.log: Following | None = None
        self._rest = b""
        self._open_at = 0.0

    def pause_from(self, now: float) -> float:
        """Returns the seconds until the next check, or until its log is to be opened."""
        pause = self.watch.pause_from(now)
        return min(pause, max(self._open_at - now, 0.0)) if self._reads and self.log is None else pause

    def open_log(self, now: float) -> None:
        """Opens the log of the container if its probe needs it."""
        if not self._reads or self.log is not None or now < self._open_at:
            return
        self._open_at = now + REOPEN_AFTER
        with suppress(TorchxError):
            self.log, self._rest = follow(self._engine, self.container.id, {"stdout": 1, "stderr": 1})
            self._feed(b"")

    def read(self) -> None:
        """Reads the new output."""
        if self.log is None:
            return
        try:
            data, closed = receive(self.log, READ_SIZE)
        except TorchxError:  # it was removed
            data, closed = b"", True
        self._feed(data)
        if closed:
            self.close_log()

    def _feed(self, data: bytes) -> None:
        pieces, self._rest = frames.split(self._rest + data)
        for stream, piece in pieces:
            self.watch.feed(stream, piece)

    def close_log(self) -> None:
        """Closes the log."""
        if self.log is not None:
            self.log.close()
            self.log, self._rest = None, b""

    def close(self) -> None:
        """Gives up the watch."""
        self.watch.close()
        self.close_log()


class Readiness:
    """Watches the services of one application.

    Args:
        engine: the engine.
        report: called with a line about an unexpected error.
    """

    def __init__(self, engine: Engine, report: Callable[[str], None]) -> None:
        self._engine, self._report = engine, report
        self._rules: Mapping[str, ServiceRule] | None = None
        self._lock = threading.Lock()
        self._wanted: dict[str, Container] = {}
        self._thread: threading.Thread | None = None
        self._grace = 0.0
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def follow(self, progress: Progress) -> None:
        """Watches the containers of services that run and are not ready, until the next call."""
        if self._rules is None:
            self._rules = {
                r.name: r.service for r in with_probes(progress.job).roles if r.service is not None
            }
            self._grace = progress.job.grace
        wanted = {}
        for ordinal, (role, _) in enumerate(progress.job.members):
            newest = progress.newest(ordinal) if role.service is not None else None
            if newest is None or newest.status != "running" or newest.mark or progress.is_ready(ordinal):
                continue
            wanted[newest.id] = newest
        if progress.cancelled or progress.end is not None:
            wanted = {}
        with self._lock:
            changed = wanted.keys() != self._wanted.keys()
            self._wanted = wanted
        if wanted and self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        elif changed:
            with suppress(BlockingIOError):
                os.write(self._wake, b"x")

    def _run(self) -> None:
        watched: dict[str, Watched] = {}
        done: set[str] = set()
        while True:
            with self._lock:
                wanted = dict(self._wanted)
            done &= wanted.keys()
            for gone in watched.keys() - wanted.keys():
                watched.pop(gone).close()
            for new in wanted.keys() - watched.keys() - done:
                watched[new] = Watched(self._engine, wanted[new], self._rule_of(wanted[new]))
            for key, one in list(watched.items()):
                try:
                    over = self._is_over(one)
                except Exception as error:  # the engine does not answer
                    self._report(f"{one.container.name} could not be checked: {error}")
                    watched.pop(key).close()  # begins again
                    time.sleep(REOPEN_AFTER)
                    continue
                if over:
                    done.add(key)
                    watched.pop(key).close()
            self._wait(watched.values())

    def _rule_of(self, container: Container) -> ServiceRule:
        rules = self._rules or {}
        return rules.get(container.role) or ServiceRule()

    def _is_over(self, one: Watched) -> bool:
        """Checks a container; returns True if it is ready, or was ended as it was not ready in time."""
        now = time.monotonic()
        one.open_log(now)
        if one.watch.is_ready(now):
            mark_ready(self._engine, one.container)
            return True
        if one.watch.is_late(now):
            end_all(self._engine, [one.container], unready(one.watch.answer), self._grace)
            return True
        return False

    def _wait(self, watched: Collection[Watched]) -> None:
        """Waits until a check is due, output arrives, or other containers are to be watched."""
        now = time.monotonic()
        pauses = [one.pause_from(now) for one in watched]
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        logs = {one.log.fileno(): one for one in watched if one.log is not None}
        for log in logs:
            poll.register(log, select.POLLIN)
        for descriptor, _ in poll.poll(min(pauses) * 1000 if pauses else None):
            if descriptor in logs:
                logs[descriptor].read()
            else:
                os.read(self._woken, READ_SIZE)
