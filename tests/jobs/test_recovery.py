"""The end of a job whose supervisor has died: what is recorded, what is ended, and what is left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from jobhome import change, job
from support import wait_until

from torchx.jobs import end, recovery
from torchx.jobs import reconcile as reconciling
from torchx.jobs.events import read_events
from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.reconcile import read, reconcile
from torchx.jobs.view import JobView, load
from torchx.machine import locks, processes
from torchx.machine.processes import Process

NO_PID = 4_000_000
"""A pid that no process has, even if changed code looked for it."""

IGNORES = "import signal, time; signal.signal(15, 1); print('ready', flush=True); time.sleep(600)"


def new_id() -> str:
    """An id that no other test has: processes of a job are found by it, whoever started them."""
    return f"job-{uuid.uuid4().hex[:12]}"


def orphan(home: Home, *events: dict[str, object], app_id: str = "", boot: str = "") -> JobPaths:
    """Puts a job on record whose supervisor has died after some events."""
    paths = job(home, app_id or new_id())
    replica = {"args": ["true"], "env": {}}
    change(paths, roles=[{"name": "w", "replicas": [replica] * 3, "env": {}}], grace=0.2)
    now = time.time()
    own = processes.look_up(os.getpid())
    assert own is not None
    first = {
        "e": "supervisor",
        "pid": NO_PID,
        "start": own.process.start,
        "boot": boot or processes.boot_id(),
    }
    lines = [{"t": now, **event} for event in (first, *events)]
    paths.events.write_text("".join(json.dumps(line) + "\n" for line in lines))
    paths.reserve.write_bytes(b"x")
    return paths


def started(replica: int, process: Process | None = None, attempt: int = 1) -> dict[str, object]:
    pid, start = process or (NO_PID, 1)
    return {"e": "start", "r": replica, "a": attempt, "pid": pid, "start": start}


def recovered(paths: JobPaths) -> JobView:
    """Finalizes a job; what is returned is what the next reader sees."""
    view = reconcile(paths)
    assert view == load(paths)
    assert not paths.reserve.exists()
    return view


def states(view: JobView) -> list[list[str]]:
    return [[attempt.state for attempt in replica.attempts] for replica in view.replicas]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this user that only KILL ends."""
    with subprocess.Popen([sys.executable, "-c", IGNORES], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def identity(child: subprocess.Popen[bytes]) -> Process:
    entry = processes.look_up(child.pid)
    assert entry is not None
    return entry.process


def test_each_replica_gets_end_that_is_known_of_it(home: Home) -> None:
    paths = orphan(
        home,
        *(started(0), {"e": "exit", "r": 0, "a": 1, "code": 0}),
        started(1),
        {"e": "starting", "r": 2, "a": 1},
    )
    view = recovered(paths)
    assert (view.state, view.msg, view.first_failure) == ("FAILED", "its supervisor was killed", (1, 1))
    assert states(view) == [["SUCCEEDED"], ["FAILED"], ["FAILED"]]
    running, announced = view.replicas[1].attempts[0], view.replicas[2].attempts[0]
    assert running.msg == (
        "its supervisor was killed: its exit code is unknown, and its last output may be missing"
    )
    assert announced.msg == (
        "its supervisor was killed during this start: it is not known whether the replica ran"
    )
    kinds = [(event["e"], event.get("r")) for event in read_events(paths.events)]
    assert kinds[-3:] == [("exit", 1), ("not_started", 2), ("end", None)]


def test_first_failure_is_earliest_of_last_attempts(home: Home) -> None:
    paths = orphan(
        home,
        *(started(0), started(1), started(2)),
        {"e": "exit", "r": 2, "a": 1, "code": 1, "t": 5.0},
        started(2, attempt=2),
        {"e": "exit", "r": 1, "a": 1, "code": 3, "t": 30.0},
        {"e": "exit", "r": 0, "a": 1, "code": 4, "t": 40.0},
    )
    view = recovered(paths)
    assert view.first_failure == (1, 1)
    assert view.exit_code == 3


def test_a_cancelled_job_stays_cancelled_and_names_no_failure(home: Home) -> None:
    paths = orphan(home, started(0), {"e": "exit", "r": 0, "a": 1, "code": 1}, {"e": "cancel"})
    view = recovered(paths)
    assert (view.state, view.first_failure) == ("CANCELLED", None)


def test_the_end_is_not_before_the_last_event(home: Home) -> None:
    later = time.time() + 5000
    paths = orphan(home, {**started(0), "t": later})
    view = recovered(paths)
    assert view.ended_at is not None
    assert later <= view.ended_at < later + 100
    assert view.replicas[0].attempts[0].ended_at == view.ended_at


def test_end_is_listed_although_its_reserve_was_used_up(home: Home) -> None:
    paths = orphan(home)
    paths.reserve.unlink()
    reconcile(paths)
    assert f'"{paths.folder.name}"' in home.ended.read_text()


def test_after_restart_of_machine_no_process_is_signalled(home: Home, child: subprocess.Popen[bytes]) -> None:
    paths = orphan(home, started(0, identity(child)), {"e": "starting", "r": 1, "a": 1}, boot="other")
    view = recovered(paths)
    assert view.msg == "the machine was restarted while it ran"
    assert view.replicas[0].attempts[0].msg.startswith("the machine was restarted while it ran: its exit")
    assert child.poll() is None


def test_what_ignores_term_is_killed_after_the_grace_period(
    home: Home, child: subprocess.Popen[bytes]
) -> None:
    paths = orphan(home, started(0, identity(child)))
    began = time.monotonic()
    view = recovered(paths)
    assert time.monotonic() - began > 0.2
    assert child.wait(20) == -signal.SIGKILL
    assert view.msg == "its supervisor was killed"


def test_the_process_of_the_current_attempt_is_ended(home: Home, child: subprocess.Popen[bytes]) -> None:
    first = {"e": "exit", "r": 0, "a": 1, "code": 1}
    view = recovered(orphan(home, started(0), first, started(0, identity(child), attempt=2)))
    assert child.wait(20) == -signal.SIGKILL
    assert [attempt.state for attempt in view.replicas[0].attempts] == ["FAILED", "FAILED"]
    assert view.first_failure == (0, 2)


def test_supervisor_of_unreadable_record_is_ended_but_not_init(
    home: Home, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = orphan(home)
    sent: list[int] = []
    real = processes.send

    def send(process: Process, number: int) -> bool:
        sent.append(process.pid)
        return process.pid == child.pid and real(process, number)

    monkeypatch.setattr(processes, "send", send)
    monkeypatch.setattr(recovery, "LONGEST_GRACE", 0.1)
    init = processes.look_up(1)
    assert init is not None
    for process, boot in ((init.process, processes.boot_id()), (identity(child), "other")):
        event = {"t": 5.0, "e": "supervisor", "boot": boot, **process._asdict()}
        paths.events.write_text(json.dumps(event) + "\n")
        assert recovery.end_unreadable(paths) == set()
        assert sent == []
    paths.events.write_text(json.dumps({**event, "boot": processes.boot_id()}) + "\n")
    assert recovery.end_unreadable(paths) == set()
    assert child.wait(20) == -signal.SIGKILL


def test_replica_that_has_ended_on_record_is_not_signalled(
    home: Home, child: subprocess.Popen[bytes]
) -> None:
    process = identity(child)
    recovered(orphan(home, started(0, process), {"e": "exit", "r": 0, "a": 1, "code": 0}))
    recovered(orphan(home, started(0, Process(process.pid, process.start - 1))))
    assert child.poll() is None


def test_what_cannot_be_ended_is_named(
    home: Home, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "GIVE_UP_AFTER", 0.1)
    monkeypatch.setattr(processes, "send", lambda process, signum: False)  # such as another user's
    view = recovered(orphan(home, started(0, identity(child))))
    assert view.msg == f"its supervisor was killed; still running, cannot be ended: pid {child.pid}"
    assert view.state == "FAILED"


def test_at_most_eight_survivors_are_named_the_oldest_first() -> None:
    many = {Process(100 - n, n) for n in range(9)}
    named = "still running, cannot be ended: pid 100, 99, 98, 97, 96, 95, 94, 93"
    assert recovery.describe_survivors(many) == f"{named}, …"
    assert recovery.describe_survivors(set(sorted(many, key=lambda p: p.start)[:8])) == named


def test_unrecorded_process_is_found_by_its_replica(home: Home) -> None:
    paths = orphan(home, {"e": "starting", "r": 0, "a": 1}, {"e": "starting", "r": 1, "a": 2})
    env = {"TORCHX_JOB_ID": f"local_cwd://torchx/{paths.folder.name}", "TORCHX_REPLICA": "w/1"}
    with subprocess.Popen(["sleep", "600"], env=env) as replica:
        try:
            wait_until(lambda: _sleeps(replica.pid), "it has its own environment")
            view = recovered(paths)
            assert replica.wait(20) == -signal.SIGTERM
        finally:
            replica.kill()
    (found,) = view.replicas[1].attempts
    assert (found.number, found.state, found.process and found.process.pid) == (2, "FAILED", replica.pid)
    (not_found,) = view.replicas[0].attempts
    assert (not_found.number, not_found.process) == (1, None)


def _sleeps(pid: int) -> bool:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().startswith(b"sleep\0")


def test_process_older_than_job_is_not_of_it(home: Home) -> None:
    app_id = new_id()
    env = {"TORCHX_JOB_ID": f"local_cwd://torchx/{app_id}"}
    with subprocess.Popen(["sleep", "600"], env=env) as older:
        try:
            wait_until(lambda: _sleeps(older.pid), "it has its own environment")
            start = identity(older).start
            paths = orphan(home, app_id=app_id)
            lines = [json.loads(line) for line in paths.events.read_text().splitlines()]
            for age, spared in ((start + 1, True), (start, False)):
                paths.events.write_text(json.dumps({**lines[0], "start": age}) + "\n")
                paths.reserve.touch()
                recovered(paths)
                assert (older.poll() is None) is spared
        finally:
            older.kill()


def test_command_within_job_spares_itself_and_its_callers(home: Home) -> None:
    paths = orphan(home)
    code = (
        "import sys; from pathlib import Path; from torchx.jobs.paths import JobPaths; "
        "from torchx.jobs.reconcile import reconcile; print(reconcile(JobPaths(Path(sys.argv[1]))).msg)"
    )
    env = {**os.environ, "TORCHX_JOB_ID": f"local_cwd://torchx/{paths.folder.name}"}
    args = ["sh", "-c", '"$@"; echo goes on', "sh", sys.executable, "-c", code, str(paths.folder)]
    done = subprocess.run(args, env=env, capture_output=True)
    assert done.stdout == b"its supervisor was killed\ngoes on\n"


@pytest.mark.parametrize("now", [False, True])
def test_a_request_is_written_before_its_supervisor_is_signalled(
    home: Home, child: subprocess.Popen[bytes], now: bool
) -> None:
    paths = orphan(home)
    end.request(paths, now=now)
    assert paths.cancel.read_bytes() == (b"kill\n" if now else b"cancel\n")
    end.request(paths, now=True)
    assert paths.cancel.read_bytes().endswith(b"\nkill\n"), "a later request does not undo an earlier one"


def test_a_job_that_was_removed_can_be_cancelled(home: Home) -> None:
    end.request(home.job("never-1"))
    assert not home.job("never-1").folder.exists()


def test_a_request_that_reaches_no_supervisor_is_an_error(home: Home) -> None:
    paths = orphan(home)
    paths.cancel.mkdir()
    with pytest.raises(end.StateError, match=r"the job cannot be ended: .*cancel cannot be written"):
        end.request(paths)
    recovered(paths)
    end.request(paths)  # it has ended: nothing is left to do


@pytest.mark.parametrize("guarded", [True, False])
def test_signal_alone_ends_job_whose_request_cannot_be_written(home: Home, guarded: bool) -> None:
    with subprocess.Popen(["sleep", "600"]) as supervisor:
        process = identity(supervisor)
        supervisor.send_signal(signal.SIGSTOP)
        guard = {"guard": list(process)} if guarded else {}
        paths = orphan(home, {"e": "supervisor", "boot": "b", **process._asdict(), **guard})
        paths.cancel.mkdir()
        held = locks.acquire(paths.lock)
        assert held is not None
        try:
            end.request(paths)
            assert supervisor.wait(20) == -signal.SIGTERM, "it was stopped, and is resumed"
        finally:
            os.close(held)
            supervisor.kill()


def test_job_without_lock_has_no_supervisor_to_signal(home: Home, child: subprocess.Popen[bytes]) -> None:
    paths = orphan(home, {"e": "supervisor", "boot": "b", **identity(child)._asdict()})
    child.send_signal(signal.SIGSTOP)
    wait_until(lambda: _is_stopped(child.pid), "it is stopped")
    end.request(paths)
    assert _is_stopped(child.pid)


def _is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] in "Tt"


def test_a_record_is_read_again_only_after_a_change(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = job(home, "job-1")
    newest = max(path.stat().st_ctime for path in (paths.record, paths.events))
    monkeypatch.setattr(reconciling, "TIME_RESOLUTION", 1.0)
    for clock, again in ((newest + 0.5, True), (newest + 1.0, True), (newest + 2.0, False)):
        monkeypatch.setattr(reconciling, "_last", None)
        monkeypatch.setattr(reconciling, "time", SimpleNamespace(time=lambda clock=clock: clock))
        first = reconciling.read(paths)
        assert first.record.app_id == "job-1"
        assert (reconciling.read(paths) is not first) == again, "a file as young as a change may have changed"
    change(paths, name="changed")
    assert reconciling.read(paths).record.name == "changed"


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED"])
def test_a_decided_result_outlives_the_supervisor(home: Home, state: str) -> None:
    code = int(state == "FAILED")
    first = [0, 1] if code else None
    over = {"state": state, "first": first, "msg": "its output"}
    ended = {"e": "exit", "r": 0, "a": 1, "code": code, "over": over}
    paths = orphan(home, started(0), ended, {"e": "cancel"})
    for view in (read(paths), reconcile(paths), load(paths)):
        assert (view.state, view.msg, view.cause) == (state, "its output", None)
        assert view.first_failure == (tuple(first) if first else None)
