"""Events of local jobs, from the event log of their supervisor."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import datetime, timezone

from torchx import json_shape
from torchx.jobs.catalog import paths_of
from torchx.jobs.events import follow_events
from torchx.jobs.paths import JobPaths
from torchx.jobs.record import damaged
from torchx.jobs.view import AttemptView, JobView, fold, submitted
from torchx.json_limits import Data, Object, without_none
from torchx.lazy import lazy_imports
from torchx.printable import joined, memory_size
from torchx.schedulers.local.status import LocalJobs
from torchx.schedulers.shared.stalls import stall_of
from torchx.scheduling.checks import unknown_application
from torchx.scheduling.events import OBSERVED, AppEvent, Readiness

with lazy_imports:
    from torchx.queue import reasons


def read_job(jobs: LocalJobs, app_id: str) -> Iterator[AppEvent | None]:
    """Yields the events of a job in order, and None at the current end of its event log, until its end.

    Raises:
        StateError: the job is not on record, or its record cannot be read.
    """
    paths = paths_of(jobs.home, app_id)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        view = submitted(paths)
        if view.record.scheduler == jobs.scheduler:
            return _read(paths, view)
    raise unknown_application(jobs.scheduler, app_id)


def _read(paths: JobPaths, view: JobView) -> Iterator[AppEvent | None]:
    converter = _Converter(view)
    yield AppEvent(_time(view.record.submitted_at), "submitted", details={"name": view.record.name})
    waits_for = ""
    try:
        for data in follow_events(paths.events):
            if data is None:
                reason = reasons.reason(view, paths)
                if reason and reason != waits_for:
                    yield AppEvent(_time(time.time()), "waiting", message=reason, details=OBSERVED)
                waits_for = reason
                yield None
                continue
            for event in converter.convert(data):
                yield event
                waits_for = event.message
            if view.has_ended:
                return
    except OSError as error:
        raise damaged(paths.events, error.strerror) from error


class _Converter:
    """Converts the events of a supervisor's log, in order.

    Args:
        view: the state of the job before its first event; updated with each event.
    """

    def __init__(self, view: JobView) -> None:
        self._view = view
        self._ready = Readiness(len(view.replicas))
        self._peak: tuple[int, int, int] | None = None  # bytes, ordinal, attempt

    def convert(self, data: Object) -> list[AppEvent]:
        """Returns the events for a line of the log; none for a damaged line, or an internal one."""
        convert = _CONVERT.get(data["e"])
        if not fold(self._view, data) or convert is None:
            return []
        try:
            return convert(self, data)
        except (KeyError, IndexError, TypeError, ValueError):  # values that the view does not use
            return []

    def _start(self, data: Data) -> list[AppEvent]:
        ordinal, attempt = self._attempt(data)
        details: Object = {"pid": attempt.process and attempt.process.pid}
        is_service = self._is_service(ordinal)
        if is_service:
            details["service"] = True
        events = [self._event(data, "started", ordinal, attempt.number, details=details)]
        if not is_service and self._ready.started(ordinal):
            events.append(self._event(data, "ready", message=self._ready.message))
        return events

    def _service_ready(self, data: Data) -> list[AppEvent]:
        ordinal, attempt = self._attempt(data)
        events = [self._event(data, "ready", ordinal, attempt.number)]
        if self._ready.started(ordinal):
            events.append(self._event(data, "ready", message=self._ready.message))
        return events

    def _is_service(self, ordinal: int) -> bool:
        name = self._view.replicas[ordinal].role
        return any(role.service is not None for role in self._view.record.roles if role.name == name)

    def _exit(self, data: Data) -> list[AppEvent]:
        ordinal, attempt = self._attempt(data)
        self._ready.ended(ordinal, succeeded=attempt.state == "SUCCEEDED")
        memory = attempt.peak_memory
        cpu = attempt.usage and attempt.usage.cpu
        if memory is not None:
            self._peak = max(self._peak or (0, 0, 0), (memory, ordinal, attempt.number))
        code, signal = attempt.exit_code, attempt.signal
        reason = joined(attempt.stopped, attempt.reason)
        values = {"exit_code": code, "signal": signal, "memory": memory, "cpu": cpu, "reason": reason or None}
        details = {"state": attempt.state, **without_none(values)}
        how = signal or ("" if code is None else f"exit {code}")
        message = joined(how, reason)
        return [self._event(data, "ended", ordinal, attempt.number, message, details)]

    def _retry(self, data: Data) -> list[AppEvent]:
        ordinal, attempt = self._attempt(data)
        scope = json_shape.text(data["scope"], "scope").lower()
        number, allowed = json_shape.integer(data["n"], "n"), json_shape.integer(data["of"], "of")
        delay = json_shape.number(data["delay"], "delay", json_shape.LATEST)
        message = f"retry {number} of {allowed} of the {scope} in {delay:g} s"
        details = {"scope": scope, "number": number, "allowed": allowed, "delay": delay}
        return [self._event(data, "retry", ordinal, attempt.number, message, details)]

    def _requeue(self, data: Data) -> list[AppEvent]:
        number, allowed = json_shape.integer(data["n"], "n"), json_shape.integer(data["of"], "of")
        self._ready = Readiness(len(self._view.replicas))
        message = f"run {number + 1} begins after the {json_shape.text(data['why'], 'why')}"
        details = {"number": number, "allowed": allowed, "run": number + 1}
        return [self._event(data, "requeued", message=message, details=details)]

    def _notice(self, data: Data) -> list[AppEvent]:
        details = {"run": self._view.run}
        return [self._event(data, "notice", message=json_shape.text(data["msg"], "msg"), details=details)]

    def _waiting(self, data: Data) -> list[AppEvent]:
        if self._view.supervisor is not None:  # it started while this was written
            return []
        return [self._event(data, "waiting", message=json_shape.text(data["msg"], "msg"))]

    def _stalled(self, data: Data) -> list[AppEvent]:
        message, ordinals = stall_of(data)
        if not ordinals:
            return [self._event(data, data["e"], message=message)]
        stalled = [self._attempt({"r": ordinal}) for ordinal in ordinals]
        return [
            self._event(data, data["e"], ordinal, attempt.number, message) for ordinal, attempt in stalled
        ]

    def _cancel(self, data: Data) -> list[AppEvent]:
        return [self._event(data, "cancelled", message=json_shape.text(data.get("why", ""), "why"))]

    def _end(self, data: Data) -> list[AppEvent]:
        view, events = self._view, []
        if self._peak is not None:
            memory, ordinal, number = self._peak
            message = f"peak memory {memory_size(memory)}"
            events.append(self._event(data, "measured", ordinal, number, message, {"memory": memory}))
        details: Object = {"state": view.state}
        if view.exit_code is not None:
            details["exit_code"] = view.exit_code
        why = view.msg
        if why.upper() == view.state:
            why = ""
        if not why and view.failure is not None:
            why = f"{view.failure.name} failed first"
        message = joined(view.state, why)
        return [*events, self._event(data, "ended", message=message, details=details)]

    def _attempt(self, data: Data) -> tuple[int, AttemptView]:
        """Returns the ordinal of the event's replica, and the current attempt of the replica."""
        ordinal = json_shape.integer(data["r"], "r")
        attempts = self._view.replicas[ordinal].attempts
        return ordinal, attempts[-1] if attempts else AttemptView(1)

    def _event(
        self,
        data: Data,
        kind: str,
        ordinal: int | None = None,
        attempt: int | None = None,
        message: str = "",
        details: Data | None = None,
    ) -> AppEvent:
        place: tuple[str, int | None] = ("", None)
        if ordinal is not None:
            replica = self._view.replicas[ordinal]
            place = (replica.role, replica.id)
        return AppEvent(_time(data["t"]), kind, *place, attempt, message, details or {})


_CONVERT = {
    "start": _Converter._start,
    "not_started": _Converter._exit,
    "exit": _Converter._exit,
    "ready": _Converter._service_ready,
    "retry": _Converter._retry,
    "requeue": _Converter._requeue,
    "notice": _Converter._notice,
    "waiting": _Converter._waiting,
    "stalled": _Converter._stalled,
    "straggler": _Converter._stalled,
    "cancel": _Converter._cancel,
    "end": _Converter._end,
}


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, timezone.utc).astimezone()
