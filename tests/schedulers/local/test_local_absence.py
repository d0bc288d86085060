"""Absence is not evidence: recorded journals with a part removed, or a string that is not known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from absence import check_application
from clusterobjects import changed, paths_of, without

from torchx.jobs.paths import JobPaths
from torchx.jobs.record import JobRecord, ReplicaRecord, RoleRecord
from torchx.jobs.view import JobView, ReplicaView, fold
from torchx.schedulers.local.status import describe_job
from torchx.scheduling.base import DescribeAppResponse
from torchx.specs.status import AppState, is_terminal

RECORDED = json.loads(
    (Path(__file__).parents[2] / "resources" / "local" / "journals.json").read_text(encoding="utf-8")
)
WRITTEN_IF_TRUE = {("exit", "needed"), ("exit", "stopped")}
"""Fields whose absence has a meaning: the replica has ended by itself, and not too early."""


def described(roles: list[dict[str, Any]], events: list[dict[str, Any]]) -> DescribeAppResponse:
    records = []
    for facts in roles:
        replicas = [ReplicaRecord(["true"], {})] * facts["replicas"]
        records.append(RoleRecord(**{**facts, "replicas": replicas}, env={}))
    record = JobRecord("j-1", "local_cwd", "torchx", "j", 1.0, "/no-logs", records, {}, {})
    views = [ReplicaView(role.name, n, role.max_retries) for _, role, n in record.replicas()]
    view = JobView(record, views)
    for event in events:
        fold(view, event)
    return describe_job(view, JobPaths(Path("/no-jobs/j-1")))


def mutations(events: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for number, event in enumerate(events):
        before, after = events[:number], events[number + 1 :]
        yield f"without {event}", before + after
        for path in paths_of(event)[1:]:
            value: Any = event
            for key in path:
                value = value[key]
            if (event["e"], path[0]) not in WRITTEN_IF_TRUE and path != ("e",) and isinstance(path[-1], str):
                yield f"without {path} of {event}", [*before, without(event, path), *after]
            if isinstance(value, str):
                yield f"NEWWORD at {path} of {event}", [*before, changed(event, path, "NEWWORD"), *after]


def check_attempts(then: DescribeAppResponse, now: DescribeAppResponse, mutation: str) -> None:
    """Checks that no attempt has the end of another one."""
    for replica, before in zip(now.replicas, then.replicas, strict=True):
        known = {attempt.number: attempt.state for attempt in before.attempts}
        for attempt in replica.attempts:
            state = known[attempt.number]
            assert attempt.state is not AppState.SUCCEEDED or state is AppState.SUCCEEDED, mutation
            assert not is_terminal(attempt.state) or is_terminal(state), mutation


@pytest.mark.parametrize("title", RECORDED)
def test_nothing_ends_by_what_is_absent(title: str) -> None:
    roles, events = RECORDED[title]["roles"], RECORDED[title]["events"]
    for length in range(1, len(events) + 1):  # as it was at each moment
        seen = events[:length]
        then = described(roles, seen)
        for mutation, mutated in mutations(seen):
            now = described(roles, mutated)
            check_application(then, now, mutation)
            check_attempts(then, now, mutation)
