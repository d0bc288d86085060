"""Recorded answers of a real cluster and their interpretation: jobs and pods of each kind of end and wait."""

from __future__ import annotations

import copy
import functools
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from torchx.schedulers.kubernetes.facts import Facts
from torchx.schedulers.kubernetes.names import CANCELLED, HELD, NOTICE, ROLE_INDEX, STOPPED
from torchx.schedulers.kubernetes.state.attempts import attempts_of
from torchx.schedulers.kubernetes.status import describe
from torchx.schedulers.shared.listing import row_of
from torchx.scheduling.base import DescribeAppResponse
from torchx.specs.status import AppState

RECORDED = Path(__file__).parents[2] / "resources" / "kubernetes" / "states.json"
NOW = 1_795_300_000.0
"""Some days after the recordings."""


@functools.cache
def recorded() -> dict[str, Any]:
    return dict(json.loads(RECORDED.read_text(encoding="utf-8")))


def facts_of(name: str) -> Facts:
    found = copy.deepcopy(recorded()[name])
    job = found["job"]
    return Facts(
        "research",
        job["metadata"]["name"],
        "job",
        [job],
        [job],
        found.get("pods", []),
        found.get("events", []),
    )


def response(facts: Facts | str) -> DescribeAppResponse:
    return describe(facts_of(facts) if isinstance(facts, str) else facts, NOW)


def replicas(facts: Facts | str) -> list[str]:
    (role,) = response(facts).roles_statuses
    return [replica.state.name for replica in role.replicas]


def reason(name: str) -> str:
    found = response(name)
    assert found.state is AppState.PENDING, found
    (role,) = found.roles_statuses
    assert {r.attempts[-1].msg for r in role.replicas} == {found.msg}
    return found.msg


@pytest.mark.parametrize(
    ("name", "state", "expected"),
    [
        ("waits-for-a-node", "PENDING", ["PENDING"] * 3),
        ("runs", "RUNNING", ["RUNNING"] * 3),
        ("succeeded", "SUCCEEDED", ["SUCCEEDED"] * 3),
        ("success-policy", "SUCCEEDED", ["SUCCEEDED", "CANCELLED"]),
        ("peers-are-ended", "RUNNING", ["RUNNING", "FAILED", "RUNNING"]),
        ("exit-7", "FAILED", ["CANCELLED", "FAILED", "CANCELLED"]),
        ("failed-index", "FAILED", ["SUCCEEDED", "FAILED", "SUCCEEDED"]),
        ("failed-by-rule", "FAILED", ["CANCELLED", "FAILED", "CANCELLED"]),
        ("deadline-of-the-job", "FAILED", ["CANCELLED"]),
        ("waits-for-attempt-2", "RUNNING", ["PENDING", "SUCCEEDED"]),
        ("succeeded-at-third", "SUCCEEDED", ["SUCCEEDED", "SUCCEEDED"]),
        ("being-suspended", "RUNNING", ["RUNNING", "RUNNING"]),
        ("pod-deleted", "FAILED", ["CANCELLED", "CANCELLED"]),
        ("evicted", "RUNNING", ["RUNNING", "FAILED"]),
        ("queued", "SUBMITTED", ["SUBMITTED", "SUBMITTED"]),
        ("no-quota", "RUNNING", ["RUNNING", "PENDING", "RUNNING"]),
    ],
)
def test_states(name: str, state: str, expected: list[str]) -> None:
    assert (response(name).state.name, replicas(name)) == (state, expected)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no-cpu", "no node can run it: 0/1 nodes are available: 1 Insufficient cpu"),
        ("no-gpu", "no node can run it: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu"),
        ("no-such-node", "node(s) didn't match Pod's node affinity/selector"),
        ("no-volume-claim", 'persistentvolumeclaim "nosuch" not found'),
        ("image-not-found", "its image cannot be pulled: registry.example.com/team/nosuch:1: not found"),
        ("image-never-pulled", "is not present with pull policy of Never"),
        ("image-bad-name", "repository name (library/Bad) must be lowercase"),
        ("no-secret", 'it cannot be started: secret "nosuch" not found'),
        ("no-config-map", 'configmap "nosuch" not found'),
    ],
)
def test_why_it_waits(name: str, why: str) -> None:
    assert why in reason(name)
    assert "reemption" not in reason(name), "the user cannot act on it"


def test_why_it_waits_in_a_queue() -> None:
    assert response("queued").msg == "it waits for its turn in queue `team-queue`"


def test_quota_that_rejects_a_pod_is_reported() -> None:
    (role,) = response("no-quota").roles_statuses
    assert "exceeded quota: q, requested: requests.cpu=50m" in role.replicas[1].attempts[0].msg
    assert "exceeded quota" in response("no-quota").msg


def test_the_culprit_is_the_one_that_failed_by_itself() -> None:
    first = response("exit-7").first_failure
    assert first is not None
    assert (first.replica, first.exit_code, first.signal) == (1, 7, None)
    assert response("peers-are-ended").msg == "a replica failed, the others are being ended"


def test_a_signal_has_its_name_and_memory_its_limit() -> None:
    first = response("out-of-memory").first_failure
    assert first is not None
    assert (first.signal, first.exit_code, first.msg) == (
        "SIGKILL",
        None,
        "out of memory: its limit is 32Mi",
    )


def test_time_limits_are_reported_as_such() -> None:
    assert response("deadline-of-the-job").msg == "it timed out"
    first = response("deadline-of-the-pod").first_failure
    assert first is not None
    assert first.msg == "time limit reached"


def test_a_notice_has_the_clock_of_the_cluster() -> None:
    pod = {
        "metadata": {"annotations": {NOTICE: "5"}},
        "spec": {"activeDeadlineSeconds": 60},
        "status": {
            "startTime": "2999-01-01T00:00:00Z",
            "containerStatuses": [{"name": "main", "state": {"running": {}}}],
        },
    }
    due = datetime(2999, 1, 1, 0, 1, tzinfo=timezone.utc)
    for late in (-1, 1):
        (attempt,) = attempts_of(pod, 1, now=due.timestamp() + late)
        assert attempt.noticed_at == (due if late > 0 else None)


def test_a_program_that_is_not_there() -> None:
    first = response("no-program").first_failure
    assert first is not None
    assert first.msg.startswith('it could not be started: "/no/such/program"')
    assert first.exit_code is None, "the code is the runtime's, not the program's"
    (role,) = response("no-program").roles_statuses
    assert role.replicas[0].attempts[0].started_at is None, "it never ran"


def test_attempts_are_counted_by_pods_and_by_restarts() -> None:
    (role,) = response("succeeded-at-third").roles_statuses
    assert [(a.number, a.exit_code) for a in role.replicas[0].attempts] == [(1, 3), (2, 3), (3, 0)]
    (role,) = response("back-off").roles_statuses
    assert [(a.number, a.state.name) for a in role.replicas[0].attempts] == [(1, "FAILED"), (2, "PENDING")]
    (role,) = response("restarted").roles_statuses
    assert [(a.number, a.state.name) for a in role.replicas[0].attempts] == [(2, "FAILED"), (3, "RUNNING")]


def test_an_eviction_is_reported_as_one() -> None:
    (role,) = response("evicted").roles_statuses
    assert role.replicas[1].attempts[-1].msg == "evicted from node node-1"


def test_a_removed_object_is_reported_as_such() -> None:
    for name in ("pod-is-gone", "pod-deleted"):
        assert response(name).msg.startswith("a replica failed, and its pod no longer exists"), name
        assert response(name).first_failure is None


def test_rule_still_names_pod_when_it_is_gone() -> None:
    facts = facts_of("failed-by-rule")
    facts.pods.clear()
    first = response(facts).first_failure
    assert first is not None
    assert (first.replica, first.exit_code) == (1, 7)


def test_times_are_in_order() -> None:
    for name in recorded():
        found = response(name)
        times = [at for at in (found.submitted_at, found.started_at, found.ended_at) if at is not None]
        assert times == sorted(times), name


def test_a_listing_needs_only_the_unusual_pods() -> None:
    for name in recorded():
        whole = facts_of(name)
        few = [pod for pod in whole.pods if pod["status"].get("phase") in ("Pending", "Failed")]
        line = row_of(
            describe(Facts("research", whole.name, "job", whole.mains, whole.jobs, few, partial=True), NOW)
        )
        assert line.state is response(name).state, name
    assert row_of(describe(facts_of("exit-7"), NOW)).exit_code == 7
    assert row_of(describe(facts_of("out-of-memory"), NOW)).exit_code == 128 + 9
    assert row_of(describe(facts_of("succeeded"), NOW)).exit_code == 0


# --- marks of our own ----------------------------------------------------------------------------


def marked(name: str, mark: str) -> Facts:
    facts = facts_of(name)
    facts.mains[0]["metadata"].setdefault("annotations", {})[mark] = "2026-11-21T01:30:00Z"
    return facts


def noted(facts: Facts) -> None:
    """Has the cluster take note that something is suspended."""
    facts.mains[0]["status"]["conditions"] = [
        {"type": "Suspended", "status": "True", "reason": "JobSuspended"}
    ]


def test_cancelled_is_reported_when_nothing_runs_any_more() -> None:
    facts = marked("being-suspended", CANCELLED)
    assert (response(facts).state, response(facts).msg) == (AppState.RUNNING, "it is being cancelled")
    facts.pods.clear()
    # a controller that has not taken note of it may be making pods
    assert (response(facts).state, response(facts).msg) == (AppState.RUNNING, "it is being cancelled")
    noted(facts)
    assert response(facts).state is AppState.CANCELLED
    assert replicas(facts) == ["CANCELLED", "CANCELLED"]


def test_a_jobset_is_cancelled_when_its_jobs_are() -> None:
    child = facts_of("being-suspended").mains[0]
    mark = {"name": "train", "annotations": {CANCELLED: "2026-11-21T01:30:00Z"}}
    jobset = {"metadata": mark, "spec": {"suspend": True}, "status": {}}
    facts = Facts("research", "train", "jobset", [jobset], [child], [])
    assert response(facts).state is AppState.RUNNING
    noted(facts)
    assert response(facts).state is AppState.RUNNING
    noted(Facts("research", "train", "job", [child], [child], []))
    assert response(facts).state is AppState.CANCELLED


@pytest.mark.parametrize("name", ["succeeded", "exit-7"])
def test_cancelled_it_stays_however_its_pods_end_on_term(name: str) -> None:
    facts = marked(name, CANCELLED)
    end = facts.mains[0]["status"]["conditions"]
    noted(facts)
    facts.mains[0]["status"]["conditions"] += end
    assert (response(facts).state, response(facts).msg) == (AppState.CANCELLED, "cancelled")
    assert row_of(describe(facts, NOW)).exit_code is None


def test_who_cancels_what_has_ended_changes_nothing() -> None:
    assert response(marked("succeeded", CANCELLED)).state is AppState.SUCCEEDED
    assert response(marked("exit-7", CANCELLED)).state is AppState.FAILED


def test_a_start_that_was_broken_off_has_failed() -> None:
    facts = marked("queued", HELD)
    assert response(facts).msg == "its submission was interrupted"
    soon = describe(facts, response(facts).submitted_at.timestamp() + 5)  # type: ignore[union-attr]
    assert soon.state is AppState.SUBMITTED


def test_several_jobs_end_as_one() -> None:
    bad, good = facts_of("exit-7"), marked("being-suspended", STOPPED)
    for number, facts in enumerate((bad, good)):
        for each in [*facts.mains, *facts.pods]:
            each["metadata"].setdefault("labels", {})[ROLE_INDEX] = str(number)

    def both(pods: list[Any]) -> Facts:
        mains = [*bad.mains, *good.mains]
        return Facts("research", "train", "job", mains, mains, pods)

    going = response(both([*bad.pods, *good.pods]))
    assert (going.state, going.msg) == (AppState.RUNNING, "a replica failed, the others are being ended")
    assert response(both(bad.pods)).state is AppState.RUNNING
    noted(good)
    over = response(both(bad.pods))
    assert over.state is AppState.FAILED
    assert over.first_failure is not None
    assert over.first_failure.exit_code == 7
    assert [r.state.name for r in over.roles_statuses[1].replicas] == ["CANCELLED", "CANCELLED"]


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("Pending", "PENDING"),
        ("Running", "RUNNING"),
        ("Restarting", "RUNNING"),
        ("Completed", "SUCCEEDED"),
        ("Failed", "FAILED"),
        ("Terminated", "FAILED"),
        ("Aborted", "CANCELLED"),
        ("", "SUBMITTED"),
    ],
)
def test_jobs_of_volcano(phase: str, state: str) -> None:
    status = {"state": {"phase": phase, "lastTransitionTime": "2026-11-21T01:30:00Z"}, "retryCount": 2}
    metadata = {"name": "train", "creationTimestamp": "2026-11-21T01:20:00Z"}
    job = {"metadata": metadata, "spec": {}, "status": status}
    found = response(Facts("research", "train", "volcano", [job], [], []))
    assert (found.state.name, found.num_restarts) == (state, 2)
    assert (found.ended_at is not None) == (state in ("SUCCEEDED", "FAILED", "CANCELLED"))


def test_job_of_volcano_is_cancelled_when_volcano_says_so() -> None:
    status = {"state": {"phase": "Running"}}
    metadata = {"name": "train", "annotations": {CANCELLED: "2026-11-21T01:30:00Z"}}
    facts = Facts(
        "research", "train", "volcano", [{"metadata": metadata, "spec": {}, "status": status}], [], []
    )
    assert (response(facts).state, response(facts).msg) == (AppState.RUNNING, "it is being cancelled")
    status["state"]["phase"] = "Aborted"
    assert response(facts).state is AppState.CANCELLED


def test_error_file_left_as_last_word_is_used() -> None:
    facts = facts_of("exit-7")
    failed = next(pod for pod in facts.pods if pod["metadata"]["name"].startswith("train-f1-1"))
    ended = failed["status"]["containerStatuses"][0]["state"]["terminated"]
    ended["message"] = json.dumps({"message": {"message": "loss is NaN"}})
    assert "loss is NaN" in response(facts).structured_error_msg
