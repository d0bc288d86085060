"""The loop of a supervisor where a process cannot be ended, or the supervisor itself fails."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from support import wait_until

from torchx.jobs.events import read_events
from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.record import JobRecord, ReplicaRecord, RoleRecord
from torchx.jobs.view import JobView, load
from torchx.machine import locks, processes
from torchx.machine.processes import Process
from torchx.supervisor import ending, launch, loop
from torchx.supervisor.loop import Supervisor


def submitted(script: str, *, replicas: int = 1, retries: int = 0, grace: float = 0.1) -> JobPaths:
    """Puts a job on record that no supervisor runs yet."""
    home = Home(Path(os.environ["TORCHX_HOME"]))
    paths, logs = home.job("job-1"), home.logs / "torchx" / "job-1"
    paths.folder.mkdir(parents=True)
    logs.mkdir(parents=True)
    role = RoleRecord("w", [ReplicaRecord(["/bin/sh", "-c", script], {})] * replicas, {}, None, retries)
    app = {"name": "job"}
    record = JobRecord("job-1", "s", "torchx", "job", 0.0, str(logs), [role], app, {}, grace, True, 0.01)
    record.save(paths.record)
    return paths


def supervise(paths: JobPaths, prepare: Callable[[], None] = lambda: None) -> int:
    """Starts a supervisor without a guard, in a child process that ``prepare`` has changed."""
    pid = os.fork()
    if pid == 0:
        try:
            processes.become_subreaper()
            prepare()
            Supervisor(JobRecord.load(paths.record), paths, {"PATH": os.environ["PATH"]}).run()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def ended(pid: int, paths: JobPaths, code: int = 0) -> JobView:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
    return load(paths)


def running(paths: JobPaths, count: int = 1) -> list[Process]:
    """Waits until the replicas run."""

    def look() -> list[Process]:
        attempts = [attempt for replica in load(paths).replicas for attempt in replica.attempts]
        found = [attempt.process for attempt in attempts if attempt.process is not None]
        return found if len(found) == count else []

    return wait_until(look, "they run")


def test_unkillable_process_is_given_up_and_named() -> None:
    paths = submitted("exec sleep 600")

    def prepare() -> None:
        loop.GIVE_UP_AFTER = 0.1
        ending.send = lambda process, number: False  # type: ignore[assignment]  # such as another user's

    pid = supervise(paths, prepare)
    (process,) = running(paths)
    try:
        paths.cancel.write_text("cancel\n")
        os.kill(pid, signal.SIGTERM)
        view = ended(pid, paths)
    finally:
        os.kill(process.pid, signal.SIGKILL)
    why = f"still running, cannot be ended: pid {process.pid}"
    assert (view.state, view.msg) == ("CANCELLED", f"cancelled; {why}")
    (attempt,) = view.replicas[0].attempts
    assert (attempt.msg, attempt.exit_code, attempt.signal, attempt.stopped) == (why, None, None, "cancelled")


@pytest.mark.parametrize("when", ["select", "exit"])
def test_failure_of_supervisor_ends_all_processes_and_is_recorded(
    when: str, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = submitted("exit 3" if when == "exit" else "sleep 600 & exec sleep 600", replicas=2)

    def prepare() -> None:
        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("a defect")

        if when == "exit":
            Supervisor._exited = fail  # type: ignore[assignment]
        else:
            Supervisor._read_requests = fail  # type: ignore[assignment,method-assign]
            Supervisor._run = _run_with_requests_at_the_end  # type: ignore[method-assign]

    view = ended(supervise(paths, prepare), paths, 1)
    assert (view.state, view.msg) == ("FAILED", "its supervisor failed: RuntimeError('a defect')")
    started = [attempt.process for replica in view.replicas for attempt in replica.attempts]
    assert len(started) == 2
    wait_until(lambda: not any(processes.is_alive(each) for each in started if each), "all have ended")
    assert "a defect" in capfd.readouterr().err


def _run_with_requests_at_the_end(self: Supervisor) -> None:
    self._execute(self._gang.begin())
    self._start_due()
    self._read_requests()


def test_a_request_before_the_start_starts_nothing() -> None:
    paths = submitted("echo never")
    paths.cancel.write_text("cancel\n")
    view = ended(supervise(paths), paths)
    assert (view.state, view.msg, view.replicas[0].attempts) == ("CANCELLED", "cancelled", [])


def test_a_signal_without_a_request_says_so() -> None:
    paths = submitted("exec sleep 600")
    pid = supervise(paths)
    running(paths)
    for number in (signal.SIGHUP, signal.SIGINT):
        os.kill(pid, number)  # only TERM is a request
    os.kill(pid, signal.SIGTERM)
    view = ended(pid, paths)
    assert view.state == "CANCELLED"
    (reason,) = [event["why"] for event in read_events(paths.events) if event["e"] == "cancel"]
    assert reason == "its supervisor was terminated"


def test_a_kill_request_after_a_cancel_waits_no_longer() -> None:
    paths = submitted("trap '' TERM; echo ready; while :; do sleep 0.05; done", grace=600.0)
    pid = supervise(paths)
    (process,) = running(paths)
    log = Path(load(paths).record.log_dir) / "w" / "0" / "combined.log"
    wait_until(lambda: log.exists() and log.read_text() == "ready\n", "it ignores TERM")
    for request in ("cancel\n", "cancel\nkill\n"):
        paths.cancel.write_text(request)
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: load(paths).cancelling, "the request is read")
    view = ended(pid, paths)
    (attempt,) = view.replicas[0].attempts
    assert (attempt.signal, attempt.stopped, attempt.state) == ("SIGKILL", "cancelled", "CANCELLED")
    assert not processes.is_alive(process)


def test_more_replicas_than_are_started_at_a_time() -> None:
    count = 2 * loop.STARTS_AT_A_TIME + 1
    paths = submitted("exit 0", replicas=count)
    view = ended(supervise(paths), paths)
    assert view.state == "SUCCEEDED"
    assert [len(replica.attempts) for replica in view.replicas] == [1] * count


def test_the_events_of_a_retry() -> None:
    paths = submitted('[ "$TORCHX_ATTEMPT" = 3 ] || exit 4', retries=2)
    view = ended(supervise(paths), paths)
    assert (view.state, view.restarts) == ("SUCCEEDED", 2)
    facts = [
        {name: event.get(name) for name in ("e", "r", "a", "n", "of", "code")}
        for event in read_events(paths.events)
    ]
    kinds = [fact["e"] for fact in facts]
    assert kinds == ["starting", "start", "exit", "retry"] * 2 + ["starting", "start", "exit", "end"]
    assert [fact["a"] for fact in facts if fact["e"] == "starting"] == [1, 2, 3]
    assert [(fact["n"], fact["of"]) for fact in facts if fact["e"] == "retry"] == [(1, 2), (2, 2)]
    assert [fact["code"] for fact in facts if fact["e"] == "exit"] == [4, 4, 0]


def test_a_process_that_is_ended_has_the_grace_period() -> None:
    paths = submitted("exec sleep 600", grace=5.0)

    def prepare() -> None:
        end_all = Supervisor._end_all

        def measured(self: Supervisor, targets: set[Process]) -> None:
            before = time.monotonic()
            end_all(self, targets)
            after = time.monotonic()
            assert all(before + 5 <= self._ending[process] <= after + 5 for process in targets)

        Supervisor._end_all = measured  # type: ignore[method-assign]

    pid = supervise(paths, prepare)
    running(paths)
    paths.cancel.write_text("cancel\n")
    os.kill(pid, signal.SIGTERM)
    view = ended(pid, paths)
    assert (view.state, view.replicas[0].attempts[0].signal) == ("CANCELLED", "SIGTERM")


def test_output_of_attempt_ends_when_next_one_starts(tmp_path: Path) -> None:
    rest = f"trap '' PIPE; until [ -e {tmp_path}/go ]; do sleep 0.02; done; echo late; touch {tmp_path}/late"
    first = f"echo first; ({rest}) & exit 4"
    second = f"touch {tmp_path}/go; until [ -e {tmp_path}/late ]; do sleep 0.02; done"
    paths = submitted(f"if [ $TORCHX_ATTEMPT = 1 ]; then {first}; else {second}; fi", retries=1)

    def prepare() -> None:
        loop.GIVE_UP_AFTER = 0.1
        ending.send = lambda process, number: False  # type: ignore[assignment]  # such as another user's

    view = ended(supervise(paths, prepare), paths)
    assert view.state == "SUCCEEDED"
    folder = Path(view.record.log_dir) / "w" / "0"
    assert (folder / "attempt-1" / "combined.log").read_text() == "first\n"
    assert (folder / "combined.log").read_text() == ""


def test_processes_of_killed_supervisor_end_after_its_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "UNDONE_WITHIN", 0.0)
    paths = submitted("exec sleep 600")
    pid = supervise(paths)
    (process,) = running(paths)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    held = locks.acquire(paths.lock)
    assert held is not None
    launch._end_processes(paths)
    assert processes.is_alive(process), "its guard still holds the lock, and ends it"
    os.close(held)
    launch._end_processes(paths)
    assert not processes.is_alive(process)


def test_group_exists_as_long_as_it_has_process() -> None:
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        assert ending.group_exists(child.pid)
    finally:
        child.kill()
        child.wait()
    assert not ending.group_exists(child.pid)
