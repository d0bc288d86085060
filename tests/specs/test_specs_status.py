"""States, attempts, and the two forms of a status."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from torchx.errors import TorchxError
from torchx.specs import (
    AppState,
    AppStatus,
    AppStatusError,
    AttemptStatus,
    FirstFailure,
    ReplicaState,
    ReplicaStatus,
    RoleStatus,
    is_started,
    is_terminal,
)

NESTED = '{"message": {"message": "ValueError: boom", "errorCode": 3, "extraInfo": {"timestamp": "86400"}}}'
FLAT = '{"message": "ValueError: boom", "errorCode": 3, "timestamp": 86400}'
START = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _status(*replicas: ReplicaStatus) -> AppStatus:
    roles = list(dict.fromkeys(replica.role for replica in replicas))
    return AppStatus(
        AppState.FAILED, roles=[RoleStatus(role, [r for r in replicas if r.role == role]) for role in roles]
    )


def test_states_and_their_order() -> None:
    assert [(s.name, s.value) for s in AppState] == [
        ("UNSUBMITTED", 0),
        ("SUBMITTED", 1),
        ("PENDING", 2),
        ("RUNNING", 3),
        ("SUCCEEDED", 4),
        ("FAILED", 5),
        ("CANCELLED", 6),
        ("UNKNOWN", 7),
    ]
    assert ReplicaState is AppState
    assert {s.name for s in AppState if is_terminal(s)} == {"SUCCEEDED", "FAILED", "CANCELLED"}
    assert {s.name for s in AppState if is_started(s)} == {"RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"}
    assert (str(AppState.FAILED), f"{AppState.FAILED}", repr(AppState.FAILED)) == (
        "FAILED",
        "FAILED",
        "FAILED (5)",
    )


def test_only_success_raises_nothing() -> None:
    AppStatus(AppState.SUCCEEDED).raise_for_status()
    for state in set(AppState) - {AppState.SUCCEEDED}:
        status = AppStatus(state, msg="out of luck")
        with pytest.raises(AppStatusError, match=f"it is {state.name}: out of luck") as caught:
            status.raise_for_status()
        assert caught.value.status is status
        assert isinstance(caught.value, TorchxError)
        assert status.is_terminal() == is_terminal(state)


@pytest.mark.parametrize(("code", "signal", "how"), [(7, None, "exit 7"), (None, "SIGKILL", "SIGKILL")])
def test_the_error_names_the_first_failure(code: int | None, signal: str | None, how: str) -> None:
    first = FirstFailure("trainer", 1, 1, code, signal)
    error = AppStatusError(AppStatus(AppState.FAILED, first_failure=first))
    assert error.message == f"the application did not succeed, it is FAILED: trainer/1 failed first: {how}"


def test_a_replica_reports_its_current_attempt() -> None:
    first = AttemptStatus(1, AppState.FAILED, exit_code=1, pid=10)
    second = AttemptStatus(2, AppState.FAILED, None, "SIGKILL", START, START + timedelta(seconds=2), 11)
    replica = ReplicaStatus(0, AppState.FAILED, "r", "host", attempts=[first, second], max_attempts=3)
    assert (replica.attempt, replica.exit_code, replica.signal, replica.pid) == (2, None, "SIGKILL", 11)
    assert (replica.started_at, replica.ended_at) == (START, START + timedelta(seconds=2))
    assert (first.result, second.result) == (1, 137)
    assert ReplicaStatus(0, AppState.PENDING, "r", "host").attempt == 1
    assert FirstFailure("r", 0, 2, signal="SIGTERM").result == 143


def test_address_of_replica_is_its_host_by_default() -> None:
    assert ReplicaStatus(0, AppState.RUNNING, "r", "host").hostaddr == "host"
    assert ReplicaStatus(0, AppState.RUNNING, "r", "host", hostaddr="10.0.0.1").hostaddr == "10.0.0.1"


@pytest.mark.usefixtures("_utc")
@pytest.mark.parametrize("error_file", [NESTED, FLAT])
def test_the_whole_text(error_file: str) -> None:
    status = _status(
        ReplicaStatus(1, AppState.SUCCEEDED, "trainer", "h1"),
        ReplicaStatus(0, AppState.FAILED, "trainer", "h0", error_file),
        ReplicaStatus(0, AppState.CANCELLED, "reader", "h2"),
        ReplicaStatus(1, AppState.RUNNING, "reader", "h2"),
    )
    status.num_restarts, status.msg, status.ui_url = 2, "boom", "http://x"
    assert (
        status.format()
        == str(status)
        == (
            "AppStatus:\n"
            "    State: FAILED\n"
            "    Num Restarts: 2\n"
            "    Roles: \n"
            " *trainer[0]:FAILED (exitcode: 3)\n"
            "        timestamp: 1970-01-02 00:00:00\n"
            "        hostname: h0\n"
            "        error_msg: ValueError: boom\n"
            "  trainer[1]:SUCCEEDED\n"
            " *reader[0]:CANCELLED (no reply file)\n"
            "  reader[1]:RUNNING\n"
            "    Msg: boom\n"
            "    Structured Error Msg: <NONE>\n"
            "    UI URL: http://x\n"
        )
    )


def test_only_the_roles_that_are_requested() -> None:
    status = _status(
        ReplicaStatus(0, AppState.FAILED, "trainer", "h"), ReplicaStatus(0, AppState.FAILED, "reader", "h")
    )
    assert "reader[0]" in status.format(["reader"])
    assert "trainer" not in status.format(["reader"])
    assert [role["role"] for role in status.to_json(["reader"])["roles"]] == ["reader"]
    assert [role["role"] for role in status.to_json([])["roles"]] == ["trainer", "reader"]


@pytest.mark.parametrize("text", ["no json", '{"a": 1}', "[1]", "null"])
def test_any_other_error_file_is_reported_as_it_is(text: str) -> None:
    assert f" *r[0]:FAILED\n{text}\n" in _status(ReplicaStatus(0, AppState.FAILED, "r", "h", text)).format()


@pytest.mark.parametrize("text", ['{"message": {"message": "x"}}', '{"message": "x", "timestamp": "soon"}'])
def test_what_an_error_file_lacks_is_not_made_up(text: str) -> None:
    output = _status(ReplicaStatus(0, AppState.FAILED, "r", "h", text)).format()
    assert " *r[0]:FAILED (exitcode: <N/A>)\n        timestamp: <N/A>\n" in output
    assert "error_msg: x\n" in output


def test_long_messages_are_wrapped_and_noise_is_taken_off() -> None:
    message = "\n".join(
        [
            "On WorkerInfo(id=1, name=trainer:0:0):",
            "RuntimeError: " + "word " * 20,
            "Exception raised from run at ../c10/x.cpp:5 (most recent call first):",
            "frame #0: c10::Error::Error(c10::SourceLocation) + 0x57 (0x7f in /lib/libc10.so)",
        ]
    )
    output = _status(ReplicaStatus(0, AppState.FAILED, "r", "h", json.dumps({"message": message}))).format()
    rows = (
        output[output.index("error_msg: ") + len("error_msg: ") : output.index("    Msg:")]
        .rstrip()
        .split("\n")
    )
    assert [len(row.strip()) <= 80 for row in rows] == [True, True]
    assert " ".join(row.strip() for row in rows) == "RuntimeError: " + "word " * 19 + "word"


def test_json_takes_all_of_it() -> None:
    attempt = AttemptStatus(
        1, AppState.FAILED, None, "SIGKILL", START, START + timedelta(seconds=1.5), 7, "gone"
    )
    replica = ReplicaStatus(0, AppState.FAILED, "r", "h", FLAT, attempts=[attempt], max_attempts=2)
    status = _status(replica)
    status.submitted_at = status.started_at = START
    status.first_failure = FirstFailure("r", 0, 1, signal="SIGKILL", msg="gone")
    status.log_dir = "/logs"
    data = json.loads(json.dumps(status.to_json()))
    assert (data["state"], data["num_restarts"], data["url"], data["log_dir"]) == ("FAILED", 0, None, "/logs")
    assert (data["submitted_at"], data["ended_at"], data["duration"]) == (
        "2026-01-01T12:00:00+00:00",
        None,
        None,
    )
    assert data["first_failure"] == {
        "role": "r",
        "replica": 0,
        "run": None,
        "attempt": 1,
        "exit_code": None,
        "signal": "SIGKILL",
        "msg": "gone",
        "cause": None,
        "handle": None,
        "result": 137,
    }
    reported = data["roles"][0]["replicas"][0]
    assert reported["attempts"] == [
        {
            "number": 1,
            "state": "FAILED",
            "exit_code": None,
            "signal": "SIGKILL",
            "result": 137,
            "started_at": "2026-01-01T12:00:00+00:00",
            "ended_at": "2026-01-01T12:00:01.500000+00:00",
            "duration": 1.5,
            "pid": 7,
            "msg": "gone",
        }
    ]
    assert (reported["id"], reported["state"], reported["hostaddr"], reported["duration"]) == (
        0,
        "FAILED",
        "h",
        1.5,
    )
    assert (reported["attempt"], reported["max_attempts"], reported["structured_error_msg"]) == (1, 2, FLAT)
