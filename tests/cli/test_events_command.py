"""`torchx events` and `torchx wait --for`."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator

import local
import pytest
from local import sh, submit
from program import start, torchx
from support import wait_until

from torchx.runner import Runner
from torchx.scheduling.logs import LONGEST_LINE, LogChunk, LogQuery, Stream, whole_lines
from torchx_cli.main import main


def lines_of(text: str) -> list[str]:
    return text.splitlines()


def test_events_of_an_application_as_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    app_id = submit(sh("exit 3"))
    local.ended(app_id)
    assert main(["events", app_id]) == 0
    shown = lines_of(capsys.readouterr().out)
    assert [line.split()[2] for line in shown] == [
        "submitted", "started", "ready", "ended", "ended"
    ]  # fmt: skip
    assert shown[3].endswith("w/0  exit 3")
    assert shown[4].endswith("ended      FAILED; w/0 failed first")
    assert main(["events", app_id, "-o", "json", "-n", "1"]) == 0
    (data,) = map(json.loads, lines_of(capsys.readouterr().out))
    assert data.pop("time")
    assert data == {
        "kind": "ended",
        "handle": f"local_cwd://torchx/{app_id}",
        "app_id": app_id,
        "role": None,
        "replica": None,
        "attempt": None,
        "message": "FAILED; w/0 failed first",
        "details": {"state": "FAILED", "exit_code": 3},
    }


def test_events_of_all_applications_name_them(capsys: pytest.CaptureFixture[str]) -> None:
    ids = [submit(sh("true"), name=name) for name in ("one", "two")]
    for app_id in ids:
        local.ended(app_id)
    assert main(["events", "--since", "1h"]) == 0
    named = {line.split()[2] for line in lines_of(capsys.readouterr().out)}
    assert named == set(ids)
    assert main(["events", "--since", "2000-01-01", "--until", "2000-01-02"]) == 0
    assert capsys.readouterr().err == "no events\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("-n", "x"), "-n takes a whole number"),
        (("--since", "soon"), "--since takes a time"),
        (("x", "-s", "local_cwd"), "-s cannot be combined with a handle"),
    ],
)
def test_wrong_flags_of_events(
    flags: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["events", *flags]) == 2
    assert message in capsys.readouterr().err


def test_following_events_in_a_pipe_prints_each_immediately() -> None:
    app_id = submit(sh("sleep 600"))
    process = start("events", "-f", app_id)
    assert process.stdout is not None
    assert [process.stdout.readline().split()[2] for _ in range(3)] == ["submitted", "started", "ready"]
    assert main(["cancel", app_id]) == 0
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert lines_of(rest)[-1].endswith("CANCELLED")


def test_ctrl_c_ends_following() -> None:
    app_id = submit(sh("sleep 600"))
    process = start("events", "-f")
    assert process.stdout is not None
    assert app_id in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    local.scheduler().cancel(app_id)


# --- wait --for ----------------------------------------------------------------------------------


def test_running_and_ready_return_while_the_application_runs(capsys: pytest.CaptureFixture[str]) -> None:
    app_id = submit(sh("sleep 600", replicas=2))
    assert main(["wait", app_id, "--for", "running"]) == 0
    assert main(["wait", app_id, "--for", "Ready", "-o", "json"]) == 0
    out, err = capsys.readouterr()
    (data,) = json.loads(out)
    assert (data["for"], data["met"], data["state"]) == ("ready", True, "RUNNING")
    assert err == f"{app_id} is RUNNING\n{app_id} is ready\n"
    assert main(["wait", app_id, "--for", "failed", "--timeout", "0"]) == 124
    local.scheduler().cancel(app_id)
    assert main(["wait", app_id, "--for", "cancelled"]) == 0
    assert main(["wait", app_id, "--for", "running"]) == 3
    assert capsys.readouterr().err.endswith(
        f"{app_id} has ended and is CANCELLED; the condition `running` was not met\n"
    )


def test_ready_waits_for_each_replica(capsys: pytest.CaptureFixture[str]) -> None:
    """A replica that waits for its retry is not ready."""
    role = sh('test "$TORCHX_ATTEMPT" = 2 && exec sleep 600; exit 1', retries=1, policy="REPLICA")
    app_id = submit(role, sh("sleep 600", name="v"), retry_backoff=3600.0)
    wait_until(lambda: local.describe(app_id).roles_statuses[0].replicas[0].exit_code == 1, "the failure")
    assert main(["wait", app_id, "--for", "running"]) == 0
    assert main(["wait", app_id, "--for", "ready", "--timeout", "0.1"]) == 124
    assert capsys.readouterr().err.endswith(f"{app_id} is still RUNNING: timed out\n")
    local.scheduler().cancel(app_id)


def test_log_line_is_printed_whether_it_exists_or_follows(capsys: pytest.CaptureFixture[str]) -> None:
    app_id = submit(sh("echo epoch 1; sleep 0.2; echo epoch 2; echo epoch 2 again; sleep 600"))
    assert main(["wait", app_id, "--for", "log:^epoch [2-9]"]) == 0
    assert capsys.readouterr().out == "epoch 2\n"
    assert main(["wait", app_id, "--for", "log:1$", "--timeout", "0", "-o", "json"]) == 0
    (data,) = json.loads(capsys.readouterr().out)
    assert (data["met"], data["line"], data["replica"]) == (True, "epoch 1", "w/0")
    assert main(["wait", app_id, "--for", "log:never", "--timeout", "0.1"]) == 124
    local.scheduler().cancel(app_id)
    assert main(["wait", app_id, "--for", "log:never"]) == 3
    assert "the condition `log:never` was not met" in capsys.readouterr().err


def test_a_timeout_interrupts_the_search_for_a_pattern() -> None:
    """A search that tries very many ways to match takes years, and holds Python's lock."""
    app_id = submit(sh(f"echo {'a' * 100}b; sleep 600"))
    handler = signal.getsignal(signal.SIGALRM)
    assert main(["wait", app_id, "--for", "log:(a+)+$", "--timeout", "0.5"]) == 124
    assert signal.getsignal(signal.SIGALRM) == handler
    local.scheduler().cancel(app_id)


def test_line_printed_in_parts_is_searched_as_a_whole() -> None:
    app_id = submit(sh("printf 'epoch '; sleep 0.3; echo 7; printf 'no end'"))
    assert main(["wait", app_id, "--for", "log:^epoch 7$"]) == 0
    assert main(["wait", app_id, "--for", "log:^no end$"]) == 0


def test_parts_of_lines_are_joined() -> None:
    def part(data: bytes, attempt: int = 1, stream: Stream = Stream.STDOUT) -> LogChunk:
        return LogChunk("w", 0, attempt, stream, 1.0, data)

    log = [part(b"a\nb"), part(b"x", stream=Stream.STDERR), part(b"c\nd"), part(b"e\n", 2), part(b"f", 2)]
    long = b"g" * LONGEST_LINE
    seen = [(chunk.attempt, chunk.data) for chunk in whole_lines([*log, part(long, 2), part(b"\n", 2)])]
    assert seen == [
        (1, b"a\n"),
        (1, b"bc\n"),
        (1, b"d"),
        (1, b"x"),
        (2, b"e\n"),
        (2, b"f" + long),
        (2, b"\n"),
    ]


def test_large_pieces_of_short_lines_cut_no_line() -> None:
    data = b"0123456\n" * (LONGEST_LINE // 4)
    log = [LogChunk("w", 0, 1, Stream.STDOUT, 1.0, part) for part in (data[:-3], data[-3:])]
    seen = [chunk.data for chunk in whole_lines(log)]
    assert seen == [data[:-8], data[-8:]]


def test_a_timeout_holds_while_a_long_log_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, released = list[bool](), threading.Event()

    def log_chunks(self: Runner, handle: str, query: LogQuery) -> Iterator[LogChunk]:
        reads.append(query.follow)
        released.wait(60)
        yield from ()

    monkeypatch.setattr(Runner, "log_chunks", log_chunks)
    app_id = submit(sh("sleep 600"))
    assert main(["wait", app_id, "--for", "log:never", "--timeout", "0.5"]) == 124
    assert reads == [True]  # the log is not read again after the timeout
    released.set()
    local.scheduler().cancel(app_id)


def test_ended_application_without_a_stall_never_meets_stalled() -> None:
    app_id = submit(sh("true"))
    assert main(["wait", app_id, "--for", "stalled"]) == 3


def test_any_returns_with_the_first_application(capsys: pytest.CaptureFixture[str]) -> None:
    slow, quick = submit(sh("sleep 600"), name="slow"), submit(sh("exit 4"), name="quick")
    assert main(["wait", slow, quick, "--any"]) == 4
    assert main(["wait", slow, quick, "--timeout", "0.1", "-o", "json"]) == 124
    assert [data["exit_code"] for data in json.loads(capsys.readouterr().out)] == [None, 4]
    assert main(["wait", slow, quick, "--any", "--for", "running"]) == 0
    local.scheduler().cancel(slow)
    assert main(["wait", slow, quick, "--any", "--for", "succeeded"]) == 3


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("runing", "did you mean `running`?"),
        ("log:(", "--for log: takes a pattern"),
        ("log:", "--for log: takes a pattern"),
        ("unsubmitted", "--for takes a condition"),
    ],
)
def test_wrong_conditions(condition: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wait", "x", "--for", condition]) == 2
    assert message in capsys.readouterr().err
    assert main(["wait", "x", "--any", "--all"]) == 2


def test_the_condition_of_a_command_in_a_script() -> None:
    app_id = submit(sh("echo listening on 80; sleep 600"))
    done = torchx("wait", "--for", "log:listening", app_id)
    assert (done.returncode, done.stdout, done.stderr) == (0, "listening on 80\n", "")
    local.scheduler().cancel(app_id)
