"""The folder of a Slurm job: its files, and whether it can be trusted to be one of the caller's own."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchx.jobs.paths import file_name
from torchx.machine import files

LONGEST_FILE = 1 << 20
"""Bytes of a small file that are read."""
LONGEST_RECORD = 1 << 25
"""The same of a record, which holds the arguments and the environment of all roles."""
TOKEN = re.compile(r"[a-z0-9]{1,64}")
_OWN_FILES = {"id", "over", "attempt", "cancelled", "stopped", "stopping", "first", "outcome.json"} | {
    "job.json", "job.sh", "roles.sh", "batch.log", "keeper.py"
}  # fmt: skip
ATTEMPT = re.compile(r"attempt-([0-9]{1,9})")
"""The name of an attempt's folder."""
_ROLE_FILE = re.compile(r"role-\d+\.sh")


def role_folder(role: str) -> str:
    """Returns the name of a role's folder, which none of the other files in the folder of a job has.

    >>> role_folder("trainer"), role_folder("a/b"), role_folder("over")
    ('trainer', 'a%2Fb', '%6Fver')
    """
    name = file_name(role)
    if name in _OWN_FILES or name.startswith(".") or _ROLE_FILE.fullmatch(name):
        return f"%{ord(name[0]):02X}{name[1:]}"
    return name


@dataclass(frozen=True)
class SlurmPaths:
    """The files of one job.

    Attributes:
        folder: holds them all.
    """

    folder: Path

    @property
    def script(self) -> Path:
        """The whole script, which sbatch takes by hand, too."""
        return self.folder / "job.sh"

    @property
    def roles(self) -> Path:
        """The arguments and the environment of the roles, which the script reads."""
        return self.folder / "roles.sh"

    @property
    def record(self) -> Path:
        """A copy of the record, for other state homes that find the job by its mark."""
        return self.folder / "job.json"

    @property
    def id(self) -> Path:
        """Holds the id of the job that the folder is of."""
        return self.folder / "id"

    @property
    def over(self) -> Path:
        """Written by the script at its end: id, exit code, time."""
        return self.folder / "over"

    @property
    def attempt(self) -> Path:
        """Written by the script at each start of the whole: which one it is."""
        return self.folder / "attempt"

    @property
    def cancelled(self) -> Path:
        """Present once the end of the job has been requested."""
        return self.folder / "cancelled"

    @property
    def stopped(self) -> Path:
        """Present once the script was signalled to end, and has ended."""
        return self.folder / "stopped"

    @property
    def outcome(self) -> Path:
        """How the job ended, noted by a command that waited for it."""
        return self.folder / "outcome.json"

    @property
    def batch_log(self) -> Path:
        """The output of the script and of Slurm itself."""
        return self.folder / "batch.log"

    def replica(self, role: str, replica: int) -> Path:
        """The folder of a replica: a folder in it for each attempt."""
        return self.folder / role_folder(role) / str(replica)


NOWHERE = Path("/dev/null/no-folder")
"""Stands for the folder of a job that has none to be trusted: no file below it can exist."""


def distrusted(folder: Path, token: str) -> str:
    """Returns why a folder is not that of a job of the caller; empty when it is, or does not exist yet.

    Args:
        folder: as a record or the comment of a job names it.
        token: of the job.
    """
    if "\0" in str(folder) or not folder.is_absolute() or ".." in folder.parts:
        return "it is not an absolute path"
    shape = rf"(?:[A-Za-z0-9_.-]+-)?{re.escape(token)}(?:-[0-9]+)?"
    if folder.parent.name != "jobs" or not re.fullmatch(shape, folder.name) or not TOKEN.fullmatch(token):
        return "it is not named like the folder of this job"
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return str(error.strerror)
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a folder"
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    return "other users may write to it" if status.st_mode & 0o022 else ""


def read_own(path: Path, most: int = LONGEST_FILE) -> bytes | None:
    """Returns the content of a small file of the caller; None when there is none, or it is too large."""
    try:
        return files.read_file(path, most)
    except (OSError, ValueError):
        return None


def parse_json(text: str | bytes) -> Any:
    """Returns what a JSON text holds.

    Raises:
        ValueError: it is no JSON, or nested beyond all measure.
    """
    import json

    try:
        return json.loads(text if isinstance(text, str) else text.decode("utf-8", "surrogateescape"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def clean(text: str) -> str:
    r"""Returns a text that can be encoded: a lone surrogate, unless it stands for a byte, is replaced.

    >>> clean("a\ud800b")
    'a\ufffdb'
    """
    if text.isascii():
        return text
    return "".join(
        "\ufffd" if "\ud800" <= c <= "\udfff" and not "\udc80" <= c <= "\udcff" else c for c in text
    )


def write(path: Path, text: str) -> None:
    """Writes a small private file, whole or not at all, for readers on other machines too."""
    files.write_file(path, text.encode("utf-8", "surrogateescape"), sync=True)
