"""Starts and ends of services that are interrupted, or disturbed by another process, before each write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    end_pods,
    of,
    running,
)

from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.schedulers.kubernetes.names import AWAITS, CANCELLED, HELD, LATE, RELEASED, STOPPED
from torchx.schedulers.kubernetes.objects import gather
from torchx.schedulers.kubernetes.reconcile import reconcile_objects
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler, create_scheduler
from torchx.specs import after, service

JOBS = "/apis/batch/v1/namespaces/default/jobs"
READY_SINCE = "2026-11-23T01:00:05Z"
RUNNING = {"running": {"startedAt": "2026-11-23T01:00:00Z"}}


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


def job_of(cluster: FakeCluster, app_id: str, name: str) -> dict[str, Any]:
    return next(job for job in of(cluster, app_id) if job["metadata"]["name"].endswith(f"-{name}"))


def marks(cluster: FakeCluster, app_id: str, mark: str) -> list[str]:
    """The roles of the jobs with an annotation."""
    jobs = [job for job in of(cluster, app_id) if mark in job["metadata"]["annotations"]]
    return [job["metadata"]["name"].rpartition("-")[2] for job in jobs]


def change_pods(cluster: FakeCluster, job: dict[str, Any], status: dict[str, Any]) -> None:
    """Creates the pods of a job if there are none, and sets their status."""
    name = job["metadata"]["name"]
    pods = [pod for pod in cluster.objects("pods") if pod["metadata"]["name"].startswith(f"{name}-")]
    count = job["spec"]["completions"]
    pods = pods or [cluster.store.create(PODS, pod_of(job, number, 0)) for number in range(count)]

    def change(pod: dict[str, Any]) -> None:
        pod["status"].update(status)
        pod["spec"]["nodeName"] = "node-1"

    for pod in pods:
        cluster.store.update(PODS, pod["metadata"]["name"], change)


def runs(cluster: FakeCluster, app_id: str, name: str, *, ready: bool) -> None:
    container = {"name": "main", "state": RUNNING, "ready": ready, "restartCount": 0}
    since = READY_SINCE if ready else "2026-11-23T00:59:59Z"
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
    status = {"phase": "Running", "containerStatuses": [container], "conditions": [condition]}
    change_pods(cluster, job_of(cluster, app_id, name), status)


def ends(cluster: FakeCluster, app_id: str, name: str, code: int) -> None:
    over = {
        "exitCode": code,
        "reason": "Error" if code else "Completed",
        "finishedAt": "2026-11-23T01:00:09Z",
    }
    container = {"name": "main", "state": {"terminated": over}, "ready": False, "restartCount": 0}
    job = job_of(cluster, app_id, name)
    change_pods(cluster, job, {"phase": "Failed" if code else "Succeeded", "containerStatuses": [container]})
    if not code:
        conditions = [{"type": "Complete", "status": "True"}]
        done = {"conditions": conditions, "completedIndexes": "0", "succeeded": 1}
        cluster.store.update(JOBS, job["metadata"]["name"], lambda found: found["status"].update(done))


def submitted(cluster: FakeCluster, scheduler: KubernetesScheduler, *, within: str = "10000h") -> str:
    """Submits two services, an ordinary role, and one that waits for all of them; all others run."""
    roles = [
        service(role("true", name="server", num_replicas=2), "tcp:80", within=within),
        service(role("true", name="monitor")),
        role("true", name="prepare"),
        after(role("true", name="trainer"), ["server", "prepare"]),
        after(role("true", name="second"), ["server", "prepare"]),
    ]
    app_id = scheduler.submit(app(*roles), OPTIONS)
    assert marks(cluster, app_id, AWAITS) == ["second", "trainer"]
    assert not marks(cluster, app_id, HELD)
    for name in ("server", "monitor", "prepare"):
        runs(cluster, app_id, name, ready=within != "1s" or name != "server")
    return app_id


def due_start(cluster: FakeCluster, scheduler: KubernetesScheduler) -> str:
    app_id = submitted(cluster, scheduler)
    ends(cluster, app_id, "prepare", 0)
    return app_id


def due_release(cluster: FakeCluster, scheduler: KubernetesScheduler) -> str:
    app_id = due_start(cluster, scheduler)
    scheduler.reconcile(app_id)
    for name in ("trainer", "second"):
        ends(cluster, app_id, name, 0)
    return app_id


def due_failure(cluster: FakeCluster, scheduler: KubernetesScheduler) -> str:
    app_id = submitted(cluster, scheduler)
    ends(cluster, app_id, "monitor", 0)
    return app_id


def due_late(cluster: FakeCluster, scheduler: KubernetesScheduler) -> str:
    return submitted(cluster, scheduler, within="1s")


def pods_of(cluster: FakeCluster, app_id: str, name: str) -> list[dict[str, Any]]:
    start = f"{job_of(cluster, app_id, name)['metadata']['name']}-"
    return [pod for pod in cluster.objects("pods") if pod["metadata"]["name"].startswith(start)]


def check_start(cluster: FakeCluster, app_id: str, where: str) -> None:
    for name in ("trainer", "second"):
        assert job_of(cluster, app_id, name)["spec"]["suspend"] is False, where
    assert not marks(cluster, app_id, AWAITS) + marks(cluster, app_id, RELEASED), where


def check_release(cluster: FakeCluster, app_id: str, where: str) -> None:
    assert marks(cluster, app_id, RELEASED) == ["monitor", "server"], where
    for name in ("monitor", "server"):
        for pod in pods_of(cluster, app_id, name):
            assert pod["spec"]["activeDeadlineSeconds"] == 1, where
            assert pod["status"]["phase"] == "Failed", "it was ended, and its log is kept"


def check_failure(cluster: FakeCluster, app_id: str, where: str) -> None:
    # the service that has failed is complete
    assert set(marks(cluster, app_id, STOPPED)) == {"prepare", "second", "server", "trainer"}, where
    assert all(pod["spec"]["activeDeadlineSeconds"] == 1 for pod in pods_of(cluster, app_id, "server")), where
    assert job_of(cluster, app_id, "trainer")["spec"]["suspend"], where


def check_late(cluster: FakeCluster, app_id: str, where: str) -> None:
    notes = [pod["metadata"]["annotations"].get(LATE, "") for pod in pods_of(cluster, app_id, "server")]
    assert any(note.startswith("not ready within 1s: probe tcp:80: ") for note in notes), where
    assert all(pod["spec"]["activeDeadlineSeconds"] == 1 for pod in pods_of(cluster, app_id, "server")), where
    assert set(marks(cluster, app_id, STOPPED)) >= {"monitor", "prepare", "second", "trainer"}, where
    assert job_of(cluster, app_id, "trainer")["spec"]["suspend"], where


STEPS = {
    "start": (due_start, check_start, 2),
    "release": (due_release, check_release, 5),
    "failure": (due_failure, check_failure, 5),
    "late": (due_late, check_late, 6),
}


@pytest.mark.parametrize("disturbance", DISTURBANCES)
@pytest.mark.parametrize("step", STEPS)
def test_a_second_process_continues(
    cluster: FakeCluster,
    scheduler: KubernetesScheduler,
    other: KubernetesScheduler,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    disturbance: str,
) -> None:
    prepare, check, writes = STEPS[step]
    disturbed = Disturbed(monkeypatch, cluster)
    at, more = 0, True
    while more:
        app_id = prepare(cluster, scheduler)

        def act(app_id: str = app_id) -> None:
            if disturbance == "killed":
                raise Killed
            other.reconcile(app_id)

        def both(app_id: str = app_id) -> None:
            for _ in range(2):  # ends of pods follow
                scheduler.reconcile(app_id)

        more = disturbed.run(at, act, both)
        for _ in range(3):
            other.reconcile(app_id)
            end_pods(cluster)
        check(cluster, app_id, f"{disturbance} before write {at}")
        scheduler.delete(app_id)
        at += 1
    assert at > writes


@pytest.mark.long
@pytest.mark.parametrize("way", WRITES)
@pytest.mark.parametrize("step", STEPS)
def test_a_disturbed_write_is_carried_out(
    cluster: FakeCluster,
    scheduler: KubernetesScheduler,
    other: KubernetesScheduler,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    way: Callable[[Write], Any],
) -> None:
    prepare, check, _ = STEPS[step]
    disturbed = Disturbed(monkeypatch, cluster)
    at, more = 0, True
    while more:
        app_id = prepare(cluster, scheduler)
        more = disturbed.write(at, way, lambda app_id=app_id: scheduler.reconcile(app_id))
        for _ in range(4):
            other.reconcile(app_id)
            end_pods(cluster)
        check(cluster, app_id, f"{way.__name__}: write {at}")
        cluster.store.clear()
        at += 1
    assert at > 1


@pytest.mark.parametrize("way", WRITES)
def test_an_end_follows_a_disturbed_start(
    cluster: FakeCluster,
    scheduler: KubernetesScheduler,
    other: KubernetesScheduler,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[Write], Any],
) -> None:
    disturbed = Disturbed(monkeypatch, cluster)
    at, more = 0, True
    while more:
        app_id = due_start(cluster, scheduler)
        disturbed.controlled = True
        more = disturbed.write(at, way, lambda app_id=app_id: scheduler.reconcile(app_id))
        other.cancel(app_id)
        for later in ("end", "step", "step"):
            assert not running(cluster, app_id), f"write {at}, before the next {later}"
            scheduler.reconcile(app_id)
        disturbed.controlled = False
        cluster.store.clear()
        at += 1
    assert at > 2


@pytest.mark.parametrize("killed", KILLED)
@pytest.mark.parametrize("verb", ENDS)
def test_an_end_wins_against_a_start(
    cluster: FakeCluster,
    scheduler: KubernetesScheduler,
    other: KubernetesScheduler,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    killed: bool,
) -> None:
    writes = check_the_end_wins(
        Disturbed(monkeypatch, cluster),
        lambda: due_start(cluster, scheduler),
        scheduler.reconcile,
        Disturbance(getattr(other, verb), killed),
    )
    assert writes > 2


def test_an_interrupted_cancellation_is_completed(
    cluster: FakeCluster,
    scheduler: KubernetesScheduler,
    other: KubernetesScheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disturbed = Disturbed(monkeypatch, cluster)

    def kill() -> None:
        raise Killed

    at, more = 0, True
    while more:
        app_id = due_start(cluster, scheduler)
        more = disturbed.run(at, kill, lambda app_id=app_id: scheduler.cancel(app_id))
        other.reconcile(app_id)
        cancelled = marks(cluster, app_id, CANCELLED)
        started = not job_of(cluster, app_id, "trainer")["spec"].get("suspend")
        assert (cancelled and not started) or (not cancelled and at == 0), f"killed before write {at}"
        at += 1
    assert at > 4


def test_a_start_needs_the_unchanged_job(
    cluster: FakeCluster, scheduler: KubernetesScheduler, other: KubernetesScheduler
) -> None:
    """A process with an old copy of the objects starts nothing after a cancellation."""
    app_id = due_start(cluster, scheduler)
    old = gather(Cluster(), "default", app_id.partition(":")[2])
    assert old is not None
    other.cancel(app_id)
    assert not reconcile_objects(Cluster(), old), "it is to be repeated"
    assert job_of(cluster, app_id, "trainer")["spec"]["suspend"]
