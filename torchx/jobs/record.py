"""The record of a job: everything needed to find, describe and repeat it, as plain data."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from torchx import json_shape, masking
from torchx.errors import StateError
from torchx.jobs.paths import file_name
from torchx.json_limits import Object, compact_json
from torchx.json_shape import Environment, HandleText, SystemText, Truth
from torchx.lazy import lazy_imports
from torchx.machine import files

with lazy_imports:
    import shlex

SCHEMA = 2
"""Version of the record format; all older versions can be read. Records of processes have version 1. An older
torchx must not take an application of an engine for one of processes, so it must not read its record."""

LARGEST = 1 << 26
"""Maximum bytes of a record."""


_SCHEMA = {"schema": partial(json_shape.integer, minimum=1)}

LONGEST_HEAD = 1 << 14
"""Bytes at the beginning of a record that have its short fields."""


UNREADABLE = ("damaged_record", "newer_record")
"""The codes of errors about a record that cannot be read, whatever is tried."""


class ReplicaRecord(NamedTuple):
    """The process of one replica.

    Attributes:
        args: the program and its arguments.
        env: variables in addition to its role's environment.
    """

    args: list[SystemText]
    env: Environment


class RoleRecord(NamedTuple):
    """The replicas of one role and how they are retried.

    Attributes:
        name: the role.
        replicas: its replicas, by id.
        env: variables in addition to the environment of the submitting process.
        cwd: their working directory.
        max_retries: maximum number of retries.
        retry_policy: REPLICA, ROLE or APPLICATION.
        gpus: GPUs leased for each replica.
        workspace: the copy of the workspace that they run in, or None.
        service: the rule of a service, as in the metadata of its role; None for an ordinary role.
        after: the roles that must be ready, or have succeeded, before it starts.
    """

    name: SystemText
    replicas: list[ReplicaRecord]
    env: Environment
    cwd: SystemText | None = None
    max_retries: int = 0
    retry_policy: HandleText = "APPLICATION"
    gpus: int = 0
    workspace: SystemText | None = None
    service: Object | None = None
    after: tuple[SystemText, ...] = ()


class JobRecord(NamedTuple):
    """A submitted job.

    Attributes:
        app_id: the id, as in the handle.
        scheduler: the scheduler's name, as in the handle.
        session: the session, as in the handle.
        name: the application's name.
        submitted_at: seconds since the epoch.
        log_dir: the folder of its log tree.
        roles: its replicas by role.
        app: the whole application as plain data.
        cfg: the run options.
        grace: seconds between TERM and KILL when something is ended.
        fail_fast: end all other replicas when one fails permanently.
        backoff: seconds before the first retry.
        policies: the policies of other packages: module, class and folder of each.
        engine: the engine whose containers are the replicas. Empty for processes: these end with their
            supervisor, and its death is the end of the job.
    """

    app_id: HandleText
    scheduler: HandleText
    session: HandleText
    name: str
    submitted_at: float
    log_dir: SystemText
    roles: list[RoleRecord]
    app: Object
    cfg: Object
    grace: float = 10.0
    fail_fast: Truth = True
    backoff: float = 1.0
    policies: Sequence[Sequence[SystemText]] = ()
    engine: SystemText = ""

    @property
    def handle(self) -> str:
        """The handle of the job."""
        return f"{self.scheduler}://{self.session}/{self.app_id}"

    def replicas(self) -> Iterator[tuple[int, RoleRecord, int]]:
        """Yields all replicas in order: ordinal within the application, role, id within the role."""
        ordinal = 0
        for role in self.roles:
            for replica in range(len(role.replicas)):
                yield ordinal, role, replica
                ordinal += 1

    def save(self, path: Path) -> None:
        """Writes the record atomically, readable by this user only.

        Raises:
            OSError: it cannot be written.
            StateError: it exceeds the maximum size of a record.
        """
        data = compact_json(self._plain()).encode()
        if len(data) > LARGEST:
            raise StateError(
                f"the record of the application takes {len(data) >> 20} MB, maximum {LARGEST >> 20} MB"
            )
        files.write_file(path, data)

    def _plain(self) -> Object:
        """Returns plain dictionaries and lists for JSON."""
        roles = [
            {**role._asdict(), "replicas": [replica._asdict() for replica in role.replicas]}
            for role in self.roles
        ]
        schema = 1
        if self.engine:
            schema = SCHEMA
        return {"schema": schema, **self._asdict(), "roles": roles}

    @classmethod
    def load(cls, path: Path) -> JobRecord:
        """Reads a record; ignores unknown fields.

        Raises:
            FileNotFoundError: it does not exist.
            StateError: it is damaged, cannot be read, is not this user's, or was written by a newer version.
        """
        try:
            data = json.loads(_read(path))
        except (ValueError, RecursionError) as error:
            raise damaged(
                path, "it is nested too deep" if isinstance(error, RecursionError) else error
            ) from error
        try:
            schema = json_shape.fields_of(data, "record", _SCHEMA)["schema"]
            if schema > SCHEMA:
                raise StateError(
                    f"the record {path} was written by a newer version (schema {schema}, known: {SCHEMA})",
                    hint="upgrade torchx to read it",
                    code="newer_record",
                )
            record: JobRecord = json_shape.read(cls, data, "record")
            _check_place(record, path.parent.name)
        except (ValueError, TypeError) as error:
            raise damaged(path, error) from error
        return record


def register_secrets(record: JobRecord) -> None:
    """Registers the secrets of a job, to be masked in excerpts of its log; a description lacks them."""
    for role in json_shape.items_at(record.app, dict, "roles"):
        env = json_shape.typed_at(role, dict, "env")
        declared = {name for name, value in env.items() if value == masking.MASK}
        names = declared.union(filter(masking.looks_secret, env))
        own = next((each for each in record.roles if each.name == role.get("name")), None)
        for values in (own.env, *(replica.env for replica in own.replicas)) if own and names else ():
            found = {name: values[name] for name in names & values.keys()}
            masking.add_values(
                masking.secrets_in_environment(
                    {n: masking.SecretValue(v) if n in declared else v for n, v in found.items()}
                )
            )
    for each in record.roles:
        for replica in each.replicas[:1]:
            masking.add_values(masking.secrets_in_arguments(replica.args))


def is_own_log_dir(log_dir: str, session: str, app_id: str) -> bool:
    """Returns True if the path is ``<folder>/<session>/<app_id>``.

    >>> is_own_log_dir("/logs/torchx/a-1", "torchx", "a-1"), is_own_log_dir("/home/me", "torchx", "a-1")
    (True, False)
    """
    folder, own = Path(log_dir), Path(session, app_id).parts
    return (
        "\0" not in log_dir
        and folder.is_absolute()
        and ".." not in folder.parts
        and len(folder.parts) > len(own) + 1
        and folder.parts[-len(own) :] == own
    )


def damaged(path: Path, why: object) -> StateError:
    """Returns the error for a damaged record."""
    folder = path.parent
    return StateError(
        f"the record {path} is damaged: {why}",
        hint=f"remove it: torchx delete {shlex.quote(folder.name)}   or: rm -r {shlex.quote(str(folder))}",
        code="damaged_record",
    )


def scheduler_in(path: Path) -> str:
    """Returns the scheduler that a record names, even if it cannot be read as a whole; empty if unknown."""
    head = b""
    with contextlib.suppress(OSError, ValueError):
        descriptor = files.open_file(path)
        try:
            head = os.read(descriptor, LONGEST_HEAD)
        finally:
            os.close(descriptor)
    match = re.search(rb'"scheduler"\s*:\s*"([A-Za-z0-9_.-]{1,100})"', head)
    if match is None:
        return ""
    return match[1].decode()


def _read(path: Path) -> bytes:
    try:
        folder = path.parent
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise damaged(path, f"{folder} is not a folder")
        if status.st_uid != os.geteuid():
            raise damaged(path, f"{folder} belongs to another user")
        return files.read_file(path, LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # not the name of any job
            raise FileNotFoundError(error.errno, error.strerror, str(path)) from error
        if error.errno in (errno.EINVAL, errno.EPERM, errno.EFBIG):
            raise damaged(path, error.strerror) from error
        raise StateError(f"the record {path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # a zero byte
        raise FileNotFoundError(errno.ENOENT, str(error), str(path)) from error


def _check_place(record: JobRecord, folder: str) -> None:
    """Checks that a record is in the folder of its job, and names a log folder of its job.

    Raises:
        ValueError: one of these is not true.
    """
    if folder.removeprefix(".") != file_name(record.app_id):  # a dot: it is being made or removed
        raise ValueError("it is the record of another job")
    if not is_own_log_dir(record.log_dir, record.session, record.app_id):
        raise ValueError("`log_dir` is not a folder of this job")
    if not record.scheduler:
        raise ValueError("`scheduler` is empty")
