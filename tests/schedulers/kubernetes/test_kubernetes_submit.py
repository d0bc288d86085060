"""A submission makes all objects or none, whatever happens on the way, and never hangs."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

import pytest
from fakecluster import FakeCluster
from kubejobs import app, role, submit, until_ended, until_state
from support import wait_until

from torchx.errors import UsageError
from torchx.schedulers.kubernetes import submit as kubernetes_submit
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.names import APP_ID, HELD
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler, create_scheduler
from torchx.specs.app import RetryPolicy
from torchx.specs.status import AppState

JOBS = "/apis/batch/v1/namespaces/default/jobs"


def what_is_there(cluster: FakeCluster) -> list[str]:
    return [
        f"{resource}/{each['metadata']['name']}"
        for resource in ("jobs", "services", "configmaps", "pods", "jobsets")
        for each in cluster.objects(resource)
    ]


def test_everything_set_ownerss_to_the_job(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, "true")
    (job,) = cluster.objects("jobs")
    assert app_id == f"default:{job['metadata']['labels'][APP_ID]}"
    for service in cluster.objects("services"):
        assert [owner["uid"] for owner in service["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]


@pytest.mark.parametrize("refused", ["services", "jobs"])
def test_what_was_made_is_removed_when_one_is_refused(
    cluster: FakeCluster, scheduler: KubernetesScheduler, refused: str
) -> None:
    info = scheduler.submit_dryrun(app("true", role("true", name="other")), {"validate_spec": False})
    message = f"{refused} is forbidden: exceeded quota: q"
    # the second of its kind: the first was made
    cluster.fault("POST", f"/{refused}$", "lose")
    cluster.fault("POST", f"/{refused}$", 403, body={"message": message})
    with pytest.raises(ClusterError, match="has no quota left: exceeded quota: q"):
        scheduler.schedule(info)
    wait_until(lambda: what_is_there(cluster) == [], "nothing is left")


def test_nothing_is_made_when_cluster_would_refuse_part(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    before = cluster.store.version
    cluster.fault(
        "POST", "/jobs$", 422, body={"reason": "Invalid", "message": 'Job.batch "x" is invalid: so'}
    )
    with pytest.raises(ClusterError, match="the cluster refuses Job x"):
        submit(scheduler, "true")
    assert [requested for requested in cluster.asked if not requested.startswith("POST")] == [], (
        "nothing had to be undone"
    )
    assert cluster.store.version == before, "not even for a moment"


def test_a_namespace_that_is_not_there(scheduler: KubernetesScheduler) -> None:
    for validate in (True, False):
        with pytest.raises(ClusterError, match="the cluster has no namespace `nosuch`"):
            submit(scheduler, "true", namespace="nosuch", validate_spec=validate)


def test_an_answer_that_got_lost_is_no_failure(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    cluster.fault("POST", "/jobs$", "lose")
    app_id = submit(scheduler, "true", validate_spec=False)
    assert len(cluster.objects("jobs")) == 1
    assert until_ended(scheduler, app_id).state is AppState.SUCCEEDED


def test_a_cluster_that_is_busy_is_queried_again(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    cluster.fault("POST", "", 429, times=3, headers=(("Retry-After", "0"),))
    submit(scheduler, "true")
    assert len(cluster.objects("jobs")) == 1


def test_what_breaks_off_in_between_leaves_nothing(
    cluster: FakeCluster, scheduler: KubernetesScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchx.schedulers.kubernetes import submit as kubernetes_submit

    def interrupted(*args: Any) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(kubernetes_submit, "_set_owners", interrupted)
    with pytest.raises(KeyboardInterrupt):
        submit(scheduler, "true")
    wait_until(lambda: what_is_there(cluster) == [], "nothing is left")


def test_what_cannot_be_removed_again_is_reported(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    info = scheduler.submit_dryrun(app("true"), {"validate_spec": False})
    cluster.fault("POST", "/jobs$", 403)
    cluster.fault("DELETE", "", 403, times=9)
    with pytest.raises(ClusterError) as caught:
        scheduler.schedule(info)
    name = info.request.app_id
    assert f"kubectl delete -n default job/{name}-worker" in str(caught.value.hint)
    assert f"service/{name}" in str(caught.value.hint).split()


def test_a_request_is_submitted_once(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    info = scheduler.submit_dryrun(app("sleep 60"), {"grace_period": 1.0})
    app_id = scheduler.schedule(info)
    with pytest.raises(UsageError, match="already exists"):
        scheduler.schedule(info)
    assert scheduler.exists(app_id), "the first one is left alone"
    assert len(cluster.objects("jobs")) == 1


def test_jobs_of_several_roles_begin_when_all_are_there(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    app_id = submit(scheduler, role("true", name="a"), role("true", name="b"))
    seen = [thing for _, kind, where, thing in cluster.store.happened if where == JOBS and kind == "ADDED"]
    assert [job["spec"]["suspend"] for job in seen] == [True, True]
    assert until_ended(scheduler, app_id).state is AppState.SUCCEEDED
    assert all(HELD not in (job["metadata"].get("annotations") or {}) for job in cluster.objects("jobs"))


def test_jobs_that_others_keep_changing_are_not_started(
    scheduler: KubernetesScheduler, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0, pauses=[])

    def sleep(seconds: float) -> None:
        clock.pauses.append(seconds)
        clock.now += seconds

    monkeypatch.setattr(kubernetes_submit, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))
    cluster.fault("PATCH", "/jobs/", 409, times=999)
    with pytest.raises(ClusterError, match="other programs kept changing it") as raised:
        submit(scheduler, "true", role("true", "helper"))
    assert raised.value.hint == "show the changes: kubectl get jobs -n default -w -o yaml"
    assert clock.now > kubernetes_submit.START_WITHIN
    assert clock.pauses == sorted(clock.pauses)
    assert len(clock.pauses) < 30
    assert cluster.objects("jobs") == []


def test_a_submission_that_is_killed_leaves_nothing_that_runs(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    """Ends the process with no chance to undo anything, when the second job is about to be made."""
    cluster.fault("POST", "/jobs$", "lose")
    cluster.fault("POST", "/jobs$", "hang")
    child = os.fork()
    if child == 0:
        roles = role("sleep 60", name="a"), role("sleep 60", name="b")
        try:
            submit(create_scheduler("torchx"), *roles, validate_spec=False)
        finally:
            os._exit(1)
    wait_until(lambda: not cluster.faults, "the second job is about to be made")
    os.kill(child, 9)
    os.waitpid(child, 0)
    (line,) = scheduler.list()
    assert line.state is AppState.SUBMITTED
    assert line.msg == "it is being submitted"
    assert cluster.objects("pods") == []


def test_a_cluster_that_hangs_is_given_up(
    cluster: FakeCluster, scheduler: KubernetesScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchx.schedulers.kubernetes.api.client import Cluster

    cluster.fault("POST", "/services$", "hang", times=9)
    patient = Cluster.call
    monkeypatch.setattr(Cluster, "call", lambda *args, **more: patient(*args, **{**more, "timeout": 0.3}))
    begin = time.monotonic()
    with pytest.raises(ClusterError, match="timed out"):
        submit(scheduler, "true")
    assert time.monotonic() - begin < 20


# --- the kind ------------------------------------------------------------------------------------


def test_several_roles_become_a_jobset_where_there_are_some(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    cluster.jobsets = True
    app_id = submit(scheduler, role("true", name="a"), role("true", name="b"))
    (jobset,) = cluster.objects("jobsets")
    assert app_id == f"default:{jobset['metadata']['name']}"
    assert until_ended(scheduler, app_id).state is AppState.SUCCEEDED


def test_one_role_stays_a_job(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    cluster.jobsets = True
    submit(scheduler, "true")
    assert cluster.objects("jobsets") == []


def test_a_jobset_restarts_as_a_whole(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    cluster.jobsets = True
    again = {"max_retries": 1, "retry_policy": RetryPolicy.APPLICATION, "num_replicas": 2}
    app_id = submit(scheduler, role("echo run; test $JOB_COMPLETION_INDEX = 0 || exit 5; sleep 9", **again))
    result = until_ended(scheduler, app_id)
    assert (result.state, result.num_restarts) == (AppState.FAILED, 1)
    assert result.first_failure is not None
    assert (result.first_failure.replica, result.first_failure.attempt, result.first_failure.exit_code) == (
        1,
        2,
        5,
    )


def test_a_kind_that_the_cluster_lacks_is_one_sentence(scheduler: KubernetesScheduler) -> None:
    with pytest.raises(ClusterError, match="the cluster has no jobsets of jobset"):
        submit(scheduler, "true", kind="jobset")


def test_request_that_was_changed_is_sent_as_it_is(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    cluster.jobsets = True
    info = scheduler.submit_dryrun(app(role("true", name="a"), role("true", name="b")), {})
    info.request.manifests[-1]["metadata"]["labels"]["changed"] = "yes"
    scheduler.schedule(info)
    assert cluster.objects("jobsets") == []
    assert any("changed after the dry-run" in note for note in info.notes)


def test_it_is_found_on_its_cluster_again(
    cluster: FakeCluster, scheduler: KubernetesScheduler, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = cluster.kubeconfig(tmp_path / "other")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nosuch"))
    app_id = submit(scheduler, "true", kubeconfig=str(other))
    later = create_scheduler("torchx")
    assert later.exists(app_id)
    until_state(later, app_id, AppState.SUCCEEDED)
    later.delete(app_id)
    assert list((tmp_path.parent).rglob(f"{app_id}.json")) == []
