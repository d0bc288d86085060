"""Records of local jobs that are old, damaged or half-written, and clocks that jump."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from local import (
    describe,
    ended,
    kill_supervision,
    paths,
    replicas,
    run,
    running,
    scheduler,
    sh,
    submit,
    text,
)

from torchx.errors import StateError
from torchx.jobs.events import Clock, EventLog, read_events
from torchx.jobs.view import load
from torchx.specs.app import RetryPolicy
from torchx.specs.status import AppState

OLD = "mnist-crw77cll83q6g3"


@pytest.fixture
def old_job(resources: Path) -> str:
    """A job as the first version of this program has left it; its files are kept for ever."""
    folder = paths(OLD).folder
    folder.parent.mkdir(parents=True)
    shutil.copytree(resources / "job-of-schema-1", folder)
    return OLD


def test_a_job_of_the_first_schema_is_reported(old_job: str) -> None:
    described = describe(old_job)
    assert (described.state, described.name, described.num_restarts) == (AppState.FAILED, "mnist", 1)
    assert described.first_failure is not None
    assert (described.first_failure.role, described.first_failure.replica) == ("trainer", 1)
    assert (described.first_failure.attempt, described.first_failure.exit_code) == (2, 3)
    assert [[a.exit_code or a.signal for a in r.attempts] for r in replicas(described)] == [
        ["SIGTERM", "SIGTERM"],
        [3, 3],
        ["SIGTERM"],
    ]
    trainer, server = described.roles
    assert (trainer.num_replicas, trainer.max_retries, trainer.retry_policy) == (2, 1, RetryPolicy.ROLE)
    assert (trainer.env, trainer.metadata, server.port_map) == ({"LR": "0.1"}, {"k": "v"}, {"http": 8080})
    assert described.submitted_at is not None
    assert described.submitted_at.timestamp() == 1795232127.22177


def test_job_of_first_schema_is_listed_and_deleted(old_job: str) -> None:
    (line,) = scheduler().list()
    assert (line.app_id, line.state, line.exit_code) == (old_job, AppState.FAILED, 3)
    assert text(old_job) == ""
    scheduler().delete(old_job)
    assert list(scheduler().list()) == []


def test_what_a_later_version_adds_is_left_out(old_job: str) -> None:
    record = paths(old_job).record
    data = json.loads(record.read_text())
    data["colour"] = "blue"
    data["roles"][0]["colour"] = "red"
    data["roles"][0]["replicas"][0]["colour"] = "green"
    record.write_text(json.dumps(data))
    with paths(old_job).events.open("a") as file:
        file.write('{"t":1,"e":"painted","r":0}\n')
    assert describe(old_job).state is AppState.FAILED


def test_events_cut_off_at_any_byte_are_no_obstacle(old_job: str) -> None:
    events = paths(old_job).events
    data = events.read_bytes()
    whole = load(paths(old_job))
    for size in range(len(data) + 1):
        events.write_bytes(data[:size])
        view = load(paths(old_job))
        assert view.has_ended == (size >= len(data) - 1)
        assert view.restarts <= whole.restarts
        assert all(len(r.attempts) <= 2 for r in view.replicas)


@pytest.mark.parametrize("cut", [1, 20, 90, 400, 1100])
def test_job_whose_last_events_were_lost_is_ended_once(old_job: str, cut: int) -> None:
    events = paths(old_job).events
    events.write_bytes(events.read_bytes()[:-cut])
    presumed = describe(old_job)
    whole = cut == 1  # only the line end is missing
    assert (presumed.state, presumed.needs_reconcile) == (AppState.FAILED, not whole)
    assert [event["e"] for event in read_events(events)].count("end") == whole
    scheduler().reconcile(old_job)
    scheduler().reconcile(old_job)
    recorded = describe(old_job)
    assert replace(presumed, ended_at=None, needs_reconcile=False, roles_statuses=[]) == replace(
        recorded, ended_at=None, roles_statuses=[]
    )
    assert recorded == describe(old_job)
    assert [event["e"] for event in read_events(events)].count("end") == 1


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"schema":1}', '{"schema":"1"}', '"x"', "\xff"])
def test_a_damaged_record_is_reported_in_one_line(old_job: str, damage: str) -> None:
    paths(old_job).record.write_text(damage, encoding="latin-1")
    with pytest.raises(StateError, match="is damaged") as caught:
        describe(old_job)
    assert "\n" not in caught.value.message
    assert f"rm -r {paths(old_job).folder}" in str(caught.value.hint)
    (line,) = scheduler().list()
    assert line.state is AppState.UNKNOWN
    assert "is damaged" in line.msg


@pytest.mark.parametrize(
    ("name", "value"),
    [("app_id", 5), ("log_dir", None), ("submitted_at", "now"), ("roles", {}), ("roles", [5]), ("name", [])],
)
def test_a_record_with_a_wrong_type_is_damaged(old_job: str, name: str, value: object) -> None:
    record = paths(old_job).record
    record.write_text(json.dumps({**json.loads(record.read_text()), name: value}))
    with pytest.raises(StateError, match="is damaged"):
        describe(old_job)


@pytest.mark.parametrize(
    "line",
    [
        '{"t":1,"e":"end","state":"FAILED","first":[99,1]}',
        '{"t":1,"e":5}',
        '{"e":"end"}',
        '{"t":1,"e":"exit"}',
    ],
)
def test_an_event_with_wrong_values_changes_nothing(old_job: str, line: str) -> None:
    before = describe(old_job)
    with paths(old_job).events.open("a") as file:
        file.write(line + "\n")
    assert describe(old_job) == before


def test_an_event_after_a_half_written_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_text('{"t":1,"e":"start"}\n{"t":2,"e":"ex')
    log = EventLog(path, Clock())
    log.add("end", state="FAILED")
    log.close()
    assert [event["e"] for event in read_events(path)] == ["start", "end"]


def test_clock_runs_evenly_whatever_is_done_to_machines_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    before = clock.now()
    real = time.time_ns
    for jump in (-86400, 86400):
        monkeypatch.setattr(time, "time_ns", lambda jump=jump: real() + int(jump * 1e9))
        assert 0 <= clock.now() - before < 60
    assert abs(clock.now() - real() / 1e9) < 60


def test_clock_that_was_put_back_gives_no_negative_durations() -> None:
    app_id = submit(sh("exec sleep 600"))
    (replica,) = replicas(running(app_id))
    kill_supervision(app_id)
    assert replica.pid
    os.kill(replica.pid, signal.SIGKILL)
    events, record = paths(app_id).events, paths(app_id).record
    tomorrow = time.time() + 86400  # when it was started, as that clock had it
    lines = [{**event, "t": tomorrow} for event in read_events(events)]
    events.write_text("".join(json.dumps(line) + "\n" for line in lines))
    record.write_text(json.dumps({**json.loads(record.read_text()), "submitted_at": tomorrow}))
    described = describe(app_id)
    assert described.state is AppState.FAILED
    assert described.submitted_at and described.started_at and described.ended_at
    assert described.submitted_at <= described.started_at <= described.ended_at
    (attempt,) = replicas(described)[0].attempts
    assert attempt.started_at and attempt.ended_at
    assert attempt.started_at <= attempt.ended_at


@pytest.mark.parametrize("step", [-3600, 3600])
def test_duration_of_an_orphaned_job_follows_no_clock(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    app_id = submit(sh("exec sleep 600"))
    (replica,) = replicas(running(app_id))
    kill_supervision(app_id)
    assert replica.pid
    os.kill(replica.pid, signal.SIGKILL)
    seconds, nanoseconds = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: seconds() + step)
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + step * 10**9)
    presumed = scheduler().glance(app_id)
    for found in (presumed, ended(app_id)):
        assert found is not None and found.state is AppState.FAILED
        assert found.started_at and found.ended_at
        assert 0 <= (found.ended_at - found.started_at).total_seconds() < 600


def test_job_submitted_by_clock_that_was_put_back_since(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fast:
        """As if the clock had been an hour ahead when the job was submitted."""

        @staticmethod
        def now() -> object:
            from datetime import datetime, timedelta

            return datetime.now() + timedelta(hours=1)

    monkeypatch.setattr("torchx.schedulers.local.submit.datetime", Fast)
    done = ended(submit(sh("true")))
    assert done.submitted_at and done.started_at and done.ended_at
    assert done.submitted_at <= done.started_at <= done.ended_at


def test_a_damaged_list_of_ended_jobs_is_mended() -> None:
    from torchx.jobs.paths import Home

    app_id = run(sh("exit 3")).app_id
    home = Home(paths(app_id).folder.parent.parent)
    line = home.ended.read_text()
    for damaged in (line.replace("FAILED", "NO_STATE"), line[: len(line) // 2], line.replace(":3,", ':"x",')):
        home.ended.write_text(damaged)
        (result,) = scheduler().list()
        assert result.app_id == app_id
