"""A container of an application: the engine's description of it as plain values, without conclusions."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from torchx.schedulers.docker.labels import (
    APP_ID,
    ATTEMPT,
    LARGEST,
    LAST_TIME,
    MOST_REPLICAS,
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

CANCELLED, STOPPED, FAILED = "cancelled", "stopped", "failed"
MARKS = (CANCELLED, STOPPED, FAILED)
"""Ends of a container's name that tell why it was ended: a name is all that can be changed of a container,
it stays with it, and everyone who reaches the engine sees it."""

LIVE = ("running", "paused", "restarting")
STATUSES = ("created", *LIVE, "exited", "dead", "removing")


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
        job: the facts of what was submitted.
        retry: which retries there have been when it was made.
        user: who submitted it; empty when that is not known.
        command: the program and its arguments.
        env: its environment, as ``NAME=value``.
        damage: why nothing can be concluded from it; empty as a rule.
        inspected: whether the engine has described it; else there is only its line in a listing.
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
    user: str = ""
    command: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[str, ...] = field(default=(), repr=False)
    damage: str = ""
    inspected: bool = True

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


DAMAGED = "damaged-"
"""How the id begins that is made for a container whose label has none that can be used."""


def read(inspected: Mapping[str, Any]) -> Container | None:
    """Reads what the engine says of a container; None when it is no replica of an application.

    One that cannot be read has the reason in ``damage``.
    """
    config = mapping_in(inspected, "Config")
    labels = mapping_in(config, "Labels")
    if APP_ID not in labels:
        return None
    name, mark = split_name(text_in(inspected, "Name").lstrip("/"))
    plain = Container(
        id=text_in(inspected, "Id"),
        name=name,
        mark=mark,
        app_id=id_for(labels[APP_ID], text_in(inspected, "Id")),
        role="",
        replica=0,
        status=status_in(mapping_in(inspected, "State"), "Status"),
        created=seconds(text_in(inspected, "Created")) or 0.0,
        gpus=tuple(_gpus(mapping_in(inspected, "HostConfig"))),
        user=_user(labels),
    )
    try:
        return _whole(plain, inspected, labels)
    except DamageError as damage:
        return replace(plain, damage=str(damage))


def _whole(plain: Container, inspected: Mapping[str, Any], labels: Mapping[str, Any]) -> Container:
    """Returns a container with all that is known of it.

    Raises:
        DamageError: a label or a value is not as it should be.
    """
    config, state, host = (mapping_in(inspected, name) for name in ("Config", "State", "HostConfig"))
    if not is_app_id(labels[APP_ID]):
        raise DamageError("its label app-id is no id")
    if plain.status not in STATUSES:
        raise DamageError("the engine names a state of it that does not exist")
    ended = plain.status in ("exited", "dead", "restarting", "removing")
    started, finished = seconds(text_in(state, "StartedAt")), seconds(text_in(state, "FinishedAt"))
    if started and finished and ended:
        # of one that ended at once, the engine may note the end first
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
        error=text_in(state, "Error"),
        started=started,
        finished=finished if ended else None,
        restarts=_integer(inspected, "RestartCount"),
        allowed_restarts=_integer(mapping_in(host, "RestartPolicy"), "MaximumRetryCount"),
        memory=_integer(host, "Memory"),
        stop_signal=text_in(config, "StopSignal") or "SIGTERM",
        host=text_in(config, "Hostname") or plain.name,
        image=text_in(config, "Image"),
        job=read_job(labels),
        retry=read_retry(labels),
        command=_texts(config, "Cmd"),
        env=_texts(config, "Env"),
    )


def id_for(label: object, container: str) -> str:
    """Returns the id of a container's application: that of its label, else one made for the container."""
    return str(label) if is_app_id(label) else f"{DAMAGED}{container[:12]}"


def damage_of(containers: Sequence[Container]) -> str:
    """Returns why an application cannot be read; empty when it can."""
    return containers[0].damage if containers else ""


def split_name(name: str) -> tuple[str, str]:
    """Returns a container's name and its mark.

    >>> split_name("echo-b1-echo-0.cancelled"), split_name("echo-b1-echo-0.2")
    (('echo-b1-echo-0', 'cancelled'), ('echo-b1-echo-0.2', ''))
    """
    head, _, last = name.rpartition(".")
    return (head, last) if head and last in MARKS else (name, "")


def seconds(text: str | None) -> float | None:
    """Returns a time of the engine in seconds since the epoch; None for its year 1, which means never.

    >>> seconds("1970-01-01T00:00:01.500000001Z"), seconds("0001-01-01T00:00:00Z"), seconds("soon")
    (1.500000001, None, None)
    """
    if not text or text.startswith("0001-") or not text.isascii():
        return None
    whole, rest = text[:19], text[19:]
    digits = rest[1:].rstrip("Z").split("+")[0].split("-")[0] if rest.startswith(".") else ""
    zone = rest[len(digits) + 1 :] if digits else rest
    try:
        moment = datetime.fromisoformat(whole + ("+00:00" if zone in ("Z", "") else zone)).astimezone(
            timezone.utc
        )
        found = moment.timestamp() + (float(f"0.{digits}") if digits else 0.0)
    except (ValueError, OverflowError):
        return None
    return found if 0.0 <= found <= LAST_TIME else None


def status_in(data: Mapping[str, Any], name: str) -> str:
    """Returns a state of a container in Docker's words."""
    found = text_in(data, name)
    return _WORDS.get(found, found)


def mapping_in(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns a value that is a mapping; an empty one for anything else."""
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def text_in(data: Mapping[str, Any], name: str) -> str:
    """Returns a value that is a text; an empty one for anything else."""
    found = data.get(name)
    return found if isinstance(found, str) else ""


def _texts(data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = data.get(name)
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()


def _integer(data: Mapping[str, Any], name: str) -> int:
    found = data.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def _exit_code(state: Mapping[str, Any]) -> int:
    code = state.get("ExitCode")
    if not isinstance(code, int):
        raise DamageError("the engine names no exit code of it")
    return code


def _user(labels: Mapping[str, Any]) -> str:
    try:
        return name_of(labels, USER)
    except DamageError:
        return ""


def _gpus(host: Mapping[str, Any]) -> Iterable[str]:
    requests = host.get("DeviceRequests")
    for one in requests if isinstance(requests, list) else ():
        if isinstance(one, dict):
            yield from _texts(one, "DeviceIDs")
