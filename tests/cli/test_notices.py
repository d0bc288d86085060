"""The lines about events of an application that a command follows."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from program import component_folder, environment, start, torchx
from support import wait_until
from terminal import Terminal

from torchx.scheduling.events import AppEvent
from torchx.scheduling.logs import LogChunk, Stream
from torchx.specs.status import AppState, AppStatus
from torchx_cli.terminal import ending, notices, streaming
from torchx_cli.terminal.notices import Notices
from torchx_cli.terminal.output import columns
from torchx_cli.terminal.streaming import LogPrinter

COMPONENT = '''
import torchx.specs as specs


def app(line: str, n: int = 1, retries: int = 0) -> specs.AppDef:
    """Runs a line of a shell in each of n replicas."""
    role = specs.Role("sh", "", entrypoint="sh", args=["-c", line], num_replicas=n, max_retries=retries)
    role.env = {"ID": "${replica_id}"}
    return specs.AppDef("app", [role])


def served(port: int, line: str) -> specs.AppDef:
    """A service that is ready when its port answers, and a role that needs it."""
    service = specs.service(
        specs.Role("db", "", entrypoint="sh", args=["-c", line]), ready=f"tcp:{port}", within="60s"
    )
    return specs.AppDef("app", [
        service, specs.after(specs.Role("sh", "", entrypoint="true"), ["db"])
    ])
'''

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with component_folder(tmp_path, monkeypatch, COMPONENT):
        yield


# --- the lines -----------------------------------------------------------------------------------


def event(kind: str, replica: int | None = 0, at: float = 0.0, message: str = "", **details: Any) -> AppEvent:
    role = "" if replica is None else "w"
    return AppEvent(AT + timedelta(seconds=at), kind, role, replica, 1, message, details)


def lines_of(*events: AppEvent, notes: tuple[str, ...] = ()) -> list[str]:
    return Notices(None, "", print, notes, new=True).lines_of(events)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("end", "retry", "line"),
    [
        ({"exit_code": 4}, {"delay": 1.0}, "w/0 exit 4 after 1.5 s; attempt 2 of 3 in 1 s"),
        ({"signal": "SIGKILL", "exit_code": 137}, {}, "w/0 SIGKILL after 1.5 s; attempt 2 of 3"),
        (
            {"signal": "SIGTERM", "reason": "stalled for 10 s"}, {"scope": "role"},
            "w/0 SIGTERM after 1.5 s (stalled for 10 s); attempt 2 of 3 of its role",
        ),
        ({"exit_code": 4, "time": "unknown"}, {"scope": "application"},
         "w/0 exit 4; attempt 2 of 3 of all replicas"),
    ],
)  # fmt: skip
def test_a_retry_is_one_line(end: Mapping[str, Any], retry: Mapping[str, Any], line: str) -> None:
    begun = [event("started"), event("started", 1)]
    found = lines_of(*begun, event("ended", at=1.5, **end), event("retry", number=1, allowed=2, **retry))
    assert found == [line]


def test_equal_times_are_no_duration() -> None:
    """Some engines record whole seconds."""
    begun, end = event("started"), event("ended", exit_code=4)
    assert lines_of(begun, end, event("retry", message="again")) == ["w/0 exit 4; again"]
    status = AppStatus(AppState.FAILED, started_at=AT, ended_at=AT)
    assert ending.last_line("train", status, sys.stderr) == "train FAILED"


def test_a_retry_without_details_has_its_message() -> None:
    """The scheduler of a plugin may report no more."""
    assert lines_of(event("retry", message="again")) == ["w/0 has ended; again"]


def test_new_attempts_share_one_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, an engine over a network is queried every 15 seconds."""
    due: list[bool] = []
    scheduler = SimpleNamespace(waits_in_queue=False, has_runs=False, may_wait=lambda app_id: False)
    runner: Any = SimpleNamespace(scheduler_of=lambda handle: scheduler)
    followed = Notices(runner, "kubernetes://torchx/train", lambda *lines: None, new=True)

    def read_new(feed: Any, *, others: bool, now: bool) -> list[AppEvent]:
        due.append(now)
        feed.ended = True
        return []

    monkeypatch.setattr(notices.reports, "Feed", lambda *arguments: SimpleNamespace(ended=False))
    monkeypatch.setattr(notices.reports, "read_new", read_new)
    monkeypatch.setattr(notices, "PATIENCE", 0.0)
    monkeypatch.setattr(notices, "RARE_PAUSE", 60.0)
    followed.follow()
    followed.catch_up("w/0", 2)
    followed.catch_up("w/1", 2)
    assert due == [False, False, True, False]


def test_retry_follows_output_of_attempt_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second attempt has ended before its output is printed."""
    printed: list[str] = []
    scheduler = SimpleNamespace(waits_in_queue=False, has_runs=False, may_wait=lambda app_id: False)
    runner: Any = SimpleNamespace(scheduler_of=lambda handle: scheduler)
    followed = Notices(runner, "local_cwd://torchx/train", lambda *lines: printed.extend(lines), new=True)
    events = [
        replace(event(kind, message=f"{kind} {attempt}", exit_code=4), attempt=attempt)
        for attempt in (1, 2)
        for kind in ("started", "ended", "retry")
    ]

    def read_new(feed: Any, *, others: bool, now: bool) -> list[AppEvent]:
        new = [*events]
        events.clear()
        return new

    followed._feed = SimpleNamespace(ended=False)  # type: ignore[assignment]
    monkeypatch.setattr(notices.reports, "read_new", read_new)
    followed.catch_up("w/0", 2)
    assert printed == ["w/0 exit 4; retry 1"]
    followed.catch_up("w/0", 2)
    assert printed == ["w/0 exit 4; retry 1"]
    followed.catch_up("w/0", 3)
    assert printed == ["w/0 exit 4; retry 1", "w/0 exit 4; retry 2"]


def test_first_output_follows_the_reason_of_waiting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread has not read the events when the output of a job that waited arrives."""
    scheduler = SimpleNamespace(waits_in_queue=True, has_runs=False, may_wait=lambda app_id: True)
    runner: Any = SimpleNamespace(scheduler_of=lambda handle: scheduler)
    printed = printer()
    followed = Notices(runner, "local_cwd://torchx/train", printed.remark, new=True)
    events = [event("waiting", None, message="waiting for 1 GPU"), event("started")]
    due: list[bool] = []

    def read_new(feed: Any, *, others: bool, now: bool) -> list[AppEvent]:
        due.append(now)
        return [events.pop(0) for _ in events[:]]

    followed._feed = SimpleNamespace(ended=False)  # type: ignore[assignment]
    monkeypatch.setattr(notices.reports, "read_new", read_new)
    printed.before_attempt = followed.catch_up
    printed.write(chunk(b"first\n"))
    printed.write(chunk(b"second\n"))
    assert capsys.readouterr().err == "waiting: waiting for 1 GPU\nw/0 │ first\nw/0 │ second\n"
    assert due == [False], "the engine is not queried for a first attempt"


def test_equal_stalls_are_one_line() -> None:
    stalls = [event("stalled", n, message="no output for 10 s") for n in (0, 1, 3)]
    other = event("stalled", 2, message="no output for 12 s")
    unnamed = event("stalled", None, message="no progress for 1 s")
    assert lines_of(*stalls, other, unnamed) == [
        "no progress for 1 s", "w/0-1,3: no output for 10 s", "w/2: no output for 12 s"
    ]  # fmt: skip


def test_a_straggler_is_one_line() -> None:
    line = "w/0: 20 steps behind the median"
    assert lines_of(event("straggler", message=line)) == [line]


def test_a_reason_is_not_repeated() -> None:
    waits = [event("waiting", None, message=text) for text in ("Resources", "Resources", "Priority")]
    assert lines_of(*waits) == ["waiting: Resources", "waiting: Priority"]
    assert lines_of(*waits, notes=("Resources",)) == ["waiting: Priority"]


def test_a_requeue_is_one_line() -> None:
    line = "run 2 begins after the time limit"
    assert lines_of(event("requeued", None, message=line)) == [f"requeued: {line}"]


@pytest.mark.parametrize("over", [("ready", 0), ("ready", None), ("ended", 0)])
def test_a_service_that_is_late_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, over: tuple[str, int | None]
) -> None:
    monkeypatch.setattr(notices, "UNREADY", 0.0)
    started = event("started", service=True)
    found = Notices(None, "", print, new=True)  # type: ignore[arg-type]
    assert found.lines_of([started]) == ["w/0: not ready for 0 s"]
    assert found.lines_of([]) == []
    assert found.lines_of([started, event(*over)]) == []


# --- their place in the log ----------------------------------------------------------------------


def chunk(data: bytes, replica: int = 0) -> LogChunk:
    return LogChunk("w", replica, 1, Stream.STDOUT, 0.0, data)


def printer() -> LogPrinter:
    return streaming.printer_of(sys.stderr, [("w", 2)])


def test_a_remark_waits_for_the_end_of_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "LONGEST_HOLD", 1e6)
    log = printer()
    log.write(chunk(b"one\nhalf"))
    log.remark("a remark")
    log.write(chunk(b" more"))
    assert capsys.readouterr().err == "w/0 │ one\nw/0 │ half more"
    log.write(chunk(b" of it\nnext"))
    log.remark("second", "third")
    log.write(chunk(b"other\n", 1))
    assert capsys.readouterr().err.splitlines() == [
        " of it", "w/0 │ next", "a remark", "second", "third", "w/1 │ other"
    ]  # fmt: skip


def test_a_remark_waits_for_a_limited_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "LONGEST_HOLD", 0.0)
    log = printer()
    log.write(chunk(b"half"))
    log.remark("a remark")
    log.write(chunk(b"rest\n"))
    assert capsys.readouterr().err == "w/0 │ half\na remark\nw/0 │ rest\n"


def test_remarks_are_printed_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    log = printer()
    log.write(chunk(b"half"))
    log.remark("a remark")
    log.close()
    assert capsys.readouterr().err == "w/0 │ half\na remark\n"


def test_a_log_on_stdout_is_not_broken(capsys: pytest.CaptureFixture[str]) -> None:
    log = streaming.printer_of(sys.stdout, [("w", 1)])
    log.write(chunk(b"half"))
    log.remark("a remark")
    log.write(chunk(b" more\n"))
    assert capsys.readouterr() == ("w/0 │ half more\n", "a remark\n")


# --- attached runs -------------------------------------------------------------------------------

RETRY = re.compile(r"sh/0 exit 4 after \d+\.\d s; attempt 2 of 2 in 1 s")


def test_a_run_without_a_terminal_prints_plain_lines() -> None:
    done = torchx(
        "run", "c.py:app", "--retries", "1", "--line", "echo up $TORCHX_ATTEMPT; sleep 1; printf half; exit 4"
    )
    lines = done.stderr.splitlines()
    assert lines[:2] == ["sh/0 │ up 1", "sh/0 │ half"]
    assert RETRY.fullmatch(lines[2])
    assert lines[3:5] == ["sh/0 │ up 2", "sh/0 │ half"]
    assert len(RETRY.findall(done.stderr)) == 1
    assert (done.returncode, "\x1b" in done.stderr) == (4, False)


@pytest.mark.parametrize("width", [40, 60, 200])
def test_a_terminal_shows_dim_lines_that_fit(width: int) -> None:
    with Terminal(
        "run", "c.py:app", "--retries", "1", "--line", "echo up; sleep 1; exit 4", width=width
    ) as terminal:
        assert terminal.end() == 4
        written = terminal.written.replace("\r", "")
    begin = written.index("\x1b[2msh/0 exit 4")
    dim = written[begin + 4 : written.index("\x1b[0m", begin)]
    assert RETRY.fullmatch(" ".join(dim.split()))
    assert all(columns(line) <= width for line in dim.splitlines())
    assert len(dim.splitlines()) == (1 if width > 40 else 2)


def test_a_result_in_json_has_no_lines() -> None:
    done = torchx("run", "--json", "c.py:app", "--retries", "1", "--line", "echo up; sleep 1; exit 4")
    assert json.loads(done.stdout)["exit_code"] == 4
    assert done.stderr.splitlines()[:2] == ["sh/0 │ up", "sh/0 │ up"]


def test_a_stall_names_the_replica() -> None:
    line = "echo up; until test -e go; do sleep 0.05; done"
    process = start("run", "--stall", "1s", "c.py:app", "--line", line)
    assert process.stderr is not None
    assert process.stderr.readline() == "sh/0 │ up\n"
    assert re.fullmatch(r"sh/0: no output for \d s\n", process.stderr.readline())
    Path("go").touch()
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_each_stalled_replica_has_an_event() -> None:
    handle = torchx(
        "run", "-d", "--stall", "0.5s", "c.py:app", "--n", "2", "--line", "exec sleep 600"
    ).stdout.strip()

    def stalls() -> list[tuple[str, int]]:
        events = [json.loads(line) for line in torchx("events", handle, "-o", "json").stdout.splitlines()]
        return [(event["role"], event["replica"]) for event in events if event["kind"] == "stalled"]

    assert wait_until(stalls, "a stall")[:2] == [("sh", 0), ("sh", 1)]


def test_followers_begin_with_new_events() -> None:
    """What has happened before is in `torchx events`; this run is retried before and after."""
    line = "echo up $TORCHX_ATTEMPT; test $TORCHX_ATTEMPT = 1 && exit 3; "
    line += "until test -e go; do sleep 0.05; done; exit 4"
    handle = torchx("run", "-d", "c.py:app", "--retries", "2", "--line", line).stdout.strip()
    wait_until(lambda: "up 2" in torchx("log", handle).stdout, "the second attempt")
    followers = [
        start("attach", handle),
        start("log", "-f", handle),
        start("log", "-f", "-o", "json", handle),
    ]
    for process, stream in zip(followers, ("stderr", "stdout", "stdout"), strict=True):
        assert "up 1" in getattr(process, stream).readline()
    Path("go").touch()
    errors = [process.communicate(timeout=120)[1] for process in followers]
    assert [len(re.findall("attempt 2 of 3", text)) for text in errors] == [0, 0, 0]
    assert [len(re.findall(r"sh/0 exit 4 after .* s; attempt 3 of 3", text)) for text in errors] == [1, 1, 0]


def test_a_service_that_is_not_ready_is_named() -> None:
    code = "import sys; from torchx_cli.main import main; from torchx_cli.terminal import notices; "
    code += "notices.UNREADY = 0.2; sys.exit(main(sys.argv[1:]))"
    with subprocess.Popen(
        [sys.executable, "-c", code, "run", "c.py:served", "--port", "1", "--line", "exec sleep 600"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(),
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert process.stderr.readline() == "db/0: not ready for 0.2 s\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
