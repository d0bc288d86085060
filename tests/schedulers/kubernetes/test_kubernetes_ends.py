"""Cancel, kill, delete and list: what is ended ends, what is kept is kept, and only our own is touched."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakecluster import FakeCluster
from fakecluster.cluster import evict
from kubejobs import role, submit, until_ended, until_state
from support import wait_until

from torchx.schedulers.kubernetes.api import client as kubernetes_client
from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.names import OUTCOME
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler, create_scheduler
from torchx.schedulers.kubernetes.state.outcome import Outcome
from torchx.scheduling.causes import classify
from torchx.scheduling.logs import LogQuery
from torchx.specs.app import RetryPolicy
from torchx.specs.status import AppState, FirstFailure

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads"
PODS = "/api/v1/namespaces/default/pods"
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


def test_a_listing_of_starting_applications_takes_few_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = []
    with FakeCluster(run=False) as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        scheduler = create_scheduler("torchx")
        for count in (8, 16):
            for _ in range(8):
                submit(scheduler, "true", validate_spec=False)
            for job in cluster.objects("jobs"):  # its pod runs, and it has not counted it as ready
                starting = {"active": 1, "ready": 0}
                cluster.store.update(
                    JOBS, job["metadata"]["name"], lambda j, s=starting: j["status"].update(s)
                )
            cluster.asked.clear()
            assert len(list(scheduler.list())) == count
            calls.append(len(cluster.asked))
        scheduler.close()
    assert calls[0] == calls[1] < 9


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


# --- the pods of an ended Job can be removed, as by `kubectl drain` ---------------------------------


def remove_pods(cluster: FakeCluster) -> None:
    """Removes all pods that have ended, as the drain of a node does; it waits until they are gone."""
    for pod in cluster.objects("pods"):
        if pod["status"]["phase"] in ("Succeeded", "Failed"):
            evict(cluster.store, PODS, pod["metadata"]["name"])

    def left() -> list[str]:
        pods = cluster.objects("pods")
        return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] in ("Succeeded", "Failed")]

    wait_until(lambda: not left(), "no job keeps an ended pod")


@pytest.mark.parametrize("verb", ["cancel", "kill"])
def test_the_pods_of_a_cancelled_role_can_be_removed(
    cluster: FakeCluster, scheduler: KubernetesScheduler, verb: str
) -> None:
    single = {"num_replicas": 2, "max_retries": 2, "retry_policy": RetryPolicy.REPLICA}
    app_id = submit(scheduler, role("sleep 600", **single))
    until_state(scheduler, app_id, AppState.RUNNING)
    wait_until(lambda: len(cluster.running()) == 2, "both run")
    getattr(scheduler, verb)(app_id)
    until_state(scheduler, app_id, AppState.CANCELLED)
    remove_pods(cluster)
    assert until_ended(scheduler, app_id).state is AppState.CANCELLED


def test_without_right_to_end_pods_they_can_be_removed(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    app_id = submit(scheduler, role("sleep 600", num_replicas=2))
    wait_until(lambda: len(cluster.running()) == 2, "both run")
    cluster.fault("PATCH", "/pods/", 403, times=99)
    scheduler.cancel(app_id)
    until_state(scheduler, app_id, AppState.CANCELLED)
    wait_until(lambda: not cluster.objects("pods"), "the end of the job has deleted them")


@pytest.mark.parametrize("disrupted", [False, True], ids=["retry", "requeue"])
def test_the_pods_of_an_earlier_attempt_can_be_removed(
    cluster: FakeCluster, scheduler: KubernetesScheduler, disrupted: bool
) -> None:
    script = "test $TORCHX_RUN$TORCHX_ATTEMPT = 11 || exec sleep 600; "
    script += "exec sleep 600" if disrupted else 'test "$JOB_COMPLETION_INDEX" = 0 && exec sleep 600; exit 7'
    cfg = {"requeue_on": "node"} if disrupted else {}
    app_id = submit(scheduler, role(script, num_replicas=2, max_retries=1), retry_backoff=0.01, **cfg)
    if disrupted:
        wait_until(lambda: len(cluster.running()) == 2, "both run")
        evict(cluster.store, PODS, cluster.objects("pods")[0]["metadata"]["name"])

    def restarted() -> bool:
        scheduler.reconcile(app_id)
        return len(cluster.objects("jobs")) == 2 and len(cluster.running()) == 2

    wait_until(restarted, "the next attempt runs")
    remove_pods(cluster)
    assert len(cluster.running()) == 2
    scheduler.cancel(app_id)
    until_state(scheduler, app_id, AppState.CANCELLED)
    remove_pods(cluster)


# --- a result stays as it was --------------------------------------------------------------------


def result_of(scheduler: KubernetesScheduler, app_id: str) -> Any:
    found = scheduler.glance(app_id)
    assert found is not None
    first = found.first_failure
    cause = classify(found.state, found.msg, first).name
    states = [replica.state for each in found.roles_statuses for replica in each.replicas]
    return found.state, found.msg, found.ended_at, found.run, found.num_restarts, first, cause, states


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "exit code": (role("exit 7"), {}),
    "signal": (role("kill -9 $$"), {}),
    "one of several": (
        role('test "$JOB_COMPLETION_INDEX" = 1 || exec sleep 600; exit 3', num_replicas=2),
        {},
    ),
    "retries used": (role("exit 7", max_retries=1), {}),
    "all retries used": (role("exit 7", num_replicas=2, max_retries=1), {"retry_backoff": 0.01}),
    "never retried": (role("exit 4", num_replicas=2, max_retries=3), {"no_retry_on": ["4"]}),
    "several": (role("exit 7", num_replicas=3), {}),
    "success": (role("exit 0", num_replicas=2), {}),
    "without fail_fast": (role("exit 5", num_replicas=2), {"fail_fast": False}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_result_stays_when_its_pods_are_removed(
    cluster: FakeCluster, scheduler: KubernetesScheduler, case: str
) -> None:
    what, cfg = CASES[case]
    app_id = submit(scheduler, what, **cfg)
    assert scheduler.wait(app_id, timeout=120)
    before = result_of(scheduler, app_id)
    remove_pods(cluster)
    assert not cluster.objects("pods")
    assert result_of(scheduler, app_id) == before
    scheduler.reconcile(app_id)
    assert result_of(scheduler, app_id) == before, "nothing is started again"
    (line,) = scheduler.list()
    assert line.state is before[0]


SEEN_BY: dict[str, Callable[[KubernetesScheduler, str], object]] = {
    "wait": lambda scheduler, app_id: scheduler.wait(app_id, timeout=120),
    "log -f": lambda scheduler, app_id: list(scheduler.log_chunks(app_id, LogQuery(follow=True))),
    "watcher": KubernetesScheduler.reconcile,
    "cancel": KubernetesScheduler.cancel,
    "kill": KubernetesScheduler.kill,
}


@pytest.mark.parametrize("fail_fast", [True, False], ids=["first failure", "all ends"])
@pytest.mark.parametrize("command", SEEN_BY)
def test_each_command_that_writes_notes_an_end(
    cluster: FakeCluster, scheduler: KubernetesScheduler, command: str, fail_fast: bool
) -> None:
    app_id = submit(scheduler, role("exit 7", num_replicas=2), fail_fast=fail_fast)
    assert until_ended(scheduler, app_id).state is AppState.FAILED
    before = result_of(scheduler, app_id)
    assert OUTCOME not in cluster.objects("jobs")[0]["metadata"]["annotations"], "a query writes nothing"
    SEEN_BY[command](scheduler, app_id)
    remove_pods(cluster)
    assert result_of(scheduler, app_id) == before


def test_the_first_note_of_an_end_stays(
    cluster: FakeCluster, scheduler: KubernetesScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes note an end: the second one has read the pods before, or after their removal."""
    app_id = submit(scheduler, role("exit 7", num_replicas=2))
    assert until_ended(scheduler, app_id).state is AppState.FAILED
    name, call = cluster.objects("jobs")[0]["metadata"]["name"], Cluster.call
    first = Outcome(FirstFailure("worker", 1, 1, 3), AppState.FAILED).text()

    def noted_before(own: Cluster, method: str, *args: Any, **more: Any) -> Any:
        if method == "PATCH":
            cluster.store.update(JOBS, name, lambda j: j["metadata"]["annotations"].update({OUTCOME: first}))
        return call(own, method, *args, **more)

    monkeypatch.setattr(Cluster, "call", noted_before)
    scheduler.reconcile(app_id)
    assert cluster.objects("jobs")[0]["metadata"]["annotations"][OUTCOME] == first


def test_the_end_is_the_one_of_the_noted_pods(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, role("exit 7", num_replicas=2))
    assert until_ended(scheduler, app_id).state is AppState.FAILED
    for pod in cluster.objects("pods"):  # the clock of their node is ahead
        status = json.loads(json.dumps(pod["status"]))
        status["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = "2126-01-01T00:00:00Z"
        cluster.store.update(PODS, pod["metadata"]["name"], lambda p, s=status: p.update(status=s))
    assert scheduler.wait(app_id, timeout=120)
    before = result_of(scheduler, app_id)
    remove_pods(cluster)
    assert result_of(scheduler, app_id) == before


def test_without_a_note_a_removed_pod_is_no_cause(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    app_id = submit(scheduler, role("exit 7", num_replicas=2))
    assert until_ended(scheduler, app_id).state is AppState.FAILED
    remove_pods(cluster)
    found = result_of(scheduler, app_id)
    assert found[0] is AppState.FAILED
    assert found[1].startswith("a replica failed, and its pod no longer exists")
    assert (found[5], found[6]) == (None, "unknown")


def test_a_damaged_note_is_ignored(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, "exit 7")
    assert scheduler.wait(app_id, timeout=120)
    before = result_of(scheduler, app_id)
    (job,) = cluster.objects("jobs")
    text = job["metadata"]["annotations"][OUTCOME]
    for damaged in (
        "",
        "{",
        "[" * 2000,
        "{}",
        text.replace("7", '"7"'),
        text.replace("7", "7" * 40),
        text.replace("FAILED", "RUNNING"),
    ):
        change = {OUTCOME: damaged}
        cluster.store.update(
            JOBS, job["metadata"]["name"], lambda j, c=change: j["metadata"]["annotations"].update(c)
        )
        assert result_of(scheduler, app_id) == before, damaged
