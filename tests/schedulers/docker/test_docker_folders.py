"""The folder of an application: its end is final, whatever is done to its containers afterwards."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

import pytest
from containers import (
    Jobs,
    containers,
    describe,
    ended,
    replicas,
    running,
    scheduler,
    sh,
    supervisor_of,
    until_over,
)
from support import wait_until

from torchx.errors import StateError
from torchx.jobs.view import load
from torchx.schedulers import get_scheduler_factories
from torchx.schedulers.docker import status
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.journal import merged, recorded_of
from torchx.schedulers.docker.lookup import containers_of
from torchx.schedulers.docker.replay import replay
from torchx.schedulers.docker.rules.job import job_of
from torchx.schedulers.docker.supervisor_launch import supervised_in
from torchx.specs.status import AppState

pytestmark = pytest.mark.docker


def remove_all(app_id: str) -> None:
    """As ``docker rm -f`` does."""
    for one in containers(app_id):
        Engine().call("DELETE", f"/containers/{one['Id']}", {"force": 1, "v": 1})


def state_in_list(app_id: str) -> AppState:
    (row,) = [row for row in scheduler().list() if row.app_id == app_id]
    return row.state


def test_an_end_outlives_its_containers(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("test $TORCHX_REPLICA = w/0 || exit 3; exec sleep 600", 2))
    before = ended(app_id)
    until_over(app_id)
    remove_all(app_id)
    after = describe(app_id)
    assert (after.state, after.first_failure) == (AppState.FAILED, before.first_failure)
    assert after.roles == before.roles
    for mine, theirs in zip(replicas(after), replicas(before), strict=True):
        assert (mine.state, mine.exit_code) == (theirs.state, theirs.exit_code)
    assert state_in_list(app_id) is AppState.FAILED
    with pytest.raises(StateError, match="was removed with its container"):
        list(scheduler().log_iter(app_id, "w", 1))
    assert [pruned.app_id for pruned in scheduler().prune([app_id]) if pruned.app_id] == [app_id]
    assert not scheduler().exists(app_id)
    assert not supervised_in(app_id).folder.exists()


def test_a_container_started_after_the_end_changes_nothing(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("test -e /seen && exec sleep 600; touch /seen"))
    assert ended(app_id).state is AppState.SUCCEEDED
    until_over(app_id)
    (container,) = containers(app_id)
    Engine().call("POST", f"/containers/{container['Id']}/start")
    found = describe(app_id)
    assert (found.state, replicas(found)[0].state) == (AppState.SUCCEEDED, AppState.SUCCEEDED)
    assert state_in_list(app_id) is AppState.SUCCEEDED
    assert [pruned.app_id for pruned in scheduler().prune([app_id]) if pruned.app_id] == [], "it runs"
    Engine().call("POST", f"/containers/{container['Id']}/kill")
    assert (describe(app_id).state, replicas(describe(app_id))[0].exit_code) == (AppState.SUCCEEDED, 0)


def test_an_end_after_the_query_counts_for_all_replicas(jobs: Jobs) -> None:
    """The engine has answered before the end, and the journal is read after it."""
    app_id = jobs.submit(sh("exec sleep 600", 2))
    wait_until(lambda: describe(app_id).state is AppState.RUNNING, "it runs")
    before = containers_of(Engine(), app_id)
    scheduler().cancel(app_id)
    until_over(app_id)
    seen = status.describe(before)
    assert {seen.state, *(replica.state for replica in replicas(seen))} == {AppState.CANCELLED}


def test_a_list_inspects_no_ended_container(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    app_id = jobs.submit(sh("exit 4", 2), fail_fast=False)
    ended(app_id)
    until_over(app_id)
    call, paths = Engine.call, list[str]()

    def recorded(self: Engine, method: str, path: str, *args: Any, **named: Any) -> Any:
        paths.append(path)
        return call(self, method, path, *args, **named)

    monkeypatch.setattr(Engine, "call", recorded)
    (row,) = [row for row in scheduler().list() if row.app_id == app_id]
    assert (row.state, row.exit_code, row.name) == (AppState.FAILED, 4, "job")
    ids = [one["Id"] for one in containers(app_id)]
    assert not [path for path in paths[: -len(ids)] if any(each in path for each in ids)]


def test_a_removal_while_it_runs_is_a_failure(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("exec sleep 600"))
    running(app_id)
    wait_until(lambda: load(supervised_in(app_id)).started_at, "its supervisor has seen it")
    remove_all(app_id)
    wait_until(lambda: load(supervised_in(app_id)).has_ended, "its end is recorded")
    found = describe(app_id)
    assert found.first_failure is not None
    if found.first_failure.signal != "SIGKILL":  # its supervisor has not seen the end, only the removal
        assert found.msg == "all its containers were removed"
        assert found.first_failure.msg == "its container was removed"
    assert found.state is AppState.FAILED
    assert state_in_list(app_id) is AppState.FAILED


def test_the_next_command_records_a_missed_end(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("until [ -e /over ]; do sleep 0.1; done; exit 5", 2))
    running(app_id, 2)
    pid = wait_until(lambda: supervisor_of(app_id), "it has a supervisor")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until_over(app_id)
    for one in containers(app_id):
        Engine().call("POST", f"/containers/{one['Id']}/kill")
        Engine().call("POST", f"/containers/{one['Id']}/wait")
    assert describe(app_id).needs_reconcile
    assert not load(supervised_in(app_id)).has_ended, "a query changes nothing"
    scheduler().reconcile(app_id)
    view = load(supervised_in(app_id))
    assert (view.state, describe(app_id).state) == ("FAILED", AppState.FAILED)
    assert not describe(app_id).needs_reconcile


def test_it_is_no_job_of_processes(jobs: Jobs) -> None:
    """No version takes the death of its supervisor for its end: those that know schema 1 cannot read it."""
    app_id = jobs.submit(sh("exec sleep 600"))
    paths = supervised_in(app_id)
    assert paths.record.read_bytes().startswith(b'{"schema":2,')
    pid = wait_until(lambda: supervisor_of(app_id), "it has a supervisor")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until_over(app_id)
    local = get_scheduler_factories()["local_cwd"]("torchx")
    local.reconcile(app_id)
    assert (local.exists(app_id), [row.app_id for row in local.list()]) == (False, [])
    assert not load(paths).has_ended
    assert describe(app_id).state is AppState.RUNNING


def test_a_copy_does_not_replace_an_ended_attempt(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("exit 3"))
    ended(app_id)
    until_over(app_id)
    present = containers_of(Engine(), app_id)
    copy = replace(present[0], id="f" * 64, status="running", exit_code=None, finished=None)
    (merge,) = merged(app_id, [copy])
    assert (merge.id, merge.exit_code, merge.removed) == (present[0].id, 3, True)
    assert recorded_of(app_id).is_final
    end = replay(job_of([merge]), [merge]).end
    assert end is not None and end.state == "FAILED"
