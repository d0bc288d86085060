"""A container of an application, parsed from the engine's description."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from torchx.exit_codes import signal_of
from torchx.json_limits import MOST_REPLICAS, Data
from torchx.json_shape import items_at, typed_at
from torchx.schedulers.docker import marks
from torchx.schedulers.docker.labels import (
    APP_ID,
    ATTEMPT,
    ENDS_AT,
    JOB,
    LARGEST,
    LAST_TIME,
    REPLICA,
    ROLE,
    USER,
    DamageError,
    is_app_id,
    name_of,
    number_of,
    read_job,
    read_retry,
)
from torchx.schedulers.docker.request import container_name, without_end_dots

LIVE = ("running", "paused", "restarting")
STATUSES = ("created", *LIVE, "exited", "dead", "removing")


@dataclass(frozen=True)
class Container:
    """One container: one attempt of a replica, or several if the engine restarts it.

    Attributes:
        id: the engine's id.
        name: its name without the mark.
        mark: that of its end: one of MARKS, REFUSED with a cause, UNREADY with an answer, or empty.
        ready: whether it was ready, as the container of a service.
        ready_at: since when, in seconds since the epoch; None if it was not, or for marks of version 0.1.0.
        app_id: the application.
        role: the name of its role.
        replica: its id within the role.
        attempt: the number of the attempt, from 1.
        status: as the engine reports it: created, running, paused, restarting, removing, exited or dead.
        exit_code: the exit code of its main process, 128 + N for signal N; None while it runs.
        oom: whether the kernel killed one of its processes because it was out of memory.
        error: the reason why it could not be started.
        created, started, finished: seconds since the epoch, or None.
        restarts: the number of restarts by the engine.
        allowed_restarts: the maximum number of restarts by the engine.
        memory: its memory limit in bytes; 0 if unlimited.
        stop_signal: the signal that stops it.
        host: its host name.
        pid: its main process on the engine's machine; 0 if it does not run.
        image: the image as requested.
        gpus: the ids of its GPUs.
        job: the data of the label JOB.
        retry: the retries before it was created.
        ends_at: the end of its run by the time limit, in seconds since the epoch; 0 without one.
        user: the owner of the application; empty if unknown.
        command: the program and its arguments.
        env: its environment as ``NAME=value``.
        damage: the reason why it cannot be read; normally empty.
        inspected: whether the engine could inspect it, and reports a known state.
        removed: whether the engine no longer has it, and only the supervisor's record of its end is known.
    """

    id: str
    name: str
    mark: str
    app_id: str
    role: str
    replica: int
    ready: bool = False
    ready_at: float | None = None
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
    pid: int = 0
    image: str = ""
    gpus: tuple[str, ...] = ()
    job: Data = field(default_factory=dict, repr=False)
    retry: Data = field(default_factory=dict)
    ends_at: int = 0
    user: str = ""
    command: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[str, ...] = field(default=(), repr=False)
    damage: str = ""
    inspected: bool = True
    removed: bool = False

    @property
    def full_name(self) -> str:
        """Its name on the engine, with its marks."""
        return self.named(self.mark)

    def named(self, mark: str) -> str:
        """Returns its name on the engine if its end had a mark."""
        ready = ""
        if self.ready:
            ready = marks.ready_since(self.ready_at)
        return ".".join(filter(None, (self.name, ready, mark)))

    def marked(self, mark: str) -> str:
        """Returns its name on the engine with a mark; a mark that this one does not replace stays."""
        replaced = not self.mark or (mark == marks.CANCELLED and marks.is_passing(self.mark))
        if replaced:
            return self.named(mark)
        return self.full_name

    @property
    def live(self) -> bool:
        """Whether it runs, is paused, or waits for a restart by the engine."""
        return self.status in LIVE

    @property
    def refused_cause(self) -> str:
        """The cause because of which its failure is not retried, or an empty string."""
        if self.mark.startswith(marks.REFUSED):
            return self.mark.removeprefix(marks.REFUSED)
        return ""

    @property
    def unready_answer(self) -> str | None:
        """The last answer of the probe of a service that was not ready in time; None for other ends."""
        if not self.mark.startswith(marks.UNREADY):
            return None
        return marks.decoded(self.mark.removeprefix(marks.UNREADY))

    @property
    def was_forced(self) -> bool:
        """Whether it was ended as a failed one: it was stalled, not ready in time, or ended by a policy."""
        return self.mark == marks.STALLED or self.mark.startswith((marks.UNREADY, marks.FORCED))

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended it; the init process reports it as 128 + N."""
        return signal_of(self.exit_code)


_PODMAN_STATUSES = {
    "initialized": "created",
    "configured": "created",
    "stopping": "running",
    "stopped": "exited",
}
"""Docker's status for each status that only Podman reports."""


class UnknownStateError(DamageError):
    """The engine does not report a known state or end of a container."""


DAMAGED = "damaged-"
"""Prefix of the generated id for a container whose label has no valid one."""


def read(inspected: Data) -> Container | None:
    """Parses the engine's description of a container; returns None if it is not a replica of an application.

    A container that only has the labels of a replica is not one. If a replica cannot be read, ``damage``
    holds the reason.
    """
    config = typed_at(inspected, dict, "Config")
    labels = typed_at(config, dict, "Labels")
    if APP_ID not in labels:
        return None
    name, ready, mark = marks.split_marks(typed_at(inspected, str, "Name").lstrip("/"))
    if _has_copied_labels(labels, name, typed_at(config, str, "Hostname")):
        return None
    plain = Container(
        id=typed_at(inspected, str, "Id"),
        name=name,
        mark=mark,
        ready=bool(ready),
        ready_at=marks.ready_at(ready),
        app_id=id_for(labels[APP_ID], typed_at(inspected, str, "Id")),
        role="",
        replica=0,
        status=status_in(typed_at(inspected, dict, "State"), "Status"),
        created=seconds(typed_at(inspected, str, "Created")) or 0.0,
        gpus=tuple(_gpus(typed_at(inspected, dict, "HostConfig"))),
        user=_user(labels),
    )
    try:
        return _parsed(plain, inspected, labels)
    except DamageError as damage:
        known = not isinstance(damage, UnknownStateError)
        return replace(plain, damage=str(damage), inspected=known)


def _has_copied_labels(labels: Data, name: str, host: str) -> bool:
    """Returns True if a container has the labels of a replica, but not its host name.

    Images inherit the labels of a container by ``docker commit``, and the containers of these images have
    them too. The host name is not inherited, and stays the same when a container is renamed.

    Args:
        labels: its labels.
        name: its name without marks.
        host: its host name.
    """
    try:
        role, replica = name_of(labels, ROLE), number_of(labels, REPLICA, 0, MOST_REPLICAS)
    except DamageError:
        return False
    if not role or not is_app_id(labels[APP_ID]):
        return False
    if JOB not in labels and host == name:  # a container of TorchX, which shortens names in another way
        return False
    # earlier versions kept dots
    return without_end_dots(host) != container_name(labels[APP_ID], role, replica)


def _parsed(plain: Container, inspected: Data, labels: Data) -> Container:
    """Returns a container with all its fields.

    Raises:
        DamageError: a label or a value is invalid.
    """
    config, state, host = (typed_at(inspected, dict, name) for name in ("Config", "State", "HostConfig"))
    if not is_app_id(labels[APP_ID]):
        raise DamageError("its label app-id is not an id")
    if plain.status not in STATUSES:
        raise UnknownStateError("the engine reports an unknown state")
    ended = plain.status in ("exited", "dead", "restarting", "removing")
    started = seconds(typed_at(state, str, "StartedAt"))
    finished = seconds(typed_at(state, str, "FinishedAt"))
    if started and finished and ended:
        # for a very short run, the engine may record the end before the start
        finished = max(started, finished)
    role = name_of(labels, ROLE)
    if not role:
        raise DamageError("it has no label role-name")
    return replace(
        plain,
        role=role,
        replica=number_of(labels, REPLICA, 0, MOST_REPLICAS),
        attempt=number_of(labels, ATTEMPT, 1, LARGEST),
        exit_code=_exit_code(state) if ended else None,
        oom=state.get("OOMKilled") is True,
        error=typed_at(state, str, "Error"),
        started=started,
        finished=finished if ended else None,
        restarts=typed_at(inspected, int, "RestartCount"),
        allowed_restarts=typed_at(host, int, "RestartPolicy", "MaximumRetryCount"),
        memory=typed_at(host, int, "Memory"),
        stop_signal=typed_at(config, str, "StopSignal") or "SIGTERM",
        host=typed_at(config, str, "Hostname") or plain.name,
        pid=typed_at(state, int, "Pid"),
        image=typed_at(config, str, "Image"),
        job=read_job(labels),
        retry=read_retry(labels),
        ends_at=number_of(labels, ENDS_AT, 0, int(LAST_TIME)),
        command=tuple(items_at(config, str, "Cmd")),
        env=tuple(items_at(config, str, "Env")),
    )


def id_for(label: object, container: str) -> str:
    """Returns the id of a container's application from its label, or a generated one if that is invalid."""
    if is_app_id(label):
        return str(label)
    return f"{DAMAGED}{container[:12]}"


def damage_of(containers: Sequence[Container]) -> str:
    """Returns the reason why an application cannot be read, or an empty string."""
    if containers:
        return containers[0].damage
    return ""


def seconds(text: str | None) -> float | None:
    """Returns a timestamp of the engine in seconds since the epoch; None for year 1, which means never.

    >>> seconds("1970-01-01T00:00:01.500000001Z"), seconds("0001-01-01T00:00:00Z"), seconds("soon")
    (1.500000001, None, None)
    """
    if not text or text.startswith("0001-") or not text.isascii():
        return None
    whole, rest = text[:19], text[19:]
    digits = ""
    if rest.startswith("."):
        digits = rest[1:].rstrip("Z").split("+")[0].split("-")[0]
    zone = rest[len(digits) + 1 :] if digits else rest
    try:
        moment = datetime.fromisoformat(whole + ("+00:00" if zone in ("Z", "") else zone)).astimezone(
            timezone.utc
        )
        timestamp = moment.timestamp() + (float(f"0.{digits}") if digits else 0.0)
    except (ValueError, OverflowError):
        return None
    if 0.0 <= timestamp <= LAST_TIME:
        return timestamp
    return None


def status_in(data: Data, name: str) -> str:
    """Returns the status of a container, with Docker's name for it."""
    status = typed_at(data, str, name)
    return _PODMAN_STATUSES.get(status, status)


def _exit_code(state: Data) -> int:
    code = state.get("ExitCode")
    if not isinstance(code, int):
        raise UnknownStateError("the engine reports no exit code")
    return code


def _user(labels: Data) -> str:
    try:
        return name_of(labels, USER)
    except DamageError:
        return ""


def _gpus(host: Data) -> Iterable[str]:
    for one in items_at(host, dict, "DeviceRequests"):
        yield from items_at(one, str, "DeviceIDs")
