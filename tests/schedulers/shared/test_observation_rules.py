"""The rules of observations over every recorded answer.

An end is decided once, counts grow, nothing starts after a cancellation, and times are those of the engine.
That absence is not evidence is tested in the folder of each engine.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from clusterobjects import changed
from recorded import (
    CONTAINERS,
    CONTAINERS_AT,
    FOLDERS,
    JOURNALS,
    OBJECTS,
    QUEUES,
    containers_in,
    of_containers,
    of_folder,
    of_journal,
    of_objects,
    record_of,
    write_folder,
)

from torchx.schedulers.docker import status as docker_status
from torchx.schedulers.docker.marks import CANCELLED, split_marks
from torchx.schedulers.docker.replay import replay
from torchx.schedulers.docker.rules.job import job_of
from torchx.schedulers.kubernetes.names import OUTCOME
from torchx.schedulers.kubernetes.reconcile import _failed_replicas
from torchx.schedulers.kubernetes.state.outcome import Outcome
from torchx.schedulers.shared.batch.outcome import save_outcome
from torchx.schedulers.slurm.outcome import outcome_of
from torchx.scheduling.base import DescribeAppResponse
from torchx.specs.status import AppState, is_terminal

DAY = 86400.0


def decided(found: DescribeAppResponse) -> tuple[object, ...]:
    return found.state, found.msg, found.first_failure


# --- an end is decided once -----------------------------------------------------------------------


@pytest.mark.parametrize("title", JOURNALS)
def test_a_recorded_end_of_a_job_stays(title: str) -> None:
    roles, events = JOURNALS[title]["roles"], JOURNALS[title]["events"]
    ends = [number for number, event in enumerate(events, 1) if event["e"] == "end"]
    for number in ends[:1]:
        then = of_journal(roles, events[:number])
        for other in JOURNALS.values():
            assert of_journal(roles, [*events[:number], *other["events"]]) == then


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("title", FOLDERS)
def test_a_saved_end_of_a_slurm_job_stays(title: str, queue: str, tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "a-b1"
    folder.mkdir(parents=True)
    record = record_of(folder, FOLDERS[title]["roles"])
    write_folder(folder, FOLDERS[title]["files"])
    outcome = outcome_of(record, QUEUES[queue])
    if outcome is None or not is_terminal(outcome.state):
        return
    save_outcome(record, outcome)
    for name in FOLDERS[title]["files"]:
        (folder / name).unlink()
    now = of_folder(record, ())
    unproven = (outcome.state, now.state) == (AppState.SUCCEEDED, AppState.UNKNOWN)
    assert now.state is outcome.state or unproven  # no replica is known to have ended with 0


@pytest.mark.parametrize("name", OBJECTS)
def test_a_noted_outcome_of_a_cluster_stays(name: str) -> None:
    found = OBJECTS[name]
    then = of_objects(found)
    if not is_terminal(then.state):
        return
    outcome = Outcome(then.first_failure, then.state, then.msg, then.ended_at, _failed_replicas(then))
    metadata = found["job"]["metadata"]
    annotations = {**metadata.get("annotations", {}), OUTCOME: outcome.text()}
    noted = changed(found, ("job", "metadata"), {**metadata, "annotations": annotations})
    lost: list[dict[str, Any]] = [{"pods": []}, {"pods": [], "events": []}]
    for missing in lost:
        assert decided(of_objects({**noted, **missing})) == decided(then)


# --- counts grow, whatever the order --------------------------------------------------------------


@pytest.mark.parametrize("title", JOURNALS)
def test_counts_grow_and_the_first_time_stays(title: str) -> None:
    roles, events = JOURNALS[title]["roles"], JOURNALS[title]["events"]
    before = of_journal(roles, [])
    for length in range(1, len(events) + 1):
        now = of_journal(roles, events[:length])
        assert (now.num_restarts, now.run) >= (before.num_restarts, before.run)
        assert before.started_at in (None, now.started_at)
        assert before.first_failure in (None, now.first_failure)
        for replica, old in zip(now.replicas, before.replicas, strict=True):
            assert len(replica.attempts) >= len(old.attempts)
        before = now


@pytest.mark.parametrize("title", CONTAINERS)
def test_the_order_of_containers_has_no_meaning(title: str) -> None:
    found = containers_in(CONTAINERS[title])
    then = docker_status.describe(found, CONTAINERS_AT)
    for first in range(len(found)):
        other = [*found[first:], *found[:first]][::-1]
        assert docker_status.describe(other, CONTAINERS_AT) == then


@pytest.mark.parametrize("name", OBJECTS)
def test_the_order_of_objects_has_no_meaning(name: str) -> None:
    found = OBJECTS[name]
    other = {**found, "pods": found.get("pods", [])[::-1], "events": found.get("events", [])[::-1]}
    assert of_objects(other) == of_objects(found)


# --- nothing starts after a cancellation ----------------------------------------------------------


@pytest.mark.parametrize("title", CONTAINERS)
def test_no_container_starts_after_a_cancellation(title: str) -> None:
    inspected = CONTAINERS[title]
    for number, each in enumerate(inspected):
        name, ready, _ = split_marks(each["Name"])
        marked = ".".join(filter(None, (name, ready, CANCELLED)))
        found = containers_in(changed(inspected, (number, "Name"), marked))
        assert replay(job_of(found), found).starts == []


@pytest.mark.parametrize("title", FOLDERS)
def test_a_cancelled_slurm_job_does_not_wait(title: str, tmp_path: Path) -> None:
    record = record_of(tmp_path, FOLDERS[title]["roles"])
    write_folder(tmp_path, {**FOLDERS[title]["files"], "cancelled": ""})
    assert is_terminal(of_folder(record, ()).state)


# --- times are those of the engine ----------------------------------------------------------------


@pytest.mark.parametrize("ahead", [-DAY, DAY])
def test_the_clock_of_the_reader_has_no_meaning(ahead: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def described() -> list[DescribeAppResponse]:
        found = [of_containers(inspected) for inspected in CONTAINERS.values()]
        return found + [of_objects(objects) for objects in OBJECTS.values()]

    now, then = time.time(), described()
    monkeypatch.setattr(time, "time", lambda: now + ahead)
    assert described() == then
