"""The ticket of a local job that waits for resources: its needs, and its place in the queue.

A waiting job is recorded like any other, and has a ticket beside its record until its supervisor starts. Its
marker, an empty file in one folder of the state home, lets the keeper of the queue find it.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from torchx import json_shape
from torchx.errors import StateError
from torchx.jobs.paths import Home, JobPaths, file_name
from torchx.json_limits import compact_json
from torchx.json_shape import HandleText, SystemText, Truth
from torchx.machine import files, processes

LARGEST = 1 << 22
"""Maximum bytes of a ticket or of an environment."""

MOST_PRIORITY = 1_000_000
"""The largest priority, and the smallest one below 0."""


def _priority(value: Any, name: str) -> int:
    if type(value) is not int or abs(value) > MOST_PRIORITY:
        raise ValueError(f"`{name}` is not a priority")
    return value


Priority = Annotated[int, _priority]


class Ticket(NamedTuple):
    """The needs of a waiting job.

    Attributes:
        app_id: the application.
        at: the time of its submission, seconds since the epoch.
        gpus: the number of GPUs.
        cpus: the names of processors to reserve, and their number.
        memory: the names of units of memory to reserve, and their number.
        visible: the GPUs that it may use, each with its lease, its text for CUDA_VISIBLE_DEVICES and its
            number.
        per_role: the GPUs of each replica, by role.
        ports: the names of its ports.
        priority: jobs with a higher one start first.
        limit: its time limit in seconds; None without one.
        held: it does not start until it is released.
        boot_id: the boot of this machine that it waits in.
        cwd: the working directory of its supervisor.
        umask: the umask of its replicas.
        place_at: the time that determines its place, seconds since the boot of the machine.
    """

    app_id: HandleText
    at: float
    gpus: int = 0
    cpus: tuple[tuple[str, ...], int] = ((), 0)
    memory: tuple[tuple[str, ...], int] = ((), 0)
    visible: tuple[tuple[str, str, str], ...] = ()
    per_role: tuple[tuple[str, int], ...] = ()
    ports: tuple[str, ...] = ()
    priority: Priority = 0
    limit: float | None = None
    held: Truth = False
    boot_id: str = ""
    cwd: SystemText = "/"
    umask: int = 0o022
    place_at: float = 0.0

    @property
    def is_of_this_boot(self) -> bool:
        """Whether the machine was not restarted since the job began to wait, or was released."""
        return self.boot_id == processes.boot_id()

    def save(self, paths: JobPaths) -> None:
        """Writes the ticket, readable by this user only.

        Raises:
            OSError: it cannot be written.
        """
        files.write_file(paths.ticket, compact_json(self._asdict()).encode())

    @classmethod
    def load(cls, paths: JobPaths) -> Ticket:
        """Reads the ticket of a job.

        Raises:
            OSError: it does not exist, or cannot be read.
            StateError: it is damaged.
        """
        try:
            data = json.loads(files.read_file(paths.ticket, LARGEST))
            ticket: Ticket = json_shape.read(cls, data, "ticket", optional=("limit", "place_at"))
            return ticket
        except (ValueError, TypeError, RecursionError) as error:
            raise StateError(
                f"{paths.ticket} is damaged: {error}",
                hint=f"remove the application: torchx delete {paths.folder.name}",
                code="damaged_record",
            ) from error


def folder_of(app_id: str) -> str:
    """Returns the name of the folder of a job."""
    return file_name(app_id)


def marked(home: Home) -> list[str]:
    """Returns the names of the folders of jobs that may wait."""
    return [name for name in files.names_in(home.queue) if not name.startswith(".")]


def mark(home: Home, paths: JobPaths) -> None:
    """Adds the marker of a job.

    Raises:
        OSError: it cannot be written.
    """
    files.make_folder(home.queue)
    files.write_file(home.queue / paths.folder.name, b"")


def clear(home: Home, paths: JobPaths) -> None:
    """Removes the ticket of a job that no longer waits, its environment and its marker."""
    for path in (paths.ticket, paths.origin, home.queue / paths.folder.name):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def save_origin(path: Path, env: dict[str, str]) -> None:
    """Writes the environment of a submission, readable by this user only."""
    files.write_file(path, json.dumps(env).encode())


def load_origin(path: Path) -> dict[str, str]:
    """Reads the environment of a submission.

    Raises:
        OSError: it does not exist, or cannot be read.
        ValueError: it is damaged.
    """
    env: dict[str, str] = json_shape.check_of(json_shape.Environment)(
        json.loads(files.read_file(path, LARGEST)), "environment"
    )
    return env
