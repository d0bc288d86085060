"""The objects of an application: its jobs by attempt, its pods, its record."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from torchx.errors import UsageError
from torchx.json_limits import Data
from torchx.schedulers.kubernetes.api.client import path_of
from torchx.schedulers.kubernetes.api.objects import (
    Object,
    annotation,
    count_of,
    created,
    label,
    short,
    value_at,
)
from torchx.schedulers.kubernetes.api.shape import MALFORMED
from torchx.schedulers.kubernetes.names import (
    APP,
    APP_ID,
    ATTEMPT,
    CANCELLED,
    RELEASED,
    ROLE_INDEX,
    RUNS,
    STOPPED,
    USER,
)
from torchx.schedulers.kubernetes.record import RecordError, read_record, run_record

SPARE = len("-r9999")
"""Additional characters in the names of the jobs of later attempts."""


def attempt_of(job: Object) -> int:
    """Returns the number of the attempt that a job or a pod belongs to, from 1."""
    return count_of(label(job, ATTEMPT)) or 1


def name_of(name: str, attempt: int, following: int) -> str:
    """Returns the name of the job of another attempt.

    Args:
        name: the name of a job.
        attempt: its attempt.
        following: the other attempt, from 2.

    >>> name_of("a-b1-w", 1, 2), name_of("a-b1-w-r2", 2, 3)
    ('a-b1-w-r2', 'a-b1-w-r3')
    """
    if attempt > 1:
        base = name.removesuffix(f"-r{attempt}")
    else:
        base = name
    return f"{base}-r{following}"


def originals(jobs: Iterable[Object]) -> list[Object]:
    """Returns jobs without those that have copied labels.

    The name of a job begins with the id of its application, and for an attempt of a role there is one job.
    """
    jobs = [job for job in jobs if f"{job['metadata']['name']}-".startswith(f"{label(job, APP_ID)}-")]
    oldest: dict[tuple[str, int], Object] = {}
    for job in sorted(jobs, key=created):
        oldest.setdefault((label(job, ROLE_INDEX), attempt_of(job)), job)
    return [job for job in jobs if job is oldest[label(job, ROLE_INDEX), attempt_of(job)]]


def newest_attempts(jobs: Iterable[Object]) -> tuple[list[Object], list[Object]]:
    """Returns the jobs of the newest attempt of each role, and those of earlier attempts.

    Jobs without the label of an attempt are all of the first kind.
    """
    newest: dict[str, int] = {}
    jobs = originals(jobs)
    for job in jobs:
        role = label(job, ROLE_INDEX)
        newest[role] = max(attempt_of(job), newest.get(role, 1))
    mains = [job for job in jobs if attempt_of(job) == newest[label(job, ROLE_INDEX)]]
    earlier = [job for job in jobs if attempt_of(job) < newest[label(job, ROLE_INDEX)]]
    return mains, earlier


BATCH, JOBSET, VOLCANO = "batch/v1", "jobset.x-k8s.io/v1alpha2", "batch.volcano.sh/v1alpha1"
RESOURCES = {"job": (BATCH, "jobs"), "jobset": (JOBSET, "jobsets"), "volcano": (VOLCANO, "jobs")}
"""API version and resource of the main objects, by kind."""

_ID = r"(?a)[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
"""Any label value: ids of this project are narrower, but others can be deleted too."""
_NAMESPACE = r"(?a)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"

Objects = list[Object]


@dataclass(frozen=True, eq=False)
class Facts:
    """The objects of one application.

    Attributes:
        namespace: the namespace.
        name: the id without the namespace.
        kind: job, jobset or volcano.
        mains: the submitted objects: a job for each role, or a single object of another kind.
        jobs: all jobs, including those created by other objects.
        pods: its pods.
        events: warnings about its objects, if requested.
        nodes: the nodes of running pods that are not ready, by name, if readable.
        partial: ``pods`` has only waiting and failed ones.
        earlier: the jobs of earlier attempts of a gang, whose newest ones are in ``mains``.
        run: the index of a run of a sweep in its Job, which is shown as an application with one replica.
    """

    namespace: str
    name: str
    kind: str
    mains: Objects
    jobs: Objects
    pods: Objects
    events: Objects = field(default_factory=list)
    nodes: dict[str, Object] = field(default_factory=dict)
    partial: bool = False
    earlier: Objects = field(default_factory=list)
    run: int | None = None

    @property
    def app_id(self) -> str:
        """The id used in handles."""
        return f"{self.namespace}:{self.name}"

    def path_of(self, main: Object) -> str:
        """Returns the path of one of its submitted objects."""
        return main_path(self.kind, self.namespace, main["metadata"]["name"])

    @property
    def owner(self) -> str:
        """The name of the submitter, or an empty string if its objects do not have it."""
        return next((short(user) for main in self.mains if (user := annotation(main, USER))), "")

    @property
    def fails_fast(self) -> bool:
        """Whether all replicas are ended when one fails without retries left."""
        return not self.has_runs and bool(self.cfg.get("fail_fast", True))

    @property
    def has_runs(self) -> bool:
        """Whether its Job has the runs of a sweep, which are independent of each other."""
        return any(annotation(main, RUNS) for main in self.mains)

    @property
    def record(self) -> Object:
        """The record made at submission; empty if unreadable."""
        return self._read[0]

    @property
    def cfg(self) -> Data:
        """The recorded run options."""
        return self.record.get("cfg") or {}

    @property
    def roles(self) -> list[Data]:
        """The recorded roles."""
        return value_at(self.record, "app", "roles") or []

    @property
    def damage(self) -> str:
        """The reason why its objects or its record are unreliable, or an empty string."""
        return self.malformed or self._read[1]

    @functools.cached_property
    def malformed(self) -> str:
        """A message about the first submitted object with fields of a wrong type, or an empty string."""
        for main in self.mains:
            name = f"its {self.kind} {main['metadata']['name']}"
            if main.get(MALFORMED):
                return f"{name} is malformed: {main[MALFORMED]}"
            if self.kind == "job" and role_index(main) is None:
                return f"{name} is malformed: its label {ROLE_INDEX} is not a role number"
        return ""

    @functools.cached_property
    def _read(self) -> tuple[Object, str]:
        text = next((text for main in self.mains if (text := annotation(main, APP))), "")
        if not text:
            return {}, ""
        try:
            return (read_record(text) if self.run is None else run_record(text, self.mains[0], self.run)), ""
        except RecordError as error:
            return {}, error.message


def split_id(app_id: str, namespace: str) -> tuple[str, str]:
    """Splits an id into namespace and name; the namespace defaults to the given one.

    Raises:
        UsageError: the id is invalid; an empty label value would select all applications.

    >>> split_id("research:train-b1", "default"), split_id("train-b1", "default")
    (('research', 'train-b1'), ('default', 'train-b1'))
    """
    place, colon, name = app_id.rpartition(":")
    place = place if colon else namespace
    if not re.fullmatch(_ID, name) or not re.fullmatch(_NAMESPACE, place):
        if app_id.isprintable():
            shown = app_id
        else:
            shown = ascii(app_id)[1:-1]
        raise UsageError(
            f"`{shown}` is not a valid application id on Kubernetes",
            hint="the format is NAMESPACE:NAME, e.g. default:train-x7k2m9cd; all applications: torchx list",
        )
    return place, name


def is_ended_by_us(main: Object) -> bool:
    """Returns True if torchx has requested the end of a submitted object."""
    return any(annotation(main, mark) for mark in (CANCELLED, STOPPED, RELEASED))


def role_index(main: Object) -> int | None:
    """Returns the role number of a Job, or None if its label is not a number."""
    return count_of(label(main, ROLE_INDEX))


def main_path(kind: str, namespace: str, name: str = "") -> str:
    """Returns the path of a main object, or of its collection."""
    version, resource = RESOURCES[kind]
    return path_of(version, resource, namespace, name)


def owner_of(version: str, kind: str, thing: Object) -> Object:
    """Returns the reference to the owner of other objects, which the cluster deletes with it.

    Args:
        version: the version of its API.
        kind: its kind.
        thing: the owner.
    """
    metadata = thing["metadata"]
    return {"apiVersion": version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"]}


def selector(name: str) -> dict[str, str]:
    """Returns the query for the objects of an application, or of all applications without a name."""
    return {"labelSelector": f"{APP_ID}={name}" if name else APP_ID}
