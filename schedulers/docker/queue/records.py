"""The records of applications that wait for resources before their containers are created.

Such an application has a record and a ticket like a local job, in the folder of its supervisor, and beside
them its request. When its containers have started, its supervisor removes these files: then the containers
hold its state. An application that ends before that keeps its record.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchx import json_shape
from torchx.errors import StateError
from torchx.jobs.paths import Home, JobPaths, state_home, user_home
from torchx.json_limits import Object
from torchx.lazy import lazy_imports
from torchx.machine import files

with lazy_imports:
    from torchx.jobs import reconcile, record, ticket
    from torchx.schedulers.docker import labels
    from torchx.schedulers.shared import queue
    from torchx.services import rules
    from torchx.supervisor import launch

if TYPE_CHECKING:
    from torchx.jobs.ticket import Ticket
    from torchx.jobs.view import JobView
    from torchx.json_limits import Data
    from torchx.schedulers.docker.engine.address import Address
    from torchx.specs.app import AppDef, Role

Bodies = Sequence[tuple[str, Object]]
"""The name of each container, and the body of the request that creates it."""

SOCKET, REQUEST = "engine", "request.json"
"""The file with the socket of the engine, and that with the request."""

LONGEST_PATH = 4096
"""Maximum bytes of the path of a socket."""


class Request(NamedTuple):
    """The request of a waiting application.

    Attributes:
        data: the data of the application, from :func:`torchx.schedulers.docker.record.job_data`.
        containers: its containers.
    """

    data: Object
    containers: list[tuple[str, Object]]

    def save(self, folder: Path) -> None:
        """Writes the request into the folder of a record, readable by this user only."""
        files.write_file(folder / REQUEST, json.dumps(self._asdict(), separators=(",", ":")).encode())

    @classmethod
    def load(cls, paths: JobPaths) -> Request:
        """Reads the request of an application.

        Raises:
            OSError: it cannot be read.
            StateError: it is damaged.
        """
        path = paths.folder / REQUEST
        try:
            content = json.loads(files.read_file(path, record.LARGEST))
            request: Request = json_shape.read(cls, content, "request")
            return request
        except (ValueError, TypeError, RecursionError) as error:
            raise StateError(f"{path} is damaged: {error}", code="damaged_record") from error


class Queued(NamedTuple):
    """An application whose containers have not started.

    Attributes:
        paths: its record.
        view: its state.
    """

    paths: JobPaths
    view: JobView

    @property
    def is_interrupted(self) -> bool:
        """Whether its start was begun by a process that was killed."""
        return self.view.orphaned and self.view.has_ended


def create(address: Address, app: AppDef, data: Data, containers: Bodies, mine: Ticket) -> list[str]:
    """Records an application that waits for its resources.

    Args:
        address: its engine, on this machine.
        app: the application.
        data: its data.
        containers: its containers.
        mine: its ticket.

    Returns:
        Notes for the user: the reason why it waits.

    Raises:
        UsageError: it exists already.
        StateError: it cannot be recorded.
    """
    home = Home(state_home()).containers
    job = record.JobRecord(
        app_id=mine.app_id,
        scheduler="local_docker",
        session=data["session"],
        name=app.name,
        submitted_at=data["submitted_at"],
        log_dir=str(home.logs / data["session"] / mine.app_id),
        roles=[_role(role) for role in app.roles],
        app=data["app"],
        cfg=dict(data["cfg"]),
    )

    def fill(folder: Path) -> None:
        # whatever the context of the docker command is by then
        queue.fill(folder, mine, {**os.environ, "DOCKER_HOST": f"unix://{address.path}"})
        files.write_file(folder / SOCKET, os.fsencode(address.path))
        Request(dict(data), list(containers)).save(folder)

    launch.launch(home, job, fill=fill, supervise=False)
    return queue.enqueue(home, mine.app_id)


def _role(role: Role) -> record.RoleRecord:
    service, after = rules.of_role(role)
    return record.RoleRecord(
        role.name,
        [record.ReplicaRecord([], {}) for _ in range(role.num_replicas)],
        {},
        max_retries=role.max_retries,
        retry_policy=role.retry_policy.value,
        service=service,
        after=after,
    )


def find(address: Address, app_id: str) -> Queued | None:
    """Returns an application of an engine whose containers have not started, None without such a record.

    Raises:
        StateError: its record is damaged.
    """
    paths = paths_of(address, app_id)
    if paths is None:
        return None
    with suppress(FileNotFoundError, NotADirectoryError):  # its containers have just started
        return Queued(paths, reconcile.read(paths))
    return None


def paths_of(address: Address, app_id: str) -> JobPaths | None:
    """Returns the record of an application of an engine, or None."""
    home = _home(address)
    if home is None or not labels.is_app_id(app_id):
        return None
    paths = home.job(app_id)
    if exists(paths) and _is_of(address, paths):
        return paths
    return None


def exists(paths: JobPaths) -> bool:
    """Returns True if the containers of an application with this record have not started."""
    return os.path.lexists(paths.record)


def find_all(address: Address) -> Iterator[tuple[str, Queued | StateError]]:
    """Yields the applications of an engine whose containers have not started, or why one cannot be read."""
    home = _home(address)
    with suppress(OSError):
        for name in sorted(os.listdir(home.jobs)) if home is not None else ():  # noqa: PTH208 - names
            if name.startswith("."):
                continue
            try:
                queued = find(address, name)
            except StateError as error:
                yield name, error
                continue
            if queued is not None:
                yield name, queued


def images(address: Address) -> set[str]:
    """Returns the images of the applications of an engine that wait."""
    found = set()
    for _, queued in find_all(address):
        if isinstance(queued, Queued) and queued.paths.is_waiting():
            with suppress(OSError, StateError):
                found |= {str(body.get("Image")) for _, body in Request.load(queued.paths).containers}
    return found


def started(paths: JobPaths) -> None:
    """Removes the record of an application whose containers have started; does nothing without one."""
    if not exists(paths):
        return
    logs = None
    with suppress(OSError, StateError):
        logs = Path(record.JobRecord.load(paths.record).log_dir)
    paths.record.unlink(missing_ok=True)  # first: from now on its containers hold its state
    ticket.clear(Home(paths.folder.parent.parent), paths)
    for path in (paths.events, paths.reserve, paths.folder / REQUEST, paths.folder / SOCKET):
        with suppress(OSError):
            path.unlink(missing_ok=True)
    if logs is not None:
        with suppress(OSError):
            logs.rmdir()


def _home(address: Address) -> Home | None:
    if not address.path:
        return None
    try:
        return Home(user_home()).containers
    except StateError:  # without a state home no application waits
        return None


def _is_of(address: Address, paths: JobPaths) -> bool:
    try:
        path = files.read_file(paths.folder / SOCKET, LONGEST_PATH)
    except OSError:
        return exists(paths)  # damaged: it can be removed
    return os.path.realpath(path) == os.path.realpath(os.fsencode(address.path))
