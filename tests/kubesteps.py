"""Steps of a scheduler of Kubernetes that are interrupted, or disturbed by another process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from fakecluster import FakeCluster
from fakecluster.objects import index, owned, phase, pod_of

from torchx.schedulers.kubernetes import cancel
from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.schedulers.kubernetes.api.errors import ClusterError

PODS = "/api/v1/namespaces/default/pods"

ENDS = ["cancel", *(pytest.param(verb, marks=pytest.mark.long) for verb in ("kill", "delete"))]
"""Methods of a scheduler that end an application; each takes the same way through the steps."""

KILLED = [
    pytest.param(False, id="beside"),
    pytest.param(True, id="after a kill", marks=pytest.mark.long),
]
"""Whether the process that carries out a step is killed then."""

DISTURBANCES = ["killed", pytest.param("second", marks=pytest.mark.long)]
"""The end of the process that carries out a step, and a second process beside it."""

Write = Callable[[], Any]


def rejected(write: Write) -> Any:
    """A write that has no effect."""
    raise ClusterError("it is overloaded", status=503)


def unanswered(write: Write) -> Any:
    """A write that the cluster carries out, and whose answer is lost."""
    write()
    raise ClusterError("the connection was closed")


def repeated(write: Write) -> Any:
    """A write that is sent twice, as by a proxy: the answer is that to the second one."""
    write()
    return write()


WRITES = [rejected, *(pytest.param(way, marks=pytest.mark.long) for way in (unanswered, repeated))]
"""Ways to carry out a write, which a step and an end have to bear."""


class Killed(BaseException):
    """The process of a restart is killed."""


def end_pods(cluster: FakeCluster) -> None:
    """Ends the pods that are due, as a node does."""
    for pod in cluster.objects("pods"):
        if pod["spec"].get("activeDeadlineSeconds") and pod["status"]["phase"] == "Running":
            over = {"exitCode": 143, "reason": "Error", "finishedAt": "2026-11-23T01:00:02Z"}
            ended = {"phase": "Failed", "reason": "DeadlineExceeded"}
            ended["containerStatuses"] = [{"name": "main", "state": {"terminated": over}, "restartCount": 0}]  # type: ignore[assignment]
            cluster.store.update(PODS, pod["metadata"]["name"], lambda p, e=ended: p["status"].update(e))


def control(cluster: FakeCluster) -> None:
    """Creates the pods of jobs that are not suspended, and removes those of the others, as a cluster does."""
    pods = cluster.objects("pods")
    for job in cluster.objects("jobs"):
        mine = [pod for pod in pods if owned(pod, job)]
        if job["spec"].get("suspend") or job["metadata"].get("deletionTimestamp"):
            for pod in mine:
                if phase(pod) not in ("Succeeded", "Failed"):
                    cluster.store.remove(PODS, pod["metadata"]["name"])
        elif not job["status"].get("succeeded"):
            known = {index(pod) for pod in mine}
            for number in set(range(job["spec"]["completions"])) - known:
                pod = pod_of(job, number, 0)
                pod["spec"]["nodeName"] = "node-1"
                pod["status"]["phase"] = "Running"
                cluster.store.create(PODS, pod)


def running(cluster: FakeCluster, app_id: str) -> list[str]:
    """The pods of an application that run."""
    name = app_id.partition(":")[2]
    pods = [pod for pod in cluster.objects("pods") if pod["metadata"]["name"].startswith(name)]
    return [pod["metadata"]["name"] for pod in pods if phase(pod) in ("Pending", "Running")]


class Disturbed:
    """Disturbs a certain write of a scheduler.

    Attributes:
        controlled: whether jobs start and end their pods after each write.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster) -> None:
        self.at, self.busy, self.count = -1, False, 0
        self.way: Callable[[Write], Any] = lambda write: write()
        self.happened, self.cluster, self.controlled = False, cluster, False
        call = Cluster.call

        def disturbed(own: Cluster, method: str, *args: Any, **more: Any) -> Any:
            if method == "GET":
                return call(own, method, *args, **more)

            def write() -> Any:
                answer = call(own, method, *args, **more)
                if self.controlled:
                    control(cluster)
                end_pods(cluster)
                return answer

            if self.busy:
                return write()
            self.count += 1
            if self.count - 1 != self.at:
                return write()
            self.busy = self.happened = True
            try:
                return self.way(write)
            finally:
                self.busy = False

        monkeypatch.setattr(Cluster, "call", disturbed)
        # pods of this cluster change only with a write: a wait for them ends by its time limit
        monkeypatch.setattr(cancel, "APPEARS_WITHIN", 0.1)
        monkeypatch.setattr(cancel, "BACK_OFF", 0.1)

    def run(self, at: int, action: Callable[[], Any], step: Callable[[], Any]) -> bool:
        """Runs a step, with an action before write ``at``; returns False if it has fewer writes."""

        def way(write: Write) -> Any:
            action()
            return write()

        return self.write(at, way, step)

    def write(self, at: int, way: Callable[[Write], Any], step: Callable[[], Any]) -> bool:
        """Runs a step with a certain way of write ``at``; returns False if it has fewer writes."""
        self.at, self.way, self.count, self.happened = at, way, 0, False
        with suppress(Killed, ClusterError):
            step()
        self.at = -1
        return self.happened


def of(cluster: FakeCluster, app_id: str) -> list[dict[str, Any]]:
    name = app_id.partition(":")[2]
    found = [job for job in cluster.objects("jobs") if job["metadata"]["name"].startswith(name)]
    return sorted(found, key=lambda job: str(job["metadata"]["name"]))


class Disturbance(NamedTuple):
    """An end of an application while a step of it is carried out.

    Attributes:
        end: ends the application, in another process.
        killed: whether the process of the step is killed then.
    """

    end: Callable[[str], object]
    killed: bool


def check_the_end_wins(
    disturbed: Disturbed,
    prepare: Callable[[], str],
    step: Callable[[str], object],
    disturbance: Disturbance,
) -> int:
    """Checks that no pod runs after an end before each write of a step; returns the number of writes.

    Args:
        disturbed: runs the steps.
        prepare: submits an application of which the step is due, and returns its id.
        step: carries out the step.
        disturbance: the end.
    """
    at, more = 0, True
    while more:
        app_id = prepare()
        disturbed.controlled = True

        def act(app_id: str = app_id) -> None:
            disturbance.end(app_id)
            if disturbance.killed:
                raise Killed

        more = disturbed.run(at, act, lambda app_id=app_id: step(app_id))
        for later in ("end", "step", "step") if more else ():
            left = running(disturbed.cluster, app_id)
            assert not left, f"disturbed before write {at}, before the next {later}: {left}"
            step(app_id)
        disturbed.controlled = False
        disturbed.cluster.store.clear()
        at += 1
    return at
