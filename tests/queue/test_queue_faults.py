"""Waiting jobs and few descriptors, foreign reports, removed records, other commands."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import socket
import threading
from pathlib import Path

import fakegpus
import pytest
from local import ended, paths, scheduler, sh, submit
from program import answer, torchx
from support import wait_until

from torchx.jobs.paths import Home
from torchx.jobs.ticket import Ticket, mark, marked
from torchx.leases.holders import names_in_use, take
from torchx.machine import socket_names
from torchx.queue import keepers, launch
from torchx.queue.keeper import Keeper
from torchx.queue.order import decide
from torchx.specs.app import Role
from torchx.specs.resources import Resource
from torchx.specs.status import AppState


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fakegpus.FakeGpus:
    return fakegpus.install(monkeypatch, tmp_path, 2)


def job(script: str = "exec sleep 600", gpus: int = 2) -> Role:
    role = sh(script)
    role.resource = Resource(1, gpus, 64)
    return role


def until(app_id: str, state: AppState) -> None:
    def look() -> bool:
        described = scheduler().glance(app_id)
        return described is not None and described.state is state

    wait_until(look, f"{app_id} is {state}")


def home() -> Home:
    return Home(Path(os.environ["TORCHX_HOME"]))


def cancel(*app_ids: str) -> None:
    for app_id in app_ids:
        scheduler().cancel(app_id)
        ended(app_id)


def until_no_keeper() -> None:
    name = keepers.name_of(home().path)
    wait_until(lambda: name not in keepers.names(), "the keeper ends with its last job")


def test_more_jobs_than_open_files(machine: fakegpus.FakeGpus) -> None:
    """The keeper raises its soft limit, which its jobs do not inherit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = submit(job())
    until(first, AppState.RUNNING)
    until_no_keeper()  # it may have started the first job, and has the limit of that time
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        waiting = [submit(job("until test $(ulimit -Sn) = 64; do sleep 0.01; done", 1)) for _ in range(3)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    keeper = max(_keeper_pids())
    assert resource.prlimit(keeper, resource.RLIMIT_NOFILE) == (hard, hard)
    cancel(first)
    for app_id in waiting:
        assert ended(app_id).state is AppState.SUCCEEDED
    until_no_keeper()


def _keeper_pids() -> list[int]:
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"torchx.queue.keeper" in command and os.fsencode(home().path) in command.split(b"\0"):
            found.append(int(pid))
    return found


def test_reports_of_others_do_no_harm(machine: fakegpus.FakeGpus) -> None:
    """Keepers that answer with nonsense, with too much or not at all; no lease is taken on their word."""
    first = submit(job())
    until(first, AppState.RUNNING)
    listeners = []
    for number, data in enumerate((b"\xff\0{\n", b"[" * 5000 + b"\n", b'{"sets": [[1]], "jobs": 3}\n', b"")):
        listener = socket_names.hold(f"{keepers.PREFIX}!{number}-{os.getpid()}")
        assert listener is not None
        listener.listen(64)
        listeners.append((listener, data))
    pid = os.fork()
    if not pid:
        try:
            _answer_all(listeners)
        finally:
            os._exit(0)
    try:
        second = submit(job("echo started"))
        shown = torchx("queue")
        assert (shown.returncode, second in shown.stdout) == (0, True), shown.stderr
        assert "2 GPUs: 0 of 2 are free; first in the queue" in shown.stdout
        cancel(first)
        assert ended(second).state is AppState.SUCCEEDED
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        for listener, _ in listeners:
            listener.close()
    until_no_keeper()


def _answer_all(listeners: list[tuple[socket.socket, bytes]]) -> None:
    by_number = {listener.fileno(): (listener, answer) for listener, answer in listeners}
    kept = []
    while True:
        for number in select.select(list(by_number), [], [])[0]:
            connection, _ = by_number[number][0].accept()
            connection.sendall(by_number[number][1])
            kept.append(connection)


def test_the_keeper_ends_if_its_jobs_are_removed(machine: fakegpus.FakeGpus) -> None:
    first = submit(job())
    until(first, AppState.RUNNING)
    second, third = submit(job()), submit(job("echo started"))
    shutil.rmtree(paths(second).folder)
    cancel(first)
    assert ended(third).state is AppState.SUCCEEDED
    until_no_keeper()
    assert not {f"gpu-{gpu}" for gpu in machine.ids} & names_in_use()
    assert second not in marked(home())


def test_commands_for_a_waiting_job(machine: fakegpus.FakeGpus, tmp_path: Path) -> None:
    first = submit(job())
    until(first, AppState.RUNNING)
    second = submit(job("echo started; exec sleep 600"))
    reason = "2 GPUs: 0 of 2 are free; first in the queue"
    assert f"waiting for {reason}" in torchx("status", second).stdout
    why = torchx("why", second).stdout
    assert f"cause        queued: for {reason}" in why
    assert f"{first} holds GPU 0, 1" in why
    assert answer("why", second, "-o", "json")["commands"][0] == "torchx queue"
    torchx("queue", "hold", second)
    data = answer("why", second, "-o", "json")
    assert (data["cause"]["class"], data["commands"][0]) == ("held", f"torchx queue release {second}")
    assert "free resources" not in torchx("why", second).stdout
    torchx("queue", "release", second)
    assert torchx("log", second).stdout == ""
    assert torchx("events", second).returncode == 0
    assert second not in torchx("prune", "--older-than", "0", "--dryrun").stdout
    done = torchx("wait", "--for", "running", "--timeout", "1s", second)
    assert done.returncode not in (0, 2), done.stderr
    again = torchx("rerun", "-d", second)
    assert again.returncode == 0, again.stderr
    third = again.stdout.split("/")[-1].strip()
    assert "second in the queue" in torchx("status", third).stdout
    cancel(first)
    done = torchx("wait", "--for", "running", second)
    assert done.returncode == 0, done.stderr
    cancel(third, second)
    until_no_keeper()


def test_lease_that_is_released_after_decision_is_noticed(machine: fakegpus.FakeGpus) -> None:
    """The keeper would sleep forever: nothing else reports the end of a holder."""
    leases = take([f"gpu-{gpu}" for gpu in machine.ids])
    assert leases is not None
    app_id = submit(job())
    for pid in sorted(_keeper_pids()):
        os.kill(pid, signal.SIGKILL)
    until_no_keeper()
    with contextlib.ExitStack() as opened:
        # a name that no other process connects to, which would wake the keeper too
        listener = socket_names.hold(f"alone-{app_id}")
        assert listener is not None
        listener.listen()
        keeper = Keeper(home(), opened.enter_context(listener))
        keeper._look_at(app_id)
        verdicts = keeper._start()
        assert [verdict.starts for verdict in verdicts] == [False]
        leases.close()
        waiting = threading.Thread(target=keeper._wait, args=(verdicts,), daemon=True)
        waiting.start()
        waiting.join(60)
        assert not waiting.is_alive()
        os.close(keeper._own[app_id].lock)
    cancel(app_id)


def test_job_with_a_briefly_held_lock_is_not_forgotten(machine: fakegpus.FakeGpus) -> None:
    """As by a query that checks it, at the moment when its keeper takes it."""
    first = submit(job())
    until(first, AppState.RUNNING)
    second = submit(job())
    for pid in sorted(_keeper_pids()):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not _keeper_pids(), "the keeper and its guard are dead")
    with paths(second).lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        launch.wake(home(), paths(second))
    cancel(first)
    until(second, AppState.RUNNING)  # which only reads
    cancel(second)
    until_no_keeper()


def test_a_ticket_of_an_ended_job_is_removed(machine: fakegpus.FakeGpus) -> None:
    """As a keeper leaves it that is killed right after a start; it has the environment of the submission."""
    app_id = submit(job("true"))
    assert ended(app_id).state is AppState.SUCCEEDED
    record = paths(app_id)
    Ticket(app_id, 1.0).save(record)
    mark(home(), record)
    record.origin.write_text("{}")
    assert scheduler().wait(app_id, None) is True
    scheduler().reconcile(app_id)
    assert (record.ticket.exists(), record.origin.exists(), marked(home())) == (False, False, [])


@pytest.mark.long
def test_a_report_of_many_jobs_is_cut() -> None:
    jobs = [[f"a-{n}", 1, 0, None, False, [[n, 1]]] for n in range(keepers.MOST_WAITERS + 1)]
    line = json.dumps({"sets": [[f"gpu-{n}"] for n in range(len(jobs))], "jobs": jobs}).encode()
    waiters = keepers.parse(line, 3)
    assert len(waiters) == keepers.MOST_WAITERS
    verdicts = decide(waiters, {"gpu-9000"}, {}, 0.0)
    assert [verdict.waiter.app_id for verdict in verdicts if verdict.starts] == ["a-9000"]
