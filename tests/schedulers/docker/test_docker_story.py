"""What follows from containers alone: states, failures, retries; needs no engine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.address import parse_address
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.lookup import with_late_oom
from torchx.schedulers.docker.marks import CANCELLED, EXPIRED, FAILED, STOPPED
from torchx.schedulers.docker.replay import NOT_STARTED, Progress, replay
from torchx.schedulers.docker.rules.job import job_of
from torchx.schedulers.docker.status import describe
from torchx.scheduling.causes import classify
from torchx.scheduling.observation import INTERRUPTED
from torchx.specs.app import AppDef, RetryPolicy, Role
from torchx.specs.serialize import app_to_dict
from torchx.specs.status import AppState, EndCause
from torchx.supervisor.policy import REQUEUED, Start


def job(
    retries: int = 0, policy: str = "APPLICATION", fail_fast: bool = True, replicas: int = 2
) -> dict[str, Any]:
    role = Role("w", "img", num_replicas=replicas, max_retries=retries, retry_policy=RetryPolicy(policy))
    cfg = {"fail_fast": fail_fast, "retry_backoff": 2.0, "grace_period": 5.0}
    return {"app": app_to_dict(AppDef("job", [role])), "cfg": cfg, "submitted_at": 1000.0}


def container(replica: int, data: dict[str, Any], **facts: Any) -> Container:
    facts = {"status": "running", "created": 1000.0, "started": 1001.0, "exit_code": None, **facts}
    if facts["exit_code"] is not None:
        facts = {"finished": 1010.0, **facts, "status": "exited"}
    name = f"app-w-{replica}"
    return Container(
        f"{name}.{facts.get('attempt', 1)}",
        name,
        facts.pop("mark", ""),
        "app",
        "w",
        replica,
        job=data,
        **facts,
    )


def story(*containers: Container) -> Progress:
    return replay(job_of(containers), containers)


def state(*containers: Container, now: float = 1002.0) -> AppState:
    return describe(containers, now).state


def test_states_follow_from_the_replicas() -> None:
    data = job()
    new = [container(n, data, status="created", started=None) for n in (0, 1)]
    assert state(*new) is AppState.PENDING
    assert (state(*new, now=5000), describe(new, 5000).msg) == (AppState.FAILED, INTERRUPTED)
    assert state(new[0], container(1, data)) is AppState.RUNNING
    good = container(0, data, exit_code=0)
    assert state(good, container(1, data)) is AppState.RUNNING
    assert state(good, container(1, data, exit_code=0)) is AppState.SUCCEEDED
    assert state(good, container(1, data, exit_code=3)) is AppState.FAILED
    assert state(good, container(1, data, exit_code=143, mark=CANCELLED)) is AppState.CANCELLED


def test_the_first_failure_is_the_earliest() -> None:
    data = job()
    answer = describe(
        [container(0, data, exit_code=9, finished=20.0), container(1, data, exit_code=137, finished=19.0)]
    )
    assert answer.first_failure is not None
    assert (answer.first_failure.replica, answer.first_failure.signal) == (1, "SIGKILL")


def test_one_failure_ends_the_others() -> None:
    data = job()
    failed = container(0, data, exit_code=1)
    assert story(failed, container(1, data)).stops == {1: "w/0 failed"}
    assert story(failed, container(1, data, exit_code=143, mark=STOPPED)).end is not None
    patient = job(fail_fast=False)
    assert story(container(0, patient, exit_code=1), container(1, patient)).stops == {}


def test_a_retry_waits_for_all_and_counts_itself() -> None:
    data = job(retries=2)
    failed = container(0, data, exit_code=1)
    assert story(failed, container(1, data)).stops == {1: "w/0 failed; application restarts"}
    waiting = story(failed, container(1, data, exit_code=143, mark=STOPPED))
    assert waiting.starts == [Start((0, 1), 2.0)]
    assert (waiting.retries, waiting.end) == ({"application": 1}, None)
    retry = {"used": {"application": 1}, "attempts": [2, 2]}
    old = [failed, container(1, data, exit_code=143, mark=STOPPED)]
    # in the middle of the next start: the other one is still to be made
    half = story(*old, container(0, data, attempt=2, retry=retry))
    assert (half.starts, half.end) == ([Start((1,))], None)
    again = [container(n, data, attempt=2, retry=retry, exit_code=1) for n in (0, 1)]
    assert story(*old, *again).starts == [Start((0, 1), 4.0)]
    retry = {"used": {"application": 2}, "attempts": [3, 3]}
    last = [container(n, data, attempt=3, retry=retry, exit_code=1) for n in (0, 1)]
    answer = describe([*old, *again, *last])
    assert (answer.state, answer.num_restarts) == (AppState.FAILED, 2)
    assert answer.first_failure is not None
    assert answer.first_failure.attempt == 3


def test_retry_of_one_does_not_count_waiting_ones() -> None:
    data = job(retries=1, policy="REPLICA")
    failed = [container(n, data, exit_code=1, finished=1010.0 + n) for n in (0, 1)]
    both = story(*failed)
    assert both.starts == [Start((0,), 2.0), Start((1,), 2.0)]
    assert both.retries_with([0]) == {0: 1}
    # the label of the first retry, as JSON has it
    retry = {"used": {"0": 1}, "attempts": [2, 1]}
    first = story(*failed, container(0, data, attempt=2, retry=retry))
    assert (first.starts, first.end) == ([Start((1,), 2.0)], None)
    assert first.retries_with([1]) == {0: 1, 1: 1}
    last = story(*failed, container(0, data, attempt=2, retry=retry, exit_code=1))
    assert last.gang.first_failure == 0


def test_retry_of_a_role_is_counted_when_carried_out() -> None:
    roles = [Role(name, "img", max_retries=1, retry_policy=RetryPolicy.ROLE) for name in ("a", "w")]
    data = {**job(), "app": app_to_dict(AppDef("job", roles))}
    failed = [replace(container(0, data, exit_code=1), role="a"), container(0, data, exit_code=1)]
    assert story(*failed).retries_with([0]) == {"role a": 1}
    retry = {"used": {"role a": 1}, "attempts": [2, 1]}
    again = story(*failed, replace(container(0, data, attempt=2, retry=retry), role="a"))
    assert (again.starts, again.end) == ([Start((1,), 2.0)], None)


def test_without_fail_fast_restart_leaves_final_failure_alone() -> None:
    roles = [Role("a", "img"), Role("w", "img", max_retries=2)]
    data = {**job(fail_fast=False), "app": app_to_dict(AppDef("job", roles))}
    failed = replace(container(0, data, exit_code=7), role="a")
    other = container(0, data, exit_code=1, finished=1011.0)
    assert story(failed, other).starts == [Start((1,), 2.0)]
    retry = {"used": {"application": 1}, "attempts": [1, 2]}
    again = story(failed, other, container(0, data, attempt=2, retry=retry))
    assert (again.starts, again.end) == ([], None)
    answer = describe([failed, other, container(0, data, attempt=2, retry=retry, exit_code=0)])
    assert answer.state is AppState.FAILED
    assert answer.first_failure is not None
    assert (answer.first_failure.role, answer.first_failure.exit_code) == ("a", 7)


def test_what_has_no_container_left_is_not_started_again() -> None:
    data = job(retries=2)
    assert story(container(1, data)).stops == {1: "w/0 failed; application restarts"}
    left = [container(1, data, exit_code=143, mark=STOPPED)]
    assert (story(*left).starts, story(*left).lost) == ([], {0})
    assert (describe(left).state, describe(left).msg) == (AppState.FAILED, "the container of w/0 was removed")


def test_success_seen_before_removal_is_no_failure() -> None:
    data = job()
    left = [container(1, data)]
    assert story(*left).stops == {1: "w/0 failed"}
    assert state(*left) is AppState.RUNNING
    removed = container(0, data, exit_code=0, removed=True)
    answer = story(*left, removed)
    assert (answer.stops, answer.lost, answer.end) == ({}, set(), None)
    assert state(container(1, data, exit_code=0), removed) is AppState.SUCCEEDED


def test_a_removed_container_is_named_as_the_cause() -> None:
    answer = describe([container(1, job(), exit_code=143, mark=STOPPED)], 1002.0)
    assert classify(answer.state, answer.msg, answer.first_failure).name == "removed"


def test_what_succeeded_and_was_removed_cannot_start_again() -> None:
    data = job(retries=2)
    left = [container(1, data, exit_code=1)]
    removed = container(0, data, exit_code=0, removed=True)
    answer = story(*left, removed)
    assert (answer.starts, answer.lost, answer.end and answer.end.state) == ([], {0}, "FAILED")
    answered = describe([*left, removed])
    first = answered.first_failure
    assert first is not None
    assert (first.role, first.replica, first.exit_code, first.cause) == ("w", 1, 1, None)
    assert answered.msg == "not restarted: the container of w/0 was removed"
    retry = {"used": {"application": 1}, "attempts": [2, 2]}
    again = [container(1, data, attempt=2, retry=retry)]
    # it was the attempt before that had succeeded
    assert story(*again, removed).lost == {0}
    again = [container(1, data, attempt=2, retry=retry, exit_code=143, mark=STOPPED)]
    first = describe([*again, removed]).first_failure
    assert first is not None
    assert (first.replica, first.attempt, first.exit_code, first.cause) == (0, 2, None, EndCause.REMOVED)


def test_attempts_have_their_run_and_its_notice() -> None:
    data = job(replicas=1)
    data["cfg"] |= {"time_limit": "100s", "notice": "30s", "requeue_on": "time-limit:2"}
    ended = container(0, data, exit_code=143, mark=EXPIRED, ends_at=1100, finished=1101.0)
    retry = {"used": {REQUEUED: 1}, "attempts": [2]}
    again = container(0, data, attempt=2, retry=retry, ends_at=1300, exit_code=0)
    attempts = describe([ended, again]).roles_statuses[0].replicas[0].attempts
    assert [attempt.run for attempt in attempts] == [1, 2]
    noticed = [attempt.noticed_at and attempt.noticed_at.timestamp() for attempt in attempts]
    assert noticed == [1070.0, None]


def test_a_cancelled_job_starts_nothing_again() -> None:
    data = job(retries=5)
    answer = story(container(0, data, exit_code=1, mark=CANCELLED), container(1, data, exit_code=0))
    assert (answer.starts, answer.end and answer.end.state) == ([], "CANCELLED")


def test_a_container_created_after_the_cancellation_changes_nothing() -> None:
    data = job(retries=5, replicas=1)
    cancelled = container(0, data, exit_code=1, mark=CANCELLED)
    retry = {"used": {"application": 1}, "attempts": [2]}
    late = container(0, data, attempt=2, retry=retry, status="created", started=None, created=1011.0)
    assert state(cancelled) is state(cancelled, late) is AppState.CANCELLED


def test_a_failure_before_a_cancel_stays_one() -> None:
    data = job()
    assert (
        state(container(0, data, exit_code=4), container(1, data, exit_code=143, mark=CANCELLED))
        is AppState.FAILED
    )


def test_replica_that_may_still_be_started_holds_up_end() -> None:
    data = job()
    failed = container(0, data, exit_code=3)
    starting = container(1, data, status="created", started=None)
    assert (story(failed, starting).end, story(failed, starting).stops) == (None, {1: NOT_STARTED})
    assert state(failed, starting) is AppState.RUNNING
    assert state(failed, replace(starting, mark=STOPPED)) is AppState.FAILED


def test_retry_that_may_still_be_started_holds_up_end() -> None:
    data = job(retries=1)
    retry = {"used": {"application": 1}, "attempts": [2, 2]}
    failed = container(0, data, attempt=2, retry=retry, exit_code=3)
    created = container(1, data, attempt=2, retry=retry, status="created", started=None)
    assert story(failed, created).end is None
    # the other replica has only its first container
    assert state(failed, container(1, data, exit_code=143, mark=STOPPED)) is AppState.FAILED


def test_what_could_not_be_started_again_has_failed() -> None:
    data = job(retries=5)
    answer = describe([container(n, data, exit_code=1, mark=FAILED) for n in (0, 1)])
    assert answer.state is AppState.FAILED


@pytest.mark.parametrize("status", ["created", "removing"])
def test_a_retry_that_was_refused_once_has_not_failed(status: str) -> None:
    data = job(retries=1, replicas=1)
    retry = {"used": {"application": 1}, "attempts": [2]}
    first = container(0, data, exit_code=1)
    refused = container(0, data, attempt=2, status=status, started=None, error="port is taken", retry=retry)
    assert (story(first, refused).starts, story(first, refused).end) == ([Start((0,))], None)
    assert state(first, refused) is AppState.RUNNING
    assert state(first, replace(refused, mark=FAILED)) is AppState.FAILED


def test_containers_of_earlier_versions_are_the_engines_to_retry() -> None:
    data = job(retries=3, policy="REPLICA")
    by_engine = {"allowed_restarts": 3}
    first = container(0, data, status="restarting", restarts=1, **by_engine)
    assert state(first, container(1, data, **by_engine)) is AppState.RUNNING
    ended = container(0, data, exit_code=1, restarts=3, **by_engine)
    answer = describe([ended, container(1, data, exit_code=143, mark=STOPPED, **by_engine)])
    assert (answer.state, answer.num_restarts) == (AppState.FAILED, 3)
    assert answer.first_failure is not None
    assert answer.first_failure.attempt == 4


STATUSES = st.sampled_from(["created", "running", "exited", "gone"])
MARKS = st.sampled_from(["", CANCELLED, STOPPED, FAILED])


@given(
    st.lists(st.tuples(STATUSES, st.integers(0, 3), MARKS), min_size=3, max_size=3),
    st.integers(0, 2),
    st.sampled_from(["REPLICA", "ROLE", "APPLICATION"]),
    st.booleans(),
)
def test_every_set_of_containers_has_a_story(
    facts: list[tuple[str, int, str]], retries: int, policy: str, fail_fast: bool
) -> None:
    """Any finding is shown; an ended application has no next step, and every other one can end."""
    data = job(retries, policy, fail_fast, replicas=3)
    found = []
    for replica, (status, code, mark) in enumerate(facts):
        made = container(replica, data, mark=mark, **({"exit_code": code} if status == "exited" else {}))
        if status != "gone":
            found.append(replace(made, status=status, started=None if status == "created" else 1001.0))
    if not found:
        return
    answer = story(*found)
    describe(found)
    if answer.end is not None:
        assert not answer.starts
        assert not answer.stops
        assert all(c.status != "running" for c in found)
    else:
        assert answer.starts or any(c.status in ("running", "created") for c in found)


class Late(Engine):
    """An engine with events about containers that ran out of memory."""

    def __init__(self, *ids: str) -> None:
        super().__init__(parse_address("unix:///nowhere"))
        self.ids = ids
        self.asked: list[list[str]] = []

    def call(self, method: str, path: str, query: Any = None, body: Any = None, patience: Any = None) -> Any:
        assert (method, path) == ("GET", "/events")
        self.asked.append(query["filters"]["container"])
        answer = [{"status": "oom", "id": one, "Actor": {"ID": one}} for one in self.ids]
        # as the engine's answer is read: one event, or several as text, a line each
        return answer[0] if len(answer) == 1 else "\n".join(map(json.dumps, answer)) or None


@pytest.mark.parametrize("late", [(), (0,), (0, 1)])
def test_late_news_of_out_of_memory_is_reported(late: tuple[int, ...]) -> None:
    data = job(replicas=4)
    ended = [container(n, data, exit_code=137, memory=64 << 20) for n in (0, 1)]
    others = [
        container(2, data, exit_code=137),  # it had no limit
        container(3, data, exit_code=137, memory=64 << 20, mark=STOPPED),
    ]
    engine = Late(*(ended[n].id for n in late))
    answer = with_late_oom(engine, ended + others)
    assert engine.asked == [[c.id for c in ended]]
    assert [c.oom for c in answer] == [n in late for n in range(4)]
    assert with_late_oom(engine, others) == others
    assert len(engine.asked) == 1
    if late:
        first = describe(answer).first_failure
        assert first is not None
        assert first.msg == "out of memory: its limit is 64 MiB"
