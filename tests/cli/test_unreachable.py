"""Engines that do not answer: they are named, and nothing is claimed about their applications."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from memory_scheduler import MemoryScheduler
from support import wait_until

import torchx.runner
from torchx.errors import AbsentError, OwnershipError, StateError, UnreachableError
from torchx.runner import Runner, survey
from torchx.runner.resolve import remember_last
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.specs import AppState
from torchx_cli.commands import wait as cmd_wait
from torchx_cli.main import main
from torchx_cli.session import Session
from torchx_cli.terminal import notices

Use = Callable[..., Runner]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Returns what lets the commands use these schedulers alone."""
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)  # a session sets its own

    def made(**schedulers: Any) -> Runner:
        runner = Runner("torchx", schedulers)
        monkeypatch.setattr(torchx.runner, "get_runner", lambda name: runner)
        return runner

    return made


class Down(MemoryScheduler):
    """An engine that refuses connections."""

    def list(self, cfg: object = None) -> list[object]:  # type: ignore[override]
        raise StateError("the connection was refused\nafter 3 attempts", hint="start it")

    def describe(self, app_id: str) -> DescribeAppResponse:
        raise StateError("the connection was refused")


class Absent(MemoryScheduler):
    """An engine that this machine does not have."""

    def list(self, cfg: object = None) -> list[object]:  # type: ignore[override]
        raise AbsentError("there is none")


@pytest.mark.parametrize(
    "command", ["status", "describe", "log", "cancel", "delete", "wait", "attach", "exec"]
)
def test_unknown_application_may_be_on_an_unreachable_engine(
    command: str, use: Use, capsys: pytest.CaptureFixture[str]
) -> None:
    use(memory=MemoryScheduler, down=Down, also=Down, absent=Absent)
    words = [*command.split(), "nope", *(["true"] if command == "exec" else [])]
    assert main(words) == 69
    assert capsys.readouterr().err == (
        "error: down did not answer: the connection was refused; also did not answer either; "
        "no other scheduler has an application `nope`\n"
        "  to diagnose: torchx doctor down   all applications: torchx list\n"
    )


def test_what_every_engine_denies_does_not_exist(use: Use, capsys: pytest.CaptureFixture[str]) -> None:
    use(memory=MemoryScheduler, absent=Absent)
    assert main(["status", "nope"]) == 1
    assert capsys.readouterr().err.startswith("error: there is no application `nope`\n")


def test_an_engine_that_was_stopped_may_have_it(use: Use, capsys: pytest.CaptureFixture[str]) -> None:
    use(memory=MemoryScheduler, absent=Absent)
    remember_last("absent://torchx/a")
    assert main(["status", "nope"]) == 69
    assert capsys.readouterr().err.startswith("error: absent did not answer: there is none; no other")


def test_an_engine_that_is_too_slow_may_have_it(
    use: Use, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    class Slow(MemoryScheduler):
        def exists(self, app_id: str) -> bool:
            return answered.wait(30)

    monkeypatch.setattr(survey, "PATIENCE", 0.05)
    use(memory=MemoryScheduler, slow=Slow)
    assert main(["status", "nope"]) == 69
    answered.set()
    assert capsys.readouterr().err.startswith("error: slow did not answer: no answer within")


def test_wait_gives_a_slow_engine_time(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    class Slow(MemoryScheduler):
        def list(self, cfg: object = None) -> Any:
            if not asked.is_set():  # the first query is answered after the others have been given up
                asked.wait(30)
                return []
            return [ListAppResponse("nope", AppState.SUCCEEDED)]

        def exists(self, app_id: str) -> bool:
            return False

        def describe(self, app_id: str) -> DescribeAppResponse:
            return DescribeAppResponse(app_id, AppState.SUCCEEDED)

    monkeypatch.setattr(survey, "PATIENCE", 0.05)
    notes: list[str] = []

    def note(line: str) -> None:
        notes.append(line)
        asked.set()

    monkeypatch.setattr(cmd_wait, "note", note)
    use(memory=MemoryScheduler, slow=Slow)
    assert main(["wait", "nope"]) == 0
    assert notes[0].endswith("waiting for it")


@pytest.mark.parametrize("command", ["status", "wait", "log", "cancel"])
def test_an_engine_that_is_gone_has_one_exit_code(command: str, use: Use) -> None:
    class Gone(Down):
        def list(self, cfg: object = None) -> Any:
            raise UnreachableError("no engine answers")

        exists = describe = glance = cancel = list  # type: ignore[assignment]

    use(gone=Gone)
    for name in ("nope", "gone://torchx/nope"):
        assert main([command, name]) == 69


def test_the_last_one_may_be_where_no_engine_answers(use: Use, capsys: pytest.CaptureFixture[str]) -> None:
    use(memory=MemoryScheduler, down=Down)
    assert main(["status", "@last"]) == 69
    assert capsys.readouterr().err.startswith(
        "error: down did not answer: the connection was refused; no other"
    )


def test_application_of_another_user_has_its_own_exit_code(
    use: Use, capsys: pytest.CaptureFixture[str]
) -> None:
    class Foreign(MemoryScheduler):
        def describe(self, app_id: str) -> DescribeAppResponse:
            return DescribeAppResponse(app_id, AppState.RUNNING)

        def cancel(self, app_id: str) -> None:
            raise OwnershipError("a belongs to alice", hint="only its owner can cancel it")

        delete = cancel

    use(memory=Foreign)
    for words in (["cancel", "memory://torchx/a"], ["delete", "--force", "memory://torchx/a"]):
        assert main(words) == 77
        assert capsys.readouterr().err == "error: a belongs to alice\n  only its owner can cancel it\n"


class Stops(MemoryScheduler):
    """An engine that stops while an application is waited for."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self.calls = 0
        self.refused: set[str] = set()

    def describe(self, app_id: str) -> DescribeAppResponse:
        self.calls += 1
        if self.calls == 1:
            return DescribeAppResponse(app_id, AppState.RUNNING)
        thread = threading.current_thread().name
        self.refused.add(thread)
        if thread == "wait":  # it continues until the other has called
            wait_until(lambda: len(self.refused) > 1, "both have called")
        raise StateError("the engine has stopped")


def test_wait_ends_with_error_alone_when_engine_stops(
    use: Use, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cmd_wait, "PATIENCE", 0.01)
    engine = use(memory=Stops).scheduler("memory")
    assert isinstance(engine, Stops)
    timers: list[threading.Thread] = []
    real = threading.Timer

    def timer(*words: Any) -> threading.Timer:
        made = real(*words)
        made.name = "reporter"
        timers.append(made)
        return made

    monkeypatch.setattr(threading, "Timer", timer)
    assert main(["wait", "memory://torchx/a"]) == 1
    for thread in timers:
        thread.join(30)  # each has been started: the wait cancels none before its end
    assert engine.refused >= {"reporter"}
    assert capfd.readouterr().err == "error: the engine has stopped\n"


def test_no_reason_of_waiting_when_engine_stops(
    use: Use, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Breaks(MemoryScheduler):
        def describe(self, app_id: str) -> DescribeAppResponse:
            raise ZeroDivisionError("a mistake in a plugin")

    monkeypatch.setattr(notices, "PATIENCE", 0.01)
    printed: list[str] = []
    waits = notices.Notices(use(memory=Breaks), "memory://torchx/a", printed.append, new=True)
    with waits:
        assert waits._thread is not None
        waits._thread.join(30)
    assert not printed
    assert capfd.readouterr().err == ""


def test_a_thread_that_fails_is_one_line(use: Use, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    use(memory=MemoryScheduler)

    def fail() -> None:
        raise ValueError("PGPASSWORD=canary \x1b[2J\nand more")

    with Session().runner():
        thread = threading.Thread(target=fail, name="follower")
        thread.start()
        thread.join()
    assert capfd.readouterr().err == "note: follower has failed: PGPASSWORD=******** \\x1b[2J\n"
