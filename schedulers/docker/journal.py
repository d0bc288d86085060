"""The journal of an application in containers: its events in its folder, merged with the engine's answer.

The supervisor records the start and the end of each container, with the part of the engine's description that
the rules need, and the end of the application. So a result stays when containers are removed. The end is
final: a container that is started again by hand changes nothing.
"""

from __future__ import annotations

import json
import os
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from torchx.jobs.events import Clock, EventLog, parse_event, read_events
from torchx.jobs.paths import JobPaths
from torchx.json_limits import Data
from torchx.json_shape import typed_at
from torchx.machine import files
from torchx.schedulers.docker import folder
from torchx.schedulers.docker.containers import Container, damage_of, read
from torchx.schedulers.docker.labels import APP_ID, ATTEMPT, ENDS_AT, REPLICA, RETRY, ROLE
from torchx.schedulers.docker.record import load_data
from torchx.schedulers.docker.replay import Progress

_Key = tuple[str, int, int]
"""A role, a replica and the number of an attempt."""

SAME_TIME = 1e-3
"""Seconds by which two descriptions of one end differ at most."""


@dataclass
class Recorded:
    """The containers in the journal of an application.

    Attributes:
        journal: its application and its file.
        containers: those that have ended, by attempt.
        is_final: whether the end of the application is recorded.
        offset: the bytes of the journal that were read.
    """

    journal: tuple[str, int, int] = ("", 0, 0)
    containers: dict[_Key, Container] = field(default_factory=dict)
    is_final: bool = False
    offset: int = 0

    def apply(self, line: bytes) -> None:
        """Applies a line of the journal."""
        event = parse_event(line) or {}
        self.offset += len(line)
        self.is_final = self.is_final or event.get("e") == "end"
        if isinstance(event.get("container"), dict):
            container = read(event["container"])
            if container is not None and container.app_id == self.journal[0] and not container.damage:
                self.containers[_key(container)] = container


_last = Recorded()
"""The journal that was read last: a supervisor reads one after each event of its engine."""


def recorded_of(app_id: str) -> Recorded:
    """Returns the containers in the journal of an application; none without a journal."""
    global _last  # a cache of this process
    paths = folder.own_folder(app_id)
    with suppress(OSError):
        if paths is not None:
            with open(files.open_file(paths.events), "rb") as file:
                status = os.fstat(file.fileno())
                journal = app_id, status.st_dev, status.st_ino
                if _last.journal != journal or status.st_size < _last.offset:
                    _last = Recorded(journal)
                file.seek(_last.offset)
                for line in file:
                    if line.endswith(b"\n"):  # else the rest is just being written
                        _last.apply(line)
            return _last
    return Recorded()


def has_ended(app_id: str) -> bool:
    """Returns True if the end of an application is recorded here: it is final, whatever its containers do."""
    return recorded_of(app_id).is_final


def merged(app_id: str, containers: list[Container]) -> list[Container]:
    """Returns the containers of an application by its journal and its engine, those that were removed last.

    The engine's description of a container counts, unless the attempt has ended in another container, or the
    end of the application is recorded.

    Args:
        app_id: the application.
        containers: its containers on the engine, in order of creation.
    """
    if damage_of(containers):
        return containers
    recorded = recorded_of(app_id)
    if not recorded.containers:
        return containers
    present = {_key(container): container for container in containers}
    job: Data = next((c.job for c in containers if c.job), {}) or load_data(app_id) or {}
    user = next((c.user for c in containers), "")
    for key, container in recorded.containers.items():
        current = present.get(key)
        is_same = current is not None and current.id == container.id
        if current is None or not is_same or (recorded.is_final and _has_changed(current, container)):
            present[key] = replace(container, job=job, user=user, removed=not is_same)
    return list(present.values())


def _has_changed(current: Container, container: Container) -> bool:
    """Returns True if a container does not have the recorded end any more: it was started again."""
    if current.finished is None or container.finished is None:
        return current.status != container.status
    return current.status != container.status or abs(current.finished - container.finished) > SAME_TIME


def _key(container: Container) -> _Key:
    return container.role, container.replica, container.attempt


class Journal:
    """Appends to the journal of an application.

    An error, such as a full disk, is ignored: the labels and marks of the containers show the same state.

    Args:
        paths: its folder.
        ahead: seconds by which the clock of the engine is ahead of that of this machine.
    """

    def __init__(self, paths: JobPaths, ahead: float) -> None:
        self._paths, self._ahead = paths, ahead
        self._started: set[str] = set()
        self._ended: set[tuple[str, str]] = set()
        with suppress(OSError):
            for event in read_events(paths.events):
                self._started.add(str(event.get("container")))
                ended = typed_at(event, dict, "container")
                self._ended.add((typed_at(ended, str, "Id"), typed_at(ended, str, "Name")))

    def note(self, event: str, **facts: object) -> None:
        """Appends an event."""
        with suppress(OSError):
            log = EventLog(self._paths.events, Clock(), self._paths.reserve)
            with closing(log):
                log.add(event, **facts)

    def follow(self, progress: Progress) -> None:
        """Records the containers that have started, ended, or got another mark since the last call."""
        for ordinal, containers in enumerate(progress.replicas):
            for container in containers:
                if not container.removed:
                    self._follow(ordinal, container)

    def _follow(self, ordinal: int, c: Container) -> None:
        if c.started is not None and c.id not in self._started:
            self._started.add(c.id)
            self.note("started", t=c.started - self._ahead, r=ordinal, a=c.attempt, container=c.id)
        # one that is being removed was killed for that
        if c.status == "exited" and (c.id, f"/{c.full_name}") not in self._ended:
            self._ended.add((c.id, f"/{c.full_name}"))
            at = (c.finished or c.created) - self._ahead
            code = c.exit_code
            if c.signal:
                code = None
            facts = {"code": code, "signal": c.signal, "container": _description(c)}
            self.note("exit", t=at, r=ordinal, a=c.attempt, **facts)


def _description(c: Container) -> Data:
    """Returns the part of the engine's description of a container that the rules need."""
    labels = {APP_ID: c.app_id, ROLE: c.role, REPLICA: str(c.replica), ATTEMPT: str(c.attempt)}
    if c.retry:
        labels[RETRY] = json.dumps(c.retry)
    if c.ends_at:
        labels[ENDS_AT] = str(c.ends_at)
    state = {
        "Status": c.status,
        "ExitCode": c.exit_code,
        "OOMKilled": c.oom,
        "Error": c.error,
        "StartedAt": _timestamp(c.started),
        "FinishedAt": _timestamp(c.finished),
    }
    return {
        "Id": c.id,
        "Name": f"/{c.full_name}",
        "Created": _timestamp(c.created),
        "RestartCount": c.restarts,
        "Config": {"Labels": labels, "Hostname": c.host, "Image": c.image, "StopSignal": c.stop_signal},
        "State": state,
        "HostConfig": {"Memory": c.memory},
    }


def _timestamp(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()
