"""Keepers beside others: stopped ones, strangers with their names, damaged reports, changes of the clock."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import fakegpus
import pytest
from local import (
    describe,
    ended,
    kill_supervision,
    paths,
    processes_of,
    replicas,
    scheduler,
    sh,
    submit,
    text,
)
from program import pids_of, torchx
from support import wait_until
from users import User, shared_folder

from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.ticket import Ticket
from torchx.leases.holders import Leases, holders, names_in_use, take
from torchx.leases.reception import Reception
from torchx.machine import locks, socket_names
from torchx.queue import ends, keeper, keepers, launch, starts
from torchx.queue.keeper import Link
from torchx.queue.order import Waiter, Wanted
from torchx.schedulers.local import submit as local_submit
from torchx.specs.app import AppDef, Role
from torchx.specs.resources import Resource
from torchx.specs.status import AppState

STRANGER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be several users")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fakegpus.FakeGpus:
    return fakegpus.install(monkeypatch, tmp_path, 2)


def job(script: str = "exec sleep 600", gpus: int = 2) -> Role:
    role = sh(script)
    role.resource = Resource(1, gpus, 64)
    return role


def home() -> Home:
    return Home(Path(os.environ["TORCHX_HOME"]))


def message(app_id: str) -> str:
    described = scheduler().glance(app_id)
    assert described is not None
    return described.msg


def until_message(app_id: str, expected: str) -> None:
    wait_until(lambda: expected in message(app_id), f"{expected!r}")


def until(app_id: str, state: AppState) -> None:
    def look() -> bool:
        described = scheduler().glance(app_id)
        return described is not None and described.state is state

    wait_until(look, f"{app_id} is {state}")


def cancel(*app_ids: str) -> None:
    for app_id in app_ids:
        scheduler().cancel(app_id)
        ended(app_id)


def keeper_pids() -> list[int]:
    return pids_of("queue.keeper", home().path)


def until_no_keeper() -> None:
    wait_until(lambda: not keeper_pids(), "the keeper ends with its last job")


def kill_keepers() -> None:
    for pid in sorted(keeper_pids()):
        os.kill(pid, signal.SIGKILL)
    until_no_keeper()


# --- stopped keepers -------------------------------------------------------------------------------


class Two:
    """A keeper with a job of its own, beside the keeper of another user whose jobs are first."""

    def __init__(self, listener: socket.socket, jobs: int) -> None:
        self.keeper = keeper.Keeper(home(), listener)
        self.other, ours = socket.socketpair()
        self.names = frozenset({"gpu-of-no-test"})
        self.theirs = [self._waiter(STRANGER, f"theirs-{n}", float(n)) for n in range(jobs)]
        link = Link(ours)
        link.uid, link.waiters = STRANGER, self.theirs
        self.keeper._peers = {"other": link}
        mine = self._waiter(os.geteuid(), "mine", 100.0)
        self.keeper._own = {"mine": keeper.Own(paths("mine"), None, -1, mine)}  # type: ignore[arg-type]

    def _waiter(self, uid: int, app_id: str, place: float) -> Waiter:
        return Waiter(uid, app_id, 1.0, (Wanted(self.names, 1),), place_at=place)

    def started(self) -> str:
        """Returns the job that starts by the decision of now."""
        return next((v.waiter.app_id for v in self.keeper._decide() if v.starts), "")

    def close(self) -> None:
        self.other.close()
        self.keeper._peers["other"].connection.close()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(monotonic=0.0)
    monkeypatch.setattr(keeper, "time", SimpleNamespace(monotonic=lambda: clock.monotonic))
    return clock


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    held = socket_names.hold(f"alone-{os.getpid()}")
    assert held is not None
    with held:
        yield held


def test_a_stopped_keeper_with_many_jobs_blocks_no_other(
    listener: socket.socket, now: SimpleNamespace
) -> None:
    with contextlib.closing(Two(listener, 30)) as two:
        assert two.started() == "theirs-0"
        for now.monotonic in (6.0, 30.0, 61.0, 66.5, 100.0, 1000.0, 100_000.0):
            assert two.started() == "mine", now.monotonic
        assert two.other.recv(100) == keepers.LIST
        two.other.sendall(keepers.report(two.theirs))  # it continues
        assert two.keeper._serve()
        assert two.started() == "theirs-0"


def test_keeper_that_starts_nothing_is_skipped_each_minute(
    listener: socket.socket, now: SimpleNamespace
) -> None:
    """It answers: a program may use the GPU of its job."""
    with contextlib.closing(Two(listener, 1)) as two:
        for minute in range(5):
            now.monotonic = minute * keeper.PASSED_FOR
            assert two.started() == "theirs-0"
            now.monotonic += 0.1
            two.other.sendall(keepers.report(two.theirs))
            assert two.keeper._serve()
            for seconds in (5.5, 30.0, 59.0):
                now.monotonic = minute * keeper.PASSED_FOR + seconds
                assert two.started() == "mine", now.monotonic


def test_a_keeper_that_answers_is_queried_again_later(listener: socket.socket, now: SimpleNamespace) -> None:
    """Each reply leads to a decision: without a pause, two keepers would only write to each other."""
    with contextlib.closing(Two(listener, 1)) as two:
        queries = []
        for now.monotonic in (0.0, 0.1, 0.2, 4.9):
            assert two.started() == "theirs-0"
            with contextlib.suppress(BlockingIOError):
                queries.append(two.other.recv(100, socket.MSG_DONTWAIT))
            two.other.sendall(keepers.report(two.theirs))
            assert two.keeper._serve()
        assert queries == [keepers.LIST]


@as_root
@pytest.mark.long
def test_jobs_of_stopped_user_do_not_block_queue(
    machine: fakegpus.FakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared_folder() as folder:
        gpus = fakegpus.install(monkeypatch, folder, 2)
        first = submit(job())
        until(first, AppState.RUNNING)
        with User(STRANGER, folder / "theirs") as other:
            theirs = [other.submit("exec sleep 600", 2) for _ in range(3)]
            mine = submit(job("echo mine"))
            stopped = other.processes("queue.keeper")
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            cancel(first)
            assert ended(mine).state is AppState.SUCCEEDED
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            wait_until(lambda: other.message(theirs[0]).startswith("RUNNING"), "they get their place back")
            for module, number in (("queue.keeper", signal.SIGKILL), ("supervisor", signal.SIGTERM)):
                for pid in other.processes(module):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
            wait_until(lambda: not other.processes(), "their processes have ended")
        wait_until(lambda: not {f"gpu-{gpu}" for gpu in gpus.ids} & names_in_use(), "all GPUs are free")


def test_a_submission_does_not_wait_for_a_stopped_keeper(
    machine: fakegpus.FakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submit(job())
    until(first, AppState.RUNNING)
    second = submit(job())
    stopped = keeper_pids()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        info = scheduler().submit_dryrun(AppDef("job", [job("echo third")]), {})
        with monkeypatch.context() as patched:
            patched.setattr(launch, "ANSWERS_WITHIN", 0.2)
            third = scheduler().schedule(info)
        assert [note for note in info.notes if "does not answer" in note], info.notes
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    cancel(first, second)
    scheduler().reconcile(third)
    assert ended(third).state is AppState.SUCCEEDED
    until_no_keeper()


# --- names and reports of others --------------------------------------------------------------------


@contextlib.contextmanager
def stranger(name: str, *, accepts: bool) -> Iterator[None]:
    """A process of another user that holds a name."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.setresuid(STRANGER, STRANGER, STRANGER)
            held = socket_names.hold(name)
            assert held is not None
            held.listen(16 if accepts else 0)
            full = [] if accepts else [socket_names.connect(name) for _ in range(4)]
            os.write(writer, b".")
            while accepts:
                full.append(held.accept()[0])  # kept open, without an answer
            signal.pause()
        finally:
            os._exit(1)
    try:
        os.close(writer)
        assert os.read(reader, 1) == b"."
        yield
    finally:
        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@as_root
@pytest.mark.parametrize("accepts", [True, False])
def test_stranger_with_name_of_keeper_does_no_harm(
    machine: fakegpus.FakeGpus, accepts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keepers, "ANSWERS_WITHIN", 0.2)
    with stranger(keepers.name_of(home().path), accepts=accepts):
        first = submit(job())
        until(first, AppState.RUNNING)
        second, third = submit(job("echo second")), submit(job("echo third"))
        until_message(second, "first in the queue")
        assert len(keeper_pids()) == 2, "one keeper and its guard"
        kill_keepers()  # the stranger could take its name now
        scheduler().reconcile(second)
        scheduler().reconcile(third)
        cancel(first)
        for app_id, output in ((second, "second\n"), (third, "third\n")):
            assert (ended(app_id).state, text(app_id)) == (AppState.SUCCEEDED, output)
    until_no_keeper()
    first = submit(job())
    until(first, AppState.RUNNING)
    second = submit(job())
    assert keepers.name_of(home().path) in keepers.names(), "it has its usual name again"
    cancel(second, first)
    until_no_keeper()


REPORTS = [
    {"sets": [[]], "jobs": [["e", 1.0, 0, None, False, []]]},
    {"sets": [["gpu-0"]], "jobs": [["e", 1.0, 0, None, False, [[0, 0]]]]},
    {"sets": [["gpu-0"]], "jobs": [["e", 1.0, 0, None, False, [[-1, 1]]]]},
    {"sets": [["gpu-0"]], "jobs": [["e", 1.0, 0, None, False, [[1e999, 1]]]]},
    {"sets": [["gpu-0"]], "jobs": [["e", 1.0, 0, None, False, [[0, 2]]]]},
    {"sets": [["gpu-0"]], "jobs": [["e", 1.0, 0, None, False, [[0, 0]] * 3 + [[0, 1]]]]},
    {"sets": [["gpu-0"]], "jobs": [["e", 1.0, 0, -5, False, [[0, 1]]]]},
    {"sets": [["gpu-0"]], "jobs": [["e", 1.0, 0, None, False, [[0, 1]]]], "places": []},
    {"sets": [["gpu-0"]], "jobs": [["e", 1.0, 0, None, False, [[0, 1]]]], "places": ["x"]},
    {"sets": [["gpu-0"]], "jobs": {"a": 1}},
    [],
]


@pytest.mark.parametrize("report", REPORTS)
def test_damaged_reports_are_left_out(report: object) -> None:
    assert keepers.parse(json.dumps(report).encode(), 3) == []


def test_commands_work_beside_a_damaged_report(machine: fakegpus.FakeGpus) -> None:
    report = {"sets": [[f"gpu-{gpu}" for gpu in machine.ids]], "jobs": [["e", 1.0, 0, None, False, [[0, 0]]]]}
    listener = socket_names.hold(f"{keepers.PREFIX}odd-{os.getpid()}")
    assert listener is not None
    listener.listen(64)
    pid = os.fork()
    if not pid:
        kept = []
        while True:
            kept.append(listener.accept()[0])
            kept[-1].sendall(json.dumps(report).encode() + b"\n")
    try:
        first = submit(job())
        until(first, AppState.RUNNING)
        done = torchx("run", "-s", "local_cwd", "-d", "utils.sh", "echo", "x")
        assert (done.returncode, "local_cwd://" in done.stdout) == (0, True), done.stderr
        second = submit(job("echo second"))
        until_message(second, "first in the queue")
        for command in ("list", "queue"):
            done = torchx(command)
            assert (done.returncode, second in done.stdout) == (0, True), done.stderr
        cancel(first)
        assert ended(second).state is AppState.SUCCEEDED
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        listener.close()
    until_no_keeper()


# --- damaged records, killed supervisors ------------------------------------------------------------


def test_the_lock_of_a_damaged_record_is_released(machine: fakegpus.FakeGpus) -> None:
    first = submit(job())
    until(first, AppState.RUNNING)
    second, third = submit(job()), submit(job("echo third"))
    kill_keepers()
    paths(second).record.write_text("{")
    for app_id in (second, third):
        launch.wake(home(), paths(app_id))
    assert keeper_pids()
    assert not locks.is_held(paths(second).lock)
    scheduler().delete(second)
    cancel(first)
    assert ended(third).state is AppState.SUCCEEDED
    until_no_keeper()


def test_a_ticket_without_needs_ends_no_keeper(machine: fakegpus.FakeGpus) -> None:
    first = submit(job())
    until(first, AppState.RUNNING)
    second, third = submit(job()), submit(job("echo third"))
    kill_keepers()
    ticket = paths(second).ticket
    ticket.write_text(json.dumps({**json.loads(ticket.read_text()), "gpus": 0}))
    for app_id in (second, third):
        launch.wake(home(), paths(app_id))
    assert "it needs no resource" in (home().queue / ".keeper.log").read_text()
    until_message(third, "first in the queue")
    cancel(second, first)
    assert ended(third).state is AppState.SUCCEEDED
    until_no_keeper()


IGNORES_TERM = "trap '' TERM; echo $$; while :; do sleep 0.1; done"


@pytest.mark.parametrize("waits", [True, False])
def test_gpus_of_unsupervised_job_are_used_after_its_end(machine: fakegpus.FakeGpus, waits: bool) -> None:
    first = submit(job(IGNORES_TERM), grace_period=0.2)
    wait_until(lambda: text(first), "its program runs")
    script = f"if kill -0 {text(first).strip()} 2>/dev/null; then echo alive; else echo gone; fi"
    if waits:
        second = submit(job(script))
    kill_supervision(first)
    if not waits:
        second = submit(job(script))
    assert ended(second).state is AppState.SUCCEEDED
    assert text(second) == "gone\n"
    assert processes_of(first) == []
    assert ended(first).state is AppState.FAILED
    until_no_keeper()


@pytest.mark.long
def test_submissions_check_no_lock_of_a_waiting_job(
    machine: fakegpus.FakeGpus, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They find jobs without a supervisor; such checks would be the square of the number of jobs."""
    checked: list[Path] = []
    started: list[str] = []
    wait_free = locks.wait_free

    def counted(path: Path, timeout: float | None) -> bool:
        checked.append(path)
        return wait_free(path, timeout)

    def start(mine: JobPaths, ticket: Ticket, names: Sequence[str], lock: int) -> list[str]:
        started.append(ticket.app_id)
        ends.finish(home(), mine, "FAILED", "")
        return []

    monkeypatch.setattr(launch, "wake", lambda *given: None)
    monkeypatch.setattr(starts, "start", start)
    monkeypatch.setattr(locks, "wait_free", counted)
    leases = take([f"gpu-{gpu}" for gpu in machine.ids])
    assert leases is not None
    with leases:
        jobs = [submit(job("true", gpus=1)) for _ in range(6)]
    own = keeper.Keeper(home(), listener)
    for app_id in jobs:
        own._look_at(app_id)
    while own._own:
        own._start()
    assert (started, checked) == (jobs, [])
    assert {row.state for row in scheduler().list()} == {AppState.FAILED}


def test_unreadable_records_of_others_stop_no_keeper(
    machine: fakegpus.FakeGpus, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def start(mine: JobPaths, ticket: Ticket, names: Sequence[str], lock: int) -> list[str]:
        started.append(ticket.app_id)
        ends.finish(home(), mine, "FAILED", "")
        return []

    def fail(home: object) -> list[str]:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(launch, "wake", lambda *given: None)
    monkeypatch.setattr(starts, "start", start)
    leases = take([f"gpu-{gpu}" for gpu in machine.ids])
    assert leases is not None
    with leases:
        app_id = submit(job("true", gpus=1))
    own = keeper.Keeper(home(), listener)
    own._look_at(app_id)
    monkeypatch.setattr(keeper, "end_orphans", fail)
    own._start()
    assert started == [app_id]


# --- changes of the system clock --------------------------------------------------------------------


class Earlier(datetime):
    """A clock that was set back by an hour."""

    @classmethod
    def now(cls, tz: object = None) -> Earlier:
        return cls.fromtimestamp(time.time() - 3600)


def test_clock_that_was_set_back_moves_no_job_ahead(
    machine: fakegpus.FakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submit(job())
    until(first, AppState.RUNNING)
    second = submit(job())
    monkeypatch.setattr(local_submit, "datetime", Earlier)
    third = submit(job())
    until_message(second, "first in the queue")
    until_message(third, "second in the queue")
    rows = json.loads(torchx("queue", "-o", "json").stdout)["waiting"]
    waits = {row["app_id"]: time.time() - datetime.fromisoformat(row["since"]).timestamp() for row in rows}
    assert waits[third] < 600, "no hour is added"
    cancel(third, second, first)
    until_no_keeper()


def test_clock_that_was_set_back_delays_no_second_look(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that a program used without a lease is tried again after some seconds."""
    with contextlib.closing(Two(listener, 0)) as two:
        two.keeper._blocked = {name: time.monotonic() - 0.001 for name in two.names}
        monkeypatch.setattr(time, "time", lambda: 1000.0)
        assert two.started() == "mine"


def test_the_end_of_a_holder_ignores_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"clock-{os.getpid()}"
    leases: Leases | None = take([name])
    assert leases is not None
    with leases:
        reception = Reception(leases, "app-1", time.time() + 100)
        true = time.time
        monkeypatch.setattr(time, "time", lambda: true() - 3600)
        pid = os.fork()
        if not pid:
            while True:
                reception.serve(block=True)
        try:
            holder = holders([name]).get(name)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert holder is not None
    assert holder.ends is not None
    assert 0 < holder.ends - time.time() <= 101


@pytest.mark.parametrize("step", [-3600, 100_000])
def test_running_job_lasts_as_long_after_change_of_clock(
    step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit(sh("exec sleep 600"))
    until(app_id, AppState.RUNNING)
    true = time.time
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: true() + step)
        found = describe(app_id)
        listed = next(line for line in scheduler().list() if line.app_id == app_id)
        attempt = replicas(found)[0].attempts[0]
        for at in (found.started_at, found.submitted_at, listed.started_at, attempt.started_at):
            assert at is not None
            assert 0 <= time.time() - at.timestamp() < 600
    cancel(app_id)
    assert paths(app_id).events.read_text().count('"uptime":') == 1
