"""Applications in containers that wait: kills, failed starts, damaged records, restarts of the machine."""

from __future__ import annotations

import os
import signal

import fakegpus
import local
import pytest
from containers import Jobs, containers, describe, ended, scheduler
from gpu_engine import GpuEngine
from program import torchx
from queued import gpus_of, home, job, keepers, message, starters, state, until_nothing_is_left, until_running
from support import wait_until

from torchx.jobs.ticket import Ticket
from torchx.leases.holders import names_in_use
from torchx.machine import locks
from torchx.schedulers.docker.folder import REQUEST
from torchx.specs import after
from torchx.specs.status import AppState

pytestmark = [pytest.mark.long, pytest.mark.docker]


@pytest.mark.parametrize("guard_too", [False, True])
def test_they_survive_a_kill_of_their_keeper(
    machine: fakegpus.FakeGpus, waiting_jobs: Jobs, busy: str, guard_too: bool
) -> None:
    app_id = waiting_jobs.submit(job(2))
    both = wait_until(lambda: found if len(found := keepers()) == 2 else [], "it has a guard")
    for pid in both if guard_too else both[1:]:
        os.kill(pid, signal.SIGKILL)
    if guard_too:
        wait_until(lambda: not locks.is_held(home().job(app_id).lock), "both are dead")
        assert state(app_id) is AppState.SUBMITTED
        assert not keepers(), "a query changes nothing"
        scheduler().reconcile(app_id)  # as each command for the application does
    wait_until(lambda: len(keepers()) == 2, "there is another keeper")
    local.scheduler().kill(busy)
    until_running(app_id)
    assert (len(containers(app_id)), len(gpus_of(app_id))) == (1, 2)
    scheduler().kill(app_id)
    ended(app_id)
    until_nothing_is_left(machine, app_id)


@pytest.mark.parametrize("guard_too", [False, True])
def test_a_killed_start_is_completed_or_undone(
    machine: fakegpus.FakeGpus, engine: GpuEngine, waiting_jobs: Jobs, busy: str, guard_too: bool
) -> None:
    """The role that starts after the others has a container, which does not start."""
    app_id = waiting_jobs.submit(job(1, replicas=2), after(job(0, name="later"), ["w"]))
    engine.hold_starts()
    local.scheduler().kill(busy)
    assert engine.held.wait(120)
    assert (state(app_id), message(app_id)) == (AppState.PENDING, "its containers are being created")
    both = wait_until(lambda: found if len(found := starters(app_id)) == 2 else [], "it has a guard")
    for pid in both if guard_too else both[1:]:
        os.kill(pid, signal.SIGKILL)
    if guard_too:
        wait_until(lambda: not locks.is_held(home().job(app_id).lock), "both are dead")
        engine.release_starts()
        wait_until(lambda: not {f"gpu-{gpu}" for gpu in machine.ids} & names_in_use(), "its GPUs are free")
        assert (state(app_id), message(app_id)) == (AppState.PENDING, "its start was interrupted")
        scheduler().reconcile(app_id)
        found = describe(app_id)
        if found.state is AppState.FAILED:  # the requests of the killed process were not carried out
            assert (found.msg, containers(app_id)) == ("its start was interrupted", [])
            return
    else:
        engine.release_starts()
    until_running(app_id)
    assert [one["State"]["Status"] for one in containers(app_id)].count("created") == 1
    assert (len(containers(app_id)), len(set(gpus_of(app_id)))) == (3, 2)
    scheduler().kill(app_id)
    assert ended(app_id).state is AppState.CANCELLED
    until_nothing_is_left(machine, app_id)


def test_a_cancel_during_the_start(
    machine: fakegpus.FakeGpus, engine: GpuEngine, waiting_jobs: Jobs, busy: str
) -> None:
    app_id = waiting_jobs.submit(job(2))
    engine.hold_starts()
    local.scheduler().kill(busy)
    assert engine.held.wait(120)
    scheduler().cancel(app_id)
    assert (state(app_id), message(app_id)) == (AppState.PENDING, "it is being cancelled")
    engine.release_starts()
    assert ended(app_id).state is AppState.CANCELLED
    until_nothing_is_left(machine, app_id)


def test_a_start_that_fails_lets_the_next_one_start(
    machine: fakegpus.FakeGpus, waiting_jobs: Jobs, busy: str
) -> None:
    bad = waiting_jobs.submit(job(2, entrypoint="no-such-program"))
    damaged = waiting_jobs.submit(job(2))
    good = waiting_jobs.submit(job(2))
    (home().job(damaged).folder / REQUEST).write_text("{")
    local.scheduler().kill(busy)
    until_running(good)
    for app_id, why in ((bad, "no program `no-such-program`"), (damaged, "request.json is damaged")):
        found = ended(app_id)
        assert found.state is AppState.FAILED, found
        assert why in found.msg
        assert containers(app_id) == []
    scheduler().kill(good)
    ended(good)
    until_nothing_is_left(machine, good)


def test_damaged_records_and_a_restart_of_the_machine(
    machine: fakegpus.FakeGpus, waiting_jobs: Jobs, busy: str
) -> None:
    old, damaged = waiting_jobs.submit(job(2, "echo started")), waiting_jobs.submit(job(2))
    for pid in keepers():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not locks.is_held(home().job(old).lock), "it is dead")
    paths = home().job(old)
    Ticket.load(paths)._replace(boot_id="another").save(paths)
    assert message(old) == (
        f"the machine was restarted while it waited; to let it wait again: torchx queue release {old}"
    )
    scheduler().reconcile(old)
    assert not keepers()
    record = home().job(damaged).record
    record.write_text(record.read_text()[:-1])
    rows = {row.app_id: row for row in scheduler().list()}
    assert (rows[damaged].state, rows[old].state) == (AppState.UNKNOWN, AppState.SUBMITTED)
    assert "is damaged" in rows[damaged].msg
    scheduler().delete(damaged)
    waiting_jobs.ids.remove(damaged)
    assert not home().job(damaged).folder.exists()
    local.scheduler().kill(busy)
    assert torchx("queue", "release", old).returncode == 0
    assert ended(old).state is AppState.SUCCEEDED
    until_nothing_is_left(machine, old)
