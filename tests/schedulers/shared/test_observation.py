"""The description of an application from the observation of its engine."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from torchx.scheduling.observation import (
    CANCELLED,
    CANCELLING,
    REMOVED,
    Observation,
    Phase,
    Replica,
    Whole,
    decide,
    describe,
    failure_in,
    first_failure,
    while_needed,
)
from torchx.scheduling.responses import local_time
from torchx.services import ENDED_WHILE_NEEDED
from torchx.specs.status import NONE, AppState, AttemptStatus, EndCause, FirstFailure, Reason

FAILED = AttemptStatus(2, AppState.FAILED, 3)
RUNNING = AttemptStatus(1, AppState.RUNNING)
METADATA = {"torchx/tag.lr": "1", "other": "x"}


def seen(state: AppState, *replicas: Replica, first: FirstFailure | None = None) -> Observation:
    reason = Reason("because", EndCause.NODE_LOST)
    times = local_time(1.0), local_time(2.0), local_time(3.0)
    return Observation(
        "a-1", "a", times[0], {"k": 1}, METADATA, Whole.of(state, reason), replicas, first, times[1], times[2]
    )


def states(observation: Observation) -> list[AppState]:
    return [replica.state for replica in describe(observation).replicas]


def test_a_replica_without_attempts_follows_its_application() -> None:
    for state, expected in ((AppState.RUNNING, AppState.PENDING), (AppState.FAILED, AppState.CANCELLED)):
        assert states(seen(state, Replica("w", 0))) == [expected]
        assert states(seen(state, Replica("w", 0, [RUNNING, FAILED]))) == [AppState.FAILED]
        assert states(seen(state, Replica("w", 0, [FAILED], AppState.UNKNOWN))) == [AppState.UNKNOWN]


@pytest.mark.parametrize(
    ("whole", "state", "text"),
    [
        (Whole(), AppState.UNKNOWN, ""),
        (Whole(Phase.ACCEPTED), AppState.SUBMITTED, ""),
        (Whole(Phase.RUNNING, end=AppState.FAILED, live=True), AppState.RUNNING, ""),
        (Whole(Phase.RUNNING, end=AppState.FAILED), AppState.FAILED, ""),
        (Whole(Phase.RUNNING, cancelled=True, live=True), AppState.RUNNING, CANCELLING),
        (Whole(Phase.WAITING, cancelled=True), AppState.CANCELLED, CANCELLED),
        (Whole(Phase.RUNNING, end=AppState.SUCCEEDED, cancelled=True), AppState.SUCCEEDED, ""),
        (Whole(end=AppState.CANCELLED, reason=Reason("why")), AppState.CANCELLED, "why"),
    ],
)
def test_the_state_follows_from_the_facts(whole: Whole, state: AppState, text: str) -> None:
    assert decide(whole) == (state, Reason(text))


def test_roles_are_in_order_and_services_are_counted() -> None:
    replicas = [
        Replica("w", 0, [RUNNING], host="n1", max_attempts=3),
        Replica("s", 0, [RUNNING], ready=True),
        Replica("s", 1, [RUNNING], ready=False),
    ]
    described = describe(seen(AppState.RUNNING, *replicas))
    assert [(role.role, role.ready) for role in described.roles_statuses] == [("w", None), ("s", 1)]
    assert [replica.required for replica in described.replicas] == [True, False, False]
    first = described.replicas[0]
    assert (first.hostname, first.hostaddr, first.max_attempts, first.attempts) == ("n1", "n1", 3, [RUNNING])


def test_an_end_has_a_time_only_after_it() -> None:
    for state, at in ((AppState.RUNNING, None), (AppState.UNKNOWN, None), (AppState.FAILED, local_time(3.0))):
        described = describe(seen(state))
        assert (described.state, described.ended_at) == (state, at)
        assert (described.msg, described.cause) == ("because", EndCause.NODE_LOST)
        assert (described.metadata, described.cfg) == ({"torchx/tag.lr": "1"}, {"k": 1})


def test_a_stall_is_the_reason_until_the_end() -> None:
    for text, message in (("because", "because"), ("", "no output")):
        whole = Whole(Phase.RUNNING, reason=Reason(text))
        running = dataclasses.replace(seen(AppState.RUNNING), whole=whole, stall="no output")
        described = describe(running)
        assert (described.msg, described.cause) == (message, EndCause.STALLED)
        over = describe(dataclasses.replace(running, whole=Whole.of(AppState.FAILED, Reason(text))))
        assert (over.msg, over.cause) == (text, None)


def ended(number: int, at: float | None, **facts: Any) -> Replica:
    attempt = AttemptStatus(1, AppState.FAILED, 1, ended_at=at and local_time(at), **facts)
    return Replica("w", number, [attempt], AppState.FAILED)


def test_no_consequence_is_the_first_failure() -> None:
    late, early, lost = ended(0, 2.0), ended(1, 1.0), ended(2, 0.5, cause=EndCause.NODE_LOST)
    refused, running = ended(3, 3.0, refused=True), Replica("w", 4, [RUNNING], AppState.RUNNING)
    cases: list[tuple[list[Replica], int | None]] = [
        ([], None),
        ([running, Replica("w", 5, [], AppState.FAILED)], None),
        ([late, early, running], 1),
        ([late, refused], 3),
        ([late, early, lost], 2),
        ([ended(6, None), early], 6),
    ]
    for replicas, number in cases:
        first = first_failure(replicas)
        assert (first and first.replica) == number
    first = first_failure([late, early, lost], [EndCause.NODE_LOST])
    assert first is not None
    assert (first.role, first.replica, first.attempt, first.exit_code) == ("w", 1, 1, 1)


def test_a_failed_replica_without_an_attempt_was_removed() -> None:
    assert failure_in(Replica("w", 1)) == FirstFailure("w", 1, 1, msg=REMOVED, cause=EndCause.REMOVED)


@pytest.mark.parametrize(
    ("code", "msg", "reason"),
    [
        (0, "", Reason(ENDED_WHILE_NEEDED, EndCause.SERVICE_ENDED)),
        (1, "", Reason(ENDED_WHILE_NEEDED)),
        (0, "killed", Reason("killed", EndCause.SERVICE_ENDED)),
    ],
)
def test_a_needed_service_that_ends_has_failed(code: int, msg: str, reason: Reason) -> None:
    failed = while_needed(AttemptStatus(1, AppState.SUCCEEDED, code, msg=msg))
    assert (failed.state, Reason(failed.msg, failed.cause)) == (AppState.FAILED, reason)


def test_only_a_failed_replica_has_an_error_file(tmp_path: Path) -> None:
    for name in ("0", "1", "2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "error.json").write_text(f'"{name}"')
    replicas = [Replica("w", 0, [RUNNING]), Replica("w", 1, [FAILED]), Replica("w", 2, [FAILED])]
    first = FirstFailure("w", 2, 2, 3)
    described = describe(
        seen(AppState.FAILED, *replicas, first=first), lambda role, replica: tmp_path / str(replica)
    )
    assert [replica.structured_error_msg for replica in described.replicas] == [NONE, '"1"', '"2"']
    assert (described.structured_error_msg, described.first_failure) == ('"2"', first)
    assert describe(seen(AppState.FAILED, *replicas, first=first)).structured_error_msg == NONE


def test_success_needs_each_required_replica() -> None:
    good, service = AttemptStatus(1, AppState.SUCCEEDED, 0), Replica("s", 0, [FAILED], ready=False)
    assert describe(seen(AppState.SUCCEEDED, Replica("w", 0, [good]), service)).state is AppState.SUCCEEDED
    assert describe(seen(AppState.SUCCEEDED, Replica("w", 0, [good], AppState.RUNNING))).state is (
        AppState.UNKNOWN
    )


def test_an_observation_cannot_be_changed() -> None:
    observation = seen(AppState.RUNNING, Replica("w", 0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        observation.run = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        observation.replicas[0].host = "n"  # type: ignore[misc]
