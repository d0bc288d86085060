"""Recorded answers of the engines, their descriptions, and mutations of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clusterobjects import changed, paths_of, without

from torchx.jobs.paths import JobPaths
from torchx.jobs.record import JobRecord, ReplicaRecord, RoleRecord
from torchx.jobs.view import JobView, ReplicaView, fold
from torchx.schedulers.docker import status as docker_status
from torchx.schedulers.docker.containers import Container, read
from torchx.schedulers.docker.lookup import consistent
from torchx.schedulers.kubernetes import status as kubernetes_status
from torchx.schedulers.kubernetes.facts import Facts
from torchx.schedulers.local.status import describe_job
from torchx.schedulers.shared.batch.record import BatchRecord
from torchx.schedulers.slurm import status as slurm_status
from torchx.schedulers.slurm.outcome import outcome_of, outcome_without_slurm
from torchx.schedulers.slurm.parse import JobFacts
from torchx.scheduling.base import DescribeAppResponse

RESOURCES = Path(__file__).parent / "resources"


def answers(*names: str) -> dict[str, Any]:
    """Returns the recorded answers of some files by their titles."""
    return {
        f"{Path(name).name}: {title}": answer
        for name in names
        for title, answer in json.loads((RESOURCES / f"{name}.json").read_text(encoding="utf-8")).items()
    }


class Mutation(NamedTuple):
    """A change of an answer.

    Attributes:
        path: the place of the change.
        is_word: whether it has a new string; else the value was removed.
        answer: the changed answer.
    """

    path: tuple[Any, ...]
    is_word: bool
    answer: Any

    def __str__(self) -> str:
        return f"{'NEWWORD at' if self.is_word else 'without'} {self.path}"


def mutations(answer: Any) -> Iterator[Mutation]:
    """Yields an answer without each of its parts, and with a new string in place of each string."""
    for path in paths_of(answer)[1:]:
        yield Mutation(path, False, without(answer, path))
        value = answer
        for key in path:
            value = value[key]
        if isinstance(value, str):
            yield Mutation(path, True, changed(answer, path, "NEWWORD"))


# --- containers -----------------------------------------------------------------------------------

CONTAINERS = answers("docker/containers")
CONTAINERS_AT = 1_795_890_000.0


def containers_in(inspected: Sequence[Any]) -> list[Container]:
    found = [container for each in inspected if (container := read(each)) is not None]
    return consistent(sorted(found, key=lambda c: (c.created, c.name)))


def of_containers(inspected: Sequence[Any]) -> DescribeAppResponse:
    return docker_status.describe(containers_in(inspected), CONTAINERS_AT)


# --- objects of a cluster -------------------------------------------------------------------------

OBJECTS = answers("kubernetes/states", "kubernetes/disruptions")
OBJECTS_AT = 1_795_300_000.0


def facts_of(found: dict[str, Any]) -> Facts:
    job = found["job"]
    more = found.get("pods", []), found.get("events", []), found.get("nodes", {})
    return Facts("research", job["metadata"]["name"], "job", [job], [job], *more)


def of_objects(found: dict[str, Any]) -> DescribeAppResponse:
    return kubernetes_status.describe(facts_of(found), OBJECTS_AT)


# --- journals -------------------------------------------------------------------------------------

JOURNALS = answers("local/journals")


def of_journal(roles: Sequence[dict[str, Any]], events: Sequence[Any]) -> DescribeAppResponse:
    records = []
    for facts in roles:
        replicas = [ReplicaRecord(["true"], {})] * facts["replicas"]
        records.append(RoleRecord(**{**facts, "replicas": replicas}, env={}))
    record = JobRecord("j-1", "local_cwd", "torchx", "j", 1.0, "/no-logs", records, {}, {})
    view = JobView(record, [ReplicaView(role.name, n, role.max_retries) for _, role, n in record.replicas()])
    for event in events:
        fold(view, event)
    return describe_job(view, JobPaths(Path("/no-jobs/j-1")))


# --- folders of Slurm jobs ------------------------------------------------------------------------

FOLDERS = answers("slurm/folders")
FOLDERS_AT = 1_795_880_000.0
QUEUES: dict[str, tuple[JobFacts, ...]] = {
    "off the queue": (),
    "running": (JobFacts(77, 0, "RUNNING", "", "a-b1", submitted=FOLDERS_AT, started=FOLDERS_AT),),
    "failed": (JobFacts(77, 0, "FAILED", "", "a-b1", submitted=FOLDERS_AT, started=FOLDERS_AT),),
}


def record_of(folder: Path, roles: list[dict[str, Any]]) -> BatchRecord:
    app = {"name": "a", "roles": roles}
    return BatchRecord(77, "b1", "a", "a-b1", "torchx", str(folder), submitted_at=FOLDERS_AT, app=app)


def write_folder(folder: Path, files: dict[str, str]) -> None:
    folder.chmod(0o700)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def of_folder(record: BatchRecord, queue: Sequence[JobFacts]) -> DescribeAppResponse:
    outcome = outcome_of(record, queue) or outcome_without_slurm(record)
    return slurm_status.describe(record, "77", outcome, queue)
