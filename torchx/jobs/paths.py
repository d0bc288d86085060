"""Where everything of a local job lies: all its paths are properties of one class."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from torchx import settings
from torchx.errors import StateError
from torchx.machine import files


def state_home() -> Path:
    """Returns the folder that holds all state, private to this user; made when it is not there.

    Raises:
        StateError: it cannot be made, is not a folder, or belongs to someone else.
    """
    home = user_home()
    try:
        files.make_folder(home)
    except OSError as error:
        raise StateError(
            f"the state home {home} cannot be used: {error.strerror}", hint=files.OTHER_HOME
        ) from error
    files.check_home(home)
    return home


def user_home() -> Path:
    """Returns the folder that holds all state, there or not.

    Raises:
        StateError: nothing says where it should be, it belongs to another user, or others may write to it.
    """
    home = _home_folder()
    files.check_home(home)
    return home


def check_user_home() -> None:
    """Checks the state home for a command that may do without one.

    Raises:
        StateError: it belongs to another user, or others may write to it.
    """
    try:
        home = _home_folder()
    except StateError:
        return
    files.check_home(home)


def _home_folder() -> Path:
    told = os.environ.get(settings.TORCHX_HOME)
    try:
        return Path(told).expanduser().absolute() if told else Path.home() / ".torchx"
    except RuntimeError as error:  # no HOME, and a user without an entry in the password file
        raise StateError("no home folder is known for this user", hint=files.OTHER_HOME) from error


def file_name(name: str) -> str:
    """Returns a name as it may stand in a path: one component, never a dot folder.

    >>> file_name("trainer"), file_name("a/b"), file_name("..")
    ('trainer', 'a%2Fb', '%2E%2E')
    """
    if name.strip(".") and name.isascii() and _SAFE.issuperset(name):
        return name
    safe = _SAFE if name.strip(".") else frozenset()
    return "".join(chr(b) if chr(b) in safe else f"%{b:02X}" for b in name.encode("utf-8", "surrogateescape"))


_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_. +,=@:~")


class Home(NamedTuple):
    """The state home.

    Attributes:
        path: its folder.
    """

    path: Path

    @property
    def jobs(self) -> Path:
        """Holds one folder for each job that is on record."""
        return self.path / "jobs"

    @property
    def ended(self) -> Path:
        """One line for each job that has ended, so that a listing reads one file."""
        return self.path / "ended.jsonl"

    @property
    def logs(self) -> Path:
        """Holds the log trees of jobs for which no other place was named."""
        return self.path / "logs"

    @property
    def images(self) -> Path:
        """Holds one folder for each archive that was unpacked."""
        return self.path / "images"

    @property
    def devices(self) -> Path:
        """Holds one lock file for each device that a job has leased."""
        return self.path / "devices"

    def job(self, app_id: str) -> JobPaths:
        """Returns the paths of one job, on record or not."""
        return JobPaths(self.jobs / file_name(app_id))


class JobPaths(NamedTuple):
    """The files of one job's record.

    Attributes:
        folder: holds them all; private to the user.
    """

    folder: Path

    @property
    def record(self) -> Path:
        """What was submitted; written once."""
        return self.folder / "job.json"

    @property
    def events(self) -> Path:
        """What has happened since; only ever appended to."""
        return self.folder / "events.jsonl"

    @property
    def lock(self) -> Path:
        """Held by the supervisor as long as it lives."""
        return self.folder / "lock"

    @property
    def cancel(self) -> Path:
        """There once someone asked for the end of the job."""
        return self.folder / "cancel"

    @property
    def reserve(self) -> Path:
        """Room that is kept for events, for the case that the disk fills up while the job runs."""
        return self.folder / "reserve"

    @property
    def workspaces(self) -> Path:
        """Holds the copies of workspaces that the job runs in."""
        return self.folder / "workspace"

    @property
    def supervisor_log(self) -> Path:
        """What the supervisor itself had to complain of; empty as a rule."""
        return self.folder / "supervisor.log"


@dataclass(frozen=True)
class LogPaths:
    """The log tree of one job.

    Attributes:
        folder: the job's own folder, ``<log_dir>/<session>/<app_id>``.
    """

    folder: Path

    @property
    def index(self) -> Path:
        """Tells when which piece of which log was written."""
        return self.folder / "log.index"

    @property
    def success(self) -> Path:
        """Written when the job has ended, however it did: the name is the field's."""
        return self.folder / "SUCCESS"

    def torchelastic(self, role: str) -> Path:
        """Where torchelastic puts the logs of its workers."""
        return self.folder / "torchelastic" / file_name(role)

    def replica(self, role: str, replica: int) -> Path:
        """The folder of a replica: logs of its current attempt, and a folder for each earlier one."""
        return self.folder / file_name(role) / str(replica)

    def attempt(self, role: str, replica: int, attempt: int, current: int) -> Path:
        """The folder that holds the logs of one attempt, given which attempt is the current one."""
        folder = self.replica(role, replica)
        return folder if attempt >= current else folder / f"attempt-{attempt}"
