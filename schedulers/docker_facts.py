"""What an engine says of the containers of an application: read into plain values, nothing is judged here."""

from __future__ import annotations

import json
import signal
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from torchx.schedulers.docker_engine import Engine, EngineError, in_parallel
from torchx.schedulers.docker_request import LABEL

APP_ID, ROLE, REPLICA = f"{LABEL}app-id", f"{LABEL}role-name", f"{LABEL}replica-id"
JOB = f"{LABEL}job"
"""Label: what was submitted, as JSON; on every container, so that no other keeper of it is needed."""
ATTEMPT = f"{LABEL}attempt"
"""Label: which attempt of its replica a container is, from 1; not there on first ones."""
RETRY = f"{LABEL}retry"
"""Label of containers made by a retry: which retries there have been, as JSON."""

CANCELLED, STOPPED, FAILED = "cancelled", "stopped", "failed"
MARKS = (CANCELLED, STOPPED, FAILED)
"""Ends of a container's name that tell why it was ended: a name is all that can be changed of a container,
it stays with it, and everyone who reaches the engine sees it."""

LIVE = ("running", "paused", "restarting")
LATE = 0.5
"""Seconds by which the engine may hear of the want of memory before or after the end it came to."""
STEADY = ("running", "paused", "exited")
"""States that a container does not leave without an event."""


@dataclass(frozen=True)
class Container:
    """One container: one attempt of one replica, or several where the engine itself restarts it.

    Attributes:
        id: the engine's id.
        name: its name without the mark.
        mark: one of MARKS, or empty.
        app_id: the application.
        role: the name of its role.
        replica: its id within the role.
        attempt: which attempt it is, from 1.
        status: the engine's word: created, running, paused, restarting, removing, exited or dead.
        exit_code: what its main process returned, 128 + N for signal N; None while it runs.
        oom: whether the kernel killed something in it for want of memory.
        error: why it could not be started.
        created, started, finished: seconds since the epoch; None when it has not happened.
        restarts: how often the engine has started it again.
        allowed_restarts: how often the engine may.
        memory: its limit in bytes; 0 for none.
        stop_signal: the signal that asks it to end.
        host: its name in the network.
        image: the image as it was asked for.
        gpus: the ids of the GPUs it was given.
        job: what was submitted.
        retry: which retries there have been when it was made.
    """

    id: str
    name: str
    mark: str
    app_id: str
    role: str
    replica: int
    attempt: int = 1
    status: str = "created"
    exit_code: int | None = None
    oom: bool = False
    error: str = ""
    created: float = 0.0
    started: float | None = None
    finished: float | None = None
    restarts: int = 0
    allowed_restarts: int = 0
    memory: int = 0
    stop_signal: str = "SIGTERM"
    host: str = ""
    image: str = ""
    gpus: tuple[str, ...] = ()
    job: Mapping[str, Any] = field(default_factory=dict, repr=False)
    retry: Mapping[str, Any] = field(default_factory=dict)

    @property
    def live(self) -> bool:
        """True while it runs, sleeps, or waits for the engine to start it again."""
        return self.status in LIVE

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended it; the init process tells it as 128 + N."""
        if self.exit_code is None or self.exit_code <= 128:
            return None
        try:
            return signal.Signals(self.exit_code - 128).name
        except ValueError:
            return None


_WORDS = {"initialized": "created", "configured": "created", "stopping": "running", "stopped": "exited"}
"""What Podman says, and Docker's word for it."""


def read(inspected: Mapping[str, Any]) -> Container | None:
    """Reads what the engine says of a container; None when it is no replica of an application."""
    config, state, host = inspected["Config"], inspected["State"], inspected["HostConfig"]
    labels: Mapping[str, str] = config.get("Labels") or {}
    if APP_ID not in labels:
        return None
    name, mark = split_name(inspected["Name"].lstrip("/"))
    status = _WORDS.get(state["Status"], str(state["Status"]))
    ended = status in ("exited", "dead", "restarting", "removing")
    started, finished = seconds(state.get("StartedAt")), seconds(state.get("FinishedAt"))
    if started and finished and ended:
        # of one that ended at once, the engine may note the end first
        finished = max(started, finished)
    return Container(
        id=inspected["Id"],
        name=name,
        mark=mark,
        app_id=labels[APP_ID],
        role=labels.get(ROLE, ""),
        replica=_number(labels.get(REPLICA), 0),
        attempt=_number(labels.get(ATTEMPT), 1),
        status=status,
        exit_code=state["ExitCode"] if ended else None,
        oom=bool(state.get("OOMKilled")),
        error=str(state.get("Error") or ""),
        created=seconds(inspected["Created"]) or 0.0,
        started=started,
        finished=finished if ended else None,
        restarts=int(inspected.get("RestartCount") or 0),
        allowed_restarts=int((host.get("RestartPolicy") or {}).get("MaximumRetryCount") or 0),
        memory=int(host.get("Memory") or 0),
        stop_signal=config.get("StopSignal") or "SIGTERM",
        host=config.get("Hostname") or name,
        image=config.get("Image") or "",
        gpus=tuple(id for one in host.get("DeviceRequests") or () for id in one.get("DeviceIDs") or ()),
        job=_mapping(labels.get(JOB)),
        retry=_mapping(labels.get(RETRY)),
    )


def look(
    engine: Engine, app_id: str | None = None, known: Iterable[Container] = ()
) -> dict[str, list[Container]]:
    """Returns the containers of one application, or of all, by application, in the order of creation.

    Args:
        engine: where they are.
        app_id: the application; all unless told.
        known: containers of which nothing has been heard since an earlier look: they are not asked for again,
            unless they are about to start.
    """
    told = f"{APP_ID}={app_id}" if app_id is not None else APP_ID
    listed = engine.call("GET", "/containers/json", {"all": 1, "filters": {"label": [told]}})
    same = {c.id: c for c in known if c.status in STEADY}

    def inspect(entry: Mapping[str, Any]) -> Container | None:
        if entry["Id"] in same:
            return same[entry["Id"]]
        try:
            return read(engine.call("GET", f"/containers/{entry['Id']}/json"))
        except EngineError as error:
            if error.status == 404:
                return None  # removed at this very moment
            raise

    found: dict[str, list[Container]] = defaultdict(list)
    for container in _done(in_parallel(inspect, listed)):
        if container is not None:
            found[container.app_id].append(container)
    for containers in found.values():
        containers.sort(key=lambda c: (c.created, c.name))
    return dict(found)


def told_late(engine: Engine, containers: Iterable[Container]) -> list[Container]:
    """Returns containers with what the engine has heard of the want of memory only after their end.

    The kernel's word of it and the end of the program come to the engine by different ways. Where the second
    comes first, Docker tells of the first in its events, and nowhere else.

    Args:
        engine: where they are.
        containers: all of an application.
    """
    known = list(containers)
    asked = [c for c in known if c.signal == "SIGKILL" and c.memory and c.finished and not (c.oom or c.mark)]
    if not asked:
        return known
    moments = [c.finished or 0.0 for c in asked]
    query = {
        "since": f"{min(moments) - LATE:.6f}",
        "until": f"{max(moments) + LATE:.6f}",  # one that is still to come is waited for
        "filters": {"type": ["container"], "event": ["oom"], "container": [c.id for c in asked]},
    }
    with suppress(EngineError):
        told = json.dumps(engine.call("GET", "/events", query))  # one event, several as text, or none
        return [replace(c, oom=True) if c in asked and c.id in told else c for c in known]
    return known


def _done(results: Iterable[Container | Exception | None]) -> Iterable[Container | None]:
    for result in results:
        if isinstance(result, Exception):
            raise result
        yield result


def split_name(name: str) -> tuple[str, str]:
    """Returns a container's name and its mark.

    >>> split_name("echo-b1-echo-0.cancelled"), split_name("echo-b1-echo-0.2")
    (('echo-b1-echo-0', 'cancelled'), ('echo-b1-echo-0.2', ''))
    """
    head, _, last = name.rpartition(".")
    return (head, last) if head and last in MARKS else (name, "")


def seconds(text: str | None) -> float | None:
    """Returns a time of the engine in seconds since the epoch; None for its year 1, which means never.

    >>> seconds("1970-01-01T00:00:01.500000001Z"), seconds("0001-01-01T00:00:00Z")
    (1.500000001, None)
    """
    if not text or text.startswith("0001-"):
        return None
    whole, rest = text[:19], text[19:]
    digits = rest[1:].rstrip("Z").split("+")[0].split("-")[0] if rest.startswith(".") else ""
    zone = rest[len(digits) + 1 :] if digits else rest
    moment = datetime.fromisoformat(whole + ("+00:00" if zone in ("Z", "") else zone)).astimezone(
        timezone.utc
    )
    return moment.timestamp() + (float(f"0.{digits}") if digits else 0.0)


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isdigit() else default


def _mapping(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
