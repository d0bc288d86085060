"""The folders of applications in containers: beside those of local jobs, and like them.

Each application that was submitted here has one: the whole application, its needs while it waits, its
events, its measurements and its end. It adds to the labels and the marks of the containers, which have all
that other machines and users need. An application of another machine, or of version 0.1.0, lacks it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchx import json_shape
from torchx.errors import StateError
from torchx.jobs.paths import Home, JobPaths, user_home
from torchx.jobs.record import LARGEST, JobRecord, ReplicaRecord, RoleRecord, scheduler_in
from torchx.json_limits import Data, Object
from torchx.lazy import lazy_imports
from torchx.machine import files
from torchx.schedulers.docker.labels import is_app_id
from torchx.schedulers.shared.stalls import StallHistory, read_stalls
from torchx.settings import POLICIES

with lazy_imports:
    from torchx.jobs import catalog, reconcile
    from torchx.services import rules

if TYPE_CHECKING:
    from torchx.jobs.view import JobView
    from torchx.schedulers.docker.engine.address import Address
    from torchx.specs.app import AppDef, Role

SCHEDULER = "local_docker"
REQUEST = "request.json"
"""The file with the bodies of the containers; exists until they have started."""

_MACHINE = Path("/etc/machine-id")

Bodies = list[tuple[str, Object]]
"""The name of each container, and the body of the request that creates it."""


def stalls_of(app_id: str, cfg: Data) -> StallHistory:
    """Returns the recorded stalls of an application; none if it requests no detection, or has no folder.

    Args:
        app_id: the application.
        cfg: its run options.
    """
    paths = own_folder(app_id)
    if paths is None or not (cfg.get("stall") or cfg.get("straggler")):
        return StallHistory()
    return read_stalls(paths.events)


class Submitted(NamedTuple):
    """An application that was submitted here.

    Attributes:
        paths: its folder.
        view: its state by its events.
    """

    paths: JobPaths
    view: JobView

    @property
    def is_unstarted(self) -> bool:
        """Whether its containers have not started, or never did: the engine knows nothing about it."""
        return os.path.lexists(self.paths.folder / REQUEST)

    @property
    def is_interrupted(self) -> bool:
        """Whether its start was begun by a process that was killed."""
        return self.view.orphaned and self.is_unstarted and not self.waits

    @property
    def waits(self) -> bool:
        """Whether it has a ticket, and no process has begun to start its containers."""
        return self.paths.is_waiting() and self.view.supervisor is None

    @property
    def home(self) -> Home:
        """The state home of its folder."""
        return Home(self.paths.folder.parent.parent)


def identity_of(address: Address) -> str:
    """Returns the text with which records name an engine.

    The path of a socket is the same on all machines that share a home, so the text begins with a digest of
    the id of this machine.
    """
    if not address.path:
        return address.text
    machine = b""
    with suppress(OSError):
        machine = _MACHINE.read_bytes().strip()
    return f"{hashlib.sha256(machine).hexdigest()[:16]}:{os.path.realpath(address.path)}"


def own_folder(app_id: str) -> JobPaths | None:
    """Returns the folder of an application, None without a record of one that was submitted here."""
    if not is_app_id(app_id):
        return None
    with suppress(StateError):  # without a state home there is none
        paths = Home(user_home()).job(app_id)
        if os.path.lexists(paths.record):
            return paths
    return None


def view_of(app_id: str) -> JobView | None:
    """Returns the state of an application by its events, None without a readable record of it."""
    paths = own_folder(app_id)
    with suppress(OSError, StateError):
        if paths is not None:
            view: JobView = reconcile.read(paths)
            if view.record.scheduler == SCHEDULER:
                return view
    return None


def find(address: Address, app_id: str) -> Submitted | None:
    """Returns an application that was submitted here to an engine, or None.

    Raises:
        StateError: its record is damaged.
    """
    paths = own_folder(app_id)
    if paths is None:
        return None
    try:
        view = reconcile.read(paths)
    except (FileNotFoundError, NotADirectoryError):  # it was just removed
        return None
    except StateError:
        if scheduler_in(paths.record) == SCHEDULER:
            raise
        return None
    if (view.record.scheduler, view.record.engine) == (SCHEDULER, identity_of(address)):
        return Submitted(paths, view)
    return None


def is_known(address: Address, app_id: str, *, unreadable: bool = False) -> bool:
    """Returns True if an application was submitted here to an engine.

    Args:
        address: the engine.
        app_id: the application.
        unreadable: the result if its record cannot be read.
    """
    try:
        return find(address, app_id) is not None
    except StateError:
        return unreadable


def find_unlisted(address: Address) -> Iterator[tuple[str, Submitted | StateError]]:
    """Yields the applications of an engine that the list of ended jobs lacks, or why one is unreadable."""
    try:
        home = Home(user_home())
    except StateError:  # without a state home there are none
        return
    listed = catalog.catalog(home)
    for name in sorted(listed.app_ids - listed.lines.keys()):
        app_id = os.fsdecode(name)
        if scheduler_in(home.job(app_id).record) != SCHEDULER:
            continue
        try:
            submitted = find(address, app_id)
        except StateError as error:
            yield app_id, error
            continue
        if submitted is not None:
            yield app_id, submitted


def images_of_waiting(address: Address) -> set[str]:
    """Returns the images of the applications of an engine whose containers have not started."""
    names = set()
    for _, submitted in find_unlisted(address):
        if isinstance(submitted, Submitted) and submitted.paths.is_waiting():
            with suppress(OSError, StateError):
                names |= {str(body.get("Image")) for _, body in load_request(submitted.paths)}
    return names


def save_request(folder: Path, containers: Bodies) -> None:
    """Writes the bodies of containers into the folder of a record, readable by this user only."""
    files.write_file(folder / REQUEST, json.dumps(containers, separators=(",", ":")).encode())


def load_request(paths: JobPaths) -> Bodies:
    """Reads the bodies of the containers of an application that have not started.

    Raises:
        OSError: they cannot be read.
        StateError: they are damaged.
    """
    path = paths.folder / REQUEST
    try:
        content = json.loads(files.read_file(path, LARGEST))
        containers: Bodies = json_shape.check_of(list[tuple[str, Object]])(content, "request")
        return containers
    except (ValueError, TypeError, RecursionError) as error:
        raise StateError(f"{path} is damaged: {error}", code="damaged_record") from error


def begin(paths: JobPaths) -> None:
    """Records that the containers of an application have started; a removal needs no space on the disk."""
    with suppress(OSError):
        (paths.folder / REQUEST).unlink(missing_ok=True)


def record_of(address: Address, app_id: str, app: AppDef, data: Data, home: Home) -> JobRecord:
    """Returns the record of an application.

    Args:
        address: its engine.
        app_id: its id.
        app: the application.
        data: its data, from :func:`torchx.schedulers.docker.record.job_data`.
        home: the state home.
    """
    return JobRecord(
        app_id=app_id,
        scheduler=SCHEDULER,
        session=data["session"],
        name=app.name,
        submitted_at=data["submitted_at"],
        log_dir=str(home.logs / data["session"] / app_id),
        roles=[_role(role) for role in app.roles],
        app=data["app"],
        cfg=dict(data["cfg"]),
        policies=data.get(POLICIES, ()),
        engine=identity_of(address),
    )


def _role(role: Role) -> RoleRecord:
    service, after = rules.of_role(role)
    return RoleRecord(
        role.name,
        [ReplicaRecord([], {}) for _ in range(role.num_replicas)],
        {},
        max_retries=role.max_retries,
        retry_policy=role.retry_policy.value,
        service=service,
        after=after,
    )
