"""Restarts of whole roles and applications on a cluster without JobSets: a job for each attempt."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fakecluster import FakeCluster, controllers
from fakecluster.objects import ended
from kubejobs import OPTIONS, app, role, submit, until, until_all_run, until_ended
from program import answer, torchx
from support import wait_until

from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.schedulers.kubernetes.contexts import Clusters
from torchx.schedulers.kubernetes.names import RETRIES
from torchx.schedulers.kubernetes.objects import require
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
from torchx.schedulers.kubernetes.status import describe
from torchx.specs import RetryPolicy
from torchx.specs.status import AppState, ReplicaStatus

SHOWS = "echo try $TORCHX_ATTEMPT at $TORCHX_RANK0_HOST"


def replicas(status: Any) -> dict[str, ReplicaStatus]:
    return {f"{r.role}/{r.id}": r for roles in status.roles_statuses for r in roles.replicas}


def jobs(cluster: FakeCluster) -> list[str]:
    """The ends of the names of all jobs."""
    return sorted(job["metadata"]["name"].split("-", 2)[2] for job in cluster.objects("jobs"))


def evict(scheduler: KubernetesScheduler, cluster: FakeCluster, pod: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}}
    Cluster().create(f"/api/v1/namespaces/default/pods/{pod}/eviction", body)


def test_all_start_again_at_another_rendezvous(
    cluster: FakeCluster, scheduler: KubernetesScheduler, tmp_path: Path
) -> None:
    # it fails when all have printed their line and the other role has succeeded: a pod may be ended earlier
    fails = f"until [ -e {tmp_path}/$TORCHX_ATTEMPT ]; do sleep 0.05; done; exit $((6 + TORCHX_ATTEMPT))"
    bad = f'{SHOWS}; test "$JOB_COMPLETION_INDEX" = 0 && exec sleep 600; {fails}'
    good = f"{SHOWS}; test $TORCHX_ATTEMPT = 2 || exit 0; exec sleep 600"
    # a role that had succeeded starts again, too
    app_id = submit(
        scheduler,
        role(bad, name="w", num_replicas=2, max_retries=1),
        role(good, name="done", max_retries=1),
        ttl=3600,
    )
    waiting = threading.Thread(target=scheduler.wait, args=(app_id, 60), daemon=True)
    waiting.start()
    everywhere = [("w", 0), ("w", 1), ("done", 0)]

    def printed() -> list[int]:
        return [len(list(scheduler.log_iter(app_id, name, replica))) for name, replica in everywhere]

    wait_until(lambda: printed() == [1, 1, 1], "all have printed a line")
    until(scheduler, app_id, lambda s: replicas(s)["done/0"].state is AppState.SUCCEEDED, "one has succeeded")
    (tmp_path / "1").touch()
    wait_until(lambda: printed() == [2, 2, 2], "all have printed a second line")
    (tmp_path / "2").touch()
    status = until_ended(scheduler, app_id)
    waiting.join(60)
    assert status.first_failure is not None
    assert (status.state, status.num_restarts) == (AppState.FAILED, 1)
    first = status.first_failure
    assert (first.role, first.replica, first.attempt, first.exit_code) == ("w", 1, 2, 8)
    name = app_id.partition(":")[2]
    hosts = [f"{name}-w-0", f"{name}-w-r2-0"]
    for role_name, replica in everywhere:
        log = list(scheduler.log_iter(app_id, role_name, replica))
        assert log == [f"try {n} at {host}\n" for n, host in enumerate(hosts, 1)], (role_name, replica)
    services = [service["metadata"]["name"] for service in cluster.objects("services")]
    assert set(hosts) <= set(services), "each attempt has a rank 0 of its own"
    assert jobs(cluster) == ["done", "done-r2", "w", "w-r2"]
    ours = (job for job in cluster.objects("jobs") if f"{name}-w" in job["metadata"]["name"])
    old, new = sorted(ours, key=lambda job: str(job["metadata"]["name"]))
    assert [owner["name"] for owner in old["metadata"]["ownerReferences"]] == [new["metadata"]["name"]]
    kept = [job["spec"].get("ttlSecondsAfterFinished") for job in (old, new)]
    assert kept == [None, 3600], "the cluster removes the logs of all attempts together"
    states = [[a.state.name for a in replica.attempts] for replica in replicas(status).values()]
    assert states == [["CANCELLED", "CANCELLED"], ["FAILED", "FAILED"], ["SUCCEEDED", "CANCELLED"]]
    scheduler.delete(app_id)
    assert scheduler.glance(app_id) is None
    wait_until(lambda: not cluster.objects("pods") and not cluster.objects("jobs"), "all attempts are gone")


def test_a_role_starts_again_alone(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    policy = {"max_retries": 1, "retry_policy": RetryPolicy.ROLE}
    bad = f'{SHOWS}; test "$JOB_COMPLETION_INDEX" = 0 && exec sleep 600; test $TORCHX_ATTEMPT = 2 || exit 7'
    app_id = submit(
        scheduler,
        role(f"{SHOWS}; exec sleep 600", name="good", **policy),
        role(bad, name="bad", num_replicas=2, **policy),
    )
    waiting = threading.Thread(target=scheduler.wait, args=(app_id, 60), daemon=True)
    waiting.start()
    until(scheduler, app_id, lambda s: len(replicas(s)["bad/0"].attempts) == 2, "a second attempt")
    status = until(scheduler, app_id, lambda s: replicas(s)["bad/0"].state is AppState.RUNNING, "it runs")
    assert len(replicas(status)["good/0"].attempts) == 1
    assert jobs(cluster) == ["bad", "bad-r2", "good"]
    scheduler.cancel(app_id)
    assert until_ended(scheduler, app_id).state is AppState.CANCELLED
    waiting.join(60)


def test_an_eviction_restarts_all_and_uses_no_retry(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    app_id = submit(scheduler, role(f"{SHOWS}; exec sleep 600", num_replicas=2, max_retries=1))
    until_all_run(scheduler, app_id)
    waiting = threading.Thread(target=scheduler.wait, args=(app_id, 60), daemon=True)
    waiting.start()
    evict(scheduler, cluster, cluster.objects("pods")[0]["metadata"]["name"])
    until(scheduler, app_id, lambda s: s.num_restarts == 1, "it has been restarted")
    status = until_all_run(scheduler, app_id)
    assert all(replica.attempts[-1].number == 2 for replica in replicas(status).values())
    assert status.msg.startswith("worker/0: evicted from node node-1"), "it is named after the restart, too"
    (new,) = (job for job in cluster.objects("jobs") if RETRIES in job["metadata"]["annotations"])
    assert (
        '"used":{}' in new["metadata"]["annotations"][RETRIES]
        or '"application":0' in (new["metadata"]["annotations"][RETRIES])
    )
    scheduler.cancel(app_id)
    waiting.join(60)


def test_a_status_names_the_restart_that_is_due(scheduler: KubernetesScheduler) -> None:
    script = 'test "$JOB_COMPLETION_INDEX" = 1 || exec sleep 600; sleep 0.5; exit 7'
    app_id = submit(scheduler, role(script, num_replicas=2, max_retries=2))
    status = until(scheduler, app_id, lambda s: "follows" in s.msg, "a restart is due")
    assert status.msg == "worker/1 failed: exit code 7; attempt 2 follows"
    assert (status.state, replicas(status)["worker/1"].state) == (AppState.RUNNING, AppState.PENDING)
    facts = require(Clusters(), app_id)
    later = describe(facts, time.time() + 120)
    assert later.msg == "worker/1 failed: exit code 7; attempt 2 is late: `torchx wait` starts it"
    (line,) = scheduler.list()
    assert line.state in (AppState.RUNNING, AppState.PENDING)
    scheduler.cancel(app_id)
    assert until_ended(scheduler, app_id).state is AppState.CANCELLED
    scheduler.reconcile(app_id)
    assert len(replicas(until_ended(scheduler, app_id))["worker/0"].attempts) == 1, "cancelled: no restart"


def test_without_the_rights_the_cluster_restarts_the_failed_replica(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    cluster.denied.add(("patch", "pods"))
    info = scheduler.submit_dryrun(app(role("true", num_replicas=2, max_retries=1)), OPTIONS)
    assert info.notes == []
    app_id = scheduler.schedule(info)
    assert info.notes[-1] == (
        "after a failure only the failed replica is restarted, not its peers: you may not `patch pods` in "
        "namespace default; kind=jobset restarts all of them if the cluster has JobSets"
    )
    (job,) = cluster.objects("jobs")
    assert job["spec"]["backoffLimitPerIndex"] == 1
    assert scheduler.wait(app_id, timeout=60)


def test_a_process_on_the_submitting_machine_restarts_it(
    cluster: FakeCluster, scheduler: KubernetesScheduler, tmp_path: Path
) -> None:
    (tmp_path / "two.py").write_text(
        "import torchx.specs as specs\n\n\n"
        "def two() -> specs.AppDef:\n"
        '    """Runs two replicas."""\n'
        "    script = 'test $TORCHX_ATTEMPT = 2 && exit 0; test $0 = 0 && exec sleep 600; exit 3'\n"
        "    args = ['-c', script, specs.macros.replica_id]\n"
        "    role = specs.Role('w', 'img', entrypoint='sh', args=args, num_replicas=2, max_retries=1)\n"
        "    return specs.AppDef('two', [role])\n"
    )
    done = torchx("run", "-s", "kubernetes", "-cfg", "grace_period=1", f"{tmp_path}/two.py:two")
    assert done.returncode == 0, done.stderr
    handle = done.stdout.strip()
    app_id = handle.partition("torchx/")[2]
    status = until_ended(scheduler, app_id)
    assert (status.state, status.num_restarts) == (AppState.SUCCEEDED, 1)
    assert answer("status", handle, "-o", "json")["num_restarts"] == 1
    assert torchx("delete", handle).returncode == 0


def test_a_job_applies_exit_codes_itself(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    alone = {"num_replicas": 2, "max_retries": 3, "retry_policy": RetryPolicy.REPLICA}
    script = 'test "$JOB_COMPLETION_INDEX" = 0 || exit 9'
    app_id = submit(scheduler, role(script, **alone), retry_on=["3-5", "SIGKILL"], no_retry_on=["4"])
    (job,) = cluster.objects("jobs")
    ignore, never, only = job["spec"]["podFailurePolicy"]["rules"]
    assert (ignore["action"], never["action"], only["action"]) == ("Ignore", "FailIndex", "FailIndex")
    assert never["onExitCodes"] == {"containerName": "main", "operator": "In", "values": [4]}
    assert only["onExitCodes"] == {"containerName": "main", "operator": "NotIn", "values": [3, 4, 5, 137]}
    assert scheduler.wait(app_id, timeout=60)
    status = scheduler.glance(app_id)
    assert status is not None and status.first_failure is not None
    assert (status.first_failure.exit_code, status.first_failure.attempt) == (9, 1)
    assert status.first_failure.msg == "not retried: exit code 9 is not in retry_on"
    assert replicas(status)["worker/1"].state is AppState.FAILED


def test_torchx_retries_a_single_replica_if_the_cause_decides(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    script = 'test $TORCHX_ATTEMPT = 1 && echo "lost the data loader" || echo other; exit 3'
    app_id = submit(scheduler, role(script, max_retries=3), retry_on=["log:data loader"], retry_backoff=0.1)
    assert scheduler.wait(app_id, timeout=60)
    status = scheduler.glance(app_id)
    assert status is not None and status.first_failure is not None
    assert (status.first_failure.attempt, jobs(cluster)) == (2, ["worker", "worker-r2"])
    assert status.first_failure.msg == "not retried: exit code 3 is not in retry_on"
    info = scheduler.submit_dryrun(
        app(role("true", num_replicas=2, max_retries=1, retry_policy=RetryPolicy.REPLICA)),
        {**OPTIONS, "retry_on": ["node"]},
    )
    assert info.notes == ["a Job retries by exit code and signal only, not by other causes (role worker)"]


@pytest.mark.parametrize("script", ["echo ImportError: no x; exit 1", "echo usage: x; exit 2"])
def test_failure_that_is_never_retried_ends_single_replica(
    cluster: FakeCluster, scheduler: KubernetesScheduler, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(controllers, "RETRY_AFTER", 3.0)
    app_id = submit(scheduler, role(script, max_retries=3))
    assert scheduler.wait(app_id, timeout=60)
    status = scheduler.glance(app_id)
    assert status is not None and status.first_failure is not None
    assert (status.state, status.first_failure.attempt) == (AppState.FAILED, 1)
    assert status.first_failure.msg.startswith("not retried: ")
    assert replicas(status)["worker/0"].state is AppState.FAILED
    wait_until(lambda: all(map(ended, cluster.objects("jobs"))), "no job is open")


def test_the_retries_of_a_single_replica_are_limited(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    alone = role("exit 3", max_retries=1, retry_policy=RetryPolicy.REPLICA)
    app_id = submit(scheduler, alone, no_retry_on=["log:other"], retry_backoff=0.1)
    assert scheduler.wait(app_id, timeout=60)
    status = scheduler.glance(app_id)
    assert status is not None and status.first_failure is not None
    assert (status.first_failure.attempt, jobs(cluster)) == (2, ["worker", "worker-r2"])
