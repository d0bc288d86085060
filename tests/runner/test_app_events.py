"""The events of applications: of local jobs from their record, of other engines from their descriptions."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import local
import pytest
from local import sh, submit
from support import wait_until

from torchx.errors import StateError
from torchx.jobs.paths import Home, state_home
from torchx.jobs.view import load
from torchx.printable import memory_size
from torchx.runner import Runner, get_runner, reports
from torchx.runner.changes import changes
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.scheduling.events import AppEvent
from torchx.scheduling.pace import Answers
from torchx.specs.app import AppDef
from torchx.specs.handles import UnknownAppException
from torchx.specs.status import AppState, AttemptStatus, FirstFailure, ReplicaStatus, RoleStatus

T0 = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def runner() -> Runner:
    return get_runner("torchx")


def handle_of(app_id: str) -> str:
    return f"local_cwd://torchx/{app_id}"


def kinds(events: list[AppEvent]) -> list[str]:
    return [event.kind if event.replica is None else f"{event.kind} {event.replica}" for event in events]


def test_a_retried_job_reports_each_attempt_and_its_readiness(runner: Runner) -> None:
    app_id = submit(sh('test "$TORCHX_ATTEMPT" = 2 || exit 3', retries=1))
    local.ended(app_id)
    events = list(runner.events(handle_of(app_id)))
    expected = "submitted|started 0|ready|ended 0|retry 0|started 0|ready|ended 0|ended"
    assert kinds(events) == expected.split("|")
    assert {event.app_handle for event in events} == {handle_of(app_id)}
    assert [event.time for event in events] == sorted(event.time for event in events)
    failed, retry, second, end = (events[n] for n in (3, 4, 5, 8))
    assert (failed.message, failed.details["exit_code"]) == ("exit 3", 3)
    assert retry.details == {"scope": "application", "number": 1, "allowed": 1, "delay": 0.01}
    assert second.attempt == 2
    assert end.is_last
    assert (end.message, end.details) == ("SUCCEEDED", {"state": "SUCCEEDED", "exit_code": 0})


def test_the_measured_peak_is_that_of_the_usage(runner: Runner) -> None:
    """A process counts as large as the supervisor before it begins its program: that is not measured."""
    app_id = submit(sh("true"), sh(f"{sys.executable} -c 'bytearray(90 << 20)'", name="v"))
    local.ended(app_id)
    usage = runner.usage(handle_of(app_id))
    assert usage is not None
    small, large = (replica.total.memory for replica in usage.replicas)
    assert small is None or small < 90 << 20
    assert large is not None
    events = list(runner.events(handle_of(app_id)))
    ended = {event.role: event.details.get("memory") for event in events if kinds([event]) == ["ended 0"]}
    assert ended == {"w": small, "v": large}
    (measured,) = (event for event in events if event.kind == "measured")
    assert (measured.role, measured.details) == ("v", {"memory": large})
    assert measured.message == f"peak memory {memory_size(large)}"


def test_following_yields_events_as_they_happen(runner: Runner) -> None:
    app_id = submit(sh("sleep 600", replicas=2))
    events = runner.events(handle_of(app_id), follow=True)
    first = [next(events) for _ in range(4)]
    assert kinds(first)[0] == "submitted"
    assert sorted(kinds(first)[1:3]) == ["started 0", "started 1"]
    assert kinds(first)[3] == "ready"
    runner.cancel(handle_of(app_id))
    rest = list(events)
    assert kinds(rest)[0] == "cancelled"
    assert rest[-1].details == {"state": "CANCELLED"}


def test_end_of_job_whose_supervisor_was_killed_is_followed(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "RECONCILE_INTERVAL", 0.01)
    app_id = submit(sh("sleep 600"))
    paths = Home(state_home()).job(app_id)
    events = runner.events(handle_of(app_id), follow=True)
    assert [next(events).kind for _ in range(3)] == ["submitted", "started", "ready"]
    view = load(paths)
    assert view.guard is not None
    assert view.supervisor is not None
    for process in (view.guard, view.supervisor):
        os.kill(process.pid, signal.SIGKILL)
    rest = list(events)
    assert kinds(rest)[-1] == "ended"
    assert rest[-1].details["state"] == "FAILED"


def test_time_range_and_number_of_events(runner: Runner) -> None:
    app_id = submit(sh("true"))
    local.ended(app_id)
    handle = handle_of(app_id)
    events = list(runner.events(handle))
    second = events[1].time
    assert list(runner.events(handle, tail=2)) == events[-2:]
    assert list(runner.events(handle, tail=0)) == []
    assert list(runner.events(handle, since=second)) == events[1:]
    assert list(runner.events(handle, until=second)) == events[:1]


def test_all_applications_are_merged_by_time(runner: Runner) -> None:
    ids = [submit(sh("true"), name=name) for name in ("one", "two", "three")]
    for app_id in ids:
        local.ended(app_id)
    events = list(runner.events())
    assert {event.app_handle for event in events} == {handle_of(app_id) for app_id in ids}
    assert [event.time for event in events] == sorted(event.time for event in events)
    assert list(runner.events(tail=3)) == events[-3:]
    assert list(runner.events(tail=9)) == events[-9:]


def test_following_all_applications_finds_new_ones(runner: Runner) -> None:
    first = submit(sh("true"))
    local.ended(first)
    events = runner.events(follow=True, tail=1)
    assert next(events).app_handle == handle_of(first)
    new = submit(sh("true"))
    seen = [next(events)]
    while not seen[-1].is_last:
        seen.append(next(events))
    events.close()  # type: ignore[attr-defined]
    assert kinds(seen)[0] == "submitted"
    assert {event.app_handle for event in seen} == {handle_of(new)}


def test_a_removed_job_ends_its_events(runner: Runner) -> None:
    app_id = submit(sh("sleep 600"))
    events = runner.events(handle_of(app_id), follow=True)
    assert next(events).kind == "submitted"
    seen: list[AppEvent] = []
    reader = threading.Thread(target=lambda: seen.extend(events), daemon=True)
    reader.start()
    runner.delete(handle_of(app_id))
    reader.join(60)
    assert not reader.is_alive()


def test_an_unknown_application_is_an_error(runner: Runner) -> None:
    with pytest.raises(UnknownAppException):
        runner.events("local_cwd://torchx/nosuchjob")
    with pytest.raises(StateError):
        local.scheduler().app_events("nosuchjob")


def test_recorded_stall_is_event_and_damaged_lines_are_not(runner: Runner) -> None:
    app_id = submit(sh("true"))
    local.ended(app_id)
    path = Home(state_home()).job(app_id).events
    lines = path.read_text().splitlines()
    at = json.loads(lines[-1])["t"]
    extra = [
        {"t": at, "e": "stalled", "rs": [0], "msg": "no output for 10 min"},
        {"t": at, "e": "stalled", "rs": [7], "msg": "no such replica"},
        {"t": at, "e": "stalled", "msg": 3},
        {"t": at, "e": "retry", "scope": 1, "r": 0},
        {"t": "late", "e": "cancel"},
    ]
    path.write_text("\n".join([*lines[:-1], *map(json.dumps, extra), "{", lines[-1], ""]))
    events = list(runner.events(handle_of(app_id)))
    stalled = [event for event in events if event.kind == "stalled"]
    assert [(e.role, e.replica, e.message) for e in stalled] == [("w", 0, "no output for 10 min")]
    assert not [event for event in events if event.kind in ("retry", "cancelled")]
    assert events[-1].is_last


# --- engines without an event log ----------------------------------------------------------------


def attempt(
    number: int, state: AppState, started: int | None, ended: int | None, **more: object
) -> AttemptStatus:
    begin, end = (None if at is None else T0 + timedelta(seconds=at) for at in (started, ended))
    return AttemptStatus(number, state, started_at=begin, ended_at=end, **more)  # type: ignore[arg-type]


def description(state: AppState, *attempts: AttemptStatus, **more: object) -> DescribeAppResponse:
    current = attempts[-1].state if attempts else state
    replica = ReplicaStatus(0, current, "r", "node", attempts=list(attempts), max_attempts=3)
    return DescribeAppResponse(
        "app-1",
        state,
        name="app",
        submitted_at=T0,
        roles_statuses=[RoleStatus("r", [replica])],
        **more,  # type: ignore[arg-type]
    )


def test_recorded_times_make_the_events_of_an_ended_application() -> None:
    described = description(
        AppState.FAILED,
        attempt(1, AppState.FAILED, 10, 20, exit_code=3),
        attempt(2, AppState.FAILED, 30, 40, signal="SIGKILL", msg="out of memory"),
        ended_at=T0 + timedelta(seconds=41),
        first_failure=FirstFailure("r", 0, 2, None, "SIGKILL"),
    )
    events = [event for event in changes(lambda: described) if event is not None]
    expected = [
        ("submitted", 0), ("started 0", 10), ("ready", 10), ("ended 0", 20), ("retry 0", 20),
        ("started 0", 30), ("ready", 30), ("ended 0", 40), ("ended", 41),
    ]  # fmt: skip
    assert [(kind, (e.time - T0).seconds) for kind, e in zip(kinds(events), events, strict=True)] == expected
    assert events[4].message == "attempt 2 of 3"
    assert events[7].message == "SIGKILL; out of memory"
    assert events[8].details == {"state": "FAILED", "exit_code": 137}
    assert not any("time" in event.details for event in events)


def test_a_requeue_is_neither_a_retry_nor_an_attempt() -> None:
    noticed = T0 + timedelta(seconds=18)
    described = description(
        AppState.SUCCEEDED,
        attempt(1, AppState.FAILED, 10, 20, run=1, noticed_at=noticed),
        attempt(2, AppState.FAILED, 30, 40, run=2, exit_code=3),
        attempt(3, AppState.SUCCEEDED, 50, 60, run=2, exit_code=0),
        ended_at=T0 + timedelta(seconds=61),
        cfg={"time_limit": "1h", "requeue_on": "time-limit:4"},
    )
    events = [event for event in changes(lambda: described) if event is not None]
    of_runs = [event for event in events if event.kind in ("notice", "requeued", "retry")]
    assert [(event.kind, (event.time - T0).seconds) for event in of_runs] == [
        ("notice", 18), ("requeued", 20), ("retry", 40)
    ]  # fmt: skip
    assert of_runs[1].message == "run 2 begins after the time limit"
    assert of_runs[1].details == {"number": 1, "run": 2, "allowed": 4}
    assert of_runs[2].message == "attempt 3 of 4"
    assert of_runs[2].details == {"scope": "replica", "number": 1, "allowed": 2}


def test_changes_between_two_descriptions_have_time_of_their_observation() -> None:
    before = datetime.now(timezone.utc)
    stages = [
        description(AppState.PENDING, msg="Resources"),
        description(AppState.PENDING, msg="Priority"),
        description(AppState.RUNNING),
        description(AppState.RUNNING),
        description(AppState.CANCELLED),
    ]
    events = [event for event in changes(lambda: stages.pop(0)) if event is not None]
    assert kinds(events) == [
        "submitted", "waiting", "waiting", "started 0", "ready", "ended 0", "cancelled", "ended"
    ]  # fmt: skip
    assert [event.message for event in events[1:3]] == ["Resources", "Priority"]
    assert (events[1].time, events[1].details["time"]) == (T0, "unknown")
    for event in (*events[2:4], *events[5:]):
        assert event.details["time"] == "observed", event
        assert event.time >= before
    assert not stages


def test_an_application_is_ready_when_its_services_are() -> None:
    def stage(state: AppState, ready: int) -> DescribeAppResponse:
        described = description(state)
        described.roles_statuses[0].ready = ready
        return described

    stages = [stage(AppState.RUNNING, 0), stage(AppState.RUNNING, 0), stage(AppState.RUNNING, 1)]
    events = changes(lambda: stages.pop(0) if stages else None)
    seen = [None if event is None else event.kind for event in events]
    assert seen == ["submitted", "started", None, None, "ready", None]


def test_readiness_of_services_is_reported_with_its_recorded_time() -> None:
    at = T0 + timedelta(seconds=15)
    served = attempt(1, AppState.CANCELLED, 10, 30, msg="no longer needed", ready_at=at)
    trained = attempt(1, AppState.SUCCEEDED, 16, 29, exit_code=0)
    described = description(AppState.RUNNING, served)
    server = described.roles_statuses[0]
    server.ready, server.replicas[0].required = 0, False
    trainer = ReplicaStatus(0, AppState.SUCCEEDED, "trainer", "node", attempts=[trained])
    roles = [server, RoleStatus("trainer", [trainer])]
    end = T0 + timedelta(seconds=30)
    described = replace(described, state=AppState.SUCCEEDED, roles_statuses=roles, ended_at=end)
    events = [event for event in changes(lambda: described) if event is not None]
    assert [(e.kind, e.role, (e.time - T0).seconds) for e in events] == [
        ("submitted", "", 0), ("started", "r", 10), ("ready", "r", 15), ("started", "trainer", 16),
        ("ready", "", 16), ("ended", "trainer", 29), ("ended", "r", 30), ("ended", "", 30),
    ]  # fmt: skip
    assert events[2].attempt == 1


def test_an_application_that_disappears_ends_its_events() -> None:
    stages = [description(AppState.RUNNING), None]
    assert kinds([e for e in changes(lambda: stages.pop(0)) if e is not None]) == [
        "submitted", "started 0", "ready"
    ]  # fmt: skip


def test_a_runner_derives_the_events_of_any_scheduler() -> None:
    from memory_scheduler import MemoryScheduler

    class Engine(MemoryScheduler):
        on_this_machine = True

        def list(self, cfg: object = None) -> list[ListAppResponse]:  # type: ignore[override]
            return list(super().list())

    runner = Runner("torchx", {"memory": Engine})
    handle = runner.run(AppDef("a", [sh("true")]), "memory")
    engine = runner.scheduler("memory")
    assert isinstance(engine, Engine)
    events = runner.events(handle, follow=True)
    assert [next(events).kind for _ in range(3)] == ["submitted", "started", "ready"]
    wait_until(lambda: engine.jobs, "the job")
    next(iter(engine.jobs.values())).end(AppState.SUCCEEDED)
    assert kinds(list(events)) == ["ended 0", "ended"]
    assert [event.app_handle for event in runner.events(scheduler="memory", tail=1)] == [handle]
    assert list(runner.events()) == []  # its listing is not declared as cheap


def test_the_last_reading_takes_no_shared_answer() -> None:
    states = iter([AppState.RUNNING, AppState.FAILED])
    answers = Answers(lambda keys: dict.fromkeys(keys, DescribeAppResponse("a", next(states))))

    class Source:
        def scheduler_of(self, handle: str) -> object:
            return SimpleNamespace(is_nearby=lambda app_id: False, records_attempts=False)

        def description(self, handle: str, *, brief: bool = False) -> DescribeAppResponse | None:
            return answers.about("a")

    source: Any = Source()
    feed = reports.Feed(source, "x://s/a")
    feed.read()
    assert [event.kind for event in feed.read(now=True)] == ["ended"]
