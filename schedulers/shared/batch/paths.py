"""The folder of a Slurm job: its files, and the check that it belongs to the caller."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from torchx.jobs.paths import Inside, file_name
from torchx.json_limits import Object
from torchx.lazy import lazy_imports
from torchx.machine import files
from torchx.masking.names import name_set

with lazy_imports:
    import json


LONGEST_FILE = 1 << 20
"""Maximum size in bytes of a small file."""
LONGEST_RECORD = 1 << 25
"""Maximum size in bytes of a record, which contains the arguments and the environment of all roles."""
TOKEN = re.compile(r"[a-z0-9]{1,64}")
_OWN_FILES = name_set(
    "id over attempt cancelled killed stopped stopping first outcome.json job.json job.sh roles.sh "
    "batch.log keeper.py"
)
ATTEMPT_FILE = "attempt"
ATTEMPT = re.compile(r"attempt-([0-9]{1,9})")
"""The name of an attempt's folder."""
_ROLE_FILE = r"role-\d+\.sh"


NODE_FOLDER = ".node"
"""The folder of the files that are the same for all jobs; no folder of a role begins with a dot."""


def task_file(number: int) -> str:
    """Returns the name of the file with the arguments and the environment of a role."""
    return f"role-{number}.sh"


def role_folder(role: str) -> str:
    """Returns the name of a role's folder, distinct from all other files in the folder of a job.

    >>> role_folder("trainer"), role_folder("a/b"), role_folder("over")
    ('trainer', 'a%2Fb', '%6Fver')
    """
    name = file_name(role)
    if name in _OWN_FILES or name.startswith(".") or re.fullmatch(_ROLE_FILE, name):
        return f"%{ord(name[0]):02X}{name[1:]}"
    return name


@dataclass(frozen=True)
class BatchPaths:
    """The files of one job.

    Attributes:
        folder: the folder of the job.
        earlier: the folder of its earlier runs, if their nodes shared another one.
    """

    folder: Path
    earlier: Path | None = None

    @classmethod
    def of(cls, folder: Path, fallback: Path | None) -> BatchPaths:
        """Returns the files of a job that may have run in its fallback folder.

        Args:
            folder: the folder of the job.
            fallback: the one that its script uses if its nodes do not share the first; None without.
        """
        if fallback is None or not path_exists(cls(fallback).id):
            return cls(folder)
        return cls(fallback, folder)

    script = Inside("job.sh")
    """The script that sbatch got; it reads other files in this folder."""
    record = Inside("job.json")
    """A copy of the record, for other state homes, which find the job by its mark."""
    id = Inside("id")
    """The id of the job that the folder belongs to."""
    over = Inside("over")
    """Written by the script at its end: id, exit code, time."""
    attempt = Inside(ATTEMPT_FILE)
    """The number of the current attempt, written by the script."""
    run = Inside(".run")
    """The number of the current run, written by the script."""
    expired = Inside(".expired")
    """Exists once the time limit has ended the job."""
    cancelled = Inside("cancelled")
    """Exists once the job was cancelled."""
    stopped = Inside("stopped")
    """Exists once the script was stopped by a signal."""
    outcome = Inside("outcome.json")
    """The outcome of the job, written by a command that waited for it."""
    provenance = Inside(".provenance")
    """The source that it was submitted from; no folder of a role begins with a dot."""
    batch_log = Inside("batch.log")
    """The output of the script and of Slurm itself."""

    def ready(self, number: int) -> Path:
        """The folder with a file for each ready replica of a service, by the number of its role."""
        return self.folder / f".ready-{number}"

    def replica(self, role: str, replica: int) -> Path:
        """The folder of a replica, with a folder for each attempt."""
        return self.folder / role_folder(role) / str(replica)

    def attempts(self, role: str, replica: int) -> list[tuple[int, Path]]:
        """Returns the numbers and folders of the attempts of a replica, in order.

        Those of later runs in another folder continue the numbers of earlier ones.
        """
        attempts = _attempts_in(self.replica(role, replica))
        if self.earlier is None:
            return attempts
        before = _attempts_in(self.earlier / role_folder(role) / str(replica))
        shift = 0
        if before and attempts:
            shift = max(before[-1][0] + 1 - attempts[0][0], 0)
        return before + [(number + shift, path) for number, path in attempts]


def _attempts_in(folder: Path) -> list[tuple[int, Path]]:
    matches = map(ATTEMPT.fullmatch, files.names_in(folder))
    return sorted((int(match[1]), folder / match[0]) for match in matches if match)


NO_FOLDER = Path("/dev/null/no-folder")
"""Path used for a job without a trusted folder; no file below it can exist."""


def distrust_reason(folder: str | os.PathLike[str], token: str) -> str:
    """Returns why a folder is not trusted, or an empty string if it is, or does not exist yet.

    Args:
        folder: the folder named by a record or a job comment.
        token: the token of the job.
    """
    path = os.fspath(folder)  # as text: a listing checks many folders
    if "\0" in path or not path.startswith("/") or "/../" in f"{path}/":
        return "it is not an absolute path"
    parent, _, name = path.rpartition("/")
    if not parent.endswith("/jobs") or not TOKEN.fullmatch(token) or not _is_named_after(name, token):
        return "it is not named like the folder of this job"
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return str(error.strerror)
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a folder"
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    if status.st_mode & 0o022:
        return "other users may write to it"
    return ""


def _is_named_after(name: str, token: str) -> bool:
    """Returns True if a name is a token, or ends with it, or with it and a number.

    >>> [_is_named_after(name, "b1") for name in ("b1", "a-b1", "a-b1-7", "b1-7", "ab1", "a/-b1", "b1-")]
    [True, True, True, True, False, False, False]
    """
    stem, _, number = name.rpartition("-")
    return _ends_with(name, token) or (bool(_NUMBER.fullmatch(number)) and _ends_with(stem, token))


def _ends_with(name: str, token: str) -> bool:
    """Returns True if a name is a token, or a valid prefix and the token."""
    if name == token:
        return True
    return name.endswith(f"-{token}") and bool(_PREFIX.fullmatch(name, 0, len(name) - len(token)))


_PREFIX, _NUMBER = re.compile(r"[A-Za-z0-9_.-]+-"), re.compile(r"[0-9]+")


def read_own(path: str | os.PathLike[str], limit: int = LONGEST_FILE) -> bytes | None:
    """Returns the content of a small file of the caller, or None if it is missing or too large."""
    try:
        return files.read_file(path, limit)
    except (OSError, ValueError):
        return None


def parse_json(text: str | bytes) -> Any:
    """Parses a JSON text.

    Raises:
        ValueError: the text is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text if isinstance(text, str) else text.decode("utf-8", "surrogateescape"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def clean(text: str) -> str:
    r"""Replaces lone surrogates that do not represent a byte, so that the text can be encoded.

    >>> clean("a\ud800b")
    'a\ufffdb'
    """
    if text.isascii():
        return text
    return "".join(
        "\ufffd" if "\ud800" <= c <= "\udfff" and not "\udc80" <= c <= "\udcff" else c for c in text
    )


def write(path: Path, text: str, *, sync: bool = True) -> None:
    """Writes a small private file atomically and syncs it, for readers on other machines."""
    files.write_file(path, text.encode("utf-8", "surrogateescape"), sync=sync)


def folder_of(folder: Path, job_id: int) -> Path:
    """Returns the folder of a job: the script's for the first job of a script, else a separate one.

    Args:
        folder: the folder named by the script; must be trusted.
        job_id: the id of the job.
    """
    first = (read_own(BatchPaths(folder).id) or b"").strip()
    if first in (b"", str(job_id).encode()):
        return folder
    return folder.with_name(f"{folder.name}-{job_id}")


def task_folder(folder: Path, task: int) -> Path:
    """Returns the folder of a task of a job array.

    >>> str(task_folder(Path("/jobs/train-b1"), 7))
    '/jobs/train-b1-7'

    Args:
        folder: the folder named by the script.
        task: the index of the task.
    """
    return folder.with_name(f"{folder.name}-{task}")


def tasks_in(folder: Path) -> Iterator[Path]:
    """Yields the folders of the tasks of a job array, lazily."""
    with contextlib.suppress(OSError), os.scandir(folder.parent) as entries:
        for entry in entries:
            if entry.name.startswith(f"{folder.name}-"):
                yield Path(entry.path)


def roles_in(folder: Path) -> list[Object]:
    """Returns the roles found in the folder of a job, for a job without a record."""
    roles: list[Object] = []
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir(), key=lambda path: path.lstat().st_mtime):
            replicas = [int(name) for name in _folders(path) if re.fullmatch(_REPLICA, name)]
            if replicas:
                name = unquote(path.name, errors="surrogateescape")
                roles.append({"name": name, "image": "", "num_replicas": max(replicas) + 1})
    return roles


_REPLICA = "[0-9]{1,5}"


def _folders(path: Path) -> list[str]:
    if path.is_symlink() or not path.is_dir():
        return []
    return [entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]


def path_exists(path: Path) -> bool:
    """Returns True if a path exists and is accessible to the caller."""
    try:
        path.stat()
    except OSError:
        return False
    return True
