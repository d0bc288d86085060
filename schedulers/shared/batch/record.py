"""Records of submitted jobs: a file for each in the state home, and a copy with its logs."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import NoneType

from torchx.errors import StateError
from torchx.jobs.paths import state_home, user_home
from torchx.json_limits import MOST_REPLICAS, Data, Object
from torchx.json_shape import REQUIRED, Limited, Misfit, check, typed_at
from torchx.lazy import lazy_imports
from torchx.machine import files, trees
from torchx.schedulers.shared.batch.marks import token_of
from torchx.schedulers.shared.batch.paths import (
    LONGEST_RECORD,
    NO_FOLDER,
    BatchPaths,
    clean,
    distrust_reason,
    parse_json,
    read_own,
    write,
)

with lazy_imports:
    import json


SCHEMA = 1
DELETED_KEPT = 30 * 24 * 3600.0
"""Seconds for which deleted jobs are remembered, as the engine may still list them."""
LATEST = float(1 << 33)
"""The latest valid time, in seconds since the epoch."""
_FILE = r"([0-9]{1,18})(?:_([0-9]{1,9}))?-([a-z0-9]{1,64})\.json"


def key_of(job_id: int, task: int | None) -> str:
    """Returns the id of a job, with the index of its task in an array.

    >>> key_of(7, None), key_of(7, 3)
    ('7', '7_3')
    """
    if task is None:
        return str(job_id)
    return f"{job_id}_{task}"


_KEY = re.compile(r"([0-9]{1,18})(?:_([0-9]{1,9}))?", re.ASCII)


def parse_key(number: str) -> str:
    """Returns the id of a job or of a task of a job array without leading zeros; empty for other texts."""
    match = _KEY.fullmatch(number)
    if not match:
        return ""
    return key_of(int(match[1]), int(match[2]) if match[2] else None)


def own_token(token: str, task: int | None) -> str:
    """Returns the name by which a deleted job is remembered: its token, with the index of its task."""
    if task is None:
        return token
    return f"{token}_{task}"


@dataclass(frozen=True)
class BatchRecord:
    """A submitted job.

    Attributes:
        job_id: the id assigned by the engine; for a task of a job array, of the array.
        token: distinguishes jobs with the same id; equal for all tasks of an array.
        name: the application's name.
        job_name: the name of the job.
        session: the session part of its handle.
        folder: the folder of its logs.
        submitted_at: time of submission, in seconds since the epoch.
        app: the application as plain data.
        cfg: its run options.
        cluster: the cluster it was submitted to, if named.
        schema: the version of the record format.
        task: the index of a task of a job array; None for other jobs.
        damage: why the record cannot be used, one line, else empty. Only id and token are valid then.
        fallback: the folder that its script uses if its nodes do not share the first one; empty without.
        engine: the name of the engine.
    """

    job_id: int
    token: str
    name: str
    job_name: str
    session: str
    folder: str
    submitted_at: float
    app: Object
    cfg: Object = field(default_factory=dict)
    cluster: str = ""
    schema: int = SCHEMA
    damage: str = ""
    task: int | None = None
    fallback: str = ""
    engine: str = "slurm"

    @property
    def paths(self) -> BatchPaths:
        """The files of the job, in the folder that its nodes share; it may change until its last run."""
        fallback = None
        if self.fallback:
            fallback = Path(self.fallback)
        return BatchPaths.of(Path(self.folder) if self.folder else NO_FOLDER, fallback)

    @property
    def current_folder(self) -> str:
        """The folder of :attr:`paths` as text, which is made in a fraction of the time."""
        if self.fallback:
            return str(self.paths.folder)
        return self.folder or str(NO_FOLDER)

    @property
    def folders(self) -> list[Path]:
        """The folders that may have files of the job."""
        return [Path(folder) for folder in (self.folder, self.fallback) if folder]

    @property
    def file_name(self) -> str:
        """The name of the record's file in the index."""
        return f"{self.key}-{self.token}.json"

    @property
    def key(self) -> str:
        """The id of the job, with the index of its task in an array: ``7`` or ``7_3``."""
        return key_of(self.job_id, self.task)

    @property
    def own_token(self) -> str:
        """The token, with the index of its task in an array."""
        return own_token(self.token, self.task)

    @property
    def full_id(self) -> str:
        """The id in handles with the token: unique if the engine reuses the id of the job."""
        return f"{self.key}@{self.token}"

    def is_of(self, name: str, comment: str) -> bool:
        """Returns True if a name and a comment are of this job, not of another one that now has its id."""
        token = token_of(comment)
        if token:
            return token == self.token
        return name == self.job_name or not name


class Records:
    """The records of jobs submitted from this state home.

    Args:
        engine: the name of the engine.
    """

    def __init__(self, engine: str) -> None:
        self._index = user_home() / engine / "index"

    def add(self, record: BatchRecord, *, sync: bool = True) -> None:
        """Writes the record of a job.

        Args:
            record: the record.
            sync: wait until it is on the disk.

        Raises:
            StateError: the record cannot be written.
        """
        state_home()
        try:
            files.make_folder(self._index)
            text = _as_json(record)
            copies = [BatchPaths(folder).record for folder in record.folders]
            for path in (*copies, self._index / record.file_name):
                write(path, text, sync=sync)
        except OSError as error:
            raise StateError(f"cannot write the record of job {record.job_id}: {error}") from error

    def find(self, key: str, token: str = "") -> BatchRecord | None:
        """Returns the newest record with the id of a job, optionally of one token, or None."""
        prefix = f"{key}-{token}"
        records = [self._read(name) for name in self._names() if name.startswith(prefix)]
        return max(records, key=lambda record: record.submitted_at, default=None)

    def of_app(self, app_id: str) -> BatchRecord | None:
        """Returns the record of the job with an id as in handles, or None."""
        number, _, token = app_id.partition("@")
        key = parse_key(number)
        if key:
            return self.find(key, token)
        return None

    def all(self) -> Iterator[BatchRecord]:
        """Yields all records; ``damage`` is set in those that cannot be read."""
        for name in self._names():
            yield self._read(name)

    def keys(self) -> set[str]:
        """Returns the ids of the jobs that have a record."""
        return {name.partition("-")[0] for name in self._names()}

    def of(self, keys: Collection[str]) -> dict[str, BatchRecord]:
        """Returns the newest record of each job that has one, by the ids of the jobs."""
        found: dict[str, BatchRecord] = {}
        for name in self._names():
            if name.partition("-")[0] in keys:
                record = self._read(name)
                known = found.get(record.key)
                if known is None or known.submitted_at < record.submitted_at:
                    found[record.key] = record
        return found

    def remove(self, *records: BatchRecord) -> None:
        """Removes the records of jobs and marks them as deleted."""
        self.mark_deleted(*(record.own_token for record in records))
        for record in records:
            path = self._index / record.file_name
            with contextlib.suppress(FileNotFoundError):
                if path.is_dir() and not path.is_symlink():
                    trees.remove(path)
                else:
                    path.unlink()

    def mark_deleted(self, *tokens: str) -> None:
        """Marks jobs as deleted, even if the engine still lists them; drops expired marks."""
        with contextlib.suppress(OSError):
            files.make_folder(self._index)
            for token in tokens:
                (self._index / f"{token}.gone").touch(mode=0o600)
            for path in self._index.glob("*.gone"):
                if time.time() - path.lstat().st_mtime > DELETED_KEPT:
                    path.unlink()

    def deleted_tokens(self) -> set[str]:
        """Returns the tokens of deleted jobs."""
        return {name.removesuffix(".gone") for name in files.names_in(self._index) if name.endswith(".gone")}

    def _names(self) -> list[str]:
        return [name for name in files.names_in(self._index) if re.fullmatch(_FILE, name)]

    def _read(self, name: str) -> BatchRecord:
        """Returns the record in a file of the index; if damaged, with only id and token."""
        match = re.fullmatch(_FILE, name)
        assert match is not None
        job_id, task, token = int(match[1]), int(match[2]) if match[2] else None, match[3]
        try:
            record = read_record(f"{self._index}/{name}", token)
            if (record.job_id, record.task) != (job_id, task):
                raise ValueError("it belongs to another job")
        except ValueError as error:
            damaged = _damaged_record(job_id, token, f"its record is damaged: {error}", self._index / name)
            return replace(damaged, task=task)
        return record


def _damaged_record(job_id: int, token: str, why: str, path: Path) -> BatchRecord:
    try:
        at = path.lstat().st_mtime
    except OSError:
        at = 0.0
    return BatchRecord(job_id, token, "", "", "torchx", "", at if 0 <= at < LATEST else 0.0, {}, damage=why)


def _as_json(record: BatchRecord) -> str:
    data = asdict(record)
    del data["damage"]
    if record.task is None:
        del data["task"]
    if not record.fallback:
        del data["fallback"]
    if record.engine == "slurm":  # as in records of version 0.1.0
        del data["engine"]
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def read_record(
    path: str | Path, token: str, folder: Path | None = None, fallback: Path | None = None
) -> BatchRecord:
    """Returns the record in a file.

    Args:
        path: the file.
        token: the token of the expected job.
        folder: the folder of the job (default: those in the record).
        fallback: the one that its script uses if its nodes do not share the first.

    Raises:
        ValueError: the record is missing or damaged, or belongs to another job or a newer version.
    """
    data = read_own(path, LONGEST_RECORD)
    if data is None:
        raise ValueError("it is not a readable file of this user")
    content = parse_json(data)
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    schema = typed_at(content, int, "schema")
    if schema > SCHEMA:
        raise ValueError(f"it was written by a newer version of torchx (schema {schema}, known: {SCHEMA})")
    record = _validated(content)
    if folder is not None:
        record = replace(record, folder=str(folder), fallback=str(fallback or ""))
    if record.token != token:
        raise ValueError("it belongs to another job")
    for each in filter(None, (record.folder or ".", record.fallback)):  # as text: a listing reads many
        if why := distrust_reason(each, token):
            raise ValueError(f"its folder is not trusted: {why}")
    return record


def _validated(data: Data) -> BatchRecord:
    """Returns a record from plain data.

    Raises:
        ValueError: a field is missing or has the wrong type.
    """
    try:
        check(data, _SHAPE, "")
    except Misfit as error:
        problem = "of the wrong type"
        if error.is_limit:
            problem = "out of range"
        raise ValueError(f"`{error.path}` is {problem}") from None
    known = {name: data[name] for name in _SHAPE if name in data}
    for name, value in known.items():
        if isinstance(value, str):
            known[name] = clean(value)
    if not known["session"].isprintable() or "/" in known["session"]:
        raise ValueError("its session cannot be part of a handle")
    total = sum(role.get("num_replicas", 1) for role in data["app"].get("roles", []))
    if total > MOST_REPLICAS:
        raise ValueError(f"it has {total:,} replicas")
    return BatchRecord(**known)


TIME = Limited(float, lambda at: 0 <= at < LATEST)
"""The shape of a time."""
COUNT = Limited(int, lambda number: number >= 0)
"""The shape of a number from 0."""

_REQUIRED = {
    **dict.fromkeys(("token", "name", "job_name", "session", "folder"), str),
    "job_id": COUNT,
    "submitted_at": TIME,
    "app": {
        "roles": [
            {REQUIRED: ("name",), "name": str, "num_replicas": COUNT, "max_retries": COUNT},
        ]
    },
}
_SHAPE = {
    REQUIRED: tuple(_REQUIRED),
    **_REQUIRED,
    "cfg": dict,
    "cluster": str,
    "fallback": str,
    "engine": str,
    "task": (COUNT, NoneType),
}
"""The shape of a record."""
