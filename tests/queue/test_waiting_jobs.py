"""Local jobs that wait for GPUs: order, changes, kills, restarts of the machine, several users."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import fakegpus
import pytest
from local import ended, scheduler, sh, submit, text
from program import COMMAND, environment, pids_of, torchx
from support import wait_until
from users import UIDS, User, shared_folder

from torchx.jobs.paths import Home
from torchx.jobs.ticket import Ticket, marked
from torchx.leases.gpus import user_name
from torchx.leases.holders import names_in_use
from torchx.leases.machine import cpu_names, memory_unit
from torchx.machine import locks, processes, socket_names
from torchx.machine.processes import Process
from torchx.queue import keepers, reasons
from torchx.queue.order import Waiter, Wanted
from torchx.specs.app import Role
from torchx.specs.resources import Resource
from torchx.specs.status import AppState


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fakegpus.FakeGpus:
    return fakegpus.install(monkeypatch, tmp_path, 4)


def job(gpus: int, script: str = "exec sleep 600", ports: dict[str, int] | None = None) -> Role:
    role = sh(script)
    role.port_map = ports or {}
    role.resource = Resource(1, gpus, 64)
    return role


def state(app_id: str) -> AppState:
    described = scheduler().glance(app_id)
    assert described is not None
    return described.state


def message(app_id: str) -> str:
    described = scheduler().glance(app_id)
    assert described is not None
    return described.msg


def until_running(app_id: str) -> None:
    wait_until(lambda: state(app_id) is AppState.RUNNING, f"{app_id} runs")


def until_message(app_id: str, expected: str) -> None:
    wait_until(lambda: expected in message(app_id), f"{expected!r}")


def home() -> Home:
    return Home(Path(os.environ["TORCHX_HOME"]))


def keeper_processes() -> list[int]:
    """Returns the pids of the keepers of this test's state home."""
    return pids_of("queue.keeper", home().path)


def until_no_keeper() -> None:
    wait_until(lambda: not keeper_processes(), "the keeper ends with its last job")
    assert marked(home()) == []


def queue() -> dict[str, list[dict[str, Any]]]:
    """Returns the queue of this machine, without the jobs of other tests."""
    found = json.loads(torchx("queue", "-o", "json").stdout)
    own = set(marked(home()))
    return {**found, "waiting": [row for row in found["waiting"] if row["own"] or row["app_id"] in own]}


def cancel(*app_ids: str) -> None:
    for app_id in app_ids:
        scheduler().cancel(app_id)
        ended(app_id)


def test_jobs_start_in_their_order_when_gpus_become_free(machine: fakegpus.FakeGpus) -> None:
    one = submit(job(3))
    until_running(one)
    show = "echo $CUDA_VISIBLE_DEVICES $MINE $TORCHX_PORT_WEB; exec sleep 600"
    os.environ["MINE"] = "of the submission"
    two = submit(job(2, show, {"web": 8080}))
    os.environ["MINE"] = "changed"
    three = submit(job(1))
    until_message(two, "waiting for 2 GPUs: 1 of 4 is free; first in the queue")
    until_message(three, "waiting for 1 GPU: 1 of 4 is free; second in the queue")
    assert (state(two), state(three)) == (AppState.SUBMITTED, AppState.SUBMITTED)
    listed = {line.app_id: line.msg for line in scheduler().list()}
    assert "second in the queue" in listed[three]
    assert scheduler().wait(two, timeout=0.1) is False
    cancel(one)
    until_running(two)
    until_running(three)
    line = wait_until(lambda: text(two), "it prints")
    gpus, *mine, port = line.split()
    assert (len(gpus.split(",")), mine, port.isdecimal()) == (2, ["of", "the", "submission"], True)
    cancel(two, three)
    until_no_keeper()
    assert not {f"gpu-{gpu}" for gpu in machine.ids} & names_in_use()
    assert not home().job(two).origin.exists()


def test_an_attached_run_shows_why_it_waits(machine: fakegpus.FakeGpus, tmp_path: Path) -> None:
    first = submit(job(4))
    until_running(first)
    with subprocess.Popen(
        [*COMMAND, "run", "-s", "local_cwd", "utils.sh", "--gpu", "2", "echo started"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(),
    ) as run:  # fmt: skip
        assert run.stderr is not None
        # without the text that a keeper without an answer in time results in
        lines = (line for line in iter(run.stderr.readline, "") if line != f"{reasons.UNKNOWN}\n")
        assert next(lines) == "note: waiting for 2 GPUs: 0 of 4 are free; first in the queue\n"
        (waiting,) = wait_until(lambda: marked(home()), "it waits")
        torchx("queue", "hold", waiting)
        assert next(lines) == f"held in the queue; to release it: torchx queue release {waiting}\n"
        torchx("queue", "release", waiting)
        assert next(lines) == "waiting for 2 GPUs: 0 of 4 are free; first in the queue\n"
        cancel(first)
        assert next(lines).endswith("started\n")
        assert run.wait(120) == 0
    found = [json.loads(line) for line in torchx("events", waiting, "-o", "json").stdout.splitlines()]
    assert [event["kind"] for event in found[:3]] == ["submitted", "waiting", "started"]
    assert found[1]["message"] == "waiting for 2 GPUs: 0 of 4 are free; first in the queue"
    until_no_keeper()


HOLDERS = """
first=$(torchx run -d -s local_cwd -cfg reserve=true utils.sh --cpu 1 --memMB 1 'exec sleep 600')
second=$(torchx run -d -s local_cwd -cfg reserve=true utils.sh --cpu $CPUS 'exec sleep 600')
torchx queue -o json
torchx queue
torchx cancel $first $second
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a network namespace with leases of its own")
def test_the_queue_shows_holders_of_cpus_and_memory(tmp_path: Path) -> None:
    script = HOLDERS.replace("torchx ", f"{shlex.join(COMMAND)} ")
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script],
        env=environment({"CPUS": str(len(cpu_names()))}), stdout=subprocess.PIPE, text=True, check=True,
        timeout=280,
    )  # fmt: skip
    data, at = json.JSONDecoder().raw_decode(done.stdout)
    (held,) = data["reserved"]
    assert (held["cpus"], held["memory"], held["user"]) == (1, memory_unit(), user_name(os.geteuid()))
    app_id = held["app"]
    assert app_id.startswith("sh-")
    heads, row = done.stdout[at:].strip().splitlines()[:2]
    assert heads.split() == ["CPUS", "MEMORY", "HELD", "BY", "SINCE"]
    assert row.split()[0] == "1" and app_id in row


def test_a_released_job_is_not_shown_as_held(
    machine: fakegpus.FakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decisions of the moment before are used again."""

    def is_held() -> bool:
        decided = reasons.verdicts().get((os.geteuid(), waiting))
        return decided is not None and decided.waiter.held

    monkeypatch.setattr(reasons, "FRESH_FOR", 0.0)
    first = submit(job(4))
    until_running(first)
    waiting = submit(job(2))
    torchx("queue", "hold", waiting)
    wait_until(is_held, "the keeper reports that it is held")
    monkeypatch.setattr(reasons, "FRESH_FOR", 600.0)
    torchx("queue", "release", waiting)
    assert message(waiting) == reasons.UNKNOWN
    for app_id in (first, waiting):
        cancel(app_id)
    until_no_keeper()


def test_the_place_of_a_job_can_be_changed(machine: fakegpus.FakeGpus) -> None:
    first = submit(job(4))
    until_running(first)
    a, b, c = (submit(job(4)) for _ in range(3))
    urgent = submit(job(4), priority=5)

    def order() -> list[str]:
        return [row["app_id"] for row in queue()["waiting"]]

    assert order() == [urgent, a, b, c]
    torchx("queue", "first", c, b)
    assert order() == [urgent, c, b, a]
    torchx("queue", "hold", urgent)
    until_message(urgent, f"held in the queue; to release it: torchx queue release {urgent}")
    shown = torchx("queue").stdout
    places = [line.split()[1] for line in shown.splitlines() if line.endswith("in the queue")]
    assert [app_id for app_id in places if app_id in (a, b, c)] == [c, b, a]
    cancel(first)
    until_running(c)
    torchx("queue", "release", urgent)
    cancel(c)
    until_running(urgent)
    done = torchx("queue", "hold", urgent)
    assert (done.returncode, "does not wait in the queue: it is RUNNING" in done.stderr) == (1, True)
    done = torchx("queue", "hlod", a)
    assert (done.returncode, "did you mean `hold`" in done.stderr) == (2, True)
    assert torchx("queue", "hold").returncode == 2
    # a job that waits can be cancelled and deleted
    cancel(a)
    assert state(a) is AppState.CANCELLED
    scheduler().delete(b)
    assert not scheduler().exists(b)
    cancel(urgent)
    until_no_keeper()


@pytest.mark.parametrize("guard_too", [False, True])
def test_waiting_jobs_survive_a_kill_of_their_keeper(machine: fakegpus.FakeGpus, guard_too: bool) -> None:
    first = submit(job(4))
    until_running(first)
    second = submit(job(4))
    guard, keeper = sorted(
        wait_until(lambda: p if len(p := keeper_processes()) == 2 else [], "it has a guard")
    )
    for pid in [keeper, *([guard] if guard_too else [])]:
        os.kill(pid, signal.SIGKILL)
    if guard_too:
        wait_until(lambda: not locks.is_held(home().job(second).lock), "both are dead")
        assert state(second) is AppState.SUBMITTED, "a query changes nothing"
        assert not keeper_processes()
        scheduler().reconcile(second)  # as each command for the job does
    wait_until(lambda: len(keeper_processes()) == 2, "there is another keeper")
    cancel(first)
    until_running(second)
    cancel(second)
    until_no_keeper()


def test_after_restart_of_machine_jobs_wait_for_their_release(machine: fakegpus.FakeGpus) -> None:
    first = submit(job(4))
    until_running(first)
    second = submit(job(4, "echo started"))
    third = submit(job(4))
    for pid in keeper_processes():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not keeper_processes(), "it is dead")
    for app_id in (second, third):  # as if they had waited before
        paths = home().job(app_id)
        Ticket.load(paths)._replace(boot_id="another").save(paths)
    expected = (
        f"the machine was restarted while it waited; to let it wait again: torchx queue release {second}"
    )
    assert message(second) == expected
    scheduler().reconcile(second)
    assert state(second) is AppState.SUBMITTED
    assert not keeper_processes()
    rows = {row["app_id"]: row["reason"] for row in queue()["waiting"]}
    assert rows == dict.fromkeys((second, third), "not started since the machine was restarted")
    cancel(first, third)
    torchx("queue", "release", second)
    assert ended(second).state is AppState.SUCCEEDED
    assert text(second) == "started\n"
    until_no_keeper()


def test_a_gpu_that_another_program_uses_is_not_free(machine: fakegpus.FakeGpus) -> None:
    first = submit(job(4))
    until_running(first)
    second = submit(job(3, "echo $CUDA_VISIBLE_DEVICES"))
    machine.compute((1, os.getpid(), "python3"))
    cancel(first)
    assert ended(second).state is AppState.SUCCEEDED
    assert text(second) == "0,2,3\n"


def test_a_job_names_the_use_of_its_gpus(machine: fakegpus.FakeGpus) -> None:
    machine.compute(*((number, os.getpid(), "python3") for number in range(4)))
    app_id = submit(job(1))
    until_message(app_id, "waiting in the queue: another program may use its GPUs; to see it: torchx queue")
    machine.compute()
    until_running(app_id)
    cancel(app_id)


def test_gpu_of_killed_job_is_no_other_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its supervisor and its guard are dead, but its program computes on."""
    with shared_folder() as folder:
        machine = fakegpus.install(monkeypatch, folder, 1)
        with User(UIDS[1], folder / "theirs") as theirs, User(UIDS[2], folder / "own") as own:
            first = theirs.submit("exec sleep 600", 1)
            start = wait_until(lambda: [e for e in theirs.events(first) if e["e"] == "start"], "it runs")[0]
            program = Process(start["pid"], start["start"])
            machine.compute((0, program.pid, "sleep"))
            supervisor = next(event for event in theirs.events(first) if event["e"] == "supervisor")
            for pid, started in (supervisor["guard"], (supervisor["pid"], supervisor["start"])):
                processes.send(Process(pid, started), signal.SIGKILL)
            wait_until(lambda: not {f"gpu-{gpu}" for gpu in machine.ids} & names_in_use(), "no lease is left")
            second = own.submit("exit 0", 1)
            assert processes.is_alive(program)
            assert own.message(second).startswith("SUBMITTED waiting")
            assert [event["e"] for event in own.events(second)] == []
            assert theirs.unfinished() == [first]
            assert not processes.is_alive(program), "a command of its user has ended it"
            machine.compute()
            wait_until(lambda: not own.unfinished(), "the second job ends")
            assert own.message(second).startswith("SUCCEEDED")


def test_a_job_that_cannot_start_has_failed(machine: fakegpus.FakeGpus) -> None:
    first = submit(job(4))
    until_running(first)
    second = submit(job(4))
    home().job(second).origin.write_text("[]")
    cancel(first)
    result = ended(second)
    assert result.state is AppState.FAILED
    assert "it could not be started" in result.msg
    until_no_keeper()


def test_damaged_tickets_and_reports_do_no_harm(machine: fakegpus.FakeGpus) -> None:
    first = submit(job(4))
    until_running(first)
    second, third = submit(job(4)), submit(job(4))
    home().job(second).ticket.write_text('{"gpus": {}}')
    assert "ticket.json is damaged" in message(second)
    assert torchx("queue").returncode == 0
    assert keepers.parse(b'{"sets": [], "jobs": [["a", 1, 0, null, false, [[3, 1]]]]}\n', 0) == []
    assert keepers.parse(b"[" * 100_000 + b"\n", 0) == []
    assert (
        keepers.parse(b'{"sets": [["gpu-0"]], "jobs": [["a", 1, 0, null, false, [[0, 1]]]]}\n', 3)[0].uid == 3
    )
    for pid in keeper_processes():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not locks.is_held(home().job(third).lock), "it is dead")
    scheduler().reconcile(third)
    cancel(first)
    until_running(third)
    cancel(third)
    scheduler().delete(second)
    until_no_keeper()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be several users")
def test_users_share_one_order(
    machine: fakegpus.FakeGpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keepers of two users report to each other; a job of the other user is first."""
    first = submit(job(4))
    until_running(first)
    others = tmp_path / "other"
    others.mkdir(mode=0o700)
    os.chown(others, 65534, 65534)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == 0 and folder.stat().st_mode & 0o777 == 0o700:
            folder.chmod(0o711)
    tmp_path.chmod(0o711)
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.setresuid(65534, 65534, 65534)
            os.environ["TORCHX_HOME"] = str(others)
            listener = socket_names.hold(keepers.name_of(others))
            assert listener is not None
            listener.listen(16)
            theirs = Waiter(65534, "theirs-1", 1.0, (Wanted(frozenset(f"gpu-{g}" for g in machine.ids), 3),))
            os.write(writer, b".")
            while True:  # a keeper that reports one job to each that connects
                connection, _ = listener.accept()
                connection.sendall(keepers.report([theirs]))
        except BaseException:
            os._exit(1)
    try:
        assert os.read(reader, 1) == b"."
        mine = submit(job(4))
        until_message(mine, "second in the queue")
        rows = json.loads(torchx("queue", "-o", "json").stdout)["waiting"]
        rows = [row for row in rows if row["app_id"] in (mine, "theirs-1")]  # not those of other tests
        assert [(row["own"], row["app_id"]) for row in rows] == [(False, "theirs-1"), (True, mine)]
        cancel(first)
        # its keeper does not start it, but mine waits for a while all the same
        wait_until(lambda: not {f"gpu-{gpu}" for gpu in machine.ids} & names_in_use(), "all GPUs are free")
        assert state(mine) is AppState.SUBMITTED
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        os.close(writer)
    until_running(mine)
    cancel(mine)
    until_no_keeper()
