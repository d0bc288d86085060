"""What is kept of jobs: a small file for each in the state home, and a copy with its logs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from torchx.errors import StateError
from torchx.jobs.paths import state_home, user_home
from torchx.schedulers.slurm.parse import JobFacts
from torchx.schedulers.slurm.paths import (
    LONGEST_RECORD,
    NOWHERE,
    TOKEN,
    SlurmPaths,
    clean,
    distrusted,
    parse_json,
    read_own,
    write,
)
from torchx.schedulers.slurm.request import MARK

SCHEMA = 1
KEPT = 30 * 24 * 3600.0
"""Seconds for which it is remembered that a job was deleted: that long Slurm may still tell of it."""
LATEST = float(1 << 33)
"""The latest time that is believed, seconds since the epoch."""
MOST_REPLICAS = 100_000
_FILE = re.compile(r"([0-9]{1,18})-([a-z0-9]{1,64})\.json")


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
        damage: why the record cannot be used, one line; empty for one that can. Only id and token hold then.
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
    damage: str = ""

    @property
    def paths(self) -> SlurmPaths:
        """Where its files are."""
        return SlurmPaths(Path(self.folder) if self.folder else NOWHERE)

    @property
    def end(self) -> str:
        """The name of its file in the index."""
        return f"{self.job_id}-{self.token}.json"

    def is_of(self, facts: JobFacts) -> bool:
        """Returns True if the facts are of this job, and not of another one that has its id now."""
        mark = mark_of(facts.comment)
        if mark is not None:
            return mark[0] == self.token
        return facts.name == self.job_name or not facts.name


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
            text = _as_json(record)
            for path in (record.paths.record, self._index / record.end):
                write(path, text)
        except OSError as error:
            raise StateError(f"the record of job {record.job_id} cannot be written: {error}") from error

    def find(self, job_id: int, token: str = "") -> SlurmRecord | None:
        """Returns a job by its id: of several that had it, the newest, or that of a token."""
        begin = f"{job_id}-{token}"
        found = [self._read(name) for name in self._names() if name.startswith(begin)]
        return max(found, key=lambda record: record.submitted_at, default=None)

    def all(self) -> Iterator[SlurmRecord]:
        """Yields all jobs; one whose record is damaged says so in ``damage``."""
        for name in self._names():
            yield self._read(name)

    def remove(self, record: SlurmRecord) -> None:
        """Forgets a job, and remembers that it was deleted."""
        self.never(record.token)
        path = self._index / record.end
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def never(self, token: str) -> None:
        """Remembers that a job is none, whatever Slurm still tells of it; forgets those deleted long ago."""
        with contextlib.suppress(OSError):
            self._index.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._index / f"{token}.gone").touch(mode=0o600)
            for path in self._index.glob("*.gone"):
                if time.time() - path.lstat().st_mtime > KEPT:
                    path.unlink()

    def gone(self) -> set[str]:
        """Returns the tokens of deleted jobs."""
        return {name.removesuffix(".gone") for name in self._listed() if name.endswith(".gone")}

    def _names(self) -> list[str]:
        return [name for name in self._listed() if _FILE.fullmatch(name)]

    def _listed(self) -> list[str]:
        try:
            return os.listdir(self._index)  # noqa: PTH208
        except OSError:
            return []

    def _read(self, name: str) -> SlurmRecord:
        """Returns the record in a file of the index; what its name says where it is damaged."""
        match = _FILE.fullmatch(name)
        assert match is not None
        job_id, token = int(match[1]), match[2]
        try:
            record = read_record(self._index / name, token)
            if record.job_id != job_id:
                raise ValueError("it is of another job")
        except ValueError as error:
            return _damaged(job_id, token, f"its record is damaged: {error}", self._index / name)
        return record


def _damaged(job_id: int, token: str, why: str, path: Path) -> SlurmRecord:
    try:
        at = path.lstat().st_mtime
    except OSError:
        at = 0.0
    return SlurmRecord(job_id, token, "", "", "torchx", "", at if 0 <= at < LATEST else 0.0, {}, damage=why)


def _as_json(record: SlurmRecord) -> str:
    import json

    data = asdict(record)
    del data["damage"]
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def read_record(path: Path, token: str, folder: Path | None = None) -> SlurmRecord:
    """Returns the record in a file.

    Args:
        path: the file.
        token: of the job that it has to be of.
        folder: the folder that the record is in; the one that it names unless given.

    Raises:
        ValueError: there is none, it is damaged, of another job, or was written by a newer version.
    """
    data = read_own(path, LONGEST_RECORD)
    if data is None:
        raise ValueError("it is not a file of this user that can be read")
    found = parse_json(data)
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    schema = found.get("schema", SCHEMA)
    if isinstance(schema, int) and schema > SCHEMA:
        raise ValueError(f"it was written by a newer version of torchx (schema {schema}, known: {SCHEMA})")
    record = _checked(found)
    if folder is not None:
        record = replace(record, folder=str(folder))
    if record.token != token:
        raise ValueError("it is of another job")
    if why := distrusted(Path(record.folder), token):
        raise ValueError(f"the folder that it names is not to be trusted: {why}")
    return record


def _checked(data: Mapping[str, Any]) -> SlurmRecord:
    """Returns a record of plain data in which each field has its type.

    Raises:
        ValueError: one has not, or is not there.
    """
    known: dict[str, Any] = {}
    for name, kind in _TYPES.items():
        value = data.get(name, _OPTIONAL.get(name))
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"`{name}` is {'missing' if name not in data else 'of a wrong type'}")
        known[name] = clean(value) if isinstance(value, str) else value
    if not 0 <= known["submitted_at"] < LATEST or known["job_id"] < 0:
        raise ValueError("`submitted_at` or `job_id` is out of range")
    if not known["session"].isprintable() or "/" in known["session"]:
        raise ValueError("its session cannot be part of a handle")
    _check_roles(known["app"].get("roles", []))
    return SlurmRecord(**known)


_TYPES: dict[str, Any] = {
    "job_id": int, "token": str, "name": str, "job_name": str, "session": str, "folder": str,
    "submitted_at": (int, float), "app": dict, "cfg": dict, "cluster": str,
}  # fmt: skip
_OPTIONAL: dict[str, Any] = {"cfg": {}, "cluster": ""}


def _check_roles(roles: Any) -> None:
    if not isinstance(roles, list) or not all(isinstance(role, dict) for role in roles):
        raise ValueError("`roles` is not a list of objects")
    total = 0
    for role in roles:
        numbers = role.get("num_replicas", 1), role.get("max_retries", 0)
        if not isinstance(role.get("name"), str) or not all(type(n) is int and n >= 0 for n in numbers):
            raise ValueError("a role has no name, or its replicas or retries are not a number")
        total += numbers[0]
    if total > MOST_REPLICAS:
        raise ValueError(f"it has {total:,} replicas")


def roles_in(folder: Path) -> list[dict[str, Any]]:
    """Returns the roles of a job that were left in its folder: all that is known where there is no record."""
    found: list[dict[str, Any]] = []
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir(), key=lambda path: path.lstat().st_mtime):
            replicas = [int(name) for name in _folders(path) if _NUMBER.fullmatch(name)]
            if replicas:
                name = unquote(path.name, errors="surrogateescape")
                found.append({"name": name, "image": "", "num_replicas": max(replicas) + 1})
    return found


_NUMBER = re.compile("[0-9]{1,5}")


def _folders(path: Path) -> list[str]:
    if path.is_symlink() or not path.is_dir():
        return []
    return [entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]


def mark_of(comment: str) -> tuple[str, Path] | None:
    """Returns token and folder of a job of torchx by its comment; None when it is not one.

    >>> mark_of("my text torchx:b1c2:/home/a%20b/slurm/jobs/x")
    ('b1c2', PosixPath('/home/a b/slurm/jobs/x'))
    """
    _, found, rest = comment.rpartition(MARK)
    token, colon, folder = rest.strip().partition(":")
    if not found or not colon or not TOKEN.fullmatch(token):
        return None
    return token, Path(unquote(folder, errors="surrogateescape"))


def folder_of(folder: Path, job_id: int) -> Path:
    """Returns the folder of a job: the first of a script has the one named there, each later one its own.

    Args:
        folder: named by the script; trusted.
        job_id: the id of the job.
    """
    first = (read_own(SlurmPaths(folder).id) or b"").strip()
    return folder if first in (b"", str(job_id).encode()) else folder.with_name(f"{folder.name}-{job_id}")


def remove_folder(record: SlurmRecord) -> None:
    """Removes the folder of a job, if it is that of this job and of the caller.

    Raises:
        StateError: it is not, or cannot be removed.
    """
    folders = [Path(record.folder)] if record.folder else _of_token(record.token)
    for folder in folders:
        why = distrusted(folder, record.token)
        holder = (read_own(SlurmPaths(folder).id) or b"").strip()
        if not why and holder not in (b"", str(record.job_id).encode()):
            why = "it is of another job"
        if why:
            raise StateError(f"the folder of job {record.job_id} is left: {folder}: {why}")
        for _ in range(20):  # a node may still be writing to it
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(0.1)
        else:
            raise StateError(f"the folder of job {record.job_id} cannot be removed: {folder}")


def _of_token(token: str) -> list[Path]:
    """Returns the folders in the usual place that are named like that of a job."""
    return [
        path for path in (user_home() / "slurm" / "jobs").glob(f"*{token}*") if not distrusted(path, token)
    ]


def is_there(path: Path) -> bool:
    """Tells whether there is a file; one in a folder of other people is not, for us."""
    try:
        path.stat()
    except OSError:
        return False
    return True
