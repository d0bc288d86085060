"""A restart of a gang that is interrupted, or disturbed by another process, at each of its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fakecluster import FakeCluster
from fakecluster.objects import pod_of
from kubejobs import OPTIONS, app, role
from kubesteps import (
    DISTURBANCES,
    ENDS,
    KILLED,
    PODS,
    WRITES,
    Disturbance,
    Disturbed,
    Killed,
    Write,
    check_the_end_wins,
    of,
    rejected,
    running,
)

from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.facts import attempt_of
from torchx.schedulers.kubernetes.names import CANCELLED, DISRUPTED, HELD, RESTARTED
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler, create_scheduler

JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A cluster without controllers: its objects change only by requests."""
    with FakeCluster(run=False) as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        yield cluster


@pytest.fixture
def other(cluster: FakeCluster) -> Iterator[KubernetesScheduler]:
    """The scheduler of another process."""
    scheduler = create_scheduler("torchx")
    yield scheduler
    scheduler.close()


def failing(cluster: FakeCluster, scheduler: KubernetesScheduler) -> str:
    """Submits two roles of which a replica has failed while the others run."""
    roles = [role("true", name="a", max_retries=2), role("true", name="b", num_replicas=2, max_retries=2)]
    app_id = scheduler.submit(app(*roles), {**OPTIONS, "retry_backoff": 0.0})
    name = app_id.partition(":")[2]
    for job in cluster.objects("jobs"):
        if not job["metadata"]["name"].startswith(name):
            continue
        for number in range(job["spec"]["completions"]):
            pod = cluster.store.create(PODS, pod_of(job, number, 0))
            bad = job["metadata"]["name"].endswith("-b") and number == 1
            over = {"exitCode": 7, "reason": "Error", "finishedAt": "2026-11-23T01:00:00Z"}
            state = {"terminated": over} if bad else {"running": {"startedAt": "2026-11-23T00:59:00Z"}}
            status = {"phase": "Failed" if bad else "Running"}
            status["containerStatuses"] = [{"name": "main", "state": state, "restartCount": 0}]  # type: ignore[assignment]

            def change(found: dict[str, Any], status: dict[str, Any] = status) -> None:
                found["status"].update(status)
                found["spec"]["nodeName"] = "node-1"

            cluster.store.update(PODS, pod["metadata"]["name"], change)
    return app_id


def check_restarted_once(cluster: FakeCluster, app_id: str, at: int) -> None:
    jobs = of(cluster, app_id)
    where = f"disturbed before write {at}"
    assert [attempt_of(job) for job in jobs] == [1, 2, 1, 2], where
    assert not any(HELD in job["metadata"]["annotations"] for job in jobs if attempt_of(job) == 2), where
    assert [job["spec"]["suspend"] for job in jobs if attempt_of(job) == 2] == [False, False], where
    done = [job["metadata"]["annotations"][RESTARTED] for job in jobs if attempt_of(job) == 1]
    assert all('"done":true' in text for text in done), where
    name = app_id.partition(":")[2]
    services = [each for each in cluster.objects("services") if each["metadata"]["name"].startswith(name)]
    newest = {job["metadata"]["name"] for job in jobs if attempt_of(job) == 2}
    owners = [{owner["name"] for owner in each["metadata"]["ownerReferences"]} for each in services]
    assert owners == [newest] * 3, where


@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_the_next_attempt_is_created_once(
    cluster: FakeCluster,
    scheduler: KubernetesScheduler,
    other: KubernetesScheduler,
    monkeypatch: pytest.MonkeyPatch,
    disturbance: str,
) -> None:
    disturbed = Disturbed(monkeypatch, cluster)
    at, more = 0, True
    while more:
        app_id = failing(cluster, scheduler)

        def act(app_id: str = app_id) -> None:
            if disturbance == "killed":
                raise Killed
            other.reconcile(app_id)

        more = disturbed.run(at, act, lambda app_id=app_id: scheduler.reconcile(app_id))
        for _ in range(2):
            other.reconcile(app_id)
        check_restarted_once(cluster, app_id, at)
        cluster.store.clear()
        at += 1
    assert at > 8, "a restart of two roles has some steps"


@pytest.mark.parametrize("way", WRITES)
def test_a_disturbed_write_restarts_once(
    cluster: FakeCluster,
    scheduler: KubernetesScheduler,
    other: KubernetesScheduler,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[Write], Any],
) -> None:
    disturbed = Disturbed(monkeypatch, cluster)
    at, more = 0, True
    while more:
        app_id = failing(cluster, scheduler)
        more = disturbed.write(at, way, lambda app_id=app_id: scheduler.reconcile(app_id))
        for _ in range(2):
            other.reconcile(app_id)
        check_restarted_once(cluster, app_id, at)
        cluster.store.clear()
        at += 1
    assert at > 8, "a restart of two roles has some steps"


@pytest.mark.parametrize("way", WRITES)
def test_an_end_follows_a_disturbed_restart(
    cluster: FakeCluster,
    scheduler: KubernetesScheduler,
    other: KubernetesScheduler,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[Write], Any],
) -> None:
    disturbed = Disturbed(monkeypatch, cluster)
    at, more = 0, True
    while more:
        app_id = failing(cluster, scheduler)
        disturbed.controlled = True
        more = disturbed.write(at, way, lambda app_id=app_id: scheduler.reconcile(app_id))
        other.cancel(app_id)
        for later in ("end", "step", "step"):
            assert not running(cluster, app_id), f"write {at}, before the next {later}"
            scheduler.reconcile(app_id)
        disturbed.controlled = False
        cluster.store.clear()
        at += 1
    assert at > 8


@pytest.mark.parametrize("way", WRITES)
@pytest.mark.parametrize("verb", ENDS)
def test_a_second_end_completes_a_disturbed_one(
    cluster: FakeCluster,
    scheduler: KubernetesScheduler,
    other: KubernetesScheduler,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    way: Callable[[Write], Any],
) -> None:
    disturbed = Disturbed(monkeypatch, cluster)
    at, more = 0, True
    while more:
        app_id = failing(cluster, scheduler)
        disturbed.controlled = True
        more = disturbed.write(at, way, lambda app_id=app_id: getattr(scheduler, verb)(app_id))
        getattr(other, verb)(app_id)
        for later in ("end", "step", "step"):
            assert not running(cluster, app_id), f"write {at}, before the next {later}"
            other.reconcile(app_id)
        disturbed.controlled = False
        cluster.store.clear()
        at += 1
    assert at > 2


@pytest.mark.long
def test_a_repeated_cancellation_ends_an_interrupted_restart(
    cluster: FakeCluster,
    scheduler: KubernetesScheduler,
    other: KubernetesScheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cancellation between two writes of a restart fails at a write, and is repeated."""
    restart, ending = Disturbed(monkeypatch, cluster), Disturbed(monkeypatch, cluster)
    at, more = 0, True
    while more:
        write, again = 0, True
        while again:
            app_id = failing(cluster, scheduler)
            restart.controlled = ending.controlled = True

            def cancel(app_id: str = app_id, write: int = write) -> None:
                nonlocal again
                again = ending.write(write, rejected, lambda: other.cancel(app_id))

            again = False
            more = restart.run(at, cancel, lambda app_id=app_id: scheduler.reconcile(app_id))
            other.cancel(app_id)
            for later in ("end", "step", "step"):
                where = f"write {write} of the end before write {at}, before the next {later}"
                assert not running(cluster, app_id), where
                scheduler.reconcile(app_id)
            restart.controlled = ending.controlled = False
            cluster.store.clear()
            write += 1
        at += 1
    assert at > 8


@pytest.mark.parametrize("ending", [False, True], ids=["by hand", "by its job"])
def test_pods_that_an_ending_job_deletes_restart_nothing(
    cluster: FakeCluster, scheduler: KubernetesScheduler, ending: bool
) -> None:
    app_id = scheduler.submit(app(role("true", num_replicas=2, max_retries=2)), OPTIONS)
    (job,) = cluster.objects("jobs")
    target = {"type": "FailureTarget", "status": "True", "reason": "DeadlineExceeded"}
    cluster.store.update(JOBS, job["metadata"]["name"], lambda j: j["status"].update(active=2))
    if ending:
        cluster.store.update(JOBS, job["metadata"]["name"], lambda j: j["status"].update(conditions=[target]))
    for number in range(2):
        pod = pod_of(job, number, 0)
        pod["metadata"]["deletionTimestamp"] = "2026-11-23T01:00:00Z"
        pod["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
        pod["spec"]["nodeName"] = "node-1"
        pod["status"]["phase"] = "Running"
        cluster.store.create(PODS, pod)
    scheduler.reconcile(app_id)
    (job, *_) = cluster.objects("jobs")
    notes = job["metadata"]["annotations"]
    assert (RESTARTED in notes) is not ending
    assert any(key.startswith(DISRUPTED) for key in notes) is not ending, "noted as deleted by hand"


@pytest.mark.parametrize("killed", KILLED)
@pytest.mark.parametrize("verb", ENDS)
def test_an_end_wins_against_a_restart(
    cluster: FakeCluster,
    scheduler: KubernetesScheduler,
    other: KubernetesScheduler,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    killed: bool,
) -> None:
    check_the_end_wins(
        Disturbed(monkeypatch, cluster),
        lambda: failing(cluster, scheduler),
        scheduler.reconcile,
        Disturbance(getattr(other, verb), killed),
    )


@pytest.mark.parametrize("verb", ENDS)
def test_a_restart_during_an_end_is_ended_too(
    cluster: FakeCluster,
    scheduler: KubernetesScheduler,
    other: KubernetesScheduler,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
) -> None:
    """An end lists the jobs again: another process may have restarted them since."""
    disturbed = Disturbed(monkeypatch, cluster)
    at, more = 0, True
    while more:
        app_id = failing(cluster, scheduler)
        disturbed.controlled = True
        more = disturbed.run(
            at,
            lambda app_id=app_id: other.reconcile(app_id),
            lambda app_id=app_id: getattr(scheduler, verb)(app_id),
        )
        assert not running(cluster, app_id), f"restarted before write {at}"
        disturbed.controlled = False
        cluster.store.clear()
        at += 1
    assert at > 2


def test_a_second_cancellation_ends_what_still_runs(
    cluster: FakeCluster,
    scheduler: KubernetesScheduler,
    other: KubernetesScheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disturbed = Disturbed(monkeypatch, cluster)

    def killed() -> None:
        raise Killed

    at, more = 0, True
    while more:
        app_id = scheduler.submit(
            app(role("true", name="a", num_replicas=2), role("true", name="b")), OPTIONS
        )
        disturbed.controlled = True
        more = disturbed.run(at, killed, lambda app_id=app_id: scheduler.cancel(app_id))
        first = [job["metadata"]["annotations"].get(CANCELLED) for job in of(cluster, app_id)]
        other.cancel(app_id)
        assert not running(cluster, app_id), f"killed before write {at}"
        for job, time in zip(of(cluster, app_id), first, strict=True):
            assert time in (None, job["metadata"]["annotations"][CANCELLED]), "the first mark stays"
        disturbed.controlled = False
        cluster.store.clear()
        at += 1
    assert at > 4


@pytest.mark.parametrize("verb", ENDS)
def test_an_end_wins_against_a_submission(
    cluster: FakeCluster,
    scheduler: KubernetesScheduler,
    other: KubernetesScheduler,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
) -> None:
    waiting: dict[str, Any] = {}

    def prepare() -> str:
        info = scheduler.submit_dryrun(app(role("true", name="a"), role("true", name="b")), OPTIONS)
        app_id = f"default:{info.request.app_id}"
        waiting[app_id] = info
        return app_id

    def step(app_id: str) -> None:
        info = waiting.pop(app_id, None)
        if info is not None:
            with suppress(ClusterError):  # its objects were deleted meanwhile
                scheduler.schedule(info)

    def end(app_id: str) -> None:
        if of(cluster, app_id):  # before, the application does not exist
            getattr(other, verb)(app_id)
        else:
            raise Killed

    check_the_end_wins(Disturbed(monkeypatch, cluster), prepare, step, Disturbance(end, False))
