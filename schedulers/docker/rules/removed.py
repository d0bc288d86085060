"""Records the ends of containers, so that a result stays when its container is removed.

The supervisor of an application appends a line to a private file for each container that has ended: the part
of the engine's description that the rules need.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs.paths import Home, file_name, user_home
from torchx.json_limits import Data
from torchx.machine import files
from torchx.schedulers.docker.containers import Container, damage_of, read
from torchx.schedulers.docker.labels import APP_ID, ATTEMPT, ENDS_AT, REPLICA, RETRY, ROLE

LONGEST_NAME = 200
"""Maximum characters of an id in the name of a file; its end is kept, since that is unique."""
LONGEST_FILE = 64 << 20
"""Maximum size of a file in bytes."""


def ends_path(app_id: str) -> Path:
    """Returns the file with the ends of an application's containers, which may not exist."""
    return Home(user_home()).containers.path / "ends" / file_name(app_id)[-LONGEST_NAME:]


class Ends:
    """Appends the ends of an application's containers to its file.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._recorded: set[tuple[str, str]] = set()

    def record(self, containers: Sequence[Container]) -> None:
        """Records the containers that have ended, or got another mark, since the last call."""
        # one that is being removed was killed for that
        ended = {(c.id, c.mark): c for c in containers if c.status == "exited"}
        fresh = [container for key, container in ended.items() if key not in self._recorded]
        if not fresh:
            return
        self._recorded |= ended.keys()
        lines = [f"{json.dumps(_description(one))}\n".encode() for one in fresh if not one.removed]
        with suppress(OSError):  # e.g. a full disk
            files.make_folder(self._path.parent)
            files.append_lines(self._path, lines)


def with_removed(app_id: str, containers: list[Container]) -> list[Container]:
    """Returns the containers of an application, and the recorded ones that were removed.

    Args:
        app_id: the application.
        containers: its existing containers.
    """
    if damage_of(containers) or not containers or not _lacks_one(containers):
        return containers
    job = next((c.job for c in containers if c.job), {})
    present = {(c.role, c.replica, c.attempt) for c in containers}
    removed = {(c.role, c.replica, c.attempt): c for c in _recorded(app_id)}
    return containers + [
        replace(c, job=job, user=containers[0].user) for key, c in removed.items() if key not in present
    ]


def _lacks_one(containers: Sequence[Container]) -> bool:
    """Returns True if not every attempt of every replica has a container."""
    newest: dict[tuple[str, int], int] = {}
    for container in containers:
        replica = (container.role, container.replica)
        newest[replica] = max(newest.get(replica, 0), container.attempt)
    job: Data = next((c.job for c in containers if c.job), {"app": {"roles": []}})
    replicas = sum(role["num_replicas"] for role in job["app"]["roles"])
    return len(newest) < replicas or len(containers) < sum(newest.values())


def _recorded(app_id: str) -> Iterator[Container]:
    """Yields the containers in the file of an application; the last line about one counts."""
    lines: list[bytes] = []
    with suppress(OSError, StateError):
        lines = files.read_file(ends_path(app_id), LONGEST_FILE).splitlines()
    for line in lines:
        with suppress(ValueError, RecursionError, AttributeError):
            container = read(json.loads(line))
            if container is not None and container.app_id == app_id and not container.damage:
                yield replace(container, removed=True)


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
        "Name": c.full_name,
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
