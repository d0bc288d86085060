"""The process that sends the notifications of an application; repeats a delivery until it succeeds.

A supervisor starts it after the end of its job, and never waits for it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

from torchx.errors import TorchxError
from torchx.jobs.events import read_events
from torchx.jobs.paths import JobPaths
from torchx.jobs.view import load
from torchx.json_limits import Data
from torchx.machine import locks
from torchx.machine.outage import Outage
from torchx.notifications.delivery import Result, deliver
from torchx.notifications.launch import MODULE
from torchx.notifications.payload import payload_of_job
from torchx.notifications.store import (
    EARLY,
    FAILED,
    INTERRUPTED,
    RETRY,
    SENDING,
    UNKNOWN,
    Key,
    Store,
    due_kind,
)
from torchx.supervisor.process import restart_later, separate

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 900.0
"""Seconds before the second try of a delivery, doubled for each further one."""

LONG_PAUSE = 60.0
"""Seconds from which on a process waits for the next try that takes less memory than this one."""

GIVE_UP_AFTER = 24 * 3600.0
"""Seconds after the first try."""

Due = dict[Key, float]
"""Notifications to send, and the time of their next try by ``time.monotonic()``."""


class Sender:
    """Sends the notifications about one event.

    Args:
        store: the files of the notifications.
        event: end or stall.
        payload: the content of the notifications.
        restart: replaces this process by one that does the same after some seconds; None to wait here.
    """

    def __init__(
        self,
        store: Store,
        event: str,
        payload: Data,
        restart: Callable[[float], NoReturn] | None = None,
    ) -> None:
        self._store, self._event, self._payload = store, event, payload
        self._restart = restart
        self._disk = Outage(GIVE_UP_AFTER)

    def run(self) -> None:
        """Delivers all notifications; returns when each is delivered, has failed, or was removed."""
        planned = self._store.plan()
        if planned is None:
            return
        plan, _ = planned
        with contextlib.suppress(OSError):  # the application was removed
            due = self._due(plan.targets, plan.on)
            while due:
                pause = min(due.values()) - time.monotonic()
                if pause >= LONG_PAUSE and self._restart is not None:
                    self._restart(pause)
                due = self._repeat_all(due, plan.targets)

    def _repeat_all(self, due: Due, targets: tuple[str, ...]) -> Due:
        """Repeats all deliveries at the same time; returns those to continue after a long pause."""
        later: Due = {}

        def repeat(key: Key) -> None:
            with contextlib.suppress(OSError):  # the application was removed
                again = self._repeat(*key, targets[key[0]], due[key])
                if again is not None:
                    later[key] = again

        first, *others = due
        threads = [threading.Thread(target=repeat, args=(key,), daemon=True) for key in others]
        for thread in threads:
            thread.start()
        repeat(first)
        for thread in threads:
            thread.join()
        return later

    def _repeat(self, number: int, kind: str, target: str, due: float) -> float | None:
        """Repeats a delivery until a long pause; returns the time of the next try, or None."""
        while True:
            time.sleep(max(due - time.monotonic(), 0.0))
            again = self._try(number, kind, target)
            if again is None or again - time.monotonic() >= LONG_PAUSE:
                return again
            due = again

    def _due(self, targets: tuple[str, ...], on: tuple[str, ...]) -> Due:
        """Returns the notifications to send."""
        due: Due = {}
        kind = due_kind(on, self._event, str(self._payload["state"]))
        if kind is None:
            return due
        steps = self._store.steps()
        for number in range(len(targets)):
            step = steps.get((number, kind))
            if step is not None and step.step == SENDING:
                self._store.add(number, kind, UNKNOWN, INTERRUPTED)  # it may have been delivered
            elif step is None or step.step == RETRY:
                due[number, kind] = 0.0
        return due

    def _try(self, number: int, kind: str, target: str) -> float | None:
        """Tries to deliver a notification; returns the time of the next try, or None."""
        try:
            self._store.add(number, kind, SENDING)  # announced first, so that it is never sent twice
            step = self._store.steps()[number, kind]
        except OSError:
            if not self._store.journal.exists() or self._disk.is_too_long():
                raise
            self._restart = None  # the time of its first try is not recorded
            return time.monotonic() + LONGEST_PAUSE  # a full or read-only disk
        self._disk.over()
        result = deliver(target, {**self._payload, "event": kind})
        pause = min(FIRST_PAUSE * 2.0 ** min(step.tries - 1, 30), LONGEST_PAUSE)
        if result.step == RETRY and time.time() + pause > step.first + GIVE_UP_AFTER:
            result = Result(FAILED, f"{result.message}; gave up")
        with contextlib.suppress(OSError):  # if it is lost, it is not known whether this try succeeded
            self._store.add(number, kind, result.step, result.message)
        if result.step == RETRY:
            return time.monotonic() + pause
        return None


def main(argv: list[str]) -> None:
    """Sends the notifications of a local job.

    Args:
        argv: the folder of the job; the event: end or stall; after a long pause, the descriptor of its lock.
    """
    separate()
    os.umask(0o077)
    paths, event = JobPaths(Path(argv[0])), argv[1]
    store = Store(paths.notifications)
    held = int(argv[2]) if len(argv) > 2 else locks.acquire(store.lock(event))
    if held is None:
        return  # another sender is at work
    restart = partial(restart_later, MODULE, [*argv[:2], str(held)], [held])
    with contextlib.suppress(OSError, TorchxError):  # the job was removed
        view = load(paths)
        messages = [
            "",
            *(str(e.get("msg", "")) for e in read_events(paths.events) if e["e"] == EARLY.get(event)),
        ]
        Sender(store, event, payload_of_job(view, messages[-1]), restart).run()


if __name__ == "__main__":
    main(sys.argv[1:])
