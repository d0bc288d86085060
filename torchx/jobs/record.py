"""The record of a job: what was submitted, plain and complete enough to find, tell and repeat the job."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torchx.errors import StateError

SCHEMA = 1
"""Version of the record; a newer version of this program reads all the older ones."""


class ReplicaRecord(NamedTuple):
    """One replica as it is started.

    Attributes:
        args: the program and its arguments.
        env: what it gets beyond its role's environment.
    """

    args: list[str]
    env: dict[str, str]


class RoleRecord(NamedTuple):
    """The replicas of one role and how they are retried.

    Attributes:
        name: the role.
        replicas: its replicas, by id.
        env: what each of them gets beyond the environment of the submitting process.
        cwd: their working directory.
        max_retries: how often a failure may be answered by a new start.
        retry_policy: REPLICA, ROLE or APPLICATION.
        gpus: GPUs leased for each replica.
        workspace: the folder that holds the copy of the workspace they run in; None without one.
    """

    name: str
    replicas: list[ReplicaRecord]
    env: dict[str, str]
    cwd: str | None = None
    max_retries: int = 0
    retry_policy: str = "APPLICATION"
    gpus: int = 0
    workspace: str | None = None


class JobRecord(NamedTuple):
    """What was submitted.

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
        fail_fast: a failure for good ends all other replicas.
        backoff: seconds before the first retry.
    """

    app_id: str
    scheduler: str
    session: str
    name: str
    submitted_at: float
    log_dir: str
    roles: list[RoleRecord]
    app: dict[str, Any]
    cfg: dict[str, Any]
    grace: float = 10.0
    fail_fast: bool = True
    backoff: float = 1.0

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
        """Writes the record, whole or not at all, readable by this user only."""
        partial = path.with_name(path.name + ".partial")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(self._plain(), file, separators=(",", ":"))
        partial.rename(path)

    def _plain(self) -> dict[str, Any]:
        """Returns it as JSON takes it: a tuple with names would lose them."""
        roles = [
            {**role._asdict(), "replicas": [replica._asdict() for replica in role.replicas]}
            for role in self.roles
        ]
        return {"schema": SCHEMA, **self._asdict(), "roles": roles}

    @classmethod
    def load(cls, path: Path) -> JobRecord:
        """Reads a record.

        What this version does not know is left out.

        Raises:
            FileNotFoundError: there is none.
            StateError: it is damaged, cannot be read, or was written by a newer version.
        """
        try:
            text = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:  # no job was ever called so
                raise FileNotFoundError(error.errno, error.strerror, str(path)) from error
            raise StateError(f"the record {path} cannot be read: {error.strerror}") from error
        try:
            data = json.loads(text)
            schema = data.pop("schema")
            if schema > SCHEMA:
                raise StateError(
                    f"the record {path} was written by a newer version (schema {schema}, known: {SCHEMA})",
                    hint="upgrade torchx to read it",
                )
            roles = [_role(role) for role in data["roles"]]
            record = cls(**{**_known(cls._fields, data), "roles": roles})
            for name in ("app_id", "scheduler", "session", "name", "log_dir"):
                if not isinstance(getattr(record, name), str):
                    raise TypeError(f"`{name}` is no text")
            if not isinstance(data["roles"], list):
                raise TypeError("`roles` is no list")
            if not isinstance(record.submitted_at, (int, float)):
                raise TypeError("`submitted_at` is no time")
            return record
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            import shlex  # on demand: few records are damaged

            raise StateError(
                f"the record {path} is damaged: {error}",
                hint=f"nothing can be told of it any more; remove it: rm -r {shlex.quote(str(path.parent))}",
            ) from error


def _role(data: dict[str, Any]) -> RoleRecord:
    replicas = [ReplicaRecord(**_known(ReplicaRecord._fields, one)) for one in data.pop("replicas")]
    return RoleRecord(replicas=replicas, **_known(RoleRecord._fields, data))


def _known(names: Sequence[str], data: dict[str, Any]) -> dict[str, Any]:
    """Returns the entries that a part of the record has a place for."""
    return {name: value for name, value in data.items() if name in names}
