"""The state of a job as its events give it, and what is kept of its end."""

from __future__ import annotations

import json

import pytest
from jobhome import job

from torchx.jobs import ended
from torchx.jobs.paths import Home, LogPaths
from torchx.jobs.record import JobRecord, ReplicaRecord, RoleRecord
from torchx.jobs.view import AttemptView, JobView, load

NO_PID = 4_000_000
"""A pid that no process has."""


def viewed(home: Home, *facts: dict[str, object]) -> JobView:
    """The state of a job of three replicas after some events."""
    paths, replica = home.job("job-1"), ReplicaRecord(["true"], {})
    roles = [RoleRecord("w", [replica, replica], {}), RoleRecord("x", [replica], {})]
    logs = str(home.logs / "torchx" / "job-1")
    paths.folder.mkdir(parents=True, exist_ok=True)
    JobRecord("job-1", "local_cwd", "torchx", "job", 5.5, logs, roles, {}, {}).save(paths.record)
    paths.events.write_text("".join(json.dumps(fact) + "\n" for fact in facts))
    return load(paths)


START: dict[str, object] = {"t": 10.0, "e": "start", "r": 0, "a": 1, "pid": NO_PID, "start": 7}


def test_the_view_of_a_job_that_runs(home: Home) -> None:
    view = viewed(
        home,
        {"t": 9.0, "e": "supervisor", "pid": NO_PID, "start": 3, "boot": "b", "guard": [NO_PID + 1, 2]},
        {"t": 9.5, "e": "starting", "r": 0, "a": 1},
        START,
        {**START, "t": 11.0, "r": 2},
        {"t": 12.0, "e": "not_started", "r": 1, "a": 1, "code": 127, "msg": "no"},
        {"t": 13.0, "e": "exit", "r": 0, "a": 1, "code": 3, "peak_kib": 100},
        {"t": 14.0, "e": "retry"},
        {"t": 15.0, "e": "starting", "r": 0, "a": 2},
    )
    assert (view.state, view.started_at, view.restarts, view.seen_at) == ("RUNNING", 10.0, 1, 15.0)
    assert view.supervisor == (NO_PID, 3)
    assert view.guard == (NO_PID + 1, 2)
    assert (view.boot_id, view.has_ended, view.exit_code, view.cancelling) == ("b", False, None, False)
    assert [replica.announced for replica in view.replicas] == [2, None, None]
    assert [replica.current for replica in view.replicas] == [1, 1, 1]
    assert [replica.attempts[0].state for replica in view.replicas] == ["FAILED", "FAILED", "RUNNING"]
    assert view.replicas[0].attempts[0].peak_kib == 100
    assert (view.replicas[1].attempts[0].exit_code, view.replicas[1].attempts[0].msg) == (127, "no")


def test_the_exit_code_of_a_job(home: Home) -> None:
    end = {"t": 20.0, "e": "end", "state": "FAILED", "first": [0, 2]}
    exit_1 = {"t": 13.0, "e": "exit", "r": 0, "a": 1, "code": 3}
    exit_2 = {"t": 15.0, "e": "exit", "r": 0, "a": 2, "signal": "SIGKILL"}
    second = {**START, "a": 2, "t": 14.0}
    assert viewed(home, START, exit_1, second, exit_2, end).exit_code == 128 + 9
    assert viewed(home, START, exit_1, second, exit_2, {**end, "first": [0, 1]}).exit_code == 3
    assert viewed(home, START, exit_1, {**end, "first": [0, 5]}).exit_code is None
    assert viewed(home, START, exit_1, {**end, "first": None}).exit_code is None
    assert viewed(home, START, exit_1, {**end, "state": "SUCCEEDED"}).exit_code == 0
    late = viewed(home, START, exit_1, end, {**START, "r": 1, "t": 30.0})
    assert (late.ended_at, late.replicas[1].attempts) == (20.0, [])
    assert viewed(home, {**end, "state": "NEW"}).state == "FAILED"


@pytest.mark.parametrize(
    "wrong",
    [
        {**START, "r": 3},
        {**START, "r": -1},
        {**START, "a": 0},
        {**START, "pid": 1},
        {**START, "pid": 1 << 23},
        {**START, "t": -1},
        {"t": 9.0, "e": "starting", "r": 0, "a": 0},
        {"t": 9.0, "e": "not_started", "r": 0, "a": 0, "code": 1, "msg": ""},
        {"t": 9.0, "e": "not_started", "r": 0, "a": 1, "code": "1", "msg": ""},
        {"t": 9.0, "e": "exit", "r": 0, "a": 1, "code": 1},
        {"t": 9.0, "e": "end", "state": "FAILED", "first": [3, 1]},
        {"t": 9.0, "e": "end", "state": "FAILED", "first": [-1, 1]},
        {"t": 9.0, "e": "supervisor", "pid": NO_PID, "start": 3, "boot": 5},
        {"t": 9.0, "e": "supervisor", "pid": NO_PID, "start": 3, "boot": "b", "guard": [1, 2]},
        {"t": 9.0, "e": "later"},
    ],
)
def test_a_wrong_event_changes_nothing(home: Home, wrong: dict[str, object]) -> None:
    assert viewed(home, wrong) == viewed(home)


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        ({"signal": "SIGKILL", "msg": "out of memory: the kernel counts a kill"}, "out_of_memory"),
        ({"signal": "SIGKILL", "msg": "9 bytes of output were lost: x", "cause": "stalled"}, "stalled"),
        ({"signal": "SIGKILL", "msg": "out of memory, but by another process", "cause": None}, None),
    ],
)
def test_records_without_causes_are_read_once(
    home: Home, event: dict[str, object], cause: str | None
) -> None:
    view = viewed(home, START, {"t": 12.0, "e": "exit", "r": 0, "a": 1, **event})
    assert view.replicas[0].attempts[0].cause == cause
    text = "trian: No such file or directory"
    view = viewed(home, {"t": 12.0, "e": "not_started", "r": 1, "a": 1, "code": 127, "msg": text})
    assert view.replicas[1].attempts[0].cause == "missing_program"


def test_the_states_of_an_attempt() -> None:
    running, stopped = AttemptView(1), AttemptView(1, ended_at=0.0, exit_code=0, stopped="cancelled")
    assert [running.state, stopped.state] == ["RUNNING", "CANCELLED"]
    assert AttemptView(1, ended_at=0.0, exit_code=0).state == "SUCCEEDED"
    assert AttemptView(1, ended_at=0.0, signal="SIGKILL").state == "FAILED"


# --- the list of ended jobs --------------------------------------------------------------------------


def test_the_line_of_an_ended_job(home: Home) -> None:
    job(home, "a-1")
    job(home, "b-1")
    lines = ended.lines(home)
    assert lines.keys() == {b"a-1", b"b-1"}
    parsed = ended.parse(lines[b"a-1"])
    assert parsed is not None
    assert parsed == ended.EndedJob.of(load(home.job("a-1")))
    assert ended.submitted_at(lines[b"a-1"]) == parsed.submitted_at > 0
    assert ended.submitted_at(lines[b"a-1"].replace(b'"submitted_at":', b'"submitted_at":-')) == 0.0
    assert ended.submitted_at(b"") == 0.0
    with home.ended.open("ab") as file:
        file.write(b'{"app_id":"c-1","half\n{"app_id":"a-1","name":"last"}\nx{"app_id":"d-1"}\n')
    assert ended.lines(home) == {**lines, b"a-1": b'{"app_id":"a-1","name":"last"}'}


def test_success_is_written_with_the_end_of_each_replica(home: Home) -> None:
    view = viewed(
        home,
        START,
        {"t": 13.0, "e": "exit", "r": 0, "a": 1, "signal": "SIGKILL"},
        {**START, "a": 2},
        {"t": 14.0, "e": "exit", "r": 0, "a": 2, "code": 3},
        {"t": 12.0, "e": "not_started", "r": 1, "a": 1, "code": 127, "msg": "no"},
        {"t": 20.0, "e": "end", "state": "FAILED", "first": [0, 2]},
    )
    logs = LogPaths(home.logs / "torchx" / "job-1")
    ended.write_success(view, logs)
    assert not logs.folder.exists(), "the logs were removed in the meantime"
    logs.folder.mkdir(parents=True)
    ended.write_success(view, logs)
    written = json.loads(logs.success.read_text())
    assert (written["app_id"], written["final_state"], list(written["roles"])) == (
        "job-1",
        "FAILED",
        ["w", "x"],
    )
    (first, second), (third,) = written["roles"]["w"], written["roles"]["x"]
    facts = ("replica_id", "pid", "exitcode", "signal", "attempts")
    assert [first[name] for name in facts] == [0, NO_PID, 3, None, 2]
    assert [second[name] for name in facts] == [1, None, 127, None, 1]
    assert [third[name] for name in facts] == [0, None, None, None, 0]
    assert first["stderr"] == str(logs.folder / "w" / "0" / "stderr.log")
