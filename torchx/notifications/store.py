"""The files of an application's notifications, private to the user.

``plan.json`` has the targets. ``journal.jsonl`` has a line before each try and one after it: a try without
the second one was interrupted, and may have been delivered, so it is not repeated.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from typing import Annotated, NamedTuple

from torchx import json_shape
from torchx.errors import UsageError
from torchx.jobs.paths import Inside
from torchx.json_shape import HandleText, SystemText, one_of
from torchx.machine import files, locks
from torchx.specs.notify import Notify, shown

SCHEMA = 1
LARGEST = 1 << 24
"""Maximum bytes of a file."""

END = "end"
EARLY = {"stall": "stalled", "straggler": "straggler"}
"""The notifications before the end, and the events that they are about."""

PLANNED = "planned"
SENDING, DELIVERED, RETRY, FAILED, UNKNOWN = "sending", "delivered", "retry", "failed", "unknown"
STEPS = (SENDING, DELIVERED, RETRY, FAILED, UNKNOWN)
"""The steps of a delivery: a try begins; it has succeeded; it is repeated; it has failed permanently; it is
not known whether it has succeeded. The last two and `delivered` are final."""


Key = tuple[int, str]
"""A notification of an application: the number of its target, and its kind."""

BEING_SENT = "being sent"
INTERRUPTED = "the sender was killed during a try"


def due_kind(on: Collection[str], event: str, state: str) -> str | None:
    """Returns the kind of the notification about an event; None if none is planned.

    A target that gets both kinds, end and failure, is notified once, of the end.

    Args:
        on: the planned kinds.
        event: end or stall.
        state: the state of the application.

    >>> due_kind(["end", "failure"], "end", "FAILED"), due_kind(["failure"], "end", "FAILED")
    ('end', 'failure')
    >>> due_kind(["failure", "stall"], "end", "SUCCEEDED"), due_kind(["stall"], "stall", "RUNNING")
    (None, 'stall')
    """
    if event in EARLY:
        kinds: tuple[str, ...] = (event,)
    else:
        kinds = (END, "failure")
    if state != "FAILED":
        kinds = kinds[:1]
    return next((kind for kind in kinds if kind in on), None)


@dataclass(frozen=True)
class Delivery:
    """The state of one notification.

    Attributes:
        target: its target, without secrets.
        kind: end, failure, stall or straggler.
        state: ``planned``, ``sending``, ``retry`` (not delivered yet),
            ``delivered``, ``failed`` or ``unknown``.
        at: the time of the last try.
        tries: the number of tries.
        message: the reason for the state.
    """

    target: str
    kind: str
    state: str = PLANNED
    at: datetime | None = None
    tries: int = 0
    message: str = ""

    @property
    def is_final(self) -> bool:
        """Whether no further try follows."""
        return self.state in (DELIVERED, FAILED, UNKNOWN)


class Step(NamedTuple):
    """The last step of a notification.

    Attributes:
        step: one of :data:`STEPS`.
        at: its time, seconds since the epoch.
        first: the time of the first step.
        tries: the number of tries.
        message: the reason.
    """

    step: str
    at: float
    first: float
    tries: int
    message: str


class _Plan(NamedTuple):
    """The plan in its file."""

    targets: list[SystemText]
    on: list[SystemText]
    handle: HandleText = ""


class _Line(NamedTuple):
    """A step in the journal: its time, its target and kind, the step, the reason."""

    t: float
    target: int
    kind: str
    step: Annotated[str, one_of(STEPS)]
    msg: str


@dataclass(frozen=True)
class Store:
    """The files of an application's notifications.

    Attributes:
        folder: their folder.
    """

    folder: Path

    plan_file = Inside("plan.json")
    """The targets and kinds, written once."""
    journal = Inside("journal.jsonl")
    """The steps, append-only."""
    log = Inside("sender.log")
    """The error output of the senders, normally empty."""

    def lock(self, event: str) -> Path:
        """Returns the lock that the sender of an event holds while it lives: ``end`` or ``stall``."""
        return self.folder / f"{event}.lock"

    def is_sending(self, event: str) -> bool:
        """Returns True if the sender of an event lives."""
        try:
            return locks.is_held(self.lock(event))
        except OSError:
            return False

    def create(self, plan: Notify, handle: str = "") -> None:
        """Writes the plan.

        Args:
            plan: the targets and kinds.
            handle: the application, for a sender that queries its engine.

        Raises:
            OSError: it cannot be written.
        """
        files.make_folder(self.folder)
        data = {"schema": SCHEMA, "handle": handle, "targets": list(plan.targets), "on": list(plan.on)}
        files.write_file(self.journal, b"")  # a sender does not create it: the folder may be being removed
        files.write_file(self.plan_file, json.dumps(data).encode())

    def plan(self) -> tuple[Notify, str] | None:
        """Returns the plan and the handle; None without a valid plan."""
        try:
            data = json_shape.mapping(json.loads(files.read_file(self.plan_file, LARGEST)), "plan")
            if data.get("schema") != SCHEMA:
                return None
            plan = json_shape.read(_Plan, data, "plan")
            return Notify.recorded(plan.targets, plan.on), plan.handle
        except (OSError, ValueError, TypeError, RecursionError, UsageError):
            return None

    def add(self, target: int, kind: str, step: str, message: str = "") -> None:
        """Appends a step, and waits until it is on the disk.

        Raises:
            OSError: it cannot be written, or the folder was removed.
        """
        step_data = {"t": time.time(), "target": target, "kind": kind, "step": step, "msg": message}
        line = b"\n" + json.dumps(step_data).encode() + b"\n"  # the last line may be incomplete
        descriptor = files.open_file(self.journal, os.O_WRONLY | os.O_APPEND)
        try:
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def give_up(self, why: str) -> None:
        """Records that the notifications that were not sent yet will not be sent; ignores errors."""
        plan = self.plan()
        with contextlib.suppress(OSError):
            steps = self.steps()
            for number, kind in product(range(len(plan[0].targets)), plan[0].on) if plan is not None else ():
                step = steps.get((number, kind))
                if step is None or step.step == RETRY:
                    self.add(number, kind, FAILED, why)

    def steps(self) -> dict[Key, Step]:
        """Returns the last step of each notification by target and kind; skips damaged lines.

        Raises:
            OSError: the journal cannot be read.
        """
        last: dict[Key, Step] = {}
        for at, target, kind, step, message in self._lines():
            known = last.get((target, kind))
            tries = (known.tries if known is not None else 0) + (step == SENDING)
            first = known.first if known is not None else at
            last[target, kind] = Step(step, at, first, tries, message)
        return last

    def _lines(self) -> Iterator[_Line]:
        try:
            data = files.read_file(self.journal, LARGEST)
        except FileNotFoundError:
            return
        for line in data.split(b"\n"):
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                yield json_shape.read(_Line, json.loads(line), "line")

    def deliveries(self) -> list[Delivery]:
        """Returns the state of each notification, in the order of the targets; empty without a plan."""
        if not self.folder.exists() or (planned := self.plan()) is None:
            return []
        plan, _ = planned
        try:
            steps = self.steps()
        except OSError:
            steps = {}
        return [
            self._delivery(target, kind, steps.get((number, kind)))
            for (number, target), kind in product(enumerate(plan.targets), plan.on)
        ]

    def _delivery(self, target: str, kind: str, step: Step | None) -> Delivery:
        if step is None:
            return Delivery(shown(target), kind)
        at = datetime.fromtimestamp(step.at, timezone.utc).astimezone()
        state, message = step.step, step.message
        if state == SENDING:
            alive = self.is_sending(kind if kind in EARLY else END)
            if alive:
                message = BEING_SENT
            else:
                state, message = (UNKNOWN, INTERRUPTED)
        return Delivery(shown(target), kind, state, at, step.tries, message)
