"""What is kept of jobs: a small file for each in the state home, and a copy with its logs."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from torchx.errors import StateError
from torchx.jobs.paths import file_name, state_home, user_home
from torchx.schedulers.slurm_parse import JobFacts
from torchx.schedulers.slurm_request import MARK

SCHEMA = 1
KEPT = 30 * 24 * 3600.0
"""Seconds for which it is remembered that a job was deleted: that long Slurm may still tell of it."""


@dataclass(frozen=True)
class SlurmRecord:
    """One job as it was submitted.

    Attributes:
        job_id: the id that Slurm gave.
        token: tells it from others of the same id.
        name: the application's name.
        job_name: the name of the job.
        session: the session part of its handle.
        folder: holds its logs.
        submitted_at: when, seconds since the epoch.
        app: the application as plain data.
        cfg: its run options.
        cluster: the cluster it was submitted to, where one was named.
        schema: the layout of this record.
    """

    job_id: int
    token: str
    name: str
    job_name: str
    session: str
    folder: str
    submitted_at: float
    app: dict[str, Any]
    cfg: dict[str, Any] = field(default_factory=dict)
    cluster: str = ""
    schema: int = SCHEMA

    @property
    def paths(self) -> SlurmPaths:
        """Where its files are."""
        return SlurmPaths(Path(self.folder))

    @property
    def end(self) -> str:
        """The name of its file in the index."""
        return f"{self.job_id}-{self.token}.json"

    def is_of(self, facts: JobFacts) -> bool:
        """Tells whether what Slurm tells is of this job, and not of another that has its id now."""
        if MARK in facts.comment:
            return f"{MARK}{self.token}" in facts.comment
        return facts.name == self.job_name or not facts.name


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
        """A copy of the record, for who finds the job by its mark."""
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
        """There once someone has asked for the end of the job."""
        return self.folder / "cancelled"

    @property
    def stopped(self) -> Path:
        """There once the script has been told to end, and has."""
        return self.folder / "stopped"

    @property
    def outcome(self) -> Path:
        """How the job ended, as soon as somebody has seen it."""
        return self.folder / "outcome.json"

    @property
    def batch_log(self) -> Path:
        """What the script and Slurm itself had to say."""
        return self.folder / "batch.log"

    def replica(self, role: str, replica: int) -> Path:
        """The folder of a replica: a folder in it for each attempt."""
        return self.folder / file_name(role) / str(replica)


class Records:
    """The jobs that were submitted from this state home."""

    def __init__(self) -> None:
        self._index = user_home() / "slurm" / "index"

    def add(self, record: SlurmRecord) -> None:
        """Puts a job on record.

        Raises:
            StateError: it cannot be written.
        """
        state_home()
        try:
            self._index.mkdir(mode=0o700, parents=True, exist_ok=True)
            text = json.dumps(asdict(record), ensure_ascii=False, separators=(",", ":"))
            for path in (record.paths.record, self._index / record.end):
                write(path, text)
        except OSError as error:
            raise StateError(f"the record of job {record.job_id} cannot be written: {error}") from error

    def find(self, job_id: int, token: str = "") -> SlurmRecord | None:
        """Returns a job by its id: of several that had it, the newest, or that of a token."""
        found = [
            record for name in self._names(f"{job_id}-{token}") if (record := self._read(name)) is not None
        ]
        return max(found, key=lambda record: record.submitted_at, default=None)

    def all(self) -> Iterator[SlurmRecord]:
        """Yields all jobs."""
        for name in self._names(""):
            if (record := self._read(name)) is not None:
                yield record

    def remove(self, record: SlurmRecord) -> None:
        """Forgets a job, and remembers that it was deleted."""
        self.never(record.token)
        with contextlib.suppress(FileNotFoundError):
            (self._index / record.end).unlink()

    def never(self, token: str) -> None:
        """Remembers that a job is none, whatever Slurm still tells of it."""
        with contextlib.suppress(OSError):
            self._index.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._index / f"{token}.gone").touch(mode=0o600)

    def gone(self) -> set[str]:
        """Returns the tokens of deleted jobs."""
        found = set()
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._index):
                if entry.name.endswith(".gone"):
                    found.add(entry.name.removesuffix(".gone"))
                    if time.time() - entry.stat().st_mtime > KEPT:
                        os.unlink(entry.path)  # noqa: PTH108
        return found

    def _names(self, begin: str) -> list[str]:
        try:
            names = os.listdir(self._index)  # noqa: PTH208
        except OSError:
            return []
        return [name for name in names if name.startswith(begin) and name.endswith(".json")]

    def _read(self, name: str) -> SlurmRecord | None:
        return read_record(self._index / name)


def read_record(path: Path) -> SlurmRecord | None:
    """Returns the record in a file; None where there is none that can be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
        known = {name: data[name] for name in SlurmRecord.__dataclass_fields__ if name in data}
        return SlurmRecord(**known)
    except (OSError, ValueError, TypeError):
        return None


def roles_in(folder: Path) -> list[dict[str, Any]]:
    """Returns the roles of a job that were left in its folder: all that is known where there is no record."""
    found: list[dict[str, Any]] = []
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime):
            replicas = [int(name) for name in _folders(path) if name.isdigit()]
            if replicas:
                name = unquote(path.name, errors="surrogateescape")
                found.append({"name": name, "image": "", "num_replicas": max(replicas) + 1})
    return found


def _folders(path: Path) -> list[str]:
    return [entry.name for entry in os.scandir(path) if entry.is_dir()] if path.is_dir() else []


def mark_of(comment: str) -> tuple[str, Path] | None:
    """Returns token and folder of a job of torchx by its comment; None when it is not one.

    >>> mark_of("my text torchx:b1c2:/home/a%20b/slurm/jobs/x")
    ('b1c2', PosixPath('/home/a b/slurm/jobs/x'))
    """
    at = comment.rfind(MARK)
    token, colon, folder = comment[at + len(MARK) :].strip().partition(":")
    return (token, Path(unquote(folder))) if at >= 0 and colon and token else None


def folder_of(folder: Path, job_id: int) -> Path:
    """Returns the folder of a job: the first of a script has the one named there, each later one its own.

    Args:
        folder: what the script names.
        job_id: the id of the job.
    """
    first = ""
    with contextlib.suppress(OSError):
        first = SlurmPaths(folder).id.read_text().strip()
    return folder if first in ("", str(job_id)) else folder.with_name(f"{folder.name}-{job_id}")


def is_there(path: Path) -> bool:
    """Tells whether there is a file; one in a folder of other people is not, for us."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def write(path: Path, text: str) -> None:
    """Writes a small private file that is never seen half."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    part.rename(path)
