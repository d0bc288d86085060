"""Paths of the state home, and of the records and logs of local jobs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torchx.errors import UsageError
from torchx.machine.files import check_user_home as check_user_home
from torchx.machine.files import state_home as state_home
from torchx.machine.files import user_home as user_home


def file_name(name: str) -> str:
    """Returns a name escaped for use as a file name; never `.` or `..`.

    >>> file_name("trainer"), file_name("a/b"), file_name("..")
    ('trainer', 'a%2Fb', '%2E%2E')
    """
    if name.strip(".") and name.isascii() and _SAFE.issuperset(name):
        return name
    safe = _SAFE if name.strip(".") else frozenset()
    return "".join(chr(b) if chr(b) in safe else f"%{b:02X}" for b in name.encode("utf-8", "surrogateescape"))


def check_file_name(kind: str, name: str) -> None:
    """Checks that a name can be that of a file or a folder.

    Args:
        kind: the named thing, for the message.
        name: the name.

    Raises:
        UsageError: it is too long.
    """
    if len(file_name(name)) > LONGEST_NAME:
        raise UsageError(
            f"the name of the {kind} `{name[:24]}…` is too long for a file: {len(file_name(name)):,} bytes",
            hint=f"shorten it to {LONGEST_NAME} or less; --name NAME names the application",
        )


LONGEST_NAME = 200
"""Maximum length of a name in a path; file systems allow 255, and an id is appended."""
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_. +,=@:~")


def place(backend: str, app_id: str) -> str:
    """Returns the path of an application's files in a folder of the state home.

    The end of a long id is kept, since it is unique.
    """
    return f"{file_name(backend)}/{file_name(app_id)[-LONGEST_NAME:]}"


class Inside(str):
    """The name of a file or a folder inside ``folder`` of an object; as an attribute of it, the path."""

    def __get__(self, owner: Any, kind: type) -> Path:
        return Path(owner.folder, self)


@dataclass(frozen=True)
class Folder:
    """A folder whose files are attributes of its kind.

    Attributes:
        folder: its path.
    """

    folder: Path


class Home(NamedTuple):
    """The state home.

    Attributes:
        path: its folder.
    """

    path: Path

    @property
    def jobs(self) -> Path:
        """The records: a folder for each job."""
        return self.path / "jobs"

    @property
    def ended(self) -> Path:
        """The list of ended jobs, one line each, so that a listing reads one file."""
        return self.path / "ended.jsonl"

    @property
    def logs(self) -> Path:
        """The default folder of log trees."""
        return self.path / "logs"

    @property
    def notifications(self) -> Path:
        """The notifications about applications of engines that do not send them: a folder for each engine."""
        return self.path / "notifications"

    @property
    def provenance(self) -> Path:
        """The source of applications of engines without a folder for each: a folder for each engine."""
        return self.path / "provenance"

    @property
    def secrets(self) -> Path:
        """The secrets of applications, to be masked: a folder for each engine."""
        return self.path / "secrets"

    @property
    def sweeps(self) -> Path:
        """The sweeps, a folder each."""
        return self.path / "sweeps"

    @property
    def queue(self) -> Path:
        """The markers of waiting jobs, an empty file each."""
        return self.path / "queue"

    @property
    def containers(self) -> Home:
        """The home of supervisors of containers that were submitted elsewhere, and of locks for builds."""
        return Home(self.path / "docker")

    @property
    def restored(self) -> Path:
        """The working trees that were restored for other runs, a folder each."""
        return self.path / "restored"

    def owner_of(self, tree: str) -> Path:
        """The file with the handle of a restored tree's application; empty before the submission."""
        return self.restored / f".handle-{tree}"

    @property
    def images(self) -> Path:
        """The unpacked archives, a folder each."""
        return self.path / "images"

    @property
    def devices(self) -> Path:
        """The lock files of leased devices."""
        return self.path / "devices"

    def job(self, app_id: str) -> JobPaths:
        """Returns the paths of a job, which need not exist."""
        return JobPaths(self.jobs / file_name(app_id))


class JobPaths(Folder):
    """The files of one job's record; its folder is private to the user."""

    record = Inside("job.json")
    """The submitted job, written once."""
    events = Inside("events.jsonl")
    """The event log, append-only."""
    lock = Inside("lock")
    """The lock that the supervisor holds while it is alive."""
    cancel = Inside("cancel")
    """The requests to end the job; exists if there is one."""
    reserve = Inside("reserve")
    """Disk space reserved for events, in case the disk fills up while the job runs."""
    usage = Inside("usage")
    """The measurements of its replicas."""
    heartbeats = Inside("heartbeats")
    """The heartbeats of its replicas; exists while it runs, if stalls are detected."""
    workspaces = Inside("workspace")
    """The copies of workspaces that the job runs in."""
    checkpoints = Inside("checkpoints")
    """The folder for its checkpoints, unless another one is given."""
    notifications = Inside("notifications")
    """The targets and the journal of its notifications; exists if it has any."""
    provenance = Inside("provenance")
    """The source that it was submitted from."""
    ticket = Inside("ticket.json")
    """The needs of a job that waits for resources; exists until its supervisor starts."""

    def is_waiting(self) -> bool:
        """Returns True if the job has a ticket; one that has a supervisor too is just starting."""
        return self.ticket.exists()

    origin = Inside("environment.json")
    """The environment of the submission of a waiting job."""
    supervisor_log = Inside("supervisor.log")
    """The error output of the supervisor, normally empty."""


class LogPaths(Folder):
    """The log tree of one job; its folder is ``<log_dir>/<session>/<app_id>``."""

    index = Inside("log.index")
    """The index of all logs by time."""
    success = Inside("SUCCESS")
    """The summary written when the job has ended, even if it failed; the name is conventional."""
    stacks = Inside("stacks.txt")
    """The stacks at the last stall, as text; beside it, the same as JSON."""
    flight_recorder = Inside("flight_recorder")
    """The dumps of PyTorch's flight recorder, a folder for each role."""

    def torchelastic(self, role: str) -> Path:
        """Returns the folder for the worker logs of torchelastic."""
        return self.folder / "torchelastic" / file_name(role)

    def replica(self, role: str, replica: int) -> Path:
        """Returns the folder of a replica: its current logs, and a folder for each earlier attempt."""
        return self.folder / f"{file_name(role)}/{replica}"
