"""Cancel, kill, delete and list: what is ended ends, what is kept is kept, and only our own is touched."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fakecluster import FakeCluster
from kubejobs import role, submit, until_ended, until_state
from support import wait_until

from torchx.schedulers.kubernetes.api import client as kubernetes_client
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
from torchx.specs.status import AppState

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


def test_what_was_cancelled_can_be_described(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, role("echo hi; sleep 600", num_replicas=2))
    until_state(scheduler, app_id, AppState.RUNNING)
    scheduler.cancel(app_id)
    result = until_ended(scheduler, app_id)
    assert (result.state, result.msg) == (AppState.CANCELLED, "cancelled")
    wait_until(lambda: cluster.running() == [], "nothing runs")
    found = scheduler.describe(app_id)
    assert found is not None
    assert found.roles[0].args == ["-c", "echo hi; sleep 600"]
    assert found.ended_at is not None
    (line,) = scheduler.list()
    assert (line.app_id, line.state) == (app_id, AppState.CANCELLED)


def test_it_is_running_until_its_pods_are_gone(scheduler: KubernetesScheduler) -> None:
    deaf = "trap 'sleep 0.7; exit 0' TERM; echo up; while true; do sleep 0.1; done"
    app_id = submit(scheduler, deaf, grace_period=5.0)
    wait_until(lambda: list(scheduler.log_iter(app_id, "worker")), "it hears TERM")
    scheduler.cancel(app_id)
    current = scheduler.glance(app_id)
    assert current is not None
    assert (current.state, current.msg) == (AppState.RUNNING, "it is being cancelled")
    (line,) = scheduler.list()
    assert line.state is AppState.RUNNING
    assert until_ended(scheduler, app_id).state is AppState.CANCELLED


def test_what_waits_can_be_cancelled(scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, role("true", image="registry.example.com/nosuch"))
    until_state(scheduler, app_id, AppState.PENDING)
    scheduler.cancel(app_id)
    result = until_ended(scheduler, app_id)
    assert result.state is AppState.CANCELLED
    assert result.started_at is None or result.ended_at is not None


def test_kueue_does_not_start_again_what_was_cancelled(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    app_id = submit(scheduler, "true", queue="team")
    current = scheduler.glance(app_id)
    assert current is not None
    assert (current.state, current.msg) == (AppState.SUBMITTED, "it waits for its turn in queue `team`")
    other = {"metadata": {"name": "other"}, "spec": {"suspend": True}, "status": {}}
    owners = {"mine": cluster.objects("jobs")[0], "other": cluster.store.create(JOBS, other)}
    for name, owner in owners.items():
        metadata: dict[str, Any] = {"name": name, "ownerReferences": [{"uid": owner["metadata"]["uid"]}]}
        cluster.store.create(WORKLOADS, {"metadata": metadata, "spec": {"active": True}})
    scheduler.cancel(app_id)
    assert until_ended(scheduler, app_id).state is AppState.CANCELLED
    active = {w["metadata"]["name"]: w["spec"]["active"] for w in cluster.store.list(WORKLOADS)}
    assert active == {"mine": False, "other": True}


def test_a_failure_ends_the_other_roles(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, role("sleep 600", name="good"), role("sleep 0.3; exit 6", name="bad"))
    assert scheduler.wait(app_id, timeout=120), "who waits sees to it"
    result = until_ended(scheduler, app_id)
    assert result.state is AppState.FAILED
    assert result.first_failure is not None
    assert (result.first_failure.role, result.first_failure.exit_code) == ("bad", 6)
    assert result.roles_statuses[0].replicas[0].state is AppState.CANCELLED
    wait_until(lambda: cluster.running() == [], "nothing runs")


def test_unless_that_is_not_wanted(scheduler: KubernetesScheduler) -> None:
    roles = role("sleep 1.5; echo done", name="good"), role("exit 6", name="bad")
    app_id = submit(scheduler, *roles, fail_fast=False)
    wait_until(lambda: "continue" in scheduler.glance(app_id).msg, "the others go on")  # type: ignore[union-attr]
    assert until_ended(scheduler, app_id).state is AppState.FAILED
    assert list(scheduler.log_iter(app_id, "good")) == ["done\n"]


def test_delete_takes_all_that_belongs_to_it(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    first, second = submit(scheduler, "sleep 600"), submit(scheduler, "sleep 600")
    for app_id in (first, second):
        until_state(scheduler, app_id, AppState.RUNNING)
    scheduler.delete(first)
    assert not scheduler.exists(first)
    assert [line.app_id for line in scheduler.list()] == [second]
    wait_until(lambda: len(cluster.running()) == 1, "its pod has ended")
    wait_until(lambda: len(cluster.objects("jobs")) == 1, "its job is gone")
    assert {s["metadata"]["name"] for s in cluster.objects("services")} == {
        service["metadata"]["name"]
        for service in cluster.objects("services")
        if second.partition(":")[2] in service["metadata"]["name"]
    }
    assert scheduler.exists(second)


def test_only_our_own_is_listed(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    other = {"metadata": {"name": "other", "labels": {"app": "x"}}, "spec": {"suspend": True}, "status": {}}
    cluster.store.create(JOBS, other)
    assert list(scheduler.list()) == []
    assert scheduler.describe("default:other") is None
    scheduler.cancel("default:other")
    scheduler.delete("default:other")
    assert [job["metadata"]["name"] for job in cluster.objects("jobs")] == ["other"]


def test_a_namespace_is_a_namespace(scheduler: KubernetesScheduler) -> None:
    there, here = submit(scheduler, "true", namespace="research"), submit(scheduler, "true")
    assert there.startswith("research:")
    assert [line.app_id for line in scheduler.list()] == [here]
    assert [line.app_id for line in scheduler.list({"namespace": "research"})] == [there]
    assert until_ended(scheduler, there).state is AppState.SUCCEEDED


def test_long_listings_take_few_calls(
    cluster: FakeCluster, scheduler: KubernetesScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_ids = [submit(scheduler, "true", validate_spec=False) for _ in range(7)]
    for app_id in app_ids:
        until_ended(scheduler, app_id)
    monkeypatch.setattr(kubernetes_client, "PAGE", 3)
    cluster.asked.clear()
    lines = list(scheduler.list())
    assert {line.app_id for line in lines} == set(app_ids)
    assert {line.state for line in lines} == {AppState.SUCCEEDED}
    times = [line.submitted_at for line in lines]
    assert times == sorted(times, reverse=True)  # type: ignore[type-var]
    assert len(cluster.asked) <= 3 + 4, cluster.asked


def test_a_listing_shows_results_and_reasons(scheduler: KubernetesScheduler) -> None:
    failed = submit(scheduler, "exit 9")
    waits = submit(scheduler, role("true", image="registry.example.com/nosuch"))
    until_ended(scheduler, failed)
    wait_until(lambda: "cannot be pulled" in scheduler.glance(waits).msg, "why it waits")  # type: ignore[union-attr]
    lines = {line.app_id: line for line in scheduler.list()}
    assert (lines[failed].state, lines[failed].exit_code) == (AppState.FAILED, 9)
    assert lines[waits].state is AppState.PENDING
    assert "its image cannot be pulled" in lines[waits].msg


def test_a_dead_cluster_does_not_hold_up_a_listing(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    cluster.close()
    begin = time.monotonic()
    with pytest.raises(ClusterError):
        list(scheduler.list())
    assert time.monotonic() - begin < 10
